/**
 * What the model never sees: how a tool may be scheduled, as annotations on an `effect/ai` tool.
 *
 * Each policy is a `Context.Reference` whose default is the careful choice: a tool that says nothing is a **write of
 * unknown reach**, not repeatable-safe, without an idempotency key, on no backend, with ten seconds to run and sixty to
 * wait. Forgetting a policy costs speed, never correctness.
 *
 * `Tool.Readonly` makes a tool a read. `Tool.Destructive` and `Tool.Idempotent` are hints, often from elsewhere (an MCP
 * server), so they never relax anything: what makes a write interruptible or safe to try again is a key that its
 * backend honours, said with {@link forward}.
 *
 * @since 0.1.0
 */
import { Tokenizer } from "effect/ai/Tokenizer"
import type * as Tool from "effect/ai/Tool"
import * as AiTool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Schedule from "effect/Schedule"
import type * as Types from "effect/Types"
import * as TurnError from "./TurnError.ts"

/**
 * Whether a call may change something.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Access = "read" | "write"

/**
 * A limit in time: any `Duration.Input` from one millisecond to 2^31-1, or the word `"infinite"`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Limit = Duration.Input | "infinite"

/**
 * Where a call stands: on whose behalf, its place in its turn, and the provider's id as a label.
 *
 * **Details**
 *
 * A backend that honours keys knows nothing of tenants and conversations: a key that is unique only within them is to be made of them too. A
 * key that is made of the turn, the position or the id is another one in the next turn, so the call is not told to be safe to try again.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Place {
  readonly tenant: string
  readonly conversation: string | undefined
  readonly turn: string
  readonly position: number
  readonly id: string
}

/**
 * How a tool's failures are classed.
 *
 * **Details**
 *
 * - `noEffect`: true for a failure which says that certainly nothing was changed. Default: no failure does.
 * - `transient`: true for a failure after which the same call may succeed. Default: no failure is.
 * - `rateLimited`: true for a failure which says that there were too many calls, or after how long the next may come. Such a run had no
 *   effect, and is answered `rate_limited`. `NaN` and what is no duration say no; a time that has passed is now. Default: no failure is.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Failures<in Failure> {
  readonly noEffect?: ((failure: Failure) => boolean) | undefined
  readonly transient?: ((failure: Failure) => boolean) | undefined
  readonly rateLimited?: ((failure: Failure) => boolean | Duration.Input | undefined) | undefined
}

/**
 * What a tool can say of a write whose effect is unknown: it took effect, with this result; it did not; or nobody knows.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Verdict<Success> =
  | { readonly _tag: "Applied"; readonly result: Success }
  | { readonly _tag: "NotApplied" }
  | { readonly _tag: "NotKnown" }

/**
 * How a write is kept from being done twice.
 *
 * **Details**
 *
 * - `forward`: its backend honours the key. It may be interrupted, and run again with the same key.
 * - `verify`: its backend can be asked what became of it. It may be interrupted, and is asked about before it is run again.
 * - `record`: our own record alone guards it. It is never interrupted, and where the record does not know what became of it, it is
 *   not run again.
 *
 * `scope` says whether the same key in two conversations of a tenant means the same write.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Idempotency {
  readonly mode: "forward" | "verify" | "record"
  readonly key: (params: any, place: Place) => string
  readonly scope: "conversation" | "tenant"
  /** Asks what became of a write, in mode `verify`. */
  readonly ask?: ((params: any, key: string) => Effect.Effect<Verdict<any>, unknown, any>) | undefined
  /** The store without which the mode guards nothing. */
  readonly store?: Context.Key<any, any> | undefined
}

