/**
 * The loop around a turn, by hand: ask the model, run its calls, go on with the history.
 *
 * The model's own tool resolution is switched off and validation deferred, so that every call comes through as it was made, also
 * one with bad arguments or an invented name. The turn answers all of them, and `Turn.toPrompt` gives the messages to go on with:
 * what the model said, its calls, and an answer for each. The model here is scripted; any `LanguageModel` layer takes its place.
 */
import { Effect, Layer, pipe, Schema, Stream } from "effect"
import { ToolCall, ToolPolicy, Turn } from "effect-turn"
import { AiError, LanguageModel, Prompt, type Response, Tool, Toolkit } from "effect/ai"

const GetRooms = pipe(
  Tool.make("get_rooms", {
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.Struct({ free: Schema.Int })
  }),
  ToolPolicy.read({ keys: ({ hotel }) => [`hotel:${hotel}`] })
)

const BookRoom = pipe(
  Tool.make("book_room", {
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.Struct({ reference: Schema.String })
  }),
  ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] })
)

const toolkit = Toolkit.make(GetRooms, BookRoom)
const free = new Map([["Alfama", 2], ["Tejo", 0]])
const handlers = toolkit.toLayer({
  get_rooms: ({ hotel }) => Effect.sync(() => ({ free: free.get(hotel) ?? 0 })),
  book_room: ({ hotel }) =>
    Effect.sync(() => {
      free.set(hotel, (free.get(hotel) ?? 0) - 1)
      return { reference: `${hotel}-1` }
    })
})

/** Asks the model until it makes no more calls, and gives its last words. */
const ask = (question: string) =>
  Effect.gen(function*() {
    let prompt = Prompt.make(question)
    for (let step = 1; step <= 8; step++) {
      const response = yield* LanguageModel.generateText({
        prompt,
        toolkit,
        disableToolCallResolution: true,
        toolCallValidation: "deferred"
      })
      if (response.toolCalls.length === 0) return response.text
      const calls = ToolCall.fromParts(response.toolCalls)
      const outcomes = yield* Turn.run(toolkit, calls, { turn: `step-${step}`, finishReason: response.finishReason })
      for (const one of outcomes) {
        console.log(`step ${step}: ${one.name} is ${one.status}${one.message && `, ${one.message}`}`)
      }
      prompt = Prompt.concat(prompt, Turn.toPrompt(calls, outcomes, { parts: response.content }))
    }
    return "The model makes calls without end."
  })

const call = (id: string, name: string, params: unknown): Response.PartEncoded => ({
  type: "tool-call",
  id,
  name,
  params
})
const finish = (reason: Response.FinishReason): Response.PartEncoded => ({
  type: "finish",
  reason,
  usage: {
    inputTokens: { uncached: undefined, total: 1, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: 1, text: undefined, reasoning: undefined }
  }
})

const script: Array<Array<Response.PartEncoded>> = [
  [
    { type: "text", text: "I look at both hotels." },
    call("a", "get_rooms", { hotel: "Alfama" }),
    call("b", "get_rooms", { hotel: "Tejo" }),
    call("c", "get_rooms", { city: "Lisbon" }),
    call("d", "book_room", { hotel: "<the hotel with a free room>" }),
    finish("tool-calls")
  ],
  [call("e", "book_room", { hotel: "Alfama" }), call("f", "get_rooms", { hotel: "Alfama" }), finish("tool-calls")],
  [{ type: "text", text: "I have booked a room in the Alfama." }, finish("stop")]
]

const prompts: Array<Prompt.Prompt> = []
const scripted = Layer.effect(
  LanguageModel.LanguageModel,
  LanguageModel.make({
    generateText: (options) => {
      const next = script[prompts.push(options.prompt) - 1]
      return next === undefined
        ? Effect.fail(AiError.make({
          module: "Scripted",
          method: "generateText",
          reason: new AiError.UnknownError({ description: "the script is over" })
        }))
        : Effect.succeed(next)
    },
    streamText: () => Stream.empty
  })
)

const answer = await ask("A room in Lisbon, please.").pipe(
  Effect.provide(Layer.mergeAll(handlers, Turn.layer(), scripted)),
  Effect.runPromise
)

console.log(`\nThe model says: ${answer}`)
console.log("\nThe history that it was given last:")
for (const { content, role } of prompts.at(-1)!.content) {
  for (const part of typeof content === "string" ? [] : content) {
    if (part.type === "text") console.log(`  ${role}: ${part.text}`)
    if (part.type === "tool-call") console.log(`  ${role}: ${part.id} ${part.name} ${JSON.stringify(part.params)}`)
    if (part.type === "tool-result") {
      console.log(`  ${role}: ${part.id} ${part.isFailure ? "failed" : "ok"} ${JSON.stringify(part.result)}`)
    }
  }
}
