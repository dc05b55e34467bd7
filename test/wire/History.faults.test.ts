import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { dialects, History } from "effect-turn/wire"
import { damaged, edits, listOf, talks, written } from "./histories.ts"
import { refused, ways } from "./outcomes.ts"
import { type Provider, rules } from "./server/rules.ts"

const talk = {
  ids: false,
  turns: [[
    {
      says: true,
      thinks: true,
      calls: [{ name: "look", args: "{}", answer: "text" }, { name: "book", args: '{"n":1}', answer: "failure" }]
    },
    { says: false, thinks: false, calls: [{ name: "look", args: '{"n":1}', answer: "text" }] }
  ]]
} as const

/** A history with two steps: two calls, then one. */
const sound = (provider: Provider): any => written(provider, talk)

const codes = (body: unknown, dialect?: History.DialectId) =>
  Result.getOrThrow(History.check(body, { dialect })).problems.map(({ code, kind, path }) => [path, code, kind])

const mend = (body: unknown, options?: History.MendOptions): any => Result.getOrThrow(History.mend(body, options))

type Fault = readonly [
  what: string,
  change: (list: Array<any>) => void,
  found: ReadonlyArray<readonly [path: string, code: History.Code, kind?: History.Kind]>
]

const text = (words: string) => ({ role: "user", content: words })

