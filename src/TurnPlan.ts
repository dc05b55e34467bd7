/**
 * What a turn will do, as a value, before anything runs: which calls run, which are held, deferred, duplicates or refused,
 * and who waits for whom, each edge with the key that makes it.
 *
 * The plan is pure: calls and policies in, a value out. The runtime acts on this value and on nothing else.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { Claims, link, measure, Node, sequentialKey } from "./internal/turnPlan/claims.ts"
import { flowchart } from "./internal/turnPlan/mermaid.ts"
import type * as Outcome from "./Outcome.ts"
import type * as ToolPolicy from "./ToolPolicy.ts"

/**
 * A call as the intake hands it to the planner: decoded, with its policy's answers.
 *
 * **Details**
 *
 * - `keys`: `undefined` is unknown reach.
 * - `digest`: canonical decoded arguments; calls of one tool with equal digests are identical. `undefined`: never merged. Read
 *   only where a tool is called more than once.
 * - `content`: what a re-delivery is recognised by. Read only where an id is repeated.
 * - `state`: what intake has found already; `open` calls are the planner's to decide.
 * - `asks`: what a call asks for in requests that it shares with others; absent where it asks for itself.
 * - `references`: which arguments are results of other calls of the turn. Its `keys` are then those that read none of them, else unknown
 *   reach (`unresolved`).
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Entry {
  readonly position: number
  readonly id: string
  readonly name: string
  readonly access: ToolPolicy.Access
  readonly keys: ReadonlyArray<string> | undefined
  readonly backend: string | undefined
  readonly repeatable: boolean
  readonly digest: string | undefined
  readonly content: string | undefined
  readonly state:
    | { readonly _tag: "open"; readonly approval: boolean }
    | { readonly _tag: "refused"; readonly code: Outcome.ErrorCode; readonly message: string }
    | {
      readonly _tag: "deferred"
      readonly code: "placeholder" | "dependency_failed"
      readonly message: string
    }
    | { readonly _tag: "provider" }
    | { readonly _tag: "answered" }
  readonly asks?: (() => Asks) | undefined
  readonly references?: ReadonlyArray<Reference> | undefined
  readonly unresolved?: boolean | undefined
}

/**
 * What a call asks a coalescer for: `into` is its name, `size` the most things of one request, `items` texts that stand for the things.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Asks {
  readonly into: string
  readonly size: number
  readonly items: ReadonlyArray<string>
}

/**
 * An argument that is the result of another call: `argument` is where it stands, its steps joined by dots, `call` the position of that
 * call, `at` a JSON pointer into its result, `""` for the whole.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Reference = Schema.Struct({ argument: Schema.String, call: Schema.Int, at: Schema.String })

/**
 * An argument that is the result of another call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Reference = typeof Reference.Type

/**
 * How arguments may name results of other calls of their turn.
 *
 * **Details**
 *
 * `names` are names that a planner has for calls, or for parts of their results, beside their ids: the call's position, and a JSON pointer
 * into its result. Default: none.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface References {
  readonly names?:
    | Readonly<Record<string, { readonly call: number; readonly at?: string | undefined }>>
    | undefined
}

/**
 * What is to become of a call. `answered` is one that has its answer already, in a turn that is resumed.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Verdict = Schema.Literals([
  "run",
  "held",
  "duplicate",
  "deferred",
  "refused",
  "provider_executed",
  "answered"
])

/**
 * What is to become of a call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Verdict = typeof Verdict.Type

/**
 * One call of the plan.
 *
 * **Details**
 *
 * `height` is the number of calls on the longest way down from here, itself included. Among ready calls that wait for the same
 * backend the longest way goes first; the runtime weighs each call of it by what its tool has taken so far. `code` and `message`
 * say why a call is not run. `references` are the arguments that are results of other calls; with `unresolved` its keys read one of them,
 * so that it may touch anything until that is known.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const PlannedCall = Schema.Struct({
  position: Schema.Int,
  id: Schema.String,
  name: Schema.String,
  verdict: Verdict,
  access: Schema.Literals(["read", "write"]),
  keys: Schema.optionalKey(Schema.Array(Schema.String)),
  backend: Schema.optionalKey(Schema.String),
  height: Schema.Int,
  references: Schema.optionalKey(Schema.Array(Reference)),
  unresolved: Schema.optionalKey(Schema.Literal(true)),
  duplicateOf: Schema.optionalKey(Schema.Int),
  code: Schema.optionalKey(Schema.String),
  message: Schema.optionalKey(Schema.String)
})

/**
 * One call of the plan.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type PlannedCall = typeof PlannedCall.Type

/**
 * One edge: `to` waits for `from` because of `key` (`"*"` is unknown reach, `"sequential"` the turn's own order, `"reference"` its result).
 *
 * **Details**
 *
 * A number is a call's position, `"h0"`, `"h1"`, … are hubs: n readers of a folder and n writers below it cost 2n edges
 * through a hub, not n². {@link dependencies} expands them.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Edge = Schema.Struct({
  from: Schema.Union([Schema.Int, Schema.String]),
  to: Schema.Union([Schema.Int, Schema.String]),
  key: Schema.String
})

/**
 * One edge of the plan.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Edge = typeof Edge.Type

/**
 * One request for several calls: `into` is the coalescer's name, `calls` are the positions of those that it is for, `items` is how many
 * things it asks for.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Request = Schema.Struct({
  into: Schema.String,
  calls: Schema.Array(Schema.Int),
  items: Schema.Int
})

/**
 * One request for several calls.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Request = typeof Request.Type

/**
 * Schema of a plan as JSON.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Encoded = Schema.Struct({
  calls: Schema.Array(PlannedCall),
  edges: Schema.Array(Edge),
  requests: Schema.optionalKey(Schema.Array(Request))
})

/**
 * A plan as JSON.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Encoded = typeof Encoded.Type

/**
 * What a turn will do. `edges` and `requests` are computed when they are first asked for.
 *
 * **Details**
 *
 * `requests` are those of calls that share them, of which none waits for another: the fewest that the sizes allow. Calls that have to wait
 * for something else meanwhile, a key that another turn holds, ask later, and for themselves.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnPlan {
  readonly calls: ReadonlyArray<PlannedCall>
  readonly edges: ReadonlyArray<Edge>
  readonly requests: ReadonlyArray<Request>
}

/**
 * What belongs to one turn and changes its plan.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  /** Which identical calls are merged. Default `"all"`. */
  readonly dedupe?: "all" | "reads" | "off" | undefined
  /** Default `"parallel"`; a number is the turn's own limit and does not change the plan. */
  readonly execution?: "parallel" | "sequential" | number | undefined
  /** How many calls are run or held; the others are refused as `over_limit`. Default: no limits. */
  readonly amounts?: Amounts | undefined
}

