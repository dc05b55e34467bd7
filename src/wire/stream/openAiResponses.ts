/**
 * Streams of OpenAI's Responses. An item is complete at its `response.output_item.done`, the response with the event that holds it as a
 * whole: then that counts, unless it lacks what was handed over before.
 *
 * Of a response that broke off are kept: its complete items, messages as far as they came, and calls with what came of their input.
 * Not kept is what the API takes only whole: reasoning without the item that it led to, and tools that the provider runs and has not
 * answered.
 */
import * as Result from "effect/Result"
import * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import { broke, endedWell, type Fields, isIndex, noEvent, over, Parts, text } from "./parts.ts"

const name = "OpenAI Responses"

interface Item {
  fields: Fields
  done: boolean
}

/** Where in an item the text of a delta belongs: a field, or a part of a list by the index that the event names. */
type Place = { readonly field: string } | {
  readonly list: string
  readonly index: string
  readonly type: string
  readonly field: string
}

const places: Record<string, Place> = {
  function_call_arguments: { field: "arguments" },
  mcp_call_arguments: { field: "arguments" },
  custom_tool_call_input: { field: "input" },
  code_interpreter_call_code: { field: "code" },
  output_text: { list: "content", index: "content_index", type: "output_text", field: "text" },
  refusal: { list: "content", index: "content_index", type: "refusal", field: "refusal" },
  reasoning_text: { list: "content", index: "content_index", type: "reasoning_text", field: "text" },
  reasoning_summary_text: { list: "summary", index: "summary_index", type: "summary_text", field: "text" }
}

const lists: Record<string, { readonly list: string; readonly index: string }> = {
  content_part: { list: "content", index: "content_index" },
  reasoning_summary_part: { list: "summary", index: "summary_index" }
}

