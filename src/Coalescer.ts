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
import * as AiError from "effect/ai/AiError"
import type * as Tool from "effect/ai/Tool"
import type * as Arr from "effect/Array"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import type * as EffectRequest from "effect/Request"
import * as RequestResolver from "effect/RequestResolver"
import * as Schema from "effect/Schema"
import * as Backend from "./Backend.ts"
import { Cache, cacheOf, Current, wrote } from "./internal/coalescer/cache.ts"
import { Copies } from "./internal/coalescer/copies.ts"
import { Engine, tenantOf } from "./internal/coalescer/engine.ts"
import type { Words } from "./internal/coalescer/pairing.ts"
import { lookupOf } from "./internal/coalescer/resolver.ts"
import { Soon } from "./internal/coalescer/soon.ts"
import { keyText, nameOf, problemOf, wordsOf } from "./internal/coalescer/words.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import type * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"

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
 * items for one key. Asking again may help.
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

/** What is wrong, in words.
 *
 * @internal
 */
export const inWords = { nameOf, problemOf, wordsOf }

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
 * How a coalescer is set, whatever looks its items up.
 *
 * **Details**
 *
 * - `keyText` gives equal texts for equal keys. Default: a text is itself, anything else its JSON with sorted members; what JSON does not
 *   hold whole (`NaN`, a date, a `Map`) is refused.
 * - `item` is the schema of an item. With it each of several callers gets a copy of its own, and so does a cache; an item that it does not
 *   fit is an {@link InvalidAnswer} for them. It is not looked at where an item has one caller and no cache: that one gets what the lookup
 *   gave, unchecked. Without it callers share what the lookup gave.
 * - `resources` are the resource keys of an item, as in `ToolPolicy.keys`: a write that touches one of them takes the item out of the
 *   cache, see {@link cached}. Default: unknown reach, so any write does.
 * - `window`: how long a request waits for more, from its first key. Default 5 ms; 0 waits for what asks in the same turn of the event loop.
 *   Calls of one turn of a model need none.
 * - `size`: the most keys of a request, which is sent at once when it has them. Default 10.
 * - `timeout`: how long a request may run, once it has its permit. Default 2 seconds.
 * - `backend`: where requests take a permit each.
 *
 * **Gotchas**
 *
 * The text `"1"` and the number 1 have one text. Keys of both kinds need a `keyText` of their own.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Settings<in out Key, in out Item, in out Self = never, out Requirements = never> {
  readonly name: string
  readonly keyText?: ((key: Key) => string) | undefined
  readonly item?: Schema.Codec<Item, any> | undefined
  readonly resources?: ((key: Key) => ReadonlyArray<string>) | undefined
  readonly window?: Duration.Input | undefined
  readonly size?: number | undefined
  readonly timeout?: ToolPolicy.Limit | undefined
  readonly backend?: ToolPolicy.BackendKey<Self, Backend.Backend, Requirements> | undefined
}

