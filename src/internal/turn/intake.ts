/**
 * Intake, once, before anything runs (rules R6 to R8, R10, R11): parse, placeholders, decode, keys, approval. One call at a time;
 * arguments are decoded once, and everything after works on the decoded value.
 */
import type * as Prompt from "effect/ai/Prompt"
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Coalescer from "../../Coalescer.ts"
import type * as Outcome from "../../Outcome.ts"
import * as ToolCall from "../../ToolCall.ts"
import type * as ToolPolicy from "../../ToolPolicy.ts"
import type * as TurnContext from "../../TurnContext.ts"
import * as TurnError from "../../TurnError.ts"
import type * as TurnPlan from "../../TurnPlan.ts"
import { type ArgumentLimits, canonical, describe, parse } from "./json.ts"
import type { Calls } from "./mentions.ts"
import * as Placeholders from "./placeholders.ts"
import { Nameable, type Named, pointerOf, type Reference, withoutNamed } from "./references.ts"
import { type AnyToolkit, complaint, entryOf, knownParams, needsApproval, type ToolEntry, wanted } from "./tool.ts"

/** A call that has been taken in. What only repeated calls need is computed when the planner asks for it. */
export class Taken implements TurnPlan.Entry {
  readonly call: ToolCall.ToolCall
  readonly position: number
  name: string
  access: ToolPolicy.Access = "write"
  backend: string | undefined = undefined
  repeatable = false
  keys: ReadonlyArray<string> | undefined = undefined
  state: TurnPlan.Entry["state"] = open
  repairedFrom: string | undefined = undefined
  tool: ToolEntry | undefined = undefined
  params: unknown = undefined
  encoded: Record<string, unknown> | undefined = undefined
  idempotencyKey: string | undefined = undefined
  /** The key is made of the arguments alone, so the same call made again carries the same one. */
  keyIsOfArguments = true
  /** The unit that it stands or falls with; undefined for the turn as a whole. */
  unit: string | undefined = undefined
  /** What has still to be found out with an effect; undefined for nearly every call. */
  pending: Effect.Effect<void, never, any> | undefined = undefined
  /** What it asks for in requests that it shares with other calls. */
  asks: (() => TurnPlan.Asks) | undefined = undefined
  /** Its arguments that are results of other calls: it is decoded when they are there. */
  needs: ReadonlyArray<Reference> | undefined = undefined
  /** The same, for the plan. */
  references: ReadonlyArray<TurnPlan.Reference> | undefined = undefined
  /** Results stand among its arguments: what looks like a name or a placeholder there is a value. */
  whole = false
  /** Its keys read such an argument. */
  unresolved = false
  /** Its place among the calls of its turn, in the order in which they are placed. */
  place = 0
  /** Whether it needs approval, where that takes an effect to find out. Nobody else waits for it. */
  asking: Effect.Effect<boolean> | undefined = undefined

  /** Whether a human decides about it, whatever its arguments are exchanged for. */
  get needsApproval(): Effect.Effect<boolean> | boolean {
    return this.asking ?? (this.state._tag === "open" && this.state.approval)
  }

  constructor(call: ToolCall.ToolCall, position: number) {
    this.call = call
    this.position = position
    this.name = call.name
  }

  get id(): string {
    return this.call.id
  }

  get digest(): string | undefined {
    // Asked of calls that may run: they have a tool. The same references are the same values, if they are any.
    const digest = this.needs === undefined
      ? canonical(this.params) ?? digestOf(this.tool!, this.params)
      : `needs ${canonical(this.encoded)}`
    // Calls of different units fall apart, so they are never one.
    return this.unit === undefined || digest === undefined ? digest : `${JSON.stringify(this.unit)} ${digest}`
  }

  /** By what a re-delivery is recognised: the arguments, or the raw text where they could not be read. */
  get content(): string | undefined {
    return this.encoded === undefined ? contentOf(this.call.arguments) : canonical(this.encoded, Infinity)
  }
}

