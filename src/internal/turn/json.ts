/** JSON values as they come from a model and as they go back: what may be in them, and when two of them are equal. */

export interface ArgumentLimits {
  /** Characters of the argument text. */
  readonly maxBytes: number
  readonly maxDepth: number
  /** Members and items, over all depths. */
  readonly maxKeys: number
}

export type Parsed =
  | { readonly _tag: "ok"; readonly value: Record<string, unknown>; readonly suspicious: boolean }
  | { readonly _tag: "invalid"; readonly message: string }

const invalid = (message: string): Parsed => ({ _tag: "invalid", message })

const kindOf = (value: unknown): string =>
  value === null ? "null" : Array.isArray(value) ? "a list" : `a ${typeof value}`

/**
 * Reads arguments once: text or object in, one plain JSON object out. Blank text, and absent or null arguments, mean `{}`.
 * `suspicious` tells whether a text that could be a placeholder, or a null, was seen on the way.
 */
export const parse = (raw: unknown, limits: ArgumentLimits): Parsed => {
  let value: unknown = raw
  if (raw === undefined || raw === null) return { _tag: "ok", value: {}, suspicious: false }
  if (typeof raw === "string") {
    if (raw.length > limits.maxBytes) {
      return invalid(`the arguments have ${raw.length} characters: at most ${limits.maxBytes} are taken`)
    }
    if (raw.trim() === "") return { _tag: "ok", value: {}, suspicious: false }
    try {
      value = JSON.parse(raw)
    } catch (error) {
      return invalid(`the arguments are not valid JSON: ${(error as Error).message}`)
    }
  }
  const state: WalkState = { left: limits.maxKeys, size: 0, suspicious: false, problem: undefined }
  try {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      return invalid(`the arguments must be one JSON object, and are ${kindOf(value)}`)
    }
    walk(value, limits.maxDepth, state, "")
  } catch {
    // Objects that were parsed elsewhere may have getters and traps.
    return invalid("the arguments must be one JSON object, and cannot be read")
  }
  if (state.problem !== undefined) return invalid(state.problem)
  const problem = tooMuch(state.size, state.left < 0 ? Infinity : 0, limits)
  if (problem !== undefined) return invalid(problem)
  return { _tag: "ok", value: value as Record<string, unknown>, suspicious: state.suspicious }
}

/** How much of the limits of arguments something takes. */
export interface Size {
  readonly characters: number
  readonly members: number
}

/** The words for arguments that hold too much; undefined where they do not. */
export const tooMuch = (characters: number, members: number, limits: ArgumentLimits): string | undefined =>
  members > limits.maxKeys
    ? `the arguments have more than ${limits.maxKeys} members and items`
    : characters > limits.maxBytes
    ? `the arguments hold more than the ${limits.maxBytes} characters that are taken`
    : undefined

/** What a JSON value takes, counted as `parse` counts. */
export const sizeOf = (value: unknown): Size => {
  if (typeof value === "string") return { characters: value.length, members: 0 }
  if (typeof value !== "object" || value === null) return { characters: 0, members: 0 }
  let characters = 0
  let members = 0
  for (const key of Object.keys(value)) {
    if (!Array.isArray(value)) characters += key.length
    const inner = sizeOf((value as Record<string, unknown>)[key])
    characters += inner.characters
    members += 1 + inner.members
  }
  return { characters, members }
}

interface WalkState {
  left: number
  size: number
  suspicious: boolean
  problem: string | undefined
}

