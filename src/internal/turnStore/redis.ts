/**
 * Rows in Redis, one hash for each, with sorted sets of ids to list them by. Every step is one script. All keys of a store have the
 * same hash tag, so that a cluster keeps them together.
 *
 * - `<base>row:<kind>:<id>`: a row, field by field;
 * - `<base>ids:<kind>`: the ids of a kind, in their order; `state:<kind>:<state>` and `group:<kind>:<group>`: some of them;
 * - `<base>expires`: `<kind>:<id>` of what may be forgotten, by when.
 */
import * as Effect from "effect/Effect"
import * as Redis from "effect/persistence/Redis"
import type { Query, Row } from "../../TurnStore.ts"
import { parsed, Problem, type Steps } from "./guard.ts"
import { escape, unescape } from "./text.ts"

/** What all scripts begin with. A row without its hash was evicted, or removed by hand: that is told, and is never "no row". */
const common = `
local base, kind, id = ARGV[1], ARGV[2], ARGV[3]
local expires = base .. 'expires'
local function rowOf(id) return base .. 'row:' .. kind .. ':' .. id end
local ids = base .. 'ids:' .. kind
local function byState(state) return base .. 'state:' .. kind .. ':' .. state end
local function byGroup(group) return base .. 'group:' .. kind .. ':' .. group end
local function lost(id)
  return redis.error_reply('LOST the row ' .. rowOf(id) .. ' is in the index, and its hash is gone')
end
local function isLost(id) return redis.call('ZSCORE', ids, id) ~= false end
local function remove(id)
  local old = redis.call('HMGET', rowOf(id), 'state', 'group')
  redis.call('DEL', rowOf(id))
  redis.call('ZREM', ids, id)
  redis.call('ZREM', expires, kind .. ':' .. id)
  if old[1] then redis.call('ZREM', byState(old[1]), id) end
  if old[2] then redis.call('ZREM', byGroup(old[2]), id) end
end
`

const getLua = `${common}
local row = redis.call('HGETALL', rowOf(id))
if #row == 0 and isLost(id) then return lost(id) end
return row
`

// After the id: state, group, expiresAt or '', and the fields.
const insertLua = `${common}
local row = redis.call('HGETALL', rowOf(id))
if #row > 0 then return row end
if isLost(id) then return lost(id) end
if ARGV[6] ~= '' then redis.call('ZADD', expires, ARGV[6], kind .. ':' .. id) end
for i = 7, #ARGV, 2 do redis.call('HSET', rowOf(id), ARGV[i], ARGV[i + 1]) end
redis.call('ZADD', ids, 0, id)
redis.call('ZADD', byState(ARGV[4]), 0, id)
redis.call('ZADD', byGroup(ARGV[5]), 0, id)
return {}
`

// After the id: how many fields are expected, those, and "remove" or "patch" with the fields.
const changeLua = `${common}
if redis.call('EXISTS', rowOf(id)) == 0 then
  if isLost(id) then return lost(id) end
  return 0
end
local at = 5
for i = 1, tonumber(ARGV[4]) do
  if redis.call('HGET', rowOf(id), ARGV[at]) ~= ARGV[at + 1] then return 0 end
  at = at + 2
end
if ARGV[at] == 'remove' then
  remove(id)
  return 1
end
for i = at + 1, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if field == 'expiresAt' then
    if value == '' then redis.call('ZREM', expires, kind .. ':' .. id)
    else redis.call('ZADD', expires, value, kind .. ':' .. id) end
  elseif field == 'state' then
    redis.call('ZREM', byState(redis.call('HGET', rowOf(id), 'state')), id)
    redis.call('ZADD', byState(value), 0, id)
  end
  redis.call('HSET', rowOf(id), field, value)
end
return 1
`

