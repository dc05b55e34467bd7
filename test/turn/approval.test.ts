/** Calls that wait for a human, and calls that wait for those. */
import { assert, describe, it } from "@effect/vitest"
import { type Outcome, Siblings, ToolCall, ToolPolicy, Turn } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { conflict, pick, runs } from "../utils/gen.ts"
import {
  call,
  drive,
  ended,
  fork,
  lab,
  type Name,
  type Ran,
  run,
  runWith,
  toolkit,
  tools,
  words
} from "../utils/kit.ts"

const asking = (needsApproval: (params: any, context: any) => any) =>
  pipe(
    Tool.make("ask", {
      parameters: Schema.Struct({ n: Schema.optionalKey(Schema.Finite) }),
      success: Schema.Unknown,
      failure: Schema.String,
      needsApproval
    }),
    ToolPolicy.read({ keys: () => [] })
  )

describe("R10: a call that needs approval", () => {
  it.effect("is held and answered so; what conflicts with it later is deferred; everything else runs", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([
          call("read", "before", ["k"]),
          call("pay", "held", ["k"]),
          call("read", "after", ["k"]),
          call("write", "other", ["l"]),
          call("bare", "any"),
          call("read", "free")
        ]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "pending_approval",
        "deferred/waits_for_approval",
        "ok",
        "deferred/waits_for_approval",
        "ok"
      ])
      assert.deepStrictEqual(
        [1, 2, 4].map((i) => [outcomes[i]!.started, outcomes[i]!.effect, outcomes[i]!.retryable]),
        [[false, "none", false], [false, "none", true], [false, "none", true]]
      )
      assert.deepStrictEqual(book.runs.map((one) => one.tag), ["before", "other", "free"])
    }))

  it.effect("holds no keys against other turns", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { slow: { ms: 100 } } })
      yield* Effect.gen(function*() {
        const first = yield* fork(run([call("pay", "held", ["k"]), call("read", "slow")]))
        const second = yield* fork(run([call("write", "w", ["k"])]))
        yield* TestClock.adjust(1000)
        yield* ended(first)
        yield* ended(second)
        assert.deepStrictEqual(book.span("w"), [0, 10])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("is asked with the decoded parameters and the call's id, as a truth value or an effect", () =>
    Effect.gen(function*() {
      for (const as of [(answer: boolean) => answer, (answer: boolean) => Effect.delay(Effect.succeed(answer), 30)]) {
        const asked: Array<unknown> = []
        const tool = asking(({ n }, { toolCallId }) => {
          asked.push([n, toolCallId])
          return as(n > 100)
        })
        const outcomes = yield* drive(
          runWith([tool], { ask: () => Effect.succeed(1) }, [
            ToolCall.make("a", "ask", { n: 500 }),
            ToolCall.make("b", "ask", { n: 5 })
          ])
        )
        assert.deepStrictEqual(words(outcomes), ["pending_approval", "ok"])
        assert.deepStrictEqual(asked, [[500, "a"], [5, "b"]])
      }
    }))

  const failing: Record<string, () => any> = {
    "throws": () => {
      throw new Error("boom")
    },
    "dies": () => Effect.die("boom"),
    "is interrupted": () => Effect.interrupt,
    "fails": () => Effect.fail("boom"),
    "answers nonsense": () => "yes",
    "answers nonsense as an effect": () => Effect.succeed("no"),
    "is a promise": () => Promise.resolve(false)
  }
  for (const [name, needsApproval] of Object.entries(failing)) {
    it.effect(`is held when the question ${name}`, () =>
      Effect.gen(function*() {
        let ran = false
        const outcomes = yield* drive(
          runWith([asking(needsApproval)], { ask: () => Effect.sync(() => ran = true) }, [ToolCall.make("a", "ask")])
        )
        assert.deepStrictEqual(words(outcomes), ["pending_approval"])
        assert.isFalse(ran)
      }))
  }

  it.effect("is not asked about arguments that cannot be taken", () =>
    Effect.gen(function*() {
      let asked = 0
      const tool = asking(() => {
        asked++
        return true
      })
      const outcomes = yield* drive(runWith([tool], { ask: () => Effect.succeed(1) }, [ToolCall.make("a", "ask", "{")]))
      assert.deepStrictEqual(words(outcomes), ["error/invalid_arguments"])
      assert.strictEqual(asked, 0)
    }))

  it.effect("R9: the same call again shares its answer", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const outcomes = yield* drive(
        run([call("pay", "x", ["k"], { id: "a" }), call("pay", "x", ["k"], { id: "b" }), call("pay", "y", ["k"])]).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["pending_approval", "pending_approval", "pending_approval"])
      assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.id), [undefined, "a", undefined])
    }))

  it.effect("R9: a read is not answered from before a write that is held", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([call("read", "x", ["k"], { id: "a" }), call("pay", "p", ["k"]), call("read", "x", ["k"], { id: "b" })])
          .pipe(
            Effect.provide(layer)
          )
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "pending_approval", "deferred/waits_for_approval"])
      assert.strictEqual(book.count("x"), 1)
    }))

  it.effect("R1: a turn of nothing but held calls ends at once", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([call("pay", "a", ["k"])], { onEvent: book.note }).pipe(Effect.provide(layer)),
        1
      )
      assert.deepStrictEqual(words(outcomes), ["pending_approval"])
      assert.deepStrictEqual(book.events.map((event) => event._tag).filter((tag) => tag !== "CallHeld"), [
        "TurnStarted",
        "CallEnded",
        "TurnEnded"
      ])
    }))
})

