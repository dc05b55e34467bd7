/** The laws on real turns of real tools: they hold, each has something to judge, and each sees what breaks it. */
import { assert, describe, it } from "@effect/vitest"
import { Backend, Handler, IdempotencyStore, ToolCall, ToolPolicy, Turn, TurnStore } from "effect-turn"
import { FakeStore, type FakeTool, Laws, Simulation, TurnCase } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

class Hotels extends Backend.Service<Hotels>()("test/Hotels") {}
class Crm extends Backend.TenantService<Crm>()("test/LawsCrm") {}

const Hotel = Schema.Struct({ hotel: Schema.String })
const keys = ({ hotel }: typeof Hotel.Type) => [`hotel:${hotel}`]
const parts = { parameters: Hotel, success: Schema.String, failure: Schema.String }

const Look = pipe(Tool.make("look", parts), ToolPolicy.read({ keys }), ToolPolicy.on(Hotels))
const Book = pipe(Tool.make("book", parts), ToolPolicy.write({ keys }), ToolPolicy.on(Crm))
/** Its backend honours the key of a booking. */
const Pay = pipe(
  Tool.make("pay", parts),
  ToolPolicy.write({ keys }),
  ToolPolicy.forward(({ hotel }) => hotel),
  ToolPolicy.timeout(20)
)
const Shell = Tool.make("shell", { parameters: Schema.Struct({ line: Schema.String }), success: Schema.String })
/** Ends with its time, or by a stop. */
const Hang = pipe(Tool.make("hang", parts), ToolPolicy.read({ keys: () => [] }), ToolPolicy.timeout(30))
/** A promise that hears no signal. */
const Deaf = pipe(Tool.make("deaf", parts), ToolPolicy.read({ keys }), ToolPolicy.timeout(10))
/** Asks for a human, and the question takes time. */
const Ask = pipe(
  Tool.make("ask", { ...parts, needsApproval: ({ hotel }) => Effect.as(Effect.sleep(5), hotel === "b") }),
  ToolPolicy.write({ keys })
)
/** Runs a turn of its own, under the limits that it is under itself. */
const Agent = pipe(Tool.make("agent", parts), ToolPolicy.write({ keys }), ToolPolicy.on(Hotels))

const inner = Toolkit.make(Look, Book)
const kit = Toolkit.make(Look, Book, Pay, Shell, Hang, Deaf, Ask, Agent)

const inTime = <A>(millis: number, value: A) =>
  Effect.contextWith((context) =>
    Effect.promise(() => Effect.runPromiseWith(context)(Effect.as(Effect.sleep(millis), value)))
  )

const look = ({ hotel }: typeof Hotel.Type) => Effect.as(Effect.sleep(10), hotel)
const book = ({ hotel }: typeof Hotel.Type) =>
  Effect.andThen(Effect.sleep(15), hotel === "b" ? Effect.fail("full") : Effect.succeed(hotel))

const handlers: Layer.Layer<any, never, Hotels | Crm> = (kit.toLayer as (build: unknown) => any)(
  Effect.gen(function*() {
    const services = yield* Effect.context<Hotels | Crm>()
    const own = Layer.merge(inner.toLayer({ look, book }), Layer.succeedContext(services))
    return {
      look,
      book,
      pay: Handler.promise(({ hotel }: typeof Hotel.Type) => Promise.resolve(hotel)),
      shell: ({ line }: { readonly line: string }) =>
        Effect.andThen(Effect.sleep(5), line === "c" ? Effect.die(new Error("broke")) : Effect.succeed(line)),
      hang: () => Effect.never,
      deaf: () => Effect.uninterruptible(inTime(25, "late")),
      ask: ({ hotel }: typeof Hotel.Type) => Effect.succeed(hotel),
      agent: ({ hotel }: typeof Hotel.Type) =>
        Turn.run(inner, [ToolCall.make("i0", "look", { hotel }), ToolCall.make("i1", "book", { hotel })]).pipe(
          Effect.map((outcomes) => outcomes.map(({ status }) => status).join(" ")),
          Effect.provide(own),
          Effect.orDie
        )
    }
  })
)

const backends = Layer.merge(Hotels.layer({ concurrency: 2 }), Crm.layer({ concurrency: 2, perTenant: 1 }))
const layer = Layer.provideMerge(handlers, backends)

