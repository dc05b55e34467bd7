import { assert, describe, it } from "@effect/vitest"
import { IdempotencyStore, ParkedTurns, TurnContext, TurnJournal, TurnStore } from "effect-turn"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { TestClock } from "effect/testing"
import * as fs from "node:fs"
import * as path from "node:path"
import { afterAll } from "vitest"
import { describeService } from "../utils/requires.ts"
import * as Stores from "../utils/stores.ts"
import { run } from "./program.ts"

const folder = Stores.temporaryFolder()
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

let files = 0
const newFile = () => path.join(folder, `${++files}.db`)

type Keys = IdempotencyStore.IdempotencyStore["Service"]

const of = (key: string, more?: Partial<IdempotencyStore.Key>): IdempotencyStore.Key => ({
  tenant: "north",
  conversation: "c-1",
  tool: "pay",
  key,
  ...more
})

const paid = (result: unknown) => ({
  position: 0,
  id: "c1",
  name: "pay",
  status: "ok" as const,
  started: true,
  effect: "applied" as const,
  retryable: false,
  result
})

const using = <A, E>(store: Layer.Layer<TurnStore.TurnStore, unknown>, use: (keys: Keys) => Effect.Effect<A, E>) =>
  Effect.flatMap(IdempotencyStore.IdempotencyStore, use).pipe(
    Effect.provide(Layer.provide(Layer.fresh(IdempotencyStore.layer()), store))
  )

const sqlite = (filename: string) => Layer.fresh(TurnStore.layerSqlite({ filename }))

/** One key in each state; two in doubt. */
const fill = (keys: Keys) =>
  Effect.gen(function*() {
    for (
      const [name, more] of [["applied", {}], ["broken", {}], ["whole", {
        tenant: "south",
        conversation: undefined
      }]] as const
    ) {
      const key = of(`order-${name}`, more as Partial<IdempotencyStore.Key>)
      yield* keys.reserve(key, { digest: "d", owner: "me" })
      if (name === "applied") yield* keys.settle(key, "me", paid({ booking: 17 }))
      else yield* keys.markUnknown(key, "me", "the connection broke")
    }
    yield* keys.reserve(of("order-running"), { digest: "d", owner: "me" })
  })

const filled = Effect.gen(function*() {
  const file = newFile()
  yield* using(sqlite(file), fill)
  return { file, store: ["--store", `sqlite:${file}`] }
})

const lines = (text: string) => text.split("\n").filter((line) => line !== "")
const listed = (store: ReadonlyArray<string>, ...more: ReadonlyArray<string>) =>
  Effect.map(
    run(["keys", "list", ...store, "--json", ...more]),
    ({ out }) => lines(out).map((line) => JSON.parse(line))
  )
const idOf = (store: ReadonlyArray<string>, key: string) =>
  Effect.map(listed(store, "--state", "all"), (all) => all.find((one) => one.key.key === key).id as string)

