/**
 * Rows in a table of PostgreSQL or SQLite. Every step is one statement of its own, outside of any transaction of the caller, but for
 * `insert` on SQLite, which asks first.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Migrator from "effect/sql/Migrator"
import * as SqlClient from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import type { Row } from "../../TurnStore.ts"
import { parsed, Problem, type Steps } from "./guard.ts"
import { persistent } from "./persistent.ts"
import { escape, head, sha256, unescape } from "./text.ts"

export interface Options {
  readonly table: string
  /** Of a step, in milliseconds. */
  readonly timeout: number
}

/** What the table can be called: a name, or on PostgreSQL a schema and a name. */
export const tableName = /^([A-Za-z_][A-Za-z0-9_]{0,39}\.)?[A-Za-z_][A-Za-z0-9_]{0,39}$/

/** A longer id is kept in a column of its own, and found by its beginning and its hash: an index takes no more. */
const longestId = 300

/** How much of a tenant or a group is in an index. */
const indexed = 200

const columns = "kind, id, full_id, tenant, group_name, digest, state, owner, " +
  "lease_until, expires_at, created_at, updated_at, body"

const comments = {
  kind: "What the row is: an idempotency key, a turn that is under way, a parked turn, ...",
  id: "Which one of its kind; of a long id the beginning and the SHA-256 hash",
  full_id: "The id where it is too long for an index, or null",
  tenant: "Whose it is",
  group_name: "Rows that are listed together",
  digest: "What it was made for",
  state: "What is known of it",
  owner: "Who has claimed it; empty for nobody",
  lease_until: "Until when the claim stands, in milliseconds since the epoch; 0 where there is none",
  expires_at:
    "When it may be forgotten, in milliseconds since the epoch; null for never. Read it with to_timestamp(expires_at / 1000)",
  created_at: "Milliseconds since the epoch",
  updated_at: "Milliseconds since the epoch",
  body: "What it holds, as JSON"
}

/** The name of a client's database, for errors. */
export const nameOf = (sql: SqlClient.SqlClient): string =>
  sql.onDialectOrElse({ pg: () => "PostgreSQL", sqlite: () => "SQLite", orElse: () => "the SQL database" })

/** The table, made where it is not there yet. */
const migrate = (sql: SqlClient.SqlClient, table: string, millis: number): Effect.Effect<void, unknown> => {
  const named = sql.literal(quoted(table))
  const migrations = `${table}_migrations`
  const own = table.slice(table.indexOf(".") + 1)
  const isPg = sql.onDialectOrElse({ pg: () => true, orElse: () => false })
  const text = sql.literal(isPg ? `text COLLATE "C"` : "text")
  const rows = Effect.gen(function*() {
    yield* sql`CREATE TABLE ${named} (
  kind ${text} NOT NULL,
  id ${text} NOT NULL,
  full_id ${text},
  tenant ${text} NOT NULL,
  group_name ${text} NOT NULL,
  digest ${text} NOT NULL,
  state ${text} NOT NULL,
  owner ${text} NOT NULL,
  lease_until double precision NOT NULL,
  expires_at double precision,
  created_at double precision NOT NULL,
  updated_at double precision NOT NULL,
  body ${text} NOT NULL,
  PRIMARY KEY (kind, id)
)`
    const index = (name: string, of: string) =>
      sql`CREATE INDEX ${sql.literal(`"${own}_${name}"`)} ON ${named} ${sql.literal(of)}`
    yield* index("state", "(kind, state, id)")
    yield* index("tenant", `(kind, substr(tenant, 1, ${indexed}), id)`)
    yield* index("group", `(kind, substr(group_name, 1, ${indexed}), id)`)
    yield* index("expiry", "(expires_at) WHERE expires_at IS NOT NULL")
    if (!isPg) return
    yield* sql`COMMENT ON TABLE ${named} IS 'Rows of effect-turn: what is known of its writes and turns'`
    for (const [column, comment] of Object.entries(comments)) {
      yield* sql`COMMENT ON COLUMN ${sql.literal(`${quoted(table)}.${column} IS '${comment}'`)}`
    }
  })
  // Asked first: a migration takes a lock, and rights that a program at work need not have.
  const isThere = Effect.match(sql`SELECT max(migration_id) AS last FROM ${sql.literal(quoted(migrations))}`, {
    onFailure: () => false,
    onSuccess: ([row]) => Number(row?.["last"] ?? 0) >= 1
  })
  const run = Migrator.make({})({
    table: migrations,
    loader: Migrator.fromRecord({ "0001_rows": rows })
  }).pipe(Effect.provideService(SqlClient.SqlClient, sql))
  return Effect.flatMap(isThere, (is) => is ? Effect.void : persistent(Effect.asVoid(run), millis))
}

