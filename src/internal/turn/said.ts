/**
 * What a response says, as it goes on to the user: its calls under ids by which each can be answered once, and their answers as the
 * parts of `effect/ai`.
 */
import * as AiError from "effect/ai/AiError"
import * as IdGenerator from "effect/ai/IdGenerator"
import * as Prompt from "effect/ai/Prompt"
import * as Response from "effect/ai/Response"
import type * as Tool from "effect/ai/Tool"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Outcome from "../../Outcome.ts"
import type * as ToolCall from "../../ToolCall.ts"
import { canonical, parse } from "./json.ts"
import { entryOf } from "./tool.ts"

export type AnyOutcome = Outcome.Outcome<any>
export type AnyPart = Response.Part<any, any>
export type AnyCall = Extract<AnyPart, { readonly type: "tool-call" }>
export type AnyResult = Response.ToolResultPart<string, unknown, unknown>

/** What was judged by the limits of the turn, or will be: here it only has to be one JSON object. */
const anyLength = { maxBytes: Infinity, maxDepth: 1_000, maxKeys: Infinity }

/** Answers by the very arguments of their call, as the part holds them: for histories that did not get them. */
export type Answers = WeakMap<object, Prompt.ToolResultPart>

/** A new id, from the generator of `effect/ai`. */
export const newId: Effect.Effect<string> = Effect.flatMap(
  Effect.serviceOption(IdGenerator.IdGenerator),
  (found) => Option.getOrElse(found, () => IdGenerator.defaultIdGenerator).generateId()
)

/** Arguments in one form, to be compared; undefined for what is no JSON object. */
export const contentOf = (params: unknown): string | undefined => {
  const parsed = parse(params, anyLength)
  return parsed._tag === "ok" ? canonical(parsed.value, Infinity) : undefined
}

/** The calls of one response, in the order in which it makes them. */
export class Said {
  /** As they came; their positions are those of the turn. */
  readonly calls: Array<ToolCall.ToolCall> = []
  /** How they are let out; undefined for a re-delivery, which is answered with the first, and for a provider's own call. */
  readonly parts: Array<AnyCall | undefined> = []
  private readonly seen = new Map<string, Array<string>>()

  /** The part to be let out for a call; undefined for a re-delivery. */
  accept(part: AnyCall): Effect.Effect<AnyCall | undefined> {
    return Effect.suspend(() => {
      const { id, name, params, providerExecuted } = part
      this.calls.push({ id, name, arguments: params, ...(providerExecuted ? { providerExecuted } : undefined) })
      if (providerExecuted) {
        this.parts.push(undefined)
        return Effect.succeed(part)
      }
      const parsed = parse(params, anyLength)
      // Two calls are one where the turn takes them for one.
      const args = parsed._tag === "ok"
        ? canonical(parsed.value, Infinity)
        : typeof params === "string"
        ? `=${params}`
        : undefined
      const content = args === undefined ? `#${this.parts.length}` : `${name} ${args}`
      const before = this.seen.get(id)
      if (id !== "" && before?.includes(content) === true) {
        this.parts.push(undefined)
        return Effect.undefined
      }
      this.seen.set(id, [...before ?? [], content])
      // Raw text never goes back to a provider: arguments that are no JSON object stand as `{}`.
      const value = parsed._tag === "ok" ? parsed.value : {}
      const fitting = value === params ? part : { ...part, params: value }
      const at = this.parts.push(fitting) - 1
      if (id !== "" && before === undefined) return Effect.succeed(fitting)
      // An empty id, or one that other content has: each gets an id of its own, in call and answer together.
      return Effect.map(newId, (id) => this.parts[at] = { ...fitting, id })
    })
  }
}

/** What `effect/ai` has for a call that was not executed: every tool's results may be this. */
interface NotExecuted {
  readonly type: "execution-denied" | "execution-interrupted"
  readonly reason: string
}

/** The tool's own failure, or an error of `effect/ai`, as its resolver gives them; undefined for any other answer. */
const failureOf = (outcome: AnyOutcome): unknown => {
  if (outcome.status !== "error" || (outcome.code !== "failed" && outcome.code !== "rate_limited")) return undefined
  const { encoded, failure, name } = outcome
  if (encoded !== undefined || AiError.isAiError(failure)) return failure
  return AiError.isAiErrorReason(failure)
    ? AiError.make({ module: "Toolkit", method: `${name}.handle`, reason: failure })
    : undefined
}

/** What `effect/ai` wants to find in the encoded answer of a call that has failed. */
export const notExecutedOf = (outcome: AnyOutcome): NotExecuted => ({
  type: outcome.status === "error" && outcome.code === "denied" ? "execution-denied" : "execution-interrupted",
  reason: "code" in outcome ? outcome.code : outcome.status
})

/** What a tool makes of its success for the model. */
export const modelOutputOf = (tool: Tool.Any | undefined, result: unknown) => {
  if (tool?.toModelOutput === undefined) return undefined
  try {
    return { modelOutput: tool.toModelOutput(result) }
  } catch {
    // The call has succeeded; the model is told its result as it is.
    return undefined
  }
}

export const resultPart = (id: string, outcome: AnyOutcome, tools: Record<string, Tool.Any>): AnyResult => {
  const { isFailure, value } = Outcome.forModel(outcome)
  const { name } = outcome
  const common = { id, name, providerExecuted: false, preliminary: false, isFailure }
  if (outcome.status === "ok") {
    const output = outcome.shown?.output
    return Response.makePart("tool-result", {
      ...common,
      result: outcome.result,
      encodedResult: value,
      ...(output !== undefined
        ? { modelOutput: output }
        : Object.hasOwn(tools, name)
        ? modelOutputOf(tools[name], outcome.result)
        : undefined)
    }) as AnyResult
  }
  const { reason, type } = notExecutedOf(outcome)
  return Response.makePart("tool-result", {
    ...common,
    result: failureOf(outcome) ?? { type, reason: outcome.message },
    // What the model is told, in a form that the schema of the tool's results takes; the words stand in it already.
    encodedResult: { ...value as object, type, reason }
  }) as AnyResult
}

/** A preliminary result, from its encoded form; undefined when it does not fit the tool: it is no answer. */
export const preliminaryPart = (
  id: string,
  name: string,
  encoded: unknown,
  tools: Record<string, Tool.Any>
): AnyResult | undefined => {
  if (!Object.hasOwn(tools, name)) return undefined
  const decoded = entryOf(tools[name]!).decodeResult(encoded)
  return Exit.isExit(decoded) && Exit.isSuccess(decoded)
    ? Response.makePart("tool-result", {
      id,
      name,
      providerExecuted: false,
      preliminary: true,
      isFailure: false,
      result: decoded.value,
      encodedResult: encoded
    }) as AnyResult
    : undefined
}

export const deniedPart = (id: string, name: string, reason: string | undefined): AnyResult => {
  const result: NotExecuted = { type: "execution-denied", reason: reason ?? "the call was denied" }
  return Response.makePart("tool-result", {
    id,
    name,
    providerExecuted: false,
    preliminary: false,
    isFailure: true,
    result,
    encodedResult: result
  }) as AnyResult
}

/** An answer as it stands in a history. */
export const inHistory = (part: AnyResult): Prompt.ToolResultPart =>
  Prompt.makePart("tool-result", {
    id: part.id,
    name: part.name,
    isFailure: part.isFailure,
    result: part.encodedResult,
    ...(part.modelOutput === undefined ? undefined : { modelOutput: part.modelOutput }),
    providerExecuted: false
  })
