/** Calls that come one by one, while the model still speaks. */
import { assert, describe, it } from "@effect/vitest"
import { Approval, type Outcome, Siblings, ToolCall, ToolPolicy, Turn, TurnError, TurnMiddleware } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as SchemaGetter from "effect/SchemaGetter"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { conflict, int, keys, pick, runs } from "../utils/gen.ts"
import {
  Api,
  type Book,
  call,
  ended,
  fork,
  idle,
  lab,
  type LabOptions,
  type Name,
  type Ran,
  run,
  toolkit,
  tools,
  words
} from "../utils/kit.ts"

type Open = Turn.Online<typeof toolkit>

/** Opens a turn in a lab, and closes its scope in the end. */
const opened = <A, E>(
  options: LabOptions,
  given: Omit<Turn.Options, "finishReason">,
  use: (turn: Open, book: Book) => Effect.Effect<A, E, any>
) => {
  const { book, layer } = lab(options)
  return Effect.gen(function*() {
    const turn = yield* Turn.open(toolkit, { onEvent: book.note, ...given })
    return yield* use(turn, book)
  }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<A, E>
}

/** Ends the list and lets time pass. */
const done = (turn: Open, reason?: ToolCall.FinishReason) =>
  Effect.gen(function*() {
    const fiber = yield* fork(turn.end(reason))
    yield* TestClock.adjust(100_000)
    return yield* ended(fiber)
  })

describe("R13: calls that arrive while the model speaks", () => {
  it.effect("run as if all had been known, one at a time (MORE.md 18)", () =>
    opened(
      { script: { a: { ms: 40 }, b: { ms: 40 }, c: { ms: 40 } } },
      { execution: 1 },
      (turn, book) =>
        Effect.gen(function*() {
          yield* turn.submit(call("read", "a", ["k"]))
          yield* TestClock.adjust(10)
          yield* turn.submit(call("put", "b", ["k"]))
          yield* TestClock.adjust(10)
          yield* turn.submit(call("put", "c", ["l"]))
          const outcomes = yield* done(turn)
          assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
          assert.deepStrictEqual([book.span("a"), book.span("b"), book.span("c")], [[0, 40], [40, 80], [80, 120]])
        })
    ))

  it.effect("no write starts before the list has ended, keyed or not, on a backend or not (MORE.md 18)", () =>
    opened({}, {}, (turn, book) =>
      Effect.gen(function*() {
        const names: ReadonlyArray<Name> = ["write", "put", "bare", "post", "save"]
        for (const [i, name] of names.entries()) yield* turn.submit(call(name, `w${i}`, [`k${i}`]))
        yield* turn.submit(call("read", "r", ["other"]))
        yield* TestClock.adjust(50_000)
        // A write of unknown reach stands before the read.
        assert.deepStrictEqual(book.runs, [])
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok", "ok", "ok"])
        for (const ran of book.runs) assert.isAtLeast(ran.at, 50_000)
      })))

  it.effect("questions whether approval is needed count under the turn's own limit (MORE.md 18)", () =>
    opened({ script: { r: { ms: 30 } } }, { execution: 1 }, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("ask", "q", ["k"], { n: 20 }))
        yield* turn.submit(call("read", "r", ["l"]))
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(book.runs, [])
        yield* TestClock.adjust(15)
        assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [["r", 20]])
        yield* turn.submit(call("ask", "p", ["l"], { n: -20 }))
        yield* TestClock.adjust(20)
        yield* turn.submit(call("read", "s", ["m"]))
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["ok", "ok", "pending_approval", "ok"])
        // The question of "p" waited for "r", which ended at 50.
        assert.deepStrictEqual(book.tagsOf("CallHeld").map((event) => event.at), [70])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag).toSorted(), ["q", "r", "s"])
      })))

  it.effect("reads start at once; one that comes after its twin has ended has the same answer", () =>
    opened({}, {}, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("read", "x", ["k"], { id: "a" }))
        yield* TestClock.adjust(20)
        yield* turn.submit(call("read", "x", ["k"], { id: "b" }))
        yield* turn.submit(call("read", "x", ["k"], { id: "a" }))
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
        assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.position), [undefined, 0, 0])
        assert.deepStrictEqual(book.span("x"), [0, 10])
        assert.deepStrictEqual(book.tagsOf("CallEnded").map((event) => event.at), [10, 20, 20])
      })))

  it.effect("a cut-short end keeps what had begun; everything else is incomplete_response", () =>
    opened({ script: { slow: { ms: 100 } } }, {}, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("read", "slow", ["k"]))
        yield* turn.submit(call("read", "quick"))
        yield* turn.submit(call("write", "w", ["l"]))
        yield* turn.submit(call("read", "behind", ["l"]))
        yield* turn.submit(call("pay", "p", ["m"]))
        yield* turn.submit(call("read", "deferred", ["m"]))
        yield* turn.submit(call("ask", "asked", ["n"], { n: 1000 }))
        yield* turn.submit(ToolCall.make("u", "nobody"))
        yield* turn.submit(ToolCall.make("bad", "read", "{"))
        yield* turn.submit(ToolCall.make("ph", "read", { tag: "<pending>" }))
        yield* turn.submit(call("pay", "p", ["m"], { id: "twin" }))
        yield* turn.submit({ ...ToolCall.make("own", "web", {}), providerExecuted: true })
        yield* TestClock.adjust(50)
        const outcomes = yield* done(turn, "length")
        const cut = "error/incomplete_response"
        assert.deepStrictEqual(words(outcomes), [
          "ok",
          "ok",
          ...Array.from({ length: 9 }, () => cut),
          "provider_executed"
        ])
        assert.deepStrictEqual(outcomes.map((one) => one.started).slice(0, 11), [
          true,
          true,
          ...Array.from({ length: 9 }, () => false)
        ])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["slow", "quick"])
        const result = yield* turn.result
        assert.strictEqual(result._tag, "Closed")
      })))

  it.effect("an id that comes again with other content: what had not begun is ambiguous, all places of it", () =>
    opened({}, {}, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("write", "w", ["k"], { id: "a" }))
        yield* turn.submit(call("write", "w", ["k"], { id: "a" }))
        yield* turn.submit(call("write", "other", ["k"], { id: "a" }))
        yield* turn.submit(call("write", "w", ["k"], { id: "b" }))
        yield* turn.submit(call("read", "r", ["l"], { id: "c" }))
        yield* TestClock.adjust(5)
        yield* turn.submit(call("read", "r2", ["l"], { id: "c" }))
        yield* turn.submit(ToolCall.make("d", "read", "{"))
        yield* turn.submit(ToolCall.make("d", "read", "{{"))
        yield* turn.submit(call("pay", "p", ["m"], { id: "e" }))
        yield* turn.submit(call("pay", "q", ["m"], { id: "e" }))
        const outcomes = yield* done(turn)
        const ambiguous = "error/ambiguous_id"
        assert.deepStrictEqual(words(outcomes), [
          ambiguous,
          ambiguous,
          ambiguous,
          "ok",
          "ok",
          ambiguous,
          ambiguous,
          ambiguous,
          ambiguous,
          ambiguous
        ])
        assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf), outcomes.map(() => undefined))
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "w"])
        assert.strictEqual((yield* turn.result)._tag, "Closed")
      })))

  it.effect("R11: a call whose first steps are being done when the list turns out to be none is not started", () =>
    Effect.gen(function*() {
      const middleware = [TurnMiddleware.make("slow", { before: () => Effect.sleep(50) })]
      const cases: ReadonlyArray<readonly [ToolCall.ToolCall, ToolCall.FinishReason, ReadonlyArray<string>]> = [
        [call("read", "b"), "length", ["error/incomplete_response", "error/incomplete_response"]],
        [call("read", "b", [], { id: "a" }), "tool-calls", ["error/ambiguous_id", "error/ambiguous_id"]]
      ]
      for (const [second, reason, expected] of cases) {
        yield* opened({}, { middleware }, (turn, book) =>
          Effect.gen(function*() {
            yield* turn.submit(call("read", "a"))
            yield* TestClock.adjust(10)
            yield* turn.submit(second)
            const outcomes = yield* done(turn, reason)
            assert.deepStrictEqual(words(outcomes), expected)
            assert.deepStrictEqual([book.runs, outcomes[0]!.started], [[], false])
          }))
      }
    }))

  it.effect("an ambiguous id: re-deliveries between the two contents are refused as well, held ones included", () =>
    opened({}, {}, (turn) =>
      Effect.gen(function*() {
        const calls = [
          ToolCall.make("bad", "read", "{"),
          ToolCall.make("bad", "read", "{"),
          ToolCall.make("bad", "read", "{{"),
          call("pay", "p", ["m"], { id: "held" }),
          call("pay", "p", ["m"], { id: "held" }),
          call("pay", "q", ["m"], { id: "held" }),
          call("write", "w", ["k"], { id: "other" }),
          call("write", "w", ["k"], { id: "w" }),
          call("write", "w", ["k"], { id: "w" }),
          call("write", "w2", ["k"], { id: "w" })
        ]
        for (const one of calls) yield* turn.submit(one)
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), calls.map(({ id }) => id === "other" ? "ok" : "error/ambiguous_id"))
        assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf), calls.map(() => undefined))
      })))

  it.effect("misuse is refused at submit, and changes nothing", () =>
    opened({}, {}, (turn) =>
      Effect.gen(function*() {
        for (const bad of [null, 7, {}, { id: "x" }, { id: 1, name: "read" }]) {
          const error = yield* Effect.flip(turn.submit(bad as any))
          assert.instanceOf(error, TurnError.TurnError)
        }
        yield* turn.submit(call("read", "a"))
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["ok"])
        assert.instanceOf(yield* Effect.flip(turn.submit(call("read", "b"))), TurnError.TurnError)
        // Only the first end counts.
        assert.strictEqual(yield* turn.end("length"), outcomes)
      })))

  it.effect("a handler that is not in the context is misuse of its call alone", () =>
    Effect.gen(function*() {
      const one = pipe(Tool.make("one", { success: Schema.String }), ToolPolicy.read({ keys: () => [] }))
      const two = pipe(Tool.make("two", { success: Schema.String }), ToolPolicy.read({ keys: () => [] }))
      const layer = Layer.merge(Toolkit.make(one).toLayer({ one: () => Effect.succeed("1") }), Turn.layer())
      yield* Effect.gen(function*() {
        const turn = yield* Turn.open(Toolkit.make(one, two))
        yield* turn.submit(ToolCall.make("a", "one"))
        const error = yield* Effect.flip(turn.submit(ToolCall.make("b", "two")))
        assert.include(error.message, "two")
        assert.deepStrictEqual(words(yield* turn.end()), ["ok"])
      }).pipe(Effect.scoped, Effect.provide(layer as Layer.Layer<any>))
    }) as Effect.Effect<void>)

  it.effect("impossible options are refused at once", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const error = yield* Effect.flip(
        Turn.open(toolkit, { execution: 0 }).pipe(Effect.scoped, Effect.provide(layer))
      )
      assert.instanceOf(error, TurnError.TurnError)
    }))
})

