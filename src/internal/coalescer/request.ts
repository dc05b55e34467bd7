/**
 * One request: a lookup in a fiber of its own, with its time limit.
 *
 * - Q1: it is told to be over once, when the fiber of its lookup has ended, whatever ended it.
 * - Q2: what it is told to be: the items where the lookup answered; one error for all where it failed, answered with what cannot be
 *   paired, or was late. A lookup that is interrupted ends before it is over.
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import { type Found, type Keys, pair, type Words } from "./pairing.ts"
import type { Late, Soon } from "./soon.ts"
import { nameOf } from "./words.ts"

export interface Lookup {
  readonly lookup: (keys: any, request: { readonly tenant: string }) => Effect.Effect<unknown, unknown, any>
  readonly by: Keys
  readonly words: Words
  /** In milliseconds. */
  readonly timeout: number
  readonly soon: Soon
}

export class Running implements Late {
  private readonly of: Lookup
  private keys: ReadonlyArray<unknown>
  private texts: ReadonlyArray<string>
  private done: (exit: Exit.Exit<Found, unknown>) => void
  private fiber: Fiber.Fiber<unknown, unknown> | undefined = undefined
  private context: Context.Context<never> | undefined = undefined
  private timer: Fiber.Fiber<void> | undefined = undefined
  private ended: "late" | "left" | undefined = undefined
  private over = false
  private waiting: Array<() => void> | undefined = undefined

  constructor(
    of: Lookup,
    keys: ReadonlyArray<unknown>,
    texts: ReadonlyArray<string>,
    done: (exit: Exit.Exit<Found, unknown>) => void
  ) {
    this.of = of
    this.keys = keys
    this.texts = texts
    this.done = done
  }

  start(tenant: string, context: Context.Context<never>): void {
    // The lookup may do with its list what it likes: the answer is paired by another.
    const keys = this.keys.slice()
    const effect = Effect.suspend((): Effect.Effect<unknown, unknown> => {
      const looking: unknown = this.of.lookup(keys, { tenant })
      return Effect.isEffect(looking)
        ? looking as Effect.Effect<unknown, unknown>
        : Effect.succeed(new NoEffect(looking))
    })
    const fiber = this.fiber = Effect.runForkWith(context)(effect)
    fiber.addObserver((exit) => this.end(exit))
    if (this.over) return
    if (this.ended !== undefined) return fiber.interruptUnsafe()
    if (this.of.timeout === Infinity) return
    this.context = context
    this.of.soon.add(fiber, this)
  }

  arm(): void {
    if (this.over || this.ended !== undefined) return
    const timer = this.timer = Effect.runForkWith(this.context!)(Effect.sleep(this.of.timeout))
    timer.addObserver((exit) => {
      if (Exit.isSuccess(exit)) this.stop("late")
    })
  }

  private stop(why: "late" | "left"): void {
    if (this.over || this.ended !== undefined) return
    this.ended = why
    this.fiber?.interruptUnsafe()
  }

  /** Ends the lookup, at once; what it gives waits for that. */
  interrupt(): Effect.Effect<void> {
    this.stop("left")
    if (this.over) return Effect.void
    return Effect.callback<void>((resume) => {
      if (this.over) return resume(Effect.void)
      ;(this.waiting ??= []).push(() => resume(Effect.void))
    })
  }

  private end(exit: Exit.Exit<unknown, unknown>): void {
    this.over = true
    this.timer?.interruptUnsafe()
    const { done, waiting } = this
    const result = this.result(exit)
    // It may be in a list still of what is to be timed: it holds nothing there.
    this.keys = this.texts = []
    this.done = nobody
    this.context =
      this.fiber =
      this.timer =
      this.waiting =
        undefined
    done(result)
    for (const resume of waiting ?? []) resume()
  }

  private result(exit: Exit.Exit<unknown, unknown>): Exit.Exit<Found, unknown> {
    const { by, timeout, words } = this.of
    if (this.ended === "left") return Exit.interrupt()
    if (this.ended === "late") return Exit.fail(words.late(timeout))
    if (Exit.isSuccess(exit)) {
      return exit.value instanceof NoEffect
        ? Exit.fail(words.invalid(`expected an Effect from the lookup, and got ${nameOf(exit.value.came)}`))
        : pair(this.keys, this.texts, exit.value, by, words)
    }
    return Exit.fail(words.failed(errorOf(exit.cause)))
  }
}

const nobody = (): void => {}

/** What a lookup gave that is no effect. */
class NoEffect {
  readonly came: unknown
  constructor(came: unknown) {
    this.came = came
  }
}

/** What a lookup failed with, or died of. */
export const errorOf = (cause: Cause.Cause<unknown>): unknown => {
  const reason = cause.reasons.find(Cause.isFailReason) ?? cause.reasons.find(Cause.isDieReason)
  if (reason === undefined) return new Error("the lookup was interrupted")
  return Cause.isFailReason(reason) ? reason.error : reason.defect
}
