/** Turns that wait for a human between two runs: kept as data, resumed, given up. */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  type Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnError,
  TurnJournal
} from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { conflict, int, keys, pick, runs } from "../utils/gen.ts"
import { type Book, call, drive, ended, fork, lab, type Name, type Ran, toolkit, tools, words } from "../utils/kit.ts"

const { approve, deny } = Approval

type Result = Turn.Result<typeof toolkit>

const parkedOf = <K>(result: Turn.Result<K>): Turn.Parked => {
  if (result._tag !== "Parked") throw new Error(`expected a parked turn, and it is ${words(result.outcomes).join()}`)
  return result.parked
}

/** The turn as it comes back from where it was kept. */
const stored = (parked: Turn.Parked): Turn.Parked =>
  Schema.decodeUnknownSync(Turn.Parked)(JSON.parse(JSON.stringify(parked)))

/** Runs something in a lab of its own. */
const inLab = <A, E>(
  use: (book: Book) => Effect.Effect<A, E, any>,
  script?: NonNullable<Parameters<typeof lab>[0]>["script"]
) => {
  const { book, layer } = lab(script === undefined ? {} : { script })
  return Effect.scoped(use(book)).pipe(Effect.provide(layer)) as Effect.Effect<A, E>
}

const park = (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) =>
  Effect.map(drive(Turn.runOrPark(toolkit, calls, options)), parkedOf)

const resume = (
  parked: Turn.Parked,
  decisions: Record<number, Approval.Decision>,
  options?: Turn.ResumeOptions
): Effect.Effect<Result, TurnError.TurnError, any> =>
  drive(
    Turn.resume(toolkit, parked, {
      ...options,
      decisions: Object.entries(decisions).map(([position, decision]) => ({ position: Number(position), decision }))
    })
  )

