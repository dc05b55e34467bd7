import { assert, describe, it } from "@effect/vitest"
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { refusal } from "../wire/provider.ts"

const root = path.join(import.meta.dirname, "../..")
const fixture = (name: string) => path.join("test/fixtures/cli", name)
const tools = fixture("tools.ts")

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** Runs the real program in a process of its own. `onText` sees standard error as it comes. */
const run = (
  args: ReadonlyArray<string>,
  options: {
    readonly script?: string
    readonly stdin?: string
    readonly stdout?: number
    readonly onText?: (err: string, child: ChildProcess) => void
  } = {}
): Promise<Ended> =>
  new Promise((resolve) => {
    const child = spawn(
      path.join(root, "node_modules/.bin/node"),
      ["--conditions=@effect-turn/source", options.script ?? "src/cli/bin.ts", ...args],
      { cwd: root, stdio: ["pipe", options.stdout ?? "pipe", "pipe"] }
    )
    let out = ""
    let err = ""
    child.stdout?.on("data", (chunk) => out += chunk)
    child.stderr!.on("data", (chunk) => {
      err += chunk
      options.onText?.(err, child)
    })
    child.on("close", (code) => resolve({ code, out, err }))
    child.stdin!.end(options.stdin ?? "")
  })

describe("the executable", () => {
  it("exits 0 when every call is ok, and writes the messages alone to standard output", async () => {
    const { code, err, out } = await run(["run", fixture("message.json"), "--tools", tools])
    assert.strictEqual(code, 0)
    assert.isUndefined(refusal(JSON.parse(out)))
    assert.include(err, "3 calls in")
    assert.notInclude(out + err, "\u001b", "no escape codes where there is no terminal")
  })

  it("reads standard input", async () => {
    const { code, out } = await run(["run", "--tools", tools, "--json"], {
      stdin: fs.readFileSync(path.join(root, fixture("calls.json")), "utf8")
    })
    assert.strictEqual(code, 1, "a call is not ok")
    assert.strictEqual(JSON.parse(out).outcomes.length, 4)
  })

  it.each([
    [0, ["--help"]],
    [0, ["scenario", fixture("scenario-passes.json")]],
    [1, ["scenario", fixture("scenario-fails.json")]],
    [2, ["run", "--bogus"]],
    [2, ["run", fixture("other.json"), "--tools", tools]],
    [2, ["run", fixture("message.json"), "--tools", fixture("no-toolkit.ts")]]
  ])("exits %i for %j", async (expected, args) => {
    const { code, err } = await run(args)
    assert.strictEqual(code, expected, err)
  })

  it.each([
    ["@effect/sql-pg", "postgres://127.0.0.1/shop"],
    ["redis", "redis://127.0.0.1"]
  ])("says what to install where %s is not there", async (driver, store) => {
    const { code, err } = await run(["keys", "list", "--store", store], { script: fixture("without-drivers.ts") })
    assert.strictEqual(code, 2)
    assert.include(err, `the store ${store} needs the package ${driver}`)
    assert.include(err, `npm install ${driver}`)
  })

  it("says why a tools module does not load", async () => {
    const file = path.join(scratch, "syntax.mjs")
    fs.writeFileSync(file, "export const toolkit = (")
    const { code, err } = await run(["run", fixture("message.json"), "--tools", file])
    assert.strictEqual(code, 2)
    assert.include(err, "SyntaxError: Unexpected end of input")
  })

  it("keeps standard output for the messages: what tools print goes to standard error", async () => {
    const { code, err, out } = await run(["run", "--tools", fixture("chatty.ts"), "--json"], {
      stdin: '[{"name": "say"}]'
    })
    assert.strictEqual(code, 0)
    assert.strictEqual(JSON.parse(out).outcomes[0].result, "said")
    for (const who of ["the module", "the layer", "Effect.log", "Console.log", "console.log", "console.info"]) {
      assert.include(err, `said by ${who}`)
    }
    for (const text of ["said by console.debug", "said: 'by console.dir'", "by console.table"]) {
      assert.include(err, text)
    }
  })

  it("goes on to the end when nobody reads what it prints, and exits as its calls ended", async () => {
    for (const [name, expected] of [["say", 0], ["nothing", 1]] as const) {
      const file = path.join(scratch, `saved-${name}`)
      const { code, out } = await run(["run", "--tools", fixture("chatty.ts")], {
        stdin: JSON.stringify([{ name: "save", arguments: { file, millis: 300 } }, { name }]),
        onText: (err, child) => {
          if (!err.includes("start     #0 save")) return
          child.stdout!.destroy()
          child.stderr!.destroy()
        }
      })
      assert.deepStrictEqual([code, out], [expected, ""])
      assert.strictEqual(fs.readFileSync(file, "utf8"), "saved")
    }
  })

  it.runIf(fs.existsSync("/dev/full"))("exits 2 when its output cannot be written", async () => {
    const full = fs.openSync("/dev/full", "w")
    const { code, err } = await run(["plan", fixture("message.json"), "--tools", tools], { stdout: full })
    fs.closeSync(full)
    assert.strictEqual(code, 2)
    assert.match(err, /^effect-turn: standard output cannot be written\n/)
    assert.include(err, "ENOSPC")
    assert.notInclude(err, "    at ")
  })

  it("exits 2 when the tools module ends the process, while it loads or while a tool runs", async () => {
    const file = path.join(scratch, "exit.mjs")
    fs.writeFileSync(file, "process.exit(0)")
    for (const args of [["plan", "--tools", file], ["run", "--tools", fixture("chatty.ts")]]) {
      const { code, err, out } = await run(args, { stdin: '[{"name": "leave"}]' })
      assert.deepStrictEqual([code, out], [2, ""])
      assert.include(err, "effect-turn: the process was ended before the work was done")
      assert.include(err, "exit code 0: process.exit was called")
    }
  })

  it("stops the turn, and cuts no write short, when something is thrown that nobody catches", async () => {
    const [module, file] = [path.join(scratch, "stray.mjs"), path.join(scratch, "saved-astray")]
    const chatty = JSON.stringify(path.join(root, fixture("chatty.ts")))
    fs.writeFileSync(
      module,
      `export * from ${chatty}
export const policy = {
  onEvent: (event) => {
    if (event._tag === "CallStarted") setTimeout(() => { throw new Error("astray") })
  }
}`
    )
    const { code, err, out } = await run(["run", "--tools", module], {
      stdin: JSON.stringify([{ name: "save", arguments: { file, millis: 300 } }])
    })
    assert.strictEqual(code, 2)
    assert.strictEqual(JSON.parse(out)[1].outcomes[0].status, "ok")
    assert.strictEqual(fs.readFileSync(file, "utf8"), "saved")
    assert.match(err, /Error: astray\n +at /)
    assert.include(err, "effect-turn: something was thrown that nobody catches")
  })

  it("exits 2 when the tools module can never load", async () => {
    const file = path.join(scratch, "never.mjs")
    fs.writeFileSync(file, "await new Promise(() => {})")
    const { code, err } = await run(["plan", fixture("message.json"), "--tools", file])
    assert.strictEqual(code, 2, err)
    assert.include(err, "a top-level await that never settles")
  })

  it("says that it waits for the tools module to load", async () => {
    const file = path.join(scratch, "slow.mjs")
    fs.writeFileSync(file, "setInterval(() => {}, 1000)\nawait new Promise(() => {})")
    const { code, err } = await run(["plan", fixture("message.json"), "--tools", file], {
      onText: (_, child) => child.kill("SIGINT")
    })
    assert.strictEqual(code, 130)
    assert.match(err, /^waiting for .*slow\.mjs to load: a top-level await/)
  })

  it("ends although the tools module holds the process open", async () => {
    const file = path.join(scratch, "open.mjs")
    fs.writeFileSync(file, `setInterval(() => {}, 1000)\nexport * from ${JSON.stringify(path.join(root, tools))}`)
    const { code } = await run(["run", fixture("message.json"), "--tools", file])
    assert.strictEqual(code, 0)
  })

  it("runs the travel agent's turn at the start", async () => {
    const { code, err, out } = await run([], { script: "src/cli/start.ts" })
    assert.strictEqual(code, 0)
    assert.include(out, "The plan:")
    assert.include(err, "11 calls in")
    assert.include(out, '"tool_call_id":"call_p1"')
  })
})

