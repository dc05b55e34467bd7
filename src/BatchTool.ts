/**
 * Tools that take a list (rules R26, R27): from one definition the tool, its handler, and on request its twin for one item.
 *
 * - B1: every item that was asked for is answered for, under its id, or where it has none by its position. Nothing is left out in silence.
 * - B2: what fails, throws, is late or answers short touches its own items alone.
 * - B3: an id is data: no name of it is special, and results are found by id, never by position.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import type * as Arr from "effect/Array"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Metric from "effect/Metric"
import type * as Schema from "effect/Schema"
import type * as Backend from "./Backend.ts"
import type * as Coalescer from "./Coalescer.ts"
import type * as IdempotencyStore from "./IdempotencyStore.ts"
import { deferred as counter, makeBatchTool } from "./internal/batchTool/make.ts"
import { makeWriteTool } from "./internal/batchTool/write.ts"
import type * as ToolPolicy from "./ToolPolicy.ts"
import type * as TurnContext from "./TurnContext.ts"

/**
 * What a call of a list gives: the items, and where the tool has them, the fields that are wanted of each.
 *
 * **Details**
 *
 * Any list is taken here, since a bad item is told in the result. The JSON Schema that a provider sees has the schema of an item, and the
 * bounds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Parameters {
  readonly items?: ReadonlyArray<unknown>
  readonly fields?: unknown
}

/**
 * How many there were: `requested` counts each item once, those beyond the cap included, and `ok + other + deferred = requested`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Summary {
  readonly requested: number
  readonly ok: number
  readonly other: number
  readonly deferred: number
}

/**
 * Something in the list that has no id: null, an empty text, an object that the key cannot be read from.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Invalid {
  readonly position: number
  readonly message: string
  readonly retryable: boolean
}

/**
 * An item that was found.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Found<Value> {
  readonly status: "ok"
  readonly value: Value
}

/**
 * An item that was not: `failure` is its own, where the tool declares one.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Missed<Failure> {
  readonly status: "not_found" | "invalid" | "error" | "timeout"
  readonly message: string
  readonly retryable: boolean
  readonly failure?: Failure
}

/**
 * What a list is answered with, in this order of members.
 *
 * **Details**
 *
 * - `status`: `"ok"` when all items are, `"error"` when none is.
 * - `ids` has the order, for an object's members that look like numbers do not keep theirs.
 * - `results` by id.
 * - `deferred_ids`: those beyond the cap, to be asked for in another call.
 * - `note`: what the model should know besides, and else empty.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Result<One> {
  readonly status: "ok" | "partial" | "error"
  readonly summary: Summary
  readonly ids: ReadonlyArray<string>
  readonly results: { readonly [id: string]: One }
  readonly invalid: ReadonlyArray<Invalid>
  readonly deferred_ids: ReadonlyArray<string>
  readonly note: string
}

/**
 * The failure of a list without items.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Empty {
  readonly code: "EMPTY"
  readonly message: string
}

/**
 * The failure of the twin.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface SingleFailure<Failure> {
  readonly code: "NOT_FOUND" | "ERROR" | "TIMEOUT"
  readonly message: string
  readonly retryable: boolean
  readonly failure?: Failure
}

/** A schema of plain data: it needs no services. */
type Plain = Schema.Codec<any, any>

/**
 * How the id of an item is told, from the item as the model writes it, normalised. Texts and numbers are their own ids.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type KeyOption<Encoded> = [Encoded] extends [string | number]
  ? { readonly key?: ((raw: Encoded) => string | number) | undefined }
  : { readonly key: (raw: Encoded) => string | number }

/** Two tools of one name do not go together. */
type OtherName<Name extends string, SingleName extends string> = [SingleName] extends [never] ? unknown
  : string extends Name ? unknown
  : SingleName extends Name ? { readonly single: { readonly name: "another name than that of the list" } }
  : unknown

