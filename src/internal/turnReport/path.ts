/** The critical path: from the end of the turn back to its start, from each moment to what ended then. */
import type * as TurnReport from "../../TurnReport.ts"

type Mutable<A> = { -readonly [K in keyof A]: A[K] }

type After = NonNullable<TurnReport.Link["after"]>

/** Who was waited for, and when that was over. */
interface Found {
  readonly at: number
  readonly after: After
}

/** A call that gave something back at a moment. */
interface Release {
  readonly at: number
  readonly call: TurnReport.Call
  readonly worked: boolean
}

/**
 * By how much clocks may disagree: events are told in whole milliseconds, waits in parts of them, and between the end of a call and the start
 * that it opens the way for the clock may go on. Where waits are whole too, time is virtual, and nothing has to be overlooked.
 */
export const slackOf = (waited: number): number => Number.isInteger(waited) ? 0 : 2

const works = (kind: TurnReport.SpanKind): boolean =>
  kind === "running" || kind === "overdue" || kind === "unit" || kind === "late"

/** All that was given back, by the moment; in one moment in the order of the calls. */
const releasedBy = (calls: ReadonlyArray<TurnReport.Call>): ReadonlyArray<Release> => {
  const released: Array<Release> = []
  for (const call of calls) {
    const own = new Set<number>()
    for (const { from, kind, to } of call.spans) {
      if (!works(kind) || to <= from || own.has(to)) continue
      own.add(to)
      released.push({ at: to, call, worked: true })
    }
    // One that never ran had a place in the order of keys too.
    const { from, to } = call
    if (to !== undefined && to > from && !own.has(to)) released.push({ at: to, call, worked: false })
  }
  return released.sort((a, b) => a.at - b.at)
}

/** What was given back from one moment to another. */
const between = (released: ReadonlyArray<Release>, from: number, to: number): ReadonlyArray<Release> => {
  let low = 0
  for (let high = released.length; low < high;) {
    const middle = (low + high) >> 1
    if (released[middle]!.at < from) low = middle + 1
    else high = middle
  }
  let end = low
  while (end < released.length && released[end]!.at <= to) end++
  return released.slice(low, end)
}

/** Who has to be waited for, with the key; hubs stand for many, and are opened when they are asked for. */
class Order {
  private readonly before = new Map<number | string, Array<TurnReport.Plan["edges"][number]>>()
  private readonly hubs = new Map<string, ReadonlySet<number>>()

  constructor({ edges }: TurnReport.Plan) {
    for (const edge of edges) {
      const list = this.before.get(edge.to)
      if (list === undefined) this.before.set(edge.to, [edge])
      else list.push(edge)
    }
  }

  /** The key for which one call waits for another. */
  key(from: number, to: number): string | undefined {
    for (const edge of this.before.get(to) ?? []) {
      if (typeof edge.from === "number" ? edge.from === from : this.behind(edge.from).has(from)) return edge.key
    }
    return undefined
  }

  private behind(hub: string): ReadonlySet<number> {
    const known = this.hubs.get(hub)
    if (known !== undefined) return known
    const found = new Set<number>()
    // Before it is filled: edges in a circle, as no plan has them, must not be followed for ever.
    this.hubs.set(hub, found)
    for (const { from } of this.before.get(hub) ?? []) {
      if (typeof from === "number") found.add(from)
      else for (const one of this.behind(from)) found.add(one)
    }
    return found
  }
}

