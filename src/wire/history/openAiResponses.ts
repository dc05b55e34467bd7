/** Histories of Responses: items, of which each stands for itself. Results are anywhere behind their calls. */
import * as Dialect from "../Dialect.ts"
import { checkedArguments } from "./arguments.ts"
import {
  checkedName,
  type Form,
  isUnchanged,
  jsonOf,
  labelOf,
  type Message,
  message,
  type Part,
  part,
  type Report,
  show,
  stringOf,
  textOf,
  withoutFields
} from "./view.ts"

type Item = Record<string, unknown>

/** Calls that the client answers, with the kind of their answers. */
const kinds = new Map([
  ["function_call", "function_call_output"],
  ["custom_tool_call", "custom_tool_call_output"],
  ["computer_call", "computer_call_output"],
  ["shell_call", "shell_call_output"],
  ["apply_patch_call", "apply_patch_call_output"]
])

const outputs = new Set(kinds.values())

const takesText = (type: unknown): boolean => type === "function_call" || type === "custom_tool_call"

const read: Form["read"] = (entries, root, report) =>
  withoutRepeats(entries, root, report).flatMap(({ came, item, path }): Array<Message> => {
    const type = stringOf(item.type)
    const one = kinds.has(type)
      ? call(item, came, type, path, report)
      : outputs.has(type)
      ? result(item, came, path, report)
      : part("other", path, item, { came })
    const role = item.role === "user"
      ? "user"
      : typeof item.role === "string" && item.role !== "assistant"
      ? "other"
      : one.kind === "result" || /_(output|response)$/.test(type)
      ? "user"
      : "model"
    return [message(role, path, came, [one])]
  })

/** What the ids of items begin with that may go without one. */
const begins = new Map([
  ["message", "msg"],
  ["function_call", "fc"],
  ["function_call_output", "fc"],
  ["custom_tool_call", "ctc"],
  ["custom_tool_call_output", "ctc"]
])

/** An item without the fields that responses have, or the SDK adds, and requests may not have. */
const requestable = (item: Item, path: string, report: Report): Item => {
  const start = begins.get(stringOf(item.type))
  const kept = withoutFields(
    item,
    (field, value) =>
      field === "created_by" || field === "parsed_arguments" ||
      ((field === "id" || field === "status") && value === null) ||
      (field === "status" && item.type === "reasoning") ||
      (field === "id" && start !== undefined && !stringOf(value).startsWith(start)),
    path,
    report
  )
  if (kept.type !== "message" || !Array.isArray(kept.content)) return kept
  let changed = false
  const content = kept.content.map((one: unknown, at) => {
    if (!Dialect.isRecord(one)) return one
    const plain = withoutFields(one, (field) => field === "parsed", `${path}.content[${at}]`, report)
    changed ||= plain !== one
    return plain
  })
  return changed ? { ...kept, content } : kept
}

/** The same item twice is refused, by its id. */
const withoutRepeats = (entries: ReadonlyArray<Item>, root: string, report: Report) => {
  const seen = new Map<string, string>()
  return entries.flatMap((came, index) => {
    const path = `${root}[${index}]`
    const given = requestable(came, path, report)
    const id = given.type === "item_reference" ? "" : stringOf(given.id)
    if (id === "") return [{ item: given, came, path }]
    const before = seen.get(id)
    const text = textOf(given)
    seen.set(id, before ?? text)
    if (before === undefined) return [{ item: given, came, path }]
    const same = before === text
    report(
      "repeated_item",
      "refused",
      path,
      `an item with the id ${show(id)} stands in the history already`,
      same ? "it is left out" : "its id is left out"
    )
    const { id: _, ...item } = given
    return same ? [] : [{ item, came, path }]
  })
}

const call = (item: Item, came: Item, type: string, path: string, report: Report): Part => {
  const id = stringOf(item.call_id)
  if (!takesText(type)) {
    return { ...part("call", path, item, { came, id, name: type, content: textOf(item) }), unanswerable: true }
  }
  const name = checkedName(stringOf(item.name), path, 128, report)
  const field = type === "function_call" ? "arguments" : "input"
  const given = item[field]
  const text = field === "arguments" ? checkedArguments(given, "text", name, path, report) : given
  const value = name === item.name && text === given ? item : { ...item, name, [field]: text }
  return part("call", path, value, { came, id, name, content: textOf(text), arguments: given })
}

const result = (item: Item, came: Item, path: string, report: Report): Part => {
  const output = Array.isArray(item.output) ? item.output.map(inputPart) : item.output
  const renamed = Array.isArray(output) && output.some((one, at) => one !== (item.output as Array<unknown>)[at])
  const fits = item.type === "function_call_output" || item.type === "custom_tool_call_output"
    ? typeof output === "string" || (Array.isArray(output) && output.length > 0)
    : true
  if (!fits || renamed) {
    report(
      "answer_form",
      "refused",
      path,
      renamed ? "the texts of an output have another type" : "an output has to be text or a list of parts",
      renamed ? 'they get the type "input_text"' : "it is written as JSON text"
    )
  }
  const value = fits ? renamed ? { ...item, output } : item : { ...item, output: jsonOf(output) }
  return part("result", path, value, {
    came,
    id: stringOf(item.call_id),
    content: typeof output === "string" ? output : textOf(output ?? null)
  })
}

/** Texts that are written as in other places of the API, or in another one. */
const inputPart = (one: unknown): unknown =>
  Dialect.isRecord(one) && (one.type === "output_text" || one.type === "text") && typeof one.text === "string"
    ? { type: "input_text", text: one.text }
    : one

const wrap = ([one]: ReadonlyArray<Part>): Message => ({ ...message("user", "", {}, [one!]), read: [] })

const words = (text: string) => ({ role: "user", content: text })

/** Reasoning belongs to the item of the model behind it, without which it is refused. */
const withoutLoneReasoning = (messages: ReadonlyArray<Message>, report: Report): Array<Message> => {
  const out: Array<Message> = []
  for (const message of messages.toReversed()) {
    const item = message.parts[0]!.value as Item
    if (item.type !== "reasoning" || out.at(-1)?.role === "model") {
      out.push(message)
      continue
    }
    report(
      "lone_reasoning",
      "refused",
      message.path,
      "the reasoning has no item of the model behind it",
      "it is left out"
    )
  }
  return out.toReversed()
}

export const openAiResponses: Form = {
  id: "responses",
  name: "OpenAI Responses",
  results: "behind",
  ids: { max: 64, pattern: /^/, words: "at most 64 characters", optional: false, unique: "history" },
  read,
  write: (message) => isUnchanged(message) ? message.source : message.parts[0]!.value,
  callWithId: (call, id) => ({ ...call.value as object, call_id: id }),
  resultWithId: (value, id) => ({ ...value as object, call_id: id }),
  fitResult: (result, call, report) => {
    const item = result.value as Item
    const wanted = kinds.get(stringOf((call.value as Item).type))
    if (item.type === wanted) return
    report(
      "result_kind",
      "refused",
      result.path,
      `the result of ${labelOf(call)} is a ${stringOf(item.type)}`,
      `it becomes a ${wanted}`
    )
    result.value = { ...item, type: wanted }
  },
  answer: (call, id, { text }) => ({
    type: kinds.get(stringOf((call.value as Item).type)),
    call_id: id,
    output: text
  }),
  wrap,
  words,
  say: (text) => wrap([part("other", "", words(text))]),
  finish: withoutLoneReasoning
}
