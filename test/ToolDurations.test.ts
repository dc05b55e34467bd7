import { assert, describe, it } from "@effect/vitest"
import { ToolDurations, Turn } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import { makespan } from "./bench/makespan.ts"
import { conflict, int, runs } from "./utils/gen.ts"
import { Api, call, drive, ended, fork, lab, type Ran, run, toolkit, words } from "./utils/kit.ts"

type Service = ToolDurations.ToolDurations["Service"]

describe("what is remembered of a tool", () => {
  it("is the mean of its first calls, and then the last ones weigh most", () => {
    const durations = ToolDurations.make({ memory: 4 })
    assert.isUndefined(durations.expected("a"))
    const seen: Array<number | undefined> = []
    for (const millis of [100, 200, 300, 600, 700, 0]) {
      durations.observe("a", millis)
      seen.push(durations.expected("a"))
    }
    assert.deepStrictEqual(seen, [100, 150, 200, 300, 400, 300])
  })

  it.effect.prop(
    "lies between the shortest and the longest, and is exact when all are the same",
    [Arbitrary.array(int(0, 10_000), { minLength: 1, maxLength: 50 }), int(1, 20)],
    ([times, memory]) =>
      Effect.sync(() => {
        const durations = ToolDurations.make({ memory })
        for (const millis of times) durations.observe("a", millis)
        const mean = durations.expected("a")!
        assert.isAtLeast(mean, Math.min(...times) - 1e-6)
        assert.isAtMost(mean, Math.max(...times) + 1e-6)
        for (let i = 0; i < 5; i++) durations.observe("b", times[0]!)
        assert.strictEqual(durations.expected("b"), times[0])
      }),
    runs(300)
  )

  it("is nothing that is no time", () => {
    const durations = ToolDurations.make()
    for (const millis of [Number.NaN, -1, Infinity, -Infinity, "7" as never, undefined as never]) {
      durations.observe("a", millis)
      assert.isUndefined(durations.expected("a"))
    }
    durations.observe("a", 0)
    assert.strictEqual(durations.expected("a"), 0)
  })

  it("keeps names of every kind apart", () => {
    const durations = ToolDurations.make()
    const names = ["__proto__", "constructor", "", " ", "toString"]
    names.forEach((name, i) => durations.observe(name, i))
    assert.deepStrictEqual(names.map(durations.expected), [0, 1, 2, 3, 4])
  })

  it("is no more than 1,000 tools", () => {
    const durations = ToolDurations.make()
    for (let i = 0; i < 3000; i++) durations.observe(`t${i}`, i)
    const known = Array.from({ length: 3000 }, (_, i) => durations.expected(`t${i}`)).filter((ms) => ms !== undefined)
    assert.deepStrictEqual([known.length, known[0]], [1000, 2000])
  })

  it.effect.prop(
    "is bounded: the least recently used tool goes, used by a question or by a call",
    [int(1, 6), Arbitrary.array(int(-10, 9), { maxLength: 60 })],
    ([capacity, steps]) =>
      Effect.sync(() => {
        const durations = ToolDurations.make({ capacity })
        let order: Array<number> = []
        for (const step of steps) {
          // Those below 0 ask, the others tell.
          const tells = step >= 0
          const tool = tells ? step : step + 10
          const known = order.includes(tool)
          if (tells) durations.observe(String(tool), tool)
          else assert.strictEqual(durations.expected(String(tool)), known ? tool : undefined)
          if (tells || known) order = [...order.filter((other) => other !== tool), tool].slice(-capacity)
        }
        for (const tool of Array.from({ length: 10 }, (_, i) => i).filter((tool) => !order.includes(tool))) {
          assert.isUndefined(durations.expected(String(tool)))
        }
        for (const tool of order) assert.strictEqual(durations.expected(String(tool)), tool)
      }),
    runs(500)
  )

  it("has limits that can be, or it is refused where they are written", () => {
    for (const options of [{ capacity: 0 }, { capacity: 1.5 }, { memory: 0 }, { memory: Number.NaN }]) {
      assert.throws(() => ToolDurations.make(options), /the durations of tools/)
      assert.throws(() => ToolDurations.layer(options), /the durations of tools/)
    }
  })
})

