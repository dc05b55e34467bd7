/**
 * The moment when a model answers one step with a *list* of tool calls: every call gets exactly one outcome, in the order of
 * the calls, whatever happens.
 *
 * `Turn.run` takes the calls in, plans them (`TurnPlan`), runs together what may run together and in order what must, under the
 * limits of their backends, and answers each. A turn's error channel is for misuse alone.
 *
 * @since 0.1.0
 */
import * as LanguageModel from "effect/ai/LanguageModel"
import type * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import type * as Tool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as Approval from "./Approval.ts"
import { Deciders } from "./internal/turn/approvals.ts"
import { beginTurn, type Begun, intakeOf, openTurn } from "./internal/turn/begin.ts"
import { fittedOutside } from "./internal/turn/budget.ts"
import { checkCalls } from "./internal/turn/checks.ts"
import { governedHandlers } from "./internal/turn/handlers.ts"
import type { ArgumentLimits } from "./internal/turn/json.ts"
import { governed, memoryOf } from "./internal/turn/model.ts"
import type { Online as OnlineState } from "./internal/turn/online.ts"
import { check } from "./internal/turn/options.ts"
import * as ParkedTurn from "./internal/turn/parked.ts"
import * as ParkedForm from "./internal/turn/parkedForm.ts"
import * as Prompts from "./internal/turn/prompt.ts"
import { RuntimeState } from "./internal/turn/runtime.ts"
import { logUnsettled, supervise, unsettledOf } from "./internal/turn/supervision.ts"
import { surroundingsOf } from "./internal/turn/surroundings.ts"
import type { AnyToolkit } from "./internal/turn/tool.ts"
import { positionOf, watch } from "./internal/turn/watch.ts"
import type * as Outcome from "./Outcome.ts"
import type * as Siblings from "./Siblings.ts"
import type * as ToolCall from "./ToolCall.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import type * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"
import type * as TurnEvent from "./TurnEvent.ts"
import type { TurnMiddleware } from "./TurnMiddleware.ts"
import * as TurnPlan from "./TurnPlan.ts"

/**
 * A call whose work goes on although it was answered: it ignored its stop for longer than the grace.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Unsettled {
  readonly tenant: string
  readonly turn: string
  readonly position: number
  readonly id: string
  readonly tool: string
  /** What the call was answered. */
  readonly outcome: Outcome.Outcome<any>
}

/**
 * What all turns of a process share, and what {@link layer} gives: the keys that are held per tenant, and the supervisor of work
 * that was given up on.
 *
 * **Details**
 *
 * - `unsettled` lists the calls whose work goes on. They keep their keys and permits until it has really ended.
 * - `drain` stops intake, for good, and waits for the turns that run and for work that was given up on; it gives what is still at work
 *   after the layer's `shutdownGrace`. A turn that was opened runs until it is told the end of its list. A turn inside a call belongs to
 *   that call, and may still begin. Interrupting it stops the waiting alone.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class Runtime extends Context.Service<Runtime, RuntimeService>()("effect-turn/Turn/Runtime") {}

/**
 * What {@link Runtime} provides.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RuntimeService {
  readonly unsettled: Effect.Effect<ReadonlyArray<Unsettled>>
  readonly drain: Effect.Effect<ReadonlyArray<Unsettled>>
  /** @internal */
  readonly state: RuntimeState
}

/**
 * What {@link layer} takes.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface LayerOptions {
  /**
   * How many turns may be at work at once; those inside calls do not count. The calls of a turn that is too much are answered
   * `over_limit`. Default: `"infinite"`.
   */
  readonly turns?: number | "infinite" | undefined
  /** What happens to running turns when the layer's scope closes: they are stopped (default), or awaited. */
  readonly shutdown?: "stop" | "await" | undefined
  /** How long closing waits for work that was given up on. Default: 5 seconds. */
  readonly shutdownGrace?: ToolPolicy.Limit | undefined
  /** Told of each work that was given up on and has really ended: its call keeps its answer. It must not wait. */
  readonly onSettledLate?: ((event: TurnEvent.CallSettledLate) => void) | undefined
  /** Told what is still at work when closing has waited long enough. Default: a warning in the log, one line a call. */
  readonly onUnsettled?: ((left: ReadonlyArray<Unsettled>) => Effect.Effect<void>) | undefined
}

