import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { displayWidth } from "effect/cli/CliOutput"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll, vi } from "vitest"
import { refusal } from "../wire/provider.ts"
import { run } from "./program.ts"

const fixtures = path.join(import.meta.dirname, "../fixtures/cli")
const fixture = (name: string) => path.join(fixtures, name)
const tools = fixture("tools.ts")

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))
const written = (name: string, text: string) => {
  const file = path.join(scratch, name)
  fs.writeFileSync(file, text)
  return file
}

describe("help", () => {
  it.live("teaches what the program is for, its commands and exit codes", () =>
    Effect.gen(function*() {
      for (const args of [["--help"], []]) {
        const { code, out } = yield* run(args)
        assert.strictEqual(code, 0)
        for (
          const text of [
            "run ",
            "plan ",
            "scenario ",
            "insights ",
            "report ",
            "demo ",
            "keys ",
            "EXIT STATUS",
            "130  stopped by Ctrl-C",
            "effect-turn - run the tool calls of one model turn",
            "effect-turn --completions fish >"
          ]
        ) {
          assert.include(out, text)
        }
      }
    }))

  it.live("teaches what a command takes, with examples", () =>
    Effect.gen(function*() {
      const texts = {
        run: [
          "toolkit   an effect/ai Toolkit",
          "layer     a Layer",
          "policy    optional",
          '{"calls": [',
          "EXAMPLES",
          "--siblings",
          "--deadline"
        ],
        plan: ["runs nothing", "toolkit   an effect/ai Toolkit", "EXAMPLES"],
        scenario: ["virtual time", "FILE...", "EXAMPLES", "--explore N", "--replay TEXT"],
        insights: ["FILE...", "--threshold N", "--html FILE", "anthropic  a history", "EXAMPLES"],
        report: ["EVENTS", "--html FILE", "critical path", "EXAMPLES"],
        demo: ["travel agent"],
        keys: ["in doubt", "sqlite:FILE", "list ", "show ", "resolve ", "expire "],
        "keys list": ["--state STATE", "--limit N", "EXAMPLES"],
        "keys show": ["--conversation NAME", "EXAMPLES"],
        "keys resolve": ["--applied", "--not-applied", "--result JSON", "--tools MODULE", "EXAMPLES"],
        "keys expire": ["--store STORE [options]", "kept no longer", "EXAMPLES"]
      }
      for (const [command, expected] of Object.entries(texts)) {
        const { code, out } = yield* run([...command.split(" "), "--help"])
        assert.strictEqual(code, 0)
        for (const text of expected) assert.include(out, text)
        const titles = out.split("\n").filter((line) => /^\S/.test(line))
        assert.deepStrictEqual(titles.slice(0, 3), ["NAME", "SYNOPSIS", "DESCRIPTION"])
        assert.deepStrictEqual(titles.filter((title) => !/^[A-Z ]+$/.test(title)), [])
        assert.match(out, new RegExp(`^    effect-turn ${command} - \\S`, "m"))
      }
    }))

  it.live("fits the terminal, and 80 columns where there is none or a wider one, and breaks no word", () =>
    Effect.gen(function*() {
      for (const columns of [0, 200, 60]) {
        for (
          const command of [[], ["run"], ["plan"], ["scenario"], ["insights"], ["demo"], ["keys"], ["keys", "list"], [
            "keys",
            "resolve"
          ], ["keys", "expire"]]
        ) {
          const { out } = yield* run([...command, "--help"], { stdout: { columns, rows: 30 } })
          const wide = out.split("\n").filter((line) =>
            displayWidth(line) > (columns === 0 ? 80 : Math.min(80, columns))
          )
          assert.deepStrictEqual(wide, [])
          assert.notMatch(out, /choices:/)
        }
      }
    }))

  it.live("shows what is needed, and each command's own flags and exit codes", () =>
    Effect.gen(function*() {
      const of = (command: string) => Effect.map(run([command, "--help"]), ({ out }) => out.replace(/\s+/g, " "))
      const texts = {
        run: yield* of("run"),
        plan: yield* of("plan"),
        scenario: yield* of("scenario"),
        insights: yield* of("insights"),
        demo: yield* of("demo")
      }
      for (const command of ["run", "plan"] as const) {
        assert.include(texts[command], `effect-turn ${command} --tools MODULE [options] [MESSAGE]`)
      }
      const codes = (text: string) =>
        [" 0 ", " 1 ", " 2 ", " 130 "].filter((code) =>
          text.split("EXIT STATUS")[1]!.split("ENVIRONMENT")[0]!.includes(code)
        )
          .map(Number)
      assert.deepStrictEqual(codes(texts.run), [0, 1, 2, 130])
      assert.deepStrictEqual(codes(texts.plan), [0, 2])
      assert.deepStrictEqual(codes(texts.scenario), [0, 1, 2, 130])
      assert.deepStrictEqual(codes(texts.insights), [0, 2, 130])
      assert.deepStrictEqual(codes(texts.demo), [0, 130])
      assert.include(texts.run, "0 every call is ok, or was run by the provider")
      assert.include(texts.run, "A Ctrl-C after that leaves at once")
      assert.include(texts.run, "A write that has started is awaited past it; --grace bounds that")
      for (const flag of ["--siblings", "--deadline", "--grace", "--scenario", "--redact"]) {
        assert.include(texts.run, flag)
        assert.notInclude(texts.plan, flag)
      }
      assert.include(texts.plan, "no layer is built")
    }))

  it.live("knows its version and completes in shells", () =>
    Effect.gen(function*() {
      const { version } = JSON.parse(fs.readFileSync(path.join(import.meta.dirname, "../../package.json"), "utf8"))
      assert.include((yield* run(["--version"])).out, version)
      const completions = (yield* run(["--completions", "bash"])).out
      for (const text of ["scenario", "expire", "--not-applied", "insights", "--chars-per-token"]) {
        assert.include(completions, text)
      }
    }))
})

