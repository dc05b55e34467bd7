/**
 * Backends and tenants.
 *
 * A backend is a named thing with limited capacity, shared by all turns of the process and by plain effects. A tool that is put on
 * a backend requires its layer: leaving it out does not compile. A backend with a share for each tenant requires the tenant too.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { Backend, type Outcome, ToolCall, ToolPolicy, Turn, TurnContext } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

// Two classes, two backends. The string is the name in plans, events and messages.
class Maps extends Backend.Service<Maps>()("app/Maps") {}
class Crm extends Backend.TenantService<Crm>()("app/Crm") {}

const Geocode = pipe(
  Tool.make("geocode", { parameters: Schema.Struct({ place: Schema.String }), success: Schema.String }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.on(Maps)
)

const GetCustomer = pipe(
  Tool.make("get_customer", { parameters: Schema.Struct({ id: Schema.Int }), success: Schema.String }),
  ToolPolicy.read({ keys: ({ id }) => [`customer:${id}`] }),
  ToolPolicy.on(Crm)
)

const toolkit = Toolkit.make(Geocode, GetCustomer)

// What really runs at once, measured by the handlers themselves.
const now = new Map<string, number>()
const peak = new Map<string, number>()
const measured = (name: string) =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      now.set(name, (now.get(name) ?? 0) + 1)
      peak.set(name, Math.max(peak.get(name) ?? 0, now.get(name)!))
    }),
    () => Effect.sleep("10 millis"),
    () => Effect.sync(() => now.set(name, now.get(name)! - 1))
  )

const handlers = toolkit.toLayer({
  geocode: ({ place }) => Effect.as(measured("maps"), `somewhere near ${place}`),
  get_customer: ({ id }) =>
    Effect.gen(function*() {
      const call = yield* TurnContext.CurrentCall
      yield* measured(`crm of ${call?.identity.tenant}`)
      return `customer ${id}`
    })
})

// Layers are made once, at the edge of the program: a backend is shared by whoever is given the same layer.
const live = Layer.mergeAll(
  handlers,
  Turn.layer(),
  Maps.layer({ concurrency: 2, queueLimit: 12 }),
  Crm.layer({ concurrency: 4, perTenant: 2 })
)

const customers = (n: number) => Array.from({ length: n }, (_, i) => ToolCall.make(`c${i}`, "get_customer", { id: i }))
const places = (n: number) =>
  Array.from({ length: n }, (_, i) => ToolCall.make(`p${i}`, "geocode", { place: `stop ${i}` }))
const count = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => {
  const by = new Map<string, number>()
  for (const outcome of outcomes) {
    const word = "code" in outcome ? `${outcome.status} (${outcome.code})` : outcome.status
    by.set(word, (by.get(word) ?? 0) + 1)
  }
  return [...by].map(([word, n]) => `${n} ${word}`).join(", ")
}

const program = Effect.gen(function*() {
  console.log("Two tenants, ten customers each, at the same time:")
  const turnOf = (tenant: string) =>
    Turn.run(toolkit, customers(10)).pipe(
      Effect.tap((outcomes) => Effect.sync(() => console.log(`  ${tenant}: ${count(outcomes)}`))),
      Effect.provide(TurnContext.make({ tenant }))
    )
  const watch = Effect.gen(function*() {
    yield* Effect.sleep("5 millis")
    console.log(`  meanwhile: ${JSON.stringify(yield* Crm.stats)}`)
  })
  yield* Effect.all([turnOf("north"), turnOf("south"), watch], { concurrency: "unbounded" })
  console.log(`  at once: ${peak.get("crm of north")} for north, ${peak.get("crm of south")} for south`)

  // The turn has no use for the tenant here, but a toolkit asks for what any of its tools needs.
  const here = Effect.provide(TurnContext.make({ tenant: "north" }))

  console.log("\nTwenty places on a backend that takes two at a time and has a line of twelve:")
  console.log(`  ${count(yield* here(Turn.run(toolkit, places(20))))}; at once: ${peak.get("maps")}`)

  console.log("\nThe same bound for plain effects, side by side with a turn:")
  peak.clear()
  const tiles = Effect.forEach(Array.from({ length: 6 }), () => Maps.withPermit(measured("maps")), {
    concurrency: "unbounded",
    discard: true
  })
  yield* Effect.all([tiles, here(Turn.run(toolkit, places(6)))], { concurrency: "unbounded" })
  console.log(`  at once: ${peak.get("maps")}`)

  // A full line is an ordinary, typed failure of a plain effect.
  const [done, refused] = yield* Effect.partition(
    Array.from({ length: 16 }),
    () => Maps.withPermit(measured("maps")),
    { concurrency: "unbounded" }
  )
  console.log(`  ${done.length} of 16 done, ${refused.length} refused: ${refused[0]?.message}`)
})

await program.pipe(Effect.provide(live), Effect.runPromise)