/**
 * The layer that turns run on.
 *
 * **Details**
 *
 * When its scope closes, intake stops, running turns are stopped or awaited, what was given up on is awaited for
 * `shutdownGrace`, and what is left is told to `onUnsettled`. Where turns are stopped, one that was opened and has not been told the
 * end of its list within `shutdownGrace` is ended.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (options?: LayerOptions): Layer.Layer<Runtime> => {
  const grace = ToolPolicy.limitMillis("Turn.layer", "shutdownGrace", options?.shutdownGrace ?? "5 seconds")
  const { turns } = options ?? {}
  const mostTurns = turns === undefined || turns === "infinite"
    ? Infinity
    : TurnError.wholeNumber("Turn.layer", "turns", turns, 1, ', or "infinite"')
  return Layer.effect(
    Runtime,
    Effect.gen(function*() {
      const state = new RuntimeState()
      state.onSettledLate = options?.onSettledLate
      state.mostTurns = mostTurns
      const drain = yield* supervise(state, grace, options?.shutdown !== "await", options?.onUnsettled ?? logUnsettled)
      return { state, unsettled: Effect.sync(() => unsettledOf(state)), drain }
    })
  )
}

/**
 * What belongs to one turn. What belongs to a tool is said with `ToolPolicy`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<in O extends Outcome.Outcome<any> = Outcome.Outcome<any>> {
  /** The id of the turn. Default: a random one. */
  readonly turn?: string | undefined
  /**
   * What the failure of one call means for the others. Default: `Siblings.letFinish`.
   *
   * With `Siblings.allOrNothing` what a unit's tools have done is undone when one of its calls fails or the turn is stopped, as far as the
   * tools say how (`ToolPolicy.undo`): other writes stand, and reads keep their results. What took effect is answered when the last call
   * of its unit has ended. Calls that were not run (held, invalid, unknown) are no failures, as for any policy; what has its answer when
   * the turn is parked stands, whatever a resumed turn comes to.
   */
  readonly siblings?: Siblings.Policy<O> | Siblings.AllOrNothing<O> | undefined
  /** Names the unit of a call: calls of one unit stand or fall together. Default: the whole turn is one unit. */
  readonly unit?: ((call: ToolCall.ToolCall, position: number) => string) | undefined
  /** `"sequential"` runs the calls one after another in emission order; a number is the turn's own limit. Default: `"parallel"`. */
  readonly execution?: "parallel" | "sequential" | number | undefined
  /** Which identical calls are merged. Default: `"all"`. */
  readonly dedupe?: "all" | "reads" | "off" | undefined
  /**
   * When the turn stops, waiting and running together. A write that has started is awaited beyond it, within the `grace` of writes.
   * Default: no limit.
   */
  readonly deadline?: ToolPolicy.Limit | undefined
  /**
   * How long a stop, a deadline, or a call's own timeout waits for work that goes on regardless; 0 does not wait. Default: 5 seconds for
   * reads, no limit for writes: a write that hangs is awaited for ever unless this says otherwise.
   */
  readonly grace?:
    | ToolPolicy.Limit
    | { readonly reads?: ToolPolicy.Limit | undefined; readonly writes?: ToolPolicy.Limit | undefined }
    | undefined
  /**
   * Whether arguments may be results of other calls of the turn, as plans have them: `{"$ref": "call_1#/hotels/0/id"}`, `$call_1.hotels[0].id$`,
   * `${call_1.x}`, `{{call_1.x}}`, `<call_1>.x`, `call_1#/x`, `$1` (the call whose id is 1), `API_call_0` (a call by its place), by itself or inside a text. Such a call waits for the
   * result, gets the value, and is decoded then; without a result it is deferred (`dependency_failed`), and so are circles, a call that names
   * itself, and names of calls that are not there. Until its keys are known it may touch anything (`TurnPlan`). Arguments that a tool
   * declares literal (`ToolPolicy.placeholders`) name nothing. An object adds names of a planner's own. Default: false.
   */
  readonly references?: boolean | TurnPlan.References | undefined
  /** Repairs case and surrounding white space of a tool's name when exactly one tool fits. Default: false. */
  readonly nameRepair?: boolean | undefined
  /** How the model's response ended: a response that was cut short runs nothing. */
  readonly finishReason?: ToolCall.FinishReason | undefined
  /** The conversation so far, for tools whose `needsApproval` looks at it. Default: none. */
  readonly messages?: ReadonlyArray<Prompt.Message> | undefined
  /**
   * Asked about each call that needs approval; without an answer the call is held. It is for rules, which answer soon: meanwhile the
   * call has its place, others wait behind it, and its waiting clock runs. What fails, or is no decision, holds the call.
   */
  readonly decide?:
    | ((
      request: Approval.Request
    ) => Approval.Decision | undefined | Effect.Effect<Approval.Decision | undefined, unknown>)
    | undefined
  /** What is done around every call. The first is outermost. */
  readonly middleware?: ReadonlyArray<TurnMiddleware> | undefined
  /**
   * How much may be asked for; what is over is answered `over_limit`. `repeats` is how often the same call (tool and arguments) may be
   * run in one `TurnContext.Conversation`, over its turns; a `repeatable` tool has no such limit. Default: no limits.
   */
  readonly amounts?: TurnPlan.Amounts & { readonly repeats?: number | undefined } | undefined
  /**
   * How much all answers of the turn together give to the model: failures first, then results, the small ones before the large ones. What is
   * too long is cut (see `ToolPolicy.resultBudget`); the outcomes keep the whole. With an `ArtifactStore` in the context what was cut is
   * kept there, and a store that hangs costs up to five seconds. `maxTokens` takes the `Tokenizer` of `effect/ai` from the context. Default: all of them.
   */
  readonly resultBudget?: ToolPolicy.ResultLimit | undefined
  /** Stops the turn when it succeeds; its value is the caller's own reason: `"user"`, `"budget"`, … It is interrupted with the turn's end. */
  readonly cancelOn?: Effect.Effect<string | void> | undefined
  /** Told every event, as it happens. It must not wait; what it throws is dropped. */
  readonly onEvent?: ((event: TurnEvent.TurnEvent) => void) | undefined
  /**
   * Told the calls and their outcomes as one unit when the turn has closed, also when its fiber is interrupted. The turn's end waits for
   * it, however long it takes.
   */
  readonly onClosed?: ((closed: Closed<O>) => Effect.Effect<void>) | undefined
  /** Limits of one call's arguments. Default: 1,000,000 characters, 64 levels, 10,000 members. */
  readonly limits?: Partial<ArgumentLimits> | undefined
}

