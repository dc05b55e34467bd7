import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { rules } from "../wire/server/rules.ts"
import { run } from "./program.ts"

const fixture = (name: string) => path.join(import.meta.dirname, "../fixtures/histories", name)

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

let files = 0
const written = (text: string) => {
  const file = path.join(scratch, `${++files}.json`)
  fs.writeFileSync(file, text)
  return file
}

describe("check", () => {
  it.live("tells what is wrong, where, and what would be done", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["check", fixture("anthropic-trimmed.json")])
      assert.deepStrictEqual([code, err], [1, ""])
      assert.deepStrictEqual(out.split("\n"), [
        "messages[0].content[0]",
        '  refused  the result of "toolu_01" has no call before it',
        "  --fix    it is taken out",
        "messages[1]",
        "  refused  the history begins with the model",
        "  --fix    a message of the user goes before it, which says that the beginning is missing",
        "messages[1].content[0]",
        "  refused  the text is blank",
        "  --fix    it is left out",
        "messages[1].content[2]",
        '  refused  book_hotel ("toolu_03") has no result',
        "  --fix    it is answered that nobody knows whether it took effect",
        "messages[2].content[0]",
        "  refused  something stands in front of results",
        "  --fix    it is moved behind them",
        "",
        "5 problems in this history of Anthropic's Messages: 5 refused"
      ])
    }))

  it.live("says that a history is sound", () =>
    Effect.gen(function*() {
      const { code, err, out } = yield* run(["check", fixture("gemini-sound.json")])
      assert.deepStrictEqual([code, out, err], [
        0,
        "sound: nothing in this history of Gemini is known to be refused",
        ""
      ])
      const fixed = yield* run(["check", fixture("gemini-sound.json"), "--fix"])
      assert.deepStrictEqual([fixed.code, fixed.err], [0, "nothing to change in this history of Gemini"])
      assert.deepStrictEqual(JSON.parse(fixed.out), JSON.parse(fs.readFileSync(fixture("gemini-sound.json"), "utf8")))
    }))

  it.live("reads messages in lines, and tells what is still open", () =>
    Effect.gen(function*() {
      const { code, out } = yield* run(["check", fixture("chat-crashed.jsonl")])
      assert.strictEqual(code, 1)
      assert.include(out, '[2].tool_calls[0]\n  open     book_hotel ("call_1") has no result: it is open at the end')
      assert.include(out, "1 problem in this history of Chat Completions: 1 open")
      const fixed = yield* run(["check", "-", "--fix"], {
        stdin: fs.readFileSync(fixture("chat-crashed.jsonl"), "utf8")
      })
      const messages = fixed.out.split("\n").map((line) => JSON.parse(line))
      assert.strictEqual(fixed.code, 0)
      assert.deepStrictEqual(messages.map((message) => message.tool_call_id ?? message.role), [
        "system",
        "user",
        "assistant",
        "call_1",
        "call_2"
      ])
      assert.isUndefined(rules.chat({ messages }))
    }))

  it.live("writes the mended history to a file, and tells what was changed", () =>
    Effect.gen(function*() {
      const output = path.join(scratch, "mended.json")
      const args = ["check", fixture("responses-repeated.json"), "--fix", "--output", output]
      const { code, err, out } = yield* run(args)
      assert.deepStrictEqual([code, out, err.split("\n")], [0, "", [
        '[5]  refund ("call_1") is answered elsewhere, with something else: that answer stays, and this one becomes words of the user',
        "1 change to this history of Responses",
        `history written: ${output}`
      ]])
      const input = JSON.parse(fs.readFileSync(output, "utf8"))
      assert.deepStrictEqual(input.at(-1), { role: "user", content: 'Another answer to refund ("call_1"): refunded' })
      assert.isUndefined(rules.responses({ input }))
      const again = yield* run(args)
      assert.strictEqual(again.code, 2)
      assert.include(again.err, "a file that is there already")
      fs.writeFileSync(output, "{}")
      assert.strictEqual((yield* run([...args, "--force"])).code, 0)
      assert.deepStrictEqual(JSON.parse(fs.readFileSync(output, "utf8")), input)
    }))

  it.live("--json prints one object", () =>
    Effect.gen(function*() {
      const { out } = yield* run(["check", fixture("responses-repeated.json"), "--json"])
      const found = JSON.parse(out)
      assert.strictEqual(found.dialect, "responses")
      assert.deepStrictEqual(found.problems.map(({ code, kind, path }: any) => [path, code, kind]), [
        ["[5]", "late_result", "refused"]
      ])
      const fixed = yield* run(["check", fixture("chat-crashed.jsonl"), "--fix", "--json"])
      const mended = JSON.parse(fixed.out)
      assert.deepStrictEqual(Object.keys(mended).sort(), ["changes", "dialect", "history", "open"])
      assert.deepStrictEqual(mended.open.map(({ last, name }: any) => [name, last]), [["book_hotel", true]])
    }))

  it.live("texts of others do not steer the terminal, and lines fit it", () =>
    Effect.gen(function*() {
      const file = written(JSON.stringify([
        { role: "user", content: "hm" },
        {
          role: "assistant",
          content: [{ type: "tool_use", id: "a", name: "\u001b[31mred\n\u202e", input: {} }]
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "\u001b[2J", content: "x" }] }
      ]))
      const { err, out } = yield* run(["check", file], { stdout: { columns: 60, rows: 30 } })
      const colours = /\u001b\[(?:2|22|31|33|39)m/g
      assert.isFalse(/\u001b\[31mred|\u001b\[2J|\u202e/.test(out + err))
      assert.isFalse(/\u001b/.test((out + err).replace(colours, "")))
      for (const line of out.split("\n")) assert.isAtMost(line.replace(colours, "").length, 60)
      const fixed = yield* run(["check", file, "--fix"])
      assert.isFalse(/[\u001b\u202e]/.test(fixed.err))
    }))

  it.live("refuses what cannot be, in words", () =>
    Effect.gen(function*() {
      const sound = fixture("gemini-sound.json")
      const own = written(fs.readFileSync(sound, "utf8"))
      for (
        const [args, words] of [
          [[sound, "--output", "x.json"], "--output without --fix"],
          [[sound, "--force"], "--force without --output"],
          [[own, "--fix", "--output", own, "--force"], "the history that came is never overwritten"],
          [[sound, "--fix", "--output", path.join(scratch, "no", "x.json")], "no such folder"],
          [[sound, "--dialect", "neutral"], "gemini"],
          [[path.join(scratch, "none.json")], "no such file"],
          [[written("")], "is empty"],
          [[written("[]")], "is an empty history"],
          [[written("[{")], "is not JSON"],
          [[written('{"role":"user"}\n{"role":')], "line 2 of those that are not blank, is not JSON"],
          [[written('{"calls":[]}')], "the neutral form, which has calls and no history"],
          [[written('{"messages":[1]}')], "at messages[0]"],
          [[written("3")], "is no history"]
        ] as const
      ) {
        const { code, err, out } = yield* run(["check", ...args])
        assert.deepStrictEqual([code, out], [2, ""], words)
        assert.include(err, words)
        assert.include(err, "  do  ")
      }
      assert.strictEqual(fs.readFileSync(own, "utf8"), fs.readFileSync(sound, "utf8"))
      const none = yield* run(["check"], { terminal: true })
      assert.strictEqual(none.code, 2)
      assert.include(none.err, "neither: standard input is a terminal")
    }))

  it.live("whose history it is can be said", () =>
    Effect.gen(function*() {
      // Plain texts are the same in two dialects; an empty one is refused in one of them.
      const file = written(JSON.stringify([{ role: "user", content: "hm" }, { role: "user", content: "" }]))
      assert.strictEqual((yield* run(["check", file])).code, 0)
      const { code, out } = yield* run(["check", file, "--dialect", "anthropic"])
      assert.strictEqual(code, 1)
      assert.include(out, "the message is empty")
    }))
})
