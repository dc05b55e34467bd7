/**
 * What became of a call: exactly one answer for each, in the order of the calls.
 *
 * An outcome keeps four things apart: not started, no effect, applied, unknown. Nothing that may have happened
 * is ever reported as not done.
 *
 * @since 0.1.0
 */
import type * as Prompt from "effect/ai/Prompt"
import type * as Tool from "effect/ai/Tool"
import * as Schema from "effect/Schema"

/**
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Status = Schema.Literals([
  "ok",
  "error",
  "timeout",
  "deferred",
  "pending_approval",
  "cancelled",
  "provider_executed"
])

/**
 * The first word of an answer.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Status = typeof Status.Type

/**
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const ErrorCode = Schema.Literals([
  "invalid_arguments",
  "unknown_tool",
  "ambiguous_id",
  "failed",
  "defect",
  "unencodable_result",
  "queue_full",
  "circuit_open",
  "incomplete_response",
  "store_unavailable",
  "in_doubt",
  "deadlock",
  "denied",
  "key_reused",
  "rate_limited",
  "over_limit",
  "vetoed"
])

/**
 * Why a call is an `error`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ErrorCode = typeof ErrorCode.Type

/**
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const CancelCode = Schema.Literals(["by_caller", "by_sibling", "by_deadline", "by_itself"])

/**
 * Who cancelled a call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type CancelCode = typeof CancelCode.Type

/**
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Effect = Schema.Literals(["none", "applied", "unknown"])

/**
 * Whether something changed: certainly nothing, certainly something, or nobody knows. A read is always `none`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Effect = typeof Effect.Type

/**
 * What all outcomes have.
 *
 * **Details**
 *
 * - `started`: whether a handler was started for it.
 * - `retryable`: the same purpose may be tried again without doubling an effect, and it may succeed.
 * - `message`: words for the model; `""` for `ok`.
 * - `duplicateOf`: the call that ran for this one too.
 * - `repairedFrom`: the name as the model wrote it, where name repair was asked for and took place.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Base {
  readonly position: number
  readonly id: string
  readonly started: boolean
  readonly effect: Effect
  readonly retryable: boolean
  readonly message: string
  readonly duplicateOf?: { readonly position: number; readonly id: string } | undefined
  readonly repairedFrom?: string | undefined
  /** The answer is that of an earlier call, from the record of its idempotency key: this one was not run. */
  readonly replayed?: true | undefined
  /** How often its handler was started, where that was more than once. */
  readonly attempts?: number | undefined
  /** After how many milliseconds it may be called again, where that was told. */
  readonly retryAfter?: number | undefined
  /** What became of undoing it, in a unit that is all or nothing. */
  readonly undo?: "done" | "failed" | undefined
  /** What the model gets was cut to a budget. `result`, `failure` and `encoded` are whole all the same. */
  readonly truncated?: true | undefined
  /** Under which id the whole is kept in the `ArtifactStore`, where it was cut and is kept. */
  readonly artifact?: string | undefined
  /** What the model gets in its place, where it was cut. */
  readonly shown?: Shown | undefined
}

/**
 * What the model gets of an answer that was cut to a budget.
 *
 * **Details**
 *
 * `value` is what {@link forModel} gives. `output` is there where the tool maps its result with `toModelOutput` and a text of that was
 * cut: its other parts are as they were.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Shown {
  readonly value: unknown
  readonly output?: ReadonlyArray<Prompt.ToolModelOutputPart> | undefined
}

/**
 * The tool's own success. Where a human answered in the tool's place, `started` is false.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Ok<out Name extends string, out Success> extends Base {
  readonly name: Name
  readonly status: "ok"
  /** The success, decoded: a copy of its own for each call. */
  readonly result: Success
  /** The same as JSON, as it goes to the model. */
  readonly encoded: unknown
}

/**
 * The tool's own failure.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Failed<out Name extends string, out Failure> extends Base {
  readonly name: Name
  readonly status: "error"
  readonly code: "failed"
  readonly failure: Failure
  /** The same as JSON; `undefined` when the failure could not be encoded. */
  readonly encoded: unknown
}

