/**
 * A named thing with limited capacity, shared by all turns of the process and by plain effects.
 *
 * A permit is taken last, after the keys, in one step with its release, and kept until the work has really ended. Tenants take
 * turns, and within a tenant the turns do; nobody starves. Work inside a handler inherits what its ancestors hold: it borrows
 * the permit of the call that it serves, one at a time, and so never waits for it.
 *
 * A backend may have a *rate* as well, how many may start in a window of time, and a *circuit*, which opens when it fails. Both are
 * Effect's own (`RateLimiter` and `CircuitBreaker` of `effect/persistence`): their stores are in memory, unless the context in which the
 * layer is built has others, such as those in Redis; then processes share them, by the backend's name.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as RateLimiter from "effect/persistence/RateLimiter"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Types from "effect/Types"
import { type Entry, Gate, type Limits, type Permit, Pool, type Refusal } from "./internal/backend/pool.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"

/**
 * A snapshot of a backend.
 *
 * **Details**
 *
 * `running` counts permits that are out, `waiting` what is in line. A permit that is lent to work inside its holder's counts
 * once; after a {@link Backend.resize} there may be more out than `concurrency`. `tenants` lists those that hold or wait for something.
 * Limits are as they are now, `Infinity` for none, the window of the rate in milliseconds. `circuit` is what this process knows of it,
 * undefined where there is none.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Stats {
  readonly concurrency: number
  readonly perTenant: number
  readonly queueLimit: number
  readonly rate: { readonly limit: number; readonly window: number } | undefined
  readonly circuit: "closed" | "open" | "half_open" | undefined
  readonly running: number
  readonly waiting: number
  readonly tenants: Record<string, { readonly running: number; readonly waiting: number }>
}

/**
 * How many may start in a window of time.
 *
 * **Details**
 *
 * `limit` is a whole number from 1, `window` a duration from one millisecond to 2^31-1. The windows are those of Effect's
 * `fixed-window`: one begins with a start, and one in which k starts took place lasts for k / `limit` of `window`, so that at most `limit`
 * start in a window, a full one lasts for `window`, and in the long run no more than `limit` start per `window`. After a pause
 * `limit` may start at once; in a span of time that lies across two windows it may be up to twice as many.
 *
 * A token is taken last, after the keys and when a permit is free, so that a call which is stopped while it waits has used none. Work
 * inside a handler that borrows its ancestor's permit is another request: it takes a token of its own. Waiting for a token counts as
 * waiting for the start (`ToolPolicy.waitTimeout`). Where processes share a store, whoever asks first gets the next token: the
 * fair turns of tenants are those of one process. While the store cannot be asked nothing starts: work is refused with
 * {@link StoreUnavailable}, a call is answered `store_unavailable`.
 *
 * **Example** (Two in each tenth of a second)
 *
 * ```ts import.meta.vitest
 * import { Clock, Effect } from "effect"
 * import { Backend } from "effect-turn"
 * import { Simulation } from "effect-turn/testing"
 *
 * class Maps extends Backend.Service<Maps>()("app/Maps") {}
 *
 * const program = Effect.forEach([1, 2, 3, 4], () => Maps.withPermit(Clock.currentTimeMillis), { concurrency: "unbounded" }).pipe(
 *   Effect.provide(Maps.layer({ concurrency: 8, rate: { limit: 2, window: "100 millis" } }))
 * )
 * const { exit } = await Effect.runPromise(Simulation.run(program))
 * const starts = exit?._tag === "Success" && exit.value // => [0, 0, 100, 100]
 * ```
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Rate {
  readonly limit: number
  readonly window: Duration.Input
}

/**
 * When the circuit of a backend opens, and for how long.
 *
 * **Details**
 *
 * - `tripPolicy`: `CircuitBreaker.consecutive(n)` or `CircuitBreaker.rate({ … })`, of `effect/persistence`.
 * - `openDuration`: a time, or a schedule for a time that grows with each opening. `maxOpenDuration` limits it. Default: 1 hour.
 * - `onStoreError`: what becomes of work when the circuit's store cannot be asked. `"allow"` (default) runs it unrecorded, `"fail"`
 *   refuses it: `store_unavailable`.
 *
 * **While it is open** work is refused at once, before it takes a place in the line, and what waits in the line when it reaches the front:
 * a call is answered `circuit_open`, not started. **Half-open**, when the time is over: the next one is the probe, and whatever
 * else comes, or reaches the front, is refused until that has ended. Its success closes the circuit, its failure opens it again for the next time. A probe that is stopped says
 * nothing, and the next one is the probe.
 *
 * **What counts as a failure**: a defect, a `timeout` of the handler, and a failure of the tool, unless the tool says by `ToolPolicy.failures` that
 * it changed nothing and is not transient. That is a backend that works and says no: it counts as a success, as a result does. What
 * was stopped, by whomever, counts as nothing. Of a plain effect every failure counts, but not an interruption.
 *
 * Work inside a handler that holds a permit of the backend is covered by the admission of its ancestor: it is neither refused nor
 * counted by itself, so that a probe can run its own requests. Nobody waits for the store to take what has become of work but the next
 * one that wants to start, and the layer when it closes.
 *
 * **Example** (Closed to everybody after two failures in a row)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Backend } from "effect-turn"
 * import { CircuitBreaker } from "effect/persistence"
 *
 * class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
 *
 * const program = Effect.gen(function*() {
 *   const search = Hotels.withPermit(Effect.fail("no answer"))
 *   yield* Effect.flip(search)
 *   yield* Effect.flip(search)
 *   return yield* search.pipe(Effect.catchTag("CircuitOpen", (error) => Effect.succeed(`${error.backend} is closed`)))
 * }).pipe(Effect.provide(
 *   Hotels.layer({
 *     concurrency: 2,
 *     breaker: { tripPolicy: CircuitBreaker.consecutive(2), openDuration: "30 seconds" }
 *   })
 * ))
 * const told = await Effect.runPromise(program) // => "app/Hotels is closed"
 * ```
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Breaker {
  readonly tripPolicy: CircuitBreaker.TripPolicy
  readonly openDuration: Duration.Input | Schedule.Schedule<unknown, number, never, never>
  readonly maxOpenDuration?: Duration.Input | undefined
  readonly onStoreError?: "allow" | "fail" | undefined
}

/**
 * The limits of a backend: whole numbers from 1, or `"infinite"`.
 *
 * **Details**
 *
 * - `queueLimit` is how many may wait (0: none), for a permit or for the rate; what finds no place is refused at once, as `queue_full`.
 *   Default: `"infinite"`.
 * - `rate` is how many may start in a window of time. Default: `"infinite"`.
 * - `breaker` is the circuit that opens when the backend fails. Default: none.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly concurrency: number | "infinite"
  readonly queueLimit?: number | "infinite" | undefined
  readonly rate?: Rate | "infinite" | undefined
  readonly breaker?: Breaker | undefined
}

/**
 * The limits of a backend that keeps a share for each tenant: no tenant holds more than `perTenant` permits.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TenantOptions extends Options {
  readonly perTenant: number | "infinite"
}

/**
 * Limits to be changed while the backend is at work. What is not there stays as it is.
 *
 * **Example** (A backend that has been given more room)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Backend } from "effect-turn"
 *
 * class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
 *
 * const program = Effect.andThen(Hotels.resize({ concurrency: 8 }), Hotels.stats).pipe(
 *   Effect.provide(Hotels.layer({ concurrency: 2, queueLimit: 100 }))
 * )
 * const { concurrency, queueLimit } = await Effect.runPromise(program)
 * const limits = [concurrency, queueLimit] // => [8, 100]
 * ```
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Resize {
  readonly concurrency?: number | "infinite" | undefined
  readonly perTenant?: number | "infinite" | undefined
  readonly queueLimit?: number | "infinite" | undefined
  readonly rate?: Rate | "infinite" | undefined
}

/**
 * What a backend's layer provides.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Backend {
  readonly name: string
  readonly stats: Effect.Effect<Stats>
  /**
   * Changes limits from now on. Where there is room for more, those that wait are served in the same step. Nothing that runs is
   * interrupted: smaller limits take effect as permits come back, and a shorter line keeps those that stand in it. Limits that cannot
   * be are refused, and change nothing.
   */
  readonly resize: (limits: Resize) => Effect.Effect<void, TurnError.TurnError>
  /** @internal */
  readonly pool: Pool
}

