/**
 * Rows that change in one atomic step: what `IdempotencyStore`, `TurnJournal` and `ParkedTurns` are kept in. A database that is
 * not here needs this one service, and has all three.
 *
 * A row has a kind, an id, a state, and an owner whose claim on it lasts until its lease is over. Nothing here knows what the
 * states mean.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as Redis from "effect/persistence/Redis"
import * as Schema from "effect/Schema"
import * as SqlClient from "effect/sql/SqlClient"
import { type Fail, guarded, opened, openedWithin } from "./internal/turnStore/guard.ts"
import * as keyValue from "./internal/turnStore/keyValue.ts"
import * as nodeSqlite from "./internal/turnStore/nodeSqlite.ts"
import * as redis from "./internal/turnStore/redis.ts"
import { fits, listed, mayGo, patched } from "./internal/turnStore/rows.ts"
import * as sql from "./internal/turnStore/sql.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnError from "./TurnError.ts"

/**
 * One row. Times are milliseconds since the epoch, of the clock of whoever wrote it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const Row = Schema.Struct({
  kind: Schema.String,
  id: Schema.String,
  tenant: Schema.String,
  /** Rows that are listed together. */
  group: Schema.String,
  /** What it was made for; it never changes. */
  digest: Schema.String,
  state: Schema.String,
  /** Who has claimed it; `""` for nobody. */
  owner: Schema.String,
  /** Until when the claim stands without a word of its owner; 0 where there is none. */
  leaseUntil: Schema.Number,
  /** When it may be forgotten; null for never. */
  expiresAt: Schema.NullOr(Schema.Number),
  createdAt: Schema.Number,
  updatedAt: Schema.Number,
  /** What it holds, as JSON text. */
  body: Schema.String
})

/**
 * One row.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Row = typeof Row.Type

/**
 * What a row has to be like for a change to happen. A member that is absent may be anything.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Expected {
  readonly state?: string | undefined
  readonly owner?: string | undefined
  readonly leaseUntil?: number | undefined
}

/**
 * What is changed of a row. A member that is absent stays as it is; `updatedAt` is always said.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Patch {
  readonly state?: string | undefined
  readonly owner?: string | undefined
  readonly leaseUntil?: number | undefined
  readonly expiresAt?: number | null | undefined
  readonly updatedAt: number
  readonly body?: string | undefined
}

/**
 * Which rows are listed: all of a kind, or those of a tenant, a group, a state.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Query {
  readonly kind: string
  readonly tenant?: string | undefined
  readonly group?: string | undefined
  readonly state?: string | undefined
  /** Only rows whose id comes after this one. */
  readonly after?: string | undefined
  readonly limit: number
}

/**
 * The store could not be read or written. Where a step failed it may have been done all the same: its answer was lost.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class StoreError extends Schema.TaggedError<StoreError>()("StoreError", {
  /** Which store: "PostgreSQL", "Redis", … */
  store: Schema.String,
  operation: Schema.Literals(["open", "get", "insert", "change", "list", "expire"]),
  description: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {
  override get message(): string {
    return `${this.store} could not ${this.operation}: ${this.description}`
  }
}

/**
 * The store of a runtime.
 *
 * **Details**
 *
 * Laws, which every layer has to satisfy:
 *
 * - `insert` puts a row in where there is none of its kind and id, and gives nothing; otherwise it changes nothing, and gives the row
 *   that is there. Of many that insert the same at once exactly one puts its row in;
 * - `change` patches a row that is as expected and gives true; otherwise it changes nothing and gives false. Without a patch the row is
 *   removed;
 * - each step is done whole or not at all, also when it fails or is interrupted; an interruption waits for the end of the step. `expire`
 *   alone may have removed some of the rows when it fails;
 * - what a step has done is seen by every later step, of every process that shares the store;
 * - `list` gives rows in the order of their ids, by UTF-16 code units or by the bytes of their UTF-8, the same order each time;
 * - texts come back as they were, whatever they hold.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class TurnStore extends Context.Service<TurnStore, {
  readonly get: (kind: string, id: string) => Effect.Effect<Row | undefined, StoreError>
  readonly insert: (row: Row) => Effect.Effect<Row | undefined, StoreError>
  readonly change: (
    kind: string,
    id: string,
    expected: Expected,
    patch: Patch | undefined
  ) => Effect.Effect<boolean, StoreError>
  readonly list: (query: Query) => Effect.Effect<ReadonlyArray<Row>, StoreError>
  /** Removes the rows that may be forgotten by then; gives how many there were. */
  readonly expire: (now: number) => Effect.Effect<number, StoreError>
}>()("effect-turn/TurnStore") {}

