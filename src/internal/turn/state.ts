/**
 * One turn at work. Its state changes in the steps of the runtime (P1), each of which is synchronous.
 *
 * - T1: a slot is filled once; whoever comes later finds it filled. The turn closes when no slot is open.
 * - T2: keys first, then the turn's own limit and the permit together, then the start.
 * - T3: a permit and keys are given back when the work has really ended, never when the answer is given. Between two attempts the
 *   work has ended, and the keys are kept all the same.
 * - T4: no fiber of the turn runs when it has closed, but for those of runs that the supervisor has taken over.
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Approval from "../../Approval.ts"
import * as Backend from "../../Backend.ts"
import * as Coalescer from "../../Coalescer.ts"
import * as Handler from "../../Handler.ts"
import * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import type * as ToolDurations from "../../ToolDurations.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import * as TurnPlan from "../../TurnPlan.ts"
import * as Answers from "./answers.ts"
import { digestOf, type Verdict as Decided } from "./approvals.ts"
import { fitted } from "./budget.ts"
import { progressing } from "./deadlock.ts"
import { causeText, type Taken } from "./intake.ts"
import * as Journal from "./journal.ts"
import * as Keys from "./keys.ts"
import { type InLine, Lines } from "./lines.ts"
import type { Middleware } from "./middleware.ts"
import { Needs } from "./needs.ts"
import type { Online } from "./online.ts"
import { Paths } from "./paths.ts"
import { inTime, patience } from "./patience.ts"
import { type Request, Requests } from "./requests.ts"
import { inAll, lastMoment, mayTryAgain, pauseOf, questionOf } from "./retry.ts"
import { CallView, Run, type Setting } from "./run.ts"
import { Starts } from "./starts.ts"
import type { Handled, Runner } from "./tool.ts"
import { type Undoing, Unit } from "./undo.ts"

type AnyOutcome = Outcome.Outcome<any>

const timeIsOver = (run: Run): void => run.turn.step(() => run.expire("timeout", run.policy.timeout))
const waitIsOver = (run: Run): void =>
  run.turn.step(() => {
    const { policy } = run
    const limit = { clock: "waitTimeout", millis: policy.waitTimeout } as const
    if (run.phase === "waiting") run.turn.notStarted(run, () => Answers.timedOut(run, limit, policy))
    else if (run.starting && run.stopReason === undefined) {
      run.expired = limit
      run.fiber?.interruptUnsafe()
    }
  })
const helpersAreLate = (turn: TurnState): void => turn.step(() => turn.closeWithoutHelpers())
const silenceIsOver = (run: Run): void => run.turn.step(() => run.turn.silent(run))
const pauseIsOver = (run: Run): void => run.turn.step(() => run.turn.standsInLineAgain(run))

/** What only some turns have, made when it is first needed. */
class Rare {
  /** Calls that wait for approval, and calls that are the same as one of those. */
  readonly held: Array<Taken> = []
  readonly heldTwins: Array<{ readonly taken: Taken; readonly of: number }> = []
  /** Calls that another run answers. */
  readonly twins = new Map<number, Taken>()
  readonly groups = new Map<string, Siblings.Group<AnyOutcome>>()
  /** Fibers of the turn's own that have to end before it has closed. */
  readonly helpers = new Set<Fiber.Fiber<unknown, unknown>>()
  /** Those that end only when they are told to. */
  readonly endless = new Set<Fiber.Fiber<unknown, unknown>>()
  /** Calls that were stopped one by one while the turn was still being taken in. */
  readonly early = new Map<number, Siblings.StopReason>()
  /** What was asked of a human, by position. */
  readonly requests = new Map<number, Approval.Request>()
  /** Questions for approval that wait for the turn's own limit. */
  readonly questions: Array<() => void> = []
}

export class TurnState implements TurnPlan.Nested {
  readonly setting: Setting
  readonly slots: Array<AnyOutcome | undefined>
  readonly runs: Array<Run> = []
  ready: Array<Run> = []
  /** Where calls wait for permits and for the turn's own limit; undefined where nothing does. */
  private lines: Lines | undefined
  private paths: Paths | undefined = undefined
  readonly ancestors: ReadonlySet<Run> | undefined
  private readonly bySlot: Array<Run | undefined>
  private readonly group: Siblings.Group<AnyOutcome>
  private readonly starts = new Starts(this)
  private shared: Requests | undefined = undefined
  private rare: Rare | undefined = undefined
  private known: TurnContext.Identity | undefined = undefined
  open: number
  /** Runs that have been started, or are being started, and have no answer yet. */
  running = 0
  private startedAt = 0
  stopped: Siblings.StopReason | undefined = undefined
  /** When its deadline is, on the clock of its timers. */
  deadlineAt = Infinity
  touched = false
  closed = false
  /** Where some calls need the results of others. */
  needs: Needs | undefined = undefined
  private places = 0
  private planned = false
  private waitsTimed = false
  private waitsForHelpers = false
  private outOfPatience = false
  private fibers = 0
  /** Questions for approval that are being asked. */
  questioning = 0
  /** Where the calls come one by one. */
  online: Online | undefined = undefined
  /** What the journal knows of calls of this turn that are not run any more. */
  recalled: ReadonlyMap<number, AnyOutcome> | undefined = undefined
  onClosed: ((outcomes: ReadonlyArray<AnyOutcome>) => void) | undefined = undefined

  constructor(setting: Setting) {
    this.setting = setting
    const n = setting.calls.length
    this.slots = new Array(n)
    this.bySlot = new Array(n)
    this.open = n
    this.group = this.newGroup()
    const { held, parent, tenant } = setting.around
    this.lines = setting.limit === Infinity ? undefined : new Lines(tenant, held, setting.limit)
    if (parent === undefined) this.ancestors = undefined
    else {
      const ancestors = new Set<Run>()
      for (let run: Run | undefined = parent; run !== undefined; run = run.turn.setting.around.parent) {
        ancestors.add(run)
      }
      this.ancestors = ancestors
    }
  }

  /** From here on the turn is one of those at work. */
  enter(): void {
    const { around, runtime } = this.setting
    if (around.parent !== undefined) (around.parent.nested ??= new Set()).add(this)
    runtime.turns.add(this)
  }

  identity(): TurnContext.Identity {
    return this.known ??= this.setting.around.identity(this.setting.id)
  }

  /** What its calls ask for together. */
  get sharing(): Requests {
    return this.shared ??= new Requests(this)
  }

  private get some(): Rare {
    return this.rare ??= new Rare()
  }

  isAncestor(owner: object): boolean {
    return this.ancestors?.has(owner as Run) ?? false
  }
  goesFirst(owner: object): boolean {
    const run = owner as Run
    if (run.phase === "running" || run.attempt > 0 || run.givenUp || run.turn === this) return true
    // What has not started yields to work inside what has: calls of the turns around this one, and of other top-level turns.
    // Between nested turns of different calls the earlier place goes first.
    if (run.turn.ancestors === undefined) return false
    for (const ancestor of this.ancestors!) if (ancestor.turn === run.turn) return false
    return true
  }
  withdraw(node: TurnPlan.Node): void {
    const run = node.owner as Run
    // It may have another place by now, which is not in the way.
    if (run.node === node) run.withdraw()
  }

  step(f: () => void): void {
    const { runtime, timers } = this.setting
    runtime.enter()
    try {
      timers.tick()
      f()
    } finally {
      runtime.leave()
    }
  }

  touch(): void {
    this.setting.runtime.touch(this)
  }

