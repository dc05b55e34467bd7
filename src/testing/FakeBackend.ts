/**
 * A fake remote service for handlers to call: it counts effects, honours idempotency keys or does not, refuses what is over its
 * limits, and fails or goes silent before or after an effect has landed.
 *
 * It is not the world of fake tools, which counts runs of handlers: a handler, real or fake, calls the service with `request`, as it
 * would call the real one, and a test reads afterwards what the service has seen. Time comes from the `Clock`: under a test clock
 * nothing really waits.
 *
 * What it keeps to ("S" for service; other modules number their own):
 *
 * - **S1** A request is written down in the step that starts it, and closed exactly once, when its work has ended.
 * - **S2** A request has its effect at one moment, its effect point, in one step with the check of its key. One that is interrupted
 *   before has none, one that is interrupted after has had it.
 * - **S3** Where keys are honoured, the requests of one tenant with one key have one effect together.
 * - **S4** A refused request does nothing, takes no time, and counts against no limit.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import * as ToolPolicy from "../ToolPolicy.ts"
import * as TurnContext from "../TurnContext.ts"
import * as TurnError from "../TurnError.ts"
import * as Course from "./fakes/course.ts"

/**
 * The request was refused, because it was over a limit: nothing was done, and after `retryAfter` it may be let in.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class OverLimit extends Schema.TaggedError<OverLimit>()("OverLimit", {
  backend: Schema.String,
  limit: Schema.Literals(["concurrency", "rate"]),
  /** How many requests at once, or in one window, are let in. */
  allowed: Schema.Int,
  retryAfter: Schema.DurationFromMillis
}) {
  override get message(): string {
    const per = this.limit === "concurrency" ? "at once" : "in a window"
    return `${this.backend}: expected at most ${this.allowed} ${
      this.allowed === 1 ? "request" : "requests"
    } ${per}, and got one more; ` +
      `nothing was done, try again in ${Duration.toMillis(this.retryAfter)} ms`
  }
}

/**
 * The request carried a key that had come with another payload before: nothing was done.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class KeyReused extends Schema.TaggedError<KeyReused>()("KeyReused", {
  backend: Schema.String,
  key: Schema.String,
  /** The payload that the key stands for, and the one that came, as short texts. */
  expected: Schema.String,
  received: Schema.String
}) {
  override get message(): string {
    return `${this.backend}: expected the key "${this.key}" with the payload ${this.expected}, and got it with ${this.received}; ` +
      `nothing was done`
  }
}

/**
 * The request failed, and the service says that nothing was done.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class RequestFailed extends Schema.TaggedError<RequestFailed>()("RequestFailed", {
  backend: Schema.String,
  /** The number of the request. */
  request: Schema.Int
}) {
  override get message(): string {
    return `${this.backend}: expected an answer to request ${this.request}, and got a failure; nothing was done`
  }
}

/**
 * The connection was lost. Whether the effect had landed by then, the error does not say: only a lookup can.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class ConnectionLost extends Schema.TaggedError<ConnectionLost>()("ConnectionLost", {
  backend: Schema.String,
  /** The number of the request. */
  request: Schema.Int
}) {
  override get message(): string {
    return `${this.backend}: expected an answer to request ${this.request}, and lost the connection; it may have been done`
  }
}

