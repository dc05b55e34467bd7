/**
 * Who waits for whom, from keys alone. One structure serves the plan (a fresh table) and the runtime (a table per tenant).
 *
 * Keys are places in a tree: a claim on a place conflicts with claims on its ancestors, on itself and on what lies below it,
 * when one of the two writes. Unknown reach is a claim on the root.
 *
 * - C1: a claim links to every earlier claim it conflicts with, directly or through hubs and dominating writes.
 * - C2: a claim costs at most a handful of links for each step of its path: what many wait for in common is gathered in a hub.
 * - C3: a node passes when its own part has ended. One that ends without having started hands what it waited for on to those that
 *   waited for it, as far as they conflict: a call that is stopped before its start opens the way for nobody early, and holds
 *   nobody up.
 * - C4: a write dominates what it covers, so later claims link to it alone. Claims of nested turns never dominate: they do not
 *   wait for their ancestors, so nobody may take them for the last to be waited for.
 * - C5: a claim of a nested turn waits for calls that have started, its ancestors excepted, and for earlier ones of its own turn; it
 *   goes before calls around it that have not started, and before those that wait for its ancestors.
 */

/** A point in the order: a call, or a hub that stands for many calls. */
export class Node {
  /** Place in the order of claims. */
  order = 0
  /** Links to nodes that have not passed. */
  pending = 0
  /** Its own part is over; a hub has none. */
  ended = false
  passed = false
  deps: Array<Node> | undefined = undefined
  /** For each of `deps`, the key that makes the link. */
  keys: Array<string> | undefined = undefined
  dependants: Array<Node> | undefined = undefined
  /** The longest way below it in the order, itself included. */
  height = 1
  /** The run or planned call it stands for; undefined for a hub. */
  readonly owner: object | undefined
  places: Array<Place> | undefined = undefined
  write = false
  nested: Nested | undefined = undefined
  constructor(owner: object | undefined) {
    this.owner = owner
    if (owner === undefined) {
      this.ended = true
      this.height = 0
    }
  }
}

export const link = (from: Node, to: Node, key: string): void => {
  if (from.passed || from === to) return
  ;(to.deps ??= []).push(from)
  ;(to.keys ??= []).push(key)
  ;(from.dependants ??= []).push(to)
  to.pending++
}

/** Claims of one kind at one place: those since the last hub, and the hub of those before. */
class Group {
  items: Array<Node> = []
  hub: Node | undefined = undefined
  last = -1

  add(node: Node, live: number): void {
    const items = this.items
    if (items.length > 32 && items.length > 2 * live) this.items = items.filter((item) => !item.passed)
    this.items.push(node)
    if (node.order > this.last) this.last = node.order
  }

  clear(): void {
    this.items = []
    this.hub = undefined
    this.last = -1
  }

  /** Makes `to` wait for all of this group, through a hub when they are several. */
  linkTo(to: Node, key: string, log: Array<Node> | undefined): void {
    if (this.hub?.passed === true) this.hub = undefined
    let items = this.items
    for (let i = 0; i < items.length; i++) {
      if (items[i]!.passed) {
        items = this.items = items.filter((item) => !item.passed)
        break
      }
    }
    const hub = this.hub
    if (items.length === 0) {
      if (hub !== undefined) link(hub, to, key)
      return
    }
    if (items.length === 1 && hub === undefined) return link(items[0]!, to, key)
    const next = new Node(undefined)
    next.order = to.order
    if (hub !== undefined) link(hub, next, key)
    for (const item of items) link(item, next, key)
    this.hub = next
    this.items = []
    log?.push(next)
    link(next, to, key)
  }
}

