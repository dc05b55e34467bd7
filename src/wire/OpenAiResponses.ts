/**
 * OpenAI's Responses: calls out of a response, its items and their outputs back.
 *
 * Items stand where they stood: messages, reasoning with its encrypted content, and what the provider ran itself (web and file
 * search, code interpreter, image generation, remote MCP tools, hosted shells, tool search, programs). Those are no calls: their
 * results are in the response. What asks the program for something that no tool of a toolkit answers (a computer, a local
 * shell, a patch, an MCP approval, a client's tool search) is refused when the response is read, before anything has run.
 *
 * What is known to be refused is not built: a call without its output, an output without its call, a `call_id` twice or of
 * more than 64 characters, arguments that are no JSON object, a name that no tool may have, an item id twice, a text of more
 * than 10,485,760 characters, and what responses have but requests may not (`created_by`, the `status` of reasoning, and
 * `parsed` and `parsed_arguments`, which the SDK adds). Every other field stays.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type * as Outcome from "../Outcome.ts"
import * as ToolCall from "../ToolCall.ts"
import type * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import { fileOf, type Part, wordsOf } from "./parts.ts"
import { assembly } from "./stream/openAiResponses.ts"
import { text as stringOf } from "./stream/parts.ts"

const name = "OpenAI Responses"

/**
 * Schema of an item of a response. Fields that it does not name are allowed, and kept by {@link decode} and {@link history}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Item = Schema.Struct({
  type: Schema.String,
  id: Schema.optional(Schema.NullOr(Schema.String)),
  call_id: Schema.optional(Schema.NullOr(Schema.String)),
  name: Schema.optional(Schema.NullOr(Schema.String)),
  arguments: Schema.optional(Schema.Unknown),
  input: Schema.optional(Schema.Unknown),
  status: Schema.optional(Schema.NullOr(Schema.String))
})

/**
 * An item of a response.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Item = typeof Item.Type

/**
 * Schema of what the model said: the items of a response, its `output`.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Message = Schema.Array(Item)

/**
 * What the model said: the items of a response, its `output`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Message = typeof Message.Type

const Response = Schema.Struct({
  output: Schema.Unknown,
  status: Schema.optional(Schema.NullOr(Schema.String)),
  incomplete_details: Schema.optional(
    Schema.NullOr(Schema.Struct({ reason: Schema.optional(Schema.NullOr(Schema.String)) }))
  )
})

/**
 * A call of a function tool, as it goes back: its arguments are the text of one JSON object.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FunctionCall {
  type: "function_call"
  call_id: string
  name: string
  arguments: string
  id?: string
  status?: "in_progress" | "completed" | "incomplete"
}

/**
 * A call of a custom tool, as it goes back: its input is free text.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CustomCall {
  type: "custom_tool_call"
  call_id: string
  name: string
  input: string
  id?: string
}

/**
 * The answer to one call, by its `call_id`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallOutput {
  type: "function_call_output" | "custom_tool_call_output"
  call_id: string
  output: string | Array<OutputPart>
  /** The program that made the call, where one did. */
  caller?: { type: "program"; caller_id: string }
}

/**
 * A piece of an answer, where the tool makes texts and files for the model.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type OutputPart =
  | { type: "input_text"; text: string }
  | { type: "input_image"; image_url: string; detail: "auto" }
  | { type: "input_file"; filename?: string; file_data?: string; file_url?: string }

/**
 * An item that goes back as it came: what the model said or thought, and what the provider ran. The fields that this library
 * never looks into are `any`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type KeptItem =
  | { type: "message"; role: "assistant"; id: string; content: Array<any>; status: any }
  | { type: "reasoning"; id: string; summary: Array<any>; encrypted_content?: string | null }
  | { type: "compaction"; encrypted_content: string }
  | { type: "web_search_call"; id: string; action: any; status: any }
  | { type: "file_search_call"; id: string; queries: Array<string>; status: any }
  | { type: "code_interpreter_call"; id: string; code: any; container_id: string; outputs: any; status: any }
  | { type: "image_generation_call"; id: string; result: any; status: any }
  | { type: "mcp_call"; id: string; name: string; arguments: string; server_label: string }
  | { type: "mcp_list_tools"; id: string; server_label: string; tools: Array<any> }
  | { type: "tool_search_call"; arguments: unknown }
  | { type: "tool_search_output"; tools: Array<any> }
  | { type: "shell_call"; call_id: string; action: any }
  | { type: "shell_call_output"; call_id: string; output: Array<any> }
  | { type: "program"; id: string; call_id: string; code: string; fingerprint: string }
  | { type: "program_output"; id: string; call_id: string; result: string; status: any }

/**
 * What goes back: the items of the response in their places, then the outputs of its calls.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Sent = FunctionCall | CustomCall | CallOutput | KeptItem

const itemTypes =
  /^(message|reasoning|compaction|program|program_output|mcp_call|mcp_list_tools|mcp_approval_request|(?!mcp_).+_call)$/

/**
 * Tells whether this is a response, or the list of its items, by its shape.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const matches = (input: unknown): boolean =>
  Dialect.looksLike(() =>
    Array.isArray(input)
      ? input.some((item) => Dialect.isRecord(item) && itemTypes.test(stringOf(item.type))) &&
        input.every((item) => Dialect.isRecord(item) && typeof item.type === "string" && !isOfProgram(item))
      : Dialect.isRecord(input) && Array.isArray(input.output) && (input.object === "response" || "status" in input)
  )

/** What a conversation has and a response has not. */
const isOfProgram = (item: Record<string, unknown>): boolean =>
  ("role" in item && item.role !== "assistant") || /^(function|custom_tool)_call_output$/.test(stringOf(item.type))