/**
 * A backend refused work because its line is full.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class QueueFull extends Schema.TaggedError<QueueFull>()("QueueFull", {
  backend: Schema.String,
  queueLimit: Schema.Number
}) {
  override get message(): string {
    return `backend "${this.backend}": expected a place in its line of ${this.queueLimit}, and the line is full`
  }
}

/**
 * A backend refused work because its circuit is open, or half-open with another probe at work: nothing was started. The times are there while
 * it is open.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class CircuitOpen extends Schema.TaggedError<CircuitOpen>()("CircuitOpen", {
  backend: Schema.String,
  /** How long it stays open, in milliseconds. */
  retryAfter: Schema.optionalKey(Schema.Number),
  /** Until when, in milliseconds since 1970. */
  until: Schema.optionalKey(Schema.Number)
}) {
  override get message(): string {
    const told = `the backend "${this.backend}" has failed too often: nothing was started`
    return this.retryAfter === undefined || this.until === undefined
      ? `${told}; one call tries it out, call again when that has its answer`
      : `${told}; it takes no calls for ${Math.ceil(this.retryAfter)} ms, until ${new Date(this.until).toISOString()}`
  }
}

/**
 * A backend refused work because the store of its rate, or of its circuit, could not be asked: nothing was started.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", {
  backend: Schema.String,
  store: Schema.Literals(["rate", "circuit"]),
  problem: Schema.String
}) {
  override get message(): string {
    return `the backend "${this.backend}" could not ask the store of its ${this.store}: nothing was started (${this.problem})`
  }
}

/**
 * Why a backend refuses work; nothing was started.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export type Refused = QueueFull | CircuitOpen | StoreUnavailable

/** @internal */
export const refused = (backend: string, why: Refusal): Refused => {
  switch (why._tag) {
    case "QueueFull":
      return new QueueFull({ backend, queueLimit: why.queueLimit })
    case "CircuitOpen":
      return new CircuitOpen({
        backend,
        ...(why.retryAfter === undefined ? undefined : { retryAfter: why.retryAfter }),
        ...(why.until === undefined ? undefined : { until: why.until })
      })
    case "StoreUnavailable":
      return new StoreUnavailable({ backend, store: why.store, problem: Cause.pretty(why.cause).split("\n")[0]! })
  }
}

