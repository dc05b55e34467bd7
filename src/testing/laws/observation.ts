/**
 * What was seen of turns that ran, as the laws take it: facts about the tools, the turns with their answers, and every run of a
 * handler. Nothing in it is the library's own opinion of what it did, but for the answers and the events that are judged.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import * as Outcome from "../../Outcome.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as FakeTool from "../FakeTool.ts"

/**
 * How the calls of a tool are merged into requests, all by the arguments of a call as the model wrote them.
 *
 * **Details**
 *
 * - `lookup`: the name under which its requests stand. `size`: the most keys of one.
 * - `wants`: the keys that a call asks for, as texts; none for one that the tool refuses, or that runs its own handler.
 * - `reach`: the resource keys of a call, undefined for unknown reach.
 * - `answer`: what a call that succeeds is answered, encoded, when this was found for the texts; undefined where that cannot be told.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface MergedFacts {
  readonly lookup: string
  readonly size: number
  readonly wants: (args: unknown) => ReadonlyArray<string>
  readonly reach: (args: unknown) => ReadonlyArray<string> | undefined
  readonly answer: (args: unknown, found: ReadonlyMap<string, unknown>) => { readonly value: unknown } | undefined
}

/**
 * What is known of a tool beforehand. Times are in milliseconds, `Infinity` for none.
 *
 * **Details**
 *
 * `keys` gives the resource keys of a call, undefined for unknown reach. `idempotency`: how a write is kept from being done twice, as
 * `ToolPolicy.Idempotency` has it; undefined where nothing does. `asks`: whether it needs approval is a question that may take time.
 * `tellsNoEffect`: a failure of its own can say that nothing was changed. `merged`: how its calls are merged into requests; undefined where
 * each runs its handler.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToolFacts {
  readonly access: ToolPolicy.Access
  readonly keys: (params: unknown) => ReadonlyArray<string> | undefined
  readonly idempotency: ToolPolicy.Idempotency["mode"] | undefined
  readonly timeout: number
  readonly idleTimeout: number
  readonly waitTimeout: number
  readonly backend: string | undefined
  readonly asks: boolean
  readonly tellsNoEffect: boolean
  readonly merged?: MergedFacts | undefined
}

/** What a tool's policies say. @internal */
export const factsOf = (tool: Tool.Any): ToolFacts => {
  const policy = ToolPolicy.get(tool)
  return {
    access: policy.access,
    keys: (params) => policy.keys?.(params),
    idempotency: policy.access === "write" ? policy.idempotency?.mode : undefined,
    timeout: policy.timeout,
    idleTimeout: policy.idleTimeout,
    waitTimeout: policy.waitTimeout,
    backend: policy.backend?.key,
    asks: typeof tool.needsApproval === "function",
    tellsNoEffect: policy.failures.noEffect !== undefined
  }
}

/** A read, or a write that may be interrupted and run again: its backend honours its key, or can be asked about it. @internal */
export const mayRunAgain = ({ access, idempotency }: ToolFacts): boolean =>
  access === "read" || idempotency === "forward" || idempotency === "verify"

/**
 * The limits of a backend; `Infinity` for none.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface BackendFacts {
  readonly concurrency: number
  readonly perTenant: number
  /** How many may start in a window of so many milliseconds. */
  readonly rate?: { readonly limit: number; readonly window: number } | undefined
}

/**
 * What a call was answered, as plain data; the ids that outcomes refer to stand for them.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ReportedOutcome {
  readonly id: string
  readonly status: Outcome.Status
  readonly code?: string
  readonly started: boolean
  readonly effect: Outcome.Effect
  readonly retryable: boolean
  readonly duplicateOf?: string
  readonly replayed?: true
  /** What the model gets was cut to a budget, and so is `result`. */
  readonly truncated?: true
  readonly result?: unknown
}

/**
 * What a call was answered, and what of it goes to the model. `attempts`: how often it was started, where that was more than once.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Answer {
  readonly position: number
  readonly outcome: ReportedOutcome
  readonly model: unknown
  readonly attempts?: number
}

/** @internal */
export const outcomeOf = (outcome: Outcome.Outcome<any>): ReportedOutcome => {
  const { code, duplicateOf, effect, id, replayed, retryable, started, status, truncated } = Outcome.toJson(outcome)
  return {
    id,
    status,
    ...(code === undefined ? undefined : { code }),
    started,
    effect,
    retryable,
    ...(duplicateOf === undefined ? undefined : { duplicateOf: duplicateOf.id }),
    ...(replayed === undefined ? undefined : { replayed }),
    ...(truncated === undefined ? undefined : { truncated }),
    ...(status === "ok" ? { result: Outcome.forModel(outcome).value } : undefined)
  }
}

/** @internal */
export const answerOf = (outcome: Outcome.Outcome<any>): Answer => ({
  position: outcome.position,
  outcome: outcomeOf(outcome),
  model: Outcome.forModel(outcome).value,
  ...(outcome.attempts === undefined ? undefined : { attempts: outcome.attempts })
})

