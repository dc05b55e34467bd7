/** What OpenAI's Responses API refuses, in the words of its error messages. */
import { first, hasLoneSurrogate, isObject, objectOf, unknownFields } from "./refusals.ts"

const body = [
  "model",
  "input",
  "instructions",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "stream",
  "store",
  "include",
  "reasoning",
  "previous_response_id",
  "max_output_tokens",
  "temperature",
  "text"
]

interface Kind {
  readonly required: ReadonlyArray<string>
  readonly optional?: ReadonlyArray<string>
  /** What the id of such an item begins with. */
  readonly id?: string
}

/** The items whose fields are checked. `status` is no field of reasoning that comes back, whatever the types say. */
const kinds: Record<string, Kind> = {
  message: { required: ["role", "content"], optional: ["id", "status", "phase"], id: "msg" },
  reasoning: { required: ["id", "summary"], optional: ["content", "encrypted_content"], id: "rs" },
  function_call: {
    required: ["call_id", "name", "arguments"],
    optional: ["id", "status", "namespace", "caller", "async"],
    id: "fc"
  },
  function_call_output: {
    required: ["call_id", "output"],
    optional: ["id", "status", "caller", "name", "namespace"],
    id: "fc"
  },
  custom_tool_call: {
    required: ["call_id", "name", "input"],
    optional: ["id", "namespace", "caller", "async"],
    id: "ctc"
  },
  custom_tool_call_output: { required: ["call_id", "output"], optional: ["id", "caller"], id: "ctc" },
  web_search_call: { required: ["id", "action", "status"], id: "ws" },
  file_search_call: { required: ["id", "queries", "status"], optional: ["results"], id: "fs" },
  code_interpreter_call: { required: ["id", "code", "container_id", "outputs", "status"], id: "ci" },
  mcp_call: {
    required: ["id", "arguments", "name", "server_label"],
    optional: ["approval_request_id", "error", "output", "status"],
    id: "mcp"
  },
  item_reference: { required: ["id"] }
}

/** Known as well, and not looked into. */
const others = [
  "computer_call",
  "computer_call_output",
  "image_generation_call",
  "local_shell_call",
  "local_shell_call_output",
  "shell_call",
  "shell_call_output",
  "apply_patch_call",
  "apply_patch_call_output",
  "mcp_list_tools",
  "mcp_approval_request",
  "mcp_approval_response",
  "tool_search_call",
  "tool_search_output",
  "compaction",
  "additional_tools",
  "program",
  "program_output"
]

const actions: Record<string, ReadonlyArray<string>> = {
  search: ["query", "queries", "sources"],
  open_page: ["url"],
  find_in_page: ["pattern", "url"]
}

const parts: Record<string, ReadonlyArray<string>> = {
  input_text: ["text", "prompt_cache_breakpoint"],
  input_image: ["detail", "file_id", "image_url", "prompt_cache_breakpoint"],
  input_file: ["detail", "file_data", "file_id", "file_url", "filename", "prompt_cache_breakpoint"],
  output_text: ["text", "annotations", "logprobs"],
  refusal: ["refusal"]
}

const isCall = (type: string): boolean => type === "function_call" || type === "custom_tool_call"

/** What the model itself wrote, so that reasoning may belong to it. */
const isOutput = (item: Record<string, any> | undefined): boolean =>
  item !== undefined && typeOf(item) !== "item_reference" &&
  !typeOf(item).endsWith("_output") && (typeOf(item) !== "message" || item.role === "assistant")

const typeOf = (item: Record<string, any>): string => item.type ?? ("role" in item ? "message" : "item_reference")

function* refusals(request: unknown): Generator<string> {
  if (!isObject(request) || hasLoneSurrogate(request)) {
    return yield "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload."
  }
  for (const field of unknownFields(request, body)) yield `Unknown parameter: '${field}'.`
  const { input } = request
  if (typeof input === "string") return
  if (!Array.isArray(input)) return yield "Missing required parameter: 'input'."
  const ids: Array<string> = []
  for (const [index, item] of input.entries()) {
    const at = `input[${index}]`
    if (!isObject(item)) return yield `Invalid type for '${at}': expected an object.`
    yield* itemOf(item, at)
    if (typeof item.id === "string" && typeOf(item) !== "item_reference") {
      if (ids.includes(item.id)) {
        yield `Duplicate item found with id ${item.id}. Remove duplicate items from your input and try again.`
      }
      ids.push(item.id)
    }
    if (item.type === "reasoning" && !isOutput(input[index + 1])) {
      yield `Item '${item.id}' of type 'reasoning' was provided without its required following item.`
    }
  }
  yield* pairs(input, request.previous_response_id != null)
}

