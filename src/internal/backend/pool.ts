/**
 * Permits of one backend, handed out fairly.
 *
 * - B1: a permit is out, or free, or lent to work inside its holder's; never two of these. What is given up on keeps its permit.
 * - B2: no permit is free while an entry that may take it waits, but for the time in which the circuit or the rate holds up the line.
 * - B3: tenants take turns; within a tenant, turns take turns; within a turn, the entry with the longest way below it goes first,
 *   equal ones in emission order.
 * - B4: taking and giving back cost the same whatever waits: lists are kept in order when entries join, and rings hold only what may
 *   be served.
 * - B5: work inside a holder's work never waits for the holder: it borrows the holder's permit, one at a time.
 * - B6: what passes the gate is given a permit in the same step; the gate is asked only for what could have one. Work inside and the
 *   line take turns at it.
 * - B7: other limits hold for what is handed out from then on: nothing that runs is taken back.
 */
import type { Admission, Gate, Rate, Refusal, Verdict } from "./gate.ts"

export { Gate, type Refusal, type Verdict } from "./gate.ts"

/** A first-in-first-out list that forgets its served front in constant time. */
class Fifo<A> {
  private items: Array<A> = []
  private head = 0

  get size(): number {
    return this.items.length - this.head
  }

  peek(): A | undefined {
    return this.items[this.head]
  }

  push(item: A): void {
    this.items.push(item)
  }

  shift(): A | undefined {
    if (this.head === this.items.length) return undefined
    const item = this.items[this.head]!
    this.items[this.head] = undefined as A
    if (++this.head > 64 && this.head * 2 > this.items.length) {
      this.items = this.items.slice(this.head)
      this.head = 0
    }
    return item
  }
}

/** One piece of work that waits for, or holds, a permit. */
export interface Entry {
  /** Longest way below it: greater goes first. */
  readonly priority: number
  /** Among equals, smaller goes first. */
  readonly position: number
  /** What the surroundings of the work hold already. */
  readonly outer: Permit | undefined
  /** The call whose handler a plain effect runs in, for whoever looks for a deadlock. */
  readonly call?: unknown
  /** Called once, synchronously, when the permit is there. */
  granted(permit: Permit): void
  /** Called once, synchronously, when it leaves the line without a permit. */
  refused(why: Refusal): void
  state: EntryState
  /** A full line does not turn it away: it puts back in order what a call of before has done. */
  readonly insists?: boolean
  /** How long its line had stood still for the rate when it joined. */
  stoodStill?: number
}

export type EntryState = "idle" | "waiting" | "granted" | "gone"

const goesBefore = (a: Entry, b: Entry): boolean =>
  a.priority > b.priority || (a.priority === b.priority && a.position < b.position)

/** Those that may hand out something only while their owner is below its own limit: a turn, or nobody. */
export interface Limiter {
  readonly limit: number
  running: number
}

/** Items in order. Joining looks for its place from the end, where it nearly always is; leaving at the front costs nothing. */
class Line<A> {
  private readonly before: (a: A, b: A) => boolean
  private items: Array<A> = []
  private head = 0

  constructor(before: (a: A, b: A) => boolean) {
    this.before = before
  }

  add(item: A): void {
    const { before, items } = this
    let at = items.length
    if (at === this.head || !before(item, items[at - 1]!)) {
      items.push(item)
      return
    }
    let low = this.head
    while (low < at) {
      const mid = (low + at) >>> 1
      if (before(item, items[mid]!)) at = mid
      else low = mid + 1
    }
    items.splice(at, 0, item)
  }

  /** The first item that has not left. */
  peek(left: (item: A) => boolean): A | undefined {
    while (this.head < this.items.length) {
      const item = this.items[this.head]!
      if (!left(item)) return item
      this.drop()
    }
    return undefined
  }

  drop(): void {
    this.items[this.head] = undefined as A
    if (++this.head > 64 && this.head * 2 > this.items.length) {
      this.items = this.items.slice(this.head)
      this.head = 0
    }
  }

  clear(): void {
    this.items = []
    this.head = 0
  }
}

