/** Every layer of `TurnStore`, each over an empty place of its own, which is cleared away in the end. */
import * as NodeRedis from "@effect/platform-node/NodeRedis"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as Redis from "effect/persistence/Redis"
import * as References from "effect/References"
import * as SqlClient from "effect/sql/SqlClient"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as TurnStore from "../../src/TurnStore.ts"
import type { Address } from "./requires.ts"

export interface Place {
  readonly name: string
  /** To be built as often as one likes; where `shared`, several times at once. */
  readonly layer: Layer.Layer<TurnStore.TurnStore, TurnStore.StoreError>
  readonly shared: boolean
  /** Does what is in it stay when the layer is closed? */
  readonly durable: boolean
  /** How it orders ids. */
  readonly order: "utf16" | "bytes"
  readonly clear: () => Promise<void>
}

/** A name that no other run has. */
export const ownName = (): string => `et_${process.pid}_${Math.random().toString(36).slice(2, 10)}`

export const temporaryFolder = (): string => fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-store-"))

const nothing = () => Promise.resolve()

export const memory = (): Place => ({
  name: "memory",
  layer: Layer.fresh(TurnStore.layerMemory),
  shared: false,
  durable: false,
  order: "utf16",
  clear: nothing
})

/** Over one map, as if each layer were the next process. */
export const keyValueMemory = (): Place => {
  const kv = Effect.runSync(
    Effect.scoped(Effect.map(Layer.build(KeyValueStore.layerMemory), Context.get(KeyValueStore.KeyValueStore)))
  )
  return {
    name: "a key-value store in memory",
    layer: Layer.fresh(TurnStore.layerKeyValueStore()).pipe(
      Layer.provide(Layer.succeed(KeyValueStore.KeyValueStore, kv))
    ),
    shared: false,
    durable: true,
    order: "utf16",
    clear: nothing
  }
}

export const files = (folder: string): Layer.Layer<KeyValueStore.KeyValueStore> =>
  Layer.fresh(KeyValueStore.layerFileSystem(folder)).pipe(Layer.provide(NodeServices.layer), Layer.orDie)

export const keyValueFiles = (): Place => {
  const folder = temporaryFolder()
  return {
    name: "a key-value store in files",
    layer: Layer.fresh(TurnStore.layerKeyValueStore()).pipe(Layer.provide(files(folder))),
    shared: false,
    durable: true,
    order: "utf16",
    clear: async () => fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** What another process needs to know to open the same store. */
export type Shared =
  | { readonly store: "SQLite"; readonly filename: string }
  | { readonly store: "PostgreSQL"; readonly address: Address; readonly table: string }
  | { readonly store: "Redis"; readonly address: Address; readonly prefix: string }

export const layerOf = (shared: Shared): Place["layer"] => {
  switch (shared.store) {
    case "SQLite":
      return Layer.fresh(TurnStore.layerSqlite({ filename: shared.filename }))
    case "PostgreSQL":
      return Layer.fresh(TurnStore.layerSql({ table: shared.table })).pipe(Layer.provide(pgClient(shared.address)))
    case "Redis":
      return Layer.fresh(TurnStore.layerRedis({ prefix: shared.prefix })).pipe(
        Layer.provide(redisClient(shared.address))
      )
  }
}

export const sqlite = (): Place => {
  const folder = temporaryFolder()
  return {
    name: "SQLite",
    layer: layerOf({ store: "SQLite", filename: path.join(folder, "turns.db") }),
    shared: true,
    durable: true,
    order: "bytes",
    clear: async () => fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** A client of the database for tests; each build has connections of its own. */
export const pgClient = ({ host, port }: Address, options?: Partial<PgClient.PgPoolConfig>) =>
  Layer.fresh(PgClient.layer({
    host,
    port,
    username: process.env["PGUSER"] ?? "postgres",
    database: process.env["PGDATABASE"] ?? "postgres",
    maxConnections: 4,
    ...options
  })).pipe(Layer.orDie)

/** Drops a store's tables. */
export const dropTables = (address: Address, table: string): Promise<void> =>
  Effect.runPromise(Effect.provide(
    SqlClient.SqlClient.use((sql) =>
      sql`DROP TABLE IF EXISTS ${sql.literal(table)}, ${sql.literal(`${table}_migrations`)}`
    ),
    pgClient(address)
  )).then(() => undefined)

export const postgres = (address: Address): Place => {
  const table = ownName()
  return {
    name: "PostgreSQL",
    layer: layerOf({ store: "PostgreSQL", address, table }),
    shared: true,
    durable: true,
    order: "bytes",
    clear: () => dropTables(address, table)
  }
}

export const redisClient = (
  { host, port }: Address,
  options?: Parameters<typeof NodeRedis.layer>[0]
): Layer.Layer<Redis.Redis | NodeRedis.NodeRedis> =>
  Layer.fresh(NodeRedis.layer({ socket: { host, port }, ...options })).pipe(
    Layer.orDie,
    // It tells of every connection that is lost.
    Layer.provide(Layer.succeed(References.MinimumLogLevel, "None"))
  )

/** The keys with a prefix in braces. */
export const keysOf = (prefix: string) =>
  Redis.Redis.use((redis) => redis.send<ReadonlyArray<string>>("KEYS", `{${prefix}}:*`))

export const deleteKeys = (address: Address, prefix: string): Promise<void> =>
  Effect.runPromise(Effect.provide(
    Effect.flatMap(keysOf(prefix), (keys) =>
      keys.length === 0 ? Effect.void : Redis.Redis.use((redis) => redis.send("DEL", ...keys))),
    redisClient(address)
  )).then(() =>
    undefined
  )

export const redis = (address: Address): Place => {
  const prefix = ownName()
  return {
    name: "Redis",
    layer: layerOf({ store: "Redis", address, prefix }),
    shared: true,
    durable: true,
    order: "bytes",
    clear: () => deleteKeys(address, prefix)
  }
}
