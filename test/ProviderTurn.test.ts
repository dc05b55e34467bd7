import { assert, describe, it } from "@effect/vitest"
import { type Outcome, ProviderTurn, ToolCall, type Turn, type TurnError } from "effect-turn"
import { type AnyDialect, dialects, EventStream } from "effect-turn/wire"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { drive, ended, fork, lab, toolkit, words } from "./utils/kit.ts"
import { anthropic, chat, gemini, neutral, responses, sse, type Streamed } from "./wire/streamed.ts"

/** Texts in single characters, parts one after another, an event for each. */
const next = (n: number): number => n === 3 ? 1 : 0

const providers: Record<string, (items: any, next: (n: number) => number) => Streamed> = {
  chat,
  responses,
  anthropic,
  gemini,
  neutral
}

const item = (name: "read" | "write" | "look", tag: string, k: ReadonlyArray<string> = []) => ({
  kind: "call" as const,
  id: tag,
  name,
  args: JSON.stringify({ tag, k }),
  extra: false
})

const said = { kind: "text" as const, text: "Let me see.", extra: false }

/** A response of these items, whole and as events. */
const response = (dialect: AnyDialect, ...items: ReadonlyArray<any>): Streamed => providers[dialect.id]!(items, next)

/** Events that come one every 10 ms. */
const slowly = (events: ReadonlyArray<unknown>): Stream.Stream<unknown> =>
  Stream.fromIterable(events).pipe(Stream.mapEffect((event) => Effect.as(Effect.sleep(10), event)))

const dialectOf = (id: string): AnyDialect => dialects.find((one) => one.id === id)!

const why = (broke: Option.Option<unknown>): string => (Option.getOrThrow(broke) as TurnError.TurnError).message

