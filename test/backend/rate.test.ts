/** How many may start in a window of time: whoever waits for that, whatever stops it, and whoever keeps the count. */
import * as NodeRedis from "@effect/platform-node/NodeRedis"
import { assert, describe, it } from "@effect/vitest"
import { Backend, ToolPolicy, Turn, TurnContext, TurnError } from "effect-turn"
import { Laws } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as RateLimiter from "effect/persistence/RateLimiter"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "../utils/gen.ts"
import { Api, call, Crm, drive, ended, fork, idle, lab, run, words } from "../utils/kit.ts"
import { describeService } from "../utils/requires.ts"

const all = <A, E, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>) =>
  Effect.all(effects, { concurrency: "unbounded" })
const as = (tenant: string) => Effect.provide(TurnContext.make({ tenant }))
const fetches = (...tags: ReadonlyArray<string>) => tags.map((tag) => call("fetch", tag))

/** Work that writes down when it began. */
const noted = (starts: Array<readonly [string, number]>, name: string, ms = 10) =>
  Effect.flatMap(Clock.currentTimeMillis, (at) => {
    starts.push([name, at])
    return Effect.sleep(ms)
  })

/** The first start of a window, and what it has: `limit` at most, and it lasts for that part of `window` that they are of `limit`. */
const windowsOf = (starts: ReadonlyArray<number>, limit: number, window: number): ReadonlyArray<number> => {
  const counts: Array<number> = []
  let ends = -Infinity
  for (const at of starts.toSorted((a, b) => a - b)) {
    // The store counts in nanoseconds.
    if (at >= ends - 0.001) {
      counts.push(0)
      ends = at
    }
    counts[counts.length - 1]!++
    ends += window / limit
  }
  return counts
}

describe("R15: a rate that cannot be is refused where it is written", () => {
  it("a limit that is no whole number from 1", () => {
    for (const limit of [0, -1, 1.5, NaN, Infinity, "2", "infinite", null, undefined]) {
      assert.throws(
        () => Api.layer({ concurrency: 1, rate: { limit: limit as number, window: 100 } }),
        /"test\/Api".*"rate.limit" must be a whole number from 1, and is/
      )
    }
  })
  it("a window that never begins or never ends", () => {
    for (const window of [0, -5, NaN, Infinity, "infinite", 2_147_483_648, "30 days", {}, "soon", null, undefined]) {
      assert.throws(
        () => Crm.layer({ concurrency: 1, perTenant: 1, rate: { limit: 1, window: window as number } }),
        /"test\/Crm".*"rate.window" must be a duration from 1 to 2147483647 ms, and is/
      )
    }
  })
  it("what is no rate at all", () => {
    assert.throws(() => Api.layer({ concurrency: 1, rate: null as never }), TurnError.TurnError)
    assert.throws(() => Api.layer({ concurrency: 1, rate: 5 as never }), TurnError.TurnError)
    Api.layer({ concurrency: 1, rate: "infinite" })
    Api.layer({ concurrency: 1, rate: { limit: 1, window: "24 days" } })
  })
})

