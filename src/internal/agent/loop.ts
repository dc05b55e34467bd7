/**
 * The loop: step, turn, step, until something ends it.
 *
 * - A1: the history that is handed over is valid at any moment: a response and the answers to its calls become part of it in one
 *   step, when the turn has closed.
 * - A2: only what waits may be interrupted: the hook, the request, the turn. What comes between runs to its end, so that no
 *   response is lost, and no outcome.
 * - A3: whatever ends the loop, the history is handed over once, before the loop's own end is seen.
 * - A4: a turn is stopped by its own means, so that it waits for what it started and its answers say who stopped it.
 */
import type * as AiError from "effect/ai/AiError"
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
import * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as Turn from "../../Turn.ts"
import * as TurnContext from "../../TurnContext.ts"
import * as TurnError from "../../TurnError.ts"
import { type Part, problemOf, type Said, saidOf, wholeTexts } from "./history.ts"
import { CurrentMeter, Meter } from "./meter.ts"
import { type AnyToolkit, type Ask, type Offer, offerOf, withSystem } from "./request.ts"

export type AnyOptions = Agent.Options<any, any, any, any>
type Step = Agent.Step<any>
type Result = Agent.Result<any, any>
type Failure = AiError.AiError | TurnError.TurnError
type Outcomes = ReadonlyArray<Outcome.Outcome<any>>
type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** How the model is asked, and who is told. */
export interface Io {
  readonly streamed: boolean
  readonly ask: Ask
  readonly emit: ((event: Agent.AgentEvent<any, any>) => void) | undefined
}

/** What ends the loop from outside. */
class Halt {
  readonly reason: "stopped" | "deadline"
  readonly why: string | undefined
  constructor(reason: "stopped" | "deadline", why?: string) {
    this.reason = reason
    this.why = why
  }
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

const randomId = (random: typeof Random.Random["Service"]): string => {
  let id = "agent_"
  while (id.length < 28) id += Math.floor(random.nextDoubleUnsafe() * 0x100000000).toString(36).padStart(7, "0")
  return id.slice(0, 28)
}

const deafPatience = "5 seconds"

/** What is known before the loop begins. */
interface Setting {
  readonly options: AnyOptions
  readonly io: Io
  readonly agent: string
  readonly clock: Clock.Clock
  readonly meter: Meter
  readonly deadlineAt: number
  readonly call: TurnContext.CallContext | undefined
}

class Loop {
  readonly setting: Setting
  readonly restore: Restore
  readonly steps: Array<Step> = []
  history: Prompt.Prompt
  halt: Halt | undefined = undefined
  /** Done when the loop is to stop. */
  private readonly halting = Deferred.makeUnsafe<Halt>()

  constructor(setting: Setting, history: Prompt.Prompt, restore: Restore) {
    this.setting = setting
    this.history = history
    this.restore = restore
  }

  stopBy(why: string | undefined): void {
    if (this.halt !== undefined) return
    this.halt = new Halt("stopped", why)
    Deferred.doneUnsafe(this.halting, Effect.succeed(this.halt))
  }

  private get left(): number {
    const { clock, deadlineAt } = this.setting
    return deadlineAt - clock.currentTimeMillisUnsafe()
  }

  private get halted(): Halt | undefined {
    return this.halt ?? (this.left <= 0 ? late : undefined)
  }

  state(): Agent.State<any> {
    const { agent, meter: { input, output } } = this.setting
    const usage = { input, output, total: input + output }
    return { agent, steps: [...this.steps], usage, prompt: this.history }
  }

  private end(how: { readonly reason: Agent.Reason; readonly why?: string | undefined }): Result {
    return { ...this.state(), text: this.steps.at(-1)?.text ?? "", ...how } as Result
  }

  private emit(make: (agent: string, at: number) => Agent.AgentEvent<any, any>): void {
    const { agent, clock, io } = this.setting
    io.emit?.(make(agent, clock.currentTimeMillisUnsafe()))
  }

  /** Waits for an effect, unless the loop is stopped first: then that is interrupted and awaited (A2). */
  private attempt<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<Exit.Exit<A | Halt, E>, never, R> {
    const { left } = this
    const stopped = Deferred.await(this.halting)
    const halts = left === Infinity ? stopped : Effect.raceFirst(stopped, Effect.as(Effect.sleep(left), late))
    return Effect.exit(this.restore(Effect.raceFirst(effect, halts)))
  }

