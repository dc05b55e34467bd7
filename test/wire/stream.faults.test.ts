import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { ToolCall, TurnError } from "effect-turn"
import {
  AnthropicMessages,
  type Dialect,
  EventStream,
  GeminiContents,
  OpenAiChat,
  OpenAiResponses
} from "effect-turn/wire"

type AnyDialect = Dialect.Dialect<any, any>

/** Pushes events; gives the calls of each, up to the first that is refused, and what it was refused with. */
const push = (dialect: AnyDialect, events: ReadonlyArray<unknown>) => {
  const assembler = dialect.assembler()
  const pushed: Array<ReadonlyArray<ToolCall.ToolCall>> = []
  let failure: string | undefined
  for (const event of events) {
    const calls = assembler.push(event)
    if (Result.isFailure(calls)) {
      failure = (calls.failure as TurnError.TurnError).message
      break
    }
    pushed.push(calls.success)
  }
  return { assembler, pushed, failure, end: Result.getOrThrow(assembler.end()) }
}

const ids = (pushed: ReadonlyArray<ReadonlyArray<ToolCall.ToolCall>>) =>
  pushed.map((calls) => calls.map(({ id }) => id))

describe("Chat Completions", () => {
  const chunk = (delta: unknown, finish_reason: string | null = null, index = 0) => ({
    object: "chat.completion.chunk",
    choices: [{ index, delta, finish_reason }]
  })
  const calls = (...tool_calls: ReadonlyArray<unknown>) => chunk({ tool_calls })
  const piece = (fields: object, name: string | undefined, args?: unknown) => ({
    ...fields,
    function: {
      ...(name === undefined ? undefined : { name }),
      ...(args === undefined ? undefined : { arguments: args })
    }
  })
  const run = (...events: ReadonlyArray<unknown>) =>
    push(OpenAiChat.dialect, [...events, chunk({}, "tool_calls")]).end.calls.map((
      call
    ) => [call.id, call.name, call.arguments])

  it("two calls under one index, whose ids tell them apart", () => {
    assert.deepStrictEqual(
      run(calls(piece({ index: 0, id: "a" }, "f", "{}")), calls(piece({ index: 0, id: "b" }, "f", "{}"))),
      [["a", "f", "{}"], ["b", "f", "{}"]]
    )
  })

  it("two calls under one index, without ids", () => {
    assert.deepStrictEqual(
      run(
        calls(piece({ index: 0 }, "f", '{"a":1}')),
        calls(piece({ index: 0 }, "f", '{"a":2}')),
        calls(piece({ index: 0 }, "g", "{}"))
      ),
      [["", "f", '{"a":1}'], ["", "f", '{"a":2}'], ["", "g", "{}"]]
    )
  })

  it("a name and an id in pieces, and a name that grows", () => {
    assert.deepStrictEqual(
      run(
        calls({ index: 0, id: "call_" }, piece({ index: 1, id: "b" }, "get", "")),
        calls({ index: 0, id: "7" }),
        calls(piece({ index: 0 }, "get"), piece({ index: 1 }, "get_weather", "{")),
        calls(piece({ index: 0 }, "_weather", ""), piece({ index: 1 }, undefined, "}")),
        calls(piece({ index: 0 }, undefined, "{}"))
      ),
      [["call_7", "get_weather", "{}"], ["b", "get_weather", "{}"]]
    )
  })

  it("without index: by id, else the last call", () => {
    assert.deepStrictEqual(
      run(
        calls(piece({ id: "a" }, "f", '{"a"')),
        calls(piece({ id: "b" }, "g", '{"b"')),
        calls(piece({}, undefined, ":2}")),
        calls(piece({ id: "a" }, undefined, ":1}")),
        calls(piece({}, "h"), piece({}, "i"))
      ),
      [["a", "f", '{"a":1}'], ["b", "g", '{"b":2}'], ["", "h", undefined], ["", "i", undefined]]
    )
  })

  it("indices with gaps and out of order", () => {
    assert.deepStrictEqual(
      run(calls(piece({ index: 9, id: "b" }, "f", "{}")), calls(piece({ index: 3, id: "a" }, "f", "{}"))).map(([id]) =>
        id
      ),
      ["a", "b"]
    )
  })

  it("a call that never got its name is none, where the response broke off", () => {
    const { end } = push(OpenAiChat.dialect, [calls({ index: 0, id: "a" }, piece({ index: 1, id: "b" }, "f", "{"))])
    assert.deepStrictEqual(end.calls, [{ id: "b", name: "f", arguments: "{" }])
    assert.strictEqual(end.finishReason, "error")
  })

  it("what comes after the end: usage is kept, a new call is given with the response, more of a call is refused", () => {
    const events = [
      calls(piece({ index: 0, id: "a" }, "f", "{}")),
      chunk({}, "tool_calls"),
      { choices: [], usage: { total_tokens: 7 } },
      calls(piece({ index: 1, id: "b" }, "f", "{")),
      calls(piece({ index: 1 }, undefined, "}"))
    ]
    const late = push(OpenAiChat.dialect, events)
    assert.deepStrictEqual(ids(late.pushed), [[], ["a"], [], [], []])
    assert.deepStrictEqual(late.end.calls.map((call) => [call.id, call.arguments]), [["a", "{}"], ["b", "{}"]])
    const more = push(OpenAiChat.dialect, [...events, calls(piece({ index: 0 }, undefined, "{}"))])
    assert.include(more.failure, "choices[0].delta.tool_calls[0]: expected no more of a call after the finish reason")
    assert.strictEqual(more.end.finishReason, "error")
    assert.deepStrictEqual(more.end.calls.map(({ id }) => id), ["a", "b"])
  })

  it("of a response that was cut short no call is given early", () => {
    const { end, pushed } = push(OpenAiChat.dialect, [
      calls(piece({ index: 0, id: "a" }, "f", "{}")),
      chunk({}, "length")
    ])
    assert.deepStrictEqual([ids(pushed), end.calls.length, end.finishReason], [[[], []], 1, "length"])
  })

  it("choices are alternatives: a second one is refused", () => {
    const { end, failure } = push(OpenAiChat.dialect, [chunk({ content: "a" }), chunk({ content: "b" }, null, 1)])
    assert.include(failure, "choices[0].index: expected the choice 0 alone")
    assert.deepStrictEqual(end.message.content, "a")
  })

  it("a deprecated function call is refused with words", () => {
    const assembler = OpenAiChat.dialect.assembler()
    assembler.push(chunk({ function_call: { name: "f", arguments: "{" } }))
    assembler.push(chunk({ function_call: { arguments: "}" } }, "function_call"))
    assert.include(Result.getOrThrow(Result.flip(assembler.end())).message, '"tool_calls" (functions are deprecated')
  })

  it("a host that does not stream although it was asked to, and content that is a list", () => {
    const message = {
      role: "assistant",
      content: "hi",
      tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }]
    }
    const { end, pushed } = push(OpenAiChat.dialect, [{
      choices: [{ index: 0, message, finish_reason: "tool_calls" }]
    }])
    assert.deepStrictEqual([ids(pushed), end.message], [[["a"]], message])
    const thinking = { type: "thinking", thinking: [{ type: "text", text: "hm" }] }
    const mixed = push(OpenAiChat.dialect, [
      chunk({ content: "" }),
      chunk({ content: [thinking] }),
      chunk({ content: "a" })
    ])
    assert.deepStrictEqual(mixed.end.message.content, [thinking, { type: "text", text: "a" }])
  })

  it("reasoning details go on by their index", () => {
    const { end } = push(OpenAiChat.dialect, [
      chunk({ reasoning_details: [{ type: "reasoning.text", index: 0, text: "a", signature: null }] }),
      chunk({
        reasoning_details: [{ type: "reasoning.text", index: 0, text: "b" }, {
          type: "reasoning.encrypted",
          index: 0,
          data: "x"
        }]
      }),
      chunk({ reasoning_details: [{ type: "reasoning.text", index: 0, signature: "s" }], refusal: "no" })
    ])
    assert.deepStrictEqual(end.message.reasoning_details, [
      { type: "reasoning.text", index: 0, text: "ab", signature: "s" },
      { type: "reasoning.encrypted", index: 0, data: "x" }
    ])
    assert.strictEqual(end.message.refusal, "no")
  })
})

