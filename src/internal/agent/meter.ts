/** Tokens, counted for an agent and for all agents around it: what a sub-agent spends, its parent has spent. */
import * as Context from "effect/Context"

export class Meter {
  input = 0
  output = 0
  readonly limit: number
  private readonly outer: Meter | undefined

  constructor(limit: number, outer: Meter | undefined) {
    this.limit = limit
    this.outer = outer
  }

  /** What had been spent when the agent was parked. Those around it have counted it then. */
  start(usage: { readonly input: number; readonly output: number } | undefined): void {
    this.input = usage?.input ?? 0
    this.output = usage?.output ?? 0
  }

  add(input: number, output: number): void {
    this.input += input
    this.output += output
    this.outer?.add(input, output)
  }

  /** Whether this agent, or one around it, has spent what it may. */
  get isSpent(): boolean {
    return this.input + this.output >= this.limit || (this.outer?.isSpent ?? false)
  }
}

/** The meter of the agent whose tools the current fiber runs. */
export const CurrentMeter = Context.Reference<Meter | undefined>("effect-turn/Agent/Meter", {
  defaultValue: () => undefined
})
