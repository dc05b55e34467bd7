/**
 * The rules of turns as laws: sentences that hold for whatever was seen of turns that ran, each with what it judges.
 *
 * A law looks at what was seen (an {@link Observation}) and says each breach in words. `TurnCase` makes observations of your own
 * tools and handlers, and {@link suite} turns all laws into tests of `@effect/vitest` in one call.
 *
 * @since 0.1.0
 */
import type * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Turn from "../Turn.ts"
import type * as TurnContext from "../TurnContext.ts"
import * as TurnError from "../TurnError.ts"
import * as Judge from "./laws/judge.ts"
import type { Observation } from "./laws/observation.ts"
import * as Requests from "./laws/requests.ts"
import * as Simulation from "./Simulation.ts"
import * as TurnCase from "./TurnCase.ts"

/**
 * What was seen of turns that ran, and its parts.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type {
  Answer,
  BackendFacts,
  MergedFacts,
  Observation,
  ObservedRequest,
  ObservedTurn,
  ReportedOutcome,
  Sample,
  SeenEvent,
  ToolFacts
} from "./laws/observation.ts"

/**
 * What a law found: how many things it judged, and each breach in words, its rule first.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Judged = Judge.Judged

/**
 * A law: its name, the rules of the library that it states, what it says in one sentence, and its judgement.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Law {
  readonly name: string
  readonly rules: ReadonlyArray<string>
  readonly says: string
  readonly judge: (observation: Observation) => Judged
}

const law = (
  name: string,
  rules: ReadonlyArray<string>,
  says: string,
  judge: (observation: Observation) => Judged
): Law => ({ name, rules, says, judge })

/**
 * Every call gets exactly one answer, and it is never another one later.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const answeredOnce: Law = law(
  "answeredOnce",
  ["R1"],
  "every call gets exactly one answer, and it is never another one later",
  Judge.answeredOnce
)

/**
 * Answers stand in the order of the calls, and calls that conflict run in it.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const emissionOrder: Law = law(
  "emissionOrder",
  ["R1", "R12"],
  "answers stand in the order of the calls, and calls that conflict run in it",
  Judge.emissionOrder
)

/**
 * An outcome tells what its handler came to; what was started, and may have had an effect, is never told as not done, nor to be
 * tried again where that could double it.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const honest: Law = law(
  "honest",
  ["R3"],
  "an outcome tells what its handler came to, and what may have had an effect is never told as not done",
  Judge.honest
)

/**
 * The closing of a turn is told once, with the answers that were given.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const toldAsAnswered: Law = law(
  "toldAsAnswered",
  ["R4"],
  "the closing of a turn is told once, with the answers that were given",
  Judge.toldAsAnswered
)

/**
 * Runs of one tenant that conflict are never at work at the same time.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const noOverlap: Law = law(
  "noOverlap",
  ["R12"],
  "runs of one tenant that conflict are never at work at the same time",
  Judge.noOverlap
)

/**
 * A call waits for nothing but an earlier one that it conflicts with, a permit, and its turn's own limit.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const workConserving: Law = law(
  "workConserving",
  ["R12", "R14"],
  "a call waits for nothing but an earlier one that it conflicts with, a permit, and its turn's own limit",
  Judge.workConserving
)

/**
 * No backend, tenant and turn has more at work than its limit.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const limitsKept: Law = law(
  "limitsKept",
  ["R14"],
  "no backend, tenant and turn has more at work than its limit",
  Judge.limitsKept
)

/**
 * Permits are out only for handlers that are at work.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const permitsReturned: Law = law(
  "permitsReturned",
  ["R14"],
  "permits are out only for handlers that are at work",
  Judge.permitsReturned
)

/**
 * Nothing is at work after its turn was answered, but what was given up on when its grace had run out.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const noOrphans: Law = law(
  "noOrphans",
  ["R17", "R20"],
  "nothing is at work after its turn was answered, but what was given up on when its grace had run out",
  Judge.noOrphans
)

/**
 * After a stop, or the first failure of a turn that fails fast, nothing of the turn is started.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const nothingAfterStop: Law = law(
  "nothingAfterStop",
  ["R18", "R21"],
  "after a stop, or the first failure of a turn that fails fast, nothing of the turn is started",
  Judge.nothingAfterStop
)

/**
 * Limits of time are kept: on waiting, on running, on the whole turn.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const clocksKept: Law = law(
  "clocksKept",
  ["R15"],
  "limits of time are kept: on waiting, on running, on the whole turn",
  Judge.clocksKept
)

/**
 * A read that is at work when its turn is stopped is told to be stopped.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const stopsHeard: Law = law(
  "stopsHeard",
  ["R19", "R20"],
  "a read that is at work when its turn is stopped is told to be stopped",
  Judge.stopsHeard
)

/**
 * A write is never interrupted, but for one whose backend honours its idempotency key or can be asked about it.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const writesWhole: Law = law(
  "writesWhole",
  ["R20"],
  "a write without an idempotency key is never interrupted",
  Judge.writesWhole
)

/**
 * Writes that share an idempotency key have at most one effect, and what our own record alone guards is run again only where it is
 * known to have had none.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const onceAKey: Law = law(
  "onceAKey",
  ["R23"],
  "writes that share an idempotency key have one effect, and what only our record guards is not run again in doubt",
  Judge.onceAKey
)

/**
 * A write without an idempotency key never runs twice for one call.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const runsOnce: Law = law(
  "runsOnce",
  ["R24"],
  "a write without an idempotency key never runs twice for one call",
  Judge.runsOnce
)

/**
 * A request has nothing but keys that calls of its own tenant ask for.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const requestsApart: Law = law(
  "requestsApart",
  ["R28", "R35"],
  "a request has nothing but keys that calls of its own tenant ask for",
  Requests.requestsApart
)

/**
 * No request has more keys than its size, or a key twice.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const requestsSized: Law = law(
  "requestsSized",
  ["R28"],
  "no request has more keys than its size, or a key twice",
  Requests.requestsSized
)

/**
 * Calls of a turn that are ready together go in as few requests as their size allows.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const requestsFew: Law = law(
  "requestsFew",
  ["R28"],
  "calls of a turn that are ready together go in as few requests as their size allows",
  Requests.requestsFew
)

/**
 * A request is sent for calls that wait for it, and is at work no longer than they do, but for the grace.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const requestsWanted: Law = law(
  "requestsWanted",
  ["R17", "R28"],
  "a request is sent for calls that wait for it, and is at work no longer than they do, but for the grace",
  Requests.requestsWanted
)

/**
 * A call that was merged is answered with its own item.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const ownItems: Law = law(
  "ownItems",
  ["R28"],
  "a call that was merged is answered with its own item",
  Requests.ownItems
)

/**
 * No text for the model holds half a character.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const wholeTexts: Law = law(
  "wholeTexts",
  ["R29"],
  "no text for the model holds half a character",
  Judge.wholeTexts
)

/**
 * Every handler runs for the tenant of its turn.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const tenantsApart: Law = law(
  "tenantsApart",
  ["R35"],
  "every handler runs for the tenant of its turn",
  Judge.tenantsApart
)

/**
 * Every handler can know which call of which turn it serves.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const callsKnown: Law = law(
  "callsKnown",
  ["R35"],
  "every handler can know which call of which turn it serves",
  Judge.callsKnown
)

/**
 * All laws.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const all: ReadonlyArray<Law> = [
  answeredOnce,
  emissionOrder,
  honest,
  toldAsAnswered,
  noOverlap,
  workConserving,
  limitsKept,
  permitsReturned,
  noOrphans,
  nothingAfterStop,
  stopsHeard,
  clocksKept,
  writesWhole,
  onceAKey,
  runsOnce,
  requestsApart,
  requestsSized,
  requestsFew,
  requestsWanted,
  ownItems,
  wholeTexts,
  tenantsApart,
  callsKnown
]

/**
 * Each breach of some laws (default: {@link all}) in words, and what went wrong with the watching itself.
 *
 * @category judging
 * @since 0.1.0
 * @stability experimental
 */
