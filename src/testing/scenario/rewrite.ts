/**
 * A recording in the words of the format: tools, behaviours, backends, the turn's rules and what stopped it. What the format has no
 * words for is told to `note`.
 *
 * @since 0.1.0
 */
import * as AiTool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import * as Coalescer from "../../Coalescer.ts"
import type * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import type * as Turn from "../../Turn.ts"
import { canonical } from "./keys.ts"
import { codeOf, gracesOf, isUnique, millisOf, objectOf, originOf, type Ran, type RecordedTurn } from "./recorded.ts"
import type * as Form from "./schema.ts"
import * as Templates from "./templates.ts"

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** @internal */
export const redacted = "redacted"

/** @internal */
export const callOf = ({ arguments: args, id, name, providerExecuted }: ToolCall.ToolCall): Form.Call => ({
  id,
  name,
  // What is neither a text nor an object is no arguments in either form.
  arguments: typeof args === "string" ? args : args === undefined || args === null
    ? {}
    : typeof args === "object" && !Array.isArray(args)
    ? args as Record<string, unknown>
    : JSON.stringify(args) ?? "",
  ...(providerExecuted === undefined ? undefined : { providerExecuted })
})

/** What stopped the turn, or single calls, from outside. @internal */
export const eventsOf = (
  { calls, events, options }: RecordedTurn,
  ran: ReadonlyArray<Ran>,
  note: (text: string) => void
): ReadonlyArray<Form.Event> => {
  const origin = originOf(events)
  const graces = gracesOf(options?.grace)
  const found: Array<Form.Event> = []
  let stopped = false
  for (const event of events) {
    const at = Math.max(0, Math.round(event.at) - origin)
    if (event._tag === "TurnStopped") {
      stopped = true
      if (event.code === "by_caller") found.push({ type: "cancelTurn", atMs: at })
      continue
    }
    if (event._tag !== "CallEnded" || stopped) continue
    const { outcome, position } = event
    if (outcome.status !== "cancelled" || outcome.code !== "by_caller") continue
    const run = ran.find((one) => one.position === position)
    if (isUnique(calls, position)) {
      // What was given up on had been told to stop a grace before.
      const grace = run?.givenUp === true ? graces[ToolPolicy.get(run.tool).access] : 0
      found.push({ type: "cancelCall", atMs: Math.max(0, at - Math.round(grace)), id: calls[position]!.id })
    } else {
      note(
        `call ${position}: it was stopped alone, and a scenario names such a call by its id, which is ` +
          `${JSON.stringify(outcome.id)} and not its own${
            run === undefined ? "" : ": it interrupts itself in place of that"
          }`
      )
    }
  }
  return found
}

/** The turn's own rules. @internal */
export const policyOf = (
  { deadline, dedupe, execution, grace, limits, nameRepair, references, siblings, unit }: Turn.Options<any>,
  ran: ReadonlyArray<Ran>,
  note: (text: string) => void
): NonNullable<Form.Scenario["policy"]> => {
  const name = siblings?.name ?? "letFinish"
  if (name !== "letFinish" && name !== "failFast") {
    note(`the turn's policy for siblings, ${name}, is not in the format: the scenario lets them finish`)
  }
  if (unit !== undefined) note("the turn's units are not in the format: the whole turn is one")
  if (typeof references === "object" && references.names !== undefined) {
    note("the names that the turn's references may have are not in the format: there they are ids and places alone")
  }
  if (limits !== undefined) note("the turn's limits of arguments are not in the format: it has the usual ones")
  const deadlineMs = Math.round(millisOf("deadline", deadline))
  const graces = gracesOf(grace)
  const left = ran.filter(({ givenUp }) => givenUp).map(({ tool }) => ToolPolicy.get(tool))
  const given = new Set(left.map(({ access }) => graces[access]))
  if (given.size > 1) {
    note("reads and writes have a grace of their own each, which is not in the format: it is that of writes")
  }
  const graceMs = left.length === 0
    ? graces.read === graces.write ? graces.read : Infinity
    : graces[left.some(({ access }) => access === "write") ? "write" : "read"]
  return {
    ...(name === "failFast" ? { siblings: name } : undefined),
    ...(execution === undefined || execution === "parallel" ? undefined : { execution }),
    ...(dedupe === undefined || dedupe === "all" ? undefined : { dedupe }),
    ...(deadlineMs === Infinity ? undefined : { deadlineMs }),
    ...(graceMs === Infinity ? undefined : { graceMs: Math.round(graceMs) }),
    ...(nameRepair === true ? { nameRepair } : undefined),
    ...(references === undefined || references === false ? undefined : { references: true })
  }
}

