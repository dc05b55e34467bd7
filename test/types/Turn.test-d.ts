// What must not compile is left floating, or without a service, on purpose.
// @effect-diagnostics floatingEffect:off
// @effect-diagnostics missingEffectContext:off
// @effect-diagnostics missingEffectError:off
import {
  Backend,
  type Outcome,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnError,
  type TurnEvent,
  type TurnPlan
} from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import { describe, expectTypeOf, it } from "vitest"

class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
class Crm extends Backend.TenantService<Crm>()("app/Crm") {}
class NoRoom extends Schema.TaggedError<NoRoom>()("NoRoom", { left: Schema.Int }) {}

const Book = pipe(
  Tool.make("book", {
    parameters: Schema.Struct({ hotelId: Schema.String, nights: Schema.FiniteFromString }),
    success: Schema.Struct({ at: Schema.DateTimeUtcFromString }),
    failure: NoRoom
  }),
  ToolPolicy.write({ keys: ({ hotelId }) => [`hotel:${hotelId}`] }),
  ToolPolicy.on(Hotels)
)
const Search = pipe(
  Tool.make("search", { parameters: Schema.Struct({ text: Schema.String }), success: Schema.Array(Schema.String) }),
  ToolPolicy.read({ keys: () => [] })
)
const FindUser = pipe(
  Tool.make("find_user", { parameters: Schema.Struct({ id: Schema.String }), success: Schema.Finite }),
  ToolPolicy.read(),
  ToolPolicy.on(Crm)
)

const plainKit = Toolkit.make(Search)
const kit = Toolkit.make(Book, Search)
const tenantKit = Toolkit.make(FindUser)
const calls = [ToolCall.make("c1", "search", { text: "x" })]

type Kit = typeof kit
type KitOutcome = Outcome.Outcome<typeof Book | typeof Search>
type Handlers = Tool.HandlersFor<Toolkit.Tools<Kit>>

describe("an outcome is typed by its tool", () => {
  const outcome = null as unknown as KitOutcome

  it("the name and `ok` give the tool's success", () => {
    if (outcome.status !== "ok") return
    expectTypeOf(outcome.name).toEqualTypeOf<"book" | "search">()
    if (outcome.name === "search") expectTypeOf(outcome.result).toEqualTypeOf<ReadonlyArray<string>>()
    if (outcome.name === "book") expectTypeOf(outcome.result).toEqualTypeOf<Tool.Success<typeof Book>>()
    // @ts-expect-error: there is no failure in a success
    return outcome.failure
  })

  it("the name and `failed` give the tool's failure", () => {
    if (outcome.status !== "error" || outcome.code !== "failed") return
    if (outcome.name === "book") expectTypeOf(outcome.failure).toEqualTypeOf<NoRoom>()
    if (outcome.name === "search") expectTypeOf(outcome.failure).toEqualTypeOf<never>()
    // @ts-expect-error: there is no result in a failure
    return outcome.result
  })

  it("the other statuses have codes and fields of their own", () => {
    if (outcome.status === "cancelled") {
      expectTypeOf(outcome.code).toEqualTypeOf<"by_caller" | "by_sibling" | "by_deadline" | "by_itself">()
      expectTypeOf(outcome.reason).toEqualTypeOf<string | undefined>()
    }
    if (outcome.status === "timeout") {
      expectTypeOf(outcome.code).toEqualTypeOf<"handler" | "queue">()
      expectTypeOf(outcome.limit.millis).toEqualTypeOf<number>()
    }
    if (outcome.status === "deferred") {
      expectTypeOf(outcome.code).toEqualTypeOf<"placeholder" | "waits_for_approval" | "dependency_failed">()
    }
    // @ts-expect-error: no tool has this name
    if (outcome.status === "ok" && outcome.name === "fly") return
    // @ts-expect-error: there is no such status
    if (outcome.status === "done") return
    // @ts-expect-error: an outcome is read-only
    outcome.id = "x"
  })

  it("all statuses are told apart", () => {
    const word = (one: KitOutcome): string => {
      switch (one.status) {
        case "ok":
        case "error":
        case "timeout":
        case "deferred":
        case "pending_approval":
        case "cancelled":
        case "provider_executed":
          return one.status
      }
    }
    expectTypeOf(word).returns.toEqualTypeOf<string>()
  })

  it("a turn gives them, in a list", () => {
    expectTypeOf<Turn.Outcomes<Kit>>().toEqualTypeOf<ReadonlyArray<KitOutcome>>()
  })
})

