/** Statements that others are in the way of. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"

/** Another connection was quicker, or has the lock: nothing was done, and it may be tried again. */
const isBusy = (error: unknown): boolean => {
  const { cause, reason } = (error ?? {}) as {
    readonly cause?: unknown
    readonly reason?: { readonly _tag?: unknown }
  }
  return reason === undefined
    ? cause !== undefined && isBusy(cause)
    : ["LockTimeoutError", "SerializationError", "DeadlockError"].includes(String(reason._tag))
}

/** Again after a short while, each time another one, for as long as there is time. */
export const persistent = <A, R>(step: Effect.Effect<A, unknown, R>, millis: number): Effect.Effect<A, unknown, R> =>
  Effect.gen(function*() {
    const until = (yield* Clock.currentTimeMillis) + millis
    while (true) {
      const result = yield* Effect.result(step)
      if (result._tag === "Success") return result.success
      if (!isBusy(result.failure) || (yield* Clock.currentTimeMillis) >= until) {
        return yield* Effect.fail(result.failure)
      }
      yield* Effect.sleep(1 + 9 * (yield* Random.next))
    }
  })
