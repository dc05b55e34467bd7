/** What a store over a key-value store does besides the laws: its lock, and rows of which a part was written. */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as fs from "node:fs"
import * as path from "node:path"
import * as TurnStore from "../../src/TurnStore.ts"
import { files, temporaryFolder } from "../utils/stores.ts"

type Kv = KeyValueStore.KeyValueStore

const newKv = Effect.map(
  Layer.build(Layer.fresh(KeyValueStore.layerMemory)),
  Context.get(KeyValueStore.KeyValueStore)
)

/** The same entries, as another process has them. */
const otherProcess = (kv: Kv, overrides: Partial<Kv> = {}): Kv => ({ ...kv, ...overrides })

const open = (kv: Kv, options?: TurnStore.KeyValueStoreOptions) =>
  Layer.build(
    Layer.fresh(TurnStore.layerKeyValueStore(options)).pipe(
      Layer.provide(Layer.succeed(KeyValueStore.KeyValueStore, kv))
    )
  ).pipe(Effect.map(Context.get(TurnStore.TurnStore)))

const row: TurnStore.Row = {
  kind: "k",
  id: "the id",
  tenant: "t",
  group: "g",
  digest: "d",
  state: "reserved",
  owner: "o",
  leaseUntil: 5,
  expiresAt: 7,
  createdAt: 1,
  updatedAt: 1,
  body: '{"é":"\u0000\ud800 日本"}'
}

const lockOf = (kv: Kv) => Effect.map(kv.get("effect-turn.lock"), (text) => JSON.parse(text!))

const setLock = (kv: Kv, lock: { readonly owner: string; readonly lease: number; readonly until: number }) =>
  kv.set("effect-turn.lock", JSON.stringify(lock))

it.effect("a second layer of the same process is refused at once, and one with another prefix is not", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    const store = yield* open(kv)
    const error = yield* Effect.flip(open(kv))
    assert.strictEqual(error.operation, "open")
    assert.strictEqual(
      error.message,
      "the key-value store could not open: another layer of this process is using this store. " +
        "One process alone may use it, with one layer: share the layer, or give each a store or a prefix of its own"
    )
    const other = yield* open(kv, { prefix: "other." })
    yield* store.insert(row)
    assert.isUndefined(yield* other.get(row.kind, row.id))
  }))

it.effect("a second process is refused as soon as the first is seen to be at work", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    const store = yield* open(kv)
    const second = yield* Effect.forkChild(Effect.flip(open(otherProcess(kv))), { startImmediately: true })
    yield* TestClock.adjust("3 seconds")
    assert.isUndefined(second.pollUnsafe())
    yield* TestClock.adjust("1 second")
    const error = yield* Fiber.join(second)
    assert.include(error.message, "another process is using this store. One process alone may use it")
    // The first was not disturbed.
    assert.isUndefined(yield* store.insert(row))
    yield* TestClock.adjust("1 hour")
    assert.deepStrictEqual(yield* store.get(row.kind, row.id), row)
    assert.isTrue(yield* store.change(row.kind, row.id, {}, undefined))
  }))

it.effect("the lock is given back when the layer closes: the next process need not wait", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    yield* Effect.scoped(open(kv))
    assert.deepStrictEqual(yield* kv.keys, [])
    yield* open(otherProcess(kv))
  }))

it.effect("the lock of a crashed process lapses after its lease, and building waits for that and no longer", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    yield* setLock(kv, { owner: "crashed", lease: 10_000, until: 8_000 })
    const one = yield* Effect.forkChild(open(kv), { startImmediately: true })
    yield* TestClock.adjust(7_999)
    assert.isUndefined(one.pollUnsafe())
    yield* TestClock.adjust(51)
    yield* Fiber.join(one)
    assert.notStrictEqual((yield* lockOf(kv)).owner, "crashed")

    // One that has lapsed long ago; one of a clock that was ahead; one that was cut while it was written.
    const lapsed = yield* newKv
    yield* setLock(lapsed, { owner: "crashed", lease: 10_000, until: -1_000 })
    const two = yield* Effect.forkChild(open(lapsed), { startImmediately: true })
    yield* TestClock.adjust(0)
    yield* Fiber.join(two)
    for (const text of [JSON.stringify({ owner: "crashed", lease: 10_000, until: 1e12 }), '{"owner":"cr', ""]) {
      const ahead = yield* newKv
      yield* ahead.set("effect-turn.lock", text)
      const three = yield* Effect.forkChild(open(ahead), { startImmediately: true })
      yield* TestClock.adjust(9_999)
      assert.isUndefined(three.pollUnsafe())
      yield* TestClock.adjust(51)
      yield* Fiber.join(three)
    }
  }))

