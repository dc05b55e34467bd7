/** Clocks, stops, the grace, and what is left to the supervisor. */
import { assert, describe, it } from "@effect/vitest"
import { type Outcome, Siblings, ToolCall, ToolPolicy, Turn, type TurnEvent } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { Api, call, drive, ended, fork, idle, lab, run, runWith, toolkit, words } from "../utils/kit.ts"

const facts = (outcome: Outcome.Outcome<any>) => [outcome.started, outcome.effect, outcome.retryable] as const

const limited = (...policies: ReadonlyArray<(tool: Tool.Any) => Tool.Any>): Tool.Any =>
  policies.reduce(
    (tool, policy) => policy(tool),
    Tool.make("t", { parameters: Schema.Struct({}), success: Schema.Unknown, failure: Schema.String }) as Tool.Any
  )

/** The outcome of one call of a tool with these policies, and when it came. */
const alone = (
  policies: ReadonlyArray<(tool: Tool.Any) => Tool.Any>,
  handler: (params: unknown, context: any) => Effect.Effect<unknown, unknown>,
  options?: Turn.Options
) =>
  Effect.gen(function*() {
    const events: Array<TurnEvent.TurnEvent> = []
    const [outcome] = yield* drive(runWith([limited(...policies)], { t: handler }, [ToolCall.make("a", "t")], {
      ...options,
      onEvent: (event) => {
        events.push(event)
      }
    }))
    const start = events[0]!.at
    const at = (event: TurnEvent.TurnEvent) => event.at - start
    const of = <Tag extends TurnEvent.TurnEvent["_tag"]>(tag: Tag) =>
      events.filter((event): event is Extract<TurnEvent.TurnEvent, { readonly _tag: Tag }> => event._tag === tag)
    return { outcome: outcome!, at: at(of("CallEnded")[0]!), after: at, of }
  })

const read = ToolPolicy.read({ keys: () => [] })
const write = ToolPolicy.write({ keys: () => [] })
const forward = ToolPolicy.forward<any>(() => "key")