/** Our own record guards it; it is tried again after a failure that says it did nothing. */
const Send = pipe(
  Tool.make("send", parts),
  ToolPolicy.write({ keys }),
  IdempotencyStore.record(({ hotel }) => hotel),
  ToolPolicy.failures({ noEffect: (failure) => failure === "busy", transient: () => true }),
  ToolPolicy.retry({ times: 2, schedule: Schedule.spaced(5), jitter: false })
)

/** What the backend of `order` knows. */
class Orders extends Context.Service<Orders, Map<string, string>>()("test/Orders") {}

/** It can be asked what became of it. */
const Order = pipe(
  Tool.make("order", parts),
  ToolPolicy.write({ keys }),
  IdempotencyStore.verify({
    key: ({ hotel }) => hotel,
    ask: (_, key) =>
      Effect.gen(function*() {
        const orders = yield* Orders
        yield* Effect.sleep(2)
        const known = orders.get(key)
        return known === undefined ? IdempotencyStore.notApplied : IdempotencyStore.applied(known)
      })
  }),
  ToolPolicy.timeout(20),
  ToolPolicy.retry({ times: 1, schedule: Schedule.spaced(5), jitter: false })
)

const keyed = Toolkit.make(Send, Order, Pay, Look)
const keyedHandlers: Layer.Layer<any, never, Orders> = (keyed.toLayer as (build: unknown) => any)(
  Effect.gen(function*() {
    const orders = yield* Orders
    let sent = 0
    return {
      look,
      pay: ({ hotel }: typeof Hotel.Type) => Effect.as(Effect.sleep(12), hotel),
      send: ({ hotel }: typeof Hotel.Type) =>
        Effect.andThen(
          Effect.sleep(8),
          Effect.suspend(() =>
            hotel === "a" && sent++ % 2 === 0
              ? Effect.fail("busy")
              : hotel === "c"
              ? Effect.fail("lost")
              : Effect.succeed(hotel)
          )
        ),
      order: ({ hotel }: typeof Hotel.Type) =>
        Effect.sleep(6).pipe(
          Effect.andThen(Effect.sync(() => orders.set(hotel, `order of ${hotel}`))),
          Effect.andThen(Effect.sleep(hotel === "b" ? 30 : 6)),
          Effect.andThen(hotel === "c" ? Effect.fail("lost") : Effect.succeed(`order of ${hotel}`))
        )
    }
  })
)

/** A store that takes its time. */
const slowStore = Layer.provide(
  IdempotencyStore.layer({ digest: "text" }),
  Layer.unwrap(Effect.map(FakeStore.make({ behaviour: { latency: 4, doneAt: 2 } }), (store) => store.layer))
)
const keyedLayer = Layer.mergeAll(
  Layer.provideMerge(keyedHandlers, Layer.sync(Orders, () => new Map())),
  slowStore,
  backends
)

describe("a suite over writes with keys, on a store that takes its time", () => {
  Laws.suite(it, {
    toolkit: keyed,
    layer: keyedLayer,
    inputs: 300,
    seeds: 5,
    seed: Number(process.env["EFFECT_TURN_SEED"] ?? 1)
  })
})

it.live("R23: a store that forgets what is in doubt is found out", () =>
  Effect.gen(function*() {
    const forgets = Layer.unwrap(
      Effect.gen(function*() {
        const rows = yield* TurnStore.TurnStore
        return Layer.succeed(TurnStore.TurnStore, {
          ...rows,
          change: (kind, id, expected, patch) =>
            rows.change(kind, id, expected, patch?.state === "unknown" ? undefined : patch)
        })
      }).pipe(Effect.provide(Layer.fresh(TurnStore.layerMemory)))
    )
    const layer = Layer.mergeAll(
      Layer.provideMerge(keyedHandlers, Layer.sync(Orders, () => new Map())),
      Layer.provide(IdempotencyStore.layer({ digest: "text" }), forgets),
      backends
    )
    const falsified = yield* Effect.flip(Simulation.forAll(
      TurnCase.arbitrary(keyed, { oddities: false, arguments: { send: Arbitrary.Constant({ hotel: "c" }) } }),
      (turnCase) => Effect.flatMap(TurnCase.run(keyed, layer, turnCase), (seen) => Laws.check(seen, [Laws.onceAKey])),
      { inputs: 300, seeds: 1, show: TurnCase.show }
    ))
    assert.match(
      falsified.problem,
      /R23: "c\d" \(send\) of turn \d ran, and whether .* had had its effect was not known/
    )
  }))

