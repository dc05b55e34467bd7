/** W4: nothing throws, whatever stands at whichever place of a message, a stream or a history. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { Outcome, ToolCall } from "effect-turn"
import { type AnyDialect, detect, type Dialect, dialects, EventStream, History } from "effect-turn/wire"

const throwing = (): never => {
  throw new Error("do not look")
}

const deep = (of: (inner: unknown) => unknown): unknown => {
  let value: unknown = 1
  for (let i = 0; i < 20_000; i++) value = of(value)
  return value
}

const cyclic = (): unknown => {
  const value: Record<string, unknown> = {}
  value.self = value
  return value
}

/** Of the first ones a message may be made that comes as JSON. */
const json: ReadonlyArray<readonly [string, unknown]> = [
  ["null", null],
  ["a number", 0],
  ["a truth value", true],
  ["no text", ""],
  ["text", "abc"],
  ["half a character", "a\ud800"],
  ["an empty list", []],
  ["an empty object", {}],
  ["a list of null", [null]],
  ["a list of lists", [[]]],
  ["names of Object's own", JSON.parse('{"__proto__":{"x":1},"constructor":1,"toString":1,"valueOf":2,"toJSON":1}')],
  ["a list of those", [JSON.parse('{"__proto__":{"x":1},"constructor":1,"toString":1,"valueOf":2,"toJSON":1}')]],
  ["a deep list", deep((inner) => [inner])],
  ["a deep object", deep((inner) => ({ inner }))]
]

const others: ReadonlyArray<readonly [string, unknown]> = [
  ["nothing", undefined],
  ["no number", NaN],
  ["a big integer", 1n],
  ["a symbol", Symbol("odd")],
  ["a function", throwing],
  ["no prototype", Object.create(null)],
  ["a cycle", cyclic()],
  ["a getter that throws", Object.defineProperty({}, "type", { enumerable: true, get: throwing })],
  ["a list of those", [Object.defineProperty({}, "any", { enumerable: true, get: throwing })]],
  ["a proxy that throws", new Proxy({}, { get: throwing, has: throwing, ownKeys: throwing })]
]

const call = { id: "c1", name: "f" }

const messages: Record<string, unknown> = {
  chat: {
    choices: [{
      finish_reason: "tool_calls",
      message: {
        role: "assistant",
        content: "hi",
        tool_calls: [
          { id: "c1", type: "function", function: { name: "f", arguments: '{"a":1}' } },
          { id: "c2", type: "custom", custom: { name: "g", input: "x" } }
        ]
      }
    }]
  },
  responses: {
    object: "response",
    status: "completed",
    incomplete_details: null,
    output: [
      { type: "reasoning", id: "rs_1", summary: [] },
      { type: "message", id: "msg_1", role: "assistant", content: [{ type: "output_text", text: "x" }] },
      { type: "function_call", id: "fc_1", call_id: "c1", name: "f", arguments: "{}" },
      { type: "shell_call", environment: { type: "container_reference" } }
    ]
  },
  anthropic: {
    role: "assistant",
    stop_reason: "tool_use",
    content: [
      { type: "thinking", thinking: "x", signature: "s" },
      { type: "text", text: "hi", citations: [{ file_id: null }] },
      { type: "tool_use", ...call, input: { a: 1 } }
    ]
  },
  gemini: {
    candidates: [{
      finishReason: "STOP",
      content: { role: "model", parts: [{ text: "x" }, { functionCall: { ...call, args: { a: 1 } } }] }
    }],
    promptFeedback: { blockReason: null }
  },
  neutral: { calls: [{ ...call, arguments: { a: 1 } }], finishReason: "tool-calls" }
}

const streams: Record<string, ReadonlyArray<unknown>> = {
  chat: [
    { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, ...call, function: { name: "f", arguments: "" } }] } }] },
    { choices: [{ index: 0, delta: { content: "x", tool_calls: [{ index: 0, function: { arguments: "{}" } }] } }] },
    { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] },
    { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: "late" } }] } }] }
  ],
  responses: [
    { type: "response.output_item.added", output_index: 0, item: { type: "message", id: "msg_1", content: [] } },
    { type: "response.content_part.added", output_index: 0, content_index: 0, part: { type: "output_text", text: "" } },
    { type: "response.output_text.delta", output_index: 0, content_index: 0, delta: "x" },
    { type: "response.output_item.done", output_index: 1, item: { type: "function_call", call_id: "c1", name: "f" } },
    { type: "response.completed", response: { status: "completed", output: [] } }
  ],
  anthropic: [
    { type: "message_start", message: { role: "assistant", content: [], usage: { a: 1 } } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "", citations: null } },
    { type: "content_block_delta", index: 0, delta: { type: "citations_delta", citation: { a: 1 } } },
    { type: "content_block_start", index: 1, content_block: { type: "tool_use", ...call, input: {} } },
    { type: "content_block_delta", index: 1, delta: { type: "input_json_delta", partial_json: "{}" } },
    { type: "content_block_stop", index: 1 },
    { type: "message_delta", delta: { stop_reason: "tool_use" }, usage: { b: 1 } }
  ],
  gemini: [
    { candidates: [{ index: 0, content: { role: "model", parts: [{ text: "x" }, { text: "y" }] } }] },
    { candidates: [{ content: { parts: [{ functionCall: { name: "f", willContinue: true } }] } }] },
    {
      candidates: [{ content: { parts: [{ functionCall: { partialArgs: [{ jsonPath: "$.a", stringValue: "x" }] } }] } }]
    },
    { candidates: [{ finishReason: "STOP" }], usageMetadata: {} }
  ],
  neutral: [{ ...call, arguments: {} }, { finishReason: "stop" }]
}