describe("R1, R4: stops of an online turn", () => {
  it.effect("after cancel, cancelOn and the deadline, later calls are answered cancelled; it closes with the list", () =>
    Effect.gen(function*() {
      const kinds: ReadonlyArray<readonly [string, Turn.Options, string]> = [
        ["cancelOn", { cancelOn: Effect.as(Effect.sleep(5), "user") }, "cancelled/by_caller"],
        ["deadline", { deadline: 5 }, "cancelled/by_deadline"]
      ]
      for (const [, options, word] of kinds) {
        yield* opened({ script: { a: { ms: 100 } } }, options, (turn, book) =>
          Effect.gen(function*() {
            yield* turn.submit(call("read", "a"))
            yield* turn.submit(call("write", "w"))
            yield* TestClock.adjust(10)
            yield* turn.submit(call("read", "late"))
            yield* turn.submit(call("pay", "held"))
            yield* turn.submit(call("ask", "asked", [], { n: 5 }))
            const waiting = yield* fork(turn.await)
            yield* TestClock.adjust(1000)
            assert.isUndefined(waiting.pollUnsafe())
            const outcomes = yield* done(turn)
            assert.deepStrictEqual(words(outcomes), [word, word, word, word, word])
            assert.deepStrictEqual(outcomes.map((one) => one.started), [true, false, false, false, false])
            assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["a"])
            assert.strictEqual(yield* ended(waiting), outcomes)
          }))
      }
    }))

  it.effect("R36: a runtime that closes first stops it, and waits for the end of its list as long as its grace", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ runtime: { shutdownGrace: 1000 } })
      const scope = yield* Scope.make()
      const closing = yield* fork(
        Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit, { onEvent: book.note })
          yield* turn.submit(call("read", "a"))
          yield* Effect.sleep(100)
          yield* turn.submit(call("write", "w"))
          return turn
        }).pipe(Scope.provide(scope), Effect.provide(layer))
      )
      yield* TestClock.adjust(1099)
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust(1)
      const turn = yield* ended(closing)
      assert.deepStrictEqual(words(yield* turn.await), ["ok", "cancelled/by_caller"])
      const error = yield* Effect.flip(turn.submit(call("read", "late")))
      assert.strictEqual(error.reason._tag, "ShutDown")
      yield* Scope.close(scope, Exit.void)
    }))

  it.effect("a stop after the end of the list is that of any turn", () =>
    opened({ script: { a: { ms: 100 }, w: { ms: 100 } } }, { deadline: 50 }, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("read", "a"))
        yield* turn.submit(call("write", "w"))
        yield* TestClock.adjust(10)
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "ok"])
        assert.deepStrictEqual([book.span("a"), book.span("w")], [[0, 50], [10, 110]])
      })))

  it.effect("cancel ends the list", () =>
    opened({ script: { a: { ms: 100 } } }, {}, (turn) =>
      Effect.gen(function*() {
        yield* turn.submit(call("read", "a"))
        yield* turn.submit(call("write", "w"))
        const cancelled = yield* fork(turn.cancel("user"))
        yield* TestClock.adjust(1)
        const outcomes = yield* ended(cancelled)
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
        assert.deepStrictEqual((outcomes[0] as Outcome.Cancelled).reason, "user")
        assert.instanceOf(yield* Effect.flip(turn.submit(call("read", "b"))), TurnError.TurnError)
      })))

  it.effect("an empty list is closed at its end, or by its scope", () =>
    Effect.gen(function*() {
      yield* opened({}, {}, (turn, book) =>
        Effect.gen(function*() {
          yield* TestClock.adjust(100)
          assert.deepStrictEqual(book.tagsOf("TurnEnded"), [])
          assert.deepStrictEqual(yield* turn.end(), [])
          assert.strictEqual(book.tagsOf("TurnEnded").length, 1)
        }))
      const { book, layer } = lab({ script: { w: { ms: 50 }, r: { ms: 50 } } })
      yield* Effect.gen(function*() {
        const scope = yield* Scope.make()
        const turn = yield* Turn.open(toolkit, { onEvent: book.note }).pipe(Scope.provide(scope))
        yield* turn.submit(call("read", "r"))
        yield* turn.submit(call("write", "w"))
        const closing = yield* fork(Scope.close(scope, Exit.void))
        yield* TestClock.adjust(10)
        yield* ended(closing)
        assert.deepStrictEqual(words(yield* turn.await), ["cancelled/by_caller", "cancelled/by_caller"])
        assert.deepStrictEqual(yield* (yield* Turn.Runtime).unsettled, [])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("interrupting an end does not stop the turn", () =>
    opened({ script: { w: { ms: 50 } } }, {}, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("write", "w"))
        const fiber = yield* fork(turn.end())
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(fiber)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* turn.await), ["ok"])
        assert.deepStrictEqual(book.span("w"), [0, 50])
      })))

  it.effect("cancelCall: on one that waits for the end, on a running one, on a held one; false for what is answered", () =>
    opened({ script: { r: { ms: 100 } } }, {}, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("write", "w", ["k"]))
        yield* turn.submit(call("read", "behind", ["k"]))
        yield* turn.submit(call("read", "r"))
        yield* turn.submit(call("pay", "p", ["m"]))
        yield* turn.submit(call("read", "quick"))
        yield* TestClock.adjust(20)
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "quick"])
        assert.isTrue(yield* turn.cancelCall("w", "user"))
        assert.isFalse(yield* turn.cancelCall("w", "user"))
        assert.isTrue(yield* turn.cancelCall(2, "user"))
        assert.isTrue(yield* turn.cancelCall("p", "user"))
        assert.isFalse(yield* turn.cancelCall("quick"))
        assert.isFalse(yield* turn.cancelCall(9))
        assert.isFalse(yield* turn.cancelCall(-1))
        yield* TestClock.adjust(10)
        // What waited for the write alone has started: it is a read.
        assert.deepStrictEqual(book.span("behind"), [20, 30])
        const outcomes = yield* done(turn)
        const cancelled = "cancelled/by_caller"
        assert.deepStrictEqual(words(outcomes), [cancelled, "ok", cancelled, cancelled, "ok"])
        assert.strictEqual((yield* turn.result)._tag, "Closed")
      })))

  it.effect("fail-fast: an early read that fails starts nothing more of its unit", () =>
    opened(
      { script: { bad: { ms: 5, end: "fail" } } },
      { siblings: Siblings.failFast },
      (turn, book) =>
        Effect.gen(function*() {
          yield* turn.submit(call("read", "bad"))
          yield* turn.submit(call("write", "w"))
          yield* TestClock.adjust(10)
          yield* turn.submit(call("read", "late"))
          yield* turn.submit(call("pay", "held"))
          const outcomes = yield* done(turn)
          assert.deepStrictEqual(words(outcomes), [
            "error/failed",
            "cancelled/by_sibling",
            "cancelled/by_sibling",
            "pending_approval"
          ])
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["bad"])
        })
    ))

  it.effect("the layer's end stops an open turn; submitting and ending still answer every call", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const scope = yield* Scope.make()
        const context = yield* Layer.buildWithScope(layer, scope)
        yield* Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit, { onEvent: book.note })
          yield* turn.submit(call("write", "w"))
          const closing = yield* fork(Scope.close(scope, Exit.void))
          yield* TestClock.adjust(10)
          yield* turn.submit(call("read", "r"))
          const outcomes = yield* done(turn)
          assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
          yield* ended(closing)
        }).pipe(Effect.scoped, Effect.provide(context))
      })
    }))
})