/**
 * How much one turn may ask for.
 *
 * **Details**
 *
 * Calls that are refused anyway, duplicates, and those that the provider ran do not count. Calls are counted in emission order.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Amounts {
  readonly calls?: number | undefined
  /** Calls of each tool, or of the tools that are named. */
  readonly perTool?: number | Readonly<Record<string, number>> | undefined
}

/** The order of claims, which the runtime keeps for the turns of a tenant too.
 *
 * @internal
 */
export { Claims, conflict, covers, end, link, type Nested, Node, sequentialKey } from "./internal/turnPlan/claims.ts"

/** The key of links from a call to those that need its result. */
const referenceKey = "reference"

/** The plan with the nodes that the edges are made from.
 *
 * @internal
 */
export class Plan implements TurnPlan {
  readonly calls: Array<PlannedCall> = []
  /** The calls in the order of their places, where that is not the order of the list. */
  places: Array<PlannedCall> | undefined = undefined
  readonly log: Array<Node> = []
  private cached: ReadonlyArray<Edge> | undefined = undefined
  /** Calls that share requests, and what they ask for. */
  asking: Array<{ readonly call: PlannedCall; readonly asks: () => Asks }> | undefined = undefined
  private merged: ReadonlyArray<Request> | undefined = undefined

  get requests(): ReadonlyArray<Request> {
    return this.merged ??= this.asking === undefined ? [] : requestsOf(this.asking, this.log)
  }

