/**
 * Arguments that are results of other calls of the turn (rule R16): found before anything runs, put in their place when the results are
 * there.
 *
 * - F1: what is found is decided by the texts and the calls of the turn alone. While calls still come, an argument that could name one of
 *   them is `open`: it is looked at again when they are known.
 * - F2: a value is put in as it stands in the result, by itself or as text inside a text, and is not searched again.
 */
import type * as ToolCall from "../../ToolCall.ts"
import type * as TurnPlan from "../../TurnPlan.ts"
import { type ArgumentLimits, type Size, sizeOf, tooMuch } from "./json.ts"
import { type Calls, endTags, type Mention, mentions, target } from "./mentions.ts"

type Step = string | number

/** One argument, or a part of one, that is the result of another call. */
export interface Reference {
  /** Where it stands among the arguments. */
  readonly path: ReadonlyArray<Step>
  /** Which part of the text it is; undefined for the whole value. */
  readonly part: { readonly start: number; readonly end: number } | undefined
  /** The position of the call. */
  readonly call: number
  /** Where its value stands in the result. */
  readonly at: ReadonlyArray<Step>
}

/** What the arguments of a call name. */
export interface Named {
  readonly references: ReadonlyArray<Reference>
  /** Why the call cannot be run, whatever the others come to; empty where it may. */
  readonly problems: ReadonlyArray<string>
  /** It may name a call that has not come yet. */
  readonly open: boolean
}

/** The calls of a turn as arguments can name them. */
export class Nameable implements Calls {
  readonly ids: ReadonlySet<string>
  readonly count: number
  readonly names: ReadonlySet<string> | undefined
  readonly numbers: boolean
  /** No call will come any more. */
  readonly complete: boolean
  private readonly positions = new Map<string, number>()
  private readonly given: NonNullable<TurnPlan.References["names"]>
  private shapes: Set<string> | undefined = undefined

  constructor(calls: ReadonlyArray<ToolCall.ToolCall>, given: TurnPlan.References["names"], complete: boolean) {
    this.given = given ?? {}
    this.names = given === undefined ? undefined : new Set(Object.keys(given))
    this.numbers = Object.keys(this.given).some((name) => numbered.test(name))
    this.count = calls.length
    this.complete = complete
    for (let i = calls.length - 1; i >= 0; i--) if (calls[i]!.id !== "") this.positions.set(calls[i]!.id, i)
    this.ids = new Set(this.positions.keys())
  }

  /** The call that a label names, and where in its result; undefined where it names none. */
  private meant(label: string): { readonly call: number; readonly at: ReadonlyArray<Step> } | undefined {
    if (Object.hasOwn(this.given, label)) {
      const { at, call } = this.given[label]!
      return { call, at: at === undefined ? [] : stepsOf(at) ?? [at] }
    }
    const call = this.positions.get(label)
    return call === undefined ? undefined : { call, at: [] }
  }

  /** A label of the same make as one of the turn's: it was meant to name a call, and names none. */
  private isLikeAnId(label: string): boolean {
    if (!/[0-9]/.test(label) || /^[0-9]+$/.test(label)) return false
    this.shapes ??= new Set([...this.ids, ...this.names ?? []].map(shapeOf))
    return this.shapes.has(shapeOf(label))
  }

  /** Looks through the arguments of the call at a position. Arguments that hold literal text are passed over. */
  find(args: Record<string, unknown>, literal: ReadonlyArray<string>, position: number): Named {
    const references: Array<Reference> = []
    const problems: Array<string> = []
    let open = false
    const missing = (path: ReadonlyArray<Step>, label: string) => {
      if (!this.complete) open = true
      else {problems.push(
          `the argument "${path.join(".")}" names ${JSON.stringify(label)}, which is no call of this turn`
        )}
    }
    const add = (
      path: ReadonlyArray<Step>,
      part: Reference["part"],
      { label, place, rest }: Pick<Mention, "label" | "place" | "rest">
    ): void => {
      const meant = place === undefined ? this.meant(label) : { call: place, at: [] }
      const steps = stepsOf(rest)
      // A name that was given for a call which has not come yet.
      if (meant === undefined || !(meant.call >= 0 && meant.call < this.count)) return missing(path, label)
      if (steps === undefined) {
        problems.push(
          `the argument "${path.join(".")}" says of the result of call #${meant.call} what cannot be read: ${
            JSON.stringify(rest.slice(0, 100))
          }`
        )
        return
      }
      if (meant.call === position) problems.push(`the argument "${path.join(".")}" names the result of its own call`)
      references.push({ path, part, call: meant.call, at: [...meant.at, ...steps] })
    }
    const visit = (value: unknown, path: ReadonlyArray<Step>): void => {
      if (typeof value === "string") {
        const text = value.trim()
        const before = value.length - value.trimStart().length
        const found = mentions(text, this, true)
        for (const one of found) {
          const whole = one.start === 0 && one.end === text.length
          add(path, whole ? undefined : { start: before + one.start, end: before + one.end }, one)
        }
        return this.unknown(without(text, found), (label) => missing(path, label), () => (open = true))
      }
      if (typeof value !== "object" || value === null) return
      if (Array.isArray(value)) return value.forEach((item, i) => visit(item, [...path, i]))
      const named = target(value)
      if (named !== undefined) return this.pointed(named, path, add, missing)
      for (const key of Object.keys(value)) visit((value as Record<string, unknown>)[key], [...path, key])
    }
    for (const key of Object.keys(args)) if (!literal.includes(key)) visit(args[key], [key])
    return { references, problems, open }
  }