/**
 * How a coalescer is made, beside its {@link Settings}.
 *
 * **Details**
 *
 * - `lookup` gets each key once, at most `size` of them, and runs in the context of the first caller.
 * - `itemKey` tells the key of an item, for lists that come shuffled or short.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<in out Key, in out Item, out E, out EX, out R, in out Self = never, out Requirements = never>
  extends Settings<Key, Item, Self, Requirements>
{
  readonly lookup: (
    keys: Arr.NonEmptyReadonlyArray<Key>,
    request: Request
  ) => Effect.Effect<Answer<Key, Item, E>, EX, R>
  readonly itemKey?: ((item: Item) => Key) | undefined
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
export const make = <Key, Item, E = never, EX = never, R = never, Self = never, Requirements = never>(
  options: Options<Key, Item, E, EX, R, Self, Requirements>
): Coalescer<Key, Item, E, R | Self | Requirements | TurnContext.Tenant> => {
  const { itemKey, item, lookup, name } = options
  if (typeof name !== "string" || name === "") throw refuse("the name of a coalescer", "a text that is not empty", name)
  const owner = `coalescer "${name}"`
  if (typeof lookup !== "function") throw refuse(`the lookup of ${owner}`, "a function", lookup)
  const size = TurnError.wholeNumber(owner, "size", options.size ?? 10)
  const window = ToolPolicy.finiteMillis(owner, "window", options.window ?? 5, 0)
  const timeout = ToolPolicy.limitMillis(owner, "timeout", options.timeout ?? 2000)
  const told = wordsFor(name)
  const ownText = options.keyText
  const text = ownText === undefined ? keyText : (key: Key): string => {
    const given: unknown = ownText(key)
    if (typeof given === "string") return given
    throw refuse(`the keyText of ${owner}`, "a text", given)
  }
  const { resources } = options
  const attributes = { coalescer: name }
  const [metricLoads, metricRequests, metricItems] = [
    Metric.withAttributes(loads, attributes),
    Metric.withAttributes(requests, attributes),
    Metric.withAttributes(requestItems, attributes)
  ]
  const engine = new Engine({
    lookup: lookup as any,
    by: { text, plain: ownText === undefined, ofItem: itemKey },
    words: told,
    timeout,
    window,
    size,
    soon: new Soon(),
    backend: options.backend,
    copies: item === undefined ? undefined : new Copies(item, told),
    reach: (key) => {
      try {
        return resources?.(key)
      } catch {
        // It may be anything.
        return undefined
      }
    },
    measure: (items, callers, context) => {
      metricLoads.updateUnsafe(callers, context)
      metricRequests.updateUnsafe(1, context)
      metricItems.updateUnsafe(items, context)
    }
  })
  return {
    name,
    window,
    size,
    timeout,
    load: (key) => engine.load(key),
    loadAll: (keys) => engine.loadAll(keys),
    parts: {
      backend: options.backend,
      keyText: text,
      request: (keys: Arr.NonEmptyReadonlyArray<Key>, request: Request, callers: number) =>
        engine.requestFor(keys, request.tenant, callers),
      cached: (context: Context.Context<never>, tenant: string, key: Key) => engine.cached(context, tenant, key)
    }
  }
}

const refuse = (what: string, expected: string, received: unknown): TurnError.TurnError =>
  TurnError.make(new TurnError.InvalidInput({ what, expected, received: TurnError.show(received) }))

/** The errors of one coalescer. */
const wordsFor = (coalescer: string): Words => ({
  notFound: (key) =>
    new ItemNotFound({ coalescer, key, message: `${coalescer}: there is nothing for ${TurnError.show(key)}` }),
  failed: (error) =>
    new RequestFailed({ coalescer, error, message: `${coalescer}: the request failed (${wordsOf(error)})` }),
  late: (millis) =>
    new RequestTimeout({ coalescer, millis, message: `${coalescer}: the request took longer than ${millis} ms` }),
  invalid: (problem) => new InvalidAnswer({ coalescer, problem, message: `${coalescer}: ${problem}` }),
  itemFailure: (item) => item instanceof ItemFailed ? item : undefined
})