export const pathOf = (
  calls: ReadonlyArray<TurnReport.Call>,
  elapsed: number,
  plan: TurnReport.Plan | undefined
): ReadonlyArray<TurnReport.Link> => {
  if (elapsed <= 0) return []
  const order = plan === undefined ? undefined : new Order(plan)
  const released = releasedBy(calls)
  const byPosition = new Map(calls.map((call) => [call.position, call]))
  /** Last first. */
  const links: Array<Mutable<TurnReport.Link>> = []
  const walk = {
    cursor: elapsed,
    current: lastOf(calls),
    /** The calls that the path has come through at this moment. */
    visited: new Set<TurnReport.Call>()
  }

  const link = (kind: TurnReport.Link["kind"], from: number, of?: TurnReport.Call, attempt?: number): void => {
    links.push({
      kind,
      ...(of === undefined ? undefined : { position: of.position }),
      from,
      to: walk.cursor,
      ...(attempt === undefined ? undefined : { attempt })
    })
    if (from < walk.cursor) walk.visited = new Set()
    walk.cursor = from
  }

  /** Goes on with the call that was waited for up to now. */
  const goOn = (to: TurnReport.Call, after: After, of: TurnReport.Call, waited: TurnReport.SpanKind): void => {
    // What began and ended in this moment, or was not started after its wait, has a link too: the reason belongs to it.
    if (links.at(-1)?.position !== of.position || links.at(-1)!.from !== walk.cursor) {
      const run = of.spans.find(({ from, kind }) => kind === "running" && from === walk.cursor)
      link(run === undefined ? waited : "running", walk.cursor, of, run?.attempt)
    }
    links.at(-1)!.after = after
    walk.visited.add(of)
    walk.current = to
  }

  const endOf = (call: TurnReport.Call) => call.to ?? elapsed
  if (walk.current === undefined) link("unknown", 0)
  else if (endOf(walk.current) < elapsed) link("closing", endOf(walk.current))
  while (walk.cursor > 0 && walk.current !== undefined) {
    const call: TurnReport.Call = walk.current
    const span = call.spans.findLast(({ from, to }) => from < walk.cursor && walk.cursor <= to)
    if (span === undefined) {
      link(call.from >= walk.cursor ? "submitted" : "unknown", 0, call.from >= walk.cursor ? call : undefined)
      break
    }
    const after = span.to === walk.cursor ? waitedFor(call, span.kind) : undefined
    if (after === undefined) link(span.kind, span.from, call, span.attempt)
    else {
      // The clock went on between the end of the one and the start of the other.
      if (after.at < walk.cursor) link(span.kind, after.at, call)
      goOn(byPosition.get(after.after.position)!, after.after, call, span.kind)
    }
  }
  return links.toReversed()

  /** Whom a wait that is over now was for, if one of the turn's own. */
  function waitedFor(call: TurnReport.Call, kind: TurnReport.SpanKind): Found | undefined {
    if (kind === "twin") {
      const twin = byPosition.get(call.duplicateOf!)
      return twin === undefined || twin === call || walk.visited.has(twin) || twin.to !== walk.cursor ||
          twin.from >= walk.cursor
        ? undefined
        : { at: walk.cursor, after: { position: twin.position, cause: "twin", inferred: false } }
    }
    if (kind !== "keys" && kind !== "permit") return undefined
    const slack = slackOf(call.waited[kind])
    const others = between(released, walk.cursor - slack, walk.cursor)
      .filter((one) => one.call !== call && !walk.visited.has(one.call) && one.at > 0)
    if (kind === "permit") {
      const other = latest(others.filter((one) => one.worked && one.call.backend === call.backend))[0]
      return other === undefined ? undefined : {
        at: other.at,
        after: {
          position: other.call.position,
          cause: "permit",
          ...(call.backend === undefined ? undefined : { backend: call.backend }),
          inferred: true
        }
      }
    }
    // The nearest before it: those further up are the nearer one's own.
    for (const { at, call: { position }, worked } of others.toReversed()) {
      if (order === undefined) {
        if (position < call.position && worked) return { at, after: { position, cause: "keys", inferred: true } }
        continue
      }
      const key = order.key(position, call.position)
      if (key !== undefined) return { at, after: { position, cause: "keys", key, inferred: false } }
    }
    return undefined
  }
}

/** Those of the last moment. */
const latest = (released: ReadonlyArray<Release>): ReadonlyArray<Release> =>
  released.filter(({ at }) => at === released.at(-1)!.at)

/** The call that ended last; of several the one that worked longest. One without an answer goes on to the end. */
const lastOf = (calls: ReadonlyArray<TurnReport.Call>): TurnReport.Call | undefined => {
  let last: TurnReport.Call | undefined
  for (const call of calls) {
    const [to, before] = [call.to ?? Infinity, last?.to ?? Infinity]
    if (last === undefined || to > before || (to === before && call.ran > last.ran)) last = call
  }
  return last
}

/** What no turn of these calls falls below, as long as each takes what it took. */
export const boundsOf = (
  calls: ReadonlyArray<TurnReport.Call>,
  elapsed: number,
  plan: TurnReport.Plan | undefined
): TurnReport.Turn["bounds"] => {
  const own = new Map<number | string, number>()
  for (const { position, spans } of calls) {
    let sum = 0
    for (const { from, kind, to } of spans) {
      if (kind === "running" || kind === "overdue" || kind === "pause") sum += to - from
    }
    own.set(position, sum)
  }
  let longest = 0
  for (const millis of own.values()) longest = Math.max(longest, millis)
  if (plan === undefined) return { calls: longest }
  // A plan lists its edges by where they end, each after those before it.
  const begins = new Map<number | string, number>()
  const endOf = (one: number | string) => (begins.get(one) ?? 0) + (own.get(one) ?? 0)
  for (const { from, to } of plan.edges) begins.set(to, Math.max(begins.get(to) ?? 0, endOf(from)))
  let order = longest
  for (const one of begins.keys()) order = Math.max(order, endOf(one))
  // A plan of other calls would say more than the turn took.
  return order <= elapsed ? { calls: longest, order } : { calls: longest }
}
