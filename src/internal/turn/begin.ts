/** From the calls of a model to a turn at work: checks, intake, plan, start. */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import * as ToolCall from "../../ToolCall.ts"
import * as TurnError from "../../TurnError.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import * as TurnPlan from "../../TurnPlan.ts"
import { Intake, type Taken } from "./intake.ts"
import { check, type Checked, type Given, invalidInput } from "./options.ts"
import type { Setting } from "./run.ts"
import type { RuntimeState } from "./runtime.ts"
import { TurnState } from "./state.ts"
import { type Surroundings, surroundingsOf } from "./surroundings.ts"
import { Timers } from "./timers.ts"
import type { AnyToolkit, Runner } from "./tool.ts"

/** What belongs to one turn; the public words stand at `Turn.Options`. */
export interface BeginOptions extends Given {
  readonly turn?: string | undefined
  readonly siblings?: Siblings.Policy<Outcome.Outcome<any>> | undefined
  readonly unit?: ((call: ToolCall.ToolCall, position: number) => string) | undefined
  readonly nameRepair?: boolean | undefined
  readonly finishReason?: ToolCall.FinishReason | undefined
  readonly cancelOn?: Effect.Effect<string | void> | undefined
  readonly onEvent?: ((event: TurnEvent.TurnEvent) => void) | undefined
  readonly onClosed?:
    | ((closed: {
      readonly calls: ReadonlyArray<ToolCall.ToolCall>
      readonly outcomes: ReadonlyArray<Outcome.Outcome<any>>
    }) => Effect.Effect<void>)
    | undefined
}

/** A turn that has begun, as the public functions drive it. */
export interface Begun {
  readonly setting: Setting
  readonly state: TurnState
  readonly stop: (reason: string | undefined) => void
  readonly whenClosed: (then: (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => void) => void
  readonly closed: Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>>
}

export const checkCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): TurnError.TurnError | undefined => {
  if (!Array.isArray(calls)) return invalidInput("the calls of a turn", "a list of tool calls", calls)
  for (let i = 0; i < calls.length; i++) {
    const call = calls[i] as Partial<ToolCall.ToolCall> | null | undefined
    if (typeof call !== "object" || call === null || typeof call.name !== "string" || typeof call.id !== "string") {
      return invalidInput(`call #${i} of the turn`, "an object with a text `id` and a text `name`", call)
    }
  }
  return undefined
}

export const beginTurn = (
  runtime: RuntimeState,
  context: Context.Context<never>,
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options: BeginOptions | undefined,
  also: ((event: TurnEvent.TurnEvent) => void) | undefined
): Begun | TurnError.TurnError => {
  const bad = checkCalls(calls)
  if (bad !== undefined) return bad
  const opts = check(options)
  if (opts instanceof TurnError.TurnError) return opts
  const around = surroundingsOf(context)
  // A turn inside a call that is awaited belongs to that call.
  if (runtime.closed && around.parent === undefined) return TurnError.make(new TurnError.ShutDown({}))
  const intake = intakeOf(toolkit, calls, () => state.identity().turn, opts, options)
  const missing = missingFor(calls, toolkit, intake, around, options)
  if (missing !== undefined) return missing
  const setting: Setting = {
    runtime,
    around,
    timers: new Timers(around.clock, context, around.sleepers),
    calls,
    id: options?.turn,
    policy: options?.siblings ?? Siblings.letFinish,
    limit: opts.limit,
    sequential: opts.execution === "sequential",
    graceReads: opts.graceReads,
    graceWrites: opts.graceWrites,
    emit: emitter(options?.onEvent, also)
  }
  const state: TurnState = new TurnState(setting)
  const waiting: Array<(outcomes: ReadonlyArray<Outcome.Outcome<any>>) => void> = []
  let result: ReadonlyArray<Outcome.Outcome<any>> | undefined
  const finish = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => {
    result = outcomes
    runtime.turns.delete(state)
    runtime.quiet()
    for (const then of waiting) then(outcomes)
  }
  state.onClosed = (outcomes) => {
    if (options?.onClosed === undefined) return finish(outcomes)
    const tell = options.onClosed
    const told = Effect.runForkWith(context)(
      Effect.suspend(() => tell({ calls, outcomes })).pipe(
        Effect.catchCause((cause) => Effect.logError("onClosed of a turn broke", cause)),
        Effect.uninterruptible
      )
    )
    told.addObserver(() => finish(outcomes))
  }
  const whenClosed: Begun["whenClosed"] = (then) => {
    if (result !== undefined) then(result)
    else waiting.push(then)
  }
  state.step(() => {
    if (options?.cancelOn !== undefined) state.stopWhen(options.cancelOn)
    if (opts.deadline !== Infinity) setting.timers.set(opts.deadline, deadlineIsOver, state)
    if (state.stopped === undefined) takeIn(state, toolkit, intake, opts)
  })
  return {
    setting,
    state,
    stop: (reason) => state.stop({ code: "by_caller", reason }),
    whenClosed,
    closed: Effect.callback((resume) => whenClosed((outcomes) => resume(Effect.succeed(outcomes))))
  }
}

