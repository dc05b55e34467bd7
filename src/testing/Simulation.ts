/**
 * Simulated runs of a program: the same program under many interleavings of its fibers, each of them repeatable.
 *
 * A program (a turn, a handler, any effect) runs under a scheduler that decides by a seed which fiber goes on, and makes fibers
 * give way between any two of their operations. Time is virtual and moves when nothing else can happen; what is due at one
 * moment comes in any order. Promises settle through the same queue. So "the timeout and the end fall together", or "the stop
 * comes between taking a permit and giving it back", is a run with a number, not an accident in production.
 *
 * - {@link explore} runs a program under many seeds, and {@link forAll} under generated inputs too. The first run that fails is
 *   made small (a smaller input, fewer forced switches) and told with what ran when.
 * - {@link exhaust} enumerates all runs with up to a number of forced switches, and says how many there were.
 * - {@link process} runs a part of a program as a process that can crash.
 * - {@link run} is one run: by a seed, or by the `replay` of a failure. Seed 0 is the natural run, in which nothing is forced.
 *
 * **Gotchas**
 *
 * The program is built anew for each run, its layers included: what it shares between runs, each of them sees. It is repeatable
 * as far as it takes time from `Clock` and chance from `Random`; the platform's own timers, `Date.now`, `Math.random`, files
 * and sockets are outside the simulation, and a run that waits for them has nothing left that could go on; where others sleep, time
 * goes on without waiting for them. Inside, time moves by itself: a `TestClock` is not there to be adjusted. A place between two
 * operations is where Effect's runtime looks whether a fiber should give way: an effect that is over already, such as `Effect.void`
 * in a generator, is none.
 *
 * @since 0.1.0
 */
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Formatter from "effect/Formatter"
import { dual } from "effect/Function"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as TurnError from "../TurnError.ts"
import * as Choices from "./simulation/choices.ts"
import * as Explore from "./simulation/explore.ts"
import { budgetOf, maxShrinksOf, millisOf, owner, seedsOf } from "./simulation/options.ts"
import { Current, type Ended, type Limits } from "./simulation/simulator.ts"
import * as Trace from "./simulation/trace.ts"