for (const dialect of dialects) {
  describe(dialect.name, () => {
    it.effect("a whole response and a streamed one are answered alike", () =>
      Effect.gen(function*() {
        const { layer } = lab({ script: { bad: { end: "fail" } } })
        const { events, whole } = response(
          dialect,
          said,
          item("read", "a"),
          item("write", "bad", ["x"]),
          item("write", "b", ["x"])
        )
        const plain = yield* drive(Effect.provide(ProviderTurn.run(toolkit, dialect, whole), layer))
        const bytes = Stream.make(new TextEncoder().encode(sse(events, next)))
        const streamed = yield* drive(
          Effect.provide(ProviderTurn.stream(toolkit, dialect, ProviderTurn.events(bytes)), layer)
        )
        assert.deepStrictEqual(words(plain.outcomes), ["ok", "error/failed", "ok"])
        assert.deepStrictEqual(streamed, plain)
        assert.deepStrictEqual(plain.broke, Option.none())
        assert.deepStrictEqual(
          plain.history,
          Result.getOrThrow(dialect.history(plain.message, plain.calls, plain.outcomes))
        )
        const last = yield* drive(Effect.provide(pipe(toolkit, ProviderTurn.run(dialect, whole)), layer))
        const lastStreamed = yield* drive(
          Effect.provide(pipe(toolkit, ProviderTurn.stream(dialect, Stream.fromIterable(events))), layer)
        )
        assert.deepStrictEqual([last, lastStreamed], [plain, plain])
      }))

    it.effect("R13: a read starts when its call is complete, a write when the response is over", () =>
      Effect.gen(function*() {
        const { book, layer } = lab({ script: { a: { ms: 5 }, b: { ms: 5 } } })
        const { events } = response(dialect, item("read", "a"), item("write", "b"), said, item("read", "c"))
        const done = yield* drive(
          Effect.gen(function*() {
            yield* ProviderTurn.stream(toolkit, dialect, slowly(events))
            return yield* Clock.currentTimeMillis
          }).pipe(Effect.provide(layer))
        )
        const over = events.length * 10
        assert.isAtLeast(done, over)
        // What says that the first call is complete is the event after which the assembler gives it.
        const assembler = dialect.assembler()
        const complete = events.findIndex((event) => Result.getOrThrow(assembler.push(event)).length > 0) + 1
        assert.deepStrictEqual(book.span("a"), [complete * 10, complete * 10 + 5])
        assert.strictEqual(book.span("b")[0], over)
        const first = events.findIndex((event) => JSON.stringify(event).includes('finish_reason":"')) + 1
        if (dialect.id === "chat") assert.strictEqual(complete, first)
        else assert.isBelow(complete, events.length - 1)
      }))

    it.effect("P1: a stream that fails: what had begun keeps its outcome, and the history holds what came", () =>
      Effect.gen(function*() {
        const { events } = response(dialect, said, item("read", "a"), item("write", "b"))
        for (let cut = 0; cut <= events.length; cut++) {
          const { book, layer } = lab()
          const broken = Stream.concat(slowly(events.slice(0, cut)), Stream.fail("the connection was lost" as const))
          const { broke, calls, finishReason, history, message, outcomes } = yield* drive(
            Effect.provide(ProviderTurn.stream(toolkit, dialect, broken), layer)
          )
          assert.deepStrictEqual(broke, Option.some("the connection was lost"))
          assert.strictEqual(outcomes.length, calls.length)
          // What was given before it broke off, and nothing else, had begun.
          const assembler = dialect.assembler()
          const given = events.slice(0, cut).flatMap((event) => Result.getOrThrow(assembler.push(event)))
          const begun = book.runs.map(({ position }) => position)
          if (!assembler.isOver()) {
            assert.deepStrictEqual(begun, given.flatMap(({ name }, at) => name === "read" ? [at] : []), `cut at ${cut}`)
          }
          for (const [position, outcome] of outcomes.entries()) {
            const isOk = outcome.status === "ok"
            assert.strictEqual(isOk, begun.includes(position), `cut at ${cut}`)
            if (!isOk) assert.deepStrictEqual(words([outcome]), ["error/incomplete_response"])
          }
          if (calls.length > 0) {
            assert.deepStrictEqual(history, Result.getOrThrow(dialect.history(message, calls, outcomes)))
          }
          if (cut < events.length - 2) {
            assert.strictEqual(finishReason, "error")
            assert.isTrue(book.runs.every(({ tool }) => tool === "read"))
          }
        }
      }))

    it.effect("a stream that just ends, and an error of the provider", () =>
      Effect.gen(function*() {
        const { events } = response(dialect, said, item("read", "a"), item("write", "b"))
        const { book, layer } = lab()
        const short = yield* drive(
          Effect.provide(ProviderTurn.stream(toolkit, dialect, slowly(events.slice(0, 2))), layer)
        )
        assert.include(why(short.broke), "expected the end of the response, and got the end of the stream")
        if (dialect.id === "neutral") return
        const error = { type: "error", error: { type: "overloaded_error", message: "Overloaded" } }
        let after = false
        const events2 = Stream.concat(
          slowly([...events.slice(0, 3), error]),
          Stream.suspend(() => {
            after = true
            return Stream.empty
          })
        )
        const failed = yield* drive(Effect.provide(ProviderTurn.stream(toolkit, dialect, events2), layer))
        assert.include(why(failed.broke), 'the provider\'s error "Overloaded" (overloaded_error)')
        assert.strictEqual(failed.finishReason, "error")
        assert.isFalse(after)
        assert.isFalse(book.runs.some(({ tool }) => tool === "write"))
      }))
  })
}