describe("R10: a turn that is parked and resumed", () => {
  it.effect("keeps what it has, runs what was approved, then what had waited for it, and asks for nothing twice", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const calls = [
          call("read", "r", ["k"]),
          call("pay", "p", ["k"]),
          call("write", "behind", ["k"]),
          call("write", "failed", ["l"]),
          ToolCall.make("bad", "read", "{"),
          call("pay", "q", ["m"]),
          call("read", "r", ["k"], { id: "again" })
        ]
        const parked = yield* park(calls, { turn: "one" })
        assert.deepStrictEqual(parked.outcomes.map((one) => one?.status ?? null), [
          "ok",
          null,
          null,
          "error",
          "error",
          null,
          null
        ])
        assert.deepStrictEqual(parked.requests.map(({ position, turn }) => [turn, position]), [["one", 1], ["one", 5]])
        assert.deepStrictEqual(Object.keys(parked.tools).toSorted(), ["pay", "read", "write"])
        assert.deepStrictEqual(stored(parked), parked)
        yield* TestClock.adjust(86_400_000)

        const half = yield* resume(stored(parked), { 1: approve("go") })
        assert.deepStrictEqual(words(half.outcomes), [
          "ok",
          "ok",
          "ok",
          "error/failed",
          "error/invalid_arguments",
          "pending_approval",
          "ok"
        ])
        const again = parkedOf(half)
        assert.deepStrictEqual(again.requests, [parked.requests[1]!])

        const whole = yield* resume(stored(again), { 5: deny("no") })
        assert.strictEqual(whole._tag, "Closed")
        assert.deepStrictEqual(words(whole.outcomes).slice(5), ["error/denied", "ok"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "failed", "p", "behind", "r"])
        assert.deepStrictEqual(whole.outcomes.map((one) => one.position), [0, 1, 2, 3, 4, 5, 6])
        assert.deepStrictEqual((whole.outcomes[1] as any).result, "p")
      }), { failed: { end: "fail" } }))

  it.effect("a turn without held calls is closed at once", () =>
    inLab(() =>
      Effect.gen(function*() {
        const result = yield* drive(Turn.runOrPark(toolkit, [call("read", "r"), ToolCall.make("b", "nobody")]))
        assert.strictEqual(result._tag, "Closed")
      })
    ))

  it.effect("a stopped turn is closed: nothing of it waits any more", () =>
    inLab(() =>
      Effect.gen(function*() {
        const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p"), call("read", "r")], { deadline: 5 }))
        assert.strictEqual(result._tag, "Closed")
        assert.deepStrictEqual(words(result.outcomes), ["cancelled/by_deadline", "cancelled/by_deadline"])
      })
    ))

  it.effect("the handle of a started turn gives the same result", () =>
    inLab(() =>
      Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [call("pay", "p"), call("read", "r")])
        const fiber = yield* fork(handle.result)
        yield* TestClock.adjust(10)
        const parked = parkedOf(yield* ended(fiber))
        assert.deepStrictEqual(parked.turn, handle.turn)
        const other = yield* Turn.start(toolkit, [call("pay", "p"), call("pay", "q"), call("read", "r2")])
        yield* other.cancelCall("p")
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(parkedOf(yield* other.result).requests.map((one) => one.id), ["q"])
      })
    ))

  it.effect("data-last forms do the same", () =>
    inLab(() =>
      Effect.gen(function*() {
        const parked = parkedOf(yield* drive(pipe(toolkit, Turn.runOrPark([call("pay", "p")]))))
        const result = yield* drive(
          pipe(toolkit, Turn.resume(parked, { decisions: [{ position: 0, decision: approve() }] }))
        )
        assert.deepStrictEqual(words(result.outcomes), ["ok"])
        assert.deepStrictEqual(words(yield* pipe(toolkit, Turn.abandon(parked, "user"))), ["cancelled/by_caller"])
      })
    ))

  it.effect("each decision does what it does in a turn, and its words stay with its call (MORE.md 5)", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const calls = ["a", "b", "c", "d", "e"].map((tag) => call("pay", tag, [tag]))
        const parked = yield* park(calls)
        const result = yield* resume(parked, {
          4: Approval.edit({ tag: "edited" }),
          1: approve("to b"),
          3: Approval.answer("said"),
          0: deny("not a"),
          2: approve("to c")
        })
        assert.deepStrictEqual(words(result.outcomes), ["error/denied", "ok", "ok", "ok", "ok"])
        assert.deepStrictEqual(result.outcomes.slice(1).map((one: any) => one.result), [
          "to b",
          "to c",
          "said",
          "edited"
        ])
        assert.include(result.outcomes[0]!.message, "not a")
        assert.strictEqual(book.count("d") + book.count("a"), 0)
      }), { b: { run: noteOf }, c: { run: noteOf } }))

  it.effect("edited arguments and answers that cannot be used are asked for again, and then decided", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const parked = yield* park([call("pay", "p", ["k"])])
        const again = parkedOf(yield* resume(parked, { 0: Approval.edit({ tag: 5 }) }))
        assert.include(again.requests[0]!.problem, "edited")
        const result = yield* resume(stored(again), { 0: approve() })
        assert.deepStrictEqual(words(result.outcomes), ["ok"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["p"])
      })
    ))

  it.effect("a request keeps the time when it was first asked, and the wait is told", () =>
    inLab((book) =>
      Effect.gen(function*() {
        yield* TestClock.adjust(7)
        const fiber = yield* fork(Turn.runOrPark(toolkit, [call("pay", "p"), call("pay", "q")]))
        yield* TestClock.adjust(1)
        const parked = parkedOf(yield* ended(fiber))
        assert.deepStrictEqual(parked.requests.map((one) => one.requestedAt), [7, 7])
        yield* TestClock.adjust(1000)
        const next = yield* fork(
          Turn.resume(toolkit, parked, { decisions: [{ position: 1, decision: approve() }], onEvent: book.note })
        )
        yield* TestClock.adjust(100)
        const again = parkedOf(yield* ended(next))
        assert.deepStrictEqual(again.requests.map((one) => one.requestedAt), [7])
        assert.deepStrictEqual(book.tagsOf("CallStarted").map((event: any) => event.waited.approval), [1001])
      })
    ))

  const When = pipe(
    Tool.make("when", {
      parameters: Schema.Struct({ n: Schema.Finite }),
      success: Schema.Struct({ at: Schema.DateFromString }),
      failure: Schema.Struct({ until: Schema.DateFromString })
    }),
    ToolPolicy.read({ keys: () => [] })
  )
  const Nothing = pipe(Tool.make("nothing", { success: Schema.Void }), ToolPolicy.write({ keys: () => [] }))
  const Pay = pipe(
    Tool.make("pay", { success: Schema.String, needsApproval: true }),
    ToolPolicy.write({ keys: () => [] })
  )

  it.effect("kept results and failures are typed, also through JSON", () =>
    Effect.gen(function*() {
      const kit = Toolkit.make(When, Nothing, Pay)
      let ran = 0
      const layer = Layer.merge(
        kit.toLayer({
          when: ({ n }) =>
            Effect.suspend(() => {
              ran++
              return n > 0 ? Effect.succeed({ at: new Date(n) }) : Effect.fail({ until: new Date(9) })
            }),
          nothing: () => Effect.void,
          pay: () => Effect.succeed("paid")
        }),
        Turn.layer()
      )
      const calls = [
        ToolCall.make("a", "when", { n: 1 }),
        ToolCall.make("b", "when", { n: 0 }),
        ToolCall.make("c", "when", { n: 1 }),
        ToolCall.make("d", "nothing"),
        ToolCall.make("p", "pay"),
        { ...ToolCall.make("e", "web"), providerExecuted: true }
      ]
      yield* Effect.gen(function*() {
        const first = yield* Turn.runOrPark(kit, calls)
        const parked = parkedOf(first)
        const { outcomes } = yield* Turn.resume(kit, stored(parked), {
          decisions: [{ position: 4, decision: approve() }]
        })
        const strip = (list: ReadonlyArray<any>) => list.filter((_, i) => i !== 4)
        assert.deepStrictEqual(strip(outcomes), strip(first.outcomes))
        assert.instanceOf((outcomes[0] as any).result.at, Date)
        assert.instanceOf((outcomes[1] as any).failure.until, Date)
        assert.strictEqual((outcomes[4] as any).result, "paid")
        assert.strictEqual(ran, 2)
        assert.deepStrictEqual(words(yield* Turn.abandon(kit, stored(parked))), [
          "ok",
          "error/failed",
          "ok",
          "ok",
          "cancelled/by_caller",
          "provider_executed"
        ])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a history built from the last outcomes is closed", () =>
    inLab(() =>
      Effect.gen(function*() {
        const calls = [call("read", "r"), call("pay", "p", ["k"]), call("pay", "p", ["k"]), call("write", "w", ["k"])]
        const parked = yield* park(calls)
        const { outcomes } = yield* resume(stored(parked), { 1: approve() })
        const { content } = Turn.toPrompt(parked.calls, outcomes) as any
        const ids = (at: number) => content[at].content.map((part: any) => part.id)
        assert.deepStrictEqual([ids(0), ids(1)], [["r", "p", "w"], ["r", "p", "w"]])
      })
    ))
})

const noteOf = Effect.map(TurnContext.CurrentCall, (current) => current?.approvalNote ?? "no note")

describe("R10: misuse is refused before anything runs", () => {
  const refused = (
    name: string,
    change: (parked: Turn.Parked) => {
      readonly parked?: unknown
      readonly options?: unknown
      readonly tenant?: string
    },
    words: string
  ) =>
    it.effect(name, () =>
      inLab((book) =>
        Effect.gen(function*() {
          const parked = yield* park([call("read", "r"), call("pay", "p", ["k"]), call("pay", "q", ["l"])])
          const { options = {}, parked: given = parked, tenant = "t" } = change(parked)
          const decisions = [{ position: 1, decision: approve() }]
          const error = yield* Effect.flip(
            Turn.resume(toolkit, given as any, { decisions, ...options as {} }).pipe(
              Effect.provideService(TurnContext.Tenant, tenant)
            )
          )
          assert.instanceOf(error, TurnError.TurnError)
          assert.include(error.message, words)
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r"])
        })
      ))

  const decided = (...decisions: ReadonlyArray<unknown>) => () => ({ options: { decisions } })
  const one = { position: 1, decision: approve() }

  refused("another tenant", () => ({ tenant: "other" }), "tenant")
  refused("a decision on a call that has its answer", decided(one, { position: 0, decision: approve() }), "#0")
  refused("a decision on a call that is not there", decided(one, { position: 9, decision: approve() }), "#9")
  refused("two decisions on one call", decided(one, { position: 1, decision: deny() }), "second")
  for (
    const bad of [
      { position: 1, decision: { _tag: "Perhaps" } },
      { position: 1 },
      { position: 1, decision: null },
      { position: "1", decision: approve() },
      { position: 1.5, decision: approve() },
      null,
      7
    ]
  ) refused(`a decision that is none: ${JSON.stringify(bad)}`, decided(bad), "decision")
  refused("decisions that are no list", () => ({ options: { decisions: "all" } }), "decisions")
  refused("a version that is not known", (parked) => ({ parked: { ...parked, version: 2 } }), "parked turn")
  refused("an outcome too few", (parked) => ({ parked: { ...parked, outcomes: parked.outcomes.slice(1) } }), "outcome")
  refused(
    "a request for a call that has its answer",
    (parked) => ({ parked: { ...parked, requests: [{ ...parked.requests[0]!, position: 0 }] } }),
    "requests"
  )
  refused(
    "a kept result that its tool cannot read, or of a tool that is not there",
    (parked) => ({
      parked: { ...parked, outcomes: [{ ...parked.outcomes[0]!, name: "nobody" }, null, null] }
    }),
    "#0"
  )
  refused("calls with other ids", (parked) => ({
    options: { calls: parked.calls.map((call) => ({ ...call, id: `${call.id}!` })) }
  }), "ids")
  refused("calls in another order", (parked) => ({ options: { calls: parked.calls.toReversed() } }), "order")
  refused("fewer calls", (parked) => ({ options: { calls: parked.calls.slice(1) } }), "ids")
  refused("calls that are none", () => ({ options: { calls: [1, 2, 3] } }), "call #0")
  refused("impossible options", () => ({ options: { execution: 0, decisions: [one] } }), "execution")
  for (const garbage of [{ _tag: "Parked" }, { _tag: "Parked", version: 1, calls: 5 }]) {
    refused(`garbage: ${JSON.stringify(garbage)}`, () => ({ parked: garbage }), "parked turn")
  }

  it.effect("garbage is refused in both forms, and by abandon", () =>
    inLab(() =>
      Effect.gen(function*() {
        for (const garbage of [null, undefined, 5, "x", {}, []]) {
          for (
            const attempt of [
              Turn.resume(toolkit, garbage as any, {}),
              Turn.abandon(toolkit, garbage as any, "why")
            ]
          ) {
            const error = yield* Effect.flip(attempt as Effect.Effect<any, TurnError.TurnError, any>)
            assert.instanceOf(error, TurnError.TurnError)
          }
        }
      })
    ))

  it.effect("tools that mean something else: other parameters, another access, or none of the name", () =>
    Effect.gen(function*() {
      const make = (parameters: Schema.Top, access: "read" | "write") =>
        pipe(
          Tool.make("pay", { parameters: parameters as any, success: Schema.String, needsApproval: true }),
          access === "write" ? ToolPolicy.write({ keys: () => [] }) : ToolPolicy.read({ keys: () => [] })
        )
      const Plain = Schema.Struct({ n: Schema.Finite })
      const of = (tool: Tool.Any) => {
        const kit = Toolkit.make(tool) as Toolkit.Toolkit<any>
        let ran = 0
        const layer = Layer.merge(
          kit.toLayer({ [tool.name]: () => Effect.sync(() => (ran++, "paid")) } as any) as Layer.Layer<any>,
          Turn.layer()
        )
        return { kit, layer, ran: () => ran }
      }
      const first = of(make(Plain, "write"))
      const parked = parkedOf(
        yield* Turn.runOrPark(first.kit, [ToolCall.make("a", "pay", { n: 1 })]).pipe(Effect.provide(first.layer))
      )
      const others = [
        make(Schema.Struct({ n: Schema.String }), "write"),
        make(Schema.Struct({ n: Schema.Finite, m: Schema.optionalKey(Schema.Finite) }), "write"),
        make(Plain, "read"),
        Tool.make("other", { success: Schema.String })
      ]
      for (const tool of others) {
        const other = of(tool)
        for (
          const attempt of [
            Turn.resume(other.kit, stored(parked), {
              decisions: [one].map(() => ({ position: 0, decision: approve() }))
            }),
            Turn.abandon(other.kit, stored(parked))
          ]
        ) {
          const error = yield* Effect.flip(
            (attempt as Effect.Effect<any, TurnError.TurnError, any>).pipe(Effect.provide(other.layer))
          )
          assert.instanceOf(error, TurnError.TurnError)
          assert.include(error.message, "pay")
        }
        assert.strictEqual(other.ran(), 0)
      }
      // The same tool made anew is the same.
      const same = of(make(Schema.Struct({ n: Schema.Finite }), "write"))
      const result = yield* Turn.resume(same.kit, stored(parked), { decisions: [{ position: 0, decision: approve() }] })
        .pipe(
          Effect.provide(same.layer)
        )
      assert.deepStrictEqual(words(result.outcomes), ["ok"])
    }))

  it.effect("a handler that is not in the context", () =>
    inLab(() =>
      Effect.gen(function*() {
        const parked = yield* park([call("pay", "p")])
        const error = yield* Effect.flip(
          Turn.resume(toolkit, parked).pipe(Effect.provide(Turn.layer()), (self) =>
            Effect.updateContext(
              self as Effect.Effect<any, any, any>,
              () => TurnContext.make({ tenant: "t" }) as any
            )) as Effect.Effect<any, TurnError.TurnError>
        )
        assert.include(error.message, "handler")
      })
    ))
})

describe("R10: calls given again", () => {
  it.effect("with members in another order run; with other arguments they are held again", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const parked = yield* park([call("pay", "p", ["k"]), call("write", "w", ["k"])])
        const reordered = yield* resume(parked, { 0: approve() }, {
          calls: [
            ToolCall.make("p", "pay", { k: ["k"], tag: "p" }),
            ToolCall.make("w", "write", '{"k":["k"],"tag":"w"}')
          ]
        })
        assert.deepStrictEqual(words(reordered.outcomes), ["ok", "ok"])
        const other = yield* park([call("pay", "p", ["k"]), call("write", "w", ["k"])])
        const changed = yield* resume(other, { 0: approve() }, {
          calls: [call("pay", "more", ["k"], { id: "p" }), call("write", "w2", ["k"], { id: "w" })]
        })
        assert.deepStrictEqual(words(changed.outcomes), ["pending_approval", "deferred/waits_for_approval"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["p", "w"])
        // What is parked now is what the model has now.
        const again = parkedOf(changed)
        assert.deepStrictEqual(again.requests[0]!.arguments, { tag: "more", k: ["k"] })
        assert.deepStrictEqual(again.calls.map((one: any) => one.arguments.tag), ["more", "w2"])
        const last = yield* resume(stored(again), { 0: approve() })
        assert.deepStrictEqual(words(last.outcomes), ["ok", "ok"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["p", "w", "more", "w2"])
      })
    ))
})

describe("R4, R18: stops of a parked turn", () => {
  it.effect("abandon cancels what was open, and keeps the rest", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const parked = yield* park([
          call("read", "r"),
          call("pay", "p", ["k"]),
          call("write", "w", ["k"]),
          ToolCall.make("u", "nobody")
        ])
        const outcomes = yield* Turn.abandon(toolkit, stored(parked), "user")
        assert.deepStrictEqual(words(outcomes), [
          "ok",
          "cancelled/by_caller",
          "cancelled/by_caller",
          "error/unknown_tool"
        ])
        for (const one of outcomes.slice(1, 3)) {
          assert.deepStrictEqual(
            [one.started, one.effect, one.retryable, (one as Outcome.Cancelled).reason],
            [false, "none", true, "user"]
          )
        }
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r"])
        const silent = yield* Turn.abandon(toolkit, parked)
        assert.isUndefined((silent[1] as Outcome.Cancelled).reason)
      })
    ))

  it.effect("abandon takes the requests back: a late decision is refused", () =>
    Effect.gen(function*() {
      const approvals = yield* Approval.Approvals
      yield* inLab(() =>
        Effect.gen(function*() {
          const parked = yield* park([call("pay", "p"), call("pay", "q")], { turn: "one" })
          const [first] = yield* approvals.pending
          yield* Turn.abandon(toolkit, parked)
          assert.deepStrictEqual(yield* approvals.pending, [])
          const { reason } = yield* Effect.flip(approvals.decide(first!, approve()))
          assert.strictEqual(reason, "settled")
        }).pipe(Effect.provideService(Approval.Approvals, approvals))
      )
    }).pipe(Effect.provide(Approval.layerMemory())))

  it.effect("fail-fast, a deadline and a quorum are those of any turn; kept outcomes do not trigger them", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const calls = [
          call("read", "bad0"),
          call("pay", "p", ["k"]),
          call("pay", "bad", ["l"]),
          call("write", "w", ["k"])
        ]
        const parked = yield* park(calls)
        const fast = yield* resume(parked, { 1: approve(), 2: approve() }, { siblings: Siblings.failFast })
        assert.deepStrictEqual(words(fast.outcomes), ["error/failed", "ok", "error/failed", "cancelled/by_sibling"])
        const late = yield* resume(yield* park(calls), { 1: approve(), 2: approve() }, { deadline: 5 })
        assert.deepStrictEqual(words(late.outcomes), ["error/failed", "ok", "error/failed", "cancelled/by_deadline"])
        assert.strictEqual(late._tag, "Closed")
        const half = yield* resume(yield* park(calls), { 2: approve() }, { deadline: 5 })
        assert.deepStrictEqual(words(half.outcomes), [
          "error/failed",
          "cancelled/by_deadline",
          "error/failed",
          // It has this answer already when the stop comes.
          "deferred/waits_for_approval"
        ])
        assert.strictEqual(half._tag, "Closed")
        // Once for each turn that was parked.
        assert.strictEqual(book.count("bad0"), 3)
      }), { bad0: { end: "fail" }, bad: { end: "fail" }, p: { ms: 20 } }))

  it.effect("interrupted, it closes and tells its outcomes; what was kept is kept", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const parked = yield* park([call("read", "r"), call("pay", "p", ["k"]), call("write", "w", ["k"])])
        const closed: Array<Turn.Closed> = []
        const fiber = yield* fork(
          Turn.resume(toolkit, parked, {
            decisions: [{ position: 1, decision: approve() }],
            onClosed: (one) => Effect.sync(() => void closed.push(one))
          })
        )
        yield* TestClock.adjust(5)
        const stopping = yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(100)
        yield* ended(stopping)
        assert.deepStrictEqual(words(closed[0]!.outcomes), ["ok", "ok", "cancelled/by_caller"])
        assert.deepStrictEqual(book.atWork, [])
      }), { p: { ms: 50 } }))

  it.effect("a stop while it is being taken in keeps what was kept", () =>
    Effect.gen(function*() {
      const Slow = pipe(
        Tool.make("slow", {
          parameters: Schema.Struct({ n: Schema.Finite }),
          success: Schema.String,
          needsApproval: ({ n }) => n > 0
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const kit = Toolkit.make(Slow)
      const layer = Layer.merge(kit.toLayer({ slow: () => Effect.succeed("x") }), Turn.layer())
      yield* Effect.gen(function*() {
        const parked = parkedOf(
          yield* Turn.runOrPark(kit, [ToolCall.make("a", "slow", { n: 0 }), ToolCall.make("b", "slow", { n: 1 })])
        )
        const result = yield* Turn.resume(kit, parked, { cancelOn: Effect.succeed("user") })
        assert.deepStrictEqual(words(result.outcomes), ["ok", "cancelled/by_caller"])
      }).pipe(Effect.provide(layer))
    }))
})

describe("R10: what a registry knows of a parked turn", () => {
  const registered = <A, E>(
    use: (approvals: Approval.Approvals["Service"], parked: Turn.Parked) => Effect.Effect<A, E, any>,
    runtime?: Turn.LayerOptions
  ) => {
    const { layer } = lab(runtime === undefined ? {} : { runtime })
    return Effect.gen(function*() {
      const approvals = yield* Approval.Approvals
      const parked = yield* park([call("pay", "p", ["k"]), call("pay", "q", ["k"]), call("write", "w", ["l"])])
      assert.strictEqual((yield* approvals.pending).length, 2)
      return yield* use(approvals, parked)
    }).pipe(Effect.scoped, Effect.provide(Layer.merge(layer, Approval.layerMemory()))) as Effect.Effect<A, E>
  }

  it.effect("is taken back where its resumption is stopped before it asks, or while it does", () =>
    Effect.gen(function*() {
      const stops: ReadonlyArray<Turn.ResumeOptions> = [
        { cancelOn: Effect.succeed("user") },
        { deadline: 5, decide: () => Effect.never },
        { deadline: 5, decide: () => Effect.never, execution: 1 }
      ]
      for (const stop of stops) {
        yield* registered((approvals, parked) =>
          Effect.gen(function*() {
            const result = yield* resume(parked, {}, stop)
            assert.strictEqual(result._tag, "Closed")
            assert.deepStrictEqual(yield* approvals.pending, [])
            const { reason } = yield* Effect.flip(approvals.decide(parked.requests[0]!, approve()))
            assert.strictEqual(reason, "settled")
          })
        )
      }
    }))

  it.effect("is taken back where there are too many turns", () =>
    registered(
      (approvals, parked) =>
        Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit)
          const result = yield* resume(parked, {})
          assert.deepStrictEqual(words(result.outcomes), ["error/over_limit", "error/over_limit", "ok"])
          assert.deepStrictEqual(yield* approvals.pending, [])
          yield* turn.end()
        }),
      { turns: 1 }
    ))

  it.effect("waits on where nothing was decided, and a decision of half of it leaves the other half", () =>
    registered((approvals, parked) =>
      Effect.gen(function*() {
        const same = yield* resume(parked, {})
        assert.deepStrictEqual(parkedOf(same).requests, parked.requests)
        assert.strictEqual((yield* approvals.pending).length, 2)
        yield* approvals.decide(parked.requests[0]!, approve())
        const half = yield* resume(parkedOf(same), {})
        assert.deepStrictEqual(words(half.outcomes), ["ok", "pending_approval", "ok"])
        assert.deepStrictEqual((yield* approvals.pending).map((one) => one.id), ["q"])
        yield* approvals.decide(parked.requests[1]!, deny())
        const whole = yield* resume(parkedOf(half), {})
        assert.deepStrictEqual(words(whole.outcomes), ["ok", "error/denied", "ok"])
        assert.deepStrictEqual(yield* approvals.pending, [])
      })
    ))

  it.effect("a registry that is down does not keep a turn from being given up", () =>
    registered((approvals, parked) =>
      Effect.gen(function*() {
        for (const withdraw of [() => Effect.die("down"), () => Effect.never]) {
          const outcomes = yield* drive(
            Turn.abandon(toolkit, parked).pipe(
              Effect.provideService(Approval.Approvals, { ...approvals, withdraw })
            )
          )
          assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller", "ok"])
        }
      })
    ))
})