/** What stands for a text that is too long, or too private, to be kept.
 *
 * @internal
 */
export { sha256 } from "./internal/turnStore/text.ts"

/** What the services over rows have in common: whether a row may be forgotten, and how an owner comes to one.
 *
 * @internal
 */
export { claim } from "./internal/turnStore/claim.ts"
/** @internal */
export { mayGo } from "./internal/turnStore/rows.ts"

/** A store in memory, which is gone with its layer. */
const makeMemory = (): TurnStore["Service"] => {
  const kinds = new Map<string, Map<string, Row>>()
  const of = (kind: string): Map<string, Row> => {
    let rows = kinds.get(kind)
    if (rows === undefined) kinds.set(kind, rows = new Map())
    return rows
  }
  return {
    get: (kind, id) => Effect.sync(() => of(kind).get(id)),
    insert: (row) =>
      Effect.sync(() => {
        const rows = of(row.kind)
        const known = rows.get(row.id)
        if (known === undefined) rows.set(row.id, row)
        return known
      }),
    change: (kind, id, expected, patch) =>
      Effect.sync(() => {
        const rows = of(kind)
        const row = rows.get(id)
        if (row === undefined || !fits(row, expected)) return false
        if (patch === undefined) rows.delete(id)
        else rows.set(id, patched(row, patch))
        return true
      }),
    list: (query) => Effect.sync(() => listed(of(query.kind).values(), query)),
    expire: (now) =>
      Effect.sync(() => {
        let gone = 0
        for (const rows of kinds.values()) {
          for (const [id, row] of rows) {
            if (mayGo(row, now) && rows.delete(id)) gone++
          }
        }
        return gone
      })
  }
}

/**
 * A store in memory, for one process: a crash loses it.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory: Layer.Layer<TurnStore> = Layer.sync(TurnStore, makeMemory)

/** The time of a step that none was said for. */
const defaultTimeout = "5 seconds"

/** How long a store may take to open, besides waiting for a lock. */
const openMillis = 30_000

const failing = (store: string): Fail => (operation, description, cause) =>
  new StoreError({ store, operation, description, ...(cause === undefined ? undefined : { cause }) })

const invalid = (what: string, expected: string, received: unknown): TurnError.TurnError =>
  TurnError.make(new TurnError.InvalidInput({ what, expected, received: TurnError.show(received) }))

const isRow = Schema.is(Row)

