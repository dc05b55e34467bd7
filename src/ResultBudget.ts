/**
 * Answers that fit: how a value is cut so that its JSON is no longer than a budget, and how a budget is shared by several answers.
 *
 * Lengths are those of JSON texts, in UTF-16 code units, marks included.
 *
 * - C1: what fits is given back as it is, the same value. So a value that was cut is never cut again by the same budget.
 * - C2: what is cut is JSON still, and no longer than its budget; nothing is shorter than the mark `"…"`, which takes three.
 * - C3: a text ends between two characters as a reader sees them, so never inside a surrogate pair.
 * - C4: the same value, budget and words give the same result.
 *
 * @since 0.1.0
 */

/**
 * What became of the whole: it is kept under an id, it was to be kept and is not, or nobody keeps it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Whole = { readonly artifact: string } | "lost" | undefined

/**
 * A value that was made to fit, and how long the JSON of the whole and of the rest is.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Cut {
  readonly value: unknown
  readonly of: number
  readonly to: number
}

/** All that is left of something, as short as it gets. */
const mark = "…"

/** What a mark takes, as a JSON text. */
const least = 3

/** Deeper than this, what does not fit is left out. */
const maxDepth = 64

/**
 * How long the JSON of a value is.
 *
 * @category getters
 * @since 0.1.0
 * @stability experimental
 */
export const lengthOf = (value: unknown): number => (JSON.stringify(value) ?? "null").length

/**
 * Cuts a value of JSON so that its text is no longer than `maxChars`.
 *
 * **Details**
 *
 * - A text keeps its beginning, a list its first items and an object its members, as long as there is room for a mark of each; the longest
 *   members are cut first. What is missing is counted by the mark at the end: for an object that is a member named `…`.
 * - `whole` says what became of the whole, and is told in the outermost mark, where there is room for it.
 * - Nothing is shorter than `"…"`: with a budget below three characters the result may have three.
 *
 * **Example** (A list keeps its first items)
 *
 * ```ts import.meta.vitest
 * import { ResultBudget } from "effect-turn"
 *
 * const rows = Array.from({ length: 100 }, (_, i) => i)
 * const cut = ResultBudget.cut(rows, 60)
 * const value = cut.value // => [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, "… [shown: 13 of 100 items]"]
 * const lengths = [cut.of, cut.to] // => [291, 59]
 * ```
 *
 * @category cutting
 * @since 0.1.0
 * @stability experimental
 */
export const cut = (value: unknown, maxChars: number, whole?: Whole): Cut => {
  const of = lengthOf(value)
  if (of <= Math.max(maxChars, least)) return { value, of, to: of }
  const fitted = fit(value, maxChars, 0, whole)
  return { value: fitted, of, to: lengthOf(fitted) }
}

/**
 * Cuts the answer of a call that has failed: its `failure` and its `message`, the longer one first. Every other member stays, so what it
 * says of effects and of trying again is never lost; an answer may be longer than its budget for that.
 *
 * @category cutting
 * @since 0.1.0
 * @stability experimental
 */
export const cutFailure = (value: Readonly<Record<string, unknown>>, maxChars: number, whole?: Whole): Cut => {
  const of = lengthOf(value)
  if (of <= maxChars) return { value, of, to: of }
  const words: unknown = value["message"]
  const failure = value["failure"]
  const has = failure !== undefined
  // As with a text of nothing in the place of each, which takes two.
  const room = maxChars - lengthOf({ ...value, message: "", ...(has ? { failure: "" } : undefined) }) + (has ? 4 : 2)
  const lengths = has ? [lengthOf(words), lengthOf(failure)] : [lengthOf(words)]
  const [forWords = 0, forFailure = 0] = share(lengths, Math.max(room, 0))
  const shorter = cut(words, forWords, whole)
  const { failure: _, ...rest } = value
  const [ofWords = 0, ofFailure = 0] = lengths
  const bothFit = has && forWords >= Math.min(least, ofWords) && forFailure >= Math.min(least, ofFailure)
  const fitted = !bothFit
    ? {
      ...rest,
      message: has && shorter.value === words ? cut(words, forWords + forFailure, whole).value : shorter.value
    }
    : {
      ...value,
      message: shorter.value,
      // The whole is named once.
      failure: cut(failure, forFailure, shorter.value === words ? whole : undefined).value
    }
  return { value: fitted, of, to: lengthOf(fitted) }
}