/**
 * Makes a coalescer whose lookup is a resolver of Effect's: each key becomes a request, and a list of them is handed to the resolver at once.
 *
 * **Details**
 *
 * The resolver's own way of collecting requests (its delay, `batchN`) has no part in it; what it groups (`RequestResolver.makeGrouped`) is
 * handed to it in groups. What a request is failed with is the failure of its item. A resolver that fails, fails those requests that it
 * has not completed, with {@link RequestFailed}; one that leaves a request open gives its callers {@link InvalidAnswer}.
 *
 * **Gotchas**
 *
 * A resolver with a cache (`RequestResolver.withCache`) knows no tenants, unless its requests name them.
 *
 * **Example** (A resolver that can be stopped)
 *
 * ```ts import.meta.vitest
 * import { Effect, Request, RequestResolver } from "effect"
 * import { Coalescer, TurnContext } from "effect-turn"
 *
 * class GetOrder extends Request.Class<{ readonly id: string }, string> {}
 * const resolver = RequestResolver.fromFunctionBatched<GetOrder>((entries) => entries.map(({ request }) => `order ${request.id}`))
 *
 * const orders = Coalescer.fromResolver({ name: "orders", resolver, request: (id: string) => new GetOrder({ id }) })
 * const program = orders.load("a").pipe(Effect.provide(TurnContext.make({ tenant: "north" })))
 * const order = await Effect.runPromise(program)
 * const same = order // => "order a"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const fromResolver = <Key, A extends EffectRequest.Any, Self = never, Requirements = never>(
  options: Settings<Key, EffectRequest.Success<A>, Self, Requirements> & {
    readonly resolver: RequestResolver.RequestResolver<A>
    readonly request: (key: Key) => A
  }
): Coalescer<
  Key,
  EffectRequest.Success<A>,
  EffectRequest.Error<A>,
  EffectRequest.Services<A> | Self | Requirements | TurnContext.Tenant
> => {
  const { request, resolver, ...settings } = options
  if (!RequestResolver.isRequestResolver(resolver)) {
    throw refuse("the resolver of Coalescer.fromResolver", "a RequestResolver", resolver)
  }
  return make({ ...settings, lookup: lookupOf(resolver, request, wordsFor(settings.name)) as any }) as any
}

/**
 * Offers a coalescer as a resolver of Effect's, for programs that are written with `Effect.request`.
 *
 * **Details**
 *
 * Each request is a load in the context of its caller: it meets those of others in the coalescer, by its window and size. A request has
 * to be able to fail with what a load fails with.
 *
 * **Gotchas**
 *
 * Effect tells a resolver nothing of a caller that leaves once its request was handed over, so it goes on without one. Use `load` where a
 * stop has to reach the lookup.
 *
 * **Example** (A request that is a load)
 *
 * ```ts import.meta.vitest
 * import { Effect, Request } from "effect"
 * import { type Backend, Coalescer, TurnContext } from "effect-turn"
 *
 * const orders = Coalescer.make({
 *   name: "orders",
 *   lookup: (ids: ReadonlyArray<string>) => Effect.succeed(ids.map((id) => `order ${id}`))
 * })
 * class GetOrder extends Request.Class<{ readonly id: string }, string, Coalescer.LoadError | Backend.Refused, TurnContext.Tenant> {}
 * const resolver = Coalescer.toResolver(orders, (request: GetOrder) => request.id)
 *
 * const program = Effect.request(new GetOrder({ id: "a" }), resolver).pipe(Effect.provide(TurnContext.make({ tenant: "north" })))
 * const order = await Effect.runPromise(program)
 * const same = order // => "order a"
 * ```
 *
 * @category conversions
 * @since 0.1.0
 * @stability experimental
 */
export const toResolver = <A extends EffectRequest.Any, Key>(
  coalescer: Coalescer<Key, EffectRequest.Success<A>, EffectRequest.Error<A>, EffectRequest.Services<A>>,
  key: (request: A) => Key
): [LoadError | Backend.Refused] extends [EffectRequest.Error<A>] ? RequestResolver.RequestResolver<A> : never =>
  RequestResolver.make<A>((entries) =>
    Effect.forEach(
      entries,
      (entry) =>
        Effect.suspend(() => coalescer.load(key(entry.request))).pipe(
          Effect.provideContext(entry.context as Context.Context<any>),
          Effect.exit,
          Effect.map((exit) => entry.completeUnsafe(exit as any))
        ),
      { concurrency: "unbounded", discard: true }
    )
  ) as any

