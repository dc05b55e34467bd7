import { assert, describe, it } from "@effect/vitest"
import { Scenario } from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as fs from "node:fs"
import * as path from "node:path"
import { describeShared } from "../utils/requires.ts"

const own = path.join(import.meta.dirname, "../fixtures/scenarios")
const seeds = 200

/** Every file of a folder that passes in the natural order passes in every other. */
const everyFile = (folder: string) => {
  const explored = { files: 0, runs: 0, distinct: 0 }
  const names = fs.readdirSync(folder).filter((name) => name.endsWith(".json") && !name.endsWith(".schema.json")).sort()
  it.effect.each(names)("%s", (name): Effect.Effect<void> =>
    Effect.gen(function*() {
      const text = fs.readFileSync(path.join(folder, name), "utf8")
      if (!(yield* Scenario.runText(name, text)).pass) return
      const report = yield* Scenario.exploreText(name, text, { seeds })
      assert.deepStrictEqual([report.failures, report.explored?.found], [[], undefined])
      explored.files++
      explored.runs += report.explored!.runs
      explored.distinct += report.explored!.distinct
    }), 120_000)
  it("they were explored, under interleavings that differ", () => {
    assert.isAbove(explored.files, 0)
    assert.strictEqual(explored.runs, explored.files * seeds)
    assert.isAbove(explored.distinct, explored.runs / 4)
  })
}

describeShared("shared scenario files, explored", (shared) => everyFile(path.join(shared, "scenarios")))

describe("own scenario files, explored", () => {
  everyFile(own)
})