/**
 * What tools that read lists and tools that write them are made of alike: see {@link Options} for what each of it means.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Settings<Item extends Plain, Success extends Plain, Failure extends Plain, Self, Requirements> {
  readonly description: string
  readonly item: Item
  readonly normalise?: ((raw: unknown) => unknown) | undefined
  readonly success: Success
  readonly failure?: Failure | undefined
  readonly itemKey?: ((found: Success["Type"]) => Item["Type"] | string) | undefined
  readonly resources?: ((item: Item["Type"]) => ReadonlyArray<string>) | undefined
  readonly cap?: number | undefined
  readonly chunk?: number | undefined
  readonly chunkTimeout?: ToolPolicy.Limit | undefined
  readonly backend?: ToolPolicy.BackendKey<Self, Backend.Backend, Requirements> | undefined
}

/**
 * How a list is looked up.
 *
 * **Details**
 *
 * - `description`: what the tool does. That everything is to be passed at once, and the cap, is added to it.
 * - `item`: one item, as the model writes it.
 * - `key` tells the id of an item; needed where items are objects. It sees the item as the model wrote it, normalised and not yet checked or
 *   decoded: a member may be missing. What it throws for, or gives no text or number for, has no id. Items that differ in what is looked
 *   up need different keys: those of different calls that have one key share what is found.
 * - `normalise`: done to each item first. Default: takes the blanks off the ends of texts; what is in objects stays as it is. An item that it
 *   throws for is told as one without an id, in the words of the throw, and the log has it, once a list.
 * - `success`: what is found for an item; "not found" is said with `undefined`, never with null. `failure`: how an item can fail by itself,
 *   see `Coalescer.failed`; `failures.transient` says of which it is worth asking again. Default: of none. What is not as they say is an
 *   `error` of its item alone, which says where and why, and is not shown.
 * - `lookup` gets a chunk of items, each once, and answers in any order: see `Coalescer.Answer`. A `Map` in it has items or their ids as keys.
 * - `itemKey` tells the item, or the id, that something found belongs to, for lists that come shuffled or short.
 * - `resources`: the resource keys of an item, as in `ToolPolicy.keys`; a call reads those of all its good items. Absent: unknown reach.
 * - `cap`: the most items of a call. Default 25. `chunk`: the most items of a request. Default 10. `chunkTimeout`: how long a request
 *   may run. Default 2 seconds. `window`: how long calls outside turns wait for more. Default 5 ms.
 * - `backend`: where requests take a permit each.
 * - `fields`: gives the tool a parameter `fields`, by which the model says what it wants of each item; `success` has to be a struct. Names
 *   that do not exist are told in the note. The twin has no such parameter.
 * - `text`: the most characters of a text in a result. Longer ones are cut between characters as people see them, and marked, within that
 *   number; but for those that their schema takes only whole. For what is bulky all the same give the tool a `ToolPolicy.resultBudget`: the
 *   whole is then kept as an artifact.
 * - `single`: the twin for one item, under a name of its own.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<
  Item extends Plain,
  Success extends Plain,
  Failure extends Plain,
  SingleName extends string,
  Fields extends boolean,
  EX,
  R,
  Self,
  Requirements
> extends Settings<Item, Success, Failure, Self, Requirements> {
  readonly failures?: Pick<ToolPolicy.Failures<Failure["Type"]>, "transient"> | undefined
  readonly lookup: (
    items: Arr.NonEmptyReadonlyArray<Item["Type"]>,
    request: Coalescer.Request
  ) => Effect.Effect<Coalescer.Answer<Item["Type"] | string, Success["Type"], Failure["Type"]>, EX, R>
  readonly window?: Duration.Input | undefined
  readonly fields?: (Success extends { readonly fields: Schema.Struct.Fields } ? Fields : false) | undefined
  readonly text?: number | undefined
  readonly single?: { readonly name: SingleName; readonly description?: string | undefined } | undefined
}

/** What is shown of a found item. */
type Shown<Type, Fields extends boolean> = Fields extends true ? { readonly [K in keyof Type]?: Type[K] } : Type

