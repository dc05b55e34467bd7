/**
 * A planner's turn: the whole plan in one list, where calls name the results of others.
 *
 * With `references` on, a call whose arguments name another's result waits for it, gets the value, and is decoded then. What runs
 * together and what waits is in the plan before anything runs. A call whose source has nothing to give is deferred, with the reason;
 * so is one that waits for itself. Here one hotel is fully booked, so nothing is paid for it, and the other trip goes through.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { ToolCall, ToolPolicy, Turn, TurnPlan } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

const FindHotels = pipe(
  Tool.make("find_hotels", {
    parameters: Schema.Struct({ city: Schema.String }),
    success: Schema.Struct({ hotels: Schema.Array(Schema.Struct({ id: Schema.String, euros: Schema.Int })) })
  }),
  ToolPolicy.read({ keys: () => [] })
)

const Book = pipe(
  Tool.make("book", {
    parameters: Schema.Struct({ hotel: Schema.String }),
    success: Schema.Struct({ reference: Schema.String }),
    failure: Schema.String
  }),
  // Which hotel that is, is known when the search has answered: until then a booking may touch anything.
  ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`] })
)

const Pay = pipe(
  Tool.make("pay", {
    parameters: Schema.Struct({ euros: Schema.Int, subject: Schema.String }),
    success: Schema.String
  }),
  // No reference is read for these keys, so they are known from the start.
  ToolPolicy.write({ keys: () => ["account"] })
)

const toolkit = Toolkit.make(FindHotels, Book, Pay)
const handlers = toolkit.toLayer({
  find_hotels: ({ city }) =>
    Effect.as(Effect.sleep("30 millis"), { hotels: [{ id: `${city} Palace`, euros: city === "Lisbon" ? 120 : 90 }] }),
  book: ({ hotel }) =>
    hotel === "Porto Palace"
      ? Effect.fail("fully booked")
      : Effect.as(Effect.sleep("20 millis"), { reference: `${hotel}-1` }),
  pay: ({ euros, subject }) => Effect.sync(() => `${euros} euros paid: ${subject}`)
})

// As planners print them: by pointer, between dollars, and inside a text.
const calls = [
  ToolCall.make("lisbon", "find_hotels", { city: "Lisbon" }),
  ToolCall.make("porto", "find_hotels", { city: "Porto" }),
  ToolCall.make("room1", "book", { hotel: { $ref: "lisbon#/hotels/0/id" } }),
  ToolCall.make("room2", "book", { hotel: "$porto.hotels[0].id$" }),
  ToolCall.make("pay1", "pay", { euros: "$lisbon.hotels[0].euros$", subject: "room ${room1.reference}" }),
  ToolCall.make("pay2", "pay", { euros: "$porto.hotels[0].euros$", subject: "room ${room2.reference}" }),
  ToolCall.make("odd", "pay", { euros: 1, subject: "$odd$" })
]

const program = Effect.gen(function*() {
  const plan = yield* Turn.plan(toolkit, calls, { references: true })
  console.log(`${TurnPlan.print(plan)}\n`)
  const outcomes = yield* Turn.run(toolkit, calls, { references: true })
  for (const outcome of outcomes) {
    console.log(
      `${outcome.id}: ${
        outcome.status === "ok" ? JSON.stringify(outcome.encoded) : `${outcome.status}, ${outcome.message}`
      }`
    )
  }
})

await program.pipe(Effect.provide(Layer.merge(handlers, Turn.layer())), Effect.runPromise)
