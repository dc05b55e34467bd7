/** Histories of Anthropic's Messages: results are the first blocks of the next message of the user. */
import * as Dialect from "../Dialect.ts"
import { checkedArguments } from "./arguments.ts"
import {
  checkedName,
  type Form,
  isUnchanged,
  jsonOf,
  type Message,
  message,
  type Part,
  part,
  type Report,
  stringOf,
  textOf,
  withoutFields,
  withParts
} from "./view.ts"

type Entry = Record<string, unknown>

const read: Form["read"] = (entries, root, report) => {
  const servers = serverCalls(entries)
  return entries.flatMap((given, index): Array<Message> => {
    const path = `${root}[${index}]`
    const entry = withoutFields(given, (field) => ofResponses.has(field), path, report)
    const role = entry.role === "assistant" ? "model" : entry.role === "user" ? "user" : "other"
    // The last message of the assistant may be empty: the model goes on with it.
    const mayBeEmpty = role === "model" && index === entries.length - 1
    const { content } = entry
    if (!Array.isArray(content)) {
      if (mayBeEmpty || !isBlank(content)) {
        return [message(role, path, entry, content == null ? [] : [part("other", path, textBlock(content))])]
      }
      report("empty_message", "refused", path, "the message is empty", "it is left out")
      return []
    }
    const read = content.flatMap((block: unknown, at) => blockParts(block, `${path}.content[${at}]`, servers, report))
    if (read.length > 0 || (content.length === 0 && mayBeEmpty)) {
      const source = read.length === content.length ? entry : { ...entry, content: read.map((part) => part.value) }
      return [
        role === "model"
          ? message(role, path, source, read)
          : saidByModel(source, "assistant", role, path, read, report)
      ]
    }
    if (content.length === 0) report("empty_message", "refused", path, "the message is empty", "it is left out")
    return []
  })
}

/** What a response has beside the message in it. */
const ofResponses = new Set([
  "id",
  "type",
  "model",
  "stop_reason",
  "stop_sequence",
  "stop_details",
  "usage",
  "container",
  "context_management"
])

/** Thinking leads to something, so a message that was cut off in it, or lost what it led to, is refused. */
const withoutLastThinking = (messages: ReadonlyArray<Message>, report: Report): Array<Message> =>
  messages.flatMap((message) => {
    const end = message.role === "model" ? message.parts.findLastIndex((part) => !isThinking(part.value)) + 1 : Infinity
    for (const part of message.parts.slice(end)) {
      report("lone_reasoning", "refused", part.path, "the message ends with thinking", "it is left out")
    }
    if (message.parts.length <= end) return [message]
    return end === 0 ? [] : [withParts(message, message.parts.slice(0, end))]
  })

const isThinking = (block: unknown): boolean =>
  Dialect.isRecord(block) && (block.type === "thinking" || block.type === "redacted_thinking")

/** Calls are the model's, so a message that has some is. */
export const saidByModel = (
  source: Entry,
  name: string,
  role: Message["role"],
  path: string,
  parts: ReadonlyArray<Part>,
  report: Report
): Message => {
  if (parts.every((part) => part.kind !== "call")) return message(role, path, source, parts)
  report("call_of_user", "refused", path, "a message that is not the model's has calls", "it becomes the model's")
  return message("model", path, { ...source, role: name }, parts)
}

const textBlock = (text: unknown) => ({ type: "text", text })

const isBlank = (text: unknown): boolean => text == null || (typeof text === "string" && text.trim() === "")

/** What the provider itself called, and answered: by ids. */
interface Servers {
  readonly unresolved: ReadonlySet<unknown>
  readonly orphans: ReadonlySet<unknown>
}

/** Calls of the provider's own tools have their results behind them, in the same message of the assistant or in a later one. */
const serverCalls = (entries: ReadonlyArray<Entry>): Servers => {
  const calls = new Map<unknown, object>()
  const answered = new Set<unknown>()
  const orphans = new Set<unknown>()
  // The model goes on with calls of its last message, if nothing but results came after it.
  const last = entries.findLast((entry) => !holdsResultsAlone(entry))
  const paused = new Set<unknown>()
  for (const entry of entries) {
    for (const block of Array.isArray(entry.content) ? entry.content : []) {
      if (isServerCall(block)) {
        calls.set(block, block)
        calls.set(block.id, block)
        if (entry === last) paused.add(block)
      } else if (isServerResult(block)) {
        const call = calls.get(block.tool_use_id)
        if (call === undefined || answered.has(call)) orphans.add(block)
        else answered.add(call)
      }
    }
  }
  const unresolved = new Set(
    [...calls].filter(([key, call]) => key === call && !answered.has(call) && !paused.has(call)).map(([, call]) => call)
  )
  return { unresolved, orphans }
}

/** Also when it is mended: what is no text in an error, and a second answer of a call, become blocks of their own. */
const holdsResultsAlone = ({ content }: Entry): boolean =>
  Array.isArray(content) &&
  content.every((block: unknown) =>
    Dialect.isRecord(block) && block.type === "tool_result" && movedOf(block).length === 0
  ) &&
  new Set(content.map((block: Entry) => block.tool_use_id)).size === content.length

