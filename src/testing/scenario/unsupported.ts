/**
 * What the format can say and this version of the library does not do. A file that needs it is not run, and its report says so.
 *
 * @since 0.1.0
 */
import type * as Report from "./report.ts"
import * as Form from "./schema.ts"

const not = (what: string, where: string): string => `this version does not run \`${what}\` (${where})`

/** What a file needs and is not there, before anything runs. @internal */
export const features = (scenario: Form.Scenario): Array<string> => {
  const found: Array<string> = []
  for (const [name, tool] of Object.entries(scenario.tools)) {
    const where = `tool ${name}`
    if (tool.batch !== undefined) found.push(not("batch", where))
    if (tool.retry !== undefined && tool.retry.max > 0) found.push(not("retry", where))
    if (tool.resultBudget !== undefined) found.push(not("resultBudget", where))
    if (tool.idempotency === "record") found.push(not("idempotency: record", where))
    for (const { type } of Form.behavioursOf(tool)) {
      if (type === "items" || type === "rateLimited") found.push(not(`behaviour: ${type}`, where))
    }
  }
  if (scenario.policy?.references === true) found.push(not("references", "policy"))
  if (scenario.policy?.resultBudget !== undefined) found.push(not("resultBudget", "policy"))
  if (scenario.concurrent === true) {
    scenario.turns.forEach((turn, index) => {
      if (turn.events?.some((event) => event.type === "crash") === true) found.push(not("crash", `turn ${index}`))
    })
  }
  return [...new Set(found)]
}

/** A crash in the middle of a turn. @internal */
export const crashes = (turns: ReadonlyArray<Report.ObservedTurn>): Array<string> =>
  turns.flatMap(({ crashed }, index) => crashed === true ? [not("crash", `turn ${index}, before its answer`)] : [])
