import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { ToolCall, type TurnError } from "effect-turn"
import { OpenAiResponses } from "effect-turn/wire"
import { byProvider, ok, refused } from "./outcomes.ts"
import { responsesRefusal } from "./provider.ts"

const call = (call_id: any, name: string, args: unknown, rest?: object) => ({
  type: "function_call",
  id: `fc_${call_id}`,
  call_id,
  name,
  arguments: args,
  status: "completed",
  ...rest
})

const custom = { type: "custom_tool_call", id: "ctc_1", call_id: "c", name: "run", input: "print(1)" }
const reasoning = (id: string) => ({ type: "reasoning", id, summary: [], encrypted_content: "gAAAA" })
const response = (...output: ReadonlyArray<unknown>) => ({ object: "response", status: "completed", output })

const decoded = (input: unknown) => Result.getOrThrow(OpenAiResponses.decode(input))

const failure = (result: Result.Result<unknown, TurnError.TurnError>) => Result.getOrThrow(Result.flip(result)).message

const history = (input: unknown, end: (call: ToolCall.ToolCall, position: number) => any): Array<any> => {
  const { calls, message } = decoded(input)
  return Result.getOrThrow(OpenAiResponses.history(message, calls, calls.map(end)))
}

describe("decode", () => {
  it("takes a response, and the list of its items", () => {
    const output = [reasoning("rs_1"), call("a", "f", '{"x":1}'), custom]
    const calls = [ToolCall.make("a", "f", '{"x":1}'), ToolCall.make("c", "run", { input: "print(1)" })]
    assert.deepStrictEqual(decoded(response(...output)), { message: output, calls, finishReason: "tool-calls" })
    assert.deepStrictEqual(decoded(output), { message: output, calls, finishReason: undefined })
  })

  it.each<[object, string | undefined]>([
    [{ status: "completed" }, "stop"],
    [{ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } }, "length"],
    [{ status: "incomplete", incomplete_details: { reason: "content_filter" } }, "content-filter"],
    [{ status: "incomplete", incomplete_details: { reason: "steered" } }, "other"],
    [{ status: "incomplete", incomplete_details: null }, "length"],
    [{ status: "failed", error: { code: "server_error", message: "oh" } }, "error"],
    [{ status: "cancelled" }, "error"],
    [{ status: "in_progress" }, "error"],
    [{ status: "queued" }, "error"],
    [{ status: null }, undefined]
  ])("reads how the response ended: %j", (ending, expected) => {
    assert.strictEqual(decoded({ object: "response", output: [], ...ending }).finishReason, expected as never)
  })

  it("an incomplete call was cut short, whoever says so", () => {
    const cut = call("a", "f", '{"x', { status: "incomplete" })
    assert.strictEqual(decoded([cut]).finishReason, "length")
    const steered = { status: "incomplete", incomplete_details: { reason: "steered" } }
    assert.strictEqual(decoded({ ...response(cut), ...steered }).finishReason, "length")
  })

  it("takes absent ids for empty ones, and hands arguments over as they came", () => {
    assert.deepStrictEqual(
      decoded([call(undefined, "f", "{"), call(null, "f", null), { type: "function_call", call_id: "x", name: "f" }])
        .calls,
      [ToolCall.make("", "f", "{"), ToolCall.make("", "f", null), { id: "x", name: "f" }]
    )
  })

  it("takes what the provider ran for no calls", () => {
    const items = [
      { type: "web_search_call", id: "ws", status: "completed", action: {} },
      { type: "file_search_call", id: "fs", status: "completed", queries: [] },
      { type: "code_interpreter_call", id: "ci", status: "completed", code: "1", container_id: "c", outputs: null },
      { type: "image_generation_call", id: "ig", status: "completed", result: "aGk=" },
      { type: "mcp_list_tools", id: "ml", server_label: "s", tools: [] },
      { type: "mcp_call", id: "mc", name: "f", arguments: "{}", server_label: "s", output: "1" },
      { type: "tool_search_call", id: "ts", call_id: null, execution: "server", arguments: {}, status: "completed" },
      { type: "tool_search_output", id: "to", call_id: null, execution: "server", tools: [], status: "completed" },
      { type: "shell_call", id: "sh", call_id: "s", action: {}, environment: { type: "container_reference" } },
      { type: "shell_call_output", id: "so", call_id: "s", output: [] },
      { type: "program", id: "p", call_id: "p", code: "1", fingerprint: "f" },
      { type: "compaction", id: "co", encrypted_content: "x" },
      { type: "something_new", id: "n", payload: { a: [1] } },
      // Somebody has answered these already.
      { type: "computer_call", id: "cu", call_id: "cu", actions: [], pending_safety_checks: [], status: "completed" },
      { type: "computer_call_output", id: "cuo", call_id: "cu", output: {} },
      call("z", "f", "{}"),
      { type: "function_call_output", id: "fco", call_id: "z", output: "done" }
    ]
    assert.deepStrictEqual(decoded(response(...items)).calls, [])
    assert.deepStrictEqual(history(response(...items), () => assert.fail()), items)
  })

  it.each<[string, object]>([
    ["computer_call", { call_id: "c", actions: [] }],
    ["local_shell_call", { call_id: "c", action: {} }],
    ["shell_call", { call_id: "c", action: {}, environment: { type: "local" } }],
    ["apply_patch_call", { call_id: "c", operation: {} }],
    ["mcp_approval_request", { name: "f", arguments: "{}", server_label: "s" }],
    ["tool_search_call", { call_id: "c", execution: "client", arguments: {} }]
  ])("refuses a %s, which no tool answers, before anything runs", (type, rest) => {
    assert.include(
      failure(OpenAiResponses.decode(response(call("a", "f", "{}"), { type, id: "i", ...rest }))),
      `at output[1]: expected calls of the types "function_call" and "custom_tool_call", and got a ${type}, which no tool answers`
    )
  })

  it.each<[string, unknown, string]>([
    ["null", null, "at its root: expected a response, or the list of its items, and got null"],
    ["text", "{}", "and got text (parse it first)"],
    ["output that is no list", { object: "response", output: 1 }, "at output: expected array, and got 1"],
    ["an item that is none", [7], "at [0]: expected object, and got 7"],
    ["an item without a type", response({ id: 1 }), "at output[0].type: expected a value, and got nothing"],
    [
      "no name",
      response({ type: "function_call", call_id: "a" }),
      "at output[0].name: expected a value, and got nothing"
    ],
    ["no input", [{ ...custom, input: undefined }], "at [0].input: expected string, and got nothing"]
  ])("refuses %s", (_, input, expected) => {
    assert.include(failure(OpenAiResponses.decode(input)), expected)
  })
})