/**
 * Takes the calls out of a response, or out of its list of items.
 *
 * **Details**
 *
 * The id of a call is its `call_id`. `arguments` are handed over as they came: the runtime reads them. A custom tool's free text
 * becomes the argument `input`.
 *
 * A response that failed, was cancelled or is not over has the finish reason `"error"`: none of its calls is run. The list
 * alone does not say how the response ended; an item that is incomplete in it says `"length"`.
 *
 * **Example** (The items of a response)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { OpenAiResponses } from "effect-turn/wire"
 *
 * const decoded = Result.getOrThrow(OpenAiResponses.decode([
 *   { type: "reasoning", id: "rs_1", summary: [] },
 *   { type: "function_call", id: "fc_1", call_id: "call_1", name: "get_weather", arguments: '{"city":"Oslo"}' }
 * ]))
 * const calls = decoded.calls // => [{ id: "call_1", name: "get_weather", arguments: '{"city":"Oslo"}' }]
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const decode = (input: unknown): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    if (Array.isArray(input)) return decodeItems(input, {}, "")
    if (!Dialect.isRecord(input) || !("output" in input)) {
      return Dialect.refuse(name, "", "a response, or the list of its items", Dialect.describe(input))
    }
    const response = Dialect.check(name, Response, input)
    if (Result.isFailure(response)) return Result.fail(response.failure)
    return decodeItems(response.success.output, response.success, "output")
  })

const decodeItems = (
  input: unknown,
  ending: Omit<typeof Response.Type, "output">,
  path: string
): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> => {
  const checked = Dialect.check(name, Message, input, { path })
  if (Result.isFailure(checked)) return Result.fail(checked.failure)
  // The schema transforms nothing, so the input is a message too, and it has the fields that the schema does not name.
  const message = input as Message
  const calls: Array<ToolCall.ToolCall> = []
  const isAnswered = answeredIn(message)
  for (const [index, item] of message.entries()) {
    const at = `${path}[${index}]`
    if (asksTheProgram(item) && !isAnswered(item)) {
      return Dialect.refuse(
        name,
        at,
        'calls of the types "function_call" and "custom_tool_call"',
        `a ${item.type}, which no tool answers`
      )
    }
    if (!isCall(item) || isAnswered(item)) continue
    const call = Dialect.check(name, item.type === "function_call" ? FunctionItem : CustomItem, item, { path: at })
    if (Result.isFailure(call)) return Result.fail(call.failure)
    calls.push(callOf(item))
  }
  return Result.succeed({ message, calls, finishReason: finishReason(ending, message, calls.length) })
}

const FunctionItem = Schema.Struct({ name: Schema.String })

const CustomItem = Schema.Struct({ name: Schema.String, input: Schema.String })

const isCall = (item: Item): boolean => item.type === "function_call" || item.type === "custom_tool_call"

/** Tells of an item whether its output is in the response as well: then somebody else has run it. */
const answeredIn = (message: Message): (item: Item) => boolean => {
  const outputs = new Set(
    message.filter(({ type }) => type.endsWith("_output")).map(({ call_id, type }) => `${type} ${call_id}`)
  )
  return ({ call_id, type }) => call_id != null && call_id !== "" && outputs.has(`${type}_output ${call_id}`)
}