describe("Responses", () => {
  const item = (at: number, fields: object = {}) => ({
    type: "function_call",
    id: `fc_${at}`,
    call_id: `call_${at}`,
    name: "f",
    arguments: "{}",
    status: "completed",
    ...fields
  })
  const added = (at: number) => ({
    type: "response.output_item.added",
    output_index: at,
    item: item(at, { arguments: "", status: "in_progress" })
  })
  const done = (at: number) => ({ type: "response.output_item.done", output_index: at, item: item(at) })
  const over = (output: ReadonlyArray<unknown>) => ({
    type: "response.completed",
    response: { object: "response", status: "completed", output }
  })

  it("a later call waits for an earlier one, and an item that is done twice is done once", () => {
    const { end, pushed } = push(OpenAiResponses.dialect, [
      added(0),
      added(1),
      done(1),
      done(1),
      done(0),
      done(0),
      over([item(0), item(1)])
    ])
    assert.deepStrictEqual(ids(pushed), [[], [], [], [], ["call_0", "call_1"], [], []])
    assert.strictEqual(end.finishReason, "tool-calls")
  })

  it("a host that says no item is done", () => {
    const delta = { type: "response.function_call_arguments.delta", output_index: 0, item_id: "fc_0", delta: "{}" }
    for (const output of [[item(0)], []]) {
      const { end, pushed } = push(OpenAiResponses.dialect, [added(0), delta, over(output)])
      assert.deepStrictEqual(ids(pushed), [[], [], ["call_0"]])
      assert.deepStrictEqual(end.calls.map((call) => call.arguments), ["{}"])
    }
  })

  it("indices with gaps: what was held back comes with the end", () => {
    const { end, pushed } = push(OpenAiResponses.dialect, [done(0), done(2), over([item(0), item(2)])])
    assert.deepStrictEqual(ids(pushed), [["call_0"], [], ["call_2"]])
    assert.strictEqual(end.calls.length, 2)
  })

  it("what was given stands, whatever the whole response says", () => {
    const { end } = push(OpenAiResponses.dialect, [done(0), over([item(0, { arguments: '{"other":1}' })])])
    assert.deepStrictEqual(end.calls.map((call) => call.arguments), ["{}"])
  })

  it("a response that failed, and an error event", () => {
    const error = { code: "server_error", message: "Sorry" }
    const failed = { type: "response.failed", response: { object: "response", status: "failed", error, output: [] } }
    for (const event of [failed, { type: "error", ...error, param: null, sequence_number: 3 }]) {
      const { end, failure, pushed } = push(OpenAiResponses.dialect, [done(0), added(1), event])
      assert.include(failure, 'the provider\'s error "Sorry" (server_error)')
      assert.deepStrictEqual(ids(pushed), [["call_0"], []])
      assert.deepStrictEqual(end.calls.map(({ id }) => id), ["call_0", "call_1"])
      assert.strictEqual(end.finishReason, "error")
    }
  })

  it("a delta of an item that was never added is refused", () => {
    const delta = { type: "response.function_call_arguments.delta", output_index: 4, item_id: "fc_4", delta: "{}" }
    assert.include(
      push(OpenAiResponses.dialect, [delta]).failure,
      "at output_index: expected the index of an output item that was added, and got 4"
    )
  })
})

