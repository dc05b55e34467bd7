/**
 * What a run of a scenario showed, and the report that is made of it.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type * as FakeTool from "../FakeTool.ts"
import { type Answer, atWork, lastAnswer, type ReportedOutcome, rootOf, type SeenEvent } from "../laws/observation.ts"
import type * as Form from "./schema.ts"

/**
 * One run of a handler, in virtual time.
 *
 * **Details**
 *
 * A call that was merged into a request has none: its handler did not run, and the request stands under `requests` of the report.
 *
 * A run inside a nested turn has the `turn` and `index` of the outermost call and `nested: true`. `endMs` is null if it was
 * still at work when the last turn was answered.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Span {
  readonly turn: number
  readonly index: number
  readonly id: string
  readonly tool: string
  readonly attempt: number
  readonly startMs: number
  readonly endMs: number | null
  readonly nested?: true
}

/**
 * How much a scenario is explored.
 *
 * **Details**
 *
 * - `seeds`: how many seeds, from 1 on, or `{from, count}`. Default: 200. With a `budget` and no `seeds`, as many as it allows.
 * - `budget`: real time after which no seed is begun; at least one is.
 * - `maxShrinks`: how many runs may be spent on making a failure smaller. Default: 500.
 * - `replay`: runs only this, the `replay` of an earlier failure or a seed, beside the natural run to compare it with.
 * - `onRun`: told after each run how many there were under seeds, and to make a failure smaller. It must not wait; what it
 *   throws is dropped.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ExploreOptions {
  readonly seeds?: number | { readonly from: number; readonly count: number } | undefined
  readonly budget?: Duration.Input | undefined
  readonly maxShrinks?: number | undefined
  readonly replay?: string | undefined
  readonly onRun?: ((progress: { readonly seeds: number; readonly shrinks: number }) => void) | undefined
}

/**
 * What exploring a scenario came to.
 *
 * **Details**
 *
 * `runs` and `distinct` are how many runs there were under seeds, and how many of them were different; both are 0 when the
 * natural run failed already. `found` is there when a run failed, and the natural one did not:
 *
 * - `seed`: the first that fails. `replay`: repeats the smallest failing run that was found, and `switches` is how many choices
 *   are forced in it. `shrinks`: how many runs it took to make it that small.
 * - `differences`: what is not as in the natural run, one sentence each.
 * - `trace`: what ran when, in lines: those with a `>` are steps in which something was forced, those with a `-` what
 *   happened in the turns.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Exploration {
  readonly runs: number
  readonly distinct: number
  readonly found?: {
    readonly seed: number
    readonly replay: string
    readonly switches: number
    readonly shrinks: number
    readonly differences: ReadonlyArray<string>
    readonly trace: ReadonlyArray<string>
  }
}

/**
 * The report of one file: plain JSON data. A file that is not run has `file`, `pass` and `failures` alone.
 *
 * **Details**
 *
 * - `outcomes`: one list for each turn, in emission order; null for a turn that was never answered.
 * - `effects`: writes alone; what landed after the last answer counts too.
 * - `requests`: to each tool whose behaviour is `items`, how many there were for the calls of the tools that are merged into it.
 * - `elapsedMs`: when the last turn was answered. `runningAfter`, handlers and requests together, and `permitsOut` are of that moment.
 * - `explored`: there when the scenario was explored. All else is then of the failing run that `explored.found` tells of, of the
 *   run that `replay` has asked for, or of the natural run.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Report {
  readonly file: string
  readonly pass: boolean
  readonly failures: ReadonlyArray<string>
  readonly outcomes?: ReadonlyArray<ReadonlyArray<ReportedOutcome> | null>
  readonly spans?: ReadonlyArray<Span>
  readonly executions?: Record<string, number>
  readonly effects?: Record<string, number>
  readonly peak?: Record<string, number>
  readonly requests?: Record<string, number>
  readonly elapsedMs?: number
  readonly runningAfter?: number
  readonly permitsOut?: Record<string, number>
  readonly explored?: Exploration
}

/** What was seen of one turn. @internal */
export interface ObservedTurn {
  /** The id under which the library knows it. */
  readonly id: string
  readonly calls: ReadonlyArray<Form.Call>
  readonly startedAt: number
  readonly answers: ReadonlyArray<Answer> | undefined
  readonly answeredAt: number | undefined
  /** Its place in the order of everything that happened. */
  readonly answered: number | undefined
  /** When it was told to stop from outside. */
  readonly stops: ReadonlyArray<number>
  /** The earlier turn whose outcomes it repeats. */
  readonly repeats: number | undefined
  /** The calls that had their answer before it was resumed. */
  readonly kept?: ReadonlySet<number> | undefined
  /** Where references are on: for each call the positions of those whose results its arguments name. */
  readonly needs?: ReadonlyArray<ReadonlyArray<number>> | undefined
  /** A crash came before its answer. */
  readonly crashed?: boolean | undefined
  readonly events?: ReadonlyArray<SeenEvent> | undefined
}

/** What was seen of a whole run. @internal */
export interface Observed {
  readonly turns: ReadonlyArray<ObservedTurn>
  readonly runs: ReadonlyArray<FakeTool.Run>
  /** Requests to lists: runs with keys. */
  readonly requests: ReadonlyArray<FakeTool.Run>
  /** How many of them there were, by list. */
  readonly requestsTo: Record<string, number>
  readonly executions: Record<string, number>
  readonly effects: Record<string, number>
  readonly peak: Record<string, number>
  /** Permits that were out when the last turn was answered, and when nothing more happened. */
  readonly permitsOut: Record<string, number>
  readonly permitsAtEnd: Record<string, number>
  /** Where in the order of everything the process crashed. */
  readonly crashes?: ReadonlyArray<number> | undefined
  /** What went wrong with the run itself. */
  readonly faults: ReadonlyArray<string>
}

/** @internal */
export const spansOf = (observed: Observed): ReadonlyArray<Span> => {
  const last = lastAnswer(observed.turns)
  const spans = observed.runs.map((run) => {
    const root = rootOf(run)
    return {
      turn: observed.turns.findIndex((turn) => turn.id === root.turn),
      index: root.position,
      id: run.id,
      tool: run.tool,
      attempt: run.attempt,
      startMs: run.startedAt,
      endMs: run.ended === undefined || run.endedAt === undefined || run.ended > last ? null : run.endedAt,
      ...(run.parent === undefined ? undefined : { nested: true as const })
    }
  })
  return spans.sort((a, b) => a.startMs - b.startMs || a.turn - b.turn || a.index - b.index)
}

/** @internal */
export const elapsed = (observed: Observed): number =>
  observed.turns.reduce((last, turn) => Math.max(last, turn.answeredAt ?? 0), 0)

/** @internal */
export const make = (file: string, observed: Observed, failures: ReadonlyArray<string>): Report => {
  const last = lastAnswer(observed.turns)
  return {
    file,
    pass: failures.length === 0,
    failures,
    outcomes: observed.turns.map((turn) => turn.answers?.map((answer) => answer.outcome) ?? null),
    spans: spansOf(observed),
    executions: observed.executions,
    effects: observed.effects,
    peak: observed.peak,
    requests: observed.requestsTo,
    elapsedMs: elapsed(observed),
    runningAfter: [...observed.runs, ...observed.requests].filter((run) => atWork(run, last)).length,
    permitsOut: observed.permitsOut
  }
}

/** @internal */
export const notRun = (file: string, failures: ReadonlyArray<string>): Report => ({ file, pass: false, failures })