export const assembly = (): Dialect.Assembly => {
  let envelope: Fields = {}
  let whole: Fields | undefined
  const items = new Parts<Item>()
  const given: Array<Fields> = []

  const response = (output: ReadonlyArray<unknown>): Fields => ({ object: "response", ...envelope, output })

  const complete = (items: ReadonlyArray<Item>): unknown => {
    if (items.length === 0) return undefined
    const fresh = items.map(({ fields }) => fields)
    given.push(...fresh)
    const calls = fresh.filter(isCall)
    return calls.length === 0 ? undefined : calls
  }

  const itemAt = (event: Fields): Result.Result<Item, TurnError.TurnError> => {
    const item = isIndex(event.output_index) ? items.get(event.output_index) : undefined
    return item === undefined
      ? Dialect.refuse(
        name,
        "output_index",
        "the index of an output item that was added",
        TurnError.show(event.output_index)
      )
      : Result.succeed(item)
  }

  const pushItem = (event: Fields, done: boolean): Result.Result<unknown, TurnError.TurnError> => {
    const { item, output_index } = event
    if (!isIndex(output_index)) {
      return Dialect.refuse(name, "output_index", "a whole number from 0", TurnError.show(output_index))
    }
    if (!Dialect.isRecord(item)) return Dialect.refuse(name, "item", "an output item", TurnError.show(item))
    const known = items.get(output_index)
    if (!done && known !== undefined) {
      return Dialect.refuse(name, "output_index", "the index of a new output item", TurnError.show(output_index))
    }
    // Said again, it changes nothing.
    if (known?.done !== true) items.set(output_index, { fields: item, done })
    return Result.succeed(complete(items.take()))
  }

  /** `response.X.delta` and `response.X.done`. */
  const pushText = (event: Fields, place: Place, done: boolean): Result.Result<undefined, TurnError.TurnError> =>
    Result.map(itemAt(event), (item) => {
      if (item.done) return undefined
      const put = (fields: Fields): Fields => ({
        ...fields,
        [place.field]: done
          ? event[place.field] ?? fields[place.field]
          : text(fields[place.field]) + text(event.delta)
      })
      item.fields = "list" in place
        ? putPart(item.fields, place.list, event[place.index], (part) => put(part ?? { type: place.type }))
        : put(item.fields)
      return undefined
    })

  const end = (event: Fields): Result.Result<unknown, TurnError.TurnError> => {
    if (!Dialect.isRecord(event.response)) {
      return Dialect.refuse(name, "response", "the response", TurnError.show(event.response))
    }
    envelope = over(envelope, event.response)
    const output = Array.isArray(event.response.output) ? event.response.output : []
    whole = given.every((item, at) => sameCall(item, output[at])) && output.length >= items.all().length
      ? event.response
      : response(items.all().map(({ fields }) => fields))
    const fresh = (whole.output as ReadonlyArray<unknown>).slice(given.length)
    return Result.succeed(fresh.length === 0 ? undefined : { ...whole, output: fresh })
  }

  return {
    push: (event) => {
      if (!Dialect.isRecord(event)) return noEvent(name, event)
      const type = text(event.type)
      switch (type) {
        case "response.created":
        case "response.queued":
        case "response.in_progress":
          if (Dialect.isRecord(event.response)) envelope = over(envelope, event.response)
          return Result.succeed(undefined)
        case "response.output_item.added":
          return pushItem(event, false)
        case "response.output_item.done":
          return pushItem(event, true)
        case "response.completed":
        case "response.incomplete":
          return whole === undefined ? end(event) : Result.succeed(undefined)
        case "response.failed":
          return broke(name, Dialect.isRecord(event.response) ? event.response.error : undefined)
        case "error":
          return broke(name, event.error ?? event)
      }
      if (type === "" && event.error != null) return broke(name, event.error)
      const [, what = "", step] = /^response\.(\w+)\.(delta|done|added)$/.exec(type) ?? []
      if (Object.hasOwn(places, what) && step !== "added") return pushText(event, places[what]!, step === "done")
      if (Object.hasOwn(lists, what) && Dialect.isRecord(event.part)) {
        const { index, list } = lists[what]!
        const { part } = event
        return Result.map(itemAt(event), (item) => {
          if (!item.done) item.fields = putPart(item.fields, list, event[index], () => part)
          return undefined
        })
      }
      return Result.succeed(undefined)
    },
    response: () => whole ?? response(kept(items.all())),
    isOver: () => whole !== undefined
  }
}

/** A call that the client answers. */
const isCall = ({ type }: Fields): boolean => type === "function_call" || type === "custom_tool_call"

/** Whether the item of the whole response is the one that was handed over, as far as a call goes. */
const sameCall = (item: Fields, other: unknown): boolean =>
  Dialect.isRecord(other) &&
  ["type", "call_id", "name", "arguments", "input"].every((field) => item[field] === other[field])

const putPart = (fields: Fields, list: string, index: unknown, put: (part: Fields | undefined) => Fields): Fields => {
  const parts: ReadonlyArray<unknown> = Array.isArray(fields[list]) ? fields[list] : []
  // A gap stands for a part that never came.
  const at = isIndex(index) && index < parts.length ? index : parts.length
  const part = parts[at]
  return { ...fields, [list]: parts.toSpliced(at, 1, put(Dialect.isRecord(part) ? part : undefined)) }
}

const kept = (items: ReadonlyArray<Item>): ReadonlyArray<Fields> => {
  const left = items.flatMap(({ done, fields }) => {
    if (done) return [fields]
    const status = fields.status === undefined ? undefined : { status: "incomplete" }
    if (isCall(fields)) return text(fields.name) === "" ? [] : [{ ...fields, ...status }]
    const content = (Array.isArray(fields.content) ? fields.content : []).filter(Dialect.isRecord).map(endedWell)
      .filter((part) => (part.text ?? part.refusal ?? "") !== "")
    return fields.type === "message" && content.length > 0 ? [{ ...fields, ...status, content }] : []
  })
  return left.slice(0, left.findLastIndex(({ type }) => type !== "reasoning") + 1)
}
