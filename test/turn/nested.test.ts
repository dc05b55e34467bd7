/** Work inside a handler: what it inherits, what it waits for, and what happens to two that wait for each other. */
import { assert, describe, it } from "@effect/vitest"
import { type Outcome, ToolPolicy, Turn, TurnContext } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { conflict, int, pick, runs } from "../utils/gen.ts"
import {
  Api,
  call,
  Crm,
  drive,
  ended,
  fork,
  idle,
  lab,
  type Name,
  type Ran,
  run,
  toolkit,
  tools,
  words
} from "../utils/kit.ts"

/** A handler that runs a turn of its own, and gives its outcomes as short words. */
const inner = (calls: Parameters<typeof run>[0], options?: Turn.Options) => ({
  run: Effect.map(run(calls, options), words).pipe(Effect.orDie)
})

describe("R14: work inside a handler", () => {
  it.effect("never waits for the permits and keys of its ancestors, and takes no second permit", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      book.script.set("outer", inner([call("post", "a", ["k"]), call("post", "b", ["k"]), call("fetch", "c", ["k"])]))
      yield* Effect.gen(function*() {
        const fiber = yield* fork(run([call("post", "outer", ["k"])]))
        yield* TestClock.adjust(5)
        assert.deepStrictEqual((yield* Api.stats).running, 1)
        yield* TestClock.adjust(1000)
        const outcomes = yield* ended(fiber)
        assert.deepStrictEqual((outcomes[0] as any).result, ["ok", "ok", "ok"])
        // One at a time, for the permit that they borrow is one.
        assert.deepStrictEqual([book.span("a"), book.span("b"), book.span("c")], [[0, 10], [10, 20], [20, 30]])
        assert.deepStrictEqual(book.span("outer"), [0, 30])
        assert.deepStrictEqual(yield* Api.stats, idle(1))
      }).pipe(Effect.provide(layer))
    }))

  it.effect("R12: waits for nothing, and holds up nothing, that a call of unknown reach in line stands for and that it does not touch", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { long: { ms: 30 } } })
      book.script.set("outer", inner([call("read", "inside", ["b"]), call("write", "also", ["b"])]))
      yield* drive(
        run([
          call("read", "long", ["a"]),
          call("write", "outer", ["b"]),
          call("write", "after", ["a"]),
          call("bare", "all")
        ])
          .pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual([book.span("inside"), book.span("also")], [[0, 10], [10, 20]])
      assert.deepStrictEqual([book.span("after"), book.span("all")], [[30, 40], [40, 50]])
    }))

  it.effect("goes on when parents fill the limit (and two levels down)", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 4 } })
      for (let i = 0; i < 4; i++) {
        book.script.set(`leaf${i}`, { ms: 10 })
        book.script.set(`mid${i}`, inner([call("fetch", `leaf${i}`)]))
        book.script.set(`top${i}`, inner([call("fetch", `mid${i}`), call("fetch", `also${i}`)]))
      }
      const outcomes = yield* drive(
        Effect.andThen(
          run([0, 1, 2, 3].map((i) => call("fetch", `top${i}`))),
          (outcomes) => Effect.map(Api.stats, (stats) => [outcomes, stats] as const)
        ).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes[0]), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(outcomes[1], idle(4))
      assert.strictEqual(book.runs.length, 16)
    }))

  it.effect("uses free permits beside the one it borrows", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 3 } })
      book.script.set("outer", inner(["a", "b", "c"].map((tag) => call("fetch", tag))))
      yield* drive(run([call("fetch", "outer")]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual([book.span("a"), book.span("b"), book.span("c")], [[0, 10], [0, 10], [0, 10]])
    }))

  it.effect("withPermit inside a handler that holds the permit borrows it", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      book.script.set("outer", {
        run: Api.withPermit(Api.withPermit(Effect.as(Effect.sleep(7), "inside"))).pipe(Effect.orDie)
      })
      const [outcomes, stats] = yield* drive(
        Effect.andThen(
          run([call("fetch", "outer")]),
          (outcomes) => Effect.map(Api.stats, (stats) => [outcomes, stats] as const)
        ).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual([(outcomes[0] as any).result, stats], ["inside", idle(1)])
    }))

  for (const order of ["before", "after"] as const) {
    it.effect(`withPermit ${order} a turn, both inside one handler: the permit that they share goes round`, () =>
      Effect.gen(function*() {
        const { book, layer } = lab({ api: { concurrency: 1 } })
        const turn = Effect.map(run([call("fetch", "a"), call("fetch", "b")]), words)
        const plain = Effect.as(Api.withPermit(Effect.sleep(7)), ["plain"])
        book.script.set("outer", {
          run: Effect.all(order === "before" ? [plain, turn] : [turn, plain], { concurrency: "unbounded" }).pipe(
            Effect.orDie
          )
        })
        const [outcomes, stats] = yield* drive(
          Effect.all([run([call("fetch", "outer")]), Api.stats]).pipe(Effect.provide(layer))
        )
        const plainAnswer = [["plain"], ["ok", "ok"]]
        assert.deepStrictEqual(
          (outcomes[0] as any).result,
          order === "before" ? plainAnswer : plainAnswer.toReversed()
        )
        assert.deepStrictEqual([book.span("outer"), stats], [[0, 27], idle(1)])
      }))
  }

  for (const where of ["another handler", "no handler"]) {
    it.effect(`waits for a plain effect that holds the permit in ${where}`, () =>
      Effect.gen(function*() {
        const { book, layer } = lab({ api: { concurrency: 1 } })
        const plain = Effect.orDie(Api.withPermit(Effect.sleep(30)))
        book.script.set("plain", { run: plain })
        book.script.set("outer", inner([call("fetch", "inside")]))
        yield* Effect.gen(function*() {
          const first = yield* fork(where === "no handler" ? plain : run([call("read", "plain")]))
          const second = yield* fork(run([call("read", "outer")]))
          yield* TestClock.adjust(1000)
          yield* ended(first)
          yield* ended(second)
        }).pipe(Effect.provide(layer))
        assert.deepStrictEqual(book.span("inside"), [30, 40])
      }))
  }

  it.effect("waits for one that waits for one that waits for work: no deadlock, however long the way is", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { work: { ms: 50 } } })
      book.script.set("holder", inner([call("write", "behind", ["k"])]))
      book.script.set("outer", inner([call("fetch", "inside")]))
      yield* Effect.gen(function*() {
        const fibers = [
          yield* fork(run([call("write", "work", ["k"])])),
          yield* fork(run([call("fetch", "holder")])),
          yield* fork(run([call("read", "outer")]))
        ]
        yield* TestClock.adjust(1000)
        for (const fiber of fibers) yield* ended(fiber)
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual([book.span("behind"), book.span("inside")], [[50, 60], [60, 70]])
    }))

  it.effect("waits for siblings of its ancestor that have started, and goes before those that have not", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { started: { ms: 50 } } })
      book.script.set("outer", inner([call("write", "nested", ["k"])]))
      yield* drive(
        run([call("write", "started", ["k"]), call("write", "outer", ["o"]), call("write", "later", ["k", "o"])]).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual([book.span("started"), book.span("nested"), book.span("later")], [[0, 50], [50, 60], [
        60,
        70
      ]])
    }))

  it.effect("goes before what waits for its ancestor, wherever that stands", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const later = (ms: number, tag: string, k: ReadonlyArray<string>) => ({
        run: Effect.andThen(Effect.sleep(ms), Effect.map(run([call("write", tag, k)]), words)).pipe(Effect.orDie)
      })
      book.script.set("a", later(20, "inside a", ["k"]))
      book.script.set("b", later(10, "waits for a", ["a", "k"]))
      const outcomes = yield* drive(
        run([call("write", "a", ["a"]), call("write", "b", ["b"])]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(outcomes.map((one) => (one as any).result), [["ok"], ["ok"]])
      assert.deepStrictEqual([book.span("inside a"), book.span("waits for a")], [[20, 30], [30, 40]])
    }))

  it.effect("keeps the order of its own calls", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      book.script.set("outer", inner([call("write", "a", ["k"]), call("read", "b", ["k"]), call("write", "c", ["k"])]))
      yield* drive(run([call("write", "outer", ["k"])]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual([book.span("a"), book.span("b"), book.span("c")], [[0, 10], [10, 20], [20, 30]])
    }))

  it.effect("a keyed parent that is stopped stops the turn inside it, and says why", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const closed: Array<Turn.Closed> = []
      book.script.set("slow", { ms: 100 })
      book.script.set("w", { ms: 100 })
      book.script.set(
        "outer",
        inner([call("read", "slow"), call("write", "w", ["k"]), call("write", "x", ["k"])], {
          onClosed: (one) => Effect.sync(() => closed.push(one))
        })
      )
      const outcomes = yield* drive(
        run([call("read", "outer")], { deadline: 30, grace: "infinite" }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
      assert.deepStrictEqual(words(closed[0]!.outcomes), ["cancelled/by_caller", "ok", "cancelled/by_caller"])
      assert.strictEqual((closed[0]!.outcomes[0] as Outcome.Cancelled).reason, "parent")
      assert.deepStrictEqual(book.span("outer"), [0, 100])
      assert.strictEqual(book.count("x"), 0)
    }))

  it.effect("R35: inherits tenant, conversation and principal, and names its parent", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const seen: Array<TurnContext.Identity | undefined> = []
      const note = Effect.map(TurnContext.CurrentCall, (current) => {
        seen.push(current?.identity)
        return "noted"
      })
      book.script.set("leaf", { run: note })
      book.script.set("outer", inner([call("read", "leaf")], { turn: "inner" }))
      yield* drive(
        run([call("read", "x"), call("read", "outer")], { turn: "top" }).pipe(
          Effect.provide(TurnContext.make({ tenant: "north", conversation: "c1", principal: "ann" })),
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(seen, [{
        tenant: "north",
        conversation: "c1",
        principal: "ann",
        turn: "inner",
        parent: { turn: "top", position: 1 }
      }])
    }))
})