describe("R15: each clock is its own", () => {
  it.effect("running: ten seconds unless a tool says more or less", () =>
    Effect.gen(function*() {
      const plain = yield* alone([read], () => Effect.never)
      assert.deepStrictEqual([words([plain.outcome]), plain.at], [["timeout/handler"], 10_000])
      assert.deepStrictEqual((plain.outcome as Outcome.TimedOut).limit, { clock: "timeout", millis: 10_000 })
      const short = yield* alone([read, ToolPolicy.timeout(50)], () => Effect.never)
      assert.strictEqual(short.at, 50)
      const long = yield* alone([read, ToolPolicy.timeout("infinite")], () => Effect.sleep(500_000))
      assert.deepStrictEqual([words([long.outcome]), long.at], [["error/unencodable_result"], 500_000])
    }))

  it.effect("a call that ends at the very moment of its limit has one answer", () =>
    Effect.gen(function*() {
      const { of, outcome } = yield* alone([read, ToolPolicy.timeout(50)], () => Effect.as(Effect.sleep(50), 1))
      assert.include(["ok", "timeout"], outcome.status)
      assert.strictEqual(of("CallEnded").length, 1)
    }))

  it.effect("silence: progress moves it, and nothing else; it works with nobody listening", () =>
    Effect.gen(function*() {
      const silent = [read, ToolPolicy.idleTimeout(100), ToolPolicy.timeout(500)]
      const notes =
        (n: number) => (_: unknown, { preliminary }: { preliminary: (note: string) => Effect.Effect<void> }) =>
          Effect.gen(function*() {
            for (let i = 0; i < n; i++) {
              yield* Effect.sleep(60)
              yield* preliminary(`note ${i}`)
            }
            return "done"
          })
      const five = yield* alone(silent, notes(5))
      assert.deepStrictEqual([words([five.outcome]), five.at], [["ok"], 300])
      const endless = yield* alone(silent, notes(1000))
      assert.deepStrictEqual([words([endless.outcome]), endless.at], [["timeout/handler"], 500])
      assert.strictEqual((endless.outcome as Outcome.TimedOut).limit.clock, "timeout")
      const mute = yield* alone(silent, () => Effect.never)
      assert.deepStrictEqual([words([mute.outcome]), mute.at], [["timeout/handler"], 100])
      assert.deepStrictEqual((mute.outcome as Outcome.TimedOut).limit, { clock: "idleTimeout", millis: 100 })
      const quiet = yield* drive(runWith([limited(...silent)], { t: notes(5) }, [ToolCall.make("a", "t")]))
      assert.deepStrictEqual(words(quiet), ["ok"])
    }))

  it.effect("waiting: for keys and permits together, sixty seconds unless a tool says more or less", () =>
    Effect.gen(function*() {
      const slow = pipe(
        Tool.make("slow", { parameters: Schema.Struct({}), success: Schema.Unknown }),
        ToolPolicy.write({ keys: () => ["k"] }),
        ToolPolicy.timeout("infinite")
      )
      const patient = pipe(
        Tool.make("patient", { parameters: Schema.Struct({}), success: Schema.Unknown }),
        ToolPolicy.write({ keys: () => ["k"] })
      )
      const hasty = pipe(
        Tool.make("hasty", { parameters: Schema.Struct({}), success: Schema.Unknown }),
        ToolPolicy.read({ keys: () => ["k"] }),
        ToolPolicy.waitTimeout(50)
      )
      const ran: Array<string> = []
      const note = (name: string, ms: number) => () =>
        Effect.andThen(Effect.sync(() => ran.push(name)), Effect.as(Effect.sleep(ms), 1))
      const events: Array<TurnEvent.TurnEvent> = []
      const outcomes = yield* drive(
        runWith([slow, patient, hasty], {
          slow: note("slow", 70_000),
          patient: note("patient", 1),
          hasty: note("hasty", 1)
        }, [
          ToolCall.make("a", "slow"),
          ToolCall.make("b", "patient"),
          ToolCall.make("c", "hasty")
        ], {
          onEvent: (event) => {
            events.push(event)
          }
        })
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "timeout/queue", "timeout/queue"])
      assert.deepStrictEqual(outcomes.slice(1).map(facts), [[false, "none", true], [false, "none", true]])
      assert.deepStrictEqual(outcomes.slice(1).map((one) => (one as Outcome.TimedOut).limit), [
        { clock: "waitTimeout", millis: 60_000 },
        { clock: "waitTimeout", millis: 50 }
      ])
      assert.deepStrictEqual(events.filter((event) => event._tag === "CallEnded").map((event) => event.at), [
        50,
        60_000,
        70_000
      ])
      assert.deepStrictEqual(ran, ["slow"])
    }))

  it.effect("a waiting clock that ran out gives the place in line to the next", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { a: { ms: 9000 }, b: { ms: 9000 } } })
      const outcomes = yield* drive(
        run([call("fetch", "a"), call("fetch", "b"), ...Array.from({ length: 7 }, (_, i) => call("fetch", `c${i}`))])
          .pipe(
            Effect.provide(layer)
          )
      )
      assert.deepStrictEqual(words(outcomes), Array.from({ length: 9 }, () => "ok"))
      assert.deepStrictEqual(book.span("c6"), [18_060, 18_070])
    }))

  it.effect("the whole turn: waiting and running together", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 20 }, b: { ms: 90 }, c: { ms: 90 } } })
      const outcomes = yield* drive(
        run([call("read", "a"), call("read", "b", ["k"]), call("write", "c", ["k"])], {
          deadline: 50,
          onEvent: book.note
        }).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_deadline", "cancelled/by_deadline"])
      assert.deepStrictEqual(outcomes.map(facts), [[true, "none", false], [true, "none", true], [false, "none", true]])
      assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 50)
    }))

  it.effect("the deadline holds while the intake still asks", () =>
    Effect.gen(function*() {
      const asks = pipe(
        Tool.make("asks", {
          parameters: Schema.Struct({}),
          success: Schema.Unknown,
          needsApproval: () => Effect.never
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const outcomes = yield* drive(
        runWith([asks], { asks: () => Effect.succeed(1) }, [ToolCall.make("a", "asks")], { deadline: 50 })
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
      assert.deepStrictEqual(facts(outcomes[0]!), [false, "none", true])
    }))
})

describe("R20: a write that has started", () => {
  it.effect("is not cut by its own clock: an event says so, and its true outcome is reported", () =>
    Effect.gen(function*() {
      const done = yield* alone([write, ToolPolicy.timeout(50)], () => Effect.as(Effect.sleep(80), 1))
      assert.deepStrictEqual([words([done.outcome]), done.at], [["ok"], 80])
      assert.deepStrictEqual(done.of("CallOverdue").map((event) => [done.after(event), event.clock]), [[50, "timeout"]])
      const failed = yield* alone(
        [write, ToolPolicy.timeout(50)],
        () => Effect.andThen(Effect.sleep(80), Effect.fail("no"))
      )
      assert.deepStrictEqual([words([failed.outcome]), failed.at], [["error/failed"], 80])
      const mute = yield* alone([write, ToolPolicy.idleTimeout(30)], () => Effect.as(Effect.sleep(80), 1))
      assert.deepStrictEqual([words([mute.outcome]), mute.at], [["ok"], 80])
    }))

  it.effect("is cut by it when it carries a key, and its effect is then unknown", () =>
    Effect.gen(function*() {
      const { at, of, outcome } = yield* alone([write, forward, ToolPolicy.timeout(50)], () => Effect.never)
      assert.deepStrictEqual([words([outcome]), at, facts(outcome)], [["timeout/handler"], 50, [true, "unknown", true]])
      assert.deepStrictEqual(of("CallOverdue"), [])
    }))

  it.effect("of which nothing is heard within the grace is given up: timeout, effect unknown", () =>
    Effect.gen(function*() {
      const { at, of, outcome } = yield* alone([write, ToolPolicy.timeout(50)], () => Effect.as(Effect.sleep(200), 1), {
        grace: 30
      })
      assert.deepStrictEqual([words([outcome]), at, facts(outcome)], [["timeout/handler"], 80, [
        true,
        "unknown",
        false
      ]])
      assert.deepStrictEqual(of("TurnEnded").map((event) => event.unsettled), [1])
    }))

  for (const how of ["cancelOn", "deadline", "interrupt", "sibling"] as const) {
    it.effect(`is not cut by a stop (${how}), nor run twice; the stop waits`, () =>
      Effect.gen(function*() {
        const { book, layer } = lab({
          api: { concurrency: 1 },
          script: { w: { ms: 100 }, p: { ms: 100 }, r: { ms: 100 }, f: { ms: 30, end: "fail" } }
        })
        const closed: Array<Turn.Closed> = []
        const fiber = yield* fork(
          run([
            call("write", "w", ["k"]),
            call("put", "p", ["l"]),
            call("read", "r"),
            call("read", "f"),
            call("write", "later", ["k"])
          ], {
            ...(how === "cancelOn" ? { cancelOn: Effect.as(Effect.sleep(30), "user") } : undefined),
            ...(how === "deadline" ? { deadline: 30 } : undefined),
            ...(how === "sibling"
              ? { siblings: { name: "fast", stops: (verdict) => verdict._tag === "failure" } }
              : undefined),
            onEvent: book.note,
            onClosed: (one) => Effect.sync(() => closed.push(one))
          }).pipe(Effect.provide(layer))
        )
        if (how === "interrupt") {
          yield* TestClock.adjust(30)
          yield* fork(Fiber.interrupt(fiber))
        }
        yield* TestClock.adjust(1000)
        const exit = fiber.pollUnsafe()!
        assert.strictEqual(exit._tag, how === "interrupt" ? "Failure" : "Success")
        const { outcomes } = closed[0]!
        const code = how === "deadline" ? "by_deadline" : how === "sibling" ? "by_sibling" : "by_caller"
        assert.deepStrictEqual(words(outcomes).filter((_, i) => i !== 3), [
          "ok",
          `cancelled/${code}`,
          `cancelled/${code}`,
          `cancelled/${code}`
        ])
        assert.deepStrictEqual(facts(outcomes[0]!), [true, "applied", false])
        assert.deepStrictEqual(facts(outcomes[1]!), [true, "unknown", true])
        assert.deepStrictEqual(facts(outcomes[2]!), [true, "none", true])
        assert.deepStrictEqual(facts(outcomes[4]!), [false, "none", true])
        assert.deepStrictEqual([book.span("w"), book.span("p"), book.span("r")], [[0, 100], [0, 30], [0, 30]])
        assert.strictEqual(book.count("later"), 0)
        assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 100)
        assert.deepStrictEqual(book.atWork, [])
      }))
  }
})

describe("R19: who stopped it, and the first reason stands", () => {
  it.effect("the caller's own word is kept", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: 100 } } })
      const stop = (reason: string | void) =>
        drive(run([call("read", "a")], { cancelOn: Effect.as(Effect.sleep(5), reason) }).pipe(Effect.provide(layer)))
      assert.strictEqual(((yield* stop("budget"))[0] as Outcome.Cancelled).reason, "budget")
      assert.isUndefined(((yield* stop(undefined))[0] as Outcome.Cancelled).reason)
    }))

  it.effect("a handler that interrupts itself is stopped by itself, and nobody else is touched", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { end: "interrupt" }, b: { ms: 50 }, c: { end: "interrupt" } } })
      const outcomes = yield* drive(
        run([call("read", "a"), call("read", "b"), call("write", "c", ["k"])]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_itself", "ok", "cancelled/by_itself"])
      assert.deepStrictEqual([facts(outcomes[0]!), facts(outcomes[2]!)], [[true, "none", true], [
        true,
        "unknown",
        false
      ]])
    }))

  it.effect("a stop is not followed by a timeout, nor a timeout by a stop", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        script: { stopped: { ms: 60_000, cleanup: 20_000 }, late: { ms: Infinity, cleanup: 200 } }
      })
      const outcomes = yield* drive(
        run([call("read", "stopped"), call("read", "late")], {
          grace: "infinite",
          cancelOn: Effect.as(Effect.sleep(10_100), "user"),
          onEvent: book.note
        }).pipe(Effect.provide(layer))
      )
      // Both ran out of time at 10,000; the stop came while the second cleaned up.
      assert.deepStrictEqual(words(outcomes), ["timeout/handler", "timeout/handler"])
      const again = lab({ script: { stopped: { ms: 60_000, cleanup: 20_000 } } })
      const first = yield* drive(
        run([call("read", "stopped")], { grace: "infinite", cancelOn: Effect.as(Effect.sleep(9_990), "user") }).pipe(
          Effect.provide(again.layer)
        )
      )
      assert.deepStrictEqual(words(first), ["cancelled/by_caller"])
    }))

  it.effect("the first of two stops stands", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 100, cleanup: 50 }, w: { ms: 90 } } })
      const outcomes = yield* drive(
        run([call("read", "a"), call("write", "w", ["k"]), call("write", "x", ["k"])], {
          deadline: 20,
          cancelOn: Effect.as(Effect.sleep(30), "user"),
          onEvent: book.note
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "ok", "cancelled/by_deadline"])
      assert.deepStrictEqual(book.tagsOf("TurnStopped").map((event) => (event as TurnEvent.TurnStopped).code), [
        "by_deadline"
      ])
    }))

  it.effect("cancelOn: what fails or breaks stops the turn and says so, what is interrupted does not", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: 100 } } })
      const stop = (cancelOn: Effect.Effect<any, any>) =>
        drive(run([call("read", "a")], { cancelOn: cancelOn as Effect.Effect<void> }).pipe(Effect.provide(layer)))
      const broke = (yield* stop(Effect.delay(Effect.die(new Error("no bus")), 5)))[0]!
      assert.deepStrictEqual(words([broke]), ["cancelled/by_caller"])
      assert.include((broke as Outcome.Cancelled).reason, "no bus")
      assert.deepStrictEqual(words(yield* stop(Effect.delay(Effect.interrupt, 5))), ["ok"])
    }))

  it.effect("cancelOn: is ended with the turn", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      let end = ""
      const cancelOn = Effect.onExit(Effect.never, (exit) =>
        Effect.sync(() => {
          end = Exit.hasInterrupts(exit) ? "interrupted" : exit._tag
        }))
      yield* drive(run([call("read", "a")], { cancelOn }).pipe(Effect.provide(layer)), 10)
      assert.strictEqual(end, "interrupted")
    }))

  it.effect("cancelOn: obeys a stop in its own time, also where the grace is nothing, whatever the order of fibers", () =>
    Effect.gen(function*() {
      const logged: Array<string> = []
      const logger = Logger.make(({ message }) => void logged.push(String(message)))
      const { layer } = lab({ script: { r: { ms: Infinity } } })
      const program = Effect.gen(function*() {
        const fiber = yield* Effect.forkChild(run([call("read", "r", [])], { grace: 0, cancelOn: Effect.never }))
        yield* Effect.sleep(10)
        yield* Fiber.interrupt(fiber)
      }).pipe(Effect.provide([layer, Logger.layer([logger])]))
      const { distinct } = yield* Simulation.explore(program, { seeds: 300 })
      assert.isAbove(distinct, 100)
      assert.deepStrictEqual(logged, [])
    }))

  it.effect("cancelOn that has succeeded already: nothing starts, and nothing is asked", () =>
    Effect.gen(function*() {
      let asked = false
      const asks = Tool.make("asks", {
        parameters: Schema.Struct({}),
        success: Schema.Unknown,
        needsApproval: () => {
          asked = true
          return Effect.never
        }
      })
      const outcomes = yield* drive(
        runWith(
          [asks],
          { asks: () => Effect.succeed(1) },
          [ToolCall.make("a", "asks"), ToolCall.make("b", "asks", "{")],
          {
            cancelOn: Effect.succeed("user")
          }
        )
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
      assert.isFalse(asked)
    }))
})

