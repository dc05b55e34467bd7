/**
 * How long the way below each call of a turn is, in what the tools have taken so far (rule R12b).
 *
 * It is measured once, when two calls of the turn first wait in one line: a turn in which nothing waits pays nothing, and the order
 * of a turn's lines does not change under those that stand in them. A tool that is not known counts as the mean of those that are;
 * where none is known, each call counts as one. All lengths are told in such means, so that plain effects, which count as one, and
 * the turns inside one handler can be compared.
 */
import * as ToolDurations from "../../ToolDurations.ts"
import * as TurnPlan from "../../TurnPlan.ts"

export class Paths {
  private readonly durations: ToolDurations.ToolDurations["Service"]
  /** Forgotten when it has been measured. */
  private plan: TurnPlan.TurnPlan | undefined
  private lengths: ReadonlyArray<number> = []
  private unit = 1

  constructor(plan: TurnPlan.TurnPlan, durations: ToolDurations.ToolDurations["Service"]) {
    this.plan = plan
    this.durations = durations
  }

  lengthOf(position: number): number {
    if (this.plan !== undefined) this.measure(this.plan)
    return this.lengths[position]! / this.unit
  }

  private measure(plan: TurnPlan.TurnPlan): void {
    this.plan = undefined
    const known = new Map<string, number | undefined>()
    let sum = 0
    let count = 0
    for (const { name } of plan.calls) {
      if (known.has(name)) continue
      const millis = ToolDurations.expectedBy(this.durations, name)
      known.set(name, millis)
      if (millis === undefined) continue
      sum += millis
      count++
    }
    // Tools that all take no time say nothing of which goes first.
    const learned = sum > 0
    if (learned) this.unit = sum / count
    this.lengths = TurnPlan.pathLengths(plan, ({ name }) => learned ? known.get(name) ?? this.unit : 1)
  }
}
