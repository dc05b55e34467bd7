/** Connections that are cut in the middle of a step. */
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as TurnStore from "../../src/TurnStore.ts"
import { type Plan, Proxy } from "../utils/proxy.ts"
import { type Address, describeService } from "../utils/requires.ts"
import { deleteKeys, dropTables, ownName, pgClient, redisClient } from "../utils/stores.ts"

type Store = TurnStore.TurnStore["Service"]

/** How long a step may take here. */
const timeout = 1_000
/** How long it may take until it is told that it took too long, on a machine that is busy. */
const soon = 4_000

const row = (id: string): TurnStore.Row => ({
  kind: "k",
  id,
  tenant: "t",
  group: "g",
  digest: "d",
  state: "reserved",
  owner: "o",
  leaseUntil: 5,
  expiresAt: null,
  createdAt: 1,
  updatedAt: 1,
  // Longer than one packet, so that half of an answer is half of a row.
  body: JSON.stringify("body ".repeat(20_000))
})

const changed = { state: "applied", updatedAt: 2, body: JSON.stringify("other ".repeat(20_000)) }

interface Step {
  readonly operation: TurnStore.StoreError["operation"]
  readonly name: string
  /** Is there a row before? */
  readonly before: Partial<TurnStore.Row> | undefined
  readonly run: (store: Store, id: string) => Effect.Effect<unknown, TurnStore.StoreError>
  /** What there is when it is done. */
  readonly after: Partial<TurnStore.Row> | undefined
}

const steps: ReadonlyArray<Step> = [
  { operation: "get", name: "get", before: {}, run: (store, id) => store.get("k", id), after: {} },
  { operation: "insert", name: "insert", before: undefined, run: (store, id) => store.insert(row(id)), after: {} },
  {
    operation: "insert",
    name: "insert of what is there",
    before: {},
    run: (store, id) => store.insert(row(id)),
    after: {}
  },
  {
    operation: "change",
    name: "change",
    before: {},
    run: (store, id) => store.change("k", id, { state: "reserved", owner: "o", leaseUntil: 5 }, changed),
    after: changed
  },
  {
    operation: "change",
    name: "remove",
    before: {},
    run: (store, id) => store.change("k", id, { owner: "o" }, undefined),
    after: undefined
  },
  { operation: "list", name: "list", before: {}, run: (store) => store.list({ kind: "k", limit: 10 }), after: {} },
  {
    operation: "expire",
    name: "expire",
    before: { expiresAt: 10 },
    run: (store) => store.expire(10),
    after: undefined
  }
]

const plans: ReadonlyArray<Exclude<Plan, "pass">> = ["request", "answer", "half", "silence"]

