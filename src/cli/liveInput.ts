/** Reads a message from standard input while it still comes: server-sent events are a stream, whose calls can start before its end. */
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Pull from "effect/Pull"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type * as TurnError from "../TurnError.ts"
import { dialects } from "../wire/Dialects.ts"
import * as EventStream from "../wire/EventStream.ts"
import { fromTurnError, type Misuse } from "./failure.ts"
import * as Input from "./input.ts"

const source = "standard input"

/** Reads the message of a file, or what begins on standard input. What streams belongs to the scope. */
export const read = (
  file: string,
  id: string | undefined
): Effect.Effect<Input.Input | Input.Live, Misuse, FileSystem.FileSystem | Stdio.Stdio | Scope.Scope> =>
  Effect.gen(function*() {
    if (file !== "-") return yield* Input.read(file, id)
    const pull = yield* Stream.toPull(yield* Input.stdinText(Input.noMessage))
    const more = Pull.catchDone(Effect.map(pull, (pieces) => pieces.join("")), () => Effect.succeed(undefined))
    let text = ""
    // The first field of an event may come in pieces.
    while (/^\ufeff?\s*[a-z]{0,5}$/.test(text)) {
      const piece = yield* more
      if (piece === undefined) return yield* Input.decode(source, text, id)
      text += piece
    }
    if (!Input.serverSent.test(text)) {
      for (let piece = yield* more; piece !== undefined; piece = yield* more) text += piece
      return yield* Input.decode(source, text, id)
    }
    const parser = EventStream.parser()
    const events = [...parser.push(text)]
    const wanted = dialects.find((dialect) => dialect.id === id)
    for (;;) {
      const first = events.flatMap((event) => Result.isSuccess(event) ? [event.success] : [])
      const dialect = wanted === undefined ? EventStream.detect(first) : Result.succeed(wanted)
      if (Result.isSuccess(dialect)) {
        const rest = Stream.fromPull(Effect.succeed(pull)).pipe(
          Stream.mapAccum(() => parser, (parser, piece) => [parser, parser.push(piece)], {
            onHalt: (parser) => parser.end()
          })
        )
        return {
          _tag: "Live",
          dialect: dialect.success,
          events: Stream.mapEffect(Stream.concat(Stream.fromIterable(events), rest), Effect.fromResult),
          notes: []
        } satisfies Input.Live
      }
      // Whose stream it is, its first events may not say.
      const broken = events.find(Result.isFailure)
      const piece = broken === undefined ? yield* more : undefined
      if (piece === undefined) {
        const last = broken ?? parser.end().find(Result.isFailure) ?? dialect
        return yield* fromTurnError(
          source,
          (last as Result.Failure<unknown, TurnError.TurnError>).failure,
          Input.adviceFor(wanted)
        )
      }
      events.push(...parser.push(piece))
    }
  })
