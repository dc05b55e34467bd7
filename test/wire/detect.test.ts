import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { detect, dialects } from "effect-turn/wire"

const toolUse = { type: "tool_use", id: "t", name: "f", input: {} }
const functionCall = { type: "function_call", call_id: "c", name: "f", arguments: "{}" }
const reasoning = { type: "reasoning", id: "rs_1", summary: [] }
const text = (type: string) => ({ type, text: "hi" })

describe("detect", () => {
  it.each<[string, ReadonlyArray<unknown>]>([
    ["chat", [
      { choices: [] },
      { message: {}, finish_reason: null },
      { role: "assistant" },
      { role: "assistant", content: "hi" },
      { role: "assistant", content: [text("text")] },
      // Mistral's thinking is a list.
      { role: "assistant", content: [{ type: "thinking", thinking: [text("text")] }, text("text")] }
    ]],
    ["responses", [
      { object: "response", output: [] },
      { output: [functionCall], status: "completed" },
      [functionCall],
      [reasoning, functionCall],
      [{ type: "message", id: "m", role: "assistant", status: "completed", content: [text("output_text")] }],
      [{ type: "web_search_call", id: "ws", status: "completed", action: {} }],
      [{ type: "mcp_approval_request", id: "m", name: "f", arguments: "{}", server_label: "s" }]
    ]],
    ["anthropic", [
      { id: "m", type: "message", role: "assistant", content: [], stop_reason: "end_turn" },
      { type: "message", role: "assistant", content: [text("text")] },
      { role: "assistant", content: [toolUse] },
      { role: "assistant", content: [{ type: "thinking", thinking: "so", signature: "s" }, text("text")] },
      { role: "assistant", content: [{ type: "mcp_tool_use", id: "m", name: "f", server_name: "s", input: {} }] },
      { role: "assistant", content: "hi", stop_reason: "end_turn" }
    ]],
    ["gemini", [
      { candidates: [] },
      { promptFeedback: { blockReason: "SAFETY" } },
      { content: { role: "model", parts: [] } },
      { content: { role: "model" }, finishReason: "STOP" },
      { role: "model", parts: [{ functionCall: { name: "f" } }] },
      { parts: [{ text: "hi" }] }
    ]],
    ["neutral", [[], [{ name: "f" }], [{ id: "1", name: "f", arguments: {} }], { calls: [] }]]
  ])("knows %s by its shape", (id, inputs) => {
    for (const input of inputs) {
      assert.strictEqual(Result.getOrThrow(detect(input)).id, id, JSON.stringify(input))
      assert.deepStrictEqual(
        dialects.filter((dialect) => dialect.matches(input)).map((dialect) => dialect.id).slice(0, 1),
        [id]
      )
    }
  })

  it("takes no message for two providers' but where they are the same", () => {
    const toolCalls = { role: "assistant", tool_calls: [{ id: "1", function: { name: "f", arguments: "{}" } }] }
    for (
      const input of [
        toolCalls,
        { output: [functionCall], object: "response" },
        [reasoning],
        { type: "message", role: "assistant", content: [toolUse] },
        { role: "model", parts: [] }
      ]
    ) {
      assert.lengthOf(dialects.filter((dialect) => dialect.matches(input)), 1, JSON.stringify(input))
    }
  })

  it("names each dialect once", () => {
    assert.strictEqual(new Set(dialects.map((dialect) => dialect.name)).size, dialects.length)
    assert.deepStrictEqual(dialects.map(({ id }) => id), ["chat", "responses", "anthropic", "gemini", "neutral"])
  })

  it.each<[string, unknown, string]>([
    ["nothing", undefined, "and got undefined"],
    ["null", null, "and got null"],
    ["text", "{}", "and got text (parse it first)"],
    ["an empty object", {}, "and got an empty object"],
    ["another object", { id: "x", output: {} }, 'and got an object with the fields "id", "output"'],
    [
      "a conversation",
      [{ role: "user" }, { role: "assistant" }],
      "and got a list of 2 messages (hand over the assistant's message alone)"
    ],
    [
      "a conversation of contents",
      [{ role: "user", parts: [] }, { role: "model", parts: [] }],
      "and got a list of 2 contents (hand over the model's content alone)"
    ],
    [
      "a conversation of items",
      [{ role: "user", content: "hi" }, functionCall, { type: "function_call_output", call_id: "c", output: "" }],
      "and got a list of 3 items of a conversation (hand over those of the last response alone)"
    ],
    [
      "a request",
      { model: "m", messages: [] },
      "and got a request, with messages (hand over the assistant's message alone)"
    ],
    ["a request to Gemini", { contents: [] }, "and got a request, with contents (hand over the model's content alone)"],
    [
      "a request for a response",
      { model: "m", input: [] },
      "with input (hand over the items of the last response alone)"
    ],
    ["a list of something", [1, 2, 3], "and got a list of 3 things that are no calls"],
    ["an error response", { error: { message: "quota" } }, `and got the provider's error "quota"`],
    [
      "Anthropic's error",
      { type: "error", error: { type: "overloaded_error", message: "Overloaded" } },
      `and got the provider's error "Overloaded"`
    ],
    [
      "Gemini's error, as a stream has it",
      [{ error: { code: 400, message: "no" } }],
      `and got the provider's error "no"`
    ],
    [
      "an event of Anthropic's",
      { type: "message_start", message: {} },
      'and got "message_start", an event of a stream'
    ],
    ["an event of a response", { type: "response.created", response: {} }, '"response.created", an event of a stream'],
    ["a stream", [{ type: "message_start" }, { type: "ping" }], "a list of 2 events of a stream (assemble them first)"],
    [
      "Gemini's chunks",
      [{ candidates: [] }, { candidates: [] }],
      "a list of 2 events of a stream (assemble them first)"
    ]
  ])("says what it expected when it gets %s", (_, input, expected) => {
    const { message } = Result.getOrThrow(Result.flip(detect(input)))
    assert.include(message, "unknown message, at its root: expected a Chat Completions response")
    for (
      const what of ['"output"', "an Anthropic message", '"candidates"', '{"calls": [{"id", "name", "arguments"}]}']
    ) {
      assert.include(message, what)
    }
    assert.include(message, expected)
  })
})