// Instead of an id: the least id, exclusive, or '-'; then how many to look at, how many to give, and '=' with a text or '' each for
// tenant, group and state. Gives whether there may be more, the last id that was looked at, and the rows.
const listLua = `${common}
local from, some, most = ARGV[3], ARGV[4], tonumber(ARGV[5])
local tenant, group, state = ARGV[6], ARGV[7], ARGV[8]
local index = ids
if state ~= '' then index = byState(string.sub(state, 2)) end
if group ~= '' then
  local groups = byGroup(string.sub(group, 2))
  if state == '' or redis.call('ZCARD', groups) < redis.call('ZCARD', index) then index = groups end
end
local found = redis.call('ZRANGEBYLEX', index, from, '+', 'LIMIT', 0, some)
local rows, last = {}, ''
for _, id in ipairs(found) do
  last = id
  local has = redis.call('HMGET', rowOf(id), 'tenant', 'group', 'state')
  if not has[1] then return lost(id) end
  if (tenant == '' or tenant == '=' .. has[1]) and (group == '' or group == '=' .. has[2]) and
    (state == '' or state == '=' .. has[3]) then
    rows[#rows + 1] = redis.call('HGETALL', rowOf(id))
    if #rows == most then break end
  end
end
return { (#found == tonumber(some) and #rows < most) and 1 or 0, last, rows }
`

// Instead of kind and id: now, and how many.
const expireLua = `
local now, some = ARGV[2], ARGV[3]
local members = redis.call('ZRANGEBYSCORE', ARGV[1] .. 'expires', '-inf', now, 'LIMIT', 0, some)
local base = ARGV[1]
for _, member in ipairs(members) do
  local split = string.find(member, ':', 1, true)
  local kind, id = string.sub(member, 1, split - 1), string.sub(member, split + 1)
  local row = base .. 'row:' .. kind .. ':' .. id
  local old = redis.call('HMGET', row, 'state', 'group')
  redis.call('DEL', row)
  redis.call('ZREM', base .. 'ids:' .. kind, id)
  redis.call('ZREM', base .. 'expires', member)
  if old[1] then redis.call('ZREM', base .. 'state:' .. kind .. ':' .. old[1], id) end
  if old[2] then redis.call('ZREM', base .. 'group:' .. kind .. ':' .. old[2], id) end
end
return #members
`

/** How many ids one script of a list looks at: others wait for it. */
const page = 100

const fields = (of: Partial<Row>): ReadonlyArray<string> =>
  Object.entries(of).flatMap(([field, value]) =>
    value === undefined ? [] : [field, value === null ? "" : typeof value === "number" ? String(value) : escape(value)]
  )

const rowOf = (reply: unknown): Row => {
  if (!Array.isArray(reply)) throw new Problem(`expected the fields of a row, and got ${typeof reply}`)
  const of = new Map<unknown, unknown>()
  for (let i = 0; i < reply.length; i += 2) of.set(reply[i], reply[i + 1])
  const text = (field: string): string => {
    const value = of.get(field)
    if (typeof value === "string") return unescape(value)
    throw new Problem(`expected the field "${field}" in the row ${String(of.get("id"))}`)
  }
  const number = (field: string): number => {
    const value = text(field)
    if (value !== "" && !Number.isNaN(Number(value))) return Number(value)
    throw new Problem(`expected a number in the field "${field}" of the row ${String(of.get("id"))}`)
  }
  return {
    kind: text("kind"),
    id: text("id"),
    tenant: text("tenant"),
    group: text("group"),
    digest: text("digest"),
    state: text("state"),
    owner: text("owner"),
    leaseUntil: number("leaseUntil"),
    expiresAt: text("expiresAt") === "" ? null : number("expiresAt"),
    createdAt: number("createdAt"),
    updatedAt: number("updatedAt"),
    body: text("body")
  }
}

/** A part of a key, in which a colon ends it. */
const part = (text: string): string => escape(text).replace(/[%:]/g, encodeURIComponent)

