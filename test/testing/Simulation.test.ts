/** Simulated runs: what a run is, that it repeats, that others differ, and that a failure comes out small. */
import { assert, describe, it } from "@effect/vitest"
import { Simulation } from "effect-turn/testing"
import * as Arbitrary from "effect/Arbitrary"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import { int } from "../utils/gen.ts"

/** Runs a program that says things, and gives what it said. */
const said = (
  program: (say: (text: string) => Effect.Effect<void>) => Effect.Effect<unknown>,
  schedule: number | string = 0
) =>
  Effect.gen(function*() {
    const log: Array<string> = []
    const run = yield* Simulation.run(program((text) => Effect.sync(() => void log.push(text))), { schedule })
    return { log, run }
  })

const value = <A, E>(run: Simulation.Run<A, E>): A => {
  assert.isTrue(run.exit !== undefined && Exit.isSuccess(run.exit), run.problem)
  return (run.exit as Exit.Success<A, E>).value
}

const both = <A, B>(a: Effect.Effect<A>, b: Effect.Effect<B>) => Effect.all([a, b], { concurrency: "unbounded" })

/** A counter that two fibers read, and then write. */
const lostUpdate = Effect.gen(function*() {
  let count = 0
  const add = Effect.gen(function*() {
    const seen = yield* Effect.sync(() => count)
    yield* Effect.sync(() => {
      count = seen + 1
    })
  })
  yield* both(add, add)
  return count === 2
})