describe("run", () => {
  it.live("prints the messages to send back on standard output, and the rest on standard error", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["run", fixture("message.json"), "--tools", tools])
      assert.strictEqual(code, 0)
      const messages = JSON.parse(out)
      assert.isUndefined(refusal(messages))
      assert.deepStrictEqual(messages.slice(1).map((message: any) => message.content), [
        '{"seen":"door"}',
        "put door",
        '{"seen":"door"}'
      ])
      assert.match(err, /wait +#1 put for #0/)
      assert.match(err, /end +#2 look ok in/)
      assert.match(err, /3 calls in .*: 3 ok/)
      assert.notInclude(err + out, "\u001b")
    }))

  it.live("prints one object with --json, and nothing else", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["run", fixture("calls.json"), "--tools", tools, "--json"])
      assert.strictEqual(code, 1)
      assert.strictEqual(err, "")
      const report = JSON.parse(out)
      assert.deepStrictEqual(Object.keys(report), ["dialect", "plan", "outcomes", "messages"])
      assert.deepStrictEqual(report.outcomes.map((outcome: any) => [outcome.id, outcome.status, outcome.code]), [
        ["1", "ok", undefined],
        ["2", "error", "failed"],
        ["3", "deferred", "placeholder"],
        ["4", "error", "unknown_tool"]
      ])
      assert.deepStrictEqual(report.messages[1].outcomes, report.outcomes)
      assert.strictEqual(report.plan.calls.length, 4)
    }))

  it.live("reads standard input, by name or by default", () =>
    Effect.gen(function*() {
      const stdin = '\ufeff[{"name": "put", "arguments": {"at": "shelf"}}]'
      for (const args of [["run", "-"], ["run"]]) {
        const { code, out } = yield* run([...args, "--tools", tools], { stdin })
        assert.strictEqual(code, 0)
        assert.strictEqual(JSON.parse(out)[1].outcomes[0].result, "put shelf")
      }
    }))

  it.live("has nothing to do for a message without calls", () =>
    Effect.gen(function*() {
      const stdin = JSON.stringify({ role: "assistant", content: "done" })
      const { code, err, out } = yield* run(["run", "--tools", tools], { stdin })
      assert.deepStrictEqual([code, err, JSON.parse(out)], [
        0,
        "the message has no calls: nothing to run",
        [{ role: "assistant", content: "done" }]
      ])
    }))

  it.live("runs nothing of a response that was cut short", () =>
    Effect.gen(function*() {
      const stdin = JSON.stringify({
        calls: [{ id: "1", name: "put", arguments: { at: "x" } }],
        finishReason: "length"
      })
      const { code, out } = yield* run(["run", "--tools", tools, "--json"], { stdin })
      assert.strictEqual(code, 1)
      assert.strictEqual(JSON.parse(out).outcomes[0].code, "incomplete_response")
    }))

  it.live("stops at the deadline of the flag, or of the module's policy", () =>
    Effect.gen(function*() {
      const stdin = '[{"name": "wait"}]'
      const codes = (result: { readonly out: string }) =>
        JSON.parse(result.out).outcomes.map((outcome: any) => outcome.code)
      const byPolicy = yield* run(["run", "--tools", fixture("policy.ts"), "--json"], { stdin })
      assert.deepStrictEqual(codes(byPolicy), ["by_deadline"])
      const byFlag = yield* run(["run", "--tools", tools, "--json", "--deadline", "40ms"], { stdin })
      assert.deepStrictEqual(codes(byFlag), ["by_deadline"])
    }))

  it.live("waits for work that goes on as long as --grace says", () =>
    Effect.gen(function*() {
      const stdin = '[{"name": "put", "arguments": {"at": "x", "millis": 400}}]'
      const args = ["run", "--tools", tools, "--json", "--deadline", "40ms"]
      const one = ({ out }: { readonly out: string }) => {
        const { effect, status } = JSON.parse(out).outcomes[0]
        return [status, effect]
      }
      assert.deepStrictEqual(one(yield* run(args, { stdin })), ["ok", "applied"])
      assert.deepStrictEqual(one(yield* run([...args, "--grace", "0"], { stdin })), ["cancelled", "unknown"])
    }))

  it.live("loads the tools module by its URL too", () =>
    Effect.gen(function*() {
      const { code } = yield* run(["run", fixture("message.json"), "--tools", pathToFileURL(tools).href])
      assert.strictEqual(code, 0)
    }))

  it.live("tells the module's own listeners too", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      vi.stubGlobal("seen", seen)
      const file = written(
        "listens.mjs",
        `export * from ${JSON.stringify(tools)}
export const policy = { onEvent: (event) => seen.push(event._tag) }`
      )
      yield* run(["run", fixture("message.json"), "--tools", file])
      assert.include(seen, "TurnEnded")
    }))

  it.live("passes on whom it runs for, what a failure means, and how much may run at once", () =>
    Effect.gen(function*() {
      const stdin = '[{"name": "break"}, {"name": "whose"}]'
      const flags = ["--tenant", "north", "--siblings", "fail-fast", "--execution", "sequential", "--json"]
      const { out } = yield* run(["run", "--tools", tools, ...flags], { stdin })
      assert.deepStrictEqual(JSON.parse(out).outcomes.map((outcome: any) => outcome.code), ["failed", "by_sibling"])
      const { out: whose } = yield* run(["run", "--tools", tools, "--tenant", "north", "--json"], {
        stdin: '[{"name": "whose"}]'
      })
      assert.strictEqual(JSON.parse(whose).outcomes[0].result, "north")
    }))

  it.live("takes names and ids that would steer a terminal for text", () =>
    Effect.gen(function*() {
      const stdin = JSON.stringify([{ id: "\u001b[2J", name: "\u001b]0;owned\u0007", arguments: "\u001b[31m" }])
      const { err, out } = yield* run(["run", "--tools", tools], { stdin })
      assert.notInclude(err + out, "\u001b")
      assert.include(err, "\\u001b]0;owned\\u0007")
      const plan = yield* run(["plan", "--tools", tools], { stdin })
      assert.notInclude(plan.out, "\u001b")
    }))
})

