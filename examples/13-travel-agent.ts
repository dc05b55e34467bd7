/**
 * A travel agent: the loop of a model and its tools, in one call.
 *
 * In its first step the model asks for four things at once: reads run together, the booking runs after the read of the same hotel, and
 * a call with an invented argument is deferred. Then it repairs that, and submits the trip: a tool that ends the loop, with a typed
 * value. The model here is scripted. Any `LanguageModel` layer takes its place: `program` asks for nothing else.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { Agent, Backend, ToolPolicy, Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"

class Hotels extends Backend.Service<Hotels>()("travel/Hotels") {}

const FindFlights = pipe(
  Tool.make("find_flights", {
    description: "Flights to a city, with their numbers",
    parameters: Schema.Struct({ to: Schema.String }),
    success: Schema.Array(Schema.Struct({ flight: Schema.String, euros: Schema.Int }))
  }),
  ToolPolicy.read({ keys: () => [] })
)

const FreeRooms = pipe(
  Tool.make("free_rooms", {
    description: "How many rooms a hotel has free",
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.Int
  }),
  ToolPolicy.read({ keys: ({ hotel }) => [`hotel:${hotel}`] }),
  ToolPolicy.on(Hotels)
)

const BookRoom = pipe(
  Tool.make("book_room", {
    description: "Books one room",
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.String
  }),
  ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] }),
  ToolPolicy.on(Hotels)
)

const BookFlight = pipe(
  Tool.make("book_flight", {
    description: "Books a flight by its number",
    parameters: Schema.Struct({ flight: Schema.String }),
    success: Schema.String
  }),
  ToolPolicy.write({ keys: ({ flight }) => [`flight:${flight}`] })
)

const SubmitTrip = pipe(
  Tool.make("submit_trip", {
    description: "Hands the finished trip over to the traveller",
    parameters: Schema.Struct({ references: Schema.Array(Schema.String), euros: Schema.Int }),
    success: Schema.Struct({ references: Schema.Array(Schema.String), euros: Schema.Int })
  }),
  ToolPolicy.read({ keys: () => [] })
)

const toolkit = Toolkit.make(FindFlights, FreeRooms, BookRoom, BookFlight, SubmitTrip)
const tools = toolkit.toLayer({
  find_flights: () => Effect.as(Effect.sleep("30 millis"), [{ flight: "TP571", euros: 140 }]),
  free_rooms: () => Effect.as(Effect.sleep("20 millis"), 2),
  book_room: ({ hotel }) => Effect.as(Effect.sleep("20 millis"), `${hotel}-1`),
  book_flight: ({ flight }) => Effect.as(Effect.sleep("20 millis"), `${flight}-14A`),
  submit_trip: (trip) => Effect.succeed(trip)
})

/** Needs a model and nothing else: `program.pipe(Effect.provide(yourModel))`. */
export const program = Effect.gen(function*() {
  const result = yield* Agent.run({
    name: "travel",
    prompt: [
      { role: "system", content: "You are a travel agent. Ask for everything that you can at once." },
      { role: "user", content: [{ type: "text", text: "A night in Lisbon, in the Alfama, with the flight." }] }
    ],
    toolkit,
    stopWhen: Agent.any(Agent.terminalTool("submit_trip"), Agent.maxSteps(8), Agent.maxTokens(20_000)),
    deadline: "1 minute",
    onEvent: (event) => {
      if (event._tag === "StepStarted") console.log(`Step ${event.step}`)
      if (event._tag === "TurnReported" && event.event._tag === "CallEnded") {
        const { outcome, tool } = event.event
        const what = outcome.status === "ok" ? JSON.stringify(outcome.encoded) : outcome.message
        console.log(`  ${tool}: ${outcome.status}, ${what}`)
      }
    }
  })
  console.log(`\nIt ended by ${result.reason} after ${result.steps.length} steps and ${result.usage.total} tokens.`)
  // The value has the type of the tool that ended the loop.
  if (result.reason === "terminal_tool") {
    console.log(`The trip: ${result.value.references.join(" and ")}, ${result.value.euros} euros`)
  } else console.log(`The model says: ${result.text}`)
  return result
}).pipe(Effect.provide(Layer.mergeAll(tools, Hotels.layer({ concurrency: 2 }), Turn.layer())))

const scripted = FakeModel.layer([
  FakeModel.calls([
    FakeModel.call(FindFlights, { to: "Lisbon" }),
    FakeModel.call(FreeRooms, { hotel: "Alfama" }),
    FakeModel.call(BookRoom, { hotel: "Alfama" }),
    FakeModel.call(BookFlight, { flight: "<flight from find_flights>" })
  ], { text: "I look and book at once.", usage: { input: 400, output: 90 } }),
  FakeModel.calls([FakeModel.call(BookFlight, { flight: "TP571" })], { usage: { input: 600, output: 30 } }),
  FakeModel.calls([FakeModel.call(SubmitTrip, { references: ["Alfama-1", "TP571-14A"], euros: 230 })], {
    usage: { input: 700, output: 40 }
  })
])

if (import.meta.main) await program.pipe(Effect.provide(scripted), Effect.runPromise)
