import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { TurnInsights } from "effect-turn"
import { displayWidth } from "effect/cli/CliOutput"
import * as Effect from "effect/Effect"
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll } from "vitest"
import { run } from "./program.ts"

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

let files = 0
const written = (value: unknown, name = `${++files}.json`) => {
  const file = path.join(scratch, name)
  fs.writeFileSync(file, typeof value === "string" ? value : JSON.stringify(value))
  return file
}

/** A history in which a tool is called once a step, with other arguments each time. */
const history = (tool: string, calls: number, wish = "please") => [
  { role: "user", content: wish },
  ...Array.from({ length: calls }, (_, i) => [
    {
      role: "assistant",
      tool_calls: [{ id: `c${i}`, function: { name: tool, arguments: JSON.stringify({ order: i }) } }]
    },
    { role: "tool", tool_call_id: `c${i}`, content: "on its way" }
  ]).flat()
]

const hostile = "\u001b[31m<img src=x onerror=\"document.title='pwned'\"></script>\n\u202e"

describe("insights", () => {
  it.live("tells which tools were called often, and what lists would have saved", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["insights", written(history("get_order", 6), "orders.json")])
      assert.deepStrictEqual([code, err], [0, ""])
      const { candidates: [candidate] } = JSON.parse(
        (yield* run(["insights", path.join(scratch, "orders.json"), "--json"])).out
      )
      const tokens = candidate.saved.envelopeTokens + candidate.saved.historyTokens
      assert.deepStrictEqual(out.split("\n"), [
        "6 calls of 1 tool in 6 steps of 1 user turn; 1 recording (chat)",
        "",
        "                      mean  median  9 of 10  most",
        "calls in a user turn     6       6        6     6",
        "calls in a step          1       1        1     1",
        "steps in a user turn     6       6        6     6",
        "",
        "called more than 3 times in one user turn; what lists would have saved",
        "tool       user turns  most  round trips  requests  tokens",
        `get_order           1     6            5         5     ${tokens}`,
        `in all 5 round trips, 5 requests to backends, about ${tokens} tokens`,
        "",
        "the user turns that would have saved most (#: conversation and turn)",
        "where          #  tool       calls  steps  distinct  trips  requests  tokens",
        `orders.json  1.1  get_order      6      6         6      5         5     ${tokens}`
      ])
    }))

  it.live("prints one object with --json, and it is as its schema says", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["insights", written(history("a", 4)), written(history("b", 5)), "--json"])
      assert.deepStrictEqual([code, err, out.split("\n").length], [0, "", 1])
      const report = Schema.decodeUnknownSync(TurnInsights.Report)(JSON.parse(out))
      assert.deepStrictEqual(report.candidates.map(({ calls, tool }) => [tool, calls]), [["b", 5], ["a", 4]])
    }))

  it.live("reads standard input, and each file once", () =>
    Effect.gen(function*() {
      const stdin = JSON.stringify(history("a", 4))
      const file = written(history("a", 4))
      const { code, out } = yield* run(["insights", file, "-", file, "--json"], { stdin })
      const report = JSON.parse(out)
      assert.deepStrictEqual([code, report.totals.calls], [0, 8])
      assert.deepStrictEqual(report.sources.map(({ notes, source }: any) => [source, ...notes]), [
        [file, "given 2 times, read once"],
        ["standard input"]
      ])
      const twice = yield* run(["insights", file, `${path.dirname(file)}/./${path.basename(file)}`])
      assert.deepStrictEqual([twice.code, twice.err], [0, `${file}: given 2 times, read once`])
      const none = yield* run(["insights", "-"], { terminal: true })
      assert.strictEqual(none.code, 2)
      assert.include(none.err, "neither: standard input is a terminal")
    }))

  it.live("what the flags say counts", () =>
    Effect.gen(function*() {
      const many = [history("a", 4)[0], {
        role: "assistant",
        tool_calls: Array.from(
          { length: 12 },
          (_, i) => ({ id: `${i}`, function: { name: "a", arguments: `{"i":${i}}` } })
        )
      }]
      const file = written(many)
      const saved = (...flags: ReadonlyArray<string>) =>
        Effect.map(run(["insights", file, "--json", ...flags]), ({ out }) => JSON.parse(out).candidates[0]?.saved)
      assert.deepInclude(yield* saved(), { requests: 10 })
      assert.deepInclude(yield* saved("--size", "4"), { requests: 9 })
      assert.isUndefined(yield* saved("--threshold", "12"))
      const [four, two] = [yield* saved(), yield* saved("--chars-per-token", "2")]
      assert.approximately(two.envelopeTokens, four.envelopeTokens * 2, 1)
      const event = (turn: string, at: number) => ({ _tag: "CallHeld", turn, at, position: 0, id: "", tool: "a" })
      const events = written([event("1", 0), event("2", 5000)])
      const turns = (...flags: ReadonlyArray<string>) =>
        Effect.map(run(["insights", events, "--json", ...flags]), ({ out }) => JSON.parse(out).totals.userTurns)
      assert.deepStrictEqual([yield* turns(), yield* turns("--gap", "1s"), yield* turns("--gap", "0")], [1, 2, 2])
      const limited = yield* run(["insights", written([history("a", 4), history("b", 4)]), "--limit", "1"])
      assert.include(limited.out, "1 of 2: --limit N shows more, --json all")
      assert.include((yield* run(["insights", events])).err, "2 turns without a TurnStarted")
    }))

  it.live("refuses what cannot be, in words", () =>
    Effect.gen(function*() {
      const file = written(history("a", 4))
      for (
        const [args, words] of [
          [[], "effect-turn insights needs FILE"],
          [[file, "--threshold", "0"], "how many calls"],
          [[file, "--size", "x"], "how many items"],
          [[file, "--chars-per-token", "0"], "a number from 0.1 to 100"],
          [[file, "--gap", "soon"], "such as"],
          [[file, "--limit", "-1"], "how many rows"],
          [[file, "--format", "gemini"], "events"],
          [[file, "--force"], "--force without --html"]
        ] as const
      ) {
        const { code, err, out } = yield* run(["insights", ...args])
        assert.deepStrictEqual([code, out], [2, ""], words)
        assert.include(err, words)
      }
    }))

  it.live("a file that cannot be read or understood is told with its place, and the others are counted", () =>
    Effect.gen(function*() {
      const good = written(history("a", 4))
      const broken = written(`${JSON.stringify(history("a", 1)[0])}\n{"role":"assistant","tool_calls":[{"id":7}]}\n`)
      const unknown = written({ hello: 1 })
      const { code, err, out } = yield* run(["insights", "/nowhere.json", good, broken, unknown, "--json"])
      assert.strictEqual(code, 2)
      assert.strictEqual(JSON.parse(out).totals.calls, 4)
      for (
        const words of [
          "cannot read /nowhere.json",
          "no such file",
          `cannot read ${broken} as a history of Chat Completions, at line 2, /tool_calls/0/function`,
          "a call with a `function`",
          `cannot read ${unknown}`,
          "an object with hello",
          "3 of 4 files could not be used; the numbers are of the others"
        ]
      ) assert.include(err, words)
      assert.strictEqual(err.match(/^effect-turn: /gm)!.length, 3)
      const { unread } = JSON.parse(out)
      assert.deepStrictEqual(unread.map(({ source }: any) => source).sort(), ["/nowhere.json", broken, unknown].sort())
      assert.include(unread.find(({ source }: any) => source === broken).problem, "a call with a `function`")
      const page = path.join(scratch, "left out.html")
      yield* run(["insights", good, "/nowhere.json", "--html", page])
      assert.include(fs.readFileSync(page, "utf8"), "1 recording could not be read")
      assert.include(fs.readFileSync(page, "utf8"), "no such file")
      const nothing = yield* run(["insights", unknown])
      assert.deepStrictEqual([nothing.code, nothing.out], [2, ""])
      const forced = yield* run(["insights", good, "--format", "events"])
      assert.include(forced.err, "(taken as events)")
    }))

  it.live("a form that is not there is said, and so is JSON that is none, with what was expected and what came", () =>
    Effect.gen(function*() {
      const other = written(history("a", 4))
      const asked = yield* run(["insights", other, "--format", "anthropic"])
      assert.deepStrictEqual([asked.code, asked.out], [2, ""])
      assert.deepStrictEqual(asked.err.split("\n"), [
        `effect-turn: cannot read ${other} as a history of Anthropic's Messages`,
        "  expected  calls in that form",
        "  got       none: it looks like chat",
        "  do        correct it there, or say with --format what the file is (taken as anthropic)"
      ])
      const none = written('{\n  "a" 1\n}')
      assert.deepStrictEqual((yield* run(["insights", none])).err.split("\n"), [
        `effect-turn: cannot read ${none}, at line 2, column 7`,
        "  expected  JSON, or JSON lines: ':' after property name",
        '  got       "1\\n}"',
        "  do        correct it there"
      ])
    }))

  it.live("a log that is being written is read up to its last whole line, with a note", () =>
    Effect.gen(function*() {
      const live = written(`${history("a", 4).map((one) => JSON.stringify(one)).join("\n")}\n{"role":"assi`)
      const { code, err, out } = yield* run(["insights", live])
      assert.deepStrictEqual([code, err], [0, `${live}: line 10, the last one, is cut: read up to there`])
      assert.include(out, "4 calls of 1 tool")
    }))

  it.live("one long name widens no row beyond its border", () =>
    Effect.gen(function*() {
      const { out } = yield* run(["insights", written([...history("x".repeat(300), 5), ...history("get_order", 5)])])
      assert.isAtMost(Math.max(...out.split("\n").map(displayWidth)), 120)
      assert.include(out, `${"x".repeat(39)}…  `)
      assert.include(out, "get_order  ")
    }))

  it.live("says when there is nothing to list", () =>
    Effect.gen(function*() {
      const { code, out } = yield* run(["insights", written(history("a", 2))])
      assert.strictEqual(code, 0)
      assert.include(out, "no tool was called more than 3 times in one user turn")
      const empty = yield* run(["insights", written([{ role: "user", content: "hi" }])])
      assert.include(empty.out, "0 calls of 0 tools in 0 steps of 0 user turns")
    }))

  it.live("fits the terminal, and no name of a file steers it", () =>
    Effect.gen(function*() {
      const long = written(
        history("lookup_a_customer_by_a_name_that_is_long_indeed", 5),
        `${"recordings-".repeat(8)}.json`
      )
      const bad = written(history(hostile, 5))
      for (const columns of [60, 80, 120]) {
        const { out } = yield* run(["insights", long, bad], { stdout: { columns, rows: 30 } })
        const table = out.split("\n").filter((line) => /\d/.test(line) && !/^\d|^in all|called|would/.test(line))
        // Numbers are never cut; below 80 columns they may not fit.
        if (columns >= 80) assert.deepStrictEqual(table.filter((line) => displayWidth(line) > columns), [])
        assert.notMatch(out.replace(/\u001b\[\d+m/g, ""), /[\u0000-\u0009\u000b-\u001f\u202e]/)
        assert.include(out, "…")
      }
    }))
})

