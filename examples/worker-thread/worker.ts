/** What runs on each worker thread of example 11: the handler of `search_text`, and nothing that it has to be careful about. */
import { NodeRuntime, NodeWorkerRunner } from "@effect/platform-node"
import { Effect } from "effect"
import { Handler } from "effect-turn"
import { toolkit } from "./tools.ts"

const handlers = toolkit.toLayer({
  search_text: ({ pattern, text }) =>
    Effect.try({
      // The thread does nothing else until this has ended, and for some patterns that is never.
      try: () => text.split("\n").filter((line) => new RegExp(pattern).test(line)),
      catch: (error) => error instanceof Error ? error.message : String(error)
    })
})

Handler.serve(toolkit).pipe(Effect.provide([handlers, NodeWorkerRunner.layer]), NodeRuntime.runMain)