  /** `{"$ref": "id#/x"}`, or with the way in any form that a text has. An address, or a place in a document of its own, names no call. */
  private pointed(
    named: string,
    path: ReadonlyArray<Step>,
    add: (path: ReadonlyArray<Step>, part: undefined, mention: Pick<Mention, "label" | "place" | "rest">) => void,
    missing: (path: ReadonlyArray<Step>, label: string) => void
  ): void {
    const text = named.trim()
    const hash = text.indexOf("#")
    const id = hash === -1 ? text : text.slice(0, hash)
    for (const label of [text, id]) {
      if (label !== "" && this.meant(label) !== undefined) {
        return add(path, undefined, { label, rest: text.slice(label.length) })
      }
    }
    const one = mentions(text, this, true)[0]
    if (one !== undefined && one.start === 0 && one.end === text.length) return add(path, undefined, one)
    if (id !== "" && !/[/:]/.test(id)) missing(path, id)
  }

  /** Texts in the forms that name a call, and name none of those that are known. */
  private unknown(text: string, missing: (label: string) => void, mayBe: () => void): void {
    for (const label of labelsIn(text)) {
      if (this.isLikeAnId(label) || (this.numbers && numbered.test(label))) return missing(label)
      if (!this.complete) return mayBe()
    }
  }
}

/** How some planners number the fields of all results. */
const numbered = /^API_call_[0-9]+$/i

const shapeOf = (label: string): string => label.replace(/[0-9]+/g, "0")

