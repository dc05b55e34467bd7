/**
 * A stop button for an agent that streams, and a conversation that goes on afterwards.
 *
 * The button is any effect: the loop stops when it succeeds. What may be interrupted is interrupted; the transfer that had started is
 * awaited, and its true outcome stands in the history. Each call has its one answer, so the next request is one that a provider takes.
 */
import { Deferred, Effect, Layer, pipe, Schema, Stream } from "effect"
import { Agent, ToolPolicy, Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Prompt, Tool, Toolkit } from "effect/ai"

const Search = pipe(
  Tool.make("search", { parameters: Schema.Struct({ query: Schema.String }), success: Schema.String }),
  ToolPolicy.read({ keys: () => [] })
)
const Transfer = pipe(
  Tool.make("transfer", { parameters: Schema.Struct({ euros: Schema.Int }), success: Schema.String }),
  ToolPolicy.write({ keys: () => ["account"] })
)
const toolkit = Toolkit.make(Search, Transfer)
const tools = toolkit.toLayer({
  search: ({ query }) =>
    Effect.as(Effect.sleep("10 seconds"), query).pipe(
      Effect.onInterrupt(() => Effect.sync(() => console.log("  (the search was interrupted)")))
    ),
  transfer: ({ euros }) =>
    Effect.sleep("60 millis").pipe(
      Effect.tap(() => Effect.sync(() => console.log(`  (${euros} euros have left the account)`))),
      Effect.as(`${euros} euros sent`)
    )
})

const model = FakeModel.layer([
  FakeModel.calls([
    FakeModel.call(Search, { query: "who gets paid next" }),
    FakeModel.call(Transfer, { euros: 20 }),
    FakeModel.call(Transfer, { euros: 30 })
  ], { text: "I pay, and I look who is next." }),
  FakeModel.text("You stopped me: 20 euros were sent, 30 were not.")
])

const show = (prompt: Prompt.Prompt) => {
  for (const { content, role } of prompt.content) {
    for (const part of typeof content === "string" ? [] : content) {
      if (part.type === "text") console.log(`  ${role}: ${part.text}`)
      if (part.type === "tool-call") console.log(`  ${role}: ${part.name} ${JSON.stringify(part.params)}`)
      if (part.type === "tool-result") console.log(`  ${role}: ${JSON.stringify(part.result)}`)
    }
  }
}

const program = Effect.gen(function*() {
  const button = yield* Deferred.make<string>()
  let history = Prompt.empty

  console.log("The agent at work. Somebody presses stop as soon as the first transfer has started:")
  yield* Agent.stream({
    prompt: "Pay the bills.",
    toolkit,
    cancelOn: Deferred.await(button),
    // Told in every case: a stop, a failure, an interruption. This is what to keep.
    onClosed: ({ prompt }) =>
      Effect.sync(() => {
        history = prompt
      })
  }).pipe(Stream.runForEach((event) => {
    if (event._tag === "PartReceived" && event.part.type === "text-delta") console.log(`  ${event.part.delta}`)
    if (event._tag === "AgentEnded") console.log(`  the loop has ended: ${event.result.reason}`)
    const started = event._tag === "TurnReported" && event.event._tag === "CallStarted" &&
      event.event.tool === "transfer"
    return started ? Deferred.succeed(button, "user") : Effect.void
  }))

  console.log("\nThe history:")
  show(history)

  console.log("\nAnd on it goes:")
  const result = yield* Agent.run({ prompt: Prompt.concat(history, "What has happened?"), toolkit })
  console.log(`  assistant: ${result.text}`)
})

await program.pipe(Effect.provide(Layer.mergeAll(tools, model, Turn.layer())), Effect.runPromise)
