import { assert, describe, it } from "@effect/vitest"
import { ToolCall, ToolPolicy, Turn, TurnContext } from "effect-turn"
import { FakeBackend, FakeModel } from "effect-turn/testing"
import { LanguageModel, Prompt, Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { TestClock } from "effect/testing"

const Book = pipe(
  Tool.make("book", {
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.Int,
    failure: FakeBackend.Failure
  }),
  ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] }),
  ToolPolicy.forward(({ hotel }) => `booking:${hotel}`),
  ToolPolicy.failures({ noEffect: (failure) => failure._tag !== "ConnectionLost" })
)
const toolkit = Toolkit.make(Book)

/** A real handler: it forwards the call's key, as the tool's policy says. */
const handlerOn = (hotels: FakeBackend.FakeBackend) => ({ hotel }: { readonly hotel: string }) =>
  Effect.gen(function*() {
    const call = yield* TurnContext.CurrentCall
    return (yield* hotels.request({ key: call?.idempotencyKey, payload: { hotel } })).effect
  })

/** The loop around turns, until the model makes no more calls. */
const loop = Effect.gen(function*() {
  let prompt = Prompt.make("A room in the Tejo, please.")
  const statuses: Array<ReadonlyArray<string>> = []
  for (;;) {
    const response = yield* LanguageModel.generateText({
      prompt,
      toolkit,
      disableToolCallResolution: true,
      toolCallValidation: "deferred"
    })
    if (response.toolCalls.length === 0) return { text: response.text, statuses }
    const calls = ToolCall.fromParts(response.toolCalls)
    const outcomes = yield* Turn.run(toolkit, calls, { finishReason: response.finishReason })
    statuses.push(outcomes.map(({ effect, status }) => `${status}, ${effect}`))
    prompt = Prompt.concat(prompt, Turn.toPrompt(calls, outcomes, { parts: response.content }))
  }
})

describe("the fakes together", () => {
  it.effect("an answer is lost, the model tries again, and the hotel is booked once", () =>
    Effect.gen(function*() {
      const hotels = yield* FakeBackend.make({ behaviour: [{ fault: "loses-answer" }, {}] })
      const book = FakeModel.calls([FakeModel.call(Book, { hotel: "Tejo" })], { latency: "1 second" })
      const model = yield* FakeModel.make([book, book, FakeModel.text("It is booked.")])
      const running = yield* Effect.forkChild(
        Effect.provide(
          loop,
          Layer.mergeAll(
            toolkit.toLayer({ book: handlerOn(hotels) }),
            Turn.layer(),
            Layer.succeed(LanguageModel.LanguageModel, model.model)
          )
        )
      )
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* Fiber.join(running), {
        text: "It is booked.",
        statuses: [["error, unknown"], ["ok, applied"]]
      })
      assert.strictEqual(hotels.count({ key: "booking:Tejo" }), 1)
      assert.deepStrictEqual(model.requests.map(({ prompt }) => prompt.content.length), [1, 3, 5])
      assert.strictEqual(model.stepsLeft, 0)
    }))
})
