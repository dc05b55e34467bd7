/**
 * The loop: step, turn, step, until something ends it.
 *
 * - A1: the history that is handed over is valid at any moment: it changes between steps, and as `step.ts` says (S1).
 * - A2: only what waits may be interrupted: the hook, the request, the turn. What comes between runs to its end, so that no
 *   response is lost, and no outcome.
 * - A3: whatever ends the loop, the history is handed over once, before the loop's own end is seen.
 * - A4: a turn is stopped by its own means, so that it waits for what it started and its answers say who stopped it.
 */
import * as Prompt from "effect/ai/Prompt"
import * as Toolkit from "effect/ai/Toolkit"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Random from "effect/Random"
import type * as Agent from "../../Agent.ts"
import type * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnContext from "../../TurnContext.ts"
import * as TurnError from "../../TurnError.ts"
import { problemOf } from "./history.ts"
import { CurrentMeter, Meter } from "./meter.ts"
import { type Begin, decodeParked, encodeParked } from "./parked.ts"
import { type AnyToolkit, type Ask, offerOf, withSystem } from "./request.ts"
import { type AnyOptions, type Around, type Failure, Halt, type Over, type Prepared, StepAtWork } from "./step.ts"

type Step = Agent.Step<any>
type Result = Agent.Result<any, any>
type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** How the model is asked, and who is told. */
export interface Io {
  readonly streamed: boolean
  readonly ask: Ask
  readonly emit: ((event: Agent.AgentEvent<any, any>) => void) | undefined
}

const late = new Halt("deadline")

const invalid = (what: string, expected: string, received: string): TurnError.TurnError =>
  TurnError.make(new TurnError.InvalidInput({ what, expected, received }))

/** A history that a provider would refuse is refused here, with the reason. */
const historyOf = (what: string, input: Prompt.RawInput): Prompt.Prompt | TurnError.TurnError => {
  const prompt = Prompt.make(input)
  const problem = problemOf(prompt)
  return problem === undefined ? prompt : invalid(what, "a history in which each call has its one result", problem)
}

/** How long an agent waits for what is deaf to its stop, in milliseconds. */
const deafPatience = 5_000

/** What is known before the loop begins. */
interface Setting {
  readonly options: AnyOptions
  readonly io: Io
  readonly agent: string
  readonly conversation: string
  readonly clock: Clock.Clock
  readonly meter: Meter
  readonly deadlineAt: number
  readonly call: TurnContext.CallContext | undefined
  readonly begin: Begin
}

class Loop implements Around {
  readonly setting: Setting
  readonly restore: Restore
  history: Prompt.Prompt
  halt: Halt | undefined = undefined
  readonly steps: Array<Step> = []
  /** Done when the loop is to stop. */
  private readonly halting = Deferred.makeUnsafe<Halt>()

  constructor(setting: Setting, restore: Restore) {
    this.setting = setting
    this.history = setting.begin.history
    this.restore = restore
  }

  get agent() {
    return this.setting.agent
  }
  get options() {
    return this.setting.options
  }
  get streamed() {
    return this.setting.io.streamed
  }
  get ask() {
    return this.setting.io.ask
  }
  get interruption() {
    return this.setting.call === undefined ? "interrupted" : "parent"
  }
  get left(): number {
    const { clock, deadlineAt } = this.setting
    return deadlineAt - clock.currentTimeMillisUnsafe()
  }
  get stopped(): Effect.Effect<Halt> {
    return Deferred.await(this.halting)
  }
  private get halted(): Halt | undefined {
    return this.halt ?? (this.left <= 0 ? late : undefined)
  }

  stopBy(why: string | undefined): void {
    if (this.halt !== undefined) return
    this.halt = new Halt("stopped", why)
    Deferred.doneUnsafe(this.halting, Effect.succeed(this.halt))
  }

  spend(input: number, output: number): void {
    this.setting.meter.add(input, output)
  }

  emit(make: (agent: string, at: number) => Agent.AgentEvent<any, any>): void {
    const { agent, clock, io } = this.setting
    io.emit?.(make(agent, clock.currentTimeMillisUnsafe()))
  }

  /** Waits for an effect, unless the loop is stopped first: then that is interrupted and awaited (A2). */
  attempt<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<Exit.Exit<A | Halt, E>, never, R> {
    const { left, stopped } = this
    const halts = left === Infinity ? stopped : Effect.raceFirst(stopped, Effect.as(Effect.sleep(left), late))
    // One that ignores its stop must not keep the agent for ever either: nothing of it is taken any more.
    const deaf = () => Effect.logWarning("an agent went on while a request, or its prepareStep, ignored its stop")
    return Effect.exit(this.restore(Effect.raceFirst(Siblings.leavable(effect, deafPatience, deaf), halts)))
  }

  state(): Agent.State<any> {
    const { agent, meter: { input, output } } = this.setting
    const usage = { input, output, total: input + output }
    return { agent, steps: [...this.steps], usage, prompt: this.history }
  }

