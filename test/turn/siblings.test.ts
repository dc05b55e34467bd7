/** What the failure of one call means for the others, in a turn. */
import { assert, describe, it } from "@effect/vitest"
import { type Outcome, Siblings, ToolCall, type Turn } from "effect-turn"
import * as Effect from "effect/Effect"
import { call, drive, lab, run, words } from "../utils/kit.ts"

const turn = (
  script: NonNullable<Parameters<typeof lab>[0]>["script"],
  calls: Parameters<typeof run>[0],
  options: Turn.Options,
  more?: Parameters<typeof lab>[0]
) =>
  Effect.gen(function*() {
    const { book, layer } = lab({ ...more, ...(script === undefined ? undefined : { script }) })
    const outcomes = yield* drive(run(calls, { ...options, onEvent: book.note }).pipe(Effect.provide(layer)))
    return { book, outcomes }
  })

const failing = { a: { ms: 50 }, bad: { ms: 20, end: "fail" }, w: { ms: 60 }, p: { ms: 60 } } as const
const five = [
  call("read", "a"),
  call("write", "bad", ["x"]),
  call("write", "w", ["y"]),
  call("put", "p", ["z"]),
  call("read", "later", ["x"])
]

describe("R18: siblings in a turn", () => {
  it.effect("let-finish: a failing call changes nothing for the others", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(failing, five, {})
      assert.deepStrictEqual(words(outcomes), ["ok", "error/failed", "ok", "ok", "ok"])
    }))

  it.effect("fail-fast: nothing new starts, what may be interrupted is, the rest is awaited, the error stays apart", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* turn(failing, five, { siblings: Siblings.failFast })
      assert.deepStrictEqual(words(outcomes), [
        "cancelled/by_sibling",
        "error/failed",
        "ok",
        "cancelled/by_sibling",
        "cancelled/by_sibling"
      ])
      assert.strictEqual((outcomes[1] as Outcome.Failed<string, string>).failure, "bad failed")
      assert.deepStrictEqual([book.span("a"), book.span("w"), book.span("p")], [[0, 20], [0, 60], [0, 20]])
      assert.strictEqual(book.count("later"), 0)
      assert.strictEqual(outcomes[4]!.started, false)
      // The turn was not stopped by anybody.
      assert.deepStrictEqual(book.tagsOf("TurnStopped"), [])
    }))

  for (
    const [name, does] of Object.entries(
      {
        "a failure": { ms: 20, end: "fail" },
        "a defect": { ms: 20, end: "die" },
        "an interruption of its own": { ms: 20, end: "interrupt" },
        "a result that cannot be given": { ms: 20, result: undefined },
        "a timeout": { ms: Infinity }
      } as const
    )
  ) {
    it.effect(`fail-fast: ${name} triggers it`, () =>
      Effect.gen(function*() {
        const { outcomes } = yield* turn({ bad: does, a: { ms: 60_000 } }, [
          call("read", "bad"),
          call("put", "a", ["k"])
        ], {
          siblings: Siblings.failFast
        })
        // Both run out of time at once where the first one hangs.
        if (name === "a timeout") assert.include(["cancelled/by_sibling", "timeout/handler"], words(outcomes)[1]!)
        else assert.strictEqual(words(outcomes)[1], "cancelled/by_sibling")
      }))
  }

  it.effect("fail-fast: invalid, unknown, deferred, ambiguous, held and waiting-too-long calls trigger nothing", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ a: { ms: 70_000 } }, [
        call("write", "a", ["k"]),
        ToolCall.make("b", "read", "{"),
        ToolCall.make("c", "nobody", {}),
        ToolCall.make("d", "read", { tag: "<pending>" }),
        call("read", "e", [], { id: "same" }),
        call("read", "f", [], { id: "same" }),
        call("pay", "g", ["h"]),
        call("read", "h", ["h"]),
        call("read", "i", ["k"])
      ], { siblings: Siblings.failFast, grace: "infinite" })
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "error/invalid_arguments",
        "error/unknown_tool",
        "deferred/placeholder",
        "error/ambiguous_id",
        "error/ambiguous_id",
        "pending_approval",
        "deferred/waits_for_approval",
        "timeout/queue"
      ])
    }))

  it.effect("fail-fast leaves held calls held, a stop cancels them", () =>
    Effect.gen(function*() {
      const calls = [call("pay", "held", ["k"]), call("read", "bad"), call("read", "a")]
      const fast = yield* turn({ ...failing }, calls, { siblings: Siblings.failFast })
      assert.deepStrictEqual(words(fast.outcomes), ["pending_approval", "error/failed", "cancelled/by_sibling"])
      const stopped = yield* turn({ ...failing }, calls, { deadline: 5 })
      assert.deepStrictEqual(words(stopped.outcomes), [
        "cancelled/by_deadline",
        "cancelled/by_deadline",
        "cancelled/by_deadline"
      ])
    }))

  it.effect("fail-fast: two failures in one instant keep their own errors, the first one stopped the rest", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ x: { ms: 20, end: "fail" }, y: { ms: 20, end: "fail" }, z: { ms: 90 } }, [
        call("write", "x", ["x"]),
        call("write", "y", ["y"]),
        call("read", "z")
      ], { siblings: Siblings.failFast })
      assert.deepStrictEqual(words(outcomes), ["error/failed", "error/failed", "cancelled/by_sibling"])
    }))

  it.effect("fail-fast: what a sibling frees starts nobody", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* turn(
        { bad: { end: "fail" } },
        [call("fetch", "bad"), call("fetch", "b"), call("fetch", "c")],
        { siblings: Siblings.failFast },
        { api: { concurrency: 1 } }
      )
      assert.deepStrictEqual(words(outcomes), ["error/failed", "cancelled/by_sibling", "cancelled/by_sibling"])
      assert.deepStrictEqual(book.runs.map((one) => one.tag), ["bad"])
    }))

  it.effect("fail-fast on a predicate: other failures change nothing, and one that throws counts", () =>
    Effect.gen(function*() {
      const calls = [call("read", "bad"), call("read", "a")]
      const only = (code: string) =>
        Siblings.failFastWhen((one: Outcome.Outcome<any>) => "code" in one && one.code === code)
      assert.deepStrictEqual(words((yield* turn(failing, calls, { siblings: only("failed") })).outcomes), [
        "error/failed",
        "cancelled/by_sibling"
      ])
      assert.deepStrictEqual(words((yield* turn(failing, calls, { siblings: only("defect") })).outcomes), [
        "error/failed",
        "ok"
      ])
      const boom = Siblings.failFastWhen(() => {
        throw new Error("boom")
      })
      assert.deepStrictEqual(words((yield* turn(failing, calls, { siblings: boom })).outcomes), [
        "error/failed",
        "cancelled/by_sibling"
      ])
    }))

  it.effect("a policy of one's own that throws stops its siblings, and the runtime goes on", () =>
    Effect.gen(function*() {
      const siblings: Siblings.Policy<any> = {
        name: "boom",
        stops: () => {
          throw new Error("boom")
        }
      }
      const { layer } = lab({ script: failing })
      const [first, second] = yield* drive(
        Effect.all([
          run([call("read", "bad"), call("read", "a")], { siblings }),
          run([call("read", "bad"), call("read", "a")])
        ]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(first!), ["error/failed", "cancelled/by_sibling"])
      assert.deepStrictEqual(words(second!), ["error/failed", "ok"])
    }))

  it.effect("quorum: the first n successes are enough", () =>
    Effect.gen(function*() {
      const script = { a: { ms: 10, end: "fail" }, b: { ms: 20 }, c: { ms: 30 }, d: { ms: 40 }, e: { ms: 50 } } as const
      const { book, outcomes } = yield* turn(script, ["a", "b", "c", "d", "e"].map((tag) => call("read", tag)), {
        siblings: Siblings.quorum(2)
      })
      assert.deepStrictEqual(words(outcomes), [
        "error/failed",
        "ok",
        "ok",
        "cancelled/by_sibling",
        "cancelled/by_sibling"
      ])
      assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 30)
    }))

  it.effect("quorum: a call that answers two ids is one success", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ a: { ms: 10 }, b: { ms: 20 }, c: { ms: 30 } }, [
        call("read", "a", [], { id: "x" }),
        call("read", "a", [], { id: "y" }),
        call("read", "b"),
        call("read", "c")
      ], { siblings: Siblings.quorum(2) })
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "cancelled/by_sibling"])
    }))
})

