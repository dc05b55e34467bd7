/** What is done around every call of a turn. */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  Handler,
  type Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnJournal,
  TurnMiddleware
} from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as SchemaTransformation from "effect/SchemaTransformation"
import * as TestClock from "effect/testing/TestClock"
import { int, pick } from "./utils/gen.ts"
import { Api, call, drive, idle, journalOf, lab, run, runWith, toolkit, words } from "./utils/kit.ts"

const { make, replaceArguments, replaceResult, veto } = TurnMiddleware

type Script = NonNullable<Parameters<typeof lab>[0]>["script"]

/** Runs calls under middleware, and gives outcomes, book and the time from start to end. */
const under = (
  middleware: ReadonlyArray<TurnMiddleware.TurnMiddleware>,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options?: Turn.Options,
  script?: Script,
  more?: Layer.Layer<any>
) =>
  Effect.gen(function*() {
    const { book, layer } = lab({ api: { concurrency: 1 }, ...(script === undefined ? undefined : { script }) })
    const outcomes: ReadonlyArray<Outcome.Outcome<any>> = yield* drive(
      Effect.gen(function*() {
        const outcomes = yield* run(calls, { middleware, onEvent: book.note, ...options })
        assert.deepStrictEqual(yield* Api.stats, idle(1))
        return outcomes
      }).pipe(Effect.provide((more === undefined ? layer : Layer.merge(layer, more)) as typeof layer))
    )
    const took = book.tagsOf("TurnEnded")[0]!.at - book.tagsOf("TurnStarted")[0]!.at
    return { book, outcomes, took }
  })

const one = (name: string, steps: TurnMiddleware.Steps) => [make(name, steps)]
const facts = (outcome: Outcome.Outcome<any> | undefined) => [
  words([outcome!])[0],
  outcome!.started,
  outcome!.effect,
  outcome!.retryable
]

describe("R15: making one", () => {
  it("an impossible time is refused with the name of the middleware", () => {
    for (const timeout of [0, -1, Number.NaN, 3_000_000_000]) assert.throws(() => make("budget", { timeout }), /budget/)
    assert.strictEqual(make("m", {}).timeout, 5000)
  })
})

describe("R31: the onion", () => {
  it.effect("the first is outermost: its before comes first, its after last", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const layer = (name: string) =>
        make(name, {
          before: () => Effect.sync(() => void log.push(`${name} before`)),
          around: (handler) =>
            Effect.gen(function*() {
              log.push(`${name} in`)
              const result = yield* handler
              log.push(`${name} out`)
              return result
            }),
          after: () => Effect.sync(() => void log.push(`${name} after`))
        })
      const { outcomes } = yield* under([layer("a"), make("nothing", {}), layer("b")], [call("write", "w")])
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.deepStrictEqual(log, ["a before", "b before", "a in", "b in", "b out", "a out", "b after", "a after"])
    }))

  it.effect("sees the call: identity, place, tool, decoded arguments, access, keys", () =>
    Effect.gen(function*() {
      const seen: Array<TurnMiddleware.Call> = []
      const note = (call: TurnMiddleware.Call) => Effect.sync(() => void seen.push(call))
      yield* under(
        one("m", {
          before: note,
          around: (handler, call) => Effect.andThen(note(call), handler),
          after: (_, call) => note(call)
        }),
        [call("read", "r", ["k"]), call("bare", "b")],
        { turn: "one", execution: "sequential" }
      )
      assert.strictEqual(seen.length, 6)
      for (const { access, id, identity, keys, params, position, tool } of seen.slice(0, 3)) {
        assert.deepStrictEqual(
          [identity.turn, identity.tenant, position, id, tool.name, params, access, keys],
          ["one", "t", 0, "r", "read", { tag: "r", k: ["k"] }, "read", ["k"]]
        )
      }
      assert.deepStrictEqual([seen[3]!.access, seen[3]!.keys], ["write", undefined])
    }))

  it.effect("runs once for twins, and not for what is not run", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      yield* under(
        one("m", { before: ({ id }) => Effect.sync(() => void seen.push(id)) }),
        [
          call("read", "x", [], { id: "a" }),
          call("read", "x", [], { id: "b" }),
          ToolCall.make("u", "nobody"),
          ToolCall.make("bad", "read", "{"),
          call("pay", "p", ["k"]),
          call("read", "behind", ["k"])
        ]
      )
      assert.deepStrictEqual(seen, ["a"])
    }))

  it.effect("steps run in the context of the call", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const note = Effect.map(TurnContext.CurrentCall, (current) => void seen.push(current?.position))
      yield* under(
        one("m", { before: () => note, around: (handler) => Effect.andThen(note, handler), after: () => note }),
        [call("write", "w")]
      )
      assert.deepStrictEqual(seen, [0, 0, 0])
    }))
})