/**
 * A closed turn: a history that is built from it has exactly one answer for each call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Closed<out O extends Outcome.Outcome<any> = Outcome.Outcome<any>> {
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly outcomes: ReadonlyArray<O>
}

/**
 * The tools of a toolkit, or of a toolkit with its handlers.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ToolsOf<K> = K extends Toolkit.WithHandler<infer Tools> ? Tools
  : K extends Toolkit.Toolkit<infer Tools> ? Tools
  : never

/**
 * What running a toolkit's calls needs: its handlers, and what its tools require, their backends included.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Services<K> = K extends Toolkit.WithHandler<infer Tools> ? Tool.HandlerServices<Tools[keyof Tools]>
  : K extends Toolkit.Toolkit<infer Tools> ? Tool.HandlersFor<Tools> | Tool.HandlerServices<Tools[keyof Tools]>
  : never

/**
 * The outcomes of a turn, typed by its toolkit.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Outcomes<K> = ReadonlyArray<OutcomeOf<K>>

/**
 * One outcome of a turn, typed by its toolkit.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type OutcomeOf<K> = Outcome.OutcomeOf<ToolsOf<K>>

const isCalls = (args: IArguments): boolean => Array.isArray(args[0])

/**
 * Runs the calls of one model step and answers each of them, in their order.
 *
 * **Details**
 *
 * It never fails because of a tool. Interrupting it stops the turn as by its caller: nothing new starts, reads and keyed writes
 * are interrupted, started writes are awaited within the grace, and `onClosed` is still told every outcome before the
 * interruption goes on.
 *
 * **Example** (Two reads)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn } from "effect-turn"
 *
 * const Add = pipe(
 *   Tool.make("add", { parameters: Schema.Struct({ a: Schema.Finite, b: Schema.Finite }), success: Schema.Finite }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const toolkit = Toolkit.make(Add)
 * const handlers = toolkit.toLayer({ add: ({ a, b }) => Effect.succeed(a + b) })
 *
 * const outcomes = await Turn.run(toolkit, [
 *   ToolCall.make("c1", "add", { a: 1, b: 2 }),
 *   ToolCall.make("c2", "add", "{\"a\": 1}")
 * ]).pipe(Effect.provide([handlers, Turn.layer()]), Effect.runPromise)
 *
 * const statuses = outcomes.map((outcome) => outcome.status) // => ["ok", "error"]
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const run: {
  <K extends AnyToolkit>(
    toolkit: K,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<Outcomes<K>, TurnError.TurnError, Services<K> | Runtime>
  (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options
  ): <K extends AnyToolkit>(toolkit: K) => Effect.Effect<Outcomes<K>, TurnError.TurnError, Services<K> | Runtime>
} = dual(
  (args) => !isCalls(args),
  (toolkit: AnyToolkit, calls: ReadonlyArray<ToolCall.ToolCall>, options?: Options): Effect.Effect<any, any, any> =>
    // What is held is answered so for good: nobody is asked about it any more.
    untilClosed((context) => begin(context, toolkit, calls, options, undefined, true), (outcomes) => outcomes)
)

/**
 * Schema of {@link Parked}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Parked = ParkedForm.Parked

/**
 * A turn that waits for a human, as plain data: it can be kept as JSON, and resumed.
 *
 * **Details**
 *
 * - `outcomes`: what has its answer already, null where a call waits for a decision, or for a call that does.
 * - `requests`: what is asked of the human.
 * - `tools`: a fingerprint of each tool of which a call is open. A turn is not resumed with tools that mean something else by now.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Parked = ParkedForm.Parked

/**
 * What a turn came to that may wait for a human. Where it is parked, the outcomes say `pending_approval` and `waits_for_approval` for
 * what is open: hand them to the model only when you do not mean to go on.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Result<K> =
  | { readonly _tag: "Closed"; readonly outcomes: Outcomes<K> }
  | { readonly _tag: "Parked"; readonly outcomes: Outcomes<K>; readonly parked: Parked }

/**
 * As {@link run}, for a caller who waits for a human: when calls need approval that nobody has decided about, the turn is parked
 * instead of answered.
 *
 * **Details**
 *
 * Everything else has run by then. Nothing goes to the provider before the turn is resumed or abandoned, so that each call id gets one
 * answer. A turn that was stopped is closed: nothing of it waits any more. Interruption is as for {@link run}.
 *
 * **Example** (A human in the middle)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Approval, ToolCall, ToolPolicy, Turn } from "effect-turn"
 *
 * const Pay = pipe(
 *   Tool.make("pay", { parameters: Schema.Struct({ euros: Schema.Int }), success: Schema.String, needsApproval: true }),
 *   ToolPolicy.write({ keys: () => ["account"] })
 * )
 * const toolkit = Toolkit.make(Pay)
 * const handlers = toolkit.toLayer({ pay: ({ euros }) => Effect.succeed(`paid ${euros}`) })
 *
 * const program = Effect.gen(function*() {
 *   const result = yield* Turn.runOrPark(toolkit, [ToolCall.make("c1", "pay", { euros: 30 })])
 *   if (result._tag === "Closed") return result.outcomes
 *   // Somebody looks at result.parked.requests, today or tomorrow, and decides.
 *   const decisions = result.parked.requests.map(({ position }) => ({ position, decision: Approval.edit({ euros: 25 }) }))
 *   return (yield* Turn.resume(toolkit, result.parked, { decisions })).outcomes
 * })
 * const outcomes = await program.pipe(Effect.provide([handlers, Turn.layer()]), Effect.runPromise)
 * const results = outcomes.map((outcome) => outcome.status === "ok" && outcome.encoded) // => ["paid 25"]
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const runOrPark: {
  <K extends AnyToolkit>(
    toolkit: K,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<Result<K>, TurnError.TurnError, Services<K> | Runtime>
  (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options
  ): <K extends AnyToolkit>(toolkit: K) => Effect.Effect<Result<K>, TurnError.TurnError, Services<K> | Runtime>
} = dual(
  (args) => !isCalls(args),
  (toolkit: AnyToolkit, calls: ReadonlyArray<ToolCall.ToolCall>, options?: Options): Effect.Effect<any, any, any> =>
    untilClosed(
      (context) => begin(context, toolkit, calls, options, undefined),
      (outcomes, turn) => resultOf(toolkit, turn, outcomes)
    )
)

/**
 * What belongs to a turn that is resumed. Its id is that of the turn.
 *
 * **Details**
 *
 * - `decisions`: what was decided, by position. A decision that stands in `Approval.Approvals`, where it is in the context, comes before
 *   one that is given here, and that before `decide`. One that comes after `expiresAt` of its request is asked for anew.
 * - `calls`: the calls as the model has them now, for a caller who keeps them elsewhere: the same ids and names, in the same order. A
 *   decision is for the arguments that were shown, so a call with others is held again.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ResumeOptions<in O extends Outcome.Outcome<any> = Outcome.Outcome<any>>
  extends Omit<Options<O>, "turn" | "finishReason">
{
  readonly decisions?:
    | ReadonlyArray<{ readonly position: number; readonly decision: Approval.Decision }>
    | undefined
  readonly calls?: ReadonlyArray<ToolCall.ToolCall> | undefined
}

/**
 * Goes on with a parked turn: what was approved runs, and what had only waited for it; what has its answer keeps it and is never run
 * again. The outcomes are those of all calls of the turn.
 *
 * **Details**
 *
 * What nobody has decided about stays held, so the turn may be parked again. It is refused, as misuse, with another tenant, with tools
 * that have changed, and with decisions for calls that do not wait for any. Interruption is as for {@link run}.
 *
 * **Gotchas**
 *
 * A parked turn is a value. Of two copies that are resumed in one process the second is refused, as misuse; in two processes both would
 * run their calls, which a `TurnJournal` in the context does not let happen.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const resume: {
  <K extends AnyToolkit>(
    toolkit: K,
    parked: Parked,
    options?: ResumeOptions<OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<Result<K>, TurnError.TurnError, Services<K> | Runtime>
  (
    parked: Parked,
    options?: ResumeOptions
  ): <K extends AnyToolkit>(toolkit: K) => Effect.Effect<Result<K>, TurnError.TurnError, Services<K> | Runtime>
} = dual(
  (args) => !isParked(args[0]),
  (toolkit: AnyToolkit, parked: Parked, options?: ResumeOptions<any>): Effect.Effect<any, any, any> =>
    Effect.flatMap(ParkedTurn.earlierOf(toolkit, parked, options), (earlier) =>
      untilClosed(
        (context) => {
          const given = { ...options, turn: parked.turn }
          // Where it is parked again, it is with the calls as they are now.
          const calls = options?.calls ?? parked.calls
          return beginTurn(runtimeOf(context), context, toolkit, calls, given, undefined, earlier)
        },
        (outcomes, turn) => resultOf(toolkit, turn, outcomes)
      ))
)

const isParked = (u: unknown): boolean => (u as { readonly _tag?: unknown } | null)?._tag === "Parked"

/**
 * Gives a parked turn up: what has its answer keeps it, what was open is `cancelled` / `by_caller` with your reason, and no decision on
 * it is taken any more. The outcomes are those of all calls of the turn, so that its history can be closed.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const abandon: {
  <K extends AnyToolkit>(
    toolkit: K,
    parked: Parked,
    reason?: string
  ): Effect.Effect<Outcomes<K>, TurnError.TurnError, Tool.ResultDecodingServices<ToolsOf<K>[keyof ToolsOf<K>]>>
  (
    parked: Parked,
    reason?: string
  ): <K extends AnyToolkit>(
    toolkit: K
  ) => Effect.Effect<Outcomes<K>, TurnError.TurnError, Tool.ResultDecodingServices<ToolsOf<K>[keyof ToolsOf<K>]>>
} = dual(
  (args) => !isParked(args[0]),
  (toolkit: AnyToolkit, parked: Parked, reason?: string): Effect.Effect<any, any, any> =>
    Effect.withFiber((fiber) => {
      const { approvals, tenant } = surroundingsOf(fiber.context)
      const problem = ParkedTurn.problemOf(parked, toolkit, tenant)
      if (problem !== undefined) return Effect.fail(problem)
      return ParkedTurn.keptOf(parked, toolkit).pipe(
        Effect.map((kept) => ParkedTurn.abandoned(parked, kept, reason)),
        Effect.flatMap((outcomes) => fittedOutside(toolkit, fiber.context, parked, outcomes)),
        Effect.tap(() => {
          // Where a runtime is at hand, a copy of the turn is not resumed either.
          const runtime = Option.getOrUndefined(Context.getOption(fiber.context as Context.Context<any>, Runtime))
          parked.outcomes.forEach((outcome, position) => {
            if (outcome === null) runtime?.state.decided.note(tenant, parked.turn, position)
          })
          return new Deciders([], [], undefined, approvals).withdraw(parked.requests)
        })
      )
    })
)

const runtimeOf = (context: Context.Context<never>): RuntimeState =>
  Context.get(context as Context.Context<any>, Runtime).state

/** Takes the calls in and starts what is ready, on the runtime of this context. */
const begin = (
  context: Context.Context<never>,
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options: Options | undefined,
  also: ((event: TurnEvent.TurnEvent) => void) | undefined,
  reports = false
): Begun | TurnError.TurnError =>
  beginTurn(runtimeOf(context), context, toolkit, calls, options, also, undefined, reports)

