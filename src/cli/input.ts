/** Reads the model's message: bytes to JSON to calls, each step with an error of its own. */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Result from "effect/Result"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type * as Dialect from "../wire/Dialect.ts"
import { type AnyDialect, detect } from "../wire/Dialects.ts"
import { describeThrown, fromTurnError, Misuse } from "./failure.ts"

/** A message that was read, in whichever dialect. */
export interface Input extends Dialect.Decoded<unknown> {
  readonly dialect: AnyDialect
}

export const read = (file: string): Effect.Effect<Input, Misuse, FileSystem.FileSystem | Stdio.Stdio> =>
  file === "-"
    ? Effect.flatMap(readStdin(noMessage), (text) => decode("standard input", text))
    : Effect.flatMap(
      readFile(file, 'give the path of a file, or "-" for standard input'),
      (text) => decode(file, text)
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

const noMessage = {
  what: "no message",
  expected: "a message in a file or on standard input",
  received: "neither: standard input is a terminal",
  advice: "give a file (effect-turn run message.json …) or pipe one in (… | effect-turn run - …)"
}

/** The text of standard input; `nothing` is what to say where it is a terminal. */
export const readStdin = (nothing: typeof noMessage): Effect.Effect<string, Misuse, Stdio.Stdio> =>
  Effect.gen(function*() {
    const stdio = yield* Stdio.Stdio
    if (yield* stdio.stdinIsTerminal) return yield* new Misuse(nothing)
    return yield* stdio.stdin.pipe(
      Stream.decodeText,
      Stream.mkString,
      Effect.mapError((error) =>
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
  "a provider's message as JSON: a Chat Completions response, a choice or an assistant message, or the neutral form"

const decode = (source: string, text: string): Effect.Effect<Input, Misuse> =>
  Effect.gen(function*() {
    const json = yield* parse(source, text)
    const advice = 'see "effect-turn run --help" for the forms'
    const dialect = yield* Effect.fromResult(
      Result.mapError(detect(json), (error) => fromTurnError(source, error, advice))
    )
    const decoded = yield* Effect.fromResult(
      Result.mapError(dialect.decode(json), (error) => fromTurnError(source, error, advice))
    )
    return { ...decoded, dialect }
  })

const parse = (source: string, text: string): Effect.Effect<unknown, Misuse> =>
  Effect.try({
    try: (): unknown => JSON.parse(text.replace(/^\ufeff/, "")),
    catch: (thrown) =>
      new Misuse({
        what: `${source} is not JSON`,
        expected: forms,
        received: text.trim() === ""
          ? "nothing"
          : /^\s*(data|event):/.test(text)
          ? "the events of a stream"
          : describeThrown(thrown),
        advice: /^\s*(data|event):/.test(text)
          ? "assemble the stream's chunks into one message first"
          : "check the file"
      })
  })
