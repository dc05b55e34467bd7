/** From the calls of a model to a turn at work: checks, intake, plan, start. */
import type * as Prompt from "effect/ai/Prompt"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Approval from "../../Approval.ts"
import type * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import * as ToolCall from "../../ToolCall.ts"
import type * as TurnContext from "../../TurnContext.ts"
import * as TurnError from "../../TurnError.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type { TurnMiddleware } from "../../TurnMiddleware.ts"
import * as TurnPlan from "../../TurnPlan.ts"
import { type Decide, Deciders, type Given as GivenDecision } from "./approvals.ts"
import { answered, budgetsOf } from "./budget.ts"
import { checkCalls, missingService, refuseRepeated } from "./checks.ts"
import { Intake, keep, type Taken } from "./intake.ts"
import { recall } from "./journal.ts"
import { Middleware } from "./middleware.ts"
import { Online } from "./online.ts"
import { check, type Checked, type Given, invalidInput } from "./options.ts"
import { inTime, patience } from "./patience.ts"
import type { Setting } from "./run.ts"
import type { RuntimeState } from "./runtime.ts"
import { TurnState } from "./state.ts"
import { type Surroundings, surroundingsOf } from "./surroundings.ts"
import { Timers } from "./timers.ts"
import { type AnyToolkit, hasTokenizer, type Runner, tokenizer } from "./tool.ts"

/** What belongs to one turn; the public words stand at `Turn.Options`. */
export interface BeginOptions extends Given {
  readonly turn?: string | undefined
  readonly siblings?: Siblings.Policy<Outcome.Outcome<any>> | Siblings.AllOrNothing<Outcome.Outcome<any>> | undefined
  readonly unit?: ((call: ToolCall.ToolCall, position: number) => string) | undefined
  readonly nameRepair?: boolean | undefined
  readonly finishReason?: ToolCall.FinishReason | undefined
  readonly messages?: ReadonlyArray<Prompt.Message> | undefined
  readonly decide?: Decide | undefined
  /** The turn has one call, of a list that nobody sees. */
  readonly single?: boolean | undefined
  /** What is pending is its last answer: nobody resumes the turn, so nobody is to decide about it any more. */
  readonly reports?: boolean | undefined
  readonly middleware?: ReadonlyArray<TurnMiddleware> | undefined
  readonly cancelOn?: Effect.Effect<string | void> | undefined
  readonly onEvent?: ((event: TurnEvent.TurnEvent) => void) | undefined
  /** The answers become parts of `effect/ai`, where a failure is a little longer. */
  readonly asParts?: boolean | undefined
  /** Told each answer as the model gets it, as soon as that is known; with a budget for the turn that is at its end, and not told here. */
  readonly onAnswer?: ((outcome: Outcome.Outcome<any>) => void) | undefined
  readonly onClosed?:
    | ((closed: {
      readonly calls: ReadonlyArray<ToolCall.ToolCall>
      readonly outcomes: ReadonlyArray<Outcome.Outcome<any>>
    }) => Effect.Effect<void>)
    | undefined
}

/** What a turn that is resumed brings along. */
export interface Earlier {
  readonly kept: ReadonlyArray<Outcome.Outcome<any> | undefined>
  readonly requests: ReadonlyArray<Approval.Request>
  readonly decisions: ReadonlyArray<GivenDecision>
  /** The calls as they are to be run: what was held may have had its arguments exchanged. */
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  /** Calls whose arguments are values, whatever they look like. */
  readonly filled: ReadonlySet<number>
}