it.effect("of two processes that wait for the lock of a crashed one, one has it", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    yield* setLock(kv, { owner: "crashed", lease: 10_000, until: 10_000 })
    const both = yield* Effect.forEach(
      [kv, otherProcess(kv)],
      (kv) => Effect.forkChild(Effect.result(open(kv)), { startImmediately: true })
    )
    yield* TestClock.adjust("15 seconds")
    const results = yield* Effect.forEach(both, Fiber.join)
    assert.deepStrictEqual(results.map(({ _tag }) => _tag).sort(), ["Failure", "Success"])
  }))

it.effect("W3: once the lock is another's every step fails, and nothing is written", () =>
  Effect.gen(function*() {
    const entries = (kv: Kv) =>
      Effect.flatMap(kv.keys, (keys) =>
        Effect.forEach(keys.slice().sort(), (key) => Effect.map(kv.get(key), (text) => [key, text])))
    for (const when of ["at a write", "at a renewal"]) {
      const kv = yield* newKv
      const store = yield* open(kv)
      yield* store.insert(row)
      yield* setLock(kv, { owner: "another", lease: 10_000, until: 1e12 })
      const before = yield* entries(kv)
      if (when === "at a renewal") {
        yield* TestClock.adjust("4 seconds")
        const error = yield* Effect.flip(store.get(row.kind, row.id))
        assert.include(error.message, "another process has taken the lock effect-turn.lock of this store")
      }
      const steps: ReadonlyArray<Effect.Effect<unknown, TurnStore.StoreError>> = [
        store.change(row.kind, row.id, {}, { updatedAt: 2 }),
        store.change(row.kind, row.id, {}, undefined),
        store.insert({ ...row, id: "b" }),
        store.expire(100),
        store.get(row.kind, row.id),
        store.list({ kind: row.kind, limit: 9 })
      ]
      for (const step of steps) {
        assert.include((yield* Effect.flip(step)).message, "another process has taken the lock")
      }
      // Also when the other has gone: somebody may have been told something else meanwhile.
      assert.deepStrictEqual(yield* entries(kv), before)
      yield* kv.remove("effect-turn.lock")
      assert.include((yield* Effect.flip(steps[0]!)).message, "another process has taken the lock")
    }
  }))

it.effect("a lock that somebody has removed is written again, and one that lapsed while the process stood still is renewed", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    const store = yield* open(kv)
    const { owner } = yield* lockOf(kv)
    yield* kv.remove("effect-turn.lock")
    yield* store.insert(row)
    assert.strictEqual((yield* lockOf(kv)).owner, owner)
    yield* setLock(kv, { owner, lease: 10_000, until: -5 })
    yield* TestClock.adjust("4 seconds")
    assert.isAbove((yield* lockOf(kv)).until, 4_000)
  }))

// Rows of which a part was written.

type Run = (store: TurnStore.TurnStore["Service"]) => Effect.Effect<unknown, TurnStore.StoreError>