describe("ProviderTurn.stream", () => {
  const anthropicDialect = dialectOf("anthropic")

  it.effect("P2: the stream is read as fast as it comes, also while calls run", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 100_000 } } })
      const { events } = response(anthropicDialect, item("read", "a"), item("read", "b"))
      const read: Array<number> = []
      const noted = slowly(events).pipe(
        Stream.tap(() => Effect.map(Clock.currentTimeMillis, (now) => void read.push(now)))
      )
      const { outcomes } = yield* drive(
        Effect.provide(ProviderTurn.stream(toolkit, anthropicDialect, noted), layer)
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/handler", "ok"])
      assert.deepStrictEqual(read, events.map((_, at) => (at + 1) * 10))
      assert.isBelow(book.span("b")[0], 10 * events.length)
    }))

  it.effect("P3: a stop lets go of the stream, and the answer holds what came", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: Infinity } } })
      const { events } = response(anthropicDialect, item("read", "a"), item("write", "b"))
      const at = events.findIndex((event) => event.type === "content_block_stop") + 1
      const stop = yield* Deferred.make<string>()
      let closed = 0
      const stuck = slowly(events.slice(0, at)).pipe(
        Stream.concat(Stream.never),
        Stream.ensuring(Effect.map(Clock.currentTimeMillis, (now) => void (closed = now)))
      )
      const fiber = yield* fork(
        ProviderTurn.stream(toolkit, anthropicDialect, stuck, { cancelOn: Deferred.await(stop) }).pipe(
          Effect.provide(layer)
        )
      )
      yield* TestClock.adjust(1_000)
      assert.strictEqual(book.atWork.length, 1)
      yield* Deferred.succeed(stop, "user")
      yield* TestClock.adjust(0)
      const { broke, calls, finishReason, history, outcomes } = yield* ended(fiber)
      assert.strictEqual(closed, 1_000)
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller"])
      assert.deepStrictEqual([calls.length, finishReason, broke], [1, "error", Option.none()])
      assert.strictEqual(history.length, 2)
    }))

  it.effect("R11, R19: what a stop left half said was stopped too, and the model is not told to call again", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: Infinity } } })
      const { events } = response(anthropicDialect, item("read", "a"), item("write", "b"))
      const begun = events.flatMap((event, at) => event.type === "content_block_start" ? [at] : [])
      const stuck = Stream.concat(Stream.fromIterable(events.slice(0, begun[1]! + 1)), Stream.never)
      const { broke, outcomes } = yield* drive(
        ProviderTurn.stream(toolkit, anthropicDialect, stuck, {
          cancelOn: Effect.succeed("user").pipe(Effect.delay("1 second"))
        }).pipe(Effect.provide(layer)),
        1_000
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
      assert.isTrue(Option.isNone(broke))
      assert.isFalse(outcomes[1]!.started)
    }))

  it.effect("the deadline lets go of the stream too, before any call came", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const answered = yield* drive(
        ProviderTurn.stream(toolkit, anthropicDialect, Stream.never, { deadline: "1 second" }).pipe(
          Effect.provide(layer)
        ),
        1_000
      )
      assert.deepStrictEqual([answered.calls, answered.outcomes, answered.history], [[], [], []])
    }))

  it.effect("interruption stops the turn, lets go of the stream, and tells onClosed", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: Infinity, cleanup: 50 } } })
      const { events } = response(anthropicDialect, item("read", "a"), item("write", "b"))
      const at = events.findIndex((event) => event.type === "content_block_stop") + 1
      let closed: Turn.Closed | undefined
      let letGo = false
      const stuck = Stream.concat(Stream.fromIterable(events.slice(0, at)), Stream.never).pipe(
        Stream.ensuring(Effect.sync(() => void (letGo = true)))
      )
      const fiber = yield* fork(
        ProviderTurn.stream(toolkit, anthropicDialect, stuck, {
          onClosed: (told) => Effect.sync(() => void (closed = told as Turn.Closed))
        }).pipe(Effect.provide(layer))
      )
      yield* TestClock.adjust(100)
      assert.strictEqual(book.atWork.length, 1)
      const interrupted = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(49)
      assert.isUndefined(interrupted.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(interrupted)
      assert.isTrue(letGo)
      assert.strictEqual(book.atWork.length, 0)
      assert.deepStrictEqual(words(closed!.outcomes as ReadonlyArray<Outcome.Outcome>), ["cancelled/by_caller"])
    }))

  it.effect("an event that fits nowhere ends the reading, and nothing is lost", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const { events } = response(anthropicDialect, item("read", "a"), item("write", "b"))
      const at = events.findIndex((event) => event.type === "content_block_stop") + 1
      const strange = [
        ...events.slice(0, at),
        { type: "content_block_delta", index: 7, delta: { type: "text_delta", text: "" } },
        ...events.slice(at)
      ]
      const { broke, history, outcomes } = yield* drive(
        Effect.provide(ProviderTurn.stream(toolkit, anthropicDialect, slowly(strange)), layer)
      )
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.strictEqual(history.length, 2)
      assert.include(why(broke), "at index: expected the index of a content block that was started, and got 7")
    }))

  it.effect("a response that turns out to be unreadable is written anew from the calls that began", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const dialect = dialectOf("responses")
      const { events } = response(dialect, item("read", "a"))
      const computer = {
        type: "computer_call",
        id: "cu",
        call_id: "cu",
        action: { type: "screenshot" },
        status: "completed"
      }
      const whole = events.at(-1).response
      const strange = [
        ...events.slice(0, -1),
        { type: "response.output_item.done", output_index: 1, item: computer },
        { type: "response.completed", response: { ...whole, output: [events.at(-2).item, computer] } }
      ]
      const { broke, calls, history, outcomes } = yield* drive(
        Effect.provide(ProviderTurn.stream(toolkit, dialect, Stream.fromIterable(strange)), layer)
      )
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.deepStrictEqual(calls, [ToolCall.make("a", "read", JSON.stringify({ tag: "a", k: [] }))])
      assert.strictEqual(history.length, 2)
      assert.include(why(broke), "computer_call")
      // Where nothing began, it is the caller's to know.
      const alone = Stream.make(strange.at(-1))
      const failure = yield* drive(Effect.provide(Effect.flip(ProviderTurn.stream(toolkit, dialect, alone)), layer))
      assert.include(failure.message, "computer_call")
    }))

  it.effect("an id that comes with the end, and calls without ids", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const dialect = dialectOf("chat")
      const delta = (tool_calls: ReadonlyArray<unknown>, finish_reason: string | null = null) => ({
        choices: [{ index: 0, delta: { tool_calls }, finish_reason }]
      })
      const args = (tag: string) => JSON.stringify({ tag })
      const events = [
        delta([{ index: 0, function: { name: "read", arguments: args("a") } }]),
        delta([{ index: 2, function: { name: "read", arguments: args("c").slice(0, 4) } }]),
        delta([{ index: 1, function: { name: "read", arguments: args("b") } }]),
        delta([{ index: 2, function: { arguments: args("c").slice(4) } }, { index: 0, id: "late" }], "tool_calls")
      ]
      const { history, outcomes } = yield* drive(
        Effect.provide(
          ProviderTurn.stream(toolkit, dialect, Stream.fromIterable(events), { newId: (n) => `new_${n}` }),
          layer
        )
      )
      assert.deepStrictEqual(outcomes.map((one) => [one.id, one.status]), [["late", "ok"], ["", "ok"], ["", "ok"]])
      assert.deepStrictEqual(
        (history.slice(1) as ReadonlyArray<any>).map((one) => [one.tool_call_id, one.content]),
        [["late", "a"], ["new_1", "b"], ["new_2", "c"]]
      )
    }))

  it.effect("misuse fails, and a response with neither text nor calls leaves nothing to send", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const failure = yield* Effect.flip(ProviderTurn.run(toolkit, dialectOf("chat"), "text")).pipe(
        Effect.provide(layer)
      )
      assert.strictEqual(failure.reason._tag, "InvalidMessage")
      const empty = { choices: [{ finish_reason: "stop", message: { role: "assistant", content: "" } }] }
      const { broke, history } = yield* Effect.provide(ProviderTurn.run(toolkit, dialectOf("chat"), empty), layer)
      assert.deepStrictEqual(history, [])
      assert.include(why(broke), "an empty message")
    }))
})

