/**
 * Runs a scenario in virtual time, with the public API alone, and writes down what was seen.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Approval from "../../Approval.ts"
import type * as Outcome from "../../Outcome.ts"
import * as Turn from "../../Turn.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as TurnPlan from "../../TurnPlan.ts"
import * as TurnStore from "../../TurnStore.ts"
import * as FakeTool from "../FakeTool.ts"
import { answerOf, outcomeOf, type SeenEvent, snapshot } from "../laws/observation.ts"
import { Choices, randomOf, type Schedule } from "../simulation/choices.ts"
import * as Note from "../simulation/notes.ts"
import { type Ended, type Process, Simulator } from "../simulation/simulator.ts"
import type * as Report from "./report.ts"
import * as Form from "./schema.ts"
import * as Tools from "./tools.ts"

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** A turn that runs, or has run. */
interface Running {
  readonly process: Process
  readonly seen: Mutable<Report.ObservedTurn>
  readonly stops: Array<number>
  readonly events: number
  happened: number
  fiber?: Fiber.Fiber<unknown, unknown>
  stop: Effect.Effect<void>
  stopCall: (id: string) => Effect.Effect<unknown>
  closed: ReadonlyArray<ReadonlyArray<Outcome.Outcome<any>>>
  /** What it came to: undefined until then, and when it was interrupted. */
  result: Turn.Result<any> | undefined
  /** What was decided, the first decision on each call. */
  readonly decisions: Map<number, Approval.Decision>
}

/** All times of a file together, as often as it has calls and retries, and an hour: nothing in it can honestly take longer. */
const horizonOf = (scenario: Form.Scenario): number => {
  let millis = 0
  let calls = 1
  JSON.stringify(scenario, (name, value: unknown) => {
    if (typeof value === "number" && name.endsWith("Ms")) millis += value
    if (name === "calls" && Array.isArray(value)) calls += value.length
    return value
  })
  const retries = Math.max(0, ...Object.values(scenario.tools).map(({ retry }) => retry?.max ?? 0))
  return millis * calls * (1 + retries) + 3_600_000
}

const maxSteps = 200_000

const why: Record<Exclude<Ended, "done">, string> = {
  idle: "nothing is left that could go on",
  horizon: "it goes on for longer than all times of the file together",
  busy: "it goes on without an end"
}

/** A stop from outside in words. */
const stopWords = (turn: string, event: Form.Event): string =>
  event.type === "cancelCall"
    ? `${Note.turnOf(turn)}: cancelCall ${JSON.stringify(event.id)}`
    : `${Note.turnOf(turn)}: ${event.type}`

/** The natural order of everything. */
const natural: Schedule = { seed: 0, forced: undefined }

/** What of a simulated run is of interest besides what was seen in it. */
export interface Simulated {
  readonly observed: Report.Observed
  readonly simulator: Simulator
}

/**
 * Runs a scenario to its last answer, and on until nothing more happens: in the natural order, or as a schedule says. What
 * happens at a moment comes after all that sleeps until then.
 *
 * @internal
 */
