/** What the handler of a write does when it is left alone and when it is stopped, whatever it is made of. Under a test clock. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { TestClock } from "effect/testing"

/** It takes 30 ms, has its effect after 20, and then succeeds with "done" or fails with "no". */
export interface Work {
  readonly fails: boolean
  /** Does not hear a stop. */
  readonly deaf: boolean
}

interface Handler {
  readonly run: Effect.Effect<string, string>
  readonly effects: () => number
}

export type Make = (work: Work) => Effect.Effect<Handler>

/** Lets promises settle that have been waiting for a moment of the test clock. */
const settled = Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
const pass = (millis: number) => Effect.andThen(TestClock.adjust(millis), settled)
const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

/** Stops a handler at a moment, and says after how many more milliseconds it had ended: 0, or 30 for one that is awaited. */
const stoppedAt = Effect.fnUntraced(function*(run: Effect.Effect<string, string>, millis: number) {
  const fiber = yield* start(run)
  yield* pass(millis)
  const stopping = yield* start(Fiber.interrupt(fiber))
  yield* settled
  if (stopping.pollUnsafe() !== undefined) return 0
  yield* pass(29 - millis)
  assert.isUndefined(stopping.pollUnsafe(), "it had ended before its work")
  yield* pass(1)
  yield* Fiber.join(stopping)
  return 30 - millis
})

export const laws: ReadonlyArray<{ readonly name: string; readonly law: (make: Make) => Effect.Effect<void> }> = [
  {
    name: "left alone it succeeds, with one effect for each run",
    law: Effect.fnUntraced(function*(make) {
      const { effects, run } = yield* make({ fails: false, deaf: false })
      for (const n of [1, 2]) {
        const fiber = yield* start(Effect.exit(run))
        yield* pass(29)
        assert.isUndefined(fiber.pollUnsafe())
        yield* pass(1)
        assert.deepStrictEqual(yield* Fiber.join(fiber), Exit.succeed("done"))
        assert.strictEqual(effects(), n)
      }
    })
  },
  {
    name: "its failure is the tool's own, and an effect that came before it stands",
    law: Effect.fnUntraced(function*(make) {
      const { effects, run } = yield* make({ fails: true, deaf: false })
      const fiber = yield* start(Effect.exit(run))
      yield* pass(30)
      assert.deepStrictEqual(yield* Fiber.join(fiber), Exit.fail("no"))
      assert.strictEqual(effects(), 1)
    })
  },
  {
    name: "one that hears a stop ends at once, with no effect before its moment",
    law: Effect.fnUntraced(function*(make) {
      const { effects, run } = yield* make({ fails: false, deaf: false })
      assert.strictEqual(yield* stoppedAt(run, 10), 0)
      yield* pass(100)
      assert.strictEqual(effects(), 0)
    })
  },
  {
    name: "an effect from before the stop stands",
    law: Effect.fnUntraced(function*(make) {
      const { effects, run } = yield* make({ fails: false, deaf: false })
      assert.strictEqual(yield* stoppedAt(run, 25), 0)
      assert.strictEqual(effects(), 1)
    })
  },
  {
    name: "one that is deaf to a stop is awaited, and has its effect",
    law: Effect.fnUntraced(function*(make) {
      const { effects, run } = yield* make({ fails: false, deaf: true })
      assert.strictEqual(yield* stoppedAt(run, 10), 20)
      assert.strictEqual(effects(), 1)
    })
  }
]