describe("keys list", () => {
  it.live("lists the keys in doubt as a table", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      const { code, err, out } = yield* run(["keys", "list", ...store])
      assert.strictEqual(code, 0)
      const [head, ...rows] = lines(out)
      assert.match(head!, /^id +state +since +tenant +conversation +tool +key +note$/)
      assert.deepStrictEqual(rows.map((row) => row.split(/ {2,}/).slice(1)).toSorted(), [
        ["unknown", "0 s", "north", "c-1", "pay", "order-broken", "the connection broke"],
        ["unknown", "0 s", "south", "-", "pay", "order-whole", "the connection broke"]
      ])
      assert.match(err, /^2 keys in doubt in sqlite:/)
    }))

  it.live("lists others, of a tenant, and no more than asked for; one JSON object a line with --json", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      const names = (...more: ReadonlyArray<string>) =>
        Effect.map(listed(store, ...more), (all) => all.map((one) => one.key.key).toSorted())
      assert.deepStrictEqual(yield* names(), ["order-broken", "order-whole"])
      assert.deepStrictEqual(yield* names("--tenant", "south"), ["order-whole"])
      assert.deepStrictEqual(yield* names("--state", "applied"), ["order-applied"])
      assert.deepStrictEqual(yield* names("--state", "reserved"), ["order-running"])
      assert.strictEqual((yield* names("--state", "all")).length, 4)
      const [one] = yield* listed(store, "--state", "applied")
      assert.deepStrictEqual([one.state, one.outcome.result, one.owner], ["applied", { booking: 17 }, "me"])
      const few = yield* run(["keys", "list", ...store, "--state", "all", "--limit", "3"])
      assert.strictEqual(lines(few.out).length, 4)
      assert.match(few.err, /^the first 3 keys in sqlite:.*: --limit N shows more$/)
      const none = yield* run(["keys", "list", ...store, "--tenant", "west"])
      assert.deepStrictEqual([none.code, none.out], [0, ""])
      assert.match(none.err, /^no keys in doubt in sqlite:.* of the tenant west$/)
    }))

  it.live("fits the terminal, and steers none", () =>
    Effect.gen(function*() {
      const { file, store } = yield* filled
      yield* using(sqlite(file), (keys) => {
        const key = of("\u001b[31mred\u0007\n" + "x".repeat(200), { tenant: "\u001b]0;title" })
        return Effect.andThen(keys.reserve(key, { digest: "d", owner: "me" }), keys.markUnknown(key, "me", "\u001b[2J"))
      })
      const { out } = yield* run(["keys", "list", ...store], { stdout: { columns: 80, rows: 30 } })
      const bare = out.replaceAll(/\u001b\[\d+m/g, "")
      assert.notMatch(bare, /[\u001b\u0007]/)
      for (const line of lines(bare)) assert.isAtMost(line.length, 80)
      assert.include(bare, "order-broken")
    }))

  it.live("keeps the tool and the key on a narrow terminal, and says what it leaves out", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      const { err, out } = yield* run(["keys", "list", ...store], { stdout: { columns: 50, rows: 30 } })
      const rows = lines(out.replaceAll(/\u001b\[\d+m/g, ""))
      assert.match(rows[0]!, /^id .* tool +key$/)
      assert.isTrue(rows.slice(1).every((row) => /pay {3}order-(broken|whole)$/.test(row)), out)
      assert.include(err, "too narrow for since, conversation, note: see effect-turn keys show ID, or --json")
    }))
})

describe("keys show", () => {
  it.live("shows one key, by the beginning of its id or by its parts", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      const id = yield* idOf(store, "order-applied")
      const { code, out } = yield* run(["keys", "show", id.slice(0, 6), ...store])
      assert.strictEqual(code, 0)
      for (
        const text of [`id            ${id}`, "state         applied", "key           order-applied", '{"booking":17}']
      ) {
        assert.include(out, text)
      }
      const whole = yield* run([
        "keys",
        "show",
        ...store,
        "--tenant",
        "south",
        "--tool",
        "pay",
        "--key",
        "order-whole",
        "--json"
      ])
      const shown = JSON.parse(whole.out)
      assert.deepStrictEqual([shown.key, shown.state, shown.note], [
        { tenant: "south", tool: "pay", key: "order-whole" },
        "unknown",
        "the connection broke"
      ])
      assert.strictEqual(shown.id, yield* idOf(store, "order-whole"))
    }))
})