describe("a stop from inside", () => {
  it.effect("of a listener: nothing more starts, and the step that was told of is whole", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 2 }, script: { a: { ms: 20 } } })
      const stop = yield* Deferred.make<string>()
      const outcomes = yield* drive(
        run(["a", "b", "c", "d"].map((tag) => call("fetch", tag)), {
          cancelOn: Deferred.await(stop),
          onEvent: (event) => {
            book.note(event)
            if (event._tag === "CallEnded" && event.id === "b") Deferred.doneUnsafe(stop, Exit.succeed("listener"))
          }
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes).slice(0, 2), ["cancelled/by_caller", "ok"])
      assert.deepStrictEqual(words(outcomes).slice(3), ["cancelled/by_caller"])
      assert.strictEqual(book.count("d"), 0)
      assert.strictEqual(book.tagsOf("CallEnded").length, 4)
    }))

  it.effect("of a handler, before it has waited for anything: a read is stopped, a write is told truly", () =>
    Effect.gen(function*() {
      for (const name of ["read", "write"] as const) {
        const { book, layer } = lab()
        const gate = yield* Deferred.make<string>()
        let stop: Effect.Effect<unknown> = Effect.void
        book.script.set("first", { run: Deferred.await(gate) })
        book.script.set("a", {
          run: Effect.suspend(() => {
            Effect.runFork(stop)
            return Effect.as(Effect.sleep(10), "done")
          })
        })
        yield* Effect.gen(function*() {
          const calls = [call("write", "first", ["k"]), call(name, "a", ["k"]), call("read", "later", ["k"])]
          const handle = yield* Turn.start(toolkit, calls, { execution: "sequential" })
          stop = handle.cancel("itself")
          yield* Deferred.succeed(gate, "open")
          yield* TestClock.adjust(100)
          const outcomes = yield* ended(yield* fork(handle.await))
          assert.deepStrictEqual(words(outcomes), [
            "ok",
            name === "read" ? "cancelled/by_caller" : "ok",
            "cancelled/by_caller"
          ])
          assert.deepStrictEqual(outcomes.map((one) => one.started), [true, true, false])
        }).pipe(Effect.scoped, Effect.provide(layer))
      }
    }))
})

