/**
 * Fake handlers for real tools, and a world that remembers what they did.
 *
 * A fake handler takes the place of a real one in a test: it waits, has its effect at a chosen moment, succeeds, fails, dies,
 * hangs, interrupts itself, or is deaf to a stop. The tool keeps its own policies, so what is tested is the tool as it is
 * shipped. Time comes from the `Clock`: under a test clock nothing really waits.
 *
 * What a world keeps to ("W" for world; other modules number their own):
 *
 * - **W1** A run is written down in the step that starts it, and closed when its work has really ended.
 * - **W2** An effect lands only if the work is still running at that moment; a read has none.
 * - **W3** Writes whose key is handed to their backend (`ToolPolicy.forward`) have one effect for each tenant, tool and key.
 * - **W4** All that happens has a place in one order, so that two things of one instant can be told apart.
 * - **W5** A request for a list is a run with the keys that it asked for, and no call's.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import type * as Arr from "effect/Array"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import * as Exit from "effect/Exit"
import * as Coalescer from "../Coalescer.ts"
import * as Handler from "../Handler.ts"
import * as ToolPolicy from "../ToolPolicy.ts"
import * as TurnContext from "../TurnContext.ts"
import * as TurnError from "../TurnError.ts"

/**
 * One run of a fake handler, or one request to a fake lookup.
 *
 * **Details**
 *
 * - `turn`, `tenant`, `position`, `id`, `attempt`: as `TurnContext.CurrentCall` says; a handler that is called outside a turn
 *   has the turn `""` and the position -1. `idempotencyKey`: the call's, undefined where it has none.
 * - `parent`: the run whose handler runs the turn that this run belongs to.
 * - `began`, `ended`: places in the order of everything that happened; `endedAt` and `ended` are undefined while it is at work.
 * - `end`: how it ended. `interrupted` is a stop from outside, `itself` an interruption of its own making, `crashed` the end of its
 *   process (`World.crash`).
 * - `effectAt`: when its effect landed, `undefined` if none did.
 * - `keys`: what a request asked for, undefined for the run of a handler. `tool` is the name of the lookup then, `params` are the keys too,
 *   and `turn`, `id` and `position` are those of no call, for a request may serve several.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Run {
  readonly tool: string
  readonly access: ToolPolicy.Access
  readonly backend: string | undefined
  readonly params: unknown
  readonly turn: string
  readonly tenant: string
  readonly position: number
  readonly id: string
  readonly attempt: number
  readonly idempotencyKey: string | undefined
  readonly parent: Run | undefined
  readonly began: number
  readonly startedAt: number
  readonly ended: number | undefined
  readonly endedAt: number | undefined
  readonly end: "ok" | "failed" | "died" | "interrupted" | "itself" | "crashed" | undefined
  readonly effectAt: number | undefined
  readonly keys?: ReadonlyArray<unknown> | undefined
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/**
 * What a fake handler does. Times are in milliseconds from its start.
 *
 * **Details**
 *
 * All have `latencyMs` (default 10), `effectAtMs` (when a write's effect lands, `"end"` for its end; `ok`, `runs` and `rateLimited`
 * default to `"end"`, the others to never), `when` (taken only for arguments that have these members) and `ignoresInterrupt` (the
 * work goes on to its end although it was told to stop, as a promise does that ignores its abort signal).
 *
 * - `ok`: succeeds with `result`.
 * - `fail`: fails with `failure`, the tool's own. Whether it says that nothing was changed is up to the tool's
 *   `ToolPolicy.failures`; whether its effect has landed, to `effectAtMs`.
 * - `throw`: dies with `thrown`.
 * - `hang`: never ends, unless it is stopped or the world is released.
 * - `selfInterrupt`: interrupts itself.
 * - `runs`: runs an effect of your own, such as a nested turn, and succeeds with its result. Meanwhile the handler counts
 *   as waiting, not as running.
 * - `rateLimited`: a run that starts before `untilMs`, a time of the clock, has no effect and fails with `failure`, the tool's own; after
 *   that it succeeds with `result`. That the failure says "too many calls" is up to the tool's `ToolPolicy.failures`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Behaviour<Success = unknown, Failure = unknown, R = never> =
  & {
    readonly latencyMs?: number | undefined
    readonly effectAtMs?: number | "end" | undefined
    readonly when?: { readonly [name: string]: unknown } | undefined
    readonly ignoresInterrupt?: boolean | undefined
  }
  & (
    | { readonly type: "ok"; readonly result: Success }
    | { readonly type: "fail"; readonly failure: Failure }
    | { readonly type: "throw"; readonly thrown: unknown }
    | { readonly type: "hang" }
    | { readonly type: "selfInterrupt" }
    | { readonly type: "runs"; readonly run: Effect.Effect<Success, Failure, R> }
    | { readonly type: "rateLimited"; readonly untilMs: number; readonly failure: Failure; readonly result: Success }
  )

/**
 * What fake handlers did: every run, every effect, and how many were at work at once.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export class World {
  readonly #runs: Array<Mutable<Run>> = []
  readonly #byCall = new Map<string, Run>()
  readonly #effects = new Map<string, number>()
  readonly #keys = new Set<string>()
  readonly #active = new Map<string, { now: number; peak: number }>()
  readonly #released = Deferred.makeUnsafe<void>()
  #order = 0

  /** Every run so far, in the order of their starts. */
  get runs(): ReadonlyArray<Run> {
    return this.#runs
  }

  /** The runs whose work has not ended. */
  get atWork(): ReadonlyArray<Run> {
    return this.#runs.filter((run) => run.ended === undefined)
  }

  /** The requests to a lookup so far, or to all of them, in the order of their starts. */
  requests(lookup?: string): ReadonlyArray<Run> {
    return this.#runs.filter(({ keys, tool }) => keys !== undefined && (lookup === undefined || tool === lookup))
  }

  /** How many runs of a tool, or requests to a lookup, were started. */
  executions(tool: string): number {
    return this.#runs.reduce((n, run) => (run.tool === tool ? n + 1 : n), 0)
  }

  /** How many effects of a tool landed, or of one of its idempotency keys. */
  effects(tool: string, idempotencyKey?: string): number {
    if (idempotencyKey === undefined) return this.#effects.get(tool) ?? 0
    return this.#runs.filter((run) =>
      run.tool === tool && run.effectAt !== undefined && run.idempotencyKey === idempotencyKey
    ).length
  }

  /** The most handlers of a backend that were running at once. One that waits for work of its own is not running. */
  peak(backend: string): number {
    return this.#active.get(backend)?.peak ?? 0
  }

  /** Takes the next place in the order of everything that happens. */
  mark(): number {
    return this.#order++
  }

  /** Ends all work that hangs, also what is deaf to a stop: to be called when a test is over. */
  get release(): Effect.Effect<void> {
    return Deferred.succeed(this.#released, undefined).pipe(Effect.asVoid)
  }

  /**
   * The process of all handlers crashes: what is at work has ended, and none of its effects lands any more.
   *
   * Their fibers are not stopped by it: they are to be left alone, or run as `Simulation.process`, which can crash.
   */
  get crash(): Effect.Effect<void> {
    return Effect.map(Clock.currentTimeMillis, (at) => this.crashed(at))
  }

  /** @internal */
  crashed(at: number): void {
    for (const run of this.atWork) this.finish(run, "crashed", at)
    for (const active of this.#active.values()) active.now = 0
  }

  /** @internal */
  get released(): Effect.Effect<void> {
    return Deferred.await(this.#released)
  }

  /** @internal */
  start(
    tool: Tool.Any,
    backend: string | undefined,
    params: unknown,
    context: Context.Context<never>,
    at: number
  ): Run {
    const call = Context.get(context, TurnContext.CurrentCall)
    const identity = call?.identity
    const parent = identity?.parent
    const run: Mutable<Run> = {
      tool: tool.name,
      access: ToolPolicy.get(tool).access,
      backend,
      params,
      turn: identity?.turn ?? "",
      tenant: identity?.tenant ?? "default",
      position: call?.position ?? -1,
      id: call?.id ?? "",
      attempt: call?.attempt ?? 1,
      idempotencyKey: call?.idempotencyKey,
      parent: parent === undefined ? undefined : this.#byCall.get(`${parent.position}/${parent.turn}`),
      began: this.mark(),
      startedAt: at,
      ended: undefined,
      endedAt: undefined,
      end: undefined,
      effectAt: undefined,
      keys: undefined
    }
    this.#runs.push(run)
    this.#byCall.set(`${run.position}/${run.turn}`, run)
    this.active(run, 1)
    return run
  }

  /** @internal */
  ask(lookup: string, backend: string | undefined, keys: ReadonlyArray<unknown>, tenant: string, at: number): Run {
    const run: Run = {
      tool: lookup,
      access: "read",
      backend,
      params: keys,
      turn: "",
      tenant,
      position: -1,
      id: "",
      attempt: 1,
      idempotencyKey: undefined,
      parent: undefined,
      began: this.mark(),
      startedAt: at,
      ended: undefined,
      endedAt: undefined,
      end: undefined,
      effectAt: undefined,
      keys
    }
    this.#runs.push(run)
    this.active(run, 1)
    return run
  }

  /** @internal */
  finish(run: Run, end: NonNullable<Run["end"]>, at: number): void {
    if (run.ended !== undefined) return
    this.active(run, -1)
    Object.assign(run, { ended: this.mark(), endedAt: at, end })
  }

  /** @internal */
  land(run: Run, honoursKey: boolean, at: number): void {
    if (run.access === "read" || run.ended !== undefined) return
    if (honoursKey && run.idempotencyKey !== undefined) {
      const once = JSON.stringify([run.tenant, run.tool, run.idempotencyKey])
      if (this.#keys.has(once)) return
      this.#keys.add(once)
    }
    this.#effects.set(run.tool, this.effects(run.tool) + 1)
    Object.assign(run, { effectAt: at })
  }

  /** @internal */
  active(run: Run, change: 1 | -1): void {
    if (run.backend === undefined || run.ended !== undefined) return
    const { now, peak } = this.#active.get(run.backend) ?? { now: 0, peak: 0 }
    this.#active.set(run.backend, { now: now + change, peak: Math.max(peak, now + change) })
  }
}

/**
 * Makes a world in which nothing has happened yet.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const makeWorld: Effect.Effect<World> = Effect.sync(() => new World())

/** Whether arguments have all members of `when`, with these values. */
const fits = (when: { readonly [name: string]: unknown } | undefined, params: unknown): boolean =>
  when === undefined ||
  (typeof params === "object" && params !== null &&
    Object.keys(when).every((name) => Object.hasOwn(params, name) && Equal.equals((params as any)[name], when[name])))

type Any = Behaviour<any, any, any>

/** The n-th execution takes the n-th entry, the last one repeats; where an entry has a `when`, the first that fits. */
const pick = (script: ReadonlyArray<Any>, execution: number, params: unknown): Any | undefined =>
  script.some((behaviour) => behaviour.when !== undefined)
    ? script.find((behaviour) => fits(behaviour.when, params))
    : script[Math.min(execution, script.length - 1)]

/** A behaviour that depends on the time of its start is one of the others. */
const atStart = (behaviour: Any, at: number): Any => {
  if (behaviour.type !== "rateLimited") return behaviour
  const { failure, result, untilMs, ...rest } = behaviour
  return at < untilMs ? { ...rest, type: "fail", failure, effectAtMs: undefined } : { ...rest, type: "ok", result }
}

const work = (world: World, honoursKey: boolean, run: Run, said: Any): Effect.Effect<unknown, unknown, any> => {
  const behaviour = atStart(said, run.startedAt)
  const latency = behaviour.latencyMs ?? 10
  const effectAt = behaviour.effectAtMs ?? (behaviour.type === "ok" || behaviour.type === "runs" ? "end" : undefined)
  const land = Effect.map(Clock.currentTimeMillis, (at) => world.land(run, honoursKey, at))
  const wait = (millis: number) => Effect.sleep(millis)

  /** Waits, with the effect at its moment. An effect that would come after the end never comes. */
  const waited = typeof effectAt === "number" && effectAt <= latency
    ? wait(effectAt).pipe(Effect.andThen(land), Effect.andThen(wait(latency - effectAt)))
    : effectAt === "end"
    ? wait(latency).pipe(Effect.andThen(land))
    : wait(latency)

  switch (behaviour.type) {
    case "rateLimited": // is one of the others by now
    case "ok":
      return Effect.as(waited, behaviour.result)
    case "fail":
      return Effect.andThen(waited, Effect.fail(behaviour.failure))
    case "throw":
      return Effect.andThen(waited, Effect.die(behaviour.thrown))
    case "selfInterrupt":
      return Effect.andThen(waited, Effect.interrupt)
    case "hang": {
      const never = Effect.andThen(world.released, Effect.die(new Error("the world of the fake tools was released")))
      return typeof effectAt === "number" ? Effect.andThen(Effect.andThen(wait(effectAt), land), never) : never
    }
    case "runs": {
      const own = Effect.acquireUseRelease(
        Effect.sync(() => world.active(run, -1)),
        () => behaviour.run,
        () => Effect.sync(() => world.active(run, 1))
      )
      if (effectAt === "end") return Effect.andThen(wait(latency), Effect.tap(own, land))
      if (effectAt === undefined) return Effect.andThen(wait(latency), own)
      return Effect.scoped(
        Effect.forkScoped(Effect.andThen(wait(effectAt), land)).pipe(
          Effect.andThen(wait(latency)),
          Effect.andThen(own)
        )
      )
    }
  }
}

const endOf = (exit: Exit.Exit<unknown, unknown>, behaviour: Any): NonNullable<Run["end"]> => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Exit.hasDies(exit)) return "died"
  if (Exit.hasFails(exit)) return "failed"
  return behaviour.type === "selfInterrupt" ? "itself" : "interrupted"
}

/** Work that hears no stop: a promise of its own, whose end is awaited as the promise adapter does. */
const deaf = (effect: Effect.Effect<unknown, unknown, any>): Effect.Effect<unknown, unknown, any> =>
  Effect.contextWith((context: Context.Context<any>) =>
    Effect.flatten(
      Handler.promise((_: void) => Effect.runPromiseExitWith(context)(effect))(undefined, {
        preliminary: () => Effect.void
      })
    )
  )

/** Writes a run down, does its work, and closes it when the work has really ended (W1). */
const recorded = (
  world: World,
  honoursKey: boolean,
  start: (at: number) => Run,
  behaviour: Any
): Effect.Effect<unknown, unknown, any> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(Clock.currentTimeMillis, (at) => {
      const run = start(at)
      const finish = (exit: Exit.Exit<unknown, unknown>) =>
        Effect.map(Clock.currentTimeMillis, (end) => world.finish(run, endOf(exit, behaviour), end))
      const own = work(world, honoursKey, run, behaviour)
      if (behaviour.ignoresInterrupt !== true) return Effect.onExit(restore(own), finish)
      let begun = false
      const promised = deaf(Effect.suspend(() => {
        begun = true
        return Effect.onExit(own, finish)
      }))
      return Effect.onExit(restore(promised), (exit) => (begun ? Effect.void : finish(exit)))
    })
  )

