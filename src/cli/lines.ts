/** How calls, events and outcomes read as lines. Pure: text in, text out. */
import { displayWidth } from "effect/cli/CliOutput"
import * as Outcome from "../Outcome.ts"
import type { Report } from "../testing/Scenario.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import * as Progress from "./progress.ts"
import { clean, cut, duration, json, pad, type Paint, wrap } from "./text.ts"

const spinner = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]

/** `#3 book_hotel`: how every line names a call. */
const label = (position: number, name: string): string => `#${position} ${clean(name)}`

const statusPaint = (outcome: Outcome.Outcome, paint: Paint) =>
  outcome.status === "ok" || outcome.status === "provider_executed"
    ? paint.ok
    : outcome.status === "deferred" || outcome.status === "pending_approval"
    ? paint.held
    : paint.bad

const statusMark = (outcome: Outcome.Outcome): string =>
  outcome.status === "ok" || outcome.status === "provider_executed"
    ? "✓"
    : outcome.status === "deferred" || outcome.status === "pending_approval"
    ? "⏸"
    : "✗"

const statusText = (outcome: Outcome.Outcome): string =>
  "code" in outcome ? `${outcome.status} (${outcome.code})` : outcome.status

/** The lines of a turn that runs, one for each call, as many as fit. */
export const live = (
  progress: Progress.Progress,
  now: number,
  options: { readonly width: number; readonly height: number; readonly tick: number; readonly paint: Paint }
): ReadonlyArray<string> => {
  const { paint, width } = options
  // Names get less than half of a narrow terminal: the rest says what is going on.
  const nameWidth = Math.min(
    32,
    Math.max(10, Math.floor(width * 0.4)),
    Math.max(...progress.rows.map((row) => displayWidth(label(row.position, row.call.name))), 0)
  )
  const line = (row: Progress.Row): string => {
    const name = pad(cut(label(row.position, row.call.name), nameWidth), nameWidth)
    const [mark, text, colour] = stateOf(progress, row, now, options.tick, paint)
    return `${name}  ${colour(cut(`${mark} ${clean(text)}`, Math.max(1, width - nameWidth - 2)))}`
  }
  const waiting = progress.awaits ? awaited(progress) : undefined
  const notice = waiting === undefined ? [] : wrap(waiting, width).split("\n")
  const rows = chosen(progress.rows, Math.max(1, options.height - notice.length))
  const done = progress.rows.filter((row) => row.state === "done").length
  const hidden = progress.rows.length - rows.length
  const told = progress.streaming && progress.rows.length === 0
    ? "the response has no calls so far"
    : undefined
  const total = told ??
    `${done} of ${progress.rows.length}${progress.streaming ? " so far" : ""} answered, ${duration(now)}${
      hidden > 0 ? `, ${hidden} more not shown` : ""
    }${progress.stopped === undefined ? "" : `, ${clean(progress.stopped)}`}`
  return [
    ...rows.map(line),
    paint.faint(cut(total, width)),
    ...notice.map((line) => paint.held(cut(line, width)))
  ]
}

/** How a call stands: its mark, in words, and the colour of both. */
const stateOf = (
  progress: Progress.Progress,
  row: Progress.Row,
  now: number,
  tick: number,
  paint: Paint
): readonly [mark: string, text: string, colour: (text: string) => string] => {
  const { outcome } = row
  const time = duration(now - row.since)
  if (outcome !== undefined) {
    const ran = Progress.ranFor(row)
    const twin = outcome.duplicateOf === undefined ? "" : `, same as #${outcome.duplicateOf.position}`
    return [
      statusMark(outcome),
      `${statusText(outcome)}${ran === undefined ? "" : ` in ${duration(ran)}`}${twin}`,
      statusPaint(outcome, paint)
    ]
  }
  switch (row.state) {
    case "running": {
      const more = row.overdue ? ", overdue: a write is awaited" : row.shares === undefined ? "" : `, ${row.shares}`
      const note = row.note === undefined ? "" : `: ${row.note}`
      return [spinner[tick % spinner.length]!, `running ${time}${more}${note}`, paint.strong]
    }
    case "waiting":
      return ["·", `waiting ${time} ${Progress.waitingFor(progress, row)}`, paint.faint]
    case "held":
      return ["⏸", "waits for a human's approval", paint.held]
    default: {
      const twin = progress.plan?.calls[row.position]?.duplicateOf
      const words = progress.streaming
        ? "waits for the end of the response"
        : twin === undefined
        ? ""
        : `same as #${twin}`
      return ["·", words, paint.faint]
    }
  }
}