/** Whether arguments may be results of other calls. @internal */
export const refers = (options: Turn.Options<any> | undefined): boolean =>
  options?.references !== undefined && options.references !== false

/** The arguments as a tool's policies get them. */
const decoded = (tool: AiTool.Any, args: Record<string, unknown>): unknown => {
  if (AiTool.isDynamic(tool) && (tool as AiTool.AnyDynamic).jsonSchema !== undefined) return args
  const exit = Schema.decodeUnknownExit(tool.parametersSchema as Schema.Decoder<unknown>)(args)
  if (Exit.isSuccess(exit)) return exit.value
  throw new Error("arguments that are not the tool's")
}

/** What a function of the team's says, if it says anything. */
const attempt = <A>(f: () => A): A | undefined => {
  try {
    return f()
  } catch {
    return undefined
  }
}

/** A call whose arguments its tool takes. */
interface Decoded {
  readonly position: number
  readonly tool: AiTool.Any
  readonly args: Record<string, unknown>
  readonly params: unknown
}

const decodedOf = (
  { calls }: RecordedTurn,
  tools: ReadonlyArray<AiTool.Any | undefined>
): ReadonlyArray<Decoded> =>
  tools.flatMap((tool, position) => {
    const args = objectOf(calls[position]?.arguments)
    if (tool === undefined || args === undefined) return []
    const params = attempt(() => ({ of: decoded(tool, args) }))
    return params === undefined ? [] : [{ position, tool, args, params: params.of }]
  })

const isTexts = (value: unknown): value is ReadonlyArray<string> =>
  Array.isArray(value) && value.every((one) => typeof one === "string")

/** What the format says of a tool, but for what its handler does. @internal */
export const toolOf = (
  tool: AiTool.Any,
  recorded: RecordedTurn,
  tools: ReadonlyArray<AiTool.Any | undefined>,
  ran: ReadonlyArray<Ran>,
  note: (text: string) => void
): Mutable<Form.Tool> => {
  const policy = ToolPolicy.get(tool)
  const where = `tool ${tool.name}`
  const positions = [...tools.keys()].filter((position) => tools[position] === tool)
  const parameters = attempt(() => AiTool.getJsonSchema(tool))
  if (parameters === undefined) {
    note(`${where}: its parameters have no JSON Schema, so the scenario takes any arguments`)
  }
  const calls = decodedOf(recorded, tools)
  const waits = (millis: number) => millis === Infinity ? undefined : Math.max(1, Math.round(millis))
  const own = ran.filter((one) => one.tool === tool)
  const held = positions.filter((position) => recorded.outcomes[position]?.status === "pending_approval")
  const approval = tool.needsApproval === true || (held.length > 0 && own.length === 0)
  if (held.length > 0 && !approval) {
    note(`${where}: some of its calls need an approval and some do not, which is not in the format: none does`)
  }
  // A list of the format answers with what was asked for, and the recorded results are worth more.
  if (Context.get(tool.annotations, Coalescer.MergingAnnotation) !== undefined) {
    note(`${where}: its calls are merged into requests, and in the scenario each runs by itself`)
  }
  if (policy.idleTimeout !== Infinity) note(`${where}: its idleTimeout is not in the format`)
  const failed = own.flatMap(({ outcome }) =>
    codeOf(outcome) === "failed" && outcome.effect === "none" ? [outcome.retryable] : []
  )
  const written: Mutable<Form.Tool> = {
    access: policy.access,
    ...keysOf(tool, recorded, calls, note),
    ...(policy.backend === undefined ? undefined : { backend: policy.backend.key }),
    ...(parameters === undefined ? undefined : { parameters: parameters as Record<string, unknown> }),
    ...(waits(policy.timeout) === undefined ? undefined : { timeoutMs: waits(policy.timeout)! }),
    ...(waits(policy.waitTimeout) === undefined ? undefined : { queueTimeoutMs: waits(policy.waitTimeout)! }),
    ...keyOf(policy, recorded, calls.filter((call) => call.tool === tool), where, note),
    ...(approval ? { approval } : undefined),
    ...(policy.repeatable ? { repeatable: true } : undefined),
    // This is how the format says that a failure may pass when tried again.
    ...(policy.access === "write" && failed.length > 0 && failed.every((retryable) => retryable)
      ? { retry: { max: 0 } }
      : undefined),
    ...(policy.placeholders === "detect" ? undefined : { placeholders: policy.placeholders })
  }
  return JSON.parse(JSON.stringify(written)) as Form.Tool
}

