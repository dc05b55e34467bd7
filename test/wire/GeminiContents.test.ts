import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { ToolCall, type TurnError } from "effect-turn"
import { GeminiContents } from "effect-turn/wire"
import { byProvider, ok, refused } from "./outcomes.ts"
import { geminiRefusal } from "./provider.ts"

const call = (name: string, args: unknown, id?: string, rest?: object) => ({
  functionCall: { ...(id === undefined ? undefined : { id }), name, args },
  ...rest
})
const content = (...parts: ReadonlyArray<unknown>) => ({ role: "model", parts })

const decoded = (input: unknown) => Result.getOrThrow(GeminiContents.decode(input))

const failure = (result: Result.Result<unknown, TurnError.TurnError>) => Result.getOrThrow(Result.flip(result)).message

const history = (input: unknown, end: (call: ToolCall.ToolCall, position: number) => any): Array<any> => {
  const { calls, message } = decoded(input)
  return Result.getOrThrow(GeminiContents.history(message, calls, calls.map(end)))
}

describe("decode", () => {
  it("takes a response, a candidate and a content", () => {
    const message = content({ text: "I look.", thought: true }, call("f", { x: 1 }), call("g", {}, "id_1"))
    const calls = [ToolCall.make("", "f", { x: 1 }), ToolCall.make("id_1", "g", {})]
    const candidate = { content: message, finishReason: "STOP", index: 0 }
    assert.deepStrictEqual(decoded(message), { message: message as never, calls, finishReason: undefined })
    assert.deepStrictEqual(decoded(candidate), { message: message as never, calls, finishReason: "tool-calls" })
    assert.deepStrictEqual(decoded({ candidates: [candidate], usageMetadata: {} }), decoded(candidate))
  })

  it.each([
    ["STOP", "stop"],
    ["MAX_TOKENS", "length"],
    ["SAFETY", "content-filter"],
    ["RECITATION", "content-filter"],
    ["PROHIBITED_CONTENT", "content-filter"],
    ["MALFORMED_FUNCTION_CALL", "error"],
    ["UNEXPECTED_TOOL_CALL", "error"],
    ["TOO_MANY_TOOL_CALLS", "error"],
    ["OTHER", "other"],
    ["SOMETHING_NEW", "other"],
    ["FINISH_REASON_UNSPECIFIED", undefined],
    [null, undefined]
  ])("reads the finish reason %s", (finishReason, expected) => {
    assert.strictEqual(decoded({ content: content({ text: "a" }), finishReason }).finishReason, expected as never)
  })

  it("hands the arguments over as they came", () => {
    assert.deepStrictEqual(
      decoded(content({ functionCall: { name: "f" } }, call("f", null), call("f", { a: 1 }))).calls,
      [{ id: "", name: "f" }, ToolCall.make("", "f", null), ToolCall.make("", "f", { a: 1 })]
    )
  })

  it("takes a response that was filtered, and has no content", () => {
    assert.deepStrictEqual(decoded({ candidates: [{ finishReason: "SAFETY", index: 0 }] }), {
      message: { role: "model", parts: [] },
      calls: [],
      finishReason: "content-filter"
    })
    assert.deepStrictEqual(decoded({ candidates: [{ content: { role: "model" }, finishReason: "STOP" }] }).calls, [])
  })

  it("a call that goes on in the next chunk is not whole", () => {
    const part = {
      functionCall: { name: "f", willContinue: true, partialArgs: [{ jsonPath: "$.x", stringValue: "a" }] }
    }
    assert.strictEqual(decoded({ content: content(part), finishReason: "STOP" }).finishReason, "error")
  })

  it("takes what the provider ran for no calls, and leaves it in its place", () => {
    const parts = [
      { executableCode: { language: "PYTHON", code: "1" } },
      { codeExecutionResult: { outcome: "OUTCOME_OK", output: "1" } },
      { toolCall: { id: "t", toolType: "GOOGLE_SEARCH_WEB", args: {} }, thoughtSignature: "c2ln" },
      { toolResponse: { id: "t", toolType: "GOOGLE_SEARCH_WEB", response: {} } },
      { text: "", thoughtSignature: "c2ln" },
      { somethingNew: { a: [1] } }
    ]
    assert.deepStrictEqual(decoded(content(...parts)).calls, [])
    assert.deepStrictEqual(history(content(...parts), () => assert.fail()), [content(...parts)])
  })

  it.each<[string, unknown, string]>([
    ["null", null, "at its root: expected a response, a candidate or the model's content, and got null"],
    ["text", "{}", "and got text (parse it first)"],
    [
      "a blocked prompt",
      { promptFeedback: { blockReason: "SAFETY" } },
      "at candidates: expected an answer of the model, and got none: the prompt was blocked (SAFETY)"
    ],
    [
      "a blocked prompt, with words",
      { promptFeedback: { blockReason: "OTHER", blockReasonMessage: "no" } },
      '(OTHER: "no")'
    ],
    [
      "no candidate",
      { candidates: [] },
      "at candidates: expected one candidate (of several, hand over the one to go on with)"
    ],
    ["several candidates", { candidates: [{}, {}] }, "and got 2"],
    ["candidates that are no list", { candidates: 1 }, "at candidates: expected array | null, and got 1"],
    ["a user's content", { role: "user", parts: [] }, 'at role: expected "model", and got "user"'],
    [
      "parts that are no list",
      { candidates: [{ content: { parts: 1 } }] },
      "at candidates[0].content.parts: expected array | null, and got 1"
    ],
    [
      "no name",
      content({ text: "a" }, { functionCall: {} }),
      "at parts[1].functionCall.name: expected a value, and got nothing"
    ],
    [
      "snake case, which would hide its calls",
      { candidates: [{ content: content({ function_call: { name: "f" } }) }] },
      'at candidates[0].content.parts[0]: expected the field "functionCall", in camel case, and got the field "function_call"'
    ]
  ])("refuses %s", (_, input, expected) => {
    assert.include(failure(GeminiContents.decode(input)), expected)
  })
})

