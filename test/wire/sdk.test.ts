/**
 * The vendors' own clients against a server that is as strict as their providers: whatever a model says and however its turns end,
 * the history that comes of it is taken, and the types of the SDKs take it too.
 */
import Anthropic from "@anthropic-ai/sdk"
import { assert, layer } from "@effect/vitest"
import { type Content, GoogleGenAI } from "@google/genai"
import { ProviderTurn } from "effect-turn"
import { AnthropicMessages, type Dialect, GeminiContents, OpenAiChat, OpenAiResponses } from "effect-turn/wire"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import OpenAI from "openai"
import { runs } from "../utils/gen.ts"
import { drive } from "../utils/kit.ts"
import { goodbye, scriptOf, someConversation, type Step } from "./server/conversations.ts"
import { faults, rich } from "./server/faults.ts"
import { services, toolkit } from "./server/kit.ts"
import type { Provider } from "./server/rules.ts"
import * as ProviderServer from "./server/server.ts"

class Server extends Context.Service<Server, ProviderServer.ProviderServer>()("test/wire/Server") {
  static layer = Layer.effect(Server, ProviderServer.make)
}

/** One vendor's client, with what this library gives it typed as the vendor wants it. */
interface Client<Message, Sent extends Param, Param> {
  readonly dialect: Dialect.Dialect<Message, Sent>
  readonly user: (text: string) => Param
  readonly whole: (history: Array<Param>) => Promise<unknown>
  readonly stream: (history: Array<Param>) => Promise<AsyncIterable<unknown>>
  /** A stream that the client itself puts together. */
  readonly helper?: (history: Array<Param>) => Promise<unknown>
}

type ClientOf<Message, Sent extends Param, Param> = (url: string, conversation: string) => Client<Message, Sent, Param>

/** Whether the properties take a part of their inputs only, or others: then not everything has to come up. */
const isPart = process.env["EFFECT_TURN_RUNS"] !== undefined || process.env["EFFECT_TURN_SEED"] !== undefined

/** Ways in which a call of these turns may end, and what else has to come up. */
const expected = [
  "ok",
  "error/failed",
  "error/defect",
  "error/invalid_arguments",
  "error/unknown_tool",
  "error/ambiguous_id",
  "error/incomplete_response",
  "error/unencodable_result",
  "deferred/placeholder",
  "deferred/waits_for_approval",
  "pending_approval",
  "timeout/handler",
  "cancelled/by_caller",
  "cancelled/by_sibling",
  "cancelled/by_deadline",
  "whole",
  "events",
  "helper",
  "nothing was said"
]

/** What was seen over all conversations: the kinds of answers, and how often something happened. */
const seen = new Map<string, number>()
const note = (what: string) => seen.set(what, (seen.get(what) ?? 0) + 1)

const headersOf = (conversation: string) => ({ "x-conversation": conversation })

const openAi = (url: string, conversation: string) =>
  new OpenAI({
    apiKey: "none",
    baseURL: `${url}/v1`,
    maxRetries: 0,
    logLevel: "off",
    defaultHeaders: headersOf(conversation)
  })

const chat: ClientOf<
  OpenAiChat.Message,
  OpenAiChat.AssistantMessage | OpenAiChat.ToolMessage,
  OpenAI.ChatCompletionMessageParam
> = (url, conversation) => {
  const { completions } = openAi(url, conversation).chat
  return {
    dialect: OpenAiChat.dialect,
    user: (content) => ({ role: "user", content }),
    whole: (messages) => completions.create({ model: "m", messages }),
    stream: (messages) => completions.create({ model: "m", messages, stream: true }),
    helper: (messages) => completions.stream({ model: "m", messages }).finalChatCompletion()
  }
}

const responses: ClientOf<OpenAiResponses.Message, OpenAiResponses.Sent, OpenAI.Responses.ResponseInputItem> = (
  url,
  conversation
) => {
  const client = openAi(url, conversation)
  return {
    dialect: OpenAiResponses.dialect,
    user: (content) => ({ role: "user", content }),
    whole: (input) => client.responses.create({ model: "m", input, store: false }),
    stream: (input) => client.responses.create({ model: "m", input, store: false, stream: true }),
    helper: (input) => client.responses.stream({ model: "m", input, store: false }).finalResponse()
  }
}

const anthropic: ClientOf<
  AnthropicMessages.Message,
  AnthropicMessages.AssistantMessage | AnthropicMessages.ResultMessage,
  Anthropic.MessageParam
> = (
  url,
  conversation
) => {
  const { messages: api } = new Anthropic({
    apiKey: "none",
    baseURL: url,
    maxRetries: 0,
    logLevel: "off",
    defaultHeaders: headersOf(conversation)
  })
  return {
    dialect: AnthropicMessages.dialect,
    user: (content) => ({ role: "user", content }),
    whole: (messages) => api.create({ model: "m", max_tokens: 100, messages }),
    stream: (messages) => api.create({ model: "m", max_tokens: 100, messages, stream: true }),
    helper: (messages) => api.stream({ model: "m", max_tokens: 100, messages }).finalMessage()
  }
}

const gemini: ClientOf<GeminiContents.Message, GeminiContents.Content, Content> = (url, conversation) => {
  const { models } = new GoogleGenAI({
    apiKey: "none",
    httpOptions: { baseUrl: url, headers: headersOf(conversation) }
  })
  return {
    dialect: GeminiContents.dialect,
    user: (text) => ({ role: "user", parts: [{ text }] }),
    whole: (contents) => models.generateContent({ model: "m", contents }),
    stream: (contents) => models.generateContentStream({ model: "m", contents })
  }
}