/** A turn that has begun, as the public functions drive it. */
export interface Begun {
  readonly setting: Setting
  readonly state: TurnState
  readonly stop: (reason: string | undefined) => void
  readonly whenClosed: (then: (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => void) => void
  readonly closed: Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>>
}

export const beginTurn = (
  runtime: RuntimeState,
  context: Context.Context<never>,
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options: BeginOptions | undefined,
  also: ((event: TurnEvent.TurnEvent) => void) | undefined,
  earlier?: Earlier,
  reports = false
): Begun | TurnError.TurnError => {
  const bad = checkCalls(calls)
  if (bad !== undefined) return bad
  const ready = makeReady(runtime, context, toolkit, calls, options, also, earlier, reports, true)
  if (ready instanceof TurnError.TurnError) return ready
  const { begun, intake, opts, state } = ready
  const asked = earlier?.calls ?? calls
  const again = earlier === undefined ? undefined : goneOn(runtime, state, earlier)
  if (again !== undefined) return again
  const missing = missingFor(asked, toolkit, intake, state.setting.around, options)
  if (missing !== undefined) return missing
  ready.enter()
  if (earlier !== undefined) state.remember(earlier.requests)
  state.step(() => {
    ready.arm()
    if (state.stopped === undefined) takeIn(state, toolkit, intake, opts, asked)
  })
  return begun
}

/** A parked turn is a value: in this process a second copy of it is found out, before anything runs. */
const goneOn = (runtime: RuntimeState, state: TurnState, { kept }: Earlier): TurnError.TurnError | undefined => {
  const { tenant, turn } = state.identity()
  const position = kept.findIndex((outcome, i) => outcome === undefined && runtime.decided.has(tenant, turn, i))
  return position === -1 ? undefined : invalidInput(
    `the parked turn "${turn}"`,
    "one that has not been resumed or given up before",
    `a turn of which call #${position} has been run or given up`
  )
}

/** A turn whose calls come one by one. */
export const openTurn = (
  runtime: RuntimeState,
  context: Context.Context<never>,
  toolkit: AnyToolkit,
  options: BeginOptions | undefined,
  also: ((event: TurnEvent.TurnEvent) => void) | undefined
): { readonly begun: Begun; readonly online: Online } | TurnError.TurnError => {
  const calls: Array<ToolCall.ToolCall> = []
  const ready = makeReady(runtime, context, toolkit, calls, options, also, undefined, false, false)
  if (ready instanceof TurnError.TurnError) return ready
  const { begun, intake, opts, state } = ready
  ready.enter()
  const online = new Online(state, calls, intake, opts, toolkit)
  state.step(() => {
    state.goOnline(online)
    ready.arm()
    // There is no call yet that would set its clocks.
    state.setting.timers.arm()
  })
  return { begun, online }
}

const makeReady = (
  runtime: RuntimeState,
  context: Context.Context<never>,
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options: BeginOptions | undefined,
  also: ((event: TurnEvent.TurnEvent) => void) | undefined,
  earlier: Earlier | undefined,
  reports: boolean,
  complete: boolean
) => {
  const opts = check(options)
  if (opts instanceof TurnError.TurnError) return opts
  const around = surroundingsOf(context)
  // A turn inside a call that is awaited belongs to that call.
  if (runtime.closed && around.parent === undefined) return TurnError.make(new TurnError.ShutDown({}))
  if (opts.repeats !== Infinity && around.conversation === undefined) {
    return invalidInput("the option `amounts.repeats` of the turn", "a TurnContext.Conversation to count in", undefined)
  }
  const budgets = budgetsOf(toolkit, opts.resultBudget, options?.asParts === true)
  if (opts.resultBudget !== undefined && "maxTokens" in opts.resultBudget && !hasTokenizer(context)) {
    return invalidInput("the option `resultBudget` of the turn", `${tokenizer} in the context to count with`, undefined)
  }
  const onAnswer = options?.onAnswer
  const deciders = earlier === undefined && options?.decide === undefined && around.approvals === undefined
    ? nobody
    : new Deciders(earlier?.decisions ?? [], earlier?.requests ?? [], options?.decide, around.approvals)
  const top = around.parent === undefined
  const overloaded = top && runtime.topLevel >= runtime.mostTurns
    ? `as many turns are at work as may be at once (${runtime.mostTurns}): nothing of this one was run`
    : undefined
  const intake = intakeOf(toolkit, earlier?.calls ?? calls, () => state.identity(), opts, options, {
    decided: !deciders.none,
    closed: overloaded,
    filled: earlier?.filled,
    complete
  })
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
    emit: emitter(options?.onEvent, onAnswer === undefined ? also : telling(() => state, onAnswer, also)),
    budgets,
    intake,
    deciders,
    single: options?.single === true,
    reports: reports || options?.reports === true,
    middleware: options?.middleware === undefined || options.middleware.length === 0
      ? undefined
      : new Middleware(options.middleware),
    repeats: opts.repeats,
    conversation: opts.repeats === Infinity ? undefined : JSON.stringify([around.tenant, around.conversation]),
    kept: earlier?.kept
  }
  const state: TurnState = new TurnState(setting)
  const waiting: Array<(outcomes: ReadonlyArray<Outcome.Outcome<any>>) => void> = []
  let result: ReadonlyArray<Outcome.Outcome<any>> | undefined
  const finish = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => {
    result = outcomes
    runtime.turns.delete(state)
    if (top) runtime.topLevel--
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
  const begun: Begun = {
    setting,
    state,
    stop: (reason) => state.stop({ code: "by_caller", reason }),
    whenClosed,
    closed: Effect.callback((resume) => whenClosed((outcomes) => resume(Effect.succeed(outcomes))))
  }
  return {
    begun,
    state,
    intake,
    opts,
    /** From here on the turn counts. */
    enter: () => {
      if (top) runtime.topLevel++
      state.enter()
    },
    /** Sets what stops the whole turn. */
    arm: () => {
      if (options?.cancelOn !== undefined) state.stopWhen(options.cancelOn)
      if (opts.deadline === Infinity) return
      state.deadlineAt = setting.timers.now() + opts.deadline
      setting.timers.setAt(state.deadlineAt, deadlineIsOver, state)
    }
  }
}

const nobody = new Deciders([], [], undefined, undefined)

export const intakeOf = (
  toolkit: AnyToolkit,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  identity: () => TurnContext.Identity,
  opts: Checked,
  options: BeginOptions | undefined,
  known: {
    readonly decided: boolean
    readonly closed: string | undefined
    readonly filled: ReadonlySet<number> | undefined
    readonly complete: boolean
  }
): Intake =>
  new Intake(
    {
      toolkit,
      identity,
      nameRepair: options?.nameRepair === true,
      finishReason: options?.finishReason,
      messages: options?.messages ?? [],
      unit: options?.unit,
      limits: opts.limits,
      decided: known.decided,
      closed: known.closed,
      references: opts.references,
      filled: known.filled
    },
    calls,
    known.complete
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
    const missing = missingService(call, toolkit, intake, around)
    if (missing !== undefined) return missing
  }
  return undefined
}

