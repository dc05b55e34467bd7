/**
 * The moment when a model answers one step with a *list* of tool calls: every call gets exactly one outcome, in the order of
 * the calls, whatever happens.
 *
 * `Turn.run` takes the calls in, plans them (`TurnPlan`), runs together what may run together and in order what must, under the
 * limits of their backends, and answers each. A turn's error channel is for misuse alone.
 *
 * @since 0.1.0
 */
import type * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import type * as Tool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import type * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { beginTurn, type Begun, checkCalls, intakeOf } from "./internal/turn/begin.ts"
import type { ArgumentLimits } from "./internal/turn/json.ts"
import { check } from "./internal/turn/options.ts"
import * as Prompts from "./internal/turn/prompt.ts"
import { RuntimeState } from "./internal/turn/runtime.ts"
import { surroundingsOf } from "./internal/turn/surroundings.ts"
import type { AnyToolkit } from "./internal/turn/tool.ts"
import type * as Outcome from "./Outcome.ts"
import type * as Siblings from "./Siblings.ts"
import type * as ToolCall from "./ToolCall.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnError from "./TurnError.ts"
import type * as TurnEvent from "./TurnEvent.ts"
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
 * `unsettled` lists the calls whose work goes on. They keep their keys and permits until it has really ended.
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
  /** What happens to running turns when the layer's scope closes: they are stopped (default), or awaited. */
  readonly shutdown?: "stop" | "await" | undefined
  /** How long closing waits for work that was given up on. Default: 5 seconds. */
  readonly shutdownGrace?: ToolPolicy.Limit | undefined
  /** Told of each work that was given up on and has really ended: its call keeps its answer. It must not wait. */
  readonly onSettledLate?: ((event: TurnEvent.CallSettledLate) => void) | undefined
  /** Told what is still at work when closing has waited long enough. Default: a warning in the log, one line a call. */
  readonly onUnsettled?: ((left: ReadonlyArray<Unsettled>) => Effect.Effect<void>) | undefined
}

const unsettledOf = (state: RuntimeState): ReadonlyArray<Unsettled> =>
  Array.from(state.unsettled, (run): Unsettled => {
    const { tenant, turn } = run.turn.identity()
    return {
      tenant,
      turn,
      position: run.position,
      id: run.id,
      tool: run.name,
      outcome: run.turn.slots[run.position]!
    }
  })

const logUnsettled = (left: ReadonlyArray<Unsettled>): Effect.Effect<void> =>
  Effect.forEach(
    left,
    (one) =>
      Effect.logWarning(
        `shut down with work left: call #${one.position} (${one.tool}${
          one.id === "" ? "" : `, id ${one.id}`
        }) of turn ${one.turn}`
      ),
    { discard: true }
  )

/**
 * The layer that turns run on.
 *
 * **Details**
 *
 * When its scope closes, intake stops, running turns are stopped or awaited, what was given up on is awaited for
 * `shutdownGrace`, and what is left is told to `onUnsettled`.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (options?: LayerOptions): Layer.Layer<Runtime> => {
  const grace = ToolPolicy.limitMillis("Turn.layer", "shutdownGrace", options?.shutdownGrace ?? "5 seconds")
  return Layer.effect(
    Runtime,
    Effect.gen(function*() {
      const state = new RuntimeState()
      state.onSettledLate = options?.onSettledLate
      yield* Effect.addFinalizer(() =>
        Effect.gen(function*() {
          state.closed = true
          if (options?.shutdown !== "await") {
            for (const turn of state.turns) turn.stop({ code: "by_caller", reason: "shutdown" })
          }
          yield* whenQuiet(state, () => state.turns.size === 0)
          yield* whenQuiet(state, () => state.unsettled.size === 0).pipe(
            grace === Infinity ? (self) => self : Effect.timeoutOption(grace)
          )
          const left = unsettledOf(state)
          if (left.length > 0) yield* (options?.onUnsettled ?? logUnsettled)(left)
        })
      )
      return { state, unsettled: Effect.sync(() => unsettledOf(state)) }
    })
  )
}

const whenQuiet = (state: RuntimeState, quiet: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() =>
    quiet()
      ? Effect.void
      : Effect.callback<void>((resume) => {
        state.onQuiet = () => {
          if (quiet()) resume(Effect.void)
        }
        return Effect.sync(() => {
          state.onQuiet = undefined
        })
      })
  )

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
  /** What the failure of one call means for the others. Default: `Siblings.letFinish`. */
  readonly siblings?: Siblings.Policy<O> | undefined
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
  /** Repairs case and surrounding white space of a tool's name when exactly one tool fits. Default: false. */
  readonly nameRepair?: boolean | undefined
  /** How the model's response ended: a response that was cut short runs nothing. */
  readonly finishReason?: ToolCall.FinishReason | undefined
  /** Stops the turn when it succeeds; its value is the caller's own reason: `"user"`, `"budget"`, … It is interrupted with the turn's end. */
  readonly cancelOn?: Effect.Effect<string | void> | undefined
  /** Told every event, as it happens. It must not wait; what it throws is dropped. */
  readonly onEvent?: ((event: TurnEvent.TurnEvent) => void) | undefined
  /** Told the calls and their outcomes as one unit when the turn has closed, also when its fiber is interrupted. */
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
    Effect.withFiber((fiber) =>
      Effect.callback<ReadonlyArray<Outcome.Outcome<any>>, TurnError.TurnError>((resume) => {
        const turn = begin(fiber.context, toolkit, calls, options, undefined)
        if (turn instanceof TurnError.TurnError) return resume(Effect.fail(turn))
        turn.whenClosed((outcomes) => resume(Effect.succeed(outcomes)))
        return Effect.suspend(() => {
          turn.stop(turn.setting.around.parent === undefined ? "interrupted" : "parent")
          return turn.closed
        })
      })
    )
)

