import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { ToolCall, type TurnError } from "effect-turn"
import { AnthropicMessages } from "effect-turn/wire"
import { byProvider, ok, refused, ways } from "./outcomes.ts"
import { anthropicRefusal } from "./provider.ts"

const use = (id: unknown, name: string, input: unknown, rest?: object) => ({
  type: "tool_use",
  id,
  name,
  input,
  ...rest
})
const text = (text: string) => ({ type: "text", text })
const thinking = { type: "thinking", thinking: "So", signature: "c2ln" }
const redacted = { type: "redacted_thinking", data: "eA==" }
const message = (...content: ReadonlyArray<unknown>) => ({ role: "assistant", content })

const decoded = (input: unknown) => Result.getOrThrow(AnthropicMessages.decode(input))

const failure = (result: Result.Result<unknown, TurnError.TurnError>) => Result.getOrThrow(Result.flip(result)).message

const history = (input: unknown, end: (call: ToolCall.ToolCall, position: number) => any): Array<any> => {
  const { calls, message } = decoded(input)
  return Result.getOrThrow(AnthropicMessages.history(message, calls, calls.map(end)))
}

describe("decode", () => {
  it("takes a response, and the bare message", () => {
    const content = [thinking, text("I look."), use("toolu_1", "f", { x: 1 })]
    const calls = [ToolCall.make("toolu_1", "f", { x: 1 })]
    const whole = { id: "msg_1", type: "message", usage: {}, stop_reason: "tool_use", ...message(...content) }
    assert.deepStrictEqual(decoded(whole), { message: whole as never, calls, finishReason: "tool-calls" })
    assert.deepStrictEqual(decoded(message(...content)).calls, calls)
    assert.deepStrictEqual(decoded({ role: "assistant", content: "hello" }).calls, [])
  })

  it.each([
    ["tool_use", "tool-calls"],
    ["end_turn", "stop"],
    ["stop_sequence", "stop"],
    ["max_tokens", "length"],
    ["model_context_window_exceeded", "length"],
    ["pause_turn", "pause"],
    ["refusal", "content-filter"],
    ["compaction", "other"],
    [null, undefined]
  ])("reads the stop reason %s", (stop_reason, expected) => {
    assert.strictEqual(decoded({ ...message(), stop_reason }).finishReason, expected as never)
  })

  it("hands the input over as it came", () => {
    const given = [{}, { a: 1 }, "", '{"a', null, [1], 7]
    assert.deepStrictEqual(
      decoded(message(...given.map((input) => use("i", "f", input)))).calls.map((c) => c.arguments),
      given
    )
    assert.deepStrictEqual(decoded(message({ type: "tool_use", name: "f" })).calls, [{ id: "", name: "f" }])
  })

  it("takes what the provider ran for no calls, and leaves it in its place", () => {
    const content = [
      { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "q" } },
      { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [{ encrypted_content: "x" }] },
      { type: "mcp_tool_use", id: "mcptoolu_1", name: "f", server_name: "s", input: {} },
      { type: "mcp_tool_result", tool_use_id: "mcptoolu_1", is_error: false, content: [text("")] },
      redacted,
      { type: "container_upload", file_id: "file_1" },
      { type: "something_new", payload: { text: "" } },
      // Its result comes when the message goes back.
      { type: "server_tool_use", id: "srvtoolu_2", name: "web_search", input: { query: "q" } }
    ]
    const paused = { ...message(...content), stop_reason: "pause_turn" }
    assert.deepStrictEqual(decoded(paused).calls, [])
    assert.deepStrictEqual(history(paused, () => assert.fail()), [message(...content)])
  })

  it.each<[string, unknown, string]>([
    ["null", null, "at its root: expected a message of the assistant, and got null"],
    ["text", "{}", "and got text (parse it first)"],
    ["a user's message", { role: "user", content: "hi" }, 'at role: expected "assistant", and got "user"'],
    ["no content", { role: "assistant" }, "at content: expected a value, and got nothing"],
    ["content that is none", { role: "assistant", content: 1 }, "at content: expected string | array, and got 1"],
    ["a block without a type", message({ text: "" }), "at content[0].type: expected a value, and got nothing"],
    [
      "no name",
      message(text("a"), { type: "tool_use", id: "i" }),
      "at content[1].name: expected a value, and got nothing"
    ]
  ])("refuses %s", (_, input, expected) => {
    assert.include(failure(AnthropicMessages.decode(input)), expected)
  })
})