const quoted = (table: string): string => table.split(".").map((name) => `"${name}"`).join(".")

const textOf = (value: unknown): string => {
  if (typeof value !== "string") throw new Problem(`expected a text in a column of the table, and got ${typeof value}`)
  return unescape(value)
}

const numberOf = (value: unknown): number => {
  const number = typeof value === "number" || typeof value === "bigint" || typeof value === "string"
    ? Number(value)
    : NaN
  if (Number.isNaN(number)) throw new Problem(`expected a number in a column of the table, and got ${typeof value}`)
  return number
}

const rowOf = (of: Readonly<Record<string, unknown>>): Row => ({
  kind: textOf(of["kind"]),
  id: textOf(of["full_id"] ?? of["id"]),
  tenant: textOf(of["tenant"]),
  group: textOf(of["group_name"]),
  digest: textOf(of["digest"]),
  state: textOf(of["state"]),
  owner: textOf(of["owner"]),
  leaseUntil: numberOf(of["lease_until"]),
  expiresAt: of["expires_at"] === null ? null : numberOf(of["expires_at"]),
  createdAt: numberOf(of["created_at"]),
  updatedAt: numberOf(of["updated_at"]),
  body: textOf(of["body"])
})

/** The id as the column `id` has it. */
const shortened = (escaped: string): Effect.Effect<string> =>
  escaped.length <= longestId
    ? Effect.succeed(escaped)
    : Effect.map(sha256(escaped), (hash) => `${head(escaped, longestId)}…${hash}`)

