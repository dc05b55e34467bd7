import { assert, describe, it } from "@effect/vitest"
import {
  Backend,
  IdempotencyStore,
  Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnJournal,
  TurnStore
} from "effect-turn"
import type { TurnError, TurnEvent } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { drive, ended, fork } from "../utils/kit.ts"

const Params = Schema.Struct({ key: Schema.String, sum: Schema.optionalKey(Schema.Finite) })
type Params = typeof Params.Type

const Failure = Schema.Struct({ why: Schema.String, effect: Schema.Literals(["none", "unknown"]) })

class Bank extends Backend.Service<Bank>()("test/Bank") {}

/** Every payment that was made, and how the next one goes. */
class Ledger {
  readonly runs: Array<{ readonly tool: string; readonly key: string | undefined; readonly at: number }> = []
  readonly paid: Array<string> = []
  /** By how often the tool has been run before. */
  does: ReadonlyArray<"pays" | "fails after" | "fails before" | "declines" | "hangs"> = ["pays"]
  verdict: ToolPolicy.Verdict<string> = IdempotencyStore.notKnown
  asking: Effect.Effect<any, unknown> | undefined = undefined
  asked = 0
  /** Done by each handler before it pays. */
  nested: Effect.Effect<void> | undefined = undefined
  millis = 20
  undoing: Effect.Effect<unknown, string> = Effect.void
  result = (n: number): string => `receipt ${n}`
}

const tool = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Params, success: Schema.String, failure: Failure }),
    ToolPolicy.write({ keys: () => [] }),
    ToolPolicy.repeatable,
    ToolPolicy.timeout("infinite"),
    ToolPolicy.failures({ noEffect: ({ effect }) => effect === "none", transient: () => true })
  )

const key = ({ key }: Params): string => key

const stageOf = (ledger: Ledger) => {
  const tools = {
    record: pipe(tool("record"), IdempotencyStore.record(key)),
    forward: pipe(tool("forward"), ToolPolicy.forward(key)),
    verify: pipe(
      tool("verify"),
      IdempotencyStore.verify({
        key,
        ask: () =>
          ledger.asking ?? Effect.sync(() => {
            ledger.asked++
            return ledger.verdict
          })
      })
    ),
    wide: pipe(tool("wide"), IdempotencyStore.record(key, { scope: "tenant" })),
    bank: pipe(tool("bank"), IdempotencyStore.record(key), ToolPolicy.on(Bank)),
    short: pipe(tool("short"), IdempotencyStore.record(key), ToolPolicy.timeout(50)),
    stubborn: pipe(
      tool("stubborn"),
      IdempotencyStore.record(key),
      ToolPolicy.retry({ times: 3 }),
      ToolPolicy.on(Bank)
    ),
    record_undo: pipe(tool("record_undo"), IdempotencyStore.record(key), ToolPolicy.undo(() => ledger.undoing)),
    forward_undo: pipe(tool("forward_undo"), ToolPolicy.forward(key), ToolPolicy.undo(() => ledger.undoing)),
    asked: pipe(
      tool("asked"),
      IdempotencyStore.verify({ key, ask: () => ledger.asking ?? Effect.succeed(ledger.verdict) }),
      ToolPolicy.retry({ times: 1, schedule: Schedule.spaced(10), jitter: false }),
      ToolPolicy.waitTimeout(50)
    ),
    placed: pipe(
      tool("placed"),
      ToolPolicy.forward(({ key }, { conversation, tenant }) => `${tenant}/${conversation}/${key}`)
    ),
    none: tool("none")
  }
  const toolkit = Toolkit.make(
    tools.record,
    tools.forward,
    tools.verify,
    tools.wide,
    tools.bank,
    tools.short,
    tools.stubborn,
    tools.placed,
    tools.asked,
    tools.record_undo,
    tools.forward_undo,
    tools.none
  )
  const handler = (name: string) => ({ key }: Params) =>
    Effect.gen(function*() {
      const call = yield* TurnContext.CurrentCall
      const does = ledger.does[Math.min(ledger.runs.length, ledger.does.length - 1)]!
      ledger.runs.push({ tool: name, key: call?.idempotencyKey, at: yield* Clock.currentTimeMillis })
      const pay = Effect.sync(() => {
        const id = call?.idempotencyKey ?? `${name} ${ledger.paid.length}`
        if (name !== "forward" || !ledger.paid.includes(id)) ledger.paid.push(id)
      })
      switch (does) {
        case "hangs":
          return yield* Effect.never
        case "declines":
          yield* Effect.sleep(ledger.millis)
          return yield* Effect.fail({ why: "no money", effect: "none" as const })
        case "fails before":
          yield* Effect.sleep(ledger.millis)
          return yield* Effect.fail({ why: "connection lost", effect: "unknown" as const })
        case "fails after":
          yield* Effect.sleep(ledger.millis)
          yield* pay
          return yield* Effect.fail({ why: "connection lost", effect: "unknown" as const })
        case "pays":
          if (key === "slow") yield* Effect.sleep(500)
          if (ledger.nested !== undefined) yield* ledger.nested
          yield* Effect.sleep(ledger.millis)
          yield* pay
          return ledger.result(ledger.paid.length)
      }
    })
  const handlers = toolkit.toLayer({
    record: handler("record"),
    forward: handler("forward"),
    verify: handler("verify"),
    wide: handler("wide"),
    bank: handler("bank"),
    short: handler("short"),
    stubborn: handler("stubborn"),
    placed: handler("placed"),
    asked: handler("asked"),
    record_undo: handler("record_undo"),
    forward_undo: handler("forward_undo"),
    none: handler("none")
  })
  return { toolkit, handlers }
}

