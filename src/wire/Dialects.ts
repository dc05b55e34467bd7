/**
 * All dialects that this version knows, and which of them a message is in.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import type * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import * as Neutral from "./Neutral.ts"
import * as OpenAiChat from "./OpenAiChat.ts"

/**
 * A dialect, whichever it is.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type AnyDialect = Dialect.Dialect<any, unknown>

/**
 * The dialects, in the order in which they are tried.
 *
 * @category dialects
 * @since 0.1.0
 * @stability experimental
 */
export const dialects: ReadonlyArray<AnyDialect> = [OpenAiChat.dialect, Neutral.dialect]

/**
 * Tells in which dialect a message is.
 *
 * **Example** (Whose message is it?)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { detect } from "effect-turn/wire"
 *
 * const dialect = Result.getOrThrow(detect({ calls: [{ id: "1", name: "get_weather" }] }))
 * const name = dialect.name // => "neutral"
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const detect = (input: unknown): Result.Result<AnyDialect, TurnError.TurnError> => {
  const dialect = dialects.find((dialect) => dialect.matches(input))
  return dialect === undefined
    ? Dialect.refuse(
      "unknown",
      "",
      'a Chat Completions response (with "choices"), one of its choices, an assistant message, or calls in the ' +
        'neutral form ({"calls": [{"id", "name", "arguments"}]}, or the list alone)',
      describe(input)
    )
    : Result.succeed(dialect)
}

const describe = (input: unknown): string => {
  if (typeof input === "string") return "text (parse it first)"
  if (Array.isArray(input)) {
    return input.some((one) => Dialect.isRecord(one) && "role" in one)
      ? `a list of ${input.length} messages (hand over the assistant's message alone)`
      : `a list of ${input.length} things that are no calls`
  }
  if (!Dialect.isRecord(input)) return String(input)
  if (Dialect.isRecord(input.error)) return `the provider's error ${JSON.stringify(input.error.message ?? input.error)}`
  const keys = Object.keys(input)
  return keys.length === 0
    ? "an empty object"
    : `an object with the fields ${keys.slice(0, 8).map((key) => JSON.stringify(key)).join(", ")}${
      keys.length > 8 ? ", …" : ""
    }`
}
