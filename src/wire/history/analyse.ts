/** Looks at a history and mends it in one go: what is found, and what was done about it, are two sides of the same. */
import * as Result from "effect/Result"
import type * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import type * as History from "../History.ts"
import { layOut } from "./layout.ts"
import { pairUp } from "./pairing.ts"
import { shapeOf } from "./shape.ts"
import { type Report, wellFormed } from "./view.ts"

export interface Finding extends History.Problem, History.Change {}

export interface Analysis {
  readonly dialect: History.DialectId
  readonly findings: ReadonlyArray<Finding>
  readonly open: ReadonlyArray<History.OpenCall>
  readonly mended: unknown
}

export const analyse = (
  input: unknown,
  options: History.MendOptions | undefined
): Result.Result<Analysis, TurnError.TurnError> =>
  Dialect.safely(
    "history",
    () =>
      Result.map(shapeOf(input, options?.dialect), ({ elsewhere, entries, field, form, wrap }) => {
        const findings: Array<Finding> = []
        const report: Report = (code, kind, path, message, change) => {
          findings.push({ code, kind, path, message, change })
        }
        const whole = entries.map((entry, index) => {
          const fixed = wellFormed(entry) as typeof entry
          if (fixed !== entry) {
            report(
              "broken_text",
              "refused",
              `${field}[${index}]`,
              "a text has half of a character, which no JSON parser takes",
              "a mark (U+FFFD) takes its place"
            )
          }
          return fixed
        })
        const paired = pairUp(form, form.read(whole, field, report), elsewhere, options?.close, report)
        const laid = layOut(form, paired.messages, report)
        const finished = form.finish?.(laid, report) ?? laid
        return {
          dialect: form.id,
          findings: findings.map((finding) => ({ finding, at: placeOf(finding.path) })).sort(inOrder).map((one) =>
            one.finding
          ),
          open: paired.open,
          mended: findings.length === 0 ? input : wrap(finished.map(form.write))
        }
      })
  )

interface Placed {
  readonly at: ReadonlyArray<number>
}

const placeOf = (path: string): ReadonlyArray<number> => path.match(/\d+/g)?.map(Number) ?? []

const inOrder = (a: Placed, b: Placed): number => {
  const length = Math.max(a.at.length, b.at.length)
  for (let i = 0; i < length; i++) {
    const difference = (a.at[i] ?? -1) - (b.at[i] ?? -1)
    if (difference !== 0) return difference
  }
  return 0
}