/**
 * The tool that looks a list up.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ListTool<Name extends string, Value, Failure, R> =
  & Tool.Tool<Name, {
    readonly parameters: Schema.Codec<Parameters, unknown>
    readonly success: Schema.Codec<Result<Found<Value> | Missed<Failure>>, unknown>
    readonly failure: Schema.Codec<Empty>
    readonly failureMode: "return"
  }, R>
  & ToolPolicy.Retryable

/**
 * The tool that looks one item up.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type SingleTool<Name extends string, Item, Success extends Plain, Failure, R> =
  & Tool.Tool<Name, {
    readonly parameters: Schema.Codec<{ readonly item: Item }, { readonly item: unknown }>
    readonly success: Success
    readonly failure: Schema.Codec<SingleFailure<Failure>, unknown>
    readonly failureMode: "return"
  }, R>
  & ToolPolicy.Retryable

/**
 * A tool that looks a list up, its twin, their handlers, and the coalescer that both ask.
 *
 * **Details**
 *
 * In a turn the calls of both share requests, as many as the size of a chunk asks for, and at once. Outside turns the handlers ask the coalescer.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface BatchTool<
  Name extends string,
  Item extends Plain,
  Success extends Plain,
  Failure extends Plain,
  SingleName extends string,
  Fields extends boolean,
  R
> {
  readonly tool: ListTool<Name, Shown<Success["Type"], Fields>, Failure["Type"], R>
  /** `undefined` where none was asked for. */
  readonly single: [SingleName] extends [never] ? undefined
    : SingleTool<SingleName, Item["Type"], Success, Failure["Type"], R>
  /** To be given to the toolkit. */
  readonly handlers:
    & {
      readonly [K in Name]: (
        params: Parameters
      ) => Effect.Effect<Result<Found<Shown<Success["Type"], Fields>> | Missed<Failure["Type"]>>, Empty, R>
    }
    & {
      readonly [K in SingleName]: (
        params: { readonly item: Item["Type"] }
      ) => Effect.Effect<Success["Type"], SingleFailure<Failure["Type"]>, R>
    }
  readonly coalescer: Coalescer.Coalescer<Item["Type"], Success["Type"], Failure["Type"], R>
}

