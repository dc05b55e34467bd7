/**
 * A stop from above, and a history that stays valid.
 *
 * A provider refuses a conversation in which one call id has no answer. So a turn that is stopped still answers every call: what
 * was interrupted, what had started and was awaited, what never started. Four ways to stop: an effect of the caller's, a
 * deadline, one call alone, and an interruption of the fiber that runs the turn.
 */
import { Deferred, Effect, Fiber, Layer, pipe, Result, Schema } from "effect"
import { type Outcome, ToolPolicy, Turn } from "effect-turn"
import { OpenAiChat } from "effect-turn/wire"
import { Prompt, Tool, Toolkit } from "effect/ai"

const Search = pipe(
  Tool.make("search", { parameters: Schema.Struct({ query: Schema.String }), success: Schema.String }),
  ToolPolicy.read({ keys: () => [] })
)

const Book = pipe(
  Tool.make("book", { parameters: Schema.Struct({ room: Schema.Int }), success: Schema.String }),
  ToolPolicy.write({ keys: () => ["hotel"] })
)

const toolkit = Toolkit.make(Search, Book)
const handlers = toolkit.toLayer({
  search: ({ query }) =>
    Effect.sleep("5 seconds").pipe(
      Effect.as(query),
      Effect.onInterrupt(() => Effect.sync(() => console.log(`    (the search for "${query}" was interrupted)`)))
    ),
  book: ({ room }) => Effect.as(Effect.sleep("40 millis"), `room ${room} is booked`)
})

/** What a provider sent: an assistant's message of Chat Completions. */
const message = {
  role: "assistant",
  content: null,
  tool_calls: [
    { id: "call_a", type: "function", function: { name: "search", arguments: '{"query":"flights"}' } },
    { id: "call_b", type: "function", function: { name: "book", arguments: '{"room":1}' } },
    { id: "call_c", type: "function", function: { name: "book", arguments: '{"room":2}' } }
  ]
}
const decoded = Result.getOrThrow(OpenAiChat.decode(message))
const { calls } = decoded

const print = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => {
  for (const outcome of outcomes) {
    const reason = outcome.status === "cancelled"
      ? ` ${outcome.code}${outcome.reason ? `, ${outcome.reason}` : ""}`
      : ""
    console.log(`  ${outcome.id} ${outcome.name}: ${outcome.status}${reason}; effect ${outcome.effect}`)
    if (outcome.message !== "") console.log(`    ${outcome.message}`)
  }
}

const program = Effect.gen(function*() {
  console.log(
    "The user presses stop after 10 ms. The search ends, the running booking is awaited, the other never starts:"
  )
  const pressed = yield* Deferred.make<string>()
  yield* Effect.forkChild(Effect.andThen(Effect.sleep("10 millis"), Deferred.succeed(pressed, "user")))
  const stopped = yield* Turn.run(toolkit, calls, { cancelOn: Deferred.await(pressed) })
  print(stopped)

  console.log("\nWhat goes back to the provider, one answer for each id:")
  for (const one of Result.getOrThrow(OpenAiChat.history(decoded.message, calls, stopped)).slice(1)) {
    console.log(`  ${JSON.stringify(one)}`)
  }

  console.log("\nThe same for effect/ai:")
  const prompt = Prompt.concat(Prompt.make("Find flights, and book two rooms."), Turn.toPrompt(calls, stopped))
  for (const { content, role } of prompt.content) {
    const parts = Array.isArray(content)
      ? content.map((part) => "id" in part ? `${part.type} ${part.id}` : part.type)
      : []
    console.log(`  ${role}: ${parts.join(", ")}`)
  }

  console.log("\nA deadline for the whole turn, 10 ms:")
  print(yield* Turn.run(toolkit, calls, { deadline: "10 millis" }))

  console.log("\nOne call alone is stopped, by its id. The turn goes on:")
  const one = yield* Effect.scoped(Effect.gen(function*() {
    const handle = yield* Turn.start(toolkit, calls)
    yield* Effect.sleep("10 millis")
    yield* handle.cancelCall("call_a", "too slow")
    return yield* handle.await
  }))
  print(one)

  console.log(
    "\nThe fiber that runs the turn is interrupted. Nobody is left to take its result, so `onClosed` is told:"
  )
  const fiber = yield* Effect.forkChild(
    Turn.run(toolkit, calls, { onClosed: ({ outcomes }) => Effect.sync(() => print(outcomes)) })
  )
  yield* Effect.sleep("10 millis")
  yield* Fiber.interrupt(fiber)
  console.log("The interruption has returned, and nothing of the turn is running any more.")
})

await program.pipe(Effect.provide(Layer.merge(handlers, Turn.layer())), Effect.runPromise)