/** Takes the calls in and starts what is ready, on the runtime of this context. */
const begin = (
  context: Context.Context<never>,
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options: Options | undefined,
  also: ((event: TurnEvent.TurnEvent) => void) | undefined
): Begun | TurnError.TurnError =>
  beginTurn(Context.get(context as Context.Context<any>, Runtime).state, context, toolkit, calls, options, also)

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
      let id: string | undefined
      const intake = intakeOf(
        toolkit,
        calls,
        () => id ??= surroundingsOf(fiber.context).identity(options?.turn).turn,
        opts,
        options
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
 * - `await` gives the outcomes; interrupting it does not stop the turn.
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
  readonly cancel: (reason?: string) => Effect.Effect<Outcomes<K>>
  readonly cancelCall: (at: number | string, reason?: string) => Effect.Effect<boolean>
  readonly events: Stream.Stream<TurnEvent.TurnEvent>
  readonly lost: Effect.Effect<number>
}

const eventCapacity = 16_384

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
      const queue = Effect.runSync(Queue.unbounded<TurnEvent.TurnEvent, Cause.Done>())
      let waiting = 0
      let lost = 0
      const offer = (event: TurnEvent.TurnEvent) => {
        if (waiting >= eventCapacity) {
          // The oldest goes: what a reader has not taken yet is worth less than what happens now.
          if (Queue.takeUnsafe(queue) !== undefined) {
            waiting--
            lost++
          }
        }
        if (Queue.offerUnsafe(queue, event)) waiting++
        if (event._tag === "TurnEnded") Queue.endUnsafe(queue)
      }
      const acquire = Effect.suspend(() => {
        const turn = begin(fiber.context, toolkit, calls, options, offer)
        return turn instanceof TurnError.TurnError ? Effect.fail(turn) : Effect.succeed(turn)
      })
      return Effect.map(
        Effect.acquireRelease(acquire, (turn) =>
          Effect.suspend(() => {
            turn.stop("the scope was closed")
            return turn.closed
          })),
        (turn): Handle<any> => ({
          turn: turn.state.identity().turn,
          await: turn.closed,
          cancel: (reason) =>
            Effect.suspend(() => {
              turn.stop(reason)
              return turn.closed
            }),
          cancelCall: (at, reason) => Effect.sync(() => turn.state.cancel(positionOf(calls, at), reason)),
          events: Stream.tap(Stream.fromQueue(queue), () =>
            Effect.sync(() => {
              waiting--
            })),
          lost: Effect.sync(() => lost)
        })
      )
    })
)

/** The position that an id stands for, when exactly one call has it. */
const positionOf = (calls: ReadonlyArray<ToolCall.ToolCall>, at: number | string): number => {
  if (typeof at === "number") return at
  const found = calls.findIndex((call) => call.id === at)
  return found === -1 || calls.findLastIndex((call) => call.id === at) !== found ? -1 : found
}

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
