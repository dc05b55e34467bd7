/** Temporary. */
import * as Result from "effect/Result"
import type * as TurnError from "../TurnError.ts"
import * as Dialect from "../wire/Dialect.ts"
import { type AnyDialect, dialects } from "../wire/Dialects.ts"
export const parse = (text: string): Result.Result<ReadonlyArray<unknown>, TurnError.TurnError> => {
  const out: Array<unknown> = []
  for (const line of text.split("\n")) {
    const m = /^(?:data:)?\s*(\{.*)$/.exec(line)
    if (m) {
      try {
        out.push(JSON.parse(m[1]!))
      } catch {
        return Dialect.refuse("event stream", "", "JSON", line)
      }
    }
  }
  return Result.succeed(out)
}
export const detectStream = (events: ReadonlyArray<unknown>): Result.Result<AnyDialect, TurnError.TurnError> =>
  events.some((e) => Dialect.isRecord(e) && e.object === "chat.completion.chunk")
    ? Result.succeed(dialects[0]!)
    : Dialect.refuse("unknown", "", "stream", "x")