describe("R31: before", () => {
  it.effect("a veto: not started, with the words, retryable as it says; nobody else is touched", () =>
    Effect.gen(function*() {
      const middleware = make("budget", {
        before: ({ id }) =>
          Effect.succeed(id === "a" ? veto("too much") : id === "b" ? veto("later", { retryable: true }) : undefined)
      })
      let inner = 0
      const counting = make("inner", { before: () => Effect.sync(() => void inner++) })
      const { book, outcomes } = yield* under([middleware, counting], [
        call("write", "a", ["k"]),
        call("write", "b", ["k"]),
        call("write", "c", ["k"])
      ])
      assert.deepStrictEqual(outcomes.map(facts), [
        ["error/vetoed", false, "none", false],
        ["error/vetoed", false, "none", true],
        ["ok", true, "applied", false]
      ])
      assert.include(outcomes[0]!.message, "budget: too much")
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["c"])
      assert.strictEqual(inner, 1)
    }))

  it.effect("a failure vetoes with its words; a defect is a defect; a throw too; none was started", () =>
    Effect.gen(function*() {
      const before = {
        fail: () => Effect.fail("no money"),
        die: () => Effect.die(new Error("broken")),
        interrupt: () => Effect.interrupt,
        throw: (): Effect.Effect<void> => {
          throw new Error("thrown")
        }
      }
      const { book, outcomes } = yield* under(
        one("m", { before: ({ id }) => before[id as "fail"]?.() ?? Effect.void }),
        ["fail", "die", "interrupt", "throw", "fine"].map((tag) => call("post", tag))
      )
      assert.deepStrictEqual(outcomes.map(facts), [
        ["error/vetoed", false, "none", false],
        ["error/defect", false, "none", false],
        ["error/vetoed", false, "none", false],
        ["error/defect", false, "none", false],
        ["ok", true, "applied", false]
      ])
      assert.include(outcomes[0]!.message, "no money")
      assert.include(outcomes[1]!.message, "broken")
      assert.include(outcomes[3]!.message, "thrown")
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["fine"])
    }))

  it.effect("one that takes too long vetoes, retryable, at its own limit", () =>
    Effect.gen(function*() {
      const { outcomes, took } = yield* under(
        one("slow", { before: () => Effect.never, timeout: 70 }),
        [call("write", "w", ["k"]), call("read", "r", ["l"])]
      )
      assert.deepStrictEqual(outcomes.map(facts), [
        ["error/vetoed", false, "none", true],
        ["error/vetoed", false, "none", true]
      ])
      assert.strictEqual(took, 70)
    }))

  it.effect("counts as waiting for the call's clock of waiting", () =>
    Effect.gen(function*() {
      const { book, outcomes, took } = yield* under(
        one("slow", { before: () => Effect.never, timeout: "infinite" }),
        [call("write", "w", ["k"])]
      )
      assert.deepStrictEqual(outcomes.map(facts), [["timeout/queue", false, "none", true]])
      assert.strictEqual(took, 60_000)
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("what it says that is neither nothing, nor a veto, nor arguments lets nothing run", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* under(one("m", { before: () => Effect.succeed({ _tag: "veto" } as any) }), [
        call("write", "w")
      ])
      assert.deepStrictEqual(outcomes.map(facts), [["error/defect", false, "none", false]])
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("a stop during it: both are cancelled, not started, and no after runs (MORE.md 2)", () =>
    Effect.gen(function*() {
      for (const deaf of [false, true]) {
        let after = 0
        const wait = deaf ? Effect.uninterruptible(Effect.sleep(60)) : Effect.sleep(60)
        const { book, outcomes } = yield* under(
          one("slow", { before: () => wait, after: () => Effect.sync(() => void after++) }),
          [call("post", "a", ["k"]), call("post", "b", ["l"])],
          { cancelOn: Effect.as(Effect.sleep(30), "user") }
        )
        assert.deepStrictEqual(outcomes.map(facts), [
          ["cancelled/by_caller", false, "none", true],
          ["cancelled/by_caller", false, "none", true]
        ])
        assert.deepStrictEqual(book.runs, [])
        assert.strictEqual(after, 0)
      }
    }))

  it.effect("a step that is deaf for ever is left behind: after its clock, or a stop, and the grace of a read", () =>
    Effect.gen(function*() {
      const deaf = Effect.uninterruptible(Effect.never)
      const calls = [call("post", "a", ["k"]), call("fetch", "b", ["k"])]
      const stop = { cancelOn: Effect.as(Effect.sleep(10), "user"), grace: { reads: 100 } }
      const clock = { grace: { reads: 100 } }
      const unstarted = ["cancelled/by_caller", false, "none", true]
      const vetoed = ["error/vetoed", false, "none", true]
      const cases: ReadonlyArray<readonly [TurnMiddleware.Steps, Turn.Options, ReadonlyArray<unknown>]> = [
        [{ before: () => deaf, timeout: 50 }, clock, [vetoed, vetoed, 300]],
        [{ before: () => deaf }, stop, [unstarted, unstarted, 110]],
        [
          { after: () => deaf, timeout: 50 },
          clock,
          [["error/defect", true, "applied", false], ["error/defect", true, "none", false], 320]
        ],
        [{ after: () => deaf, timeout: 50 }, stop, [["error/defect", true, "applied", false], unstarted, 160]]
      ]
      for (const [steps, options, expected] of cases) {
        const { outcomes, took } = yield* under(one("m", steps), calls, options)
        assert.deepStrictEqual([...outcomes.map(facts), took], expected)
      }
    }))

  it.effect("a result in whose place one stands that never ends to be decoded is given up after the step's clock", () =>
    Effect.gen(function*() {
      const never = Schema.String.pipe(Schema.decodeTo(
        Schema.String,
        SchemaTransformation.transformEffect({ decode: () => Effect.never, encode: Effect.succeed<string> })
      ))
      const tool = pipe(
        Tool.make("t", { parameters: Schema.Struct({}), success: never }),
        ToolPolicy.write({ keys: () => [] })
      )
      const outcomes = yield* drive(
        runWith([tool], { t: () => Effect.succeed("x") }, [ToolCall.make("a", "t")], {
          middleware: one("m", { after: () => Effect.succeed(replaceResult("y")), timeout: 50 })
        })
      )
      assert.deepStrictEqual(outcomes.map(facts), [["error/defect", true, "applied", false]])
    }))

  it.effect("whoever is asked anew and is deaf for ever is left behind at a stop, the call unstarted", () =>
    Effect.gen(function*() {
      const { outcomes, took } = yield* under(
        one("m", { before: () => Effect.succeed(replaceArguments({ tag: "other", k: ["k"], n: -1 })) }),
        [call("ask", "a", ["k"])],
        {
          decide: () => Effect.uninterruptible(Effect.never),
          cancelOn: Effect.as(Effect.sleep(10), "user"),
          grace: { reads: 100 }
        }
      )
      assert.deepStrictEqual([...outcomes.map(facts), took], [["cancelled/by_caller", false, "none", true], 110])
    }))

  it.effect("a stop of the one call during it", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [call("write", "a", ["k"]), call("write", "b", ["k"])], {
          middleware: one("slow", { before: () => Effect.sleep(60) })
        })
        yield* TestClock.adjust(30)
        assert.isTrue(yield* handle.cancelCall("a"))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* handle.await), ["cancelled/by_caller", "ok"])
        assert.deepStrictEqual(book.span("b"), [90, 100])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("fail-fast: a veto is no failure of a run; a sibling's failure stops the steps of others", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* under(
        one("m", {
          before: ({ id }) => id === "v" ? Effect.succeed(veto("no")) : id === "s" ? Effect.sleep(50) : Effect.void
        }),
        [call("write", "v"), call("write", "s"), call("read", "bad"), call("read", "r")],
        { siblings: Siblings.failFast },
        { bad: { ms: 20, end: "fail" } }
      )
      assert.deepStrictEqual(words(outcomes), ["error/vetoed", "cancelled/by_sibling", "error/failed", "ok"])
      assert.isFalse(outcomes[1]!.started)
    }))
})

