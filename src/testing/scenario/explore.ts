/**
 * One scenario under many interleavings: the natural one first, then one for each seed, until one of them fails.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Choices from "../simulation/choices.ts"
import * as Explore from "../simulation/explore.ts"
import { budgetOf, maxShrinksOf, seedsOf } from "../simulation/options.ts"
import * as Trace from "../simulation/trace.ts"
import * as Differences from "./differences.ts"
import type * as Report from "./report.ts"
import * as Run from "./run.ts"
import type * as Form from "./schema.ts"

/** One run, and what of it is not as it has to be. */
interface Judged extends Explore.Tried {
  readonly observed: Report.Observed
  readonly failures: ReadonlyArray<string>
}

/** Says what of a run is not as it has to be. @internal */
export type Judge = (scenario: Form.Scenario, observed: Report.Observed) => ReadonlyArray<string>

/** The run that is to be reported, and what exploring came to. @internal */
export interface Explored {
  readonly observed: Report.Observed
  readonly failures: ReadonlyArray<string>
  readonly explored: Report.Exploration
}

const trialOf = (scenario: Form.Scenario, judge: Judge): Explore.Trial<never, Judged> => (schedule, how) =>
  Effect.map(Run.run(scenario, schedule, how?.traced, how?.recordFrom), ({ observed, simulator }) => {
    const failures = judge(scenario, observed)
    return {
      observed,
      failures,
      simulator,
      schedule: { seed: schedule.seed, forced: simulator.choices.forced },
      problem: failures.length === 0 ? undefined : failures.join("\n")
    }
  })

/** Makes what broke small, and says how it differs from the natural run. */
const found = (
  trial: Explore.Trial<never, Judged>,
  natural: Judged,
  broken: Explore.Broken,
  maxShrinks: number,
  counts: Explore.Explored
): Effect.Effect<Explored> =>
  Effect.gen(function*() {
    const small = yield* Explore.shrink(trial, broken, maxShrinks)
    const { again, run, steps } = yield* Explore.traceOf(trial, small)
    return {
      observed: run.observed,
      failures: again
        ? run.failures
        : [
          ...small.problem.split("\n"),
          "the same run did not fail again: it takes something from outside the scenario"
        ],
      explored: {
        ...counts,
        found: {
          seed: broken.schedule.seed,
          replay: Choices.show(small.schedule),
          switches: small.schedule.forced?.length ?? 0,
          shrinks: small.runs,
          differences: Differences.between(natural.observed, run.observed),
          trace: Trace.format(steps).split("\n")
        }
      }
    }
  })

/** @internal */
export const explore = (
  scenario: Form.Scenario,
  judge: Judge,
  options: Report.ExploreOptions | undefined
): Effect.Effect<Explored> => {
  const { count, from } = seedsOf(options)
  const budget = budgetOf(options)
  const maxShrinks = maxShrinksOf(options)
  const replay = options?.replay === undefined ? undefined : Choices.parse(options.replay)
  return Effect.suspend(() => {
    const trial = trialOf(scenario, judge)
    const progress = { seeds: 0, shrinks: 0 }
    const told = (which: "seeds" | "shrinks"): Explore.Trial<never, Judged> => (schedule, how) =>
      Effect.map(trial(schedule, how), (run) => {
        progress[which]++
        tell(options?.onRun, { ...progress })
        return run
      })
    return Effect.gen(function*() {
      const natural = yield* trial({ seed: 0, forced: undefined })
      if (replay !== undefined) {
        const run = yield* trial(replay)
        const counts = { runs: 1, distinct: 1 }
        return run.problem === undefined
          ? { observed: run.observed, failures: [], explored: counts }
          : yield* found(trial, natural, { schedule: run.schedule, problem: run.problem }, 0, counts)
      }
      const none = { observed: natural.observed, failures: natural.failures, explored: { runs: 0, distinct: 0 } }
      if (natural.problem !== undefined) return none
      const { broken, distinct, runs } = yield* Explore.seeds(told("seeds"), from, count, budget)
      return broken === undefined
        ? { ...none, explored: { runs, distinct } }
        : yield* found(told("shrinks"), natural, broken, maxShrinks, { runs, distinct })
    })
  })
}

/** Whoever watches cannot break anything. */
const tell = (
  onRun: Report.ExploreOptions["onRun"],
  progress: { readonly seeds: number; readonly shrinks: number }
) => {
  try {
    onRun?.(progress)
  } catch {
    // What it throws is dropped, as by `Turn`.
  }
}