/** A read whose arguments take |n| ms to decode; below 0 they are refused then, and at 0 it takes for ever. */
const Slow = pipe(
  Tool.make("slow", {
    parameters: Schema.Struct({ tag: Schema.String, n: Schema.Finite, deaf: Schema.optionalKey(Schema.Boolean) }).pipe(
      Schema.decode({
        decode: SchemaGetter.checkEffect(({ deaf, n }) => {
          const wait = n === 0 ? Effect.never : Effect.as(Effect.sleep(Math.abs(n)), n > 0 ? true : "below 0")
          return deaf === true ? Effect.uninterruptible(wait) : wait
        }),
        encode: SchemaGetter.passthrough()
      })
    ),
    success: Schema.String
  }),
  ToolPolicy.read({ keys: () => [] })
)
const Quick = pipe(
  Tool.make("quick", { parameters: Schema.Struct({ tag: Schema.String }), success: Schema.String }),
  ToolPolicy.read({ keys: () => [] })
)

describe("R13: arguments that take time to decode", () => {
  const slowTurn = <A>(
    options: Omit<Turn.Options, "finishReason">,
    use: (turn: Turn.Online<any>, ran: Array<string>) => Effect.Effect<A, any, any>
  ) => {
    const kit = Toolkit.make(Slow, Quick)
    const ran: Array<string> = []
    const handler = ({ tag }: { readonly tag: string }) => Effect.sync(() => (ran.push(tag), tag))
    const layer = Layer.merge(kit.toLayer({ slow: handler, quick: handler }), Turn.layer())
    return Effect.flatMap(Turn.open(kit, options), (turn) => use(turn, ran)).pipe(
      Effect.scoped,
      Effect.provide(layer)
    ) as Effect.Effect<A>
  }
  const slow = (tag: string, n: number, more?: object) => ToolCall.make(tag, "slow", { tag, n, ...more })
  const quick = (tag: string) => ToolCall.make(tag, "quick", { tag })

  it.effect("hold up those behind, so that places are taken in the order of coming", () =>
    slowTurn({}, (turn, ran) =>
      Effect.gen(function*() {
        yield* turn.submit(quick("a"))
        yield* turn.submit(slow("b", 20))
        yield* turn.submit(quick("c"))
        yield* turn.submit(slow("d", -20))
        yield* turn.submit(quick("e"))
        assert.deepStrictEqual(ran, ["a"])
        yield* TestClock.adjust(20)
        assert.deepStrictEqual(ran, ["a", "b", "c"])
        const fiber = yield* fork(turn.end())
        yield* TestClock.adjust(10)
        assert.isUndefined(fiber.pollUnsafe())
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(words(yield* ended(fiber)), ["ok", "ok", "ok", "error/invalid_arguments", "ok"])
        assert.deepStrictEqual(ran, ["a", "b", "c", "e"])
      })))

  it.effect("cancelCall on one in the queue: it is not run, once it is taken in", () =>
    slowTurn({}, (turn, ran) =>
      Effect.gen(function*() {
        yield* turn.submit(slow("a", 20))
        yield* turn.submit(quick("b"))
        assert.isTrue(yield* turn.cancelCall("a", "user"))
        assert.isTrue(yield* turn.cancelCall("b", "user"))
        assert.isFalse(yield* turn.cancelCall("b", "user"))
        const fiber = yield* fork(turn.end())
        yield* TestClock.adjust(20)
        assert.deepStrictEqual(words(yield* ended(fiber)), ["cancelled/by_caller", "cancelled/by_caller"])
        assert.deepStrictEqual(ran, [])
      })))

  it.effect("a cut-short end runs nothing of them, also where one is ready long before the next", () =>
    slowTurn({}, (turn, ran) =>
      Effect.gen(function*() {
        yield* turn.submit(slow("a", 10))
        yield* turn.submit(slow("b", 50))
        const fiber = yield* fork(turn.end("length"))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(fiber)), [
          "error/incomplete_response",
          "error/incomplete_response"
        ])
        assert.deepStrictEqual(ran, [])
      })))

  it.effect("a cut-short end waits for them, and runs nothing of them", () =>
    slowTurn({}, (turn, ran) =>
      Effect.gen(function*() {
        yield* turn.submit(slow("a", 20))
        yield* turn.submit(quick("b"))
        const fiber = yield* fork(turn.end("length"))
        yield* TestClock.adjust(20)
        assert.deepStrictEqual(words(yield* ended(fiber)), ["error/incomplete_response", "error/incomplete_response"])
        assert.deepStrictEqual(ran, [])
      })))

  for (const deaf of [false, true]) {
    it.effect(`a stop does not wait for them${deaf ? ", also where they do not hear it" : ""}`, () =>
      slowTurn({ grace: 50 }, (turn, ran) =>
        Effect.gen(function*() {
          yield* turn.submit(slow("a", 0, { deaf }))
          yield* turn.submit(quick("b"))
          yield* turn.submit(slow("c", 0, { deaf }))
          const fiber = yield* fork(turn.cancel("user"))
          yield* TestClock.adjust(60)
          assert.deepStrictEqual(words(yield* ended(fiber)), [
            "cancelled/by_caller",
            "cancelled/by_caller",
            "cancelled/by_caller"
          ])
          assert.deepStrictEqual(ran, [])
        })))
  }

  it.effect("a stop before the end of the list, too: later calls are answered, and the list can be ended", () =>
    slowTurn({ deadline: 10 }, (turn, ran) =>
      Effect.gen(function*() {
        yield* turn.submit(slow("a", 0))
        yield* TestClock.adjust(10)
        yield* turn.submit(quick("b"))
        yield* turn.submit(slow("c", 0))
        const fiber = yield* fork(turn.end())
        yield* TestClock.adjust(1)
        assert.deepStrictEqual(words(yield* ended(fiber)), [
          "cancelled/by_deadline",
          "cancelled/by_deadline",
          "cancelled/by_deadline"
        ])
        assert.deepStrictEqual(ran, [])
      })))
})

