/**
 * The vocabulary of what happens in a turn: plain data, noun-verb. Spans, metrics, reports and progress lines are folds of
 * these events; nothing in a turn waits for whoever reads them.
 *
 * @since 0.1.0
 */
import type * as Outcome from "./Outcome.ts"

/**
 * What all events have: the time in milliseconds of the turn's clock, and the turn's id.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Base {
  readonly at: number
  readonly turn: string
}

/**
 * What all events of a call have.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface OfCall extends Base {
  readonly position: number
  readonly id: string
  readonly tool: string
}

/**
 * The list of calls was taken in and planned. `calls` is 0 where they come one by one. Where the turn belongs to a conversation, it is
 * named with its tenant.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnStarted extends Base {
  readonly _tag: "TurnStarted"
  readonly calls: number
  readonly tenant?: string | undefined
  readonly conversation?: string | undefined
}

/**
 * A call waits: for earlier calls that touch the same keys, for a permit (its backend's, or the turn's own limit where `backend`
 * is undefined), or for the rate of its backend, which has a permit for it. A call that starts in the same step does not wait.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallQueued extends OfCall {
  readonly _tag: "CallQueued"
  readonly for: "keys" | "permit" | "rate"
  readonly backend: string | undefined
}

/**
 * A call is held: it needs a human's approval, and nobody has decided yet.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallHeld extends OfCall {
  readonly _tag: "CallHeld"
}

/**
 * A handler was started. `waited` is how long the call waited, by cause, in milliseconds. `approval` counts from the first request, so
 * it may be longer than the turn; `rate` is the time in which the whole line of its backend stood still for the rate.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallStarted extends OfCall {
  readonly _tag: "CallStarted"
  readonly attempt: number
  readonly backend: string | undefined
  readonly waited: {
    readonly keys: number
    readonly permit: number
    readonly rate: number
    readonly approval: number
  }
}

/**
 * A handler reported a preliminary result.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallProgressed extends OfCall {
  readonly _tag: "CallProgressed"
  readonly result: unknown
}

/**
 * A clock ran out over a write that is not interrupted: it is awaited, within the turn's grace.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallOverdue extends OfCall {
  readonly _tag: "CallOverdue"
  readonly clock: "timeout" | "idleTimeout"
}

/**
 * A run has failed, and will be tried again after a pause. `attempt` is the one that failed; `pause` is in milliseconds.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface CallRetried extends OfCall {
  readonly _tag: "CallRetried"
  readonly attempt: number
  /** What the answer would have been. */
  readonly outcome: Outcome.Outcome
  readonly pause: number
}

/**
 * A write of a unit that is all or nothing has taken effect. It gets its answer when the unit is decided.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallApplied extends OfCall {
  readonly _tag: "CallApplied"
}

/**
 * What a call had done was to be undone, for its unit is all or nothing: it was, or that failed. Its answer follows.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallUndone extends OfCall {
  readonly _tag: "CallUndone"
  readonly ok: boolean
}

/**
 * A call got its one answer.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallEnded extends OfCall {
  readonly _tag: "CallEnded"
  readonly outcome: Outcome.Outcome
}

/**
 * Work that was given up on after its grace has really ended. Its call keeps the answer it was given. It comes to the turn's
 * `onEvent`, which may be after the turn has ended, and to the `onSettledLate` of the runtime's layer.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallSettledLate extends OfCall {
  readonly _tag: "CallSettledLate"
  /** What the answer would have been. */
  readonly outcome: Outcome.Outcome
}

/**
 * A request for several calls has its permit and was sent: `into` is the coalescer's name, `request` counts those of the turn from 0,
 * `positions` are the calls that it is for, `items` how many things it asks for.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RequestSent extends Base {
  readonly _tag: "RequestSent"
  readonly request: number
  readonly into: string
  readonly positions: ReadonlyArray<number>
  readonly items: number
  readonly backend: string | undefined
}

/**
 * A request for several calls has ended: `ok` things were found.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RequestEnded extends Base {
  readonly _tag: "RequestEnded"
  readonly request: number
  readonly into: string
  readonly ok: number
}

/**
 * What the model gets of an answer was cut to a budget. `of` and `to` are how long the whole and the rest are, in characters of their
 * JSON. `artifact` is the id under which the whole is kept, undefined where it is not. It comes before `TurnEnded`;
 * the outcome in `CallEnded` is whole.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ResultCut extends OfCall {
  readonly _tag: "ResultCut"
  readonly of: number
  readonly to: number
  readonly artifact: string | undefined
}

/**
 * The turn was told to stop.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnStopped extends Base {
  readonly _tag: "TurnStopped"
  readonly code: Exclude<Outcome.CancelCode, "by_itself">
  readonly reason: string | undefined
}

/**
 * Every call has its answer.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnEnded extends Base {
  readonly _tag: "TurnEnded"
  /** Calls whose work goes on with the supervisor. */
  readonly unsettled: number
}

/**
 * Everything that happens in a turn.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type TurnEvent =
  | TurnStarted
  | CallQueued
  | CallHeld
  | CallStarted
  | CallProgressed
  | CallOverdue
  | CallRetried
  | CallApplied
  | CallUndone
  | CallEnded
  | CallSettledLate
  | RequestSent
  | RequestEnded
  | ResultCut
  | TurnStopped
  | TurnEnded

/**
 * An event without what was said in it: no result, no failure, no words of an outcome. For whatever leaves the process.
 *
 * **Details**
 *
 * What is left is who, when, how long and how it ended: `status`, `code`, `started`, `effect`, `retryable`. No event has arguments or an
 * idempotency key in the first place.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const redact = (event: TurnEvent): TurnEvent => {
  switch (event._tag) {
    case "CallProgressed":
      return { ...event, result: undefined }
    case "CallRetried":
    case "CallEnded":
    case "CallSettledLate":
      return { ...event, outcome: withoutWords(event.outcome) }
    default:
      return event
  }
}

const withoutWords = (outcome: Outcome.Outcome): Outcome.Outcome => {
  const { encoded: _, failure: __, result: ___, shown: ____, ...rest } = outcome as
    & Outcome.Outcome
    & Record<string, unknown>
  return { ...rest, message: "" } as Outcome.Outcome
}