/**
 * An event of a turn, with its place in the order of everything that happened.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface SeenEvent {
  readonly place: number
  readonly event: TurnEvent.TurnEvent
}

/**
 * What was seen of one turn. Times are in milliseconds, `Infinity` for none; places are in the order of everything.
 *
 * **Details**
 *
 * - `limit`: how many of its calls may run at once. `sequential`: one after another, in emission order.
 * - `stopsSiblings`: whether the end of a call may stop the others. `failFast`: that is so for each failure, in the whole turn.
 * - `answers`: undefined when the turn was not answered. `lateAnswers`: the same outcomes, looked at when all was over.
 * - `told`: how often its closing was told, and with how many outcomes each time; undefined when nobody asked to be told.
 * - `events`: undefined when nobody listened.
 * - `stops`: when it, or a call of it, was told to stop from outside.
 * - `repeats`: the place in `turns` of an earlier turn whose answers it repeats.
 * - `kept`: of a turn that was resumed, the positions of the calls that had their answer before.
 * - `needs`: for each call the positions of those whose results its arguments name; undefined where references are off.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ObservedTurn {
  readonly id: string
  readonly tenant: string
  readonly calls: ReadonlyArray<{ readonly id: string; readonly name: string; readonly arguments?: unknown }>
  readonly startedAt: number
  readonly limit: number
  readonly sequential: boolean
  readonly graceReads: number
  readonly graceWrites: number
  readonly deadline: number
  readonly stopsSiblings: boolean
  readonly failFast: boolean
  readonly answers: ReadonlyArray<Answer> | undefined
  readonly lateAnswers?: ReadonlyArray<Answer> | undefined
  readonly answered: number | undefined
  readonly answeredAt: number | undefined
  readonly told?: ReadonlyArray<ReadonlyArray<Answer>> | undefined
  readonly events?: ReadonlyArray<SeenEvent> | undefined
  readonly stops: ReadonlyArray<number>
  readonly repeats?: number | undefined
  readonly kept?: ReadonlySet<number> | undefined
  readonly needs?: ReadonlyArray<ReadonlyArray<number>> | undefined
}

/**
 * A request to a lookup, for the calls that were merged into it.
 *
 * **Details**
 *
 * `tool` is the name of the lookup. `texts` are its keys as texts; `found` is what became of each, by text, once it has ended: undefined
 * where nobody looked.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ObservedRequest extends FakeTool.Run {
  readonly texts: ReadonlyArray<string>
  readonly found?: ReadonlyMap<string, unknown> | undefined
}

/**
 * How full a backend was at a moment: permits out in all, and by tenant. Work that nobody watches counts too.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Sample {
  readonly at: number
  readonly backend: string
  readonly running: number
  readonly tenants: Readonly<Record<string, number>>
}

/**
 * What was seen of turns that ran, to be judged by the laws.
 *
 * **Details**
 *
 * - `tools`, `backends`: what is known beforehand, by name.
 * - `runs`: every run of a handler, as `FakeTool.World` keeps them, in the order of their starts. `requests`: every request, likewise.
 * - `alsoAsked`: lookups that calls ask which nobody watches, of turns inside handlers.
 * - `cached`: what was answered from a cache, each as the JSON of lookup, tenant and text.
 * - `permitsAnswered`, `permitsEnd`: permits that were out when the last turn was answered, and when all was over, by backend.
 * - `crashes`: where in the order of everything the process crashed, and another went on with what is stored alone.
 * - `samples`: how full the backends were whenever something happened; undefined when nobody looked.
 * - `faults`: what went wrong with the watching itself, each with the rule that it touches.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Observation {
  readonly tools: ReadonlyMap<string, ToolFacts>
  readonly backends: ReadonlyMap<string, BackendFacts>
  readonly turns: ReadonlyArray<ObservedTurn>
  readonly runs: ReadonlyArray<FakeTool.Run>
  readonly requests?: ReadonlyArray<ObservedRequest> | undefined
  readonly alsoAsked?: ReadonlySet<string> | undefined
  readonly cached?: ReadonlySet<string> | undefined
  readonly permitsAnswered: Readonly<Record<string, number>>
  readonly permitsEnd: Readonly<Record<string, number>>
  readonly crashes?: ReadonlyArray<number> | undefined
  readonly samples?: ReadonlyArray<Sample> | undefined
  readonly faults: ReadonlyArray<string>
}

/** The run of the outermost call that a run belongs to. @internal */
export const rootOf = (run: FakeTool.Run): FakeTool.Run => {
  let root = run
  while (root.parent !== undefined) root = root.parent
  return root
}

/** Whether a run was at work at a place in the order of everything. @internal */
export const atWork = (run: FakeTool.Run, place: number): boolean =>
  run.began < place && (run.ended === undefined || run.ended > place)

/** Where the last answer stands in the order of everything. @internal */
export const lastAnswer = (turns: ReadonlyArray<Pick<ObservedTurn, "answered">>): number =>
  turns.reduce((last, turn) => Math.max(last, turn.answered ?? -1), -1)

/** The same runs, as they stand: later changes do not show. @internal */
export const snapshot = (runs: ReadonlyArray<FakeTool.Run>): ReadonlyArray<FakeTool.Run> => {
  const copies = new Map<FakeTool.Run, FakeTool.Run>()
  for (const run of runs) {
    copies.set(run, { ...run, parent: run.parent === undefined ? undefined : copies.get(run.parent) })
  }
  return [...copies.values()]
}
