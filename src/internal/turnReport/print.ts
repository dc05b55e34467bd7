/** A report as text: no line is wider than it may be, whatever the names are. */
import type * as TurnReport from "../../TurnReport.ts"
import { duration, fitted, number, shortened, visible, widthOf, wrapped } from "./text.ts"
import { did, headline, nameOf, outcomeOf, reasonOf, savings, sharesOf, waitsOf } from "./words.ts"

interface Options {
  readonly width: number
  readonly ascii: boolean
}

/** What a bar is drawn with; what comes later is drawn over what came before. */
const marks: ReadonlyArray<
  readonly [kinds: ReadonlyArray<TurnReport.SpanKind>, block: string, ascii: string, says: string]
> = [
  [["keys", "permit", "rate", "approval", "twin", "starting"], "░", ".", "waits"],
  [["unit"], "▒", ":", "waits for its unit"],
  [["pause"], "╌", "~", "pauses"],
  [["overdue"], "▓", "!", "overdue"],
  [["running"], "█", "#", "runs"]
]

const barOf = ({ spans }: TurnReport.Call, elapsed: number, width: number, ascii: boolean): string => {
  const cells = Array.from({ length: width }, () => " ")
  const scale = elapsed === 0 ? 0 : width / elapsed
  for (const [kinds, block, letter] of marks) {
    for (const { from, kind, to } of spans) {
      if (!kinds.includes(kind)) continue
      // What is short is seen all the same.
      const first = Math.min(width - 1, Math.floor(from * scale))
      const last = Math.max(first, Math.min(width, Math.ceil(to * scale)) - 1)
      cells.fill(ascii ? letter : block, first, last + 1)
    }
  }
  return cells.join("")
}

const right = (text: string, width: number): string => " ".repeat(Math.max(0, width - widthOf(text))) + text

/** The lines of the calls: name, bar, how long it waited and ran, and its answer. */
const timeline = (turn: TurnReport.Turn, { ascii, width }: Options): ReadonlyArray<string> => {
  const { calls, elapsed, path } = turn
  if (calls.length === 0) return []
  const onPath = new Set(path.map(({ position }) => position))
  const rows = calls.map((call) => {
    const { approval, keys, permit, rate } = call.waited
    return {
      call,
      name: nameOf(call),
      outcome: outcomeOf(call),
      waited: keys + permit + rate + approval > 0 ? duration(keys + permit + rate + approval) : "",
      ran: call.attempts > 0 ? duration(call.ran) : ""
    }
  })
  const most = (least: number, of: (row: typeof rows[number]) => string) =>
    rows.reduce((width, row) => Math.max(width, widthOf(of(row))), least)
  const names = Math.min(most(4, ({ name }) => name), Math.floor(width * 0.3), 32)
  const outcomes = Math.min(most(7, ({ outcome }) => outcome), Math.floor(width * 0.3), 32)
  const times = width < 72 ? 0 : most(6, ({ waited }) => waited) + most(3, ({ ran }) => ran) + 4
  const waitedWidth = most(6, ({ waited }) => waited)
  const bar = Math.max(8, width - 2 - names - 2 - times - 2 - outcomes)
  const line = (mark: string, name: string, drawn: string, waited: string, ran: string, outcome: string) =>
    shortened(
      [
        `${mark} ${fitted(name, names)}`,
        fitted(drawn, bar),
        ...(times === 0 ? [] : [right(waited, waitedWidth), right(ran, times - 4 - waitedWidth)]),
        shortened(outcome, outcomes)
      ].join("  "),
      width
    ).trimEnd()
  const end = duration(elapsed)
  const used = marks.filter(([kinds]) => calls.some(({ spans }) => spans.some(({ kind }) => kinds.includes(kind))))
  const legend = used.map(([, block, letter, says]) => `${ascii ? letter : block} ${says}`).join("   ")
  return [
    line(" ", "call", `0${right(end, bar - 1)}`, "waited", "ran", "outcome"),
    ...rows.map(({ call, name, outcome, ran, waited }) =>
      line(onPath.has(call.position) ? "*" : " ", name, barOf(call, elapsed, bar, ascii), waited, ran, outcome)
    ),
    shortened(`  ${legend === "" ? "" : `${legend}   `}* on the critical path`, width)
  ]
}