describe("R21: two copies of a parked turn", () => {
  const calls = [call("read", "r"), call("pay", "p", ["k"]), call("write", "w", ["k"])]
  const decisions = [{ position: 1, decision: approve() }]

  it.effect("in one process the second is misuse, as soon as a call of it has been run", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const parked = yield* park(calls, { turn: "one" })
        const stopped = yield* resume(parked, { 1: approve() }, { cancelOn: Effect.void })
        assert.deepStrictEqual(words(stopped.outcomes), ["ok", "cancelled/by_caller", "cancelled/by_caller"])
        const [first, second] = yield* drive(
          Effect.all([
            Turn.resume(toolkit, stored(parked), { decisions }),
            Effect.flip(Turn.resume(toolkit, stored(parked), { decisions: [{ position: 1, decision: deny() }] }))
          ], { concurrency: "unbounded" })
        )
        assert.deepStrictEqual(words(first.outcomes), ["ok", "ok", "ok"])
        assert.include(second.message, "has been run or given up")
        assert.include((yield* Effect.flip(Turn.resume(toolkit, parked))).message, "call #1")
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "p", "w"])
      })
    ))

  it.effect("one that was given up is not resumed", () =>
    inLab(() =>
      Effect.gen(function*() {
        const parked = yield* park(calls, { turn: "one" })
        yield* Turn.abandon(toolkit, parked)
        assert.include((yield* Effect.flip(Turn.resume(toolkit, parked, { decisions }))).message, "given up")
      })
    ))

  it.effect("in two processes a journal lets no call run twice, and tells what it came to", () =>
    inLab((book) =>
      Effect.gen(function*() {
        const parked = yield* park(calls, { turn: "one" })
        const elsewhere = Turn.resume(toolkit, stored(parked), { decisions }).pipe(
          Effect.provide(Layer.fresh(Turn.layer()))
        )
        const [first, second] = yield* drive(
          Effect.all([Turn.resume(toolkit, stored(parked), { decisions }), elsewhere], { concurrency: "unbounded" })
        )
        // Each call was run by one of them. The other is told what it came to, or that it was begun and may have done anything.
        for (const position of [1, 2]) {
          const told = [first, second].map(({ outcomes }) => outcomes[position]!)
          assert.isTrue(told.some((one) => one.status === "ok"))
          for (const one of told) {
            if (one.status === "ok") continue
            assert.deepStrictEqual(words([one]), ["error/in_doubt"])
            assert.deepStrictEqual([one.effect, one.retryable], ["unknown", false])
          }
        }
        const third = yield* drive(elsewhere)
        assert.deepStrictEqual(words(third.outcomes), ["ok", "ok", "ok"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag).toSorted(), ["p", "r", "w"])
      }).pipe(Effect.provide(TurnJournal.layerMemory))
    ))
})

