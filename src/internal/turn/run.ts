/**
 * One execution of a call, as the state of its turn drives it.
 *
 * - U1: a run goes waiting → starting → running → ended. It goes back to waiting only between two attempts (rule R24): its work has
 *   ended then, its permit is given back, its keys are kept, and whatever ends it there answers for the attempts that were made.
 * - U2: the first reason stands: a run that was stopped is not timed out afterwards, nor the other way round. One that was told to stop
 *   makes no further attempt.
 * - U3: a write without a key is never interrupted once it has started, and never started twice.
 */
import type * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import type * as Backend from "../../Backend.ts"
import type * as Coalescer from "../../Coalescer.ts"
import type * as Handler from "../../Handler.ts"
import type * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import type * as ToolCall from "../../ToolCall.ts"
import type * as TurnContext from "../../TurnContext.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as TurnPlan from "../../TurnPlan.ts"
import * as Answers from "./answers.ts"
import type { Deciders } from "./approvals.ts"
import type { Budgets } from "./budget.ts"
import type { Intake, Taken } from "./intake.ts"
import type { HeldKey, Keys } from "./keys.ts"
import type { Claim } from "./leases.ts"
import type { Middleware } from "./middleware.ts"
import type { Request, Seat } from "./requests.ts"
import { inAll, type Pauses } from "./retry.ts"
import type { RuntimeState } from "./runtime.ts"
import type { TurnState } from "./state.ts"
import type { Surroundings } from "./surroundings.ts"
import type { Timer, Timers } from "./timers.ts"
import type { Runner } from "./tool.ts"
import type { Applied, Undoing } from "./undo.ts"

type AnyOutcome = Outcome.Outcome<any>

/** What a turn is made with. */
export interface Setting {
  readonly runtime: RuntimeState
  readonly around: Surroundings
  readonly timers: Timers
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  /** The turn's id, when the caller gave one. */
  readonly id: string | undefined
  readonly policy: Siblings.Policy<any> | Siblings.AllOrNothing<any>
  /** The turn's own limit; `Infinity` for none. */
  readonly limit: number
  readonly sequential: boolean
  readonly graceReads: number
  readonly graceWrites: number
  readonly emit: ((event: TurnEvent.TurnEvent) => void) | undefined
  /** How much of its answers the model gets; undefined for all of them. */
  readonly budgets: Budgets | undefined
  readonly intake: Intake
  /** Whoever may decide about calls that need approval. */
  readonly deciders: Deciders
  /** It is one of many turns of one call each: requests are shared across them, within the window of the coalescer. */
  readonly single: boolean
  /** What is pending when it closes is not decided any more. */
  readonly reports: boolean
  readonly middleware: Middleware | undefined
  /** How often the same call may be run in its conversation. */
  readonly repeats: number
  /** Where calls are counted that may be repeated only so often. */
  readonly conversation: string | undefined
  /** The answers that a turn which is resumed has already, by position. */
  readonly kept: ReadonlyArray<AnyOutcome | undefined> | undefined
}

export interface Approved {
  readonly digest: string
  readonly note: string | undefined
  /** Milliseconds since it was first asked for. */
  readonly waited: number
}

