/** What an agent takes from a response, and the rules that a history has to keep so that a provider goes on with it. */
import * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as ToolCall from "../../ToolCall.ts"

export type Part = Response.AnyPart

/** What a response came to. */
export interface Said {
  readonly parts: ReadonlyArray<Part>
  readonly text: string
  /** All calls, those of the provider included, in emission order. */
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  /** Whether one of them is for us to run. */
  readonly asks: boolean
  readonly finishReason: ToolCall.FinishReason
  readonly input: number
  readonly output: number
}

/** `streamed`: a stream that ends without its last part was cut off on its way, so that nothing of it may run. */
export const saidOf = (parts: ReadonlyArray<Part>, streamed: boolean): Said => {
  let text = ""
  const calls: Array<Extract<Part, { readonly type: "tool-call" }>> = []
  let finish: Response.FinishPart | undefined
  for (const part of parts) {
    if (part.type === "text") text += part.text
    else if (part.type === "text-delta") text += part.delta
    else if (part.type === "tool-call") calls.push(part)
    else if (part.type === "finish") finish = part
  }
  return {
    parts,
    text,
    calls: ToolCall.fromParts(calls),
    asks: calls.some((call) => call.providerExecuted !== true),
    finishReason: finish?.reason ?? (streamed ? "error" : "unknown"),
    input: finish?.usage.inputTokens.total ?? 0,
    output: finish?.usage.outputTokens.total ?? 0
  }
}

/** The ids of texts and of reasoning that were begun and not ended, and of the provider's own calls without a result. */
const unended = (parts: ReadonlyArray<Part>): ReadonlySet<string> => {
  const open = new Set<string>()
  for (const part of parts) {
    if (part.type === "text-start" || part.type === "reasoning-start") open.add(`${part.type.split("-")[0]} ${part.id}`)
    else if (part.type === "text-end" || part.type === "reasoning-end") {
      open.delete(`${part.type.split("-")[0]} ${part.id}`)
    } else if (part.type === "tool-call" && part.providerExecuted === true) open.add(`call ${part.id}`)
    else if (part.type === "tool-result" && part.preliminary !== true) open.delete(`call ${part.id}`)
  }
  return open
}

/** What of a response that broke off was said in full. */
export const wholeParts = (parts: ReadonlyArray<Part>): ReadonlyArray<Part> => {
  const open = unended(parts)
  return parts.filter((part) => {
    switch (part.type) {
      case "text-start":
      case "text-delta":
      case "text-end":
        return !open.has(`text ${part.id}`)
      case "reasoning-start":
      case "reasoning-delta":
      case "reasoning-end":
        return !open.has(`reasoning ${part.id}`)
      case "tool-call":
        return !open.has(`call ${part.id}`)
      default:
        return true
    }
  })
}

/** The same, without its calls: reasoning that led to them means nothing without them. */
export const wholeTexts = (parts: ReadonlyArray<Part>): Prompt.Prompt =>
  Prompt.fromResponseParts(wholeParts(parts).filter(({ type }) => type.startsWith("text")))

/**
 * The first thing for which a provider would refuse the history, in words; undefined when there is none. Each call of ours is
 * answered once before the next message that is not the tools', and nothing else is answered.
 */
export const problemOf = (prompt: Prompt.Prompt): string | undefined => {
  let open = new Set<string>()
  const unanswered = () => `a call without its result (id ${JSON.stringify([...open][0])})`
  for (const message of prompt.content) {
    if (message.role === "tool") {
      for (const part of message.content) {
        if (part.type === "tool-result" && !open.delete(part.id)) {
          return `a result without its call (id ${JSON.stringify(part.id)})`
        }
      }
      continue
    }
    if (open.size > 0) return unanswered()
    if (message.role !== "assistant") continue
    open = new Set()
    for (const part of message.content) {
      if (part.type !== "tool-call" || part.providerExecuted) continue
      if (open.has(part.id)) return `two calls with one id in a message (id ${JSON.stringify(part.id)})`
      open.add(part.id)
    }
  }
  return open.size > 0 ? unanswered() : undefined
}
