/**
 * The expectations of a scenario file against what was seen.
 *
 * @since 0.1.0
 */
import * as TurnError from "../../TurnError.ts"
import * as Report from "./report.ts"
import type * as Form from "./schema.ts"

/** Equality of JSON values. */
const same = (a: unknown, b: unknown): boolean => {
  if (a === b) return true
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const names = Object.keys(a)
  return names.length === Object.keys(b).length &&
    names.every((name) => Object.hasOwn(b, name) && same((a as any)[name], (b as any)[name]))
}

const outcomes = (
  expected: NonNullable<Form.Scenario["expect"]["outcomes"]>,
  observed: Report.Observed
): Array<string> =>
  expected.flatMap((list, index) => {
    const answers = observed.turns[index]?.answers
    if (list === null) return answers === undefined ? [] : [`outcomes: turn ${index}: expected no answer, got one`]
    if (answers === undefined) return [`outcomes: turn ${index}: expected ${list.length} outcomes, got no answer`]
    return list.flatMap((wanted, position) => {
      const got: { readonly [name: string]: unknown } = {
        replayed: false,
        truncated: false,
        ...answers[position]?.outcome
      }
      return Object.entries(wanted).flatMap(([field, value]) => {
        if (Object.hasOwn(got, field) && same(got[field], value)) return []
        const came = Object.hasOwn(got, field) ? TurnError.show(got[field]) : "none"
        const where = `outcomes: turn ${index}, call ${position} (${JSON.stringify(got["id"])})`
        return [`${where}: expected ${field} ${TurnError.show(value)}, got ${came}`]
      })
    })
  })

const counts = (
  what: string,
  expected: Record<string, number> | undefined,
  got: Record<string, number>
): Array<string> =>
  Object.entries(expected ?? {}).flatMap(([name, wanted]) => {
    const count = Object.hasOwn(got, name) ? got[name]! : 0
    return count === wanted ? [] : [`${what}: ${name}: expected ${wanted}, got ${count}`]
  })

/** The runs that a name in `before` and `overlap` means: an id, or `turn/id` where the id alone means more than one. */
const runsNamed = (spans: ReadonlyArray<Report.Span>, name: string): ReadonlyArray<Report.Span> | string => {
  const outer = spans.filter((span) => span.nested !== true)
  const byId = outer.filter((span) => span.id === name)
  const calls = new Set(byId.map((span) => `${span.turn}/${span.index}`))
  if (calls.size === 1) return byId
  if (calls.size > 1) return `${JSON.stringify(name)} means more than one call: say turn/id`
  const exact = outer.filter((span) => `${span.turn}/${span.id}` === name)
  return exact.length === 0 ? `expected a run of ${JSON.stringify(name)}, got none` : exact
}

const show = (span: Report.Span): string => `${span.startMs}-${span.endMs ?? "…"} ms`

const pairs = (
  what: "before" | "overlap",
  expected: ReadonlyArray<readonly [string, string]> | undefined,
  spans: ReadonlyArray<Report.Span>
): Array<string> =>
  (expected ?? []).flatMap(([nameA, nameB]) => {
    const where = `${what}: [${JSON.stringify(nameA)}, ${JSON.stringify(nameB)}]`
    const a = runsNamed(spans, nameA)
    const b = runsNamed(spans, nameB)
    if (typeof a === "string") return [`${where}: ${a}`]
    if (typeof b === "string") return [`${where}: ${b}`]
    const end = (span: Report.Span) => span.endMs ?? Infinity
    const met = what === "before"
      ? a.every((one) => b.every((other) => end(one) <= other.startMs))
      : a.some((one) => b.some((other) => Math.max(one.startMs, other.startMs) < Math.min(end(one), end(other))))
    const wanted = what === "before" ? "the first to end before the second starts" : "both to run at the same time"
    return met ? [] : [`${where}: expected ${wanted}, got ${a.map(show).join(", ")} and ${b.map(show).join(", ")}`]
  })

/** Each expectation that was not met, in words. @internal */
export const unmet = (scenario: Form.Scenario, observed: Report.Observed): Array<string> => {
  const { before, effects, elapsedMs, executions, outcomes: wanted, overlap, peak, requests, runningAfter } =
    scenario.expect
  const report = Report.make("", observed, [])
  const spans = Report.spansOf(observed)
  const elapsed = Report.elapsed(observed)
  const problems = [
    ...(wanted === undefined ? [] : outcomes(wanted, observed)),
    ...counts("executions", executions, observed.executions),
    ...counts("effects", effects, observed.effects),
    ...counts("peak", peak, observed.peak),
    ...counts("requests", requests, observed.requestsTo),
    ...pairs("before", before, spans),
    ...pairs("overlap", overlap, spans)
  ]
  if (elapsedMs?.min !== undefined && elapsed < elapsedMs.min) {
    problems.push(`elapsedMs: expected at least ${elapsedMs.min}, got ${elapsed}`)
  }
  if (elapsedMs?.max !== undefined && elapsed > elapsedMs.max) {
    problems.push(`elapsedMs: expected at most ${elapsedMs.max}, got ${elapsed}`)
  }
  if (runningAfter !== undefined && report.runningAfter !== runningAfter) {
    problems.push(`runningAfter: expected ${runningAfter}, got ${report.runningAfter}`)
  }
  return problems
}