/** Begins a turn and waits for its end. Interrupting that stops the turn, and waits for it. */
const untilClosed = <A>(
  start: (context: Context.Context<never>) => Begun | TurnError.TurnError,
  toAnswer: (outcomes: ReadonlyArray<Outcome.Outcome<any>>, turn: Begun) => A
): Effect.Effect<A, TurnError.TurnError, any> =>
  Effect.withFiber((fiber) =>
    Effect.callback<A, TurnError.TurnError>((resume) => {
      const turn = start(fiber.context)
      if (turn instanceof TurnError.TurnError) return resume(Effect.fail(turn))
      turn.whenClosed((outcomes) => resume(Effect.succeed(toAnswer(outcomes, turn))))
      return Effect.suspend(() => {
        turn.stop(turn.setting.around.parent === undefined ? "interrupted" : "parent")
        return turn.closed
      })
    })
  )

const resultOf = (toolkit: AnyToolkit, turn: Begun, outcomes: ReadonlyArray<Outcome.Outcome<any>>): Result<any> => {
  const now = turn.setting.around.clock.currentTimeMillisUnsafe()
  const parked = ParkedTurn.park(toolkit, turn.state, outcomes, now)
  return parked === undefined
    ? { _tag: "Closed", outcomes: outcomes as Outcomes<any> }
    : { _tag: "Parked", outcomes: outcomes as Outcomes<any>, parked }
}

