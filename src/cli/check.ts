/** Tells what a provider would refuse in a history, and mends it. */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type * as Stdio from "effect/Stdio"
import * as History from "../wire/History.ts"
import { fromTurnError, Misuse, NotOk } from "./failure.ts"
import { readFile, readStdin } from "./input.ts"
import { notJson } from "./json.ts"
import * as Output from "./output.ts"
import { Sizes } from "./terminal.ts"
import { clean, type Paint, wrap } from "./text.ts"
import { stdoutPaint } from "./view.ts"

export interface Flags {
  readonly history: string
  readonly dialect: Option.Option<History.DialectId>
  readonly fix: boolean
  readonly output: Option.Option<string>
  readonly force: boolean
  readonly json: boolean
}

export const check = (flags: Flags): Effect.Effect<void, Misuse | NotOk, FileSystem.FileSystem | Stdio.Stdio> =>
  Effect.gen(function*() {
    const output = Option.getOrUndefined(flags.output)
    yield* fitting(flags, output)
    const source = flags.history === "-" ? "standard input" : flags.history
    const text = yield* flags.history === "-"
      ? readStdin(noHistory)
      : readFile(flags.history, 'give the path of a file, or "-" for standard input')
    const { lines, value } = yield* Effect.fromResult(valueOf(source, text))
    const options = { dialect: Option.getOrUndefined(flags.dialect) }
    const misuse = fromTurn(source, options.dialect)
    if (!flags.fix) {
      const { dialect, problems } = yield* Effect.mapError(Effect.fromResult(History.check(value, options)), misuse)
      if (flags.json) yield* Console.log(JSON.stringify({ dialect, problems }))
      else yield* Console.log(report(dialect, problems, (yield* Sizes).stdout().columns, yield* stdoutPaint))
      if (problems.length > 0) return yield* new NotOk()
      return
    }
    const mended = yield* Effect.mapError(Effect.fromResult(History.mend(value, options)), misuse)
    const { changes, history } = mended
    const written = lines && Array.isArray(history)
      ? history.map((entry) => JSON.stringify(entry)).join("\n")
      : JSON.stringify(history, undefined, 2)
    if (output !== undefined) yield* Output.write(output, `${written}\n`, flags.force)
    if (flags.json) yield* Console.log(JSON.stringify(mended))
    else if (output === undefined) yield* Console.log(written)
    for (const { change, message, path } of changes) yield* Console.error(clean(`${path}  ${message}: ${change}`))
    yield* Console.error(
      changes.length === 0
        ? `nothing to change in this history of ${names[mended.dialect]}`
        : `${plural(changes.length, "change")} to this history of ${names[mended.dialect]}`
    )
    if (output !== undefined) yield* Console.error(`history written: ${clean(output)}`)
  })

const names: Record<History.DialectId, string> = {
  chat: "Chat Completions",
  responses: "Responses",
  anthropic: "Anthropic's Messages",
  gemini: "Gemini"
}

const plural = (count: number, word: string): string => `${count} ${word}${count === 1 ? "" : "s"}`

/** Flags that mean nothing without another are refused, and so is what would write over what is read. */
const fitting = (
  { fix, force, history }: Flags,
  output: string | undefined
): Effect.Effect<void, Misuse, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    if (output !== undefined && !fix) {
      return yield* new Misuse({
        what: "--output without --fix",
        expected: "--fix beside it, which makes the history that is written",
        received: "--output",
        advice: "add --fix, or leave --output out"
      })
    }
    if (force && output === undefined) {
      return yield* new Misuse({
        what: "--force without --output",
        expected: "--output FILE beside it, which it overwrites",
        received: "--force",
        advice: "add --fix --output mended.json, or leave --force out"
      })
    }
    if (output === undefined || history === "-") return
    const fs = yield* FileSystem.FileSystem
    const [from, to] = yield* Effect.forEach(
      [history, output],
      (file) => Effect.orElseSucceed(fs.realPath(file), () => file)
    )
    if (from !== to) return
    return yield* new Misuse({
      what: `--output ${output} is the history itself`,
      expected: "another file: the history that came is never overwritten",
      received: "the same file",
      advice: "give another name, look at what was written, and move it then"
    })
  })

