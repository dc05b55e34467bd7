import { assert, describe, it } from "@effect/vitest"
import { Siblings, TurnError } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "./utils/gen.ts"
import { drive, ended, fork } from "./utils/kit.ts"

/** Members that write down when they started, when they really ended, and how. */
class Log {
  readonly starts = new Map<string, number>()
  readonly ends = new Map<string, readonly [number, string]>()
  running = 0
  peak = 0

  member<A, E>(name: string, effect: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.flatMap(Clock.currentTimeMillis, (at) => {
      this.starts.set(name, at)
      this.peak = Math.max(this.peak, ++this.running)
      return Effect.onExit(effect, (exit) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          this.running--
          this.ends.set(name, [now, Exit.isSuccess(exit) ? "ok" : Exit.hasInterrupts(exit) ? "interrupt" : "failure"])
        }))
    })
  }
}

const after = <A>(ms: number, value: A): Effect.Effect<A> => Effect.as(Effect.sleep(ms), value)
const failing = (ms: number, error = "no"): Effect.Effect<never, string> =>
  Effect.andThen(Effect.sleep(ms), Effect.fail(error))
const cleaning = (ms: number, cleanup: number): Effect.Effect<string> =>
  Effect.onInterrupt(after(ms, "done"), () => Effect.sleep(cleanup))

const short = (settled: Iterable<Siblings.SettledOrUndone<any, any, any>>): ReadonlyArray<string> =>
  Array.from(settled, (one) =>
    one._tag === "Succeeded"
      ? `ok ${one.value}`
      : one._tag === "Undone"
      ? `undone ${one.value}`
      : one._tag === "UndoFailed"
      ? `not undone ${one.value}`
      : one._tag === "Failed"
      ? `failed${one.first ? " first" : ""}`
      : `cancelled ${one.by}${one.started ? "" : " before its start"}`)

