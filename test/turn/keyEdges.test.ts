/** Idempotency keys and journals at their edges: services that misbehave, steps that are done again, turns that are run again. */
import { assert, describe, it } from "@effect/vitest"
import {
  IdempotencyStore,
  Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnJournal,
  TurnMiddleware,
  TurnStore
} from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { ended, fork } from "../utils/kit.ts"

const Params = Schema.Struct({ key: Schema.String, note: Schema.optionalKey(Schema.String) })
const base = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Params, success: Schema.String, failure: Schema.String }),
    ToolPolicy.write({ keys: () => [] }),
    ToolPolicy.repeatable,
    ToolPolicy.timeout("infinite")
  )
const key = ({ key }: typeof Params.Type) => key
const toolkit = Toolkit.make(
  pipe(base("pay"), IdempotencyStore.record(key)),
  pipe(base("forward"), ToolPolicy.forward(key)),
  pipe(
    base("undoable"),
    IdempotencyStore.record(key),
    ToolPolicy.undo(({ note }) => Effect.sleep(note === "slow" ? 10_000 : 0))
  ),
  base("plain")
)

interface Around {
  readonly store?: (store: IdempotencyStore.IdempotencyStore["Service"]) => IdempotencyStore.IdempotencyStore["Service"]
  readonly journal?: (journal: TurnJournal.TurnJournal["Service"]) => TurnJournal.TurnJournal["Service"]
  readonly millis?: number
  /** Of another process. */
  readonly rows?: TurnStore.TurnStore["Service"]
  readonly inside?: (params: typeof Params.Type, context: Context.Context<any>) => Effect.Effect<void>
}

const setUp = (around: Around = {}) =>
  Effect.gen(function*() {
    const ran: Array<string> = []
    let context = Context.empty() as Context.Context<any>
    const handler = (name: string) => (params: typeof Params.Type) =>
      Effect.gen(function*() {
        ran.push(`${name} ${params.key}${params.note ?? ""}`)
        if (around.inside !== undefined) yield* around.inside(params, context)
        yield* Effect.sleep(around.millis ?? 20)
        if (params.key === "fails") return yield* Effect.fail("no")
        return `${params.key}${params.note ?? ""}`
      })
    const rows = around.rows ?? Context.get(yield* Layer.build(Layer.fresh(TurnStore.layerMemory)), TurnStore.TurnStore)
    const records = Layer.merge(
      IdempotencyStore.layer({ digest: "text", lease: "3 seconds" }),
      around.journal === undefined ? Layer.empty : TurnJournal.layer({ lease: "3 seconds" })
    ).pipe(Layer.provide(Layer.succeed(TurnStore.TurnStore, rows)))
    const services: Context.Context<any> = yield* Layer.build(Layer.mergeAll(
      Turn.layer(),
      toolkit.toLayer({
        pay: handler("pay"),
        forward: handler("forward"),
        undoable: handler("undoable"),
        plain: handler("plain")
      }),
      records
    ))
    const bare = Context.get(
      services,
      IdempotencyStore.IdempotencyStore
    ) as IdempotencyStore.IdempotencyStore["Service"]
    context = services.pipe(
      Context.add(IdempotencyStore.IdempotencyStore, around.store === undefined ? bare : around.store(bare)),
      Context.merge(TurnContext.make({ tenant: "t" }))
    )
    if (around.journal !== undefined) {
      const journal = Context.get(services, TurnJournal.TurnJournal)
      context = Context.add(context, TurnJournal.TurnJournal, around.journal(journal))
    }
    const run = (
      calls: ReadonlyArray<ToolCall.ToolCall>,
      options?: Turn.Options,
      whose = TurnContext.make({ tenant: "t" })
    ) =>
      Effect.map(
        Effect.provide(Turn.run(toolkit, calls, options), Context.merge(context, whose)),
        (outcomes) => outcomes.map((outcome) => Outcome.toJson(outcome))
      )
    return { ran, run, store: bare, rows, context }
  })

const pay = (key: string, id = "c", note?: string) =>
  ToolCall.make(id, "pay", note === undefined ? { key } : { key, note })

