/**
 * What stands between a free permit and its taking: the circuit of the backend, then its rate. Both are Effect's own, so that their
 * stores may be shared by processes.
 *
 * - G1: whoever passes has been admitted by the circuit, and then a token was taken for it. Nothing is asked while nobody could be
 *   served.
 * - G2: one question at a time, in the order of the line. What the stores answer at once is passed at once.
 * - G3: an admission is ended once, with what became of the work; one that nobody takes any more is ended as ignored. Nobody passes
 *   before the store has taken that.
 * - G4: nobody passes on an admission from before the circuit opened: it is asked again.
 * - G5: no fiber of the gate's runs while nobody waits, no admission is out, and nothing is being recorded. Its layer stops nobody when it
 *   closes: a turn that is awaited, for one, is served to the end.
 */
import type * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import type * as RateLimiter from "effect/persistence/RateLimiter"

/** So many starts in a window of so many milliseconds. */
export interface Rate {
  readonly limit: number
  readonly window: number
}

/** What the end of some work says of its backend. */
export type Verdict = "success" | "failure" | "ignored"

/** Why work was not started; times are in milliseconds. */
export type Refusal =
  | { readonly _tag: "QueueFull"; readonly queueLimit: number }
  | {
    readonly _tag: "CircuitOpen"
    /** How long it stays open, and until when; undefined while it is being tried out. */
    readonly retryAfter: number | undefined
    readonly until: number | undefined
  }
  | {
    readonly _tag: "StoreUnavailable"
    readonly store: "rate" | "circuit"
    readonly cause: Cause.Cause<unknown>
  }

/** The circuit let some work in, and waits to be told what became of it. */
export class Admission {
  readonly end: (verdict: Verdict) => void
  constructor(end: (verdict: Verdict) => void) {
    this.end = end
  }
}

/** Let through; what is covered by an ancestor's admission has none of its own. */
export interface Pass {
  readonly _tag: "Pass"
  readonly admission: Admission | undefined
}

/** A question to the circuit that has no answer yet. */
interface Asked {
  fiber: Fiber.Fiber<unknown, unknown> | undefined
}

const verdicts: Record<Verdict, CircuitBreaker.Outcome> = {
  success: CircuitBreaker.success,
  failure: CircuitBreaker.failure(),
  ignored: CircuitBreaker.ignored
}

const classify = (exit: Exit.Exit<Verdict>): CircuitBreaker.Outcome =>
  Exit.isSuccess(exit) ? verdicts[exit.value] : CircuitBreaker.ignored

const isOfCircuit = (refusal: Refusal): boolean =>
  refusal._tag === "CircuitOpen" || (refusal as any).store === "circuit"

/** The first typed error of an exit. */
const errorOf = (exit: Exit.Failure<unknown, unknown>): unknown => {
  for (const reason of exit.cause.reasons) if (reason._tag === "Fail") return reason.error
  return undefined
}

export class Gate {
  rate: Rate | undefined = undefined
  /** Does what has become possible; not called for what is answered at once. */
  onNews: () => void = () => {}
  private readonly key: string
  private readonly context: Context.Context<never>
  private readonly clock: Clock.Clock
  private readonly limiter: RateLimiter.RateLimiter
  private readonly breaker: CircuitBreaker.CircuitBreaker | undefined

  /** Asks the rate's store, or sleeps until it is worth asking again. */
  private waiting: Fiber.Fiber<unknown, unknown> | undefined = undefined
  private sleeps = false
  private token = false
  /** What is left of the window, as far as it is known here. */
  private room = Infinity
  private roomUntil = 0
  /** Since when the line has stood still for the rate, and how long it has before. */
  private stillSince: number | undefined = undefined
  private stood = 0

  private asked: Asked | undefined = undefined
  private admission: Admission | undefined = undefined
  /** Ends of work that the circuit's store has not taken yet. */
  private recording = 0
  private readonly ending = new Set<Fiber.Fiber<unknown, unknown>>()
  /** Until when the circuit is open; a time that has passed: it is half-open. */
  private openUntil: number | undefined = undefined
  private probe: Admission | undefined = undefined

  private refusal: Refusal | undefined = undefined

  constructor(
    key: string,
    context: Context.Context<never>,
    limiter: RateLimiter.RateLimiter,
    breaker: CircuitBreaker.CircuitBreaker | undefined
  ) {
    this.key = key
    this.context = context
    this.clock = Context.get(context, Clock.Clock)
    this.limiter = limiter
    this.breaker = breaker
  }

  get hasCircuit(): boolean {
    return this.breaker !== undefined
  }

  get circuit(): "closed" | "open" | "half_open" | undefined {
    if (this.breaker === undefined) return undefined
    if (this.openUntil === undefined) return "closed"
    return this.openUntil > this.now() ? "open" : "half_open"
  }

