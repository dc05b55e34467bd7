/** The completion scripts, in the shells that are there. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { describeProgram } from "../utils/requires.ts"
import { run } from "./program.ts"

const root = path.join(import.meta.dirname, "../..")
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

const script = (shell: string) =>
  Effect.map(run(["--completions", shell]), ({ out }) => {
    const file = path.join(scratch, `completions.${shell}`)
    fs.writeFileSync(file, out)
    return file
  })

/** What stands at the cursor, and what may come there. */
const cases: ReadonlyArray<readonly [line: string, some: ReadonlyArray<string>]> = [
  ["effect-turn ", ["run", "plan", "scenario", "insights", "demo", "keys"]],
  ["effect-turn keys ", ["list", "show", "resolve", "expire"]],
  ["effect-turn run --sib", ["--siblings"]],
  ["effect-turn run --siblings ", ["let-finish", "fail-fast", "all-or-nothing"]],
  ["effect-turn run --execution ", ["parallel", "sequential"]],
  ["effect-turn plan --format ", ["text", "mermaid", "json"]],
  ["effect-turn run --tools test/fixtures/cli/to", ["test/fixtures/cli/tools.ts"]],
  ["effect-turn run --policy package.j", ["package.json"]],
  ["effect-turn run package.j", ["package.json"]],
  ["effect-turn scenario package.j", ["package.json"]],
  ["effect-turn --completions ", ["bash", "zsh", "fish"]]
]

const has = (command: string) => () => spawnSync(command, ["-c", "exit 0"], { timeout: 10_000 }).status === 0

const complete = (shell: string, args: ReadonlyArray<string>): ReadonlyArray<string> => {
  const { status, stderr, stdout } = spawnSync(shell, args, { cwd: root, encoding: "utf8", timeout: 20_000 })
  assert.strictEqual(status, 0, stderr)
  return stdout.split("\n").map((line) => line.split("\t")[0]!.trim())
}

describeProgram("in bash", "bash", has("bash"), () => {
  for (const [line, some] of cases) {
    it.live(line, () =>
      Effect.gen(function*() {
        const words = line.split(" ")
        const offered = complete("bash", [
          "--norc",
          "-c",
          `source "$1"; COMP_LINE="$2"; COMP_POINT=\${#2}; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
           _effect_turn effect-turn "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD-1]}"; printf '%s\\n' "\${COMPREPLY[@]}"`,
          "bash",
          yield* script("bash"),
          line,
          ...words
        ])
        assert.includeMembers([...offered], [...some])
      }))
  }
})

describeProgram("in fish", "fish", has("fish"), () => {
  for (const [line, some] of cases) {
    it.live(line, () =>
      Effect.gen(function*() {
        const offered = complete("fish", [
          "-N",
          "-c",
          'source $argv[1]; complete -C "$argv[2]"',
          yield* script("fish"),
          line
        ])
        assert.includeMembers([...offered], [...some])
      }))
  }
})

describeProgram("in zsh", "zsh", has("zsh"), () => {
  it.live("the script is understood", () =>
    Effect.gen(function*() {
      complete("zsh", ["-f", "-c", "autoload -U compinit && compinit -D && source $1", "zsh", yield* script("zsh")])
    }))
})

describe("what takes a file", () => {
  it.live("is completed with files, in every command", () =>
    Effect.gen(function*() {
      const fish = fs.readFileSync(yield* script("fish"), "utf8")
      let checked = 0
      for (const command of ["run", "plan", "scenario", "insights", "keys resolve"]) {
        const { out } = yield* run([...command.split(" "), "--help"])
        for (const [, name] of out.matchAll(/^ +--([a-z-]+) (?:FILE|MODULE)\b/gm)) {
          checked++
          assert.match(fish, new RegExp(`-l ${name} .*-r -F$`, "m"), `${command} --${name}`)
        }
      }
      assert.isAbove(checked, 4)
    }))
})
