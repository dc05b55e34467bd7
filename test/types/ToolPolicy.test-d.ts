import { Backend, ToolPolicy, TurnContext } from "effect-turn"
import type { TurnError } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import type * as DateTime from "effect/DateTime"
import type * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import type * as Layer from "effect/Layer"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as Schema from "effect/Schema"
import { describe, expectTypeOf, it } from "vitest"

class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
class Crm extends Backend.TenantService<Crm>()("app/Crm") {}

const Book = Tool.make("book", {
  parameters: Schema.Struct({ hotelId: Schema.String, from: Schema.DateTimeUtcFromString }),
  success: Schema.String,
  failure: Schema.Struct({ why: Schema.String })
})

type Params = { readonly hotelId: string; readonly from: DateTime.Utc }

describe("keys", () => {
  it("are computed from decoded parameters", () => {
    pipe(
      Book,
      ToolPolicy.read({
        keys: (params) => {
          expectTypeOf(params).toEqualTypeOf<Params>()
          return [params.hotelId]
        }
      })
    )
    pipe(
      Book,
      ToolPolicy.write({
        keys: (params) => {
          expectTypeOf(params).toEqualTypeOf<Params>()
          return [params.hotelId]
        }
      })
    )
    pipe(
      Book,
      ToolPolicy.keys((params) => {
        expectTypeOf(params).toEqualTypeOf<Params>()
        return [params.hotelId]
      })
    )
    pipe(
      Book,
      ToolPolicy.forward((params, place) => {
        expectTypeOf(params).toEqualTypeOf<Params>()
        expectTypeOf(place).toEqualTypeOf<ToolPolicy.Place>()
        return params.hotelId
      })
    )
  })

  it("of parameters that the tool does not have do not compile", () => {
    // @ts-expect-error: there is no roomId
    pipe(Book, ToolPolicy.read({ keys: ({ roomId }) => [roomId] }))
    // @ts-expect-error: a date is no text
    pipe(Book, ToolPolicy.write({ keys: ({ from }) => [from] }))
    // @ts-expect-error: keys are a list
    pipe(Book, ToolPolicy.keys(({ hotelId }) => hotelId))
    // @ts-expect-error: there is no roomId
    pipe(Book, ToolPolicy.forward(({ roomId }) => roomId))
  })
})

describe("policies keep the tool's type", () => {
  it("all but `on`", () => {
    expectTypeOf(
      pipe(
        Book,
        ToolPolicy.write(),
        ToolPolicy.timeout("10 seconds"),
        ToolPolicy.waitTimeout("infinite"),
        ToolPolicy.idleTimeout(500),
        ToolPolicy.repeatable,
        ToolPolicy.placeholders({ literal: ["hotelId"] }),
        ToolPolicy.forward(({ hotelId }) => hotelId)
      )
    ).toEqualTypeOf<typeof Book & ToolPolicy.Retryable>()
  })

  it("failures are classed by the tool's own failure", () => {
    const noEffect = ({ why }: { readonly why: string }) => why === "full"
    expectTypeOf(pipe(Book, ToolPolicy.failures<typeof Book>({ noEffect }))).toEqualTypeOf<typeof Book>()
    pipe(
      Book,
      ToolPolicy.failures({
        transient: (failure) => {
          expectTypeOf(failure).toEqualTypeOf<{ readonly why: string }>()
          return false
        }
      })
    )
  })

  it("limits are durations, or the word `infinite`", () => {
    // @ts-expect-error: no duration
    ToolPolicy.timeout("soon")
    // @ts-expect-error: there is no such word
    ToolPolicy.placeholders("maybe")
  })
})

describe("`on` adds the backend to what the tool requires", () => {
  it("and the tenant where it keeps shares", () => {
    expectTypeOf<Tool.Requirements<ReturnType<typeof onHotels>>>().toEqualTypeOf<Hotels>()
    expectTypeOf<Tool.Requirements<ReturnType<typeof onCrm>>>().toEqualTypeOf<Crm | TurnContext.Tenant>()
    expectTypeOf<Tool.Parameters<ReturnType<typeof onHotels>>>().toEqualTypeOf<Params>()
    expectTypeOf<Tool.Success<ReturnType<typeof onHotels>>>().toEqualTypeOf<string>()
  })
  const onHotels = () => pipe(Book, ToolPolicy.on(Hotels))
  const onCrm = () => pipe(Book, ToolPolicy.on(Crm))

  it("what is no backend is none", () => {
    // @ts-expect-error: a tenant is no backend
    ToolPolicy.on(TurnContext.Tenant)
  })
})

describe("Backend", () => {
  it("layers take their own limits", () => {
    expectTypeOf(Hotels.layer({ concurrency: 2, queueLimit: 10 })).toEqualTypeOf<Layer.Layer<Hotels>>()
    expectTypeOf(Crm.layer({ concurrency: "infinite", perTenant: 1 })).toEqualTypeOf<Layer.Layer<Crm>>()
    // @ts-expect-error: a backend with shares has to say them
    Crm.layer({ concurrency: 4 })
    // @ts-expect-error: a backend has to say its concurrency
    Hotels.layer({})
    // @ts-expect-error: one pool for everybody has no shares
    Hotels.layer({ concurrency: 4, perTenant: 1 })
    // @ts-expect-error: infinity has to be said by its word
    Hotels.layer({ concurrency: "unbounded" })
    const breaker = { tripPolicy: CircuitBreaker.consecutive(2), openDuration: "1 minute" } as const
    expectTypeOf(Hotels.layer({ concurrency: 1, rate: { limit: 2, window: "1 second" }, breaker })).toEqualTypeOf<
      Layer.Layer<Hotels>
    >()
    // @ts-expect-error: a rate is a limit in a window
    Hotels.layer({ concurrency: 1, rate: { limit: 2 } })
  })

  it("limits are changed by those that the layer takes", () => {
    expectTypeOf(Hotels.resize({ concurrency: 2, rate: "infinite" })).toEqualTypeOf<
      Effect.Effect<void, TurnError.TurnError, Hotels>
    >()
    expectTypeOf(Crm.resize({ perTenant: 2 })).toEqualTypeOf<Effect.Effect<void, TurnError.TurnError, Crm>>()
    // One pool for everybody has no shares, and a circuit is not changed.
    expectTypeOf(Hotels.resize).parameter(0).not.toHaveProperty("perTenant")
    expectTypeOf(Crm.resize).parameter(0).toHaveProperty("perTenant")
    expectTypeOf(Hotels.resize).parameter(0).not.toHaveProperty("breaker")
  })

  it("withPermit adds the backend, the tenant where it is needed, and the full line", () => {
    const effect = null as unknown as Effect.Effect<number, Error, Crm>
    expectTypeOf(Hotels.withPermit(effect)).toEqualTypeOf<
      Effect.Effect<number, Error | Backend.Refused, Crm | Hotels>
    >()
    expectTypeOf(Crm.withPermit(effect)).toEqualTypeOf<
      Effect.Effect<number, Error | Backend.Refused, Crm | TurnContext.Tenant>
    >()
    expectTypeOf(Hotels.stats).toEqualTypeOf<Effect.Effect<Backend.Stats, never, Hotels>>()
  })
})
