import { assert, describe, it } from "@effect/vitest"
import { Scenario } from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { describeShared } from "../utils/requires.ts"

const namesIn = (folder: string) =>
  fs.readdirSync(folder).filter((name) => name.endsWith(".json") && !name.endsWith(".schema.json")).sort()

const reportOf = (folder: string, name: string) =>
  Scenario.runText(name, fs.readFileSync(path.join(folder, name), "utf8"))

describeShared("shared scenario files", (shared) => {
  const folder = path.join(shared, "scenarios")
  const names = namesIn(folder)

  it("there are files to run", () => assert.isAbove(names.length, 0))

  for (const name of names) {
    it.effect(name, () =>
      Effect.map(reportOf(folder, name), (report) => {
        assert.deepStrictEqual(report.failures, [])
        assert.isTrue(report.pass)
        assert.strictEqual(report.file, name)
      }))
  }
})

const own = path.join(import.meta.dirname, "../fixtures/scenarios")

describe("own scenario files", () => {
  it.effect.each([
    "met",
    "budgets",
    "held",
    "odd-names",
    "handed-over",
    "killed-while-booking",
    "killed-together",
    "refused-until-later",
    "lists-that-go-wrong",
    "lists-of-two-processes",
    "lists-at-their-edges",
    "a-planners-turn",
    "results-of-later-calls"
  ])(
    "%s is met",
    (name) => Effect.map(reportOf(own, `${name}.json`), (report) => assert.deepStrictEqual(report.failures, []))
  )

  it.effect("an expectation that is not met is reported", () =>
    Effect.map(reportOf(own, "unmet.json"), (report) => {
      assert.isFalse(report.pass)
      assert.deepStrictEqual(report.failures, [
        'outcomes: turn 0, call 0 ("a"): expected result {"celsius":22}, got {"celsius":21}',
        "executions: look: expected 2, got 1",
        "elapsedMs: expected at most 10, got 20"
      ])
    }))

  it.effect("unknown fields are refused at every depth, with their paths", () =>
    Effect.map(
      reportOf(own, "unknown-field.json"),
      (report) =>
        assert.deepStrictEqual({ ...report, failures: [...report.failures].sort() }, {
          file: "unknown-field.json",
          pass: false,
          failures: [
            "expect.outcomes[0][0].state: no such field",
            "polcy: no such field",
            "tools.look.behaviour[0].after: no such field",
            "tools.look.latency: no such field",
            "turns[0].calls[0].args: no such field"
          ]
        })
    ))

  it.effect("a held call that was decided goes on, and nothing else is run again", () =>
    Effect.map(reportOf(own, "held-and-decided.json"), (report) => {
      assert.deepStrictEqual(report.failures, [])
      assert.deepStrictEqual(report.executions, { pay: 1, look: 1 })
      assert.deepStrictEqual(report.effects, { pay: 1 })
    }))

  it.effect("a turn that nothing ends is reported, and not waited for", () =>
    Effect.map(reportOf(own, "never-answered.json"), (report) => {
      assert.deepStrictEqual(report.failures, [
        "R1: turn-0: expected an answer, and at 0 ms nothing is left that could go on"
      ])
      assert.deepStrictEqual(report.outcomes, [null, null])
    }))

  it.effect("the same file gives the same bytes", () =>
    Effect.gen(function*() {
      for (const name of namesIn(own)) {
        const first = JSON.stringify(yield* reportOf(own, name))
        assert.strictEqual(JSON.stringify(yield* reportOf(own, name)), first)
      }
    }))

  it.effect("the report of a run has the members of the format", () =>
    Effect.map(reportOf(own, "met.json"), (report) => {
      assert.deepStrictEqual(Object.keys(report), [
        "file",
        "pass",
        "failures",
        "outcomes",
        "spans",
        "executions",
        "effects",
        "peak",
        "requests",
        "elapsedMs",
        "runningAfter",
        "permitsOut"
      ])
      assert.deepStrictEqual(report.outcomes?.[0]?.[0], {
        id: "a",
        status: "ok",
        started: true,
        effect: "none",
        retryable: false,
        result: { celsius: 21 }
      })
      assert.deepStrictEqual(report.spans?.[0], {
        turn: 0,
        index: 0,
        id: "a",
        tool: "look",
        attempt: 1,
        startMs: 0,
        endMs: 20
      })
      assert.deepStrictEqual(report.permitsOut, { weather: 0 })
      assert.deepStrictEqual(report.effects, { book: 2 })
    }))
})

