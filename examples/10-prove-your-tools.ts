/**
 * Prove it: your own tools under generated turns, stops and interleavings; a failure that is small, and that repeats.
 *
 * A ledger has a tool that moves money. Its handler reads two balances, waits for the bank, and writes both. Its policy names the
 * account that money comes from, and forgets the one that it goes to: two transfers to one account may then run at the same time,
 * and the later one writes over the earlier. No single test is likely to meet that. `Simulation.forAll` does.
 */
import { Effect, pipe, Schema } from "effect"
import { ToolPolicy } from "effect-turn"
import { Laws, Simulation, TurnCase } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"

const Account = Schema.Literals(["rent", "food", "savings"])
const Transfer = Tool.make("transfer", { parameters: Schema.Struct({ from: Account, to: Account }) })

const ledger = Toolkit.make(pipe(Transfer, ToolPolicy.write({ keys: ({ from }) => [`account:${from}`] })))
const repaired = Toolkit.make(
  pipe(Transfer, ToolPolicy.write({ keys: ({ from, to }) => [`account:${from}`, `account:${to}`] }))
)

/** What must hold, whatever the calls, their times, the stop, and the order of everything: the laws, and the sum. */
const keepsItsMoney = (toolkit: typeof ledger) => (turnCase: TurnCase.TurnCase) =>
  Effect.gen(function*() {
    const balance = { rent: 100, food: 100, savings: 100 }
    const layer = toolkit.toLayer({
      transfer: ({ from, to }) =>
        Effect.gen(function*() {
          const before = { ...balance }
          yield* Effect.sleep("20 millis") // the bank
          if (from === to) return
          balance[from] = before[from] - 10
          balance[to] = before[to] + 10
        })
    })
    yield* Laws.check(yield* TurnCase.run(toolkit, layer, turnCase))
    const sum = balance.rent + balance.food + balance.savings
    if (sum !== 300) return yield* Effect.fail(`expected 300 in all accounts, and there are ${sum}`)
  })

const program = Effect.gen(function*() {
  const cases = TurnCase.arbitrary(ledger, { tenants: ["us"] })

  // The smallest turn that fails, the interleaving it fails under, and what repeats exactly that.
  const falsified = yield* Effect.flip(Simulation.forAll(cases, keepsItsMoney(ledger), { show: TurnCase.show }))
  console.log(falsified.message)

  // The same failure again, here or on another machine: put the replay into a test, and repair.
  const again = yield* Effect.flip(Simulation.forAll(cases, keepsItsMoney(ledger), { replay: falsified.replay }))
  console.log(`\nagain: ${again.problem === falsified.problem}`)

  // Repaired: what failed passes, and so does everything else.
  yield* Simulation.forAll(cases, keepsItsMoney(repaired), { replay: falsified.replay })
  const { distinct, runs } = yield* Simulation.forAll(cases, keepsItsMoney(repaired), { inputs: 200 })
  console.log(`repaired: ${runs} runs pass, ${distinct} of them different`)

  // Small turns can be gone through one by one: every list of two transfers, interrupted at every point.
  const layer = repaired.toLayer({ transfer: () => Effect.sleep("20 millis") })
  const exhausted = yield* Laws.exhaust({ toolkit: repaired, layer })
  console.log(`${exhausted.cases} small turns, ${exhausted.runs} runs with all stops, complete: ${exhausted.complete}`)
})

await Effect.runPromise(program)