/** A step of a process that is gone after so many writes and removals of rows; of the next one a part is done, where it can be. */
const killed = (entries: Kv, run: Run, { part, writes }: { readonly writes: number; readonly part: number }) =>
  Effect.gen(function*() {
    let left = writes
    const write = <E>(key: string, whole: Effect.Effect<void, E>, partly: Effect.Effect<void, E>) =>
      Effect.suspend(() => {
        if (!key.includes(".row.") || left-- > 0) return whole
        return left === -1 ? Effect.andThen(partly, Effect.never) : Effect.never
      })
    const kv = otherProcess(entries, {
      set: (key, value) =>
        write(
          key,
          entries.set(key, value),
          entries.set(key, value.slice(0, Math.floor(value.length * part)) as string)
        ),
      remove: (key) => write(key, entries.remove(key), part === 1 ? entries.remove(key) : Effect.void)
    })
    const scope = yield* Scope.make()
    const store = yield* Scope.provide(open(kv, { timeout: 50 }), scope)
    const fiber = yield* Effect.forkChild(Effect.exit(run(store)), { startImmediately: true })
    yield* TestClock.adjust(50)
    const exit = yield* Fiber.join(fiber)
    yield* Effect.forkDetach(Scope.close(scope, Exit.void))
    yield* TestClock.adjust("30 seconds")
    // The next process would have waited until the lock has lapsed.
    yield* entries.remove("effect-turn.lock")
    return Exit.isFailure(exit)
  })

const allParts = [0, 0.02, 0.1, 0.5, 0.9, 0.999, 1]

it.effect("W1: whoever is killed while it writes, again and again, leaves the row as it was before the step, or as it is after", () =>
  Effect.gen(function*() {
    const patch = { state: "applied", expiresAt: null, updatedAt: 2, body: '{"other":true}' }
    const again = { state: "again", updatedAt: 3, body: '{"longer":"than before, and of another length"}' }
    const steps: ReadonlyArray<{ readonly run: Run; readonly after: (was: TurnStore.Row | undefined) => unknown }> = [
      { run: (store) => store.insert(row), after: (was) => was ?? row },
      { run: (store) => store.change("k", row.id, {}, again), after: (was) => was && { ...was, ...again } },
      { run: (store) => store.change("k", row.id, {}, undefined), after: () => undefined },
      { run: (store) => store.expire(10), after: (was) => was?.expiresAt === null ? was : undefined }
    ]
    // How a first process has left it.
    const befores: ReadonlyArray<
      (kv: Kv) => Effect.Effect<unknown, TurnStore.StoreError | KeyValueStore.KeyValueStoreError, Scope.Scope>
    > = [
      () => Effect.void,
      (kv) => Effect.scoped(Effect.flatMap(open(kv), (store) => store.insert(row))),
      ...allParts.flatMap((part) =>
        [0, 1].flatMap((writes) => [
          (kv: Kv) => killed(kv, (store) => store.insert(row), { writes, part }),
          (kv: Kv) =>
            Effect.andThen(
              Effect.scoped(Effect.flatMap(open(kv), (store) => store.insert(row))),
              killed(kv, (store) => store.change("k", row.id, {}, patch), { writes, part })
            )
        ])
      )
    ]
    let cuts = 0
    for (const before of befores) {
      for (const { after, run } of steps) {
        for (const writes of [0, 1]) {
          for (const part of [0, 0.1, 0.999, 1]) {
            const entries = yield* newKv
            yield* before(otherProcess(entries))
            const was = yield* Effect.scoped(
              Effect.flatMap(open(otherProcess(entries)), (store) => store.get("k", row.id))
            )
            if (yield* killed(entries, run, { writes, part })) cuts++
            yield* Effect.scoped(Effect.gen(function*() {
              const next = yield* open(otherProcess(entries))
              const found = yield* next.get("k", row.id)
              assert.deepInclude([was, after(was)], found, `${writes} writes and ${part}`)
              assert.deepStrictEqual(yield* next.list({ kind: "k", limit: 9 }), found === undefined ? [] : [found])
              // It stays so, and can be written as ever.
              if (found === undefined) assert.isUndefined(yield* next.insert(row))
              else assert.isTrue(yield* next.change("k", row.id, { state: found.state }, { state: "x", updatedAt: 9 }))
              const then = { ...(found ?? row), ...(found === undefined ? {} : { state: "x", updatedAt: 9 }) }
              assert.deepStrictEqual(yield* next.get("k", row.id), then)
              assert.isTrue(yield* next.change("k", row.id, {}, undefined))
              assert.isUndefined(yield* next.get("k", row.id))
            }))
          }
        }
      }
    }
    assert.isAbove(cuts, 500)
  }))

