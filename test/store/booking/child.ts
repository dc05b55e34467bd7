/** A process that books: it says that it is ready, is told which turns to run, and may be killed at any moment. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Outcome, ToolCall, Turn, TurnContext } from "effect-turn"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as References from "effect/References"
import type { Booking, Script, Setup, Told } from "./script.ts"
import { recordsOf } from "./stores.ts"
import { toolsAt } from "./tools.ts"

const setup: Setup = JSON.parse(process.argv[2]!)
const tell = (told: Told): void => void process.send?.(told)

const { layer, toolkit } = toolsAt(setup.url)
const runtime = ManagedRuntime.make(
  Layer.mergeAll(
    layer,
    Turn.layer(),
    // A process that waits for others, or is held up by them, has much to say.
    Layer.succeed(References.MinimumLogLevel, "Error"),
    Layer.effectContext(Effect.succeed(TurnContext.make({ tenant: "t", conversation: "c" })))
  ).pipe(Layer.provideMerge(Layer.merge(NodeHttpClient.layerNodeHttp, await recordsOf(setup))))
)

const callOf = ({ after, before, key, mode }: Booking) => ToolCall.make(key, `book_${mode}`, { key, before, after })

const run = ({ bookings, turn }: Script) =>
  Effect.gen(function*() {
    const outcomes = yield* Turn.run(toolkit, bookings.map(callOf), { turn })
    yield* Effect.sync(() => tell({ _tag: "told", turn, outcomes: outcomes.map(Outcome.toJson) }))
  })

process.on("message", ({ again, fresh }: { again: ReadonlyArray<Script>; fresh: ReadonlyArray<Script> }) => {
  const all = Effect.all([
    Effect.forEach(again, run, { concurrency: "unbounded" }),
    Effect.forEach(fresh, run)
  ], { concurrency: "unbounded" })
  void runtime.runPromiseExit(all).then((exit) =>
    tell(exit._tag === "Success" ? { _tag: "done" } : { _tag: "broken", why: Cause.pretty(exit.cause) })
  )
})

// Without its test it has nothing to do.
process.on("disconnect", () => void runtime.dispose().then(() => process.exit()))

// Everything is there, and the store has been reached, before it is told to go.
await runtime.context()
tell({ _tag: "ready" })
