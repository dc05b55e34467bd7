/**
 * What every provider's codec is: calls and a finish reason out of a message, calls and outcomes back into the messages
 * that the provider wants. Also the kit for writing one.
 *
 * **Invariants** of the histories that a dialect builds ("W" for wire; other modules number their own):
 *
 * - W1: each call of a history has exactly one answer, in the order of the calls.
 * - W2: call and answer carry the same id, which is not empty and stands for one call. Where the model gave none, or
 *   gave one id to different calls, both get a new one together. A re-delivery (same id, name and arguments) is one
 *   call with one answer.
 * - W3: the arguments in a history are JSON objects, whatever the model wrote; its raw text never goes back.
 * - W4: nothing here throws. What a provider is known to refuse is a `TurnError` that says where and why.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import * as Outcome from "../Outcome.ts"
import type * as ToolCall from "../ToolCall.ts"
import * as TurnError from "../TurnError.ts"

/**
 * What a message holds: the calls in the model's order, how the response ended, and the message itself with every field
 * that the provider put into it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Decoded<out Message> {
  readonly message: Message
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly finishReason: ToolCall.FinishReason | undefined
}

/**
 * How a history is built.
 *
 * **Details**
 *
 * `newId` names the calls that came without a usable id. Default: `call_` and the position. Give one where ids must be
 * unique over a whole conversation, or must have a form of their own.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface HistoryOptions {
  readonly newId?: ((position: number) => string) | undefined
  /** The toolkit of the turn: what its tools make of a success for the model (`toModelOutput`) is sent in place of the plain result. */
  readonly toolkit?: { readonly tools: Readonly<Record<string, Tool.Any>> } | undefined
}

/**
 * Puts one response together from the events of its stream, each parsed from JSON. A mutable thing, for one response.
 *
 * **Details**
 *
 * - `push` takes the next event, and gives the calls that the provider has said to be complete by it. They come in the order of the
 *   response: a call that is complete before an earlier one waits for that. Where a provider marks no single call as complete, all come
 *   with the end of the response.
 * - `end` gives the response with all its calls, of which those that `push` gave are the first. A response that broke off, wherever
 *   that was, has the finish reason `"error"`: none of its calls was promised to be whole.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Assembler<out Message> {
  readonly push: (event: unknown) => Result.Result<ReadonlyArray<ToolCall.ToolCall>, TurnError.TurnError>
  readonly end: () => Result.Result<Decoded<Message>, TurnError.TurnError>
}

/**
 * The part of an {@link Assembler} that belongs to one provider: `response` is what the provider would have sent had the
 * response not been streamed, so that {@link Dialect} `decode` reads it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Assembly {
  readonly push: (event: unknown) => Result.Result<ReadonlyArray<ToolCall.ToolCall>, TurnError.TurnError>
  readonly response: () => Result.Result<unknown, TurnError.TurnError>
  /** Whether the provider has said that the response is over. */
  readonly isOver: () => boolean
}

