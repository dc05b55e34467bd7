/** The laws on calls that are merged into requests: they hold, and each sees what breaks it. */
import { assert, describe, it } from "@effect/vitest"
import { Backend, Coalescer, ToolCall, ToolPolicy } from "effect-turn"
import { Laws, Simulation, TurnCase } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

class Shop extends Backend.Service<Shop>()("test/Shop") {}

const Sku = Schema.Struct({ sku: Schema.String })
const Stock = Schema.Struct({ sku: Schema.String, of: Schema.String })

/** Items that name their key and their tenant; one is not there, and one fails by itself. */
const stocks = Coalescer.make({
  name: "stocks",
  size: 2,
  backend: Shop,
  itemKey: ({ sku }: typeof Stock.Type) => sku,
  lookup: (skus: ReadonlyArray<string>, { tenant }) =>
    Effect.as(
      Effect.sleep(10),
      skus.filter((sku) => sku !== "c").map((sku): typeof Stock.Type => ({ sku, of: tenant })).toReversed()
    )
})

const parts = { parameters: Sku, success: Stock }
const keys = ({ sku }: typeof Sku.Type) => [`stock:${sku}`]
const GetStock = pipe(
  Tool.make("get_stock", parts),
  ToolPolicy.read({ keys }),
  Coalescer.through(stocks, ({ sku }) => sku)
)
/** Asks for the same things, and is of no keys. */
const Peek = pipe(
  Tool.make("peek", parts),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.timeout(15),
  Coalescer.through(stocks, ({ sku }) => sku)
)

const Skus = Schema.Struct({ skus: Schema.Array(Schema.String) })
const Stocks = Schema.Array(Schema.NullOr(Stock))
/** The list: what is not found is null. */
const GetStocks = pipe(
  Tool.make("get_stocks", { parameters: Skus, success: Stocks }),
  ToolPolicy.read({ keys: ({ skus }) => skus.map((sku) => `stock:${sku}`) }),
  ToolPolicy.on(Shop)
).annotate(Coalescer.MergingAnnotation, {
  coalescer: stocks,
  wants: ({ skus }: typeof Skus.Type) => [...new Set(skus)],
  answer: ({ skus }: typeof Skus.Type, found) =>
    Exit.succeed(skus.map((sku) => {
      const item = found.get(sku)
      return item !== undefined && Exit.isSuccess(item) ? item.value : null
    }))
})
const SetStock = pipe(Tool.make("set_stock", { parameters: Sku }), ToolPolicy.write({ keys }))
const Audit = pipe(
  Tool.make("audit", { parameters: Sku, success: Schema.String }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.on(Shop)
)

const toolkit = Toolkit.make(GetStock, Peek, GetStocks, SetStock, Audit)
const handlers = toolkit.toLayer({
  get_stock: Coalescer.handler(GetStock),
  peek: Coalescer.handler(Peek),
  get_stocks: Coalescer.handler(GetStocks as any) as any,
  set_stock: () => Effect.sleep(10),
  audit: ({ sku }) => Effect.as(Effect.sleep(10), sku)
})
const layer = Layer.merge(handlers, Shop.layer({ concurrency: 2 })) as Layer.Layer<any>

describe("a suite over single tools and a list of one coalescer, a write, and others on its backend", () => {
  Laws.suite(it, {
    toolkit,
    layer,
    inputs: 300,
    seeds: 5,
    seed: Number(process.env["EFFECT_TURN_SEED"] ?? 1),
    cases: {
      arguments: {
        get_stocks: Arbitrary.map(
          Arbitrary.array(
            Arbitrary.map(
              Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 }))),
              (i) => "abcd"[i]!
            ),
            { maxLength: 5 }
          ),
          (skus) => ({ skus })
        )
      }
    }
  })
})

/** What was seen of one turn of `north`: three things in two requests. */
const seen = Effect.gen(function*() {
  const calls = ["a", "b", "d"].map((sku, i) => ({
    call: ToolCall.make(`c${i}`, "get_stock", { sku }),
    before: 0,
    after: 0
  }))
  const run = yield* Simulation.run(TurnCase.run(toolkit, layer, {
    turns: [{ calls, tenant: "north", at: 0, siblings: "letFinish", execution: "parallel", dedupe: "all" }]
  }))
  assert.isUndefined(run.problem)
  return (run.exit as Exit.Success<Laws.Observation>).value
})

const ofRequests = [Laws.requestsApart, Laws.requestsSized, Laws.requestsFew, Laws.requestsWanted, Laws.ownItems]