const noHistory = {
  what: "no history",
  expected: "a history in a file or on standard input",
  received: "neither: standard input is a terminal",
  advice: "give a file (effect-turn check history.json) or pipe one in (… | effect-turn check -)"
}

const expected =
  "a history as JSON: a list of messages, items or contents, or the body of a request that has it; or one message a line"

/** The history in a text, and whether it stands in lines. */
const valueOf = (
  source: string,
  text: string
): Result.Result<{ readonly value: unknown; readonly lines: boolean }, Misuse> => {
  const whole = parsed(text)
  if (whole !== undefined) {
    const { value } = whole
    // Nothing is found in nothing, and that says nothing.
    if (Array.isArray(value) && value.length === 0) {
      return Result.fail(
        new Misuse({
          what: `${source} is an empty history`,
          expected: "at least one message",
          received: "an empty list",
          advice: "look whether it was written in full"
        })
      )
    }
    return Result.succeed({ value, lines: false })
  }
  const fault = () =>
    Result.fail(notJson(source, text, { expected, advice: 'correct it there, or see "effect-turn check --help"' }))
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "")
  const values = lines.map(parsed)
  // Text that is cut off in its first line is no list of lines.
  if (values.length < 2 || values[0] === undefined) return fault()
  const wrong = values.indexOf(undefined)
  if (wrong < 0) return Result.succeed({ value: values.map((one) => one!.value), lines: true })
  return Result.fail(
    notJson(`${source}, line ${wrong + 1} of those that are not blank,`, lines[wrong]!, {
      expected: "one message as JSON in each line",
      advice: "correct it there, or leave the line out"
    })
  )
}

const parsed = (text: string): { readonly value: unknown } | undefined => {
  try {
    return { value: JSON.parse(text.replace(/^\ufeff/, "")) as unknown }
  } catch {
    return undefined
  }
}

const fromTurn =
  (source: string, dialect: History.DialectId | undefined) => (error: Parameters<typeof fromTurnError>[1]): Misuse => {
    const { reason } = error
    if (reason._tag !== "InvalidMessage") return fromTurnError(source, error, "")
    const whose = reason.dialect === "unknown" ? "" : ` of ${reason.dialect}`
    return new Misuse({
      what: `${source} is no history${whose}${reason.path === "" ? "" : `, at ${reason.path}`}`,
      expected: reason.expected,
      received: reason.received,
      advice: dialect === undefined
        ? 'see "effect-turn check --help" for the forms'
        : `correct it there, or leave out --dialect ${dialect}: whose history it is, is found out`
    })
  }

/** A paragraph a problem: where, what, and what is done about it. */
const report = (
  dialect: History.DialectId,
  problems: ReadonlyArray<History.Problem>,
  columns: number,
  paint: Paint
): string => {
  const width = columns === 0 ? Infinity : columns
  const of = `history of ${names[dialect]}`
  if (problems.length === 0) {
    return wrap(`sound: nothing in this ${of} is known to be refused`, width).replace("sound", paint.ok("sound"))
  }
  const count = (kind: History.Kind) => problems.filter((problem) => problem.kind === kind).length
  const counts = (["refused", "open", "loss"] as const).flatMap((kind) =>
    count(kind) === 0 ? [] : [`${count(kind)} ${kind}`]
  )
  return [
    ...problems.flatMap(({ change, kind, message, path }) => [
      wrap(clean(path === "" ? "(the whole)" : path), width),
      wrap(`  ${kind.padEnd(7)}  ${clean(message)}`, width)
        .replace(kind, (kind === "refused" ? paint.bad : paint.held)(kind)),
      wrap(`  --fix    ${clean(change)}`, width).replace("--fix", paint.faint("--fix"))
    ]),
    "",
    wrap(`${plural(problems.length, "problem")} in this ${of}: ${counts.join(", ")}`, width)
  ].join("\n")
}