describe("R10: questions that take time", () => {
  const someCall = Arbitrary.all({
    name: pick<Name>("read", "write", "ask", "ask", "pay", "look", "bare", "fetch"),
    k: Arbitrary.array(pick<string>("a", "b", "c"), { maxLength: 2 }),
    n: pick(5, -5, 15, -15, 25, -25),
    ms: pick(0, 10, 20)
  })

  it.effect.prop(
    "the plan is what the turn then does, however long they take, and conflicting calls keep their order",
    { calls: Arbitrary.array(someCall, { minLength: 1, maxLength: 8 }), sequential: pick(false, false, true) },
    ({ calls, sequential }) =>
      Effect.gen(function*() {
        const { book, layer } = lab()
        calls.forEach(({ ms }, i) => book.script.set(`c${i}`, { ms }))
        const made = calls.map(({ k, n, name }, i) => call(name, `c${i}`, k, name === "ask" ? { n } : {}))
        const options: Turn.Options = { execution: sequential ? "sequential" : "parallel" }
        const [plan, outcomes] = yield* drive(
          Effect.all([Turn.plan(toolkit, made, options), run(made, options)]).pipe(Effect.provide(layer))
        )
        const said: Record<string, string> = {
          run: "ok",
          held: "pending_approval",
          deferred: "deferred/waits_for_approval"
        }
        assert.deepStrictEqual(words(outcomes), plan.calls.map((one) => said[one.verdict]!))
        const ran = book.runs.toSorted((a, b) => a.position - b.position)
        ran.forEach((later, i) => {
          for (const earlier of ran.slice(0, i)) {
            const reach = (one: Ran) => ({ write: ToolPolicy.get(tools[one.tool]).access === "write", keys: one.keys })
            if (sequential || conflict(reach(earlier), reach(later))) assert.isBelow(earlier.ended!, later.began)
          }
        })
      }),
    runs(300)
  )

  it.effect("a call that conflicts with a held one and is held itself stays held; else it is deferred", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([
          call("pay", "p", ["p"]),
          call("ask", "held behind", ["p"], { n: -10 }),
          call("ask", "deferred behind", ["p"], { n: 10 }),
          call("ask", "first", ["k"], { n: -20 }),
          call("ask", "asked longer", ["k"], { n: -30 }),
          call("ask", "not held", ["k"], { n: 40 }),
          call("read", "last", ["k"])
        ]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "pending_approval",
        "pending_approval",
        "deferred/waits_for_approval",
        "pending_approval",
        "pending_approval",
        "deferred/waits_for_approval",
        "deferred/waits_for_approval"
      ])
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("a stop, a deadline and a sibling's failure end the question", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { bad: { ms: 5, end: "fail" } } })
      const calls = [call("ask", "a", ["k"], { n: -1000 }), call("read", "bad"), call("read", "b", ["k"])]
      const fast = yield* drive(
        run(calls, { siblings: Siblings.failFast, onEvent: book.note }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(fast), ["cancelled/by_sibling", "error/failed", "cancelled/by_sibling"])
      assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 5)
      const late = yield* drive(run(calls, { deadline: 50 }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(words(late), ["cancelled/by_deadline", "error/failed", "cancelled/by_deadline"])
    }))

  it.effect("waiting for the answer is waiting: the running limit begins with the start", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 9_000 } } })
      const outcomes = yield* drive(
        run([call("ask", "a", ["k"], { n: 20_000 }), call("ask", "b", ["l"], { n: 70_000 })]).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "timeout/queue"])
      assert.deepStrictEqual(book.span("a"), [20_000, 29_000])
    }))
})

