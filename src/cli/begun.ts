/** A turn that has begun: of a message that is there as a whole, or of one that still streams. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type * as Outcome from "../Outcome.ts"
import * as ProviderTurn from "../ProviderTurn.ts"
import type * as ToolCall from "../ToolCall.ts"
import * as Turn from "../Turn.ts"
import * as TurnError from "../TurnError.ts"
import type * as Dialect from "../wire/Dialect.ts"
import { describeThrown, type Misuse } from "./failure.ts"
import type { Input, Live } from "./input.ts"
import type { ToolsModule } from "./toolsModule.ts"

/** What a turn has come to, with the messages to send back. */
export interface Ended {
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly outcomes: ReadonlyArray<Outcome.Outcome>
  readonly messages: Result.Result<ReadonlyArray<unknown>, TurnError.TurnError>
  readonly finishReason: ToolCall.FinishReason | undefined
  /** Why the response is not whole. */
  readonly broke: string | undefined
}

/** `stop` stops the turn, waits for it, and gives what it has come to all the same. */
export interface Begun<E> {
  readonly await: Effect.Effect<Ended, E>
  readonly stop: Effect.Effect<Ended, E>
}

type Services = Turn.Services<any> | Turn.Runtime

/** Why the turn was stopped, as its outcomes say it. */
const reason = "interrupted"

/** Begins the turn of a message whose calls are all known. */
export const whole = (
  { calls, dialect, finishReason, message }: Input,
  { toolkit }: ToolsModule,
  options: Turn.Options
): Effect.Effect<Begun<never>, TurnError.TurnError, Services | Scope.Scope> =>
  Effect.map(Turn.start(toolkit, calls, options), (handle): Begun<never> => {
    const ended = (outcomes: ReadonlyArray<Outcome.Outcome>): Ended => ({
      calls,
      outcomes,
      messages: dialect.history(message, calls, outcomes, { toolkit }),
      finishReason,
      broke: undefined
    })
    return { await: Effect.map(handle.await, ended), stop: Effect.map(handle.cancel(reason), ended) }
  })

/** Begins the turn of a message whose calls come while it runs; `onCall` is told each, before it is run. */
export const live = (
  { dialect, events }: Live,
  { toolkit }: ToolsModule,
  options: Turn.Options,
  onCall: (call: ToolCall.ToolCall | undefined) => void
): Effect.Effect<Begun<TurnError.TurnError | Misuse>, never, Services | Scope.Scope> =>
  Effect.gen(function*() {
    const stopped = yield* Deferred.make<string>()
    const { cancelOn, finishReason: _, ...rest } = options
    const stop = Deferred.await(stopped)
    const fiber = yield* ProviderTurn.stream(toolkit, watched(dialect, onCall), events, {
      ...rest,
      cancelOn: cancelOn === undefined ? stop : Effect.raceFirst(stop, cancelOn)
    }).pipe(
      Effect.map(({ broke, calls, finishReason, history, outcomes }): Ended => ({
        calls,
        outcomes,
        messages: Result.succeed(history),
        finishReason,
        broke: Option.getOrUndefined(Option.map(broke, wordsOf))
      })),
      Effect.forkScoped
    )
    return {
      await: Fiber.join(fiber),
      stop: Effect.andThen(Deferred.succeed(stopped, reason), Fiber.join(fiber))
    }
  })

const wordsOf = (broke: TurnError.TurnError | Misuse): string =>
  broke instanceof TurnError.TurnError && broke.reason._tag === "InvalidMessage"
    ? `expected ${broke.reason.expected}, got ${broke.reason.received}`
    : broke._tag === "Misuse"
    ? `${broke.what}: ${broke.received}`
    : describeThrown(broke)

/** Tells of the calls as the provider says that they are complete, and of the others at the end, which is `undefined`. */
const watched = (
  dialect: Dialect.Dialect<any, any>,
  onCall: (call: ToolCall.ToolCall | undefined) => void
): Dialect.Dialect<any, any> => ({
  ...dialect,
  assembler: () => {
    const assembler = dialect.assembler()
    let told = 0
    const tell = (calls: ReadonlyArray<ToolCall.ToolCall>) => {
      for (const call of calls) onCall(call)
      told += calls.length
    }
    return {
      ...assembler,
      push: (event) => {
        const calls = assembler.push(event)
        if (Result.isSuccess(calls)) tell(calls.success)
        return calls
      },
      end: () => {
        const decoded = assembler.end()
        if (Result.isSuccess(decoded)) tell(decoded.success.calls.slice(told))
        onCall(undefined)
        return decoded
      }
    }
  }
})
