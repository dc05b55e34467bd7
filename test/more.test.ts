/**
 * Faults that scenario files cannot express, each by its number and words. What is not here belongs to parts that a turn does not
 * have yet (lists), or stands beside them: middleware, decided approvals, retries, and streams of calls.
 */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  ArtifactStore,
  Backend,
  Handler,
  Outcome,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnError,
  type TurnEvent,
  TurnJournal
} from "effect-turn"
import { FakeStore, FakeTool, Simulation } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"
import type * as Prompt from "effect/ai/Prompt"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { inVirtualTime } from "./utils/data.ts"
import {
  byCaller,
  call,
  facts,
  on,
  Params,
  read,
  type Stage,
  stage,
  timed,
  tool,
  turn,
  words,
  write
} from "./utils/dataTurns.ts"

type AnyOutcome = Outcome.Outcome<any>

const ok = (ms: number, result: unknown = "done") => () => Effect.as(Effect.sleep(ms), result)

/** The ids of the calls and of the answers of a history, each list in its order. */
const idsOf = (prompt: Prompt.Prompt) => {
  const [assistant, answers, ...more] = prompt.content as ReadonlyArray<any>
  assert.deepStrictEqual([assistant.role, answers.role, more.length], ["assistant", "tool", 0])
  return {
    calls: assistant.content.map((part: any) => part.id) as ReadonlyArray<string>,
    answers: answers.content.map((part: any) => part.id) as ReadonlyArray<string>
  }
}

const paramsOf = (prompt: Prompt.Prompt): ReadonlyArray<unknown> =>
  (prompt.content as ReadonlyArray<any>)[0].content.map((part: any) => part.params)

const answersOf = (prompt: Prompt.Prompt): ReadonlyArray<any> => (prompt.content as ReadonlyArray<any>)[1].content

describe("1. a history built from a turn is closed", () => {
  const calls = [
    call("r1", "read", { n: 1 }),
    call("w1", "write", { k: "a" }),
    call("w2", "write", { k: "a", n: 2 }),
    call("", "read", { n: 3 }),
    call("r1", "read", { n: 1 }),
    call("u1", "nothing", {}),
    call("i1", "read", "[1"),
    call("", "read", { n: 4 }),
    call("p1", "read", { n: "{{r1.id}}" }),
    call("d1", "deaf", { n: 5 }),
    call("a1", "pay", { n: 6 }),
    call("t1", "read", { n: 1 })
  ]
  const pay = pipe(
    Tool.make("pay", { parameters: Params, success: Schema.Unknown, failure: Schema.String, needsApproval: true }),
    write
  )
  const made = () =>
    stage([
      [read(tool("read")), ok(10)],
      [write(tool("write")), ok(30)],
      [read(tool("deaf")), Handler.promise(() => new Promise<unknown>(() => {}))],
      [pay, ok(10)]
    ], Turn.layer({ shutdownGrace: 1, onUnsettled: () => Effect.void }))

  const endings: Record<string, Turn.Options> = {
    "to its end, with a timeout": { grace: 10 },
    "by a stop": { ...byCaller(15, "user"), grace: 10 },
    "at its deadline": { deadline: 15, grace: 10 },
    "at a grace for writes too": { ...byCaller(15, "user"), grace: { reads: 5, writes: 5 } },
    "cut short by the provider": { finishReason: "length" },
    "fail-fast": { grace: 1, execution: 1 }
  }

  const check = (outcomes: ReadonlyArray<AnyOutcome>, events: ReadonlyArray<TurnEvent.TurnEvent>) => {
    assert.deepStrictEqual(outcomes.map(({ id, position }) => [position, id]), calls.map(({ id }, i) => [i, id]))
    const { answers, calls: asked } = idsOf(Turn.toPrompt(calls, outcomes))
    assert.deepStrictEqual(answers, asked)
    assert.strictEqual(new Set(asked).size, asked.length)
    // One answer for the re-delivered id, and an id of its own for each empty one.
    assert.deepStrictEqual(
      asked.map((id) => calls.some((call) => call.id === id) ? id : ""),
      calls.filter((_, i) => i !== 4).map(({ id }) => id)
    )
    assert.isFalse(asked.includes(""))
    // The repeat can be seen in the events.
    const ended = events.filter((event) => event._tag === "CallEnded")
    assert.deepStrictEqual(ended.map(({ position }) => position).sort((a, b) => a - b), [...calls.keys()])
    assert.strictEqual(ended.find(({ position }) => position === 4)!.outcome.duplicateOf?.position, 0)
  }

  for (const [name, options] of Object.entries(endings)) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const { events, outcomes } = yield* turn(made(), calls, options)
        if (options.finishReason === undefined) check(outcomes, events)
        else assert.deepStrictEqual(idsOf(Turn.toPrompt(calls, outcomes)).calls.length, calls.length - 1)
      }))
  }

  it.effect("by an interruption of its fiber", () =>
    Effect.gen(function*() {
      const told: Array<Turn.Closed> = []
      const events: Array<TurnEvent.TurnEvent> = []
      const stage = made()
      yield* on(
        stage,
        Effect.gen(function*() {
          const fiber = yield* Effect.forkChild(
            stage.run(calls, {
              grace: { reads: 10 },
              onEvent: (event) => events.push(event),
              onClosed: (closed) => Effect.sync(() => told.push(closed))
            })
          )
          yield* Effect.sleep(15)
          yield* Fiber.interrupt(fiber)
        })
      )
      assert.strictEqual(told.length, 1)
      assert.deepStrictEqual(told[0]!.calls, calls)
      check(told[0]!.outcomes, events)
      assert.deepStrictEqual(told[0]!.outcomes.map(words).slice(0, 3), ["ok", "ok", "cancelled/by_caller"])
    }))
})

