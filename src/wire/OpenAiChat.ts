/**
 * OpenAI's Chat Completions, and the many hosts that speak it: calls out of a response, tool messages back.
 *
 * What hosts do differently and is understood: `type` or `id` left out, `arguments` as an object, null or nothing in
 * place of text. What they are known to refuse is not built: an id without its tool message, an id twice, an empty
 * `tool_calls`, arguments that are no JSON object, an invented tool name with characters that no name may have, a
 * blank answer, a message with neither text nor calls. Fields that this module does not know (`reasoning_content`,
 * `annotations`, …) stay where they are.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type * as Outcome from "../Outcome.ts"
import * as ToolCall from "../ToolCall.ts"
import type * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import { assembly } from "./stream/openAiChat.ts"
import { text as stringOf } from "./stream/parts.ts"

const name = "OpenAI Chat Completions"

const Entry = Schema.Struct({
  id: Schema.optional(Schema.NullOr(Schema.String)),
  type: Schema.optional(Schema.NullOr(Schema.String)),
  function: Schema.optional(
    Schema.NullOr(Schema.Struct({ name: Schema.String, arguments: Schema.optional(Schema.Unknown) }))
  ),
  custom: Schema.optional(Schema.NullOr(Schema.Struct({ name: Schema.String, input: Schema.String })))
})

/**
 * Schema of the assistant's message as hosts send it. Fields that it does not name are allowed, and kept by
 * {@link decode} and {@link history}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Message = Schema.Struct({
  role: Schema.Literal("assistant"),
  content: Schema.optional(Schema.NullOr(Schema.Union([Schema.String, Schema.Array(Schema.Unknown)]))),
  refusal: Schema.optional(Schema.NullOr(Schema.String)),
  tool_calls: Schema.optional(Schema.NullOr(Schema.Array(Entry)))
})

/**
 * The assistant's message as hosts send it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Message = typeof Message.Type

const Response = Schema.Struct({ choices: Schema.Array(Schema.Unknown) })

const Choice = Schema.Struct({
  message: Schema.Unknown,
  finish_reason: Schema.optional(Schema.NullOr(Schema.String))
})

/**
 * The assistant's message as it goes back.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface AssistantMessage {
  role: "assistant"
  content?: string | Array<{ type: "text"; text: string }> | null
  tool_calls?: Array<FunctionCall | CustomCall>
}

/**
 * A call of a function tool: its arguments are the text of one JSON object.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FunctionCall {
  id: string
  type: "function"
  function: { name: string; arguments: string }
}

/**
 * A call of a custom tool: its input is free text.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CustomCall {
  id: string
  type: "custom"
  custom: { name: string; input: string }
}

/**
 * The answer to one call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToolMessage {
  role: "tool"
  tool_call_id: string
  content: string
}

/**
 * Tells whether this is a Chat Completions response, one of its choices, or the assistant's message in it, by its
 * shape.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const matches = (input: unknown): boolean =>
  Dialect.looksLike(() => {
    if (!Dialect.isRecord(input)) return false
    if (Array.isArray(input.choices)) return true
    if (Dialect.isRecord(input.message) && "finish_reason" in input) return true
    return input.role === "assistant" && input.type !== "message" && !("stop_reason" in input) &&
      !holdsBlocks(input.content)
  })

/** Messages of other providers have the same role, and their calls and thoughts among the parts of the content. */
const holdsBlocks = (content: unknown): boolean =>
  Array.isArray(content) && content.some((part) =>
    Dialect.isRecord(part) &&
    (/^tool_|_tool_|^redacted_thinking$/.test(stringOf(part.type)) || typeof part.thinking === "string")
  )