describe("keys resolve", () => {
  it.live("says that a result is not checked, and checks it with --tools", () =>
    Effect.gen(function*() {
      const file = newFile()
      const put = of("put-1", { tool: "put" })
      const look = of("look-1", { tool: "look" })
      yield* using(sqlite(file), (keys) =>
        Effect.forEach([put, look, of("pay-1")], (key) =>
          Effect.andThen(
            keys.reserve(key, { digest: "d", owner: "me" }),
            keys.markUnknown(key, "me", "broke")
          )))
      const store = ["--store", `sqlite:${file}`]
      const resolve = (key: string, result: string, ...more: ReadonlyArray<string>) =>
        Effect.flatMap(
          idOf(store, key),
          (id) => run(["keys", "resolve", id, "--applied", "--result", result, "--yes", ...store, ...more])
        )
      const module = ["--tools", "test/fixtures/cli/tools.ts"]
      const refused: ReadonlyArray<readonly [key: string, result: string, words: ReadonlyArray<string>]> = [
        ["put-1", "17", ["does not fit the success schema of put: nothing was changed", "17: Expected string"]],
        ["look-1", '{"sen": "x"}', ["does not fit the success schema of look", '{"sen":"x"}: ', "seen"]],
        ["pay-1", "17", ["has no tool pay", "look, put, break, wait, whose"]]
      ]
      for (const [key, result, words] of refused) {
        const { code, err, out } = yield* resolve(key, result, ...module)
        assert.deepStrictEqual([code, out], [2, ""])
        for (const text of words) assert.include(err, text)
      }
      assert.strictEqual((yield* listed(store)).length, 3)
      const fits = yield* resolve("put-1", '"rec"', ...module)
      assert.strictEqual(fits.code, 0)
      assert.include(fits.err, 'with the result "rec": a call')
      assert.include(fits.err, "The result fits the success schema of put in test/fixtures/cli/tools.ts.")
      assert.include((yield* resolve("pay-1", "17")).err, "The result is not checked against the tool's success schema")
      assert.match((yield* run(["keys", "show", yield* idOf(store, "put-1"), ...store])).out, /result +"rec"/)
    }))

  it.live("corrects what was resolved by hand, and nothing else that was applied", () =>
    Effect.gen(function*() {
      const { file, store } = yield* filled
      const id = yield* idOf(store, "order-broken")
      const resolve = (...args: ReadonlyArray<string>) =>
        run(["keys", "resolve", id.slice(0, 6), "--applied", ...args, "--yes", ...store])
      assert.strictEqual((yield* resolve("--result", '"wrogn"')).code, 0)
      const { code, err } = yield* resolve("--result", '"wrong"')
      const entry = yield* using(sqlite(file), (keys) => keys.lookUp(of("order-broken")))
      assert.strictEqual(code, 0, err)
      assert.include(err, 'It was resolved by hand before, with the result "wrogn": calls may have been answered')
      assert.strictEqual(entry!.outcome!.result, "wrong")
    }))

  it.live("records what took effect, with its result: calls with the key are answered with it", () =>
    Effect.gen(function*() {
      const { file, store } = yield* filled
      const id = yield* idOf(store, "order-broken")
      const { code, err, out } = yield* run([
        "keys",
        "resolve",
        id,
        "--applied",
        "--result",
        '{"booking": 18}',
        "--yes",
        ...store
      ])
      assert.strictEqual(code, 0)
      assert.include(
        err,
        'order-broken of pay (tenant north, conversation c-1) will be recorded as applied with the result {"booking":18}'
      )
      assert.include(err, "is not run any more")
      assert.include(out, "is recorded as applied")
      const entry = yield* using(sqlite(file), (keys) => keys.lookUp(of("order-broken")))
      assert.deepStrictEqual([entry!.state, entry!.outcome!.result], ["applied", { booking: 18 }])
    }))

  it.live("frees what did not take effect, and says what that means", () =>
    Effect.gen(function*() {
      const { file, store } = yield* filled
      const args = ["--tenant", "south", "--tool", "pay", "--key", "order-whole", "--not-applied", "--yes", "--json"]
      const { code, err, out } = yield* run(["keys", "resolve", ...store, ...args])
      assert.strictEqual(code, 0)
      assert.include(err, "the next call with it is run. If the write did take effect, it takes effect twice.")
      assert.strictEqual(JSON.parse(out).state, "free")
      const key = of("order-whole", { tenant: "south" })
      const { conversation: _, ...whole } = key
      assert.isUndefined(yield* using(sqlite(file), (keys) => keys.lookUp(whole)))
    }))

  it.live("asks on a terminal, and takes yes for it", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      const id = yield* idOf(store, "order-broken")
      for (const answer of ["no\n", "\n", "", "y\n"]) {
        const asked = yield* run(["keys", "resolve", id, "--not-applied", ...store], { terminal: true, stdin: answer })
        assert.deepStrictEqual([asked.code, asked.out], [2, ""])
        assert.include(asked.err, "Type yes to go on:")
        assert.include(asked.err, "not resolved: nothing was changed")
      }
      assert.strictEqual((yield* listed(store)).length, 2)
      const done = yield* run(["keys", "resolve", id, "--not-applied", ...store], { terminal: true, stdin: "Yes\n" })
      assert.strictEqual(done.code, 0)
      assert.strictEqual((yield* listed(store)).length, 1)
    }))
})

