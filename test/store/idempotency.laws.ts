/** The laws of `IdempotencyStore`, as its doc comment says them, on any `TurnStore`. */
import { assert } from "@effect/vitest"
import { IdempotencyStore, type Outcome } from "effect-turn"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import { type Law, newTenant } from "./everyStore.ts"

type Service = IdempotencyStore.IdempotencyStore["Service"]
type Key = IdempotencyStore.Key

const lease = 30_000
/** The default is days, in which a store that says a word every few seconds says many. */
const keep = 600_000

const keyOf = (key = "k", more?: Partial<Key>): Key => ({
  tenant: newTenant(),
  conversation: "c",
  tool: "pay",
  key,
  ...more
})

const ok = (result: unknown = { paid: 30 }): Outcome.Encoded => ({
  position: 0,
  id: "c1",
  name: "pay",
  status: "ok",
  started: true,
  effect: "applied",
  retryable: false,
  result
})

const reserve = (
  store: Service,
  key: Key,
  owner: string,
  digest = "d",
  again?: boolean,
  notApplied?: boolean
) =>
  Effect.map(store.reserve(key, { owner, digest, again, notApplied }), (one) =>
    one._tag === "Reserved" ? one : {
      _tag: one._tag,
      state: one.entry.state
    })
const reserved = (again = false) => ({ _tag: "Reserved", again } as const)
const stateOf = (store: Service, key: Key) => Effect.map(store.lookUp(key), (entry) => entry?.state ?? "free")

/** Brings a free key into a state, by the owner `me` and the digest `d`. */
const into: Record<IdempotencyStore.State | "lost", (store: Service, key: Key) => Effect.Effect<void, unknown>> = {
  reserved: (store, key) => reserve(store, key, "me"),
  lost: (store, key) => Effect.andThen(reserve(store, key, "me"), TestClock.adjust(lease)),
  applied: (store, key) => Effect.andThen(reserve(store, key, "me"), store.settle(key, "me", ok())),
  unknown: (store, key) => Effect.andThen(reserve(store, key, "me"), store.markUnknown(key, "me", "a socket broke")),
  undone: (store, key) => Effect.andThen(into.applied(store, key), store.undo(key, "me", "undone", "why"))
}
const states = Object.keys(into) as ReadonlyArray<keyof typeof into>
const told = (state: keyof typeof into) => state === "lost" ? "unknown" : state

const words: Record<string, (store: Service, key: Key, owner: string) => Effect.Effect<boolean, unknown>> = {
  settle: (store, key, owner) => store.settle(key, owner, ok()),
  markUnknown: (store, key, owner) => store.markUnknown(key, owner, "a socket broke"),
  free: (store, key, owner) => store.free(key, owner)
}
const after: Record<string, string> = { settle: "applied", markUnknown: "unknown", free: "free" }

export const options = { keep }

