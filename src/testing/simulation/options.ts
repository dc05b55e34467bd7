/**
 * How much is explored, read from options that programs and scenarios share.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import * as TurnError from "../../TurnError.ts"

/** Who complains of an option that cannot be. */
export const owner = "the simulation"

/** The first seed, and how many from there on. */
export const seedsOf = (
  options: {
    readonly seeds?: number | { readonly from: number; readonly count: number } | undefined
    readonly budget?: Duration.Input | undefined
  } | undefined
): { readonly from: number; readonly count: number } => {
  const seeds = options?.seeds ?? (options?.budget === undefined ? 200 : Number.MAX_SAFE_INTEGER - 1)
  const { count, from } = typeof seeds === "object" ? seeds : { from: 1, count: seeds }
  return {
    from: TurnError.wholeNumber(owner, "the first seed", from, 0),
    count: TurnError.wholeNumber(owner, "seeds", count)
  }
}

/** A length of time in milliseconds, of at least so many. */
export const millisOf = (name: string, input: Duration.Input, least: 0 | 1): number => {
  const duration = Option.getOrUndefined(Duration.fromInput(input))
  const millis = duration === undefined ? NaN : Duration.toMillis(duration)
  // A negative time, and NaN, are read as no time by `Duration`.
  if (millis >= least && !(typeof input === "number" && !(input >= least))) return millis
  throw TurnError.make(
    new TurnError.InvalidLimit({
      owner,
      limit: name,
      expected: least === 0 ? "a length of time" : "a length of time over 0",
      received: TurnError.show(input)
    })
  )
}

/** The real time after which no run is begun, in milliseconds. */
export const budgetOf = (options: { readonly budget?: Duration.Input | undefined } | undefined): number =>
  options?.budget === undefined ? Infinity : millisOf("budget", options.budget, 0)

/** How many runs may be spent on making a failure smaller. */
export const maxShrinksOf = (options: { readonly maxShrinks?: number | undefined } | undefined): number =>
  TurnError.wholeNumber(owner, "maxShrinks", options?.maxShrinks ?? 500, 0)
