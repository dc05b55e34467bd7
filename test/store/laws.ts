/** The laws of `TurnStore`, as its description has them, for any layer. */
import { afterAll, assert, describe, it } from "@effect/vitest"
import * as Arbitrary from "effect/Arbitrary"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as TurnStore from "../../src/TurnStore.ts"
import { int, pick, runs } from "../utils/gen.ts"
import type { Place } from "../utils/stores.ts"

type Store = TurnStore.TurnStore["Service"]

let kinds = 0

/** A kind that no other test has, for places that several share. */
const newKind = (): string => `kind-${process.pid}-${++kinds}`

const rowOf = (kind: string, id: string, of: Partial<TurnStore.Row> = {}): TurnStore.Row => ({
  kind,
  id,
  tenant: "t",
  group: "g",
  digest: "d",
  state: "reserved",
  owner: "o",
  leaseUntil: 0,
  expiresAt: null,
  createdAt: 1,
  updatedAt: 1,
  body: "{}",
  ...of
})

const purge = (store: Store, kind: string) =>
  Effect.flatMap(
    store.list({ kind, limit: 10_000 }),
    (rows) => Effect.forEach(rows, ({ id }) => store.change(kind, id, {}, undefined), { discard: true })
  ).pipe(Effect.orDie)

const encoder = new TextEncoder()
const byBytes = (a: string, b: string): number => Buffer.compare(encoder.encode(a), encoder.encode(b))
const byUnits = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** Texts that stores are known to lose. */
const oddTexts: ReadonlyArray<string> = [
  "",
  " ",
  " padded ",
  'it\'s "quoted" \\ and \\\\ and `ticked`',
  "'; DROP TABLE effect_turn_rows; --",
  "%s $1 ? :name {} {{}} *",
  "tab\tline\nreturn\r\n",
  "\u0000",
  "a\u0000b\u0000",
  "\u0001\u00010000 \ue000\ue000d800 \\u0000",
  "\u0001",
  "\ue000",
  "\ufffd\ufeffbom",
  "\ufefffirst",
  "é e\u0301 ß ẞ İ ı",
  "日本語 العربية 👩‍👩‍👧‍👦 𝒳",
  "\ud800",
  "\udc00",
  "\udc00\ud800",
  "x\ud83dy\ude00z",
  "null",
  "undefined",
  "NaN",
  "-0",
  "1e999",
  "true",
  "[]",
  "__proto__",
  "constructor",
  "a:b:c%3A",
  "../../etc/passwd",
  "CON",
  "case",
  "CASE"
]

interface Step {
  readonly what: "insert" | "insert" | "change" | "remove" | "get" | "list" | "expire"
  readonly kind: number
  readonly id: string
  readonly state: string
  readonly owner: string
  readonly group: string
  readonly number: number
  readonly mask: number
}

const step: Arbitrary.Arbitrary<Step> = Arbitrary.all({
  what: pick("insert", "insert", "change", "remove", "get", "list", "expire"),
  kind: int(0, 1),
  id: pick("a", "b", "ab", "A", "é", "\u0000", "\u0001x", "a:b", ""),
  state: pick("reserved", "applied", "unknown"),
  owner: pick("", "o", "p"),
  group: pick("g", "h"),
  number: int(0, 3),
  mask: int(0, 63)
})

const bit = (mask: number, n: number): boolean => (mask & (1 << n)) !== 0

