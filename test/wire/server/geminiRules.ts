/** What the Gemini API refuses in contents, in the words of its error messages. */
import { first, hasLoneSurrogate, isObject, unknownFields } from "./refusals.ts"

const body = [
  "contents",
  "systemInstruction",
  "tools",
  "toolConfig",
  "generationConfig",
  "safetySettings",
  "cachedContent",
  "labels"
]

/** A part holds one of these. */
const data: Record<string, ReadonlyArray<string> | "text"> = {
  text: "text",
  inlineData: ["mimeType", "data"],
  fileData: ["mimeType", "fileUri"],
  functionCall: ["id", "name", "args"],
  functionResponse: ["id", "name", "response", "parts", "scheduling", "willContinue"],
  executableCode: ["id", "language", "code"],
  codeExecutionResult: ["id", "outcome", "output"],
  toolCall: ["id", "toolType", "args"],
  toolResponse: ["id", "toolType", "response"]
}

const beside = ["thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"]

/** What may lie in `functionResponse.parts`, as it is documented. */
const responseMedia = new Set(["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"])

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

function* refusals(request: unknown): Generator<string> {
  if (!isObject(request) || hasLoneSurrogate(request)) {
    return yield "Invalid JSON payload received. Parsing terminated before end of input."
  }
  for (const field of unknownFields(request, body)) yield unknownName(field, "")
  const { contents } = request
  if (!Array.isArray(contents) || contents.length === 0) {
    return yield "* GenerateContentRequest.contents: contents is not specified"
  }
  for (const [index, content] of contents.entries()) {
    const at = `contents[${index}]`
    if (!isObject(content)) return yield `Invalid value at '${at}' (type.googleapis.com/google.ai.Content)`
    for (const field of unknownFields(content, ["role", "parts"])) yield unknownName(field, at)
    if (content.role !== "user" && content.role !== "model") yield "Please use a valid role: user, model."
    if (!Array.isArray(content.parts) || content.parts.length === 0) {
      return yield `* GenerateContentRequest.${at}.parts: contents.parts must not be empty.`
    }
    for (const [position, part] of content.parts.entries()) yield* partOf(part, `${at}.parts[${position}]`)
  }
  for (const index of contents.keys()) yield* turns(contents, index)
  if (contents.at(-1).role !== "user") {
    yield "Please ensure that multiturn requests end with a user role or a function response."
  }
}

const unknownName = (name: string, at: string): string =>
  `Invalid JSON payload received. Unknown name "${name}"${at === "" ? "" : ` at '${snake(at)}'`}: Cannot find field.`

function* partOf(part: unknown, at: string): Generator<string> {
  if (!isObject(part)) return yield `Invalid value at '${at}' (type.googleapis.com/google.ai.Part)`
  const held = Object.keys(data).filter((field) => field in part)
  for (const field of unknownFields(part, [...held, ...beside])) yield unknownName(field, at)
  const [kind, more] = held
  if (kind === undefined) {
    return yield `* GenerateContentRequest.${at}.data: required oneof field 'data' must have one initialized field`
  }
  if (more !== undefined) {
    yield `Invalid value at '${at}' (oneof), oneof field 'data' is already set. Cannot set '${more}'`
  }
  if ("thought" in part && typeof part.thought !== "boolean") yield `Invalid value at '${at}.thought' (TYPE_BOOL)`
  if ("thoughtSignature" in part && !isBase64(part.thoughtSignature)) {
    yield `Invalid value at '${at}.thought_signature' (TYPE_BYTES), Base64 decoding failed for "${part.thoughtSignature}"`
  }
  const value = part[kind]
  const fields = data[kind]!
  if (fields === "text") {
    if (typeof value !== "string") yield `Invalid value at '${at}.text' (TYPE_STRING)`
    // A text without words may carry a signature: streams end with such a part.
    if (value === "" && part.thoughtSignature === undefined) {
      yield "Unable to submit request because it must have a text parameter."
    }
    return
  }
  const path = `${at}.${snake(kind)}`
  if (!isObject(value)) return yield `Invalid value at '${path}'`
  for (const field of unknownFields(value, fields)) yield unknownName(field, path)
  if (kind === "inlineData" && !isBase64(value.data)) yield `Invalid value at '${path}.data' (TYPE_BYTES)`
  if (kind === "functionCall") {
    yield* nameOf(value, path)
    if (value.args !== undefined && !isObject(value.args)) yield notStruct(`${path}.args`, value.args)
  }
  if (kind === "functionResponse") yield* responseOf(value, path)
}

