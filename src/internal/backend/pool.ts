/**
 * Permits of one backend, handed out fairly.
 *
 * - B1: a permit is out, or free, or lent to work inside its holder's; never two of these. What is given up on keeps its permit.
 * - B2: no permit is free while an entry that may take it waits.
 * - B3: tenants take turns; within a tenant, turns take turns; within a turn, the entry with the longest way below it goes first,
 *   equal ones in emission order.
 * - B4: taking and giving back cost the same whatever waits: lists are kept in order when entries join, and rings hold only what may
 *   be served.
 * - B5: work inside a holder's work never waits for the holder: it borrows the holder's permit, one at a time.
 */

/** A first-in-first-out list that forgets its served front in constant time. */
class Fifo<A> {
  private items: Array<A> = []
  private head = 0

  get size(): number {
    return this.items.length - this.head
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
  state: EntryState
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
  constructor(pool: Pool, tenant: TenantQueue, outer: Permit | undefined, owner: unknown, lender: Permit | undefined) {
    this.pool = pool
    this.tenant = tenant
    this.outer = outer
    this.owner = owner
    this.lender = lender
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
  readonly limits: Limits
  free: number
  waiting = 0
  /** Permits that are out and not borrowed, for whoever looks for a deadlock. */
  readonly out = new Set<Permit>()
  private readonly tenants = new Map<string, TenantQueue>()
  private readonly ring = new Fifo<TenantQueue>()
  /** Lists of turns with a limit of their own in which something waits. */
  private readonly limited = new Set<Waitlist>()
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

  /** Puts an entry in line; false when the line is full. Nothing is granted before {@link pump}. */
  join(list: Waitlist, entry: Entry): boolean {
    const held = heldOf(entry.outer, this)
    if (list.waiting === 0) list.tenant = this.tenantOf(list.tenant.name)
    const tenant = list.tenant
    if (held === undefined && this.limits.queueLimit !== Infinity && this.isFull(list)) {
      this.forget(tenant)
      return false
    }
    entry.state = "waiting"
    if (held !== undefined) (held.borrowers ??= new Line<Borrower>(borrowsBefore)).add({ entry, list })
    list.add(entry)
    if (list.limiter !== undefined) this.limited.add(list)
    this.waiting++
    tenant.waiting++
    this.enqueue(list)
    return true
  }

  /** Whether one more has no place in the line. What waits for its own turn's limit stands in nobody's way. */
  private isFull(list: Waitlist): boolean {
    const { limiter, tenant } = list
    if (limiter !== undefined && limiter.running + list.waiting >= limiter.limit) return false
    const open = Math.max(0, Math.min(this.free, this.limits.perTenant - tenant.running))
    let inLine = this.waiting
    for (const other of this.limited) inLine -= other.ownWaits
    return inLine >= open + this.limits.queueLimit
  }

  /** Takes an entry out of the line: stopped, or out of time. */
  leave(list: Waitlist, entry: Entry): void {
    if (entry.state !== "waiting") return
    entry.state = "gone"
    this.left(list)
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
      while (this.free > 0) {
        const tenant = this.ring.shift()
        if (tenant === undefined) return
        tenant.queued = false
        this.serve(tenant)
        this.enqueueTenant(tenant)
        this.forget(tenant)
      }
    } finally {
      this.pumping = false
    }
  }

  private serve(tenant: TenantQueue): void {
    for (let list = tenant.ring.shift(); list !== undefined; list = tenant.ring.shift()) {
      list.queued = false
      const entry = list.paused ? undefined : list.peek()
      if (entry === undefined) continue
      // Granting runs the work, which may itself join or leave: the list goes back in line first.
      this.take(list, entry)
      return
    }
  }

  private take(list: Waitlist, entry: Entry): void {
    const tenant = list.tenant
    this.free--
    tenant.running++
    if (list.limiter !== undefined) list.limiter.running++
    entry.state = "granted"
    this.left(list)
    this.enqueue(list)
    const permit = new Permit(this, tenant, entry.outer, entry, undefined)
    this.out.add(permit)
    entry.granted(permit)
  }

  private lend(held: Permit, borrower: Borrower): void {
    borrower.entry.state = "granted"
    if (borrower.list.limiter !== undefined) borrower.list.limiter.running++
    this.left(borrower.list)
    const loan = held.loan = new Permit(this, held.tenant, borrower.entry.outer, borrower.entry, held)
    borrower.entry.granted(loan)
  }

  /** Gives a permit back; the next in line gets it with the next {@link pump}. */
  release(permit: Permit): void {
    if (permit.returned) return
    permit.returned = true
    if (permit.loan !== undefined) {
      // Work inside goes on with the permit: it is given back when that work ends.
      return
    }
    this.giveBack(permit)
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
    const borrowers = lender.borrowers
    if (borrowers === undefined) return
    const paused: Array<Borrower> = []
    for (;;) {
      const next = borrowers.peek(borrowerHasLeft)
      if (next === undefined) break
      borrowers.drop()
      if (!next.list.paused) {
        this.lend(lender, next)
        break
      }
      paused.push(next)
    }
    for (const again of paused) borrowers.add(again)
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

  stats(): {
    readonly concurrency: number
    readonly running: number
    readonly waiting: number
    readonly tenants: Record<string, { readonly running: number; readonly waiting: number }>
  } {
    const tenants: Record<string, { readonly running: number; readonly waiting: number }> = Object.create(null)
    for (const [name, tenant] of this.tenants) {
      if (tenant.running > 0 || tenant.waiting > 0) tenants[name] = { running: tenant.running, waiting: tenant.waiting }
    }
    return { concurrency: this.limits.concurrency, running: this.out.size, waiting: this.waiting, tenants }
  }
}
