/** The models that are held to the laws: the scripted one, and a provider of its own over HTTP. */
import { FakeModel } from "effect-turn/testing"
import { AiError, LanguageModel, type Prompt, type Response, Tool } from "effect/ai"
import * as Effect from "effect/Effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import type { Make, Said } from "./languageModel.ts"

const stepOf = ({ calls, hangs, text }: Said): FakeModel.Step =>
  FakeModel.calls(calls.map(({ id, name, params }) => FakeModel.call(name, params, { id })), {
    text,
    chunk: [1, 4, 3],
    ...(hangs ? { cut: { after: 4, by: "hang" } } : {})
  })

/** `entry` makes what the script says of what the law wants to be said. */
export const fake = (entry: (said: Said) => FakeModel.Entry = stepOf): Make => (said) =>
  Effect.map(FakeModel.make([entry(said)], { repeatLast: true }), (fake) => ({
    model: fake.model,
    requests: Effect.sync(() => fake.requests.length),
    entered: Effect.suspend(() => (fake.inFlight.length > 0 ? Effect.void : Effect.die("no request is there"))),
    left: Effect.suspend(() =>
      fake.requests.at(-1)?.end === "interrupted" ? Effect.void : Effect.die("the request has not ended")
    )
  }))

const usage = { prompt_tokens: 9, completion_tokens: 12, total_tokens: 21 }

const messageOf = ({ calls, text }: Said) => ({
  role: "assistant",
  content: text,
  ...(calls.length === 0 ? {} : {
    tool_calls: calls.map(({ id, name, params }) => ({
      id,
      type: "function",
      function: { name, arguments: JSON.stringify(params) }
    }))
  })
})

/** The answer as hosts stream it: a first chunk with the role, arguments in pieces, the finish reason, the usage, the end. */
const eventsOf = (said: Said): ReadonlyArray<unknown> => {
  const { calls, hangs, text } = said
  const chunk = (delta: unknown, finish_reason: string | null = null) => ({
    choices: [{ index: 0, delta, finish_reason }]
  })
  const pieces = (text: string) => text.match(/[\s\S]{1,5}/gu) ?? []
  const spoken = [
    chunk({ role: "assistant", content: "" }),
    ...pieces(text).map((content) => chunk({ content }))
  ]
  if (hangs) return spoken
  return [
    ...spoken,
    ...calls.flatMap(({ id, name, params }, index) => [
      chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] }),
      ...pieces(JSON.stringify(params)).map((piece) =>
        chunk({ tool_calls: [{ index, function: { arguments: piece } }] })
      )
    ]),
    chunk({}, calls.length === 0 ? "stop" : "tool_calls"),
    { choices: [], usage }
  ]
}

