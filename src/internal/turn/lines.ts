/**
 * Where the calls of one turn stand in line: for the permits of backends, and for the turn's own limit, which is taken together
 * with the permit so that a free permit never waits for a call that may not start (rule R14).
 */
import * as Backend from "../../Backend.ts"

/** A call, or a request for several. */
export interface InLine extends Backend.Entry {
  list: Backend.Waitlist | undefined
}

const endless = { concurrency: Infinity, perTenant: Infinity, queueLimit: Infinity, rate: undefined }

export class Lines {
  private readonly tenant: string
  private readonly held: Backend.Permit | undefined
  /** The turn's own limit, when it has one. */
  readonly limiter: Backend.Limiter | undefined
  private readonly lists = new Map<Backend.Pool | undefined, Backend.Waitlist>()
  /** Backends to be looked at before the step ends, and what joined a line in it. */
  private pools: Array<Backend.Pool> = []
  private joined: Array<InLine> = []

  constructor(tenant: string, held: Backend.Permit | undefined, limit: number) {
    this.tenant = tenant
    this.held = held
    this.limiter = limit === Infinity ? undefined : { limit, running: 0 }
  }

  /** Puts an entry in line, or says why not. Without a backend it waits for the turn's own limit alone. */
  join(entry: InLine, pool: Backend.Pool | undefined): Backend.Refusal | undefined {
    const list = entry.list ??= this.listOf(pool)
    const refusal = list.pool.join(list, entry)
    if (refusal === undefined && entry.state === "waiting") {
      this.visit(list.pool)
      this.joined.push(entry)
    }
    return refusal
  }

  /** What an entry that was not served at once waits for. */
  waitsFor(entry: InLine): "permit" | "rate" {
    const list = entry.list!
    return list.pool.gate?.standsStill === true && list.pool.waitsForGate(list, entry) ? "rate" : "permit"
  }

  private listOf(pool: Backend.Pool | undefined): Backend.Waitlist {
    let list = this.lists.get(pool)
    if (list === undefined) {
      list = (pool ?? new Backend.Pool("the turn itself", endless)).waitlist(this.tenant, this.limiter)
      this.lists.set(pool, list)
    }
    return list
  }

  private visit(pool: Backend.Pool): void {
    if (!this.pools.includes(pool)) this.pools.push(pool)
  }

  /** Hands out what is free. Gives back what joined a line since the last time. */
  serve(): ReadonlyArray<InLine> {
    const { joined, pools } = this
    if (pools.length > 0) {
      this.pools = []
      if (this.limiter !== undefined && pools.length > 1) {
        // Whoever takes the turn's own limit first: the order of the lists, not that of the backends.
        for (const { pool } of this.waiting().toReversed()) {
          const at = pools.indexOf(pool)
          if (at !== -1) pools.unshift(...pools.splice(at, 1))
        }
      }
      for (const pool of pools) {
        pool.offer(this.held)
        pool.pump()
      }
    }
    if (joined.length > 0) this.joined = []
    return joined
  }

  /** A permit goes back; whoever is next gets it when the lines are next served. */
  release(permit: Backend.Permit): void {
    permit.pool.release(permit)
    this.visit(permit.pool)
    this.freed()
  }

  /** One less of the turn's own limit: of what waits, the one with the longest way below it goes first. */
  freed(): void {
    if (this.limiter === undefined) return
    this.limiter.running--
    for (const list of this.waiting()) {
      list.pool.resume(list, this.held)
      this.visit(list.pool)
    }
  }

  /** The lists in which something waits, the one whose next call goes first in front. */
  private waiting(): Array<Backend.Waitlist> {
    return Array.from(this.lists.values()).filter((list) => list.waiting > 0).sort((a, b) => {
      const [first, second] = [a.peek(), b.peek()]
      if (first === undefined || second === undefined) return first === undefined ? 1 : -1
      return second.priority - first.priority || first.position - second.position
    })
  }
}