  event(make: (base: (run: Answers.Asked) => TurnEvent.OfCall) => TurnEvent.TurnEvent): void {
    if (this.setting.emit !== undefined) this.emit(make((run) => this.ofCall(run)))
  }
  private ofCall(run: Answers.Asked): TurnEvent.OfCall {
    return {
      at: this.setting.around.clock.currentTimeMillisUnsafe(),
      turn: this.identity().turn,
      position: run.position,
      id: run.id,
      tool: run.name
    }
  }
  /** Tells an event, once the step is done. */
  private emit(event: TurnEvent.TurnEvent): void {
    const { emit, runtime } = this.setting
    if (emit !== undefined) runtime.later(() => emit(event))
  }
  private base(): TurnEvent.Base {
    return { at: this.setting.around.clock.currentTimeMillisUnsafe(), turn: this.identity().turn }
  }

  /** Runs a fiber of the turn's own; the turn does not close before it has ended. */
  helper(
    effect: Effect.Effect<unknown, unknown, any>,
    then: (exit: Exit.Exit<unknown, unknown>) => void
  ): Fiber.Fiber<unknown, unknown> {
    this.fibers++
    const fiber = Effect.runForkWith(this.setting.around.context)(effect as Effect.Effect<unknown, unknown>)
    this.some.helpers.add(fiber)
    fiber.addObserver((exit) =>
      this.step(() => {
        this.fibers--
        this.some.helpers.delete(fiber)
        then(exit)
        this.touch()
      })
    )
    return fiber
  }

  /** The calls will come one by one. */
  goOnline(online: Online): void {
    this.planned = true
    this.online = online
    this.beginEvents(0)
  }

  private beginEvents(calls: number): void {
    if (this.setting.emit === undefined) return
    const { conversation, tenant } = this.identity()
    this.emit({
      ...this.base(),
      _tag: "TurnStarted",
      calls,
      ...(conversation === undefined ? undefined : { tenant, conversation })
    })
    this.startedAt = this.setting.timers.now()
  }

  /** One more call of a turn whose calls come one by one. */
  addSlot(): void {
    this.slots.push(undefined)
    this.bySlot.push(undefined)
    this.open++
  }

  runOf(position: number): Run | undefined {
    return this.bySlot[position]
  }

  /** Why a call that was stopped before it was taken in is not run. */
  earlyStop(position: number): Siblings.StopReason | undefined {
    return this.stopped ?? this.rare?.early.get(position)
  }

  /** Refuses a call that has not begun. */
  refuse(position: number, code: Outcome.ErrorCode, message: string): void {
    const run = this.bySlot[position]
    if (run === undefined) {
      const held = this.slots[position] === undefined ? this.takeHeld(position) : undefined
      if (held === undefined) return
      this.open++
      return this.fill(position, Answers.refused(held, code, message))
    }
    if (run.attempt > 0 || (run.phase !== "waiting" && !run.starting) || run.concluding) return
    const refused = (taken: Taken) => Answers.refused(taken, code, message)
    const leaves = this.placesOf(position)
    const others = this.hasOthers(run, leaves)
    // Each place is refused for itself: none of them stands for the others any more.
    this.leaveRun(run, leaves, refused)
    if (!others) this.refuseRun(run, refused(run.taken))
  }

  /** One whose first steps are being done is not started after them. */
  private refuseRun(run: Run, outcome: AnyOutcome): void {
    if (!run.starting) return this.conclude(run, outcome)
    run.refusal ??= outcome
    run.fiber?.interruptUnsafe()
  }

  /** Refuses all that has not begun, held calls included. */
  refuseUnstarted(code: Outcome.ErrorCode, message: string): void {
    for (const run of this.runs) {
      if (run.attempt === 0 && (run.phase === "waiting" || run.starting)) {
        this.refuseRun(run, Answers.refused(run, code, message))
      }
    }
    if (this.rare === undefined) return
    const { held, heldTwins } = this.rare
    for (const taken of [...held.splice(0), ...heldTwins.splice(0).map((one) => one.taken)]) {
      this.open++
      this.fill(taken.position, Answers.refused(taken, code, message))
    }
  }

  /** Takes over what the plan has decided, takes the places of all calls, and starts what is ready. */
  start(taken: ReadonlyArray<Taken>, plan: TurnPlan.TurnPlan, runnerOf: (taken: Taken) => Runner): void {
    this.planned = true
    this.beginEvents(taken.length)
    for (const call of TurnPlan.inOrder(plan)) this.takeOver(taken[call.position]!, call, runnerOf)
    this.weigh(plan)
    // Places are taken in emission order, before anything is started.
    for (const run of this.runs) this.takePlace(run)
    if (this.needs !== undefined) { for (const run of this.runs) this.needs.add(run) }
    for (const run of this.runs) {
      if (run.taken.asking !== undefined && run.phase === "waiting") this.question(run, run.taken.asking)
    }
    if (this.rare !== undefined) { for (const [position, { reason }] of this.rare.early) this.cancel(position, reason) }
    this.touch()
  }

  /** One call as the plan has decided it: it gets a run, is held, or has its answer. */
  takeOver(one: Taken, call: TurnPlan.PlannedCall, runnerOf: (taken: Taken) => Runner): void {
    one.place = this.places++
    switch (call.verdict) {
      case "run":
        return this.addRun(one, call, runnerOf)
      case "held":
        this.some.held.push(one)
        this.open--
        return this.event((base) => ({ ...base(one), _tag: "CallHeld" }))
      case "answered":
        return this.keepAnswer(one)
      case "provider_executed":
        return this.fill(one.position, Answers.providerExecuted(one))
      case "deferred":
        // One that may be held itself is asked about first, as if its answer had been known.
        if (one.asking !== undefined) return this.addRun(one, call, runnerOf)
        return this.fill(one.position, Answers.deferred(one, call.code as Outcome.Deferred["code"], call.message ?? ""))
      case "refused":
        return this.fill(one.position, Answers.refused(one, call.code as Outcome.ErrorCode, call.message ?? ""))
      case "duplicate":
        return this.joinTwin(one, call.duplicateOf!)
    }
  }

  private keepAnswer({ position }: Taken): void {
    const recalled = this.recalled?.get(position)
    if (recalled !== undefined) return this.fill(position, recalled)
    // It was told when it got its answer, by the turn that is resumed.
    this.slots[position] = this.setting.kept![position]!
    this.open--
  }

  private addRun(one: Taken, call: TurnPlan.PlannedCall, runnerOf: (taken: Taken) => Runner): void {
    const run = new Run(this.groupOf(one), this, one, runnerOf(one))
    run.behindHeld = call.verdict === "deferred"
    run.undecided = one.asking !== undefined || one.needs !== undefined
    if (one.needs !== undefined) this.needs ??= new Needs(this)
    this.runs.push(run)
    this.bySlot[one.position] = run
  }

  /** Takes a run's place in the order of its tenant's keys; without a conflict it is ready at once. */
  takePlace(run: Run): void {
    if (run.phase !== "waiting") return
    // A function of the caller's, asked for units, may have stopped the turn.
    if (run.group.stopped !== undefined) return run.skip(run.group.stopped)
    const { around, runtime, sequential } = this.setting
    const { keys } = run.taken
    if (sequential || keys === undefined || keys.length > 0) {
      const node = run.node = new TurnPlan.Node(run)
      runtime.table(around.tenant).claim(
        node,
        { write: run.policy.access === "write", keys },
        this.ancestors === undefined ? undefined : this
      )
      if (sequential) {
        if (this.previous !== undefined) TurnPlan.link(this.previous, node, TurnPlan.sequentialKey)
        this.previous = node
      }
      if (node.pending > 0) {
        run.waitedForKeys = true
        if (run.undoing !== undefined) return
        return this.tellKeysAwaited(run)
      }
    }
    if (!run.undecided) this.ready.push(run)
  }

  tellKeysAwaited(run: Run): void {
    this.event((base) => ({
      ...base(run),
      _tag: "CallQueued",
      for: "keys",
      backend: run.runner.entry.backendName
    }))
  }

