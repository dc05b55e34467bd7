/** Histories: the message that is to be run is the last, where that is the model's. */
import { isRecord } from "../wire/Dialect.ts"

/** What the end of a history is: a message of the model, or something that has nothing to run. */
export type End =
  | { readonly _tag: "Message"; readonly message: unknown; readonly of: number }
  | { readonly _tag: "Other"; readonly what: string; readonly of: number }

/** The end of a history; `undefined` where the value is none: one message, or the list of items that a response is. */
export const endOf = (value: unknown): End | undefined => {
  const list = listIn(value)
  if (list === undefined || !list.some((one) => isRecord(one) && (typeof one.role === "string" || isItem(one)))) {
    return undefined
  }
  const last = list.at(-1)
  if (!list.some(isItem)) {
    return isRecord(last) && (last.role === "assistant" || last.role === "model")
      ? { _tag: "Message", message: last, of: list.length }
      : { _tag: "Other", what: nameOf(last), of: list.length }
  }
  // Responses: what the model said last are the items behind the last one that is not its own.
  const from = list.findLastIndex((one) => !isOfModel(one)) + 1
  if (from === 0 && Array.isArray(value)) return undefined
  return from === list.length
    ? { _tag: "Other", what: nameOf(last), of: list.length }
    : { _tag: "Message", message: list.slice(from), of: list.length }
}

/** The messages of a request body, or of a bare list. */
const listIn = (value: unknown): ReadonlyArray<unknown> | undefined => {
  if (Array.isArray(value)) return value
  if (!isRecord(value) || ["choices", "output", "candidates", "calls", "role"].some((name) => name in value)) {
    return undefined
  }
  return [value.messages, value.contents, value.input].find((list) => Array.isArray(list))
}

/** An item that only Responses has. */
const isItem = (one: unknown): boolean =>
  isRecord(one) && typeof one.type === "string" && /^reasoning$|_call(_output)?$/.test(one.type)

const isOfModel = (one: unknown): boolean =>
  isRecord(one) &&
  (typeof one.role === "string"
    ? one.role === "assistant"
    : typeof one.type === "string" && !/_output$|_response$/.test(one.type))

const nameOf = (one: unknown): string =>
  !isRecord(one)
    ? "no message"
    : typeof one.role === "string"
    ? `a message of the role "${one.role}"`
    : `an item of the type "${String(one.type)}"`