it.effect("2. a stop during the step before a call (as far as the journal is that step)", () =>
  Effect.gen(function*() {
    class Hotels extends Backend.Service<Hotels>()("test/more/Hotels") {}
    const world = yield* FakeTool.makeWorld
    const book = pipe(tool("book"), write, ToolPolicy.on(Hotels))
    const steps: Array<string> = []
    const slow = Layer.effect(
      TurnJournal.TurnJournal,
      Effect.map(TurnJournal.TurnJournal, (memory) => ({
        ...memory,
        reserve: (key: TurnJournal.CallKey, options: { readonly owner: string }) =>
          Effect.sleep(60).pipe(
            Effect.andThen(memory.reserve(key, options)),
            Effect.tap(() => Effect.sync(() => steps.push(`reserved ${key.id}`)))
          ),
        free: (key: TurnJournal.CallKey, owner: string) =>
          Effect.tap(memory.free(key, owner), () => Effect.sync(() => steps.push(`freed ${key.id}`)))
      }))
    ).pipe(Layer.provide(TurnJournal.layerMemory))
    const made = stage(
      [[book, FakeTool.handler(world, book, { type: "ok", latencyMs: 50, result: 1 })]],
      Layer.mergeAll(Turn.layer(), Hotels.layer({ concurrency: 1 }), slow) as Layer.Layer<any>
    )
    const [outcomes, at, entries, stats] = yield* on(
      made,
      Effect.gen(function*() {
        const [outcomes, at] = yield* timed(
          made.run([call("a", "book", { k: "a" }), call("b", "book", { k: "b" })], {
            ...byCaller(30, "user"),
            turn: "t"
          })
        )
        const journal = yield* TurnJournal.TurnJournal
        return [outcomes, at, yield* journal.entries({ tenant: "default", turn: "t" }), yield* Hotels.stats] as const
      })
    )
    assert.deepStrictEqual(outcomes.map(facts), [
      ["cancelled/by_caller", false, "none"],
      ["cancelled/by_caller", false, "none"]
    ])
    assert.isTrue(outcomes.every(({ retryable }) => retryable))
    assert.strictEqual(world.runs.length, 0)
    // The first one's step is broken off and undone; the second one's never begins.
    assert.deepStrictEqual(steps, ["freed a"])
    assert.deepStrictEqual([entries.length, at, stats.running, stats.waiting], [0, 30, 0, 0])
  }))

describe("3. a late end is an event", () => {
  const endings: Record<string, { readonly late: () => Promise<unknown>; readonly words: string }> = {
    good: { late: () => Promise.resolve("late"), words: "ok" },
    bad: { late: () => Promise.reject(new Error("too late")), words: "error/defect" }
  }
  for (const [name, { late, words: expected }] of Object.entries(endings)) {
    it.effect(`a write that is given up on ends later: ${name}`, () =>
      Effect.gen(function*() {
        const unhandled: Array<unknown> = []
        const note = (reason: unknown) => unhandled.push(reason)
        process.on("unhandledRejection", note)
        yield* Effect.addFinalizer(() => Effect.sync(() => process.off("unhandledRejection", note)))
        const context = yield* Effect.context<never>()
        const supervised: Array<TurnEvent.CallSettledLate> = []
        const made = stage([
          [
            write(tool("write")),
            Handler.promise(() => Effect.runPromiseWith(context)(Effect.sleep(100)).then(late))
          ],
          [read(tool("read")), ok(10)]
        ], Turn.layer({ onSettledLate: (event) => supervised.push(event) }))
        const events: Array<TurnEvent.TurnEvent> = []
        const unsettled = Effect.flatMap(Turn.Runtime, (runtime) => runtime.unsettled)
        const [outcomes, at, left, after] = yield* on(
          made,
          Effect.gen(function*() {
            const [outcomes, at] = yield* timed(
              made.run([call("c0", "read"), call("c1", "write", { k: "a" })], {
                ...byCaller(20, "user"),
                grace: { writes: 10 },
                turn: "t-1",
                onEvent: (event) => events.push(event)
              })
            )
            const told = JSON.stringify(outcomes.map(Outcome.toJson))
            const left = yield* unsettled
            yield* Effect.sleep(200)
            assert.strictEqual(JSON.stringify(outcomes.map(Outcome.toJson)), told)
            return [outcomes, at, left, yield* unsettled] as const
          })
        )
        assert.strictEqual(at, 30)
        assert.deepStrictEqual(facts(outcomes[1]), ["cancelled/by_caller", true, "unknown"])
        assert.deepStrictEqual(left.map(({ position, tool, turn }) => ({ position, tool, turn })), [
          { position: 1, tool: "write", turn: "t-1" }
        ])
        assert.deepStrictEqual(after, [])
        const lates = events.filter((event) => event._tag === "CallSettledLate")
        assert.deepStrictEqual(lates.map(({ at, position, turn }) => ({ at, position, turn })), [
          { at: 100, position: 1, turn: "t-1" }
        ])
        assert.strictEqual(words(lates[0]!.outcome), expected)
        assert.deepStrictEqual(supervised, lates)
        assert.strictEqual(events.filter((event) => event._tag === "CallEnded" && event.position === 1).length, 1)
        yield* Effect.promise(() => new Promise((resume) => setImmediate(resume)))
        assert.deepStrictEqual(unhandled, [])
      }))
  }
})

