/** How much may be asked for: calls of a turn and of a tool, the same call over turns, turns at once; and the end of a runtime. */
import { assert, describe, it } from "@effect/vitest"
import { Approval, type Outcome, ToolCall, ToolPolicy, Turn, TurnContext, TurnError, TurnMiddleware } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "../utils/gen.ts"
import {
  type Book,
  call,
  drive,
  ended,
  fork,
  lab,
  type LabOptions,
  type Name,
  run,
  runWith,
  toolkit,
  words
} from "../utils/kit.ts"

const over = "error/over_limit"

const inLab = <A, E>(options: LabOptions, use: (book: Book) => Effect.Effect<A, E, any>) => {
  const { book, layer } = lab(options)
  return Effect.scoped(use(book)).pipe(Effect.provide(layer)) as Effect.Effect<A, E>
}

const facts = (outcome: Outcome.Outcome<any>) => [
  words([outcome])[0],
  outcome.started,
  outcome.effect,
  outcome.retryable
]

describe("R32: calls of a turn", () => {
  it.effect("what is over is over_limit: not started, not to be tried again; the rest runs", () =>
    inLab({}, (book) =>
      Effect.gen(function*() {
        const calls = ["a", "b", "c", "d"].map((tag) => call("write", tag, ["k"]))
        const outcomes = yield* drive(run(calls, { amounts: { calls: 2 } }))
        assert.deepStrictEqual(words(outcomes), ["ok", "ok", over, over])
        assert.deepStrictEqual(facts(outcomes[2]!), [over, false, "none", false])
        assert.include(outcomes[2]!.message, "as many calls as it may have (2)")
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["a", "b"])
      })))

  it.effect("refused, deferred and provider-run calls and duplicates do not count; held ones do", () =>
    inLab({}, () =>
      Effect.gen(function*() {
        const calls = [
          ToolCall.make("u", "nobody"),
          ToolCall.make("bad", "read", "{"),
          ToolCall.make("ph", "read", { tag: "<pending>" }),
          { ...ToolCall.make("own", "web"), providerExecuted: true },
          call("read", "x", [], { id: "a" }),
          call("read", "x", [], { id: "b" }),
          call("read", "x", [], { id: "a" }),
          call("pay", "p", ["k"]),
          call("read", "y"),
          call("read", "x", [], { id: "c" })
        ]
        const outcomes = yield* drive(run(calls, { amounts: { calls: 2 } }))
        assert.deepStrictEqual(words(outcomes).slice(4), ["ok", "ok", "ok", "pending_approval", over, "ok"])
        assert.notInclude(words(outcomes).slice(0, 4), over)
      })))

  it.effect("of each tool, by one number or by name", () =>
    inLab({}, () =>
      Effect.gen(function*() {
        const calls = [
          call("read", "a"),
          call("write", "b"),
          call("read", "c"),
          call("read", "d"),
          call("write", "e"),
          call("put", "f")
        ]
        assert.deepStrictEqual(words(yield* drive(run(calls, { amounts: { perTool: 1 } }))), [
          "ok",
          "ok",
          over,
          over,
          over,
          "ok"
        ])
        const named = yield* drive(run(calls, { amounts: { perTool: { read: 2, constructor: 1 } } }))
        assert.deepStrictEqual(words(named), ["ok", "ok", "ok", over, "ok", "ok"])
        assert.include(named[3]!.message, "read")
        const both = yield* drive(run(calls, { amounts: { perTool: { read: 1 }, calls: 3 } }))
        assert.deepStrictEqual(words(both), ["ok", "ok", over, over, "ok", over])
      })))

  it.effect("impossible numbers are refused before anything runs, by name", () =>
    inLab({}, (book) =>
      Effect.gen(function*() {
        for (const bad of [0, -1, 1.5, Number.NaN, Infinity, "2", null]) {
          const all: ReadonlyArray<readonly [any, string]> = [
            [{ calls: bad }, "amounts.calls"],
            [{ repeats: bad }, "amounts.repeats"],
            [{ perTool: { read: bad } }, "amounts.perTool.read"],
            ...(bad === null ? [] : [[{ perTool: bad }, "amounts.perTool"] as const])
          ]
          for (const [amounts, name] of all) {
            for (
              const attempt of [
                run([call("read", "r")], { amounts }),
                Turn.plan(toolkit, [call("read", "r")], { amounts }),
                Turn.open(toolkit, { amounts })
              ]
            ) {
              const error = yield* Effect.flip(attempt as Effect.Effect<any, TurnError.TurnError, any>)
              assert.instanceOf(error, TurnError.TurnError)
              assert.include(error.message, name)
            }
          }
          assert.throws(() => Turn.layer({ turns: bad as any }), /turns/)
        }
        assert.deepStrictEqual(book.runs, [])
      })))

  it.effect.prop(
    "the plan shows what the turn then refuses, and no limit is passed",
    {
      names: Arbitrary.array(pick<Name>("read", "write", "pay", "put"), { maxLength: 10 }),
      calls: pick(undefined, 1, 2, 3),
      perTool: pick<undefined | number | Record<string, number>>(undefined, 1, 2, { read: 1 }, { write: 2, pay: 1 }),
      same: pick(false, false, true)
    },
    ({ calls: limit, names, perTool, same }) =>
      inLab({}, (book) =>
        Effect.gen(function*() {
          const calls = names.map((name, i) => call(name, same ? "same" : `c${i}`, [], { id: `c${i}` }))
          const options: Turn.Options = { amounts: { calls: limit, perTool } }
          const plan = yield* Turn.plan(toolkit, calls, options)
          const outcomes = yield* drive(run(calls, options))
          assert.deepStrictEqual(
            plan.calls.map((one) => one.code === "over_limit"),
            words(outcomes).map((word) => word === over)
          )
          const counted = outcomes.filter((one) => words([one])[0] !== over && one.duplicateOf === undefined)
          assert.isAtMost(counted.length, limit ?? Infinity)
          for (const name of new Set(names)) {
            const most = typeof perTool === "number" ? perTool : perTool?.[name] ?? Infinity
            assert.isAtMost(counted.filter((one) => one.name === name).length, most)
          }
          assert.isAtMost(book.runs.length, limit ?? Infinity)
        })),
    runs(200)
  )
})