const hasLeft = (entry: Entry): boolean => entry.state !== "waiting"

/** What waits for one pool on behalf of one turn. */
export class Waitlist {
  readonly pool: Pool
  /** Looked up anew when the list was empty: the queue of a tenant with nothing here is forgotten. */
  tenant: TenantQueue
  readonly limiter: Limiter | undefined
  private readonly line = new Line<Entry>(goesBefore)
  /** Entries that still wait; those that left stay in the line until their turn comes. */
  waiting = 0
  queued = false

  constructor(pool: Pool, tenant: TenantQueue, limiter: Limiter | undefined) {
    this.pool = pool
    this.tenant = tenant
    this.limiter = limiter
  }

  get paused(): boolean {
    return this.limiter !== undefined && this.limiter.running >= this.limiter.limit
  }

  /** How many of those that wait here wait for their turn's own limit, whatever the backend has free. */
  get ownWaits(): number {
    const { limiter } = this
    return limiter === undefined ? 0 : Math.max(0, this.waiting - Math.max(0, limiter.limit - limiter.running))
  }

  add(entry: Entry): void {
    this.line.add(entry)
    this.waiting++
  }

  /** The entry that goes next, left in place. */
  peek(): Entry | undefined {
    return this.line.peek(hasLeft)
  }

  /** Forgets what has left, when nothing waits any more. */
  clear(): void {
    this.line.clear()
  }
}

export class TenantQueue {
  readonly name: string
  running = 0
  waiting = 0
  queued = false
  plain: Waitlist | undefined = undefined
  readonly ring = new Fifo<Waitlist>()
  constructor(name: string) {
    this.name = name
  }
}

/** A permit that is out. `outer` is what the holder's own surroundings hold: the chain of everything inherited. */
export class Permit {
  readonly pool: Pool
  readonly tenant: TenantQueue
  readonly outer: Permit | undefined
  readonly owner: unknown
  /** The permit that this one borrows, when it is borrowed. */
  lender: Permit | undefined
  /** The permit that borrows this one. */
  loan: Permit | undefined = undefined
  returned = false
  borrowers: Line<Borrower> | undefined = undefined
  /** Who has to be told what became of the work, and what it came to. */
  admission: Admission | undefined = undefined
  verdict: Verdict = "ignored"
  /** How much of its waiting the line stood still for the rate, in milliseconds. */
  readonly waitedForRate: number
  constructor(pool: Pool, tenant: TenantQueue, owner: Entry, lender: Permit | undefined) {
    this.pool = pool
    this.tenant = tenant
    this.outer = owner.outer
    this.owner = owner
    this.lender = lender
    this.waitedForRate = owner.stoodStill === undefined ? 0 : pool.gate!.stoodStill - owner.stoodStill
  }
}

interface Borrower {
  readonly entry: Entry
  readonly list: Waitlist
}

const borrowsBefore = (a: Borrower, b: Borrower): boolean => goesBefore(a.entry, b.entry)
const borrowerHasLeft = (borrower: Borrower): boolean => hasLeft(borrower.entry)

export interface Limits {
  readonly concurrency: number
  readonly perTenant: number
  readonly queueLimit: number
  readonly rate: Rate | undefined
}

/** The nearest permit of this pool that surrounding work holds. */
const heldOf = (held: Permit | undefined, pool: Pool): Permit | undefined => {
  for (let permit = held; permit !== undefined; permit = permit.outer) {
    if (permit.pool === pool && !permit.returned) return permit
  }
  return undefined
}

export class Pool {
  readonly name: string
  limits: Limits
  free: number
  waiting = 0
  /** What stands before the permits, when there is a rate or a circuit. */
  gate: Gate | undefined = undefined
  /** Permits that are out and not borrowed, for whoever looks for a deadlock. */
  readonly out = new Set<Permit>()
  private readonly tenants = new Map<string, TenantQueue>()
  private readonly ring = new Fifo<TenantQueue>()
  /** Lists of turns with a limit of their own in which something waits. */
  private readonly limited = new Set<Waitlist>()
  /** Permits with borrowers that wait for a token. */
  private readonly lenders = new Set<Permit>()
  private insideNext = true
  private pumping = false