const who = TurnContext.make({ tenant: "acme" })

/** A process: a runtime of its own over the store that is given. */
const processOf = (
  ledger: Ledger,
  rows: TurnStore.TurnStore["Service"],
  options?: IdempotencyStore.Options
) =>
  Effect.gen(function*() {
    const { handlers, toolkit } = stageOf(ledger)
    const scope = yield* Scope.make()
    const layer = Layer.mergeAll(
      Turn.layer(),
      handlers,
      Bank.layer({ concurrency: 1 }),
      Layer.provide(IdempotencyStore.layer({ digest: "text", ...options }), Layer.succeed(TurnStore.TurnStore, rows))
    )
    const services = yield* Layer.buildWithScope(layer, scope)
    const context = Context.merge(who, services)
    const run = (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options, whose = who) =>
      Effect.provide(Effect.provide(Turn.run(toolkit, calls, options), whose), context)
    return {
      toolkit,
      run,
      one: (name: string, params: Params, options?: Turn.Options, whose = who) =>
        Effect.map(run([ToolCall.make("c", name, params)], options, whose), ([outcome]) => Outcome.toJson(outcome!)),
      /** In the context of the call that it is run in. */
      oneInside: (name: string, params: Params) =>
        Effect.contextWith((own: Context.Context<never>) =>
          Effect.provide(
            Turn.run(toolkit, [ToolCall.make("i", name, params)]),
            Context.merge(context, own) as Context.Context<any>
          )
        ).pipe(Effect.map(([outcome]) => Outcome.toJson(outcome!)), Effect.orDie),
      store: Context.get(services, IdempotencyStore.IdempotencyStore),
      close: Scope.close(scope, { _tag: "Success", value: undefined } as any),
      context
    }
  })

const rowsOf = Effect.map(Layer.build(Layer.fresh(TurnStore.layerMemory)), Context.get(TurnStore.TurnStore))

const setUp = (options?: IdempotencyStore.Options) =>
  Effect.gen(function*() {
    const ledger = new Ledger()
    const rows = yield* rowsOf
    return { ledger, rows, ...yield* processOf(ledger, rows, options) }
  })

const states = (store: IdempotencyStore.IdempotencyStore["Service"]) =>
  Effect.map(store.list(), (entries) => entries.map(({ key, state }) => `${key.key} ${state}`))

const codeOf = (outcome: Outcome.Outcome<any>) => "code" in outcome ? outcome.code : undefined

const ab = { key: "a", sum: 5 }