  private end(how: { readonly reason: Agent.Reason; readonly [name: string]: unknown }): Result {
    return { ...this.state(), text: this.steps.at(-1)?.text ?? "", ...how } as Result
  }

  main(): Effect.Effect<Result, Failure, any> {
    return Effect.gen({ self: this }, function*() {
      const { begin } = this.setting
      for (let number = begin.step;; number++) {
        const parking = number === begin.step ? begin.parking : undefined
        let over: Over
        if (parking !== undefined) {
          const step = new StepAtWork(this, number, yield* this.preparedOf({}))
          over = yield* step.resume(parking, begin.words!, begin.decisions)
        } else {
          if (this.halted !== undefined) return this.end({ ...this.halted })
          const prepared = yield* this.prepare()
          if (prepared instanceof Halt) return this.end({ ...prepared })
          over = yield* new StepAtWork(this, number, prepared).run()
        }
        const { failed, halt, parked, step } = over
        if (step !== undefined) this.steps.push(step)
        if (failed !== undefined) return yield* Effect.failCause(failed)
        if (halt !== undefined) return this.end({ ...halt })
        if (parked !== undefined && this.options.approval === "park") {
          const { conversation, meter } = this.setting
          return this.end({
            reason: "pending_approval",
            parked: encodeParked({ agent: this.agent, conversation, step: step!, meter, parking: parked })
          })
        }
        const ended = this.endAfter(step!)
        if (ended !== undefined) return this.end(ended)
      }
    })
  }

  /** What the caller wants of this step. */
  private prepare(): Effect.Effect<Prepared | Halt, Failure, any> {
    return Effect.gen({ self: this }, function*() {
      const { prepareStep } = this.options
      if (prepareStep === undefined) return yield* this.preparedOf({})
      const given = prepareStep(this.state())
      const exit = yield* this.attempt(Effect.isEffect(given) ? given : Effect.succeed(given))
      if (Exit.isFailure(exit)) return yield* exit as Exit.Exit<never, Failure>
      if (exit.value instanceof Halt) return exit.value
      const { prompt } = exit.value
      if (prompt !== undefined) {
        const history = historyOf("the prompt of `prepareStep`", prompt)
        if (history instanceof TurnError.TurnError) return yield* history
        this.history = history
      }
      return yield* this.preparedOf(exit.value)
    })
  }

  private preparedOf(asked: Agent.StepOptions<any>): Exit.Exit<Prepared, TurnError.TurnError> {
    const toolkit = this.options.toolkit as AnyToolkit | undefined ?? Toolkit.empty
    const offer = offerOf(toolkit, asked.tools)
    if (typeof offer === "string") {
      const names = Object.keys(toolkit.tools).join(", ")
      return Exit.fail(
        invalid("the tools of `prepareStep`", `names of the toolkit (${names})`, JSON.stringify(offer))
      )
    }
    return Exit.succeed({
      offer,
      prompt: withSystem(this.history, asked.system),
      toolChoice: asked.toolChoice ?? this.options.toolChoice,
      sequential: asked.parallel === false
    })
  }

  /** Why the loop is over after a step, if it is. What was achieved counts more than what came meanwhile. */
  private endAfter(step: Step): { readonly reason: Agent.Reason; readonly [name: string]: unknown } | undefined {
    const { meter, options: { stopWhen } } = this.setting
    const { calls, finishReason, number, outcomes } = step
    if (calls.length === 0 && finishReason !== "pause") {
      return { reason: ToolCall.isCutShort(finishReason) ? "cut_short" : "final" }
    }
    const terminal: ReadonlyArray<string> = stopWhen?.terminal ?? []
    const done = (outcomes as ReadonlyArray<Outcome.Outcome<any>>).find(({ name, status }) =>
      status === "ok" && terminal.includes(name)
    )
    if (done !== undefined) return { reason: "terminal_tool", tool: done.name, value: (done as any).result }
    const { halted } = this
    if (halted !== undefined) return { ...halted }
    if (stopWhen?.conditions.some((holds) => holds(this.state()))) return { reason: "condition" }
    if (meter.isSpent) return { reason: "tokens" }
    return number >= (stopWhen?.steps ?? 20) ? { reason: "steps" } : undefined
  }
}

/** Everything that can be wrong with the options, before anything runs. */
const deadlineOf = (options: AnyOptions): number | TurnError.TurnError => {
  const terminal = (options.stopWhen?.terminal ?? []).find((name: string) =>
    !Object.hasOwn(options.toolkit?.tools ?? {}, name)
  )
  if (terminal !== undefined) {
    return invalid("`Agent.terminalTool`", "a tool of the agent's toolkit", JSON.stringify(terminal))
  }
  const approval: unknown = options.approval ?? "report"
  if (approval !== "report" && approval !== "park") {
    return invalid("the option `approval` of an agent", '"report" or "park"', TurnError.show(approval))
  }
  if (options.deadline === undefined) return Infinity
  try {
    return ToolPolicy.limitMillis("the agent", "deadline", options.deadline)
  } catch (error) {
    if (error instanceof TurnError.TurnError) return error
    throw error
  }
}