  /** The arguments of a call are whole now: where its keys were not known, it gives up its claim on everything. */
  isWhole(run: Run, taken: Taken): void {
    if (run.taken.unresolved && taken.keys !== undefined && !this.setting.sequential) this.narrow(run, taken)
    else this.exchange(run, taken)
    run.taken = taken
    if (run.behindHeld) run.behindHeld = this.isBehindHeld(taken)
    if (taken.asking !== undefined) return this.question(run, taken.asking)
    run.undecided = false
    if (taken.needsApproval === true) return this.hold(run, undefined)
    this.isFree(run)
  }

  private narrow(run: Run, taken: Taken): void {
    const { node } = run
    if (node === undefined) return
    const { around, runtime } = this.setting
    const next = run.node = new TurnPlan.Node(run)
    runtime.table(around.tenant).replace(node, next, { write: node.write, keys: taken.keys })
    runtime.endNode(node, false)
  }

  /** Answers a call that will not be started, once it is certain that the response has not been cut short. */
  answerUnstarted(run: Run, outcome: AnyOutcome): void {
    if (this.online?.more !== true) return this.conclude(run, outcome)
    run.refusal = outcome
    this.online.gate(run)
  }

  /** Takes the place of an undo, behind what has one already. */
  addUndo(run: Run): void {
    this.runs.push(run)
    this.takePlace(run)
  }

  /** Asks whether a call needs approval, and who decides, as soon as the turn's own limit allows. */
  question(run: Run, asking: Effect.Effect<boolean>): void {
    const limiter = this.lines?.limiter
    if (limiter === undefined) return this.ask(run, asking, undefined)
    const ask = () => {
      if (run.phase !== "waiting" || run.concluding) return
      limiter.running++
      this.ask(run, asking, () => this.lines!.freed())
    }
    if (limiter.running < limiter.limit) return ask()
    this.some.questions.push(ask)
  }

  /** A call has its place while it is asked about, and those that conflict with it wait as for any other. */
  private ask(run: Run, asking: Effect.Effect<boolean>, then: (() => void) | undefined): void {
    const { deciders, intake } = this.setting
    let noted: Approval.Request | undefined
    const question: Effect.Effect<boolean | Decided, never, any> = deciders.none
      ? asking
      : Effect.flatMap(
        asking,
        (needed): Effect.Effect<boolean | Decided, never, any> =>
          needed
            ? deciders.ask(run.taken, this.identity(), intake, (request) => {
              noted = request
            })
            : Effect.succeed(false)
      )
    let answered = false
    this.questioning++
    const fiber = this.helper(Effect.provide(question, run.runner.context), (exit) => {
      answered = true
      this.questioning--
      run.undecided = false
      run.asking = undefined
      then?.()
      if (run.phase !== "waiting" || run.concluding) return this.tooLate(noted)
      if (!Exit.isSuccess(exit) || exit.value === true) return this.hold(run, undefined)
      if (exit.value !== false) return this.decided(run, exit.value as Decided)
      this.isFree(run)
    })
    if (!answered) run.asking = fiber
  }

  /** A call was answered while it was asked about: where that has been registered by now, it is taken back. */
  tooLate(noted: Approval.Request | undefined): void {
    if (noted === undefined) return
    this.some.requests.set(noted.position, noted)
    this.withdrawRequests()
  }

  /** Nothing more is asked about a call. */
  isFree(run: Run): void {
    if (run.behindHeld) this.deferLater(run)
    else if (run.node === undefined || run.node.pending === 0) run.becomesReady()
  }

  /** What somebody has decided about a call that waits. */
  private decided(run: Run, verdict: Decided): void {
    switch (verdict._tag) {
      case "held":
        return this.hold(run, verdict.request)
      case "denied":
        return this.conclude(run, Answers.denied(run, verdict.reason))
      case "answered":
        return this.conclude(run, Answers.answeredByHuman(run, verdict.result, verdict.encoded))
      case "run": {
        const { note, taken, waited } = verdict
        run.approved = { digest: digestOf(taken), note, waited }
        if (taken !== run.taken) this.exchange(run, taken)
        return this.isFree(run)
      }
    }
  }

  /** A call is to run with other arguments: where they touch something else, it takes its place anew, behind what stands. */
  private exchange(run: Run, taken: Taken): void {
    const { keys } = run.taken
    run.taken = taken
    if (TurnPlan.covers(keys, taken.keys)) return
    if (this.isBehindHeld(taken)) {
      run.behindHeld = true
      return
    }
    const { node } = run
    this.takePlaceAgain(run, node)
    // What needs its result stays behind it: else each would wait for the other.
    for (const later of this.needs?.behind(run) ?? []) {
      if (later.node !== undefined) this.takePlaceAgain(later, later.node)
    }
  }

  private takePlaceAgain(run: Run, node: TurnPlan.Node | undefined): void {
    run.node = undefined
    this.takePlace(run)
    if (node !== undefined) this.setting.runtime.endNode(node, false)
  }

  /** Whether a call touches by now what an earlier one that is held touches. */
  private isBehindHeld({ access, keys, place }: Taken): boolean {
    const claims = new TurnPlan.Claims()
    for (const one of this.some.held) {
      if (one.place >= place) continue
      claims.claim(new TurnPlan.Node(one), { write: one.access === "write", keys: one.keys })
    }
    return claims.conflicts({ write: access === "write", keys })
  }

  /** A call turns out to need approval: it is held, and later ones of the turn that conflict with it are deferred (rule R10). */
  hold(run: Run, request: Approval.Request | undefined): void {
    const { some } = this
    this.bySlot[run.position] = undefined
    if (request === undefined) some.requests.delete(run.position)
    else some.requests.set(run.position, request)
    if (run.asks) {
      some.held.push(run.taken)
      this.open--
    }
    for (const position of run.twins ?? []) {
      const taken = some.twins.get(position)!
      this.bySlot[position] = undefined
      if (run.asks) some.heldTwins.push({ taken, of: run.position })
      else some.held.push(taken)
      this.open--
    }
    this.event((base) => ({ ...base(run), _tag: "CallHeld" }))
    if (this.needs !== undefined) {
      for (const position of [run.position, ...run.twins ?? []]) this.needs.withhold(position)
    }
    for (const later of this.runs) {
      if (
        later.phase !== "waiting" || later.attempt > 0 || later.undoing !== undefined || later.concluding ||
        later.taken.place <= run.taken.place
      ) continue
      if (run.node === undefined || later.node === undefined || !TurnPlan.conflict(run.node, later.node)) continue
      later.behindHeld = true
      if (!later.undecided) this.deferLater(later)
    }
    this.online?.holds(run)
    if (run.timer !== undefined) run.timer.off = true
    this.release(run)
    run.group.ended(run, Siblings.neutral)
    this.touch()
  }

  /** Deferred, once it is certain that the response has not been cut short. */
  private deferLater(run: Run): void {
    if (this.online?.more === true) this.online.gate(run)
    else this.defer(run)
  }

  private defer(run: Run): void {
    const message = "touches what an earlier call that waits for approval touches"
    this.conclude(run, Answers.deferred(run, "waits_for_approval", message))
  }

  /** The last call that took a place, where the turn runs one after another. */
  private previous: TurnPlan.Node | undefined = undefined

  /** From here on the ways below the calls are those of this plan, but for calls that stand in line already. */
  weigh(plan: TurnPlan.TurnPlan): void {
    if (this.lines === undefined && !this.runs.some((run) => run.policy.backend !== undefined)) return
    this.paths = new Paths(plan, this.durations)
    for (const run of this.runs) if (run.state !== "waiting") run.length = undefined
  }

  private get durations(): ToolDurations.ToolDurations["Service"] {
    const { around, runtime } = this.setting
    return around.durations ?? runtime.durations
  }

