/** Streams of OpenAI's Responses. */
import * as Result from "effect/Result"
import type * as Dialect from "../Dialect.ts"

export const assembly = (): Dialect.Assembly => {
  let last: unknown
  return {
    push: (event) => {
      last = event
      return Result.succeed([])
    },
    response: () => Result.succeed(last),
    isOver: () => true
  }
}
