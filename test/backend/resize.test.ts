/** Limits that change while the backend is at work. */
import { assert, describe, it } from "@effect/vitest"
import { TurnContext, TurnError } from "effect-turn"
import type { Backend } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "../utils/gen.ts"
import { Api, call, Crm, ended, fork, idle, lab, run, words } from "../utils/kit.ts"

const as = (tenant: string) => Effect.provide(TurnContext.make({ tenant }))
const fetches = (...tags: ReadonlyArray<string>) => tags.map((tag) => call("fetch", tag))

describe("resize: limits that cannot be are refused, and change nothing", () => {
  const impossible: ReadonlyArray<readonly [Backend.Resize, RegExp]> = [
    ...[0, -1, 1.5, NaN, Infinity, "2", null].map((value) =>
      [
        { concurrency: value as number },
        /"test\/Crm".*"concurrency" must be a whole number from 1, or "infinite"/
      ] as const
    ),
    ...[0, -1, NaN, null].map((value) => [{ perTenant: value as number }, /"test\/Crm".*"perTenant"/] as const),
    ...[-1, 0.5, null].map((value) => [{ queueLimit: value as number }, /"test\/Crm".*"queueLimit"/] as const),
    [{ rate: { limit: 0, window: 10 } }, /"test\/Crm".*"rate.limit"/],
    [{ rate: { limit: 1, window: "infinite" as never } }, /"test\/Crm".*"rate.window"/],
    [{ rate: null as never }, /"test\/Crm".*"rate.limit"/],
    // One that can be, beside one that cannot.
    [{ concurrency: 9, perTenant: 0 }, /"perTenant"/]
  ]
  it.effect("all of them", () =>
    Effect.gen(function*() {
      const before = yield* Crm.stats
      for (const [limits, words] of impossible) {
        const error = yield* Effect.flip(Crm.resize(limits))
        assert.instanceOf(error, TurnError.TurnError)
        assert.strictEqual(error.reason._tag, "InvalidLimit")
        assert.match(error.message, words)
        assert.deepStrictEqual(yield* Crm.stats, before)
      }
    }).pipe(Effect.provide(Crm.layer({ concurrency: 2, perTenant: 1, rate: { limit: 3, window: 10 } }))))

  it.effect("what is not named stays as it is, and the snapshot shows what is", () =>
    Effect.gen(function*() {
      yield* Crm.resize({})
      yield* Crm.resize({ concurrency: undefined })
      assert.deepStrictEqual(yield* Crm.stats, idle(2, 1))
      yield* Crm.resize({ concurrency: 5, queueLimit: 7 })
      assert.deepStrictEqual(yield* Crm.stats, { ...idle(5, 1), queueLimit: 7 })
      yield* Crm.resize({ perTenant: 3, rate: { limit: 2, window: "1 second" } })
      assert.deepStrictEqual(yield* Crm.stats, { ...idle(5, 3), queueLimit: 7, rate: { limit: 2, window: 1000 } })
      const { resize } = yield* Crm
      yield* resize({ concurrency: "infinite", perTenant: "infinite", queueLimit: "infinite", rate: "infinite" })
      assert.deepStrictEqual(yield* Crm.stats, idle(Infinity))
    }).pipe(Effect.provide(Crm.layer({ concurrency: 2, perTenant: 1 }))))
})

