/**
 * Arguments that a model invented because it did not have the value yet (rule R8). What is honest must pass: `None` as a
 * surname, `$1` in a shell script, a tag in a piece of HTML.
 */
import { type Calls, mentions, place, target as reference } from "./mentions.ts"

export interface Found {
  readonly path: string
  readonly message: string
}

/** Words that stand between angle brackets when a value is missing. A name with an underscore, a blank or a dash counts too. */
const missing = new Set([
  "pending",
  "placeholder",
  "tbd",
  "unknown",
  "id",
  "uuid",
  "value",
  "result",
  "output",
  "missing",
  "unset",
  "todo"
])

const angle = /^<([A-Za-z][A-Za-z0-9_ .:-]*)>(?:\.[A-Za-z_][A-Za-z0-9_]*)*$/
const braces = /^\{\{[^{}]+\}\}$/

const isMarker = (text: string): boolean => {
  const inner = angle.exec(text)
  if (inner !== null) return /[_ -]/.test(inner[1]!) || missing.has(inner[1]!.toLowerCase())
  return text === "TBD" || braces.test(text) || place.test(text)
}

/** How many characters of one call's arguments are still searched. */
interface Budget {
  left: number
}

/** The call that a text refers to, in words. */
const refersTo = (text: string, calls: Calls): string | undefined => {
  const found = mentions(text, calls, false)[0]
  if (found === undefined) return undefined
  return found.place === undefined ? `the call ${JSON.stringify(found.label)}` : `call #${found.place}`
}

/** Looks through the arguments. `calls` are those of the turn; `required` tells which texts may not be empty. */
export const find = (
  value: Record<string, unknown>,
  calls: Calls,
  literal: ReadonlyArray<string>,
  required: RequiredTexts | undefined
): Found | undefined => {
  const budget: Budget = { left: 50_000 }
  for (const key of Object.keys(value)) {
    if (literal.includes(key)) continue
    const found = findIn(value[key], key, calls, budget)
    if (found !== undefined) return found
  }
  return required === undefined ? undefined : findEmpty(value, required, literal, "")
}

/** How far a text is searched: what stands behind that is a document's own, and searching it all would cost milliseconds. */
const searched = 2_000

const findIn = (value: unknown, path: string, calls: Calls, budget: Budget): Found | undefined => {
  if (typeof value === "string") {
    if (budget.left <= 0) return undefined
    budget.left -= Math.min(value.length, searched)
    const text = (value.length > searched ? value.slice(0, searched) : value).trim()
    const call = refersTo(text, calls)
    if (call !== undefined) return waitsFor(path, text, call)
    return isMarker(text)
      ? {
        path,
        message: `the argument "${path}" is the placeholder ${JSON.stringify(text)}: call again with the real value`
      }
      : undefined
  }
  if (typeof value !== "object" || value === null) return undefined
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const found = findIn(value[i], `${path}.${i}`, calls, budget)
      if (found !== undefined) return found
    }
    return undefined
  }
  const target = reference(value)
  if (target !== undefined) {
    const hash = target.indexOf("#")
    const id = [target, hash === -1 ? "" : target.slice(0, hash)].find((id) => id !== "" && calls.ids.has(id))
    if (id !== undefined) return waitsFor(path, target, `the call ${JSON.stringify(id)}`)
  }
  for (const key of Object.keys(value)) {
    const found = findIn((value as Record<string, unknown>)[key], `${path}.${key}`, calls, budget)
    if (found !== undefined) return found
  }
  return undefined
}

const waitsFor = (path: string, text: string, call: string): Found => ({
  path,
  message:
    `the argument "${path}" is ${JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text)}, which seems ` +
    `to wait for the result of ${call} of the same turn: call again with the value from its result`
})

/** Which members of an object must be texts: `true` for a required text, or the members inside. */
export type RequiredTexts = ReadonlyMap<string, true | RequiredTexts>

const findEmpty = (
  value: Record<string, unknown>,
  required: RequiredTexts,
  literal: ReadonlyArray<string>,
  at: string
): Found | undefined => {
  for (const [key, inner] of required) {
    if (at === "" && literal.includes(key)) continue
    const path = at === "" ? key : `${at}.${key}`
    const member = Object.hasOwn(value, key) ? value[key] : undefined
    if (inner === true) {
      if (member === "") {
        return { path, message: `the required argument "${path}" is an empty text: call again with the real value` }
      }
    } else if (typeof member === "object" && member !== null && !Array.isArray(member)) {
      const found = findEmpty(member as Record<string, unknown>, inner, literal, path)
      if (found !== undefined) return found
    }
  }
  return undefined
}

/** A null where the schema takes none, from the places that the schema complained about. */
export const findNull = (
  value: Record<string, unknown>,
  paths: ReadonlyArray<ReadonlyArray<PropertyKey>>,
  literal: ReadonlyArray<string>
): Found | undefined => {
  for (const path of paths) {
    if (path.length === 0 || literal.includes(String(path[0]))) continue
    let at: unknown = value
    for (const step of path) {
      at = typeof at === "object" && at !== null && Object.hasOwn(at, step)
        ? (at as Record<PropertyKey, unknown>)[step]
        : undefined
    }
    if (at !== null) continue
    const name = path.map(String).join(".")
    return {
      path: name,
      message: `the argument "${name}" is null, which the tool does not take: call again with the real value`
    }
  }
  return undefined
}
