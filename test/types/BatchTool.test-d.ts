import {
  Backend,
  BatchTool,
  type Coalescer,
  type IdempotencyStore,
  type ToolPolicy,
  type TurnContext
} from "effect-turn"
import type * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { describe, expectTypeOf, it } from "vitest"

class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
class Crm extends Backend.TenantService<Crm>()("app/Crm") {}
class Db extends Context.Service<Db, { readonly find: (id: string) => string }>()("app/Db") {}

const Order = Schema.Struct({ id: Schema.String, total: Schema.FiniteFromString })
type Order = typeof Order.Type
const Gone = Schema.Struct({ gone: Schema.Boolean })

describe("make", () => {
  const orders = BatchTool.make("get_orders", {
    description: "…",
    item: Schema.String,
    success: Order,
    failure: Gone,
    failures: { transient: ({ gone }) => !gone },
    lookup: (ids, { tenant }) => {
      expectTypeOf(ids).toEqualTypeOf<readonly [string, ...Array<string>]>()
      expectTypeOf(tenant).toEqualTypeOf<string>()
      return Effect.map(Db, () => new Map<string, Order>())
    },
    resources: (id) => [id],
    single: { name: "get_order" }
  })

  it("the result is typed, item by item", () => {
    type Result = Tool.Success<typeof orders.tool>
    expectTypeOf<Result>().toEqualTypeOf<
      BatchTool.Result<BatchTool.Found<Order> | BatchTool.Missed<{ readonly gone: boolean }>>
    >()
    const check = (result: Result) => {
      const one = result.results["O-1"]
      if (one?.status === "ok") expectTypeOf(one.value).toEqualTypeOf<Order>()
      else if (one !== undefined) {
        expectTypeOf(one.status).toEqualTypeOf<"not_found" | "invalid" | "error" | "timeout">()
        expectTypeOf(one.failure).toEqualTypeOf<{ readonly gone: boolean } | undefined>()
      }
    }
    expectTypeOf(check).toBeFunction()
    expectTypeOf<Tool.Failure<typeof orders.tool>>().toEqualTypeOf<BatchTool.Empty>()
    expectTypeOf<Tool.Success<typeof orders.single>>().toEqualTypeOf<Order>()
    expectTypeOf<Tool.Failure<typeof orders.single>>().toEqualTypeOf<
      BatchTool.SingleFailure<{ readonly gone: boolean }>
    >()
    expectTypeOf<Tool.Parameters<typeof orders.single>>().toEqualTypeOf<{ readonly item: string }>()
  })

  it("what the lookup needs, and the tenant, are requirements of both tools", () => {
    expectTypeOf<Tool.Requirements<typeof orders.tool>>().toEqualTypeOf<Db | TurnContext.Tenant>()
    expectTypeOf<Tool.Requirements<typeof orders.single>>().toEqualTypeOf<Db | TurnContext.Tenant>()
    expectTypeOf(orders.coalescer).toEqualTypeOf<
      Coalescer.Coalescer<string, Order, { readonly gone: boolean }, Db | TurnContext.Tenant>
    >()
    expectTypeOf(orders.tool).toExtend<ToolPolicy.Retryable>()
  })

  it("a backend is one too", () => {
    const plain = { description: "…", item: Schema.String, success: Schema.String, lookup: () => Effect.succeed([]) }
    const hotels = BatchTool.make("hotels", { ...plain, backend: Hotels })
    expectTypeOf<Tool.Requirements<typeof hotels.tool>>().toEqualTypeOf<Hotels | TurnContext.Tenant>()
    const crm = BatchTool.make("crm", { ...plain, backend: Crm })
    expectTypeOf<Tool.Requirements<typeof crm.tool>>().toEqualTypeOf<Crm | TurnContext.Tenant>()
    expectTypeOf(hotels.single).toEqualTypeOf<undefined>()
  })

  it("the handlers fit the toolkit, by name", () => {
    const toolkit = Toolkit.make(orders.tool, orders.single)
    expectTypeOf(orders.handlers).toExtend<Parameters<typeof toolkit.of>[0]>()
    expectTypeOf(orders.handlers).toHaveProperty("get_orders")
    expectTypeOf(orders.handlers).toHaveProperty("get_order")
  })

  it("fields make the members of a value optional, and need a struct", () => {
    const some = BatchTool.make("some", {
      description: "…",
      item: Schema.String,
      success: Order,
      lookup: () => Effect.succeed([]),
      fields: true
    })
    type One = Tool.Success<typeof some.tool>["results"][string]
    expectTypeOf<Extract<One, { readonly status: "ok" }>["value"]>().toEqualTypeOf<
      { readonly id?: string; readonly total?: number }
    >()
    BatchTool.make("text", {
      description: "…",
      item: Schema.String,
      success: Schema.String,
      lookup: () => Effect.succeed([]),
      // @ts-expect-error - a text has no fields
      fields: true
    })
  })

  it("items that are objects need a key; texts and numbers do not", () => {
    const item = Schema.Struct({ row: Schema.FiniteFromString })
    const rest = { description: "…", success: Schema.String, lookup: () => Effect.succeed([]) }
    BatchTool.make("seats", {
      ...rest,
      item,
      key: (raw) => {
        expectTypeOf(raw).toEqualTypeOf<{ readonly row: string }>()
        return raw.row
      }
    })
    BatchTool.make("numbers", { ...rest, item: Schema.Finite })
    // @ts-expect-error - the key is missing
    BatchTool.make("seats", { ...rest, item })
  })

  it("the twin has a name of its own", () => {
    const plain = { description: "…", item: Schema.String, success: Schema.String, lookup: () => Effect.succeed([]) }
    BatchTool.make("orders", { ...plain, single: { name: "order" } })
    // @ts-expect-error - it is that of the list
    BatchTool.make("orders", { ...plain, single: { name: "orders" } })
    BatchTool.make("orders" as string, { ...plain, single: { name: "order" } })
  })

  it("an answer of other items does not compile", () => {
    BatchTool.make("orders", {
      description: "…",
      item: Schema.String,
      success: Order,
      // @ts-expect-error - a text is no order
      lookup: (ids) => Effect.succeed(ids)
    })
  })
})