describe("R14: a rate", () => {
  it.effect("a burst takes what the window has, and the next ones wait for the next window, though permits are free", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 8, rate: { limit: 2, window: "100 millis" } } })
      const stats = yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b", "c", "d", "e"), { onEvent: book.note }))
        yield* TestClock.adjust(50)
        const stats = yield* Api.stats
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "ok", "ok", "ok", "ok"])
        assert.deepStrictEqual(yield* Api.stats, { ...idle(8), rate: { limit: 2, window: 100 } })
        return stats
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [
        ["a", 0],
        ["b", 0],
        ["c", 100],
        ["d", 100],
        ["e", 200]
      ])
      // Whoever waits for the rate holds no permit.
      assert.deepStrictEqual([stats.running, stats.waiting], [0, 3])
    }))

  it.effect("R33: what waits for it is told so, and for how long", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 2, rate: { limit: 1, window: 100 } },
        script: { a: { ms: 30 } }
      })
      yield* drive(run(fetches("a", "b", "c"), { onEvent: book.note }).pipe(Effect.provide(layer)))
      const queued = book.events.flatMap((event) => event._tag === "CallQueued" ? [[event.id, event.for]] : [])
      assert.deepStrictEqual(queued, [["b", "rate"], ["c", "rate"]])
      const waited = book.events.flatMap((event) => event._tag === "CallStarted" ? [event.waited] : [])
      assert.deepStrictEqual(waited, [
        { keys: 0, permit: 0, rate: 0, approval: 0 },
        { keys: 0, permit: 0, rate: 100, approval: 0 },
        { keys: 0, permit: 0, rate: 200, approval: 0 }
      ])
    }))

  it.effect("R33: waiting for a permit, and then for the rate, are told apart", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 1, rate: { limit: 1, window: 100 } },
        script: { a: { ms: 40 } }
      })
      yield* drive(run(fetches("a", "b"), { onEvent: book.note }).pipe(Effect.provide(layer)))
      const queued = book.events.flatMap((event) => event._tag === "CallQueued" ? [[event.id, event.for]] : [])
      assert.deepStrictEqual(queued, [["b", "permit"]])
      const waited = book.events.flatMap((event) => event._tag === "CallStarted" ? [event.waited] : [])
      assert.deepStrictEqual(waited[1], { keys: 0, permit: 40, rate: 60, approval: 0 })
    }))

  it.effect("a call that is stopped while it waits has used no token", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4, rate: { limit: 1, window: 100 } } })
      yield* Effect.gen(function*() {
        const first = yield* fork(run(fetches("a", "b", "c")))
        yield* TestClock.adjust(50)
        yield* Fiber.interrupt(first)
        assert.strictEqual((yield* Api.stats).waiting, 0)
        yield* TestClock.adjust(10)
        const second = yield* fork(run(fetches("d")))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(second)), ["ok"])
        assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [["a", 0], ["d", 100]])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("R15: waiting for it is waiting for the start", () =>
    Effect.gen(function*() {
      const Slow = pipe(
        Tool.make("slow", { success: Schema.Void }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.on(Api),
        ToolPolicy.repeatable,
        ToolPolicy.waitTimeout(60)
      )
      const kit = Toolkit.make(Slow)
      const outcomes = yield* drive(
        Turn.run(kit, ["a", "b"].map((id) => ({ id, name: "slow", arguments: {} }))).pipe(
          Effect.provide([
            kit.toLayer({ slow: () => Effect.sleep(10) }),
            Turn.layer(),
            Api.layer({ concurrency: 2, rate: { limit: 1, window: 100 } })
          ])
        )
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "timeout/queue"])
      assert.isFalse(outcomes[1]!.started)
    }))

  it.effect("a plain effect obeys it, and takes its turn with the calls", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4, rate: { limit: 1, window: 100 } } })
      const starts: Array<readonly [string, number]> = []
      yield* Effect.gen(function*() {
        yield* fork(run(fetches("a", "b", "c")))
        yield* fork(Api.withPermit(noted(starts, "plain")))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(starts, [["plain", 200]])
        assert.deepStrictEqual(book.runs.map(({ at }) => at), [0, 100, 300])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("B3: tenants take turns at it", () =>
    Effect.gen(function*() {
      const starts: Array<readonly [string, number]> = []
      const works = [...Array.from({ length: 4 }, () => "north"), "south", "south"].map((tenant) =>
        Crm.withPermit(noted(starts, tenant, 1)).pipe(as(tenant))
      )
      yield* drive(
        all(works).pipe(Effect.provide(
          Crm.layer({ concurrency: 9, perTenant: "infinite", rate: { limit: 1, window: 10 } })
        ))
      )
      assert.deepStrictEqual(starts.map(([name]) => name), ["north", "north", "south", "north", "south", "north"])
      assert.deepStrictEqual(starts.map(([, at]) => at), [0, 10, 20, 30, 40, 50])
    }))

  it.effect("B5: work that borrows its ancestor's permit takes a token of its own, and does not wait for the ancestor", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, rate: { limit: 1, window: 100 } } })
      const starts: Array<readonly [string, number]> = []
      book.script.set("outer", {
        run: Effect.flatMap(
          run(fetches("x", "y")),
          (outcomes) => Effect.as(Api.withPermit(noted(starts, "plain")), words(outcomes))
        ).pipe(Effect.orDie)
      })
      yield* Effect.gen(function*() {
        const one = yield* fork(run(fetches("outer")))
        const two = yield* fork(run(fetches("other")))
        yield* TestClock.adjust(2000)
        assert.deepStrictEqual((yield* ended(one))[0], { ...(yield* ended(one))[0]!, result: ["ok", "ok"] } as never)
        assert.deepStrictEqual(words(yield* ended(two)), ["ok"])
        assert.deepStrictEqual(["outer", "x", "y", "other"].map((tag) => book.of(tag).at), [0, 100, 200, 400])
        assert.deepStrictEqual(starts, [["plain", 300]])
        assert.strictEqual((yield* Api.stats).running, 0)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("B6: work inside and the line take turns at the tokens, so that nobody starves", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 2, rate: { limit: 1, window: 10 } } })
      const many = Array.from({ length: 12 }, (_, i) => `inside ${i}`)
      book.script.set("outer", { run: Effect.map(run(fetches(...many)), words).pipe(Effect.orDie) })
      for (const tag of [...many, "a", "b", "c"]) book.script.set(tag, { ms: 1 })
      yield* Effect.gen(function*() {
        yield* fork(run(fetches("outer")))
        yield* fork(run(fetches("a", "b", "c")))
        yield* TestClock.adjust(1000)
        // Of four tokens one goes to the other turn: the inner one has its place in the line too.
        assert.deepStrictEqual(["a", "b", "c"].map((tag) => book.of(tag).at), [40, 80, 120])
        assert.strictEqual(book.runs.length, 16)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("what cannot start before the next window waits in the line, and the line has its limit", () =>
    Effect.gen(function*() {
      for (const queueLimit of [0, 1, 2]) {
        const { layer } = lab({ api: { concurrency: 8, queueLimit, rate: { limit: 2, window: 100 } } })
        yield* Effect.gen(function*() {
          const first = yield* fork(run(fetches("a", "b", "c", "d", "e")))
          yield* TestClock.adjust(20)
          const plain = yield* Effect.exit(Effect.timeout(Api.withPermit(Effect.void), 0))
          assert.isTrue(Exit.isFailure(plain))
          yield* TestClock.adjust(1000)
          const waits = ["c", "d", "e"].map((_, i) => i < queueLimit ? "ok" : "error/queue_full")
          assert.deepStrictEqual(words(yield* ended(first)), ["ok", "ok", ...waits])
          // The window is over: there is room again.
          const later = yield* fork(run(fetches("f", "g")))
          yield* TestClock.adjust(1000)
          assert.deepStrictEqual(words(yield* ended(later)), ["ok", "ok"])
        }).pipe(Effect.provide(layer))
      }
    }))

  it.effect("R36: a runtime that awaits its turns awaits those that wait for a rate, and then nothing is left", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 4, rate: { limit: 1, window: 100 } },
        runtime: { shutdown: "await" }
      })
      const scope = yield* Scope.make()
      const services = yield* Layer.buildWithScope(layer, scope)
      const turn = yield* fork(
        run(fetches("a", "b", "c")).pipe(Effect.provideContext(services as Context.Context<any>))
      )
      yield* TestClock.adjust(10)
      const closing = yield* fork(Scope.close(scope, Exit.void))
      yield* TestClock.adjust(1000)
      assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "ok", "ok"])
      yield* ended(closing)
      assert.deepStrictEqual(book.runs.map(({ at }) => at), [0, 100, 200])
    }))

  it.effect("two thousand in line for it: each is let in by its own token, and the stack stays flat", () =>
    Effect.gen(function*() {
      const starts: Array<readonly [string, number]> = []
      const works = Array.from({ length: 2000 }, () => Api.withPermit(noted(starts, "", 0)))
      yield* drive(
        all(works).pipe(Effect.provide(Api.layer({ concurrency: 4, rate: { limit: 500, window: 100 } })))
      )
      assert.deepStrictEqual(windowsOf(starts.map(([, at]) => at), 500, 100), [500, 500, 500, 500])
    }))
})

