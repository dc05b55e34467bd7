/**
 * Faults of requests, planted in a copy of the library one at a time: the kit has to find each of them, make it small, and repeat it. The
 * same programs pass on the library as it is.
 */
import type * as Kit from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { type Copy, describeFaults, type Fault } from "../utils/plant.ts"
import { shop, stops } from "../utils/shop.ts"

const [natural] = stops

/** Turns and plain loads of two tenants. */
const shared = (copy: Copy) => shop(copy, natural!, 200)

const Sku = Schema.Struct({ sku: Schema.String })
const Stock = Schema.Struct({ sku: Schema.String, of: Schema.String })

/** Turns of a tool that is merged and a write, on a narrow backend; the laws judge them. */
const turns = ({ kit, library }: Copy) => {
  const { Backend, Coalescer, ToolPolicy } = library
  const Shop = Backend.Service<unknown>()("planted/Shop")
  const stocks = Coalescer.make({
    name: "stocks",
    size: 2,
    backend: Shop,
    itemKey: ({ sku }: typeof Stock.Type) => sku,
    lookup: (skus: ReadonlyArray<string>, { tenant }) =>
      Effect.as(Effect.sleep(10), skus.map((sku) => ({ sku, of: tenant })).toReversed())
  })
  const keys = ({ sku }: typeof Sku.Type) => [`stock:${sku}`]
  const GetStock = pipe(
    Tool.make("get_stock", { parameters: Sku, success: Stock }),
    ToolPolicy.read({ keys }),
    Coalescer.through(stocks, ({ sku }) => sku)
  )
  const SetStock = pipe(Tool.make("set_stock", { parameters: Sku }), ToolPolicy.write({ keys }))
  const toolkit = Toolkit.make(GetStock, SetStock)
  const handlers = (toolkit.toLayer as (handlers: object) => Layer.Layer<any>)({
    get_stock: Coalescer.handler(GetStock),
    set_stock: () => Effect.sleep(10)
  })
  const layer = Layer.merge(handlers, Shop.layer({ concurrency: 1 })) as Layer.Layer<any>
  const cases = kit.TurnCase.arbitrary(toolkit, { oddities: false })
  const program = (turnCase: Kit.TurnCase.TurnCase) =>
    Effect.flatMap(kit.TurnCase.run(toolkit, layer, turnCase), (observation) => kit.Laws.check(observation))
  return kit.Simulation.forAll(cases, program, { inputs: 150, seeds: 2 })
}

const faults: ReadonlyArray<Fault> = [
  {
    fault: "requests that collect are not kept apart by tenant",
    changes: [
      {
        file: "internal/coalescer/engine.ts",
        from:
          "    let lane = home.get(tenant)\n    if (lane === undefined) home.set(tenant, lane = new Lane(tenant, home))\n",
        to: '    let lane = home.get("")\n    if (lane === undefined) home.set("", lane = new Lane(tenant, home))\n'
      }
    ],
    find: shared,
    tells: /asked for \S+, and got \S+ of|a request of \w+ asks for/
  },
  {
    fault: "a list is paired by position though its items have keys",
    changes: [{
      file: "internal/coalescer/pairing.ts",
      from: "return by.ofItem === undefined\n",
      to: "return true\n"
    }],
    find: shared,
    tells: /asked for \S+, and got \S+ of/
  },
  {
    fault: "every call of a turn takes a permit of its own, besides that of its request",
    changes: [{
      file: "internal/turn/state.ts",
      from: `    if (run.merging !== undefined) return this.begin(run)
    const pool = run.runner.entry.merging === undefined ? this.poolOf(run) : undefined
`,
      to: "    const pool = this.poolOf(run)\n"
    }],
    find: turns,
    tells: /R12: turn \d, call \d, which is merged, could have asked: nothing was at work from \d+ ms to \d+ ms/
  },
  {
    fault: "the permit of a request that was stopped is lost",
    changes: [{
      file: "internal/turn/requests.ts",
      from: "    this.release(request)\n    for (const run of done) this.compose(run)\n",
      to: "    if (Exit.isSuccess(exit)) this.release(request)\n    for (const run of done) this.compose(run)\n"
    }],
    find: turns,
    tells: /R14: backend "planted\/Shop", when .* expected at most 0 permits out/
  },
  {
    fault: "a call gets the first item of its request",
    changes: [{
      file: "internal/turn/requests.ts",
      from: "? exit.value.get(text) ??",
      to: "? exit.value.values().next().value ??"
    }],
    find: turns,
    tells: /R28: turn \d, call \d \("c\d"\): expected its own item/
  },
  {
    fault: "each call of a turn is a request of its own",
    changes: [{
      file: "internal/turn/requests.ts",
      from: "for (let at = 0; at < count; at += size) {",
      to: "for (let at = 0, size = 1; at < count; at += size) {"
    }],
    find: turns,
    tells: /R28: stocks, tenant "\w+": .* keys that were ready together: expected at most \d requests of 2, got \d/
  },
  {
    fault: "a request takes more than its size",
    changes: [{
      file: "internal/turn/requests.ts",
      from: "for (let at = 0; at < count; at += size) {",
      to: "for (let at = 0, size = count; at < count; at += size) {"
    }],
    find: turns,
    tells: /R28: a request to stocks .* expected at most 2 keys, got \d/
  },
  {
    fault: "a request that nobody waits for goes on",
    changes: [{
      file: "internal/turn/requests.ts",
      from: `        request.fiber.interruptUnsafe()
        // One that waits for nothing has ended by now.
        if (request.fiber !== undefined) left.push(request)
`,
      to: ""
    }],
    find: turns,
    tells: /R17: a request to stocks .* was still at work when all its calls had their answers/
  },
  {
    fault: "requests take no permit",
    changes: [{
      file: "internal/turn/state.ts",
      from: "if (pool === undefined && this.lines?.limiter === undefined) return false",
      to: "return false"
    }],
    find: turns,
    tells: /R14: backend "planted\/Shop": expected at most 1 at work at once, got \d/
  },
  {
    fault: "a call asks although an earlier write of its key is at work",
    changes: [
      {
        file: "internal/turn/state.ts",
        from: "      (run.node !== undefined && run.node.pending > 0)\n    ) return",
        to: "      false\n    ) return"
      },
      {
        file: "internal/turn/state.ts",
        from: "      if (node.pending > 0) {\n        run.waitedForKeys = true",
        to: "      if (node.pending > 2) {\n        run.waitedForKeys = true"
      }
    ],
    find: turns,
    tells: /R12: .*conflict on "stock:\w+"/
  }
]

describeFaults("planted faults of requests", faults, [shared, turns])
