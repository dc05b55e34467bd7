/**
 * What the histories of all providers have in common: messages with parts, of which some are calls and some are results. Each provider's
 * form reads its own history into this, and writes it again; what lies between is the same for all.
 */
import type * as Outcome from "../../Outcome.ts"
import * as Dialect from "../Dialect.ts"
import type * as History from "../History.ts"

/** One thing in a message. `value` is how it goes out: the object that came, until something has to be changed in it. */
export interface Part {
  kind: "call" | "result" | "other"
  readonly path: string
  value: unknown
  readonly came: unknown
  readonly id: string
  /** The tool's; `""` for a result that does not name it. */
  readonly name: string
  /** What tells a call, or an answer, from others under the same id. */
  readonly content: string
  readonly arguments?: unknown
  /** Words in place of a result that came too late: they stand behind the results of their message. */
  late?: true
  /** The provider takes no text as its answer, so none can be made up. */
  readonly unanswerable?: true
  /** Of a call: its one result, and which group of calls it belongs to. */
  result?: Part
  step?: number
}

export interface Message {
  readonly role: "model" | "user" | "other"
  readonly path: string
  /** The object that came, tidied. */
  readonly source: unknown
  /** The parts as they were read, by which an unchanged message is known. */
  readonly read: ReadonlyArray<Part>
  readonly parts: ReadonlyArray<Part>
  readonly late?: true
}

/** Which ids a provider takes, and where two calls may not have the same. */
export interface Ids {
  readonly max: number
  readonly pattern: RegExp
  readonly words: string
  readonly optional: boolean
  readonly unique: "message" | "history"
}

/** How the answer of a call is told: text, what it stands for, and whether it is a failure. */
export interface Answer {
  readonly text: string
  readonly value: unknown
  readonly isFailure: boolean
}

export type Report = (
  code: History.Code,
  kind: History.Kind,
  path: string,
  message: string,
  change: string
) => void

/** One provider's histories. */
export interface Form {
  readonly id: History.DialectId
  readonly name: string
  /**
   * Where results stand: each in a message of its own behind the calls; together at the beginning of the next message; in the next
   * message, alone and in order; anywhere behind their call.
   */
  readonly results: "apart" | "together" | "alone" | "behind"
  readonly ids: Ids
  readonly read: (entries: ReadonlyArray<Record<string, unknown>>, root: string, report: Report) => Array<Message>
  readonly write: (message: Message) => unknown
  readonly callWithId: (call: Part, id: string) => unknown
  readonly resultWithId: (value: unknown, id: string) => unknown
  /** What else a result must have in common with its call. */
  readonly fitResult?: (result: Part, call: Part, report: Report) => void
  readonly answer: (call: Part, id: string, answer: Answer) => unknown
  /** A message of its own for these results. */
  readonly wrap: (results: ReadonlyArray<Part>) => Message
  /** The words of a user: a part in a message, or a message. */
  readonly words: (text: string) => unknown
  readonly say: (text: string) => Message
  /** What has to be looked at when everything has its place. */
  readonly finish?: (messages: ReadonlyArray<Message>, report: Report) => ReadonlyArray<Message>
}

export const message = (
  role: Message["role"],
  path: string,
  source: unknown,
  parts: ReadonlyArray<Part>
): Message => ({ role, path, source, read: parts, parts })

export const part = (
  kind: Part["kind"],
  path: string,
  value: unknown,
  more:
    & { readonly came?: unknown; readonly id?: string; readonly name?: string; readonly content?: string }
    & Pick<
      Part,
      "arguments" | "unanswerable"
    > = {}
): Part => ({ came: value, id: "", name: "", content: "", ...more, kind, path, value })

/** The same message with these parts; the very same where they are its own. */
export const withParts = (message: Message, parts: ReadonlyArray<Part>): Message =>
  parts.length === message.parts.length && parts.every((part, i) => part === message.parts[i])
    ? message
    : { ...message, parts }

