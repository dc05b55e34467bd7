/**
 * The library's own form of a message, for files, tests and providers that no other dialect knows: a list of calls, or
 * `{"calls": [...], "finishReason": "..."}`. What goes back are the outcomes as JSON.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Outcome from "../Outcome.ts"
import * as ToolCall from "../ToolCall.ts"
import type * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import { assembly } from "./stream/neutral.ts"

const name = "neutral"

const Call = Schema.Struct({ ...ToolCall.ToolCall.fields, id: Schema.optional(Schema.String) })

const Calls = Schema.Array(Call)

const Rest = Schema.Struct({ finishReason: Schema.optional(ToolCall.FinishReason) })

/**
 * A message in the neutral form.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Message {
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly finishReason?: ToolCall.FinishReason | undefined
}

/**
 * What goes back: the message, its arguments as objects; then one outcome for each call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Sent = Message | Outcomes

/**
 * The outcomes of a turn as JSON.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Outcomes {
  readonly outcomes: ReadonlyArray<Outcome.Encoded>
}

/**
 * Tells whether this is a list of calls, or an object with one, by its shape.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const matches = (input: unknown): boolean =>
  Dialect.looksLike(() =>
    Array.isArray(input)
      ? input.every((call) => Dialect.isRecord(call) && "name" in call && !("role" in call))
      : Dialect.isRecord(input) && Array.isArray(input.calls)
  )

/**
 * Takes the calls out of the neutral form.
 *
 * **Details**
 *
 * A call is `{"id"?, "name", "arguments"?, "providerExecuted"?}`. It has no other field, so that a misspelt one is not
 * taken for "no arguments".
 *
 * **Example** (A list of calls)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { Neutral } from "effect-turn/wire"
 *
 * const decoded = Result.getOrThrow(Neutral.decode([{ name: "get_weather", arguments: { city: "Oslo" } }]))
 * const calls = decoded.calls // => [{ id: "", name: "get_weather", arguments: { city: "Oslo" } }]
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const decode = (input: unknown): Result.Result<Dialect.Decoded<Message>, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    const isList = Array.isArray(input)
    if (!isList && !(Dialect.isRecord(input) && "calls" in input)) {
      return Dialect.refuse(name, "", 'a list of calls, or {"calls": [...]}', input === null ? "null" : typeof input)
    }
    const checked = Dialect.check(name, Calls, isList ? input : input.calls, {
      path: isList ? "" : "calls",
      excess: "error"
    })
    if (Result.isFailure(checked)) return Result.fail(checked.failure)
    const rest = Dialect.check(name, Rest, isList ? {} : input)
    if (Result.isFailure(rest)) return Result.fail(rest.failure)
    const calls = checked.success.map((call): ToolCall.ToolCall => ({ ...call, id: call.id ?? "" }))
    return Result.succeed({ message: { calls, ...rest.success }, calls, finishReason: rest.success.finishReason })
  })

/**
 * Builds the message, its arguments as objects, and the outcomes of its calls as JSON. Each call keeps its place and
 * its id as it came: a place needs no id.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const history = (
  message: Message,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  options?: Dialect.HistoryOptions
): Result.Result<Array<Sent>, TurnError.TurnError> =>
  Dialect.safely(name, () =>
    Result.map(Dialect.pair(name, calls, outcomes, options), () => [
      { ...message, calls: calls.map((call) => ({ ...call, arguments: Dialect.argumentsOf(call) })) },
      { outcomes: outcomes.map(sentOf) }
    ]))

/** An outcome as JSON, with what the model gets of it where that was cut. */
const sentOf = (outcome: Outcome.Outcome<any>): Outcome.Encoded => {
  const encoded = Outcome.toJson(outcome)
  if (outcome.shown === undefined) return encoded
  const { value } = Outcome.forModel(outcome)
  if (outcome.status === "ok") return { ...encoded, result: value }
  const { failure: _, message: __, ...rest } = encoded
  const { failure, message } = value as { readonly failure?: unknown; readonly message: string }
  return { ...rest, message, ...(failure === undefined ? undefined : { failure }) }
}

/**
 * Wraps calls as a message.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const fromCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): Message => ({ calls })

/**
 * The codec as one value.
 *
 * @category dialects
 * @since 0.1.0
 * @stability experimental
 */
export const dialect: Dialect.Dialect<Message, Sent> = {
  id: "neutral",
  name,
  matches,
  decode,
  history,
  fromCalls,
  assembler: () => Dialect.assembler(assembly(), decode)
}
