/**
 * What differs between two runs of one scenario, in words.
 *
 * @since 0.1.0
 */
import * as TurnError from "../../TurnError.ts"
import type * as FakeTool from "../FakeTool.ts"
import { rootOf } from "../laws/observation.ts"
import { same } from "./keys.ts"
import type * as Report from "./report.ts"

type Observed = Report.Observed

/** `5 in the natural order, 7 here`, or nothing when they are the same. */
const differs = (what: string, natural: unknown, here: unknown): Array<string> =>
  same(natural, here) ? [] : [`${what}: ${shown(natural)} in the natural order, ${shown(here)} here`]

const shown = (value: unknown): string => value === undefined ? "none" : TurnError.show(value)

const fields = ["id", "status", "code", "started", "effect", "retryable", "duplicateOf", "replayed", "result"] as const

const outcomes = (natural: Observed, here: Observed): Array<string> =>
  natural.turns.flatMap(({ answers }, turn) => {
    const others = here.turns[turn]?.answers
    if (answers === undefined || others === undefined) {
      return differs(
        `turn ${turn}`,
        answers === undefined ? "no answer" : "answered",
        others === undefined ? "no answer" : "answered"
      )
    }
    return Array.from({ length: Math.max(answers.length, others.length) }, (_, position) => {
      const [one, other] = [answers[position]?.outcome, others[position]?.outcome]
      const where = `turn ${turn}, call ${position} (${JSON.stringify(one?.id ?? other?.id)})`
      return fields.flatMap((field) => differs(`${where}: ${field}`, one?.[field], other?.[field]))
    }).flat()
  })

const counts = (what: string, natural: Record<string, number>, here: Record<string, number>): Array<string> =>
  Object.keys(natural).flatMap((name) => differs(`${what} of ${name}`, natural[name], here[name]))

/** The runs by a name of their own: turn and call, and where a call has more than one, its number; the requests by theirs. */
const named = (observed: Observed): ReadonlyMap<string, FakeTool.Run> => {
  const seen = new Map<string, number>()
  const names = new Map<string, FakeTool.Run>()
  const add = (name: string, run: FakeTool.Run) => {
    const n = (seen.get(name) ?? 0) + 1
    seen.set(name, n)
    names.set(n === 1 ? name : `${name}, run ${n}`, run)
  }
  for (const run of observed.requests) {
    add(`request to ${run.tool} for ${shown(run.keys)}, tenant ${JSON.stringify(run.tenant)}`, run)
  }
  for (const run of observed.runs) {
    const root = rootOf(run)
    const turn = observed.turns.findIndex(({ id }) => id === root.turn)
    const inside = root === run ? "" : `, inside call ${root.position}`
    add(`call ${run.position} ${JSON.stringify(run.id)} (${run.tool}) of turn ${turn}${inside}`, run)
  }
  return names
}

const times = (run: FakeTool.Run): string =>
  run.ended === undefined
    ? `from ${run.startedAt} ms on, without an end`
    : `${run.startedAt} to ${run.endedAt} ms, ${run.end}`

const runs = (natural: ReadonlyMap<string, FakeTool.Run>, here: ReadonlyMap<string, FakeTool.Run>): Array<string> =>
  [...new Set([...natural.keys(), ...here.keys()])].flatMap((name) => {
    const [one, other] = [natural.get(name), here.get(name)]
    const [a, b] = [one, other].map((run) => run === undefined ? "did not run" : times(run))
    return a === b ? [] : [`${name}: ${a} in the natural order, ${b} here`]
  })

/** All starts and ends, in the order in which they came. */
const order = (runs: ReadonlyMap<string, FakeTool.Run>): ReadonlyArray<string> =>
  [...runs].flatMap(([name, { began, ended }]) => [
    [began, `start of ${name}`] as const,
    ...(ended === undefined ? [] : [[ended, `end of ${name}`] as const])
  ]).sort(([a], [b]) => a - b).map(([_, text]) => text)

/** How many starts and ends are told from where they differ. */
const told = 6

const orders = (natural: ReadonlyArray<string>, here: ReadonlyArray<string>): Array<string> => {
  const at = Array.from({ length: Math.max(natural.length, here.length) }, (_, i) => i)
    .find((i) => natural[i] !== here[i])
  if (at === undefined) return []
  const from = (list: ReadonlyArray<string>) => list.slice(at, at + told).join(", ") || "nothing more"
  return [`order, after the first ${at} starts and ends: ${from(natural)} in the natural order; ${from(here)} here`]
}

/**
 * What differs in a run from the natural one: outcomes, counts, what ran when and in which order, and the times of the answers.
 *
 * @internal
 */
export const between = (natural: Observed, here: Observed): ReadonlyArray<string> => {
  const [a, b] = [named(natural), named(here)]
  return [
    ...outcomes(natural, here),
    ...counts("executions", natural.executions, here.executions),
    ...counts("effects", natural.effects, here.effects),
    ...counts("requests", natural.requestsTo, here.requestsTo),
    ...counts("peak", natural.peak, here.peak),
    ...counts("permits out at the last answer", natural.permitsOut, here.permitsOut),
    ...counts("permits out at the end", natural.permitsAtEnd, here.permitsAtEnd),
    ...runs(a, b),
    ...orders(order(a), order(b)),
    ...natural.turns.flatMap(({ answeredAt }, turn) =>
      differs(`turn ${turn}: answered at, in milliseconds`, answeredAt, here.turns[turn]?.answeredAt)
    )
  ]
}