  get edges(): ReadonlyArray<Edge> {
    if (this.cached !== undefined) return this.cached
    const names = new Map<Node, number | string>()
    let hubs = 0
    for (const node of this.log) {
      names.set(node, node.owner === undefined ? `h${hubs++}` : (node.owner as PlannedCall).position)
    }
    const edges: Array<Edge> = []
    for (const to of this.log) {
      if (to.deps === undefined) continue
      const seen = new Set<Node>()
      for (let i = 0; i < to.deps.length; i++) {
        const from = to.deps[i]!
        if (seen.has(from)) continue
        seen.add(from)
        edges.push({ from: names.get(from)!, to: names.get(to)!, key: to.keys![i]! })
      }
    }
    return this.cached = edges
  }

  toJSON(): Encoded {
    return toJson(this)
  }
}

const notDecided = (entry: Entry, verdict: Verdict, more?: Partial<PlannedCall>): PlannedCall => {
  const { access, backend, id, keys, name, position } = entry
  // Literals of few shapes: this runs once for every call of every turn.
  const call: PlannedCall = keys === undefined
    ? backend === undefined
      ? { position, id, name, verdict, access, height: 1 }
      : { position, id, name, verdict, access, backend, height: 1 }
    : backend === undefined
    ? { position, id, name, verdict, access, keys, height: 1 }
    : { position, id, name, verdict, access, keys, backend, height: 1 }
  if (entry.references !== undefined) {
    return {
      ...call,
      references: entry.references,
      ...(entry.unresolved === true ? { unresolved: true } : undefined),
      ...more
    }
  }
  return more === undefined ? call : { ...call, ...more }
}

const ambiguous = (id: string): Partial<PlannedCall> => ({
  code: "ambiguous_id",
  message: `the id ${JSON.stringify(id)} stands for calls with different content: give each call an id of its own`
})

/** Nothing of a cut response runs, whatever its ids are. */
const isCutShort = ({ state }: Entry): boolean => state._tag === "refused" && state.code === "incomplete_response"

/**
 * Which ids are re-delivered and which are ambiguous: id → position of its first call, or -1. Also for calls that come one by one.
 */
class Ids {
  private first: Map<string, Entry> | undefined
  private repeated: Map<string, number> | undefined

  see(entry: Entry): void {
    const { id, state } = entry
    if (id === "" || state._tag === "provider" || state._tag === "answered" || isCutShort(entry)) return
    const known = (this.first ??= new Map()).get(id)
    if (known === undefined) {
      this.first.set(id, entry)
      return
    }
    this.repeated ??= new Map()
    const same = known.name === entry.name && known.content === entry.content
    if (!same) this.repeated.set(id, -1)
    else if (!this.repeated.has(id)) this.repeated.set(id, known.position)
  }

  /** Where the first call with this id stands, -1 when the id is ambiguous; undefined where it stands for one call alone. */
  meaning(id: string): number | undefined {
    return this.repeated?.get(id)
  }

  /** The first call with this id. */
  firstOf(id: string): number | undefined {
    return this.first?.get(id)?.position
  }
}

/**
 * Plans calls in emission order: a whole list, or one by one as they come.
 *
 * @internal
 */
export class Planner {
  readonly plan = new Plan()
  private readonly options: Options | undefined
  private readonly ids = new Ids()
  private readonly dedupe: "all" | "reads" | "off"
  private table: Claims | undefined
  private held: Claims | undefined
  private identical: Map<string, OfTool> | undefined
  private previous: Node | undefined
  private count = 0
  private perTool: Map<string, number> | undefined
  /** Calls that need the result of one that has no place yet, in the order of the list. */
  private aside: Array<Entry> = []
  /** Where calls may need each other's results: those that have a place, each with what stands for it among the claims. */
  private placed: Map<number, { readonly call: PlannedCall; readonly node: Node | undefined }> | undefined

  constructor(options: Options | undefined) {
    this.options = options
    this.dedupe = options?.dedupe ?? "all"
  }

  /** Has to be told of a call before it is planned; of all of them where the whole list is known. */
  see(entry: Entry): void {
    this.ids.see(entry)
  }

