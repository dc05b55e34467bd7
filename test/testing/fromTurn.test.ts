import { assert, describe, it } from "@effect/vitest"
import {
  Backend,
  IdempotencyStore,
  Siblings,
  type ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnEvent,
  TurnStore
} from "effect-turn"
import { FakeTool, Scenario, Simulation } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

class Narrow extends Backend.Service<Narrow>()("test/Narrow") {}
class Wide extends Backend.Service<Wide>()("test/Wide") {}

/** Numbers from 0 to below 1 that a seed fixes (mulberry32). */
const dice = (seed: number) => {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** A turn of fake tools that has run in virtual time, and all that is known of it. */
const recordedTurn = (seed: number): Effect.Effect<Scenario.RecordedTurn> =>
  Effect.gen(function*() {
    const random = dice(seed)
    const below = (n: number) => Math.floor(random() * n)
    const pick = <A>(list: ReadonlyArray<A>): A => list[below(list.length)]!
    const perhaps = <A>(chance: number, make: () => A) => (random() < chance ? make() : undefined)
    const list = <A>(length: number, make: (index: number) => A) => Array.from({ length }, (_, index) => make(index))

    const world = yield* FakeTool.makeWorld
    const Failure = Schema.Struct({ why: Schema.String, sure: Schema.Boolean, again: Schema.Boolean })
    const keys = [
      () => [],
      ({ k }: { k: number }) => [`k:${k}`],
      ({ k }: { k: number }) => [`f:/a/${k}`],
      () => ["f:/a"],
      ({ k, n }: { k: number; n?: number }) => n === undefined ? [`k:${k}`] : [`k:${k}`, `n:${k}-${n}`]
    ]
    const behaviour = (): FakeTool.Behaviour<unknown, typeof Failure.Type> => ({
      ...pick<FakeTool.Behaviour<unknown, typeof Failure.Type>>([
        { type: "ok", result: { n: below(100) } },
        { type: "ok", result: "done" },
        { type: "ok", result: null },
        { type: "fail", failure: { why: "no room", sure: random() < 0.5, again: random() < 0.5 } },
        { type: "throw", thrown: new Error("broken") },
        { type: "selfInterrupt" },
        { type: "hang" },
        { type: "ok", result: BigInt(1) }
      ]),
      latencyMs: below(50),
      ignoresInterrupt: random() < 0.2
    })
    const tools = list(2 + below(4), (index) => {
      let tool: Tool.Any = Tool.make(`t${index}`, {
        parameters: Schema.Struct({ k: Schema.Finite, n: Schema.optionalKey(Schema.Finite) }),
        success: Schema.Unknown,
        failure: Failure,
        needsApproval: random() < 0.08
      })
      const policies: Array<((tool: Tool.Any) => Tool.Any) | undefined> = [
        pick([ToolPolicy.read, ToolPolicy.write])({ keys: perhaps(0.8, () => pick(keys)) as any }),
        perhaps(0.5, () => ToolPolicy.timeout(pick([10, 20, 40]))),
        perhaps(0.2, () => ToolPolicy.waitTimeout(pick([10, 30]))),
        perhaps(0.4, () => ToolPolicy.forward<Tool.Any>(({ k }: any) => `key ${k}`)),
        perhaps(0.1, () => ToolPolicy.repeatable),
        perhaps(0.8, () =>
          ToolPolicy.failures<Tool.Any>({ noEffect: (one: any) => one.sure, transient: (one: any) => one.again })),
        perhaps(0.4, () => (tool: Tool.Any) =>
          ToolPolicy.on(pick<any>([Narrow, Wide]))(tool as any) as Tool.Any)
      ]
      for (const policy of policies) if (policy !== undefined) tool = policy(tool)
      return tool
    })
    const toolkit = Toolkit.make(...tools)
    const handlers = Object.fromEntries(
      tools.map((tool) => [tool.name, FakeTool.handler(world, tool, list(1 + below(3), behaviour) as any)])
    )
    const backends = { [Narrow.key]: { concurrency: 1 }, [Wide.key]: { concurrency: 2, queueLimit: below(3) } }
    const calls: ReadonlyArray<ToolCall.ToolCall> = list(1 + below(7), (index) => {
      const args = { k: below(3), ...perhaps(0.3, () => ({ n: below(2) })) }
      return {
        id: random() < 0.1 ? "" : `c${index}`,
        name: random() < 0.04 ? "nobody" : pick(tools).name,
        arguments: random() < 0.05
          ? pick<unknown>(["{", { k: "many" }, [1], undefined])
          : random() < 0.3
          ? JSON.stringify(args)
          : args
      }
    })
    const events: Array<TurnEvent.TurnEvent> = []
    const grace = perhaps(0.5, () => pick<Turn.Options["grace"]>([0, 15, "infinite", { reads: 10, writes: 20 }]))
    const options: Turn.Options = {
      siblings: pick([Siblings.letFinish, Siblings.failFast]),
      execution: pick(["parallel", "parallel", "sequential", 2]),
      dedupe: pick(["all", "reads", "off"]),
      finishReason: random() < 0.03 ? "length" : "tool-calls",
      deadline: perhaps(0.3, () => 20 + below(60)),
      grace
    }
    const stopAt = perhaps(0.3, () => 1 + below(60))
    const callAt = perhaps(0.3, () => [1 + below(40), below(calls.length)] as const)
    const program = Effect.scoped(Effect.gen(function*() {
      const handle = yield* Turn.start(toolkit as any, calls, { ...options, onEvent: (event) => events.push(event) })
      if (stopAt !== undefined) yield* Effect.forkChild(Effect.andThen(Effect.sleep(stopAt), handle.cancel("user")))
      if (callAt !== undefined) {
        yield* Effect.forkChild(Effect.andThen(Effect.sleep(callAt[0]), handle.cancelCall(callAt[1])))
      }
      // What nothing else ends is ended here.
      yield* Effect.forkChild(Effect.andThen(Effect.sleep(500), Effect.andThen(handle.cancel("late"), world.release)))
      yield* Effect.forkChild(Effect.andThen(Effect.sleep(600), world.release))
      const outcomes = yield* handle.await
      yield* world.release
      return outcomes
    })).pipe(
      Effect.provide([
        Layer.mergeAll(
          toolkit.toLayer(handlers as any),
          Turn.layer(),
          Narrow.layer(backends[Narrow.key]!),
          Wide.layer(backends[Wide.key] as any)
        )
      ]),
      Effect.provide(TurnContext.make({ tenant: "north" }))
    )
    const { exit } = yield* Simulation.run(program as Effect.Effect<any>)
    assert.isTrue(exit !== undefined && Exit.isSuccess(exit), String(exit))
    const outcomes = (exit as Exit.Success<any>).value
    return { toolkit, calls, events, outcomes, options, tenant: "north", backends }
  })

describe("Scenario.fromTurn", () => {
  const seeds = 400

  it.effect("gives of any turn a scenario that passes, and that its text gives again", () =>
    Effect.gen(function*() {
      const broken: Array<string> = []
      let exact = 0
      const statuses = new Set<string>()
      for (let seed = 0; seed < seeds; seed++) {
        const recorded = yield* recordedTurn(seed)
        const { notes, scenario } = yield* Scenario.fromTurn(recorded, { name: `turn-${seed}` })
        const again = yield* Scenario.decode(JSON.parse(JSON.stringify(scenario)))
        assert.deepStrictEqual(again, scenario)
        const report = yield* Scenario.run(again)
        if (!report.pass) broken.push(`${seed}: ${report.failures.join("; ")} (${notes.join("; ")})`)
        for (const outcome of recorded.outcomes) statuses.add("code" in outcome ? outcome.code : outcome.status)
        const lost = notes.filter((note) => note.includes("not expected") || note.includes("starts at"))
        if (lost.length === 0) exact++
      }
      assert.deepStrictEqual(broken, [])
      // What falls on one moment may come in another order, and some things the format cannot say: then it was noted.
      assert.isAbove(exact, seeds * 0.95)
      // The seeds are worth something only if they reach what a scenario has to say.
      const reached = [
        "ok",
        "failed",
        "defect",
        "by_caller",
        "by_sibling",
        "by_deadline",
        "by_itself",
        "handler",
        "queue"
      ]
      assert.deepStrictEqual(reached.filter((status) => !statuses.has(status)), [])
    }), 120_000)
})

describe("a scenario of a recorded turn", () => {
  const Hotel = Schema.Struct({ hotel: Schema.String, nights: Schema.optionalKey(Schema.Finite) })
  const Look = pipe(
    Tool.make("look", { parameters: Hotel, success: Schema.String }),
    ToolPolicy.read({ keys: ({ hotel }) => [`hotel:${hotel}`] })
  )
  const Book = pipe(
    Tool.make("book", { parameters: Hotel, success: Schema.Struct({ code: Schema.String }) }),
    ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel}`, "bookings"] }),
    ToolPolicy.timeout("1 minute"),
    ToolPolicy.on(Narrow)
  )

  /** Runs calls on fake tools in virtual time. */
  const recorded = (
    tools: ReadonlyArray<Tool.Any>,
    script: Record<string, FakeTool.Behaviour | ReadonlyArray<FakeTool.Behaviour>>,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options: Turn.Options = {}
  ): Effect.Effect<Scenario.RecordedTurn> =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const toolkit = Toolkit.make(...tools)
      const handlers = Object.fromEntries(
        tools.map((tool) => [tool.name, FakeTool.handler(world, tool, script[tool.name]! as any)])
      )
      const events: Array<TurnEvent.TurnEvent> = []
      const program = Turn.run(toolkit as any, calls, { ...options, onEvent: (event) => events.push(event) }).pipe(
        Effect.provide([toolkit.toLayer(handlers as any), Turn.layer(), Narrow.layer({ concurrency: 1 })])
      )
      const { exit } = yield* Simulation.run(program as Effect.Effect<any>)
      assert.isTrue(exit !== undefined && Exit.isSuccess(exit), String(exit))
      return { toolkit, calls, events, outcomes: (exit as Exit.Success<any>).value, options }
    })

  const three = [
    { id: "a", name: "look", arguments: { hotel: "Tejo" } },
    { id: "b", name: "book", arguments: '{"hotel": "Tejo", "nights": 2}' },
    { id: "c", name: "book", arguments: { hotel: "Alfama" } }
  ]
  const script = {
    look: { type: "ok", result: "free", latencyMs: 20 },
    book: [{ type: "ok", result: { code: "X1" }, latencyMs: 30 }, { type: "throw", thrown: "gone", latencyMs: 5 }]
  } satisfies Parameters<typeof recorded>[1]

  it.effect("has the policies as data, what each call came to, and what is expected of it", () =>
    Effect.gen(function*() {
      const turn = yield* recorded([Look, Book], script, three, { siblings: Siblings.failFast, deadline: "3 seconds" })
      const { notes, scenario } = yield* Scenario.fromTurn(turn, { name: "two-bookings", why: "Because." })
      assert.deepStrictEqual(notes, [])
      const { book, look } = scenario.tools
      assert.deepStrictEqual(look!.keys, ["hotel:{hotel}"])
      assert.deepStrictEqual(book, {
        access: "write",
        keys: ["hotel:{hotel}", "bookings"],
        backend: Narrow.key,
        parameters: Tool.getJsonSchema(Book) as Record<string, unknown>,
        timeoutMs: 60_000,
        queueTimeoutMs: 60_000,
        behaviour: [
          { type: "ok", latencyMs: 30, result: { code: "X1" }, when: { hotel: "Tejo", nights: 2 } },
          { type: "throw", latencyMs: 5, thrown: "gone", when: { hotel: "Alfama" } }
        ]
      })
      assert.deepStrictEqual(scenario.policy, { siblings: "failFast", deadlineMs: 3000 })
      assert.deepStrictEqual(scenario.turns, [{ calls: three }])
      assert.deepStrictEqual(scenario.expect.executions, { look: 1, book: 2 })
      assert.deepStrictEqual(scenario.expect.outcomes![0]!.map((one) => one.status), ["ok", "ok", "error"])
      const report = yield* Scenario.run(scenario)
      assert.deepStrictEqual([report.failures, report.elapsedMs], [[], 55])
    }))

  it.effect("has keys of arguments that may be missing, or that are lists, where no two calls meet by them", () =>
    Effect.gen(function*() {
      const List = pipe(
        Tool.make("list", {
          parameters: Schema.Struct({ ids: Schema.Array(Schema.String), note: Schema.optionalKey(Schema.String) }),
          success: Schema.String
        }),
        ToolPolicy.write({
          keys: ({ ids, note }) => [...ids.map((id) => `item:${id}`), ...(note === undefined ? [] : [`note:${note}`])]
        })
      )
      const keysOf = (...calls: ReadonlyArray<object>) =>
        recorded(
          [List],
          { list: { type: "ok", result: "done" } },
          calls.map((args, i) => ({ id: `c${i}`, name: "list", arguments: args }))
        ).pipe(
          Effect.flatMap((turn) => Scenario.fromTurn(turn, { name: "list" })),
          Effect.map(({ notes, scenario }) => [scenario.tools["list"]!.keys, notes.length])
        )
      assert.deepStrictEqual(yield* keysOf({ ids: ["a", "b"] }, { ids: ["c", "d"] }), [
        ["item:{ids.0}", "item:{ids.1}"],
        0
      ])
      assert.deepStrictEqual(yield* keysOf({ ids: ["a", "b"] }, { ids: ["c"] }), [["item:{ids.0}", "item:{ids.1}"], 0])
      assert.deepStrictEqual(yield* keysOf({ ids: ["a"], note: "n" }, { ids: ["a"] }), [
        ["item:{ids.0}", "note:{note}"],
        0
      ])
      // Two short ones would meet in the key of what both of them lack.
      const apart = yield* keysOf({ ids: ["a", "b"] }, { ids: ["c"] }, { ids: ["d"] })
      assert.deepStrictEqual(apart, [["item:a", "item:b", "item:c", "item:d"], 1])
    }))

  it.effect("hides what tools gave, when it is told to", () =>
    Effect.gen(function*() {
      const turn = yield* recorded([Look, Book], script, three)
      const { scenario } = yield* Scenario.fromTurn(turn, { name: "hidden", redact: true })
      const text = JSON.stringify(scenario)
      for (const secret of ["free", "X1", "gone"]) assert.notInclude(text, secret)
      assert.include(text, '"result":"redacted"')
      assert.isTrue((yield* Scenario.run(scenario)).pass)
    }))

  it.effect("is stopped when the turn was", () =>
    Effect.gen(function*() {
      const turn = yield* recorded(
        [Look, Book],
        { look: { type: "hang" }, book: { type: "ok", result: { code: "X1" }, latencyMs: 30 } },
        [...three, { id: "d", name: "look", arguments: { hotel: "Chiado" } }],
        { cancelOn: Effect.as(Effect.sleep(10), "user") }
      )
      const { notes, scenario } = yield* Scenario.fromTurn(turn, { name: "stopped" })
      assert.deepStrictEqual([notes, scenario.turns[0]!.events], [[], [{ type: "cancelTurn", atMs: 10 }]])
      assert.deepStrictEqual(
        (yield* Scenario.run(scenario)).outcomes![0]!.map(({ code, started }) => [code, started]),
        turn.outcomes.map((one) => ["code" in one ? one.code : undefined, one.started])
      )
    }))

  it.effect("says what it could not express, and still passes", () =>
    Effect.gen(function*() {
      const Odd = pipe(
        Tool.make("odd", { parameters: Hotel, success: Schema.String }),
        ToolPolicy.write({ keys: ({ hotel }) => [`hotel:${hotel.toLowerCase()}`] }),
        ToolPolicy.forward((_, { position }) => `key-${position * 7 + 13}`),
        ToolPolicy.idleTimeout("5 seconds"),
        ToolPolicy.on(Narrow)
      )
      const turn = yield* recorded(
        [Odd],
        { odd: { type: "ok", result: "done", latencyMs: 10 } },
        ["Tejo", "Alfama", "Chiado"].map((hotel, i) => ({ id: `c${i}`, name: "odd", arguments: { hotel } })),
        { siblings: Siblings.quorum(9), unit: () => "one" }
      )
      const { notes, scenario } = yield* Scenario.fromTurn(turn, { name: "odd" })
      const all = notes.join("\n")
      for (
        const expected of [
          "the turn's policy for siblings, quorum, is not in the format",
          "the turn's units are not in the format",
          "tool odd: its idleTimeout is not in the format",
          "tool odd: its keys are no templates over its arguments: in the scenario each of its calls touches all of hotel:tejo, hotel:alfama, hotel:chiado",
          "tool odd: its idempotency key is no template over its arguments",
          `backend ${Narrow.key}: its limits are not given`
        ]
      ) assert.include(all, expected)
      assert.deepStrictEqual(scenario.backends, { [Narrow.key]: { concurrency: 1 } })
      assert.isTrue((yield* Scenario.run(scenario)).pass)
    }))

  it.effect("has one run for a call that was tried again, and says that there were more; a record stays one", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const parameters = Schema.Struct({ k: Schema.String })
      const Pay = pipe(
        Tool.make("pay", { parameters, success: Schema.String, failure: Schema.String }),
        ToolPolicy.write({ keys: ({ k }) => [k] }),
        IdempotencyStore.record(({ k }) => `pay ${k}`),
        ToolPolicy.failures({ noEffect: () => true }),
        ToolPolicy.retry({ times: 1, schedule: Schedule.spaced(5), jitter: false })
      )
      const toolkit = Toolkit.make(Pay)
      const pay = FakeTool.handler(world, Pay, [
        { type: "fail", latencyMs: 10, failure: "busy" },
        { type: "ok", latencyMs: 20, result: "paid" }
      ])
      const events: Array<TurnEvent.TurnEvent> = []
      const calls = [{ id: "a", name: "pay", arguments: { k: "x" } }]
      const program = Turn.run(toolkit, calls, { onEvent: (event) => events.push(event) }).pipe(
        Effect.provide(Layer.mergeAll(
          toolkit.toLayer({ pay }),
          Turn.layer(),
          Layer.provide(IdempotencyStore.layer({ digest: "text" }), TurnStore.layerMemory)
        )),
        Effect.provide(TurnContext.make({ tenant: "default" }))
      )
      const { exit } = yield* Simulation.run(program)
      const outcomes = exit !== undefined && Exit.isSuccess(exit) ? exit.value : assert.fail(String(exit))
      const { notes, scenario } = yield* Scenario.fromTurn({ toolkit, calls, events, outcomes }, { name: "paid-again" })
      const tool = scenario.tools["pay"]!
      assert.deepStrictEqual([tool.idempotency, tool.idempotencyKey], ["record", "pay {k}"])
      assert.deepInclude(tool.behaviour, { type: "ok", latencyMs: 35 })
      assert.isTrue((yield* Scenario.run(scenario)).pass)
      assert.isTrue(notes.some((note) => /tool pay: it was started 2 times/.test(note)), notes.join("\n"))
    }))

  it.effect("says what a stop of a call that has no id of its own is not", () =>
    Effect.gen(function*() {
      const turn = yield* recorded([Look], { look: { type: "selfInterrupt", latencyMs: 7 } }, [
        { id: "", name: "look", arguments: { hotel: "Tejo" } }
      ])
      const [outcome] = turn.outcomes
      const byCaller = { ...outcome!, code: "by_caller" } as (typeof turn.outcomes)[number]
      const events = turn.events.map((event) => event._tag === "CallEnded" ? { ...event, outcome: byCaller } : event)
      const { notes, scenario } = yield* Scenario.fromTurn({ ...turn, events, outcomes: [byCaller] }, { name: "alone" })
      assert.match(notes.join("\n"), /call 0: it was stopped alone, .* which is "" and not its own/)
      assert.isTrue((yield* Scenario.run(scenario)).pass)
    }))

  it.effect("refuses what is no turn, and a name that is none", () =>
    Effect.gen(function*() {
      const turn = yield* recorded([Look, Book], script, three)
      const short = yield* Effect.flip(Scenario.fromTurn({ ...turn, outcomes: [] }, { name: "short" }))
      assert.deepStrictEqual(short.problems, ["outcomes: expected one for each of 3 calls, got 0"])
      const { problems } = yield* Effect.flip(Scenario.fromTurn(turn, { name: "No Name" }))
      assert.match(problems.join(), /^name: expected a string matching/)
      const { scenario } = yield* Scenario.fromTurn(turn, { name: "by-default" })
      assert.match(scenario.why, /Replace this sentence/)
    }))

  it.effect("is there for calls of no tool at all, and for no calls", () =>
    Effect.gen(function*() {
      for (const calls of [[], [{ id: "a", name: "nobody", arguments: [1] }]]) {
        const turn = yield* recorded([Look], { look: { type: "hang" } }, calls)
        const { notes, scenario } = yield* Scenario.fromTurn(turn, { name: "nobody" })
        assert.deepStrictEqual(notes, [])
        assert.isTrue((yield* Scenario.run(scenario)).pass)
      }
    }))
})