describe("Anthropic", () => {
  const start = {
    type: "message_start",
    message: { id: "m", type: "message", role: "assistant", content: [], usage: { output_tokens: 1 } }
  }
  const block = (index: number, content_block: unknown) => ({ type: "content_block_start", index, content_block })
  const use = (index: number) => block(index, { type: "tool_use", id: `t${index}`, name: "f", input: {} })
  const json = (index: number, partial_json: string) => ({
    type: "content_block_delta",
    index,
    delta: { type: "input_json_delta", partial_json }
  })
  const stop = (index: number) => ({ type: "content_block_stop", index })
  const over = { type: "message_delta", delta: { stop_reason: "tool_use" }, usage: { output_tokens: 9 } }

  it("blocks that come interleaved, are done twice, or leave a gap", () => {
    const { end, pushed } = push(AnthropicMessages.dialect, [
      start,
      use(0),
      use(1),
      json(1, "{}"),
      stop(1),
      json(0, '{"a":1}'),
      stop(0),
      stop(0),
      use(3),
      stop(3),
      over,
      { type: "message_stop" },
      { type: "ping" }
    ])
    assert.deepStrictEqual(ids(pushed).flat(), ["t0", "t1", "t3"])
    assert.deepStrictEqual(ids(pushed)[6], ["t0", "t1"])
    assert.deepStrictEqual(ids(pushed)[10], ["t3"])
    assert.deepStrictEqual(end.calls.map((call) => call.arguments), [{ a: 1 }, {}, {}])
  })

  it("input that is no JSON stays as it came, and goes back as an object", () => {
    const { end, pushed } = push(AnthropicMessages.dialect, [start, use(0), json(0, '{"a": '), stop(0), over])
    assert.strictEqual(pushed[3]![0]!.arguments, '{"a": ')
    assert.strictEqual(end.calls[0]!.arguments, '{"a": ')
  })

  it("what a client library has put into the message meanwhile is not taken twice", () => {
    const message = { ...start.message, content: [{ type: "text", text: "hi" }], stop_reason: "end_turn" }
    const { assembler, end } = push(AnthropicMessages.dialect, [{ type: "message_start", message }])
    assert.isFalse(assembler.isOver())
    assert.deepStrictEqual(end.message.content, [])
  })

  it("deltas of kinds that are yet to come are added to their block", () => {
    const delta = (fields: object) => ({
      type: "content_block_delta",
      index: 0,
      delta: { type: "new_delta", ...fields }
    })
    const { end } = push(AnthropicMessages.dialect, [
      start,
      block(0, { type: "compaction", content: null }),
      delta({ content: "a" }),
      delta({ content: "b", level: 3 }),
      stop(0),
      { type: "an_event_to_come" },
      { ...over, context_management: { applied_edits: [] } }
    ])
    assert.deepStrictEqual(end.message.content, [{ type: "compaction", content: "ab", level: 3 }])
    assert.deepInclude(end.message, { context_management: { applied_edits: [] }, usage: { output_tokens: 9 } })
  })

  it("events that fit nowhere are refused", () => {
    const refused = (...events: ReadonlyArray<unknown>) => push(AnthropicMessages.dialect, events).failure
    assert.include(refused(start, start), "at type: expected one message_start, with the message, and got a second one")
    assert.include(refused(start, use(0), use(0)), "at index: expected the index of a new content block, and got 0")
    assert.include(
      refused(start, stop(2)),
      "at index: expected the index of a content block that was started, and got 2"
    )
    assert.include(
      refused(start, use(0), stop(0), json(0, "{}")),
      "expected a content block that has not ended, and got 0, which has"
    )
  })

  it("of thinking without its signature, and of a search without its result, nothing is kept", () => {
    const thinking = [block(0, { type: "thinking", thinking: "", signature: "" }), {
      type: "content_block_delta",
      index: 0,
      delta: { type: "thinking_delta", thinking: "hm" }
    }]
    const search = [
      block(0, { type: "text", text: "a" }),
      stop(0),
      block(1, { type: "server_tool_use", id: "s", name: "web_search", input: {} }),
      stop(1)
    ]
    assert.deepStrictEqual(push(AnthropicMessages.dialect, [start, ...thinking]).end.message.content, [])
    assert.deepStrictEqual(push(AnthropicMessages.dialect, [start, ...search]).end.message.content, [{
      type: "text",
      text: "a"
    }])
  })
})