export const run = (
  scenario: Form.Scenario,
  schedule: Schedule = natural,
  traced = false,
  recordFrom?: number
): Effect.Effect<Simulated> =>
  Effect.gen(function*() {
    const simulator = new Simulator(
      new Choices(schedule, recordFrom),
      { horizonMillis: horizonOf(scenario), maxSteps },
      traced
    )
    const world = yield* FakeTool.makeWorld
    const crashes: Array<number> = []
    const onEvent = (event: TurnEvent.TurnEvent) => {
      if (traced) simulator.note(Note.ofEvent(event))
    }
    const rows = yield* Effect.provide(TurnStore.TurnStore, Layer.fresh(TurnStore.layerMemory))
    const setUp = () => Tools.stage(scenario, world, rows, { toJson: (outcomes) => outcomes.map(outcomeOf), onEvent })
    let stage = setUp()
    const surroundings = yield* Effect.context<never>()
    const random = randomOf(`program ${schedule.seed}`)
    let scope = yield* Scope.make()
    let process = simulator.process()
    let services = surroundings as Context.Context<any>
    const faults: Array<string> = []
    const turns: Array<Running> = []
    let permitsOut: Record<string, number> = {}
    /** The process is new: its layers are not built. */
    let bare = true

    /** Everything of the library runs in fibers of its own, so that one that hangs holds up nobody. */
    const fork = <A, E>(effect: Effect.Effect<A, E, any>, name: string): Fiber.Fiber<A, E> =>
      simulator.fork(effect, services, name)

    /** Does something of the library's, and waits for its end without time going by. */
    const done = <A>(effect: Effect.Effect<A, never, any>, name: string): Effect.Effect<A> =>
      Effect.suspend(() => {
        const fiber = fork(effect, name)
        return Effect.andThen(
          simulator.drive(() => fiber.pollUnsafe() !== undefined, "step"),
          Effect.suspend(() => fiber.pollUnsafe() ?? Effect.die(new Error(`${name} did not end`)))
        )
      })

    const build = Effect.gen(function*() {
      bare = false
      const simulated = simulator.provideTo(surroundings, random, process) as Context.Context<any>
      services = simulated
      services = Context.merge(
        simulated,
        yield* done(Layer.buildWithScope(Layer.fresh(stage.layer), scope), "the layers")
      )
    })
    yield* build

    /** Everything in memory is lost: what ran goes on no more, and its scope is never closed. */
    const crash = () => {
      simulator.crash(process)
      world.crashed(simulator.now)
      crashes.push(world.mark())
      for (const { seen } of turns.filter((running) => running?.process === process)) {
        if (seen.answered !== undefined) continue
        seen.crashed = true
        seen.answers = undefined
      }
      scope = Scope.makeUnsafe()
      process = simulator.process()
      stage = setUp()
      bare = true
    }

    /** Goes on until the goal is reached, in a new process after each crash. */
    const settle = (reached: () => boolean): Effect.Effect<Ended> =>
      Effect.flatMap(simulator.drive(() => bare || reached(), "settled"), (ended) =>
        bare ? Effect.andThen(build, settle(reached)) : Effect.succeed(ended))

    const begin = (index: number): Running => {
      const running: Running = {
        process,
        seen: {
          id: `turn-${index}`,
          calls: Form.callsOf(scenario, index),
          startedAt: simulator.now,
          answers: undefined,
          answeredAt: undefined,
          answered: undefined,
          stops: [],
          repeats: undefined
        },
        stops: [],
        events: scenario.turns[index]?.events?.length ?? 0,
        happened: 0,
        stop: Effect.void,
        stopCall: () =>
          Effect.void,
        closed: [],
        result: undefined,
        decisions: new Map()
      }
      running.seen.stops = running.stops
      turns[index] = running
      return running
    }

    const answered = ({ seen }: Running) =>
      // In one piece: whatever else can run, nothing comes in between.
      Effect.sync(() => {
        seen.answeredAt = simulator.now
        seen.answered = world.mark()
        permitsOut = stage.permits(services)
      })

    /** The end of the fiber that runs the turn is the turn's answer. */
    const ended = (running: Running, exit: Exit.Exit<Turn.Result<any>, unknown>) =>
      Effect.suspend(() => {
        const { closed, seen } = running
        const told = closed[0]
        if (closed.length !== 1) {
          faults.push(
            `R4: ${seen.id}: expected to be told once that it has closed, and was told ${closed.length} times`
          )
        }
        if (Exit.isSuccess(exit)) {
          running.result = exit.value
          seen.answers = exit.value.outcomes.map(answerOf)
        } else if (Cause.hasInterruptsOnly(exit.cause)) seen.answers = told?.map(answerOf)
        else {faults.push(
            `R1: ${seen.id}: expected outcomes, and it ended with ${Cause.pretty(exit.cause).split("\n")[0]}`
          )}
        return answered(running)
      })

    const launch = (index: number): void => {
      const { events: happenings = [], finishReason, resume, tenant = "default" } = scenario.turns[index]!
      const running = begin(index)
      const { seen } = running
      for (const event of happenings) simulator.at(seen.startedAt + event.atMs, () => happen(running, event))
      const before = resume === true ? turns[index - 1] : undefined
      const parked = before?.result?._tag === "Parked" ? before.result.parked : undefined
      if (resume === true && parked === undefined) {
        // Nothing waits any more: what the turn was answered is what it is answered.
        seen.repeats = index - 1
        seen.answers = turns[index - 1]?.seen.answers
        fork(answered(running), `turn ${index}`)
        return
      }
      const stop = Deferred.makeUnsafe<string>()
      const events: Array<SeenEvent> = seen.events = []
      const options: Turn.Options = {
        ...Tools.optionsOf(scenario.policy, false),
        turn: seen.id,
        finishReason,
        onEvent: (event) => {
          events.push({ place: world.mark(), event })
          onEvent(event)
        },
        onClosed: ({ outcomes }) =>
          Effect.sync(() => {
            running.closed = [...running.closed, outcomes]
          })
      }
      // A turn is stopped by value, and through its handle where single calls are stopped.
      const byHandle = happenings.some((event) => event.type === "cancelCall")
      const cancelOn = Deferred.await(stop)
      if (parked !== undefined) {
        seen.kept = new Set(parked.outcomes.flatMap((outcome, position) => outcome === null ? [] : [position]))
      }
      if (options.references === true) {
        const plan = Turn.plan(stage.toolkit as any, seen.calls, options) as Effect.Effect<TurnPlan.TurnPlan, unknown>
        const exit = Effect.runSyncExit(plan)
        if (Exit.isSuccess(exit)) {
          seen.needs = exit.value.calls.map(({ references = [] }) => references.map(({ call }) => call))
        }
      }
      const turn: Effect.Effect<Turn.Result<any>, unknown, any> = parked !== undefined
        ? Effect.flatMap(carriedOver(parked, seen.id), (own) =>
          Turn.resume(stage.toolkit as any, own, {
            ...options,
            cancelOn,
            calls: scenario.turns[index]!.calls,
            decisions: own.requests.flatMap(({ position }) => {
              const decision = before!.decisions.get(position)
              return decision === undefined ? [] : [{ position, decision }]
            })
          }))
        : byHandle
        ? Effect.scoped(Effect.flatMap(Turn.start(stage.toolkit as any, seen.calls, options), (handle) => {
          running.stop = handle.cancel("scenario")
          running.stopCall = (id) => handle.cancelCall(id, "scenario")
          return handle.result
        }))
        : Turn.runOrPark(stage.toolkit as any, seen.calls, { ...options, cancelOn })
      if (!byHandle || parked !== undefined) running.stop = Effect.asVoid(Deferred.succeed(stop, "scenario"))
      running.fiber = fork(
        turn.pipe(
          Effect.onExit((exit) => ended(running, exit)),
          Effect.provide(TurnContext.make({ tenant }))
        ),
        `turn ${index}`
      )
    }

    const happen = (running: Running, event: Form.Event): void => {
      running.happened++
      const stop = (effect: Effect.Effect<unknown>) => {
        if (running.process.dead) return
        running.stops.push(simulator.now)
        simulator.note(stopWords(running.seen.id, event))
        fork(effect, event.type)
      }
      switch (event.type) {
        case "cancelTurn":
          return stop(running.stop)
        case "cancelCall":
          return stop(running.stopCall(event.id))
        case "interrupt":
          return stop(running.fiber === undefined ? Effect.void : Fiber.interrupt(running.fiber))
        case "crash":
          simulator.note(stopWords(running.seen.id, event))
          return crash()
        case "approve":
        case "deny": {
          // The first decision stands.
          const position = running.seen.calls.findIndex((call) => call.id === event.id)
          if (running.decisions.has(position)) return
          const decision = event.type === "approve" ? Approval.approve() : Approval.deny(event.reason)
          running.decisions.set(position, decision)
        }
      }
    }

    const isAnswered = ({ seen }: Running) => seen.answered !== undefined || seen.crashed === true
    const over = (running: Running | undefined) =>
      running !== undefined && isAnswered(running) && running.happened === running.events

    const unanswered = (ended: Ended) => {
      for (const running of turns) {
        if (running === undefined || isAnswered(running) || ended === "done") continue
        faults.push(`R1: ${running.seen.id}: expected an answer, and at ${simulator.now} ms ${why[ended]}`)
      }
    }

    if (scenario.concurrent === true) {
      scenario.turns.forEach((turn, index) => simulator.at(turn.startAtMs ?? 0, () => launch(index)))
      unanswered(yield* settle(() => scenario.turns.every((_, index) => over(turns[index]))))
    } else {
      for (let index = 0; index < scenario.turns.length && faults.length === 0; index++) {
        simulator.at(Math.max(simulator.now, scenario.turns[index]!.startAtMs ?? 0), () => launch(index))
        unanswered(yield* settle(() => over(turns[index])))
      }
    }

    // What a grace has left at work goes on to its end.
    yield* settle(() => world.atWork.length === 0)
    const names = Object.keys(scenario.tools)
    const all = snapshot(world.runs)
    const [runs, requests] = [
      all.filter(({ keys }) => keys === undefined),
      all.filter(({ keys }) => keys !== undefined)
    ]
    const lists = names.filter((name) => Form.behavioursOf(scenario.tools[name]!).some(({ type }) => type === "items"))
    const permitsAtEnd = stage.permits(services)
    const count = (names: ReadonlyArray<string>, of: (name: string) => number) =>
      Object.fromEntries(names.map((name) => [name, of(name)]))
    const observed: Report.Observed = {
      turns: scenario.turns.map((_, index) => ({ ...(turns[index] ?? begin(index)).seen })),
      runs,
      requests,
      executions: count(names, (name) => runs.filter(({ tool }) => tool === name).length),
      requestsTo: count(lists, (name) => requests.filter(({ tool }) => tool === name).length),
      effects: count(names.filter((name) => scenario.tools[name]!.access !== "read"), (name) => world.effects(name)),
      peak: count(backendsOf(scenario), (name) => world.peak(name)),
      permitsOut,
      permitsAtEnd,
      crashes,
      faults
    }

    // Where something hangs, whoever keeps its key has gone on to the horizon.
    simulator.extend()
    yield* done(world.release, "the end of the world")
    let closed = false
    fork(Effect.ensuring(Scope.close(scope, Exit.void), Effect.sync(() => closed = true)), "the shutdown")
    const end = yield* simulator.drive(() => closed, "settled")
    if (end !== "done" && faults.length === 0) {
      faults.push(`R36: expected the runtime to shut down, and at ${simulator.now} ms ${why[end]}`)
    }
    return { observed, simulator }
  })

/** A parked turn as it comes back from where it was kept, to be resumed under another name, which its runs then carry. */
const carriedOver = (parked: Turn.Parked, turn: string) =>
  Effect.map(
    Schema.decodeUnknownEffect(Turn.Parked)(JSON.parse(JSON.stringify(parked))),
    (own): Turn.Parked => ({ ...own, turn, requests: own.requests.map((request) => ({ ...request, turn })) })
  )

const backendsOf = (scenario: Form.Scenario): ReadonlyArray<string> => [
  ...new Set([
    ...Object.keys(scenario.backends ?? {}),
    ...Object.values(scenario.tools).flatMap((tool) => (tool.backend === undefined ? [] : [tool.backend]))
  ])
]