describe("the page", () => {
  it.live("is written beside the table, and never over a file without --force", () =>
    Effect.gen(function*() {
      const file = written(history("get_order", 6))
      const page = path.join(scratch, "page.html")
      const first = yield* run(["insights", file, "--html", page])
      assert.strictEqual(first.code, 0)
      assert.include(first.err, `page written: ${page}`)
      assert.include(first.out, "get_order")
      assert.include(fs.readFileSync(page, "utf8"), "get_order")
      const again = yield* run(["insights", file, "--html", page])
      assert.deepStrictEqual([again.code, again.out], [2, ""])
      assert.include(again.err, "a file that is there already")
      assert.strictEqual((yield* run(["insights", file, "--html", page, "--force", "--json"])).code, 0)
      const nowhere = yield* run(["insights", file, "--html", path.join(scratch, "no", "page.html")])
      assert.strictEqual(nowhere.code, 2)
      assert.include(nowhere.err, "no such folder")
    }))

  const browser = ["chromium", "chromium-browser", "google-chrome"].find((name) =>
    spawnSync(name, ["--version"], { timeout: 20_000 }).status === 0
  )

  it.live("works in a browser: its script runs, and nothing of a recording does", (context) =>
    Effect.gen(function*() {
      if (browser === undefined) return context.skip("there is no Chromium on this machine")
      const conversations = Array.from({ length: 120 }, (_, i) =>
        history(i % 2 === 0 ? hostile : "get_order", 4 + (i % 5), `${i}`))
      const page = path.join(scratch, "browser.html")
      assert.strictEqual((yield* run(["insights", written(conversations), "--html", page])).code, 0)
      const { stdout } = spawnSync(browser, [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        `--user-data-dir=${fs.mkdtempSync(path.join(scratch, "profile-"))}`,
        "--dump-dom",
        pathToFileURL(page).href
      ], { encoding: "utf8", timeout: 60_000 })
      assert.include(stdout, "<title>Tool calls and lists</title>")
      assert.include(stdout, "1–50 of 120")
      assert.strictEqual(stdout.match(/<th scope="col"[^>]*><button type="button">/g)!.length, 10)
      assert.notInclude(stdout, "<img")
    }), 90_000)
})
