/**
 * From a run that is ready to one that is at work (rules R21, R23): its idempotency key, the steps before it, the journal.
 *
 * - A1: each step may take time, and a stop or a clock that comes meanwhile leaves the call unstarted; what was reserved for it is freed.
 * - A2: a run that has to wait for somebody else's key gives its permit back first.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Approval from "../../Approval.ts"
import type * as Outcome from "../../Outcome.ts"
import * as TurnPlan from "../../TurnPlan.ts"
import * as Answers from "./answers.ts"
import { digestOf, type Verdict as Decided } from "./approvals.ts"
import { repeatedTooOften } from "./checks.ts"
import { causeText, type Taken } from "./intake.ts"
import * as Journal from "./journal.ts"
import * as Keys from "./keys.ts"
import type { Ready } from "./middleware.ts"
import { leavableStep } from "./patience.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"

const looksAgain = (run: Run): void => run.turn.step(() => run.looksAgain())

/** What a run is answered that was refused, was stopped, or ran out of time, before its start. */
const unstarted = (run: Run): Outcome.Outcome<any> =>
  run.refusal ?? (run.stopReason !== undefined
    ? Answers.cancelledBeforeStart(run, run.stopReason)
    : Answers.timedOut(run, run.expired!, run.policy))

export class Starts {
  private readonly turn: TurnState

  constructor(turn: TurnState) {
    this.turn = turn
  }

  /** Whether a run may go on to its permit, and then to its key. What has its answer already, or has to wait, needs no permit. */
  mayHaveKey(run: Run, limited: boolean): boolean {
    if (run.held !== undefined) return true
    const other = Keys.holderOf(run)
    if (other !== undefined) {
      this.awaitKey(run, other)
      return false
    }
    // What stands before the start may change the arguments, and with them the key.
    if (run.looked || !limited || !this.isPrepared(run)) return true
    this.turn.running++
    this.before(run, Keys.look(run), (found: Keys.Found) => {
      if (found._tag === "answer") return this.turn.conclude(run, found.outcome)
      this.turn.waitAgain(run)
      if (found._tag === "wait") return this.lookLater(run)
      run.looked = true
      run.becomesReady()
    })
    return false
  }

  private isPrepared(run: Run): boolean {
    return run.prepared || this.turn.setting.middleware?.hasBefore !== true
  }

  /** Another run of this process has the key: its end is waited for, without a permit. */
  private awaitKey(run: Run, other: NonNullable<ReturnType<typeof Keys.holderOf>>): void {
    if (this.turn.isAncestor(other.holder)) {
      const message = "the call that it is part of has the same idempotency key, and waits for it"
      return this.turn.conclude(run, Answers.refused(run, "deadlock", message))
    }
    if (other.holder.appliedKey !== undefined && other.holder.group === run.group) {
      return this.sharesKey(run, other.holder)
    }
    run.awaited = other
    other.keys.wait(other.id, run)
    this.tellKeyAwaited(run)
  }

  /** Its unit waits for it, so it cannot wait for its unit: the same write has the same answer, another one has no right to the key. */
  private sharesKey(run: Run, holder: Run): void {
    if (Keys.isSameWrite(run, holder)) return this.turn.joinRun(run, holder)
    this.turn.conclude(run, Answers.keyReused(run, "stands for a call with other arguments"))
  }

  /** Another process has the key: it is looked at again after a pause. */
  private lookLater(run: Run): void {
    const pause = Math.min(1_000, 50 * 2 ** run.lookedAt++)
    this.turn.setting.timers.set(pause, looksAgain, run)
    this.tellKeyAwaited(run)
    this.turn.touch()
  }

  private tellKeyAwaited(run: Run): void {
    if (run.waitedForKeys) return
    run.waitedForKeys = true
    this.turn.event((base) => ({
      ...base(run),
      _tag: "CallQueued",
      for: "keys",
      backend: run.runner.entry.backendName
    }))
  }

  /** Keys and permit are there: the call is started, in one step (rule R21). */
  begin(run: Run): void {
    if (run.phase !== "waiting") return this.turn.release(run)
    if (run.failed !== undefined) return this.turn.beginAgain(run, run.failed)
    if (run.undoing !== undefined) {
      this.turn.running++
      const { begins } = run.undoing
      const work = () => this.turn.work(run, this.turn.setting.timers.now(), undefined)
      return begins === undefined ? work() : this.before(run, begins, work)
    }
    if (run.hasAsked) {
      this.turn.running++
      return this.turn.launch(run)
    }
    const repeated = repeatedTooOften(this.turn.setting, run.taken)
    if (repeated !== undefined) return this.turn.conclude(run, Answers.refused(run, "over_limit", repeated))
    this.turn.running++
    if (run.merging !== undefined) this.turn.sharing.expect(run)
    if (this.isPrepared(run)) return this.reserve(run)
    const { intake, middleware } = this.turn.setting
    this.before(run, middleware!.before(run, intake), (ready: Ready) => {
      switch (ready._tag) {
        case "ready":
          run.taken = ready.taken
          run.prepared = true
          return this.reserve(run)
        case "refused":
          return this.turn.conclude(run, ready.outcome)
        case "ask":
          return this.askAgain(run, ready.taken)
      }
    })
  }