describe("R31: replaced arguments", () => {
  const replacing = (args: Record<string, unknown>, only = "w") =>
    make("swap", { before: ({ id }) => Effect.succeed(id === only ? replaceArguments(args) : undefined) })

  it.effect("are decoded again and run; the next middleware sees them", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const see = make("see", {
        before: ({ params }) => Effect.sync(() => void seen.push(params)),
        around: (handler, { params }) => Effect.suspend(() => (seen.push(params), handler)),
        after: (_, { params }) => Effect.sync(() => void seen.push(params))
      })
      const { book, outcomes } = yield* under([replacing({ tag: "other", k: ["k"] }), see], [call("write", "w", ["k"])])
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["other"])
      assert.deepStrictEqual(seen, Array.from({ length: 3 }, () => ({ tag: "other", k: ["k"] })))
      assert.deepStrictEqual([outcomes[0]!.id, outcomes[0]!.position], ["w", 0])
    }))

  it.effect("that cannot be decoded, or touch what is not held, veto the call; fewer keys are fine", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, Record<string, unknown>, string]> = [
        [["k"], { tag: 7 }, "error/vetoed"],
        [["k"], { tag: "<pending>" }, "error/vetoed"],
        [["k"], { tag: "x", k: ["l"] }, "error/vetoed"],
        [["k"], { tag: "x", k: ["k", "l"] }, "error/vetoed"],
        [["f:/a/x"], { tag: "x", k: ["f:/a"] }, "error/vetoed"],
        [[], { tag: "x", k: ["k"] }, "error/vetoed"],
        [["k", "l"], { tag: "x", k: ["l"] }, "ok"],
        [["f:/a"], { tag: "x", k: ["f:/a/x", "f:/a/y"] }, "ok"],
        [["k"], { tag: "x" }, "ok"]
      ]
      for (const [k, args, word] of cases) {
        const { book, outcomes } = yield* under([replacing(args)], [call("write", "w", k), call("write", "after", k)])
        assert.deepStrictEqual(words(outcomes), [word, "ok"], JSON.stringify(args))
        if (word !== "ok") assert.deepStrictEqual(facts(outcomes[0]).slice(1), [false, "none", false])
        assert.strictEqual(book.count("w"), 0)
      }
    }))

  const Run = pipe(
    Tool.make("run", {
      parameters: Schema.Struct({ h: Schema.String, cmd: Schema.String }),
      success: Schema.String,
      needsApproval: ({ cmd }) => cmd !== "harmless"
    }),
    ToolPolicy.write({ keys: ({ h }) => [h] })
  )
  const ops = (log: Array<string>) => {
    const kit = Toolkit.make(Run)
    const layer = Layer.merge(
      kit.toLayer({ run: ({ cmd }) => Effect.sync(() => (log.push(cmd), `did ${cmd}`)) }),
      Turn.layer()
    )
    return { kit, layer }
  }
  const wiping = one("swap", {
    before: ({ params }: any) => Effect.succeed(replaceArguments({ ...params, cmd: "wipe" }))
  })

  it.effect("need an approval of their own: the call is pending again for the new arguments (MORE.md 4)", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const { kit, layer } = ops(log)
      yield* Effect.gen(function*() {
        const options: Turn.Options = {
          decide: ({ arguments: { cmd } }) => cmd === "list" ? Approval.approve() : undefined
        }
        const result = yield* drive(
          Turn.runOrPark(kit, [
            ToolCall.make("a", "run", { h: "one", cmd: "list" }),
            ToolCall.make("b", "run", { h: "two", cmd: "harmless" })
          ], {
            ...options,
            middleware: wiping
          })
        )
        assert.deepStrictEqual(words(result.outcomes), ["pending_approval", "pending_approval"])
        assert.deepStrictEqual(log, [])
        if (result._tag !== "Parked") throw new Error("expected a parked turn")
        assert.deepStrictEqual(result.parked.requests.map((one) => one.arguments["cmd"]), ["wipe", "wipe"])
        // The words in the history are the model's own.
        assert.deepStrictEqual(result.parked.calls.map((one: any) => one.arguments.cmd), ["list", "harmless"])
        const parked = Schema.decodeUnknownSync(Turn.Parked)(JSON.parse(JSON.stringify(result.parked)))
        const resumed = yield* drive(
          Turn.resume(kit, parked, {
            middleware: wiping,
            decisions: [{ position: 0, decision: Approval.approve() }, { position: 1, decision: Approval.deny() }]
          })
        )
        assert.deepStrictEqual(words(resumed.outcomes), ["ok", "error/denied"])
        assert.deepStrictEqual(log, ["wipe"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("without anybody to decide, the call is held with what would run", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const { kit, layer } = ops(log)
      const result = yield* drive(
        Turn.runOrPark(kit, [ToolCall.make("a", "run", { h: "one", cmd: "harmless" })], { middleware: wiping }).pipe(
          Effect.provide(layer)
        )
      )
      if (result._tag !== "Parked") throw new Error("expected a parked turn")
      assert.deepStrictEqual(result.parked.requests.map((one) => one.arguments["cmd"]), ["wipe"])
      assert.deepStrictEqual(log, [])
    }))

  it.effect("each decision on them: approved, denied, answered, edited within and beyond what is held", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<readonly [Approval.Decision, string, ReadonlyArray<string>]> = [
        [Approval.approve(), "ok", ["wipe"]],
        [Approval.deny("no"), "error/denied", []],
        [Approval.answer("said"), "ok", []],
        [Approval.edit({ h: "one", cmd: "edited" }), "ok", ["edited"]],
        [Approval.edit({ h: "two", cmd: "edited" }), "error/vetoed", []],
        [Approval.edit({ h: 5 }), "pending_approval", []]
      ]
      for (const ms of [0, 5]) {
        for (const [decision, word, ran] of cases) {
          const log: Array<string> = []
          const { kit, layer } = ops(log)
          const outcomes = yield* drive(
            Turn.run(kit, [ToolCall.make("a", "run", { h: "one", cmd: "harmless" })], {
              middleware: wiping,
              decide: () => ms === 0 ? decision : Effect.delay(Effect.succeed(decision), ms)
            }).pipe(Effect.provide(layer))
          )
          assert.deepStrictEqual(words(outcomes), [word])
          assert.deepStrictEqual(log, ran)
        }
      }
    }))

  it.effect("held again, the call gives back its permit and its keys; later ones that conflict are deferred", () =>
    Effect.gen(function*() {
      const held = make("hold", {
        before: ({ id, params }: any) => Effect.succeed(id === "a" ? replaceArguments({ ...params, n: -1 }) : undefined)
      })
      const { book, outcomes } = yield* under(
        [held],
        [
          call("ask", "a", ["k"], { n: 5 }),
          call("write", "behind", ["k"]),
          call("post", "other", ["l"])
        ],
        { execution: 1 }
      )
      assert.deepStrictEqual(words(outcomes), ["pending_approval", "deferred/waits_for_approval", "ok"])
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["other"])
    }))

  it.effect("a stop while the registry is asked about them takes the request back", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const { kit, layer } = ops(log)
      const approvals = yield* Approval.Approvals
      const slow = {
        ...approvals,
        ask: (request: Approval.Request) => Effect.tap(approvals.ask(request), Effect.sleep(100))
      }
      const outcomes = yield* drive(
        Turn.run(kit, [ToolCall.make("a", "run", { h: "one", cmd: "harmless" })], {
          middleware: wiping,
          deadline: 20
        }).pipe(Effect.provide(layer), Effect.provideService(Approval.Approvals, slow))
      )
      assert.deepStrictEqual(outcomes.map(facts), [["cancelled/by_deadline", false, "none", true]])
      assert.deepStrictEqual(yield* approvals.pending, [])
      assert.deepStrictEqual(log, [])
    }).pipe(Effect.provide(Approval.layerMemory())))

  it.effect("a stop while they are asked about leaves the call unstarted, and ends the question", () =>
    Effect.gen(function*() {
      for (const sync of [true, false]) {
        const log: Array<string> = []
        const { kit, layer } = ops(log)
        const events: Array<any> = []
        const outcomes = yield* drive(
          Turn.run(kit, [ToolCall.make("a", "run", { h: "one", cmd: "harmless" })], {
            middleware: one("swap", {
              before: ({ params }: any) =>
                Effect.delay(Effect.succeed(replaceArguments({ ...params, cmd: "wipe" })), sync ? 0 : 5).pipe(
                  sync ? (_) => Effect.succeed(replaceArguments({ ...params, cmd: "wipe" })) : (self) => self
                )
            }),
            decide: () => Effect.never,
            onEvent: (event) => void events.push(event),
            deadline: 20
          }).pipe(Effect.provide(layer))
        )
        assert.deepStrictEqual(outcomes.map(facts), [["cancelled/by_deadline", false, "none", true]])
        assert.strictEqual(events.at(-1).at - events[0].at, 20)
      }
    }))
})

