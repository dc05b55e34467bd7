import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { run } from "./program.ts"

const fixture = (name: string) => path.join(import.meta.dirname, "../fixtures/cli", name)
const tools = fixture("tools.ts")
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

const codes = ({ out }: { readonly out: string }) => JSON.parse(out).outcomes.map((outcome: any) => outcome.code)

describe("--policy", () => {
  it.live("takes JSON, or a file with JSON, and goes before the module's policy; flags go before both", () =>
    Effect.gen(function*() {
      const stdin = '[{"name": "wait"}]'
      const file = path.join(scratch, "policy.json")
      fs.writeFileSync(file, '{"deadline": 40, "grace": {"reads": "1s"}}')
      for (const policy of ['{"deadline": "40ms"}', file]) {
        const result = yield* run(["run", "--tools", tools, "--json", "--policy", policy], { stdin })
        assert.deepStrictEqual(codes(result), ["by_deadline"])
      }
      const before = yield* run(
        [
          "run",
          "--tools",
          fixture("policy.ts"),
          "--json",
          "--policy",
          '{"deadline": "infinite"}',
          "--deadline",
          "30ms"
        ],
        { stdin }
      )
      assert.deepStrictEqual(codes(before), ["by_deadline"])
    }))

  it.live("changes a plan", () =>
    Effect.gen(function*() {
      const stdin = '[{"name": "whose"}, {"name": "whose"}, {"name": "wait"}]'
      const plan = (...flags: ReadonlyArray<string>) =>
        Effect.map(
          run(["plan", "--tools", tools, "--json", ...flags], { stdin }),
          ({ out }) => JSON.parse(out).calls.map((call: any) => call.verdict)
        )
      assert.deepStrictEqual(yield* plan(), ["run", "duplicate", "run"])
      assert.deepStrictEqual(yield* plan("--policy", '{"dedupe": "off"}'), ["run", "run", "run"])
      assert.deepStrictEqual(yield* plan("--policy", '{"amounts": {"calls": 1}}'), ["run", "duplicate", "refused"])
    }))

  it.live("takes every field that it lists", () =>
    Effect.gen(function*() {
      const policy = {
        siblings: "all-or-nothing",
        execution: 2,
        dedupe: "reads",
        deadline: "2m",
        grace: { reads: "1s", writes: "infinite" },
        amounts: { calls: 9, perTool: { whose: 3 } },
        resultBudget: { maxChars: 1000 },
        nameRepair: true,
        references: true,
        limits: { maxBytes: 1000, maxDepth: 4, maxKeys: 10 }
      }
      const help = (yield* run(["run", "--help"])).out.split("\nPOLICY\n")[1]!.split("\n\n")[0]!
      for (const name of Object.keys(policy)) assert.match(help, new RegExp(`^ +${name} `, "m"))
      assert.strictEqual(
        [...help.matchAll(/^ {6}[a-z]/gm)].length,
        Object.keys(policy).length,
        "no field is left out here"
      )
      const { code, out } = yield* run(["run", "--tools", tools, "--json", "--policy", JSON.stringify(policy)], {
        stdin: '[{"name": "WHOSE"}]'
      })
      assert.strictEqual(code, 0, out)
    }))

  const refused: ReadonlyArray<readonly [string, string, ReadonlyArray<string>]> = [
    ["an unknown field", '{"deadlin": 1}', ['has the unknown field "deadlin"', 'did you mean "deadline"?']],
    ["a bad word", '{"siblings": "none"}', ['cannot have this "siblings"', '"all-or-nothing"', 'got       "none"']],
    ["a time of nothing", '{"deadline": 0}', ['cannot have this "deadline"', "a time over 0", "got       0"]],
    ["a field too much inside", '{"amounts": {"call": 1}}', ['cannot have this "amounts"', '"perTool": N']],
    ["no object", "[]", ["no JSON", "no such file"]],
    ["broken JSON", '{"deadline": }', ["is not JSON, at line 1, column 14", "got       }"]],
    ["no such file", "nowhere.json", ["cannot read nowhere.json", '--policy \'{"deadline": "30s"}\'']]
  ]
  for (const [name, policy, expected] of refused) {
    it.live(`refuses ${name}`, () =>
      Effect.gen(function*() {
        const { code, err, out } = yield* run(["plan", "--tools", tools, "--policy", policy], { stdin: "[]" })
        assert.deepStrictEqual([code, out], [2, ""])
        for (const text of expected.filter((text) => text !== "no JSON")) assert.include(err, text)
        for (const row of ["expected", "got", "do"]) assert.match(err, new RegExp(`^ {2}${row} +\\S`, "m"))
      }))
  }

  it.live("refuses a file that holds no object", () =>
    Effect.gen(function*() {
      const file = path.join(scratch, "list.json")
      fs.writeFileSync(file, "[1]")
      const { code, err } = yield* run(["plan", "--tools", tools, "--policy", file], { stdin: "[]" })
      assert.strictEqual(code, 2)
      assert.include(err, "is no object")
    }))
})

describe("flags of a turn", () => {
  it.live("--siblings all-or-nothing stops the others at a failure", () =>
    Effect.gen(function*() {
      const stdin = '[{"name": "break"}, {"name": "wait"}]'
      const result = yield* run(["run", "--tools", tools, "--json", "--siblings", "all-or-nothing"], { stdin })
      assert.deepStrictEqual(codes(result), ["failed", "by_sibling"])
    }))

  it.live("--references lets an argument be the result of another call", () =>
    Effect.gen(function*() {
      const stdin = JSON.stringify([
        { id: "a", name: "whose" },
        { id: "b", name: "put", arguments: { at: { $ref: "a" } } }
      ])
      const on = yield* run(["run", "--tools", tools, "--json", "--references", "--tenant", "north"], { stdin })
      assert.deepStrictEqual(JSON.parse(on.out).outcomes.map((outcome: any) => outcome.result), ["north", "put north"])
      const off = yield* run(["run", "--tools", tools, "--json"], { stdin })
      assert.strictEqual(off.code, 1)
    }))

  it.live("--format draws a plan as text, as a flowchart, or as JSON", () =>
    Effect.gen(function*() {
      const plan = (...flags: ReadonlyArray<string>) =>
        run(["plan", fixture("message.json"), "--tools", tools, ...flags])
      assert.match((yield* plan("--format", "text")).out, /^#0 look/)
      const chart = (yield* plan("--format", "mermaid")).out.split("\n")
      assert.strictEqual(chart[0], "flowchart LR")
      assert.include(chart, '  c0 -->|"place/door"| c1')
      assert.strictEqual((yield* plan("--format", "json")).out, (yield* plan("--json")).out)
      const both = yield* plan("--json", "--format", "mermaid")
      assert.strictEqual(both.code, 2)
      assert.include(both.err, "--json with another --format")
    }))
})