/**
 * The tool's own failure which says that there were too many calls (`ToolPolicy.failures`): it had no effect. `retryAfter` is there where
 * the failure tells a time. In a call that was tried again by itself, `effect` is `unknown` where an attempt before may have had one.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RateLimited<out Name extends string, out Failure> extends Base {
  readonly name: Name
  readonly status: "error"
  readonly code: "rate_limited"
  readonly failure: Failure
  /** The same as JSON; `undefined` when the failure could not be encoded. */
  readonly encoded: unknown
}

/**
 * Every other error. `name` is what the model wrote: it may be no tool at all.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Refused extends Base {
  readonly name: string
  readonly status: "error"
  readonly code: Exclude<ErrorCode, "failed" | "rate_limited">
}

/**
 * A clock ran out: `handler` while running or silent, `queue` while waiting.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TimedOut extends Base {
  readonly name: string
  readonly status: "timeout"
  readonly code: "handler" | "queue"
  /** Which limit was hit, and its length in milliseconds. */
  readonly limit: { readonly clock: "timeout" | "idleTimeout" | "waitTimeout"; readonly millis: number }
}

/**
 * Not run, with the reason; running it later with other arguments, or after an approval, may help.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Deferred extends Base {
  readonly name: string
  readonly status: "deferred"
  readonly code: "placeholder" | "waits_for_approval" | "dependency_failed"
}

/**
 * Held until a human decides.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface PendingApproval extends Base {
  readonly name: string
  readonly status: "pending_approval"
}

/**
 * Stopped.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Cancelled extends Base {
  readonly name: string
  readonly status: "cancelled"
  readonly code: CancelCode
  /** The caller's own word for `by_caller`: `"user"`, `"budget"`, `"parent"`, … */
  readonly reason?: string | undefined
}

/**
 * The provider ran it; its answer is in the provider's own response.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ProviderExecuted extends Base {
  readonly name: string
  readonly status: "provider_executed"
}

type Of<T> = T extends Tool.Any ?
    | Ok<T["name"], Tool.Success<T>>
    | Failed<T["name"], Tool.Failure<T>>
    | RateLimited<T["name"], Tool.Failure<T>>
  : never

/**
 * The one answer of a call, typed by its tool: narrowing on `status` and `name` gives the tool's own success or failure.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Outcome<T extends Tool.Any = Tool.Any> =
  | Of<T>
  | Refused
  | TimedOut
  | Deferred
  | PendingApproval
  | Cancelled
  | ProviderExecuted

/**
 * The outcomes of a turn with these tools.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type OutcomeOf<Tools extends Record<string, Tool.Any>> = Outcome<Tools[keyof Tools]>

/**
 * Schema of an outcome as JSON: for journals, reports and other processes. `result` and `failure` are in encoded form.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Encoded = Schema.Struct({
  position: Schema.Int,
  id: Schema.String,
  name: Schema.String,
  status: Status,
  code: Schema.optionalKey(Schema.String),
  started: Schema.Boolean,
  effect: Effect,
  retryable: Schema.Boolean,
  message: Schema.optionalKey(Schema.String),
  result: Schema.optionalKey(Schema.Unknown),
  failure: Schema.optionalKey(Schema.Unknown),
  reason: Schema.optionalKey(Schema.String),
  limit: Schema.optionalKey(Schema.Struct({ clock: Schema.String, millis: Schema.Number })),
  duplicateOf: Schema.optionalKey(Schema.Struct({ position: Schema.Int, id: Schema.String })),
  repairedFrom: Schema.optionalKey(Schema.String),
  replayed: Schema.optionalKey(Schema.Literal(true)),
  attempts: Schema.optionalKey(Schema.Int),
  retryAfter: Schema.optionalKey(Schema.Finite),
  undo: Schema.optionalKey(Schema.Literals(["done", "failed"])),
  truncated: Schema.optionalKey(Schema.Literal(true)),
  artifact: Schema.optionalKey(Schema.String)
})

/**
 * An outcome as JSON.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Encoded = typeof Encoded.Type

/** Every field that some outcome has. */
interface AnyShape extends Base {
  readonly name: string
  readonly status: Status
  readonly code?: string
  readonly encoded?: unknown
  readonly reason?: string | undefined
  readonly limit?: TimedOut["limit"]
}