  /** The first call with an id that has turned out to be ambiguous. */
  firstOf(id: string): number | undefined {
    return this.ids.firstOf(id)
  }

  /** From now on calls may need each other's results. */
  refer(): void {
    this.placed ??= new Map()
  }

  /**
   * Plans a call, and those that had waited for its place; `then` is told each. `several`: there may be another call of the same tool.
   * A call that needs the result of a later one takes its place behind that.
   */
  add(entry: Entry, several: boolean, then?: (entry: Entry, call: PlannedCall) => void): void {
    if (this.placed === undefined) {
      const call = this.decide(entry, several)
      this.plan.calls.push(call)
      return then?.(entry, call)
    }
    if (this.waitsForPlace(entry)) {
      this.aside.push(entry)
      return
    }
    this.take(entry, undefined, then)
    for (let i = 0; i < this.aside.length;) {
      const next = this.aside[i]!
      if (this.waitsForPlace(next)) {
        i++
        continue
      }
      this.aside.splice(i, 1)
      this.take(next, undefined, then)
      i = 0
    }
  }

  /** Whether a call has no place yet, because one that it needs has none. */
  isAside(position: number): boolean {
    return this.aside.some((entry) => entry.position === position)
  }

  private waitsForPlace({ references, state }: Entry): boolean {
    return state._tag === "open" && references !== undefined &&
      references.some(({ call }) => !this.placed!.has(call))
  }

  private take(
    entry: Entry,
    circle: string | undefined,
    then: ((entry: Entry, call: PlannedCall) => void) | undefined
  ): void {
    const { plan } = this
    const first = this.ids.meaning(entry.id)
    const call = circle === undefined || (first !== undefined && first !== entry.position)
      ? this.decide(entry, true)
      : notDecided(entry, "deferred", { code: "dependency_failed", message: circle })
    if (!this.placed!.has(entry.position)) this.placed!.set(entry.position, { call, node: undefined })
    ;(plan.places ??= []).push(call)
    plan.calls[entry.position] = call
    then?.(entry, call)
  }

  /** No call comes any more: what is still set aside waits for itself. */
  close(then?: (entry: Entry, call: PlannedCall) => void): void {
    const waiting = new Map(this.aside.map((entry) => [entry.position, entry]))
    for (const entry of this.aside.splice(0)) {
      const { argument, call } = entry.references!.find(({ call }) => waiting.has(call)) ?? entry.references![0]!
      this.take(
        entry,
        leadsTo(waiting, call, entry.position)
          ? `the argument "${argument}" is the result of call #${call}, which needs the result of this one: neither was run`
          : `the argument "${argument}" is the result of call #${call}, which was not run, and so neither was this one`,
        then
      )
    }
  }

  /** Why a call cannot have the results that it needs; undefined where it may. */
  private withoutResult({ references }: Entry): Partial<PlannedCall> | undefined {
    if (references === undefined) return undefined
    for (const { argument, call } of references) {
      const source = this.sourceOf(call)
      if (source === undefined || source.verdict === "run" || source.verdict === "answered") continue
      const waits = source.verdict === "held" || source.code === "waits_for_approval"
      return {
        code: waits ? "waits_for_approval" : "dependency_failed",
        message: `the argument "${argument}" is the result of call #${call}, which ${
          waits ? "waits for approval" : source.verdict === "provider_executed" ? "the provider has" : "was not run"
        }, and so this one was not run`
      }
    }
    return undefined
  }

  /** The call whose result another one needs, or the one that runs for it. */
  private sourceOf(position: number): PlannedCall | undefined {
    const call = this.placed?.get(position)?.call
    return call?.verdict === "duplicate" ? this.placed!.get(call.duplicateOf!)?.call : call
  }

  private nodeOf(position: number): Node | undefined {
    const source = this.sourceOf(position)
    return source === undefined ? undefined : this.placed!.get(source.position)?.node
  }

