import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import * as Input from "../../src/cli/input.ts"
import { faultIn } from "../../src/cli/json.ts"
import { describeShared } from "../utils/requires.ts"
import { run } from "./program.ts"

const tools = path.join(import.meta.dirname, "../fixtures/cli/tools.ts")
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

/** The same two calls, as each provider sends them: at once, and as a stream. */
const dialects: Readonly<Record<string, { readonly whole: any; readonly stream: ReadonlyArray<any> }>> = {
  chat: {
    whole: {
      choices: [{
        index: 0,
        finish_reason: "tool_calls",
        message: {
          role: "assistant",
          content: null,
          tool_calls: [
            { id: "c1", type: "function", function: { name: "look", arguments: '{"at":"door"}' } },
            { id: "c2", type: "function", function: { name: "put", arguments: '{"at":"door"}' } }
          ]
        }
      }]
    },
    stream: [
      {
        object: "chat.completion.chunk",
        choices: [{
          index: 0,
          delta: {
            role: "assistant",
            content: null,
            tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "look", arguments: '{"at":' } }]
          }
        }]
      },
      { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: '"door"}' } }] } }] },
      {
        choices: [{
          index: 0,
          delta: {
            tool_calls: [{
              index: 1,
              id: "c2",
              type: "function",
              function: { name: "put", arguments: '{"at":"door"}' }
            }]
          }
        }]
      },
      { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] }
    ]
  },
  responses: {
    whole: {
      object: "response",
      status: "completed",
      output: [
        { type: "reasoning", id: "rs_1", summary: [] },
        {
          type: "function_call",
          id: "fc_1",
          call_id: "c1",
          name: "look",
          arguments: '{"at":"door"}',
          status: "completed"
        },
        {
          type: "function_call",
          id: "fc_2",
          call_id: "c2",
          name: "put",
          arguments: '{"at":"door"}',
          status: "completed"
        }
      ]
    },
    stream: [
      { type: "response.created", response: { object: "response", id: "r", status: "in_progress", output: [] } },
      ...[
        { type: "function_call", id: "fc_1", call_id: "c1", name: "look", arguments: '{"at":"door"}' },
        { type: "function_call", id: "fc_2", call_id: "c2", name: "put", arguments: '{"at":"door"}' }
      ].flatMap((item, output_index) => [
        {
          type: "response.output_item.added",
          output_index,
          item: { ...item, arguments: "", status: "in_progress" }
        },
        { type: "response.output_item.done", output_index, item: { ...item, status: "completed" } }
      ]),
      {
        type: "response.completed",
        response: {
          object: "response",
          id: "r",
          status: "completed",
          output: [
            {
              type: "function_call",
              id: "fc_1",
              call_id: "c1",
              name: "look",
              arguments: '{"at":"door"}',
              status: "completed"
            },
            {
              type: "function_call",
              id: "fc_2",
              call_id: "c2",
              name: "put",
              arguments: '{"at":"door"}',
              status: "completed"
            }
          ]
        }
      }
    ]
  },
  anthropic: {
    whole: {
      type: "message",
      role: "assistant",
      content: [
        { type: "tool_use", id: "c1", name: "look", input: { at: "door" } },
        { type: "tool_use", id: "c2", name: "put", input: { at: "door" } }
      ],
      stop_reason: "tool_use"
    },
    stream: [
      { type: "message_start", message: { type: "message", role: "assistant", content: [], stop_reason: null } },
      { type: "ping" },
      { type: "content_block_start", index: 0, content_block: { type: "tool_use", id: "c1", name: "look", input: {} } },
      { type: "content_block_delta", index: 0, delta: { type: "input_json_delta", partial_json: '{"at":"door"}' } },
      { type: "content_block_stop", index: 0 },
      { type: "content_block_start", index: 1, content_block: { type: "tool_use", id: "c2", name: "put", input: {} } },
      { type: "content_block_delta", index: 1, delta: { type: "input_json_delta", partial_json: '{"at":"door"}' } },
      { type: "content_block_stop", index: 1 },
      { type: "message_delta", delta: { stop_reason: "tool_use" } },
      { type: "message_stop" }
    ]
  },
  gemini: {
    whole: {
      candidates: [{
        finishReason: "STOP",
        content: {
          role: "model",
          parts: [
            { functionCall: { id: "c1", name: "look", args: { at: "door" } }, thoughtSignature: "s" },
            { functionCall: { id: "c2", name: "put", args: { at: "door" } } }
          ]
        }
      }]
    },
    stream: [
      {
        candidates: [{
          content: { role: "model", parts: [{ functionCall: { id: "c1", name: "look", args: { at: "door" } } }] }
        }]
      },
      {
        candidates: [{
          content: { role: "model", parts: [{ functionCall: { id: "c2", name: "put", args: { at: "door" } } }] },
          finishReason: "STOP"
        }]
      }
    ]
  },
  neutral: {
    whole: {
      calls: [
        { id: "c1", name: "look", arguments: { at: "door" } },
        { id: "c2", name: "put", arguments: { at: "door" } }
      ],
      finishReason: "tool-calls"
    },
    stream: [
      { id: "c1", name: "look", arguments: { at: "door" } },
      { id: "c2", name: "put", arguments: { at: "door" } },
      { finishReason: "tool-calls" }
    ]
  }
}

