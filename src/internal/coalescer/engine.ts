/**
 * Who waits for which request.
 *
 * - E1: a lane is for one tenant, one pool, and one permit of that pool where its callers hold one. Nothing crosses from one to another.
 * - E2: in a lane there is at most one request that collects, and each key is looked for once: whoever asks for it while its request
 *   collects or is on its way joins that, unless a write has touched the key since the request was sent.
 * - E3: a request is sent once, when it is full or its window is over, with the keys that somebody waits for.
 * - E4: every caller is told once: by its request, or not at all when it has left.
 * - E5: a request without callers is over: it collects no more, nobody finds it, its fiber is interrupted, and the last to leave waits for that.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Backend from "../../Backend.ts"
import * as TurnContext from "../../TurnContext.ts"
import { type Cache, cacheOf, listen, now, outdated, type Reach } from "./cache.ts"
import type { Copies } from "./copies.ts"
import type { Found } from "./pairing.ts"
import { errorOf, type Lookup, Running } from "./request.ts"
import type { Late } from "./soon.ts"

export interface Settings extends Lookup {
  readonly size: number
  /** In milliseconds; 0: the end of the turn of the event loop. */
  readonly window: number
  readonly backend: Backend.Key | undefined
  readonly copies: Copies | undefined
  readonly reach: (key: any) => Reach
  /** A request is over: how many keys it had, and for how many callers. */
  readonly measure: (keys: number, callers: number, context: Context.Context<never>) => void
}

type Told = (effect: Effect.Effect<any, any>) => void

/** One who waits for an item. */
class Waiter {
  readonly fiber: Fiber.Fiber<any, any>
  readonly cache: Cache | undefined
  /** Undefined once it has been told, or has left. */
  told: Told | undefined
  constructor(fiber: Fiber.Fiber<any, any>, cache: Cache | undefined, told: Told) {
    this.fiber = fiber
    this.cache = cache
    this.told = told
  }
}

/** A key in a request, and the first who waits for it. */
class Item extends Waiter {
  readonly batch: Batch
  readonly key: unknown
  readonly text: string
  /** The others, and some of them have left. */
  more: Array<Waiter> | undefined = undefined
  live = 1
  constructor(
    batch: Batch,
    key: unknown,
    text: string,
    fiber: Fiber.Fiber<any, any>,
    cache: Cache | undefined,
    told: Told
  ) {
    super(fiber, cache, told)
    this.batch = batch
    this.key = key
    this.text = text
  }
}

/** A request that collects, or is on its way. */
class Batch implements Late {
  readonly engine: Engine
  readonly lane: Lane
  /** Of its first caller. */
  readonly context: Context.Context<never>
  items: Array<Item> = []
  /** Who waits now, and who has in all. */
  callers = 0
  joined = 0
  state: "collects" | "sent" | "over" = "collects"
  /** The point in the order of writes at which it was sent. */
  since = 0
  timer: Fiber.Fiber<unknown> | undefined = undefined
  running: Running | undefined = undefined
  fiber: Fiber.Fiber<unknown, unknown> | undefined = undefined
  abandoned = false
  onEnd: (() => void) | undefined = undefined
  /** What a fiber that waits here does when it is interrupted: one effect for all of them. */
  readonly left: Effect.Effect<void>

  constructor(engine: Engine, lane: Lane, context: Context.Context<never>) {
    this.engine = engine
    this.lane = lane
    this.context = context
    this.left = Effect.withFiber((fiber) => this.leaves(fiber))
  }

  private leaves(fiber: Fiber.Fiber<any, any>): Effect.Effect<void> {
    const is = (waiter: Waiter) => waiter.fiber === fiber && waiter.told !== undefined
    for (const item of this.items) {
      if (is(item)) return this.engine.leave(item, item)
      const other = item.more?.find(is)
      if (other !== undefined) return this.engine.leave(item, other)
    }
    return Effect.void
  }

  arm(): void {
    this.engine.wait(this)
  }
}

class Lane {
  readonly tenant: string
  readonly home: Map<string, Lane>
  readonly items = new Map<string, Item>()
  open: Batch | undefined = undefined
  constructor(tenant: string, home: Map<string, Lane>) {
    this.tenant = tenant
    this.home = home
  }
}

