import { assert, describe, it } from "@effect/vitest"
import { Backend, TurnContext, TurnError } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "./utils/gen.ts"
import { Api, call, Crm, drive, ended, fork, idle, lab, run, words } from "./utils/kit.ts"

/** Work that writes down when it held its permit. */
class Log {
  readonly spans = new Map<string, [number, number | undefined]>()
  running = 0
  peak = 0
  readonly peaks = new Map<string, { now: number; peak: number }>()

  work(name: string, ms: number, tenant = "default"): Effect.Effect<string> {
    return Effect.flatMap(Clock.currentTimeMillis, (at) => {
      const span: [number, number | undefined] = [at, undefined]
      this.spans.set(name, span)
      this.peak = Math.max(this.peak, ++this.running)
      const mine = this.peaks.get(tenant) ?? { now: 0, peak: 0 }
      mine.peak = Math.max(mine.peak, ++mine.now)
      this.peaks.set(tenant, mine)
      return Effect.onExit(
        ms === 0 ? Effect.succeed(name) : Effect.as(Effect.sleep(ms), name),
        () =>
          Effect.map(Clock.currentTimeMillis, (now) => {
            span[1] = now
            this.running--
            mine.now--
          })
      )
    })
  }
}

const as = (tenant: string) => Effect.provide(TurnContext.make({ tenant }))
const all = <A, E, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>) =>
  Effect.all(effects, { concurrency: "unbounded" })

describe("R15: limits that cannot be are refused where they are written", () => {
  const impossible: ReadonlyArray<unknown> = [0, -1, 1.5, NaN, Infinity, "2", undefined, null]
  it("concurrency and per tenant", () => {
    for (const value of impossible) {
      assert.throws(() => Api.layer({ concurrency: value as number }), /"test\/Api".*"concurrency"/)
      if (value !== undefined) {
        assert.throws(() => Crm.layer({ concurrency: 1, perTenant: value as number }), /"test\/Crm".*"perTenant"/)
      }
    }
    assert.throws(() => Api.layer({ concurrency: 0 }), TurnError.TurnError)
  })
  it("queue length: nothing may wait is possible", () => {
    for (const value of impossible.filter((value) => value !== 0 && value !== undefined)) {
      assert.throws(() => Api.layer({ concurrency: 1, queueLimit: value as number }), /queueLimit/)
    }
    Api.layer({ concurrency: 1, queueLimit: 0 })
    Api.layer({ concurrency: "infinite", queueLimit: "infinite" })
  })
})

