/**
 * Units that are all or nothing (rule R25): what has taken effect is answered when its unit is decided, and undone first where that
 * failed or was stopped.
 *
 * - N1: a unit is decided when the last of its runs has ended: it stands when nobody has stopped it, and a failure stops it.
 * - N2: the places of all undos are taken when that is decided, in the reverse order of the ends; they are run in that order, one after the other.
 * - N3: an undo is run once, as a write without a key: nothing interrupts it, and beyond its clock and the grace of writes it goes to the
 *   supervisor.
 * - N4: before an undo begins, the idempotency store and the journal are told that nobody knows whether the call stands; whoever has the same
 *   key waits, in every process, for as long as the owner of the key is there. What the undo came to is written down before the call has its
 *   answer.
 * - N5: what had not ended when it was given up on is none of the unit any more: its answer says that its effect is unknown.
 */
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import type * as ToolPolicy from "../../ToolPolicy.ts"
import * as Answers from "./answers.ts"
import { causeText, Taken } from "./intake.ts"
import * as Journal from "./journal.ts"
import * as Keys from "./keys.ts"
import { Run } from "./run.ts"
import type { TurnState } from "./state.ts"
import type { Runner, ToolEntry } from "./tool.ts"

type AnyOutcome = Outcome.Outcome<any>

/** What has taken effect and can be undone: the tool's own result, and what the call is answered if it stands. */
export interface Applied {
  readonly result: unknown
  outcome: AnyOutcome | undefined
}

/** Runs that stand or fall together. */
export class Unit extends Siblings.Group<AnyOutcome> {
  private readonly turn: TurnState
  /** What has taken effect, in the order of its ends. */
  private applied: Array<Run> = []

  constructor(policy: Siblings.AllOrNothing<any>, turn: TurnState) {
    super(policy)
    this.turn = turn
  }

  /** A run that has taken effect waits for its answer. */
  keep(run: Run): void {
    this.applied.push(run)
  }

  override ended(member: Siblings.Member<AnyOutcome>, verdict: Siblings.Verdict<AnyOutcome>): void {
    super.ended(member, verdict)
    // Also when it is the last: what comes to the unit after it is not started, and what has ended does not stand.
    if (verdict._tag === "failure") this.stop({ code: "by_sibling" })
    if (this.open > 0 || this.applied.length === 0) return
    const { applied, stopped, turn } = this
    this.applied = []
    if (stopped === undefined) { for (const run of applied) turn.answerApplied(run, run.applied!.outcome!) }
    else undoAll(turn, applied.toReversed(), stopped)
  }
}

/** The undo of one run. */
export class Undoing {
  readonly of: Run
  private readonly why: Siblings.StopReason
  private readonly next: () => void
  private cause: Cause.Cause<unknown> | undefined = undefined

  constructor(of: Run, why: Siblings.StopReason, next: () => void) {
    this.of = of
    this.why = why
    this.next = next
  }

  /** Writes down that it begins. */
  get begins(): Effect.Effect<void> | undefined {
    const { of, why } = this
    const open = Answers.notUndone(of.applied!.outcome!, why, "it was begun, and how it ended is not known")
    return both(Keys.undoing(of, open.message), Journal.amend(of, open))
  }

  /** Writes down what it came to. */
  recorded(answer: AnyOutcome): Effect.Effect<void> | undefined {
    return both(Keys.undone(this.of, answer), Journal.amend(this.of, answer))
  }

  /** What its work failed with. */
  failed(cause: Cause.Cause<unknown>): void {
    this.cause = cause
  }

  /** What the call is answered, given what its undo came to. */
  answer(outcome: AnyOutcome): AnyOutcome {
    const { of, why } = this
    const { policy } = of
    const applied = of.applied!.outcome!
    if (outcome.status === "ok") return Answers.undone(of, applied, why, policy)
    const problem = this.cause !== undefined
      ? causeText(this.cause)
      : outcome.status === "timeout"
      ? `it is still at work, beyond its limit of ${outcome.limit.millis} ms`
      : outcome.message
    return Answers.notUndone(applied, why, problem)
  }

  /** It is over, or was given up on: the call has its answer, and the next undo may begin. */
  ended(): void {
    this.next()
  }
}

const both = (a: Effect.Effect<void> | undefined, b: Effect.Effect<void> | undefined) =>
  a === undefined ? b : b === undefined ? a : Effect.andThen(a, b)

/** The undo of a tool, as a tool that writes and has no key: its failures are none of the tool's own. */
const entryOf = (entry: ToolEntry): ToolEntry => {
  const policy: ToolPolicy.ToolPolicy = {
    ...entry.policy,
    access: "write",
    // It waits as long as it has to: what is given up on stands.
    waitTimeout: Infinity,
    idleTimeout: Infinity,
    idempotency: undefined,
    retry: undefined,
    undo: undefined,
    failures: {},
    interruptible: false
  }
  return {
    ...entry,
    policy,
    encode: () => Exit.succeed(null),
    encodeFailure: () => Exit.die("the failure of an undo has no schema")
  }
}

/** A run that undoes another one. */
const undoOf = (turn: TurnState, of: Run, undoing: Undoing): Run => {
  const { applied, policy, runner, taken } = of
  const { idempotencyKey, keys, params } = taken
  const entry = entryOf(runner.entry)
  const own = new Taken(taken.call, taken.position)
  own.name = taken.name
  own.tool = entry
  own.keys = keys
  const undo: Runner = {
    entry,
    context: runner.context,
    invoke: () => Effect.suspend(() => policy.undo!(params, { result: applied!.result, idempotencyKey })),
    handled: false,
    merging: undefined
  }
  const run = new Run(new Siblings.Group(Siblings.letFinish), turn, own, undo)
  run.asks = false
  run.undoing = undoing
  run.undecided = true
  return run
}

const undoAll = (turn: TurnState, applied: ReadonlyArray<Run>, why: Siblings.StopReason): void => {
  const undos: Array<Run> = []
  let at = 0
  const next = () => {
    const run = undos[at++]
    if (run === undefined) return
    run.undecided = false
    turn.isFree(run)
  }
  for (const run of applied) undos.push(undoOf(turn, run, new Undoing(run, why, next)))
  for (const undo of undos) turn.addUndo(undo)
  next()
}