export const tenantOf = (context: Context.Context<never>): string =>
  context.mapUnsafe.get(TurnContext.Tenant.key) as string | undefined ?? "default"

export class Engine {
  private readonly settings: Settings
  /** Lanes by tenant: those without a backend, and for each pool or permit. */
  private readonly free = new Map<string, Lane>()
  private readonly bound = new WeakMap<object, Map<string, Lane>>()

  constructor(settings: Settings) {
    this.settings = settings
    listen()
  }

  load(key: unknown): Effect.Effect<any, any> {
    return Effect.callback<any, any>((resume) => {
      const fiber = Fiber.getCurrent()!
      return this.join(fiber, key, resume)?.batch.left
    })
  }

  loadAll(keys: ReadonlyArray<unknown>): Effect.Effect<ReadonlyArray<Exit.Exit<any, any>>> {
    return Effect.callback<ReadonlyArray<Effect.Effect<any, any>>>((resume) => {
      const told: Array<Effect.Effect<any, any>> = Array.from({ length: keys.length })
      let open = keys.length + 1
      const over = () => --open === 0 ? resume(Effect.succeed(told)) : undefined
      const fiber = Fiber.getCurrent()!
      const items = new Set<Item>()
      for (let i = 0; i < keys.length; i++) {
        const tell = (effect: Effect.Effect<any, any>) => {
          told[i] = effect
          over()
        }
        try {
          const item = this.join(fiber, keys[i], tell)
          if (item !== undefined) items.add(item)
        } catch (defect) {
          tell(Exit.die(defect))
        }
      }
      over()
      return Effect.suspend(() => {
        const ends: Array<Effect.Effect<void>> = []
        const leave = (item: Item, waiter: Waiter) => {
          if (waiter.fiber !== fiber) return
          const end = this.leave(item, waiter)
          if (end !== Effect.void) ends.push(end)
        }
        for (const item of items) {
          leave(item, item)
          for (const waiter of item.more ?? []) leave(item, waiter)
        }
        return Effect.all(ends, { discard: true })
      })
    }).pipe(
      Effect.flatMap((told) =>
        told.every(Exit.isExit) ? Effect.succeed(told as any) : Effect.all(told.map(Effect.exit))
      )
    )
  }

  private laneOf(context: Context.Context<never>, tenant: string): Lane {
    const { backend } = this.settings
    let home: Map<string, Lane> | undefined = this.free
    if (backend !== undefined) {
      const { pool } = Context.getUnsafe(context, backend)
      let at: object = pool
      for (let held = Context.get(context, Backend.Held); held !== undefined; held = held.outer) {
        if (held.pool !== pool || held.returned) continue
        at = held
        break
      }
      home = this.bound.get(at)
      if (home === undefined) this.bound.set(at, home = new Map())
    }
    let lane = home.get(tenant)
    if (lane === undefined) home.set(tenant, lane = new Lane(tenant, home))
    return lane
  }

  /** Waits for a key, as one of those who want this item; undefined where there is nothing to wait for. */
  private join(fiber: Fiber.Fiber<any, any>, key: unknown, told: Told): Item | undefined {
    const { by, reach, size, soon } = this.settings
    const text = by.text(key)
    const tenant = tenantOf(fiber.context)
    const cache = cacheOf(fiber.context)
    if (cache !== undefined) {
      const kept = cache.get(this, tenant, text)
      if (kept !== undefined) {
        told(this.copyOf(kept.value))
        return undefined
      }
    }
    const lane = this.laneOf(fiber.context, tenant)
    let item = lane.items.get(text)
    // Its answer may be from before the write.
    if (item?.batch.state === "sent" && outdated(item.batch.since, tenant, reach(key))) item = undefined
    if (item !== undefined) {
      ;(item.more ??= []).push(new Waiter(fiber, cache, told))
      item.live++
      item.batch.callers++
      item.batch.joined++
      return item
    }
    let batch = lane.open
    if (batch === undefined) {
      batch = lane.open = new Batch(this, lane, fiber.context)
      if (size > 1) soon.add(fiber, batch)
    }
    item = new Item(batch, key, text, fiber, cache, told)
    lane.items.set(text, item)
    batch.callers++
    batch.joined++
    if (batch.items.push(item) === size) this.send(batch)
    return item
  }

