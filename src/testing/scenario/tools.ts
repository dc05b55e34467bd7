/**
 * The tools, policies and backends of a scenario, made from its data with the public API alone.
 *
 * @since 0.1.0
 */
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as ArtifactStore from "../../ArtifactStore.ts"
import * as Backend from "../../Backend.ts"
import * as Coalescer from "../../Coalescer.ts"
import * as IdempotencyStore from "../../IdempotencyStore.ts"
import * as Siblings from "../../Siblings.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as Turn from "../../Turn.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import * as TurnStore from "../../TurnStore.ts"
import * as FakeTool from "../FakeTool.ts"
import { askedOf, canonical, fill, fits, keysOf, same } from "./keys.ts"
import * as Form from "./schema.ts"

/** A failure that says how it is classed. */
const Failure = Schema.Struct({
  error: Schema.Unknown,
  effect: Schema.Literals(["none", "unknown"]),
  transient: Schema.Boolean,
  retryAfterMs: Schema.optionalKey(Schema.Number)
})
type Failure = typeof Failure.Type

const classed = {
  noEffect: (failure: unknown) => (failure as Failure).effect === "none",
  transient: (failure: unknown) => (failure as Failure).transient,
  rateLimited: (failure: unknown) => (failure as Failure).retryAfterMs
}

const raw = (kind: "undefined" | "bigint" | "circular" | "date" | "nan"): unknown => {
  switch (kind) {
    case "undefined":
      return undefined
    case "bigint":
      return BigInt(1)
    case "nan":
      return NaN
    case "date":
      return new Date(0)
    case "circular": {
      const circle: Record<string, unknown> = {}
      circle["itself"] = circle
      return circle
    }
  }
}

type Nested = (calls: ReadonlyArray<Form.Call>) => Effect.Effect<unknown, never, any>

const behaviour = (
  tool: Form.Tool,
  said: Form.Behaviour,
  nested: Nested,
  params: unknown
): FakeTool.Behaviour<any, any, any> => {
  const { effectAtMs, ignoresInterrupt, latencyMs, when } = said
  const base = { latencyMs, effectAtMs, ignoresInterrupt, when }
  const error = errorOf(said)
  switch (said.type) {
    case "ok":
      return { ...base, type: "ok", result: Object.hasOwn(said, "result") ? said.result : { ok: true } }
    case "returnRaw":
      return { ...base, type: "ok", result: raw(said.result) }
    case "fail":
      return {
        ...base,
        effectAtMs: undefined,
        type: "fail",
        failure: { error, effect: "none", transient: tool.retry !== undefined }
      }
    case "failUnknown":
      return { ...base, type: "fail", failure: { error, effect: "unknown", transient: true } }
    case "failAfterEffect":
      return {
        ...base,
        effectAtMs: effectAtMs ?? "end",
        type: "fail",
        failure: { error, effect: "unknown", transient: true }
      }
    case "throw":
      return { ...base, type: "throw", thrown: said.thrown === "undefined" ? undefined : said.thrown }
    case "hang":
      return { ...base, type: "hang" }
    case "selfInterrupt":
      return { ...base, type: "selfInterrupt" }
    case "callsTools":
      return { ...base, type: "runs", run: nested(said.calls) }
    case "rateLimited":
      return {
        ...base,
        type: "rateLimited",
        untilMs: said.untilMs,
        failure: { error, effect: "none", transient: true, retryAfterMs: said.retryAfterMs },
        result: Object.hasOwn(said, "result") ? said.result : { ok: true }
      }
    case "items":
      return { ...base, type: "ok", result: listOf(said, askedOf(params)) }
  }
}

type Items = Extract<Form.Behaviour, { readonly type: "items" }>

const isIn = (list: ReadonlyArray<unknown> | undefined, args: unknown): boolean =>
  list?.some((one) => same(one, args)) === true

/** What a call of a list tool is answered by its own handler: what merged calls would get, in one list. */
const listOf = (said: Items, asked: ReadonlyArray<unknown>): ReadonlyArray<unknown> => {
  const list = (said.short === true ? asked.slice(0, -1) : asked).flatMap((args) =>
    isIn(said.missing, args) ? [] : isIn(said.failing, args) ? [{ error: errorOf(said), of: args }] : [args]
  )
  return said.shuffled === true ? list.toReversed() : list
}

const errorOf = ({ error }: Form.Behaviour): unknown => error === undefined ? "failed" : error

/** An item without a key: nothing tells whose it is. */
class Keyless {
  readonly value: unknown
  constructor(value: unknown) {
    this.value = value
  }
}

