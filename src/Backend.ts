/**
 * A named thing with limited capacity, shared by all turns of the process and by plain effects.
 *
 * A permit is taken last, after the keys, in one step with its release, and kept until the work has really ended. Tenants take
 * turns, and within a tenant the turns do; nobody starves. Work inside a handler inherits what its ancestors hold: it borrows
 * the permit of the call that it serves, one at a time, and so never waits for it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Types from "effect/Types"
import { type Entry, type Limits, type Permit, Pool } from "./internal/backend/pool.ts"
import type * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"

/**
 * A snapshot of a backend.
 *
 * **Details**
 *
 * `running` counts permits that are out, `waiting` what is in line. A permit that is lent to work inside its holder's counts
 * once. `tenants` lists those that hold or wait for something.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Stats {
  readonly concurrency: number
  readonly running: number
  readonly waiting: number
  readonly tenants: Record<string, { readonly running: number; readonly waiting: number }>
}

/**
 * The limits of a backend: whole numbers from 1, or `"infinite"`.
 *
 * **Details**
 *
 * `queueLimit` is how many may wait (0: none); what finds no place is refused at once, as `queue_full`. Default: `"infinite"`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly concurrency: number | "infinite"
  readonly queueLimit?: number | "infinite" | undefined
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
 * What a backend's layer provides.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Backend {
  readonly name: string
  readonly stats: Effect.Effect<Stats>
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

/** What the current fiber's surroundings hold: a chain of permits.
 *
 * @internal
 */
export const Held = Context.Reference<Permit | undefined>("effect-turn/Backend/Held", { defaultValue: () => undefined })

const count = (owner: string, limit: string, value: unknown, least: 0 | 1): number =>
  value === "infinite"
    ? Infinity
    : TurnError.wholeNumber(`backend "${owner}"`, limit, value, least, ', or "infinite"')

const limitsOf = (name: string, options: Options & Partial<TenantOptions>): Limits => ({
  concurrency: count(name, "concurrency", options.concurrency, 1),
  perTenant: options.perTenant === undefined ? Infinity : count(name, "perTenant", options.perTenant, 1),
  queueLimit: options.queueLimit === undefined ? Infinity : count(name, "queueLimit", options.queueLimit, 0)
})

const withPermitOf = <A, E, R>(pool: Pool, self: Effect.Effect<A, E, R>): Effect.Effect<A, E | QueueFull, R> =>
  Effect.withFiber((fiber) => {
    const tenant = Context.getOrElse(fiber.context as Context.Context<any>, TurnContext.Tenant, () => "default")
    const list = pool.plainList(tenant)
    let permit: Permit | undefined
    let resume = (_: Effect.Effect<void, QueueFull>): void => {}
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
      }
    }
    // Waiting is interruptible, and a permit that comes at the same instant is given back by the same finaliser.
    const wait = Effect.callback<void, QueueFull>((done) => {
      resume = done
      if (pool.join(list, entry)) {
        pool.offer(entry.outer)
        pool.pump()
      } else done(Effect.fail(new QueueFull({ backend: pool.name, queueLimit: pool.limits.queueLimit })))
    })
    return Effect.uninterruptibleMask((restore) =>
      restore(wait).pipe(
        Effect.andThen(Effect.suspend(() => restore(Effect.provideService(self, Held, permit)))),
        Effect.ensuring(Effect.sync(() => {
          if (permit !== undefined) {
            pool.release(permit)
            pool.pump()
          } else pool.leave(list, entry)
        }))
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
   * this backend, that permit is borrowed.
   *
   * **Gotchas**
   *
   * Plain effects that take the permits of two backends one inside the other, in different orders, can wait for each other for
   * ever, as with any locks: only what turns wait for is looked at.
   */
  readonly withPermit: <A, E, R>(
    self: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | QueueFull, R | Self | Requirements>
  /** A snapshot, at any time. */
  readonly stats: Effect.Effect<Stats, never, Self>
}

const makeClass = (name: string): any => {
  const Service = Context.Service<any, Backend>()(name)
  class BackendService extends Service {}
  return Object.assign(BackendService, {
    backend: { requirements: (_: never) => _ },
    layer: (options: Options & Partial<TenantOptions>) => {
      const limits = limitsOf(name, options)
      return Layer.sync(BackendService as any, () => {
        const pool = new Pool(name, limits)
        return { name, pool, stats: Effect.sync(() => pool.stats()) } as Backend
      })
    },
    withPermit: <A, E, R>(self: Effect.Effect<A, E, R>) =>
      (BackendService as any).use((backend: Backend) => withPermitOf(backend.pool, self)),
    stats: (BackendService as any).use((backend: Backend) => backend.stats)
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
export { type Entry, type EntryState, type Limiter, Permit, Pool, type Waitlist } from "./internal/backend/pool.ts"