/** What the current fiber's surroundings hold: a chain of permits.
 *
 * @internal
 */
export const Held = Context.Reference<Permit | undefined>("effect-turn/Backend/Held", { defaultValue: () => undefined })

const count = (owner: string, limit: string, value: unknown, least: 0 | 1): number =>
  value === "infinite"
    ? Infinity
    : TurnError.wholeNumber(`backend "${owner}"`, limit, value, least, ', or "infinite"')

const limitsOf = (name: string, options: Resize): Limits => ({
  concurrency: count(name, "concurrency", options.concurrency, 1),
  perTenant: options.perTenant === undefined ? Infinity : count(name, "perTenant", options.perTenant, 1),
  queueLimit: options.queueLimit === undefined ? Infinity : count(name, "queueLimit", options.queueLimit, 0),
  rate: options.rate === undefined || options.rate === "infinite" ? undefined : rateOf(name, options.rate)
})

const rateOf = (name: string, rate: Rate): Limits["rate"] => {
  const owner = `backend "${name}"`
  return {
    limit: TurnError.wholeNumber(owner, "rate.limit", (rate as Rate | null)?.limit),
    window: ToolPolicy.finiteMillis(owner, "rate.window", (rate as Rate | null)?.window)
  }
}

const resized = (name: string, now: Limits, limits: Resize): Limits => {
  const asked = limitsOf(name, limits.concurrency === undefined ? { ...limits, concurrency: "infinite" } : limits)
  return {
    concurrency: limits.concurrency === undefined ? now.concurrency : asked.concurrency,
    perTenant: limits.perTenant === undefined ? now.perTenant : asked.perTenant,
    queueLimit: limits.queueLimit === undefined ? now.queueLimit : asked.queueLimit,
    rate: limits.rate === undefined ? now.rate : asked.rate
  }
}

