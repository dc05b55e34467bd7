import { assert, describe, it } from "@effect/vitest"
import { IdempotencyStore, TurnStore } from "effect-turn"
import { FakeStore, Simulation } from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { TestClock } from "effect/testing"

const row = (id: string, state = "reserved"): TurnStore.Row => ({
  kind: "key",
  id,
  tenant: "acme",
  group: "",
  digest: "",
  state,
  owner: "",
  leaseUntil: 0,
  expiresAt: null,
  createdAt: 0,
  updatedAt: 0,
  body: "{}"
})

/** A step in a process of its own. */
const on = <A>(
  store: FakeStore.FakeStore,
  step: (store: TurnStore.TurnStore["Service"]) => Effect.Effect<A, TurnStore.StoreError>
) => Effect.provide(Effect.flatMap(TurnStore.TurnStore, step), store.layer)

const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

const stateOf = (store: FakeStore.FakeStore, id: string) => Effect.map(store.rows.get("key", id), (row) => row?.state)

describe("a fake store", () => {
  it.effect("F1: keeps rows as any store does, for all its processes, and writes each step down", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make()
      assert.isUndefined(yield* on(store, (store) => store.insert(row("a"))))
      assert.deepStrictEqual(yield* on(store, (store) => store.insert(row("a", "other"))), row("a"))
      assert.isTrue(
        yield* on(store, (store) => store.change("key", "a", { state: "reserved" }, { state: "applied", updatedAt: 1 }))
      )
      assert.isFalse(yield* on(store, (store) => store.change("key", "a", { state: "reserved" }, undefined)))
      assert.strictEqual((yield* on(store, (store) => store.get("key", "a")))?.state, "applied")
      assert.strictEqual((yield* on(store, (store) => store.list({ kind: "key", limit: 9 }))).length, 1)
      assert.strictEqual(yield* on(store, (store) => store.expire(1)), 0)
      assert.deepStrictEqual(
        store.steps.map(({ end, kind, number, operation, process, to }) => [number, process, operation, kind, to, end]),
        [
          [1, 1, "insert", "key", "reserved", "ok"],
          [2, 2, "insert", "key", "other", "ok"],
          [3, 3, "change", "key", "applied", "ok"],
          [4, 4, "change", "key", undefined, "ok"],
          [5, 5, "get", "key", undefined, "ok"],
          [6, 6, "list", "key", undefined, "ok"],
          [7, 7, "expire", undefined, undefined, "ok"]
        ]
      )
    }))

  it.effect("F1: a step takes its time, and is done at its moment", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make({ behaviour: { latency: 10, doneAt: 4 } })
      const fiber = yield* start(on(store, (store) => store.insert(row("a"))))
      yield* TestClock.adjust(3)
      assert.isUndefined(yield* stateOf(store, "a"))
      yield* TestClock.adjust(1)
      assert.strictEqual(yield* stateOf(store, "a"), "reserved")
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(6)
      yield* Fiber.join(fiber)
      assert.deepInclude(store.steps[0], { startedAt: 0, doneAt: 4, endedAt: 10, end: "ok" })
    }))

  it.effect("F2: a step that goes wrong was done, or was not, and its caller cannot tell", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make({
        name: "Postgres",
        behaviour: [{ fault: "fails" }, { fault: "loses-answer" }, {}]
      })
      const insert = (id: string) => Effect.flip(on(store, (store) => store.insert(row(id))))
      const errors = [yield* insert("a"), yield* insert("b")]
      assert.deepStrictEqual(errors.map((error) => (error as Error).message), [
        "Postgres could not insert: step 1 was to go wrong",
        "Postgres could not insert: step 2 was to go wrong"
      ])
      assert.deepStrictEqual([yield* stateOf(store, "a"), yield* stateOf(store, "b")], [undefined, "reserved"])
      assert.deepStrictEqual(store.steps.map(({ end }) => end), ["failed", "lost"])
      yield* on(store, (store) => store.insert(row("c")))
      yield* on(store, (store) => store.insert(row("d")))
      assert.deepStrictEqual(store.steps.map(({ end }) => end), ["failed", "lost", "ok", "ok"])
    }))

  it.effect("F2: a step that is stopped before its moment was not done, after it it was", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make({ behaviour: (step) => ({ latency: 10, doneAt: step.id === "a" ? 6 : 4 }) })
      const fibers = [
        yield* start(on(store, (store) => store.insert(row("a")))),
        yield* start(on(store, (store) => store.insert(row("b"))))
      ]
      yield* TestClock.adjust(5)
      yield* Fiber.interruptAll(fibers)
      assert.deepStrictEqual([yield* stateOf(store, "a"), yield* stateOf(store, "b")], [undefined, "reserved"])
      assert.deepStrictEqual(store.steps.map(({ doneAt, end, endedAt }) => [doneAt, endedAt, end]), [
        [undefined, 5, "interrupted"],
        [4, 5, "interrupted"]
      ])
    }))

  it.effect("a step hangs until it is stopped; one that is deaf, until the store is released", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make({
        behaviour: [{ fault: "hangs" }, { fault: "hangs", doneAt: 3, ignoresInterrupt: true }]
      })
      const hears = yield* start(on(store, (store) => store.insert(row("a"))))
      const deaf = yield* start(on(store, (store) => store.insert(row("b"))))
      yield* TestClock.adjust("1 hour")
      yield* Fiber.interrupt(hears)
      assert.deepStrictEqual([yield* stateOf(store, "a"), yield* stateOf(store, "b")], [undefined, "reserved"])
      const stop = yield* start(Fiber.interrupt(deaf))
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(stop.pollUnsafe())
      yield* store.release
      yield* Fiber.await(stop)
      assert.isTrue(Exit.isFailure(yield* Fiber.await(deaf)))
      assert.deepStrictEqual(store.steps.map(({ end }) => end), ["interrupted", "lost"])
    }))

  it.effect("F3: from a crash on, the steps of its processes change nothing and never return, and a new process goes on", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make({ behaviour: { latency: 10, doneAt: 5 } })
      const before = yield* start(on(store, (store) => store.insert(row("a"))))
      yield* TestClock.adjust(3)
      const done = yield* start(on(store, (store) => Effect.andThen(store.insert(row("b")), store.insert(row("c")))))
      yield* TestClock.adjust(1)
      // The first would be done in 1 ms, the second in 4: no later step of theirs is.
      yield* store.crash
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual([before.pollUnsafe(), done.pollUnsafe()], [undefined, undefined])
      assert.deepStrictEqual(yield* store.rows.list({ kind: "key", limit: 9 }), [])
      assert.deepStrictEqual(store.steps.map(({ end, endedAt }) => [end, endedAt]), [["crashed", 4], ["crashed", 4]])
      const next = yield* start(on(store, (store) => store.insert(row("a"))))
      yield* TestClock.adjust(10)
      assert.isUndefined(yield* Fiber.join(next))
      assert.strictEqual(yield* stateOf(store, "a"), "reserved")
      yield* Fiber.interruptAll([before, done])
      assert.strictEqual(store.steps.length, 3)
    }))

  it.effect("F3: what is done at the crash stands, and its process does not hear of it", () =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make({ behaviour: { latency: 10, doneAt: 5 } })
      const fiber = yield* start(on(store, (store) => store.insert(row("a"))))
      yield* TestClock.adjust(5)
      yield* store.crash
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(fiber.pollUnsafe())
      assert.strictEqual(yield* stateOf(store, "a"), "reserved")
      assert.deepInclude(store.steps[0], { doneAt: 5, endedAt: 5, end: "crashed" })
    }))

  it.effect("times that cannot be are refused, with the store's name", () =>
    Effect.gen(function*() {
      const made = (behaviour: FakeStore.Options["behaviour"]) =>
        Effect.map(Effect.exit(FakeStore.make({ name: "rows", behaviour })), String)
      assert.match(yield* made({ latency: -1 }), /rows.*latency/)
      assert.match(yield* made({ latency: 5, doneAt: 6 }), /rows.*doneAt.*at most the latency \(5 ms\)/)
      const store = yield* FakeStore.make({ behaviour: () => ({ latency: Number.NaN }) })
      assert.match(String(yield* Effect.exit(on(store, (store) => store.get("key", "a")))), /the fake store.*latency/)
      assert.deepStrictEqual(store.steps.map(({ end }) => end), ["died"])
    }))

  it.effect("other stores can keep its rows", () =>
    Effect.gen(function*() {
      const rows = yield* TurnStore.TurnStore
      const store = yield* FakeStore.make({ rows })
      yield* on(store, (store) => store.insert(row("a")))
      assert.strictEqual((yield* rows.get("key", "a"))?.state, "reserved")
    }).pipe(Effect.provide(TurnStore.layerMemory)))
})