describe("R12, R14: online turns among others", () => {
  it.effect("two online turns that share keys keep the order in which their calls came", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { r: { ms: 30 } } })
      yield* Effect.gen(function*() {
        const first = yield* Turn.open(toolkit)
        const second = yield* Turn.open(toolkit)
        yield* first.submit(call("write", "w1", ["k"]))
        yield* second.submit(call("read", "r", ["k"]))
        yield* first.submit(call("read", "r1", ["k"]))
        yield* second.submit(call("write", "w2", ["k"]))
        const b = yield* fork(second.end())
        yield* TestClock.adjust(50)
        assert.deepStrictEqual(book.runs, [])
        const a = yield* fork(first.end())
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(a)), ["ok", "ok"])
        assert.deepStrictEqual(words(yield* ended(b)), ["ok", "ok"])
        assert.deepStrictEqual(
          [book.span("w1"), book.span("r"), book.span("r1"), book.span("w2")],
          [[50, 60], [60, 90], [60, 70], [90, 100]]
        )
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("an online turn inside a handler inherits keys and permits; what waits for its end is no deadlock", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      book.script.set("outer", {
        run: Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit)
          yield* turn.submit(call("post", "w", ["k"]))
          yield* turn.submit(call("fetch", "r", ["k"]))
          yield* Effect.sleep(20)
          return words(yield* turn.end())
        }).pipe(Effect.scoped, Effect.orDie)
      })
      yield* Effect.gen(function*() {
        const fiber = yield* fork(run([call("post", "outer", ["k"])]))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual((yield* ended(fiber)).map((one: any) => one.result), [["ok", "ok"]])
        assert.deepStrictEqual([book.span("w"), book.span("r")], [[20, 30], [30, 40]])
        assert.deepStrictEqual(yield* Api.stats, idle(1))
      }).pipe(Effect.provide(layer))
    }))

  it.effect("an online turn that its handler forgets is stopped with it", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      book.script.set("outer", {
        run: Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit)
          yield* turn.submit(call("write", "w", ["k"]))
          yield* turn.submit(call("read", "r"))
          yield* Effect.sleep(5)
          return "left"
        }).pipe(Effect.scoped, Effect.orDie)
      })
      yield* Effect.gen(function*() {
        const fiber = yield* fork(run([call("read", "outer", ["k"]), call("write", "next", ["k"])]))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(fiber)), ["ok", "ok"])
        assert.deepStrictEqual(book.count("w"), 0)
        assert.deepStrictEqual(book.of("r").end, "interrupt")
      }).pipe(Effect.provide(layer))
    }))
})

