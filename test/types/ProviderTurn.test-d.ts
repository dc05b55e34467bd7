// Nothing here runs.
// @effect-diagnostics floatingEffect:off
import type Anthropic from "@anthropic-ai/sdk"
import type { GenerateContentResponse } from "@google/genai"
import { ProviderTurn, type Turn, type TurnError } from "effect-turn"
import { AnthropicMessages, type AnyDialect, GeminiContents, OpenAiChat, OpenAiResponses } from "effect-turn/wire"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import type * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type OpenAI from "openai"
import { describe, expectTypeOf, it } from "vitest"

const toolkit = Toolkit.make(Tool.make("look", { success: Schema.Int }))
type K = typeof toolkit
class Lost extends Schema.TaggedError<Lost>()("Lost", {}) {}

const streamOf = <A>(events: AsyncIterable<A>) => Stream.fromAsyncIterable(events, () => new Lost())

describe("ProviderTurn", () => {
  it("what each vendor's client streams goes in, and what goes back is the vendor's", () => {
    const chat = ProviderTurn.stream(
      toolkit,
      OpenAiChat.dialect,
      streamOf({} as AsyncIterable<OpenAI.ChatCompletionChunk>)
    )
    expectTypeOf<Effect.Success<typeof chat>["history"]>().toExtend<Array<OpenAI.ChatCompletionMessageParam>>()
    const responses = ProviderTurn.stream(
      toolkit,
      OpenAiResponses.dialect,
      streamOf({} as AsyncIterable<OpenAI.Responses.ResponseStreamEvent>)
    )
    expectTypeOf<Effect.Success<typeof responses>["history"]>().toExtend<OpenAI.Responses.ResponseInput>()
    const anthropic = ProviderTurn.stream(
      toolkit,
      AnthropicMessages.dialect,
      streamOf({} as AsyncIterable<Anthropic.RawMessageStreamEvent>)
    )
    expectTypeOf<Effect.Success<typeof anthropic>["history"]>().toExtend<Array<Anthropic.MessageParam>>()
    ProviderTurn.stream(
      toolkit,
      GeminiContents.dialect,
      streamOf({} as AsyncIterable<GenerateContentResponse>)
    )
  })

  it("outcomes are those of the toolkit, and a broken stream is told and not failed with", () => {
    const answered = ProviderTurn.stream(toolkit, OpenAiChat.dialect, streamOf({} as AsyncIterable<unknown>))
    expectTypeOf<Effect.Error<typeof answered>>().toEqualTypeOf<TurnError.TurnError>()
    expectTypeOf<Effect.Success<typeof answered>["outcomes"]>().toEqualTypeOf<Turn.Outcomes<K>>()
    expectTypeOf<Effect.Success<typeof answered>["broke"]>().toEqualTypeOf<Option.Option<Lost | TurnError.TurnError>>()
    expectTypeOf<Effect.Services<typeof answered>>().toEqualTypeOf<Turn.Services<K> | Turn.Runtime>()
    const last = pipe(toolkit, ProviderTurn.stream(OpenAiChat.dialect, streamOf({} as AsyncIterable<unknown>)))
    expectTypeOf(last).toEqualTypeOf(answered)
  })

  it("a whole response breaks only with a message that cannot be kept", () => {
    const answered = ProviderTurn.run(toolkit, OpenAiChat.dialect, {})
    expectTypeOf<Effect.Success<typeof answered>>().toEqualTypeOf<
      ProviderTurn.Answered<K, OpenAiChat.Message, OpenAiChat.AssistantMessage | OpenAiChat.ToolMessage>
    >()
    expectTypeOf(pipe(toolkit, ProviderTurn.run(OpenAiChat.dialect, {}))).toEqualTypeOf(answered)
    const any = ProviderTurn.run(toolkit, {} as AnyDialect, {}, { newId: (position) => `id_${position}` })
    expectTypeOf<Effect.Success<typeof any>["history"]>().toEqualTypeOf<Array<unknown>>()
    // @ts-expect-error how the response ended, the response says
    ProviderTurn.run(toolkit, OpenAiChat.dialect, {}, { finishReason: "stop" })
  })
})
