/**
 * One response of a provider's own client, answered: its calls are taken out, run as a turn, and written into the messages that the
 * conversation goes on with. For programs that hold their own client; `Turn.layerLanguageModel` is for those on `effect/ai`.
 *
 * Of a response that comes as a stream, reads start when the provider has said that their call is complete, and everything else when the
 * response is over.
 *
 * - P1: whatever becomes of the stream, each call that came has its outcome, and the history holds both.
 * - P2: the stream is read as fast as it comes, also while calls run.
 * - P3: when the turn is stopped, the stream is let go.
 *
 * @since 0.1.0
 */
import type * as Toolkit from "effect/ai/Toolkit"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import type * as Outcome from "./Outcome.ts"
import type * as ToolCall from "./ToolCall.ts"
import * as Turn from "./Turn.ts"
import * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"
import type * as Dialect from "./wire/Dialect.ts"
import * as EventStream from "./wire/EventStream.ts"

type AnyToolkit = Toolkit.Any | Toolkit.WithHandler<any>

/**
 * The options of the turn, but for what the response itself says, and of its history.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options<in O extends Outcome.Outcome<any> = Outcome.Outcome<any>>
  extends Omit<Turn.Options<O>, "finishReason">
{
  /** Names the calls that came without a usable id. Default: a name that no other turn has, since a provider may want ids to be unique over a whole conversation. */
  readonly newId?: ((position: number) => string) | undefined
}

/**
 * A response with the outcomes of its calls.
 *
 * **Details**
 *
 * - `message`: the model's message as the provider sent it, or as its stream was put together.
 * - `history`: what stands in the conversation next: the model's message, then the answers. Empty where there is nothing to send back: a
 *   response that broke off before anything came, or one with neither text nor calls.
 * - `broke`: why the response is not whole, or why the history is not the model's own message: the failure of the stream, the provider's
 *   own error, an event that could not be read, a stream that ended before the response did. A message that cannot be kept is
 *   written anew from its calls, so that none of them is lost. A turn that was stopped breaks nothing: its outcomes say so.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Answered<K, out Message, out Sent, out E = never> {
  readonly message: Message
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly outcomes: Turn.Outcomes<K>
  readonly history: Array<Sent>
  readonly finishReason: ToolCall.FinishReason | undefined
  readonly broke: Option.Option<E | TurnError.TurnError>
}

/** Names that no other turn has. */
const namer = (given: Options["newId"]): Effect.Effect<(position: number) => string> =>
  given !== undefined ? Effect.succeed(given) : Effect.map(Random.Random, (random) => {
    let turn: string | undefined
    return (position) => {
      turn ??= TurnContext.newId("call", () => random.nextDoubleUnsafe())
      return `${turn}_${position}`
    }
  })

const hasToolkit = (args: IArguments): boolean => !("assembler" in args[0])

