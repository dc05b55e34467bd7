/**
 * A provider on this machine: the four APIs, whole and streamed. It answers each conversation with the responses that a test gave
 * it, and refuses what the providers are known to refuse, and what is not as it said it.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import { changed } from "./given.ts"
import { isObject } from "./refusals.ts"
import { type Provider, rules } from "./rules.ts"
import { type Dice, eventsOf, toText } from "./stream.ts"

/** One response of a script. */
export interface Scripted {
  readonly response: unknown
  /** How a stream is cut into pieces. */
  readonly dice: Dice
  /** Where the stream breaks off, as a share of it. Default: never. */
  readonly breaks?: number | undefined
}

/** What the server has seen of a conversation. */
interface Conversation {
  readonly script: ReadonlyArray<Scripted>
  /** The responses that were served whole. */
  readonly served: Array<unknown>
  /** A stream broke off, so that the server cannot know what came through. */
  broken: boolean
}

export interface ProviderServer {
  readonly url: string
  /** Begins a conversation; its id goes into the header `x-conversation` of its requests. */
  readonly converse: (script: ReadonlyArray<Scripted>) => string
  /** How many responses each API has served, and how many requests it has refused. */
  readonly counts: Record<Provider, { served: number; streamed: number; refused: number }>
}

const paths: ReadonlyArray<readonly [path: RegExp, provider: Provider]> = [
  [/^\/v1\/chat\/completions$/, "chat"],
  [/^\/v1\/responses$/, "responses"],
  [/^\/v1\/messages$/, "anthropic"],
  [/^\/v1(?:beta)?\/models\/[^/]+:(generateContent|streamGenerateContent)$/, "gemini"]
]

/** The provider's own form of an error. */
const errorOf = (provider: Provider, message: string): unknown => {
  switch (provider) {
    case "chat":
    case "responses":
      return { error: { message, type: "invalid_request_error", param: null, code: null } }
    case "anthropic":
      return { type: "error", error: { type: "invalid_request_error", message }, request_id: "req_local" }
    case "gemini":
      return { error: { code: 400, message, status: "INVALID_ARGUMENT" } }
  }
}

const read = async (request: http.IncomingMessage): Promise<unknown> => {
  const chunks: Array<Buffer> = []
  for await (const chunk of request) chunks.push(chunk)
  try {
    return JSON.parse(Buffer.concat(chunks).toString("utf8"))
  } catch {
    return undefined
  }
}

/** Starts the server on a free port, until its scope closes. */
export const make: Effect.Effect<ProviderServer, never, Scope.Scope> = Effect.gen(function*() {
  const conversations = new Map<string, Conversation>()
  const none = () => ({ served: 0, streamed: 0, refused: 0 })
  const counts = { chat: none(), responses: none(), anthropic: none(), gemini: none() }

  const answer = async (request: http.IncomingMessage, response: http.ServerResponse): Promise<void> => {
    const url = new URL(request.url ?? "/", "http://localhost")
    const provider = paths.find(([path]) => path.test(url.pathname))?.[1]
    const body = await read(request)
    const conversation = conversations.get(String(request.headers["x-conversation"]))
    const json = (status: number, value: unknown) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value))
    if (provider === undefined || conversation === undefined) return void json(404, { error: { message: "not found" } })
    const refusal = rules[provider](body) ?? needed(provider, body) ??
      (conversation.broken ? undefined : changed(provider, body, conversation.served))
    if (refusal !== undefined) {
      counts[provider].refused++
      return void json(400, errorOf(provider, refusal))
    }
    const next = conversation.script[conversation.served.length]
    if (next === undefined) return void json(500, errorOf(provider, "the script is over"))
    conversation.served.push(next.response)
    counts[provider].served++
    const isStream = provider === "gemini"
      ? url.pathname.endsWith(":streamGenerateContent")
      : isObject(body) && body.stream === true
    if (!isStream) return void json(200, next.response)
    counts[provider].streamed++
    const text = toText(eventsOf[provider](next.response, next.dice))
    response.writeHead(200, { "content-type": "text/event-stream" })
    if (next.breaks === undefined) return void response.end(text)
    conversation.broken = true
    response.end(text.slice(0, Math.floor(text.length * next.breaks)))
  }

  const server = http.createServer((request, response) => {
    answer(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)))
  })
  const close = Effect.callback<void>((resume) => {
    server.closeAllConnections()
    server.close(() => resume(Effect.void))
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () => close
  )
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    converse: (script) => {
      const id = `conversation-${conversations.size}`
      conversations.set(id, { script, served: [], broken: false })
      return id
    },
    counts
  }
})

/** What each request needs besides its conversation. */
const needed = (provider: Provider, body: unknown): string | undefined => {
  const { max_tokens, model } = body as Record<string, unknown>
  if (provider === "gemini") return undefined
  if (typeof model !== "string") return "you must provide a model parameter"
  return provider === "anthropic" && typeof max_tokens !== "number" ? "max_tokens: Field required" : undefined
}
