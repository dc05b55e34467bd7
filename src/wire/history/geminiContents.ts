/** Histories of Gemini: results are the only parts of the next content, as many as there are calls. */
import * as Dialect from "../Dialect.ts"
import { beginsWithUser, saidByModel } from "./anthropicMessages.ts"
import { checkedArguments } from "./arguments.ts"
import {
  type Form,
  isUnchanged,
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

type Entry = Record<string, unknown>

/** Which of the two spellings of a field a part has, the API's or the one of its protocol buffers. */
const keyOf = (value: Entry, camel: string, snake: string): string | undefined =>
  Dialect.isRecord(value[camel]) ? camel : Dialect.isRecord(value[snake]) ? snake : undefined

const callKey = (value: Entry) => keyOf(value, "functionCall", "function_call")

const resultKey = (value: Entry) => keyOf(value, "functionResponse", "function_response")

const read: Form["read"] = (entries, root, report) =>
  entries.flatMap((entry, index): Array<Message> => {
    const path = `${root}[${index}]`
    const given = Array.isArray(entry.parts) ? entry.parts : []
    const tidied = withoutFields(entry, (field) => ofCandidates.has(field), path, report)
    const parts = given.flatMap((value: unknown, at) => partOf(value, `${path}.parts[${at}]`, report))
    const said = entry.role == null
      ? parts.some((part) => part.kind === "call") ? "model" : "user"
      : entry.role === "assistant"
      ? "model"
      : entry.role
    const role = said === "model" ? "model" : said === "system" ? "other" : "user"
    if (said !== entry.role) {
      report(
        "role",
        "refused",
        path,
        entry.role == null ? "the content has no role" : 'the role of the model is called "assistant"',
        `it gets the role "${said}"`
      )
    }
    if (parts.length === 0) {
      if (given.length === 0) report("empty_message", "refused", path, "the content has no parts", "it is left out")
      return []
    }
    const named = said === entry.role ? tidied : { ...tidied, role: said }
    const source = parts.length === given.length ? named : { ...named, parts: parts.map((part) => part.value) }
    return [
      role === "model" ? message(role, path, source, parts) : saidByModel(source, "model", role, path, parts, report)
    ]
  })

/** What stands beside the content in a candidate. */
const ofCandidates = new Set([
  "finishReason",
  "finishMessage",
  "index",
  "safetyRatings",
  "citationMetadata",
  "groundingMetadata",
  "urlContextMetadata",
  "avgLogprobs",
  "logprobsResult",
  "tokenCount"
])

const partOf = (value: unknown, path: string, report: Report): Array<Part> => {
  if (!Dialect.isRecord(value)) return [part("other", path, value)]
  const call = callKey(value)
  if (call !== undefined) return [callPart(value, call, path, report)]
  const result = resultKey(value)
  if (result !== undefined) return [resultPart(value, result, path, report)]
  // A signature may stand on a part with no text.
  if (Object.keys(value).every((key) => key === "text") && stringOf(value.text) === "") {
    report("empty_part", "refused", path, "the part is empty", "it is left out")
    return []
  }
  return [part("other", path, value)]
}

const callPart = (value: Entry, key: string, path: string, report: Report): Part => {
  const call = value[key] as Entry
  const name = nameForm(stringOf(call.name))
  if (name !== call.name) {
    report(
      "name_form",
      "refused",
      path,
      `the function's name ${show(stringOf(call.name))} has a form that is refused`,
      `it is called ${name}`
    )
  }
  // No arguments at all are written by the model itself.
  const args = call.args == null ? call.args : checkedArguments(call.args, "object", name, path, report)
  const fitting = args === call.args && name === call.name
    ? value
    : { ...value, [key]: { ...call, name, ...(args === call.args ? undefined : { args }) } }
  return part("call", path, fitting, {
    came: value,
    id: stringOf(call.id),
    name,
    content: textOf(args ?? {}),
    arguments: call.args
  })
}

/** Names of functions begin with a letter or `_`, and may have dots and colons in them. */
const nameForm = (name: string): string => {
  const plain = name.replace(/[^a-zA-Z0-9_.:-]/g, "_").slice(0, 128) || "unnamed"
  return /^[a-zA-Z_]/.test(plain) ? plain : `_${plain}`.slice(0, 128)
}

const resultPart = (value: Entry, key: string, path: string, report: Report): Part => {
  const result = value[key] as Entry
  const { response } = result
  const fits = Dialect.isRecord(response)
  if (!fits) {
    report(
      "answer_form",
      "refused",
      path,
      "the response of a function has to be an object",
      'it is written as {"output": …}'
    )
  }
  const fitting = fits ? response : { output: response ?? null }
  return part("result", path, fits ? value : { ...value, [key]: { ...result, response: fitting } }, {
    came: value,
    id: stringOf(result.id),
    name: stringOf(result.name),
    content: textOf(fitting)
  })
}

const change = (value: unknown, key: string, fields: Entry): Entry => {
  const entry = value as Entry
  return { ...entry, [key]: { ...entry[key] as Entry, ...fields } }
}

const write: Form["write"] = (message) =>
  isUnchanged(message)
    ? message.source
    : { ...message.source as object, parts: message.parts.map((part) => part.value) }

const wrap = (parts: ReadonlyArray<Part>): Message => ({ ...message("user", "", { role: "user" }, parts), read: [] })

const words = (text: string) => ({ text })

const say = (text: string): Message => wrap([part("other", "", words(text))])

/** A turn with calls has to follow the user, or results: contents of the model before it are the beginning of the same turn. */
const mergeModels = (messages: ReadonlyArray<Message>, report: Report): Array<Message> => {
  const out: Array<Message> = []
  let begins = 0
  for (const message of messages) {
    if (out.at(-1)?.role !== "model") begins = out.length
    if (message.role !== "model" || begins === out.length || message.parts.every((part) => part.kind !== "call")) {
      out.push(message)
      continue
    }
    report(
      "model_twice",
      "refused",
      message.path,
      "calls of the model follow another content of the model",
      "they become one content"
    )
    const before = out.splice(begins)
    out.push({ ...before[0]!, parts: [...before, message].flatMap((one) => one.parts) })
  }
  return out
}

export const geminiContents: Form = {
  id: "gemini",
  name: "Gemini",
  results: "alone",
  ids: { max: Infinity, pattern: /^/, words: "", optional: true, unique: "message" },
  read,
  write,
  callWithId: ({ value }, id) => change(value, callKey(value as Entry)!, { id }),
  resultWithId: (value, id) => {
    const key = resultKey(value as Entry)!
    const { id: _, ...rest } = (value as Entry)[key] as Entry
    return { ...value as Entry, [key]: id === "" ? rest : { ...rest, id } }
  },
  fitResult: (result, call, report) => {
    if (result.name === call.name) return
    report(
      "result_name",
      "refused",
      result.path,
      `the result of ${labelOf(call)} is called ${show(result.name)}`,
      "it gets the name of its call"
    )
    result.value = change(result.value, resultKey(result.value as Entry)!, { name: call.name })
  },
  answer: (call, id, { isFailure, value }) => {
    const inCamel = callKey(call.value as Entry) === "functionCall"
    const response = isFailure ? { error: value } : { output: value }
    return {
      [inCamel ? "functionResponse" : "function_response"]: {
        ...(id === "" ? undefined : { id }),
        name: call.name,
        response
      }
    }
  },
  wrap,
  words,
  say,
  finish: (messages, report) => beginsWithUser(mergeModels(messages, report), say, report)
}
