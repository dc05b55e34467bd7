/**
 * Hands the idempotency key of the call at work on to the backend that honours it, as a header of its HTTP requests.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import * as Headers from "effect/http/Headers"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as TurnContext from "./TurnContext.ts"

/**
 * How a key becomes a header.
 *
 * **Details**
 *
 * - `header`: its name. Default: `"Idempotency-Key"`.
 * - `form`: the key as it is, which is what most backends take, or between double quotes, which is what the IETF's draft of the header asks
 *   for. Default: `"bare"`.
 * - `key`: what is sent with a request, from the key of the call; `undefined` sends nothing. Default: the key itself, with the methods that
 *   write: POST, PUT, PATCH and DELETE.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface HeaderOptions {
  readonly header?: string | undefined
  readonly form?: "bare" | "quoted" | undefined
  readonly key?:
    | ((
      key: string,
      request: HttpClientRequest.HttpClientRequest,
      call: TurnContext.CallContext
    ) => string | undefined)
    | undefined
}

/**
 * Makes an HTTP client that sends the key of the call which it works for, in the header `Idempotency-Key`.
 *
 * **Details**
 *
 * The key is read at each request, from `TurnContext.CurrentCall`, so one client serves all handlers, and a request that is sent again has
 * the same key. Outside a call, in a call without a key, and where the request has that header already, requests go out as they are. A key
 * may be any text: what a header cannot carry (spaces, control characters, what is not ASCII) and `%` are written as `%20` and the like, so
 * that two keys never become one. In the client's spans the value is redacted.
 *
 * **Gotchas**
 *
 * - One key stands for one request: a handler that sends several writes gives each a key of its own, with `key`.
 * - A backend knows nothing of tenants, conversations and tools: keys that are unique only in these have to be widened, with `key`.
 *
 * **Example** (A booking with its key)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { IdempotencyKey, ToolCall, ToolPolicy, Turn } from "effect-turn"
 * import { Tool, Toolkit } from "effect/ai"
 * import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
 *
 * const Book = pipe(
 *   Tool.make("book", { parameters: Schema.Struct({ trip: Schema.String }), success: Schema.String }),
 *   ToolPolicy.write({ keys: ({ trip }) => [`trip:${trip}`] }),
 *   ToolPolicy.forward(({ trip }) => `booking:${trip}`)
 * )
 * const toolkit = Toolkit.make(Book)
 * const tools = toolkit.toLayer(Effect.gen(function*() {
 *   const client = (yield* HttpClient.HttpClient).pipe(
 *     HttpClient.mapRequest(HttpClientRequest.prependUrl("https://hotels.example")),
 *     IdempotencyKey.withHeader()
 *   )
 *   return {
 *     book: ({ trip }) => Effect.orDie(Effect.flatMap(client.post(`/trips/${trip}`), (response) => response.text))
 *   }
 * }))
 *
 * // A backend that tells the key which it was sent.
 * const backend = Layer.succeed(
 *   HttpClient.HttpClient,
 *   HttpClient.make((request) =>
 *     Effect.succeed(HttpClientResponse.fromWeb(request, new Response(request.headers["idempotency-key"])))
 *   )
 * )
 * const outcomes = await Turn.run(toolkit, [ToolCall.make("c1", "book", { trip: "T7" })]).pipe(
 *   Effect.provide([Layer.provide(tools, backend), Turn.layer()]),
 *   Effect.runPromise
 * )
 * const sent = outcomes.map((outcome) => outcome.status === "ok" && outcome.result) // => ["booking:T7"]
 * ```
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const withHeader: {
  (options?: HeaderOptions): <E, R>(client: HttpClient.HttpClient.With<E, R>) => HttpClient.HttpClient.With<E, R>
  <E, R>(client: HttpClient.HttpClient.With<E, R>, options?: HeaderOptions): HttpClient.HttpClient.With<E, R>
} = dual(
  (args) => HttpClient.isHttpClient(args[0]),
  <E, R>(client: HttpClient.HttpClient.With<E, R>, options?: HeaderOptions): HttpClient.HttpClient.With<E, R> => {
    const header = (options?.header ?? "Idempotency-Key").toLowerCase()
    const keyOf = options?.key ?? ((key, { method }) => writing.has(method) ? key : undefined)
    const write = options?.form === "quoted" ? quoted : bare
    return client.pipe(
      HttpClient.mapRequestEffect((request) =>
        Effect.map(TurnContext.CurrentCall, (call) => {
          if (call?.idempotencyKey === undefined || Headers.has(request.headers, header)) return request
          const key = keyOf(call.idempotencyKey, request, call)
          return key === undefined ? request : HttpClientRequest.setHeader(request, header, write(key))
        })
      ),
      // The span of a request tells its headers, and a key may tell who has paid what.
      HttpClient.transform((response) =>
        Effect.updateService(response, Headers.CurrentRedactedNames, (names) => [...names, header])
      )
    )
  }
)

const writing = new Set<string>(["POST", "PUT", "PATCH", "DELETE"])

/** Each character that is not a visible one of ASCII, and `%`, so that what is written can be read in one way only. */
const bare = (key: string): string =>
  key.replace(
    /[^\x21-\x24\x26-\x7e]/gu,
    (char) => char.isWellFormed() ? encodeURIComponent(char) : `%u${char.charCodeAt(0).toString(16)}`
  )

/** A String of RFC 9651. */
const quoted = (key: string): string => `"${bare(key).replace(/["\\]/g, "\\$&")}"`