const isBase64 = (value: unknown): boolean =>
  typeof value === "string" && value !== "" && value.length % 4 === 0 && /^[A-Za-z0-9+/_-]+={0,2}$/.test(value)

const notStruct = (at: string, value: unknown): string =>
  Array.isArray(value)
    ? `Invalid JSON payload received. Unknown name "${at.split(".").at(-1)}" at '${
      at.split(".").slice(0, -1).join(".")
    }': Proto field is not repeating, cannot start list.`
    : `Invalid value at '${at}' (type.googleapis.com/google.protobuf.Struct), ${JSON.stringify(value)}`

function* nameOf(value: Record<string, any>, at: string): Generator<string> {
  const { id, name } = value
  if (typeof name !== "string" || name === "") yield `* GenerateContentRequest.${at}.name: Name cannot be empty.`
  // Documented for declarations; for calls it is not.
  else if (!/^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$/.test(name)) {
    yield `* GenerateContentRequest.${at}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an ` +
      "underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum " +
      "length of 128."
  }
  if (id !== undefined && (typeof id !== "string" || id === "")) yield `Invalid value at '${at}.id' (TYPE_STRING)`
}

function* responseOf(value: Record<string, any>, at: string): Generator<string> {
  yield* nameOf(value, at)
  if (!isObject(value.response)) yield notStruct(`${at}.response`, value.response ?? null)
  if (value.parts === undefined) return
  if (!Array.isArray(value.parts)) return yield `Invalid value at '${at}.parts'`
  for (const [index, part] of value.parts.entries()) {
    const path = `${at}.parts[${index}]`
    if (!isObject(part)) return yield `Invalid value at '${path}'`
    for (const field of unknownFields(part, ["inlineData", "fileData"])) yield unknownName(field, path)
    const blob = part.inlineData ?? part.fileData
    if (!isObject(blob)) return yield `Invalid value at '${path}'`
    const known = part.inlineData === undefined
      ? ["mimeType", "fileUri", "displayName"]
      : ["mimeType", "data", "displayName"]
    for (const field of unknownFields(blob, known)) yield unknownName(field, path)
    if (!responseMedia.has(blob.mimeType)) yield `Unsupported MIME type: ${blob.mimeType}`
    if (part.inlineData !== undefined && !isBase64(blob.data)) {
      yield `Invalid value at '${path}.inline_data.data' (TYPE_BYTES)`
    }
  }
}

const partsOf = (content: any): ReadonlyArray<Record<string, any>> => content?.parts ?? []

/** Which content may follow which: a turn of calls, then the turn of their responses. */
function* turns(contents: ReadonlyArray<Record<string, any>>, index: number): Generator<string> {
  const content = contents[index]!
  const calls = partsOf(content).flatMap((part) => part.functionCall === undefined ? [] : [part.functionCall])
  const responses = partsOf(content).flatMap((part) =>
    part.functionResponse === undefined ? [] : [part.functionResponse]
  )
  if (calls.length > 0) {
    if (content.role !== "model" || contents[index - 1]?.role !== "user") {
      yield "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
    }
    const next = partsOf(contents[index + 1])
    if (next.length !== calls.length || next.some((part) => part.functionResponse === undefined)) {
      yield "Please ensure that the number of function response parts is equal to the number of function call parts of the " +
        "function call turn."
    } else yield* matches(calls, next.map((part) => part.functionResponse))
  }
  if (responses.length > 0) {
    const before = partsOf(contents[index - 1])
    if (content.role !== "user" || !before.some((part) => part.functionCall !== undefined)) {
      yield "Please ensure that function response turn comes immediately after a function call turn."
    }
  }
}

/** By id where all have one, else by name and position. What becomes of a mismatch is not documented. */
function* matches(calls: ReadonlyArray<any>, responses: ReadonlyArray<any>): Generator<string> {
  const withIds = calls.every((call) => call.id !== undefined)
  if (withIds && new Set(calls.map((call) => call.id)).size !== calls.length) {
    yield "function call ids of a turn must be unique"
  }
  for (const [index, call] of calls.entries()) {
    const response = withIds ? responses.find((one) => one.id === call.id) : responses[index]
    if (response === undefined) yield `no function response has the id ${call.id}`
    else if (response.name !== call.name || response.id !== call.id) {
      yield `function response ${index} is that of ${response.name} ${response.id}, and not of ${call.name} ${call.id}`
    }
  }
}

export const gemini = (request: unknown): string | undefined => first(refusals(request))
