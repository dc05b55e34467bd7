import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as VirtualTime from "../../src/testing/scenario/virtualTime.ts"

const make = (options: Partial<{ horizonMillis: number; maxSteps: number }> = {}) =>
  VirtualTime.make({ horizonMillis: 10_000, maxSteps: 1000, ...options })

/** Starts an effect under a virtual clock, in a fiber of its own. */
const start = (time: VirtualTime.VirtualTime, effect: Effect.Effect<unknown>) =>
  time.provide(Effect.forkDetach(effect, { startImmediately: true }))

describe("virtual time", () => {
  it.effect("T1: goes from one moment to the next, and reaches far ones at once", () =>
    Effect.gen(function*() {
      const time = yield* make({ horizonMillis: Infinity })
      const seen: Array<number> = []
      const note = Effect.map(Clock.currentTimeMillis, (at) => seen.push(at))
      yield* start(time, Effect.sleep("30 days").pipe(Effect.andThen(note)))
      yield* start(
        time,
        Effect.sleep(5).pipe(Effect.andThen(note), Effect.andThen(Effect.sleep(7)), Effect.andThen(note))
      )
      assert.strictEqual(yield* time.drive(() => seen.length === 3), "done")
      assert.deepStrictEqual(seen, [5, 12, 2_592_000_000])
    }))

  it.effect("T1: long chains of steps without time have settled before the clock moves", () =>
    Effect.gen(function*() {
      const time = yield* make()
      const log: Array<string> = []
      const chain = Effect.gen(function*() {
        yield* Effect.sleep(1)
        for (let i = 0; i < 500; i++) yield* i % 2 === 0 ? Effect.yieldNow : Effect.promise(() => Promise.resolve())
        log.push(`chain at ${yield* Clock.currentTimeMillis}`)
      })
      yield* start(time, chain)
      yield* start(time, Effect.sleep(2).pipe(Effect.andThen(Effect.sync(() => log.push("two")))))
      yield* time.drive(() => log.length === 2)
      assert.deepStrictEqual(log, ["chain at 1", "two"])
    }))

  it.effect("T2: what sleeps until a moment goes before the actions of that moment", () =>
    Effect.gen(function*() {
      const time = yield* make()
      const log: Array<string> = []
      const say = (text: string) => Effect.sync(() => void log.push(text))
      time.at(10, say("second"))
      time.at(10, say("third"))
      time.at(5, Effect.asVoid(start(time, Effect.andThen(Effect.sleep(5), say("first")))))
      assert.strictEqual(yield* time.drive(() => log.length === 3), "done")
      assert.deepStrictEqual(log, ["first", "second", "third"])
      assert.strictEqual(time.now(), 10)
      assert.strictEqual(time.actions(), 0)
    }))

  it.effect("T3: sees that nothing is left that could happen", () =>
    Effect.gen(function*() {
      const time = yield* make()
      yield* start(time, Effect.never)
      yield* start(time, Effect.sleep("infinity" as never).pipe(Effect.ignore))
      assert.strictEqual(yield* time.drive(() => false), "idle")
    }))

  it.effect("T3: stops at the horizon, and after too many steps", () =>
    Effect.gen(function*() {
      const far = yield* make()
      yield* start(far, Effect.sleep(10_001))
      assert.strictEqual(yield* far.drive(() => false), "horizon")
      assert.strictEqual(far.now(), 0)
      const circling = yield* make({ maxSteps: 10 })
      yield* start(circling, Effect.forever(Effect.sleep(1)))
      assert.strictEqual(yield* circling.drive(() => false), "busy")
    }))
})