describe("6. limits that are refused", () => {
  const impossible = [0, -1, NaN, 3_000_000_000, Infinity]
  const refusal = (define: () => unknown): TurnError.TurnError => {
    try {
      define()
    } catch (error) {
      return error as TurnError.TurnError
    }
    throw new Error("it was accepted")
  }

  it("each definition fails when it is made, with the names of the tool or backend and of the limit", () => {
    for (const limit of impossible) {
      const { idleTimeout, timeout, waitTimeout } = ToolPolicy
      for (const [name, define] of Object.entries({ idleTimeout, timeout, waitTimeout })) {
        const { reason } = refusal(() => define(limit)(tool("slow")))
        assert.strictEqual(reason._tag, "InvalidLimit")
        assert.include(reason, { owner: 'tool "slow"', limit: name })
        assert.include(reason.message, String(limit))
      }
    }
    class Api extends Backend.Service<Api>()("test/more/Api") {}
    class Crm extends Backend.TenantService<Crm>()("test/more/Crm") {}
    for (const limit of [0, -1, NaN, 1.5, Infinity]) {
      for (
        const [define, owner, name] of [
          [() => Api.layer({ concurrency: limit }), "test/more/Api", "concurrency"],
          [() => Crm.layer({ concurrency: 1, perTenant: limit }), "test/more/Crm", "perTenant"]
        ] as const
      ) {
        const { reason } = refusal(define)
        assert.include(reason, { _tag: "InvalidLimit", owner: `backend "${owner}"`, limit: name })
      }
    }
    for (const limit of [-1, NaN, 1.5]) {
      const { reason } = refusal(() => Api.layer({ concurrency: 1, queueLimit: limit }))
      assert.include(reason, { _tag: "InvalidLimit", owner: 'backend "test/more/Api"', limit: "queueLimit" })
    }
    for (const limit of impossible) {
      assert.include(refusal(() => Turn.layer({ shutdownGrace: limit })).reason, { limit: "shutdownGrace" })
    }
  })

  it.effect("the limits of a turn are refused as misuse, and nothing is started", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const it = read(tool("read"))
      const made = stage([[it, FakeTool.handler(world, it, { type: "ok", result: 1 })]])
      const options = impossible.flatMap((limit): Array<Turn.Options> => [
        { deadline: limit },
        ...(limit === 0 ? [] : [{ grace: limit }, { grace: { reads: limit } }, { grace: { writes: limit } }]),
        { execution: limit === 3_000_000_000 ? 1.5 : limit },
        { limits: { maxKeys: limit === 3_000_000_000 ? 1.5 : limit } }
      ])
      for (const option of options) {
        const exit = yield* on(made, Effect.exit(made.run([call("a", "read")], option)))
        const error = Exit.isFailure(exit)
          ? exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
          : undefined
        assert.strictEqual(
          (error as TurnError.TurnError | undefined)?.reason._tag,
          "InvalidLimit",
          JSON.stringify(option)
        )
      }
      assert.strictEqual(world.runs.length, 0)
    }))

  it.effect("the longest limit that is accepted does not fire at once", () =>
    Effect.gen(function*() {
      const made = stage([
        [pipe(read(tool("read")), ToolPolicy.timeout(2_147_483_647), ToolPolicy.idleTimeout("infinite")), ok(50)]
      ])
      const { at, outcomes } = yield* turn(made, [call("a", "read")], { deadline: 2_147_483_647 })
      assert.deepStrictEqual([words(outcomes[0]), at], ["ok", 50])
    }))
})

it.effect("8. live events come in the order of completion", () =>
  Effect.gen(function*() {
    const calls = [call("a", "read", { n: 0 }), call("b", "read", { n: 1 }), call("c", "read", { n: 2 })]
    const running = (latencies: ReadonlyArray<number>) =>
      turn(
        stage([[read(tool("read")), ({ n }) => Effect.as(Effect.sleep(latencies[n]!), `result ${n}`)]]),
        calls,
        { turn: "t" }
      )
    const first = yield* running([90, 10, 50])
    assert.deepStrictEqual(
      first.events.filter((event) => event._tag === "CallEnded").map(({ at, id }) => [id, at]),
      [["b", 10], ["c", 50], ["a", 90]]
    )
    assert.deepStrictEqual(first.outcomes.map(({ id }) => id), ["a", "b", "c"])
    const second = yield* running([5, 80, 1])
    const bytes = (outcomes: ReadonlyArray<AnyOutcome>) =>
      JSON.stringify([outcomes.map(Outcome.toJson), Turn.toPrompt(calls, outcomes).content])
    assert.strictEqual(bytes(first.outcomes), bytes(second.outcomes))
  }))

describe("9. what was cut can be had in full", () => {
  const sizes = [40_000, 40_000, 2_000_000, 40_000, 200, 40_000]
  const Page = pipe(
    Tool.make("page", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.Unknown }),
    ToolPolicy.read({ keys: () => [] }),
    ToolPolicy.resultBudget({ maxChars: 50_000 })
  )
  const toolkit = Toolkit.make(Page, ArtifactStore.readTool())
  const family = "👩‍👩‍👧‍👦"
  /** So long, with characters that are easily cut in two wherever a page or a mark may end. */
  const textOf = (position: number) =>
    `${position} ${`é${family}"\\ e\u0301 `.repeat(sizes[position]!)}`.slice(0, sizes[position]! - family.length) +
    family
  const rowsOf = (position: number) =>
    Array.from({ length: sizes[position]! / 50 }, (_, row) => ({ row, name: `${family} ${"x".repeat(20)}` }))

  it.effect.each([["texts", textOf], ["lists", rowsOf]] as const)("%s", ([_, of]) =>
    Effect.gen(function*() {
      const calls = sizes.map((_, n) => call(`c${n}`, "page", { n }))
      const outcomes = yield* Turn.run(toolkit, calls, { resultBudget: { maxChars: 100_000 } })
      const shown = outcomes.map((outcome) => JSON.stringify(Outcome.forModel(outcome).value))
      assert.isAtMost(shown.join("").length, 100_000)
      assert.isAtLeast(shown.join("").length, 90_000)
      for (const [position, outcome] of outcomes.entries()) {
        const whole = of(position)
        assert.isTrue(outcome.status === "ok")
        if (position === 4) {
          assert.deepStrictEqual(Outcome.forModel(outcome).value, whole)
          assert.isUndefined(outcome.truncated)
          continue
        }
        assert.isAtMost(shown[position]!.length, 50_000)
        const id = outcome.artifact!
        assert.include(shown[position], `whole: artifact ${id}`)
        let text = ""
        for (let offset: number | undefined = 0; offset !== undefined;) {
          // Many pages a turn: each is its own call.
          const args = { id, offset, length: 4_000 }
          const [page] = yield* Turn.run(toolkit, [call("r", "read_artifact", args)])
          const { next, text: more } = Outcome.forModel(page!).value as { next?: number; text: string }
          assert.isTrue(more.isWellFormed())
          text += more
          offset = next
        }
        assert.isTrue(text === (typeof whole === "string" ? whole : JSON.stringify(whole)), `call ${position}`)
      }
    }).pipe(Effect.provide([
      toolkit.toLayer({ page: ({ n }) => Effect.succeed(of(n)), read_artifact: ArtifactStore.read() }),
      ArtifactStore.layerMemory(),
      Turn.layer()
    ])))
})