/** A server that speaks OpenAI's chat completions and says one thing. Its packets end anywhere, also inside a character. */
const serve = (said: Said) =>
  Effect.gen(function*() {
    const entries = yield* Queue.unbounded<void>()
    const departures = yield* Queue.unbounded<void>()
    let requests = 0
    const respond = async (request: http.IncomingMessage, response: http.ServerResponse) => {
      const chunks: Array<Buffer> = []
      for await (const chunk of request) chunks.push(chunk as Buffer)
      const { stream } = JSON.parse(Buffer.concat(chunks).toString()) as { readonly stream: boolean }
      requests++
      response.once("close", () => {
        if (!response.writableFinished) Queue.offerUnsafe(departures, undefined)
      })
      Queue.offerUnsafe(entries, undefined)
      if (!stream) {
        if (said.hangs) return
        const finish_reason = said.calls.length === 0 ? "stop" : "tool_calls"
        response.writeHead(200, { "content-type": "application/json" })
        return response.end(JSON.stringify({ choices: [{ index: 0, message: messageOf(said), finish_reason }], usage }))
      }
      response.writeHead(200, { "content-type": "text/event-stream" })
      const events = eventsOf(said).map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")
      const bytes = Buffer.from(`: hello\n\n${events}${said.hangs ? "" : "data: [DONE]\n\n"}`)
      for (let at = 0; at < bytes.length; at += 97) {
        response.write(bytes.subarray(at, at + 97))
        await new Promise((resolve) => setImmediate(resolve))
      }
      return said.hangs ? undefined : response.end()
    }
    const server = yield* Effect.acquireRelease(
      Effect.callback<http.Server>((resume) => {
        const server = http.createServer((request, response) => {
          respond(request, response).catch((error: unknown) => response.destroy(error as Error))
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.callback<void>((resume) => {
          server.closeAllConnections()
          server.close(() => resume(Effect.void))
        })
    )
    return {
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/chat/completions`,
      requests: Effect.sync(() => requests),
      entered: Queue.take(entries),
      left: Queue.take(departures)
    }
  })

interface Entry {
  readonly index: number
  readonly id?: string
  readonly function: { readonly name?: string; readonly arguments: string }
}
interface Completion {
  readonly choices: ReadonlyArray<{
    readonly finish_reason: string | null
    readonly message: { readonly content: string; readonly tool_calls?: ReadonlyArray<Entry> }
    readonly delta: { readonly content?: string; readonly tool_calls?: ReadonlyArray<Entry> }
  }>
  readonly usage?: typeof usage
}

const reasonOf = (reason: string): Response.FinishReason =>
  reason === "tool_calls" ? "tool-calls" : reason === "stop" || reason === "length" ? reason : "other"

const finishOf = (reason: string | null | undefined, spent: typeof usage): Response.FinishPartEncoded => ({
  type: "finish",
  reason: reasonOf(reason ?? "stop"),
  usage: {
    inputTokens: { uncached: undefined, total: spent.prompt_tokens, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: spent.completion_tokens, text: undefined, reasoning: undefined }
  }
})

/** Makes the parts of a stream from its chunks, one after the other. */
const makeReader = () => {
  const calls = new Map<number, { readonly id: string; readonly name: string; text: string }>()
  let textOpen = false
  let reason: string | null = null
  return ({ choices: [choice], usage }: Completion): Array<Response.StreamPartEncoded> => {
    const parts: Array<Response.StreamPartEncoded> = []
    const closeText = () => {
      if (textOpen) parts.push({ type: "text-end", id: "text" })
      textOpen = false
    }
    const { content, tool_calls = [] } = choice?.delta ?? {}
    if (content !== undefined && content !== "") {
      if (!textOpen) parts.push({ type: "text-start", id: "text" })
      textOpen = true
      parts.push({ type: "text-delta", id: "text", delta: content })
    }
    for (const { function: { arguments: delta, name = "" }, id, index } of tool_calls) {
      closeText()
      if (id !== undefined) {
        calls.set(index, { id, name, text: "" })
        parts.push({ type: "tool-params-start", id, name })
      }
      const call = calls.get(index)!
      call.text += delta
      if (delta !== "") parts.push({ type: "tool-params-delta", id: call.id, delta })
    }
    if (choice?.finish_reason != null) {
      closeText()
      reason = choice.finish_reason
      for (const { id, name, text } of calls.values()) {
        parts.push({ type: "tool-params-end", id })
        parts.push({ type: "tool-call", id, name, params: Tool.unsafeSecureJsonParse(text) })
      }
    }
    if (usage !== undefined) parts.push(finishOf(reason, usage))
    return parts
  }
}

const textOf = ({ content }: Prompt.Prompt) =>
  content.map(({ content, role }) => ({
    role,
    content: typeof content === "string"
      ? content
      : content.map((part) => (part.type === "text" ? part.text : "")).join("")
  }))

const network = (method: string) => (error: unknown) =>
  AiError.make({ module: "OverHttp", method, reason: new AiError.UnknownError({ description: String(error) }) })

/** A provider for that server, as small as one can be. */
export const overHttp: Make = (said) =>
  Effect.gen(function*() {
    const { url, ...server } = yield* serve(said)
    const client = yield* HttpClient.HttpClient
    const ask = ({ prompt, tools }: LanguageModel.ProviderOptions, stream: boolean) =>
      client.execute(
        HttpClientRequest.bodyJsonUnsafe(HttpClientRequest.post(url), {
          model: "m",
          stream,
          messages: textOf(prompt),
          tools: tools.map((tool) => ({
            type: "function",
            function: { name: tool.name, parameters: Tool.getJsonSchema(tool) }
          }))
        })
      )
    const model = yield* LanguageModel.make({
      generateText: (options) =>
        Effect.gen(function*() {
          const body = (yield* (yield* ask(options, false)).json) as unknown as Completion
          const { finish_reason, message } = body.choices[0]!
          return [
            { type: "text", text: message.content },
            ...(message.tool_calls ?? []).map((call): Response.PartEncoded => ({
              type: "tool-call",
              id: call.id!,
              name: call.function.name!,
              params: Tool.unsafeSecureJsonParse(call.function.arguments)
            })),
            finishOf(finish_reason, body.usage!)
          ] satisfies Array<Response.PartEncoded>
        }).pipe(Effect.mapError(network("generateText"))),
      streamText: (options) =>
        Stream.suspend(() => {
          const read = makeReader()
          return Stream.unwrap(Effect.map(ask(options, true), (response) => response.stream)).pipe(
            Stream.decodeText,
            Stream.splitLines,
            Stream.filter((line) => line.startsWith("data: ")),
            Stream.map((line) => line.slice("data: ".length)),
            Stream.takeWhile((data) => data !== "[DONE]"),
            Stream.map((data) => read(JSON.parse(data) as Completion)),
            Stream.flattenIterable,
            Stream.mapError(network("streamText"))
          )
        })
    })
    return { model, ...server }
  }).pipe(Effect.provide(FetchHttpClient.layer))
