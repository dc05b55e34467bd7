/**
 * What runs on each worker thread of example 11: the handler of `search_text`, which has nothing to be careful about.
 *
 * Each thread loads this for itself, so it imports single modules and not whole packages.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeWorkerRunner from "@effect/platform-node/NodeWorkerRunner"
import * as Handler from "effect-turn/Handler"
import * as Effect from "effect/Effect"
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
