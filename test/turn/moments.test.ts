/** When exactly things happen in a turn, and what becomes of those that meet in one moment. */
import { assert, describe, it } from "@effect/vitest"
import { Siblings, ToolCall, ToolPolicy, Turn, type TurnEvent } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as SchemaTransformation from "effect/SchemaTransformation"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { Api, call, drive, ended, fork, journalOf, lab, run, runWith, toolkit, words } from "../utils/kit.ts"

const keyed = { keys: () => [] }

/** How long an effect takes in virtual time, with what it gives. */
const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const start = yield* Clock.currentTimeMillis
    const value = yield* effect
    return [value, (yield* Clock.currentTimeMillis) - start] as const
  })

/** Arguments that take this long to be decoded. */
const slow = (ms: number) =>
  Schema.String.pipe(
    Schema.decodeTo(
      Schema.String,
      SchemaTransformation.transformEffect({
        decode: (text: string) => ms === Infinity ? Effect.never : Effect.as(Effect.sleep(ms), text),
        encode: (text: string) => Effect.succeed(text)
      })
    )
  )

const slowTool = (ms: number) =>
  pipe(
    Tool.make("slow", { parameters: Schema.Struct({ text: slow(ms) }), success: Schema.Unknown }),
    ToolPolicy.read(keyed)
  )
const done = { slow: () => Effect.succeed("done") }
const slowCall = (id: string) => ToolCall.make(id, "slow", { text: id })

/** The warnings of an effect, by their words. */
const warnings = <A, E, R>(effect: Effect.Effect<A, E, R>) => {
  const texts: Array<string> = []
  const logger = Logger.make(({ message }) => {
    texts.push(String(Array.isArray(message) ? message[0] : message))
  })
  return Effect.as(Effect.provide(effect, Logger.layer([logger])), texts)
}

describe("clocks", () => {
  it.effect("R15: one that got its permit late runs for its own time, and not a moment more", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { a: { ms: 9_000 }, b: { ms: Infinity } } })
      yield* Effect.gen(function*() {
        yield* fork(Api.withPermit(Effect.sleep(20_000)))
        const turn = yield* fork(timed(run([call("fetch", "a"), call("fetch", "b")])))
        yield* TestClock.adjust(1_000_000)
        const [outcomes, took] = yield* ended(turn)
        assert.deepStrictEqual(words(outcomes), ["ok", "timeout/handler"])
        assert.deepStrictEqual([book.span("a"), book.span("b")], [[20_000, 29_000], [29_000, 39_000]])
        book.runs.length = 0
        assert.strictEqual(took, 39_000)
        yield* fork(Api.withPermit(Effect.sleep(1_000)))
        const alone = yield* fork(timed(run([call("fetch", "b")])))
        yield* TestClock.adjust(1_000_000)
        const [late, after] = yield* ended(alone)
        assert.deepStrictEqual([words(late), after], [["timeout/handler"], 11_000])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("R15: one that is set after others have run out is kept", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: Infinity }, w: { ms: 15_000 }, c: { ms: Infinity } } })
      const [outcomes, took] = yield* drive(
        timed(run([call("read", "a"), call("write", "w", ["k"]), call("put", "c", ["k"])])).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual([words(outcomes), took], [["timeout/handler", "ok", "timeout/handler"], 25_000])
    }))

  it.effect("R15: silence is counted from the last note", () =>
    Effect.gen(function*() {
      const chatty = pipe(
        Tool.make("chatty", { parameters: Schema.Struct({}), success: Schema.Unknown }),
        ToolPolicy.read(keyed),
        ToolPolicy.idleTimeout(1_000)
      )
      const speak = (_: unknown, { preliminary }: any) =>
        Effect.gen(function*() {
          yield* Effect.sleep(600)
          yield* preliminary("first")
          yield* Effect.sleep(900)
          yield* preliminary("second")
          return yield* Effect.never
        })
      const [outcomes, took] = yield* drive(timed(runWith([chatty], { chatty: speak }, [ToolCall.make("a", "chatty")])))
      assert.deepStrictEqual([words(outcomes), took], [["timeout/handler"], 2_500])
    }))

  it.effect("R15: waiting is timed also where the turn was looked at before its calls were known", () =>
    Effect.gen(function*() {
      const tool = pipe(slowTool(30), ToolPolicy.on(Api))
      yield* Effect.gen(function*() {
        yield* fork(Api.withPermit(Effect.never))
        const [outcomes, took] = yield* drive(
          timed(runWith([tool], done, [slowCall("a")], { cancelOn: Effect.interrupt }))
        )
        assert.deepStrictEqual([words(outcomes), took], [["timeout/queue"], 60_030])
      }).pipe(Effect.provide(Api.layer({ concurrency: 1 })))
    }))

  it.effect("R33: what an event says a call waited for is counted from the turn's own beginning", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { a: { ms: 20 } } })
      yield* TestClock.adjust(7_000)
      yield* drive(
        run([call("post", "a", ["k"]), call("post", "b", ["k"]), call("fetch", "c")], { onEvent: book.note }).pipe(
          Effect.provide(layer)
        )
      )
      const started = book.tagsOf("CallStarted") as ReadonlyArray<TurnEvent.CallStarted>
      assert.deepStrictEqual(started.map(({ id, waited }) => [id, waited.keys, waited.permit]), [
        ["a", 0, 0],
        ["b", 20, 0],
        ["c", 0, 30]
      ])
      assert.strictEqual(new Set(book.events.map(({ turn }) => turn)).size, 1)
    }))
})

