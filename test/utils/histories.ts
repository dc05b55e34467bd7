/** What providers refuse of a history that an agent hands over: more than of one that is still at work. */
import { History } from "effect-turn/testing"
import type * as Prompt from "effect/ai/Prompt"

export const faultsOf = (prompt: Prompt.Prompt): ReadonlyArray<string> => [
  ...History.check(prompt),
  ...prompt.content.flatMap((message, i) =>
    message.role === "system"
      ? []
      : message.content.length === 0
      ? [`message ${i} is empty`]
      : message.content.some(({ type }) => type === "tool-approval-request" || type === "tool-approval-response")
      ? [`message ${i} has an open approval`]
      : []
  )
]

export const rolesOf = (prompt: Prompt.Prompt): string => prompt.content.map(({ role }) => role).join(" ")
