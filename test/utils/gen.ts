/** Generated turns, and the plain definitions that they are held against. */
import * as Arbitrary from "effect/Arbitrary"
import * as Schema from "effect/Schema"

/** One of a list; simpler ones first, for that is where shrinking goes. */
export const pick = <const A>(...of: ReadonlyArray<A>): Arbitrary.Arbitrary<A> =>
  Arbitrary.map(int(0, of.length - 1), (i) => of[i]!)

export const int = (minimum: number, maximum: number): Arbitrary.Arbitrary<number> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))

/** Keys that meet: plain ones, paths, and the same path in several spellings. */
const key = pick(
  "a",
  "b",
  "f:/a",
  "f:/a/x",
  "f:/a/y",
  "f:/a/x/1",
  "f:/b",
  "f:/",
  "f:/a//x",
  "f:/a/./x",
  "f:/a/y/../x",
  "f:/a/"
)

/** How much of its inputs a property takes: all of them, unless `EFFECT_TURN_RUNS` says a part. */
const part = Number(process.env["EFFECT_TURN_RUNS"] ?? 1)

/** Options of a property: the same inputs each time, or those of `EFFECT_TURN_SEED`. */
export const runs = (runs: number) => ({
  arbitrary: { runs: Math.ceil(runs * part), seed: process.env["EFFECT_TURN_SEED"] ?? "turn" }
})

export const keys = Arbitrary.array(key, { maxLength: 3 })

/** The steps of a key by the words of R12: a path covers what lies below it; `.`, `..` and doubled slashes are resolved. */
const steps = (key: string): ReadonlyArray<string> => {
  if (!key.includes("/")) return [key]
  const [first, ...rest] = key.split("/")
  const path: Array<string> = []
  for (const step of rest) {
    if (step === "..") path.pop()
    else if (step !== "" && step !== ".") path.push(step)
  }
  return [first!, ...path]
}

const covers = (a: ReadonlyArray<string>, b: ReadonlyArray<string>): boolean =>
  a.length <= b.length && a.every((step, i) => step === b[i])

export interface Reach {
  readonly write: boolean
  /** `undefined`: unknown reach. */
  readonly keys: ReadonlyArray<string> | undefined
}

/** R12, pair by pair. */
export const conflict = (a: Reach, b: Reach): boolean => {
  if (!a.write && !b.write) return false
  if (a.keys === undefined) return b.keys === undefined || b.keys.length > 0
  if (b.keys === undefined) return a.keys.length > 0
  return a.keys.some((x) => b.keys!.some((y) => covers(steps(x), steps(y)) || covers(steps(y), steps(x))))
}