const histories: Record<History.DialectId, unknown> = {
  chat: {
    messages: [
      { role: "user", content: "x" },
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: "1", type: "function", function: { name: "f", arguments: "{}" } },
          { id: "2", type: "custom", custom: { name: "f", input: "{}" } }
        ]
      },
      { role: "tool", tool_call_id: "1", content: [{ type: "text", text: "x" }, { type: "image_url" }] },
      { role: "tool", tool_call_id: "1", content: "y" }
    ],
    tools: [{ function: {} }]
  },
  responses: {
    input: [
      { type: "message", role: "user", content: [{ type: "input_text", text: "x" }] },
      { type: "reasoning", id: "rs_1" },
      { type: "function_call", id: "fc_1", call_id: "1", name: "f", arguments: "{}" },
      { type: "function_call_output", call_id: "1", output: [{ type: "text", text: "x" }] },
      { type: "function_call_output", call_id: "1", output: "y" }
    ]
  },
  anthropic: {
    messages: [
      { role: "user", content: "x" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "x", signature: "x" },
          { type: "server_tool_use", id: "s", name: "x" },
          { type: "tool_use", id: "1", name: "f", input: {} }
        ]
      },
      {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: "1", content: [{ type: "text", text: "x" }], is_error: true }]
      }
    ]
  },
  gemini: {
    contents: [
      { role: "user", parts: [{ text: "x" }] },
      { role: "model", parts: [{ functionCall: { id: "1", name: "f", args: {} } }] },
      { role: "user", parts: [{ functionResponse: { name: "f", response: {} } }] }
    ]
  }
}

type Path = ReadonlyArray<string>

const pathsOf = (value: unknown, path: Path = []): ReadonlyArray<Path> => [
  path,
  ...(typeof value === "object" && value !== null
    ? Object.entries(value).flatMap(([key, one]) => pathsOf(one, [...path, key]))
    : [])
]

const put = (value: any, [key, ...rest]: Path, odd: unknown): any => {
  if (key === undefined) return odd
  const copy = Array.isArray(value) ? [...value] : { ...value }
  copy[key] = put(value[key], rest, odd)
  return copy
}

/** Every place of a value with something odd in it. */
const variants = function*(value: unknown, odd: ReadonlyArray<readonly [string, unknown]>) {
  for (const path of pathsOf(value)) {
    for (const [what, one] of odd) yield { where: `${what} at ${path.join(".")}`, input: put(value, path, one) }
  }
}

const outcomeOf = (call: ToolCall.ToolCall, position: number): Outcome.Outcome<any> => ({
  position,
  id: call.id,
  name: call.name,
  status: "ok",
  started: true,
  effect: "none",
  retryable: false,
  message: "",
  result: "done",
  encoded: "done"
})

const answer = (dialect: AnyDialect, decoded: Result.Result<Dialect.Decoded<any>, unknown>): void => {
  if (Result.isFailure(decoded)) return
  const { calls, message } = decoded.success
  dialect.history(message, calls, calls.map(outcomeOf))
}

/** That it does not throw, and where it did. */
const holds = (where: string, use: () => void): void => {
  try {
    use()
  } catch (error) {
    assert.fail(`${where}: ${error}`)
  }
}

describe.each(dialects.map((dialect) => [dialect.id, dialect] as const))("%s", (id, dialect) => {
  it("a message with something odd in it is read, or refused", () => {
    let count = 0
    for (const { input, where } of variants(messages[id], [...json, ...others])) {
      holds(where, () => {
        assert.isBoolean(dialect.matches(input))
        detect(input)
        answer(dialect, dialect.decode(input))
      })
      count++
    }
    assert.isAbove(count, 100)
  })

  it("a stream with something odd in it is put together, or refused", () => {
    let count = 0
    for (const { input, where } of variants(streams[id], [...json, ...others])) {
      if (!Array.isArray(input)) continue
      holds(where, () => {
        EventStream.detect(input)
        for (const events of [input, input.slice(0, -2)]) {
          const assembler = dialect.assembler()
          for (const event of events) assembler.push(event)
          answer(dialect, assembler.end())
        }
      })
      count++
    }
    assert.isAbove(count, 100)
  })

  it("a message without calls, and one with null for everything, is read or refused", () => {
    for (const input of [null, [], {}, put(messages[id], [], { calls: [], output: [], choices: [], candidates: [] })]) {
      holds(JSON.stringify(input), () => answer(dialect, dialect.decode(input)))
    }
  })
})

describe.each(Object.entries(histories))("histories: %s", (id, history) => {
  const options = { dialect: id as History.DialectId }

  it("something odd is told or refused, and what is mended stays as it is", () => {
    let mended = 0
    for (const { input, where } of variants(history, json)) {
      holds(where, () => {
        const first = History.mend(input, options)
        if (Result.isFailure(first)) {
          if (!where.startsWith("a deep")) assert.notInclude(first.failure.message, "one that throws")
          return
        }
        const again = Result.getOrThrow(History.check(first.success.history, options))
        assert.deepStrictEqual(again.problems.map(({ code }) => code), [])
        mended++
      })
    }
    assert.isAbove(mended, 100)
  })

  it("what JSON cannot hold is told or refused", () => {
    for (const { input, where } of variants(history, others)) {
      holds(where, () => {
        History.check(input)
        History.mend(input, options)
        History.openCalls(input, options)
      })
    }
  })
})