describe("R33: what is no waiting for keys or permits", () => {
  const waitedOf = (events: ReadonlyArray<TurnEvent.TurnEvent>) =>
    events.flatMap((event) => event._tag === "CallStarted" ? [[event.waited.keys, event.waited.permit]] : [])

  it.effect("an approval that had to be found out, and a start that had to be written down", () =>
    Effect.gen(function*() {
      const asked = lab()
      yield* drive(
        run([call("ask", "a", ["k"], { n: 20 })], { onEvent: asked.book.note }).pipe(Effect.provide(asked.layer))
      )
      assert.deepStrictEqual(waitedOf(asked.book.events), [[0, 0]])
      const kept = lab({ api: { concurrency: 1 } })
      const journal = journalOf({
        reserve: () => Effect.sleep(30),
        settle: () => Effect.void,
        free: () => Effect.void
      })
      yield* drive(
        run([call("fetch", "a", ["k"])], { onEvent: kept.book.note }).pipe(Effect.provide([kept.layer, journal]))
      )
      assert.deepStrictEqual(waitedOf(kept.book.events), [[0, 0]])
    }))
})

describe("the intake takes time", () => {
  it.effect("R15, R17: a stop ends it at once, and every call is answered", () =>
    Effect.gen(function*() {
      const calls = [slowCall("a"), { ...slowCall("b"), providerExecuted: true }]
      for (const options of [{ deadline: 50 }, { cancelOn: Effect.sleep(50) }]) {
        const [outcomes, took] = yield* drive(timed(runWith([slowTool(Infinity)], done, calls, options)))
        const by = "deadline" in options ? "cancelled/by_deadline" : "cancelled/by_caller"
        assert.deepStrictEqual([words(outcomes), took], [[by, "provider_executed"], 50])
        const tags: Array<string> = []
        const onEvent = ({ _tag }: TurnEvent.TurnEvent) => {
          tags.push(_tag)
        }
        yield* drive(runWith([slowTool(Infinity)], done, calls, { ...options, onEvent }))
        assert.deepStrictEqual(tags, ["TurnStopped", "CallEnded", "CallEnded", "TurnEnded"])
      }
    }))

  it.effect("R19: a call that was stopped on its own meanwhile keeps its own reason", () =>
    Effect.gen(function*() {
      const kit = Tool.make("slow", { parameters: Schema.Struct({ text: slow(Infinity) }), success: Schema.Unknown })
      const outcomes = yield* drive(
        Effect.gen(function*() {
          const handle = yield* started([kit], done, [slowCall("a"), slowCall("b")])
          yield* Effect.sleep(10)
          assert.deepStrictEqual(
            yield* Effect.forEach([-1, 2, 3, "c"], (at) => handle.cancelCall(at)),
            [false, false, false, false]
          )
          assert.isTrue(yield* handle.cancelCall(0, "not that one"))
          assert.isFalse(yield* handle.cancelCall("a"))
          return yield* handle.cancel("enough")
        }).pipe(Effect.scoped)
      )
      assert.deepStrictEqual(outcomes.map(({ reason }: any) => reason), ["not that one", "enough"])
    }))

  it.effect("R1: a turn without calls that was stopped before it began is closed", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      assert.deepStrictEqual(yield* drive(run([], { cancelOn: Effect.void }).pipe(Effect.provide(layer))), [])
    }))
})

