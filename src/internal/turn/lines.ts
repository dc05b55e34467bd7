/**
 * Where the calls of one turn stand in line: for the permits of backends, and for the turn's own limit, which is taken together
 * with the permit so that a free permit never waits for a call that may not start (rule R14).
 */
import * as Backend from "../../Backend.ts"
import type { Run } from "./run.ts"

const endless = { concurrency: Infinity, perTenant: Infinity, queueLimit: Infinity, rate: undefined }

export class Lines {
  private readonly tenant: string
  private readonly held: Backend.Permit | undefined
  /** The turn's own limit, when it has one. */
  readonly limiter: Backend.Limiter | undefined
  private readonly lists = new Map<Backend.Pool | undefined, Backend.Waitlist>()
  /** Backends to be looked at before the step ends, and runs that joined a line in it. */
  private pools: Array<Backend.Pool> = []
  private joined: Array<Run> = []

  constructor(tenant: string, held: Backend.Permit | undefined, limit: number) {
    this.tenant = tenant
    this.held = held
    this.limiter = limit === Infinity ? undefined : { limit, running: 0 }
  }

  /** Puts a run in line, or says why not. Without a backend it waits for the turn's own limit alone. */
  join(run: Run, pool: Backend.Pool | undefined): Backend.Refusal | undefined {
    const list = run.list ??= this.listOf(pool)
    const refusal = list.pool.join(list, run)
    if (refusal === undefined && run.state === "waiting") {
      this.visit(list.pool)
      this.joined.push(run)
    }
    return refusal
  }

  /** What a run that was not served at once waits for. */
  waitsFor(run: Run): "permit" | "rate" {
    const list = run.list!
    return list.pool.gate?.standsStill === true && list.pool.waitsForGate(list, run) ? "rate" : "permit"
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

  /** Hands out what is free. Gives back the runs that joined a line since the last time. */
  serve(): ReadonlyArray<Run> {
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
