/** Who decides about calls that need approval, and what a decision makes of them. */
import { assert, describe, it } from "@effect/vitest"
import { Approval, Siblings, ToolCall, ToolPolicy, Turn, TurnContext } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Arbitrary from "effect/Arbitrary"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { int, pick } from "../utils/gen.ts"
import { Api, type Book, call, drive, ended, fork, idle, lab, run, runWith, toolkit, words } from "../utils/kit.ts"

const { approve, deny } = Approval

/** Runs calls with a `decide`, and gives outcomes and book. */
const deciding = (
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options: Turn.Options,
  script?: NonNullable<Parameters<typeof lab>[0]>["script"]
) =>
  Effect.gen(function*() {
    const { book, layer } = lab(script === undefined ? {} : { script })
    const outcomes = yield* drive(run(calls, { onEvent: book.note, ...options }).pipe(Effect.provide(layer)))
    return { book, outcomes }
  })

/** Decides by the id of a call. */
const byId = (decisions: Record<string, Approval.Decision>) => ({ id }: Approval.Request) => decisions[id]

const noteOf = Effect.map(TurnContext.CurrentCall, (current) => current?.approvalNote ?? "no note")

describe("R10: a turn that decides by rules", () => {
  it.effect("a decision's words stay with their call (MORE.md 5)", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding(
        [call("pay", "one", ["k"]), call("pay", "two", ["l"]), call("pay", "three", ["m"]), call("pay", "four", ["n"])],
        {
          decide: byId({
            one: deny("too much"),
            two: approve("the second"),
            three: approve("the third"),
            four: approve()
          })
        },
        { two: { run: noteOf }, three: { run: noteOf }, four: { run: noteOf } }
      )
      assert.deepStrictEqual(words(outcomes), ["error/denied", "ok", "ok", "ok"])
      assert.deepStrictEqual(outcomes.map((one) => one.status === "ok" && one.encoded), [
        false,
        "the second",
        "the third",
        "no note"
      ])
      assert.include(outcomes[0]!.message, "too much")
      for (const text of ["the second", "the third"]) assert.notInclude(outcomes[0]!.message, text)
      assert.deepStrictEqual([outcomes[0]!.started, outcomes[0]!.effect, outcomes[0]!.retryable], [
        false,
        "none",
        false
      ])
      assert.strictEqual(book.count("one"), 0)
      assert.deepStrictEqual(book.tagsOf("CallHeld"), [])
    }))

  it.effect("is asked once a call, with what would run, and only where approval is needed", () =>
    Effect.gen(function*() {
      const asked: Array<Approval.Request> = []
      const { layer } = lab()
      yield* drive(
        run(
          [
            call("pay", "a", ["k"], { n: 3 }),
            call("ask", "no", [], { n: 5 }),
            call("ask", "yes", [], { n: -5 }),
            call("read", "r"),
            ToolCall.make("bad", "pay", "{")
          ],
          {
            turn: "turn 1",
            decide: (request) => {
              asked.push(request)
              return undefined
            }
          }
        ).pipe(
          Effect.provide(TurnContext.make({ tenant: "north", conversation: "c", principal: "p" })),
          Effect.provide(layer)
        )
      )
      const base = { tenant: "north", conversation: "c", principal: "p", turn: "turn 1", requestedAt: 0 }
      assert.deepStrictEqual(asked.map(({ digest, ...rest }) => (assert.isString(digest), rest)), [
        { ...base, position: 0, id: "a", tool: "pay", arguments: { tag: "a", k: ["k"], n: 3 } },
        { ...base, position: 2, id: "yes", tool: "ask", arguments: { tag: "yes", k: [], n: -5 }, requestedAt: 5 }
      ])
      Schema.decodeUnknownSync(Schema.Array(Approval.Request))(JSON.parse(JSON.stringify(asked)))
    }))

  const holding: Record<string, () => any> = {
    "says nothing": () => undefined,
    "says nothing as an effect": () => Effect.void,
    "throws": () => {
      throw new Error("boom")
    },
    "fails": () => Effect.fail("boom"),
    "dies": () => Effect.die("boom"),
    "is interrupted": () => Effect.interrupt,
    "answers nonsense": () => true,
    "answers an unknown decision": () => ({ _tag: "Perhaps" }),
    "answers a decision of another form": () => ({ _tag: "Edit", arguments: "all" }),
    "answers null": () => null,
    "is a promise": () => Promise.resolve(approve())
  }
  for (const [name, decide] of Object.entries(holding)) {
    it.effect(`a decide that ${name} holds the call, and what conflicts with it is deferred`, () =>
      Effect.gen(function*() {
        const { book, outcomes } = yield* deciding(
          [call("pay", "p", ["k"]), call("read", "behind", ["k"]), call("read", "free")],
          { decide }
        )
        assert.deepStrictEqual(words(outcomes), ["pending_approval", "deferred/waits_for_approval", "ok"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["free"])
        assert.strictEqual(book.tagsOf("CallHeld").length, 1)
      }))
  }

  it.effect("a decision by effect takes its time: the call has its place, others go on, and it is told", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding(
        [call("pay", "p", ["k"]), call("read", "behind", ["k"]), call("read", "free")],
        { decide: () => Effect.delay(Effect.succeed(approve()), 30) }
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      assert.deepStrictEqual([book.span("free"), book.span("p"), book.span("behind")], [[0, 10], [30, 40], [40, 50]])
      const started = book.tagsOf("CallStarted").map((event: any) => [event.id, event.waited.approval])
      assert.deepStrictEqual(started, [["free", 0], ["p", 30], ["behind", 0]])
    }))

  it.effect("a denied or answered call opens the way for those behind it", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding(
        [
          call("pay", "a", ["k"]),
          call("write", "after a", ["k"]),
          call("pay", "b", ["l"]),
          call("write", "after b", ["l"])
        ],
        { decide: byId({ a: deny(), b: Approval.answer({ paid: 7 }) }) }
      )
      assert.deepStrictEqual(words(outcomes), ["error/denied", "ok", "ok", "ok"])
      const answered = outcomes[2] as any
      assert.deepStrictEqual(
        [answered.result, answered.encoded, answered.started, answered.effect, answered.retryable],
        [{ paid: 7 }, { paid: 7 }, false, "none", false]
      )
      assert.deepStrictEqual([book.span("after a")[0], book.span("after b")[0]], [0, 0])
    }))

  const When = pipe(
    Tool.make("when", {
      parameters: Schema.Struct({ tag: Schema.String }),
      success: Schema.Struct({ at: Schema.DateFromString }),
      needsApproval: true
    }),
    ToolPolicy.write({ keys: () => [] })
  )

  it.effect("an answer is a typed result; one that is none is asked for again, with the problem", () =>
    Effect.gen(function*() {
      const answers: ReadonlyArray<readonly [unknown, string]> = [
        [{ at: "2026-01-02T00:00:00.000Z" }, "ok"],
        [{ at: 5 }, "pending_approval"],
        [undefined, "pending_approval"]
      ]
      for (const [result, word] of answers) {
        const outcomes = yield* drive(
          runWith([When], { when: () => Effect.die("ran") }, [ToolCall.make("a", "when", { tag: "x" })], {
            decide: () => Approval.answer(result)
          })
        )
        assert.deepStrictEqual(words(outcomes), [word])
        if (outcomes[0]!.status === "ok") assert.instanceOf((outcomes[0] as any).result.at, Date)
      }
    }))

  it.effect("the twins of a call share what is decided, each with a copy of its own", () =>
    Effect.gen(function*() {
      const twins = [
        call("pay", "x", ["k"], { id: "a" }),
        call("pay", "x", ["k"], { id: "b" }),
        call("pay", "x", ["k"], {
          id: "a"
        })
      ]
      let asked = 0
      for (
        const [decision, word] of [
          [approve(), "ok"],
          [deny("no"), "error/denied"],
          [Approval.answer({ n: 1 }), "ok"],
          [undefined, "pending_approval"]
        ] as const
      ) {
        const { book, outcomes } = yield* deciding(twins, {
          decide: () => {
            asked++
            return Effect.delay(Effect.succeed(decision), 5)
          }
        })
        assert.deepStrictEqual(words(outcomes), [word, word, word])
        assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.position), [undefined, 0, 0])
        assert.strictEqual(book.count("x"), decision?._tag === "Approve" ? 1 : 0)
        if (decision?._tag === "Answer") {
          const [first, second] = outcomes as ReadonlyArray<any>
          assert.deepStrictEqual(second.result, { n: 1 })
          assert.notStrictEqual(first.result, second.result)
        }
      }
      assert.strictEqual(asked, 4)
    }))
})

