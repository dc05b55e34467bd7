/**
 * Turns of your own tools, generated, run, and watched: what the laws judge.
 *
 * A case is data: some turns with their calls, how they are run, and how they are stopped. {@link arbitrary} generates cases of
 * a toolkit from the schemas of its tools, {@link run} runs one on the toolkit's own handlers and backends and gives what was
 * seen, as `Laws` take it. Under `Simulation` all of it takes no real time, and every interleaving can be had.
 *
 * @since 0.1.0
 */
import * as Tool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as AiToolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import type * as Backend from "../Backend.ts"
import type * as Outcome from "../Outcome.ts"
import * as Siblings from "../Siblings.ts"
import * as ToolCall from "../ToolCall.ts"
import * as ToolPolicy from "../ToolPolicy.ts"
import * as Turn from "../Turn.ts"
import * as TurnContext from "../TurnContext.ts"
import * as TurnError from "../TurnError.ts"
import * as FakeTool from "./FakeTool.ts"
import {
  answerOf,
  type BackendFacts,
  factsOf,
  type Observation,
  type ObservedTurn,
  type Sample,
  type SeenEvent,
  snapshot
} from "./laws/observation.ts"
import * as Simulation from "./Simulation.ts"
import * as Note from "./simulation/notes.ts"
import { Current } from "./simulation/simulator.ts"
import * as Generate from "./turnCase/generate.ts"
import { watchRequests } from "./turnCase/merged.ts"
import { type Delay, observe } from "./turnCase/observe.ts"

/**
 * A generated call, and the time that is added to its run before and after the handler's own work, in milliseconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type CaseCall = Generate.CaseCall

/**
 * How a turn is stopped.
 *
 * **Details**
 *
 * - `kind`: the fiber that runs it is interrupted, its handle is told to cancel, its `cancelOn` succeeds, or one call is
 *   stopped, the one at `position`.
 * - `at`: when, in milliseconds from the turn's start; or `point`: at which point of a simulated run (`Simulation.point`).
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Stop {
  readonly kind: "interrupt" | "cancel" | "cancelOn" | "cancelCall"
  readonly at: number
  readonly point?: number | undefined
  readonly position?: number | undefined
}

/**
 * One turn of a case. Times are in milliseconds; what is undefined is not limited.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CaseTurn {
  readonly calls: ReadonlyArray<CaseCall>
  readonly tenant: string
  readonly at: number
  readonly siblings: "letFinish" | "failFast" | "quorum"
  readonly execution: "parallel" | "sequential" | number
  readonly dedupe: "all" | "reads" | "off"
  readonly deadline?: number | undefined
  readonly grace?: number | undefined
  readonly stop?: Stop | undefined
}

/**
 * Turns that run on one runtime.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface TurnCase {
  readonly turns: ReadonlyArray<CaseTurn>
}

/**
 * What a generator of cases may make.
 *
 * **Details**
 *
 * - `maxCalls`, `maxTurns`: of a turn, of a case. Default: 6, and 2.
 * - `tenants`: on whose behalf turns run. Default: two.
 * - `latencies`: what may be added before and after a handler's own work, in whole milliseconds; `[0]` adds nothing. Default: from 0 to
 *   20, so that a stop can fall between.
 * - `stops`: whether turns are stopped, and have deadlines and graces. Default: true.
 * - `oddities`: whether a call now and then has what a model gets wrong: an empty or a repeated id, an unknown name, broken
 *   arguments. Default: true.
 * - `arguments`: generators of the arguments of tools, by name, encoded as a model writes them. Default: what the tool's schema
 *   takes, with short values that meet.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface GenerateOptions {
  readonly maxCalls?: number | undefined
  readonly maxTurns?: number | undefined
  readonly tenants?: ReadonlyArray<string> | undefined
  readonly latencies?: ReadonlyArray<number> | undefined
  readonly stops?: boolean | undefined
  readonly oddities?: boolean | undefined
  readonly arguments?: Readonly<Record<string, Arbitrary.Arbitrary<unknown>>> | undefined
}

const notEmpty = <A>(what: string, list: ReadonlyArray<A>): ReadonlyArray<A> => {
  if (list.length > 0) return list
  throw TurnError.make(
    new TurnError.InvalidInput({ what: `TurnCase.arbitrary: ${what}`, expected: "at least one", received: "none" })
  )
}

const orAbsent = <A>(some: Arbitrary.Arbitrary<A>, oneIn: number): Arbitrary.Arbitrary<A | undefined> =>
  Arbitrary.flatMap(
    Generate.int(0, oneIn - 1),
    (n): Arbitrary.Arbitrary<A | undefined> => n === oneIn - 1 ? some : Arbitrary.Constant(undefined)
  )

/**
 * Generates cases of a toolkit, shrinking towards few calls, short times, and no stop.
 *
 * **Example** (Calls that the schemas take)
 *
 * ```ts import.meta.vitest
 * import { Arbitrary, Effect, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { TurnCase } from "effect-turn/testing"
 *
 * const Book = Tool.make("book", { parameters: Schema.Struct({ hotel: Schema.String, nights: Schema.Int }) })
 * const cases = TurnCase.arbitrary(Toolkit.make(Book), { oddities: false })
 * const some = await Effect.runPromise(Arbitrary.sampleEffect(cases, { count: 5, seed: 1 }))
 * const names = new Set(some.flatMap(({ turns }) => turns).flatMap(({ calls }) => calls).map(({ call }) => call.name))
 * const all = [...names] // => ["book"]
 * ```
 *
 * @category generating
 * @since 0.1.0
 * @stability experimental
 */