/**
 * Options of a store in a key-value store.
 *
 * **Details**
 *
 * - `prefix`: what the names of its entries begin with. Default: `"effect-turn."`.
 * - `lease`: how long the lock of a process that has crashed stands in the way. It is renewed every third of that. Default: 10 seconds.
 * - `timeout`: how long a step may take. Default: 5 seconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface KeyValueStoreOptions {
  readonly prefix?: string | undefined
  readonly lease?: Duration.Input | undefined
  readonly timeout?: Duration.Input | undefined
}

/**
 * A store over Effect's `KeyValueStore`, for one process with one layer.
 *
 * **Details**
 *
 * A key-value store cannot change an entry only if it is as expected, so a lock keeps all others out: building a second layer over the
 * same entries fails, in whatever process. The lock of a crashed process lapses after its lease, and building waits for that. A process
 * that finds its lock taken, for it was stopped for longer, fails every later step.
 *
 * Every row is written twice, with a checksum, so that a process that is killed while it writes leaves the row as it was before or
 * after. A row of which nothing can be read fails every step that meets it, with its name. What is written is not forced to the disk:
 * it outlives the process, and perhaps not a power cut.
 *
 * **Gotchas**
 *
 * Of two processes that start at the very same moment both may be let in; then one of them finds out at its next write, before it writes.
 * `list` and `expire` read all rows: it is for thousands of them, not for millions.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerKeyValueStore = (
  options?: KeyValueStoreOptions
): Layer.Layer<TurnStore, StoreError, KeyValueStore.KeyValueStore> => {
  const owner = "TurnStore.layerKeyValueStore"
  const prefix = options?.prefix ?? "effect-turn."
  const lease = ToolPolicy.finiteMillis(owner, "lease", options?.lease ?? "10 seconds")
  const timeout = ToolPolicy.finiteMillis(owner, "timeout", options?.timeout ?? defaultTimeout)
  const fail = failing("the key-value store")
  return Layer.effect(
    TurnStore,
    Effect.flatMap(KeyValueStore.KeyValueStore, (kv) =>
      Effect.map(
        opened(keyValue.make(kv, { prefix, lease }, isRow), fail),
        (steps) => guarded(steps, timeout, fail)
      ))
  )
}

/**
 * Options of a store in a table.
 *
 * **Details**
 *
 * - `table`: its name, letters, digits and underscores, at most 40 of them; on PostgreSQL with a schema and a dot before it, if it is to be
 *   in another than the connection's. Default: `"effect_turn_rows"`.
 * - `timeout`: how long a step may take. Default: 5 seconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface SqlOptions {
  readonly table?: string | undefined
  readonly timeout?: Duration.Input | undefined
}

/** Looks at the options, and makes the store over a client. */
const overSql = (owner: string, options: SqlOptions | undefined) => {
  const table = options?.table ?? "effect_turn_rows"
  if (!sql.tableName.test(table)) {
    throw invalid(`the table of ${owner}`, "a name of at most 40 letters, digits and underscores", table)
  }
  const timeout = ToolPolicy.finiteMillis(owner, "timeout", options?.timeout ?? defaultTimeout)
  return (client: SqlClient.SqlClient): Effect.Effect<TurnStore["Service"], StoreError> => {
    const fail = failing(sql.nameOf(client))
    return Effect.map(
      openedWithin(sql.make(client, { table, timeout }, openMillis / 2), openMillis, fail),
      (steps) => guarded(steps, timeout, fail)
    )
  }
}