describe("R23: a write that carries a key, and our record of it", () => {
  it.effect("what was applied is answered from the record, and not run", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp()
      const first = yield* drive(one("record", ab))
      assert.deepInclude(first, { status: "ok", started: true, effect: "applied", result: "receipt 1" })
      assert.isUndefined(first.replayed)
      const again = yield* drive(one("record", ab))
      assert.deepInclude(again, {
        status: "ok",
        started: false,
        effect: "applied",
        retryable: false,
        replayed: true,
        result: "receipt 1"
      })
      assert.deepStrictEqual(ledger.paid, ["a"])
    }))

  it.effect("a write that may have had its effect is not run again, whatever the model wants", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["fails after", "pays"]
      const first = yield* drive(one("record", ab))
      assert.deepInclude(first, { status: "error", code: "failed", effect: "unknown", retryable: false })
      const again = yield* drive(one("record", ab))
      assert.deepInclude(again, {
        status: "error",
        code: "in_doubt",
        started: false,
        effect: "unknown",
        retryable: false
      })
      assert.deepStrictEqual(ledger.paid, ["a"])
      assert.deepStrictEqual(yield* states(store), ["a unknown"])
      yield* store.resolve((yield* store.list({ state: "unknown" }))[0]!.key, {
        _tag: "Applied",
        result: "receipt by hand"
      })
      const resolved = yield* drive(one("record", ab))
      assert.deepInclude(resolved, { status: "ok", replayed: true, result: "receipt by hand" })
      assert.strictEqual(ledger.runs.length, 1)
    }))

  it.effect("resolved as not applied, it is run", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["fails before", "pays"]
      yield* drive(one("record", ab))
      yield* store.resolve((yield* store.list())[0]!.key, { _tag: "NotApplied" })
      assert.deepInclude(yield* drive(one("record", ab)), { status: "ok", started: true })
      assert.deepStrictEqual(ledger.paid, ["a"])
    }))

  it.effect("a failure that is declared as having no effect frees the key", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["declines", "pays"]
      assert.deepInclude(yield* drive(one("record", ab)), { code: "failed", effect: "none", retryable: true })
      assert.deepStrictEqual(yield* states(store), [])
      assert.deepInclude(yield* drive(one("record", ab)), { status: "ok", started: true })
    }))

  it.effect("the same key for other arguments is refused, and the record stays", () =>
    Effect.gen(function*() {
      const { one, store } = yield* setUp()
      yield* drive(one("record", ab))
      assert.deepInclude(yield* drive(one("record", { key: "a", sum: 6 })), {
        status: "error",
        code: "key_reused",
        started: false,
        effect: "none",
        retryable: false
      })
      assert.deepStrictEqual(yield* states(store), ["a applied"])
    }))

  it.effect("a key is that of its tenant, tool and conversation; one of the tenant's scope is that of all its conversations", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp()
      const whose = (tenant: string, conversation?: string) => TurnContext.make({ tenant, conversation })
      const all = [whose("acme"), whose("acme", "one"), whose("acme", "two"), whose("other")]
      for (const name of ["record", "short", "wide"]) {
        for (const one_ of all) assert.deepInclude(yield* drive(one(name, ab, {}, one_)), { status: "ok" })
      }
      const runs = (name: string) => ledger.runs.filter(({ tool }) => tool === name).length
      assert.deepStrictEqual([runs("record"), runs("short"), runs("wide")], [4, 4, 2])
    }))

  it.effect("a write that carries none is run each time", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp()
      yield* drive(one("none", ab))
      yield* drive(one("none", ab))
      assert.strictEqual(ledger.paid.length, 2)
    }))
})

describe("R23: modes", () => {
  it.effect("forward: what is unknown is run again with the same key; what was applied is replayed", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp()
      ledger.does = ["fails after", "pays"]
      assert.deepInclude(yield* drive(one("forward", ab)), { code: "failed", effect: "unknown", retryable: true })
      assert.deepInclude(yield* drive(one("forward", ab)), { status: "ok", started: true, effect: "applied" })
      assert.deepInclude(yield* drive(one("forward", ab)), { status: "ok", started: false, replayed: true })
      assert.deepStrictEqual(ledger.runs.map(({ key }) => key), ["a", "a"])
      assert.deepStrictEqual(ledger.paid, ["a"])
    }))

  it.effect("verify: what is unknown is asked about; what was applied has its result, what was not is run", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["fails after"]
      yield* drive(one("verify", ab))
      assert.deepInclude(yield* drive(one("verify", ab)), { code: "in_doubt", started: false, effect: "unknown" })
      ledger.verdict = IdempotencyStore.applied("receipt 1")
      assert.deepInclude(yield* drive(one("verify", ab)), { status: "ok", replayed: true, result: "receipt 1" })
      assert.deepStrictEqual(yield* states(store), ["a applied"])
      assert.deepInclude(yield* drive(one("verify", ab)), { status: "ok", replayed: true, result: "receipt 1" })
      assert.strictEqual(ledger.asked, 2)
      ledger.does = ["fails before", "fails before", "pays"]
      yield* drive(one("verify", { key: "b" }))
      ledger.verdict = IdempotencyStore.notApplied
      assert.deepInclude(yield* drive(one("verify", { key: "b" })), { status: "ok", started: true })
      assert.deepStrictEqual(ledger.paid, ["a", "b"])
    }))

  it.effect("verify: whoever fails, dies, hangs or answers nonsense when asked knows nothing", () =>
    Effect.gen(function*() {
      for (
        const nonsense of [
          Effect.fail("down"),
          Effect.die("broken"),
          Effect.never,
          Effect.succeed(undefined),
          Effect.interrupt
        ]
      ) {
        const { ledger, one, store } = yield* setUp()
        ledger.does = ["fails after"]
        yield* drive(one("verify", ab))
        ledger.asking = nonsense
        assert.deepInclude(yield* drive(one("verify", ab, { deadline: "1 hour" })), { code: "in_doubt" })
        assert.deepStrictEqual(yield* states(store), ["a unknown"])
      }
    }))

  it.effect("record is never interrupted; forward and verify are, and their effect is unknown then", () =>
    Effect.gen(function*() {
      for (const name of ["record", "forward", "verify"]) {
        const { ledger, one, store } = yield* setUp()
        ledger.millis = 100
        const stopped = yield* drive(one(name, ab, { cancelOn: Effect.sleep(50) }))
        if (name === "record") {
          assert.deepInclude(stopped, { status: "ok", effect: "applied" })
          assert.deepStrictEqual(yield* states(store), ["a applied"])
        } else {
          assert.deepInclude(stopped, { status: "cancelled", effect: "unknown", retryable: true })
          assert.deepStrictEqual(yield* states(store), ["a unknown"])
        }
      }
    }))
})