/** What a lookup does with a request, for each entry of the file. */
const lookupOf = (said: Items): FakeTool.LookupBehaviour<unknown, unknown, Failure> => {
  const failing = said.failing ?? []
  return {
    type: "items",
    latencyMs: said.latencyMs,
    ignoresInterrupt: said.ignoresInterrupt,
    when: said.when === undefined ? undefined : (keys) => keys.some((args) => fits(said.when, args)),
    item: (args) => said.short === true ? new Keyless(args) : args,
    missing: said.missing,
    failing: failing.map((args) => [args, { error: errorOf(said), effect: "none", transient: true }]),
    // A failure has no key in a list.
    paired: failing.length === 0 ? "key" : "map",
    shuffled: said.shuffled,
    short: said.short
  }
}

/** What the tools of a file that are merged into one list ask through. */
const coalescerOf = (
  scenario: Form.Scenario,
  into: string,
  world: FakeTool.World,
  backends: ReadonlyMap<string, ReturnType<typeof backendOf>>
) => {
  const list = scenario.tools[into]!
  const caller = Object.values(scenario.tools).find(({ batch }) => batch?.into === into)
  const name = Form.backendOf(scenario, into)
  const script = Form.behavioursOf(list).flatMap((said) => said.type === "items" ? [lookupOf(said)] : [])
  return Coalescer.make({
    name: into,
    lookup: FakeTool.lookup<unknown, unknown, Failure>(world, into, script, { backend: name }),
    itemKey: (item) => {
      if (item instanceof Keyless) throw new Error("this item has no key")
      return item
    },
    keyText: canonical,
    window: caller?.batch?.windowMs,
    size: caller?.batch?.maxSize,
    timeout: list.timeoutMs ?? "infinite",
    backend: name === undefined ? undefined : backends.get(name)?.service as any
  })
}

/** The class of a backend of the file, and the layer with its limits. */
const backendOf = (name: string, said: NonNullable<Form.Scenario["backends"]>[string]) => {
  const rate = said.rate === undefined ? undefined : { limit: said.rate.limit, window: said.rate.windowMs }
  const options = { concurrency: said.concurrency, queueLimit: said.queueLimit, rate }
  if (said.perTenant === undefined) {
    const service = Backend.Service<unknown>()(name)
    return { name, service, layer: service.layer(options) }
  }
  const service = Backend.TenantService<unknown>()(name)
  return { name, service, layer: service.layer({ ...options, perTenant: said.perTenant }) }
}

const schemaOf = (parameters: Form.Tool["parameters"]) =>
  parameters === undefined || parameters === true ? { type: "object" } : parameters === false ? { not: {} } : parameters

const toolOf = (
  name: string,
  said: Form.Tool,
  backends: ReadonlyMap<string, ReturnType<typeof backendOf>>
): Tool.Any => {
  const plain: Tool.Any = Tool.dynamic(name, {
    parameters: schemaOf(said.parameters),
    success: Schema.Unknown,
    failure: Failure,
    needsApproval: said.approval === true
  })
  const access = said.access === "read" ? ToolPolicy.read : ToolPolicy.write
  const keys = said.keys === undefined ? undefined : (params: unknown) => keysOf(said, params) ?? []
  const policies: Array<(tool: Tool.Any) => Tool.Any> = [
    access({ keys }),
    ToolPolicy.timeout(said.timeoutMs ?? "infinite"),
    ToolPolicy.waitTimeout(said.queueTimeoutMs ?? "infinite"),
    ToolPolicy.placeholders(said.placeholders ?? "detect"),
    ToolPolicy.failures(classed)
  ]
  if (said.repeatable === true) policies.push(ToolPolicy.repeatable)
  if (said.resultBudget !== undefined) policies.push(ToolPolicy.resultBudget(said.resultBudget))
  if (said.idempotency === "forward" || said.idempotency === "record") {
    const template = said.idempotencyKey
    const key = (params: unknown) => template === undefined ? `${name} ${canonical(params)}` : fill(template, params)
    policies.push(said.idempotency === "forward" ? ToolPolicy.forward(key) : IdempotencyStore.record(key))
  }
  if (said.retry !== undefined) {
    const { delayMs = 0, jitter = false, max } = said.retry
    // Also of a write without a key, which does not compile elsewhere: the runtime does not try it again.
    const retry = ToolPolicy.retry({ times: max, schedule: Schedule.spaced(delayMs), jitter })
    policies.push((tool) => retry(tool as Tool.Any & ToolPolicy.Retryable))
  }
  const backend = said.backend === undefined ? undefined : backends.get(said.backend)
  if (backend !== undefined) policies.push((tool) => ToolPolicy.on(backend.service)(tool as any) as Tool.Any)
  return policies.reduce((tool, policy) => policy(tool), plain)
}