describe("R32: the same call over the turns of a conversation", () => {
  const talk = (conversation: string, tenant = "t") =>
    Effect.provide(TurnContext.make({ tenant, conversation })) as <A, E>(
      self: Effect.Effect<A, E, any>
    ) => Effect.Effect<A, E, any>

  const twice: Turn.Options = { amounts: { repeats: 2 } }

  it.effect("may be run so often; another conversation, tenant, tool or other arguments are counted for themselves", () =>
    inLab({}, (book) =>
      Effect.gen(function*() {
        const again = (made: ToolCall.ToolCall, conversation = "one", tenant = "t") =>
          Effect.map(drive(run([made], twice)), (outcomes) => words(outcomes)[0]).pipe(talk(conversation, tenant))
        assert.strictEqual(yield* again(call("read", "x", ["k"])), "ok")
        // The order of members and the id do not matter.
        assert.strictEqual(yield* again(ToolCall.make("other", "read", '{"k":["k"],"tag":"x"}')), "ok")
        assert.strictEqual(yield* again(call("read", "x", ["k"])), over)
        assert.strictEqual(yield* again(call("read", "x", ["l"])), "ok")
        assert.strictEqual(yield* again(call("write", "x", ["k"])), "ok")
        assert.strictEqual(yield* again(call("read", "x", ["k"]), "two"), "ok")
        assert.strictEqual(yield* again(call("read", "x", ["k"]), "one", "other"), "ok")
        assert.strictEqual(yield* again(call("read", "x", ["k"])), over)
        assert.strictEqual(book.count("x"), 6)
      })))

  it.effect("what was not run is not counted: vetoed, held, denied, stopped before its start", () =>
    inLab({ script: { slow: { ms: 50 } } }, (book) =>
      Effect.gen(function*() {
        const veto = TurnMiddleware.make("m", { before: () => Effect.succeed(TurnMiddleware.veto("no")) })
        const pay = call("pay", "p", ["k"])
        const once: Turn.Options = { amounts: { repeats: 1 } }
        const all = [
          run([call("write", "w", ["k"])], { ...once, middleware: [veto] }),
          run([pay], once),
          run([pay], { ...once, decide: () => Approval.deny() }),
          run([call("write", "slow", ["k"]), call("write", "w", ["k"])], { ...once, deadline: 10 }),
          run([call("write", "w", ["k"])], once),
          run([pay], { ...once, decide: () => Approval.approve() }),
          run([pay], { ...once, decide: () => Approval.approve() })
        ]
        const said: Array<ReadonlyArray<string>> = []
        for (const one of all) said.push(words(yield* drive(one).pipe(talk("c"))))
        assert.deepStrictEqual(said, [
          ["error/vetoed"],
          ["pending_approval"],
          ["error/denied"],
          ["ok", "cancelled/by_deadline"],
          ["ok"],
          ["ok"],
          [over]
        ])
        assert.strictEqual(book.count("p"), 1)
      })))

  it.effect("what runs is counted: edited arguments, not those that were asked for", () =>
    inLab({}, (book) =>
      Effect.gen(function*() {
        const once: Turn.Options = { amounts: { repeats: 1 } }
        const edit: Turn.Options = { ...once, decide: () => Approval.edit({ tag: "edited" }) }
        const first = yield* drive(run([call("pay", "p")], edit)).pipe(talk("c"))
        assert.deepStrictEqual(words(first), ["ok"])
        const approved = { ...once, decide: () => Approval.approve() }
        assert.deepStrictEqual(words(yield* drive(run([call("pay", "p")], approved)).pipe(talk("c"))), ["ok"])
        assert.deepStrictEqual(words(yield* drive(run([call("pay", "edited")], approved)).pipe(talk("c"))), [over])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["edited", "p"])
      })))

  it.effect("turns at once, and calls of one turn that are not merged, count for each other too", () =>
    inLab({}, (book) =>
      Effect.gen(function*() {
        const once: Turn.Options = { amounts: { repeats: 1 }, dedupe: "off" }
        const ask = run([call("write", "a", ["k"]), call("write", "a", ["k"], { id: "b" })], once)
        const all = yield* drive(Effect.all([ask, ask], { concurrency: 2 })).pipe(talk("c"))
        assert.deepStrictEqual(all.map(words), [["ok", over], [over, over]])
        assert.strictEqual(book.count("a"), 1)
      })))

  it.effect("a repeatable tool has no such limit", () =>
    Effect.gen(function*() {
      const Poll = pipe(
        Tool.make("poll", { success: Schema.String }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.repeatable
      )
      const Plain = pipe(Tool.make("plain", { success: Schema.String }), ToolPolicy.read({ keys: () => [] }))
      const kit = [Poll, Plain]
      const handlers = { poll: () => Effect.succeed("x"), plain: () => Effect.succeed("x") }
      const outcomes = yield* drive(
        runWith(kit, handlers, [ToolCall.make("a", "poll"), ToolCall.make("b", "poll"), ToolCall.make("c", "plain")], {
          amounts: { repeats: 1 }
        }).pipe(Effect.provideService(TurnContext.Conversation, "c"))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
    }))

  it.effect("without a conversation to count in, it is misuse", () =>
    inLab({}, (book) =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(run([call("read", "r")], twice))
        assert.instanceOf(error, TurnError.TurnError)
        assert.include(error.message, "Conversation")
        assert.deepStrictEqual(book.runs, [])
      })))

  it.effect("a resumed turn counts what it runs, and refuses what is over", () =>
    inLab({}, () =>
      Effect.gen(function*() {
        const once: Turn.ResumeOptions = { amounts: { repeats: 1 } }
        const park = Effect.gen(function*() {
          const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p")], once as Turn.Options))
          if (result._tag !== "Parked") throw new Error("expected a parked turn")
          return result.parked
        })
        yield* Effect.gen(function*() {
          const [first, second] = [yield* park, yield* park]
          const decisions = [{ position: 0, decision: Approval.approve() }]
          const one = yield* drive(Turn.resume(toolkit, first, { ...once, decisions }))
          const two = yield* drive(Turn.resume(toolkit, second, { ...once, decisions }))
          assert.deepStrictEqual([words(one.outcomes), words(two.outcomes)], [["ok"], [over]])
          assert.strictEqual(two._tag, "Closed")
        }).pipe(talk("c"))
      })))

  it.effect("of conversations the last thousand are remembered, of calls in each the last 256", () =>
    inLab({ script: {} }, () =>
      Effect.gen(function*() {
        const once: Turn.Options = { amounts: { repeats: 1 } }
        const ask = (tag: string, conversation: string) =>
          Effect.map(drive(run([call("read", tag)], once)), (outcomes) => words(outcomes)[0]).pipe(talk(conversation))
        yield* ask("first", "busy")
        const many = Array.from({ length: 256 }, (_, i) => call("read", `c${i}`))
        yield* drive(run(many, once)).pipe(talk("busy"))
        assert.strictEqual(yield* ask("c255", "busy"), over)
        assert.strictEqual(yield* ask("first", "busy"), "ok")
      })))
})