  /** Waits for the window, which is as good as begun when the first key came. */
  wait(batch: Batch): void {
    if (batch.state !== "collects") return
    if (this.settings.window === 0) return this.send(batch)
    const timer = batch.timer = Effect.runForkWith(batch.context)(Effect.sleep(this.settings.window))
    timer.addObserver((exit) => {
      if (Exit.isSuccess(exit) && batch.state === "collects") this.send(batch)
    })
  }

  private send(batch: Batch): void {
    const { backend } = this.settings
    const { context, items, lane } = batch
    batch.state = "sent"
    batch.since = now()
    lane.open = undefined
    batch.timer?.interruptUnsafe()
    const keys = items.map((item) => item.key)
    const texts = items.map((item) => item.text)
    if (backend === undefined) {
      const running = batch.running = new Running(this.settings, keys, texts, (exit) => this.settle(batch, exit))
      return running.start(lane.tenant, context)
    }
    const request = Effect.suspend(() => {
      // What was written before it had its permit is in its answer.
      batch.since = now()
      return this.request(keys, texts, lane.tenant)
    })
    const fiber = batch.fiber = Effect.runForkWith(context)((backend as any).withPermit(request)) as Fiber.Fiber<
      Found,
      unknown
    >
    fiber.addObserver((exit) => this.settle(batch, exit))
    if (batch.abandoned) fiber.interruptUnsafe()
  }

  /** A request, in whose context it runs: it fails as a whole, or tells what became of each key. */
  private request(
    keys: ReadonlyArray<unknown>,
    texts: ReadonlyArray<string>,
    tenant: string
  ): Effect.Effect<Found, unknown> {
    return Effect.callback<Found, unknown>((resume) => {
      const running = new Running(this.settings, keys, texts, resume)
      running.start(tenant, Fiber.getCurrent()!.context)
      return Effect.suspend(() => running.interrupt())
    })
  }

  /** One request of a turn: what became of each text. What it answers is kept in the region's cache. */
  requestFor(
    keys: ReadonlyArray<unknown>,
    tenant: string,
    callers: number
  ): Effect.Effect<ReadonlyMap<string, Exit.Exit<any, any>>> {
    return Effect.callback<ReadonlyMap<string, Exit.Exit<any, any>>>((resume) => {
      const { context } = Fiber.getCurrent()!
      const texts = keys.map(this.settings.by.text)
      const since = now()
      const running = new Running(this.settings, keys, texts, (exit) => {
        this.settings.measure(keys.length, callers, context)
        const cache = cacheOf(context)
        const failure = Exit.isSuccess(exit) ? undefined : this.failureOf(exit)
        const found = new Map<string, Exit.Exit<any, any>>()
        for (let i = 0; i < keys.length; i++) {
          const one = failure ?? (exit as Exit.Success<Found>).value[i]!
          found.set(texts[i]!, one)
          if (cache === undefined || Exit.isFailure(one)) continue
          this.keep(cache, tenant, keys[i], texts[i]!, since, this.sharedOf(one.value))
        }
        resume(Exit.succeed(found))
      })
      running.start(tenant, context)
      return Effect.suspend(() => running.interrupt())
    })
  }

  /** A copy of what the cache of the context has; undefined where it has nothing, or a copy takes time. */
  cached(context: Context.Context<never>, tenant: string, key: unknown): Exit.Exit<any> | undefined {
    const cache = cacheOf(context)
    if (cache === undefined) return undefined
    const kept = cache.get(this, tenant, this.settings.by.text(key))
    const copy = kept === undefined ? undefined : this.copyOf(kept.value)
    return Exit.isExit(copy) && Exit.isSuccess(copy) ? Exit.succeed(copy.value) : undefined
  }

  private keep(
    cache: Cache,
    tenant: string,
    key: unknown,
    text: string,
    since: number,
    shared: Effect.Effect<unknown, unknown>
  ): void {
    if (!Exit.isExit(shared) || Exit.isFailure(shared)) return
    cache.put(this, tenant, text, since, { value: shared.value, reach: this.settings.reach(key) })
  }