/** One execution: it answers its own call and those that are the same. */
export class Run extends Siblings.Member<AnyOutcome> implements Backend.Entry, Answers.Asked {
  readonly turn: TurnState
  /** The call as it is to be run: a human or a middleware may have exchanged its arguments. */
  taken: Taken
  readonly runner: Runner
  /** How it shares requests with other calls of its turn. @internal */
  readonly merging: Coalescer.Merging | undefined
  /** Its priority, once that was asked for: it does not change while it stands in line. */
  length: number | undefined = undefined
  node: TurnPlan.Node | undefined = undefined
  /** Positions of identical calls that this run answers too, without those that have left. */
  twins: Array<number> | undefined = undefined
  /** Its own call is still to be answered. */
  asks = true
  state: Backend.EntryState = "idle"
  list: Backend.Waitlist | undefined = undefined
  permit: Backend.Permit | undefined = undefined
  starting = false
  /** Not before the end of the list is known (rule R13). */
  gated = false
  /** A human's approval: for exactly what, with which words, after how long. */
  approved: Approved | undefined = undefined
  /** It is still to be found out whether it needs approval; then it is not ready, whatever else is. */
  undecided = false
  /** Whoever finds that out. */
  asking: Fiber.Fiber<unknown, unknown> | undefined = undefined
  /** It conflicts with an earlier call that is held: it is deferred, unless it is held itself. */
  behindHeld = false
  /** Whether the journal has its start. */
  reserved: "no" | "perhaps" | "yes" = "no"
  /** What stands for it in the journal. */
  entryDigest = ""
  /** What keeps its entry in the journal. */
  entry: Claim | undefined = undefined
  /** Its idempotency key, once it has it. */
  held: HeldKey | undefined = undefined
  /** Its key, while it has taken effect and its unit may still undo it. */
  appliedKey: HeldKey | undefined = undefined
  /** The key that it waits for: another run has it, here. */
  awaited: { readonly keys: Keys; readonly id: string; readonly holder: Run } | undefined = undefined
  /** The steps of middleware before it are done: they have decided with which arguments it is made, whatever it waits for then. */
  prepared = false
  /** Its key has been looked up, since it last waited for it. */
  looked = false
  /** How often another process was found at work with its key. */
  lookedAt = 0
  /** What it asks for in requests that it shares with other calls. */
  seat: Seat | undefined = undefined
  /** Its first steps were done when it asked: they are not done again. */
  hasAsked = false
  /** Requests that it was the last to leave. */
  deserted: ReadonlyArray<Request> | undefined = undefined
  concluding = false
  givenUp = false
  /** It has taken effect, and is answered with its unit, which is all or nothing. */
  applied: Applied | undefined = undefined
  /** It undoes another run. */
  undoing: Undoing | undefined = undefined
  /** What a promise came to after its fiber was interrupted. */
  report: Handler.Report | undefined = undefined
  /** What it is answered instead of being started, where that was found out on the way to its start. */
  refusal: AnyOutcome | undefined = undefined
  stopReason: Siblings.StopReason | undefined = undefined
  expired: Answers.Expired | undefined = undefined
  timer: Timer | undefined = undefined
  idleTimer: Timer | undefined = undefined
  /** When its handler was started; undefined before that, and once its time is known. */
  launchedAt: number | undefined = undefined
  progressAt = 0
  readyAt = 0
  /** When it began to wait, where that is not the start of its turn. */
  since = 0
  /** For whom its waiting is told: it had to wait for keys, for a permit. */
  waitedForKeys = false
  waitedForPermit = false
  /** Turns that run inside this run's handler. */
  nested: Set<TurnState> | undefined = undefined
  /** Told when this run is to stop, whether or not its fiber is interrupted for it. */
  heeding: Set<() => void> | undefined = undefined
  /** How often its handler was started. */
  attempt = 0
  /** What its last attempt came to, while it pauses, or stands in line for the next. */
  failed: AnyOutcome | undefined = undefined
  /** An attempt may have had its effect, and nobody has found out. */
  inDoubt = false
  /** It was told to stop, whatever became of that. */
  told = false
  /** Its policy's schedule, once it was asked for. */
  pauses: Pauses | undefined = undefined

  constructor(
    group: Siblings.Group<AnyOutcome>,
    turn: TurnState,
    taken: Taken,
    runner: Runner
  ) {
    super(group)
    this.turn = turn
    this.taken = taken
    this.runner = runner
    this.merging = turn.setting.single ? undefined : runner.merging
  }

  /** How many results it still waits for, before it can be decoded. */
  missing = 0

  /** The longest way below it. */
  get priority(): number {
    return this.length ??= this.turn.lengthOf(this.position)
  }

  get position(): number {
    return this.taken.position
  }
  get id(): string {
    return this.taken.call.id
  }
  get name(): string {
    return this.taken.name
  }
  get repairedFrom(): string | undefined {
    return this.taken.repairedFrom
  }
  get keyIsOfArguments(): boolean {
    return this.taken.keyIsOfArguments
  }
  get outer(): Backend.Permit | undefined {
    return this.turn.setting.around.held
  }
  get policy() {
    return this.runner.entry.policy
  }
  get insists(): boolean {
    return this.undoing !== undefined
  }
  get grace(): number {
    return this.policy.access === "read" ? this.turn.setting.graceReads : this.turn.setting.graceWrites
  }
  /** Started, and not ended: it may have an effect. */
  get atWork(): boolean {
    return this.phase === "running" && !this.starting
  }

  /** It has an undo that its unit may need: cut half-way, nobody would know what to undo. */
  get canBeUndone(): boolean {
    return this.policy.undo !== undefined && this.group.policy.undoes === true && this.policy.access === "write"
  }

