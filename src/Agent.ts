/**
 * The loop around turns: ask the model, run its calls as a turn, go on with the answers, until something ends it.
 *
 * What an agent keeps to, whatever happens to it: the history that it hands over can go on, for each call in it has its one
 * answer; what was started is awaited when it is stopped; and a loop that ends by a limit or a stop is a result, never an error.
 *
 * @since 0.1.0
 */
import type * as AiError from "effect/ai/AiError"
import type * as LanguageModel from "effect/ai/LanguageModel"
import type * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as AiTool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Queue from "effect/Queue"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type * as Approval from "./Approval.ts"
import { resumeLoop, runLoop } from "./internal/agent/loop.ts"
import * as ParkedForm from "./internal/agent/parked.ts"
import { type AnyToolkit, askStream, askWhole } from "./internal/agent/request.ts"
import { handlerOf } from "./internal/agent/subAgent.ts"
import type * as ToolCall from "./ToolCall.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import type * as Turn from "./Turn.ts"
import * as TurnError from "./TurnError.ts"
import type * as TurnEvent from "./TurnEvent.ts"

type NamesOf<K> = Extract<keyof Turn.ToolsOf<K>, string>

/**
 * Tokens, as the model's finish parts report them.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Usage {
  readonly input: number
  readonly output: number
  readonly total: number
}

/**
 * One step that is over: what the model said, and the turn of its calls.
 *
 * **Details**
 *
 * `number` counts from 1. `calls` and `outcomes` are empty when no call was the agent's to run.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Step<out K> {
  readonly number: number
  /** The id of its turn: that of the agent and the number. */
  readonly turn: string
  readonly text: string
  readonly finishReason: ToolCall.FinishReason
  readonly usage: Usage
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly outcomes: Turn.Outcomes<K>
}

/**
 * Where an agent stands between two steps.
 *
 * **Details**
 *
 * `usage` is what this agent and the agents inside its tools have spent. `prompt` is the history, ready for the next request.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface State<out K> {
  readonly agent: string
  readonly steps: ReadonlyArray<Step<K>>
  readonly usage: Usage
  readonly prompt: Prompt.Prompt
}

/**
 * Schema of {@link Reason}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Reason = Schema.Literals([
  "final",
  "cut_short",
  "terminal_tool",
  "condition",
  "steps",
  "tokens",
  "deadline",
  "stopped",
  "pending_approval"
])

/**
 * Why a loop has ended.
 *
 * **Details**
 *
 * - `final`: the model made no calls. `cut_short`: the same, but the provider cut its text off.
 * - `terminal_tool`: a call of a {@link terminalTool} succeeded.
 * - `condition`, `steps`, `tokens`: what {@link when}, {@link maxSteps} and {@link maxTokens} say.
 * - `deadline`, `stopped`: its time was over, or `cancelOn` succeeded.
 * - `pending_approval`: calls wait for a human, and the agent is parked.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Reason = typeof Reason.Type

/**
 * A loop that has ended without a value of its own. `why` is the word of a `cancelOn`, or `"parent"` when the call that the agent
 * served was stopped.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Ended<out K> extends State<K> {
  readonly reason: Exclude<Reason, "terminal_tool" | "pending_approval">
  readonly why?: string | undefined
  /** What the model said in its last step. */
  readonly text: string
}

/**
 * A loop that was ended by a terminal tool: `value` is what its call succeeded with.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Finished<out K, out Name, out Value> extends State<K> {
  readonly reason: "terminal_tool"
  readonly tool: Name
  readonly value: Value
  readonly text: string
}

/**
 * Schema of {@link Parked}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Parked = ParkedForm.Parked

/**
 * An agent that waits for a human, as plain data: it can be kept as JSON, and {@link resume}d. `turn.requests` is what is asked.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Parked = typeof Parked.Type

/**
 * A loop that waits for a human. Its `prompt` answers the open calls as pending: it is for going on without them.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Waiting<out K> extends State<K> {
  readonly reason: "pending_approval"
  readonly parked: Parked
  readonly text: string
}

/**
 * How a loop has ended, typed by its toolkit and its terminal tools.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Result<K, Terminal extends string = never> =
  | Ended<K>
  | Waiting<K>
  | (Terminal extends NamesOf<K> ? Finished<K, Terminal, SuccessOf<Turn.ToolsOf<K>, Terminal>> : never)

type SuccessOf<Tools, Name> = Name extends keyof Tools
  ? Tools[Name] extends AiTool.Any ? AiTool.Success<Tools[Name]> : never
  : never

/**
 * What is handed over at the end of every loop, whatever ended it: a failure, a defect and an interruption too.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Closed<out K> extends State<K> {
  readonly reason: Reason | "failed" | "defect" | "interrupted"
}

/**
 * What may end a loop besides the model's last words. Made by {@link maxSteps} and its like, joined by {@link any}.
 *
 * @category stopping
 * @since 0.1.0
 * @stability experimental
 */
