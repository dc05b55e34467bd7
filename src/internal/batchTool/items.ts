/**
 * What a list comes to before anything is asked for, in this order: normalised, one of each, cut at the cap, checked.
 *
 * - I1: an item has an id or a position, never neither: what is asked for stands in the result, in one place.
 * - I2: an id is ordinary data, whatever its name.
 */
import * as Exit from "effect/Exit"
import type * as Schema from "effect/Schema"
import * as SchemaParser from "effect/SchemaParser"
import * as Coalescer from "../../Coalescer.ts"
import * as TurnError from "../../TurnError.ts"

/** An item under the cap, and where in the list it stands first. `item` is there where it is as its schema wants it, else `problem`. */
type Asked =
  | { readonly id: string; readonly position: number; readonly item: unknown; readonly problem?: undefined }
  | { readonly id: string; readonly position: number; readonly problem: string }

/** Something in the list that has no id. */
interface Invalid {
  readonly position: number
  readonly message: string
  readonly retryable: boolean
}

export interface List {
  /** Under the cap, in the model's order. */
  readonly asked: ReadonlyArray<Asked>
  readonly invalid: ReadonlyArray<Invalid>
  readonly deferred: ReadonlyArray<string>
  /** The items that are as they should be, under the cap. */
  readonly items: ReadonlyArray<unknown>
  /** Where `normalise` threw first, and what. */
  readonly thrown: { readonly position: number; readonly error: unknown } | undefined
}

export interface Reading {
  readonly cap: number
  readonly item: Schema.Codec<any, any>
  readonly key: ((raw: any) => unknown) | undefined
  readonly normalise: ((raw: unknown) => unknown) | undefined
}

/** Reads lists; each once, however often it is asked for. */
export const readerOf = (reading: Reading): (params: { readonly items?: ReadonlyArray<unknown> }) => List => {
  const known = new WeakMap<object, List>()
  const check = checkOf(reading.item)
  return (params) => {
    let list = known.get(params)
    if (list === undefined) known.set(params, list = read(reading, check, params.items ?? []))
    return list
  }
}

/** Texts without the blanks around them. */
export const normalised = (raw: unknown): unknown => typeof raw === "string" ? raw.trim() : raw

const read = (reading: Reading, check: Check, raws: ReadonlyArray<unknown>): List => {
  const { cap, key = (raw: unknown) => raw, normalise = normalised } = reading
  const invalid: Array<Invalid> = []
  let thrown: List["thrown"]
  const byId = new Map<string, { readonly position: number; readonly raws: Array<unknown> }>()
  for (let position = 0; position < raws.length; position++) {
    let raw: unknown
    try {
      raw = normalise(raws[position])
    } catch (error) {
      thrown ??= { position, error }
      invalid.push({ position, message: couldNot(error), retryable: true })
      continue
    }
    let id: string | undefined
    try {
      id = idOf(key(raw))
    } catch {
      // What cannot be read has no id.
    }
    if (id === undefined) invalid.push({ position, message: withoutId(raws[position]), retryable: true })
    else {
      const same = byId.get(id)
      if (same === undefined) byId.set(id, { position, raws: [raw] })
      else same.raws.push(raw)
    }
  }
  const asked: Array<Asked> = []
  const items: Array<unknown> = []
  const deferred: Array<string> = []
  for (const [id, { position, raws }] of byId) {
    if (asked.length === cap) {
      deferred.push(id)
      continue
    }
    const one: Asked = raws.length > 1 && raws.some((raw) => contentOf(raw) !== contentOf(raws[0]))
      ? {
        id,
        position,
        problem: `${raws.length} items of the list have this id, and they differ: call again with the one that is meant`
      }
      : { id, position, ...checked(raws, check) }
    asked.push(one)
    if (one.problem === undefined) items.push(one.item)
  }
  return { asked, invalid, deferred, items, thrown }
}

/** What makes items of one id the same: the number 2 and the text "2" are, where they are their own ids. */
const contentOf = (raw: unknown): string => typeof raw === "object" ? textOf(raw) : String(raw)

/** The words for an item whose `normalise` threw. */
export const couldNot = (error: unknown): string => `it could not be normalised: ${Coalescer.inWords.wordsOf(error)}`

/** The first of the same id that is as it should be. */
const checked = (
  raws: ReadonlyArray<unknown>,
  check: Check
): { readonly item: unknown } | { readonly problem: string } => {
  let problem: string | undefined
  for (const raw of raws) {
    const found = check(raw)
    if (Exit.isSuccess(found)) return { item: found.value }
    problem ??= wordsFor(found)
  }
  return { problem: problem! }
}

const idOf = (key: unknown): string | undefined => {
  const id = typeof key === "number" && Number.isFinite(key) || typeof key === "bigint" ? String(key) : key
  return typeof id === "string" && id !== "" ? id : undefined
}

const withoutId = (raw: unknown): string =>
  raw === "" || (typeof raw === "string" && raw.trim() === "")
    ? "it is an empty text: call again with the real value"
    : `no id can be read from it: it is ${TurnError.show(raw)}`

type Check = (raw: unknown) => Exit.Exit<unknown, unknown>

const checkOf = (item: Schema.Codec<any, any>): Check => {
  const decode = SchemaParser.decodeUnknownExit(item, { errors: "all" })
  return (raw) => {
    try {
      return decode(raw)
    } catch (error) {
      return Exit.die(error)
    }
  }
}

const wordsFor = (exit: Exit.Failure<unknown, unknown>): string => {
  const reason = exit.cause.reasons[0]
  return reason?._tag === "Fail" ? Coalescer.inWords.problemOf(reason.error) : "it could not be checked"
}

/** The same text for the same JSON, whatever the order of members. */
export const textOf = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => {
    if (typeof inner === "bigint") return `${inner}n`
    return typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => a < b ? -1 : 1))
      : inner
  }) ?? String(value)

/** Gives equal texts for equal items, on the side of the program. */
export const keyTextOf = ({ item, key }: Pick<Reading, "item" | "key">): (item: unknown) => string => {
  const encode = SchemaParser.encodeUnknownExit(item)
  const known = new WeakMap<object, string>()
  const compute = (value: unknown): string => {
    const encoded = encode(value)
    // No item: then it is the id of one, as the answer of a lookup may have it.
    if (Exit.isFailure(encoded)) return typeof value === "string" ? value : textOf(value)
    return idOf(key === undefined ? encoded.value : key(encoded.value)) ?? textOf(encoded.value)
  }
  return (value) => {
    if (key === undefined && typeof value === "string") return value
    if (typeof value !== "object" || value === null) return compute(value)
    let text = known.get(value)
    if (text === undefined) known.set(value, text = compute(value))
    return text
  }
}
