import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, pipe, Schema, Stream } from "effect"
import {
  Backend,
  Coalescer,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnEvent,
  TurnJournal,
  TurnMiddleware
} from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import { TestClock } from "effect/testing"

class Shop extends Backend.Service<Shop>()("shop") {}

interface Sent {
  readonly at: number
  readonly keys: ReadonlyArray<string>
  ended?: number
  interrupted?: boolean
}

const Stock = Schema.Struct({ sku: Schema.String, left: Schema.Array(Schema.Int) })

/** A shop whose lookups take 30 ms and remember what they were asked. */
const shop = (options: {
  readonly size?: number
  readonly backend?: boolean
  readonly latency?: number
  readonly deaf?: boolean
  readonly answer?: (sku: string) => unknown
  readonly whole?: Effect.Effect<void, unknown>
} = {}) => {
  const sent: Array<Sent> = []
  const coalescer = Coalescer.make({
    name: "get_stocks",
    size: options.size,
    window: "5 millis",
    backend: options.backend === true ? Shop : undefined,
    lookup: (skus: ReadonlyArray<string>) =>
      Effect.gen(function*() {
        const clock = yield* Effect.clockWith(Effect.succeed)
        const request: Sent = { at: clock.currentTimeMillisUnsafe(), keys: skus }
        sent.push(request)
        const work = Effect.sleep(options.latency ?? 30)
        yield* (options.deaf === true ? Effect.uninterruptible(work) : work).pipe(
          Effect.onExit((exit) =>
            Effect.sync(() => {
              request.ended = clock.currentTimeMillisUnsafe()
              if (exit._tag === "Failure") request.interrupted = true
            })
          )
        )
        if (options.whole !== undefined) yield* options.whole
        return new Map(
          skus.toReversed().flatMap((sku) => {
            const item = options.answer === undefined ? { sku, left: [1] } : options.answer(sku)
            return item === undefined ? [] : [[sku, item as typeof Stock.Type] as const]
          })
        )
      })
  })
  const GetStock = pipe(
    Tool.make("get_stock", { parameters: Schema.Struct({ sku: Schema.String }), success: Stock }),
    ToolPolicy.read({ keys: ({ sku }) => [`stock:${sku}`] }),
    Coalescer.through(coalescer, ({ sku }) => sku)
  )
  return { sent, coalescer, GetStock }
}

const SetStock = pipe(
  Tool.make("set_stock", { parameters: Schema.Struct({ sku: Schema.String }) }),
  ToolPolicy.write({ keys: ({ sku }) => [`stock:${sku}`] })
)

const lab = (options: Parameters<typeof shop>[0] & { readonly limits?: Backend.Options } = {}) => {
  const made = shop(options)
  const toolkit = Toolkit.make(made.GetStock, SetStock)
  const handlers = toolkit.toLayer({
    get_stock: Coalescer.handler(made.GetStock),
    set_stock: () => Effect.sleep(20)
  })
  const layer = Layer.mergeAll(
    handlers,
    Turn.layer(),
    Shop.layer(options.limits ?? { concurrency: "infinite" }),
    Layer.succeed(TurnContext.Tenant, "t")
  )
  return { ...made, toolkit, layer }
}

const gets = (count: number, from = 1) =>
  Array.from({ length: count }, (_, i) => ToolCall.make(`c${from + i}`, "get_stock", { sku: `A-${from + i}` }))

/** Runs a program to its end in virtual time; gives its result and the time it took. */
const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const clock = yield* Effect.clockWith(Effect.succeed)
    const fiber = yield* Effect.forkChild(effect)
    let at: number | undefined
    fiber.addObserver(() => {
      at = clock.currentTimeMillisUnsafe()
    })
    yield* TestClock.adjust("10 minutes")
    return { value: yield* Fiber.join(fiber), at: at! }
  })

/** The same by the millisecond, for programs that need several turns of the scheduler before they wait. */
const slowly = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const clock = yield* Effect.clockWith(Effect.succeed)
    const fiber = yield* Effect.forkChild(
      Effect.map(effect, (value) => ({ value, at: clock.currentTimeMillisUnsafe() }))
    )
    for (let i = 0; i < 100; i++) yield* TestClock.adjust(1)
    return yield* Fiber.join(fiber)
  })