describe("R31: around", () => {
  it.effect("changes the result, recovers a failure, or fails in the tool's own way", () =>
    Effect.gen(function*() {
      const around = make("m", {
        around: (handler, { id }) =>
          id === "plus"
            ? Effect.map(handler, (result) => `${String(result)}!`)
            : id === "bad"
            ? Effect.catch(handler, () => Effect.succeed("recovered"))
            : id === "fails"
            ? Effect.fail("refused")
            : Effect.die("broken")
      })
      const { book, outcomes } = yield* under(
        [around],
        ["plus", "bad", "fails", "dies"].map((tag) => call("write", tag)),
        {},
        { bad: { end: "fail" } }
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "error/failed", "error/defect"])
      assert.deepStrictEqual(outcomes.slice(0, 2).map((one: any) => one.result), ["plus!", "recovered"])
      assert.deepStrictEqual(outcomes.slice(2).map((one) => one.started), [true, true])
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["plus", "bad"])
    }))

  it.effect("a throw in it is a defect; it runs on the call's own clock", () =>
    Effect.gen(function*() {
      const around = make("m", {
        around: (handler, { id }) => {
          if (id === "throws") throw new Error("thrown")
          return Effect.andThen(Effect.sleep(20_000), handler)
        }
      })
      const { outcomes, took } = yield* under([around], [call("read", "throws"), call("read", "slow")])
      assert.deepStrictEqual(words(outcomes), ["error/defect", "timeout/handler"])
      assert.strictEqual(took, 10_000)
    }))

  it.effect("a result that it makes up and the tool cannot encode is unencodable_result", () =>
    Effect.gen(function*() {
      const Typed = pipe(Tool.make("typed", { success: Schema.Finite }), ToolPolicy.write({ keys: () => [] }))
      const outcomes = yield* drive(
        runWith([Typed], { typed: () => Effect.succeed(1) }, [ToolCall.make("a", "typed")], {
          middleware: one("m", { around: () => Effect.succeed("text") })
        })
      )
      assert.deepStrictEqual(outcomes.map(facts), [["error/unencodable_result", true, "applied", false]])
    }))

  it.effect("R22: a promise that goes on after its stop is told truly; one that a step would have gone on after is unknown", () =>
    Effect.gen(function*() {
      const Put = pipe(
        Tool.make("put", { success: Schema.String }),
        ToolPolicy.write({ keys: () => [] }),
        ToolPolicy.forward(() => "key")
      )
      const cases: ReadonlyArray<readonly [ReadonlyArray<TurnMiddleware.TurnMiddleware>, ReadonlyArray<string>]> = [
        [[], ["ok", "applied"]],
        [one("m", { around: (handler) => handler }), ["ok", "applied"]],
        [one("m", { around: (handler) => Effect.tap(handler, Effect.sleep(1)) }), ["cancelled/by_caller", "unknown"]]
      ]
      for (const [middleware, expected] of cases) {
        // It hears of the stop, and writes all the same.
        const handler = Handler.promise((_, { signal }) =>
          new Promise<string>((resolve) => {
            signal.addEventListener("abort", () => setImmediate(() => resolve("written")))
          })
        )
        const outcomes = yield* runWith([Put], { put: handler }, [ToolCall.make("a", "put")], {
          middleware,
          cancelOn: Effect.as(Effect.yieldNow, "user")
        })
        assert.deepStrictEqual([words(outcomes)[0]!, outcomes[0]!.effect], expected)
      }
    }))
})