const someCall = Arbitrary.all({
  name: pick<Name>("read", "write", "put", "look", "bare", "fetch", "post", "find", "save", "pay", "ask"),
  k: Arbitrary.flatMap(
    pick(true, false),
    (few) => few ? Arbitrary.array(pick<string>("a", "b"), { maxLength: 2 }) : keys
  ),
  n: pick(5, -5, 15, -15),
  args: pick("own", "own", "own", "own", "shared", "invalid", "text", "placeholder", "unknown"),
  /** `again`: a re-delivery of an earlier call. */
  id: pick("own", "own", "own", "empty", "again"),
  ms: pick(10, 0, 1, 7, 20, 33),
  end: pick("ok", "ok", "ok", "fail", "die", "interrupt"),
  /** How long after the call before it it comes. */
  gap: pick(0, 0, 3, 10, 25)
})
type SomeCall = typeof someCall["~A"] extends (_: never) => infer A ? A : never

const callsOf = (specs: ReadonlyArray<SomeCall>): ReadonlyArray<ToolCall.ToolCall> => {
  const calls: Array<ToolCall.ToolCall> = []
  for (const [i, one] of specs.entries()) {
    const id = one.id === "empty" ? "" : `c${i}`
    const named = calls.filter((call) => call.id !== "")
    if (one.id === "again" && named.length > 0) {
      calls.push(named[i % named.length]!)
      continue
    }
    switch (one.args) {
      case "invalid":
        calls.push(ToolCall.make(id, one.name, { tag: 7 }))
        break
      case "text":
        calls.push(ToolCall.make(id, one.name, '{"tag":'))
        break
      case "placeholder":
        calls.push(ToolCall.make(id, one.name, { tag: "<pending>" }))
        break
      case "unknown":
        calls.push(ToolCall.make(id, "nobody", { tag: "x" }))
        break
      default: {
        const shared = one.args === "shared"
        const more = one.name === "ask" ? { id, n: one.n } : { id }
        calls.push(call(one.name, shared ? `shared-${one.name}` : `t-${i}`, shared ? ["a"] : one.k, more))
      }
    }
  }
  return calls
}

