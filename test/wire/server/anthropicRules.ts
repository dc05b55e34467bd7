/** What Anthropic's Messages API refuses, in the words of its error messages. */
import { first, hasLoneSurrogate, isObject, unknownFields } from "./refusals.ts"

const body = [
  "model",
  "messages",
  "max_tokens",
  "system",
  "tools",
  "tool_choice",
  "thinking",
  "stream",
  "temperature",
  "metadata",
  "stop_sequences",
  "service_tier",
  "container",
  "cache_control",
  "output_config"
]

/** The fields that a block may have: those that it must have, then the others. */
const blocks: Record<string, readonly [required: ReadonlyArray<string>, optional: ReadonlyArray<string>]> = {
  text: [["text"], ["citations", "cache_control"]],
  image: [["source"], ["cache_control", "transformations"]],
  document: [["source"], ["title", "context", "citations", "cache_control"]],
  search_result: [["content", "source", "title"], ["citations", "cache_control"]],
  tool_reference: [["tool_name"], ["cache_control"]],
  browser_state: [[], ["cache_control"]],
  thinking: [["thinking", "signature"], []],
  redacted_thinking: [["data"], []],
  tool_use: [["id", "name", "input"], ["caller", "toolset_name", "cache_control"]],
  tool_result: [["tool_use_id"], ["content", "is_error", "toolset_name", "cache_control"]],
  server_tool_use: [["id", "name", "input"], ["caller", "cache_control"]],
  mcp_tool_use: [["id", "name", "input", "server_name"], ["cache_control"]],
  mcp_tool_result: [["tool_use_id"], ["content", "is_error", "cache_control"]],
  web_search_tool_result: [["tool_use_id", "content"], ["caller", "cache_control"]],
  web_fetch_tool_result: [["tool_use_id", "content"], ["caller", "cache_control"]],
  code_execution_tool_result: [["tool_use_id", "content"], ["cache_control"]],
  bash_code_execution_tool_result: [["tool_use_id", "content"], ["cache_control"]],
  text_editor_code_execution_tool_result: [["tool_use_id", "content"], ["cache_control"]],
  tool_search_tool_result: [["tool_use_id", "content"], ["cache_control"]],
  container_upload: [["file_id"], ["cache_control"]]
}

/** Citations come with a `file_id` that is null, and are refused with it. */
const citations: Record<string, ReadonlyArray<string>> = {
  char_location: ["cited_text", "document_index", "document_title", "end_char_index", "start_char_index", "type"],
  page_location: ["cited_text", "document_index", "document_title", "end_page_number", "start_page_number", "type"],
  content_block_location: [
    "cited_text",
    "document_index",
    "document_title",
    "end_block_index",
    "start_block_index",
    "type"
  ],
  web_search_result_location: ["cited_text", "encrypted_index", "title", "type", "url"],
  search_result_location: [
    "cited_text",
    "end_block_index",
    "search_result_index",
    "source",
    "start_block_index",
    "title",
    "type"
  ]
}

const inResults = ["text", "image", "document", "search_result", "tool_reference", "browser_state"]

const onlyUser = new Set(["tool_result", "image", "document", "search_result"])

const isResult = (type: unknown): boolean => typeof type === "string" && type.endsWith("_tool_result")

const isServerUse = (type: unknown): boolean => type === "server_tool_use" || type === "mcp_tool_use"

function* refusals(request: unknown): Generator<string> {
  if (!isObject(request)) return yield "The request body is not valid JSON"
  if (hasLoneSurrogate(request)) return yield "The request body is not valid JSON: no low surrogate in string"
  for (const field of unknownFields(request, body)) yield `${field}: Extra inputs are not permitted`
  const { messages } = request
  if (!Array.isArray(messages)) return yield "messages: Field required"
  if (messages.length === 0) return yield "messages: at least one message is required"
  const ids: Array<string> = []
  for (const [index, message] of messages.entries()) {
    const at = `messages.${index}`
    if (!isObject(message)) return yield `${at}: Input should be an object`
    if (!["user", "assistant"].includes(message.role)) {
      return yield `${at}.role: Input should be 'user' or 'assistant'`
    }
    if (index === 0 && message.role !== "user") yield 'messages: first message must use the "user" role'
    for (const field of unknownFields(message, ["role", "content"])) {
      yield `${at}.${field}: Extra inputs are not permitted`
    }
    yield* contentOf(message, at, index === messages.length - 1)
    for (const [position, block] of listOf(message).entries()) {
      if (block.type !== "tool_use" && !isServerUse(block.type)) continue
      if (ids.includes(block.id)) yield `${at}.content.${position}: \`tool_use\` ids must be unique`
      ids.push(block.id)
    }
  }
  for (const index of messages.keys()) yield* pairs(messages, index)
  yield* serverTools(messages)
}

