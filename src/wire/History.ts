/**
 * Histories that came from elsewhere: a process that died between calls and results, a store that lost a message, a context that was cut at
 * its head. A provider refuses such a conversation as a whole; here it is told what it would refuse, and mended.
 *
 * **What is known to be refused**, by the providers' own words:
 *
 * - Chat Completions: an id without its answer before the next message ("An assistant message with 'tool_calls' must be followed by tool
 *   messages responding to each 'tool_call_id'"); an answer without a call ("messages with role 'tool' must be a response to a preceeding
 *   message with 'tool_calls'"); an id twice in a message; an id of more than 40 characters ("string too long", in most places);
 *   `tool_calls: []`; `function_call: null`; a message with neither text nor calls; arguments that are no text; an answer with a picture in
 *   it. Arguments that are no JSON object, and blank answers, are refused by some hosts.
 * - Responses: "No tool output found for function call …"; "No tool call found for function call output with call_id …"; an id that is empty
 *   or has more than 64 characters; "Duplicate item found with id …"; "Item … of type 'reasoning' was provided without its required
 *   following item".
 * - Anthropic: "`tool_use` ids were found without `tool_result` blocks immediately after"; "unexpected `tool_use_id` found in `tool_result`
 *   blocks"; "each tool_use must have a single result"; "`tool_use` ids must be unique"; ids and names of another form than
 *   `^[a-zA-Z0-9_-]+$`; text in front of results; an input that is no object; "text content blocks must be non-empty"; "all messages must
 *   have non-empty content"; a call of a server tool without its result, and the other way round; thinking without a signature;
 *   "first message must use the "user" role".
 * - Gemini: "the number of function response parts is equal to the number of function call parts" (which parts beside them break, too);
 *   "function call turn comes immediately after a user turn or after a function response turn"; "contents.parts must not be empty"; a
 *   response that is no object. Without ids, name and order alone tell whose a result is.
 * - All of them: texts with half of a character (a lone surrogate), which come from texts that were cut; in most, fields that a response
 *   has and a request may not have ("Extra inputs are not permitted").
 *
 * The neutral form of this package has calls and no histories.
 *
 * @since 0.1.0
 */
import * as Result from "effect/Result"
import type * as Outcome from "../Outcome.ts"
import type * as TurnError from "../TurnError.ts"
import { analyse } from "./history/analyse.ts"

/**
 * Whose history it is, by the `id` of its dialect.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type DialectId = "chat" | "responses" | "anthropic" | "gemini"

/**
 * What can be wrong with a history.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Code =
  | "open_call"
  | "missing_result"
  | "result_without_call"
  | "repeated_result"
  | "late_result"
  | "misplaced_result"
  | "mixed_results"
  | "result_order"
  | "result_id"
  | "result_name"
  | "result_kind"
  | "answer_form"
  | "repeated_call"
  | "repeated_id"
  | "repeated_item"
  | "id_form"
  | "name_form"
  | "arguments"
  | "field_missing"
  | "call_of_user"
  | "empty_message"
  | "empty_part"
  | "extra_fields"
  | "role"
  | "broken_text"
  | "unresolved_server_call"
  | "server_result_without_call"
  | "unsigned_thinking"
  | "lone_reasoning"
  | "begins_with_model"
  | "model_twice"

/**
 * How bad it is.
 *
 * **Details**
 *
 * - `refused`: the provider, or some of the hosts that speak its dialect, refuse the conversation.
 * - `open`: a call at the end of the history has no result yet. It may still be run; sent as it is, the history is refused.
 * - `loss`: it may be taken, and something in it is lost or misunderstood.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Kind = "refused" | "open" | "loss"

/**
 * What is wrong at one place of a history. `change` is what {@link mend} does about it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Problem {
  readonly code: Code
  readonly kind: Kind
  /** The place in the history as it came: `messages[3].content[1]`. */
  readonly path: string
  readonly message: string
  readonly change: string
}

/**
 * What {@link mend} has changed at one place, and why.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Change {
  readonly code: Code
  /** The place in the history as it came. */
  readonly path: string
  readonly message: string
  readonly change: string
}