describe("on a terminal", () => {
  const rewritten = (raw: string) => raw.includes("\u001b[?25l")

  it.live("rewrites a line for each call, and cleans up", () =>
    Effect.gen(function*() {
      vi.stubEnv("NO_COLOR", "").stubEnv("TERM", "xterm")
      const stdin = JSON.stringify([{ name: "put", arguments: { at: "x", millis: 200 } }])
      const file = written("slow.json", stdin)
      const { err, raw } = yield* run(["run", file, "--tools", tools], { terminal: true })
      assert.isTrue(rewritten(raw))
      assert.match(raw, /#0 put {2}.*running/)
      assert.isTrue(
        raw.endsWith("\u001b[J\u001b[?7h\u001b[?25h"),
        "the cursor and wrapping come back, and the lines go"
      )
      assert.notMatch(err, /start +#0/)
      assert.include(err, "\u001b[32mok")
    }))

  it.live("leaves out colours, and nothing else, where they are not wanted", () =>
    Effect.gen(function*() {
      vi.stubEnv("NO_COLOR", "1").stubEnv("TERM", "xterm")
      const { err, raw } = yield* run(["run", fixture("message.json"), "--tools", tools], { terminal: true })
      assert.isTrue(rewritten(raw))
      assert.notMatch(raw + err, /\u001b\[\d+m/)
    }))

  it.live("writes plain lines where the terminal can do no more", () =>
    Effect.gen(function*() {
      vi.stubEnv("NO_COLOR", "").stubEnv("TERM", "dumb")
      const { err, raw } = yield* run(["run", fixture("message.json"), "--tools", tools], { terminal: true })
      assert.notInclude(raw + err, "\u001b")
      assert.match(err, /start +#0 look/)
    }))

  it.live("is as wide as the terminal it is drawn on, whatever standard output is", () =>
    Effect.gen(function*() {
      vi.stubEnv("NO_COLOR", "1").stubEnv("TERM", "xterm")
      const file = written(
        "wide.json",
        JSON.stringify([1, 2, 3, 4, 5].map((i) => ({ name: "put", arguments: { at: `${i}`.repeat(90), millis: 90 } })))
      )
      const { err, raw } = yield* run(["run", file, "--tools", tools], {
        terminal: true,
        stdout: { columns: 200, rows: 60 },
        stderr: { columns: 74, rows: 6 }
      })
      assert.deepStrictEqual(err.split("\n").filter((line) => displayWidth(line) > 74), [])
      assert.include(raw, "2 more not shown")
      assert.notMatch(raw, /\u001b\[[5-9]A/, "no more lines than the terminal has")
    }))

  it.live("asks for a message when there is none", () =>
    Effect.gen(function*() {
      const { code, err } = yield* run(["run", "--tools", tools], { terminal: true })
      assert.strictEqual(code, 2)
      assert.include(err, "standard input is a terminal")
    }))
})

describe("plan", () => {
  it.live("draws who waits for whom, and runs nothing", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["plan", fixture("message.json"), "--tools", tools])
      assert.deepStrictEqual([code, err], [0, ""])
      assert.match(out, /#1 put .*after #0 by place\/door/)
      const json = yield* run(["plan", fixture("message.json"), "--tools", tools, "--json"])
      assert.deepStrictEqual(JSON.parse(json.out).edges, [
        { from: 0, to: 1, key: "place/door" },
        { from: 1, to: 2, key: "place/door" }
      ])
    }))

  it.live("builds no layer, and needs none", () =>
    Effect.gen(function*() {
      for (const name of ["dying-layer.ts", "no-layer.ts", "no-desk.ts"]) {
        const { code, out } = yield* run(["plan", fixture("message.json"), "--tools", fixture(name)])
        assert.strictEqual(code, 0)
        assert.match(out, /#1 put .*after #0/)
      }
    }))

  it.live("has words for no calls at all", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* run(["plan", "--tools", tools], { stdin: "[]" })).out, "no calls")
    }))

  it.live("exits 0 whatever the calls are like", () =>
    Effect.gen(function*() {
      const { code, out } = yield* run(["plan", fixture("calls.json"), "--tools", tools])
      assert.strictEqual(code, 0)
      assert.include(out, "unknown_tool")
    }))
})

