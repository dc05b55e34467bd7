/** Streams of the neutral form: calls one by one, each complete, then `{"finishReason": ...}`; or a whole message. */
import * as Result from "effect/Result"
import * as Dialect from "../Dialect.ts"
import { type Fields, noEvent } from "./parts.ts"

export const assembly = (): Dialect.Assembly => {
  const calls: Array<unknown> = []
  let rest: Fields = {}
  let isOver = false
  return {
    push: (event) => {
      const message = Array.isArray(event) ? { calls: event } : event
      if (!Dialect.isRecord(message)) return noEvent("neutral", event)
      if (Array.isArray(message.calls)) {
        for (const call of message.calls) calls.push(call)
        rest = message
        isOver = true
        return Result.succeed(message)
      }
      if ("finishReason" in message && !("name" in message)) {
        rest = message
        isOver = true
        return Result.succeed(undefined)
      }
      calls.push(message)
      return Result.succeed({ calls: [message] })
    },
    response: () => ({ ...rest, calls }),
    isOver: () => isOver
  }
}
