/**
 * Rows that change in one atomic step: what `IdempotencyStore`, `TurnJournal` and `ParkedTurns` are kept in. A database that is
 * not here needs this one service, and has all three.
 *
 * A row has a kind, an id, a state, and an owner whose claim on it lasts until its lease is over. Nothing here knows what the
 * states mean.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

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
 * - each step is done whole or not at all, also when it fails or is interrupted;
 * - what a step has done is seen by every later step, of every process that shares the store;
 * - `list` gives rows in the order of their ids, by UTF-16 code units or by bytes, the same order each time;
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

const fits = (row: Row, { leaseUntil, owner, state }: Expected): boolean =>
  (state === undefined || row.state === state) && (owner === undefined || row.owner === owner) &&
  (leaseUntil === undefined || row.leaseUntil === leaseUntil)

const patched = (row: Row, patch: Patch): Row => ({
  ...row,
  ...Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined))
})

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
    list: ({ after, group, kind, limit, state, tenant }) =>
      Effect.sync(() =>
        Array.from(of(kind).values()).filter((row) =>
          (tenant === undefined || row.tenant === tenant) && (group === undefined || row.group === group) &&
          (state === undefined || row.state === state) && (after === undefined || row.id > after)
        ).sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, limit)
      ),
    expire: (now) =>
      Effect.sync(() => {
        let gone = 0
        for (const rows of kinds.values()) {
          for (const [id, row] of rows) {
            if (row.expiresAt !== null && row.expiresAt <= now && rows.delete(id)) gone++
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
