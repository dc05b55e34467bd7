import { assert, describe, it } from "@effect/vitest"
import { type Outcome, ToolCall, Turn, TurnContext, type TurnEvent } from "effect-turn"
import * as Prompt from "effect/ai/Prompt"
import * as Response from "effect/ai/Response"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { call, drive, ended, fork, lab, run, toolkit, words } from "./utils/kit.ts"

describe("Turn.run", () => {
  it.effect("R1: one outcome for each call, in the order of the calls, while events come in the order of ends", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { slow: { ms: 90 }, quick: { ms: 5 }, bad: { end: "fail" } } })
      const outcomes = yield* drive(
        run([call("read", "slow"), call("read", "quick"), call("write", "bad", ["k"])], { onEvent: book.note }).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "error/failed"])
      assert.deepStrictEqual(outcomes.map((one) => [one.position, one.id, one.name]), [
        [0, "slow", "read"],
        [1, "quick", "read"],
        [2, "bad", "write"]
      ])
      assert.deepStrictEqual([book.span("slow"), book.span("quick")], [[0, 90], [0, 5]])
      assert.deepStrictEqual(book.tagsOf("CallEnded").map((event) => (event as TurnEvent.CallEnded).id), [
        "quick",
        "bad",
        "slow"
      ])
    }))

  it.effect("no calls: no outcomes, and the turn is told closed", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      let closed = -1
      const outcomes = yield* run([], {
        onEvent: book.note,
        onClosed: ({ outcomes }) =>
          Effect.sync(() => {
            closed = outcomes.length
          })
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual([outcomes, closed], [[], 0])
      assert.deepStrictEqual(book.events.map((event) => event._tag), ["TurnStarted", "TurnEnded"])
    }))

  it.effect("data-first and data-last, and again when run again", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 0 } } })
      const calls = [call("read", "a")]
      const first = Turn.run(toolkit, calls, { turn: "one" })
      const last = pipe(toolkit, Turn.run(calls, { turn: "one" }))
      const plain = pipe(toolkit, Turn.run(calls))
      for (const effect of [first, last, plain, first]) {
        assert.deepStrictEqual(words(yield* effect.pipe(Effect.provide(layer))), ["ok"])
      }
      assert.strictEqual(book.runs.length, 4)
      const plan = yield* pipe(toolkit, Turn.plan(calls)).pipe(Effect.provide(layer))
      assert.strictEqual(plan.calls.length, 1)
      const events = yield* pipe(toolkit, Turn.stream(calls), Stream.runCollect).pipe(Effect.provide(layer))
      assert.strictEqual(events.length, 4)
      const handle = pipe(toolkit, Turn.start(calls))
      yield* Effect.scoped(Effect.flatMap(handle, (one) => one.await)).pipe(Effect.provide(layer))
    }))

  it.effect("handlers that end at once: a chain of ten thousand conflicting calls neither deepens the stack nor is out of order", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const n = 10_000
      for (let i = 0; i < n; i++) book.script.set(String(i), { ms: 0 })
      const outcomes = yield* run(Array.from({ length: n }, (_, i) => call("write", String(i), ["k"]))).pipe(
        Effect.provide(layer)
      )
      assert.isTrue(outcomes.every((one) => one.status === "ok"))
      assert.deepStrictEqual(book.runs.map((ran) => Number(ran.tag)), Array.from({ length: n }, (_, i) => i))
    }))

  it.effect("R12: a call that is stopped before its start opens the way for nobody early", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 70_000 } } })
      const outcomes = yield* drive(
        run([call("write", "a", ["k"]), call("write", "b", ["k"]), call("read", "c", ["k"]), call("read", "d", ["l"])])
          .pipe(
            Effect.provide(layer)
          )
      )
      // The second and third waited too long; nobody slipped past the first.
      assert.deepStrictEqual(words(outcomes), ["ok", "timeout/queue", "timeout/queue", "ok"])
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["a", "d"])
    }))

  it.effect("R12: keys are held across the turns of a tenant, and not across tenants", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const one = yield* fork(run([call("write", "a", ["k"])]))
        const two = yield* fork(run([call("write", "b", ["k"])]))
        const other = yield* fork(
          run([call("write", "c", ["k"])]).pipe(Effect.provide(TurnContext.make({ tenant: "other" })))
        )
        yield* TestClock.adjust(100)
        for (const fiber of [one, two, other]) yield* ended(fiber)
        assert.deepStrictEqual([book.span("a"), book.span("b"), book.span("c")], [[0, 10], [10, 20], [0, 10]])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("R12: sequential runs one after another, whatever the keys, failures and refusals", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 5 }, b: { end: "fail" }, c: { end: "interrupt" } } })
      const outcomes = yield* drive(
        run([
          call("read", "a"),
          call("read", "b"),
          ToolCall.make("x", "read", "{"),
          call("read", "c"),
          call("fetch", "d")
        ], {
          execution: "sequential"
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "error/failed",
        "error/invalid_arguments",
        "cancelled/by_itself",
        "ok"
      ])
      assert.deepStrictEqual(["a", "b", "c", "d"].map((tag) => book.of(tag).at), [0, 5, 15, 25])
    }))

  it.effect("calls that the provider ran are answered so, and run nothing", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([{ ...call("read", "a"), providerExecuted: true }, {
          ...ToolCall.make("", "web_search", "{"),
          providerExecuted: true
        }])
          .pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["provider_executed", "provider_executed"])
      assert.deepStrictEqual([outcomes[0]!.started, outcomes[0]!.effect, outcomes[0]!.retryable], [
        false,
        "none",
        false
      ])
      assert.deepStrictEqual(book.runs, [])
    }))
})

