import { assert, it } from "@effect/vitest"
import { type Outcome, ToolPolicy, Turn, TurnContext, type TurnPlan } from "effect-turn"
import { Tool } from "effect/ai"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Data from "../utils/data.ts"
import { describeShared } from "../utils/requires.ts"

/** Rows of which the oracle does not list what their arguments name. */
const unlisted = new Set(["fa57c28a-e9d8-44fb-a358-a9404a557d5b", "738365f4-8f90-41b6-8b1c-5da4a8655f25"])

type Pair = readonly [number, number]

const text = (pairs: Iterable<Pair>): ReadonlyArray<string> => [...new Set(Array.from(pairs, String))].sort()

/** Reads of any arguments, one for each name in the turn, also for those that a model has invented. */
const toolsOf = (turn: Data.DataTurn): ReadonlyArray<Tool.Any> =>
  [...new Set(turn.calls.map(({ name }) => name))].map((name) =>
    ToolPolicy.read({ keys: () => [] })(
      Tool.dynamic(name, { parameters: { type: "object" }, success: Schema.Unknown, failure: Schema.String })
    ) as Tool.Any
  )

/** Some planners number the fields of all results. */
const optionsOf = (
  turn: Data.DataTurn & { readonly response_slots?: ReadonlyArray<ReadonlyArray<string>> }
): Turn.Options => ({
  dedupe: "off",
  references: turn.response_slots === undefined
    ? true
    : {
      names: Object.fromEntries(turn.response_slots.flatMap((slots, call) => slots.map((slot) => [slot, { call }])))
    }
})

const referencesOf = (plan: TurnPlan.TurnPlan): ReadonlyArray<Pair> =>
  plan.calls.flatMap(({ position, references = [] }) => references.map(({ call }): Pair => [call, position]))

const isCircle = (pairs: ReadonlyArray<Pair>): boolean => {
  const leads = (from: number, to: number, seen: Set<number>): boolean =>
    pairs.some(([on, call]) =>
      on === from && on !== call && (call === to || (!seen.has(call) && leads(call, to, seen.add(call))))
    )
  return pairs.some(([on]) => leads(on, on, new Set()))
}

/** What the data says of a plan's problems, found in ours. */
const shows: Record<string, (plan: TurnPlan.TurnPlan) => boolean> = {
  self: (plan) => referencesOf(plan).some(([on, call]) => on === call),
  forward: (plan) => referencesOf(plan).some(([on, call]) => on > call),
  cycle: (plan) => isCircle(referencesOf(plan)),
  dangling: ({ calls }) => calls.some(({ message }) => message?.includes("which is no call of this turn") === true),
  "duplicate call id": ({ calls }) => calls.some(({ code }) => code === "ambiguous_id")
}

/** A result that has what others name in it. */
const resultOf = (plan: TurnPlan.TurnPlan, position: number): unknown => {
  const result: Record<string, any> = {}
  for (const { at, call } of plan.calls.flatMap(({ references = [] }) => references)) {
    if (call !== position || at === "") continue
    const steps = at.slice(1).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"))
    let holder = result
    for (const step of steps.slice(0, -1)) holder = holder[step] ??= {}
    const last = steps.at(-1)!
    holder[last] ??= `${last} of #${position}`
  }
  return result
}

describeShared("planned turns whose calls need each other's results", (shared) => {
  it.effect(
    "edges are those of the oracle, problems are found, every call is answered, and each runs behind what it needs",
    () =>
      Effect.gen(function*() {
        const data = yield* Effect.promise(() => Data.load(shared))
        const turns = data.turns("turns-dag")
        assert.isAbove(turns.length, 2000)
        const counts = { sound: 0, edges: 0, problems: 0, ran: 0, values: 0 }
        for (const turn of turns) {
          const options = optionsOf(turn)
          const runs: Array<{ position: number; began: number; ended: number; args: string }> = []
          let plan: TurnPlan.TurnPlan | undefined
          const { layer, toolkit } = Data.kit(toolsOf(turn), () => (args) =>
            Effect.gen(function*() {
              const { position } = (yield* TurnContext.CurrentCall)!
              const run = {
                position,
                began: yield* Clock.currentTimeMillis,
                ended: Infinity,
                args: JSON.stringify(args)
              }
              runs.push(run)
              yield* Effect.sleep(10)
              run.ended = yield* Clock.currentTimeMillis
              return resultOf(plan!, position)
            }))
          plan = yield* Data.planOf(toolkit, turn.calls, options)
          const found = referencesOf(plan)
          const problems: ReadonlyArray<string> = turn.oracle.problems ?? []
          for (const problem of problems) {
            counts.problems++
            assert.isTrue(shows[problem]!(plan), `${turn.id}: ${problem}`)
          }
          if (problems.length === 0 && !unlisted.has(turn.id)) {
            counts.sound++
            counts.edges += turn.oracle.edges.length
            assert.deepStrictEqual(text(found), text(turn.oracle.edges), turn.id)
          }
          const outcomes = (yield* Data.inVirtualTime(
            Turn.run(toolkit, turn.calls, options).pipe(Effect.provide(layer))
          )) as ReadonlyArray<Outcome.Outcome<any>>
          assert.deepStrictEqual(outcomes.map(({ id }) => id), turn.calls.map(({ id }) => id), turn.id)
          for (const [i, outcome] of outcomes.entries()) {
            const { verdict } = plan.calls[i]!
            assert.strictEqual(outcome.status === "ok", verdict === "run", `${turn.id} #${i}: ${outcome.message}`)
            assert.strictEqual(runs.filter(({ position }) => position === i).length, verdict === "run" ? 1 : 0, turn.id)
          }
          for (const { args, began, position } of runs) {
            counts.ran++
            for (const { argument, at, call } of plan.calls[position]!.references ?? []) {
              assert.isAtLeast(began, runs.find((run) => run.position === call)!.ended, `${turn.id}: #${position}`)
              const last = at.slice(at.lastIndexOf("/") + 1)
              if (at === "") continue
              counts.values++
              assert.include(args, `${last} of #${call}`, `${turn.id}: ${argument} of #${position}`)
            }
          }
        }
        console.log(
          `planners: ${counts.sound} sound turns with ${counts.edges} edges, ${counts.problems} problems, ${counts.ran} runs, ` +
            `${counts.values} values`
        )
        for (const count of Object.values(counts)) assert.isAbove(count, 100)
      }),
    60_000
  )
})
