/** The options of a turn as JSON, for `--policy`: each field is checked by its schema, and refused in words that say what it takes. */
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Siblings from "../Siblings.ts"
import type * as Turn from "../Turn.ts"
import * as TurnError from "../TurnError.ts"
import { Misuse } from "./failure.ts"
import { readFile } from "./input.ts"
import { parse } from "./json.ts"
import { nearest, parseTime } from "./text.ts"

/** What a failing call does to the others, by the names of the flag. */
export const siblings = {
  "let-finish": Siblings.letFinish,
  "fail-fast": Siblings.failFast,
  "all-or-nothing": Siblings.allOrNothing
} as const

/** A field: what it takes, in words and as a schema, and the options that it stands for. */
interface Field {
  readonly takes: string
  readonly options: (value: unknown) => Result.Result<Turn.Options, unknown>
}

const field = <A>(
  takes: string,
  schema: Schema.Codec<A, unknown>,
  options: (value: A) => Turn.Options
): Field => ({
  takes,
  options: (value) =>
    Result.map(Schema.decodeUnknownResult(schema, { onExcessProperty: "error" })(value), (value) => options(value))
})

/** A time over `least`, in milliseconds; text is read as the flags read it. */
const time = (least: 0 | 1) =>
  Schema.Union([Schema.Finite, Schema.String]).check(
    Schema.makeFilter((value) => value === "infinite" || Option.isSome(parseTime(String(value), least)))
  )

const millis = (value: number | string): number | "infinite" =>
  value === "infinite" ? value : Option.getOrThrow(parseTime(String(value), 0))

const count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(1))

const times = 'such as 500, "30s", "2m" or "infinite"'

const Grace = Schema.Struct({ reads: Schema.optionalKey(time(0)), writes: Schema.optionalKey(time(0)) })

const Amounts = Schema.Struct({
  calls: Schema.optionalKey(count),
  perTool: Schema.optionalKey(Schema.Union([count, Schema.Record(Schema.String, count)]))
})

/** The fields of a policy, as `--help` lists them. */
export const fields: Readonly<Record<string, Field>> = {
  siblings: field(
    '"let-finish", "fail-fast" or "all-or-nothing"',
    Schema.Literals(["let-finish", "fail-fast", "all-or-nothing"]),
    (name) => ({ siblings: siblings[name] })
  ),
  execution: field(
    '"parallel", "sequential" or a whole number from 1',
    Schema.Union([Schema.Literals(["parallel", "sequential"]), count]),
    (execution) => ({ execution })
  ),
  dedupe: field(
    '"all", "reads" or "off"',
    Schema.Literals(["all", "reads", "off"]),
    (dedupe) => ({ dedupe })
  ),
  deadline: field(
    `milliseconds or a time over 0, ${times}`,
    time(1),
    (deadline) => ({ deadline: millis(deadline) })
  ),
  grace: field(
    `milliseconds or a time, ${times}; or { "reads": …, "writes": … } with such times`,
    Schema.Union([time(0), Grace]),
    (grace) => ({
      grace: typeof grace === "object"
        ? {
          ...(grace.reads === undefined ? undefined : { reads: millis(grace.reads) }),
          ...(grace.writes === undefined ? undefined : { writes: millis(grace.writes) })
        }
        : millis(grace)
    })
  ),
  amounts: field(
    '{ "calls": N, "perTool": N or { "tool": N } }, each whole and from 1, either of them left out',
    Amounts,
    (amounts) => ({ amounts })
  ),
  resultBudget: field(
    '{ "maxChars": N } or { "maxTokens": N }, whole and from 1',
    Schema.Union([Schema.Struct({ maxChars: count }), Schema.Struct({ maxTokens: count })]),
    (resultBudget) => ({ resultBudget })
  ),
  nameRepair: field("true or false", Schema.Boolean, (nameRepair) => ({ nameRepair })),
  references: field("true or false", Schema.Boolean, (references) => ({ references })),
  limits: field(
    '{ "maxBytes": N, "maxDepth": N, "maxKeys": N }, each whole and from 1, any of them left out',
    Schema.Struct({
      maxBytes: Schema.optionalKey(count),
      maxDepth: Schema.optionalKey(count),
      maxKeys: Schema.optionalKey(count)
    }),
    (limits) => ({ limits })
  )
}

/** Reads the policy that the flag names: JSON itself, or a file with JSON. */
export const read = (given: string): Effect.Effect<Turn.Options, Misuse, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const inline = given.trimStart().startsWith("{")
    const source = inline ? "the policy of --policy" : `the policy ${given}`
    const text = inline
      ? given
      : yield* readFile(given, 'give a file with JSON, or the JSON itself: --policy \'{"deadline": "30s"}\'')
    const value = yield* parse(source, text, {
      expected: "one JSON object with options of the turn",
      advice: 'see "effect-turn run --help" for the fields'
    })
    return yield* Effect.fromResult(check(source, value))
  })

const check = (source: string, value: unknown): Result.Result<Turn.Options, Misuse> => {
  const names = Object.keys(fields)
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return Result.fail(
      new Misuse({
        what: `${source} is no object`,
        expected: `an object with any of ${names.join(", ")}`,
        received: TurnError.show(value),
        advice: 'write it as {"deadline": "30s", "siblings": "fail-fast"}'
      })
    )
  }
  const options: Turn.Options = {}
  for (const [name, given] of Object.entries(value)) {
    const known = Object.hasOwn(fields, name) ? fields[name] : undefined
    if (known === undefined) {
      const meant = nearest(name, names)
      return Result.fail(
        new Misuse({
          what: `${source} has the unknown field "${name}"`,
          expected: `any of ${names.join(", ")}`,
          received: `"${name}"`,
          advice: meant === undefined ? "leave it out, or take one of these" : `did you mean "${meant}"?`
        })
      )
    }
    const read = known.options(given)
    if (Result.isFailure(read)) {
      return Result.fail(
        new Misuse({
          what: `${source} cannot have this "${name}"`,
          expected: known.takes,
          received: TurnError.show(given),
          advice: "correct it there"
        })
      )
    }
    Object.assign(options, read.success)
  }
  return Result.succeed(options)
}