/**
 * One step of a run.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Step = Trace.Step

/**
 * How far a simulated run may go: beyond that it counts as one that does not end.
 *
 * **Details**
 *
 * - `horizon`: virtual time. Default: an hour.
 * - `maxSteps`: tasks of fibers. Default: 100,000.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Bounds {
  readonly horizon?: Duration.Input | undefined
  readonly maxSteps?: number | undefined
}

const limitsOf = (bounds: Bounds | undefined): Limits => ({
  horizonMillis: millisOf("horizon", bounds?.horizon ?? "1 hour", 1),
  maxSteps: TurnError.wholeNumber("the simulation", "maxSteps", bounds?.maxSteps ?? 100_000)
})

/**
 * One run of a program, over.
 *
 * **Details**
 *
 * - `exit`: how the program ended, undefined when it did not; `ended` tells why not: nothing is left that could go on (`idle`),
 *   the next thing lies beyond the horizon (`horizon`), the steps ran out (`busy`).
 * - `problem`: why the run counts as failed, in words. It counts as failed when the program fails, dies, is interrupted, gives
 *   `false`, or does not end.
 * - `replay`: what repeats exactly this run, as the `schedule` of {@link run}.
 * - `switches`: how many choices of the run were forced.
 * - `steps`, `points`: how many tasks were run, and at how many places fibers could have been made to give way.
 * - `elapsedMillis`: the virtual time at its end.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Run<out A, out E = never> {
  readonly exit: Exit.Exit<A, E> | undefined
  readonly ended: Ended
  readonly problem: string | undefined
  readonly replay: string
  readonly switches: number
  readonly steps: number
  readonly points: number
  readonly elapsedMillis: number
  readonly trace: ReadonlyArray<Step>
}

/**
 * Runs a program once, and tells what ran when.
 *
 * **Details**
 *
 * `schedule` is a seed, or the `replay` of another run. Default: 0, the natural run. It never fails: how the program ended is
 * its answer. Interruption interrupts the program, and waits for its end.
 *
 * **Example** (A sleep takes no time)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Simulation } from "effect-turn/testing"
 *
 * const program = Simulation.run(Effect.as(Effect.sleep("30 minutes"), "awake"), { schedule: 7 })
 * const { elapsedMillis, replay } = await Effect.runPromise(program)
 * const minutes = elapsedMillis / 60_000 // => 30
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const run: {
  (
    options?: Bounds & { readonly schedule?: number | string | undefined }
  ): <A, E, R>(program: Effect.Effect<A, E, R>) => Effect.Effect<Run<A, E>, never, R>
  <A, E, R>(
    program: Effect.Effect<A, E, R>,
    options?: Bounds & { readonly schedule?: number | string | undefined }
  ): Effect.Effect<Run<A, E>, never, R>
} = dual(
  (args) => Effect.isEffect(args[0]),
  <A, E, R>(
    program: Effect.Effect<A, E, R>,
    options?: Bounds & { readonly schedule?: number | string | undefined }
  ): Effect.Effect<Run<A, E>, never, R> => {
    const schedule = Choices.parse(options?.schedule ?? 0)
    return Effect.map(
      Explore.trial(program, limitsOf(options))(schedule, { traced: true }),
      ({ at, ended, exit, problem, schedule, simulator }) => ({
        exit,
        ended,
        problem,
        replay: Choices.show(schedule),
        switches: schedule.forced?.length ?? 0,
        steps: simulator.steps,
        points: simulator.points,
        elapsedMillis: at,
        trace: simulator.tracer!.steps
      })
    )
  }
)

/**
 * A program failed under one of its interleavings.
 *
 * **Details**
 *
 * - `problem`: what went wrong in the smallest failing run that was found.
 * - `replay`: repeats that run, as an option of what found it, on any machine.
 * - `seed`: the first failing seed; undefined when runs were enumerated.
 * - `input`: the smallest failing input of {@link forAll}, as text.
 * - `trace`: what ran when, one line a step; `>` marks the steps in which something was forced.
 * - `repeatable`: false when the same run did not fail again, so that the program takes something from outside the simulation.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class Falsified extends Schema.TaggedError<Falsified>()("Falsified", {
  problem: Schema.String,
  replay: Schema.String,
  seed: Schema.optionalKey(Schema.Number),
  input: Schema.optionalKey(Schema.String),
  runs: Schema.Number,
  shrinks: Schema.Number,
  switches: Schema.Number,
  trace: Schema.String,
  repeatable: Schema.Boolean
}) {
  override get message(): string {
    const found = this.seed === undefined ? `run ${this.runs}` : `seed ${this.seed}, run ${this.runs}`
    return [
      `${this.problem}`,
      "",
      `Found by ${found}; made smaller by ${this.shrinks} runs, to ${this.switches} forced ${
        this.switches === 1 ? "switch" : "switches"
      }.`,
      `Repeat it with { replay: ${JSON.stringify(this.replay)} }`,
      ...(this.repeatable
        ? []
        : ["The same run did not fail again: the program takes something from outside the simulation."]),
      ...(this.input === undefined ? [] : ["", "Input:", this.input]),
      "",
      "What ran when:",
      this.trace
    ].join("\n")
  }
}

/**
 * How much is explored.
 *
 * **Details**
 *
 * - `seeds`: how many seeds, from 1 on, or `{from, count}`. Default: 200. With a `budget` and no `seeds`, as many as it allows.
 * - `budget`: real time after which no run is begun; at least one is.
 * - `maxShrinks`: how many runs may be spent on making a failure smaller. Default: 500.
 * - `replay`: runs only this, the `replay` of an earlier failure.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ExploreOptions extends Bounds {
  readonly seeds?: number | { readonly from: number; readonly count: number } | undefined
  readonly budget?: Duration.Input | undefined
  readonly maxShrinks?: number | undefined
  readonly replay?: string | undefined
}

/**
 * What exploring came to, when nothing failed: how many runs there were, and how many of them had schedules of their own.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Explored = Explore.Explored

/** Makes a failure small, writes it down, and fails with it. */
const falsified = <R>(
  trial: Explore.Trial<R>,
  broken: Explore.Broken,
  maxShrinks: number,
  said: {
    readonly runs: number
    readonly shrinks?: number
    readonly seed?: number
    readonly input?: string
    readonly suffix?: string
  }
): Effect.Effect<never, Falsified, R> =>
  Effect.gen(function*() {
    const small = yield* Explore.shrink(trial, broken, maxShrinks)
    const { again, steps } = yield* Explore.traceOf(trial, small)
    return yield* new Falsified({
      problem: small.problem,
      replay: Choices.show(small.schedule) + (said.suffix ?? ""),
      ...(said.seed === undefined ? undefined : { seed: said.seed }),
      ...(said.input === undefined ? undefined : { input: said.input }),
      runs: said.runs,
      shrinks: small.runs + (said.shrinks ?? 0),
      switches: small.schedule.forced?.length ?? 0,
      trace: Trace.format(steps),
      repeatable: again
    })
  })

