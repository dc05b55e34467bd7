import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Sink, Stdio, Stream, Terminal } from "effect"
import { TestConsole } from "effect/testing"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll, vi } from "vitest"
import { main } from "../../src/cli/index.ts"
import { refusal } from "../wire/provider.ts"

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

/** Runs the program in this process: its exit code, and what it wrote. */
const run = (args: ReadonlyArray<string>, options: { readonly stdin?: string; readonly terminal?: boolean } = {}) =>
  Effect.gen(function*() {
    let raw = ""
    const stdio = Stdio.layerTest({
      stdin: options.stdin === undefined ? Stream.empty : Stream.make(new TextEncoder().encode(options.stdin)),
      stdinIsTerminal: Effect.succeed(options.terminal === true),
      stderrIsTerminal: Effect.succeed(options.terminal === true),
      stderr: () => Sink.forEach((chunk) => Effect.sync(() => raw += String(chunk)))
    })
    const terminal = Layer.succeed(Terminal.Terminal, {
      columns: Effect.succeed(90),
      rows: Effect.succeed(30)
    } as Terminal.Terminal)
    return yield* Effect.gen(function*() {
      const code = yield* main(args)
      const [out, err] = [yield* TestConsole.logLines, yield* TestConsole.errorLines].map((lines) =>
        lines.join("\n")
      ) as [string, string]
      return { code, out, err, raw }
    }).pipe(
      Effect.provide(Layer.mergeAll(TestConsole.layer, stdio, terminal).pipe(Layer.provideMerge(NodeServices.layer)))
    )
  })

describe("help", () => {
  it.live("teaches what the program is for, its commands and exit codes", () =>
    Effect.gen(function*() {
      for (const args of [["--help"], []]) {
        const { code, out } = yield* run(args)
        assert.strictEqual(code, 0)
        for (const text of ["run ", "plan ", "scenario ", "demo ", "Exit codes", "130  stopped by Ctrl-C"]) {
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
        scenario: ["virtual time", "FILE...", "EXAMPLES"],
        demo: ["travel agent"]
      }
      for (const [command, expected] of Object.entries(texts)) {
        const { code, out } = yield* run([command, "--help"])
        assert.strictEqual(code, 0)
        for (const text of expected) assert.include(out, text)
        for (const text of out.split("\n").filter((line) => line.startsWith("Exit"))) {
          assert.fail(`not indented: ${text}`)
        }
      }
    }))

  it.live("knows its version and completes in shells", () =>
    Effect.gen(function*() {
      const { version } = JSON.parse(fs.readFileSync(path.join(import.meta.dirname, "../../package.json"), "utf8"))
      assert.include((yield* run(["--version"])).out, version)
      assert.include((yield* run(["--completions", "bash"])).out, "scenario")
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
      assert.match(err, /wait +#1 put for earlier calls/)
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

  it.live("writes plain lines where colours are not wanted", () =>
    Effect.gen(function*() {
      for (const [name, value] of [["NO_COLOR", "1"], ["TERM", "dumb"]] as const) {
        vi.stubEnv("NO_COLOR", "").stubEnv("TERM", "xterm").stubEnv(name, value)
        const { err, raw } = yield* run(["run", fixture("message.json"), "--tools", tools], { terminal: true })
        assert.notInclude(raw + err, "\u001b")
        assert.match(err, /start +#0 look/)
      }
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
    ["an unknown command", ["rum"], ["run, plan, scenario or demo", "rum", "did you mean run?"]],
    ["an unknown flag", ["run", "--jso"], ["has no flag --jso", "did you mean --json?", "effect-turn run --help"]],
    ["no tools", ["run", message], ["needs --tools"]],
    ["no files", ["scenario"], ["needs FILE"]],
    ["too many arguments", ["run", message, message, "--tools", tools], ["too many arguments"]],
    ["a bad deadline", ["run", message, "--tools", tools, "--deadline", "soon"], [
      "--deadline",
      '"500ms", "30s"',
      "soon"
    ]],
    ["a deadline of nothing", ["run", message, "--tools", tools, "--deadline", "0s"], ["a time over 0"]],
    ["an endless deadline", ["run", message, "--tools", tools, "--deadline", "Infinity"], ["under 24 days"]],
    ["a bad policy for siblings", ["run", message, "--tools", tools, "--siblings", "none"], [
      '"let-finish" | "fail-fast"',
      "none"
    ]],
    ["a bad limit", ["run", message, "--tools", tools, "--execution", "0"], ["a whole number from 1"]],
    ["no such message", ["run", "nowhere.json", "--tools", tools], [
      "cannot read nowhere.json",
      "no such file",
      "path of a file"
    ]],
    ["a folder for a message", ["run", fixtures, "--tools", tools], ["cannot read", "a file that can be read"]],
    ["a message that is no JSON", ["run", fixture("broken.json"), "--tools", tools], [
      "is not JSON",
      "Unexpected end of JSON input"
    ]],
    ["an empty message", ["run", "--tools", tools], ["standard input is not JSON", "nothing"], " \n"],
    ["a stream", ["run", "--tools", tools], ["the events of a stream", "assemble"], "data: {}\n\ndata: [DONE]\n"],
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
    ["a layer that dies", ["plan", message, "--tools", fixture("dying-layer.ts")], [
      "cannot be built",
      "Error: no such host"
    ]],
    ["a layer without handlers", ["run", message, "--tools", fixture("part-layer.ts")], [
      "not whole",
      "none for look, put, break"
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
