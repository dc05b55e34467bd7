import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { type ToolCall, TurnError } from "effect-turn"
import { type AnyDialect, dialects, EventStream } from "effect-turn/wire"
import { ok, refused } from "./outcomes.ts"
import { rules } from "./server/rules.ts"
import {
  anthropic,
  bytes,
  chat,
  gemini,
  inputs,
  neutral,
  type Next,
  nextOf,
  responses,
  sse,
  type Streamed
} from "./streamed.ts"

const streamed: Record<string, (items: any, next: Next) => Streamed> = { chat, responses, anthropic, gemini, neutral }

/** Pushes events, and gives the calls that came. */
const pushAll = (dialect: AnyDialect, events: ReadonlyArray<unknown>) => {
  const assembler = dialect.assembler()
  const pushed: Array<ToolCall.ToolCall> = []
  for (const event of events) pushed.push(...Result.getOrThrow(assembler.push(event)))
  return { assembler, pushed, end: Result.getOrThrow(assembler.end()) }
}

/** What a provider says to a request with this history. */
const refusal = (id: string, history: ReadonlyArray<unknown>): string | undefined => {
  // Where there is no answer to go back, the user says something more.
  const more = history.length === 1
  const messages = [{ role: "user", content: "hi" }, ...history, ...(more ? [{ role: "user", content: "go on" }] : [])]
  switch (id) {
    case "chat":
      return rules.chat({ model: "m", messages })
    case "anthropic":
      return rules.anthropic({ model: "m", max_tokens: 9, messages })
    case "responses":
      return rules.responses({ model: "m", input: messages })
    case "gemini":
      return rules.gemini({
        contents: messages.map((one: any) =>
          one.role === "user" && "content" in one ? { role: "user", parts: [{ text: one.content }] } : one
        )
      })
    default:
      return undefined
  }
}

it("every dialect has its streams here", () => {
  assert.deepStrictEqual(dialects.map(({ id }) => id).toSorted(), Object.keys(streamed).toSorted())
})

for (const dialect of dialects) {
  const make = streamed[dialect.id]!

  describe(dialect.name, () => {
    it.effect.prop(
      "a streamed response is the response that was not streamed",
      inputs,
      ({ items, numbers }) =>
        Effect.sync(() => {
          const { events, whole } = make(items, nextOf(numbers))
          const { assembler, end, pushed } = pushAll(dialect, events)
          const decoded = Result.getOrThrow(dialect.decode(whole))
          assert.deepStrictEqual(end, decoded)
          assert.isTrue(assembler.isOver())
          const isCut = end.finishReason === "length"
          assert.deepStrictEqual(pushed, isCut ? end.calls.slice(0, pushed.length) : end.calls)
        }),
      { arbitrary: { runs: 500 } }
    )

    it.effect.prop(
      "cut off anywhere, it gives what came, runs nothing, and goes back as the provider takes it",
      inputs,
      ({ items, numbers }) =>
        Effect.sync(() => {
          const { events } = make(items, nextOf(numbers))
          const all = pushAll(dialect, events)
          for (let cut = 0; cut <= events.length; cut++) {
            const { assembler, end, pushed } = pushAll(dialect, events.slice(0, cut))
            assert.deepStrictEqual(pushed, end.calls.slice(0, pushed.length))
            assert.deepStrictEqual(pushed, all.end.calls.slice(0, pushed.length))
            if (assembler.isOver()) continue
            assert.strictEqual(end.finishReason, "error")
            const outcomes = end.calls.map((call, at) =>
              at < pushed.length ? ok(call, at, { at }) : refused(call, at, "incomplete_response", "cut off")
            )
            const history = dialect.history(end.message, end.calls, outcomes)
            if (Result.isSuccess(history)) assert.isUndefined(refusal(dialect.id, history.success))
            else {
              // There is nothing to send.
              assert.deepStrictEqual(end.calls, [])
              assert.match(history.failure.message, /an empty (message|content)/)
            }
          }
          assert.isFalse(pushAll(dialect, events.slice(0, -3)).assembler.isOver())
        }),
      { arbitrary: { runs: 100 } }
    )

    it.effect.prop(
      "its events are read from bytes that are cut anywhere",
      inputs,
      ({ items, numbers }) =>
        Effect.sync(() => {
          const next = nextOf(numbers)
          const { events } = make(items, next)
          const parser = EventStream.parser()
          const read = bytes(sse(events, next), next).flatMap((piece) => [...parser.push(piece)])
          assert.deepStrictEqual([...read, ...parser.end()].map(Result.getOrThrow), events)
          assert.strictEqual(Result.getOrThrow(EventStream.detect(events)).id, dialect.id)
          // Recorded as JSON: a value a line, or one list.
          for (
            const text of [events.map((event) => JSON.stringify(event)).join("\n"), JSON.stringify(events, null, 2)]
          ) {
            assert.deepStrictEqual(Result.getOrThrow(EventStream.parse(text)), events)
            const pieces = EventStream.parser()
            const cut = bytes(text, next).flatMap((piece) => [...pieces.push(piece)])
            assert.deepStrictEqual([...cut, ...pieces.end()].map(Result.getOrThrow), events)
          }
        }),
      { arbitrary: { runs: 100 } }
    )

    it("says what a provider's error was, and keeps what came before", () => {
      const error = { message: "Overloaded", type: "overloaded_error" }
      const { events } = make([{ kind: "text", text: "a", extra: false }], nextOf([0]))
      const { assembler } = pushAll(dialect, events.slice(0, 1))
      const failed = assembler.push({ type: "error", error })
      if (dialect.id === "neutral") return
      assert.isTrue(Result.isFailure(failed))
      const { reason } = Result.getOrThrow(Result.flip(failed))
      assert.include(reason.message, 'the provider\'s error "Overloaded" (overloaded_error)')
      assert.isTrue(Result.isFailure(assembler.push(events[1])))
      assert.isFalse(assembler.isOver())
      assert.strictEqual(Result.getOrThrow(assembler.end()).finishReason, "error")
    })

    it("refuses what is no event", () => {
      for (const event of ["text", null, 7, [7]]) {
        const failed = dialect.assembler().push(event)
        assert.isTrue(Result.isFailure(failed))
        assert.instanceOf(Result.getOrThrow(Result.flip(failed)), TurnError.TurnError)
      }
    })
  })
}
