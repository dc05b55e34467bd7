/**
 * Single lookups merged into requests for lists (rule R28).
 *
 * - L1: a request holds keys of one tenant and one backend alone, each key once, at most `size` of them.
 * - L2: each caller gets its own item, or its own error: the answer is paired by key, by position only where the lengths agree, and where
 *   nothing can be paired nobody gets a guess.
 * - L3: a caller that leaves touches nobody else. When all have left, the request is interrupted, and awaited by the last.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import type * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as Backend from "./Backend.ts"
import { makeCoalescer } from "./internal/coalescer/engine.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import type * as TurnContext from "./TurnContext.ts"

/**
 * The answer of a lookup lacks what was asked for.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class ItemNotFound extends Schema.TaggedError<ItemNotFound>()("ItemNotFound", {
  coalescer: Schema.String,
  key: Schema.Unknown,
  message: Schema.String
}) {}

/**
 * The request failed as a whole, for all that it was for: `error` is the failure or the defect of the lookup. Asking again may help.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class RequestFailed extends Schema.TaggedError<RequestFailed>()("RequestFailed", {
  coalescer: Schema.String,
  error: Schema.Unknown,
  message: Schema.String
}) {}

/**
 * The request took longer than its limit, in milliseconds. Asking again may help.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class RequestTimeout extends Schema.TaggedError<RequestTimeout>()("RequestTimeout", {
  coalescer: Schema.String,
  millis: Schema.Number,
  message: Schema.String
}) {}

/**
 * The lookup answered with something that cannot be paired with what was asked for: no list, a list of another length without keys, two
 * items for one key.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class InvalidAnswer extends Schema.TaggedError<InvalidAnswer>()("InvalidAnswer", {
  coalescer: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {}

/**
 * Why a caller did not get its item, besides the item's own failure.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export type LoadError = ItemNotFound | RequestFailed | RequestTimeout | InvalidAnswer

/** @internal */
export const isOfRequest = (error: unknown): boolean =>
  error instanceof RequestFailed || error instanceof RequestTimeout || error instanceof InvalidAnswer

/**
 * An item that failed by itself, in the answer of a lookup; {@link failed} makes one.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export class ItemFailed<out E> {
  readonly error: E
  constructor(error: E) {
    this.error = error
  }
}

/**
 * Says that one item of an answer failed, and the others did not.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const failed = <E>(error: E): ItemFailed<E> => new ItemFailed(error)

/**
 * What a lookup answers.
 *
 * **Details**
 *
 * A `Map` is paired by its keys. A list is paired by the key of each item where the coalescer has `itemKey`, and else by position, which
 * needs a list as long as the keys: there `undefined` is an item that was not found. What nobody asked for is ignored.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Answer<Key, Item, E = never> =
  | ReadonlyArray<Item | ItemFailed<E> | undefined>
  | ReadonlyMap<Key, Item | ItemFailed<E>>

/**
 * On whose behalf a request is sent.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Request {
  readonly tenant: string
}

/**
 * How a coalescer is made.
 *
 * **Details**
 *
 * - `lookup` gets each key once, at most `size` of them, and runs in the context of the first caller.
 * - `itemKey` tells the key of an item, for lists that come shuffled or short.
 * - `keyText` gives equal texts for equal keys. Default: a text is itself, anything else its JSON with sorted members.
 * - `item` is the schema of an item. With it each of several callers gets a copy of its own; without it they share what the lookup gave.
 * - `resources` are the resource keys of an item, as in `ToolPolicy.keys`: a write that touches one of them takes the item out of the cache.
 *   Default: unknown reach, so any write does.
 * - `window`: how long a request waits for more, from its first key. Default 5 ms; 0 waits for what asks in the same turn of the event loop.
 *   Calls of one turn of a model need none.
 * - `size`: the most keys of a request, which is sent at once when it has them. Default 10.
 * - `timeout`: how long a request may run. Default 2 seconds.
 * - `backend`: where requests take a permit each.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<Key, Item, E, EX, R, Self = never, Requirements = never> {
  readonly name: string
  readonly lookup: (
    keys: Arr.NonEmptyReadonlyArray<Key>,
    request: Request
  ) => Effect.Effect<Answer<Key, Item, E>, EX, R>
  readonly itemKey?: ((item: Item) => Key) | undefined
  readonly keyText?: ((key: Key) => string) | undefined
  readonly item?: Schema.Codec<Item, any> | undefined
  readonly resources?: ((key: Key) => ReadonlyArray<string>) | undefined
  readonly window?: ToolPolicy.Limit | undefined
  readonly size?: number | undefined
  readonly timeout?: ToolPolicy.Limit | undefined
  readonly backend?: ToolPolicy.BackendKey<Self, Backend.Backend, Requirements> | undefined
}

/**
 * Merges lookups of single keys into requests for lists.
 *
 * **Details**
 *
 * - `load` gives the item of a key. **Interruption**: leaves the request; the last to leave interrupts it and waits for its end.
 * - `loadAll` gives what became of each of many keys, in their order; it never fails.
 * - Times are in milliseconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Coalescer<in Key, out Item, out E = never, out R = never> {
  readonly name: string
  readonly window: number
  readonly size: number
  readonly timeout: number
  readonly load: (key: Key) => Effect.Effect<Item, E | LoadError | Backend.Refused, R>
  readonly loadAll: (
    keys: ReadonlyArray<Key>
  ) => Effect.Effect<ReadonlyArray<Exit.Exit<Item, E | LoadError | Backend.Refused>>, never, R>
  /** @internal */
  readonly parts: Parts<any, any, any, any>
}

