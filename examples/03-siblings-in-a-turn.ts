/**
 * What a failing call means for the others: let-finish, fail-fast, units, a predicate, a quorum.
 *
 * The same five calls under each policy. A call that was stopped by a sibling says so, and whether it had started.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { type Outcome, Siblings, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

class Failure extends Schema.TaggedError<Failure>()("Failure", { reason: Schema.String }) {}

const Ask = pipe(
  Tool.make("ask", {
    parameters: Schema.Struct({ shop: Schema.String, millis: Schema.Int, fails: Schema.optionalKey(Schema.String) }),
    success: Schema.Struct({ euros: Schema.Int }),
    failure: Failure
  }),
  ToolPolicy.read({ keys: () => [] })
)

const Reserve = pipe(
  Tool.make("reserve", {
    parameters: Schema.Struct({ shop: Schema.String, millis: Schema.Int }),
    success: Schema.String
  }),
  ToolPolicy.write({ keys: ({ shop }) => [`shop:${shop}`] })
)

const toolkit = Toolkit.make(Ask, Reserve)
const handlers = toolkit.toLayer({
  ask: ({ fails, millis, shop }) =>
    Effect.andThen(
      Effect.sleep(millis),
      fails === undefined ? Effect.succeed({ euros: shop.length }) : Effect.fail(new Failure({ reason: fails }))
    ),
  reserve: ({ millis, shop }) => Effect.as(Effect.sleep(millis), `reserved at ${shop}`)
})

const calls = [
  ToolCall.make("c0", "ask", { shop: "north", millis: 10 }),
  ToolCall.make("c1", "ask", { shop: "south", millis: 40, fails: "no such shop" }),
  ToolCall.make("c2", "ask", { shop: "east", millis: 120 }),
  ToolCall.make("c3", "reserve", { shop: "west", millis: 90 }),
  ToolCall.make("c4", "reserve", { shop: "west", millis: 10 })
]

const words = (outcome: Outcome.Outcome): string => {
  const code = "code" in outcome ? ` (${outcome.code})` : ""
  return `${outcome.status}${code}, ${outcome.started ? `effect ${outcome.effect}` : "not started"}`
}

const show = (title: string, options: Turn.Options) =>
  Effect.map(Turn.run(toolkit, calls, options), (outcomes) => {
    console.log(`\n${title}`)
    for (const outcome of outcomes) console.log(`  ${outcome.id}  ${outcome.name.padEnd(8)} ${words(outcome)}`)
  })

const program = Effect.gen(function*() {
  yield* show("letFinish, the default: c1 fails, and nothing else changes", {})

  // c2 is a read, so it is interrupted. c3 is a write that has started: it is awaited, and its true outcome is reported.
  // c4 waits for c3, so it has not started and never will.
  yield* show("failFast: c1 stops the whole turn", { siblings: Siblings.failFast })

  yield* show("failFast by units: reservations are a unit of their own", {
    siblings: Siblings.failFast,
    unit: (call) => call.name === "reserve" ? "reservations" : "questions"
  })

  yield* show("failFastWhen: only a shop that is down would stop the turn", {
    siblings: Siblings.failFastWhen((failure) => failure.message.includes("down"))
  })

  yield* show("quorum(1): the first answer is enough", { siblings: Siblings.quorum(1) })
})

await program.pipe(Effect.provide(Layer.merge(handlers, Turn.layer())), Effect.runPromise)
