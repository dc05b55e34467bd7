/** What a handle on a turn is made of: the stream of its events, and how its calls are named. */
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import type * as ToolCall from "../../ToolCall.ts"
import type * as TurnEvent from "../../TurnEvent.ts"

const eventCapacity = 16_384

/** The events of one turn for one reader, of which the oldest go when there are too many. */
export const watch = () => {
  const queue = Effect.runSync(Queue.unbounded<TurnEvent.TurnEvent, Cause.Done>())
  let waiting = 0
  let lost = 0
  return {
    offer: (event: TurnEvent.TurnEvent) => {
      if (waiting >= eventCapacity) {
        // The oldest goes: what a reader has not taken yet is worth less than what happens now.
        if (Queue.takeUnsafe(queue) !== undefined) {
          waiting--
          lost++
        }
      }
      if (Queue.offerUnsafe(queue, event)) waiting++
      if (event._tag === "TurnEnded") Queue.endUnsafe(queue)
    },
    events: Stream.tap(Stream.fromQueue(queue), () =>
      Effect.sync(() => {
        waiting--
      })),
    lost: Effect.sync(() => lost)
  }
}

/** The position that an id stands for, when exactly one call has it. */
export const positionOf = (calls: ReadonlyArray<ToolCall.ToolCall>, at: number | string): number => {
  if (typeof at === "number") return at
  const found = calls.findIndex((call) => call.id === at)
  return found === -1 || calls.findLastIndex((call) => call.id === at) !== found ? -1 : found
}