/**
 * When a run that failed is tried again by itself.
 *
 * **Details**
 *
 * - `times`: how often at most, after the first run.
 * - `schedule`: how long to pause before each; its input is the failure, or `undefined` where a clock ended the run, and its end ends the
 *   retries. Default: 200 ms, doubled each time, 30 seconds at most.
 * - `jitter`: makes each pause up to half as long again, so that calls that failed together do not come back together. It is never
 *   shorter for it, as it may be with `Schedule.jittered`: a told time is kept. Default: true.
 * - `while`: which failures are tried again. Default: those that `failures` calls `transient` or `rateLimited`; all of them where it says
 *   nothing of either.
 *
 * A pause is never shorter than the time that `failures.rateLimited` tells. None is begun that would end after the turn's deadline, or after
 * the clock of the call that the turn runs inside: then the failure is the answer. It is too where a permit for the next run does not
 * come within `waitTimeout`.
 *
 * A run that its own clock has ended is tried again too, whatever `while` says. A write is tried again only where that cannot double an
 * effect: with a key that its backend honours, after it was asked about, or, with any key, when the failure is declared as having none.
 * Defects and results that cannot be encoded are never tried again, and nothing is after a stop.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Retry<in Failure> {
  readonly times: number
  readonly schedule?: Schedule.Schedule<unknown, Failure | undefined> | undefined
  readonly jitter?: boolean | undefined
  readonly while?: ((failure: Failure) => boolean) | undefined
}

/**
 * Undoes what a write has done, from its parameters, its result and its key.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Undo<in Params, in Success, out E = unknown, out R = any> = (
  params: Params,
  done: { readonly result: Success; readonly idempotencyKey: string | undefined }
) => Effect.Effect<unknown, E, R>

/**
 * The mark of a tool that may be tried again: it reads, or its writes carry a key. {@link retry} asks for it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Retryable {
  readonly "~effect-turn/a read, or a write with an idempotency key": true
}

/**
 * A tool that needs more services than before.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Needing<T, Requirements> = T extends Tool.Tool<infer Name, infer Config, infer R>
  ? Tool.Tool<Name, Config, R | Requirements> & (T extends Retryable ? Retryable : unknown)
  : T

/**
 * Whether invented arguments are looked for: everywhere, nowhere, or everywhere but in the named arguments.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Placeholders = "detect" | "off" | { readonly literal: ReadonlyArray<string> }

/**
 * How much of an answer goes to the model: so many characters of its JSON, or so many tokens of it. Characters are UTF-16 code units, as
 * in the length of a text.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ResultLimit = { readonly maxChars: number } | { readonly maxTokens: number }

/**
 * The class of a backend, as {@link on} takes it. `Backend.Service` and `Backend.TenantService` make one.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface BackendKey<in out Self, in out Shape, out Requirements> extends Context.Key<Self, Shape> {
  readonly backend: { readonly requirements: Types.Covariant<Requirements> }
}

const reference = <A>(name: string, value: A) =>
  Context.Reference<A>(`effect-turn/ToolPolicy/${name}`, { defaultValue: () => value })

/**
 * The access that was said, `undefined` when `Tool.Readonly` decides.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const AccessAnnotation = reference<Access | undefined>("Access", undefined)

/**
 * The function from decoded parameters to resource keys; `undefined` is unknown reach.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const KeysAnnotation = reference<((params: any) => ReadonlyArray<string>) | undefined>("Keys", undefined)

/**
 * The backend whose permits a call takes.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const BackendAnnotation = reference<BackendKey<any, any, any> | undefined>("Backend", undefined)

/**
 * How long a handler may run, in milliseconds. Default: 10,000.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const TimeoutAnnotation = reference<number>("Timeout", 10_000)

/**
 * How long a call may wait for keys and permits together, in milliseconds. Default: 60,000.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const WaitTimeoutAnnotation = reference<number>("WaitTimeout", 60_000)

/**
 * How long a handler may be silent between progress notes, in milliseconds. Default: for ever.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const IdleTimeoutAnnotation = reference<number>("IdleTimeout", Infinity)

/**
 * How a write is kept from being done twice; `undefined` where nothing does.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const IdempotencyAnnotation = reference<Idempotency | undefined>("Idempotency", undefined)

/**
 * When a run that failed is tried again by itself; `undefined` for never.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const RetryAnnotation = reference<Retry<any> | undefined>("Retry", undefined)

/**
 * What undoes a write of a unit that is all or nothing; `undefined` where nothing can.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const UndoAnnotation = reference<Undo<any, any> | undefined>("Undo", undefined)

/**
 * Whether identical calls of this tool are each meant for themselves.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const RepeatableAnnotation = reference<boolean>("Repeatable", false)

/**
 * Where invented arguments are looked for.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const PlaceholdersAnnotation = reference<Placeholders>("Placeholders", "detect")

/**
 * How the tool's failures are classed.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const FailuresAnnotation = reference<Failures<any>>("Failures", {})

/**
 * How much of a result goes to the model; `undefined` for all of it.
 *
 * @category annotations
 * @since 0.1.0
 * @stability experimental
 */