describe("R14: two that wait for each other are found", () => {
  const circle = (first: Name, second: Name, options?: Parameters<typeof lab>[0]) =>
    Effect.gen(function*() {
      const { book, layer } = lab(options)
      const parked = (name: Name, tag: string, k: string) => ({
        run: Effect.andThen(
          Effect.sleep(10),
          Effect.map(run([call(name, tag, [k]), call("read", `${tag}-free`)]), words)
        ).pipe(Effect.orDie)
      })
      book.script.set("a", parked(second, "wants-b", "b"))
      book.script.set("b", parked(first, "wants-a", "a"))
      return yield* Effect.gen(function*() {
        const one = yield* fork(run([call(first, "a", ["a"])]))
        const two = yield* fork(run([call(second, "b", ["b"])]))
        yield* TestClock.adjust(1000)
        const results = [(yield* ended(one))[0]!, (yield* ended(two))[0]!]
        assert.deepStrictEqual(words(results), ["ok", "ok"])
        assert.deepStrictEqual((yield* Api.stats).running + (yield* Crm.stats).running, 0)
        assert.isBelow(book.of("a").endedAt!, 100)
        return results.map((one) => (one as any).result as ReadonlyArray<string>)
      }).pipe(Effect.provide(layer))
    })

  it.effect("by keys: one is answered `deadlock`, the other goes on", () =>
    Effect.gen(function*() {
      const results = yield* circle("write", "write")
      assert.deepStrictEqual(results.flat().sort(), ["error/deadlock", "ok", "ok", "ok"])
    }))

  it.effect("by permits", () =>
    Effect.gen(function*() {
      const results = yield* circle("post", "save", { api: { concurrency: 1 }, crm: { concurrency: 1, perTenant: 1 } })
      assert.deepStrictEqual(results.flat().sort(), ["error/deadlock", "ok", "ok", "ok"])
    }))

  it.effect("by a tenant's own share, while others' permits are free", () =>
    Effect.gen(function*() {
      const results = yield* circle("post", "save", { api: { concurrency: 1 }, crm: { concurrency: 5, perTenant: 1 } })
      assert.deepStrictEqual(results.flat().sort(), ["error/deadlock", "ok", "ok", "ok"])
    }))

  it.effect("by a tenant's own share, while another tenant's permit will come back", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 1 },
        crm: { concurrency: 2, perTenant: 1 },
        script: { other: { ms: 5_000 } }
      })
      const parked = (name: Name, tag: string) => ({
        run: Effect.andThen(Effect.sleep(10), Effect.map(run([call(name, tag)]), words)).pipe(Effect.orDie)
      })
      book.script.set("a", parked("save", "wants crm"))
      book.script.set("b", parked("post", "wants api"))
      yield* Effect.gen(function*() {
        yield* fork(run([call("save", "other")]).pipe(Effect.provide(TurnContext.make({ tenant: "other" }))))
        const fiber = yield* fork(run([call("post", "a"), call("save", "b")]))
        yield* TestClock.adjust(100)
        const outcomes = yield* ended(fiber)
        assert.deepStrictEqual(outcomes.flatMap((one) => (one as any).result as ReadonlyArray<string>).toSorted(), [
          "error/deadlock",
          "ok"
        ])
        yield* TestClock.adjust(10_000)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("by a key and a permit", () =>
    Effect.gen(function*() {
      const results = yield* circle("write", "post", { api: { concurrency: 1 } })
      assert.deepStrictEqual(results.flat().sort(), ["error/deadlock", "ok", "ok", "ok"])
    }))

  it.effect("by a key and a permit that a plain effect inside the handler holds", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      book.script.set("a", {
        run: Api.withPermit(Effect.andThen(Effect.sleep(10), Effect.map(run([call("write", "wants-b", ["b"])]), words)))
          .pipe(Effect.orDie)
      })
      book.script.set("b", {
        run: Effect.andThen(Effect.sleep(10), Effect.map(run([call("fetch", "wants-permit")]), words)).pipe(
          Effect.orDie
        )
      })
      const outcomes = yield* drive(
        run([call("write", "a", ["a"]), call("write", "b", ["b"])]).pipe(Effect.provide(layer)),
        100
      )
      assert.deepStrictEqual(
        outcomes.flatMap((one) => (one as any).result as ReadonlyArray<string>).toSorted(),
        ["error/deadlock", "ok"]
      )
    }))

  it.effect("the answer says that nothing was started, and may not be tried again as it is", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const closed: Array<Outcome.Outcome<any>> = []
      const parked = (tag: string, k: string) => ({
        run: Effect.andThen(
          Effect.sleep(10),
          run([call("write", tag, [k])], {
            onClosed: ({ outcomes }) =>
              Effect.sync(() => {
                closed.push(...outcomes)
              })
          })
        ).pipe(Effect.as("done"), Effect.orDie)
      })
      book.script.set("a", parked("wants-b", "b"))
      book.script.set("b", parked("wants-a", "a"))
      yield* drive(run([call("write", "a", ["a"]), call("write", "b", ["b"])]).pipe(Effect.provide(layer)))
      const one = closed.find((outcome) => outcome.status === "error")
      assert.deepStrictEqual([one!.started, one!.effect, one!.retryable], [false, "none", false])
      assert.deepStrictEqual(words(closed).toSorted(), ["error/deadlock", "ok"])
    }))

  it.effect("a long wait is no deadlock", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { slow: { ms: 9_000 } } })
      book.script.set("outer", inner([call("write", "nested", ["k"])]))
      yield* drive(run([call("write", "slow", ["k"]), call("write", "outer", ["o"])]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(book.span("nested"), [9_000, 9_010])
    }))
})

