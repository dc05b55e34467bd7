/** JSON that people write: what is wrong with it is told with its place. */
import * as Effect from "effect/Effect"
import { Misuse } from "./failure.ts"

/** Parses JSON, or says where it is none. */
export const parse = (
  source: string,
  text: string,
  words: { readonly expected: string; readonly advice: string }
): Effect.Effect<unknown, Misuse> =>
  Effect.try({
    try: (): unknown => JSON.parse(text.replace(/^\ufeff/, "")),
    catch: () => notJson(source, text, words)
  })

/** The refusal of text that is not JSON. */
export const notJson = (
  source: string,
  text: string,
  { advice, expected }: { readonly expected: string; readonly advice: string }
): Misuse => {
  if (text.replace(/^\ufeff/, "").trim() === "") {
    return new Misuse({ what: `${source} is empty`, expected, received: "nothing", advice })
  }
  const fault = faultIn(text)
  return new Misuse({
    what: `${source} is not JSON${fault === undefined ? "" : `, at line ${fault.line}, column ${fault.column}`}`,
    expected: fault === undefined ? expected : fault.expected,
    received: fault === undefined ? "text that cannot be parsed" : fault.received,
    advice: fault?.received === "the end" ? "it was cut off: get the whole of it" : advice
  })
}

/** Where a text stops to be JSON, what could stand there, and what does. */
export interface Fault {
  readonly line: number
  readonly column: number
  readonly expected: string
  readonly received: string
}

const token =
  /[ \t\r\n]*(?:([{}[\]:,])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)(?!\w)))/y

type State = "value" | "value or ]" | "name" | "name or }" | ":" | ", or end" | "nothing more"

/** The first place where the text is no JSON; `undefined` where it is. */
export const faultIn = (text: string): Fault | undefined => {
  const open: Array<"{" | "["> = []
  let state: State = "value"
  let at = text.startsWith("\ufeff") ? 1 : 0
  const after = (): State => open.length === 0 ? "nothing more" : ", or end"
  for (;;) {
    token.lastIndex = at
    const match = token.exec(text)
    const sign = match?.[1]
    const isText = match?.[2] !== undefined
    const next = stateAfter(state, sign, isText, match?.[3] !== undefined, open, after)
    if (match === null || next === undefined) {
      const blank = /[ \t\r\n]*/y
      blank.lastIndex = at
      const place = at + blank.exec(text)![0].length
      if (place === text.length && state === "nothing more") return undefined
      return { ...placeOf(text, place), expected: words(state, open.at(-1)), received: shown(text, place) }
    }
    state = next
    at = token.lastIndex
  }
}

/** Takes one token in; `undefined` where it cannot stand. */
const stateAfter = (
  state: State,
  sign: string | undefined,
  isText: boolean,
  isOther: boolean,
  open: Array<"{" | "[">,
  after: () => State
): State | undefined => {
  switch (state) {
    case "value":
    case "value or ]":
      if (isText || isOther) return after()
      if (sign === "{" || sign === "[") {
        open.push(sign)
        return sign === "{" ? "name or }" : "value or ]"
      }
      if (sign !== "]" || state === "value") return undefined
      open.pop()
      return after()
    case "name":
    case "name or }":
      if (isText) return ":"
      if (sign !== "}" || state === "name") return undefined
      open.pop()
      return after()
    case ":":
      return sign === ":" ? "value" : undefined
    case ", or end":
      if (sign === ",") return open.at(-1) === "{" ? "name" : "value"
      if (sign !== (open.at(-1) === "{" ? "}" : "]")) return undefined
      open.pop()
      return after()
    case "nothing more":
      return undefined
  }
}

const words = (state: State, inside: "{" | "[" | undefined): string => {
  switch (state) {
    case "value":
      return "a value: an object, a list, a text in double quotes, a number, true, false or null"
    case "value or ]":
      return "a value, or ] to end the list"
    case "name":
      return "a name in double quotes"
    case "name or }":
      return "a name in double quotes, or } to end the object"
    case ":":
      return "a colon behind the name"
    case ", or end":
      return inside === "{" ? "a comma, or } to end the object" : "a comma, or ] to end the list"
    case "nothing more":
      return "nothing more: one JSON value, which ends before"
  }
}

const placeOf = (text: string, place: number): { readonly line: number; readonly column: number } => {
  const before = text.slice(0, place).split(/\r\n|\r|\n/)
  return { line: before.length, column: Array.from(before.at(-1)!).length + 1 }
}

const shown = (text: string, place: number): string => {
  if (place >= text.length) return "the end"
  const rest = Array.from(text.slice(place, place + 60).split(/[\r\n]/)[0]!)
  return rest.length > 24 ? `${rest.slice(0, 24).join("")}…` : rest.join("")
}