export const broken = (observation: Observation, laws: ReadonlyArray<Law> = all): ReadonlyArray<string> => [
  ...observation.faults,
  ...laws.flatMap((law) => law.judge(observation).problems)
]

/**
 * Turns that ran broke laws: each breach in words, its rule first.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class LawsBroken extends Schema.TaggedError<LawsBroken>()("LawsBroken", {
  problems: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return this.problems.join("\n")
  }
}

/**
 * Fails with each breach of some laws (default: {@link all}), and with what went wrong with the watching itself.
 *
 * @category judging
 * @since 0.1.0
 * @stability experimental
 */
export const check = (
  observation: Observation,
  laws: ReadonlyArray<Law> = all
): Effect.Effect<void, LawsBroken> => {
  const problems = broken(observation, laws)
  return problems.length === 0 ? Effect.void : Effect.fail(new LawsBroken({ problems }))
}

/**
 * What a suite of laws is about.
 *
 * **Details**
 *
 * - `toolkit`, and `layer` with its handlers, its backends and what else they need. It is built anew for each run.
 * - `laws`: which laws. Default: {@link all}.
 * - `inputs`, `seeds`, `seed`, `budget`, `maxShrinks`, `replay`, `show`, `horizon`, `maxSteps`: as `Simulation.forAll` has them. Default:
 *   100 cases, each under 5 seeds.
 * - `cases`: what is generated, as `TurnCase.arbitrary` has it.
 * - `timeout`: of each test, in real milliseconds. Default: a minute.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface SuiteOptions<K extends Toolkit.Any, E> extends Simulation.ForAllOptions<TurnCase.TurnCase> {
  readonly toolkit: K
  readonly layer: Layer.Layer<Exclude<Turn.Services<K>, TurnContext.Tenant>, E>
  readonly laws?: ReadonlyArray<Law> | undefined
  readonly cases?: TurnCase.GenerateOptions | undefined
  readonly timeout?: number | undefined
}

/**
 * What a suite needs of `it` of `@effect/vitest`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Tester {
  readonly effect: (
    name: string,
    test: (context: { readonly skip: (note?: string) => unknown }) => Effect.Effect<void, unknown, Scope.Scope>,
    timeout?: number
  ) => void
}

/**
 * Makes a test of each law, for turns of your own tools: generated calls, latencies and stops, each case under several
 * interleavings.
 *
 * **Details**
 *
 * `it` is that of `@effect/vitest`. All laws judge the same runs. A law that had nothing to judge (there is no write, say) is
 * skipped, and says so; a tool that is never started, whatever it is called with, fails a test of its own. The message of a failing test has the smallest case and run that were found, and the `replay` to give
 * to this suite in order to repeat it.
 *
 * **Example** (In a test file)
 *
 * ```ts import.meta.vitest
 * import { describe, it } from "@effect/vitest"
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Backend, ToolPolicy } from "effect-turn"
 * import { Laws } from "effect-turn/testing"
 *
 * class Disk extends Backend.Service<Disk>()("app/Disk") {}
 * const parameters = Schema.Struct({ file: Schema.String })
 * const keys = ({ file }: { readonly file: string }) => [`file:${file}`]
 * const Load = pipe(Tool.make("load", { parameters }), ToolPolicy.read({ keys }), ToolPolicy.on(Disk))
 * const Save = pipe(Tool.make("save", { parameters }), ToolPolicy.write({ keys }), ToolPolicy.on(Disk))
 * const toolkit = Toolkit.make(Load, Save)
 * const wait = () => Effect.sleep("20 millis")
 * const handlers = toolkit.toLayer({ load: wait, save: wait })
 * const layer = Layer.merge(handlers, Disk.layer({ concurrency: 2 }))
 *
 * describe("our tools", () => Laws.suite(it, { toolkit, layer }))
 * ```
 *
 * @category testing
 * @since 0.1.0
 * @stability experimental
 */