describe("nested turns, whatever their calls", () => {
  const someCall = Arbitrary.all({
    name: pick<Name>("read", "write", "fetch", "post", "save"),
    k: Arbitrary.array(pick("a", "b", "c"), { maxLength: 2 }),
    ms: pick(0, 10, 10, 25),
    inside: Arbitrary.array(
      Arbitrary.all({
        name: pick<Name>("read", "write", "post", "save"),
        k: Arbitrary.array(pick("a", "b", "c"), { maxLength: 2 }),
        ms: pick(0, 5, 10)
      }),
      { maxLength: 3 }
    )
  })

  it.effect.prop(
    "R14, R17: all of them end well before any clock does, each call is answered, and nothing is held afterwards",
    {
      turns: Arbitrary.array(Arbitrary.array(someCall, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 }),
      stop: pick(false, false, true),
      at: int(1, 40)
    },
    ({ at, stop, turns }) =>
      Effect.gen(function*() {
        const { book, layer } = lab({ api: { concurrency: 1 }, crm: { concurrency: 3, perTenant: 1 } })
        yield* Effect.gen(function*() {
          const answered: Array<number> = []
          turns.forEach((calls, t) =>
            calls.forEach((one, i) => {
              const tag = `${t}-${i}`
              one.inside.forEach(({ ms }, j) => book.script.set(`${tag}-${j}`, { ms }))
              book.script.set(
                tag,
                one.inside.length === 0 ? { ms: one.ms } : {
                  run: Effect.andThen(
                    Effect.sleep(one.ms),
                    run(one.inside.map(({ k, name }, j) => call(name, `${tag}-${j}`, k)), {
                      onClosed: ({ calls, outcomes }) =>
                        Effect.sync(() => {
                          assert.deepStrictEqual(outcomes.map((one) => one.id), calls.map((one) => one.id))
                          answered.push(outcomes.length)
                        })
                    })
                  ).pipe(Effect.as("done"), Effect.orDie)
                }
              )
            })
          )
          const all = yield* fork(
            Effect.forEach(
              turns,
              (calls, t) => run(calls.map((one, i) => call(one.name, `${t}-${i}`, one.k))),
              { concurrency: "unbounded" }
            )
          )
          if (stop) {
            yield* TestClock.adjust(at)
            const stopping = yield* fork(Fiber.interrupt(all))
            yield* TestClock.adjust(1000)
            yield* ended(stopping)
          } else {
            yield* TestClock.adjust(1000)
            const outcomes = (yield* ended(all)).flat()
            for (const outcome of outcomes) assert.strictEqual(outcome.status, "ok")
            const expected = turns.flat().filter((one) => one.inside.length > 0).map((one) => one.inside.length)
            assert.deepStrictEqual([...answered].sort(), expected.sort())
          }
          assert.deepStrictEqual(book.atWork, [])
          const reach = (ran: Ran) => ({ write: ToolPolicy.get(tools[ran.tool]).access === "write", keys: ran.keys })
          book.runs.forEach((later, i) => {
            for (const earlier of book.runs.slice(0, i)) {
              if (later.tag.startsWith(`${earlier.tag}-`) || !conflict(reach(earlier), reach(later))) continue
              assert.isBelow(earlier.ended!, later.began, `${later.tag} overlaps ${earlier.tag}`)
            }
          })
          assert.deepStrictEqual(yield* Api.stats, idle(1))
          assert.deepStrictEqual(yield* Crm.stats, idle(3, 1))
          const last = yield* fork(Turn.run(toolkit, [call("bare", "last")]))
          yield* TestClock.adjust(10)
          assert.strictEqual((yield* ended(last))[0]!.status, "ok")
        }).pipe(Effect.provide(layer))
      }),
    runs(300)
  )
})
