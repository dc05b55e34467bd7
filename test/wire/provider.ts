/**
 * What providers refuse in a request, as their error messages and their documentation word it. Written from those, not from the
 * codecs, so that the two can disagree.
 */

const isObject = (value: unknown): value is Record<string, any> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Half a surrogate pair in a body is no JSON for most. */
const brokenText = (body: unknown): string | undefined =>
  JSON.stringify(body).replaceAll("\\\\", "").match(/\\ud[89a-f][\da-f]{2}/) === null
    ? undefined
    : "The request body is not valid JSON: no low surrogate in string"

const isObjectText = (text: unknown): boolean => {
  try {
    return typeof text === "string" && isObject(JSON.parse(text))
  } catch {
    return false
  }
}

/** Chat Completions hosts. */
export const refusal = (messages: ReadonlyArray<any>): string | undefined => {
  let open: Array<string> = []
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") {
      if (!open.includes(message.tool_call_id)) {
        return `messages[${index}]: tool_call_id ${message.tool_call_id} not found in 'tool_calls'`
      }
      open = open.filter((id) => id !== message.tool_call_id)
      if (typeof message.content !== "string") return `messages[${index}].content: expected a string`
      if (message.content.trim() === "") return `messages[${index}]: chat content is empty`
      if (!message.content.isWellFormed()) return `messages[${index}]: could not parse the JSON body`
      continue
    }
    if (open.length > 0) return `tool_call_ids did not have response messages: ${open.join(", ")}`
    if (message.role !== "assistant") return `messages[${index}].role: unknown`
    if (message.function_call === null) return `None is not of type 'object' - messages[${index}].function_call`
    if ("tool_calls" in message) {
      if (!Array.isArray(message.tool_calls)) return `messages[${index}].tool_calls: not an array`
      if (message.tool_calls.length === 0) return `Invalid 'messages[${index}].tool_calls': empty array`
      for (const call of message.tool_calls) {
        if (typeof call.id !== "string" || call.id === "") return "tool_calls: no id"
        if (open.includes(call.id)) return `Duplicate value for 'tool_call_id' of '${call.id}'`
        open.push(call.id)
        if (call.type === "custom") {
          if (typeof call.custom.input !== "string") return "custom.input: not a string"
          continue
        }
        if (call.type !== "function") return `tool_calls: invalid type ${call.type}`
        if (typeof call.function.arguments !== "string") return "function.arguments: Input should be a valid string"
        let parsed: unknown
        try {
          parsed = JSON.parse(call.function.arguments)
        } catch {
          return "function.arguments: invalid JSON"
        }
        if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
          return "function.arguments: not an object"
        }
      }
    } else if ((message.content ?? "") === "" && (message.refusal ?? "") === "") {
      return `the message at position ${index} with role 'assistant' must not be empty`
    }
  }
  return open.length > 0 ? `tool_call_ids did not have response messages: ${open.join(", ")}` : undefined
}

/** OpenAI's Responses: the items that are added to the input. */
export const responsesRefusal = (items: ReadonlyArray<any>): string | undefined => {
  const open = new Map<string, string>()
  const answered = new Set<string>()
  const itemIds = new Set<string>()
  for (const [index, item] of items.entries()) {
    const at = `input[${index}]`
    for (const field of ["created_by", "parsed_arguments", ...(item.type === "reasoning" ? ["status"] : [])]) {
      if (field in item) return `Unknown parameter: '${at}.${field}'.`
    }
    if (typeof item.id === "string") {
      if (itemIds.has(item.id)) return `Duplicate item found with id ${item.id}.`
      itemIds.add(item.id)
    }
    switch (item.type) {
      case "function_call":
      case "custom_tool_call":
        if (typeof item.call_id !== "string" || item.call_id === "") return `Invalid '${at}.call_id': empty string.`
        if (item.call_id.length > 64) return `Invalid '${at}.call_id': string too long.`
        if (!/^[a-zA-Z0-9_-]+$/.test(item.name)) return `Invalid '${at}.name': string does not match pattern.`
        if (item.name.length > 128) return `Invalid '${at}.name': string too long.`
        if (open.has(item.call_id) || answered.has(item.call_id)) return `Duplicate call_id ${item.call_id}`
        if (item.type === "custom_tool_call" ? typeof item.input !== "string" : !isObjectText(item.arguments)) {
          return `Invalid '${at}.arguments'`
        }
        open.set(item.call_id, `${item.type}_output`)
        break
      case "function_call_output":
      case "custom_tool_call_output":
        if (open.get(item.call_id) !== item.type) {
          return `No tool call found for function call output with call_id ${item.call_id}.`
        }
        open.delete(item.call_id)
        answered.add(item.call_id)
        if (typeof item.output !== "string") {
          if (!Array.isArray(item.output) || item.output.length === 0) return `Invalid type for '${at}.output'`
          for (const part of item.output) {
            if (!["input_text", "input_image", "input_file"].includes(part.type)) return `Invalid value: '${part.type}'`
            if (part.type === "input_file" && "file_data" in part && part.filename === undefined) return "filename"
          }
        }
        break
      case "reasoning": {
        const next = items[index + 1]
        if (next === undefined || next.type.endsWith("_output")) {
          return `Item '${item.id}' of type 'reasoning' was provided without its required following item.`
        }
      }
    }
  }
  for (const id of open.keys()) return `No tool output found for function call ${id}.`
  return brokenText(items)
}

