/** How a report on recorded turns reads as lines. Pure: a report in, text out. */
import { displayWidth } from "effect/cli/CliOutput"
import type * as TurnInsights from "../TurnInsights.ts"
import { clean, cut, pad, type Paint } from "./text.ts"

type Cell = string | number | null

interface Column {
  readonly title: string
  /** Names are on the left and give way where there is no room; numbers are on the right and never cut. */
  readonly name?: true
  /** Left out where there is no room. */
  readonly spare?: true
}

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 })

const shown = (cell: Cell): string =>
  cell === null ? "?" : typeof cell === "number" ? grouped.format(cell) : clean(cell)

const gap = 2

/** No name widens the table more than that, however wide the terminal is. */
const longest = 40

/** Names are cut down to this before a column is left out, and to that after. */
const cutBefore = 20
const cutAfter = 8

/** A table as wide as the terminal at most; 0 where there is none. */
const table = (
  columns: ReadonlyArray<Column>,
  rows: ReadonlyArray<ReadonlyArray<Cell>>,
  { paint, width }: { readonly paint: Paint; readonly width: number }
): string => {
  const texts = rows.map((row) => row.map(shown))
  const wide = columns.map(({ name, title }, i) => {
    const most = Math.max(displayWidth(title), ...texts.map((row) => displayWidth(row[i]!)))
    return name === true ? Math.min(most, longest) : most
  })
  let kept = [...columns.keys()]
  const over = () => width === 0 ? 0 : kept.reduce((sum, i) => sum + wide[i]! + gap, -gap) - width
  const shrink = (least: number) => {
    const names = kept.filter((i) => columns[i]!.name === true)
    for (let left = over(); left > 0; left--) {
      // The widest name gives way first.
      const widest = names.reduce((a, b) => wide[b]! > wide[a]! ? b : a)
      if (wide[widest]! <= least) return
      wide[widest]!--
    }
  }
  shrink(cutBefore)
  if (over() > 0) kept = kept.filter((i) => columns[i]!.spare !== true)
  shrink(cutAfter)
  const line = (cells: ReadonlyArray<string>, colour: (text: string) => string = (text) => text) =>
    kept.map((i) => {
      const text = cells[i]!
      return colour(
        columns[i]!.name === true
          ? pad(cut(text, wide[i]!), wide[i]!)
          : " ".repeat(wide[i]! - displayWidth(text)) + text
      )
    }).join(" ".repeat(gap)).trimEnd()
  return [line(columns.map(({ title }) => title), paint.strong), ...texts.map((row) => line(row))].join("\n")
}

const plural = (n: number, one: string): string => `${grouped.format(n)} ${one}${n === 1 ? "" : "s"}`

const tokensOf = ({ envelopeTokens, historyTokens }: TurnInsights.Candidate["saved"]): number | null =>
  historyTokens === null ? null : envelopeTokens + historyTokens

