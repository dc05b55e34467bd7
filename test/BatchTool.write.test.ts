/** Tools that write a list. */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  Backend,
  BatchTool,
  Coalescer,
  IdempotencyStore,
  type Outcome,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnStore
} from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "./utils/gen.ts"
import { drive, ended, fork, words } from "./utils/kit.ts"

const Item = Schema.Struct({ t: Schema.String, n: Schema.optionalKey(Schema.Finite) })
type Item = typeof Item.Type
type ToApply = BatchTool.ToApply<Item>

const Failure = Schema.Struct({ why: Schema.String, effect: Schema.Literals(["none", "unknown"]) })

class Bank extends Backend.Service<Bank>()("test/batch/Bank") {}

interface Sent {
  readonly at: number
  readonly items: ReadonlyArray<string>
  readonly keys: ReadonlyArray<string | undefined>
  endedAt?: number
  cut?: boolean
}

/** A tool that pays, what was paid in which requests, and how each item ends. */
const bank = (
  extra: object = {},
  ends: (one: ToApply, request: number) => "pays" | "declines" | "breaks" | "missing" = () => "pays",
  millis = 30
) => {
  const requests: Array<Sent> = []
  const paid: Array<string> = []
  const apply = (items: ReadonlyArray<ToApply>) =>
    Effect.gen(function*() {
      const sent: Sent = {
        at: yield* Clock.currentTimeMillis,
        items: items.map(({ item }) => item.t),
        keys: items.map(({ idempotencyKey }) => idempotencyKey)
      }
      requests.push(sent)
      const number = requests.length
      yield* Effect.onInterrupt(Effect.sleep(millis), () =>
        Effect.sync(() => {
          sent.cut = true
        }))
      sent.endedAt = yield* Clock.currentTimeMillis
      return new Map(items.flatMap((one): Array<[string, any]> => {
        const end = ends(one, number)
        if (end === "missing") return []
        if (end !== "pays") {
          return [[
            one.id,
            Coalescer.failed({ why: `${one.id} ${end}`, effect: end === "declines" ? "none" : "unknown" })
          ]]
        }
        paid.push(one.item.t)
        return [[one.id, `receipt ${one.item.t} ${number}`]]
      }))
    })
  const pay = BatchTool.write("pay", {
    description: "Pays.",
    item: Item,
    key: ({ t }) => t,
    success: Schema.String,
    failure: Failure,
    failures: { noEffect: ({ effect }) => effect === "none", transient: () => true },
    apply,
    resources: ({ t }) => [`account:${t}`],
    ...extra
  })
  const toolkit = Toolkit.make(pay.tool)
  const layer = Layer.mergeAll(
    toolkit.toLayer(pay.handlers as any),
    Turn.layer(),
    Bank.layer({ concurrency: 2 }),
    Layer.succeedContext(TurnContext.make({ tenant: "t", conversation: "c" }))
  ) as Layer.Layer<any>
  const calls = (lists: ReadonlyArray<ReadonlyArray<unknown>>) =>
    lists.map((items, i) => ToolCall.make(`c${i}`, "pay", { items }))
  const turn = (lists: ReadonlyArray<ReadonlyArray<unknown>>, options?: Turn.Options) =>
    Turn.run(toolkit, calls(lists), options) as Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>, unknown, any>
  const run = (...lists: ReadonlyArray<ReadonlyArray<unknown>>) => drive(turn(lists)).pipe(Effect.provide(layer))
  return { calls, layer, paid, pay, requests, run, toolkit, turn }
}

const resultOf = (outcome: Outcome.Outcome<any> | undefined): BatchTool.Result<any> => {
  if (outcome?.status !== "ok") throw new Error(`expected ok, and got ${outcome?.status}`)
  return outcome.result as BatchTool.Result<any>
}
const statuses = (outcome: Outcome.Outcome<any> | undefined) => {
  const result = resultOf(outcome)
  return result.ids.map((id) => result.results[id].status)
}
const effects = (outcome: Outcome.Outcome<any> | undefined) => {
  const result = resultOf(outcome)
  return result.ids.map((id) => result.results[id].effect)
}
const retryable = (outcome: Outcome.Outcome<any> | undefined) => {
  const result = resultOf(outcome)
  return result.ids.map((id) => result.results[id].retryable)
}
const ts = (...names: ReadonlyArray<string>) => names.map((t) => ({ t }))

