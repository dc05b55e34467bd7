/**
 * What happens to the others when one fails, as combinators over any effects: let-finish, fail-fast, fail-fast on a predicate,
 * quorum, all or nothing, protected members. No fiber is left behind, the first failure is kept apart from the cancellations, and
 * an interruption from above waits for every member.
 *
 * A `Turn` runs its calls on the same core.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { dual } from "effect/Function"
import {
  Group,
  Member,
  neutral,
  type Policy as CorePolicy,
  type StopReason,
  success
} from "./internal/siblings/group.ts"
import * as TurnError from "./TurnError.ts"

/**
 * What the end of one member means for the others. `F` is what a failure is: a `Cause` for plain effects, an `Outcome` for the
 * calls of a turn.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Policy<in F = unknown> extends CorePolicy<F> {
  readonly undoes?: false | undefined
}

/**
 * The policy {@link allOrNothing}. It is a type of its own, since {@link all} asks its members what undoes them.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface AllOrNothing<in F = unknown> extends CorePolicy<F> {
  readonly undoes: true
}

/**
 * A failing member changes nothing for the others. The default of a turn.
 *
 * @category policies
 * @since 0.1.0
 * @stability experimental
 */
export const letFinish: Policy = { name: "letFinish", stops: () => false }

/**
 * The first failure starts nothing new, interrupts what may be interrupted, and waits for the rest.
 *
 * @category policies
 * @since 0.1.0
 * @stability experimental
 */
export const failFast: Policy = { name: "failFast", stops: (verdict) => verdict._tag === "failure" }

/**
 * As {@link failFast}, for failures that satisfy a predicate. A predicate that throws counts as satisfied.
 *
 * @category policies
 * @since 0.1.0
 * @stability experimental
 */
export const failFastWhen = <F>(predicate: (failure: F) => boolean): Policy<F> => ({
  name: "failFastWhen",
  stops: (verdict) => {
    if (verdict._tag !== "failure") return false
    try {
      return predicate(verdict.failure)
    } catch {
      return true
    }
  }
})

/**
 * The first `n` successes are enough: the others are then stopped as by a sibling. Failures change nothing.
 *
 * **Details**
 *
 * `n` is a whole number from 1; anything else is thrown here.
 *
 * @category policies
 * @since 0.1.0
 * @stability experimental
 */
export const quorum = (n: number): Policy => {
  const enough = TurnError.wholeNumber("Siblings.quorum", "n", n)
  return { name: "quorum", stops: (verdict, successes) => verdict._tag === "success" && successes >= enough }
}

/**
 * As {@link failFast}, and then what had succeeded is undone: all members succeed, or nothing of them stands.
 *
 * **Details**
 *
 * The first failure starts nothing new, interrupts what may be interrupted, and waits for the rest. Then the successes are undone, the
 * last to succeed first, one after the other, and never interrupted. An undo that fails does not keep the others from being done.
 *
 * {@link all} takes members that are {@link undoable}, or say that they have {@link nothingToUndo}: a member that says neither does not
 * compile. In a turn, a tool says it with `ToolPolicy.undo`.
 *
 * @category policies
 * @since 0.1.0
 * @stability experimental
 */
export const allOrNothing: AllOrNothing = { name: "allOrNothing", stops: failFast.stops, undoes: true }

/**
 * What became of one member.
 *
 * **Details**
 *
 * - `Failed`: `first` is true for the failure that stopped the others, so that it is not lost among what followed.
 * - `Cancelled`: `by` a sibling's end, or by the member itself; `started` tells whether it had begun.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Settled<A, E> =
  | { readonly _tag: "Succeeded"; readonly value: A }
  | { readonly _tag: "Failed"; readonly cause: Cause.Cause<E>; readonly first: boolean }
  | { readonly _tag: "Cancelled"; readonly by: "sibling" | "itself"; readonly started: boolean }

/**
 * A member that had succeeded and was undone: nothing of it stands.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Undone<out A> {
  readonly _tag: "Undone"
  readonly value: A
}

/**
 * A member that succeeded and could not be undone: it stands, at least in part. `cause` is what the undo failed with.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface UndoFailed<out A, out UndoError> {
  readonly _tag: "UndoFailed"
  readonly value: A
  readonly cause: Cause.Cause<UndoError>
}

/**
 * What became of one {@link undoable} member under {@link allOrNothing}. `Succeeded` means that all members did.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type SettledOrUndone<A, E, UndoError> = Settled<A, E> | Undone<A> | UndoFailed<A, UndoError>

/** Says what undoes a member. It is also what the compiler names where it is missing. */
const undoes = "~effect-turn/Siblings.undoable, or Siblings.nothingToUndo"