type Recalled = ReadonlyMap<number, Outcome.Outcome<any>>

/** Intake, then the plan, then the start. Only schemas that take time to decode make this asynchronous. */
const takeIn = (
  state: TurnState,
  toolkit: AnyToolkit,
  intake: Intake,
  opts: Checked,
  calls: ReadonlyArray<ToolCall.ToolCall>
): void => {
  const { around, kept } = state.setting
  const taken: Array<Taken> = []
  let pending: Array<Effect.Effect<void, never, any>> | undefined
  for (let i = 0; i < calls.length; i++) {
    const one = kept?.[i] === undefined ? intake.take(calls[i]!, i) : keep(calls[i]!, i)
    taken.push(one)
    if (one.pending !== undefined) (pending ??= []).push(one.pending)
  }
  const begin = () => {
    if (state.stopped !== undefined) return
    if (opts.repeats !== Infinity) { for (const one of taken) refuseRepeated(state.setting, one) }
    state.start(taken, TurnPlan.make(taken, opts), (one) => around.runner(toolkit, one.tool!) as Runner)
  }
  // A turn whose id was given may have been run before, by a process that is gone.
  const go = around.journal === undefined || state.setting.id === undefined ? begin : () => {
    if (state.stopped !== undefined) return
    state.helper(inTime("the journal", recall(state, taken), patience, state.setting.graceReads), (exit) => {
      const found = Exit.isSuccess(exit) ? Option.getOrUndefined(exit.value as Option.Option<Recalled>) : undefined
      if (found !== undefined && found.size > 0) {
        state.recalled = found
        for (const position of found.keys()) taken[position] = keep(calls[position]!, position)
      }
      begin()
    })
    state.setting.timers.arm()
  }
  if (pending === undefined) return go()
  state.helper(Effect.forEach(pending, (one) => one, { concurrency: "unbounded", discard: true }), go)
  state.setting.timers.arm()
}

/** Tells the answers as the model gets them. */
const telling = (
  state: () => TurnState,
  tell: (outcome: Outcome.Outcome<any>) => void,
  next: ((event: TurnEvent.TurnEvent) => void) | undefined
) =>
(event: TurnEvent.TurnEvent): void => {
  if (event._tag === "CallEnded") answered(state(), state().setting.budgets, event.outcome, tell)
  next?.(event)
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