describe("resize", () => {
  it.effect("more permits: those that wait start in the same step", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { a: { ms: 50 } } })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b", "c", "d")))
        yield* TestClock.adjust(10)
        yield* Api.resize({ concurrency: 3 })
        assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [["a", 0], ["b", 10], ["c", 10]])
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "ok", "ok", "ok"])
        assert.strictEqual(book.of("d").at, 20)
        assert.deepStrictEqual(yield* Api.stats, idle(3))
      }).pipe(Effect.provide(layer))
    }))

  it.effect("fewer permits: nothing is interrupted, and the next one starts when enough have come back", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 4 },
        script: { a: { ms: 10 }, b: { ms: 20 }, c: { ms: 30 }, d: { ms: 40 } }
      })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b", "c", "d", "e", "f")))
        yield* TestClock.adjust(5)
        yield* Api.resize({ concurrency: 2 })
        const { concurrency, running, waiting } = yield* Api.stats
        assert.deepStrictEqual([concurrency, running, waiting], [2, 4, 2])
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(turn)), Array(6).fill("ok"))
        assert.deepStrictEqual(book.runs.map(({ at, endedAt }) => [at, endedAt]), [
          [0, 10],
          [0, 20],
          [0, 30],
          [0, 40],
          [30, 40],
          [40, 50]
        ])
        assert.deepStrictEqual(yield* Api.stats, idle(2))
      }).pipe(Effect.provide(layer))
    }))

  it.effect("shares of tenants, larger and smaller", () =>
    Effect.gen(function*() {
      const starts: Array<number> = []
      const work = Crm.withPermit(
        Effect.flatMap(Clock.currentTimeMillis, (at) => {
          starts.push(at)
          return Effect.sleep(10)
        })
      ).pipe(as("north"))
      yield* Effect.gen(function*() {
        for (let i = 0; i < 6; i++) yield* fork(work)
        yield* TestClock.adjust(5)
        yield* Crm.resize({ perTenant: 3 })
        assert.deepStrictEqual(starts, [0, 5, 5])
        yield* Crm.resize({ perTenant: 1 })
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(starts, [0, 5, 5, 15, 25, 35])
      }).pipe(Effect.provide(Crm.layer({ concurrency: 9, perTenant: 1 })))
    }))

  it.effect("a tenant in line whose share has shrunk stands in nobody's way", () =>
    Effect.gen(function*() {
      const starts: Array<readonly [string, number]> = []
      const work = (name: string, ms: number) =>
        Crm.withPermit(
          Effect.flatMap(Clock.currentTimeMillis, (at) => {
            starts.push([name, at])
            return Effect.sleep(ms)
          })
        ).pipe(as(name))
      yield* Effect.gen(function*() {
        yield* fork(work("north", 50))
        yield* fork(work("east", 10))
        yield* fork(work("north", 10))
        yield* fork(work("south", 10))
        // North waits first, below its share; then it has reached it.
        yield* Crm.resize({ perTenant: 1 })
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(starts, [["north", 0], ["east", 0], ["south", 10], ["north", 50]])
        assert.deepStrictEqual(yield* Crm.stats, idle(2, 1))
      }).pipe(Effect.provide(Crm.layer({ concurrency: 2, perTenant: 2 })))
    }))

  it.effect("a shorter line keeps those that stand in it", () =>
    Effect.gen(function*() {
      const { layer } = lab({ api: { concurrency: 1, queueLimit: 2 } })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("a", "b", "c")))
        yield* Api.resize({ queueLimit: 0 })
        const error = yield* Effect.flip(Api.withPermit(Effect.void))
        assert.deepStrictEqual([error._tag, (error as Backend.QueueFull).queueLimit], ["QueueFull", 0])
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(turn)), ["ok", "ok", "ok"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a higher rate serves those that wait for it at once; a lower one counts what has started", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 9, rate: { limit: 1, window: 1000 } } })
      yield* Effect.gen(function*() {
        yield* fork(run(fetches("a", "b", "c", "d", "e", "f")))
        yield* TestClock.adjust(10)
        yield* Api.resize({ rate: { limit: 3, window: 1000 } })
        assert.deepStrictEqual(book.runs.map(({ at, tag }) => [tag, at]), [["a", 0], ["b", 10], ["c", 10]])
        yield* Api.resize({ rate: { limit: 2, window: 1000 } })
        yield* TestClock.adjust(10_000)
        const starts = book.runs.map(({ at }) => at).slice(3)
        // The window that was begun lasts for 1000 + 2 · 333 ms.
        assert.deepStrictEqual(starts, [1667, 1667, 2667])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a rate where there was none, and none where there was one", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 } })
      yield* Effect.gen(function*() {
        yield* fork(run(fetches("a", "b", "c", "d", "e")))
        yield* TestClock.adjust(5)
        yield* Api.resize({ rate: { limit: 1, window: 100 } })
        yield* TestClock.adjust(115)
        yield* Api.resize({ rate: "infinite" })
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(book.runs.map(({ at }) => at), [0, 10, 110, 120, 130])
        assert.deepStrictEqual(yield* Api.stats, idle(1))
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a rate that ends while work inside waits for it lets that go on", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1, rate: { limit: 1, window: 1000 } } })
      book.script.set("outer", { run: Effect.map(run(fetches("x")), words).pipe(Effect.orDie) })
      yield* Effect.gen(function*() {
        const turn = yield* fork(run(fetches("outer")))
        yield* TestClock.adjust(10)
        yield* Api.resize({ rate: "infinite" })
        yield* TestClock.adjust(10)
        assert.deepStrictEqual((yield* ended(turn))[0]!.status, "ok")
        assert.strictEqual(book.of("x").at, 10)
      }).pipe(Effect.provide(layer))
    }))
})

