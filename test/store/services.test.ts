/** What SQL databases and Redis do besides the laws. */
import { afterAll, assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redis from "effect/persistence/Redis"
import type * as Scope from "effect/Scope"
import * as Migrator from "effect/sql/Migrator"
import * as SqlClient from "effect/sql/SqlClient"
import * as fs from "node:fs"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import * as TurnStore from "../../src/TurnStore.ts"
import { describeService } from "../utils/requires.ts"
import { deleteKeys, dropTables, keysOf, ownName, pgClient, redisClient, temporaryFolder } from "../utils/stores.ts"

const row: TurnStore.Row = {
  kind: "k",
  id: "a",
  tenant: "t",
  group: "g",
  digest: "d",
  state: "reserved",
  owner: "o",
  leaseUntil: 5,
  expiresAt: 7,
  createdAt: 1,
  updatedAt: 1,
  body: "{}"
}

const storeOf = <E>(layer: Layer.Layer<TurnStore.TurnStore, E>) =>
  Effect.map(Layer.build(Layer.fresh(layer)), Context.get(TurnStore.TurnStore))

describe("options", () => {
  it("a wrong one is refused when it is said", () => {
    assert.throws(
      () => TurnStore.layerKeyValueStore({ lease: "infinite" as never }),
      /TurnStore\.layerKeyValueStore: the limit "lease" must be a duration from 1/
    )
    assert.throws(() => TurnStore.layerRedis({ timeout: 0 }), /the limit "timeout" must be a duration from 1/)
    assert.throws(() => TurnStore.layerRedis({ prefix: "" }), /the prefix of TurnStore\.layerRedis: expected a text/)
  })

  for (const table of ["", "a b", 'a"b', "a.b.c", "é", "1a", "x".repeat(41), "a.", "a;drop"]) {
    it(`no table is called ${JSON.stringify(table)}`, () => {
      assert.throws(
        () => TurnStore.layerSql({ table }),
        /the table of TurnStore\.layerSql: expected a name of at most 40/
      )
      assert.throws(() => TurnStore.layerSqlite({ filename: ":memory:", table }), /the table of TurnStore\.layerSqlite/)
    })
  }
})

await describeService("PostgreSQL", "PostgreSQL", (address) => {
  const tables: Array<string> = []
  const newTable = () => {
    const table = ownName()
    tables.push(table)
    return table
  }
  afterAll(async () => {
    for (const table of tables) await dropTables(address, table)
  })
  const layerOf = (table: string, options: Parameters<typeof pgClient>[1] = {}) =>
    TurnStore.layerSql({ table }).pipe(Layer.provide(pgClient(address, { maxConnections: 2, ...options })))
  const withSql = <A, E>(use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E, SqlClient.SqlClient | Scope.Scope>) =>
    Effect.scoped(SqlClient.SqlClient.use(use)).pipe(Effect.provide(pgClient(address, { maxConnections: 2 })))

  it.live("many processes that start at once make one table, and the application's migrations are its own", () =>
    Effect.gen(function*() {
      const table = newTable()
      const applications = newTable()
      yield* withSql((sql) =>
        Effect.gen(function*() {
          const stores = yield* Effect.forEach(
            Array.from({ length: 8 }),
            () => storeOf(layerOf(table)),
            { concurrency: "unbounded" }
          )
          const inserted = yield* Effect.forEach(stores, (store) => store.insert(row), { concurrency: "unbounded" })
          assert.strictEqual(inserted.filter((row) => row === undefined).length, 1)
          // An application's first migration has the same number.
          yield* Migrator.make({})({
            table: `${applications}_migrations`,
            loader: Migrator.fromRecord({
              "0001_mine": Effect.asVoid(sql`CREATE TABLE ${sql(applications)} (id integer)`)
            })
          })
          assert.deepStrictEqual(
            yield* sql`SELECT migration_id, name FROM ${sql(`${table}_migrations`)}`,
            [{ migration_id: 1, name: "rows" }]
          )
        })
      )
    }).pipe(Effect.scoped))

  it.live("a step in a transaction of the application is not part of it: others see it at once, and it stands", () =>
    Effect.gen(function*() {
      const table = newTable()
      const client = pgClient(address, { maxConnections: 2 })
      const other = yield* storeOf(layerOf(table))
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const store = yield* TurnStore.TurnStore
        const failure = yield* Effect.flip(sql.withTransaction(Effect.gen(function*() {
          assert.isUndefined(yield* store.insert(row))
          assert.deepStrictEqual(yield* other.get("k", "a"), row)
          return yield* Effect.fail("rolled back")
        })))
        assert.strictEqual(failure, "rolled back")
        assert.deepStrictEqual(yield* store.get("k", "a"), row)
      }).pipe(Effect.provide(Layer.provideMerge(TurnStore.layerSql({ table }), client)))
    }).pipe(Effect.scoped))

  for (const level of ["repeatable read", "serializable"]) {
    it.live(`steps are atomic where the connections begin with ${level}`, () =>
      Effect.gen(function*() {
        const options = {
          maxConnections: 6,
          startupOptions: `-c default_transaction_isolation=${level.replace(" ", "\\ ")}`
        }
        const store = yield* storeOf(layerOf(newTable(), options))
        for (let round = 0; round < 10; round++) {
          const id = `${round}`
          const put = yield* Effect.forEach(
            Array.from({ length: 20 }, (_, i) => `${i}`),
            (owner) => store.insert({ ...row, id, owner }),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(put.filter((row) => row === undefined).length, 1)
          const changed = yield* Effect.forEach(
            Array.from({ length: 20 }, (_, i) => `${i}`),
            (owner) => store.change("k", id, { state: "reserved" }, { state: "x", owner, updatedAt: 2 }),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(changed.filter((is) => is).length, 1)
        }
      }).pipe(Effect.scoped))
  }

  it.live("a client that changes names, a table in a schema, and one with capitals", () =>
    Effect.gen(function*() {
      const table = `public.${newTable()}`
      const options = {
        transformQueryNames: (name: string) => name.toUpperCase(),
        transformResultNames: (name: string) => `${name}_changed`
      }
      const store = yield* storeOf(layerOf(table, options))
      assert.isUndefined(yield* store.insert(row))
      assert.deepStrictEqual(yield* store.insert(row), row)
      assert.deepStrictEqual(yield* store.list({ kind: "k", limit: 1 }), [row])
      // The same table under its short name.
      const same = yield* storeOf(layerOf(table.slice("public.".length)))
      assert.deepStrictEqual(yield* same.get("k", "a"), row)
      const capitals = `Et_${process.pid}`
      const upper = yield* storeOf(layerOf(capitals))
      assert.isUndefined(yield* upper.insert(row))
      yield* withSql((sql) => sql`DROP TABLE ${sql(capitals)}, ${sql(`${capitals}_migrations`)}`)
    }).pipe(Effect.scoped))

  it.live("where the table is there, a program needs no rights but to read and write it", () =>
    Effect.gen(function*() {
      const table = newTable()
      yield* storeOf(layerOf(table))
      const role = ownName()
      yield* withSql((sql) =>
        Effect.gen(function*() {
          yield* sql`CREATE ROLE ${sql(role)} LOGIN`
          yield* sql`GRANT SELECT, INSERT, UPDATE, DELETE ON ${sql(table)} TO ${sql(role)}`
          yield* sql`GRANT SELECT ON ${sql(`${table}_migrations`)} TO ${sql(role)}`
        })
      )
      yield* Effect.gen(function*() {
        const store = yield* storeOf(layerOf(table, { username: role }))
        assert.isUndefined(yield* store.insert(row))
        assert.isTrue(yield* store.change("k", "a", {}, { updatedAt: 2 }))
        assert.strictEqual(yield* store.expire(10), 1)
        const error = yield* Effect.flip(storeOf(layerOf(newTable(), { username: role })))
        assert.strictEqual(error.operation, "open")
        assert.include(error.message, "PostgreSQL could not open: ")
        assert.include(error.message, "permission denied")
      }).pipe(
        Effect.scoped,
        Effect.ensuring(
          Effect.orDie(withSql((sql) => Effect.andThen(sql`DROP OWNED BY ${sql(role)}`, sql`DROP ROLE ${sql(role)}`)))
        )
      )
    }).pipe(Effect.scoped))

  it.live("among many rows every step goes by an index", () =>
    Effect.gen(function*() {
      const table = newTable()
      yield* storeOf(layerOf(table))
      yield* withSql((sql) =>
        Effect.gen(function*() {
          yield* sql`INSERT INTO ${sql(table)}
SELECT 'k', 'id' || n, null, 't' || n % 100, 'g' || n % 100, 'd', CASE WHEN n % 500 = 0 THEN 'unknown' ELSE 'applied' END, 'o', 0,
  CASE WHEN n % 100 = 0 THEN n END, 1, 1, '{}' FROM generate_series(1, 20000) n`
          yield* sql`ANALYZE ${sql(table)}`
          const planOf = (query: string) =>
            Effect.map(
              sql.unsafe<{ readonly "QUERY PLAN": string }>(`EXPLAIN ${query}`),
              (lines) => lines.map((line) => line["QUERY PLAN"]).join("\n")
            )
          const list = (where: string) =>
            planOf(`SELECT * FROM ${table} WHERE kind = 'k' AND ${where} ORDER BY id LIMIT 100`)
          assert.include(yield* list("state = 'unknown'"), `${table}_state`)
          assert.include(yield* list("substr(tenant, 1, 200) = 't7' AND tenant = 't7'"), `${table}_tenant`)
          assert.include(yield* list("substr(group_name, 1, 200) = 'g7' AND group_name = 'g7'"), `${table}_group`)
          assert.include(yield* list("id > 'id5'"), `${table}_pkey`)
          assert.include(
            yield* planOf(`SELECT kind, id FROM ${table} WHERE expires_at <= 500 ORDER BY expires_at LIMIT 1000`),
            `${table}_expiry`
          )
        })
      )
    }).pipe(Effect.scoped))

  it.live("a person can read the table", () =>
    Effect.gen(function*() {
      const table = newTable()
      const store = yield* storeOf(layerOf(table))
      yield* store.insert({ ...row, id: '["t",null,"book","é"]', body: '{"format":1}' })
      yield* withSql((sql) =>
        Effect.gen(function*() {
          assert.deepStrictEqual(
            yield* sql`SELECT id, group_name, state, to_timestamp(expires_at / 1000) AS expires, body::json AS body FROM ${
              sql(table)
            }`,
            [{
              id: '["t",null,"book","é"]',
              group_name: "g",
              state: "reserved",
              expires: new Date(7),
              body: { format: 1 }
            }]
          )
          const uncommented = yield* sql`SELECT attname FROM pg_attribute
WHERE attrelid = ${table}::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL`
          assert.deepStrictEqual(uncommented, [])
        })
      )
    }).pipe(Effect.scoped))

  it.live("many rows expire in more than one statement", () =>
    Effect.gen(function*() {
      const table = newTable()
      const store = yield* storeOf(layerOf(table))
      yield* withSql((sql) =>
        sql`INSERT INTO ${sql(table)}
SELECT 'k', 'id' || n, null, 't', 'g', 'd', 's', 'o', 0, n, 1, 1, '{}' FROM generate_series(1, 2500) n`
      )
      assert.strictEqual(yield* store.expire(2400), 2400)
      assert.strictEqual((yield* store.list({ kind: "k", limit: 1000 })).length, 100)
    }).pipe(Effect.scoped))

  it.live("a server that is not there, and a row that is none, are clear errors", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(storeOf(
        TurnStore.layerSql().pipe(Layer.provide(pgClient({ host: "127.0.0.1", port: 1 })))
      ))
      assert.strictEqual(error.operation, "open")
      assert.match(error.message, /^PostgreSQL could not open: .*ECONNREFUSED/)
      const table = newTable()
      const store = yield* storeOf(layerOf(table))
      yield* store.insert(row)
      yield* withSql((sql) => sql`ALTER TABLE ${sql(table)} ALTER COLUMN owner DROP NOT NULL`)
      yield* withSql((sql) => sql`UPDATE ${sql(table)} SET owner = NULL`)
      assert.match((yield* Effect.flip(store.get("k", "a"))).message, /expected a text in a column of the table/)
    }).pipe(Effect.scoped))
})

