/** How an owner comes to a row: it puts it in where there is none, or takes over what may be taken over. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Row, StoreError, TurnStore } from "../../TurnStore.ts"
import { mayGo } from "./rows.ts"

/** How often others may have been quicker. */
const mostRounds = 20

/** Whose row it is by now; `again` where it was another's before. */
interface Reserved {
  readonly _tag: "Reserved"
  readonly again: boolean
}

/**
 * Claims a row. `rowOf` is the row as it is claimed at a time; what is there already is taken over, in the state `over`, unless
 * `inTheWay` gives what is in the way. What may be forgotten is nothing that is there. Each round is one step, or two where something is there.
 */
export const claim = <A>(
  store: TurnStore["Service"],
  rowOf: (at: number) => Row,
  over: string,
  inTheWay: (there: Row, at: number) => Effect.Effect<A | undefined, StoreError>,
  busy: () => StoreError
): Effect.Effect<A | Reserved, StoreError> =>
  Effect.gen(function*() {
    for (let round = 0; round < mostRounds; round++) {
      const at = yield* Clock.currentTimeMillis
      const row = rowOf(at)
      const { body, expiresAt, id, kind, leaseUntil, owner, updatedAt } = row
      const there = yield* store.insert(row)
      if (there === undefined) return { _tag: "Reserved", again: false }
      const seen = { state: there.state, owner: there.owner, leaseUntil: there.leaseUntil }
      if (mayGo(there, at)) {
        yield* store.change(kind, id, seen, undefined)
        continue
      }
      const found = yield* inTheWay(there, at)
      if (found !== undefined) return found
      const patch = { state: over, owner, leaseUntil, expiresAt, updatedAt, body }
      if (yield* store.change(kind, id, seen, patch)) return { _tag: "Reserved", again: true }
    }
    return yield* Effect.fail(busy())
  })