describe("scenario", () => {
  it.live("prints a report a line, in the order of the files", () =>
    Effect.gen(function*() {
      const files = ["scenario-passes.json", "scenario-fails.json", "scenario-invalid.json", "broken.json"]
      const { code, err, out } = yield* run(["scenario", ...files.map(fixture)])
      assert.strictEqual(code, 1)
      const reports = out.split("\n").map((line) => JSON.parse(line))
      assert.deepStrictEqual(reports.map((report) => [report.file, report.pass]), [
        ["scenario-passes.json", true],
        ["scenario-fails.json", false],
        ["scenario-invalid.json", false],
        ["broken.json", false]
      ])
      assert.deepStrictEqual(Object.keys(reports[2]), ["file", "pass", "failures"])
      assert.include(reports[1].failures.join(), "elapsedMs")
      assert.include(err, "1 of 4 scenarios pass")
    }))

  it.live("exits 0 when all pass", () =>
    Effect.gen(function*() {
      const { code, out } = yield* run(["scenario", fixture("scenario-passes.json")])
      assert.strictEqual(code, 0)
      assert.strictEqual(out.split("\n").length, 1)
    }))

  it.live("reports a file that is not there beside the others, and exits 2", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["scenario", fixture("nowhere.json"), fixture("scenario-passes.json")])
      assert.strictEqual(code, 2)
      assert.deepStrictEqual(out.split("\n").map((line) => JSON.parse(line)).map(({ file, pass }) => [file, pass]), [
        ["nowhere.json", false],
        ["scenario-passes.json", true]
      ])
      assert.include(err, "no such file")
      assert.include((yield* run(["scenario", fixtures])).err, "a directory")
    }))
})