const walk = (value: unknown, depth: number, state: WalkState, at: string): void => {
  if (state.problem !== undefined) return
  switch (typeof value) {
    case "string":
      state.size += value.length
      if (looksOdd(value)) state.suspicious = true
      return
    case "boolean":
      return
    case "number":
      if (!Number.isFinite(value)) state.problem = `the number at "${at}" is not finite`
      return
    case "object":
      break
    default:
      state.problem = `the value at "${at}" is ${kindOf(value)}, which JSON cannot hold`
      return
  }
  if (value === null) {
    state.suspicious = true
    return
  }
  if (depth === 0) {
    state.problem = "the arguments are nested too deeply"
    return
  }
  if (Array.isArray(value)) {
    state.left -= value.length
    if (state.left < 0) return
    for (let i = 0; i < value.length; i++) walk(value[i], depth - 1, state, at === "" ? `${i}` : `${at}.${i}`)
    return
  }
  if (!isPlain(value)) {
    state.problem = `the value at "${at}" is no plain JSON value`
    return
  }
  for (const key of Object.keys(value)) {
    if (--state.left < 0) return
    state.size += key.length
    if (key === "$ref") state.suspicious = true
    walk((value as Record<string, unknown>)[key], depth - 1, state, at === "" ? key : `${at}.${key}`)
  }
}

/** Cheap test for texts that the placeholder rules look at more closely: what passes here is not looked at. */
const looksOdd = (text: string): boolean =>
  text.length === 0 || text.charCodeAt(0) <= 32 || text.includes("<") || text.includes("$") || text.includes("{{") ||
  odd.test(text)

/** Forms without a sign of their own: the marker, a place in the turn, a pointer or a member behind the first word. */
const odd = /^(?:TBD\s*$|API_call_[0-9]|[^\s<>{}"'`$]{1,200}?(?:#\/|\.(?:results?|output|id)(?![A-Za-z0-9_])))/i

const isPlain = (value: object): boolean => {
  const proto = Object.getPrototypeOf(value)
  return proto === Object.prototype || proto === null
}

/** What is wrong with a value as JSON, or undefined: nothing may become an empty object in silence, or make `stringify` throw. */
export const unencodable = (value: unknown): string | undefined => {
  switch (typeof value) {
    case "string":
    case "boolean":
      return undefined
    case "number":
      return Number.isFinite(value) ? undefined : String(value)
    case "object":
      if (value === null) return undefined
      try {
        return unencodableIn(value, [], "", { left: mostMembers })
      } catch {
        return "an object that cannot be read"
      }
    default:
      return value === undefined ? "undefined" : typeof value === "bigint" ? "a bigint" : `a ${typeof value}`
  }
}

/** A value that is shared many times over can be exponentially larger as JSON than in memory. */
const mostMembers = 5_000_000

const unencodableIn = (
  value: object,
  parents: Array<object>,
  at: string,
  budget: { left: number }
): string | undefined => {
  if (parents.includes(value)) return "a value that contains itself"
  if (parents.length > 500) return "nested too deeply"
  parents.push(value)
  const entries: ReadonlyArray<string> | undefined = Array.isArray(value) ? undefined : Object.keys(value)
  if (entries !== undefined && !isPlain(value)) {
    return at === ""
      ? `${article(value)}, which JSON cannot hold`
      : `an object with ${article(value)} at "${at}", which JSON cannot hold`
  }
  const length = entries === undefined ? (value as ReadonlyArray<unknown>).length : entries.length
  budget.left -= length
  if (budget.left < 0) return `too large: it has more than ${mostMembers} members`
  for (let i = 0; i < length; i++) {
    const key = entries === undefined ? i : entries[i]!
    let inner: unknown
    try {
      inner = (value as any)[key]
    } catch {
      return `an object whose member "${at === "" ? key : `${at}.${key}`}" cannot be read`
    }
    if (typeof inner === "string" || inner === null || typeof inner === "boolean") continue
    if (typeof inner === "object") {
      const problem = unencodableIn(inner, parents, at === "" ? `${key}` : `${at}.${key}`, budget)
      if (problem !== undefined) return problem
      continue
    }
    // An absent member and an undefined one are the same in JSON.
    if (inner === undefined && entries !== undefined) continue
    const problem = unencodable(inner)
    if (problem !== undefined) return `a value with ${problem} at "${at === "" ? key : `${at}.${key}`}"`
  }
  parents.pop()
  return undefined
}

const article = (value: object): string => {
  try {
    const name = (value as { constructor?: { name?: unknown } }).constructor?.name
    return typeof name === "string" && name !== "" ? `an instance of ${name}` : "no plain object"
  } catch {
    return "no plain object"
  }
}

/**
 * A text that is equal for equal values and different for different ones: object keys sorted at every depth, array order kept.
 * Undefined when the value holds what is no plain JSON, so that it has to be encoded first.
 */
export const canonical = (value: unknown, depth = 200): string | undefined => {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value)
    case "number":
      return Number.isFinite(value) ? (Object.is(value, -0) ? "0" : String(value)) : undefined
    case "boolean":
      return value ? "true" : "false"
    case "object":
      break
    default:
      return undefined
  }
  if (value === null) return "null"
  if (depth === 0) return undefined
  if (Array.isArray(value)) {
    let out = "["
    for (let i = 0; i < value.length; i++) {
      const item = canonical(value[i], depth - 1)
      if (item === undefined) return undefined
      out += i === 0 ? item : `,${item}`
    }
    return out + "]"
  }
  if (!isPlain(value)) return undefined
  const keys = Object.keys(value)
  if (keys.length > 1) keys.sort()
  let out = "{"
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i]!
    const inner = (value as Record<string, unknown>)[key]
    if (inner === undefined) continue
    const item = canonical(inner, depth - 1)
    if (item === undefined) return undefined
    out += out.length === 1 ? `${quoted(key)}:${item}` : `,${quoted(key)}:${item}`
  }
  return out + "}"
}

