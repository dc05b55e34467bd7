/** Work that is interrupted and may be deaf: it goes on regardless. */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"

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