describe("scenario --explore", () => {
  const bySeed = fixture("scenario-fails-by-seed.json")

  it.live("runs each file under so many interleavings, and counts them", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["scenario", "--explore", "40", fixture("scenario-passes.json")])
      assert.strictEqual(code, 0)
      assert.match(err, /^pass {2}\S*scenario-passes\.json {2}\(40 seeds, \d+ different\)$/m)
      const { explored } = JSON.parse(out)
      assert.strictEqual(explored.runs, 40)
      assert.isAbove(explored.distinct, 1)
    }))

  it.live("tells what differed, the seed, the command that repeats it, and what ran when", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["scenario", "--explore", "200", fixture("scenario-passes.json"), bySeed])
      assert.strictEqual(code, 1)
      const reports = out.split("\n").map((line) => JSON.parse(line))
      assert.deepStrictEqual(reports.map(({ pass }) => pass), [true, false])
      const { replay, seed } = reports[1].explored.found
      for (
        const text of [
          `FAIL  ${bySeed}  (seed ${seed})`,
          '      outcomes: turn 0, call 0 ("a"): expected status "ok", got "timeout"',
          "      What differs from the natural order, with 1 forced switch:",
          '        turn 0, call 0 ("a"): status: "ok" in the natural order, "timeout" here',
          `        effect-turn scenario --replay ${replay} ${bySeed}`,
          "      What ran when (>: something was forced):",
          '- turn 0: call 0 "a" (search) is answered: timeout (handler), effect none',
          "1 of 2 scenarios pass"
        ]
      ) assert.include(err, text)

      const again = yield* run(["scenario", "--replay", replay, bySeed])
      assert.strictEqual(again.code, 1)
      assert.deepStrictEqual(JSON.parse(again.out).failures, reports[1].failures)
      const other = yield* run(["scenario", "--replay", "0", bySeed])
      assert.strictEqual(other.code, 0)
      assert.match(other.err, /^pass .* \(1 seed\)$/m)
    }))

  it.live("says that the natural order fails already, and what cannot be read", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run([
        "scenario",
        "--explore=5",
        fixture("scenario-fails.json"),
        fixture("scenario-invalid.json"),
        fixture("nowhere.json")
      ])
      assert.strictEqual(code, 2)
      assert.strictEqual(out.split("\n").length, 3)
      assert.include(err, "It fails in the natural order, so nothing was explored.")
      assert.include(err, "no such file")
    }))

  it.live("repeats a file whose name a shell would read otherwise", () =>
    Effect.gen(function*() {
      const folder = path.join(scratch, "it's here")
      fs.mkdirSync(folder)
      const file = path.join(folder, path.basename(bySeed))
      fs.copyFileSync(bySeed, file)
      const { err } = yield* run(["scenario", "--explore", "200", file])
      assert.include(err, `${scratch}/it'\\''s here/scenario-fails-by-seed.json'`)
    }))

  it.live("shows on a terminal how far it is, and leaves nothing of it", () =>
    Effect.gen(function*() {
      vi.stubEnv("NO_COLOR", "1").stubEnv("TERM", "xterm")
      const { err, raw } = yield* run(["scenario", "--explore", "100", fixture("scenario-passes.json")], {
        terminal: true
      })
      assert.match(raw, /\d+ of 100 interleavings in \d+ ms: /)
      assert.isTrue(raw.endsWith("\u001b[1A\r\u001b[J\u001b[?7h\u001b[?25h"))
      assert.notInclude(err, "interleavings")
      const plain = yield* run(["scenario", "--explore", "100", fixture("scenario-passes.json")])
      assert.strictEqual(plain.raw, "")
    }))
})

