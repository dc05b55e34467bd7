/**
 * Handlers on real worker threads. Nothing is measured: a worker says where it is in shared memory, the clocks of a turn are
 * virtual, and which threads live is known from their own exit events.
 */
import { NodeWorker } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import {
  Backend,
  Handler,
  Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnEvent
} from "effect-turn"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { Worker } from "node:worker_threads"
import { pick, runs } from "./utils/gen.ts"
import { fork, words } from "./utils/kit.ts"
import { cells, NextDay, Put, Read, Write } from "./workers/tools.ts"

const free = { keys: () => [] }
const toolkit = Toolkit.make(
  pipe(Read, ToolPolicy.read(free), ToolPolicy.repeatable),
  pipe(Write, ToolPolicy.write(free)),
  pipe(Put, ToolPolicy.write(free), ToolPolicy.forward(({ n }) => `key:${n}`)),
  pipe(NextDay, ToolPolicy.read(free))
)

class Cores extends Backend.Service<Cores>()("test/Cores") {}

type Cell = keyof typeof cells

/** A pool with its memory, and every thread that it has had. */
class Lab {
  readonly memory = new Int32Array(new SharedArrayBuffer(64))
  readonly threads: Array<Worker> = []
  readonly alive = new Set<Worker>()
  most = 0
  readonly events: Array<TurnEvent.TurnEvent> = []
  private readonly listeners: Array<(event: TurnEvent.TurnEvent) => void> = []

  constructor() {
    this.memory[cells.open] = 1
  }

  readonly spawn = (): Worker => {
    const worker = new Worker(new URL("./workers/worker.ts", import.meta.url), {
      execArgv: ["--conditions=@effect-turn/source"],
      workerData: this.memory,
      stderr: true
    })
    this.threads.push(worker)
    this.alive.add(worker)
    this.most = Math.max(this.most, this.alive.size)
    worker.on("exit", () => this.alive.delete(worker))
    return worker
  }

  pool(size: number, spawn: (id: number) => Worker = this.spawn) {
    return Handler.worker(toolkit, { size }).pipe(Layer.provide(NodeWorker.layer(spawn)))
  }

  give(cell: Cell, n = 1): void {
    Atomics.add(this.memory, cells[cell], n)
    Atomics.notify(this.memory, cells[cell])
  }

  /** Waits until a worker has said so, and takes it. */
  take(cell: Cell): Effect.Effect<void> {
    return Effect.promise(async () => {
      for (;;) {
        const left = Atomics.load(this.memory, cells[cell])
        if (left > 0 && Atomics.compareExchange(this.memory, cells[cell], left, left - 1) === left) return
        await Atomics.waitAsync(this.memory, cells[cell], left).value
      }
    })
  }

  readonly onEvent = (event: TurnEvent.TurnEvent): void => {
    this.events.push(event)
    for (const listener of this.listeners) listener(event)
  }

  /** Waits until a thread has gone, and the pool knows. */
  gone(index: number): Effect.Effect<void> {
    const thread = this.threads[index]!
    return Effect.promise(async () => {
      if (this.alive.has(thread)) await new Promise<void>((resolve) => thread.once("exit", () => resolve()))
      for (let i = 0; i < 20; i++) await new Promise<void>((resolve) => setImmediate(resolve))
    })
  }

  /** Waits until there have been so many events of a kind. */
  event(tag: TurnEvent.TurnEvent["_tag"], count = 1): Effect.Effect<void> {
    return Effect.promise(() =>
      new Promise<void>((resolve) => {
        const look = () => {
          if (this.events.filter((event) => event._tag === tag).length >= count) resolve()
        }
        this.listeners.push(look)
        look()
      })
    )
  }

  run(calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) {
    return Turn.run(toolkit, calls, { onEvent: this.onEvent, ...options })
  }
}

type Needs = Layer.Success<ReturnType<Lab["pool"]>> | Turn.Runtime | Scope.Scope

/** Threads start in their own time, however long the virtual clock stands still. */
const patience = TestClock.layer({ warningDelay: "1 hour" })