describe("a suite over tools of all kinds", () => {
  Laws.suite(it, { toolkit: kit, layer, inputs: 300, seeds: 5, seed: Number(process.env["EFFECT_TURN_SEED"] ?? 1) })
})

/** What is seen of one turn of some calls, each with 10 ms before its own work. */
const seen = (
  calls: ReadonlyArray<readonly [name: string, args: object]>,
  turn: Partial<TurnCase.CaseTurn> = {}
): Effect.Effect<Laws.Observation> =>
  Effect.gen(function*() {
    const run = yield* Simulation.run(TurnCase.run(kit, layer, {
      turns: [{
        calls: calls.map(([name, args], i) => ({ call: ToolCall.make(`c${i}`, name, args), before: 10, after: 0 })),
        tenant: "north",
        at: 0,
        siblings: "letFinish",
        execution: "parallel",
        dedupe: "all",
        ...turn
      }]
    }))
    assert.isUndefined(run.problem)
    return (run.exit as Exit.Success<Laws.Observation>).value
  })

const a = { hotel: "a" }
const b = { hotel: "b" }

type Turn0 = Laws.ObservedTurn

/** The same observation with its turn changed. */
const changed = (o: Laws.Observation, change: (turn: Turn0) => Partial<Turn0>): Laws.Observation => ({
  ...o,
  turns: o.turns.map((turn) => ({ ...turn, ...change(turn) }))
})

const run = (o: Laws.Observation, position: number) => o.runs.find((one) => one.position === position)!

/** The same observation with one of its runs changed. */
const with_ = (o: Laws.Observation, position: number, change: Partial<FakeTool.Run>): Laws.Observation => ({
  ...o,
  runs: o.runs.map((one) => (one.position === position ? { ...one, ...change } : one))
})