describe("R18: Siblings.all", () => {
  it.effect("let-finish: everybody ends by itself", () =>
    Effect.gen(function*() {
      const settled = yield* drive(
        Siblings.all(
          [after(30, "a"), failing(10), Effect.die("boom"), Effect.interrupt, after(5, "e")],
          Siblings.letFinish
        )
      )
      assert.deepStrictEqual(short(settled), ["ok a", "failed", "failed", "cancelled itself", "ok e"])
    }))

  it.effect("fail-fast: starts nothing new, interrupts and waits, and the first failure stays apart", () =>
    Effect.gen(function*() {
      const log = new Log()
      const settled = yield* drive(Siblings.all(
        [
          log.member("a", cleaning(100, 15)),
          log.member("b", failing(20)),
          log.member("c", Effect.onInterrupt(after(100, "c"), () => Effect.die("clean-up broke"))),
          log.member("d", after(100, "d"))
        ],
        Siblings.failFast,
        { concurrency: 3 }
      ))
      assert.deepStrictEqual(short(settled), [
        "cancelled sibling",
        "failed first",
        "failed",
        "cancelled sibling before its start"
      ])
      assert.deepStrictEqual(log.ends.get("a"), [35, "interrupt"])
      assert.isFalse(log.starts.has("d"))
      assert.strictEqual(log.running, 0)
    }))

  it.effect("fail-fast: a defect and an interruption of one's own stop the others too", () =>
    Effect.gen(function*() {
      for (const bad of [Effect.die("boom"), Effect.interrupt]) {
        const settled = yield* drive(
          Siblings.all([Effect.andThen(Effect.sleep(5), bad), after(50, "b")], Siblings.failFast)
        )
        assert.strictEqual(short(settled)[1], "cancelled sibling")
        assert.strictEqual(short(settled)[0], bad === Effect.interrupt ? "cancelled itself" : "failed first")
      }
    }))

  it.effect("fail-fast: a member that fails at once keeps later ones from starting", () =>
    Effect.gen(function*() {
      const log = new Log()
      const settled = yield* drive(
        Siblings.all([log.member("a", Effect.fail("no")), log.member("b", Effect.succeed(1))], Siblings.failFast)
      )
      assert.deepStrictEqual(short(settled), ["failed first", "cancelled sibling before its start"])
      assert.isFalse(log.starts.has("b"))
    }))

  it.effect("fail-fast: `first` is the failure that stopped somebody, so the last to end is none", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(short(yield* drive(Siblings.all([after(5, "a"), failing(10)], Siblings.failFast))), [
        "ok a",
        "failed"
      ])
    }))

  it.effect("S2: a stop that comes in a member's first steps, before it has a fiber, interrupts it all the same", () =>
    Effect.gen(function*() {
      let victim: Fiber.Fiber<unknown, unknown> | undefined
      const settled = yield* drive(Siblings.all(
        [
          Effect.withFiber((fiber) => {
            victim = fiber
            return Effect.never
          }),
          Effect.andThen(Effect.sync(() => victim!.interruptUnsafe()), after(50, "b"))
        ],
        Siblings.failFast
      ))
      assert.deepStrictEqual(short(settled), ["cancelled itself", "cancelled sibling"])
    }))

  it.effect("fail-fast on a predicate", () =>
    Effect.gen(function*() {
      const policy = (wanted: string) =>
        Siblings.failFastWhen((cause: Cause.Cause<string>) =>
          Cause.findErrorOption(cause).pipe((o) => o._tag === "Some" && o.value === wanted)
        )
      const members = () => [failing(5, "minor"), failing(20, "fatal"), after(50, "c")] as const
      assert.deepStrictEqual(short(yield* drive(Siblings.all(members(), policy("fatal")))), [
        "failed",
        "failed first",
        "cancelled sibling"
      ])
      assert.deepStrictEqual(short(yield* drive(Siblings.all(members(), policy("other")))), [
        "failed",
        "failed",
        "ok c"
      ])
      const boom = Siblings.failFastWhen(() => {
        throw new Error("boom")
      })
      // It is asked about failures, and about nothing else.
      assert.deepStrictEqual(short(yield* drive(Siblings.all([after(5, "a"), after(10, "b")], boom))), ["ok a", "ok b"])
      assert.deepStrictEqual(short(yield* drive(Siblings.all(members(), boom))), [
        "failed first",
        "cancelled sibling",
        "cancelled sibling"
      ])
    }))

  it.effect("a policy of one's own that throws stops the others", () =>
    Effect.gen(function*() {
      const policy: Siblings.Policy = {
        name: "boom",
        stops: () => {
          throw new Error("boom")
        }
      }
      assert.deepStrictEqual(short(yield* drive(Siblings.all([after(5, "a"), after(50, "b")], policy))), [
        "ok a",
        "cancelled sibling"
      ])
    }))

  it.effect("quorum: the first n successes are enough", () =>
    Effect.gen(function*() {
      const members = [failing(5), after(10, "b"), after(20, "c"), after(30, "d")]
      assert.deepStrictEqual(short(yield* drive(Siblings.all(members, Siblings.quorum(2)))), [
        "failed",
        "ok b",
        "ok c",
        "cancelled sibling"
      ])
      assert.deepStrictEqual(short(yield* drive(Siblings.all(members, Siblings.quorum(9)))), [
        "failed",
        "ok b",
        "ok c",
        "ok d"
      ])
    }))

  it("quorum and concurrency that cannot be are refused where they are written", () => {
    for (const n of [0, -1, 1.5, NaN, Infinity, "2" as any]) {
      assert.throws(() => Siblings.quorum(n), TurnError.TurnError)
      assert.throws(() => Siblings.all([Effect.void], Siblings.letFinish, { concurrency: n }), TurnError.TurnError)
    }
  })

  it.effect("protect: is not cut, by a sibling or from above, and its true end is told", () =>
    Effect.gen(function*() {
      const log = new Log()
      const settled = yield* drive(
        Siblings.all(
          [Siblings.protect(log.member("a", after(60, "a"))), failing(10), after(60, "c")],
          Siblings.failFast
        )
      )
      assert.deepStrictEqual(short(settled), ["ok a", "failed first", "cancelled sibling"])
      const fiber = yield* fork(
        Siblings.all(
          [Siblings.protect(log.member("b", after(60, "b"))), log.member("c", after(60, "c"))],
          Siblings.letFinish
        )
      )
      const start = yield* Clock.currentTimeMillis
      yield* TestClock.adjust(10)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(49)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual([log.ends.get("b"), log.ends.get("c")], [[start + 60, "ok"], [start + 10, "interrupt"]])
    }))

  it.effect("protect: one that waits is not started after a stop", () =>
    Effect.gen(function*() {
      const settled = yield* drive(
        Siblings.all([failing(5), Siblings.protect(after(5, "b"))], Siblings.failFast, { concurrency: 1 })
      )
      assert.deepStrictEqual(short(settled), ["failed first", "cancelled sibling before its start"])
    }))

  it.effect("interruption from above starts nothing new, and waits for every clean-up", () =>
    Effect.gen(function*() {
      const log = new Log()
      const fiber = yield* fork(
        Siblings.all(
          [log.member("a", cleaning(100, 20)), log.member("b", cleaning(100, 40)), log.member("c", after(1, "c"))],
          Siblings.failFast,
          { concurrency: 2 }
        )
      )
      yield* TestClock.adjust(10)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(39)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual([log.ends.get("a"), log.ends.get("b"), log.starts.has("c")], [
        [30, "interrupt"],
        [50, "interrupt"],
        false
      ])
      assert.isTrue(Exit.hasInterrupts(fiber.pollUnsafe()!))
    }))

  it.effect("members start in order, as many at once as was said", () =>
    Effect.gen(function*() {
      const log = new Log()
      const members = Array.from({ length: 10 }, (_, i) => log.member(String(i), after(10, i)))
      const settled = yield* drive(Siblings.all(members, Siblings.letFinish, { concurrency: 3 }))
      assert.deepStrictEqual(short(settled), members.map((_, i) => `ok ${i}`))
      assert.strictEqual(log.peak, 3)
      assert.deepStrictEqual([...log.starts.values()], [0, 0, 0, 10, 10, 10, 20, 20, 20, 30])
    }))

  it.effect("a hundred thousand members that end at once neither deepen the stack nor take long", () =>
    Effect.gen(function*() {
      const members = Array.from({ length: 100_000 }, (_, i) => Effect.sync(() => i))
      const settled = yield* Siblings.all(members, Siblings.letFinish, { concurrency: 1 })
      assert.strictEqual(settled.length, 100_000)
      assert.deepStrictEqual(settled.at(-1), { _tag: "Succeeded", value: 99_999 })
    }))

  it.effect("no members: nothing to wait for", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* Siblings.all([], Siblings.failFast), [])
      assert.deepStrictEqual(yield* Siblings.all({}, Siblings.failFast), {})
      assert.deepStrictEqual(yield* Siblings.all(new Set<Effect.Effect<number>>(), Siblings.failFast), [])
    }))

  it.effect("a tuple gives a tuple, a struct a struct, any other iterable an array; data-last too; again when run again", () =>
    Effect.gen(function*() {
      const struct = yield* Siblings.all({ a: Effect.succeed(1), b: Effect.fail("no") }, Siblings.letFinish)
      assert.deepStrictEqual([struct.a, struct.b._tag], [{ _tag: "Succeeded", value: 1 }, "Failed"])
      // Members are told from policies by what they are, not by their names.
      const stops = yield* Siblings.all({ name: Effect.succeed("x"), stops: Effect.succeed(1) }, Siblings.letFinish)
      assert.deepStrictEqual(stops.stops, { _tag: "Succeeded", value: 1 })
      const set = Siblings.all(new Set([Effect.succeed(1), Effect.succeed(2)]), Siblings.letFinish)
      assert.deepStrictEqual(short(yield* set), ["ok 1", "ok 2"])
      assert.deepStrictEqual(short(yield* set), ["ok 1", "ok 2"])
      const last = yield* Siblings.all(Siblings.letFinish)([Effect.succeed(1), Effect.succeed("x")])
      assert.deepStrictEqual(short(last), ["ok 1", "ok x"])
    }))

  it.effect("members have the services of whoever runs them", () =>
    Effect.gen(function*() {
      const settled = yield* drive(Siblings.all([Clock.currentTimeMillis, after(5, "b")], Siblings.letFinish))
      assert.deepStrictEqual(short(settled), ["ok 0", "ok b"])
    }))

  const members = Arbitrary.array(
    Arbitrary.all({
      ms: pick(0, 5, 10, 20, 30),
      end: pick("ok", "ok", "fail", "die", "interrupt"),
      cleanup: pick(0, 0, 7),
      guarded: pick(false, false, true)
    }),
    { minLength: 1, maxLength: 8 }
  )
  const policies = {
    letFinish: Siblings.letFinish,
    failFast: Siblings.failFast,
    quorum: Siblings.quorum(2),
    when: Siblings.failFastWhen((cause: Cause.Cause<unknown>) => Cause.hasDies(cause))
  }

  it.effect.prop(
    "S1 to S4: every member ends once and truly, nothing starts after a stop, no fiber is left, protected ones are not cut",
    {
      members,
      policy: pick<keyof typeof policies>("letFinish", "failFast", "quorum", "when"),
      concurrency: pick<number | "unbounded">("unbounded", 1, 2, 3),
      stop: Arbitrary.flatMap(pick(false, true), (stops) => stops ? int(0, 40) : Arbitrary.Constant(undefined))
    },
    ({ concurrency, members, policy, stop }) =>
      Effect.gen(function*() {
        const log = new Log()
        const effects = members.map(({ cleanup, end, guarded, ms }, i) => {
          const wait = ms === 0
            ? Effect.void
            : Effect.onInterrupt(Effect.sleep(ms), () => cleanup === 0 ? Effect.void : Effect.sleep(cleanup))
          const body: Effect.Effect<number, string> = Effect.andThen(
            wait,
            end === "ok"
              ? Effect.succeed(i)
              : end === "fail"
              ? Effect.fail("no")
              : end === "die"
              ? Effect.die("boom")
              : Effect.interrupt
          )
          const member = log.member(String(i), body)
          return guarded ? Siblings.protect(member) : member
        })
        const fiber = yield* fork(Siblings.all(effects, policies[policy], { concurrency }))
        let stoppedAt = Infinity
        if (stop !== undefined) {
          yield* TestClock.adjust(stop)
          if (fiber.pollUnsafe() === undefined) {
            stoppedAt = stop
            const stopping = yield* fork(Fiber.interrupt(fiber))
            yield* TestClock.adjust(1000)
            yield* ended(stopping)
          }
        }
        yield* TestClock.adjust(1000)
        const exit = fiber.pollUnsafe()!
        assert.strictEqual(log.running, 0)
        assert.isAtMost(log.peak, concurrency === "unbounded" ? members.length : concurrency)
        for (const [name, at] of log.starts) {
          const { end, guarded, ms } = members[Number(name)]!
          assert.isAtMost(at, stoppedAt)
          if (!guarded) continue
          const [endedAt, how] = log.ends.get(name)!
          assert.strictEqual(endedAt - at, ms)
          assert.strictEqual(how, end === "ok" ? "ok" : end === "interrupt" ? "interrupt" : "failure")
        }
        if (stoppedAt < Infinity) return assert.isTrue(Exit.isFailure(exit))
        const settled = yield* exit
        assert.strictEqual(settled.length, members.length)
        settled.forEach((one, i) => {
          const started = log.starts.has(String(i))
          const { end } = members[i]!
          if (one._tag === "Succeeded") assert.deepStrictEqual([one.value, end], [i, "ok"])
          else if (one._tag === "Failed") assert.include(["fail", "die"], end)
          else {
            assert.strictEqual(one.started, started)
            if (one.by === "itself") assert.strictEqual(end, "interrupt")
          }
        })
        const firsts = settled.filter((one) => one._tag === "Failed" && one.first)
        assert.isAtMost(firsts.length, policy === "failFast" || policy === "when" ? 1 : 0)
        if (policy === "letFinish") assert.strictEqual(log.starts.size, members.length)
      }),
    runs(300)
  )
})

