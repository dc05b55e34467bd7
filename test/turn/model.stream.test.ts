/** The governed model, streamed. */
import { assert, describe, it } from "@effect/vitest"
import { Turn } from "effect-turn"
import { FakeModel, History } from "effect-turn/testing"
import * as AiError from "effect/ai/AiError"
import * as Chat from "effect/ai/Chat"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Ref from "effect/Ref"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { drive, ended, fork, toolkit } from "../utils/kit.ts"
import { lines, prompts, says, word, wordsOf, world } from "../utils/model.ts"

/** Takes a stream to its end, each part with the time at which it came. */
const timed = <E, R>(stream: Stream.Stream<Response.AnyPart, E, R>, parts: Array<Response.AnyPart> = []) =>
  Effect.gen(function*() {
    const seen: Array<string> = []
    yield* Stream.runForEach(stream, (part) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        parts.push(part)
        if (!part.type.startsWith("tool-params")) seen.push(`${now} ${word(part)}`)
      }))
    return seen
  })

const ask = LanguageModel.streamText({ prompt: "go", toolkit })

describe("streamText of a governed model", () => {
  it.effect("lets parts pass as they come; answers come in call order, before the end, each when it can", () =>
    Effect.gen(function*() {
      const { layer } = world(
        [FakeModel.calls(
          [says("write", "a"), says("write", "b"), FakeModel.call("nope", {}, { id: "c" }), says("read", "d")],
          { text: "hi", delay: 10 }
        )],
        {},
        { script: { a: { ms: 100 }, b: { ms: 20 }, d: { ms: 300, notes: [50] } } }
      )
      const parts: Array<Response.AnyPart> = []
      const seen = yield* drive(Effect.provide(timed(ask, parts), layer))
      const at = (text: string) => Number(seen.find((line) => line.endsWith(text))!.split(" ")[0])
      assert.deepStrictEqual(seen.map((line) => line.replace(/^\d+ /, "")).filter((line) => !line.startsWith("note")), [
        "text-start",
        "hi",
        "text-end",
        "call a",
        "call b",
        "call c",
        "call d",
        'result a "a"',
        'result b "b"',
        "result c error/unknown_tool",
        'result d "d"',
        "finish"
      ])
      // The note came while it ran, and results did not wait for later ones.
      assert.isBelow(at('note d "d at 50"'), at('result a "a"'))
      assert.strictEqual(at('result b "b"'), at('result a "a"'))
      assert.isBelow(at('result a "a"'), at('result d "d"'))
      assert.strictEqual(at('result d "d"'), at("finish"))
      assert.deepStrictEqual(History.check(Prompt.fromResponseParts(parts)), [])
    }))

  it.effect("says the same as generateText", () =>
    Effect.gen(function*() {
      const script = [
        FakeModel.calls([
          says("read", "a"),
          says("read", "a", undefined, { id: "a" }),
          FakeModel.call("nope", {}, { id: "b" }),
          FakeModel.rawCall("read", "[]", { id: "c" }),
          says("pay", "p", ["k"]),
          says("write", "w", ["k"])
        ], { text: "hi" })
      ]
      const whole = world(script)
      const streamed = world(script)
      const { content } = yield* drive(
        Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), whole.layer)
      )
      const parts = yield* drive(Effect.provide(Stream.runCollect(ask), streamed.layer))
      const said = (all: ReadonlyArray<Response.AnyPart>) => lines(Prompt.fromResponseParts(all))
      assert.deepStrictEqual(said(parts), said(content))
      assert.deepStrictEqual(said(content), [
        "assistant: hi, call a, call b, call c, call p, call w, request p",
        'tool: a "a", b error/unknown_tool, c error/invalid_arguments, w deferred/waits_for_approval'
      ])
    }))

  it.effect("a read starts as soon as its call is complete, a write when the response has ended", () =>
    Effect.gen(function*() {
      const { book, layer } = world([
        FakeModel.calls([says("write", "w", ["k"]), says("read", "r", ["l"]), says("read", "behind", ["k"])], {
          delay: 10
        })
      ])
      const parts: Array<Response.AnyPart> = []
      const seen = yield* drive(Effect.provide(timed(ask, parts), layer))
      const at = (text: string) => Number(seen.find((line) => line.endsWith(text))!.split(" ")[0])
      assert.strictEqual(book.of("r").at, at("call r"))
      // The end of the response is let out last of all: it came one step after the last call.
      const end = at("call behind") + 10
      assert.deepStrictEqual([book.of("w").at, book.of("behind").at], [end, end + 10])
      assert.deepStrictEqual(History.check(Prompt.fromResponseParts(parts)), [])
    }))

  it.effect("a read that has begun keeps its outcome when the response turns out to be cut short", () =>
    Effect.gen(function*() {
      const { layer } = world([
        FakeModel.calls([says("read", "r"), says("write", "w")], { finishReason: "length", delay: 20 })
      ])
      const parts = yield* drive(Effect.provide(Stream.runCollect(ask), layer))
      assert.deepStrictEqual(wordsOf(parts), [
        "call r",
        'result r "r"',
        "call w",
        "result w error/incomplete_response",
        "finish"
      ])
    }))

  it.effect("a response without calls opens no turn", () =>
    Effect.gen(function*() {
      const events: Array<string> = []
      const { layer } = world([FakeModel.text("hi")], { onEvent: ({ _tag }) => events.push(_tag) })
      yield* Effect.provide(Stream.runDrain(ask), layer)
      assert.deepStrictEqual(events, [])
    }))

  it.effect("a finish reason that is not the end of a whole response runs nothing", () =>
    Effect.gen(function*() {
      for (const finishReason of ["length", "unknown"] as const) {
        const { book, layer } = world([FakeModel.calls([says("write", "a")], { finishReason })])
        const parts = yield* drive(Effect.provide(Stream.runCollect(ask), layer))
        assert.deepStrictEqual(wordsOf(parts), ["call a", "result a error/incomplete_response", "finish"])
        assert.deepStrictEqual(book.runs, [])
      }
    }))

  it.effect("a response that breaks off is answered, and then fails as it did", () =>
    Effect.gen(function*() {
      const { book, layer } = world([
        FakeModel.calls([says("write", "a"), says("write", "b")], {
          cut: { after: 4, by: new AiError.RateLimitError({}) }
        })
      ])
      const parts: Array<Response.AnyPart> = []
      const exit = yield* drive(Effect.provide(Effect.exit(timed(ask, parts)), layer))
      assert.strictEqual(
        (Exit.isFailure(exit) && Cause.squash(exit.cause) as AiError.AiError || undefined)?.reason._tag,
        "RateLimitError"
      )
      assert.deepStrictEqual(wordsOf(parts), ["call a", "result a error/incomplete_response"])
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("interrupting the stream stops the turn and waits for it", () =>
    Effect.gen(function*() {
      const closed: Array<Turn.Closed> = []
      const { book, layer } = world(
        [FakeModel.calls([says("write", "w"), says("read", "r")])],
        { onClosed: (one) => Effect.sync(() => void closed.push(one)) },
        { script: { w: { ms: 500 }, r: { ms: 1000 } } }
      )
      yield* Effect.gen(function*() {
        const fiber = yield* fork(Stream.runDrain(ask))
        yield* TestClock.adjust(100)
        const stopped = yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(10)
        assert.isUndefined(stopped.pollUnsafe())
        yield* TestClock.adjust(1000)
        yield* ended(stopped)
        assert.deepStrictEqual(book.runs.map((ran) => [ran.tag, ran.end, ran.endedAt]), [
          ["r", "interrupt", 100],
          ["w", "ok", 500]
        ])
        assert.deepStrictEqual(closed.length, 1)
        assert.deepStrictEqual(lines(Turn.toPrompt(closed[0]!.calls, closed[0]!.outcomes)), [
          "assistant: call w, call r",
          'tool: w "w", r cancelled/by_caller'
        ])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a reader that leaves early stops the turn and waits for it", () =>
    Effect.gen(function*() {
      const { book, layer } = world([FakeModel.calls([says("write", "w"), says("read", "r")])], {}, {
        script: { w: { ms: 50 }, r: { ms: 1000 } }
      })
      yield* drive(Effect.provide(Stream.runDrain(Stream.takeUntil(ask, (part) => part.type === "tool-result")), layer))
      assert.deepStrictEqual(book.runs.map((ran) => [ran.tag, ran.end]), [["r", "interrupt"], ["w", "ok"]])
      assert.deepStrictEqual(book.atWork, [])
    }))

  it.effect("without a toolkit, and with resolution off, nothing is touched", () =>
    Effect.gen(function*() {
      const { book, layer } = world([FakeModel.text("hello"), FakeModel.calls([says("read", "a")])])
      yield* Effect.gen(function*() {
        const plain = yield* Stream.runCollect(LanguageModel.streamText({ prompt: "go" }))
        const off = yield* Stream.runCollect(
          LanguageModel.streamText({ prompt: "go", toolkit, disableToolCallResolution: true })
        )
        assert.deepStrictEqual([plain, off].map(wordsOf), [
          ["text-start", "hello", "text-end", "finish"],
          ["call a", "finish"]
        ])
        assert.deepStrictEqual(book.runs, [])
      }).pipe(Effect.provide(layer))
    }))
})

describe("Chat on a governed model, streamed", () => {
  it.effect("keeps one valid history", () =>
    Effect.gen(function*() {
      const { layer } = world([
        FakeModel.calls([says("read", "a"), FakeModel.call("nope", {}, { id: "b" })], { text: "hm" }),
        FakeModel.text("done")
      ])
      yield* drive(
        Effect.gen(function*() {
          const chat = yield* Chat.empty
          yield* Stream.runDrain(chat.streamText({ prompt: "go", toolkit }))
          yield* Stream.runDrain(chat.streamText({ prompt: Prompt.empty, toolkit }))
          const history = yield* Ref.get(chat.history)
          assert.deepStrictEqual(lines(history), [
            "user: go",
            "assistant: hm, call a, call b",
            'tool: a "a", b error/unknown_tool',
            "assistant: done"
          ])
          assert.deepStrictEqual(History.check(history), [])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("an interrupted stream leaves open calls in effect/ai's Chat; the model is sent what became of them", () =>
    Effect.gen(function*() {
      const { layer } = world(
        [FakeModel.calls([says("write", "w"), says("read", "r")]), FakeModel.text("it is booked")],
        {},
        { script: { w: { ms: 500 }, r: { ms: 1000 } } }
      )
      yield* Effect.gen(function*() {
        const chat = yield* Chat.empty
        const fiber = yield* fork(Stream.runDrain(chat.streamText({ prompt: "go", toolkit })))
        yield* TestClock.adjust(100)
        yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(lines(yield* Ref.get(chat.history)), ["user: go", "assistant: call w, call r"])
        yield* chat.generateText({ prompt: "and?", toolkit })
        const sent = (yield* prompts).at(-1)!
        assert.deepStrictEqual(lines(sent), [
          "user: go",
          "assistant: call w, call r",
          'tool: w "w", r cancelled/by_caller',
          "user: and?"
        ])
        assert.deepStrictEqual(History.check(sent), [])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a stream that is left before its turn began says that nothing was started", () =>
    Effect.gen(function*() {
      const { book, layer } = world(
        [
          FakeModel.calls([says("write", "w"), says("read", "r")], { cut: { after: 4, by: "hang" } }),
          FakeModel.text("ok")
        ]
      )
      yield* Effect.gen(function*() {
        const chat = yield* Chat.empty
        const fiber = yield* fork(Stream.runDrain(chat.streamText({ prompt: "go", toolkit })))
        yield* TestClock.adjust(100)
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(lines(yield* Ref.get(chat.history)), ["user: go", "assistant: call w"])
        yield* chat.generateText({ prompt: "and?", toolkit })
        const sent = (yield* prompts).at(-1)!
        assert.deepStrictEqual(lines(sent).slice(1, 3), ["assistant: call w", "tool: w cancelled/by_caller"])
        const [answer] = (sent.content[2] as Prompt.ToolMessage).content as ReadonlyArray<Prompt.ToolResultPart>
        assert.deepInclude(answer!.result, { code: "by_caller", retryable: true })
        assert.deepStrictEqual(book.runs, [])
      }).pipe(Effect.provide(layer))
    }))
})
