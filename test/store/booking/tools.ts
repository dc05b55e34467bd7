/** The tools that are killed: one for each mode, all of them on the same service. */
import { IdempotencyKey, IdempotencyStore, ToolPolicy } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as HttpClientResponse from "effect/http/HttpClientResponse"
import * as Schema from "effect/Schema"
import type { Mode } from "./script.ts"

const Parameters = Schema.Struct({ key: Schema.String, before: Schema.Finite, after: Schema.Finite })
type Parameters = typeof Parameters.Type
const Answer = Schema.Struct({ number: Schema.Finite })

const tool = <const Name extends `book_${Mode}`>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Parameters, success: Schema.Finite, failure: Schema.String }),
    ToolPolicy.write({ keys: ({ key }) => [`booking:${key}`] })
  )

const keyOf = ({ key }: Parameters): string => key

const numberOf = (response: HttpClientResponse.HttpClientResponse) =>
  Effect.map(HttpClientResponse.schemaBodyJson(Answer)(response), ({ number }) => number)

/** The tools, with their handlers, on the service at this address. */
export const toolsAt = (url: string) => {
  const clientOf = Effect.map(HttpClient.HttpClient, HttpClient.mapRequest(HttpClientRequest.prependUrl(url)))

  const ask = ({ key }: Parameters) =>
    Effect.gen(function*() {
      const client = yield* clientOf
      const response = yield* client.get(`/verify/${encodeURIComponent(key)}`)
      if (response.status === 404) return IdempotencyStore.notApplied
      return IdempotencyStore.applied(yield* numberOf(yield* HttpClientResponse.filterStatusOk(response)))
    })

  const toolkit = Toolkit.make(
    pipe(tool("book_forward"), ToolPolicy.forward(keyOf)),
    pipe(tool("book_verify"), IdempotencyStore.verify({ key: keyOf, ask })),
    pipe(tool("book_record"), IdempotencyStore.record(keyOf))
  )

  const handlers = Effect.gen(function*() {
    const client = IdempotencyKey.withHeader(yield* clientOf)
    const book = (mode: Mode) => ({ after, before, key }: Parameters) =>
      client.post(`/${mode}/${encodeURIComponent(key)}?before=${before}&after=${after}`).pipe(
        Effect.flatMap(HttpClientResponse.filterStatusOk),
        Effect.flatMap(numberOf),
        Effect.mapError(String)
      )
    return { book_forward: book("forward"), book_verify: book("verify"), book_record: book("record") }
  })

  return { toolkit, layer: toolkit.toLayer(handlers) }
}