// chat: user 0, calls 1 (c2, c3), tools 2 3, call 4 (c5), tool 5, assistant 6, user 7
// responses: user 0, reasoning 1, message 2, calls 3 4, outputs 5 6, call 7, output 8, message 9, user 10
// anthropic and gemini: user 0, calls 1, results 2, call 3, result 4, model 5, user 6
const faults: Record<Provider, ReadonlyArray<Fault>> = {
  chat: [
    ["a missing result", (list) => list.splice(3, 1), [["messages[1].tool_calls[1]", "missing_result"]]],
    ["an open end", (list) => list.splice(5), [["messages[4].tool_calls[0]", "open_call", "open"]]],
    [
      "a partly open end",
      (list) => list.splice(3),
      [["messages[1].tool_calls[1]", "open_call", "open"]]
    ],
    ["a head that was cut", (list) => list.splice(0, 2), [
      ["messages[0]", "result_without_call"],
      ["messages[1]", "result_without_call"]
    ]],
    ["a result twice", (list) => list.splice(3, 0, list[2]), [["messages[3]", "repeated_result"]]],
    ["another result", (list) => list.push({ ...list[2], content: "late" }), [["messages[8]", "late_result"]]],
    ["a text between", (list) => list.splice(3, 0, text("hm")), [["messages[4]", "misplaced_result"]]],
    ["a result before its call", (list) => list.splice(1, 0, list.splice(5, 1)[0]), [
      ["messages[1]", "result_without_call"],
      ["messages[5].tool_calls[0]", "missing_result"]
    ]],
    ["an id twice", (list) => {
      list[1].tool_calls[1].id = "c2"
      list[3].tool_call_id = "c2"
    }, [["messages[1].tool_calls[1]", "repeated_id"]]],
    ["a call twice", (list) => list[1].tool_calls.push(list[1].tool_calls[0]), [
      ["messages[1].tool_calls[2]", "repeated_call"]
    ]],
    ["empty ids", (list) => {
      for (const call of list[1].tool_calls) call.id = ""
      for (const at of [2, 3]) list[at].tool_call_id = ""
    }, [["messages[1].tool_calls[0]", "id_form"], ["messages[1].tool_calls[1]", "id_form"]]],
    ["an id of over 40 characters", (list) => {
      list[4].tool_calls[0].id = "x".repeat(41)
      list[5].tool_call_id = "x".repeat(41)
    }, [["messages[4].tool_calls[0]", "id_form"]]],
    ["a result without its id", (list) => delete list[5].tool_call_id, [["messages[5]", "result_id"]]],
    ["broken arguments", (list) => list[4].tool_calls[0].function.arguments = '{"n":', [
      ["messages[4].tool_calls[0]", "arguments", "loss"]
    ]],
    ["arguments that are an object", (list) => list[4].tool_calls[0].function.arguments = { n: 1 }, [
      ["messages[4].tool_calls[0]", "arguments"]
    ]],
    ["an invented name", (list) => list[4].tool_calls[0].function.name = "a.b", [
      ["messages[4].tool_calls[0]", "name_form"]
    ]],
    ["a call without its type", (list) => delete list[4].tool_calls[0].type, [
      ["messages[4].tool_calls[0]", "field_missing"]
    ]],
    ["an empty message", (list) => list[6].content = "", [["messages[6]", "empty_message"]]],
    ["no calls", (list) => list[6].tool_calls = [], [["messages[6].tool_calls", "empty_part"]]],
    ["a null of a function call", (list) => list[6].function_call = null, [[
      "messages[6].function_call",
      "empty_part"
    ]]],
    ["a blank answer", (list) => list[5].content = " ", [["messages[5]", "answer_form"]]],
    ["an answer that is an object", (list) => list[5].content = { n: 1 }, [["messages[5]", "answer_form"]]],
    ["an answer with a picture", (list) => {
      list[2].content = [{ type: "text", text: "look" }, { type: "image_url", image_url: { url: "data:x" } }]
    }, [["messages[2]", "answer_form"]]],
    ["an answer that is a picture alone", (list) => {
      list[5].content = [{ type: "image_url", image_url: { url: "data:x" } }]
    }, [["messages[5]", "answer_form"]]],
    [
      "an answer with a blank text",
      (list) => list[2].content = [{ type: "text", text: "x" }, { type: "text", text: "" }],
      [
        ["messages[2]", "answer_form"]
      ]
    ],
    ["a user without content", (list) => list[7].content = null, [["messages[7]", "empty_message"]]],
    ["half a character", (list) => list[0].content = "\ud83d", [["messages[0]", "broken_text"]]]
  ],
  responses: [
    ["a missing result", (list) => list.splice(6, 1), [["input[4]", "missing_result"]]],
    ["an open end", (list) => list.splice(8), [["input[7]", "open_call", "open"]]],
    ["a result without its call", (list) => list.splice(7, 1), [["input[7]", "result_without_call"]]],
    ["a result twice", (list) => list.push({ ...list[5] }), [["input[11]", "repeated_result"]]],
    ["another result", (list) => list.push({ ...list[5], output: "late" }), [["input[11]", "late_result"]]],
    ["a result before its call", (list) => list.splice(0, 0, list.splice(8, 1)[0]), [["input[0]", "misplaced_result"]]],
    ["a result of another kind", (list) => list[8].type = "custom_tool_call_output", [["input[8]", "result_kind"]]],
    ["an id of an earlier call", (list) => {
      list[7].call_id = "c2"
      list[8].call_id = "c2"
    }, [["input[7]", "repeated_id"]]],
    ["a long id", (list) => {
      list[7].call_id = "x".repeat(65)
      list[8].call_id = "x".repeat(65)
    }, [["input[7]", "id_form"]]],
    ["broken arguments", (list) => list[7].arguments = "{}{}", [["input[7]", "arguments", "loss"]]],
    ["reasoning alone", (list) => list.splice(10, 0, { type: "reasoning", id: "rs_9", summary: [] }), [
      ["input[10]", "lone_reasoning"]
    ]],
    ["an item twice", (list) => list.splice(2, 0, list[2]), [["input[3]", "repeated_item"]]],
    ["another item with the same id", (list) => list[7].id = list[3].id, [["input[7]", "repeated_item"]]],
    ["an id of another kind", (list) => list[7].id = "call_1", [["input[7]", "extra_fields"]]],
    ["a status of reasoning", (list) => list[1].status = null, [["input[1]", "extra_fields"]]],
    ["what the SDK adds", (list) => list[2].content[0].parsed = null, [["input[2].content[0]", "extra_fields"]]],
    ["an output that is an object", (list) => list[8].output = { n: 1 }, [["input[8]", "answer_form"]]],
    ["an output with a text of the model", (list) => list[8].output = [{ type: "output_text", text: "x" }], [
      ["input[8]", "answer_form"]
    ]],
    ["a call that takes no words", (list) => list.splice(10, 0, { type: "computer_call", id: "cu_1", call_id: "k" }), [
      ["input[10]", "missing_result"]
    ]]
  ],
  anthropic: [
    ["a missing result", (list) => list[2].content.splice(1, 1), [["messages[1].content[3]", "missing_result"]]],
    ["no results", (list) => list.splice(2, 1), [
      ["messages[1].content[2]", "missing_result"],
      ["messages[1].content[3]", "missing_result"]
    ]],
    ["an open end", (list) => list.splice(4), [["messages[3].content[0]", "open_call", "open"]]],
    ["a head that was cut", (list) => list.splice(0, 2), [
      ["messages[0].content[0]", "result_without_call"],
      ["messages[0].content[1]", "result_without_call"],
      ["messages[1]", "begins_with_model"]
    ]],
    ["a result twice", (list) => list[2].content.push(list[2].content[0]), [[
      "messages[2].content[2]",
      "repeated_result"
    ]]],
    ["another result", (list) => list[4].content.push({ ...list[2].content[0], content: "late" }), [
      ["messages[4].content[1]", "late_result"]
    ]],
    ["a text before results", (list) => list[2].content.unshift({ type: "text", text: "hm" }), [
      ["messages[2].content[0]", "mixed_results"]
    ]],
    ["a message between", (list) => list.splice(4, 0, { role: "assistant", content: "hm" }), [
      ["messages[5].content[0]", "misplaced_result"]
    ]],
    ["results in two messages", (list) => {
      list.splice(3, 0, { role: "user", content: [list[2].content.pop()] })
    }, [["messages[3].content[0]", "misplaced_result"]]],
    ["a result in the model's message", (list) => list[1].content.push(list[2].content.pop()), [
      ["messages[1].content[4]", "misplaced_result"]
    ]],
    ["an id with a dot", (list) => {
      list[3].content[0].id = "a.1"
      list[4].content[0].tool_use_id = "a.1"
    }, [["messages[3].content[0]", "id_form"]]],
    ["an id of an earlier message", (list) => {
      list[3].content[0].id = "c2"
      list[4].content[0].tool_use_id = "c2"
    }, [["messages[3].content[0]", "repeated_id"]]],
    ["an input that is text", (list) => list[3].content[0].input = '{"n":1}', [[
      "messages[3].content[0]",
      "arguments"
    ]]],
    ["a blank text", (list) => list[1].content[1].text = "\n", [["messages[1].content[1]", "empty_part"]]],
    ["a blank text in a result", (list) => list[4].content[0].content = [{ type: "text", text: "" }], [
      ["messages[4].content[0]", "empty_part"]
    ]],
    ["an error with a picture", (list) => {
      const source = { type: "base64", media_type: "image/png", data: "AAAA" }
      Object.assign(list[2].content[0], { is_error: true, content: [{ type: "image", source }] })
    }, [["messages[2].content[0]", "answer_form"]]],
    ["an empty message", (list) => list[5].content = [], [["messages[5]", "empty_message"]]],
    ["thinking without a signature", (list) => delete list[1].content[0].signature, [
      ["messages[1].content[0]", "unsigned_thinking"]
    ]],
    ["thinking at the end", (list) => list[5].content.push({ type: "thinking", thinking: "", signature: "s" }), [
      ["messages[5].content[1]", "lone_reasoning"]
    ]],
    ["thinking before a call that stands there already", (list) => {
      list[1].content.push({ type: "thinking", thinking: "", signature: "s" }, list[1].content[2])
    }, [["messages[1].content[4]", "lone_reasoning"], ["messages[1].content[5]", "repeated_call"]]],
    ["a call of the provider without its result", (list) => {
      list[1].content.splice(1, 0, { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} })
    }, [["messages[1].content[1]", "unresolved_server_call"]]],
    ["a result of the provider without its call", (list) => {
      list[1].content.splice(1, 0, { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [] })
    }, [["messages[1].content[1]", "server_result_without_call"]]],
    ["fields of a response", (list) => Object.assign(list[5], { id: "msg_1", type: "message", usage: {} }), [
      ["messages[5]", "extra_fields"]
    ]],
    ["a call of the user", (list) => list[3].role = "user", [["messages[3]", "call_of_user"]]]
  ],
  gemini: [
    ["a missing result", (list) => list[2].parts.pop(), [["contents[1].parts[3]", "missing_result"]]],
    ["an open end", (list) => list.splice(4), [["contents[3].parts[0]", "open_call", "open"]]],
    ["a head that was cut", (list) => list.splice(0, 3), [["contents[0]", "begins_with_model"]]],
    ["a result without its call", (list) => list.splice(5, 0, list[4]), [[
      "contents[5].parts[0]",
      "result_without_call"
    ]]],
    ["a text beside results", (list) => list[2].parts.push({ text: "hm" }), [[
      "contents[2].parts[2]",
      "mixed_results"
    ]]],
    ["results in another order", (list) => list[2].parts.push(list[2].parts.shift()), [[
      "contents[2].parts[0]",
      "result_order",
      "loss"
    ]]],
    ["results in two contents", (list) => {
      list.splice(3, 0, { role: "user", parts: [list[2].parts.pop()] })
    }, [["contents[3].parts[0]", "misplaced_result"]]],
    ["a result whose name was mended", (list) => {
      const { functionResponse } = list[4].parts[0]
      functionResponse.name = functionResponse.name.toUpperCase()
    }, [["contents[4].parts[0]", "result_name"]]],
    ["the result of another tool", (list) => list[4].parts[0].functionResponse.name = "other_tool", [
      ["contents[3].parts[0]", "missing_result"],
      ["contents[4].parts[0]", "result_without_call"]
    ]],
    ["an id that its call has not", (list) => list[4].parts[0].functionResponse.id = "x", [
      ["contents[4].parts[0]", "result_id", "loss"]
    ]],
    ["a response that is text", (list) => list[4].parts[0].functionResponse.response = "x", [
      ["contents[4].parts[0]", "answer_form"]
    ]],
    ["calls after the model's own words", (list) => list.splice(3, 0, { role: "model", parts: [{ text: "hm" }] }), [
      ["contents[4]", "model_twice"]
    ]],
    ["an invented name", (list) => {
      list[3].parts[0].functionCall.name = "0 a"
      list[4].parts[0].functionResponse.name = "_0_a"
    }, [["contents[3].parts[0]", "name_form"]]],
    ["a content without parts", (list) => list[5].parts = [], [["contents[5]", "empty_message"]]],
    ["an empty part", (list) => list[5].parts.push({ text: "" }), [["contents[5].parts[1]", "empty_part"]]],
    ["a content without its role", (list) => delete list[3].role, [["contents[3]", "role"]]],
    ["a field of the candidate", (list) => list[5].finishReason = "STOP", [["contents[5]", "extra_fields"]]]
  ]
}