describe("R32: turns at once", () => {
  it.effect("the calls of a turn that is too much are over_limit; when one has ended there is place again", () =>
    inLab({ runtime: { turns: 2 }, script: { slow: { ms: 50 } } }, (book) =>
      Effect.gen(function*() {
        const first = yield* fork(run([call("read", "slow")]))
        const second = yield* fork(run([call("read", "b")]))
        const third = yield* fork(run([
          call("read", "c"),
          call("pay", "p"),
          ToolCall.make("u", "nobody"),
          { ...ToolCall.make("own", "web"), providerExecuted: true },
          call("read", "c", [], { id: "again" })
        ]))
        const outcomes = yield* ended(third)
        assert.deepStrictEqual(words(outcomes), [over, over, over, "provider_executed", over])
        assert.include(outcomes[0]!.message, "as may be at once (2)")
        yield* TestClock.adjust(10)
        yield* ended(second)
        const fourth = yield* fork(run([call("read", "d")]))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(fourth)), ["ok"])
        assert.deepStrictEqual(words(yield* ended(first)), ["ok"])
        assert.strictEqual(book.count("c"), 0)
      })))

  it.effect("turns inside calls do not count", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ runtime: { turns: 1 } })
      book.script.set("outer", { run: Effect.map(run([call("read", "in")]), words).pipe(Effect.orDie) })
      yield* Effect.gen(function*() {
        for (let i = 0; i < 2; i++) {
          const outcomes = yield* drive(run([call("read", "outer")]), 100)
          assert.deepStrictEqual((outcomes[0] as any).result, ["ok"])
        }
      }).pipe(Effect.provide(layer))
    }))

  it.effect("interrupted, misused, empty, online and resumed turns give their place back", () =>
    inLab({ runtime: { turns: 1 } }, () =>
      Effect.gen(function*() {
        const free = Effect.gen(function*() {
          assert.deepStrictEqual(words(yield* drive(run([call("read", "free")]), 100)), ["ok"])
        })
        const fiber = yield* fork(run([call("read", "a")]))
        yield* TestClock.adjust(5)
        yield* Fiber.interrupt(fiber)
        yield* free
        yield* Effect.flip(run([call("read", "a")], { execution: 0 }))
        yield* Effect.flip(run([null as any]))
        yield* Effect.flip(run([call("read", "a")], { amounts: { repeats: 1 } }))
        yield* free
        yield* run([])
        yield* free
        yield* Effect.scoped(Effect.gen(function*() {
          const turn = yield* Turn.open(toolkit)
          assert.deepStrictEqual(words(yield* run([call("read", "b")])), [over])
          yield* turn.submit(call("read", "c"))
        }))
        yield* free
        const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p")]), 100)
        if (result._tag !== "Parked") throw new Error("expected a parked turn")
        // A parked turn is not at work.
        yield* free
        yield* drive(Turn.resume(toolkit, result.parked), 100)
        yield* Turn.abandon(toolkit, result.parked)
        yield* free
      })))

  it.effect("a turn counts until onClosed has been told", () =>
    inLab({ runtime: { turns: 1 } }, () =>
      Effect.gen(function*() {
        const fiber = yield* fork(run([call("read", "a")], { onClosed: () => Effect.sleep(30) }))
        yield* TestClock.adjust(20)
        assert.deepStrictEqual(words(yield* run([call("read", "b")])), [over])
        yield* TestClock.adjust(20)
        yield* ended(fiber)
        assert.deepStrictEqual(words(yield* drive(run([call("read", "b")]), 100)), ["ok"])
      })))

  it.effect("under exploration: never more than so many at work, and none lost", () =>
    Simulation.forAll(
      Arbitrary.all({
        most: int(1, 3),
        turns: Arbitrary.array(Arbitrary.all({ at: int(0, 20), stop: pick(0, 0, 3, 12) }), {
          minLength: 1,
          maxLength: 6
        })
      }),
      ({ most, turns }) =>
        Effect.suspend(() => {
          const { book, layer } = lab({ runtime: { turns: most } })
          return Effect.gen(function*() {
            let peak = 0
            const each = turns.map(({ at, stop }, i) =>
              Effect.gen(function*() {
                yield* Effect.sleep(at)
                const fiber = yield* Effect.forkChild(run([call("read", `t${i}`)], {
                  onEvent: () => {
                    peak = Math.max(peak, book.atWork.length)
                  }
                }))
                if (stop > 0) yield* Effect.andThen(Effect.sleep(stop), Fiber.interrupt(fiber))
                return yield* Fiber.await(fiber)
              })
            )
            const exits = yield* Effect.all(each, { concurrency: "unbounded" })
            assert.isAtMost(peak, most)
            for (const exit of exits) {
              if (Exit.isSuccess(exit)) assert.include(["ok", over], words(exit.value as any)[0])
            }
            const last = yield* Effect.all(Array.from({ length: most }, (_, i) => run([call("read", `last${i}`)])), {
              concurrency: "unbounded"
            })
            for (const outcomes of last) assert.deepStrictEqual(words(outcomes), ["ok"])
          }).pipe(Effect.provide(layer))
        }),
      { inputs: 60, seeds: 4 }
    ))
})

