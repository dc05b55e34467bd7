/** A closed turn as the messages of `effect/ai`. */
import * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Outcome from "../../Outcome.ts"
import type * as ToolCall from "../../ToolCall.ts"
import { parse } from "./json.ts"
import { invalidInput } from "./options.ts"

/** The turn has judged the arguments by its own limits: here they only have to be one JSON object. */
const anyLength = { maxBytes: Infinity, maxDepth: 1_000, maxKeys: Infinity }

/** For each call that is ours its part, undefined for a re-delivery; and the answers, in call order. */
const pair = (calls: ReadonlyArray<ToolCall.ToolCall>, outcomes: ReadonlyArray<Outcome.Outcome<any>>) => {
  const asked: Array<Prompt.ToolCallPart | undefined> = []
  const answers: Array<Prompt.ToolResultPart> = []
  const seen = new Set<string>()
  const given = new Set(calls.map((call) => call.id))
  calls.forEach((call, position) => {
    const outcome = outcomes[position]
    if (outcome === undefined) {
      throw invalidInput("the outcomes of a turn", `one outcome for each of the ${calls.length} calls`, outcomes.length)
    }
    if (call.providerExecuted === true) return
    const again = call.id !== "" && seen.has(call.id)
    if (again && !(outcome.status === "error" && outcome.code === "ambiguous_id")) return asked.push(undefined)
    let { id } = call
    for (let n = 0; id === "" || seen.has(id) || (id !== call.id && given.has(id)); n++) {
      id = n === 0 ? `call_${position}` : `call_${position}_${n}`
    }
    seen.add(id)
    const parsed = parse(call.arguments, anyLength)
    const { name } = outcome
    const params = parsed._tag === "ok" ? parsed.value : {}
    asked.push(Prompt.makePart("tool-call", { id, name, params, providerExecuted: false }))
    const { isFailure, value } = Outcome.forModel(outcome)
    answers.push(Prompt.makePart("tool-result", { id, name, isFailure, result: value, providerExecuted: false }))
  })
  return { asked, answers }
}

export const toPrompt = (
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  parts: ReadonlyArray<Response.AnyPart> | undefined
): Prompt.Prompt => {
  const { answers, asked } = pair(calls, outcomes)
  const tool = answers.length === 0 ? [] : [Prompt.makeMessage("tool", { content: answers })]
  if (parts === undefined) {
    const content = asked.filter((part) => part !== undefined)
    return content.length === 0
      ? Prompt.empty
      : Prompt.fromMessages([Prompt.makeMessage("assistant", { content }), ...tool])
  }
  let next = 0
  const messages = Prompt.fromResponseParts(parts).content.flatMap((message) => {
    if (message.role !== "assistant") return []
    const content = message.content.flatMap((part) => {
      if (part.type !== "tool-call" || part.providerExecuted) return [part]
      const own = asked[next++]
      return own === undefined ? [] : [{ ...part, id: own.id, name: own.name, params: own.params }]
    })
    return [{ ...message, content }]
  })
  return Prompt.fromMessages([...messages, ...tool])
}
