/**
 * A recorded turn as a scenario: its calls, its tools with their policies, what became of each call and when, and the stops.
 *
 * - **F1** Nothing is run of the team's own but what decides keys: `keys` and `forward` of its tools, on the recorded arguments.
 * - **F2** The scenario passes. It is run until each handler ends at the moment of the recording, and what the scenario answers
 *   otherwise all the same is left out of its expectations.
 * - **F3** What could not be expressed is said in `notes`, one sentence each.
 *
 * @since 0.1.0
 */
import * as AiTool from "effect/ai/Tool"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as Backend from "../../Backend.ts"
import * as Outcome from "../../Outcome.ts"
import type * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import type * as Turn from "../../Turn.ts"
import * as TurnError from "../../TurnError.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type { Judge } from "./explore.ts"
import { canonical, same } from "./keys.ts"
import * as Report from "./report.ts"
import * as Run from "./run.ts"
import type * as Form from "./schema.ts"
import * as Templates from "./templates.ts"

/**
 * What a team has recorded of one turn.
 *
 * **Details**
 *
 * - `toolkit`: the tools with their policies; their handlers are not run.
 * - `calls`, `outcomes`: the turn's, in emission order. `events`: all that its `onEvent` was told.
 * - `options`, `tenant`: what the turn was run with.
 * - `backends`: the limits of backends by their names. Where they are not given, and a call waited for a permit, the limit is
 *   taken from how many handlers were at work then.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RecordedTurn {
  readonly toolkit: { readonly tools: { readonly [name: string]: AiTool.Any } }
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly events: ReadonlyArray<TurnEvent.TurnEvent>
  readonly outcomes: ReadonlyArray<Outcome.Outcome<any>>
  readonly options?: Turn.Options<any> | undefined
  readonly tenant?: string | undefined
  readonly backends?: { readonly [name: string]: Backend.Options & Partial<Backend.TenantOptions> } | undefined
}

/**
 * How a recorded turn is written as a scenario.
 *
 * **Details**
 *
 * - `name`: of the scenario, and so of its file: small letters, digits and dashes.
 * - `why`: the fault that it guards against. Default: a sentence that asks for one.
 * - `redact`: `true` puts `"redacted"` in place of what the tools answered, failed or died with. Arguments stay as they are.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FromTurnOptions {
  readonly name: string
  readonly why?: string | undefined
  readonly redact?: boolean | undefined
}

/** What stands in `why` until somebody says it. @internal */
export const whyNot = "Recorded from a real turn. Replace this sentence by the fault that the scenario guards against."

const redacted = "redacted"

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** One call that ran. Times are whole milliseconds from the start of the turn. */
interface Ran {
  readonly position: number
  readonly tool: AiTool.Any
  readonly args: Record<string, unknown>
  readonly start: number
  /** What its work came to, which may be more than its answer. */
  readonly outcome: Outcome.Outcome<any>
  /** When its work is to end, `undefined` when it does not end by itself. */
  readonly end: number | undefined
  /** How long it may take at most, so that none of its clocks runs out that did not. */
  readonly most: number
  /** It went on although it was told to stop. */
  readonly deaf: boolean
  /** It was answered while its work went on. */
  readonly givenUp: boolean
  /** The place of its start in the order of events. */
  readonly begun: number
}

/** A moment at which calls were stopped, and its place in the order of events. */
interface Stop {
  readonly index: number
  readonly at: number
  /** The last moment of those that ended before it. */
  readonly last: number
}

/** Arguments as one JSON object, as far as that is what they are. */
const objectOf = (args: unknown): Record<string, unknown> | undefined => {
  let value = args ?? {}
  if (typeof value === "string") {
    if (value.trim() === "") return {}
    try {
      value = JSON.parse(value)
    } catch {
      return undefined
    }
  }
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? value as Record<string, unknown>
    : undefined
}

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

const millisOf = (owner: string, limit: unknown): number =>
  limit === undefined ? Infinity : ToolPolicy.limitMillis(owner, owner, limit, 0)