/**
 * A call of a history that has no result. `last` tells that nothing but results came after it, so that it may still be run.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface OpenCall {
  readonly path: string
  readonly id: string
  readonly name: string
  /** As they stand in the history. */
  readonly arguments: unknown
  readonly last: boolean
}

/**
 * What a caller knows of a history. `dialect` says whose it is, where its shape does not, or misleads. An entry that is another provider's
 * for certain is refused, with its place: this one's rules do not see what it says.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CheckOptions {
  readonly dialect?: DialectId | undefined
}

/**
 * How a history is mended. `close` gives the answer of an open call, as text or as an outcome. What it leaves open, and every call
 * without `close`, is answered that nobody knows whether it took effect.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface MendOptions extends CheckOptions {
  readonly close?: ((call: OpenCall) => Outcome.Outcome<any> | string | undefined) | undefined
}

/**
 * Tells what a provider would refuse in a history: a list of messages, items or contents, or the body of a request that has it.
 *
 * **Example** (A conversation that lost a result)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { History } from "effect-turn/wire"
 *
 * const { dialect, problems } = Result.getOrThrow(History.check({
 *   messages: [
 *     { role: "user", content: "weather?" },
 *     { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Oslo" } }] },
 *     { role: "user", content: "are you there?" }
 *   ]
 * }))
 * dialect // => "anthropic"
 * const found = problems.map(({ code, path }) => ({ code, path })) // => [{ code: "missing_result", path: "messages[1].content[0]" }]
 * ```
 *
 * @category checks
 * @since 0.1.0
 * @stability experimental
 */
export const check = (
  input: unknown,
  options?: CheckOptions
): Result.Result<
  { readonly dialect: DialectId; readonly problems: ReadonlyArray<Problem> },
  TurnError.TurnError
> => Result.map(analyse(input, options), ({ dialect, findings }) => ({ dialect, problems: findings }))

/**
 * Makes a history one that its provider takes, and tells what was changed.
 *
 * **Details**
 *
 * - What comes back has the form of what came: a list, or a body with all its other fields. What is sound is not touched, and the input
 *   itself never is.
 * - No answer that has a call is lost: a second answer of a call that says something else becomes words of the user. A result without
 *   any call is taken out; so are blank texts, and thinking that nobody signed.
 * - Open calls at the end are closed as well. To run them instead, ask {@link openCalls} first.
 *
 * **Example** (The caller knows what became of it)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { History } from "effect-turn/wire"
 *
 * const { history } = Result.getOrThrow(History.mend([
 *   { role: "user", content: "weather?" },
 *   { role: "assistant", tool_calls: [{ id: "1", type: "function", function: { name: "get_weather", arguments: "{}" } }] }
 * ], { close: (call) => `${call.name} was not run` }))
 * const answer = history[2] // => ({ role: "tool", tool_call_id: "1", content: "get_weather was not run" })
 * ```
 *
 * @category mending
 * @since 0.1.0
 * @stability experimental
 */
export const mend = <A>(
  input: A,
  options?: MendOptions
): Result.Result<
  {
    readonly dialect: DialectId
    readonly history: A
    readonly changes: ReadonlyArray<Change>
    readonly open: ReadonlyArray<OpenCall>
  },
  TurnError.TurnError
> =>
  Result.map(analyse(input, options), ({ dialect, findings, mended, open }) => ({
    dialect,
    history: mended as A,
    changes: findings.map(({ change, code, message, path }) => ({ code, path, message, change })),
    open
  }))

/**
 * Finds the calls of a history that have no result.
 *
 * **Example** (What is still to be run)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { History } from "effect-turn/wire"
 *
 * const open = Result.getOrThrow(History.openCalls([
 *   { type: "message", role: "user", content: [{ type: "input_text", text: "book it" }] },
 *   { type: "function_call", call_id: "call_1", name: "book", arguments: '{"n":1}' }
 * ]))
 * const last = open[0] // => ({ path: "[1]", id: "call_1", name: "book", arguments: '{"n":1}', last: true })
 * ```
 *
 * @category checks
 * @since 0.1.0
 * @stability experimental
 */
export const openCalls = (
  input: unknown,
  options?: CheckOptions
): Result.Result<ReadonlyArray<OpenCall>, TurnError.TurnError> =>
  Result.map(analyse(input, options), (analysis) => analysis.open)