  private settle(batch: Batch, exit: Exit.Exit<Found, unknown>): void {
    const { context, items, joined } = batch
    batch.state = "over"
    this.settings.measure(items.length, joined, context)
    this.forget(batch)
    // Whoever looks at it later, since its window was to begin, holds nothing by it.
    batch.items = []
    batch.running = undefined
    batch.fiber = undefined
    batch.onEnd?.()
    if (batch.callers === 0) return
    const failure = Exit.isSuccess(exit) ? undefined : this.failureOf(exit)
    for (let i = 0; i < items.length; i++) this.tell(items[i]!, failure ?? (exit as Exit.Success<Found>).value[i]!)
  }

  /** Why a request failed as a whole: nobody is told of an interruption that was not its own. */
  private failureOf(exit: Exit.Failure<unknown, unknown>): Exit.Exit<never, unknown> {
    return exit.cause.reasons.some((reason) => reason._tag === "Fail")
      ? exit as Exit.Exit<never, unknown>
      : Exit.fail(this.settings.words.failed(errorOf(exit.cause)))
  }

  private forget({ items, lane }: Batch): void {
    for (const item of items) if (lane.items.get(item.text) === item) lane.items.delete(item.text)
    if (lane.items.size === 0 && lane.home.get(lane.tenant) === lane) lane.home.delete(lane.tenant)
  }

  private tell(item: Item, exit: Exit.Exit<any, any>): void {
    const { batch, live, more } = item
    if (live === 0) return
    let shared: Effect.Effect<any, any> | undefined
    if (Exit.isSuccess(exit)) {
      const keep = ({ cache, told }: Waiter) => {
        if (cache === undefined || told === undefined) return
        shared ??= this.sharedOf(exit.value)
        this.keep(cache, batch.lane.tenant, item.key, item.text, batch.since, shared)
      }
      keep(item)
      more?.forEach(keep)
      if (live > 1) shared ??= this.sharedOf(exit.value)
    }
    this.tellOne(item, exit, shared)
    if (more !== undefined) { for (const waiter of more) this.tellOne(waiter, exit, shared) }
  }

  private tellOne(waiter: Waiter, exit: Exit.Exit<any, any>, shared: Effect.Effect<any, any> | undefined): void {
    const { told } = waiter
    if (told === undefined) return
    waiter.told = undefined
    if (shared === undefined) return told(exit)
    if (!Exit.isExit(shared)) return told(Effect.flatMap(shared, (value) => this.copyOf(value)))
    told(Exit.isSuccess(shared) ? this.copyOf(shared.value) : shared)
  }

  /** What copies are made from: an item as it is, where it has no schema. */
  private sharedOf(item: unknown): Effect.Effect<unknown, unknown> {
    return this.settings.copies === undefined ? Exit.succeed(item) : this.settings.copies.text(item)
  }

  private copyOf(shared: unknown): Effect.Effect<unknown, unknown> {
    return this.settings.copies === undefined
      ? Exit.succeed(shared)
      : this.settings.copies.of(shared as string | undefined)
  }

  /** Goes, and waits for the end of the request where nobody else is left. */
  leave(item: Item, waiter: Waiter): Effect.Effect<void> {
    if (waiter.told === undefined) return Effect.void
    waiter.told = undefined
    const { batch } = item
    item.live--
    if (--batch.callers > 0) {
      if (item.live === 0 && batch.state === "collects") {
        batch.items.splice(batch.items.indexOf(item), 1)
        batch.lane.items.delete(item.text)
      }
      return Effect.void
    }
    const { state } = batch
    if (state === "over") return Effect.void
    this.forget(batch)
    if (state === "sent") return this.abandon(batch)
    batch.state = "over"
    batch.lane.open = undefined
    batch.timer?.interruptUnsafe()
    return batch.timer === undefined ? Effect.void : Effect.asVoid(Fiber.await(batch.timer))
  }

  private abandon(batch: Batch): Effect.Effect<void> {
    batch.abandoned = true
    if (batch.running !== undefined) return batch.running.interrupt()
    batch.fiber?.interruptUnsafe()
    return Effect.callback<void>((resume) => {
      if (batch.state === "over") return resume(Effect.void)
      batch.onEnd = () => resume(Effect.void)
    })
  }
}