  /** Does something that belongs to the start of a call. A stop or a clock that comes meanwhile leaves the call unstarted. */
  private before<A>(
    run: Run,
    step: Effect.Effect<A, never, any>,
    then: (value: A) => void,
    stopped?: () => void
  ): void {
    run.phase = "running"
    run.starting = true
    let over = false
    const fiber = this.turn.helper(Effect.provide(step, this.turn.contextOf(run)), (exit) => {
      over = true
      run.starting = false
      run.fiber = undefined
      if (run.isOver) {
        this.turn.conclude(run, unstarted(run))
        return stopped?.()
      }
      if (Exit.isFailure(exit)) {
        return this.turn.conclude(run, Answers.brokenBefore(run, `a step before it broke: ${causeText(exit.cause)}`))
      }
      then(exit.value as A)
    })
    // A step that is over already may have begun the next one, which has a fiber of its own.
    if (!over) run.fiber = fiber
  }

  /** A middleware has exchanged the arguments: what was approved is not what would run (rule R10). */
  private askAgain(run: Run, taken: Taken): void {
    const { deciders, intake } = this.turn.setting
    const hold = (taken: Taken, request: Approval.Request | undefined) => {
      run.taken = taken
      run.phase = "waiting"
      this.turn.running--
      this.turn.hold(run, request)
    }
    if (deciders.none) return hold(taken, undefined)
    let noted: Approval.Request | undefined
    const asking = deciders.ask(taken, this.turn.identity(), intake, (request) => {
      noted = request
    })
    const patient = leavableStep("an approval question", asking, this.turn.setting.graceReads)
    this.before(run, patient, (verdict: Decided) => {
      switch (verdict._tag) {
        case "held":
          return hold(verdict.taken, verdict.request)
        case "denied":
          return this.turn.conclude(run, Answers.denied(run, verdict.reason))
        case "answered":
          return this.turn.conclude(run, Answers.answeredByHuman(run, verdict.result, verdict.encoded))
        case "run":
          if (!TurnPlan.covers(run.taken.keys, verdict.taken.keys)) {
            return this.turn.conclude(
              run,
              Answers.vetoed(run, "the edited arguments touch what the call does not hold: call again with them", true)
            )
          }
          run.approved = { digest: digestOf(verdict.taken), note: verdict.note, waited: verdict.waited }
          run.taken = verdict.taken
          run.prepared = true
          return this.reserve(run)
      }
    }, () => this.turn.tooLate(noted))
  }

  /** The key is reserved, and the start is written down, where there is a store and a journal. */
  private reserve(run: Run): void {
    if (!Keys.isGuarded(run)) return this.enterJournal(run)
    const other = Keys.holderOf(run)
    if (other !== undefined) {
      this.turn.waitAgain(run)
      return this.awaitKey(run, other)
    }
    const held = run.held = Keys.take(run)
    this.before(run, Keys.reserve(run, held), (found: Keys.Found) => {
      switch (found._tag) {
        case "go":
          Keys.keep(run, held)
          return this.enterJournal(run)
        case "answer":
          return this.turn.conclude(run, found.outcome)
        case "wait":
          run.held = undefined
          held.keys.release(held.id, run)
          this.turn.waitAgain(run)
          return this.lookLater(run)
      }
    })
  }

  /** The start is written down, where there is a journal. */
  private enterJournal(run: Run): void {
    if (this.turn.setting.around.journal === undefined) return this.turn.launch(run)
    this.before(run, Journal.enter(run), (entered: Journal.Entered) => {
      switch (entered._tag) {
        case "go":
          Journal.keep(run)
          return this.turn.launch(run)
        case "answer":
          return this.turn.conclude(run, entered.outcome)
        case "wait":
          // What was reserved for it is given back first, so that it can be reserved again.
          run.starting = true
          return Keys.settle(
            run,
            Answers.refused(run, "store_unavailable", ""),
            (effect, done) => this.turn.helper(effect, done),
            () => {
              run.starting = false
              if (run.isOver) return this.turn.conclude(run, unstarted(run))
              this.turn.waitAgain(run)
              this.lookLater(run)
            }
          )
      }
    })
  }
}