export interface StopWhen<out Terminal extends string = never> {
  readonly terminal: ReadonlyArray<Terminal>
  readonly steps: number | undefined
  readonly tokens: number | undefined
  readonly conditions: ReadonlyArray<(state: State<any>) => boolean>
}

const nothing: StopWhen = { terminal: [], steps: undefined, tokens: undefined, conditions: [] }

/**
 * Ends the loop when a call of this tool succeeds, with its result as the value. The other calls of that step are answered too.
 *
 * @category stopping
 * @since 0.1.0
 * @stability experimental
 */
export const terminalTool = <const Name extends string>(name: Name): StopWhen<Name> => ({
  ...nothing,
  terminal: [name]
})

/**
 * Ends the loop after so many steps: a whole number from 1, or `"infinite"`. A loop that says nothing ends after 20.
 *
 * @category stopping
 * @since 0.1.0
 * @stability experimental
 */
export const maxSteps = (n: number | "infinite"): StopWhen => ({
  ...nothing,
  steps: n === "infinite" ? Infinity : TurnError.wholeNumber("Agent.maxSteps", "n", n, 1, ', or "infinite"')
})

/**
 * Ends the loop after the step with which so many tokens have been spent, by the agent and the agents inside its tools; those
 * end after their own step then. A whole number from 1.
 *
 * @category stopping
 * @since 0.1.0
 * @stability experimental
 */
export const maxTokens = (n: number): StopWhen => ({
  ...nothing,
  tokens: TurnError.wholeNumber("Agent.maxTokens", "n", n)
})

/**
 * Ends the loop after a step for which this holds.
 *
 * @category stopping
 * @since 0.1.0
 * @stability experimental
 */
export const when = (holds: (state: State<any>) => boolean): StopWhen => ({ ...nothing, conditions: [holds] })

const least = (limits: ReadonlyArray<number | undefined>): number | undefined => {
  const given = limits.filter((limit) => limit !== undefined)
  return given.length === 0 ? undefined : Math.min(...given)
}

/**
 * Ends the loop when any of these would; of two limits of one kind the lower one counts.
 *
 * **Example** (Two limits and a tool that ends the loop)
 *
 * ```ts import.meta.vitest
 * import { Agent } from "effect-turn"
 *
 * const stopWhen = Agent.any(Agent.terminalTool("submit"), Agent.maxSteps(8), Agent.maxTokens(50_000))
 * const names = stopWhen.terminal // => ["submit"]
 * ```
 *
 * @category stopping
 * @since 0.1.0
 * @stability experimental
 */
export const any = <const Conditions extends ReadonlyArray<StopWhen<string>>>(
  ...conditions: Conditions
): StopWhen<Conditions[number] extends StopWhen<infer Name> ? Name : never> => ({
  terminal: conditions.flatMap(({ terminal }) => terminal) as any,
  steps: least(conditions.map(({ steps }) => steps)),
  tokens: least(conditions.map(({ tokens }) => tokens)),
  conditions: conditions.flatMap(({ conditions }) => conditions)
})

