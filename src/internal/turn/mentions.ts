/**
 * How arguments name a call of their turn, in the forms that models and planners print: `{"$ref": "id#/x"}`, `$id`, `${id.x}`, `$id.x$`,
 * `{{id.x}}`, `<id>.x`, `id#/x`, `id.result`, `API_call_0`, `$1`. With references off such a text is a placeholder (rule R8), with
 * references on it is the value that it names (rule R16).
 */

/** The calls that an argument can name: by id, by a name that the planner has for them, or by place in the turn. */
export interface Calls {
  readonly ids: ReadonlySet<string>
  readonly count: number
  readonly names?: ReadonlySet<string> | undefined
  /** The planner's own names number something else than calls. */
  readonly numbers?: boolean | undefined
}

/** A part of a text that names a call: `label` is the id or name, `rest` what is said of it behind. */
export interface Mention {
  readonly start: number
  readonly end: number
  readonly label: string
  readonly rest: string
  /** The place of the call in the turn, where that is what the label says. */
  readonly place?: number | undefined
}

/** An id of one sign says nothing, and one that is only a number is too common in honest text (`$1`, `echo $1`). */
const isTelling = (id: string): boolean => id.length > 1 && !/^[0-9]+$/.test(id)

/** Where a text is a marker whatever it says, any id tells which call it waits for. */
const isAny = (id: string): boolean => id !== ""

const has = ({ ids, names }: Calls, id: string): boolean => ids.has(id) || names?.has(id) === true