describe("R31: after", () => {
  it.effect("sees what the run came to, and gives another result, typed", () =>
    Effect.gen(function*() {
      const When = pipe(
        Tool.make("when", { success: Schema.Struct({ at: Schema.DateFromString }) }),
        ToolPolicy.write({ keys: () => [] })
      )
      const seen: Array<string> = []
      const outcomes = yield* drive(
        runWith([When], { when: () => Effect.succeed({ at: new Date(1) }) }, [ToolCall.make("a", "when")], {
          middleware: [
            make("outer", { after: (outcome: any) => Effect.sync(() => void seen.push(outcome.encoded.at)) }),
            make("inner", {
              after: (outcome: any) =>
                Effect.sync(() => {
                  seen.push(outcome.encoded.at)
                  return replaceResult({ at: "2026-01-01T00:00:00.000Z" })
                })
            })
          ]
        })
      )
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.instanceOf((outcomes[0] as any).result.at, Date)
      assert.deepStrictEqual((outcomes[0] as any).encoded, { at: "2026-01-01T00:00:00.000Z" })
      assert.deepStrictEqual([outcomes[0]!.started, outcomes[0]!.effect], [true, "applied"])
      assert.deepStrictEqual(seen, ["1970-01-01T00:00:00.001Z", "2026-01-01T00:00:00.000Z"])
    }))

  it.effect("one that is no result of the tool is unencodable_result, with the effect that there was", () =>
    Effect.gen(function*() {
      const Typed = <const Name extends string>(name: Name) =>
        Tool.make(name, { success: Schema.Struct({ n: Schema.Finite }) })
      const Write = pipe(Typed("write"), ToolPolicy.write({ keys: () => [] }))
      const Read = pipe(Typed("read"), ToolPolicy.read({ keys: () => [] }))
      const circular: Record<string, unknown> = {}
      circular["self"] = circular
      for (const bad of [{ n: "x" }, undefined, 5, circular, { n: 1n }]) {
        let outer = 0
        const outcomes = yield* drive(
          runWith(
            [Write, Read],
            { write: () => Effect.succeed({ n: 1 }), read: () => Effect.succeed({ n: 1 }) },
            [ToolCall.make("a", "write"), ToolCall.make("b", "read")],
            {
              middleware: [
                make("outer", { after: () => Effect.sync(() => void outer++) }),
                make("bad", { after: () => Effect.succeed(replaceResult(bad)) })
              ]
            }
          )
        )
        assert.deepStrictEqual(outcomes.map(facts), [
          ["error/unencodable_result", true, "applied", false],
          ["error/unencodable_result", true, "none", false]
        ])
        assert.include(outcomes[0]!.message, "bad")
        assert.strictEqual(outer, 0)
      }
    }))

  it.effect("what it throws, or a time that is over, is a defect whose effect is the run's", () =>
    Effect.gen(function*() {
      const steps: Record<string, () => Effect.Effect<void, unknown>> = {
        fail: () => Effect.fail("no"),
        die: () => Effect.die("no"),
        interrupt: () => Effect.interrupt,
        never: () => Effect.never,
        throw: () => {
          throw new Error("no")
        }
      }
      for (const [name, after] of Object.entries(steps)) {
        const { outcomes } = yield* under(
          one("m", { after: (_, { id }) => id === "w2" ? Effect.void : after(), timeout: 50 }),
          [call("post", "w"), call("fetch", "r"), call("write", "bad"), call("write", "w2")],
          {},
          { bad: { end: "fail" } }
        )
        assert.deepStrictEqual(outcomes.map(facts), [
          ["error/defect", true, "applied", false],
          ["error/defect", true, "none", false],
          ["error/defect", true, "unknown", false],
          ["ok", true, "applied", false]
        ], name)
      }
    }))

  it.effect("it can look at a tool's own failure, and not change it", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const { outcomes } = yield* under(
        one("m", { after: (outcome) => Effect.sync(() => (seen.push(words([outcome])[0]), replaceResult("better"))) }),
        [call("read", "bad"), call("read", "dies"), call("read", "self"), call("read", "ok")],
        {},
        { bad: { end: "fail" }, dies: { end: "die" }, self: { end: "interrupt" } }
      )
      assert.deepStrictEqual(words(outcomes), ["error/failed", "error/defect", "cancelled/by_itself", "ok"])
      assert.deepStrictEqual(seen.toSorted(), ["error/failed", "ok"])
      assert.strictEqual((outcomes[3] as any).result, "better")
    }))

  it.effect("not for what was cut short, timed out, given up on, vetoed, denied or answered", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const note = make("m", {
        before: ({ id }) => Effect.succeed(id === "vetoed" ? veto("no") : undefined),
        after: (_, { id }) => Effect.sync(() => void seen.push(id))
      })
      const first = yield* under(
        [note],
        [
          call("read", "slow"),
          call("write", "vetoed"),
          call("pay", "denied"),
          call("pay", "answered"),
          call("write", "deaf"),
          call("write", "w")
        ],
        {
          decide: ({ id }) => id === "denied" ? Approval.deny() : Approval.answer("x"),
          deadline: 50,
          grace: 20
        },
        { slow: { ms: 100 }, deaf: { ms: 1000 }, w: { ms: 55 } }
      )
      assert.deepStrictEqual(words(first.outcomes), [
        "cancelled/by_deadline",
        "error/vetoed",
        "error/denied",
        "ok",
        "cancelled/by_deadline",
        "ok"
      ])
      const second = yield* under([note], [call("read", "long")], {}, { long: { ms: 20_000 } })
      assert.deepStrictEqual(words(second.outcomes), ["timeout/handler"])
      // A write that was told to stop and came to its end has an after: its true outcome is reported.
      assert.deepStrictEqual(seen, ["w"])
    }))

  it.effect("keys and permit are held until it is over; a stop meanwhile changes nothing of the outcome", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* under(
        one("slow", { after: (_, { id }) => id === "a" ? Effect.sleep(50) : Effect.void }),
        [call("post", "a", ["k"]), call("write", "b", ["k"]), call("fetch", "c")],
        { cancelOn: Effect.as(Effect.sleep(30), "user") }
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "cancelled/by_caller"])
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["a"])
    }))

  it.effect("what waits for its keys and its permit starts when it is over", () =>
    Effect.gen(function*() {
      const free = yield* under(
        one("slow", { after: (_, { id }) => id === "a" ? Effect.sleep(50) : Effect.void }),
        [call("post", "a", ["k"]), call("write", "b", ["k"]), call("fetch", "c")]
      )
      assert.deepStrictEqual([free.book.span("b"), free.book.span("c")], [[60, 70], [60, 70]])
    }))

  it.effect("the running clock does not run in it", () =>
    Effect.gen(function*() {
      const { outcomes, took } = yield* under(
        one("slow", { after: () => Effect.sleep(4000) }),
        [call("read", "r")],
        {},
        { r: { ms: 9000 } }
      )
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.strictEqual(took, 13_000)
    }))

  it.effect("twins have copies of the replaced result", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* under(
        one("m", { after: () => Effect.succeed(replaceResult({ left: 3 })) }),
        [call("read", "x", [], { id: "a" }), call("read", "x", [], { id: "b" })]
      )
      const [first, second] = outcomes as ReadonlyArray<any>
      assert.deepStrictEqual([first.result, second.result], [{ left: 3 }, { left: 3 }])
      assert.notStrictEqual(first.result, second.result)
    }))
})