describe("files that are no scenarios", () => {
  const failures = (input: unknown, fileName = "x.json") =>
    Effect.map(Scenario.runText(fileName, typeof input === "string" ? input : JSON.stringify(input)), (report) => {
      assert.deepStrictEqual(Object.keys(report), ["file", "pass", "failures"])
      return report.failures
    })
  const base = {
    name: "x",
    why: "because",
    tools: { look: {} },
    turns: [{ calls: [{ id: "a", name: "look", arguments: {} }] }],
    expect: {}
  }
  const cases: ReadonlyArray<readonly [string, unknown, string]> = [
    ["text that is no JSON", "{", "the file: expected JSON, and it is not: "],
    ["a list", [], "the file: expected object, got a list of 0"],
    ["another name than the file's", { ...base, name: "y" }, 'name: expected the file\'s base name "x", got "y"'],
    ["a missing field", { ...base, why: undefined }, "why: this field is required, and it is missing"],
    ["no tools", { ...base, tools: {} }, "tools: expected at least one tool, got none"],
    [
      "a limit of 0",
      { ...base, tools: { look: { timeoutMs: 0 } } },
      "tools.look.timeoutMs: expected a value between 1 and 2147483647, got 0"
    ],
    [
      "a limit over 2^31-1",
      { ...base, policy: { deadlineMs: 3e9 } },
      "policy.deadlineMs: expected a value between 1 and 2147483647, got 3000000000"
    ],
    [
      "a behaviour of no known type",
      { ...base, tools: { look: { behaviour: { type: "nope" } } } },
      'tools.look.behaviour: expected one of the types "ok", "fail", '
    ],
    [
      "a throw of nothing",
      { ...base, tools: { look: { behaviour: { type: "throw" } } } },
      "tools.look.behaviour.thrown: this field is required"
    ],
    [
      "a batch into nothing",
      { ...base, tools: { look: { batch: { into: "looks" } } } },
      'tools.look.batch.into: expected the name of a tool, got "looks"'
    ],
    [
      "a batch into a tool that takes no list",
      { ...base, tools: { "the look": { batch: { into: "looks" } }, looks: {} } },
      'tools["the look"].batch.into: expected a tool whose behaviour is items, got "looks"'
    ],
    [
      "a write that is merged",
      { ...base, tools: { look: { batch: { into: "looks" } }, looks: { behaviour: { type: "items" } } } },
      'tools.look.access: expected "read", for its calls are merged, got "write"'
    ],
    [
      "lists that are of two sizes",
      {
        ...base,
        tools: {
          look: { batch: { into: "looks", maxSize: 3 } },
          see: { batch: { into: "looks" } },
          looks: { behaviour: { type: "items" } }
        }
      },
      'tools.see.batch.maxSize: expected that of "look", which is merged into the same, 3, got none'
    ],
    [
      "a behaviour of a tool that is merged",
      {
        ...base,
        tools: {
          look: { batch: { into: "looks" }, behaviour: { type: "ok", latencyMs: 5 } },
          looks: { behaviour: { type: "items" } }
        }
      },
      'tools.look.behaviour: a tool whose calls are merged does nothing itself: expected {"type": "ok"} or none'
    ],
    [
      "a first turn that is resumed",
      { ...base, turns: [{ resume: true }] },
      "turns[0].resume: the first turn continues nothing"
    ],
    ["a turn without calls", { ...base, turns: [{}] }, "turns[0].calls: this field is required, and it is missing"],
    [
      "a resumed turn with other ids",
      { ...base, turns: [...base.turns, { resume: true, calls: [] }] },
      'turns[1].calls: a resumed turn has the same ids in the same order, expected ["a"], got []'
    ],
    [
      "outcomes for other turns",
      { ...base, expect: { outcomes: [] } },
      "expect.outcomes: expected one entry for each of 1 turns, got 0"
    ],
    [
      "outcomes for other calls",
      { ...base, expect: { outcomes: [[]] } },
      "expect.outcomes[0]: expected one entry for each of 1 calls, got 0"
    ],
    [
      "no outcomes without a crash",
      { ...base, expect: { outcomes: [null] } },
      "expect.outcomes[0]: null is for a turn that a crash cut off"
    ],
    [
      "a code of another status",
      { ...base, expect: { outcomes: [[{ status: "deferred", code: "failed" }]] } },
      'expect.outcomes[0][0].code: expected one of placeholder, waits_for_approval, dependency_failed with status "deferred", got "failed"'
    ],
    ["empty bounds", { ...base, expect: { elapsedMs: {} } }, "expect.elapsedMs: expected min, max or both, got neither"]
  ]
  it.effect.each(cases)("%s", ([_, input, expected]) =>
    Effect.map(failures(input), (found) => {
      assert.isTrue(found.some((failure) => failure.startsWith(expected)), found.join("\n"))
    }))

  it.effect("decode fails with all problems at once", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(Scenario.decode({ ...base, why: "", turns: "none" }))
      assert.strictEqual(error._tag, "InvalidScenario")
      assert.strictEqual(error.problems.length, 2)
      assert.include(error.message, 'turns: expected array, got "none"')
    }))

  it.effect("a file may stand in a folder", () =>
    Effect.map(Scenario.runText("a/b/x.json", JSON.stringify(base)), (report) => {
      assert.strictEqual(report.file, "x.json")
      assert.isTrue(report.pass, report.failures.join("\n"))
    }))
})