const service = (
  name: "PostgreSQL" | "Redis",
  storeAt: (address: Address) => Layer.Layer<TurnStore.TurnStore, TurnStore.StoreError>,
  clear: (address: Address) => Promise<void>
) =>
  describeService(`${name} behind connections that are cut`, name, (address) => {
    const proxy = new Proxy(address)
    beforeAll(() => proxy.open())
    afterAll(async () => {
      await proxy.close()
      await clear(address)
    })

    /** Works again, after at most some tries. */
    const again = <A>(step: Effect.Effect<A, TurnStore.StoreError>) =>
      Effect.retry(step, { schedule: Schedule.spaced("50 millis"), times: 100 })

    const fails = (operation: Step["operation"], step: Effect.Effect<unknown, TurnStore.StoreError>) =>
      Effect.gen(function*() {
        const [took, error] = yield* Effect.timed(Effect.flip(step))
        assert.instanceOf(error, TurnStore.StoreError)
        assert.strictEqual(error.store, name)
        assert.strictEqual(error.operation, operation)
        assert.isAbove(error.description.length, 10)
        assert.isBelow(Duration.toMillis(took), soon)
        return error
      })

    for (const step of steps) {
      it.live(`${step.name}: an error soon, a row that is whole, and then it works again`, () =>
        Effect.gen(function*() {
          const store = yield* TurnStore.TurnStore
          // Another connection, which is not cut.
          const direct = yield* Layer.build(storeAt(address)).pipe(
            Effect.map((context) => TurnStore.TurnStore.pipe(Effect.provide(context))),
            Effect.flatten
          )
          for (const plan of plans) {
            const id = `${step.name} ${plan}`
            const prepare = step.before === undefined
              ? Effect.void
              : direct.insert({ ...row(id), ...step.before })
            // Once without a cut: what is said to the service only once has been said, and the step works.
            yield* prepare
            yield* again(step.run(store, id))
            yield* direct.change("k", id, {}, undefined)
            yield* prepare
            const count = proxy.count
            proxy.next(plan)
            const error = yield* fails(step.operation, step.run(store, id))
            if (plan === "silence") {
              assert.include(error.description, `no answer within ${timeout} ms`)
              proxy.cut()
            }
            assert.strictEqual(proxy.count, count + 1, "cuts")
            // What has reached the service may take a moment there.
            yield* Effect.sleep(50)
            const before = step.before === undefined ? undefined : { ...row(id), ...step.before }
            const after = step.after === undefined ? undefined : { ...row(id), ...step.after }
            const done = plan === "answer" || plan === "half"
            assert.deepStrictEqual(yield* direct.get("k", id), done ? after : before, id)
            assert.deepStrictEqual(yield* again(store.get("k", id)), done ? after : before)
            yield* direct.change("k", id, {}, undefined)
          }
        }).pipe(Effect.provide(storeAt(proxy.address)), Effect.scoped))
    }

    it.live("while the service cannot be reached steps fail soon, many at once too, and then they work again", () =>
      Effect.gen(function*() {
        const store = yield* TurnStore.TurnStore
        assert.isUndefined(yield* store.insert(row("down")))
        yield* Effect.promise(() => proxy.close())
        yield* Effect.forEach(
          Array.from({ length: 20 }),
          () => fails("get", store.get("k", "down")),
          { concurrency: "unbounded", discard: true }
        )
        yield* fails("change", store.change("k", "down", { state: "never" }, undefined))
        yield* Effect.promise(() => proxy.open())
        assert.deepStrictEqual(yield* again(store.get("k", "down")), row("down"))
        assert.isTrue(yield* again(store.change("k", "down", {}, undefined)))
      }).pipe(Effect.provide(storeAt(proxy.address))))

    it.live("many steps at once, cut anywhere: each succeeds or fails, and none is done by half", () =>
      Effect.gen(function*() {
        const store = yield* TurnStore.TurnStore
        let failed = 0
        for (let round = 0; round < 10; round++) {
          const ids = Array.from({ length: 20 }, (_, i) => `many ${round} ${i}`)
          const cut = Effect.andThen(Effect.sleep(round * 2), Effect.sync(() => proxy.cut()))
          const [results] = yield* Effect.all([
            Effect.forEach(ids, (id) => Effect.result(store.insert(row(id))), { concurrency: "unbounded" }),
            cut
          ], { concurrency: "unbounded" })
          for (const [i, result] of results.entries()) {
            const there = yield* again(store.get("k", ids[i]!))
            if (result._tag === "Failure") failed++
            if (result._tag === "Success" || there !== undefined) assert.deepStrictEqual(there, row(ids[i]!))
            yield* again(store.change("k", ids[i]!, {}, undefined))
          }
        }
        assert.isAbove(failed, 0)
      }).pipe(Effect.provide(storeAt(proxy.address))))
  })

const table = ownName()
await service(
  "PostgreSQL",
  (address) => Layer.fresh(TurnStore.layerSql({ table, timeout })).pipe(Layer.provide(pgClient(address))),
  (address) => dropTables(address, table)
)

const prefix = ownName()
await service(
  "Redis",
  (address) =>
    Layer.fresh(TurnStore.layerRedis({ prefix, timeout })).pipe(
      Layer.provide(redisClient(address, { disableOfflineQueue: true }))
    ),
  (address) => deleteKeys(address, prefix)
)
