/**
 * Many runs of one program: by seeds, by enumeration, and down to the fewest forced answers that still break it.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { Choices, type Forced, randomOf, type Schedule } from "./choices.ts"
import { type Driven, type Ended, type Limits, runIn, Simulator } from "./simulator.ts"
import type { Step } from "./trace.ts"

/** One run, over. */
export interface Tried {
  readonly simulator: Simulator
  readonly schedule: Schedule
  /** What is wrong with it, in words; undefined when nothing is. */
  readonly problem: string | undefined
}

/** How a run is to be run. */
export interface How {
  readonly traced?: boolean | undefined
  readonly recordFrom?: number | undefined
}

/** Whatever can be run under a schedule. */
export type Trial<R, T extends Tried = Tried> = (schedule: Schedule, how?: How) => Effect.Effect<T, never, R>

const whyNot: Record<Exclude<Ended, "done">, string> = {
  idle:
    "it hangs: it has not ended, and nothing is left that could go on (the platform's own timers, files and sockets are " +
    "not waited for)",
  horizon: "it has not ended within the horizon",
  busy: "it has not ended within the bounded number of steps"
}

const problemOf = (driven: Driven<unknown, unknown>): string | undefined => {
  const { at: now, ended, exit } = driven
  if (exit === undefined) return ended === "done" ? undefined : `at ${now} ms ${whyNot[ended]}`
  if (Exit.isFailure(exit)) {
    // A failure that is an error says it itself; how it came about is in the trace.
    const [reason] = exit.cause.reasons
    const told = exit.cause.reasons.length === 1 && reason !== undefined && Cause.isFailReason(reason)
      ? reason.error
      : undefined
    if (typeof told === "string") return told
    return told instanceof Error ? `${told.name}: ${told.message}` : Cause.pretty(exit.cause)
  }
  return exit.value === false ? "it returned false" : undefined
}

/** The runs of a program. */
export const trial = <A, E, R>(
  program: Effect.Effect<A, E, R>,
  limits: Limits
): Trial<R, Tried & Driven<A, E>> =>
(schedule, how) =>
  Effect.suspend(() => {
    const choices = new Choices(schedule, how?.recordFrom)
    const simulator = new Simulator(choices, limits, how?.traced === true)
    return Effect.map(runIn(simulator, program, randomOf(`program ${schedule.seed}`)), (driven) => ({
      ...driven,
      simulator,
      schedule: { seed: schedule.seed, forced: choices.forced },
      problem: problemOf(driven)
    }))
  })

/** A run that broke. */
export interface Broken {
  readonly schedule: Schedule
  readonly problem: string
}

/** What exploring came to, when nothing broke. */
export interface Explored {
  readonly runs: number
  readonly distinct: number
}

/** Runs seed after seed until one breaks. */
export const seeds = <R>(
  trial: Trial<R>,
  from: number,
  count: number,
  budgetMillis: number
): Effect.Effect<Explored & { readonly broken: (Broken & { readonly seed: number }) | undefined }, never, R> =>
  Effect.gen(function*() {
    const live = Clock.Clock.defaultValue()
    const end = live.currentTimeMillisUnsafe() + budgetMillis
    const seen = new Set<string>()
    let runs = 0
    for (let seed = from; seed < from + count; seed++) {
      if (runs > 0 && live.currentTimeMillisUnsafe() >= end) break
      const { problem, schedule, simulator } = yield* trial({ seed, forced: undefined })
      runs++
      seen.add(simulator.choices.fingerprint)
      if (problem !== undefined) return { runs, distinct: seen.size, broken: { schedule, problem, seed } }
    }
    return { runs, distinct: seen.size, broken: undefined }
  })

/** What enumerating came to. */
export interface Enumerated {
  readonly orders: number
  /** Every run with at most this many forced answers was run. */
  readonly switches: number
  /** Whether that is as far as was asked for. */
  readonly complete: boolean
}

