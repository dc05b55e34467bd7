/** The laws of `TurnJournal`, as its doc comment says them, on any `TurnStore`. */
import { assert } from "@effect/vitest"
import { type Outcome, TurnJournal } from "effect-turn"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import { type Law, newTenant } from "./everyStore.ts"

type Service = TurnJournal.TurnJournal["Service"]
type CallKey = TurnJournal.CallKey

const lease = 30_000
/** The default is days, in which a store that says a word every few seconds says many. */
const keep = 600_000

const keyOf = (position = 0, more?: Partial<CallKey>): CallKey => ({
  tenant: newTenant(),
  conversation: undefined,
  turn: "one",
  position,
  id: `c${position}`,
  tool: "read",
  digest: "d",
  idempotencyKey: undefined,
  ...more
})

const outcome = (position: number, more?: Partial<Outcome.Encoded>): Outcome.Encoded => ({
  position,
  id: `c${position}`,
  name: "read",
  status: "ok",
  started: true,
  effect: "none",
  retryable: false,
  result: { rows: [1, "ä", null] },
  ...more
})

const me = { owner: "me" }
const other = { owner: "other" }
const ours = (again = false): TurnJournal.Reservation => ({ _tag: "Reserved", again })

const only = (journal: Service, key: CallKey) =>
  Effect.map(journal.entries(key), (entries) => {
    assert.isAtMost(entries.length, 1)
    return entries[0]
  })

export const options = { keep }