/** Starts a turn of tools that a test makes itself. */
const started = (
  made: ReadonlyArray<Tool.Any>,
  handlers: Record<string, (params: any, context: any) => any>,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options?: Turn.Options
): Effect.Effect<Turn.Handle<any>, never, Scope.Scope> => {
  const kit = Toolkit.make(...(made as ReadonlyArray<any>))
  const layer = Layer.mergeAll(kit.toLayer(handlers as any), Turn.layer()) as Layer.Layer<any>
  return Effect.flatMap(
    Layer.build(layer),
    (context) => Effect.provide(Turn.start(kit, calls, options), context)
  ) as any
}

describe("a stop from inside", () => {
  /** Runs a call whose handler stops it, at its first line or in its first step. */
  const stopping = (handler: (stop: () => void) => any, options?: Turn.Options) =>
    drive(
      Effect.gen(function*() {
        let handle: Turn.Handle<any> | undefined
        const tool = pipe(
          Tool.make("t", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.Unknown }),
          ToolPolicy.write({ keys: () => ["k"] }),
          ToolPolicy.forward(() => "key")
        )
        const stop = () => {
          Effect.runSync(handle!.cancelCall(1))
        }
        handle = yield* started(
          [tool],
          { t: ({ n }) => n === 0 ? Effect.sleep(10) : handler(stop) },
          [ToolCall.make("a", "t", { n: 0 }), ToolCall.make("b", "t", { n: 1 })],
          options
        )
        const [outcomes, took] = yield* timed(handle.await)
        return { outcome: outcomes[1] as any, took }
      }).pipe(Effect.scoped)
    )

  it.effect("R3, R21: a call that is stopped from its handler's own first lines has started", () =>
    Effect.gen(function*() {
      const { outcome, took } = yield* stopping((stop) => {
        stop()
        return Effect.never
      })
      assert.deepStrictEqual([words([outcome]), outcome.started, outcome.effect, took], [
        ["cancelled/by_caller"],
        true,
        "unknown",
        10
      ])
    }))

  it.effect("R20: one that stops itself in its first step and goes on regardless gets its grace", () =>
    Effect.gen(function*() {
      const { outcome, took } = yield* stopping(
        (stop) => Effect.uninterruptible(Effect.andThen(Effect.sync(stop), Effect.never)),
        {
          grace: 3_000
        }
      )
      assert.deepStrictEqual([words([outcome]), outcome.effect, took], [["cancelled/by_caller"], "unknown", 3_010])
    }))

  it.effect("R20: what it came to by itself, after it was stopped in its first step, is told of a write", () =>
    Effect.gen(function*() {
      const { outcome, took } = yield* stopping((stop) => {
        stop()
        return Effect.succeed("done")
      })
      assert.deepStrictEqual([words([outcome]), outcome.result, took], [["ok"], "done", 10])
    }))
})