describe("R20: the grace", () => {
  it.effect("five seconds for reads, without end for writes", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { r: { ms: 20_000, deaf: true }, w: { ms: 30_000 } } })
      const fiber = yield* fork(
        run([call("read", "r"), call("write", "w", ["k"])], { deadline: 1000, onEvent: book.note }).pipe(
          Effect.provide(layer)
        )
      )
      yield* TestClock.adjust(100_000)
      const outcomes = yield* ended(fiber)
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "ok"])
      assert.deepStrictEqual(book.tagsOf("CallEnded").map((event) => event.at), [6000, 30_000])
    }))

  it.effect("what a read comes to within it is not told, a write's true end is", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { r: { ms: 40, deaf: true }, w: { ms: 50, end: "fail" }, x: { ms: 50 } } })
      const outcomes = yield* drive(
        run([call("read", "r"), call("write", "w", ["k"]), call("write", "x", ["l"])], { deadline: 10, grace: 100 })
          .pipe(
            Effect.provide(layer)
          )
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "error/failed", "ok"])
    }))

  it.effect("a read whose clean-up breaks after a stop is still stopped; a write's is a defect", () =>
    Effect.gen(function*() {
      const breaking = () => Effect.onInterrupt(Effect.sleep(100), () => Effect.die(new Error("the clean-up broke")))
      const stopped = yield* alone([read], breaking, { deadline: 10 })
      assert.deepStrictEqual(words([stopped.outcome]), ["cancelled/by_deadline"])
      const keyed = yield* alone([write, forward], breaking, { deadline: 10 })
      assert.deepStrictEqual([words([keyed.outcome]), facts(keyed.outcome)], [["error/defect"], [
        true,
        "unknown",
        false
      ]])
    }))

  it.effect("runs once: a stop while a timeout's grace runs does not begin another", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: Infinity, cleanup: 100_000 } } })
      const outcomes = yield* drive(
        run([call("read", "a")], { grace: 1000, deadline: 10_500, onEvent: book.note }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/handler"])
      assert.deepStrictEqual(book.tagsOf("CallEnded").map((event) => event.at), [11_000])
    }))

  it.effect("when it is over the call is answered, its keys and permit stay held, and its late end is an event", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ api: { concurrency: 1 }, script: { w: { ms: 500 } } })
      yield* Effect.gen(function*() {
        const runtime = yield* Turn.Runtime
        const first = yield* fork(
          run([call("post", "w", ["k"])], { turn: "one", deadline: 20, grace: 30, onEvent: book.note })
        )
        yield* TestClock.adjust(60)
        const outcomes = yield* ended(first)
        assert.deepStrictEqual([words(outcomes), facts(outcomes[0]!)], [["cancelled/by_deadline"], [
          true,
          "unknown",
          false
        ]])
        assert.deepStrictEqual(yield* runtime.unsettled, [
          { tenant: "t", turn: "one", position: 0, id: "w", tool: "post", outcome: outcomes[0]! }
        ])
        assert.deepStrictEqual((yield* Api.stats).running, 1)

        const second = yield* fork(
          run([call("read", "byKey", ["k"]), call("fetch", "byPermit"), call("read", "free", ["l"])])
        )
        yield* TestClock.adjust(10_000)
        assert.deepStrictEqual(words(yield* ended(second)), ["ok", "ok", "ok"])
        assert.deepStrictEqual(
          [book.span("w"), book.span("byKey"), book.span("byPermit"), book.span("free")],
          [[0, 500], [500, 510], [500, 510], [60, 70]]
        )
        const late = book.tagsOf("CallSettledLate") as ReadonlyArray<TurnEvent.CallSettledLate>
        assert.deepStrictEqual(late.map((event) => [event.at, event.turn, event.position, event.outcome.status]), [[
          500,
          "one",
          0,
          "ok"
        ]])
        assert.deepStrictEqual(yield* runtime.unsettled, [])
        assert.deepStrictEqual(yield* Api.stats, idle(1))
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("of nothing: a stop answers at once, and what does not end at once is left to the supervisor", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { quick: { ms: 100 }, slow: { ms: 100, cleanup: 50 }, w: { ms: 100 } } })
      const outcomes = yield* drive(
        run([call("read", "quick"), call("read", "slow"), call("write", "w", ["k"])], {
          deadline: 20,
          grace: 0,
          onEvent: book.note
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "cancelled/by_deadline",
        "cancelled/by_deadline",
        "cancelled/by_deadline"
      ])
      const [end] = book.tagsOf("TurnEnded") as ReadonlyArray<TurnEvent.TurnEnded>
      assert.deepStrictEqual([end!.at, end!.unsettled], [20, 2])
      assert.deepStrictEqual(book.tagsOf("CallSettledLate").map((event) => event.at), [70, 100])
    }))

  it.effect("a late death is observed, and answers nobody", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { w: { ms: 500, end: "die" } } })
      const outcomes = yield* drive(
        run([call("write", "w", ["k"])], { deadline: 20, grace: 30, onEvent: book.note }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
      const late = book.tagsOf("CallSettledLate") as ReadonlyArray<TurnEvent.CallSettledLate>
      assert.deepStrictEqual(words(late.map((event) => event.outcome)), ["error/defect"])
    }))

  it.effect("what was given up does not count against the turn's own limit", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { w: { ms: 60_000 } } })
      const outcomes = yield* drive(
        run([call("write", "w", ["k"]), call("read", "a"), call("read", "b")], { execution: 1, grace: 100 }).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/handler", "ok", "ok"])
      assert.deepStrictEqual([book.span("a"), book.span("b")], [[10_100, 10_110], [10_110, 10_120]])
    }))

  it.effect("R12: what waits for a call that was given up, in the same turn, waits for its true end", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { w: { ms: 20_000 } } })
      yield* drive(
        run([call("write", "w", ["k"]), call("read", "a", ["k"])], { grace: 100 }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(book.span("a"), [20_000, 20_010])
    }))
})

