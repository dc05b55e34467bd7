/**
 * The events of a stream out of its text or bytes: server-sent events as providers send them, JSON objects one after another (one a
 * line, or as they come), or a JSON list of them, as Gemini sends without `alt=sse`. Which of these it is, the first character says.
 *
 * A stream may be cut anywhere: inside a character, between CR and LF, before its last blank line. Comments, blank data and `[DONE]`
 * are no events, and an event that the end of the stream cuts off is left out.
 *
 * @since 0.1.0
 */
import * as Sse from "effect/encoding/Sse"
import * as Result from "effect/Result"
import * as TurnError from "../TurnError.ts"
import * as Dialect from "./Dialect.ts"
import { type AnyDialect, dialects } from "./Dialects.ts"
import { JsonEvents, mostCharacters, type Read } from "./stream/jsonEvents.ts"

const name = "event stream"

/**
 * Reads a stream piece by piece. A mutable thing, for one stream.
 *
 * **Details**
 *
 * `push` gives the events that are whole by this piece, in order; one that cannot be read is a failure in its place, and nothing is read
 * after it. `end` gives what the end of the stream makes whole.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Parser {
  readonly push: (piece: string | Uint8Array) => ReadonlyArray<Result.Result<unknown, TurnError.TurnError>>
  readonly end: () => ReadonlyArray<Result.Result<unknown, TurnError.TurnError>>
}

/**
 * Makes a parser for one stream.
 *
 * **Example** (Cut anywhere)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { EventStream } from "effect-turn/wire"
 *
 * const parser = EventStream.parser()
 * const none = parser.push('data: {"te').length // => 0
 * const [event] = parser.push('xt":"hi"}\n\ndata: [DONE]\n\n')
 * const first = Result.getOrThrow(event!) // => ({ text: "hi" })
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const parser = (): Parser => {
  const decoder = new TextDecoder()
  let reader: Reader | undefined
  /** What came before the first character that says anything. */
  let blank = ""
  const read = (text: string): ReadonlyArray<Read> => {
    if (reader !== undefined) return reader.push(text)
    const first = /[^\s\uFEFF]/.exec(text)?.[0]
    blank += text
    if (first === undefined) return []
    reader = first === "{" || first === "[" ? new JsonEvents(name) : new SseEvents()
    return reader.push(blank.replace(/^\uFEFF/, ""))
  }
  return {
    push: (piece) => read(typeof piece === "string" ? piece : decoder.decode(piece, { stream: true })),
    end: () => [...read(decoder.decode()), ...reader?.end?.() ?? []]
  }
}

interface Reader {
  readonly push: (text: string) => ReadonlyArray<Read>
  readonly end?: () => ReadonlyArray<Read>
}

class SseEvents implements Reader {
  private read: Array<Read> = []
  private count = 0
  private over = false
  private ending = false
  private readonly parser = Sse.makeParser((event) => {
    if (event._tag === "Event") this.take(event.event, event.data)
  }, { maxEventSize: mostCharacters })

  push(text: string): ReadonlyArray<Read> {
    if (this.over) return []
    const error = this.parser.feed(text)
    if (error !== undefined) this.refuse(`at most ${mostCharacters} characters`, "more")
    const { read } = this
    this.read = []
    return read
  }

  end(): ReadonlyArray<Read> {
    this.ending = true
    return this.push("\n\n")
  }

  private take(kind: string, data: string): void {
    if (this.over || data.trim() === "") return
    if (data.trim() === "[DONE]") {
      this.over = true
      return
    }
    try {
      const value: unknown = JSON.parse(data)
      this.read.push(Result.succeed(kind === "error" ? asError(value) : value))
      this.count++
    } catch {
      if (kind === "error") this.read.push(Result.succeed(asError(data)))
      else if (!this.ending) this.refuse("JSON", TurnError.show(data))
    }
  }

  private refuse(expected: string, received: string): void {
    this.over = true
    this.read.push(Dialect.refuse(name, `events[${this.count}]`, expected, received))
  }
}

/** That it is an error, some hosts say in the name of the event alone. */
const asError = (value: unknown): unknown =>
  Dialect.isRecord(value) && ("error" in value || value.type === "error")
    ? value
    : { type: "error", error: typeof value === "string" ? { message: value } : value }

/**
 * Reads the whole text of a stream, as a recording holds it.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const parse = (text: string): Result.Result<ReadonlyArray<unknown>, TurnError.TurnError> => {
  const { end, push } = parser()
  const read = Result.all([...push(text), ...end()])
  return Result.isSuccess(read) && read.success.length === 0
    ? Dialect.refuse(
      name,
      "",
      'server-sent events ("data: {...}"), JSON objects one after another, or a JSON list of them',
      text.trim() === "" ? "nothing" : TurnError.show(text)
    )
    : read
}

/**
 * Tells in which dialect the events of a stream are.
 *
 * **Example** (Whose stream is it?)
 *
 * ```ts import.meta.vitest
 * import { Result } from "effect"
 * import { EventStream } from "effect-turn/wire"
 *
 * const dialect = Result.getOrThrow(EventStream.detect([
 *   { object: "chat.completion.chunk", choices: [{ index: 0, delta: { role: "assistant" } }] }
 * ]))
 * const id = dialect.id // => "chat"
 * ```
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const detect = (events: ReadonlyArray<unknown>): Result.Result<AnyDialect, TurnError.TurnError> =>
  Dialect.safely(name, () => {
    for (const event of events) {
      const id = Dialect.isRecord(event) ? idOf(event) : undefined
      const dialect = id === undefined ? undefined : dialects.find((dialect) => dialect.id === id)
      if (dialect !== undefined) return Result.succeed(dialect)
    }
    const error = events.find((event) => Dialect.isRecord(event) && event.error != null)
    return Dialect.refuse(
      name,
      "",
      "chunks of Chat Completions or Gemini, events of Responses or Anthropic, or calls in the neutral form",
      error === undefined
        ? `${events.length} events that are none of these${events.length === 0 ? "" : `: ${TurnError.show(events[0])}`}`
        : `the provider's error ${wordsOf((error as { readonly error: unknown }).error)}`
    )
  })

const wordsOf = (error: unknown): string =>
  JSON.stringify(Dialect.isRecord(error) && typeof error.message === "string" ? error.message : error)

const idOf = (event: Readonly<Record<string, unknown>>): string | undefined => {
  const { type } = event
  if (typeof type === "string") {
    if (type.startsWith("response.")) return "responses"
    if (/^(message_|content_block_)/.test(type)) return "anthropic"
  }
  if (
    event.object === "chat.completion.chunk" ||
    (Array.isArray(event.choices) && event.choices.some((one) => Dialect.isRecord(one) && "delta" in one))
  ) return "chat"
  if (["candidates", "usageMetadata", "promptFeedback"].some((field) => field in event)) return "gemini"
  return Array.isArray(event.calls) || "finishReason" in event || (typeof event.name === "string" && !("role" in event))
    ? "neutral"
    : undefined
}
