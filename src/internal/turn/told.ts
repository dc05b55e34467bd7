/** Steps of services that a turn tells something, and that it does not depend on. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { leavable } from "./patience.ts"

/** How long a turn waits for a service to take what has happened already, in milliseconds. */
const patience = 5_000

/** A step of a service that nobody may wait for longer than that; what it does not take is in the log. */
export const told = <E>(who: string, what: string, step: () => Effect.Effect<void, E>): Effect.Effect<void> =>
  leavable(Effect.suspend(step), 0, () => Effect.void).pipe(
    Effect.timeoutOption(patience),
    Effect.flatMap((done) => Option.isSome(done) ? Effect.void : Effect.logWarning(`${who} did not ${what} in time`)),
    Effect.catchCause((cause) => Effect.logWarning(`${who} could not ${what}`, cause))
  )
