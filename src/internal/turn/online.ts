/**
 * The intake of a turn whose calls come one by one, while the model still speaks (rule R13).
 *
 * - O1: a call takes its place when it comes, in the order of coming; one whose arguments take time to decode holds up those behind it.
 * - O2: before the end of the list only reads start. All else, refusals included, waits for it: a response may yet turn out to have been
 *   cut short, and then nothing of it counts but what has begun.
 * - O3: what is decided at the end of the list is what would have been decided had all been known.
 */
import type * as Effect from "effect/Effect"
import * as ToolCall from "../../ToolCall.ts"
import * as TurnError from "../../TurnError.ts"
import * as TurnPlan from "../../TurnPlan.ts"
import * as Answers from "./answers.ts"
import { checkCall, missingService, refuseRepeated } from "./checks.ts"
import { cutShort, type Intake, type Taken } from "./intake.ts"
import { type Checked, invalidInput } from "./options.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"
import type { AnyToolkit, Runner } from "./tool.ts"

interface Postponed {
  readonly taken: Taken
  call: TurnPlan.PlannedCall
}

export class Online {
  /** The list is not at its end. */
  more = true
  private readonly state: TurnState
  private readonly calls: Array<ToolCall.ToolCall>
  private readonly intake: Intake
  private readonly options: Checked
  private readonly toolkit: AnyToolkit
  private readonly planner: TurnPlan.Planner
  /** Positions that have not been taken in. */
  private readonly waiting: Array<number> = []
  private busy = false
  /** Ends the decoding that holds up the others: the turn was stopped. */
  private giveUp: (() => void) | undefined = undefined
  private ended: { readonly reason: ToolCall.FinishReason | undefined } | undefined = undefined
  private readonly gated = new Set<Run>()
  private readonly postponed = new Map<number, Postponed>()
  private held: TurnPlan.Claims | undefined = undefined
  /** Runs whose clocks for waiting have to be set. */
  private fresh: Array<Run> = []

  constructor(
    state: TurnState,
    calls: Array<ToolCall.ToolCall>,
    intake: Intake,
    options: Checked,
    toolkit: AnyToolkit
  ) {
    this.state = state
    this.calls = calls
    this.intake = intake
    this.options = options
    this.toolkit = toolkit
    this.planner = new TurnPlan.Planner(options)
    if (options.references !== undefined) this.planner.refer()
  }

  submit(call: ToolCall.ToolCall): TurnError.TurnError | undefined {
    const bad = this.check(call, this.calls.length, undefined)
    if (bad !== undefined) return bad
    this.state.step(() => {
      this.add(call)
      this.advance()
    })
    return undefined
  }

  private check(
    call: ToolCall.ToolCall,
    position: number,
    reason: ToolCall.FinishReason | undefined
  ): TurnError.TurnError | undefined {
    const bad = checkCall(call, `call #${position}`)
    if (bad !== undefined) return bad
    if (this.ended !== undefined) {
      if (this.state.setting.runtime.closed) return TurnError.make(new TurnError.ShutDown({}))
      return invalidInput(`call #${position} of the turn`, "no call after `end` or `cancel`", call.name)
    }
    return call.providerExecuted === true || ToolCall.isCutShort(reason)
      ? undefined
      : missingService(call, this.toolkit, this.intake, this.state.setting.around)
  }

  private add(call: ToolCall.ToolCall): void {
    this.waiting.push(this.calls.length)
    this.calls.push(call)
    this.state.addSlot()
  }

  /** The list is complete. Only the first end counts. */
  end(reason: ToolCall.FinishReason | undefined): void {
    this.endWith([], reason)
  }

  /** These calls are the last ones: none of them starts before it is known how the response ended. */
  endWith(
    calls: ReadonlyArray<ToolCall.ToolCall>,
    reason: ToolCall.FinishReason | undefined
  ): TurnError.TurnError | undefined {
    for (const [at, call] of calls.entries()) {
      const bad = this.check(call, this.calls.length + at, reason)
      if (bad !== undefined) return bad
    }
    if (this.ended !== undefined) return undefined
    this.ended = { reason }
    this.state.step(() => {
      for (const call of calls) this.add(call)
      this.intake.close()
      this.advance()
    })
    return undefined
  }

  isQueued(position: number): boolean {
    return this.waiting.includes(position) || this.planner.isAside(position)
  }

  private advance(): void {
    while (!this.busy && this.waiting.length > 0) {
      const position = this.waiting[0]!
      // It may name a call that is still to come, and then its place is behind that.
      if (this.intake.mayNameLater(this.calls[position]!)) return
      const one = this.intake.take(this.calls[position]!, position)
      // What comes after a stop is not run, whatever its arguments are.
      if (one.pending === undefined || this.state.stopped !== undefined) this.place(one)
      else this.wait(one, one.pending)
    }
    if (!this.busy && this.ended !== undefined && this.more) this.finish(this.ended.reason)
  }