const sent = (events: ReadonlyArray<unknown>) =>
  `${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n`

const planned = (stdin: string, ...flags: ReadonlyArray<string>) =>
  Effect.map(run(["plan", "--tools", tools, "--json", ...flags], { stdin }), ({ code, err, out }) => {
    assert.strictEqual(code, 0, err)
    return JSON.parse(out).calls.map((call: any) => [call.id, call.name, call.verdict])
  })

const expected = [["c1", "look", "run"], ["c2", "put", "run"]]

describe("a message is understood, whoever's it is", () => {
  for (const [id, { stream, whole }] of Object.entries(dialects)) {
    it.live(`${id}: as a response, and as the events of a stream in every form they are kept in`, () =>
      Effect.gen(function*() {
        const texts = [
          JSON.stringify(whole),
          JSON.stringify(whole, null, 2),
          sent(stream),
          `: a comment\r\n\r\n${sent(stream).replaceAll("\n", "\r\n")}`,
          stream.map((event) => `${JSON.stringify(event)}\n`).join(""),
          ...(id === "neutral" ? [] : [JSON.stringify(stream)])
        ]
        for (const text of texts) assert.deepStrictEqual(yield* planned(text), expected, text)
        assert.deepStrictEqual(yield* planned(JSON.stringify(whole), "--dialect", id), expected)
      }))

    it.live(`${id}: answers in its own form, also while it streams`, () =>
      Effect.gen(function*() {
        for (const stdin of [JSON.stringify(whole), sent(stream)]) {
          const { code, err, out } = yield* run(["run", "--tools", tools, "--json"], { stdin })
          assert.strictEqual(code, 0, err)
          const { messages, outcomes, plan } = JSON.parse(out)
          assert.deepStrictEqual(outcomes.map((outcome: any) => outcome.result), [{ seen: "door" }, "put door"])
          assert.strictEqual(plan.calls.length, 2)
          const answers: Record<string, (messages: any) => ReadonlyArray<unknown>> = {
            chat: ([, ...tools]) => tools.map((tool: any) => [tool.role, tool.tool_call_id]),
            responses: (items) =>
              items.filter((item: any) => item.type === "function_call_output").map((item: any) => item.call_id),
            anthropic: ([, { content }]) => content.map((block: any) => [block.type, block.tool_use_id]),
            gemini: ([, { parts }]) => parts.map((part: any) => part.functionResponse.id),
            neutral: ([, { outcomes }]) => outcomes.map((outcome: any) => outcome.id)
          }
          assert.deepStrictEqual(
            answers[id]!(messages),
            {
              chat: [["tool", "c1"], ["tool", "c2"]],
              responses: ["c1", "c2"],
              anthropic: [["tool_result", "c1"], ["tool_result", "c2"]],
              gemini: ["c1", "c2"],
              neutral: ["c1", "c2"]
            }[id] as any
          )
        }
      }))
  }

  it.live("reads a stream from a file too, and says so", () =>
    Effect.gen(function*() {
      const file = path.join(scratch, "stream.sse")
      fs.writeFileSync(file, sent(dialects["anthropic"]!.stream))
      const { err } = yield* run(["plan", file, "--tools", tools])
      assert.include(err, `note: ${file} is a recorded stream: its 10 events are put together`)
    }))
})

describe("of a history that ends with the model's message, that message is taken", () => {
  const user = { role: "user", content: "Look." }
  const histories: Readonly<Record<string, any>> = {
    chat: { model: "m", messages: [user, dialects["chat"]!.whole.choices[0].message] },
    responses: { input: [user, ...dialects["responses"]!.whole.output] },
    anthropic: [user, { role: "assistant", content: dialects["anthropic"]!.whole.content }],
    gemini: {
      contents: [{ role: "user", parts: [{ text: "Look." }] }, dialects["gemini"]!.whole.candidates[0].content]
    }
  }
  for (const [id, history] of Object.entries(histories)) {
    it.live(id, () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* planned(JSON.stringify(history)), expected)
        const { err } = yield* run(["plan", "--tools", tools], { stdin: JSON.stringify(history) })
        assert.match(err, /^note: standard input is a history of \d: the model's last message is taken$/m)
        const list = Array.isArray(history) ? history : history.messages ?? history.input ?? history.contents
        const later = { ...(id === "gemini" ? { parts: [{ text: "And?" }] } : { content: "And?" }), role: "user" }
        const over = yield* run(["plan", "--tools", tools], { stdin: JSON.stringify([...list, later]) })
        assert.strictEqual(over.code, 2)
        assert.include(over.err, "a history that does not end with a message of the model")
        assert.include(over.err, 'got       a message of the role "user" as the last of')
      }))
  }
})