describe("a simulated run", () => {
  it.effect("S3: time goes from one moment to the next, and reaches far ones at once", () =>
    Effect.gen(function*() {
      const { log, run } = yield* said((say) => {
        const at = Effect.flatMap(Clock.currentTimeMillis, (now) => say(String(now)))
        return both(
          Effect.sleep("30 days").pipe(Effect.andThen(at)),
          Effect.sleep(5).pipe(Effect.andThen(at), Effect.andThen(Effect.sleep(7)), Effect.andThen(at))
        )
      })
      assert.strictEqual(run.ended, "horizon")
      assert.deepStrictEqual(log, ["5", "12"])
      const far = yield* Simulation.run(Effect.andThen(Effect.sleep("30 days"), Clock.currentTimeMillis), {
        horizon: "31 days"
      })
      assert.strictEqual(value(far), 2_592_000_000)
      assert.strictEqual(far.elapsedMillis, 2_592_000_000)
    }))

  it.effect("S3: long chains of steps without time have settled before the clock moves, promises too", () =>
    Effect.gen(function*() {
      const { log } = yield* said((say) =>
        both(
          Effect.gen(function*() {
            yield* Effect.sleep(1)
            for (let i = 0; i < 500; i++) yield* i % 2 === 0 ? Effect.yieldNow : Effect.promise(() => Promise.resolve())
            yield* say(`chain at ${yield* Clock.currentTimeMillis}`)
          }),
          Effect.andThen(Effect.sleep(2), say("two"))
        )
      )
      assert.deepStrictEqual(log, ["chain at 1", "two"])
    }))

  it.effect("S3: the clock has nanoseconds, and fractions of milliseconds", () =>
    Effect.gen(function*() {
      const run = yield* Simulation.run(
        Effect.andThen(
          Effect.sleep("1500 micros"),
          Effect.all([Clock.currentTimeNanos, Clock.currentTimeMillis])
        )
      )
      assert.deepStrictEqual(value(run), [1_500_000n, 1.5])
    }))

  it.effect("S3: what is due at one moment comes in any order, and always in the natural one without a seed", () =>
    Effect.gen(function*() {
      const race = (say: (text: string) => Effect.Effect<void>) =>
        Effect.all(["a", "b", "c"].map((name) => Effect.andThen(Effect.sleep(10), say(name))), {
          concurrency: "unbounded"
        })
      assert.deepStrictEqual((yield* said(race)).log, ["a", "b", "c"])
      const orders = new Set<string>()
      for (let seed = 1; seed <= 200; seed++) orders.add((yield* said(race, seed)).log.join(""))
      assert.deepStrictEqual([...orders].sort(), ["abc", "acb", "bac", "bca", "cab", "cba"])
    }))

  it.effect("S3: a timeout and an end that fall together come in both orders", () =>
    Effect.gen(function*() {
      const ends = new Set<string>()
      for (let seed = 1; seed <= 50; seed++) {
        const run = yield* Simulation.run(Effect.timeoutOption(Effect.sleep(10), 10), { schedule: seed })
        ends.add(value(run)._tag)
      }
      assert.deepStrictEqual([...ends].sort(), ["None", "Some"])
    }))

  it.effect("S2: a fiber gives way between any two of its operations, and only there", () =>
    Effect.gen(function*() {
      const seen = new Set<string>()
      for (let seed = 1; seed <= 3000; seed++) {
        const { log } = yield* said((say) => {
          const three = (name: string) =>
            Effect.andThen(Effect.andThen(say(`${name}1`), say(`${name}2`)), say(`${name}3`))
          return both(three("a"), three("b"))
        }, seed)
        seen.add(log.filter((one) => one.startsWith("a")).join("") + log.filter((one) => one.startsWith("b")).join(""))
        seen.add(log.map((one) => one[0]).join(""))
      }
      assert.isTrue(seen.delete("a1a2a3b1b2b3"))
      // All twenty ways to merge three steps with three.
      assert.strictEqual(seen.size, 20)
    }))

  it.effect("S4: promises settle before or after what else can run", () =>
    Effect.gen(function*() {
      const orders = new Set<string>()
      for (let seed = 1; seed <= 300; seed++) {
        const { log } = yield* said(
          (say) =>
            Effect.all([
              Effect.andThen(Effect.promise(async () => void (await Promise.resolve())), say("p")),
              Effect.andThen(Effect.promise(async () => void (await Promise.resolve())), say("q")),
              Effect.andThen(
                Effect.andThen(Effect.yieldNow, Effect.andThen(Effect.yieldNow, Effect.yieldNow)),
                say("y")
              )
            ], { concurrency: "unbounded" }),
          seed
        )
        orders.add(log.join(""))
      }
      assert.deepStrictEqual([...orders].sort(), ["pqy", "pyq", "qpy", "qyp", "ypq", "yqp"])
    }))

  it.effect("S5: sees that nothing is left that could go on, that it goes in circles, that it goes on for too long", () =>
    Effect.gen(function*() {
      const idle = yield* Simulation.run(Effect.andThen(Effect.sleep(3), Effect.never))
      assert.strictEqual(idle.ended, "idle")
      assert.strictEqual(idle.exit, undefined)
      assert.match(
        idle.problem!,
        /^at 3 ms it hangs: it has not ended, and nothing is left that could go on \(the platform's/
      )
      const busy = yield* Simulation.run(Effect.forever(Effect.yieldNow), { maxSteps: 100 })
      assert.strictEqual(busy.problem, "at 0 ms it has not ended within the bounded number of steps")
      const spinning = yield* Simulation.run(Effect.forever(Effect.void), { maxSteps: 100 })
      assert.strictEqual(spinning.ended, "busy")
      const late = yield* Simulation.run(Effect.sleep("2 hours"))
      assert.strictEqual(late.problem, "at 0 ms it has not ended within the horizon")
    }))

  it.effect("fails as its program does", () =>
    Effect.gen(function*() {
      const problem = (program: Effect.Effect<unknown, unknown>) =>
        Effect.map(Simulation.run(program), (run) => run.problem?.split("\n")[0])
      assert.strictEqual(yield* problem(Effect.succeed(true)), undefined)
      assert.strictEqual(yield* problem(Effect.void), undefined)
      assert.strictEqual(yield* problem(Effect.succeed(false)), "it returned false")
      assert.match((yield* problem(Effect.fail("no room")))!, /no room/)
      assert.match((yield* problem(Effect.die("broke")))!, /broke/)
      assert.match((yield* problem(Effect.interrupt))!, /interrupt/i)
    }))

  it.effect("has its chance from its seed", () =>
    Effect.gen(function*() {
      const three = Effect.all([Random.next, Random.next, Random.nextInt])
      const first = value(yield* Simulation.run(three, { schedule: 5 }))
      assert.deepStrictEqual(value(yield* Simulation.run(three, { schedule: 5 })), first)
      assert.notDeepEqual(value(yield* Simulation.run(three, { schedule: 6 })), first)
    }))

  it.effect("has what its caller has, builds its layers anew, and leaves the caller's clock alone", () =>
    Effect.gen(function*() {
      let built = 0
      const Name = Context.Reference<string>("test/Name", { defaultValue: () => "nobody" })
      class Counter extends Context.Service<Counter, number>()("test/Counter") {}
      const counter = Layer.effect(Counter, Effect.sync(() => ++built))
      const program = Effect.all([Name, Counter, Effect.as(Effect.sleep(5), "slept")]).pipe(Effect.provide(counter))
      const both = yield* Effect.all([Simulation.run(program), Simulation.run(program)]).pipe(
        Effect.provideService(Name, "me"),
        Effect.provide(counter)
      )
      assert.deepStrictEqual(both.map(value), [["me", 2, "slept"], ["me", 3, "slept"]])
      assert.strictEqual(yield* Clock.currentTimeMillis, 0)
    }))

  it.live("its interruption interrupts the program, and waits for its end", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const started = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(Simulation.run(
        Effect.gen(function*() {
          yield* Deferred.succeed(started, undefined)
          for (;;) yield* Effect.sleep(1)
        }).pipe(Effect.onInterrupt(() => Effect.andThen(Effect.sleep(50), Effect.sync(() => log.push("cleaned up"))))),
        { horizon: "520 weeks", maxSteps: Number.MAX_SAFE_INTEGER }
      ))
      yield* Deferred.await(started)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(log, ["cleaned up"])
    }))

  it.effect("tells what ran when, who gave way, and what was noted", () =>
    Effect.gen(function*() {
      const program = Effect.gen(function*() {
        const fiber = yield* Effect.forkChild(Effect.andThen(Effect.sleep(10), Simulation.note("awake")))
        yield* Fiber.join(fiber)
      })
      const { trace } = yield* Simulation.run(program)
      assert.deepStrictEqual(trace.map(({ at, notes, who }) => ({ at, notes, who })), [
        { at: 0, notes: [], who: ["the program"] },
        { at: 0, notes: [], who: ["fiber 1"] },
        { at: 10, notes: ["awake"], who: ["fiber 1", "the program"] }
      ])
      // Outside a simulation there is no trace, and no point.
      yield* Simulation.note("nobody hears this")
      assert.isUndefined((yield* Effect.forkChild(Simulation.point(1), { startImmediately: true })).pollUnsafe())
    }))

  it.effect("refuses what is no schedule and no limit", () =>
    Effect.gen(function*() {
      const refused = (run: () => unknown) => {
        try {
          run()
        } catch (error) {
          return (error as Error).message
        }
        return undefined
      }
      const schedules = ["", "x", "-1", "1.5", "1/2", "1/2:", "1/2:1,", "1/2:1;3:4", "1e3", -1, 1.5, NaN]
      for (const schedule of schedules) {
        assert.match(
          refused(() => Simulation.run(Effect.void, { schedule })) ?? "",
          /^the schedule of a simulation: expected a seed .*, and got /,
          String(schedule)
        )
      }
      for (const schedule of [0, 7, "7", "7/", "7/2:1", "7/2:1,40:2"]) {
        assert.isUndefined((yield* Simulation.run(Effect.void, { schedule })).problem)
      }
      for (const horizon of [NaN, -1, 0, "3" as never]) {
        assert.match(
          refused(() => Simulation.run(Effect.void, { horizon }))!,
          /"horizon" must be a length of time over 0, and is/
        )
      }
      for (const budget of [NaN, -1, "3" as never]) {
        assert.match(
          refused(() => Simulation.explore(Effect.void, { budget }))!,
          /"budget" must be a length of time, and is/
        )
      }
      assert.match(
        refused(() => Simulation.run(Effect.void, { maxSteps: 0 }))!,
        /maxSteps.*a whole number from 1, and is 0/
      )
      assert.match(
        refused(() => Simulation.explore(Effect.void, { seeds: 0 }))!,
        /seeds.*a whole number from 1, and is 0/
      )
      assert.match(refused(() => Simulation.exhaust(Effect.void, { switches: -1 }))!, /switches.*from 0, and is -1/)
      assert.match(
        refused(() => Simulation.forAll(Arbitrary.Constant(1), () => Effect.void, { replay: "7/2:1" }))!,
        /replay of a simulation: expected the `replay` of an earlier failure .* and got "7\/2:1"/
      )
    }))
})