export const intakeOf = (
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  turn: () => string,
  opts: Checked,
  options: BeginOptions | undefined
): Intake =>
  new Intake(
    {
      toolkit,
      turn,
      nameRepair: options?.nameRepair === true,
      finishReason: options?.finishReason,
      unit: options?.unit,
      limits: opts.limits
    },
    calls
  )

const deadlineIsOver = (state: TurnState): void => state.stop({ code: "by_deadline" })

/** A handler or a backend that is not in the context: misuse, and found before anything runs. */
const missingFor = (
  calls: ReadonlyArray<ToolCall.ToolCall>,
  toolkit: AnyToolkit,
  intake: Intake,
  around: Surroundings,
  options: BeginOptions | undefined
): TurnError.TurnError | undefined => {
  if (ToolCall.isCutShort(options?.finishReason)) return undefined
  let last: string | undefined
  for (const call of calls) {
    // Calls of one tool often stand side by side.
    if (call.providerExecuted === true || call.name === last) continue
    last = call.name
    const tool = intake.toolOf(call.name)
    if (tool === undefined) continue
    const runner = around.runner(toolkit, tool)
    if ("missing" in runner) {
      return TurnError.make(new TurnError.MissingService({ tool: tool.name, service: runner.missing }))
    }
  }
  return undefined
}

/** Intake, then the plan, then the start. Only schemas that take time to decode make this asynchronous. */
const takeIn = (state: TurnState, toolkit: AnyToolkit, intake: Intake, opts: Checked): void => {
  const { around, calls } = state.setting
  const taken: Array<Taken> = []
  let pending: Array<Effect.Effect<void, never, any>> | undefined
  for (let i = 0; i < calls.length; i++) {
    const one = intake.take(calls[i]!, i)
    taken.push(one)
    if (one.pending !== undefined) (pending ??= []).push(one.pending)
  }
  const go = () => {
    if (state.stopped !== undefined) return
    state.start(taken, TurnPlan.make(taken, opts), (one) => around.runner(toolkit, one.tool!) as Runner)
  }
  if (pending === undefined) return go()
  state.helper(Effect.forEach(pending, (one) => one, { concurrency: "unbounded", discard: true }), go)
  state.setting.timers.arm()
}

const emitter = (
  first: ((event: TurnEvent.TurnEvent) => void) | undefined,
  second: ((event: TurnEvent.TurnEvent) => void) | undefined
): ((event: TurnEvent.TurnEvent) => void) | undefined => {
  if (first === undefined && second === undefined) return undefined
  return (event) => {
    try {
      first?.(event)
    } catch {
      // Whoever listens cannot hurt the turn.
    }
    second?.(event)
  }
}