describe("R36: draining a runtime", () => {
  it.effect("stops intake for good, waits for what runs, and for work that was given up on; nothing is left", () =>
    inLab(
      { script: { w: { ms: 100 }, deaf: { ms: 200, deaf: true } }, runtime: { shutdownGrace: 1000 } },
      (book) =>
        Effect.gen(function*() {
          const { drain, unsettled } = yield* Turn.Runtime
          const running = yield* fork(run([call("write", "w"), call("write", "next", ["k"])]))
          const given = yield* fork(run([call("read", "deaf")], { deadline: 10, grace: 5 }))
          yield* TestClock.adjust(20)
          yield* ended(given)
          assert.strictEqual((yield* unsettled).length, 1)
          const first = yield* fork(drain)
          const second = yield* fork(drain)
          const error = yield* Effect.flip(run([call("read", "late")]))
          assert.instanceOf(error, TurnError.TurnError)
          assert.instanceOf(yield* Effect.flip(Effect.scoped(Turn.open(toolkit))), TurnError.TurnError)
          yield* TestClock.adjust(90)
          assert.deepStrictEqual(words(yield* ended(running)), ["ok", "ok"])
          assert.isUndefined(first.pollUnsafe())
          yield* TestClock.adjust(90)
          assert.deepStrictEqual([yield* ended(first), yield* ended(second)], [[], []])
          assert.deepStrictEqual(yield* drain, [])
          assert.instanceOf(yield* Effect.flip(run([call("read", "later")])), TurnError.TurnError)
          assert.deepStrictEqual(book.atWork, [])
        })
    ))

  it.effect("lists what is still at work after the grace", () =>
    inLab(
      { script: { deaf: { ms: 10_000, deaf: true } }, runtime: { shutdownGrace: 50 } },
      () =>
        Effect.gen(function*() {
          const { drain, unsettled } = yield* Turn.Runtime
          yield* drive(run([call("read", "deaf")], { turn: "one", deadline: 10, grace: 5 }), 20)
          const fiber = yield* fork(drain)
          yield* TestClock.adjust(49)
          assert.isUndefined(fiber.pollUnsafe())
          yield* TestClock.adjust(1)
          const left = yield* ended(fiber)
          assert.deepStrictEqual(
            left.map(({ id, outcome, position, tenant, tool, turn }) => [
              tenant,
              turn,
              position,
              id,
              tool,
              words([outcome])[0]
            ]),
            [["t", "one", 0, "deaf", "read", "cancelled/by_deadline"]]
          )
          assert.deepStrictEqual(yield* unsettled, left)
          yield* TestClock.adjust(10_000)
          assert.deepStrictEqual(yield* unsettled, [])
        })
    ))

  it.effect("a turn inside a call may still begin", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      book.script.set("outer", {
        run: Effect.andThen(Effect.sleep(20), Effect.map(run([call("write", "in")]), words)).pipe(Effect.orDie)
      })
      yield* Effect.gen(function*() {
        const { drain } = yield* Turn.Runtime
        const fiber = yield* fork(run([call("write", "outer")]))
        const draining = yield* fork(drain)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual((yield* ended(fiber)).map((one: any) => one.result), [["ok"]])
        assert.deepStrictEqual(yield* ended(draining), [])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("interrupting it stops the waiting alone", () =>
    inLab({ script: { w: { ms: 100 } } }, () =>
      Effect.gen(function*() {
        const { drain } = yield* Turn.Runtime
        const running = yield* fork(run([call("write", "w")]))
        const draining = yield* fork(drain)
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(draining)
        assert.instanceOf(yield* Effect.flip(run([call("read", "late")])), TurnError.TurnError)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(running)), ["ok"])
        assert.deepStrictEqual(yield* drain, [])
      })))

  it.effect("waits for an open online turn, and for one that is resumed", () =>
    inLab({ script: { p: { ms: 50 } } }, () =>
      Effect.gen(function*() {
        const { drain } = yield* Turn.Runtime
        const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p")]), 10)
        if (result._tag !== "Parked") throw new Error("expected a parked turn")
        const turn = yield* Turn.open(toolkit)
        const resumed = yield* fork(
          Turn.resume(toolkit, result.parked, { decisions: [{ position: 0, decision: Approval.approve() }] })
        )
        const draining = yield* fork(drain)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words((yield* ended(resumed)).outcomes), ["ok"])
        assert.isUndefined(draining.pollUnsafe())
        yield* turn.submit(call("write", "w"))
        const ending = yield* fork(turn.end())
        yield* TestClock.adjust(20)
        assert.deepStrictEqual(words(yield* ended(ending)), ["ok"])
        assert.deepStrictEqual(yield* ended(draining), [])
        assert.instanceOf(yield* Effect.flip(Turn.resume(toolkit, result.parked)), TurnError.TurnError)
      })))

  it.effect("the layer's end stops or awaits what runs, as it was said, also after a drain", () =>
    Effect.gen(function*() {
      for (const shutdown of ["stop", "await"] as const) {
        const { book, layer } = lab({ runtime: { shutdown }, script: { r: { ms: 100 } } })
        const scope = yield* Scope.make()
        const context = yield* Layer.buildWithScope(layer, scope)
        const running = yield* fork(
          run([call("read", "r", ["k"]), call("write", "w", ["k"])]).pipe(Effect.provide(context))
        )
        yield* TestClock.adjust(10)
        const draining = yield* fork(
          Effect.flatMap(Turn.Runtime, (runtime) => runtime.drain).pipe(Effect.provide(context))
        )
        const closing = yield* fork(Scope.close(scope, Exit.void))
        yield* TestClock.adjust(200)
        yield* ended(closing)
        yield* ended(draining)
        const cancelled = "cancelled/by_caller"
        assert.deepStrictEqual(
          words(yield* ended(running)),
          shutdown === "stop" ? [cancelled, cancelled] : ["ok", "ok"]
        )
        assert.deepStrictEqual(book.atWork, [])
      }
    }))
})
