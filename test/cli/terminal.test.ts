/** The real program in a real (pseudo-)terminal: what a person sees, and what is left when it has ended. Nothing here waits for a time. */
import { assert, it } from "@effect/vitest"
import { displayWidth } from "effect/cli/CliOutput"
import { spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { describeProgram } from "../utils/requires.ts"
import { Screen } from "./screen.ts"

const root = path.join(import.meta.dirname, "../..")
const tools = "test/fixtures/cli/tools.ts"

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))
const message = (name: string, calls: ReadonlyArray<unknown>) => {
  const file = path.join(scratch, `${name}.json`)
  fs.writeFileSync(file, JSON.stringify(calls))
  return file
}

interface Terminal {
  readonly screen: Screen
  readonly code: Promise<number>
  /** Waits until something is to be seen. */
  readonly until: (what: RegExp) => Promise<void>
  readonly keys: (keys: string) => void
  readonly signal: (name: string) => void
  readonly resize: (rows: number, columns: number) => Promise<void>
}

const ctrlC = "\u0003"

/** Starts the program in a terminal of its own. */
const start = (
  args: ReadonlyArray<string>,
  options: { readonly rows?: number; readonly columns?: number; readonly env?: Record<string, string> } = {}
): Terminal => {
  const { columns = 80, env = {}, rows = 24 } = options
  const screen = new Screen(rows, columns)
  const argv = [
    path.join(root, "node_modules/.bin/node"),
    "--conditions=@effect-turn/source",
    "src/cli/bin.ts",
    ...args
  ]
  const child = spawn("python3", [
    path.join(import.meta.dirname, "../fixtures/cli/terminal.py"),
    JSON.stringify({ argv, rows, columns, env: { TERM: "xterm-256color", NO_COLOR: "1", ...env } })
  ], { cwd: root, stdio: ["pipe", "pipe", "inherit"] })
  const decoder = new TextDecoder()
  const waiting = new Set<() => void>()
  let ended: number | undefined
  let rest = ""
  let onResized = () => {}
  let onCode: (code: number) => void
  const code = new Promise<number>((resolve) => onCode = resolve)
  child.stdout.on("data", (chunk) => {
    const lines = (rest + String(chunk)).split("\n")
    rest = lines.pop()!
    for (const line of lines) {
      const said = JSON.parse(line)
      if (said.output !== undefined) screen.write(decoder.decode(Buffer.from(said.output, "base64"), { stream: true }))
      if (said.resized !== undefined) onResized()
      if (said.code !== undefined) {
        ended = said.code as number
        onCode(ended)
      }
      for (const look of Array.from(waiting)) look()
    }
  })
  const send = (command: unknown) => void child.stdin.write(`${JSON.stringify(command)}\n`)
  return {
    screen,
    code,
    until: (what) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const seen = screen.seen.join("\n")
          if (what.test(seen)) {
            waiting.delete(look)
            resolve()
          } else if (ended !== undefined) {
            reject(new Error(`it ended with ${ended}, and ${what} was not to be seen:\n${screen.all.join("\n")}`))
          }
        }
        waiting.add(look)
        look()
      }),
    keys: (keys) => send({ keys }),
    signal: (signal) => send({ signal }),
    resize: (rows, columns) =>
      new Promise((resolve) => {
        onResized = () => {
          screen.resize(rows, columns)
          resolve()
        }
        send({ size: [rows, columns] })
      })
  }
}