/** One pool of `size`; there are never more threads, and when its scope is closed, none is left. */
const lab = <A>(
  size: number,
  test: (lab: Lab) => Effect.Effect<A, unknown, Needs>,
  before: Partial<Record<Cell, number>> = {}
) => {
  const one = new Lab()
  for (const [cell, value] of Object.entries(before)) one.memory[cells[cell as Cell]] = value
  return Effect.scoped(test(one)).pipe(
    Effect.provide(Layer.provideMerge(Layer.merge(one.pool(size), Turn.layer()), patience)),
    Effect.andThen(Effect.sync(() => {
      assert.strictEqual(one.alive.size, 0, "threads that still run")
      assert.isAtMost(one.most, size)
    }))
  )
}

/** A guard alone: threads load slowly on a busy machine. */
const guard = 120_000

let ids = 0
const read = (does: string, n = 0) => ToolCall.make(`r${ids++}`, "read", { does, n })
const write = (does: string, n = 0) => ToolCall.make(`w${ids++}`, "write", { does, n })
const put = (does: string, n = 0) => ToolCall.make(`p${ids++}`, "put", { does, n })

const result = (outcome: Outcome.Outcome) => Outcome.isOk(outcome) ? outcome.result : outcome.message

describe("Handler.worker", { timeout: guard }, () => {
  it.effect("a size that is no whole number from 1 is refused at once", () =>
    Effect.sync(() => {
      for (const size of [0, -1, 1.5, NaN, Infinity, "2"]) {
        assert.throws(
          () => Handler.worker(toolkit, { size: size as number }),
          /Handler\.worker: the limit "size" must be/
        )
      }
    }))

  it.effect("its threads listen when it is there, and are kept", () =>
    lab(2, (lab) =>
      Effect.gen(function*() {
        assert.strictEqual(lab.alive.size, 2)
        for (let i = 0; i < 3; i++) assert.deepStrictEqual(words(yield* lab.run([read("echo")])), ["ok"])
        assert.strictEqual(lab.threads.length, 2)
      })))

  it.effect("values cross in the forms of their schemas", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const [day, huge] = yield* lab.run([
          ToolCall.make("d", "next_day", { day: "2026-02-28T00:00:00.000Z" }),
          read("huge", 5_000_000)
        ])
        assert.deepStrictEqual(result(day!), { day: new Date("2026-03-01T00:00:00.000Z") })
        assert.strictEqual((result(huge!) as string).length, 5_000_000)
      })))

  it.effect("the call, its identity and its idempotency key cross", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const [outcome] = yield* lab.run([put("who", 7)], { turn: "t1" }).pipe(
          Effect.provide(TurnContext.make({ tenant: "acme", conversation: "c", principal: "ada" }))
        )
        const { call, conversation, principal, toolCallId } = result(outcome!) as any
        assert.deepStrictEqual([conversation, principal, toolCallId], ["c", "ada", outcome!.id])
        assert.deepStrictEqual(
          [call.identity.tenant, call.identity.turn, call.position, call.tool, call.idempotencyKey],
          ["acme", "t1", 0, "put", "key:7"]
        )
      })))

  it.effect("failures are the tool's own, defects have their words, an interruption is the call's", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const outcomes = yield* lab.run(
          ["fail", "otherFailure", "lostFailure", "die", "throw", "dieOfText", "interrupt"].map((does) => read(does))
        )
        assert.deepStrictEqual(words(outcomes), [
          "error/failed",
          "error/failed",
          "error/failed",
          "error/defect",
          "error/defect",
          "error/defect",
          "cancelled/by_itself"
        ])
        const { failure } = outcomes[0] as unknown as Outcome.Failed<"read", { readonly at: Date }>
        assert.deepStrictEqual(failure, { at: new Date(0) })
        assert.include(outcomes[1]!.message, "not of the schema")
        assert.include(outcomes[3]!.message, "RangeError: it broke")
        assert.include(outcomes[4]!.message, "RangeError: it threw")
        assert.include(outcomes[5]!.message, "a text")
        assert.strictEqual(lab.threads.length, 1)
      })))

  it.effect("a result that cannot be given is that, also where it cannot cross", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const outcomes = yield* lab.run([write("lambda"), write("bigint"), write("nothing"), write("echo")], {})
        assert.deepStrictEqual(words(outcomes), [
          "error/unencodable_result",
          "error/unencodable_result",
          "error/unencodable_result",
          "ok"
        ])
        assert.deepStrictEqual(outcomes.map(({ effect }) => effect), ["applied", "applied", "applied", "applied"])
      })))
})