describe("Scenario.explore", () => {
  const scenarioOf = (change: object = {}) =>
    Effect.orDie(Scenario.decode({
      name: "in-time",
      why: "A search that takes as long as it may is in time.",
      backends: { maps: { concurrency: 2 } },
      tools: {
        search: { access: "read", keys: [], timeoutMs: 20, backend: "maps", behaviour: { type: "ok", latencyMs: 20 } },
        book: { keys: ["hotel"], behaviour: { type: "ok", latencyMs: 5 } }
      },
      turns: [{
        calls: [
          { id: "a", name: "search", arguments: { q: "x" } },
          { id: "b", name: "book", arguments: { n: 1 } },
          { id: "c", name: "book", arguments: { n: 2 } }
        ]
      }],
      expect: { outcomes: [[{ status: "ok" }, { status: "ok" }, { status: "ok" }]], elapsedMs: { max: 20 } },
      ...change
    }))

  it.effect("tells the first seed that fails, what differs, what repeats it, and what ran when", () =>
    Effect.gen(function*() {
      const scenario = yield* scenarioOf()
      assert.isTrue((yield* Scenario.run(scenario)).pass)
      const report = yield* Scenario.explore(scenario)
      assert.isFalse(report.pass)
      assert.deepStrictEqual(report.failures, ['outcomes: turn 0, call 0 ("a"): expected status "ok", got "timeout"'])
      const { distinct, found, runs } = report.explored!
      assert.strictEqual(found!.seed, runs)
      assert.isAtMost(distinct, runs)
      assert.strictEqual(found!.switches, 1)
      assert.isAbove(found!.shrinks, 0)
      assert.includeMembers([...found!.differences], [
        'turn 0, call 0 ("a"): status: "ok" in the natural order, "timeout" here',
        'turn 0, call 0 ("a"): code: none in the natural order, "handler" here',
        'turn 0, call 0 ("a"): retryable: false in the natural order, true here',
        'turn 0, call 0 ("a"): result: {"ok":true} in the natural order, none here'
      ])
      const trace = found!.trace.join("\n")
      assert.match(trace, /^> .*20 ms/m)
      assert.match(trace, /- turn 0: call 0 "a" \(search\) is answered: timeout \(handler\), effect none/)
      // What stands beside it is that run's own.
      assert.strictEqual(report.outcomes?.[0]?.[0]?.status, "timeout")
      assert.strictEqual(JSON.stringify(JSON.parse(JSON.stringify(report))), JSON.stringify(report))
    }))

  it.effect("repeats a failure, and says again what differs", () =>
    Effect.gen(function*() {
      const scenario = yield* scenarioOf()
      const first = yield* Scenario.explore(scenario)
      const { differences, replay, trace } = first.explored!.found!
      const again = yield* pipe(scenario, Scenario.explore({ replay }))
      assert.deepStrictEqual(again.explored, {
        runs: 1,
        distinct: 1,
        found: { seed: first.explored!.found!.seed, replay, switches: 1, shrinks: 0, differences, trace }
      })
      assert.deepStrictEqual({ ...again, explored: undefined }, { ...first, explored: undefined })
      const seed = String(first.explored!.found!.seed)
      assert.isFalse((yield* Scenario.explore(scenario, { replay: seed })).pass)
      const natural = yield* Scenario.explore(scenario, { replay: "0" })
      assert.deepStrictEqual([natural.pass, natural.explored], [true, { runs: 1, distinct: 1 }])
    }))

  it.effect("leaves a failure as it is without runs to make it smaller", () =>
    Effect.gen(function*() {
      const { explored } = yield* Scenario.explore(yield* scenarioOf(), { maxShrinks: 0 })
      assert.strictEqual(explored!.found!.shrinks, 0)
      assert.isAtLeast(explored!.found!.switches, 1)
    }))

  it.effect("reports a failure of the natural order as such, and explores nothing", () =>
    Effect.gen(function*() {
      const scenario = yield* scenarioOf({ expect: { executions: { book: 3 } } })
      const { explored, ...report } = yield* Scenario.explore(scenario)
      assert.deepStrictEqual(explored, { runs: 0, distinct: 0 })
      assert.deepStrictEqual(report, yield* Scenario.run(scenario))
      assert.deepStrictEqual(report.failures, ["executions: book: expected 3, got 2"])
    }))

  it.effect("tells counts, times, and the order of starts and ends apart", () =>
    Effect.gen(function*() {
      // The permit comes back at the moment at which nobody may wait for it any more.
      const scenario = yield* scenarioOf({
        backends: { maps: { concurrency: 1 } },
        tools: {
          look: {
            access: "read",
            keys: [],
            backend: "maps",
            queueTimeoutMs: 20,
            behaviour: { type: "ok", latencyMs: 20 }
          }
        },
        turns: [{ calls: ["a", "b"].map((id) => ({ id, name: "look", arguments: { id } })) }],
        expect: {}
      })
      const { executions } = yield* Scenario.run(scenario)
      const report = yield* Scenario.explore({ ...scenario, expect: { executions: executions! } })
      const [natural, here] = [executions!["look"]!, report.executions!["look"]!]
      assert.notStrictEqual(natural, here)
      const differences = report.explored!.found!.differences.join("\n")
      const ran = (n: number) => n === 2 ? "20 to 40 ms, ok" : "did not run"
      for (
        const expected of [
          `executions of look: ${natural} in the natural order, ${here} here`,
          `call 1 "b" (look) of turn 0: ${ran(natural)} in the natural order, ${ran(here)} here`,
          "order, after the first 2 starts and ends: ",
          `turn 0: answered at, in milliseconds: ${natural * 20} in the natural order, ${here * 20} here`
        ]
      ) assert.include(differences, expected)
    }))

  it.effect("explores as much as it is told to, and tells how far it is", () =>
    Effect.gen(function*() {
      const scenario = yield* scenarioOf({ expect: {} })
      const told: Array<number> = []
      const report = yield* Scenario.explore(scenario, {
        seeds: { from: 5, count: 7 },
        onRun: ({ seeds }) => told.push(seeds)
      })
      assert.strictEqual(report.explored?.runs, 7)
      assert.deepStrictEqual(told, [1, 2, 3, 4, 5, 6, 7])
      const none = yield* Scenario.explore(scenario, {
        budget: 0,
        onRun: () => {
          throw new Error("of the watcher's own")
        }
      })
      assert.strictEqual(none.explored?.runs, 1)
    }))

  it.effect("says what is no scenario", () =>
    Effect.gen(function*() {
      const text = fs.readFileSync(path.join(own, "unknown-field.json"), "utf8")
      assert.deepStrictEqual(
        yield* Scenario.exploreText("unknown-field.json", text),
        yield* Scenario.runText("unknown-field.json", text)
      )
      assert.deepStrictEqual(yield* Scenario.exploreText("x.json", "{"), yield* Scenario.runText("x.json", "{"))
    }))

  it.effect("refuses what it cannot do, at once", () =>
    Effect.gen(function*() {
      const scenario = yield* scenarioOf()
      for (
        const [options, expected] of [
          [{ seeds: 0 }, /"seeds".*a whole number from 1.*0/],
          [{ seeds: 1.5 }, /"seeds".*1\.5/],
          [{ maxShrinks: -1 }, /"maxShrinks".*-1/],
          [{ replay: "seventeen" }, /a replay text as "17\/31:1,40:2".*"seventeen"/]
        ] as const
      ) assert.throws(() => Scenario.explore(scenario, options), expected)
    }))

  it.effect("ends at once when it is interrupted", () =>
    Effect.gen(function*() {
      const scenario = yield* scenarioOf({ expect: {} })
      let runs = 0
      const exit = yield* Effect.exit(Effect.raceFirst(
        Scenario.explore(scenario, { seeds: 1_000_000_000, onRun: () => runs++ }),
        Effect.as(Effect.repeat(Effect.yieldNow, { until: () => runs > 3 }), "stopped")
      ))
      assert.deepStrictEqual(exit, Exit.succeed("stopped"))
    }))
})