describe("R14: a turn that ends in the step in which its permit comes back", () => {
  it.effect("hands it on to a turn that waits for it", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({
        api: { concurrency: 1 },
        script: { slow: { ms: 30 }, fails: { end: "fail" }, now: { ms: 0 } }
      })
      yield* Effect.gen(function*() {
        // The last call starts when the second has failed; it ends at once, and that is enough: the first is stopped in this step.
        const first = yield* fork(
          run([call("fetch", "slow", []), call("read", "fails", []), call("read", "now", [])], {
            siblings: Siblings.quorum(1),
            execution: 2
          })
        )
        const second = yield* fork(run([call("fetch", "next", [])]))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(first)), ["cancelled/by_sibling", "error/failed", "ok"])
        yield* ended(second)
        assert.deepStrictEqual([book.span("slow"), book.span("next")], [[0, 10], [10, 20]])
      }).pipe(Effect.provide(layer))
    }))
})

describe("R12: calls that are stopped before their start", () => {
  it.effect("open the way for nobody: what they stood for stands again, also where several stood one above the other", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { read: { ms: Infinity, cleanup: 20 } } })
      yield* Effect.gen(function*() {
        // The read is behind a call of unknown reach, and that behind a write of the read's own key.
        const handle = yield* Turn.start(toolkit, [
          call("read", "read", ["k"]),
          call("bare", "all"),
          call("write", "w", ["k"])
        ])
        yield* TestClock.adjust(5)
        yield* fork(handle.cancel("user"))
        const later = yield* fork(run([call("write", "later", ["k"]), call("write", "other", ["o"])]))
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* ended(yield* fork(handle.await))), [
          "cancelled/by_caller",
          "cancelled/by_caller",
          "cancelled/by_caller"
        ])
        yield* ended(later)
        assert.deepStrictEqual(book.span("read"), [0, 25])
        assert.deepStrictEqual(book.span("later"), [25, 35])
        assert.deepStrictEqual(book.span("other"), [5, 15])
      }).pipe(Effect.scoped, Effect.provide(layer))
    }))
})