/**
 * An effect whose success can be undone, see {@link undoable}.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Undoable<out A, out E = never, out UndoError = never, out R = never> extends Effect.Effect<A, E, R> {
  readonly [undoes]: (value: never) => Effect.Effect<unknown, UndoError, any>
}

/**
 * An effect that leaves nothing to undo, see {@link nothingToUndo}.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface NothingToUndo<out A, out E = never, out R = never> extends Effect.Effect<A, E, R> {
  readonly [undoes]: "nothing"
}

const protectedTag = new WeakSet<object>()

/**
 * Marks a member that is never interrupted once it has started: by no sibling, and not from above.
 *
 * **Details**
 *
 * The mark belongs to this effect value: put it on last. Its true end is reported, whatever the others did meanwhile.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const protect = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  const marked = Effect.suspend(() => self)
  protectedTag.add(marked)
  return marked
}

/**
 * Says how the success of a member is undone, where the policy is {@link allOrNothing}. Under any other nothing is undone.
 *
 * **Details**
 *
 * Once started it is not interrupted, no more than what `Effect.acquireRelease` acquires: cut half-way, nobody would know what to undo.
 * `interruptible` says that it cleans up by itself what an interruption leaves half done. Its services include those of its undo.
 *
 * An undo is not interrupted from outside; where it could hang, give it a limit of its own (`Effect.timeout`). The mark belongs to this
 * effect value: put it on last.
 *
 * **Example** (Two bookings, or none)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Siblings } from "effect-turn"
 *
 * const booked = new Set<string>()
 * const book = (what: string) =>
 *   Effect.sync(() => booked.add(what)).pipe(
 *     Effect.as(what),
 *     Siblings.undoable((what) => Effect.sync(() => booked.delete(what)))
 *   )
 * const soldOut = Siblings.nothingToUndo(Effect.fail("sold out"))
 *
 * const [hotel, flight] = await Effect.runPromise(
 *   Siblings.all([book("hotel"), soldOut], Siblings.allOrNothing)
 * )
 * const what = hotel._tag // => "Undone"
 * const why = flight._tag // => "Failed"
 * const left = booked.size // => 0
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const undoable: {
  <A, UndoError, R2>(
    undo: (value: A) => Effect.Effect<unknown, UndoError, R2>,
    options?: { readonly interruptible?: boolean | undefined }
  ): <E, R>(self: Effect.Effect<A, E, R>) => Undoable<A, E, UndoError, R | R2>
  <A, E, R, UndoError, R2>(
    self: Effect.Effect<A, E, R>,
    undo: (value: A) => Effect.Effect<unknown, UndoError, R2>,
    options?: { readonly interruptible?: boolean | undefined }
  ): Undoable<A, E, UndoError, R | R2>
} = dual(
  (args) => Effect.isEffect(args[0]),
  (
    self: AnyEffect,
    undo: (value: any) => AnyEffect,
    options?: { readonly interruptible?: boolean | undefined }
  ): AnyUndoable => {
    const marked = Object.assign(Effect.suspend(() => self), { [undoes]: undo })
    if (options?.interruptible !== true) protectedTag.add(marked)
    return marked
  }
)

/**
 * Says that a member changes nothing, where the policy is {@link allOrNothing}: it reads. Its success is kept, whatever the others come to.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const nothingToUndo = <A, E, R>(self: Effect.Effect<A, E, R>): NothingToUndo<A, E, R> =>
  Object.assign(Effect.suspend(() => self), { [undoes]: "nothing" as const })

class Plain extends Member<Cause.Cause<unknown>> {
  readonly index: number
  readonly effect: Effect.Effect<unknown, unknown, any>
  readonly done: (index: number, settled: Settled<unknown, unknown>) => void
  readonly guarded: boolean

  constructor(
    group: Group<Cause.Cause<unknown>>,
    index: number,
    effect: Effect.Effect<unknown, unknown, any>,
    done: (index: number, settled: Settled<unknown, unknown>) => void
  ) {
    super(group)
    this.index = index
    this.effect = effect
    this.done = done
    this.guarded = protectedTag.has(effect)
  }

  skip(_reason: StopReason): void {
    this.group.ended(this, neutral)
    this.done(this.index, { _tag: "Cancelled", by: "sibling", started: false })
  }

  stop(_reason: StopReason): void {
    if (!this.guarded) this.fiber?.interruptUnsafe()
  }

  started(): void {
    if (this.group.stopped !== undefined) this.stop(this.group.stopped)
  }

  settle(exit: Exit.Exit<unknown, unknown>): void {
    const stopped = this.group.stopped !== undefined
    if (Exit.isSuccess(exit)) {
      this.group.ended(this, success)
      return this.done(this.index, { _tag: "Succeeded", value: exit.value })
    }
    const { cause } = exit
    if (Cause.hasInterruptsOnly(cause) && stopped) {
      this.group.ended(this, neutral)
      return this.done(this.index, { _tag: "Cancelled", by: "sibling", started: true })
    }
    this.group.ended(this, { _tag: "failure", failure: cause })
    if (Cause.hasInterruptsOnly(cause)) return this.done(this.index, { _tag: "Cancelled", by: "itself", started: true })
    const first = !stopped && (this.group.stopped !== undefined || this.group.policy.undoes === true)
    this.done(this.index, { _tag: "Failed", cause, first })
  }
}

/**
 * How {@link all} runs its members besides the policy.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  /** How many members run at once: a whole number from 1, or `"unbounded"` (default). Started in order. */
  readonly concurrency?: number | "unbounded" | undefined
}