/** Runs what a replay says, and nothing else. */
const repeat = <R>(
  trial: Explore.Trial<R>,
  schedule: Choices.Schedule,
  said?: { readonly input: string; readonly suffix: string }
): Effect.Effect<Explored, Falsified, R> =>
  Effect.flatMap(trial(schedule), (run) =>
    run.problem === undefined
      ? Effect.succeed({ runs: 1, distinct: 1 })
      : falsified(trial, { schedule: run.schedule, problem: run.problem }, 0, { runs: 1, ...said }))

/**
 * Runs a program under many seeds, until one of them makes it fail.
 *
 * **Details**
 *
 * A run fails when the program fails, dies, is interrupted, gives `false`, or does not end. The first failing run is repeated
 * with fewer and fewer forced switches, as long as it fails, and told as a {@link Falsified}: its message is meant to be read.
 *
 * **Example** (A lost update)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Simulation } from "effect-turn/testing"
 *
 * const program = Effect.gen(function*() {
 *   let rooms = 0
 *   const book = Effect.gen(function*() {
 *     const seen = yield* Effect.sync(() => rooms)
 *     yield* Effect.sync(() => {
 *       rooms = seen + 1
 *     })
 *   })
 *   yield* Effect.all([book, book], { concurrency: "unbounded" })
 *   return rooms === 2
 * })
 *
 * const falsified = await Effect.runPromise(Effect.flip(Simulation.explore(program)))
 * const few = falsified.switches // => 1
 * const { exit } = await Effect.runPromise(Simulation.run(program, { schedule: falsified.replay }))
 * const again = exit?._tag === "Success" && exit.value // => false
 * ```
 *
 * @category exploring
 * @since 0.1.0
 * @stability experimental
 */
export const explore: {
  (options?: ExploreOptions): <R>(program: Effect.Effect<unknown, unknown, R>) => Effect.Effect<Explored, Falsified, R>
  <R>(program: Effect.Effect<unknown, unknown, R>, options?: ExploreOptions): Effect.Effect<Explored, Falsified, R>
} = dual(
  (args) => Effect.isEffect(args[0]),
  <R>(
    program: Effect.Effect<unknown, unknown, R>,
    options?: ExploreOptions
  ): Effect.Effect<Explored, Falsified, R> => {
    const trial = Explore.trial(program, limitsOf(options))
    if (options?.replay !== undefined) return repeat(trial, Choices.parse(options.replay))
    const { count, from } = seedsOf(options)
    const maxShrinks = maxShrinksOf(options)
    return Effect.flatMap(
      Explore.seeds(trial, from, count, budgetOf(options)),
      ({ broken, distinct, runs }) =>
        broken === undefined
          ? Effect.succeed({ runs, distinct })
          : falsified(trial, broken, maxShrinks, { runs, seed: broken.seed })
    )
  }
)