describe("R23: running here, or elsewhere", () => {
  it.effect("a call whose key is at work waits for its end, and takes no permit", () =>
    Effect.gen(function*() {
      const { ledger, run } = yield* setUp()
      ledger.millis = 100
      const events: Array<TurnEvent.TurnEvent> = []
      const outcomes = yield* drive(run(
        [
          ToolCall.make("1", "bank", ab),
          ToolCall.make("2", "bank", ab),
          ToolCall.make("3", "bank", { key: "b" })
        ],
        { onEvent: (event) => events.push(event) }
      ))
      assert.deepStrictEqual(outcomes.map((one) => [one.status, one.started, one.replayed]), [
        ["ok", true, undefined],
        ["ok", false, true],
        ["ok", true, undefined]
      ])
      assert.deepStrictEqual(ledger.runs.map(({ at, key }) => [key, at]), [["a", 0], ["b", 100]])
    }))

  it.effect("when the one at work frees the key, the next one runs", () =>
    Effect.gen(function*() {
      const { ledger, run } = yield* setUp()
      ledger.does = ["declines", "pays"]
      const outcomes = yield* drive(run([1, 2, 3].map((n) => ToolCall.make(`${n}`, "record", ab))))
      assert.deepStrictEqual(outcomes.map((one) => [one.status, one.replayed]), [
        ["error", undefined],
        ["ok", undefined],
        ["ok", true]
      ])
      assert.deepStrictEqual(ledger.paid, ["a"])
    }))

  it.effect("a wait for a key is under the clock of waiting, and ends with a stop", () =>
    Effect.gen(function*() {
      const { ledger, one, run } = yield* setUp()
      ledger.does = ["hangs"]
      const first = yield* fork(run([ToolCall.make("1", "forward", ab)]))
      yield* TestClock.adjust(10)
      assert.deepInclude(yield* drive(one("forward", ab), 60_000), { status: "timeout", code: "queue", started: false })
      assert.deepInclude(yield* drive(one("forward", ab, { deadline: 50 }), 50), {
        status: "cancelled",
        code: "by_deadline",
        started: false,
        effect: "none"
      })
      assert.strictEqual(ledger.runs.length, 1)
      first.interruptUnsafe()
      yield* TestClock.adjust(1)
    }))

  it.effect("two processes: one runs, the other waits and has its result", () =>
    Effect.gen(function*() {
      const { ledger, one, rows } = yield* setUp()
      const other = yield* processOf(ledger, rows)
      ledger.millis = 70_000
      const first = yield* fork(one("record", ab))
      yield* TestClock.adjust(20_000)
      const second = yield* fork(other.one("record", ab))
      yield* TestClock.adjust(60_000)
      assert.deepInclude(yield* ended(first), { status: "ok", started: true })
      assert.deepInclude(yield* ended(second), { status: "ok", started: false, replayed: true })
      assert.strictEqual(ledger.runs.length, 1)
    }))

  it.effect("what a lost process had begun is in doubt when its lease is over, and not before", () =>
    Effect.gen(function*() {
      const { ledger, rows, store } = yield* setUp()
      const digest = `record {"key":"a","sum":5}`
      const key = { tenant: "acme", tool: "record", key: "a" }
      yield* store.reserve(key, { digest, owner: "a process that has died" })
      const other = yield* processOf(ledger, rows)
      const waiting = yield* fork(other.one("record", ab))
      yield* TestClock.adjust(29_000)
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust(3_000)
      assert.deepInclude(yield* ended(waiting), { code: "in_doubt" })
      assert.strictEqual(ledger.runs.length, 0)
      const [entry] = yield* store.list({ state: "unknown" })
      assert.deepInclude(entry, { key, state: "unknown" })
    }))

  it.effect("a long write keeps its key, for as long as its process is there", () =>
    Effect.gen(function*() {
      const { close, ledger, one, store } = yield* setUp({ lease: "1 second" })
      ledger.does = ["hangs"]
      const fiber = yield* fork(one("record", ab, { grace: "1 second" }))
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(yield* states(store), ["a reserved"])
      fiber.interruptUnsafe()
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* states(store), ["a reserved"])
      const closing = yield* fork(close)
      yield* TestClock.adjust("1 minute")
      yield* ended(closing)
      assert.deepStrictEqual(yield* states(store), ["a unknown"])
    }))

  it.effect("R14: a call inside a call with the same key does not wait for it", () =>
    Effect.gen(function*() {
      const setting = yield* setUp()
      const inner: { outcome?: Outcome.Encoded } = {}
      setting.ledger.nested = Effect.map(setting.oneInside("wide", ab), (outcome) => {
        inner.outcome = outcome
      })
      assert.deepInclude(yield* drive(setting.one("wide", ab)), { status: "ok" })
      assert.deepInclude(inner.outcome, { code: "deadlock", started: false })
    }))
})