/** The keys of a call, where its tool says some. */
const saidBy = ({ params, tool }: Decoded): ReadonlyArray<string> | undefined => {
  const found = attempt(() => ToolPolicy.get(tool).keys?.(params))
  return isTexts(found) ? found : undefined
}

const keysOf = (
  tool: AiTool.Any,
  { calls, options, outcomes }: RecordedTurn,
  all: ReadonlyArray<Decoded>,
  note: (text: string) => void
): { readonly keys?: ReadonlyArray<string> } => {
  if (ToolPolicy.get(tool).keys === undefined) return {}
  const where = `tool ${tool.name}`
  const unread = calls.findIndex(({ name }, position) =>
    name === tool.name && outcomes[position]?.started === true && !all.some((call) => call.position === position)
  )
  // What names a result is decoded when that is there.
  if (unread !== -1 && !refers(options)) {
    note(
      `${where}: the arguments of call ${unread} cannot be decoded here: in the scenario the tool is of unknown reach`
    )
    return {}
  }
  const own = all.filter((call) => call.tool === tool)
  const keyed = own.flatMap((call) => {
    const keys = saidBy(call)
    return keys === undefined ? [] : [{ args: call.args, keys }]
  })
  const others = all.flatMap((call) => call.tool === tool ? [] : [saidBy(call) ?? []])
  const templates = Templates.find(keyed, others)
  if (templates !== undefined) return { keys: templates }
  const literal = Templates.literal(keyed.flatMap(({ keys }) => keys))
  if (literal === undefined) {
    note(`${where}: its keys cannot be written as templates: in the scenario it is of unknown reach`)
    return {}
  }
  note(
    `${where}: its keys are no templates over its arguments: in the scenario each of its calls touches all of ${
      literal.join(", ")
    }`
  )
  return { keys: literal }
}

const keyOf = (
  { idempotency }: ToolPolicy.ToolPolicy,
  { calls: all, events }: RecordedTurn,
  calls: ReadonlyArray<Decoded>,
  where: string,
  note: (text: string) => void
): { readonly idempotency?: "forward" | "record"; readonly idempotencyKey?: string } => {
  if (idempotency === undefined) return {}
  const mode = idempotency.mode === "record" ? "record" : "forward"
  if (idempotency.mode === "verify") {
    note(`${where}: that it can be asked about its writes is not in the format: its key is handed on in the scenario`)
  }
  const turn = events[0]?.turn ?? ""
  const keyed = calls.flatMap(({ args, params, position }) => {
    const key = attempt(() =>
      idempotency.key(params, {
        tenant: "default",
        conversation: undefined,
        turn,
        position,
        id: all[position]?.id ?? ""
      })
    )
    return typeof key === "string" ? [{ args, keys: [key] }] : []
  })
  const [template, ...more] = Templates.find(keyed) ?? []
  if (template !== undefined && more.length === 0) return { idempotency: mode, idempotencyKey: template }
  if (keyed.length > 0) {
    note(
      `${where}: its idempotency key is no template over its arguments: in the scenario it is the tool with its arguments`
    )
  }
  return { idempotency: mode }
}

/** The limits of the backends that the tools are on: as given, or as the waiting shows. @internal */
export const backendsOf = (
  { backends, events }: RecordedTurn,
  ran: ReadonlyArray<Ran>,
  note: (text: string) => void
): Form.Scenario["backends"] => {
  const found: Record<string, NonNullable<Form.Scenario["backends"]>[string]> = {}
  for (const [name, { breaker, concurrency, perTenant, queueLimit, rate }] of Object.entries(backends ?? {})) {
    if (breaker !== undefined) note(`backend ${name}: a scenario has no circuit breakers`)
    const limits = {
      ...(typeof perTenant === "number" ? { perTenant } : undefined),
      ...(typeof queueLimit === "number" ? { queueLimit } : undefined),
      ...(typeof rate === "object"
        ? {
          rate: {
            limit: rate.limit,
            windowMs: ToolPolicy.finiteMillis(`backend "${name}"`, "rate.window", rate.window)
          }
        }
        : undefined)
    }
    // What has no limit is not named.
    if (concurrency === "infinite" && Object.keys(limits).length === 0) continue
    found[name] = { concurrency: concurrency === "infinite" ? Number.MAX_SAFE_INTEGER : concurrency, ...limits }
  }
  const ended = (position: number) => {
    const late = events.findIndex((event) => event._tag === "CallSettledLate" && event.position === position)
    const end = late === -1
      ? events.findIndex((event) => event._tag === "CallEnded" && event.position === position)
      : late
    return end === -1 ? Infinity : end
  }
  events.forEach((event, index) => {
    if (event._tag !== "CallQueued" || event.for === "keys" || event.backend === undefined) return
    const name = event.backend
    if (backends !== undefined && Object.hasOwn(backends, name)) return
    if (event.for === "rate") return note(`backend ${name}: a call waited for its rate, which is not given`)
    const working = ran.filter(({ begun, position, tool }) =>
      ToolPolicy.get(tool).backend?.key === name && begun < index && ended(position) > index
    ).length
    if (working === 0) {
      return note(
        `backend ${name}: a call waited for it while none of this turn was at work on it, and its limits are not given`
      )
    }
    found[name] = { concurrency: Math.max(working, found[name]?.concurrency ?? 0) }
    note(
      `backend ${name}: its limits are not given; how many were at work when a call waited is taken for its concurrency`
    )
  })
  return Object.keys(found).length === 0 ? undefined : found
}

