/**
 * Handlers that are promises: abort signals, timeouts, grace, and work that will not stop.
 *
 * `Effect.tryPromise` aborts its signal and goes on at once, although the request is still running. `Handler.promise` waits until
 * the promise has settled, so a turn that has returned has really ended. How long it waits is bounded by the turn's `grace`;
 * what goes on for longer is answered, handed to the runtime and listed as unsettled.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { Handler, type Outcome, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

let open = 0

/** A client as there are many: it takes `signal` and, with `deaf`, ignores it. */
const request = (
  what: string,
  init: { readonly millis: number; readonly deaf: boolean; readonly signal: AbortSignal }
) =>
  new Promise<string>((resolve, reject) => {
    open++
    const timer = setTimeout(() => {
      open--
      if (what === "teapot") reject(new Error("418"))
      else resolve(`the page ${what}`)
    }, init.millis)
    init.signal.addEventListener("abort", () => {
      if (init.deaf) return
      clearTimeout(timer)
      open--
      reject(new Error("aborted"))
    })
  })

const parameters = Schema.Struct({ page: Schema.String, millis: Schema.Int, deaf: Schema.optionalKey(Schema.Boolean) })

const GetPage = pipe(
  Tool.make("get_page", { parameters, success: Schema.String, failure: Schema.String }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.timeout("40 millis"),
  ToolPolicy.failures({ transient: () => true })
)

const PutPage = pipe(
  Tool.make("put_page", { parameters, success: Schema.String, failure: Schema.String }),
  ToolPolicy.write({ keys: ({ page }) => [`page:${page}`] }),
  ToolPolicy.timeout("40 millis")
)

const toolkit = Toolkit.make(GetPage, PutPage)

// What rejects is a defect unless `onError` makes it the tool's own failure.
const onError = (error: unknown) => error instanceof Error ? error.message : String(error)
const handlers = toolkit.toLayer({
  get_page: Handler.promise(({ deaf = false, millis, page }, { signal }) => request(page, { millis, deaf, signal }), {
    onError
  }),
  put_page: Handler.promise(({ deaf = false, millis, page }, { signal }) => request(page, { millis, deaf, signal }), {
    onError
  })
})

const show = (outcomes: ReadonlyArray<Outcome.Outcome>) => {
  for (const one of outcomes) {
    const code = "code" in one ? ` (${one.code})` : ""
    console.log(
      `  ${one.id}: ${one.status}${code}, effect ${one.effect}${one.message === "" ? "" : `\n     ${one.message}`}`
    )
  }
}

const program = Effect.gen(function*() {
  console.log("Each call may run for 40 ms:")
  const outcomes = yield* Turn.run(toolkit, [
    ToolCall.make("in time", "get_page", { page: "a", millis: 10 }),
    ToolCall.make("rejects", "get_page", { page: "teapot", millis: 10 }),
    ToolCall.make("late", "get_page", { page: "b", millis: 1000 }),
    // A read that will not stop is waited for, within the grace.
    ToolCall.make("late and deaf", "get_page", { page: "c", millis: 90, deaf: true }),
    // A write is never cut short: it is overdue, an event says so, and its true outcome is reported.
    ToolCall.make("late write", "put_page", { page: "d", millis: 90 })
  ], {
    onEvent: (event) => {
      if (event._tag === "CallOverdue") console.log(`  (event: ${event.tool} "${event.id}" is overdue, and is awaited)`)
    }
  })
  show(outcomes)
  console.log(`  requests still open: ${open}`)

  console.log("\nA grace of 30 ms, and work that goes on for longer:")
  const runtime = yield* Turn.Runtime
  show(
    yield* Turn.run(toolkit, [
      ToolCall.make("read", "get_page", { page: "e", millis: 200, deaf: true }),
      ToolCall.make("write", "put_page", { page: "f", millis: 200 })
    ], { grace: "30 millis" })
  )
  console.log(`  requests still open: ${open}`)
  for (const one of yield* runtime.unsettled) console.log(`  unsettled: "${one.id}" (${one.tool})`)

  console.log("\nThe next turn touches the same page: it waits until that write has really ended.")
  const started = yield* Effect.sync(() => performance.now())
  show(yield* Turn.run(toolkit, [ToolCall.make("again", "put_page", { page: "f", millis: 10 })]))
  console.log(
    `  it waited for it: ${performance.now() - started > 60}; unsettled: ${(yield* runtime.unsettled).length}`
  )
})

await program.pipe(Effect.provide(Layer.merge(handlers, Turn.layer())), Effect.runPromise)
