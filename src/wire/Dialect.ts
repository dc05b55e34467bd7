/**
 * What every provider's codec is: calls and a finish reason out of a message, calls and outcomes back into the messages
 * that the provider wants. Also the kit for writing one.
 *
 * **Invariants** of the histories that a dialect builds ("W" for wire; other modules number their own):
 *
 * - W1: each call of a history has exactly one answer, in the order of the calls.
 * - W2: call and answer carry the same id, which is not empty and stands for one call. Where the model gave none, or one
 *   that the provider would refuse, or one id to different calls, both get a new one together. (Gemini alone gives no ids,
 *   and tells answers apart by their places: there none stays none.) A re-delivery (same id, name and arguments) is one call
 *   with one answer.
 * - W3: the arguments in a history are JSON objects, whatever the model wrote; its raw text never goes back.
 * - W4: nothing here throws. What a provider is known to refuse is a `TurnError` that says where and why: what goes back is
 *   checked against its schema before it is handed out.
 *
 * @since 0.1.0
 */
import type * as Prompt from "effect/ai/Prompt"
import type * as Tool from "effect/ai/Tool"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import * as Outcome from "../Outcome.ts"
import * as ToolCall from "../ToolCall.ts"
import * as TurnError from "../TurnError.ts"
import { partsOf, textOf } from "./parts.ts"

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
 * unique over a whole conversation, or must have a form of their own. What the provider would refuse is not taken.
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
 *   with the end of the response. It fails with the provider's own error, and with an event that fits nowhere; every later `push`
 *   fails as well.
 * - `end` gives the response with all its calls, of which those that `push` gave are the first. A response that broke off, wherever
 *   that was, or whose `push` failed has the finish reason `"error"`: none of its calls was promised to be whole.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Assembler<out Message> {
  readonly push: (event: unknown) => Result.Result<ReadonlyArray<ToolCall.ToolCall>, TurnError.TurnError>
  readonly end: () => Result.Result<Decoded<Message>, TurnError.TurnError>
  /** Whether the provider has said that the response is over, and nothing failed. */
  readonly isOver: () => boolean
}

/**
 * The part of an {@link Assembler} that belongs to one provider. It knows how a response is put together; what is a call in it, and how
 * it ended, {@link Dialect} `decode` says.
 *
 * **Details**
 *
 * - `push` gives what is complete by this event and was not given before, as a response that holds this alone; else undefined.
 * - `response` is what the provider would have sent had the response not been streamed. Of one that broke off it is what can be kept.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Assembly {
  readonly push: (event: unknown) => Result.Result<unknown, TurnError.TurnError>
  readonly response: () => unknown
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
): Assembler<Message> => {
  let failed: TurnError.TurnError | undefined
  // A response that was cut short runs nothing: its calls are for `end` to tell, from the first one that was cut.
  let isCut = false
  const push = (event: unknown): Result.Result<ReadonlyArray<ToolCall.ToolCall>, TurnError.TurnError> =>
    Result.flatMap(assembly.push(event), (complete) =>
      complete === undefined || isCut
        ? Result.succeed([])
        : Result.map(decode(complete), ({ calls, finishReason }) => {
          isCut = ToolCall.isCutShort(finishReason)
          return isCut ? [] : calls
        }))
  const isOver = () => assembly.isOver() && failed === undefined
  return {
    push: (event) => {
      if (failed !== undefined) return Result.fail(failed)
      const calls = safely("stream", () => push(event))
      if (Result.isFailure(calls)) failed = calls.failure
      return calls
    },
    end: () =>
      safely("stream", () =>
        Result.map(
          decode(assembly.response()),
          (decoded): Decoded<Message> => isOver() ? decoded : { ...decoded, finishReason: "error" }
        )),
    isOver
  }
}

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
  /** The id that call and answer carry: never twice in a list, and empty only where the {@link Form} allows it. */
  readonly id: string
  /** The name of the tool, in a form that the provider takes. */
  readonly name: string
  readonly call: ToolCall.ToolCall
  readonly outcome: Outcome.Outcome<any>
  /** The answer as text. */
  readonly content: string
  /** The answer as texts and files, where the tool makes them (`toModelOutput`). */
  readonly parts: ReadonlyArray<Prompt.ToolModelOutputPart> | undefined
  /** The provider ran the call and has its answer already. */
  readonly byProvider: boolean
}