/**
 * How {@link forAll} generates its inputs.
 *
 * **Details**
 *
 * - `inputs`: how many inputs. Default: 100; with a `budget`, as many as it allows.
 * - `seeds`: under how many seeds each of them runs. Default: 5.
 * - `budget`: real time after which no run is begun; at least one is.
 * - `seed`: of the inputs, and where the seeds of their runs begin. Default: 1.
 * - `maxShrinks`: how many smaller inputs are tried, and how many runs with fewer switches. Default: 500.
 * - `replay`: runs only this, the `replay` of an earlier failure.
 * - `show`: how an input reads in a failure. Default: as JSON does.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ForAllOptions<in I = any> extends Bounds {
  readonly show?: ((input: I) => string) | undefined
  readonly inputs?: number | undefined
  readonly seeds?: number | undefined
  readonly seed?: number | undefined
  readonly budget?: Duration.Input | undefined
  readonly maxShrinks?: number | undefined
  readonly replay?: string | undefined
}

/** How many seeds a smaller input gets to fail under, besides the run that the greater one failed in. */
const seedsOfShrunk = 20

/**
 * Runs a program of generated inputs, each of them under some seeds, until one fails.
 *
 * **Details**
 *
 * What fails is made small: first the input, as its `Arbitrary` shrinks, then the forced switches. The {@link Falsified} has both,
 * and a `replay` that repeats exactly that run.
 *
 * **Example** (More than two at once)
 *
 * ```ts import.meta.vitest
 * import { Arbitrary, Effect, Schema } from "effect"
 * import { Simulation } from "effect-turn/testing"
 *
 * const some = Arbitrary.array(Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 50 }))))
 * const program = (latencies: ReadonlyArray<number>) =>
 *   Effect.gen(function*() {
 *     let running = 0
 *     const work = (millis: number) =>
 *       Effect.sync(() => ++running <= 2).pipe(Effect.tap(Effect.sleep(millis)), Effect.tap(() => Effect.sync(() => running--)))
 *     return (yield* Effect.forEach(latencies, work, { concurrency: "unbounded" })).every((kept) => kept)
 *   })
 *
 * const falsified = await Effect.runPromise(Effect.flip(Simulation.forAll(some, program)))
 * const three = JSON.parse(falsified.input!).length // => 3
 * ```
 *
 * @category exploring
 * @since 0.1.0
 * @stability experimental
 */