describe("events", () => {
  it.effect("tell the story of a turn, with what each call waited for", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { a: { ms: 20 } } })
      yield* drive(
        run([call("post", "a", ["k"]), call("post", "b", ["k"]), call("fetch", "c")], {
          turn: "one",
          onEvent: book.note
        }).pipe(
          Effect.provide(layer)
        )
      )
      const brief = book.events.map((event) => {
        switch (event._tag) {
          case "CallQueued":
            return [event.at, event._tag, event.id, event.for, event.backend]
          case "CallStarted":
            return [event.at, event._tag, event.id, event.waited.keys, event.waited.permit, event.backend]
          case "CallEnded":
            return [event.at, event._tag, event.id, event.outcome.status]
          default:
            return [event.at, event._tag]
        }
      })
      assert.deepStrictEqual(brief, [
        [0, "TurnStarted"],
        [0, "CallQueued", "b", "keys", "test/Api"],
        [0, "CallStarted", "a", 0, 0, "test/Api"],
        [0, "CallQueued", "c", "permit", "test/Api"],
        [20, "CallEnded", "a", "ok"],
        [20, "CallStarted", "b", 20, 0, "test/Api"],
        [30, "CallEnded", "b", "ok"],
        [30, "CallStarted", "c", 0, 30, "test/Api"],
        [40, "CallEnded", "c", "ok"],
        [40, "TurnEnded"]
      ])
      assert.isTrue(book.events.every((event) => event.turn === "one"))
    }))

  it.effect("Turn.stream gives them to whoever pulls, and an interrupted stream stops the turn", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 50 }, w: { ms: 80 } } })
      const tags = yield* drive(
        Turn.stream(toolkit, [call("read", "a")]).pipe(
          Stream.map((event) => event._tag),
          Stream.runCollect,
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(tags, ["TurnStarted", "CallStarted", "CallEnded", "TurnEnded"])
      const fiber = yield* fork(
        Stream.runDrain(Turn.stream(toolkit, [call("read", "a", ["x"]), call("write", "w", ["k"])])).pipe(
          Effect.provide(layer)
        )
      )
      yield* TestClock.adjust(10)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(69)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual(book.atWork, [])
      assert.strictEqual(book.of("w").end, "ok")
    }))

  it.effect("R33: a slow reader loses the oldest, with a count, and slows nobody down", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const n = 10_000
      for (let i = 0; i < n; i++) book.script.set(String(i), { ms: 0 })
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, Array.from({ length: n }, (_, i) => call("read", String(i))))
        const outcomes = yield* handle.await
        assert.strictEqual(outcomes.length, n)
        const events = yield* Stream.runCollect(handle.events)
        // One of the turn at each end, and two for each call.
        assert.strictEqual(events.length + (yield* handle.lost), 2 * n + 2)
        assert.strictEqual(events.length, 16_384)
        assert.strictEqual(events.at(-1)!._tag, "TurnEnded")
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))
})