describe("stopping one call", () => {
  it.effect("R10: a held one is answered at once, and the turn goes on for the others", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { b: { ms: 50 } } })
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [call("pay", "a", ["k"]), call("read", "b")])
        const end = yield* fork(timed(handle.await))
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall(0))
        assert.isFalse(yield* handle.cancelCall(0))
        yield* TestClock.adjust(100)
        const [outcomes, took] = yield* ended(end)
        assert.deepStrictEqual([words(outcomes), took], [["cancelled/by_caller", "ok"], 50])
        assert.strictEqual(book.of("b").end, "ok")
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("R20: the grace of one that goes on regardless begins with its stop", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: 8_000, deaf: true } } })
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [call("read", "a")])
        const end = yield* fork(timed(handle.await))
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall(0))
        yield* TestClock.adjust(20_000)
        const [outcomes, took] = yield* ended(end)
        assert.deepStrictEqual([words(outcomes), took], [["cancelled/by_caller"], 5_010])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("R2: identical calls with empty ids are calls of their own, a re-delivered id is one", () =>
    Effect.gen(function*() {
      for (const id of ["", "x"]) {
        const { layer } = lab({ script: { a: { ms: 50 } } })
        yield* Effect.gen(function*() {
          const calls = [0, 1, 2].map((i) => call("read", "a", [], { id: i === 2 ? "y" : id }))
          const handle = yield* Turn.start(toolkit, calls)
          const end = yield* fork(handle.await)
          yield* TestClock.adjust(10)
          assert.isTrue(yield* handle.cancelCall(1))
          yield* TestClock.adjust(100)
          const gone = "cancelled/by_caller"
          assert.deepStrictEqual(words(yield* ended(end)), [id === "" ? "ok" : gone, gone, "ok"])
        }).pipe(Effect.scoped, Effect.provide(layer))
      }
    }))

  it.effect("R3: one of several identical calls says whether their run had started", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { first: { ms: 20 }, a: { ms: 50 } } })
      yield* Effect.gen(function*() {
        const calls = [
          call("write", "first", ["k"]),
          call("write", "a", ["k"], { id: "p" }),
          call("write", "a", ["k"], { id: "q" }),
          call("write", "a", ["k"], { id: "r" })
        ]
        const handle = yield* Turn.start(toolkit, calls)
        const end = yield* fork(handle.await)
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall("q"))
        yield* TestClock.adjust(20)
        assert.isTrue(yield* handle.cancelCall("p"))
        yield* TestClock.adjust(100)
        const outcomes = yield* ended(end)
        assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "cancelled/by_caller", "ok"])
        assert.deepStrictEqual(outcomes.map(({ effect, started }) => [started, effect]), [
          [true, "applied"],
          [true, "unknown"],
          [false, "none"],
          [true, "applied"]
        ])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))
})

describe("R10: approval that has to be found out", () => {
  const asking = (answer: Effect.Effect<boolean>) =>
    pipe(
      Tool.make("ask", { parameters: Schema.Struct({}), success: Schema.Unknown, needsApproval: () => answer }),
      ToolPolicy.read(keyed)
    )

  it.effect("by an effect that takes no time", () =>
    Effect.gen(function*() {
      for (const [answer, word] of [[false, "ok"], [true, "pending_approval"]] as const) {
        const outcomes = yield* drive(
          runWith([asking(Effect.sync(() => answer))], { ask: () => Effect.succeed(1) }, [ToolCall.make("a", "ask")])
        )
        assert.deepStrictEqual(words(outcomes), [word])
      }
    }))

  it.effect("R18: a sibling's failure leaves it held", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { bad: { ms: 40, end: "fail" }, slow: { ms: 100 } } })
      const outcomes = yield* drive(
        run([call("ask", "a", ["k"], { n: -20 }), call("read", "bad"), call("read", "slow")], {
          siblings: Siblings.failFast
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["pending_approval", "error/failed", "cancelled/by_sibling"])
    }))

  it.effect("and then stopped: it is answered, and those that are the same stay held", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { slow: { ms: 100 } } })
      for (const at of [0, 1]) {
        yield* Effect.gen(function*() {
          const calls = ["p", "q", "r"].map((id) => call("ask", "a", ["k"], { n: -20, id }))
          const handle = yield* Turn.start(toolkit, [...calls, call("read", "slow")])
          const end = yield* fork(handle.await)
          yield* TestClock.adjust(30)
          assert.isTrue(yield* handle.cancelCall(at))
          yield* TestClock.adjust(200)
          const held = "pending_approval"
          const gone = "cancelled/by_caller"
          assert.deepStrictEqual(words(yield* ended(end)), [at === 0 ? gone : held, at === 1 ? gone : held, held, "ok"])
        }).pipe(Effect.scoped, Effect.provide(layer))
      }
    }))

  it.effect("a twin is held in the place of the first, where that has left before the answer", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      yield* Effect.gen(function*() {
        const calls = ["p", "q", "r"].map((id) => call("ask", "a", ["k"], { n: -20, id }))
        const handle = yield* Turn.start(toolkit, calls)
        const end = yield* fork(handle.await)
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall("p"))
        yield* TestClock.adjust(100)
        const outcomes = yield* ended(end)
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "pending_approval", "pending_approval"])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))
})