/**
 * Makes a handler for a tool that does as its script says, and is remembered by the world.
 *
 * **Details**
 *
 * The n-th execution takes the n-th behaviour, and the last one repeats. Where one has a `when`, the first that fits the
 * arguments is taken. `backend` is the name under which the world counts what runs at once; default: the key of the
 * tool's backend.
 *
 * **Example** (A search that is slow at first)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn } from "effect-turn"
 * import { FakeTool } from "effect-turn/testing"
 *
 * const Search = pipe(
 *   Tool.make("search", { parameters: Schema.Struct({ q: Schema.String }), success: Schema.Array(Schema.String) }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const kit = Toolkit.make(Search)
 *
 * const program = Effect.gen(function*() {
 *   const world = yield* FakeTool.makeWorld
 *   const search = FakeTool.handler(world, Search, [{ type: "ok", latencyMs: 20, result: ["a"] }, { type: "ok", result: [] }])
 *   yield* Turn.run(kit, [ToolCall.make("c1", "search", { q: "x" }), ToolCall.make("c2", "search", { q: "y" })]).pipe(
 *     Effect.provide(Layer.merge(kit.toLayer({ search }), Turn.layer()))
 *   )
 *   return world.executions("search")
 * })
 * const executions = await Effect.runPromise(program)
 * const two = executions // => 2
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const handler = <T extends Tool.Any, R = never>(
  world: World,
  tool: T,
  script:
    | Behaviour<Tool.Success<T>, Tool.Failure<T>, R>
    | ReadonlyArray<Behaviour<Tool.Success<T>, Tool.Failure<T>, R>>,
  options?: { readonly backend?: string | undefined }
): (params: Tool.Parameters<T>) => Effect.Effect<Tool.Success<T>, Tool.Failure<T>, R> => {
  const list: ReadonlyArray<Any> = Array.isArray(script) ? script : [script]
  const policy = ToolPolicy.get(tool)
  const backend = options?.backend ?? policy.backend?.key
  const honoursKey = policy.idempotency?.mode === "forward"
  return (params) =>
    Effect.contextWith((context: Context.Context<any>) => {
      const behaviour: Any = pick(list, world.executions(tool.name), params) ??
        {
          type: "throw",
          latencyMs: 0,
          thrown: new Error(`the fake tool "${tool.name}" has no behaviour for these arguments`)
        }
      return recorded(world, honoursKey, (at) => world.start(tool, backend, params, context, at), behaviour)
    }) as Effect.Effect<any, any, any>
}

/**
 * What a fake lookup does with a request. Times are in milliseconds from its start.
 *
 * **Details**
 *
 * All have `latencyMs` (default 10), `when` (taken only for requests of which it holds) and `ignoresInterrupt`, as {@link Behaviour} has it.
 *
 * - `items`: answers with what `item` makes of each key.
 *     - `missing`: keys that are not found. `failing`: keys whose item fails by itself, each with its failure.
 *     - `paired`: how the answer is to be paired. `"map"` (default) answers a `Map`; `"key"` a list of what was found, for a coalescer with
 *       an `itemKey`; `"position"` a list as long as the keys, with `undefined` for what was not found.
 *     - `shuffled` turns a list round; `short` leaves out the last that was asked for; `extra` adds what nobody asked for, each with its key.
 * - `answers`: answers with anything at all, be it a list or not.
 * - `fail`: fails as a whole with `failure`. `throw`: dies with `thrown`. `hang`: never ends, unless it is stopped or the world is released.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type LookupBehaviour<Key = any, Item = unknown, E = never, EX = never> =
  & {
    readonly latencyMs?: number | undefined
    readonly when?: ((keys: ReadonlyArray<Key>, request: Coalescer.Request) => boolean) | undefined
    readonly ignoresInterrupt?: boolean | undefined
  }
  & (
    | {
      readonly type: "items"
      readonly item: (key: Key, request: Coalescer.Request) => Item
      readonly missing?: ReadonlyArray<Key> | undefined
      readonly failing?: ReadonlyArray<readonly [key: Key, failure: E]> | undefined
      readonly paired?: "map" | "key" | "position" | undefined
      readonly shuffled?: boolean | undefined
      readonly short?: boolean | undefined
      readonly extra?: ReadonlyArray<readonly [key: Key, item: Item]> | undefined
    }
    | { readonly type: "answers"; readonly answer: unknown }
    | { readonly type: "fail"; readonly failure: EX }
    | { readonly type: "throw"; readonly thrown: unknown }
    | { readonly type: "hang" }
  )

type Items = Extract<LookupBehaviour<any, any, any, any>, { readonly type: "items" }>

/** The answer of an honest lookup, or of one that goes wrong as it was told to. */
const answerOf = (said: Items, keys: ReadonlyArray<unknown>, request: Coalescer.Request) => {
  const asked = said.short === true ? keys.slice(0, -1) : keys
  const all = asked.map((key): readonly [key: unknown, item: unknown] => {
    if (said.missing?.some((one) => Equal.equals(one, key)) === true) return [key, undefined]
    const failing = said.failing?.find(([one]) => Equal.equals(one, key))
    return [key, failing === undefined ? said.item(key, request) : Coalescer.failed(failing[1])]
  })
  if (said.paired === "position") {
    const items = [...all, ...said.extra ?? []].map(([_, item]) => item)
    return said.shuffled === true ? items.toReversed() : items
  }
  const found = [...all.filter(([_, item]) => item !== undefined), ...said.extra ?? []]
  const told = said.shuffled === true ? found.toReversed() : found
  return said.paired === "key" ? told.map(([_, item]) => item) : new Map(told)
}

