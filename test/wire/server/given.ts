/**
 * What the provider itself has said must come back as it was: its texts, its reasoning, its signatures, the parts that it ran
 * itself, all in their places. A call may come back with another id where its own is of no use, with the arguments `{}` where it had
 * none that are an object, and with a name that a request may have; a call that was delivered twice comes back once.
 */
import { isObject, objectOf } from "./refusals.ts"
import type { Provider } from "./rules.ts"

/** One thing that the model said: a call, or anything else. */
interface Said {
  readonly call?: { readonly id: string; readonly name: string; readonly args: unknown; readonly raw: unknown }
  /** All that is no id, name or arguments. */
  readonly rest: unknown
  /** For messages to people. */
  readonly what: string
  /** It may be left out: thoughts that led to nothing that is sent back, which may not stand alone. */
  readonly optional?: boolean
}

/** JSON whose keys are sorted, without broken characters, and without the fields that hold nothing, but for those of arguments. */
const canonical = (value: unknown, nulls: "dropped" | "kept" = "dropped"): string =>
  JSON.stringify(value, (_, field: unknown) =>
    typeof field === "string"
      ? field.toWellFormed()
      : isObject(field)
      ? Object.fromEntries(
        Object.entries(field).filter(([, inner]) => nulls === "kept" || inner != null)
          .map(([key, inner]) => [key.toWellFormed(), inner] as const)
          .sort(([a], [b]) => a < b ? -1 : 1)
      )
      : field) ?? "null"

const without = (value: Record<string, any>, ...fields: ReadonlyArray<string>): Record<string, any> =>
  Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)))

/** Arguments as they go back: one object, or none. */
const argsOf = (given: unknown): unknown => {
  if (typeof given === "string") return finite(objectOf(given.trim())) ?? {}
  return isObject(given) ? finite(given) ?? {} : {}
}

const finite = (value: unknown): unknown => overflows(value) ? undefined : value

const overflows = (value: unknown): boolean =>
  typeof value === "number"
    ? !Number.isFinite(value)
    : typeof value === "object" && value !== null && Object.values(value).some(overflows)

const call = (id: unknown, name: unknown, raw: unknown, rest: unknown): Said => ({
  call: { id: typeof id === "string" ? id : "", name: String(name), args: argsOf(raw), raw },
  rest,
  what: `the call ${JSON.stringify(id)} of ${name}`
})

const chat = (message: Record<string, any>): ReadonlyArray<Said> => [
  {
    rest: { ...without(message, "tool_calls"), content: message.content === "" ? null : message.content },
    what: "the message"
  },
  ...(message.tool_calls ?? []).map((one: Record<string, any>) => {
    const kind = one.custom == null ? "function" : "custom"
    const inner = one[kind]
    const rest = { ...without(one, "id", "type", kind), ...without(inner, "name", "arguments", "input") }
    return call(one.id, inner.name, kind === "custom" ? { input: inner.input } : inner.arguments, rest)
  })
]

const responses = (item: Record<string, any>): ReadonlyArray<Said> => {
  if (item.type === "function_call") {
    return [call(item.call_id, item.name, item.arguments, without(item, "call_id", "name", "arguments"))]
  }
  if (item.type === "custom_tool_call") {
    return [call(item.call_id, item.name, { input: item.input }, without(item, "call_id", "name", "input"))]
  }
  const rest = item.type === "reasoning"
    ? without(item, "status")
    : item.type === "message"
    ? {
      ...item,
      content: item.content.map((part: any) =>
        without(part, "parsed", ...(part.logprobs?.length === 0 ? ["logprobs"] : []))
      )
    }
    : item
  return [{ rest, what: `the item ${item.id} of type '${item.type}'` }]
}

const anthropic = (block: Record<string, any>): ReadonlyArray<Said> => {
  if (block.type === "tool_use") return [call(block.id, block.name, block.input, without(block, "id", "name", "input"))]
  if (block.type === "text" && block.text.trim() === "") return []
  const rest = Array.isArray(block.citations)
    ? { ...block, citations: block.citations.map((citation: any) => without(citation, "file_id")) }
    : block
  return [{ rest, what: `the block of type '${block.type}'` }]
}

const gemini = (part: Record<string, any>): ReadonlyArray<Said> => {
  const { functionCall } = part
  if (functionCall !== undefined) {
    const { args, id, name, ...rest } = functionCall
    return [call(id, name, args, { ...without(part, "functionCall"), rest })]
  }
  if (part.text === "" && part.thoughtSignature === undefined) return []
  return [{ rest: part, what: `the part ${Object.keys(part).join(", ")}` }]
}

/** Texts that lie side by side are one text: a stream has cut it somewhere. */
const joined = (said: ReadonlyArray<Said>): ReadonlyArray<Said> => {
  const list: Array<Said> = []
  for (const one of said) {
    const last = list.at(-1)?.rest
    const { rest } = one
    if (
      isObject(last) && isObject(rest) && typeof last.text === "string" && typeof rest.text === "string" &&
      canonical(without(last, "text")) === canonical(without(rest, "text")) && rest.thoughtSignature === undefined
    ) list[list.length - 1] = { ...one, rest: { ...rest, text: last.text + rest.text } }
    else list.push(one)
  }
  return list
}

const once = (said: ReadonlyArray<Said>): ReadonlyArray<Said> => {
  const seen = new Set<string>()
  return said.filter(({ call }) => {
    if (call === undefined || call.id === "") return true
    const key = canonical([call.id, call.name, isObject(call.raw) ? call.args : parsed(call.raw)], "kept")
    return !seen.has(key) && seen.add(key)
  })
}

