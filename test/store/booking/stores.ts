/** The stores that a process keeps its records in, by name. What one store needs is loaded for that store alone. */
import { IdempotencyStore, TurnStore } from "effect-turn"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redis from "effect/persistence/Redis"
import * as Redacted from "effect/Redacted"
import * as SqlClient from "effect/sql/SqlClient"
import type { Setup } from "./script.ts"

const postgres = async ({ address }: Setup) => {
  const PgClient = await import("@effect/sql-pg/PgClient")
  return PgClient.layer({
    ...address!,
    username: process.env["PGUSER"] ?? "postgres",
    password: Redacted.make(process.env["PGPASSWORD"] ?? "postgres"),
    database: process.env["PGDATABASE"] ?? "postgres",
    maxConnections: 2
  })
}

const redis = async ({ address }: Setup) => {
  const NodeRedis = await import("@effect/platform-node/NodeRedis")
  return NodeRedis.layer({ socket: address! })
}

const rowsOf = async (setup: Setup): Promise<Layer.Layer<TurnStore.TurnStore, unknown>> => {
  const { place, store } = setup
  switch (store) {
    case "SQLite":
      return TurnStore.layerSqlite({ filename: place })
    case "PostgreSQL":
      return Layer.provide(TurnStore.layerSql({ table: place }), await postgres(setup))
    case "Redis":
      return Layer.provide(TurnStore.layerRedis({ prefix: place }), await redis(setup))
  }
}

/** The records of keys, and the rows that they are in. */
export const recordsOf = async (
  setup: Setup
): Promise<Layer.Layer<IdempotencyStore.IdempotencyStore | TurnStore.TurnStore, unknown>> =>
  IdempotencyStore.layer({ lease: setup.lease }).pipe(Layer.provideMerge(await rowsOf(setup)))

/** Removes what a test has left in a database that others use as well. */
export const clear = async (setup: Setup): Promise<void> => {
  const { place, store } = setup
  if (store === "PostgreSQL") {
    const drop = Effect.flatMap(
      SqlClient.SqlClient,
      (sql) => sql`DROP TABLE IF EXISTS ${sql(place)}, ${sql(`${place}_migrations`)}`
    )
    await Effect.runPromise(Effect.provide(drop, await postgres(setup)))
  }
  if (store === "Redis") {
    const remove = Effect.gen(function*() {
      const redis = yield* Redis.Redis
      const keys = yield* redis.send<ReadonlyArray<string>>("KEYS", `*${place}*`)
      if (keys.length > 0) yield* redis.send("DEL", ...keys)
    })
    await Effect.runPromise(Effect.provide(remove, await redis(setup)))
  }
}
