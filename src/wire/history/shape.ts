/** In what a history comes: a list, or an object that has the list in one of its fields; and whose history it is. */
import * as Result from "effect/Result"
import type * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import type * as History from "../History.ts"
import { anthropicMessages } from "./anthropicMessages.ts"
import { geminiContents } from "./geminiContents.ts"
import { openAiChat } from "./openAiChat.ts"
import { openAiResponses } from "./openAiResponses.ts"
import { type Form, stringOf } from "./view.ts"

export interface Shape {
  readonly form: Form
  readonly entries: ReadonlyArray<Record<string, unknown>>
  /** The field of the list, `""` for a bare list. */
  readonly field: string
  readonly wrap: (entries: ReadonlyArray<unknown>) => unknown
  /** The provider keeps what came before, so results may belong to calls that are not here. */
  readonly elsewhere: boolean
}

type Entry = Record<string, unknown>

const forms: Record<History.DialectId, Form> = {
  chat: openAiChat,
  responses: openAiResponses,
  anthropic: anthropicMessages,
  gemini: geminiContents
}

const fields = ["messages", "input", "contents"]

const expected = 'a list of messages, items or contents, or a request\'s body with "messages", "input" or "contents"'

export const shapeOf = (
  input: unknown,
  dialect: History.DialectId | undefined
): Result.Result<Shape, TurnError.TurnError> => {
  if (Array.isArray(input)) return shaped(input, "", {}, dialect, (entries) => entries)
  if (typeof input === "string") return Dialect.refuse("unknown", "", expected, "text (parse it first)")
  if (!Dialect.isRecord(input)) return Dialect.refuse("unknown", "", expected, String(input))
  if (Array.isArray(input.calls)) {
    return Dialect.refuse("unknown", "calls", expected, "the neutral form, which has calls and no history")
  }
  const field = fields.find((field) => field in input)
  if (field === undefined) {
    const keys = Object.keys(input).slice(0, 8).map((key) => JSON.stringify(key)).join(", ")
    return Dialect.refuse("unknown", "", expected, keys === "" ? "an empty object" : `an object with ${keys}`)
  }
  const list = field === "input" && typeof input.input === "string" ? [] : input[field]
  if (!Array.isArray(list)) return Dialect.refuse("unknown", field, "a list", typeof list)
  return shaped(list, field, input, dialect, (entries) => ({ ...input, [field]: entries }))
}

const shaped = (
  list: ReadonlyArray<unknown>,
  field: string,
  body: Entry,
  dialect: History.DialectId | undefined,
  wrap: Shape["wrap"]
): Result.Result<Shape, TurnError.TurnError> => {
  const entries: Array<Entry> = []
  for (const [index, entry] of list.entries()) {
    if (!Dialect.isRecord(entry)) {
      return Dialect.refuse(
        "unknown",
        `${field}[${index}]`,
        "a message, an item or a content: an object",
        Array.isArray(entry) ? "a list" : entry === null ? "null" : typeof entry
      )
    }
    if (Array.isArray(entry.choices) || Array.isArray(entry.candidates) || entry.object === "response") {
      return Dialect.refuse("unknown", `${field}[${index}]`, "a message, an item or a content", "a whole response")
    }
    entries.push(entry)
  }
  const id = dialect ?? dialectOf(entries, field, body)
  if (id === undefined) {
    return Dialect.refuse(
      "unknown",
      `${field}[0]`,
      "a message of Chat Completions or Anthropic, an item of Responses, or a content of Gemini",
      `an object with ${
        Object.keys(entries[0] ?? {}).slice(0, 8).map((key) => JSON.stringify(key)).join(", ") || "no fields"
      }`
    )
  }
  for (const [index, entry] of entries.entries()) {
    const whose: History.DialectId = fits(entry, id) ? id : dialectOf([entry], "", {}) ?? id
    if (whose !== id) return Dialect.refuse(forms[id].name, `${field}[${index}]`, entryOf[id], entryOf[whose])
  }
  const elsewhere = id === "responses" &&
    (body.previous_response_id != null || body.conversation != null ||
      entries.some((entry) => entry.type === "item_reference"))
  return Result.succeed({ form: forms[id], entries, field, wrap, elsewhere })
}

/** Whose history it is, told by the fields that only one provider has. Plain texts are the same for Chat Completions and Anthropic. */
const dialectOf = (
  entries: ReadonlyArray<Entry>,
  field: string,
  body: Entry
): History.DialectId | undefined => {
  if (field === "contents" || entries.some((entry) => Array.isArray(entry.parts))) return "gemini"
  if (field === "input" || entries.some(isItem)) return "responses"
  if (entries.some(isChat) || body.functions !== undefined || toolsHave(body, "function")) return "chat"
  if (entries.some(hasBlocks) || "system" in body || toolsHave(body, "input_schema")) return "anthropic"
  return entries.length === 0 || entries.some((entry) => typeof entry.role === "string") ? "chat" : undefined
}

const entryOf: Record<History.DialectId, string> = {
  chat: "a message of Chat Completions",
  responses: "an item of Responses",
  anthropic: "a message of Anthropic",
  gemini: "a content of Gemini"
}

/**
 * Whether an entry may be one of this provider's. What is another's for certain has nothing that this one's rules can see: calls and results
 * would go unseen, and be called sound or left out.
 */
const fits = (entry: Entry, id: History.DialectId): boolean => {
  const isContent = Array.isArray(entry.parts) && entry.content === undefined && entry.tool_calls === undefined
  if (id === "gemini") return entry.content === undefined && entry.tool_calls === undefined && !isTyped(entry)
  if (isContent) return false
  const isOfChat = Array.isArray(entry.tool_calls) || entry.role === "tool"
  if (id === "chat") return !isTyped(entry) && !hasCalls(entry)
  return !isOfChat && (id === "anthropic" ? !isTyped(entry) : !hasCalls(entry))
}

/** An item of Responses that is no message. */
const isTyped = (entry: Entry): boolean =>
  typeof entry.type === "string" && entry.type !== "message" && entry.role === undefined

/** A message with Anthropic's calls or results. */
const hasCalls = (entry: Entry): boolean =>
  Array.isArray(entry.content) &&
  entry.content.some((block) => Dialect.isRecord(block) && (block.type === "tool_use" || block.type === "tool_result"))

const isItem = (entry: Entry): boolean =>
  typeof entry.type === "string" &&
  (entry.type !== "message" ||
    (Array.isArray(entry.content) &&
      entry.content.some((part) => Dialect.isRecord(part) && /^(input|output)_/.test(stringOf(part.type)))))

const isChat = (entry: Entry): boolean =>
  ["tool", "system", "developer", "function"].includes(stringOf(entry.role)) || Array.isArray(entry.tool_calls)

const hasBlocks = (entry: Entry): boolean =>
  entry.type === "message" ||
  (Array.isArray(entry.content) &&
    entry.content.some((block) =>
      Dialect.isRecord(block) &&
      /^(tool_use|tool_result|thinking|redacted_thinking|image|document|search_result|server_tool_use|.*_tool_(use|result))$/
        .test(stringOf(block.type))
    ))

const toolsHave = (body: Entry, field: string): boolean =>
  Array.isArray(body.tools) && body.tools.some((tool) => Dialect.isRecord(tool) && field in tool)