describe("write", () => {
  const plain = {
    description: "…",
    item: Schema.String,
    success: Schema.FiniteFromString,
    apply: (items: ReadonlyArray<BatchTool.ToApply<string>>) => Effect.succeed(items.map(() => 1))
  }

  it("the result is typed, and needs what applying it needs", () => {
    const pay = BatchTool.write("pay", {
      ...plain,
      failure: Gone,
      apply: (items, { tenant }) => {
        expectTypeOf(items[0]).toEqualTypeOf<BatchTool.ToApply<string>>()
        expectTypeOf(tenant).toEqualTypeOf<string>()
        return Effect.map(Db, () => items.map(() => 1))
      }
    })
    expectTypeOf<Tool.Success<typeof pay.tool>>().toEqualTypeOf<
      BatchTool.Result<BatchTool.Applied<number> | BatchTool.NotApplied<{ readonly gone: boolean }>>
    >()
    expectTypeOf<Tool.Requirements<typeof pay.tool>>().toEqualTypeOf<Db>()
    const toolkit = Toolkit.make(pay.tool)
    expectTypeOf(pay.handlers).toExtend<Parameters<typeof toolkit.of>[0]>()
    expectTypeOf(pay).not.toHaveProperty("single")
  })

  it("a record needs its store and the tenant; a key that the backend honours does not", () => {
    const key = (id: string) => id
    const record = BatchTool.write("pay", { ...plain, backend: Hotels, idempotency: { mode: "record", key } })
    expectTypeOf<Tool.Requirements<typeof record.tool>>().toEqualTypeOf<
      Hotels | IdempotencyStore.IdempotencyStore | TurnContext.Tenant
    >()
    const forward = BatchTool.write("pay", { ...plain, idempotency: { mode: "forward", key } })
    expectTypeOf<Tool.Requirements<typeof forward.tool>>().toEqualTypeOf<never>()
  })

  it("a destructive one has to say whether it needs approval", () => {
    BatchTool.write("drop", { ...plain, destructive: true, approval: "never" })
    BatchTool.write("drop", { ...plain, destructive: true, approval: "always" })
    BatchTool.write("drop", {
      ...plain,
      destructive: true,
      approval: (ids) => {
        expectTypeOf(ids).toEqualTypeOf<readonly [string, ...Array<string>]>()
        return Effect.succeed(ids.length > 3)
      }
    })
    BatchTool.write("keep", { ...plain, destructive: false })
    // @ts-expect-error - the approval is missing
    BatchTool.write("drop", { ...plain, destructive: true })
    // @ts-expect-error - it has to be said, not left undefined
    BatchTool.write("drop", { ...plain, destructive: true, approval: undefined })
    // @ts-expect-error - it may be destructive
    BatchTool.write("drop", { ...plain, destructive: true as boolean })
  })

  it("a tool that writes is not to be tried again by itself", () => {
    const pay = BatchTool.write("pay", plain)
    expectTypeOf(pay.tool).not.toExtend<ToolPolicy.Retryable>()
  })
})
