/** The circuit of a backend: when it opens, who is refused meanwhile, who tries it out, and what counts. */
import * as NodeRedis from "@effect/platform-node/NodeRedis"
import { assert, describe, it } from "@effect/vitest"
import { Backend, ToolPolicy, Turn, TurnError } from "effect-turn"
import { Laws, Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as RateLimiter from "effect/persistence/RateLimiter"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "../utils/gen.ts"
import { Api, call, drive, ended, fork, idle, lab, run, words } from "../utils/kit.ts"
import { describeService } from "../utils/requires.ts"

const fetches = (...tags: ReadonlyArray<string>) => tags.map((tag) => call("fetch", tag))
const breaker = (failures: number, openDuration: Backend.Breaker["openDuration"] = 1000): Backend.Breaker => ({
  tripPolicy: CircuitBreaker.consecutive(failures),
  openDuration
})
const circuit = Effect.map(Api.stats, (stats) => stats.circuit)
const fails = Api.withPermit(Effect.fail("no"))

describe("R15: a breaker that cannot be is refused where it is written", () => {
  const refused = (breaker: unknown, words: RegExp) =>
    assert.throws(() => Api.layer({ concurrency: 1, breaker: breaker as Backend.Breaker }), words)
  it("a policy that never trips, or always", () => {
    const openDuration = 10
    refused({ openDuration }, /"test\/Api".*"breaker.tripPolicy" must be CircuitBreaker.consecutive/)
    for (const failures of [0, -1, 1.5, NaN]) {
      refused({ openDuration, tripPolicy: { _tag: "Consecutive", failures } }, /"breaker.tripPolicy.failures"/)
    }
    const rate = { _tag: "Rate", threshold: 0.5, size: 4, minimumCalls: 2 }
    for (const threshold of [-0.1, 1.1, NaN, "0.5x"]) {
      refused(
        { openDuration, tripPolicy: { ...rate, threshold } },
        /"breaker.tripPolicy.threshold" must be a number from 0 to 1/
      )
    }
    refused({ openDuration, tripPolicy: { ...rate, size: 0 } }, /"breaker.tripPolicy.size"/)
    refused({ openDuration, tripPolicy: { ...rate, minimumCalls: 0 } }, /"breaker.tripPolicy.minimumCalls"/)
    refused(
      { openDuration, tripPolicy: { ...rate, minimumCalls: 5 } },
      /"breaker.tripPolicy.minimumCalls" must be at most the size \(4\)/
    )
    Api.layer({ concurrency: 1, breaker: { openDuration, tripPolicy: CircuitBreaker.rate({ size: 4 }) } })
  })
  it("times that never begin or never end, and a word that is none", () => {
    const tripPolicy = CircuitBreaker.consecutive(1)
    for (const time of [0, -1, NaN, Infinity, "infinite", 2_147_483_648, {}]) {
      refused(
        { tripPolicy, openDuration: time },
        /"breaker.openDuration" must be a duration from 1 to 2147483647 ms, and is/
      )
      refused({ tripPolicy, openDuration: 1, maxOpenDuration: time }, /"breaker.maxOpenDuration"/)
    }
    refused({ tripPolicy, openDuration: undefined }, /"breaker.openDuration"/)
    refused({ tripPolicy, openDuration: 1, onStoreError: "retry" }, /"breaker.onStoreError" must be "allow" or "fail"/)
    assert.throws(() => Api.layer({ concurrency: 1, breaker: {} as Backend.Breaker }), TurnError.TurnError)
  })
})

describe("R14: a circuit", () => {
  it.effect("opens when its policy says so; from then on a call is refused at once, not started, with the time", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 1, breaker: breaker(2, "1 second") },
        script: { a: { end: "fail" }, b: { end: "fail" }, long: { ms: 500 } }
      })
      yield* Effect.gen(function*() {
        const first = yield* fork(run(fetches("a")))
        yield* TestClock.adjust(10)
        assert.strictEqual(yield* circuit, "closed")
        const second = yield* fork(run(fetches("b")))
        yield* TestClock.adjust(10)
        assert.deepStrictEqual([words(yield* ended(first)), words(yield* ended(second))], [["error/failed"], [
          "error/failed"
        ]])
        assert.strictEqual(yield* circuit, "open")
        yield* TestClock.adjust(100)
        const third = yield* fork(run(fetches("c", "d")))
        const outcomes = yield* ended(third)
        for (const outcome of outcomes) {
          assert.deepStrictEqual(words([outcome]), ["error/circuit_open"])
          assert.deepStrictEqual([outcome.started, outcome.effect, outcome.retryable], [false, "none", true])
          assert.strictEqual(
            outcome.message,
            `the backend "test/Api" has failed too often: nothing was started; it takes no calls for 900 ms, until ${
              new Date(1020).toISOString()
            }`
          )
        }
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["a", "b"])
        const error = yield* Effect.flip(Api.withPermit(Effect.void))
        assert.instanceOf(error, Backend.CircuitOpen)
        assert.deepStrictEqual([error.backend, error.retryAfter, error.until], ["test/Api", 900, 1020])
        assert.deepStrictEqual(
          Schema.decodeUnknownSync(Backend.CircuitOpen)(Schema.encodeUnknownSync(Backend.CircuitOpen)(error)),
          error
        )
      }).pipe(Effect.provide(layer))
    }))

  it.effect("is asked before a call takes a place in the line", () =>
    Effect.gen(function*() {
      const { layer } = lab({
        api: { concurrency: 2, breaker: breaker(1), queueLimit: 0 },
        script: { long: { ms: 500 } }
      })
      yield* Effect.gen(function*() {
        yield* fork(run(fetches("long")))
        yield* Effect.flip(fails)
        // One permit is out; another call would have waited for nothing, two would have found no place.
        const turn = yield* fork(run(fetches("a", "b", "c")))
        assert.deepStrictEqual(words(yield* ended(turn)), [
          "error/circuit_open",
          "error/circuit_open",
          "error/circuit_open"
        ])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("and again when a call reaches the front of the line", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, breaker: breaker(1) }, script: { a: { end: "fail" } } })
      const stats = yield* drive(
        Effect.gen(function*() {
          const outcomes = yield* run(fetches("a", "b", "c"))
          assert.deepStrictEqual(words(outcomes), ["error/failed", "error/circuit_open", "error/circuit_open"])
          return yield* Api.stats
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(book.runs.map(({ endedAt, tag }) => [tag, endedAt]), [["a", 10]])
      assert.deepStrictEqual(stats, { ...idle(1), circuit: "open" })
    }))

  it.effect("half-open: exactly one tries it out, and everything else is refused until that has ended; success closes it", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4, breaker: breaker(1) }, script: { probe: { ms: 50 } } })
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        yield* TestClock.adjust(1000)
        assert.strictEqual(yield* circuit, "half_open")
        const turn = yield* fork(run(fetches("probe", "b", "c")))
        yield* TestClock.adjust(10)
        assert.strictEqual(yield* circuit, "half_open")
        const error = yield* Effect.flip(Api.withPermit(Effect.void))
        assert.deepStrictEqual([error._tag, (error as Backend.CircuitOpen).retryAfter], ["CircuitOpen", undefined])
        assert.match(error.message, /one call tries it out/)
        yield* TestClock.adjust(40)
        assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "error/circuit_open", "error/circuit_open"])
        assert.strictEqual(yield* circuit, "closed")
        const later = yield* fork(run(fetches("d", "e", "f")))
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(words(yield* ended(later)), ["ok", "ok", "ok"])
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["probe", "d", "e", "f"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("half-open: failure opens it again, for the next time", () =>
    Effect.gen(function*() {
      const times = Schedule.exponential(100)
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        for (const time of [100, 200, 400]) {
          yield* TestClock.adjust(time - 1)
          assert.strictEqual((yield* Effect.flip(fails) as Effect.Effect<any>)["_tag"], "CircuitOpen")
          yield* TestClock.adjust(1)
          assert.strictEqual(yield* Effect.flip(fails), "no")
          assert.strictEqual(yield* circuit, "open")
        }
      }).pipe(Effect.provide(Api.layer({ concurrency: 1, breaker: breaker(1, times) })))
    }))

  it.effect("half-open: one that is stopped says nothing, and the next one tries it out", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4, breaker: breaker(1) }, script: { probe: { ms: 50 } } })
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        yield* TestClock.adjust(1000)
        const turn = yield* fork(run(fetches("probe")))
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(turn)
        assert.strictEqual(yield* circuit, "half_open")
        const next = yield* fork(run(fetches("next")))
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(words(yield* ended(next)), ["ok"])
        assert.strictEqual(yield* circuit, "closed")
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["probe", "next"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("half-open: with one permit, what waits behind the probe is let in when it has closed the circuit", () =>
    Effect.gen(function*() {
      const { layer } = lab({ api: { concurrency: 1, breaker: breaker(1) }, script: { a: { end: "fail" } } })
      yield* Effect.gen(function*() {
        // Both are in line when the circuit opens; the second finds it open, for it is not over yet.
        const turn = yield* fork(run(fetches("a", "b")))
        yield* TestClock.adjust(1010)
        assert.deepStrictEqual(words(yield* ended(turn)), ["error/failed", "error/circuit_open"])
        assert.deepStrictEqual(yield* Api.withPermit(Effect.succeed(1)), 1)
        assert.strictEqual(yield* circuit, "closed")
      }).pipe(Effect.provide(layer))
    }))

  it.effect("work inside is covered by its ancestor's admission: a probe runs its own requests, and they do not count", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, breaker: breaker(1) }, script: { x: { end: "fail" } } })
      book.script.set("outer", {
        run: Effect.gen(function*() {
          const outcomes = yield* run(fetches("x", "y"))
          const plain = yield* Effect.exit(fails)
          return [...words(outcomes), plain._tag]
        }).pipe(Effect.orDie)
      })
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        yield* TestClock.adjust(1000)
        const turn = yield* fork(run(fetches("outer")))
        yield* TestClock.adjust(100)
        const [outcome] = yield* ended(turn)
        assert.deepStrictEqual((outcome as any).result, ["error/failed", "ok", "Failure"])
        assert.strictEqual(yield* circuit, "closed")
      }).pipe(Effect.provide(layer))
    }))

  it.effect("work inside is covered too where it goes beside other work inside, on a permit of its own", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 3, breaker: breaker(1) } })
      book.script.set("outer", { run: Effect.map(run(fetches("x", "y", "z")), words).pipe(Effect.orDie) })
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        yield* TestClock.adjust(1000)
        const turn = yield* fork(run(fetches("outer")))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(
          (yield* ended(turn))[0],
          { ...(yield* ended(turn))[0]!, result: ["ok", "ok", "ok"] } as never
        )
        assert.deepStrictEqual(["x", "y", "z"].map((tag) => book.of(tag).at), [1000, 1000, 1000])
        assert.strictEqual(yield* circuit, "closed")
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a probe that is stopped while work inside another call waits for the rate lets the next one try", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 3, breaker: breaker(1, 50), rate: { limit: 2, window: 100 } } })
      book.script.set("outer", {
        run: Effect.andThen(Effect.sleep(60), Effect.map(run(fetches("x")), words)).pipe(Effect.orDie)
      })
      yield* Effect.gen(function*() {
        const outer = yield* fork(run(fetches("outer")))
        yield* Effect.flip(fails)
        yield* TestClock.adjust(70)
        const probe = yield* fork(run(fetches("p")))
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(probe)
        const next = yield* fork(run(fetches("q")))
        yield* TestClock.adjust(500)
        assert.deepStrictEqual([words(yield* ended(outer)), words(yield* ended(next))], [["ok"], ["ok"]])
        assert.deepStrictEqual(["x", "q"].map((tag) => book.of(tag).at), [100, 100])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("while it is open no token of the rate is taken", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4, breaker: breaker(1, 50), rate: { limit: 2, window: 100 } } })
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        const refused = yield* fork(run(fetches("a", "b", "c")))
        assert.deepStrictEqual(words(yield* ended(refused)), Array(3).fill("error/circuit_open"))
        yield* TestClock.adjust(50)
        // One start of the window is left, and half of it is over.
        const probe = yield* fork(run(fetches("d")))
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(words(yield* ended(probe)), ["ok"])
        assert.strictEqual(book.of("d").at, 50)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("it opens for those too that wait for the rate", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 4, breaker: breaker(1, 500), rate: { limit: 1, window: 100 } },
        script: { a: { end: "fail" } }
      })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b", "c")))
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(words(yield* ended(turn)), ["error/failed", "error/circuit_open", "error/circuit_open"])
        assert.strictEqual(book.runs.length, 1)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a probe that waits for the rate holds the circuit half-open; stopped there, it lets the next one try", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4, breaker: breaker(1, 50), rate: { limit: 1, window: 200 } } })
      yield* Effect.gen(function*() {
        yield* Effect.flip(fails)
        yield* TestClock.adjust(50)
        const probe = yield* fork(run(fetches("a")))
        yield* TestClock.adjust(10)
        assert.strictEqual((yield* Effect.flip(Api.withPermit(Effect.void)))._tag, "CircuitOpen")
        yield* Fiber.interrupt(probe)
        const next = yield* fork(run(fetches("b")))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(next)), ["ok"])
        assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [["b", 200]])
        assert.strictEqual(yield* circuit, "closed")
      }).pipe(Effect.provide(layer))
    }))
})

