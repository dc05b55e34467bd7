/** What hosts of Chat Completions refuse, in the words of their error messages. */
import { first, hasLoneSurrogate, isObject, objectOf, unknownFields } from "./refusals.ts"

const body = [
  "model",
  "messages",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "stream",
  "stream_options",
  "temperature",
  "max_completion_tokens"
]

const roles = ["system", "developer", "user", "assistant", "tool", "function"]

function* refusals(request: unknown): Generator<string> {
  if (!isObject(request) || hasLoneSurrogate(request)) {
    return yield "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload."
  }
  for (const field of unknownFields(request, body)) yield `Unknown parameter: '${field}'.`
  if (!Array.isArray(request.messages)) return yield "Missing required parameter: 'messages'."
  if (request.messages.length === 0) {
    yield "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
  }
  let open: Array<string> = []
  let answered: Array<string> = []
  for (const [index, message] of request.messages.entries()) {
    const at = `messages[${index}]`
    if (!isObject(message)) return yield `Invalid type for '${at}': expected an object.`
    if (!roles.includes(message.role)) {
      yield `Invalid value: '${message.role}'. Supported values are: ${roles.join(", ")}.`
    }
    if (message.role === "tool") {
      yield* tool(message, at, open, answered)
      open = open.filter((id) => id !== message.tool_call_id)
      answered.push(message.tool_call_id)
      continue
    }
    if (open.length > 0) yield missing(open)
    open = []
    answered = []
    if (message.role !== "assistant") {
      if (message.content == null) yield `Invalid value for 'content': expected a string, got null. (${at}.content)`
      continue
    }
    yield* assistant(message, at)
    open = (message.tool_calls ?? []).map((call: any) => call.id)
  }
  if (open.length > 0) yield missing(open)
}

const missing = (ids: ReadonlyArray<string>): string =>
  "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. " +
  `The following tool_call_ids did not have response messages: ${ids.join(", ")}`

function* tool(
  message: Record<string, any>,
  at: string,
  open: ReadonlyArray<string>,
  answered: ReadonlyArray<string>
): Generator<string> {
  for (const field of unknownFields(message, ["role", "content", "tool_call_id", "name"])) {
    yield `Unknown parameter: '${at}.${field}'.`
  }
  const { content, tool_call_id: id } = message
  if (typeof id !== "string") yield `Missing required parameter: '${at}.tool_call_id'.`
  if (answered.includes(id)) yield `Duplicate value for 'tool_call_id' of '${id}' in ${at}`
  if (open.length === 0) {
    yield "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
  }
  if (!open.includes(id)) {
    yield `Invalid parameter: 'tool_call_id' of '${id}' not found in 'tool_calls' of previous message.`
  }
  yield* contentOf(content, `${at}.content`, ["text"])
}

/** A string or a list of parts. Blank answers are refused by some hosts ("chat content is empty"). */
function* contentOf(content: unknown, at: string, types: ReadonlyArray<string>): Generator<string> {
  if (typeof content === "string") {
    if (content.trim() === "") yield `chat content is empty (${at})`
  } else if (!Array.isArray(content)) {
    yield `Invalid type for '${at}': expected one of a string or array of objects, but got ${content} instead.`
  } else {
    if (content.length === 0) yield `Invalid '${at}': empty array. Expected an array with minimum length 1.`
    for (const [index, part] of content.entries()) {
      if (!isObject(part) || !types.includes(part.type)) {
        yield `Invalid value: '${part?.type}'. Supported values are: ${types.join(", ")}. (${at}[${index}].type)`
      } else {
        for (const field of unknownFields(part, ["type", part.type])) {
          yield `Unknown parameter: '${at}[${index}].${field}'.`
        }
        if (typeof part[part.type] !== "string" || part[part.type].trim() === "") {
          yield `Invalid '${at}[${index}].${part.type}': it must be a text that is not blank.`
        }
      }
    }
  }
}

function* assistant(message: Record<string, any>, at: string): Generator<string> {
  if ("function_call" in message && !isObject(message.function_call)) {
    yield `None is not of type 'object' - '${at}.function_call'`
  }
  if ("audio" in message && message.audio === null) yield `None is not of type 'object' - '${at}.audio'`
  const isBlank = message.content == null || message.content === ""
  if (!isBlank && Array.isArray(message.content)) {
    yield* contentOf(message.content, `${at}.content`, ["text", "refusal"])
  } else if (!isBlank && typeof message.content !== "string") yield `Invalid type for '${at}.content'.`
  if (!("tool_calls" in message)) {
    if (isBlank && (message.refusal ?? "") === "" && message.audio === undefined) {
      yield `Invalid request: the message at ${at} with role 'assistant' must not be empty`
    }
    return
  }
  const calls: unknown = message.tool_calls
  if (!Array.isArray(calls)) return yield `Invalid type for '${at}.tool_calls': expected an array of objects.`
  if (calls.length === 0) {
    yield `Invalid '${at}.tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.`
  }
  if (calls.length > 128) {
    yield `Invalid '${at}.tool_calls': array too long. Expected an array with maximum length 128, but got an array with ` +
      `length ${calls.length} instead.`
  }
  const ids: Array<string> = []
  for (const [index, call] of calls.entries()) {
    const path = `${at}.tool_calls[${index}]`
    if (!isObject(call)) return yield `Invalid type for '${path}': expected an object.`
    if (typeof call.id !== "string" || call.id === "") yield `Missing required parameter: '${path}.id'.`
    if (ids.includes(call.id)) yield `Duplicate value for 'tool_call_id' of '${call.id}' in ${at}`
    ids.push(call.id)
    yield* callOf(call, path)
  }
}

function* callOf(call: Record<string, any>, at: string): Generator<string> {
  if (call.type !== "function" && call.type !== "custom") {
    return yield `Invalid value: '${call.type}'. Supported values are: 'function' and 'custom'. (${at}.type)`
  }
  const inner: unknown = call[call.type]
  if (!isObject(inner)) return yield `Missing required parameter: '${at}.${call.type}'.`
  if (typeof inner.name !== "string" || !/^[a-zA-Z0-9_-]+$/.test(inner.name)) {
    yield `Invalid '${at}.${call.type}.name': string does not match pattern. Expected a string that matches the pattern ` +
      "'^[a-zA-Z0-9_-]+$'."
  } else if (inner.name.length > 64) {
    yield `Invalid '${at}.${call.type}.name': string too long. Expected a string with maximum length 64, but got a ` +
      `string with length ${inner.name.length} instead.`
  }
  if (call.type === "custom") {
    if (typeof inner.input !== "string") yield `Missing required parameter: '${at}.custom.input'.`
  } else if (typeof inner.arguments !== "string") {
    yield `Invalid type for '${at}.function.arguments': expected a string, but got an object instead.`
  } else if (objectOf(inner.arguments) === undefined) {
    // OpenAI takes any text here; vLLM, DeepSeek and Moonshot parse it.
    yield `Invalid '${at}.function.arguments': it must be one JSON object.`
  }
}

export const chat = (request: unknown): string | undefined => first(refusals(request))