it.effect("10. no arguments at all", () =>
  Effect.gen(function*() {
    const Health = read(Tool.make("health", { success: Schema.String }))
    const Open = read(Tool.make("open", { parameters: Schema.Struct({ path: Schema.String }), success: Schema.String }))
    const seen: Array<unknown> = []
    const handler = (params: unknown) => Effect.sync(() => String(seen.push(params)))
    const calls = [
      { id: "a", name: "health" },
      call("b", "health", undefined),
      call("c", "health", null),
      call("d", "health", " \n"),
      call("e", "health", {}),
      { id: "f", name: "open" },
      call("g", "open", null)
    ]
    const { outcomes } = yield* turn(stage([[Health, handler], [Open, handler]]), calls, { dedupe: "off" })
    assert.deepStrictEqual(
      outcomes.map(words),
      [...Array(5).fill("ok"), "error/invalid_arguments", "error/invalid_arguments"]
    )
    assert.include(outcomes[5]!.message, "path")
    assert.deepStrictEqual(outcomes[6]!.message, outcomes[5]!.message)
    assert.strictEqual(seen.length, 5)
    assert.deepStrictEqual(paramsOf(Turn.toPrompt(calls, outcomes)), calls.map(() => ({})))
  }))

it.effect("11. no trace on prototypes", () =>
  Effect.gen(function*() {
    class Odd extends Backend.Service<Odd>()("__proto__") {}
    const setProp = pipe(
      Tool.dynamic("setProp", {
        parameters: {
          type: "object",
          properties: { id: { type: "string" }, v: {} },
          required: ["id"],
          additionalProperties: false
        },
        success: Schema.Unknown
      }),
      ToolPolicy.write({ keys: (params: any) => [params.id, "__proto__"] }),
      ToolPolicy.on(Odd)
    )
    const free = pipe(
      Tool.dynamic("valueOf", { parameters: { type: "object" }, success: Schema.Unknown }),
      ToolPolicy.read({ keys: () => ["constructor"] })
    )
    const seen: Array<any> = []
    const handler = (params: unknown) => Effect.sync(() => (seen.push(params), params))
    const made: Stage = stage(
      [[setProp, handler], [free, handler], [read(tool("constructor")), handler]],
      Layer.merge(Turn.layer(), Odd.layer({ concurrency: 1 })) as Layer.Layer<any>
    )
    const calls = [
      call("d1", "setProp", '{"__proto__":{"admin":true},"id":"a","v":1}'),
      call("d2", "setProp", '{"id":"b","v":{"constructor":{"prototype":{"x":1}}}}'),
      call("d3", "setProp", '{"id":"__proto__","v":2}'),
      call("d4", "setProp", '{"id":"toString","v":{"__proto__":{"admin":true}}}'),
      call("__proto__", "constructor", {}),
      call("constructor", "valueOf", '{"__proto__":{"admin":true}}'),
      call("d6", "toString", {}),
      call("d7", "__proto__", {}),
      call("d8", "hasOwnProperty", {})
    ]
    const { outcomes } = yield* turn(made, calls, { nameRepair: true })
    assert.deepStrictEqual(outcomes.map(words), [
      "error/invalid_arguments",
      "ok",
      "ok",
      "ok",
      "ok",
      "ok",
      "error/unknown_tool",
      "error/unknown_tool",
      "error/unknown_tool"
    ])
    assert.notProperty({}, "admin")
    assert.notProperty({}, "x")
    assert.strictEqual(({} as any).admin, undefined)
    for (const params of seen) assert.isTrue([Object.prototype, null].includes(Object.getPrototypeOf(params)))
    // What the model wrote is there as data.
    assert.deepStrictEqual(Object.keys(seen.find((params) => Object.hasOwn(params, "__proto__"))), ["__proto__"])
    const history = Turn.toPrompt(calls, outcomes)
    assert.strictEqual(answersOf(history).length, calls.length)
    assert.strictEqual(({} as any).admin, undefined)
    // Ids that nobody gave are not found.
    const found = yield* on(
      made,
      Effect.gen(function*() {
        const handle = yield* made.start([call("a", "constructor", {})])
        const found: Array<boolean> = []
        for (const id of ["__proto__", "constructor", "toString", ""]) found.push(yield* handle.cancelCall(id))
        yield* handle.await
        return found
      })
    )
    assert.deepStrictEqual(found, [false, false, false, false])
  }))

it.effect("12. raw text never goes back", () =>
  Effect.gen(function*() {
    const seen: Array<unknown> = []
    const Calc = pipe(
      Tool.make("calc", {
        parameters: Schema.Struct({ n: Schema.optionalKey(Schema.Finite) }),
        success: Schema.Unknown
      }),
      ToolPolicy.write({ keys: ({ n }) => [`n:${n}`] })
    )
    const made = stage([[Calc, (params) => Effect.sync(() => seen.push(params))]])
    const texts = ["[1,2]", '"text"', "42", '{"n":NaN}', '{"n":1e999}', '{"n":7}', '{"n":1,"n":2}', '{"n":2}', '{"n":1']
    const calls = texts.map((text, i) => call(`e${i}`, "calc", text))
    const plan = yield* made.plan(calls)
    const { outcomes } = yield* turn(made, calls)
    assert.deepStrictEqual(outcomes.map(words), [
      ...Array(5).fill("error/invalid_arguments"),
      "ok",
      "ok",
      "ok",
      "error/invalid_arguments"
    ])
    // The repeated member is read in one way everywhere.
    assert.deepStrictEqual(plan.calls[6].keys, ["n:2"])
    assert.deepStrictEqual([plan.calls[7].verdict, plan.calls[7].duplicateOf], ["duplicate", 6])
    assert.deepStrictEqual(seen, [{ n: 7 }, { n: 2 }])
    assert.deepStrictEqual(
      paramsOf(Turn.toPrompt(calls, outcomes)),
      [{}, {}, {}, {}, {}, { n: 7 }, { n: 2 }, { n: 2 }, {}]
    )
  }))

