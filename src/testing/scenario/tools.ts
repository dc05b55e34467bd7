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
import * as Backend from "../../Backend.ts"
import * as IdempotencyStore from "../../IdempotencyStore.ts"
import * as Siblings from "../../Siblings.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as Turn from "../../Turn.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import * as TurnStore from "../../TurnStore.ts"
import * as FakeTool from "../FakeTool.ts"
import { canonical, fill, keysOf } from "./keys.ts"
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

const behaviour = (tool: Form.Tool, said: Form.Behaviour, nested: Nested): FakeTool.Behaviour<any, any, any> => {
  const { effectAtMs, ignoresInterrupt, latencyMs, when } = said
  const base = { latencyMs, effectAtMs, ignoresInterrupt, when }
  const error = said.error === undefined ? "failed" : said.error
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
      return { ...base, type: "throw", thrown: new Error(`the behaviour ${said.type} is not run`) }
  }
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
  grace: policy?.graceMs ?? "infinite",
  deadline: nested ? undefined : policy?.deadlineMs
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
 * Makes all that the turns of a scenario run on.
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

  const tools: Array<Tool.Any> = []
  const handlers: Record<string, unknown> = {}
  for (const [name, said] of Object.entries(scenario.tools)) {
    const tool = toolOf(name, said, backends)
    tools.push(tool)
    const script = Form.behavioursOf(said).map((one) => behaviour(said, one, nested))
    // Arguments that no `when` fits are answered as by a tool that names no behaviour.
    const fallback: FakeTool.Behaviour = { type: "ok", result: { ok: true } }
    const full = script.some((one) => one.when !== undefined) ? [...script, fallback] : script
    Object.defineProperty(handlers, name, {
      value: FakeTool.handler(world, tool, full, { backend: said.backend }),
      enumerable: true
    })
  }
  const toolkit: Toolkit.Toolkit<any> = Toolkit.make(...tools)
  const services = [...backends.values()].map(({ layer }) => layer as Layer.Layer<any>)
  const keys = Layer.provide(IdempotencyStore.layer({ digest: "text" }), Layer.succeed(TurnStore.TurnStore, rows))
  return {
    world,
    toolkit,
    layer: Layer.mergeAll(Turn.layer() as Layer.Layer<any>, keys, toolkit.toLayer(handlers as any), ...services),
    permits: (services) =>
      Object.fromEntries(
        Array.from(backends.values(), ({ name, service }) => [
          name,
          (Context.get(services, service as Context.Service<any, Backend.Backend>)).pool.stats().running
        ])
      )
  }
}