describe("R22: what blocks its thread is ended with it", { timeout: guard }, () => {
  it.effect("W2: an endless loop is ended by its timeout, and the pool is whole", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const Queued = pipe(Read, ToolPolicy.read(free), ToolPolicy.on(Cores))
        const fiber = yield* fork(
          Turn.run(Toolkit.make(Queued), [read("spin"), read("echo", 5)]).pipe(
            Effect.provide(Cores.layer({ concurrency: 1 }))
          )
        )
        yield* lab.take("here")
        yield* TestClock.adjust(10_000)
        const [spin, echo] = yield* Fiber.join(fiber)
        assert.deepStrictEqual(words([spin!, echo!]), ["timeout/handler", "ok"])
        assert.deepStrictEqual([spin!.effect, result(echo!)], ["none", 5])
        assert.deepStrictEqual([lab.threads.length, lab.alive.has(lab.threads[0]!)], [2, false])
        const turns = lab.memory[cells.turns]
        assert.deepStrictEqual(words(yield* lab.run([read("echo")])), ["ok"])
        assert.deepStrictEqual([lab.memory[cells.turns], lab.threads.length], [turns, 2])
      })))

  it.effect("W2: by a stop of the caller, of a keyed write too; other threads are not touched", () =>
    lab(3, (lab) =>
      Effect.gen(function*() {
        const other = yield* fork(lab.run([write("hold", 1)]))
        yield* lab.take("here")
        const stop = Promise.withResolvers<string>()
        const fiber = yield* fork(
          lab.run([read("spin"), put("spin")], { cancelOn: Effect.promise(() => stop.promise) })
        )
        yield* lab.take("here")
        yield* lab.take("here")
        stop.resolve("user")
        const outcomes = yield* Fiber.join(fiber)
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "cancelled/by_caller"])
        assert.deepStrictEqual(outcomes.map(({ effect }) => effect), ["none", "unknown"])
        assert.deepStrictEqual([lab.threads.length, lab.alive.size], [5, 3])
        lab.give("go")
        assert.deepStrictEqual(words(yield* Fiber.join(other)), ["ok"])
      })))

  it.effect("by the failure of a sibling", () =>
    lab(2, (lab) =>
      Effect.gen(function*() {
        const outcomes = yield* lab.run([read("spin"), read("failAfter")], { siblings: Siblings.failFast })
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_sibling", "error/failed"])
      })))

  it.effect("a write without a key is awaited, and its true outcome told", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const fiber = yield* fork(lab.run([write("hold", 3)]))
        yield* lab.take("here")
        yield* TestClock.adjust(10_000)
        yield* lab.event("CallOverdue")
        lab.give("go")
        const [outcome] = yield* Fiber.join(fiber)
        assert.deepStrictEqual([words([outcome!]), outcome!.effect, result(outcome!)], [["ok"], "applied", 3])
        assert.strictEqual(lab.alive.size, 1)
      })))

  it.effect("a keyed write whose answer was on its way when it was stopped is told truly", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const handle = yield* Turn.start(toolkit, [put("late", 4)])
        yield* lab.take("here")
        yield* Effect.sync(() => {
          lab.give("go")
          // This thread hears nothing meanwhile, so the answer waits in its port.
          while (Atomics.load(lab.memory, cells.sent) === 0) Atomics.wait(lab.memory, cells.sent, 0)
          Effect.runSync(handle.cancelCall(0))
        })
        const [outcome] = yield* handle.await
        assert.deepStrictEqual([words([outcome!]), outcome!.effect, result(outcome!)], [["ok"], "applied", 4])
      })))

  it.effect("W2: a call that goes away while its thread loads leaves the thread to the next", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const fiber = yield* fork(lab.run([read("spin")]))
        yield* lab.take("here")
        lab.memory[cells.open] = 0
        yield* TestClock.adjust(10_000)
        assert.deepStrictEqual(words(yield* Fiber.join(fiber)), ["timeout/handler"])
        const early = yield* fork(lab.run([read("echo")]))
        yield* TestClock.adjust(10_000)
        assert.deepStrictEqual(words(yield* Fiber.join(early)), ["timeout/handler"])
        const next = yield* fork(lab.run([read("echo")]))
        lab.give("open")
        assert.deepStrictEqual(words(yield* Fiber.join(next)), ["ok"])
        assert.strictEqual(lab.threads.length, 2)
      })))

  it.effect("preliminary results move the silence limit, from a thread that blocks", () => {
    const Slow = pipe(Read, ToolPolicy.read(free), ToolPolicy.idleTimeout(100))
    return lab(1, (lab) =>
      Effect.gen(function*() {
        const fiber = yield* fork(
          Turn.run(Toolkit.make(Slow), [read("notes", 3)], { onEvent: lab.onEvent })
        )
        for (let i = 1; i <= 3; i++) {
          yield* lab.event("CallProgressed", i)
          yield* TestClock.adjust(60)
          lab.give("go")
        }
        assert.deepStrictEqual(words(yield* Fiber.join(fiber)), ["ok"])
        assert.deepStrictEqual(
          lab.events.flatMap((event) => event._tag === "CallProgressed" ? [event.result] : []),
          [0, 1, 2]
        )
        const silent = yield* fork(Turn.run(Toolkit.make(Slow), [read("notes", 3)], { onEvent: lab.onEvent }))
        yield* lab.event("CallProgressed", 4)
        yield* TestClock.adjust(100)
        assert.deepStrictEqual(words(yield* Fiber.join(silent)), ["timeout/handler"])
      }))
  })

  it.effect("a preliminary result that cannot cross is a note all the same", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        assert.deepStrictEqual(words(yield* lab.run([read("oddNote")])), ["ok"])
        assert.strictEqual(lab.events.filter((event) => event._tag === "CallProgressed").length, 1)
      })))
})