/** What may not stand in a result that is an error. */
const movedOf = ({ content, is_error }: Entry): ReadonlyArray<unknown> =>
  is_error === true && Array.isArray(content)
    ? content.filter((one: unknown) => Dialect.isRecord(one) && one.type !== "text")
    : []

const isServerCall = (block: unknown): block is Entry =>
  Dialect.isRecord(block) && (block.type === "server_tool_use" || block.type === "mcp_tool_use")

const isServerResult = (block: unknown): block is Entry =>
  Dialect.isRecord(block) && /._tool_result$/.test(stringOf(block.type))

const blockParts = (block: unknown, path: string, servers: Servers, report: Report): Array<Part> => {
  if (!Dialect.isRecord(block)) return [part("other", path, block)]
  if (block.type === "text" && isBlank(block.text)) {
    report("empty_part", "refused", path, "the text is blank", "it is left out")
    return []
  }
  if (block.type === "thinking" && stringOf(block.signature) === "") {
    report("unsigned_thinking", "refused", path, "the thinking has no signature", "it is left out")
    return []
  }
  if (servers.unresolved.has(block)) {
    report(
      "unresolved_server_call",
      "refused",
      path,
      `${stringOf(block.name)}, a call of the provider's own tool, has no result`,
      "it is left out"
    )
    return []
  }
  if (servers.orphans.has(block)) {
    report(
      "server_result_without_call",
      "refused",
      path,
      `the ${stringOf(block.type)} has no call of the provider before it, or answers it again`,
      "it is left out"
    )
    return []
  }
  if (block.type === "tool_use") return [call(block, path, report)]
  if (block.type === "tool_result") return result(block, path, report)
  // The SDK adds what it has parsed.
  const kept = withoutFields(block, (field) => field === "parsed_output", path, report)
  return [part("other", path, kept, { came: block })]
}

const call = (block: Entry, path: string, report: Report): Part => {
  const name = checkedName(stringOf(block.name), path, 128, report)
  const input = checkedArguments(block.input, "object", name, path, report)
  const value = name === block.name && input === block.input ? block : { ...block, name, input }
  return part("call", path, value, {
    came: block,
    id: stringOf(block.id),
    name,
    content: textOf(input),
    arguments: block.input
  })
}

const result = (block: Entry, path: string, report: Report): Array<Part> => {
  const { content } = block
  let fitting = content
  let moved: ReadonlyArray<unknown> = []
  if (Array.isArray(content)) {
    const kept = content.filter((one: unknown) => !(Dialect.isRecord(one) && one.type === "text" && isBlank(one.text)))
    if (kept.length < content.length) {
      fitting = kept
      report("empty_part", "refused", path, "a text in the result is blank", "it is left out")
    }
    moved = movedOf(block)
    if (moved.length > 0) {
      const texts = kept.filter((one: unknown) => !moved.includes(one))
      fitting = texts.length > 0 ? texts : "The result is behind all results."
      report(
        "answer_form",
        "refused",
        path,
        "a result that is an error may have text alone",
        "what is no text is moved behind the results"
      )
    }
  } else if (content != null && typeof content !== "string") {
    fitting = jsonOf(content)
    report("answer_form", "refused", path, "a result has to be text or a list of blocks", "it is written as JSON text")
  }
  const one = part("result", path, fitting === content ? block : { ...block, content: fitting }, {
    came: block,
    id: stringOf(block.tool_use_id),
    content: typeof fitting === "string" ? fitting : textOf(fitting ?? "")
  })
  return [one, ...moved.map((value): Part => ({ ...part("other", path, value), late: true }))]
}

const write: Form["write"] = (message) =>
  isUnchanged(message)
    ? message.source
    : { ...message.source as object, content: message.parts.map((part) => part.value) }

const say = (text: string): Message => {
  const one = part("other", "", textBlock(text))
  return message("user", "", { role: "user", content: text }, [one])
}

export const anthropicMessages: Form = {
  id: "anthropic",
  name: "Anthropic Messages",
  results: "together",
  ids: {
    max: Infinity,
    pattern: /^[a-zA-Z0-9_-]+$/,
    words: "letters, digits, _ and -",
    optional: false,
    unique: "history"
  },
  read,
  write,
  callWithId: (call, id) => ({ ...call.value as object, id }),
  resultWithId: (value, id) => ({ ...value as object, tool_use_id: id }),
  answer: (_, id, { isFailure, text }) => ({
    type: "tool_result",
    tool_use_id: id,
    content: text,
    ...(isFailure ? { is_error: true } : undefined)
  }),
  wrap: (parts) => ({ ...message("user", "", { role: "user" }, parts), read: [] }),
  words: textBlock,
  say,
  finish: (messages, report) => beginsWithUser(withoutLastThinking(messages, report), say, report)
}

/** A history that was cut at its beginning may begin with the model, which is refused. */
export const beginsWithUser = (
  messages: ReadonlyArray<Message>,
  say: Form["say"],
  report: Report
): ReadonlyArray<Message> => {
  const at = messages.findIndex((message) => message.role !== "other")
  const first = messages[at]
  if (first?.role !== "model") return messages
  report(
    "begins_with_model",
    "refused",
    first.path,
    "the history begins with the model",
    "a message of the user goes before it, which says that the beginning is missing"
  )
  return messages.toSpliced(at, 0, say("(The beginning of this conversation is not available any more.)"))
}