  constructor(name: string, limits: Limits) {
    this.name = name
    this.limits = limits
    this.free = limits.concurrency
  }

  waitlist(tenant: string, limiter: Limiter | undefined): Waitlist {
    return new Waitlist(this, this.tenantOf(tenant), limiter)
  }

  /** All plain effects of one tenant wait in one line, as one turn would. */
  plainList(tenant: string): Waitlist {
    const queue = this.tenantOf(tenant)
    return queue.plain ??= new Waitlist(this, queue, undefined)
  }

  private tenantOf(name: string): TenantQueue {
    let queue = this.tenants.get(name)
    if (queue === undefined) {
      queue = new TenantQueue(name)
      this.tenants.set(name, queue)
    }
    return queue
  }

  /** Puts an entry in line, or says why not. Nothing is granted before {@link pump}. */
  join(list: Waitlist, entry: Entry): Refusal | undefined {
    const held = heldOf(entry.outer, this)
    if (list.waiting === 0) list.tenant = this.tenantOf(list.tenant.name)
    const tenant = list.tenant
    const refusal = held === undefined ? this.refusalFor(list, entry) : undefined
    if (refusal !== undefined) {
      this.forget(tenant)
      return refusal
    }
    entry.state = "waiting"
    if (this.gate?.rate !== undefined) entry.stoodStill = this.gate.stoodStill
    if (held !== undefined) (held.borrowers ??= new Line<Borrower>(borrowsBefore)).add({ entry, list })
    list.add(entry)
    if (list.limiter !== undefined) this.limited.add(list)
    this.waiting++
    tenant.waiting++
    this.enqueue(list)
    return undefined
  }

  private refusalFor(list: Waitlist, entry: Entry): Refusal | undefined {
    const { queueLimit } = this.limits
    const refusal = this.gate?.refuses()
    if (refusal !== undefined) return refusal
    return queueLimit !== Infinity && entry.insists !== true && this.isFull(list)
      ? { _tag: "QueueFull", queueLimit }
      : undefined
  }

  /** Whether one more has no place in the line. What waits for its own turn's limit stands in nobody's way. */
  private isFull(list: Waitlist): boolean {
    const { limiter, tenant } = list
    if (limiter !== undefined && limiter.running + list.waiting >= limiter.limit) return false
    const open = Math.max(0, Math.min(this.free, this.limits.perTenant - tenant.running, this.gate?.left ?? Infinity))
    let inLine = this.waiting
    for (const other of this.limited) inLine -= other.ownWaits
    return inLine >= open + this.limits.queueLimit
  }

  /** Takes an entry out of the line: stopped, or out of time. */
  leave(list: Waitlist, entry: Entry): void {
    if (entry.state !== "waiting") return
    entry.state = "gone"
    this.left(list)
    if (this.gate === undefined || this.nextList() !== undefined) return
    if (this.nextLender() === undefined) this.gate.rest()
    else this.gate.drop()
  }

  private left(list: Waitlist): void {
    this.waiting--
    list.tenant.waiting--
    if (--list.waiting === 0) {
      list.clear()
      this.limited.delete(list)
    }
    this.forget(list.tenant)
  }

  private forget(tenant: TenantQueue): void {
    if (tenant.waiting === 0 && tenant.running === 0 && !tenant.queued) this.tenants.delete(tenant.name)
  }

  private enqueue(list: Waitlist): void {
    if (list.queued || list.waiting === 0 || list.paused) return
    list.queued = true
    list.tenant.ring.push(list)
    this.enqueueTenant(list.tenant)
  }

  private enqueueTenant(tenant: TenantQueue): void {
    if (tenant.queued || tenant.ring.size === 0 || tenant.running >= this.limits.perTenant) return
    tenant.queued = true
    this.ring.push(tenant)
  }

