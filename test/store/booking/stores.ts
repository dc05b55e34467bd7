/** The stores that a process keeps its records in. What one store needs is loaded for that store alone: a process starts faster. */
import { IdempotencyStore, TurnJournal, TurnStore } from "effect-turn"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { Shared } from "../../utils/stores.ts"
import type { Setup } from "./script.ts"

/** The rows of a store. */
export const rowsOf = async (shared: Shared): Promise<Layer.Layer<TurnStore.TurnStore, unknown>> => {
  switch (shared.store) {
    case "SQLite":
      return TurnStore.layerSqlite({ filename: shared.filename })
    case "PostgreSQL": {
      const PgClient = await import("@effect/sql-pg/PgClient")
      const client = PgClient.layer({
        ...shared.address,
        username: process.env["PGUSER"] ?? "postgres",
        password: Redacted.make(process.env["PGPASSWORD"] ?? "postgres"),
        database: process.env["PGDATABASE"] ?? "postgres",
        maxConnections: 2
      })
      return Layer.provide(TurnStore.layerSql({ table: shared.table }), client)
    }
    case "Redis": {
      const NodeRedis = await import("@effect/platform-node/NodeRedis")
      const client = NodeRedis.layer({ socket: shared.address })
      return Layer.provide(TurnStore.layerRedis({ prefix: shared.prefix }), client)
    }
  }
}

/** The records of keys, and the journal where there is to be one. */
export const recordsOf = async (
  { journal, lease, shared }: Setup
): Promise<Layer.Layer<IdempotencyStore.IdempotencyStore, unknown>> => {
  const records = IdempotencyStore.layer({ lease })
  const all = journal ? Layer.merge(records, TurnJournal.layer({ lease })) : records
  return Layer.provide(all, await rowsOf(shared))
}
