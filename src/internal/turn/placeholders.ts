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

const angle = /^<([A-Za-z][A-Za-z0-9_ .:-]*)>(?:\.[A-Za-z_][A-Za-z0-9_]*)*$/
const braces = /^\{\{[^{}]+\}\}$/

/** A place in the list of calls, as planners number them. */
const place = /^API_call_([0-9]+)(?: response)?$/i

const isMarker = (text: string): boolean => {
  const inner = angle.exec(text)
  if (inner !== null) return /[_ -]/.test(inner[1]!) || missing.has(inner[1]!.toLowerCase())
  return text === "TBD" || braces.test(text) || place.test(text)
}

/** The calls that an argument can refer to: by id, or by place in the turn. */
export interface Calls {
  readonly ids: ReadonlySet<string>
  readonly count: number
}

/** How many characters of one call's arguments are still searched. */
interface Budget {
  left: number
}

/** An id of one sign says nothing, and one that is only a number is too common in honest text (`$1`, `echo $1`). */
const isTelling = (id: string): boolean => id.length > 1 && !/^[0-9]+$/.test(id)

/** Where a text is a marker whatever it says, any id tells which call it waits for. */
const isAny = (id: string): boolean => id !== ""

/** The longest beginning of `text` that is an id, where the id ends at the end of a word. */
const idAtStart = (
  text: string,
  ids: ReadonlySet<string>,
  rest?: RegExp,
  telling: (id: string) => boolean = isTelling
): string | undefined => {
  for (let end = text.length; end > 0; end--) {
    if (end < text.length && /[A-Za-z0-9_-]/.test(text[end]!)) continue
    const id = text.slice(0, end)
    if (ids.has(id) && telling(id) && (rest === undefined || rest.test(text.slice(end)))) return id
  }
  return undefined
}

/** What an id can be made of, with what is said of it behind: no blanks, quotes, brackets of a form, or dollars. */
const word = "[^\\s<>{}\"'`$]{1,200}"
const open = new RegExp(`^\\$\\{?(${word})`)
const closed = new RegExp(`\\$(${word})[^$\\n<>{}]{0,200}\\$(?![A-Za-z0-9_{(])`, "g")
const template = new RegExp(`\\$\\{\\s*(${word})`, "g")
const double = new RegExp(`\\{\\{\\s*\\$?(${word})[^{}]*\\}\\}`, "g")
const tag = new RegExp(`<(${word})>`, "g")
const plain = new RegExp(`^${word}`)
const number = /^\$(?:([0-9]+)|\{([0-9]+)\})$/
const member = /^[.[#]/
const pointer = /^(?:#\/|\.(?:results?|output|id)(?![A-Za-z0-9_]))/

/**
 * The call that a text refers to, in the forms that models and planners print: `$id`, `${id.x}`, `$id.x$`, `{{id.x}}`, `<id>.x`,
 * `id#/x`, `id.result`, `API_call_0`. An id that is only a number has to be the whole of it: `$1`.
 */
const refersTo = (text: string, { count, ids }: Calls): string | undefined => {
  const named = (id: string | undefined): string | undefined =>
    id === undefined ? undefined : `the call ${JSON.stringify(id)}`
  const first = open.exec(text) ?? undefined
  const found = (first === undefined ? undefined : idAtStart(first[1]!, ids)) ??
    within(text, closed, (word, whole) => idAtStart(word, ids, whole === `$${word}$` ? /^$|^[.[#]/ : member)) ??
    within(text, template, (word) => idAtStart(word, ids, member)) ??
    within(text, double, (word, whole) => idAtStart(word, ids, undefined, whole === text ? isAny : isTelling)) ??
    within(text, tag, (word) => text.includes(`</${word}`) ? undefined : idAtStart(word, ids)) ??
    idAtStart(plain.exec(text)?.[0] ?? "", ids, pointer)
  if (found !== undefined) return named(found)
  const numbered = number.exec(text)
  const numeric = numbered?.[1] ?? numbered?.[2]
  if (numeric !== undefined) return ids.has(numeric) ? named(numeric) : undefined
  const at = place.exec(text)?.[1]
  return at !== undefined && Number(at) < count ? `call #${Number(at)}` : undefined
}

const within = (
  text: string,
  form: RegExp,
  idOf: (word: string, whole: string) => string | undefined
): string | undefined => {
  for (const match of text.matchAll(form)) {
    const id = idOf(match[1]!, match[0])
    if (id !== undefined) return id
  }
  return undefined
}

const reference = (value: object): string | undefined => {
  const keys = Object.keys(value)
  if (keys.length !== 1 || keys[0] !== "$ref") return undefined
  const target = (value as { readonly $ref: unknown }).$ref
  return typeof target === "string" ? target : undefined
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