/** A store whose steps take time, or fail, as a test says. */
const slow = (
  rows: TurnStore.TurnStore["Service"],
  how: (step: string, go: Effect.Effect<any, TurnStore.StoreError>) => Effect.Effect<any, TurnStore.StoreError>
): TurnStore.TurnStore["Service"] => ({
  get: (...args) => how("get", rows.get(...args)),
  insert: (...args) => how("insert", rows.insert(...args)),
  change: (kind, id, expected, patch) =>
    how(patch === undefined ? "remove" : "change", rows.change(kind, id, expected, patch)),
  list: (...args) => how("list", rows.list(...args)),
  expire: (...args) => how("expire", rows.expire(...args))
})

const down = new TurnStore.StoreError({ store: "test", operation: "change", description: "it is down" })

describe("R21: the start, step by step", () => {
  it.effect("a stop while the key is being reserved frees it", () =>
    Effect.gen(function*() {
      for (const after of [true, false]) {
        const ledger = new Ledger()
        const rows = yield* rowsOf
        const { one } = yield* processOf(
          ledger,
          slow(rows, (step, go) =>
            step !== "insert" ? go : after ? Effect.delay(go, 100) : Effect.tap(go, () => Effect.sleep(100)))
        )
        const outcome = yield* drive(one("record", ab, { cancelOn: Effect.sleep(50) }))
        assert.deepInclude(outcome, { status: "cancelled", started: false, effect: "none", retryable: true })
        assert.strictEqual(ledger.runs.length, 0)
        assert.deepStrictEqual(yield* rows.list({ kind: "key", limit: 10 }), [])
      }
    }))

  it.effect("a store that cannot be asked starts nothing; a lost answer leaves no reservation behind", () =>
    Effect.gen(function*() {
      const ledger = new Ledger()
      const rows = yield* rowsOf
      let broken = true
      const { one } = yield* processOf(
        ledger,
        slow(rows, (step, go) => broken && step === "insert" ? Effect.andThen(go, Effect.fail(down)) : go)
      )
      assert.deepInclude(yield* drive(one("record", ab)), {
        code: "store_unavailable",
        started: false,
        effect: "none",
        retryable: true
      })
      assert.strictEqual(ledger.runs.length, 0)
      broken = false
      assert.deepInclude(yield* drive(one("record", ab)), { status: "ok", started: true })
    }))

  it.effect("what cannot be written down is answered truly, and is in doubt for whoever comes next", () =>
    Effect.gen(function*() {
      const ledger = new Ledger()
      const rows = yield* rowsOf
      let broken = true
      const { one } = yield* processOf(
        ledger,
        slow(rows, (step, go) => broken && step === "change" ? Effect.fail(down) : go)
      )
      assert.deepInclude(yield* drive(one("record", ab)), { status: "ok", effect: "applied", result: "receipt 1" })
      broken = false
      assert.deepInclude(yield* drive(one("record", ab)), { code: "in_doubt" })
      assert.deepStrictEqual(ledger.paid, ["a"])
    }))

  it.effect("a short outage does not cost the record", () =>
    Effect.gen(function*() {
      const ledger = new Ledger()
      const rows = yield* rowsOf
      let failures = 3
      const { one, store } = yield* processOf(
        ledger,
        slow(rows, (step, go) => step === "change" && failures-- > 0 ? Effect.fail(down) : go)
      )
      yield* drive(one("record", ab))
      assert.deepStrictEqual(yield* states(store), ["a applied"])
    }))

  it.effect("R20: what is given up keeps its key, and its late end is what is recorded", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.millis = 1_000
      const fiber = yield* fork(one("short", ab, { grace: 100 }))
      yield* TestClock.adjust(200)
      assert.deepInclude(yield* ended(fiber), { status: "timeout", effect: "unknown", retryable: false })
      assert.deepStrictEqual(yield* states(store), ["a reserved"])
      yield* TestClock.adjust(1_000)
      assert.deepStrictEqual(yield* states(store), ["a applied"])
      assert.deepInclude(yield* drive(one("short", ab)), { status: "ok", replayed: true, result: "receipt 1" })
    }))

  it.effect("a result that is too long is not kept, and that it was applied is", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp({ maxResult: 1_000 })
      ledger.result = () => "x".repeat(2_000)
      assert.deepInclude(yield* drive(one("record", ab)), { status: "ok" })
      const again = yield* drive(one("record", ab))
      assert.deepInclude(again, { code: "unencodable_result", started: false, effect: "applied", retryable: false })
      assert.include(again.message, "longer than is kept")
      assert.strictEqual(ledger.runs.length, 1)
    }))

  it.effect("a tool that needs a store is refused without one, before anything runs", () =>
    Effect.gen(function*() {
      const ledger = new Ledger()
      const { handlers, toolkit } = stageOf(ledger)
      const error = yield* Turn.run(toolkit, [ToolCall.make("1", "record", ab)]).pipe(
        Effect.provide(Layer.mergeAll(Turn.layer(), handlers, Layer.succeed(TurnContext.Tenant, "t"))),
        Effect.flip
      ) as Effect.Effect<TurnError.TurnError>
      assert.include(error.message, `tool "record": expected a layer of "effect-turn/IdempotencyStore"`)
    }))
})

