/** What parts of a report are called, for people. */
import type * as TurnReport from "../../TurnReport.ts"
import { duration, number, plural, visible } from "./text.ts"

/** What a call does in a span, as a sentence goes on with it: `#3 book_hotel waited for keys`. */
export const did: Readonly<Record<TurnReport.Link["kind"], string>> = {
  keys: "waited for keys",
  permit: "waited for a permit",
  rate: "waited for the rate",
  approval: "waited for an approval",
  twin: "waited for its twin",
  starting: "got ready",
  running: "ran",
  overdue: "ran on, overdue",
  pause: "paused before the next attempt",
  unit: "waited for its unit",
  late: "ran on after its answer",
  submitted: "had not come yet",
  closing: "the turn was being closed",
  unknown: "not in the events"
}

/** `#3 book_hotel`. */
export const nameOf = (call: Pick<TurnReport.Call, "position" | "tool">): string =>
  `#${call.position} ${visible(call.tool)}`

/** `error (defect)`; what there is to know of one without an answer. */
export const outcomeOf = ({ attempts, code, duplicateOf, replayed, status, to }: TurnReport.Call): string => {
  if (to === undefined || status === undefined) return attempts > 0 ? "no answer (started)" : "no answer (not started)"
  const said = code === undefined ? status : `${status} (${visible(code)})`
  return duplicateOf !== undefined ? `${said}, same as #${duplicateOf}` : replayed ? `${said}, replayed` : said
}

/** Why a link did not begin before. */
export const reasonOf = ({ after }: TurnReport.Link): string => {
  if (after === undefined) return ""
  const said = after.cause === "twin"
    ? `same as #${after.position}`
    : after.cause === "permit"
    ? `after a permit${after.backend === undefined ? "" : ` of ${visible(after.backend)}`} from #${after.position}`
    : keyed(after.key, `#${after.position}`)
  return after.inferred ? `${said} (inferred)` : said
}

/** Why a call had to wait for another one: by a key, or by what stands in the place of one. */
const keyed = (key: string | undefined, other: string): string => {
  switch (key) {
    case undefined:
      return `after keys of ${other}`
    case "*":
      return `after ${other}, of unknown reach`
    case "sequential":
      return `after ${other}, one after another`
    case "reference":
      return `for the result of ${other}`
    default:
      return `after ${visible(key)} of ${other}`
  }
}

/** `9 calls in 840 ms: 5 ok, 1 error`. */
export const headline = ({ calls, complete, counts, elapsed, stopped, unsettled }: TurnReport.Turn): string =>
  [
    `${plural(calls.length, "call")} in ${duration(elapsed)}${complete ? "" : ", as far as the events go"}`,
    [
      ...counts.map(({ count, status }) => `${number(count)} ${status.replaceAll("_", " ")}`),
      ...(stopped === undefined
        ? []
        : [
          `stopped at ${duration(stopped.at)} (${visible(stopped.code)}${
            stopped.reason === undefined ? "" : `: ${visible(stopped.reason)}`
          })`
        ]),
      ...(unsettled > 0 ? [`${number(unsettled)} still at work when it ended`] : [])
    ].join(", ")
  ].filter((part) => part !== "").join(": ")

/** The waits of all calls together, longest first, without those that nobody had. */
export const waitsOf = ({ waits }: TurnReport.Turn): ReadonlyArray<readonly [cause: string, millis: number]> =>
  ([
    ["keys", waits.keys],
    ["permits", waits.permit],
    ["rates", waits.rate],
    ["approvals", waits.approval],
    ["pauses between attempts", waits.pause]
  ] as const).filter(([, millis]) => millis > 0).toSorted((a, b) => b[1] - a[1])

/** How much of the critical path is what, longest first. */
export const sharesOf = (
  { path }: TurnReport.Turn
): ReadonlyArray<readonly [kind: TurnReport.Link["kind"], millis: number]> => {
  const shares = new Map<TurnReport.Link["kind"], number>()
  for (const { from, kind, to } of path) shares.set(kind, (shares.get(kind) ?? 0) + to - from)
  return [...shares].filter(([, millis]) => millis > 0).sort((a, b) => b[1] - a[1])
}

/** What could have been saved at most, where the events show it. */
export const savings = ({ bounds, elapsed }: TurnReport.Turn): ReadonlyArray<string> => {
  if (bounds === undefined || elapsed === 0) return []
  const most = (bound: number) => bound < elapsed ? `at most ${duration(elapsed - bound)} to save` : "nothing to save"
  return [
    ...(bounds.order === undefined
      ? []
      : [`in this order, without limits: at least ${duration(bounds.order)}, so ${most(bounds.order)}`]),
    `without order and limits: at least ${duration(bounds.calls)}, so ${most(bounds.calls)}`
  ]
}
