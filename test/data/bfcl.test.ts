/** Single turns and ground-truth call lists of the Berkeley Function Calling Leaderboard. */
import { assert, beforeAll, it } from "@effect/vitest"
import { ToolPolicy } from "effect-turn"
import * as Effect from "effect/Effect"
import * as Data from "../utils/data.ts"
import { describeShared } from "../utils/requires.ts"

const independent = (): Data.Policy => ToolPolicy.read({ keys: () => [] })

describeShared("single turns of a benchmark, planned and run", (shared) => {
  let data: Data.Data
  let turns: ReadonlyArray<Data.DataTurn>
  beforeAll(async () => {
    data = await Data.load(shared)
    turns = data.turns("turns-bfcl")
  })

  it.effect("every call is answered, nothing waits, and nothing honest is taken for a placeholder", () =>
    Effect.gen(function*() {
      const all = yield* Data.runAll(data, turns, independent)
      assert.isAbove(all.length, 300)
      for (const { plan, runs, turn } of all) {
        assert.deepStrictEqual(plan.edges, [], turn.id)
        for (const { began } of runs) assert.strictEqual(began, runs[0]!.began, turn.id)
      }
      assert.deepStrictEqual(Data.answered(all, "placeholder"), [])
      const repeated = all.flatMap(({ plan }) => plan.calls.filter(({ verdict }) => verdict === "duplicate"))
      assert.strictEqual(repeated.length, turns.flatMap(({ oracle }) => oracle.duplicates).length)
      console.log(`bfcl: ${all.length} turns, ${all.flatMap(({ outcomes }) => outcomes).length} calls`)
    }))

  it.effect("arguments are refused in exactly the turns where the source's own do not fit its schemas", () =>
    Effect.gen(function*() {
      const all = yield* Data.runAll(data, turns, independent)
      const refused = all.filter(({ outcomes }) =>
        outcomes.some((one) => "code" in one && one.code === "invalid_arguments")
      )
      assert.deepStrictEqual(
        refused.map(({ turn }) => turn.id),
        turns.filter(({ oracle }) => !oracle.arguments_fit_schema).map(({ id }) => id)
      )
      // Texts where the schema has numbers, a value that is not in the enum, and matrices whose schema has plain lists.
      const matrix = /^exec_parallel_31 #\d tool "mat_mul": matA\.0: Expected number/
      const why = [
        /^parallel_multiple_94 #0 .*elements\.0: Expected number/,
        /^live_parallel_multiple_2-2-0 #1 .*command: /
      ]
      const complaints = Data.answered(all, "invalid_arguments")
      assert.strictEqual(complaints.length, 6)
      for (const [i, complaint] of complaints.entries()) assert.match(complaint, why[i] ?? matrix)
    }))
})

/** What a call touches: the attributes that its tool was seen to touch; a tool that was never seen, its whole application. */
const observed = (application: (tool: Data.DataTool) => string) => (tool: Data.DataTool): Data.Policy => {
  const { observed } = tool
  const keys = tool.class === "pure"
    ? []
    : observed == null
    ? [application(tool)]
    : [...new Set([...(observed.reads ?? []), ...observed.writes])]
  return tool.class === "write" ? ToolPolicy.write({ keys: () => keys }) : ToolPolicy.read({ keys: () => keys })
}

describeShared("user turns of a benchmark with state, planned and run", (shared) => {
  let data: Data.Data
  let turns: ReadonlyArray<Data.DataTurn>
  let policyOf: (tool: Data.DataTool) => Data.Policy
  beforeAll(async () => {
    data = await Data.load(shared)
    turns = data.turns("turns-bfcl-multiturn")
    const applications = new Map<string, string>()
    for (const turn of turns) {
      for (const name of turn.toolsets!) {
        for (const tool of data.toolsOf({ ...turn, toolsets: [name] })) applications.set(tool.name, name)
      }
    }
    policyOf = observed(({ name }) => applications.get(name)!)
  })

  it.effect("every call is answered, and every conflict that was recorded is kept", () =>
    Effect.gen(function*() {
      const all = yield* Data.runAll(data, turns, policyOf)
      assert.isAbove(all.length, 300)
      assert.deepStrictEqual(Data.answered(all, "invalid_arguments"), [])
      assert.deepStrictEqual(Data.answered(all, "placeholder"), [])
      let recorded = 0
      let planned = 0
      for (const ran of all) {
        const pairs = Data.pairsOf(ran.plan)
        const conflicts: ReadonlyArray<readonly [number, number]> = ran.turn.oracle.key_conflicts
        recorded += conflicts.length
        planned += pairs.length
        for (const [first, later] of conflicts) {
          assert.isTrue(
            pairs.some(([a, b]) => a === first && b === later),
            `${ran.turn.id}: #${first} before #${later}`
          )
        }
        Data.keeps(ran, pairs)
        for (const { key, to } of ran.plan.edges) if (typeof to === "number") assert.notStrictEqual(key, "*")
      }
      assert.isAbove(recorded, 500)
      console.log(
        `bfcl with state: ${all.length} turns, ${all.flatMap(({ outcomes }) => outcomes).length} calls, ` +
          `${recorded} recorded conflicts, ${planned} pairs ordered`
      )
    }))

  it.effect("reads alone are never ordered", () =>
    Effect.gen(function*() {
      let n = 0
      for (const { plan, turn } of yield* Data.runAll(data, turns, policyOf)) {
        for (const [first, later] of Data.pairsOf(plan)) {
          n++
          const between = plan.calls.slice(first, later + 1)
          assert.isTrue(between.some(({ access }) => access === "write"), `${turn.id}: #${first} before #${later}`)
        }
      }
      assert.isAbove(n, 0)
    }))
})