/**
 * What a caller wants of one step.
 *
 * **Details**
 *
 * - `tools`: the names on offer. Another one that the model calls all the same is answered `unknown_tool`. Default: all.
 * - `toolChoice`: as in `effect/ai`; takes the place of the agent's own.
 * - `parallel`: false runs the calls of this step one after another. effect/ai has no word for it that all providers know: a
 *   provider that is to send one call at a time is told in its own configuration.
 * - `prompt`: takes the place of the history from this step on, to make a long one shorter.
 * - `system`: more words of the system, for this request alone.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface StepOptions<K> {
  readonly tools?: ReadonlyArray<NamesOf<K>> | undefined
  readonly toolChoice?: LanguageModel.ToolChoice<NamesOf<K>> | undefined
  readonly parallel?: boolean | undefined
  readonly prompt?: Prompt.RawInput | undefined
  readonly system?: string | undefined
}

/**
 * What agents have in common, run by a program or inside a tool.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Settings<
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends string = never,
  E = never,
  R = never
> {
  /** Its tools. Default: none. */
  readonly toolkit?: K | undefined
  /** What ends the loop besides the model's last words. Default: 20 steps. */
  readonly stopWhen?: StopWhen<Terminal> | undefined
  /** How long the whole loop may take: a request is interrupted then, a turn is stopped and awaited. Default: no limit. */
  readonly deadline?: ToolPolicy.Limit | undefined
  /** A stop button: ends the loop when it succeeds, as a result. Its value is the caller's own word: `"user"`, `"budget"`, … */
  readonly cancelOn?: Effect.Effect<string | void> | undefined
  /** A name for its spans. */
  readonly name?: string | undefined
  readonly toolChoice?: LanguageModel.ToolChoice<NamesOf<NoInfer<K>>> | undefined
  /** Asked before each step. */
  readonly prepareStep?:
    | ((state: State<NoInfer<K>>) => StepOptions<NoInfer<K>> | Effect.Effect<StepOptions<NoInfer<K>>, E, R>)
    | undefined
  /** Options of every turn. Its `deadline` is each turn's own. */
  readonly turn?:
    | Omit<Turn.Options<Turn.OutcomeOf<NoInfer<K>>>, "turn" | "finishReason" | "messages" | "cancelOn">
    | undefined
  /** Told everything as it happens, but for the parts of a response. It must not wait; what it throws is dropped. */
  readonly onEvent?: ((event: AgentEvent<NoInfer<K>, Terminal>) => void) | undefined
  /**
   * Told once, before the loop's own end is seen, with a history that can go on: also when it fails, dies, or is interrupted. The loop's
   * end waits for it, however long it takes.
   */
  readonly onClosed?: ((closed: Closed<NoInfer<K>>) => Effect.Effect<void>) | undefined
}

/**
 * What an agent is run with.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends string = never,
  E = never,
  R = never
> extends Settings<K, Terminal, E, R> {
  /** What it begins with: a question, or a history in which each call has its one result. */
  readonly prompt: Prompt.RawInput
  /** The id of this one run; its turns are `<id>/1`, `<id>/2`, … Never give the same id twice. Default: a random one. */
  readonly id?: string | undefined
  /**
   * What happens when calls wait for a human: `"report"` answers them as pending, and the loop goes on; `"park"` ends it, to be
   * {@link resume}d. A rule, or a human who is asked there and then, is `turn.decide`. Default: `"report"`.
   */
  readonly approval?: "report" | "park" | undefined
}

