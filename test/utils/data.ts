/**
 * Real turns of the shared data folder, made into calls and tools of this library. Nothing of that folder is copied: it is read
 * where it lies, its loader and simulator included.
 */
import { assert } from "@effect/vitest"
import { type Outcome, type ToolCall, Turn, TurnContext, type TurnError, TurnPlan } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { TestClock } from "effect/testing"
import * as path from "node:path"
import { pathToFileURL } from "node:url"

/** A tool as the data describes it. What else a file says of its tools stays in `rest`. */
export interface DataTool {
  readonly name: string
  readonly parameters: any
  readonly class?: "read" | "write" | "pure" | "unknown"
  readonly observed?: { readonly reads?: ReadonlyArray<string>; readonly writes: ReadonlyArray<string> } | null
}

/** One turn of a file. `oracle` differs from file to file. */
export interface DataTurn {
  readonly source: string
  readonly id: string
  readonly toolset?: string
  readonly toolsets?: ReadonlyArray<string>
  readonly setup?: ReadonlyArray<ToolCall.ToolCall>
  readonly calls: ReadonlyArray<{ readonly id: string; readonly name: string; readonly arguments: any }>
  readonly oracle: any
}

/** The loader of the data folder. */
export interface Data {
  readonly turns: (name: string) => ReadonlyArray<DataTurn>
  readonly toolsOf: (turn: DataTurn) => ReadonlyArray<DataTool>
}

/** A module of the data folder. */
export const module = (shared: string, file: string): Promise<any> =>
  import(pathToFileURL(path.join(shared, "data", file)).href)

export const load = async (shared: string): Promise<Data> => {
  const { toolsOf, turns } = await module(shared, "load.mjs")
  return { turns: (name) => turns(name, "handed"), toolsOf }
}

/** Numbers from 0 to 1, the same for the same seed. */
export const random = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296
}

/** Says what the model never sees of a tool. */
export type Policy = (tool: Tool.Any) => Tool.Any

const made = new WeakMap<object, Map<object, Tool.Any>>()

/** The tools of a turn with their raw JSON Schemas and a policy each. Made once for each tool and `policyOf`. */
export const tools = (
  described: ReadonlyArray<DataTool>,
  policyOf: (tool: DataTool) => Policy
): ReadonlyArray<Tool.Any> =>
  described.map((one) => {
    let of = made.get(policyOf)
    if (of === undefined) made.set(policyOf, of = new Map())
    let tool = of.get(one)
    if (tool === undefined) {
      const plain: Tool.Any = Tool.dynamic(one.name, {
        parameters: one.parameters,
        success: Schema.Unknown,
        failure: Schema.String
      })
      of.set(one, tool = policyOf(one)(plain))
    }
    return tool
  })

/** Tools with what stands behind them, and the runtime. */
export interface Kit {
  readonly toolkit: Toolkit.Toolkit<any>
  readonly layer: Layer.Layer<any>
}

export const kit = (
  tools: ReadonlyArray<Tool.Any>,
  handler: (name: string) => (args: any) => Effect.Effect<unknown, string>
): Kit => {
  const toolkit: Toolkit.Toolkit<any> = Toolkit.make(...tools)
  const handlers: Record<string, unknown> = {}
  for (const { name } of tools) {
    Object.defineProperty(handlers, name, { value: handler(name), enumerable: true })
  }
  return { toolkit, layer: Layer.merge(toolkit.toLayer(handlers as any) as Layer.Layer<any>, Turn.layer()) }
}

/** Runs an effect to its end in virtual time: the test clock is moved on until it is done. */
export const inVirtualTime = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(effect, { startImmediately: true })
    for (let i = 0; fiber.pollUnsafe() === undefined; i++) {
      if (i === 2000) return yield* Effect.die(new Error("it did not end within 200 seconds of virtual time"))
      yield* TestClock.adjust(100)
    }
    return yield* Fiber.join(fiber)
  })

/** The plan of a turn whose tools need nothing. */
export const planOf = (
  toolkit: Toolkit.Toolkit<any>,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options?: Turn.Options
): Effect.Effect<TurnPlan.TurnPlan, TurnError.TurnError> =>
  Turn.plan(toolkit, calls, options) as Effect.Effect<any, any>