/** The whole report, one paragraph a subject. */
export const report = (
  report: TurnInsights.Report,
  options: { readonly width: number; readonly limit: number; readonly paint: Paint }
): string => {
  const { candidates, lists, options: { threshold }, requests, sources, totals } = report
  const { paint, limit } = options
  const forms = new Map<string, number>()
  for (const { form } of sources) forms.set(form, (forms.get(form) ?? 0) + 1)
  const parts = [
    `${plural(totals.calls, "call")} of ${plural(totals.tools, "tool")} in ${plural(totals.steps, "step")} of ${
      plural(totals.userTurns, "user turn")
    }; ${plural(sources.length, "recording")} (${
      [...forms].map(([form, n]) => n === 1 ? form : `${form} ${n}`).join(", ")
    })`,
    ...(totals.calls === 0 ? [] : [spread(report, options)])
  ]
  if (candidates.length === 0) parts.push(`no tool was called more than ${plural(threshold, "time")} in one user turn`)
  else {
    const over = report.tools.filter(({ over }) => over > 0)
    parts.push(
      `${paint.faint(`called more than ${plural(threshold, "time")} in one user turn; what lists would have saved`)}\n${
        table(
          [
            { title: "tool", name: true },
            { title: "user turns" },
            { title: "most" },
            { title: "round trips" },
            { title: "requests" },
            { title: "tokens" }
          ],
          over.slice(0, limit).map(({ most, over, saved, tool }) => [
            tool,
            over,
            most,
            saved.roundTrips,
            saved.requests,
            tokensOf(saved)
          ]),
          options
        )
      }${more(over.length, limit)}\n${savedIn(totals.saved)}`,
      `${paint.faint("the user turns that would have saved most (#: conversation and turn)")}\n${
        table(
          [
            { title: "where", name: true },
            { title: "#" },
            { title: "tool", name: true },
            { title: "calls" },
            { title: "steps", spare: true },
            { title: "distinct", spare: true },
            { title: "trips" },
            { title: "requests" },
            { title: "tokens" }
          ],
          candidates.slice(0, limit).map((
            { calls, conversation, distinct, index, saved, source, steps, tool, turn }
          ) => [
            `${lastOf(source)}${conversation === null ? "" : ` ${conversation}`}`,
            `${index}.${turn}`,
            tool,
            calls,
            steps,
            distinct,
            saved.roundTrips,
            saved.requests,
            tokensOf(saved)
          ]),
          options
        )
      }${more(candidates.length, limit)}`
    )
  }
  if (lists.length > 0) {
    parts.push(`${paint.faint("asked for lists already")}\n${
      table(
        [
          { title: "tool", name: true },
          { title: "calls" },
          { title: "items" },
          { title: "median" },
          { title: "most" },
          {
            title: "deferred"
          }
        ],
        lists.map(({ calls, deferred, items, sizes, tool }) => [tool, calls, items, sizes.p50, sizes.max, deferred]),
        options
      )
    }`)
  }
  if (requests.length > 0) {
    parts.push(`${paint.faint("merged already")}\n${
      table(
        [
          { title: "coalescer", name: true },
          { title: "calls" },
          { title: "requests" },
          { title: "ratio" },
          { title: "median" },
          { title: "most" },
          { title: "not found" }
        ],
        requests.map(({ calls, coalescer, missing, ratio, requests, sizes }) => [
          coalescer,
          calls,
          requests,
          ratio,
          sizes.p50,
          sizes.max,
          missing
        ]),
        options
      )
    }`)
  }
  const also = [
    ...(totals.duplicates > 0 ? [`${plural(totals.duplicates, "duplicate")} in a step`] : []),
    ...totals.deferred.map(({ code, count }) => `${grouped.format(count)} deferred: ${clean(code)}`),
    ...(totals.cut > 0 ? [`${plural(totals.cut, "answer")} cut`] : [])
  ]
  if (also.length > 0) parts.push(also.join(", "))
  return parts.join("\n\n")
}

const spread = (
  { callsPerStep, callsPerUserTurn, stepsPerUserTurn }: TurnInsights.Report,
  options: { readonly width: number; readonly paint: Paint }
): string =>
  table(
    [{ title: "", name: true }, { title: "mean" }, { title: "median" }, { title: "9 of 10" }, { title: "most" }],
    ([
      ["calls in a user turn", callsPerUserTurn],
      ["calls in a step", callsPerStep],
      ["steps in a user turn", stepsPerUserTurn]
    ] as const).map(([name, { max, mean, p50, p90 }]) => [name, mean, p50, p90, max]),
    options
  )

const savedIn = (
  { envelopeTokens, historyTokens, historyUnknown, requests, roundTrips }: TurnInsights.Report["totals"]["saved"]
) =>
  `in all ${plural(roundTrips, "round trip")}, ${plural(requests, "request")} to backends, about ${
    plural(envelopeTokens + historyTokens, "token")
  }${historyUnknown > 0 ? " and those that the recordings do not tell" : ""}`

const more = (all: number, limit: number): string =>
  all > limit ? `\n${limit} of ${grouped.format(all)}: --limit N shows more, --json all` : ""

/** The name of a file without its folders, which have no room here. */
const lastOf = (source: string): string => source.split(/[\\/]/).at(-1) || source

/** What has to be known to read the numbers, one line a recording. */
export const notes = ({ sources }: TurnInsights.Report): ReadonlyArray<string> =>
  sources.flatMap(({ notes, source }) => notes.map((note) => `${clean(source)}: ${clean(note)}`))