export const forAll: {
  <I, R>(
    program: (input: I) => Effect.Effect<unknown, unknown, R>,
    options?: ForAllOptions<I>
  ): (inputs: Arbitrary.Arbitrary<I>) => Effect.Effect<Explored, Falsified, R>
  <I, R>(
    inputs: Arbitrary.Arbitrary<I>,
    program: (input: I) => Effect.Effect<unknown, unknown, R>,
    options?: ForAllOptions<I>
  ): Effect.Effect<Explored, Falsified, R>
} = dual(
  (args) => Arbitrary.isArbitrary(args[0]),
  <I, R>(
    inputs: Arbitrary.Arbitrary<I>,
    program: (input: I) => Effect.Effect<unknown, unknown, R>,
    options?: ForAllOptions<I>
  ): Effect.Effect<Explored, Falsified, R> => {
    const limits = limitsOf(options)
    const maxShrinks = maxShrinksOf(options)
    const perInput = TurnError.wholeNumber(owner, "seeds", options?.seeds ?? 5)
    const count = TurnError.wholeNumber(
      owner,
      "inputs",
      options?.inputs ?? (options?.budget === undefined ? 100 : 1_000_000)
    )
    const budget = budgetOf(options)
    const seed = TurnError.wholeNumber(owner, "seed", options?.seed ?? 1, 0)
    const show = options?.show ?? asJson
    if (options?.replay !== undefined) {
      const { input, schedule } = splitReplay(options.replay)
      return Effect.flatMap(
        replayedInput(inputs, input, options.replay),
        (input) =>
          repeat(Explore.trial(Effect.suspend(() => program(input)), limits), schedule, {
            input: show(input),
            suffix: options.replay!.slice(options.replay!.indexOf("@"))
          })
      )
    }
    return Effect.suspend(() => {
      let runs = 0
      let distinct = 0
      let shrinks = 0
      let first: { readonly seed: number; readonly runs: number; readonly reason: string } | undefined
      let found: Explore.Broken | undefined
      const live = Clock.Clock.defaultValue()
      const end = live.currentTimeMillisUnsafe() + budget
      const left = () => end - live.currentTimeMillisUnsafe()
      const breaks = (run: Explore.Broken): Effect.Effect<never, Explore.Broken> => {
        found = run
        return Effect.fail(run)
      }
      /** An input that is tried first: it fails with the run that fails. Nothing is run any more once time is up. */
      const explore = (trial: Explore.Trial<R>) =>
        Effect.gen(function*() {
          if (runs > 0 && left() <= 0) return true
          const explored = yield* Explore.seeds(trial, seed + runs, perInput, left())
          runs += explored.runs
          distinct += explored.distinct
          const { broken } = explored
          if (broken === undefined) return true
          first = { seed: broken.seed, runs, reason: Explore.reasonOf(broken.problem) }
          return yield* breaks(broken)
        })
      /** A smaller input: it has to fail for the same reason, in the run in which the greater one did, or under some seeds. */
      const again = (trial: Explore.Trial<R>, reason: string) =>
        Effect.gen(function*() {
          const same = (problem: string | undefined) => problem !== undefined && Explore.reasonOf(problem) === reason
          shrinks++
          const { problem, schedule } = yield* trial(found!.schedule)
          if (same(problem)) return yield* breaks({ problem: problem!, schedule })
          const { broken } = yield* Explore.seeds(trial, 0, seedsOfShrunk, Infinity)
          return broken === undefined || !same(broken.problem) ? true : yield* breaks(broken)
        })
      const property = (input: I) => {
        const trial = Explore.trial(Effect.suspend(() => program(input)), limits)
        return first === undefined ? explore(trial) : again(trial, first.reason)
      }
      const explored = Effect.suspend(() => Effect.succeed<Explored>({ runs, distinct }))
      const told = (result: Arbitrary.CheckResult<I, Explore.Broken>): Effect.Effect<Explored, Falsified, R> => {
        switch (result._tag) {
          case "Falsified":
            return falsified(
              Explore.trial(Effect.suspend(() => program(result.shrunkInput)), limits),
              found!,
              maxShrinks,
              {
                runs: first!.runs,
                shrinks,
                seed: first!.seed,
                input: show(result.shrunkInput),
                suffix: `@${result.replay}`
              }
            )
          case "Exhausted":
            return Effect.die(
              new Error(
                `the inputs of the simulation: expected ${count}, and ${result.runs} were generated before ${result.discards} were discarded: give a generator that makes what its schema takes`
              )
            )
          default:
            return explored
        }
      }
      const batch = (size: number, seed: number) =>
        Effect.flatMap(Arbitrary.checkEffect(inputs, property, { runs: size, seed, maxShrinks }), told)
      if (budget === Infinity) return batch(count, seed)
      // In small portions, for all of one are generated, whatever the time.
      const portions = (done: number): Effect.Effect<Explored, Falsified, R> =>
        done >= count || (done > 0 && left() <= 0)
          ? explored
          : Effect.flatMap(
            batch(Math.min(portion, count - done), seed + done),
            () => Effect.suspend(() => portions(done + portion))
          )
      return portions(0)
    })
  }
)

/** How many inputs are generated at a time where there is a budget. */
const portion = 20

/** The input of a replay: every smaller one on the way to it is taken to fail. */
const replayedInput = <I>(inputs: Arbitrary.Arbitrary<I>, token: string, replay: string): Effect.Effect<I> =>
  Effect.suspend(() => Arbitrary.checkEffect(inputs, () => Effect.fail("on"), { replay: token, maxShrinks: 0 })).pipe(
    Effect.catchDefect((defect) => Effect.die(badReplay(replay, String(defect)))),
    Effect.flatMap((result) =>
      result._tag === "Falsified"
        ? Effect.succeed(result.shrunkInput)
        : Effect.die(badReplay(replay, "its input cannot be generated any more"))
    )
  )

const asJson = (input: unknown): string => Formatter.format(input, { space: 2 })

const badReplay = (replay: unknown, why: string): TurnError.TurnError =>
  TurnError.make(
    new TurnError.InvalidInput({
      what: "the replay of a simulation",
      expected: `the \`replay\` of an earlier failure (${why})`,
      received: TurnError.show(replay)
    })
  )

