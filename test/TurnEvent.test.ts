import { assert, describe, it } from "@effect/vitest"
import type { TurnEvent } from "effect-turn"
import * as Effect from "effect/Effect"
import { call, drive, lab, run } from "./utils/kit.ts"

describe("R33: TurnEvent", () => {
  it.effect("every kind of event comes, is plain data, and bears the turn's id and clock", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 1 },
        script: { slow: { ms: 30_000 }, note: { ms: 20, notes: [10], result: "x".repeat(1_000) } }
      })
      yield* drive(
        run(
          [
            call("write", "slow", ["k"]),
            call("write", "late", ["k"]),
            call("fetch", "note"),
            call("fetch", "next"),
            call("pay", "held")
          ],
          {
            turn: "one",
            deadline: 11_000,
            grace: 500,
            resultBudget: { maxChars: 1_200 },
            onEvent: book.note
          }
        ).pipe(Effect.provide(layer))
      )
      const kinds: Record<TurnEvent.TurnEvent["_tag"], number> = {
        TurnStarted: 1,
        CallQueued: 2,
        CallHeld: 1,
        CallStarted: 3,
        CallProgressed: 1,
        CallOverdue: 1,
        CallRetried: 0,
        CallApplied: 0,
        CallUndone: 0,
        CallEnded: 5,
        CallSettledLate: 1,
        RequestSent: 0,
        RequestEnded: 0,
        ResultCut: 1,
        TurnStopped: 1,
        TurnEnded: 1
      }
      for (const [tag, count] of Object.entries(kinds)) {
        assert.strictEqual(book.events.filter((event) => event._tag === tag).length, count, tag)
      }
      let before = 0
      for (const event of book.events) {
        assert.strictEqual(event.turn, "one")
        assert.isAtLeast(event.at, before)
        before = event.at
        assert.deepStrictEqual(structuredClone(event), event)
        assert.isAbove(JSON.stringify(event).length, 2)
      }
    }))

  it.effect("no raw idempotency key is in any of them", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* drive(run([call("put", "secret")], { onEvent: book.note }).pipe(Effect.provide(layer)))
      assert.strictEqual(book.of("secret").idempotencyKey, "key:secret")
      assert.notInclude(JSON.stringify(book.events), "key:secret")
    }))
})