describe("withPermit", () => {
  it.effect("bounds what runs at once, in the order of asking", () =>
    Effect.gen(function*() {
      const log = new Log()
      const names = ["a", "b", "c", "d", "e"]
      const results = yield* drive(
        all(names.map((name) => Api.withPermit(log.work(name, 10)))).pipe(Effect.provide(Api.layer({ concurrency: 2 })))
      )
      assert.deepStrictEqual(results, names)
      assert.deepStrictEqual([...log.spans.values()], [[0, 10], [0, 10], [10, 20], [10, 20], [20, 30]])
      assert.strictEqual(log.peak, 2)
    }))

  it.effect("gives the permit back whatever becomes of the effect", () =>
    Effect.gen(function*() {
      const stats = yield* drive(
        Effect.gen(function*() {
          for (const effect of [Effect.fail("no"), Effect.die("boom"), Effect.interrupt, Effect.succeed(1)]) {
            yield* Effect.exit(Api.withPermit(effect as Effect.Effect<number, string>))
          }
          return yield* Api.stats
        }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
      )
      assert.deepStrictEqual(stats, idle(1))
    }))

  it.effect("holds it until an interrupted effect has really ended", () =>
    Effect.gen(function*() {
      const log = new Log()
      yield* Effect.gen(function*() {
        const slow = yield* fork(Api.withPermit(Effect.onInterrupt(Effect.never, () => Effect.sleep(30))))
        const next = yield* fork(Api.withPermit(log.work("next", 5)))
        yield* TestClock.adjust(10)
        yield* fork(Fiber.interrupt(slow))
        yield* TestClock.adjust(29)
        assert.deepStrictEqual(yield* Api.stats, {
          ...idle(1),
          running: 1,
          waiting: 1,
          tenants: { default: { running: 1, waiting: 1 } } as any
        })
        yield* TestClock.adjust(20)
        yield* ended(next)
        assert.deepStrictEqual(log.spans.get("next"), [40, 45])
      }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
    }))

  it.effect("waiting may be interrupted, and the line closes up", () =>
    Effect.gen(function*() {
      const log = new Log()
      yield* Effect.gen(function*() {
        const a = yield* fork(Api.withPermit(log.work("a", 50)))
        const b = yield* fork(Api.withPermit(log.work("b", 50)))
        const c = yield* fork(Api.withPermit(log.work("c", 50)))
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(b)
        assert.strictEqual((yield* Api.stats).waiting, 1)
        yield* TestClock.adjust(1000)
        yield* ended(a)
        yield* ended(c)
        assert.deepStrictEqual([log.spans.get("b"), log.spans.get("c")], [undefined, [50, 100]])
        assert.deepStrictEqual(yield* Api.stats, idle(1))
      }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
    }))

  it.effect("an effect that holds the permit uses it again inside, at any depth, and side by side one at a time", () =>
    Effect.gen(function*() {
      const log = new Log()
      yield* drive(
        Effect.gen(function*() {
          yield* Api.withPermit(
            Effect.andThen(
              Api.withPermit(Api.withPermit(log.work("deep", 10))),
              all(["x", "y"].map((name) => Api.withPermit(log.work(name, 10))))
            )
          )
          assert.deepStrictEqual(yield* Api.stats, idle(1))
        }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
      )
      assert.deepStrictEqual([...log.spans.values()], [[0, 10], [10, 20], [20, 30]])
    }))

  it.effect("work that outlives its holder keeps the borrowed permit until it ends", () =>
    Effect.gen(function*() {
      yield* Effect.gen(function*() {
        const inner = yield* Deferred.make<Fiber.Fiber<unknown, unknown>>()
        const outer = yield* fork(Api.withPermit(Effect.gen(function*() {
          const fiber = yield* Effect.forkDetach(Api.withPermit(Effect.sleep(50)), { startImmediately: true })
          yield* Deferred.succeed(inner, fiber)
          yield* Effect.sleep(10)
        })))
        yield* TestClock.adjust(20)
        yield* ended(outer)
        assert.strictEqual((yield* Api.stats).running, 1)
        yield* TestClock.adjust(30)
        yield* ended(yield* Deferred.await(inner))
        assert.deepStrictEqual(yield* Api.stats, idle(1))
      }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
    }))

  it.effect("R14: a permit is borrowed through those of other backends that were taken in between", () =>
    Effect.gen(function*() {
      const log = new Log()
      yield* drive(
        Api.withPermit(Crm.withPermit(Api.withPermit(Crm.withPermit(log.work("a", 10))))).pipe(
          as("north"),
          Effect.provide([Api.layer({ concurrency: 1 }), Crm.layer({ concurrency: 1, perTenant: 1 })])
        )
      )
      assert.deepStrictEqual(log.spans.get("a"), [0, 10])
    }))

  it.effect("two backends do not lend each other anything", () =>
    Effect.gen(function*() {
      const log = new Log()
      yield* drive(
        Api.withPermit(Crm.withPermit(log.work("a", 10))).pipe(
          as("north"),
          Effect.provide([Api.layer({ concurrency: 1 }), Crm.layer({ concurrency: 1, perTenant: 1 })])
        )
      )
      assert.deepStrictEqual(log.spans.get("a"), [0, 10])
    }))

  it.effect(
    "twenty thousand in line: the cost of one permit does not grow with the line",
    () =>
      Effect.gen(function*() {
        const n = 20_000
        const stats = yield* all(Array.from({ length: n }, () => Api.withPermit(Effect.yieldNow))).pipe(
          Effect.andThen(Api.stats),
          Effect.provide(Api.layer({ concurrency: 2 }))
        )
        assert.deepStrictEqual(stats, idle(2))
      }),
    10_000
  )
})

describe("the line", () => {
  it.effect("work that ends at once behind a permit that comes back does not deepen the stack", () =>
    Effect.gen(function*() {
      const works = Array.from({ length: 20_000 }, (_, i) => Api.withPermit(i === 0 ? Effect.sleep(10) : Effect.void))
      const stats = yield* drive(
        all(works).pipe(Effect.andThen(Api.stats), Effect.provide(Api.layer({ concurrency: 1 })))
      )
      assert.deepStrictEqual(stats, idle(1))
    }))

  it.effect("R14: a turn's own limit of one keeps its calls out of a line of none", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, queueLimit: 0 } })
      const outcomes = yield* drive(
        run(["a", "b", "c"].map((tag) => call("fetch", tag)), { execution: 1 }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      assert.deepStrictEqual(book.runs.map(({ at }) => at), [0, 10, 20])
    }))

  it.effect("R14: of a turn below its own limit, only as many stand in line as may start", () =>
    Effect.gen(function*() {
      // One runs, one may start as soon as there is a permit, two wait for the turn's own limit.
      for (const [execution, inLine] of [[1, 0], [2, 1], [3, 2]] as const) {
        const { layer } = lab({ api: { concurrency: 1, queueLimit: 2 } })
        yield* Effect.gen(function*() {
          const turn = yield* fork(run(["a", "b", "c", "d"].map((tag) => call("fetch", tag)), { execution }))
          const plain: Array<Fiber.Fiber<Exit.Exit<unknown, unknown>, unknown>> = []
          for (let i = 0; i < 3; i++) plain.push(yield* fork(Effect.exit(Api.withPermit(Effect.sleep(10)))))
          yield* TestClock.adjust(1000)
          assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "ok", "ok", "ok"])
          const exits: Array<string> = []
          for (const fiber of plain) exits.push((yield* ended(fiber))._tag)
          assert.deepStrictEqual(exits, [0, 1, 2].map((i) => i < 2 - inLine ? "Success" : "Failure"))
          // What has been served stands in no line any more.
          const later = yield* fork(all([0, 1, 2].map(() => Effect.exit(Api.withPermit(Effect.sleep(10))))))
          yield* TestClock.adjust(1000)
          assert.deepStrictEqual((yield* ended(later)).map((exit) => exit._tag), ["Success", "Success", "Success"])
        }).pipe(Effect.provide(layer))
      }
    }))

  it.effect("R14: a tenant at its share has no place left but in the line", () =>
    Effect.gen(function*() {
      yield* Effect.gen(function*() {
        yield* fork(Crm.withPermit(Effect.sleep(10)).pipe(as("north")))
        const second = yield* Effect.exit(Crm.withPermit(Effect.void).pipe(as("north")))
        assert.isTrue(Exit.isFailure(second))
        assert.isTrue(Exit.isSuccess(yield* Effect.exit(Crm.withPermit(Effect.void).pipe(as("south")))))
      }).pipe(Effect.provide(Crm.layer({ concurrency: 4, perTenant: 1, queueLimit: 0 })))
    }))

  it.effect("what finds no place is refused at once, with the backend's name", () =>
    Effect.gen(function*() {
      const log = new Log()
      const exits = yield* drive(
        all(["a", "b", "c", "d"].map((name) => Effect.exit(Api.withPermit(log.work(name, 10))))).pipe(
          Effect.provide(Api.layer({ concurrency: 1, queueLimit: 2 }))
        )
      )
      assert.deepStrictEqual(exits.map((exit) => exit._tag), ["Success", "Success", "Success", "Failure"])
      const error = yield* Effect.flip(exits[3]!)
      assert.instanceOf(error, Backend.QueueFull)
      assert.deepStrictEqual([error.backend, error.queueLimit], ["test/Api", 2])
      assert.include(error.message, "test/Api")
    }))

  it.effect("a line of none takes what can start at once", () =>
    Effect.gen(function*() {
      const log = new Log()
      const exits = yield* drive(
        all(["a", "b", "c"].map((name) => Effect.exit(Api.withPermit(log.work(name, 10))))).pipe(
          Effect.provide(Api.layer({ concurrency: 2, queueLimit: 0 }))
        )
      )
      assert.deepStrictEqual(exits.map((exit) => exit._tag), ["Success", "Success", "Failure"])
    }))

  it.effect("places come back when those that wait are served or leave", () =>
    Effect.gen(function*() {
      const log = new Log()
      yield* Effect.gen(function*() {
        const first = yield* fork(Api.withPermit(log.work("a", 10)))
        const second = yield* fork(Api.withPermit(log.work("b", 10)))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(Api.withPermit(log.work("c", 10)))))
        yield* Fiber.interrupt(second)
        const third = yield* fork(Api.withPermit(log.work("d", 10)))
        yield* TestClock.adjust(100)
        yield* ended(first)
        yield* ended(third)
        assert.deepStrictEqual([...log.spans.keys()], ["a", "d"])
      }).pipe(Effect.provide(Api.layer({ concurrency: 1, queueLimit: 1 })))
    }))

  it.effect("R14: in a turn it is the outcome `queue_full`, which may be tried again", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, queueLimit: 1 } })
      const outcomes = yield* drive(
        run(["a", "b", "c", "d"].map((tag) => call("fetch", tag))).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "error/queue_full", "error/queue_full"])
      assert.deepStrictEqual([outcomes[2]!.started, outcomes[2]!.effect, outcomes[2]!.retryable], [false, "none", true])
      assert.include(outcomes[2]!.message, "test/Api")
      assert.strictEqual(book.runs.length, 2)
    }))

  it.effect("R14: a call that waits for its own turn's limit stands in nobody's line", () =>
    Effect.gen(function*() {
      const { layer } = lab({ api: { concurrency: 2, queueLimit: 0 } })
      yield* Effect.gen(function*() {
        const one = yield* fork(run(["a", "b", "c", "d"].map((tag) => call("fetch", tag)), { execution: 1 }))
        const two = yield* fork(run([call("fetch", "e")]))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(one)), ["ok", "ok", "ok", "ok"])
        assert.deepStrictEqual(words(yield* ended(two)), ["ok"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("R14: work inside a handler is never refused for its own ancestor's permit", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, queueLimit: 0 } })
      book.script.set("outer", {
        run: Effect.map(run([call("fetch", "a"), call("fetch", "b")]), words).pipe(Effect.orDie)
      })
      const outcomes = yield* drive(run([call("fetch", "outer")]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual((outcomes[0] as any).result, ["ok", "ok"])
    }))
})

