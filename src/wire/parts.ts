/** What a tool makes of its success for the model (`toModelOutput`), read so that each provider can be told in its own way. */
import type * as Prompt from "effect/ai/Prompt"
import * as Base64 from "effect/encoding/Base64"
import * as Result from "effect/Result"
import type * as Outcome from "../Outcome.ts"
import type { HistoryOptions } from "./Dialect.ts"

export type Part = Prompt.ToolModelOutputPart

/** The parts for the model of a call that has succeeded; undefined where there are none, and its plain result is what the model gets. */
export const partsOf = (
  outcome: Outcome.Outcome<any>,
  options: HistoryOptions | undefined
): ReadonlyArray<Part> | undefined => {
  if (outcome.status !== "ok") return undefined
  const parts = (outcome.shown?.output ?? made(outcome, options) ?? [])
    .filter((part) => part.type === "file" || part.text.trim() !== "")
  return parts.length === 0 ? undefined : parts
}

const made = ({ name, result }: Outcome.Ok<string, any>, options: HistoryOptions | undefined) => {
  const tools = options?.toolkit?.tools ?? {}
  const tool = Object.hasOwn(tools, name) ? tools[name] : undefined
  try {
    return tool?.toModelOutput?.(result)
  } catch {
    // The call has succeeded; the model is told its result as it is.
    return undefined
  }
}

/** The parts as one text, for a provider that takes nothing else. */
export const textOf = (parts: ReadonlyArray<Part>): string =>
  parts.map((part) => part.type === "text" ? part.text.toWellFormed() : wordsOf(part)).join("\n")

/** What stands in the place of a file that cannot be sent. */
export const wordsOf = (file: Prompt.FilePart): string => `[${labelOf(file)} omitted]`

/** A file by its type and name. */
export const labelOf = ({ fileName, mediaType }: Prompt.FilePart): string =>
  `${mediaType}${fileName === undefined ? "" : ` ${fileName}`}`.toWellFormed()

/** A file as providers take it: by reference, or as Base64 with padding. */
export interface File {
  readonly mediaType: string
  readonly name: string | undefined
  readonly url: string | undefined
  readonly base64: string | undefined
}

/** Reads the file of a part: its bytes, their Base64 (also in a `data:` URL), or where it lies. */
export const fileOf = ({ data, fileName, mediaType }: Prompt.FilePart): File => {
  const file = { mediaType: mediaType.toLowerCase(), name: fileName?.toWellFormed() }
  if (data instanceof Uint8Array) {
    return { ...file, url: undefined, base64: data.length === 0 ? undefined : Base64.encode(data) }
  }
  const text = String(data)
  const embedded = /^data:([^;,]*)[^,]*;base64,/i.exec(text)
  if (embedded !== null) {
    const type = embedded[1]!.toLowerCase()
    return {
      ...file,
      ...(type === "" ? undefined : { mediaType: type }),
      url: undefined,
      base64: padded(text.slice(embedded[0].length))
    }
  }
  return /^[a-z][a-z\d+.-]*:/i.test(text)
    ? { ...file, url: text, base64: undefined }
    : { ...file, url: undefined, base64: padded(text) }
}

/** Base64 in the alphabet and with the padding that providers ask for; undefined when it is none. */
const padded = (text: string): string | undefined => {
  const bare = text.replace(/[\s=]/g, "").replaceAll("-", "+").replaceAll("_", "/")
  if (bare === "" || bare.length % 4 === 1 || /[^a-z\d+/]/i.test(bare)) return undefined
  return bare.padEnd(Math.ceil(bare.length / 4) * 4, "=")
}

/** The text in a file; undefined when it holds none. */
export const textIn = (file: File): string | undefined => {
  if (file.base64 === undefined) return undefined
  const text = Result.getOrUndefined(Base64.decodeString(file.base64))?.toWellFormed()
  return text === undefined || text.trim() === "" ? undefined : text
}
