/** Steps of services that a turn tells something, and that it does not depend on. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Siblings from "../../Siblings.ts"
import { patience } from "./patience.ts"

/** A step of a service that nobody waits for longer than `patience`; what it does not take is in the log. */
export const told = <E>(who: string, what: string, step: () => Effect.Effect<unknown, E>): Effect.Effect<void> =>
  Siblings.leavable(Effect.suspend(step), 0, () => Effect.void).pipe(
    Effect.timeoutOption(patience),
    Effect.flatMap((done) => Option.isSome(done) ? Effect.void : Effect.logWarning(`${who} did not ${what} in time`)),
    Effect.catchCause((cause) => Effect.logWarning(`${who} could not ${what}`, cause))
  )