/** The place of a call, which notes that it was asked for: a key made of it is another one in the next turn. */
class AskedPlace implements ToolPolicy.Place {
  asked = false
  private readonly identity: () => TurnContext.Identity
  private readonly at: number
  private readonly label: string
  constructor(identity: () => TurnContext.Identity, at: number, label: string) {
    this.identity = identity
    this.at = at
    this.label = label
  }
  get tenant(): string {
    return this.identity().tenant
  }
  get conversation(): string | undefined {
    return this.identity().conversation
  }
  get turn(): string {
    this.asked = true
    return this.identity().turn
  }
  get position(): number {
    this.asked = true
    return this.at
  }
  get id(): string {
    this.asked = true
    return this.label
  }
}

export interface IntakeOptions {
  readonly toolkit: AnyToolkit
  readonly identity: () => TurnContext.Identity
  readonly nameRepair: boolean
  readonly finishReason: ToolCall.FinishReason | undefined
  readonly messages: ReadonlyArray<Prompt.Message>
  readonly unit: ((call: ToolCall.ToolCall, position: number) => string) | undefined
  readonly limits: ArgumentLimits
  /** Somebody besides a human may decide about calls that need approval: all of them are asked about. */
  readonly decided: boolean
  /** Why no call of the turn is run at all. */
  readonly closed: string | undefined
  /** Arguments may name results of other calls of the turn. */
  readonly references: TurnPlan.References | undefined
  /** Calls of which a human was shown the arguments, in a turn that is resumed: results that they name have been put in. */
  readonly filled: ReadonlySet<number> | undefined
}

/** For the plan: what cannot be told is found out when the call is run. */
const asksOf = ({ coalescer: { name, parts, size }, wants }: Coalescer.Merging, params: unknown): TurnPlan.Asks => {
  try {
    return { into: name, size, items: wants(params).map((key) => parts.keyText(key)) }
  } catch {
    return { into: name, size, items: [] }
  }
}

const open = { _tag: "open", approval: false } as const
const openForApproval = { _tag: "open", approval: true } as const
const provider = { _tag: "provider" } as const
const answered = { _tag: "answered" } as const
const yes = Effect.succeed(true)

/** The words for a call of a response that was cut short. */
export const cutShort = (reason: ToolCall.FinishReason): string =>
  `the response was cut short (${reason}): this call was not run; call again`

const refused = (code: Outcome.ErrorCode, message: string) => ({ _tag: "refused", code, message }) as const

/** A predicate that fails holds the call, and so does anything but a clear no (rule R10). */
const holds = (exit: Exit.Exit<unknown, unknown>): boolean => !Exit.isSuccess(exit) || exit.value !== false

/** A call that has its answer already, in a turn that is resumed. */
export const keep = (call: ToolCall.ToolCall, position: number): Taken => {
  const taken = new Taken(call, position)
  taken.state = answered
  return taken
}

export class Intake {
  private readonly options: IntakeOptions
  private readonly tools: Record<string, any>
  private readonly calls: ReadonlyArray<ToolCall.ToolCall>
  private referable: Calls | undefined = undefined
  private nameable: Nameable | undefined = undefined
  /** No call will come any more. */
  private complete: boolean

  constructor(options: IntakeOptions, calls: ReadonlyArray<ToolCall.ToolCall>, complete: boolean) {
    this.options = options
    this.complete = complete
    this.tools = options.toolkit.tools
    this.calls = calls
  }

  get limits(): ArgumentLimits {
    return this.options.limits
  }

  /** What arguments could refer to. */
  private callsOfTurn(): Calls {
    const { calls } = this
    if (this.referable?.count !== calls.length) {
      this.referable = { ids: new Set(calls.map((call) => call.id)), count: calls.length }
    }
    return this.referable
  }

  private callsByName({ names }: TurnPlan.References): Nameable {
    const { calls, complete, nameable } = this
    return nameable?.count === calls.length && nameable.complete === complete
      ? nameable
      : this.nameable = new Nameable(calls, names, complete)
  }

  /** The list of calls is at its end. */
  close(): void {
    this.complete = true
  }

