/**
 * Scenario files: fake tools, turns of calls, things that happen while they run, and what must come out, as data. A
 * scenario runs in virtual time: nothing waits for real seconds, and the same file gives the same report every time.
 *
 * {@link runText} runs the text of a file, {@link run} a scenario that is a value already, and `effect-turn scenario`
 * files on the command line. {@link explore} runs one under many interleavings of its fibers, as `effect-turn scenario
 * --explore N` does, and {@link fromTurn} makes one of a turn that has really run. The rest of this page is the format. An unknown field makes the file invalid at every depth;
 * fields with `?` may be left out. Times are whole milliseconds, limits are from 1 to 2^31-1 (`graceMs` from 0), and a
 * limit that the file does not name is off, whatever the library's own default.
 *
 * **The file**
 *
 * - `name`: small letters, digits and dashes. The file has to be called after it: `two-reads` stands in `two-reads.json`.
 * - `why`: the fault that the scenario guards against.
 * - `tools`: name → tool, at least one.
 * - `backends?`: name → `{concurrency, perTenant?, queueLimit?, rate?: {limit, windowMs}}`. A backend that a tool names and that is not here has no
 *   bound.
 * - `policy?`: what holds for every turn.
 * - `turns`: at least one. They run one after another on the same runtime and backends.
 * - `concurrent?`: `true` starts all turns at time 0, or at their `startAtMs`.
 * - `expect`: what must come out.
 *
 * **A tool**: all fields may be left out
 *
 * - `access`: `"read"` or `"write"` (default).
 * - `keys`: list of templates; `[]` touches nothing shared; absent is unknown reach. In a template `{hotel}` is the
 *   argument `hotel`, and `{guest.id}` a member of one. What is no text is written as JSON, what is not there as nothing.
 * - `backend`: a name.
 * - `parameters`: JSON Schema of the arguments; absent or `true` is any object.
 * - `timeoutMs`, `queueTimeoutMs`: the limits of running and of waiting.
 * - `idempotency`: `"none"` (default); `"forward"`: the backend counts one effect a key; `"record"`: the library's own record alone
 *   guards it. The records are kept in one store for the whole file, with a lease of 30 seconds. `idempotencyKey` is the key's
 *   template; default: the tool's name with its arguments.
 * - `retry`: `{max, delayMs?, jitter?}`: up to `max` retries of a failure that is safe to retry, each after `delayMs` (default 0) and
 *   what a refusal asks for; `jitter: true` makes each pause up to half as long again.
 * - `approval`: `true` holds every call. `repeatable`: `true` never merges identical calls.
 * - `placeholders`: `"detect"` (default), `"off"`, or `{literal: [names of arguments]}`.
 * - `batch`: `{into, windowMs?, maxSize?}`: its calls are merged into requests to the list that the tool `into` stands for, whose behaviour
 *   has to be `items`. A request has at most `maxSize` keys (default 10), of one tenant; a key is the arguments of a call, and so is its
 *   item. It takes one permit of the backend of `into`, or else of the tool that is merged, and may run for the `timeoutMs` of `into`. Such a tool is a
 *   read, and has no behaviour of its own. All tools of one list say the same `windowMs` (default 5) and `maxSize`.
 * - `behaviour`: one, or a list: the n-th execution takes the n-th, the last one repeats. Where any of the list has a
 *   `when`, the first that fits the arguments is taken, one without `when` fits always, and where none fits the tool
 *   answers `ok`.
 *
 * **A behaviour**: `{type, latencyMs?, effectAtMs?, when?, ignoresInterrupt?, …}`
 *
 * `latencyMs` (default 10) is how long it works. `effectAtMs` is when a write's effect lands; default: the end for `ok`,
 * `returnRaw`, `callsTools`, `rateLimited` and `failAfterEffect`, never for the others. An effect that would land after the end, or after
 * a stop, does not. `when` has some of the arguments, with their values. `ignoresInterrupt: true` works on to its end although
 * it was stopped.
 *
 * - `ok`: answers `result` (default `{"ok": true}`).
 * - `fail`: fails with `error` (default `"failed"`), and says that nothing was changed: no effect lands, whatever
 *   `effectAtMs` says. The outcome's effect is `none`.
 * - `failUnknown`: fails with `error`, and says nothing of its effect. A write's outcome has the effect `unknown`.
 * - `failAfterEffect`: the same to its caller, and the effect has landed.
 * - `throw`: dies with `thrown`, which is required; `"undefined"` stands for undefined.
 * - `hang`: never ends by itself.
 * - `selfInterrupt`: interrupts itself.
 * - `returnRaw`: answers what JSON cannot hold; `result` is `"undefined"`, `"bigint"`, `"circular"`, `"date"` or `"nan"`.
 * - `rateLimited`: fails as rate-limited, with `retryAfterMs`, where it starts before the time `untilMs` of the whole file; then `ok`.
 * - `callsTools`: runs `calls` as a nested turn and answers their outcomes. The `policy` holds there too, but for its
 *   deadline.
 * - `items`: of a list, answers a request with what was asked for. `missing` (a list of arguments) leaves some out, `failing` fails some
 *   with `error`, `shuffled: true` turns the answer round, `short: true` leaves out the last and gives the others no key. The n-th request takes the
 *   n-th of a list of these; one with a `when` is for requests with a key that fits. A call of this tool itself is answered by its own handler, alone:
 *   with the list of the entries of its one argument that is a list, or of its arguments where there is none, and `{error, of}` for those
 *   that fail.
 *
 * A failure of `failUnknown` and `failAfterEffect` is transient: its call is retryable where that doubles no effect (a
 * read, or a write with `forward`). One of `fail` is transient where the tool has a `retry`, as in `{"max": 0}`. One of `rateLimited`
 * says that nothing was changed.
 *
 * `FakeTool` takes nearly the same behaviours for real tools, with differences: the failure is called `failure` there and
 * `error` here; how a failure is classed there is the tool's own `ToolPolicy.failures`, so that there is one `fail`;
 * `effectAtMs` may be `"end"` there; a nested turn is an effect, `runs`; and arguments that no `when` fits die there.
 *
 * **A turn**
 *
 * - `calls`: list of `{id, name, arguments, providerExecuted?}`. `arguments` is an object, or the text that the model
 *   wrote. `id` may be `""`.
 * - `startAtMs?`: starts no earlier. `tenant?`: default `"default"`.
 * - `finishReason?`: `"tool-calls"`, `"stop"`; cut short: `"length"`, `"content-filter"`, `"error"`.
 * - `events?`: list of `{type, atMs}`, with `atMs` from the turn's start. `cancelTurn`; `cancelCall` with the `id` of a
 *   call; `interrupt` of the fiber that runs the turn; `approve` and `deny` (with a `reason?`) with the `id` of a call that is held;
 *   `crash`. What comes after the answer still happens, before the next turn starts.
 * - `resume?`: `true` asks again for the turn before, with `calls` left out, or the same again, and with what was decided since.
 *   Nothing runs twice.
 *
 * A `crash` ends all turns that run, without an answer: nothing of them goes on, no effect lands any more, and what they hold is gone.
 * What comes next runs in a new process, with the records of idempotency keys and parked turns alone.
 *
 * **The policy**
 *
 * `siblings` (`"letFinish"`, `"failFast"`), `execution` (`"parallel"`, `"sequential"` or a number), `dedupe` (`"all"`,
 * `"reads"`, `"off"`), `deadlineMs`, `graceMs` (of reads and writes alike), `nameRepair`, `references`: as `Turn.Options` says.
 *
 * **What to expect**: what is not named is not checked
 *
 * - `outcomes`: for each turn a list with one entry for each call, in emission order, of any of `id`, `status`, `code`,
 *   `started`, `effect`, `retryable`, `duplicateOf`, `replayed`, `result`; null for a turn that crashed. `result` is compared whole,
 *   and a code has to be one of the status.
 * - `executions`: tool → starts of its handler; a call that was merged has none. `requests`: list → requests to it for calls that were merged.
 * - `effects`: tool → effects that landed, also after the answer.
 * - `peak`: backend → the most handlers and requests that were at work at once; one that waits for its nested calls is not running.
 * - `before`: pairs of ids: the first had ended when the second started, or in that instant. `overlap`: both ran at the
 *   same time, for longer than an instant. Where turns share an id, `"0/c1"` is the one of turn 0.
 * - `elapsedMs`: `{min?, max?}` of the time of the last answer. `runningAfter`: handlers still at work at that moment.
 *
 * **What is checked in every scenario.** A failure of these starts with its label:
 *
 * - R1: each call has one outcome, in emission order, and every turn ends.
 * - R3: no outcome denies a start or an effect that was seen.
 * - R4: `onClosed` was told once.
 * - R12: conflicting runs of one tenant were apart, and those of one turn in order.
 * - R14: permits were out only for handlers and requests at work.
 * - R17: nothing started, or was at work, after the answer; with a `graceMs`, R20: not before it had run out.
 * - R20, R24: a write without `forward` was not interrupted, and a write without a key not run twice for one call.
 * - R23: an idempotency key had one effect; one of `record` was run again only where it had certainly had none.
 * - R28: a request had keys of its own tenant's calls alone, as many as its size at most, and was at work only as long as they waited; calls that
 *   were ready together went in as few as that allows; each was answered with its own item.
 * - R29: no result is longer than its budget, nor all of a turn than the turn's; no text for the model has half a character.
 * - R35: each handler knew which call of which turn it serves.
 * - R36: the runtime shut down.
 *
 * **Example** (A stop does not cut a write short)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Scenario } from "effect-turn/testing"
 *
 * const text = JSON.stringify({
 *   name: "stop-while-booking",
 *   why: "A stop must not cut a booking short, nor lose its answer.",
 *   tools: {
 *     look: { access: "read", keys: ["hotel:{hotel}"], behaviour: { type: "hang" } },
 *     book: { keys: ["hotel:{hotel}"], behaviour: { type: "ok", latencyMs: 50, result: "booked" } }
 *   },
 *   turns: [{
 *     calls: [
 *       { id: "a", name: "book", arguments: { hotel: "Tejo" } },
 *       { id: "b", name: "look", arguments: { hotel: "Tejo" } },
 *       { id: "c", name: "look", arguments: { hotel: "Alfama" } }
 *     ],
 *     events: [{ type: "cancelTurn", atMs: 10 }]
 *   }],
 *   expect: {
 *     outcomes: [[
 *       { status: "ok", effect: "applied", result: "booked" },
 *       { status: "cancelled", code: "by_caller", started: false },
 *       { status: "cancelled", code: "by_caller", started: true, effect: "none" }
 *     ]],
 *     effects: { book: 1 },
 *     elapsedMs: { min: 50, max: 50 }
 *   }
 * })
 * const report = await Effect.runPromise(Scenario.runText("stop-while-booking.json", text))
 * const failures = report.failures // => []
 * ```
 *
 * @since 0.1.0
 */