describe("R14: the store of a rate", () => {
  const store = (consume: Effect.Effect<readonly [number, number], RateLimiter.RateLimiterError>) =>
    Layer.succeed(RateLimiter.RateLimiterStore, {
      fixedWindow: () => consume,
      tokenBucket: () => Effect.die("not asked"),
      adaptiveConsume: () => Effect.die("not asked"),
      adaptiveFeedback: () => Effect.die("not asked")
    })
  const down = Effect.fail(
    new RateLimiter.RateLimiterError({
      reason: new RateLimiter.RateLimitStoreError({ message: "no route to the store" })
    })
  )
  const limited = { concurrency: 4, rate: { limit: 2, window: 100 } } as const

  it.effect("that is down: each call is answered store_unavailable, and was not started", () =>
    Effect.gen(function*() {
      for (const consume of [down, Effect.die("no route to the store"), Effect.andThen(Effect.sleep(5), down)]) {
        const { book, layer } = lab({})
        yield* Effect.gen(function*() {
          const turn = yield* fork(run(fetches("a", "b", "c")))
          yield* TestClock.adjust(100)
          const outcomes = yield* ended(turn)
          for (const outcome of outcomes) {
            assert.deepStrictEqual(words([outcome]), ["error/store_unavailable"])
            assert.deepStrictEqual([outcome.started, outcome.effect, outcome.retryable], [false, "none", true])
            assert.match(
              outcome.message,
              /"test\/Api" could not ask the store of its rate: nothing was started \(.*no route/
            )
          }
          assert.deepStrictEqual(book.runs, [])
          const plain = yield* fork(Effect.flip(Api.withPermit(Effect.void)))
          yield* TestClock.adjust(100)
          const error = yield* ended(plain)
          assert.instanceOf(error, Backend.StoreUnavailable)
          assert.deepStrictEqual([error.backend, error.store], ["test/Api", "rate"])
          assert.strictEqual((yield* Api.stats).waiting, 0)
        }).pipe(
          Effect.provide(Layer.merge(layer, Layer.provide(Layer.fresh(Api.layer(limited)), store(consume))))
        )
      }
    }))

  it.effect("that never answers: a call waits no longer than it may, and nothing is left of the question", () =>
    Effect.gen(function*() {
      let asking = 0
      const hangs = Effect.ensuring(
        Effect.andThen(Effect.sync(() => asking++), Effect.never),
        Effect.sync(() => asking--)
      )
      const { book, layer } = lab({})
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b")))
        const plain = yield* fork(Api.withPermit(Effect.void))
        yield* TestClock.adjust(10)
        assert.strictEqual(asking, 1)
        yield* Fiber.interrupt(plain)
        assert.strictEqual(asking, 1)
        yield* TestClock.adjust(60_000)
        assert.deepStrictEqual(words(yield* ended(turn)), ["timeout/queue", "timeout/queue"])
        assert.deepStrictEqual([asking, book.runs.length], [0, 0])
      }).pipe(Effect.provide(Layer.merge(layer, Layer.provide(Layer.fresh(Api.layer(limited)), store(hangs)))))
    }))

  it.effect("that takes time: the next in line gets the token of one that was stopped meanwhile", () =>
    Effect.gen(function*() {
      let count = 0
      const slow = Effect.delay(Effect.sync(() => [++count, 1000] as const), 20)
      const { book, layer } = lab({})
      yield* Effect.gen(function*() {
        const first = yield* fork(run(fetches("a")))
        yield* fork(run(fetches("b")))
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(first)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [["b", 20]])
        assert.strictEqual(count, 1)
      }).pipe(Effect.provide(Layer.merge(layer, Layer.provide(Layer.fresh(Api.layer(limited)), store(slow)))))
    }))

  it.effect("that takes time: a token that nobody may take when it comes is not kept for later", () =>
    Effect.gen(function*() {
      let count = 0
      const slow = Effect.delay(Effect.sync(() => [++count, 1000] as const), 20)
      const { book, layer } = lab({ script: { b: { ms: 50 } } })
      yield* Effect.gen(function*() {
        // The turn's own limit goes to the other backend while the store is being asked.
        const turn = yield* fork(run([call("fetch", "a"), call("find", "b")], { execution: 1 }))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "ok"])
        assert.deepStrictEqual([book.of("b").at, book.of("a").at, count], [0, 70, 2])
      }).pipe(Effect.provide(Layer.merge(layer, Layer.provide(Layer.fresh(Api.layer(limited)), store(slow)))))
    }))

  it.effect("two backends of one name share a rate through it, and without it each has its own", () =>
    Effect.gen(function*() {
      const twice = (shared: boolean) =>
        Effect.gen(function*() {
          const starts: Array<readonly [string, number]> = []
          const layer = Api.layer({ concurrency: 4, rate: { limit: 1, window: 100 } })
          const process = (name: string) =>
            all([1, 2].map(() => Api.withPermit(noted(starts, name)))).pipe(Effect.provide(Layer.fresh(layer)))
          const both = all([process("one"), process("two")])
          const from = yield* Clock.currentTimeMillis
          yield* drive(shared ? Effect.provide(both, RateLimiter.layerStoreMemory) : both)
          return starts.map(([, at]) => at - from)
        })
      assert.deepStrictEqual(yield* twice(true), [0, 100, 200, 300])
      assert.deepStrictEqual(yield* twice(false), [0, 0, 100, 100])
    }))
})