  /** The longest way below a call, itself included. */
  lengthOf(position: number): number {
    return this.paths?.lengthOf(position) ?? 1
  }

  private groupOf(taken: Taken): Siblings.Group<AnyOutcome> {
    const { unit } = taken
    if (unit === undefined) return this.group
    const { groups } = this.some
    let group = groups.get(unit)
    if (group === undefined) groups.set(unit, group = this.newGroup())
    return group
  }

  private newGroup(): Siblings.Group<AnyOutcome> {
    const { policy } = this.setting
    return policy.undoes === true ? new Unit(policy, this) : new Siblings.Group(policy)
  }

  private stopGroups(reason: Siblings.StopReason): void {
    this.group.stop(reason)
    if (this.rare !== undefined) { for (const group of this.rare.groups.values()) group.stop(reason) }
  }

  private joinTwin(taken: Taken, of: number): void {
    const run = this.bySlot[of]
    // Where the calls come one by one, the other may have been answered already.
    if (run !== undefined && run.phase !== "ended" && this.slots[of] === undefined) {
      ;(run.twins ??= []).push(taken.position)
      this.bySlot[taken.position] = run
      this.some.twins.set(taken.position, taken)
      return
    }
    const answered = this.slots[of]
    if (answered === undefined) {
      // It is the same as a held call: they share its answer.
      this.open--
      this.some.heldTwins.push({ taken, of })
      return
    }
    this.fillAs(taken, answered)
  }

  /** Does what has become possible: starts what is ready, fills the line, sets the clocks, closes. */
  pump(): void {
    if (this.closed || !this.planned) {
      this.lines?.serve()
      return this.tryClose()
    }
    if (this.rare !== undefined) this.askMore(this.rare)
    this.needs?.resolve()
    for (let i = 0; i < this.ready.length; i++) this.admit(this.ready[i]!)
    this.ready.length = 0
    this.shared?.flush()
    if (this.lines !== undefined) {
      const joined = this.lines.serve()
      if (this.setting.emit !== undefined) this.tellQueued(joined)
    }
    if (this.open > 0) {
      if (this.online !== undefined) this.online.timeWaits(this.timeWait)
      else if (!this.waitsTimed) this.timeWaits()
      if (this.ancestors !== undefined) this.answerDeadlocks()
      if (!this.touched) this.setting.timers.arm()
    }
    this.tryClose()
  }

  /** Questions that the turn's own limit has held up. */
  private askMore({ questions }: Rare): void {
    const limiter = this.lines?.limiter
    while (questions.length > 0 && limiter!.running < limiter!.limit) questions.shift()!()
  }

  /** All calls of a turn begin to wait together, so their waiting clocks are set once. */
  private timeWaits(): void {
    this.waitsTimed = true
    const { around, middleware } = this.setting
    if (
      this.running === this.runs.length && around.journal === undefined && around.store === undefined &&
      middleware?.hasBefore !== true
    ) return
    for (const run of this.runs) this.timeWait(run)
  }

  private readonly timeWait = (run: Run): void => {
    if ((run.phase === "waiting" || run.starting) && run.attempt === 0) {
      run.timer = this.setting.timers.set(run.policy.waitTimeout, waitIsOver, run)
    }
  }

  private admit(run: Run): void {
    if (
      run.phase !== "waiting" || run.state === "waiting" || run.undecided || run.gated || run.concluding ||
      run.seat !== undefined ||
      (run.node !== undefined && run.node.pending > 0)
    ) return
    if (this.setting.emit !== undefined) run.readyAt = this.setting.timers.now()
    // It stands in line with its requests, which have the permits.
    if (run.merging !== undefined) return this.begin(run)
    const pool = run.runner.entry.merging === undefined ? this.poolOf(run) : undefined
    if (Keys.isGuarded(run) && !this.starts.mayHaveKey(run, pool !== undefined || this.lines?.limiter !== undefined)) {
      return
    }
    if (pool === undefined && this.lines === undefined) return this.begin(run)
    const { held, tenant } = this.setting.around
    const lines = this.lines ??= new Lines(tenant, held, Infinity)
    if (pool === undefined && lines.limiter === undefined) return this.begin(run)
    const refusal = lines.join(run, pool)
    if (refusal === undefined) {
      // It has its keys: work inside whoever holds the permits may wait for them.
      if (run.attempt > 0 && run.node !== undefined) this.setting.runtime.touchNested()
      return this.touch()
    }
    this.turnedAway(run, refusal)
  }

  /** A run is answered as another one will be. */
  joinRun(run: Run, holder: Run): void {
    for (const taken of this.takeAnswers(run)) {
      this.bySlot[taken.position] = holder
      ;(holder.twins ??= []).push(taken.position)
      this.some.twins.set(taken.position, taken)
    }
    this.conclude(run, Answers.refused(run, "key_reused", ""))
  }

  /** The calls that a run was to answer, which it leaves to another one. */
  private takeAnswers(run: Run): ReadonlyArray<Taken> {
    const taken = (run.twins ?? []).map((position) => this.some.twins.get(position)!)
    run.twins = undefined
    if (!run.asks) return taken
    run.asks = false
    return [run.taken, ...taken]
  }

  /** A run that was about to start waits again; what it had for its start goes back. */
  waitAgain(run: Run): void {
    run.phase = "waiting"
    this.running--
    this.givePermitBack(run)
  }

  /** Puts a request in line, or says why not; false where there is no line for it. */
  lineUp(request: Request, pool: Backend.Pool | undefined): boolean | Backend.Refusal {
    if (pool === undefined && this.lines?.limiter === undefined) return false
    const { held, tenant } = this.setting.around
    const refusal = (this.lines ??= new Lines(tenant, held, Infinity)).join(request, pool)
    if (refusal === undefined) this.touch()
    return refusal ?? true
  }

  /** The backend does not take a run. */
  turnedAway(run: Run, why: Backend.Refusal): void {
    this.notStarted(run, () => Answers.refusedByBackend(run, run.list!.pool.name, why))
  }

  /** Tells of those that joined a line and were not served at once. */
  private tellQueued(joined: ReadonlyArray<InLine>): void {
    for (const entry of joined) {
      if (entry instanceof Run) this.tellWaiting(entry, entry)
      else if (entry.state === "waiting") { for (const run of (entry as Request).runs) this.tellWaiting(run, entry) }
    }
  }

  private tellWaiting(run: Run, entry: InLine): void {
    if (run.phase !== "waiting" || run.undoing !== undefined) return
    run.waitedForPermit = true
    const waitsFor = this.lines!.waitsFor(entry)
    this.event((base) => ({ ...base(run), _tag: "CallQueued", for: waitsFor, backend: run.runner.entry.backendName }))
  }

  poolOf(run: Run): Backend.Pool | undefined {
    const key = run.policy.backend
    return key === undefined
      ? undefined
      : (Context.get(run.runner.context as Context.Context<any>, key) as Backend.Backend).pool
  }

  /** Keys and permit are there: the call is started. */
  begin(run: Run): void {
    this.starts.begin(run)
  }

  private owned: string | undefined = undefined
  /** Whoever reserves calls of this turn, this time. */
  get owner(): string {
    const { random } = this.setting.around
    return this.owned ??= TurnContext.newId("run", () => random.nextDoubleUnsafe())
  }