/** The steps over a client. What is made here was not made before, or is as it should be. */
export const make = (
  client: SqlClient.SqlClient,
  { table, timeout }: Options,
  openWithin: number
): Effect.Effect<Steps, unknown> =>
  Effect.gen(function*() {
    const sql = client.withoutTransforms()
    const dialect = sql.onDialectOrElse({ pg: () => "pg", sqlite: () => "sqlite", orElse: () => undefined })
    if (dialect === undefined) {
      return yield* Effect.fail(
        new Problem("expected a client of PostgreSQL or SQLite, and got one of another database")
      )
    }
    if (dialect === "sqlite" && table.includes(".")) {
      return yield* Effect.fail(new Problem(`SQLite has no schemas: expected a table without a dot, and got ${table}`))
    }
    // A step that took part in a caller's transaction would be undone with it, and nobody else would see it before.
    const alone = <A>(step: Effect.Effect<A, unknown>): Effect.Effect<A, unknown> =>
      Effect.updateContext(
        step,
        (context: Context.Context<never>) => Context.omit(sql.transactionService)(context) as Context.Context<never>
      )
    yield* alone(migrate(sql, table, openWithin))

    const own = sql.literal(quoted(table))
    const all = sql.literal(columns)
    const statement = <A>(step: Effect.Effect<A, unknown>): Effect.Effect<A, unknown> =>
      alone(persistent(step, timeout * 0.9))
    const read = (rows: ReadonlyArray<object>) =>
      parsed(() => rows.map((row) => rowOf(row as Readonly<Record<string, unknown>>)))

    const get: Steps["get"] = (kind, id) =>
      Effect.gen(function*() {
        const short = yield* shortened(escape(id))
        const rows = yield* statement(sql`SELECT ${all} FROM ${own} WHERE kind = ${escape(kind)} AND id = ${short}`)
        return (yield* read(rows))[0]
      })

    const valuesOf = (row: Row, short: string): Fragment => {
      const id = escape(row.id)
      return sql.csv([
        sql`${escape(row.kind)}`,
        sql`${short}`,
        sql`${id === short ? null : id}`,
        sql`${escape(row.tenant)}`,
        sql`${escape(row.group)}`,
        sql`${escape(row.digest)}`,
        sql`${escape(row.state)}`,
        sql`${escape(row.owner)}`,
        sql`${row.leaseUntil}`,
        sql`${row.expiresAt}`,
        sql`${row.createdAt}`,
        sql`${row.updatedAt}`,
        sql`${escape(row.body)}`
      ])
    }

    /** The row that is there; nothing where this one was put in; "again" where another was, and is not seen yet, or is gone. */
    type Inserted = ReadonlyArray<Row> | "again"

    const insertPg = (row: Row, short: string): Effect.Effect<Inserted, unknown> =>
      Effect.flatMap(
        statement(sql`WITH put AS (
  INSERT INTO ${own} (${all}) VALUES (${valuesOf(row, short)}) ON CONFLICT (kind, id) DO NOTHING RETURNING 1
)
SELECT (SELECT count(*) FROM put) AS put, there.* FROM (SELECT 1) AS one
LEFT JOIN ${own} AS there ON there.kind = ${escape(row.kind)} AND there.id = ${short}`),
        ([found]): Effect.Effect<Inserted, unknown> => {
          const { kind, put } = found as { readonly kind: unknown; readonly put: unknown }
          return Number(put) > 0
            ? Effect.succeed([])
            : kind === null
            ? Effect.succeed("again")
            : read([found!])
        }
      )

    const insertSqlite = (row: Row, short: string): Effect.Effect<Inserted, unknown> =>
      Effect.gen(function*() {
        const there = yield* get(row.kind, row.id)
        if (there !== undefined) return [there]
        const put = yield* statement(
          sql`INSERT INTO ${own} (${all}) VALUES (${
            valuesOf(row, short)
          }) ON CONFLICT (kind, id) DO NOTHING RETURNING 1 AS put`
        )
        return put.length > 0 ? [] : "again"
      })

    return {
      get,
      insert: (row) =>
        Effect.gen(function*() {
          const short = yield* shortened(escape(row.id))
          while (true) {
            const inserted = yield* (dialect === "pg" ? insertPg(row, short) : insertSqlite(row, short))
            if (inserted !== "again") return inserted[0]
          }
        }),
      change: (kind, id, expected, patch) =>
        Effect.gen(function*() {
          const short = yield* shortened(escape(id))
          const { leaseUntil, owner, state } = expected
          const where = sql.and([
            sql`kind = ${escape(kind)}`,
            sql`id = ${short}`,
            ...(state === undefined ? [] : [sql`state = ${escape(state)}`]),
            ...(owner === undefined ? [] : [sql`owner = ${escape(owner)}`]),
            ...(leaseUntil === undefined ? [] : [sql`lease_until = ${leaseUntil}`])
          ])
          if (patch === undefined) {
            return (yield* statement(sql`DELETE FROM ${own} WHERE ${where} RETURNING 1 AS done`)).length > 0
          }
          const sets = sql.csv([
            sql`updated_at = ${patch.updatedAt}`,
            ...(patch.state === undefined ? [] : [sql`state = ${escape(patch.state)}`]),
            ...(patch.owner === undefined ? [] : [sql`owner = ${escape(patch.owner)}`]),
            ...(patch.leaseUntil === undefined ? [] : [sql`lease_until = ${patch.leaseUntil}`]),
            ...(patch.expiresAt === undefined ? [] : [sql`expires_at = ${patch.expiresAt}`]),
            ...(patch.body === undefined ? [] : [sql`body = ${escape(patch.body)}`])
          ])
          return (yield* statement(sql`UPDATE ${own} SET ${sets} WHERE ${where} RETURNING 1 AS done`)).length > 0
        }),
      list: ({ after, group, kind, limit, state, tenant }) =>
        Effect.gen(function*() {
          const beginning = sql.literal(`1, ${indexed}`)
          const where = [sql`kind = ${escape(kind)}`]
          if (state !== undefined) where.push(sql`state = ${escape(state)}`)
          if (tenant !== undefined) {
            const text = escape(tenant)
            where.push(sql`substr(tenant, ${beginning}) = ${head(text, indexed)} AND tenant = ${text}`)
          }
          if (group !== undefined) {
            const text = escape(group)
            where.push(sql`substr(group_name, ${beginning}) = ${head(text, indexed)} AND group_name = ${text}`)
          }
          if (after !== undefined) where.push(sql`id > ${yield* shortened(escape(after))}`)
          const rows = yield* statement(
            sql`SELECT ${all} FROM ${own} WHERE ${sql.and(where)} ORDER BY id LIMIT ${limit}`
          )
          return yield* read(rows)
        }),
      expire: (now, most) =>
        Effect.map(
          statement(sql`DELETE FROM ${own} WHERE expires_at <= ${now} AND (kind, id) IN (
  SELECT kind, id FROM ${own} WHERE expires_at <= ${now} ORDER BY expires_at LIMIT ${most}
) RETURNING 1 AS gone`),
          (rows) => rows.length
        )
    }
  })
