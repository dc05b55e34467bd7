import { Backend, Coalescer, ToolPolicy, Turn, TurnContext } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Request from "effect/Request"
import * as RequestResolver from "effect/RequestResolver"
import * as Schema from "effect/Schema"
import { describe, expectTypeOf, it } from "vitest"

class Api extends Backend.Service<Api>()("app/Api") {}

interface Order {
  readonly id: string
  readonly euros: number
}

const orders = Coalescer.make({
  name: "orders",
  backend: Api,
  itemKey: (order: Order) => order.id,
  lookup: (ids: ReadonlyArray<string>) => Effect.succeed(ids.map((id): Order => ({ id, euros: 1 })))
})

const Unsaid = Tool.make("get", {
  parameters: Schema.Struct({ id: Schema.String }),
  success: Schema.Struct({ id: Schema.String, euros: Schema.Finite })
})
const Get = pipe(Unsaid, ToolPolicy.read())

describe("make", () => {
  it("a load needs the tenant and the backend", () => {
    expectTypeOf(orders.load("a")).toEqualTypeOf<
      Effect.Effect<Order, Coalescer.LoadError | Backend.Refused, Api | TurnContext.Tenant>
    >()
    expectTypeOf(orders.loadAll(["a"])).toEqualTypeOf<
      Effect.Effect<
        ReadonlyArray<Exit.Exit<Order, Coalescer.LoadError | Backend.Refused>>,
        never,
        Api | TurnContext.Tenant
      >
    >()
    const withoutTenant = Effect.provide(orders.load("a"), Api.layer({ concurrency: 1 }))
    expectTypeOf<Effect.Services<typeof withoutTenant>>().toEqualTypeOf<TurnContext.Tenant>()
    const withoutBackend = Effect.provide(orders.load("a"), TurnContext.make({ tenant: "north" }))
    expectTypeOf<Effect.Services<typeof withoutBackend>>().toEqualTypeOf<Api>()
    // @ts-expect-error: keys are texts
    void orders.load(1)
  })
  it("the failures of items are those of loads", () => {
    const failing = Coalescer.make({
      name: "orders",
      lookup: (ids: ReadonlyArray<string>) =>
        Effect.succeed(ids.map((id) => id === "" ? Coalescer.failed("empty" as const) : id.length))
    })
    expectTypeOf(failing.load("a")).toEqualTypeOf<
      Effect.Effect<number, "empty" | Coalescer.LoadError | Backend.Refused, TurnContext.Tenant>
    >()
  })
  it("an answer of something else does not compile", () => {
    Coalescer.make<string, number>({
      name: "orders",
      // @ts-expect-error: texts are no numbers
      lookup: (ids) => Effect.succeed(ids.map((id) => id))
    })
    Coalescer.make<string, number>({
      name: "orders",
      // @ts-expect-error: one item is no list
      lookup: () => Effect.succeed(1)
    })
  })
})

describe("through", () => {
  const Through = pipe(Get, Coalescer.through(orders, ({ id }) => id))
  it("the tool needs what its coalescer needs", () => {
    expectTypeOf<Tool.HandlerServices<typeof Through>>().toEqualTypeOf<Api | TurnContext.Tenant>()
    const toolkit = Toolkit.make(Through)
    const layer = Layer.mergeAll(toolkit.toLayer({ get: Coalescer.handler(Through) }), Turn.layer())
    const run = Effect.provide(Turn.run(toolkit, []), layer)
    const tenant = TurnContext.make({ tenant: "north" })
    const backend = Effect.provide(Api.layer({ concurrency: 1 }))
    void Effect.runPromise(run.pipe(Effect.provide(tenant), backend))
    const withoutTenant = backend(run)
    expectTypeOf<Effect.Services<typeof withoutTenant>>().toEqualTypeOf<TurnContext.Tenant>()
    const withoutBackend = Effect.provide(run, tenant)
    expectTypeOf<Effect.Services<typeof withoutBackend>>().toEqualTypeOf<Api>()
  })
  it("key, item and failure have to be the tool's", () => {
    // @ts-expect-error: a number is no key of these orders
    pipe(Get, Coalescer.through(orders, ({ id }) => id.length))
    // @ts-expect-error: there is no orderId
    pipe(Get, Coalescer.through(orders, ({ orderId }) => orderId))
    const text = { parameters: Schema.Struct({ id: Schema.String }), success: Schema.String }
    const Text = pipe(Tool.make("text", text), ToolPolicy.read())
    // @ts-expect-error: an order is no text
    pipe(Text, Coalescer.through(orders, ({ id }) => id))
    const failing = Coalescer.make<string, Order, "gone">({ name: "orders", lookup: () => Effect.succeed([]) })
    // @ts-expect-error: the tool does not fail
    pipe(Get, Coalescer.through(failing, ({ id }) => id))
    const Failing = pipe(
      Tool.make("get", {
        parameters: Schema.Struct({ id: Schema.String }),
        success: Schema.Struct({ id: Schema.String, euros: Schema.Finite }),
        failure: Schema.Literal("gone")
      }),
      ToolPolicy.read()
    )
    pipe(Failing, Coalescer.through(failing, ({ id }) => id))
  })
})

describe("what may be cut short", () => {
  it("a tool that has not said that it reads does not compile", () => {
    // @ts-expect-error: a request may be cut short, and a write may not
    pipe(Unsaid, Coalescer.through(orders, () => "a"))
  })
})

describe("resolvers", () => {
  class GetOrder extends Request.Class<{ readonly id: string }, Order, "gone"> {}
  it("fromResolver has the item and the failure of the request", () => {
    const resolver = RequestResolver.make<GetOrder>(() => Effect.void)
    const coalescer = Coalescer.fromResolver({
      name: "orders",
      resolver,
      request: (id: string) => new GetOrder({ id })
    })
    expectTypeOf(coalescer.load("a")).toEqualTypeOf<
      Effect.Effect<Order, "gone" | Coalescer.LoadError | Backend.Refused, TurnContext.Tenant>
    >()
  })
  it("toResolver is for requests that can fail as a load does, with its services", () => {
    type Errors = Coalescer.LoadError | Backend.Refused
    class Load extends Request.Class<{ readonly id: string }, Order, Errors, Api | TurnContext.Tenant> {}
    class Sure extends Request.Class<{ readonly id: string }, Order, never, Api | TurnContext.Tenant> {}
    class Free extends Request.Class<{ readonly id: string }, Order, Errors> {}
    expectTypeOf(Coalescer.toResolver(orders, (request: Load) => request.id)).toEqualTypeOf<
      RequestResolver.RequestResolver<Load>
    >()
    expectTypeOf(Coalescer.toResolver(orders, (request: Sure) => request.id)).toEqualTypeOf<never>()
    // @ts-expect-error: the request has no tenant
    Coalescer.toResolver(orders, (request: Free) => request.id)
  })
})
