import { IdempotencyStore, ToolCall, ToolPolicy, Turn, type TurnContext } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import { describe, expectTypeOf, it } from "vitest"

const shape = { parameters: Schema.Struct({ invoice: Schema.String }), success: Schema.String }
const Recorded = pipe(
  Tool.make("pay", shape),
  ToolPolicy.write(),
  IdempotencyStore.record(({ invoice }) => invoice)
)
class Bank extends Context.Service<Bank, { readonly paid: (key: string) => Effect.Effect<boolean> }>()("test/Bank") {}
const Asked = pipe(
  Tool.make("pay", shape),
  ToolPolicy.write(),
  IdempotencyStore.verify({
    key: ({ invoice }) => invoice,
    ask: (_, key) =>
      Effect.map(
        Bank.use((bank) => bank.paid(key)),
        (paid) => paid ? IdempotencyStore.applied("receipt") : IdempotencyStore.notApplied
      )
  })
)

const needs = <E, R>(_: Effect.Effect<unknown, E, R>): R => undefined as R
const run = Turn.run(Toolkit.make(Recorded), [ToolCall.make("c", "pay", { invoice: "a" })])

describe("R35: an idempotency store without a tenant does not compile", () => {
  it("a recorded write needs the store and the tenant", () => {
    expectTypeOf<IdempotencyStore.IdempotencyStore>().toExtend<typeof Need>()
    expectTypeOf<TurnContext.Tenant>().toExtend<typeof Need>()
    // What asks for anything, or for nothing, would pass too.
    expectTypeOf<Bank>().not.toExtend<typeof Need>()
  })

  it("one that can be asked about needs what the question needs", () => {
    expectTypeOf<Bank>().toExtend<typeof AskedNeed>()
    expectTypeOf<IdempotencyStore.IdempotencyStore>().toExtend<typeof AskedNeed>()
  })

  it("the result of the question is that of the tool", () => {
    pipe(
      Tool.make("pay", shape),
      // @ts-expect-error: a receipt is a text
      IdempotencyStore.verify({ key: () => "k", ask: () => Effect.succeed(IdempotencyStore.applied(7)) })
    )
  })
})

const Need = needs(run)
const AskedNeed = needs(Turn.run(Toolkit.make(Asked), []))