export const suite = <K extends Toolkit.Any, E>(it: Tester, options: SuiteOptions<K, E>): void => {
  const { layer, toolkit } = options
  const laws = options.laws ?? all
  if (laws.length === 0 || Object.keys(toolkit.tools).length === 0) {
    throw TurnError.make(
      new TurnError.InvalidInput({
        what: "Laws.suite",
        expected: "at least one law and a toolkit with at least one tool",
        received: `${laws.length} laws and ${Object.keys(toolkit.tools).length} tools`
      })
    )
  }
  const timeout = options.timeout ?? 60_000
  const cases = TurnCase.arbitrary(toolkit, options.cases)
  const given = { show: TurnCase.show, ...options }
  const found = new Map(laws.map((law): [string, Found] => [law.name, { judged: 0, problems: [] }]))
  const tools = new Map(Object.keys(toolkit.tools).map((name): [string, Called] => [name, { called: 0, started: 0 }]))
  const kept = (laws: ReadonlyArray<Law>, look: (observation: Observation) => void) =>
    Simulation.forAll(
      cases,
      (turnCase) =>
        Effect.flatMap(TurnCase.run(toolkit, layer, turnCase), (observation) => {
          look(observation)
          return check(observation, laws)
        }),
      given
    )
  const exploring = kept([], (observation) => {
    for (const law of laws) {
      const before = found.get(law.name)!
      const { judged, problems } = law.judge(observation)
      found.set(law.name, {
        judged: before.judged + judged,
        problems: before.problems.length > 0 ? before.problems : problems
      })
    }
    count(tools, observation)
  })
  // The first test that runs explores, the others look at what it found.
  let explored: Exit.Exit<Simulation.Explored, Simulation.Falsified> | undefined
  const once = Effect.suspend(() =>
    explored === undefined
      ? Effect.map(Effect.exit(exploring), (exit) => (explored = exit))
      : Effect.succeed(explored)
  )
  // A runner notes a skip when it is told; that it throws besides would be logged as an error.
  const skipped = (skip: (note?: string) => unknown, note: string) =>
    Effect.ignoreCause(Effect.sync(() => {
      skip(note)
    }))
  it.effect("R1: every turn ends, and gives back what it held", () => Effect.asVoid(Effect.flatten(once)), timeout)
  it.effect("every tool is started: its schema takes what a model would write", () =>
    Effect.andThen(
      once,
      Effect.suspend(() => {
        const problems = Array.from(tools).flatMap(([name, { called, said, started }]) =>
          started > 0 || called < enough
            ? []
            : [`the tool ${JSON.stringify(name)} was called ${called} times and never started: ${said}`]
        )
        return problems.length === 0 ? Effect.void : Effect.fail(new LawsBroken({ problems }))
      })
    ), timeout)
  for (const law of laws) {
    it.effect(`${law.rules.join(", ")}: ${law.says}`, ({ skip }) =>
      Effect.gen(function*() {
        const exit = yield* once
        const { judged, problems } = found.get(law.name)!
        if (problems.length > 0) {
          // The same cases under the same seeds, for this law alone: it comes to the same failure, and makes it small.
          yield* kept([law], () => {})
          return yield* new LawsBroken({
            problems: [
              ...problems,
              "This was seen once, and not again: the handlers, or the law, take something from outside the simulation."
            ]
          })
        }
        if (exit._tag === "Failure") return yield* skipped(skip, "not every turn ended: see the first test")
        if (judged === 0) yield* skipped(skip, "there was nothing to judge")
      }), timeout)
  }
}