  launch(run: Run): void {
    if (run.merging !== undefined && run.seat?.started !== true) return this.sharing.seat(run)
    const { setting } = this
    const { middleware } = setting
    const { taken } = run
    const first = ++run.attempt === 1
    run.failed = undefined
    if (first && setting.conversation !== undefined && !taken.repeatable) {
      setting.runtime.repeats.note(setting.conversation, digestOf(taken))
    }
    if (first && (run.approved !== undefined || setting.kept !== undefined)) {
      const { tenant, turn } = this.identity()
      const { decided } = setting.runtime
      // Another copy of this parked turn was quicker.
      if (decided.has(tenant, turn, run.position)) {
        run.phase = "running"
        return this.conclude(run, Answers.inDoubt(run, run.policy))
      }
      decided.note(tenant, turn, run.position)
    }
    if (run.timer !== undefined) {
      run.timer.off = true
      run.timer = undefined
    }
    this.wrote(run)
    const now = setting.timers.now()
    if (this.lines !== undefined || this.paths !== undefined || setting.around.durations !== undefined) {
      run.launchedAt = now
    }
    run.progressAt = now
    // From here on a stop meets a call that has started, also one that comes from the handler's own first steps.
    run.phase = "running"
    if (setting.emit !== undefined) {
      const rate = (run.seat ?? run.permit)?.waitedForRate ?? 0
      this.event((base) => ({
        ...base(run),
        _tag: "CallStarted",
        attempt: run.attempt,
        backend: run.runner.entry.backendName,
        waited: {
          keys: run.waitedForKeys ? run.readyAt - (run.since === 0 ? this.startedAt : run.since) : 0,
          permit: run.waitedForPermit ? Math.max(0, now - run.readyAt - rate) : 0,
          rate,
          approval: first ? run.approved?.waited ?? 0 : 0
        }
      }))
    }
    this.work(run, now, middleware)
  }

  /** A write starts, or has ended: what it touches is not answered from a cache any more, nor by a request that was sent before. */
  private wrote(run: Run): void {
    const { context, tenant } = this.setting.around
    if (run.policy.access === "write") Coalescer.invalidateIn(context, tenant, run.taken.keys)
  }

  /** Starts the work of a run, and its clocks. */
  work(run: Run, now: number, middleware: Middleware | undefined): void {
    const { policy, runner, taken } = run
    run.phase = "running"
    let effect: Effect.Effect<unknown, unknown, any>
    try {
      effect = run.seat === undefined || run.seat.wants.size === 0
        ? runner.invoke(
          taken.params,
          { toolCallId: taken.call.id, preliminary: (result) => Effect.sync(() => this.progress(run, result)) },
          taken.encoded
        )
        : this.sharing.work(run)
    } catch (error) {
      effect = Effect.die(error)
    }
    if (middleware?.hasAround === true) {
      effect = this.surround(run, effect, middleware)
      // It may have gone its own way meanwhile: what it asked for ends with it.
      if (run.seat !== undefined) effect = Effect.ensuring(effect, this.sharing.desert(run))
    }
    this.touch()
    run.report = Handler.reportOf(effect)
    // What is over already costs no fiber.
    if (Exit.isExit(effect)) return run.settle(effect as Exit.Exit<unknown, unknown>)
    run.group.run(run, effect, this.contextOf(run))
    // A handler that has ended already needs no clocks.
    if (run.phase !== "running" || run.concluding || run.timer !== undefined) return
    const { timers } = this.setting
    run.timer = timers.setAt(now + policy.timeout, timeIsOver, run)
    run.idleTimer = timers.setAt(now + policy.idleTimeout, silenceIsOver, run)
  }

  /** What the work of a call finds in its context. */
  contextOf(run: Run): Context.Context<never> {
    const context = Context.add(run.runner.context, TurnContext.CurrentCall, new CallView(run))
    return run.permit === undefined || run.policy.backend === undefined
      ? context
      : Context.add(context, Backend.Held, run.permit)
  }

  /** Puts the turn's middleware around a handler. It sees results, also where a toolkit's own `handle` gives them encoded. */
  private surround(
    run: Run,
    effect: Effect.Effect<unknown, unknown, any>,
    middleware: Middleware
  ): Effect.Effect<unknown, unknown, any> {
    const { entry, handled } = run.runner
    if (!handled) return middleware.around(run, effect)
    let inner: Handled | undefined
    const bare = Effect.map(effect as Effect.Effect<Handled, unknown, any>, (given) => {
      inner = given
      return given.result
    })
    return Effect.flatMap(middleware.around(run, bare), (result) =>
      inner !== undefined && result === inner.result
        ? Effect.succeed(inner)
        : Effect.map(Effect.exit(entry.encode(result)), (exit): Handled =>
          Exit.isSuccess(exit)
            ? { result, encodedResult: exit.value }
            : { result, encodedResult: undefined, problem: causeText(exit.cause) }))
  }

  private progress(run: Run, result: unknown): void {
    if (!run.atWork) return
    this.setting.timers.tick()
    run.progressAt = this.setting.timers.now()
    this.event((base) => {
      const encoded = run.runner.entry.encode(result)
      return {
        ...base(run),
        _tag: "CallProgressed",
        result: Exit.isExit(encoded) && Exit.isSuccess(encoded) ? encoded.value : result
      }
    })
  }

  /** The time of silence is over, unless there was a note meanwhile. */
  silent(run: Run): void {
    if (!run.atWork) return
    const { timers } = this.setting
    const { idleTimeout } = run.policy
    const left = run.progressAt + idleTimeout - timers.now()
    if (left <= 0) return run.expire("idleTimeout", idleTimeout)
    run.idleTimer = timers.set(left, silenceIsOver, run)
    this.touch()
  }

  /** The fiber of a run has ended. */
  ended(run: Run, exit: Exit.Exit<unknown, unknown>): void {
    if (run.seat !== undefined && this.sharing.outlives(run, () => this.ended(run, exit))) return
    // A step without a closure: a stop ends ten thousand runs at once.
    const { runtime, timers } = this.setting
    runtime.enter()
    try {
      timers.tick()
      if (run.undoing !== undefined && Exit.isFailure(exit)) run.undoing.failed(exit.cause)
      this.wrote(run)
      if (run.launchedAt !== undefined && run.stopReason === undefined) this.learn(run, timers.now() - run.launchedAt)
      if (Exit.isFailure(exit)) this.decide(run, exit, undefined)
      else this.encode(run, exit)
    } finally {
      runtime.leave()
    }
  }

  /** The work of a run that nobody stopped is over: so long its tool takes, or at least so long where its time ran out. */
  private learn(run: Run, millis: number): void {
    run.launchedAt = undefined
    try {
      this.durations.observe(run.name, millis)
    } catch {
      // Whoever learns cannot hurt the turn.
    }
  }

  /** A success becomes JSON before it is an answer. */
  private encode(run: Run, exit: Exit.Success<unknown, unknown>): void {
    const { runner } = run
    if (runner.handled) {
      const { encodedResult, problem, result } = exit.value as Handled
      return this.decide(
        run,
        Exit.succeed(result),
        problem === undefined ? Exit.succeed(encodedResult) : Exit.die(problem)
      )
    }
    let encoded: Effect.Effect<unknown, unknown, any>
    try {
      encoded = runner.entry.encode(exit.value)
    } catch (error) {
      encoded = Exit.die(error)
    }
    if (Exit.isExit(encoded)) return this.decide(run, exit, encoded)
    // The schema needs time, or services, to encode: the work is over, its answer is still being written. It may take as long again.
    if (run.timer !== undefined) run.timer.off = true
    if (run.idleTimer !== undefined) run.idleTimer.off = true
    // Writing an answer down is not running: a short limit of the handler is none of it.
    const timeout = Math.max(run.policy.timeout, patience)
    const written = Effect.flatMap(
      inTime("a schema", Effect.provide(encoded, runner.context), timeout, this.setting.graceReads),
      Option.match({
        onNone: () => Effect.die(new Error(`it took longer than ${timeout} ms to encode`)),
        onSome: Effect.succeed
      })
    )
    this.helper(written, (encoded) => this.decide(run, exit, encoded))
  }

