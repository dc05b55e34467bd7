/** Whose stream some events are, by the shape of the first that says it. */
import * as Result from "effect/Result"
import type * as TurnError from "../TurnError.ts"
import { isRecord, refuse } from "../wire/Dialect.ts"
import { type AnyDialect, dialects } from "../wire/Dialects.ts"

const shapes: Readonly<Record<string, (event: Record<string, unknown>) => boolean>> = {
  chat: ({ choices, object }) =>
    object === "chat.completion.chunk" ||
    (Array.isArray(choices) && choices.some((one) => isRecord(one) && "delta" in one)),
  responses: ({ type }) => typeof type === "string" && type.startsWith("response."),
  anthropic: ({ type }) => typeof type === "string" && /^(message_(start|delta|stop)|content_block_)/.test(type),
  gemini: (event) => Array.isArray(event.candidates) || "promptFeedback" in event || "usageMetadata" in event,
  neutral: (event) => typeof event.name === "string" || Array.isArray(event.calls)
}

/** Tells in which dialect a stream is. */
export const detectStream = (events: ReadonlyArray<unknown>): Result.Result<AnyDialect, TurnError.TurnError> => {
  for (const event of events) {
    if (!isRecord(event)) continue
    const dialect = dialects.find(({ id }) => shapes[id]?.(event) === true)
    if (dialect !== undefined) return Result.succeed(dialect)
  }
  const error = events.find((event) => isRecord(event) && isRecord(event.error)) as
    | { readonly error: Record<string, unknown> }
    | undefined
  return refuse(
    "unknown",
    "",
    "the events of a stream of Chat Completions, Responses, Anthropic's Messages or Gemini, or of calls in the neutral form",
    error !== undefined
      ? `the provider's error ${JSON.stringify(error.error.message ?? error.error)}`
      : events.length === 0
      ? "no events"
      : `${events.length} events that none of them has`
  )
}
