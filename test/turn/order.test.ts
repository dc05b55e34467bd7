/** The order of keys across turns, while calls come, end, and are stopped before their start (rule R12). */
import { assert, describe, it } from "@effect/vitest"
import { ToolPolicy } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { conflict, int, pick, type Reach, runs } from "../utils/gen.ts"
import { call, fork, lab, type Name, run, tools } from "../utils/kit.ts"

/** A turn of one call: it begins, and is perhaps stopped; all in steps of 10 ms. */
interface One {
  readonly name: Name
  readonly k: ReadonlyArray<string>
  readonly at: number
  readonly steps: number
  readonly stop: number | undefined
}

const reachOf = ({ k, name }: One): Reach => ({
  write: ToolPolicy.get(tools[name]).access === "write",
  keys: name === "look" || name === "bare" ? undefined : k
})

/** When each of them starts, by the words of the rule, pair by pair; undefined for one that never does. */
const expected = (ones: ReadonlyArray<One>): ReadonlyArray<number | undefined> => {
  const started: Array<number | undefined> = ones.map(() => undefined)
  const over: Array<number | undefined> = ones.map(() => undefined)
  const start = (now: number) =>
    ones.forEach((one, i) => {
      if (one.at * 10 > now || started[i] !== undefined || over[i] !== undefined) return
      const free = ones.slice(0, i).every((earlier, j) =>
        over[j] !== undefined || !conflict(reachOf(earlier), reachOf(one))
      )
      if (free) started[i] = now
    })
  // They begin and end at tens, and are stopped half-way between, one after another.
  for (let now = 0; now <= 2_000; now += 5) {
    ones.forEach(({ steps }, i) => {
      if (started[i] !== undefined && started[i] + steps * 10 === now) over[i] ??= now
    })
    start(now)
    ones.forEach(({ name, stop }, i) => {
      if (stop === undefined || stop * 10 + 5 !== now) return
      if (started[i] === undefined || ToolPolicy.get(tools[name]).interruptible) over[i] ??= now
      start(now)
    })
  }
  return started
}

/** When each of them really starts. `ones` begin in their order. */
const real = (ones: ReadonlyArray<One>) =>
  Effect.gen(function*() {
    const { book, layer } = lab()
    const start = yield* Clock.currentTimeMillis
    yield* Effect.gen(function*() {
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
      for (let step = 0; step <= 100; step++) {
        for (const [i, one] of ones.entries()) {
          if (one.at !== step) continue
          book.script.set(String(i), { ms: one.steps * 10 })
          fibers[i] = yield* fork(run([call(one.name, String(i), one.k)]))
        }
        yield* TestClock.adjust(5)
        for (const [i, { stop }] of ones.entries()) if (stop === step) yield* fork(Fiber.interrupt(fibers[i]!))
        yield* TestClock.adjust(5)
      }
    }).pipe(Effect.provide(layer))
    return ones.map((_, i) => book.count(String(i)) === 0 ? undefined : book.of(String(i)).at - start)
  })

const paths = ["f:/", "f:/a", "f:/a/x", "f:/a/y", "f:/b"]

describe("R12: the order of keys across turns", () => {
  it.effect("what waited behind a call that never started waits for what that one waited for, and so does what comes later", () =>
    Effect.gen(function*() {
      for (const p of paths.slice(0, 3)) {
        for (const q of paths.slice(0, 3)) {
          for (const r of paths.slice(0, 4)) {
            for (const [first, last] of [["write", "write"], ["write", "read"], ["read", "write"]] as const) {
              const ones: ReadonlyArray<One> = [
                { name: first, k: [p], at: 0, steps: 8, stop: undefined },
                { name: "write", k: [q], at: 1, steps: 1, stop: 3 },
                { name: last, k: [r], at: 2, steps: 1, stop: undefined },
                { name: last, k: [r], at: 4, steps: 1, stop: undefined }
              ]
              assert.deepStrictEqual(yield* real(ones), expected(ones), JSON.stringify([p, q, r, first, last]))
            }
          }
        }
      }
    }))

  it.effect("behind several that run, too", () =>
    Effect.gen(function*() {
      for (const p of paths.slice(0, 3)) {
        for (const q of paths.slice(0, 3)) {
          const ones: ReadonlyArray<One> = [
            { name: "read", k: [p], at: 0, steps: 8, stop: undefined },
            { name: "read", k: [p], at: 0, steps: 6, stop: undefined },
            { name: "read", k: ["f:/b"], at: 0, steps: 9, stop: undefined },
            { name: "write", k: [q, "f:/b"], at: 1, steps: 1, stop: 3 },
            { name: "write", k: ["f:/"], at: 2, steps: 1, stop: 2 },
            { name: "write", k: [p], at: 2, steps: 1, stop: undefined },
            { name: "read", k: [q], at: 4, steps: 1, stop: undefined }
          ]
          assert.deepStrictEqual(yield* real(ones), expected(ones), JSON.stringify([p, q]))
        }
      }
    }))

  it.effect("R14: work inside a started call waits for what has started, above and below its keys, and for nothing else", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<readonly [others: ReadonlyArray<readonly [Name, string]>, inner: Name, at: number]> = [
        [[["write", "f:/a"]], "write", 80],
        [[["write", "f:/a/x"]], "write", 80],
        [[["write", "f:/a/x"]], "read", 80],
        [[["write", "f:/"]], "read", 80],
        [[["read", "f:/a/x"]], "write", 80],
        [[["read", "f:/a/x"]], "read", 10],
        [[["read", "f:/"]], "write", 80],
        [[["read", "f:/a"], ["read", "f:/a"], ["write", "f:/a"]], "write", 80],
        [[["read", "f:/a/x"], ["read", "f:/a/y"], ["write", "f:/a"]], "write", 80],
        [[["read", "f:/a/x"], ["read", "f:/a/y"], ["write", "f:/a"]], "read", 10],
        [[["write", "f:/b"]], "write", 10]
      ]
      for (const [others, inner, at] of cases) {
        const { book, layer } = lab()
        book.script.set("outer", {
          run: Effect.andThen(Effect.sleep(10), run([call(inner, "inner", ["f:/a"])])).pipe(Effect.orDie)
        })
        const start = yield* Clock.currentTimeMillis
        yield* Effect.gen(function*() {
          for (const [i, [name, key]] of others.entries()) {
            book.script.set(String(i), { ms: 80 })
            yield* fork(run([call(name, String(i), [key])]))
          }
          yield* fork(run([call("read", "outer")]))
          yield* TestClock.adjust(1_000)
        }).pipe(Effect.provide(layer))
        assert.strictEqual(book.of("inner").at - start, at, JSON.stringify([others, inner]))
      }
    }))

  it.effect.prop(
    "a call starts at the very moment when every earlier one that it conflicts with is over",
    {
      some: Arbitrary.array(
        Arbitrary.all({
          name: pick<Name>("write", "read", "write", "read", "write", "put", "look", "bare"),
          k: Arbitrary.array(pick(...paths), { minLength: 1, maxLength: 2 }),
          at: int(0, 6),
          steps: pick(1, 2, 4, 8),
          after: pick(undefined, 0, undefined, 1, 3)
        }),
        { maxLength: 9 }
      )
    },
    ({ some }) =>
      Effect.gen(function*() {
        const ones = some.toSorted((a, b) => a.at - b.at).map(({ after, ...one }) => ({
          ...one,
          stop: after === undefined ? undefined : one.at + after
        }))
        assert.deepStrictEqual(yield* real(ones), expected(ones))
      }),
    runs(200)
  )
})
