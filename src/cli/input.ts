/** Reads the model's message: bytes to JSON to calls, each step with an error of its own. A recorded stream is put together first. */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Result from "effect/Result"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type * as TurnError from "../TurnError.ts"
import type * as Dialect from "../wire/Dialect.ts"
import { type AnyDialect, detect, dialects } from "../wire/Dialects.ts"
import * as EventStream from "../wire/EventStream.ts"
import { describeThrown, fromTurnError, Misuse } from "./failure.ts"
import { notJson } from "./json.ts"
import { endOf } from "./lastMessage.ts"

/** A message that was read, in whichever dialect. */
export interface Input extends Dialect.Decoded<unknown> {
  readonly _tag: "Whole"
  readonly dialect: AnyDialect
  /** What is worth knowing of where the message was found. */
  readonly notes: ReadonlyArray<string>
}

/** A message that still streams. */
export interface Live {
  readonly _tag: "Live"
  readonly dialect: AnyDialect
  readonly events: Stream.Stream<unknown, Misuse | TurnError.TurnError>
  readonly notes: ReadonlyArray<string>
}

/** Reads a message from a file or from standard input (`-`), in the dialect with this id, or in whichever it is. */
export const read = (
  file: string,
  dialect: string | undefined
): Effect.Effect<Input, Misuse, FileSystem.FileSystem | Stdio.Stdio> =>
  file === "-"
    ? Effect.flatMap(readStdin(noMessage), (text) => decode("standard input", text, dialect))
    : Effect.flatMap(
      readFile(file, 'give the path of a file, or "-" for standard input'),
      (text) => decode(file, text, dialect)
    )

/** The text of a file. */
export const readFile = (file: string, advice: string): Effect.Effect<string, Misuse, FileSystem.FileSystem> =>
  FileSystem.FileSystem.use((fs) => fs.readFileString(file)).pipe(
    Effect.mapError((error) =>
      new Misuse({
        what: `cannot read ${file}`,
        expected: "a file that can be read",
        received: error.reason._tag === "NotFound"
          ? "no such file"
          : isDirectory(error.reason.cause)
          ? "a directory"
          : error.reason.message,
        advice
      })
    )
  )

const isDirectory = (cause: unknown): boolean =>
  typeof cause === "object" && cause !== null && "code" in cause && cause.code === "EISDIR"

export const noMessage = {
  what: "no message",
  expected: "a message in a file or on standard input",
  received: "neither: standard input is a terminal",
  advice: "give a file (effect-turn run message.json …) or pipe one in (… | effect-turn run - …)"
}

/** The text of standard input; `nothing` is what to say where it is a terminal. */
export const readStdin = (nothing: Nothing): Effect.Effect<string, Misuse, Stdio.Stdio> =>
  Effect.flatMap(stdinText(nothing), Stream.mkString)

/** What is said where there is no input. */
type Nothing = typeof noMessage

/** The text of standard input as it comes. */
export const stdinText = (nothing: Nothing): Effect.Effect<Stream.Stream<string, Misuse>, Misuse, Stdio.Stdio> =>
  Effect.gen(function*() {
    const stdio = yield* Stdio.Stdio
    if (yield* stdio.stdinIsTerminal) return yield* new Misuse(nothing)
    return stdio.stdin.pipe(
      Stream.decodeText,
      Stream.mapError((error) =>
        new Misuse({
          what: "cannot read standard input",
          expected: "text",
          received: isDirectory(error.reason.cause) ? "a directory" : describeThrown(error),
          advice: "give the path of a file in place of it"
        })
      )
    )
  })

const forms =
  "a provider's message as JSON (a response, an assistant message, a history that ends with one), the events of a stream, or the neutral form"

const advice = 'see "effect-turn run --help" for the forms'

/** What a text is: one JSON value, or the events of a stream. */
type Found =
  | { readonly _tag: "Value"; readonly value: unknown }
  | { readonly _tag: "Events"; readonly events: ReadonlyArray<unknown> }

/** Takes the message out of a text. */
export const decode = (source: string, text: string, id: string | undefined): Effect.Effect<Input, Misuse> =>
  Effect.gen(function*() {
    const found = yield* foundIn(source, text)
    const wanted = dialects.find((dialect) => dialect.id === id)
    return yield* Effect.fromResult(
      found._tag === "Events" ? assembled(source, found.events, wanted) : decoded(source, found.value, wanted)
    )
  })