describe("R31: with a toolkit's own handlers", () => {
  it.effect("each step is the same", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        Effect.gen(function*() {
          const handled = yield* toolkit
          return yield* Turn.run(
            handled,
            ["veto", "swap", "plus", "after", "same", "bad"].map((tag) => call("write", tag)),
            {
              middleware: one("m", {
                before: ({ id, params }: any) =>
                  Effect.succeed(
                    id === "veto"
                      ? veto("no")
                      : id === "swap"
                      ? replaceArguments({ ...params, tag: "swapped" })
                      : undefined
                  ),
                around: (handler, { id }) =>
                  id === "plus" ? Effect.map(handler, (result) => `${String(result)}!`) : handler,
                after: (_, { id }) => Effect.succeed(id === "after" ? replaceResult("replaced") : undefined)
              })
            }
          )
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(
        words(outcomes),
        ["error/vetoed", "ok", "ok", "ok", "ok", "error/failed"].map((word, i) => i === 5 ? "ok" : word)
      )
      assert.deepStrictEqual(outcomes.slice(1, 5).map((one: any) => one.result), [
        "swapped",
        "plus!",
        "replaced",
        "same"
      ])
      assert.deepStrictEqual(outcomes.slice(1, 5).map((one: any) => one.encoded), [
        "swapped",
        "plus!",
        "replaced",
        "same"
      ])
      assert.strictEqual(book.count("veto"), 0)
    }))
})

