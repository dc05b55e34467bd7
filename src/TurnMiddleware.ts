/**
 * What is done around every call of a turn: before it (veto it, replace its arguments), around its handler, after it (replace its
 * result). Each step has a clock of its own, and what it throws is the outcome of that call and of nobody else.
 *
 * A list of middleware is an onion: the first one's `before` comes first, its `around` is outermost, its `after` comes last.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import type * as Effect from "effect/Effect"
import type * as Outcome from "./Outcome.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import type * as TurnContext from "./TurnContext.ts"

/**
 * The call that a middleware sees. `params` are decoded, `keys` what the call holds (`undefined`: unknown reach).
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Call {
  readonly identity: TurnContext.Identity
  readonly position: number
  readonly id: string
  readonly tool: Tool.Any
  readonly params: unknown
  readonly access: ToolPolicy.Access
  readonly keys: ReadonlyArray<string> | undefined
}

/**
 * What a step before a call may ask for; nothing lets the call go on.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Before =
  | { readonly _tag: "Veto"; readonly message: string; readonly retryable: boolean }
  | { readonly _tag: "Arguments"; readonly arguments: Record<string, unknown> }

/**
 * What a step after a call may ask for; nothing leaves its outcome as it is.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface After {
  readonly _tag: "Result"
  readonly result: unknown
}

/**
 * Refuses the call: it is not started, and answered `vetoed` with this message. `retryable` is what the model is told; default: false.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const veto = (message: string, options?: { readonly retryable?: boolean | undefined }): Before => ({
  _tag: "Veto",
  message,
  retryable: options?.retryable === true
})

/**
 * Lets the call run with other arguments, in their encoded form.
 *
 * **Details**
 *
 * They are decoded again. A call holds the keys of its first arguments, so others may only touch what those cover: anything else is
 * `vetoed`. Where the new arguments need approval and have none, the call is held for them.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const replaceArguments = (args: Record<string, unknown>): Before => ({ _tag: "Arguments", arguments: args })

/**
 * Gives the call another result, in its encoded form. It has to be one that the tool's success schema can decode.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const replaceResult = (result: unknown): After => ({ _tag: "Result", result })

/**
 * The steps of a middleware, each of which may be left out.
 *
 * **Details**
 *
 * - `before` runs when the call has its keys and its permit, as part of its start: a stop that comes meanwhile leaves the call
 *   unstarted. A call that shares a request has no permit by then: the request takes it. A failure vetoes the call with the failure's words; a defect is a `defect` that was not started; a step that takes
 *   longer than `timeout` vetoes it, retryable.
 * - `around` wraps the handler and runs on the call's own clock. A defect in it counts as the handler's. A run that is tried again is
 *   wrapped each time; `before` and `after` come once for each call.
 * - `after` sees what a call came to, when its run ended by itself: `ok` or its tool's own failure (`failed`, `rate_limited`), whose
 *   outcome it can only look at. A call that was never started, or was cut short, has none. What it throws makes the call a `defect` whose effect is the run's.
 * - `timeout` bounds `before` and `after`, each. Default: 5 seconds. One that ignores its end, there or at a stop, is waited for as long
 *   as the turn's `grace` of reads, and then left behind, with a warning in the log.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Steps {
  readonly before?: ((call: Call) => Effect.Effect<Before | void, unknown>) | undefined
  readonly around?:
    | ((handler: Effect.Effect<unknown, unknown>, call: Call) => Effect.Effect<unknown, unknown>)
    | undefined
  readonly after?: ((outcome: Outcome.Outcome<any>, call: Call) => Effect.Effect<After | void, unknown>) | undefined
  readonly timeout?: ToolPolicy.Limit | undefined
}

/**
 * One middleware. `name` stands in the words of what it refuses.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnMiddleware {
  readonly name: string
  readonly before: Steps["before"]
  readonly around: Steps["around"]
  readonly after: Steps["after"]
  /** Milliseconds for `before` and for `after`. */
  readonly timeout: number
}

/**
 * Makes a middleware. An impossible `timeout` is thrown here, where it is written.
 *
 * **Example** (A budget that vetoes, and a result without a secret)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn, TurnMiddleware } from "effect-turn"
 *
 * const Pay = pipe(
 *   Tool.make("pay", { parameters: Schema.Struct({ euros: Schema.Int }), success: Schema.Struct({ iban: Schema.String }) }),
 *   ToolPolicy.write({ keys: () => ["account"] })
 * )
 * const toolkit = Toolkit.make(Pay)
 * const handlers = toolkit.toLayer({ pay: () => Effect.succeed({ iban: "DE02 1203" }) })
 *
 * const budget = TurnMiddleware.make("budget", {
 *   before: ({ params }) =>
 *     Effect.succeed((params as { euros: number }).euros > 100 ? TurnMiddleware.veto("at most 100 euros") : undefined)
 * })
 * const secrets = TurnMiddleware.make("secrets", {
 *   after: () => Effect.succeed(TurnMiddleware.replaceResult({ iban: "DE** ****" }))
 * })
 * const outcomes = await Turn.run(toolkit, [
 *   ToolCall.make("c1", "pay", { euros: 30 }),
 *   ToolCall.make("c2", "pay", { euros: 300 })
 * ], { middleware: [budget, secrets] }).pipe(Effect.provide([handlers, Turn.layer()]), Effect.runPromise)
 *
 * const said = outcomes.map((one) => one.status === "ok" ? one.encoded : one.message)
 * said // => [{ iban: "DE** ****" }, "budget: at most 100 euros"]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (name: string, steps: Steps): TurnMiddleware => ({
  name,
  before: steps.before,
  around: steps.around,
  after: steps.after,
  timeout: ToolPolicy.limitMillis(`middleware "${name}"`, "timeout", steps.timeout ?? "5 seconds")
})
