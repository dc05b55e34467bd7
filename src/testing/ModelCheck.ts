/**
 * How a model uses the tools that it is given, over a set of prompts: whether it asks for many things in one call of a list tool, or in
 * many calls of its single twin.
 *
 * Descriptions of tools are programs for a model, and nothing else tests them. What is judged here are the events of turns: which tools
 * were called, how often, in how many steps. A model does not do the same every time, so each prompt can be run several times, and a share
 * of the runs has to be right. It runs on the scripted model of `FakeModel` and on every `LanguageModel` alike.
 *
 * - **C1** A check that has checked nothing fails: no prompts, no events, or no call of either tool.
 * - **C2** A program that fails, or dies, is a run that is not right; the others are run all the same.
 *
 * @since 0.1.0
 */
import * as Prompt from "effect/ai/Prompt"
import type * as Tool from "effect/ai/Tool"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as Agent from "../Agent.ts"
import * as TurnError from "../TurnError.ts"
import type * as TurnEvent from "../TurnEvent.ts"

/**
 * One run of one prompt.
 *
 * **Details**
 *
 * - `calls`: tool → how often the model called it, whatever became of the call. Calls inside handlers are not the model's of this run.
 * - `steps`: in how many answers of the model there were calls.
 * - `events`: how many events the program has told. None at all, of one that succeeds: it does not pass `onEvent` on.
 * - `right`: whether it did as it should. `failure`: how the program ended, where it did not succeed.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const Ran = Schema.Struct({
  prompt: Schema.Int,
  text: Schema.String,
  run: Schema.Int,
  calls: Schema.Record(Schema.String, Schema.Int),
  steps: Schema.Int,
  events: Schema.optionalKey(Schema.Int),
  right: Schema.Boolean,
  failure: Schema.optionalKey(Schema.String)
})

/**
 * One run of one prompt, as {@link Ran} says.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Ran = typeof Ran.Type

/**
 * What a check has seen: every run, and how many were right. `atLeast` is the share of them that has to be.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const Report = Schema.Struct({
  list: Schema.String,
  single: Schema.String,
  prompts: Schema.Int,
  repeat: Schema.Int,
  atLeast: Schema.Finite,
  right: Schema.Int,
  runs: Schema.Array(Ran)
})

/**
 * What a check has seen, as {@link Report} says.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Report = typeof Report.Type

/**
 * Too few runs were right, or nothing was checked. Its message names the prompts, and what the model did.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class ModelCheckFailed extends Schema.TaggedError<ModelCheckFailed>()("ModelCheckFailed", { report: Report }) {
  override get message(): string {
    return show(this.report)
  }
}

/**
 * What {@link oneListCall} takes.
 *
 * **Details**
 *
 * - `prompts`: questions that ask for several things.
 * - `list`, `single`: the tool that takes a list and its twin for one item, or their names.
 * - `program`: runs a prompt and tells all events: those of an agent, or those of turns.
 * - `repeat`: how often each prompt is run. Default: once.
 * - `atLeast`: the share of runs that has to be right, above 0 and up to 1. Default: 1, all of them.
 * - `maxListCalls`: how often the list tool may be called in a run; once by default. More are right where its cap is below what is asked for.
 * - `concurrency`: how many runs at once. Default: one after another, as a scripted model needs it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<Program extends Effect.Effect<unknown, unknown, unknown>> {
  readonly prompts: ReadonlyArray<Prompt.RawInput>
  readonly list: Tool.Any | string
  readonly single: Tool.Any | string
  readonly program: (
    prompt: Prompt.RawInput,
    onEvent: (event: { readonly _tag: string }) => void
  ) => Program
  readonly repeat?: number | undefined
  readonly atLeast?: number | undefined
  readonly maxListCalls?: number | undefined
  readonly concurrency?: number | undefined
}

const nameOf = (tool: Tool.Any | string): string => (typeof tool === "string" ? tool : tool.name)

/** The last words of a human in a prompt. */
const textOf = (prompt: Prompt.RawInput): string => {
  if (typeof prompt === "string") return prompt
  const asked = Prompt.make(prompt).content.findLast((message) => message.role === "user")
  return asked?.content.flatMap((part) => part.type === "text" ? [part.text] : []).join(" ") ?? ""
}

/** The calls of one run, from its events. What runs inside a handler tells its own. */
class Seen {
  readonly calls = new Map<string, number>()
  readonly turns = new Set<string>()
  events = 0

