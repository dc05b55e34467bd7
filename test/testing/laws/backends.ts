/** The services that are held to the laws of a keyed backend: the fake one, and real ones. */
import { NodeRedis } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { FakeBackend } from "effect-turn/testing"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import * as Layer from "effect/Layer"
import { Redis } from "effect/persistence"
import * as Queue from "effect/Queue"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { TestClock } from "effect/testing"
import { randomUUID } from "node:crypto"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import type { Address } from "../../utils/requires.ts"
import type { Answer, Asked, KeyedBackend, Make } from "./keyedBackend.ts"

/** Under a test clock; requests are held by their latency. */
export const fake = (more: FakeBackend.Options = {}): Make => ({ concurrency, holds }) =>
  Effect.map(
    FakeBackend.make({ ...more, concurrency, behaviour: { latency: holds ? "1 second" : 0 } }),
    (backend): KeyedBackend => ({
      request: (asked) => backend.request(asked),
      lookup: (key) => backend.lookup(key) as ReturnType<KeyedBackend["lookup"]>,
      effects: Effect.sync(() => backend.count()),
      entered: (requests) =>
        Effect.suspend(() => (backend.inFlight >= requests ? Effect.void : Effect.die("they are not there"))),
      open: TestClock.adjust("1 second")
    })
  )

/** Holds what enters until it is opened. */
const makeGate = (holds: boolean) =>
  Effect.gen(function*() {
    const arrivals = yield* Queue.unbounded<void>()
    const opened = yield* Deferred.make<void>()
    if (!holds) yield* Deferred.succeed(opened, undefined)
    return {
      enter: Effect.andThen(Queue.offer(arrivals, undefined), Deferred.await(opened)),
      entered: (requests: number) => Effect.asVoid(Queue.takeN(arrivals, requests)),
      open: Effect.asVoid(Deferred.succeed(opened, undefined))
    }
  })

const overLimit = (backend: string, allowed: number, seconds = 1) =>
  new FakeBackend.OverLimit({ backend, limit: "concurrency", allowed, retryAfter: Duration.seconds(seconds) })

const keyReused = (backend: string, key: string, expected: unknown, received: unknown) =>
  new FakeBackend.KeyReused({ backend, key, expected: JSON.stringify(expected), received: JSON.stringify(received) })