const anthropicId = /^[a-zA-Z0-9_-]+$/

/** Anthropic's Messages. */
export const anthropicRefusal = (messages: ReadonlyArray<any>): string | undefined => {
  for (const [index, message] of messages.entries()) {
    const at = `messages.${index}`
    for (const field of Object.keys(message)) {
      if (field !== "role" && field !== "content") return `${at}.${field}: Extra inputs are not permitted`
    }
    const content = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content
    if (content.length === 0) return `${at}: all messages must have non-empty content`
    for (const block of content) {
      if (block.type === "text" && block.text.trim() === "") return `${at}: text content blocks must be non-empty`
      if ("parsed_output" in block) return `${at}.parsed_output: Extra inputs are not permitted`
    }
    const uses = content.filter(({ type }: any) => type === "tool_use")
    const ids: Array<string> = uses.map(({ id }: any) => id)
    if (message.role === "assistant") {
      for (const { id, input, name } of uses) {
        if (typeof id !== "string" || !anthropicId.test(id)) return `${at}.tool_use.id: String should match pattern`
        if (!/^[a-zA-Z0-9_-]{1,128}$/.test(name)) return `${at}.tool_use.name: String should match pattern`
        if (!isObject(input)) return `${at}.tool_use.input: Input should be a valid dictionary`
      }
      if (new Set(ids).size < ids.length) return `${at}: \`tool_use\` ids must be unique`
      const next = messages[index + 1]?.content ?? []
      const given = new Set(next.slice(0, ids.length).map((block: any) => block.tool_use_id))
      const missing = ids.filter((id) => !given.has(id))
      if (missing.length > 0) {
        return `${at}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${
          missing.join(", ")
        }`
      }
      continue
    }
    const before: ReadonlyArray<any> = messages[index - 1]?.content ?? []
    const seen = new Set<string>()
    for (const block of content) {
      if (block.type !== "tool_result") return `${at}: unexpected ${block.type}`
      const isKnown = Array.isArray(before) &&
        before.some(({ id, type }) => type === "tool_use" && id === block.tool_use_id)
      if (!isKnown) return `${at}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${block.tool_use_id}`
      if (seen.has(block.tool_use_id)) return `${at}: each tool_use must have a single result`
      seen.add(block.tool_use_id)
      const pieces = typeof block.content === "string" ? [{ type: "text", text: block.content }] : block.content
      for (const piece of pieces) {
        if (!["text", "image", "document"].includes(piece.type)) return `${at}.content.type: ${piece.type}`
        if (piece.type === "text" && piece.text.trim() === "") return `${at}: text content blocks must be non-empty`
        if (block.is_error === true && piece.type !== "text") return "all content must be type text if is_error is true"
      }
    }
  }
  return brokenText(messages)
}

/** Gemini. */
export const geminiRefusal = (contents: ReadonlyArray<any>): string | undefined => {
  for (const [index, { parts, role }] of contents.entries()) {
    const at = `contents[${index}]`
    if (!Array.isArray(parts) || parts.length === 0) return `* ${at}.parts: contents.parts must not be empty.`
    for (const part of parts) {
      if (part.text === "" && part.thoughtSignature === undefined) return "it has an empty text parameter"
      if (part.functionCall !== undefined) {
        const { args, id, name, partialArgs, willContinue } = part.functionCall
        if (!/^[a-zA-Z_][\w.:-]{0,127}$/.test(name)) return `${at}: Invalid function name ${name}`
        if (!isObject(args)) return `${at}: args is no Struct`
        if (id === "" || partialArgs !== undefined || willContinue !== undefined) return `${at}: Unknown name`
      }
    }
    const calls = role === "model" ? parts.flatMap((part) => part.functionCall ?? []) : []
    if (role === "model" && calls.length > 0) {
      const responses = contents[index + 1]?.parts ?? []
      if (responses.length !== calls.length || responses.some((part: any) => part.functionResponse === undefined)) {
        return "the number of function response parts is equal to the number of function call parts of the function call turn"
      }
      for (const [i, call] of calls.entries()) {
        const { id, name, response } = responses[i].functionResponse
        if (name !== call.name || id !== call.id) return `${at}: function response ${i} does not match its call`
        if (!isObject(response)) return `${at}: response is no Struct`
      }
    }
    if (role === "user" && contents[index - 1]?.role !== "model") {
      return "function response turn comes immediately after a function call turn"
    }
  }
  return brokenText(contents)
}