describe("each law", () => {
  it.effect("judges something, and finds nothing wrong, in a turn that keeps it", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a], ["book", a], ["look", b], ["hang", a], ["pay", { hotel: "c" }]], {
        stop: { kind: "cancel", at: 25 }
      })
      // Those of requests have a file of their own.
      const ofRequests = new Set([
        Laws.requestsApart,
        Laws.requestsSized,
        Laws.requestsFew,
        Laws.requestsWanted,
        Laws.ownItems
      ])
      for (const law of Laws.all) {
        const { judged, problems } = law.judge(o)
        assert.deepStrictEqual(problems, [], law.name)
        if (ofRequests.has(law)) assert.strictEqual(judged, 0, law.name)
        else assert.isAbove(judged, 0, law.name)
      }
      assert.deepStrictEqual(Laws.broken(o), [])
      yield* Laws.check(o)
    }))

  it.effect("R1: sees a second answer, a lost event, and an answer that changed later", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a], ["look", b]])
      const twice = changed(o, (turn) => ({ events: [...turn.events!, turn.events!.find(ended)!] }))
      assert.deepStrictEqual(Laws.broken(twice), [
        'R1: turn 0, call 0 ("c0"): expected one event of its end, got 2'
      ])
      const lost = changed(o, (turn) => ({ events: turn.events!.filter((one) => !ended(one)) }))
      assert.strictEqual(Laws.broken(lost, [Laws.answeredOnce]).length, 2)
      const later = changed(o, (turn) => ({ lateAnswers: [turn.answers![1]!, turn.answers![1]!] }))
      assert.match(Laws.broken(later).join(), /^R1: turn 0, when all was over, call 0: expected the one answer/)
    }))

  it.effect("R4: sees a closing that is told twice, never, or otherwise", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a]])
      const told = (told: Turn0["told"]) => Laws.broken(changed(o, () => ({ told })))
      const { answers } = o.turns[0]!
      assert.deepStrictEqual(told([answers!]), [])
      assert.deepStrictEqual(told([]), [
        "R4: turn-0: expected to be told once that it has closed, and was told 0 times"
      ])
      assert.deepStrictEqual(told([answers!, answers!]), [
        "R4: turn-0: expected to be told once that it has closed, and was told 2 times"
      ])
      assert.match(
        told([[{ ...answers![0]!, outcome: { ...answers![0]!.outcome, id: "x" } }]]).join(),
        /^R4: turn 0, as its closing was told, call 0/
      )
    }))

  it.effect("R12: sees two that conflict overlap, and two that run the wrong way round", () =>
    Effect.gen(function*() {
      const o = yield* seen([["book", a], ["pay", a]])
      const first = run(o, 0)
      const second = run(o, 1)
      const overlap = with_(o, 1, { began: first.began + 0.5, startedAt: first.startedAt })
      assert.match(
        Laws.broken(overlap, [Laws.noOverlap]).join(),
        /^R12: "c0" \(book\) of turn 0 and "c1" \(pay\) of turn 0 conflict on "hotel:a", and ran at the same time from 0 ms$/
      )
      const swapped = { ...o, runs: [{ ...first, position: 1 }, { ...second, position: 0 }] }
      assert.match(Laws.broken(swapped, [Laws.emissionOrder]).join(), /^R12: .* did not run in the order/)
    }))

  it.effect("R12: sees a call that waits for nothing", () =>
    Effect.gen(function*() {
      const o = yield* seen([["book", a], ["look", b]])
      const { startedAt } = run(o, 1)
      const late = with_(o, 1, { startedAt: startedAt + 25, endedAt: startedAt + 45 })
      assert.deepStrictEqual(Laws.broken(late, [Laws.workConserving]), [
        'R12: "c1" (look) of turn 0 could have run from 0 ms on, nothing kept it at 0 ms, and it began at 25 ms'
      ])
      // A full backend keeps it.
      const full = { ...late, samples: [0, 20, 25].map((at) => ({ at, backend: Hotels.key, running: 2, tenants: {} })) }
      assert.deepStrictEqual(Laws.broken(full, [Laws.workConserving]), [])
    }))

  it.effect("R14: sees more at work than the backend, the tenant and the turn allow", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a], ["look", b], ["book", { hotel: "c" }]])
      const backends = (name: string, facts: Laws.BackendFacts) =>
        Laws.broken({ ...o, backends: new Map([[name, facts]]) }, [Laws.limitsKept])
      assert.deepStrictEqual(backends(Hotels.key, { concurrency: 2, perTenant: 2 }), [])
      assert.deepStrictEqual(backends(Hotels.key, { concurrency: 1, perTenant: 2 }), [
        'R14: backend "test/Hotels": expected at most 1 at work at once, got 2 at 0 ms, when "c1" (look) of turn 0 began'
      ])
      assert.deepStrictEqual(backends(Hotels.key, { concurrency: 2, perTenant: 1 }), [
        'R14: backend "test/Hotels", tenant north: expected at most 1 at work at once, got 2 at 0 ms, when "c1" (look) of turn 0 began'
      ])
      assert.deepStrictEqual(
        backends(Hotels.key, { concurrency: 2, perTenant: 2, rate: { limit: 2, window: 10 } }),
        []
      )
      assert.deepStrictEqual(backends(Hotels.key, { concurrency: 2, perTenant: 2, rate: { limit: 1, window: 10 } }), [
        'R14: backend "test/Hotels": expected at most 1 starts within 10 ms, got 2 from 0 ms on, when "c0" (look) of turn 0 began',
        'R14: backend "test/Hotels": expected at most 1 starts within 10 ms, got 2 from 0 ms on, when "c1" (look) of turn 0 began'
      ])
      assert.deepStrictEqual(Laws.broken(changed(o, () => ({ limit: 2 })), [Laws.limitsKept]), [
        `R14: turn 0's own limit: expected at most 2 at work at once, got 3 at 0 ms, when "c2" (book) of turn 0 began`
      ])
    }))

  it.effect("R14: sees a permit that is out for nobody", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a]])
      assert.deepStrictEqual(Laws.broken({ ...o, permitsAnswered: { [Hotels.key]: 1 } }), [
        'R14: backend "test/Hotels", when the last turn was answered: expected at most 0 permits out, one for each handler at work, got 1'
      ])
      assert.match(Laws.broken({ ...o, permitsEnd: { [Hotels.key]: 1 } }).join(), /when nothing more happened/)
    }))

  it.effect("R17, R20: sees work after the answer, and a write that is cut", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a], ["book", b]])
      const { answered } = o.turns[0]!
      assert.match(
        Laws.broken(with_(o, 0, { ended: answered! + 1 }), [Laws.noOrphans]).join(),
        /^R17: "c0" \(look\) of turn 0 was still at work after the turn's answer/
      )
      assert.match(
        Laws.broken(
          changed(with_(o, 0, { began: answered! + 1 }), ({ events }) => ({
            events: events!.filter(({ event }) => event._tag !== "CallStarted")
          })),
          [Laws.noOrphans]
        ).join(),
        /^R17: "c0" \(look\) of turn 0 was started after the turn's answer/
      )
      const cut = with_(o, 1, { end: "interrupted" })
      assert.match(
        Laws.broken(cut, [Laws.writesWhole]).join(),
        /^R20: "c1" \(book\) of turn 0, a write without an idempotency key, was interrupted/
      )
      assert.deepStrictEqual(Laws.broken(with_(o, 0, { end: "interrupted" }), [Laws.writesWhole]), [])
    }))

  it.effect("R18: sees what is started after a stop, and after a failure of a turn that fails fast", () =>
    Effect.gen(function*() {
      const o = yield* seen([["book", b], ["look", b]], { siblings: "failFast" })
      assert.deepStrictEqual(o.turns[0]!.answers!.map(({ outcome }) => outcome.status), ["error", "cancelled"])
      const late: FakeTool.Run = {
        ...run(o, 0),
        tool: "look",
        id: "c1",
        position: 1,
        began: 1_000,
        ended: 1_001,
        end: "ok"
      }
      const after = Laws.broken({ ...o, runs: [...o.runs, late] }, [Laws.nothingAfterStop])
      assert.deepStrictEqual(after, ['R18: "c1" (look) of turn 0 was started after a sibling failed ("c0")'])
      const finished = { ...changed(o, () => ({ failFast: false })), runs: [...o.runs, late] }
      assert.deepStrictEqual(Laws.broken(finished, [Laws.nothingAfterStop]), [])
    }))

  it.effect("R3: sees an outcome that tells another end, another effect, or another try than there may be", () =>
    Effect.gen(function*() {
      const o = yield* seen([["book", a], ["book", b], ["look", a], ["pay", a]])
      const statuses = o.turns[0]!.answers!.map(({ outcome }) => outcome.status)
      assert.deepStrictEqual(statuses, ["ok", "error", "ok", "ok"])
      const told = (position: number, outcome: Partial<Laws.ReportedOutcome>) =>
        Laws.broken(
          changed(o, ({ answers }) => ({
            answers: answers!.map((one) =>
              one.position === position ? { ...one, outcome: { ...one.outcome, ...outcome } } : one
            )
          })),
          [Laws.honest]
        ).join()
      assert.match(told(0, { effect: "none" }), /a write that was started: expected the effect "applied", got "none"$/)
      assert.match(told(1, { effect: "none" }), /a write that was started: expected the effect "unknown", got "none"$/)
      assert.match(told(1, { retryable: true }), /without an idempotency key, is told to be retryable$/)
      assert.match(told(1, { status: "ok", code: "ok" }), /its handler ended otherwise: failed$/)
      assert.match(told(0, { status: "error", code: "failed" }), /its handler ended otherwise: ok$/)
      assert.match(told(2, { effect: "applied" }), /a read has no effect, and its outcome says "applied"$/)
      const unrun = { ...o, runs: o.runs.filter((one) => one.position !== 2) }
      assert.match(Laws.broken(unrun, [Laws.honest]).join(), /its outcome is ok, and no handler ran for it$/)
    }))

  it.effect("R15, R19: sees a clock that does not run, and a read that does not hear a stop", () =>
    Effect.gen(function*() {
      const o = yield* seen([["look", a], ["hang", a]], { stop: { kind: "cancel", at: 25 } })
      const clocks = (o: Laws.Observation) => Laws.broken(o, [Laws.clocksKept]).join()
      assert.match(
        clocks(changed(with_(o, 0, { startedAt: 12, endedAt: 20 }), () => ({ deadline: 11 }))),
        /^R15: "c0" \(look\) of turn 0 began 12 ms after its turn, whose deadline is 11 ms$/
      )
      assert.match(
        clocks(with_(o, 0, { startedAt: 70_000, endedAt: 70_001 })),
        /70000 ms of waiting, and may wait for 60000 ms/
      )
      assert.match(
        clocks(with_(o, 0, { endedAt: 10_001 })),
        /ran for 10001 ms, may run for 10000 ms, and was answered ok/
      )
      const heard = changed(o, ({ answers }) => ({
        answers: answers!.map((one) => ({ ...one, outcome: { ...one.outcome, status: "ok" as const } }))
      }))
      assert.deepStrictEqual(Laws.broken(heard, [Laws.stopsHeard]), [
        'R19: "c1" (hang) of turn 0 was at work when its turn was stopped at 25 ms, and its outcome is ok'
      ])
    }))

  it.effect("R12: keys are read as the plan reads them", () =>
    Effect.gen(function*() {
      const pairs: ReadonlyArray<readonly [string, string, boolean]> = [
        ["a", "a/b", true],
        ["customer:1", "customer:1/orders", true],
        ["customer:1", "customer:12", false],
        ["a/../b", "b", true],
        ["file:", "file:/a", true],
        ["..", "x", true],
        ["file:a/../b", "file:b", true],
        ["../x", "y", true],
        [".", "q", true],
        ["file:/a/b", "file:/a//b/./c", true],
        ["file:/a/b", "file:/a/c", false],
        ["f:/a/../..", "f:/b", true],
        ["x:1", "y:1", false]
      ]
      for (const [one, other, expected] of pairs) {
        const Both = pipe(Tool.make("both", parts), ToolPolicy.write({ keys: ({ hotel }) => [hotel] }))
        const toolkit = Toolkit.make(Both)
        const calls = [one, other].map((hotel, i) => ToolCall.make(`c${i}`, "both", { hotel }))
        const planned = (yield* Turn.plan(toolkit, calls)).edges.length > 0
        assert.strictEqual(planned, expected, `${one} and ${other}`)
        const run = yield* Simulation.run(
          TurnCase.run(toolkit, toolkit.toLayer({ both: () => Effect.as(Effect.sleep(5), "x") }), {
            turns: [{
              calls: calls.map((call) => ({ call, before: 0, after: 0 })),
              tenant: "north",
              at: 0,
              siblings: "letFinish",
              execution: "parallel",
              dedupe: "all"
            }]
          })
        )
        const o = (run.exit as Exit.Success<Laws.Observation>).value
        assert.deepStrictEqual(Laws.broken(o), [], `${one} and ${other}`)
        assert.strictEqual(Laws.noOverlap.judge(o).judged > 0, planned, `${one} and ${other}`)
      }
    }))

  it.effect("R3, R24, R29, R35: sees a started call denied, a write run twice, half a character, and another tenant", () =>
    Effect.gen(function*() {
      const o = yield* seen([["book", a]])
      const answer = o.turns[0]!.answers![0]!
      const answers = (outcome: Partial<Laws.Answer["outcome"]>, model: unknown = answer.model) => ({
        answers: [{ ...answer, outcome: { ...answer.outcome, ...outcome }, model }]
      })
      assert.match(
        Laws.broken(changed(o, () => answers({ started: false })), [Laws.honest]).join(),
        /^R3: .* its handler was started, and its outcome says that it was not$/
      )
      const twice = { ...o, runs: [...o.runs, { ...run(o, 0), began: 100, ended: 101 }] }
      assert.match(Laws.broken(twice, [Laws.runsOnce]).join(), /^R24: .* ran twice for one call$/)
      assert.match(
        Laws.broken(changed(o, () => answers({}, "\ud83d")), [Laws.wholeTexts]).join(),
        /^R29: .* half of one/
      )
      assert.match(
        Laws.broken(with_(o, 0, { tenant: "south" }), [Laws.tenantsApart]).join(),
        /^R35: .* ran for the tenant "south", expected "north"$/
      )
      assert.match(Laws.broken(with_(o, 0, { position: -1 }), [Laws.callsKnown]).join(), /^R35: a run of book at 0 ms/)
    }))
})