it.effect("13. texts that help the model", () =>
  Effect.gen(function*() {
    const Purge = read(
      Tool.make("purge", {
        parameters: Schema.Struct({ b: Schema.String, deep: Schema.Boolean }),
        success: Schema.Unknown
      })
    )
    const made = stage([[read(tool("read")), ok(10, 1)], [write(tool("write")), ok(10, 1)], [Purge, ok(10, 1)]])
    const { outcomes } = yield* turn(made, [
      call("l1", "read", { n: 1 }),
      call("l2", "raed", { n: 1 }),
      call("l3", " Read", { n: 2 }),
      call("l4", "purge", '{"b":"tmp'),
      call("l5", "write", { k: "{{l1.id}}" }),
      call("l6", "purge", { b: 5, deep: true }),
      call("l7", "add", { n: 1 })
    ], { nameRepair: true })
    assert.deepStrictEqual(outcomes.map(words), [
      "ok",
      "error/unknown_tool",
      "ok",
      "error/invalid_arguments",
      "deferred/placeholder",
      "error/invalid_arguments",
      "error/unknown_tool"
    ])
    const [, raed, repaired, cut, waits, wrong, add] = outcomes.map(({ message }) => message) as Array<string>
    assert.match(raed!, /no tool "raed".*nearest name is read/)
    assert.match(add!, /no tool "add"/)
    for (const name of ["read", "write", "purge"]) assert.include(add!, name)
    for (const text of [raed!, add!]) assert.notMatch(text, /permission|forbidden|allowed|denied/i)
    assert.strictEqual(repaired, "")
    assert.include(outcomes[2], { name: "read", repairedFrom: " Read" })
    // Where the text breaks, and what the schema wants.
    assert.match(cut!, /position 9|column 10/)
    assert.match(cut!, /"?b"?.*string/)
    assert.match(cut!, /"?deep"?.*boolean/)
    assert.match(waits!, /"k".*"\{\{l1\.id\}\}".*the call "l1".*result/)
    assert.match(wrong!, /b: Expected string/)
    // No answer speaks of another call's failure.
    for (const [i, text] of outcomes.map(({ message }) => message).entries()) {
      for (const other of ["raed", "add", "purge"]) {
        if (outcomes[i]!.name !== other && i !== 1 && i !== 6) assert.notInclude(text, other)
      }
    }
  }))

it.effect("14. results do not share memory", () =>
  Effect.gen(function*() {
    const Left = Schema.Struct({ left: Schema.Finite, deep: Schema.Struct({ at: Schema.DateFromString }) })
    const Look = read(Tool.make("look", { parameters: Params, success: Left }))
    const fail = read(
      Tool.make("fail", {
        parameters: Params,
        success: Schema.Unknown,
        failure: Schema.Struct({ left: Schema.Finite })
      })
    )
    const { outcomes } = yield* turn(
      stage([
        [Look, ok(10, { left: 3, deep: { at: new Date(7) } })],
        [fail, () => Effect.fail({ left: 3 })]
      ]),
      [
        call("a", "look", { n: 1 }),
        call("b", "look", { n: 1 }),
        call("a", "look", { n: 1 }),
        call("c", "fail", { n: 1 }),
        call("d", "fail", { n: 1 })
      ]
    )
    const [first, second, third, failed, twin] = outcomes as ReadonlyArray<any>
    assert.deepStrictEqual(outcomes.map(({ duplicateOf }) => duplicateOf?.position), [undefined, 0, 0, undefined, 3])
    first.result.left = 0
    first.encoded.left = 0
    first.result.deep.at.setTime(0)
    for (const other of [second, third]) {
      assert.deepStrictEqual(other.result, { left: 3, deep: { at: new Date(7) } })
      assert.deepStrictEqual(other.encoded, { left: 3, deep: { at: "1970-01-01T00:00:00.007Z" } })
    }
    second.result.left = 1
    assert.strictEqual(third.result.left, 3)
    failed.failure.left = 0
    failed.encoded.left = 0
    assert.deepStrictEqual([twin.failure, twin.encoded], [{ left: 3 }, { left: 3 }])
  }))

describe("15. throws that JSON cannot write", () => {
  const circle: Record<string, unknown> = {}
  circle["self"] = circle
  const thrown: Record<string, () => unknown> = {
    "a symbol": () => Symbol("odd"),
    "an error with an empty message": () => new Error(""),
    "an error whose message getter throws": () =>
      Object.defineProperty(new Error("x"), "message", {
        get() {
          throw new Error("no message for you")
        }
      }),
    "an object that contains itself": () => circle,
    "nothing": () => undefined,
    "null": () => null,
    "an empty text": () => "",
    "a plain object": () => ({}),
    "an object without a prototype": () => Object.create(null),
    "a big integer": () => 10n,
    "an object whose toJSON throws": () => ({
      toJSON() {
        throw new Error("no")
      }
    }),
    "a function": () => () => 1,
    "a proxy that throws": () =>
      new Proxy({}, {
        get() {
          throw new Error("no")
        },
        getPrototypeOf() {
          throw new Error("no")
        }
      })
  }
  for (const [name, make] of Object.entries(thrown)) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const made = stage([
          [read(tool("read")), () => Effect.die(make())],
          [write(tool("write")), () => Effect.andThen(Effect.sleep(5), Effect.die(make()))],
          [
            read(tool("sync")),
            () => {
              throw make()
            }
          ],
          [read(tool("promise")), Handler.promise(() => Promise.reject(make()))],
          [read(tool("other")), ok(1)]
        ])
        const calls = [
          call("a", "read", { n: 1 }),
          call("b", "write", { k: "k" }),
          call("c", "sync"),
          call("d", "promise"),
          call("e", "other")
        ]
        const { outcomes } = yield* turn(made, calls)
        assert.deepStrictEqual(outcomes.map(facts), [
          ["error/defect", true, "none"],
          ["error/defect", true, "unknown"],
          ["error/defect", true, "none"],
          ["error/defect", true, "none"],
          ["ok", true, "none"]
        ])
        for (const { message } of outcomes.slice(0, 4)) {
          const text = message.replace(/^the handler broke: /, "")
          assert.isAbove(text.trim().length, 5)
          assert.notMatch(text, /^undefined\b/)
          assert.notInclude(text, "[object Object]")
        }
        JSON.stringify([outcomes.map(Outcome.toJson), Turn.toPrompt(calls, outcomes).content])
      }))
  }
})