/** The tags of all runs in the order of their starts. */
const starts = (book: ReturnType<typeof lab>["book"]) => book.runs.map((one) => one.tag)

const one = { api: { concurrency: 1 } } as const

/** Four calls on one permit: a read, then a write with a read behind it, then a write. Reads take 10 ms, writes 100 ms. */
const mixed = [
  call("fetch", "read"),
  call("fetch", "before", ["k"]),
  call("post", "after", ["k"]),
  call("post", "long", ["l"])
]
const script = { after: { ms: 100 }, long: { ms: 100 }, slow: { ms: 100 }, quick: { ms: 10 } }

const warmUp = [call("fetch", "quick"), call("post", "slow", ["k"])]

describe("R12b: the longest path goes first", () => {
  it.effect("in calls, when nothing is known: as the plan says, equal ones in emission order", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script })
      yield* drive(run(mixed)).pipe(Effect.provide(layer))
      assert.deepStrictEqual(starts(book), ["before", "read", "after", "long"])
    }))

  it.effect("in what the tools have taken, once that is known", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script })
      yield* Effect.gen(function*() {
        yield* drive(run(warmUp))
        yield* drive(run(mixed))
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual(starts(book).slice(2), ["before", "after", "long", "read"])
    }))

  it.effect("a tool that nobody has seen counts as the mean of the others", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script })
      yield* Effect.gen(function*() {
        yield* drive(run(warmUp))
        yield* drive(run([call("fetch", "a"), call("fetch", "b"), call("post", "c", ["c"])]))
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual(starts(book).slice(2), ["c", "a", "b"])
      // Between a quick tool and a slow one stands the turn's own line with a tool that is new.
      const second = lab({ script })
      yield* Effect.gen(function*() {
        yield* drive(run(warmUp))
        yield* drive(run([call("fetch", "d"), call("read", "e"), call("post", "f", ["f"])], { execution: 1 }))
      }).pipe(Effect.provide(second.layer))
      assert.deepStrictEqual(starts(second.book).slice(2), ["f", "e", "d"])
    }))

  it.effect("a runtime learns where a call could have to wait: for a backend, or for the turn's own limit", () =>
    Effect.gen(function*() {
      for (const execution of ["parallel", 8] as const) {
        const { book, layer } = lab({ script })
        yield* Effect.gen(function*() {
          yield* drive(run([call("read", "quick"), call("write", "slow", ["k"])], { execution }))
          yield* drive(run([call("read", "first"), call("write", "second", ["k"])], { execution: 1 }))
        }).pipe(Effect.provide(layer))
        assert.deepStrictEqual(
          starts(book).slice(2),
          execution === 8 ? ["second", "first"] : ["first", "second"]
        )
      }
    }))

  it.effect("each runtime learns for itself", () =>
    Effect.gen(function*() {
      const first = lab({ ...one, script })
      yield* drive(run(warmUp)).pipe(Effect.provide(first.layer))
      const second = lab({ ...one, script })
      yield* drive(run(mixed)).pipe(Effect.provide(second.layer))
      assert.deepStrictEqual(starts(second.book), ["before", "read", "after", "long"])
    }))

  it.effect("a service in the context takes the runtime's place, and outlives it", () =>
    Effect.gen(function*() {
      const shared = ToolDurations.layer()
      const both = Effect.gen(function*() {
        yield* drive(run(warmUp)).pipe(Effect.provide(lab({ ...one, script }).layer))
        const { book, layer } = lab({ ...one, script })
        yield* drive(run(mixed)).pipe(Effect.provide(layer))
        return starts(book)
      })
      assert.deepStrictEqual(yield* Effect.provide(both, shared), ["before", "after", "long", "read"])
    }))

  it.effect("while the model still speaks a call counts as one; when its list has ended, as long as its way is", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script })
      yield* Effect.gen(function*() {
        yield* drive(run(warmUp))
        const online = yield* Turn.open(toolkit)
        for (const tag of ["first", "early"]) yield* online.submit(call("fetch", tag))
        yield* online.submit(call("post", "long", ["l"]))
        yield* TestClock.adjust(5)
        const fiber = yield* fork(online.end())
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(fiber)), ["ok", "ok", "ok"])
      }).pipe(Effect.scoped, Effect.provide(layer))
      assert.deepStrictEqual(starts(book).slice(2), ["first", "long", "early"])
    }))

  it.effect("early reads teach the runtime too", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script: { slow: { ms: 100 } } })
      yield* Effect.gen(function*() {
        const online = yield* Turn.open(toolkit)
        yield* online.submit(call("fetch", "slow"))
        yield* TestClock.adjust(200)
        yield* drive(online.end())
        yield* drive(run([call("post", "short", ["k"])]))
        yield* drive(run([call("post", "a", ["k"]), call("fetch", "b")]))
      }).pipe(Effect.scoped, Effect.provide(layer))
      assert.deepStrictEqual(starts(book).slice(2), ["b", "a"])
    }))

  it.effect("the order of a line does not change under those that stand in it", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script: { a: { ms: 500 }, z: { ms: 10 } } })
      yield* drive(run([
        call("fetch", "a"),
        call("fetch", "b"),
        call("post", "c", ["c"]),
        call("fetch", "d"),
        call("post", "z", ["z"])
      ])).pipe(Effect.provide(layer))
      // The first call shows that reads are slow: the next turn knows it, this one keeps its order.
      assert.deepStrictEqual(starts(book), ["a", "b", "c", "d", "z"])
    }))

  it.effect("a plain effect inside a handler counts as one call of the mean", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script })
      const plain = Effect.suspend(() => {
        book.runs.push({ tag: "plain" } as Ran)
        return Effect.sleep(10)
      })
      book.script.set("outer", {
        run: Effect.all(
          [run([call("fetch", "inner quick"), call("post", "inner slow")]), Effect.delay(Api.withPermit(plain), 1)],
          { concurrency: "unbounded" }
        ).pipe(Effect.map(([outcomes]) => words(outcomes)), Effect.orDie)
      })
      yield* Effect.gen(function*() {
        yield* drive(run(warmUp))
        yield* drive(run([call("fetch", "outer")]))
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual(starts(book).slice(2), ["outer", "inner slow", "plain", "inner quick"])
    }))

  it.effect("a turn with short paths does not starve beside one with long paths: turns take turns", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...one, script })
      yield* Effect.gen(function*() {
        yield* drive(run(warmUp))
        const long = yield* fork(run(Array.from({ length: 20 }, (_, i) => call("post", `l${i}`, ["k"]))))
        const short = yield* fork(run([call("fetch", "s0"), call("fetch", "s1")]))
        yield* TestClock.adjust(10_000)
        yield* ended(long)
        yield* ended(short)
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual(starts(book).slice(2, 7), ["l0", "s0", "l1", "s1", "l2"])
    }))
})