/**
 * Runs the calls of a whole response, and builds what stands in the conversation next.
 *
 * **Details**
 *
 * A response that its provider cut short runs nothing: its calls are answered `incomplete_response`. It fails with a response that cannot
 * be read, and as `Turn.run` does.
 *
 * **Interruption**: as for `Turn.run`: the turn is stopped and waited for, and `onClosed` is told the calls and their outcomes.
 *
 * **Example** (A response of a client, and the messages to go on with)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ProviderTurn, ToolPolicy, Turn } from "effect-turn"
 * import { OpenAiChat } from "effect-turn/wire"
 *
 * const Weather = pipe(
 *   Tool.make("weather", { parameters: Schema.Struct({ city: Schema.String }), success: Schema.String }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const toolkit = Toolkit.make(Weather)
 * const handlers = toolkit.toLayer({ weather: ({ city }) => Effect.succeed(`${city}: rain`) })
 *
 * // What client.chat.completions.create gave.
 * const response = {
 *   choices: [{
 *     finish_reason: "tool_calls",
 *     message: {
 *       role: "assistant",
 *       content: null,
 *       tool_calls: [{ id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } }]
 *     }
 *   }]
 * }
 * const { history } = await ProviderTurn.run(toolkit, OpenAiChat.dialect, response).pipe(
 *   Effect.provide([handlers, Turn.layer()]),
 *   Effect.runPromise
 * )
 * const answer = history[1] // => ({ role: "tool", tool_call_id: "call_1", content: "Oslo: rain" })
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const run: {
  <K extends AnyToolkit, Message, Sent>(
    toolkit: K,
    dialect: Dialect.Dialect<Message, Sent>,
    response: unknown,
    options?: Options<Turn.OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<Answered<K, Message, Sent>, TurnError.TurnError, Turn.Services<K> | Turn.Runtime>
  <Message, Sent>(
    dialect: Dialect.Dialect<Message, Sent>,
    response: unknown,
    options?: Options
  ): <K extends AnyToolkit>(
    toolkit: K
  ) => Effect.Effect<Answered<K, Message, Sent>, TurnError.TurnError, Turn.Services<K> | Turn.Runtime>
} = dual(
  hasToolkit,
  (
    toolkit: AnyToolkit,
    dialect: Dialect.Dialect<any, any>,
    response: unknown,
    options: Options = {}
  ): Effect.Effect<Answered<any, any, any>, TurnError.TurnError, any> =>
    Effect.gen(function*() {
      const decoded = yield* Effect.fromResult(dialect.decode(response))
      const { newId: _, ...turn } = options
      const outcomes = yield* Turn.run(toolkit, decoded.calls, { ...turn, finishReason: decoded.finishReason })
      return yield* answered<never>(toolkit, dialect, decoded, outcomes, Option.none(), options)
    })
)

/** The response as far as it came, with its outcomes (P1). */
const answered = <E>(
  toolkit: AnyToolkit,
  dialect: Dialect.Dialect<any, any>,
  { calls, finishReason, message }: Dialect.Decoded<any>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  broke: Option.Option<E | TurnError.TurnError>,
  options: Options
): Effect.Effect<Answered<any, any, any, E>, TurnError.TurnError> =>
  Effect.flatMap(namer(options.newId), (newId) => {
    const build = (message: unknown) => dialect.history(message, calls, outcomes, { newId, toolkit })
    const make = (history: Array<unknown>, broke: Option.Option<E | TurnError.TurnError>) =>
      ({ message, calls, outcomes, history, finishReason, broke }) as Answered<any, any, any, E>
    const history = build(message)
    if (Result.isSuccess(history)) return Effect.succeed(make(history.success, broke))
    const why = Option.orElse(broke, () => Option.some(history.failure))
    return calls.length === 0
      ? Effect.succeed(make([], why))
      : Effect.map(Effect.fromResult(build(dialect.fromCalls(calls))), (history) => make(history, why))
  })

/**
 * Runs the calls of a response while it streams, and builds what stands in the conversation next.
 *
 * **Details**
 *
 * `events` are the events of the response as the provider's client gives them (`Stream.fromAsyncIterable`), or as {@link events} reads
 * them. The turn begins with the stream, so that its deadline counts the time of the model too.
 *
 * A call whose provider says that it is complete starts early if it only reads (`Turn.open`); Chat Completions says so of no call. A
 * stream that fails or breaks off is no failure: what had begun keeps its outcome, the other calls that came are
 * `incomplete_response`, the history holds what can be kept, and `broke` says why. It fails when nothing began and the response cannot be
 * read, and with misuse.
 *
 * **Interruption**: stops the turn, lets go of the stream, and waits for both; `onClosed` is told the calls and their outcomes. With
 * `cancelOn`, and at the turn's deadline, the stream is let go as well, and the answer holds what came until then: a call that was half said is cancelled like the others.
 *
 * **Example** (A stream of events)
 *
 * ```ts import.meta.vitest
 * import { Effect, Option, pipe, Schema, Stream } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ProviderTurn, ToolPolicy, Turn } from "effect-turn"
 * import { OpenAiChat } from "effect-turn/wire"
 *
 * const Weather = pipe(
 *   Tool.make("weather", { parameters: Schema.Struct({ city: Schema.String }), success: Schema.String }),
 *   ToolPolicy.read({ keys: () => [] })
 * )
 * const toolkit = Toolkit.make(Weather)
 * const handlers = toolkit.toLayer({ weather: ({ city }) => Effect.succeed(`${city}: rain`) })
 *
 * // In a program: the body of the provider's response.
 * const bytes = Stream.make(
 *   'data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call_1",' +
 *     '"function":{"name":"weather","arguments":"{\\"city\\""}}]}}]}\n\n',
 *   'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":\\"Oslo\\"}"}}]}}]}\n\n',
 *   'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
 * )
 * const { broke, history } = await ProviderTurn.stream(toolkit, OpenAiChat.dialect, ProviderTurn.events(bytes)).pipe(
 *   Effect.provide([handlers, Turn.layer()]),
 *   Effect.runPromise
 * )
 * const whole = Option.isNone(broke) // => true
 * const answer = history[1] // => ({ role: "tool", tool_call_id: "call_1", content: "Oslo: rain" })
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const stream: {
  <K extends AnyToolkit, Message, Sent, E, R>(
    toolkit: K,
    dialect: Dialect.Dialect<Message, Sent>,
    events: Stream.Stream<unknown, E, R>,
    options?: Options<Turn.OutcomeOf<NoInfer<K>>>
  ): Effect.Effect<Answered<K, Message, Sent, E>, TurnError.TurnError, Turn.Services<K> | Turn.Runtime | R>
  <Message, Sent, E, R>(
    dialect: Dialect.Dialect<Message, Sent>,
    events: Stream.Stream<unknown, E, R>,
    options?: Options
  ): <K extends AnyToolkit>(
    toolkit: K
  ) => Effect.Effect<Answered<K, Message, Sent, E>, TurnError.TurnError, Turn.Services<K> | Turn.Runtime | R>
} = dual(
  hasToolkit,
  <E>(
    toolkit: AnyToolkit,
    dialect: Dialect.Dialect<any, any>,
    events: Stream.Stream<unknown, E, any>,
    options: Options = {}
  ): Effect.Effect<Answered<any, any, any, E>, TurnError.TurnError, any> =>
    Effect.scoped(Effect.gen(function*() {
      const { newId: _, onEvent, ...rest } = options
      const stopped = yield* Deferred.make<void>()
      const turn: Turn.Online<any> = yield* Turn.open(toolkit, {
        ...rest,
        onEvent: (event) => {
          if (event._tag === "TurnStopped") Deferred.doneUnsafe(stopped, Effect.void)
          onEvent?.(event)
        }
      })
      const assembler = dialect.assembler()
      const given: Array<ToolCall.ToolCall> = []
      const submit = (calls: ReadonlyArray<ToolCall.ToolCall>) =>
        Effect.forEach(calls, (call) => {
          given.push(call)
          return turn.submit(call)
        }, { discard: true })
      const read = readAll(events, assembler, submit)
      const end: End<E> = yield* Effect.raceFirst(read, Effect.as(Deferred.await(stopped), "stopped" as const))
      const decoded = assembler.end()
      const broke: Option.Option<E | TurnError.TurnError> = end === "stopped"
        ? Option.none()
        : Option.orElse(end, () => assembler.isOver() ? Result.getFailure(decoded) : Option.some(cutOff(dialect)))
      const isLost = end === "stopped" || Option.exists(end, (error) => !(error instanceof TurnError.TurnError))
      if (Result.isFailure(decoded) && given.length === 0 && !isLost) return yield* Effect.fail(decoded.failure)
      const response: Dialect.Decoded<any> = Result.getOrElse(decoded, () => ({
        message: dialect.fromCalls(given),
        calls: given,
        finishReason: "error" as const
      }))
      const outcomes = yield* turn.endWith(response.calls.slice(given.length), response.finishReason)
      return yield* answered(toolkit, dialect, response, outcomes, broke, options)
    }))
)

/** How reading ended: the turn was stopped, or the stream has no more, maybe because something broke. */
type End<E> = "stopped" | Option.Option<E | TurnError.TurnError>