/**
 * Plans the calls of a turn without running anything: what will run, what is held or refused and why, and who waits for whom.
 *
 * **Details**
 *
 * Asks the tools' approval questions, and nothing else of the outside.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const plan: {
  <K extends AnyToolkit>(
    toolkit: K,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<
    TurnPlan.TurnPlan,
    TurnError.TurnError,
    Tool.ParametersDecodingServices<ToolsOf<K>[keyof ToolsOf<K>]>
  >
  (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options
  ): <K extends AnyToolkit>(
    toolkit: K
  ) => Effect.Effect<
    TurnPlan.TurnPlan,
    TurnError.TurnError,
    Tool.ParametersDecodingServices<ToolsOf<K>[keyof ToolsOf<K>]>
  >
} = dual(
  (args) => !isCalls(args),
  (toolkit: AnyToolkit, calls: ReadonlyArray<ToolCall.ToolCall>, options?: Options): Effect.Effect<any, any, any> =>
    Effect.withFiber((fiber) => {
      const bad = checkCalls(calls)
      if (bad !== undefined) return Effect.fail(bad)
      const opts = check(options)
      if (opts instanceof TurnError.TurnError) return Effect.fail(opts)
      let identity: TurnContext.Identity | undefined
      const intake = intakeOf(
        toolkit,
        calls,
        () => identity ??= surroundingsOf(fiber.context).identity(options?.turn),
        opts,
        options,
        { decided: false, closed: undefined, filled: undefined, complete: true }
      )
      const taken = calls.map((call, position) => intake.take(call, position))
      return Effect.forEach(taken, (one) => intake.settle(one), { discard: true }).pipe(
        Effect.map(() => TurnPlan.make(taken, opts))
      )
    })
)

/**
 * A turn that runs beside its caller.
 *
 * **Details**
 *
 * - `await` gives the outcomes; interrupting it does not stop the turn. `result` gives them too, as a {@link runOrPark} would.
 * - `cancel` stops the turn as by its caller and waits for it to close.
 * - `cancelCall` stops one call, by its position, or by its id where that is unique; false when it has its answer already, or is
 *   not there. Other calls are not touched.
 * - `events` is the stream of everything that happens, to be run once. A slow reader loses the oldest events; `lost` counts them.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Handle<K> {
  readonly turn: string
  readonly await: Effect.Effect<Outcomes<K>>
  readonly result: Effect.Effect<Result<K>>
  readonly cancel: (reason?: string) => Effect.Effect<Outcomes<K>>
  readonly cancelCall: (at: number | string, reason?: string) => Effect.Effect<boolean>
  readonly events: Stream.Stream<TurnEvent.TurnEvent>
  readonly lost: Effect.Effect<number>
}

/**
 * Starts a turn and returns at once with a handle on it.
 *
 * **Details**
 *
 * The turn belongs to the scope: when that closes, the turn is stopped and awaited.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const start: {
  <K extends AnyToolkit>(
    toolkit: K,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<Handle<K>, TurnError.TurnError, Services<K> | Runtime | Scope.Scope>
  (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options
  ): <K extends AnyToolkit>(
    toolkit: K
  ) => Effect.Effect<Handle<K>, TurnError.TurnError, Services<K> | Runtime | Scope.Scope>
} = dual(
  (args) => !isCalls(args),
  (
    toolkit: AnyToolkit,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<any>
  ): Effect.Effect<Handle<any>, TurnError.TurnError, any> =>
    Effect.withFiber((fiber) => {
      const watched = watch()
      const acquire = Effect.suspend(() => {
        const turn = begin(fiber.context, toolkit, calls, options, watched.offer)
        return turn instanceof TurnError.TurnError ? Effect.fail(turn) : Effect.succeed(turn)
      })
      return Effect.map(
        Effect.acquireRelease(acquire, (turn) => stopAndWait(turn, "the scope was closed")),
        (turn) => handleOf(toolkit, turn, watched)
      )
    })
)

const stopAndWait = (turn: Begun, reason: string | undefined) =>
  Effect.suspend(() => {
    turn.stop(reason)
    return turn.closed
  })

const handleOf = (toolkit: AnyToolkit, turn: Begun, { events, lost }: ReturnType<typeof watch>): Handle<any> => ({
  turn: turn.state.identity().turn,
  await: turn.closed,
  result: Effect.map(turn.closed, (outcomes) => resultOf(toolkit, turn, outcomes)),
  cancel: (reason) => stopAndWait(turn, reason),
  cancelCall: (at, reason) => Effect.sync(() => turn.state.cancel(positionOf(turn.setting.calls, at), reason)),
  events,
  lost
})

/**
 * A turn whose calls come one by one, while the model still speaks.
 *
 * **Details**
 *
 * - `submit` takes one call in, as soon as it is complete. It does not wait. It fails for misuse alone: what is no call, a handler that
 *   is not in the context, a list that has ended.
 * - `end` says that there are no more calls, and how the response ended, and gives the outcomes of all that were submitted, in their
 *   order. Only the first end counts. Interrupting it does not stop the turn.
 * - `cancel` ends the list too, so that the turn can close.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Online<K> extends Handle<K> {
  readonly submit: (call: ToolCall.ToolCall) => Effect.Effect<void, TurnError.TurnError>
  readonly end: (finishReason?: ToolCall.FinishReason) => Effect.Effect<Outcomes<K>>
  /**
   * Ends the list with its last calls: of a response that was cut short none of them starts.
   *
   * @internal
   */
  readonly endWith: (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    finishReason: ToolCall.FinishReason | undefined
  ) => Effect.Effect<Outcomes<K>, TurnError.TurnError>
}

