import { assert, describe, it } from "@effect/vitest"
import { Handler, type Outcome, ToolCall, ToolPolicy, type Turn, TurnContext, type TurnEvent } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { ended, fork, runWith, words } from "./utils/kit.ts"

const nothing = { toolCallId: "c1", preliminary: () => Effect.void }

/** A promise that a test settles at a time of the test clock, whatever its signal says. */
const timed = <A>(ms: number, settle: () => A) =>
  Effect.map(Effect.context<never>(), (context) => {
    const { promise, reject, resolve } = Promise.withResolvers<A>()
    let end = ""
    Effect.runForkWith(context)(Effect.andThen(
      Effect.sleep(ms),
      Effect.sync(() => {
        end = "settled"
        try {
          resolve(settle())
        } catch (error) {
          reject(error)
        }
      })
    ))
    return { promise, end: () => end }
  })

/** Lets the microtasks of real promises run. */
const settle = Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))

const pass = (ms: number) => Effect.andThen(TestClock.adjust(ms), settle)

describe("Handler.promise", () => {
  it.effect("gives parameters, signal, id and progress to the function, and its value to the call", () =>
    Effect.gen(function*() {
      const notes: Array<unknown> = []
      const handler = Handler.promise(async ({ n }: { readonly n: number }, { preliminary, signal, toolCallId }) => {
        preliminary(n)
        await Promise.resolve()
        preliminary(n + 1)
        return [n * 2, signal.aborted, toolCallId]
      })
      const value = yield* handler({ n: 4 }, {
        toolCallId: "c1",
        preliminary: (note) => Effect.sync(() => notes.push(note))
      })
      assert.deepStrictEqual(value as unknown, [8, false, "c1"])
      assert.deepStrictEqual(notes, [4, 5])
    }))

  it.effect("a rejection is a defect, unless `onError` makes it the tool's failure", () =>
    Effect.gen(function*() {
      const boom = new Error("boom")
      for (
        const broken of [
          () => Promise.reject(boom),
          () => {
            throw boom
          },
          () =>
            new Proxy({}, {
              get() {
                throw boom
              }
            })
        ]
      ) {
        const dies = yield* Effect.exit(Handler.promise(broken as () => Promise<never>)({}, nothing))
        assert.isTrue(Exit.isFailure(dies) && Cause.squash(dies.cause) === boom && Cause.hasDies(dies.cause))
        const fails = Handler.promise(broken as () => Promise<never>, { onError: (error) => (error as Error).message })
        assert.strictEqual(yield* Effect.flip(fails({}, nothing)), "boom")
        const worse = Handler.promise(broken as () => Promise<never>, {
          onError: () => {
            throw new Error("worse")
          }
        })
        const exit = yield* Effect.exit(worse({}, nothing))
        assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause))
      }
    }))

  it.effect("a value in a promise's place is a value", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* Handler.promise((() => 7) as unknown as () => Promise<number>)({}, nothing), 7)
    }))

  it.effect("R22: an interruption aborts the signal, and waits for a promise that ignores it", () =>
    Effect.gen(function*() {
      const { end, promise } = yield* timed(100, () => "late")
      let aborted = false
      const fiber = yield* fork(
        Handler.promise((_: object, { signal }) => {
          signal.addEventListener("abort", () => {
            aborted = true
          })
          return promise
        })({}, nothing)
      )
      yield* pass(10)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* pass(89)
      assert.deepStrictEqual([aborted, stopping.pollUnsafe()], [true, undefined])
      yield* pass(1)
      yield* ended(stopping)
      assert.strictEqual(end(), "settled")
    }))

  it.effect("R22: one that hears it ends at once, and its rejection is nobody's", () =>
    Effect.gen(function*() {
      const fiber = yield* fork(
        Handler.promise((_: object, { signal }) =>
          new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)))
        )({}, nothing)
      )
      yield* pass(10)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* settle
      yield* ended(stopping)
      const exit = fiber.pollUnsafe()!
      assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
    }))

  it.effect("an interruption that comes when the promise has settled waits for nothing", () =>
    Effect.gen(function*() {
      const { promise } = yield* timed(10, () => "done")
      const fiber = yield* fork(Handler.promise(() => promise)({}, nothing))
      yield* pass(10)
      assert.strictEqual(yield* ended(fiber), "done")
    }))
})