describe("a thread that ends by itself", { timeout: guard }, () => {
  for (
    const [does, text] of [
      ["crash", "nobody catches this"],
      ["exit", "exited with code: 3"]
    ] as const
  ) {
    it.effect(`W2: by "${does}" takes its own call with it, and no other`, () =>
      lab(2, (lab) =>
        Effect.gen(function*() {
          const other = yield* fork(lab.run([read("hold", 1)]))
          yield* lab.take("here")
          const [outcome] = yield* lab.run([write(does)])
          assert.deepStrictEqual([words([outcome!]), outcome!.effect], [["error/defect"], "unknown"])
          assert.include(outcome!.message, text)
          assert.deepStrictEqual(words(yield* lab.run([read("echo")])), ["ok"])
          lab.give("go")
          assert.deepStrictEqual(words(yield* Fiber.join(other)), ["ok"])
          assert.strictEqual(lab.threads.length, 3)
        })))
  }

  it.effect("W3: while it loads: the call that needs it fails, the next has a fresh one", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        assert.strictEqual(lab.alive.size, 0)
        const [outcome, next] = yield* lab.run([read("echo"), read("echo")])
        assert.deepStrictEqual(words([outcome!, next!]), ["error/defect", "ok"])
        assert.include(outcome!.message, "it cannot be loaded")
        assert.strictEqual(lab.threads.length, 3)
      }), { broken: 2 }))

  it.effect("while it has nothing to do: nobody notices", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        assert.deepStrictEqual(words(yield* lab.run([read("leave")])), ["ok"])
        yield* lab.gone(0)
        assert.deepStrictEqual(words(yield* lab.run([read("echo")])), ["ok"])
        assert.strictEqual(lab.threads.length, 2)
      })))

  it.effect("W3: before it has met a call: it is replaced when one needs it, not over and over", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        yield* lab.gone(0)
        assert.strictEqual(lab.threads.length, 1)
        lab.memory[cells.lame] = 0
        assert.deepStrictEqual(words(yield* lab.run([read("echo")])), ["ok"])
        assert.strictEqual(lab.threads.length, 2)
      }), { lame: 100 }))

  it.effect("a spawner that throws, or gives what cannot be terminated, is a defect of each call", () =>
    Effect.gen(function*() {
      for (
        const [spawn, text] of [
          [() => {
            throw new Error("no threads here")
          }, "no threads here"],
          [() => ({ postMessage: () => {}, on: () => {} }), "without `terminate`"]
        ] as const
      ) {
        const one = new Lab()
        const outcomes = yield* one.run([read("echo"), read("echo")]).pipe(
          Effect.provide([one.pool(1, spawn as unknown as () => Worker), Turn.layer()])
        )
        assert.deepStrictEqual(words(outcomes), ["error/defect", "error/defect"])
        assert.include(outcomes[0]!.message, text)
      }
    }))
})

