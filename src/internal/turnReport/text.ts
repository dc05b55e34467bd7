/** Text of others, for a page or a terminal: none of it is markup, none of it steers, and none of it hides. */

/** What cannot be seen, or turns text round, as something that can be seen. */
export const visible = (text: string): string =>
  text.toWellFormed().replace(
    /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

const entities: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" }

export const escape = (text: string): string => visible(text).replace(/[&<>"']/g, (character) => entities[character]!)

/** JSON inside a script element: nothing in it ends the element. */
export const escapeJson = (value: unknown): string =>
  JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 })

export const number = (value: number): string => grouped.format(value)

export const plural = (n: number, one: string): string => `${number(n)} ${one}${n === 1 ? "" : "s"}`

/** A time that a person reads at a glance. The page's script has the same. */
export const duration = (millis: number): string => {
  if (millis < 999.5) return `${Math.round(millis * 10) / 10} ms`
  if (millis < 59_995) return `${(millis / 1000).toFixed(2)} s`
  const seconds = Math.round(millis / 1000)
  return seconds < 3600
    ? `${Math.floor(seconds / 60)} min ${seconds % 60} s`
    : `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
}

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" })

/** Two columns on a terminal: East Asian wide and full-width characters, and emoji. */
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{18cff}\u{1b000}-\u{1b2ff}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}|\p{Emoji}\ufe0f/u

const invisible = /^[\p{Mn}\p{Me}\p{Cf}]+$/u

const columnsOf = (grapheme: string): number => invisible.test(grapheme) ? 0 : wide.test(grapheme) ? 2 : 1

/** How many columns a text takes on a terminal. */
export const widthOf = (text: string): number => {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length
  let width = 0
  for (const { segment } of graphemes.segment(text)) width += columnsOf(segment)
  return width
}

/** The text as wide as that exactly: cut with a mark, or filled. */
export const fitted = (text: string, width: number): string => {
  const cut = shortened(text, width)
  return cut + " ".repeat(Math.max(0, width - widthOf(cut)))
}

/** The text at most as wide as that. */
export const shortened = (text: string, width: number): string => {
  if (widthOf(text) <= width) return text
  if (width < 1) return ""
  let result = ""
  let used = 1
  for (const { segment } of graphemes.segment(text)) {
    used += columnsOf(segment)
    if (used > width) break
    result += segment
  }
  return `${result}…`
}

/** The text broken at words, so that no line is wider than that; what has no break is cut. Lines after the first are indented. */
export const wrapped = (text: string, width: number, indent = "    "): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let line = ""
  for (const word of text.match(/\s*\S+/g) ?? []) {
    if (line !== "" && widthOf(line) + widthOf(word) > width) {
      lines.push(line)
      line = indent + word.trimStart()
    } else line += word
  }
  return [...lines, line].map((line) => shortened(line, width))
}