/**
 * Makes an assembler of what a provider streams and how its whole responses are read.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const assembler = <Message>(
  assembly: Assembly,
  decode: Dialect<Message, any>["decode"]
): Assembler<Message> => ({
  push: assembly.push,
  end: () =>
    Result.flatMap(assembly.response(), (response) =>
      Result.map(
        decode(response),
        (decoded): Decoded<Message> => assembly.isOver() ? decoded : { ...decoded, finishReason: "error" }
      ))
})

/**
 * One provider's way to write calls and answers. `Message` is what comes in, `Sent` what goes back.
 *
 * **Details**
 *
 * - `matches` looks at the shape alone, and is cheap.
 * - `decode` takes a whole response or the message in it.
 * - `history` gives what stands in the conversation next: the model's message, then the answers. It refuses to build
 *   what the provider is known to refuse.
 * - `fromCalls` writes a message that makes these calls, for calls that came from elsewhere.
 * - `assembler` is for a response that comes as a stream.
 * - `id` is a short name, for flags and files; `name` is for people.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Dialect<in out Message, out Sent> {
  readonly id: string
  readonly name: string
  readonly matches: (input: unknown) => boolean
  readonly decode: (input: unknown) => Result.Result<Decoded<Message>, TurnError.TurnError>
  readonly history: (
    message: Message,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    outcomes: ReadonlyArray<Outcome.Outcome<any>>,
    options?: HistoryOptions
  ) => Result.Result<Array<Sent>, TurnError.TurnError>
  readonly fromCalls: (calls: ReadonlyArray<ToolCall.ToolCall>) => Message
  readonly assembler: () => Assembler<Message>
}

/**
 * A call with its answer, as both go into a history.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Answered {
  readonly position: number
  /** The id that call and answer carry: never empty, never twice in a list. */
  readonly id: string
  readonly call: ToolCall.ToolCall
  readonly outcome: Outcome.Outcome<any>
  readonly content: string
  /** The provider ran the call and has its answer already. */
  readonly byProvider: boolean
}

/**
 * Pairs calls with outcomes for a history (W1 and W2 of this module's header).
 *
 * **Details**
 *
 * Fails when the two lists do not belong together, since a call that is left open makes a provider refuse the whole
 * conversation.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const pair = (
  dialect: string,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  options?: HistoryOptions
): Result.Result<Array<Answered>, TurnError.TurnError> => {
  if (outcomes.length !== calls.length) {
    return refuse(dialect, "outcomes", `${calls.length} outcomes, one for each call`, `${outcomes.length}`)
  }
  const answered: Array<Answered> = []
  const seen = new Map<string, Set<string>>()
  const taken = new Set(calls.map((call) => call.id))
  for (const [position, call] of calls.entries()) {
    const outcome = outcomes[position]!
    if (outcome.position !== position || outcome.id !== call.id) {
      return refuse(
        dialect,
        `outcomes[${position}]`,
        `the outcome of call ${position} with the id ${TurnError.show(call.id)}`,
        `that of call ${outcome.position} with the id ${TurnError.show(outcome.id)}`
      )
    }
    const contents = call.id === "" ? undefined : seen.get(call.id)
    if (contents !== undefined) {
      const content = contentKey(call)
      if (contents.has(content)) continue
      contents.add(content)
    } else if (call.id !== "") {
      seen.set(call.id, new Set([contentKey(call)]))
    }
    const text = contentOf(outcome)
    if (text === undefined) {
      return refuse(
        dialect,
        `outcomes[${position}]`,
        "a result that JSON can hold",
        TurnError.show(Outcome.toJson(outcome))
      )
    }
    answered.push({
      position,
      id: call.id === "" || contents !== undefined ? freshId(position, taken, options) : call.id,
      call,
      outcome,
      content: text,
      byProvider: outcome.status === "provider_executed"
    })
  }
  return Result.succeed(answered)
}

/** What tells a re-delivery from another call under the same id. */
const contentKey = (call: ToolCall.ToolCall): string => {
  const parsed = parseArguments(call.arguments)
  const raw = typeof call.arguments === "string" ? call.arguments : TurnError.show(call.arguments)
  return JSON.stringify([call.name, parsed !== undefined, parsed === undefined ? raw : canonical(parsed) ?? raw])
}

const canonical = (value: unknown): string | undefined => {
  try {
    return JSON.stringify(value, (_, field: unknown) =>
      isRecord(field)
        ? Object.fromEntries(Object.entries(field).sort(([a], [b]) => a < b ? -1 : 1))
        : field)
  } catch {
    return undefined
  }
}

const freshId = (position: number, taken: Set<string>, options: HistoryOptions | undefined): string => {
  const wanted = options?.newId?.(position) ?? `call_${position}`
  let id = wanted
  for (let n = 2; id === "" || taken.has(id); n++) id = `${wanted}_${n}`
  taken.add(id)
  return id
}