interface One {
  readonly tool: "fetch" | "post"
  readonly k: ReadonlyArray<string>
}

const times = { fetch: 30, post: 70 }

/** The longest way down from each call by the words of the rule, pair by pair. */
const longest = (ones: ReadonlyArray<One>): ReadonlyArray<number> => {
  const reach = ({ k, tool }: One) => ({ write: tool === "post", keys: k })
  const lengths: Array<number> = []
  for (let i = ones.length - 1; i >= 0; i--) {
    let below = 0
    for (let j = i + 1; j < ones.length; j++) {
      if (conflict(reach(ones[i]!), reach(ones[j]!))) below = Math.max(below, lengths[j]!)
    }
    lengths[i] = below + times[ones[i]!.tool]
  }
  return lengths
}

describe("R12b, whatever the calls", () => {
  it.effect.prop(
    "on one permit, whatever starts is ready, and nothing that is ready has a longer way below it, or an equal one from earlier",
    [Arbitrary.array(
      Arbitrary.map(int(0, 2 * 36 - 1), (n): One => ({
        tool: n % 2 === 0 ? "fetch" : "post",
        k: [["a"], ["b"], ["a", "b"], ["f:/x"], ["f:/x/y"], []][Math.floor(n / 2) % 6]!
      })),
      { maxLength: 14 }
    )],
    ([ones]) =>
      Effect.gen(function*() {
        const known = Layer.succeed(ToolDurations.ToolDurations, {
          expected: (tool) => times[tool as "fetch"],
          observe: () => {}
        })
        const { book, layer } = lab(one)
        yield* drive(
          run(ones.map(({ k, tool }, i) => call(tool, String(i), k)), { dedupe: "off" })
        ).pipe(Effect.provide(Layer.merge(layer, known)))
        const lengths = longest(ones)
        const over = new Set<number>()
        const order = starts(book).map(Number)
        assert.strictEqual(order.length, ones.length)
        for (const next of order) {
          const ready = ones.flatMap((it, j) =>
            !over.has(j) && ones.slice(0, j).every((earlier, i) =>
                over.has(i) ||
                !conflict({ write: earlier.tool === "post", keys: earlier.k }, {
                  write: it.tool === "post",
                  keys: it.k
                })
              )
              ? [j]
              : []
          )
          assert.include(ready, next)
          for (const other of ready) {
            assert.isTrue(
              lengths[other]! < lengths[next]! || (lengths[other] === lengths[next] && other >= next),
              `${next} went before ${other}`
            )
          }
          over.add(next)
        }
      }),
    runs(400)
  )
})