describe("resize, whatever happens", () => {
  const limits = Arbitrary.all({
    at: int(0, 40),
    concurrency: pick<number | undefined>(undefined, 1, 2, 3, 5),
    perTenant: pick<number | "infinite" | undefined>(undefined, 1, 2, "infinite"),
    rate: pick<Backend.Rate | "infinite" | undefined>(
      undefined,
      undefined,
      "infinite",
      { limit: 1, window: 7 },
      { limit: 3, window: 20 }
    )
  })
  const someWork = Arbitrary.all({
    tenant: pick("north", "south"),
    at: pick(0, 0, 3, 10, 17, 30),
    ms: pick(10, 0, 5, 20),
    depth: pick(0, 0, 1),
    stopAt: Arbitrary.flatMap(pick(false, false, true), (stops) => stops ? int(0, 40) : Arbitrary.Constant(undefined))
  })
  const cases = Arbitrary.all({
    works: Arbitrary.array(someWork, { minLength: 1, maxLength: 8 }),
    changes: Arbitrary.array(limits, { minLength: 1, maxLength: 4 })
  })

  it.effect(
    "B1, B2, B7: under every order nobody starts over the limits of that moment, nobody waits for nothing, and all come back",
    () =>
      Effect.gen(function*() {
        const { runs: count } = yield* Simulation.forAll(cases, ({ changes, works }) =>
          Effect.gen(function*() {
            const { pool } = yield* Crm
            const started = (tenant: string) => {
              const { concurrency, perTenant, running, tenants } = pool.stats()
              assert.isAtMost(running, concurrency)
              assert.isAtMost(tenants[tenant]!.running, perTenant)
            }
            const idle = () => {
              const { concurrency, perTenant, rate, running, tenants } = pool.stats()
              if (rate !== undefined) return
              for (const one of Object.values(tenants)) {
                if (one.waiting > 0) {
                  assert.isTrue(running >= concurrency || one.running >= perTenant, JSON.stringify(pool.stats()))
                }
              }
            }
            const change = ({ at, ...limits }: typeof changes[number]) =>
              Effect.andThen(
                Effect.sleep(at),
                Effect.tap(Crm.resize(limits), () => Effect.sync(idle))
              )
            const work = ({ at, depth, ms, stopAt, tenant }: typeof works[number]) =>
              Effect.gen(function*() {
                yield* Effect.sleep(at)
                // Seen in the step that hands out the permit, before anything else can happen.
                const body: Effect.Effect<unknown, Backend.Refused, Crm | TurnContext.Tenant> = depth > 0
                  ? Crm.withPermit(Effect.sleep(ms))
                  : Effect.sleep(ms)
                const fiber = yield* Effect.forkChild(
                  Effect.exit(Crm.withPermit(body)).pipe(as(tenant))
                )
                if (stopAt !== undefined) {
                  yield* Effect.sleep(stopAt)
                  yield* Fiber.interrupt(fiber)
                }
                yield* Fiber.await(fiber)
                yield* Effect.sync(idle)
              })
            const out = pool.out
            const add = out.add.bind(out)
            out.add = (permit) => {
              const added = add(permit)
              started(permit.tenant.name)
              return added
            }
            yield* Effect.all([...works.map(work), ...changes.map(change)], { concurrency: "unbounded", discard: true })
            yield* Effect.sleep(100)
            const { running, waiting } = pool.stats()
            assert.deepStrictEqual([running, waiting], [0, 0])
          }).pipe(Effect.provide(Crm.layer({ concurrency: 2, perTenant: 2 }))), {
          inputs: runs(150).arbitrary.runs,
          seeds: 6,
          seed: 1
        })
        assert.isAbove(count, 0)
      }),
    120_000
  )
})
