/**
 * What a turn will do, as a value, before anything runs: which calls run, which are held, deferred, duplicates or refused,
 * and who waits for whom, each edge with the key that makes it.
 *
 * The plan is pure: calls and policies in, a value out. The runtime acts on this value and on nothing else.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { Claims, measure, Node, sequentialKey } from "./internal/turnPlan/claims.ts"
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
    | { readonly _tag: "deferred"; readonly code: "placeholder"; readonly message: string }
    | { readonly _tag: "provider" }
}

/**
 * What is to become of a call.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Verdict = Schema.Literals(["run", "held", "duplicate", "deferred", "refused", "provider_executed"])

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
 * `height` is the number of calls on the longest way down from here, itself included: the priority among ready calls that
 * wait for the same backend. `code` and `message` say why a call is not run.
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
 * One edge: `to` waits for `from` because of `key` (`"*"` is unknown reach, `"sequential"` the turn's own order).
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
 * Schema of a plan as JSON.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Encoded = Schema.Struct({
  calls: Schema.Array(PlannedCall),
  edges: Schema.Array(Edge)
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
 * What a turn will do. `edges` is computed when it is first asked for.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnPlan {
  readonly calls: ReadonlyArray<PlannedCall>
  readonly edges: ReadonlyArray<Edge>
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
}

/** The order of claims, which the runtime keeps for the turns of a tenant too.
 *
 * @internal
 */
export { Claims, conflict, end, link, type Nested, Node, sequentialKey } from "./internal/turnPlan/claims.ts"

/** The plan with the nodes that the edges are made from.
 *
 * @internal
 */
export class Plan implements TurnPlan {
  readonly calls: Array<PlannedCall> = []
  readonly log: Array<Node> = []
  private cached: ReadonlyArray<Edge> | undefined = undefined

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
  return more === undefined ? call : { ...call, ...more }
}

const ambiguous = (id: string): Partial<PlannedCall> => ({
  code: "ambiguous_id",
  message: `the id ${JSON.stringify(id)} stands for calls with different content: give each call an id of its own`
})

/** Nothing of a cut response runs, whatever its ids are. */
const isCutShort = ({ state }: Entry): boolean => state._tag === "refused" && state.code === "incomplete_response"

/** Which ids are re-delivered and which are ambiguous: id → position of its first call, or -1. */
const repeatedIds = (entries: ReadonlyArray<Entry>): Map<string, number> | undefined => {
  let first: Map<string, Entry> | undefined
  let repeated: Map<string, number> | undefined
  if (entries.length < 2) return undefined
  for (const entry of entries) {
    if (entry.id === "" || entry.state._tag === "provider" || isCutShort(entry)) continue
    const known = (first ??= new Map()).get(entry.id)
    if (known === undefined) first.set(entry.id, entry)
    else {
      repeated ??= new Map()
      const same = known.name === entry.name && known.content === entry.content
      if (!same) repeated.set(entry.id, -1)
      else if (!repeated.has(entry.id)) repeated.set(entry.id, known.position)
    }
  }
  return repeated
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
  const plan = new Plan()
  const dedupe = options?.dedupe ?? "all"
  let table: Claims | undefined
  const repeated = repeatedIds(entries)
  let held: Claims | undefined
  let identical: Map<string, OfTool> | undefined
  let previous: Node | undefined

  for (const entry of entries) {
    const { state } = entry
    if (state._tag === "provider") {
      plan.calls.push(notDecided(entry, "provider_executed"))
      continue
    }
    const first = repeated?.get(entry.id)
    if (first === -1) {
      plan.calls.push(notDecided(entry, "refused", ambiguous(entry.id)))
      continue
    }
    if (first !== undefined && first !== entry.position) {
      plan.calls.push(notDecided(entry, "duplicate", { duplicateOf: first }))
      continue
    }
    if (state._tag !== "open") {
      plan.calls.push(notDecided(entry, state._tag, { code: state.code, message: state.message }))
      continue
    }
    const claim = { write: entry.access === "write", keys: entry.keys }
    const mergeable = !entry.repeatable && dedupe !== "off" && entries.length > 1 &&
      (dedupe === "all" || entry.access === "read")
    const ofTool = mergeable ? identical?.get(entry.name) : undefined
    const same = ofTool?.find(entry)
    if (
      same !== undefined && (table?.lastConflictingWrite(claim) ?? -1) <= same.order &&
      (held?.lastConflictingWrite(claim) ?? -1) <= same.heldOrder
    ) {
      plan.calls.push(notDecided(entry, "duplicate", { duplicateOf: same.position }))
      continue
    }
    let verdict: Verdict = "run"
    let more: Partial<PlannedCall> | undefined
    if (state.approval) {
      verdict = "held"
      more = { code: "pending_approval", message: "waits for a human's approval" }
    } else if (held !== undefined && held.conflicts(claim)) {
      verdict = "deferred"
      more = { code: "waits_for_approval", message: "touches what an earlier call that waits for approval touches" }
    }
    const call = notDecided(entry, verdict, more)
    plan.calls.push(call)
    if (verdict === "deferred") continue
    let order = -1
    let heldOrder = -1
    if (verdict === "held") {
      // A held call takes no place among those that run; what was written before it is known from the table.
      const node = new Node(call)
      ;(held ??= new Claims()).claim(node, claim)
      heldOrder = node.order
      order = table?.lastConflictingWrite(claim) ?? -1
    } else if (options?.execution === "sequential" || entry.keys === undefined || entry.keys.length > 0) {
      const node = new Node(call)
      ;(table ??= new Claims(plan.log)).claim(node, claim)
      order = node.order
      if (options?.execution === "sequential") {
        if (previous !== undefined) linkSequential(previous, node)
        previous = node
      }
    }
    if (!mergeable) continue
    const seen: Seen = { position: entry.position, order, heldOrder }
    if (ofTool === undefined) (identical ??= new Map()).set(entry.name, new OfTool(entry, seen))
    else ofTool.add(seen)
  }
  measure(plan.log)
  for (const node of plan.log) {
    if (node.owner !== undefined && node.height > 1) (node.owner as { height: number }).height = node.height
  }
  return plan
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
export const toJson = (plan: TurnPlan): Encoded => ({ calls: plan.calls, edges: plan.edges })

/**
 * A plan read back from JSON.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const fromJson = (json: Encoded): TurnPlan => ({ calls: json.calls, edges: json.edges })

const label = (call: PlannedCall): string => `#${call.position} ${call.name}${call.id === "" ? "" : ` (${call.id})`}`

const reach = (call: PlannedCall): string =>
  call.keys === undefined ? "anything" : call.keys.length === 0 ? "nothing shared" : call.keys.join(", ")

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
 * Each call stands once. Where it waits for more than one call, the others are named behind it.
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
  return lines.join("\n")
}