/** A service that writes down what it is asked and told. */
const recorder = (answer: (tool: string) => any = () => undefined) => {
  const asked: Array<string> = []
  const told: Array<readonly [string, number]> = []
  const service: Service = {
    expected: (tool) => {
      asked.push(tool)
      return answer(tool)
    },
    observe: (tool, millis) => {
      told.push([tool, millis])
    }
  }
  return { asked, told, layer: Layer.succeed(ToolDurations.ToolDurations, service) }
}

describe("what is observed", () => {
  it.effect("is the time from the start of a handler to the end of its work, however it ends", () =>
    Effect.gen(function*() {
      const { asked, layer, told } = recorder()
      const { layer: all } = lab({
        ...one,
        script: {
          now: { ms: 0 },
          ok: { ms: 30 },
          fails: { ms: 20, end: "fail" },
          breaks: { ms: 40, end: "die" },
          itself: { ms: 50, end: "interrupt" }
        }
      })
      yield* drive(run([
        call("read", "now"),
        call("write", "ok", ["k"]),
        call("read", "fails"),
        call("put", "breaks", ["l"]),
        call("look", "itself")
      ])).pipe(Effect.provide(Layer.merge(all, layer)))
      assert.deepStrictEqual(
        told.toSorted(([, a], [, b]) => a - b),
        [["read", 0], ["read", 20], ["write", 30], ["put", 40], ["look", 50]]
      )
      assert.deepStrictEqual(asked, [], "nothing waited in line")
    }))

  it.effect("waiting is no part of it, and a tool is asked about once a turn", () =>
    Effect.gen(function*() {
      const { asked, layer, told } = recorder()
      const { layer: all } = lab(one)
      yield* drive(run([
        call("fetch", "a", ["k"]),
        call("post", "b", ["k"]),
        call("fetch", "c"),
        call("fetch", "d"),
        call("post", "e", ["e"])
      ])).pipe(Effect.provide(Layer.merge(all, layer)))
      assert.deepStrictEqual(told.map(([, millis]) => millis), [10, 10, 10, 10, 10])
      assert.deepStrictEqual(asked, ["fetch", "post"])
    }))

  it.effect("a run that ran into its timeout took at least that long; an overdue write as long as it took", () =>
    Effect.gen(function*() {
      const { layer, told } = recorder()
      const { layer: all } = lab({
        script: { never: { ms: Infinity }, deaf: { ms: 14_000, deaf: true }, late: { ms: 30_000 } }
      })
      const outcomes = yield* drive(
        run([call("read", "never"), call("read", "deaf"), call("write", "late", ["k"])], { grace: { reads: 1000 } })
      ).pipe(Effect.provide(Layer.merge(all, layer)))
      assert.deepStrictEqual(words(outcomes), ["timeout/handler", "timeout/handler", "ok"])
      assert.deepStrictEqual(told, [["read", 10_000], ["read", 14_000], ["write", 30_000]])
    }))

  it.effect("a run that was stopped says nothing, nor does one that never started", () =>
    Effect.gen(function*() {
      const { layer, told } = recorder()
      const { layer: all } = lab({ ...one, script: { slow: { ms: 1000 }, write: { ms: 1000 } } })
      yield* Effect.gen(function*() {
        const fiber = yield* fork(run([
          call("fetch", "slow"),
          call("fetch", "waits"),
          call("write", "write", ["k"]),
          call("read", "done")
        ]))
        yield* TestClock.adjust(100)
        yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(10_000)
      }).pipe(Effect.provide(Layer.merge(all, layer)))
      assert.deepStrictEqual(told, [["read", 10]])
    }))
})

