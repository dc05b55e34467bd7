/** Text of recordings for a page: none of it is markup, and none of it hides. */

/** What cannot be seen, or turns text round, as something that can be seen. */
export const visible = (text: string): string =>
  text.toWellFormed().replace(
    /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu,
    (character) => character === "\t" ? " " : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
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

export const number = (value: number | null): string => value === null ? "?" : grouped.format(value)

export const plural = (n: number, one: string, many = `${one}s`): string => `${number(n)} ${n === 1 ? one : many}`

const rounded = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 })

/** A number where there is little room, or where its last digits mean nothing. */
export const short = (value: number): string => rounded.format(value)

const longest = 38

/** A name that fits above a bar on a telephone. */
export const cut = (text: string): string => {
  const characters = [
    ...new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(visible(text).slice(0, 400))
  ]
  return characters.length <= longest
    ? text
    : `${characters.slice(0, longest - 1).map(({ segment }) => segment).join("")}…`
}