describe("calls that share requests", () => {
  it.effect("twelve single calls are two requests of at most ten, at once, and each gets its own item", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const { at, value } = yield* timed(Turn.run(toolkit, gets(12)).pipe(Effect.provide(layer)))
      assert.strictEqual(at, 30)
      assert.deepStrictEqual(sent.map(({ at, keys }) => [at, keys.length]), [[0, 10], [0, 2]])
      assert.deepStrictEqual(
        value.map((outcome) => outcome.status === "ok" ? (outcome.result as typeof Stock.Type).sku : outcome.status),
        gets(12).map(({ arguments: args }) => (args as { sku: string }).sku)
      )
    }))

  it.effect("permits belong to requests", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab({ backend: true, limits: { concurrency: 1 } })
      const { at } = yield* timed(Turn.run(toolkit, gets(12)).pipe(Effect.provide(layer)))
      assert.strictEqual(at, 60)
      assert.deepStrictEqual(sent.map(({ at }) => at), [0, 30])
    }))

  it.effect("a request counts as one under the turn's own limit", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const { at } = yield* timed(Turn.run(toolkit, gets(25), { execution: 2 }).pipe(Effect.provide(layer)))
      assert.strictEqual(at, 60)
      assert.deepStrictEqual(sent.map(({ at }) => at), [0, 0, 30])
    }))

  it.effect("one after another, each call is a request of its own", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const { at } = yield* timed(Turn.run(toolkit, gets(3), { execution: "sequential" }).pipe(Effect.provide(layer)))
      assert.strictEqual(at, 90)
      assert.deepStrictEqual(sent.map(({ at }) => at), [0, 30, 60])
    }))

  it.effect("a call behind a write asks when the write has ended", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const calls = [
        ...gets(2),
        ToolCall.make("w", "set_stock", { sku: "A-1" }),
        ...gets(2).map((call) => ({ ...call, id: `${call.id}b` }))
      ]
      const { at } = yield* timed(Turn.run(toolkit, calls).pipe(Effect.provide(layer)))
      assert.strictEqual(at, 80)
      assert.deepStrictEqual(sent.map(({ at, keys }) => [at, keys]), [[0, ["A-1", "A-2"]], [50, ["A-1"]]])
    }))

  it.effect("two callers of one item share no memory", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const calls = [...gets(1), { ...gets(1)[0]!, id: "again" }]
      const { value } = yield* timed(Turn.run(toolkit, calls, { dedupe: "off" }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(sent.map(({ keys }) => keys), [["A-1"]])
      const [one, two] = value.map((outcome) =>
        outcome.status === "ok" ? outcome.result as unknown as { left: Array<number> } : undefined
      )
      one!.left.push(2)
      assert.deepStrictEqual(two!.left, [1])
    }))

  it.effect("a caller that leaves touches nobody; the last to leave ends the request", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const { value } = yield* timed(
        Effect.gen(function*() {
          const turn = yield* Turn.start(toolkit, gets(3))
          yield* Effect.sleep(8)
          yield* turn.cancelCall(0)
          yield* Effect.sleep(2)
          assert.isUndefined(sent[0]!.ended)
          yield* turn.cancelCall(1)
          yield* turn.cancelCall(2)
          return yield* turn.await
        }).pipe(Effect.scoped, Effect.provide(layer))
      )
      assert.deepStrictEqual(value.map(({ status }) => status), ["cancelled", "cancelled", "cancelled"])
      assert.deepStrictEqual([sent[0]!.ended, sent[0]!.interrupted], [10, true])
    }))

  it.effect("each member of a request keeps its own limit", () =>
    Effect.gen(function*() {
      const { GetStock, coalescer, sent } = shop({ latency: 100 })
      const Quick = pipe(
        Tool.make("quick", { parameters: Schema.Struct({ sku: Schema.String }), success: Stock }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.timeout("50 millis"),
        Coalescer.through(coalescer, ({ sku }) => sku)
      )
      const toolkit = Toolkit.make(GetStock, Quick)
      const layer = Layer.mergeAll(
        toolkit.toLayer({ get_stock: Coalescer.handler(GetStock), quick: Coalescer.handler(Quick) }),
        Turn.layer(),
        Shop.layer({ concurrency: "infinite" }),
        Layer.succeed(TurnContext.Tenant, "t")
      )
      const calls = [...gets(1), ToolCall.make("q", "quick", { sku: "A-1" })]
      const ends: Array<[string, number]> = []
      const onEvent = (event: TurnEvent.TurnEvent) => {
        if (event._tag === "CallEnded") ends.push([event.outcome.status, event.at])
      }
      yield* timed(Turn.run(toolkit, calls, { onEvent }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(ends, [["timeout", 50], ["ok", 100]])
      assert.strictEqual(sent.length, 1)
    }))

  it.effect("what is not found, and a request that fails, are told apart", () =>
    Effect.gen(function*() {
      const one = lab({ answer: (sku) => sku === "A-2" ? undefined : { sku, left: [] } })
      const found = yield* timed(Turn.run(one.toolkit, gets(3)).pipe(Effect.provide(one.layer)))
      assert.deepStrictEqual(
        found.value.map((outcome) => [outcome.status, "code" in outcome ? outcome.code : undefined, outcome.retryable]),
        [["ok", undefined, false], ["error", "not_found", false], ["ok", undefined, false]]
      )
      const two = lab({ size: 2, whole: Effect.fail("the shop is closed") })
      const failed = yield* timed(Turn.run(two.toolkit, gets(3)).pipe(Effect.provide(two.layer)))
      for (const outcome of failed.value) {
        assert.deepInclude(outcome, { status: "error", code: "failed", effect: "none", retryable: true })
      }
      assert.strictEqual(two.sent.length, 2)
    }))

  it.effect("fail-fast: what one answer holds is all known before anything is stopped", () =>
    Effect.gen(function*() {
      const { layer, toolkit } = lab({ answer: (sku) => sku === "A-1" ? undefined : { sku, left: [] } })
      const { value } = yield* timed(
        Turn.run(toolkit, gets(3), { siblings: Siblings.failFast }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(value.map(({ status }) => status), ["error", "ok", "ok"])
    }))

  it.effect("a stop while a request waits for its permit: not started", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab({ backend: true, limits: { concurrency: 1 } })
      const { value } = yield* timed(
        Effect.gen(function*() {
          const turn = yield* Turn.start(toolkit, gets(12))
          yield* Effect.sleep(10)
          return yield* turn.cancel("user")
        }).pipe(Effect.scoped, Effect.provide(layer))
      )
      assert.deepStrictEqual(value.map(({ started }) => started), [...Array(10).fill(true), false, false])
      assert.strictEqual(sent.length, 1)
      assert.strictEqual(sent[0]!.interrupted, true)
    }))

  it.effect("a full line turns a request's calls away", () =>
    Effect.gen(function*() {
      const { layer, toolkit } = lab({ backend: true, size: 2, limits: { concurrency: 1, queueLimit: 1 } })
      const { value } = yield* timed(Turn.run(toolkit, gets(6)).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(value.map((outcome) => "code" in outcome ? outcome.code : outcome.status), [
        "ok",
        "ok",
        "ok",
        "ok",
        "queue_full",
        "queue_full"
      ])
    }))

  it.effect("a lookup that is deaf to its stop keeps its permit, and nobody else waits for the turn", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab({ backend: true, deaf: true, latency: 1000, limits: { concurrency: 1 } })
      const { value } = yield* timed(
        Effect.gen(function*() {
          const clock = yield* Effect.clockWith(Effect.succeed)
          const shop = yield* Shop
          const turn = yield* Turn.start(toolkit, gets(2), { grace: "50 millis" })
          yield* Effect.sleep(10)
          const outcomes = yield* turn.cancel("user")
          const closedAt = clock.currentTimeMillisUnsafe()
          const running = (yield* shop.stats).running
          yield* Effect.sleep(2000)
          return { outcomes, closedAt, running, after: (yield* shop.stats).running }
        }).pipe(Effect.scoped, Effect.provide(layer))
      )
      assert.deepStrictEqual(value.outcomes.map(({ status }) => status), ["cancelled", "cancelled"])
      assert.deepStrictEqual([value.closedAt, value.running, value.after, sent[0]!.ended], [60, 1, 0, 1000])
    }))

  it.effect("steps before a call do not split a request", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const middleware = TurnMiddleware.make("slow", {
        before: (call) => Effect.sleep(call.id === "c1" ? 3 : 1)
      })
      yield* timed(Turn.run(toolkit, gets(3), { middleware: [middleware] }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(sent.map(({ at, keys }) => [at, keys.length]), [[3, 3]])
    }))

  it.effect("calls that come one by one share a request within the window", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const { at } = yield* timed(
        Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit)
          for (const call of gets(3)) {
            yield* turn.submit(call)
            yield* Effect.sleep(1)
          }
          yield* Effect.sleep(10)
          yield* turn.submit(gets(1, 9)[0]!)
          return yield* turn.end("tool-calls")
        }).pipe(Effect.scoped, Effect.provide(layer))
      )
      assert.deepStrictEqual(sent.map(({ at, keys }) => [at, keys.length]), [[5, 3], [13, 1]])
      assert.strictEqual(at, 43)
    }))

  it.effect("the plan and the events show the requests", () =>
    Effect.gen(function*() {
      const { layer, toolkit } = lab()
      const plan = yield* Turn.plan(toolkit, gets(12))
      assert.deepStrictEqual(plan.requests, [
        { into: "get_stocks", calls: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], items: 10 },
        { into: "get_stocks", calls: [10, 11], items: 2 }
      ])
      const full = yield* Turn.plan(toolkit, gets(10))
      assert.deepStrictEqual(full.requests.map(({ items }) => items), [10])
      const events: Array<TurnEvent.TurnEvent> = []
      yield* timed(Turn.run(toolkit, gets(12), { onEvent: (event) => events.push(event) }).pipe(Effect.provide(layer)))
      const sent = events.filter((event) => event._tag === "RequestSent")
      assert.deepStrictEqual(sent.map(({ items, positions, request }) => [request, positions, items]), [
        [0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 10],
        [1, [10, 11], 2]
      ])
      assert.deepStrictEqual(events.flatMap((event) => event._tag === "RequestEnded" ? [event.ok] : []), [10, 2])
    }))

  it.effect("requests of nested turns that wait for each other's permits are found", () =>
    Effect.gen(function*() {
      class X extends Backend.Service<X>()("x") {}
      class Y extends Backend.Service<Y>()("y") {}
      const look = (name: string, backend: typeof X | typeof Y) => {
        const coalescer = Coalescer.make({
          name,
          backend: backend as typeof X,
          lookup: (keys: ReadonlyArray<string>) => Effect.as(Effect.sleep(5), new Map(keys.map((key) => [key, key])))
        })
        return pipe(
          Tool.make(name, { parameters: Schema.Struct({ key: Schema.String }), success: Schema.String }),
          ToolPolicy.read({ keys: () => [] }),
          Coalescer.through(coalescer, ({ key }) => key)
        )
      }
      const InX = look("in_x", X)
      const InY = look("in_y", Y)
      const inner = Toolkit.make(InX, InY)
      const outer = (name: string, backend: typeof X | typeof Y) =>
        pipe(
          Tool.make(name, { success: Schema.Unknown }),
          ToolPolicy.read({ keys: () => [] }),
          ToolPolicy.on(backend as typeof X)
        )
      const A = outer("a", X)
      const B = outer("b", Y)
      const toolkit = Toolkit.make(A, B)
      const inside = (name: string) =>
        Turn.run(inner, [ToolCall.make("i", name, { key: "k" })]).pipe(
          Effect.map((outcomes) => outcomes.map((outcome) => "code" in outcome ? outcome.code : outcome.status)),
          Effect.orDie
        )
      const services = Layer.mergeAll(
        inner.toLayer({ in_x: Coalescer.handler(InX), in_y: Coalescer.handler(InY) }),
        Turn.layer(),
        X.layer({ concurrency: 1 }),
        Y.layer({ concurrency: 1 }),
        Layer.succeed(TurnContext.Tenant, "t")
      )
      // Typed handlers name their services: here the two turns run inside each other's backends.
      const handlers = toolkit.toLayer({
        a: () => Effect.andThen(Effect.sleep(1), inside("in_y")) as Effect.Effect<any>,
        b: () => Effect.andThen(Effect.sleep(1), inside("in_x")) as Effect.Effect<any>
      })
      const { at, value } = yield* timed(
        Turn.run(toolkit, [ToolCall.make("a", "a"), ToolCall.make("b", "b")]).pipe(
          Effect.provide(handlers.pipe(Layer.provideMerge(services)))
        )
      )
      const results = value.map((outcome) => outcome.status === "ok" ? outcome.result : outcome.status)
      assert.deepStrictEqual(results.flat().sort(), ["deadlock", "ok"])
      assert.isBelow(at, 100)
    }))

  it.effect("a cache answers without a request, until something writes what it holds", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const set = ToolCall.make("w", "set_stock", { sku: "A-1" })
      yield* timed(
        Effect.gen(function*() {
          yield* Turn.run(toolkit, gets(2))
          yield* Turn.run(toolkit, gets(2))
          yield* Turn.run(toolkit, [set])
          yield* Turn.run(toolkit, gets(2))
        }).pipe(Coalescer.cached, Effect.provide(layer))
      )
      assert.deepStrictEqual(sent.map(({ keys }) => keys), [["A-1", "A-2"], ["A-1", "A-2"]])
    }))

  it("a tool that writes is not tied to a coalescer", () => {
    const { coalescer } = shop()
    const Write = Tool.make("take", { parameters: Schema.Struct({ sku: Schema.String }), success: Stock })
    assert.throws(
      () => Coalescer.through(coalescer, () => "A-1")(Write as never),
      /Coalescer.through, for tool "take".*a tool that reads/
    )
  })

  it.effect("a request that failed is made again where the tool says so", () =>
    Effect.gen(function*() {
      let broken = true
      const { coalescer, sent } = shop({
        whole: Effect.suspend(() => broken ? (broken = false, Effect.fail("busy")) : Effect.void)
      })
      const Again = pipe(
        Tool.make("again", { parameters: Schema.Struct({ sku: Schema.String }), success: Stock }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.retry({ times: 2, jitter: false }),
        Coalescer.through(coalescer, ({ sku }) => sku)
      )
      const toolkit = Toolkit.make(Again)
      const layer = Layer.mergeAll(
        toolkit.toLayer({ again: Coalescer.handler(Again) }),
        Turn.layer(),
        Shop.layer({ concurrency: "infinite" }),
        Layer.succeed(TurnContext.Tenant, "t")
      )
      const calls = ["A", "B", "C"].map((sku) => ToolCall.make(sku, "again", { sku }))
      const { value } = yield* timed(Turn.run(toolkit, calls).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(value.map(({ attempts, status }) => [status, attempts]), [["ok", 2], ["ok", 2], ["ok", 2]])
      assert.deepStrictEqual(sent.map(({ at, keys }) => [at, keys.length]), [[0, 3], [230, 3]])
    }))

  it.effect("a journal before each call does not split a request", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const { value } = yield* timed(
        Turn.run(toolkit, gets(12), { turn: "one" }).pipe(Effect.provide([layer, TurnJournal.layerMemory]))
      )
      assert.isTrue(value.every(({ status }) => status === "ok"))
      assert.deepStrictEqual(sent.map(({ keys }) => keys.length), [10, 2])
    }))

  it.effect("turns of one call each share requests within the window", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab({ backend: true, limits: { concurrency: 1 } })
      const governed = Turn.layerHandlers(toolkit as never).pipe(Layer.provideMerge(layer)) as typeof layer
      const { at, value } = yield* slowly(
        Effect.gen(function*() {
          const { handle } = yield* toolkit
          return yield* Effect.forEach(
            ["A", "B", "C"],
            (sku) => Effect.flatMap(handle("get_stock", { sku }), Stream.runCollect),
            { concurrency: "unbounded" }
          )
        }).pipe(Effect.provide(governed))
      )
      assert.deepStrictEqual(value.map(([one]) => (one!.result as typeof Stock.Type).sku), ["A", "B", "C"])
      assert.deepStrictEqual(sent.map(({ keys }) => keys.length), [3])
      assert.isAtMost(at, 40)
    }))

  it.effect("R18: the first failure sends nothing more, also when it comes at once", () =>
    Effect.gen(function*() {
      const asked: Array<ReadonlyArray<string>> = []
      const coalescer = Coalescer.make<string, typeof Stock.Type, never, string>({
        name: "at once",
        size: 1,
        lookup: (skus) =>
          Effect.suspend(() => {
            asked.push(skus)
            return Effect.fail("busy")
          })
      })
      const Get = pipe(
        Tool.make("get", { parameters: Schema.Struct({ sku: Schema.String }), success: Stock }),
        ToolPolicy.read({ keys: () => [] }),
        Coalescer.through(coalescer, ({ sku }) => sku)
      )
      const toolkit = Toolkit.make(Get)
      const layer = Layer.mergeAll(
        toolkit.toLayer({ get: Coalescer.handler(Get) }),
        Turn.layer(),
        Layer.succeed(TurnContext.Tenant, "t")
      )
      const events: Array<TurnEvent.TurnEvent> = []
      const { value } = yield* timed(
        Turn.run(toolkit, ["A", "B", "C"].map((sku) => ToolCall.make(sku, "get", { sku })), {
          siblings: Siblings.failFast,
          turn: "one",
          onEvent: (event) => events.push(event)
        }).pipe(Effect.provide([layer, TurnJournal.layerMemory]))
      )
      assert.deepStrictEqual(value.map(({ started, status }) => `${status} ${started}`), [
        "error true",
        "cancelled false",
        "cancelled false"
      ])
      assert.deepStrictEqual(asked, [["A"]])
      assert.strictEqual(events.filter(({ _tag }) => _tag === "CallStarted" || _tag === "RequestSent").length, 2)
    }))

  it.effect("R31: a middleware may begin the handler late, do it twice, or give it up and do it again", () =>
    Effect.gen(function*() {
      const under = (around: NonNullable<TurnMiddleware.Steps["around"]>) =>
        Effect.gen(function*() {
          const { layer, sent, toolkit } = lab()
          const middleware = [TurnMiddleware.make("m", { around })]
          const begun = yield* Clock.currentTimeMillis
          const { at, value } = yield* slowly(Turn.run(toolkit, gets(2), { middleware }).pipe(Effect.provide(layer)))
          return [at - begun, value.map(({ status }) => status).join(), sent.map(({ keys }) => keys.join())]
        })
      assert.deepStrictEqual(yield* under((handler) => Effect.delay(handler, 50)), [50, "ok,ok", ["A-1,A-2"]])
      assert.deepStrictEqual(
        yield* under((handler) => Effect.andThen(handler, handler)),
        [60, "ok,ok", ["A-1,A-2", "A-1,A-2"]]
      )
      assert.deepStrictEqual(
        yield* under((handler) =>
          Effect.all([handler, handler], { concurrency: "unbounded" }).pipe(Effect.map(([one]) => one))
        ),
        [30, "ok,ok", ["A-1,A-2"]]
      )
      assert.deepStrictEqual(
        yield* under((handler) => Effect.timeout(handler, 10).pipe(Effect.catch(() => handler))),
        // They leave one after the other.
        [40, "ok,ok", ["A-1,A-2", "A-1", "A-2"]]
      )
    }))

  it.effect("R31: a failed request is made again where a middleware does the handler again", () =>
    Effect.gen(function*() {
      let broken = true
      const { layer, sent, toolkit } = lab({
        whole: Effect.suspend(() => broken ? (broken = false, Effect.fail("busy")) : Effect.void)
      })
      const middleware = [TurnMiddleware.make("again", { around: (handler) => Effect.retry(handler, { times: 1 }) })]
      const { value } = yield* slowly(Turn.run(toolkit, gets(2), { middleware }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(value.map(({ status }) => status), ["ok", "ok"])
      assert.deepStrictEqual(sent.map(({ keys }) => keys), [["A-1", "A-2"], ["A-1", "A-2"]])
    }))

  it.effect("R17, R31: a request is ended and awaited where a middleware answers without it", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab({ backend: true, deaf: true })
      const own = (around: NonNullable<TurnMiddleware.Steps["around"]>) => {
        const middleware = [TurnMiddleware.make("own", { around })]
        return slowly(Turn.run(toolkit, gets(2), { middleware }).pipe(Effect.provide(layer)))
      }
      const result = { sku: "A-1", left: [] }
      const { at, value } = yield* own(() => Effect.delay(Effect.succeed(result), 5))
      assert.deepStrictEqual([at, value.map(({ status }) => status).join()], [30, "ok,ok"])
      assert.deepStrictEqual(sent.map(({ ended }) => ended), [30])
      // Stopped while it has not begun the handler.
      const stopped = yield* slowly(
        Turn.run(toolkit, gets(2), {
          middleware: [TurnMiddleware.make("late", { around: (handler) => Effect.delay(handler, 1000) })],
          deadline: 10
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(stopped.value.map(({ status }) => status), ["cancelled", "cancelled"])
      assert.strictEqual(stopped.at, sent[1]!.ended)
    }))

  it.effect("R12: a read after a write joins no request that was sent before the write", () =>
    Effect.gen(function*() {
      let version = 1
      const coalescer = Coalescer.make({
        name: "versions",
        window: 0,
        resources: (sku) => [`stock:${sku}`],
        lookup: (skus: ReadonlyArray<string>) =>
          Effect.suspend(() => {
            const found = skus.map((sku) => `${sku} at ${version}`)
            return Effect.as(Effect.sleep(100), found)
          })
      })
      const Sku = { parameters: Schema.Struct({ sku: Schema.String }), success: Schema.String }
      const reads = ToolPolicy.read<any>({ keys: ({ sku }: any) => [`stock:${sku}`] })
      // Their handlers do more than ask, so the turn does not ask in their place.
      const Glance = pipe(Tool.make("glance", Sku), reads, ToolPolicy.timeout(20)) as any
      const Look = pipe(Tool.make("look", Sku), reads) as any
      const toolkit = Toolkit.make(Glance, Look, SetStock) as any
      const load = ({ sku }: { readonly sku: string }) => Effect.orDie(coalescer.load(sku))
      const layer = Layer.mergeAll(
        toolkit.toLayer({ glance: load, look: load, set_stock: () => Effect.sync(() => void version++) }),
        Turn.layer(),
        Layer.succeed(TurnContext.Tenant, "t")
      ) as any
      const calls = [["glance", "A"], ["look", "B"], ["set_stock", "A"], ["look", "A"]] as const
      const { value } = yield* timed(
        Turn.run(toolkit, calls.map(([name, sku], i) => ToolCall.make(`c${i}`, name, { sku }))).pipe(
          Effect.provide(layer)
        ) as Effect.Effect<ReadonlyArray<any>, unknown>
      )
      assert.deepStrictEqual(value.map(({ result, status }) => result ?? status), ["timeout", "B at 1", "ok", "A at 2"])
    }))

  it.effect("R5: what a program does with an answer changes nothing of what the cache gives later", () =>
    Effect.gen(function*() {
      const { layer, sent, toolkit } = lab()
      const once = Effect.map(Turn.run(toolkit, gets(1)), ([outcome]) => {
        const { left } = (outcome as { readonly result: typeof Stock.Type }).result
        const seen = [...left]
        ;(left as Array<number>).push(99)
        return seen
      })
      const { value } = yield* timed(
        Coalescer.cached(Effect.all([once, once, once])).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(value, [[1], [1], [1]])
      assert.strictEqual(sent.length, 1)
    }))

  it.effect("work inside a started call goes before a request that waits for its permit", () =>
    Effect.gen(function*() {
      const { GetStock, sent } = shop({ backend: true })
      const Outer = pipe(Tool.make("outer"), ToolPolicy.read({ keys: () => [] }))
      const inner = Toolkit.make(SetStock)
      const toolkit = Toolkit.make(GetStock, Outer)
      const set = Turn.run(inner, [ToolCall.make("w", "set_stock", { sku: "A-2" })])
      const layer = Layer.mergeAll(
        toolkit.toLayer({
          get_stock: Coalescer.handler(GetStock),
          outer: () => Effect.asVoid(Effect.andThen(Effect.sleep(5), set)) as Effect.Effect<void>
        }),
        inner.toLayer({ set_stock: () => Effect.sleep(50) }),
        Turn.layer(),
        Shop.layer({ concurrency: 1 }),
        Layer.succeed(TurnContext.Tenant, "t")
      )
      const program = Effect.gen(function*() {
        // The only permit is out until 20: the request stands in line when the write inside takes its key, from 5 to 55.
        yield* Effect.forkChild(Shop.withPermit(Effect.sleep(20)), { startImmediately: true })
        return yield* Turn.run(toolkit, [ToolCall.make("o", "outer"), ...gets(1, 2)])
      })
      const { value } = yield* timed(program.pipe(Effect.provide(layer)))
      assert.deepStrictEqual(value.map(({ status }) => status), ["ok", "ok"])
      assert.deepStrictEqual(sent.map(({ at, keys }) => [at, keys]), [[55, ["A-2"]]])
    }))
})