/**
 * Callers of requests: who asked, on its own or in a list, once for each request that it had a part in. What a cache has given is not
 * among them. By coalescer.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const loads = Metric.counter("effect_turn.coalescer.loads", {
  description: "Callers that the requests of a coalescer were for",
  incremental: true
})

/**
 * Requests that were sent, by coalescer. Loads for each of them is what merging has saved.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const requests = Metric.counter("effect_turn.coalescer.requests", {
  description: "Requests that a coalescer sent",
  incremental: true
})

/**
 * How many keys a request had, by coalescer.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const requestItems = Metric.histogram("effect_turn.coalescer.request.items", {
  description: "How many keys a request of a coalescer had",
  boundaries: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
})

/**
 * Gives an effect a cache: what a coalescer has answered inside is not asked for again inside.
 *
 * **Details**
 *
 * All loads inside share it, and so do all turns: the calls of their tools are answered from it too. There is none outside, and no
 * other cache: this one is gone when the effect has ended. Inside another such effect it is that one's.
 *
 * It holds items that were found, by coalescer, tenant and key; failures are not kept. A write takes out what it touches, by the
 * `resources` of the coalescer's items: a call of a turn that writes does so by itself, when it starts and when it ends; whoever writes in
 * another way says {@link invalidate}.
 *
 * **Example** (Asked once, and again after a write)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Coalescer, TurnContext } from "effect-turn"
 *
 * const asked: Array<string> = []
 * const orders = Coalescer.make({
 *   name: "orders",
 *   lookup: (ids: ReadonlyArray<string>) => Effect.sync(() => ids.map((id) => (asked.push(id), `order ${id}`))),
 *   resources: (id) => [`order:${id}`],
 *   window: 0
 * })
 * const program = Effect.gen(function*() {
 *   yield* orders.load("a")
 *   yield* orders.load("a")
 *   yield* Coalescer.invalidate(["order:a"])
 *   yield* orders.load("a")
 * }).pipe(Coalescer.cached, Effect.provide(TurnContext.make({ tenant: "north" })))
 *
 * await Effect.runPromise(program)
 * const times = asked.length // => 2
 * ```
 *
 * @category caching
 * @since 0.1.0
 * @stability experimental
 */
export const cached = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.contextWith((context: Context.Context<never>) =>
    cacheOf(context) === undefined ? Effect.provideService(effect, Current, new Cache()) : effect
  )

/**
 * Takes out of the cache what a write has touched, or is about to: resource keys as in `ToolPolicy.keys`, without them everything.
 *
 * **Details**
 *
 * What is on its way at that moment is not kept, and nobody of the tenant joins it any more; so it is outside {@link cached} too. A call of
 * a turn that writes says so by itself.
 *
 * @category caching
 * @since 0.1.0
 * @stability experimental
 */
export const invalidate = (resourceKeys?: ReadonlyArray<string>): Effect.Effect<void> =>
  Effect.contextWith((context: Context.Context<never>) =>
    Effect.sync(() => invalidateIn(context, tenantOf(context), resourceKeys))
  )

/** @internal */
export const hasCache = (context: Context.Context<never>): boolean => cacheOf(context) !== undefined

/** The same, at once, for a tenant, and in the cache of a context if it has one.
 *
 * @internal
 */
export const invalidateIn = (
  context: Context.Context<never>,
  tenant: string,
  resourceKeys: ReadonlyArray<string> | undefined
): void => {
  wrote(tenant, resourceKeys)
  cacheOf(context)?.invalidate(resourceKeys)
}

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
    found: ReadonlyMap<string, Exit.Exit<unknown, unknown>>,
    context: Context.Context<never>
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
 * **Details**
 *
 * It is for tools that read, and that say so first (`ToolPolicy.read`): a request may be cut short, by its timeout or when nobody is left for
 * it, and a write may not. The calls that are ready at once go as ⌈n / size⌉ requests, without a window. Each request takes one permit of
 * the coalescer's backend, and counts as one under the turn's own limit; each call keeps its own clocks, its own outcome, and can be stopped
 * alone. The tool's handler is {@link handler}.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const through = <T extends Tool.Any & ToolPolicy.Retryable, Key, E extends Tool.Failure<T>, R>(
  coalescer: Coalescer<Key, Tool.Success<T>, E, R>,
  key: (params: Tool.Parameters<T>) => Key
) =>
(tool: T): ToolPolicy.Needing<T, R> => {
  if (ToolPolicy.get(tool).access === "write") {
    throw refuse(
      `Coalescer.through, for tool "${tool.name}"`,
      "a tool that reads, as ToolPolicy.read says it",
      "one that writes"
    )
  }
  const merging: Merging = {
    coalescer,
    wants: (params: Tool.Parameters<T>) => [key(params)],
    answer: (params, found) => found.get(coalescer.parts.keyText(key(params)))!
  }
  const merged = tool.annotate(MergingAnnotation, merging)
  const { backend } = coalescer.parts
  return (backend === undefined ? merged : merged.annotate(ToolPolicy.BackendAnnotation, backend)) as any
}

