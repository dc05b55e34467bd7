/** What of a found item is shown: the members that were asked for, and texts no longer than may be. */
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import * as SchemaParser from "effect/SchemaParser"
import * as Coalescer from "../../Coalescer.ts"
import * as ResultBudget from "../../ResultBudget.ts"
import * as TurnError from "../../TurnError.ts"

const isPlain = (value: unknown): value is Record<string, unknown> => {
  if (typeof value !== "object" || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/** Whether JSON holds what a schema has encoded: what it does not hold would make the whole result one that cannot be given. */
const isJson = (value: unknown, depth: number): boolean => {
  if (typeof value === "number") return Number.isFinite(value)
  if (value === null || typeof value === "string" || typeof value === "boolean") return true
  if (typeof value !== "object" || depth === 0) return false
  if (Array.isArray(value)) return value.every((item) => isJson(item, depth - 1))
  return isPlain(value) &&
    Object.keys(value).every((name) => value[name] === undefined || isJson(value[name], depth - 1))
}

/** Says what is wrong with a value that a schema is to encode; undefined where nothing is. */
export const complaintOf = (schema: Schema.Codec<any, any>): (value: unknown) => string | undefined => {
  const encode = SchemaParser.encodeUnknownEffect(schema)
  const fits = Schema.is(schema)
  return (value) => {
    try {
      const encoded = encode(value)
      // Encoding takes time: then the form alone is looked at.
      if (!Exit.isExit(encoded)) return fits(value) ? undefined : "it has another form"
      if (Exit.isSuccess(encoded)) return isJson(encoded.value, 400) ? undefined : "JSON cannot hold it"
      const reason = encoded.cause.reasons.find(({ _tag }) => _tag !== "Interrupt")
      return Coalescer.inWords.problemOf(
        reason?._tag === "Fail" ? reason.error : reason?._tag === "Die" ? reason.defect : undefined
      )
    } catch (error) {
      return Coalescer.inWords.wordsOf(error)
    }
  }
}

/** An own member, whatever its name. */
export const put = <A>(into: Record<string, A>, name: string, value: A): void => {
  Object.defineProperty(into, name, { value, enumerable: true, writable: true, configurable: true })
}

/** The fields of a request: those that exist, and the others. Undefined: nothing was asked for. */
export const fieldsOf = (
  asked: unknown,
  known: ReadonlyArray<string>
): { readonly take: ReadonlyArray<string> | undefined; readonly unknown: ReadonlyArray<string> } => {
  const names = asked === undefined || asked === null ? [] : Array.isArray(asked) ? asked : [asked]
  const take = known.filter((name) => names.includes(name))
  const unknown = names.filter((name) => !known.includes(name as string))
    .map((name) => TurnError.show(name))
  return { take: take.length === 0 ? undefined : take, unknown }
}

export const project = (value: unknown, take: ReadonlyArray<string>): unknown => {
  const taken: Record<string, unknown> = {}
  for (const name of take) {
    if (Object.hasOwn(value as object, name)) put(taken, name, (value as Record<string, unknown>)[name])
  }
  return taken
}

const more = (count: number): string => `…[${count} more characters]`

/**
 * The text up to a border between characters as people see them, and how much is gone, in no more characters than may be. Where the words
 * of the mark would take more than half of them, it is its dots alone.
 */
const cut = (text: string, longest: number): string => {
  const words = more(text.length).length
  const short = words * 2 > longest
  const end = ResultBudget.borderBefore(text, longest - (short ? 1 : words))
  return `${text.slice(0, end)}${short ? "…" : more(text.length - end)}`
}

/**
 * Makes long texts shorter wherever they stand in plain data. A text that its schema takes only whole (a literal, a pattern) stays as
 * it is: what is shown has to be a result of the tool.
 */
export const shortener = (schema: Schema.Codec<any, any>, longest: number): (value: unknown) => unknown => {
  const fits = Schema.is(schema)
  return (value) => {
    let texts = 0
    const all = shortened(value, longest, () => ++texts > 0)
    if (all === value || fits(all)) return all
    // Some may not be cut: each is tried by itself.
    const may = new Set<number>()
    let result = value
    for (let i = 0; i < texts; i++) {
      may.add(i)
      let at = 0
      const next = shortened(value, longest, () => may.has(at++))
      if (fits(next)) result = next
      else may.delete(i)
    }
    return result
  }
}

const shortened = (value: unknown, longest: number, may: () => boolean): unknown => {
  if (typeof value === "string") return value.length > longest && may() ? cut(value, longest) : value
  if (Array.isArray(value)) {
    const items = value.map((item) => shortened(item, longest, may))
    return items.every((item, i) => item === value[i]) ? value : items
  }
  if (!isPlain(value)) return value
  let changed: Record<string, unknown> | undefined
  for (const name of Object.keys(value)) {
    const inner = shortened(value[name], longest, may)
    if (inner === value[name]) continue
    changed ??= { ...value }
    put(changed, name, inner)
  }
  return changed ?? value
}