describe("R27: a list that is written", () => {
  it.effect("24. a list with bad items", () =>
    Effect.gen(function*() {
      const { requests, run } = bank()
      const outcomes = yield* run([{ t: "a" }, { t: 5 }, null, { t: "d" }], [], [{ t: "a" }])
      assert.deepStrictEqual(words(outcomes), ["ok", "error/failed", "ok"])
      assert.strictEqual(outcomes[0]!.effect, "applied")
      const first = resultOf(outcomes[0])
      assert.deepStrictEqual(Object.keys(first).slice(0, 2), ["status", "summary"])
      assert.deepStrictEqual(first.summary, { requested: 4, ok: 2, other: 2, deferred: 0 })
      assert.deepStrictEqual(first.ids, ["a", "5", "d"])
      assert.deepStrictEqual(first.results, {
        a: { status: "ok", value: "receipt a 1", effect: "applied" },
        "5": { status: "invalid", effect: "none", message: "t: Expected string", retryable: true },
        d: { status: "ok", value: "receipt d 1", effect: "applied" }
      })
      assert.deepStrictEqual(first.invalid.map(({ position }) => position), [2])
      assert.deepStrictEqual((outcomes[1] as any).failure.code, "EMPTY")
      assert.deepStrictEqual([outcomes[1]!.effect, outcomes[1]!.retryable], ["none", true])
      assert.deepStrictEqual(requests.map(({ at, items }) => [at, items]), [[0, ["a", "d"]], [30, ["a"]]])
    }))

  it("a bad item gives no key", () => {
    const { pay } = bank()
    const { access, keys } = ToolPolicy.get(pay.tool)
    assert.strictEqual(access, "write")
    assert.deepStrictEqual(keys!({ items: [{ t: "a" }, { t: 5 }, null, { t: "a" }] }), ["account:a"])
    assert.deepStrictEqual(keys!({ items: [] }), [])
    assert.strictEqual(ToolPolicy.get(bank({ resources: undefined }).pay.tool).keys, undefined)
  })

  it.effect("two items of one id that differ are both refused; the same twice is one", () =>
    Effect.gen(function*() {
      const { paid, run } = bank()
      const [outcome] = yield* run([{ t: "a", n: 1 }, { t: "b" }, { n: 1, t: "c" }, { t: "a", n: 2 }, { t: "c", n: 1 }])
      assert.deepStrictEqual(resultOf(outcome).ids, ["a", "b", "c"])
      assert.deepStrictEqual(statuses(outcome), ["invalid", "ok", "ok"])
      assert.deepStrictEqual(paid, ["b", "c"])
    }))

  it.effect("each item has an effect of its own", () =>
    Effect.gen(function*() {
      const { run } = bank({ chunk: 4 }, ({ id }) =>
        ({ a: "pays", b: "declines", c: "breaks", d: "missing" } as any)[id] ?? "pays")
      const [outcome] = yield* run(ts("a", "b", "c", "d", "e"))
      assert.deepStrictEqual(statuses(outcome), ["ok", "error", "error", "error", "ok"])
      assert.deepStrictEqual(effects(outcome), ["applied", "none", "unknown", "unknown", "applied"])
      assert.deepStrictEqual(retryable(outcome), [undefined, true, false, false, undefined])
      const { results } = resultOf(outcome)
      assert.deepStrictEqual(results["b"].failure, { why: "b declines", effect: "none" })
      assert.match(results["c"].message, /may have been applied: find out/)
      assert.match(results["d"].message, /says nothing of it; it may have been applied/)
      assert.notMatch(results["b"].message, /may have been applied/)
    }))

  const broken: ReadonlyArray<readonly [string, () => any]> = [
    ["fails", () => Effect.fail("down")],
    ["throws", () => {
      throw new Error("down")
    }],
    ["answers with no list", () => Effect.succeed("down")],
    ["answers short", () => Effect.succeed([])]
  ]
  for (const [what, apply] of broken) {
    it.effect(`a chunk that ${what} leaves the effect of its own items unknown`, () =>
      Effect.gen(function*() {
        const { run } = bank({
          chunk: 2,
          apply: (items: ReadonlyArray<ToApply>) =>
            items[0]!.id === "a" ? apply() : Effect.succeed(items.map(({ id }) => id))
        })
        const [outcome] = yield* run(ts("a", "b", "c"))
        assert.deepStrictEqual(statuses(outcome), ["error", "error", "ok"])
        assert.deepStrictEqual(effects(outcome), ["unknown", "unknown", "applied"])
        assert.deepStrictEqual(retryable(outcome), [false, false, undefined])
      }))
  }

  it.effect("a failure of a form that the tool does not declare touches its own item alone, and may have been applied", () =>
    Effect.gen(function*() {
      const sent: Array<string> = []
      const { layer, turn } = bank({
        idempotency: { mode: "record", key: ({ t }: Item) => `pay:${t}` },
        failures: { noEffect: () => true, transient: () => true },
        apply: (items: ReadonlyArray<ToApply>) =>
          Effect.succeed(items.map(({ id }) => {
            sent.push(id)
            return id === "b" ? Coalescer.failed({ text: "no" }) : id === "c" ? 5 : id
          }))
      })
      const [first, again] = yield* drive(
        Effect.all([turn([ts("a", "b", "c")]), turn([ts("a", "b", "c")])]).pipe(
          Effect.provide(Layer.mergeAll(layer, IdempotencyStore.layerMemory))
        )
      )
      assert.deepStrictEqual(statuses(first![0]), ["ok", "error", "error"])
      assert.deepStrictEqual(effects(first![0]), ["applied", "unknown", "applied"])
      const { message, ...rest } = resultOf(first![0]).results["b"]
      assert.match(message, /its failure is not as the tool says that it is: .*may have been applied/)
      assert.deepStrictEqual(rest, { status: "error", effect: "unknown", retryable: false })
      assert.match(resultOf(first![0]).results["c"].message, /not as the tool says that it is \(Expected string.*\)$/)
      // The record says the same.
      assert.deepStrictEqual(statuses(again![0]), ["ok", "in_doubt", "error"])
      assert.deepStrictEqual(effects(again![0]), ["applied", "unknown", "applied"])
      assert.deepStrictEqual(sent, ["a", "b", "c"])
    }))

  it.effect("a result that is not as the schema says is told as applied", () =>
    Effect.gen(function*() {
      const { run } = bank({
        apply: (items: ReadonlyArray<ToApply>) => Effect.succeed(items.map(({ id }) => id === "a" ? 7 : id))
      })
      const [outcome] = yield* run(ts("a", "b"))
      assert.deepStrictEqual(statuses(outcome), ["error", "ok"])
      assert.deepStrictEqual(effects(outcome), ["applied", "applied"])
    }))

  it.effect("a chunk that was sent is never cut short; each takes a permit", () =>
    Effect.gen(function*() {
      const { paid, requests, run } = bank({ chunk: 1, chunkTimeout: 10, backend: Bank }, undefined, 500)
      const [outcome] = yield* run(ts("a", "b", "c"))
      assert.deepStrictEqual(statuses(outcome), ["ok", "ok", "ok"])
      assert.deepStrictEqual(paid, ["a", "b", "c"])
      assert.deepStrictEqual(requests.map(({ at }) => at), [0, 0, 500])
    }))

  it.effect("where its backend honours keys, a late chunk is cut", () =>
    Effect.gen(function*() {
      const { paid, requests, run } = bank(
        { chunk: 1, chunkTimeout: 10, idempotency: { mode: "forward", key: ({ t }: Item) => `k:${t}` } },
        undefined,
        500
      )
      const [outcome] = yield* run(ts("a"))
      assert.deepStrictEqual([statuses(outcome), effects(outcome), retryable(outcome)], [["timeout"], ["unknown"], [
        true
      ]])
      assert.deepStrictEqual(requests.map(({ cut, keys }) => [cut, keys]), [[true, ["k:a"]]])
      assert.deepStrictEqual(paid, [])
    }))

  it.effect("what the backend turns away was not applied", () =>
    Effect.gen(function*() {
      const { layer, paid, pay } = bank({ chunk: 1, backend: Bank })
      const result = yield* drive((pay.handlers.pay as any)({ items: ts("a", "b", "c", "d") })).pipe(
        Effect.provide(Layer.merge(layer, Bank.layer({ concurrency: 1, queueLimit: 1 })))
      ) as Effect.Effect<BatchTool.Result<any>>
      assert.deepStrictEqual(result.ids.map((id) => result.results[id].status), [
        "ok",
        "ok",
        "not_applied",
        "not_applied"
      ])
      assert.deepStrictEqual([result.results["d"].effect, result.results["d"].retryable], ["none", true])
      assert.deepStrictEqual(paid, ["a", "b"])
    }))

  it.effect("a request that fails counts for the circuit of its backend, and an item's own failure does not", () =>
    Effect.gen(function*() {
      const breaker = { tripPolicy: CircuitBreaker.consecutive(1), openDuration: 1000 }
      const { layer, pay } = bank({
        backend: Bank,
        apply: (items: ReadonlyArray<ToApply>) =>
          items[0]!.id === "down"
            ? Effect.fail("down")
            : Effect.succeed(items.map(({ id }) => Coalescer.failed({ why: id, effect: "none" })))
      })
      const told = yield* Effect.forEach(["a", "b", "down", "c"], (id) =>
        Effect.map(
          drive((pay.handlers.pay as any)({ items: ts(id) }) as Effect.Effect<BatchTool.Result<any>>, 10),
          ({ results }) => results[id]
        )).pipe(Effect.provide(Layer.merge(layer, Bank.layer({ concurrency: 1, breaker }))))
      assert.deepStrictEqual(told.map(({ status }) => status), ["error", "error", "error", "not_applied"])
      assert.deepStrictEqual(told.map(({ effect }) => effect), ["none", "none", "unknown", "none"])
      assert.match(told[3].message, /has failed too often: nothing was started/)
    }))

  it.effect("more than the cap is deferred, not cut", () =>
    Effect.gen(function*() {
      const { paid, run } = bank({ cap: 2 })
      const [outcome] = yield* run(ts("a", "b", "c"))
      assert.deepStrictEqual(resultOf(outcome).deferred_ids, ["c"])
      assert.match(resultOf(outcome).note, /^1 of the items were not applied, for one call takes 2 at most/)
      assert.deepStrictEqual(paid, ["a", "b"])
    }))
})