/** Where keys may be evicted, a reservation may be lost. */
const refuseEviction = (redis: Redis.Redis["Service"]): Effect.Effect<void, unknown> =>
  Effect.flatMap(
    // Who may not ask is not refused.
    Effect.orElseSucceed(redis.send<unknown>("INFO", "memory"), () => ""),
    (info) => {
      const of = (field: string) => new RegExp(`^${field}:(.*?)\\r?$`, "m").exec(String(info))?.[1]
      const policy = of("maxmemory_policy")
      return Number(of("maxmemory") ?? 0) > 0 && policy?.startsWith("allkeys") === true
        ? Effect.fail(
          new Problem(
            `it evicts keys when its memory is full (maxmemory-policy ${policy}), and a reservation must not be lost: ` +
              "set the policy to noeviction, or to one of volatile-*"
          )
        )
        : Effect.void
    }
  )

/** A server that is told to forget its scripts may forget one again before it is run: a step that was not run is run then. */
const remembered =
  <Result>(step: (...args: ReadonlyArray<string>) => Effect.Effect<Result, Redis.RedisError>): typeof step =>
  (...args) => Effect.retry(step(...args), { times: 2, while: (error) => String(error.cause).includes("NOSCRIPT") })

/** The steps over a client, all keys with a prefix. */
export const make = (redis: Redis.Redis["Service"], prefix: string): Effect.Effect<Steps, unknown> => {
  const base = /\{[^{}]+\}/.test(prefix) ? prefix : `{${prefix}}:`
  const script = <Result>(lua: string) =>
    Redis.script((...args: ReadonlyArray<string>) => args, { lua, numberOfKeys: 1 }).withReturnType<Result>()
  const get = remembered(redis.eval(script<unknown>(getLua)))
  const insert = remembered(redis.eval(script<unknown>(insertLua)))
  const change = remembered(redis.eval(script<number>(changeLua)))
  const list = remembered(
    redis.eval(script<readonly [more: number, last: string, rows: ReadonlyArray<unknown>]>(listLua))
  )
  const expire = remembered(redis.eval(script<number>(expireLua)))
  /** The key that says where in a cluster the script runs, and what all scripts begin with. */
  const begin = (kind: string, id: string) => [`${base}row:${kind}:${id}`, base, kind, id]

  const listPage = (query: Query, from: string, limit: number) => {
    const { group, state, tenant } = query
    const only = (text: string | undefined) => text === undefined ? "" : `=${escape(text)}`
    const kind = part(query.kind)
    return list(
      `${base}ids:${kind}`,
      base,
      kind,
      from,
      String(page),
      String(limit),
      only(tenant),
      only(group),
      only(state)
    )
  }

  return Effect.as(refuseEviction(redis), {
    get: (kind, id) =>
      Effect.flatMap(
        get(...begin(part(kind), escape(id))),
        (reply) => parsed(() => Array.isArray(reply) && reply.length === 0 ? undefined : rowOf(reply))
      ),
    insert: (row) =>
      Effect.flatMap(
        insert(
          ...begin(part(row.kind), escape(row.id)),
          escape(row.state),
          escape(row.group),
          row.expiresAt === null ? "" : String(row.expiresAt),
          ...fields(row)
        ),
        (reply) => parsed(() => Array.isArray(reply) && reply.length === 0 ? undefined : rowOf(reply))
      ),
    change: (kind, id, { leaseUntil, owner, state }, patch) => {
      const expected = fields({ ...{ leaseUntil, owner, state } as Partial<Row> })
      const then = patch === undefined ? ["remove"] : ["patch", ...fields(patch as Partial<Row>)]
      return Effect.map(
        change(...begin(part(kind), escape(id)), String(expected.length / 2), ...expected, ...then),
        (done) => Number(done) === 1
      )
    },
    list: (query) =>
      Effect.gen(function*() {
        const rows: Array<Row> = []
        let from = query.after === undefined ? "-" : `(${escape(query.after)}`
        while (true) {
          const [more, last, found] = yield* listPage(query, from, query.limit - rows.length)
          rows.push(...yield* parsed(() => found.map(rowOf)))
          if (Number(more) === 0) return rows
          from = `(${last}`
        }
      }),
    expire: (now, most) => Effect.map(expire(`${base}expires`, base, String(now), String(most)), Number)
  })
}
