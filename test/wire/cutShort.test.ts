/** What of a response that was cut short must not go back, and what must not start. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { AnthropicMessages, type AnyDialect, OpenAiResponses } from "effect-turn/wire"
import { refused } from "./outcomes.ts"
import { rules } from "./server/rules.ts"

/** The history of a response whose calls were not run. */
const history = (dialect: AnyDialect, response: unknown): ReadonlyArray<unknown> => {
  const { calls, message } = Result.getOrThrow(dialect.decode(response))
  return Result.getOrThrow(
    dialect.history(message, calls, calls.map((call, i) => refused(call, i, "incomplete_response", "cut short")))
  )
}

const thinking = { type: "thinking", thinking: "hm", signature: "c2ln" }

const reasoning = (id: string) => ({ type: "reasoning", id, summary: [], encrypted_content: "b3BhcXVl" })

describe("Anthropic", () => {
  it("leaves out the thinking that nothing follows", () => {
    const text = { type: "text", text: "so far" }
    const content = [thinking, text, thinking, { type: "redacted_thinking", data: "ZA==" }]
    const sent = history(AnthropicMessages.dialect, { role: "assistant", stop_reason: "max_tokens", content })
    assert.deepStrictEqual(sent, [{ role: "assistant", content: [thinking, text] }])
    assert.isUndefined(rules.anthropic({ messages: [{ role: "user", content: "hi" }, ...sent] }))
  })

  it("leaves out the thinking before a call that came twice", () => {
    const call = { type: "tool_use", id: "a", name: "f", input: {} }
    const sent = history(AnthropicMessages.dialect, { role: "assistant", content: [thinking, call, thinking, call] })
    assert.deepStrictEqual(sent[0], { role: "assistant", content: [thinking, call] })
  })

  it("refuses a message of nothing but thinking", () => {
    const { message } = Result.getOrThrow(AnthropicMessages.decode({ role: "assistant", content: [thinking] }))
    const sent = AnthropicMessages.history(message, [], [])
    assert.include(Result.getOrThrow(Result.flip(sent)).message, "an empty message is refused")
  })

  it("leaves out the file of a citation, which requests may not name", () => {
    const citation = {
      type: "char_location",
      cited_text: "c",
      document_index: 0,
      document_title: null,
      start_char_index: 0,
      end_char_index: 1
    }
    const text = (cited: unknown) => ({ role: "assistant", content: [{ type: "text", text: "c", citations: [cited] }] })
    const sent = history(AnthropicMessages.dialect, text({ ...citation, file_id: null }))
    assert.deepStrictEqual(sent, [text(citation)])
  })
})

describe("Responses", () => {
  const call = (n: number, status = "completed") => ({
    type: "function_call",
    id: `fc_${n}`,
    call_id: `call_${n}`,
    name: "f",
    arguments: "{}",
    status
  })

  it("leaves out the reasoning that nothing follows", () => {
    const sent = history(OpenAiResponses.dialect, [reasoning("rs_1"), call(1), reasoning("rs_2"), reasoning("rs_3")])
    assert.deepStrictEqual(sent.slice(0, 2), [reasoning("rs_1"), call(1)])
    assert.strictEqual(sent.length, 3)
    assert.isUndefined(rules.responses({ input: sent }))
    assert.deepStrictEqual(history(OpenAiResponses.dialect, [reasoning("rs_1")]), [])
  })

  it("starts nothing behind a call that was cut", () => {
    const assembler = OpenAiResponses.dialect.assembler()
    const items = [call(1), call(2, "incomplete"), call(3)]
    const given = items.flatMap((item, output_index) => [
      ...Result.getOrThrow(assembler.push({ type: "response.output_item.added", output_index, item })),
      ...Result.getOrThrow(assembler.push({ type: "response.output_item.done", output_index, item }))
    ])
    assert.deepStrictEqual(given.map(({ id }) => id), ["call_1"])
  })
})