export const isUnchanged = (message: Message): boolean =>
  message.parts.length === message.read.length &&
  message.parts.every((part, i) => part === message.read[i] && part.value === part.came)

/** A value as text, to be compared: fields in any order are the same. */
export const textOf = (value: unknown): string => {
  try {
    return JSON.stringify(value, (_, field: unknown) =>
      Dialect.isRecord(field)
        ? Object.fromEntries(Object.entries(field).sort(([a], [b]) => a < b ? -1 : 1))
        : field) ?? "null"
  } catch {
    return String(value)
  }
}

/** JSON text, or `null` for what JSON cannot hold. */
export const jsonOf = (value: unknown): string => {
  try {
    return JSON.stringify(value) ?? "null"
  } catch {
    return "null"
  }
}

export const stringOf = (value: unknown): string => typeof value === "string" ? value : ""

/** The answer that an outcome or plain text gives. */
export const answerOf = (given: Outcome.Outcome<any> | string, forModel: typeof Outcome.forModel): Answer => {
  if (typeof given === "string") {
    return { text: given.trim() === "" ? JSON.stringify(given) : given.toWellFormed(), value: given, isFailure: false }
  }
  const { isFailure, value } = forModel(given)
  return { text: Dialect.contentOf(given) ?? "null", value, isFailure }
}

/** Names that a request may have: other characters come from models that make names up. */
export const nameForm = (name: string, max: number): string =>
  name.replace(/[^a-zA-Z0-9_-]/g, "_").slice(0, max) || "unnamed"

/** A tool's name as a request may have it, which is told where it had to be changed. */
export const checkedName = (name: string, path: string, max: number, report: Report): string => {
  const fitting = nameForm(name, max)
  if (fitting === name) return name
  report(
    "name_form",
    "refused",
    path,
    `the tool's name ${show(name)} has a form that is refused (letters, digits, _ and -, at most ${max})`,
    `it is called ${fitting}`
  )
  return fitting
}

/** Leaves out what responses have, or a program added, and requests may not have. */
export const withoutFields = (
  value: Record<string, unknown>,
  extra: (field: string, value: unknown) => boolean,
  path: string,
  report: Report
): Record<string, unknown> => {
  const gone = Object.keys(value).filter((field) => extra(field, value[field]))
  if (gone.length === 0) return value
  report(
    "extra_fields",
    "refused",
    path,
    `${gone.map((field) => show(field)).join(", ")} may not stand in a request`,
    gone.length === 1 ? "it is left out" : "they are left out"
  )
  const kept = { ...value }
  for (const field of gone) delete kept[field]
  return kept
}

/** How a text is shown in a sentence. */
export const show = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 57)}...` : text)

export const labelOf = (call: Pick<Part, "id" | "name">): string =>
  `${call.name === "" ? "the call" : call.name}${call.id === "" ? "" : ` (${show(call.id)})`}`

/** Whether text has halves of characters, which JSON parsers refuse. */
export const wellFormed = (value: unknown, depth = 0): unknown => {
  if (typeof value === "string") return value.isWellFormed() ? value : value.toWellFormed()
  if (depth > 200 || typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) {
    let changed = false
    const items = value.map((item) => {
      const fixed = wellFormed(item, depth + 1)
      changed ||= !Object.is(fixed, item)
      return fixed
    })
    return changed ? items : value
  }
  let copy: Record<string, unknown> | undefined
  for (const [key, field] of Object.entries(value)) {
    const fixed = wellFormed(field, depth + 1)
    if (Object.is(fixed, field) && key.isWellFormed()) continue
    copy ??= { ...value }
    if (!key.isWellFormed()) delete copy[key]
    // Also `__proto__` is a field like any other.
    Object.defineProperty(copy, key.toWellFormed(), {
      value: fixed,
      enumerable: true,
      configurable: true,
      writable: true
    })
  }
  return copy ?? value
}
