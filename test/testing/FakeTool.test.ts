import { assert, describe, it } from "@effect/vitest"
import { IdempotencyStore, ToolPolicy, TurnContext } from "effect-turn"
import { FakeTool } from "effect-turn/testing"
import { Tool } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import { TestClock } from "effect/testing"

const Params = Schema.Struct({ n: Schema.Finite })
const Look = pipe(
  Tool.make("look", { parameters: Params, success: Schema.String, failure: Schema.String }),
  ToolPolicy.read({ keys: () => [] })
)
const Book = pipe(
  Tool.make("book", { parameters: Params, success: Schema.String, failure: Schema.String }),
  ToolPolicy.write({ keys: ({ n }) => [`n:${n}`] })
)

const serving = (position: number, more: Partial<TurnContext.CallContext> & { tenant?: string } = {}) =>
  Effect.provideService(TurnContext.CurrentCall, {
    identity: {
      tenant: more.tenant ?? "default",
      conversation: undefined,
      principal: undefined,
      turn: "t",
      parent: undefined
    },
    position,
    id: `c${position}`,
    tool: "book",
    attempt: 1,
    idempotencyKey: undefined,
    approvalNote: undefined,
    ...more
  })

const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

describe("fake handlers", () => {
  it.effect("W1: a run is written down when it starts, and closed when its work has ended", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const look = FakeTool.handler(world, Look, { type: "ok", latencyMs: 20, result: "a" })
      const fiber = yield* start(serving(3)(look({ n: 1 })))
      assert.strictEqual(world.atWork.length, 1)
      assert.deepInclude(world.runs[0], {
        tool: "look",
        turn: "t",
        position: 3,
        id: "c3",
        params: { n: 1 },
        startedAt: 0
      })
      assert.isUndefined(world.runs[0]?.end)
      yield* TestClock.adjust(20)
      assert.strictEqual(yield* Fiber.join(fiber), "a")
      assert.deepInclude(world.runs[0], { end: "ok", endedAt: 20, effectAt: undefined })
      assert.strictEqual(world.atWork.length, 0)
      assert.strictEqual(world.executions("look"), 1)
    }))

  it.effect("W2: a write's effect lands at its moment, and only if the work is still running then", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const book = FakeTool.handler(world, Book, { type: "ok", latencyMs: 30, effectAtMs: 20, result: "" })
      const cut = yield* start(book({ n: 1 }))
      const whole = yield* start(book({ n: 2 }))
      yield* TestClock.adjust(19)
      yield* Fiber.interrupt(cut)
      yield* TestClock.adjust(11)
      yield* Fiber.join(whole)
      assert.strictEqual(world.effects("book"), 1)
      assert.deepStrictEqual(world.runs.map(({ effectAt, end }) => [end, effectAt]), [["interrupted", undefined], [
        "ok",
        20
      ]])
      const late = FakeTool.handler(world, Book, { type: "ok", latencyMs: 0, effectAtMs: 1, result: "" })
      yield* late({ n: 1 })
      assert.strictEqual(world.effects("book"), 1)
    }))

  it.effect("W2: a read has no effect", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      yield* FakeTool.handler(world, Look, { type: "ok", latencyMs: 0, effectAtMs: 0, result: "" })({ n: 1 })
      assert.strictEqual(world.effects("look"), 0)
    }))

  it.effect("W3: writes whose key is handed on have one effect for each tenant, tool and key", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const Forward = pipe(Book, ToolPolicy.forward(({ n }) => `${n}`))
      const book = FakeTool.handler(world, Forward, { type: "ok", latencyMs: 0, result: "" })
      const pay = FakeTool.handler(
        world,
        pipe(Tool.make("pay"), ToolPolicy.write(), ToolPolicy.forward(() => "k")),
        { type: "ok", latencyMs: 0, result: undefined }
      )
      const keyed = { idempotencyKey: "k" }
      yield* serving(0, keyed)(book({ n: 1 }))
      yield* serving(1, keyed)(book({ n: 1 }))
      assert.strictEqual(world.effects("book"), 1)
      yield* serving(2, { ...keyed, tenant: "north" })(book({ n: 1 }))
      assert.strictEqual(world.effects("book"), 2)
      yield* serving(3, keyed)(pay({}))
      assert.strictEqual(world.effects("pay"), 1)
      assert.deepStrictEqual([world.effects("book", "k"), world.effects("book", "other")], [2, 0])
      assert.deepStrictEqual(world.runs.map(({ idempotencyKey }) => idempotencyKey), ["k", "k", "k", "k"])
    }))

  it.effect("W3: nobody but the record guards a key that is not handed on", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const Recorded = pipe(Book, IdempotencyStore.record(({ n }) => `${n}`))
      const book = FakeTool.handler(world, Recorded, { type: "ok", latencyMs: 0, result: "" })
      yield* serving(0, { idempotencyKey: "k" })(book({ n: 1 }))
      yield* serving(1, { idempotencyKey: "k" })(book({ n: 1 }))
      assert.deepStrictEqual([world.effects("book"), world.effects("book", "k")], [2, 2])
    }))

  it.effect("too many calls until a moment: what starts before it fails and has no effect, then it succeeds", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const book = FakeTool.handler(world, Book, {
        type: "rateLimited",
        latencyMs: 10,
        effectAtMs: 5,
        untilMs: 30,
        failure: "slow down",
        result: "booked"
      })
      const exits: Array<unknown> = []
      for (const wait of [0, 19, 1]) {
        yield* TestClock.adjust(wait)
        const fiber = yield* start(book({ n: 1 }))
        yield* TestClock.adjust(10)
        exits.push(yield* Fiber.await(fiber))
      }
      // Started at 0, 29 and 40 ms.
      assert.deepStrictEqual(exits, [Exit.fail("slow down"), Exit.fail("slow down"), Exit.succeed("booked")])
      assert.deepStrictEqual(world.runs.map(({ effectAt, end }) => [end, effectAt]), [
        ["failed", undefined],
        ["failed", undefined],
        ["ok", 45]
      ])
    }))

  it.effect("a crash ends what is at work, and none of its effects lands any more", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const book = FakeTool.handler(world, Book, [
        { type: "ok", latencyMs: 20, effectAtMs: 10, result: "" },
        { type: "hang" },
        { type: "ok", latencyMs: 20, result: "" }
      ], { backend: "hotels" })
      yield* start(book({ n: 1 }))
      const hangs = yield* start(book({ n: 2 }))
      yield* TestClock.adjust(5)
      yield* world.crash
      assert.deepStrictEqual(world.atWork, [])
      yield* TestClock.adjust(100)
      yield* Fiber.interrupt(hangs)
      yield* start(book({ n: 3 }))
      yield* TestClock.adjust(20)
      assert.deepStrictEqual(world.runs.map(({ effectAt, end, endedAt }) => [end, endedAt, effectAt]), [
        ["crashed", 5, undefined],
        ["crashed", 5, undefined],
        ["ok", 125, 125]
      ])
      assert.deepStrictEqual([world.effects("book"), world.peak("hotels")], [1, 2])
    }))

  it.effect("failures, defects and interruptions of its own are told apart", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const book = FakeTool.handler(world, Book, [
        { type: "fail", latencyMs: 0, effectAtMs: "end", failure: "no" },
        { type: "throw", latencyMs: 0, thrown: undefined },
        { type: "selfInterrupt", latencyMs: 0 },
        { type: "fail", latencyMs: 0, failure: "never" }
      ])
      const exits = [
        yield* Effect.exit(book({ n: 1 })),
        yield* Effect.exit(book({ n: 1 })),
        yield* Effect.exit(book({ n: 1 }))
      ]
      assert.deepStrictEqual(exits[0], Exit.fail("no"))
      assert.isTrue(Exit.hasDies(exits[1]!))
      assert.isTrue(Exit.hasInterrupts(exits[2]!))
      yield* Effect.exit(book({ n: 1 }))
      assert.deepStrictEqual(yield* Effect.exit(book({ n: 1 })), Exit.fail("never"))
      assert.deepStrictEqual(world.runs.map((run) => run.end), ["failed", "died", "itself", "failed", "failed"])
      assert.strictEqual(world.effects("book"), 1)
    }))

  it.effect("behaviours are picked by arguments", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const look = FakeTool.handler(world, Look, [
        { type: "ok", latencyMs: 0, when: { n: 1 }, result: "one" },
        { type: "ok", latencyMs: 0, when: { n: 2 }, result: "two" }
      ])
      assert.strictEqual(yield* look({ n: 2 }), "two")
      assert.strictEqual(yield* look({ n: 1 }), "one")
      assert.isTrue(Exit.hasDies(yield* Effect.exit(look({ n: 3 }))))
    }))

  it.effect("work that is deaf to a stop goes on to its end, and is awaited", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const book = FakeTool.handler(world, Book, [
        { type: "ok", latencyMs: 30, result: "", ignoresInterrupt: true },
        { type: "fail", latencyMs: 5, failure: "no", ignoresInterrupt: true }
      ])
      const fiber = yield* start(book({ n: 1 }))
      const failing = yield* start(Effect.exit(book({ n: 2 })))
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(yield* Fiber.join(failing), Exit.fail("no"))
      const stopping = yield* start(Fiber.interrupt(fiber))
      yield* TestClock.adjust(19)
      assert.isUndefined(stopping.pollUnsafe())
      assert.strictEqual(world.atWork.length, 1)
      yield* TestClock.adjust(1)
      yield* Fiber.join(stopping)
      assert.deepInclude(world.runs[0], { end: "ok", endedAt: 30, effectAt: 30 })
    }))

  it.effect("work that hangs ends when it is stopped, or when the world is released", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const look = FakeTool.handler(world, Look, [
        { type: "hang" },
        { type: "hang", ignoresInterrupt: true }
      ])
      yield* Fiber.interrupt(yield* start(look({ n: 1 })))
      assert.strictEqual(world.runs[0]?.end, "interrupted")
      const deaf = yield* start(look({ n: 2 }))
      const stopping = yield* start(Fiber.interrupt(deaf))
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(stopping.pollUnsafe())
      yield* world.release
      yield* Fiber.join(stopping)
      assert.strictEqual(world.atWork.length, 0)
    }))

  it.effect("the most at once is counted by backend, without those that wait for work of their own", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const options = { backend: "api" }
      const look = FakeTool.handler(world, Look, { type: "ok", latencyMs: 10, result: "" }, options)
      const agent = FakeTool.handler(world, Look, { type: "runs", latencyMs: 0, run: look({ n: 2 }) }, options)
      const outer = yield* start(agent({ n: 1 }))
      yield* TestClock.adjust(10)
      yield* Fiber.join(outer)
      assert.strictEqual(world.peak("api"), 1)
      const two = yield* start(Effect.all([look({ n: 1 }), look({ n: 2 })], { concurrency: 2 }))
      yield* TestClock.adjust(10)
      yield* Fiber.join(two)
      assert.strictEqual(world.peak("api"), 2)
      assert.strictEqual(world.peak("other"), 0)
    }))

  it.effect("W4: what happens in one instant has an order", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const look = FakeTool.handler(world, Look, { type: "ok", latencyMs: 0, result: "" })
      yield* look({ n: 1 })
      const between = world.mark()
      yield* look({ n: 2 })
      const [first, second] = world.runs
      assert.isTrue(first!.ended! < between && between < second!.began)
      assert.strictEqual(first!.endedAt, second!.startedAt)
    }))
})