/** The options of a breaker, checked: what Effect's constructors refuse, and what a literal could get past them. */
const breakerOf = (name: string, breaker: Breaker): Breaker => {
  const owner = `backend "${name}"`
  const { maxOpenDuration, onStoreError, openDuration, tripPolicy } = breaker
  const refuse = (limit: string, expected: string, received: unknown) =>
    TurnError.make(new TurnError.InvalidLimit({ owner, limit, expected, received: TurnError.show(received) }))
  switch (tripPolicy?._tag) {
    case "Consecutive":
      TurnError.wholeNumber(owner, "breaker.tripPolicy.failures", tripPolicy.failures)
      break
    case "Rate": {
      const { minimumCalls, size, threshold } = tripPolicy
      if (!(threshold >= 0 && threshold <= 1)) {
        throw refuse("breaker.tripPolicy.threshold", "a number from 0 to 1", threshold)
      }
      TurnError.wholeNumber(owner, "breaker.tripPolicy.size", size)
      TurnError.wholeNumber(owner, "breaker.tripPolicy.minimumCalls", minimumCalls)
      if (minimumCalls > size) {
        throw refuse("breaker.tripPolicy.minimumCalls", `at most the size (${size})`, minimumCalls)
      }
      break
    }
    default:
      throw refuse("breaker.tripPolicy", "CircuitBreaker.consecutive(n) or CircuitBreaker.rate({ … })", tripPolicy)
  }
  if (onStoreError !== undefined && onStoreError !== "allow" && onStoreError !== "fail") {
    throw refuse("breaker.onStoreError", '"allow" or "fail"', onStoreError)
  }
  return {
    tripPolicy,
    openDuration: Schedule.isSchedule(openDuration)
      ? openDuration
      : ToolPolicy.finiteMillis(owner, "breaker.openDuration", openDuration),
    maxOpenDuration: maxOpenDuration === undefined
      ? undefined
      : ToolPolicy.finiteMillis(owner, "breaker.maxOpenDuration", maxOpenDuration),
    onStoreError
  }
}

/** The backend of a layer: its permits, and the gate before them once there is a rate or a circuit. */
const make = (name: string, limits: Limits, breaker: Breaker | undefined) =>
  Effect.gen(function*() {
    const context = yield* Effect.context<never>()
    const limiter = yield* RateLimiter.make.pipe(within(RateLimiter.RateLimiterStore, RateLimiter.layerStoreMemory))
    const circuit = breaker === undefined
      ? undefined
      : yield* CircuitBreaker.make(breaker).pipe(
        within(CircuitBreaker.CircuitBreakerStore, CircuitBreaker.layerStoreMemory())
      )
    const pool = new Pool(name, limits)
    const gate = new Gate(name, context, limiter, circuit)
    gate.onNews = () => pool.pump()
    gate.setRate(limits.rate)
    // The store may close after this: it is told first.
    yield* Effect.addFinalizer(() => gate.recorded)
    if (breaker !== undefined || limits.rate !== undefined) pool.gate = gate
    const resize = (limits: Resize) =>
      Effect.suspend(() => {
        try {
          const next = resized(name, pool.limits, limits)
          if (next.rate !== undefined) pool.gate = gate
          pool.resize(next)
          return Effect.void
        } catch (error) {
          if (error instanceof TurnError.TurnError) return Effect.fail(error)
          throw error
        }
      })
    const backend: Backend = { name, pool, stats: Effect.sync(() => pool.stats()), resize }
    return backend
  })

