import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result, Schema } from "effect"
import { ToolCall, type TurnError } from "effect-turn"
import { OpenAiChat } from "effect-turn/wire"
import { ok, refused, ways } from "./outcomes.ts"
import { refusal } from "./provider.ts"

const entry = (id: string | null | undefined, name: string, args: unknown) => ({
  ...(id === undefined ? undefined : { id }),
  type: "function",
  function: { name, arguments: args }
})

const message = (...tool_calls: ReadonlyArray<unknown>) => ({ role: "assistant", content: null, tool_calls })

const decoded = (input: unknown) => Result.getOrThrow(OpenAiChat.decode(input))

const failure = (result: Result.Result<unknown, TurnError.TurnError>) => {
  assert.isTrue(Result.isFailure(result), "expected a failure")
  const { reason } = Result.getOrThrow(Result.flip(result))
  assert.strictEqual(reason._tag, "InvalidMessage")
  return reason.message
}

const history = (input: unknown, end: (call: ToolCall.ToolCall, position: number) => any): Array<any> => {
  const { calls, message } = decoded(input)
  return Result.getOrThrow(OpenAiChat.history(message, calls, calls.map(end)))
}

describe("decode", () => {
  const bare = message(entry("call_1", "get_weather", '{"city":"Oslo"}'))
  const calls = [ToolCall.make("call_1", "get_weather", '{"city":"Oslo"}')]

  it("takes a response, a choice and a message", () => {
    assert.deepStrictEqual(decoded(bare), { message: bare as never, calls, finishReason: undefined })
    const choice = { index: 0, message: bare, finish_reason: "tool_calls" }
    assert.deepStrictEqual(decoded(choice), { message: bare as never, calls, finishReason: "tool-calls" })
    assert.deepStrictEqual(decoded({ id: "x", object: "chat.completion", choices: [choice] }).calls, calls)
  })

  it.each([
    ["stop", "stop"],
    ["tool_calls", "tool-calls"],
    ["function_call", "tool-calls"],
    ["length", "length"],
    ["content_filter", "content-filter"],
    ["insufficient_system_resource", "error"],
    ["eos", "other"],
    [null, undefined]
  ])("reads the finish reason %s", (finish_reason, expected) => {
    assert.strictEqual(decoded({ message: bare, finish_reason }).finishReason, expected as never)
  })

  it("hands the arguments over as they came", () => {
    const given = ["", "  ", "{", '{"a":1}', '{"a":1}{"a":2}', null, { a: 1 }, [1], 7, "null"]
    assert.deepStrictEqual(
      decoded(message(...given.map((args) => entry("i", "f", args)))).calls.map((c) => c.arguments),
      given
    )
    const { calls } = decoded(message({ id: "i", type: "function", function: { name: "f" } }))
    assert.deepStrictEqual(calls, [{ id: "i", name: "f" }])
  })

  it("takes absent and null ids for empty ones", () => {
    assert.deepStrictEqual(
      decoded(message(entry(undefined, "f", "{}"), entry(null, "f", "{}"))).calls.map((c) => c.id),
      ["", ""]
    )
  })

  it("takes a call without a type for a function call", () => {
    assert.deepStrictEqual(decoded(message({ id: "i", function: { name: "f", arguments: "{}" } })).calls[0]!.name, "f")
  })

  it("gives a custom tool its text as the argument `input`", () => {
    const { calls } = decoded(message({ id: "i", type: "custom", custom: { name: "run", input: "print(1)" } }))
    assert.deepStrictEqual(calls, [ToolCall.make("i", "run", { input: "print(1)" })])
  })

  it("takes a message without calls", () => {
    for (const tool_calls of [undefined, null, []]) {
      assert.deepStrictEqual(decoded({ role: "assistant", content: "hello", tool_calls }).calls, [])
    }
  })

  it("keeps hostile names as data", () => {
    const args = '{"__proto__":{"admin":true},"constructor":1}'
    const { calls } = decoded(message(entry("__proto__", "constructor", args)))
    assert.deepStrictEqual(calls, [ToolCall.make("__proto__", "constructor", args)])
    assert.isUndefined(({} as { admin?: unknown }).admin)
  })

  it.each<[string, unknown, string]>([
    ["null", null, "at its root: expected a response, a choice or an assistant message, and got null"],
    ["text", "{}", "and got text (parse it first)"],
    [
      "no choice",
      { choices: [] },
      "at choices: expected one choice (of several, hand over the one to go on with), and got 0"
    ],
    ["several choices", { choices: [{}, {}] }, "and got 2"],
    ["choices that are no list", { choices: 1 }, "at choices: expected array, and got 1"],
    ["a chunk", { choices: [{ delta: {} }] }, "at choices[0]: expected a whole response, and got a chunk of a stream"],
    ["a user's message", { role: "user", content: "hi" }, 'at role: expected "assistant", and got "user"'],
    ["no message", { choices: [{ finish_reason: "stop" }] }, "at choices[0].message: expected"],
    [
      "calls that are no list",
      { role: "assistant", tool_calls: {} },
      "at tool_calls: expected array | null, and got {}"
    ],
    [
      "an id that is no text",
      message(entry(7 as never, "f", "{}")),
      "at tool_calls[0].id: expected string | null, and got 7"
    ],
    [
      "no name",
      message({ id: "i", function: {} }),
      "at tool_calls[0].function.name: expected a value, and got nothing"
    ],
    [
      "an unknown type of call",
      { choices: [{ message: message(entry("i", "f", "{}"), { id: "j", type: "retrieval" }) }] },
      'at choices[0].message.tool_calls[1]: expected a "function" or "custom" call, and got one of the type "retrieval"'
    ],
    [
      "the deprecated form",
      { role: "assistant", function_call: { name: "f", arguments: "{}" } },
      "at function_call: expected"
    ]
  ])("refuses %s", (_, input, expected) => {
    assert.include(failure(OpenAiChat.decode(input)), expected)
  })
})