  private decide(entry: Entry, several: boolean): PlannedCall {
    const { state } = entry
    if (state._tag === "provider") return notDecided(entry, "provider_executed")
    if (state._tag === "answered") return notDecided(entry, "answered")
    const first = this.ids.meaning(entry.id)
    if (first === -1) return notDecided(entry, "refused", ambiguous(entry.id))
    if (first !== undefined && first !== entry.position) return notDecided(entry, "duplicate", { duplicateOf: first })
    if (state._tag !== "open") return notDecided(entry, state._tag, { code: state.code, message: state.message })
    const claim = { write: entry.access === "write", keys: entry.keys }
    const mergeable = several && !entry.repeatable && this.dedupe !== "off" &&
      (this.dedupe === "all" || entry.access === "read")
    const ofTool = mergeable ? this.identical?.get(entry.name) : undefined
    const same = ofTool?.find(entry)
    if (
      same !== undefined && this.ids.meaning(this.plan.calls[same.position]!.id) !== -1 &&
      (this.table?.lastConflictingWrite(claim) ?? -1) <= same.order &&
      (this.held?.lastConflictingWrite(claim) ?? -1) <= same.heldOrder
    ) return notDecided(entry, "duplicate", { duplicateOf: same.position })
    const without = this.withoutResult(entry)
    if (without !== undefined) return notDecided(entry, "deferred", without)
    const over = this.options?.amounts === undefined ? undefined : this.over(entry, this.options.amounts)
    if (over !== undefined) return notDecided(entry, "refused", { code: "over_limit", message: over })
    let verdict: Verdict = "run"
    let more: Partial<PlannedCall> | undefined
    if (state.approval) {
      verdict = "held"
      more = { code: "pending_approval", message: "waits for a human's approval" }
    } else if (this.held !== undefined && this.held.conflicts(claim)) {
      verdict = "deferred"
      more = {
        code: "waits_for_approval",
        message: entry.unresolved === true
          ? "may touch what an earlier call that waits for approval touches: that is known when its arguments are"
          : "touches what an earlier call that waits for approval touches"
      }
    }
    const call = notDecided(entry, verdict, more)
    if (verdict === "deferred") return call
    let order = -1
    let heldOrder = -1
    if (verdict === "held") {
      // A held call takes no place among those that run; what was written before it is known from the table.
      const node = new Node(call)
      ;(this.held ??= new Claims()).claim(node, claim)
      heldOrder = node.order
      order = this.table?.lastConflictingWrite(claim) ?? -1
    } else if (
      this.options?.execution === "sequential" || entry.keys === undefined || entry.keys.length > 0 ||
      this.placed !== undefined
    ) {
      const node = new Node(call)
      if (this.placed !== undefined) {
        for (const { call: on } of entry.references ?? []) {
          const from = this.nodeOf(on)
          if (from !== undefined && node.deps?.includes(from) !== true) link(from, node, referenceKey)
        }
        this.placed.set(entry.position, { call, node })
      }
      ;(this.table ??= new Claims(this.plan.log)).claim(node, claim)
      order = node.order
      if (this.options?.execution === "sequential") {
        if (this.previous !== undefined) linkSequential(this.previous, node)
        this.previous = node
      }
    }
    if (entry.asks !== undefined && verdict === "run") (this.plan.asking ??= []).push({ call, asks: entry.asks })
    if (!mergeable) return call
    const seen: Seen = { position: entry.position, order, heldOrder }
    if (ofTool === undefined) (this.identical ??= new Map()).set(entry.name, new OfTool(entry, seen))
    else ofTool.add(seen)
    return call
  }

  /** Counts a call; the words for one that is too much. */
  private over({ name }: Entry, { calls = Infinity, perTool = Infinity }: Amounts): string | undefined {
    if (this.count >= calls) return `the turn has as many calls as it may have (${calls}): this one was not run`
    const limit = typeof perTool === "number" ? perTool : Object.hasOwn(perTool, name) ? perTool[name]! : Infinity
    if (limit !== Infinity) {
      const ofTool = (this.perTool ??= new Map()).get(name) ?? 0
      if (ofTool >= limit) {
        return `the turn has as many calls of "${name}" as it may have (${limit}): this one was not run`
      }
      this.perTool.set(name, ofTool + 1)
    }
    this.count++
    return undefined
  }