/** The same observation with its first request changed. */
const changed = (o: Laws.Observation, change: Partial<Laws.ObservedRequest>): Laws.Observation => ({
  ...o,
  requests: o.requests!.map((one, i) => (i === 0 ? { ...one, ...change } : one))
})

describe("each law of requests", () => {
  it.effect("judges something, and finds nothing wrong, in a turn that keeps it", () =>
    Effect.gen(function*() {
      const o = yield* seen
      assert.deepStrictEqual(o.requests?.map(({ keys, tenant, tool }) => [tool, tenant, keys]), [
        ["stocks", "north", ["a", "b"]],
        ["stocks", "north", ["d"]]
      ])
      for (const law of ofRequests) assert.isAbove(law.judge(o).judged, 0, law.name)
      assert.deepStrictEqual(Laws.broken(o), [])
    }))

  it.effect("sees a key that is another tenant's, and one that nobody asks for", () =>
    Effect.gen(function*() {
      const o = yield* seen
      const others = Laws.broken(changed(o, { tenant: "south" }), [Laws.requestsApart])
      assert.strictEqual(others.length, 2)
      assert.strictEqual(
        others[0],
        'R28: a request to stocks for the tenant "south" at 0 ms has the key a, which no call of that tenant asks for'
      )
      assert.match(Laws.broken(changed(o, { texts: ["a", "z"] }), [Laws.requestsApart]).join(), /has the key z/)
    }))

  it.effect("sees too many keys, a key twice, and too many requests", () =>
    Effect.gen(function*() {
      const o = yield* seen
      assert.deepStrictEqual(Laws.broken(changed(o, { texts: ["a", "b", "a"] }), [Laws.requestsSized]), [
        'R28: a request to stocks for the tenant "north" at 0 ms: expected at most 2 keys, got 3',
        'R28: a request to stocks for the tenant "north" at 0 ms has a key twice'
      ])
      const more = { ...o, requests: [...o.requests!, o.requests![0]!] }
      assert.deepStrictEqual(Laws.broken(more, [Laws.requestsFew]), [
        'R28: stocks, tenant "north": 3 keys that were ready together: expected at most 2 requests of 2, got 3'
      ])
    }))

  it.effect("sees a request that nobody waits for, and one that outlives its calls", () =>
    Effect.gen(function*() {
      const o = yield* seen
      const late = Laws.broken(changed(o, { began: 1e6, ended: 1e6 + 1 }), [Laws.requestsWanted])
      assert.match(late.join(), /^R28: a request to stocks .* was sent at 0 ms, and no call waited for it$/)
      const long = Laws.broken(changed(o, { ended: 1e6 }), [Laws.requestsWanted])
      assert.match(long.join(), /^R17: a request to stocks .* was still at work when all its calls had their answers$/)
    }))

  it.effect("sees an item that is another's, and one that nobody brought", () =>
    Effect.gen(function*() {
      const o = yield* seen
      const [found] = o.requests!.map((request) => request.found!)
      const mixed = changed(o, { found: new Map([["a", found!.get("b")], ["b", found!.get("a")]]) })
      assert.deepStrictEqual(
        Laws.broken(mixed, [Laws.ownItems])[0],
        'R28: turn 0, call 0 ("c0"): expected its own item, {"of":"north","sku":"b"}, got {"of":"north","sku":"a"}'
      )
      const none = Laws.broken({ ...o, requests: [] }, [Laws.ownItems])
      assert.strictEqual(none.length, 3)
      assert.match(none[0]!, /it was answered ok, and no request of its tenant has brought its key a$/)
    }))

  it.effect("R14: a request counts at its backend, and a merged call that waits for nothing is seen", () =>
    Effect.gen(function*() {
      const o = yield* seen
      const narrow = { ...o, backends: new Map([["test/Shop", { concurrency: 1, perTenant: Infinity }]]) }
      assert.match(Laws.broken(narrow, [Laws.limitsKept]).join(), /expected at most 1 at work at once, got 2 at 0 ms/)
      const idle = { ...o, requests: o.requests!.map((one) => ({ ...one, startedAt: 5 })) }
      const started = {
        ...idle,
        turns: o.turns.map((turn) => ({
          ...turn,
          events: turn.events!.map((one) =>
            one.event._tag === "CallStarted" ? { ...one, event: { ...one.event, at: 5 } } : one
          )
        }))
      }
      assert.strictEqual(
        Laws.broken(started, [Laws.workConserving])[0],
        "R12: turn 0, call 0, which is merged, could have asked: nothing was at work from 0 ms to 5 ms"
      )
    }))
})