const ended = ({ event }: Laws.SeenEvent) => event._tag === "CallEnded"

describe("exhaust", () => {
  it.live(
    "R17, R18, R20: every turn of up to two calls, under both policies, interrupted at every point",
    () =>
      Effect.gen(function*() {
        const { cases, complete, runs } = yield* Laws.exhaust({ toolkit: kit, layer, cases: { maxCalls: 2 } })
        assert.isTrue(complete)
        assert.strictEqual(cases, (8 + 8 * 8) * 2)
        assert.isAbove(runs, 5000)
      }),
    120_000
  )

  it.live("every turn of one call, stopped in every way at every point", () =>
    Effect.gen(function*() {
      const { complete, runs } = yield* Laws.exhaust({
        toolkit: kit,
        layer,
        cases: { maxCalls: 1, siblings: ["letFinish"] },
        stops: ["interrupt", "cancel", "cancelOn", "cancelCall"]
      })
      assert.isTrue(complete)
      assert.isAbove(runs, 1000)
    }), 120_000)

  it.live("every turn of up to three calls of tools that read, write, and pay", () =>
    Effect.gen(function*() {
      const three = Toolkit.make(Look, Book, Pay)
      const { complete, runs } = yield* Laws.exhaust({ toolkit: three, layer, cases: { maxCalls: 3 } })
      assert.isTrue(complete)
      assert.isAbove(runs, 3000)
    }), 120_000)

  it.live("says when it has not seen all, and runs no stop where none is asked for", () =>
    Effect.gen(function*() {
      const few = Toolkit.make(Look)
      const cut = yield* Laws.exhaust({ toolkit: few, layer, maxRuns: 3 })
      assert.deepStrictEqual(cut, { cases: 4, runs: 3, complete: false })
      const none = yield* Laws.exhaust({ toolkit: few, layer, stops: [] })
      assert.deepStrictEqual(none, { cases: 4, runs: 4, complete: true })
    }))

  it.live("tells the case and the stop that break a law", () =>
    Effect.gen(function*() {
      const never: Laws.Law = {
        name: "never",
        rules: ["mine"],
        says: "nothing is ever cancelled",
        judge: ({ turns }) => ({
          judged: 1,
          problems: turns.flatMap((turn) =>
            turn.answers!.some(({ outcome }) => outcome.status === "cancelled") ? ["mine: something was cancelled"] : []
          )
        })
      }
      const falsified = yield* Effect.flip(Laws.exhaust({ toolkit: Toolkit.make(Look), layer, laws: [never] }))
      assert.include(falsified.problem, "mine: something was cancelled")
      assert.match(falsified.input!, /interrupted at point \d+$/)
    }))
})