const forms = [
  /\$\{?\s*([^\s<>{}"'`$.[#]{1,200})/g,
  /\{\{\s*\$?([^\s<>{}"'`$.[#]{1,200})/g,
  /<([^\s<>{}"'`$]{1,200})>/g,
  /^([^\s<>{}"'`$.#]{1,200})(?:#\/|\.(?:results?|output|id)(?![A-Za-z0-9_]))/g,
  /^(API_call_[0-9]+)(?: response)?$/gi
]

/** A text but for its parts that name calls. */
const without = (text: string, found: ReadonlyArray<Mention>): string => {
  let rest = ""
  let from = 0
  for (const { end, start } of found) {
    rest += `${text.slice(from, start)} `
    from = end
  }
  return rest + text.slice(from)
}

/** What stands where the forms have the name of a call. */
function* labelsIn(text: string): Generator<string> {
  let ends: ReadonlySet<string> | undefined
  for (const form of forms) {
    for (const [whole, label] of text.matchAll(form)) {
      if (whole.startsWith("<") && (ends ??= endTags(text)).has(label!)) continue
      yield label!
    }
  }
}

/** The way into a result: `#/a/0/b`, or `.a[0].b`; undefined for what is neither. */
const stepsOf = (rest: string): ReadonlyArray<Step> | undefined => {
  if (rest === "" || rest === "#") return []
  if (rest.startsWith("#/") || rest.startsWith("/")) {
    return rest.slice(rest.startsWith("#") ? 2 : 1).split("/").map((step) => {
      let name = step
      try {
        name = decodeURIComponent(step)
      } catch {
        // A percent sign that stands for itself.
      }
      return name.replaceAll("~1", "/").replaceAll("~0", "~")
    })
  }
  const steps: Array<Step> = []
  const step = /\s*(?:\.\s*([^.[\]\s]+(?:\s+[^.[\]\s]+)*)|\[\s*(?:([0-9]+)|"([^"]*)"|'([^']*)')\s*\])\s*/y
  while (step.lastIndex < rest.length) {
    const match = step.exec(rest)
    if (match === null) return undefined
    const [, name, index, double, single] = match
    steps.push(index === undefined ? name ?? double ?? single! : Number(index))
  }
  return steps
}

/** What planners say for the whole result, where it has no such member. */
const wholeResult = new Set<Step>(["result", "results", "output", "response"])

const nothing = Symbol()

const valueAt = (result: unknown, at: ReadonlyArray<Step>): unknown => {
  let value = result
  for (let i = 0; i < at.length; i++) {
    const step = at[i]!
    const inner = memberOf(value, step)
    if (inner !== nothing) value = inner
    else if (i > 0 || !wholeResult.has(step)) return nothing
  }
  return value
}

const memberOf = (value: unknown, step: Step): unknown => {
  if (typeof value !== "object" || value === null) return nothing
  if (Array.isArray(value) && !/^(?:0|[1-9][0-9]*)$/.test(String(step))) return nothing
  return Object.hasOwn(value, step) ? (value as Record<Step, unknown>)[step] : nothing
}

/** A reference in words: which argument, and what of which call. */
export const words = ({ at, call, path }: Reference, calls: ReadonlyArray<ToolCall.ToolCall>): string => {
  const { id } = calls[call]!
  return `the argument "${path.join(".")}" is ${
    at.length === 0 ? "" : `${JSON.stringify(pointerOf(at))} in `
  }the result of call #${call}${id === "" ? "" : ` (${JSON.stringify(id)})`}`
}

export const pointerOf = (at: ReadonlyArray<Step>): string =>
  at.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")

/** A value that is put in, and how much of the limits of arguments it takes. */
interface Value {
  readonly value: unknown
  readonly text: string
  readonly size: Size
}

export type Filled =
  | { readonly args: Record<string, unknown> }
  /** The first reference that leads nowhere. */
  | { readonly missing: Reference }
  /** The values are more than arguments may hold: they are not put together. */
  | { readonly problem: string }

/** The arguments with the results in place. */
export const fill = (
  args: Record<string, unknown>,
  references: ReadonlyArray<Reference>,
  resultOf: (call: number) => unknown,
  limits: ArgumentLimits
): Filled => {
  const values: Array<Value> = []
  const known = new Map<string, Value>()
  let characters = 0
  let members = 0
  for (const reference of references) {
    const { at, call, part } = reference
    const name = `${part === undefined} ${call} ${pointerOf(at)}`
    let found = known.get(name)
    if (found === undefined) {
      const value = valueAt(resultOf(call), at)
      if (value === nothing || value === undefined) return { missing: reference }
      const text = part === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value)
      known.set(name, found = { value, text, size: sizeOf(part === undefined ? value : text) })
    }
    characters += found.size.characters
    members += found.size.members
    const problem = tooMuch(characters, members, limits)
    if (problem !== undefined) return { problem }
    values.push(found)
  }
  const filled = copy(args) as Record<string, unknown>
  for (let i = 0; i < references.length;) {
    const { part, path } = references[i]!
    let holder = filled as Record<Step, unknown>
    for (const step of path.slice(0, -1)) holder = holder[step] as Record<Step, unknown>
    const last = path.at(-1)!
    let put: unknown
    if (part === undefined) put = copy(values[i++]!.value)
    else {
      // All parts of one text, from its beginning to its end.
      const text = holder[last] as string
      let whole = ""
      let from = 0
      for (; i < references.length && references[i]!.path === path; i++) {
        const { end, start } = references[i]!.part!
        whole += text.slice(from, start) + values[i]!.text
        from = end
      }
      put = whole + text.slice(from)
    }
    // A member of this name would else be the prototype of its holder.
    Object.defineProperty(holder, last, { value: put, enumerable: true, configurable: true, writable: true })
  }
  return { args: filled }
}

/** The arguments without what names results: what is left is the model's own. */
export const withoutNamed = (
  args: Record<string, unknown>,
  references: ReadonlyArray<Reference>
): Record<string, unknown> => {
  const own = copy(args) as Record<string, unknown>
  for (const { path } of references) {
    let holder = own as Record<Step, unknown>
    for (const step of path.slice(0, -1)) holder = holder[step] as Record<Step, unknown>
    holder[path.at(-1)!] = 0
  }
  return own
}

/** What is put in is nobody else's (rule R5). */
const copy = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? JSON.parse(JSON.stringify(value)) : value