/** The longest beginning of `text` that is an id, where the id ends at the end of a word. */
const idAtStart = (
  text: string,
  calls: Calls,
  rest?: RegExp,
  telling: (id: string) => boolean = isTelling
): string | undefined => {
  for (let end = text.length; end > 0; end--) {
    if (end < text.length && /[A-Za-z0-9_-]/.test(text[end]!)) continue
    const id = text.slice(0, end)
    if (
      has(calls, id) && (telling(id) || calls.names?.has(id) === true) &&
      (rest === undefined || rest.test(text.slice(end)))
    ) return id
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
const endTag = new RegExp(`</(${word})`, "g")
const plain = new RegExp(`^${word}`)
const number = /^\$(?:([0-9]+)|\{([0-9]+)\})$/
const numbers = /\$(?:([0-9]+)(?![0-9A-Za-z_.])|\{([0-9]+)\})/g
const member = /^[.[#]/
const pointer = /^(?:#\/|\.(?:results?|output|id)(?![A-Za-z0-9_]))/

/** A place in the list of calls, as planners number them. */
export const place = /^API_call_([0-9]+)(?: response)?$/i

/** The names that a text closes as tags: what stands in a tag of such a name is markup. */
export const endTags = (text: string): ReadonlySet<string> =>
  new Set(Array.from(text.matchAll(endTag), ([_, name]) => name!))

/** What is said of a call behind the sign that closes its name. */
const steps = /^(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]+\])*/

/** A text that begins with a name behind a dollar. */
const atStart = (text: string, calls: Calls): Mention | undefined => {
  const label = idAtStart(open.exec(text)?.[1] ?? "", calls)
  if (label === undefined) return undefined
  const from = (text.startsWith("${") ? 2 : 1) + label.length
  return { start: 0, end: text.length, label, rest: text.slice(from) }
}

/** The same with nothing behind it but the way into the result. */
const atStartAlone = (text: string, calls: Calls): Mention | undefined => {
  const found = text.startsWith("${") ? undefined : atStart(text, calls)
  return found !== undefined && /^(?:[.[][^\s]*|#[^\s]*)?$/.test(found.rest) ? found : undefined
}

/** The first part of a text that names a call, or all of them. */
export const mentions = (text: string, calls: Calls, all: boolean): ReadonlyArray<Mention> => {
  const found: Array<Mention> = []
  const enough = () => !all && found.length > 0
  // Both lists run from the beginning of the text to its end.
  const within = (form: RegExp, mention: (match: RegExpExecArray) => Mention | undefined): boolean => {
    const known = found.splice(0)
    let at = 0
    for (const match of text.matchAll(form)) {
      const one = mention(match)
      if (one === undefined) continue
      while (at < known.length && known[at]!.end <= one.start) found.push(known[at++]!)
      const last = found.at(-1)
      if ((last !== undefined && last.end > one.start) || (at < known.length && known[at]!.start < one.end)) continue
      found.push(one)
      if (!all) break
    }
    while (at < known.length) found.push(known[at++]!)
    return enough()
  }
  const start = all ? undefined : atStart(text, calls)
  if (start !== undefined) return [start]
  const inner = (label: string, match: RegExpExecArray, before: string, after: number): Mention => ({
    start: match.index,
    end: match.index + match[0].length,
    label,
    rest: match[0].slice(match[0].indexOf(label, before.length) + label.length, match[0].length - after).trimEnd()
  })
  // The next closing brace, and the names of closing tags: looked up once, however many there are.
  let close = -2
  let ends: ReadonlySet<string> | undefined
  if (
    within(closed, (match) => {
      const label = idAtStart(match[1]!, calls, match[0] === `$${match[1]!}$` ? /^$|^[.[#]/ : member)
      return label === undefined ? undefined : inner(label, match, "$", 1)
    }) ||
    within(template, (match) => {
      const label = idAtStart(match[1]!, calls, all ? /^$|^[.[#]/ : member)
      if (label === undefined) return undefined
      if (close !== -1 && close < match.index) close = text.indexOf("}", match.index)
      const end = close === -1 ? match.index + match[0].length : close + 1
      const from = text.indexOf(label, match.index) + label.length
      return { start: match.index, end, label, rest: text.slice(from, close === -1 ? end : close).trimEnd() }
    }) ||
    within(double, (match) => {
      const label = idAtStart(match[1]!, calls, undefined, match[0] === text ? isAny : isTelling)
      return label === undefined ? undefined : inner(label, match, "{{", 2)
    }) ||
    within(tag, (match) => {
      const label = idAtStart(match[1]!, calls)
      if (label === undefined || (ends ??= endTags(text)).has(match[1]!)) return undefined
      const end = match.index + match[0].length
      const behind = steps.exec(text.slice(end, end + 400))![0]
      return { start: match.index, end: end + behind.length, label, rest: match[1]!.slice(label.length) + behind }
    })
  ) return found
  if (found.length > 0) return found.sort((a, b) => a.start - b.start)
  const alone = all ? atStartAlone(text, calls) : undefined
  if (alone !== undefined) return [alone]
  const label = idAtStart(plain.exec(text)?.[0] ?? "", calls, pointer)
  if (label !== undefined) return [{ start: 0, end: text.length, label, rest: text.slice(label.length) }]
  if (calls.names?.has(text) === true) return [{ start: 0, end: text.length, label: text, rest: "" }]
  if (all) {
    within(numbers, (match) => {
      const label = match[1] ?? match[2]!
      return has(calls, label) ? { start: match.index, end: match.index + match[0].length, label, rest: "" } : undefined
    })
  } else {
    const numbered = number.exec(text)
    const label = numbered?.[1] ?? numbered?.[2]
    if (label !== undefined && calls.ids.has(label)) found.push({ start: 0, end: text.length, label, rest: "" })
  }
  if (found.length > 0) return found
  const at = place.exec(text)?.[1]
  if (at === undefined) return found
  const name = `API_call_${Number(at)}`
  if (calls.names?.has(name) === true) return [{ start: 0, end: text.length, label: name, rest: "" }]
  return Number(at) < calls.count && calls.numbers !== true
    ? [{ start: 0, end: text.length, label: name, rest: "", place: Number(at) }]
    : found
}

/** What `{"$ref": "…"}` names; undefined for any other object. */
export const target = (value: object): string | undefined => {
  const keys = Object.keys(value)
  if (keys.length !== 1 || keys[0] !== "$ref") return undefined
  const named = (value as { readonly $ref: unknown }).$ref
  return typeof named === "string" ? named : undefined
}
