/** What a record of its key costs a write, over the stores that this machine has: the same turns with a key and without one. */
import { type Context, Effect, Layer, pipe, Schema, Scope } from "effect"
import { IdempotencyStore, ToolCall, ToolPolicy, Turn, TurnContext, TurnStore } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { rowsOf } from "../store/booking/stores.ts"
import { deleteKeys, dropTables, ownName, type Shared } from "../utils/stores.ts"
import { compare } from "./measure.ts"

const tool = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, {
      parameters: Schema.Struct({ n: Schema.String, millis: Schema.Finite }),
      success: Schema.Struct({ receipt: Schema.String, euros: Schema.Finite })
    }),
    ToolPolicy.write({ keys: () => [] })
  )
const Plain = tool("plain")
const Recorded = pipe(tool("recorded"), IdempotencyStore.record(({ n }) => n))
const toolkit = Toolkit.make(Plain, Recorded)

const handler = ({ millis, n }: { readonly n: string; readonly millis: number }) =>
  Effect.as(millis === 0 ? Effect.void : Effect.sleep(millis), { receipt: `receipt ${n}`, euros: 40 })

/** Every write has a key of its own. */
let last = 0
const run = (name: "plain" | "recorded", n: number, millis: number) =>
  Turn.run(
    toolkit,
    Array.from({ length: n }, (_, i) => ToolCall.make(`call_${i}`, name, { n: `${last++}`, millis }))
  ) as Effect.Effect<unknown, unknown, any>

/** A store that counts its steps: each is one statement, or one script. */
const counted = (steps: { count: number }) =>
  Layer.effect(
    TurnStore.TurnStore,
    Effect.map(TurnStore.TurnStore, (store) => {
      const one = <A extends ReadonlyArray<any>, B>(step: (...args: A) => B) => (...args: A): B => {
        steps.count++
        return step(...args)
      }
      return {
        get: one(store.get),
        insert: one(store.insert),
        change: one(store.change),
        list: one(store.list),
        expire: one(store.expire)
      }
    })
  )

interface Cost {
  readonly n: number
  readonly millis: number
  /** Microseconds per write. */
  readonly plain: number
  readonly recorded: number
}

interface Costs {
  readonly store: string
  readonly costs: ReadonlyArray<Cost>
  readonly steps: number
}

const measured = async (
  store: string,
  rows: Layer.Layer<TurnStore.TurnStore, unknown>,
  rounds: (n: number) => number
): Promise<Costs> => {
  const steps = { count: 0 }
  const scope = Scope.makeUnsafe()
  const context = await Effect.runPromise(Layer.buildWithScope(
    Layer.mergeAll(
      toolkit.toLayer({ plain: handler, recorded: handler }),
      Turn.layer(),
      Layer.succeedContext(TurnContext.make({ tenant: "bench" })),
      IdempotencyStore.layer().pipe(Layer.provide(counted(steps)), Layer.provide(rows))
    ),
    scope
  )) as Context.Context<any>
  try {
    const costs: Array<Cost> = []
    for (const millis of [0, 1]) {
      for (const n of [1, 10]) {
        const [plain, recorded] = await compare(
          [
            { name: "plain", run: () => run("plain", n, millis) },
            { name: "recorded", run: () => run("recorded", n, millis) }
          ],
          context,
          { rounds: rounds(31), repeat: n === 1 ? 10 : 3 }
        )
        costs.push({ n, millis, plain: plain! / n, recorded: recorded! / n })
      }
    }
    steps.count = 0
    await Effect.runPromiseWith(context)(run("recorded", 100, 0) as Effect.Effect<unknown, unknown>)
    return { store, costs, steps: steps.count / 100 }
  } finally {
    await Effect.runPromise(Scope.close(scope, { _tag: "Success" } as never))
  }
}

/** The costs over each store, or why there are none. */
export const records = async function*(
  rounds: (n: number) => number
): AsyncGenerator<Costs | { readonly store: string; readonly why: string }> {
  yield await measured("memory", Layer.fresh(TurnStore.layerMemory), rounds)
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-bench-"))
  const name = ownName()
  const { env } = process
  const postgres = { host: env["PGHOST"] ?? "127.0.0.1", port: Number(env["PGPORT"] ?? 5432) }
  const redis = { host: env["REDIS_HOST"] ?? "127.0.0.1", port: Number(env["REDIS_PORT"] ?? 6379) }
  const places: ReadonlyArray<readonly [Shared, () => Promise<void>]> = [
    [
      { store: "SQLite", filename: path.join(folder, "turns.db") },
      async () => fs.rmSync(folder, { recursive: true, force: true })
    ],
    [{ store: "PostgreSQL", address: postgres, table: name }, () => dropTables(postgres, name)],
    [{ store: "Redis", address: redis, prefix: name }, () => deleteKeys(redis, name)]
  ]
  for (const [shared, clear] of places) {
    const { store } = shared
    const rows = await rowsOf(shared)
    const there = await Effect.runPromiseExit(Effect.timeout(Effect.scoped(Layer.build(rows)), "5 seconds"))
    if (there._tag === "Failure") {
      yield { store, why: `there is no ${store} on this machine` }
      continue
    }
    try {
      yield await measured(store, rows, rounds)
    } finally {
      await clear()
    }
  }
}