const someCall = Arbitrary.all({
  name: pick<Name>("pay", "ask", "read", "write", "put", "look", "bare", "fetch", "post"),
  k: Arbitrary.flatMap(
    pick(true, false),
    (few) => few ? Arbitrary.array(pick<string>("a", "b"), { maxLength: 2 }) : keys
  ),
  n: pick(-5, 5, -15),
  args: pick("own", "own", "own", "own", "shared", "invalid"),
  id: pick("own", "own", "own", "empty", "again"),
  ms: pick(10, 0, 5, 20),
  end: pick("ok", "ok", "fail", "die")
})
type SomeCall = typeof someCall["~A"] extends (_: never) => infer A ? A : never

const callsOf = (specs: ReadonlyArray<SomeCall>): ReadonlyArray<ToolCall.ToolCall> => {
  const calls: Array<ToolCall.ToolCall> = []
  for (const [i, one] of specs.entries()) {
    const id = one.id === "empty" ? "" : `c${i}`
    const named = calls.filter((call) => call.id !== "")
    if (one.id === "again" && named.length > 0) calls.push(named[i % named.length]!)
    else if (one.args === "invalid") calls.push(ToolCall.make(id, one.name, { tag: 7 }))
    else {
      const shared = one.args === "shared"
      calls.push(
        call(one.name, shared ? `shared-${one.name}` : `t-${i}`, shared ? ["a"] : one.k, {
          id,
          ...(one.name === "ask" ? { n: one.n } : undefined)
        })
      )
    }
  }
  return calls
}