interface Found {
  readonly judged: number
  readonly problems: ReadonlyArray<string>
}

/** How often a tool was called and started, and what the first call that was not started was answered. */
interface Called {
  readonly called: number
  readonly started: number
  readonly said?: string
}

/** So many calls of a tool that are all refused say something of the tool. */
const enough = 20

const count = (tools: Map<string, Called>, observation: Observation): void => {
  for (const { answers = [], calls } of observation.turns) {
    calls.forEach(({ name }, position) => {
      const before = tools.get(name)
      const answer = answers[position]
      if (before === undefined || answer === undefined) return
      const { started, status } = answer.outcome
      // What waits for a human, or was stopped, says nothing of the tool.
      const refused = status === "error" && !started
      if (!started && !refused) return
      tools.set(name, {
        called: before.called + 1,
        started: before.started + (started ? 1 : 0),
        said: before.said ?? (refused ? JSON.stringify(answer.model) : undefined)!
      })
    })
  }
}

/**
 * How far {@link exhaust} goes.
 *
 * **Details**
 *
 * - `toolkit`, and `layer` with its handlers, its backends and what else they need. It is built anew for each run.
 * - `laws`: which laws. Default: {@link all}.
 * - `cases`: what is enumerated, as `TurnCase.enumerate` has it.
 * - `stops`: how turns are stopped, each at every point. Default: by an interruption. `[]` is no stop at all.
 * - `maxRuns`: the most runs. Default: 100,000.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ExhaustOptions<K extends Toolkit.Any, E> extends Simulation.Bounds {
  readonly toolkit: K
  readonly layer: Layer.Layer<Exclude<Turn.Services<K>, TurnContext.Tenant>, E>
  readonly laws?: ReadonlyArray<Law> | undefined
  readonly cases?: TurnCase.EnumerateOptions | undefined
  readonly stops?: ReadonlyArray<TurnCase.Stop["kind"]> | undefined
  readonly maxRuns?: number | undefined
}

/**
 * What enumerating came to, when nothing broke.
 *
 * **Details**
 *
 * - `cases`: how many lists of calls, under how many policies together.
 * - `runs`: each case without a stop, and with each stop at each point.
 * - `complete`: false when `maxRuns` came first.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Exhausted {
  readonly cases: number
  readonly runs: number
  readonly complete: boolean
}

/**
 * Runs every small turn of your own tools, with a stop at every point of each, and judges all of them.
 *
 * **Details**
 *
 * A point is a place between two operations of fibers at which a stop can come: for a turn of two calls there are some dozens. It
 * fails with the first case and stop that break a law.
 *
 * **Example** (Two calls, all stops)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolPolicy } from "effect-turn"
 * import { Laws } from "effect-turn/testing"
 *
 * const Save = pipe(
 *   Tool.make("save", { parameters: Schema.Struct({ file: Schema.String }) }),
 *   ToolPolicy.write({ keys: ({ file }) => [`file:${file}`] })
 * )
 * const toolkit = Toolkit.make(Save)
 * const layer = toolkit.toLayer({ save: () => Effect.sleep(5) })
 *
 * const { cases, complete, runs } = await Effect.runPromise(Laws.exhaust({ toolkit, layer }))
 * const many = complete && cases === 4 && runs > 100 // => true
 * ```
 *
 * @category judging
 * @since 0.1.0
 * @stability experimental
 */