/**
 * A store in a table of PostgreSQL or SQLite, over Effect's `SqlClient`.
 *
 * **Details**
 *
 * Each step is one statement, with its own connection (an insert into SQLite may be two, one after the other): a step that is done
 * inside of a transaction of the application stands, whatever becomes of the transaction. Processes may share the table, at any
 * isolation level.
 *
 * The table is made when the layer is built, by a migration that is recorded in a table of the same name with `_migrations` after it.
 * Many processes may start at once. Where the table is there, the program needs no rights but to read and write it.
 *
 * Ids are in the order of their bytes (`COLLATE "C"`); of those that have the first 300 characters in common the order is another, and
 * always the same. Times are milliseconds since the epoch. Texts are as they are, but for NUL and halves of surrogate pairs: these
 * are written as their code in four digits after U+0001 or U+E000.
 *
 * **Gotchas**
 *
 * The client of SQLite must not have a transaction open on its one connection while it waits for a step: the step would wait for the
 * transaction, and fail when its time is over.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerSql = (options?: SqlOptions): Layer.Layer<TurnStore, StoreError, SqlClient.SqlClient> =>
  Layer.effect(TurnStore, Effect.flatMap(SqlClient.SqlClient, overSql("TurnStore.layerSql", options)))

/**
 * A store in a file of Node's own SQLite (`node:sqlite`), for the processes of one machine: nothing else has to be installed.
 *
 * **Details**
 *
 * The file is made where it is not there yet; its folder has to be. `":memory:"` is a store that is gone with its layer. What a step has
 * done is on the disk when it ends, and outlives a power cut. While a statement runs, the process does nothing else; to wait for
 * another process it sleeps.
 *
 * **Gotchas**
 *
 * The file must not be on a network file system. Node.js from 22.16 has what is needed, and prints an `ExperimentalWarning` in some
 * versions; `node --disable-warning=ExperimentalWarning` turns it off.
 *
 * **Example** (Keys in a file)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer } from "effect"
 * import { IdempotencyStore, TurnStore } from "effect-turn"
 *
 * const keys = IdempotencyStore.layer().pipe(
 *   Layer.provide(TurnStore.layerSqlite({ filename: ":memory:" })) // "turns.db"
 * )
 * const program = Effect.gen(function*() {
 *   const store = yield* IdempotencyStore.IdempotencyStore
 *   const key = { tenant: "acme", tool: "book", key: "order-7" }
 *   const one = yield* store.reserve(key, { digest: "[7]", owner: "one" })
 *   const two = yield* store.reserve(key, { digest: "[7]", owner: "two" })
 *   return [one._tag, two._tag]
 * })
 *
 * const told = await Effect.runPromise(Effect.provide(program, keys)) // => ["Reserved", "Taken"]
 * ```
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerSqlite = (
  options: SqlOptions & { readonly filename: string }
): Layer.Layer<TurnStore, StoreError> => {
  const over = overSql("TurnStore.layerSqlite", options)
  return Layer.effect(
    TurnStore,
    Effect.flatMap(
      openedWithin(nodeSqlite.make(options.filename, openMillis / 2), openMillis, failing("SQLite")),
      over
    )
  )
}

/**
 * Options of a store in Redis.
 *
 * **Details**
 *
 * - `prefix`: what its keys begin with; a part of it in braces is the hash tag for a cluster, and without one all of it is put in
 *   braces. Default: `"effect-turn"`.
 * - `timeout`: how long a step may take. Default: 5 seconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RedisOptions {
  readonly prefix?: string | undefined
  readonly timeout?: Duration.Input | undefined
}

/**
 * A store in Redis, over Effect's `Redis`. Processes may share it.
 *
 * **Details**
 *
 * Each step is one script; a long list takes several. A row is a hash that can be read as it is. No key has a time to live of Redis:
 * `expire` removes what may be forgotten. All keys are in one slot of a cluster.
 *
 * A Redis that evicts keys when its memory is full is refused where that can be seen, for a reservation must not be lost. A row whose
 * hash is gone all the same fails the steps that meet it.
 *
 * **Gotchas**
 *
 * It is as durable as Redis is set up to be: with its defaults a crash or a fail-over loses what was written last
 * (`appendonly yes`, `appendfsync always`).
 *
 * A client that keeps commands while it has no connection sends them later, also those of a step that has failed by then: with
 * node-redis, `disableOfflineQueue: true` makes such a step fail at once, and for good.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerRedis = (options?: RedisOptions): Layer.Layer<TurnStore, StoreError, Redis.Redis> => {
  const owner = "TurnStore.layerRedis"
  const prefix = options?.prefix ?? "effect-turn"
  if (prefix === "") throw invalid(`the prefix of ${owner}`, "a text that is not empty", prefix)
  const timeout = ToolPolicy.finiteMillis(owner, "timeout", options?.timeout ?? defaultTimeout)
  const fail = failing("Redis")
  return Layer.effect(
    TurnStore,
    Effect.flatMap(Redis.Redis, (client) =>
      Effect.map(
        openedWithin(redis.make(client, prefix), openMillis, fail),
        (steps) => guarded(steps, timeout, fail)
      ))
  )
}

/**
 * Removes what may be forgotten, again and again: keys, entries of journals, parked turns. What may be forgotten counts as gone also before it
 * is removed, so this is for the size of the store alone; one process of many needs it.
 *
 * **Details**
 *
 * `every` is the time between two rounds. Default: 1 hour. A round that fails is in the log, and the next comes all the same.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerExpiry = (
  options?: { readonly every?: Duration.Input | undefined }
): Layer.Layer<never, never, TurnStore> => {
  const every = ToolPolicy.finiteMillis("TurnStore.layerExpiry", "every", options?.every ?? "1 hour")
  const round = (store: TurnStore["Service"]) =>
    Effect.flatMap(Clock.currentTimeMillis, store.expire).pipe(
      Effect.catchCause((cause) => Effect.logWarning("what may be forgotten could not be removed", cause)),
      Effect.andThen(Effect.sleep(every))
    )
  return Layer.effectDiscard(
    Effect.flatMap(TurnStore, (store) => Effect.forkScoped(Effect.forever(round(store))))
  )
}