describe("run --scenario", () => {
  const message = fixture("message.json")
  const recorded = (file: string, ...flags: ReadonlyArray<string>) =>
    run(["run", message, "--tools", tools, "--scenario", file, ...flags])

  it.live("keeps the turn as a scenario that passes without the tools", () =>
    Effect.gen(function*() {
      const file = path.join(scratch, "one-door.json")
      const { code, err, out } = yield* recorded(file, "--tenant", "north", "--why", "One door at a time.")
      assert.strictEqual(code, 0)
      assert.isTrue(Array.isArray(JSON.parse(out)), "standard output has the messages alone")
      assert.include(err, `scenario written: ${file}`)
      assert.notInclude(err, "replace its `why`")
      const { backends, name, tools: written, turns, why } = JSON.parse(fs.readFileSync(file, "utf8"))
      assert.deepStrictEqual([name, why, turns[0].tenant], ["one-door", "One door at a time.", "north"])
      assert.deepStrictEqual(written.put.keys, ["place/{at}"])
      assert.deepStrictEqual(backends, { "fixture/Desk": { concurrency: 1 } })
      assert.strictEqual((yield* run(["scenario", file])).code, 0)
    }))

  it.live("hides what tools answered, and says what is left to do", () =>
    Effect.gen(function*() {
      const file = path.join(scratch, "hidden-door.json")
      const { err } = yield* recorded(file, "--redact")
      assert.include(err, "replace its `why` by the fault that it guards against")
      assert.notInclude(fs.readFileSync(file, "utf8"), '"seen"')
      assert.strictEqual((yield* run(["scenario", file])).code, 0)
    }))

  it.live("overwrites nothing unless it is told to, and then runs nothing", () =>
    Effect.gen(function*() {
      const file = written("taken.json", "mine")
      const { code, err, out } = yield* recorded(file)
      assert.deepStrictEqual([code, out], [2, ""])
      assert.include(err, "got       a file that is there already")
      assert.notInclude(err, "start")
      assert.strictEqual(fs.readFileSync(file, "utf8"), "mine")
      assert.strictEqual((yield* recorded(file, "--force")).code, 0)
      assert.strictEqual(JSON.parse(fs.readFileSync(file, "utf8")).name, "taken")
    }))

  it.live("says that the file could not be written after all, and prints the messages", () =>
    Effect.gen(function*() {
      const folder = path.join(scratch, "a-folder.json")
      fs.mkdirSync(folder)
      const { code, err, out } = yield* recorded(folder, "--force")
      assert.strictEqual(code, 2)
      assert.isTrue(Array.isArray(JSON.parse(out)))
      assert.include(err, `cannot write ${folder}`)
      assert.include(err, "calls that have run are not undone")
    }))
})

