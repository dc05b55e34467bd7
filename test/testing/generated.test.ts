import { assert, describe, it } from "@effect/vitest"
import { Scenario } from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { runs } from "../utils/gen.ts"

// Scenarios with tools, limits, stops and nested turns of all kinds, and nothing expected: the rules that hold in every turn have to
// hold in each of them. What fails is shrunk, and is a file as it is printed.

const own = path.join(import.meta.dirname, "../fixtures/scenarios")

describe("cases that generated scenarios have found", () => {
  it.effect.each([
    "nested-keeps-order",
    "nested-sequential",
    "late-start-keeps-its-clock",
    "agents-that-wait-for-each-other",
    "agents-of-two-turns-that-wait-for-each-other",
    "grace-of-nothing",
    "answers-are-looked-at-in-one-piece",
    "a-nested-call-that-never-runs"
  ])("%s", (name) =>
    Scenario.runText(`${name}.json`, fs.readFileSync(path.join(own, `${name}.json`), "utf8")).pipe(
      Effect.map((report) => assert.deepStrictEqual(report.failures, []))
    ))
})

describe("generated scenarios", () => {
  const seen = new Map<string, number>()
  const count = (kind: string) => seen.set(kind, (seen.get(kind) ?? 0) + 1)

  it.effect.prop(
    "keep the rules that always hold",
    { scenario: Scenario.arbitrary() },
    ({ scenario }) =>
      Effect.map(Scenario.run(scenario), (report) => {
        for (const outcome of report.outcomes?.flatMap((list) => list ?? []) ?? []) {
          const kind = outcome.replayed === true ? "replayed" : outcome.code ?? outcome.status
          count(kind)
        }
        if (report.outcomes?.includes(null) === true) count("crashed")
        if ((report.requests?.["list"] ?? 0) > 0) count("merged")
        if (report.spans?.some(({ attempt }) => attempt > 1) === true) count("retried")
        assert.deepStrictEqual(report.failures, [])
      }),
    { ...runs(2000), timeout: 120_000 }
  )

  it("reach what the rules are about", () => {
    const kinds = [
      "ok",
      "failed",
      "defect",
      "by_caller",
      "by_sibling",
      "by_deadline",
      "by_itself",
      "handler",
      "queue",
      "queue_full",
      "pending_approval",
      "waits_for_approval",
      "unknown_tool",
      "ambiguous_id",
      "rate_limited",
      "replayed",
      "in_doubt",
      "key_reused",
      "retried",
      "crashed",
      "merged",
      "not_found"
    ]
    assert.deepStrictEqual(kinds.filter((kind) => (seen.get(kind) ?? 0) < 5), [])
  })

  let explored = 0
  let distinct = 0

  it.effect.prop(
    "keep them under other interleavings",
    { scenario: Scenario.arbitrary() },
    ({ scenario }) =>
      Effect.map(Scenario.explore(scenario, { seeds: 10 }), (report) => {
        explored += report.explored?.runs ?? 0
        distinct += report.explored?.distinct ?? 0
        assert.deepStrictEqual(report.failures, [], report.explored?.found?.replay)
      }),
    { ...runs(200), timeout: 120_000 }
  )

  it("see other interleavings", () => {
    assert.isAtLeast(explored, 2000)
    assert.isAbove(distinct, explored / 2)
  })

  it.effect.prop(
    "give the same report each time, and are files",
    { scenario: Scenario.arbitrary() },
    ({ scenario }) =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* Scenario.decode(JSON.parse(JSON.stringify(scenario))), scenario)
        const run = Effect.map(Scenario.run(scenario), (report) => JSON.stringify(report))
        assert.strictEqual(yield* run, yield* run)
      }),
    runs(40)
  )

  it("refuse limits that cannot be", () => {
    assert.throws(() => Scenario.arbitrary({ maxCalls: 0 }), /maxCalls.*whole number from 1/)
    assert.throws(() => Scenario.arbitrary({ maxTurns: 1.5 }), /maxTurns.*whole number from 1/)
  })
})
