/**
 * What recorded turns say of lists: which tools were called many times in one user turn, and what asking for a list would have saved.
 *
 * Pure: text in, a report out. `effect-turn insights` is this module with files around it.
 *
 * - N1: nothing is claimed that the recording does not show. Where arguments or results are not in it, calls of different steps are not
 *   merged, and where the text of a history is not in it, its tokens are `null`.
 * - N2: counts add up: the calls of all tools, of all sources and of the distribution are the same number.
 * - N3: the order of the recordings does not matter.
 * - N4: text of a recording is data wherever it goes: nothing of it runs in the page of {@link html}.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { analyseRecordings } from "./internal/turnInsights/analyse.ts"
import { page } from "./internal/turnInsights/page.ts"
import { readText } from "./internal/turnInsights/read.ts"
import { Unreadable } from "./internal/turnInsights/value.ts"
import * as TurnError from "./TurnError.ts"

/**
 * The forms that are read.
 *
 * **Details**
 *
 * - `events`: the events of `Turn.Options.onEvent` or of an agent's `onEvent`, one JSON object a line, or a list of them.
 * - `calls`: lists of calls, `{"calls": [{"id", "name", "arguments"}]}`, one a line or a list of them; a scenario file; what
 *   `effect-turn run --json` prints of such a message.
 * - `chat`: messages of OpenAI's Chat Completions, with the requests or responses around them where there are any.
 * - `responses`: items of OpenAI's Responses.
 * - `anthropic`: messages of Anthropic's Messages.
 * - `otel`: spans of OpenTelemetry's conventions for generative AI: an OTLP export as JSON, or a list of spans.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Form = Schema.Literals(["events", "calls", "chat", "responses", "anthropic", "otel"])

/**
 * The form of a recording.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Form = typeof Form.Type

/**
 * One call of a recording. What the recording does not tell is `undefined`.
 *
 * **Details**
 *
 * - `duplicate`: the recording says that another call ran for this one.
 * - `deferred`: why it was not run, where the recording says so. `cut`: its answer was cut to a budget, where it says so.
 * - `list`: the call was one for a list, and its answer says for how many items.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Call {
  readonly id: string
  readonly tool: string
  readonly arguments: unknown
  readonly result: string | undefined
  readonly failed: boolean
  readonly duplicate: boolean
  readonly deferred: string | undefined
  readonly cut: boolean
  readonly list: { readonly requested: number; readonly deferred: number } | undefined
}

/**
 * One answer of the model that has calls. `context` is how many characters of the conversation were sent to get it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Step {
  readonly calls: ReadonlyArray<Call>
  readonly context: number | undefined
}

/**
 * One request of a coalescer: for how many calls, for how many items, and how many of them were found, where it has ended. A call that
 * takes part in several requests, as a list does, counts with the first.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Request {
  readonly coalescer: string
  readonly tools: ReadonlyArray<string>
  readonly calls: number
  readonly items: number
  readonly found: number | undefined
}

/**
 * All steps between two messages of the user. `said` is what the model was told since the one before, other than by tools.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface UserTurn {
  readonly steps: ReadonlyArray<Step>
  readonly said: ReadonlyArray<string>
  readonly requests: ReadonlyArray<Request>
}

/**
 * A conversation: its user turns that have calls, in their order.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Conversation {
  readonly id: string | undefined
  readonly turns: ReadonlyArray<UserTurn>
}

/**
 * What was read from one source. `notes` say what has to be known to read its numbers.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Recording {
  readonly source: string
  readonly form: Form
  readonly conversations: ReadonlyArray<Conversation>
  readonly notes: ReadonlyArray<string>
}

/**
 * How a text is read.
 *
 * **Details**
 *
 * - `source`: how it is called in reports and errors.
 * - `form`: default: found out.
 * - `gap`: of events alone: the longest time in milliseconds between two turns of one user turn. Default 60 000.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ReadOptions {
  readonly source: string
  readonly form?: Form | undefined
  readonly gap?: number | undefined
}

/**
 * Reads a recording out of text.
 *
 * **Details**
 *
 * User turns are found by form:
 *
 * - Histories (`chat`, `responses`, `anthropic`): a message of the user begins one. A message that answers calls goes on with it, whatever text
 *   stands beside the answers. A conversation that is the beginning of another one of the same text is left out: logs of requests repeat it.
 * - `events`: a turn is a step. Turns of one tenant and conversation are one user turn as long as each starts after the end of the one
 *   before, and at most `gap` later. Where no turn names a conversation all are taken as one, unless two of them overlap: then each stands
 *   for itself. Of an agent, all steps of a run are one user turn, and its steps tell the arguments of their calls.
 * - `otel`: the spans below one `invoke_agent` span, or else of one trace, are one user turn. A step is the spans of one `effect_turn.turn`, or
 *   else those between two calls of the model, or else those that overlap in time.
 * - `calls`: each list is a user turn of one step.
 *
 * Responses without the conversation around them stand for themselves. The model's answers without calls are no steps, and user turns without
 * calls are left out.
 *
 * It fails with the `InvalidMessage` of `TurnError`: the place, what was expected there and what came; also where a `form` is given, nothing of
 * it is there, and the text is of another one. Events of a tag that this version does not know are passed over. Of JSON lines the last one may
 * be cut, as in a log that is being written: a note says so.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const read = (text: string, options: ReadOptions): Result.Result<Recording, TurnError.TurnError> => {
  const gap = TurnError.wholeNumber("TurnInsights.read", "gap", options.gap ?? 60_000, 0)
  return Result.try({
    try: () => readText(text, { source: options.source, form: options.form, gap }),
    catch: (thrown) => {
      if (!(thrown instanceof Unreadable)) throw thrown
      const { expected, form, place, received } = thrown
      return TurnError.make(
        new TurnError.InvalidMessage({ dialect: form ?? "unknown", path: place, expected, received })
      )
    }
  })
}

/**
 * How recordings are judged.
 *
 * **Details**
 *
 * - `threshold`: a tool that is called more often than that in one user turn is listed. Default 3.
 * - `size`: the most items of one request to a backend. Default 10.
 * - `charsPerToken`: for the estimates. Default 4.
 * - `unread`: recordings that could not be read, and why: they are named in the report. Default: none.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly threshold?: number | undefined
  readonly size?: number | undefined
  readonly charsPerToken?: number | undefined
  readonly unread?: Report["unread"] | undefined
}

/**
 * How often which number came, and the usual summary. All are 0 where there was nothing to count.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Distribution = Schema.Struct({
  count: Schema.Number,
  total: Schema.Number,
  mean: Schema.Number,
  min: Schema.Number,
  p50: Schema.Number,
  p90: Schema.Number,
  max: Schema.Number,
  values: Schema.Array(Schema.Struct({ value: Schema.Number, count: Schema.Number }))
})

/**
 * How often which number came, and the usual summary.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Distribution = typeof Distribution.Type

const Saved = Schema.Struct({
  roundTrips: Schema.Number,
  requests: Schema.Number,
  envelopeTokens: Schema.Number,
  historyTokens: Schema.NullOr(Schema.Number)
})

/**
 * One tool in one user turn that called it more often than the threshold says.
 *
 * **Details**
 *
 * - `index` and `turn`: which conversation of its source, and which user turn of that, each from 1, of those with calls.
 * - `distinct`: how many different arguments it was called with; `null` where the recording has no arguments.
 * - `duplicates`: calls of one step with the same arguments, which run once.
 * - `repeats`: calls with the arguments of a call in an earlier step. They are not merged: what they ask for may have changed.
 * - `largest`: the most calls that a list call would have held.
 * - `apart`: steps that stay, and why: an argument comes out of an answer between (`dependent`); the same arguments as before (`repeated`); calls of
 *   other tools come with it or between (`others`); the call before had failed (`failed`); arguments or results are not known (`unknown`).
 * - `saved`: see {@link analyse}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Candidate = Schema.Struct({
  source: Schema.String,
  conversation: Schema.NullOr(Schema.String),
  index: Schema.Number,
  turn: Schema.Number,
  tool: Schema.String,
  calls: Schema.Number,
  steps: Schema.Number,
  distinct: Schema.NullOr(Schema.Number),
  duplicates: Schema.Number,
  repeats: Schema.Number,
  largest: Schema.Number,
  apart: Schema.Struct({
    dependent: Schema.Number,
    repeated: Schema.Number,
    others: Schema.Number,
    failed: Schema.Number,
    unknown: Schema.Number
  }),
  saved: Saved
})

/**
 * One tool in one user turn that called it more often than the threshold says.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Candidate = typeof Candidate.Type

/**
 * What recordings say, as data that `effect-turn insights --json` prints. `version` changes when a member goes or means something else.
 *
 * **Details**
 *
 * - `unread`: recordings that are not in the numbers, since they could not be read, and why.
 * - `tools`: every tool; `over` is in how many user turns it is a candidate, `most` its most calls in one, `saved` what its candidates would have saved.
 * - `candidates`: those that save most come first.
 * - `lists`: tools whose answers say that they were asked for a list: how many items, how many of them deferred.
 * - `requests`: requests of coalescers, of events alone: `ratio` is calls for each request, `missing` how many items were not found,
 *   failed, or were not answered.
 * - `batches`: how many calls each list call of the candidates would have held.
 * - `historyUnknown`: candidates that save round trips of an unknown number of tokens.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Report = Schema.Struct({
  version: Schema.Literal(1),
  options: Schema.Struct({ threshold: Schema.Number, size: Schema.Number, charsPerToken: Schema.Number }),
  sources: Schema.Array(Schema.Struct({
    source: Schema.String,
    form: Form,
    conversations: Schema.Number,
    userTurns: Schema.Number,
    steps: Schema.Number,
    calls: Schema.Number,
    notes: Schema.Array(Schema.String)
  })),
  unread: Schema.Array(Schema.Struct({ source: Schema.String, problem: Schema.String })),
  totals: Schema.Struct({
    userTurns: Schema.Number,
    steps: Schema.Number,
    calls: Schema.Number,
    tools: Schema.Number,
    candidates: Schema.Number,
    duplicates: Schema.Number,
    deferred: Schema.Array(Schema.Struct({ code: Schema.String, count: Schema.Number })),
    cut: Schema.Number,
    saved: Schema.Struct({
      roundTrips: Schema.Number,
      requests: Schema.Number,
      envelopeTokens: Schema.Number,
      historyTokens: Schema.Number,
      historyUnknown: Schema.Number
    })
  }),
  callsPerUserTurn: Distribution,
  callsPerStep: Distribution,
  stepsPerUserTurn: Distribution,
  batches: Distribution,
  tools: Schema.Array(Schema.Struct({
    tool: Schema.String,
    calls: Schema.Number,
    steps: Schema.Number,
    userTurns: Schema.Number,
    most: Schema.Number,
    duplicates: Schema.Number,
    over: Schema.Number,
    saved: Saved
  })),
  candidates: Schema.Array(Candidate),
  lists: Schema.Array(Schema.Struct({
    tool: Schema.String,
    calls: Schema.Number,
    items: Schema.Number,
    deferred: Schema.Number,
    sizes: Distribution
  })),
  requests: Schema.Array(Schema.Struct({
    coalescer: Schema.String,
    requests: Schema.Number,
    calls: Schema.Number,
    items: Schema.Number,
    missing: Schema.Number,
    ratio: Schema.Number,
    sizes: Distribution
  }))
})

/**
 * What recordings say.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Report = typeof Report.Type

/**
 * Counts calls, and finds the tools that are called so often in one user turn that a list would have paid.
 *
 * **Details**
 *
 * What would have been saved, for a tool that is over the threshold in a user turn:
 *
 * - *Round trips.* A step goes when all its calls are of this tool and could have been written some steps earlier, with those of the same
 *   tool there. They could when the steps between hold calls of this tool alone, their arguments and the answers between are in the recording, the
 *   arguments differ from those asked already, no call of the tool failed there (where the recording tells failures),
 *   and no word or number of the arguments came up
 *   for the first time in an answer between. What is *decided* by an answer and does not repeat a word of it cannot be seen.
 * - *Requests to the backend.* Calls that could have been together, n of them, are ⌈n / size⌉ requests. Without arguments only the calls of one
 *   step are known to be together. Where a coalescer has merged them already, its own requests are what is compared.
 * - *Tokens of envelopes.* Each call of a list but the first saves what stands around the arguments and the answer: its id, the names, the
 *   punctuation, measured in the form of Chat Completions, once. An answer for a list has its own keys, which are not taken off.
 * - *Tokens of history.* Each step that goes does not send the conversation so far again: the characters of the recording's messages, without what
 *   is not in it (a system prompt, the tools' schemas). They are tokens sent, not their price: caches of providers make them cheaper.
 *
 * Characters are divided by `charsPerToken`. All are estimates of the least kind: nothing that follows from a smaller history is counted.
 *
 * **Example** (Four lookups, one by one)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { TurnInsights } from "effect-turn"
 *
 * const messages = [{ role: "user", content: "Where are my orders 1, 2, 3 and 4?" }, ...[1, 2, 3, 4].flatMap((order) => [
 *   {
 *     role: "assistant",
 *     tool_calls: [{ id: `c${order}`, function: { name: "get_order", arguments: JSON.stringify({ order }) } }]
 *   },
 *   { role: "tool", tool_call_id: `c${order}`, content: "on its way" }
 * ])]
 * const recording = Result.getOrThrow(TurnInsights.read(JSON.stringify(messages), { source: "orders.json" }))
 * const report = TurnInsights.analyse([recording])
 * const { calls, saved, tool } = report.candidates[0]!
 * const words = [tool, calls, saved.roundTrips, saved.requests] // => ["get_order", 4, 3, 3]
 * ```
 *
 * @category analysis
 * @since 0.1.0
 * @stability experimental
 */
export const analyse = (recordings: ReadonlyArray<Recording>, options?: Options): Report => {
  const owner = "TurnInsights.analyse"
  return analyseRecordings(recordings, {
    threshold: TurnError.wholeNumber(owner, "threshold", options?.threshold ?? 3),
    size: TurnError.wholeNumber(owner, "size", options?.size ?? 10),
    charsPerToken: aboveZero(owner, "charsPerToken", options?.charsPerToken ?? 4)
  }, options?.unread ?? [])
}

const aboveZero = (owner: string, limit: string, value: unknown): number => {
  if (typeof value === "number" && value > 0 && value < Infinity) return value
  throw TurnError.make(
    new TurnError.InvalidLimit({ owner, limit, expected: "a number above 0", received: TurnError.show(value) })
  )
}

/**
 * The report as a page that stands for itself: charts and tables in one HTML document, which loads nothing.
 *
 * **Details**
 *
 * It is readable without scripts, by keyboard, by screen readers, in the dark and on paper. Its one script sorts, filters and pages the table
 * of user turns; the document's own policy lets no other script run.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const html = (report: Report): string => page(report)