describe("a service that is wrong", () => {
  const wrong: Record<string, (tool: string) => any> = {
    "throws": () => {
      throw new Error("no such table")
    },
    "says NaN": () => Number.NaN,
    "says less than nothing": () => -5,
    "says for ever": () => Infinity,
    "says a text": () => "12",
    "says nothing takes time": () => 0,
    "is a promise": () => Promise.resolve(5)
  }
  for (const [name, answer] of Object.entries(wrong)) {
    it.effect(`is as one that knows nothing: it ${name}`, () =>
      Effect.gen(function*() {
        const { book, layer } = lab({ ...one, script })
        const durations = Layer.succeed(ToolDurations.ToolDurations, {
          expected: answer,
          observe: (tool) => void answer(tool)
        })
        const outcomes = yield* drive(run(mixed)).pipe(Effect.provide(Layer.merge(layer, durations)))
        assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok"])
        assert.deepStrictEqual(starts(book), ["before", "read", "after", "long"])
      }))
  }

  it.effect("is called as a method", () =>
    Effect.gen(function*() {
      class Table {
        readonly rows = new Map<string, number>([["fetch", 500], ["post", 5]])
        expected(tool: string) {
          return this.rows.get(tool)
        }
        observe(tool: string, millis: number) {
          this.rows.set(tool, millis)
        }
      }
      const table = new Table()
      const { book, layer } = lab({ ...one, script })
      const durations = Layer.succeed(ToolDurations.ToolDurations, table)
      yield* drive(run([call("post", "a", ["a"]), call("fetch", "b")])).pipe(
        Effect.provide(Layer.merge(layer, durations))
      )
      assert.deepStrictEqual(starts(book), ["b", "a"])
      assert.deepStrictEqual([...table.rows], [["fetch", 10], ["post", 10]])
    }))
})

describe("R12b: random turns on one backend, whose tools' times were learned", () => {
  for (const tail of [1.2, 2]) {
    it(`take on average no more than 1.03 of the lower bound, latencies spread by ${tail}`, async () => {
      const learned = await makespan(100, tail, "learned")
      const unseen = await makespan(100, tail, "unseen")
      assert.isAtMost(learned.mean, 1.03)
      assert.isBelow(learned.mean, unseen.mean)
      assert.deepStrictEqual([learned.longerThanWaves, learned.idle, unseen.idle], [0, 0, 0])
    })
  }
})