/** What a client gave: a response, or the events of one, and whether their stream broke off in the middle of an event. */
interface Got {
  readonly response?: unknown
  readonly events?: ReadonlyArray<unknown>
  readonly broke?: unknown
}

const ask = async <Message, Sent extends Param, Param>(
  client: Client<Message, Sent, Param>,
  history: Array<Param>,
  step: Step
): Promise<Got | undefined> => {
  if (step.mode === "whole") return { response: await client.whole(history) }
  if (step.mode === "helper") {
    const { helper = client.whole } = client
    return helper(history).then((response) => ({ response }), (error: unknown) => {
      // Some responses are too odd for the client itself. What the provider refuses has a status.
      if ((error as { readonly status?: unknown }).status !== undefined) throw error
      return undefined
    })
  }
  const events: Array<unknown> = []
  const stream = await client.stream(history)
  try {
    for await (const event of stream) events.push(event)
  } catch (broke) {
    if (step.breaks === undefined) throw broke
    return { events, broke }
  }
  return { events }
}

/** Holds a conversation to its end: every request carries what this library made of the last response. */
const converse = <Message, Sent extends Param, Param>(
  provider: Provider,
  clientOf: ClientOf<Message, Sent, Param>,
  steps: ReadonlyArray<Step>
) =>
  Effect.gen(function*() {
    const server = yield* Server
    const client = clientOf(server.url, server.converse(scriptOf(provider, steps)))
    const history = [client.user("hello")]
    for (const step of [...steps, goodbye]) {
      const got = yield* Effect.promise(() =>
        ask(client, history, step).catch((error: unknown) => {
          throw new Error(`${error}\n${JSON.stringify(history, null, 1)}`, { cause: error })
        })
      )
      if (got === undefined) return note("the client gave nothing")
      note(step.mode)
      const { options } = step
      const events = Stream.concat(
        Stream.fromIterable(got.events ?? []),
        got.broke === undefined ? Stream.empty : Stream.fail(got.broke)
      )
      const answered = yield* drive(
        got.events === undefined
          ? ProviderTurn.run(toolkit, client.dialect, got.response, options)
          : ProviderTurn.stream(toolkit, client.dialect, events, options)
      )
      for (const outcome of answered.outcomes) {
        note("code" in outcome ? `${outcome.status}/${outcome.code}` : outcome.status)
      }
      note(`turns of ${provider}`)
      if (answered.history.length === 0) note("nothing was said")
      history.push(...answered.history)
      const isPaused = answered.finishReason === "pause" && answered.calls.length === 0
      if (!isPaused && (answered.calls.length === 0 || step.more)) history.push(client.user("go on"))
    }
  }).pipe(Effect.provide(services))

/** Sends what was done to a sound history; gives the refusal. */
const plant = <Message, Sent extends Param, Param>(
  provider: Provider,
  clientOf: ClientOf<Message, Sent, Param>,
  change: (history: Array<any>) => unknown
) =>
  Effect.gen(function*() {
    const server = yield* Server
    const client = clientOf(server.url, server.converse(scriptOf(provider, [rich])))
    const history = [client.user("hello")]
    const response = yield* Effect.promise(() => client.whole(history))
    const answered = yield* drive(ProviderTurn.run(toolkit, client.dialect, response))
    history.push(...answered.history)
    const planted = structuredClone(history)
    change(planted)
    const refused = yield* Effect.promise(() => client.whole(planted).then(() => undefined, (error: unknown) => error))
    return refused === undefined
      ? undefined
      : { status: (refused as { status?: unknown }).status, text: String(refused) }
  }).pipe(Effect.provide(services))

layer(Server.layer)("the vendors' clients", (it) => {
  const both = <Message, Sent extends Param, Param>(
    provider: Provider,
    name: string,
    clientOf: ClientOf<Message, Sent, Param>
  ) => {
    it.effect.prop(
      `R4, R34: ${name}: whatever is said and however it ends, never a 400`,
      { steps: someConversation },
      ({ steps }) => converse(provider, clientOf, steps),
      { ...runs(180), timeout: 120_000 }
    )

    it.effect(`${name}: planted faults are refused`, () =>
      Effect.gen(function*() {
        assert.isUndefined(yield* plant(provider, clientOf, () => undefined))
        for (const [what, change, refusal] of faults[provider]) {
          const refused = yield* plant(provider, clientOf, change)
          assert.strictEqual(refused?.status, 400, what)
          assert.include(refused!.text, refusal, what)
        }
      }))
  }

  both("chat", "Chat Completions", chat)
  both("responses", "Responses", responses)
  both("anthropic", "Anthropic", anthropic)
  both("gemini", "Gemini", gemini)

  it.effect("all of it was tried", () =>
    Effect.gen(function*() {
      const { counts } = yield* Server
      const least = isPart ? 1 : 100
      for (const [provider, { refused, served, streamed }] of Object.entries(counts)) {
        assert.isAtLeast(served, 3 * least, provider)
        assert.isAtLeast(streamed, least, provider)
        assert.strictEqual(refused, faults[provider as Provider].length, provider)
      }
      if (isPart) return
      for (const what of expected) assert.isAtLeast(seen.get(what) ?? 0, 3, what)
    }))
})