export const ResultBudgetAnnotation = reference<ResultLimit | undefined>("ResultBudget", undefined)

const annotate = <T extends Tool.Any, I, S>(tool: T, key: Context.Key<I, S>, value: S): T =>
  tool.annotate(key, value) as T

/** A limit of answers, or a thrown {@link TurnError.TurnError} that names its owner.
 *
 * @internal
 */
export const resultLimit = (owner: string, limit: unknown): ResultLimit => {
  const given = typeof limit === "object" && limit !== null ? limit as Record<string, unknown> : {}
  const names = Object.keys(given).filter((name) => given[name] !== undefined)
  const [name] = names
  if (names.length !== 1 || (name !== "maxChars" && name !== "maxTokens")) {
    throw TurnError.make(
      new TurnError.InvalidInput({
        what: `the resultBudget of ${owner}`,
        expected: "either { maxChars } or { maxTokens }",
        received: TurnError.show(limit)
      })
    )
  }
  const most = TurnError.wholeNumber(owner, `resultBudget.${name}`, given[name])
  return name === "maxChars" ? { maxChars: most } : { maxTokens: most }
}

const units = new Set(["weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"])

/** A duration in its parts; an object without any is no duration of zero, but a mistake. */
const isParts = (input: object): boolean =>
  Array.isArray(input) || (Object.keys(input).length > 0 && Object.keys(input).every((key) => units.has(key)))

/** Milliseconds of a limit, or a thrown {@link TurnError.TurnError} that names its owner.
 *
 * @internal
 */
export const limitMillis = (owner: string, limit: string, input: unknown, least: 0 | 1 = 1): number =>
  input === "infinite" ? Infinity : millisOf(owner, limit, input, least, ', or "infinite"')

/** The same of a limit that has to end.
 *
 * @internal
 */
export const finiteMillis = (owner: string, limit: string, input: unknown, least: 0 | 1 = 1): number =>
  millisOf(owner, limit, input, least, "")

const millisOf = (owner: string, limit: string, input: unknown, least: 0 | 1, or: string): number => {
  const refuse = () =>
    TurnError.make(
      new TurnError.InvalidLimit({
        owner,
        limit,
        expected: `a duration from ${least} to 2147483647 ms${or}`,
        received: Duration.isDuration(input) ? `${Duration.toMillis(input)} ms` : TurnError.show(input)
      })
    )
  // A duration made of NaN is zero.
  if (Number.isNaN(input)) throw refuse()
  if (typeof input === "object" && input !== null && !Duration.isDuration(input) && !isParts(input)) throw refuse()
  let millis: number
  try {
    millis = Duration.toMillis(Duration.fromInputUnsafe(input as Duration.Input))
  } catch {
    throw refuse()
  }
  if (!(millis >= least && millis <= 2_147_483_647)) throw refuse()
  return millis
}

type KeysOption<T> = {
  /** From decoded parameters to resource keys. Absent: unknown reach. An empty list: touches nothing shared. */
  readonly keys?: ((params: Tool.Parameters<T>) => ReadonlyArray<string>) | undefined
}

const withAccess = (access: Access) => <T extends Tool.Any>(options?: KeysOption<T>) => (tool: T): T => {
  const said = annotate(tool, AccessAnnotation, access)
  return options?.keys === undefined ? said : annotate(said, KeysAnnotation, options.keys)
}

