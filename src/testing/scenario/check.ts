/**
 * The rules that hold in every scenario, and the expectations of one. Both are checked on what was seen, against the file
 * alone: nothing here asks the library what it thinks.
 *
 * @since 0.1.0
 */
import * as TurnError from "../../TurnError.ts"
import type * as FakeTool from "../FakeTool.ts"
import { keysOf } from "./keys.ts"
import * as Report from "./report.ts"
import type * as Form from "./schema.ts"

type Observed = Report.Observed

/** `"c1" (get_weather) of turn 0` */
const named = (observed: Observed, run: FakeTool.Run): string => {
  const root = Report.rootOf(run)
  const turn = observed.turns.findIndex((one) => one.id === root.turn)
  const inside = root === run ? "" : `, inside ${JSON.stringify(root.id)},`
  return `${JSON.stringify(run.id)} (${run.tool})${inside} of turn ${turn === -1 ? "unknown" : turn}`
}

const runsOf = (observed: Observed, turn: Report.ObservedTurn): ReadonlyArray<FakeTool.Run> =>
  observed.runs.filter((run) => Report.rootOf(run).turn === turn.id)

/** R1: one outcome for each call, in the order in which the model emitted the calls. */
const oneAnswerEach = (observed: Observed): Array<string> =>
  observed.turns.flatMap((turn, index) => {
    const { answers, calls } = turn
    if (answers === undefined) return []
    if (answers.length !== calls.length) {
      return [`R1: turn ${index}: expected one outcome for each of ${calls.length} calls, got ${answers.length}`]
    }
    return answers.flatMap((answer, position) => {
      const expected = JSON.stringify(calls[position]!.id)
      const got = JSON.stringify(answer.outcome.id)
      return expected === got && answer.position === position
        ? []
        : [
          `R1: turn ${index}, call ${position}: expected the outcome of ${expected}, got that of ${got} (call ${answer.position})`
        ]
    })
  })

/** R3: what was started, and what had an effect, is not told as not done. */
const honestAnswers = (observed: Observed): Array<string> =>
  observed.turns.flatMap((turn, index) =>
    (turn.repeats === undefined ? turn.answers ?? [] : []).flatMap(({ outcome, position: own }, position) => {
      if (own !== position) return [] // not this call's answer, which R1 has said
      // A call that has left the run that it shared was answered by itself; the run went on for the others.
      const left = outcome.status === "cancelled" && turn.answers!.some((one) => one.outcome.duplicateOf === outcome.id)
      if (left) return []
      const runs = observed.runs.filter((run) => run.turn === turn.id && run.position === position)
      const where = `R3: turn ${index}, call ${position} (${JSON.stringify(outcome.id)})`
      if (runs.length > 0 && !outcome.started) {
        return [`${where}: its handler was started, and its outcome says that it was not`]
      }
      return outcome.effect === "none" && runs.some((run) => run.effectAt !== undefined)
        ? [`${where}: its effect landed, and its outcome says that there was none`]
        : []
    })
  )

/** When the work of a run could first have been told to stop. */
const stoppedAt = (
  scenario: Form.Scenario,
  observed: Observed,
  turn: Report.ObservedTurn,
  run: FakeTool.Run
): number => {
  const { deadlineMs, siblings } = scenario.policy ?? {}
  const moments = [...turn.stops]
  if (deadlineMs !== undefined) moments.push(turn.startedAt + deadlineMs)
  const ownClock = (one: FakeTool.Run) => {
    const { timeoutMs } = scenario.tools[one.tool] ?? {}
    if (timeoutMs !== undefined) moments.push(one.startedAt + timeoutMs)
  }
  for (let one: FakeTool.Run | undefined = run; one !== undefined; one = one.parent) ownClock(one)
  if (siblings === "failFast") {
    for (const other of runsOf(observed, turn)) {
      ownClock(other)
      if (other.endedAt !== undefined) moments.push(other.endedAt)
    }
    // A call that has waited for too long is a failure too.
    for (const { queueTimeoutMs } of Object.values(scenario.tools)) {
      if (queueTimeoutMs !== undefined) moments.push(turn.startedAt + queueTimeoutMs)
    }
  }
  return Math.min(...moments)
}

/** R17, R20: nothing is at work after the answer, but what a grace that ran out has left at work. */
const noOrphans = (scenario: Form.Scenario, observed: Observed): Array<string> =>
  observed.turns.flatMap((turn) => {
    const { answered, answeredAt } = turn
    if (answered === undefined || answeredAt === undefined) return []
    return runsOf(observed, turn).flatMap((run) => {
      // Work that was given up on goes on, with what it runs inside; it is looked at by itself.
      if (run.parent !== undefined && Report.atWork(run.parent, answered)) return []
      if (run.began > answered) return [`R17: ${named(observed, run)} was started after the turn's answer`]
      if (!Report.atWork(run, answered)) return []
      const grace = scenario.policy?.graceMs
      if (grace === undefined) {
        return [`R17: ${named(observed, run)} was still at work after the turn's answer at ${answeredAt} ms`]
      }
      return stoppedAt(scenario, observed, turn, run) + grace <= answeredAt ? [] : [
        `R20: ${
          named(observed, run)
        } was still at work after the turn's answer at ${answeredAt} ms, and its grace of ${grace} ms had not run out`
      ]
    })
  })