/**
 * The text of an answer where a provider takes text: a result that is text as it is, any other result and every failure
 * as JSON. Never blank, since some providers refuse blank answers; `undefined` when JSON cannot hold it.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const contentOf = (outcome: Outcome.Outcome<any>): string | undefined => {
  const { isFailure, value } = Outcome.forModel(outcome)
  if (!isFailure && typeof value === "string" && value.trim() !== "") return value.toWellFormed()
  try {
    return JSON.stringify(value) ?? "null"
  } catch {
    return undefined
  }
}

/**
 * The arguments of a call as they go into a history (W3 of this module's header): what the model wrote if that is one JSON
 * object, else `{}`.
 *
 * **Example** (Raw text never goes back)
 *
 * ```ts import.meta.vitest
 * import { Dialect } from "effect-turn/wire"
 *
 * const kept = Dialect.argumentsOf({ id: "1", name: "f", arguments: '{"city":"Oslo"}' }) // => ({ city: "Oslo" })
 * const mended = Dialect.argumentsOf({ id: "2", name: "f", arguments: '{"city":"Os' }) // => ({})
 * ```
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const argumentsOf = (call: ToolCall.ToolCall): Record<string, unknown> => parseArguments(call.arguments) ?? {}

const parseArguments = (args: unknown): Record<string, unknown> | undefined => {
  try {
    const value: unknown = typeof args === "string" ? args.trim() === "" ? {} : JSON.parse(args) : args ?? {}
    if (!isRecord(value)) return undefined
    let finite = true
    const text = JSON.stringify(value, (_, field) => {
      finite &&= typeof field !== "number" || Number.isFinite(field)
      return field
    })
    const plain: unknown = finite ? JSON.parse(text) : undefined
    return isRecord(plain) ? plain : undefined
  } catch {
    return undefined
  }
}

/**
 * Checks a value against a schema, and names the first place that does not fit.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const check = <A>(
  dialect: string,
  schema: Schema.Codec<A, unknown>,
  input: unknown,
  options?: { readonly path?: string | undefined; readonly excess?: "ignore" | "error" | undefined }
): Result.Result<A, TurnError.TurnError> => {
  const result = Schema.decodeUnknownResult(schema, { onExcessProperty: options?.excess ?? "ignore" })(input)
  if (Result.isSuccess(result)) return Result.succeed(result.success)
  const [issue] = SchemaIssue.makeFormatterStandardSchemaV1()(result.failure.issue).issues
  const path = (issue?.path ?? []).map((step) => typeof step === "object" ? step.key : step)
  const expected = issue?.message ?? "a value of the schema"
  const at = path.reduce<unknown>(
    (value, key) => isRecord(value) || Array.isArray(value) ? (value as any)[key] : undefined,
    input
  )
  return refuse(
    dialect,
    pathText(options?.path ?? "", path),
    expected === "Missing key"
      ? "a value"
      : expected === "Expected no excess property"
      ? "no field of this name"
      : expected.replace(/^Expected /, "").replaceAll(" | undefined", ""),
    at === undefined ? "nothing" : TurnError.show(at)
  )
}

const pathText = (prefix: string, path: ReadonlyArray<PropertyKey>): string =>
  path.reduce<string>(
    (text, step) =>
      typeof step === "number" ? `${text}[${step}]` : text === "" ? String(step) : `${text}.${String(step)}`,
    prefix
  )

/**
 * Makes the failure of a codec: where, what was expected, what came.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export const refuse = (
  dialect: string,
  path: string,
  expected: string,
  received: string
): Result.Result<never, TurnError.TurnError> =>
  Result.fail(TurnError.make(new TurnError.InvalidMessage({ dialect, path, expected, received })))

/**
 * Tells a JSON object from everything else.
 *
 * @category predicates
 * @since 0.1.0
 * @stability experimental
 */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)