/**
 * Shares an amount: what needs little has all that it needs, and the others the same each, of what is left. Where that leaves a
 * remainder, the larger ones get it, and of equal ones the later.
 *
 * **Example** (The small ones first)
 *
 * ```ts import.meta.vitest
 * import { ResultBudget } from "effect-turn"
 *
 * const shares = ResultBudget.share([10, 400, 20, 300], 230) // => [10, 100, 20, 100]
 * ```
 *
 * @category sharing
 * @since 0.1.0
 * @stability experimental
 */
export const share = (needs: ReadonlyArray<number>, total: number): ReadonlyArray<number> => {
  const order = needs.map((_, i) => i).sort((a, b) => needs[a]! - needs[b]! || a - b)
  const shares = needs.slice()
  let left = total
  order.forEach((i, done) => {
    const part = Math.min(needs[i]!, Math.floor(left / (order.length - done)))
    shares[i] = part
    left -= part
  })
  return shares
}

/**
 * Shares the budget of a turn among its answers: failures first, and then results, the small ones before the large ones. Where the failures
 * alone are too much, they share what is left beside a mark for each result.
 *
 * @category sharing
 * @since 0.1.0
 * @stability experimental
 */
export const allot = (
  answers: ReadonlyArray<{ readonly length: number; readonly isFailure: boolean }>,
  total: number
): ReadonlyArray<number> => {
  const lengthsOf = (isFailure: boolean) =>
    answers.filter((one) => one.isFailure === isFailure).map((one) => one.length)
  const sum = (lengths: ReadonlyArray<number>) => lengths.reduce((all, one) => all + one, 0)
  const failures = lengthsOf(true)
  const results = lengthsOf(false)
  const marks = sum(results.map((length) => Math.min(length, least)))
  const forFailures = share(failures, Math.min(sum(failures), Math.max(total - marks, 0)))
  const forResults = share(results, Math.max(total - sum(forFailures), 0))
  let f = 0
  let r = 0
  return answers.map(({ isFailure }) => isFailure ? forFailures[f++]! : forResults[r++]!)
}

/** What a mark says of the whole; marks inside of others say nothing of it. */
const ofWhole = (whole: Whole): string =>
  whole === undefined ? "" : whole === "lost" ? "; the whole was not kept" : `; whole: artifact ${whole.artifact}`

/** The longest mark for which there is room: one with all words takes at most half of it, the id of the whole as much as there is. */
const pick = (full: string, whole: Whole, room: number): string => {
  if (2 * lengthOf(full) <= room) return full
  if (typeof whole === "object") {
    const short = `${mark} [artifact ${whole.artifact}]`
    if (lengthOf(short) <= room) return short
  }
  return mark
}

const fit = (value: unknown, room: number, depth: number, whole: Whole): unknown => {
  if (typeof value === "string") return fitText(value, room, whole)
  if (typeof value !== "object" || value === null || depth > maxDepth) return mark
  return Array.isArray(value) ? fitList(value, room, depth, whole) : fitMembers(value, room, depth, whole)
}

const fitText = (text: string, room: number, whole: Whole): string => {
  const markOf = (shown: number) => `${mark} [shown: ${shown} of ${text.length} characters${ofWhole(whole)}]`
  const widest = markOf(text.length)
  const chosen = pick(widest, whole, room)
  const head = text.slice(0, borderBefore(text, lastFitting(text, room - lengthOf(chosen))))
  return `${head.toWellFormed()}${chosen === widest ? markOf(head.length) : chosen}`
}

/** How many characters of a text have JSON of so many. Halves of surrogate pairs count as one: they are replaced. */
const lastFitting = (text: string, room: number): number => {
  let used = 0
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    used += code >= 0x20 ? code === 0x22 || code === 0x5c ? 2 : 1 : shortEscapes.has(code) ? 2 : 6
    if (used > room) return i
  }
  return text.length
}

/** \b \t \n \f \r */
const shortEscapes = new Set([8, 9, 10, 12, 13])

const fitList = (list: ReadonlyArray<unknown>, room: number, depth: number, whole: Whole): unknown => {
  if (room < least + 2) return mark
  const markOf = (shown: number) => `${mark} [shown: ${shown} of ${list.length} items${ofWhole(whole)}]`
  const widest = markOf(list.length)
  const chosen = pick(widest, whole, room - 2)
  const items: Array<unknown> = []
  // Each item with the comma after it, for the mark comes last.
  let left = room - 2 - lengthOf(chosen)
  for (const item of list) {
    const length = lengthOf(item) + 1
    if (length > left) {
      // A first item that is too long is cut, and so is a later one where most of the room would be lost.
      const piece = items.length === 0 || 2 * left > room ? cutItem(item, left - 1, depth) : mark
      if (piece !== mark) items.push(piece)
      break
    }
    items.push(item)
    left -= length
  }
  if (items.length < list.length) items.push(chosen === widest ? markOf(items.length) : chosen)
  else if (whole !== undefined) items.push(chosen === widest ? `${mark} [shortened${ofWhole(whole)}]` : chosen)
  return items
}