  /** Fills in what is known only when all calls are. */
  finish(): TurnPlan {
    const { plan } = this
    if (this.aside.length > 0) this.close()
    measure(plan.log)
    for (const node of plan.log) {
      if (node.owner !== undefined && node.height > 1) (node.owner as { height: number }).height = node.height
    }
    return plan
  }
}

/**
 * Plans a turn.
 *
 * **Details**
 *
 * Places are taken in the order of the entries. A call is linked to every earlier call of the turn that it conflicts with, at
 * a cost that grows with the number of calls and the depth of their keys, never with their square.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (entries: ReadonlyArray<Entry>, options?: Options): TurnPlan => {
  const planner = new Planner(options)
  const several = entries.length > 1
  if (several) { for (const entry of entries) planner.see(entry) }
  if (entries.some(({ references }) => references !== undefined)) planner.refer()
  for (const entry of entries) planner.add(entry, several)
  return planner.finish()
}

/** Whether a call that is set aside waits, over others, for the one at `to`. */
const leadsTo = (waiting: ReadonlyMap<number, Entry>, from: number, to: number): boolean => {
  const seen = new Set<number>()
  const stack = [from]
  while (stack.length > 0) {
    const at = stack.pop()!
    if (at === to) return true
    if (seen.has(at)) continue
    seen.add(at)
    for (const { call } of waiting.get(at)?.references ?? []) stack.push(call)
  }
  return false
}

/**
 * The calls in the order in which they take their places.
 *
 * @internal
 */
export const inOrder = (plan: TurnPlan): ReadonlyArray<PlannedCall> => (plan as Plan).places ?? plan.calls

/** Calls ask together that stand equally deep below what they wait for. */
const requestsOf = (
  asking: ReadonlyArray<{ readonly call: PlannedCall; readonly asks: () => Asks }>,
  log: ReadonlyArray<Node>
): ReadonlyArray<Request> => {
  const depths = new Map<Node, number>()
  const depthOf = new Map<object, number>()
  for (const node of log) {
    let depth = 0
    for (const before of node.deps ?? []) {
      depth = Math.max(depth, depths.get(before)! + (before.owner === undefined ? 0 : 1))
    }
    depths.set(node, depth)
    if (node.owner !== undefined) depthOf.set(node.owner, depth)
  }
  const together = new Map<string, { readonly size: number; readonly items: Map<string, Array<number>> }>()
  for (const { asks, call } of asking) {
    const { into, items, size } = asks()
    const key = JSON.stringify([depthOf.get(call) ?? 0, into, call.backend])
    let group = together.get(key)
    if (group === undefined) together.set(key, group = { size, items: new Map() })
    for (const item of items) {
      const calls = group.items.get(item)
      if (calls === undefined) group.items.set(item, [call.position])
      else calls.push(call.position)
    }
  }
  const requests: Array<Request> = []
  for (const [key, { items, size }] of together) {
    const [, into] = JSON.parse(key) as [number, string]
    const all = Array.from(items.values())
    for (let at = 0; at < all.length; at += size) {
      const part = all.slice(at, at + size)
      requests.push({ into, calls: [...new Set(part.flat())].sort((a, b) => a - b), items: part.length })
    }
  }
  return requests
}

/**
 * The longest way down from each call, itself included, by its position: the sum of what `lengthOf` says of the calls on it.
 *
 * @internal
 */
export const pathLengths = (plan: TurnPlan, lengthOf: (call: PlannedCall) => number): ReadonlyArray<number> => {
  const lengths: Array<number> = []
  for (const call of plan.calls) lengths[call.position] = lengthOf(call)
  const { log } = plan as Plan
  measure(log, (call) => lengths[(call as PlannedCall).position]!)
  for (const { height, owner } of log) if (owner !== undefined) lengths[(owner as PlannedCall).position] = height
  return lengths
}

interface Seen {
  readonly position: number
  /** Its place in the order of claims. */
  readonly order: number
  /** Its place in the order of held calls; -1 for one that runs, since it conflicts with none that was held before it. */
  readonly heldOrder: number
}

/** The calls of one tool so far. The digest of a tool's only call is never computed. */
class OfTool {
  private readonly first: Entry
  private readonly firstSeen: Seen
  private byDigest: Map<string, Seen> | undefined = undefined