describe("R2: stopping one call by its position, while others go on", () => {
  const started = (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    script: NonNullable<Parameters<typeof lab>[0]>["script"],
    use: (handle: Turn.Handle<typeof toolkit>) => Effect.Effect<void>,
    options?: Turn.Options,
    more?: Parameters<typeof lab>[0]
  ) =>
    Effect.gen(function*() {
      const { book, layer } = lab({ ...more, ...(script === undefined ? undefined : { script }) })
      const outcomes = yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, calls, { ...options, onEvent: book.note })
        yield* use(handle)
        yield* TestClock.adjust(1_000_000)
        return yield* ended(yield* fork(handle.await))
      }).pipe(Effect.scoped, Effect.provide(layer))
      return { book, outcomes }
    })

  const at = (ms: number, stop: Effect.Effect<boolean>, expected = true) =>
    Effect.gen(function*() {
      yield* TestClock.adjust(ms)
      assert.strictEqual(yield* stop, expected)
    })

  it.effect("one that waits: not started, nothing done, and those behind it keep their order", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* started(
        [call("write", "a", ["k"]), call("write", "b", ["k"]), call("write", "c", ["k"])],
        { a: { ms: 50 } },
        (handle) => at(10, handle.cancelCall("b", "user"))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "ok"])
      assert.deepStrictEqual([outcomes[1]!.started, (outcomes[1] as Outcome.Cancelled).reason], [false, "user"])
      assert.deepStrictEqual(book.span("c"), [50, 60])
      assert.deepStrictEqual(book.tagsOf("CallEnded").map((event) => [(event as any).position, event.at]), [[1, 10], [
        0,
        50
      ], [2, 60]])
    }))

  it.effect("one that waits: what conflicts with it alone starts when it has its answer", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* started(
        [
          call("write", "a", ["x"]),
          call("write", "b", ["x", "y"]),
          call("write", "c", ["y"]),
          call("read", "d", ["x"])
        ],
        { a: { ms: 50 } },
        (handle) => at(10, handle.cancelCall(1))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "ok", "ok"])
      assert.deepStrictEqual([book.span("c"), book.span("d")], [[10, 20], [50, 60]])
    }))

  it.effect("one that stands in line for a permit: the next takes its place", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* started(
        ["a", "b", "c"].map((tag) => call("fetch", tag)),
        { a: { ms: 50 } },
        (handle) => at(10, handle.cancelCall(1)),
        {},
        { api: { concurrency: 1 } }
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "ok"])
      assert.deepStrictEqual(book.span("c"), [50, 60])
    }))

  it.effect("one that runs: a read is interrupted, a write is awaited and told truly", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* started(
        [call("read", "r"), call("write", "w", ["k"]), call("read", "free")],
        { r: { ms: 100 }, w: { ms: 100 } },
        (handle) => Effect.andThen(at(10, handle.cancelCall(0)), at(0, handle.cancelCall(1)))
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok", "ok"])
      assert.deepStrictEqual([book.span("r"), book.span("w")], [[0, 10], [0, 100]])
    }))

  it.effect("one that has its answer, or is not there: false", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* started([call("read", "a"), call("read", "b")], { b: { ms: 100 } }, (handle) =>
        Effect.gen(function*() {
          yield* at(50, handle.cancelCall(0), false)
          for (const nowhere of [2, -1, 0.5, NaN, "nobody", ""]) {
            yield* at(0, handle.cancelCall(nowhere), false)
          }
        }))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
    }))

  it.effect("an id that stands for two calls addresses neither", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* started(
        [call("read", "a", [], { id: "" }), call("read", "b", [], { id: "" })],
        { a: { ms: 50 }, b: { ms: 50 } },
        (handle) => at(10, handle.cancelCall(""), false)
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
    }))

  it.effect("one that is held: cancelled, the others stay", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* started(
        [call("pay", "a", ["k"]), call("pay", "b", ["k"]), call("read", "slow")],
        { slow: { ms: 100 } },
        (handle) => Effect.andThen(at(10, handle.cancelCall(0)), at(0, handle.cancelCall(0), false))
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "pending_approval", "ok"])
    }))

  it.effect("one of two held calls that are the same: the other stays held, and stands for itself", () =>
    Effect.gen(function*() {
      const calls = [
        call("pay", "x", ["k"], { id: "a" }),
        call("pay", "x", ["k"], { id: "b" }),
        call("pay", "x", ["k"], { id: "c" }),
        call("read", "slow")
      ]
      const first = yield* started(calls, { slow: { ms: 100 } }, (handle) => at(10, handle.cancelCall(0)))
      assert.deepStrictEqual(words(first.outcomes), [
        "cancelled/by_caller",
        "pending_approval",
        "pending_approval",
        "ok"
      ])
      assert.deepStrictEqual(first.outcomes.map((one) => one.duplicateOf?.position), [
        undefined,
        undefined,
        1,
        undefined
      ])
      const second = yield* started(calls, { slow: { ms: 100 } }, (handle) => at(10, handle.cancelCall(1)))
      assert.deepStrictEqual(words(second.outcomes), [
        "pending_approval",
        "cancelled/by_caller",
        "pending_approval",
        "ok"
      ])
      assert.deepStrictEqual(second.outcomes.map((one) => one.duplicateOf?.position), [
        undefined,
        undefined,
        0,
        undefined
      ])
    }))

  it.effect("one of two identical calls: the run goes on for the other, and is stopped when all have gone", () =>
    Effect.gen(function*() {
      const calls = [call("read", "x", [], { id: "a" }), call("read", "x", [], { id: "b" })]
      const one = yield* started(calls, { x: { ms: 100 } }, (handle) => at(10, handle.cancelCall(0)))
      assert.deepStrictEqual(words(one.outcomes), ["cancelled/by_caller", "ok"])
      assert.deepStrictEqual(one.book.span("x"), [0, 100])
      const both = yield* started(
        calls,
        { x: { ms: 100 } },
        (handle) => Effect.andThen(at(10, handle.cancelCall(1)), at(10, handle.cancelCall(0)))
      )
      assert.deepStrictEqual(words(both.outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
      const { at: began, endedAt } = both.book.of("x")
      assert.strictEqual(endedAt! - began, 20)
    }))

  it.effect("one while the turn is still being taken in: it is not run", () =>
    Effect.gen(function*() {
      const ran: Array<number> = []
      const tool = asking(() => Effect.delay(Effect.succeed(false), 50))
      const handler = { ask: ({ n }: { n: number }) => Effect.sync(() => ran.push(n)) }
      const kit = Toolkit.make(tool)
      const outcomes = yield* Effect.gen(function*() {
        const handle = yield* Turn.start(kit, [
          ToolCall.make("a", "ask", { n: 1 }),
          ToolCall.make("b", "ask", { n: 2 })
        ])
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall("a", "user"))
        assert.isFalse(yield* handle.cancelCall("a", "again"))
        yield* TestClock.adjust(1000)
        return yield* ended(yield* fork(handle.await))
      }).pipe(Effect.scoped, Effect.provide(Layer.merge(kit.toLayer(handler as any), Turn.layer())))
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok"])
      assert.strictEqual((outcomes[0] as Outcome.Cancelled).reason, "user")
      assert.deepStrictEqual(ran, [2])
    }))
})