const listOf = (message: any): ReadonlyArray<Record<string, any>> =>
  Array.isArray(message?.content) ? message.content : []

function* contentOf(message: Record<string, any>, at: string, isLast: boolean): Generator<string> {
  const { content, role } = message
  if (typeof content === "string") {
    if (content === "") yield "messages: text content blocks must be non-empty"
    if (content.trim() === "") yield "messages: text content blocks must contain non-whitespace text"
    return
  }
  if (!Array.isArray(content)) return yield `${at}.content: Input should be a valid list`
  if (content.length === 0 && !(isLast && role === "assistant")) {
    yield `${at}: all messages must have non-empty content except for the optional final assistant message`
  }
  for (const [index, block] of content.entries()) {
    const path = `${at}.content.${index}`
    yield* blockOf(block, path, Object.keys(blocks))
    if (role === "user" ? !userMayHave(block.type) : onlyUser.has(block.type)) {
      yield `${path}: \`${block.type}\` blocks are not permitted in \`${role}\` messages`
    }
  }
  const last = content.at(-1)
  if (role === "assistant" && (last?.type === "thinking" || last?.type === "redacted_thinking")) {
    yield `${at}: The final block in an assistant message cannot be \`thinking\`.`
  }
  if (role === "assistant" && isLast && last?.type === "text" && last.text !== last.text.trimEnd()) {
    yield "messages: final assistant content cannot end with trailing whitespace"
  }
}

const userMayHave = (type: string): boolean => onlyUser.has(type) || type === "text" || type === "container_upload"

function* blockOf(block: unknown, at: string, types: ReadonlyArray<string>): Generator<string> {
  if (!isObject(block)) return yield `${at}: Input should be an object`
  const { type } = block
  if (!types.includes(type)) {
    return yield `${at}: Input tag '${type}' found using 'type' does not match any of the expected tags: ${
      types.join(", ")
    }`
  }
  const [required, optional] = blocks[type]!
  const path = `${at}.${type}`
  for (const field of required) if (block[field] === undefined) yield `${path}.${field}: Field required`
  for (const field of unknownFields(block, ["type", ...required, ...optional])) {
    yield `${path}.${field}: Extra inputs are not permitted`
  }
  if (type === "text") yield* textOf(block, path)
  if (type === "thinking" && (typeof block.signature !== "string" || block.signature === "")) {
    yield `${at}: Invalid \`signature\` in \`thinking\` block`
  }
  if (type === "tool_use" || isServerUse(type)) yield* useOf(block, path)
  if (type === "tool_result") yield* resultOf(block, path)
  if (type === "image" || type === "document") yield* sourceOf(block, path)
}

function* textOf(block: Record<string, any>, at: string): Generator<string> {
  if (typeof block.text !== "string") return yield `${at}.text: Input should be a valid string`
  if (block.text === "") yield "messages: text content blocks must be non-empty"
  if (block.text.trim() === "") yield "messages: text content blocks must contain non-whitespace text"
  if (block.citations == null) return
  for (const [index, citation] of block.citations.entries()) {
    for (const field of unknownFields(citation, citations[citation.type] ?? [])) {
      yield `${at}.citations.${index}.${citation.type}.${field}: Extra inputs are not permitted`
    }
  }
}

function* useOf(block: Record<string, any>, at: string): Generator<string> {
  if (typeof block.id !== "string" || !/^[a-zA-Z0-9_-]+$/.test(block.id)) {
    yield `${at}.id: String should match pattern '^[a-zA-Z0-9_-]+$'`
  }
  if (typeof block.name !== "string" || !/^[a-zA-Z0-9_-]{1,128}$/.test(block.name)) {
    yield `${at}.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`
  }
  if (!isObject(block.input)) yield `${at}.input: Input should be a valid dictionary`
}

function* resultOf(block: Record<string, any>, at: string): Generator<string> {
  const { content, is_error, tool_use_id: id } = block
  if (typeof id !== "string" || !/^[a-zA-Z0-9_-]+$/.test(id)) {
    yield `${at}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'`
  }
  if (is_error !== undefined && typeof is_error !== "boolean") yield `${at}.is_error: Input should be a valid boolean`
  if (content === undefined || typeof content === "string") return
  if (!Array.isArray(content)) return yield `${at}.content: Input should be a valid list`
  for (const [index, part] of content.entries()) {
    yield* blockOf(part, `${at}.content.${index}`, inResults)
    if (is_error === true && part.type !== "text") {
      yield `${at}: all content must be type \`text\` if \`is_error\` is true`
    }
  }
}

