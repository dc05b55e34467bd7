/** Two tenants that look things up in turns and by themselves, through one coalescer on one backend, and what has to hold of that. */
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type { Copy } from "./plant.ts"

const Sku = Schema.Struct({ sku: Schema.String })
const Stock = Schema.Struct({ sku: Schema.String, of: Schema.String })

/** What stops the turns, and when. */
export interface Stop {
  readonly name: string
  readonly turn: "cancel" | "cancelCall" | "interrupt" | undefined
  readonly at: number
}

export const stops: ReadonlyArray<Stop> = [
  { name: "nothing is stopped", turn: undefined, at: 0 },
  { name: "a call of each is stopped at work", turn: "cancelCall", at: 12 },
  { name: "each is cancelled while a request waits", turn: "cancel", at: 2 },
  { name: "each is interrupted at work", turn: "interrupt", at: 14 }
]

const size = 2
const concurrency = 2

/** Explores the shop under so many schedules. It fails with the first thing that does not hold. */
export const shop = ({ kit, library }: Copy, stop: Stop, seeds: number) => {
  const { Backend, Coalescer, ToolCall, ToolPolicy, Turn, TurnContext } = library
  const Shop = Backend.Service<unknown>()("shop/Shop")

  const program = Effect.gen(function*() {
    const problems: Array<string> = []
    const world = yield* kit.FakeTool.makeWorld
    const fake = kit.FakeTool.lookup(
      world,
      "stocks",
      { type: "items", item: (sku: string, { tenant }) => ({ sku, of: tenant }), paired: "key", shuffled: true },
      { backend: "shop" }
    )
    const pool = (yield* Shop).pool
    const stocks = Coalescer.make({
      name: "stocks",
      size,
      window: 5,
      backend: Shop,
      itemKey: ({ sku }: typeof Stock.Type) => sku,
      // In the middle of a request nothing else is about to begin or to end.
      lookup: (keys: readonly [string, ...Array<string>], request) => {
        const permits = Effect.sync(() => {
          const [out, working] = [pool.stats().running, world.atWork.length]
          if (out !== working) problems.push(`${out} permits are out, and ${working} requests are at work`)
        })
        return Effect.raceFirst(
          fake(keys, request),
          Effect.andThen(Effect.sleep(1), Effect.andThen(permits, Effect.never))
        )
      }
    })
    const GetStock = pipe(
      Tool.make("get_stock", { parameters: Sku, success: Stock }),
      ToolPolicy.read({ keys: () => [] }),
      Coalescer.through(stocks, ({ sku }) => sku)
    )
    const toolkit = Toolkit.make(GetStock)
    const handlers = toolkit.toLayer({ get_stock: Coalescer.handler(GetStock) } as any)

    /** Both ask for `x`; the other things are their own. */
    const thingsOf = (tenant: string) => ["x", `${tenant}-1`, `${tenant}-2`]
    const own = (tenant: string, sku: string, item: unknown) => {
      const { of, sku: got } = item as typeof Stock.Type
      if (of !== tenant || got !== sku) {
        problems.push(`${tenant} asked for ${sku}, and got ${got} of ${of}`)
      }
    }
    const turn = (tenant: string) =>
      Effect.gen(function*() {
        const calls = thingsOf(tenant).map((sku, i) => ToolCall.make(`c${i}`, "get_stock", { sku }))
        const handle = yield* Turn.start(toolkit, calls)
        const answers = yield* Effect.forkChild(handle.await)
        if (stop.turn !== undefined) {
          yield* Effect.sleep(stop.at)
          if (stop.turn === "cancelCall") yield* handle.cancelCall(0)
          else if (stop.turn === "cancel") yield* handle.cancel("user")
          else return yield* Fiber.interrupt(answers)
        }
        const outcomes = yield* Fiber.join(answers)
        outcomes.forEach((outcome, i) => {
          if (outcome.status === "ok") own(tenant, thingsOf(tenant)[i]!, outcome.result)
          else if (stop.turn === undefined) problems.push(`${tenant}: call ${i} was answered ${outcome.status}`)
        })
      }).pipe(Effect.scoped)
    const loads = (tenant: string) =>
      Effect.forEach(thingsOf(tenant), (sku, i) =>
        Effect.gen(function*() {
          const load = yield* Effect.forkChild(stocks.load(sku))
          if (i === 1 && stop.turn !== undefined) {
            yield* Effect.sleep(stop.at)
            return yield* Fiber.interrupt(load)
          }
          const exit = yield* Fiber.await(load)
          if (Exit.isSuccess(exit)) own(tenant, sku, exit.value)
          else problems.push(`${tenant}: the load of ${sku} failed`)
        }), { concurrency: "unbounded", discard: true })

    yield* Effect.forEach(
      ["north", "south"],
      (tenant) =>
        Effect.all([turn(tenant), loads(tenant)], { concurrency: "unbounded", discard: true }).pipe(
          Effect.provide(TurnContext.make({ tenant }))
        ),
      { concurrency: "unbounded", discard: true }
    ).pipe(Effect.provide(handlers))

    if (world.atWork.length > 0) problems.push(`${world.atWork.length} requests are at work, and nobody waits for them`)
    // What has ended may still be giving back what it held.
    yield* Effect.sleep(1)
    if (pool.stats().running > 0) problems.push(`${pool.stats().running} permits are lost`)
    if (world.peak("shop") > concurrency) problems.push(`${world.peak("shop")} requests were at work at once`)
    for (const { keys = [], tenant } of world.requests()) {
      if (keys.length > size || new Set(keys).size < keys.length) {
        problems.push(`a request has the keys ${keys.join(", ")}`)
      }
      const others = (keys as ReadonlyArray<string>).filter((key) => key !== "x" && !key.startsWith(tenant))
      if (others.length > 0) problems.push(`a request of ${tenant} asks for ${others.join(", ")}`)
    }
    if (problems.length > 0) return yield* Effect.fail(problems.join("; "))
  }).pipe(Effect.provide(Layer.merge(Turn.layer(), Shop.layer({ concurrency }))))

  return kit.Simulation.explore(program as Effect.Effect<void, string>, { seeds })
}