describe("Turn.start", () => {
  it.effect("returns at once; await gives the outcomes as often as asked, and interrupting it stops nothing", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 50 } } })
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [call("read", "a")], { turn: "one" })
        assert.strictEqual(handle.turn, "one")
        const waiting = yield* fork(handle.await)
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(waiting)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual([words(yield* handle.await), words(yield* handle.await)], [["ok"], ["ok"]])
        assert.deepStrictEqual(book.span("a"), [0, 50])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("cancel stops the turn with the caller's reason, and waits for it; afterwards it changes nothing", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: 50, cleanup: 20 } } })
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [call("read", "a"), call("pay", "p")])
        yield* TestClock.adjust(10)
        const stopping = yield* fork(handle.cancel("budget"))
        yield* TestClock.adjust(19)
        assert.isUndefined(stopping.pollUnsafe())
        yield* TestClock.adjust(1)
        const outcomes = yield* ended(stopping)
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
        assert.deepStrictEqual(outcomes.map((one) => (one as Outcome.Cancelled).reason), ["budget", "budget"])
        assert.strictEqual(yield* handle.cancel("again"), outcomes)
        assert.isFalse(yield* handle.cancelCall(0))
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("R17: belongs to its scope: when that closes, the turn is stopped and awaited", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 50, cleanup: 20 } } })
      const closed: Array<Turn.Closed> = []
      const fiber = yield* fork(
        Effect.scoped(Effect.andThen(
          Turn.start(toolkit, [call("read", "a")], { onClosed: (one) => Effect.sync(() => void closed.push(one)) }),
          Effect.sleep(10)
        )).pipe(Effect.provide(layer))
      )
      yield* TestClock.adjust(29)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(fiber)
      assert.deepStrictEqual(book.span("a"), [0, 30])
      assert.deepStrictEqual(words(closed[0]!.outcomes), ["cancelled/by_caller"])
    }))

  it.effect("a turn that cannot begin is a typed error", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const error = yield* Effect.flip(
        Effect.scoped(Turn.start(toolkit, [], { deadline: 0 })).pipe(Effect.provide(layer))
      )
      assert.strictEqual(error.reason._tag, "InvalidLimit")
      const streamed = yield* Effect.flip(
        Stream.runDrain(Turn.stream(toolkit, [], { deadline: 0 })).pipe(Effect.provide(layer))
      )
      assert.strictEqual(streamed.reason._tag, "InvalidLimit")
    }))
})

describe("Turn.plan", () => {
  const calls = [
    call("write", "a", ["k"]),
    call("read", "b", ["k"]),
    call("pay", "p", ["p"]),
    call("read", "x", ["p"]),
    ToolCall.make("bad", "read", "{"),
    call("read", "b", ["k"], { id: "again" }),
    call("fetch", "f"),
    { ...call("read", "web"), providerExecuted: true }
  ]

  it.effect("says what a turn will do, and runs nothing", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const plan = yield* Turn.plan(toolkit, calls).pipe(Effect.provide(layer))
      assert.deepStrictEqual(plan.calls.map((one) => one.verdict), [
        "run",
        "run",
        "held",
        "deferred",
        "refused",
        "duplicate",
        "run",
        "provider_executed"
      ])
      assert.deepStrictEqual(plan.edges, [{ from: 0, to: 1, key: "k" }])
      assert.strictEqual(plan.calls[6]!.backend, "test/Api")
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("is what the turn then does", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const [plan, outcomes] = yield* drive(
        Effect.all([Turn.plan(toolkit, calls), run(calls)]).pipe(Effect.provide(layer))
      )
      const said: Record<string, (outcome: Outcome.Outcome<any>) => boolean> = {
        run: (one) => one.started,
        held: (one) => one.status === "pending_approval",
        deferred: (one) => one.status === "deferred",
        refused: (one) => one.status === "error" && !one.started,
        duplicate: (one) => one.duplicateOf !== undefined,
        provider_executed: (one) => one.status === "provider_executed"
      }
      plan.calls.forEach((one, i) => assert.isTrue(said[one.verdict]!(outcomes[i]!), `${i} ${one.verdict}`))
    }))

  it.effect("needs no runtime and no handlers", () =>
    Effect.gen(function*() {
      const plan = yield* Turn.plan(toolkit, [call("read", "a")])
      assert.strictEqual(plan.calls[0]!.verdict, "run")
    }))
})

