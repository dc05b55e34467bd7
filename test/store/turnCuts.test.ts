/** Turns whose connection to the store is cut in the middle of a step: nothing runs without its reservation, and what ran is told as it was. */
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import { IdempotencyStore, Outcome, ToolCall, ToolPolicy, Turn, TurnContext, TurnStore } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as References from "effect/References"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { type Plan, Proxy } from "../utils/proxy.ts"
import { describeService } from "../utils/requires.ts"
import { dropTables, ownName, pgClient } from "../utils/stores.ts"

const Pay = pipe(
  Tool.make("pay", { parameters: Schema.Struct({ invoice: Schema.String }), success: Schema.String }),
  ToolPolicy.write({ keys: ({ invoice }) => [invoice] }),
  IdempotencyStore.record(({ invoice }) => invoice)
)
const toolkit = Toolkit.make(Pay)

const cuts: ReadonlyArray<Exclude<Plan, "pass">> = ["request", "answer", "half", "silence"]

await describeService("a write with a key over a connection to PostgreSQL that is cut", "PostgreSQL", (address) => {
  const proxy = new Proxy(address)
  const table = ownName()
  beforeAll(() => proxy.open())
  afterAll(async () => {
    await proxy.close()
    await dropTables(address, table)
  })

  const paid: Array<string> = []
  /** What is done while the handler runs. */
  let during = Effect.void
  const tools = toolkit.toLayer({
    pay: ({ invoice }) =>
      Effect.sync(() => {
        paid.push(invoice)
        return `receipt of ${invoice}`
      }).pipe(Effect.tap(() => during))
  })

  const records = (direct: boolean) =>
    IdempotencyStore.layer({ lease: "1 second" }).pipe(
      Layer.provide(TurnStore.layerSql({ table, timeout: "500 millis" })),
      Layer.provide(Layer.unwrap(Effect.sync(() => pgClient(direct ? address : proxy.address, { maxConnections: 1 }))))
    )
  const services = (direct: boolean) =>
    Layer.mergeAll(
      tools,
      Turn.layer(),
      records(direct),
      Layer.succeedContext(TurnContext.make({ tenant: "t" })),
      Layer.succeed(References.MinimumLogLevel, "Error")
    )

  const pay = (invoice: string) =>
    Effect.map(
      Turn.run(toolkit, [ToolCall.make("c", "pay", { invoice })]),
      ([outcome]) => Outcome.toJson(outcome!)
    )
  const countOf = (invoice: string) => paid.filter((one) => one === invoice).length

  /** The next step goes wrong, and the connection is there again after it. */
  const cutNext = (plan: Plan) =>
    Effect.sync(() => {
      proxy.next(plan)
      if (plan === "silence") setTimeout(() => proxy.cut(), 700)
    })

  it.live("R21: while its key is reserved, it is not started, and may be tried again", () =>
    Effect.gen(function*() {
      for (const plan of cuts) {
        const invoice = `reserve ${plan}`
        yield* pay(`${invoice} before`)
        const count = proxy.count
        yield* cutNext(plan)
        const outcome = yield* pay(invoice)
        assert.deepInclude(outcome, {
          status: "error",
          code: "store_unavailable",
          started: false,
          effect: "none",
          retryable: true
        })
        assert.include(outcome.message, "its key could not be reserved")
        assert.strictEqual(countOf(invoice), 0)
        yield* until(() => proxy.count > count)
        // What may have been reserved is freed, or its lease ends: then it is in doubt, and still not paid twice.
        const again = yield* Effect.repeat(pay(invoice), {
          until: ({ code }) => code !== "store_unavailable",
          schedule: Schedule.spaced("50 millis"),
          times: 100
        })
        if (again.code === "in_doubt") assert.strictEqual(countOf(invoice), 0)
        else {
          assert.deepInclude(again, { status: "ok", result: `receipt of ${invoice}` })
          assert.strictEqual(countOf(invoice), 1)
        }
      }
    }).pipe(Effect.provide(services(false))), 60_000)

  it.live(
    "R23: while its end is written down, it is told as it was, and kept or in doubt",
    () =>
      Effect.gen(function*() {
        for (const plan of cuts) {
          const invoice = `settle ${plan}`
          yield* pay(`${invoice} before`)
          const count = proxy.count
          during = cutNext(plan)
          const outcome = yield* Effect.ensuring(pay(invoice), Effect.sync(() => (during = Effect.void)))
          assert.deepInclude(outcome, {
            status: "ok",
            started: true,
            effect: "applied",
            result: `receipt of ${invoice}`
          })
          assert.isAbove(proxy.count, count)
          const again = yield* Effect.provide(pay(invoice), services(true))
          if (again.code !== "in_doubt") {
            assert.deepInclude(again, { status: "ok", replayed: true, result: `receipt of ${invoice}` })
          }
          assert.strictEqual(countOf(invoice), 1)
        }
      }).pipe(Effect.provide(services(false))),
    60_000
  )
})

const until = (is: () => boolean) =>
  Effect.repeat(Effect.sync(is), { until: (is) => is, schedule: Schedule.spaced("10 millis") })
