/** Flags and arguments that commands share, with what their help says. */
import * as Argument from "effect/cli/Argument"
import * as Flag from "effect/cli/Flag"
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"

export const message = Argument.String("MESSAGE").pipe(
  Argument.withDescription('file with the model\'s message as JSON; "-" or nothing is standard input'),
  Argument.withDefault("-")
)

export const tools = Flag.String("tools").pipe(
  Flag.withMetavar("MODULE"),
  Flag.withDescription("JavaScript or TypeScript module that exports `toolkit` and `layer` (see above)")
)

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("print one JSON object on standard output"),
  Flag.withDefault(false)
)

export const siblings = Flag.Literals("siblings", ["let-finish", "fail-fast"]).pipe(
  Flag.withDescription("what a failing call does to the others: nothing (the default), or stop them"),
  Flag.optional
)

export const deadline = Flag.String("deadline").pipe(
  Flag.withMetavar("TIME"),
  Flag.withDescription('time for the whole turn, waiting included: "500ms", "30s", "2m", "1 minute"'),
  Flag.filterMap(
    parseTime,
    () => 'Expected: a time over 0 and under 24 days, such as "500ms", "30s", "2m" or "1 minute"'
  ),
  Flag.optional
)

export const tenant = Flag.String("tenant").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription('on whose behalf the turn runs (default "default")'),
  Flag.optional
)

export const execution = Flag.String("execution").pipe(
  Flag.withMetavar("parallel|sequential|N"),
  Flag.withDescription("all that may run together (the default), one after another, or at most N at once"),
  Flag.filterMap(parseExecution, () => 'Expected: "parallel", "sequential" or a whole number from 1'),
  Flag.optional
)

export const files = Argument.String("FILE").pipe(
  Argument.withDescription("scenario files"),
  Argument.variadic({ min: 1 })
)

const units = new Map([["", 1], ["ms", 1], ["s", 1000], ["m", 60_000], ["h", 3_600_000]])

function parseTime(text: string): Option.Option<number> {
  const short = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|)$/.exec(text.trim())
  const millis = short === null
    ? Option.getOrUndefined(Option.map(Duration.fromInput(text.trim() as Duration.Input), Duration.toMillis))
    : Number(short[1]) * units.get(short[2]!)!
  return millis !== undefined && millis >= 1 && millis <= 2 ** 31 - 1 ? Option.some(millis) : Option.none()
}

function parseExecution(text: string): Option.Option<"parallel" | "sequential" | number> {
  if (text === "parallel" || text === "sequential") return Option.some(text)
  return /^[1-9]\d{0,8}$/.test(text) ? Option.some(Number(text)) : Option.none()
}