describe("R18: units stand or fall together", () => {
  it.effect("the failure of one unit leaves the others alone", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(
        { bad: { ms: 20, end: "fail" }, a: { ms: 50 }, b: { ms: 50 }, c: { ms: 50 } },
        [
          call("read", "a"),
          call("read", "bad"),
          call("read", "b"),
          call("read", "c", ["k"]),
          call("write", "d", ["k"])
        ],
        { siblings: Siblings.failFast, unit: (_, position) => position < 2 ? "first" : "second" }
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_sibling", "error/failed", "ok", "ok", "ok"])
    }))

  it.effect("R9: the same call in another unit is a call of its own", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* turn(
        { a: { ms: 50 }, bad: { end: "fail" } },
        [call("read", "a", [], { id: "1" }), call("read", "bad"), call("read", "a", [], { id: "2" })],
        { siblings: Siblings.failFast, unit: (_, position) => position < 2 ? "first" : "second" }
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_sibling", "error/failed", "ok"])
      assert.strictEqual(book.count("a"), 2)
    }))

  it.effect("a stop reaches all of them", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ a: { ms: 50 }, b: { ms: 50 } }, [call("read", "a"), call("read", "b")], {
        deadline: 10,
        unit: (one) => one.id
      })
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "cancelled/by_deadline"])
    }))

  it.effect("a unit that cannot be told is the turn as a whole", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ bad: { end: "fail" }, a: { ms: 50 }, b: { ms: 50 } }, [
        call("read", "bad"),
        call("read", "a"),
        call("read", "b")
      ], {
        siblings: Siblings.failFast,
        unit: (one) => {
          if (one.id === "b") return "own"
          throw new Error("boom")
        }
      })
      assert.deepStrictEqual(words(outcomes), ["error/failed", "cancelled/by_sibling", "ok"])
    }))
})