  private now(): number {
    return this.clock.currentTimeMillisUnsafe()
  }

  /** How long the line has stood still for the rate, in all. */
  get stoodStill(): number {
    return this.stood + (this.stillSince === undefined ? 0 : this.now() - this.stillSince)
  }

  /** Whether what could be served has to wait for a token. */
  get standsStill(): boolean {
    return this.stillSince !== undefined
  }

  /** How many may start now, as far as the rate goes and this process knows. */
  get left(): number {
    return this.rate === undefined || this.now() >= this.roomUntil ? this.rate?.limit ?? Infinity : this.room
  }

  /** Another rate: what was asked under the old one is asked again. */
  setRate(rate: Rate | undefined): void {
    if (rate?.limit === this.rate?.limit && rate?.window === this.rate?.window) return
    this.rate = rate
    this.roomUntil = 0
    if (this.sleeps || rate === undefined) this.stopWaiting()
    if (rate === undefined) this.goesOn()
  }

  /** Whether new work is refused before it takes a place in the line: the circuit is open, or being tried out. */
  refuses(): Refusal | undefined {
    if (this.openUntil === undefined) return undefined
    const retryAfter = this.openUntil - this.now()
    if (retryAfter > 0) return { _tag: "CircuitOpen", retryAfter, until: this.openUntil }
    return this.probe === undefined ? undefined : { _tag: "CircuitOpen", retryAfter: undefined, until: undefined }
  }

  /** Lets one through or refuses it; undefined when that is not known yet: then there will be news. */
  next(covered: boolean): Pass | Refusal | undefined {
    const refusal = this.takeRefusal(covered)
    if (refusal !== undefined) return refusal
    const asks = !covered && this.breaker !== undefined
    // What is in hand is from before the circuit opened, unless it is the probe's.
    if (asks && this.openUntil !== undefined && (this.admission === undefined || this.admission !== this.probe)) {
      this.giveUp()
      const known = this.refuses()
      if (known !== undefined) return known
    }
    if (this.waiting !== undefined || (asks && this.recording > 0)) return undefined
    if (asks && this.admission === undefined) {
      if (this.asked !== undefined) return undefined
      this.admit(this.breaker!)
      const refusal = this.takeRefusal(covered)
      if (refusal !== undefined) return refusal
      if (this.admission === undefined) return undefined
    }
    if (this.rate !== undefined && !this.token) {
      this.take(this.rate)
      const refusal = this.takeRefusal(covered)
      if (refusal !== undefined) return refusal
      if (!this.token) return undefined
    }
    this.token = false
    if (!asks) return { _tag: "Pass", admission: undefined }
    const { admission } = this
    this.admission = undefined
    return { _tag: "Pass", admission }
  }

  private takeRefusal(covered: boolean): Refusal | undefined {
    const { refusal } = this
    if (refusal === undefined || (covered && isOfCircuit(refusal))) return undefined
    this.refusal = undefined
    return refusal
  }

  /** Nobody waits for the circuit any more. */
  drop(): void {
    if (this.refusal !== undefined && isOfCircuit(this.refusal)) this.refusal = undefined
    const { asked } = this
    if (asked !== undefined) {
      this.asked = undefined
      this.recording++
      asked.fiber?.interruptUnsafe()
    }
    this.giveUp()
  }

  /** The admission in hand is for nobody. */
  private giveUp(): void {
    const { admission } = this
    this.admission = undefined
    admission?.end("ignored")
  }

  /** Nobody waits any more. */
  rest(): void {
    if (this.breaker !== undefined) this.drop()
    this.stopWaiting()
    this.refusal = undefined
    this.token = false
    this.goesOn()
  }

  /** What has ended is recorded. */
  readonly recorded: Effect.Effect<void> = Effect.suspend(() => Effect.asVoid(Fiber.awaitAll(this.ending)))

  private stopWaiting(): void {
    const { waiting } = this
    this.waiting = undefined
    this.sleeps = false
    waiting?.interruptUnsafe()
  }

  private goesOn(): void {
    if (this.stillSince === undefined) return
    this.stood += this.now() - this.stillSince
    this.stillSince = undefined
  }

  /** Runs something that others wait for; what is over at once is no news. */
  private wait<A, E>(effect: Effect.Effect<A, E>, then: (exit: Exit.Exit<A, E>) => void): void {
    const fiber = Effect.runForkWith(this.context)(effect)
    this.waiting = fiber
    let atOnce = true
    fiber.addObserver((exit) => {
      if (this.waiting !== fiber) return
      this.waiting = undefined
      this.sleeps = false
      then(exit)
      if (!atOnce && this.waiting === undefined) this.onNews()
    })
    atOnce = false
  }