describe("R23, R24: a key, and runs that are tried again", () => {
  it.effect("the key is kept from the first attempt to the last, and recorded once", () =>
    Effect.gen(function*() {
      const { ledger, run, store } = yield* setUp()
      ledger.does = ["declines", "declines", "pays"]
      const attempts: Array<string> = []
      const fiber = yield* fork(run([ToolCall.make("1", "stubborn", ab), ToolCall.make("2", "stubborn", ab)], {
        onEvent: (event) => event._tag === "CallStarted" && attempts.push(`${event.id}/${event.attempt}`)
      }))
      yield* TestClock.adjust(30)
      assert.deepStrictEqual(yield* states(store), ["a reserved"])
      yield* TestClock.adjust(100_000)
      const outcomes = yield* ended(fiber)
      assert.deepStrictEqual(outcomes.map((one) => [one.status, one.attempts, one.replayed]), [
        ["ok", 3, undefined],
        ["ok", undefined, true]
      ])
      assert.deepStrictEqual(attempts, ["1/1", "1/2", "1/3"])
      assert.deepStrictEqual(yield* states(store), ["a applied"])
    }))

  it.effect("what is left in doubt by the last attempt is in doubt", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["declines", "fails after"]
      assert.deepInclude(yield* drive(one("stubborn", ab)), { code: "failed", effect: "unknown", attempts: 2 })
      assert.deepStrictEqual(yield* states(store), ["a unknown"])
      assert.deepInclude(yield* drive(one("stubborn", ab)), { code: "in_doubt" })
      assert.strictEqual(ledger.runs.length, 2)
    }))
})

describe("R23, R25: a key whose write is undone", () => {
  it.effect("our own record frees it, a backend that honours it remembers it, and a failed undo leaves it in doubt", () =>
    Effect.gen(function*() {
      for (const name of ["record", "forward"] as const) {
        const { ledger, one, run, store } = yield* setUp()
        ledger.does = ["pays", "fails before", "pays"]
        const unit = (key: string) =>
          run([ToolCall.make("1", `${name}_undo`, { key }), ToolCall.make("2", "none", { key: "z" })], {
            siblings: Siblings.allOrNothing
          })
        const [first] = yield* drive(unit("a"))
        assert.deepInclude(first, { status: "cancelled", effect: "none", undo: "done", retryable: name === "record" })
        assert.deepStrictEqual(yield* states(store), name === "record" ? [] : ["a undone"])
        const again = yield* drive(one(`${name}_undo`, { key: "a" }))
        if (name === "record") assert.deepInclude(again, { status: "ok", started: true })
        else {
          assert.deepInclude(again, { code: "key_reused", started: false })
          assert.include(again.message, "undone")
        }
        ledger.does = ["pays", "fails before"]
        ledger.runs.length = 0
        ledger.undoing = Effect.fail("it cannot be undone")
        const [failed] = yield* drive(unit("b"))
        assert.deepInclude(failed, { status: "cancelled", effect: "unknown", undo: "failed", retryable: false })
        assert.include(yield* states(store), "b unknown")
      }
    }))

  it.effect("what may still be undone is told to nobody else", () =>
    Effect.gen(function*() {
      const { ledger, one, run } = yield* setUp()
      ledger.does = ["pays", "pays", "pays"]
      const unit = yield* fork(
        run([ToolCall.make("1", "record_undo", ab), ToolCall.make("2", "none", { key: "slow" })], {
          siblings: Siblings.allOrNothing
        })
      )
      yield* TestClock.adjust(30)
      const other = yield* fork(one("record_undo", ab))
      yield* TestClock.adjust(100)
      assert.isUndefined(other.pollUnsafe())
      yield* TestClock.adjust(1_000)
      assert.deepStrictEqual((yield* ended(unit)).map((outcome) => outcome.status), ["ok", "ok"])
      assert.deepInclude(yield* ended(other), { status: "ok", replayed: true })
    }))
})