/** Runs an agent in the context of the current fiber. */
export const runLoop = (options: AnyOptions, io: Io): Effect.Effect<Result, Failure, any> =>
  Effect.suspend(() => {
    const history = historyOf("the prompt of an agent", options.prompt)
    return history instanceof TurnError.TurnError
      ? Effect.fail(history)
      : begun(options, io, { agent: options.id, step: 1, history })
  })

/** Goes on with an agent that was parked. */
export const resumeLoop = (
  options: Agent.ResumeOptions<any, any, any, any>,
  parked: Agent.Parked,
  io: Io
): Effect.Effect<Result, Failure, any> =>
  Effect.flatMap(decodeParked(parked, options.decisions), (begin) => begun(options as unknown as AnyOptions, io, begin))

const begun = (options: AnyOptions, io: Io, begin: Begin): Effect.Effect<Result, Failure, any> =>
  Effect.withFiber((fiber) => {
    const deadline = deadlineOf(options)
    if (deadline instanceof TurnError.TurnError) return Effect.fail(deadline)
    const context = fiber.context as Context.Context<any>
    const clock = Context.get(context, Clock.Clock)
    const agent = begin.agent ??
      TurnContext.newId("agent", () => Context.get(context, Random.Random).nextDoubleUnsafe())
    const meter = new Meter(options.stopWhen?.tokens ?? Infinity, Context.get(context, CurrentMeter))
    meter.start(begin.usage)
    const conversation = begin.conversation ?? Context.get(context, TurnContext.Conversation) ?? agent
    const deadlineAt = clock.currentTimeMillisUnsafe() + deadline
    const call = Context.get(context, TurnContext.CurrentCall)
    const setting: Setting = { options, io, agent, conversation, clock, meter, deadlineAt, call, begin }
    return Effect.uninterruptibleMask((restore) => guarded(new Loop(setting, restore))).pipe(
      Effect.provideService(CurrentMeter, meter),
      Effect.provideService(TurnContext.Conversation, conversation),
      Effect.withSpan(options.name === undefined ? "invoke_agent" : `invoke_agent ${options.name}`, {
        attributes: {
          "gen_ai.operation.name": "invoke_agent",
          "gen_ai.agent.id": agent,
          "gen_ai.conversation.id": conversation,
          ...(options.name === undefined ? undefined : { "gen_ai.agent.name": options.name })
        }
      })
    )
  })

/** The loop with what may stop it, and with the one way out (A3). */
const guarded = (loop: Loop): Effect.Effect<Result, Failure, any> =>
  Effect.gen(function*() {
    const { call, io, options } = loop.setting
    const unheed = call?.onStop?.(() => loop.stopBy("parent"))
    const stopping = options.cancelOn === undefined
      ? undefined
      : yield* Effect.forkDetach(stopWhenDone(loop, options.cancelOn), { startImmediately: true })
    const exit = yield* Effect.exit(loop.main())
    unheed?.()
    if (stopping !== undefined) {
      // One that ignores its stop must not keep the agent for ever.
      stopping.interruptUnsafe()
      const ended = yield* Effect.timeoutOption(Fiber.await(stopping), deafPatience)
      if (ended._tag === "None") yield* Effect.logWarning("an agent ended while its cancelOn ignored its stop")
    }
    if (options.onClosed !== undefined) yield* handOver(loop, options.onClosed, exit)
    if (Exit.isSuccess(exit)) io.emit?.({ _tag: "AgentEnded", agent: loop.setting.agent, result: exit.value })
    return yield* exit
  })

const stopWhenDone = (loop: Loop, cancelOn: Effect.Effect<string | void>): Effect.Effect<void> =>
  Effect.flatMap(Effect.exit(cancelOn), (exit) =>
    Effect.sync(() => {
      if (Exit.isSuccess(exit)) loop.stopBy(exit.value === undefined ? undefined : String(exit.value))
      else if (!Cause.hasInterruptsOnly(exit.cause)) loop.stopBy(`cancelOn broke: ${Cause.pretty(exit.cause)}`)
    }))

const handOver = (
  loop: Loop,
  onClosed: (closed: Agent.Closed<any>) => Effect.Effect<void>,
  exit: Exit.Exit<Result, unknown>
): Effect.Effect<void> =>
  Effect.suspend(() => onClosed({ ...loop.state(), reason: Exit.isSuccess(exit) ? exit.value.reason : endOf(exit) }))
    .pipe(
      Effect.catchCause((cause) => Effect.logError("onClosed of an agent broke", cause))
    )

const endOf = ({ cause }: Exit.Failure<unknown, unknown>): "failed" | "defect" | "interrupted" =>
  Cause.hasDies(cause) ? "defect" : Cause.hasFails(cause) ? "failed" : "interrupted"