describe("R34: Turn.toPrompt", () => {
  const parts = (prompt: Prompt.Prompt, role: string) =>
    prompt.content.filter((message) => message.role === role).flatMap((message) =>
      message.content as ReadonlyArray<any>
    )

  it.effect("one message with the calls, one with all answers in call order, failures marked", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { slow: { ms: 50 }, bad: { end: "fail" } } })
      const calls = [call("read", "slow"), call("write", "bad", ["k"]), ToolCall.make("raw", "read", '{"tag":')]
      const outcomes = yield* drive(run(calls).pipe(Effect.provide(layer)))
      const prompt = Turn.toPrompt(calls, outcomes)
      assert.deepStrictEqual(prompt.content.map((message) => message.role), ["assistant", "tool"])
      assert.deepStrictEqual(parts(prompt, "assistant").map((part) => [part.id, part.name, part.params]), [
        ["slow", "read", { tag: "slow" }],
        ["bad", "write", { tag: "bad", k: ["k"] }],
        ["raw", "read", {}]
      ])
      assert.deepStrictEqual(parts(prompt, "tool").map((part) => [part.id, part.name, part.isFailure]), [
        ["slow", "read", false],
        ["bad", "write", true],
        ["raw", "read", true]
      ])
      const [ok, failed, invalid] = parts(prompt, "tool").map((part) => part.result)
      assert.strictEqual(ok, "slow")
      assert.deepInclude(failed, {
        status: "error",
        code: "failed",
        retryable: false,
        effect: "unknown",
        failure: "bad failed"
      })
      assert.deepInclude(invalid, { status: "error", code: "invalid_arguments", retryable: true })
      const json = JSON.stringify(Schema.encodeSync(Prompt.Prompt)(prompt))
      assert.deepStrictEqual(Schema.decodeUnknownSync(Prompt.Prompt)(JSON.parse(json)), prompt)
    }))

  it.effect("empty and repeated ids get ids of their own, on both sides; a re-delivery is answered once", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const calls = [
        call("read", "a", [], { id: "" }),
        call("read", "b", [], { id: "call_0" }),
        call("read", "b", [], { id: "call_0" }),
        call("read", "c", [], { id: "same" }),
        call("read", "d", [], { id: "same" }),
        call("read", "e", [], { id: "" })
      ]
      const outcomes = yield* drive(run(calls).pipe(Effect.provide(layer)))
      const prompt = Turn.toPrompt(calls, outcomes)
      const ids = parts(prompt, "assistant").map((part) => part.id)
      assert.strictEqual(ids.length, 5)
      assert.strictEqual(new Set(ids).size, 5)
      assert.deepStrictEqual(parts(prompt, "tool").map((part) => part.id), ids)
      assert.strictEqual(ids[1], "call_0")
    }))

  it.effect("a new id is none of those that are there already", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const calls = ["", "call_0", "call_0_1"].map((id, i) => call("read", `${i}`, [], { id }))
      const prompt = Turn.toPrompt(calls, yield* drive(run(calls).pipe(Effect.provide(layer))))
      const [assistant, answers] = prompt.content as ReadonlyArray<any>
      for (const { content } of [assistant, answers]) {
        assert.deepStrictEqual(content.map((part: any) => [part.id, part.providerExecuted]), [
          ["call_0_2", false],
          ["call_0", false],
          ["call_0_1", false]
        ])
      }
    }))

  it("nothing to say is nothing said; outcomes that are missing are refused", () => {
    assert.deepStrictEqual(Turn.toPrompt([], []).content, [])
    assert.throws(() => Turn.toPrompt([call("read", "a")], []), /one outcome for each/)
  })

  it.effect("arguments stand whole in the history, whatever limits a turn has", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const tag = "x".repeat(1_500_000)
      const calls = [ToolCall.make("a", "read", JSON.stringify({ tag }))]
      const outcomes = yield* drive(run(calls, { limits: { maxBytes: 2_000_000 } }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.strictEqual(parts(Turn.toPrompt(calls, outcomes), "assistant")[0].params.tag.length, tag.length)
    }))

  it.effect("with the response's parts, what the model said stays, and its calls are mended in their places", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const calls = [
        call("read", "a", [], { id: "" }),
        ToolCall.make("raw", "read", "[1]"),
        { ...call("read", "p"), providerExecuted: true }
      ]
      const outcomes = yield* drive(run(calls).pipe(Effect.provide(layer)))
      const prompt = Turn.toPrompt(calls, outcomes, {
        parts: [
          Response.makePart("text", { text: "I look." }),
          ...calls.map((one) =>
            Response.makePart("tool-call", {
              id: one.id,
              name: one.name,
              params: one.arguments,
              providerExecuted: one.providerExecuted === true
            })
          )
        ]
      })
      assert.deepStrictEqual(
        parts(prompt, "assistant").map((part) => part.type === "text" ? part.text : [part.id, part.params]),
        ["I look.", ["call_0", calls[0]!.arguments], ["raw", {}], ["p", calls[2]!.arguments]]
      )
      assert.deepStrictEqual(parts(prompt, "tool").map((part) => part.id), ["call_0", "raw"])
    }))

  it.effect("a stop leaves no call open", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: 100 } } })
      const calls = [call("read", "a"), call("pay", "p"), call("read", "q", ["p"])]
      const outcomes = yield* drive(run(calls, { deadline: 5 }).pipe(Effect.provide(layer)))
      const prompt = Turn.toPrompt(calls, outcomes)
      assert.deepStrictEqual(parts(prompt, "tool").map((part) => part.id), ["a", "p", "q"])
      for (const part of parts(prompt, "tool")) assert.notMatch(JSON.stringify(part.result), /fix and retry/i)
    }))
})