type AnyEffect = Effect.Effect<any, any, any>
type AnyUndoable = Undoable<any, any, any, any>
type Decided = AnyUndoable | NothingToUndo<any, any, any>

/**
 * What {@link all} gives for its input: a tuple for a tuple, a struct for a struct, an array for any other iterable.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type All<Members> = Members extends ReadonlyArray<AnyEffect> ? {
    -readonly [K in keyof Members]: Members[K] extends Effect.Effect<infer A, infer E, any> ? Settled<A, E> : never
  }
  : Members extends Iterable<Effect.Effect<infer A, infer E, any>> ? Array<Settled<A, E>>
  : {
    -readonly [K in keyof Members]: Members[K] extends Effect.Effect<infer A, infer E, any> ? Settled<A, E> : never
  }

/**
 * What {@link all} gives for its input where the policy is {@link allOrNothing}.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type AllOrUndone<Members> = Members extends ReadonlyArray<AnyEffect> ? {
    -readonly [K in keyof Members]: OneOf<Members[K]>
  }
  : Members extends Iterable<infer M> ? Array<OneOf<M>>
  : { -readonly [K in keyof Members]: OneOf<Members[K]> }

type OneOf<M> = M extends Undoable<infer A, infer E, infer UndoError, any> ? SettledOrUndone<A, E, UndoError>
  : M extends Effect.Effect<infer A, infer E, any> ? Settled<A, E>
  : never

/**
 * The services that the members need together.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Services<Members> = MemberOf<Members> extends infer M ?
  M extends Effect.Effect<any, any, infer R> ? R : never
  : never

type Failures<Members> = MemberOf<Members> extends infer M ? M extends Effect.Effect<any, infer E, any> ? E : never
  : never

type MemberOf<Members> = Members extends Iterable<infer M> ? M : Members[keyof Members]

/**
 * Runs effects side by side under a policy and tells what became of each.
 *
 * **Details**
 *
 * Takes a tuple, a struct or any iterable, in the manner of `Effect.all`. It never fails: failures are in the answer. It
 * returns when the last member has really ended, finalizers included. Interrupting it starts nothing new, interrupts the
 * members that are not protected, and waits for all of them.
 *
 * Under {@link allOrNothing} an interruption also waits until all that had succeeded is undone, also where all members had: nobody would get
 * the answer. What an undo then fails with is in the cause, as a defect beside the interruption.
 *
 * **Example** (One failure among siblings)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Siblings } from "effect-turn"
 *
 * const [a, b] = await Effect.runPromise(
 *   Siblings.all([Effect.fail("no"), Effect.never], Siblings.failFast)
 * )
 * const first = a._tag === "Failed" && a.first // => true
 * const second = b._tag === "Cancelled" && b.by // => "sibling"
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const all: {
  (
    policy: AllOrNothing,
    options?: Options
  ): <const Members extends Iterable<Decided> | Record<string, Decided>>(
    members: Members
  ) => Effect.Effect<AllOrUndone<Members>, never, Services<Members>>
  <E>(
    policy: Policy<Cause.Cause<E>>,
    options?: Options
  ): <const Members extends Iterable<Effect.Effect<any, E, any>> | Record<string, Effect.Effect<any, E, any>>>(
    members: Members
  ) => Effect.Effect<All<Members>, never, Services<Members>>
  <const Members extends Iterable<Decided> | Record<string, Decided>>(
    members: Members,
    policy: AllOrNothing,
    options?: Options
  ): Effect.Effect<AllOrUndone<Members>, never, Services<Members>>
  <const Members extends Iterable<AnyEffect> | Record<string, AnyEffect>>(
    members: Members,
    policy: Policy<Cause.Cause<NoInfer<Failures<Members>>>>,
    options?: Options
  ): Effect.Effect<All<Members>, never, Services<Members>>
} = dual(
  (args) => !isPolicy(args[0]),
  (
    members: Iterable<AnyEffect> | Record<string, AnyEffect>,
    policy: CorePolicy<any>,
    options?: Options
  ): Effect.Effect<any, never, any> => {
    const iterable = Symbol.iterator in members
    const names = iterable ? undefined : Object.keys(members)
    const effects = Array.from(iterable ? members as Iterable<AnyEffect> : Object.values(members))
    const limit = concurrencyOf(options?.concurrency)
    return Effect.map(runAll(effects, policy, limit), (settled) => {
      if (names === undefined) return settled
      return Object.fromEntries(names.map((name, i) => [name, settled[i]]))
    })
  }
)

const isPolicy = (u: { readonly stops?: unknown }): boolean => typeof u.stops === "function"

const concurrencyOf = (concurrency: number | "unbounded" | undefined): number =>
  concurrency === undefined || concurrency === "unbounded"
    ? Infinity
    : TurnError.wholeNumber("Siblings.all", "concurrency", concurrency, 1, ', or "unbounded"')

const runAll = (
  effects: ReadonlyArray<AnyEffect>,
  policy: CorePolicy<any>,
  limit: number
): Effect.Effect<Array<AnySettled>, never, any> =>
  Effect.withFiber((parent) => {
    const settled: Array<Settled<unknown, unknown>> = new Array(effects.length)
    const group = new Group<Cause.Cause<unknown>>(policy)
    let left = effects.length
    let closed = (): void => {}
    let next = 0
    let running = 0
    let starting = false
    const succeeded: Array<number> = []
    const done = (index: number, one: Settled<unknown, unknown>) => {
      settled[index] = one
      if (one._tag === "Succeeded") succeeded.push(index)
      running--
      if (--left === 0) closed()
      else startMore()
    }
    // One loop starts everybody: a member that ends at once must not deepen the stack.
    const startMore = () => {
      if (starting) return
      starting = true
      while (next < members.length && running < limit && group.stopped === undefined) {
        const member = members[next++]!
        running++
        group.run(member, member.effect, parent.context)
      }
      starting = false
    }
    const members = effects.map((effect, index) => new Plain(group, index, effect, done))
    const closing = (resume: (effect: Effect.Effect<Array<Settled<unknown, unknown>>>) => void) => {
      closed = () => resume(Effect.succeed(settled))
      if (left === 0) closed()
    }
    const ending = Effect.callback<Array<Settled<unknown, unknown>>>((resume) => {
      closing(resume)
      startMore()
      return Effect.suspend(() => {
        group.stop({ code: "by_caller" })
        return Effect.asVoid(Effect.callback(closing))
      })
    })
    return policy.undoes === true ? orNothing(ending, effects, settled, succeeded, parent.context) : ending
  })

type AnySettled = SettledOrUndone<unknown, unknown, unknown>

/** Waits for the end of all members, and undoes the successes unless there is nothing else and somebody to be told. */
const orNothing = (
  ending: Effect.Effect<unknown>,
  effects: ReadonlyArray<AnyEffect>,
  settled: Array<AnySettled>,
  succeeded: Array<number>,
  context: Context.Context<never>
): Effect.Effect<Array<AnySettled>> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function*() {
      yield* Effect.exit(restore(ending))
      // An interruption that came together with the last end counts too: the answer would be lost.
      const interruption = Effect.exit(restore(Effect.void))
      if (Exit.isSuccess(yield* interruption) && settled.every((one) => one._tag === "Succeeded")) return settled
      let left: Cause.Cause<never> = Cause.empty
      for (const index of succeeded.toReversed()) {
        const { [undoes]: undo } = effects[index] as Decided
        if (typeof undo !== "function") continue
        const { value } = settled[index] as Undone<unknown>
        const undoing = Effect.suspend(() => undo(value as never)) as Effect.Effect<unknown, unknown>
        // In a fiber of its own: nobody else can interrupt it, and a limit inside it works.
        const exit = yield* Fiber.await(Effect.runForkWith(context)(undoing))
        settled[index] = Exit.isSuccess(exit)
          ? { _tag: "Undone", value }
          : { _tag: "UndoFailed", value, cause: exit.cause }
        if (Exit.isFailure(exit)) left = Cause.combine(left, asDefects(exit.cause))
      }
      const interrupted = yield* interruption
      return Exit.isSuccess(interrupted) ? settled : yield* Effect.failCause(Cause.combine(interrupted.cause, left))
    })
  )