describe("R10, R12: edited arguments", () => {
  const editing = (args: Record<string, unknown>): Turn.Options => ({
    decide: ({ id }) => id === "p" ? Approval.edit(args) : undefined
  })

  it.effect("are decoded again, and what runs is what was edited", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding([call("pay", "p", ["k"])], editing({ tag: "q", k: ["k"] }))
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.deepStrictEqual(book.runs.map((ran) => [ran.tag, ran.keys]), [["q", ["k"]]])
      assert.deepStrictEqual(outcomes.map((one) => [one.id, one.position]), [["p", 0]])
    }))

  it.effect("that touch something else take their place anew, behind what stands there", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding(
        [
          call("write", "before", ["l"]),
          call("pay", "p", ["k"]),
          call("write", "after k", ["k"]),
          call("write", "after l", ["l"]),
          call("read", "last", ["l"])
        ],
        editing({ tag: "p", k: ["l"] })
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(
        ["before", "after k", "after l", "last", "p"].map((tag) => book.span(tag)[0]),
        [0, 0, 10, 20, 30]
      )
    }))

  it.effect("that touch less keep their place", () =>
    Effect.gen(function*() {
      const { book } = yield* deciding(
        [call("write", "before", ["f:/a"]), call("pay", "p", ["f:/"]), call("write", "after", ["f:/a/x"])],
        editing({ tag: "p", k: ["f:/a/x"] })
      )
      assert.deepStrictEqual(["before", "p", "after"].map((tag) => book.span(tag)[0]), [0, 10, 20])
    }))

  it.effect("that touch nothing shared keep their place, too", () =>
    Effect.gen(function*() {
      const { book } = yield* deciding(
        [call("write", "before", ["k"]), call("pay", "p", ["k"]), call("write", "after", ["k"])],
        editing({ tag: "p", k: [] })
      )
      assert.deepStrictEqual(["before", "p", "after"].map((tag) => book.span(tag)[0]), [0, 10, 20])
    }))

  it.effect("in a turn that runs one after another, nothing is held up for ever", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding(
        [call("write", "before", ["l"]), call("pay", "p", ["k"]), call("write", "after", ["m"])],
        { ...editing({ tag: "p", k: ["l"] }), execution: "sequential" }
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      const order = book.runs.toSorted((a, b) => a.began - b.began)
      for (const [i, later] of order.entries()) if (i > 0) assert.isBelow(order[i - 1]!.ended!, later.began)
    }))

  it.effect("that cannot be used are asked for again, with the problem", () =>
    Effect.gen(function*() {
      for (const bad of [{ tag: 7 }, {}, { tag: "<pending>" }, { tag: "x", k: "k" }]) {
        const { layer } = lab()
        const result = yield* drive(
          Effect.gen(function*() {
            const approvals = yield* Approval.Approvals
            const handle = yield* Turn.runOrPark(toolkit, [
              call("pay", "p", ["k"]),
              call("read", "behind", ["k"])
            ], editing(bad))
            return { handle, pending: yield* approvals.pending }
          }).pipe(Effect.provide(Layer.merge(layer, Approval.layerMemory())))
        )
        const { handle, pending } = result
        assert.deepStrictEqual(words(handle.outcomes), ["pending_approval", "deferred/waits_for_approval"])
        if (handle._tag !== "Parked") throw new Error("expected a parked turn")
        assert.strictEqual(handle.parked.requests.length, 1)
        const [asked] = handle.parked.requests
        assert.include(asked!.problem, "edited arguments")
        assert.deepStrictEqual(asked!.arguments, { tag: "p", k: ["k"] })
        assert.deepStrictEqual(pending, handle.parked.requests)
      }
    }))

  it.effect("whether they need approval is not asked: they were given by a human", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding([call("ask", "p", ["k"], { n: -5 })], editing({ tag: "p", n: -500 }))
      assert.deepStrictEqual(words(outcomes), ["ok"])
      assert.deepStrictEqual(book.span("p"), [5, 15])
    }))

  it.effect("carry the idempotency key of what runs", () =>
    Effect.gen(function*() {
      const Keyed = pipe(
        Tool.make("keyed", {
          parameters: Schema.Struct({ n: Schema.Finite }),
          success: Schema.Unknown,
          needsApproval: true
        }),
        ToolPolicy.write({ keys: () => [] }),
        ToolPolicy.forward(({ n }) => `n ${n}`)
      )
      const outcomes = yield* drive(
        runWith(
          [Keyed],
          { keyed: () => Effect.map(TurnContext.CurrentCall, (current) => current!.idempotencyKey) },
          [ToolCall.make("a", "keyed", { n: 1 })],
          { decide: () => Approval.edit({ n: 2 }) }
        )
      )
      assert.deepStrictEqual((outcomes[0] as any).result, "n 2")
    }))

  it.effect("a call that touches by then what an earlier held call touches is deferred like any other", () =>
    Effect.gen(function*() {
      const calls = [call("pay", "held", ["k"]), call("pay", "p", ["l"]), call("pay", "later", ["m"])]
      for (const [k, expected] of [[["k"], "deferred/waits_for_approval"], [["m"], "ok"], [["n"], "ok"]] as const) {
        const { book, outcomes } = yield* deciding(calls, editing({ tag: "p", k }))
        assert.deepStrictEqual(words(outcomes), ["pending_approval", expected, "pending_approval"])
        assert.strictEqual(book.count("p"), expected === "ok" ? 1 : 0)
      }
    }))
})