describe("16. more odd results", () => {
  class Money {
    readonly cents = 5
  }
  const odd: Record<string, () => unknown> = {
    "a Date": () => new Date(0),
    "an Error": () => new Error("result"),
    "three bytes": () => new Uint8Array([1, 2, 3]),
    "a Map": () => new Map([["a", 1]]),
    "a function": () => () => 1,
    "an object whose toJSON throws": () => ({
      toJSON() {
        throw new Error("no")
      }
    }),
    "an instance of a class": () => new Money(),
    "a Date inside": () => ({ deep: [{ at: new Date(0) }] }),
    "a Map inside": () => ({ deep: [new Map()] }),
    "a getter that throws": () =>
      Object.defineProperty({}, "x", {
        enumerable: true,
        get() {
          throw new Error("no")
        }
      }),
    "a symbol": () => Symbol("x"),
    "not a number": () => ({ n: NaN }),
    "a list with a hole": () => [1, undefined, 3]
  }
  for (const [name, make] of Object.entries(odd)) {
    it.effect(`${name} is told to be no result, and a write to have been applied`, () =>
      Effect.gen(function*() {
        const made = stage([
          [read(tool("read")), () => Effect.sync(make)],
          [write(tool("write")), () => Effect.sync(make)]
        ])
        const { outcomes } = yield* turn(made, [call("a", "read"), call("b", "write", { k: "k" })])
        assert.deepStrictEqual(outcomes.map(facts), [
          ["error/unencodable_result", true, "none"],
          ["error/unencodable_result", true, "applied"]
        ])
        assert.isFalse(outcomes[1]!.retryable)
        assert.match(outcomes[1]!.message, /took effect/)
        JSON.stringify(outcomes.map(Outcome.forModel))
      }))
  }

  it.effect("a tool that succeeds with nothing is ok, with null for the model", () =>
    Effect.gen(function*() {
      const Notify = write(Tool.make("notify", { parameters: Params }))
      const made = stage([[Notify, () => Effect.void]])
      const calls = [call("a", "notify", { k: "x" }), call("b", "notify", { k: "x" })]
      const { outcomes } = yield* turn(made, calls)
      assert.deepStrictEqual(outcomes.map(facts), [["ok", true, "applied"], ["ok", true, "applied"]])
      assert.deepStrictEqual(outcomes.map((one: any) => [one.result, one.encoded]), [[undefined, null], [
        undefined,
        null
      ]])
      assert.deepStrictEqual(answersOf(Turn.toPrompt(calls, outcomes)).map(({ result }) => result), [null, null])
    }))

  it.effect("what the tool's success schema can encode is encoded", () =>
    Effect.gen(function*() {
      const At = read(Tool.make("at", { success: Schema.DateFromString }))
      const Bytes = read(Tool.make("bytes", { success: Schema.Uint8ArrayFromBase64 }))
      const Wrong = write(Tool.make("wrong", { success: Schema.Struct({ n: Schema.Finite }) }))
      const made = stage([
        [At, ok(1, new Date(0))],
        [Bytes, ok(1, new Uint8Array([1, 2, 3]))],
        [Wrong, ok(1, { n: "one" })]
      ])
      const { outcomes } = yield* turn(made, [call("a", "at"), call("b", "bytes"), call("c", "wrong")])
      assert.deepStrictEqual(
        outcomes.map((outcome) => outcome.status === "ok" ? outcome.encoded : words(outcome)),
        ["1970-01-01T00:00:00.000Z", "AQID", "error/unencodable_result"]
      )
      assert.deepStrictEqual(facts(outcomes[2]), ["error/unencodable_result", true, "applied"])
    }))
})

it.effect("17. shutdown with work left behind", () =>
  inVirtualTime(Effect.gen(function*() {
    const world = yield* FakeTool.makeWorld
    const web = read(tool("web"))
    const scope = yield* Scope.make()
    const left: Array<Turn.Unsettled> = []
    const made = stage(
      [[
        web,
        FakeTool.handler(world, web, [
          { type: "hang", when: { k: "hang" }, ignoresInterrupt: true },
          { type: "ok", latencyMs: 60, result: 1 }
        ])
      ]],
      Turn.layer({ shutdownGrace: 40, onUnsettled: (all) => Effect.sync(() => left.push(...all)) })
    )
    const context = yield* Layer.buildWithScope(made.layer, scope)
    const fiber = yield* Effect.forkChild(
      Effect.provide(
        timed(
          made.run([1, 2, 3, 4, 5].map((n) => call(`l${n}`, "web", n === 1 || n === 3 ? { n } : { n, k: "hang" })), {
            ...byCaller(300, "user"),
            grace: 20
          })
        ),
        context
      )
    )
    yield* Effect.sleep(310)
    const [, closedAt] = yield* timed(Scope.close(scope, Exit.void))
    const [outcomes, at] = yield* Fiber.join(fiber)
    assert.strictEqual(at, 320)
    assert.strictEqual(closedAt, 360)
    assert.deepStrictEqual(outcomes.map(facts), [
      ["ok", true, "none"],
      ["cancelled/by_caller", true, "none"],
      ["ok", true, "none"],
      ["cancelled/by_caller", true, "none"],
      ["cancelled/by_caller", true, "none"]
    ])
    assert.sameDeepMembers(left.map(({ id, position }) => [id, position]), [["l2", 1], ["l4", 3], ["l5", 4]])
    // Nothing new is taken in.
    const exit = yield* Effect.exit(Effect.provide(made.run([call("x", "web", {})]), context))
    assert.isTrue(Exit.isFailure(exit))
    yield* world.release
  })))

