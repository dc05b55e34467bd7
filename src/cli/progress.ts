/**
 * What is known of a turn while it runs: a fold of its events. Plain data, so that a terminal, a log and a test read
 * the same.
 */
import type * as Outcome from "../Outcome.ts"
import type * as ToolCall from "../ToolCall.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import * as TurnPlan from "../TurnPlan.ts"
import { duration, json } from "./text.ts"

/** One call as it stands. Times are milliseconds since the turn started. */
export interface Row {
  readonly call: ToolCall.ToolCall
  readonly position: number
  state: "listed" | "held" | "waiting" | "running" | "done"
  /** Since when it is in this state. */
  since: number
  /** What it waits for, other than earlier calls. */
  waitsFor: string | undefined
  /** The earlier calls that it had to wait for, with the keys that make it; `undefined` where they are not known. */
  earlier: ReadonlyArray<{ readonly on: number; readonly key: string }> | undefined
  /** What it has said of itself while it runs. */
  note: string | undefined
  /** The request that it shares with others. */
  shares: string | undefined
  startedAt: number | undefined
  endedAt: number | undefined
  backend: string | undefined
  /** A clock ran out, and the call is awaited all the same. */
  overdue: boolean
  outcome: Outcome.Outcome | undefined
}

/** What is known of a turn before it starts. */
export interface Known {
  readonly plan?: TurnPlan.TurnPlan | undefined
  /** How many calls each backend runs at once; `""` is the turn itself. */
  readonly limits?: ReadonlyMap<string, number> | undefined
}

export interface Progress extends Known {
  readonly rows: Array<Row>
  /** The turn's clock when it started, and the time since then at the last event. */
  origin: number | undefined
  elapsed: number
  stopped: string | undefined
  /** A stop waits for what is at work. */
  awaits: boolean
  /** Requests that calls have shared, and how many calls those were. */
  shared: { requests: number; calls: number }
  /** Calls that are listed now may be followed by others. */
  streaming: boolean
}

/** The rows of a turn; without calls those come by {@link list}. */
export const start = (calls: ReadonlyArray<ToolCall.ToolCall> | undefined, known: Known = {}): Progress => ({
  ...known,
  rows: (calls ?? []).map(rowOf),
  origin: undefined,
  elapsed: 0,
  stopped: undefined,
  awaits: false,
  shared: { requests: 0, calls: 0 },
  streaming: calls === undefined
})

/** Takes in the next call of a response that streams, or that there are no more. */
export const list = (progress: Progress, call: ToolCall.ToolCall | undefined): void => {
  if (call === undefined) progress.streaming = false
  else progress.rows.push(rowOf(call, progress.rows.length))
}

const rowOf = (call: ToolCall.ToolCall, position: number): Row => ({
  call,
  position,
  state: "listed",
  since: 0,
  waitsFor: undefined,
  earlier: undefined,
  note: undefined,
  shares: undefined,
  startedAt: undefined,
  endedAt: undefined,
  backend: undefined,
  overdue: false,
  outcome: undefined
})

/** Takes one event in. */
export const advance = (progress: Progress, event: TurnEvent.TurnEvent): void => {
  progress.origin ??= event.at
  const at = event.at - progress.origin
  progress.elapsed = Math.max(progress.elapsed, at)
  if (event._tag === "TurnStopped") progress.stopped = stopText(event)
  if (event._tag === "RequestSent") share(progress, event)
  if (!("position" in event)) return
  const row = progress.rows[event.position]
  if (row === undefined || row.state === "done") return
  switch (event._tag) {
    case "CallQueued":
      enter(row, "waiting", at)
      if (event.for === "keys") row.earlier = earlier(progress, row)
      row.waitsFor = event.for === "rate"
        ? `for the rate of ${event.backend}`
        : event.for === "permit"
        ? `for ${permitOf(progress, event.backend)}`
        : undefined
      row.backend = event.backend
      return
    case "CallHeld":
      enter(row, "held", at)
      return
    case "CallStarted":
      enter(row, "running", at)
      row.startedAt ??= at
      row.backend = event.backend
      return
    case "CallProgressed":
      row.note = json(event.result)
      return
    case "CallRetried":
      enter(row, "waiting", at)
      row.waitsFor = `to be tried again in ${duration(event.pause)}`
      return
    case "CallOverdue":
      row.overdue = true
      return
    case "CallApplied":
      // It ran so long; what comes now is waiting for its unit.
      row.endedAt = at
      return
    case "CallEnded":
      enter(row, "done", at)
      row.endedAt ??= at
      row.outcome = event.outcome
      return
  }
}

/** A backend, or the turn, with how much of it there is at once. */
const permitOf = ({ limits }: Progress, backend: string | undefined): string => {
  const limit = limits?.get(backend ?? "")
  const name = backend ?? "the turn's own limit"
  return limit === undefined ? name : `${name} (${limit} at once)`
}

const share = (progress: Progress, { into, positions }: TurnEvent.RequestSent): void => {
  if (positions.length < 2) return
  progress.shared = {
    requests: progress.shared.requests + 1,
    calls: progress.shared.calls + positions.length
  }
  for (const position of positions) {
    const row = progress.rows[position]
    if (row !== undefined) row.shares = `one request to ${into} for ${positions.length} calls`
  }
}

const enter = (row: Row, state: Row["state"], at: number) => {
  row.state = state
  row.since = at
}

/** Looking up the way to a call costs as much as the plan is large, so very large plans are not searched. */
const searchable = 1_000_000

/** The calls that a call waits for when it begins to. */
const earlier = ({ plan, rows }: Progress, { position }: Row): Row["earlier"] =>
  plan === undefined || plan.edges.length * rows.length > searchable
    ? undefined
    : TurnPlan.dependencies(plan, position).filter(({ on }) => rows[on]?.state !== "done")

/** What a row waits for, of what has not ended yet: `for #2, #3 by hotels/LIS-1`. */
export const waitingFor = ({ rows }: Progress, row: Row): string => {
  if (row.waitsFor !== undefined) return row.waitsFor
  const open = row.earlier?.filter(({ on }) => rows[on]?.state !== "done") ?? []
  if (open.length === 0) return `for ${earlierText(row)}`
  const by = new Map<string, Array<string>>()
  for (const { key, on } of open) by.set(key, [...by.get(key) ?? [], `#${on}`])
  return `for ${Array.from(by, ([key, calls]) => `${someOf(calls)}${reasonOf(key)}`).join(", ")}`
}

const reasonOf = (key: string): string =>
  key === "sequential"
    ? ""
    : key === "reference"
    ? " and its result"
    : ` by ${key === "*" ? "unknown reach" : key}`

/** The calls that a call has waited for, at most three by their position. */
export const earlierText = ({ earlier }: Row): string =>
  earlier === undefined || earlier.length === 0 ? "earlier calls" : someOf(earlier.map(({ on }) => `#${on}`))

/** The first three, and how many more there are. */
export const someOf = (names: ReadonlyArray<string>): string =>
  names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ")

const stopText = (event: TurnEvent.TurnStopped): string =>
  `stopping: ${event.code}${event.reason === undefined ? "" : ` (${event.reason})`}`

/** The time a call ran, `undefined` when it never started. */
export const ranFor = (row: Row): number | undefined =>
  row.startedAt === undefined || row.endedAt === undefined ? undefined : row.endedAt - row.startedAt