  /** What the end of a run means, given what it was told meanwhile (rules R19, R20). */
  private decide(run: Run, exit: Exit.Exit<unknown, unknown>, encoded: Exit.Exit<unknown, unknown> | undefined): void {
    const { expired, policy, stopReason } = run
    const tool = run.runner.entry
    let outcome: AnyOutcome
    const told = stopReason !== undefined || expired !== undefined
    const reported = run.report?.exit
    if (
      told && reported !== undefined && policy.access === "write" && Exit.isFailure(exit) && isInterrupted(exit.cause)
    ) {
      // The fiber was interrupted, the promise was not: what it came to is known.
      run.report = undefined
      return this.ended(run, reported)
    }
    if (told && (policy.access === "read" || (Exit.isFailure(exit) && isInterrupted(exit.cause)))) {
      outcome = expired !== undefined
        ? Answers.timedOut(run, expired, policy)
        : Answers.cancelled(run, stopReason, policy)
    } else if (Exit.isFailure(exit)) outcome = Answers.failedWith(run, tool, exit.cause)
    else {
      outcome = Answers.succeeded(run, tool, exit.value, encoded!)
      // A toolkit's own `handle` keeps a result to itself that cannot be encoded.
      const known = Exit.isSuccess(encoded!) || !run.runner.handled
      // One that was given up on is none of its unit any more (N5).
      if (known && run.canBeUndone && !run.givenUp) run.applied = { result: exit.value, outcome: undefined }
    }
    if (run.permit?.admission !== undefined) run.permit.verdict = Answers.verdict(outcome, policy)
    outcome = inAll(run, outcome)
    if (run.givenUp) return this.settledLate(run, outcome)
    if (mayTryAgain(run, outcome)) return this.pause(run, outcome)
    this.over(run, outcome)
  }

  /** The work is over, and will not be tried again. */
  private over(run: Run, outcome: AnyOutcome): void {
    const { middleware } = this.setting
    if (
      middleware?.hasAfter === true && run.undoing === undefined && (
        outcome.status === "ok" ||
        (outcome.status === "error" && (outcome.code === "failed" || outcome.code === "rate_limited"))
      )
    ) return this.after(run, outcome, middleware)
    this.conclude(run, outcome)
  }

  /** An attempt has failed and may be made again: its permit goes back, its keys and its reservation stay (rule R24). */
  private pause(run: Run, outcome: AnyOutcome): void {
    const { timers } = this.setting
    if (run.timer !== undefined) run.timer.off = true
    if (run.idleTimer !== undefined) run.idleTimer.off = true
    run.timer = run.idleTimer = undefined
    this.running--
    run.phase = "waiting"
    run.seat = undefined
    run.failed = outcome
    run.inDoubt = outcome.effect === "unknown"
    run.expired = undefined
    run.waitedForKeys = false
    this.givePermitBack(run)
    let known = false
    const asking = this.helper(pauseOf(run, outcome), (exit) => {
      known = true
      run.asking = undefined
      if (run.phase !== "waiting" || run.concluding) return
      const pause = Exit.isSuccess(exit) ? exit.value as number | undefined : undefined
      if (pause === undefined || timers.now() + pause >= lastMoment(this)) return this.endUnstarted(run, outcome)
      this.event((base): TurnEvent.CallRetried => ({
        ...base(run),
        _tag: "CallRetried",
        attempt: run.attempt,
        outcome,
        pause
      }))
      run.timer = timers.set(pause, pauseIsOver, run)
    })
    if (!known) run.asking = asking
  }

  /** The pause is over: it waits for a permit like any other call that has its keys, on a clock of its own. */
  standsInLineAgain(run: Run): void {
    if (run.phase !== "waiting" || run.concluding) return
    run.timer = this.setting.timers.set(run.policy.waitTimeout, waitIsOver, run)
    run.becomesReady()
  }

  /** The next attempt may be made: where the last one may have had its effect, the tool may have to be asked first. */
  beginAgain(run: Run, outcome: AnyOutcome): void {
    this.running++
    const question = questionOf(run)
    if (question === undefined) return this.launch(run)
    run.phase = "running"
    run.starting = true
    if (run.timer !== undefined) run.timer.off = true
    let known = false
    const asking = this.helper(Effect.provide(question, this.contextOf(run)), (exit) => {
      known = true
      run.starting = false
      run.fiber = undefined
      if (run.stopReason !== undefined) return this.conclude(run, run.cancelledNow(run, run.stopReason))
      const found = Exit.isSuccess(exit) ? exit.value as AnyOutcome | "not applied" | undefined : undefined
      if (found === undefined) return this.over(run, outcome)
      run.inDoubt = false
      if (found === "not applied") return this.launch(run)
      this.over(run, inAll(run, found))
    })
    if (!known) run.fiber = asking
  }

  /** A call that waits will not be started: it is answered so, or, where it was started before, as its last attempt. */
  notStarted(run: Run, answer: () => AnyOutcome): void {
    this.endUnstarted(run, run.failed ?? answer())
  }

  endUnstarted(run: Run, outcome: AnyOutcome): void {
    if (run.attempt === 0) return this.conclude(run, outcome)
    // Its answer may have to be written down first: nobody is to start it meanwhile, so it stands in no line.
    if (run.state === "waiting") run.list!.pool.leave(run.list!, run)
    this.over(run, outcome)
  }

  /** The work is over, and what it came to is known: no stop and no clock changes it any more. */
  private after(run: Run, outcome: AnyOutcome, middleware: Middleware): void {
    if (run.phase === "ended" || run.concluding) return
    run.concluding = true
    if (run.timer !== undefined) run.timer.off = true
    if (run.idleTimer !== undefined) run.idleTimer.off = true
    this.helper(Effect.provide(middleware.after(run, outcome), this.contextOf(run)), (exit) => {
      const told = Exit.isSuccess(exit)
        ? exit.value as AnyOutcome
        : Answers.brokenAfter(run, outcome, `a step after it broke: ${causeText(exit.cause)}`)
      this.settle(run, inAll(run, told))
    })
  }

  /** Gives a run its outcome, through the journal when there is one. */
  conclude(run: Run, outcome: AnyOutcome): void {
    if (run.phase === "ended" || run.concluding) return
    run.concluding = true
    if (run.merging !== undefined) this.sharing.leave(run)
    run.asking?.interruptUnsafe()
    if (run.timer !== undefined) run.timer.off = true
    if (run.idleTimer !== undefined) run.idleTimer.off = true
    this.settle(run, outcome)
  }

  private settle(run: Run, outcome: AnyOutcome): void {
    run.awaited?.keys.leave(run.awaited.id, run)
    const helper = (effect: Effect.Effect<void>, done: () => void) => void this.helper(effect, done)
    Keys.settle(
      run,
      outcome,
      helper,
      () => Journal.settle(run, outcome, helper, () => this.finish(run, outcome))
    )
  }

  private finish(run: Run, outcome: AnyOutcome): void {
    if (run.state === "waiting") run.list!.pool.leave(run.list!, run)
    if (run.phase === "running") this.running--
    const { applied, undoing } = run
    if (applied !== undefined) {
      applied.outcome = outcome
      ;(run.group as Unit).keep(run)
      this.needs?.applied(run)
      this.event((base) => ({ ...base(run), _tag: "CallApplied" }))
    } else if (undoing === undefined) this.answer(run, outcome)
    this.release(run)
    run.group.ended(run, verdictOf(outcome))
    if (undoing !== undefined) this.undone(undoing, outcome)
    // What is left of a turn inside a handler may wait for itself now.
    if (this.ancestors !== undefined) this.touch()
  }

  /** What has taken effect stands: its unit is decided. */
  answerApplied(run: Run, outcome: AnyOutcome): void {
    Keys.stands(run)
    this.answer(run, outcome)
  }

