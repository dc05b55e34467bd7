/**
 * Live progress: everything that happens in a turn is an event.
 *
 * `Turn.start` gives a handle at once; its `events` are a stream, and nothing in the turn waits for whoever reads it. `Turn.stream`
 * is the turn as that stream. `onEvent` is the same without a stream, for a progress line.
 */
import { Effect, Layer, pipe, Schema, Stream } from "effect"
import { Backend, ToolCall, ToolPolicy, Turn, type TurnEvent } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

class Disk extends Backend.Service<Disk>()("app/Disk") {}

const Import = pipe(
  Tool.make("import_file", {
    parameters: Schema.Struct({ file: Schema.String }),
    success: Schema.Struct({ rows: Schema.Int })
  }),
  ToolPolicy.write({ keys: ({ file }) => [`table:${file}`] }),
  ToolPolicy.on(Disk),
  // No limit for the whole run, but one for silence: a handler that reports progress may take its time.
  ToolPolicy.timeout("infinite"),
  ToolPolicy.idleTimeout("1 second")
)

const CountRows = pipe(
  Tool.make("count_rows", { parameters: Schema.Struct({ file: Schema.String }), success: Schema.Int }),
  ToolPolicy.read({ keys: ({ file }) => [`table:${file}`] })
)

const toolkit = Toolkit.make(Import, CountRows)
const rows = new Map<string, number>()
const handlers = toolkit.toLayer({
  import_file: Effect.fnUntraced(function*({ file }, { preliminary }) {
    for (let done = 100; done <= 300; done += 100) {
      yield* Effect.sleep("15 millis")
      rows.set(file, done)
      if (done < 300) yield* preliminary({ rows: done })
    }
    return { rows: 300 }
  }),
  count_rows: ({ file }) => Effect.sync(() => rows.get(file) ?? 0)
})

const calls = [
  ToolCall.make("c0", "import_file", { file: "people" }),
  ToolCall.make("c1", "import_file", { file: "places" }),
  ToolCall.make("c2", "count_rows", { file: "people" })
]

const line = (event: TurnEvent.TurnEvent): string => {
  switch (event._tag) {
    case "TurnStarted":
      return `the turn starts with ${event.calls} calls`
    case "CallQueued":
      return `${event.id} ${event.tool} waits for ${event.for === "keys" ? "an earlier call" : event.backend}`
    case "CallStarted":
      return `${event.id} ${event.tool} starts`
    case "CallProgressed":
      return `${event.id} ${event.tool} is at ${JSON.stringify(event.result)}`
    case "CallEnded":
      return `${event.id} ${event.tool} is ${event.outcome.status}`
    case "TurnStopped":
      return `the turn is stopped: ${event.code}`
    case "TurnEnded":
      return `the turn ends, ${event.unsettled} calls unsettled`
    default:
      return event._tag
  }
}

const program = Effect.gen(function*() {
  console.log("A turn beside its caller, and a line for each event:")
  yield* Effect.scoped(Effect.gen(function*() {
    const handle = yield* Turn.start(toolkit, calls)
    yield* Stream.runForEach(handle.events, (event) => Effect.sync(() => console.log(`  ${line(event)}`)))
    const outcomes = yield* handle.await
    console.log(
      `  outcomes: ${outcomes.map((outcome) => outcome.status).join(", ")}; events lost: ${yield* handle.lost}`
    )
  }))

  // Where a turn's time went is a fold of its events.
  console.log("\nWaiting and running time of each call, in steps of 10 ms:")
  const steps = (millis: number) => `${Math.round(millis / 10) * 10} ms`
  const starts = new Map<number, TurnEvent.CallStarted>()
  const report = (event: TurnEvent.TurnEvent) => {
    if (event._tag === "CallStarted") starts.set(event.position, event)
    const start = event._tag === "CallEnded" ? starts.get(event.position) : undefined
    if (start === undefined) return
    const { keys, permit } = start.waited
    const ran = steps(event.at - start.at)
    console.log(`  ${start.id} waited ${steps(keys)} for keys, ${steps(permit)} for a permit, and ran for ${ran}`)
  }
  yield* Turn.stream(toolkit, calls).pipe(Stream.runForEach((event) => Effect.sync(() => report(event))))
})

await program.pipe(
  Effect.provide(Layer.mergeAll(handlers, Turn.layer(), Disk.layer({ concurrency: 1 }))),
  Effect.runPromise
)
