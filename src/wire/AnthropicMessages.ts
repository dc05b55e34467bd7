/**
 * Anthropic's Messages: calls out of a message, the message and one user message with their results back.
 *
 * Blocks stand where they stood, in their order: text, thinking with its signature, and what the provider ran itself (server
 * tools, remote MCP tools) with its results. Those are no calls: the result is in the message, or the provider adds it when
 * the message goes back (`pause_turn`).
 *
 * What is known to be refused is not built: a `tool_use` without its result in the next message, or with two; results in
 * several messages, or after text; an id with other characters than letters, digits, `_` and `-`; an input that is no object;
 * a name that no tool may have; blank text; half a surrogate pair; a message without content; and the fields of a response that
 * are not of a message (`id`, `usage`, `stop_reason`, …). The fields of a block stay, those included that this module does not know.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Outcome from "../Outcome.ts"
import type * as ToolCall from "../ToolCall.ts"
import type * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import { fileOf, type Part, textIn, wordsOf } from "./parts.ts"
import { assembly } from "./stream/anthropicMessages.ts"
import { text as stringOf } from "./stream/parts.ts"

const name = "Anthropic Messages"

/**
 * Schema of a block of a message. Fields that it does not name are allowed, and kept by {@link decode} and {@link history}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Block = Schema.Struct({
  type: Schema.String,
  id: Schema.optional(Schema.NullOr(Schema.String)),
  name: Schema.optional(Schema.NullOr(Schema.String)),
  input: Schema.optional(Schema.Unknown),
  text: Schema.optional(Schema.NullOr(Schema.String))
})

/**
 * A block of a message.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Block = typeof Block.Type

/**
 * Schema of the assistant's message: a whole response, or its role and content.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Message = Schema.Struct({
  role: Schema.Literal("assistant"),
  content: Schema.Union([Schema.String, Schema.Array(Block)]),
  stop_reason: Schema.optional(Schema.NullOr(Schema.String))
})

/**
 * The assistant's message: a whole response, or its role and content.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Message = typeof Message.Type

/**
 * The assistant's message as it goes back.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface AssistantMessage {
  role: "assistant"
  content: string | Array<SentBlock>
}

/**
 * The message with the results of all calls, in their order.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ResultMessage {
  role: "user"
  content: Array<ToolResult>
}

/**
 * A block of the assistant's message as it goes back. The fields that this library never looks into are `any`; beta blocks are
 * passed on as well.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type SentBlock =
  | { type: "text"; text: string; citations?: any }
  | { type: "thinking"; thinking: string; signature: string }
  | { type: "redacted_thinking"; data: string }
  | ToolUse
  | { type: "server_tool_use"; id: string; name: any; input: unknown }
  | {
    type:
      | "web_search_tool_result"
      | "web_fetch_tool_result"
      | "code_execution_tool_result"
      | "bash_code_execution_tool_result"
      | "text_editor_code_execution_tool_result"
      | "tool_search_tool_result"
    tool_use_id: string
    content: any
  }
  | { type: "container_upload"; file_id: string }

/**
 * A call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToolUse {
  type: "tool_use"
  id: string
  name: string
  input: Record<string, unknown>
}

/**
 * The answer to one call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToolResult {
  type: "tool_result"
  tool_use_id: string
  content: string | Array<ResultBlock>
  is_error?: true
  /** The toolset of the call, where it named one. */
  toolset_name?: string
}