it.effect("19. silence and length have clocks of their own", () =>
  Effect.gen(function*() {
    const limits = <T extends Tool.Any>(it: T): T =>
      pipe(read(it), ToolPolicy.timeout(500), ToolPolicy.idleTimeout(100)) as T
    const noting = (times: number, then: Effect.Effect<unknown>) => (_: unknown, { preliminary }: any) =>
      Effect.andThen(
        Effect.forEach(Array(times).keys(), (n) => Effect.andThen(Effect.sleep(60), preliminary({ n })), {
          discard: true
        }),
        then
      )
    const tools = [
      [limits(tool("ends")), noting(5, Effect.succeed("ended"))],
      [limits(tool("goes on")), noting(1000, Effect.never)],
      [limits(tool("silent")), () => Effect.never]
    ] as const
    const calls = [call("a", "ends"), call("b", "goes on"), call("c", "silent")]
    const seen: Record<string, number> = {}
    const { at, events, outcomes } = yield* turn(stage(tools), calls)
    for (const event of events) if (event._tag === "CallEnded") seen[event.id] = event.at
    assert.deepStrictEqual(seen, { a: 300, b: 500, c: 100 })
    assert.strictEqual(at, 500)
    const limit = (outcome: AnyOutcome | undefined) => outcome?.status === "timeout" ? outcome.limit : undefined
    assert.deepStrictEqual(outcomes.map(words), ["ok", "timeout/handler", "timeout/handler"])
    assert.deepStrictEqual(outcomes.map(limit), [
      undefined,
      { clock: "timeout", millis: 500 },
      { clock: "idleTimeout", millis: 100 }
    ])
    assert.match(outcomes[1]!.message, /ran for 500 ms/)
    assert.match(outcomes[2]!.message, /silent for 100 ms/)
    // With no listener attached it is the same.
    const made = stage(tools)
    const [quiet, quietAt] = yield* on(made, timed(made.run(calls)))
    assert.strictEqual(quietAt, at + 500)
    assert.deepStrictEqual(quiet.map(Outcome.toJson), outcomes.map(Outcome.toJson))
  }))

describe("20. each member of shared work keeps its own stop", () => {
  const running = (leaving: ReadonlyArray<readonly [at: number, position: number]>) =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const it = read(tool("read"))
      const made = stage([[it, FakeTool.handler(world, it, { type: "ok", latencyMs: 100, result: { left: 3 } })]])
      const events: Array<TurnEvent.TurnEvent> = []
      const from = yield* Clock.currentTimeMillis
      const [outcomes, until] = yield* on(
        made,
        Effect.gen(function*() {
          const handle = yield* made.start([call("a", "read", { n: 1 }), call("b", "read", { n: 1 })], {
            onEvent: (event) => events.push(event)
          })
          let before = 0
          for (const [at, position] of leaving) {
            yield* Effect.sleep(at - before)
            before = at
            assert.isTrue(yield* handle.cancelCall(position, "its own limit"))
            assert.isFalse(yield* handle.cancelCall(position, "again"))
          }
          return yield* timed(handle.await)
        })
      )
      const ended = events.flatMap((event) => event._tag === "CallEnded" ? [[event.position, event.at - from]] : [])
      const runs = world.runs.map(({ end, endedAt }) => [end, endedAt! - from])
      return { outcomes: outcomes as ReadonlyArray<AnyOutcome>, at: until - from, runs, ended }
    })

  it.effect("the second leaves: the first has its result, from one run", () =>
    Effect.gen(function*() {
      const { at, ended, outcomes, runs } = yield* running([[50, 1]])
      assert.deepStrictEqual(outcomes.map(words), ["ok", "cancelled/by_caller"])
      assert.strictEqual((outcomes[1] as Outcome.Cancelled).reason, "its own limit")
      assert.deepStrictEqual(ended, [[1, 50], [0, 100]])
      assert.strictEqual(at, 100)
      assert.deepStrictEqual(runs, [["ok", 100]])
    }))

  it.effect("the first leaves: the run goes on for the second", () =>
    Effect.gen(function*() {
      const { ended, outcomes, runs } = yield* running([[50, 0]])
      assert.deepStrictEqual(outcomes.map(words), ["cancelled/by_caller", "ok"])
      assert.deepStrictEqual((outcomes[1] as any).result, { left: 3 })
      assert.deepStrictEqual(ended, [[0, 50], [1, 100]])
      assert.strictEqual(runs.length, 1)
    }))

  it.effect("both have left: the run is interrupted at once", () =>
    Effect.gen(function*() {
      for (const order of [[0, 1], [1, 0]] as const) {
        const { at, outcomes, runs } = yield* running([[50, order[0]], [70, order[1]]])
        assert.deepStrictEqual(outcomes.map(words), ["cancelled/by_caller", "cancelled/by_caller"])
        assert.strictEqual(at, 70)
        assert.deepStrictEqual(runs, [["interrupted", 70]])
      }
    }))
})