describe("R14: what counts for a circuit", () => {
  const Failure = Schema.Struct({ none: Schema.Boolean, transient: Schema.Boolean })
  const classed = { noEffect: (f: typeof Failure.Type) => f.none, transient: (f: typeof Failure.Type) => f.transient }
  const Params = Schema.Struct({ none: Schema.Boolean, transient: Schema.Boolean })
  const parts = { parameters: Params, success: Schema.Unknown, failure: Failure }
  const Buy = pipe(
    Tool.make("buy", parts),
    ToolPolicy.write({ keys: () => [] }),
    ToolPolicy.on(Api),
    ToolPolicy.failures(classed)
  )
  const Find = pipe(
    Tool.make("find", parts),
    ToolPolicy.read({ keys: () => [] }),
    ToolPolicy.on(Api),
    ToolPolicy.timeout(50)
  )
  const kit = Toolkit.make(Buy, Find)

  /** What the circuit does after some runs of a tool: it opens at the second failure in a row. */
  const after = (
    name: "buy" | "find",
    does: (params: typeof Params.Type) => Effect.Effect<unknown, typeof Failure.Type>,
    params: typeof Params.Type = { none: false, transient: false },
    options?: Turn.Options<any>,
    between: Effect.Effect<unknown, any, Api> = Effect.void
  ) =>
    drive(
      Effect.gen(function*() {
        yield* Effect.exit(fails)
        const outcomes = yield* Turn.run(kit, [{ id: "a", name, arguments: params }], options)
        const counted = yield* circuit
        yield* between
        yield* Effect.exit(fails)
        const then = yield* circuit
        return [words(outcomes)[0], counted === "open" ? "failure" : then === "open" ? "ignored" : "success"]
      }).pipe(
        Effect.provide([
          kit.toLayer({ buy: does, find: does }),
          Turn.layer(),
          Layer.fresh(Api.layer({ concurrency: 4, breaker: breaker(2, "1 hour") }))
        ])
      ),
      60_000
    )

  it.effect("results are successes, also one that cannot be encoded", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* after("buy", () => Effect.succeed(1)), ["ok", "success"])
      assert.deepStrictEqual(yield* after("buy", () => Effect.succeed(1n)), ["error/unencodable_result", "success"])
    }))
  it.effect("a failure counts, unless the tool says that it changed nothing and will not pass", () =>
    Effect.gen(function*() {
      for (const name of ["buy", "find"] as const) {
        for (const none of [true, false]) {
          for (const transient of [true, false]) {
            // `find` does not say anything of its failures.
            const no = name === "buy" && none && !transient
            assert.deepStrictEqual(
              yield* after(name, (params) => Effect.fail(params), { none, transient }),
              ["error/failed", no ? "success" : "failure"]
            )
          }
        }
      }
    }))
  it.effect("a defect and a timeout are failures", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* after("find", () => Effect.die("boom")), ["error/defect", "failure"])
      assert.deepStrictEqual(yield* after("find", () => Effect.never), ["timeout/handler", "failure"])
    }))
  it.effect("what was stopped counts as nothing, by whomever", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* after("find", () => Effect.interrupt), ["cancelled/by_itself", "ignored"])
      assert.deepStrictEqual(
        yield* after("find", () => Effect.never, undefined, { cancelOn: Effect.sleep(5) }),
        ["cancelled/by_caller", "ignored"]
      )
      assert.deepStrictEqual(
        yield* after("find", () => Effect.never, undefined, { deadline: 5 }),
        ["cancelled/by_deadline", "ignored"]
      )
    }))
  it.effect("R20: work that was given up on counts by its end, and holds its permit until then", () =>
    Effect.gen(function*() {
      const late = Effect.uninterruptible(Effect.andThen(Effect.sleep(200), Effect.die("late")))
      assert.deepStrictEqual(
        yield* after("find", () => late, undefined, { grace: 0 }, Effect.sleep(300)),
        // Not yet counted when it is answered; the one after it is the third, and finds the circuit open.
        ["timeout/handler", "ignored"]
      )
    }))
  it.effect("of a plain effect every failure counts, and no interruption", () =>
    Effect.gen(function*() {
      const ends: ReadonlyArray<readonly [Effect.Effect<unknown, string>, "open" | "closed"]> = [
        [Effect.fail("no"), "open"],
        [Effect.die("boom"), "open"],
        [Effect.interrupt, "closed"],
        [Effect.void, "closed"]
      ]
      for (const [effect, expected] of ends) {
        yield* Effect.gen(function*() {
          yield* Effect.exit(Api.withPermit(effect))
          assert.strictEqual(yield* circuit, expected)
        }).pipe(Effect.provide(Layer.fresh(Api.layer({ concurrency: 1, breaker: breaker(1) }))))
      }
    }))
  it.effect("a share of failures trips it where the policy is a rate", () =>
    Effect.gen(function*() {
      const tripPolicy = CircuitBreaker.rate({ threshold: 0.5, size: 4, minimumCalls: 4 })
      yield* Effect.gen(function*() {
        const seen: Array<unknown> = []
        for (const effect of [Effect.fail(1), Effect.void, Effect.void, Effect.fail(1), Effect.fail(1)]) {
          yield* Effect.exit(Api.withPermit(effect))
          seen.push(yield* circuit)
        }
        assert.deepStrictEqual(seen, ["closed", "closed", "closed", "open", "open"])
      }).pipe(Effect.provide(Api.layer({ concurrency: 1, breaker: { tripPolicy, openDuration: 100 } })))
    }))
})