describe("R3, R23: a doubt is not lost by an attempt to end it", () => {
  it.effect("a stop after the key was taken over leaves it in doubt", () =>
    Effect.gen(function*() {
      for (const name of ["forward", "verify"] as const) {
        const ledger = new Ledger()
        const rows = yield* rowsOf
        let lag = 0
        const { one, store } = yield* processOf(ledger, slow(rows, (_, go) => lag === 0 ? go : Effect.delay(go, lag)))
        ledger.does = ["fails after"]
        yield* drive(one(name, ab))
        assert.deepStrictEqual(yield* states(store), ["a unknown"])
        lag = 100
        for (const at of [50, 150]) {
          const outcome = yield* drive(one(name, ab, { cancelOn: Effect.sleep(at) }))
          assert.isFalse(outcome.started, `${name} at ${at}`)
          lag = 0
          assert.deepStrictEqual(yield* states(store), ["a unknown"], `${name} at ${at}`)
          lag = 100
        }
      }
    }))

  it.effect("forward: a no to the second request says nothing of the first", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["fails after", "declines", "pays"]
      yield* drive(one("forward", ab))
      const second = yield* drive(one("forward", ab))
      assert.deepInclude(second, { code: "failed", started: true, effect: "unknown", retryable: true })
      assert.isUndefined(second.attempts)
      assert.deepStrictEqual(yield* states(store), ["a unknown"])
      assert.deepInclude(yield* drive(one("forward", ab)), { status: "ok", effect: "applied" })
    }))

  it.effect("verify: what was certainly not done is free again after a no", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp()
      ledger.does = ["fails before", "declines"]
      yield* drive(one("verify", ab))
      ledger.verdict = IdempotencyStore.notApplied
      assert.deepInclude(yield* drive(one("verify", ab)), { code: "failed", effect: "none" })
      assert.deepStrictEqual(yield* states(store), [])
    }))
})

describe("R21: a turn that is run again", () => {
  const again = (
    first: ReadonlyArray<ToolCall.ToolCall>,
    second: ReadonlyArray<ToolCall.ToolCall>
  ) =>
    Effect.gen(function*() {
      const setting = yield* setUp()
      const journal = yield* Layer.build(Layer.fresh(TurnJournal.layerMemory))
      const run = (calls: ReadonlyArray<ToolCall.ToolCall>) =>
        drive(Effect.provide(setting.run(calls, { turn: "t1", dedupe: "off" }), journal))
      return [yield* run(first), yield* run(second), setting] as const
    })
  const pay = (id: string, name: string, key: string, sum: number) => ToolCall.make(id, name, { key, sum })

  it.effect("gives no call the outcome of another one, and writes none of it down", () =>
    Effect.gen(function*() {
      for (const ids of [["1", "2"], ["x", "y"]] as const) {
        const [, second, { ledger, one, store }] = yield* again(
          [pay("1", "none", "ann", 10), pay("2", "record", "ann", 10)],
          [pay(ids[0], "none", "ben", 500), pay(ids[1], "record", "ben", 500)]
        )
        assert.deepStrictEqual(second.map((outcome) => [outcome.status, codeOf(outcome), outcome.effect]), [
          ["error", "ambiguous_id", "none"],
          ["error", "ambiguous_id", "none"]
        ])
        assert.include(second[0]!.message, `"t1"`)
        assert.deepStrictEqual(yield* states(store), ["ann applied"])
        assert.deepInclude(yield* drive(one("record", { key: "ben", sum: 500 })), { status: "ok", started: true })
        assert.strictEqual(ledger.runs.length, 3)
      }
    }))

  it.effect("knows its calls by their place and content, whatever their ids are by now", () =>
    Effect.gen(function*() {
      const calls = (a: string, b: string) => [pay(a, "none", "ann", 10), pay(b, "record", "ann", 10)]
      const [first, second, { ledger }] = yield* again(calls("1", "2"), calls("x", "y"))
      assert.deepStrictEqual(second.map((outcome) => [outcome.id, outcome.status, outcome.effect]), [
        ["x", "ok", "applied"],
        ["y", "ok", "applied"]
      ])
      assert.deepStrictEqual(second.map((outcome) => "result" in outcome && outcome.result), [
        "receipt 1",
        "receipt 2"
      ])
      assert.strictEqual(first.length, 2)
      assert.strictEqual(ledger.runs.length, 2)
    }))

  it.effect("calls in another order are other calls", () =>
    Effect.gen(function*() {
      const [, second] = yield* again(
        [pay("1", "none", "ann", 10), pay("2", "forward", "ann", 10)],
        [pay("2", "forward", "ann", 10), pay("1", "none", "ann", 10)]
      )
      assert.deepStrictEqual(second.map(codeOf), ["ambiguous_id", "ambiguous_id"])
    }))
})