  /** An undo is over, or was given up on: its call gets its answer. */
  private undone(undoing: Undoing, outcome: AnyOutcome): void {
    const { of } = undoing
    const answer = undoing.answer(outcome)
    const then = () => {
      this.event((base) => ({ ...base(of), _tag: "CallUndone", ok: answer.undo === "done" }))
      this.answer(of, answer)
      undoing.ended()
    }
    const record = undoing.recorded(answer)
    if (record === undefined) then()
    else this.helper(record, then)
  }

  /** Fills the slots of a run: its own, and those of identical calls. */
  private answer(run: Run, outcome: AnyOutcome): void {
    if (run.asks) {
      run.asks = false
      this.fill(run.position, outcome)
    }
    const { twins } = run
    if (twins === undefined) return
    run.twins = undefined
    for (const position of twins) this.fillAs(this.some.twins.get(position)!, outcome)
  }

  /** Answers a call with a copy of what another one was answered. */
  private fillAs(taken: Taken, of: AnyOutcome): void {
    const copy = Answers.duplicate(taken, of, taken.tool)
    if (Exit.isExit(copy) && Exit.isSuccess(copy)) return this.fill(taken.position, copy.value as AnyOutcome)
    const runner = this.bySlot[taken.position]?.runner
    this.helper(runner === undefined ? copy : Effect.provide(copy, runner.context), (exit) => {
      if (Exit.isSuccess(exit)) this.fill(taken.position, exit.value as AnyOutcome)
    })
  }

  fill(position: number, outcome: AnyOutcome): void {
    if (this.slots[position] !== undefined) return
    this.slots[position] = outcome
    this.open--
    if (this.open === 0) this.touch()
    this.needs?.answered(position)
    if (this.setting.emit !== undefined) {
      this.event((base) => ({ ...base(outcome as unknown as Answers.Asked), _tag: "CallEnded", outcome }))
    }
  }

  /** The work has really ended: keys and permit go back. */
  release(run: Run): void {
    const { node } = run
    this.givePermitBack(run)
    if (node !== undefined) {
      run.node = undefined
      this.setting.runtime.endNode(node, run.phase !== "waiting")
    }
  }

  givePermitBack(run: Run): void {
    const { permit } = run
    run.fiber = undefined
    if (permit === undefined) return
    run.permit = undefined
    this.takeBack(permit)
  }

  takeBack(permit: Backend.Permit): void {
    this.lines!.release(permit)
    // This turn, or whoever is next at this backend, goes on in this step.
    this.touch()
  }

  /** The grace has run out: the call is answered, its work goes on with the supervisor (rule R20). */
  giveUp(run: Run): void {
    if (run.phase !== "running" || run.concluding || run.givenUp) return
    const { runtime } = this.setting
    run.givenUp = true
    this.running--
    runtime.unsettled.add(run)
    const outcome = inAll(
      run,
      run.expired !== undefined
        ? Answers.timedOut(run, run.expired, run.policy)
        : Answers.cancelled(run, run.stopReason, run.policy)
    )
    const limited = run.permit !== undefined
    const done = () =>
      this.step(() => {
        if (run.undoing === undefined) this.answer(run, outcome)
        if (limited) this.freed()
        if (run.deserted !== undefined) this.sharing.giveUp(run.deserted)
        this.touch()
        run.group.ended(run, verdictOf(outcome))
        if (run.undoing !== undefined) this.undone(run.undoing, outcome)
      })
    Journal.settle(run, outcome, (effect, then) => void this.helper(effect, then), done)
  }

  private settledLate(run: Run, outcome: AnyOutcome): void {
    const { around, runtime } = this.setting
    runtime.unsettled.delete(run)
    Keys.settle(run, outcome, (effect, done) => {
      Effect.runForkWith(around.context)(effect).addObserver(done)
    }, () => {})
    const told = run.undoing === undefined ? outcome : run.undoing.answer(outcome)
    const record = run.undoing?.recorded(told)
    if (record !== undefined) Effect.runForkWith(around.context)(record)
    const event: TurnEvent.CallSettledLate = { ...this.ofCall(run), _tag: "CallSettledLate", outcome: told }
    this.emit(event)
    runtime.later(() => runtime.tellLate(event))
    const permit = run.permit
    if (permit !== undefined) {
      run.permit = undefined
      permit.pool.release(permit)
      permit.pool.pump()
    }
    if (run.node !== undefined) {
      const node = run.node
      run.node = undefined
      runtime.endNode(node, true)
    }
    // Its keys go back at the end of the step.
    if (this.closed) runtime.later(() => runtime.tidy(around.tenant))
    runtime.quiet()
  }

  /** One less of the turn's own limit: its work goes on with the supervisor. */
  freed(): void {
    this.lines!.freed()
  }

  /** Stops the whole turn; the first reason stands. */
  stop(reason: Siblings.StopReason & { readonly code: "by_caller" | "by_deadline" }): void {
    if (this.stopped !== undefined || this.closed) return
    this.step(() => {
      this.stopped = reason
      this.emit({ ...this.base(), _tag: "TurnStopped", code: reason.code, reason: reason.reason })
      if (!this.planned && this.rare !== undefined) { for (const fiber of this.rare.helpers) fiber.interruptUnsafe() }
      this.stopGroups(reason)
      this.online?.stopped()
      this.withdrawRequests()
      this.touch()
    })
  }

  /** Nothing more comes to a turn whose calls come one by one. */
  endList(): void {
    this.online?.end(undefined)
  }

  /** Stops one call; false when it has its answer already. */
  cancel(position: number, reason: string | undefined): boolean {
    if (this.slots[position] !== undefined || this.closed || position < 0 || position >= this.slots.length) return false
    const stop: Siblings.StopReason = { code: "by_caller", reason }
    if (!this.planned || this.online?.isQueued(position) === true) {
      const { early } = this.some
      if (early.has(position)) return false
      early.set(position, stop)
      return true
    }
    let done = false
    this.step(() => {
      const run = this.bySlot[position]
      if (run === undefined) {
        const held = this.takeHeld(position)
        if (held === undefined) return
        this.open++
        this.fill(position, Answers.cancelledBeforeStart(held, stop))
        this.withdrawRequests()
        done = true
        return
      }
      // It has taken effect, and waits for the others of its unit.
      if (run.phase === "ended") return
      done = true
      const leaves = this.placesOf(position)
      if (this.hasOthers(run, leaves)) {
        return this.leaveRun(
          run,
          leaves,
          (taken) => run.cancelledNow(taken, stop)
        )
      }
      if (run.phase === "waiting") run.skip(stop)
      else run.stop(stop)
    })
    return done
  }

  /** Whether a call, or one that is the same, waits for approval. */
  isHeld(position: number): boolean {
    if (this.slots[position] !== undefined || this.rare === undefined) return false
    const { held, heldTwins } = this.rare
    return held.some((one) => one.position === position) || heldTwins.some(({ taken }) => taken.position === position)
  }

  /** Takes a call out of those that are held; the first that is the same takes its place. */
  private takeHeld(position: number): Taken | undefined {
    if (this.rare === undefined) return undefined
    const { held, heldTwins } = this.rare
    const twin = heldTwins.findIndex((one) => one.taken.position === position)
    if (twin !== -1) return heldTwins.splice(twin, 1)[0]!.taken
    const at = held.findIndex((one) => one.position === position)
    if (at === -1) return undefined
    const [taken] = held.splice(at, 1)
    const heirs = heldTwins.filter((one) => one.of === position)
    const heir = heirs[0]?.taken
    if (heir !== undefined) held.push(heir)
    for (const one of heirs) {
      heldTwins.splice(heldTwins.indexOf(one), 1)
      if (one.taken !== heir) heldTwins.push({ taken: one.taken, of: heir!.position })
    }
    return taken
  }

