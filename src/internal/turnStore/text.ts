/** Texts for stores that keep UTF-8, and some of them no NUL. */
import * as Digest from "effect/crypto/Digest"
import * as Effect from "effect/Effect"

/**
 * The same text without NUL and without halves of surrogate pairs. Each such character becomes its code in four digits after a mark:
 * U+0001 before NUL, U+E000 before a half, so that texts keep their order by bytes. The marks themselves are written in the same way.
 */
export const escape = (text: string): string =>
  text.replace(
    /[\u0000\u0001\ue000\p{Surrogate}]/gu,
    (character) => (character <= "\u0001" ? "\u0001" : "\ue000") + character.charCodeAt(0).toString(16).padStart(4, "0")
  )

export const unescape = (text: string): string =>
  text.replace(/[\u0001\ue000]([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))

/** SHA-256, in hexadecimal digits: at once where the platform has it, and by Web Crypto elsewhere. */
export const sha256 = (text: string): Effect.Effect<string> => {
  const { process } = globalThis as { readonly process?: Partial<NodeJS.Process> }
  const crypto = process?.getBuiltinModule?.("node:crypto")
  return crypto === undefined
    ? webSha256(text)
    : Effect.sync(() => crypto.createHash("sha256").update(text).digest("hex"))
}

const webSha256 = (text: string): Effect.Effect<string> =>
  Effect.provide(
    Digest.Digest.use((digest) => digest.digestHex(Digest.sha256, new TextEncoder().encode(text))),
    Digest.layerWebCrypto
  )

/** The beginning of a text, by characters. */
export const head = (text: string, characters: number): string =>
  text.length <= characters ? text : Array.from(text.slice(0, 2 * characters)).slice(0, characters).join("")