describe("a process that crashes", () => {
  const key = { tenant: "acme", tool: "book", key: "1" }
  const store = <A, E>(use: (store: IdempotencyStore.IdempotencyStore["Service"]) => Effect.Effect<A, E>) =>
    Effect.flatMap(IdempotencyStore.IdempotencyStore, use)

  it.effect("leaves a reservation that becomes unknown when its lease is over, wherever it crashes", () =>
    Effect.gen(function*() {
      const at = (crash: number) =>
        Effect.gen(function*() {
          const fake = yield* FakeStore.make({ behaviour: { latency: 10, doneAt: 5 } })
          const layer = IdempotencyStore.layer({ lease: "1 second", digest: "text" })
          const write = store((keys) =>
            Effect.gen(function*() {
              yield* keys.reserve(key, { digest: "{}", owner: "one" })
              yield* keys.settle(key, "one", {
                position: 0,
                id: "",
                name: "book",
                status: "ok",
                started: true,
                effect: "applied",
                retryable: false
              })
            }).pipe(Effect.onInterrupt(() => Effect.ignore(keys.free(key, "one"))))
          )
          const provided = Effect.provide(write, Layer.provide(layer, fake.layer))
          const first = yield* Simulation.process(provided)
          yield* Effect.sleep(crash)
          yield* first.crash
          yield* Effect.sleep("2 seconds")
          const known = yield* store((keys) => keys.lookUp(key)).pipe(Effect.provide(Layer.provide(layer, fake.layer)))
          return known?.state
        })
      const states = yield* Effect.forEach([0, 4, 6, 14, 16, 30], (crash) => Simulation.run(at(crash)))
      assert.deepStrictEqual(
        states.map(({ exit }) => exit !== undefined && Exit.isSuccess(exit) ? exit.value : exit),
        [undefined, undefined, "unknown", "unknown", "applied", "applied"]
      )
    }))
})