  private get interruptible(): boolean {
    return this.policy.interruptible && !this.canBeUndone
  }

  /** It will not be started, whatever its first steps come to. */
  get isOver(): boolean {
    return this.refusal !== undefined || this.stopReason !== undefined || this.expired !== undefined
  }

  /** Every earlier call that it conflicts with has ended. */
  becomesReady(): void {
    if (this.phase !== "waiting" || this.undecided) return
    this.turn.ready.push(this)
    this.turn.touch()
  }

  /** Whoever had its idempotency key has it no more, or may not have it. */
  looksAgain(): void {
    this.awaited = undefined
    this.looked = false
    this.becomesReady()
  }

  /** Back from the line to waiting for keys: work inside a started call goes first. */
  withdraw(): void {
    if (this.phase !== "waiting") return
    if (this.list !== undefined) this.list.pool.leave(this.list, this)
    if (this.seat !== undefined) this.turn.sharing.withdraw(this)
  }

  granted(permit: Backend.Permit): void {
    // A permit may come from anywhere: another turn's step, or a plain effect that gave it back.
    this.turn.step(() => {
      this.permit = permit
      this.turn.begin(this)
    })
  }

  refused(why: Backend.Refusal): void {
    this.turn.step(() => this.turn.turnedAway(this, why))
  }

  skip(reason: Siblings.StopReason): void {
    this.turn.endUnstarted(this, this.cancelledNow(this, reason))
  }

  /** What a place of it is answered that leaves now. */
  cancelledNow(asked: Answers.Asked, reason: Siblings.StopReason): AnyOutcome {
    if (this.failed !== undefined) return Answers.cancelledBetween(asked, reason, this.failed, this.policy)
    return this.atWork
      ? inAll(this, Answers.cancelled(asked, reason, this.policy))
      : Answers.cancelledBeforeStart(asked, reason)
  }

  stop(reason: Siblings.StopReason): void {
    this.told = true
    if (this.stopReason !== undefined || this.expired !== undefined || this.concluding) return
    this.stopReason = reason
    if (this.starting) this.fiber?.interruptUnsafe()
    else this.interrupt()
  }

  /** Ends the work if that may be done, and bounds the wait for it. */
  interrupt(): void {
    if (this.interruptible) this.fiber?.interruptUnsafe()
    if (this.heeding !== undefined) { for (const heed of this.heeding) this.turn.setting.runtime.later(heed) }
    if (this.phase !== "running" || this.concluding) return
    if (this.timer !== undefined) this.timer.off = true
    if (this.idleTimer !== undefined) this.idleTimer.off = true
    this.timer = this.turn.setting.timers.set(this.grace, graceIsOver, this as Run)
    this.turn.touch()
  }

  /** A clock of its own has run out. */
  expire(clock: "timeout" | "idleTimeout", millis: number): void {
    this.expired = { clock, millis }
    if (!this.interruptible) {
      this.turn.event((base): TurnEvent.CallOverdue => ({ ...base(this), _tag: "CallOverdue", clock }))
    }
    this.interrupt()
  }

  started(): void {
    // Told to stop by its own first steps, before there was a fiber to interrupt.
    if (this.stopReason !== undefined || this.expired !== undefined) this.interrupt()
  }

  settle(exit: Exit.Exit<unknown, unknown>): void {
    this.turn.ended(this, exit)
  }
}

/** What a handler sees of its call, and how a turn inside it finds its surroundings. */
export class CallView implements TurnContext.CallContext {
  readonly attempt: number
  /** @internal */
  readonly run: Run
  constructor(run: Run) {
    this.run = run
    this.attempt = Math.max(1, run.attempt)
  }
  get identity() {
    return this.run.turn.identity()
  }
  get position() {
    return this.run.position
  }
  get id() {
    return this.run.id
  }
  get tool() {
    return this.run.name
  }
  get idempotencyKey() {
    return this.run.taken.idempotencyKey
  }
  get approvalNote() {
    return this.run.approved?.note
  }
  /** @internal */
  onStop(heed: () => void): () => void {
    const { run } = this
    if (run.stopReason !== undefined || run.expired !== undefined) heed()
    const heeding = run.heeding ??= new Set()
    heeding.add(heed)
    return () => heeding.delete(heed)
  }
}

const graceIsOver = (run: Run): void => run.turn.step(() => run.turn.giveUp(run))