describe("R12: a question whether approval is needed, where the answer takes time", () => {
  const parameters = Schema.Struct({ id: Schema.String, keys: Schema.Array(Schema.String) })
  const Ask = (answer: boolean) =>
    pipe(
      Tool.make("ask", {
        parameters,
        success: Schema.Finite,
        needsApproval: () => Effect.as(Effect.sleep(500), answer)
      }),
      ToolPolicy.write({ keys: ({ keys }) => keys })
    )
  const Look = pipe(
    Tool.make("look", { parameters, success: Schema.Finite }),
    ToolPolicy.read({ keys: ({ keys }) => keys })
  )
  const calls = [
    ToolCall.make("free", "look", { id: "free", keys: ["b"] }),
    ToolCall.make("asked", "ask", { id: "asked", keys: ["a"] }),
    ToolCall.make("same", "ask", { id: "asked", keys: ["a"] }),
    ToolCall.make("behind", "look", { id: "behind", keys: ["a"] }),
    ToolCall.make("beside", "look", { id: "beside", keys: [] })
  ]
  const turn = (answer: boolean, options?: Turn.Options) =>
    Effect.gen(function*() {
      const kit = Toolkit.make(Ask(answer), Look)
      const starts: Array<string> = []
      const note = ({ id }: { readonly id: string }) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.as(Effect.sleep(10), starts.push(`${id} at ${now}`)))
      const outcomes = yield* drive(
        Turn.run(kit, calls, options).pipe(
          Effect.provide(Layer.merge(kit.toLayer({ ask: note, look: note }), Turn.layer()))
        )
      )
      return { outcomes, starts }
    })

  it.effect("holds up nobody but those that conflict with it", () =>
    Effect.gen(function*() {
      const { outcomes, starts } = yield* turn(false)
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(outcomes[2]!.duplicateOf, { position: 1, id: "asked" })
      assert.deepStrictEqual(starts, ["free at 0", "beside at 0", "asked at 500", "behind at 510"])
    }))

  it.effect("R10: when it is needed, the call and those that are the same are held, and later ones that conflict are deferred", () =>
    Effect.gen(function*() {
      const { outcomes, starts } = yield* turn(true)
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "pending_approval",
        "pending_approval",
        "deferred/waits_for_approval",
        "ok"
      ])
      assert.deepStrictEqual(starts, ["free at 0", "beside at 0"])
    }))

  it.effect("R17: a stop ends the question with the turn", () =>
    Effect.gen(function*() {
      const { outcomes, starts } = yield* turn(true, { deadline: 100 })
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "cancelled/by_deadline",
        "cancelled/by_deadline",
        "cancelled/by_deadline",
        "ok"
      ])
      assert.deepStrictEqual(starts, ["free at 0", "beside at 0"])
    }))

  it.effect("R20: one that ignores its stop gets the grace of a read, and holds no turn for ever", () =>
    Effect.gen(function*() {
      const deaf = Effect.uninterruptible(Effect.never)
      const kit = Toolkit.make(
        pipe(
          Tool.make("ask", { parameters, success: Schema.Finite, needsApproval: () => deaf }),
          ToolPolicy.write({ keys: ({ keys }) => keys })
        ),
        Look
      )
      const layer = Layer.merge(
        kit.toLayer({ ask: () => Effect.succeed(1), look: () => Effect.succeed(1) }),
        Turn.layer()
      )
      const times = (options: Turn.Options) =>
        Effect.gen(function*() {
          const outcomes = yield* Turn.run(kit, calls, options)
          return [words(outcomes), yield* Clock.currentTimeMillis] as const
        }).pipe(Effect.provide(layer), Effect.provideService(References.MinimumLogLevel, "None"))
      const [stopped, at] = yield* drive(times({ deadline: 100 }))
      assert.deepStrictEqual(stopped, [
        "ok",
        "cancelled/by_deadline",
        "cancelled/by_deadline",
        "cancelled/by_deadline",
        "ok"
      ])
      assert.strictEqual(at, 5_100)
    }))

  it.effect("R20: so does a cancelOn", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const [outcomes, took] = yield* drive(
        Effect.gen(function*() {
          const before = yield* Clock.currentTimeMillis
          const outcomes = yield* run([call("read", "a")], {
            cancelOn: Effect.uninterruptible(Effect.never),
            grace: 50
          })
          return [outcomes, (yield* Clock.currentTimeMillis) - before] as const
        }).pipe(Effect.provide(layer), Effect.provideService(References.MinimumLogLevel, "None"))
      )
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.isAtMost(took, 1_000)
    }))
})

describe("R10, MORE 18: questions count under the turn's own limit", () => {
  it.effect("one whose question is held up by the limit does not start when nothing else is in its way", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [
          call("ask", "first", ["a"], { n: 50 }),
          call("ask", "second", ["b"], { n: 50 }),
          call("write", "before", ["k"]),
          call("ask", "third", ["k"], { n: -10 })
        ], { execution: 2 })
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall("before"))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* handle.await), ["ok", "ok", "cancelled/by_caller", "pending_approval"])
        assert.deepStrictEqual(book.runs.map((one) => one.tag).sort(), ["first", "second"])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("they are asked as many at once as calls may run, and no more", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 10 }, b: { ms: 10 }, c: { ms: 10 } } })
      const outcomes = yield* drive(
        run([call("ask", "a", ["a"], { n: 40 }), call("ask", "b", ["b"], { n: 40 }), call("write", "c", ["c"])], {
          execution: 1
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      // Two questions of 40 ms one after another, and then three calls.
      assert.deepStrictEqual(Math.max(...book.runs.map((one) => one.endedAt!)), 110)
    }))
})
