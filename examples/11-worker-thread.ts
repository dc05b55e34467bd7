/**
 * A handler that blocks its thread: on a worker thread, a timeout and a stop end it at once, with its thread.
 *
 * A model writes the regular expression. For some of them the engine needs longer than anybody will wait, and while it tries, its
 * thread does nothing else: no timer fires, no other call goes on, no stop is heard. On a thread of its own it
 * blocks nobody, and the pool has a fresh thread for the next call.
 */
import { NodeWorker } from "@effect/platform-node"
import { Effect, Layer, pipe } from "effect"
import { Backend, Handler, Outcome, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Toolkit } from "effect/ai"
import { Worker } from "node:worker_threads"
import { SearchText } from "./worker-thread/tools.ts"

// Two threads, and as many permits: calls wait for a permit, where waiting is not running time.
class Threads extends Backend.Service<Threads>()("Threads") {}

const toolkit = Toolkit.make(
  pipe(
    SearchText,
    ToolPolicy.read({ keys: () => [] }),
    ToolPolicy.on(Threads),
    ToolPolicy.timeout("3 seconds")
  )
)

let threads = 0
const spawn = () => {
  const worker = new Worker(new URL("./worker-thread/worker.ts", import.meta.url))
  threads++
  worker.on("exit", () => threads--)
  return worker
}

const handlers = Handler.worker(toolkit, { size: 2 }).pipe(Layer.provide(NodeWorker.layer(spawn)))

const log = "ok: 3 files\nwarning: 1 file\nok: 8 files"
// (a+)+$ tries each of the 2^60 ways to cut the text into pieces.
const endless = { pattern: "^(a+)+$", text: `${"a".repeat(60)}!` }

const show = (outcomes: ReadonlyArray<Outcome.Outcome>) => {
  for (const one of outcomes) {
    console.log(`  ${one.id}: ${Outcome.isOk(one) ? JSON.stringify(one.result) : `${one.status}, ${one.message}`}`)
  }
}

const program = Effect.gen(function*() {
  console.log("Four searches on two threads, one of them without an end:")
  let ticks = 0
  const ticking = setInterval(() => ticks++, 20)
  show(
    yield* Turn.run(toolkit, [
      ToolCall.make("ok", "search_text", { pattern: "^ok", text: log }),
      ToolCall.make("endless", "search_text", endless),
      ToolCall.make("warnings", "search_text", { pattern: "^warning", text: log }),
      ToolCall.make("no pattern", "search_text", { pattern: "(", text: log })
    ])
  )
  clearInterval(ticking)
  console.log(`  this thread was never blocked: ${ticks > 20}`)

  console.log("\nA fresh thread has taken the place of the one that was ended:")
  show(yield* Turn.run(toolkit, [ToolCall.make("again", "search_text", { pattern: "8", text: log })]))

  console.log("\nThe user presses stop:")
  show(
    yield* Turn.run(toolkit, [ToolCall.make("endless", "search_text", endless)], {
      cancelOn: Effect.as(Effect.sleep("500 millis"), "user")
    })
  )
})

await program.pipe(
  Effect.provide([handlers, Threads.layer({ concurrency: 2 }), Turn.layer()]),
  Effect.runPromise
)
console.log(`\nThreads that are left: ${threads}`)