/**
 * What a parked agent goes on with: the same tools, conditions, and so on.
 *
 * **Details**
 *
 * Its id, its steps so far and what it had spent are those of the parked one; its `deadline` begins anew. `decisions` are by position
 * in the parked turn; those in `Approval.Approvals`, where it is in the context, count as well.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ResumeOptions<
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends string = never,
  E = never,
  R = never
> extends Settings<K, Terminal, E, R> {
  readonly approval?: "report" | "park" | undefined
  readonly decisions?:
    | ReadonlyArray<{ readonly position: number; readonly decision: Approval.Decision }>
    | undefined
}

/**
 * What an agent needs: a model, the runtime of turns, and what running its tools needs.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Services<K> = LanguageModel.LanguageModel | Turn.Runtime | Turn.Services<K>

/**
 * Asks the model and runs its calls, step by step, until something ends the loop; the result says what.
 *
 * **Details**
 *
 * It fails with an error of the model, or with misuse; `onClosed` is told the history first. A response that the provider cut
 * short has its calls answered `incomplete_response`, and the loop goes on. Interrupting it stops a turn as its caller does and
 * waits for it; of a request, the texts that were said in full are kept. The model service may be a governed one: it passes
 * through what an agent asks.
 *
 * **Example** (Two steps)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Agent, ToolPolicy, Turn } from "effect-turn"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const Add = pipe(
 *   Tool.make("add", { parameters: Schema.Struct({ a: Schema.Int, b: Schema.Int }), success: Schema.Int }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const toolkit = Toolkit.make(Add)
 * const handlers = toolkit.toLayer({ add: ({ a, b }) => Effect.succeed(a + b) })
 * const model = FakeModel.layer([FakeModel.calls([FakeModel.call(Add, { a: 2, b: 3 })]), FakeModel.text("It is 5.")])
 *
 * const result = await Agent.run({ prompt: "What is 2 + 3?", toolkit }).pipe(
 *   Effect.provide([handlers, model, Turn.layer()]),
 *   Effect.runPromise
 * )
 * const story = [result.reason, result.text, result.steps.length] // => ["final", "It is 5.", 2]
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const run = <
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends NamesOf<K> = never,
  E = never,
  R = never
>(
  options: Options<K, Terminal, E, R>
): Effect.Effect<Result<K, Terminal>, AiError.AiError | TurnError.TurnError | E, Services<K> | R> =>
  runLoop(options, { streamed: false, ask: askWhole, emit: quietly(options.onEvent) }) as Effect.Effect<any, any, any>

/**
 * Goes on with an agent that was parked: its turn is resumed, and the loop with it. The first step of the result is the parked one.
 *
 * **Details**
 *
 * What nobody has decided about stays held, so it may be parked again. It is misuse to resume with another tenant, with tools that have
 * changed, or with decisions for calls that wait for none.
 *
 * **Gotchas**
 *
 * A parked agent is a value. Of two copies that are resumed in one process the second is refused, as misuse; in two processes both would
 * run their calls, which a `TurnJournal` in the context does not let happen.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const resume = <
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends NamesOf<K> = never,
  E = never,
  R = never
>(
  parked: Parked,
  options: ResumeOptions<K, Terminal, E, R>
): Effect.Effect<Result<K, Terminal>, AiError.AiError | TurnError.TurnError | E, Services<K> | R> =>
  resumeLoop(options as any, parked, {
    streamed: false,
    ask: askWhole,
    emit: quietly(options.onEvent)
  }) as Effect.Effect<any, any, any>

/** Whoever listens cannot hurt the agent. The events of a run are of its own toolkit. */
const quietly = (tell: ((event: any) => void) | undefined): ((event: AgentEvent<any, any>) => void) | undefined =>
  tell === undefined ? undefined : (event) => {
    try {
      tell(event)
    } catch {
      // What it throws is dropped.
    }
  }

/**
 * The same loop as the stream of what happens in it, the parts of each response included as they come. Its last event is the result.
 *
 * **Details**
 *
 * A call is taken in as soon as it is complete: reads start then, everything else when the response has ended. A response that breaks
 * off, or ends without a finish part, was cut short: what had begun is answered, and stands in the history. Interrupting the stream
 * interrupts the loop, and waits for it. The loop never waits for a slow reader: what that has not taken is kept for it.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const stream = <
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends NamesOf<K> = never,
  E = never,
  R = never
>(
  options: Options<K, Terminal, E, R>
): Stream.Stream<AgentEvent<K, Terminal>, AiError.AiError | TurnError.TurnError | E, Services<K> | R> =>
  Stream.callback((queue) => {
    const told = quietly(options.onEvent)
    const emit = (event: AgentEvent<any, any>) => {
      if (event._tag !== "PartReceived") told?.(event)
      Queue.offerUnsafe(queue, event as AgentEvent<K, Terminal>)
    }
    const loop = runLoop(options, { streamed: true, ask: askStream, emit }) as Effect.Effect<any, any, any>
    return Effect.andThen(loop, Effect.sync(() => Queue.endUnsafe(queue)))
  })

/**
 * What all events of an agent have.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface OfAgent {
  readonly agent: string
}

/**
 * The model is asked. `at` is in milliseconds of the clock.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface StepStarted extends OfAgent {
  readonly _tag: "StepStarted"
  readonly at: number
  readonly step: number
  readonly turn: string
}

/**
 * A part of the response, as it comes. Only {@link stream} has these.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface PartReceived extends OfAgent {
  readonly _tag: "PartReceived"
  readonly step: number
  readonly part: Response.AnyPart
}

/**
 * Something has happened in the turn of a step.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnReported extends OfAgent {
  readonly _tag: "TurnReported"
  readonly step: number
  readonly event: TurnEvent.TurnEvent
}

/**
 * A step is over, and its calls are answered.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface StepEnded<out K> extends OfAgent {
  readonly _tag: "StepEnded"
  readonly at: number
  readonly step: Step<K>
}

/**
 * The loop is over. There is none when it fails.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export interface AgentEnded<out Result> extends OfAgent {
  readonly _tag: "AgentEnded"
  readonly result: Result
}

/**
 * Everything that happens in an agent.
 *
 * @category events
 * @since 0.1.0
 * @stability experimental
 */