const scriptOf = (specs: ReadonlyArray<SomeCall>) => {
  const script: Record<string, { readonly ms: number; readonly end: SomeCall["end"] }> = {}
  for (const [i, { end, ms, name }] of specs.entries()) {
    script[`t-${i}`] = { ms, end }
    script[`shared-${name}`] ??= { ms, end }
  }
  return script
}

/** What is told of a call, without the words that name times. */
const told = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) =>
  outcomes.map(({ duplicateOf, effect, id, name, position, retryable, started }, i) => [
    position,
    id,
    name,
    words(outcomes)[i],
    started,
    effect,
    retryable,
    duplicateOf?.position
  ])

const reachOf = (ran: Ran) => ({ write: ToolPolicy.get(tools[ran.tool]).access === "write", keys: ran.keys })

/** For each pair of runs that conflict: which came first. */
const orderOf = (book: Book) => {
  const ran = book.runs.toSorted((a, b) => a.position - b.position)
  return ran.flatMap((later, i) =>
    ran.slice(0, i).filter((earlier) => conflict(reachOf(earlier), reachOf(later))).map((earlier) => {
      assert.isBelow(earlier.ended!, later.began, `${later.tag} overlaps ${earlier.tag}`)
      return [earlier.tag, later.tag]
    })
  )
}

const limits = { api: { concurrency: 2 }, crm: { concurrency: 3, perTenant: 1 } } as const

/** Submits calls one by one, with their gaps, and ends the list. */
const submitting = (turn: Open, specs: ReadonlyArray<SomeCall>, reason?: ToolCall.FinishReason) =>
  Effect.gen(function*() {
    for (const [i, one] of callsOf(specs).entries()) {
      yield* Effect.sleep(specs[i]!.gap)
      yield* turn.submit(one)
    }
    yield* Effect.sleep(specs[0]?.gap ?? 0)
    return yield* turn.end(reason)
  })