describe("history", () => {
  it("answers each call in order, with results as text", () => {
    const input = message(entry("a", "f", "{}"), entry("b", "g", "{}"), entry("c", "h", "{}"))
    const results = [{ n: 1 }, "plain text", null]
    assert.deepStrictEqual(history(input, (call, i) => ok(call, i, results[i])).slice(1), [
      { role: "tool", tool_call_id: "a", content: '{"n":1}' },
      { role: "tool", tool_call_id: "b", content: "plain text" },
      { role: "tool", tool_call_id: "c", content: "null" }
    ])
  })

  it("says what became of a call that is not ok", () => {
    const input = message(entry("a", "f", "{}"))
    const [, answer] = history(input, (call, i) => refused(call, i, "invalid_arguments", "expected a city"))
    assert.deepStrictEqual(JSON.parse(answer.content), {
      status: "error",
      code: "invalid_arguments",
      retryable: true,
      message: "expected a city"
    })
  })

  it("keeps the fields that it does not know", () => {
    const input = {
      role: "assistant",
      content: null,
      refusal: null,
      annotations: [],
      reasoning_content: "thinking",
      function_call: null,
      audio: null,
      tool_calls: [{
        ...entry("a", "f", '{ "x" : 1 }'),
        index: 0,
        extra_content: { google: { thought_signature: "s" } }
      }]
    }
    const [sent] = history(input, (call, i) => ok(call, i, 1))
    assert.deepStrictEqual(sent, {
      role: "assistant",
      content: null,
      refusal: null,
      annotations: [],
      reasoning_content: "thinking",
      tool_calls: [{ ...entry("a", "f", '{"x":1}'), index: 0, extra_content: { google: { thought_signature: "s" } } }]
    })
  })

  it("never sends raw text back", () => {
    const given = [
      "",
      "{",
      '{"a":1}{"a":2}',
      "[1]",
      "null",
      "7",
      '"{}"',
      null,
      [1],
      '{"n":1e999}',
      '{"n":1,"n":2}',
      '{"b":{"__proto__":1}}'
    ]
    const [sent] = history(message(...given.map((args, i) => entry(`${i}`, "f", args))), (call, i) => ok(call, i, 1))
    assert.deepStrictEqual(sent.tool_calls.map((call: any) => call.function.arguments), [
      ...Array.from({ length: 10 }, () => "{}"),
      '{"n":2}',
      '{"b":{"__proto__":1}}'
    ])
  })

  it("gives calls without an id a new one, in call and answer", () => {
    const input = message(entry("", "f", "{}"), entry("call_0", "f", "{}"), entry(undefined, "f", "{}"))
    const sent = history(input, (call, i) => ok(call, i, i))
    assert.deepStrictEqual(sent[0].tool_calls.map((call: any) => call.id), ["call_0_2", "call_0", "call_2"])
    assert.deepStrictEqual(sent.slice(1).map((answer) => answer.tool_call_id), ["call_0_2", "call_0", "call_2"])
    const { calls, message: decodedMessage } = decoded(input)
    const named = Result.getOrThrow(OpenAiChat.history(decodedMessage, calls, calls.map((c, i) => ok(c, i, i)), {
      newId: (position) => `turn7x${position}`
    }))
    assert.deepStrictEqual(named.slice(1).map((answer: any) => answer.tool_call_id), ["turn7x0", "call_0", "turn7x2"])
  })

  it("answers a re-delivered call once", () => {
    const input = message(
      entry("a", "f", '{"x":1,"y":2}'),
      entry("a", "f", '{ "y": 2, "x": 1 }'),
      entry("b", "f", "{}")
    )
    const sent = history(input, (call, i) => ok(call, i, i))
    assert.deepStrictEqual(sent[0].tool_calls.map((call: any) => call.id), ["a", "b"])
    assert.deepStrictEqual(sent.slice(1).map((answer) => [answer.tool_call_id, answer.content]), [["a", "0"], [
      "b",
      "2"
    ]])
  })

  it("tells calls apart that share an id", () => {
    const contents = ['{"x":1}', '{"x":2}', '{"x":1}', "{bad", "{worse"]
    const sent = history(
      message(...contents.map((args) => entry("a", "f", args))),
      (call, i) => refused(call, i, "ambiguous_id", `call ${i}`)
    )
    assert.deepStrictEqual(sent[0].tool_calls.map((call: any) => call.id), ["a", "call_1", "call_3", "call_4"])
    assert.deepStrictEqual(sent.slice(1).map((answer) => JSON.parse(answer.content).message), [
      "call 0",
      "call 1",
      "call 3",
      "call 4"
    ])
  })

  it("mends the name of a tool that does not exist, and no other", () => {
    const input = message(
      entry("a", "multi_tool_use.parallel", "{}"),
      entry("b", "", "{}"),
      entry("c", "math.add", "{}"),
      entry("d", "x".repeat(99), "{}")
    )
    const [sent] = history(
      input,
      (call, i) => i === 2 ? ok(call, i, 1) : refused(call, i, "unknown_tool", "no such tool")
    )
    assert.deepStrictEqual(sent.tool_calls.map((call: any) => call.function.name), [
      "multi_tool_use_parallel",
      "unnamed",
      "math.add",
      "x".repeat(64)
    ])
  })

  it("leaves custom calls as they are", () => {
    const call = { id: "a", type: "custom", custom: { name: "run", input: "{not json" } }
    assert.deepStrictEqual(history(message(call), (call, i) => ok(call, i, "1"))[0].tool_calls, [call])
  })

  it("leaves out what the provider ran itself", () => {
    const { calls, message: m } = decoded(message(entry("a", "web", "{}"), entry("b", "f", "{}")))
    const sent = Result.getOrThrow(OpenAiChat.history(m, calls, [
      {
        position: 0,
        id: "a",
        name: "web",
        status: "provider_executed",
        started: false,
        effect: "none",
        retryable: false,
        message: ""
      },
      ok(calls[1]!, 1, 1)
    ])) as Array<any>
    assert.deepStrictEqual(sent[0].tool_calls.map((call: any) => call.id), ["b"])
    assert.strictEqual(sent.length, 2)
  })

  it("gives back a message without calls, and no empty list of calls", () => {
    assert.deepStrictEqual(history({ role: "assistant", content: "hello", tool_calls: [] }, () => assert.fail()), [
      { role: "assistant", content: "hello" }
    ])
  })

  it("refuses lists that do not belong together", () => {
    const { calls, message: m } = decoded(message(entry("a", "f", "{}"), entry("b", "f", "{}")))
    const outcomes = calls.map((call, i) => ok(call, i, i))
    assert.include(
      failure(OpenAiChat.history(m, calls, outcomes.slice(1))),
      "at outcomes: expected 2 outcomes, one for each call, and got 1"
    )
    assert.include(
      failure(OpenAiChat.history(m, calls, outcomes.toReversed())),
      'at outcomes[0]: expected the outcome of call 0 with the id "a", and got that of call 1 with the id "b"'
    )
    assert.include(
      failure(OpenAiChat.history(m, calls.slice(1), outcomes.slice(1))),
      "at tool_calls: expected the calls that were decoded"
    )
    assert.include(
      failure(OpenAiChat.history(m, calls, [ok(calls[0]!, 0, 1n), outcomes[1]!])),
      "at outcomes[0]: expected a result that JSON can hold"
    )
    assert.include(
      failure(OpenAiChat.history({ role: "assistant", content: "" }, [], [])),
      "at content: expected text, a refusal or calls"
    )
  })

  it("changes nothing of what it was given", () => {
    const input = message(entry("", "bad name", "{"))
    const before = structuredClone(input)
    history(input, (call, i) => refused(call, i, "unknown_tool", "no"))
    assert.deepStrictEqual(input, before)
  })
})