describe("R25: Siblings.allOrNothing", () => {
  /** Effects that apply something when they succeed, and take it back when they are undone. */
  class World {
    readonly applied: Array<string> = []
    readonly undone: Array<string> = []
    readonly standing = new Set<string>()
    undoing = 0

    apply(name: string, ms: number): Effect.Effect<string> {
      return Effect.andThen(
        ms === 0 ? Effect.void : Effect.sleep(ms),
        Effect.sync(() => {
          this.applied.push(name)
          this.standing.add(name)
          return name
        })
      )
    }

    undo(name: string, ms: number, fails = false): Effect.Effect<void, string> {
      return Effect.gen({ self: this }, function*() {
        assert.strictEqual(this.undoing++, 0, "one after the other")
        if (ms > 0) yield* Effect.sleep(ms)
        this.undoing--
        this.undone.push(name)
        if (fails) return yield* Effect.fail(`${name} stands`)
        this.standing.delete(name)
      })
    }

    member(name: string, ms: number, undo = 0, fails = false) {
      return Siblings.undoable(this.apply(name, ms), () => this.undo(name, undo, fails))
    }
  }

  it.effect("all succeed: nothing is undone", () =>
    Effect.gen(function*() {
      const world = new World()
      const settled = yield* drive(
        Siblings.all({ a: world.member("a", 10), b: world.member("b", 5) }, Siblings.allOrNothing)
      )
      assert.deepStrictEqual(short(Object.values(settled)), ["ok a", "ok b"])
      assert.deepStrictEqual(yield* Siblings.getOrFail(settled), { a: "a", b: "b" })
      assert.deepStrictEqual([world.applied, world.undone], [["b", "a"], []])
      assert.deepStrictEqual(yield* Siblings.all([], Siblings.allOrNothing), [])
    }))

  it.effect("one fails: nothing new starts, the rest is awaited, and what succeeded is undone, the last to end first", () =>
    Effect.gen(function*() {
      const world = new World()
      const log = new Log()
      let finished = 0
      const settled = yield* drive(
        Siblings.all(
          [
            world.member("a", 20, 7),
            world.member("b", 10, 7),
            // Not cut, as nothing is that is being acquired: it succeeds after the failure, and is undone first.
            log.member("c", world.apply("c", 60)).pipe(Siblings.undoable((name) => world.undo(name, 7))),
            Siblings.nothingToUndo(failing(30)),
            Siblings.nothingToUndo(after(5, "read")),
            Siblings.nothingToUndo(log.member("slow read", after(100, "slow"))),
            world.member("late", 5)
          ],
          Siblings.allOrNothing,
          { concurrency: 6 }
        ).pipe(Effect.tap(Effect.map(Clock.currentTimeMillis, (now) => {
          finished = now
        })))
      )
      assert.deepStrictEqual(short(settled), [
        "undone a",
        "undone b",
        "undone c",
        "failed first",
        "ok read",
        "cancelled sibling",
        "undone late"
      ])
      assert.deepStrictEqual(world.undone, ["c", "a", "late", "b"])
      assert.deepStrictEqual([log.ends.get("slow read"), log.ends.get("c")], [[30, "interrupt"], [60, "ok"]])
      assert.strictEqual(finished, 60 + 4 * 7 - 7)
      assert.strictEqual(world.standing.size, 0)
    }))

  it.effect("the last to end fails, or interrupts itself, or breaks: it is first, and the others are undone", () =>
    Effect.gen(function*() {
      for (
        const [end, told] of [
          [failing(20), "failed first"],
          [Effect.delay(Effect.die("boom"), 20), "failed first"],
          [Effect.delay(Effect.interrupt, 20), "cancelled itself"]
        ] as const
      ) {
        const world = new World()
        const settled = yield* drive(
          Siblings.all(
            [world.member("a", 5), Siblings.nothingToUndo<string, string, never>(end)],
            Siblings.allOrNothing
          )
        )
        assert.deepStrictEqual(short(settled), ["undone a", told])
      }
    }))

  it.effect("an undo that fails, breaks, throws or interrupts itself is told, and the others are done", () =>
    Effect.gen(function*() {
      const world = new World()
      const broken = (ms: number, undo: () => Effect.Effect<unknown, string>) => Siblings.undoable(after(ms, ms), undo)
      const settled = yield* drive(Siblings.all(
        [
          world.member("a", 5),
          world.member("b", 10, 3, true),
          broken(11, () => Effect.die("boom")),
          broken(12, () => {
            throw new Error("thrown")
          }),
          broken(13, () => Effect.interrupt),
          Siblings.undoable(failing(20), () => Effect.die("never asked"))
        ],
        Siblings.allOrNothing
      ))
      assert.deepStrictEqual(short(settled), [
        "undone a",
        "not undone b",
        "not undone 11",
        "not undone 12",
        "not undone 13",
        "failed first"
      ])
      assert.deepStrictEqual(world.undone, ["b", "a"])
      const exit = yield* Effect.exit(Siblings.getOrFail(settled))
      assert.isTrue(Exit.isFailure(exit))
      if (Exit.isSuccess(exit)) return
      // The first failure first, and then what could not be undone, in the order of the members.
      assert.deepStrictEqual(
        exit.cause.reasons.map((one) =>
          one._tag === "Fail" ? one.error : one._tag === "Die" ? String(one.defect) : one._tag
        ),
        ["no", "b stands", "boom", "Error: thrown", "Interrupt"]
      )
    }))

  it.effect("getOrFail: an interruption where nothing failed, with what could not be undone", () =>
    Effect.gen(function*() {
      const world = new World()
      for (const fails of [false, true]) {
        const settled = yield* drive(Siblings.all(
          [world.member("a", 5, 0, fails), Siblings.nothingToUndo(Effect.delay(Effect.interrupt, 10))],
          Siblings.allOrNothing
        ))
        const exit = yield* Effect.exit(Siblings.getOrFail(settled))
        assert.deepStrictEqual(
          Exit.isFailure(exit) && exit.cause.reasons.map((one) => one._tag),
          fails ? ["Interrupt", "Fail"] : ["Interrupt"]
        )
      }
    }))

  it.effect("a stop from above waits until all is undone, and tells what could not be", () =>
    Effect.gen(function*() {
      const world = new World()
      const fiber = yield* fork(Siblings.all(
        [
          world.member("a", 5, 10),
          world.member("b", 40, 10, true),
          Siblings.nothingToUndo(Effect.never),
          Siblings.undoable(world.apply("c", 100), () => world.undo("c", 0), { interruptible: true })
        ],
        Siblings.allOrNothing
      ))
      yield* TestClock.adjust(20)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(39)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual([world.applied, world.undone], [["a", "b"], ["b", "a"]])
      const exit = fiber.pollUnsafe()!
      assert.isTrue(Exit.hasInterrupts(exit))
      assert.deepStrictEqual(
        Exit.isFailure(exit) && exit.cause.reasons.filter(Cause.isDieReason).map((one) => one.defect),
        ["b stands"]
      )
    }))

  it.effect("a limit inside an undo works, and a second stop cuts nothing", () =>
    Effect.gen(function*() {
      const world = new World()
      const hangs = Siblings.undoable(after(5, "h"), () => Effect.timeout(Effect.never, 50))
      const fiber = yield* fork(
        Siblings.all([world.member("a", 1, 10), hangs, Siblings.nothingToUndo(failing(10))], Siblings.allOrNothing)
      )
      yield* TestClock.adjust(20)
      const stopping = yield* fork(Effect.andThen(Fiber.interrupt(fiber), Fiber.interrupt(fiber)))
      yield* TestClock.adjust(49)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual(world.undone, ["a"])
    }))

  it.effect("where nobody can stop it, it goes on to its end", () =>
    Effect.gen(function*() {
      const world = new World()
      const fiber = yield* fork(
        Effect.uninterruptible(Siblings.all([world.member("a", 10), world.member("b", 30)], Siblings.allOrNothing))
      )
      yield* TestClock.adjust(20)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(10)
      yield* ended(stopping)
      assert.deepStrictEqual([...world.standing], ["a", "b"])
    }))

  it.effect("other policies undo nothing, and do not cut what can be undone", () =>
    Effect.gen(function*() {
      const world = new World()
      const settled = yield* drive(
        Siblings.all([world.member("a", 5), failing(10), world.member("b", 20)], Siblings.failFast)
      )
      assert.deepStrictEqual([short(settled), world.undone], [["ok a", "failed first", "ok b"], []])
    }))

  it.effect("data-last, and any iterable; again when run again", () =>
    Effect.gen(function*() {
      const world = new World()
      const all = Siblings.all(Siblings.allOrNothing, { concurrency: 1 })(
        new Set([world.member("a", 5), world.member("b", 5), Siblings.nothingToUndo(failing(5))])
      )
      for (let i = 0; i < 2; i++) {
        assert.deepStrictEqual(short(yield* drive(all)), ["undone a", "undone b", "failed first"])
      }
      assert.deepStrictEqual(world.undone, ["b", "a", "b", "a"])
    }))

  interface Given {
    readonly ms: number
    readonly end: "ok" | "fail" | "die" | "interrupt"
    readonly kind: "write" | "interruptible" | "read"
    readonly undo: number
    readonly undoFails: boolean
  }
  const members: Arbitrary.Arbitrary<ReadonlyArray<Given>> = Arbitrary.array(
    Arbitrary.all({
      ms: pick(0, 5, 10, 10, 20, 30),
      end: pick("ok", "ok", "ok", "fail", "die", "interrupt"),
      kind: pick("write", "write", "interruptible", "read"),
      undo: pick(0, 3, 8),
      undoFails: pick(false, false, false, true)
    }),
    { minLength: 1, maxLength: 6 }
  )

  const check = (
    given: ReadonlyArray<Given>,
    concurrency: number | "unbounded",
    stop: number | undefined
  ) =>
    Effect.gen(function*() {
      const world = new World()
      const log = new Log()
      const effects = given.map(({ end, kind, ms, undo, undoFails }, i) => {
        const name = String(i)
        const body: Effect.Effect<string, string> = end === "ok"
          ? world.apply(name, ms)
          : Effect.delay(end === "fail" ? Effect.fail("no") : end === "die" ? Effect.die("boom") : Effect.interrupt, ms)
        const member = log.member(name, body)
        return kind === "read"
          ? Siblings.nothingToUndo(member)
          : Siblings.undoable(member, () => world.undo(name, undo, undoFails), {
            interruptible: kind === "interruptible"
          })
      })
      const fiber = yield* fork(Siblings.all(effects, Siblings.allOrNothing, { concurrency }))
      if (stop !== undefined) {
        yield* TestClock.adjust(stop)
        if (fiber.pollUnsafe() === undefined) {
          const stopping = yield* fork(Fiber.interrupt(fiber))
          yield* TestClock.adjust(1000)
          yield* ended(stopping)
        }
      }
      yield* TestClock.adjust(1000)
      const exit = fiber.pollUnsafe()!
      assert.strictEqual(log.running, 0)
      assert.strictEqual(world.undoing, 0)
      const writes = world.applied.filter((name) => given[Number(name)]!.kind !== "read")
      const stand = new Set(writes.filter((name) => world.standing.has(name)))
      if (Exit.isFailure(exit)) {
        assert.isTrue(Exit.hasInterrupts(exit))
        assert.deepStrictEqual(world.undone, writes.toReversed())
        for (const name of stand) assert.isTrue(given[Number(name)]!.undoFails)
        const told = exit.cause.reasons.filter(Cause.isDieReason).map((one) => one.defect)
        assert.deepStrictEqual(told, world.undone.filter((name) => stand.has(name)).map((name) => `${name} stands`))
        return false
      }
      const settled = exit.value
      if (settled.every((one) => one._tag === "Succeeded")) {
        assert.strictEqual(stand.size, writes.length)
        assert.deepStrictEqual(world.undone, [])
        return true
      }
      // Each undo once, in the reverse order of the ends, and what stands is told.
      assert.deepStrictEqual(world.undone, writes.toReversed())
      settled.forEach((one, i) => {
        const { kind, undoFails } = given[i]!
        const applied = world.applied.includes(String(i))
        if (kind === "read") assert.strictEqual(one._tag === "Succeeded", applied)
        else assert.strictEqual(one._tag, applied ? undoFails ? "UndoFailed" : "Undone" : one._tag)
        assert.strictEqual(stand.has(String(i)), one._tag === "UndoFailed")
      })
      const started = settled.filter((_, i) => log.starts.has(String(i)))
      assert.isTrue(started.some((one) => one._tag === "Failed" || (one._tag === "Cancelled" && one.by === "itself")))
      return false
    })

  it.effect.prop(
    "any mix of latencies, failures and stops: all stand, or nothing does that can be undone",
    {
      members,
      concurrency: pick<number | "unbounded">("unbounded", 1, 2, 3),
      stop: Arbitrary.flatMap(pick(false, true), (stops) => stops ? int(0, 60) : Arbitrary.Constant(undefined))
    },
    ({ concurrency, members, stop }) => Effect.asVoid(check(members, concurrency, stop)),
    runs(500)
  )

  it.effect("a stop at every instant of a group in which all succeed, and of one in which one fails", () =>
    Effect.gen(function*() {
      const write = { end: "ok", kind: "write", undo: 3, undoFails: false } as const
      const whole = [0, 2, 5, 5, 7].map((ms) => ({ ...write, ms }))
      let stood = 0
      for (let stop = 0; stop <= 9; stop++) if (yield* check(whole, "unbounded", stop)) stood++
      // From the last end on: at 7 everybody has been told.
      assert.strictEqual(stood, 3)
      const torn = [...whole, { ...write, ms: 4, end: "fail" as const }]
      for (let stop = 0; stop <= 30; stop++) assert.isFalse(yield* check(torn, "unbounded", stop))
    }))

  it.effect("a stop that comes in the very step in which the last one ends: nobody gets the answer, so all is undone", () =>
    Effect.gen(function*() {
      const world = new World()
      let whole: Fiber.Fiber<unknown> | undefined
      const last = Siblings.undoable(
        Effect.tap(world.apply("b", 10), () => Effect.sync(() => whole!.interruptUnsafe())),
        () => world.undo("b", 0)
      )
      whole = yield* fork(Siblings.all([world.member("a", 5), last], Siblings.allOrNothing))
      yield* TestClock.adjust(10)
      assert.isTrue(Exit.hasInterrupts(whole.pollUnsafe()!))
      assert.deepStrictEqual(world.undone, ["b", "a"])
    }))
})