  /** Hands out what is free to whoever is next. */
  pump(): void {
    if (this.pumping) return
    this.pumping = true
    try {
      if (this.gate !== undefined) return this.pumpGated(this.gate)
      while (this.free > 0) {
        const tenant = this.ring.shift()
        if (tenant === undefined) return
        tenant.queued = false
        // Its share may have become smaller; then it is in line again when a permit comes back.
        if (tenant.running < this.limits.perTenant) this.serve(tenant)
        this.enqueueTenant(tenant)
        this.forget(tenant)
      }
    } finally {
      this.pumping = false
    }
  }

  /** The same, one by one through the gate. */
  private pumpGated(gate: Gate): void {
    for (;;) {
      const lender = this.nextLender()
      const list = this.nextList()
      if (lender === undefined && list === undefined) return gate.rest()
      if (list === undefined) gate.drop()
      let inside = lender !== undefined && (list === undefined || this.insideNext)
      let pass = gate.next(inside || this.isCovered(list!))
      if (pass === undefined && !inside && lender !== undefined) {
        // The circuit is being asked; work inside needs no word of it.
        inside = true
        pass = gate.next(true)
      }
      if (pass === undefined) return
      if (pass._tag !== "Pass") {
        const borrower = inside ? this.nextBorrower(lender!)! : { list: list!, entry: list!.peek()! }
        borrower.entry.state = "gone"
        this.left(borrower.list)
        borrower.entry.refused(pass)
        continue
      }
      this.insideNext = !inside
      if (inside) this.lend(lender!, this.nextBorrower(lender!)!)
      else this.takeFirst(pass.admission)
    }
  }

  /** A lender with somebody inside who may borrow. */
  private nextLender(): Permit | undefined {
    for (const lender of this.lenders) {
      if (lender.loan === undefined && !lender.returned && this.nextBorrower(lender) !== undefined) return lender
      this.lenders.delete(lender)
    }
    return undefined
  }

  /** The list that is served next, left in place with all that is before it. */
  private nextList(): Waitlist | undefined {
    while (this.free > 0) {
      const tenant = this.ring.peek()
      if (tenant === undefined) return undefined
      if (tenant.running < this.limits.perTenant) {
        for (let list = tenant.ring.peek(); list !== undefined; list = tenant.ring.peek()) {
          if (!list.paused && list.peek() !== undefined) return list
          tenant.ring.shift()
          list.queued = false
        }
      }
      this.ring.shift()
      tenant.queued = false
      this.forget(tenant)
    }
    return undefined
  }

  private isCovered(list: Waitlist): boolean {
    return this.gate!.hasCircuit && heldOf(list.peek()!.outer, this) !== undefined
  }

  /** Serves what {@link nextList} has found. */
  private takeFirst(admission: Admission | undefined): void {
    const tenant = this.ring.shift()!
    tenant.queued = false
    const list = tenant.ring.shift()!
    list.queued = false
    this.take(list, list.peek()!, admission)
    this.enqueueTenant(tenant)
    this.forget(tenant)
  }

  private serve(tenant: TenantQueue): void {
    for (let list = tenant.ring.shift(); list !== undefined; list = tenant.ring.shift()) {
      list.queued = false
      const entry = list.paused ? undefined : list.peek()
      if (entry === undefined) continue
      // Granting runs the work, which may itself join or leave: the list goes back in line first.
      this.take(list, entry, undefined)
      return
    }
  }

  private take(list: Waitlist, entry: Entry, admission: Admission | undefined): void {
    const tenant = list.tenant
    this.free--
    tenant.running++
    if (list.limiter !== undefined) list.limiter.running++
    entry.state = "granted"
    this.left(list)
    this.enqueue(list)
    const permit = new Permit(this, tenant, entry, undefined)
    permit.admission = admission
    this.out.add(permit)
    entry.granted(permit)
  }

  private lend(held: Permit, borrower: Borrower): void {
    borrower.entry.state = "granted"
    if (borrower.list.limiter !== undefined) borrower.list.limiter.running++
    this.left(borrower.list)
    const loan = held.loan = new Permit(this, held.tenant, borrower.entry, held)
    borrower.entry.granted(loan)
  }