describe("R27: order", () => {
  it.effect("is kept where the tool says so, one chunk after the other", () =>
    Effect.gen(function*() {
      const { pay, requests, run } = bank({ ordered: true, chunk: 2 })
      const [outcome] = yield* run(ts("c", "b", "a"))
      assert.strictEqual(resultOf(outcome).status, "ok")
      assert.deepStrictEqual(requests.map(({ at, items }) => [at, items]), [[0, ["c", "b"]], [30, ["a"]]])
      assert.match(pay.tool.description!, /in this order/)
    }))

  it.effect("without it chunks go side by side", () =>
    Effect.gen(function*() {
      const { requests, run } = bank({ chunk: 1 })
      yield* run(ts("c", "b", "a"))
      assert.deepStrictEqual(requests.map(({ at }) => at), [0, 0, 0])
    }))

  it.effect("after a chunk that did not wholly succeed nothing is sent", () =>
    Effect.gen(function*() {
      const { run, requests } = bank({ ordered: true, chunk: 2 }, ({ id }) => id === "b" ? "declines" : "pays")
      const [outcome] = yield* run(ts("a", "b", "c", "d"))
      assert.deepStrictEqual(statuses(outcome), ["ok", "error", "not_applied", "not_applied"])
      assert.deepStrictEqual(effects(outcome), ["applied", "none", "none", "none"])
      assert.deepStrictEqual(retryable(outcome).slice(2), [true, true])
      assert.strictEqual(requests.length, 1)
      assert.match(resultOf(outcome).note, /order counts/)
    }))

  it.effect("nothing is sent after an item that is invalid, or that has no id", () =>
    Effect.gen(function*() {
      const { paid, run } = bank({ ordered: true, chunk: 2 })
      const [one] = yield* run([{ t: "a" }, { t: 5 }, { t: "c" }])
      assert.deepStrictEqual(statuses(one), ["ok", "invalid", "not_applied"])
      const [two] = yield* run([{ t: "d" }, null, { t: "e" }])
      assert.deepStrictEqual(statuses(two), ["ok", "not_applied"])
      assert.deepStrictEqual(paid, ["a", "d"])
    }))
})

