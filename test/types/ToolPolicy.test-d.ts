import { ArtifactStore, Backend, IdempotencyStore, ToolPolicy, Turn, TurnContext } from "effect-turn"
import type { Outcome, TurnError } from "effect-turn"
import type * as Tokenizer from "effect/ai/Tokenizer"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import type * as DateTime from "effect/DateTime"
import type * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import type * as Layer from "effect/Layer"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as Schedule from "effect/Schedule"
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

describe("budgets of results", () => {
  it("in characters change nothing; in tokens they need the tokenizer", () => {
    const chars = pipe(Book, ToolPolicy.read(), ToolPolicy.resultBudget({ maxChars: 500 }))
    expectTypeOf(chars).toEqualTypeOf<typeof Book & ToolPolicy.Retryable>()
    const tokens = pipe(Book, ToolPolicy.read(), ToolPolicy.resultBudget({ maxTokens: 500 }))
    expectTypeOf<Tool.HandlerServices<typeof tokens>>().toEqualTypeOf<Tokenizer.Tokenizer>()
    expectTypeOf(tokens).toExtend<ToolPolicy.Retryable>()
  })

  it("a turn without the tokenizer in its context does not compile", () => {
    const toolkit = Toolkit.make(pipe(Book, ToolPolicy.resultBudget({ maxTokens: 500 })))
    const turn = Turn.run(toolkit, [])
    expectTypeOf<Effect.Services<typeof turn>>().toEqualTypeOf<
      Tool.HandlersFor<{ readonly book: typeof Book }> | Tokenizer.Tokenizer | Turn.Runtime
    >()
  })

  it("are one or the other", () => {
    // @ts-expect-error: not both, and not neither
    ToolPolicy.resultBudget({})
    // @ts-expect-error: a number
    ToolPolicy.resultBudget({ maxChars: "500" })
  })
})

describe("the tool that reads artifacts", () => {
  it("needs the store where the turn runs, and its handler nothing else", () => {
    const tool = ArtifactStore.readTool()
    expectTypeOf(tool.name).toEqualTypeOf<"read_artifact">()
    expectTypeOf(ArtifactStore.readTool({ name: "peek" }).name).toEqualTypeOf<"peek">()
    expectTypeOf<Tool.HandlerServices<typeof tool>>().toEqualTypeOf<ArtifactStore.ArtifactStore>()
    const handlers = Toolkit.make(tool).toLayer({ read_artifact: ArtifactStore.read() })
    expectTypeOf<Layer.Services<typeof handlers>>().toEqualTypeOf<never>()
  })
})

describe("`retry` is for reads, and for writes that carry a key", () => {
  const twice = { times: 2 }
  const key = ({ hotelId }: Params) => hotelId
  const ask = () => null as unknown as Effect.Effect<ToolPolicy.Verdict<string>, Error>

  it("what is neither does not compile, and the message says so", () => {
    // @ts-expect-error: a tool that says nothing is a write without a key
    ToolPolicy.retry(twice)(Book)
    // @ts-expect-error: a write without a key
    pipe(Book, ToolPolicy.write(), ToolPolicy.retry(twice))
    // @ts-expect-error: the key comes too late
    pipe(Book, ToolPolicy.write(), ToolPolicy.retry(twice), ToolPolicy.forward(key))
    expectTypeOf<keyof ToolPolicy.Retryable>().toEqualTypeOf<
      "~effect-turn/a read, or a write with an idempotency key"
    >()
  })

  it("reads, and writes of each mode, do; other policies between them change nothing", () => {
    const undo = ToolPolicy.undo<typeof Book, never, never>(() => null as unknown as Effect.Effect<void>)
    expectTypeOf(pipe(Book, ToolPolicy.read(), ToolPolicy.retry(twice))).toEqualTypeOf<
      typeof Book & ToolPolicy.Retryable
    >()
    const forward = pipe(
      Book,
      ToolPolicy.write(),
      ToolPolicy.forward(key),
      ToolPolicy.on(Hotels),
      ToolPolicy.retry(twice)
    )
    expectTypeOf(forward).toExtend<ToolPolicy.Retryable>()
    expectTypeOf<Tool.Requirements<typeof forward>>().toEqualTypeOf<Hotels>()
    const record = pipe(
      Book,
      ToolPolicy.write(),
      IdempotencyStore.record(key),
      ToolPolicy.on(Crm),
      ToolPolicy.timeout("5 seconds"),
      ToolPolicy.undo(() => null as unknown as Effect.Effect<void, never, Hotels>),
      ToolPolicy.retry(twice)
    )
    expectTypeOf(record).toExtend<ToolPolicy.Retryable>()
    expectTypeOf<Tool.Requirements<typeof record>>().toEqualTypeOf<
      Crm | Hotels | TurnContext.Tenant | IdempotencyStore.IdempotencyStore
    >()
    const verify = pipe(Book, ToolPolicy.write(), IdempotencyStore.verify({ key, ask }), ToolPolicy.retry(twice))
    expectTypeOf(verify).toExtend<ToolPolicy.Retryable>()
    expectTypeOf(undo).returns.not.toExtend<ToolPolicy.Retryable>()
  })

  it("predicates and schedules see the tool's own failure; after a clock there is none", () => {
    pipe(
      Book,
      ToolPolicy.read(),
      ToolPolicy.retry({
        times: 2,
        schedule: Schedule.exponential("1 second"),
        while: (failure) => {
          expectTypeOf(failure).toEqualTypeOf<{ readonly why: string }>()
          return true
        }
      })
    )
    type Failing = NonNullable<ToolPolicy.Retry<{ readonly why: string }>["schedule"]>
    expectTypeOf<Schedule.Input<Failing>>().toEqualTypeOf<{ readonly why: string } | undefined>()
    // @ts-expect-error: after a clock there is no failure
    ToolPolicy.retry<typeof Book & ToolPolicy.Retryable>({ times: 1, schedule: null as unknown as Whys })
  })
  type Whys = Schedule.Schedule<number, { readonly why: string }>

  it("an outcome of too many calls has the tool's own failure", () => {
    const outcome = null as unknown as Outcome.Outcome<typeof Book>
    if (outcome.status === "error" && outcome.code === "rate_limited") {
      expectTypeOf(outcome.failure).toEqualTypeOf<{ readonly why: string }>()
      expectTypeOf(outcome.retryAfter).toEqualTypeOf<number | undefined>()
    }
    if (outcome.status === "error" && outcome.code === "defect") expectTypeOf(outcome).not.toHaveProperty("failure")
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