export const laws: ReadonlyArray<Law<Service>> = [
  {
    name: "a reserved call is among the entries, in the order of positions, until it is freed",
    law: (journal) =>
      Effect.gen(function*() {
        const { tenant } = keyOf()
        const positions = [11, 2, 0, 100, 9, 1_000_000_000]
        for (const position of positions) {
          assert.deepStrictEqual(yield* journal.reserve(keyOf(position, { tenant }), me), ours())
        }
        const of = { tenant, turn: "one" }
        const found = Effect.map(journal.entries(of), (entries) => entries.map(({ key }) => key.position))
        assert.deepStrictEqual(yield* found, [0, 2, 9, 11, 100, 1_000_000_000])
        assert.isFalse(yield* journal.free(keyOf(9, { tenant }), "other"))
        assert.isTrue(yield* journal.free(keyOf(9, { tenant }), "me"))
        assert.isFalse(yield* journal.free(keyOf(9, { tenant }), "me"))
        assert.deepStrictEqual(yield* found, [0, 2, 11, 100, 1_000_000_000])
        assert.deepStrictEqual(yield* journal.reserve(keyOf(9, { tenant }), other), ours())
      })
  },
  {
    name: "of many that reserve a call at once exactly one has it, and the others are told of it",
    law: (journal) =>
      Effect.gen(function*() {
        for (let round = 0; round < 20; round++) {
          const key = keyOf()
          const all = yield* Effect.forEach(
            Array.from({ length: 16 }, (_, i) => `owner${i}`),
            (owner) => journal.reserve(key, { owner }),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(all.filter((one) => one._tag === "Reserved").length, 1)
          const owner = all.findIndex((one) => one._tag === "Reserved")
          for (const one of all) {
            if (one._tag === "Reserved") continue
            assert.deepStrictEqual(one.entry._tag === "reserved" && one.entry.owner, `owner${owner}`)
          }
        }
      })
  },
  {
    name: "reserving a call that is there gives what is known, and changes nothing",
    law: (journal) =>
      Effect.gen(function*() {
        const key = keyOf()
        const at = yield* Clock.currentTimeMillis
        yield* journal.reserve(key, me)
        const reserved = { _tag: "reserved", key, owner: "me", leaseUntil: at + lease, lost: false } as const
        for (const again of [false, true]) {
          assert.deepStrictEqual(yield* journal.reserve(key, { ...other, again }), { _tag: "Taken", entry: reserved })
        }
        assert.deepStrictEqual(yield* only(journal, key), reserved)
        yield* journal.settle(key, "me", outcome(0))
        const settled = { _tag: "settled", key, outcome: outcome(0) } as const
        yield* TestClock.adjust(lease * 2)
        for (const again of [false, true]) {
          assert.deepStrictEqual(yield* journal.reserve(key, { ...other, again }), { _tag: "Taken", entry: settled })
        }
        assert.deepStrictEqual(yield* only(journal, key), settled)
      })
  },
  {
    name: "settling keeps the first outcome, freeing does not undo it, and only its owner amends it",
    law: (journal) =>
      Effect.gen(function*() {
        const key = keyOf()
        const later = outcome(0, { status: "error", code: "failed", effect: "none", undo: "done" })
        assert.isFalse(yield* journal.settle(key, "me", outcome(0)))
        yield* journal.reserve(key, me)
        assert.isFalse(yield* journal.amend(key, "me", later))
        assert.isFalse(yield* journal.settle(key, "other", later))
        assert.isTrue(yield* journal.settle(key, "me", outcome(0)))
        assert.isFalse(yield* journal.settle(key, "me", later))
        assert.isFalse(yield* journal.free(key, "me"))
        assert.isFalse(yield* journal.renew(key, "me"))
        assert.isFalse(yield* journal.amend(key, "other", later))
        assert.deepStrictEqual(yield* only(journal, key), { _tag: "settled", key, outcome: outcome(0) })
        assert.isTrue(yield* journal.amend(key, "me", later))
        assert.deepStrictEqual(yield* only(journal, key), { _tag: "settled", key, outcome: later })
      })
  },
  {
    name: "an owner that is silent for its lease has lost a call; it is taken over by one of those who say so",
    law: (journal) =>
      Effect.gen(function*() {
        const key = keyOf()
        yield* journal.reserve(key, me)
        yield* TestClock.adjust(lease - 1)
        assert.isFalse(yield* journal.renew(key, "other"))
        assert.isTrue(yield* journal.renew(key, "me"))
        yield* TestClock.adjust(lease - 1)
        const held = yield* only(journal, key)
        assert.isFalse(held!._tag === "reserved" && held!.lost)
        yield* TestClock.adjust(1)
        const lost = yield* only(journal, key)
        assert.isTrue(lost!._tag === "reserved" && lost!.lost)
        assert.deepStrictEqual(yield* journal.reserve(key, other), { _tag: "Taken", entry: lost! })
        const all = yield* Effect.forEach(
          Array.from({ length: 8 }, (_, i) => `owner${i}`),
          (owner) => journal.reserve(key, { owner, again: true }),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(all.filter((one) => one._tag === "Reserved"), [ours(true)])
        const owner = `owner${all.findIndex((one) => one._tag === "Reserved")}`
        assert.isFalse(yield* journal.settle(key, "me", outcome(0)))
        assert.isFalse(yield* journal.free(key, "me"))
        assert.isTrue(yield* journal.settle(key, owner, outcome(0)))
      })
  },
  {
    name: "an owner that is only late may still say what became of its call",
    law: (journal) =>
      Effect.gen(function*() {
        const said: ReadonlyArray<(key: CallKey) => Effect.Effect<boolean, unknown>> = [
          (key) => journal.settle(key, "me", outcome(0)),
          (key) => journal.free(key, "me"),
          (key) => journal.renew(key, "me")
        ]
        for (const say of said) {
          const key = keyOf()
          yield* journal.reserve(key, me)
          yield* TestClock.adjust(lease * 3)
          assert.isTrue(yield* say(key))
          const entry = yield* only(journal, key)
          assert.isFalse(entry?._tag === "reserved" && entry.lost)
        }
      })
  },
  {
    name: "turns and tenants are apart, whatever they are called",
    law: (journal) =>
      Effect.gen(function*() {
        const { tenant } = keyOf()
        const turns = ["one", "", "__proto__", 'one","', "o%e", "o_e", "ONE", "é", "🔑", "x".repeat(500)]
        for (const turn of turns) {
          const key = keyOf(0, { tenant, turn, conversation: turn, idempotencyKey: turn, id: turn, tool: turn })
          assert.deepStrictEqual(yield* journal.reserve(key, me), ours())
          assert.deepStrictEqual((yield* only(journal, key))!.key, key)
        }
        for (const turn of turns) assert.isDefined(yield* only(journal, keyOf(0, { tenant, turn })))
        assert.isUndefined(yield* only(journal, keyOf(0, { tenant, turn: "two" })))
        assert.isUndefined(yield* only(journal, keyOf(0, { turn: "one" })))
      })
  },
  {
    name: "what one process has written every other one reads",
    law: (journal) =>
      Effect.gen(function*() {
        const key = keyOf(3, { conversation: "c", idempotencyKey: "k" })
        const elsewhere = yield* Effect.provide(TurnJournal.TurnJournal, Layer.fresh(TurnJournal.layer(options)))
        yield* journal.reserve(key, me)
        assert.strictEqual((yield* elsewhere.reserve(key, other))._tag, "Taken")
        const answers = [
          outcome(3),
          outcome(3, { status: "timeout", code: "handler", limit: { clock: "timeout", millis: 5 } })
        ]
        yield* journal.settle(key, "me", answers[0]!)
        assert.deepStrictEqual(yield* only(elsewhere, key), { _tag: "settled", key, outcome: answers[0]! })
        yield* journal.amend(key, "me", answers[1]!)
        assert.deepStrictEqual(yield* only(elsewhere, key), { _tag: "settled", key, outcome: answers[1]! })
      })
  },
  {
    name: "what cannot be kept whole is settled all the same, with the effect that it had",
    law: (journal) =>
      Effect.gen(function*() {
        const circle: { self?: unknown } = {}
        circle.self = circle
        for (const result of [circle, 10n, "x".repeat(1_000_000)]) {
          for (const effect of ["none", "applied"] as const) {
            const key = keyOf()
            yield* journal.reserve(key, me)
            assert.isTrue(yield* journal.settle(key, "me", outcome(0, { result, effect })))
            const entry = yield* only(journal, key)
            if (entry?._tag !== "settled") throw new Error("it is not settled")
            assert.isString(entry.note)
            const { message, ...rest } = entry.outcome
            const { result: _, ...expected } = outcome(0, { status: "error", code: "unencodable_result", effect })
            assert.deepStrictEqual(rest, expected)
            assert.include(message!, effect === "applied" ? "do not call it again" : "cannot be given")
          }
          const key = keyOf()
          yield* journal.reserve(key, me)
          const { result: _, ...failed } = outcome(0, {
            status: "error",
            code: "failed",
            failure: result,
            effect: "unknown"
          })
          assert.isTrue(yield* journal.settle(key, "me", failed))
          const entry = yield* only(journal, key)
          if (entry?._tag !== "settled") throw new Error("it is not settled")
          assert.deepStrictEqual([entry.outcome.code, entry.outcome.effect, entry.outcome.failure], [
            "failed",
            "unknown",
            undefined
          ])
        }
      })
  },
  {
    name: "what was settled is forgotten in the end, and what was only begun is not",
    law: (journal) =>
      Effect.gen(function*() {
        const settled = keyOf()
        const begun = keyOf()
        yield* journal.reserve(settled, me)
        yield* journal.reserve(begun, me)
        yield* journal.settle(settled, "me", outcome(0))
        yield* TestClock.adjust(keep - 1)
        yield* journal.expire
        assert.isDefined(yield* only(journal, settled))
        yield* TestClock.adjust(1)
        assert.isAtLeast(yield* journal.expire, 1)
        assert.isUndefined(yield* only(journal, settled))
        yield* TestClock.adjust(keep * 3)
        yield* journal.expire
        assert.isTrue(((yield* only(journal, begun)) as any).lost)
      })
  },
  // Last: its rows are in the way of stores that read all of them.
  {
    name: "a turn of more calls than a page has them all",
    law: (journal) =>
      Effect.gen(function*() {
        const { tenant } = keyOf()
        const positions = Array.from({ length: 505 }, (_, i) => i)
        yield* Effect.forEach(positions, (position) => journal.reserve(keyOf(position, { tenant }), me), {
          concurrency: 8
        })
        const entries = yield* journal.entries({ tenant, turn: "one" })
        assert.deepStrictEqual(entries.map(({ key }) => key.position), positions)
      })
  }
]