/** Steps that meet: whatever a run does is in its trace. */
const someSteps = Arbitrary.array(
  Arbitrary.all({ kind: int(0, 5), ms: int(0, 3), at: int(0, 3) }),
  { minLength: 1, maxLength: 6 }
)

const meeting = (steps: ReadonlyArray<{ readonly kind: number; readonly ms: number; readonly at: number }>) =>
  Effect.gen(function*() {
    const log: Array<string> = []
    const semaphore = yield* Semaphore.make(2)
    const latch = yield* Latch.make(false)
    const queue = yield* Queue.unbounded<number>()
    const work = steps.map(({ at, kind, ms }, i) => {
      const say = (text: string) => Effect.sync(() => void log.push(`${i}${text}`))
      const what = [
        Effect.sleep(ms),
        semaphore.withPermits(1)(Effect.sleep(ms)),
        Effect.andThen(Effect.sleep(ms), latch.open),
        Effect.timeoutOption(latch.await, ms + 1),
        Queue.offer(queue, i),
        Effect.timeoutOption(Queue.take(queue), ms + 1)
      ][kind]!
      return Effect.sleep(at).pipe(Effect.andThen(say("a")), Effect.andThen(what), Effect.andThen(say("b")))
    })
    yield* Effect.all(work, { concurrency: "unbounded" })
    yield* Simulation.note(log.join(" "))
    return log
  })