export type AgentEvent<K, Terminal extends string = never> =
  | StepStarted
  | PartReceived
  | TurnReported
  | StepEnded<K>
  | AgentEnded<Result<K, Terminal>>

/**
 * What a model gives to a sub-agent: its task, in words.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export const Task = Schema.Struct({
  task: Schema.String.annotate({ description: "What to do, with everything that has to be known for it." })
})

/**
 * What a model gives to a sub-agent.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export type Task = typeof Task.Type

/**
 * What a sub-agent answers: its last words, why it ended, and the tools of its calls that changed something or may have. `value` is
 * what a terminal tool gave, encoded.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export const Answer = Schema.Struct({
  reason: Reason,
  text: Schema.String,
  changed: Schema.Array(Schema.String),
  value: Schema.optionalKey(Schema.Unknown)
})

/**
 * What a sub-agent answers.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export type Answer = typeof Answer.Type

/**
 * A sub-agent whose model failed. `changed` names the tools of its calls that changed something by then, or may have.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export class AgentFailed extends Schema.TaggedError<AgentFailed>()("AgentFailed", {
  message: Schema.String,
  changed: Schema.Array(Schema.String)
}) {}

/**
 * A tool that is an agent of its own: its handler is made by {@link handler}.
 *
 * **Details**
 *
 * It is a write without keys: the calls inside take theirs, so that it holds up nothing that they do not touch. As any write it is
 * not interrupted, but the agent in it hears a stop and a timeout, closes its turn, and answers. It has no time limit but that of
 * its agent. Annotate it again to say otherwise, `ToolPolicy.read({ keys: () => [] })` where all its tools are reads.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export const asTool = <const Name extends string>(name: Name, options: { readonly description: string }) =>
  pipe(
    AiTool.make(name, {
      description: options.description,
      parameters: Task,
      success: Answer,
      failure: AgentFailed
    }),
    ToolPolicy.write({ keys: () => [] }),
    ToolPolicy.timeout("infinite"),
    ToolPolicy.failures({ noEffect: (failure) => (failure as AgentFailed).changed.length === 0 })
  )

/**
 * What a sub-agent is run with.
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export interface HandlerOptions<
  in P = Task,
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends string = never,
  R = never
> extends Settings<K, Terminal, never, R> {
  /** What it begins with, from the parameters of the call. Default: its `task`. */
  readonly prompt?: ((params: P) => Prompt.RawInput) | undefined
}

/**
 * Makes the handler of a sub-agent.
 *
 * **Details**
 *
 * The model and the handlers of its tools are those of where the handler is made; all else, tenant, permits, the turn around it,
 * comes with the call. Its history is its own, its id is that of the call, and what it spends its parent has spent. A stop of the
 * call is a stop of the agent. An error of its model is the tool's failure {@link AgentFailed}; misuse is a defect.
 *
 * **Example** (A researcher)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer } from "effect"
 * import { Toolkit } from "effect/ai"
 * import { Agent, Turn } from "effect-turn"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const Research = Agent.asTool("research", { description: "Finds something out." })
 * const toolkit = Toolkit.make(Research)
 * const handlers = toolkit.toLayer(Effect.gen(function*() {
 *   return { research: yield* Agent.handler({ prompt: ({ task }) => `You are a researcher. ${task}` }) }
 * })).pipe(Layer.provide([FakeModel.layer([FakeModel.text("It is blue.")]), Turn.layer()]))
 *
 * const model = FakeModel.layer([
 *   FakeModel.calls([FakeModel.call(Research, { task: "The colour of the sky?" })]),
 *   FakeModel.text("Blue.")
 * ])
 * const result = await Agent.run({ prompt: "What colour is the sky?", toolkit }).pipe(
 *   Effect.provide([handlers, model, Turn.layer()]),
 *   Effect.runPromise
 * )
 * const answer = result.steps[0]?.outcomes[0]?.status // => "ok"
 * ```
 *
 * @category sub-agents
 * @since 0.1.0
 * @stability experimental
 */
export const handler = <
  P = Task,
  K extends AnyToolkit = Toolkit.Toolkit<{}>,
  Terminal extends NamesOf<K> = never,
  R = never
>(
  options: HandlerOptions<P, K, Terminal, R>
): Effect.Effect<(params: P) => Effect.Effect<Answer, AgentFailed>, never, Services<K> | R> =>
  handlerOf(options as any, run as any, (message, changed) => new AgentFailed({ message, changed })) as any