describe("R33: events come in the order of the calls where they come together", () => {
  const endsOf = (events: ReadonlyArray<TurnEvent.TurnEvent>) =>
    events.flatMap((event) => event._tag === "CallEnded" ? [event.position] : [])

  it.effect("of held ones, and of identical ones", () =>
    Effect.gen(function*() {
      const held = lab()
      yield* drive(
        run(["a", "b", "c"].map((tag) => call("pay", tag, [tag])), { onEvent: held.book.note }).pipe(
          Effect.provide(held.layer)
        )
      )
      assert.deepStrictEqual(endsOf(held.book.events), [0, 1, 2])
      const asked = lab()
      yield* drive(
        run(["a", "b", "c"].map((tag) => call("ask", tag, [tag], { n: -10 })), { onEvent: asked.book.note }).pipe(
          Effect.provide(asked.layer)
        )
      )
      assert.deepStrictEqual(endsOf(asked.book.events), [0, 1, 2])
      const same = lab()
      yield* drive(
        run(["p", "q", "r"].map((id) => call("read", "a", [], { id })), { onEvent: same.book.note }).pipe(
          Effect.provide(same.layer)
        )
      )
      assert.deepStrictEqual(endsOf(same.book.events), [0, 1, 2])
      const tags = ["a", "b", "c", "d", "e", "f", "g"]
      const late = lab({ script: Object.fromEntries(tags.map((tag) => [tag, { ms: Infinity }])) })
      yield* drive(
        run(tags.map((tag) => call("read", tag)), { onEvent: late.book.note }).pipe(Effect.provide(late.layer))
      )
      assert.deepStrictEqual(endsOf(late.book.events), [0, 1, 2, 3, 4, 5, 6])
    }))

  it.effect("a note of progress is told as JSON where it can be, and as it is where it cannot", () =>
    Effect.gen(function*() {
      const events: Array<TurnEvent.TurnEvent> = []
      const tool = pipe(
        Tool.make("t", { parameters: Schema.Struct({}), success: Schema.DateTimeUtcFromString }),
        ToolPolicy.read(keyed)
      )
      const at = DateTime.makeUnsafe("2026-01-02T00:00:00.000Z")
      yield* drive(
        runWith(
          [tool],
          {
            t: (_, { preliminary }) =>
              Effect.andThen(Effect.andThen(preliminary(at), preliminary("soon")), Effect.succeed(at))
          },
          [ToolCall.make("a", "t")],
          {
            onEvent: (event) => {
              events.push(event)
            }
          }
        )
      )
      assert.deepStrictEqual(
        events.flatMap((event) => event._tag === "CallProgressed" ? [event.result] : []),
        ["2026-01-02T00:00:00.000Z", "soon"]
      )
    }))
})