describe("Gemini", () => {
  const chunk = (parts: ReadonlyArray<unknown>, more: object = {}) => ({
    candidates: [{ content: { role: "model", parts }, ...more }]
  })
  const call = (fields: object) => ({ functionCall: fields })
  const over = chunk([], { finishReason: "STOP" })

  it("a signed text keeps its extent", () => {
    const parts = [{ text: "a" }, { text: "b" }, { text: "c", thoughtSignature: "x" }, { text: "d" }, {
      text: "e",
      thought: true
    }]
    const { end } = push(GeminiContents.dialect, [...parts.map((part) => chunk([part])), over])
    assert.deepStrictEqual(end.message.parts, [{ text: "ab" }, ...parts.slice(2)])
  })

  it("arguments that come in pieces: the call is complete at the part that does not continue", () => {
    const piece = (...partialArgs: ReadonlyArray<unknown>) => chunk([call({ partialArgs, willContinue: true })])
    const { end, pushed } = push(GeminiContents.dialect, [
      chunk([{ ...call({ name: "f", id: "1", willContinue: true }), thoughtSignature: "s" }]),
      piece({ jsonPath: "$.a.b[0]", stringValue: "x", willContinue: true }),
      piece({ jsonPath: "$.a.b[0]", stringValue: "y" }, { jsonPath: "$.a.b[1]", stringValue: "z" }),
      piece({ jsonPath: "$['__proto__']", numberValue: 1 }),
      chunk([call({})]),
      chunk([call({ name: "g", args: {} })], { finishReason: "STOP" })
    ])
    assert.deepStrictEqual(pushed.map((calls) => calls.map(({ name }) => name)), [[], [], [], [], ["f"], ["g"]])
    assert.strictEqual(JSON.stringify(end.calls[0]!.arguments), '{"a":{"b":["xy","z"]},"__proto__":1}')
    assert.deepInclude(end.message.parts[0], { thoughtSignature: "s" })
  })

  it("pieces that fit nowhere are refused, and nothing that was left open is over", () => {
    const open = chunk([call({ name: "f", willContinue: true })])
    const piece = (jsonPath: unknown) =>
      chunk([call({ partialArgs: [{ jsonPath, numberValue: 1 }], willContinue: true })])
    for (const path of ["a", "$", "$..a", "$.a[*]", "$[?(@.a)]", `$${".a".repeat(65)}`, 7, '$["\\x"]']) {
      assert.include(push(GeminiContents.dialect, [open, piece(path)]).failure, "expected a path like")
    }
    for (const path of ["$[0]", "$.a[1]"]) {
      assert.include(
        push(GeminiContents.dialect, [open, piece(path)]).failure,
        "expected a place that fits what came before"
      )
    }
    assert.include(
      push(GeminiContents.dialect, [open, chunk([{ text: "a" }])]).failure,
      "the rest of the function call that will continue"
    )
    assert.include(
      push(GeminiContents.dialect, [open, chunk([call({ name: "g" })])]).failure,
      "the rest of the function call that will continue"
    )
    const { assembler, end } = push(GeminiContents.dialect, [open, over])
    assert.isFalse(assembler.isOver())
    assert.strictEqual(end.finishReason, "error")
  })

  it("a second candidate is refused, and so is a blocked prompt, in the words of its codec", () => {
    const { failure } = push(GeminiContents.dialect, [
      chunk([{ text: "a" }], { index: 0 }),
      chunk([{ text: "b" }], { index: 1 })
    ])
    assert.include(failure, "candidates[0].index: expected the candidate 0 alone")
    const assembler = GeminiContents.dialect.assembler()
    assembler.push({ promptFeedback: { blockReason: "SAFETY" } })
    assert.isTrue(assembler.isOver())
    assert.include(Result.getOrThrow(Result.flip(assembler.end())).message, "SAFETY")
  })

  it("a call that the provider could not read is not run", () => {
    const { end, pushed } = push(GeminiContents.dialect, [
      chunk([call({ name: "f" })], { finishReason: "MALFORMED_FUNCTION_CALL" })
    ])
    assert.deepStrictEqual([ids(pushed), end.finishReason], [[[]], "error"])
  })
})