  constructor(first: Entry, seen: Seen) {
    this.first = first
    this.firstSeen = seen
  }

  /** The last call that is the same as this one. */
  find(entry: Entry): Seen | undefined {
    if (this.byDigest === undefined) {
      this.byDigest = new Map()
      const { digest } = this.first
      if (digest !== undefined) this.byDigest.set(digest, this.firstSeen)
    }
    this.asked = entry.digest
    return this.asked === undefined ? undefined : this.byDigest.get(this.asked)
  }
  private asked: string | undefined = undefined

  /** Notes the call that was just looked for. */
  add(seen: Seen): void {
    if (this.asked !== undefined) this.byDigest!.set(this.asked, seen)
  }
}

const linkSequential = (from: Node, to: Node): void => {
  if (to.deps?.includes(from) === true) return
  ;(to.deps ??= []).push(from)
  ;(to.keys ??= []).push(sequentialKey)
  ;(from.dependants ??= []).push(to)
}

/**
 * The calls that one call waits for directly, hubs expanded, each with the key that makes it wait.
 *
 * @category getters
 * @since 0.1.0
 * @stability experimental
 */
export const dependencies = (
  plan: TurnPlan,
  position: number
): ReadonlyArray<{ readonly on: number; readonly key: string }> => expand(index(plan), position)

const index = (plan: TurnPlan): Map<number | string, Array<Edge>> => {
  const into = new Map<number | string, Array<Edge>>()
  for (const edge of plan.edges) {
    const known = into.get(edge.to)
    if (known === undefined) into.set(edge.to, [edge])
    else known.push(edge)
  }
  return into
}

const expand = (into: Map<number | string, Array<Edge>>, position: number) => {
  const found = new Map<number, string>()
  const seen = new Set<number | string>()
  // A hub was made for the first call that waits on it: the key is that of the edge which leaves the hub for this call.
  const stack: Array<{ readonly at: number | string; readonly key: string | undefined }> = [{
    at: position,
    key: undefined
  }]
  while (stack.length > 0) {
    const { at, key } = stack.pop()!
    for (const edge of into.get(at) ?? []) {
      if (seen.has(edge.from)) continue
      seen.add(edge.from)
      if (typeof edge.from === "number") found.set(edge.from, key ?? edge.key)
      else stack.push({ at: edge.from, key: key ?? edge.key })
    }
  }
  return Array.from(found, ([on, key]) => ({ on, key })).sort((a, b) => a.on - b.on)
}