/** A run, and the input it had, as {@link forAll} writes them. */
const splitReplay = (replay: string): { readonly schedule: Choices.Schedule; readonly input: string } => {
  const at = replay.indexOf("@")
  if (at === -1) throw badReplay(replay, "it has no input")
  return { schedule: Choices.parse(replay.slice(0, at)), input: replay.slice(at + 1) }
}

/**
 * How far {@link exhaust} goes.
 *
 * **Details**
 *
 * - `switches`: the most forced choices of a run. Default: 2.
 * - `maxOrders`: the most runs. Default: 10,000.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ExhaustOptions extends Bounds {
  readonly switches?: number | undefined
  readonly maxOrders?: number | undefined
}

/**
 * What enumerating came to, when nothing failed.
 *
 * **Details**
 *
 * - `orders`: how many different runs there were.
 * - `switches`: every run with at most this many forced choices was run; -1 when not even the natural one was.
 * - `complete`: false when `maxOrders` came first.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Exhausted = Explore.Enumerated

/**
 * Runs every interleaving of a small program with up to a number of forced choices, those with fewer first.
 *
 * **Details**
 *
 * A forced choice is a task that runs before an older one, or a fiber that gives way where something else could run. Most
 * faults of concurrency need one or two. The first failing run is told as a {@link Falsified}.
 *
 * **Example** (All orders of two)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Simulation } from "effect-turn/testing"
 *
 * const program = Effect.all([Effect.sleep(5), Effect.sleep(5)], { concurrency: "unbounded" })
 * const { complete, orders } = await Effect.runPromise(Simulation.exhaust(program, { switches: 1 }))
 * const whole = complete && orders > 1 // => true
 * ```
 *
 * @category exploring
 * @since 0.1.0
 * @stability experimental
 */
export const exhaust: {
  (options?: ExhaustOptions): <R>(program: Effect.Effect<unknown, unknown, R>) => Effect.Effect<Exhausted, Falsified, R>
  <R>(program: Effect.Effect<unknown, unknown, R>, options?: ExhaustOptions): Effect.Effect<Exhausted, Falsified, R>
} = dual(
  (args) => Effect.isEffect(args[0]),
  <R>(
    program: Effect.Effect<unknown, unknown, R>,
    options?: ExhaustOptions
  ): Effect.Effect<Exhausted, Falsified, R> => {
    const trial = Explore.trial(program, limitsOf(options))
    const switches = TurnError.wholeNumber(owner, "switches", options?.switches ?? 2, 0)
    const maxOrders = TurnError.wholeNumber(owner, "maxOrders", options?.maxOrders ?? 10_000)
    return Effect.flatMap(
      Explore.enumerate(trial, 0, switches, maxOrders),
      ({ broken, ...enumerated }) =>
        broken === undefined
          ? Effect.succeed(enumerated)
          : falsified(trial, broken, 500, { runs: enumerated.orders })
    )
  }
)