  /** A re-delivered id is one call: all its places leave together. */
  private placesOf(position: number): (at: number) => boolean {
    const { calls } = this.setting
    const { id } = calls[position]!
    return (at) => at === position || (id !== "" && calls[at]!.id === id)
  }

  /** Whether a run is for others than those that leave. */
  private hasOthers(run: Run, leaves: (position: number) => boolean): boolean {
    return (run.asks && !leaves(run.position)) || (run.twins?.some((twin) => !leaves(twin)) ?? false)
  }

  /** Some of several identical calls leave; the run goes on for the others. */
  private leaveRun(
    run: Run,
    leaves: (position: number) => boolean,
    answer: (taken: Taken) => AnyOutcome
  ): void {
    const leave = (taken: Taken) => this.fill(taken.position, answer(taken))
    if (run.asks && leaves(run.position)) {
      run.asks = false
      leave(run.taken)
    }
    const gone = run.twins?.filter(leaves) ?? []
    run.twins = run.twins?.filter((twin) => !leaves(twin))
    for (const twin of gone) leave(this.some.twins.get(twin)!)
  }

  private tryClose(): void {
    if (this.closed || this.online?.more === true) return
    const early = this.stopped !== undefined && !this.planned
    if (this.open > 0 && !early) return
    if (this.open === 0 && this.fibers > 0) { for (const fiber of this.some.endless) fiber.interruptUnsafe() }
    if (this.fibers > 0 && !this.outOfPatience) return this.waitForHelpers()
    if (this.open === 0 && this.withdrawRequests()) return
    if (early) this.abandon()
    else this.close()
  }

  /** What has its answer waits for no decision any more: whoever decides late is told so. True while that is being said. */
  private withdrawRequests(): boolean {
    const { deciders, reports } = this.setting
    if (this.rare === undefined || deciders.registry === undefined) return false
    const { requests } = this.rare
    const all = this.stopped !== undefined || (reports && this.open === 0)
    const gone = Array.from(requests.values()).filter(({ position }) => all || this.slots[position] !== undefined)
    if (gone.length === 0) return false
    for (const { position } of gone) requests.delete(position)
    this.helper(deciders.withdraw(gone), () => {})
    return true
  }

  /** What the turn that is resumed has asked: the registry may know of it. */
  remember(requests: ReadonlyArray<Approval.Request>): void {
    if (this.setting.deciders.registry === undefined) return
    for (const request of requests) this.some.requests.set(request.position, request)
  }

  /** What was asked of a human and has no answer yet; empty when the turn was stopped. */
  requests(now: number): ReadonlyArray<Approval.Request> {
    if (this.rare === undefined || this.stopped !== undefined) return []
    const { held, requests } = this.rare
    const { deciders } = this.setting
    return held.filter(({ position }) => this.slots[position]?.status === "pending_approval").map((taken) =>
      requests.get(taken.position) ?? deciders.request(taken, this.identity(), now)
    ).sort((a, b) => a.position - b.position)
  }

  /**
   * What is left is asked by the caller's own effects, and interrupted already: they get the grace of a read, and no more. One that
   * obeys needs a turn of the scheduler for it, also where there is no grace.
   */
  private waitForHelpers(): void {
    if (this.waitsForHelpers) return
    this.waitsForHelpers = true
    const { graceReads, timers } = this.setting
    timers.set(Math.max(1, graceReads), helpersAreLate, this as TurnState)
    timers.arm()
  }

  /** They are deaf: the turn is answered without them. */
  closeWithoutHelpers(): void {
    this.outOfPatience = true
    Effect.runForkWith(this.setting.around.context)(
      Effect.logWarning(
        "a turn ended while an effect of its caller (an approval question, a schema, cancelOn) ignored its stop"
      )
    )
    this.touch()
  }

  /** Stops the turn when an effect of the caller's succeeds; the effect is ended with the turn. */
  stopWhen(effect: Effect.Effect<string | void, never, any>): void {
    this.helper(effect, (exit) => {
      if (Exit.isSuccess(exit)) {
        this.stop({ code: "by_caller", reason: exit.value === undefined ? undefined : String(exit.value) })
      } else if (!isInterrupted(exit.cause)) {
        this.stop({ code: "by_caller", reason: `cancelOn broke: ${causeText(exit.cause)}` })
      }
    })
    for (const fiber of this.some.helpers) this.some.endless.add(fiber)
  }

  /** Stopped before the plan was made: nothing has started, every call is answered. */
  private abandon(): void {
    this.setting.calls.forEach((call, position) => {
      const kept = this.setting.kept?.[position]
      if (kept !== undefined) {
        this.slots[position] = kept
        this.open--
        return
      }
      const asked = { position, id: call.id, name: call.name, repairedFrom: undefined, keyIsOfArguments: true }
      this.fill(
        position,
        call.providerExecuted === true
          ? Answers.providerExecuted(asked)
          : Answers.cancelledBeforeStart(asked, this.rare?.early.get(position) ?? this.stopped!)
      )
    })
    this.planned = true
    this.tryClose()
  }

  private close(): void {
    this.closed = true
    if (this.rare !== undefined) this.answerHeld(this.rare)
    const answers = this.slots as ReadonlyArray<AnyOutcome>
    if (this.setting.budgets === undefined) this.end(answers)
    else fitted(this, this.setting.budgets, answers, (outcomes) => this.end(outcomes))
  }

  private end(outcomes: ReadonlyArray<AnyOutcome>): void {
    const { around, emit, runtime, timers } = this.setting
    let unsettled = 0
    if (emit !== undefined) {
      for (const run of this.runs) if (runtime.unsettled.has(run)) unsettled++
      this.emit({ ...this.base(), _tag: "TurnEnded", unsettled })
    }
    timers.close(() => {
      const beside = around.parent?.nested
      beside?.delete(this)
      // What stands beside it in the same handler may wait for itself now.
      if (beside !== undefined) { for (const turn of beside) turn.touch() }
      runtime.later(() => {
        // Keys that were given back in this step are free by now.
        runtime.tidy(around.tenant)
        this.onClosed?.(outcomes)
      })
    })
  }

  /** What was held is pending, unless the turn was stopped (rule R18). */
  private answerHeld({ held, heldTwins }: Rare): void {
    for (const taken of held) {
      if (this.slots[taken.position] !== undefined) continue
      this.open++
      this.fill(
        taken.position,
        this.stopped === undefined ? Answers.pendingApproval(taken) : Answers.cancelledBeforeStart(taken, this.stopped)
      )
    }
    for (const { of, taken } of heldTwins) {
      if (this.slots[taken.position] !== undefined) continue
      this.open++
      this.fillAs(taken, this.slots[of]!)
    }
  }

  /** Calls of nested turns that wait for each other for ever are answered `deadlock` (rule R14). */
  private answerDeadlocks(): void {
    if (this.running > 0) return
    const stuck = this.runs.filter((run) => run.phase === "waiting")
    if (stuck.length === 0 || this.ready.length > 0) return
    const able = progressing(stuck)
    // An undo is the last to be given up.
    const first = stuck.find((run) => !able.has(run) && run.undoing === undefined) ??
      stuck.find((run) => !able.has(run))
    if (first === undefined) return
    // What it opens the way for is looked at next, and then whether that was enough.
    this.touch()
    this.notStarted(first, () =>
      Answers.refused(
        first,
        "deadlock",
        `it and a call of another turn wait for each other: it was not started, so that both turns can go on`
      ))
  }
}

const verdictOf = (outcome: AnyOutcome): Siblings.Verdict<AnyOutcome> =>
  outcome.status === "ok"
    ? Siblings.success
    : Outcome.isFailure(outcome)
    ? { _tag: "failure", failure: outcome }
    : Siblings.neutral

const isInterrupted = (cause: Cause.Cause<unknown>): boolean => Cause.hasInterrupts(cause) && !Cause.hasDies(cause)