describe("SQLite", () => {
  const folder = temporaryFolder()
  afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

  it.live("a file that cannot be opened, and a table with a schema, are clear errors", () =>
    Effect.gen(function*() {
      const filename = path.join(folder, "nowhere", "turns.db")
      const error = yield* Effect.flip(storeOf(TurnStore.layerSqlite({ filename })))
      assert.strictEqual(error.operation, "open")
      assert.include(error.message, `SQLite could not open: the file ${filename} could not be opened`)
      fs.writeFileSync(path.join(folder, "other"), "this is no database, and longer than a header of one".repeat(20))
      assert.include(
        (yield* Effect.flip(storeOf(TurnStore.layerSqlite({ filename: path.join(folder, "other") })))).message,
        "file is not a database"
      )
      assert.include(
        (yield* Effect.flip(storeOf(TurnStore.layerSqlite({ filename: ":memory:", table: "a.b" })))).message,
        "SQLite has no schemas"
      )
    }).pipe(Effect.scoped))

  it.live("without node:sqlite it says what it needs", () =>
    Effect.gen(function*() {
      const { getBuiltinModule } = process
      process.getBuiltinModule = (() => undefined) as never
      const error = yield* Effect.flip(storeOf(TurnStore.layerSqlite({ filename: ":memory:" }))).pipe(
        Effect.ensuring(Effect.sync(() => {
          process.getBuiltinModule = getBuiltinModule
        }))
      )
      assert.strictEqual(
        error.message,
        "SQLite could not open: node:sqlite is not there: expected Node.js 22.16 or later"
      )
    }).pipe(Effect.scoped))

  it.live("while another process has the lock of the file, steps wait and the process goes on; then they fail, or are done", () =>
    Effect.gen(function*() {
      const filename = path.join(folder, "locked.db")
      const store = yield* storeOf(TurnStore.layerSqlite({ filename, timeout: 500 }))
      const other = new DatabaseSync(filename)
      yield* Effect.addFinalizer(() => Effect.sync(() => other.close()))
      other.exec("BEGIN IMMEDIATE")
      const waiting = yield* Effect.forkChild(Effect.flip(store.insert(row)), { startImmediately: true })
      let ticks = 0
      while (waiting.pollUnsafe() === undefined) {
        yield* Effect.sleep(5)
        ticks++
      }
      assert.isAbove(ticks, 5)
      assert.strictEqual((yield* Fiber.join(waiting)).message, "SQLite could not insert: database is locked")
      // Readers do not wait.
      assert.isUndefined(yield* store.get("k", "a"))
      const patient = yield* Effect.forkChild(store.insert(row), { startImmediately: true })
      yield* Effect.sleep(50)
      other.exec("COMMIT")
      assert.isUndefined(yield* Fiber.join(patient))
      assert.deepStrictEqual(yield* store.get("k", "a"), row)
      assert.strictEqual(other.prepare("PRAGMA journal_mode").get()!["journal_mode"], "wal")
    }).pipe(Effect.scoped))

  it.live("a statement that fails is an error, and was not done", () =>
    Effect.gen(function*() {
      const filename = path.join(folder, "full.db")
      yield* Effect.scoped(storeOf(TurnStore.layerSqlite({ filename })))
      const other = new DatabaseSync(filename)
      other.exec(
        "CREATE TRIGGER full BEFORE INSERT ON effect_turn_rows BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
      )
      other.close()
      const store = yield* storeOf(TurnStore.layerSqlite({ filename }))
      assert.strictEqual((yield* Effect.flip(store.insert(row))).message, "SQLite could not insert: the disk is full")
      assert.isUndefined(yield* store.get("k", "a"))
    }).pipe(Effect.scoped))
})