describe("services that misbehave", () => {
  it.effect("a store and a journal whose `renew` throws do not take the turn with them", () =>
    Effect.gen(function*() {
      const thrown = () => {
        throw new Error("no")
      }
      const { ran, run } = yield* setUp({
        store: (store) => ({ ...store, renew: thrown }),
        journal: (journal) => ({ ...journal, renew: thrown }),
        millis: 10_000
      })
      const fiber = yield* fork(run([pay("a")]))
      yield* TestClock.adjust("1 minute")
      assert.deepInclude((yield* ended(fiber))[0], { status: "ok" })
      assert.deepStrictEqual(ran, ["pay a"])
    }))

  it.effect("a renewal that never returns, and cannot be stopped, costs no other key its lease", () =>
    Effect.gen(function*() {
      const { run, store } = yield* setUp({
        store: (store) => ({
          ...store,
          renew: (key, owner) => key.key === "deaf" ? Effect.uninterruptible(Effect.never) : store.renew(key, owner)
        }),
        millis: 20_000
      })
      const fiber = yield* fork(run([pay("deaf", "1"), pay("a", "2")]))
      yield* TestClock.adjust("15 seconds")
      const entry = yield* store.lookUp({ tenant: "t", tool: "pay", key: "a" })
      assert.deepInclude(entry, { state: "reserved" })
      yield* TestClock.adjust("15 seconds")
      assert.deepStrictEqual((yield* ended(fiber)).map(({ status }) => status), ["ok", "ok"])
    }))

  it.effect("R33: a record that cannot be read is not told with its key", () =>
    Effect.gen(function*() {
      const { rows, run } = yield* setUp()
      const fiber = yield* fork(run([pay("card-4711")]))
      yield* TestClock.adjust("1 second")
      yield* ended(fiber)
      const [row] = yield* rows.list({ kind: "key", limit: 1 })
      yield* rows.change("key", row!.id, {}, { updatedAt: 0, body: '{"broken":"card-4711"}' })
      const again = yield* fork(run([pay("card-4711")]))
      yield* TestClock.adjust("1 second")
      const [outcome] = yield* ended(again)
      assert.deepInclude(outcome, { code: "store_unavailable" })
      assert.notInclude(JSON.stringify(outcome), "card-4711")
    }))
})

describe("steps before a start that has to wait for a key", () => {
  it.effect("are done once", () =>
    Effect.gen(function*() {
      const { ran, run } = yield* setUp({ millis: 1_000 })
      let asked = 0
      const middleware = [
        TurnMiddleware.make("stamp", {
          before: (call) =>
            Effect.sync(() => {
              asked++
              const { note } = call.params as typeof Params.Type
              return TurnMiddleware.replaceArguments({ key: "a", note: `${note}!` })
            })
        })
      ]
      const one = yield* fork(run([pay("a", "1")]))
      yield* TestClock.adjust(100)
      const two = yield* fork(run([pay("b", "2", "x")], { middleware }))
      yield* TestClock.adjust("1 minute")
      yield* ended(one)
      const [outcome] = yield* ended(two)
      assert.deepInclude(outcome, { code: "key_reused" })
      assert.strictEqual(asked, 1)
      assert.deepStrictEqual(ran, ["pay a"])
    }))
})

describe("a turn that is run again with the same id", () => {
  it.effect("does not give a call the answer of one with other arguments, or of another conversation", () =>
    Effect.gen(function*() {
      const { ran, run } = yield* setUp({ journal: (journal) => journal })
      const plain = (args: unknown, id: string) => ToolCall.make(id, "plain", args)
      const turns: ReadonlyArray<readonly [call: ToolCall.ToolCall, conversation: string | undefined]> = [
        [plain({ key: "a" }, "1"), undefined],
        [plain({ key: "b" }, "1"), undefined],
        [plain({ key: "b" }, "2"), undefined],
        [plain({ key: "a" }, "1"), undefined],
        // As another client has parsed it, and under another id.
        [plain('{ "key": "a" }', "2"), undefined],
        [plain({ key: "a" }, "1"), "another"]
      ]
      const said: Array<unknown> = []
      for (const [call, conversation] of turns) {
        const whose = conversation === undefined ? { tenant: "t" } : { tenant: "t", conversation }
        const fiber = yield* fork(run([call], { turn: "one" }, TurnContext.make(whose)))
        yield* TestClock.adjust("1 second")
        const [outcome] = yield* ended(fiber)
        said.push(outcome!.status === "ok" ? outcome!.result : outcome!.code)
      }
      assert.deepStrictEqual(said, ["a", "ambiguous_id", "ambiguous_id", "a", "a", "ambiguous_id"])
      assert.deepStrictEqual(ran, ["plain a"])
    }))
})