class Place {
  readonly parent: Place | undefined
  readonly segment: string
  readonly depth: number
  /** Claims on this place and below it that have not passed. */
  live = 0
  children: Map<string, Place> | undefined = undefined
  ownReads: Group | undefined = undefined
  ownWrites: Group | undefined = undefined
  belowReads: Group | undefined = undefined
  belowWrites: Group | undefined = undefined
  /** The order of the last dominating write on exactly this place. */
  barrier = -1
  /** The order of the last write on this place, and below it, whatever became of it. */
  lastWrite = -1
  lastWriteBelow = -1
  constructor(parent: Place | undefined, segment: string) {
    this.parent = parent
    this.segment = segment
    this.depth = parent === undefined ? 0 : parent.depth + 1
  }

  /** Whether `other` is this place or lies below it. */
  covers(other: Place): boolean {
    let at: Place | undefined = other
    while (at !== undefined && at.depth > this.depth) at = at.parent
    return at === this
  }
}

/**
 * Splits a key into the steps of its path, so that equal paths are equal: what stands before the first colon, then the path with
 * `.`, `..` and doubled slashes resolved. A path that leads out of its beginning may mean anything: it covers all.
 */
const segments = (key: string): ReadonlyArray<string> => {
  const colon = key.indexOf(":")
  const out = colon === -1 ? [] : [key.slice(0, colon + 1)]
  const path = colon === -1 ? key : key.slice(colon + 1)
  if (path.indexOf("/") === -1 && path !== "." && path !== "..") {
    out.push(path)
    return out
  }
  const least = out.length + (path.startsWith("/") ? 1 : 0)
  if (path.startsWith("/")) out.push("")
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue
    if (part !== "..") out.push(part)
    else if (out.length > least) out.pop()
    else if (!path.startsWith("/")) return out
  }
  return out
}

export interface Claim {
  readonly write: boolean
  /** `undefined`: unknown reach. */
  readonly keys: ReadonlyArray<string> | undefined
}

/** What a table has to know of the calls that work inside a handler meets. */
export interface Nested {
  readonly isAncestor: (owner: object) => boolean
  /** Whether this earlier call goes before the nested one: it has started, or stands beside it. */
  readonly goesFirst: (owner: object) => boolean
  /** Whoever this stands for was in line for its start, and now waits again. */
  readonly withdraw: (node: Node) => void
}

const rootPath: ReadonlyArray<ReadonlyArray<string>> = [[]]

const pathsOf = (claim: Claim): ReadonlyArray<ReadonlyArray<string>> =>
  claim.keys === undefined ? rootPath : claim.keys.map(segments)

/** Whether whoever holds some keys may touch what others name: `undefined` is unknown reach. */
export const covers = (held: Claim["keys"], wanted: Claim["keys"]): boolean => {
  if (held === undefined) return true
  if (wanted === undefined) return false
  const paths = held.map(segments)
  return wanted.map(segments).every((path) =>
    paths.some((above) => above.length <= path.length && above.every((step, i) => step === path[i]))
  )
}

const unknownKey = "*"

/** The key of links that a turn makes between its calls to run them one after another. */
export const sequentialKey = "sequential"

export class Claims {
  readonly root = new Place(undefined, "")
  /** All nodes, hubs included, each after what it waits for; kept by plans alone. */
  readonly log: Array<Node> | undefined
  private order = 0

  constructor(log?: Array<Node>) {
    this.log = log
  }

  /** Takes a place in the order for `node`; `nested` is given by turns inside a handler. */
  claim(node: Node, claim: Claim, nested?: Nested): void {
    node.order = this.order++
    node.write = claim.write
    node.nested = nested
    if (claim.keys === undefined || claim.keys.length > 0) {
      const paths = pathsOf(claim)
      const places = new Map<Place, string>()
      for (let i = 0; i < paths.length; i++) {
        const place = this.placeOf(paths[i]!)
        if (!places.has(place)) places.set(place, claim.keys === undefined ? unknownKey : claim.keys[i]!)
      }
      node.places = Array.from(places.keys())
      for (const [place, key] of places) {
        if (nested === undefined) this.wait(node, place, claim.write, key)
        else this.waitNested(node, place, claim.write, key, nested)
      }
      for (const place of node.places) this.take(node, place, claim.write, nested === undefined)
    }
    this.log?.push(node)
  }