  /** Whether the arguments of a call may name one that has not come yet. */
  mayNameLater({ arguments: args, name, providerExecuted }: ToolCall.ToolCall): boolean {
    const { limits, references } = this.options
    if (references === undefined || this.complete || providerExecuted === true) return false
    const tool = this.toolOf(name)
    if (tool === undefined || !tool.detect) return false
    const parsed = parse(args, limits)
    return parsed._tag === "ok" && (parsed.suspicious || references.names !== undefined) &&
      this.callsByName(references).find(parsed.value, tool.literal, -1).open
  }

  take(call: ToolCall.ToolCall, position: number): Taken {
    const taken = new Taken(call, position)
    const { filled, unit } = this.options
    taken.whole = filled?.has(position) === true
    if (unit !== undefined) {
      try {
        taken.unit = String(unit(call, position))
      } catch {
        // A call whose unit cannot be told stands with the turn as a whole.
      }
    }
    if (call.providerExecuted === true) {
      taken.state = provider
      return taken
    }
    if (this.options.closed !== undefined) {
      taken.state = refused("over_limit", this.options.closed)
      return taken
    }
    if (ToolCall.isCutShort(this.options.finishReason)) {
      taken.state = refused("incomplete_response", cutShort(this.options.finishReason!))
      return taken
    }
    const name = this.nameOf(call.name)
    if (name === undefined) {
      taken.state = refused("unknown_tool", unknownTool(call.name, Object.keys(this.tools)))
      return taken
    }
    if (name !== call.name) {
      taken.repairedFrom = call.name
      taken.name = name
    }
    this.parse(taken, this.tools[name], this.options.references !== undefined)
    return taken
  }

  /** The name of the tool that a call means; undefined when there is none. */
  private nameOf(name: string): string | undefined {
    if (Object.hasOwn(this.tools, name)) return name
    if (!this.options.nameRepair) return undefined
    const wanted = name.trim().toLowerCase()
    const fitting = Object.keys(this.tools).filter((known) => known.toLowerCase() === wanted)
    return fitting.length === 1 ? fitting[0] : undefined
  }

  /** The tool that a call of this name runs; undefined when there is none, or none that can be made ready. */
  toolOf(name: string): ToolEntry | undefined {
    const meant = this.nameOf(name)
    if (meant === undefined) return undefined
    try {
      return entryOf(this.tools[meant])
    } catch {
      // Its calls are answered one by one, with the reason.
      return undefined
    }
  }

  /** `named`: arguments may name results of other calls. What a human or a step says are values. */
  private parse(taken: Taken, given: any, named: boolean): void {
    try {
      taken.tool = entryOf(given)
    } catch (error) {
      taken.state = refused(
        "defect",
        `the parameters of the tool "${taken.name}" cannot be checked: ${describe(error)}`
      )
      return
    }
    const parsed = parse(taken.call.arguments, this.options.limits)
    if (parsed._tag === "invalid") {
      const takes = wanted(taken.tool)
      taken.state = refused(
        "invalid_arguments",
        `tool "${taken.name}": ${parsed.message}${takes === "" ? "" : `; it takes ${takes}`}`
      )
      return
    }
    const { tool } = taken
    taken.access = tool.policy.access
    taken.backend = tool.backendName
    taken.repeatable = tool.policy.repeatable
    taken.encoded = parsed.value
    const said = named ? this.namedBy(taken, parsed.value, parsed.suspicious) : undefined
    const needs = said?.references ?? []
    if (needs.length > 0) {
      taken.references = needs.map(({ at, call, path }) => ({ argument: path.join("."), call, at: pointerOf(at) }))
    }
    if (said !== undefined && said.problems.length > 0) {
      const message = `${said.problems.join("; ")}: it was not run`
      taken.state = { _tag: "deferred", code: "dependency_failed", message }
      return
    }
    const suspicious = parsed.suspicious && !taken.whole
    if (suspicious && tool.detect) {
      const own = needs.length === 0 ? parsed.value : withoutNamed(parsed.value, needs)
      const found = Placeholders.find(own, this.callsOfTurn(), tool.literal, tool.requiredTexts)
      if (found !== undefined) {
        taken.state = { _tag: "deferred", code: "placeholder", message: found.message }
        return
      }
    }
    if (needs.length > 0) return this.needsResults(taken, tool, needs)
    const decoded = tool.decode(parsed.value)
    if (Exit.isExit(decoded)) return this.decoded(taken, tool, decoded, suspicious)
    taken.pending = Effect.map(Effect.exit(decoded), (exit) => this.decoded(taken, tool, exit, suspicious))
  }