const callOf = (item: Item): ToolCall.ToolCall => {
  const id = item.call_id ?? ""
  const toolName = item.name ?? ""
  if (item.type === "custom_tool_call") return ToolCall.make(id, toolName, { input: item.input })
  return "arguments" in item ? ToolCall.make(id, toolName, item.arguments) : { id, name: toolName }
}

/** Whether the program has to answer this item, and no tool can. */
const asksTheProgram = (item: Item & { readonly [field: string]: unknown }): boolean => {
  switch (item.type) {
    case "computer_call":
    case "local_shell_call":
    case "apply_patch_call":
    case "mcp_approval_request":
      return true
    case "shell_call":
      // A hosted shell is a container of the provider's.
      return !(Dialect.isRecord(item.environment) && item.environment.type === "container_reference")
    case "tool_search_call":
      return item.execution === "client"
    default:
      return false
  }
}

const finishReason = (
  { incomplete_details, status }: Omit<typeof Response.Type, "output">,
  message: Message,
  calls: number
): ToolCall.FinishReason | undefined => {
  const isCut = message.some((item) => isCall(item) && (item.status === "incomplete" || item.status === "in_progress"))
  switch (status) {
    case "completed":
      return calls > 0 ? "tool-calls" : "stop"
    case "incomplete":
      return incomplete_details?.reason === "content_filter"
        ? "content-filter"
        : isCut || incomplete_details?.reason == null || incomplete_details.reason === "max_output_tokens"
        ? "length"
        : "other"
    case "failed":
    case "cancelled":
    case "in_progress":
    case "queued":
      return "error"
    default:
      return isCut ? "length" : undefined
  }
}

/** A `call_id` has 1 to 64 characters. */
const form: Dialect.Form = { id: /^.{1,64}$/s, name: /^[a-zA-Z0-9_-]{1,128}$/ }

/**
 * Builds what stands in the conversation next: the items of the response in their places, then one output for each of its calls.
 *
 * **Details**
 *
 * `calls` are those that {@link decode} gave for this message. Calls have a `call_id` of their own, arguments that are one JSON
 * object, and no re-delivered call twice. There is no flag for a failure: the output says it.
 *
 * Images (PNG, JPEG, GIF, WebP) and documents of a tool's `toModelOutput` go as such. In the place of other files stand their
 * type and name.
 *
 * **Gotchas**
 *
 * A request with `previous_response_id` or a `conversation` has the items of the response already. It takes the outputs alone,
 * which are the last ones here.
 *
 * **Example** (The next items of a conversation)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { OpenAiResponses } from "effect-turn/wire"
 *
 * const { calls, message } = Result.getOrThrow(OpenAiResponses.decode([
 *   { type: "function_call", id: "fc_1", call_id: "call_1", name: "get_weather", arguments: '{"city":"Oslo"}' }
 * ]))
 * const history = Result.getOrThrow(OpenAiResponses.history(message, calls, [{
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
 * const answer = history[1] // => ({ type: "function_call_output", call_id: "call_1", output: '{"celsius":4}' })
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
): Result.Result<Array<Sent>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    const isAnswered = answeredIn(message)
    const items = message.filter((item) => isCall(item) && !isAnswered(item))
    const open = new Set(items)
    const ids = items.map((item) => item.call_id ?? "")
    const answered = Dialect.answer(name, { path: "output", ids }, calls, outcomes, options, form)
    if (Result.isFailure(answered)) return Result.fail(answered.failure)
    const kept = new Set(answered.success.map((one) => items[one.position]!))
    const dangling = danglingReasoning(message, (item) => open.has(item) && !kept.has(item))
    const itemIds = new Set<unknown>()
    return Dialect.checked<Sent>(name, [
      ...Dialect.inPlace<Item, Sent>(
        message,
        (item) => open.has(item),
        answered.success,
        (item, one) => sentCall(item, one, itemIds),
        (item) => dangling.has(item) ? undefined : requestable(item) as unknown as KeptItem
      ),
      ...answered.success.map((one) => outputOf(items[one.position]!, one))
    ], (item) => schemas.get(item.type) ?? Item)
  })

/** Reasoning that led to nothing, or to calls which are left out: it is refused without what follows it. */
const danglingReasoning = (message: Message, isLeftOut: (item: Item) => boolean): ReadonlySet<Item> => {
  const found = new Set<Item>()
  let leads = false
  for (let i = message.length - 1; i >= 0; i--) {
    const item = message[i]!
    if (item.type === "reasoning") {
      if (!leads) found.add(item)
      continue
    }
    if (message[i + 1]?.type === "reasoning") leads = false
    if (!isLeftOut(item)) leads = true
  }
  return found
}