  /**
   * Gives `next` the place in the order that `node` has, for a claim which that one covers: `next` waits only for what it conflicts with,
   * and only that waits for it. The old node is to be ended then, unstarted.
   */
  replace(node: Node, next: Node, claim: Claim): void {
    next.order = node.order
    next.write = node.write
    next.nested = node.nested
    const paths = pathsOf(claim)
    if (paths.length === 0) return
    next.places = [...new Set(paths.map((path) => this.placeOf(path)))]
    const key = claim.keys?.[0] ?? unknownKey
    if (node.deps !== undefined) { for (const dep of waitsOf(node)) if (conflict(dep, next)) link(dep, next, key) }
    for (const behind of callsBehind(node)) {
      if (behind.next.owner === undefined || conflict(next, behind.next)) link(next, behind.next, key)
    }
    for (const place of next.places) this.take(next, place, next.write, false)
  }

  private placeOf(path: ReadonlyArray<string>): Place {
    let place = this.root
    for (let i = 0; i < path.length; i++) {
      const segment = path[i]!
      const children = (place.children ??= new Map())
      let next = children.get(segment)
      if (next === undefined) {
        next = new Place(place, segment)
        children.set(segment, next)
      }
      place = next
    }
    return place
  }

  private wait(node: Node, at: Place, write: boolean, key: string): void {
    // A dominating write at or above `at` covers everything older: older groups need no link.
    let barrier = at.barrier
    for (let up = at.parent; up !== undefined; up = up.parent) if (up.barrier > barrier) barrier = up.barrier
    const wait = (group: Group | undefined) => {
      if (group !== undefined && group.last >= barrier && group.last >= 0) group.linkTo(node, key, this.log)
    }
    for (let up: Place | undefined = at; up !== undefined; up = up.parent) {
      wait(up.ownWrites)
      if (write) wait(up.ownReads)
    }
    wait(at.belowWrites)
    if (write) wait(at.belowReads)
  }

  /**
   * As `wait`, for work inside a started call: it counts as its ancestor's, so it waits for what has started, and goes before
   * what stands around it and has not. No hubs: each live call on its own.
   */
  private waitNested(node: Node, at: Place, write: boolean, key: string, nested: Nested): void {
    const seen = new Set<Node>()
    const visit = (from: Node): void => {
      const stack = [from]
      while (stack.length > 0) {
        const next = stack.pop()!
        if (next.passed || seen.has(next)) continue
        seen.add(next)
        if (next.owner !== undefined && !next.ended) {
          if (nested.isAncestor(next.owner)) continue
          // What a dominating write stands for may be apart from this claim.
          if (conflict(next, node)) {
            if (nested.goesFirst(next.owner) && !waitsForAncestor(next, nested)) {
              link(next, node, key)
              continue
            }
            link(node, next, key)
            nested.withdraw(next)
          }
        }
        if (next.deps !== undefined) { for (const dep of next.deps) if (dep !== node) stack.push(dep) }
      }
    }
    const wait = (group: Group | undefined) => {
      if (group === undefined) return
      if (group.hub !== undefined) visit(group.hub)
      for (const item of group.items) visit(item)
    }
    for (let up: Place | undefined = at; up !== undefined; up = up.parent) {
      wait(up.ownWrites)
      if (write) wait(up.ownReads)
    }
    wait(at.belowWrites)
    if (write) wait(at.belowReads)
  }

  private take(node: Node, at: Place, write: boolean, dominates: boolean): void {
    if (write) {
      if (node.order > at.lastWrite) at.lastWrite = node.order
      if (dominates) {
        at.ownReads?.clear()
        at.ownWrites?.clear()
        at.belowReads?.clear()
        at.belowWrites?.clear()
        at.barrier = node.order
      }
      ;(at.ownWrites ??= new Group()).add(node, at.live)
    } else {
      ;(at.ownReads ??= new Group()).add(node, at.live)
    }
    at.live++
    for (let up = at.parent; up !== undefined; up = up.parent) {
      up.live++
      if (write) {
        if (node.order > up.lastWriteBelow) up.lastWriteBelow = node.order
        ;(up.belowWrites ??= new Group()).add(node, up.live)
      } else {
        ;(up.belowReads ??= new Group()).add(node, up.live)
      }
    }
  }

