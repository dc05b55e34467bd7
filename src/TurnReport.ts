/**
 * What a turn's time went into: its events folded into a timeline of calls, waits by cause, and the critical path. As data, as text, and as
 * one page that loads nothing.
 *
 * Pure: events in, a report out. `effect-turn report` is this module with files around it.
 *
 * - N1: the spans of a call do not overlap, and cover it from its beginning to its answer without a gap.
 * - N2: what a call waited is what its `CallStarted` said; where it was never started, what its `CallQueued` and `CallHeld` began.
 * - N3: the links of the critical path follow each other without a gap from the start of the turn to its end, so they add up to its length.
 * - N4: nothing is claimed that the events do not show: what is missing is said in `notes`, and who was waited for is marked as inferred
 *   where no plan tells it.
 * - N5: a report has no arguments, no results and no messages, whatever was in the events; and text of others is data wherever it goes.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { fold } from "./internal/turnReport/fold.ts"
import { page } from "./internal/turnReport/page.ts"
import { printed } from "./internal/turnReport/print.ts"
import { readEvents, Unreadable } from "./internal/turnReport/read.ts"
import * as Outcome from "./Outcome.ts"
import * as TurnError from "./TurnError.ts"
import type * as TurnEvent from "./TurnEvent.ts"

/**
 * What a call does in a part of its time.
 *
 * **Details**
 *
 * - `keys`, `permit`, `rate`, `approval`: it waits, and for what.
 * - `twin`: it waits for the identical call that runs for it too.
 * - `starting`: none of these: its reservation, its journal, middleware, a question, or a key that another process holds.
 * - `running`, and `overdue` beyond its clock; `pause` before its next attempt.
 * - `unit`: it has taken effect, and waits for its unit to be decided, or to be undone.
 * - `late`: it has its answer, and its work goes on.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const SpanKind = Schema.Literals([
  "keys",
  "permit",
  "rate",
  "approval",
  "twin",
  "starting",
  "running",
  "overdue",
  "pause",
  "unit",
  "late"
])

/**
 * What a call does in a part of its time.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type SpanKind = typeof SpanKind.Type

/**
 * A part of a call's time, in milliseconds from the start of its turn. `attempt` is there where it runs.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Span = Schema.Struct({
  kind: SpanKind,
  from: Schema.Finite,
  to: Schema.Finite,
  attempt: Schema.optionalKey(Schema.Int)
})

/**
 * A part of a call's time, in milliseconds from the start of its turn.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Span = typeof Span.Type

/**
 * Milliseconds by cause. `approval` counts from the first request, so it may be longer than the turn.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Waits = Schema.Struct({
  keys: Schema.Finite,
  permit: Schema.Finite,
  rate: Schema.Finite,
  approval: Schema.Finite
})

/**
 * Milliseconds by cause.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Waits = typeof Waits.Type

/**
 * One call of a turn.
 *
 * **Details**
 *
 * - `status`, `code`, `effect` and `to` are absent where the events have no answer of it.
 * - `from`: when it came; the start of the turn for all calls of a list.
 * - `ran`: how long its handler ran, all attempts together, up to its answer.
 * - `attempts`: how often its handler was started. `progress`: how many preliminary results it gave.
 * - `cut`: what the model got of its answer was cut, from `of` characters `to` so many.
 * - `late`: when its work ended that had been given up on, and how.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Call = Schema.Struct({
  position: Schema.Int,
  id: Schema.String,
  tool: Schema.String,
  backend: Schema.optionalKey(Schema.String),
  status: Schema.optionalKey(Outcome.Status),
  code: Schema.optionalKey(Schema.String),
  effect: Schema.optionalKey(Outcome.Effect),
  duplicateOf: Schema.optionalKey(Schema.Int),
  replayed: Schema.optionalKey(Schema.Literal(true)),
  undo: Schema.optionalKey(Schema.Literals(["done", "failed"])),
  cut: Schema.optionalKey(
    Schema.Struct({ of: Schema.Finite, to: Schema.Finite, artifact: Schema.optionalKey(Schema.String) })
  ),
  late: Schema.optionalKey(
    Schema.Struct({ at: Schema.Finite, status: Outcome.Status, code: Schema.optionalKey(Schema.String) })
  ),
  attempts: Schema.Int,
  progress: Schema.Int,
  from: Schema.Finite,
  to: Schema.optionalKey(Schema.Finite),
  ran: Schema.Finite,
  waited: Waits,
  spans: Schema.Array(Span)
})

/**
 * One call of a turn.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Call = typeof Call.Type

/**
 * One request for several calls. `to` and `ok` are absent where the events do not have its end.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Request = Schema.Struct({
  request: Schema.Int,
  into: Schema.String,
  positions: Schema.Array(Schema.Int),
  items: Schema.Finite,
  backend: Schema.optionalKey(Schema.String),
  from: Schema.Finite,
  to: Schema.optionalKey(Schema.Finite),
  ok: Schema.optionalKey(Schema.Finite)
})

/**
 * One request for several calls.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Request = typeof Request.Type

/**
 * One link of the critical path: what the turn's length is explained by between two moments.
 *
 * **Details**
 *
 * - `kind`: of a call, what it does then; `submitted`: the call had not come yet; `closing`: all calls have their answers, and the turn has not
 *   ended; `unknown`: the events do not tell.
 * - `after`: why it did not begin before: the call `position`, in the link before, had the `key`, or a permit of the same `backend`, or runs for this
 *   one too. `inferred`: no plan says so; that call gave back what was waited for at this moment.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Link = Schema.Struct({
  kind: Schema.Union([SpanKind, Schema.Literals(["submitted", "closing", "unknown"])]),
  position: Schema.optionalKey(Schema.Int),
  from: Schema.Finite,
  to: Schema.Finite,
  attempt: Schema.optionalKey(Schema.Int),
  after: Schema.optionalKey(Schema.Struct({
    position: Schema.Int,
    cause: Schema.Literals(["keys", "permit", "twin"]),
    key: Schema.optionalKey(Schema.String),
    backend: Schema.optionalKey(Schema.String),
    inferred: Schema.Boolean
  }))
})

/**
 * One link of the critical path.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Link = typeof Link.Type

/**
 * One turn.
 *
 * **Details**
 *
 * - `start`: on the turn's own clock; all other times are in milliseconds from there. `elapsed`: to its end, or to the last event that is there.
 * - `complete`: its start, its end and the answers of all its calls are there.
 * - `calls`: those that the events name, by position. `counts`: how many of them ended how.
 * - `unsettled`: work that went on with the supervisor when the turn ended, and of whose end there is no event.
 * - `waits`: of all calls together, so they may be longer than the turn; `pause` between attempts. `backends`: of their calls alone.
 * - `path`: the critical path: follow it to see why the turn took as long as it did.
 * - `bounds`: of complete turns. As long as each call takes what it took, no turn of these calls is shorter than `calls`, whatever limits and
 *   order are dropped; and none in this order shorter than `order`, whatever limits are dropped: that is there where a plan was given.
 * - `notes`: what has to be known to read the numbers.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Turn = Schema.Struct({
  turn: Schema.String,
  tenant: Schema.optionalKey(Schema.String),
  conversation: Schema.optionalKey(Schema.String),
  start: Schema.Finite,
  elapsed: Schema.Finite,
  complete: Schema.Boolean,
  stopped: Schema.optionalKey(
    Schema.Struct({ at: Schema.Finite, code: Schema.String, reason: Schema.optionalKey(Schema.String) })
  ),
  unsettled: Schema.Int,
  calls: Schema.Array(Call),
  requests: Schema.Array(Request),
  counts: Schema.Array(Schema.Struct({ status: Outcome.Status, count: Schema.Int })),
  waits: Schema.Struct({ ...Waits.fields, pause: Schema.Finite }),
  backends: Schema.Array(
    Schema.Struct({
      backend: Schema.String,
      calls: Schema.Int,
      ran: Schema.Finite,
      permit: Schema.Finite,
      rate: Schema.Finite
    })
  ),
  path: Schema.Array(Link),
  bounds: Schema.optionalKey(Schema.Struct({ calls: Schema.Finite, order: Schema.optionalKey(Schema.Finite) })),
  notes: Schema.Array(Schema.String)
})

/**
 * One turn.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Turn = typeof Turn.Type

/**
 * A report: one for each turn of the events, in the order of their first events. It is plain JSON. `version` changes when a member goes or
 * means something else.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Report = Schema.Struct({
  version: Schema.Literal(1),
  turns: Schema.Array(Turn),
  notes: Schema.Array(Schema.String)
})

/**
 * A report on turns.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Report = typeof Report.Type

/**
 * What a report needs of a plan: who waits for whom, and for which key. A `TurnPlan` has it, and so has its JSON.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Plan {
  readonly edges: ReadonlyArray<{ readonly from: number | string; readonly to: number | string; readonly key: string }>
}

/**
 * How events are folded.
 *
 * **Details**
 *
 * - `plan`: of the turn with that id. Without it who was waited for is inferred. Default: no plans.
 * - `lost`: how many events the reader of a turn's stream has lost, for the notes. Default 0.
 * - `notes`: what else has to be known, such as what {@link read} noted.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly plan?: ((turn: string) => Plan | undefined) | undefined
  readonly lost?: number | undefined
  readonly notes?: ReadonlyArray<string> | undefined
}

/**
 * Folds events into a report.
 *
 * **Details**
 *
 * The events may be of several turns, also mixed, as the steps of an agent and the turns nested in them are: each has a part of its own. A
 * turn that was parked and resumed under its id has one for each time. It never fails: of a log that begins late, breaks off or was redacted it
 * tells what is there, and what is not.
 *
 * **Example** (Two writes of one key)
 *
 * ```ts import.meta.vitest
 * import type { TurnEvent } from "effect-turn"
 * import { TurnReport } from "effect-turn"
 *
 * const of = (position: number, at: number) => ({ turn: "t", at, position, id: `c${position}`, tool: "book" })
 * const started = (position: number, at: number, keys: number): TurnEvent.TurnEvent =>
 *   ({ ...of(position, at), _tag: "CallStarted", attempt: 1, backend: undefined, waited: { keys, permit: 0, rate: 0, approval: 0 } })
 * const ended = (position: number, at: number) =>
 *   ({ ...of(position, at), _tag: "CallEnded", outcome: { status: "ok", effect: "applied" } }) as TurnEvent.TurnEvent
 * const report = TurnReport.make([
 *   { _tag: "TurnStarted", turn: "t", at: 0, calls: 2 },
 *   started(0, 0, 0),
 *   { ...of(1, 0), _tag: "CallQueued", for: "keys", backend: undefined },
 *   ended(0, 30),
 *   started(1, 30, 30),
 *   ended(1, 50),
 *   { _tag: "TurnEnded", turn: "t", at: 50, unsettled: 0 }
 * ])
 * const [turn] = report.turns
 * const waited = turn!.waits.keys // => 30
 * const path = turn!.path.map(({ from, position, to }) => [position, from, to]) // => [[0, 0, 30], [1, 30, 50]]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (events: ReadonlyArray<TurnEvent.TurnEvent>, options?: Options): Report => {
  const lost = TurnError.wholeNumber("TurnReport.make", "lost", options?.lost ?? 0, 0)
  return {
    version: 1,
    turns: fold(events, options?.plan ?? (() => undefined)),
    notes: [
      ...(options?.notes ?? []),
      ...(lost > 0 ? [`${lost} ${lost === 1 ? "event was" : "events were"} lost, the oldest first`] : [])
    ]
  }
}

/**
 * Events out of text. `notes` say what was passed over.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Recorded {
  readonly events: ReadonlyArray<TurnEvent.TurnEvent>
  readonly notes: ReadonlyArray<string>
}

/**
 * Reads recorded events out of text: what a program keeps of `onEvent`, a turn's or an agent's, one JSON object a line or a list of them.
 *
 * **Details**
 *
 * Events of a tag that this version does not know are passed over, with a note; so is a last line that is cut. An agent's own events are passed
 * over, and the turns' events in them are read. It fails with the `InvalidMessage` of `TurnError`: the place, what was expected there and what came.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const read = (text: string): Result.Result<Recorded, TurnError.TurnError> =>
  Result.try({
    try: () => readEvents(text),
    catch: (thrown) => {
      if (!(thrown instanceof Unreadable)) throw thrown
      const { expected, place, received } = thrown
      return TurnError.make(new TurnError.InvalidMessage({ dialect: "events", path: place, expected, received }))
    }
  })

/**
 * How a report is printed.
 *
 * **Details**
 *
 * - `width`: in columns, from 40. Default 100.
 * - `ascii`: bars of ASCII characters alone. Default false.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface PrintOptions {
  readonly width?: number | undefined
  readonly ascii?: boolean | undefined
}

/**
 * The report as text for a terminal or a log: a line for each call with a bar, the waits by cause, and the critical path.
 *
 * **Details**
 *
 * No line is wider than `width`; names are cut where they have no room, and nothing in them steers a terminal. Calls of the critical path have a `*`.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const print = (report: Report, options?: PrintOptions): string => {
  const width = TurnError.wholeNumber("TurnReport.print", "width", options?.width ?? 100, 0)
  return printed(report, { width: Math.max(40, width), ascii: options?.ascii ?? false })
}

/**
 * The report as a page that stands for itself: one HTML document, which loads nothing and sends nothing.
 *
 * **Details**
 *
 * The timeline zooms, pans, sorts and filters, by mouse, touch and keyboard, and stays fluid with thousands of calls. Without scripts, and on paper, it
 * has the summary, the waits, the critical path and the first calls as tables. Its policy forbids every connection and every script but its own.
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const toHtml = (report: Report): string => page(report)