it.live("W2: a row of which nothing can be read is an error that names it, wherever its files are cut; one file is enough", () =>
  Effect.gen(function*() {
    const folder = temporaryFolder()
    const kv = yield* Effect.map(Layer.build(files(folder)), Context.get(KeyValueStore.KeyValueStore))
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true })))
    const store = yield* open(kv)
    yield* store.insert(row)
    const [a, b, ...others] = fs.readdirSync(folder).filter((name) => name.includes("row")).map((name) =>
      path.join(folder, name)
    )
    assert.strictEqual(others.length, 0)
    const whole = fs.readFileSync(a!)
    assert.deepStrictEqual(fs.readFileSync(b!), whole)
    const unreadable = (operation: string, step: Effect.Effect<unknown, TurnStore.StoreError>) =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(step)
        assert.strictEqual(error.operation, operation)
        assert.match(error.message, /the row .* cannot be read: what is under effect-turn\.row\.k\.[0-9a-f]{64}\.a and/)
        return error.message
      })
    for (let length = 0; length < whole.length; length += 3) {
      fs.writeFileSync(a!, whole.subarray(0, length))
      fs.writeFileSync(b!, whole)
      assert.deepStrictEqual(yield* store.get(row.kind, row.id), row)
      fs.writeFileSync(b!, whole.subarray(0, Math.max(0, length - 1)))
      assert.include(yield* unreadable("get", store.get(row.kind, row.id)), 'the row of the kind "k"')
      yield* unreadable("insert", store.insert(row))
      yield* unreadable("change", store.change(row.kind, row.id, {}, undefined))
      yield* unreadable("list", store.list({ kind: row.kind, limit: 9 }))
      // It is not to be forgotten either.
      assert.strictEqual(yield* store.expire(1e12), 0)
      // An insert that was never answered.
      fs.rmSync(b!)
      assert.isUndefined(yield* store.get(row.kind, row.id))
    }
    // What is no row at all is nothing that we have begun.
    for (
      const text of [
        "hello",
        "2 1 1 00000000\n{",
        `${whole.toString()} `,
        whole.toString().replace("reserved", "reServed")
      ]
    ) {
      fs.writeFileSync(a!, text)
      yield* unreadable("get", store.get(row.kind, row.id))
    }
    fs.writeFileSync(a!, whole)
    assert.deepStrictEqual(yield* store.get(row.kind, row.id), row)
  }))

it.effect("a step that is late is not overtaken: those after it wait for its end, and fail when their time is over", () =>
  Effect.gen(function*() {
    const kv = yield* newKv
    const gate = yield* Deferred.make<void>()
    let slow = false
    const store = yield* open(otherProcess(kv, {
      set: (key, value) =>
        slow && key.includes(".row.") ? Effect.andThen(Deferred.await(gate), kv.set(key, value)) : kv.set(key, value)
    }))
    slow = true
    const first = yield* Effect.forkChild(Effect.flip(store.insert(row)), { startImmediately: true })
    yield* TestClock.adjust("5 seconds")
    assert.strictEqual(
      (yield* Fiber.join(first)).message,
      "the key-value store could not insert: there was no answer within 5000 ms"
    )
    const second = yield* Effect.forkChild(Effect.flip(store.get(row.kind, row.id)), { startImmediately: true })
    yield* TestClock.adjust("5 seconds")
    assert.include((yield* Fiber.join(second)).message, "no answer within 5000 ms")
    const third = yield* Effect.forkChild(store.insert({ ...row, state: "other" }), { startImmediately: true })
    slow = false
    yield* Deferred.succeed(gate, undefined)
    assert.deepStrictEqual(yield* Fiber.join(third), row)
  }))