/** What hosts are known to refuse, and the rules of the tests let through. */
const beyondRules = new Set([
  "an id of over 40 characters",
  "a call that takes no words",
  "a call of the provider without its result"
])

describe.each(Object.keys(faults) as Array<Provider>)("%s", (provider) => {
  it.each(faults[provider])("finds and mends %s", (what, change, found) => {
    const body = sound(provider)
    change(listOf(provider, body))
    const before = JSON.stringify(body)
    assert.deepStrictEqual(codes(body), found.map(([path, code, kind = "refused"]) => [path, code, kind]))
    const { changes, history } = mend(body)
    assert.strictEqual(JSON.stringify(body), before)
    assert.deepStrictEqual(changes.map(({ code }: any) => code), found.map(([, code]) => code))
    const ended = provider === "gemini" && listOf(provider, history).at(-1).role === "model"
      ? { contents: [...history.contents, { role: "user", parts: [{ text: "go on" }] }] }
      : history
    assert.isUndefined(rules[provider](ended), JSON.stringify(history))
    assert.deepStrictEqual(codes(history, provider), [])
    const inRules = found.every(([, , kind]) => kind !== "loss") && !beyondRules.has(what)
    if (inRules) assert.isDefined(rules[provider](body))
  })

  it("tells what is open, and closes it as the caller says", () => {
    const body = sound(provider)
    const list = listOf(provider, body)
    list.splice({ chat: 2, responses: 5, anthropic: 2, gemini: 2 }[provider])
    const open = Result.getOrThrow(History.openCalls(body))
    assert.deepStrictEqual(open.map(({ last, name }) => [name, last]), [["look", true], ["book", true]])
    const { history, open: closed } = mend(body, {
      close: (call) =>
        call.name === "look"
          ? "seen"
          : refused({ id: call.id, name: call.name }, 0, "denied", "not allowed")
    })
    assert.deepStrictEqual(closed, open)
    const after = JSON.stringify(listOf(provider, history).slice(list.length))
    assert.include(after, "seen")
    assert.include(after, "not allowed")
    if (provider === "anthropic") assert.deepStrictEqual(after.match(/is_error/g), ["is_error"])
    if (provider === "gemini") {
      const [{ parts }] = listOf(provider, history).slice(-1)
      assert.deepStrictEqual(parts.map((part: any) => Object.keys(part.functionResponse.response)), [["output"], [
        "error"
      ]])
    }
    const honest = JSON.stringify(mend(body).history)
    assert.include(honest, "find out before you call it again")
    assert.include(honest, "unknown")
  })

  it("is found by its shape, in a body and as a list", () => {
    const body = sound(provider)
    assert.strictEqual(Result.getOrThrow(History.check(body)).dialect, provider)
    assert.strictEqual(Result.getOrThrow(History.check(listOf(provider, body))).dialect, provider)
    listOf(provider, body).splice(1, 1)
    const { dialect, history } = mend(listOf(provider, body))
    assert.strictEqual(dialect, provider)
    assert.isTrue(Array.isArray(history))
  })
})