/** What the runtime of a turn needs of a coalescer.
 *
 * @internal
 */
export interface Parts<Key, Item, E, R> {
  readonly backend: Backend.Key | undefined
  readonly keyText: (key: Key) => string
  /**
   * Sends one request, without a permit, and pairs its answer: one exit for each text. It never fails. Interrupting it interrupts the
   * lookup and waits for it, and so does its timeout.
   */
  readonly request: (
    keys: Arr.NonEmptyReadonlyArray<Key>,
    request: Request,
    /** How many callers it is for, for the metrics. */
    callers: number
  ) => Effect.Effect<ReadonlyMap<string, Exit.Exit<Item, E | LoadError>>, never, R>
  /** What the cache of the context has for a key; undefined where there is none, or no cache. */
  readonly cached: (
    context: Context.Context<never>,
    tenant: string,
    key: Key
  ) => Exit.Exit<Item, never> | undefined
}

/**
 * Makes a coalescer. It belongs to the process: whoever holds the value shares its requests.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make: <Key, Item, E = never, EX = never, R = never, Self = never, Requirements = never>(
  options: Options<Key, Item, E, EX, R, Self, Requirements>
) => Coalescer<Key, Item, E, R | Self | Requirements | TurnContext.Tenant> = makeCoalescer as any

/** How the calls of a tool ask for what they want, as {@link through} and batch tools say it.
 *
 * @internal
 */
export interface Merging {
  readonly coalescer: Coalescer<any, any, any, any>
  /** What a call asks for, by its decoded parameters. Nothing: its handler is run as any other. */
  readonly wants: (params: any) => ReadonlyArray<unknown>
  /** What a call comes to, by what became of what it asked for. */
  readonly answer: (
    params: any,
    found: ReadonlyMap<string, Exit.Exit<unknown, unknown>>
  ) => Exit.Exit<unknown, unknown>
}

/** @internal */
export const MergingAnnotation = Context.Reference<Merging | undefined>("effect-turn/Coalescer/Merging", {
  defaultValue: () => undefined
})

/** The mark of a handler that does nothing but ask a coalescer: the runtime of a turn may do so in its place.
 *
 * @internal
 */
export const HandlerMark: unique symbol = Symbol.for("effect-turn/Coalescer/Handler")

/** Marks a handler.
 *
 * @internal
 */
export const marked = <F extends (...args: Array<any>) => unknown>(handler: F): F =>
  Object.assign(handler, { [HandlerMark]: true })

/**
 * Says that the calls of a tool are lookups of a coalescer: those of one turn are merged into as few requests as its size allows.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const through = <T extends Tool.Any, Key, E extends Tool.Failure<T>, R>(
  coalescer: Coalescer<Key, Tool.Success<T>, E, R>,
  key: (params: Tool.Parameters<T>) => Key
) =>
(tool: T): ToolPolicy.Needing<T, R> => {
  const merging: Merging = {
    coalescer,
    wants: (params) => [key(params)],
    answer: (params, found) => found.get(coalescer.parts.keyText(key(params)))!
  }
  const merged = tool.annotate(MergingAnnotation, merging)
  const { backend } = coalescer.parts
  return (backend === undefined ? merged : merged.annotate(ToolPolicy.BackendAnnotation, backend)) as any
}

export const handler = (tool: Tool.Any): any =>
  marked((params: any) => {
    const m = Context.get(tool.annotations, MergingAnnotation)!
    return m.coalescer.load(m.wants(params)[0])
  })