/** The stream gives no more of the response. */
class Broke<E> {
  readonly error: E
  constructor(error: E) {
    this.error = error
  }
}

/** Reads a response to the end of its stream. It fails with what its calls fail with, and with nothing else. */
const readAll = <E, R>(
  events: Stream.Stream<unknown, E, R>,
  assembler: Dialect.Assembler<unknown>,
  submit: (calls: ReadonlyArray<ToolCall.ToolCall>) => Effect.Effect<void, TurnError.TurnError>
): Effect.Effect<Option.Option<E | TurnError.TurnError>, TurnError.TurnError, R> =>
  events.pipe(
    Stream.mapError((error) => new Broke<E | TurnError.TurnError>(error)),
    Stream.runForEach((event): Effect.Effect<void, TurnError.TurnError | Broke<E | TurnError.TurnError>> => {
      const calls = assembler.push(event)
      return Result.isFailure(calls) ? Effect.fail(new Broke(calls.failure)) : submit(calls.success)
    }),
    Effect.as(Option.none<E | TurnError.TurnError>()),
    Effect.catchIf((error) => error instanceof Broke, ({ error }) => Effect.succeed(Option.some(error)))
  )

const cutOff = ({ name }: Dialect.Dialect<any, any>): TurnError.TurnError =>
  TurnError.make(
    new TurnError.InvalidMessage({
      dialect: name,
      path: "",
      expected: "the end of the response",
      received: "the end of the stream"
    })
  )

/**
 * Reads the events of a stream out of its bytes or text, as `EventStream.parser` does.
 *
 * @category decoding
 * @since 0.1.0
 * @stability experimental
 */
export const events = <E, R>(
  bytes: Stream.Stream<Uint8Array | string, E, R>
): Stream.Stream<unknown, E | TurnError.TurnError, R> =>
  bytes.pipe(
    Stream.mapAccum(EventStream.parser, (parser, piece) => [parser, parser.push(piece)], {
      onHalt: (parser) => parser.end()
    }),
    Stream.mapEffect(Effect.fromResult)
  )