  /** The order of the last write that conflicts with such a claim, -1 when there is none. */
  lastConflictingWrite(claim: Claim): number {
    let last = -1
    for (const path of pathsOf(claim)) {
      let place: Place | undefined = this.root
      if (place.lastWrite > last) last = place.lastWrite
      for (let i = 0; i < path.length; i++) {
        place = place!.children?.get(path[i]!)
        if (place === undefined) break
        if (place.lastWrite > last) last = place.lastWrite
      }
      if (place !== undefined && place.lastWriteBelow > last) last = place.lastWriteBelow
    }
    return last
  }

  /** Whether any claim taken so far conflicts with this one. */
  conflicts(claim: Claim): boolean {
    for (const path of pathsOf(claim)) {
      let place: Place | undefined = this.root
      for (let i = 0; place !== undefined; i++) {
        if (place.ownWrites !== undefined || (claim.write && place.ownReads !== undefined)) return true
        if (i === path.length) {
          if (place.belowWrites !== undefined || (claim.write && place.belowReads !== undefined)) return true
          break
        }
        place = place.children?.get(path[i]!)
      }
    }
    return false
  }
}

/** Whether a call waits for one of the ancestors, so that it must not be waited for by what is done inside that. */
const waitsForAncestor = (node: Node, nested: Nested): boolean => {
  if (node.pending === 0) return false
  const seen = new Set<Node>()
  const stack = [node]
  while (stack.length > 0) {
    for (const dep of stack.pop()!.deps ?? []) {
      if (dep.passed || seen.has(dep)) continue
      seen.add(dep)
      if (dep.owner !== undefined && nested.isAncestor(dep.owner)) return true
      stack.push(dep)
    }
  }
  return false
}

const leave = (node: Node): void => {
  const places = node.places
  if (places === undefined) return
  node.places = undefined
  for (const at of places) {
    for (let place: Place | undefined = at; place !== undefined; place = place.parent) {
      if (--place.live > 0) continue
      // Nothing lives here or below: the place is forgotten, the root is as new.
      if (place.parent !== undefined) place.parent.children?.delete(place.segment)
      else {
        place.children =
          place.ownReads =
          place.ownWrites =
          place.belowReads =
          place.belowWrites =
            undefined
        place.barrier = place.lastWrite = place.lastWriteBelow = -1
      }
    }
  }
}

/** Says that a node's own part is over. Nodes that may start now are given to `ready`, in the order of their links. */
export const end = (node: Node, ready: (node: Node) => void): void => {
  if (node.ended) return
  node.ended = true
  if (node.pending > 0) handOn(node)
  pass(node, ready)
}

/** The calls that a node still waits for, hubs expanded. */
const waitsOf = (node: Node): ReadonlyArray<Node> => {
  const found: Array<Node> = []
  const seen = new Set<Node>()
  const stack = [...node.deps!]
  while (stack.length > 0) {
    const next = stack.pop()!
    if (next.passed || seen.has(next)) continue
    seen.add(next)
    if (next.owner !== undefined) found.push(next)
    else if (next.deps !== undefined) { for (const dep of next.deps) stack.push(dep) }
  }
  return found
}

interface Behind {
  readonly next: Node
  readonly key: string
  /** It waits because of the turn's own order, whatever the keys. */
  readonly inOrder: boolean
}

/** Above this many, those behind a hub are kept together: they may then wait for more than they conflict with. */
const mostBehind = 256