/**
 * Writes a line into the trace of the simulated run that this is part of. Outside a simulation it does nothing.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const note = (text: string): Effect.Effect<void> => Effect.map(Current, (simulator) => simulator?.note(text))

/**
 * Succeeds when the run comes to its n-th point, counted from 1: the fiber that is there gives way, and what waited for the point
 * goes on at once. A point is a place between two operations of fibers. With it a stop can be put everywhere: a run tells how many
 * `points` it has. Outside a simulation it never succeeds.
 *
 * **Example** (A stop at each point)
 *
 * ```ts import.meta.vitest
 * import { Effect, Fiber } from "effect"
 * import { Simulation } from "effect-turn/testing"
 *
 * const stopped = (point: number) =>
 *   Effect.gen(function*() {
 *     let open = 0
 *     const work = Effect.acquireUseRelease(
 *       Effect.sync(() => open++),
 *       () => Effect.sleep(10),
 *       () => Effect.sync(() => open--)
 *     )
 *     const fiber = yield* Effect.forkChild(work)
 *     yield* Effect.raceFirst(Effect.andThen(Simulation.point(point), Fiber.interrupt(fiber)), Fiber.await(fiber))
 *     return open === 0
 *   })
 *
 * const { points } = await Effect.runPromise(Simulation.run(stopped(Infinity)))
 * const all = Array.from({ length: points }, (_, i) => Simulation.run(stopped(i + 1)))
 * const runs = await Effect.runPromise(Effect.all(all))
 * const broken = runs.filter((run) => run.problem !== undefined).length // => 0
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const point = (n: number): Effect.Effect<void> =>
  Effect.flatMap(Current, (simulator) => simulator === undefined ? Effect.never : simulator.point(n))

/**
 * A program that runs as a process of its own inside a simulated run.
 *
 * **Details**
 *
 * - `await`: how it ended; undefined where it crashed before its end.
 * - `crash`: from this moment on nothing of it goes on, as when a process is killed: no operation of its fibers, no finalizer, no end of a
 *   sleep. What it has told others stands. When it has ended it does nothing.
 * - `interrupt`: asks it to end, and waits for that.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Process<out A, out E = never> {
  readonly await: Effect.Effect<Exit.Exit<A, E> | undefined>
  readonly crash: Effect.Effect<void>
  readonly interrupt: Effect.Effect<void>
}

/**
 * Starts a program as a process of its own, which can crash: with it go all fibers that it has forked, whatever they hold.
 *
 * **Details**
 *
 * What outlives a crash is what the program shares with others: a service that was made outside it, such as a store or a fake backend.
 * Layers are built inside the program, so that each process has its own. With {@link point} a crash can be put everywhere.
 *
 * Outside a simulation it dies: nobody else can stop a fiber without letting it clean up.
 *
 * **Example** (A process is killed between its effect and its record)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Simulation } from "effect-turn/testing"
 *
 * const program = Effect.gen(function*() {
 *   const log: Array<string> = []
 *   const say = (text: string) => Effect.sync(() => log.push(text))
 *   const work = say("booked").pipe(Effect.andThen(Effect.sleep(20)), Effect.andThen(say("recorded")), Effect.ensuring(say("closed")))
 *   const first = yield* Simulation.process(work)
 *   yield* Effect.sleep(10)
 *   yield* first.crash
 *   const exit = yield* first.await
 *   yield* Effect.sleep("1 hour")
 *   return [exit, log]
 * })
 * const run = await Effect.runPromise(Simulation.run(program, { horizon: "2 hours" }))
 * const seen = run.exit?._tag === "Success" ? run.exit.value : undefined // => [undefined, ["booked"]]
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const process = <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<Process<A, E>, never, R> =>
  Effect.gen(function*() {
    const simulator = yield* Current
    if (simulator === undefined) {
      return yield* Effect.die(TurnError.make(
        new TurnError.InvalidInput({
          what: "Simulation.process",
          expected: "to be run inside a simulation, by Simulation.run or what explores runs",
          received: "a program outside one"
        })
      ))
    }
    const own = simulator.process()
    const over = yield* Deferred.make<Exit.Exit<A, E> | undefined>()
    const context = simulator.provideTo(yield* Effect.context<R>(), yield* Random.Random, own)
    const fiber = Effect.runForkWith(context)(program)
    fiber.addObserver((exit) => Deferred.doneUnsafe(over, Effect.succeed(exit)))
    const awaited = Deferred.await(over)
    return {
      await: awaited,
      // In one piece: whoever crashes itself does nothing after it.
      crash: Effect.sync(() => {
        simulator.crash(own)
        Deferred.doneUnsafe(over, Effect.succeed(undefined))
      }),
      interrupt: Effect.andThen(Effect.sync(() => fiber.interruptUnsafe()), Effect.asVoid(awaited))
    }
  })

/** Runs a program once in the natural order, and fails with what is wrong with it, told with its input.
 *
 * @internal
 */
export const runCase = <A, E, R>(
  program: Effect.Effect<A, E, R>,
  input: string,
  runs: number,
  bounds: Bounds
): Effect.Effect<A, Falsified, R> => {
  const trial = Explore.trial(program, limitsOf(bounds))
  return Effect.flatMap(
    trial({ seed: 0, forced: [] }),
    ({ exit, problem, schedule }) =>
      problem === undefined && exit !== undefined && Exit.isSuccess(exit)
        ? Effect.succeed(exit.value)
        : falsified(trial, { schedule, problem: problem ?? "it did not succeed" }, 0, {
          runs,
          input
        })
  )
}
