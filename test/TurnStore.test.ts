import { assert, it } from "@effect/vitest"
import { TurnStore } from "effect-turn"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { laws } from "./store/laws.ts"
import { describeService } from "./utils/requires.ts"
import * as stores from "./utils/stores.ts"

laws(stores.memory())
laws(stores.keyValueMemory())
laws(stores.keyValueFiles())
laws(stores.sqlite())
await describeService("over PostgreSQL", "PostgreSQL", (address) => laws(stores.postgres(address)))
await describeService("over Redis", "Redis", (address) => laws(stores.redis(address)))

it.effect("layerExpiry removes what may be forgotten, until its scope closes", () =>
  Effect.gen(function*() {
    const rows = Context.get(yield* Layer.build(Layer.fresh(TurnStore.layerMemory)), TurnStore.TurnStore)
    let failing = true
    const store = TurnStore.TurnStore.of({
      ...rows,
      expire: (now) => {
        if (!failing) return rows.expire(now)
        failing = false
        return Effect.die(new Error("not now"))
      }
    })
    const put = (id: string, expiresAt: number) =>
      rows.insert({
        kind: "k",
        id,
        tenant: "t",
        group: "g",
        digest: "",
        state: "s",
        owner: "",
        leaseUntil: 0,
        expiresAt,
        createdAt: 0,
        updatedAt: 0,
        body: "{}"
      })
    const scope = yield* Scope.make()
    yield* Layer.buildWithScope(
      Layer.provide(TurnStore.layerExpiry({ every: "1 minute" }), Layer.succeed(TurnStore.TurnStore, store)),
      scope
    )
    const left = Effect.map(rows.list({ kind: "k", limit: 10 }), (found) => found.map(({ id }) => id))
    yield* put("a", 30_000)
    yield* put("b", 90_000)
    yield* TestClock.adjust("1 minute")
    assert.deepStrictEqual(yield* left, ["b"])
    yield* TestClock.adjust("1 minute")
    assert.deepStrictEqual(yield* left, [])
    yield* Scope.close(scope, Exit.void)
    yield* put("c", 0)
    yield* TestClock.adjust("1 hour")
    assert.deepStrictEqual(yield* left, ["c"])
    assert.throws(() => TurnStore.layerExpiry({ every: 0 }), `the limit "every"`)
  }))