describe("history", () => {
  it("gives the message, and one message with the results of all calls, failures marked", () => {
    const content = [thinking, text("I look."), redacted, use("a", "f", { x: 1 }), use("b", "g", {})]
    const whole = {
      id: "msg_1",
      type: "message",
      model: "m",
      usage: {},
      stop_reason: "tool_use",
      ...message(...content)
    }
    assert.deepStrictEqual(
      history(whole, (call, i) => i === 0 ? ok(call, i, { n: 1 }) : refused(call, i, "invalid_arguments", "no")),
      [
        message(...content),
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "a", content: '{"n":1}' },
            {
              type: "tool_result",
              tool_use_id: "b",
              content: '{"status":"error","code":"invalid_arguments","retryable":true,"message":"no"}',
              is_error: true
            }
          ]
        }
      ]
    )
  })

  it("marks whatever is not ok, and nothing else", () => {
    const [, results] = history(message(...ways.map((_, i) => use(`${i}`, "f", {}))), (call, i) => ways[i]!(call, i))
    assert.deepStrictEqual(
      results.content.map((result: any) => result.is_error ?? false),
      ways.map((way, i) => way({ id: "", name: "" }, i).status !== "ok")
    )
  })

  it("names a call anew, in call and result, where its id would be refused", () => {
    const [sent, results] = history(
      message(use("", "f", {}), use("functions.f:0", "f", {}), use("toolu_1", "f", {}), use("toolu_1", "f", { y: 1 })),
      (call, i) => ok(call, i, i)
    )
    const ids = ["call_0", "call_1", "toolu_1", "call_3"]
    assert.deepStrictEqual(sent.content.map((block: any) => block.id), ids)
    assert.deepStrictEqual(results.content.map((block: any) => block.tool_use_id), ids)
  })

  it("answers a re-delivered call once, and leaves out what the provider ran", () => {
    const [sent, results] = history(
      message(use("a", "f", { x: 1, y: 2 }), use("a", "f", { y: 2, x: 1 }), use("b", "web", {}), use("c", "g", {})),
      (call, i) => i === 2 ? byProvider(call, i) : ok(call, i, i)
    )
    assert.deepStrictEqual(sent.content.map((block: any) => block.id), ["a", "c"])
    assert.deepStrictEqual(results.content.map((block: any) => [block.tool_use_id, block.content]), [["a", "0"], [
      "c",
      "3"
    ]])
  })

  it("never sends raw text back, nor half a surrogate pair", () => {
    const [sent] = history(
      message(use("a", "f", '{"x":'), use("b", "f", '{"x":1}'), use("c", "f", { "\ud83d": ["\\ud83d \ud83d"] })),
      (call, i) => ok(call, i, i)
    )
    assert.deepStrictEqual(sent.content.map((block: any) => block.input), [{}, { x: 1 }, {
      "\ufffd": ["\\ud83d \ufffd"]
    }])
  })

  it("drops blank text, and what the SDK adds to text", () => {
    const said = { ...text("hi"), citations: null }
    const [sent] = history(
      message(text(""), { ...said, parsed_output: {} }, text(" \n"), use("a", "f", {})),
      (c, i) => ok(c, i, 1)
    )
    assert.deepStrictEqual(sent.content, [said, use("a", "f", {})])
  })

  it("keeps what blocks carry, and names the toolset of a call in its result", () => {
    const block = use("a", "close_tab", {}, { caller: { type: "direct" }, toolset_name: "browser", "x-new": [1] })
    const [sent, results] = history(message(block), (call, i) => ok(call, i, 1))
    assert.deepStrictEqual(sent.content, [block])
    assert.strictEqual(results.content[0].toolset_name, "browser")
  })

  it("gives back a message without calls", () => {
    assert.deepStrictEqual(
      history({ role: "assistant", content: "hello" }, () => assert.fail()),
      [message()].map((one) => ({
        ...one,
        content: "hello"
      }))
    )
  })

  it.each([[[]], [""], [" "], [[text("")]]])("refuses to send an empty message: %j", (content) => {
    const given = decoded({ role: "assistant", content })
    assert.include(
      failure(AnthropicMessages.history(given.message, given.calls, [])),
      "at content: expected text or calls (an empty message is refused), and got an empty message"
    )
  })
})

it("the check refuses what it should", () => {
  const made = message(use("a", "f", {}))
  const result = { type: "tool_result", tool_use_id: "a", content: "1" }
  const results = (...content: ReadonlyArray<unknown>) => ({ role: "user", content })
  assert.isUndefined(anthropicRefusal([made, results(result)]))
  for (
    const [messages, words] of [
      [[made], "without `tool_result`"],
      [[made, results(text("hi"), result)], "without `tool_result`"],
      [[made, results(result, result)], "a single result"],
      [[made, results(result, { ...result, tool_use_id: "b" })], "unexpected `tool_use_id`"],
      [[message(use("a", "f", {}), use("a", "f", {})), results(result)], "must be unique"],
      [[message(use("a.b", "f", {})), results(result)], "pattern"],
      [[message(use("a", "f.g", {})), results(result)], "pattern"],
      [[message(use("a", "f", "{}")), results(result)], "dictionary"],
      [[message(use("a", "f", "{}")), results(result)], "dictionary"],
      [[message()], "non-empty content"],
      [[message(text(""))], "non-empty"],
      [[{ ...made, id: "msg_1" }, results(result)], "Extra inputs"],
      [[made, results({ ...result, content: "" })], "non-empty"],
      [[made, results({ ...result, content: "\ud83d" })], "surrogate"]
    ] as ReadonlyArray<[ReadonlyArray<any>, string]>
  ) assert.include(anthropicRefusal(messages), words)
})
