/**
 * A first turn: three tools, six calls of a model, one outcome for each.
 *
 * A model answers one step with a list of calls. `Turn.run` takes the list and gives back one outcome for each call, in the
 * same order: also for a call with bad arguments, for a tool that does not exist, and for one that fails.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { Outcome, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

// Tools are those of effect/ai. What the model never sees is added with `ToolPolicy`: here, who reads and who writes what.
const GetWeather = pipe(
  Tool.make("get_weather", {
    description: "The weather in a city",
    parameters: Schema.Struct({ city: Schema.NonEmptyString }),
    success: Schema.Struct({ celsius: Schema.Finite })
  }),
  ToolPolicy.read({ keys: () => [] })
)

const AddNote = pipe(
  Tool.make("add_note", {
    description: "Add a note to the trip",
    parameters: Schema.Struct({ text: Schema.String }),
    success: Schema.Struct({ notes: Schema.Int }),
    failure: Schema.Struct({ reason: Schema.String })
  }),
  ToolPolicy.write({ keys: () => ["notes"] }),
  // A failed write may have had an effect all the same, unless its tool says that it had none.
  ToolPolicy.failures({ noEffect: ({ reason }) => reason.startsWith("a note has at most") })
)

const ListNotes = pipe(
  Tool.make("list_notes", { description: "All notes of the trip", success: Schema.Array(Schema.String) }),
  ToolPolicy.read({ keys: () => ["notes"] })
)

const toolkit = Toolkit.make(GetWeather, AddNote, ListNotes)

const notes: Array<string> = []

const handlers = toolkit.toLayer({
  get_weather: ({ city }) => Effect.succeed({ celsius: city.length * 3 }).pipe(Effect.delay("20 millis")),
  add_note: ({ text }) =>
    text.length > 20
      ? Effect.fail({ reason: "a note has at most 20 characters" })
      : Effect.sync(() => ({ notes: notes.push(text) })).pipe(Effect.delay("20 millis")),
  list_notes: () => Effect.sync(() => [...notes])
})

// The calls as a provider hands them over: arguments may be JSON text, or an object that a client has parsed already.
const calls = [
  ToolCall.make("call_1", "get_weather", '{"city": "Lisbon"}'),
  ToolCall.make("call_2", "add_note", { text: "pack sunglasses" }),
  ToolCall.make("call_3", "list_notes"),
  ToolCall.make("call_4", "get_weather", '{"town": "Porto"}'),
  ToolCall.make("call_5", "get_wether", { city: "Faro" }),
  ToolCall.make("call_6", "add_note", { text: "call the hotel about a late arrival" })
]

const program = Effect.gen(function*() {
  const outcomes = yield* Turn.run(toolkit, calls)

  for (const outcome of outcomes) {
    const { isFailure, value } = Outcome.forModel(outcome)
    console.log(`${outcome.id} ${outcome.name}: ${outcome.status}, effect ${outcome.effect}`)
    console.log(`  the model is told${isFailure ? " (marked as a failure)" : ""}: ${JSON.stringify(value)}`)
  }

  // An outcome is typed by its tool: status and name together give the tool's own success or failure.
  for (const outcome of outcomes) {
    if (outcome.status === "ok" && outcome.name === "get_weather") console.log(`\nIt has ${outcome.result.celsius} °C.`)
    if (outcome.status === "error" && outcome.code === "failed") {
      console.log(`A note failed: ${outcome.failure.reason}.`)
    }
  }
})

// One runtime for the whole process: it knows which keys are held, across all turns.
await program.pipe(Effect.provide(Layer.merge(handlers, Turn.layer())), Effect.runPromise)
