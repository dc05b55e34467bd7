import { assert, describe, it } from "@effect/vitest"
import {
  Agent,
  Approval,
  ParkedTurns,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnError,
  TurnJournal,
  TurnStore
} from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { type Book, call, drive, fork, lab, toolkit, tools, words } from "./utils/kit.ts"

const calls = [call("read", "r", ["k"]), call("pay", "p", ["k"]), call("write", "w", ["k"])]
const decisions = [{ position: 1, decision: Approval.approve() }]

/** A database that outlives the processes that use it. */
const database = Layer.build(Layer.fresh(TurnStore.layerMemory))

/** A process with the database: runtime, parked turns and journal of its own. `breaks` is asked before each step of the store. */
const process = (
  context: Context.Context<TurnStore.TurnStore>,
  breaks: () => Effect.Effect<void, TurnStore.StoreError> = () => Effect.void
) => {
  const shared = Context.get(context, TurnStore.TurnStore)
  const step =
    <A extends ReadonlyArray<any>, B>(f: (...args: A) => Effect.Effect<B, TurnStore.StoreError>) => (...args: A) =>
      Effect.andThen(Effect.suspend(breaks), f(...args))
  const store = Layer.succeed(TurnStore.TurnStore, {
    get: step(shared.get),
    insert: step(shared.insert),
    change: step(shared.change),
    list: step(shared.list),
    expire: step(shared.expire)
  })
  return Layer.mergeAll(
    Layer.fresh(Turn.layer()),
    Layer.provide(Layer.mergeAll(Layer.fresh(ParkedTurns.layer()), Layer.fresh(TurnJournal.layer())), store)
  )
}

const inLab = <A, E>(
  use: (book: Book, database: Context.Context<TurnStore.TurnStore>) => Effect.Effect<A, E, any>,
  script?: NonNullable<Parameters<typeof lab>[0]>["script"]
) => {
  const { book, layer } = lab(script === undefined ? {} : { script })
  return Effect.scoped(Effect.flatMap(database, (context) => use(book, context))).pipe(
    Effect.provide(layer)
  ) as Effect.Effect<
    A,
    E
  >
}

const parkAndSave = (turn = "one") =>
  Effect.gen(function*() {
    const result = yield* drive(Turn.runOrPark(toolkit, calls, { turn }))
    if (result._tag !== "Parked") throw new Error("expected a parked turn")
    yield* ParkedTurns.save(result.parked)
  })

const goOn = (options: Turn.ResumeOptions = { decisions }, turn = "one") =>
  ParkedTurns.resume(turn, Turn.Parked, (parked) => Turn.resume(toolkit, parked, options))

const down = () =>
  Effect.fail(new TurnStore.StoreError({ store: "it", operation: "change", description: "the cable is cut" }))

const reasonOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<string, A, R> =>
  Effect.map(
    Effect.flip(effect),
    (error: any) => error._tag === "ParkedTurnError" ? error.reason : `${error._tag}: ${error.message}`
  )

const saved = Effect.flatMap(ParkedTurns.ParkedTurns, (turns) => turns.get("one"))