it("what surrounds a history stays", () => {
  const body = {
    model: "m",
    temperature: 1,
    messages: [...listOf("chat", sound("chat")).slice(0, 3), { role: "user", content: "hm", name: "x" }]
  }
  const { messages, ...rest } = mend(body).history
  assert.deepStrictEqual(rest, { model: "m", temperature: 1 })
  assert.strictEqual(messages.at(-1), body.messages.at(-1))
  assert.strictEqual(messages[0], body.messages[0])
})

it("a part of a Responses history may be with the provider", () => {
  const input = [{ type: "function_call_output", call_id: "c9", output: "x" }]
  assert.deepStrictEqual(codes({ input }).map(([, code]) => code), ["result_without_call"])
  assert.deepStrictEqual(codes({ input, previous_response_id: "resp_1" }), [])
  assert.deepStrictEqual(codes({ input, conversation: "conv_1" }), [])
  assert.deepStrictEqual(codes([{ type: "item_reference", id: "fc_9" }, ...input]), [])
  assert.deepStrictEqual(codes({ input: "hello" }), [])
})

it("a call of the provider that it will go on with is left alone", () => {
  const paused = {
    messages: [text("search"), {
      role: "assistant",
      content: [
        { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} },
        { type: "tool_use", id: "a", name: "f", input: {} }
      ]
    }, { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "x" }] }]
  }
  assert.deepStrictEqual(codes(paused), [])
})