describe("22. crash and restart from the journal", () => {
  const pay = pipe(
    Tool.make("pay", { parameters: Params, success: Schema.Unknown, failure: Schema.String, needsApproval: true }),
    write
  )
  const look = read(tool("look"))
  const put = pipe(tool("put"), write, ToolPolicy.forward(({ n }) => `put ${n}`))
  const short = write(tool("short"))
  const toolkit = Toolkit.make(pay, look, put, short)
  const calls = [
    call("f1", "pay", { k: "acct" }),
    call("f2", "look", { n: 1 }),
    call("f3", "put", { k: "p", n: 1 }),
    call("s1", "short", { k: "d", n: 1 }),
    call("s2", "short", { k: "d", n: 2 })
  ]

  /** Runs the turn in a process that dies at a moment, and again in a new one; gives the world and what the second run was told. */
  const restarted = (deadAt: number, pause: number) =>
    Effect.gen(function*() {
      const store = yield* FakeStore.make()
      const world = yield* FakeTool.makeWorld
      const asked: Array<string> = []
      const does = (tool: Tool.Any, latencyMs: number, effectAtMs?: number): any =>
        FakeTool.handler(world, tool, { type: "ok", latencyMs, effectAtMs, result: `${tool.name} is done` })
      const layer = Layer.mergeAll(
        toolkit.toLayer({
          pay: does(pay, 50, 20),
          look: does(look, 50),
          put: does(put, 50, 20),
          short: does(short, 5)
        }),
        Turn.layer(),
        Layer.provide(TurnJournal.layer(), store.layer)
      )
      const once = Turn.run(toolkit, calls, {
        turn: "the-turn",
        decide: ({ id }) => {
          asked.push(id)
          return Approval.approve()
        }
      }).pipe(Effect.provide(layer), Effect.provide(TurnContext.make({ tenant: "acme" })))
      const first = yield* Simulation.process(once)
      yield* Effect.sleep(deadAt)
      yield* first.crash
      yield* world.crash
      yield* Effect.sleep(pause)
      const askedBefore = asked.splice(0)
      const second = yield* Simulation.process(once)
      const exit = yield* second.await
      const outcomes = exit !== undefined && Exit.isSuccess(exit) ? exit.value : assert.fail(String(exit))
      const spans = [...world.runs]
        .sort((a, b) => a.startedAt - b.startedAt || a.position - b.position)
        .map((run) => `${run.id} ${run.startedAt}-${run.endedAt} ${run.end}`)
      return { askedBefore, askedAgain: asked, outcomes, spans, world }
    })

  const inSimulation = <A>(program: Effect.Effect<A, unknown>) =>
    Effect.map(
      Simulation.run(program),
      ({ exit, problem }) => exit !== undefined && Exit.isSuccess(exit) ? exit.value : assert.fail(problem)
    )

  it.effect("what is known stays, what is in doubt is told so, and what may be done twice is done again", () =>
    Effect.gen(function*() {
      const { askedAgain, askedBefore, outcomes, spans, world } = yield* inSimulation(restarted(30, 40_000))
      assert.deepStrictEqual(askedBefore, ["f1"])
      // The approval is used up, and no new one is asked for.
      assert.deepStrictEqual(askedAgain, [])
      assert.deepStrictEqual(
        outcomes.map((one) => [one.id, words(one), one.started, one.effect, one.retryable]),
        [
          ["f1", "error/in_doubt", true, "unknown", false],
          ["f2", "ok", true, "none", false],
          ["f3", "ok", true, "applied", false],
          ["s1", "ok", true, "applied", false],
          ["s2", "ok", true, "applied", false]
        ]
      )
      assert.deepStrictEqual(outcomes.slice(3).map((one) => one.status === "ok" && one.encoded), [
        "short is done",
        "short is done"
      ])
      assert.deepStrictEqual(spans, [
        "f1 0-30 crashed",
        "f2 0-30 crashed",
        "f3 0-30 crashed",
        "s1 0-5 ok",
        "s2 5-10 ok",
        "f2 40030-40080 ok",
        "f3 40030-40080 ok"
      ])
      assert.deepStrictEqual(["pay", "put", "short"].map((name) => world.effects(name)), [1, 1, 2])
    }))

  it.effect("starts are journalled before the handler, and each outcome as soon as it is there", () =>
    Effect.gen(function*() {
      for (let deadAt = 0; deadAt <= 60; deadAt++) {
        const { outcomes, world } = yield* inSimulation(restarted(deadAt, 40_000))
        const where = `killed at ${deadAt} ms`
        assert.deepStrictEqual(["pay", "put"].map((name) => world.effects(name) <= 1), [true, true], where)
        assert.isAtMost(world.executions("pay"), 1, where)
        assert.isAtMost(world.effects("short"), 2, where)
        for (const one of outcomes) {
          const own = world.runs.filter((run) => run.id === one.id)
          const landed = own.some((run) => run.effectAt !== undefined)
          assert.isFalse(landed && one.effect === "none", `${where}: ${one.id} is told to have had no effect`)
          assert.isFalse(!landed && one.effect === "applied", `${where}: ${one.id} is told to have been applied`)
        }
        assert.strictEqual(outcomes[1]!.status, "ok", where)
        assert.strictEqual(outcomes[2]!.status, "ok", where)
        // What was over when the process was killed has its recorded outcome.
        const settled = [[50, 0], [5, 3], [10, 4]] as const
        for (const [end, position] of settled) {
          if (deadAt > end) assert.strictEqual(outcomes[position]!.status, "ok", where)
        }
      }
    }))

  it.effect("a process that starts before the leases are over waits for them", () =>
    Effect.gen(function*() {
      const { outcomes, spans } = yield* inSimulation(restarted(30, 0))
      assert.deepStrictEqual(outcomes.map((one) => words(one)), ["error/in_doubt", "ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(spans.slice(0, 5).map((span) => span.slice(0, 2)), ["f1", "f2", "f3", "s1", "s2"])
      for (const span of spans.slice(5)) assert.isAtLeast(Number(/ (\d+)-/.exec(span)![1]), 30_000, span)
    }))
})

it.effect("23. writes that really meet", () =>
  Effect.gen(function*() {
    const files: Record<string, string> = { a: "A=0;B=0;C=0", b: "X=0" }
    const edit = ({ k, n }: { readonly k: string; readonly n: string }) =>
      Effect.gen(function*() {
        const was = files[k]!
        yield* Effect.sleep(30)
        files[k] = was.replace(new RegExp(`${n[0]}=\\d`), n)
        return files[k]
      })
    const look = ({ k }: { readonly k: string }) =>
      Effect.gen(function*() {
        yield* Effect.sleep(15)
        const seen = files[k]
        yield* Effect.sleep(15)
        return seen
      })
    const made = stage([[write(tool("edit")), edit as any], [read(tool("look")), look as any]])
    const began: Record<string, number> = {}
    const first = yield* turn(made, [
      call("g1", "edit", { k: "a", n: "A=1" }),
      call("g2", "edit", { k: "a", n: "B=1" }),
      call("g3", "edit", { k: "b", n: "X=1" }),
      call("g4", "edit", { k: "a", n: "C=1" })
    ])
    for (const event of first.events) if (event._tag === "CallStarted") began[event.id] = event.at
    assert.deepStrictEqual(files, { a: "A=1;B=1;C=1", b: "X=1" })
    assert.deepStrictEqual(began, { g1: 0, g2: 30, g3: 0, g4: 60 })
    assert.strictEqual(first.at, 90)
    const second = yield* turn(made, [
      call("h1", "look", { k: "b" }),
      call("h2", "edit", { k: "b", n: "X=2" }),
      call("h3", "look", { k: "b" })
    ])
    assert.deepStrictEqual(second.outcomes.map((outcome: any) => outcome.result), ["X=1", "X=2", "X=2"])
    assert.isAbove(yield* Clock.currentTimeMillis, 0)
  }))