/**
 * The handler of a tool that is tied to a coalescer, by {@link through} or as a batch tool: it asks for what its call wants.
 *
 * **Details**
 *
 * Outside of turns it loads like anybody else. Inside a turn it is not run: the runtime asks in its place, without a window. A
 * {@link LoadError}, or a refusal of the backend, is an error of `effect/ai` that says so: an `InternalProviderError` where asking again may
 * help, else an `UnknownError`. A tool that is tied to no coalescer is refused here.
 *
 * **Example** (A tool over a coalescer)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Coalescer, ToolCall, ToolPolicy, Turn, TurnContext } from "effect-turn"
 *
 * const orders = Coalescer.make({
 *   name: "orders",
 *   lookup: (ids: ReadonlyArray<string>) => Effect.succeed(ids.map((id) => `order ${id}`))
 * })
 * const GetOrder = pipe(
 *   Tool.make("get_order", { parameters: Schema.Struct({ id: Schema.String }), success: Schema.String }),
 *   ToolPolicy.read({ keys: ({ id }) => [`order:${id}`] }),
 *   Coalescer.through(orders, ({ id }) => id)
 * )
 * const toolkit = Toolkit.make(GetOrder)
 * const handlers = toolkit.toLayer({ get_order: Coalescer.handler(GetOrder) })
 *
 * const [outcome] = await Turn.run(toolkit, [ToolCall.make("c1", "get_order", { id: "a" })]).pipe(
 *   Effect.provide([handlers, Turn.layer()]),
 *   Effect.provide(TurnContext.make({ tenant: "north" })),
 *   Effect.runPromise
 * )
 * const said = outcome!.status === "ok" ? outcome!.result : "nothing" // => "order a"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const handler = <T extends Tool.Any>(
  tool: T
): (
  params: Tool.Parameters<T>
) => Effect.Effect<Tool.Success<T>, Tool.Failure<T> | AiError.AiErrorReason, Tool.HandlerServices<T>> => {
  const merging = Context.get(tool.annotations, MergingAnnotation)
  if (merging === undefined) {
    throw refuse(
      `Coalescer.handler, for tool "${tool.name}"`,
      "a tool that is tied to a coalescer, by Coalescer.through",
      "one that is not"
    )
  }
  const { answer, coalescer, wants } = merging
  const { keyText } = coalescer.parts
  return marked((params: Tool.Parameters<T>) =>
    Effect.contextWith((context: Context.Context<never>) => {
      const keys = wants(params)
      return Effect.flatMap(coalescer.loadAll(keys), (exits) => {
        const found = new Map(exits.map((exit, i) => [keyText(keys[i]), exit]))
        return Effect.mapError(answer(params, found, context), errorForAi)
      })
    }) as Effect.Effect<any, any, any>
  )
}

/** Whether asking again may help.
 *
 * @internal
 */
export const isRetryable = (error: LoadError | Backend.Refused): boolean => !(error instanceof ItemNotFound)

const ownErrors = [
  ItemNotFound,
  RequestFailed,
  RequestTimeout,
  InvalidAnswer,
  Backend.QueueFull,
  Backend.CircuitOpen,
  Backend.StoreUnavailable
]

/** Whether it is an error of a coalescer, and no failure of an item.
 *
 * @internal
 */
export const isOwnError = (error: unknown): error is LoadError | Backend.Refused =>
  ownErrors.some((own) => error instanceof own)

const errorForAi = (error: unknown): unknown => {
  if (!isOwnError(error)) return error
  const description = error.message
  return isRetryable(error)
    ? new AiError.InternalProviderError({ description })
    : new AiError.UnknownError({ description })
}