/** How many links are printed from each end. */
const ends = 12

const pathLines = (turn: TurnReport.Turn, width: number): ReadonlyArray<string> => {
  const { calls, elapsed, path } = turn
  if (path.length === 0) return []
  const byPosition = new Map(calls.map((call) => [call.position, call]))
  const timeWidth = path.reduce((most, { from, to }) => Math.max(most, duration(to - from).length), 0)
  const lines = path.map((link) => {
    const { attempt = 1, from, kind, position, to } = link
    const call = position === undefined ? undefined : byPosition.get(position)
    const reason = reasonOf(link)
    return wrapped(
      `  ${right(duration(to - from), timeWidth)}  ${call === undefined ? "" : `${nameOf(call)} `}${did[kind]}${
        attempt > 1 ? ` (attempt ${attempt})` : ""
      }${reason === "" ? "" : `, ${reason}`}`,
      width,
      " ".repeat(timeWidth + 6)
    ).join("\n")
  })
  const shown = lines.length <= 2 * ends + 1
    ? lines
    : [...lines.slice(0, ends), `  … ${number(lines.length - 2 * ends)} more …`, ...lines.slice(-ends)]
  const shares = sharesOf(turn).map(([kind, millis]) => `${did[kind]} ${percent(millis, elapsed)}`).join(", ")
  return ["", ...wrapped(`critical path, ${duration(elapsed)}: ${shares}`, width), ...shown]
}

const percent = (part: number, whole: number): string => `${Math.round((part / whole) * 100)}%`

const waitLines = (turn: TurnReport.Turn, width: number): ReadonlyArray<string> => {
  const waits = waitsOf(turn)
  const lines = waits.map(([cause, millis]) => `${cause} ${duration(millis)}`)
  const backends = turn.backends.filter(({ permit, rate }) => permit + rate > 0).map(({ backend, permit, rate }) =>
    `  ${visible(backend)}: ${
      [permit > 0 ? `permits ${duration(permit)}` : "", rate > 0 ? `rate ${duration(rate)}` : ""].filter((part) =>
        part !== ""
      ).join(", ")
    }`
  )
  return waits.length === 0 ? [] : [
    "",
    ...wrapped(`waits of all calls: ${lines.join(", ")}`, width),
    ...backends.flatMap((line) => wrapped(line, width))
  ]
}

const turnLines = (turn: TurnReport.Turn, options: Options): ReadonlyArray<string> => {
  const { width } = options
  const of = [
    ...(turn.tenant === undefined ? [] : [`tenant ${visible(turn.tenant)}`]),
    ...(turn.conversation === undefined ? [] : [`conversation ${visible(turn.conversation)}`])
  ]
  const merged = turn.requests.map(({ backend, from, items, ok, positions, to, into }) =>
    `  ${visible(into)}${backend === undefined ? "" : ` on ${visible(backend)}`}: ${items} for ${positions.length} ${
      positions.length === 1 ? "call" : "calls"
    }, ${to === undefined ? "no end" : `${duration(to - from)}, ${ok} found`}`
  )
  const saved = savings(turn)
  return [
    ...wrapped(`turn ${visible(turn.turn)}${of.length === 0 ? "" : ` (${of.join(", ")})`}`, width),
    ...wrapped(headline(turn), width),
    ...turn.notes.flatMap((note) => wrapped(`! ${note}`, width)),
    ...(turn.calls.length === 0 ? [] : ["", ...timeline(turn, options)]),
    ...waitLines(turn, width),
    ...pathLines(turn, width),
    ...(saved.length === 0 ? [] : ["", "as long as each call takes what it took"]),
    ...saved.flatMap((words) => wrapped(`  ${words}`, width)),
    ...(merged.length === 0
      ? []
      : ["", "requests for several calls", ...merged.flatMap((line) => wrapped(line, width))])
  ]
}

export const printed = (report: TurnReport.Report, options: Options): string =>
  [
    ...(report.notes.length === 0
      ? []
      : [report.notes.flatMap((note) => wrapped(`! ${visible(note)}`, options.width)).join("\n")]),
    ...report.turns.map((turn) => turnLines(turn, options).join("\n")),
    ...(report.turns.length === 0 ? ["no turns"] : [])
  ].join("\n\n")
