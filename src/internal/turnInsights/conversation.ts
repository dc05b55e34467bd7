/** Builds conversations: what was said, calls, answers, in the order in which they come. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { fromText } from "./value.ts"

/** A call while its answer may still come. */
export interface OpenCall {
  readonly id: string
  readonly tool: string
  arguments: unknown
  result: string | undefined
  failed: boolean
  duplicate: boolean
  deferred: string | undefined
  cut: boolean
  list: TurnInsights.Call["list"]
}

export const openCall = (id: string, tool: string, args: unknown): OpenCall => ({
  id,
  tool,
  arguments: args,
  result: undefined,
  failed: false,
  duplicate: false,
  deferred: undefined,
  cut: false,
  list: undefined
})

/** Gives a call its answer, and takes out of it what a list's answer says of itself. */
export const answer = (call: OpenCall, result: string, failed = false): void => {
  call.result = result
  call.failed = failed
  call.list = listOf(result)
}

/** The answer of a tool that was asked for a list says in its beginning for how many. */
const listOf = (result: string): TurnInsights.Call["list"] => {
  if (!/^\s*\{/.test(result) || !result.includes('"summary"')) return undefined
  const value = fromText(result) as { readonly summary?: Record<string, unknown>; readonly ids?: unknown }
  const { deferred, requested } = value?.summary ?? {}
  return Array.isArray(value?.ids) && isCount(requested) && isCount(deferred) ? { requested, deferred } : undefined
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

/** One conversation, message by message. */
export class Builder {
  private readonly turns: Array<{ steps: Array<{ calls: Array<OpenCall>; context: number }>; said: Array<string> }> = []
  private said: Array<string> = []
  private current: { steps: Array<{ calls: Array<OpenCall>; context: number }>; said: Array<string> } | undefined
  private sent = 0
  private closed = false
  /** Answers to no call. */
  stray = 0

  /** A message of whatever kind has been read: so many characters are sent with all that follow. */
  grow(characters: number): void {
    this.sent += characters
  }

  /** Text that did not come from a tool. */
  say(text: string): void {
    if (text !== "") this.said.push(text)
  }

  /** A message of the user. */
  user(text: string): void {
    this.current = undefined
    this.say(text)
  }

  step(calls: Array<OpenCall>): void {
    if (calls.length === 0) return
    if (this.current === undefined) {
      this.current = { steps: [], said: this.said }
      this.said = []
      this.turns.push(this.current)
    }
    this.current.steps.push({ calls, context: this.sent })
  }

  /** Whether the last step has answers already: what comes after is another step. */
  private get answered(): boolean {
    return this.current?.steps.at(-1)?.calls.some(({ result }) => result !== undefined) ?? false
  }

  /** Adds to the last step, where the calls of one answer come one by one. */
  addCall(call: OpenCall): void {
    const last = this.current?.steps.at(-1)
    if (last === undefined || this.closed || this.answered) this.step([call])
    else last.calls.push(call)
    this.closed = false
  }

  /** What comes next is of another answer of the model. */
  close(): void {
    this.closed = true
  }

  result(id: string, text: string, failed = false): void {
    const steps = this.turns.at(-1)?.steps ?? []
    for (let i = steps.length - 1; i >= 0; i--) {
      const call = steps[i]!.calls.find((call) => call.id === id && call.result === undefined)
      if (call !== undefined) return answer(call, text, failed)
    }
    this.stray++
  }

  build(id: string | undefined): TurnInsights.Conversation {
    return { id, turns: this.turns.map((turn) => ({ ...turn, requests: [] })) }
  }
}
