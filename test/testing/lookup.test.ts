import { assert, describe, it } from "@effect/vitest"
import { Coalescer, TurnError } from "effect-turn"
import { FakeTool } from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { TestClock } from "effect/testing"

const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

type Row = { readonly id: number; readonly of: string }
const item = (id: number, { tenant }: Coalescer.Request): Row => ({ id, of: tenant })
const north = { tenant: "north" }
const row = (id: number): Row => ({ id, of: "north" })

/** The answer to one request, in no time. */
const answer = <E, EX>(said: FakeTool.LookupBehaviour<number, Row, E, EX>, keys: readonly [number, ...Array<number>]) =>
  Effect.flatMap(FakeTool.makeWorld, (world) => FakeTool.lookup(world, "rows", { ...said, latencyMs: 0 })(keys, north))

describe("fake lookups", () => {
  it.effect("W1, W5: a request is a run with its keys and its tenant, from its start to its end", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const rows = FakeTool.lookup(world, "rows", { type: "items", item, latencyMs: 20 }, { backend: "db" })
      const first = yield* start(rows([1, 2], north))
      yield* TestClock.adjust(5)
      const second = yield* start(rows([1], { tenant: "south" }))
      assert.deepStrictEqual(world.atWork.map(({ keys, tenant }) => [keys, tenant]), [
        [[1, 2], "north"],
        [[1], "south"]
      ])
      yield* TestClock.adjust(20)
      yield* Fiber.awaitAll([first, second])
      assert.deepStrictEqual(world.requests("rows"), world.runs)
      assert.deepStrictEqual(world.requests(), world.runs)
      assert.deepStrictEqual(world.requests("others"), [])
      assert.deepInclude(world.runs[0], {
        tool: "rows",
        access: "read",
        backend: "db",
        keys: [1, 2],
        turn: "",
        position: -1,
        startedAt: 0,
        endedAt: 20,
        end: "ok"
      })
      assert.deepStrictEqual([world.executions("rows"), world.peak("db"), world.effects("rows")], [2, 2, 0])
    }))

  it.effect("answers a Map, a list of what was found, or a list by position", () =>
    Effect.gen(function*() {
      const said = { type: "items", item, missing: [2] } as const
      assert.deepStrictEqual(yield* answer(said, [1, 2, 3]), new Map([[1, row(1)], [3, row(3)]]))
      assert.deepStrictEqual(yield* answer({ ...said, paired: "key" }, [1, 2, 3]), [row(1), row(3)])
      assert.deepStrictEqual(yield* answer({ ...said, paired: "position" }, [1, 2, 3]), [row(1), undefined, row(3)])
    }))

  it.effect("answers shuffled, short, and with what nobody asked for", () =>
    Effect.gen(function*() {
      const said = { type: "items", item, paired: "key" } as const
      assert.deepStrictEqual(yield* answer({ ...said, shuffled: true }, [1, 2, 3]), [row(3), row(2), row(1)])
      assert.deepStrictEqual(yield* answer({ ...said, short: true }, [1, 2, 3]), [row(1), row(2)])
      assert.deepStrictEqual(yield* answer({ ...said, extra: [[9, row(9)]] }, [1]), [row(1), row(9)])
      assert.deepStrictEqual(
        yield* answer({ ...said, paired: "position", shuffled: true, missing: [1] }, [1, 2]),
        [row(2), undefined]
      )
      assert.deepStrictEqual(
        yield* answer({ ...said, paired: "map", extra: [[9, row(9)]] }, [1]),
        new Map([[1, row(1)], [9, row(9)]])
      )
    }))

  it.effect("lets items fail by themselves, in their places", () =>
    Effect.gen(function*() {
      const failed = Coalescer.failed("no")
      const said: FakeTool.LookupBehaviour<number, Row, string> = { type: "items", item, failing: [[2, "no"]] }
      assert.deepStrictEqual(yield* answer(said, [1, 2]), new Map<number, unknown>([[1, row(1)], [2, failed]]) as any)
      assert.deepStrictEqual(yield* answer({ ...said, paired: "position" }, [1, 2]), [row(1), failed])
    }))

  it.effect("fails, throws, or answers anything at all", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* Effect.flip(answer({ type: "fail", failure: "down" }, [1])), "down")
      const died = yield* Effect.exit(answer({ type: "throw", thrown: "x" }, [1]))
      assert.isTrue(Exit.hasDies(died))
      const odd: unknown = yield* answer({ type: "answers", answer: "no list" }, [1])
      assert.strictEqual(odd, "no list")
    }))

  it.effect("hangs until it is stopped, and is deaf to a stop where it says so", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const rows = FakeTool.lookup(world, "rows", [
        { type: "hang" },
        { type: "items", item, latencyMs: 20, ignoresInterrupt: true }
      ])
      const hung = yield* start(rows([1], north))
      yield* TestClock.adjust(1000)
      yield* Fiber.interrupt(hung)
      assert.strictEqual(world.runs[0]?.end, "interrupted")
      const deaf = yield* start(rows([1], north))
      yield* TestClock.adjust(5)
      const stopping = yield* start(Fiber.interrupt(deaf))
      assert.strictEqual(world.atWork.length, 1)
      yield* TestClock.adjust(15)
      yield* Fiber.await(stopping)
      assert.deepInclude(world.runs[1], { end: "ok", startedAt: 1000, endedAt: 1020 })
    }))

  it.effect("the n-th request takes the n-th behaviour, or the first that fits", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const rows = FakeTool.lookup(world, "rows", [{ type: "fail", failure: "once", latencyMs: 0 }, {
        type: "items",
        item,
        latencyMs: 0
      }])
      assert.strictEqual(yield* Effect.flip(rows([1], north)), "once")
      for (const _ of [1, 2]) assert.deepStrictEqual(yield* rows([1], north), new Map([[1, row(1)]]))
      const fits = FakeTool.lookup(world, "fits", {
        type: "items",
        item,
        latencyMs: 0,
        when: (keys, { tenant }) => keys.includes(1) && tenant === "north"
      })
      assert.deepStrictEqual(yield* fits([2, 1], north), new Map([[2, row(2)], [1, row(1)]]))
      const exit = yield* Effect.exit(fits([1], { tenant: "south" }))
      assert.isTrue(Exit.hasDies(exit))
      assert.strictEqual(world.requests("fits")[1]?.end, "died")
    }))

  it.effect("refuses a script that cannot be", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      assert.throws(() => FakeTool.lookup(world, "rows", []), TurnError.TurnError, /"rows".*at least one behaviour/)
      assert.throws(
        () => FakeTool.lookup(world, "rows", { type: "items", item, failing: [[1, "no"]], paired: "key" }),
        TurnError.TurnError,
        /a failure has no key/
      )
    }))
})