/** Tells whether the plan makes a call wait for an earlier one, along whatever way. */
export const ordered = (plan: TurnPlan.TurnPlan): (first: number, later: number) => boolean => {
  const below: Array<Set<number>> = []
  for (const { position } of plan.calls) {
    const before = new Set<number>()
    for (const { on } of TurnPlan.dependencies(plan, position)) {
      before.add(on)
      for (const further of below[on]!) before.add(further)
    }
    below.push(before)
  }
  return (first, later) => below[later]!.has(first)
}

/** What a turn of fake handlers came to. */
export interface Ran {
  readonly turn: DataTurn
  readonly outcomes: ReadonlyArray<Outcome.Outcome<any>>
  readonly plan: TurnPlan.TurnPlan
  /** The calls whose handlers were started, by position, in the order of their starts, with their time. */
  readonly runs: ReadonlyArray<{ readonly position: number; readonly began: number; readonly ended: number }>
}

/** Plans and runs a turn with fake handlers of random latency, and checks that each call is answered in its place. */
export const run = Effect.fnUntraced(function*(
  data: Data,
  turn: DataTurn,
  policyOf: (tool: DataTool) => Policy,
  options?: Turn.Options
) {
  const next = random(turn.calls.length * 7919 + turn.id.length)
  const runs: Array<{ position: number; began: number; ended: number }> = []
  const { layer, toolkit } = kit(tools(data.toolsOf(turn), policyOf), (name) => () =>
    Effect.gen(function*() {
      const call = yield* TurnContext.CurrentCall
      const ran = { position: call!.position, began: yield* Clock.currentTimeMillis, ended: Infinity }
      runs.push(ran)
      yield* Effect.sleep(1 + Math.floor(next() * 50))
      ran.ended = yield* Clock.currentTimeMillis
      return { name, position: ran.position }
    }))
  const plan = yield* planOf(toolkit, turn.calls, options)
  const outcomes = (yield* inVirtualTime(
    Turn.run(toolkit, turn.calls, options).pipe(Effect.provide(layer))
  )) as ReadonlyArray<Outcome.Outcome<any>>
  assert.deepStrictEqual(
    outcomes.map(({ id, position }) => [position, id]),
    turn.calls.map(({ id }, i) => [i, id]),
    turn.id
  )
  for (const [i, outcome] of outcomes.entries()) {
    const { verdict } = plan.calls[i]!
    const ran = runs.filter(({ position }) => position === i)
    assert.strictEqual(ran.length, verdict === "run" ? 1 : 0, `${turn.id} #${i} is planned to be ${verdict}`)
    assert.strictEqual(outcome.status === "ok", verdict === "run" || verdict === "duplicate", `${turn.id} #${i}`)
  }
  return { turn, outcomes, plan, runs } satisfies Ran
})

/** Runs every turn of a file. */
export const runAll = (
  data: Data,
  turns: ReadonlyArray<DataTurn>,
  policyOf: (tool: DataTool) => Policy,
  options?: Turn.Options
): Effect.Effect<ReadonlyArray<Ran>, TurnError.TurnError> =>
  Effect.forEach(turns, (turn) => run(data, turn, policyOf, options)) as Effect.Effect<any, any>

/** Conflicts that are kept: the later call starts when the earlier one has ended. */
export const keeps = ({ runs, turn }: Ran, pairs: ReadonlyArray<readonly [number, number]>): void => {
  for (const [first, later] of pairs) {
    const before = runs.find(({ position }) => position === first)
    const after = runs.find(({ position }) => position === later)
    if (before === undefined || after === undefined) continue
    assert.isAtLeast(after.began, before.ended, `${turn.id}: #${later} has to wait for #${first}`)
  }
}

/** Pairs that a plan orders. */
export const pairsOf = (plan: TurnPlan.TurnPlan): ReadonlyArray<readonly [number, number]> => {
  const before = ordered(plan)
  const pairs: Array<readonly [number, number]> = []
  for (const later of plan.calls.keys()) {
    for (let first = 0; first < later; first++) if (before(first, later)) pairs.push([first, later])
  }
  return pairs
}

/** The calls with an answer of a kind, as words that a test can compare. */
export const answered = (ran: ReadonlyArray<Ran>, code: string): ReadonlyArray<string> =>
  ran.flatMap(({ outcomes, turn }) =>
    outcomes.flatMap((outcome) =>
      "code" in outcome && outcome.code === code ? [`${turn.id} #${outcome.position} ${outcome.message}`] : []
    )
  )