  readonly take = (event: { readonly _tag: string }): void => {
    this.events++
    const given = event as Agent.TurnReported | TurnEvent.TurnEvent
    const told = given._tag === "TurnReported" ? given.event : given
    if (told._tag !== "CallEnded") return
    this.calls.set(told.tool, (this.calls.get(told.tool) ?? 0) + 1)
    this.turns.add(told.turn)
  }
}

/**
 * Checks that a model asks for many things with one call of a list tool, and not with many calls of its single twin.
 *
 * **Details**
 *
 * A run is right when the list tool was called, at most `maxListCalls` times, and its twin never. Calls that were refused count too: the
 * model made them. It fails with {@link ModelCheckFailed} when fewer than `atLeast` of the runs were right, and when no run has called
 * either tool. A share, a number of runs or a limit that cannot be is refused where it is written: a `TurnError` is thrown, and nothing runs.
 *
 * **Interruption** interrupts the program.
 *
 * **Example** (A prompt, asked twice)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Agent, ToolPolicy, Turn } from "effect-turn"
 * import { FakeModel, ModelCheck } from "effect-turn/testing"
 *
 * const One = pipe(Tool.make("get_order", { parameters: Schema.Struct({ id: Schema.String }) }), ToolPolicy.read({ keys: () => [] }))
 * const Many = pipe(
 *   Tool.make("get_orders", { parameters: Schema.Struct({ ids: Schema.Array(Schema.String) }) }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const toolkit = Toolkit.make(One, Many)
 * const handlers = toolkit.toLayer({ get_order: () => Effect.void, get_orders: () => Effect.void })
 *
 * // In place of the script: the layer of your provider's model.
 * const script = [FakeModel.calls([FakeModel.call(Many, { ids: ["a", "b"] })]), FakeModel.text("Both are on their way.")]
 * const model = FakeModel.layer([...script, ...script])
 *
 * const report = await ModelCheck.oneListCall({
 *   prompts: ["Where are the orders a and b?"],
 *   repeat: 2,
 *   atLeast: 0.9,
 *   list: Many,
 *   single: One,
 *   program: (prompt, onEvent) => Agent.run({ prompt, toolkit, onEvent })
 * }).pipe(Effect.provide(Layer.mergeAll(model, handlers, Turn.layer())), Effect.runPromise)
 *
 * const right = report.right // => 2
 * ```
 *
 * @category checking
 * @since 0.1.0
 * @stability experimental
 */
export const oneListCall = <Program extends Effect.Effect<unknown, unknown, unknown>>(
  options: Options<Program>
): Effect.Effect<Report, ModelCheckFailed, Effect.Services<Program>> => {
  type R = Effect.Services<Program>
  const owner = "ModelCheck.oneListCall"
  const [list, single] = [nameOf(options.list), nameOf(options.single)]
  const repeat = TurnError.wholeNumber(owner, "repeat", options.repeat ?? 1)
  const concurrency = TurnError.wholeNumber(owner, "concurrency", options.concurrency ?? 1)
  const most = TurnError.wholeNumber(owner, "maxListCalls", options.maxListCalls ?? 1)
  const atLeast = options.atLeast ?? 1
  const refuse = (what: string, expected: string, received: string) => {
    throw TurnError.make(new TurnError.InvalidInput({ what: `${owner}: ${what}`, expected, received }))
  }
  if (!(atLeast > 0 && atLeast <= 1)) refuse("atLeast", "a share above 0 and up to 1", TurnError.show(atLeast))
  if (list === single) refuse("list and single", "two tools", `${JSON.stringify(list)} for both`)

  const once = (prompt: Prompt.RawInput, number: number, run: number): Effect.Effect<Ran, never, R> =>
    Effect.suspend(() => {
      const seen = new Seen()
      return Effect.map(
        ended(Effect.suspend(() => options.program(prompt, seen.take) as Effect.Effect<unknown, unknown, R>)),
        (failure): Ran => {
          const called = seen.calls.get(list) ?? 0
          return {
            prompt: number,
            text: textOf(prompt),
            run,
            calls: Object.fromEntries(seen.calls),
            steps: seen.turns.size,
            events: seen.events,
            right: failure === undefined && called >= 1 && called <= most && !seen.calls.has(single),
            ...(failure === undefined ? undefined : { failure })
          }
        }
      )
    })

  const all = options.prompts.flatMap((prompt, index) =>
    Array.from({ length: repeat }, (_, run) => once(prompt, index + 1, run + 1))
  )
  return Effect.flatMap(Effect.all(all, { concurrency }), (runs) => {
    const right = runs.filter((run) => run.right).length
    const report: Report = { list, single, prompts: options.prompts.length, repeat, atLeast, right, runs }
    return checked(report) && right / runs.length >= atLeast
      ? Effect.succeed(report)
      : Effect.fail(new ModelCheckFailed({ report }))
  })
}