/** Does one step, and says all that can be seen of it. */
const take = (store: Store, kind: string, step: Step, n: number): Effect.Effect<unknown, TurnStore.StoreError> => {
  const { group, id, mask, number, owner, state, what } = step
  const expected = {
    state: bit(mask, 0) ? state : undefined,
    owner: bit(mask, 1) ? owner : undefined,
    leaseUntil: bit(mask, 2) ? number : undefined
  }
  const told = (row: TurnStore.Row | undefined) => row === undefined ? undefined : { ...row, kind: "" }
  switch (what) {
    case "insert":
      return Effect.map(
        store.insert(rowOf(kind, id, {
          tenant: owner,
          group,
          state,
          owner,
          leaseUntil: number,
          expiresAt: bit(mask, 3) ? number : null,
          createdAt: n,
          updatedAt: n,
          body: `${n}`
        })),
        told
      )
    case "change":
      return store.change(kind, id, expected, {
        updatedAt: n,
        state: bit(mask, 3) ? pickState(state) : undefined,
        owner: bit(mask, 4) ? `${owner}!` : undefined,
        leaseUntil: bit(mask, 5) ? number + 1 : undefined,
        expiresAt: bit(mask, 3) ? (bit(mask, 4) ? null : number + 1) : undefined,
        body: bit(mask, 5) ? `${n}` : undefined
      })
    case "remove":
      return store.change(kind, id, expected, undefined)
    case "get":
      return Effect.map(store.get(kind, id), told)
    case "list":
      return Effect.map(
        store.list({
          kind,
          state: bit(mask, 0) ? state : undefined,
          tenant: bit(mask, 1) ? owner : undefined,
          group: bit(mask, 2) ? group : undefined,
          after: bit(mask, 3) ? id : undefined,
          limit: bit(mask, 4) ? number : 100
        }),
        (rows) => rows.map(told)
      )
    case "expire":
      return store.expire(number)
  }
}

const pickState = (state: string): string => (state === "reserved" ? "applied" : "reserved")

const memoryStore = Effect.map(Layer.build(Layer.fresh(TurnStore.layerMemory)), Context.get(TurnStore.TurnStore))