describe("runs of one program", () => {
  it.effect.prop(
    "C1, C2: the same seed gives the same run, and so does its replay",
    { steps: someSteps, seed: int(0, 1_000_000) },
    ({ seed, steps }) =>
      Effect.gen(function*() {
        const program = meeting(steps)
        const first = yield* Simulation.run(program, { schedule: seed })
        assert.isUndefined(first.problem)
        assert.deepStrictEqual(yield* Simulation.run(program, { schedule: seed }), first)
        const again = yield* Simulation.run(program, { schedule: first.replay })
        assert.deepStrictEqual(again, first)
        if (seed === 0) assert.strictEqual(first.switches, 0)
      }),
    { arbitrary: { runs: 300, seed: "simulation" } }
  )

  it.effect("another seed gives another interleaving", () =>
    Effect.gen(function*() {
      const steps = [0, 1, 2, 3, 4, 5].map((kind) => ({ kind, ms: 2, at: 0 }))
      const seen = new Set<string>()
      for (let seed = 1; seed <= 100; seed++) {
        const { trace } = yield* Simulation.run(meeting(steps), { schedule: seed })
        seen.add(JSON.stringify(trace))
      }
      assert.isAbove(seen.size, 90)
    }))

  it.effect("explore: tells the first failing seed, made small, with its trace", () =>
    Effect.gen(function*() {
      const falsified = yield* Effect.flip(Simulation.explore(lostUpdate))
      assert.strictEqual(falsified.problem, "it returned false")
      assert.strictEqual(falsified.switches, 1)
      assert.isTrue(falsified.repeatable)
      // The seeds before it pass.
      if (falsified.seed! > 1) yield* Simulation.explore(lostUpdate, { seeds: falsified.seed! - 1 })
      const { exit, trace } = yield* Simulation.run(lostUpdate, { schedule: falsified.replay })
      assert.deepStrictEqual(exit, Exit.succeed(false))
      assert.strictEqual(trace.filter((step) => step.chosen > 0 || step.gaveWay.length > 0).length, 1)
      // The same option that found it repeats it, and tells the same.
      const again = yield* Effect.flip(Simulation.explore(lostUpdate, { replay: falsified.replay }))
      assert.strictEqual(again.problem, falsified.problem)
      assert.strictEqual(again.trace, falsified.trace)
      assert.strictEqual(again.replay, falsified.replay)
      assert.strictEqual(
        falsified.message,
        [
          "it returned false",
          "",
          `Found by seed ${falsified.seed}, run ${falsified.runs}; made smaller by ${falsified.shrinks} runs, to 1 forced switch.`,
          `Repeat it with { replay: "${falsified.replay}" }`,
          "",
          "What ran when:",
          falsified.trace
        ].join("\n")
      )
      assert.match(falsified.trace, /^> 0 +0 ms {2}the program, .* {3}\[fiber \d gives way\]$/m)
    }))

  it.effect("explore: passes what nothing breaks, and says how much it saw", () =>
    Effect.gen(function*() {
      const program = both(Effect.sleep(1), Effect.sleep(1))
      const { distinct, runs } = yield* Simulation.explore(program, { seeds: 60 })
      assert.strictEqual(runs, 60)
      assert.isAbove(distinct, 5)
      assert.isAtMost(distinct, 60)
      const { runs: few } = yield* Simulation.explore(program, { seeds: { from: 1000, count: 3 } })
      assert.strictEqual(few, 3)
    }))

  it.effect("explore: a budget ends it, after one run at the least", () =>
    Effect.gen(function*() {
      const { runs } = yield* Simulation.explore(Effect.void, { budget: 0 })
      assert.strictEqual(runs, 1)
      const { runs: more } = yield* Simulation.explore(Effect.sleep(1), { budget: "30 millis" })
      assert.isAbove(more, 1)
    }))

  it.effect("explore: says that a program which takes from outside does not repeat", () =>
    Effect.gen(function*() {
      let runs = 0
      const falsified = yield* Effect.flip(Simulation.explore(Effect.sync(() => ++runs !== 3), { seeds: 10 }))
      assert.strictEqual(falsified.seed, 3)
      assert.isFalse(falsified.repeatable)
      assert.include(falsified.message, "The same run did not fail again")
    }))

  it.effect("forAll: makes the input small, then the switches, and repeats exactly that run", () =>
    Effect.gen(function*() {
      const amounts = Arbitrary.array(int(1, 1000), { minLength: 1, maxLength: 8 })
      const program = (added: ReadonlyArray<number>) =>
        Effect.gen(function*() {
          let sum = 0
          const add = (amount: number) =>
            Effect.gen(function*() {
              const seen = sum
              yield* Effect.sleep(amount % 3)
              sum = seen + amount
            })
          yield* Effect.forEach(added, add, { concurrency: "unbounded" })
          return sum === added.reduce((a, b) => a + b, 0)
        })
      const falsified = yield* Effect.flip(Simulation.forAll(amounts, program))
      assert.deepStrictEqual(JSON.parse(falsified.input!).length, 2)
      assert.isAtMost(falsified.switches, 1)
      assert.include(falsified.message, "Input:\n[")
      const again = yield* Effect.flip(Simulation.forAll(amounts, program, { replay: falsified.replay }))
      assert.strictEqual(again.input, falsified.input)
      assert.strictEqual(again.trace, falsified.trace)
      // What has been repaired passes under the replay of its failure.
      const fine = yield* Simulation.forAll(amounts, () => Effect.succeed(true), { replay: falsified.replay })
      assert.strictEqual(fine.runs, 1)
    }))

  it.effect("forAll: the replay of each failure fails again, also where greater inputs pass under its schedule", () =>
    Effect.gen(function*() {
      const inputs = Arbitrary.array(int(0, 9), { maxLength: 20 })
      const program = (pad: ReadonlyArray<number>) =>
        Effect.gen(function*() {
          if (pad.length < 2) return true
          let n = 0
          const book = Effect.gen(function*() {
            for (const _ of pad) yield* Effect.sync(() => {})
            const seen = yield* Effect.sync(() => n)
            yield* Effect.sync(() => {})
            yield* Effect.sync(() => {
              n = seen + 1
            })
          })
          yield* both(book, book)
          return n === 2
        })
      for (let seed = 1; seed <= 30; seed++) {
        const { replay, trace } = yield* Effect.flip(Simulation.forAll(inputs, program, { seed }))
        const again = yield* Effect.flip(Simulation.forAll(inputs, program, { replay }))
        assert.deepStrictEqual([again.replay, again.trace], [replay, trace])
      }
    }))

  it.effect("what is made smaller fails for the same reason", () =>
    Effect.gen(function*() {
      const found = yield* Effect.flip(
        Simulation.forAll(Arbitrary.array(int(0, 100), { maxLength: 10 }), (xs) =>
          xs.length >= 5
            ? Effect.fail("the money is gone")
            : xs.some((x) => x > 90)
            ? Effect.fail("harmless")
            : Effect.void)
      )
      const twice = yield* Effect.flip(
        Simulation.forAll(Arbitrary.array(int(0, 100), { maxLength: 10 }), (xs) =>
          xs.length >= 5
            ? Effect.fail("the money is gone")
            : xs.some((x) => x > 90)
            ? Effect.fail("harmless")
            : Effect.void, {
          seed: 3
        })
      )
      for (const { input, problem } of [found, twice]) {
        const xs = JSON.parse(input!) as ReadonlyArray<number>
        assert.deepStrictEqual(xs, problem === "harmless" ? [91] : [0, 0, 0, 0, 0])
      }
    }))

  it.live("forAll: a budget ends it", () =>
    Effect.gen(function*() {
      let runs = 0
      yield* Simulation.forAll(int(0, 9), () => Effect.sync(() => void runs++), { budget: "50 millis" })
      assert.isAbove(runs, 0)
      assert.isBelow(runs, 500_000)
    }), 5_000)

  it.effect("refuses the replay of something else", () =>
    Effect.gen(function*() {
      for (const replay of ["1@garbage", "1@[1,2]"]) {
        const exit = yield* Effect.exit(Simulation.forAll(int(0, 9), () => Effect.void, { replay }))
        assert.match(String(Exit.isFailure(exit) && Cause.squash(exit.cause)), /the replay of a simulation: expected/)
      }
    }))

  it.effect("a run that does not end gives back what it holds", () =>
    Effect.gen(function*() {
      for (const end of [Effect.never, Effect.sleep("2 days"), Effect.forever(Effect.yieldNow)]) {
        let open = 0
        const holds = Effect.acquireUseRelease(
          Effect.sync(() => open++),
          () => end,
          () => Effect.andThen(Effect.sleep(5), Effect.sync(() => open--))
        )
        const run = yield* Simulation.run(holds, { maxSteps: 100 })
        assert.notStrictEqual(run.ended, "done")
        assert.isUndefined(run.exit)
        assert.strictEqual(open, 0)
      }
    }))

  it.effect("a simulation inside a simulation is waited for", () =>
    Effect.gen(function*() {
      const inner = Effect.gen(function*() {
        for (let i = 0; i < 5; i++) {
          yield* Effect.sleep(1)
          yield* Effect.promise(() => Promise.resolve())
        }
        return "inner"
      })
      const outer = Effect.gen(function*() {
        const run = yield* Simulation.run(inner, { schedule: 3 })
        return run.problem ?? value(run)
      })
      assert.strictEqual(value(yield* Simulation.run(both(outer, Effect.sleep(3))))[0], "inner")
    }))

  it.effect("exhaust: finds what needs a promise to settle between two operations", () =>
    Effect.gen(function*() {
      const program = Effect.gen(function*() {
        let n = 0
        let open = (_: void): void => {}
        const gate = new Promise<void>((resolve) => {
          open = resolve
        })
        const add = Effect.sync(() => n).pipe(
          Effect.tap(Effect.sync(() => {})),
          Effect.flatMap((seen) => Effect.sync(() => void (n = seen + 1)))
        )
        yield* both(Effect.andThen(Effect.promise(() => gate), add), Effect.andThen(Effect.sync(() => open()), add))
        return n === 2
      })
      const found = yield* Effect.flip(Simulation.exhaust(program, { switches: 3 }))
      assert.isAtMost(found.switches, 3)
    }))

  it.effect("forAll: runs each input under its seeds", () =>
    Effect.gen(function*() {
      let runs = 0
      const counted = Effect.sync(() => void runs++)
      const explored = yield* Simulation.forAll(int(0, 9), () => counted, { inputs: 7, seeds: 3 })
      assert.strictEqual(explored.runs, 21)
      assert.strictEqual(runs, 21)
      const one = yield* Simulation.forAll(int(0, 9), () => counted, { budget: 0, seeds: 2 })
      assert.strictEqual(one.runs, 1)
    }))

  it.effect("exhaust: finds with one switch what needs one, and says how many orders there are", () =>
    Effect.gen(function*() {
      const falsified = yield* Effect.flip(Simulation.exhaust(lostUpdate))
      assert.strictEqual(falsified.switches, 1)
      assert.isUndefined(falsified.seed)
      const two = both(Effect.sleep(5), Effect.sleep(5))
      const none = yield* Simulation.exhaust(two, { switches: 0 })
      assert.deepStrictEqual(none, { orders: 1, switches: 0, complete: true })
      const one = yield* Simulation.exhaust(two, { switches: 1 })
      const more = yield* Simulation.exhaust(two, { switches: 2 })
      assert.isTrue(one.complete && more.complete)
      assert.isAbove(more.orders, one.orders)
      const cut = yield* Simulation.exhaust(two, { switches: 2, maxOrders: one.orders + 1 })
      assert.deepStrictEqual(cut, { orders: one.orders + 1, switches: 1, complete: false })
    }))

  it.effect("exhaust: no two of its runs are the same", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const program = Effect.gen(function*() {
        const log: Array<string> = []
        const three = (name: string) =>
          Effect.forEach([1, 2, 3], (i) => Effect.sync(() => void log.push(`${name}${i}`)), { discard: true })
        yield* both(three("a"), three("b"))
        seen.push(log.join(" "))
      })
      const { orders } = yield* Simulation.exhaust(program, { switches: 6, maxOrders: 100_000 })
      assert.isAtLeast(seen.length, orders)
      // All twenty ways to merge three steps with three are among them.
      assert.strictEqual(new Set(seen).size, 20)
    }))

  it.effect("point: a stop can be put at every point of a run", () =>
    Effect.gen(function*() {
      const stopped = (point: number) =>
        Effect.gen(function*() {
          let taken = 0
          const work = Effect.acquireUseRelease(
            Effect.sync(() => ++taken),
            () => Effect.sleep(10),
            () => Effect.sync(() => --taken)
          )
          const fiber = yield* Effect.forkChild(work)
          const stop = Effect.andThen(Simulation.point(point), Fiber.interrupt(fiber))
          yield* Effect.raceFirst(stop, Fiber.await(fiber))
          return { taken, interrupted: Exit.hasInterrupts(fiber.pollUnsafe()!) }
        })
      const { points } = yield* Simulation.run(stopped(Infinity))
      assert.isAbove(points, 10)
      let interrupted = 0
      for (let point = 1; point <= points; point++) {
        const run = value(yield* Simulation.run(stopped(point)))
        assert.strictEqual(run.taken, 0)
        if (run.interrupted) interrupted++
      }
      assert.isAbove(interrupted, 5)
      assert.isBelow(interrupted, points)
    }))

  it.effect("the permit that is lost when a stop falls between take and release is found", () =>
    Effect.gen(function*() {
      const leaky = Effect.gen(function*() {
        let permits = 1
        const use = Effect.sync(() => void permits--).pipe(
          Effect.andThen(Effect.ensuring(Effect.sleep(1), Effect.sync(() => void permits++)))
        )
        const fiber = yield* Effect.forkChild(use, { startImmediately: true })
        yield* Fiber.interrupt(fiber)
        return permits === 1
      })
      const falsified = yield* Effect.flip(Simulation.explore(leaky))
      assert.strictEqual(falsified.switches, 1)
      yield* Effect.flip(Simulation.exhaust(leaky))
    }))

  it.effect("decodes and encodes its failure", () =>
    Effect.gen(function*() {
      const falsified = yield* Effect.flip(Simulation.explore(lostUpdate))
      const encoded = yield* Schema.encodeEffect(Simulation.Falsified)(falsified)
      assert.strictEqual((yield* Schema.decodeEffect(Simulation.Falsified)(encoded)).message, falsified.message)
    }))
})

