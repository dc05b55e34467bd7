/**
 * Your own client: no `effect/ai` model, just what a provider's client gives.
 *
 * `ProviderTurn.stream` takes the events of a streamed response, starts reads as soon as the provider has said that their call is complete,
 * and gives the messages that the conversation goes on with, in the provider's own form. Here the response is Anthropic's, as bytes; with
 * its SDK it is `Stream.fromAsyncIterable(client.messages.stream({ … }), …)`. The second response breaks off in the middle of a booking:
 * nothing of it runs, and the history is still one that the provider takes.
 */
import { Console, Effect, Layer, Option, pipe, Schema, Stream } from "effect"
import { ProviderTurn, ToolPolicy, Turn } from "effect-turn"
import { AnthropicMessages } from "effect-turn/wire"
import { Tool, Toolkit } from "effect/ai"

const GetWeather = pipe(
  Tool.make("get_weather", {
    parameters: Schema.Struct({ city: Schema.String }),
    success: Schema.Struct({ celsius: Schema.Int })
  }),
  ToolPolicy.read({ keys: () => [] })
)
const BookHotel = pipe(
  Tool.make("book_hotel", {
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.Struct({ reference: Schema.String })
  }),
  ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] })
)
const toolkit = Toolkit.make(GetWeather, BookHotel)
const handlers = toolkit.toLayer({
  get_weather: ({ city }) => Effect.as(Console.log(`  looks at the weather in ${city}`), { celsius: 19 }),
  book_hotel: ({ hotel }) => Effect.as(Console.log(`  books ${hotel}`), { reference: `${hotel}-1` })
})

const event = (data: { readonly type: string } & Record<string, unknown>) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
const start = event({
  type: "message_start",
  message: { id: "msg_1", type: "message", role: "assistant", content: [], stop_reason: null }
})
const use = (index: number, id: string, name: string, pieces: ReadonlyArray<string>) => [
  event({ type: "content_block_start", index, content_block: { type: "tool_use", id, name, input: {} } }),
  ...pieces.map((partial_json) =>
    event({ type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json } })
  )
]
const stop = (index: number) => event({ type: "content_block_stop", index })
const end = [event({ type: "message_delta", delta: { stop_reason: "tool_use" } }), event({ type: "message_stop" })]

const whole = [
  start,
  ...use(0, "toolu_1", "book_hotel", ['{"hotel":', '"Tejo"}']),
  stop(0),
  ...use(1, "toolu_2", "get_weather", ['{"city": "Lis', 'bon"}']),
  stop(1),
  ...end
]
const cut = [start, ...use(0, "toolu_3", "book_hotel", ['{"hotel":"Alf'])]

/** The body of a response, a piece every few milliseconds. */
const body = (pieces: ReadonlyArray<string>) =>
  Stream.fromIterable(pieces).pipe(
    Stream.tap((piece) =>
      Effect.andThen(Effect.sleep("5 millis"), Console.log(`< ${/"type":"(\w+)"/.exec(piece)![1]!}`))
    )
  )

const go = (pieces: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const events = ProviderTurn.events(body(pieces))
    const { broke, history, outcomes } = yield* ProviderTurn.stream(toolkit, AnthropicMessages.dialect, events)
    console.log(`\n${outcomes.map(({ id, status }) => `${id} is ${status}`).join(", ")}`)
    if (Option.isSome(broke)) console.log(`It broke: ${String(broke.value.message)}`)
    console.log("The conversation goes on with:")
    for (const message of history) console.log(`  ${JSON.stringify(message)}`)
  })

await go(whole).pipe(
  Effect.andThen(Console.log("\nAnd one that breaks off:")),
  Effect.andThen(go(cut)),
  Effect.provide(Layer.merge(handlers, Turn.layer())),
  Effect.runPromise
)