import type * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import * as Result from "effect/Result"
import * as TurnError from "../TurnError.ts"
import * as Check from "./scenario/check.ts"
import * as Expect from "./scenario/expect.ts"
import * as Explore from "./scenario/explore.ts"
import * as Generate from "./scenario/generate.ts"
import * as Recording from "./scenario/record.ts"
import type * as Recorded from "./scenario/recorded.ts"
import * as Reports from "./scenario/report.ts"
import * as Run from "./scenario/run.ts"
import * as Form from "./scenario/schema.ts"

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

const judge: Explore.Judge = (scenario, observed) => [
  ...Check.rules(scenario, observed),
  ...Expect.unmet(scenario, observed)
]

const report = (file: string, scenario: Form.Scenario): Effect.Effect<Report> =>
  Effect.map(Run.run(scenario), ({ observed }) => Reports.make(file, observed, judge(scenario, observed)))

const exploration = (
  file: string,
  scenario: Form.Scenario,
  options: ExploreOptions | undefined
): Effect.Effect<Report> =>
  Effect.map(Explore.explore(scenario, judge, options), ({ explored, failures, observed }) => ({
    ...Reports.make(file, observed, failures),
    explored
  }))

/**
 * Runs a scenario in virtual time and reports it.
 *
 * **Details**
 *
 * It never fails: what was not met stands in `failures`. A turn that hangs is reported, not
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
export const runText = (fileName: string, text: string): Effect.Effect<Report> => ofText(fileName, text, report)

/** Reads the text of a file, and reports it when it is no scenario. */
const ofText = (
  fileName: string,
  text: string,
  run: (file: string, scenario: Form.Scenario) => Effect.Effect<Report>
): Effect.Effect<Report> => {
  const file = fileName.split(/[\\/]/).at(-1) ?? fileName
  const scenario = Result.flatMap(
    Result.mapError(parse(text), (problem): ReadonlyArray<string> => [problem]),
    Form.read
  )
  if (Result.isFailure(scenario)) return Effect.succeed(Reports.notRun(file, scenario.failure))
  const base = file.replace(/\.json$/, "")
  const { name } = scenario.success
  return name === base ? run(file, scenario.success) : Effect.succeed(
    Reports.notRun(file, [`name: expected the file's base name ${TurnError.show(base)}, got ${TurnError.show(name)}`])
  )
}

