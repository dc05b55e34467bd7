/**
 * Arguments that a model invented because it did not have the value yet (rule R8). What is honest must pass: `None` as a
 * surname, `$1` in a shell script, a tag in a piece of HTML.
 */

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

const angle = /^<([A-Za-z][A-Za-z0-9_ .:-]*)>$/
const braces = /^\{\{[^{}]+\}\}$/

const isMarker = (text: string): boolean => {
  const inner = angle.exec(text)
  if (inner !== null) return /[_ -]/.test(inner[1]!) || missing.has(inner[1]!.toLowerCase())
  return text === "TBD" || braces.test(text)
}

/** An id that is only a number is too common in honest text (`$1`) to be taken for a reference. */
const canBeReferredTo = (id: string): boolean => id.length > 1 && !/^[0-9]+$/.test(id)

const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")

/** Tells whether a text refers to the call with this id: `$id`, `${id.x}`, `{{id.x}}`, `id#/x`, `id.result`. */
const refersTo = (text: string, id: string): boolean => {
  if (!text.includes(id)) return false
  const name = escape(id)
  return new RegExp(
    `^\\$\\{?${name}(?![A-Za-z0-9_-])|\\{\\{\\s*\\$?${name}\\s*([.[#/][^{}]*)?\\}\\}|^${name}(#/|\\.(result|results|output|id)\\b)`
  ).test(text)
}

const reference = (value: object): string | undefined => {
  const keys = Object.keys(value)
  if (keys.length !== 1 || keys[0] !== "$ref") return undefined
  const target = (value as { readonly $ref: unknown }).$ref
  return typeof target === "string" ? target : undefined
}

/** Looks through the arguments. `ids` are the ids of the turn's calls; `required` tells which texts may not be empty. */
export const find = (
  value: Record<string, unknown>,
  ids: ReadonlyArray<string>,
  literal: ReadonlyArray<string>,
  required: RequiredTexts | undefined
): Found | undefined => {
  for (const key of Object.keys(value)) {
    if (literal.includes(key)) continue
    const found = findIn(value[key], key, ids)
    if (found !== undefined) return found
  }
  return required === undefined ? undefined : findEmpty(value, required, literal, "")
}

const findIn = (value: unknown, path: string, ids: ReadonlyArray<string>): Found | undefined => {
  if (typeof value === "string") {
    const text = value.trim()
    const id = ids.find((id) => canBeReferredTo(id) && refersTo(text, id))
    if (id !== undefined) return waitsFor(path, text, id)
    return isMarker(text)
      ? { path, message: `the argument "${path}" is the placeholder ${JSON.stringify(text)}: call again with the real value` }
      : undefined
  }
  if (typeof value !== "object" || value === null) return undefined
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const found = findIn(value[i], `${path}.${i}`, ids)
      if (found !== undefined) return found
    }
    return undefined
  }
  const target = reference(value)
  if (target !== undefined) {
    const id = ids.find((id) => id !== "" && (target === id || target.startsWith(`${id}#`)))
    if (id !== undefined) return waitsFor(path, target, id)
  }
  for (const key of Object.keys(value)) {
    const found = findIn((value as Record<string, unknown>)[key], `${path}.${key}`, ids)
    if (found !== undefined) return found
  }
  return undefined
}

const waitsFor = (path: string, text: string, id: string): Found => ({
  path,
  message: `the argument "${path}" is ${JSON.stringify(text)}, which seems to wait for the result of the call ` +
    `${JSON.stringify(id)} of the same turn: call again with the value from its result`
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
      if (member === "") return { path, message: `the required argument "${path}" is an empty text: call again with the real value` }
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
      at = typeof at === "object" && at !== null && Object.hasOwn(at, step) ? (at as Record<PropertyKey, unknown>)[step] : undefined
    }
    if (at !== null) continue
    const name = path.map(String).join(".")
    return { path: name, message: `the argument "${name}" is null, which the tool does not take: call again with the real value` }
  }
  return undefined
}