describe("misuse of keys exits 2, changes nothing, and says what to do", () => {
  const bad: ReadonlyArray<readonly [string, ReadonlyArray<string>, ReadonlyArray<string>]> = [
    ["no command", ["lisp"], ["list, show, resolve or expire", "did you mean list?"]],
    ["no store", ["list"], ["needs --store", "got       no --store"]],
    ["a store of no kind", ["list", "--store", "turns.db"], ["sqlite:FILE, postgres://"]],
    ["a file that is not there", ["list", "--store", "sqlite:nowhere.db"], ["no such file: nowhere.db"]],
    ["a file that is not named", ["list", "--store", "sqlite:"], ["sqlite: without a path", "sqlite:./turns.db"]],
    ["a folder", ["list", "--store", "sqlite:src"], ["no file: src"]],
    ["a file of something else", ["list", "--store", "sqlite:package.json"], ["not a database", "check the path"]],
    ["a database that is not there", ["list", "--store", "postgres://me:secret@127.0.0.1:1/shop"], [
      "cannot open the store postgres://127.0.0.1:1/shop",
      "ECONNREFUSED",
      "check that it is up"
    ]],
    ["a Redis that is not there", ["list", "--store", "redis://:secret@127.0.0.1:1"], [
      "redis://127.0.0.1:1",
      "ECONNREFUSED"
    ]],
    ["a prefix of a table", ["list", "--store", "sqlite:a.db", "--prefix", "x"], ["--prefix with redis"]],
    ["a table of Redis", ["list", "--store", "redis://127.0.0.1", "--table", "x"], [
      "--table with sqlite and postgres"
    ]],
    ["a state that is none", ["list", "--store", "sqlite:a.db", "--state", "lost"], ["--state"]],
    ["no limit", ["list", "--store", "sqlite:a.db", "--limit", "0"], ["a whole number from 1"]]
  ]
  for (const [name, args, expected] of bad) {
    it.live(name, () =>
      Effect.gen(function*() {
        const { code, err, out } = yield* run(["keys", ...args])
        assert.deepStrictEqual([code, out], [2, ""])
        for (const text of expected) assert.include(err, text)
        assert.notInclude(err, "secret")
        assert.match(err, /^effect-turn: .*\n {2}expected .*\n {2}got .*\n {2}do /s)
      }))
  }

  it.live("a key that is not meant, not there, or not in doubt", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      const applied = yield* idOf(store, "order-applied")
      const running = yield* idOf(store, "order-running")
      const broken = yield* idOf(store, "order-broken")
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
        [["show"], "the ID that effect-turn keys list shows"],
        [["show", "--tool", "pay"], "got       --tool"],
        [["show", "--key", "order-broken"], 'say --tenant too, unless it is "default"'],
        [
          ["show", "--tool", "pay", "--key", "order-broken", "--conversation", "c-1"],
          'without --tenant it is the tenant "default" that is looked in'
        ],
        [["resolve", broken, "--not-applied", "--tools", "tools.ts"], "--tools without --result"],
        [["resolve", broken, "--applied", "--tools", "tools.ts"], "--tools without --result"],
        [["show", broken, "--key", "x"], "an ID, or the parts of a key"],
        [["show", "xyz"], "its first 4 characters or more"],
        [["show", broken.startsWith("0000") ? "1111" : "0000"], "has no key with the ID"],
        [["show", "--tool", "pay", "--key", "nope"], "a key that is free"],
        [["resolve", broken], "either --applied or --not-applied"],
        [["resolve", broken, "--applied", "--not-applied"], "got       both"],
        [["resolve", broken, "--not-applied", "--result", "1"], "--result without --applied"],
        [["resolve", broken, "--applied", "--result", "{booking: 17}"], "--result is not JSON"],
        [["resolve", broken, "--applied"], "say --yes where nobody can be asked"],
        [["resolve", applied, "--not-applied", "--yes"], "a key that is applied"],
        [["resolve", running, "--not-applied", "--yes"], "it is being run: if it is not heard of again"]
      ]
      for (const [args, expected] of cases) {
        const { code, err, out } = yield* run(["keys", ...args, ...store])
        assert.deepStrictEqual([code, out], [2, ""], args.join(" "))
        assert.include(err, expected)
      }
      assert.strictEqual((yield* listed(store)).length, 2)
    }))

  it.live("a table that is not there is not made", () =>
    Effect.gen(function*() {
      const { store } = yield* filled
      for (let i = 0; i < 2; i++) {
        const { code, err } = yield* run(["keys", "list", ...store, "--table", "effect_turn_row"])
        assert.strictEqual(code, 2)
        assert.include(err, "a table effect_turn_row")
      }
    }))
})