/** How long a stop waits for reads and for writes. */
const gracesOf = (grace: Turn.Options["grace"]): { readonly read: number; readonly write: number } => {
  const split = typeof grace === "object" && grace !== null && ("reads" in grace || "writes" in grace)
  const [reads, writes] = split ? [grace.reads, grace.writes] : [grace, grace]
  return {
    read: millisOf("grace", reads ?? "5 seconds"),
    write: millisOf("grace", writes ?? "infinite")
  } as const
}

/** Whether a call can be told from the others by its id. */
const isUnique = (calls: ReadonlyArray<ToolCall.ToolCall>, position: number): boolean => {
  const id = calls[position]?.id ?? ""
  return id !== "" && calls.filter((call) => call.id === id).length === 1
}

/** @internal */
export const fromTurn = (
  recorded: RecordedTurn,
  options: FromTurnOptions,
  judge: Judge
): Effect.Effect<{ readonly scenario: Form.Scenario; readonly notes: ReadonlyArray<string> }> =>
  Effect.gen(function*() {
    const notes: Array<string> = []
    const note = (text: string) => {
      if (!notes.includes(text)) notes.push(text)
    }
    const turn = recorded.options ?? {}
    const tools = toolsOf(recorded)
    const ran = ranOf(recorded, tools)
    const policy = policyOf(turn, ran, note)
    const written = new Map(
      [...new Set(tools)].flatMap((tool) =>
        tool === undefined ? [] : [[tool.name, toolOf(tool, recorded, tools, ran, note)] as const]
      )
    )
    const backends = backendsOf(recorded, ran, note)
    const first = Object.values(recorded.toolkit.tools)[0]
    // A scenario has a tool at least, also where all calls mean tools that are not there.
    if (written.size === 0) written.set(first?.name ?? "unused", { access: "read", keys: [] })
    const events = eventsOf(recorded, ran, note)
    const expected = recorded.outcomes.map((outcome) => {
      const told = Report.reportedOutcome(outcome)
      return options.redact === true && "result" in told ? { ...told, result: redacted } : told
    })
    const executions: Record<string, number> = {}
    for (const name of written.keys()) executions[name] = 0
    for (const event of recorded.events) {
      if (event._tag !== "CallStarted") continue
      const name = tools[event.position]?.name
      if (name !== undefined) executions[name] = executions[name]! + 1
    }

    const { finishReason } = turn
    const draft: Mutable<Form.Scenario> = {
      name: options.name,
      why: options.why ?? whyNot,
      tools: {},
      ...(backends === undefined ? undefined : { backends }),
      ...(Object.keys(policy).length === 0 ? undefined : { policy }),
      turns: [{
        calls: recorded.calls.map(callOf),
        ...(recorded.tenant === undefined || recorded.tenant === "default" ? undefined : { tenant: recorded.tenant }),
        ...(finishReason === undefined || ["pause", "other", "unknown"].includes(finishReason)
          ? undefined
          : { finishReason: finishReason as "stop" }),
        ...(events.length === 0 ? undefined : { events })
      }],
      expect: {}
    }
    const latencies = new Map(ran.map(({ end, most, position, start }) => [
      position,
      end === undefined ? 0 : Math.min(end - start, most)
    ]))
    const loose = new Set<string>()
    const scenario = (): Form.Scenario => ({
      ...draft,
      tools: Object.fromEntries([...written].map(([name, tool]) => {
        const { parameters, ...rest } = tool
        const own = ran.filter((one) => one.tool.name === name)
        const behaviour = behaviourOf(own, latencies, options, tool, note)
        return [name, {
          ...rest,
          ...(parameters === undefined || loose.has(name) ? undefined : { parameters }),
          ...(behaviour === undefined ? undefined : { behaviour })
        }]
      }))
    })

    let seen = yield* aligned(scenario, ran, latencies)
    // What the tool took and its JSON Schema does not, is taken by a scenario without the schema.
    const before = loose.size
    for (const [position, tool] of tools.entries()) {
      const answer = seen.turns[0]?.answers?.[position]?.outcome
      const wrong = (answer === undefined && seen.runs.length === 0) ||
        (answer?.code === "invalid_arguments" && codeOf(recorded.outcomes[position]!) !== answer?.code)
      if (!wrong || tool === undefined || written.get(tool.name)?.parameters === undefined) continue
      loose.add(tool.name)
      note(`tool ${tool.name}: its parameters are not as its JSON Schema says, so the scenario takes any arguments`)
    }
    if (loose.size > before) seen = yield* aligned(scenario, ran, latencies)

    const answers = seen.turns[0]?.answers
    const outcomes = expected.map((outcome, position) =>
      Object.fromEntries(
        Object.entries(outcome).filter(([field, value]) => {
          const got = (answers?.[position]?.outcome as Record<string, unknown> | undefined)?.[field]
          if (same(got, value)) return true
          note(
            `call ${position} (${JSON.stringify(outcome.id)}): its ${field} was ${
              TurnError.show(value)
            }, and the scenario ` +
              `gives ${got === undefined ? "none" : TurnError.show(got)}: it is not expected`
          )
          return false
        })
      )
    )
    const counts = Object.fromEntries(
      Object.entries(executions).filter(([name, n]) => {
        const got = seen.executions[name] ?? 0
        if (got === n) return true
        note(`tool ${name}: it was started ${n} times, and the scenario starts it ${got} times: that is not expected`)
        return false
      })
    )
    for (const { position, start } of ran) {
      const run = seen.runs.find((run) => run.position === position && run.parent === undefined)
      if (run === undefined || start - run.startedAt <= wait) continue
      note(
        `call ${position}: it started at ${start} ms, and starts at ${run.startedAt} ms in the scenario: what it waited for is ` +
          `not in the recording`
      )
    }
    const whole: Form.Scenario = {
      ...scenario(),
      expect: { outcomes: [outcomes], executions: counts } as Form.Scenario["expect"]
    }
    for (const failure of judge(whole, seen)) note(`the scenario does not pass: ${failure}`)
    return { scenario: JSON.parse(JSON.stringify(whole)) as Form.Scenario, notes }
  })