const scriptOf = (specs: ReadonlyArray<SomeCall>) => {
  const script: Record<string, { readonly ms: number; readonly end: SomeCall["end"] }> = {}
  for (const [i, { end, ms, name }] of specs.entries()) {
    script[`t-${i}`] = { ms, end }
    script[`shared-${name}`] ??= { ms, end }
  }
  return script
}

/** How each held call is decided, and in which portion; `keys` is a lesson in what an edit may change. */
const someDecision = Arbitrary.all({
  kind: pick("approve", "deny", "answer", "edit", "bad"),
  k: keys,
  portion: int(0, 2)
})

const reachOf = (ran: Ran) => ({ write: ToolPolicy.get(tools[ran.tool]).access === "write", keys: ran.keys })

const inPortions = (
  specs: ReadonlyArray<SomeCall>,
  decisions: ReadonlyArray<{ readonly kind: string; readonly k: ReadonlyArray<string>; readonly portion: number }>,
  book: Book
) =>
  Effect.gen(function*() {
    const calls = callsOf(specs)
    const final = new Map<number, string>()
    const answers: Array<number> = []
    const onEvent = (event: any) => {
      if (event._tag === "CallEnded") {
        const [word] = words([event.outcome])
        if (word !== "pending_approval" && word !== "deferred/waits_for_approval") answers.push(event.position)
      }
    }
    let result: Result = yield* Turn.runOrPark(toolkit, calls, { onEvent })
    let round = 0
    const bad = new Set<number>()
    const orders: Array<ReadonlyArray<Ran>> = [book.runs.slice()]
    /** What was deferred has lost its place to what ran meanwhile: by position, when that was last. */
    const deferredUntil = new Map<number, number>()
    for (; result._tag === "Parked"; round++) {
      assert.isBelow(round, 60, "it is parked for ever")
      const { parked } = result
      const chosen = parked.requests.filter(({ position }) =>
        round >= 3 || decisions[position % decisions.length]!.portion === round
      )
      const given = chosen.map(({ arguments: args, position }) => {
        const { k, kind } = decisions[position % decisions.length]!
        const wrong = kind === "bad" && !bad.has(position)
        if (wrong) bad.add(position)
        const decision = kind === "deny"
          ? deny()
          : kind === "answer"
          ? Approval.answer("said")
          : kind === "edit"
          ? Approval.edit({ ...args, k })
          : wrong
          ? Approval.edit({ tag: 5 })
          : approve()
        return { position, decision }
      })
      for (const [position, kept] of parked.outcomes.entries()) {
        if (kept === null) {
          if (result.outcomes[position]!.status === "deferred") deferredUntil.set(position, book.tick())
          continue
        }
        const seen = final.get(position)
        const now = JSON.stringify(kept)
        if (seen !== undefined) assert.strictEqual(now, seen, `#${position} has changed its answer`)
        final.set(position, now)
      }
      const before = book.runs.length
      result = yield* Turn.resume(toolkit, stored(parked), { decisions: given, onEvent })
      orders.push(book.runs.slice(before))
    }
    const { outcomes } = result
    assert.deepStrictEqual(outcomes.map((one) => [one.position, one.id]), calls.map((one, i) => [i, one.id]))
    assert.deepStrictEqual(answers.toSorted((a, b) => a - b), calls.map((_, i) => i))
    for (const word of words(outcomes)) {
      assert.notInclude(["pending_approval", "deferred/waits_for_approval"], word)
    }
    const ran = new Map(book.runs.map((one) => [one.position, one]))
    assert.strictEqual(ran.size, book.runs.length, "a call was run twice")
    for (const one of outcomes) {
      const at = one.duplicateOf?.position ?? one.position
      assert.strictEqual(one.started, ran.has(at))
    }
    const edited = decisions.some((one) => one.kind === "edit")
    // Within one run of the turn: conflicting calls keep their order, and with edits they are at least never together.
    for (const order of orders) {
      const sorted = order.toSorted((a, b) => a.position - b.position)
      sorted.forEach((later, i) => {
        for (const earlier of sorted.slice(0, i)) {
          if (!conflict(reachOf(earlier), reachOf(later))) continue
          if (edited) assert.isTrue(earlier.ended! < later.began || later.ended! < earlier.began)
          else assert.isBelow(earlier.ended!, later.began)
        }
      })
    }
    // Over all of them, where nothing was edited: in emission order.
    if (!edited) {
      const sorted = book.runs.toSorted((a, b) => a.position - b.position)
      sorted.forEach((later, i) => {
        for (const earlier of sorted.slice(0, i)) {
          if (!conflict(reachOf(earlier), reachOf(later))) continue
          if (later.began > (deferredUntil.get(earlier.position) ?? -1)) assert.isBelow(earlier.ended!, later.began)
        }
      })
    }
    assert.deepStrictEqual(book.atWork, [])
  })

