/**
 * What the format can say and this version of the library does not do. A file that needs it is not run, and its report says so.
 *
 * @since 0.1.0
 */
import * as Form from "./schema.ts"

const not = (what: string, where: string): string => `this version does not run \`${what}\` (${where})`

/** What a file needs and is not there, before anything runs. @internal */
export const features = (scenario: Form.Scenario): Array<string> => {
  const found: Array<string> = []
  for (const [name, tool] of Object.entries(scenario.tools)) {
    const where = `tool ${name}`
    if (tool.resultBudget !== undefined) found.push(not("resultBudget", where))
  }
  if (scenario.policy?.references === true) found.push(not("references", "policy"))
  if (scenario.policy?.resultBudget !== undefined) found.push(not("resultBudget", "policy"))
  return [...new Set(found)]
}
