import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll, beforeAll } from "vitest"
import { main } from "../../src/cli/index.ts"

// examples/scenarios/README.md: what it shows is what is there, and what it tells to type does what it says.

const root = path.join(import.meta.dirname, "../..")
const folder = path.join(root, "examples/scenarios")
const page = fs.readFileSync(path.join(folder, "README.md"), "utf8")
const fences = [...page.matchAll(/^```(\w+)([^\n]*)\n([\s\S]*?)^```/gm)].map(([, language, info, text]) => ({
  language: language!,
  info: info!,
  text: text!
}))
const of = (language: string) => fences.filter((fence) => fence.language === language)

/** A folder as the page imagines it. */
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
beforeAll(() => {
  fs.cpSync(folder, path.join(scratch, "scenarios"), { recursive: true })
  fs.copyFileSync(path.join(root, "test/fixtures/cli/message.json"), path.join(scratch, "message.json"))
  for (const { text } of of("json")) fs.writeFileSync(path.join(scratch, `${JSON.parse(text).name}.json`), text)
})
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

/** Runs a line of the page: words, quoted words, and one kind of pattern. */
const typed = (line: string) =>
  Effect.gen(function*() {
    const [program, ...words] = Array.from(line.matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, word]) => quoted ?? word!)
    assert.strictEqual(program, "effect-turn")
    const args = words.flatMap((word) => {
      if (word === "./tools.ts") return [path.join(root, "test/fixtures/cli/tools.ts")]
      if (word.endsWith("*.json")) {
        return fs.globSync(word, { cwd: scratch }).sort().map((file) => path.join(scratch, file))
      }
      return [word.endsWith(".json") ? path.join(scratch, word) : word]
    })
    const code = yield* main(args)
    return { code, err: (yield* TestConsole.errorLines).join("\n").replaceAll(`${scratch}${path.sep}`, "") }
  }).pipe(Effect.provide(Layer.merge(TestConsole.layer, NodeServices.layer)))

/** What may be otherwise in another version: which seed, which steps. */
const lasting = (text: string): string =>
  text.split("What ran when")[0]!.replace(/\(seed \d+\)/, "(seed …)").replace(/--replay \S+/, "--replay …").trim()

describe("the page on scenarios", () => {
  const commands = of("sh").flatMap(({ text }) => text.trim().split("\n"))

  it("shows the files that stand beside it, and names them all", () => {
    const files = fs.readdirSync(folder).filter((name) => name.endsWith(".json"))
    const shown = of("json").filter(({ text }) => files.includes(`${JSON.parse(text).name}.json`))
    assert.isAbove(shown.length, 0)
    for (const { text } of shown) {
      assert.strictEqual(fs.readFileSync(path.join(folder, `${JSON.parse(text).name}.json`), "utf8"), text)
    }
    for (const name of files) assert.include(page, `[${name}](${name})`)
  })

  it("shows a suite that is one of ours", () => {
    const own = fs.readFileSync(path.join(root, "test/testing/examples.test.ts"), "utf8")
    const shown = of("ts").filter(({ text }) => text.includes("it.effect.each"))
    assert.strictEqual(shown.length, 1)
    assert.isTrue(own.startsWith(shown[0]!.text.replace('"scenarios"', '"../../examples/scenarios"')))
  })

  it("there are commands on it", () => assert.isAbove(commands.length, 4))

  it.live.each(commands)("%s", (line) =>
    Effect.gen(function*() {
      const { code, err } = yield* typed(line)
      const fails = /--(explore|replay) .*search-is-in-time/.test(line)
      assert.strictEqual(code, fails ? 1 : 0, err)
      if (!line.includes("--explore") || !fails) return
      const shown = of("text")
      assert.strictEqual(shown.length, 1)
      assert.strictEqual(lasting(err), lasting(shown[0]!.text))
      for (const text of [err, shown[0]!.text]) {
        assert.match(text, /^ +> +\d+ +20 ms .*\[(.* gives way|before \d+ older of \d+)\]/m)
      }
    }))
})