/** Every run with at most so many forced answers, those with fewer first. */
export const enumerate = <R>(
  trial: Trial<R>,
  seed: number,
  maxSwitches: number,
  maxOrders: number
): Effect.Effect<Enumerated & { readonly broken: Broken | undefined }, never, R> =>
  Effect.gen(function*() {
    let orders = 0
    let broken: Broken | undefined
    let full = false
    /** Whether there are runs with this many forced answers more. */
    let deeper = true
    const visit = (forced: ReadonlyArray<Forced>, left: number): Effect.Effect<void, never, R> =>
      Effect.gen(function*() {
        if (left === 0 && orders >= maxOrders) {
          full = true
          return
        }
        const run = yield* trial({ seed, forced }, {
          recordFrom: left === 0 ? undefined : (forced.at(-1)?.[0] ?? -1) + 1
        })
        if (left === 0) {
          orders++
          deeper = true
          if (run.problem !== undefined) broken = { schedule: run.schedule, problem: run.problem }
          return
        }
        const { choices, outside } = run.simulator
        for (const { count, index, kind } of choices.open) {
          // Where there are no promises it does not matter when they settle.
          if ((kind === "settle" || kind === "idle") && !outside) continue
          for (let answer = 1; answer < count; answer++) {
            if (full || broken !== undefined) return
            yield* visit([...forced, [index, answer]], left - 1)
          }
        }
      })
    let switches = -1
    for (;;) {
      deeper = false
      yield* visit([], switches + 1)
      if (full || broken !== undefined) return { orders, switches, complete: !full, broken }
      switches++
      if (switches === maxSwitches || !deeper) return { orders, switches: maxSwitches, complete: true, broken }
    }
  })

/** What a problem is about, without the names and numbers of the run: a smaller run that fails for another reason is no smaller run. */
export const reasonOf = (problem: string): string => problem.split("\n")[0]!.replace(/"[^"]*"|\([^)]*\)|\b\d+/g, "…")

/**
 * Fewer forced answers that break it for the same reason. Chunks of them are left out, the greater ones first; then all runs with fewer are
 * gone through, as far as the number of runs allows.
 */
export const shrink = <R>(
  trial: Trial<R>,
  broken: Broken,
  maxRuns: number
): Effect.Effect<Broken & { readonly runs: number }, never, R> =>
  Effect.gen(function*() {
    const { seed } = broken.schedule
    const reason = reasonOf(broken.problem)
    let best: Broken = broken
    let forced: ReadonlyArray<Forced> = broken.schedule.forced ?? []
    let runs = 0
    const tryOut = (candidate: ReadonlyArray<Forced>) =>
      Effect.map(trial({ seed, forced: candidate }), ({ problem, schedule }) => {
        runs++
        if (problem === undefined || reasonOf(problem) !== reason) return false
        // What was not natural any more is not in the schedule that was really run.
        const really = schedule.forced ?? []
        if (really.length > candidate.length) return false
        forced = really
        best = { schedule: { seed, forced }, problem }
        return true
      })
    if (maxRuns === 0 || forced.length === 0 || (yield* tryOut([]))) return { ...best, runs }
    for (let size = forced.length; size >= 1; size = Math.floor(size / 2)) {
      for (let at = 0; at < forced.length;) {
        if (runs >= maxRuns) return { ...best, runs }
        const without = [...forced.slice(0, at), ...forced.slice(at + size)]
        if (without.length === 0 || !(yield* tryOut(without))) at += size
      }
    }
    if (forced.length > 1 && runs < maxRuns) {
      const sameReason: Trial<R> = (schedule, how) =>
        Effect.map(trial(schedule, how), (run) =>
          run.problem === undefined || reasonOf(run.problem) === reason ? run : { ...run, problem: undefined })
      const fewer = yield* enumerate(sameReason, seed, forced.length - 1, maxRuns - runs)
      runs += fewer.orders
      if (fewer.broken !== undefined) {
        best = fewer.broken
      }
    }
    return { ...best, runs }
  })

/** Runs what broke once more, and writes it down. */
export const traceOf = <R, T extends Tried>(
  trial: Trial<R, T>,
  broken: Broken
): Effect.Effect<{ readonly steps: ReadonlyArray<Step>; readonly again: boolean; readonly run: T }, never, R> =>
  Effect.map(
    trial(broken.schedule, { traced: true }),
    (run) => ({ steps: run.simulator.tracer!.steps, again: run.problem !== undefined, run })
  )