/**
 * How much a scenario is explored.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ExploreOptions = Reports.ExploreOptions

/**
 * Runs a scenario in the natural order and then under many interleavings, until one of them fails.
 *
 * **Details**
 *
 * Each seed is another order of everything that the format leaves open: which of the fibers that can go on does so, where
 * they give way, what comes first of all that is due at one moment. An event of a turn still comes after all that ends in
 * its moment. In each run the expectations are checked, and the rules that always hold.
 *
 * The first run that fails is made small, and the report's `explored.found` tells what differs from the natural run, which
 * `replay` repeats it, and what ran when. When the natural run itself fails, that is what is reported, and nothing is
 * explored. It never fails; options that cannot be are thrown at once, as a `TurnError`.
 *
 * **Gotchas**
 *
 * An expectation may hold in the natural order by accident. Where two things fall on one moment, either may come first:
 * give them moments of their own, or do not expect the one.
 *
 * **Example** (An end and a timeout at one moment)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Scenario } from "effect-turn/testing"
 *
 * const scenario = await Effect.runPromise(Scenario.decode({
 *   name: "in-time",
 *   why: "A search that takes as long as it may is in time.",
 *   tools: { search: { access: "read", keys: [], timeoutMs: 20, behaviour: { type: "ok", latencyMs: 20 } } },
 *   turns: [{ calls: [{ id: "a", name: "search", arguments: {} }] }],
 *   expect: { outcomes: [[{ status: "ok" }]] }
 * }))
 *
 * const alone = (await Effect.runPromise(Scenario.run(scenario))).pass // => true
 * const report = await Effect.runPromise(Scenario.explore(scenario, { seeds: 50 }))
 * const difference = report.explored!.found!.differences[0] // => 'turn 0, call 0 ("a"): status: "ok" in the natural order, "timeout" here'
 * const { replay } = report.explored!.found!
 * const again = (await Effect.runPromise(Scenario.explore(scenario, { replay }))).failures.length // => 1
 * ```
 *
 * @category exploring
 * @since 0.1.0
 * @stability experimental
 */