describe("R18, R15: while it is decided", () => {
  const slow: Turn.Options = { decide: () => Effect.delay(Effect.succeed(approve()), 1000) }

  it.effect("a stop, a deadline and a sibling's failure end the question, and nothing is started", () =>
    Effect.gen(function*() {
      const calls = [call("pay", "p", ["k"]), call("read", "bad"), call("read", "behind", ["k"])]
      const kinds: ReadonlyArray<readonly [Turn.Options, string]> = [
        [{ cancelOn: Effect.as(Effect.sleep(20), "user") }, "cancelled/by_caller"],
        [{ deadline: 20 }, "cancelled/by_deadline"],
        [{ siblings: Siblings.failFast }, "cancelled/by_sibling"]
      ]
      for (const [options, word] of kinds) {
        const { book, outcomes } = yield* deciding(calls, { ...slow, ...options }, { bad: { ms: 20, end: "fail" } })
        assert.strictEqual(words(outcomes)[0], word)
        assert.strictEqual(words(outcomes)[2], word)
        assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at - book.tagsOf("TurnStarted")[0]!.at, 20)
        assert.strictEqual(book.count("p"), 0)
      }
    }))

  it.effect("the waiting clock runs", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding([call("pay", "p", ["k"]), call("read", "behind", ["k"])], {
        decide: () => Effect.never
      })
      assert.deepStrictEqual(words(outcomes), ["timeout/queue", "ok"])
      assert.strictEqual(book.span("behind")[0], 60_000)
    }))

  it.effect("a decide that does not hear the stop holds up its turn for the grace of reads, and no longer", () =>
    Effect.gen(function*() {
      const { book, outcomes } = yield* deciding([call("pay", "p", ["k"])], {
        decide: () => Effect.uninterruptible(Effect.as(Effect.sleep(100_000), approve())),
        deadline: 10,
        grace: 30
      })
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
      assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 40)
      assert.strictEqual(book.count("p"), 0)
    }))

  it.effect("a stop of the call itself, and of one of its twins", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const calls = [
          call("pay", "x", ["k"], { id: "a" }),
          call("pay", "x", ["k"], { id: "b" }),
          call("pay", "y", ["k"])
        ]
        const handle = yield* Turn.start(toolkit, calls, slow)
        yield* TestClock.adjust(10)
        assert.isTrue(yield* handle.cancelCall("a", "user"))
        assert.isTrue(yield* handle.cancelCall("y", "user"))
        yield* TestClock.adjust(10_000)
        assert.deepStrictEqual(words(yield* handle.await), ["cancelled/by_caller", "ok", "cancelled/by_caller"])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["x"])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))

  it.effect("fail-fast leaves held calls held", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* deciding(
        [call("pay", "p", ["k"]), call("read", "bad"), call("write", "w", ["m"])],
        { decide: () => undefined, siblings: Siblings.failFast },
        { bad: { ms: 0, end: "fail" } }
      )
      assert.strictEqual(words(outcomes)[0], "pending_approval")
    }))
})