describe("ProviderTurn.events", () => {
  it.effect("gives what came before an event that cannot be read, and what broke", () =>
    Effect.gen(function*() {
      const bytes = Stream.make('data: {"a":1}\n\ndata: {"b":2}\n\ndata: {oops}\n\ndata: {"c":3}\n\n')
      const read: Array<unknown> = []
      const failure = yield* Effect.flip(
        Stream.runForEach(ProviderTurn.events(bytes), (event) => Effect.sync(() => void read.push(event)))
      )
      assert.deepStrictEqual(read, [{ a: 1 }, { b: 2 }])
      assert.strictEqual(failure.message, 'event stream message, at events[2]: expected JSON, and got "{oops}"')
    }))

  it.effect("gives the failure of the bytes, and the last event without its blank line", () =>
    Effect.gen(function*() {
      const lost = Stream.concat(Stream.make("data: 1\n\n"), Stream.fail("lost" as const))
      assert.strictEqual(yield* Effect.flip(Stream.runCollect(ProviderTurn.events(lost))), "lost")
      const events = yield* Stream.runCollect(ProviderTurn.events(Stream.make('data: {"a"', ":1}")))
      assert.deepStrictEqual(events, [{ a: 1 }])
      assert.deepStrictEqual(Result.getOrThrow(EventStream.parse('data: {"a":1}')), [{ a: 1 }])
    }))
})