describe("R14: the store of a circuit", () => {
  const storeDown = new CircuitBreaker.CircuitBreakerError({
    reason: new CircuitBreaker.CircuitBreakerStoreError({ message: "no route to the store" })
  })
  const down = Layer.succeed(CircuitBreaker.CircuitBreakerStore, {
    admit: () => Effect.fail(storeDown),
    record: () => Effect.fail(storeDown),
    state: () => Effect.fail(storeDown)
  })
  it.effect("that is down lets work through unrecorded, or refuses it where that is asked for", () =>
    Effect.gen(function*() {
      const words_ = (onStoreError: "allow" | "fail" | undefined) => {
        const { layer } = lab({})
        const api = Api.layer({ concurrency: 1, breaker: { ...breaker(1), onStoreError } })
        return drive(
          run(fetches("a", "b")).pipe(
            Effect.provide(Layer.merge(layer, Layer.provide(Layer.fresh(api), down)))
          )
        )
      }
      assert.deepStrictEqual(words(yield* words_("allow")), ["ok", "ok"])
      assert.deepStrictEqual(words(yield* words_(undefined)), ["ok", "ok"])
      const refused = yield* words_("fail")
      assert.deepStrictEqual(words(refused), ["error/store_unavailable", "error/store_unavailable"])
      assert.deepStrictEqual([refused[0]!.started, refused[0]!.retryable], [false, true])
      assert.match(refused[0]!.message, /the store of its circuit: nothing was started/)
    }))

  it.effect("two backends of one name share a circuit through it", () =>
    Effect.gen(function*() {
      const layer = Api.layer({ concurrency: 1, breaker: breaker(1) })
      const process = <A, E>(effect: Effect.Effect<A, E, Api>) => Effect.provide(effect, Layer.fresh(layer))
      yield* Effect.gen(function*() {
        yield* process(Effect.exit(fails))
        yield* process(Effect.gen(function*() {
          // Another process opened it: that is found out at the front of the line.
          assert.strictEqual(yield* circuit, "closed")
          assert.strictEqual((yield* Effect.flip(Api.withPermit(Effect.void)))._tag, "CircuitOpen")
          assert.strictEqual(yield* circuit, "open")
          yield* TestClock.adjust(1000)
          yield* Api.withPermit(Effect.void)
        }))
        yield* process(Api.withPermit(Effect.void))
      }).pipe(Effect.provide(CircuitBreaker.layerStoreMemory()))
    }))

  it.effect("whose word comes late: nobody starts on an admission from before the circuit opened", () =>
    Effect.gen(function*() {
      const late = Layer.effect(
        CircuitBreaker.CircuitBreakerStore,
        CircuitBreaker.CircuitBreakerStore.useSync((store) => ({
          ...store,
          admit: (key: string) => Effect.tap(store.admit(key), Effect.sleep(10))
        }))
      ).pipe(Layer.provide(CircuitBreaker.layerStoreMemory()))
      const { book, layer } = lab({ script: { a: { end: "fail", ms: 1 } } })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b")))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(turn)), ["error/failed", "error/circuit_open"])
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["a"])
      }).pipe(
        Effect.provide(
          Layer.merge(layer, Layer.provide(Layer.fresh(Api.layer({ concurrency: 2, breaker: breaker(1) })), late))
        )
      )
    }))

  it.effect("has been told what became of work when the layer has closed", () =>
    Effect.gen(function*() {
      const told: Array<string> = []
      const slow = Layer.effect(
        CircuitBreaker.CircuitBreakerStore,
        CircuitBreaker.CircuitBreakerStore.useSync((store) => ({
          ...store,
          record: (options: Parameters<typeof store.record>[0]) =>
            Effect.andThen(
              Effect.sleep(30),
              Effect.suspend(() => {
                told.push(options.outcome)
                return store.record(options)
              })
            )
        }))
      ).pipe(Layer.provide(CircuitBreaker.layerStoreMemory()))
      const layer = Layer.provide(Layer.fresh(Api.layer({ concurrency: 1, breaker: breaker(1) })), slow)
      const fiber = yield* fork(Effect.provide(Effect.exit(fails), layer))
      yield* TestClock.adjust(10)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(30)
      yield* ended(fiber)
      assert.deepStrictEqual(told, ["Failure"])
    }))

  it.effect("that takes time: what has ended is recorded before the next one is let in", () =>
    Effect.gen(function*() {
      const slow = Layer.effect(
        CircuitBreaker.CircuitBreakerStore,
        CircuitBreaker.CircuitBreakerStore.useSync((store) => ({
          admit: (key: string) => Effect.andThen(Effect.sleep(3), store.admit(key)),
          record: (options: Parameters<typeof store.record>[0]) =>
            Effect.andThen(Effect.sleep(3), store.record(options)),
          state: (key: string) => Effect.andThen(Effect.sleep(3), store.state(key))
        }))
      ).pipe(Layer.provide(CircuitBreaker.layerStoreMemory()))
      const { book, layer } = lab({ script: { a: { end: "fail", ms: 1 }, probe: { ms: 20 } } })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b", "c")))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(turn)), ["error/failed", "error/circuit_open", "error/circuit_open"])
        yield* TestClock.adjust(1000)
        const stopped = yield* fork(run(fetches("x")))
        yield* TestClock.adjust(1)
        yield* Fiber.interrupt(stopped)
        const two = yield* fork(run(fetches("probe", "other")))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(two)), ["ok", "error/circuit_open"])
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["a", "probe"])
        assert.strictEqual(yield* circuit, "closed")
      }).pipe(
        Effect.provide(
          Layer.merge(layer, Layer.provide(Layer.fresh(Api.layer({ concurrency: 2, breaker: breaker(1) })), slow))
        )
      )
    }))
})