/** Runs in a lab with a registry in the context. */
const registered = <A, E>(
  use: (approvals: Approval.Approvals["Service"], book: Book) => Effect.Effect<A, E, any>,
  script?: NonNullable<Parameters<typeof lab>[0]>["script"],
  approvals: Layer.Layer<Approval.Approvals> = Approval.layerMemory()
) => {
  const { book, layer } = lab(script === undefined ? {} : { script })
  return Effect.flatMap(Approval.Approvals, (approvals) => use(approvals, book)).pipe(
    Effect.scoped,
    Effect.provide(Layer.merge(layer, approvals))
  ) as Effect.Effect<A, E>
}

const refusal = (approvals: Approval.Approvals["Service"], place: Approval.Place) =>
  approvals.decide(place, approve()).pipe(
    Effect.as("taken"),
    Effect.catchTag("DecisionRefused", ({ reason }) => Effect.succeed(reason))
  )

describe("R10: with a registry in the context", () => {
  it.effect("what is held is registered; decide is asked first, rules answer at once", () =>
    registered((approvals, book) =>
      Effect.gen(function*() {
        yield* approvals.always({ tool: "ask" })
        const calls = [call("pay", "a"), call("pay", "b"), call("ask", "c", [], { n: -5 })]
        const options = { turn: "one", decide: byId({ a: approve() }) }
        const { outcomes } = yield* drive(Turn.runOrPark(toolkit, calls, options))
        assert.deepStrictEqual(words(outcomes), ["ok", "pending_approval", "ok"])
        assert.deepStrictEqual((yield* approvals.pending).map(({ id, turn }) => [turn, id]), [["one", "b"]])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["a", "c"])
      })
    ))

  it.effect("the first decision stands: what was told the registry comes before what is decided at the resumption", () =>
    registered((approvals, book) =>
      Effect.gen(function*() {
        for (const later of ["decisions", "decide"] as const) {
          const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p", ["k"])]))
          if (result._tag === "Closed") return assert.fail("it waits for a human")
          yield* approvals.decide(result.parked.requests[0]!, deny("never"))
          const options = later === "decide"
            ? { decide: () => approve() }
            : { decisions: [{ position: 0, decision: approve() }] }
          const resumed = yield* drive(Turn.resume(toolkit, result.parked, options))
          assert.deepStrictEqual(words(resumed.outcomes), ["error/denied"])
        }
        assert.deepStrictEqual(book.runs, [])
      })
    ))

  it.effect("a turn that reports what it holds takes its requests back when it is answered", () =>
    registered((approvals) =>
      Effect.gen(function*() {
        const fiber = yield* fork(run([call("pay", "p", ["k"]), call("read", "r")], { turn: "one" }))
        const [request] = yield* approvals.pending
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(fiber)), ["pending_approval", "ok"])
        assert.deepStrictEqual(yield* approvals.pending, [])
        assert.strictEqual(yield* refusal(approvals, request!), "settled")
      })
    ))

  it.effect("a request that is parked knows when its time is over, and a decision that comes later is asked for anew", () =>
    registered(
      (approvals, book) =>
        Effect.gen(function*() {
          const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p", ["k"])], { turn: "one" }), 0)
          if (result._tag === "Closed") return assert.fail("it waits for a human")
          assert.strictEqual(result.parked.requests[0]!.expiresAt, 40)
          yield* TestClock.adjust(60)
          const decisions = [{ position: 0, decision: approve() }]
          const late = yield* drive(Turn.resume(toolkit, result.parked, { decisions }), 0)
          if (late._tag === "Closed") return assert.fail("it waits again")
          assert.strictEqual(late.parked.requests[0]!.expiresAt, 100)
          assert.deepStrictEqual((yield* approvals.pending).map((one) => one.expiresAt), [100])
          const inTime = yield* drive(Turn.resume(toolkit, late.parked, { decisions }), 20)
          assert.deepStrictEqual(words(inTime.outcomes), ["ok"])
          assert.strictEqual(book.count("p"), 1)
        }),
      {},
      Approval.layerMemory({ expires: 40 })
    ))

  it.effect("a late decision on a call that was stopped is refused: settled (MORE.md 5)", () =>
    registered((approvals) =>
      Effect.gen(function*() {
        // While the turn goes on, not only when it has ended.
        const handle = yield* Turn.start(toolkit, [
          call("pay", "p", ["k"]),
          call("pay", "q", ["l"]),
          call("write", "w")
        ], {
          turn: "one"
        })
        yield* TestClock.adjust(10)
        assert.strictEqual((yield* approvals.pending).length, 2)
        const [first, second] = yield* approvals.pending
        assert.isTrue(yield* handle.cancelCall("p"))
        yield* TestClock.adjust(1)
        assert.strictEqual(yield* refusal(approvals, first!), "settled")
        const stopping = yield* fork(handle.cancel("user"))
        yield* TestClock.adjust(1)
        assert.isUndefined(stopping.pollUnsafe())
        assert.strictEqual(yield* refusal(approvals, second!), "settled")
        assert.deepStrictEqual(yield* approvals.pending, [])
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(words(yield* ended(stopping)), ["cancelled/by_caller", "cancelled/by_caller", "ok"])
        assert.strictEqual(yield* refusal(approvals, { tenant: "t", turn: "one", position: 2 }), "unknown")
      }), { w: { ms: 100 } }))

  it.effect("a decision while the turn goes on is kept for its resumption", () =>
    registered((approvals, book) =>
      Effect.gen(function*() {
        const fiber = yield* fork(Turn.runOrPark(toolkit, [call("pay", "p", ["k"]), call("write", "w")]))
        yield* TestClock.adjust(10)
        const [first] = yield* approvals.pending
        yield* approvals.decide(first!, approve("go"))
        yield* TestClock.adjust(100)
        const result = yield* ended(fiber)
        if (result._tag !== "Parked") throw new Error("expected a parked turn")
        const resumed = yield* drive(Turn.resume(toolkit, result.parked))
        assert.deepStrictEqual(words(resumed.outcomes), ["ok", "ok"])
        assert.deepStrictEqual((resumed.outcomes[0] as any).result, "go")
        assert.strictEqual(yield* refusal(approvals, first!), "settled")
        assert.strictEqual(book.count("w"), 1)
      }), { w: { ms: 50 }, p: { run: noteOf } }))

  it.effect("decisions that are given at the resumption leave nothing behind that waits", () =>
    registered((approvals) =>
      Effect.gen(function*() {
        const result = yield* drive(Turn.runOrPark(toolkit, [call("pay", "p", ["k"]), call("pay", "q", ["l"])]))
        if (result._tag !== "Parked") throw new Error("expected a parked turn")
        const requests = yield* approvals.pending
        assert.strictEqual(requests.length, 2)
        const resumed = yield* drive(
          Turn.resume(toolkit, result.parked, {
            decisions: [{ position: 0, decision: approve() }],
            decide: byId({ q: deny() })
          })
        )
        assert.deepStrictEqual(words(resumed.outcomes), ["ok", "error/denied"])
        assert.deepStrictEqual(yield* approvals.pending, [])
        for (const one of requests) assert.strictEqual(yield* refusal(approvals, one), "settled")
      })
    ))

  /** A registry whose steps take time. */
  const slowRegistry = (ms: number, how: { readonly withdraw?: Effect.Effect<void> } = {}) =>
    Layer.effect(
      Approval.Approvals,
      Effect.map(Approval.Approvals, (inner) => ({
        ...inner,
        ask: (request: Approval.Request) => Effect.tap(inner.ask(request), Effect.sleep(ms)),
        withdraw: (place: Approval.Place) => Effect.andThen(how.withdraw ?? Effect.void, inner.withdraw(place))
      }))
    ).pipe(Layer.provide(Approval.layerMemory()))

  it.effect("a stop that comes while the registry is asked takes the request back", () =>
    registered(
      (approvals) =>
        Effect.gen(function*() {
          const outcomes = yield* drive(run([call("pay", "p", ["k"])], { turn: "one", deadline: 10 }))
          assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
          assert.deepStrictEqual(yield* approvals.pending, [])
          assert.strictEqual(yield* refusal(approvals, { tenant: "t", turn: "one", position: 0 }), "settled")
        }),
      {},
      slowRegistry(100)
    ))

  it.effect("a registry that cannot take a request back holds up nobody for long", () =>
    Effect.gen(function*() {
      for (const withdraw of [Effect.never, Effect.die("down")]) {
        for (const ms of [0, 100]) {
          yield* registered(
            (_, book) =>
              Effect.gen(function*() {
                const outcomes = yield* drive(
                  run([call("pay", "p", ["k"]), call("write", "w")], { deadline: 10, onEvent: book.note })
                )
                assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "ok"])
                const [start, end] = [book.tagsOf("TurnStarted")[0]!.at, book.tagsOf("TurnEnded")[0]!.at]
                assert.isAtMost(end - start, 50 + 5000)
              }),
            { w: { ms: 50 } },
            slowRegistry(ms, { withdraw })
          )
        }
      }
    }))

  it.effect("a registry that is down holds the call", () =>
    registered(
      () =>
        Effect.gen(function*() {
          const outcomes = yield* drive(run([call("pay", "p", ["k"]), call("read", "r")]))
          assert.deepStrictEqual(words(outcomes), ["pending_approval", "ok"])
        }),
      {},
      Layer.effect(
        Approval.Approvals,
        Effect.map(Approval.Approvals, (inner) => ({ ...inner, ask: () => Effect.die("down") }))
      ).pipe(Layer.provide(Approval.layerMemory()))
    ))

  it.effect(
    "under exploration: whatever stops the turn and whoever decides, nothing waits that has its answer",
    () =>
      Simulation.forAll(
        Arbitrary.all({
          at: int(0, 30),
          decideAt: int(0, 30),
          registry: pick(0, 3),
          stop: pick("none", "cancel", "deadline", "calls"),
          decide: pick<"none" | "approve" | "edit" | "bad">("none", "approve", "edit", "bad")
        }),
        ({ at, decide, decideAt, registry, stop }) =>
          Effect.suspend(() =>
            registered(
              (approvals, book) =>
                Effect.gen(function*() {
                  const calls = [
                    call("pay", "p", ["k"], { id: "a" }),
                    call("pay", "p", ["k"], { id: "b" }),
                    call("ask", "q", ["k"], { n: -10 }),
                    call("post", "w", ["k"]),
                    call("fetch", "r")
                  ]
                  const decisions = {
                    approve: approve(),
                    edit: Approval.edit({ tag: "p", k: ["l"] }),
                    bad: Approval.edit({})
                  }
                  const handle = yield* Turn.start(toolkit, calls, {
                    turn: "one",
                    onEvent: book.note,
                    ...(stop === "deadline" ? { deadline: at + 1 } : undefined),
                    decide: ({ id }) =>
                      decide === "none" || id === "q"
                        ? undefined
                        : Effect.delay(Effect.succeed(decisions[decide]), decideAt)
                  })
                  const human = yield* Effect.forkChild(
                    Effect.gen(function*() {
                      yield* Effect.sleep(decideAt)
                      for (const one of yield* approvals.pending) yield* Effect.exit(approvals.decide(one, deny()))
                    })
                  )
                  yield* Effect.sleep(at)
                  if (stop === "cancel") yield* handle.cancel("user")
                  if (stop === "calls") { for (const position of [0, 2]) yield* handle.cancelCall(position) }
                  const outcomes = yield* handle.await
                  yield* Fiber.join(human)
                  const answers = book.tagsOf("CallEnded").map((event: any) => event.position)
                  assert.deepStrictEqual(answers.toSorted((a, b) => a - b), [0, 1, 2, 3, 4])
                  const open = new Set(
                    outcomes.filter((one) => one.status === "pending_approval").map((one) => one.position)
                  )
                  for (const one of yield* approvals.pending) {
                    assert.isTrue(open.has(one.position), `#${one.position} has its answer and waits`)
                  }
                  assert.isAtMost(book.count("p"), 1)
                  assert.deepStrictEqual(book.atWork, [])
                  assert.deepStrictEqual((yield* Api.stats).running, idle(1).running)
                }),
              {},
              registry === 0 ? Approval.layerMemory() : slowRegistry(registry)
            )
          ),
        { inputs: 120, seeds: 4 }
      ),
    60_000
  )
})

describe("a call is what was approved", () => {
  it.effect("a decide that is a gate of somebody else's lets each through by its own decision", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const gates = new Map<string, Deferred.Deferred<Approval.Decision>>()
        for (const id of ["a", "b", "c"]) gates.set(id, yield* Deferred.make<Approval.Decision>())
        const handle = yield* Turn.start(toolkit, ["a", "b", "c"].map((id) => call("pay", id, ["k"])), {
          decide: ({ id }) =>
            Option.match(Option.fromNullishOr(gates.get(id)), {
              onNone: () => undefined,
              onSome: Deferred.await
            })
        })
        yield* TestClock.adjust(10)
        yield* Deferred.succeed(gates.get("c")!, approve())
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(book.runs, [])
        yield* Deferred.succeed(gates.get("a")!, deny())
        yield* TestClock.adjust(10)
        assert.deepStrictEqual(book.runs, [])
        yield* Deferred.succeed(gates.get("b")!, approve())
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* handle.await), ["error/denied", "ok", "ok"])
        assert.deepStrictEqual(book.runs.map((ran) => [ran.tag, ran.at]), [["b", 30], ["c", 40]])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))
})