describe("Siblings.getOrFail", () => {
  it.effect("gives the values when all succeeded", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(
        yield* Effect.flatMap(
          Siblings.all([Effect.succeed(1), Effect.succeed("x")], Siblings.letFinish),
          Siblings.getOrFail
        ),
        [1, "x"]
      )
      assert.deepStrictEqual(
        yield* Effect.flatMap(Siblings.all({ a: Effect.succeed(1) }, Siblings.letFinish), Siblings.getOrFail),
        { a: 1 }
      )
    }))

  it.effect("fails with the failure that stopped the others, not with what followed", () =>
    Effect.gen(function*() {
      const settled = yield* drive(
        Siblings.all(
          [Effect.onInterrupt(after(50, 1), () => Effect.die("clean-up broke")), failing(10, "first")],
          Siblings.failFast
        )
      )
      assert.strictEqual(yield* Effect.flip(Siblings.getOrFail(settled)), "first")
    }))

  it.effect("without such a one, with the first in order", () =>
    Effect.gen(function*() {
      const settled = yield* drive(Siblings.all([failing(20, "a"), failing(10, "b")], Siblings.letFinish))
      assert.strictEqual(yield* Effect.flip(Siblings.getOrFail(settled)), "a")
    }))

  it.effect("is an interruption when members were cancelled and none failed", () =>
    Effect.gen(function*() {
      const settled = yield* drive(Siblings.all([after(5, 1), after(50, 2)], Siblings.quorum(1)))
      const exit = yield* Effect.exit(Siblings.getOrFail(settled))
      assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
    }))
})