/** A request as the run of a handler: what differs is the answer, which is made of the keys. */
const behaviourOf = (
  said: LookupBehaviour<any, any, any, any>,
  keys: ReadonlyArray<unknown>,
  request: Coalescer.Request
): Any => {
  const { ignoresInterrupt, latencyMs } = said
  const base = { ignoresInterrupt, latencyMs }
  switch (said.type) {
    case "items":
      return { ...base, type: "ok", result: answerOf(said, keys, request) }
    case "answers":
      return { ...base, type: "ok", result: said.answer }
    case "fail":
      return { ...base, type: "fail", failure: said.failure }
    case "throw":
      return { ...base, type: "throw", thrown: said.thrown }
    case "hang":
      return { ...base, type: "hang" }
  }
}

/**
 * Makes a lookup for a coalescer or a batch tool that does as its script says, and is remembered by the world: each request is a run with
 * its `keys` and its tenant.
 *
 * **Details**
 *
 * The n-th request takes the n-th behaviour, and the last one repeats. Where one has a `when`, the first that fits is taken. `backend` is the
 * name under which the world counts what runs at once: that of the coalescer's backend.
 *
 * **Example** (A list that comes the wrong way round, and lacks a row)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { FakeTool } from "effect-turn/testing"
 *
 * const program = Effect.gen(function*() {
 *   const world = yield* FakeTool.makeWorld
 *   const rows = FakeTool.lookup(world, "rows", {
 *     type: "items",
 *     item: (id: number, { tenant }) => ({ id, of: tenant }),
 *     missing: [2],
 *     paired: "key",
 *     shuffled: true
 *   })
 *   const answer = yield* rows([1, 2, 3], { tenant: "north" })
 *   return { answer, asked: world.requests("rows").map(({ keys }) => keys) }
 * })
 * const { answer, asked } = await Effect.runPromise(program)
 * const rows = answer // => [{ id: 3, of: "north" }, { id: 1, of: "north" }]
 * const keys = asked // => [[1, 2, 3]]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const lookup = <Key, Item, E = never, EX = never>(
  world: World,
  name: string,
  script: LookupBehaviour<Key, Item, E, EX> | ReadonlyArray<LookupBehaviour<Key, Item, E, EX>>,
  options?: { readonly backend?: string | undefined }
): (
  keys: Arr.NonEmptyReadonlyArray<Key>,
  request: Coalescer.Request
) => Effect.Effect<Coalescer.Answer<Key, Item, E>, EX> => {
  const list = (Array.isArray(script) ? script : [script]) as ReadonlyArray<LookupBehaviour<Key, Item, E, EX>>
  const misfit = list.find((said) => said.type === "items" && said.paired === "key" && (said.failing?.length ?? 0) > 0)
  if (list.length === 0 || misfit !== undefined) {
    throw TurnError.make(
      new TurnError.InvalidInput({
        what: `the fake lookup "${name}"`,
        expected: misfit === undefined
          ? "at least one behaviour"
          : 'failing items in a Map or in their places ("map" or "position"), for a failure has no key',
        received: misfit === undefined ? "none" : 'failing items in a list that is paired by "key"'
      })
    )
  }
  const ordered = list.every((said) => said.when === undefined)
  return (keys, request) =>
    Effect.suspend(() => {
      const said = ordered
        ? list[Math.min(world.executions(name), list.length - 1)]
        : list.find(({ when }) => when === undefined || when(keys, request))
      const thrown = new Error(`the fake lookup "${name}" has no behaviour for these keys`)
      return recorded(
        world,
        false,
        (at) => world.ask(name, options?.backend, keys, request.tenant, at),
        said === undefined ? { type: "throw", latencyMs: 0, thrown } : behaviourOf(said, keys, request)
      )
    }) as Effect.Effect<any, any>
}