describe("R20: a stop", () => {
  const stopped = (extra: object) =>
    Effect.gen(function*() {
      const bench = bank({ chunk: 1, ...extra }, undefined, 100)
      const outcomes = yield* Effect.gen(function*() {
        const turn = yield* Turn.start(bench.toolkit, bench.calls([ts("a", "b", "c", "d")]))
        yield* TestClock.adjust(50)
        const fiber = yield* fork(turn.cancel("user"))
        yield* TestClock.adjust(1000)
        return yield* ended(fiber)
      }).pipe(Effect.scoped, Effect.provide(bench.layer)) as Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>>
      return { ...bench, outcome: outcomes[0] }
    })

  it.effect("awaits what was sent, and sends nothing more", () =>
    Effect.gen(function*() {
      const { outcome, paid, requests } = yield* stopped({ backend: Bank })
      assert.deepStrictEqual(statuses(outcome), ["ok", "ok", "not_applied", "not_applied"])
      assert.deepStrictEqual(retryable(outcome).slice(2), [true, true])
      assert.deepStrictEqual(paid, ["a", "b"])
      assert.strictEqual(requests.length, 2)
    }))

  it.effect("cuts what its backend honours keys for, and says that it may have been applied", () =>
    Effect.gen(function*() {
      const { outcome, paid } = yield* stopped({
        ordered: true,
        idempotency: { mode: "forward", key: ({ t }: Item) => t }
      })
      assert.deepStrictEqual(statuses(outcome), ["error", "not_applied", "not_applied", "not_applied"])
      assert.deepStrictEqual(effects(outcome), ["unknown", "none", "none", "none"])
      assert.deepStrictEqual(retryable(outcome), [true, true, true, true])
      assert.deepStrictEqual(paid, [])
    }))

  it.effect("outside of turns an interruption waits for what was sent", () =>
    Effect.gen(function*() {
      const { layer, paid, pay, requests } = bank({ chunk: 1, backend: Bank }, undefined, 100)
      yield* Effect.gen(function*() {
        const fiber = yield* fork((pay.handlers.pay as any)({ items: ts("a", "b", "c") }) as Effect.Effect<unknown>)
        yield* TestClock.adjust(50)
        const stop = yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(1000)
        yield* ended(stop)
      }).pipe(Effect.provide(layer))
      assert.deepStrictEqual(paid, ["a", "b"])
      assert.strictEqual(requests.length, 2)
    }))
})

