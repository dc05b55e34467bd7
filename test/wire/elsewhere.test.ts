/** What is another provider's is never read as a message without calls, or as a history without faults. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { dialects, History } from "effect-turn/wire"
import { listOf, written } from "./histories.ts"
import { type Provider, rules } from "./server/rules.ts"

const calls = [{ id: "call_1", name: "look", arguments: { at: "x" } }]

const call = { id: "call_1", type: "function", function: { name: "look", arguments: "{}" } }
const use = { type: "tool_use", id: "call_1", name: "look", input: {} }
const said = { role: "model", parts: [{ functionCall: { name: "look", args: {} } }] }
const item = { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" }

const responses: Record<Provider, ReadonlyArray<unknown>> = {
  chat: [
    { choices: [{ finish_reason: "tool_calls", message: { role: "assistant", content: "so", tool_calls: [call] } }] },
    { role: "assistant", content: "so", tool_calls: [call] },
    { role: "assistant", content: null, tool_calls: [call] }
  ],
  responses: [{ object: "response", status: "completed", output: [item] }, [item]],
  anthropic: [
    { type: "message", role: "assistant", stop_reason: "tool_use", content: [use] },
    { role: "assistant", content: [use] }
  ],
  gemini: [{ candidates: [{ finishReason: "STOP", content: said }] }, { content: said }, said]
}

describe.each(dialects.filter(({ id }) => id !== "neutral"))("$name", (dialect) => {
  it("reads its own calls", () => {
    for (const response of responses[dialect.id as Provider]) {
      assert.strictEqual(Result.getOrThrow(dialect.decode(response)).calls.length, calls.length)
    }
  })

  it("refuses another provider's calls, and errors", () => {
    const others = Object.entries(responses).filter(([id]) => id !== dialect.id).flatMap(([, all]) => all)
    assert.isAbove(others.length, 6)
    for (const response of [...others, {}, { error: { message: "overloaded" } }]) {
      const decoded = dialect.decode(response)
      assert.isTrue(Result.isFailure(decoded), JSON.stringify(response))
    }
  })

  it("finds no other provider's history sound, and empties none", () => {
    const talk = {
      ids: false,
      turns: [[{ says: true, thinks: false, calls: [{ name: "look", args: "{}", answer: "text" }] }]]
    } as const
    const id = dialect.id as Provider
    let seen = 0
    for (const provider of Object.keys(rules) as Array<Provider>) {
      const history = listOf(provider, written(provider, talk))
      const result = History.mend(history, { dialect: id })
      assert.strictEqual(Result.isSuccess(result), provider === id, `${provider} as ${id}`)
      seen++
    }
    assert.strictEqual(seen, 4)
  })
})

it("a history with an entry of another provider is refused, with its place", () => {
  const history = [{ role: "user", content: "hi" }, { role: "assistant", tool_calls: [call] }, {
    role: "user",
    content: [{ type: "tool_result", tool_use_id: "call_1", content: "x" }]
  }]
  const { reason } = Result.getOrThrow(Result.flip(History.check(history)))
  assert.deepStrictEqual(
    reason._tag === "InvalidMessage" && [reason.path, reason.expected, reason.received],
    ["[2]", "a message of Chat Completions", "a message of Anthropic"]
  )
})