export const arbitrary = (toolkit: Toolkit.Any, options?: GenerateOptions): Arbitrary.Arbitrary<TurnCase> => {
  const owner = "TurnCase.arbitrary"
  const maxCalls = TurnError.wholeNumber(owner, "maxCalls", options?.maxCalls ?? 6)
  const maxTurns = TurnError.wholeNumber(owner, "maxTurns", options?.maxTurns ?? 2)
  const latencies = notEmpty("latencies", options?.latencies ?? [0, 0, 10, 1, 5, 20])
  for (const millis of latencies) TurnError.wholeNumber(owner, "latencies", millis, 0)
  const tenants = notEmpty("tenants", options?.tenants ?? ["north", "south"])
  const stops = options?.stops ?? true
  const time = Generate.pick([0, 10, 1, 5, 9, 11, 20, 21, 30, 45])
  const turn = Arbitrary.all({
    calls: Generate.callsOf(toolkit, {
      maxCalls,
      latencies,
      oddities: options?.oddities ?? true,
      arguments: options?.arguments ?? {}
    }),
    tenant: Generate.pick(tenants),
    at: Generate.pick([0, 0, 0, 5, 10]),
    siblings: Generate.pick(["letFinish", "letFinish", "failFast", "failFast", "quorum"]),
    execution: Generate.pick(["parallel", "parallel", "parallel", "sequential", 1, 2]),
    dedupe: Generate.pick(["all", "all", "reads", "off"]),
    deadline: stops ? orAbsent(Arbitrary.map(time, (ms) => ms + 1), 6) : Arbitrary.Constant(undefined),
    grace: stops ? orAbsent(time, 4) : Arbitrary.Constant(undefined),
    stop: stops
      ? orAbsent(
        Arbitrary.all({
          kind: Generate.pick(["interrupt", "cancel", "cancelOn", "cancelCall"]),
          at: time,
          position: Generate.int(0, maxCalls - 1)
        }),
        2
      )
      : Arbitrary.Constant(undefined)
  })
  return Arbitrary.map(
    Arbitrary.array(turn, { minLength: 1, maxLength: maxTurns }),
    (turns): TurnCase => ({
      turns: turns.map(({ deadline, grace, stop, ...turn }): CaseTurn => ({
        ...turn,
        ...(deadline === undefined ? undefined : { deadline }),
        ...(grace === undefined ? undefined : { grace }),
        ...(stop === undefined ? undefined : { stop: stop as Stop })
      }))
    })
  )
}

