/**
 * Gemini's contents: calls out of a response, the model's content and one content with their answers back.
 *
 * Parts stand where they stood, in their order, with their thought signatures: texts, thoughts, and what the provider ran itself
 * (`executableCode`, `toolCall` and their results). Those are no calls.
 *
 * Calls may come without ids. Then an answer belongs to a call by name and place, so the order of the answers is part of the
 * contract, and no id is made up. What is known to be refused is not built: more or fewer `functionResponse` parts than
 * `functionCall` parts, anything beside them, arguments or a response that are no object, a name that no function may have, a
 * part with an empty text, a content without parts, half a surrogate pair. Fields that this module does not know stay.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Outcome from "../Outcome.ts"
import type * as ToolCall from "../ToolCall.ts"
import * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import { fileOf, labelOf, type Part as ModelPart, wordsOf } from "./parts.ts"
import { assembly } from "./stream/geminiContents.ts"

const name = "Gemini"

/**
 * Schema of a part of a content. Fields that it does not name are allowed, and kept by {@link decode} and {@link history}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Part = Schema.Struct({
  text: Schema.optional(Schema.NullOr(Schema.String)),
  thoughtSignature: Schema.optional(Schema.NullOr(Schema.String)),
  functionCall: Schema.optional(
    Schema.NullOr(Schema.Struct({
      id: Schema.optional(Schema.NullOr(Schema.String)),
      name: Schema.optional(Schema.NullOr(Schema.String)),
      args: Schema.optional(Schema.Unknown),
      willContinue: Schema.optional(Schema.NullOr(Schema.Boolean))
    }))
  )
})

/**
 * A part of a content.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Part = typeof Part.Type

/**
 * Schema of the model's content.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Message = Schema.Struct({
  role: Schema.optional(Schema.NullOr(Schema.String)),
  parts: Schema.optional(Schema.NullOr(Schema.Array(Part)))
})

/**
 * The model's content.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Message = typeof Message.Type

const Response = Schema.Struct({
  candidates: Schema.optional(Schema.NullOr(Schema.Array(Schema.Unknown))),
  promptFeedback: Schema.optional(Schema.NullOr(Schema.Struct({
    blockReason: Schema.optional(Schema.NullOr(Schema.String)),
    blockReasonMessage: Schema.optional(Schema.NullOr(Schema.String))
  })))
})

const Candidate = Schema.Struct({
  content: Schema.optional(Schema.Unknown),
  finishReason: Schema.optional(Schema.NullOr(Schema.String))
})

/**
 * A content as it goes back: the model's, or the one with the answers. Parts that this library never looks into have fields that
 * are not named here.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Content {
  role: "model" | "user"
  parts: Array<SentPart>
}

/**
 * A part as it goes back.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface SentPart {
  text?: string
  thought?: boolean
  thoughtSignature?: string
  functionCall?: FunctionCall
  functionResponse?: FunctionResponse
}

/**
 * A call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FunctionCall {
  id?: string
  name: string
  args: Record<string, unknown>
}

/**
 * The answer to one call: `response` is `{ output }`, or `{ error }` where it is not `ok`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FunctionResponse {
  id?: string
  name: string
  response: Record<string, unknown>
  parts?: Array<ResponsePart>
}

/**
 * A file in an answer, where the tool makes files for the model.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type ResponsePart =
  | { inlineData: { mimeType: string; data: string } }
  | { fileData: { mimeType: string; fileUri: string } }

/**
 * Tells whether this is a response, one of its candidates or the content in it, by its shape.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const matches = (input: unknown): boolean =>
  Dialect.looksLike(() =>
    Dialect.isRecord(input) &&
    (Array.isArray(input.candidates) || Dialect.isRecord(input.promptFeedback) ||
      (input.role === "model" && !("content" in input)) ||
      (!("role" in input) && Array.isArray(input.parts)) ||
      (Dialect.isRecord(input.content) && ("finishReason" in input || Array.isArray(input.content.parts))))
  )

/**
 * Takes the calls out of a response, a candidate or a content.
 *
 * **Details**
 *
 * `args` are handed over as they came: the runtime reads them. Of a response with several candidates one must be chosen first,
 * since they are alternatives. A prompt that was blocked has no answer, and is an error here.
 *
 * **Example** (A recorded content)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { GeminiContents } from "effect-turn/wire"
 *
 * const decoded = Result.getOrThrow(GeminiContents.decode({
 *   role: "model",
 *   parts: [{ functionCall: { name: "get_weather", args: { city: "Oslo" } }, thoughtSignature: "c2ln" }]
 * }))
 * const calls = decoded.calls // => [{ id: "", name: "get_weather", arguments: { city: "Oslo" } }]
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const decode = (input: unknown): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    if (!Dialect.isRecord(input)) {
      return Dialect.refuse(name, "", "a response, a candidate or the model's content", Dialect.describe(input))
    }
    if ("candidates" in input || "promptFeedback" in input) return decodeResponse(input)
    if (!("role" in input) && ("content" in input || "finishReason" in input)) return decodeCandidate(input, "")
    // Every field of a content may be left out, but an error, or a response of another provider, is not an answer without calls.
    if (!("parts" in input || "role" in input)) {
      return Dialect.refuse(name, "", "a response, a candidate or the model's content", Dialect.describe(input))
    }
    return decodeContent(input, undefined, "")
  })

const decodeResponse = (input: unknown) => {
  const response = Dialect.check(name, Response, input)
  if (Result.isFailure(response)) return Result.fail(response.failure)
  const candidates = response.success.candidates ?? []
  const blocked = response.success.promptFeedback?.blockReason
  if (blocked != null && candidates.length === 0) {
    const why = response.success.promptFeedback?.blockReasonMessage
    return Dialect.refuse(
      name,
      "candidates",
      "an answer of the model",
      `none: the prompt was blocked (${blocked}${why == null ? "" : `: ${TurnError.show(why)}`})`
    )
  }
  if (candidates.length !== 1) {
    return Dialect.refuse(
      name,
      "candidates",
      "one candidate (of several, hand over the one to go on with)",
      `${candidates.length}`
    )
  }
  return decodeCandidate(candidates[0], "candidates[0]")
}

const decodeCandidate = (input: unknown, path: string) => {
  const candidate = Dialect.check(name, Candidate, input, { path })
  if (Result.isFailure(candidate)) return Result.fail(candidate.failure)
  const { content, finishReason } = candidate.success
  // What was filtered, and a call that could not be read, have no content.
  return decodeContent(
    content ?? { role: "model", parts: [] },
    finishReason,
    path === "" ? "content" : `${path}.content`
  )
}

const decodeContent = (
  input: unknown,
  ending: string | null | undefined,
  path: string
): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> => {
  const checked = Dialect.check(name, Message, input, { path })
  if (Result.isFailure(checked)) return Result.fail(checked.failure)
  const at = path === "" ? "" : `${path}.`
  // The schema transforms nothing, so the input is a message too, and it has the fields that the schema does not name.
  const message = input as Message
  if (message.role != null && message.role !== "model") {
    return Dialect.refuse(name, `${at}role`, '"model"', TurnError.show(message.role))
  }
  const calls: Array<ToolCall.ToolCall> = []
  let isPartial = false
  for (const [index, part] of (message.parts ?? []).entries()) {
    const place = `${at}parts[${index}]`
    if ("function_call" in part) {
      return Dialect.refuse(name, place, 'the field "functionCall", in camel case', 'the field "function_call"')
    }
    const call = part.functionCall
    if (call == null) continue
    if (call.name == null) return Dialect.refuse(name, `${place}.functionCall.name`, "a value", "nothing")
    calls.push({ id: call.id ?? "", name: call.name, ...("args" in call ? { arguments: call.args } : undefined) })
    isPartial ||= call.willContinue === true
  }
  // A call that goes on in the next chunk is not whole, whatever the rest says.
  return Result.succeed({ message, calls, finishReason: isPartial ? "error" : finishReason(ending, calls.length) })
}

const isCall = (part: Part): boolean => part.functionCall != null

const finishReasons = new Map<string, ToolCall.FinishReason>([
  ["MAX_TOKENS", "length"],
  ["CONTINUATION", "length"],
  ["SAFETY", "content-filter"],
  ["RECITATION", "content-filter"],
  ["LANGUAGE", "content-filter"],
  ["BLOCKLIST", "content-filter"],
  ["PROHIBITED_CONTENT", "content-filter"],
  ["SPII", "content-filter"],
  ["IMAGE_SAFETY", "content-filter"],
  ["IMAGE_PROHIBITED_CONTENT", "content-filter"],
  ["IMAGE_RECITATION", "content-filter"],
  ["ESCALATION", "content-filter"],
  ["MODEL_ARMOR", "content-filter"],
  ["PUP_LIMITED_DISABLED", "content-filter"],
  ["MALFORMED_FUNCTION_CALL", "error"],
  ["UNEXPECTED_TOOL_CALL", "error"],
  ["TOO_MANY_TOOL_CALLS", "error"],
  ["MISSING_THOUGHT_SIGNATURE", "error"],
  ["MALFORMED_RESPONSE", "error"]
])

const finishReason = (reason: string | null | undefined, calls: number): ToolCall.FinishReason | undefined => {
  if (reason == null || reason === "FINISH_REASON_UNSPECIFIED") return undefined
  if (reason === "STOP") return calls > 0 ? "tool-calls" : "stop"
  return finishReasons.get(reason) ?? "other"
}

const form: Dialect.Form = { name: /^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$/, byPlace: true }

/**
 * Builds what stands in the conversation next: the model's content, then one content with an answer for each of its calls, and
 * nothing else.
 *
 * **Details**
 *
 * `calls` are those that {@link decode} gave for this message. An answer has the id of its call where the call has one.
 *
 * Images (PNG, JPEG, WebP), PDF and plain text of a tool's `toModelOutput` go into `parts` of the answer; its texts, with the
 * name of each file in its place, are the `output`.
 *
 * **Gotchas**
 *
 * Models before Gemini 3 refuse files in an answer. With them leave `toolkit` out of the options: the plain result is sent.
 *
 * **Example** (The next contents of a conversation)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { GeminiContents } from "effect-turn/wire"
 *
 * const { calls, message } = Result.getOrThrow(GeminiContents.decode({
 *   role: "model",
 *   parts: [{ functionCall: { name: "get_weather", args: { city: "Oslo" } } }]
 * }))
 * const history = Result.getOrThrow(GeminiContents.history(message, calls, [{
 *   position: 0,
 *   id: "",
 *   name: "get_weather",
 *   status: "ok",
 *   started: true,
 *   effect: "none",
 *   retryable: false,
 *   message: "",
 *   result: { celsius: 4 },
 *   encoded: { celsius: 4 }
 * }]))
 * const answers = history[1]!.parts // => [{ functionResponse: { name: "get_weather", response: { output: { celsius: 4 } } } }]
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
): Result.Result<Array<Content>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    const given = message.parts ?? []
    const ids = given.filter(isCall).map((part) => part.functionCall?.id ?? "")
    const answered = Dialect.answer(name, { path: "parts", ids }, calls, outcomes, options, form)
    if (Result.isFailure(answered)) return Result.fail(answered.failure)
    const parts = Dialect.inPlace<Part, SentPart>(given, isCall, answered.success, sentCall, keptPart)
    if (parts.length === 0) {
      return Dialect.refuse(name, "parts", "text or calls (an empty content is refused)", "an empty content")
    }
    const sent: Array<Content> = [{ ...message as object, role: "model", parts }]
    if (answered.success.length > 0) sent.push({ role: "user", parts: answered.success.map(responseOf) })
    return Dialect.checked(
      name,
      sent,
      (one) => one.role === "user" ? Answers : Schema.Struct({ parts: Schema.Array(SentCall) })
    )
  })

const sentCall = (part: Part, one: Dialect.Answered): SentPart => {
  // These are of streamed arguments, and no request has them.
  const { id: _, partialArgs: __, willContinue: ___, ...rest } = part.functionCall as Record<string, unknown>
  const functionCall: FunctionCall = {
    ...rest,
    ...(one.id === "" ? undefined : { id: one.id }),
    name: one.name,
    args: Dialect.jsonOf(Dialect.argumentsOf(one.call)) as Record<string, unknown>
  }
  return { ...part as object, functionCall }
}

const keptPart = (part: Part): SentPart | undefined =>
  part.text === "" && part.thoughtSignature == null || Object.keys(part).length === 0 ? undefined : part as SentPart

const responseOf = (one: Dialect.Answered): SentPart => {
  const files = one.parts?.map((part) => part.type === "file" ? sentFile(part) : undefined) ?? []
  const parts = files.filter((file) => file !== undefined)
  return {
    functionResponse: {
      ...(one.id === "" ? undefined : { id: one.id }),
      name: one.name,
      response: one.parts === undefined ? plain(one.outcome) : { output: textsOf(one.parts, files) },
      ...(parts.length === 0 ? undefined : { parts })
    }
  }
}

const plain = (outcome: Outcome.Outcome<any>): Record<string, unknown> => {
  const { isFailure, value } = Outcome.forModel(outcome)
  return { [isFailure ? "error" : "output"]: Dialect.jsonOf(value) }
}

const textsOf = (parts: ReadonlyArray<ModelPart>, files: ReadonlyArray<ResponsePart | undefined>): string =>
  parts.map((part, index) =>
    part.type === "text"
      ? part.text.toWellFormed()
      : files[index] === undefined
      ? wordsOf(part)
      : `[${labelOf(part)}]`
  ).join("\n")

const sentFile = (part: Extract<ModelPart, { readonly type: "file" }>): ResponsePart | undefined => {
  const { base64, mediaType, url } = fileOf(part)
  if (!/^(image\/(png|jpeg|webp)|application\/pdf|text\/plain)$/.test(mediaType)) return undefined
  if (base64 !== undefined) return { inlineData: { mimeType: mediaType, data: base64 } }
  return url === undefined || !/^(https?|gs):/i.test(url)
    ? undefined
    : { fileData: { mimeType: mediaType, fileUri: url } }
}

const functionName = Schema.String.check(Schema.isPattern(form.name!))

const object = Schema.Record(Schema.String, Schema.Unknown)

const id = Schema.optionalKey(Schema.String.check(Schema.isMinLength(1)))

const SentCall = Schema.Struct({
  functionCall: Schema.optionalKey(Schema.Struct({ id, name: functionName, args: object }))
})

const Answers = Schema.Struct({
  parts: Schema.NonEmptyArray(Schema.Struct({
    functionResponse: Schema.Struct({ id, name: functionName, response: object })
  }))
})

/**
 * Writes the model's content that makes these calls, for calls that came from elsewhere.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const fromCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): Message => ({
  role: "model",
  parts: calls.map((call) => ({
    functionCall: {
      ...(call.id === "" ? undefined : { id: call.id }),
      name: call.name,
      ...("arguments" in call ? { args: call.arguments } : undefined)
    }
  }))
})

/**
 * The codec as one value.
 *
 * @category dialects
 * @since 0.1.0
 * @stability experimental
 */
export const dialect: Dialect.Dialect<Message, Content> = {
  id: "gemini",
  name,
  matches,
  decode,
  history,
  fromCalls,
  assembler: () => Dialect.assembler(assembly(), decode)
}