/** R14: permits are out only for handlers that are at work. */
const permitsBack = (observed: Observed): Array<string> => {
  const count = (when: string, permits: Record<string, number>, place: number) =>
    Object.entries(permits).flatMap(([backend, out]) => {
      const working = observed.runs.filter((run) => run.backend === backend && Report.atWork(run, place)).length
      return out <= working
        ? []
        : [
          `R14: backend ${
            JSON.stringify(backend)
          }, ${when}: expected at most ${working} permits out, one for each handler at work, got ${out}`
        ]
    })
  return [
    ...count("when the last turn was answered", observed.permitsOut, Report.lastAnswer(observed)),
    ...count("when nothing more happened", observed.permitsAtEnd, Infinity)
  ]
}

/** A path without empty, `.` and `..` segments. */
const normal = (key: string): string => {
  const [head = "", ...rest] = key.split("/")
  const parts: Array<string> = []
  for (const part of rest) {
    if (part === "..") parts.pop()
    else if (part !== "" && part !== ".") parts.push(part)
  }
  return rest.length === 0 ? head : `${head}/${parts.join("/")}`
}

const covers = (a: string, b: string): boolean =>
  a === b || (a.includes("/") && b.startsWith(a.endsWith("/") ? a : `${a}/`))

/** R12: two runs conflict when they may touch the same thing, and one of them writes. */
const conflict = (scenario: Form.Scenario, a: FakeTool.Run, b: FakeTool.Run): string | undefined => {
  if (a.access === "read" && b.access === "read") return undefined
  const tools = scenario.tools
  const keysA = Object.hasOwn(tools, a.tool) ? keysOf(tools[a.tool]!, a.params)?.map(normal) : undefined
  const keysB = Object.hasOwn(tools, b.tool) ? keysOf(tools[b.tool]!, b.params)?.map(normal) : undefined
  if (keysA?.length === 0 || keysB?.length === 0) return undefined
  if (keysA === undefined || keysB === undefined) return "unknown reach"
  return keysA.find((one) => keysB.some((other) => covers(one, other) || covers(other, one)))
}

const isInside = (run: FakeTool.Run, outer: FakeTool.Run): boolean => {
  for (let one = run.parent; one !== undefined; one = one.parent) if (one === outer) return true
  return false
}

/** Conflicting calls of one turn run in the order in which they were emitted, and no two conflicting runs overlap. */
const apartAndInOrder = (scenario: Form.Scenario, observed: Observed): Array<string> => {
  const problems: Array<string> = []
  observed.runs.forEach((a, index) => {
    for (const b of observed.runs.slice(index + 1)) {
      const overlap = b.began < (a.ended ?? Infinity) && a.began < (b.ended ?? Infinity)
      const swapped = a.turn === b.turn && a.position > b.position
      if (a.tenant !== b.tenant || !(overlap || swapped)) continue
      if (isInside(a, b) || isInside(b, a)) continue
      const key = conflict(scenario, a, b)
      if (key === undefined) continue
      problems.push(
        `R12: ${named(observed, a)} and ${named(observed, b)} conflict on ${JSON.stringify(key)}, and ${
          overlap
            ? `ran at the same time from ${b.startedAt} ms`
            : "did not run in the order in which they were emitted"
        }`
      )
    }
  })
  return problems
}

/** R20, R24: a write without a key that its backend honours is not interrupted, and not run twice for one call. */
const writesAreSafe = (scenario: Form.Scenario, observed: Observed): Array<string> => {
  const problems: Array<string> = []
  const seen = new Set<string>()
  for (const run of observed.runs) {
    if (run.access === "read" || scenario.tools[run.tool]?.idempotency === "forward") continue
    if (run.end === "interrupted") {
      problems.push(
        `R20: ${
          named(observed, run)
        }, a write without an idempotency key, was interrupted at ${run.endedAt} ms after its start at ${run.startedAt} ms`
      )
    }
    const call = JSON.stringify([run.turn, run.position])
    if (seen.has(call)) {
      problems.push(`R24: ${named(observed, run)}, a write without an idempotency key, ran twice for one call`)
    }
    seen.add(call)
  }
  return problems
}

const brokenText = (value: unknown): string | undefined => {
  if (typeof value === "string") return value.isWellFormed() ? undefined : value
  if (typeof value !== "object" || value === null) return undefined
  for (const [name, inner] of Object.entries(value)) {
    const found = brokenText(name) ?? brokenText(inner)
    if (found !== undefined) return found
  }
  return undefined
}

/** R29: no text for the model holds half a character. */
const wholeTexts = (observed: Observed): Array<string> =>
  observed.turns.flatMap((turn, index) =>
    (turn.answers ?? []).flatMap(({ model, position }) => {
      const text = brokenText(model)
      return text === undefined ? [] : [
        `R29: turn ${index}, call ${position}: expected whole characters in what the model gets, got half of one in ${
          TurnError.show(text)
        }`
      ]
    })
  )

/** R35: a handler can know which call it serves. */
const knownCalls = (observed: Observed): Array<string> =>
  observed.runs.flatMap((run) =>
    run.position === -1 || !observed.turns.some((turn) => turn.id === Report.rootOf(run).turn)
      ? [`R35: a run of ${run.tool} at ${run.startedAt} ms does not know which call of which turn it serves`]
      : []
  )

/** All that has to hold in every scenario, each breach in words. @internal */
export const rules = (scenario: Form.Scenario, observed: Observed): Array<string> => [
  ...observed.faults,
  ...oneAnswerEach(observed),
  ...honestAnswers(observed),
  ...noOrphans(scenario, observed),
  ...permitsBack(observed),
  ...apartAndInOrder(scenario, observed),
  ...writesAreSafe(scenario, observed),
  ...wholeTexts(observed),
  ...knownCalls(observed)
]
