/**
 * An agent that waits for a human, for as long as it takes.
 *
 * A call that needs approval parks the agent: it ends with plain data, which can lie in a database until somebody has decided. Then it is
 * resumed, in this process or in another: what has its answer is not run again, and the model sees one answer for each call. Decisions
 * come from a list here. To ask a person, show them `parked.turn.requests` (the tool, and exactly the arguments that would run) in a
 * message or on a page, keep `JSON.stringify(parked)` meanwhile, and resume when the answer comes. Where somebody sits and waits, no
 * parking is needed: give a `decide` that asks them, in the options of the turn, and the tool a `waitTimeout` as long as they may take.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { Agent, Approval, Outcome, ToolPolicy, Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"

const ReadBill = pipe(
  Tool.make("read_bill", { parameters: Schema.Struct({ from: Schema.String }), success: Schema.Int }),
  ToolPolicy.read({ keys: () => [] })
)
// effect/ai's own question, asked with the arguments: small sums need nobody.
const Pay = pipe(
  Tool.make("pay", {
    parameters: Schema.Struct({ to: Schema.String, euros: Schema.Int }),
    success: Schema.String,
    needsApproval: ({ euros }) => euros > 50
  }),
  ToolPolicy.write({ keys: ({ to }) => [`account:${to}`] })
)
const toolkit = Toolkit.make(ReadBill, Pay)
const tools = toolkit.toLayer({
  read_bill: ({ from }) =>
    Effect.sync(() => {
      console.log(`  (read the bill of ${from})`)
      return 30
    }),
  pay: ({ euros, to }) =>
    Effect.sync(() => {
      console.log(`  (paid ${euros} euros to ${to})`)
      return `paid ${euros}`
    })
})

const model = FakeModel.layer([
  FakeModel.calls([
    FakeModel.call(ReadBill, { from: "Ada" }),
    FakeModel.call(Pay, { to: "Bob", euros: 20 }),
    FakeModel.call(Pay, { to: "Cyd", euros: 500 }),
    FakeModel.call(Pay, { to: "Dan", euros: 900 })
  ]),
  FakeModel.text("Ada's bill is 30. Bob has 20, Cyd has 300 instead of 500, and Dan was not paid.")
])

/** What the human says, by whom it is about. */
const decisions: Record<string, Approval.Decision> = {
  Cyd: Approval.edit({ to: "Cyd", euros: 300 }),
  Dan: Approval.deny("not this month")
}

const answers = (result: { readonly steps: ReadonlyArray<Agent.Step<typeof toolkit>> }) => {
  for (const { outcomes } of result.steps) {
    for (const outcome of outcomes) {
      console.log(`  ${outcome.name}: ${outcome.status}, ${JSON.stringify(Outcome.forModel(outcome).value)}`)
    }
  }
}

const program = Effect.gen(function*() {
  console.log("The agent runs what needs nobody, and parks:")
  const first = yield* Agent.run({ prompt: "Settle the bills.", toolkit, approval: "park" })
  if (first.reason !== "pending_approval") return console.log(`  it ended by ${first.reason}`)

  const kept = JSON.stringify(first.parked)
  console.log(`\nIt is a text of ${kept.length} characters now, and the process may end. What it asks:`)
  const parked = yield* Schema.decodeUnknownEffect(Agent.Parked)(JSON.parse(kept))
  for (const request of parked.turn.requests) console.log(`  ${request.tool} ${JSON.stringify(request.arguments)}?`)

  console.log("\nThe human has decided, and the agent goes on:")
  const second = yield* Agent.resume(parked, {
    toolkit,
    approval: "park",
    decisions: parked.turn.requests.map(({ arguments: args, position }) => ({
      position,
      decision: decisions[args["to"] as string] ?? Approval.deny("nobody knows them")
    }))
  })
  console.log("\nEvery call has its one answer:")
  answers(second)
  console.log(`\nThe model says: ${second.text}`)
})

await program.pipe(Effect.provide(Layer.mergeAll(tools, model, Turn.layer())), Effect.runPromise)