describe("R23: items that carry a key", () => {
  const record = { idempotency: { mode: "record", key: ({ t }: Item) => `k:${t}` } }
  const forward = { idempotency: { mode: "forward", key: ({ t }: Item) => `k:${t}` } }
  const stored = <A, E>(effect: Effect.Effect<A, E, any>, layer: Layer.Layer<any>): Effect.Effect<A, E> =>
    Effect.provide(effect, Layer.merge(layer, IdempotencyStore.layerMemory)) as Effect.Effect<A, E>

  it.effect("a retry after a partial failure applies only what is missing", () =>
    Effect.gen(function*() {
      const { layer, paid, requests, turn } = bank(
        { ...record, chunk: 2 },
        ({ id }, request) => id === "b" && request === 1 ? "declines" : "pays"
      )
      yield* stored(
        Effect.gen(function*() {
          const [first] = yield* drive(turn([ts("a", "b", "c")]))
          assert.deepStrictEqual(statuses(first), ["ok", "error", "ok"])
          const [second] = yield* drive(turn([ts("a", "b", "c", "d")]))
          assert.deepStrictEqual(resultOf(second).results, {
            a: { status: "ok", value: "receipt a 1", effect: "applied", replayed: true },
            b: { status: "ok", value: "receipt b 3", effect: "applied" },
            c: { status: "ok", value: "receipt c 2", effect: "applied", replayed: true },
            d: { status: "ok", value: "receipt d 3", effect: "applied" }
          })
          const [third] = yield* drive(turn([ts("d", "a")]))
          assert.isTrue(resultOf(third).ids.every((id) => resultOf(third).results[id].replayed === true))
        }),
        layer
      )
      assert.deepStrictEqual(requests.map(({ items }) => items), [["a", "b"], ["c"], ["b", "d"]])
      assert.deepStrictEqual(paid, ["a", "c", "b", "d"])
    }))

  it.effect("what nobody knows is in doubt, and not sent again", () =>
    Effect.gen(function*() {
      const { layer, requests, turn } = bank(record, ({ id }) => id === "b" ? "breaks" : "pays")
      yield* stored(
        Effect.gen(function*() {
          const [first] = yield* drive(turn([ts("a", "b")]))
          assert.deepStrictEqual(effects(first), ["applied", "unknown"])
          assert.deepStrictEqual(retryable(first), [undefined, false])
          const [second] = yield* drive(turn([ts("a", "b")]))
          assert.deepStrictEqual(statuses(second), ["ok", "in_doubt"])
          assert.deepStrictEqual([effects(second)[1], retryable(second)[1]], ["unknown", false])
        }),
        layer
      )
      assert.strictEqual(requests.length, 1)
    }))

  it.effect("where the backend honours keys, it is sent again under the same key, and stays in doubt until it is applied", () =>
    Effect.gen(function*() {
      const { layer, requests, turn } = bank(
        forward,
        (_, request) => request === 1 ? "breaks" : request === 2 ? "declines" : "pays"
      )
      yield* stored(
        Effect.gen(function*() {
          const [first] = yield* drive(turn([ts("a")]))
          assert.deepStrictEqual([statuses(first), retryable(first)], [["error"], [true]])
          const [second] = yield* drive(turn([ts("a")]))
          assert.deepStrictEqual([statuses(second), effects(second)], [["error"], ["unknown"]])
          const [third] = yield* drive(turn([ts("a")]))
          assert.deepStrictEqual(statuses(third), ["ok"])
          const [fourth] = yield* drive(turn([ts("a")]))
          assert.strictEqual(resultOf(fourth).results["a"].replayed, true)
        }),
        layer
      )
      assert.deepStrictEqual(requests.map(({ keys }) => keys), [["k:a"], ["k:a"], ["k:a"]])
    }))

  it.effect("a key of other content is told, and so is one that two items share", () =>
    Effect.gen(function*() {
      const { layer, paid, turn } = bank({ idempotency: { mode: "record", key: ({ t }: Item) => t.slice(0, 1) } })
      yield* stored(
        Effect.gen(function*() {
          const [first] = yield* drive(turn([ts("a1", "a2", "b")]))
          assert.deepStrictEqual(statuses(first), ["ok", "key_reused", "ok"])
          assert.deepStrictEqual([effects(first)[1], retryable(first)[1]], ["none", false])
          const [second] = yield* drive(turn([[{ t: "b", n: 7 }]]))
          assert.deepStrictEqual(statuses(second), ["key_reused"])
        }),
        layer
      )
      assert.deepStrictEqual(paid, ["a1", "b"])
    }))

  it.effect("a key that cannot be told sends nothing", () =>
    Effect.gen(function*() {
      const { layer, paid, turn } = bank({
        idempotency: {
          mode: "record",
          key: ({ t }: Item) => {
            if (t === "a") throw new Error("no key")
            return t === "b" ? "" : t
          }
        }
      })
      const [outcome] = yield* stored(drive(turn([ts("a", "b", "c")])), layer)
      assert.deepStrictEqual(statuses(outcome), ["error", "error", "ok"])
      assert.deepStrictEqual(effects(outcome), ["none", "none", "applied"])
      assert.deepStrictEqual(paid, ["c"])
    }))

  it.effect("one that is at work elsewhere is waited for", () =>
    Effect.gen(function*() {
      const { layer, paid, turn } = bank({ ...record, resources: () => [] }, undefined, 5000)
      yield* stored(
        Effect.gen(function*() {
          const one = yield* fork(turn([ts("a", "b")]))
          yield* TestClock.adjust(10)
          const two = yield* fork(turn([ts("b", "c")]))
          yield* TestClock.adjust(60_000)
          const [first] = yield* ended(one)
          const [second] = yield* ended(two)
          assert.deepStrictEqual(statuses(first), ["ok", "ok"])
          assert.deepStrictEqual(resultOf(second).results, {
            b: { status: "ok", value: "receipt b 1", effect: "applied", replayed: true },
            c: { status: "ok", value: "receipt c 2", effect: "applied" }
          })
        }),
        layer
      )
      assert.deepStrictEqual(paid.toSorted(), ["a", "b", "c"])
    }))

  it.effect("a reservation is kept while its request is at work, however long that takes", () =>
    Effect.gen(function*() {
      const { layer, paid, turn } = bank({ ...record, resources: () => [] }, undefined, 9000)
      const stores = Layer.provide(IdempotencyStore.layer({ lease: 1000 }), TurnStore.layerMemory)
      yield* Effect.gen(function*() {
        const one = yield* fork(turn([ts("a")]))
        yield* TestClock.adjust(5000)
        const two = yield* fork(turn([ts("a")]))
        yield* TestClock.adjust(60_000)
        assert.deepStrictEqual(statuses((yield* ended(one))[0]), ["ok"])
        assert.strictEqual(resultOf((yield* ended(two))[0]).results["a"].replayed, true)
      }).pipe(Effect.provide(Layer.merge(layer, stores)))
      assert.deepStrictEqual(paid, ["a"])
    }))

  it.effect("a store that is down: nothing is sent", () =>
    Effect.gen(function*() {
      const { layer, paid, turn } = bank(record)
      const down = () => Effect.fail(new TurnStore.StoreError({ store: "s", operation: "get", description: "down" }))
      const broken = Layer.succeed(IdempotencyStore.IdempotencyStore, { lease: 1000, peek: down, reserve: down } as any)
      const [outcome] = yield* drive(turn([ts("a")])).pipe(Effect.provide(Layer.merge(layer, broken)))
      assert.deepStrictEqual([statuses(outcome), effects(outcome), retryable(outcome)], [["not_applied"], ["none"], [
        true
      ]])
      assert.deepStrictEqual(paid, [])
    }))

  it.effect("in order, what was applied before counts as a success, and what is in doubt does not", () =>
    Effect.gen(function*() {
      const { layer, requests, turn } = bank(
        { ...record, ordered: true, chunk: 2 },
        ({ id }) => id === "b" ? "breaks" : "pays"
      )
      yield* stored(
        Effect.gen(function*() {
          const [first] = yield* drive(turn([ts("a", "b", "c")]))
          assert.deepStrictEqual(statuses(first), ["ok", "error", "not_applied"])
          const [second] = yield* drive(turn([ts("a", "d", "b", "c")]))
          assert.deepStrictEqual(statuses(second), ["ok", "ok", "in_doubt", "not_applied"])
        }),
        layer
      )
      assert.deepStrictEqual(requests.map(({ items }) => items), [["a", "b"], ["d"]])
    }))
})

