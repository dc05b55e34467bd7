/**
 * What every provider asks of a history with tool calls, as a check of prompts: each call answered once, in the very next message, in
 * order.
 *
 * A provider refuses a request whose history breaks this, and the conversation with it. Check what the model is sent: the prompts of
 * `FakeModel` are in its `requests`.
 *
 * - **H1** Every call that is not the provider's own has an id, no other call of its message has the same, and it has exactly one
 *   answer, in the next message, which is a tool message.
 * - **H2** Answers stand in the order of their calls, and no answer is without a call.
 * - **H3** A call that waits for an approval may be without an answer only at the end, where nobody has spoken since.
 *
 * @since 0.1.0
 */
import type * as Prompt from "effect/ai/Prompt"

/**
 * Each breach of the rules in a prompt, in words; an empty list for a history that every provider takes.
 *
 * **Example** (A call that was left open)
 *
 * ```ts import.meta.vitest
 * import { Prompt } from "effect/ai"
 * import { History } from "effect-turn/testing"
 *
 * const open = Prompt.make([
 *   { role: "user", content: "A room, please." },
 *   { role: "assistant", content: [{ type: "tool-call", id: "a", name: "book", params: {}, providerExecuted: false }] },
 *   { role: "user", content: "And a car." }
 * ])
 * const breaches = History.check(open) // => ["H1: message 1: the call a (book) has no answer in the next message"]
 * ```
 *
 * @category checking
 * @since 0.1.0
 * @stability experimental
 */
export const check = (prompt: Prompt.Prompt): ReadonlyArray<string> => {
  const breaches: Array<string> = []
  const { content } = prompt
  const requests = new Map<string, string>()
  let speaksLast = -1
  content.forEach(({ role }, at) => {
    if (role !== "tool") speaksLast = at
  })
  content.forEach((message, at) => {
    if (message.role === "assistant") {
      const waiting = new Set<string>()
      for (const part of message.content) {
        if (part.type !== "tool-approval-request") continue
        requests.set(part.approvalId, part.toolCallId)
        waiting.add(part.toolCallId)
      }
      breaches.push(...answered(message, at, content[at + 1], at === speaksLast ? waiting : nobody))
    }
    if (message.role === "tool") breaches.push(...placed(message, at, content[at - 1], requests))
  })
  return breaches
}

const nobody: ReadonlySet<string> = new Set()

/** The calls of a message, and what the next one says of them. `mayWait` are those that may be open. */
const answered = (
  message: Prompt.AssistantMessage,
  at: number,
  next: Prompt.Message | undefined,
  mayWait: ReadonlySet<string>
): ReadonlyArray<string> => {
  const breaches: Array<string> = []
  const calls = new Map<string, string>()
  for (const part of message.content) {
    if (part.type !== "tool-call" || part.providerExecuted) continue
    if (part.id === "") breaches.push(`H1: message ${at}: a call of ${part.name} has no id`)
    else if (calls.has(part.id)) breaches.push(`H1: message ${at}: two calls have the id ${part.id}`)
    calls.set(part.id, part.name)
  }
  if (calls.size === 0) return breaches
  const answers = answersOf(next)
  for (const [id, name] of calls) {
    const count = answers.filter((answer) => answer === id).length
    if (count === 0 && !mayWait.has(id)) {
      breaches.push(`H1: message ${at}: the call ${id} (${name}) has no answer in the next message`)
    }
    if (count > 1) breaches.push(`H1: message ${at}: the call ${id} (${name}) has ${count} answers`)
  }
  const order = [...calls.keys()].filter((id) => answers.includes(id))
  const given = answers.filter((id, i) => calls.has(id) && answers.indexOf(id) === i)
  if (given.join() !== order.join()) {
    breaches.push(`H2: message ${at + 1}: the answers are ${given.join(", ")}, and the calls ${order.join(", ")}`)
  }
  return breaches
}

const answersOf = (message: Prompt.Message | undefined): ReadonlyArray<string> =>
  message?.role === "tool" ? message.content.flatMap((part) => part.type === "tool-result" ? [part.id] : []) : []

/** What stands in a tool message, and whether it has a call before it. */
const placed = (
  message: Prompt.ToolMessage,
  at: number,
  before: Prompt.Message | undefined,
  requests: ReadonlyMap<string, string>
): ReadonlyArray<string> => {
  const calls = before?.role === "assistant"
    ? before.content.flatMap((part) => part.type === "tool-call" && !part.providerExecuted ? [part.id] : [])
    : []
  return message.content.flatMap((part) => {
    if (part.type === "tool-approval-response") {
      return requests.has(part.approvalId)
        ? []
        : [`H3: message ${at}: the approval ${part.approvalId} was never asked for`]
    }
    return calls.includes(part.id)
      ? []
      : [`H2: message ${at}: the answer ${part.id} (${part.name}) has no call in the message before`]
  })
}