  /**
   * Takes a token, or finds out how long there will be none. It is never taken in advance: one that is stopped while it waits
   * has cost nothing.
   */
  private take(rate: Rate): void {
    this.stillSince ??= this.now()
    const question = this.limiter.consume({
      key: this.key,
      limit: rate.limit,
      window: rate.window,
      algorithm: "fixed-window",
      onExceeded: "fail"
    })
    this.wait(question, (exit) => {
      if (Exit.isSuccess(exit)) {
        this.token = true
        this.room = exit.value.remaining
        this.roomUntil = this.now() + Duration.toMillis(exit.value.resetAfter)
        return this.goesOn()
      }
      const error = errorOf(exit) as RateLimiter.RateLimiterError | undefined
      if (error?.reason?._tag === "RateLimitExceeded") return this.sleep(Duration.toMillis(error.reason.retryAfter))
      this.refusal = { _tag: "StoreUnavailable", store: "rate", cause: exit.cause }
      this.goesOn()
    })
  }

  private sleep(millis: number): void {
    // Whole milliseconds: what is left of a window may be less than a clock can tell.
    const left = Math.max(1, Math.ceil(millis))
    this.room = 0
    this.roomUntil = this.now() + left
    this.wait(Effect.sleep(left), () => {})
    this.sleeps = this.waiting !== undefined
  }

  /** Asks the circuit. The admission is an effect of the breaker's that goes on for as long as the work does. */
  private admit(breaker: CircuitBreaker.CircuitBreaker): void {
    const asked: Asked = { fiber: undefined }
    this.asked = asked
    let given: Admission | undefined
    // What happens while a caller looks on is no news.
    let atOnce = true
    const working = Effect.callback<Verdict>((resume) => {
      // Nobody wants it any more: its end is awaited already.
      if (this.asked !== asked) return resume(Effect.succeed("ignored"))
      const admission = given = new Admission((verdict) => {
        if (this.probe === admission) this.probe = undefined
        this.recording++
        const before = atOnce
        atOnce = true
        if (asked.fiber !== undefined) this.ending.add(asked.fiber)
        resume(Effect.succeed(verdict))
        atOnce = before
      })
      // Admitted while it was still closed, it tries out nothing.
      if (this.openUntil !== undefined && this.openUntil <= this.now()) this.probe = admission
      this.asked = undefined
      this.admission = admission
      if (!atOnce) this.onNews()
    })
    // Another process may have closed the circuit meanwhile: then this is no probe.
    const looking = Effect.suspend(() =>
      this.openUntil === undefined ? working : Effect.andThen(this.look(breaker), working)
    )
    const whole = Effect.exit(breaker.execute(looking, { key: this.key, classify })).pipe(
      Effect.tap(() => given === undefined ? Effect.void : this.look(breaker))
    )
    const fiber = Effect.runForkWith(this.context)(whole)
    asked.fiber = fiber
    fiber.addObserver((exit) => {
      this.ending.delete(fiber)
      if (this.asked === asked) {
        this.asked = undefined
        this.refusal = this.rejected(Exit.isSuccess(exit) ? exit.value : exit)
      } else if (this.recording > 0) this.recording--
      if (!atOnce) this.onNews()
    })
    atOnce = false
  }

  /** What the store says of the circuit; what it cannot say leaves things as they are known. */
  private look(breaker: CircuitBreaker.CircuitBreaker): Effect.Effect<void> {
    return Effect.map(Effect.exit(breaker.state(this.key)), (exit) => {
      if (!Exit.isSuccess(exit)) return
      const state = exit.value
      if (state._tag === "Closed") this.openUntil = undefined
      else if (state._tag === "Open") this.openUntil = this.now() + Duration.toMillis(state.retryAfter)
      else this.openUntil = Math.min(this.openUntil ?? Infinity, this.now())
    })
  }

  private rejected(exit: Exit.Exit<unknown, unknown>): Refusal | undefined {
    if (Exit.isSuccess(exit)) return undefined
    const reason = (errorOf(exit) as CircuitBreaker.CircuitBreakerError | undefined)?.reason
    switch (reason?._tag) {
      case "CircuitOpen": {
        const retryAfter = Math.max(1, Duration.toMillis(reason.retryAfter))
        this.openUntil = this.now() + retryAfter
        return { _tag: "CircuitOpen", retryAfter, until: this.openUntil }
      }
      case "CircuitHalfOpen":
        this.openUntil ??= this.now()
        return { _tag: "CircuitOpen", retryAfter: undefined, until: undefined }
      default:
        return { _tag: "StoreUnavailable", store: "circuit", cause: exit.cause }
    }
  }
}