export const laws: ReadonlyArray<Law<Service>> = [
  {
    name: "of many that reserve a free key at once exactly one has it, and the others are told of it",
    law: (store) =>
      Effect.gen(function*() {
        for (let round = 0; round < 20; round++) {
          const key = keyOf()
          const all = yield* Effect.forEach(
            Array.from({ length: 16 }, (_, i) => `owner${i}`),
            (owner) => reserve(store, key, owner),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(all.filter((one) => one._tag === "Reserved").length, 1)
          assert.strictEqual(all.filter((one) => one._tag === "Taken" && one.state === "reserved").length, 15)
        }
      })
  },
  {
    name: "of many that take over an unknown key at once exactly one has it",
    law: (store) =>
      Effect.gen(function*() {
        for (const state of ["unknown", "lost"] as const) {
          const key = keyOf()
          yield* into[state](store, key)
          const all = yield* Effect.forEach(
            Array.from({ length: 16 }, (_, i) => `owner${i}`),
            (owner) => reserve(store, key, owner, "d", true),
            { concurrency: "unbounded" }
          )
          assert.deepStrictEqual(all.filter((one) => one._tag === "Reserved"), [reserved(true)])
        }
      })
  },
  {
    name: "the same text in another tenant, conversation or tool is another key",
    law: (store) =>
      Effect.gen(function*() {
        const one = keyOf()
        const { conversation: _, ...none } = one
        const apart: ReadonlyArray<Key> = [
          one,
          { ...one, tenant: newTenant() },
          { ...one, conversation: "other" },
          none,
          { ...one, conversation: "null" },
          { ...one, conversation: "" },
          { ...one, tool: "book" },
          { ...one, key: "l" },
          // Nothing that is put together from parts may meet what is put together from others.
          { ...one, tool: 'pay","k', key: "" },
          { ...one, tool: "pay", key: "K" },
          { ...one, key: "__proto__" },
          { ...one, key: "k " },
          { ...one, key: "ключ 🔑 \"' \\ %_ {}" },
          { ...one, key: "x".repeat(1_000) }
        ]
        for (const key of apart) {
          assert.deepStrictEqual(yield* reserve(store, key, "me"), reserved())
          assert.deepStrictEqual((yield* store.lookUp(key))!.key, key)
        }
        const listed = yield* store.list({ tenant: one.tenant })
        assert.strictEqual(listed.length, apart.length - 1)
      })
  },
  {
    name: "reserving a key with a record gives what is known, and changes nothing",
    law: (store) =>
      Effect.gen(function*() {
        for (const state of states) {
          const key = keyOf()
          yield* into[state](store, key)
          const before = yield* store.lookUp(key)
          assert.strictEqual(before!.state, told(state))
          assert.deepStrictEqual(yield* reserve(store, key, "other"), { _tag: "Taken", state: told(state) })
          for (const again of [false, true]) {
            const reused = yield* reserve(store, key, "other", "another digest", again)
            assert.deepStrictEqual(reused, { _tag: "Reused", state: told(state) })
          }
          assert.deepStrictEqual(yield* store.lookUp(key), before)
        }
      })
  },
  {
    name: "what is unknown is taken over where that is said, and nothing else is",
    law: (store) =>
      Effect.gen(function*() {
        for (const state of states) {
          const key = keyOf()
          yield* into[state](store, key)
          const taken = yield* reserve(store, key, "other", "d", true)
          if (told(state) !== "unknown") {
            assert.deepStrictEqual(taken, { _tag: "Taken", state: told(state) })
            continue
          }
          assert.deepStrictEqual(taken, reserved(true))
          for (const word of Object.values(words)) assert.isFalse(yield* word(store, key, "me"))
          assert.isTrue(yield* store.settle(key, "other", ok()))
        }
      })
  },
  {
    name: "a record whose lease is over is unknown to all, and its owner may still say what became of it",
    law: (store) =>
      Effect.gen(function*() {
        for (const [name, word] of Object.entries(words)) {
          const key = keyOf()
          yield* into.reserved(store, key)
          yield* TestClock.adjust(lease - 1)
          assert.strictEqual(yield* stateOf(store, key), "reserved")
          yield* TestClock.adjust(1)
          const lost = yield* store.lookUp(key)
          assert.strictEqual(lost!.state, "unknown")
          assert.isString(lost!.note)
          assert.isTrue(yield* word(store, key, "me"))
          assert.strictEqual(yield* stateOf(store, key), after[name])
        }
      })
  },
  {
    name: "a word of the owner prolongs its reservation, and nobody else's does",
    law: (store) =>
      Effect.gen(function*() {
        const key = keyOf()
        yield* into.reserved(store, key)
        for (let i = 0; i < 4; i++) {
          yield* TestClock.adjust(lease - 1)
          assert.isFalse(yield* store.renew(key, "other"))
          assert.isTrue(yield* store.renew(key, "me"))
          assert.strictEqual(yield* stateOf(store, key), "reserved")
        }
        yield* store.settle(key, "me", ok())
        assert.isFalse(yield* store.renew(key, "me"))
        assert.isFalse(yield* store.renew(keyOf(), "me"))
      })
  },
  {
    name: "only the owner says what became of a key, and its first word stands",
    law: (store) =>
      Effect.gen(function*() {
        for (const [first, say] of Object.entries(words)) {
          for (const next of Object.values(words)) {
            const key = keyOf()
            yield* into.reserved(store, key)
            assert.isFalse(yield* next(store, key, "other"))
            assert.strictEqual(yield* stateOf(store, key), "reserved")
            assert.isTrue(yield* say(store, key, "me"))
            const entry = yield* store.lookUp(key)
            assert.isFalse(yield* next(store, key, "me"))
            assert.deepStrictEqual(yield* store.lookUp(key), entry)
            assert.strictEqual(entry?.state ?? "free", after[first])
          }
        }
      })
  },
  {
    name: "a key that was freed is free for anything",
    law: (store) =>
      Effect.gen(function*() {
        const key = keyOf()
        yield* into.reserved(store, key)
        yield* store.free(key, "me")
        assert.isUndefined(yield* store.lookUp(key))
        assert.deepStrictEqual(yield* reserve(store, key, "other", "another digest"), reserved())
      })
  },
  {
    name: "what was applied is told with its outcome, to every process",
    law: (store) =>
      Effect.gen(function*() {
        const results = [
          { paid: 30, to: ["ä", "\u0000", "🔑"] },
          null,
          "",
          0,
          [],
          { __proto__: 1 },
          "x".repeat(100_000)
        ]
        for (const result of results) {
          const key = keyOf()
          yield* reserve(store, key, "me")
          yield* store.settle(key, "me", ok(result))
          const elsewhere = yield* Effect.provide(
            Effect.flatMap(IdempotencyStore.IdempotencyStore, (store) => store.lookUp(key)),
            Layer.fresh(IdempotencyStore.layer(options))
          )
          assert.deepStrictEqual(elsewhere!.outcome, JSON.parse(JSON.stringify(ok(result))))
          assert.deepStrictEqual([elsewhere!.state, elsewhere!.note], ["applied", undefined])
        }
      })
  },
  {
    name: "a result that cannot be kept does not lose the record",
    law: (store) =>
      Effect.gen(function*() {
        const circle: { self?: unknown } = {}
        circle.self = circle
        for (const result of [circle, 10n, "x".repeat(1_000_000)]) {
          const key = keyOf()
          yield* into.reserved(store, key)
          assert.isTrue(yield* store.settle(key, "me", ok(result)))
          const entry = yield* store.lookUp(key)
          assert.deepStrictEqual([entry!.state, entry!.outcome], ["applied", undefined])
          assert.match(entry!.note!, /result/)
        }
      })
  },
  {
    name: "what was applied is forgotten in the end, and what is in doubt never is",
    law: (store) =>
      Effect.gen(function*() {
        const keys = new Map<string, Key>()
        for (const state of states) {
          const key = keyOf()
          keys.set(state, key)
          yield* into[state](store, key)
        }
        yield* TestClock.adjust(keep - 1 - lease)
        yield* store.expire
        for (const [state, key] of keys) {
          assert.strictEqual(yield* stateOf(store, key), state === "reserved" ? "unknown" : told(state as "lost"))
        }
        yield* TestClock.adjust(1 + lease)
        assert.isAtLeast(yield* store.expire, 2)
        for (const [state, key] of keys) {
          assert.strictEqual(yield* stateOf(store, key), state === "applied" || state === "undone" ? "free" : "unknown")
        }
        yield* TestClock.adjust(keep * 3)
        yield* store.expire
        for (const state of ["reserved", "lost", "unknown"]) {
          assert.strictEqual(yield* stateOf(store, keys.get(state)!), "unknown")
        }
      })
  },
  {
    name: "what is unknown is resolved by hand, with or without its result, and nothing else is",
    law: (store) =>
      Effect.gen(function*() {
        const applied = (result?: unknown): IdempotencyStore.Resolution =>
          result === undefined ? { _tag: "Applied" } : { _tag: "Applied", result }
        for (const state of ["free", ...states] as const) {
          for (const resolution of [applied(), applied({ paid: 30 }), { _tag: "NotApplied" } as const]) {
            const key = keyOf()
            if (state !== "free") yield* into[state](store, key)
            const before = yield* stateOf(store, key)
            if (before !== "unknown") {
              const error = yield* Effect.flip(store.resolve(key, resolution))
              assert.deepStrictEqual(error._tag === "NotInDoubt" && [error.tool, error.state], ["pay", before])
              assert.strictEqual(yield* stateOf(store, key), before)
              continue
            }
            yield* store.resolve(key, resolution)
            const entry = yield* store.lookUp(key)
            assert.strictEqual(entry?.state ?? "free", resolution._tag === "Applied" ? "applied" : "free")
            if (resolution._tag === "Applied") assert.deepStrictEqual(entry!.outcome?.result, resolution.result)
            // The owner is too late.
            assert.isFalse(yield* store.settle(key, "me", ok("late")))
            assert.deepStrictEqual(yield* store.lookUp(key), entry)
            // What was said by hand can be said better by hand.
            if (resolution._tag === "Applied") {
              assert.isTrue(entry!.resolved)
              yield* store.resolve(key, applied({ paid: 31 }))
              assert.deepStrictEqual((yield* store.lookUp(key))!.outcome!.result, { paid: 31 })
              yield* store.resolve(key, { _tag: "NotApplied" })
            }
            assert.strictEqual((yield* Effect.flip(store.resolve(key, resolution)))._tag, "NotInDoubt")
          }
        }
      })
  },
  {
    name: "of an owner that is late and a human exactly one says what became of a key",
    law: (store) =>
      Effect.gen(function*() {
        for (let round = 0; round < 20; round++) {
          const key = keyOf()
          yield* into.lost(store, key)
          const [settled, resolved] = yield* Effect.all([
            store.settle(key, "me", ok("owner")),
            Effect.exit(store.resolve(key, { _tag: "Applied", result: "human" }))
          ], { concurrency: "unbounded" })
          assert.strictEqual(settled, resolved._tag === "Failure")
          assert.strictEqual((yield* store.lookUp(key))!.outcome!.result, settled ? "owner" : "human")
        }
      })
  },
  {
    name: "only what was applied or is unknown is undone, by its owner: then it is free, or never again, or unknown",
    law: (store) =>
      Effect.gen(function*() {
        for (const state of states) {
          for (
            const to of ["free", "undone", "unknown", "undoing free", "undoing undone", "undoing unknown"] as const
          ) {
            const key = keyOf()
            yield* into[state](store, key)
            if (to.startsWith("undoing")) {
              const begun = yield* store.undo(key, "me", "undoing", "why")
              assert.strictEqual(begun, state === "applied" || state === "unknown")
              if (!begun) continue
            }
            const last = to.replace("undoing ", "") as "free" | "undone" | "unknown"
            assert.isFalse(yield* store.undo(key, "other", last, "why"))
            const done = yield* store.undo(key, "me", last, "why")
            assert.strictEqual(done, state === "applied" || state === "unknown")
            if (!done) continue
            const next = yield* reserve(store, key, "other", "d", true)
            const expected = last === "free"
              ? reserved()
              : last === "unknown"
              ? reserved(true)
              : { _tag: "Taken" as const, state: last }
            assert.deepStrictEqual(next, expected)
          }
        }
      })
  },
  {
    name: "a list has every record once, by tenant and state, page by page",
    law: (store) =>
      Effect.gen(function*() {
        const tenant = newTenant()
        const expected = new Map<string, number>()
        for (let i = 0; i < 4; i++) {
          for (const state of ["lost", "applied", "unknown", "undone"] as const) {
            yield* into[state](store, keyOf(`${state}${i}`, { tenant }))
            expected.set(told(state), (expected.get(told(state)) ?? 0) + 1)
          }
        }
        expected.set("reserved", 3)
        // Stores have an order of their own for some of these.
        const odd = ["🔑", "\ufffd", "é", "Z", "a", "x".repeat(400), `${"x".repeat(400)}y`, "x".repeat(399)]
        for (const [i, text] of odd.entries()) {
          yield* into[i % 2 === 0 ? "lost" : "unknown"](store, keyOf(text, { tenant }))
        }
        expected.set("unknown", expected.get("unknown")! + odd.length)
        for (let i = 0; i < 3; i++) {
          yield* into.reserved(store, keyOf(`reserved${i}`, { tenant }))
        }
        yield* into.unknown(store, keyOf("elsewhere"))
        for (const state of [undefined, "reserved", "applied", "unknown", "undone"] as const) {
          for (const limit of [1, 2, 3, 7, 100]) {
            const found: Array<IdempotencyStore.Entry> = []
            let last: Key | undefined
            for (;;) {
              const page = yield* store.list({ tenant, state, after: last, limit })
              assert.isAtMost(page.length, limit)
              if (page.length === 0) break
              found.push(...page)
              last = page[page.length - 1]!.key
            }
            const names = new Set(found.map((entry) => entry.key.key))
            assert.strictEqual(names.size, found.length)
            assert.strictEqual(found.length, state === undefined ? 19 + odd.length : expected.get(state))
            assert.isTrue(found.every((entry) => state === undefined || entry.state === state))
          }
        }
        const all = yield* store.list({ state: "unknown", limit: 1_000 })
        assert.isTrue(all.some((entry) => entry.key.key === "elsewhere"))
      })
  },
  {
    name: "whatever is done in whatever order, every answer is that of the plain rules",
    law: (store) =>
      Effect.gen(function*() {
        for (let seed = 1; seed <= 12; seed++) yield* asThePlainRules(store, seed)
      })
  }
]

/** The rules without a store: one record in a variable. */
interface Plain {
  state: IdempotencyStore.State
  owner: string
  digest: string
  until: number
  result: unknown
  /** It was unknown when its owner took it over. */
  doubtful: boolean
  /** It was resolved by hand, and may be so again. */
  byHand: boolean
}

const asThePlainRules = (store: Service, seed: number) =>
  Effect.gen(function*() {
    let chance = seed * 7919
    const pick = <A>(of: ReadonlyArray<A>): A => {
      chance = (chance * 1_103_515_245 + 12_345) % 2_147_483_648
      return of[Math.floor((chance / 2_147_483_648) * of.length)]!
    }
    const key = keyOf()
    let plain: Plain | undefined
    const own = (owner: string, state: IdempotencyStore.State) => plain?.owner === owner && plain.state === state
    for (let step = 0; step < 60; step++) {
      const now = yield* Clock.currentTimeMillis
      const owner = pick(["a", "b"])
      const known = (): string =>
        plain === undefined ? "free" : plain.state === "reserved" && plain.until <= now ? "unknown" : plain.state
      const what = pick([
        "reserve",
        "reserve",
        "again",
        "again",
        "not applied",
        "settle",
        "unknown",
        "free",
        "renew",
        "undo",
        "keep",
        "undo failed",
        "resolve",
        "wait"
      ])
      const at = `seed ${seed}, step ${step}: ${what} by ${owner}`
      switch (what) {
        case "reserve":
        case "not applied":
        case "again": {
          const over = what !== "reserve"
          const digest = pick(["d", "d", "d", "e"])
          const state = known()
          const expected = plain === undefined
            ? reserved()
            : plain.digest !== digest
            ? { _tag: "Reused", state }
            : state === "unknown" && over
            ? reserved(true)
            : { _tag: "Taken", state }
          assert.deepStrictEqual(
            yield* reserve(store, key, owner, digest, over, what === "not applied"),
            expected as any,
            at
          )
          if (expected._tag === "Reserved") {
            const doubtful = what === "again" && plain !== undefined
            plain = { state: "reserved", owner, digest, until: now + lease, result: undefined, doubtful, byHand: false }
          }
          break
        }
        case "settle": {
          const does = own(owner, "reserved")
          assert.strictEqual(yield* store.settle(key, owner, ok(step)), does, at)
          if (does) Object.assign(plain!, { state: "applied", result: step })
          break
        }
        case "unknown": {
          const does = own(owner, "reserved")
          assert.strictEqual(yield* store.markUnknown(key, owner, "why"), does, at)
          if (does) plain!.state = "unknown"
          break
        }
        case "free": {
          const does = own(owner, "reserved")
          assert.strictEqual(yield* store.free(key, owner), does, at)
          if (does) plain = plain!.doubtful ? { ...plain!, state: "unknown" } : undefined
          break
        }
        case "renew": {
          const does = own(owner, "reserved")
          assert.strictEqual(yield* store.renew(key, owner), does, at)
          if (does) plain!.until = now + lease
          break
        }
        case "undo":
        case "undo failed":
        case "keep": {
          const does = own(owner, "applied") || own(owner, "unknown")
          const to = what === "undo" ? "free" : what === "keep" ? "undone" : "unknown"
          assert.strictEqual(yield* store.undo(key, owner, to, "why"), does, at)
          if (does) plain = to === "free" ? undefined : { ...plain!, state: to, result: undefined }
          break
        }
        case "resolve": {
          const not = pick([true, false])
          const exit = yield* Effect.exit(
            store.resolve(key, not ? { _tag: "NotApplied" } : { _tag: "Applied", result: "by hand" })
          )
          const does = known() === "unknown" || (known() === "applied" && plain!.byHand)
          assert.strictEqual(exit._tag === "Success", does, at)
          if (does) plain = not ? undefined : { ...plain!, state: "applied", result: "by hand", byHand: true }
          break
        }
        case "wait":
          yield* TestClock.adjust(pick([1, lease / 2, lease]))
      }
      const entry = yield* store.lookUp(key)
      const later = yield* Clock.currentTimeMillis
      const state = plain?.state === "reserved" && plain.until <= later ? "unknown" : plain?.state
      assert.deepStrictEqual([entry?.state, entry?.outcome?.result], [state, plain?.result], at)
    }
  })