describe("R14: a rate, whatever happens", () => {
  const someWork = Arbitrary.all({
    tenant: pick("north", "south"),
    at: pick(0, 0, 3, 10, 17, 40),
    ms: pick(10, 0, 5, 20),
    depth: pick(0, 0, 1),
    end: pick("ok", "ok", "fail", "die", "interrupt"),
    stopAt: Arbitrary.flatMap(pick(false, false, true), (stops) => stops ? int(0, 60) : Arbitrary.Constant(undefined))
  })
  it.effect.prop(
    "B1, B2, B6: no window has more than its limit, nobody starves, and all permits come back",
    {
      works: Arbitrary.array(someWork, { maxLength: 10 }),
      concurrency: pick(1, 2, 3),
      perTenant: pick<number | "infinite">(1, 2, "infinite"),
      limit: pick(1, 2, 3),
      window: pick(10, 30, 100)
    },
    ({ concurrency, limit, perTenant, window, works }) =>
      Effect.gen(function*() {
        const starts: Array<readonly [string, number]> = []
        yield* Effect.gen(function*() {
          const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
          for (const [i, { at, depth, end, ms, stopAt, tenant }] of works.entries()) {
            const tail: Effect.Effect<void, string> = end === "ok"
              ? Effect.void
              : end === "fail"
              ? Effect.fail("no")
              : end === "die"
              ? Effect.die("boom")
              : Effect.interrupt
            let work: Effect.Effect<unknown, unknown, Crm | TurnContext.Tenant> = Crm.withPermit(
              Effect.andThen(noted(starts, String(i), ms), tail)
            )
            for (let d = 0; d < depth; d++) {
              work = Crm.withPermit(Effect.andThen(noted(starts, `${i} outside`, 0), work))
            }
            const fiber = yield* fork(Effect.delay(work, at).pipe(as(tenant), Effect.exit))
            fibers.push(fiber)
            if (stopAt !== undefined) yield* fork(Effect.delay(Fiber.interrupt(fiber), stopAt))
          }
          const share = perTenant === "infinite" ? Infinity : perTenant
          for (let step = 0; step < 60; step++) {
            yield* TestClock.adjust(1)
            const stats = yield* Crm.stats
            assert.isAtMost(stats.running, concurrency)
            for (const { running } of Object.values(stats.tenants)) assert.isAtMost(running, share)
          }
          yield* TestClock.adjust(10_000)
          for (const fiber of fibers) assert.isDefined(fiber.pollUnsafe())
          assert.deepStrictEqual(yield* Crm.stats, { ...idle(concurrency, perTenant), rate: { limit, window } })
        }).pipe(Effect.provide(Crm.layer({ concurrency, perTenant, rate: { limit, window } })))
        const times = starts.map(([, at]) => at)
        for (const count of windowsOf(times, limit, window)) assert.isAtMost(count, limit)
        for (const from of times) {
          assert.isBelow(times.filter((at) => at >= from && at < from + window).length, 2 * limit)
        }
      }),
    runs(200)
  )

  class Maps extends Backend.TenantService<Maps>()("test/Maps") {}
  const Place = Schema.Struct({ place: Schema.String })
  const keys = ({ place }: typeof Place.Type) => [`place:${place}`]
  const parts = { parameters: Place, success: Schema.String, failure: Schema.String }
  const Look = pipe(Tool.make("look", parts), ToolPolicy.read({ keys }), ToolPolicy.on(Maps))
  const Mark = pipe(
    Tool.make("mark", parts),
    ToolPolicy.write({ keys }),
    ToolPolicy.on(Maps),
    ToolPolicy.waitTimeout(200)
  )
  const Guide = pipe(Tool.make("guide", parts), ToolPolicy.write({ keys }), ToolPolicy.on(Maps))
  const inner = Toolkit.make(Look)
  const kit = Toolkit.make(Look, Mark, Guide)
  const look = ({ place }: typeof Place.Type) => Effect.as(Effect.sleep(10), place)
  const handlers: Layer.Layer<any, never, Maps> = (kit.toLayer as (build: unknown) => any)(
    Effect.gen(function*() {
      const services = yield* Effect.context<Maps>()
      const own = Layer.merge(inner.toLayer({ look }), Layer.succeedContext(services))
      return {
        look,
        mark: ({ place }: typeof Place.Type) =>
          Effect.andThen(Effect.sleep(5), place === "b" ? Effect.fail("full") : Effect.succeed(place)),
        guide: ({ place }: typeof Place.Type) =>
          Turn.run(inner, [{ id: "i", name: "look", arguments: { place } }]).pipe(
            Effect.map(([outcome]) => outcome!.status),
            Effect.provide(own),
            Effect.orDie
          )
      }
    })
  )
  const layer = Layer.provideMerge(
    handlers,
    Maps.layer({ concurrency: 3, perTenant: 2, rate: { limit: 2, window: 25 } })
  )
  const laws = Laws.all.filter((law) => law !== Laws.workConserving)

  Laws.suite(it, {
    toolkit: kit,
    layer,
    laws,
    inputs: 80,
    seeds: 4,
    seed: Number(process.env["EFFECT_TURN_SEED"] ?? 1)
  })

  it.effect("every turn of two calls, stopped at every point", () =>
    Effect.gen(function*() {
      const { complete, runs } = yield* Laws.exhaust({
        toolkit: Toolkit.make(Look, Guide),
        layer: Layer.provideMerge(
          handlers,
          Maps.layer({ concurrency: 2, perTenant: 1, rate: { limit: 1, window: 20 } })
        ),
        cases: { maxCalls: 2 }
      })
      assert.isTrue(complete)
      assert.isAbove(runs, 500)
    }), 60_000)
})