export const explore: {
  (options?: ExploreOptions): (scenario: Form.Scenario) => Effect.Effect<Report>
  (scenario: Form.Scenario, options?: ExploreOptions): Effect.Effect<Report>
} = dual(
  (args) => typeof args[0] === "object" && "turns" in args[0],
  (scenario: Form.Scenario, options?: ExploreOptions): Effect.Effect<Report> =>
    exploration(`${scenario.name}.json`, scenario, options)
)

/**
 * Explores the text of a scenario file, as {@link explore} does, and reports it also when it is no scenario at all.
 *
 * @category exploring
 * @since 0.1.0
 * @stability experimental
 */
export const exploreText = (fileName: string, text: string, options?: ExploreOptions): Effect.Effect<Report> =>
  ofText(fileName, text, (file, scenario) => exploration(file, scenario, options))

/**
 * Generates scenarios: tools with policies of all kinds, behaviours, backends, calls and stops, and nothing expected, so that the
 * rules that always hold are what is checked. A failing one shrinks towards few calls of plain tools, and is a file as it stands.
 *
 * **Details**
 *
 * `maxTurns` (default 3) and `maxCalls` of a turn (default 7) are whole numbers from 1.
 *
 * **Example** (Whatever happens)
 *
 * ```ts import.meta.vitest
 * import { Arbitrary, Effect } from "effect"
 * import { Scenario } from "effect-turn/testing"
 *
 * const keepsTheRules = (scenario: typeof Scenario.Scenario.Type) =>
 *   Effect.map(Scenario.explore(scenario, { seeds: 3 }), (report) => report.pass)
 * const checked = await Effect.runPromise(Arbitrary.checkEffect(Scenario.arbitrary(), keepsTheRules, { runs: 20, seed: 1 }))
 * const passed = checked._tag // => "Passed"
 * ```
 *
 * @category generating
 * @since 0.1.0
 * @stability experimental
 */