/** A server of this process behind a real socket: `Idempotency-Key`, 429 with `retry-after`, and 422 for a key that is reused. */
export const overHttp: Make = ({ concurrency, holds }) =>
  Effect.gen(function*() {
    const gate = yield* makeGate(holds)
    const byKey = new Map<string, Answer>()
    let effects = 0
    let inFlight = 0

    const respond = async (request: http.IncomingMessage, response: http.ServerResponse) => {
      const send = (status: number, body: unknown, headers: http.OutgoingHttpHeaders = {}) =>
        response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body))
      if (request.method === "GET") {
        const known = byKey.get(request.url?.slice(1) ?? "")
        return send(known === undefined ? 404 : 200, known ?? {})
      }
      if (inFlight >= concurrency) return send(429, {}, { "retry-after": "2" })
      inFlight++
      const chunks: Array<Buffer> = []
      for await (const chunk of request) chunks.push(chunk as Buffer)
      await Effect.runPromise(gate.enter)
      inFlight--
      const payload = JSON.parse(Buffer.concat(chunks).toString()) as Asked["payload"]
      const key = request.headers["idempotency-key"] as string | undefined
      const known = key === undefined ? undefined : byKey.get(key)
      if (known !== undefined) return send(Equal.equals(known.payload, payload) ? 200 : 422, known)
      const answer = { effect: ++effects, payload }
      if (key !== undefined) byKey.set(key, answer)
      return send(201, answer)
    }

    const server = yield* Effect.acquireRelease(
      Effect.callback<http.Server>((resume) => {
        const server = http.createServer((request, response) => {
          respond(request, response).catch((error: unknown) => response.destroy(error as Error))
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.callback<void>((resume) => {
          server.closeAllConnections()
          server.close(() => resume(Effect.void))
        })
    )
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

    const call = (path: string, init: RequestInit) =>
      Effect.promise(async (signal) => {
        const response = await fetch(`${url}${path}`, { ...init, signal })
        return { status: response.status, headers: response.headers, body: await response.json() as Answer }
      })
    return {
      request: ({ key, payload }) =>
        Effect.flatMap(
          call("/", {
            method: "POST",
            body: JSON.stringify(payload),
            headers: key === undefined ? {} : { "idempotency-key": key }
          }),
          ({ body, headers, status }): Effect.Effect<Answer, FakeBackend.Failure> => {
            if (status === 429) return Effect.fail(overLimit("http", concurrency, Number(headers.get("retry-after"))))
            if (status === 422) return Effect.fail(keyReused("http", key ?? "", body.payload, payload))
            return Effect.succeed(body)
          }
        ),
      lookup: (key) => Effect.map(call(`/${key}`, {}), ({ body, status }) => status === 200 ? body : undefined),
      effects: Effect.sync(() => effects),
      entered: gate.entered,
      open: gate.open
    }
  })

/** Builds a layer in the scope of the law, for one service of it. */
const connected = <I, S, E>(
  service: Context.Key<I, S>,
  layer: Layer.Layer<I, E>
): Effect.Effect<S, never, Scope.Scope> =>
  Effect.orDie(Effect.map(Layer.build(layer), (context) => Context.get(context as Context.Context<any>, service)))

/** Keys are a unique column; places are a counter in a row. Each service has a schema of its own. */
export const overPostgres = ({ host, port }: Address): Make => ({ concurrency, holds }) =>
  Effect.gen(function*() {
    const gate = yield* makeGate(holds)
    const sql = yield* connected(
      PgClient.PgClient,
      PgClient.layer({
        host,
        port,
        username: process.env["PGUSER"] ?? "postgres",
        password: Redacted.make(process.env["PGPASSWORD"] ?? "postgres"),
        database: process.env["PGDATABASE"] ?? "postgres"
      })
    )
    const schema = `effect_turn_${randomUUID().replaceAll("-", "")}`
    const effects = sql(`${schema}.effects`)
    const places = sql(`${schema}.places`)
    yield* Effect.acquireRelease(
      Effect.orDie(sql`CREATE SCHEMA ${sql(schema)}`),
      () => Effect.orDie(sql`DROP SCHEMA ${sql(schema)} CASCADE`)
    )
    yield* Effect.orDie(sql`CREATE TABLE ${effects} (effect serial, key text UNIQUE, payload jsonb NOT NULL)`)
    yield* Effect.orDie(sql`CREATE TABLE ${places} AS SELECT 0 AS taken`)

    const find = (key: string) =>
      sql<Answer>`SELECT effect, payload FROM ${effects} WHERE key = ${key}`.pipe(
        Effect.orDie,
        Effect.map(([row]) => row)
      )
    const land = Effect.fnUntraced(function*({ key, payload }: Asked) {
      const [row] = yield* Effect.orDie(
        sql<Answer>`INSERT INTO ${effects} (key, payload) VALUES (${key ?? null}, ${sql.json(payload)})
          ON CONFLICT (key) DO NOTHING RETURNING effect, payload`
      )
      if (row !== undefined || key === undefined) return row!
      const known = yield* find(key)
      return Equal.equals(known?.payload, payload) ? known! : yield* keyReused("postgres", key, known?.payload, payload)
    })
    const take = sql`UPDATE ${places} SET taken = taken + 1 WHERE taken < ${concurrency} RETURNING taken`
    return {
      request: (asked) =>
        Effect.acquireUseRelease(
          Effect.flatMap(
            Effect.orDie(take),
            (rows) => rows.length === 0 ? Effect.fail(overLimit("postgres", concurrency)) : Effect.void
          ),
          () => Effect.andThen(gate.enter, land(asked)),
          () => Effect.orDie(sql`UPDATE ${places} SET taken = taken - 1`)
        ),
      lookup: find,
      effects: sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM ${effects}`.pipe(
        Effect.orDie,
        Effect.map(([row]) => row!.n)
      ),
      entered: gate.entered,
      open: gate.open
    }
  })

/** Keys are records that one script writes together with the effect. Each service has a prefix of its own. */
export const overRedis = ({ host, port }: Address): Make => ({ concurrency, holds }) =>
  Effect.gen(function*() {
    const gate = yield* makeGate(holds)
    const redis = yield* connected(Redis.Redis, NodeRedis.layer({ socket: { host, port } }))
    const prefix = `effect-turn:${randomUUID()}`
    const [effects, places] = [`${prefix}:effects`, `${prefix}:places`]
    const send = <A>(command: string, ...args: ReadonlyArray<string>) => Effect.orDie(redis.send<A>(command, ...args))
    const run = <A>(lua: string, keys: ReadonlyArray<string>, ...args: ReadonlyArray<string>) =>
      send<A>("EVAL", lua, String(keys.length), ...keys, ...args)
    const recordOf = (key: string) => `${prefix}:key:${key}`
    yield* Effect.addFinalizer(() =>
      Effect.gen(function*() {
        const keys = yield* send<ReadonlyArray<string>>("KEYS", `${prefix}:*`)
        if (keys.length > 0) yield* send("DEL", ...keys)
      })
    )

    const take = run<number>(
      `if redis.call("INCR", KEYS[1]) <= tonumber(ARGV[1]) then return 1 end
       redis.call("DECR", KEYS[1])
       return 0`,
      [places],
      String(concurrency)
    )
    const land = Effect.fnUntraced(function*({ key, payload }: Asked) {
      const [effect, known] = yield* run<readonly [string, string]>(
        `local known = KEYS[2] and redis.call("HMGET", KEYS[2], "effect", "payload")
         if known and known[1] then return known end
         local effect = tostring(redis.call("INCR", KEYS[1]))
         if KEYS[2] then redis.call("HSET", KEYS[2], "effect", effect, "payload", ARGV[1]) end
         return { effect, ARGV[1] }`,
        key === undefined ? [effects] : [effects, recordOf(key)],
        JSON.stringify(payload)
      )
      const answer = { effect: Number(effect), payload: JSON.parse(known) as Answer["payload"] }
      return key === undefined || Equal.equals(answer.payload, payload)
        ? answer
        : yield* keyReused("redis", key, answer.payload, payload)
    })
    return {
      request: (asked) =>
        Effect.acquireUseRelease(
          Effect.flatMap(take, (taken) => taken === 1 ? Effect.void : Effect.fail(overLimit("redis", concurrency))),
          () => Effect.andThen(gate.enter, land(asked)),
          () => send("DECR", places)
        ),
      lookup: (key) =>
        Effect.map(
          send<readonly [string | null, string]>("HMGET", recordOf(key), "effect", "payload"),
          ([effect, payload]) =>
            effect === null ? undefined : { effect: Number(effect), payload: JSON.parse(payload) as Answer["payload"] }
        ),
      effects: Effect.map(send<string | null>("GET", effects), Number),
      entered: gate.entered,
      open: gate.open
    }
  })