/**
 * A piece of an answer, where the tool makes texts and files for the model.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ResultBlock =
  | { type: "text"; text: string }
  | {
    type: "image"
    source:
      | { type: "base64"; media_type: "image/jpeg" | "image/png" | "image/gif" | "image/webp"; data: string }
      | { type: "url"; url: string }
  }
  | {
    type: "document"
    title?: string
    source:
      | { type: "base64"; media_type: "application/pdf"; data: string }
      | { type: "text"; media_type: "text/plain"; data: string }
      | { type: "url"; url: string }
  }

const blockTypes =
  /^(tool_use|server_tool_use|mcp_tool_use|thinking|redacted_thinking|container_upload|.+_tool_result)$/

/**
 * Tells whether this is a message, by its shape. A bare message that holds nothing but text is the same in Chat Completions.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const matches = (input: unknown): boolean =>
  Dialect.looksLike(() => {
    if (!Dialect.isRecord(input) || input.role !== "assistant") return false
    const blocks = Array.isArray(input.content) ? input.content.filter(Dialect.isRecord) : []
    if (blocks.some((block) => block.type === "output_text" || block.type === "refusal")) return false
    return (input.type === "message" && "content" in input) || "stop_reason" in input ||
      blocks.some((block) =>
        blockTypes.test(stringOf(block.type)) && (block.type !== "thinking" || typeof block.thinking === "string")
      )
  })

/**
 * Takes the calls out of a message.
 *
 * **Details**
 *
 * The `input` is handed over as it came: the runtime reads it.
 *
 * **Example** (A recorded message)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { AnthropicMessages } from "effect-turn/wire"
 *
 * const decoded = Result.getOrThrow(AnthropicMessages.decode({
 *   role: "assistant",
 *   content: [{ type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Oslo" } }]
 * }))
 * const calls = decoded.calls // => [{ id: "toolu_1", name: "get_weather", arguments: { city: "Oslo" } }]
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const decode = (input: unknown): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    if (!Dialect.isRecord(input) || !("role" in input || "content" in input)) {
      return Dialect.refuse(name, "", "a message of the assistant", Dialect.describe(input))
    }
    // Another provider's calls must not pass for a message without calls.
    if (Array.isArray(input.tool_calls)) return Dialect.refuse(name, "tool_calls", "calls in the content", "OpenAI's")
    const checked = Dialect.check(name, Message, input)
    if (Result.isFailure(checked)) return Result.fail(checked.failure)
    // The schema transforms nothing, so the input is a message too, and it has the fields that the schema does not name.
    const message = input as unknown as Message
    const calls: Array<ToolCall.ToolCall> = []
    for (const [index, block] of blocksOf(message).entries()) {
      if (!isCall(block)) continue
      if (block.name == null) return Dialect.refuse(name, `content[${index}].name`, "a value", "nothing")
      calls.push({
        id: block.id ?? "",
        name: block.name,
        ...("input" in block ? { arguments: block.input } : undefined)
      })
    }
    return Result.succeed({ message, calls, finishReason: finishReason(message.stop_reason) })
  })

const blocksOf = ({ content }: Message): ReadonlyArray<Block> => typeof content === "string" ? [] : content

const isCall = (block: Block): boolean => block.type === "tool_use"

const finishReasons = new Map<string, ToolCall.FinishReason>([
  ["tool_use", "tool-calls"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["pause_turn", "pause"],
  ["refusal", "content-filter"]
])

const finishReason = (reason: string | null | undefined): ToolCall.FinishReason | undefined =>
  reason == null ? undefined : finishReasons.get(reason) ?? "other"

const form: Dialect.Form = { id: /^[a-zA-Z0-9_-]+$/, name: /^[a-zA-Z0-9_-]{1,128}$/ }

/**
 * Builds what stands in the conversation next: the assistant's message, then one user message with a result for each of its calls.
 *
 * **Details**
 *
 * `calls` are those that {@link decode} gave for this message. What the program wants to say as well goes behind the results,
 * into the same user message or a later one. Whatever is not `ok` is marked with `is_error`.
 *
 * Images (JPEG, PNG, GIF, WebP), PDF and plain text of a tool's `toModelOutput` go as such. In the place of other files stand their
 * type and name.
 *
 * **Example** (The next messages of a conversation)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { AnthropicMessages } from "effect-turn/wire"
 *
 * const { calls, message } = Result.getOrThrow(AnthropicMessages.decode({
 *   role: "assistant",
 *   content: [{ type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Oslo" } }]
 * }))
 * const history = Result.getOrThrow(AnthropicMessages.history(message, calls, [{
 *   position: 0,
 *   id: "toolu_1",
 *   name: "get_weather",
 *   status: "ok",
 *   started: true,
 *   effect: "none",
 *   retryable: false,
 *   message: "",
 *   result: { celsius: 4 },
 *   encoded: { celsius: 4 }
 * }]))
 * const answers = history[1]!.content // => [{ type: "tool_result", tool_use_id: "toolu_1", content: '{"celsius":4}' }]
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
): Result.Result<Array<AssistantMessage | ResultMessage>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    const uses = blocksOf(message).filter(isCall)
    const ids = uses.map((block) => block.id ?? "")
    const answered = Dialect.answer(name, { path: "content", ids }, calls, outcomes, options, form)
    if (Result.isFailure(answered)) return Result.fail(answered.failure)
    const content = typeof message.content === "string"
      ? message.content
      : ended(Dialect.inPlace<Block, SentBlock>(message.content, isCall, answered.success, sentCall, keptBlock))
    if (content.length === 0 || (typeof content === "string" && content.trim() === "")) {
      return Dialect.refuse(name, "content", "text or calls (an empty message is refused)", "an empty message")
    }
    const sent: Array<AssistantMessage | ResultMessage> = [{ role: "assistant", content }]
    if (answered.success.length > 0) {
      sent.push({ role: "user", content: answered.success.map((one) => resultOf(uses[one.position]!, one)) })
    }
    return Dialect.checked(name, sent, (one) => one.role === "user" ? Results : Assistant)
  })

const sentCall = (block: Block, one: Dialect.Answered): ToolUse => ({
  ...block,
  type: "tool_use",
  id: one.id,
  name: one.name,
  input: Dialect.jsonOf(Dialect.argumentsOf(one.call)) as Record<string, unknown>
})

/** A message that ends in thinking was cut short, and is refused. */
const ended = (content: Array<SentBlock>): Array<SentBlock> =>
  content.slice(0, content.findLastIndex(({ type }) => type !== "thinking" && type !== "redacted_thinking") + 1)

