/**
 * What providers refuse of a history, as a plain definition: every call of ours is answered exactly once, in the order of the
 * calls, in the one message that follows; nothing else is answered; no approval is left open; no message is empty.
 */
import type * as Prompt from "effect/ai/Prompt"

export const faultsOf = (prompt: Prompt.Prompt): ReadonlyArray<string> => {
  const faults: Array<string> = []
  prompt.content.forEach((message, i) => {
    if (message.role === "system") return
    if (message.content.length === 0) faults.push(`message ${i} is empty`)
    for (const part of message.content) {
      if (part.type === "tool-approval-request" || part.type === "tool-approval-response") {
        faults.push(`message ${i} has an open approval`)
      }
    }
    if (message.role === "assistant") {
      const asked = message.content.flatMap((part) =>
        part.type === "tool-call" && !part.providerExecuted ? [part.id] : []
      )
      if (asked.some((id) => id === "")) faults.push(`message ${i} has a call without an id`)
      if (new Set(asked).size < asked.length) faults.push(`message ${i} has two calls with one id`)
      const next = prompt.content[i + 1]
      const answered = next?.role === "tool"
        ? next.content.flatMap((part) => part.type === "tool-result" ? [part.id] : [])
        : []
      if (JSON.stringify(asked) !== JSON.stringify(answered)) {
        faults.push(`message ${i} asks [${asked.join(", ")}], and is answered [${answered.join(", ")}]`)
      }
    }
    if (message.role === "tool" && prompt.content[i - 1]?.role !== "assistant") {
      faults.push(`message ${i} answers nothing`)
    }
  })
  return faults
}

export const rolesOf = (prompt: Prompt.Prompt): string => prompt.content.map(({ role }) => role).join(" ")
