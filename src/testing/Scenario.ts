/**
 * Scenario files: fake tools, turns of calls, things that happen while they run, and what must come out, as data. A scenario
 * runs in virtual time: nothing waits for real seconds, and the same file gives the same report every time.
 *
 * Besides what a file expects, rules are checked that hold in every turn: one outcome for each call, in emission order;
 * nothing at work after the answer; all permits back; conflicting calls apart; writes never interrupted nor doubled.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as TurnError from "../TurnError.ts"
import * as Check from "./scenario/check.ts"
import * as Expect from "./scenario/expect.ts"
import * as Reports from "./scenario/report.ts"
import * as Run from "./scenario/run.ts"
import * as Form from "./scenario/schema.ts"
import * as Unsupported from "./scenario/unsupported.ts"

/**
 * `Scenario` is the schema of a scenario file; what a schema of fields cannot say is checked by {@link decode}.
 * `InvalidScenario` is the error of a value that is none; its `problems` say where and what, one sentence each.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export { InvalidScenario, Scenario } from "./scenario/schema.ts"

/**
 * The report of one file: plain JSON data. A file that is not run has `file`, `pass` and `failures` alone.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Report = Reports.Report

/**
 * Reads a value as a scenario. Unknown fields are refused at every depth.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const decode = (input: unknown): Effect.Effect<Form.Scenario, Form.InvalidScenario> => {
  const read = Form.read(input)
  return Result.isSuccess(read)
    ? Effect.succeed(read.success)
    : Effect.fail(new Form.InvalidScenario({ problems: read.failure }))
}

const report = (file: string, scenario: Form.Scenario): Effect.Effect<Report> => {
  const unsupported = Unsupported.features(scenario)
  if (unsupported.length > 0) return Effect.succeed(Reports.notRun(file, unsupported))
  return Effect.map(Run.run(scenario), (observed) => {
    const undecided = Unsupported.decisions(scenario, observed.turns)
    return Reports.make(
      file,
      observed,
      undecided.length > 0 ? undecided : [
        ...Check.rules(scenario, observed),
        ...Expect.unmet(scenario, observed)
      ]
    )
  })
}

/**
 * Runs a scenario in virtual time and reports it.
 *
 * **Details**
 *
 * It never fails: what was not met, and what this version cannot run, stands in `failures`. A turn that hangs is reported, not
 * waited for.
 *
 * **Example** (Two reads run together)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Scenario } from "effect-turn/testing"
 *
 * const program = Scenario.decode({
 *   name: "two-reads",
 *   why: "Reads never wait for each other.",
 *   tools: { look: { access: "read", keys: [], behaviour: { type: "ok", latencyMs: 20 } } },
 *   turns: [{
 *     calls: [{ id: "a", name: "look", arguments: { n: 1 } }, { id: "b", name: "look", arguments: { n: 2 } }]
 *   }],
 *   expect: { overlap: [["a", "b"]], elapsedMs: { max: 20 } }
 * }).pipe(Effect.flatMap(Scenario.run))
 * const report = await Effect.runPromise(program)
 * const failures = report.failures // => []
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const run = (scenario: Form.Scenario): Effect.Effect<Report> => report(`${scenario.name}.json`, scenario)

const parse = (text: string): Result.Result<unknown, string> => {
  try {
    return Result.succeed(JSON.parse(text))
  } catch (error) {
    return Result.fail(
      `the file: expected JSON, and it is not: ${error instanceof Error ? error.message : String(error)}`
    )
  }
}

/**
 * Runs the text of a scenario file and reports it, also when it is no scenario at all.
 *
 * **Details**
 *
 * `fileName` may be a path; its base name is the report's `file`, and has to be the scenario's name with `.json`.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const runText = (fileName: string, text: string): Effect.Effect<Report> => {
  const file = fileName.split(/[\\/]/).at(-1) ?? fileName
  const scenario = Result.flatMap(
    Result.mapError(parse(text), (problem): ReadonlyArray<string> => [problem]),
    Form.read
  )
  if (Result.isFailure(scenario)) return Effect.succeed(Reports.notRun(file, scenario.failure))
  const base = file.replace(/\.json$/, "")
  const { name } = scenario.success
  return name === base ? report(file, scenario.success) : Effect.succeed(
    Reports.notRun(file, [`name: expected the file's base name ${TurnError.show(base)}, got ${TurnError.show(name)}`])
  )
}