/**
 * What a provider takes for the id of a call and for the name of its tool.
 *
 * **Details**
 *
 * An id that does not match `id` is replaced in call and answer. A name that does not match `name` is mended. Without `name`
 * the rules of the host are not known, and only a name that the model invented is mended: no tool has it, so that nothing
 * says that the host takes it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Form {
  readonly id?: RegExp | undefined
  readonly name?: RegExp | undefined
  /** A call that came without an id stays without: the provider matches by place. */
  readonly byPlace?: boolean | undefined
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
  options?: HistoryOptions,
  form: Form = {}
): Result.Result<Array<Answered>, TurnError.TurnError> => {
  if (outcomes.length !== calls.length) {
    return refuse(dialect, "outcomes", `${calls.length} outcomes, one for each call`, `${outcomes.length}`)
  }
  const answered: Array<Answered> = []
  const seen = new Map<string, Set<string>>()
  const ids: Ids = { taken: new Set(calls.map((call) => call.id)), counts: new Map() }
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
    const parts = partsOf(outcome, options)
    const text = parts === undefined ? contentOf(outcome) : textOf(parts)
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
      id: contents === undefined && (call.id === "" ? form.byPlace === true : fits(form.id, call.id))
        ? call.id
        : freshId(position, ids, options, form),
      name: nameOf(call, outcome, options, form),
      call,
      outcome,
      content: text,
      parts,
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

const fits = (form: RegExp | undefined, text: string): boolean =>
  text !== "" && text.isWellFormed() && (form === undefined || form.test(text))

interface Ids {
  readonly taken: Set<string>
  /** Which number an id was last told apart by: one name may be wished for by thousands of calls. */
  readonly counts: Map<string, number>
}

const freshId = (
  position: number,
  { counts, taken }: Ids,
  options: HistoryOptions | undefined,
  form: Form
): string => {
  const own = `call_${position}`
  const named = options?.newId?.(position) ?? own
  const wanted = fits(form.id, named) ? named : own
  let id = wanted
  while (taken.has(id)) {
    const n = (counts.get(wanted) ?? 1) + 1
    counts.set(wanted, n)
    const next = `${wanted}_${n}`
    id = fits(form.id, next) ? next : `${own}_${n}`
  }
  taken.add(id)
  return id
}

/** A name that the model invented may have characters that a name in a request may not have. */
const nameOf = (
  { name }: ToolCall.ToolCall,
  outcome: Outcome.Outcome<any>,
  options: HistoryOptions | undefined,
  form: Form
): string => {
  const isInvented = (outcome.status === "error" && outcome.code === "unknown_tool") ||
    (options?.toolkit !== undefined && !Object.hasOwn(options.toolkit.tools, name))
  if (fits(form.name, name) && (form.name !== undefined || !isInvented)) return name
  const mended = name.replace(/[^a-zA-Z0-9_-]/g, "_").slice(0, 64) || "unnamed"
  return form.name === undefined || form.name.test(mended) ? mended : `_${mended.slice(1)}`
}

/**
 * Pairs the calls of a message with their outcomes, as {@link pair} does, and leaves out what the provider ran itself.
 *
 * **Details**
 *
 * `ids` are those of the calls in the message, in their order, and `path` says where they stand. Fails when `calls` are not
 * the calls of this message.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const answer = (
  dialect: string,
  message: { readonly path: string; readonly ids: ReadonlyArray<string> },
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  options?: HistoryOptions,
  form?: Form
): Result.Result<Array<Answered>, TurnError.TurnError> =>
  message.ids.length !== calls.length || message.ids.some((id, index) => id !== calls[index]!.id)
    ? refuse(dialect, message.path, "the calls that were decoded from this message", "other calls")
    : Result.map(pair(dialect, calls, outcomes, options, form), (answered) => answered.filter((one) => !one.byProvider))

/**
 * Writes the parts of a message again, each in its place: calls as they were answered, the others as `keep` says. A call
 * without an answer of its own (a re-delivery, or one that the provider ran) and what `keep` gives nothing for are left out.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const inPlace = <Part, Sent>(
  parts: ReadonlyArray<Part>,
  isCall: (part: Part) => boolean,
  answered: ReadonlyArray<Answered>,
  send: (part: Part, one: Answered) => Sent,
  keep: (part: Part) => Sent | undefined
): Array<Sent> => {
  const byPosition = new Map(answered.map((one) => [one.position, one]))
  const sent: Array<Sent> = []
  let position = 0
  for (const part of parts) {
    const one = isCall(part) ? byPosition.get(position++) : undefined
    const next = one !== undefined ? send(part, one) : isCall(part) ? undefined : keep(part)
    if (next !== undefined) sent.push(next)
  }
  return sent
}

/**
 * Hands out what goes back when each piece of it fits its schema (W4 of this module's header).
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const checked = <Sent>(
  dialect: string,
  sent: Array<Sent>,
  schemaOf: (one: Sent) => Schema.Codec<any, unknown>
): Result.Result<Array<Sent>, TurnError.TurnError> => {
  for (const [index, one] of sent.entries()) {
    const result = check<unknown>(dialect, schemaOf(one), one, { path: `history[${index}]` })
    if (Result.isFailure(result)) return Result.fail(result.failure)
  }
  return Result.succeed(sent)
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

/**
 * A value as JSON has it, for a provider that takes objects: what JSON cannot hold is gone, and half a surrogate pair is the
 * replacement character, since providers take a body with one for no JSON. `undefined` when JSON cannot hold it at all.
 *
 * @category encoding
 * @since 0.1.0
 * @stability experimental
 */
export const jsonOf = (value: unknown): unknown => {
  try {
    const text = JSON.stringify(value) ?? "null"
    // In such a text each lone half is an escape, and a backslash of the value is two.
    return JSON.parse(text.replace(/\\\\|\\ud[89a-f][\da-f]{2}/g, (found) => found === "\\\\" ? found : "\ufffd"))
  } catch {
    return undefined
  }
}

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
 * Reads or writes something that nobody has checked yet (W4 of this module's header): what throws on the way, a getter, a proxy, a
 * list too deep to be walked, is refused.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export const safely = <A>(
  dialect: string,
  use: () => Result.Result<A, TurnError.TurnError>
): Result.Result<A, TurnError.TurnError> => {
  try {
    return use()
  } catch (error) {
    return refuse(dialect, "", "a value as JSON has it, of no great depth", `one that throws (${thrown(error)})`)
  }
}

/**
 * Looks at the shape of something that nobody has checked yet: what throws on the way has none (W4 of this module's header).
 *
 * @category predicates
 * @since 0.1.0
 * @stability experimental
 */
export const looksLike = (is: () => boolean): boolean => {
  try {
    return is()
  } catch {
    return false
  }
}

const thrown = (error: unknown): string => {
  try {
    return TurnError.show(error instanceof Error ? error.message : error)
  } catch {
    return "what cannot be shown"
  }
}

/**
 * Tells a JSON object from everything else.
 *
 * @category predicates
 * @since 0.1.0
 * @stability experimental
 */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/**
 * Says what came, where a message was expected and something else is there.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export const describe = (input: unknown): string =>
  typeof input === "string"
    ? "text (parse it first)"
    : Array.isArray(input)
    ? `a list of ${input.length}`
    : isRecord(input)
    ? TurnError.show(input)
    : String(input)