describe("what a turn needs is in its type", () => {
  it("its handlers, its backends and the runtime", () => {
    expectTypeOf(Turn.run(plainKit, calls)).toEqualTypeOf<
      Effect.Effect<
        Turn.Outcomes<typeof plainKit>,
        TurnError.TurnError,
        Tool.HandlersFor<Toolkit.Tools<typeof plainKit>> | Turn.Runtime
      >
    >()
    expectTypeOf(Turn.run(kit, calls)).toEqualTypeOf<
      Effect.Effect<Turn.Outcomes<Kit>, TurnError.TurnError, Handlers | Hotels | Turn.Runtime>
    >()
    expectTypeOf<Effect.Services<ReturnType<typeof runTenant>>>().toEqualTypeOf<
      Tool.HandlersFor<Toolkit.Tools<typeof tenantKit>> | Crm | TurnContext.Tenant | Turn.Runtime
    >()
  })
  const runTenant = () => Turn.run(tenantKit, calls)

  it("data-last is the same", () => {
    expectTypeOf(pipe(kit, Turn.run(calls))).toEqualTypeOf<
      Effect.Effect<Turn.Outcomes<Kit>, TurnError.TurnError, Handlers | Hotels | Turn.Runtime>
    >()
    expectTypeOf(Turn.run(calls, { turn: "one" })(kit)).toEqualTypeOf<
      Effect.Effect<Turn.Outcomes<Kit>, TurnError.TurnError, Handlers | Hotels | Turn.Runtime>
    >()
  })

  it("a toolkit with its handlers needs its backends alone", () => {
    const given = null as unknown as Toolkit.WithHandler<Toolkit.Tools<Kit>>
    expectTypeOf(Turn.run(given, calls)).toEqualTypeOf<
      Effect.Effect<ReadonlyArray<KitOutcome>, TurnError.TurnError, Hotels | Turn.Runtime>
    >()
  })

  it("leaving a backend's layer out does not compile", () => {
    const handlers = kit.toLayer({
      book: () => Effect.succeed({ at: null as never }),
      search: () => Effect.succeed([])
    })
    const whole = Layer.mergeAll(handlers, Hotels.layer({ concurrency: 2 }), Turn.layer())
    Effect.runPromise(Turn.run(kit, calls).pipe(Effect.provide(whole)))
    const without = Layer.mergeAll(handlers, Turn.layer())
    // @ts-expect-error: the layer of Hotels is left out
    Effect.runPromise(Turn.run(kit, calls).pipe(Effect.provide(without)))
    const noRuntime = Layer.mergeAll(handlers, Hotels.layer({ concurrency: 2 }))
    // @ts-expect-error: the runtime is left out
    Effect.runPromise(Turn.run(kit, calls).pipe(Effect.provide(noRuntime)))
    const noHandlers = Layer.mergeAll(Hotels.layer({ concurrency: 2 }), Turn.layer())
    // @ts-expect-error: the handlers are left out
    Effect.runPromise(Turn.run(kit, calls).pipe(Effect.provide(noHandlers)))
  })

  it("R35: a backend with shares for tenants, and no tenant, does not compile", () => {
    const layer = Layer.mergeAll(
      tenantKit.toLayer({ find_user: () => Effect.succeed(1) }),
      Crm.layer({ concurrency: 4, perTenant: 1 }),
      Turn.layer()
    )
    const turn = Turn.run(tenantKit, calls).pipe(Effect.provide(layer))
    expectTypeOf(turn).toEqualTypeOf<
      Effect.Effect<Turn.Outcomes<typeof tenantKit>, TurnError.TurnError, TurnContext.Tenant>
    >()
    // @ts-expect-error: nobody said the tenant
    Effect.runPromise(turn)
    Effect.runPromise(turn.pipe(Effect.provide(TurnContext.make({ tenant: "north" }))))
    // @ts-expect-error: nobody said the tenant to the plain effect
    Effect.runPromise(Crm.withPermit(Effect.void).pipe(Effect.provide(Crm.layer({ concurrency: 4, perTenant: 1 }))))
  })

  it("start needs a scope too, stream does not, plan needs no runtime and no handlers", () => {
    expectTypeOf(Turn.start(kit, calls)).toEqualTypeOf<
      Effect.Effect<Turn.Handle<Kit>, TurnError.TurnError, Handlers | Hotels | Turn.Runtime | Scope.Scope>
    >()
    expectTypeOf(Turn.stream(kit, calls)).toEqualTypeOf<
      Stream.Stream<TurnEvent.TurnEvent, TurnError.TurnError, Handlers | Hotels | Turn.Runtime>
    >()
    expectTypeOf(Turn.plan(kit, calls)).toEqualTypeOf<Effect.Effect<TurnPlan.TurnPlan, TurnError.TurnError>>()
    expectTypeOf(pipe(kit, Turn.start(calls))).toEqualTypeOf<
      Effect.Effect<Turn.Handle<Kit>, TurnError.TurnError, Handlers | Hotels | Turn.Runtime | Scope.Scope>
    >()
  })

  it("a handle gives the same outcomes", () => {
    const handle = null as unknown as Turn.Handle<Kit>
    expectTypeOf(handle.await).toEqualTypeOf<Effect.Effect<Turn.Outcomes<Kit>>>()
    expectTypeOf(handle.cancel("user")).toEqualTypeOf<Effect.Effect<Turn.Outcomes<Kit>>>()
    expectTypeOf(handle.cancelCall(0)).toEqualTypeOf<Effect.Effect<boolean>>()
    // @ts-expect-error: a call is addressed by its position or its id
    handle.cancelCall({ id: "c1" })
  })

  it("options that cannot be do not compile", () => {
    // @ts-expect-error: there is no such execution
    Turn.run(plainKit, calls, { execution: "fast" })
    // @ts-expect-error: there is no such dedupe
    Turn.run(plainKit, calls, { dedupe: "some" })
    // @ts-expect-error: a limit is a duration or the word "infinite"
    Turn.run(plainKit, calls, { deadline: "never" })
    // @ts-expect-error: an effect that can fail does not stop a turn
    Turn.run(plainKit, calls, { cancelOn: Effect.fail("no") })
    // @ts-expect-error: a policy of siblings is none of these words
    Turn.run(plainKit, calls, { siblings: "failFast" })
  })
})