describe("R10: a parked turn is kept", () => {
  it.effect("and another process goes on with it, as often as it takes", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* Effect.provide(parkAndSave(), process(database))
        yield* TestClock.adjust("9 days")
        const again = yield* drive(Effect.provide(goOn({}), process(database)))
        assert.deepStrictEqual(words(again.outcomes), ["ok", "pending_approval", "deferred/waits_for_approval"])
        assert.strictEqual((yield* Effect.provide(saved, process(database)))!.state, "waiting")
        const last = yield* drive(Effect.provide(goOn(), process(database)))
        assert.deepStrictEqual([last._tag, words(last.outcomes)], ["Closed", ["ok", "ok", "ok"]])
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "p", "w"])
        assert.isUndefined(yield* Effect.provide(saved, process(database)))
        assert.strictEqual(yield* reasonOf(Effect.provide(goOn(), process(database))), "not_parked")
      })
    ))

  it.effect("with tools that have changed it is refused with the reason, and still there for the right ones", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* parkAndSave()
        const other = Toolkit.make(
          pipe(
            Tool.make("pay", { parameters: Schema.Struct({ euros: Schema.Int }) }),
            ToolPolicy.write({ keys: () => [] })
          )
        )
        const resumed = ParkedTurns.resume("one", Turn.Parked, (parked) => Turn.resume(other, parked, { decisions }))
          .pipe(
            Effect.provide(other.toLayer({ pay: () => Effect.void }))
          )
        const error = yield* Effect.flip(drive(resumed))
        assert.instanceOf(error, TurnError.TurnError)
        assert.include(error.message, 'the tool "pay" of the parked turn: expected the same parameters and access')
        assert.strictEqual((yield* saved)!.state, "waiting")
        assert.deepStrictEqual(words((yield* drive(goOn())).outcomes), ["ok", "ok", "ok"])
        assert.strictEqual(book.count("p"), 1)
      }).pipe(Effect.provide(process(database)))
    ))

  it.effect("of two processes that resume it at once one runs it, and the other is refused", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* Effect.provide(parkAndSave(), process(database))
        const all = yield* drive(Effect.forEach(
          [1, 2, 3, 4],
          () => Effect.result(Effect.provide(goOn(), process(database))),
          { concurrency: "unbounded" }
        ))
        const won = all.find((one) => one._tag === "Success")
        assert.deepStrictEqual(words(won!.success.outcomes), ["ok", "ok", "ok"])
        const lost = all.filter((one) => one._tag === "Failure").map((one: any) => one.failure.reason)
        assert.strictEqual(lost.length, 3)
        assert.isTrue(lost.every((reason) => reason === "claimed" || reason === "not_parked"))
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "p", "w"])
      })
    ))

  it.effect("a process that dies in the middle leaves it to the next one, which runs nothing twice where there is a journal", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* Effect.provide(parkAndSave(), process(database))
        // It runs `p`, and dies while it runs `w`: from then on nothing of it reaches the database.
        let dead = false
        const first = yield* fork(Effect.provide(goOn(), process(database, () => dead ? Effect.never : Effect.void)))
        yield* TestClock.adjust(15)
        assert.deepStrictEqual(book.runs.map(({ end, tag }) => [tag, end]), [["r", "ok"], ["p", "ok"], [
          "w",
          undefined
        ]])
        dead = true
        yield* TestClock.adjust(29_000)
        assert.strictEqual(yield* reasonOf(Effect.provide(goOn(), process(database))), "claimed")
        yield* TestClock.adjust(31_000)
        const second = yield* drive(Effect.provide(goOn(), process(database)))
        assert.deepStrictEqual(words(second.outcomes), ["ok", "ok", "error/in_doubt"])
        assert.strictEqual(second.outcomes[2]!.effect, "unknown")
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["r", "p", "w"])
        assert.isUndefined(yield* Effect.provide(saved, process(database)))
        first.interruptUnsafe()
      })
    ))

  it.effect("an interruption before anything ran gives it back at once, and one in the middle too", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* parkAndSave()
        const resumed = yield* fork(goOn())
        yield* TestClock.adjust(5)
        yield* fork(Fiber.interrupt(resumed))
        yield* TestClock.adjust(100)
        assert.isDefined(resumed.pollUnsafe())
        assert.strictEqual((yield* saved)!.state, "waiting")
        // What had been started is the journal's, and this process knows it as well.
        const again = yield* drive(Effect.provide(goOn(), process(database)))
        assert.deepStrictEqual(words(again.outcomes), ["ok", "ok", "ok"])
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["r", "p", "w"])
      }).pipe(Effect.provide(process(database)))
    ))

  it.effect("one whose claim is another's by now is stopped, and told so", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* Effect.provide(parkAndSave(), process(database))
        let cut = false
        const late = yield* fork(
          reasonOf(Effect.provide(
            ParkedTurns.resume("one", Turn.Parked, () => Effect.never),
            process(database, () => cut ? down() : Effect.void)
          ))
        )
        yield* TestClock.adjust(1_000)
        cut = true
        yield* TestClock.adjust(60_000)
        const started = yield* Deferred.make<void>()
        const next = yield* fork(Effect.provide(
          ParkedTurns.resume("one", Turn.Parked, () =>
            Effect.andThen(Deferred.succeed(started, undefined), Effect.never)),
          process(database)
        ))
        yield* Deferred.await(started)
        cut = false
        yield* TestClock.adjust(60_000)
        assert.strictEqual(yield* Fiber.join(late), "lost")
        assert.isUndefined(next.pollUnsafe())
        assert.strictEqual(book.count("p"), 0)
      })
    ))

  it.effect("a store that fails: nothing is run without a claim, and no result is lost", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        yield* Effect.provide(parkAndSave(), process(database))
        const never = yield* reasonOf(drive(Effect.provide(goOn(), process(database, down))))
        assert.strictEqual(never, "StoreError: it could not change: the cable is cut")
        assert.strictEqual(book.count("p"), 0)
        // It fails for a moment at the end, and that is not even seen.
        let left = 0
        const short = yield* drive(Effect.provide(
          ParkedTurns.resume("one", Turn.Parked, (parked) => {
            left = 2
            return Effect.succeed({ parked })
          }),
          process(database, () => left-- > 0 ? down() : Effect.void)
        ))
        assert.strictEqual(short.parked.turn, "one")
        assert.strictEqual((yield* Effect.provide(saved, process(database)))!.state, "waiting")
        // And for ever: what it came to is in the error.
        let cut = false
        const error: any = yield* Effect.flip(drive(Effect.provide(
          ParkedTurns.resume("one", Turn.Parked, () =>
            Effect.sync(() => {
              cut = true
              return "done"
            })),
          process(database, () => cut ? down() : Effect.void)
        )))
        assert.deepStrictEqual([error._tag, error.reason, error.result], ["ParkedTurnError", "not_kept", "done"])
        assert.include(error.message, "the cable is cut")
      })
    ))

  it.effect("giving it up answers its calls, and removes it", () =>
    inLab((_, database) =>
      Effect.gen(function*() {
        yield* parkAndSave()
        const outcomes = yield* ParkedTurns.resume(
          "one",
          Turn.Parked,
          (parked) => Turn.abandon(toolkit, parked, "too late")
        )
        assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "cancelled/by_caller"])
        assert.isUndefined(yield* saved)
      }).pipe(Effect.provide(process(database)))
    ))

  it.effect("another tenant finds none", () =>
    inLab((_, database) =>
      Effect.gen(function*() {
        yield* parkAndSave()
        const other = Effect.provide(goOn(), TurnContext.make({ tenant: "other" }))
        assert.strictEqual(yield* reasonOf(other), "not_parked")
        assert.strictEqual((yield* saved)!.state, "waiting")
      }).pipe(Effect.provide(process(database)))
    ))

  it.effect("an agent that waits is kept under its own id, from step to step", () =>
    inLab((book, database) =>
      Effect.gen(function*() {
        const pay = (tag: string) => FakeModel.calls([FakeModel.call(tools.pay, { tag, k: [] })])
        const model = FakeModel.layer([pay("p"), pay("q"), FakeModel.text("Paid.")])
        const options = { toolkit, approval: "park" } as const
        const answers = Effect.gen(function*() {
          const first = yield* Agent.run({ prompt: "pay", id: "a-1", ...options })
          if (first.reason !== "pending_approval") throw new Error(first.reason)
          yield* ParkedTurns.save(first.parked)
          const goOn = Effect.provide(
            ParkedTurns.resume("a-1", Agent.Parked, (parked) =>
              Agent.resume(parked, { ...options, decisions: [{ position: 0, decision: Approval.approve() }] })),
            process(database)
          )
          const second = yield* goOn
          const turns = yield* ParkedTurns.ParkedTurns
          assert.deepStrictEqual([second.reason, (yield* turns.get("a-1"))!.state], ["pending_approval", "waiting"])
          const third = yield* goOn
          assert.isUndefined(yield* turns.get("a-1"))
          return [third.reason, third.text]
        })
        assert.deepStrictEqual(yield* drive(Effect.provide(answers, model)), ["final", "Paid."])
        assert.deepStrictEqual(
          book.runs.map(({ tag }) =>
            tag
          ),
          ["p", "q"]
        )
      }).pipe(Effect.provide(process(database)))
    ))
})