await describeService("Redis", "Redis", (address) => {
  const prefixes: Array<string> = []
  const newPrefix = () => {
    const prefix = ownName()
    prefixes.push(prefix)
    return prefix
  }
  afterAll(async () => {
    for (const prefix of prefixes) await deleteKeys(address, prefix)
  })
  const layerOf = (prefix: string) => Layer.provideMerge(TurnStore.layerRedis({ prefix }), redisClient(address))
  const within = <A, E>(
    prefix: string,
    use: (store: TurnStore.TurnStore["Service"], redis: Redis.Redis["Service"]) => Effect.Effect<A, E>
  ) =>
    Effect.gen(function*() {
      return yield* use(yield* TurnStore.TurnStore, yield* Redis.Redis)
    }).pipe(Effect.provide(layerOf(prefix)))

  it.live("it goes on when the server has forgotten the scripts", () => {
    const prefix = newPrefix()
    return within(prefix, (store, redis) =>
      Effect.gen(function*() {
        assert.isUndefined(yield* store.insert(row))
        yield* redis.send("SCRIPT", "FLUSH")
        assert.deepStrictEqual(yield* store.insert(row), row)
        yield* redis.send("SCRIPT", "FLUSH")
        const changed = yield* Effect.forEach(
          Array.from({ length: 10 }),
          () => store.change("k", "a", { state: "reserved" }, { state: "x", updatedAt: 2 }),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(changed.filter((is) => is).length, 1)
        assert.strictEqual(yield* store.expire(10), 1)
      }))
  })

  it.live("all keys have one hash tag, none has a time to live, and nothing is left of rows that are gone", () => {
    const prefix = newPrefix()
    return within(prefix, (store, redis) =>
      Effect.gen(function*() {
        const all = redis.send<ReadonlyArray<string>>("KEYS", `*${prefix}*`)
        for (let i = 0; i < 20; i++) {
          yield* store.insert({ ...row, id: `${i}:{x}`, group: `g${i % 3}`, state: `{${i % 4}}` })
        }
        const keys = yield* all
        assert.strictEqual(keys.length, 20 + 1 + 1 + 3 + 4)
        for (const key of keys) {
          assert.isTrue(key.startsWith(`{${prefix}}:`), key)
          assert.strictEqual(yield* redis.send("TTL", key), -1)
        }
        for (let i = 0; i < 20; i++) {
          yield* i % 2 === 0 ? store.change("k", `${i}:{x}`, {}, undefined) : store.change("k", `${i}:{x}`, {}, {
            state: "other",
            updatedAt: 2
          })
        }
        assert.strictEqual(yield* store.expire(10), 10)
        assert.deepStrictEqual(yield* all, [])
        // A hash tag of one's own.
        const own = yield* storeOf(
          TurnStore.layerRedis({ prefix: `x{${prefix}}y:` }).pipe(Layer.provide(Layer.succeed(Redis.Redis, redis)))
        )
        yield* own.insert(row)
        for (const key of yield* all) {
          assert.isTrue(key.startsWith(`x{${prefix}}y:`), key)
        }
        yield* own.change("k", "a", {}, undefined)
        assert.deepStrictEqual(yield* all, [])
      }).pipe(Effect.scoped))
  })

  it.live("a person can read a row", () => {
    const prefix = newPrefix()
    return within(prefix, (store, redis) =>
      Effect.gen(function*() {
        yield* store.insert({ ...row, kind: "a:b%" })
        assert.deepStrictEqual(
          yield* redis.send("HMGET", `{${prefix}}:row:a%3Ab%25:a`, "kind", "state", "leaseUntil", "expiresAt", "body"),
          ["a:b%", "reserved", "5", "7", "{}"]
        )
      }))
  })

  it.live("a row that was evicted, or removed by hand, is an error and never no row", () => {
    const prefix = newPrefix()
    return within(prefix, (store, redis) =>
      Effect.gen(function*() {
        yield* store.insert(row)
        yield* redis.send("DEL", `{${prefix}}:row:k:a`)
        const steps: ReadonlyArray<Effect.Effect<unknown, TurnStore.StoreError>> = [
          store.get("k", "a"),
          store.insert(row),
          store.change("k", "a", {}, { updatedAt: 2 }),
          store.list({ kind: "k", limit: 9 })
        ]
        for (const step of steps) {
          assert.include(
            (yield* Effect.flip(step)).message,
            `the row {${prefix}}:row:k:a is in the index, and its hash is gone`
          )
        }
        assert.isUndefined(yield* store.insert({ ...row, id: "b" }))
        // A damaged one.
        yield* redis.send("HDEL", `{${prefix}}:row:k:b`, "owner")
        assert.include((yield* Effect.flip(store.get("k", "b"))).message, 'expected the field "owner" in the row b')
        yield* redis.send("HSET", `{${prefix}}:row:k:b`, "owner", "", "leaseUntil", "soon")
        assert.include(
          (yield* Effect.flip(store.insert({ ...row, id: "b" }))).message,
          "expected a number in the field"
        )
      }))
  })

  it.live("a server that evicts keys is refused, one that does not say is not", () =>
    Effect.gen(function*() {
      const redis = yield* Effect.map(Layer.build(redisClient(address)), Context.get(Redis.Redis))
      const openOn = (info: Effect.Effect<unknown, Redis.RedisError>) =>
        storeOf(
          TurnStore.layerRedis({ prefix: newPrefix() }).pipe(
            Layer.provide(Layer.succeed(Redis.Redis, {
              ...redis,
              send: ((command: string, ...args: ReadonlyArray<string>) =>
                command === "INFO" ? info : redis.send(command, ...args)) as typeof redis.send
            }))
          )
        )
      const error = yield* Effect.flip(
        openOn(Effect.succeed("# Memory\r\nmaxmemory:100000\r\nmaxmemory_policy:allkeys-lru\r\nx:1\r\n"))
      )
      assert.match(error.message, /^Redis could not open: it evicts keys .*allkeys-lru.* set the policy to noeviction/)
      yield* openOn(Effect.succeed("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"))
      yield* openOn(Effect.succeed("maxmemory:1\r\nmaxmemory_policy:volatile-lru\r\n"))
      yield* openOn(Effect.fail(new Redis.RedisError({ cause: new Error("NOPERM") })))
    }).pipe(Effect.scoped))

  it.live("a long list comes whole, from a few among many", () => {
    const prefix = newPrefix()
    return within(prefix, (store) =>
      Effect.gen(function*() {
        const ids = Array.from({ length: 450 }, (_, i) => `${1000 + i}`)
        yield* Effect.forEach(
          ids,
          (id, i) => store.insert({ ...row, id, tenant: i % 150 === 0 ? "rare" : "t" }),
          { concurrency: 20 }
        )
        assert.deepStrictEqual((yield* store.list({ kind: "k", limit: 1000 })).map(({ id }) => id), ids)
        assert.deepStrictEqual(
          (yield* store.list({ kind: "k", tenant: "rare", limit: 3 })).map(({ id }) => id),
          ["1000", "1150", "1300"]
        )
        assert.strictEqual(yield* store.expire(1e15), 450)
        assert.deepStrictEqual(yield* Effect.provide(keysOf(prefix), redisClient(address)), [])
      }))
  })
})