/** All ways to shuffle two lists into one, each keeping its order. */
const interleavings = <A>(a: ReadonlyArray<A>, b: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  a.length === 0 ? [b] : b.length === 0 ? [a] : [
    ...interleavings(a.slice(1), b).map((rest) => [a[0]!, ...rest]),
    ...interleavings(a, b.slice(1)).map((rest) => [b[0]!, ...rest])
  ]

/** Registers the laws of a place. */
export const laws = (place: Place): void => {
  describe(`the laws, over ${place.name}`, () => {
    afterAll(() => place.clear())

    const withStore = <A, E>(use: (store: Store, kind: string) => Effect.Effect<A, E>) =>
      Effect.gen(function*() {
        const store = yield* TurnStore.TurnStore
        const kind = newKind()
        return yield* Effect.ensuring(use(store, kind), purge(store, kind))
      }).pipe(Effect.provide(place.layer))

    const law = <A, E>(name: string, use: (store: Store, kind: string) => Effect.Effect<A, E>) =>
      it.live(name, () => withStore(use))

    law(
      "insert puts a row in where there is none, and otherwise gives the one that is there",
      (store, kind) =>
        Effect.gen(function*() {
          const row = rowOf(kind, "a", { expiresAt: 1_000, leaseUntil: 2_000.5, createdAt: 1_764_500_000_000 })
          assert.isUndefined(yield* store.get(kind, "a"))
          assert.isUndefined(yield* store.insert(row))
          assert.deepStrictEqual(yield* store.get(kind, "a"), row)
          assert.deepStrictEqual(yield* store.insert(rowOf(kind, "a", { state: "other", body: "other" })), row)
          assert.deepStrictEqual(yield* store.get(kind, "a"), row)
          // Of another kind, or another id, it is another row.
          const other = newKind()
          assert.isUndefined(yield* store.insert(rowOf(other, "a")))
          assert.isUndefined(yield* store.insert(rowOf(kind, "A")))
          assert.isTrue(yield* store.change(other, "a", {}, undefined))
          assert.deepStrictEqual(yield* store.get(kind, "a"), row)
        })
    )

    law("change patches a row that is as expected, and nothing else", (store, kind) =>
      Effect.gen(function*() {
        assert.isFalse(yield* store.change(kind, "a", {}, { updatedAt: 2 }))
        const row = rowOf(kind, "a", { leaseUntil: 50, expiresAt: 7 })
        const neighbour = rowOf(kind, "b")
        yield* store.insert(row)
        yield* store.insert(neighbour)
        for (const expected of [{ state: "x" }, { owner: "x" }, { leaseUntil: 51 }, { state: "reserved", owner: "" }]) {
          assert.isFalse(yield* store.change(kind, "a", expected, { updatedAt: 2, body: "no" }))
          assert.isFalse(yield* store.change(kind, "a", expected, undefined))
        }
        assert.deepStrictEqual(yield* store.get(kind, "a"), row)
        assert.isTrue(
          yield* store.change(kind, "a", { state: "reserved", owner: "o", leaseUntil: 50 }, { updatedAt: 2 })
        )
        assert.deepStrictEqual(yield* store.get(kind, "a"), { ...row, updatedAt: 2 })
        const patch = { state: "s", owner: "", leaseUntil: 1.25, expiresAt: null, updatedAt: 3, body: "b" }
        assert.isTrue(yield* store.change(kind, "a", {}, patch))
        assert.deepStrictEqual(yield* store.get(kind, "a"), { ...row, ...patch })
        assert.isTrue(yield* store.change(kind, "a", { state: "s" }, undefined))
        assert.isUndefined(yield* store.get(kind, "a"))
        assert.isFalse(yield* store.change(kind, "a", {}, undefined))
        assert.deepStrictEqual(yield* store.get(kind, "b"), neighbour)
      }))

    law("list gives rows in the order of their ids, page by page", (store, kind) =>
      Effect.gen(function*() {
        const ids = [
          "b",
          "a",
          "",
          "aa",
          "B",
          "é",
          "z",
          "\uffff",
          "𝒳",
          "\u0000",
          "\u0001",
          "\ue000",
          "\ud7ff",
          "10",
          "9"
        ]
        ids.push(...Array.from({ length: 230 }, (_, i) => `n${(i * 7919) % 1000}`))
        yield* Effect.forEach(ids, (id) => store.insert(rowOf(kind, id)), { concurrency: 8 })
        const sorted = ids.slice().sort(place.order === "bytes" ? byBytes : byUnits)
        const list = (query: Partial<TurnStore.Query>) =>
          Effect.map(store.list({ kind, limit: 1_000, ...query }), (rows) => rows.map(({ id }) => id))
        assert.deepStrictEqual(yield* list({}), sorted)
        assert.deepStrictEqual(yield* list({ limit: 3 }), sorted.slice(0, 3))
        assert.deepStrictEqual(yield* list({ limit: 0 }), [])
        assert.deepStrictEqual(yield* list({ limit: Infinity }), sorted)
        const pages: Array<string> = []
        let after: string | undefined
        while (true) {
          const page: ReadonlyArray<string> = yield* list({ after, limit: 40 })
          pages.push(...page)
          if (page.length < 40) break
          after = page.at(-1)
        }
        assert.deepStrictEqual(pages, sorted)
        assert.deepStrictEqual(yield* list({ after: sorted.at(-1) }), [])
        // What comes after an id that is not there.
        assert.deepStrictEqual(
          yield* list({ after: "n5_" }),
          sorted.slice(sorted.findIndex((id) => id > "n5_" && id > "n5"))
        )
      }))

    law("list gives those of a tenant, a group, a state", (store, kind) =>
      Effect.gen(function*() {
        const rows: Array<TurnStore.Row> = []
        for (const tenant of ["t", "u", "T".repeat(500), `${"T".repeat(499)}U`]) {
          for (const group of ["g", "h", ""]) {
            for (const state of ["s", "r"]) rows.push(rowOf(kind, `${rows.length + 10}`, { tenant, group, state }))
          }
        }
        yield* Effect.forEach(rows, store.insert, { concurrency: 8 })
        let compared = 0
        for (const tenant of [undefined, "t", "u", "T".repeat(500), `${"T".repeat(499)}U`, "nobody"]) {
          for (const group of [undefined, "g", "h", ""]) {
            for (const state of [undefined, "s", "r", "x"]) {
              const fitting = rows.filter((row) =>
                (tenant === undefined || row.tenant === tenant) && (group === undefined || row.group === group) &&
                (state === undefined || row.state === state)
              )
              assert.deepStrictEqual(yield* store.list({ kind, tenant, group, state, limit: 100 }), fitting)
              assert.deepStrictEqual(
                yield* store.list({ kind, tenant, group, state, after: "20", limit: 2 }),
                fitting.filter(({ id }) => id > "20").slice(0, 2)
              )
              compared++
            }
          }
        }
        assert.strictEqual(compared, 96)
        // A row that changes its state is listed with the others of its new one.
        assert.isTrue(yield* store.change(kind, "10", {}, { state: "x", updatedAt: 2 }))
        assert.deepStrictEqual((yield* store.list({ kind, state: "x", limit: 9 })).map(({ id }) => id), ["10"])
        assert.notInclude((yield* store.list({ kind, state: "s", limit: 99 })).map(({ id }) => id), "10")
      }))

    law("expire removes what may be forgotten by then", (store, kind) =>
      Effect.gen(function*() {
        yield* store.expire(100)
        yield* store.insert(rowOf(kind, "never"))
        yield* store.insert(rowOf(kind, "1", { expiresAt: 1 }))
        yield* store.insert(rowOf(kind, "2", { expiresAt: 2, group: "h", state: "x" }))
        yield* store.insert(rowOf(kind, "3", { expiresAt: 3 }))
        yield* store.insert(rowOf(kind, "kept", { expiresAt: 2 }))
        yield* store.insert(rowOf(kind, "later", { expiresAt: null }))
        yield* store.change(kind, "kept", {}, { expiresAt: null, updatedAt: 1 })
        yield* store.change(kind, "later", {}, { expiresAt: 2.5, updatedAt: 1 })
        const left = Effect.map(store.list({ kind, limit: 100 }), (rows) => rows.map(({ id }) => id))
        assert.strictEqual(yield* store.expire(0.5), 0)
        assert.strictEqual(yield* store.expire(2), 2)
        assert.deepStrictEqual(yield* left, ["3", "kept", "later", "never"])
        assert.isUndefined(yield* store.get(kind, "2"))
        assert.deepStrictEqual(yield* store.list({ kind, state: "x", limit: 9 }), [])
        assert.isUndefined(yield* store.insert(rowOf(kind, "2")))
        assert.strictEqual(yield* store.expire(3), 2)
        assert.strictEqual(yield* store.expire(1e15), 0)
        assert.deepStrictEqual(yield* left, ["2", "kept", "never"])
      }))

    law("texts come back as they were, whatever they hold", (store, kind) =>
      Effect.gen(function*() {
        const rows: Array<TurnStore.Row> = oddTexts.map((text) =>
          rowOf(kind, text, { tenant: text, group: text, digest: text, state: text, owner: text, body: text })
        )
        for (const row of rows) assert.isUndefined(yield* store.insert(row), JSON.stringify(row.id))
        for (const row of rows) {
          assert.deepStrictEqual(yield* store.get(kind, row.id), row)
          assert.deepStrictEqual(yield* store.insert(row), row)
          const { group, owner, state, tenant } = row
          assert.deepStrictEqual(yield* store.list({ kind, tenant, group, state, limit: 2 }), [row])
          assert.isTrue(yield* store.change(kind, row.id, { state, owner }, { updatedAt: 2, body: `${row.body}!` }))
          assert.deepStrictEqual(yield* store.get(kind, row.id), { ...row, updatedAt: 2, body: `${row.body}!` })
        }
        assert.deepStrictEqual(
          new Set((yield* store.list({ kind, limit: 100 })).map(({ id }) => id)),
          new Set(oddTexts)
        )
        // Also as the kind.
        for (const odd of ["a:b", "a", "%3A", "\u0000", "\ud800", "", "A", "é".repeat(50)]) {
          assert.isUndefined(yield* store.insert(rowOf(`${kind}${odd}`, "b:c")))
        }
        for (const odd of ["a:b", "a", "%3A", "\u0000", "\ud800", "", "A", "é".repeat(50)]) {
          assert.isTrue(yield* store.change(`${kind}${odd}`, "b:c", {}, undefined))
          assert.isUndefined(yield* store.get(`${kind}${odd}`, "b:c"))
        }
      }))

    law(
      "long texts come back as they were, and long ids that differ at their end are different",
      (store, kind) =>
        Effect.gen(function*() {
          const long = "é𝒳'\n\u0000x".repeat(150_000).slice(0, 1_000_000)
          // Nothing that a database could make shorter.
          let seed = 1
          const beginning = Array.from({ length: 5_000 }, () => {
            seed = (seed * 48_271) % 2_147_483_647
            return String.fromCodePoint(0x4e00 + (seed % 20_000))
          }).join("") + "𝒳é\u0000"
          const ids = ["x", "y", ""].map((end) => beginning + end)
          const rows = ids.map((id) => rowOf(kind, id, { tenant: id, group: id, digest: id, owner: id, body: long }))
          for (const row of rows) assert.isUndefined(yield* store.insert(row))
          for (const row of rows) {
            assert.isTrue((yield* store.get(kind, row.id))?.body === row.body)
            assert.strictEqual((yield* store.insert(row))?.id, row.id)
            const found = yield* store.list({ kind, tenant: row.tenant, group: row.group, limit: 9 })
            assert.deepStrictEqual(found.map(({ id }) => id === row.id), [true])
          }
          const all = (yield* store.list({ kind, limit: 9 })).map(({ id }) => id)
          assert.deepStrictEqual(new Set(all), new Set(ids))
          assert.deepStrictEqual(
            (yield* store.list({ kind, after: all[0], limit: 9 })).map(({ id }) => id),
            all.slice(1)
          )
          assert.isTrue(yield* store.change(kind, ids[0]!, { owner: ids[0] }, { updatedAt: 2, body: `${long}!` }))
          assert.strictEqual((yield* store.get(kind, ids[0]!))?.body.length, 1_000_001)
          for (const id of ids) assert.isTrue(yield* store.change(kind, id, {}, undefined))
        })
    )

    law("of many that insert the same at once exactly one puts its row in", (store, kind) =>
      Effect.gen(function*() {
        for (let round = 0; round < 5; round++) {
          const owners = Array.from({ length: 50 }, (_, i) => `o${i}`)
          const rows = yield* Effect.forEach(
            owners,
            (owner) => Effect.map(store.insert(rowOf(kind, `${round}`, { owner })), (row) => row?.owner),
            { concurrency: "unbounded" }
          )
          const winners = owners.filter((_, i) => rows[i] === undefined)
          assert.strictEqual(winners.length, 1)
          assert.deepStrictEqual(new Set(rows), new Set([undefined, winners[0]]))
        }
      }))

    law("of many that change the same expecting the same exactly one does", (store, kind) =>
      Effect.gen(function*() {
        yield* store.insert(rowOf(kind, "a", { state: "0" }))
        const won = yield* Effect.forEach(
          Array.from({ length: 40 }, (_, i) => i),
          (i) => store.change(kind, "a", { state: "0" }, i % 2 === 0 ? { state: "1", updatedAt: i } : undefined),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(won.filter((is) => is).length, 1)
      }))

    law("changes that look before they write lose none of each other", (store, kind) =>
      Effect.gen(function*() {
        yield* store.insert(rowOf(kind, "a", { leaseUntil: 0 }))
        const increment = Effect.gen(function*() {
          while (true) {
            const row = yield* store.get(kind, "a")
            const { leaseUntil } = row!
            if (yield* store.change(kind, "a", { leaseUntil }, { leaseUntil: leaseUntil + 1, updatedAt: 1 })) return
          }
        })
        yield* Effect.forEach(Array.from({ length: 20 }), () => increment, { concurrency: "unbounded" })
        assert.strictEqual((yield* store.get(kind, "a"))?.leaseUntil, 20)
      }))

    law(
      "while a row is put in and removed, whoever inserts gets nothing or a whole row",
      (store, kind) =>
        Effect.gen(function*() {
          const churn = (owner: string) =>
            Effect.gen(function*() {
              let puts = 0
              for (let i = 0; i < 25; i++) {
                const row = yield* store.insert(rowOf(kind, "a", { owner, digest: owner, body: owner }))
                if (row !== undefined) {
                  assert.strictEqual(row.owner, row.body)
                  continue
                }
                puts++
                assert.isTrue(yield* store.change(kind, "a", { owner }, undefined), "it was ours alone")
              }
              return puts
            })
          const puts = yield* Effect.forEach(["a", "b", "c", "d"], churn, { concurrency: "unbounded" })
          assert.isAbove(puts.reduce((sum, n) => sum + n), 0)
          assert.isUndefined(yield* store.get(kind, "a"))
        })
    )

    law(
      "an interrupted step was done whole or not at all, and nothing of it comes later",
      (store, kind) =>
        Effect.gen(function*() {
          let interrupted = 0
          for (let round = 0; round < 24; round++) {
            const id = `${round}`
            const row = rowOf(kind, id, { body: "b".repeat(10_000) })
            const fiber = yield* Effect.forkChild(store.insert(row), { startImmediately: true })
            if (round % 3 === 1) yield* Effect.yieldNow
            if (round % 3 === 2) yield* Effect.sleep(round / 24)
            yield* Fiber.interrupt(fiber)
            const exit = yield* Fiber.await(fiber)
            if (Exit.isFailure(exit)) interrupted++
            const now = yield* store.get(kind, id)
            if (now !== undefined) assert.deepStrictEqual(now, row)
            if (round % 8 === 0) yield* Effect.sleep(20)
            assert.deepStrictEqual(yield* store.get(kind, id), now)
          }
          // What is done at once is interrupted before or after.
          if (!place.name.endsWith("memory") && place.name !== "SQLite") assert.isAbove(interrupted, 0)
        })
    )

    if (place.name !== "memory") {
      law("a time that is no number is refused", (store, kind) =>
        Effect.gen(function*() {
          for (const row of [{ leaseUntil: NaN }, { expiresAt: Infinity }, { createdAt: -Infinity }]) {
            const error = yield* Effect.flip(store.insert(rowOf(kind, "a", row)))
            assert.strictEqual(error.operation, "insert")
            assert.include(error.message, `expected a time in milliseconds as ${Object.keys(row)[0]}`)
          }
          yield* store.insert(rowOf(kind, "a"))
          const error = yield* Effect.flip(store.change(kind, "a", {}, { leaseUntil: Infinity, updatedAt: 1 }))
          assert.strictEqual(error.operation, "change")
          assert.deepStrictEqual(yield* store.get(kind, "a"), rowOf(kind, "a"))
        }))
    }

    it.live.prop(
      "any steps, one after the other, come to the same as in a model",
      { steps: Arbitrary.array(step, { minLength: 1, maxLength: 30 }) },
      ({ steps }) =>
        withStore((store, kind) =>
          Effect.scoped(Effect.gen(function*() {
            const model = yield* memoryStore
            yield* Effect.ensuring(
              Effect.forEach(steps, (step, n) =>
                Effect.gen(function*() {
                  const of = `${kind}.${step.kind}`
                  const expected = yield* take(model, of, step, n)
                  assert.deepStrictEqual(
                    yield* take(store, of, step, n),
                    expected,
                    `step ${n}: ${JSON.stringify(step)}`
                  )
                }), { discard: true }),
              Effect.andThen(purge(store, `${kind}.0`), purge(store, `${kind}.1`))
            )
          }))
        ),
      runs(40)
    )

    it.live.prop(
      "any steps of two at once come to the same as in some order, one after the other",
      {
        one: Arbitrary.array(Arbitrary.filter(step, ({ what }) => what !== "expire"), { minLength: 1, maxLength: 3 }),
        two: Arbitrary.array(Arbitrary.filter(step, ({ what }) => what !== "expire"), { minLength: 1, maxLength: 3 })
      },
      ({ one, two }) =>
        withStore((store, kind) =>
          Effect.scoped(Effect.gen(function*() {
            // One row, for they are to meet.
            const numbered = [one, two].map((steps, who) =>
              steps.map((step, i) => ({ step: { ...step, id: "a" }, n: 10 * who + i }))
            )
            const all = { ...one[0]!, what: "list", mask: 0 } as const
            const seen = new Map<number, unknown>()
            yield* Effect.forEach(numbered, (steps) =>
              Effect.forEach(
                steps,
                ({ n, step }) => Effect.map(take(store, kind, step, n), (told) => seen.set(n, told))
              ), { concurrency: 2 })
            const end = yield* take(store, kind, all, 0)
            const text = (results: ReadonlyMap<number, unknown>, end: unknown) =>
              JSON.stringify([Array.from(results).sort(([a], [b]) => a - b).map(([n, told]) => [n, told ?? null]), end])
            const possible = yield* Effect.forEach(interleavings(numbered[0]!, numbered[1]!), (steps) =>
              Effect.gen(function*() {
                const model = yield* memoryStore
                const results = new Map<number, unknown>()
                for (const { n, step } of steps) {
                  results.set(n, yield* take(model, kind, step, n))
                }
                return text(results, yield* take(model, kind, all, 0))
              }))
            assert.include(possible, text(seen, end))
          }))
        ),
      runs(40)
    )

    if (place.durable) {
      it.live("what was done is there when the layer is built again", () =>
        Effect.gen(function*() {
          const kind = newKind()
          yield* Effect.provide(
            TurnStore.TurnStore.use((store) => store.insert(rowOf(kind, "a"))),
            place.layer
          )
          yield* Effect.provide(
            TurnStore.TurnStore.use((store) =>
              Effect.gen(function*() {
                assert.deepStrictEqual(yield* store.get(kind, "a"), rowOf(kind, "a"))
                yield* purge(store, kind)
              })
            ),
            place.layer
          )
        }))
    }

    if (place.shared) {
      it.live("many may open it at once, and what a step has done is seen by every later one of all of them", () =>
        Effect.scoped(Effect.gen(function*() {
          const kind = newKind()
          const stores = yield* Effect.forEach(
            Array.from({ length: 5 }),
            () => Effect.map(Layer.build(place.layer), Context.get(TurnStore.TurnStore)),
            { concurrency: "unbounded" }
          )
          for (let i = 0; i < 25; i++) {
            const [writer, reader] = [stores[i % 5]!, stores[(i * 3 + 1) % 5]!]
            assert.isUndefined(yield* writer.insert(rowOf(kind, `${i}`, { expiresAt: 5 })))
            assert.deepStrictEqual(yield* reader.get(kind, `${i}`), rowOf(kind, `${i}`, { expiresAt: 5 }))
            assert.isTrue(yield* reader.change(kind, `${i}`, { state: "reserved" }, { state: "x", updatedAt: 2 }))
            assert.strictEqual((yield* writer.list({ kind, state: "x", limit: 100 })).length, i + 1)
          }
          // Several that clear away at once remove each row once.
          const gone = yield* Effect.forEach(stores, (store) => store.expire(5), { concurrency: "unbounded" })
          assert.strictEqual(gone.reduce((sum, n) => sum + n), 25)
          assert.deepStrictEqual(yield* stores[0]!.list({ kind, limit: 9 }), [])
        })))
    }
  })
}