it("Gemini's other spelling is read and written", () => {
  const contents = [
    { role: "user", parts: [{ text: "hm" }] },
    { role: "model", parts: [{ function_call: { name: "f", args: {} }, thought_signature: "AAAA" }] }
  ]
  const { history } = mend(contents)
  assert.deepStrictEqual(Object.keys(history[2].parts[0]), ["function_response"])
  assert.deepStrictEqual(codes(history), [])
})

it("an answer under an id that comes again is not given to a later call", () => {
  const again = [
    { role: "tool", tool_call_id: "call_0", content: "of a call that was cut off" },
    text("and now?"),
    { role: "assistant", tool_calls: [{ id: "call_0", type: "function", function: { name: "f", arguments: "{}" } }] }
  ]
  assert.deepStrictEqual(codes(again).map(([path, code]) => [path, code]), [
    ["[0]", "result_without_call"],
    ["[2].tool_calls[0]", "open_call"]
  ])
  assert.notInclude(JSON.stringify(mend(again).history), "cut off")
})

it("fields like __proto__ are data", () => {
  const args = JSON.parse('{"__proto__": {"x": 1}, "y": "\\ud83d"}')
  const { history } = mend([text("hm"), {
    role: "assistant",
    content: [{ type: "tool_use", id: "a", name: "f", input: args }]
  }])
  assert.strictEqual(
    JSON.stringify(history[1].content[0].input),
    JSON.stringify(JSON.parse('{"__proto__": {"x": 1}, "y": "\\ufffd"}'))
  )
})

