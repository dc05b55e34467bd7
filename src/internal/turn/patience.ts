/** Effects of others in which a turn waits, and which may be deaf: such a one goes on after it was interrupted. */
import * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import * as Siblings from "../../Siblings.ts"

/** How long a turn waits for what is to be done when an answer is known already, in milliseconds. */
export const patience = 5_000

/** A step that is left behind when it ignores its stop longer than the grace; that is in the log. */
export const leavableStep = <A, E, R>(
  what: string,
  effect: Effect.Effect<A, E, R>,
  grace: number
): Effect.Effect<A, E, R> =>
  Siblings.leavable(effect, grace, () => Effect.logWarning(`a turn went on while ${what} ignored its stop`))

/** A step within a clock of its own, or nothing. */
export const inTime = <A, E, R>(
  what: string,
  step: Effect.Effect<A, E, R>,
  clock: number,
  grace: number
): Effect.Effect<Option.Option<A>, E, R> => {
  const patient = leavableStep(what, step, grace)
  return clock === Infinity ? Effect.asSome(patient) : Effect.timeoutOption(patient, clock)
}