/** What a handler died with, without the words around it that are for the model. */
const thrownIn = (message: string): string =>
  message.replace(/^the handler broke: /, "").replace(/; whether it took effect is unknown;.*$/s, "")

/** What the handler did in one run. */
const behaved = (
  { deaf, end, outcome, tool }: Ran,
  latencyMs: number,
  redact: boolean,
  entry: Form.Tool
): Form.Behaviour => {
  const base = { latencyMs, ...(deaf ? { ignoresInterrupt: true } : undefined) }
  const hidden = (value: unknown) => redact ? redacted : value
  const isRead = ToolPolicy.get(tool).access === "read"
  if (end === undefined) return { type: "hang", ...(deaf ? { ignoresInterrupt: true } : undefined) }
  switch (outcome.status) {
    case "ok":
      return { type: "ok", ...base, result: hidden(outcome.encoded) }
    case "error": {
      if (outcome.code === "defect") {
        return { type: "throw", ...base, thrown: hidden(thrownIn(outcome.message)) }
      }
      if (outcome.code === "unencodable_result") return { type: "returnRaw", ...base, result: "bigint" }
      const error = hidden(outcome.code === "failed" ? outcome.encoded ?? "failed" : outcome.code)
      // A failure of `failUnknown` may pass when tried again, one of `fail` where the tool has a `retry`.
      const transient = isRead && outcome.retryable && entry.retry === undefined
      return { type: outcome.effect === "none" && !transient ? "fail" : "failUnknown", ...base, error }
    }
    case "cancelled":
      return outcome.code === "by_itself" ? { type: "selfInterrupt", ...base } : { type: "ok", ...base }
    default:
      return { type: "ok", ...base }
  }
}

/** What the handlers of a tool did: one for all, by their arguments, or one after another. @internal */
export const behaviourOf = (
  own: ReadonlyArray<Ran>,
  latencies: ReadonlyMap<number, number>,
  entry: Form.Tool,
  { note, redact, refers }: {
    readonly redact: boolean
    /** Arguments may be results, which nobody has written down: they tell no runs apart. */
    readonly refers: boolean
    readonly note: (text: string) => void
  }
): Form.Tool["behaviour"] => {
  const all = own.map((run) => ({
    run,
    behaviour: behaved(run, latencies.get(run.position)!, redact, entry)
  }))
  const distinct = new Map(all.map(({ behaviour }) => [canonical(behaviour), behaviour]))
  if (distinct.size <= 1) return all[0]?.behaviour
  const oneByOne = () => all.toSorted((a, b) => a.run.begun - b.run.begun).map(({ behaviour }) => behaviour)
  if (refers) {
    note(`tool ${own[0]!.tool.name}: arguments may be results of other calls, so the n-th run takes the n-th behaviour`)
    return oneByOne()
  }
  const byArguments = new Map<string, (typeof all)[number]>()
  for (const one of all) {
    const args = canonical(one.run.args)
    const known = byArguments.get(args)
    if (known !== undefined && canonical(known.behaviour) !== canonical(one.behaviour)) {
      note(
        `tool ${one.run.tool.name}: calls with the same arguments differed in their end or their time, so the n-th run takes the n-th behaviour`
      )
      return oneByOne()
    }
    byArguments.set(args, one)
  }
  // What fits more is asked first.
  return [...byArguments.values()]
    .toSorted((a, b) => Object.keys(b.run.args).length - Object.keys(a.run.args).length)
    .map(({ behaviour, run }) => ({ ...behaviour, when: run.args }))
}