/** How a program ended, where it did not succeed. Its interruption is that of the check. */
const ended = <E, R>(program: Effect.Effect<unknown, E, R>): Effect.Effect<string | undefined, never, R> =>
  Effect.flatMap(Effect.exit(program), (exit) => {
    if (Exit.isSuccess(exit)) return Effect.succeed(undefined)
    if (Cause.hasInterruptsOnly(exit.cause)) return Effect.interrupt
    return Effect.succeed(Cause.pretty(exit.cause).split("\n")[0]!)
  })

/** The program ran, and told nothing: an agent and a turn tell at least that they have begun. */
const untold = ({ events, failure }: Ran): boolean => events === 0 && failure === undefined

const touched = ({ list, single }: Report, { calls }: Ran): boolean =>
  Object.hasOwn(calls, list) || Object.hasOwn(calls, single)

const checked = (report: Report): boolean => report.runs.some((run) => touched(report, run))

const times = (n: number): string => n === 1 ? "once" : `${n} times`

const percent = (share: number): string => `${Math.round(share * 1000) / 10}%`

/** What the model did in a run, the two tools first. */
const did = (report: Report, ran: Ran): string => {
  const { calls, failure, steps } = ran
  const names = [report.list, report.single, ...Object.keys(calls)].filter((name, i, all) =>
    Object.hasOwn(calls, name) && all.indexOf(name) === i
  )
  const called = names.map((name) => `${name} ${times(calls[name]!)}`).join(", ")
  const inSteps = called === ""
    ? untold(ran) ? "no event came: is onEvent passed on?" : "no calls at all"
    : `${called}, in ${steps} ${steps === 1 ? "step" : "steps"}`
  const neither = called !== "" && !touched(report, ran) ? "; neither of the two" : ""
  return `${inSteps}${neither}${failure === undefined ? "" : `; the program failed: ${failure}`}`
}

/**
 * A report in words: the sum in the first line, then a line for each run that was not right, with its prompt and what the model did.
 *
 * **Example** (One of two)
 *
 * ```ts import.meta.vitest
 * import { ModelCheck } from "effect-turn/testing"
 *
 * const both = { text: "Where are a and b?", steps: 1, prompt: 1 }
 * const text = ModelCheck.show({
 *   list: "get_orders",
 *   single: "get_order",
 *   prompts: 1,
 *   repeat: 2,
 *   atLeast: 1,
 *   right: 1,
 *   runs: [
 *     { ...both, run: 1, calls: { get_orders: 1 }, right: true },
 *     { ...both, run: 2, calls: { get_order: 2 }, right: false }
 *   ]
 * })
 * const last = text.split("\n")[1] // => `prompt 1, "Where are a and b?", run 2: get_order 2 times, in 1 step`
 * ```
 *
 * @category showing
 * @since 0.1.0
 * @stability experimental
 */
export const show = (report: Report): string => {
  const { atLeast, list, prompts, repeat, right, runs, single } = report
  const expected = `expected calls of ${list} in place of calls of ${single}`
  if (runs.length === 0) return `${expected}, and there were no prompts: nothing was checked`
  const asked = `${runs.length} runs (${prompts} ${prompts === 1 ? "prompt" : "prompts"}, each ${times(repeat)})`
  const sum = `${expected} in ${atLeast === 1 ? "all" : `at least ${percent(atLeast)}`} of ${asked}, got ${right} (${
    percent(right / runs.length)
  })`
  return [
    checked(report)
      ? sum
      : runs.every(untold)
      ? `${sum}: no event came, so nothing was checked: is onEvent passed on?`
      : `${sum}: neither was called, so nothing was checked`,
    ...runs.filter((ran) => !ran.right).map((ran) =>
      `prompt ${ran.prompt}, ${TurnError.show(ran.text)}${repeat === 1 ? "" : `, run ${ran.run}`}: ${did(report, ran)}`
    )
  ].join("\n")
}
