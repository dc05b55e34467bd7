import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { TurnReport } from "effect-turn"
import { displayWidth } from "effect/cli/CliOutput"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { run } from "./program.ts"

const fixtures = path.join(import.meta.dirname, "../fixtures/cli")
const message = path.join(fixtures, "message.json")
const tools = path.join(fixtures, "tools.ts")

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

let files = 0
const written = (text: string) => {
  const file = path.join(scratch, `${++files}.jsonl`)
  fs.writeFileSync(file, text)
  return file
}

const of = (position: number, at: number, tool = "book") => ({ turn: "t", at, position, id: `c${position}`, tool })
const waited = { keys: 0, permit: 0, rate: 0, approval: 0 }
const events = [
  { _tag: "TurnStarted", turn: "t", at: 0, calls: 2 },
  { ...of(0, 0), _tag: "CallStarted", attempt: 1, waited },
  { ...of(1, 0), _tag: "CallQueued", for: "keys" },
  { ...of(0, 30), _tag: "CallEnded", outcome: { status: "ok" } },
  { ...of(1, 30), _tag: "CallStarted", attempt: 1, waited: { ...waited, keys: 30 } },
  { ...of(1, 50), _tag: "CallEnded", outcome: { status: "error", code: "defect" } },
  { _tag: "TurnEnded", turn: "t", at: 50, unsettled: 0 }
]
const lines = events.map((event) => JSON.stringify(event)).join("\n")

const decode = Schema.decodeUnknownSync(Schema.fromJsonString(TurnReport.Report))

describe("report", () => {
  it.live("prints where the time of recorded turns went, from a file or standard input", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["report", written(lines)])
      assert.deepStrictEqual([code, err], [0, ""])
      for (
        const words of [
          "2 calls in 50 ms: 1 ok, 1 error",
          "* #1 book",
          "error (defect)",
          "waits of all calls: keys 30 ms",
          "  20 ms  #1 book ran, after keys of #0 (inferred)"
        ]
      ) assert.include(out, words)
      assert.strictEqual((yield* run(["report", "-"], { stdin: lines })).out, out)
      const none = yield* run(["report", "-"], { terminal: true })
      assert.strictEqual(none.code, 2)
      assert.include(none.err, "neither: standard input is a terminal")
    }))

  it.live("prints one object with --json, and it is as its schema says", () =>
    Effect.gen(function*() {
      const { code, out } = yield* run(["report", written(`${lines}\n{"_tag":"CallEn`), "--json"])
      assert.strictEqual(code, 0)
      const report = decode(out)
      assert.deepStrictEqual(report.turns.map(({ elapsed, turn }) => [turn, elapsed]), [["t", 50]])
      assert.deepStrictEqual(report.notes, ["line 8, the last one, is cut: read up to there"])
    }))

  it.live("fits the terminal, and nothing in an event steers it", () =>
    Effect.gen(function*() {
      const hostile = lines.replaceAll('"book"', JSON.stringify("\u001b[31m\u202eb".repeat(20)))
      for (const columns of [40, 60, 120]) {
        const { out } = yield* run(["report", written(hostile)], { stdout: { columns, rows: 30 } })
        assert.isAtMost(Math.max(...out.split("\n").map(displayWidth)), columns)
        assert.notMatch(out, /[\u0000-\u0009\u000b-\u001f\u202e]/)
      }
    }))

  it.live("writes a page beside it, and never over a file without --force", () =>
    Effect.gen(function*() {
      const page = path.join(scratch, "page.html")
      const first = yield* run(["report", written(lines), "--html", page])
      assert.strictEqual(first.code, 0)
      assert.include(first.err, `page written: ${page}`)
      assert.include(fs.readFileSync(page, "utf8"), "#1 book")
      const again = yield* run(["report", written(lines), "--html", page])
      assert.deepStrictEqual([again.code, again.out], [2, ""])
      assert.include(again.err, "a file that is there already")
      assert.strictEqual((yield* run(["report", written(lines), "--html", page, "--force", "--json"])).code, 0)
      const nowhere = yield* run(["report", written(lines), "--html", path.join(scratch, "no", "page.html")])
      assert.strictEqual(nowhere.code, 2)
      assert.include(nowhere.err, "no such folder")
      assert.include((yield* run(["report", written(lines), "--force"])).err, "--force without --html")
    }))

  it.live("says what it cannot read, and where", () =>
    Effect.gen(function*() {
      const broken = written(`${lines.replace('"position":1', '"position":"x"')}`)
      const { code, err, out } = yield* run(["report", broken])
      assert.deepStrictEqual([code, out], [2, ""])
      assert.deepStrictEqual(err.split("\n").slice(0, 3), [
        `effect-turn: cannot read ${broken} as events of turns, at line 3, /position`,
        "  expected  a whole number from 0",
        '  got       "x"'
      ])
      assert.include((yield* run(["report", "/nowhere.jsonl"])).err, "no such file")
      assert.include((yield* run(["report"])).err, "effect-turn report needs EVENTS")
      assert.include((yield* run(["report", "--help"])).out, "EVENTS")
    }))
})

describe("run --report", () => {
  it.live("writes the turn's report in the form that the name says", () =>
    Effect.gen(function*() {
      for (
        const [name, words] of [
          ["turn.html", "<!doctype html>"],
          ["turn.json", '"version": 1'],
          ["turn.txt", "critical path"],
          ["turn.md", "```text\nturn "]
        ] as const
      ) {
        const file = path.join(scratch, name)
        const { code, err } = yield* run(["run", message, "--tools", tools, "--report", file])
        assert.include([0, 1], code)
        assert.include(err, `report written: ${file}`)
        assert.include(fs.readFileSync(file, "utf8"), words)
      }
      const [turn] = decode(fs.readFileSync(path.join(scratch, "turn.json"), "utf8")).turns
      assert.isTrue(turn!.complete)
      // The plan of the turn is there, so nobody has to guess who waited for whom.
      assert.isDefined(turn!.bounds?.order)
    }))

  it.live("refuses before the turn runs what could not be written after it", () =>
    Effect.gen(function*() {
      const taken = written("here")
      for (
        const [args, words] of [
          [["--report", path.join(scratch, "turn.pdf")], "a name that ends in .html"],
          [["--report", path.join(scratch, "no", "turn.html")], "no such folder"],
          [["--report", `${taken.replace(/jsonl$/, "txt")}`], "a file that is there already"],
          [["--force"], "--force without --scenario"]
        ] as const
      ) {
        fs.writeFileSync(taken.replace(/jsonl$/, "txt"), "here")
        const { code, err, out } = yield* run(["run", message, "--tools", tools, ...args])
        assert.deepStrictEqual([code, out], [2, ""])
        assert.include(err, words)
        assert.notInclude(err, "start")
      }
      const forced = yield* run([
        "run",
        message,
        "--tools",
        tools,
        "--report",
        taken.replace(/jsonl$/, "txt"),
        "--force"
      ])
      assert.include(forced.err, "report written")
      assert.notStrictEqual(fs.readFileSync(taken.replace(/jsonl$/, "txt"), "utf8"), "here")
    }))
})