describe("a suite", () => {
  interface Told {
    readonly name: string
    readonly result: "passed" | "failed" | "skipped"
    readonly message?: string
  }

  /** Runs a suite as a test runner would, and tells what became of each test. */
  const runSuite = (make: (it: Laws.Tester) => void): Effect.Effect<ReadonlyArray<Told>> => {
    const tests: Array<Effect.Effect<Told>> = []
    make({
      effect: (name, test) => {
        let skipped = false
        tests.push(
          Effect.scoped(test({ skip: () => skipped = true })).pipe(
            Effect.exit,
            Effect.map((exit): Told =>
              Exit.isFailure(exit)
                ? { name, result: "failed", message: String(Cause.squash(exit.cause)) }
                : { name, result: skipped ? "skipped" : "passed" }
            )
          )
        )
      }
    })
    return Effect.all(tests)
  }

  it.live("skips what there is nothing to judge of, and says so", () =>
    Effect.gen(function*() {
      const told = yield* runSuite((it) => Laws.suite(it, { toolkit: Toolkit.make(Hang), layer, inputs: 20, seeds: 1 }))
      assert.deepStrictEqual(told.filter(({ result }) => result === "failed"), [])
      const skipped = told.filter(({ result }) => result === "skipped").map(({ name }) => name)
      assert.deepStrictEqual(skipped, [
        "R12: runs of one tenant that conflict are never at work at the same time",
        "R14: permits are out only for handlers that are at work",
        "R20: a write without an idempotency key is never interrupted",
        "R23: writes that share an idempotency key have one effect, and what only our record guards is not run again in doubt",
        "R24: a write without an idempotency key never runs twice for one call",
        ...[Laws.requestsApart, Laws.requestsSized, Laws.requestsFew, Laws.requestsWanted, Laws.ownItems].map(
          ({ rules, says }) => `${rules.join(", ")}: ${says}`
        )
      ])
    }))

  it.live("fails the law that is broken, alone, with the smallest case and its replay; and the replay repeats it", () =>
    Effect.gen(function*() {
      const law = (name: string, problem: string): Laws.Law => ({
        name,
        rules: ["mine"],
        says: name,
        judge: ({ runs }) => ({ judged: 1, problems: runs.some((one) => one.tool === "pay") ? [problem] : [] })
      })
      const fine: Laws.Law = { ...law("fine", ""), judge: () => ({ judged: 1, problems: [] }) }
      const options = {
        toolkit: Toolkit.make(Look, Pay),
        layer,
        laws: [fine, law("free", "mine: paid")],
        inputs: 30,
        seeds: 2
      }
      const told = yield* runSuite((it) => Laws.suite(it, options))
      assert.deepStrictEqual(told.map(({ result }) => result), ["passed", "passed", "passed", "failed"])
      const message = told[3]!.message!
      assert.include(message, "mine: paid")
      assert.match(message, /#0 pay \{"hotel":"a"\} {3}0 ms, its own, 0 ms\n\nWhat ran/)
      const replay = JSON.parse(/\{ replay: (".*") \}/.exec(message)![1]!) as string
      const again = yield* runSuite((it) => Laws.suite(it, { ...options, replay }))
      assert.deepStrictEqual(again.map(({ result }) => result), ["passed", "passed", "passed", "failed"])
      assert.include(again[3]!.message!, "mine: paid")
    }))

  it.live("fails when a law was seen broken once, and never again", () =>
    Effect.gen(function*() {
      let looks = 0
      const once: Laws.Law = {
        name: "once",
        rules: ["mine"],
        says: "it is seen once",
        judge: () => ({ judged: 1, problems: ++looks === 20 ? ["mine: seen"] : [] })
      }
      const told = yield* runSuite((it) =>
        Laws.suite(it, { toolkit: Toolkit.make(Look), layer, laws: [once], inputs: 10, seeds: 3 })
      )
      assert.deepStrictEqual(told.map(({ result }) => result), ["passed", "passed", "failed"])
      assert.match(told[2]!.message!, /mine: seen\nThis was seen once, and not again/)
    }))

  it.live("fails when a tool is never started, whatever it is called with", () =>
    Effect.gen(function*() {
      const At = pipe(
        Tool.make("at", { parameters: Schema.Struct({ day: Schema.Date }) }),
        ToolPolicy.read({ keys: () => [] })
      )
      const toolkit = Toolkit.make(At)
      const told = yield* runSuite((it) =>
        Laws.suite(it, { toolkit, layer: toolkit.toLayer({ at: () => Effect.void }), inputs: 40 })
      )
      assert.strictEqual(told[1]!.result, "failed")
      assert.match(told[1]!.message!, /the tool "at" was called \d+ times and never started: .*invalid_arguments/)
    }))

  it("refuses what leaves nothing to judge, and what nobody has", () => {
    assert.throws(
      () => Laws.suite(it, { toolkit: Toolkit.make(), layer: Layer.empty }),
      /at least one tool, .*got 14|at least one tool/
    )
    assert.throws(() => Laws.suite(it, { toolkit: Toolkit.make(Look), layer, laws: [] }), /at least one law/)
    const cases = (options: TurnCase.GenerateOptions) => () => TurnCase.arbitrary(kit, options)
    assert.throws(cases({ arguments: { boook: Arbitrary.Constant({}) } }), /names of tools: look, .* and got "boook"/)
    assert.throws(cases({ latencies: [-1] }), /latencies.*whole number from 0, and is -1/)
    assert.throws(cases({ latencies: [] }), /latencies: expected at least one/)
    assert.throws(cases({ tenants: [] }), /tenants: expected at least one/)
    assert.throws(cases({ maxCalls: 0 }), /maxCalls.*whole number from 1/)
  })

  it.live("fails when a turn does not end", () =>
    Effect.gen(function*() {
      const forever = pipe(
        Tool.make("forever", parts),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.timeout("infinite")
      )
      const toolkit = Toolkit.make(forever)
      const told = yield* runSuite((it) =>
        Laws.suite(it, {
          toolkit,
          layer: toolkit.toLayer({ forever: () => Effect.never }),
          cases: { stops: false },
          inputs: 3
        })
      )
      // The first test tells; the laws have nothing to add.
      assert.deepStrictEqual(told.slice(2).map(({ result }) => result), Laws.all.map(() => "skipped"))
      assert.strictEqual(told[0]!.result, "failed")
      assert.include(told[0]!.message!, "it hangs: it has not ended, and nothing is left that could go on")
    }))
})
