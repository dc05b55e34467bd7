/**
 * A prompt as the calls in it: each with its answer, wherever that stands, and what a human decided. And back: the prompt as a
 * provider takes it, where the answers of a message's calls stand in the next message, each once, in the order of the calls.
 */
import * as Prompt from "effect/ai/Prompt"

/** One call of the history that is ours to answer. */
export interface Entry {
  readonly call: Prompt.ToolCallPart
  answer: Prompt.ToolResultPart | undefined
  /** The message in which the answer stood. */
  answeredIn: Prompt.ToolMessage | undefined
  approvalId: string | undefined
  /** The first decision stands. */
  decision: Prompt.ToolApprovalResponsePart | undefined
}

export interface Ledger {
  readonly entries: ReadonlyArray<Entry>
  /** The entries of each message of calls. */
  readonly of: ReadonlyMap<Prompt.Message, ReadonlyArray<Entry>>
  readonly requests: ReadonlyMap<string, Entry>
  /** Second answers to a call: no provider takes them. */
  readonly repeated: ReadonlySet<Prompt.ToolResultPart>
}

export const read = (messages: ReadonlyArray<Prompt.Message>): Ledger => {
  const entries: Array<Entry> = []
  const of = new Map<Prompt.Message, ReadonlyArray<Entry>>()
  const requests = new Map<string, Entry>()
  const repeated = new Set<Prompt.ToolResultPart>()
  // Ids may be repeated in another message: the latest call of an id is meant.
  const byId = new Map<string, Entry>()
  for (const message of messages) {
    if (message.role === "assistant") {
      const own: Array<Entry> = []
      for (const part of message.content) {
        if (part.type === "tool-call" && !part.providerExecuted) {
          const entry: Entry = {
            call: part,
            answer: undefined,
            answeredIn: undefined,
            approvalId: undefined,
            decision: undefined
          }
          own.push(entry)
          byId.set(part.id, entry)
        }
        if (part.type === "tool-approval-request") {
          const entry = byId.get(part.toolCallId)
          if (entry === undefined) continue
          entry.approvalId ??= part.approvalId
          requests.set(part.approvalId, entry)
        }
      }
      if (own.length > 0) of.set(message, own)
      entries.push(...own)
    }
    if (message.role === "tool") {
      for (const part of message.content) {
        if (part.type === "tool-result") {
          const entry = byId.get(part.id)
          if (entry === undefined) continue
          if (entry.answer !== undefined) {
            repeated.add(part)
            continue
          }
          entry.answer = part
          entry.answeredIn = message
        } else {
          const entry = requests.get(part.approvalId)
          if (entry !== undefined) entry.decision ??= part
        }
      }
    }
  }
  return { entries, of, repeated, requests }
}

/**
 * The prompt with every call answered where a provider looks for it, and without the approvals that this answers. A message that is
 * in order is handed on as it is. `answerOf` is asked for the calls that have no answer.
 */
export const arrange = (
  prompt: Prompt.Prompt,
  { of, repeated, requests }: Ledger,
  answerOf: (entry: Entry) => Prompt.ToolResultPart
): Prompt.Prompt => {
  const messages: Array<Prompt.Message> = []
  const inOrder = new Set<Prompt.Message>()
  const placed = new Set<Prompt.ToolResultPart>(repeated)
  prompt.content.forEach((message, at) => {
    if (message.role === "assistant") {
      const said = message.content.filter((part) =>
        part.type !== "tool-approval-request" || !requests.has(part.approvalId)
      )
      if (said.length === message.content.length) messages.push(message)
      else if (said.length > 0) {
        messages.push(Prompt.makeMessage("assistant", { content: said, options: message.options }))
      }
      const entries = of.get(message)
      if (entries === undefined) return
      const answers = entries.map((entry) => entry.answer ?? answerOf(entry))
      for (const answer of answers) placed.add(answer)
      const next = prompt.content[at + 1]
      if (
        next?.role === "tool" && next.content.length === answers.length &&
        next.content.every((part, i) => part === answers[i])
      ) return inOrder.add(next)
      const options = entries.find((entry) => entry.answeredIn !== undefined)?.answeredIn?.options
      return messages.push(Prompt.makeMessage("tool", { content: answers, options }))
    }
    if (message.role !== "tool" || inOrder.has(message)) return messages.push(message)
    const left = message.content.filter((part) =>
      part.type === "tool-result" ? !placed.has(part) : !requests.has(part.approvalId)
    )
    if (left.length === message.content.length) messages.push(message)
    else if (left.length > 0) messages.push(Prompt.makeMessage("tool", { content: left, options: message.options }))
  })
  const same = messages.length === prompt.content.length && messages.every((one, i) => one === prompt.content[i])
  return same ? prompt : Prompt.fromMessages(messages)
}