/**
 * What {@link enumerate} makes.
 *
 * **Details**
 *
 * - `maxCalls`: every list of up to so many calls. Default: 2.
 * - `arguments`: the arguments that each tool is called with, by name. Default: one that its schema takes.
 * - `latencies`: what is added before a handler's own work. Default: `[10]`.
 * - `siblings`, `executions`: how turns are run. Default: let-finish and fail-fast, in parallel.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface EnumerateOptions {
  readonly maxCalls?: number | undefined
  readonly arguments?: Readonly<Record<string, ReadonlyArray<unknown>>> | undefined
  readonly latencies?: ReadonlyArray<number> | undefined
  readonly siblings?: ReadonlyArray<CaseTurn["siblings"]> | undefined
  readonly executions?: ReadonlyArray<CaseTurn["execution"]> | undefined
}

/**
 * Enumerates the cases of one turn of a toolkit: every list of calls, under every policy, without a stop. The shorter ones first.
 *
 * @category generating
 * @since 0.1.0
 * @stability experimental
 */
export const enumerate = (toolkit: Toolkit.Any, options?: EnumerateOptions): Effect.Effect<ReadonlyArray<TurnCase>> =>
  Effect.map(Generate.argumentsEach(toolkit, options?.arguments ?? {}), (perTool) => {
    const maxCalls = TurnError.wholeNumber("TurnCase.enumerate", "maxCalls", options?.maxCalls ?? 2)
    const kinds = perTool.flatMap(({ args, name }) =>
      (options?.latencies ?? [10]).map((before) => ({ name, args, before }))
    )
    const cases: Array<TurnCase> = []
    const lists = (length: number): ReadonlyArray<ReadonlyArray<typeof kinds[number]>> =>
      length === 0 ? [[]] : lists(length - 1).flatMap((list) => kinds.map((kind) => [...list, kind]))
    for (let length = 1; length <= maxCalls; length++) {
      for (const list of lists(length)) {
        const calls = list.map(({ args, before, name }, i): CaseCall => ({
          call: ToolCall.make(`c${i}`, name, args),
          before,
          after: 0
        }))
        for (const siblings of options?.siblings ?? ["letFinish", "failFast"]) {
          for (const execution of options?.executions ?? ["parallel"]) {
            cases.push({ turns: [{ calls, tenant: "north", at: 0, siblings, execution, dedupe: "off" }] })
          }
        }
      }
    }
    return cases
  })

const argumentsText = (args: unknown): string => {
  try {
    return JSON.stringify(args) ?? "{}"
  } catch {
    return TurnError.show(args)
  }
}

const stopWords: Record<Stop["kind"], (stop: Stop) => string> = {
  interrupt: () => "interrupted",
  cancel: () => "cancelled through its handle",
  cancelOn: () => "cancelled by its cancelOn",
  cancelCall: ({ position }) => `call #${position ?? 0} cancelled`
}

/**
 * A case in words: a line for each turn, a line for each call with the time added before and after its own work, and the stop.
 *
 * **Example** (One turn)
 *
 * ```ts import.meta.vitest
 * import { ToolCall } from "effect-turn"
 * import { TurnCase } from "effect-turn/testing"
 *
 * const text = TurnCase.show({
 *   turns: [{
 *     calls: [{ call: ToolCall.make("c0", "book", { hotel: "a" }), before: 10, after: 0 }],
 *     tenant: "north",
 *     at: 0,
 *     siblings: "failFast",
 *     execution: "parallel",
 *     dedupe: "all",
 *     stop: { kind: "interrupt", at: 5 }
 *   }]
 * })
 * const lines = text.split("\n").length // => 3
 * ```
 *
 * @category showing
 * @since 0.1.0
 * @stability experimental
 */
