/** Text for a terminal: names, ids and messages come from models and tools, so none of it may steer the terminal. */
import { displayWidth } from "effect/cli/CliOutput"
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"

/** Replaces control characters, line breaks and marks that turn text round by something that can be seen. */
export const clean = (text: string): string =>
  text.toWellFormed().replace(
    /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu,
    (character) =>
      character === "\n"
        ? "\\n"
        : character === "\t"
        ? " "
        : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

/** Cuts text to a width in columns, with a mark where something was cut. */
export const cut = (text: string, width: number): string => {
  if (displayWidth(text) <= width) return text
  let result = ""
  let used = 1
  for (const { segment } of graphemes.segment(text)) {
    used += displayWidth(segment)
    if (used > width) break
    result += segment
  }
  return width < 1 ? "" : `${result}…`
}

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" })

/** `a, b or c`. */
export const or = (words: ReadonlyArray<string>): string =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`

/** Fills text up to a width in columns. */
export const pad = (text: string, width: number): string => text + " ".repeat(Math.max(0, width - displayWidth(text)))

/** A time that a person reads at a glance. */
export const duration = (millis: number): string =>
  millis < 1000 ? `${Math.round(millis)} ms` : millis < 60_000 ? `${(millis / 1000).toFixed(2)} s` : minutes(millis)

const minutes = (millis: number): string =>
  `${Math.floor(millis / 60_000)} min ${Math.round((millis % 60_000) / 1000)} s`

const units = new Map([["", 1], ["ms", 1], ["s", 1000], ["m", 60_000], ["h", 3_600_000]])

/** A time that a person writes, in milliseconds: `500ms`, `30s`, `2m`, `1 minute`. */
export const parseTime = (text: string, least: 0 | 1): Option.Option<number> => {
  const short = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|)$/.exec(text.trim())
  const millis = short === null
    ? Option.getOrUndefined(Option.map(Duration.fromInput(text.trim() as Duration.Input), Duration.toMillis))
    : Number(short[1]) * units.get(short[2]!)!
  return millis !== undefined && millis >= least && millis <= 2 ** 31 - 1 ? Option.some(millis) : Option.none()
}

/** A value as short JSON. */
export const json = (value: unknown): string => {
  try {
    return clean(typeof value === "string" ? value : JSON.stringify(value) ?? "nothing")
  } catch {
    return "a value that JSON cannot hold"
  }
}

/** Breaks lines at words, so that each fits; what follows stands below the text of its line, or of its last column. */
export const wrap = (text: string, width: number): string =>
  text.split("\n").map((line) => displayWidth(line) <= width ? line : wrapLine(line, width)).join("\n")

const wrapLine = (line: string, width: number): string => {
  const indent = /^ */.exec(line)![0].length
  const columns = displayWidth(/^ *\S.*? {2,}(?=\S)/.exec(line)?.[0] ?? "")
  const hang = " ".repeat(columns === 0 ? indent : width - columns < 30 ? indent + 4 : columns)
  const lines: Array<string> = []
  let current = ""
  for (const word of line.match(/ *[^ ]+/g)!) {
    if (displayWidth(current + word) > width && current.trim() !== "") {
      lines.push(current)
      current = hang + word.trimStart()
    } else current += word
  }
  return [...lines, current].join("\n")
}

/** The name that is spelt most like this one, if any is. */
export const nearest = (name: string, names: ReadonlyArray<string>): string | undefined => {
  const ranked = names.map((other) => ({ other, edits: edits(name.toLowerCase(), other.toLowerCase()) }))
  const best = ranked.sort((a, b) => a.edits - b.edits)[0]
  return best !== undefined && best.edits <= Math.max(2, best.other.length / 3) ? best.other : undefined
}

/** How many letters have to be changed, added or left out. */
const edits = (from: string, to: string): number => {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[to.length]!
}

/** Colours, or none. */
export interface Paint {
  readonly ok: (text: string) => string
  readonly bad: (text: string) => string
  readonly held: (text: string) => string
  readonly faint: (text: string) => string
  readonly strong: (text: string) => string
}

const code = (open: number, close: number) => (text: string) => `\u001b[${open}m${text}\u001b[${close}m`

export const colours: Paint = {
  ok: code(32, 39),
  bad: code(31, 39),
  held: code(33, 39),
  faint: code(2, 22),
  strong: code(1, 22)
}

const same = (text: string) => text

export const plain: Paint = { ok: same, bad: same, held: same, faint: same, strong: same }
