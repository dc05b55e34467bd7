/** What is looked at before a call is taken in, or planned: misuse, and calls that were run too often. */
import type * as ToolCall from "../../ToolCall.ts"
import * as TurnError from "../../TurnError.ts"
import { digestOf } from "./approvals.ts"
import type { Intake, Taken } from "./intake.ts"
import { invalidInput } from "./options.ts"
import type { Setting } from "./run.ts"
import type { Surroundings } from "./surroundings.ts"
import type { AnyToolkit } from "./tool.ts"

export const checkCall = (call: unknown, which: string): TurnError.TurnError | undefined => {
  const given = call as Partial<ToolCall.ToolCall> | null | undefined
  return typeof given !== "object" || given === null || typeof given.name !== "string" || typeof given.id !== "string"
    ? invalidInput(`${which} of the turn`, "an object with a text `id` and a text `name`", call)
    : undefined
}

export const checkCalls = (calls: ReadonlyArray<ToolCall.ToolCall>): TurnError.TurnError | undefined => {
  if (!Array.isArray(calls)) return invalidInput("the calls of a turn", "a list of tool calls", calls)
  for (let i = 0; i < calls.length; i++) {
    const bad = checkCall(calls[i], `call #${i}`)
    if (bad !== undefined) return bad
  }
  return undefined
}

export const missingService = (
  call: ToolCall.ToolCall,
  toolkit: AnyToolkit,
  intake: Intake,
  around: Surroundings
): TurnError.TurnError | undefined => {
  const tool = intake.toolOf(call.name)
  if (tool === undefined) return undefined
  const runner = around.runner(toolkit, tool)
  return "missing" in runner
    ? TurnError.make(new TurnError.MissingService({ tool: tool.name, service: runner.missing }))
    : undefined
}

/** Why a call may not be run once more in its conversation (rule R32). */
export const repeatedTooOften = ({ conversation, repeats, runtime }: Setting, taken: Taken): string | undefined => {
  if (conversation === undefined || taken.repeatable) return undefined
  const count = runtime.repeats.count(conversation, digestOf(taken))
  return count < repeats
    ? undefined
    : `the same call was run ${count} times in this conversation, the limit: use what it answered, or do something else`
}

/** Refuses a call that was run too often in its conversation already. */
export const refuseRepeated = (setting: Setting, taken: Taken): void => {
  if (taken.state._tag !== "open") return
  const message = repeatedTooOften(setting, taken)
  if (message !== undefined) taken.state = { _tag: "refused", code: "over_limit", message }
}