export const show = ({ turns }: TurnCase): string =>
  turns.flatMap((turn, index) => {
    const { at, calls, deadline, dedupe, execution, grace, siblings, stop, tenant } = turn
    const said = [
      `tenant ${tenant}`,
      siblings,
      typeof execution === "number" ? `${execution} at once` : execution,
      ...(dedupe === "all" ? [] : [`dedupe ${dedupe}`]),
      ...(deadline === undefined ? [] : [`deadline ${deadline} ms`]),
      ...(grace === undefined ? [] : [`grace ${grace} ms`])
    ]
    return [
      `turn ${index} from ${at} ms: ${said.join(", ")}`,
      ...calls.map(({ after, before, call }, position) => {
        const id = call.id === `c${position}` ? "" : ` (id ${JSON.stringify(call.id)})`
        return `  #${position}${id} ${call.name} ${argumentsText(call.arguments)}   ${before} ms, its own, ${after} ms`
      }),
      ...(stop === undefined ? [] : [
        `  ${stopWords[stop.kind](stop)} at ${stop.point === undefined ? `${stop.at} ms` : `point ${stop.point}`}`
      ])
    ]
  }).join("\n")

const policies = {
  letFinish: Siblings.letFinish,
  failFast: Siblings.failFast,
  quorum: Siblings.quorum(1)
} as const

/** What a turn without a grace waits for: everything. */
const optionsOf = (turn: CaseTurn, index: number): Turn.Options => ({
  turn: idOf(index),
  siblings: policies[turn.siblings],
  execution: turn.execution,
  dedupe: turn.dedupe,
  grace: turn.grace ?? "infinite",
  ...(turn.deadline === undefined ? undefined : { deadline: turn.deadline })
})

const idOf = (index: number): string => `turn-${index}`

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** The backends that the tools name, as far as they are there. */
const poolsOf = (toolkit: Toolkit.Any, services: Context.Context<any>): ReadonlyArray<Backend.Backend> => {
  const found = new Map<string, Backend.Backend>()
  for (const tool of Object.values(toolkit.tools)) {
    const { backend } = ToolPolicy.get(tool)
    const service = backend === undefined ? undefined : Context.getOrUndefined(services, backend) as Backend.Backend
    if (service !== undefined) found.set(service.name, service)
  }
  return [...found.values()]
}

const permitsOf = (pools: ReadonlyArray<Backend.Backend>): Record<string, number> =>
  Object.fromEntries(pools.map(({ name, pool }) => [name, pool.stats().running]))

/** A write of unknown reach: it starts at once when nobody holds a key. */
const probe = pipe(Tool.make("nobody_holds_a_key"), ToolPolicy.waitTimeout(1))
const probeKit = AiToolkit.make(probe)

/** How long work that was given up on is waited for when the turns are over, in virtual milliseconds. */
const patience = 600_000

/**
 * Runs a case on a toolkit with its handlers and backends, and gives what was seen.
 *
 * **Details**
 *
 * `layer` gives the handlers, the backends and what else they need; it is built for the case alone, with a runtime of its own,
 * and taken down again. Handlers are watched, and do what they do; so are the requests that turns send for calls which are merged (one takes
 * the longest times of its calls). The answer comes when all turns have theirs and what was
 * given up on has ended, after ten minutes at the latest. It fails only if the layer does.
 *
 * Interruption interrupts the turns, and takes the layer down.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const run = <K extends Toolkit.Any, E, R>(
  toolkit: K,
  layer: Layer.Layer<Exclude<Turn.Services<K>, TurnContext.Tenant>, E, R>,
  turnCase: TurnCase
): Effect.Effect<Observation, E, R> => Effect.map(watch(toolkit, layer, turnCase), ({ observation }) => observation)

/** What was seen, and between which points of a simulated run the turns were at work.
 *
 * @internal
 */
export interface Watched {
  readonly observation: Observation
  readonly from: number
  readonly to: number
}

/** As {@link run}.
 *
 * @internal
 */
