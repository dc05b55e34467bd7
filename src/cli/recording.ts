/** Writes a turn that has run as a scenario file. Where it cannot be written is found before the turn runs, as far as it can. */
import * as Console from "effect/Console"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import type * as Backend from "../Backend.ts"
import * as Scenario from "../testing/Scenario.ts"
import * as ToolPolicy from "../ToolPolicy.ts"
import { Misuse } from "./failure.ts"
import * as Output from "./output.ts"
import { clean } from "./text.ts"

/** The file to write, and what it is to say. */
export interface Target extends Scenario.FromTurnOptions {
  readonly file: string
  readonly force: boolean
}

/** What the flags ask for, when it can be done: the name is one of a scenario, and no file is in the way. */
export const target = (flags: {
  readonly scenario: Option.Option<string>
  readonly why: Option.Option<string>
  readonly redact: boolean
  readonly report: Option.Option<string>
  readonly force: boolean
}): Effect.Effect<Target | undefined, Misuse, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    const { force, redact } = flags
    const file = Option.getOrUndefined(flags.scenario)
    const why = Option.getOrUndefined(flags.why)
    if (file === undefined) {
      const forced = force && Option.isNone(flags.report)
      const stray = why !== undefined ? "--why" : redact ? "--redact" : forced ? "--force" : undefined
      return stray === undefined ? undefined : yield* new Misuse({
        what: `${stray} without --scenario`,
        expected: "--scenario FILE beside it, which it says more of",
        received: stray,
        advice: `add --scenario name.json, or leave ${stray} out`
      })
    }
    const path = yield* Path.Path
    const base = path.basename(file)
    const name = base.replace(/\.json$/, "")
    if (!/^[a-z0-9][a-z0-9-]*\.json$/.test(base)) {
      return yield* new Misuse({
        what: `${file} is no name of a scenario file`,
        expected: "small letters, digits and dashes, and .json behind them, such as two-bookings.json",
        received: base,
        advice: "give it another name: the scenario is called after its file"
      })
    }
    yield* Output.free(file, force)
    return { file, name, why, redact, force }
  })

/** Writes the file, and says what of the turn is not in it. */
export const write = (
  { file, force, ...options }: Target,
  recorded: Scenario.RecordedTurn,
  services: Context.Context<any>
): Effect.Effect<void, Misuse, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const backends = yield* limitsIn(recorded.toolkit, services)
    const { notes, scenario } = yield* Effect.orDie(Scenario.fromTurn({ ...recorded, backends }, options))
    yield* Output.write(file, `${JSON.stringify(scenario, null, 2)}\n`, force, "calls that have run are not undone")
    yield* Console.error([
      `scenario written: ${clean(file)}`,
      ...notes.map((note) => `      ${clean(note)}`),
      ...(options.why === undefined ? ["      replace its `why` by the fault that it guards against"] : [])
    ].join("\n"))
  })

/** The limits of the backends as they are here. Shares of tenants and lengths of lines cannot be asked for. */
export const limitsIn = (toolkit: Scenario.RecordedTurn["toolkit"], services: Context.Context<any>) =>
  Effect.gen(function*() {
    const limits: Record<string, Backend.Options> = {}
    for (const tool of Object.values(toolkit.tools)) {
      const key = ToolPolicy.get(tool).backend
      if (key === undefined) continue
      const backend: Option.Option<Backend.Backend> = Context.getOption(services, key)
      if (Option.isNone(backend)) continue
      const { concurrency } = yield* backend.value.stats
      limits[key.key] = { concurrency: concurrency === Infinity ? "infinite" : concurrency }
    }
    return limits
  })
