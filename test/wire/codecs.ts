import type { ToolCall } from "effect-turn"
import { AnthropicMessages, type AnyDialect, GeminiContents, OpenAiChat, OpenAiResponses } from "effect-turn/wire"
import { anthropicRefusal, geminiRefusal, refusal, responsesRefusal } from "./provider.ts"

/** A provider as properties see it: a response that makes calls, what it refuses, and which call each answer is for. */
export interface Codec {
  readonly dialect: AnyDialect
  readonly response: (calls: ReadonlyArray<ToolCall.ToolCall>, isCut?: boolean) => unknown
  readonly refusal: (history: ReadonlyArray<any>) => string | undefined
  /** Calls and answers of a history, by id (by name where there is none), in their order. */
  readonly ids: (history: ReadonlyArray<any>) => { readonly calls: Array<string>; readonly answers: Array<string> }
  /** All that is in a response beside its calls, as it should be in a history. */
  readonly rest: (history: ReadonlyArray<any>) => unknown
  readonly kept: unknown
}

const reasoning = {
  type: "reasoning",
  id: "rs_1",
  summary: [],
  encrypted_content: "gAAAA",
  "x-new": { __proto__: null }
}
const search = {
  type: "web_search_call",
  id: "ws_1",
  status: "completed",
  action: { type: "search", query: "q" },
  x: [1]
}
const said = {
  type: "message",
  id: "msg_1",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text: "I look.", annotations: [] }]
}
const thinking = { type: "thinking", thinking: "So ", signature: "c2ln", "x-new": 1 }
const serverTool = { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "q" } }
const serverResult = {
  type: "web_search_tool_result",
  tool_use_id: "srvtoolu_1",
  content: [{ encrypted_content: "x" }]
}
const thought = { text: "So", thought: true, thoughtSignature: "c2ln" }
const code = { executableCode: { language: "PYTHON", code: "1" }, partMetadata: { x: 1 } }
const result = { codeExecutionResult: { outcome: "OUTCOME_OK", output: "1" } }

const idOf = (id: string | undefined, name: string) => id ?? `a ${name} without an id`

export const codecs: ReadonlyArray<Codec> = [
  {
    dialect: OpenAiChat.dialect,
    response: (calls, isCut = false) => ({
      finish_reason: isCut ? "length" : "tool_calls",
      message: {
        role: "assistant",
        content: null,
        reasoning_content: "So",
        tool_calls: calls.map(({ arguments: args, id, name }) => ({
          id,
          type: "function",
          function: { name, arguments: args }
        }))
      }
    }),
    refusal,
    ids: ([message, ...answers]) => ({
      calls: message.tool_calls.map((call: any) => call.id),
      answers: answers.map((answer) => answer.tool_call_id)
    }),
    rest: ([{ tool_calls: _, ...rest }]) => rest,
    kept: { role: "assistant", content: null, reasoning_content: "So" }
  },
  {
    dialect: OpenAiResponses.dialect,
    response: (calls, isCut = false) => ({
      object: "response",
      status: isCut ? "incomplete" : "completed",
      incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
      output: [
        { ...reasoning, status: "completed" },
        search,
        said,
        ...calls.map(({ arguments: args, id, name }, i) => ({
          type: "function_call",
          id: `fc_${i}`,
          call_id: id,
          name,
          arguments: args,
          status: "completed",
          created_by: "model"
        }))
      ]
    }),
    refusal: responsesRefusal,
    ids: (items) => ({
      calls: items.filter(({ type }) => type === "function_call").map((item) => item.call_id),
      answers: items.filter(({ type }) => type === "function_call_output").map((item) => item.call_id)
    }),
    rest: (items) => items.filter(({ type }) => !type.startsWith("function_call")),
    kept: [reasoning, search, said]
  },
  {
    dialect: AnthropicMessages.dialect,
    response: (calls, isCut = false) => ({
      id: "msg_1",
      type: "message",
      role: "assistant",
      model: "claude",
      usage: {},
      stop_reason: isCut ? "max_tokens" : "tool_use",
      content: [
        thinking,
        { type: "text", text: "" },
        serverTool,
        serverResult,
        ...calls.map(({ arguments: input, id, name }) => ({ type: "tool_use", id, name, input }))
      ]
    }),
    refusal: anthropicRefusal,
    ids: ([message, answers]) => ({
      calls: message.content.flatMap((block: any) => block.type === "tool_use" ? [block.id] : []),
      answers: answers.content.map((block: any) => block.tool_use_id)
    }),
    rest: ([message]) => message.content.filter(({ type }: any) => type !== "tool_use"),
    kept: [thinking, serverTool, serverResult]
  },
  {
    dialect: GeminiContents.dialect,
    response: (calls, isCut = false) => ({
      candidates: [{
        finishReason: isCut ? "MAX_TOKENS" : "STOP",
        content: {
          role: "model",
          parts: [
            thought,
            code,
            result,
            ...calls.map(({ arguments: args, id, name }) => ({
              functionCall: { ...(id === "" ? undefined : { id }), name, args }
            })),
            { text: "" }
          ]
        }
      }],
      modelVersion: "gemini-3"
    }),
    refusal: geminiRefusal,
    ids: ([message, answers]) => ({
      calls: message.parts.flatMap(({ functionCall }: any) =>
        functionCall ? [idOf(functionCall.id, functionCall.name)] : []
      ),
      answers: answers.parts.map(({ functionResponse: { id, name } }: any) => idOf(id, name))
    }),
    rest: ([message]) => message.parts.filter((part: any) => part.functionCall === undefined),
    kept: [thought, code, result]
  }
]
