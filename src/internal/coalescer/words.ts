/** Texts: of keys, so that equal ones can be found, and of what is told about them. */
import * as SchemaIssue from "effect/SchemaIssue"
import * as TurnError from "../../TurnError.ts"

/** The text of a key: a text is itself, anything else its JSON with sorted members. What JSON cannot hold is refused. */
export const keyText = (key: unknown): string => {
  if (typeof key === "string") return key
  const text = json(key, 100)
  if (text !== undefined) return text
  let unheld: unknown = key
  json(key, 100, (value) => {
    unheld = value
  })
  throw TurnError.make(
    new TurnError.InvalidInput({
      what: "the key of a coalescer",
      expected: "a text, or a value that JSON holds whole (give `keyText` for any other)",
      received: Object.is(unheld, key) ? nameOf(key) : `${TurnError.show(key)}, with ${nameOf(unheld)} in it`
    })
  )
}

/** The JSON of a value, if JSON holds it whole. `unheld` is told what of it is not held. */
const json = (value: unknown, depth: number, unheld?: (value: unknown) => void): string | undefined => {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value)
    case "number":
      if (Number.isFinite(value)) return String(value === 0 ? 0 : value)
      break
    case "boolean":
      return String(value)
    case "object":
      if (value === null) return "null"
      if (depth > 0) return jsonIn(value, depth, unheld)
  }
  unheld?.(value)
  return undefined
}

const jsonIn = (value: object, depth: number, unheld: ((value: unknown) => void) | undefined): string | undefined => {
  if (Array.isArray(value)) {
    const items = value.map((item) => json(item, depth - 1, unheld))
    return items.includes(undefined) ? undefined : `[${items.join(",")}]`
  }
  const names = Object.keys(value).sort()
  const proto: unknown = Object.getPrototypeOf(value)
  // A Map, a Date, a URL: what makes it equal to another is not among its members.
  if (names.length === 0 && proto !== Object.prototype && proto !== null) {
    unheld?.(value)
    return undefined
  }
  const members: Array<string> = []
  for (const name of names) {
    const member = (value as Record<string, unknown>)[name]
    if (member === undefined) continue
    const text = json(member, depth - 1, unheld)
    if (text === undefined) return undefined
    members.push(`${JSON.stringify(name)}:${text}`)
  }
  return `{${members.join(",")}}`
}

/** What a value is that is not what was expected: an object of a class by the name of that. */
export const nameOf = (value: unknown): string => {
  try {
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      const name: unknown = value.constructor?.name
      if (typeof name === "string" && name !== "" && name !== "Object") {
        return `${/^[AEIOU]/.test(name) ? "an" : "a"} ${name}`
      }
    }
    return TurnError.show(value)
  } catch {
    return "something that cannot be read"
  }
}

/** The words of a schema's complaint, and where; of anything else, its own. */
export const problemOf = (error: unknown): string => {
  if (!SchemaIssue.isIssue(error)) return wordsOf(error)
  const { issues } = SchemaIssue.makeFormatterStandardSchemaV1()(error)
  return issues.map(({ message, path = [] }) => {
    const at = path.map((step) => String(typeof step === "object" ? step.key : step)).join(".")
    return at === "" ? message : `${at}: ${message}`
  }).join("; ")
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