it("what is no history is refused, with its place", () => {
  const message = (input: unknown) => {
    const result = History.check(input)
    return Result.isFailure(result) ? result.failure.message : "taken"
  }
  assert.include(message("[]"), "text (parse it first)")
  assert.include(message({ calls: [] }), "the neutral form, which has calls and no history")
  assert.include(message({ a: 1 }), 'an object with "a"')
  assert.include(message({}), "an empty object")
  assert.include(message(null), "got null")
  assert.include(message({ messages: 1 }), "at messages: expected a list, and got number")
  assert.include(message([{ role: "user" }, 1]), "at [1]: expected a message")
  assert.include(message({ messages: [{ choices: [] }] }), "a whole response")
  assert.include(message([{ a: 1 }]), 'an object with "a"')
  assert.strictEqual(message([]), "taken")
})

const Turn = Schema.Struct({
  ends: Schema.Literals(ways.map((_, i) => i)),
  id: Schema.Literals(["", "a", "b", "a.b"]),
  args: Schema.Literals(["", "{", "{}", '{"n":1}'])
})

it.effect.prop(
  "what the codecs build is sound",
  { turn: Schema.Array(Turn) },
  ({ turn }) =>
    Effect.sync(() => {
      let built = 0
      for (const dialect of dialects) {
        if (turn.length === 0 || dialect.id === "neutral") continue
        const { calls, message } = Result.getOrThrow(dialect.decode(
          dialect.fromCalls(turn.map(({ args, id }) => ({ id, name: "f", arguments: args })))
        ))
        const outcomes = calls.map((call, i) => ways[turn[i]!.ends]!(call, i))
        const history = Result.getOrThrow(dialect.history(message, calls, outcomes))
        const provider = dialect.id as Provider
        const [user] = listOf(provider, written(provider, { ids: false, turns: [] }))
        assert.deepStrictEqual(codes([user, ...history], provider), [], JSON.stringify(history))
        built++
      }
      assert.strictEqual(built, turn.length === 0 ? 0 : 4)
    })
)

it.effect.prop(
  "nothing is thrown, whatever has become of a history and whoever's it is said to be",
  { talk: talks, changes: edits },
  ({ changes, talk }) =>
    Effect.sync(() => {
      for (const provider of Object.keys(rules) as Array<Provider>) {
        const body = damaged(provider, written(provider, talk), changes)
        for (const dialect of Object.keys(rules) as Array<Provider>) {
          const mended = History.mend(listOf(provider, body), { dialect })
          if (Result.isSuccess(mended)) continue
          assert.notStrictEqual(dialect, provider)
          assert.strictEqual(mended.failure.reason._tag, "InvalidMessage")
        }
      }
    }),
  { arbitrary: { runs: 100 } }
)