/** Nothing of what was drawn while the turn ran is left, and the terminal is as it was. */
const assertLeft = ({ screen }: Terminal) => {
  assert.isTrue(screen.cursor, "the cursor is back")
  assert.isTrue(screen.wrapping, "lines are wrapped again")
  assert.notMatch(screen.all.join("\n"), /[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|answered,/, "the lines that were drawn are gone")
}

const put = (at: string, millis: number) => ({ name: "put", arguments: { at, millis } })

const hasPty = () => spawnSync("python3", ["-c", "import pty, fcntl, termios"], { timeout: 10_000 }).status === 0

describeProgram("the program in a terminal", "python3 with a pty module", hasPty, () => {
  it("shows a line for each call: what runs, what waits and for what, and leaves the outcomes", async () => {
    const file = message("door", [put("door", 1200), put("door", 10), { name: "look", arguments: { at: "window" } }])
    const terminal = start(["run", file, "--tools", tools])
    await terminal.until(
      /^#0 put +\S running [\d.]+ m?s\n#1 put +· waiting [\d.]+ m?s for #0 by place\/door\n#2 look +✓ ok in \d+ ms\n1 of 3 answered, /m
    )
    assert.isFalse(terminal.screen.cursor)
    assert.strictEqual(await terminal.code, 0)
    assertLeft(terminal)
    const left = terminal.screen.all.join("\n")
    assert.match(left, /^call +outcome +effect +again\? +time +for the model\n#0 put +ok +applied/m)
    assert.match(left, /^3 calls in [\d.]+ s: 3 ok$/m)
    assert.match(left, /"outcomes":/, "the messages come behind")
  })

  it("says which backend is waited for, and how much it takes at once", async () => {
    const file = message("desk", [{ name: "ask", arguments: { millis: 1500 } }, {
      name: "ask",
      arguments: { millis: 1 }
    }])
    const terminal = start(["run", file, "--tools", "test/fixtures/cli/slow.ts"])
    await terminal.until(/#1 ask +· waiting [\d.]+ m?s for slow\/Desk \(1 at once\)/)
    terminal.keys(ctrlC)
    assert.strictEqual(await terminal.code, 130)
    assertLeft(terminal)
  })

  it("stops at Ctrl-C, says what it waits for, and leaves the outcomes", async () => {
    const file = message("stop", [put("door", 1500), put("door", 1), { name: "wait" }])
    const terminal = start(["run", file, "--tools", tools])
    await terminal.until(/#0 put +\S running/)
    terminal.keys(ctrlC)
    await terminal.until(
      /stopping: by_caller \(interrupted\)\nstopping: waiting for #0 put \(Ctrl-C again leaves at once;\s+whether\s+it\s+took\s+effect\s+would\s+not\s+be\s+known\)/
    )
    assert.strictEqual(await terminal.code, 130)
    assertLeft(terminal)
    assert.match(terminal.screen.all.join("\n"), /#0 put +ok[\s\S]*#1 put +cancelled[\s\S]*#2 wait +cancelled/)
  })

  it.each(["SIGTERM", "SIGHUP"])("stops in the same way at %s", async (name) => {
    const terminal = start(["run", message("signal", [{ name: "wait" }]), "--tools", tools])
    await terminal.until(/#0 wait +\S running/)
    terminal.signal(name)
    assert.strictEqual(await terminal.code, 130)
    assertLeft(terminal)
    assert.match(terminal.screen.all.join("\n"), /#0 wait +cancelled \(by_caller\)/)
  })

  it("leaves at once at a second Ctrl-C, says that it does not know, and gives the terminal back", async () => {
    const terminal = start(["run", message("leave", [put("door", 60_000)]), "--tools", tools])
    await terminal.until(/#0 put +\S running/)
    terminal.keys(ctrlC)
    await terminal.until(/stopping: waiting for #0 put/)
    terminal.keys(ctrlC)
    assert.strictEqual(await terminal.code, 130)
    assert.isTrue(terminal.screen.cursor && terminal.screen.wrapping)
    assert.match(
      terminal.screen.all.join("\n"),
      /left at once: whether writes that had started took effect is not\n?\s*known/
    )
  })

  const shelves = (count: number) =>
    Array.from(
      { length: count },
      (_, i) => put(i % 3 === 0 ? "日本語の場所の名前がとても長い" : `shelf ${i}`, 60_000 + i)
    )

  it("fits a terminal that becomes narrower while it runs", async () => {
    const args = ["run", message("some", shelves(7)), "--tools", tools, "--grace", "0"]
    const terminal = start(args, { rows: 30, columns: 100 })
    await terminal.until(/^#3 put +· waiting [\d.]+ m?s for #0 by place\/日本語の場所の名前がとても長い$/m)
    await terminal.resize(30, 32)
    await terminal.until(/^#3 put +· waiting [\d.]+ m?s f.*…$[^]*^0 of 7 answered/m)
    const seen = terminal.screen.seen
    assert.deepStrictEqual(seen.filter((line) => displayWidth(line) > 32), [])
    assert.strictEqual(seen.filter((line) => line.startsWith("#3 put")).length, 1, "nothing of the wider lines is left")
    terminal.keys(ctrlC)
    assert.strictEqual(await terminal.code, 130)
    assertLeft(terminal)
    assert.strictEqual(terminal.screen.all.filter((line) => line === "#0 put").length, 1)
  })

  it("shows what is at work where there are more calls than rows", async () => {
    const args = ["run", message("many", shelves(20)), "--tools", tools, "--grace", "0"]
    const terminal = start(args, { rows: 10, columns: 40 })
    await terminal.until(/^#\d+ put [^\n]*\n0 of 20 answered, [^\n]*13 more/m)
    assert.deepStrictEqual(terminal.screen.all.filter((line) => displayWidth(line) > 40), [])
    assert.strictEqual(terminal.screen.all.filter((line) => /^#\d+ put/.test(line)).length, 7)
    terminal.keys(ctrlC)
    assert.strictEqual(await terminal.code, 130)
    assertLeft(terminal)
  })

  it("goes aside for Ctrl-Z, and comes back", async () => {
    const terminal = start(["run", message("aside", [{ name: "wait" }]), "--tools", tools])
    await terminal.until(/#0 wait +\S running/)
    terminal.signal("SIGTSTP")
    await terminal.until(/^$/)
    assert.isTrue(terminal.screen.cursor && terminal.screen.wrapping)
    terminal.signal("SIGCONT")
    await terminal.until(/#0 wait +\S running/)
    assert.isFalse(terminal.screen.cursor)
    terminal.keys(ctrlC)
    assert.strictEqual(await terminal.code, 130)
    assertLeft(terminal)
  })

  it("writes plain lines on a terminal that can do no more", async () => {
    const terminal = start(["run", message("dumb", [put("door", 1)]), "--tools", tools], { env: { TERM: "dumb" } })
    assert.strictEqual(await terminal.code, 0)
    assert.notInclude(terminal.screen.written, "\u001b")
    assert.match(terminal.screen.all.join("\n"), /start +#0 put/)
  })

  it("exits 1 where a call is not ok, and 2 where there is nothing to read", async () => {
    const failing = start(["run", message("fails", [{ name: "break" }]), "--tools", tools])
    assert.strictEqual(await failing.code, 1)
    assertLeft(failing)
    const nothing = start(["run", "--tools", tools])
    assert.strictEqual(await nothing.code, 2)
    assert.match(nothing.screen.all.join("\n"), /effect-turn: no message\n[\s\S]*standard input is a terminal/)
  })
})