describe("R21: the key of an item", () => {
  for (const [when, slow] of [["before", true], ["after", false]] as const) {
    it.effect(`is free again after a stop that comes ${when} the store has reserved it`, () =>
      Effect.gen(function*() {
        const bench = bank({ idempotency: { mode: "record", key: ({ t }: Item) => t } })
        const pause = { millis: 100 }
        const stores = Layer.effect(
          IdempotencyStore.IdempotencyStore,
          Effect.map(IdempotencyStore.IdempotencyStore, (store) =>
            IdempotencyStore.IdempotencyStore.of({
              ...store,
              reserve: (key, options) =>
                slow
                  ? Effect.andThen(Effect.sleep(pause.millis), store.reserve(key, options))
                  : Effect.tap(store.reserve(key, options), () => Effect.sleep(pause.millis))
            }))
        ).pipe(Layer.provide(IdempotencyStore.layerMemory))
        yield* Effect.gen(function*() {
          const turn = yield* Turn.start(bench.toolkit, bench.calls([ts("a", "b")]))
          yield* TestClock.adjust(50)
          const fiber = yield* fork(turn.cancel("user"))
          yield* TestClock.adjust(1000)
          const [outcome] = yield* ended(fiber)
          assert.deepStrictEqual(statuses(outcome), ["not_applied", "not_applied"])
          assert.deepStrictEqual(bench.requests, [])
          pause.millis = 0
          const [again] = yield* drive(bench.turn([ts("a", "b")]))
          assert.deepStrictEqual(statuses(again), ["ok", "ok"])
        }).pipe(Effect.scoped, Effect.provide(Layer.merge(bench.layer, stores)))
      }))
  }
})

