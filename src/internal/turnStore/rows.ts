/** What the laws of a store say of one row, and of rows in order. */
import type { Expected, Patch, Query, Row } from "../../TurnStore.ts"

export const fits = (row: Row, { leaseUntil, owner, state }: Expected): boolean =>
  (state === undefined || row.state === state) && (owner === undefined || row.owner === owner) &&
  (leaseUntil === undefined || row.leaseUntil === leaseUntil)

export const patched = (row: Row, patch: Patch): Row => ({
  ...row,
  ...Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined))
})

export const mayGo = (row: Row, now: number): boolean => row.expiresAt !== null && row.expiresAt <= now

/** The rows of a kind that are asked for, in the order of their ids by UTF-16 code units. */
export const listed = (rows: Iterable<Row>, { after, group, limit, state, tenant }: Query): ReadonlyArray<Row> =>
  Array.from(rows).filter((row) =>
    (tenant === undefined || row.tenant === tenant) && (group === undefined || row.group === group) &&
    (state === undefined || row.state === state) && (after === undefined || row.id > after)
  ).sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, limit)