describe("R20: what is given up on", () => {
  it.effect("R18: an answer that was given in its place counts for its siblings", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { deaf: { ms: 50_000, deaf: true }, w: { ms: 20_000 } } })
      const outcomes = yield* drive(
        run([call("read", "deaf"), call("write", "w", ["k"]), call("read", "behind", ["k"])], {
          siblings: Siblings.failFast
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/handler", "ok", "cancelled/by_sibling"])
    }))

  it.effect("R36: what is left is told, by default in the log, and nothing where nothing is left", () =>
    Effect.gen(function*() {
      const closed = (runtime: Turn.LayerOptions | undefined, ms: number) => {
        const { layer } = lab({ script: { deaf: { ms, deaf: true } }, ...(runtime === undefined ? {} : { runtime }) })
        const calls = [call("read", "deaf"), call("look", "deaf", [], { id: "" })]
        return warnings(drive(run(calls, { turn: "one", deadline: 50, grace: 0 }).pipe(Effect.provide(layer))))
      }
      assert.deepStrictEqual(yield* closed(undefined, Infinity), [
        "shut down with work left: call #0 (read, id deaf) of turn one",
        "shut down with work left: call #1 (look) of turn one"
      ])
      assert.deepStrictEqual(yield* closed(undefined, 3_000), [])
      const told: Array<number> = []
      const onUnsettled = (left: ReadonlyArray<Turn.Unsettled>) =>
        Effect.sync(() => {
          told.push(left.length)
        })
      assert.deepStrictEqual(yield* closed({ onUnsettled }, 3_000), [])
      assert.deepStrictEqual(yield* closed({ onUnsettled }, Infinity), [])
      assert.deepStrictEqual(told, [2])
    }))

  it.effect("R36: closing the layer waits for it no longer than it takes", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { deaf: { ms: 3_000, deaf: true } } })
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer, scope)
      const turn = yield* fork(run([call("read", "deaf")], { deadline: 50, grace: 0 }).pipe(Effect.provide(context)))
      yield* TestClock.adjust(100)
      assert.deepStrictEqual(words(yield* ended(turn)), ["cancelled/by_deadline"])
      const closing = yield* fork(timed(Scope.close(scope, Exit.void)))
      yield* TestClock.adjust(10_000)
      const [, took] = yield* ended(closing)
      assert.deepStrictEqual([took, book.of("deaf").endedAt], [2_900, 3_000])
    }))
})

describe("effects of the caller's", () => {
  it.effect("R17: a turn ends when the clean-up of its cancelOn has, and not before", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      let cleaned = false
      const cancelOn = Effect.onInterrupt(Effect.never, () =>
        Effect.andThen(
          Effect.sleep(700),
          Effect.sync(() => {
            cleaned = true
          })
        ))
      const [outcomes, took] = yield* drive(timed(run([call("read", "a")], { cancelOn }).pipe(Effect.provide(layer))))
      assert.deepStrictEqual([words(outcomes), took, cleaned], [["ok"], 710, true])
    }))

  it.effect("R20: one that ignores its stop is named in the log, once", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const deaf = Effect.uninterruptible(Effect.never)
      const log = yield* warnings(drive(run([call("read", "a")], { cancelOn: deaf }).pipe(Effect.provide(layer))))
      assert.deepStrictEqual(log, [
        "a turn ended while an effect of its caller (an approval question, a schema, cancelOn) ignored its stop"
      ])
      assert.deepStrictEqual(yield* warnings(drive(run([call("read", "a")]).pipe(Effect.provide(layer)))), [])
    }))

  it.effect("R21: a journal that is slow, or fails, is named in the log, and one that is not is not", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const journal = (settle: Effect.Effect<void>) =>
        journalOf({
          reserve: () => Effect.void,
          settle: () => settle,
          free: () => Effect.void
        })
      const log = (settle: Effect.Effect<void>) =>
        warnings(drive(run([call("read", "a")]).pipe(Effect.provide([layer, journal(settle)]))))
      assert.deepStrictEqual(yield* log(Effect.sleep(4_000)), [])
      assert.deepStrictEqual(yield* log(Effect.never), ["the journal did not keep an outcome in time"])
      assert.deepStrictEqual(yield* log(Effect.die("no")), ["the journal could not keep an outcome"])
    }))
})