/**
 * Opens a turn whose calls come one by one.
 *
 * **Details**
 *
 * A call takes its place when it is submitted. Reads start at once, as far as earlier calls and limits allow; everything else waits for
 * the end of the list, so that what comes out is the same as if all calls had been known from the start. Where the response turns out
 * to have been cut short, what an early start had begun keeps its own outcome, and everything else is `incomplete_response`.
 *
 * The turn belongs to the scope: when that closes, the list is ended, and the turn is stopped and awaited. Until the list has ended the
 * turn does not close, also when it was stopped: later calls are then answered `cancelled`.
 *
 * **Gotchas**
 *
 * What has begun cannot be taken back: a read whose id is later given to other content keeps its outcome, and only the later call is
 * `ambiguous_id`.
 *
 * **Example** (A read that starts before the list has ended)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn } from "effect-turn"
 *
 * const Look = pipe(Tool.make("look", { success: Schema.String }), ToolPolicy.read({ keys: () => [] }))
 * const Book = pipe(Tool.make("book", { success: Schema.String }), ToolPolicy.write({ keys: () => ["room"] }))
 * const toolkit = Toolkit.make(Look, Book)
 * const log: Array<string> = []
 * const handlers = toolkit.toLayer({
 *   look: () => Effect.sync(() => (log.push("look"), "free")),
 *   book: () => Effect.sync(() => (log.push("book"), "booked"))
 * })
 *
 * const outcomes = await Effect.gen(function*() {
 *   const turn = yield* Turn.open(toolkit)
 *   yield* turn.submit(ToolCall.make("c1", "book"))
 *   yield* turn.submit(ToolCall.make("c2", "look"))
 *   log.push("the response ends")
 *   return yield* turn.end("tool-calls")
 * }).pipe(Effect.scoped, Effect.provide([handlers, Turn.layer()]), Effect.runPromise)
 *
 * log // => ["look", "the response ends", "book"]
 * const order = outcomes.map((outcome) => outcome.id) // => ["c1", "c2"]
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const open = <K extends AnyToolkit>(
  toolkit: K,
  options?: Omit<Options<OutcomeOf<NoInfer<K>>>, "finishReason">
): Effect.Effect<Online<K>, TurnError.TurnError, Services<K> | Runtime | Scope.Scope> =>
  Effect.withFiber((fiber): Effect.Effect<Online<any>, TurnError.TurnError, any> => {
    const watched = watch()
    const acquire = Effect.suspend(() => {
      const turn = openTurn(runtimeOf(fiber.context), fiber.context, toolkit, options as Options, watched.offer)
      return turn instanceof TurnError.TurnError ? Effect.fail(turn) : Effect.succeed(turn)
    })
    const stop = (turn: { readonly begun: Begun; readonly online: OnlineState }, reason: string | undefined) =>
      Effect.suspend(() => {
        turn.begun.stop(reason)
        turn.online.end(undefined)
        return turn.begun.closed
      })
    return Effect.map(
      Effect.acquireRelease(acquire, (turn) => stop(turn, "the scope was closed")),
      (turn): Online<any> => ({
        ...handleOf(toolkit, turn.begun, watched),
        cancel: (reason) => stop(turn, reason),
        submit: (call) =>
          Effect.suspend(() => {
            const bad = turn.online.submit(call)
            return bad === undefined ? Effect.void : Effect.fail(bad)
          }),
        end: (finishReason) =>
          Effect.suspend(() => {
            turn.online.end(finishReason)
            return turn.begun.closed
          }),
        endWith: (calls, finishReason) =>
          Effect.suspend(() => {
            const bad = turn.online.endWith(calls, finishReason)
            return bad === undefined ? turn.begun.closed : Effect.fail(bad)
          })
      })
    )
  }) as Effect.Effect<any, any, any>

/**
 * Runs a turn as the stream of its events. Interrupting the stream stops the turn and waits for it.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const stream: {
  <K extends AnyToolkit>(
    toolkit: K,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<OutcomeOf<NoInfer<K>>>
  ): Stream.Stream<TurnEvent.TurnEvent, TurnError.TurnError, Services<K> | Runtime>
  (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options
  ): <K extends AnyToolkit>(
    toolkit: K
  ) => Stream.Stream<TurnEvent.TurnEvent, TurnError.TurnError, Services<K> | Runtime>
} = dual(
  (args) => !isCalls(args),
  (
    toolkit: AnyToolkit,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Options<any>
  ): Stream.Stream<TurnEvent.TurnEvent, TurnError.TurnError, any> =>
    Stream.unwrap(Effect.map(start(toolkit, calls, options), (handle) => handle.events))
)

/**
 * The history of a closed turn, for `effect/ai`: the assistant's message with the calls, and one tool message with an answer for
 * each, in call order.
 *
 * **Details**
 *
 * With `parts`, the response's own content, the assistant's message keeps its text, reasoning and whatever the provider ran
 * itself. Arguments that were no JSON object stand as `{}`: raw text never goes back. A re-delivered id is answered once, and an
 * empty id gets a new one in call and answer together.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const toPrompt = (
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  options?: { readonly parts?: ReadonlyArray<Response.AnyPart> | undefined }
): Prompt.Prompt => Prompts.toPrompt(calls, outcomes, options?.parts)

/**
 * What {@link layerLanguageModel} takes: the options of every turn, but for what the response itself says.
 *
 * **Details**
 *
 * `cancelOn`, `onClosed` and every other effect run in the context of whoever asks the model, so what differs from request to request
 * can be a `Context.Reference` that they read. The `concurrency` of a request goes before `execution`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ModelOptions extends Omit<Options, "turn" | "finishReason" | "messages"> {}

/**
 * Governs the language model of `effect/ai`: `generateText`, `streamText`, `generateObject` and `Chat` work as before, and the calls
 * of every response run as a turn. One line of a program changes.
 *
 * **Details**
 *
 * - The model is asked with its own resolution off; without a toolkit, and with `disableToolCallResolution`, nothing is touched.
 * - Every call is answered after the response, in call order; in a stream as soon as the calls before it are, and before `finish`.
 *   A stream gives preliminary results as they come, and its reads start while the model still speaks, as in {@link open}. A response
 *   that breaks off, or whose finish reason is another than `stop`, `tool-calls` and `pause`, runs nothing more.
 * - What is `ok` stands as `effect/ai` gives it, `toModelOutput` included. Anything else is a result with `isFailure`: its
 *   `encodedResult` holds what `Outcome.forModel` gives, for the model; its `result` is the tool's own failure, or for any other answer
 *   `{ type: "execution-interrupted", reason }`, which `effect/ai` has for every tool (the `type` stands in both, so that the part
 *   still encodes). A tool with `failureMode: "error"` no longer fails the
 *   request: its failure is an answer, and its siblings keep theirs.
 * - What is too long for `ToolPolicy.resultBudget` or `resultBudget` is cut in `encodedResult` and in the texts of `modelOutput`, and whole in
 *   `result`. With a budget for the turn a stream gives its answers when all are there.
 * - A call that needs approval gives a `tool-approval-request`. The next prompt with the `tool-approval-response` runs it, once: an
 *   approval is remembered, and sent again it is answered as it was then, also while the call still runs; for arguments that were
 *   changed meanwhile it does not count. The last 1,000 are kept, in this process: of others the history is believed, as by `effect/ai`.
 *   For more, give the tool a key (`ToolPolicy.forward`). Denied calls are answered `execution-denied`.
 * - The prompt that the model is sent has every answer behind its calls, wherever it stood, and an honest one for a call that nobody
 *   answered, or approved. The history itself stays as it is.
 * - What a turn refuses as misuse (a handler that is not there) is a defect.
 *
 * **Interruption**: stops the turn as by its caller and waits for it. `effect/ai` has no place for what is left then: `generateText` gives
 * nothing, and a `Chat` forgets the message; a streamed `Chat` keeps the calls that it saw, and not their answers, which the next prompt
 * with the same parts still gets. `onClosed` is told calls and outcomes in any case: `Turn.toPrompt` makes the messages to go on with.
 * With `cancelOn` the turn alone ends, and the request returns with its answers.
 *
 * **Gotchas**
 *
 * The spans of handlers are beside the span of the model's request, and no longer in it: the request is over when they run.
 *
 * The part of a result that was cut is encoded by the schema of its tool only where that takes what is left of it, as a text does. A history
 * that is made of it takes anything.
 *
 * **Example** (One line changes)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { LanguageModel, Tool, Toolkit } from "effect/ai"
 * import { ToolPolicy, Turn } from "effect-turn"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const Add = pipe(
 *   Tool.make("add", { parameters: Schema.Struct({ a: Schema.Finite, b: Schema.Finite }), success: Schema.Finite }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const toolkit = Toolkit.make(Add)
 * const handlers = toolkit.toLayer({ add: ({ a, b }) => Effect.succeed(a + b) })
 *
 * const model = FakeModel.layer([
 *   FakeModel.calls([FakeModel.call(Add, { a: 1, b: 2 }), FakeModel.call("multiply", { a: 1, b: 2 })])
 * ])
 * const governed = Turn.layerLanguageModel().pipe(Layer.provide([model, Turn.layer()])) // before: model
 *
 * const response = await LanguageModel.generateText({ prompt: "What is 1 + 2?", toolkit }).pipe(
 *   Effect.provide([governed, handlers]),
 *   Effect.runPromise
 * )
 * const answers = response.toolResults.map((part) => [part.name, part.isFailure]) // => [["add", false], ["multiply", true]]
 * ```
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerLanguageModel = (
  options: ModelOptions = {}
): Layer.Layer<LanguageModel.LanguageModel, never, LanguageModel.LanguageModel | Runtime> => {
  const refused = check(options)
  if (refused instanceof TurnError.TurnError) throw refused
  return Layer.effect(
    LanguageModel.LanguageModel,
    Effect.gen(function*() {
      const runtime = yield* Runtime
      return governed(yield* LanguageModel.LanguageModel, {
        options,
        memory: memoryOf(runtime.state),
        // What a turn refuses is a mistake in the program: there is no place for it among the errors of a model.
        run: (toolkit, calls, options) =>
          Effect.orDie(Effect.provideService(run(toolkit, calls, options), Runtime, runtime)) as Effect.Effect<any>,
        open: (toolkit, options) =>
          open(toolkit, options).pipe(
            Effect.provideService(Runtime, runtime),
            Effect.orDie,
            Effect.map((turn: Online<any>) => ({
              end: turn.end,
              submit: (call: ToolCall.ToolCall) => Effect.orDie(turn.submit(call))
            }))
          ) as Effect.Effect<any, never, Scope.Scope>
      })
    })
  )
}

/**
 * What {@link layerHandlers} takes: the options of every call's turn, but for what is said of several calls.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface HandlerOptions
  extends
    Omit<ModelOptions, "siblings" | "unit" | "execution" | "dedupe" | "nameRepair" | "resultBudget" | "references">
{}

/**
 * Governs the handlers of a toolkit for those who call them one by one, as `McpServer.toolkit` does: each call is a turn of one call.
 *
 * **When to use**
 *
 * For a toolkit that is served to others. Inside one's own program `Turn.run` and {@link layerLanguageModel} see the whole list.
 *
 * **Details**
 *
 * What holds: the order of keys, also across clients; permits and limits of backends; the clocks of tools; a write that has started is
 * not cut short when the client cancels, and work that outlives its grace is the supervisor's; a journal is written.
 *
 * What cannot hold where there is no list: calls start in the order in which they arrive, and identical ones both run; those of a
 * `Coalescer` share requests within its window, also across clients of one tenant. A call that needs approval is answered so, as a failure,
 * unless the options decide. Results are given whole, whatever the budgets of tools: what was cut is no result of its tool.
 *
 * A failure of the tool stays that. Any other answer becomes an `AiError`: `InternalProviderError` where the call may be made again, else
 * `UnknownError`, with the words of the outcome; a defect stays one. An MCP server shows a client the words of a tool with
 * `failureMode: "return"`, and "internal error" for one with `"error"`.
 *
 * **Example** (The handlers of a toolkit, governed)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema, Stream } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolPolicy, Turn } from "effect-turn"
 *
 * const Book = pipe(
 *   Tool.make("book", { parameters: Schema.Struct({ room: Schema.Int }), success: Schema.String }),
 *   ToolPolicy.write({ keys: () => ["hotel"] })
 * )
 * const toolkit = Toolkit.make(Book)
 * const handlers = toolkit.toLayer({ book: ({ room }) => Effect.succeed(`room ${room}`) })
 *
 * // For McpServer.toolkit(toolkit), or whoever else takes handlers from the context.
 * const governed = Turn.layerHandlers(toolkit).pipe(Layer.provide([handlers, Turn.layer()]))
 *
 * const results = await Effect.gen(function*() {
 *   const { handle } = yield* toolkit
 *   return yield* Stream.runCollect(Stream.unwrap(handle("book", { room: 7 })))
 * }).pipe(Effect.provide(governed), Effect.runPromise)
 * const first = results[0]?.result // => "room 7"
 * ```
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerHandlers = <Tools extends Record<string, Tool.Any>>(
  toolkit: Toolkit.Toolkit<Tools>,
  options: HandlerOptions = {}
): Layer.Layer<Tool.HandlersFor<Tools>, never, Tool.HandlersFor<Tools> | Runtime> => {
  const refused = check(options)
  if (refused instanceof TurnError.TurnError) throw refused
  const single: HandlerOptions = { ...options, single: true } as HandlerOptions
  return Layer.effectContext(
    Effect.gen(function*() {
      const runtime = yield* Runtime
      const context = yield* Effect.context<never>()
      return governedHandlers(toolkit, context, (call) =>
        run(toolkit, [call], single).pipe(
          Effect.provideService(Runtime, runtime),
          Effect.orDie,
          Effect.map((outcomes) => outcomes[0]!)
        ))
    })
  ) as Layer.Layer<Tool.HandlersFor<Tools>, never, Tool.HandlersFor<Tools> | Runtime>
}
