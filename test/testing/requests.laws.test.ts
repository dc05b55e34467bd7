/** The laws on calls that are merged into requests: they hold, and each sees what breaks it. */
import { describe, it } from "@effect/vitest"
import { Backend, Coalescer, ToolPolicy } from "effect-turn"
import { Laws } from "effect-turn/testing"
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
      skus.filter((sku) => sku !== "c").map((sku): typeof Stock.Type => ({ sku, of: tenant })).reverse()
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
