/**
 * What is known of a turn while it runs: a fold of its events. Plain data, so that a terminal, a log and a test read
 * the same.
 */
import type * as Outcome from "../Outcome.ts"
import type * as ToolCall from "../ToolCall.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import * as TurnPlan from "../TurnPlan.ts"

/** One call as it stands. Times are milliseconds since the turn started. */
export interface Row {
  readonly call: ToolCall.ToolCall
  readonly position: number
  state: "listed" | "waiting" | "running" | "done"
  /** Since when it is in this state. */
  since: number
  /** What it waits for. */
  waitsFor: string
  /** The earlier calls that it had to wait for. */
  earlier: string
  startedAt: number | undefined
  endedAt: number | undefined
  backend: string | undefined
  /** A clock ran out, and the call is awaited all the same. */
  overdue: boolean
  outcome: Outcome.Outcome | undefined
}

export interface Progress {
  readonly rows: ReadonlyArray<Row>
  /** The turn's clock when it started, and the time since then at the last event. */
  origin: number | undefined
  elapsed: number
  stopped: string | undefined
  /** A stop waits for what is at work. */
  awaits: boolean
  readonly plan: TurnPlan.TurnPlan | undefined
}

export const start = (calls: ReadonlyArray<ToolCall.ToolCall>, plan?: TurnPlan.TurnPlan): Progress => ({
  rows: calls.map((call, position) => ({
    call,
    position,
    state: "listed",
    since: 0,
    waitsFor: "",
    earlier: "earlier calls",
    startedAt: undefined,
    endedAt: undefined,
    backend: undefined,
    overdue: false,
    outcome: undefined
  })),
  origin: undefined,
  elapsed: 0,
  stopped: undefined,
  awaits: false,
  plan
})

/** Takes one event in. */
export const advance = (progress: Progress, event: TurnEvent.TurnEvent): void => {
  progress.origin ??= event.at
  const at = event.at - progress.origin
  progress.elapsed = Math.max(progress.elapsed, at)
  if (event._tag === "TurnStopped") progress.stopped = stopText(event)
  if (!("position" in event)) return
  const row = progress.rows[event.position]
  if (row === undefined || row.state === "done") return
  switch (event._tag) {
    case "CallQueued":
      enter(row, "waiting", at)
      if (event.for === "keys") row.earlier = earlier(progress, row)
      row.waitsFor = event.for === "rate"
        ? `for the rate of ${event.backend}`
        : `for ${event.for === "keys" ? row.earlier : event.backend ?? "the turn's own limit"}`
      row.backend = event.backend
      return
    case "CallStarted":
      enter(row, "running", at)
      row.startedAt ??= at
      row.backend = event.backend
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

const enter = (row: Row, state: Row["state"], at: number) => {
  row.state = state
  row.since = at
}

/** Looking up the way to a call costs as much as the plan is large, so very large plans are not searched. */
const searchable = 1_000_000

/** The calls that a call still waits for: at most three by their position. */
const earlier = ({ plan, rows }: Progress, { position }: Row): string => {
  if (plan === undefined || plan.edges.length * rows.length > searchable) return "earlier calls"
  const waits = TurnPlan.dependencies(plan, position).filter(({ on }) => rows[on]?.state !== "done")
  return waits.length === 0 ? "earlier calls" : someOf(waits.map(({ on }) => `#${on}`))
}

/** The first three, and how many more there are. */
export const someOf = (names: ReadonlyArray<string>): string =>
  names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ")

const stopText = (event: TurnEvent.TurnStopped): string =>
  `stopping: ${event.code}${event.reason === undefined ? "" : ` (${event.reason})`}`

/** The time a call ran, `undefined` when it never started. */
export const ranFor = (row: Row): number | undefined =>
  row.startedAt === undefined || row.endedAt === undefined ? undefined : row.endedAt - row.startedAt