/**
 * The options of a turn; what the file does not limit is not limited.
 *
 * @internal
 */
export const optionsOf = (policy: Form.Scenario["policy"], nested: boolean): Turn.Options => ({
  siblings: policy?.siblings === "failFast" ? Siblings.failFast : Siblings.letFinish,
  execution: policy?.execution,
  dedupe: policy?.dedupe,
  nameRepair: policy?.nameRepair,
  references: policy?.references,
  grace: policy?.graceMs ?? "infinite",
  deadline: nested ? undefined : policy?.deadlineMs,
  // What a nested turn gives goes to the handler that runs it.
  resultBudget: nested ? undefined : policy?.resultBudget
})

/** @internal */
export interface Stage {
  readonly world: FakeTool.World
  readonly toolkit: Toolkit.Any
  /** Handlers, backends and one turn runtime: what is in memory alone. */
  readonly layer: Layer.Layer<any>
  /** Permits that are out, by backend: looked at in no time. */
  readonly permits: (services: Context.Context<any>) => Record<string, number>
}

/**
 * Makes all that the turns of a scenario run on. What it makes is of one process: nothing merges with what another has asked.
 *
 * @internal
 */
export const stage = (
  scenario: Form.Scenario,
  world: FakeTool.World,
  rows: TurnStore.TurnStore["Service"],
  { onEvent, toJson }: {
    /** What a handler that runs a nested turn answers. */
    readonly toJson: (outcomes: ReadonlyArray<any>) => unknown
    /** Told what happens in nested turns. */
    readonly onEvent: (event: TurnEvent.TurnEvent) => void
  }
): Stage => {
  const backends = new Map(
    Object.entries(scenario.backends ?? {}).map(([name, said]) => [name, backendOf(name, said)] as const)
  )
  const nested: Nested = (calls) =>
    Effect.gen(function*() {
      const call = yield* TurnContext.CurrentCall
      const turn = `${call?.identity.turn}/${call?.position}.${call?.attempt}`
      const outcomes = yield* Turn.run(toolkit, calls, { ...optionsOf(scenario.policy, true), turn, onEvent })
      return toJson(outcomes)
    }).pipe(Effect.orDie)

  const coalescers = new Map(
    Form.listsOf(scenario).map((into) => [into, coalescerOf(scenario, into, world, backends)] as const)
  )
  const handlerOf = (tool: Tool.Any, said: Form.Tool) => (params: unknown) => {
    const script = Form.behavioursOf(said).map((one) => behaviour(said, one, nested, params))
    // Arguments that no `when` fits are answered as by a tool that names no behaviour.
    const fallback: FakeTool.Behaviour = { type: "ok", result: { ok: true } }
    const full = script.some((one) => one.when !== undefined) ? [...script, fallback] : script
    return FakeTool.handler(world, tool, full, { backend: said.backend })(params as any)
  }

  const tools: Array<Tool.Any> = []
  const handlers: Record<string, unknown> = {}
  for (const [name, said] of Object.entries(scenario.tools)) {
    const plain = toolOf(name, said, backends)
    const coalescer = said.batch === undefined ? undefined : coalescers.get(said.batch.into)
    const tool: Tool.Any = coalescer === undefined
      ? plain
      : Coalescer.through(coalescer, (args) => args)(plain as Tool.Any & ToolPolicy.Retryable)
    tools.push(tool)
    Object.defineProperty(handlers, name, {
      value: coalescer === undefined ? handlerOf(tool, said) : Coalescer.handler(tool as any),
      enumerable: true
    })
  }
  const toolkit: Toolkit.Toolkit<any> = Toolkit.make(...tools)
  const services = [...backends.values()].map(({ layer }) => layer as Layer.Layer<any>)
  // What is not needed takes no step, so that a replay of an exploration means what it meant before.
  const budgets = [scenario.policy, ...Object.values(scenario.tools)]
  if (budgets.some((one) => one?.resultBudget !== undefined)) services.push(ArtifactStore.layerMemory())
  const keys = Layer.provide(IdempotencyStore.layer({ digest: "text" }), Layer.succeed(TurnStore.TurnStore, rows))
  return {
    world,
    toolkit,
    layer: Layer.mergeAll(
      Turn.layer() as Layer.Layer<any>,
      keys,
      toolkit.toLayer(handlers as any),
      ...services
    ),
    permits: (services) =>
      Object.fromEntries(
        Array.from(backends.values(), ({ name, service }) => [
          name,
          (Context.get(services, service as Context.Service<any, Backend.Backend>)).pool.stats().running
        ])
      )
  }
}