export const arbitrary = (options?: {
  readonly maxTurns?: number | undefined
  readonly maxCalls?: number | undefined
}): Arbitrary.Arbitrary<Form.Scenario> =>
  Generate.scenario(
    TurnError.wholeNumber("Scenario.arbitrary", "maxTurns", options?.maxTurns ?? 3),
    TurnError.wholeNumber("Scenario.arbitrary", "maxCalls", options?.maxCalls ?? 7)
  )

/**
 * What a team has recorded of one turn, as {@link fromTurn} takes it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type RecordedTurn = Recorded.RecordedTurn

/**
 * How a recorded turn is written as a scenario.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type FromTurnOptions = Recording.FromTurnOptions

/**
 * A scenario made of a recorded turn. `notes` says what of the turn is not in it, one sentence each.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FromTurn {
  readonly scenario: Form.Scenario
  readonly notes: ReadonlyArray<string>
}

/**
 * Makes a scenario of a turn that has really run: from its calls, its tools' policies, its events and its outcomes.
 *
 * **When to use**
 *
 * A turn went wrong in production, or nearly: record it with `onEvent`, make a file of it, and correct what it expects. Or
 * one went well, and shall go on to.
 *
 * **Details**
 *
 * Running the scenario passes: its fake tools take as long as the real handlers did and answer the same, the turn is stopped
 * when it was, and what is expected are the outcomes and how often each tool was started. A tool's `keys` become templates
 * over the arguments where templates give the same keys; where none do, each call of the tool touches all the keys that
 * its calls had. What the format cannot say is told in `notes`: whatever the scenario answers otherwise because of it is
 * left out of `expect`.
 *
 * No handler is run, and of the tools only what decides keys. It fails with an `InvalidScenario` when the name is none, or
 * when there is not one outcome for each call.
 *
 * **Gotchas**
 *
 * `redact` hides what the tools gave, and not the arguments, on which keys depend: look through them before you share a file.
 * Of other turns that ran at the same time nothing is known: what a call waited for because of them is not waited for.
 *
 * **Example** (A recorded search)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn, type TurnEvent } from "effect-turn"
 * import { Scenario } from "effect-turn/testing"
 *
 * const Search = pipe(
 *   Tool.make("search", { parameters: Schema.Struct({ city: Schema.String }), success: Schema.Finite }),
 *   ToolPolicy.read({ keys: ({ city }) => [`rooms:${city}`] })
 * )
 * const toolkit = Toolkit.make(Search)
 * const handlers = toolkit.toLayer({ search: ({ city }) => Effect.succeed(city.length) })
 * const calls = [ToolCall.make("c1", "search", { city: "Lisbon" }), ToolCall.make("c2", "search", { town: "Porto" })]
 *
 * const program = Effect.gen(function*() {
 *   const events: Array<TurnEvent.TurnEvent> = []
 *   const outcomes = yield* Turn.run(toolkit, calls, { onEvent: (event) => events.push(event) })
 *   return yield* Scenario.fromTurn({ toolkit, calls, events, outcomes }, { name: "search-lisbon", why: "It did well." })
 * }).pipe(Effect.provide(Layer.merge(handlers, Turn.layer())))
 *
 * const { notes, scenario } = await Effect.runPromise(program)
 * const nothing = notes // => []
 * const keys = scenario.tools["search"]!.keys // => ["rooms:{city}"]
 * const expected = scenario.expect.outcomes!.flatMap((list) => list!.map(({ status }) => status)) // => ["ok", "error"]
 * const { pass } = await Effect.runPromise(Scenario.run(scenario))
 * const passes = pass // => true
 * ```
 *
 * @category recording
 * @since 0.1.0
 * @stability experimental
 */
export const fromTurn = (
  recorded: RecordedTurn,
  options: FromTurnOptions
): Effect.Effect<FromTurn, Form.InvalidScenario> => {
  const { calls, outcomes } = recorded
  if (calls.length !== outcomes.length) {
    const problems = [`outcomes: expected one for each of ${calls.length} calls, got ${outcomes.length}`]
    return Effect.fail(new Form.InvalidScenario({ problems }))
  }
  return Effect.flatMap(
    Recording.fromTurn(recorded, options, judge),
    ({ notes, scenario }) => Effect.map(decode(scenario), (scenario) => ({ scenario, notes }))
  )
}
