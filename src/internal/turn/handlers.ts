/** Handlers that run each of their calls as a turn of one call. */
import * as AiError from "effect/ai/AiError"
import type * as Tool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Outcome from "../../Outcome.ts"
import * as ToolCall from "../../ToolCall.ts"
import { type AnyToolkit, entryOf } from "./tool.ts"

/** Runs one call of the toolkit on the runtime of the layer. */
export type RunOne = (call: ToolCall.ToolCall) => Effect.Effect<Outcome.Outcome<any>, never, any>

/** What a handler is called with beside its parameters. */
interface Call {
  readonly toolCallId?: string | undefined
  readonly preliminary: (result: unknown) => Effect.Effect<void>
}

type AnyHandler = Tool.Handler<string>

/** Of the handlers in this context those of the toolkit, each governed under its own tag. */
export const governedHandlers = (
  toolkit: AnyToolkit,
  context: Context.Context<never>,
  run: RunOne
): Context.Context<never> => {
  const handlers = new Map<string, unknown>()
  for (const tool of Object.values(toolkit.tools as Record<string, Tool.Any>)) {
    const own = context.mapUnsafe.get(tool.id) as AnyHandler | undefined
    if (own === undefined) continue
    const handler = (params: unknown, call: Call) => governedCall(tool, own, run, params, call)
    handlers.set(tool.id, { ...own, handler })
  }
  return Context.makeUnsafe(handlers)
}

const governedCall = (
  tool: Tool.Any,
  own: AnyHandler,
  run: RunOne,
  params: unknown,
  call: Call
): Effect.Effect<unknown, unknown, any> => {
  // The handler itself, for this call: whoever called finds itself in the context.
  const inside: AnyHandler = {
    ...own,
    handler: (params: unknown, inner: Call) =>
      own.handler(params, {
        ...inner,
        preliminary: (result: unknown) => Effect.andThen(inner.preliminary(result), call.preliminary(result))
      })
  }
  return entryOf(tool).encodeParams(params).pipe(
    Effect.orDie,
    Effect.flatMap((encoded) => run(ToolCall.make(call.toolCallId ?? "", tool.name, encoded))),
    Effect.updateContext((context: Context.Context<never>) =>
      Context.merge(context, Context.makeUnsafe(new Map<string, unknown>([[tool.id, inside]])))
    ),
    Effect.flatMap(resultOf)
  )
}

/** A handler's own end again: its success, its failure, or an error of `effect/ai` that says what became of the call. */
const resultOf = (outcome: Outcome.Outcome<any>): Effect.Effect<unknown, unknown> => {
  if (outcome.status === "ok") return Effect.succeed(outcome.result)
  if (outcome.status === "error" && (outcome.code === "failed" || outcome.code === "rate_limited")) {
    return Effect.fail(outcome.failure)
  }
  const description = outcome.message
  // What broke is nobody's business outside.
  if (outcome.status === "error" && outcome.code === "defect") return Effect.die(new Error(description))
  return Effect.fail(
    outcome.retryable
      ? new AiError.InternalProviderError({ description })
      : new AiError.UnknownError({ description })
  )
}