describe("R21: with a journal", () => {
  const journaled = (
    middleware: ReadonlyArray<TurnMiddleware.TurnMiddleware>,
    options?: Turn.Options,
    script?: Script
  ) =>
    Effect.gen(function*() {
      const context = yield* Layer.build(TurnJournal.layerMemory)
      const result = yield* under(
        middleware,
        [call("write", "a", ["k"]), call("write", "b", ["k"])],
        { turn: "one", ...options },
        script,
        Layer.succeedContext(context)
      )
      const journal = yield* Effect.provide(TurnJournal.TurnJournal, context)
      return { ...result, entries: yield* journal.entries({ tenant: "t", turn: "one" }) }
    }).pipe(Effect.scoped)

  it.effect("what is vetoed or stopped before its start is not written down; the outcome after the last step is", () =>
    Effect.gen(function*() {
      const { entries, outcomes } = yield* journaled(
        one("m", {
          before: ({ id }) => Effect.succeed(id === "a" ? veto("no") : undefined),
          after: () => Effect.succeed(replaceResult("replaced"))
        })
      )
      assert.deepStrictEqual(words(outcomes), ["error/vetoed", "ok"])
      assert.deepStrictEqual(entries.map((entry) => [entry._tag, entry.key.position, (entry as any).outcome?.result]), [
        ["settled", 1, "replaced"]
      ])
      const stopped = yield* journaled(one("m", { before: () => Effect.sleep(60) }), { deadline: 30 })
      assert.deepStrictEqual(stopped.entries, [])
    }))

  it.effect("an after that throws is written down as it is told", () =>
    Effect.gen(function*() {
      const { entries } = yield* journaled(one("m", { after: () => Effect.die("no") }))
      assert.deepStrictEqual(entries.map((entry: any) => [entry.outcome.code, entry.outcome.effect]), [
        ["defect", "applied"],
        ["defect", "applied"]
      ])
    }))

  it.effect("a step that is over at once does not hide the one behind it from a stop: a journal that hangs is interrupted", () =>
    Effect.gen(function*() {
      let freed = 0
      const hanging = journalOf({
        reserve: () => Effect.never,
        free: () => Effect.sync(() => void freed++),
        settle: () => Effect.void
      })
      const { book, outcomes, took } = yield* under(
        one("m", { before: () => Effect.void }),
        [call("write", "a", ["k"])],
        { deadline: 30 },
        {},
        hanging
      )
      assert.deepStrictEqual(outcomes.map(facts), [["cancelled/by_deadline", false, "none", true]])
      assert.strictEqual(took, 30)
      assert.strictEqual(freed, 1)
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("a journal that is down at the start: nothing is started, no after runs; at the end: told all the same", () =>
    Effect.gen(function*() {
      let after = 0
      const down = (operation: "reserve" | "settle") =>
        Layer.effect(
          TurnJournal.TurnJournal,
          Effect.map(TurnJournal.TurnJournal, (journal) => ({ ...journal, [operation]: () => Effect.die("down") }))
        ).pipe(Layer.provide(TurnJournal.layerMemory))
      const middleware = one("m", { before: () => Effect.sleep(5), after: () => Effect.sync(() => void after++) })
      const first = yield* under(middleware, [call("post", "a")], {}, {}, down("reserve"))
      assert.deepStrictEqual(first.outcomes.map(facts), [["error/store_unavailable", false, "none", true]])
      assert.strictEqual(after, 0)
      const second = yield* under(middleware, [call("post", "a")], {}, {}, down("settle"))
      assert.deepStrictEqual(words(second.outcomes), ["ok"])
      assert.strictEqual(after, 1)
    }))
})

const someStep = Arbitrary.all({
  ms: pick(0, 0, 5, 12, 40),
  how: pick("nothing", "nothing", "act", "swap", "fail", "die", "interrupt", "throw", "deaf")
})

const stepOf = <A>(
  { how, ms }: { readonly ms: number; readonly how: string },
  act: A,
  swap: A
): Effect.Effect<A | void, unknown> => {
  if (how === "throw") throw new Error("thrown")
  const ends: Record<string, Effect.Effect<A | void, unknown>> = {
    act: Effect.succeed(act),
    swap: Effect.succeed(swap),
    fail: Effect.fail("no"),
    die: Effect.die("no"),
    interrupt: Effect.interrupt
  }
  const end = ends[how] ?? Effect.void
  const whole = ms === 0 ? end : Effect.andThen(Effect.sleep(ms), end)
  return how === "deaf" ? Effect.uninterruptible(whole) : whole
}

describe("R1, R14, R17, R31: whatever the middleware does", () => {
  it.effect("every call gets one true answer, and nothing is left or held", () =>
    Simulation.forAll(
      Arbitrary.all({
        before: someStep,
        around: someStep,
        after: someStep,
        stop: Arbitrary.all({ kind: pick("none", "none", "deadline", "cancel", "calls"), at: int(1, 50) }),
        failFast: pick(false, true),
        journal: pick(false, true),
        limit: pick<"parallel" | number>("parallel", 1),
        decide: pick<"none" | "approve" | "deny">("none", "approve", "deny"),
        end: pick<"ok" | "fail" | "die">("ok", "ok", "fail", "die")
      }),
      (input) =>
        Effect.suspend(() => {
          const { book, layer } = lab({
            api: { concurrency: 1 },
            script: { a: { ms: 10, end: input.end }, c: { ms: 20 } }
          })
          const afters: Array<number> = []
          const middleware = make("m", {
            before: ({ params }: any) =>
              stepOf(input.before, veto("no"), replaceArguments({ ...params, n: -3 })) as Effect.Effect<any, unknown>,
            around: (handler) =>
              Effect.flatMap(
                stepOf(input.around, "made up", "made up"),
                (made) => made === undefined ? handler : Effect.succeed(made)
              ),
            after: (_, { position }) => {
              afters.push(position)
              return stepOf(input.after, replaceResult("other"), replaceResult(undefined)) as Effect.Effect<
                any,
                unknown
              >
            },
            timeout: 30
          })
          return Effect.gen(function*() {
            const closed: Array<Turn.Closed> = []
            const calls = [
              call("post", "a", ["k"]),
              call("ask", "b", ["k"], { n: 4 }),
              call("fetch", "c"),
              call("put", "d", ["k"]),
              call("fetch", "c", [], { id: "twin" })
            ]
            const handle = yield* Turn.start(toolkit, calls, {
              middleware: [middleware],
              execution: input.limit,
              ...(input.failFast ? { siblings: Siblings.failFast } : undefined),
              ...(input.stop.kind === "deadline" ? { deadline: input.stop.at } : undefined),
              ...(input.decide === "none"
                ? undefined
                : {
                  decide: () =>
                    Effect.as(Effect.sleep(5), input.decide === "approve" ? Approval.approve() : Approval.deny())
                }),
              onEvent: book.note,
              onClosed: (one) => Effect.sync(() => void closed.push(one))
            })
            yield* Effect.sleep(input.stop.at)
            if (input.stop.kind === "cancel") yield* handle.cancel("user")
            if (input.stop.kind === "calls") { for (const position of [1, 2]) yield* handle.cancelCall(position) }
            const outcomes = yield* handle.await
            assert.strictEqual(closed.length, 1)
            const answers = book.tagsOf("CallEnded").map((event: any) => event.position)
            assert.deepStrictEqual(answers.toSorted((a, b) => a - b), [0, 1, 2, 3, 4])
            assert.deepStrictEqual(book.atWork, [])
            assert.deepStrictEqual(yield* Api.stats, idle(1))
            assert.strictEqual(new Set(afters).size, afters.length, "an after ran twice")
            const started = new Set(book.tagsOf("CallStarted").map((event: any) => event.position))
            for (const one of outcomes) {
              if (one.duplicateOf !== undefined || input.stop.kind === "calls") continue
              assert.strictEqual(one.started, started.has(one.position), words([one])[0])
              // What never ran has no step after it, and no effect.
              if (!started.has(one.position)) {
                assert.strictEqual(one.effect, "none")
                assert.notInclude(afters, one.position)
              }
            }
            const last = yield* run([call("bare", "last")])
            assert.deepStrictEqual(words(last), ["ok"])
          }).pipe(
            Effect.scoped,
            Effect.provide(input.journal ? Layer.merge(layer, TurnJournal.layerMemory) : layer)
          )
        }),
      { inputs: 250, seeds: 4 }
    ), 60_000)
})
