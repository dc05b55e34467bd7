/** Texts: of keys, so that equal ones can be found, and of what is told about them. */
import * as TurnError from "../../TurnError.ts"

/** The text of a key: a text is itself, anything else its JSON with sorted members. What JSON cannot hold is refused. */
export const keyText = (key: unknown): string => {
  if (typeof key === "string") return key
  const text = json(key, 100)
  if (text !== undefined) return text
  throw TurnError.make(
    new TurnError.InvalidInput({
      what: "the key of a coalescer",
      expected: "a text, or a value that JSON holds whole (give `keyText` for any other)",
      received: TurnError.show(key)
    })
  )
}

const json = (value: unknown, depth: number): string | undefined => {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value)
    case "number":
      return Number.isFinite(value) ? String(value === 0 ? 0 : value) : undefined
    case "boolean":
      return String(value)
    case "object":
      break
    default:
      return undefined
  }
  if (value === null) return "null"
  if (depth === 0) return undefined
  if (Array.isArray(value)) {
    const items = value.map((item) => json(item, depth - 1))
    return items.includes(undefined) ? undefined : `[${items.join(",")}]`
  }
  const names = Object.keys(value).sort()
  const proto: unknown = Object.getPrototypeOf(value)
  // A Map, a Date, a URL: what makes it equal to another is not among its members.
  if (names.length === 0 && proto !== Object.prototype && proto !== null) return undefined
  const members: Array<string> = []
  for (const name of names) {
    const member = (value as Record<string, unknown>)[name]
    if (member === undefined) continue
    const text = json(member, depth - 1)
    if (text === undefined) return undefined
    members.push(`${JSON.stringify(name)}:${text}`)
  }
  return `{${members.join(",")}}`
}

/** A few words for whatever was thrown: never empty, and making them never throws. */
export const wordsOf = (thrown: unknown): string => {
  try {
    const { message, name } = (thrown ?? {}) as { readonly message?: unknown; readonly name?: unknown }
    if (typeof message === "string" && message !== "") return short(message)
    if (thrown instanceof Error) return typeof name === "string" && name !== "" ? short(name) : "an error without words"
    return short(typeof thrown === "string" && thrown !== "" ? thrown : TurnError.show(thrown))
  } catch {
    return "something that cannot be read"
  }
}

const short = (text: string): string => text.length > 500 ? `${text.slice(0, 499)}…` : text
