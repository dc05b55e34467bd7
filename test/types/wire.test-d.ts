import type Anthropic from "@anthropic-ai/sdk"
import type { Candidate, Content, GenerateContentResponse } from "@google/genai"
import {
  type AnthropicMessages,
  type AnyDialect,
  type Dialect,
  dialects,
  type GeminiContents,
  type Neutral,
  type OpenAiChat,
  type OpenAiResponses
} from "effect-turn/wire"
import type OpenAI from "openai"
import { describe, expectTypeOf, it } from "vitest"

/** What a history holds. */
type Sent<Codec extends { readonly dialect: Dialect.Dialect<any, unknown> }> = Codec["dialect"] extends
  Dialect.Dialect<any, infer S> ? S : never

describe("the vendors' types", () => {
  it("Chat Completions: a message of a response comes in, params go back", () => {
    expectTypeOf<OpenAI.ChatCompletion["choices"][number]["message"]>().toExtend<OpenAiChat.Message>()
    expectTypeOf<Array<Sent<typeof OpenAiChat>>>().toExtend<Array<OpenAI.ChatCompletionMessageParam>>()
  })

  it("Responses: the items of a response come in, input items go back", () => {
    expectTypeOf<OpenAI.Responses.Response["output"]>().toExtend<OpenAiResponses.Message>()
    expectTypeOf<Array<Sent<typeof OpenAiResponses>>>().toExtend<OpenAI.Responses.ResponseInput>()
  })

  it("Anthropic: a message comes in, message params go back", () => {
    expectTypeOf<Anthropic.Message>().toExtend<AnthropicMessages.Message>()
    expectTypeOf<Anthropic.Beta.BetaMessage>().toExtend<AnthropicMessages.Message>()
    expectTypeOf<Array<Sent<typeof AnthropicMessages>>>().toExtend<Array<Anthropic.MessageParam>>()
    expectTypeOf<Array<Sent<typeof AnthropicMessages>>>().toExtend<Array<Anthropic.Beta.BetaMessageParam>>()
  })

  it("Gemini: a content comes in, contents go back", () => {
    expectTypeOf<Content>().toExtend<GeminiContents.Message>()
    expectTypeOf<NonNullable<Candidate["content"]>>().toExtend<GeminiContents.Message>()
    expectTypeOf<NonNullable<GenerateContentResponse["candidates"]>[number]>().toExtend<Candidate>()
    expectTypeOf<Array<Sent<typeof GeminiContents>>>().toExtend<Array<Content>>()
  })

  it("one vendor's history is not another's", () => {
    expectTypeOf<Array<Sent<typeof AnthropicMessages>>>().not.toExtend<Array<OpenAI.ChatCompletionMessageParam>>()
    expectTypeOf<Array<Sent<typeof OpenAiChat>>>().not.toExtend<OpenAI.Responses.ResponseInput>()
    expectTypeOf<Array<Sent<typeof OpenAiResponses>>>().not.toExtend<Array<Content>>()
    expectTypeOf<Array<Sent<typeof GeminiContents>>>().not.toExtend<Array<Anthropic.MessageParam>>()
  })
})

describe("dialects", () => {
  it("a list of them holds each", () => {
    expectTypeOf(dialects).toEqualTypeOf<ReadonlyArray<AnyDialect>>()
    expectTypeOf<(typeof OpenAiChat)["dialect"]>().toExtend<AnyDialect>()
    expectTypeOf<(typeof OpenAiResponses)["dialect"]>().toExtend<AnyDialect>()
    expectTypeOf<(typeof AnthropicMessages)["dialect"]>().toExtend<AnyDialect>()
    expectTypeOf<(typeof GeminiContents)["dialect"]>().toExtend<AnyDialect>()
    expectTypeOf<(typeof Neutral)["dialect"]>().toExtend<AnyDialect>()
  })
})