const names = new Map<string, string>()

/** The names of parameters are few and come again with every call; what a model makes up is not kept. */
const quoted = (name: string): string => {
  let text = names.get(name)
  if (text === undefined) {
    text = JSON.stringify(name)
    if (names.size < 1000 && name.length < 64) names.set(name, text)
  }
  return text
}

/** A short text for anything that was thrown: never empty, and making it never throws. */
export const describe = (thrown: unknown): string => {
  const text = describeUnsafe(thrown)
  return text.length > 2000 ? `${text.slice(0, 2000)}…` : text
}

/** The words of a tool's own failure: its message where it has one, its name and its JSON where it has none. */
export const describeFailure = (failure: unknown, encoded: unknown): string => {
  try {
    if (typeof failure === "object" && failure !== null) {
      const { message, name } = failure as { readonly message?: unknown; readonly name?: unknown }
      if (typeof message !== "string" || message === "") {
        const text = JSON.stringify(encoded ?? failure)
        const words = failure instanceof Error && typeof name === "string" ? `${name}: ${text}` : text
        return words.length > 2000 ? `${words.slice(0, 2000)}…` : words
      }
      if (!(failure instanceof Error)) return message.length > 2000 ? `${message.slice(0, 2000)}…` : message
    }
  } catch {
    // Described below, like anything else that cannot be read.
  }
  return describe(failure)
}

const describeUnsafe = (thrown: unknown): string => {
  try {
    if (thrown instanceof Error) {
      const message = typeof thrown.message === "string" ? thrown.message : ""
      const name = typeof thrown.name === "string" && thrown.name !== "" ? thrown.name : "Error"
      return message === "" ? `${name} (without a message)` : name === "Error" ? message : `${name}: ${message}`
    }
    switch (typeof thrown) {
      case "string":
        return thrown === "" ? "an empty text was thrown" : thrown
      case "undefined":
        return "nothing was thrown (no value)"
      case "symbol":
      case "number":
      case "boolean":
        return `thrown: ${String(thrown)}`
      case "bigint":
        return `thrown: ${thrown}n`
      case "function":
        return "a function was thrown"
    }
    if (thrown === null) return "null was thrown"
    const text = JSON.stringify(thrown)
    return typeof text === "string" ? `thrown: ${text}` : "an object was thrown"
  } catch {
    return "something was thrown that cannot be described"
  }
}