describe("EventStream", () => {
  const read = (text: string) => Result.getOrThrow(EventStream.parse(text))
  const refused = (text: string) => Result.getOrThrow(Result.flip(EventStream.parse(text))).message

  it("lines of every kind, comments, fields that nobody knows, and data of several lines", () => {
    assert.deepStrictEqual(
      read(
        ': hi\r\n\r\nid: 7\revent: x\rdata: {\rdata: "a":\rdata:1}\r\rretry: 10\n\ndata:{"b":2}\nfoo: bar\n\ndata\n\ndata:\n\n'
      ),
      [{ a: 1 }, { b: 2 }]
    )
  })

  it("what comes after [DONE] is no event", () => {
    assert.deepStrictEqual(read('data: {"a":1}\n\ndata: [DONE]\n\ndata: {"b":2}\n\n'), [{ a: 1 }])
  })

  it("an error that only the name of its event tells", () => {
    assert.deepStrictEqual(read('event: error\ndata: {"message":"no"}\n\nevent: error\ndata: too many\n\n'), [
      { type: "error", error: { message: "no" } },
      { type: "error", error: { message: "too many" } }
    ])
    assert.deepStrictEqual(read('event: error\ndata: {"type":"error","error":{"message":"no"}}\n\n'), [
      { type: "error", error: { message: "no" } }
    ])
  })

  it("JSON objects in a row, and a list with its commas", () => {
    const text = '{"a":"}\\"]"}{"b":[{}]}\n {"c":1}'
    assert.deepStrictEqual(read(text), [{ a: '}"]' }, { b: [{}] }, { c: 1 }])
    assert.deepStrictEqual(read('\ufeff [{"a":1}\n,\r\n{"b":2}]\n'), [{ a: 1 }, { b: 2 }])
  })

  it("a recording that was cut off gives what is whole, and what is no recording is refused", () => {
    assert.deepStrictEqual(read('[{"a":1},{"b":'), [{ a: 1 }])
    assert.deepStrictEqual(read('data: {"a":1}\n\ndata: {"b":'), [{ a: 1 }])
    assert.include(refused(""), "and got nothing")
    assert.include(
      refused("hello"),
      'expected server-sent events ("data: {...}"), JSON objects one after another, or a JSON list of them, and got "hello"'
    )
    assert.include(refused('{"a":1},{"b":2}'), 'at events[1]: expected a JSON object, and got ",{')
    assert.include(refused("[1]"), 'at events[0]: expected a JSON object, and got "1]"')
    assert.include(refused('{"a":1}{"b":oops}'), "at events[1]: expected JSON")
    assert.include(refused('data: {"a":1}\n\ndata: oops\n\n'), 'at events[1]: expected JSON, and got "oops"')
  })

  it("a stream that is nobody's", () => {
    const message = (events: ReadonlyArray<unknown>) =>
      Result.getOrThrow(Result.flip(EventStream.detect(events))).message
    assert.include(message([]), "0 events that are none of these")
    assert.include(message([{ x: 1 }]), '1 events that are none of these: {"x":1}')
    assert.include(message([{ error: { message: "no" } }]), "the provider's error")
  })
})