  /** What the arguments of a call name. */
  private namedBy(
    { position, tool, whole }: Taken,
    args: Record<string, unknown>,
    suspicious: boolean
  ): Named | undefined {
    const references = this.options.references!
    if (!tool!.detect || whole) return undefined
    if (!suspicious && references.names === undefined) return undefined
    return this.callsByName(references).find(args, tool!.literal, position)
  }

  /** A call that is decoded when the results are there that its arguments name. Its keys may be known all the same. */
  private needsResults(taken: Taken, tool: ToolEntry, needs: ReadonlyArray<Reference>): void {
    taken.needs = needs
    const { keys } = tool.policy
    if (keys === undefined) return
    const known = knownParams(tool, taken.encoded!, new Set(needs.map(({ path }) => path[0])))
    const found = known === undefined ? "" : keysOf(keys, known)
    if (typeof found === "string") taken.unresolved = true
    else taken.keys = found
  }

  /** The same call with its results in place. What has still to be found out about it is `pending`. */
  filled(taken: Taken, args: Record<string, unknown>): Taken {
    return this.withArguments(taken, args, true)
  }

  private decoded(taken: Taken, tool: ToolEntry, exit: Exit.Exit<unknown, unknown>, suspicious: boolean): void {
    if (Exit.isFailure(exit)) {
      const reason = exit.cause.reasons[0]
      if (reason?._tag !== "Fail") {
        taken.state = refused(
          "defect",
          `decoding the arguments failed: ${describe(reason?._tag === "Die" ? reason.defect : undefined)}`
        )
        return
      }
      const { message, paths } = complaint(reason.error)
      const nothing = suspicious && tool.detect ? Placeholders.findNull(taken.encoded!, paths, tool.literal) : undefined
      taken.state = nothing === undefined
        ? refused("invalid_arguments", `tool "${taken.name}": ${message}`)
        : { _tag: "deferred", code: "placeholder", message: nothing.message }
      return
    }
    const params = taken.params = exit.value
    const { merging, policy } = tool
    if (merging !== undefined) taken.asks = () => asksOf(merging, taken.params)
    if (policy.keys !== undefined) {
      const keys = keysOf(policy.keys, params)
      if (typeof keys === "string") {
        taken.state = refused("defect", `the keys of the tool "${taken.name}" could not be computed: ${keys}`)
        return
      }
      taken.keys = keys
    }
    if (policy.idempotency !== undefined) {
      const place = new AskedPlace(this.options.identity, taken.position, taken.call.id)
      let key: unknown
      try {
        key = policy.idempotency.key(params, place)
      } catch (error) {
        taken.state = refused(
          "defect",
          `the idempotency key of the tool "${taken.name}" could not be computed: ${describe(error)}`
        )
        return
      }
      if (typeof key !== "string" || key === "") {
        taken.state = refused(
          "defect",
          `the idempotency key of the tool "${taken.name}" must be a text that is not empty, and is ${
            TurnError.show(key)
          }`
        )
        return
      }
      taken.idempotencyKey = key
      taken.keyIsOfArguments = !place.asked
    }
    this.approval(taken, tool)
  }

  private approval(taken: Taken, tool: ToolEntry): void {
    let answer: unknown
    try {
      answer = needsApproval(tool.tool, taken.params, { toolCallId: taken.call.id, messages: this.options.messages })
    } catch {
      // A predicate that fails holds the call (rule R10).
    }
    if (answer === false) return
    if (Effect.isEffect(answer) && !Exit.isExit(answer)) {
      taken.asking = Effect.map(Effect.exit(answer as Effect.Effect<unknown>), holds)
    } else if (!Exit.isExit(answer) || holds(answer)) {
      if (this.options.decided) taken.asking = yes
      else taken.state = openForApproval
    }
  }