const sentCall = (item: Item, one: Dialect.Answered, itemIds: Set<unknown>): FunctionCall | CustomCall => {
  const sent = {
    ...requestable(item),
    call_id: one.id,
    name: one.name,
    ...(item.type === "function_call" ? { arguments: JSON.stringify(Dialect.argumentsOf(one.call)) } : undefined)
  }
  // Each item id is told once.
  if (item.id != null && itemIds.has(item.id)) delete (sent as { id?: unknown }).id
  itemIds.add(item.id)
  return sent as unknown as FunctionCall | CustomCall
}

/** An item without the fields that responses have, or the SDK adds, and requests may not have. */
const requestable = (item: Item): Record<string, unknown> => {
  const { created_by: _, parsed_arguments: __, ...rest } = item as Record<string, unknown>
  for (const field of ["id", "status"]) if (rest[field] === null) delete rest[field]
  if (item.type === "reasoning") delete rest.status
  if (item.type === "message" && Array.isArray(rest.content)) {
    rest.content = rest.content.map((part: unknown) => {
      if (!Dialect.isRecord(part)) return part
      const { parsed: _, ...kept } = part
      return kept
    })
  }
  return rest
}

const outputOf = (item: Item & { readonly [field: string]: unknown }, one: Dialect.Answered): CallOutput => ({
  type: item.type === "function_call" ? "function_call_output" : "custom_tool_call_output",
  call_id: one.id,
  output: one.parts?.map(partOf) ?? one.content,
  ...(Dialect.isRecord(item.caller) && item.caller.type === "program" && typeof item.caller.caller_id === "string"
    ? { caller: { type: "program", caller_id: item.caller.caller_id } }
    : undefined)
})

const images = /^image\/(png|jpeg|gif|webp)$/

const documents =
  /^(text\/.+|application\/(pdf|json|xml|rtf|msword|vnd\.(openxmlformats-officedocument|ms-excel|ms-powerpoint|oasis\.opendocument)[\w.+-]*))$/

const partOf = (part: Part): OutputPart => {
  if (part.type === "text") return { type: "input_text", text: part.text.toWellFormed() }
  const { base64, mediaType, name, url } = fileOf(part)
  const web = url !== undefined && /^https?:/i.test(url) ? url : undefined
  const data = base64 === undefined ? undefined : `data:${mediaType};base64,${base64}`
  const source = data ?? web
  if (source !== undefined && images.test(mediaType)) return { type: "input_image", image_url: source, detail: "auto" }
  if (source !== undefined && documents.test(mediaType)) {
    return data === undefined
      ? { type: "input_file", file_url: source }
      : { type: "input_file", filename: name ?? `file.${extensionOf(mediaType)}`, file_data: data }
  }
  return { type: "input_text", text: wordsOf(part) }
}

const extensionOf = (mediaType: string): string => {
  const kind = mediaType.slice(mediaType.indexOf("/") + 1)
  return kind === "plain" ? "txt" : /^[a-z]{2,8}$/.test(kind) ? kind : "bin"
}

const callId = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(64))

const toolName = Schema.String.check(Schema.isPattern(form.name!))

const Output = Schema.Struct({
  call_id: callId,
  output: Schema.Union([
    Schema.String.check(Schema.isMaxLength(10_485_760)),
    Schema.NonEmptyArray(Schema.Struct({ type: Schema.Literals(["input_text", "input_image", "input_file"]) }))
  ])
})

const schemas = new Map<string, Schema.Codec<any, unknown>>([
  ["function_call", Schema.Struct({ call_id: callId, name: toolName, arguments: Schema.String })],
  ["custom_tool_call", Schema.Struct({ call_id: callId, name: toolName, input: Schema.String })],
  ["function_call_output", Output],
  ["custom_tool_call_output", Output]
])

/**
 * Writes the items that make these calls, for calls that came from elsewhere.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const fromCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): Message =>
  calls.map((call) => ({
    type: "function_call",
    call_id: call.id,
    name: call.name,
    ...("arguments" in call ? { arguments: call.arguments } : undefined)
  }))

/**
 * The codec as one value.
 *
 * @category dialects
 * @since 0.1.0
 * @stability experimental
 */
export const dialect: Dialect.Dialect<Message, Sent> = {
  id: "responses",
  name,
  matches,
  decode,
  history,
  fromCalls,
  assembler: () => Dialect.assembler(assembly(), decode)
}
