/** JSON of others, with the place of each value, so that an error can name it. */
import { show } from "../../TurnError.ts"
import type * as TurnInsights from "../../TurnInsights.ts"

/** What ends the reading of a text: thrown inside, returned as an error outside. */
export class Unreadable extends Error {
  readonly form: TurnInsights.Form | undefined
  readonly place: string
  readonly expected: string
  readonly received: string
  constructor(form: TurnInsights.Form | undefined, place: string, expected: string, received: string) {
    super(`${place}: expected ${expected}, got ${received}`)
    this.form = form
    this.place = place
    this.expected = expected
    this.received = received
  }
}

/** A value and where it stands: a line where there are several, and a JSON pointer in it. */
export class Value {
  readonly raw: unknown
  readonly form: TurnInsights.Form | undefined
  private readonly line: string
  private readonly pointer: string
  constructor(raw: unknown, line: string, pointer = "", form?: TurnInsights.Form) {
    this.raw = raw
    this.line = line
    this.pointer = pointer
    this.form = form
  }

  get place(): string {
    return [this.line, this.pointer].filter((part) => part !== "").join(", ")
  }

  as(form: TurnInsights.Form): Value {
    return new Value(this.raw, this.line, this.pointer, form)
  }

  /** The member of that name; `undefined` where it is none of the object's own. */
  get(key: string | number): Value {
    const { raw } = this
    const own = typeof raw === "object" && raw !== null && Object.hasOwn(raw, key) ? (raw as any)[key] : undefined
    const step = String(key).replaceAll("~", "~0").replaceAll("/", "~1")
    return new Value(own, this.line, `${this.pointer}/${step}`, this.form)
  }

  get absent(): boolean {
    return this.raw === undefined || this.raw === null
  }

  fail(expected: string): never {
    throw new Unreadable(
      this.form,
      this.place,
      expected,
      this.raw === undefined ? "nothing" : this.raw === null ? "null" : show(this.raw)
    )
  }

  get isList(): boolean {
    return Array.isArray(this.raw)
  }

  get isObject(): boolean {
    return typeof this.raw === "object" && this.raw !== null && !Array.isArray(this.raw)
  }

  object(expected: string): this {
    return this.isObject ? this : this.fail(expected)
  }

  list(expected: string): ReadonlyArray<Value> {
    return Array.isArray(this.raw) ? this.raw.map((_, i) => this.get(i)) : this.fail(expected)
  }

  /** The entries of a list; none where there is no list. */
  get entries(): ReadonlyArray<Value> {
    return Array.isArray(this.raw) ? this.raw.map((_, i) => this.get(i)) : []
  }

  string(expected: string): string {
    return typeof this.raw === "string" ? this.raw : this.fail(expected)
  }

  number(expected: string): number {
    return typeof this.raw === "number" && Number.isFinite(this.raw) ? this.raw : this.fail(expected)
  }

  get text(): string | undefined {
    return typeof this.raw === "string" ? this.raw : undefined
  }
}

const asJson = "JSON, or JSON lines"

/** The values of a text: one, or one a line. `cut` is the number of a last line that is only the beginning of one, as in a log that is being written. */
export const parse = (text: string): { readonly values: ReadonlyArray<Value>; readonly cut: number | undefined } => {
  const bare = text.replace(/^\ufeff/, "")
  if (bare.trim() === "") throw new Unreadable(undefined, "", asJson, "nothing")
  if (tooDeep(bare)) throw new Unreadable(undefined, "", `JSON of at most ${deepest} levels`, "a deeper one")
  try {
    return { values: [new Value(JSON.parse(bare), "")], cut: undefined }
  } catch (whole) {
    const values: Array<Value> = []
    const lines = bare.trimEnd().split("\n")
    for (const [i, line] of lines.entries()) {
      if (line.trim() === "") continue
      try {
        values.push(new Value(JSON.parse(line), `line ${i + 1}`))
      } catch (thrown) {
        if (/^\s*(data|event):/.test(line)) {
          throw new Unreadable(undefined, `line ${i + 1}`, asJson, "a stream's events")
        }
        // One that begins as JSON and is no line of its own is one broken document, or none.
        if (values.length === 0) throw broken(bare, 1, asJson, whole)
        if (i === lines.length - 1 && isBeginning(line)) return { values, cut: i + 1 }
        throw broken(line, i + 1, "a line of JSON", thrown)
      }
    }
    return { values, cut: undefined }
  }
}

/** What the engine says of a text that is no JSON, with the place where it stands. */
const broken = (text: string, line: number, expected: string, thrown: unknown): Unreadable => {
  const [, message, position] = /^(.*?)(?: in JSON)?(?: at position (\d+).*)?$/s.exec((thrown as Error).message)!
  const what = message![0]!.toLowerCase() + message!.slice(1)
  if (position === undefined) {
    return new Unreadable(undefined, line === 1 ? "" : `line ${line}`, expected, `what is none: ${what}`)
  }
  const before = text.slice(0, Number(position)).split("\n")
  return new Unreadable(
    undefined,
    `line ${line + before.length - 1}, column ${before.at(-1)!.length + 1}`,
    what.startsWith("expected ") ? `${expected}: ${what.slice(9)}` : expected,
    Number(position) >= text.length
      ? "its end"
      : what.startsWith("expected ")
      ? show(text.slice(Number(position), Number(position) + 30))
      : what
  )
}

/** Whether a text that is no JSON is the beginning of some. */
const isBeginning = (text: string): boolean => {
  const closers: Array<string> = []
  let quoted = false
  let end = text.length
  for (let i = 0; i < end; i++) {
    const character = text[i]!
    if (quoted && character === "\\") {
      const whole = text[i + 1] === "u" ? i + 6 : i + 2
      // A cut escape is left out.
      if (whole > end) end = i
      i++
    } else if (character === '"') quoted = !quoted
    else if (quoted) continue
    else if (character === "{") closers.unshift("}")
    else if (character === "[") closers.unshift("]")
    else if (character === "}" || character === "]") closers.shift()
  }
  const head = text.slice(0, end)
  const tails = quoted ? ['"', '":0'] : ["", "0", ":0", '"":0']
  const words = quoted ? [] : [head.replace(/(?:t|tr|tru|f|fa|fal|fals|n|nu|nul)$/, "null")]
  return [...tails.map((tail) => head + tail), ...words].some((one) => isJson(one + closers.join("")))
}

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** What walks over values is recursive. */
const deepest = 500

const tooDeep = (text: string): boolean => {
  let depth = 0
  let quoted = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (quoted) {
      if (code === 92) i++
      else if (code === 34 || code === 10) quoted = false
    } else if (code === 34) quoted = true
    else if (code === 91 || code === 123) {
      if (++depth > deepest) return true
    } else if (code === 93 || code === 125) depth--
  }
  return false
}

/** Text that holds JSON, as its value; as it is where it does not. */
export const fromText = (raw: unknown): unknown => {
  if (typeof raw !== "string" || tooDeep(raw)) return raw
  try {
    return JSON.parse(raw)
  } catch {
    return raw
  }
}

/** The same text for the same value: members sorted at every depth. */
export const canonical = (value: unknown): string => {
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null"
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical((value as any)[key])}`)
  return `{${members.join(",")}}`
}

/** Adds to the list that a map has under a key. */
export const push = <K, A>(map: Map<K, Array<A>>, key: K, value: A): void => {
  const list = map.get(key)
  if (list === undefined) map.set(key, [value])
  else list.push(value)
}
