/** Lists of calls in the neutral form: messages, scenario files, and what `run --json` prints. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { answer, openCall } from "./conversation.ts"
import { fromText, type Value } from "./value.ts"

export const readCalls = (values: ReadonlyArray<Value>): ReadonlyArray<TurnInsights.Conversation> => {
  const conversations: Array<TurnInsights.Conversation> = []
  let last: ReturnType<typeof callsOf> = []
  const visit = (value: Value): void => {
    if (value.isList) {
      const { entries } = value
      if (entries.length > 0 && entries.every((entry) => entry.get("name").text !== undefined)) {
        return add(callsOf(entries))
      }
      for (const entry of entries) visit(entry)
      return
    }
    const inner = ["turns", "messages"].map((member) => value.object(expected).get(member)).find(({ isList }) => isList)
    if (inner !== undefined) {
      for (const entry of inner.entries) visit(entry)
      return
    }
    const outcomes = value.get("outcomes")
    if (outcomes.isList && value.get("calls").absent) {
      for (const [i, outcome] of outcomes.entries.entries()) {
        const result = outcome.get("result")
        const call = last[i]
        if (call !== undefined && result.raw !== undefined) answer(call, result.text ?? JSON.stringify(result.raw))
      }
      return
    }
    // A turn that is resumed may repeat its calls.
    if (value.get("resume").raw === true) return
    add(callsOf(value.get("calls").list(expected)))
  }
  const add = (calls: typeof last): void => {
    last = calls
    if (calls.length === 0) return
    conversations.push({ id: undefined, turns: [{ steps: [{ calls, context: undefined }], said: [], requests: [] }] })
  }
  for (const value of values) visit(value)
  return conversations
}

const expected = "an object with `calls`, a list of {id, name, arguments}"

const callsOf = (entries: ReadonlyArray<Value>) =>
  entries.map((entry) => {
    const id = entry.object("a call").get("id")
    const args = entry.get("arguments").raw
    return openCall(
      id.absent ? "" : id.string("the id of a call"),
      entry.get("name").string("the name of a tool"),
      args === undefined || args === null || args === "" ? {} : fromText(args)
    )
  })
