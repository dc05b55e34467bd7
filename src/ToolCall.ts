/**
 * One entry of the list that a model emitted: id, tool name and arguments as they came.
 *
 * A call is a label and a request, nothing more. Inside the runtime a call is known by its turn and its
 * **position** in the list; the provider's id is carried along and never used as a key, because ids may be empty,
 * repeated in another turn, or repeated in the same turn.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * One call of a turn.
 *
 * **Details**
 *
 * - `id`: the provider's id, `""` when the provider gave none. Two calls with an empty id are two calls.
 * - `arguments`: JSON text as the model wrote it, or the object that a client library has already parsed. Blank text,
 *   and absent or null arguments, mean `{}`.
 * - `providerExecuted`: the provider ran the call itself; it is answered `provider_executed` and never run here.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly arguments?: unknown
  readonly providerExecuted?: boolean | undefined
}

/**
 * Schema of {@link ToolCall}, for files and wires.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const ToolCall = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  arguments: Schema.optionalKey(Schema.Unknown),
  providerExecuted: Schema.optionalKey(Schema.Boolean)
})

/**
 * How the model's response ended.
 *
 * **Details**
 *
 * `length`, `content-filter` and `error` mean that the response was cut short: nothing of it runs.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const FinishReason = Schema.Literals([
  "stop",
  "tool-calls",
  "pause",
  "length",
  "content-filter",
  "error",
  "other",
  "unknown"
])

/**
 * How the model's response ended.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type FinishReason = typeof FinishReason.Type

/**
 * Tells whether a response with this finish reason was cut short, so that none of its calls may run.
 *
 * @category predicates
 * @since 0.1.0
 * @stability experimental
 */
export const isCutShort = (reason: FinishReason | undefined): boolean =>
  reason === "length" || reason === "content-filter" || reason === "error"

/**
 * Makes a call from its parts.
 *
 * **Example** (A call with parsed arguments)
 *
 * ```ts import.meta.vitest
 * import { ToolCall } from "effect-turn"
 *
 * const call = ToolCall.make("call_1", "get_weather", { city: "Oslo" })
 * const name = call.name // => "get_weather"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (id: string, name: string, args?: unknown): ToolCall => ({ id, name, arguments: args })

/**
 * Takes the calls out of `effect/ai` response parts (`response.toolCalls`), in emission order.
 *
 * **Details**
 *
 * Reads `id`, `name`, `params` and `providerExecuted`, so any object of that shape fits.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const fromParts = (
  parts: Iterable<{
    readonly id: string
    readonly name: string
    readonly params: unknown
    readonly providerExecuted?: boolean | undefined
  }>
): Array<ToolCall> =>
  Array.from(parts, (part): ToolCall => ({
    id: part.id,
    name: part.name,
    arguments: part.params,
    ...(part.providerExecuted === true ? { providerExecuted: true } : undefined)
  }))