await describeService("a rate that processes share, over Redis", "Redis", ({ host, port }) => {
  it.live("the limit is that of both together", () =>
    Effect.gen(function*() {
      class Shared
        extends Backend.Service<Shared>()(`test/shared-${yield* Clock.currentTimeMillis}-${Math.random()}`)
      {}
      const window = 400
      const layer = Shared.layer({ concurrency: 8, rate: { limit: 3, window } })
      const starts: Array<readonly [string, number]> = []
      // Each with its own connection, as two processes have.
      const process = (name: string) =>
        all(Array.from({ length: 3 }, () => Shared.withPermit(noted(starts, name, 1)))).pipe(
          Effect.provide(layer.pipe(
            Layer.provide(RateLimiter.layerStoreRedis({ prefix: "effect-turn-test:" })),
            Layer.provide(NodeRedis.layer({ socket: { host, port } })),
            Layer.fresh
          ))
        )
      yield* all([process("one"), process("two")])
      const times = starts.map(([, at]) => at).toSorted((a, b) => a - b)
      assert.strictEqual(times.length, 6)
      // The first three at once, the others when the first window is over: a real clock is read before and after the store's.
      assert.isBelow(times[2]! - times[0]!, window / 2)
      assert.isAtLeast(times[3]! - times[0]!, window - 50)
      assert.strictEqual(new Set(starts.map(([name]) => name)).size, 2)
    }))
})
