/** What is measured: the same list of calls by a bare `Effect.forEach`, by what an Effect user writes by hand, and by a turn. */
import { type Context, Effect, Layer, pipe, Schema, Scope, Semaphore } from "effect"
import { ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

const Noop = pipe(
  Tool.make("noop", { parameters: Schema.Struct({ n: Schema.Finite }), success: Schema.Finite }),
  ToolPolicy.read({ keys: () => [] })
)
const Async = pipe(
  Tool.make("async", { parameters: Schema.Struct({ n: Schema.Finite }), success: Schema.Finite }),
  ToolPolicy.read({ keys: () => [] })
)
const Parked = pipe(
  Tool.make("parked", { parameters: Schema.Struct({ n: Schema.Finite }), success: Schema.Finite }),
  ToolPolicy.read({ keys: () => [] })
)

const toolkit = Toolkit.make(Noop, Async, Parked)

/** One real asynchronous step: a promise that has settled already. */
const settled = Promise.resolve(0)
const handlers = {
  noop: ({ n }: { readonly n: number }) => Effect.succeed(n),
  async: ({ n }: { readonly n: number }) => Effect.map(Effect.promise(() => settled), (zero) => zero + n),
  parked: (_: { readonly n: number }) => Effect.never
}

export type Name = keyof typeof handlers

export const context = await Effect.runPromise(
  Layer.buildWithScope(Layer.mergeAll(toolkit.toLayer(handlers), Turn.layer()), Scope.makeUnsafe())
) as Context.Context<any>

export const callsOf = (name: Name, n: number): ReadonlyArray<ToolCall.ToolCall> =>
  Array.from({ length: n }, (_, i) => ToolCall.make(`call_${i}`, name, { n: i }))

export const bare = (calls: ReadonlyArray<ToolCall.ToolCall>): Effect.Effect<unknown> =>
  Effect.forEach(calls, (call) => handlers[call.name as Name](call.arguments as { readonly n: number }), {
    concurrency: "unbounded"
  })

const semaphore = Semaphore.makeUnsafe(1_000_000)
const decode = Schema.decodeUnknownEffect(Schema.Struct({ n: Schema.Finite }))

/** Decode, a permit that is free, a timeout, an exit for each: what a careful Effect user writes. */
export const byHand = (calls: ReadonlyArray<ToolCall.ToolCall>, permits = semaphore): Effect.Effect<unknown> =>
  Effect.forEach(
    calls,
    (call) =>
      Effect.exit(
        Effect.flatMap(decode(call.arguments), (params) =>
          permits.withPermit(Effect.timeout(handlers[call.name as Name](params), "10 seconds")))
      ),
    { concurrency: "unbounded" }
  )

export const turn = (calls: ReadonlyArray<ToolCall.ToolCall>): Effect.Effect<unknown, unknown, any> =>
  Turn.run(toolkit, calls) as Effect.Effect<unknown, unknown, any>
