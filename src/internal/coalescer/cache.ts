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

/** The number of writes so far that any region has heard of. What is sent is before the next. */
let writes = 0

/** The point in the order of writes at which something is sent. */
export const now = (): number => writes

interface Kept {
  readonly value: unknown
  readonly reach: Reach
}

interface Write {
  readonly at: number
  readonly reach: Reach
}

/** Beyond this many, the older half of the writes count as one that touched anything. */
const mostWrites = 128

export class Cache {
  private readonly kept = new Map<object, Map<string, Map<string, Kept>>>()
  private writes: Array<Write> = []

  get(owner: object, tenant: string, text: string): Kept | undefined {
    return this.kept.get(owner)?.get(tenant)?.get(text)
  }

  /** Keeps what was sent for at `since`, unless a write has touched it meanwhile. */
  put(owner: object, tenant: string, text: string, since: number, kept: Kept): void {
    if (this.outdated(since, kept.reach)) return
    let tenants = this.kept.get(owner)
    if (tenants === undefined) this.kept.set(owner, tenants = new Map())
    let items = tenants.get(tenant)
    if (items === undefined) tenants.set(tenant, items = new Map())
    items.set(text, kept)
  }

  /** Whether a write has touched this since. */
  outdated(since: number, reach: Reach): boolean {
    for (let i = this.writes.length - 1; i >= 0 && this.writes[i]!.at > since; i--) {
      if (overlap(this.writes[i]!.reach, reach)) return true
    }
    return false
  }

  /** A write begins, or has ended. */
  invalidate(reach: Reach): void {
    if (reach?.length === 0) return
    this.writes.push({ at: ++writes, reach })
    if (this.writes.length > mostWrites) {
      const { at } = this.writes[mostWrites / 2]!
      this.writes = [{ at, reach: undefined }, ...this.writes.slice(mostWrites / 2 + 1)]
    }
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