describe("Ctrl-C", () => {
  const calls = path.join(scratch, "calls.json")
  const write = (millis: number) =>
    fs.writeFileSync(
      calls,
      JSON.stringify([
        { id: "1", name: "wait" },
        { id: "2", name: "put", arguments: { at: "x", millis } },
        { id: "3", name: "put", arguments: { at: "x" } }
      ])
    )

  /** Sends the signal `times` times, each when the program has had time to see the one before. */
  const interrupted = (name: "SIGINT" | "SIGTERM" | "SIGHUP", times: number) => {
    let sent = 0
    return run(["run", calls, "--tools", tools], {
      onText: (err, child) => {
        if (sent === 0 && /start +#1 put/.test(err)) {
          sent++
          child.kill(name)
        } else if (sent === 1 && times > 1 && /stop +by_caller/.test(err)) {
          sent++
          child.kill(name)
        }
      }
    })
  }

  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)(
    "stops the turn, awaits what has started, prints every outcome: %s",
    async (name) => {
      write(1500)
      const { code, err, out } = await interrupted(name, 1)
      assert.strictEqual(code, 130, err)
      const { outcomes } = JSON.parse(out)[1]
      assert.deepStrictEqual(
        outcomes.map((outcome: any) => [outcome.id, outcome.status, outcome.code, outcome.started, outcome.effect]),
        [
          ["1", "cancelled", "by_caller", true, "none"],
          ["2", "ok", undefined, true, "applied"],
          ["3", "cancelled", "by_caller", false, "none"]
        ]
      )
      assert.strictEqual(outcomes[0].reason, "interrupted")
      assert.match(err, /3 calls in .*: 2 cancelled, 1 ok/)
      assert.include(
        err,
        "stopping: waiting for #1 put (Ctrl-C again leaves at once; whether it took effect would not be known)"
      )
    }
  )

  it("keeps the stopped turn as a scenario, which is stopped at the same moment", async () => {
    write(700)
    const file = path.join(scratch, "stopped-by-hand.json")
    let sent = false
    const { code, err } = await run(["run", calls, "--tools", tools, "--scenario", file], {
      onText: (err, child) => {
        if (sent || !/start +#1 put/.test(err)) return
        sent = true
        child.kill("SIGINT")
      }
    })
    assert.strictEqual(code, 130, err)
    assert.include(err, `scenario written: ${file}`)
    assert.deepStrictEqual(
      JSON.parse(fs.readFileSync(file, "utf8")).turns[0].events.map((event: any) => event.type),
      ["cancelTurn"]
    )
    const again = await run(["scenario", file])
    assert.strictEqual(again.code, 0, again.err)
    const { outcomes } = JSON.parse(again.out)
    assert.deepStrictEqual(outcomes[0].map((outcome: any) => [outcome.status, outcome.started]), [
      ["cancelled", true],
      ["ok", true],
      ["cancelled", false]
    ])
  })

  it("leaves at once the second time, and says that it does not know", async () => {
    write(20_000)
    const { code, err } = await interrupted("SIGINT", 2)
    assert.strictEqual(code, 130)
    assert.include(err, "whether writes that had started took effect is not known")
  })

  it("ends an exploration at once, whatever is left of it", async () => {
    const files = [fixture("scenario-fails.json"), fixture("scenario-passes.json")]
    let sent = false
    const { code, err, out } = await run(["scenario", "--explore", "999999999", ...files], {
      onText: (err, child) => {
        if (sent || !err.includes("FAIL")) return
        sent = true
        child.kill("SIGINT")
      }
    })
    assert.strictEqual(code, 130, err)
    assert.strictEqual(out.trim().split("\n").length, 1, "the file before it was reported, and nothing else")
  })
})