describe("demo", () => {
  it.live("runs the travel agent's turn from message to message", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["demo"])
      assert.strictEqual(code, 0)
      assert.match(out, /#5 book_hotel .*after #3 by hotels\/LIS-1/)
      assert.match(err, /#7 book_flight +deferred \(placeholder\)/)
      assert.match(err, /#10 pay_deposit +pending_approval/)
      assert.match(err, /#8 reserve_table +error \(failed\) .*fully booked/)
      assert.match(err, /#6 get_weather +ok .*\[same as #0\]/)
      const messages = JSON.parse(out.slice(out.indexOf("\n[\n")))
      assert.isUndefined(refusal(messages))
      assert.strictEqual(messages.length, 12)
      const booked = JSON.parse(messages.find((message: any) => message.tool_call_id === "call_b1").content)
      const listed = JSON.parse(messages.find((message: any) => message.tool_call_id === "call_l1").content)
      assert.deepStrictEqual(listed, [booked], "the list waits for the booking")
    }))

  it.live("prints one object with --json", () =>
    Effect.gen(function*() {
      const { code, out } = yield* run(["demo", "--json"])
      assert.strictEqual(code, 0)
      assert.strictEqual(JSON.parse(out).outcomes.length, 11)
    }))
})

describe("misuse exits 2, and says what was expected, what came and what to do", () => {
  const message = fixture("message.json")
  const cases: ReadonlyArray<readonly [string, ReadonlyArray<string>, ReadonlyArray<string | RegExp>, string?]> = [
    ["an unknown command", ["rum"], [
      "run, plan, scenario, insights, report, check, demo or keys",
      "rum",
      "did you mean run?"
    ]],
    ["an unknown command with a flag", ["rum", "--tools", "t.ts"], [
      /^(?![^]*\neffect-turn: )effect-turn: no such command\n/
    ]],
    ["an unknown flag", ["run", "--jso"], ["has no flag --jso", "did you mean --json?", "effect-turn run --help"]],
    ["no tools", ["run", message], ["needs --tools"]],
    ["no files", ["scenario"], ["needs FILE"]],
    ["no interleavings", ["scenario", "--explore", "0", message], [
      "--explore",
      "a whole number from 1",
      "got       0"
    ]],
    ["fewer than none", ["scenario", "--explore", "-1", message], [
      "--explore",
      "a whole number from 1",
      "got       -1"
    ]],
    ["half an interleaving", ["scenario", "--explore", "1.5", message], ["a whole number from 1", "got       1.5"]],
    ["no number of them", ["scenario", "--explore", "x", message], ["a whole number from 1", "got       x"]],
    ["a replay that is none", ["scenario", "--replay", "x", message], [
      'such as "17/31:1,40:2", or a seed',
      "got       x"
    ]],
    ["a replay of two files", ["scenario", "--replay", "17", message, message], ["more than one file", "the one file"]],
    ["a replay that explores", ["scenario", "--replay", "17", "--explore", "5", message], [
      "--explore and --replay together",
      "got       --explore 5 --replay 17"
    ]],
    ["a name of no scenario", ["run", message, "--tools", tools, "--scenario", "Two Doors.json"], [
      "small letters, digits and dashes",
      "got       Two Doors.json"
    ]],
    ["a scenario in no folder", ["run", message, "--tools", tools, "--scenario", "nowhere/a.json"], [
      "cannot write nowhere/a.json",
      "no such folder: nowhere"
    ]],
    ["a why of nothing", ["run", message, "--tools", tools, "--why", "Because."], ["--why without --scenario"]],
    ["redacting nothing", ["run", message, "--tools", tools, "--redact"], ["--redact without --scenario"]],
    ["forcing nothing", ["run", message, "--tools", tools, "--force"], ["--force without --scenario"]],
    ["an empty why", ["run", message, "--tools", tools, "--scenario", "a.json", "--why", " "], ["--why", "a sentence"]],
    ["too many arguments", ["run", message, message, "--tools", tools], ["too many arguments"]],
    ["a bad deadline", ["run", message, "--tools", tools, "--deadline", "soon"], [
      "--deadline",
      '"500ms", "30s"',
      "soon"
    ]],
    ["a deadline of nothing", ["run", message, "--tools", tools, "--deadline", "0s"], ["a time over 0"]],
    ["an endless deadline", ["run", message, "--tools", tools, "--deadline", "Infinity"], ["under 24 days"]],
    ["a bad policy for siblings", ["run", message, "--tools", tools, "--siblings", "none"], [
      '"let-finish" | "fail-fast" | "all-or-nothing"',
      "none"
    ]],
    ["a bad limit", ["run", message, "--tools", tools, "--execution", "0"], ["a whole number from 1"]],
    ["no such message", ["run", "nowhere.json", "--tools", tools], [
      "cannot read nowhere.json",
      "no such file",
      "path of a file"
    ]],
    ["a folder for a message", ["run", fixtures, "--tools", tools], [
      "cannot read",
      "a file that can be read",
      "got       a directory"
    ]],
    ["a folder for a tools module", ["run", message, "--tools", fixtures], [
      "no tools module",
      "got       a directory"
    ]],
    ["a URL of no file", ["run", message, "--tools", "file://host/a.ts"], ["a URL that names no file"]],
    ["a tenant without a name", ["run", message, "--tools", tools, "--tenant", ""], ["--tenant", "a name"]],
    ["a bad grace", ["run", message, "--tools", tools, "--grace", "long"], ["--grace", "0, or a time under 24 days"]],
    ["a flag that changes no plan", ["plan", message, "--tools", tools, "--deadline", "1s"], ["no flag --deadline"]],
    ["a message that is cut off", ["run", fixture("broken.json"), "--tools", tools], [
      /broken\.json is not JSON, at line \d+, column \d+\n/,
      "got       the end",
      "get the whole of it"
    ]],
    [
      "a message that is no JSON",
      ["run", "--tools", tools],
      [
        "standard input is not JSON, at line 2, column 10",
        "expected  a name in double quotes",
        "got       name: 'look'}"
      ],
      "[\n {\"a\":1, name: 'look'}]"
    ],
    ["an empty message", ["run", "--tools", tools], ["standard input is empty", "nothing"], " \n"],
    ["a message of no known form", ["run", fixture("other.json"), "--tools", tools], [
      "a message of no known form",
      'a Chat Completions response (with "choices")',
      'an object with the fields "id", "type", "role", "content"'
    ]],
    [
      "an error in place of a message",
      ["run", "--tools", tools],
      ['the provider\'s error "quota"'],
      '{"error": {"message": "quota"}}'
    ],
    [
      "a broken message",
      ["run", "--tools", tools],
      ["at tool_calls[0].function.name", "got       7"],
      '{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": 7}}]}'
    ],
    ["a misspelt call", ["run", "--tools", tools], ["neutral message, at [0].args"], '[{"name": "look", "args": {}}]'],
    ["no tools module", ["run", message, "--tools", "nowhere.ts"], ["no tools module nowhere.ts", "no such file"]],
    ["no toolkit", ["run", message, "--tools", fixture("no-toolkit.ts")], [
      "exports no toolkit",
      "a module that exports tools",
      "export `toolkit`"
    ]],
    ["no exports", ["run", message, "--tools", fixture("nothing.ts")], [
      "exports no toolkit",
      "a module that exports nothing"
    ]],
    ["no layer", ["run", message, "--tools", fixture("no-layer.ts")], [
      "exports no layer",
      "a module that exports toolkit"
    ]],
    ["a policy that is none", ["run", message, "--tools", fixture("bad-policy.ts")], [
      "a policy that is none",
      "fail-fast"
    ]],
    ["a layer that fails", ["run", message, "--tools", fixture("bad-layer.ts")], [
      "cannot be built",
      "connection refused"
    ]],
    ["a layer that dies", ["run", message, "--tools", fixture("dying-layer.ts")], [
      "cannot be built",
      "Error: no such host"
    ]],
    ["a layer without handlers", ["run", message, "--tools", fixture("part-layer.ts")], [
      'the tool "look" cannot run',
      "Layer.mergeAll(toolkit.toLayer({…})"
    ]],
    ["a layer without a backend", ["run", message, "--tools", fixture("no-desk.ts")], [
      'the tool "look" cannot run',
      'backend "fixture/Desk"',
      "export a `layer` with all handlers and backends"
    ]],
    ["a policy that is a function", ["run", message, "--tools", fixture("function-policy.ts")], [
      "a policy that is none",
      "got       the function policy"
    ]],
    ["an unknown option", ["run", message, "--tools", fixture("unknown-option.ts")], [
      "the unknown option `deadlin`",
      "siblings, unit, execution",
      "did you mean deadline?"
    ]],
    ["a policy that cannot be", ["run", message, "--tools", fixture("bad-limit.ts")], [
      "the turn cannot start",
      "deadline",
      "-1"
    ]]
  ]
  for (const [name, args, expected, stdin] of cases) {
    it.live(name, () =>
      Effect.gen(function*() {
        const { code, err, out } = yield* run(args, { ...(stdin === undefined ? undefined : { stdin }) })
        assert.deepStrictEqual([code, out], [2, ""])
        for (const text of [/^effect-turn: /, "\n  expected  ", "\n  got       ", "\n  do        ", ...expected]) {
          if (typeof text === "string") assert.include(err, text)
          else assert.match(err, text)
        }
      }))
  }

  it.live("a tools module that does not load", () =>
    Effect.gen(function*() {
      const modules = {
        "throws.mjs": ['throw new Error("no database")', "Error: no database"],
        "symbol.mjs": ["throw Symbol()", "got       "],
        "syntax.mjs": ["export const toolkit = (", "rror: "],
        "import.mjs": ['import "./nowhere.mjs"', "Cannot find module"]
      }
      for (const [name, [text, expected]] of Object.entries(modules)) {
        const { code, err, out } = yield* run(["run", message, "--tools", written(name, text!)])
        assert.deepStrictEqual([code, out], [2, ""])
        assert.include(err, "does not load")
        assert.include(err, expected!)
      }
    }))
})