/**
 * Makes a tool that looks up a list, and a twin for one item on request.
 *
 * **Details**
 *
 * A list is taken in this order: each item is normalised, one of each is kept, what is beyond the cap is deferred, and the rest is checked.
 * What has no id stands under `invalid`, and takes no place under the cap. Two items of one id that differ once they are normalised are both
 * `invalid`, since nobody can tell which is meant. An empty list fails with `EMPTY`, and asks for nothing.
 *
 * An item comes to `ok`, `not_found`, `invalid`, `timeout` (its request was late) or `error` (its request failed, or the item by itself).
 * A call succeeds also where no item does.
 *
 * The tool is a read. Its running clock is set so that it cuts no list short whose requests wait in line: one waiting limit (60 seconds), and
 * `chunkTimeout` for each chunk that the cap may come to. A `ToolPolicy.timeout` that is said later stands.
 *
 * **Gotchas**
 *
 * In a turn one item that is a placeholder, such as `<id>`, defers the whole list as it does any call: nothing is asked for. Where items are
 * honest texts of that form, `ToolPolicy.placeholders` turns this off.
 *
 * **Example** (Twelve orders in one call)
 *
 * ```ts import.meta.vitest
 * import { Effect, Schema } from "effect"
 * import { BatchTool, ToolCall, Turn, TurnContext } from "effect-turn"
 * import { Toolkit } from "effect/ai"
 *
 * const table = new Map([["O-1", { state: "sent" }], ["O-2", { state: "paid" }]])
 * const Orders = BatchTool.make("get_orders", {
 *   description: "Looks orders up.",
 *   item: Schema.String,
 *   success: Schema.Struct({ state: Schema.String }),
 *   lookup: (ids) => Effect.succeed(ids.map((id) => table.get(id))),
 *   single: { name: "get_order" }
 * })
 * const toolkit = Toolkit.make(Orders.tool, Orders.single)
 *
 * const [list] = await Turn.run(toolkit, [ToolCall.make("c1", "get_orders", { items: ["O-1", " O-2", "O-2", "O-9"] })]).pipe(
 *   Effect.provide([toolkit.toLayer(Orders.handlers), Turn.layer()]),
 *   Effect.provide(TurnContext.make({ tenant: "north" })),
 *   Effect.runPromise
 * )
 * const result = list!.status === "ok" && list!.name === "get_orders" ? list!.result : undefined
 * const summary = result?.summary // => { requested: 3, ok: 2, other: 1, deferred: 0 }
 * const states = result?.ids.map((id) => result.results[id]!.status) // => ["ok", "ok", "not_found"]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make: <
  const Name extends string,
  Item extends Plain,
  Success extends Plain,
  Failure extends Plain = Schema.Never,
  const SingleName extends string = never,
  const Fields extends boolean = false,
  EX = never,
  R = never,
  Self = never,
  Requirements = never
>(
  name: Name,
  options:
    & Options<Item, Success, Failure, SingleName, Fields, EX, R, Self, Requirements>
    & KeyOption<Item["Encoded"]>
    & OtherName<Name, SingleName>
) => BatchTool<
  Name,
  Item,
  Success,
  Failure,
  SingleName,
  Fields,
  R | Self | Requirements | TurnContext.Tenant
> = makeBatchTool

/**
 * An item that is to be applied, with its id and, where the tool has them, its idempotency key.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToApply<Item> {
  readonly id: string
  readonly item: Item
  readonly idempotencyKey: string | undefined
}

/**
 * An item that was applied: by this call, or before (`replayed`), with the recorded result.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Applied<Value> {
  readonly status: "ok"
  readonly value: Value
  readonly effect: "applied"
  readonly replayed?: true
}

/**
 * An item that did not succeed, and what it may have done all the same.
 *
 * **Details**
 *
 * - `not_applied`: it was not sent, for the call was stopped, the backend turned its request away, its key could not be reserved, or
 *   something before it did not succeed where the order counts. It may be sent again.
 * - `in_doubt`: an earlier run may have applied it, and its record does not know.
 * - `key_reused`: its idempotency key stands for another item.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface NotApplied<Failure> {
  readonly status: "invalid" | "not_applied" | "error" | "timeout" | "in_doubt" | "key_reused"
  readonly effect: "none" | "applied" | "unknown"
  readonly message: string
  readonly retryable: boolean
  readonly failure?: Failure
}

/**
 * Whether a human is asked before a list is applied: never, always, or when the items that are in order say so. A list without such items
 * applies nothing, and asks nobody.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Approval<Item> =
  | "never"
  | "always"
  | ((items: Arr.NonEmptyReadonlyArray<Item>) => boolean | Effect.Effect<boolean>)

/**
 * A destructive tool has to say whether it needs approval.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ApprovalOption<Item> =
  | { readonly destructive?: false | undefined; readonly approval?: Approval<Item> | undefined }
  | { readonly destructive: true; readonly approval: Approval<Item> }

/**
 * How a list is written.
 *
 * **Details**
 *
 * `description`, `item`, `key`, `normalise`, `success`, `failure`, `itemKey`, `cap`, `chunk` and `backend` are as in {@link Options}.
 *
 * - `apply` gets a chunk of items, each once, and tells what became of each. An item that it says nothing of may have been applied.
 * - `failures.noEffect` says which of an item's own failures changed nothing; default: none of them. `failures.transient` says which are
 *   worth trying again; default: none. Neither is asked of a failure that is not as `failure` says: its item may have been applied.
 * - `resources`: the resource keys of an item, as in `ToolPolicy.write`; a call writes those of all its good items. Absent: unknown reach.
 * - `ordered`: one chunk after the other, in the model's order, and nothing is sent after the first item that did not succeed. What stands
 *   with it in one chunk has been sent together. Default: chunks go side by side.
 * - `chunkTimeout`: how long a request may run whose backend honours keys (`forward`). Any other is never cut short once it is sent: for
 *   those it is what the clock of the tool is made of. Default 2 seconds.
 * - `destructive` and `approval`: a human is shown the whole list, in the arguments of the call. Default: nobody is asked.
 * - `idempotency`: `key` names the write of an item, from the item. `forward`: the backend honours the key. `record`: our own record alone
 *   guards it, and the `IdempotencyStore` becomes a requirement; with `forward` it is used where there is one. `scope` is as in
 *   `ToolPolicy.forward`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface WriteOptions<
  Item extends Plain,
  Success extends Plain,
  Failure extends Plain,
  Mode extends "forward" | "record",
  EX,
  R,
  Self,
  Requirements
> extends Settings<Item, Success, Failure, Self, Requirements> {
  readonly failures?: Pick<ToolPolicy.Failures<Failure["Type"]>, "noEffect" | "transient"> | undefined
  readonly apply: (
    items: Arr.NonEmptyReadonlyArray<ToApply<Item["Type"]>>,
    request: Coalescer.Request
  ) => Effect.Effect<Coalescer.Answer<Item["Type"] | string, Success["Type"], Failure["Type"]>, EX, R>
  readonly ordered?: boolean | undefined
  readonly idempotency?: {
    readonly mode: Mode
    readonly key: (item: Item["Type"]) => string
    readonly scope?: "conversation" | "tenant" | undefined
  } | undefined
}

/**
 * A tool that writes a list, and its handler.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface BatchWrite<Name extends string, Success extends Plain, Failure extends Plain, R> {
  readonly tool: Tool.Tool<Name, {
    readonly parameters: Schema.Codec<Pick<Parameters, "items">, unknown>
    readonly success: Schema.Codec<Result<Applied<Success["Type"]> | NotApplied<Failure["Type"]>>, unknown>
    readonly failure: Schema.Codec<Empty>
    readonly failureMode: "return"
  }, R>
  /** To be given to the toolkit. */
  readonly handlers: {
    readonly [K in Name]: (
      params: Pick<Parameters, "items">
    ) => Effect.Effect<Result<Applied<Success["Type"]> | NotApplied<Failure["Type"]>>, Empty, R>
  }
}