describe("history", () => {
  it("keeps the items in their places, and puts the outputs behind them", () => {
    const output = [reasoning("rs_1"), call("a", "f", '{"x":1}'), reasoning("rs_2"), custom]
    assert.deepStrictEqual(history(response(...output), (one, i) => ok(one, i, i === 0 ? { n: 1 } : "done")), [
      ...output,
      { type: "function_call_output", call_id: "a", output: '{"n":1}' },
      { type: "custom_tool_call_output", call_id: "c", output: "done" }
    ])
  })

  it("leaves out what responses have and requests may not have", () => {
    const item = call("a", "f", "{}", { created_by: "m", parsed_arguments: { x: 1 }, namespace: "n" })
    const said = { type: "message", id: "m", role: "assistant", status: "completed", phase: "commentary" }
    const content = [{ type: "output_text", text: "hi", annotations: [] }]
    const sent = history(
      response(
        { ...reasoning("rs_1"), status: null },
        { ...said, content: [{ ...content[0], parsed: { x: 1 } }] },
        item
      ),
      (one, i) => ok(one, i, 1)
    )
    assert.deepStrictEqual(sent.slice(0, 3), [
      reasoning("rs_1"),
      { ...said, content },
      call("a", "f", "{}", { namespace: "n" })
    ])
  })

  it("names a call anew, in call and output, where its id would be refused", () => {
    const sent = history(
      response(call("", "f", "{}"), call("x".repeat(65), "f", "{}"), call("a", "f", "{}"), call("a", "f", '{"y":1}')),
      (one, i) => ok(one, i, i)
    )
    const ids = ["call_0", "call_1", "a", "call_3"]
    assert.deepStrictEqual(sent.map((item) => item.call_id), [...ids, ...ids])
    assert.isUndefined(responsesRefusal(sent))
  })

  it("tells an item id once", () => {
    const sent = history(
      response(call("a", "f", "{}", { id: "x" }), call("b", "f", "{}", { id: "x" })),
      (one, i) => ok(one, i, i)
    )
    assert.deepStrictEqual(sent.map((item) => item.id), ["x", undefined, undefined, undefined])
  })

  it("leaves out a re-delivered call, and the reasoning that led to nothing else", () => {
    const first = [reasoning("rs_1"), call("a", "f", "{}"), call("b", "g", "{}")]
    const again = [reasoning("rs_2"), call("a", "f", "{ }", { id: "fc_2" })]
    const sent = history(response(...first, ...again), (one, i) => ok(one, i, i))
    assert.deepStrictEqual(sent.slice(0, -2), first)
    assert.deepStrictEqual(sent.slice(-2).map(({ output }) => output), ["0", "1"])
    assert.isUndefined(responsesRefusal(sent))
    // Reasoning that led to something else as well stays.
    const other = call("d", "h", "{}")
    assert.deepStrictEqual(
      history(response(...first, ...again, other), (one, i) => ok(one, i, i)).slice(0, -3),
      [...first, again[0], other]
    )
  })

  it("leaves out what the provider ran itself", () => {
    const sent = history(
      response(call("a", "f", "{}"), call("b", "f", "{}")),
      (one, i) => i === 0 ? byProvider(one, i) : ok(one, i, i)
    )
    assert.deepStrictEqual(sent.map((item) => item.call_id), ["b", "b"])
  })

  it("mends names that no tool may have, and arguments that are no object", () => {
    const sent = history(
      response(call("a", "multi_tool_use.parallel", "{"), call("b", "", "[1]")),
      (one, i) => refused(one, i, "incomplete_response", "cut")
    )
    assert.deepStrictEqual(sent.slice(0, 2).map((item) => [item.name, item.arguments]), [
      ["multi_tool_use_parallel", "{}"],
      ["unnamed", "{}"]
    ])
  })

  it("says whose call it was where a program made it", () => {
    const caller = { type: "program", caller_id: "p_1" }
    const [sent, output] = history(response(call("a", "f", "{}", { caller })), (one, i) => ok(one, i, 1))
    assert.deepStrictEqual([sent.caller, output.caller], [caller, caller])
    const [, direct] = history(
      response(call("a", "f", "{}", { caller: { type: "direct" } })),
      (one, i) => ok(one, i, 1)
    )
    assert.notProperty(direct, "caller")
  })

  it("refuses an output that is too long", () => {
    const { calls, message } = decoded(response(call("a", "f", "{}")))
    assert.include(
      failure(OpenAiResponses.history(message, calls, [ok(calls[0]!, 0, "x".repeat(10_485_761))])),
      "at history[1].output: expected"
    )
  })

  it("has nothing to say of a response without items", () => {
    assert.deepStrictEqual(history(response(), () => assert.fail()), [])
  })
})