  main(): Effect.Effect<Result, Failure, any> {
    return Effect.gen({ self: this }, function*() {
      for (let number = 1;; number++) {
        if (this.halted !== undefined) return this.end(this.halted)
        const prepared = yield* this.prepare()
        if (prepared instanceof Halt) return this.end(prepared)
        const turn = `${this.setting.agent}/${number}`
        this.emit((agent, at) => ({ _tag: "StepStarted", agent, at, step: number, turn }))
        const said = yield* this.ask(number, prepared)
        if (said instanceof Halt) return this.end(said)
        const outcomes = said.asks ? yield* this.answer(number, turn, said, prepared) : []
        const step: Step = {
          number,
          turn,
          text: said.text,
          finishReason: said.finishReason,
          usage: { input: said.input, output: said.output, total: said.input + said.output },
          calls: said.asks ? said.calls : [],
          outcomes
        }
        if (!said.asks) this.history = Prompt.concat(this.history, Prompt.fromResponseParts(said.parts as Array<any>))
        this.steps.push(step)
        this.emit((agent, at) => ({ _tag: "StepEnded", agent, at, step }))
        const ended = this.endAfter(step)
        if (ended !== undefined) return this.end(ended)
      }
    })
  }

  /** What the caller wants of this step. */
  private prepare(): Effect.Effect<Prepared | Halt, Failure, any> {
    const { options } = this.setting
    const { prepareStep } = options
    return Effect.gen({ self: this }, function*() {
      let asked: Agent.StepOptions<any> = {}
      if (prepareStep !== undefined) {
        const given = prepareStep(this.state())
        const exit = yield* this.attempt(Effect.isEffect(given) ? given : Effect.succeed(given))
        if (Exit.isFailure(exit)) return yield* exit as Exit.Exit<never, Failure>
        if (exit.value instanceof Halt) return exit.value
        asked = exit.value ?? asked
      }
      if (asked.prompt !== undefined) {
        const history = historyOf("the prompt of `prepareStep`", asked.prompt)
        if (history instanceof TurnError.TurnError) return yield* history
        this.history = history
      }
      const toolkit = options.toolkit as AnyToolkit | undefined ?? Toolkit.empty
      const offer = offerOf(toolkit, asked.tools)
      if (typeof offer === "string") {
        const names = Object.keys(toolkit.tools).join(", ")
        return yield* invalid("the tools of `prepareStep`", `names of the toolkit (${names})`, JSON.stringify(offer))
      }
      return {
        offer,
        prompt: withSystem(this.history, asked.system),
        toolChoice: asked.toolChoice ?? options.toolChoice,
        sequential: asked.parallel === false
      }
    })
  }

  private ask(number: number, prepared: Prepared): Effect.Effect<Said | Halt, Failure, any> {
    const { io, meter } = this.setting
    const parts: Array<Part> = []
    const told = (part: Part) => this.emit((agent) => ({ _tag: "PartReceived", agent, step: number, part }))
    return Effect.flatMap(this.attempt(io.ask(prepared, parts, told)), (exit): Exit.Exit<Said | Halt, Failure> => {
      const said = saidOf(parts, io.streamed)
      meter.add(said.input, said.output)
      if (Exit.isSuccess(exit) && !(exit.value instanceof Halt)) return Exit.succeed(said)
      // What failed can be asked again from where it was; a stop keeps what the reader has seen.
      if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) {
        this.history = Prompt.concat(this.history, wholeTexts(parts))
      }
      return exit as Exit.Exit<Halt, Failure>
    })
  }