  /** Gives a permit back; the next in line gets it with the next {@link pump}. */
  release(permit: Permit): void {
    if (permit.returned) return
    permit.returned = true
    // Where work inside goes on with the permit, it is given back when that work ends.
    if (permit.loan === undefined) this.giveBack(permit)
    permit.admission?.end(permit.verdict)
  }

  private giveBack(permit: Permit): void {
    const lender = permit.lender
    if (lender === undefined) {
      this.out.delete(permit)
      this.free++
      permit.tenant.running--
      this.enqueueTenant(permit.tenant)
      this.forget(permit.tenant)
      return
    }
    lender.loan = undefined
    if (lender.returned) return this.giveBack(lender)
    this.lendNext(lender)
  }

  private lendNext(lender: Permit): void {
    if (lender.borrowers === undefined) return
    if (this.gate?.rate !== undefined) {
      this.lenders.add(lender)
      return
    }
    const next = this.nextBorrower(lender)
    if (next !== undefined) this.lend(lender, next)
  }

  /** Who inside a permit's work borrows it next, left in line: what is served is no longer waiting. */
  private nextBorrower({ borrowers }: Permit): Borrower | undefined {
    if (borrowers === undefined) return undefined
    const paused: Array<Borrower> = []
    let next = borrowers.peek(borrowerHasLeft)
    while (next?.list.paused === true) {
      borrowers.drop()
      paused.push(next)
      next = borrowers.peek(borrowerHasLeft)
    }
    for (const again of paused) borrowers.add(again)
    return next
  }

  /** Other limits, from now on. Those that wait are served where there is room for more. */
  resize(limits: Limits): void {
    this.limits = limits
    this.free = limits.concurrency - this.out.size
    this.gate?.setRate(limits.rate)
    for (const tenant of this.tenants.values()) this.enqueueTenant(tenant)
    this.pump()
  }

  /** A turn below its own limit again: what it has waiting here may be served. */
  resume(list: Waitlist, held: Permit | undefined): void {
    this.offer(held)
    this.enqueue(list)
  }

  /** Lends what the surroundings hold, when nobody has borrowed it, to whoever inside them is next. */
  offer(held: Permit | undefined): void {
    const lender = heldOf(held, this)
    if (lender !== undefined && lender.loan === undefined) this.lendNext(lender)
  }

  /** Whether something waiting in this list could be served now. */
  canServe(list: Waitlist): boolean {
    return this.free > 0 && list.waiting > 0 && list.tenant.running < this.limits.perTenant
  }

  /** Whether an entry waits for nothing but a token, or the word of a circuit: that comes with time. */
  waitsForGate(list: Waitlist, entry: Entry): boolean {
    if (this.gate === undefined || list.paused) return false
    const held = heldOf(entry.outer, this)
    return (held !== undefined && held.loan === undefined) || this.canServe(list)
  }

  /** The permits of which one has to come back before anything waiting in this list is served: those of a tenant at its limit. */
  blocking(list: Waitlist): ReadonlyArray<Permit> {
    const { tenant } = list
    const all = Array.from(this.out)
    return tenant.running < this.limits.perTenant ? all : all.filter((permit) => permit.tenant === tenant)
  }

  /** The permit that has to come back before the surroundings of this work can lend theirs. */
  loanOf(outer: Permit | undefined): Permit | undefined {
    return heldOf(outer, this)?.loan
  }

  stats(): Limits & {
    readonly circuit: Gate["circuit"]
    readonly running: number
    readonly waiting: number
    readonly tenants: Record<string, { readonly running: number; readonly waiting: number }>
  } {
    const tenants: Record<string, { readonly running: number; readonly waiting: number }> = Object.create(null)
    for (const [name, tenant] of this.tenants) {
      if (tenant.running > 0 || tenant.waiting > 0) tenants[name] = { running: tenant.running, waiting: tenant.waiting }
    }
    const { limits: { concurrency, perTenant, queueLimit, rate }, out, waiting } = this
    const circuit = this.gate?.circuit
    return { concurrency, perTenant, queueLimit, rate, circuit, running: out.size, waiting, tenants }
  }
}