describe("properties", () => {
  const Call = Schema.Struct({
    id: Schema.Literals(["", "a", "b", "call_1", "__proto__"]),
    name: Schema.Literals(["read", "write", "multi.use", ""]),
    arguments: Schema.Union([
      Schema.Literals(["", "{", '{"n":1}', '{ "n": 1 }', '{"n":2}', "[]", "null", "{}{}"]),
      Schema.Struct({ n: Schema.Int }),
      Schema.Null
    ]),
    end: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: ways.length - 1 }))
  })
  const turn = { turn: Arbitrary.array(Arbitrary.schema(Call), { minLength: 1, maxLength: 7 }) }

  it.prop("a history is never refused, whatever the model wrote and however the calls ended", turn, ({ turn }) => {
    const input = message(...turn.map((call) => entry(call.id, call.name, call.arguments)))
    const sent = history(input, (call, i) => ways[turn[i]!.end]!(call, i))
    assert.isUndefined(refusal(sent))
    assert.deepStrictEqual(
      sent.slice(1).map((answer) => answer.tool_call_id),
      sent[0].tool_calls.map((call: any) => call.id)
    )
    // What was sent is decoded again as the calls that were answered.
    assert.deepStrictEqual(
      decoded(sent[0]).calls.map((call) => call.id),
      sent.slice(1).map((answer) => answer.tool_call_id)
    )
  }, { arbitrary: { runs: 500 } })

  it.prop("calls survive the way out and back", turn, ({ turn }) => {
    const calls = turn.map((call) => ToolCall.make(call.id, call.name, call.arguments))
    assert.deepStrictEqual(decoded(OpenAiChat.fromCalls(calls)).calls, calls)
  }, { arbitrary: { runs: 200 } })

  it("the check refuses what it should", () => {
    const call = { ...entry("a", "f", "{}") }
    const answer = { role: "tool", tool_call_id: "a", content: "1" }
    assert.include(refusal([message(call)]), "did not have response messages")
    assert.include(refusal([message(call), answer, answer]), "not found")
    assert.include(refusal([message(call, call), answer, answer]), "Duplicate value")
    assert.include(refusal([message()]), "empty array")
    assert.include(refusal([message({ ...call, function: { name: "f", arguments: "{" } })]), "invalid JSON")
    assert.include(refusal([message(call), { ...answer, content: "" }]), "content is empty")
  })
})
