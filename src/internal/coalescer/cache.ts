/**
 * What a region of a program has been given, for as long as it runs.
 *
 * - K1: an item is kept for its coalescer, tenant and key, after a success alone.
 * - K2: what a write touches is neither given out nor kept from then on: neither what is there, nor what a request will answer that had
 *   been sent before. One sent after it is.
 */
import * as Context from "effect/Context"
import * as TurnPlan from "../../TurnPlan.ts"

/** Resource keys; undefined: unknown reach. */
export type Reach = ReadonlyArray<string> | undefined

/** The number of writes so far that anybody has heard of. What is sent is before the next. */
let count = 0

/** The point in the order of writes at which something is sent. */
export const now = (): number => count

interface Kept {
  readonly value: unknown
  readonly reach: Reach
}

interface Write {
  readonly at: number
  /** Undefined: of any tenant. */
  readonly tenant: string | undefined
  readonly reach: Reach
}

/** The latest writes, in their order. Beyond so many, the older half of them count as one that touched anything. */
class Writes {
  private readonly most: number
  private list: Array<Write> = []

  constructor(most: number) {
    this.most = most
  }

  add(tenant: string | undefined, reach: Reach): void {
    this.list.push({ at: ++count, tenant, reach })
    if (this.list.length <= this.most) return
    const half = this.most / 2
    this.list = [{ at: this.list[half]!.at, tenant: undefined, reach: undefined }, ...this.list.slice(half + 1)]
  }

  /** Whether one of them has touched this since. */
  touched(since: number, tenant: string, reach: Reach): boolean {
    for (let i = this.list.length - 1; i >= 0 && this.list[i]!.at > since; i--) {
      const write = this.list[i]!
      if ((write.tenant === undefined || write.tenant === tenant) && overlap(write.reach, reach)) return true
    }
    return false
  }
}

/** Those of all tenants, wherever they were made: a request on its way is joined by nobody who comes after one. */
const everywhere = new Writes(1024)

let used = false

/** There is a coalescer: writes are listened to from now on. */
export const listen = (): void => {
  used = true
}

/** A write of a tenant begins, or has ended. */
export const wrote = (tenant: string, reach: Reach): void => {
  if (used && reach?.length !== 0) everywhere.add(tenant, reach)
}

/** Whether a write has touched since what is on its way. */
export const outdated = (since: number, tenant: string, reach: Reach): boolean =>
  everywhere.touched(since, tenant, reach)

export class Cache {
  private readonly kept = new Map<object, Map<string, Map<string, Kept>>>()
  private readonly writes = new Writes(128)

  get(owner: object, tenant: string, text: string): Kept | undefined {
    return this.kept.get(owner)?.get(tenant)?.get(text)
  }

  /** Keeps what was sent for at `since`, unless a write has touched it meanwhile. */
  put(owner: object, tenant: string, text: string, since: number, kept: Kept): void {
    if (this.writes.touched(since, tenant, kept.reach)) return
    let tenants = this.kept.get(owner)
    if (tenants === undefined) this.kept.set(owner, tenants = new Map())
    let items = tenants.get(tenant)
    if (items === undefined) tenants.set(tenant, items = new Map())
    items.set(text, kept)
  }

  /** A write begins, or has ended. */
  invalidate(reach: Reach): void {
    if (reach?.length === 0) return
    this.writes.add(undefined, reach)
    if (reach === undefined) return this.kept.clear()
    for (const tenants of this.kept.values()) {
      for (const items of tenants.values()) {
        for (const [text, kept] of items) if (overlap(reach, kept.reach)) items.delete(text)
      }
    }
  }
}

/** Whether a write of this reach touches what is read. */
const overlap = (written: Reach, read: Reach): boolean =>
  written === undefined || read === undefined ||
  written.some((a) => read.some((b) => TurnPlan.covers([a], [b]) || TurnPlan.covers([b], [a])))

/** The cache of the current region, if any. */
export const Current = Context.Reference<Cache | undefined>("effect-turn/Coalescer/Cache", {
  defaultValue: () => undefined
})

export const cacheOf = (context: Context.Context<never>): Cache | undefined =>
  context.mapUnsafe.get(Current.key) as Cache | undefined