const parsed = (raw: unknown): unknown =>
  typeof raw === "string" && raw.trim() === "" ? {} : objectOf(raw) ?? ["text", raw]

const isThought = ({ rest }: Said): boolean =>
  isObject(rest) &&
  (rest["type"] === "thinking" || rest["type"] === "redacted_thinking" || rest["type"] === "reasoning")

/** What a response says, once: thoughts go with the calls that they led to, and where nothing follows them. */
const withThoughts = (said: ReadonlyArray<Said>): ReadonlyArray<Said> => {
  const kept = new Set(once(said))
  return said.flatMap((one, index) => {
    if (!kept.has(one)) return []
    if (!isThought(one)) return [one]
    const after = said.slice(index + 1)
    const first = after.findIndex((next) => !isThought(next))
    const run = first === -1 ? [] : after.slice(first)
    const next = run.findIndex(isThought)
    const led = next === -1 ? run : run.slice(0, next)
    return [led.some((next) => kept.has(next)) ? one : { ...one, optional: true }]
  })
}

/** What a response says, of what may be sent back: no message without words and calls. */
const saidBy: Record<Provider, (response: any) => ReadonlyArray<Said>> = {
  chat: ({ choices: [{ message }] }) =>
    message.content || message.refusal || message.tool_calls?.length > 0 ? once(chat(message)) : [],
  responses: (response) => withThoughts(response.output.flatMap(responses)),
  anthropic: (response) => withThoughts(response.content.flatMap(anthropic)),
  gemini: (response) => joined(once((response.candidates[0].content?.parts ?? []).flatMap(gemini)))
}

/** What the model has said according to a request. */
const saidIn: Record<Provider, (request: any) => ReadonlyArray<Said>> = {
  chat: ({ messages }) => messages.filter((one: any) => one.role === "assistant").flatMap(chat),
  responses: ({ input }) =>
    (Array.isArray(input) ? input : [])
      .filter((item: any) => !(item.type ?? "").endsWith("_output") && (item.role ?? "assistant") === "assistant")
      .flatMap(responses),
  anthropic: ({ messages }) =>
    messages.filter((one: any) => one.role === "assistant")
      .flatMap((one: any) => one.content)
      .flatMap(anthropic),
  gemini: ({ contents }) =>
    contents.filter((one: any) => one.role === "model").flatMap((one: any) => joined(one.parts.flatMap(gemini)))
}

/** Ids that may be sent as they are. */
const isUsable: Record<Provider, (id: string) => boolean> = {
  chat: (id) => id !== "",
  responses: (id) => id !== "" && id.length <= 64,
  anthropic: (id) => /^[a-zA-Z0-9_-]+$/.test(id),
  gemini: () => true
}

const wordsOf = (name: string): string => name.replace(/[^a-zA-Z0-9_-]/g, "_").slice(0, 64)

/** The refusal of a conversation in which the model's own words are not what they were. */
export const changed = (
  provider: Provider,
  request: unknown,
  responses: ReadonlyArray<unknown>
): string | undefined => {
  const back = saidIn[provider](request)
  let index = 0
  for (const response of responses) {
    const ids = new Set<string>()
    for (const said of saidBy[provider](response)) {
      const difference = differs(provider, said, back[index], ids)
      if (difference === undefined) index++
      else if (said.optional !== true) return difference
    }
  }
  return back.length === index ? undefined : `${back[index]!.what} was never said by the model`
}

const differs = (provider: Provider, said: Said, back: Said | undefined, ids: Set<string>): string | undefined => {
  if (back === undefined || (said.call === undefined) !== (back.call === undefined)) return missing(provider, said)
  if (canonical(said.rest) !== canonical(back.rest)) {
    return `${missing(provider, said)} Expected ${canonical(said.rest)}, and got ${canonical(back.rest)}`
  }
  if (said.call === undefined) return undefined
  const { args, id, name } = said.call
  const { call } = back
  if (isUsable[provider](id) && !ids.has(id) && call!.id !== id) return `${said.what} came back as ${call!.id}`
  // A host takes its own ids, however long they are.
  if (provider === "chat" && call!.id !== id && call!.id.length > 64) {
    return `Invalid 'tool_calls[].id': string too long. Expected a string with maximum length 64 (${call!.id})`
  }
  ids.add(id)
  // Its first character may be one that a name may not begin with.
  if (name !== "" && wordsOf(name).slice(1) !== wordsOf(call!.name).slice(1)) {
    return `${said.what} came back as one of ${call!.name}`
  }
  const [before, after] = [canonical(args, "kept"), canonical(call!.args, "kept")]
  if (before !== after) return `the arguments of ${said.what} were ${before} and came back as ${after}`
  return undefined
}

/** The provider's words for what is not there, or not as it was. */
const missing = (provider: Provider, { call, rest, what }: Said): string => {
  const fields = isObject(rest) ? rest : {}
  switch (provider) {
    case "chat":
      return fields["reasoning_content"] === undefined
        ? `${what} was changed.`
        : "The `reasoning_content` in the thinking mode must be passed back to the API."
    case "responses":
      return fields["type"] === "reasoning"
        ? `A following item was provided without its required 'reasoning' item: '${
          fields["id"]
        }', or the encrypted content ` +
          `for item ${fields["id"]} could not be verified.`
        : `${what} was changed.`
    case "anthropic":
      return fields["type"] === "thinking" || fields["type"] === "redacted_thinking"
        ? "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must " +
          "remain as they were in the original response."
        : `${what} was changed.`
    case "gemini":
      return fields["thoughtSignature"] === undefined
        ? `${what} was changed.`
        : call === undefined
        ? "Corrupted thought signature."
        : "Function call is missing a thought_signature in functionCall parts, or it is a corrupted thought signature."
  }
}