const cutItem = (item: unknown, room: number, depth: number): unknown =>
  room < least ? mark : fit(item, room, depth + 1, undefined)

interface Member {
  readonly name: string
  readonly value: unknown
  readonly length: number
  /** What stands around its value: the name, a colon, a comma. */
  readonly around: number
}

const fitMembers = (object: object, room: number, depth: number, whole: Whole): unknown => {
  const members = Object.entries(object).flatMap(([name, value]): ReadonlyArray<Member> =>
    value === undefined ? [] : [{ name, value, length: lengthOf(value), around: lengthOf(name) + 2 }]
  )
  let key = mark
  while (Object.hasOwn(object, key)) key += mark
  const markAround = lengthOf(key) + 2
  const made = (kept: ReadonlyArray<Member>, left: number, note: string | undefined) => {
    const shares = share(kept.map(({ length }) => length), left)
    const entries = kept.map(({ length, name, value }, i) =>
      [name, length <= shares[i]! ? value : fit(value, shares[i]!, depth + 1, undefined)] as const
    )
    return Object.fromEntries(note === undefined ? entries : [...entries, [key, note]])
  }
  // The braces, and one comma less than members.
  const inner = room - 1
  const noteOfAll = whole === undefined
    ? undefined
    : pick(`[shortened${ofWhole(whole)}]`, whole, inner - markAround)
  const forNote = noteOfAll === undefined ? 0 : markAround + lengthOf(noteOfAll)
  const leftOfAll = members.reduce((left, { around }) => left - around, inner - forNote)
  const leastOfAll = members.reduce((all, { length }) => all + Math.min(length, least), 0)
  if (leastOfAll <= leftOfAll) return made(members, leftOfAll, noteOfAll)
  const noteOf = (dropped: number) => `[left out: ${dropped} of ${members.length} members${ofWhole(whole)}]`
  const widest = noteOf(members.length)
  const note = pick(widest, whole, inner - markAround)
  const withNote = inner - markAround - lengthOf(note)
  if (withNote < 0) return mark
  // Those that are kept get room for more than a mark, if any does.
  const few = firstMembers(members, withNote, 24)
  const kept = few.length > 0 ? few : firstMembers(members, withNote, least)
  const left = kept.reduce((left, { around }) => left - around, withNote)
  return made(kept, left, note === widest ? noteOf(members.length - kept.length) : note)
}

/** The first members for which there is room, when each has so much. */
const firstMembers = (members: ReadonlyArray<Member>, room: number, each: number): ReadonlyArray<Member> => {
  let left = room
  const end = members.findIndex(({ around, length }) => (left -= around + Math.min(length, each)) < 0)
  return end === -1 ? members : members.slice(0, end)
}

let segmenter: Intl.Segmenter | undefined

/** Characters that never join with one another: ASCII without controls, and the ideographs of Chinese, Japanese and Korean. */
const standsAlone = (code: number): boolean => (code >= 0x20 && code < 0x7f) || (code >= 0x4e00 && code < 0xa000)

/** How far back from a cut a sure border is looked for, before the whole text is. */
const window = 1_024

/**
 * The last place at or before `at` where a text can be cut between two characters as a reader sees them.
 *
 * **Details**
 *
 * Only what stands near the place is looked at, where the text allows it.
 *
 * @category cutting
 * @since 0.1.0
 * @stability experimental
 */
export const borderBefore = (text: string, at: number): number => {
  if (at <= 0) return 0
  if (at >= text.length) return text.length
  for (let i = at; i > Math.max(0, at - window); i--) {
    if (standsAlone(text.charCodeAt(i - 1)) && standsAlone(text.charCodeAt(i))) {
      return i === at
        ? i
        : nearer(text, i, at)
    }
  }
  return nearer(text, 0, at)
}

const nearer = (text: string, from: number, at: number): number => {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" })
  // The character at the place has to be whole.
  return from + segmenter.segment(text.slice(from, at + 2)).containing(at - from)!.index
}

/** The end of the character, as a reader sees it, that begins at a place where a text can be cut.
 *
 * @internal
 */
export const borderAfter = (text: string, at: number): number => {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" })
  for (let room = 64;; room *= 4) {
    const length = segmenter.segment(text.slice(at, at + room)).containing(0)?.segment.length ?? 0
    // One that ends with what was looked at may go on behind it.
    if (length < room || at + room >= text.length) return at + length
  }
}