/**
 * An outcome as plain JSON data. The result is whole, also where the model gets less of it.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const toJson = (outcome: Outcome): Encoded => {
  const o: AnyShape = outcome
  return {
    position: o.position,
    id: o.id,
    name: o.name,
    status: o.status,
    ...(o.code === undefined ? undefined : { code: o.code }),
    started: o.started,
    effect: o.effect,
    retryable: o.retryable,
    ...(o.message === "" ? undefined : { message: o.message }),
    ...(o.status === "ok" ? { result: o.encoded } : undefined),
    ...((o.code === "failed" || o.code === "rate_limited") && o.encoded !== undefined
      ? { failure: o.encoded }
      : undefined),
    ...(o.reason === undefined ? undefined : { reason: o.reason }),
    ...(o.limit === undefined ? undefined : { limit: o.limit }),
    ...(o.duplicateOf === undefined ? undefined : { duplicateOf: o.duplicateOf }),
    ...(o.repairedFrom === undefined ? undefined : { repairedFrom: o.repairedFrom }),
    ...(o.replayed === undefined ? undefined : { replayed: o.replayed }),
    ...(o.attempts === undefined ? undefined : { attempts: o.attempts }),
    ...(o.retryAfter === undefined ? undefined : { retryAfter: o.retryAfter }),
    ...(o.undo === undefined ? undefined : { undo: o.undo }),
    ...(o.truncated === undefined ? undefined : { truncated: o.truncated }),
    ...(o.artifact === undefined ? undefined : { artifact: o.artifact })
  }
}

/**
 * What the model is told: the result for `ok`, `{status, code, retryable, message, …}` for anything else. What was cut to a budget is given
 * as it was cut.
 *
 * **Details**
 *
 * `isFailure` is what a provider marks in its own way (`is_error`, `isFailure`). No text says "failed, fix and retry" of a
 * write that may have landed.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const forModel = (outcome: Outcome): { readonly isFailure: boolean; readonly value: unknown } => {
  const { shown } = outcome as Base
  if (shown !== undefined) return { isFailure: outcome.status !== "ok", value: shown.value }
  if (outcome.status === "ok") return { isFailure: false, value: outcome.encoded }
  const { code, effect, failure, message, retryable, retryAfter, started, status } = toJson(outcome)
  return {
    isFailure: status !== "provider_executed",
    value: {
      status,
      ...(code === undefined ? undefined : { code }),
      retryable,
      ...(started || effect !== "none" ? { effect } : undefined),
      message: message ?? "",
      ...(retryAfter === undefined ? undefined : { retryAfter }),
      ...(failure === undefined ? undefined : { failure })
    }
  }
}

/**
 * Tells whether a call succeeded.
 *
 * @category predicates
 * @since 0.1.0
 * @stability experimental
 */
export const isOk = <O extends Outcome<any>>(outcome: O): outcome is Extract<O, { readonly status: "ok" }> =>
  outcome.status === "ok"

/**
 * Tells whether this outcome is a failure in the sense of fail-fast: an error from a run, a timeout,
 * or a call that interrupted itself. Held, deferred, invalid and unknown calls are none, nor are calls that were begun before.
 *
 * @category predicates
 * @since 0.1.0
 * @stability experimental
 */
export const isFailure = (outcome: Outcome<any>): boolean =>
  (outcome.status === "error" && outcome.started && outcome.code !== "in_doubt") ||
  outcome.status === "timeout" ||
  (outcome.status === "cancelled" && outcome.code === "by_itself")