/** The calls that wait for a node, hubs expanded while they are few. */
const callsBehind = (node: Node): ReadonlyArray<Behind> => {
  const found: Array<Behind> = []
  const seen = new Set<Node>()
  const stack = [node]
  while (stack.length > 0) {
    const from = stack.pop()!
    for (const next of from.dependants ?? []) {
      if (next.passed || seen.has(next)) continue
      seen.add(next)
      // It may wait for it twice: for a key, and for the turn's own order.
      const keys = next.keys!.filter((_, i) => next.deps![i] === from)
      const key = keys.find((key) => key !== sequentialKey) ?? unknownKey
      if (next.owner === undefined && seen.size + (next.dependants?.length ?? 0) <= mostBehind) stack.push(next)
      else found.push({ next, key, inOrder: keys.includes(sequentialKey) })
    }
  }
  return found
}

/** Whether two calls share a place that one of them writes. */
export const conflict = (a: Node, b: Node): boolean => {
  if ((!a.write && !b.write) || a.places === undefined || b.places === undefined) return false
  for (const p of a.places) for (const q of b.places) if (p.covers(q) || q.covers(p)) return true
  return false
}

/** C3: what an unstarted call waited for is waited for by those behind it, and stands again where the call had dominated it. */
const handOn = (node: Node): void => {
  const shared = node.places?.some((place) => place.live > 1) ?? false
  const behind = callsBehind(node)
  if (!shared && behind.length === 0) return
  const waits = waitsOf(node)
  const before = new Set(node.deps!.filter((_, i) => node.keys![i] === sequentialKey))
  for (const { inOrder, key, next } of behind) {
    for (const dep of waits) {
      if (next.owner !== undefined && next.nested?.isAncestor(dep.owner!) === true) continue
      if (next.owner === undefined || conflict(dep, next)) link(dep, next, key)
      if (inOrder && before.has(dep)) link(dep, next, sequentialKey)
    }
  }
  if (!node.write || node.nested !== undefined || node.places === undefined) return
  const known = new Map<Group, Set<Node>>()
  const stand = (group: Group, dep: Node, live: number): void => {
    let items = known.get(group)
    if (items === undefined) known.set(group, items = new Set(group.items))
    if (items.has(dep)) return
    items.add(dep)
    group.add(dep, live)
  }
  for (const place of node.places) {
    if (place.live === 1) continue
    if (place.barrier === node.order) place.barrier = -1
    for (const dep of waits) {
      for (const at of dep.places ?? []) {
        if (!place.covers(at)) continue
        // All the way down to its own place: what came later in between may have cleared it there, and be gone as well.
        for (let on: Place | undefined = at; on !== undefined && on.depth >= place.depth; on = on.parent) {
          const group = dep.write
            ? (on === at ? on.ownWrites ??= new Group() : on.belowWrites ??= new Group())
            : (on === at ? on.ownReads ??= new Group() : on.belowReads ??= new Group())
          stand(group, dep, on.live)
        }
      }
    }
  }
}

const pass = (first: Node, ready: (node: Node) => void): void => {
  const stack = [first]
  while (stack.length > 0) {
    const node = stack.pop()!
    if (node.passed) continue
    node.passed = true
    leave(node)
    const dependants = node.dependants
    node.dependants = undefined
    node.deps = undefined
    node.keys = undefined
    if (dependants === undefined) continue
    for (const next of dependants) {
      if (--next.pending > 0) continue
      if (next.ended) stack.push(next)
      else ready(next)
    }
  }
}

/**
 * Fills in `height`, the longest way down, each call itself included: in calls, or in what `lengthOf` says of each. Takes a log of
 * `Claims`.
 */
export const measure = (log: ReadonlyArray<Node>, lengthOf?: (owner: object) => number): void => {
  for (let i = log.length - 1; i >= 0; i--) {
    const node = log[i]!
    const { dependants, owner } = node
    let below = 0
    if (dependants !== undefined) { for (const next of dependants) if (next.height > below) below = next.height }
    node.height = below + (owner === undefined ? 0 : lengthOf === undefined ? 1 : lengthOf(owner))
  }
}