describe("a stream that is broken", () => {
  it.live("answers what came, says why, and exits 1", () =>
    Effect.gen(function*() {
      const { stream } = dialects["anthropic"]!
      const { code, err, out } = yield* run(["run", "--tools", tools], {
        stdin: stream.slice(0, 8).map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")
      })
      assert.strictEqual(code, 1)
      assert.include(err, "the response broke off: expected the end of the response, got the end of the stream")
      const [, answers] = JSON.parse(out)
      assert.deepStrictEqual(answers.content.map((block: any) => block.tool_use_id), ["c1", "c2"])
      assert.match(err, /#0 look +ok/)
      assert.match(err, /#1 put +error \(incomplete_response\)/)
    }))

  it.live("of events that nobody sends is refused", () =>
    Effect.gen(function*() {
      for (const command of ["run", "plan"]) {
        const { code, err } = yield* run([command, "--tools", tools], { stdin: 'data: {"x":1}\n\ndata: {"x":2}\n\n' })
        assert.strictEqual(code, 2)
        assert.include(err, "chunks of Chat Completions or Gemini, events of Responses or Anthropic")
        assert.include(err, "got       2 events that are none of these")
        const broken = yield* run([command, "--tools", tools], { stdin: "data: {x}\n\n" })
        assert.strictEqual(broken.code, 2)
        assert.include(broken.err, "events[0]")
        const error = yield* run([command, "--tools", tools], { stdin: 'data: {"error": {"message": "no quota"}}\n\n' })
        assert.include(error.err, 'got       the provider\'s error "no quota"')
      }
    }))
})

describe("--dialect", () => {
  it.live("is refused where the message is another's, with what to do", () =>
    Effect.gen(function*() {
      const stdin = JSON.stringify(dialects["chat"]!.whole)
      const { code, err } = yield* run(["plan", "--tools", tools, "--dialect", "gemini"], { stdin })
      assert.strictEqual(code, 2)
      assert.include(err, "standard input is no message of the dialect gemini")
      assert.include(err, "leave out --dialect gemini: whose message it is, is found out")
      const unknown = yield* run(["plan", "--tools", tools, "--dialect", "openai"], { stdin })
      assert.include(unknown.err, '"chat" | "responses" | "anthropic" | "gemini" | "neutral"')
    }))
})

describe("where a text stops to be JSON", () => {
  it.each([
    ["", 1, 1, "the end"],
    ['{"a":1,}', 1, 8, "}"],
    ["[1 2]", 1, 4, "2]"],
    ['{"a" 1}', 1, 6, "1}"],
    ["[\n  'x'\n]", 2, 3, "'x'"],
    ['{"a":[1,2', 1, 10, "the end"],
    ["[1,]", 1, 4, "]"],
    ["{} {}", 1, 4, "{}"],
    ["[01]", 1, 2, "01]"],
    ['["a\nb"]', 1, 2, '"a'],
    ["{a: 1}", 1, 2, "a: 1}"],
    ["[NaN]", 1, 2, "NaN]"]
  ])("%j", (text, line, column, received) => {
    const { expected, ...fault } = faultIn(text)!
    assert.deepStrictEqual(fault, { line, column, received })
    assert.isAbove(expected.length, 0)
  })

  it("agrees with JSON.parse on what is JSON", () => {
    const sound = ['{"a":[1,-2.5e3,true,null,"\\u00e9\\n",{}],"b":{}}', " 1 ", "[]", '"x"', "\ufeff{}"]
    for (const text of sound) assert.isUndefined(faultIn(text), text)
    for (const text of sound) {
      for (let i = 0; i <= text.length; i++) {
        for (const sign of ["", ",", "}", "]", '"', "x", "0", "-"]) {
          const edited = text.slice(0, i) + sign + text.slice(i + (sign === "" ? 1 : 0))
          let isJson = true
          try {
            JSON.parse(edited.replace(/^\ufeff/, ""))
          } catch {
            isJson = false
          }
          assert.strictEqual(faultIn(edited) === undefined, isJson, edited)
        }
      }
    }
  })
})

describeShared("responses and streams that providers really sent", (shared) => {
  const records = fs.readFileSync(path.join(shared, "data/turns-provider.handed.jsonl"), "utf8").trim().split("\n")
    .map((line) => JSON.parse(line))

  it.live("are all understood", () =>
    Effect.gen(function*() {
      assert.isAbove(records.filter((record) => record.stream).length, 0)
      assert.isAbove(records.filter((record) => !record.stream).length, 0)
      for (const record of records) {
        const text = record.stream ? record.wire_response : JSON.stringify(record.wire_response)
        const { calls } = yield* Input.decode(record.id, text, undefined)
        assert.deepStrictEqual(calls.map(({ name }) => name), record.calls.map((call: any) => call.name), record.id)
      }
    }))
})