describe("a turn that is run again, whose middleware exchanges arguments", () => {
  it.effect("has its answers", () =>
    Effect.gen(function*() {
      const { ran, run } = yield* setUp({ journal: (journal) => journal })
      const middleware = [
        TurnMiddleware.make("note", {
          before: () => Effect.succeed(TurnMiddleware.replaceArguments({ key: "a", note: "!" }))
        })
      ]
      for (let time = 0; time < 2; time++) {
        const fiber = yield* fork(run([ToolCall.make("1", "plain", { key: "a" })], { turn: "one", middleware }))
        yield* TestClock.adjust("1 second")
        assert.deepInclude((yield* ended(fiber))[0], { status: "ok", result: "a!" })
      }
      assert.deepStrictEqual(ran, ["plain a!"])
    }))
})

describe("a key of a unit that is not decided", () => {
  it.effect("R25: what is being undone is told to no other process, in doubt or otherwise, while its owner is at it", () =>
    Effect.gen(function*() {
      const { ran, rows, run, store } = yield* setUp()
      const other = yield* setUp({ rows })
      const call = ToolCall.make("1", "undoable", { key: "a", note: "slow" })
      const calls = [call, ToolCall.make("2", "plain", { key: "fails" })]
      const unit = yield* fork(run(calls, { siblings: Siblings.allOrNothing }))
      yield* TestClock.adjust(1_000)
      const another = yield* fork(other.run([call]))
      // Longer than a lease.
      yield* TestClock.adjust(5_000)
      assert.deepInclude(yield* store.lookUp({ tenant: "t", tool: "undoable", key: "a" }), { state: "reserved" })
      assert.isUndefined(another.pollUnsafe())
      yield* TestClock.adjust(10_000)
      assert.deepInclude((yield* ended(unit))[0], { status: "cancelled", effect: "none", undo: "done" })
      assert.deepInclude((yield* ended(another))[0], { status: "ok", started: true })
      assert.deepStrictEqual([ran.length, other.ran.length], [2, 1])
    }))

  it.effect("R20, R25: a member that is given up on, and takes effect later, gives its key back", () =>
    Effect.gen(function*() {
      const { ran, run, store } = yield* setUp({ millis: 1_000 })
      const call = ToolCall.make("1", "undoable", { key: "a" })
      const options = { siblings: Siblings.allOrNothing, deadline: 100, grace: { writes: 100 } }
      const first = yield* fork(run([call], options))
      yield* TestClock.adjust(500)
      assert.deepInclude((yield* ended(first))[0], { status: "cancelled", effect: "unknown" })
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual((yield* store.list()).map(({ state }) => state), ["applied"])
      const again = yield* fork(run([call]))
      yield* TestClock.adjust("1 second")
      assert.deepInclude((yield* ended(again))[0], { status: "ok", replayed: true })
      assert.deepStrictEqual(ran, ["undoable a"])
    }))

  it.effect("two units that wait for each other's keys: one is ended by its clock of waiting, and undone, the other goes on", () =>
    Effect.gen(function*() {
      const { ran, run, store } = yield* setUp()
      const undoable = (key: string, id: string) => ToolCall.make(id, "undoable", { key })
      const options = { siblings: Siblings.allOrNothing, execution: "sequential" } as const
      const one = yield* fork(run([undoable("a", "1"), undoable("b", "2")], options))
      const two = yield* fork(run([undoable("b", "1"), undoable("a", "2")], options))
      yield* TestClock.adjust("3 minutes")
      const said = [yield* ended(one), yield* ended(two)].map((outcomes) => outcomes.map(({ effect }) => effect).join())
      assert.deepStrictEqual(said.toSorted(), ["applied,applied", "none,none"])
      assert.strictEqual(ran.length, 3)
      assert.deepStrictEqual((yield* store.list()).map(({ state }) => state), ["applied", "applied"])
    }))

  it.effect("R14: work inside a member that waits for the key of another member is found", () =>
    Effect.gen(function*() {
      let inner: Outcome.Encoded | undefined
      const { run } = yield* setUp({
        inside: ({ note }, context) =>
          note === undefined ? Effect.void : Effect.gen(function*() {
            yield* Effect.sleep(100)
            const own = yield* Effect.context<never>()
            const turn = Turn.run(toolkit, [ToolCall.make("i", "undoable", { key: "a" })])
            const [outcome] = yield* Effect.orDie(Effect.provide(turn, Context.merge(context, own)))
            inner = Outcome.toJson(outcome!)
          })
      })
      const calls = [
        ToolCall.make("1", "undoable", { key: "a" }),
        ToolCall.make("2", "undoable", { key: "b", note: "inside" })
      ]
      const fiber = yield* fork(run(calls, { siblings: Siblings.allOrNothing }))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual((yield* ended(fiber)).map(({ status }) => status), ["ok", "ok"])
      assert.deepInclude(inner, { code: "deadlock", started: false, effect: "none" })
    }))
})