describe("R14: a circuit, whatever happens", () => {
  const Place = Schema.Struct({ place: Schema.String })
  const keys = ({ place }: typeof Place.Type) => [`place:${place}`]
  const parts = { parameters: Place, success: Schema.String, failure: Schema.String }
  const Look = pipe(Tool.make("look", parts), ToolPolicy.read({ keys }), ToolPolicy.on(Api))
  const Mark = pipe(Tool.make("mark", parts), ToolPolicy.write({ keys }), ToolPolicy.on(Api))
  const kit = Toolkit.make(Look, Mark)
  const work = ({ place }: typeof Place.Type) =>
    Effect.andThen(Effect.sleep(5), place === "b" ? Effect.fail("down") : Effect.succeed(place))
  const layer = (rate: Backend.Rate | undefined) =>
    Layer.provideMerge(
      kit.toLayer({ look: work, mark: work }),
      Api.layer({ concurrency: 2, breaker: breaker(1, 12), rate })
    )
  const laws = Laws.all.filter((law) => law !== Laws.workConserving)

  Laws.suite(it, { toolkit: kit, layer: layer({ limit: 2, window: 15 }), laws, inputs: 60, seeds: 4, seed: 1 })

  it.effect(
    "every turn of two calls, stopped at every point, without a rate and with one",
    () =>
      Effect.gen(function*() {
        for (const rate of [undefined, { limit: 1, window: 15 }]) {
          const { complete, runs } = yield* Laws.exhaust({
            toolkit: kit,
            layer: layer(rate),
            cases: { maxCalls: 2, arguments: { look: [{ place: "b" }], mark: [{ place: "a" }] } }
          })
          assert.isTrue(complete)
          assert.isAbove(runs, 300)
        }
      }),
    120_000
  )

  const someWork = Arbitrary.all({
    at: pick(0, 0, 5, 10, 30, 31),
    ms: pick(5, 0, 10),
    end: pick("fail", "ok", "die", "interrupt"),
    depth: pick(0, 0, 1),
    stopAt: Arbitrary.flatMap(pick(false, false, true), (stops) => stops ? int(0, 40) : Arbitrary.Constant(undefined))
  })
  const cases = Arbitrary.all({
    works: Arbitrary.array(someWork, { minLength: 1, maxLength: 7 }),
    concurrency: pick(1, 2, 3),
    failures: pick(1, 2),
    limit: pick(undefined, 1, 2),
    stores: pick("memory", "shared")
  })

  it.effect(
    "under every order: nothing runs while it is open, one at a time tries it out, and all permits come back",
    () =>
      Effect.gen(function*() {
        const explored = yield* Simulation.forAll(cases, ({ concurrency, failures, limit, stores, works }) => {
          const layer = Api.layer({
            concurrency,
            breaker: breaker(failures, 20),
            rate: limit === undefined ? undefined : { limit, window: 10 }
          })
          const program = Effect.gen(function*() {
            // The circuit by its own definition, at one failure: it opens for 20 ms. What happens at one moment has no order.
            let generation = 0
            let open: { readonly at: number; readonly until: number } | undefined
            let probes = 0
            const { pool } = yield* Api
            const time = Effect.clockWith((clock) => clock.currentTimeMillis)
            const work = (one: typeof works[number]) => {
              let probe = false
              let mine = -1
              const body = Effect.gen(function*() {
                const now = yield* time
                if (failures === 1 && open !== undefined && now > open.at) {
                  assert.isAtLeast(now, open.until, "started while it was open")
                  probe = true
                  assert.strictEqual(++probes, 1, "two try it out")
                }
                if (open === undefined || probe) mine = generation
                if (one.ms > 0) yield* Effect.sleep(one.ms)
                if (one.depth > 0) yield* Effect.exit(Api.withPermit(Effect.fail("inside")))
                if (one.end === "fail") return yield* Effect.fail("no")
                if (one.end === "die") return yield* Effect.die("boom")
                if (one.end === "interrupt") return yield* Effect.interrupt
              })
              return Api.withPermit(
                Effect.onExit(body, (exit) =>
                  Effect.map(time, (now) => {
                    if (probe) probes--
                    if (
                      mine !== generation || (Exit.isFailure(exit) && !Exit.hasFails(exit) && !Exit.hasDies(exit))
                    ) return
                    if (Exit.isFailure(exit)) open = { at: now, until: now + 20 }
                    else if (probe) open = undefined
                    else return
                    generation++
                  }))
              )
            }
            yield* Effect.forEach(works, (one) =>
              Effect.gen(function*() {
                yield* Effect.sleep(one.at)
                const fiber = yield* Effect.forkChild(Effect.exit(work(one)))
                if (one.stopAt !== undefined) {
                  yield* Effect.sleep(one.stopAt)
                  yield* Fiber.interrupt(fiber)
                }
                const exit = yield* Fiber.await(fiber)
                if (Exit.isSuccess(exit) && Exit.isFailure(exit.value)) {
                  for (const reason of exit.value.cause.reasons) {
                    if (reason._tag === "Die" && reason.defect !== "boom") return yield* Effect.die(reason.defect)
                  }
                }
              }), { concurrency: "unbounded", discard: true })
            yield* Effect.sleep(100)
            const { running, waiting } = pool.stats()
            assert.deepStrictEqual([running, waiting], [0, 0])
            // Nobody is the probe for ever.
            yield* Effect.exit(Api.withPermit(Effect.void))
            yield* Effect.sleep(100)
            yield* Api.withPermit(Effect.void)
          })
          return Effect.provide(
            program,
            stores === "memory"
              ? layer
              : Layer.provide(layer, [CircuitBreaker.layerStoreMemory(), RateLimiter.layerStoreMemory])
          )
        }, { inputs: runs(200).arbitrary.runs, seeds: 8, seed: 1 })
        assert.isAbove(explored.runs, 0)
      }),
    120_000
  )
})