/** Gives an effect the store of the context, or else one of its own in memory. */
const within = <I, S>(store: Context.Key<I, S>, memory: Layer.Layer<I>) =>
<A, E, R>(
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, E, Exclude<R, I>> =>
  Effect.contextWith((context: Context.Context<never>) =>
    Context.getOption(context as Context.Context<any>, store)._tag === "Some"
      ? self as Effect.Effect<A, E, any>
      : Effect.provide(self, Layer.fresh(memory))
  )

const withPermitOf = <A, E, R>(pool: Pool, self: Effect.Effect<A, E, R>): Effect.Effect<A, E | Refused, R> =>
  Effect.withFiber((fiber) => {
    const tenant = Context.getOrElse(fiber.context as Context.Context<any>, TurnContext.Tenant, () => "default")
    const list = pool.plainList(tenant)
    let permit: Permit | undefined
    let resume = (_: Effect.Effect<void, Refused>): void => {}
    const entry: Entry = {
      // In the order of asking.
      priority: 1,
      position: 0,
      outer: Context.get(fiber.context, Held),
      call: Context.get(fiber.context, TurnContext.CurrentCall),
      state: "idle",
      granted(given) {
        permit = given
        resume(Effect.void)
      },
      refused(why) {
        resume(Effect.fail(refused(pool.name, why)))
      }
    }
    // Waiting is interruptible, and a permit that comes at the same instant is given back by the same finaliser.
    const wait = Effect.callback<void, Refused>((done) => {
      resume = done
      const refusal = pool.join(list, entry)
      if (refusal === undefined) {
        pool.offer(entry.outer)
        pool.pump()
      } else entry.refused(refusal)
    })
    return Effect.uninterruptibleMask((restore) =>
      restore(wait).pipe(
        Effect.andThen(Effect.suspend(() => restore(Effect.provideService(self, Held, permit)))),
        Effect.onExit((exit) =>
          Effect.sync(() => {
            if (permit === undefined) return pool.leave(list, entry)
            permit.verdict = Exit.isSuccess(exit)
              ? "success"
              : Cause.hasInterruptsOnly(exit.cause)
              ? "ignored"
              : "failure"
            pool.release(permit)
            pool.pump()
          })
        )
      )
    )
  })

/**
 * The class of a backend: a service with its layer, and the same bound for plain effects.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface BackendClass<in out Self, in out Name extends string, LayerOptions, out Requirements>
  extends Context.ServiceClass<Self, Name, Backend>
{
  readonly backend: { readonly requirements: Types.Covariant<Requirements> }
  /**
   * The layer with its limits. Impossible limits are thrown here, where they are written.
   */
  readonly layer: (options: LayerOptions) => Layer.Layer<Self>
  /**
   * Runs a plain effect under a permit of this backend.
   *
   * **Details**
   *
   * Waiting may be interrupted. The permit is given back when the effect has really ended. Inside work that holds a permit of
   * this backend, that permit is borrowed; a token of the rate is taken all the same. It fails with {@link Refused} when the line is
   * full, the circuit is open, or a store cannot be asked: then the effect was not run.
   *
   * **Gotchas**
   *
   * Plain effects that take the permits of two backends one inside the other, in different orders, can wait for each other for
   * ever, as with any locks: only what turns wait for is looked at.
   */
  readonly withPermit: <A, E, R>(
    self: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | Refused, R | Self | Requirements>
  /** A snapshot, at any time. */
  readonly stats: Effect.Effect<Stats, never, Self>
  /** Changes limits while the backend is at work, see {@link Backend}. */
  readonly resize: (
    limits: Pick<Resize, keyof LayerOptions & keyof Resize>
  ) => Effect.Effect<void, TurnError.TurnError, Self>
}

const makeClass = (name: string): any => {
  const Service = Context.Service<any, Backend>()(name)
  class BackendService extends Service {}
  return Object.assign(BackendService, {
    backend: { requirements: (_: never) => _ },
    layer: (options: Options & Partial<TenantOptions>) => {
      const limits = limitsOf(name, options)
      const breaker = options.breaker === undefined ? undefined : breakerOf(name, options.breaker)
      return Layer.effect(BackendService as any, make(name, limits, breaker))
    },
    withPermit: <A, E, R>(self: Effect.Effect<A, E, R>) =>
      (BackendService as any).use((backend: Backend) => withPermitOf(backend.pool, self)),
    stats: (BackendService as any).use((backend: Backend) => backend.stats),
    resize: (limits: Resize) => (BackendService as any).use((backend: Backend) => backend.resize(limits))
  })
}

/**
 * Makes the class of a backend with one pool for everybody.
 *
 * **Example** (A hotel API that takes two requests at a time)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Backend } from "effect-turn"
 *
 * class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
 *
 * const program = Hotels.withPermit(Effect.succeed("a room")).pipe(
 *   Effect.provide(Hotels.layer({ concurrency: 2 }))
 * )
 * const room = await Effect.runPromise(program)
 * const same = room // => "a room"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const Service = <Self>() => <const Name extends string>(name: Name): BackendClass<Self, Name, Options, never> =>
  makeClass(name)

/**
 * Makes the class of a backend that keeps a share for each tenant. Whoever uses it has to say the tenant: it does not compile
 * without one.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const TenantService =
  <Self>() => <const Name extends string>(name: Name): BackendClass<Self, Name, TenantOptions, TurnContext.Tenant> =>
    makeClass(name)

/** The type of a backend's class as policies take it.
 *
 * @internal
 */
export type Key = ToolPolicy.BackendKey<any, Backend, any>

/** The parts that the turn is built on.
 *
 * @internal
 */
export {
  type Entry,
  type EntryState,
  type Limiter,
  Permit,
  Pool,
  type Refusal,
  type Verdict,
  type Waitlist
} from "./internal/backend/pool.ts"