describe("fairness", () => {
  it.effect("tenants take turns, whoever asked more", () =>
    Effect.gen(function*() {
      const log = new Log()
      const many = Array.from({ length: 6 }, (_, i) => Crm.withPermit(log.work(`n${i}`, 10, "north")).pipe(as("north")))
      const few = Array.from({ length: 2 }, (_, i) => Crm.withPermit(log.work(`s${i}`, 10, "south")).pipe(as("south")))
      yield* drive(all([...many, ...few]).pipe(Effect.provide(Crm.layer({ concurrency: 1, perTenant: "infinite" }))))
      assert.isAtMost(log.spans.get("s0")![0], 20)
      assert.isAtMost(log.spans.get("s1")![0], 40)
    }))

  it.effect("turns of one tenant take turns", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      yield* Effect.gen(function*() {
        const one = yield* fork(run(Array.from({ length: 5 }, (_, i) => call("fetch", `a${i}`))))
        const two = yield* fork(run(Array.from({ length: 2 }, (_, i) => call("fetch", `b${i}`))))
        yield* TestClock.adjust(1000)
        yield* ended(one)
        yield* ended(two)
        const order = book.runs.map((ran) => ran.tag)
        assert.isAtMost(order.indexOf("b0"), 2)
        assert.isAtMost(order.indexOf("b1"), 4)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("plain effects and turns take turns", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      const log = new Log()
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(Array.from({ length: 5 }, (_, i) => call("fetch", `a${i}`))))
        const plain = yield* fork(Api.withPermit(log.work("plain", 10)))
        yield* TestClock.adjust(1000)
        yield* ended(turn)
        yield* ended(plain)
        assert.isAtMost(log.spans.get("plain")![0], 20)
        assert.strictEqual(book.runs.length, 5)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("B3: all plain effects of a tenant together have one turn's turns", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      const log = new Log()
      yield* Effect.gen(function*() {
        for (let i = 0; i < 5; i++) {
          yield* fork(Api.withPermit(log.work(`p${i}`, 10)).pipe(as("t")))
        }
        yield* fork(run([call("fetch", "a"), call("fetch", "b")]))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual([book.of("a").at, book.of("b").at], [20, 40])
        assert.deepStrictEqual([...log.spans.values()].map(([at]) => at), [0, 10, 30, 50, 60])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("B2: permits that come back together go to as many, whichever turns they are of", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 2 } })
      yield* Effect.gen(function*() {
        const first = yield* fork(run([call("fetch", "a"), call("fetch", "b")]))
        yield* fork(run([call("fetch", "c")]))
        yield* fork(run([call("fetch", "d")]))
        yield* TestClock.adjust(5)
        yield* Fiber.interrupt(first)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual([book.of("c").at, book.of("d").at], [5, 5])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("B3, B5: equal ones that borrow the same permit go in the order of asking", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      const tags = ["a", "b", "c", "d"]
      book.script.set("outer", {
        run: Effect.asVoid(all(tags.map((tag) => run([call("fetch", tag)])))).pipe(Effect.orDie)
      })
      yield* drive(run([call("fetch", "outer")]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(tags.map((tag) => book.of(tag).at), [0, 10, 20, 30])
    }))

  it.effect("R14: a borrowed permit passes over what its own turn's limit keeps back", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { x: { ms: 50 } } })
      book.script.set("outer", {
        run: Effect.map(
          all([
            run([call("read", "x"), call("fetch", "a"), call("fetch", "b")], { execution: 1 }),
            run([call("fetch", "c"), call("fetch", "d"), call("fetch", "e")], { execution: 1 }),
            run([call("fetch", "f"), call("fetch", "g")], { execution: 2 })
          ]),
          () => "done"
        ).pipe(Effect.orDie)
      })
      const outcomes = yield* drive(run([call("fetch", "outer")]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(words(outcomes), ["ok"])
      const starts = new Map(book.runs.map(({ at, tag }) => [tag, at]))
      assert.deepStrictEqual(["a", "b"].map((tag) => starts.get(tag)), [50, 60])
      assert.deepStrictEqual(
        ["c", "d", "e", "f", "g"].map((tag) => starts.get(tag)!).sort((a, b) => a - b),
        [0, 10, 20, 30, 40]
      )
    }))

  it.effect("R12b: within a turn, the call with the longest way below it goes first", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      yield* drive(
        run([
          call("fetch", "leaf"),
          call("post", "two", ["b"]),
          call("post", "three", ["c"]),
          call("write", "below two", ["b"]),
          call("write", "below three", ["c"]),
          call("write", "below that", ["c"])
        ]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(book.runs.filter((ran) => ran.tool !== "write").map((ran) => ran.tag), [
        "three",
        "two",
        "leaf"
      ])
    }))

  it.effect("R12b: under the turn's own limit too, and equal ones in emission order", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* drive(
        run([
          call("read", "a"),
          call("fetch", "b"),
          call("write", "c", ["k"]),
          call("fetch", "d"),
          call("write", "e", ["k"])
        ], { execution: 1 }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["c", "a", "b", "d", "e"])
    }))
})

describe("shares of tenants", () => {
  it.effect("no tenant holds more than its share, and what it leaves is for the others", () =>
    Effect.gen(function*() {
      const log = new Log()
      const works = ["north", "south", "west"].flatMap((tenant) =>
        Array.from({ length: 4 }, (_, i) => Crm.withPermit(log.work(`${tenant}${i}`, 10, tenant)).pipe(as(tenant)))
      )
      yield* drive(
        Effect.andThen(all(works), Effect.map(Crm.stats, (stats) => assert.deepStrictEqual(stats, idle(3, 1)))).pipe(
          Effect.provide(Crm.layer({ concurrency: 3, perTenant: 1 }))
        )
      )
      assert.deepStrictEqual([...log.peaks.values()].map(({ peak }) => peak), [1, 1, 1])
      assert.deepStrictEqual([...log.spans.values()].map(([at]) => at).toSorted((a, b) => a - b), [
        0,
        0,
        0,
        10,
        10,
        10,
        20,
        20,
        20,
        30,
        30,
        30
      ])
    }))

  it.effect("a share holds also for a turn that has had nothing there for a while", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        crm: { concurrency: 3, perTenant: 1 },
        script: { between: { ms: 40 }, other: { ms: 70 } }
      })
      yield* Effect.gen(function*() {
        yield* fork(run([
          call("save", "first", ["k"]),
          call("write", "between", ["k"]),
          call("save", "last", ["k"])
        ]))
        yield* TestClock.adjust(30)
        yield* fork(run([call("find", "other")]))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(["first", "between", "other", "last"].map((tag) => book.span(tag)), [
          [0, 10],
          [10, 50],
          [30, 100],
          [100, 110]
        ])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("stats name those that hold or wait for something, and nobody else", () =>
    Effect.gen(function*() {
      yield* Effect.gen(function*() {
        for (const tenant of ["north", "north", "__proto__"]) {
          yield* fork(Crm.withPermit(Effect.sleep(10)).pipe(as(tenant)))
        }
        const stats = yield* Crm.stats
        assert.deepStrictEqual([stats.running, stats.waiting], [2, 1])
        assert.deepStrictEqual(Object.entries(stats.tenants), [
          ["north", { running: 1, waiting: 1 }],
          ["__proto__", { running: 1, waiting: 0 }]
        ])
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(Object.entries((yield* Crm.stats).tenants), [])
      }).pipe(Effect.provide(Crm.layer({ concurrency: 3, perTenant: 1 })))
    }))
})

describe("permits, whatever happens", () => {
  const someWork = Arbitrary.all({
    tenant: pick("north", "south"),
    at: pick(0, 0, 3, 10, 17),
    ms: pick(10, 0, 5, 20),
    depth: pick(0, 0, 1, 2),
    end: pick("ok", "ok", "fail", "die", "interrupt"),
    cleanup: pick(0, 0, 4),
    stopAt: Arbitrary.flatMap(pick(false, false, true), (stops) => stops ? int(0, 40) : Arbitrary.Constant(undefined))
  })

  it.effect.prop(
    "B1, B2: limits hold, nobody waits while a permit is free, and all permits come back",
    {
      works: Arbitrary.array(someWork, { maxLength: 10 }),
      concurrency: pick(1, 2, 3),
      perTenant: pick<number | "infinite">(1, 2, "infinite")
    },
    ({ concurrency, perTenant, works }) =>
      Effect.gen(function*() {
        const log = new Log()
        yield* Effect.gen(function*() {
          const watch = Effect.map(Crm.stats, (stats) => {
            assert.isAtMost(stats.running, concurrency)
            const share = perTenant === "infinite" ? Infinity : perTenant
            for (const { running, waiting } of Object.values(stats.tenants)) {
              assert.isAtMost(running, share)
              if (waiting > 0) assert.isTrue(stats.running === concurrency || running === share, JSON.stringify(stats))
            }
          })
          const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
          for (const [i, { at, cleanup, depth, end, ms, stopAt, tenant }] of works.entries()) {
            const body = Effect.onInterrupt(log.work(String(i), ms, tenant), () =>
              cleanup === 0 ? Effect.void : Effect.sleep(cleanup))
            let work: Effect.Effect<unknown, unknown, Crm | TurnContext.Tenant> = Effect.andThen(
              body,
              end === "ok"
                ? Effect.void
                : end === "fail"
                ? Effect.fail("no")
                : end === "die"
                ? Effect.die("boom")
                : Effect.interrupt
            )
            for (let d = 0; d <= depth; d++) {
              work = Crm.withPermit(work)
            }
            const fiber = yield* fork(Effect.delay(work, at).pipe(as(tenant), Effect.exit))
            fibers.push(fiber)
            if (stopAt !== undefined) {
              yield* fork(Effect.delay(Fiber.interrupt(fiber), stopAt))
            }
          }
          for (let step = 0; step < 60; step++) {
            yield* TestClock.adjust(1)
            yield* watch
          }
          yield* TestClock.adjust(1000)
          for (const fiber of fibers) {
            assert.isDefined(fiber.pollUnsafe())
          }
          assert.deepStrictEqual(yield* Crm.stats, idle(concurrency, perTenant))
          assert.strictEqual(log.running, 0)
        }).pipe(Effect.provide(Crm.layer({ concurrency, perTenant })))
      }),
    runs(200)
  )

  it.effect("an interruption at every single step of withPermit leaves nothing behind", () =>
    Effect.gen(function*() {
      for (const holders of [0, 1]) {
        for (let steps = 0; steps < 40; steps++) {
          yield* Effect.gen(function*() {
            const held = yield* Deferred.make<void>()
            const holding: Array<Fiber.Fiber<unknown, unknown>> = []
            for (let i = 0; i < holders; i++) holding.push(yield* fork(Api.withPermit(Deferred.await(held))))
            const fiber = yield* Effect.forkChild(
              Api.withPermit(Effect.andThen(Effect.yieldNow, Api.withPermit(Effect.yieldNow)))
            )
            for (let i = 0; i < steps; i++) {
              if (i === 5) yield* Deferred.succeed(held, undefined)
              yield* Effect.yieldNow
            }
            yield* Fiber.interrupt(fiber)
            yield* Deferred.succeed(held, undefined)
            for (const one of holding) yield* Fiber.await(one)
            assert.deepStrictEqual(yield* Api.stats, idle(1), `after ${steps} steps`)
          }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
        }
      }
    }))

  it.effect("an interruption at every single step of a turn leaves nothing behind", () =>
    Effect.gen(function*() {
      for (let steps = 0; steps < 60; steps++) {
        const { book, layer } = lab({ api: { concurrency: 1 }, crm: { concurrency: 2, perTenant: 1 } })
        for (const tag of ["a", "b", "c", "d", "e"]) {
          book.script.set(tag, { run: Effect.andThen(Effect.yieldNow, Effect.yieldNow) })
        }
        book.script.set("n", {
          run: Effect.andThen(Effect.yieldNow, run([call("post", "e", ["k"])])).pipe(Effect.orDie)
        })
        yield* Effect.gen(function*() {
          const answers: Array<number> = []
          const fiber = yield* Effect.forkChild(
            run([
              call("fetch", "a"),
              call("post", "b", ["k"]),
              call("save", "c", ["k"]),
              call("find", "d"),
              call("post", "n", ["k"])
            ], {
              onClosed: ({ outcomes }) =>
                Effect.sync(() => {
                  answers.push(outcomes.length)
                })
            })
          )
          for (let i = 0; i < steps; i++) yield* Effect.yieldNow
          yield* Fiber.interrupt(fiber)
          assert.isTrue(answers.length === 0 || answers[0] === 5)
          assert.deepStrictEqual(book.atWork, [])
          assert.deepStrictEqual(yield* Api.stats, idle(1), `after ${steps} steps`)
          assert.deepStrictEqual(yield* Crm.stats, idle(2, 1), `after ${steps} steps`)
        }).pipe(Effect.provide(layer))
      }
    }))
})