describe("the pool", { timeout: guard }, () => {
  it.effect("W3: six calls on two threads are all answered, in order, with two threads", () =>
    lab(2, (lab) =>
      Effect.gen(function*() {
        const outcomes = yield* lab.run([1, 2, 3, 4, 5, 6].map((n) => read("echo", n)))
        assert.deepStrictEqual(outcomes.map(result), [1, 2, 3, 4, 5, 6])
        assert.isAtMost(lab.threads.length, 2)
      })))

  it.effect("W1: a thread has one call at a time, also where its handlers would let it", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const outcomes = yield* lab.run([read("overlap"), read("overlap"), read("overlap")])
        assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
        assert.strictEqual(lab.memory[cells.most], 1)
      })))

  const ends = {
    echo: "ok",
    overlap: "ok",
    fail: "error/failed",
    die: "error/defect",
    interrupt: "cancelled/by_itself",
    lambda: "error/unencodable_result",
    crash: "error/defect",
    exit: "error/defect",
    noteAndSpin: "cancelled/by_caller"
  } as const
  it.effect.prop(
    "W1, W2, W3: every call ends in its own way, whatever the others do to their threads, and the pool is whole",
    {
      size: pick(1, 2, 3),
      calls: Arbitrary.array(pick(...(Object.keys(ends) as Array<keyof typeof ends>)), { minLength: 1, maxLength: 8 })
    },
    ({ calls, size }) =>
      lab(size, (lab) =>
        Effect.gen(function*() {
          const handle: Turn.Handle<typeof toolkit> = yield* Turn.start(toolkit, calls.map((does) => read(does)), {
            onEvent: (event) => {
              if (event._tag === "CallProgressed") Effect.runFork(handle.cancelCall(event.position))
            }
          })
          assert.deepStrictEqual(words(yield* handle.await), calls.map((does) => ends[does]))
          const after = yield* lab.run([1, 2, 3].map((n) => read("echo", n)))
          assert.deepStrictEqual(after.map(result), [1, 2, 3])
          assert.isAtMost(lab.memory[cells.most]!, size)
        })),
    { ...runs(3), timeout: guard }
  )

  it.effect("a call that waits for a thread can be stopped, and costs nothing", () =>
    lab(1, (lab) =>
      Effect.gen(function*() {
        const first = yield* fork(lab.run([write("hold")]))
        yield* lab.take("here")
        const second = yield* fork(lab.run([read("echo")]))
        yield* TestClock.adjust(10_000)
        assert.deepStrictEqual(words(yield* Fiber.join(second)), ["timeout/handler"])
        lab.give("go")
        assert.deepStrictEqual(words(yield* Fiber.join(first)), ["ok"])
        assert.strictEqual(lab.threads.length, 1)
      })))

  it.effect("W4: closing it ends what runs, what loads and what rests", () =>
    Effect.gen(function*() {
      const one = new Lab()
      const pool = yield* Scope.make()
      const context = yield* Layer.buildWithScope(one.pool(3), pool)
      const run = (call: ToolCall.ToolCall) => Effect.provide(one.run([call]), context)
      const busy = yield* fork(run(write("spin")))
      yield* one.take("here")
      const held = yield* fork(run(write("hold")))
      yield* one.take("here")
      assert.deepStrictEqual(words(yield* run(read("echo"))), ["ok"])
      one.give("go")
      assert.deepStrictEqual(words(yield* Fiber.join(held)), ["ok"])
      assert.strictEqual(one.alive.size, 3)
      yield* Scope.close(pool, Exit.void)
      assert.strictEqual(one.alive.size, 0)
      const [outcome] = yield* Fiber.join(busy)
      assert.deepStrictEqual([words([outcome!]), outcome!.effect], [["error/defect"], "unknown"])
      const [late] = yield* run(read("echo"))
      assert.include(late!.message, "the pool of worker threads has been closed")

      one.memory[cells.open] = 0
      const other = yield* Scope.make()
      const loading = yield* fork(Layer.buildWithScope(one.pool(2), other))
      assert.strictEqual(one.alive.size, 2)
      yield* Scope.close(other, Exit.void)
      assert.strictEqual(one.alive.size, 0)
      yield* Fiber.interrupt(loading)
    }).pipe(Effect.provide(Layer.provideMerge(Turn.layer(), patience))))
})