/**
 * Says that a tool only reads, and what it reads.
 *
 * **Details**
 *
 * Reads never conflict with each other. A read with keys waits for earlier writes of those keys; without keys it waits
 * for every earlier write.
 *
 * **Example** (A read of one hotel)
 *
 * ```ts import.meta.vitest
 * import { pipe, Schema } from "effect"
 * import { Tool } from "effect/ai"
 * import { ToolPolicy } from "effect-turn"
 *
 * const GetHotel = pipe(
 *   Tool.make("get_hotel", { parameters: Schema.Struct({ hotelId: Schema.String }) }),
 *   ToolPolicy.read({ keys: ({ hotelId }) => [`hotel:${hotelId}`] })
 * )
 * const access = ToolPolicy.get(GetHotel).access // => "read"
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const read: <T extends Tool.Any>(options?: KeysOption<T>) => (tool: T) => T & Retryable = withAccess(
  "read"
) as any

/**
 * Says that a tool writes, and what it writes.
 *
 * **Details**
 *
 * A write waits for every earlier call of the turn that shares a key with it, and later ones wait for it. Once started it
 * is not interrupted, by siblings, by its timeout or from above, unless {@link forward} gives it a key.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const write: <T extends Tool.Any>(options?: KeysOption<T>) => (tool: T) => T = withAccess("write")

/**
 * Names the resources that a call touches, from its decoded parameters.
 *
 * **Details**
 *
 * Keys may be paths: `file:/a` covers `file:/a/b`; `.`, `..` and doubled slashes are resolved. `[]` touches nothing
 * shared. A function that throws, or gives anything but a list of strings, makes its call a `defect` that is not run.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const keys = <T extends Tool.Any>(of: (params: Tool.Parameters<T>) => ReadonlyArray<string>) => (tool: T): T =>
  annotate(tool, KeysAnnotation, of)

/**
 * Puts a tool on a backend: each run takes one of its permits.
 *
 * **Details**
 *
 * The backend, and the tenant where it keeps shares per tenant, become requirements of the tool: leaving the layer out
 * does not compile. A call takes its permit last, after its keys, and keeps it until its work has really ended.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const on =
  <Self, Shape, Requirements>(backend: BackendKey<Self, Shape, Requirements>) =>
  <T extends Tool.Any>(tool: T): Needing<T, Self | Requirements> =>
    (tool as any).addDependency(backend).annotate(BackendAnnotation, backend)

/**
 * Limits how long a handler may run, per attempt, from its start. Default: 10 seconds.
 *
 * **Details**
 *
 * A read is interrupted and answered `timeout` / `handler`. A write without a key is not: it is overdue, its true outcome
 * is awaited within the turn's `grace`, and an event says so. The grace of writes has no limit unless the turn gives one, so
 * this limit alone does not end a write that hangs.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const timeout = (limit: Limit) => <T extends Tool.Any>(tool: T): T =>
  annotate(tool, TimeoutAnnotation, limitMillis(`tool "${tool.name}"`, "timeout", limit))

/**
 * Limits how long a call may wait for keys and permits together. Default: 60 seconds.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const waitTimeout = (limit: Limit) => <T extends Tool.Any>(tool: T): T =>
  annotate(tool, WaitTimeoutAnnotation, limitMillis(`tool "${tool.name}"`, "waitTimeout", limit))

/**
 * Limits how long a handler may be silent between two progress notes (`context.preliminary`). Default: no limit.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const idleTimeout = (limit: Limit) => <T extends Tool.Any>(tool: T): T =>
  annotate(tool, IdleTimeoutAnnotation, limitMillis(`tool "${tool.name}"`, "idleTimeout", limit))

/**
 * Gives a write an idempotency key that its backend honours.
 *
 * **Details**
 *
 * The handler reads the key from `TurnContext.CurrentCall` and hands it on. Such a write may be interrupted, and may be
 * tried again: the backend counts one effect a key. With an `IdempotencyStore` in the context, a call whose key was applied is answered
 * with the recorded result, and not run. There is no default key, since two honest identical purchases are not a repetition.
 *
 * `scope` says whether the same key means the same write in all conversations of a tenant. Default: `"conversation"`.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const forward = <T extends Tool.Any>(
  key: (params: Tool.Parameters<T>, place: Place) => string,
  options?: { readonly scope?: "conversation" | "tenant" | undefined }
) =>
(tool: T): T & Retryable =>
  annotate(tool, IdempotencyAnnotation, { mode: "forward", key, scope: options?.scope ?? "conversation" }) as any

/**
 * Tries a run that failed again by itself, see {@link Retry}.
 *
 * **Details**
 *
 * It is for tools that read and for writes that carry a key: say `read`, `forward`, `IdempotencyStore.verify` or
 * `IdempotencyStore.record` first. The limits of `timeout` and `waitTimeout` are per attempt; keys are kept in the pause, a permit is not.
 * The call has one answer, whose `attempts` says how often it was run.
 *
 * **Example** (A read that comes back when it may)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schedule, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn } from "effect-turn"
 *
 * const TooMany = Schema.Struct({ retryAfter: Schema.Finite })
 * const Rates = pipe(
 *   Tool.make("rates", { success: Schema.String, failure: TooMany }),
 *   ToolPolicy.read({ keys: () => [] }),
 *   ToolPolicy.failures({ rateLimited: ({ retryAfter }) => `${retryAfter} millis` }),
 *   ToolPolicy.retry({ times: 2, schedule: Schedule.exponential("5 millis") })
 * )
 * const toolkit = Toolkit.make(Rates)
 * let asked = 0
 * const handlers = toolkit.toLayer({
 *   rates: () => ++asked === 1 ? Effect.fail({ retryAfter: 10 }) : Effect.succeed("1.08")
 * })
 *
 * const [outcome] = await Turn.run(toolkit, [ToolCall.make("c1", "rates")]).pipe(
 *   Effect.provide([handlers, Turn.layer()]),
 *   Effect.runPromise
 * )
 * const said = [outcome!.status, outcome!.attempts] // => ["ok", 2]
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const retry = <T extends Tool.Any & Retryable>(retry: Retry<Tool.Failure<T>>) => (tool: T): T => {
  TurnError.wholeNumber(`tool "${tool.name}"`, "retry.times", retry.times, 0)
  return annotate(tool, RetryAnnotation, retry)
}

/**
 * Says how a write is undone, for units that are all or nothing.
 *
 * **Details**
 *
 * It is for turns with `siblings: Siblings.allOrNothing`. What took effect is undone when a call of its unit failed, or the turn was stopped:
 * the last to end first, one after the other. A write that can be undone is not cut half-way in such a unit, also where it carries a key.
 *
 * It is run like a write without a key: in its place after what conflicts with it, under a permit of the tool's backend, within the tool's
 * running clock, and never interrupted. A full line does not turn it away, and it has no waiting clock. What fails is told in the
 * call's outcome: `undo` is `"done"`, with no effect left, or `"failed"`, with an unknown one. `TurnContext.CurrentCall` has no
 * idempotency key in it: the key of the write is in `done`, and is not to be sent again as that of another request.
 *
 * **Example** (A booking and its cancellation)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool } from "effect/ai"
 * import { ToolPolicy } from "effect-turn"
 *
 * const cancelBooking = (id: string) => Effect.log(`cancelled ${id}`)
 * const BookHotel = pipe(
 *   Tool.make("book_hotel", { parameters: Schema.Struct({ hotel: Schema.String }), success: Schema.String }),
 *   ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] }),
 *   ToolPolicy.undo((_, { result }) => cancelBooking(result))
 * )
 * const canBeUndone = ToolPolicy.get(BookHotel).undo !== undefined // => true
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const undo =
  <T extends Tool.Any, E, R>(how: Undo<Tool.Parameters<T>, Tool.Success<T>, E, R>) => (tool: T): Needing<T, R> =>
    annotate(tool, UndoAnnotation, how as Undo<any, any>) as any

/**
 * Says that identical calls are each meant for themselves: they are never merged.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const repeatable = <T extends Tool.Any>(tool: T): T => annotate(tool, RepeatableAnnotation, true)

/**
 * Says where invented arguments are looked for. Default: `"detect"`, everywhere.
 *
 * **Details**
 *
 * An empty text where one is required counts as invented. For a tool that takes `""`, name the argument in `literal`, or say
 * `"off"`. `literal` has the names of whole arguments, at the top of the parameters.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const placeholders = (placeholders: Placeholders) => <T extends Tool.Any>(tool: T): T =>
  annotate(tool, PlaceholdersAnnotation, placeholders)

/**
 * Classes a tool's failures: which certainly changed nothing, and which may pass when tried again.
 *
 * **Details**
 *
 * A classifier that throws classes its failure in the careful way: effect unknown, not transient, not rate limited.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const failures = <T extends Tool.Any>(failures: Failures<Tool.Failure<T>>) => (tool: T): T =>
  annotate(tool, FailuresAnnotation, failures)

/**
 * Limits how much of a result of this tool, or of a failure of its own, goes to the model. Default: all of it.
 *
 * **Details**
 *
 * The length is that of the JSON text which the model gets, with the marks that say what was cut. A text is cut between two characters as a
 * reader sees them, a list keeps its first items and ends with how many there were, an object keeps its members, the longest of which are
 * cut first. The program has the whole result in the outcome all the same; with an `ArtifactStore` in the context it is kept there, and
 * the mark names its id. The turn waits for that store then, for five seconds at most, and five more where the store ignores its stop.
 *
 * Of a tool with `toModelOutput` the texts among its parts are cut to the same length. Other parts stay whole, and are not counted.
 *
 * With `maxTokens` the tokenizer of `effect/ai` becomes a requirement of the tool: leaving it out does not compile. Of budgets for all
 * results of a turn together: `Turn.Options.resultBudget`.
 *
 * **Example** (A page that fits)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Outcome, ToolCall, ToolPolicy, Turn } from "effect-turn"
 *
 * const ReadPage = pipe(
 *   Tool.make("read_page", { success: Schema.String }),
 *   ToolPolicy.read({ keys: () => [] }),
 *   ToolPolicy.resultBudget({ maxChars: 80 })
 * )
 * const toolkit = Toolkit.make(ReadPage)
 * const handlers = toolkit.toLayer({ read_page: () => Effect.succeed("lorem ipsum ".repeat(1000)) })
 *
 * const [outcome] = await Turn.run(toolkit, [ToolCall.make("c1", "read_page")]).pipe(
 *   Effect.provide([handlers, Turn.layer()]),
 *   Effect.runPromise
 * )
 * const told = Outcome.forModel(outcome!).value // => "lorem ipsum lorem ipsum lorem ipsum lorem … [shown: 42 of 12000 characters]"
 * const whole = outcome!.status === "ok" && outcome!.result.length // => 12000
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const resultBudget: {
  (limit: { readonly maxChars: number }): <T extends Tool.Any>(tool: T) => T
  (limit: { readonly maxTokens: number }): <T extends Tool.Any>(tool: T) => Needing<T, Tokenizer>
} = (limit: ResultLimit) => (tool: Tool.Any): any => {
  const checked = resultLimit(`tool "${tool.name}"`, limit)
  return annotate(
    "maxTokens" in checked ? (tool as any).addDependency(Tokenizer) as Tool.Any : tool,
    ResultBudgetAnnotation,
    checked
  )
}

/**
 * All policies of a tool, with their defaults.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToolPolicy {
  readonly access: Access
  readonly keys: ((params: any) => ReadonlyArray<string>) | undefined
  readonly backend: BackendKey<any, any, any> | undefined
  readonly timeout: number
  readonly waitTimeout: number
  readonly idleTimeout: number
  readonly idempotency: Idempotency | undefined
  readonly retry: Retry<any> | undefined
  readonly undo: Undo<any, any> | undefined
  readonly repeatable: boolean
  readonly placeholders: Placeholders
  readonly failures: Failures<any>
  readonly resultBudget: ResultLimit | undefined
  /** Whether a run may be interrupted after its start: reads, and writes whose backend honours their key or can be asked. */
  readonly interruptible: boolean
}