  /** Runs the calls of a step. The history gets response and answers when the turn closes, whatever happens to this fiber (A1). */
  private answer(number: number, turn: string, said: Said, prepared: Prepared): Effect.Effect<Outcomes, Failure, any> {
    const given: Turn.Options = this.setting.options.turn ?? {}
    const { calls, finishReason, parts } = said
    const { halted, left } = this
    let closed: Outcomes | undefined
    const options: Turn.Options = {
      ...given,
      turn,
      finishReason,
      ...(prepared.sequential ? { execution: "sequential" } : undefined),
      ...(left === Infinity || left <= 0 ? undefined : { deadline: earlier(left, given.deadline) }),
      // A turn whose time is over already is stopped too: its calls are answered, and none of them starts.
      cancelOn: halted === late
        ? Effect.succeed("deadline")
        : Effect.map(Deferred.await(this.halting), ({ why }) => why),
      onEvent: (event) => {
        this.emit((agent) => ({ _tag: "TurnReported", agent, step: number, event }))
        given.onEvent?.(event)
      },
      onClosed: (turn) => {
        closed = turn.outcomes
        this.history = Prompt.concat(this.history, Turn.toPrompt(calls, turn.outcomes, { parts }))
        return given.onClosed?.(turn) ?? Effect.void
      }
    }
    const run = (options: Turn.Options) => Turn.run(prepared.offer.forTurn, calls, options)
    return Effect.flatMap(Effect.exit(this.restore(run(options))), (exit): Effect.Effect<Outcomes, Failure, any> => {
      // Interrupted before the turn had begun: the response has been given all the same, and each call is answered.
      if (Exit.isFailure(exit) && closed === undefined && Cause.hasInterruptsOnly(exit.cause)) {
        return Effect.andThen(run({ ...options, cancelOn: Effect.succeed("interrupted") }), exit)
      }
      return exit
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
    const done = (outcomes as Outcomes).find(({ name, status }) => status === "ok" && terminal.includes(name))
    if (done !== undefined) return { reason: "terminal_tool", tool: done.name, value: (done as any).result }
    const { halted } = this
    if (halted !== undefined) return { ...halted }
    if (stopWhen?.conditions.some((holds) => holds(this.state()))) return { reason: "condition" }
    if (meter.isSpent) return { reason: "tokens" }
    return number >= maxStepsOf(this.setting.options) ? { reason: "steps" } : undefined
  }
}

interface Prepared {
  readonly offer: Offer
  readonly prompt: Prompt.Prompt
  readonly toolChoice: Agent.StepOptions<any>["toolChoice"]
  readonly sequential: boolean
}

const maxStepsOf = (options: AnyOptions): number => options.stopWhen?.steps ?? 20

const earlier = (left: number, given: ToolPolicy.Limit | undefined): number =>
  given === undefined ? left : Math.min(left, ToolPolicy.limitMillis("the turn", "deadline", given))

/** Runs an agent in the context of the current fiber. */
export const runLoop = (options: AnyOptions, io: Io): Effect.Effect<Result, Failure, any> =>
  Effect.withFiber((fiber) => {
    const context = fiber.context as Context.Context<any>
    let deadline: number
    try {
      deadline = options.deadline === undefined
        ? Infinity
        : ToolPolicy.limitMillis("the agent", "deadline", options.deadline)
    } catch (error) {
      return error instanceof TurnError.TurnError ? Effect.fail(error) : Effect.die(error)
    }
    const history = historyOf("the prompt of an agent", options.prompt)
    if (history instanceof TurnError.TurnError) return Effect.fail(history)
    const terminal = (options.stopWhen?.terminal ?? []).find((name: string) =>
      !Object.hasOwn(options.toolkit?.tools ?? {}, name)
    )
    if (terminal !== undefined) {
      return Effect.fail(invalid("`Agent.terminalTool`", "a tool of the agent's toolkit", JSON.stringify(terminal)))
    }
    const clock = Context.get(context, Clock.Clock)
    const agent = options.id ?? randomId(Context.get(context, Random.Random))
    const meter = new Meter(options.stopWhen?.tokens ?? Infinity, Context.get(context, CurrentMeter))
    const setting: Setting = {
      options,
      io,
      agent,
      clock,
      meter,
      deadlineAt: clock.currentTimeMillisUnsafe() + deadline,
      call: Context.get(context, TurnContext.CurrentCall)
    }
    const conversation = Context.get(context, TurnContext.Conversation) ?? agent
    return Effect.uninterruptibleMask((restore) => guarded(new Loop(setting, history, restore))).pipe(
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
      yield* Effect.timeoutOption(Fiber.await(stopping), deafPatience)
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