describe("R23: how long a key is kept", () => {
  it.effect("what may be forgotten is free, whether or not somebody has removed it", () =>
    Effect.gen(function*() {
      const { ledger, one, store } = yield* setUp({ keep: "1 hour" })
      yield* drive(one("record", ab), 1_000)
      yield* TestClock.adjust("50 minutes")
      assert.deepInclude(yield* drive(one("record", ab), 1_000), { replayed: true })
      yield* TestClock.adjust("20 minutes")
      assert.deepStrictEqual(yield* states(store), [])
      assert.deepInclude(yield* drive(one("record", { key: "a", sum: 7 }), 1_000), { status: "ok", started: true })
      assert.strictEqual(ledger.runs.length, 2)
      yield* TestClock.adjust("2 hours")
      assert.strictEqual(yield* store.expire, 1)
    }))

  it.effect("a key may be made of whose it is", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp()
      yield* drive(one("placed", ab, {}, TurnContext.make({ tenant: "acme", conversation: "one" })))
      yield* drive(one("placed", ab, {}, TurnContext.make({ tenant: "acme" })))
      assert.deepStrictEqual(ledger.runs.map(({ key }) => key), ["acme/one/a", "acme/undefined/a"])
      ledger.does = ["fails after"]
      const failed = yield* drive(one("placed", { key: "b" }))
      assert.deepInclude(failed, { code: "failed", retryable: true })
      assert.include(failed.message, "is safe")
    }))
})

describe("R20, R24, R25: at the edges", () => {
  it.effect("the question what became of an attempt has a clock of its own, which is not that of waiting", () =>
    Effect.gen(function*() {
      const { ledger, one } = yield* setUp()
      ledger.does = ["fails after"]
      ledger.asking = Effect.delay(Effect.succeed(IdempotencyStore.applied("receipt 1")), 100)
      assert.deepInclude(yield* drive(one("asked", ab)), { status: "ok", effect: "applied", result: "receipt 1" })
      assert.strictEqual(ledger.runs.length, 1)
    }))

  it.effect("what a toolkit's own `handle` has done is undone too", () =>
    Effect.gen(function*() {
      const { context, ledger, toolkit } = yield* setUp()
      ledger.does = ["pays", "fails before"]
      let undone = 0
      ledger.undoing = Effect.sync(() => undone++)
      const calls = [ToolCall.make("1", "record_undo", ab), ToolCall.make("2", "none", { key: "z" })]
      const outcomes = yield* drive(
        Effect.flatMap(toolkit, (handled) => Turn.run(handled, calls, { siblings: Siblings.allOrNothing })).pipe(
          Effect.provide(context)
        )
      )
      assert.deepInclude(outcomes[0], { status: "cancelled", effect: "none", undo: "done" })
      assert.strictEqual(undone, 1)
    }))
})

it.effect("R5: answers from one record do not share memory", () =>
  Effect.gen(function*() {
    const Fare = pipe(
      Tool.make("fare", { parameters: Params, success: Schema.Struct({ left: Schema.mutableKey(Schema.Finite) }) }),
      ToolPolicy.write({ keys: () => [] }),
      ToolPolicy.repeatable,
      IdempotencyStore.record(key)
    )
    const toolkit = Toolkit.make(Fare)
    const services = yield* Layer.build(
      Layer.mergeAll(
        Turn.layer(),
        toolkit.toLayer({ fare: () => Effect.succeed({ left: 3 }) }),
        Layer.fresh(IdempotencyStore.layerMemory)
      )
    )
    const calls = [1, 2, 3].map((n) => ToolCall.make(`${n}`, "fare", ab))
    const outcomes = yield* drive(
      Turn.run(toolkit, calls).pipe(Effect.provide(Context.merge(who, services)))
    )
    assert.deepStrictEqual(outcomes.map((outcome) => outcome.replayed), [undefined, true, true])
    const results = outcomes.map((outcome) => {
      if (outcome.status !== "ok") throw new Error("expected three results")
      return outcome.result
    })
    results[0]!.left = 0
    results[1]!.left = 1
    assert.deepStrictEqual(results, [{ left: 0 }, { left: 1 }, { left: 3 }])
  }))