/** How much later than in the scenario a call may have started without being worth a note. */
const wait = 10

const codeOf = (outcome: Outcome.Outcome<any>): string | undefined => "code" in outcome ? outcome.code : undefined

/** The tool of each call, where there is one. */
const toolsOf = ({ calls, options, toolkit }: RecordedTurn): ReadonlyArray<AiTool.Any | undefined> => {
  const tools = Object.values(toolkit.tools)
  const plain = (name: string) => name.trim().toLowerCase()
  return calls.map(({ name }) => {
    const exact = tools.find((tool) => tool.name === name)
    if (exact !== undefined || options?.nameRepair !== true) return exact
    const near = tools.filter((tool) => plain(tool.name) === plain(name))
    return near.length === 1 ? near[0] : undefined
  })
}

const callOf = ({ arguments: args, id, name, providerExecuted }: ToolCall.ToolCall): Form.Call => ({
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

/** Places and times of what happened to each call, from the events. */
const ranOf = (recorded: RecordedTurn, tools: ReadonlyArray<AiTool.Any | undefined>): ReadonlyArray<Ran> => {
  const { events, outcomes } = recorded
  const origin = originOf(events)
  const time = (event: TurnEvent.TurnEvent) => Math.max(0, Math.round(event.at) - origin)
  const indexOf = (tag: TurnEvent.TurnEvent["_tag"], position: number) =>
    events.findIndex((event) => event._tag === tag && "position" in event && event.position === position)
  const stops = stopsOf(recorded)
  const unsettled = events.find((event) => event._tag === "TurnEnded")?.unsettled ?? 0
  const graces = gracesOf(recorded.options?.grace)

  return tools.flatMap((tool, position): ReadonlyArray<Ran> => {
    const begun = indexOf("CallStarted", position)
    const outcome = outcomes[position]
    const args = objectOf(recorded.calls[position]?.arguments)
    if (begun === -1 || tool === undefined || outcome === undefined || args === undefined) return []
    const start = time(events[begun]!)
    const own = indexOf("CallEnded", position)
    const late = indexOf("CallSettledLate", position)
    const lateOutcome = late === -1 ? undefined : (events[late] as TurnEvent.CallSettledLate).outcome
    // A run that others shared went on for them when its own call was stopped.
    const twin = outcomes.findIndex((one) => one.duplicateOf?.position === position && one.status !== outcome.status)
    const shared = outcome.status === "cancelled" && twin !== -1
    const ended = shared ? indexOf("CallEnded", twin) : own
    const ownEnd = ended === -1 ? start : time(events[ended]!)
    const { interruptible, timeout } = ToolPolicy.get(tool)
    const base = { position, tool, args, start, begun }

    /** The end of work that ends by itself: on the side of each stop on which it was. */
    const endAt = (index: number, at: number) => {
      let end = at
      for (const stop of stops) {
        if (index < stop.index) end = Math.min(end, stop.last)
        else if (index > stop.index) end = Math.max(end, stop.at + 1)
        else end = stop.at
      }
      return Math.max(start, end)
    }
    // An overdue write is awaited, and goes on as if it had time.
    const inTime = interruptible ? timeout - 1 : Infinity
    if (lateOutcome !== undefined) {
      return [{
        ...base,
        outcome: lateOutcome,
        // Later than its answer, also where both fall on one millisecond.
        end: Math.max(endAt(late, time(events[late]!)), ownEnd + 1),
        most: Infinity,
        deaf: interruptible,
        givenUp: true
      }]
    }
    const work = shared ? outcomes[twin]! : outcome
    const stopped = work.status === "timeout" || (work.status === "cancelled" && work.code !== "by_itself")
    const byItself = { ...base, outcome: work, end: endAt(ended, ownEnd), most: inTime, deaf: false, givenUp: false }
    if (!stopped) return [byItself]
    const stop = stops.find(({ index }) => index < ended)
    const told = work.status === "timeout" ? start + work.limit.millis : stop?.at ?? ownEnd
    const delay = ownEnd - told
    const { access } = ToolPolicy.get(tool)
    const lonely = work.status === "cancelled" && stop === undefined
    // What nothing was seen to stop may have been told a grace before.
    const givenUp = unsettled > 0 && graces[access] > 0 && (lonely || delay >= graces[access] - 1)
    const itself: Ran = { ...byItself, outcome: { ...work, status: "cancelled", code: "by_itself" } }
    // What the format cannot stop has to end by itself.
    if (lonely && !isUnique(recorded.calls, position)) return [itself]
    if (work.status === "timeout" && work.limit.clock === "idleTimeout") return [itself]
    const endless: Ran = { ...byItself, outcome: work, end: undefined, most: Infinity }
    // A write without a key is not told to stop: it was given up on, or has stopped itself.
    if (!interruptible) {
      return [givenUp || (unsettled > 0 && graces[access] === 0) ? { ...endless, givenUp: true } : itself]
    }
    if (givenUp) return [{ ...endless, deaf: true, givenUp: true }]
    // It took its time to end: to the millisecond nothing is that fast.
    return [delay > 1 ? { ...endless, end: ownEnd, deaf: true } : endless]
  })
}

const originOf = (events: ReadonlyArray<TurnEvent.TurnEvent>): number =>
  Math.round((events.find((event) => event._tag === "TurnStarted") ?? events[0])?.at ?? 0)

/** When the turn was stopped, and when a failure stopped its siblings. */
const stopsOf = ({ events, options }: RecordedTurn): ReadonlyArray<Stop> => {
  const origin = originOf(events)
  const time = (index: number) => Math.max(0, Math.round(events[index]!.at) - origin)
  const stops: Array<Stop> = []
  const index = events.findIndex((event) => event._tag === "TurnStopped")
  if (index !== -1) {
    const byDeadline = (events[index] as TurnEvent.TurnStopped).code === "by_deadline"
    const at = byDeadline ? millisOf("deadline", options?.deadline) : time(index)
    // An event of a scenario comes after all that ends in its moment; a deadline is one of them.
    stops.push({ index, at, last: byDeadline ? at - 1 : at })
  }
  const failure = options?.siblings?.name === "failFast"
    ? events.findIndex((event) => event._tag === "CallEnded" && Outcome.isFailure(event.outcome))
    : -1
  if (failure !== -1 && (index === -1 || failure < index)) {
    const at = time(failure)
    const tied = events.slice(0, failure).some((event, i) => event._tag === "CallEnded" && time(i) === at)
    stops.push({ index: failure, at: tied ? at + 1 : at, last: tied ? at : at - 1 })
  }
  return stops
}

/** What stopped the turn, or single calls, from outside. */
const eventsOf = (
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

/** The turn's own rules. */
const policyOf = (
  { deadline, dedupe, execution, grace, limits, nameRepair, siblings, unit }: Turn.Options<any>,
  ran: ReadonlyArray<Ran>,
  note: (text: string) => void
): NonNullable<Form.Scenario["policy"]> => {
  const name = siblings?.name ?? "letFinish"
  if (name !== "letFinish" && name !== "failFast") {
    note(`the turn's policy for siblings, ${name}, is not in the format: the scenario lets them finish`)
  }
  if (unit !== undefined) note("the turn's units are not in the format: the whole turn is one")
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
    ...(nameRepair === true ? { nameRepair } : undefined)
  }
}

/** What the format says of a tool, but for what its handler does. */
const toolOf = (
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
  const calls = positions.flatMap((position) => {
    const args = objectOf(recorded.calls[position]?.arguments)
    const params = args === undefined ? undefined : attempt(() => ({ of: decoded(tool, args) }))
    return args === undefined || params === undefined ? [] : [{ position, args, params: params.of }]
  })
  const waits = (millis: number) => millis === Infinity ? undefined : Math.max(1, Math.round(millis))
  const own = ran.filter((one) => one.tool === tool)
  const held = positions.filter((position) => recorded.outcomes[position]?.status === "pending_approval")
  const approval = tool.needsApproval === true || (held.length > 0 && own.length === 0)
  if (held.length > 0 && !approval) {
    note(`${where}: some of its calls need an approval and some do not, which is not in the format: none does`)
  }
  if (policy.idleTimeout !== Infinity) note(`${where}: its idleTimeout is not in the format`)
  const failed = own.flatMap(({ outcome }) =>
    codeOf(outcome) === "failed" && outcome.effect === "none" ? [outcome.retryable] : []
  )
  const written: Mutable<Form.Tool> = {
    access: policy.access,
    ...keysOf(policy, calls, where, note),
    ...(policy.backend === undefined ? undefined : { backend: policy.backend.key }),
    ...(parameters === undefined ? undefined : { parameters: parameters as Record<string, unknown> }),
    ...(waits(policy.timeout) === undefined ? undefined : { timeoutMs: waits(policy.timeout)! }),
    ...(waits(policy.waitTimeout) === undefined ? undefined : { queueTimeoutMs: waits(policy.waitTimeout)! }),
    ...forwardOf(policy, recorded, calls, where, note),
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

interface Decoded {
  readonly position: number
  readonly args: Record<string, unknown>
  readonly params: unknown
}

const isTexts = (value: unknown): value is ReadonlyArray<string> =>
  Array.isArray(value) && value.every((one) => typeof one === "string")

const keysOf = (
  policy: ToolPolicy.ToolPolicy,
  calls: ReadonlyArray<Decoded>,
  where: string,
  note: (text: string) => void
): { readonly keys?: ReadonlyArray<string> } => {
  const { keys } = policy
  if (keys === undefined) return {}
  const keyed = calls.flatMap(({ args, params }) => {
    const found = attempt(() => keys(params))
    return isTexts(found) ? [{ args, keys: found }] : []
  })
  const templates = Templates.find(keyed)
  if (templates !== undefined) return { keys: templates }
  const all = Templates.literal(keyed.flatMap(({ keys }) => keys))
  if (all === undefined) {
    note(`${where}: its keys cannot be written as templates: in the scenario it is of unknown reach`)
    return {}
  }
  note(
    `${where}: its keys are no templates over its arguments: in the scenario each of its calls touches all of ${
      all.join(", ")
    }`
  )
  return { keys: all }
}

const forwardOf = (
  { forward }: ToolPolicy.ToolPolicy,
  { calls: all, events }: RecordedTurn,
  calls: ReadonlyArray<Decoded>,
  where: string,
  note: (text: string) => void
): { readonly idempotency?: "forward"; readonly idempotencyKey?: string } => {
  if (forward === undefined) return {}
  const turn = events[0]?.turn ?? ""
  const keyed = calls.flatMap(({ args, params, position }) => {
    const key = attempt(() => forward(params, { turn, position, id: all[position]?.id ?? "" }))
    return typeof key === "string" ? [{ args, keys: [key] }] : []
  })
  const [template, ...more] = Templates.find(keyed) ?? []
  if (template !== undefined && more.length === 0) return { idempotency: "forward", idempotencyKey: template }
  if (keyed.length > 0) {
    note(
      `${where}: its idempotency key is no template over its arguments: in the scenario it is the tool with its arguments`
    )
  }
  return { idempotency: "forward" }
}

/** The limits of the backends that the tools are on: as given, or as the waiting shows. */
const backendsOf = (
  { backends, events }: RecordedTurn,
  ran: ReadonlyArray<Ran>,
  note: (text: string) => void
): Form.Scenario["backends"] => {
  const found: Record<string, NonNullable<Form.Scenario["backends"]>[string]> = {}
  for (const [name, { concurrency, perTenant, queueLimit }] of Object.entries(backends ?? {})) {
    // What has no limit is not named.
    if (concurrency === "infinite" && typeof perTenant !== "number" && typeof queueLimit !== "number") continue
    found[name] = {
      concurrency: concurrency === "infinite" ? Number.MAX_SAFE_INTEGER : concurrency,
      ...(typeof perTenant === "number" ? { perTenant } : undefined),
      ...(typeof queueLimit === "number" ? { queueLimit } : undefined)
    }
  }
  const ended = (position: number) => {
    const late = events.findIndex((event) => event._tag === "CallSettledLate" && event.position === position)
    const end = late === -1
      ? events.findIndex((event) => event._tag === "CallEnded" && event.position === position)
      : late
    return end === -1 ? Infinity : end
  }
  events.forEach((event, index) => {
    if (event._tag !== "CallQueued" || event.for !== "permit" || event.backend === undefined) return
    const name = event.backend
    if (backends !== undefined && Object.hasOwn(backends, name)) return
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

/** What the handlers of a tool did: one for all, by their arguments, or one after another. */
const behaviourOf = (
  own: ReadonlyArray<Ran>,
  latencies: ReadonlyMap<number, number>,
  options: FromTurnOptions,
  entry: Form.Tool,
  note: (text: string) => void
): Form.Tool["behaviour"] => {
  const all = own.map((run) => ({
    run,
    behaviour: behaved(run, latencies.get(run.position)!, options.redact === true, entry)
  }))
  const distinct = new Map(all.map(({ behaviour }) => [canonical(behaviour), behaviour]))
  if (distinct.size <= 1) return all[0]?.behaviour
  const byArguments = new Map<string, (typeof all)[number]>()
  for (const one of all) {
    const args = canonical(one.run.args)
    const known = byArguments.get(args)
    if (known !== undefined && canonical(known.behaviour) !== canonical(one.behaviour)) {
      note(
        `tool ${one.run.tool.name}: calls with the same arguments differed in their end or their time, so the n-th run takes the n-th behaviour`
      )
      return all.toSorted((a, b) => a.run.begun - b.run.begun).map(({ behaviour }) => behaviour)
    }
    byArguments.set(args, one)
  }
  // What fits more is asked first.
  return [...byArguments.values()]
    .toSorted((a, b) => Object.keys(b.run.args).length - Object.keys(a.run.args).length)
    .map(({ behaviour, run }) => ({ ...behaviour, when: run.args }))
}

/** How often times are corrected: once for each link of the longest chain of waiting calls is enough. */
const maxPasses = 20

/** Runs the scenario until what ends by itself ends when it did. Waiting takes no time of its own there, so that starts differ. */
const aligned = (
  scenario: () => Form.Scenario,
  ran: ReadonlyArray<Ran>,
  latencies: Map<number, number>
): Effect.Effect<Report.Observed> =>
  Effect.gen(function*() {
    for (let pass = 1;; pass++) {
      const { observed } = yield* Run.run(scenario())
      let changed = false
      for (const { end, most, position } of ran) {
        const run = observed.runs.find((run) => run.position === position && run.parent === undefined)
        if (end === undefined || run === undefined) continue
        const latency = Math.max(0, Math.min(end - run.startedAt, most))
        if (latency === latencies.get(position)) continue
        latencies.set(position, latency)
        changed = true
      }
      if (!changed || pass === maxPasses) return observed
    }
  })
