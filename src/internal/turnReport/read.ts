/** Text to events: JSON of others, of which each member that is used is looked at first. */
import { Status } from "../../Outcome.ts"
import { show } from "../../TurnError.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as TurnReport from "../../TurnReport.ts"
import { plural } from "./text.ts"

/** What ends the reading of a text: thrown inside, returned as an error outside. */
export class Unreadable extends Error {
  readonly place: string
  readonly expected: string
  readonly received: string
  constructor(place: string, expected: string, received: string) {
    super(`${place}: expected ${expected}, got ${received}`)
    // An event as a whole has no pointer behind its line.
    this.place = place.replace(/, $/, "")
    this.expected = expected
    this.received = received
  }
}

type Is = readonly [expected: string, test: (value: unknown) => boolean]

const text: Is = ["a text", (value) => typeof value === "string"]
const time: Is = ["a number", (value) => Number.isFinite(value)]
const count: Is = ["a whole number from 0", (value) => Number.isSafeInteger(value) && (value as number) >= 0]
const flag: Is = ["true or false", (value) => typeof value === "boolean"]
const places: Is = ["a list of positions", (value) => Array.isArray(value) && value.every((one) => count[1](one))]
const cause: Is = ["keys, permit or rate", (value) => value === "keys" || value === "permit" || value === "rate"]
const status: Is = ["the status of an outcome", (value) => (Status.literals as ReadonlyArray<unknown>).includes(value)]
const optional = ([expected, test]: Is): Is => [
  `${expected}, or nothing`,
  (value) => value === undefined || value === null || test(value)
]

interface Shape {
  readonly [member: string]: Is | Shape
}

const ofCall: Shape = { position: count, id: text, tool: text }
const outcome: Shape = { status, code: optional(text) }

/** The members that are used, by tag. */
const shapes: Readonly<Record<TurnEvent.TurnEvent["_tag"], Shape>> = {
  TurnStarted: { calls: count, tenant: optional(text), conversation: optional(text) },
  CallQueued: { ...ofCall, for: cause, backend: optional(text) },
  CallHeld: ofCall,
  CallStarted: {
    ...ofCall,
    attempt: count,
    backend: optional(text),
    waited: { keys: time, permit: time, rate: time, approval: time }
  },
  CallProgressed: ofCall,
  CallOverdue: ofCall,
  CallRetried: { ...ofCall, attempt: count, pause: time },
  CallApplied: ofCall,
  CallUndone: { ...ofCall, ok: flag },
  CallEnded: { ...ofCall, outcome },
  CallSettledLate: { ...ofCall, outcome },
  RequestSent: { request: count, into: text, positions: places, items: time, backend: optional(text) },
  RequestEnded: { request: count, into: text, ok: time },
  ResultCut: { ...ofCall, of: time, to: time, artifact: optional(text) },
  TurnStopped: { code: text, reason: optional(text) },
  TurnEnded: { unsettled: count }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const received = (value: unknown): string => value === undefined ? "nothing" : value === null ? "null" : show(value)

const check = (value: unknown, shape: Shape, place: string): void => {
  if (!isObject(value)) throw new Unreadable(place, "an object", received(value))
  for (const [member, is] of Object.entries(shape)) {
    const own = Object.hasOwn(value, member) ? value[member] : undefined
    const at = `${place}/${member}`
    if (!Array.isArray(is)) check(own, is as Shape, at)
    else if (!(is as unknown as Is)[1](own)) throw new Unreadable(at, (is as unknown as Is)[0], received(own))
  }
}

export const readEvents = (text: string): TurnReport.Recorded => {
  const { notes, values } = parse(text)
  const events: Array<TurnEvent.TurnEvent> = []
  let unknown = 0
  for (const [place, value] of values) {
    if (!isObject(value)) throw new Unreadable(place, "an event, with its `_tag`", received(value))
    const event = value["_tag"] === "TurnReported" ? value["event"] : value
    if (!isObject(event)) throw new Unreadable(`${place}/event`, "the event of a turn", received(event))
    const tag = event["_tag"]
    if (typeof tag !== "string") throw new Unreadable(`${place}/_tag`, "the tag of an event", received(tag))
    if (!Object.hasOwn(shapes, tag)) {
      // What an agent tells of itself says nothing of calls.
      if (event["agent"] === undefined) unknown++
      continue
    }
    check(event, { turn: textOf, at: time, ...shapes[tag as TurnEvent.TurnEvent["_tag"]] }, place)
    events.push(event as unknown as TurnEvent.TurnEvent)
  }
  if (events.length === 0) {
    throw new Unreadable(
      "",
      "events of turns",
      unknown === 0 ? "none" : `none: ${plural(unknown, "object")} of other kinds`
    )
  }
  if (unknown > 0) notes.push(`${plural(unknown, "event")} of a kind that is not known: passed over`)
  return { events, notes }
}

const textOf = text

const asJson = "JSON, or JSON lines"

/** The values of a text with their places: one or a list, or one a line. The last line of a log that is being written may be cut. */
const parse = (text: string): { readonly values: Array<readonly [string, unknown]>; readonly notes: Array<string> } => {
  const bare = text.replace(/^\ufeff/, "").trimEnd()
  if (bare === "") throw new Unreadable("", asJson, "nothing")
  const lines = bare.split("\n")
  const values: Array<readonly [string, unknown]> = []
  const add = (value: unknown, place: string) => {
    if (!Array.isArray(value)) values.push([place, value])
    else for (const [i, one] of value.entries()) values.push([`${place}/${i}`, one])
  }
  if (lines.length === 1 || bare.startsWith("[") || bare.startsWith("{\n") || bare.startsWith("{\r")) {
    const whole = json(bare)
    if (whole.ok) {
      add(whole.value, "")
      return { values, notes: [] }
    }
    if (lines.length === 1) throw new Unreadable("", asJson, whole.problem)
  }
  for (const [i, line] of lines.entries()) {
    if (line.trim() === "") continue
    const one = json(line)
    if (one.ok) add(one.value, `line ${i + 1}, `)
    else if (i === lines.length - 1 && values.length > 0) {
      return { values, notes: [`line ${i + 1}, the last one, is cut: read up to there`] }
    } else throw new Unreadable(`line ${i + 1}`, "a line of JSON", one.problem)
  }
  return { values, notes: [] }
}

const json = (
  text: string
): { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly problem: string } => {
  try {
    return { ok: true, value: JSON.parse(text) }
  } catch (thrown) {
    return { ok: false, problem: `what is none: ${(thrown as Error).message}` }
  }
}