describe("R20, R22: a promise handler in a turn", () => {
  const turn = (
    access: "read" | "write" | "put",
    work: (signal: AbortSignal) => Promise<unknown>,
    options: Turn.Options,
    steps: ReadonlyArray<number>
  ) =>
    Effect.gen(function*() {
      const tool = pipe(
        Tool.make("t", { parameters: Schema.Struct({}), success: Schema.Unknown, failure: Schema.String }),
        access === "read" ? ToolPolicy.read({ keys: () => [] }) : ToolPolicy.write({ keys: () => [] }),
        access === "put" ? ToolPolicy.forward<any>(() => "key") : (tool) => tool
      )
      const events: Array<TurnEvent.TurnEvent> = []
      const fiber = yield* fork(
        runWith([tool], { t: Handler.promise((_: object, { signal }) => work(signal), { onError: String }) }, [
          ToolCall.make("a", "t")
        ], {
          ...options,
          onEvent: (event) => {
            events.push(event)
          }
        })
      )
      for (const step of steps) yield* pass(step)
      const [outcome] = yield* ended(fiber)
      return { outcome: outcome!, events }
    })

  const at = (events: ReadonlyArray<TurnEvent.TurnEvent>, tag: TurnEvent.TurnEvent["_tag"]) =>
    events.filter((event) => event._tag === tag).map((event) => event.at)

  it.effect("a read that is deaf to its timeout is waited for, and then answered `timeout`", () =>
    Effect.gen(function*() {
      const { promise } = yield* timed(12_000, () => "late")
      const { events, outcome } = yield* turn("read", () => promise, {}, [10_000, 1999, 1])
      assert.deepStrictEqual(words([outcome]), ["timeout/handler"])
      assert.deepStrictEqual(at(events, "CallEnded"), [12_000])
    }))

  it.effect("within its grace alone: then it is left to the supervisor, and its late end is told", () =>
    Effect.gen(function*() {
      const { promise } = yield* timed(30_000, () => "late")
      const { events, outcome } = yield* turn("read", () => promise, { deadline: 50, grace: 100 }, [50, 100, 40_000])
      assert.deepStrictEqual(words([outcome]), ["cancelled/by_deadline"])
      assert.deepStrictEqual([at(events, "CallEnded"), at(events, "CallSettledLate")], [[150], [30_000]])
    }))

  it.effect("a keyed write that settles after its stop is told truly", () =>
    Effect.gen(function*() {
      const good = yield* timed(100, () => "done")
      const ok = yield* turn("put", () => good.promise, { deadline: 50 }, [50, 50])
      assert.deepStrictEqual([words([ok.outcome]), ok.outcome.effect], [["ok"], "applied"])
      const bad = yield* timed(100, () => {
        throw new Error("refused")
      })
      const failed = yield* turn("put", () => bad.promise, { deadline: 50 }, [50, 50])
      assert.deepStrictEqual(words([failed.outcome]), ["error/failed"])
      assert.include((failed.outcome as Outcome.Failed<string, string>).failure, "refused")
    }))

  it.effect("a write without a key never sees an aborted signal", () =>
    Effect.gen(function*() {
      const { promise } = yield* timed(200, () => "done")
      let aborted = false
      const { outcome } = yield* turn(
        "write",
        (signal) => {
          signal.addEventListener("abort", () => {
            aborted = true
          })
          return promise
        },
        { deadline: 50 },
        [50, 150]
      )
      assert.deepStrictEqual([words([outcome]), aborted], [["ok"], false])
    }))

  it.effect("progress moves the silence limit", () =>
    Effect.gen(function*() {
      const tool = pipe(
        Tool.make("t", { parameters: Schema.Struct({}), success: Schema.Unknown }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.idleTimeout(100)
      )
      const { promise } = yield* timed(150, () => "done")
      let note: (result: unknown) => void = () => {}
      const handler = Handler.promise((_: object, { preliminary }) => {
        note = preliminary
        return promise
      })
      const fiber = yield* fork(runWith([tool], { t: handler }, [ToolCall.make("a", "t")]))
      yield* pass(60)
      note("here")
      yield* pass(90)
      assert.deepStrictEqual(words(yield* ended(fiber)), ["ok"])
    }))

  it.effect("knows its call", () =>
    Effect.gen(function*() {
      const tool = pipe(
        Tool.make("t", { parameters: Schema.Struct({}), success: Schema.Unknown }),
        ToolPolicy.read({ keys: () => [] })
      )
      const fiber = yield* fork(
        runWith([tool], { t: Handler.promise((_: object, { toolCallId }) => Promise.resolve(toolCallId)) }, [
          ToolCall.make("a", "t")
        ])
      )
      yield* pass(0)
      const [outcome] = yield* ended(fiber)
      assert.strictEqual((outcome as any).result, "a")
      assert.isUndefined(yield* Effect.map(TurnContext.CurrentCall, (current) => current))
    }))
})