describe("an online turn, whatever its calls and whenever they come", () => {
  it.effect.prop(
    "R13: what comes out, what runs and in which order per key is the same as if all had been known",
    {
      specs: Arbitrary.array(someCall, { maxLength: 9 }),
      execution: pick<"parallel" | "sequential" | number>("parallel", "parallel", "sequential", 1, 2),
      dedupe: pick<"all" | "reads" | "off">("all", "all", "reads", "off"),
      amounts: pick<undefined | Turn.Options["amounts"]>(undefined, undefined, { calls: 4 }, { perTool: 1 })
    },
    ({ amounts, dedupe, execution, specs }) =>
      Effect.gen(function*() {
        const options: Turn.Options = { execution, dedupe, amounts }
        const known = lab({ ...limits, script: scriptOf(specs) })
        const atOnce = yield* fork(run(callsOf(specs), options).pipe(Effect.provide(known.layer)))
        yield* TestClock.adjust(100_000)
        const expected = yield* ended(atOnce)
        const { book, layer } = lab({ ...limits, script: scriptOf(specs) })
        const fiber = yield* fork(
          Effect.flatMap(Turn.open(toolkit, { ...options, onEvent: book.note }), (turn) => submitting(turn, specs))
            .pipe(
              Effect.scoped,
              Effect.provide(layer)
            )
        )
        yield* TestClock.adjust(100_000)
        const outcomes = yield* ended(fiber)
        assert.deepStrictEqual(told(outcomes), told(expected))
        assert.deepStrictEqual(
          book.runs.map((ran) => ran.tag).toSorted(),
          known.book.runs.map((ran) => ran.tag).toSorted()
        )
        assert.deepStrictEqual(orderOf(book), orderOf(known.book))
        const answers = book.tagsOf("CallEnded").map((event: any) => event.position).toSorted((a, b) => a - b)
        assert.deepStrictEqual(answers, outcomes.map((_, i) => i))
      }),
    runs(600)
  )

  it.effect.prop(
    "R11, R13: before the end nothing but reads has begun, and after a cut-short end nothing begins",
    { specs: Arbitrary.array(someCall, { maxLength: 9 }), cut: pick(true, false) },
    ({ cut, specs }) =>
      Effect.gen(function*() {
        const { book, layer } = lab({ ...limits, script: scriptOf(specs) })
        let end = -1
        const fiber = yield* fork(
          Effect.gen(function*() {
            const turn = yield* Turn.open(toolkit)
            for (const [i, one] of callsOf(specs).entries()) {
              yield* Effect.sleep(specs[i]!.gap)
              yield* turn.submit(one)
            }
            yield* Effect.sleep(7)
            end = book.tick()
            return yield* turn.end(cut ? "content-filter" : "tool-calls")
          }).pipe(Effect.scoped, Effect.provide(layer))
        )
        yield* TestClock.adjust(100_000)
        const outcomes = yield* ended(fiber)
        for (const ran of book.runs) {
          if (ran.began < end) assert.strictEqual(ToolPolicy.get(tools[ran.tool]).access, "read")
          else assert.isFalse(cut)
        }
        const began = new Set(book.runs.map((ran) => ran.position))
        for (const one of outcomes) {
          if (began.has(one.duplicateOf?.position ?? one.position)) assert.isTrue(one.started)
          else if (cut) assert.strictEqual(words([one])[0], "error/incomplete_response")
        }
      }),
    runs(200)
  )

  it.effect("under exploration: every call is answered once, nothing is left or held", () =>
    Effect.gen(function*() {
      const someStop = Arbitrary.all({
        kind: pick("none", "none", "cancel", "deadline", "cancelOn", "scope", "cut", "calls"),
        at: int(0, 40)
      })
      const options = (stop: { readonly kind: string; readonly at: number }): Turn.Options => ({
        grace: 30,
        ...(stop.kind === "deadline" ? { deadline: Math.max(1, stop.at) } : undefined),
        ...(stop.kind === "cancelOn" ? { cancelOn: Effect.as(Effect.sleep(stop.at), "user") } : undefined)
      })
      yield* Simulation.forAll(
        Arbitrary.all({
          specs: Arbitrary.array(someCall, { maxLength: 6 }),
          stop: someStop,
          siblings: pick("letFinish", "failFast"),
          limit: pick<"parallel" | number>("parallel", 1, 2)
        }),
        ({ limit, siblings, specs, stop }) =>
          Effect.suspend(() => {
            const { book, layer } = lab({ ...limits, script: scriptOf(specs) })
            const closed: Array<Turn.Closed> = []
            return Effect.gen(function*() {
              const scope = yield* Scope.make()
              const turn = yield* Turn.open(toolkit, {
                ...options(stop),
                siblings: siblings === "failFast" ? Siblings.failFast : Siblings.letFinish,
                execution: limit,
                onEvent: book.note,
                onClosed: (one) => Effect.sync(() => void closed.push(one))
              }).pipe(Scope.provide(scope))
              const submitter = yield* Effect.forkChild(
                Effect.exit(submitting(turn, specs, stop.kind === "cut" ? "length" : undefined))
              )
              if (stop.kind === "cancel") yield* Effect.delay(turn.cancel("user"), stop.at)
              if (stop.kind === "scope") yield* Effect.delay(Scope.close(scope, Exit.void), stop.at)
              if (stop.kind === "calls") {
                yield* Effect.sleep(stop.at)
                for (const position of [0, 2, 3]) yield* turn.cancelCall(position, "one")
              }
              const exit = yield* Fiber.join(submitter)
              // A call may come too late, where the list was ended by a stop.
              if (Exit.isFailure(exit)) assert.include(["cancel", "scope"], stop.kind)
              const outcomes = yield* turn.await
              assert.strictEqual(closed.length, 1)
              assert.strictEqual(closed[0]!.outcomes, outcomes)
              assert.deepStrictEqual(outcomes.map((one) => one.position), outcomes.map((_, i) => i))
              if (Exit.isSuccess(exit)) assert.strictEqual(outcomes.length, specs.length)
              const answers = book.tagsOf("CallEnded").map((event: any) => event.position)
              assert.deepStrictEqual(answers.toSorted((a, b) => a - b), outcomes.map((_, i) => i))
              yield* Effect.sleep(1000)
              assert.deepStrictEqual(book.atWork, [])
              assert.strictEqual(new Set(book.runs.map((ran) => ran.position)).size, book.runs.length)
              orderOf(book)
              assert.deepStrictEqual(yield* Api.stats, idle(2))
              const last = yield* run([call("bare", "last")])
              assert.deepStrictEqual(words(last), ["ok"])
              yield* Scope.close(scope, Exit.void)
            }).pipe(Effect.provide(layer))
          }),
        { inputs: 150, seeds: 4 }
      )
    }), 60_000)
})

