/** Effects of others in which a turn waits, and which may be deaf: such a one goes on after it was interrupted. */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"

/** How long a turn waits for what is to be done when an answer is known already, in milliseconds. */
export const patience = 5_000

/**
 * An effect that is waited for so long after its interruption, in milliseconds, and no longer: then it is left behind, and `left` is
 * told of what goes on.
 */
export const leavable = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  grace: number,
  left: (fiber: Fiber.Fiber<A, E>) => Effect.Effect<void>
): Effect.Effect<A, E, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(Effect.forkDetach(effect, { startImmediately: true }), (fiber) => {
      const leave = Effect.suspend(() => {
        fiber.interruptUnsafe()
        // One that obeys may need a turn of the scheduler for it.
        const ended = grace === Infinity
          ? Effect.asSome(Fiber.await(fiber))
          : Effect.timeoutOption(Fiber.await(fiber), Math.max(1, grace))
        return Effect.flatMap(ended, (exit) => Option.isSome(exit) ? Effect.void : left(fiber))
      })
      return fiber.pollUnsafe() ?? Effect.onInterrupt(restore(Fiber.join(fiber)), () => leave)
    })
  )

/** The same for a step of a turn; that it was left behind is in the log. */
export const leavableStep = <A, E, R>(
  what: string,
  effect: Effect.Effect<A, E, R>,
  grace: number
): Effect.Effect<A, E, R> =>
  leavable(effect, grace, () => Effect.logWarning(`a turn went on while ${what} ignored its stop`))

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