describe("R4: a fiber that is interrupted", () => {
  it.effect("closes the turn first, and tells every outcome to whoever asked", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 100, cleanup: 40 }, b: { ms: 5 } } })
      const closed: Array<Turn.Closed> = []
      const calls = [
        call("read", "a", ["k"]),
        call("read", "b"),
        call("write", "c", ["k"]),
        ToolCall.make("d", "nobody")
      ]
      const fiber = yield* fork(
        run(calls, { onClosed: (one) => Effect.andThen(Effect.sleep(7), Effect.sync(() => closed.push(one))) }).pipe(
          Effect.provide(layer)
        )
      )
      yield* TestClock.adjust(20)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(39)
      assert.isUndefined(stopping.pollUnsafe())
      assert.deepStrictEqual(book.atWork.map((one) => one.tag), ["a"])
      yield* TestClock.adjust(7)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual(closed[0]!.calls, calls)
      assert.deepStrictEqual(words(closed[0]!.outcomes), [
        "cancelled/by_caller",
        "ok",
        "cancelled/by_caller",
        "error/unknown_tool"
      ])
      assert.strictEqual((closed[0]!.outcomes[0] as Outcome.Cancelled).reason, "interrupted")
    }))

  it.effect("inside Effect.timeout, too", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 100 } } })
      let told = 0
      const result = yield* drive(
        Effect.timeoutOption(
          run([call("read", "a")], {
            onClosed: ({ outcomes }) =>
              Effect.sync(() => {
                told = outcomes.length
              })
          }),
          30
        ).pipe(Effect.provide(layer))
      )
      assert.strictEqual(result._tag, "None")
      assert.strictEqual(told, 1)
      assert.deepStrictEqual(book.span("a"), [0, 30])
    }))

  it.effect("an `onClosed` that breaks does not take the outcomes away", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      for (
        const onClosed of [
          () => Effect.die("boom"),
          () => {
            throw new Error("boom")
          },
          () => undefined as any
        ]
      ) {
        const outcomes = yield* drive(run([call("read", "a")], { onClosed }).pipe(Effect.provide(layer)))
        assert.deepStrictEqual(words(outcomes), ["ok"])
      }
    }))

  it.effect("a listener that throws does not hurt the turn", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const outcomes = yield* drive(
        run([call("read", "a")], {
          onEvent: () => {
            throw new Error("boom")
          }
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok"])
    }))
})