describe("keys in order", () => {
  /** Keys in doubt since one minute after the other; their names say which is older. */
  const aged = (filename: string, names: ReadonlyArray<string>) =>
    using(sqlite(filename), (keys) =>
      Effect.forEach(names, (name, i) =>
        Effect.gen(function*() {
          yield* TestClock.setTime(1_700_000_000_000 + i * 60_000)
          yield* keys.reserve(of(name), { digest: "d", owner: "me" })
          yield* keys.markUnknown(of(name), "me", "broke")
        }))).pipe(Effect.provide(TestClock.layer()))

  it.live("lists those in doubt oldest first, and the oldest of them with --limit", () =>
    Effect.gen(function*() {
      const file = newFile()
      // Neither by their names, nor by their ids.
      const names = ["m", "z", "a", "k", "b", "y"]
      yield* aged(file, names)
      const store = ["--store", `sqlite:${file}`]
      const listedNames = (...more: ReadonlyArray<string>) =>
        Effect.map(listed(store, ...more), (all) => all.map((one) => one.key.key))
      assert.deepStrictEqual(yield* listedNames(), names)
      assert.deepStrictEqual(yield* listedNames("--limit", "2"), ["m", "z"])
      assert.deepStrictEqual(yield* listedNames("--state", "all", "--limit", "2"), ["a", "b"])
      const words = (...more: ReadonlyArray<string>) =>
        Effect.map(
          run(["keys", "list", ...store, ...more]),
          ({ err }) => err.replace(/ in sqlite:\S+ \(table \S+\)/, "")
        )
      assert.strictEqual(yield* words(), "6 keys in doubt, oldest first")
      assert.strictEqual(yield* words("--limit", "2"), "the 2 oldest of 6 keys in doubt: --limit N shows more")
      assert.strictEqual(yield* words("--limit", "1"), "the oldest of 6 keys in doubt: --limit N shows more")
      assert.strictEqual(yield* words("--state", "all"), "6 keys, in the store's own order")
      assert.strictEqual(
        yield* words("--state", "all", "--limit", "1"),
        "the first key, in the store's own order: --limit N shows more"
      )
    }))

  it.live("lists those that are being run oldest first, lost ones with those in doubt", () =>
    Effect.gen(function*() {
      const file = newFile()
      yield* aged(file, ["b"])
      yield* using(sqlite(file), (keys) => keys.reserve(of("a"), { digest: "d", owner: "me" })).pipe(
        Effect.provide(TestClock.layer())
      )
      assert.deepStrictEqual((yield* listed(["--store", `sqlite:${file}`])).map((one) => one.key.key), ["a", "b"])
    }))
})

describe("keys expire", () => {
  it.live("forgets what is kept no longer, and says how many rows that were; what is in doubt stays", () =>
    Effect.gen(function*() {
      const { file, store } = yield* filled
      assert.match((yield* run(["keys", "expire", ...store])).out, /^0 rows forgotten in sqlite:/)
      yield* using(sqlite(file), (keys) =>
        Effect.forEach(["old-1", "old-2", "old-3"], (name) =>
          Effect.andThen(
            keys.reserve(of(name), { digest: "d", owner: "me" }),
            keys.settle(of(name), "me", paid(1))
          ))).pipe(Effect.provide(TestClock.layer()))
      const { code, err, out } = yield* run(["keys", "expire", ...store])
      assert.deepStrictEqual([code, err], [0, ""])
      assert.match(out, /^3 rows forgotten in sqlite:.* \(table effect_turn_rows\)$/)
      assert.deepStrictEqual(JSON.parse((yield* run(["keys", "expire", ...store, "--json"])).out), { forgotten: 0 })
      const left = (yield* listed(store, "--state", "all")).map((one) => one.key.key)
      assert.deepStrictEqual(left.toSorted(), ["order-applied", "order-broken", "order-running", "order-whole"])
    }))
})