/** All rows where they fit, else those at work, then those that wait, then the latest that ended. */
const chosen = (rows: ReadonlyArray<Progress.Row>, height: number): ReadonlyArray<Progress.Row> => {
  if (rows.length <= height) return rows
  const rank = { running: 0, waiting: 1, listed: 1, held: 2, done: 3 }
  return rows.toSorted((a, b) =>
    rank[a.state] - rank[b.state] || (a.state === "done" ? b.since - a.since : a.position - b.position)
  ).slice(0, height).toSorted((a, b) => a.position - b.position)
}

/** The line of one event, where lines are all there is; `undefined` for events that say nothing new. */
export const ofEvent = (progress: Progress.Progress, event: TurnEvent.TurnEvent): string | undefined => {
  const time = pad(duration(event.at - (progress.origin ?? event.at)), 8)
  const of = (word: string, rest: string) => `${time}  ${pad(word, 8)}  ${rest}`
  switch (event._tag) {
    case "TurnStarted":
    case "TurnEnded":
    case "CallProgressed":
      return undefined
    case "TurnStopped":
      return of("stop", `${event.code}${event.reason === undefined ? "" : ` (${clean(event.reason)})`}`)
    case "RequestSent":
      return of("request", `${clean(event.into)} for ${Progress.someOf(event.positions.map((at) => `#${at}`))}`)
    case "RequestEnded":
      return undefined
    case "CallSettledLate":
      return of("late", `${label(event.position, event.tool)} ${statusText(event.outcome)}`)
  }
  const name = label(event.position, event.tool)
  const row = progress.rows[event.position]
  switch (event._tag) {
    case "CallQueued":
      return of("wait", `${name} ${row === undefined ? "" : clean(Progress.waitingFor(progress, row))}`)
    case "CallHeld":
      return of("hold", `${name} waits for a human's approval`)
    case "CallStarted":
      return of("start", `${name} ${argumentsText(row?.call.arguments)}${waitedText(event, row)}`)
    case "CallRetried":
      return of("retry", `${name} in ${duration(event.pause)}, after ${statusText(event.outcome)}`)
    case "CallOverdue":
      return of("overdue", `${name}: a write that has started is awaited`)
    case "CallApplied":
      return of("applied", `${name}: it stands if all of its unit succeed`)
    case "CallUndone":
      return of("undo", `${name}: ${event.ok ? "nothing of it stands" : "it failed, so it may stand"}`)
    case "ResultCut":
      return of(
        "cut",
        `${name}: the model gets ${event.to} of ${event.of} characters${
          event.artifact === undefined ? "" : `, the whole is artifact ${event.artifact}`
        }`
      )
    case "CallEnded": {
      const ran = row === undefined ? undefined : Progress.ranFor(row)
      return of("end", `${name} ${statusText(event.outcome)}${ran === undefined ? "" : ` in ${duration(ran)}`}`)
    }
  }
}

const argumentsText = (args: unknown): string =>
  args == null || (typeof args === "string" && args.trim() === "") ? "{}" : cut(json(args), 60)

/** What a stop waits for: the calls that are still at work, and what leaving them would mean. */
export const awaited = (progress: Progress.Progress): string | undefined => {
  const rows = progress.rows.filter((row) => row.state === "running")
  if (rows.length === 0) return undefined
  const writes = rows.filter((row) => progress.plan?.calls[row.position]?.access !== "read").length
  const names = Progress.someOf(rows.map((row) => label(row.position, row.call.name)))
  const unknown = writes === 0
    ? ""
    : `; whether ${rows.length === 1 ? "it" : "they"} took effect would not be known`
  return `stopping: waiting for ${names} (Ctrl-C again leaves at once${unknown})`
}

const waitedText = ({ backend, waited }: TurnEvent.CallStarted, row: Progress.Row | undefined): string => {
  const earlier = row === undefined ? "earlier calls" : Progress.earlierText(row)
  const parts = [
    ...(waited.keys < 1 ? [] : [`${duration(waited.keys)} for ${earlier}`]),
    ...(waited.permit < 1 ? [] : [`${duration(waited.permit)} for ${backend ?? "the turn's own limit"}`]),
    ...(waited.rate < 1 ? [] : [`${duration(waited.rate)} for the rate of ${backend}`]),
    ...(waited.approval < 1 ? [] : [`${duration(waited.approval)} for an approval`])
  ]
  return parts.length === 0 ? "" : ` after ${parts.join(" and ")}`
}

/** Where an exploration stands: `⠋ 120 of 200 interleavings in 2.10 s: a.json`. */
export const exploring = (
  file: string,
  of: number,
  progress: { readonly seeds: number; readonly shrinks: number },
  options: { readonly elapsed: number; readonly width: number; readonly tick: number; readonly paint: Paint }
): string => {
  const what = progress.shrinks === 0
    ? `${progress.seeds} of ${of} interleavings`
    : `made a failure smaller by ${progress.shrinks} runs`
  const mark = spinner[options.tick % spinner.length]!
  const line = `${mark} ${what} in ${duration(options.elapsed)}: ${clean(file)}`
  return options.paint.faint(cut(line, options.width))
}

/** What became of a scenario file, in words for people. */
export const ofReport = (path: string, report: Report, paint: Paint): string => {
  const { explored, failures, pass } = report
  const found = explored?.found
  const runs = explored === undefined || explored.runs === 0
    ? ""
    : found !== undefined
    ? `  (seed ${found.seed})`
    : explored.runs === 1
    ? "  (1 seed)"
    : `  (${explored.runs} seeds, ${explored.distinct} different)`
  const indented = (lines: ReadonlyArray<string>, by: number) => lines.map((line) => `${" ".repeat(by)}${clean(line)}`)
  return [
    `${pass ? paint.ok("pass") : paint.bad("FAIL")}  ${clean(path)}${runs}`,
    ...indented(failures, 6),
    ...(explored?.runs === 0
      ? indented(["It fails in the natural order, so nothing was explored."], 6)
      : []),
    ...(found === undefined ? [] : [
      ...indented([
        `What differs from the natural order, with ${found.switches} forced ${
          found.switches === 1 ? "switch" : "switches"
        }:`
      ], 6),
      ...indented(found.differences.length === 0 ? ["nothing that can be seen from outside"] : found.differences, 8),
      ...indented(["Repeat it:"], 6),
      ...indented([`effect-turn scenario --replay ${found.replay} ${quoted(path)}`], 8),
      ...indented(["What ran when (>: something was forced):"], 6),
      ...indented(found.trace, 8)
    ])
  ].join("\n")
}

/** A path as a shell takes it. */
const quoted = (path: string): string => {
  const whole = path.startsWith("-") ? `./${path}` : path
  return /^[\w@%+=:,./-]+$/.test(whole) ? whole : `'${whole.replaceAll("'", `'\\''`)}'`
}

/** The table of outcomes, one line for each call, as wide as the terminal; 0 where there is none. */
export const table = (
  progress: Progress.Progress,
  outcomes: ReadonlyArray<Outcome.Outcome>,
  options: { readonly width: number; readonly paint: Paint }
): string => {
  const head = ["call", "outcome", "effect", "again?", "time", "for the model"]
  const cells = outcomes.map((outcome, index) => {
    const row = progress.rows[index]
    const ran = row === undefined ? undefined : Progress.ranFor(row)
    return [
      cut(label(outcome.position, outcome.name), 36),
      statusText(outcome),
      outcome.started || outcome.effect !== "none" ? outcome.effect : "not run",
      outcome.retryable ? "yes" : "no",
      ran === undefined ? "" : duration(ran),
      detail(outcome)
    ]
  })
  const { paint } = options
  const colourOf = (index: number) => statusPaint(outcomes[index]!, paint)
  const widths = head.slice(0, -1).map((title, column) =>
    Math.max(title.length, ...cells.map((cell) => displayWidth(cell[column]!)))
  )
  const used = widths.reduce((sum, width) => sum + width + 2, 0)
  if (options.width > 0 && used - 2 > options.width) {
    return stacked(cells, options.width, colourOf, paint)
  }
  // What the model gets stands on a line of its own where there would be no room to read it.
  const below = options.width > 0 && options.width - used < 30
  const rest = options.width === 0 ? 200 : Math.max(8, options.width - (below ? 4 : used))
  const line = (cell: ReadonlyArray<string>, colour: (text: string, column: number) => string) => {
    const cells = cell.map((text, column) =>
      colour(column === widths.length ? cut(text, rest) : pad(text, widths[column]!), column)
    )
    return below
      ? `${cells.slice(0, -1).join("  ").trimEnd()}\n    ${cells.at(-1)}`
      : cells.join("  ").trimEnd()
  }
  return [
    line(head, (text) => paint.strong(text)),
    ...cells.map((cell, index) => line(cell, (text, column) => column === 1 ? colourOf(index)(text) : text))
  ].join("\n")
}

/** The outcomes where a table has no room: a call, what became of it, and what the model gets of it stand below each other. */
const stacked = (
  cells: ReadonlyArray<ReadonlyArray<string>>,
  width: number,
  colourOf: (index: number) => (text: string) => string,
  paint: Paint
): string =>
  cells.map(([call, status, effect, again, time, detail], index) => {
    const more = [
      effect === "none" ? "" : effect === "not run" ? effect : `effect ${effect}`,
      again === "yes" ? "again" : "",
      time
    ]
    const rest = more.filter((word) => word !== "").map((word) => `, ${word}`).join("")
    const shown = cut(status!, width - 2)
    return [
      paint.strong(cut(call!, width)),
      `  ${colourOf(index)(shown)}${cut(rest, Math.max(0, width - 2 - displayWidth(shown)))}`,
      `  ${cut(detail!, Math.max(1, width - 2))}`
    ].join("\n")
  }).join("\n")

const detail = (outcome: Outcome.Outcome): string => {
  const twin = outcome.duplicateOf === undefined ? "" : `[same as #${outcome.duplicateOf.position}] `
  const { isFailure, value } = Outcome.forModel(outcome)
  if (!isFailure) return outcome.status === "ok" ? twin + json(value) : "run by the provider"
  return twin + (outcome.message === "" ? json(value) : clean(outcome.message))
}

/** `9 calls in 0.84 s: 5 ok, 1 error, …`. */
export const summary = (progress: Progress.Progress, outcomes: ReadonlyArray<Outcome.Outcome>): string => {
  const counts = new Map<string, number>()
  for (const { status } of outcomes) counts.set(status, (counts.get(status) ?? 0) + 1)
  const parts = Array.from(counts, ([status, count]) => `${count} ${status.replaceAll("_", " ")}`)
  const { shared } = progress
  const requests = shared.requests === 0
    ? ""
    : `; ${shared.calls} calls shared ${shared.requests === 1 ? "one request" : `${shared.requests} requests`}`
  return `${outcomes.length} ${outcomes.length === 1 ? "call" : "calls"} in ${duration(progress.elapsed)}: ${
    parts.join(", ")
  }${requests}`
}