const cache = new WeakMap<object, ToolPolicy>()

/**
 * Reads all policies of a tool, defaults included. Times are in milliseconds, `Infinity` for none.
 *
 * @category getters
 * @since 0.1.0
 * @stability experimental
 */
export const get = (tool: Tool.Any): ToolPolicy => {
  const known = cache.get(tool)
  if (known !== undefined) return known
  const a = tool.annotations
  const access = Context.get(a, AccessAnnotation) ?? (Context.get(a, AiTool.Readonly) ? "read" : "write")
  const idempotency = Context.get(a, IdempotencyAnnotation)
  const policy: ToolPolicy = {
    access,
    keys: Context.get(a, KeysAnnotation),
    backend: Context.get(a, BackendAnnotation),
    timeout: Context.get(a, TimeoutAnnotation),
    waitTimeout: Context.get(a, WaitTimeoutAnnotation),
    idleTimeout: Context.get(a, IdleTimeoutAnnotation),
    idempotency,
    retry: Context.get(a, RetryAnnotation),
    undo: Context.get(a, UndoAnnotation),
    repeatable: Context.get(a, RepeatableAnnotation),
    placeholders: Context.get(a, PlaceholdersAnnotation),
    failures: Context.get(a, FailuresAnnotation),
    resultBudget: Context.get(a, ResultBudgetAnnotation),
    interruptible: access === "read" || (idempotency !== undefined && idempotency.mode !== "record")
  }
  cache.set(tool, policy)
  return policy
}