const keptBlock = (block: Block): SentBlock | undefined => {
  if (block.type !== "text") return block as unknown as SentBlock
  if (block.text == null || block.text.trim() === "") return undefined
  // The SDK adds what it has parsed, and the provider refuses it.
  const { parsed_output: _, ...rest } = block as Block & {
    readonly citations?: unknown
    readonly parsed_output?: unknown
  }
  return (Array.isArray(rest.citations)
    ? { ...rest, citations: rest.citations.map(cited) }
    : rest) as unknown as SentBlock
}

/** Responses name the file of a citation, and requests may not. */
const cited = (citation: unknown): unknown => {
  if (!Dialect.isRecord(citation)) return citation
  const { file_id: _, ...rest } = citation
  return rest
}

const resultOf = (block: Block & { readonly toolset_name?: unknown }, one: Dialect.Answered): ToolResult => ({
  type: "tool_result",
  tool_use_id: one.id,
  content: one.parts?.map(blockOf) ?? one.content,
  ...(Outcome.forModel(one.outcome).isFailure ? { is_error: true } : undefined),
  ...(typeof block.toolset_name === "string" ? { toolset_name: block.toolset_name } : undefined)
})

const blockOf = (part: Part): ResultBlock => {
  if (part.type === "text") return { type: "text", text: part.text.toWellFormed() }
  const file = fileOf(part)
  const title = file.name === undefined || file.name.trim() === "" ? undefined : { title: file.name }
  const isWeb = file.url !== undefined && /^https?:/i.test(file.url)
  switch (file.mediaType) {
    case "image/jpeg":
    case "image/png":
    case "image/gif":
    case "image/webp":
      if (file.base64 !== undefined) {
        return { type: "image", source: { type: "base64", media_type: file.mediaType, data: file.base64 } }
      }
      if (isWeb) return { type: "image", source: { type: "url", url: file.url! } }
      break
    case "application/pdf":
      if (file.base64 !== undefined) {
        return { type: "document", ...title, source: { type: "base64", media_type: file.mediaType, data: file.base64 } }
      }
      if (isWeb) return { type: "document", ...title, source: { type: "url", url: file.url! } }
      break
    case "text/plain": {
      const data = textIn(file)
      if (data !== undefined) {
        return { type: "document", ...title, source: { type: "text", media_type: "text/plain", data } }
      }
    }
  }
  return { type: "text", text: wordsOf(part) }
}

const text = Schema.String.check(Schema.isPattern(/\S/))

const id = Schema.String.check(Schema.isPattern(form.id!))

const Assistant = Schema.Struct({
  content: Schema.Union([
    text,
    Schema.NonEmptyArray(Schema.Union([
      Schema.Struct({
        type: Schema.Literal("tool_use"),
        id,
        name: Schema.String.check(Schema.isPattern(form.name!)),
        input: Schema.Record(Schema.String, Schema.Unknown)
      }),
      Schema.Struct({ type: Schema.String.check(Schema.isPattern(/^(?!tool_use$)/)) })
    ]))
  ])
})

const Results = Schema.Struct({
  content: Schema.NonEmptyArray(Schema.Struct({
    type: Schema.Literal("tool_result"),
    tool_use_id: id,
    content: Schema.Union([
      text,
      Schema.NonEmptyArray(Schema.Struct({ type: Schema.Literals(["text", "image", "document"]) }))
    ])
  }))
})

/**
 * Writes the assistant's message that makes these calls, for calls that came from elsewhere.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const fromCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): Message => ({
  role: "assistant",
  content: calls.map((call) => ({
    type: "tool_use",
    id: call.id,
    name: call.name,
    ...("arguments" in call ? { input: call.arguments } : undefined)
  }))
})

/**
 * The codec as one value.
 *
 * @category dialects
 * @since 0.1.0
 * @stability experimental
 */
export const dialect: Dialect.Dialect<Message, AssistantMessage | ResultMessage> = {
  id: "anthropic",
  name,
  matches,
  decode,
  history,
  fromCalls,
  assembler: () => Dialect.assembler(assembly(), decode)
}