/**
 * A plan as plain JSON data.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const toJson = (plan: TurnPlan): Encoded => ({
  calls: plan.calls,
  edges: plan.edges,
  ...(plan.requests.length === 0 ? undefined : { requests: plan.requests })
})

/**
 * A plan read back from JSON.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const fromJson = (json: Encoded): TurnPlan => ({
  calls: json.calls,
  edges: json.edges,
  requests: json.requests ?? []
})

const label = (call: PlannedCall): string => `#${call.position} ${call.name}${call.id === "" ? "" : ` (${call.id})`}`

const reach = (call: PlannedCall): string =>
  call.unresolved === true
    ? "anything, until it is known"
    : call.keys === undefined
    ? "anything"
    : call.keys.length === 0
    ? "nothing shared"
    : call.keys.join(", ")

const why = (call: PlannedCall): string => {
  switch (call.verdict) {
    case "run":
      return `${call.access}s ${reach(call)}${call.backend === undefined ? "" : ` on ${call.backend}`}`
    case "held":
      return "held: waits for approval"
    case "duplicate":
      return `duplicate of #${call.duplicateOf}: runs once for both`
    case "provider_executed":
      return "run by the provider"
    case "answered":
      return "has its answer already"
    case "deferred":
    case "refused":
      return `${call.verdict}: ${call.code}${call.message === undefined ? "" : `: ${call.message}`}`
  }
}

/**
 * Draws a plan as a tree that a person reads at a glance: what starts at once stands at the left, what waits stands below
 * the last call that it waits for, with the key.
 *
 * **Details**
 *
 * Each call stands once. Where it waits for more than one call, the others are named behind it. Requests that calls share stand below.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const print = (plan: TurnPlan): string => {
  const into = index(plan)
  const below = new Map<number, Array<PlannedCall>>()
  const notes = new Map<number, string>()
  const roots: Array<PlannedCall> = []
  for (const call of plan.calls) {
    const waits = call.verdict === "run" ? expand(into, call.position) : []
    const last = waits.at(-1)
    if (last === undefined) {
      roots.push(call)
      continue
    }
    const others = waits.slice(0, -1)
    const named = others.slice(-3).map((other) => `#${other.on}`).join(", ")
    notes.set(
      call.position,
      `after #${last.on} by ${last.key}` + (others.length === 0
        ? ""
        : `, and ${others.length > 3 ? `${others.length - 3} more, ` : ""}${named}`)
    )
    const known = below.get(last.on)
    if (known === undefined) below.set(last.on, [call])
    else known.push(call)
  }
  const lines: Array<string> = []
  // A chain of conflicting calls can be as long as the turn, so the tree is walked with a stack of its own.
  const stack: Array<{ readonly call: PlannedCall; readonly lead: string; readonly branch: string }> = []
  const push = (calls: ReadonlyArray<PlannedCall>, lead: string, top: boolean) => {
    for (let i = calls.length - 1; i >= 0; i--) {
      const branch = top ? "" : i === calls.length - 1 ? "└─ " : "├─ "
      stack.push({ call: calls[i]!, lead, branch })
    }
  }
  push(roots, "", true)
  while (stack.length > 0) {
    const { branch, call, lead } = stack.pop()!
    const note = notes.get(call.position)
    lines.push(`${lead}${branch}${label(call)}  ${why(call)}${note === undefined ? "" : `  [${note}]`}`)
    push(below.get(call.position) ?? [], lead + (branch === "├─ " ? "│  " : branch === "" ? "" : "   "), false)
  }
  for (const { calls, into, items } of plan.requests) {
    lines.push(`one request to ${into} for ${items} ${items === 1 ? "item" : "items"}: ${spans(calls)}`)
  }
  return lines.join("\n")
}

/** Positions in few words: `#0 to #9, #12`. */
const spans = (positions: ReadonlyArray<number>): string => {
  const runs: Array<[number, number]> = []
  for (const position of positions) {
    const last = runs.at(-1)
    if (last !== undefined && last[1] === position - 1) last[1] = position
    else runs.push([position, position])
  }
  return runs.map(([from, to]) =>
    from === to ? `#${from}` : to === from + 1 ? `#${from}, #${to}` : `#${from} to #${to}`
  )
    .join(", ")
}

/**
 * Writes a plan as a Mermaid flowchart, which Markdown pages (GitHub, GitLab, Notion) and mermaid.live draw.
 *
 * **Details**
 *
 * Reads are round, writes have corners; an arrow leads from a call to one that waits for it and bears the key, a dotted arrow leads to a
 * duplicate. Calls of one request stand in a box; small circles are hubs. Names, keys and backends are escaped: none of them can change
 * the drawing.
 *
 * **Gotchas**
 *
 * Mermaid draws at most 500 arrows and 50,000 characters unless its page says otherwise (`maxEdges`, `maxTextSize`).
 *
 * **Example** (A write behind a read)
 *
 * ```ts import.meta.vitest
 * import { TurnPlan } from "effect-turn"
 *
 * const plan = TurnPlan.fromJson({
 *   calls: [
 *     { position: 0, id: "a", name: "get_stock", verdict: "run", access: "read", keys: ["item/7"], height: 2 },
 *     { position: 1, id: "b", name: "sell", verdict: "run", access: "write", keys: ["item/7"], height: 1 }
 *   ],
 *   edges: [{ from: 0, to: 1, key: "item/7" }]
 * })
 * const lines = TurnPlan.toMermaid(plan).split("\n")
 * const first = lines[0] // => "flowchart LR"
 * const arrow = lines[3] // => "  c0 -->|\"item/7\"| c1"
 * ```
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const toMermaid = (plan: TurnPlan): string => flowchart(plan)