describe("R23: always", () => {
  const end = pick("pays", "pays", "declines", "breaks", "missing")
  it.effect.prop(
    "an item is applied once at most, however often its list is retried, and is told as what it is",
    {
      names: Arbitrary.array(pick("a", "b", "c", "d", "e", "f"), { minLength: 1, maxLength: 8 }),
      ends: Arbitrary.array(end, { minLength: 7, maxLength: 7 }),
      chunk: int(1, 3),
      ordered: pick(false, true),
      mode: pick("record", "forward")
    },
    ({ chunk, ends, mode, names, ordered }) =>
      Effect.gen(function*() {
        const { layer, paid, turn } = bank(
          { chunk, ordered, idempotency: { mode, key: ({ t }: Item) => t } },
          ({ id }, request) => ends[(id.charCodeAt(0) + request * 3) % ends.length]!
        )
        const told = yield* Effect.gen(function*() {
          const all: Array<BatchTool.Result<any>> = []
          for (let i = 0; i < 3; i++) all.push(resultOf((yield* drive(turn([ts(...names)])))[0]))
          return all
        }).pipe(Effect.provide(Layer.merge(layer, IdempotencyStore.layerMemory)))
        assert.strictEqual(new Set(paid).size, paid.length)
        const applied = new Set<string>()
        const inDoubt = new Set<string>()
        for (const result of told) {
          const { deferred, ok, other, requested } = result.summary
          assert.deepStrictEqual(result.ids, [...new Set(names)])
          assert.strictEqual(ok + other + deferred, requested)
          for (const id of result.ids) {
            const { effect, replayed, retryable, status, value } = result.results[id]
            if (status === "ok") {
              assert.strictEqual(value.startsWith(`receipt ${id} `), true)
              assert.strictEqual(replayed === true, applied.has(id))
              applied.add(id)
            } else {
              assert.isFalse(applied.has(id))
              if (effect === "none") assert.isFalse(inDoubt.has(id))
              if (effect === "unknown") {
                inDoubt.add(id)
                assert.strictEqual(retryable, mode === "forward")
              }
            }
          }
        }
        assert.deepStrictEqual([...applied].sort(), paid.toSorted())
      }),
    runs(150)
  )
})