describe("R10: approvals of an online turn", () => {
  it.effect("decide is asked as calls come; a result that waits is parked, and resumed", () =>
    opened(
      {},
      { decide: ({ id }) => id === "yes" ? Approval.approve() : undefined },
      (turn, book) =>
        Effect.gen(function*() {
          yield* turn.submit(call("pay", "yes", ["k"]))
          yield* turn.submit(call("pay", "p", ["l"]))
          yield* turn.submit(call("read", "behind", ["l"]))
          yield* turn.submit(call("read", "free"))
          yield* TestClock.adjust(100)
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["free"])
          yield* done(turn)
          const result = yield* turn.result
          assert.deepStrictEqual(words(result.outcomes), [
            "ok",
            "pending_approval",
            "deferred/waits_for_approval",
            "ok"
          ])
          if (result._tag !== "Parked") throw new Error("expected a parked turn")
          assert.deepStrictEqual(result.parked.requests.map((request) => request.id), ["p"])
          const resumed = yield* fork(
            Turn.resume(toolkit, result.parked, { decisions: [{ position: 1, decision: Approval.approve() }] })
          )
          yield* TestClock.adjust(100)
          assert.deepStrictEqual(words((yield* ended(resumed)).outcomes), ["ok", "ok", "ok", "ok"])
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["free", "yes", "p", "behind"])
        })
    ))

  it.effect("one that will be deferred does not run out of its time to wait before the list has ended", () =>
    opened({}, {}, (turn) =>
      Effect.gen(function*() {
        yield* turn.submit(call("ask", "p", ["k"], { n: -10 }))
        yield* turn.submit(call("read", "behind", ["k"]))
        yield* TestClock.adjust(70_000)
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["pending_approval", "deferred/waits_for_approval"])
      })))

  it.effect("R15: a read that waits for its keys has a clock, from when it came", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { w: { ms: 100_000 } } })
      yield* Effect.gen(function*() {
        yield* fork(run([call("write", "w", ["k"])]))
        const turn = yield* Turn.open(toolkit, { onEvent: book.note })
        yield* TestClock.adjust(500)
        yield* turn.submit(call("read", "r", ["k"]))
        yield* TestClock.adjust(59_999)
        assert.deepStrictEqual(book.tagsOf("CallEnded"), [])
        yield* TestClock.adjust(1)
        assert.deepStrictEqual(book.tagsOf("CallEnded").map((event: any) => words([event.outcome])[0]), [
          "timeout/queue"
        ])
        yield* done(turn)
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("the deadline of a turn counts before its first call", () =>
    opened({}, { deadline: "1 second" }, (turn, book) =>
      Effect.gen(function*() {
        yield* TestClock.adjust(1_000)
        assert.strictEqual(book.tagsOf("TurnStopped").length, 1)
        yield* turn.submit(call("read", "late"))
        assert.deepStrictEqual(words(yield* done(turn)), ["cancelled/by_deadline"])
      })))

  it.effect("nor does a write that waits for the end; its clock runs from there", () =>
    opened({ script: { a: { ms: 70_000 } } }, {}, (turn, book) =>
      Effect.gen(function*() {
        yield* turn.submit(call("write", "w", ["k"]))
        yield* TestClock.adjust(70_000)
        yield* turn.submit(call("pay", "p"))
        const outcomes = yield* done(turn)
        assert.deepStrictEqual(words(outcomes), ["ok", "pending_approval"])
        assert.deepStrictEqual(book.span("w"), [70_000, 70_010])
      })))

  it.effect("a sleeping question is over with a stop", () =>
    opened({}, { decide: () => Effect.never }, (turn) =>
      Effect.gen(function*() {
        yield* turn.submit(call("pay", "p", ["k"]))
        const gate = yield* Deferred.make<void>()
        const fiber = yield* fork(Effect.andThen(turn.cancel("user"), Deferred.succeed(gate, undefined)))
        yield* TestClock.adjust(1)
        yield* ended(fiber)
        assert.deepStrictEqual(words(yield* turn.await), ["cancelled/by_caller"])
      })))
})
