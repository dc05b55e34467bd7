/** Histories of Chat Completions: results are messages of their own. */
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
  show,
  stringOf,
  textOf
} from "./view.ts"

const read: Form["read"] = (entries, root, report) =>
  entries.flatMap((entry, index) => {
    const path = `${root}[${index}]`
    if (entry.role === "assistant") return assistant(entry, path, report)
    if (entry.role === "tool") return tool(entry, path, report)
    if (entry.content === null) {
      report("empty_message", "refused", path, "the message has no content", "it is left out")
      return []
    }
    return [message(entry.role === "user" ? "user" : "other", path, entry, [])]
  })

const assistant = (entry: Record<string, unknown>, path: string, report: Report): Array<Message> => {
  const source = { ...entry }
  let tidied = false
  for (const field of ["tool_calls", "function_call", "audio"]) {
    const value = entry[field]
    if (field in entry && (value == null || (Array.isArray(value) && value.length === 0))) {
      delete source[field]
      tidied = true
      report("empty_part", "refused", `${path}.${field}`, `"${field}" is there and empty`, "it is left out")
    }
  }
  const calls = Array.isArray(source.tool_calls) ? source.tool_calls : []
  if (calls.length === 0 && isBlank(source)) {
    if (!tidied) report("empty_message", "refused", path, "the message has neither text nor calls", "it is left out")
    return []
  }
  return [message(
    "model",
    path,
    tidied ? source : entry,
    calls.map((call: unknown, index) => callPart(call, `${path}.tool_calls[${index}]`, report))
  )]
}

const isBlank = ({ audio, content, function_call, refusal }: Record<string, unknown>): boolean =>
  (content == null || (typeof content === "string" && content === "") ||
    (Array.isArray(content) && content.length === 0)) &&
  (refusal == null || refusal === "") && audio == null && function_call == null

const callPart = (call: unknown, path: string, report: Report): Part => {
  if (!Dialect.isRecord(call)) return part("other", path, call)
  const id = stringOf(call.id)
  if (call.type === "custom" && Dialect.isRecord(call.custom)) {
    const name = checkedName(stringOf(call.custom.name), path, 64, report)
    const value = name === call.custom.name ? call : { ...call, custom: { ...call.custom, name } }
    const input = call.custom.input
    return part("call", path, value, { came: call, id, name, content: textOf(input), arguments: input })
  }
  const isOfKind = call.type === "function" || call.type == null
  if (!isOfKind && !Dialect.isRecord(call.function)) return part("other", path, call)
  const given = Dialect.isRecord(call.function) ? call.function : {}
  const name = checkedName(stringOf(given.name), path, 64, report)
  const text = checkedArguments(given.arguments, "text", name, path, report)
  const isTidy = name === given.name && text === given.arguments && call.type === "function"
  if (call.type !== "function") {
    const problem = isOfKind ? 'has no "type"' : 'has a "type" of which no call is'
    report("field_missing", "refused", path, `the call of ${name} ${problem}`, 'it gets the type "function"')
  }
  const value = isTidy ? call : { ...call, type: "function", function: { ...given, name, arguments: text } }
  return part("call", path, value, {
    came: call,
    id,
    name,
    content: textOf(Dialect.argumentsOf({ id, name, arguments: text })),
    arguments: given.arguments
  })
}

const tool = (entry: Record<string, unknown>, path: string, report: Report): Array<Message> => {
  const given = entry.content
  const rest = Array.isArray(given) ? given.filter((one: unknown) => !isType(one, "text")) : []
  const texts = Array.isArray(given) ? given.filter((one: unknown) => isText(one)) : []
  const content = Array.isArray(given) && texts.length < given.length ? texts : given
  const fitting = answerText(content, rest.length)
  if (fitting !== given) {
    report(
      "answer_form",
      "refused",
      path,
      "the content of a result has to be text that is not blank, or a list of such texts",
      rest.length > 0
        ? "what is no text goes into a message of the user behind it"
        : content === fitting
        ? "blank texts are left out"
        : "it is written as JSON text"
    )
  }
  const value = fitting === given ? entry : { ...entry, content: fitting }
  const id = stringOf(entry.tool_call_id)
  const one = part("result", path, value, {
    came: entry,
    id,
    name: stringOf(entry.name),
    content: typeof fitting === "string" ? fitting : jsonOf(fitting)
  })
  const result = message("user", path, entry, [one])
  if (rest.length === 0) return [result]
  const told = { type: "text", text: `What belongs to the result of ${show(id)}:` }
  return [result, { ...message("user", path, { role: "user", content: [told, ...rest] }, []), late: true }]
}

const isType = (value: unknown, type: string): value is Record<string, unknown> =>
  Dialect.isRecord(value) && value.type === type

const isText = (value: unknown): boolean => isType(value, "text") && stringOf(value.text).trim() !== ""

const answerText = (content: unknown, moved: number): unknown =>
  (typeof content === "string" && content.trim() !== "") || (Array.isArray(content) && content.length > 0)
    ? content
    : moved > 0
    ? "The result is in the message of the user behind it."
    : jsonOf(content)

const write: Form["write"] = (message) => {
  if (isUnchanged(message)) return message.source
  const source = message.source as Record<string, unknown>
  if (message.role !== "model") return message.parts[0]!.value
  return { ...source, tool_calls: message.parts.map((part) => part.value) }
}

const wrap = (results: ReadonlyArray<Part>): Message => message("user", "", results[0]!.value, results)

const words = (text: string) => ({ role: "user", content: text })

export const openAiChat: Form = {
  id: "chat",
  name: "OpenAI Chat Completions",
  results: "apart",
  ids: { max: 40, pattern: /^/, words: "at most 40 characters", optional: false, unique: "message" },
  read,
  write,
  callWithId: (call, id) => ({ ...call.value as object, id }),
  resultWithId: (value, id) => ({ ...value as object, tool_call_id: id }),
  answer: (_, id, { text }) => ({ role: "tool", tool_call_id: id, content: text }),
  wrap,
  words,
  say: (text) => message("user", "", words(text), [])
}