const media: Record<string, ReadonlyArray<string>> = {
  image: ["image/jpeg", "image/png", "image/gif", "image/webp"],
  document: ["application/pdf"]
}

function* sourceOf(block: Record<string, any>, at: string): Generator<string> {
  const { source, type } = block
  if (!isObject(source)) return yield `${at}.source: Input should be an object`
  const fields: Record<string, ReadonlyArray<string>> = {
    base64: ["data", "media_type"],
    url: ["url"],
    file: ["file_id"],
    ...(type === "document" ? { text: ["data", "media_type"], content: ["content"] } : undefined)
  }
  const known = fields[source.type]
  if (known === undefined) return yield `${at}.source: Input tag '${source.type}' found using 'type' does not match`
  for (const field of known) {
    if (source[field] === undefined) yield `${at}.source.${source.type}.${field}: Field required`
  }
  for (const field of unknownFields(source, ["type", ...known])) {
    yield `${at}.source.${source.type}.${field}: Extra inputs are not permitted`
  }
  if (source.type === "base64") {
    if (!media[type]!.includes(source.media_type)) {
      yield `${at}.source.base64.media_type: Input should be ${media[type]!.join(", ")}`
    }
    if (!/^[A-Za-z0-9+/]+={0,2}$/.test(source.data)) yield `${at}.source.base64: invalid base64 data`
  }
  if (source.type === "text" && source.media_type !== "text/plain") {
    yield `${at}.source.text.media_type: Input should be 'text/plain'`
  }
}

/** Calls of this message against the results of the next one, and no other. */
function* pairs(messages: ReadonlyArray<Record<string, any>>, index: number): Generator<string> {
  const at = `messages.${index}`
  const message = messages[index]!
  if (message.role === "assistant") {
    const calls = listOf(message).filter((block) => block.type === "tool_use").map((block) => block.id)
    const next = listOf(messages[index + 1])
    const before = next.findIndex((block) => block.type !== "tool_result")
    const results = new Set((before === -1 ? next : next.slice(0, before)).map((block) => block.tool_use_id))
    const missing = calls.filter((id) => !results.has(id))
    if (missing.length > 0) {
      yield `${at}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${
        missing.join(", ")
      }. ` +
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    }
    return
  }
  const calls = new Set(
    listOf(messages[index - 1]).filter((block) => block.type === "tool_use").map((block) => block.id)
  )
  const seen: Array<string> = []
  for (const [position, block] of listOf(message).entries()) {
    if (block.type !== "tool_result") continue
    const id = block.tool_use_id
    if (messages[index - 1]?.role !== "assistant" || !calls.has(id)) {
      yield `${at}.content.${position}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. ` +
        "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
    }
    if (seen.includes(id)) {
      yield `${at}.content.${position}: each tool_use must have a single result. Found multiple \`tool_result\` blocks ` +
        `with id: ${id}`
    }
    seen.push(id)
  }
}

/** What the provider ran itself: use, then result, in one turn of the assistant, which may go on over several messages. */
function* serverTools(messages: ReadonlyArray<Record<string, any>>): Generator<string> {
  let open: Array<string> = []
  for (const [index, message] of messages.entries()) {
    if (message.role === "user") {
      if (open.length > 0 && listOf(message).some((block) => block.type !== "tool_result")) {
        yield `messages.${index - 1}: \`web_search\` tool use with id \`${
          open[0]
        }\` was found without a corresponding ` +
          "`web_search_tool_result` block"
      }
      if (typeof message.content === "string") open = []
      continue
    }
    for (const [position, block] of listOf(message).entries()) {
      if (isServerUse(block.type)) open.push(block.id)
      if (!isResult(block.type)) continue
      if (!open.includes(block.tool_use_id)) {
        yield `messages.${index}.content.${position}: unexpected \`tool_use_id\` found in \`${block.type}\` blocks: ` +
          `${block.tool_use_id}. Each \`${block.type}\` block must have a corresponding \`server_tool_use\` block before it.`
      }
      open = open.filter((id) => id !== block.tool_use_id)
    }
  }
}

export const anthropic = (request: unknown): string | undefined => first(refusals(request))