describe("a store with nothing at all in it", () => {
  const empty = Effect.gen(function*() {
    const file = newFile()
    yield* using(sqlite(file), () => Effect.void)
    return { file, store: ["--store", `sqlite:${file}`] }
  })
  const warning = /there is nothing at all in sqlite:.* \(table effect_turn_rows\): check --table/

  it.live("is told as a warning, wherever a key is looked for", () =>
    Effect.gen(function*() {
      const { store } = yield* empty
      const none = yield* run(["keys", "list", ...store])
      assert.strictEqual(none.code, 0)
      assert.match(none.err, /^no keys in doubt in sqlite:.* \(table effect_turn_rows\)\nwarning: /)
      assert.match(none.err, warning)
      assert.match((yield* run(["keys", "list", ...store, "--json"])).err, warning)
      assert.match((yield* run(["keys", "expire", ...store])).err, warning)
      for (const which of [["0000"], ["--tenant", "north", "--tool", "pay", "--key", "x"]]) {
        const { code, err } = yield* run(["keys", "show", ...which, ...store])
        assert.strictEqual(code, 2)
        assert.match(err, warning)
      }
    }))

  it.live("is not one that has rows of another kind, or keys of another state", () =>
    Effect.gen(function*() {
      const saved = Layer.provideMerge(
        Layer.merge(TurnJournal.layer(), ParkedTurns.layer()),
        Layer.succeed(TurnContext.Tenant, "north")
      )
      const parked = { _tag: "Note", version: 2, tenant: "north", turn: "t-1" }
      const call = {
        tenant: "north",
        conversation: undefined,
        turn: "t-1",
        position: 0,
        id: "c1",
        tool: "pay",
        digest: "d",
        idempotencyKey: undefined
      }
      const others = [
        Effect.flatMap(TurnJournal.TurnJournal, (journal) => journal.reserve(call, { owner: "me" })),
        Effect.flatMap(ParkedTurns.ParkedTurns, (turns) => turns.save(parked))
      ]
      for (const other of others) {
        const { file, store } = yield* empty
        yield* Effect.provide(other as Effect.Effect<unknown, unknown, never>, Layer.provide(saved, sqlite(file)))
        const { err } = yield* run(["keys", "list", ...store])
        assert.match(err, /^no keys in doubt in /)
        assert.notInclude(err, "nothing at all")
      }
      const { store } = yield* filled
      assert.notInclude((yield* run(["keys", "list", ...store, "--tenant", "west"])).err, "nothing at all")
    }))
})

const onService = (place: Stores.Place, store: ReadonlyArray<string>) => {
  afterAll(() => place.clear())
  it.live("lists, shows and resolves", () =>
    Effect.gen(function*() {
      yield* using(place.layer, fill)
      const [first] = yield* listed(store, "--tenant", "north")
      assert.strictEqual(first.key.key, "order-broken")
      assert.include((yield* run(["keys", "show", first.id, ...store])).out, "order-broken")
      const { code } = yield* run(["keys", "resolve", first.id, "--applied", "--yes", ...store])
      assert.strictEqual(code, 0)
      assert.strictEqual((yield* using(place.layer, (keys) => keys.lookUp(of("order-broken"))))!.state, "applied")
    }))
}

await describeService("keys in PostgreSQL", "PostgreSQL", (address) => {
  const table = Stores.ownName()
  const user = process.env["PGUSER"] ?? "postgres"
  const url = `postgres://${user}@${address.host}:${address.port}/${process.env["PGDATABASE"] ?? "postgres"}`
  onService(
    {
      ...Stores.postgres(address),
      layer: Layer.fresh(TurnStore.layerSql({ table })).pipe(Layer.provide(Stores.pgClient(address))),
      clear: () => Stores.dropTables(address, table)
    },
    ["--store", url, "--table", table]
  )
  it.live("a table that is not there is not made", () =>
    Effect.gen(function*() {
      for (let i = 0; i < 2; i++) {
        const { code, err } = yield* run(["keys", "list", "--store", url, "--table", `${table}_not`])
        assert.strictEqual(code, 2)
        assert.include(err, `a table ${table}_not`)
      }
    }))
})

await describeService("keys in Redis", "Redis", (address) => {
  const prefix = Stores.ownName()
  onService(
    {
      ...Stores.redis(address),
      layer: Layer.fresh(TurnStore.layerRedis({ prefix })).pipe(Layer.provide(Stores.redisClient(address))),
      clear: () => Stores.deleteKeys(address, prefix)
    },
    ["--store", `redis://${address.host}:${address.port}`, "--prefix", prefix]
  )
  it.live("names the prefix under which it has looked, and warns where there is nothing", () =>
    Effect.gen(function*() {
      const store = ["--store", `redis://${address.host}:${address.port}`]
      const { code, err } = yield* run(["keys", "list", ...store, "--prefix", `${prefix}-not`])
      assert.strictEqual(code, 0)
      const place = `redis://${address.host}:${address.port} (prefix ${prefix}-not)`
      assert.strictEqual(
        err,
        `no keys in doubt in ${place}\nwarning: there is nothing at all in ${place}: ` +
          "check --prefix, which has to be as the program gives it to TurnStore"
      )
      assert.include((yield* run(["keys", "list", ...store, "--tenant", prefix])).err, "(prefix effect-turn)")
    }))
})