describe("R1, R10, R12: generated turns, decided in portions", () => {
  const inputs = {
    specs: Arbitrary.array(someCall, { minLength: 1, maxLength: 8 }),
    decisions: Arbitrary.array(someDecision, { minLength: 1, maxLength: 4 })
  }

  it.effect.prop(
    "every call gets one final answer, nothing is run twice, and what conflicts keeps its order",
    inputs,
    ({ decisions, specs }) => {
      const { book, layer } = lab({ api: { concurrency: 2 }, script: scriptOf(specs) })
      return drive(inPortions(specs, decisions, book), 10_000_000).pipe(Effect.provide(layer))
    },
    runs(500)
  )

  it.effect("the same under exploration, with a registry and a journal in the context", () =>
    Simulation.forAll(
      Arbitrary.all(inputs),
      ({ decisions, specs }) =>
        Effect.suspend(() => {
          const { book, layer } = lab({ api: { concurrency: 2 }, script: scriptOf(specs) })
          return Effect.gen(function*() {
            const approvals = yield* Approval.Approvals
            yield* inPortions(specs, decisions, book)
            assert.deepStrictEqual(yield* approvals.pending, [])
          }).pipe(Effect.provide(Layer.mergeAll(layer, Approval.layerMemory(), TurnJournal.layerMemory)))
        }),
      { inputs: 80, seeds: 4 }
    ), 60_000)
})