  private wait(one: Taken, pending: Effect.Effect<void, never, any>): void {
    this.busy = true
    let later = false
    let placed = false
    const over = () => {
      if (placed) return
      placed = true
      this.busy = false
      this.giveUp = undefined
      this.place(one)
      // What is over at once is followed by the caller.
      if (later) this.advance()
    }
    const fiber = this.state.helper(pending, over)
    if (placed) return
    later = true
    this.giveUp = () => {
      fiber.interruptUnsafe()
      over()
    }
    this.state.setting.timers.arm()
  }

  /** The turn was stopped: no decoding is waited for. */
  stopped(): void {
    this.giveUp?.()
  }

  private readonly runnerOf = (taken: Taken): Runner =>
    this.state.setting.around.runner(this.toolkit, taken.tool!) as Runner

  private place(one: Taken): void {
    const { planner, state } = this
    this.waiting.shift()
    if (this.options.repeats !== Infinity) refuseRepeated(state.setting, one)
    planner.see(one)
    planner.add(one, true, this.placed)
  }

  private readonly placed = (entry: TurnPlan.Entry, call: TurnPlan.PlannedCall): void => {
    const { state } = this
    const one = entry as Taken
    const { position } = one
    if (call.code === "ambiguous_id") this.isAmbiguous(call)
    switch (call.verdict) {
      case "provider_executed":
      case "held":
        return state.takeOver(one, call, this.runnerOf)
      case "duplicate":
        if (this.postponed.has(call.duplicateOf!)) break
        return state.takeOver(one, call, this.runnerOf)
      case "run":
        return this.run(one, call)
      case "deferred":
        if (one.asking !== undefined) return this.run(one, call)
    }
    this.postponed.set(position, { taken: one, call })
    state.touch()
  }

  private run(one: Taken, call: TurnPlan.PlannedCall): void {
    const { state } = this
    state.takeOver(one, call, this.runnerOf)
    const run = state.runOf(one.position)!
    const early = state.earlyStop(one.position)
    if (early !== undefined) return run.skip(early)
    const { asking, keys } = one
    if (this.held?.conflicts({ write: one.access === "write", keys }) === true) run.behindHeld = true
    // Arguments that take time to decode may be ready after the end.
    if (one.access === "write" || ToolCall.isCutShort(this.ended?.reason)) this.gate(run)
    if (run.behindHeld && asking === undefined && one.needs === undefined) {
      // It will not be run: it takes no place. What needs a result may yet turn out to touch something else.
      this.gate(run)
      return state.touch()
    }
    run.since = state.setting.timers.now()
    state.takePlace(run)
    this.fresh.push(run)
    state.needs?.add(run)
    if (asking !== undefined && run.phase === "waiting") state.question(run, asking)
    state.touch()
  }

  /** A call is held: later ones that conflict with it will be deferred. */
  holds(run: Run): void {
    const { access, keys } = run.taken
    ;(this.held ??= new TurnPlan.Claims()).claim(new TurnPlan.Node(run), { write: access === "write", keys })
  }

  gate(run: Run): void {
    run.gated = true
    // It waits for the end of the list now, which has no clock.
    if (run.timer !== undefined) run.timer.off = true
    this.gated.add(run)
  }

  /** An id turns out to stand for other content too: none of its calls runs, but for what has begun (rules R2, R11). */
  private isAmbiguous({ code, id, message, position }: TurnPlan.PlannedCall): void {
    for (let at = this.planner.firstOf(id)!; at < position; at++) {
      if (this.calls[at]!.id !== id) continue
      const postponed = this.postponed.get(at)
      if (postponed === undefined) this.state.refuse(at, "ambiguous_id", message!)
      else postponed.call = { ...postponed.call, verdict: "refused", code: code!, message: message! }
    }
  }

  /** Sets the clocks of those that came since the last time and still wait. */
  timeWaits(time: (run: Run) => void): void {
    if (this.fresh.length === 0) return
    for (const run of this.fresh) if (!run.gated) time(run)
    this.fresh = []
  }

  private finish(reason: ToolCall.FinishReason | undefined): void {
    const { planner, postponed, state } = this
    this.more = false
    state.touch()
    planner.close(this.placed)
    if (ToolCall.isCutShort(reason)) {
      const message = cutShort(reason!)
      // Where a stop let go of the response, what was half said was stopped too: nobody is told to call again.
      const { stopped } = state
      for (const { taken } of postponed.values()) {
        state.fill(
          taken.position,
          stopped === undefined
            ? Answers.refused(taken, "incomplete_response", message)
            : Answers.cancelledBeforeStart(taken, stopped)
        )
      }
      return state.refuseUnstarted("incomplete_response", message)
    }
    planner.finish()
    for (const { call, taken } of postponed.values()) state.takeOver(taken, call, this.runnerOf)
    state.weigh(planner.plan)
    for (const run of this.gated) {
      run.gated = false
      if (run.phase !== "waiting" || run.concluding) continue
      if (run.refusal !== undefined) {
        state.conclude(run, run.refusal)
        continue
      }
      this.fresh.push(run)
      if (!run.undecided) state.isFree(run)
    }
  }
}