export const exhaust = <K extends Toolkit.Any, E>(
  options: ExhaustOptions<K, E>
): Effect.Effect<Exhausted, Simulation.Falsified> =>
  Effect.gen(function*() {
    const { layer, toolkit } = options
    const laws = options.laws ?? all
    const maxRuns = TurnError.wholeNumber("Laws.exhaust", "maxRuns", options.maxRuns ?? 100_000)
    const cases = yield* TurnCase.enumerate(toolkit, options.cases)
    let runs = 0
    const judged = (turnCase: TurnCase.TurnCase) =>
      Effect.suspend(() => {
        runs++
        return Simulation.runCase(
          Effect.tap(
            TurnCase.watch(toolkit, layer, turnCase),
            ({ observation }) => check(observation, laws)
          ),
          TurnCase.show(turnCase),
          runs,
          options
        )
      })
    for (const turnCase of cases) {
      if (runs >= maxRuns) return { cases: cases.length, runs, complete: false }
      const { from, to } = yield* judged(turnCase)
      for (const kind of options.stops ?? ["interrupt"]) {
        for (let point = from + 1; point <= to; point++) {
          if (runs >= maxRuns) return { cases: cases.length, runs, complete: false }
          const [turn] = turnCase.turns
          yield* judged({ turns: [{ ...turn!, stop: { kind, at: 0, point, position: 0 } }] })
        }
      }
    }
    return { cases: cases.length, runs, complete: true }
  })
