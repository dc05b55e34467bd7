/** The header on real requests: a server of the test's own tells what it was sent. */
import { NodeHttpClient } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { IdempotencyKey, ToolCall, ToolPolicy, Turn, TurnContext } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Headers from "effect/http/Headers"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as HttpClientResponse from "effect/http/HttpClientResponse"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Tracer from "effect/Tracer"
import * as http from "node:http"
import { pick, runs } from "./utils/gen.ts"

interface Seen {
  readonly method: string
  readonly headers: http.IncomingHttpHeaders
}

/** A server that notes every request, and answers the statuses of a list, then 200. */
const server = (statuses: ReadonlyArray<number> = []) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly seen: Array<Seen>; readonly close: () => void }>((resume) => {
      const seen: Array<Seen> = []
      const listening = http.createServer((request, response) => {
        seen.push({ method: request.method!, headers: request.headers })
        response.writeHead(statuses[seen.length - 1] ?? 200).end("done")
      })
      listening.listen(0, "127.0.0.1", () => {
        const { port } = listening.address() as { readonly port: number }
        const close = () => {
          listening.close()
          listening.closeAllConnections()
        }
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, seen, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )

const callWith = (idempotencyKey: string | undefined): TurnContext.CallContext => ({
  identity: { tenant: "t", conversation: "c", principal: undefined, turn: "turn_1", parent: undefined },
  position: 0,
  id: "c1",
  tool: "book",
  attempt: 1,
  idempotencyKey,
  approvalNote: undefined
})

const inCall = (key: string | undefined) => Effect.provideService(TurnContext.CurrentCall, callWith(key))

/** What the header makes of a key, without a network. */
const sent = (key: string, options?: IdempotencyKey.HeaderOptions): string | undefined => {
  let value: string | undefined
  const client = HttpClient.make((request) => {
    value = request.headers[(options?.header ?? "idempotency-key").toLowerCase()]
    return Effect.succeed(HttpClientResponse.fromWeb(request, new Response()))
  })
  Effect.runSync(IdempotencyKey.withHeader(client, options).post("http://x.example").pipe(inCall(key)))
  return value
}

/** Keys of few characters, which meet in what they are written as. */
const text = Arbitrary.array(pick("%", "2", "0", "5", "u", "d", " ", '"', "\\", "ë", "\ud800", "\udc00", "a", "\n"), {
  maxLength: 6
})

describe("IdempotencyKey.withHeader", () => {
  it.live("sends the key of the call with every request that writes, and with no other", () =>
    Effect.gen(function*() {
      const { seen, url } = yield* server()
      const keyed = IdempotencyKey.withHeader(yield* HttpClient.HttpClient)
      yield* Effect.forEach(
        ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] as const,
        (method) => keyed.execute(HttpClientRequest.make(method)(url))
      ).pipe(inCall("booking:7"))
      assert.deepStrictEqual(
        seen.map(({ headers, method }) => [method, headers["idempotency-key"]]),
        [
          ["GET", undefined],
          ["HEAD", undefined],
          ["OPTIONS", undefined],
          ["POST", "booking:7"],
          ["PUT", "booking:7"],
          ["PATCH", "booking:7"],
          ["DELETE", "booking:7"]
        ]
      )
    }).pipe(Effect.provide(NodeHttpClient.layerUndici)))

  it.live("sends nothing outside a call, in a call without a key, and over a header that is there", () =>
    Effect.gen(function*() {
      const { seen, url } = yield* server()
      const keyed = (yield* HttpClient.HttpClient).pipe(IdempotencyKey.withHeader())
      yield* keyed.post(url)
      yield* keyed.post(url).pipe(inCall(undefined))
      yield* keyed.post(url, { headers: { "Idempotency-Key": "mine" } }).pipe(inCall("booking:7"))
      assert.deepStrictEqual(seen.map(({ headers }) => headers["idempotency-key"]), [undefined, undefined, "mine"])
    }).pipe(Effect.provide(NodeHttpClient.layerUndici)))

  it.live("a request that is sent again has the same key", () =>
    Effect.gen(function*() {
      const { seen, url } = yield* server([503, 503])
      const keyed = (yield* HttpClient.HttpClient).pipe(
        IdempotencyKey.withHeader(),
        HttpClient.filterStatusOk,
        HttpClient.retry(Schedule.recurs(2))
      )
      yield* keyed.post(url).pipe(inCall("booking:7"))
      assert.deepStrictEqual(seen.map(({ headers }) => headers["idempotency-key"]), Array(3).fill("booking:7"))
    }).pipe(Effect.provide(NodeHttpClient.layerUndici)))

  it.live("in a turn each call sends its own key, whoever makes the client", () =>
    Effect.gen(function*() {
      const { seen, url } = yield* server()
      const Book = pipe(
        Tool.make("book", { parameters: Schema.Struct({ trip: Schema.String }) }),
        ToolPolicy.write({ keys: ({ trip }) => [trip] }),
        ToolPolicy.forward(({ trip }, { turn }) => `${turn}/${trip}`)
      )
      const Note = pipe(Tool.make("note"), ToolPolicy.write({ keys: () => ["note"] }))
      const toolkit = Toolkit.make(Book, Note)
      const keyed = (yield* HttpClient.HttpClient).pipe(IdempotencyKey.withHeader())
      const post = Effect.asVoid(Effect.orDie(keyed.post(url)))
      const outcomes = yield* Turn.run(
        toolkit,
        [
          ToolCall.make("c1", "book", { trip: "A" }),
          ToolCall.make("c2", "book", { trip: "B" }),
          ToolCall.make("c3", "note")
        ],
        { turn: "turn_9" }
      ).pipe(Effect.provide(Layer.merge(toolkit.toLayer({ book: () => post, note: () => post }), Turn.layer())))
      assert.deepStrictEqual(outcomes.map(({ status }) => status), ["ok", "ok", "ok"])
      assert.deepStrictEqual(
        seen.map(({ headers }) => headers["idempotency-key"] ?? "").sort(),
        ["", "turn_9/A", "turn_9/B"]
      )
    }).pipe(Effect.provide(NodeHttpClient.layerUndici)))

  it.live("a key of any characters arrives as one header", () =>
    Effect.gen(function*() {
      const { seen, url } = yield* server()
      const base = yield* HttpClient.HttpClient
      const keys = ["Zoë's trip", "a\r\nx-evil: 1", "100%", "\ud800", "日本", "plain:key_1", " ", '"q\\']
      for (const form of ["bare", "quoted"] as const) {
        yield* Effect.forEach(keys, (key) => IdempotencyKey.withHeader(base, { form }).post(url).pipe(inCall(key)))
      }
      assert.deepStrictEqual(seen.map(({ headers }) => headers["idempotency-key"]), [
        "Zo%C3%AB's%20trip",
        "a%0D%0Ax-evil:%201",
        "100%25",
        "%ud800",
        "%E6%97%A5%E6%9C%AC",
        "plain:key_1",
        "%20",
        '"q\\',
        '"Zo%C3%AB\'s%20trip"',
        '"a%0D%0Ax-evil:%201"',
        '"100%25"',
        '"%ud800"',
        '"%E6%97%A5%E6%9C%AC"',
        '"plain:key_1"',
        '"%20"',
        '"\\"q\\\\"'
      ])
      assert.isTrue(seen.every(({ headers }) => headers["x-evil"] === undefined))
    }).pipe(Effect.provide(NodeHttpClient.layerUndici)))

  it.effect.prop(
    "two keys never become one, in either form",
    [text, text],
    ([one, other]) =>
      Effect.sync(() => {
        const [a, b] = [one.join(""), other.join("")]
        for (const form of ["bare", "quoted"] as const) {
          assert.strictEqual(sent(a, { form }) === sent(b, { form }), a === b)
          assert.match(sent(a, { form }) ?? "", /^[\x21-\x7e]*$/)
        }
      }),
    runs(200)
  )

  it("takes a name, and a key of the caller's own for each request", () => {
    assert.strictEqual(sent("k", { header: "X-Request-Id" }), "k")
    assert.strictEqual(
      sent("k", { key: (key, { method }, { identity, tool }) => `${identity.conversation}/${tool}/${key}/${method}` }),
      "c/book/k/POST"
    )
    assert.isUndefined(sent("k", { key: () => undefined }))
  })

  it.live("a span of the client does not tell the key", () =>
    Effect.gen(function*() {
      const { url } = yield* server()
      const spans: Array<Tracer.NativeSpan> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      const base = yield* HttpClient.HttpClient
      for (const header of ["Idempotency-Key", "X-Once"]) {
        yield* IdempotencyKey.withHeader(base, { header }).post(url, { headers: { authorization: "token" } }).pipe(
          inCall("card 4111"),
          Effect.withTracer(tracer),
          Effect.provideService(HttpClient.TracerHeaderFilter, () => true)
        )
      }
      const said = spans.flatMap(({ attributes }) =>
        [...attributes].map(([name, value]) => `${name}: ${String(value)}`)
      )
      assert.include(said, "http.request.header.idempotency-key: <redacted>")
      assert.include(said, "http.request.header.x-once: <redacted>")
      assert.include(said, "http.request.header.authorization: <redacted>")
      assert.isFalse(said.some((text) => text.includes("4111")))
      assert.isFalse((yield* Headers.CurrentRedactedNames).includes("x-once"))
    }).pipe(Effect.provide(NodeHttpClient.layerUndici)))
})
