/**
 * A program on effect/ai, before and after: one line changes, the layer of its model.
 *
 * The same is asked twice of the same scripted model: once as effect/ai runs the calls, once governed. The program itself does not
 * know which of the two it has.
 */
import { Deferred, Effect, Exit, Fiber, Layer, pipe, Schema } from "effect"
import { ToolPolicy, Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Chat, Prompt, Tool, Toolkit } from "effect/ai"

const FreeRooms = pipe(
  Tool.make("free_rooms", { success: Schema.Int }),
  ToolPolicy.read({ keys: () => ["hotel"] })
)
const BookRoom = pipe(
  Tool.make("book_room", { parameters: Schema.Struct({ guest: Schema.String }), success: Schema.String }),
  ToolPolicy.write({ keys: () => ["hotel"] })
)
const toolkit = Toolkit.make(FreeRooms, BookRoom)

let free = 5
let begun = Deferred.makeUnsafe<void>()
const handlers = toolkit.toLayer({
  free_rooms: () => Effect.sync(() => free),
  book_room: ({ guest }) =>
    Deferred.succeed(begun, undefined).pipe(
      Effect.andThen(Effect.sleep("40 millis")),
      Effect.map(() => {
        free--
        return `booked for ${guest}`
      }),
      Effect.onInterrupt(() => Effect.sync(() => console.log(`    (the booking for ${guest} was cut short)`)))
    )
})

/** Asks until the model makes no more calls. */
const ask = Effect.fn(function*(chat: Chat.Chat, question: string) {
  let prompt = Prompt.make(question)
  while (true) {
    const response = yield* chat.generateText({ prompt, toolkit })
    if (response.toolCalls.length === 0) return
    for (const { encodedResult, isFailure, name } of response.toolResults) {
      console.log(`    ${name}: ${isFailure ? "failed, " : ""}${JSON.stringify(encodedResult)}`)
    }
    prompt = Prompt.empty
  }
})

const book = (guest: string) => FakeModel.call(BookRoom, { guest })
const done = FakeModel.text("Done.")

const orderly = Effect.gen(function*() {
  console.log("  A booking, and how many of the five rooms are free after it:")
  yield* ask(yield* Chat.empty, "A room for Ada. How many are left?")
})

const invented = Effect.gen(function*() {
  console.log("  A booking, and a tool that the model has invented:")
  const exit = yield* Effect.exit(ask(yield* Chat.empty, "A room for Bob, and flowers."))
  if (Exit.isFailure(exit)) console.log("    the whole request failed; nothing was booked")
})

const stopped = Effect.gen(function*() {
  console.log("  A booking, and the user presses stop meanwhile:")
  begun = yield* Deferred.make<void>()
  const fiber = yield* Effect.forkChild(ask(yield* Chat.empty, "A room for Cid."))
  yield* Deferred.await(begun)
  yield* Fiber.interrupt(fiber)
  console.log(
    `    the stop has returned, and ${free === 5 ? "nobody can say what the hotel has" : "the room is booked"}`
  )
})

const scenes = [
  { scene: orderly, script: [FakeModel.calls([book("Ada"), FakeModel.call(FreeRooms, {})]), done] },
  { scene: invented, script: [FakeModel.calls([book("Bob"), FakeModel.call("send_flowers", { to: "Bob" })]), done] },
  { scene: stopped, script: [FakeModel.calls([book("Cid")])] }
]

console.log("As effect/ai runs the calls:")
for (const { scene, script } of scenes) {
  free = 5
  const model = FakeModel.layer(script)
  await Effect.runPromise(Effect.provide(scene, [model, handlers]))
}

/** Told also when nobody is left to take the response. */
const onClosed = ({ calls, outcomes }: Turn.Closed) =>
  Effect.sync(() => {
    const messages = Turn.toPrompt(calls, outcomes).content
    console.log(
      `    (closed: ${messages.length} messages to go on with, ${outcomes.map((one) => one.status).join(", ")})`
    )
  })

console.log("\nGoverned:")
for (const { scene, script } of scenes) {
  free = 5
  const model = Turn.layerLanguageModel({ onClosed }).pipe(Layer.provide([FakeModel.layer(script), Turn.layer()]))
  await Effect.runPromise(Effect.provide(scene, [model, handlers]))
}
