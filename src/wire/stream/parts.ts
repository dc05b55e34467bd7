/** What the streams of all providers are made of: parts by index, and deltas. */
import type * as Result from "effect/Result"
import * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"

export type Fields = Readonly<Record<string, unknown>>

/**
 * The parts of a response by the index that the provider gives each. They may come interleaved, and are handed over in order:
 * one that is done before an earlier one waits for it.
 */
export class Parts<Part extends { done: boolean }> {
  private readonly at = new Map<number, Part>()
  private next = 0

  get(index: number): Part | undefined {
    return this.at.get(index)
  }

  set(index: number, part: Part): Part {
    this.at.set(index, part)
    return part
  }

  all(): Array<Part> {
    return [...this.at].sort(([a], [b]) => a - b).map(([, part]) => part)
  }

  /** Those that are done and were not taken. */
  take(): Array<Part> {
    const taken: Array<Part> = []
    for (let part = this.at.get(this.next); part?.done === true; part = this.at.get(++this.next)) taken.push(part)
    return taken
  }

  /** Those that were not taken: the response is over, and what has no part at its index will have none. */
  rest(): Array<Part> {
    const rest = [...this.at].filter(([index]) => index >= this.next).sort(([a], [b]) => a - b)
    this.next = Infinity
    return rest.map(([, part]) => part)
  }
}

/** Strings that stand for themselves in a delta, and are no pieces of a text. */
const whole = new Set([
  "role",
  "id",
  "type",
  "index",
  "name",
  "format",
  "model",
  "object",
  "status",
  "signature",
  "thought_signature"
])

/** Adds a delta to what came before: texts and lists go on, null changes nothing, of anything else the last one counts. */
export const add = (before: unknown, delta: unknown, key = ""): unknown => {
  if (delta == null) return before === undefined ? delta : before
  if (typeof before === "string" && typeof delta === "string") {
    return whole.has(key) ? delta === "" ? before : delta : before + delta
  }
  if (Dialect.isRecord(before) && Dialect.isRecord(delta)) return addFields(before, delta)
  if (Array.isArray(before) && Array.isArray(delta)) return addItems(before, delta)
  return delta
}

export const addFields = (before: Fields, delta: Fields): Fields => ({
  ...before,
  ...Object.fromEntries(
    Object.entries(delta).map((
      [key, value]
    ) => [key, add(Object.hasOwn(before, key) ? before[key] : undefined, value, key)])
  )
})

/** Lists that were made here, and grow in their place: a copy for each token would take time by the square. */
const grown = new WeakSet<object>()

/** An item with an index belongs to the one with the same index. */
const addItems = (before: Array<unknown>, news: ReadonlyArray<unknown>): ReadonlyArray<unknown> => {
  const items = grown.has(before) ? before : [...before]
  grown.add(items)
  for (const item of news) {
    const at = Dialect.isRecord(item) && typeof item.index === "number"
      ? items.findIndex((one) =>
        Dialect.isRecord(one) && one.index === item.index && (item.type == null || item.type === one.type)
      )
      : -1
    if (at === -1) items.push(item)
    else items[at] = add(items[at], item)
  }
  return items
}

/** Puts fields over others: the last one counts, but null is no news. */
export const over = (before: Fields, news: Fields): Fields => ({
  ...before,
  ...Object.fromEntries(
    Object.entries(news).filter(([key, value]) => value != null || !Object.hasOwn(before, key))
  )
})

export const without = (fields: Fields, ...names: ReadonlyArray<string>): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)))

/** Texts that were cut off do not end in half a character: no provider takes a body with one. */
export const endedWell = (fields: Fields): Fields =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      typeof value === "string" ? value.replace(/[\ud800-\udbff]$/, "") : value
    ])
  )

export const text = (value: unknown): string => typeof value === "string" ? value : ""

export const isIndex = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0

/** The provider broke the response off with an error of its own. */
export const broke = (dialect: string, error: unknown): Result.Result<never, TurnError.TurnError> => {
  const { code, message, status, type } = Dialect.isRecord(error) ? error : { message: error }
  const kind = [type, code, status].find((one) =>
    (typeof one === "string" && one !== "error") || typeof one === "number"
  )
  const what = typeof message === "string" && message !== ""
    ? JSON.stringify(message.slice(0, 500))
    : TurnError.show(error)
  return Dialect.refuse(
    dialect,
    "error",
    "the rest of the response",
    `the provider's error ${what}${kind === undefined ? "" : ` (${kind})`}`
  )
}

export const noEvent = (dialect: string, event: unknown): Result.Result<never, TurnError.TurnError> =>
  Dialect.refuse(
    dialect,
    "",
    "an event of a stream, parsed from JSON",
    typeof event === "string" ? "text (read it with EventStream)" : TurnError.show(event)
  )
