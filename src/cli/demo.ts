/** The travel agent's turn, from the recorded message to the messages to send back. */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as OpenAiChat from "../wire/OpenAiChat.ts"
import * as RunTurn from "./runTurn.ts"
import { response } from "./travel/message.ts"
import { layer, toolkit } from "./travel/tools.ts"

export const runDemo = (json: boolean) =>
  Effect.gen(function*() {
    const decoded = yield* Effect.orDie(Effect.fromResult(OpenAiChat.decode(response)))
    const job = {
      input: { _tag: "Whole" as const, ...decoded, dialect: OpenAiChat.dialect, notes: [] },
      tools: { toolkit, layer, policy: {} },
      options: {},
      tenant: "default",
      json
    }
    if (!json) yield* Console.log(`The model's message has ${decoded.calls.length} calls. The plan:\n`)
    if (!json) yield* RunTurn.plan(job, "text")
    if (!json) yield* Console.log("\nThe turn, and the messages to send back:\n")
    yield* RunTurn.run(job).pipe(Effect.catchTag("NotOk", () => Effect.void))
  })