/**
 * Makes a tool that writes a list.
 *
 * **Details**
 *
 * A list is taken as by {@link make}. Each chunk is a request, under a permit of its own. What became of each item is told with its effect,
 * and a call succeeds also where no item does. In a turn one item that is a placeholder defers the whole list: nothing is applied.
 *
 * With `idempotency` a key is reserved for each item before it is sent, and what became of it is written down before it is told. A retry
 * after a partial failure then sends only what is missing: what was applied is answered from the record.
 *
 * **Interruption**: a request that was sent is awaited, but where its backend honours keys. What was not sent is `not_applied`.
 *
 * There is no twin for one item: a list of one is that, and two tools for one write are two ways to do it twice.
 *
 * **Example** (Half of a list is applied, and the retry sends the rest)
 *
 * ```ts import.meta.vitest
 * import { Effect, Schema } from "effect"
 * import { BatchTool, Coalescer, IdempotencyStore, ToolCall, Turn, TurnContext } from "effect-turn"
 * import { Toolkit } from "effect/ai"
 *
 * const sent: Array<string> = []
 * const Refunds = BatchTool.write("refund", {
 *   description: "Pays orders back.",
 *   item: Schema.String,
 *   success: Schema.String,
 *   failure: Schema.Struct({ message: Schema.String }),
 *   failures: { noEffect: () => true, transient: () => true },
 *   apply: (orders) =>
 *     Effect.sync(() =>
 *       orders.map(({ item }) => {
 *         sent.push(item)
 *         return item === "O-2" && sent.length === 2 ? Coalescer.failed({ message: "locked" }) : `receipt of ${item}`
 *       })
 *     ),
 *   resources: (order) => [`order:${order}`],
 *   destructive: true,
 *   approval: (orders) => orders.length > 10,
 *   idempotency: { mode: "record", key: (order) => `refund:${order}` }
 * })
 * const toolkit = Toolkit.make(Refunds.tool)
 * const refund = (id: string) => ToolCall.make(id, "refund", { items: ["O-1", "O-2"] })
 *
 * const outcomes = await Effect.gen(function*() {
 *   const first = yield* Turn.run(toolkit, [refund("c1")])
 *   return [...first, ...(yield* Turn.run(toolkit, [refund("c2")]))]
 * }).pipe(
 *   Effect.provide([toolkit.toLayer(Refunds.handlers), Turn.layer(), IdempotencyStore.layerMemory]),
 *   Effect.provide(TurnContext.make({ tenant: "north" })),
 *   Effect.runPromise
 * )
 * const statuses = outcomes.map((outcome) => outcome.status === "ok" ? outcome.result.status : "") // => ["partial", "ok"]
 * const all = sent.join() // => "O-1,O-2,O-2"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const write: <
  const Name extends string,
  Item extends Plain,
  Success extends Plain,
  Failure extends Plain = Schema.Never,
  Mode extends "forward" | "record" = never,
  EX = never,
  R = never,
  Self = never,
  Requirements = never
>(
  name: Name,
  options:
    & WriteOptions<Item, Success, Failure, Mode, EX, R, Self, Requirements>
    & KeyOption<Item["Encoded"]>
    & ApprovalOption<Item["Type"]>
) => BatchWrite<
  Name,
  Success,
  Failure,
  | R
  | Self
  | Requirements
  | ("record" extends Mode ? IdempotencyStore.IdempotencyStore | TurnContext.Tenant : never)
> = makeWriteTool

/**
 * Items of lists that were not asked for, by tool and reason (`cap`).
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const deferred: Metric.Counter<number> = counter