describe("a process inside a run", () => {
  it.effect("S6: wherever it crashes, nothing of it goes on, whatever comes to it later", () =>
    Effect.gen(function*() {
      /** A process with fibers that sleep, wait for others, wait for a promise, hold a lock, and clean up after themselves. */
      const crashed = (point: number) =>
        Effect.gen(function*() {
          const log: Array<string> = []
          const outside = yield* Deferred.make<void>()
          const children: Array<Fiber.Fiber<unknown, unknown>> = []
          let settle = () => {}
          const promise = new Promise<void>((resolve) => {
            settle = resolve
          })
          const busy = (name: string, wait: Effect.Effect<unknown>) =>
            Effect.sync(() => log.push(`${name} begins`)).pipe(
              Effect.andThen(wait),
              Effect.andThen(Effect.sync(() => log.push(`${name} ends`))),
              Effect.ensuring(Effect.sync(() => log.push(`${name} cleans up`)))
            )
          const program = Effect.scoped(Effect.gen(function*() {
            yield* Effect.addFinalizer(() => Effect.sync(() => log.push("the scope closes")))
            const forks = yield* Effect.forEach([
              busy("a sleeper", Effect.sleep(10)),
              busy("a waiter", Deferred.await(outside)),
              busy("a promise", Effect.promise(() => promise)),
              busy("a spinner", Effect.forEach([1, 2, 3, 4, 5], () => Effect.yieldNow)),
              Effect.uninterruptible(busy("a write", Effect.sleep(5)))
            ], (effect) => Effect.forkChild(effect))
            children.push(...forks)
            yield* Fiber.awaitAll(forks)
          }))
          const process = yield* Simulation.process(program)
          yield* Effect.raceFirst(Simulation.point(point), Effect.raceFirst(Effect.sleep(50), process.await))
          yield* process.crash
          const then = [...log]
          const exit = yield* process.await
          yield* Deferred.succeed(outside, undefined)
          settle()
          for (const child of children) child.interruptUnsafe()
          yield* Effect.sleep(100)
          assert.deepStrictEqual(log, then, `point ${point}`)
          return { log: then, exit }
        })
      let before = 0
      let cut = 0
      for (let point = 1; point <= 120; point++) {
        for (const schedule of [0, 1, 2]) {
          const { exit, log } = value(yield* Simulation.run(crashed(point), { schedule }))
          if (exit === undefined) cut++
          before = Math.max(before, log.length)
        }
      }
      assert.isAbove(cut, 200)
      assert.isAbove(before, 5)
    }))

  it.effect("gives its end, and a crash after it changes nothing", () =>
    Effect.gen(function*() {
      const run = yield* Simulation.run(Effect.gen(function*() {
        const process = yield* Simulation.process(Effect.as(Effect.sleep(10), "done"))
        const failing = yield* Simulation.process(Effect.fail("broke"))
        const exit = yield* process.await
        yield* process.crash
        yield* process.interrupt
        return [exit, yield* process.await, yield* failing.await]
      }))
      assert.deepStrictEqual(value(run), [Exit.succeed("done"), Exit.succeed("done"), Exit.fail("broke")])
      assert.strictEqual(run.elapsedMillis, 10)
    }))

  it.effect("is asked to end, and is waited for; one that is killed meanwhile is not", () =>
    Effect.gen(function*() {
      const { log, run } = yield* said((say) =>
        Effect.gen(function*() {
          const closing = Effect.onInterrupt(Effect.never, () => Effect.andThen(Effect.sleep(10), say("closed")))
          const first = yield* Simulation.process(closing)
          yield* Effect.sleep(1)
          yield* first.interrupt
          const exit = yield* first.await
          yield* say(`at ${yield* Clock.currentTimeMillis}: ${exit !== undefined && Exit.hasInterrupts(exit)}`)
          const second = yield* Simulation.process(closing)
          yield* Effect.sleep(1)
          const stop = yield* Effect.forkChild(second.interrupt)
          yield* Effect.sleep(5)
          yield* second.crash
          yield* Fiber.await(stop)
          yield* say(`at ${yield* Clock.currentTimeMillis}: ${yield* second.await}`)
        })
      )
      assert.isUndefined(run.problem)
      assert.deepStrictEqual(log, ["closed", "at 11: true", "at 17: undefined"])
    }))

  it.effect("can kill itself, and has layers of its own", () =>
    Effect.gen(function*() {
      class Count extends Context.Service<Count, { n: number }>()("test/Count") {}
      let built = 0
      const layer = Layer.sync(Count, () => ({ n: ++built }))
      const { log, run } = yield* said((say) =>
        Effect.gen(function*() {
          const self = yield* Deferred.make<Effect.Effect<void>>()
          const program = Effect.gen(function*() {
            yield* say(`process ${(yield* Count).n}`)
            yield* Effect.flatten(Deferred.await(self))
            yield* say("never")
          }).pipe(Effect.provide(layer))
          const first = yield* Simulation.process(program)
          yield* Deferred.succeed(self, first.crash)
          const exit = yield* first.await
          const second = yield* Simulation.process(program)
          yield* second.await
          yield* say(String(exit))
        })
      )
      assert.isUndefined(run.problem)
      assert.deepStrictEqual(log, ["process 1", "process 2", "never", "undefined"])
    }))

  it.effect("is nothing outside a simulation", () =>
    Effect.gen(function*() {
      const exit = yield* Effect.exit(Simulation.process(Effect.void))
      assert.match(String(exit), /Simulation\.process.*inside a simulation/)
    }))
})