const asDefects = (cause: Cause.Cause<unknown>): Cause.Cause<never> =>
  Cause.fromReasons(
    cause.reasons.map((reason) => Cause.isFailReason(reason) ? Cause.makeDieReason(reason.error) : reason)
  )

type ErrorOf<M> = M extends { readonly _tag: "Failed" | "UndoFailed"; readonly cause: Cause.Cause<infer E> } ? E : never
type ValueOf<M> = M extends { readonly _tag: "Succeeded"; readonly value: infer A } ? A : never

/**
 * Takes the values out of what {@link all} gave, or fails with the failure that came first.
 *
 * **Details**
 *
 * The failure that stopped the others is taken before any other; without one, the first in order. A cancelled member without
 * any failure (a quorum was reached) is an interruption. What could not be undone follows in the cause, so that it is not lost.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const getOrFail = <
  const S extends
    | ReadonlyArray<SettledOrUndone<any, any, any>>
    | Record<string, SettledOrUndone<any, any, any>>
>(
  settled: S
): Effect.Effect<
  { -readonly [K in keyof S]: ValueOf<S[K]> },
  ErrorOf<S extends ReadonlyArray<infer M> ? M : S[keyof S]>
> => {
  const list: ReadonlyArray<SettledOrUndone<any, any, any>> = Array.isArray(settled) ? settled : Object.values(settled)
  const failures = list.filter((one) => one._tag === "Failed")
  const failed = failures.find((one) => one.first) ?? failures[0]
  if (list.some((one) => one._tag !== "Succeeded")) {
    const left = list.filter((one) => one._tag === "UndoFailed")
    return Effect.failCause(
      left.reduce((cause, one) => Cause.combine(cause, one.cause), failed?.cause ?? Cause.interrupt())
    )
  }
  const value = (one: SettledOrUndone<any, any, any>) => (one as { readonly value: unknown }).value
  return Effect.succeed(
    (Array.isArray(settled)
      ? settled.map(value)
      : Object.fromEntries(Object.entries(settled).map(([key, one]) => [key, value(one)]))) as any
  )
}

/** The core that a turn's calls run on too.
 *
 * @internal
 */
export { Group, Member, neutral, type StopReason, success, type Verdict } from "./internal/siblings/group.ts"

/** For what is told to stop, and may not hear it.
 *
 * @internal
 */
export { leavable } from "./internal/siblings/leavable.ts"
