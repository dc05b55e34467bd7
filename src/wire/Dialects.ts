/**
 * All dialects that this version knows, and which of them a message is in.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import type * as TurnError from "../TurnError.ts"
import * as AnthropicMessages from "./AnthropicMessages.ts"
import * as Dialect from "./Dialect.ts"
import * as GeminiContents from "./GeminiContents.ts"
import * as Neutral from "./Neutral.ts"
import * as OpenAiChat from "./OpenAiChat.ts"
import * as OpenAiResponses from "./OpenAiResponses.ts"
import { text as stringOf } from "./stream/parts.ts"

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
export const dialects: ReadonlyArray<AnyDialect> = [
  OpenAiChat.dialect,
  OpenAiResponses.dialect,
  AnthropicMessages.dialect,
  GeminiContents.dialect,
  Neutral.dialect
]

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
export const detect = (input: unknown): Result.Result<AnyDialect, TurnError.TurnError> =>
  Dialect.safely("unknown", () => {
    const dialect = dialects.find((dialect) => dialect.matches(input))
    return dialect === undefined
      ? Dialect.refuse(
        "unknown",
        "",
        'a Chat Completions response (with "choices"), a Responses response (with "output"), an Anthropic message (with "content"), ' +
          'a Gemini response (with "candidates"), the assistant\'s message of one of these, or calls in the neutral form ' +
          '({"calls": [{"id", "name", "arguments"}]}, or the list alone)',
        describe(input)
      )
      : Result.succeed(dialect)
  })

const describe = (input: unknown): string => {
  if (Array.isArray(input)) return describeList(input)
  if (!Dialect.isRecord(input)) return Dialect.describe(input)
  if (Dialect.isRecord(input.error)) return `the provider's error ${JSON.stringify(input.error.message ?? input.error)}`
  if (isEvent(input)) return `${JSON.stringify(input.type)}, an event of a stream (assemble its events first)`
  for (const [field, one] of conversations) {
    if (Array.isArray(input[field])) return `a request, with ${field} (hand over ${one} alone)`
  }
  const keys = Object.keys(input)
  return keys.length === 0
    ? "an empty object"
    : `an object with the fields ${keys.slice(0, 8).map((key) => JSON.stringify(key)).join(", ")}${
      keys.length > 8 ? ", …" : ""
    }`
}

const conversations = [
  ["messages", "the assistant's message"],
  ["input", "the items of the last response"],
  ["contents", "the model's content"]
] as const

const describeList = (input: ReadonlyArray<unknown>): string => {
  const some = (is: (one: Record<string, unknown>) => boolean) => input.some((one) => Dialect.isRecord(one) && is(one))
  if (some(isEvent) || some((one) => "candidates" in one || "choices" in one)) {
    return `a list of ${input.length} events of a stream (assemble them first)`
  }
  if (some((one) => Array.isArray(one.parts))) {
    return `a list of ${input.length} contents (hand over the model's content alone)`
  }
  if (some((one) => "call_id" in one)) {
    return `a list of ${input.length} items of a conversation (hand over those of the last response alone)`
  }
  if (some((one) => "role" in one)) {
    return `a list of ${input.length} messages (hand over the assistant's message alone)`
  }
  const [first] = input
  return input.length === 1 && Dialect.isRecord(first) && Dialect.isRecord(first.error)
    ? describe(first)
    : `a list of ${input.length} things that are no calls`
}

/** Chunks of Chat Completions and Gemini look like responses; the others name what they are. */
const isEvent = (input: Record<string, unknown>): boolean =>
  /^(response\.\w|message_(start|delta|stop)$|content_block_|ping$)/.test(stringOf(input.type))