function* itemOf(item: Record<string, any>, at: string): Generator<string> {
  const type = typeOf(item)
  const kind = kinds[type]
  if (kind === undefined) {
    if (!others.includes(type)) {
      yield `Invalid value: '${type}'. Supported values are: ${[...Object.keys(kinds), ...others].join(", ")}. (${at})`
    }
    return
  }
  for (const field of kind.required) {
    if (item[field] === undefined) yield `Missing required parameter: '${at}.${field}'.`
  }
  for (const field of unknownFields(item, ["type", ...kind.required, ...kind.optional ?? []])) {
    yield `Unknown parameter: '${at}.${field}'.`
  }
  if (item.id != null && kind.id !== undefined) {
    if (typeof item.id !== "string" || !/^[a-zA-Z0-9_-]+$/.test(item.id)) {
      yield `Invalid '${at}.id': '${item.id}'. Expected an ID that contains letters, numbers, underscores, or dashes, but ` +
        "this value contained additional characters."
    } else if (!item.id.startsWith(kind.id)) {
      yield `Invalid '${at}.id': '${item.id}'. Expected an ID that begins with '${kind.id}'.`
    } else if (item.id.length > 64) yield tooLong(`${at}.id`, 64, item.id)
  }
  if (typeof item.call_id === "string") {
    if (item.call_id === "") {
      yield `Invalid '${at}.call_id': empty string. Expected a string with minimum length 1, but got an empty string instead.`
    }
    if (item.call_id.length > 64) yield tooLong(`${at}.call_id`, 64, item.call_id)
  } else if ("call_id" in item) yield `Invalid type for '${at}.call_id': expected a string.`
  if (isCall(type)) yield* callOf(item, at)
  if ("output" in item && type.endsWith("tool_call_output") || type === "function_call_output") {
    yield* contentOf(item.output, `${at}.output`, ["input_text", "input_image", "input_file"])
    if (typeof item.output === "string" && item.output.length > 10_485_760) {
      yield tooLong(`${at}.output`, 10_485_760, item.output)
    }
  }
  if (type === "message") {
    const types = item.role === "assistant" ? ["output_text", "refusal"] : ["input_text", "input_image", "input_file"]
    yield* contentOf(item.content, `${at}.content`, types)
  }
  if (type === "web_search_call") {
    const known = actions[item.action?.type]
    if (known === undefined) yield `Invalid value: '${item.action?.type}'. (${at}.action.type)`
    else {for (const field of unknownFields(item.action, ["type", ...known])) {
        yield `Unknown parameter: '${at}.action.${field}'.`
      }}
  }
}

const tooLong = (at: string, most: number, text: string): string =>
  `Invalid '${at}': string too long. Expected a string with maximum length ${most}, but got a string with length ` +
  `${text.length} instead.`

function* callOf(item: Record<string, any>, at: string): Generator<string> {
  if (typeof item.name !== "string" || !/^[a-zA-Z0-9_-]+$/.test(item.name)) {
    yield `Invalid '${at}.name': string does not match pattern. Expected a string that matches the pattern ` +
      "'^[a-zA-Z0-9_-]+$'."
  } else if (item.name.length > 128) yield tooLong(`${at}.name`, 128, item.name)
  if (item.type === "custom_tool_call") {
    if (typeof item.input !== "string") yield `Invalid type for '${at}.input': expected a string.`
  } else if (typeof item.arguments !== "string") {
    yield `Invalid type for '${at}.arguments': expected a string, but got an object instead.`
  } else if (objectOf(item.arguments) === undefined) {
    // OpenAI takes any text here; other hosts of this API parse it.
    yield `Invalid '${at}.arguments': it must be one JSON object.`
  }
}

function* contentOf(content: unknown, at: string, types: ReadonlyArray<string>): Generator<string> {
  if (typeof content === "string") return
  if (!Array.isArray(content)) {
    return yield `Invalid type for '${at}': expected one of an array of objects or string, but got ${
      isObject(content) ? "an object" : content
    } instead.`
  }
  // Whether an empty list is taken is not documented.
  if (content.length === 0 && at.endsWith("output")) yield `Invalid '${at}': empty array.`
  for (const [index, part] of content.entries()) {
    const path = `${at}[${index}]`
    if (!isObject(part) || !types.includes(part.type)) {
      yield `Invalid value: '${part?.type}'. Supported values are: ${types.join(", ")}. (${path})`
      continue
    }
    for (const field of unknownFields(part, ["type", ...parts[part.type]!])) {
      yield `Unknown parameter: '${path}.${field}'.`
    }
    if (part.type.endsWith("text") && typeof part.text !== "string") yield `Missing required parameter: '${path}.text'.`
    if (part.type === "input_image" && part.image_url == null && part.file_id == null) {
      yield `Missing required parameter: '${path}.image_url'.`
    }
    if (part.type === "input_file" && part.file_data == null && part.file_id == null && part.file_url == null) {
      yield `Missing required parameter: '${path}.file_data'.`
    }
  }
}

/** Each output has its call before it, and each call its output. */
function* pairs(input: ReadonlyArray<Record<string, any>>, goesOn: boolean): Generator<string> {
  const calls = new Map<string, string>()
  const answered = new Set<string>()
  for (const [index, item] of input.entries()) {
    const type = typeOf(item)
    const id = item.call_id
    if (isCall(type)) {
      // What becomes of two calls under one id is not documented.
      if (calls.has(id)) yield `Duplicate value for 'call_id' of '${id}' in input[${index}]`
      calls.set(id, type)
    } else if (type === "function_call_output" || type === "custom_tool_call_output") {
      const what = type === "function_call_output" ? "function call output" : "custom tool call output"
      if (calls.get(id) !== type.slice(0, -"_output".length) && !goesOn) {
        yield `No tool call found for ${what} with call_id ${id}.`
      }
      // Not documented either.
      if (answered.has(id)) yield `Duplicate ${what} for call_id ${id}.`
      answered.add(id)
    }
  }
  for (const [id, type] of calls) {
    if (answered.has(id)) continue
    yield `No tool output found for ${type === "function_call" ? "function call" : "custom tool call"} ${id}.`
  }
}

export const responses = (request: unknown): string | undefined => first(refusals(request))