/** Server-sent events, by their first field, comments included. */
export const serverSent = /^\ufeff?\s*(?:data|event|id|retry)?:/

const foundIn = (source: string, text: string): Effect.Effect<Found, Misuse> =>
  Effect.gen(function*() {
    const plain = text.replace(/^\ufeff/, "")
    const whole = parsed(plain)
    if (whole !== undefined) return { _tag: "Value", value: whole.value }
    // JSON lines: one value a line, the first of which is whole.
    const first = plain.trimStart().split("\n", 1)[0]!
    if (!serverSent.test(text) && parsed(first) === undefined) {
      return yield* notJson(source, text, { expected: forms, advice: text.trim() === "" ? advice : "correct it there" })
    }
    const events = EventStream.parse(text)
    return Result.isSuccess(events)
      ? { _tag: "Events", events: events.success }
      : yield* fromTurnError(source, events.failure, "record the stream again, or correct it there")
  })

const parsed = (text: string): { readonly value: unknown } | undefined => {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    return undefined
  }
}

/** The message that a value is, or that it ends with. */
const decoded = (source: string, value: unknown, wanted: AnyDialect | undefined): Result.Result<Input, Misuse> => {
  const end = endOf(value)
  if (end?._tag === "Other") {
    return Result.fail(
      new Misuse({
        what: `${source} is a history that does not end with a message of the model`,
        expected: "the model's message last: the calls in it are run",
        received: `${end.what} as the last of ${end.of}`,
        advice: "cut the history behind the model's message, or give that message alone"
      })
    )
  }
  const message = end === undefined ? value : end.message
  const notes = end === undefined ? [] : [`${source} is a history of ${end.of}: the model's last message is taken`]
  const found = detect(message)
  const dialect = wanted?.matches(message) === true ? Result.succeed(wanted) : found
  if (Result.isFailure(dialect)) {
    // A list of chunks, or one chunk alone, is a stream that was kept as JSON.
    const events = Array.isArray(value) ? value : [value]
    const stream = EventStream.detect(events)
    return Result.isSuccess(stream) && (wanted === undefined || stream.success === wanted)
      ? assembled(source, events, stream.success)
      : Result.fail(fromTurnError(source, dialect.failure, adviceFor(wanted)))
  }
  if (wanted !== undefined && dialect.success !== wanted) {
    return Result.fail(
      new Misuse({
        what: `${source} is no message of the dialect ${wanted.id}`,
        expected: `a message of ${wanted.name}`,
        received: `a message of ${dialect.success.name}`,
        advice: adviceFor(wanted)
      })
    )
  }
  return Result.map(
    Result.mapError(dialect.success.decode(message), (error) => fromTurnError(source, error, adviceFor(wanted))),
    (decoded): Input => ({ _tag: "Whole", ...decoded, dialect: dialect.success, notes })
  )
}

export const adviceFor = (wanted: AnyDialect | undefined): string =>
  wanted === undefined
    ? advice
    : `correct it there, or leave out --dialect ${wanted.id}: whose message it is, is found out`

/** The response that the events of a stream come to. */
const assembled = (
  source: string,
  events: ReadonlyArray<unknown>,
  wanted: AnyDialect | undefined
): Result.Result<Input, Misuse> => {
  const refused = (error: TurnError.TurnError) => fromTurnError(source, error, adviceFor(wanted))
  const dialect = wanted === undefined ? EventStream.detect(events) : Result.succeed(wanted)
  if (Result.isFailure(dialect)) return Result.fail(refused(dialect.failure))
  const assembler = dialect.success.assembler()
  for (const event of events) {
    const pushed = assembler.push(event)
    if (Result.isFailure(pushed)) return Result.fail(refused(pushed.failure))
  }
  return Result.map(Result.mapError(assembler.end(), refused), (decoded): Input => ({
    _tag: "Whole",
    ...decoded,
    dialect: dialect.success,
    notes: [`${source} is a recorded stream: its ${events.length} events are put together`]
  }))
}