  private withArguments(taken: Taken, args: Record<string, unknown>, whole: boolean): Taken {
    const other = new Taken({ ...taken.call, arguments: args }, taken.position)
    other.name = taken.name
    other.repairedFrom = taken.repairedFrom
    other.unit = taken.unit
    other.place = taken.place
    other.whole = whole
    this.parse(other, taken.tool!.tool, false)
    return other
  }

  /** The same call with other arguments; the words of what is wrong with them where it could not run. */
  again(taken: Taken, args: Record<string, unknown>): Effect.Effect<Taken | string, never, any> {
    return Effect.suspend((): Effect.Effect<Taken | string, never, any> => {
      const other = this.withArguments(taken, args, taken.whole)
      const done = () =>
        other.state._tag === "open" ? other : other.state._tag === "refused" ||
            other.state._tag === "deferred"
          ? other.state.message
          : ""
      return other.pending === undefined ? Effect.sync(done) : Effect.map(other.pending, done)
    })
  }

  /** Finds out all that is still open about a call; for plans, which are made when everything is known. */
  settle(taken: Taken): Effect.Effect<void, never, any> {
    return Effect.suspend(() => taken.pending ?? Effect.void).pipe(
      Effect.andThen(Effect.suspend(() => taken.asking ?? Effect.succeed(false))),
      Effect.map((approval) => {
        if (approval || (taken.needs !== undefined && taken.tool!.tool.needsApproval === true)) {
          taken.state = openForApproval
        }
      })
    )
  }
}

const keysOf = (of: (params: any) => ReadonlyArray<string>, params: unknown): ReadonlyArray<string> | string => {
  let keys: unknown
  try {
    keys = of(params)
  } catch (error) {
    return describe(error)
  }
  if (!Array.isArray(keys)) return `expected a list of texts, and got ${TurnError.show(keys)}`
  for (const key of keys) {
    if (typeof key !== "string") return `expected a list of texts, and one is ${TurnError.show(key)}`
  }
  return keys
}

/** A digest by way of the encoded form, for parameters that hold dates, options and the like. */
const digestOf = (tool: ToolEntry, params: unknown): string | undefined => {
  try {
    const encoded = tool.encodeParams(params)
    return Exit.isExit(encoded) && Exit.isSuccess(encoded) ? canonical(encoded.value) : undefined
  } catch {
    // What cannot be told from others is never merged with them.
    return undefined
  }
}

/** By what a re-delivery is recognised when the arguments cannot be read. */
const contentOf = (raw: unknown): string =>
  typeof raw === "string" ? `text:${raw}` : raw === undefined || raw === null ? "{}" : "?"

/** The words for a tool that does not exist, with the nearest names. */
const unknownTool = (name: string, names: ReadonlyArray<string>): string => {
  const near = names
    .map((known) => ({ known, distance: distance(name.trim().toLowerCase(), known.toLowerCase()) }))
    .filter(({ distance, known }) => distance <= Math.max(2, Math.floor(Math.max(known.length, name.length) / 2)))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, 3)
    .map(({ known }) => known)
  const shown = near.length > 0
    ? `the nearest ${near.length === 1 ? "name is" : "names are"} ${near.join(", ")}`
    : names.length === 0
    ? "there are no tools at all"
    : `the tools are ${names.slice(0, 8).join(", ")}${names.length > 8 ? `, and ${names.length - 8} more` : ""}`
  return `there is no tool ${JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name)}: ${shown}`
}

const distance = (a: string, b: string): number => {
  if (Math.abs(a.length - b.length) > 40) return Infinity
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}

/** The reason of a failure as a text, for the few places that meet a whole cause. */
export const causeText = (cause: Cause.Cause<unknown>): string => {
  const fail = cause.reasons.find((reason) => reason._tag === "Fail")
  if (fail !== undefined) return describe((fail as Cause.Fail<unknown>).error)
  const die = cause.reasons.find((reason) => reason._tag === "Die")
  return die === undefined ? "interrupted" : describe((die as Cause.Die).defect)
}
