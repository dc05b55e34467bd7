/** The clock of a simulation keeps the laws that Effect's own clocks keep. */
import { assert, describe, it } from "@effect/vitest"
import { Simulation } from "effect-turn/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"

/** How a program is run to its end under a clock. */
type Under = <A>(program: Effect.Effect<A>) => Effect.Effect<A>

const both = <A, B>(a: Effect.Effect<A>, b: Effect.Effect<B>) => Effect.all([a, b], { concurrency: "unbounded" })

/** What holds of any clock. Times are small, for one of the clocks is real; nothing is said of how late a sleep may end. */
const laws: ReadonlyArray<{ readonly name: string; readonly law: Effect.Effect<void> }> = [
  {
    name: "a sleep never ends before its time",
    law: Effect.gen(function*() {
      const start = yield* Clock.monotonicTimeNanos
      yield* Effect.sleep(5)
      // A real timer counts whole milliseconds of its own.
      assert.isAtLeast(Number((yield* Clock.monotonicTimeNanos) - start), 4_000_000)
    })
  },
  {
    name: "an earlier sleep ends first, whatever began first",
    law: Effect.gen(function*() {
      const log: Array<string> = []
      const after = (millis: number, name: string) =>
        Effect.andThen(Effect.sleep(millis), Effect.sync(() => log.push(name)))
      yield* both(after(30, "long"), after(5, "short"))
      assert.deepStrictEqual(log, ["short", "long"])
    })
  },
  {
    name: "time never goes back, in none of its units",
    law: Effect.gen(function*() {
      const read = Effect.all([Clock.currentTimeMillis, Clock.currentTimeNanos, Clock.monotonicTimeNanos])
      let last = yield* read
      for (const millis of [0, 1, 0, 3]) {
        yield* Effect.sleep(millis)
        const next = yield* read
        next.forEach((value, i) => assert.isTrue(value >= last[i]!))
        last = next
      }
    })
  },
  {
    name: "a sleep of nothing ends, and takes no time of its own",
    law: Effect.sleep(0)
  },
  {
    name: "a sleep that is interrupted ends at once",
    law: Effect.gen(function*() {
      const fiber = yield* Effect.forkChild(Effect.sleep("1 hour"), { startImmediately: true })
      const exit = yield* Effect.andThen(Fiber.interrupt(fiber), Fiber.await(fiber))
      assert.isTrue(Exit.hasInterrupts(exit))
    })
  },
  {
    name: "a sleep without end does not end",
    law: Effect.gen(function*() {
      const fiber = yield* Effect.forkChild(Effect.sleep(Infinity), { startImmediately: true })
      yield* Effect.sleep(5)
      assert.isUndefined(fiber.pollUnsafe())
      yield* Fiber.interrupt(fiber)
    })
  },
  {
    name: "a timeout cuts what takes longer, and nothing else",
    law: Effect.gen(function*() {
      const cut = yield* Effect.timeoutOption(Effect.sleep("1 hour"), 5)
      const whole = yield* Effect.timeoutOption(Effect.sleep(1), "1 hour")
      assert.deepStrictEqual([cut._tag, whole._tag], ["None", "Some"])
    })
  }
]

const simulated = (schedule: number): Under => (program) =>
  Effect.flatMap(Simulation.run(program, { schedule }), ({ exit, problem }) => {
    assert.isUndefined(problem)
    return exit!
  })

const clocks: ReadonlyArray<readonly [name: string, under: Under]> = [
  ["the live clock", (program) => program],
  [
    "TestClock",
    (program) =>
      Effect.gen(function*() {
        const fiber = yield* Effect.forkChild(program, { startImmediately: true })
        yield* TestClock.adjust("2 hours")
        return yield* Fiber.join(fiber)
      }).pipe(Effect.provide(TestClock.layer()))
  ],
  ["a simulation, in the natural order", simulated(0)],
  ...[1, 2, 3].map((seed) => [`a simulation, seed ${seed}`, simulated(seed)] as const)
]

for (const [name, under] of clocks) {
  describe(name, () => {
    for (const { law, name } of laws) it.live(name, () => under(law))
  })
}