describe("R10: approval of a list", () => {
  it.effect("shows the whole list, and asks for nothing where nothing could be applied", () =>
    Effect.gen(function*() {
      const { calls, layer, paid, toolkit } = bank({ destructive: true, approval: "always", cap: 2 })
      const list = [{ t: "a" }, null, { t: "b" }, { t: "c" }]
      yield* Effect.gen(function*() {
        const held = yield* Turn.runOrPark(toolkit, calls([list, [null]]))
        if (held._tag !== "Parked") throw new Error("expected a turn that waits")
        assert.deepStrictEqual(held.parked.requests.map((request) => request.arguments), [{ items: list }])
        const decisions = held.parked.requests.map(({ position }) => ({
          position,
          decision: Approval.edit({ items: [{ t: "b" }] })
        }))
        const { outcomes } = yield* drive(Turn.resume(toolkit, held.parked, { decisions }))
        assert.deepStrictEqual(outcomes.map((outcome) => resultOf(outcome).summary.ok), [1, 0])
      }).pipe(Effect.provide(layer)) as Effect.Effect<void>
      assert.deepStrictEqual(paid, ["b"])
    }))

  it.effect("a predicate sees the items that are in order", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const { paid, run } = bank({
        approval: (items: ReadonlyArray<Item>) => {
          seen.push(items)
          return items.length > 1
        }
      })
      const outcomes = yield* run([{ t: "a" }, null], ts("b", "c"))
      assert.deepStrictEqual(words(outcomes), ["ok", "pending_approval"])
      assert.deepStrictEqual(seen, [ts("a"), ts("b", "c")])
      assert.deepStrictEqual(paid, ["a"])
    }))

  it("what a tool says of itself", () => {
    const destructive = (extra: object) => {
      const { tool } = bank(extra).pay
      return (tool.annotations as any).mapUnsafe.get(Tool.Destructive.key)
    }
    assert.strictEqual(destructive({ destructive: true, approval: "never" }), true)
    assert.strictEqual(destructive({ destructive: false }), false)
    assert.strictEqual(destructive({}), undefined)
    assert.strictEqual(bank({ destructive: true, approval: "never" }).pay.tool.needsApproval, undefined)
  })
})