describe("history", () => {
  it("answers calls without ids by name and place, and makes up no ids", () => {
    const parts = [
      { text: "So", thought: true },
      call("f", { x: 1 }, undefined, { thoughtSignature: "c2ln" }),
      call("f", { x: 2 })
    ]
    assert.deepStrictEqual(history(content(...parts), (one, i) => ok(one, i, i === 0 ? { n: 1 } : "text")), [
      content(...parts),
      {
        role: "user",
        parts: [
          { functionResponse: { name: "f", response: { output: { n: 1 } } } },
          { functionResponse: { name: "f", response: { output: "text" } } }
        ]
      }
    ])
  })

  it("gives ids back where they came, and new ones where one stands for several calls", () => {
    const [sent, answers] = history(
      content(call("f", {}, "a"), call("f", {}), call("f", { x: 1 }, "a"), call("f", {}, "a")),
      (one, i) => ok(one, i, i)
    )
    const ids = ["a", undefined, "call_2"]
    assert.deepStrictEqual(sent.parts.map((part: any) => part.functionCall.id), ids)
    assert.deepStrictEqual(answers.parts.map((part: any) => part.functionResponse.id), ids)
  })

  it("says what became of a call that is not ok", () => {
    const [, answers] = history(content(call("f", {})), (one, i) => refused(one, i, "invalid_arguments", "no"))
    assert.deepStrictEqual(answers.parts[0].functionResponse.response, {
      error: { status: "error", code: "invalid_arguments", retryable: true, message: "no" }
    })
  })

  it("sends whole objects, whatever came", () => {
    const [sent, answers] = history(
      content(call("f", null), call("f", [1]), {
        functionCall: { name: "f", args: { x: "\ud83d" }, willContinue: false }
      }),
      (one, i) => ok(one, i, { text: "\ud83d", nothing: undefined })
    )
    assert.deepStrictEqual(sent.parts.map((part: any) => part.functionCall), [
      { name: "f", args: {} },
      { name: "f", args: {} },
      { name: "f", args: { x: "\ufffd" } }
    ])
    assert.deepStrictEqual(answers.parts[0].functionResponse.response, { output: { text: "\ufffd" } })
  })

  it("mends names that no function may have, in call and answer", () => {
    const [sent, answers] = history(
      content(call("9lives", {}), call("", {}), call("a b", {}), call("a.b:c-d", {})),
      (one, i) => refused(one, i, "unknown_tool", "no such tool")
    )
    const names = ["_lives", "unnamed", "a_b", "a.b:c-d"]
    assert.deepStrictEqual(sent.parts.map((part: any) => part.functionCall.name), names)
    assert.deepStrictEqual(answers.parts.map((part: any) => part.functionResponse.name), names)
  })

  it("drops empty parts, and what the provider ran itself", () => {
    const [sent, answers] = history(
      content({ text: "" }, {}, call("web", {}), call("f", {}), { text: "" }),
      (one, i) => i === 0 ? byProvider(one, i) : ok(one, i, 1)
    )
    assert.deepStrictEqual(sent.parts, [call("f", {})])
    assert.lengthOf(answers.parts, 1)
  })

  it("gives back a content without calls, and no empty one", () => {
    assert.deepStrictEqual(history({ parts: [{ text: "hello" }] }, () => assert.fail()), [content({ text: "hello" })])
    for (const input of [{ candidates: [{ finishReason: "SAFETY" }] }, content({ text: "" }), { role: "model" }]) {
      const given = decoded(input)
      assert.include(
        failure(GeminiContents.history(given.message, given.calls, [])),
        "at parts: expected text or calls (an empty content is refused), and got an empty content"
      )
    }
  })
})

it("the check refuses what it should", () => {
  const made = content(call("f", {}), call("g", {}))
  const answer = (name: string, rest?: object) => ({ functionResponse: { name, response: {}, ...rest } })
  const answers = (...parts: ReadonlyArray<unknown>) => ({ role: "user", parts })
  assert.isUndefined(geminiRefusal([made, answers(answer("f"), answer("g"))]))
  for (
    const [contents, words] of [
      [[made], "the number of function response parts"],
      [[made, answers(answer("f"))], "the number of function response parts"],
      [[made, answers(answer("f"), answer("g"), answer("g"))], "the number of function response parts"],
      [[made, answers(answer("f"), { text: "a" })], "the number of function response parts"],
      [[made, answers(answer("g"), answer("f"))], "does not match"],
      [[made, answers(answer("f", { id: "a" }), answer("g"))], "does not match"],
      [[made, answers(answer("f", { response: "a" }), answer("g"))], "Struct"],
      [[content(call("f", null)), answers(answer("f"))], "Struct"],
      [[content(call("a b", {})), answers(answer("a b"))], "Invalid function name"],
      [[answers(answer("f"))], "immediately after"],
      [[content()], "must not be empty"],
      [[content({ text: "" })], "empty text"],
      [[content(call("f", { x: "\ud83d" })), answers(answer("f"))], "surrogate"]
    ] as ReadonlyArray<[ReadonlyArray<any>, string]>
  ) assert.include(geminiRefusal(contents), words)
})