export const watch = <K extends Toolkit.Any, E, R>(
  toolkit: K,
  layer: Layer.Layer<Exclude<Turn.Services<K>, TurnContext.Tenant>, E, R>,
  turnCase: TurnCase
): Effect.Effect<Watched, E, R> =>
  Effect.scopedWith((outer) =>
    Effect.gen(function*() {
      const world = new FakeTool.World()
      const simulator = yield* Current
      const scope = yield* Scope.fork(outer)
      const services = yield* Layer.buildWithScope(
        Layer.merge(layer as Layer.Layer<any, E, R>, Turn.layer()),
        scope
      )
      const pools = poolsOf(toolkit, services)
      const clock = yield* Clock.Clock
      const samples: Array<Sample> = []
      const sample = () => {
        for (const { name, pool } of pools) {
          const { running, tenants } = pool.stats()
          samples.push({
            at: clock.currentTimeMillisUnsafe(),
            backend: name,
            running,
            tenants: Object.fromEntries(Object.entries(tenants).map(([tenant, { running }]) => [tenant, running]))
          })
        }
      }
      const delayOf = (call: TurnContext.CallContext | undefined) => {
        const [, index] = /^turn-(\d+)$/.exec(call?.identity.turn ?? "") ?? []
        return turnCase.turns[Number(index)]?.calls[call?.position ?? -1] ?? { before: 0, after: 0 }
      }
      const around = observe(services, toolkit, world, delayOf, sample)
      /** The longest of those of the calls that a request may be for. */
      const delayOfRequest = (asks: (args: unknown, tool: string) => boolean, tenant: string): Delay => {
        const own = turnCase.turns.filter((turn) => turn.tenant === tenant).flatMap(({ calls }) => calls)
          .filter(({ call }) => asks(call.arguments, call.name))
        const longest = (of: (call: CaseCall) => number) => Math.max(0, ...own.map(of))
        return { before: longest(({ before }) => before), after: longest(({ after }) => after) }
      }
      const merged = watchRequests(toolkit, services, world, delayOfRequest, sample)
      const faults: Array<string> = []
      const from = simulator?.points ?? 0
      let to = from
      let permitsAnswered: Record<string, number> = {}
      const turns = turnCase.turns.map((turn, index) => seenOf(turn, index))
      const answersOf = new Map<Mutable<ObservedTurn>, ReadonlyArray<Outcome.Outcome<any>>>()

      const answered = (seen: Mutable<ObservedTurn>, exit: Exit.Exit<ReadonlyArray<Outcome.Outcome<any>>, unknown>) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          seen.answered = world.mark()
          seen.answeredAt = now
          permitsAnswered = permitsOf(pools)
          to = simulator?.points ?? 0
          if (Exit.isSuccess(exit)) {
            answersOf.set(seen, exit.value)
            seen.answers = exit.value.map(answerOf)
          } else if (Cause.hasInterruptsOnly(exit.cause)) seen.answers = seen.told?.[0]
          else faults.push(`R1: ${seen.id}: expected outcomes, and it ended with ${Cause.pretty(exit.cause)}`)
        })

      const launch = (turn: CaseTurn, index: number): Effect.Effect<void, never, never> =>
        Effect.gen(function*() {
          if (turn.at > 0) yield* Effect.sleep(turn.at)
          const seen = turns[index]!
          const told: Array<ReturnType<typeof answerOf>[]> = []
          const events: Array<SeenEvent> = []
          seen.startedAt = yield* Clock.currentTimeMillis
          seen.told = told
          seen.events = events
          const cancelOn = yield* Deferred.make<string>()
          const options: Turn.Options = {
            ...optionsOf(turn, index),
            ...(turn.stop?.kind === "cancelOn" ? { cancelOn: Deferred.await(cancelOn) } : undefined),
            onEvent: (event) => {
              events.push({ place: world.mark(), event })
              sample()
              if (simulator?.tracer !== undefined) simulator.note(Note.ofEvent(event))
            },
            onClosed: ({ outcomes }) =>
              Effect.sync(() => {
                answersOf.set(seen, outcomes)
                told.push(outcomes.map(answerOf))
              })
          }
          const calls = turn.calls.map(({ call }) => call)
          let cancel: Effect.Effect<unknown> = Effect.void
          const byHandle = turn.stop?.kind === "cancel" || turn.stop?.kind === "cancelCall"
          const whole: Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>, unknown, any> = byHandle
            ? Effect.scoped(Effect.flatMap(Turn.start(merged.toolkit as any, calls, options), (handle) => {
              cancel = turn.stop?.kind === "cancel"
                ? handle.cancel("case")
                : handle.cancelCall(turn.stop?.position ?? 0)
              return handle.await
            }))
            : Turn.run(merged.toolkit as any, calls, options)
          const fiber = yield* Effect.forkChild(
            Effect.onExit(whole, (exit) => answered(seen, exit)).pipe(
              Effect.provideContext(Context.merge(around, TurnContext.make({ tenant: turn.tenant })))
            ) as Effect.Effect<unknown, unknown>,
            { startImmediately: true }
          )
          if (turn.stop === undefined) return yield* Fiber.await(fiber)
          if (turn.stop.kind === "cancelOn") cancel = Deferred.succeed(cancelOn, "case")
          if (turn.stop.kind === "interrupt") cancel = Fiber.interrupt(fiber)
          const when = turn.stop.point === undefined ? Effect.sleep(turn.stop.at) : Simulation.point(turn.stop.point)
          const stop = Effect.gen(function*() {
            yield* when
            seen.stops = [...seen.stops, yield* Clock.currentTimeMillis]
            yield* cancel
          })
          // A stop that has begun is waited for: it says that the turn has ended.
          const stopping = yield* Effect.forkChild(stop)
          yield* Fiber.await(fiber)
          yield* Fiber.interrupt(stopping)
        }).pipe(Effect.asVoid)

      yield* Effect.forEach(turnCase.turns, launch, { concurrency: "unbounded", discard: true })
      for (let waited = 0; world.atWork.length > 0 && waited < patience; waited += 1000) yield* Effect.sleep(1000)
      // What has ended may still be giving back what it held: time goes on when that is done.
      yield* Effect.sleep(1)
      const runs = snapshot(world.runs.filter(({ keys }) => keys === undefined))
      for (const seen of turns) seen.lateAnswers = answersOf.get(seen)?.map(answerOf)
      const permitsEnd = permitsOf(pools)
      if (world.atWork.length === 0) {
        for (const tenant of new Set(turnCase.turns.map((turn) => turn.tenant))) {
          const [outcome] = yield* Turn.run(probeKit, [ToolCall.make("probe", probe.name)]).pipe(
            Effect.provide(probeKit.toLayer({ nobody_holds_a_key: () => Effect.void })),
            Effect.provideContext(Context.merge(services, TurnContext.make({ tenant }))),
            Effect.orDie
          )
          if (outcome!.status !== "ok") {
            faults.push(`R12: keys of the tenant ${JSON.stringify(tenant)} are held, and nothing is at work any more`)
          }
        }
      }
      yield* Scope.close(scope, Exit.void)
      const observation: Observation = {
        tools: new Map(
          Object.entries(toolkit.tools).map(([name, tool]) => [
            name,
            { ...factsOf(tool as Tool.Any), merged: merged.facts.get(name) }
          ])
        ),
        backends: new Map(pools.map(({ name, pool }): [string, BackendFacts] => [name, pool.limits])),
        turns,
        runs,
        requests: merged.requests(),
        cached: merged.cached,
        permitsAnswered,
        permitsEnd,
        samples,
        faults
      }
      return { observation, from, to }
    })
  ) as Effect.Effect<Watched, E, R>

const seenOf = (turn: CaseTurn, index: number): Mutable<ObservedTurn> => ({
  id: idOf(index),
  tenant: turn.tenant,
  calls: turn.calls.map(({ call }) => call),
  startedAt: 0,
  limit: typeof turn.execution === "number" ? turn.execution : Infinity,
  sequential: turn.execution === "sequential",
  graceReads: turn.grace ?? Infinity,
  graceWrites: turn.grace ?? Infinity,
  deadline: turn.deadline ?? Infinity,
  stopsSiblings: turn.siblings !== "letFinish",
  failFast: turn.siblings === "failFast",
  answers: undefined,
  answered: undefined,
  answeredAt: undefined,
  stops: []
})