await describeService("a circuit that processes share, over Redis", "Redis", ({ host, port }) => {
  it.live("one process opens it, and the other finds it open, tries it out, and closes it for both", () =>
    Effect.gen(function*() {
      const name = `test/shared-circuit-${yield* Effect.clockWith((clock) => clock.currentTimeMillis)}-${Math.random()}`
      class Shared extends Backend.Service<Shared>()(name) {}
      // Each time with a connection of its own, as processes have; the store is told when the layer closes.
      const process = <A, E>(work: Effect.Effect<A, E, Shared>) =>
        Effect.provide(
          work,
          Shared.layer({ concurrency: 4, breaker: breaker(2, 1000) }).pipe(
            Layer.provide(CircuitBreaker.layerStoreRedis({ prefix: "effect-turn-test:" })),
            Layer.provide(NodeRedis.layer({ socket: { host, port } })),
            Layer.fresh
          )
        )
      const failing = Shared.withPermit(Effect.fail("no"))
      const fine = Shared.withPermit(Effect.succeed("yes"))
      assert.strictEqual(yield* Effect.flip(process(failing)), "no")
      assert.strictEqual(yield* Effect.flip(process(failing)), "no")
      const error = yield* Effect.flip(process(fine))
      assert.instanceOf(error, Backend.CircuitOpen)
      assert.isAtMost(error.retryAfter!, 1000)
      yield* Effect.sleep(1050)
      assert.strictEqual(yield* process(fine), "yes")
      assert.deepStrictEqual(
        yield* process(Effect.all([fine, fine, Effect.map(Shared.stats, (stats) => stats.circuit)])),
        ["yes", "yes", "closed"]
      )
    }))
})