describe("R36: shutdown", () => {
  const build = (options: Turn.LayerOptions, script: NonNullable<Parameters<typeof lab>[0]>["script"]) =>
    Effect.gen(function*() {
      const { book, layer } = lab({ runtime: options, ...(script === undefined ? undefined : { script }) })
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer, scope)
      return { book, scope, context, close: Scope.close(scope, Exit.void) }
    })

  it.effect("stops the turns that run, answers them, and takes no new ones", () =>
    Effect.gen(function*() {
      const { book, close, context } = yield* build({}, { a: { ms: 1000, cleanup: 20 }, w: { ms: 100 } })
      const fiber = yield* fork(Effect.provide(run([call("read", "a"), call("write", "w", ["k"])]), context))
      yield* TestClock.adjust(10)
      const closing = yield* fork(close)
      const refused = yield* Effect.flip(Effect.provide(run([call("read", "b")]), context))
      assert.strictEqual(refused.reason._tag, "ShutDown")
      yield* TestClock.adjust(89)
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(closing)
      const outcomes = yield* ended(fiber)
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok"])
      assert.strictEqual((outcomes[0] as Outcome.Cancelled).reason, "shutdown")
      assert.deepStrictEqual(book.atWork, [])
    }))

  it.effect("awaits them where that was asked for", () =>
    Effect.gen(function*() {
      const { close, context } = yield* build({ shutdown: "await" }, { a: { ms: 1000 }, b: { ms: 300 } })
      const fiber = yield* fork(Effect.provide(run([call("read", "a", ["k"]), call("write", "b", ["k"])]), context))
      yield* TestClock.adjust(10)
      const closing = yield* fork(close)
      yield* TestClock.adjust(1289)
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(closing)
      assert.deepStrictEqual(words(yield* ended(fiber)), ["ok", "ok"])
    }))

  it.effect("a turn inside a call that is awaited belongs to that call: it is taken in, and ends with it", () =>
    Effect.gen(function*() {
      for (const shutdown of ["await", "stop"] as const) {
        const { book, close, context } = yield* build({ shutdown }, {})
        book.script.set("outer", {
          run: Effect.andThen(Effect.sleep(50), run([call("write", "inner", ["k"])])).pipe(
            Effect.map(words),
            Effect.orDie
          )
        })
        const fiber = yield* fork(Effect.provide(run([call("write", "outer", ["k"])]), context))
        yield* TestClock.adjust(10)
        const closing = yield* fork(close)
        yield* TestClock.adjust(100)
        yield* ended(closing)
        const [outcome] = yield* ended(fiber)
        assert.deepStrictEqual([outcome!.status, (outcome as any).result], ["ok", ["ok"]], shutdown)
      }
    }))

  it.effect("what was given up before is awaited for its own grace, and then named", () =>
    Effect.gen(function*() {
      const named: Array<Turn.Unsettled> = []
      const { book, close, context } = yield* build(
        { shutdownGrace: 200, onUnsettled: (left) => Effect.sync(() => named.push(...left)) },
        { w: { ms: 100_000 }, x: { ms: 150 } }
      )
      const fiber = yield* fork(
        Effect.provide(
          run([call("write", "w", ["k"]), call("write", "x", ["l"])], { turn: "one", deadline: 5, grace: 5 }),
          context
        )
      )
      yield* TestClock.adjust(20)
      yield* ended(fiber)
      const closing = yield* fork(close)
      yield* TestClock.adjust(199)
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(closing)
      assert.deepStrictEqual(named.map(({ id, position, turn }) => [turn, position, id]), [["one", 0, "w"]])
      assert.strictEqual(book.of("x").end, "ok")
      yield* TestClock.adjust(200_000)
    }))

  it.effect("closing while a grace runs ends, and names what it left", () =>
    Effect.gen(function*() {
      const named: Array<string> = []
      const { close, context } = yield* build(
        { shutdownGrace: 50, onUnsettled: (left) => Effect.sync(() => named.push(...left.map((one) => one.id))) },
        { w: { ms: 100_000 }, r: { ms: 100_000, deaf: true } }
      )
      const fiber = yield* fork(
        Effect.provide(run([call("write", "w", ["k"]), call("read", "r")], { grace: 30 }), context)
      )
      yield* TestClock.adjust(10)
      const closing = yield* fork(close)
      yield* TestClock.adjust(30)
      assert.deepStrictEqual(words(yield* ended(fiber)), ["cancelled/by_caller", "cancelled/by_caller"])
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust(50)
      yield* ended(closing)
      assert.deepStrictEqual(named, ["w", "r"])
      yield* TestClock.adjust(200_000)
    }))

  it.effect("impossible limits are refused where they are written", () =>
    Effect.sync(() => {
      for (const shutdownGrace of [0, -1, NaN, Infinity, 3_000_000_000]) {
        assert.throws(() => Turn.layer({ shutdownGrace }), /shutdownGrace/)
      }
    }))

  it.effect("a toolkit's turn after shutdown fails with a typed error", () =>
    Effect.gen(function*() {
      const { close, context } = yield* build({}, {})
      yield* close
      const exit = yield* Effect.exit(Effect.provide(Turn.run(toolkit, []), context))
      assert.isTrue(Exit.isFailure(exit))
      assert.isTrue(Context.isContext(context) && Toolkit !== undefined)
    }))
})
