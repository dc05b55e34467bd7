/**
 * What the format can say and this version of the library does not do. A file that needs it is not run, and its report says so.
 *
 * @since 0.1.0
 */
import type { Answer } from "../laws/observation.ts"
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
  for (const [name, backend] of Object.entries(scenario.backends ?? {})) {
    if (backend.rate !== undefined) found.push(not("rate", `backend ${name}`))
  }
  if (scenario.policy?.references === true) found.push(not("references", "policy"))
  if (scenario.policy?.resultBudget !== undefined) found.push(not("resultBudget", "policy"))
  scenario.turns.forEach((turn, index) => {
    if (turn.events?.some((event) => event.type === "crash") === true) found.push(not("crash", `turn ${index}`))
  })
  return [...new Set(found)]
}

const isHeld = (answer: Answer): boolean =>
  answer.outcome.status === "pending_approval" ||
  (answer.outcome.status === "deferred" && answer.outcome.code === "waits_for_approval")

/**
 * Decisions on calls that were held, and the resuming of turns with such calls. A decision on a call that is not held
 * decides nothing, and a turn in which nothing was held is resumed to what it was.
 *
 * @internal
 */
export const decisions = (scenario: Form.Scenario, turns: ReadonlyArray<Report.ObservedTurn>): Array<string> =>
  scenario.turns.flatMap((turn, index) => {
    const held = (turns[index]?.answers ?? []).filter(isHeld)
    const found = (turn.events ?? []).flatMap((event) =>
      (event.type === "approve" || event.type === "deny") && held.some(({ outcome }) => outcome.id === event.id)
        ? [not(event.type, `turn ${index}, call ${event.id}`)]
        : []
    )
    const before = turns[index - 1]?.answers ?? []
    return turn.resume === true && before.some(isHeld)
      ? [...found, not("resume", `turn ${index}, of held calls`)]
      : found
  })