/**
 * How a request can fail; a schema, to be the failure of a tool.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export const Failure = Schema.Union([OverLimit, KeyReused, RequestFailed, ConnectionLost])

/**
 * How a request can fail.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export type Failure = typeof Failure.Type

/**
 * A request as a handler makes it.
 *
 * **Details**
 *
 * Without a `key` every request has an effect of its own. `tenant` is by default that of the call which the handler serves, or
 * `"default"` outside a turn. A key belongs to its tenant. Payloads are compared by value.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Asked<out Payload = unknown> {
  readonly payload: Payload
  readonly key?: string | undefined
  readonly tenant?: string | undefined
}

/**
 * The record of an effect that has landed, and the answer to its request.
 *
 * **Details**
 *
 * - `effect`: which effect of the service it is, from 1. A reference number, say, can be made of it.
 * - `landedAt`: milliseconds of the `Clock`.
 * - `replayed`: true where the answer is that of an earlier request with the same key.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Receipt<out Payload = unknown> {
  readonly effect: number
  readonly payload: Payload
  readonly key: string | undefined
  readonly tenant: string
  readonly landedAt: number
  readonly replayed: boolean
}

/**
 * One request that the service was sent.
 *
 * **Details**
 *
 * - `number`: its place among all requests, from 1, refused ones included.
 * - `startedAt`, `endedAt`: milliseconds of the `Clock`; `endedAt` and `end` are undefined while it is in flight.
 * - `landed`: the effect that it had itself, if any.
 * - `end`: `ok`; `refused`, over a limit; `reused`, its key stands for another payload; `failed`; `lost`;
 *   `interrupted`; or `died`, by a mistake in the test.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Request {
  readonly number: number
  readonly kind: "read" | "write"
  readonly payload: unknown
  readonly key: string | undefined
  readonly tenant: string
  readonly startedAt: number
  readonly endedAt: number | undefined
  readonly landed: Receipt | undefined
  readonly end: "ok" | "refused" | "reused" | "failed" | "lost" | "interrupted" | "died" | undefined
}

/**
 * What the service does with a request that it has let in.
 *
 * **Details**
 *
 * - `latency`: from the request to its answer, or to its fault. Default: 10 ms.
 * - `effectAt`: the effect point, from the request on, at most the latency. Default: `"end"`, together with the answer.
 * - `fault`: what goes wrong. `"fails"`: there is no effect, and the service says so ({@link RequestFailed}). `"loses-request"` and
 *   `"loses-answer"`: the connection breaks ({@link ConnectionLost}), without the effect and after it. `"hangs"`: no answer
 *   comes, until the request is interrupted or the service released; the effect lands at `effectAt` if that is a time.
 * - `ignoresInterrupt`: whoever stops the request waits for its end, as with a client that cannot be aborted.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Behaviour {
  readonly latency?: Duration.Input | undefined
  readonly effectAt?: Duration.Input | "end" | undefined
  readonly fault?: "fails" | "loses-request" | "loses-answer" | "hangs" | undefined
  readonly ignoresInterrupt?: boolean | undefined
}

/**
 * What kind of service it is.
 *
 * **Details**
 *
 * - `name`: how errors call it. Default: `"the fake backend"`.
 * - `honoursKeys`: whether a repeated key answers the first result, in place of a second effect. Default: yes.
 * - `concurrency`: how many requests may be in flight at once. Default: any number.
 * - `rate`: how many requests are let in within any span of time that is as long as `window`. Default: any number.
 * - `retryAfter`: what a refusal over the concurrency says, in milliseconds or any `Duration.Input`. Default: 1 second. One over the
 *   rate says when the next place is free.
 * - `behaviour`: what it does with requests. Of a list, the n-th request that is let in takes the n-th entry, and the last one
 *   repeats; a function is asked for each.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly name?: string | undefined
  readonly honoursKeys?: boolean | undefined
  readonly concurrency?: number | undefined
  readonly rate?: { readonly limit: number; readonly window: Duration.Input } | undefined
  readonly retryAfter?: Duration.Input | undefined
  readonly behaviour?: Behaviour | ReadonlyArray<Behaviour> | ((request: Request) => Behaviour) | undefined
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

const courseOf = (name: string) => ({ effectAt = "end", fault, ignoresInterrupt, latency = 10 }: Behaviour) =>
  Course.make(name, { latency, moment: "effectAt", at: effectAt, fault, ignoresInterrupt }, ["fails", "loses-request"])

const endOf = (exit: Exit.Exit<unknown, Failure>): NonNullable<Request["end"]> => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Exit.hasDies(exit)) return "died"
  const error = Exit.findErrorOption(exit)
  if (error._tag === "None") return "interrupted"
  switch (error.value._tag) {
    case "OverLimit":
      return "refused"
    case "KeyReused":
      return "reused"
    case "RequestFailed":
      return "failed"
    case "ConnectionLost":
      return "lost"
  }
}

/**
 * A fake remote service, and what it has seen.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export class FakeBackend {
  readonly #name: string
  readonly #options: Options
  readonly #rate: { readonly limit: number; readonly window: number } | undefined
  readonly #retryAfter: Duration.Duration
  readonly #courseOf: (request: Request, admitted: number) => Course.Course<Behaviour["fault"]>
  readonly #requests: Array<Mutable<Request>> = []
  readonly #effects: Array<Receipt> = []
  readonly #byKey = new Map<string, Receipt>()
  readonly #admitted: Array<number> = []
  readonly #released = Deferred.makeUnsafe<void>()
  #letIn = 0
  #inFlight = 0
  #peak = 0

  /** @internal */
  constructor(options: Options) {
    const name = options.name ?? "the fake backend"
    this.#name = name
    this.#options = options
    if (options.concurrency !== undefined) TurnError.wholeNumber(name, "concurrency", options.concurrency)
    this.#rate = options.rate === undefined ? undefined : {
      limit: TurnError.wholeNumber(name, "rate.limit", options.rate.limit),
      window: ToolPolicy.limitMillis(name, "rate.window", options.rate.window)
    }
    this.#retryAfter = Duration.millis(ToolPolicy.limitMillis(name, "retryAfter", options.retryAfter ?? 1000, 0))
    this.#courseOf = Course.each(options.behaviour ?? {}, courseOf(name), {})
  }

  /** Every request so far, refused ones included, in the order of their starts. */
  get requests(): ReadonlyArray<Request> {
    return this.#requests
  }

  /** Every effect, in the order in which they landed. */
  get effects(): ReadonlyArray<Receipt> {
    return this.#effects
  }

  /** How many requests are in flight now. */
  get inFlight(): number {
    return this.#inFlight
  }

  /** The most requests that were in flight at once. */
  get peak(): number {
    return this.#peak
  }

  /** How many requests were refused over a limit. */
  get refused(): number {
    return this.#requests.filter(({ end }) => end === "refused").length
  }

  /** How many effects have landed: in all, of a key, of a tenant, or of both together. */
  count(of: { readonly key?: string | undefined; readonly tenant?: string | undefined } = {}): number {
    return this.#effects.filter(({ key, tenant }) =>
      (of.key === undefined || key === of.key) && (of.tenant === undefined || tenant === of.tenant)
    ).length
  }

  /**
   * A request that changes something. It succeeds with the record of its effect, or of the effect that its key stands for.
   *
   * Interrupted before its effect point it has no effect, after it the effect stands.
   */
  request<Payload>(asked: Asked<Payload>): Effect.Effect<Receipt<Payload>, Failure> {
    return this.#serve("write", asked) as Effect.Effect<Receipt<Payload>, Failure>
  }

  /** A request that only reads: it has the limits, times and faults of any other, and no effect. */
  read(
    asked: { readonly payload?: unknown; readonly tenant?: string | undefined } = {}
  ): Effect.Effect<void, OverLimit | RequestFailed | ConnectionLost> {
    const { payload, tenant } = asked
    return Effect.asVoid(this.#serve("read", { payload, tenant })) as Effect.Effect<
      void,
      OverLimit | RequestFailed | ConnectionLost
    >
  }

  /**
   * The effect that a key stands for, `undefined` if none has landed; where keys are not honoured, the first one that carried it. It
   * answers at once, has no faults and counts against no limit.
   */
  lookup(key: string, tenant?: string): Effect.Effect<Receipt | undefined> {
    return Effect.map(tenantOf(tenant), (tenant) => this.#byKey.get(JSON.stringify([tenant, key])))
  }

  /** Ends all requests that hang, with {@link ConnectionLost}, also what is deaf to a stop: to be called when a test is over. */
  get release(): Effect.Effect<void> {
    return Effect.asVoid(Deferred.succeed(this.#released, undefined))
  }

  #serve(kind: Request["kind"], asked: Asked): Effect.Effect<Receipt | undefined, Failure> {
    return Effect.uninterruptibleMask((restore) =>
      Effect.gen({ self: this }, function*() {
        const tenant = yield* tenantOf(asked.tenant)
        const startedAt = yield* Clock.currentTimeMillis
        const request: Mutable<Request> = {
          number: this.#requests.length + 1,
          kind,
          payload: asked.payload,
          key: asked.key,
          tenant,
          startedAt,
          endedAt: undefined,
          landed: undefined,
          end: undefined
        }
        this.#requests.push(request)
        const refusal = this.#refusal(startedAt)
        if (refusal !== undefined) {
          Object.assign(request, { endedAt: startedAt, end: "refused" })
          return yield* refusal
        }
        const work = Effect.suspend(() => this.#work(request, this.#courseOf(request, this.#letIn++), restore))
        this.#admitted.push(startedAt)
        this.#peak = Math.max(this.#peak, ++this.#inFlight)
        return yield* Effect.onExit(work, (exit) =>
          Effect.map(Clock.currentTimeMillis, (endedAt) => {
            this.#inFlight--
            Object.assign(request, { endedAt, end: endOf(exit) })
          }))
      })
    )
  }

  #work(
    request: Mutable<Request>,
    { at: effectAt, fault, ignoresInterrupt, latency }: Course.Course<Behaviour["fault"]>,
    restore: <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E>
  ): Effect.Effect<Receipt | undefined, Failure> {
    const about = { backend: this.#name, request: request.number }
    const land = request.kind === "read" ? Effect.succeed(undefined) : this.#land(request)
    const work = Effect.gen({ self: this }, function*() {
      let receipt: Receipt | undefined
      if (effectAt !== undefined) {
        yield* Course.wait(effectAt)
        receipt = yield* land
      }
      if (fault === "hangs") {
        yield* Deferred.await(this.#released)
        return yield* new ConnectionLost(about)
      }
      yield* Course.wait(latency - (effectAt ?? 0))
      if (fault === "fails") return yield* new RequestFailed(about)
      if (fault !== undefined) return yield* new ConnectionLost(about)
      return receipt
    })
    return ignoresInterrupt ? work : restore(work)
  }

  /** Has the effect, or finds the one that the key stands for, in one step (S2, S3). */
  #land(request: Mutable<Request>): Effect.Effect<Receipt, KeyReused> {
    return Effect.flatMap(Clock.currentTimeMillis, (landedAt) => {
      const { key, payload, tenant } = request
      const name = key === undefined ? undefined : JSON.stringify([tenant, key])
      const known = name === undefined ? undefined : this.#byKey.get(name)
      if (known !== undefined && key !== undefined && this.#options.honoursKeys !== false) {
        if (Equal.equals(known.payload, payload)) return Effect.succeed({ ...known, replayed: true })
        return Effect.fail(
          new KeyReused({
            backend: this.#name,
            key,
            expected: TurnError.show(known.payload),
            received: TurnError.show(payload)
          })
        )
      }
      const receipt = { effect: this.#effects.length + 1, payload, key, tenant, landedAt, replayed: false }
      this.#effects.push(receipt)
      if (name !== undefined && known === undefined) this.#byKey.set(name, receipt)
      request.landed = receipt
      return Effect.succeed(receipt)
    })
  }

  #refusal(now: number): OverLimit | undefined {
    const over = (limit: OverLimit["limit"], allowed: number, retryAfter: Duration.Duration) =>
      new OverLimit({ backend: this.#name, limit, allowed, retryAfter })
    const { concurrency } = this.#options
    if (concurrency !== undefined && this.#inFlight >= concurrency) {
      return over("concurrency", concurrency, this.#retryAfter)
    }
    if (this.#rate === undefined) return
    const { limit, window } = this.#rate
    const first = this.#admitted.at(-limit)
    if (first !== undefined && first + window > now) return over("rate", limit, Duration.millis(first + window - now))
  }
}

const tenantOf = (tenant: string | undefined): Effect.Effect<string> =>
  tenant === undefined
    ? Effect.map(TurnContext.CurrentCall, (call) => call?.identity.tenant ?? "default")
    : Effect.succeed(tenant)

/**
 * Makes a service that has seen nothing yet. A limit or a time that cannot be is a defect; that of a behaviour which a function gives,
 * of the request that it is given for.
 *
 * **Example** (An answer that is lost, and a key that makes the second try safe)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { FakeBackend } from "effect-turn/testing"
 *
 * const program = Effect.gen(function*() {
 *   const hotels = yield* FakeBackend.make({ name: "hotels", behaviour: [{ fault: "loses-answer" }, {}] })
 *   const book = hotels.request({ key: "booking-1", payload: { hotel: "Tejo" } })
 *   const receipt = yield* Effect.retry(book, { times: 1 })
 *   return [receipt.replayed, hotels.count(), hotels.requests.map((request) => request.end)]
 * })
 * const seen = await Effect.runPromise(program) // => [true, 1, ["lost", "ok"]]
 * ```
 *
 * **Example** (A tool on it, whose failures say what is known)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn } from "effect-turn"
 * import { FakeBackend } from "effect-turn/testing"
 *
 * const Book = pipe(
 *   Tool.make("book", {
 *     parameters: Schema.Struct({ hotel: Schema.String }),
 *     success: Schema.String,
 *     failure: FakeBackend.Failure
 *   }),
 *   ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] }),
 *   ToolPolicy.failures({ noEffect: (failure) => failure._tag !== "ConnectionLost" })
 * )
 * const kit = Toolkit.make(Book)
 *
 * const program = Effect.gen(function*() {
 *   const hotels = yield* FakeBackend.make({ behaviour: [{ fault: "fails" }, { fault: "loses-answer" }] })
 *   const book = ({ hotel }: { readonly hotel: string }) =>
 *     Effect.map(hotels.request({ payload: hotel }), ({ effect }) => `booking ${effect}`)
 *   const outcomes = yield* Turn.run(kit, [
 *     ToolCall.make("c1", "book", { hotel: "Tejo" }),
 *     ToolCall.make("c2", "book", { hotel: "Alfama" })
 *   ]).pipe(Effect.provide(Layer.merge(kit.toLayer({ book }), Turn.layer())))
 *   return outcomes.map((outcome) => outcome.effect)
 * })
 * const effects = await Effect.runPromise(program) // => ["none", "unknown"]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (options: Options = {}): Effect.Effect<FakeBackend> => Effect.sync(() => new FakeBackend(options))