it("the check refuses what it should", () => {
  const made = call("a", "f", "{}")
  const output = { type: "function_call_output", call_id: "a", output: "1" }
  assert.isUndefined(responsesRefusal([reasoning("rs_1"), made, output]))
  for (
    const [items, words] of [
      [[made], "No tool output found"],
      [[output], "No tool call found"],
      [[made, output, output], "No tool call found"],
      [[made, { ...made, id: "fc_2" }, output], "Duplicate call_id"],
      [[made, { ...call("b", "f", "{}"), id: made.id }, output], "Duplicate item"],
      [[{ ...made, call_id: "x".repeat(65) }, output], "too long"],
      [[{ ...made, arguments: "[]" }, output], "arguments"],
      [[{ ...made, name: "a.b" }, output], "pattern"],
      [[{ ...made, created_by: "x" }, output], "Unknown parameter"],
      [[{ ...reasoning("r"), status: "completed" }, made, output], "Unknown parameter"],
      [[made, reasoning("r"), output], "required following item"],
      [[made, { ...output, output: [] }], "Invalid type"],
      [[made, { ...output, output: "\ud83d" }], "surrogate"]
    ] as ReadonlyArray<[ReadonlyArray<any>, string]>
  ) assert.include(responsesRefusal(items), words)
})
