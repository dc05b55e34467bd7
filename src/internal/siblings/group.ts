/**
 * The core of structured siblings: members that start, end, are stopped together and are waited for. `Siblings` puts plain
 * effects on it, `Turn` puts runs of calls on it.
 *
 * - S1: a member ends once, with the exit of its fiber; nothing is taken from a fiber that still runs.
 * - S2: after a stop no member is started, and each that had started is interrupted unless it is protected.
 * - S3: the first stop stands: its reason is everybody's, later ones change nothing.
 * - S4: `open` is the number of members without an end; whoever waits for the group waits for 0.
 */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"

export interface StopReason {
  readonly code: "by_caller" | "by_sibling" | "by_deadline"
  readonly reason?: string | undefined
}

/** What a member's end means for its siblings. */
export type Verdict<F> =
  | { readonly _tag: "success" }
  | { readonly _tag: "failure"; readonly failure: F }
  | { readonly _tag: "neutral" }

export const success: Verdict<never> = { _tag: "success" }
export const neutral: Verdict<never> = { _tag: "neutral" }

/** Decides after each end whether the others go on. `successes` counts those so far, this one included. */
export interface Policy<in F> {
  readonly name: string
  readonly stops: (verdict: Verdict<F>, successes: number) => boolean
  /** Whether the successes are undone unless all members succeed. */
  readonly undoes?: boolean | undefined
}

const bySibling: StopReason = { code: "by_sibling" }

export abstract class Member<F> {
  readonly group: Group<F>
  fiber: Fiber.Fiber<unknown, unknown> | undefined = undefined
  /** A member is waiting, then running, then ended; or ended at once. */
  phase: "waiting" | "running" | "ended" = "waiting"

  constructor(group: Group<F>) {
    this.group = group
    group.members.push(this)
    group.open++
  }

  /** Told to stop before its start: it has to end itself, as not started. */
  abstract skip(reason: StopReason): void
  /** Told to stop after its start: it interrupts its fiber, unless it is protected. */
  abstract stop(reason: StopReason): void
  /** Its fiber exists: what was told it during its first steps is done now. */
  abstract started(): void
  /** Its fiber has ended. */
  abstract settle(exit: Exit.Exit<unknown, unknown>): void
}

export class Group<F> {
  readonly policy: Policy<F>
  members: Array<Member<F>> = []
  open = 0
  stopped: StopReason | undefined = undefined
  private successes = 0

  constructor(policy: Policy<F>) {
    this.policy = policy
  }

  /** Starts a member's work in a fiber of its own; it runs to its first asynchronous point before this returns. */
  run(member: Member<F>, effect: Effect.Effect<unknown, unknown, any>, context: Context.Context<never>): void {
    member.phase = "running"
    const fiber = Effect.runForkWith(context)(effect as Effect.Effect<unknown, unknown>)
    const exit = fiber.pollUnsafe()
    if (exit !== undefined) return member.settle(exit)
    member.fiber = fiber
    fiber.addObserver((exit) => member.settle(exit))
    member.started()
  }

  /** Counts a member's end, and stops the others when the policy says so. */
  ended(member: Member<F>, verdict: Verdict<F>): void {
    member.phase = "ended"
    this.open--
    if (verdict._tag === "success") this.successes++
    if (this.stopped === undefined && this.open > 0 && this.decides(verdict)) this.stop(bySibling)
  }

  /** A policy of somebody's own that throws stops the others, as a predicate that throws does. */
  private decides(verdict: Verdict<F>): boolean {
    try {
      return this.policy.stops(verdict, this.successes)
    } catch {
      return true
    }
  }

  stop(reason: StopReason): void {
    if (this.stopped !== undefined) return
    this.stopped = reason
    // Waiting members first: what a stopped one gives free must start nobody.
    for (const member of this.members) if (member.phase === "waiting") member.skip(reason)
    for (const member of this.members) if (member.phase === "running") member.stop(reason)
  }
}