/**
 * Takes the calls out of a response, a choice or an assistant message.
 *
 * **Details**
 *
 * `arguments` are handed over as they came: the runtime reads them. A custom tool's free text becomes the
 * argument `input`. Of a response with several choices one must be chosen first, since they are alternatives.
 *
 * **Example** (A recorded message)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { OpenAiChat } from "effect-turn/wire"
 *
 * const decoded = Result.getOrThrow(OpenAiChat.decode({
 *   role: "assistant",
 *   tool_calls: [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } }]
 * }))
 * const calls = decoded.calls // => [{ id: "call_1", name: "get_weather", arguments: '{"city":"Oslo"}' }]
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const decode = (input: unknown): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    if (!Dialect.isRecord(input)) {
      return Dialect.refuse(name, "", "a response, a choice or an assistant message", Dialect.describe(input))
    }
    if ("choices" in input) return decodeResponse(input)
    if ("message" in input) return decodeChoice(input, "")
    if (!("role" in input || "tool_calls" in input || "content" in input)) {
      return Dialect.refuse(name, "", "a response, a choice or an assistant message", Dialect.describe(input))
    }
    return decodeMessage(input, undefined, "")
  })

const decodeResponse = (input: unknown) => {
  const response = Dialect.check(name, Response, input)
  if (Result.isFailure(response)) return Result.fail(response.failure)
  const { choices } = response.success
  const [choice] = choices
  if (choices.length !== 1) {
    return Dialect.refuse(
      name,
      "choices",
      "one choice (of several, hand over the one to go on with)",
      `${choices.length}`
    )
  }
  return decodeChoice(choice, "choices[0]")
}

const decodeChoice = (input: unknown, path: string) => {
  if (Dialect.isRecord(input) && "delta" in input) {
    return Dialect.refuse(name, path, "a whole response", "a chunk of a stream (assemble the chunks first)")
  }
  const choice = Dialect.check(name, Choice, input, { path })
  if (Result.isFailure(choice)) return Result.fail(choice.failure)
  const { finish_reason, message } = choice.success
  return decodeMessage(message, finishReason(finish_reason), path === "" ? "message" : `${path}.message`)
}

const decodeMessage = (
  input: unknown,
  finishReason: ToolCall.FinishReason | undefined,
  path: string
): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> => {
  const checked = Dialect.check(name, Message, input, { path })
  if (Result.isFailure(checked)) return Result.fail(checked.failure)
  // The schema transforms nothing, so the input is a message too, and it has the fields that the schema does not name.
  const message = input as Message
  const at = path === "" ? "" : `${path}.`
  if (Dialect.isRecord((input as { function_call?: unknown }).function_call)) {
    return Dialect.refuse(
      name,
      `${at}function_call`,
      '"tool_calls" (functions are deprecated: offer tools)',
      "a function call"
    )
  }
  // Another provider's calls must not pass for a message without calls.
  const strange = Array.isArray(message.content)
    ? message.content.findIndex((part) => Dialect.isRecord(part) && part.type === "tool_use")
    : -1
  if (strange >= 0) {
    return Dialect.refuse(name, `${at}content[${strange}]`, 'calls in "tool_calls"', "one of Anthropic's")
  }
  const calls: Array<ToolCall.ToolCall> = []
  for (const [index, entry] of (checked.success.tool_calls ?? []).entries()) {
    const call = callOf(entry)
    if (call === undefined) {
      return Dialect.refuse(
        name,
        `${at}tool_calls[${index}]`,
        'a "function" or "custom" call',
        entry.type == null ? "neither" : `one of the type ${JSON.stringify(entry.type)}`
      )
    }
    calls.push(call)
  }
  return Result.succeed({ message, calls, finishReason })
}

const callOf = (entry: typeof Entry.Type): ToolCall.ToolCall | undefined => {
  const id = entry.id ?? ""
  if (entry.type !== "custom" && entry.function != null) {
    return "arguments" in entry.function
      ? { id, name: entry.function.name, arguments: entry.function.arguments }
      : { id, name: entry.function.name }
  }
  if (entry.custom != null) return ToolCall.make(id, entry.custom.name, { input: entry.custom.input })
  return undefined
}

const finishReasons = new Map<string, ToolCall.FinishReason>([
  ["stop", "stop"],
  ["tool_calls", "tool-calls"],
  ["function_call", "tool-calls"],
  ["length", "length"],
  ["model_length", "length"],
  ["max_tokens", "length"],
  ["content_filter", "content-filter"],
  ["error", "error"],
  ["insufficient_system_resource", "error"]
])

const finishReason = (reason: string | null | undefined): ToolCall.FinishReason | undefined =>
  reason == null ? undefined : finishReasons.get(reason) ?? "other"

/**
 * Builds what stands in the conversation next: the assistant's message, then one tool message for each of its calls.
 *
 * **Details**
 *
 * `calls` are those that {@link decode} gave for this message. The message is a copy with every field that came; its
 * calls have ids of their own, arguments that are one JSON object, and no re-delivered call twice. A call that the
 * provider ran itself is left out, since nothing may answer it.
 *
 * **Example** (The next messages of a conversation)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { OpenAiChat } from "effect-turn/wire"
 *
 * const { calls, message } = Result.getOrThrow(OpenAiChat.decode({
 *   role: "assistant",
 *   tool_calls: [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Oslo"}' } }]
 * }))
 * const history = Result.getOrThrow(OpenAiChat.history(message, calls, [{
 *   position: 0,
 *   id: "call_1",
 *   name: "get_weather",
 *   status: "ok",
 *   started: true,
 *   effect: "none",
 *   retryable: false,
 *   message: "",
 *   result: { celsius: 4 },
 *   encoded: { celsius: 4 }
 * }]))
 * const answer = history[1] // => ({ role: "tool", tool_call_id: "call_1", content: '{"celsius":4}' })
 * ```
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const history = (
  message: Message,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  options?: Dialect.HistoryOptions
): Result.Result<Array<AssistantMessage | ToolMessage>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    const entries = message.tool_calls ?? []
    const ids = entries.map((entry) => entry.id ?? "")
    const paired = Dialect.answer(name, { path: "tool_calls", ids }, calls, outcomes, options)
    if (Result.isFailure(paired)) return Result.fail(paired.failure)
    const answered = paired.success
    if (answered.length === 0 && isBlank(message)) {
      return Dialect.refuse(
        name,
        "content",
        "text, a refusal or calls (an empty message is refused)",
        "an empty message"
      )
    }
    return Dialect.checked<AssistantMessage | ToolMessage>(name, [
      assistantMessage(message, answered.map((one) => sentCall(entries[one.position]!, one))),
      ...answered.map((one): ToolMessage => ({ role: "tool", tool_call_id: one.id, content: one.content }))
    ], (one) => one.role === "tool" ? SentAnswer : SentMessage)
  })

const text = Schema.String.check(Schema.isMinLength(1))

const SentMessage = Schema.Struct({
  role: Schema.Literal("assistant"),
  tool_calls: Schema.optionalKey(
    Schema.NonEmptyArray(Schema.Union([
      Schema.Struct({
        id: text,
        type: Schema.Literal("function"),
        function: Schema.Struct({ name: text, arguments: text })
      }),
      Schema.Struct({
        id: text,
        type: Schema.Literal("custom"),
        custom: Schema.Struct({ name: text, input: Schema.String })
      })
    ]))
  )
})

const SentAnswer = Schema.Struct({ role: Schema.Literal("tool"), tool_call_id: text, content: text })

const isBlank = (message: Message): boolean =>
  (message.content == null || message.content.length === 0) && (message.refusal == null || message.refusal === "")

/** Nulls in place of objects come in responses and are refused in requests; `parsed` is the SDK's. */
const assistantMessage = (message: Message, calls: Array<FunctionCall | CustomCall>): AssistantMessage => {
  const { parsed: _, ...copy } = message as Record<string, unknown>
  for (const field of ["function_call", "audio", "tool_calls"]) {
    if (copy[field] == null) delete copy[field]
  }
  if (calls.length === 0) delete copy.tool_calls
  else copy.tool_calls = calls
  return copy as unknown as AssistantMessage
}

const sentCall = (entry: typeof Entry.Type, one: Dialect.Answered): FunctionCall | CustomCall => {
  if (entry.function == null || entry.type === "custom") {
    return { ...entry, id: one.id, type: "custom", custom: { ...entry.custom!, name: one.name } }
  }
  const { parsed_arguments: _, ...given } = entry.function as Record<string, unknown>
  return {
    ...entry,
    id: one.id,
    type: "function",
    function: { ...given, name: one.name, arguments: JSON.stringify(Dialect.argumentsOf(one.call)) }
  }
}

/**
 * Writes the assistant's message that makes these calls, for calls that came from elsewhere.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const fromCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): Message => ({
  role: "assistant",
  content: null,
  tool_calls: calls.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, ...("arguments" in call ? { arguments: call.arguments } : undefined) }
  }))
})

/**
 * The codec as one value.
 *
 * @category dialects
 * @since 0.1.0
 * @stability experimental
 */
export const dialect: Dialect.Dialect<Message, AssistantMessage | ToolMessage> = {
  id: "chat",
  name,
  matches,
  decode,
  history,
  fromCalls,
  assembler: () => Dialect.assembler(assembly(), decode)
}
