/** Units of a turn that are all or nothing. */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  Backend,
  IdempotencyStore,
  Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnJournal,
  TurnMiddleware,
  TurnStore,
  TurnTelemetry
} from "effect-turn"
import type { TurnError, TurnEvent } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "../utils/gen.ts"
import { drive, ended, fork, words } from "../utils/kit.ts"

class Api extends Backend.Service<Api>()("test/undo/Api") {}

const Params = Schema.Struct({ tag: Schema.String, k: Schema.optionalKey(Schema.Array(Schema.String)) })
type Params = typeof Params.Type

interface Does {
  readonly ms?: number
  readonly end?: "ok" | "fail" | "die" | "interrupt"
  readonly result?: unknown
  readonly undo?: number
  readonly undoEnd?: "ok" | "fail" | "die" | "throw" | "interrupt"
}

interface Entry {
  readonly what: "do" | "undo"
  readonly tag: string
  readonly keys: ReadonlyArray<string>
  readonly from: number
  to: number | undefined
  end: "ok" | "failed" | "interrupted" | undefined
}

/** What was done and undone, in the order of beginning. */
class World extends Context.Service<World, {
  readonly log: Array<Entry>
  readonly standing: Set<string>
  readonly ends: Array<string>
  readonly script: Map<string, Does>
}>()("test/undo/World") {}

const step = (what: Entry["what"], { k, tag }: Params, ms: number, end: NonNullable<Does["end"]>) =>
  Effect.gen(function*() {
    const world = yield* World
    const entry: Entry = {
      what,
      tag,
      keys: k ?? [],
      from: yield* Clock.currentTimeMillis,
      to: undefined,
      end: undefined
    }
    world.log.push(entry)
    const body = Effect.gen(function*() {
      if (ms === Infinity) return yield* Effect.never
      else if (ms > 0) yield* Effect.sleep(ms)
      if (end === "fail") return yield* Effect.fail(`${what} ${tag} failed`)
      if (end === "die") return yield* Effect.die(new Error(`${what} ${tag} broke`))
      if (end === "interrupt") return yield* Effect.interrupt
    })
    return yield* Effect.onExit(body, (exit) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        entry.to = now
        entry.end = Exit.isSuccess(exit) ? "ok" : Exit.hasInterrupts(exit) ? "interrupted" : "failed"
        if (Exit.isFailure(exit)) return
        if (what === "do") {
          world.standing.add(tag)
          world.ends.push(tag)
        } else world.standing.delete(tag)
      }))
  })

const undo = (params: Params, { idempotencyKey, result }: { result: unknown; idempotencyKey: string | undefined }) => {
  void idempotencyKey
  void result
  return Effect.flatMap(World, ({ script }): Effect.Effect<void, string, World> => {
    const { undo = 5, undoEnd = "ok" } = script.get(params.tag) ?? {}
    if (undoEnd === "throw") throw new Error(`undo ${params.tag} threw`)
    return step("undo", params, undo, undoEnd)
  })
}

type Kit = typeof toolkit

const tool = <const Name extends string>(name: Name) =>
  Tool.make(name, { parameters: Params, success: Schema.Unknown, failure: Schema.String })
const keyed = { keys: ({ k }: Params) => k ?? [] }

const tools = {
  write: pipe(tool("write"), ToolPolicy.write(keyed), ToolPolicy.undo(undo)),
  post: pipe(tool("post"), ToolPolicy.write(keyed), ToolPolicy.on(Api), ToolPolicy.undo(undo)),
  put: pipe(tool("put"), ToolPolicy.write(keyed), ToolPolicy.forward(({ tag }) => `key:${tag}`), ToolPolicy.undo(undo)),
  send: pipe(
    tool("send"),
    ToolPolicy.write(keyed),
    ToolPolicy.forward(({ tag }) => `key:${tag}`),
    ToolPolicy.on(Api),
    ToolPolicy.undo(undo)
  ),
  again: pipe(
    tool("again"),
    ToolPolicy.write(keyed),
    ToolPolicy.repeatable,
    ToolPolicy.forward(({ tag }) => `key:${tag}`),
    ToolPolicy.undo(undo)
  ),
  place: pipe(
    tool("place"),
    ToolPolicy.write(keyed),
    ToolPolicy.forward((_, { position, turn }) => `${turn}:${position}`),
    ToolPolicy.undo(undo)
  ),
  stays: pipe(tool("stays"), ToolPolicy.write(keyed)),
  read: pipe(tool("read"), ToolPolicy.read(keyed)),
  pay: pipe(
    Tool.make("pay", { parameters: Params, success: Schema.Unknown, failure: Schema.String, needsApproval: true }),
    ToolPolicy.write(keyed),
    ToolPolicy.undo(undo)
  )
}
type Name = keyof typeof tools

const toolkit = Toolkit.make(
  tools.write,
  tools.post,
  tools.put,
  tools.send,
  tools.again,
  tools.place,
  tools.stays,
  tools.read,
  tools.pay
)

const call = (name: Name, tag: string, k: ReadonlyArray<string> = []) => ToolCall.make(tag, name, { tag, k })

const lab = (script: Record<string, Does>, api: Parameters<typeof Api.layer>[0] = { concurrency: "infinite" }) => {
  const world = World.of({
    log: [],
    standing: new Set(),
    ends: [],
    script: new Map(Object.entries(script))
  })
  const handler = (params: Params) => {
    const { end = "ok", ms = 10 } = world.script.get(params.tag) ?? {}
    const does = world.script.get(params.tag) ?? {}
    return Effect.as(step("do", params, ms, end), "result" in does ? does.result : params.tag)
  }
  const handlers = Object.fromEntries(Object.keys(tools).map((name) => [name, handler])) as any
  const events: Array<TurnEvent.TurnEvent> = []
  return {
    world,
    events,
    layer: Layer.mergeAll(
      Turn.layer(),
      Api.layer(api),
      Layer.succeed(TurnContext.Tenant, "t"),
      Layer.succeed(World, world),
      toolkit.toLayer(handlers) as Layer.Layer<Tool.HandlersFor<Toolkit.Tools<Kit>>>
    ),
    undone: () => world.log.filter((one) => one.what === "undo").map((one) => one.tag),
    note: (event: TurnEvent.TurnEvent) => {
      events.push(event)
    }
  }
}

const turn = (
  script: Record<string, Does>,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options?: Turn.Options,
  api?: Parameters<typeof Api.layer>[0]
) =>
  Effect.gen(function*() {
    const made = lab(script, api)
    const outcomes = yield* drive(
      Turn.run(toolkit, calls, { siblings: Siblings.allOrNothing, onEvent: made.note, ...options }).pipe(
        Effect.provide(made.layer)
      )
    )
    return { ...made, outcomes }
  })

const short = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) =>
  words(outcomes).map((word, i) => {
    const { effect, undo } = outcomes[i]!
    return undo === undefined ? word : `${word} ${undo} (${effect})`
  })

describe("R25: a unit that is all or nothing", () => {
  it.effect("all succeed: everything stands, and is answered when the last one has ended", () =>
    Effect.gen(function*() {
      const { events, outcomes, undone, world } = yield* turn({ a: { ms: 10 }, b: { ms: 30 }, r: { ms: 5 } }, [
        call("write", "a", ["x"]),
        call("write", "b", ["y"]),
        call("read", "r"),
        call("stays", "s")
      ])
      assert.deepStrictEqual(short(outcomes), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(undone(), [])
      assert.deepStrictEqual([...world.standing].sort(), ["a", "b", "r", "s"])
      assert.deepStrictEqual(
        events.flatMap((event) =>
          event._tag === "CallEnded" || event._tag === "CallApplied" ? [[event._tag, event.id, event.at]] : []
        ),
        [
          ["CallEnded", "r", 5],
          ["CallApplied", "a", 10],
          ["CallEnded", "s", 10],
          ["CallApplied", "b", 30],
          ["CallEnded", "a", 30],
          ["CallEnded", "b", 30]
        ]
      )
    }))

  it.effect("one fails: what was applied is undone, the last to end first, and told as what it is", () =>
    Effect.gen(function*() {
      const { events, outcomes, undone, world } = yield* turn(
        { a: { ms: 20 }, b: { ms: 10 }, c: { ms: 60 }, bad: { ms: 30, end: "fail" }, r: { ms: 5 }, slow: { ms: 90 } },
        [
          call("write", "a", ["x"]),
          call("write", "b", ["y"]),
          call("put", "c", ["z"]),
          call("stays", "s"),
          call("write", "bad"),
          call("read", "r"),
          call("read", "slow"),
          call("write", "later", ["z"])
        ]
      )
      assert.deepStrictEqual(short(outcomes), [
        "cancelled/by_sibling done (none)",
        "cancelled/by_sibling done (none)",
        // A write that can be undone is not cut half-way, though its backend honours its key.
        "cancelled/by_sibling done (none)",
        // Nothing undoes it.
        "ok",
        "error/failed",
        "ok",
        "cancelled/by_sibling",
        "cancelled/by_sibling"
      ])
      assert.deepStrictEqual(undone(), ["c", "a", "b"])
      assert.deepStrictEqual([...world.standing], ["r", "s"])
      assert.deepStrictEqual(outcomes.map((one) => [one.started, one.retryable]), [
        [true, true],
        [true, true],
        [true, false],
        [true, false],
        [true, false],
        [true, false],
        [true, true],
        [false, true]
      ])
      assert.strictEqual(
        outcomes[0]!.message,
        "it was done, and undone because another call of its unit failed: nothing of it stands"
      )
      assert.strictEqual(
        outcomes[2]!.message,
        "it was done, and undone because another call of its unit failed: nothing of it stands; the same arguments carry the same key, which stands for what was undone"
      )
      assert.deepStrictEqual(Outcome.forModel(outcomes[0]!), {
        isFailure: true,
        value: {
          status: "cancelled",
          code: "by_sibling",
          retryable: true,
          effect: "none",
          message: outcomes[0]!.message
        }
      })
      assert.isFalse(Outcome.isFailure(outcomes[0]!))
      assert.deepStrictEqual(
        events.filter((event) => event.at >= 60).map((event) =>
          "id" in event ? [event._tag, event.id, event.at] : event._tag
        ),
        [
          ["CallApplied", "c", 60],
          ["CallUndone", "c", 65],
          ["CallEnded", "c", 65],
          ["CallUndone", "a", 70],
          ["CallEnded", "a", 70],
          ["CallUndone", "b", 75],
          ["CallEnded", "b", 75],
          "TurnEnded"
        ]
      )
    }))

  it.effect("a key that is made of the place is another one next time", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ bad: { ms: 20, end: "fail" } }, [call("place", "a"), call("read", "bad")])
      assert.deepStrictEqual([short(outcomes)[0], outcomes[0]!.retryable], ["cancelled/by_sibling done (none)", true])
    }))

  for (const end of ["fail", "die", "throw", "interrupt"] as const) {
    it.effect(`an undo that ${end}s: it is told that it took effect, and the others are undone`, () =>
      Effect.gen(function*() {
        const { events, outcomes, world } = yield* turn({
          a: { ms: 5 },
          b: { ms: 10, undoEnd: end },
          c: { ms: 15 },
          bad: { ms: 20, end: "die" }
        }, [call("write", "a"), call("put", "b"), call("write", "c"), call("read", "bad")])
        assert.deepStrictEqual(short(outcomes), [
          "cancelled/by_sibling done (none)",
          "cancelled/by_sibling failed (unknown)",
          "cancelled/by_sibling done (none)",
          "error/defect"
        ])
        assert.deepStrictEqual([...world.standing], ["b"])
        assert.isFalse(outcomes[1]!.retryable)
        const why = { fail: "undo b failed", die: "undo b broke", throw: "undo b threw", interrupt: "interrupted" }[end]
        assert.include(outcomes[1]!.message, `it took effect`)
        assert.include(outcomes[1]!.message, why)
        assert.deepStrictEqual(
          events.flatMap((event) => event._tag === "CallUndone" ? [[event.id, event.ok]] : []),
          [["c", true], ["b", false], ["a", true]]
        )
      }))
  }

  it.effect("the last to end fails: the others are undone all the same", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ bad: { ms: 50, end: "fail" } }, [call("write", "a"), call("read", "bad")])
      assert.deepStrictEqual(short(outcomes), ["cancelled/by_sibling done (none)", "error/failed"])
    }))

  it.effect("a result that cannot be given is a failure, and what it did is undone too", () =>
    Effect.gen(function*() {
      const { outcomes, undone } = yield* turn({ u: { ms: 20, result: 1n } }, [call("write", "a"), call("write", "u")])
      assert.deepStrictEqual(short(outcomes), [
        "cancelled/by_sibling done (none)",
        "error/unencodable_result done (none)"
      ])
      assert.deepStrictEqual(undone(), ["u", "a"])
      assert.strictEqual(
        outcomes[1]!.message,
        "it was done, and undone because its result could not be given: nothing of it stands"
      )
    }))

  it.effect("its result, its key and its parameters are what it is undone from", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const Book = pipe(
        Tool.make("book", { parameters: Schema.Struct({ hotel: Schema.String }), success: Schema.NumberFromString }),
        ToolPolicy.write({ keys: () => [] }),
        ToolPolicy.forward(({ hotel }) => hotel),
        ToolPolicy.undo((params, done) =>
          Effect.map(TurnContext.CurrentCall, (call) => {
            seen.push(params, done, call?.idempotencyKey, call?.position)
          })
        )
      )
      const Bad = pipe(Tool.make("bad", { failure: Schema.String }), ToolPolicy.read())
      const kit = Toolkit.make(Book, Bad)
      const outcomes = yield* drive(
        Turn.run(kit, [ToolCall.make("1", "book", { hotel: "h" }), ToolCall.make("2", "bad", {})], {
          siblings: Siblings.allOrNothing
        }).pipe(Effect.provide([
          Turn.layer(),
          Layer.succeed(TurnContext.Tenant, "t"),
          kit.toLayer({
            book: () => Effect.succeed(7),
            bad: () => Effect.delay(Effect.fail("no"), 10)
          })
        ]))
      )
      assert.deepStrictEqual(short(outcomes), ["cancelled/by_sibling done (none)", "error/failed"])
      // The key of the write is no key of its undo.
      assert.deepStrictEqual(seen, [{ hotel: "h" }, { result: 7, idempotencyKey: "h" }, undefined, 0])
    }))

  it.effect("identical calls are done once, undone once, and answered each", () =>
    Effect.gen(function*() {
      const { outcomes, undone } = yield* turn({ bad: { ms: 20, end: "fail" } }, [
        ToolCall.make("1", "write", { tag: "a" }),
        ToolCall.make("2", "write", { tag: "a" }),
        call("read", "bad")
      ])
      assert.deepStrictEqual(short(outcomes), [
        "cancelled/by_sibling done (none)",
        "cancelled/by_sibling done (none)",
        "error/failed"
      ])
      assert.deepStrictEqual(outcomes[1]!.duplicateOf, { position: 0, id: "1" })
      assert.deepStrictEqual(undone(), ["a"])
    }))

  it.effect("held, invalid, unknown and deferred calls trigger nothing, and are not waited for", () =>
    Effect.gen(function*() {
      const { outcomes, world } = yield* turn({}, [
        call("write", "a", ["x"]),
        call("pay", "p", ["y"]),
        ToolCall.make("i", "write", "{"),
        ToolCall.make("u", "nobody", {}),
        call("write", "d", ["y"])
      ])
      assert.deepStrictEqual(short(outcomes), [
        "ok",
        "pending_approval",
        "error/invalid_arguments",
        "error/unknown_tool",
        "deferred/waits_for_approval"
      ])
      assert.deepStrictEqual([...world.standing], ["a"])
    }))

  it.effect("each unit stands or falls for itself, and is answered for itself", () =>
    Effect.gen(function*() {
      const { events, outcomes, undone } = yield* turn(
        { a: { ms: 10 }, bad: { ms: 20, end: "fail" }, b: { ms: 10 }, c: { ms: 90 } },
        [call("write", "a"), call("read", "bad"), call("write", "b"), call("write", "c")],
        { unit: (_, position) => position < 2 ? "first" : "second" }
      )
      assert.deepStrictEqual(short(outcomes), ["cancelled/by_sibling done (none)", "error/failed", "ok", "ok"])
      assert.deepStrictEqual(undone(), ["a"])
      const at = (id: string) => events.find((event) => event._tag === "CallEnded" && event.id === id)!.at
      assert.deepStrictEqual([at("a"), at("b"), at("c")], [25, 90, 90])
    }))

  it.effect("other policies undo nothing", () =>
    Effect.gen(function*() {
      const { events, outcomes, undone } = yield* turn(
        { bad: { ms: 20, end: "fail" } },
        [call("write", "a"), call("read", "bad")],
        { siblings: Siblings.failFast }
      )
      assert.deepStrictEqual([short(outcomes), undone()], [["ok", "error/failed"], []])
      assert.isFalse(events.some((event) => event._tag === "CallApplied"))
    }))
})

describe("R25: the stop of a turn that is all or nothing", () => {
  it.effect("the deadline: what had been applied is undone, with the turn's own word", () =>
    Effect.gen(function*() {
      const { outcomes, undone } = yield* turn(
        { a: { ms: 10 }, b: { ms: 80 }, r: { ms: 100 } },
        [call("write", "a"), call("put", "b"), call("read", "r")],
        { deadline: 50 }
      )
      assert.deepStrictEqual(short(outcomes), [
        "cancelled/by_deadline done (none)",
        "cancelled/by_deadline done (none)",
        "cancelled/by_deadline"
      ])
      assert.deepStrictEqual(undone(), ["b", "a"])
      assert.include(outcomes[0]!.message, "the deadline of the turn passed")
    }))

  it.effect("the caller's stop, with its reason", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn({ r: { ms: 100 } }, [call("write", "a"), call("read", "r")], {
        cancelOn: Effect.delay(Effect.succeed("budget"), 50)
      })
      assert.deepStrictEqual(short(outcomes)[0], "cancelled/by_caller done (none)")
      assert.strictEqual((outcomes[0] as Outcome.Cancelled).reason, "budget")
    }))

  it.effect("an interruption of the turn's fiber waits for the undos", () =>
    Effect.gen(function*() {
      const { layer, undone, world } = lab({ a: { ms: 10, undo: 30 }, r: { ms: 100 } })
      const fiber = yield* fork(
        Turn.run(toolkit, [call("write", "a"), call("read", "r")], { siblings: Siblings.allOrNothing }).pipe(
          Effect.provide(layer)
        )
      )
      yield* TestClock.adjust(50)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(29)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual([undone(), [...world.standing]], [["a"], []])
    }))

  it.effect("a stop while it is undoing changes nothing", () =>
    Effect.gen(function*() {
      const { outcomes, undone } = yield* turn(
        { a: { ms: 10, undo: 30 }, b: { ms: 10, undo: 30 }, bad: { ms: 20, end: "fail" } },
        [call("write", "a"), call("write", "b"), call("read", "bad")],
        { deadline: 30 }
      )
      assert.deepStrictEqual(short(outcomes), [
        "cancelled/by_sibling done (none)",
        "cancelled/by_sibling done (none)",
        "error/failed"
      ])
      assert.deepStrictEqual(undone(), ["b", "a"])
    }))

  it.effect("one call alone cannot be stopped when it has taken effect; stopping another one is no failure", () =>
    Effect.gen(function*() {
      const { layer, note, world } = lab({ a: { ms: 10 }, b: { ms: 50 } })
      const said: Array<boolean> = []
      const outcomes = yield* drive(
        Effect.gen(function*() {
          const handle = yield* Turn.start(toolkit, [call("write", "a"), call("read", "b"), call("read", "b2")], {
            siblings: Siblings.allOrNothing,
            onEvent: note
          })
          yield* Effect.sleep(20)
          said.push(yield* handle.cancelCall("a"), yield* handle.cancelCall("b"))
          return yield* handle.await
        }).pipe(Effect.provide(layer), Effect.scoped)
      )
      assert.deepStrictEqual(said, [false, true])
      assert.deepStrictEqual(short(outcomes), ["ok", "cancelled/by_caller", "ok"])
      assert.isTrue(world.standing.has("a"))
    }))
})

describe("R25: an undo is a write as any other", () => {
  it.effect("it takes its place among the keys: nobody's conflicting call overlaps it", () =>
    Effect.gen(function*() {
      const { layer, world } = lab({
        a: { ms: 10, undo: 20 },
        bad: { ms: 30, end: "fail" },
        other: { ms: 40 },
        third: { ms: 5 }
      })
      yield* drive(
        Effect.all([
          Turn.run(toolkit, [call("write", "a", ["x"]), call("read", "bad")], { siblings: Siblings.allOrNothing }),
          // It has the key from 10 to 50.
          Turn.run(toolkit, [call("stays", "other", ["x"])]),
          // It comes after the places of the undo were taken.
          Effect.delay(Turn.run(toolkit, [call("read", "third", ["x"])]), 40)
        ], { concurrency: "unbounded" }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(world.log.map(({ from, tag, to, what }) => [what, tag, from, to]), [
        ["do", "a", 0, 10],
        ["do", "bad", 0, 30],
        ["do", "other", 10, 50],
        ["undo", "a", 50, 70],
        ["do", "third", 70, 75]
      ])
    }))

  it.effect("it takes a permit of the tool's backend, and gives it back; a full line does not turn it away", () =>
    Effect.gen(function*() {
      const { layer, world } = lab(
        {
          a: { ms: 10, undo: 20 },
          bad: { ms: 30, end: "fail" },
          other: { ms: 100 },
          waits: { ms: 5 },
          last: { ms: 5 }
        },
        { concurrency: 1, queueLimit: 1 }
      )
      const [outcomes] = yield* drive(
        Effect.all([
          Turn.run(toolkit, [call("post", "a"), call("read", "bad")], { siblings: Siblings.allOrNothing }),
          Effect.delay(Turn.run(toolkit, [call("post", "other")]), 15),
          Effect.delay(Turn.run(toolkit, [call("post", "waits")]), 20),
          Effect.delay(Turn.run(toolkit, [call("post", "last")]), 200)
        ], { concurrency: "unbounded" }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(short(outcomes), ["cancelled/by_sibling done (none)", "error/failed"])
      const spans = world.log.map(({ from, tag, to, what }) => [what, tag, from, to])
      assert.deepStrictEqual(
        spans.filter(([what]) => what === "undo").map(([, , from, to]) => Number(to) - Number(from)),
        [
          20
        ]
      )
      assert.deepStrictEqual(spans.at(-1), ["do", "last", 200, 205])
      const posts = world.log.filter((one) => one.tag !== "bad")
      for (const [i, one] of posts.entries()) {
        for (const other of posts.slice(i + 1)) assert.isTrue(other.from >= one.to!, `${one.tag} and ${other.tag}`)
      }
    }))

  it.effect("a backend whose circuit is open is a failed undo, with its words", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(
        { a: { ms: 10 }, bad: { ms: 20, end: "die" }, b: { ms: 30 } },
        [call("post", "a"), call("post", "bad"), call("write", "b")],
        {},
        { concurrency: 2, breaker: { tripPolicy: CircuitBreaker.consecutive(1), openDuration: "1 minute" } }
      )
      assert.deepStrictEqual(short(outcomes), [
        "cancelled/by_sibling failed (unknown)",
        "error/defect",
        "cancelled/by_sibling done (none)"
      ])
      assert.include(outcomes[0]!.message, "test/undo/Api")
    }))

  it.effect("overdue it is awaited, and an event says so; beyond the grace of writes the supervisor has it", () =>
    Effect.gen(function*() {
      const late: Array<TurnEvent.CallSettledLate> = []
      const script = { a: { ms: 10, undo: 15_000 }, b: { ms: 5 }, bad: { ms: 20, end: "fail" } } as const
      const calls = [call("write", "a", ["x"]), call("write", "b"), call("read", "bad")]
      const patient = yield* turn(script, calls)
      assert.deepStrictEqual(short(patient.outcomes), [
        "cancelled/by_sibling done (none)",
        "cancelled/by_sibling done (none)",
        "error/failed"
      ])
      assert.deepStrictEqual(
        patient.events.filter((event) => event._tag === "CallOverdue").map((event) => [event.id, event.at]),
        [["a", 10_020]]
      )
      const { layer, note, world } = lab(script)
      const start = yield* Clock.currentTimeMillis
      const [first, unsettled, next] = yield* drive(
        Effect.gen(function*() {
          const first = yield* Turn.run(toolkit, calls, {
            siblings: Siblings.allOrNothing,
            grace: { writes: 1_000 },
            onEvent: (event) => {
              note(event)
              if (event._tag === "CallSettledLate") late.push(event)
            }
          })
          const unsettled = yield* Effect.flatMap(Turn.Runtime, (runtime) => runtime.unsettled)
          const at = yield* Clock.currentTimeMillis
          const next = yield* Turn.run(toolkit, [call("read", "next", ["x"])])
          return [[at, first], unsettled, next] as const
        }).pipe(Effect.provide(layer))
      )
      assert.strictEqual(first[0] - start, 11_025)
      assert.deepStrictEqual(short(first[1]), [
        "cancelled/by_sibling failed (unknown)",
        "cancelled/by_sibling done (none)",
        "error/failed"
      ])
      assert.include(first[1][0]!.message, "still")
      assert.deepStrictEqual(unsettled.map((one) => [one.id, one.outcome.undo]), [["a", "failed"]])
      assert.deepStrictEqual(late.map((one) => [one.id, one.at - start, one.outcome.undo]), [["a", 15_020, "done"]])
      // It keeps its place until it has really ended.
      assert.deepStrictEqual(short(next), ["ok"])
      assert.strictEqual(world.log.find((one) => one.tag === "next")!.from - start, 15_020)
    }))

  it.effect("the turn's own limit holds for it, and a turn that runs one after another undoes too", () =>
    Effect.gen(function*() {
      for (const execution of [1, "sequential"] as const) {
        const { outcomes, undone, world } = yield* turn({ bad: { end: "fail" } }, [
          call("write", "a", ["x"]),
          call("write", "b", ["y"]),
          call("write", "bad", ["z"]),
          call("read", "c")
        ], { execution, unit: (_, position) => position < 3 ? "first" : "second" })
        assert.deepStrictEqual(short(outcomes), [
          "cancelled/by_sibling done (none)",
          "cancelled/by_sibling done (none)",
          "error/failed",
          "ok"
        ])
        assert.deepStrictEqual(undone(), ["b", "a"])
        const log = world.log.toSorted((a, b) => a.from - b.from)
        log.forEach((one, i) => i === 0 || assert.isAtLeast(one.from, log[i - 1]!.to!))
      }
    }))
})

describe("R25: each undo is written down", () => {
  const Buy = pipe(
    Tool.make("buy", { parameters: Schema.Struct({ what: Schema.String }), success: Schema.String }),
    ToolPolicy.write({ keys: () => [] })
  )
  const undoable = ToolPolicy.undo<typeof Buy, string, World>(({ what }) =>
    step("undo", { tag: what }, 20, what.startsWith("stuck") ? "fail" : "ok")
  )
  const key = ({ what }: { readonly what: string }) => what
  const Bad = pipe(Tool.make("bad"), ToolPolicy.read({ keys: () => [] }))

  /** What the store and the journal say of the first call, while it is undone and afterwards. */
  const told = (what: string, buy: typeof Buy) =>
    Effect.gen(function*() {
      const kit = Toolkit.make(undoable(buy), Bad)
      const world = World.of({ log: [], standing: new Set(), ends: [], script: new Map() })
      const layer = Layer.mergeAll(
        Turn.layer(),
        Layer.succeed(TurnContext.Tenant, "t"),
        Layer.succeed(World, world),
        kit.toLayer({
          buy: () => Effect.as(Effect.sleep(5), "receipt"),
          bad: () => Effect.delay(Effect.die("no"), 10)
        }),
        Layer.mergeAll(IdempotencyStore.layer({ digest: "text" }), TurnJournal.layer()).pipe(
          Layer.provideMerge(TurnStore.layerMemory)
        )
      )
      const calls = [ToolCall.make("1", "buy", { what }), ToolCall.make("2", "bad", {})]
      return yield* drive(
        Effect.gen(function*() {
          const store = yield* IdempotencyStore.IdempotencyStore
          const journal = yield* TurnJournal.TurnJournal
          const states = Effect.gen(function*() {
            const record = yield* store.lookUp({ tenant: "t", tool: "buy", key: what })
            const [entry] = yield* journal.entries({ tenant: "t", turn: "one" })
            const outcome = entry?._tag === "settled" ? entry.outcome : undefined
            return [record?.state ?? "free", `${outcome?.status} ${outcome?.effect} ${outcome?.undo}`]
          })
          const running = yield* fork(Turn.run(kit, calls, { turn: "one", siblings: Siblings.allOrNothing }))
          yield* Effect.sleep(7)
          const before = yield* states
          yield* Effect.sleep(10)
          const during = yield* states
          const outcomes = yield* Fiber.join(running)
          const after = yield* states
          const again = yield* Turn.run(kit, [calls[0]!])
          return [before, during, short(outcomes)[0], after, words(again)[0]]
        }).pipe(Effect.provide(layer))
      )
    })

  const applied = (state: string) => [state, "ok applied undefined"]

  it.effect("a key that was forwarded is used up: its backend would answer it from memory", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* told("a", ToolPolicy.forward<typeof Buy>(key)(Buy)), [
        applied("applied"),
        // Whoever looks now waits for the end; after a crash it is in doubt.
        ["reserved", "cancelled unknown failed"],
        "cancelled/by_sibling done (none)",
        ["undone", "cancelled none done"],
        "error/key_reused"
      ])
    }))

  it.effect("a key of our own record is free again", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* told("a", IdempotencyStore.record<typeof Buy>(key)(Buy) as any), [
        applied("applied"),
        ["reserved", "cancelled unknown failed"],
        "cancelled/by_sibling done (none)",
        ["free", "cancelled none done"],
        "ok"
      ])
    }))

  it.effect("what could not be undone is in doubt", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* told("stuck", IdempotencyStore.record<typeof Buy>(key)(Buy) as any), [
        applied("applied"),
        ["reserved", "cancelled unknown failed"],
        "cancelled/by_sibling failed (unknown)",
        ["unknown", "cancelled unknown failed"],
        "error/in_doubt"
      ])
    }))

  it.effect("an undo that is not begun leaves its write in doubt too", () =>
    Effect.gen(function*() {
      const { layer, world } = lab({ bad: { ms: 20, end: "die" } }, {
        concurrency: 2,
        breaker: { tripPolicy: CircuitBreaker.consecutive(1), openDuration: "1 minute" }
      })
      const [outcomes, state] = yield* drive(
        Effect.gen(function*() {
          const outcomes = yield* Turn.run(toolkit, [call("send", "a"), call("post", "bad")], {
            siblings: Siblings.allOrNothing
          })
          const store = yield* IdempotencyStore.IdempotencyStore
          const entry = yield* store.lookUp({ tenant: "t", tool: "send", key: "key:a" })
          return [outcomes, entry?.state] as const
        }).pipe(
          Effect.provide(
            Layer.merge(
              layer,
              IdempotencyStore.layer({ digest: "text" }).pipe(Layer.provide(TurnStore.layerMemory))
            )
          )
        )
      )
      assert.deepStrictEqual(short(outcomes), ["cancelled/by_sibling failed (unknown)", "error/defect"])
      assert.deepStrictEqual([state, world.standing.has("a")], ["unknown", true])
    }))

  it.effect("given up on, and over later: that is written down too", () =>
    Effect.gen(function*() {
      const { layer } = lab({ a: { undo: 30_000 }, bad: { ms: 20, end: "fail" } })
      const [outcome, states] = yield* drive(
        Effect.gen(function*() {
          const store = yield* IdempotencyStore.IdempotencyStore
          const state = Effect.map(store.lookUp({ tenant: "t", tool: "put", key: "key:a" }), (entry) => entry?.state)
          const outcomes = yield* Turn.run(toolkit, [call("put", "a"), call("read", "bad")], {
            siblings: Siblings.allOrNothing,
            grace: { writes: 100 }
          })
          const before = yield* state
          yield* Effect.sleep(60_000)
          return [short(outcomes)[0], [before, yield* state]] as const
        }).pipe(
          Effect.provide(
            Layer.merge(
              layer,
              IdempotencyStore.layer({ digest: "text" }).pipe(Layer.provide(TurnStore.layerMemory))
            )
          )
        )
      )
      assert.strictEqual(outcome, "cancelled/by_sibling failed (unknown)")
      assert.deepStrictEqual(states, ["unknown", "undone"])
    }))

  it.effect("calls of one unit with the same key do not wait for their unit: one write, one answer", () =>
    Effect.gen(function*() {
      for (const late of [0, 5]) {
        for (const end of ["ok", "fail"] as const) {
          const { layer, note, undone, world, events } = lab({
            a: { ms: 10 },
            b: { ms: 10 },
            slow: { ms: 50, end },
            first: { ms: 1 }
          })
          const outcomes = yield* drive(
            Turn.run(toolkit, [
              call("again", "a", late === 0 ? [] : ["k"]),
              call("read", "first", ["k"]),
              ToolCall.make("same", "again", { tag: "a", k: late === 0 ? [] : ["k"] }),
              ToolCall.make("other", "again", { tag: "a", k: ["z"] }),
              call("read", "slow")
            ], { siblings: Siblings.allOrNothing, onEvent: note }).pipe(
              Effect.provide(
                Layer.merge(
                  layer,
                  IdempotencyStore.layer({ digest: "text" }).pipe(Layer.provide(TurnStore.layerMemory))
                )
              )
            )
          )
          const expected = end === "ok" ? "ok" : "cancelled/by_sibling done (none)"
          assert.deepStrictEqual(short(outcomes), [
            expected,
            "ok",
            expected,
            "error/key_reused",
            end === "ok" ? "ok" : "error/failed"
          ])
          assert.deepStrictEqual(outcomes[2]!.duplicateOf, { position: 0, id: "a" })
          assert.deepStrictEqual(world.log.filter((one) => one.tag === "a" && one.what === "do").length, 1)
          assert.deepStrictEqual(undone(), end === "ok" ? [] : ["a"])
          assert.isBelow(events.at(-1)!.at - events[0]!.at, 100)
        }
      }
    }))

  it.effect("without a key, the journal alone", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* told("a", Buy), [
        applied("free"),
        ["free", "cancelled unknown failed"],
        "cancelled/by_sibling done (none)",
        ["free", "cancelled none done"],
        "ok"
      ])
    }))
})

describe("R25: beside what else a turn does", () => {
  it.effect("middleware is around calls, not around their undos", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const middleware = TurnMiddleware.make("watch", {
        before: ({ tool }) =>
          Effect.sync(() => {
            seen.push(`before ${tool.name}`)
            return undefined as any
          }),
        around: (handler, { tool }) => {
          seen.push(`around ${tool.name}`)
          return handler
        }
      })
      const { outcomes, undone } = yield* turn(
        { bad: { ms: 20, end: "fail" } },
        [call("write", "a"), call("read", "bad")],
        { middleware: [middleware], amounts: { calls: 2 } }
      )
      assert.deepStrictEqual(short(outcomes), ["cancelled/by_sibling done (none)", "error/failed"])
      assert.deepStrictEqual(undone(), ["a"])
      assert.deepStrictEqual(seen, ["before write", "around write", "before read", "around read"])
    }))

  it.effect("calls that come one by one: reads that fail early keep the writes of their unit from starting", () =>
    Effect.gen(function*() {
      for (const [ms, expected] of [[5, "cancelled/by_sibling"], [60, "cancelled/by_sibling done (none)"]] as const) {
        const { layer, note, undone } = lab({ bad: { ms, end: "fail" } })
        const outcomes = yield* drive(
          Effect.gen(function*() {
            const open = yield* Turn.open(toolkit, { siblings: Siblings.allOrNothing, onEvent: note })
            yield* open.submit(call("read", "bad"))
            yield* Effect.sleep(20)
            yield* open.submit(call("write", "a", ["x"]))
            yield* open.submit(call("write", "b", ["y"]))
            yield* open.end()
            return yield* open.await
          }).pipe(Effect.provide(layer), Effect.scoped)
        )
        assert.deepStrictEqual(short(outcomes), ["error/failed", expected, expected])
        assert.deepStrictEqual(undone(), ms === 5 ? [] : ["b", "a"])
      }
    }))

  it.effect("inside a handler: the undo inherits what the handler holds, and waits for nobody who waits for it", () =>
    Effect.gen(function*() {
      const { layer, undone, world } = lab({ bad: { ms: 30, end: "fail" }, other: { ms: 5 } }, { concurrency: 1 })
      const inner: Array<ReadonlyArray<string>> = []
      const Outer = pipe(Tool.make("outer"), ToolPolicy.write({ keys: () => ["x"] }), ToolPolicy.on(Api))
      const kit = Toolkit.make(Outer)
      const outer = kit.toLayer(Effect.gen(function*() {
        const context = yield* Effect.context<any>()
        return {
          outer: () =>
            Turn.run(toolkit, [call("post", "a", ["x"]), call("read", "bad")], { siblings: Siblings.allOrNothing })
              .pipe(
                Effect.tap((outcomes) => Effect.sync(() => inner.push(short(outcomes)))),
                Effect.asVoid,
                Effect.orDie,
                Effect.provideContext(context)
              )
        }
      }) as any) as Layer.Layer<any>
      const outcomes = yield* drive(
        Effect.gen(function*() {
          const first = yield* fork(Turn.run(kit, [ToolCall.make("o", "outer", {})]))
          const second = yield* fork(Turn.run(toolkit, [call("post", "other", ["x"])]))
          return [...(yield* Fiber.join(first)), ...(yield* Fiber.join(second))] as ReadonlyArray<Outcome.Outcome<any>>
        }).pipe(Effect.provide(Layer.provideMerge(outer, layer))) as Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>>
      )
      assert.deepStrictEqual(inner, [["cancelled/by_sibling done (none)", "error/failed"]])
      assert.deepStrictEqual(short(outcomes), ["ok", "ok"])
      assert.deepStrictEqual(undone(), ["a"])
      assert.deepStrictEqual(world.log.map(({ from, tag, to, what }) => [what, tag, from, to]), [
        ["do", "bad", 0, 30],
        ["do", "a", 0, 10],
        ["undo", "a", 30, 35],
        ["do", "other", 35, 40]
      ])
    }))

  it.effect("a turn that is parked: what was applied has its answer, and stands", () =>
    Effect.gen(function*() {
      const { layer, undone, world } = lab({ p: { end: "fail" } })
      const [parked, resumed] = yield* drive(
        Effect.gen(function*() {
          const options = { siblings: Siblings.allOrNothing } as const
          const first = yield* Turn.runOrPark(toolkit, [call("write", "a", ["x"]), call("pay", "p", ["y"])], options)
          if (first._tag !== "Parked") throw new Error("expected a parked turn")
          const second = yield* Turn.resume(toolkit, first.parked, {
            ...options,
            decisions: [{ position: 1, decision: Approval.approve() }]
          })
          return [first.outcomes, second.outcomes] as const
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(short(parked), ["ok", "pending_approval"])
      assert.deepStrictEqual(short(resumed), ["ok", "error/failed"])
      assert.deepStrictEqual([undone(), [...world.standing]], [[], ["a"]])
    }))

  it.effect("two turns inside handlers whose undos want the same key: both are done", () =>
    Effect.gen(function*() {
      const { layer, undone } = lab({ bad1: { ms: 30, end: "fail" }, bad2: { ms: 30, end: "fail" } })
      const inner: Array<ReadonlyArray<string>> = []
      const kits = (["1", "2"] as const).map((n) => {
        const Outer = pipe(Tool.make(`outer${n}`), ToolPolicy.write({ keys: () => [`own${n}`] }))
        const kit = Toolkit.make(Outer)
        const handlers = kit.toLayer(Effect.gen(function*() {
          const context = yield* Effect.context<any>()
          return {
            [`outer${n}`]: () =>
              Turn.run(toolkit, [call("write", `a${n}`, ["shared"]), call("read", `bad${n}`)], {
                siblings: Siblings.allOrNothing
              }).pipe(
                Effect.tap((outcomes) => Effect.sync(() => inner.push(short(outcomes)))),
                Effect.asVoid,
                Effect.orDie,
                Effect.provideContext(context)
              )
          }
        }) as any) as Layer.Layer<any>
        return { kit, handlers }
      })
      const both = Effect.all(kits.map(({ kit }, i) => Turn.run(kit, [ToolCall.make("o", `outer${i + 1}`, {})])), {
        concurrency: "unbounded"
      })
      const handlers = Layer.mergeAll(kits[0]!.handlers, kits[1]!.handlers)
      const outcomes = yield* drive(
        Effect.provide(both, Layer.provideMerge(handlers, layer)) as Effect.Effect<any, TurnError.TurnError>
      ) as Effect.Effect<ReadonlyArray<ReadonlyArray<Outcome.Outcome<any>>>, TurnError.TurnError>
      assert.deepStrictEqual(outcomes.map(words), [["ok"], ["ok"]])
      assert.deepStrictEqual(inner, [
        ["cancelled/by_sibling done (none)", "error/failed"],
        ["cancelled/by_sibling done (none)", "error/failed"]
      ])
      assert.sameMembers(undone(), ["a1", "a2"])
    }))

  it.effect("metrics: how long it ran is without the wait for its unit, and undos are counted", () =>
    Effect.gen(function*() {
      const record = yield* TurnTelemetry.recorder
      yield* turn({ a: { ms: 10 }, b: { ms: 20, undoEnd: "fail" }, bad: { ms: 40, end: "fail" } }, [
        call("write", "a"),
        call("write", "b"),
        call("read", "bad")
      ], { onEvent: record })
      const took = yield* Metric.value(Metric.withAttributes(TurnTelemetry.duration, { "gen_ai.tool.name": "write" }))
      assert.deepStrictEqual([took.count, took.sum], [2, 0.03])
      for (const failed of ["true", "false"]) {
        const undos = Metric.withAttributes(TurnTelemetry.undos, { "gen_ai.tool.name": "write", failed })
        assert.strictEqual((yield* Metric.value(undos)).count, 1)
      }
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))
})

interface Given extends Does {
  readonly name: Name
  readonly k: ReadonlyArray<string>
  readonly unit: string
}

/** Runs a turn beside another one on the same keys and backend, stops it, and holds what happened against the rules. */
const check = (
  given: ReadonlyArray<Given>,
  stop: { readonly at: number; readonly how: "deadline" | "cancelOn" | "interrupt" } | undefined,
  options: Turn.Options,
  beside = true
) =>
  Effect.gen(function*() {
    const script = Object.fromEntries(given.map((one, i) => [`c${i}`, one]))
    const { events, layer, note, undone, world } = lab(script, { concurrency: 2 })
    const calls = given.map(({ k, name }, i) => call(name, `c${i}`, k))
    const others = beside
      ? [0, 7, 23, 40].map((at, i) =>
        Effect.delay(
          Turn.run(toolkit, [call(i % 2 === 0 ? "stays" : "read", `o${i}`, ["x", "y"]), call("post", `p${i}`, ["z"])]),
          at
        )
      )
      : []
    const main = Turn.run(toolkit, calls, {
      ...options,
      siblings: Siblings.allOrNothing,
      unit: (_, position) => given[position]!.unit,
      onEvent: note,
      ...(stop?.how === "deadline" ? { deadline: stop.at } : undefined),
      ...(stop?.how === "cancelOn" ? { cancelOn: Effect.sleep(stop.at) } : undefined)
    })
    let outcomes: ReadonlyArray<Outcome.Outcome<any>> | undefined
    yield* drive(
      Effect.gen(function*() {
        const running = yield* fork(main)
        const rest = yield* fork(Effect.all(others, { concurrency: "unbounded" }))
        if (stop?.how === "interrupt") {
          yield* Effect.sleep(stop.at)
          yield* Fiber.interrupt(running)
        }
        const exit = yield* Fiber.await(running)
        // Nothing of the turn runs after it.
        const own = world.log.filter((one) => one.tag.startsWith("c"))
        assert.isTrue(own.every((one) => one.to !== undefined))
        if (Exit.isSuccess(exit)) outcomes = exit.value
        yield* Fiber.join(rest)
        // No permit is left out.
        const { stats } = yield* Api
        const { running: out, waiting } = yield* stats
        assert.deepStrictEqual([out, waiting], [0, 0])
        // No key is left behind.
        const free = yield* Turn.run(toolkit, [call("write", "free", ["x", "y", "z"])])
        assert.deepStrictEqual(words(free), ["ok"])
      }).pipe(Effect.provide(layer))
    )
    const answered = events.flatMap((event) => event._tag === "CallEnded" ? [event.outcome] : [])
    assert.strictEqual(answered.length, given.length)
    if (outcomes !== undefined) {
      assert.deepStrictEqual(answered.toSorted((a, b) => a.position - b.position), [...outcomes])
    }
    // Conflicting work never overlaps, undos included.
    for (const [i, a] of world.log.entries()) {
      for (const b of world.log.slice(i + 1)) {
        const reads = (one: Entry) => one.what === "do" && (script[one.tag]?.name === "read" || /^o[13]/.test(one.tag))
        if (!a.keys.some((key) => b.keys.includes(key)) || (reads(a) && reads(b))) continue
        assert.isTrue(a.to! <= b.from || b.to! <= a.from, `${a.what} ${a.tag} and ${b.what} ${b.tag}`)
      }
    }
    let undos = 0
    for (const unit of new Set(given.map((one) => one.unit))) {
      const members = answered.filter(({ position }) => given[position]!.unit === unit)
      const can = (tag: string) => {
        const one = given[Number(tag.slice(1))]
        return one !== undefined && one.unit === unit && one.name !== "read" && one.name !== "stays"
      }
      const applied = world.ends.filter((tag) => tag.startsWith("c") && can(tag))
      const tried = undone().filter(can)
      const isStopped = members.some((one) =>
        Outcome.isFailure(one) || (one.status === "cancelled" && one.code !== "by_itself")
      )
      if (!isStopped) {
        assert.deepStrictEqual(tried, [])
        for (const { id } of members) assert.isTrue(!can(id) || world.standing.has(id), id)
        continue
      }
      // Each once, the last to end first; one that throws before its first step is in no log.
      const began = applied.filter((tag) => script[tag]!.undoEnd !== "throw")
      assert.deepStrictEqual(tried, began.toReversed())
      undos += tried.length
      for (const outcome of members) {
        const { id } = outcome
        if (!applied.includes(id)) {
          assert.isUndefined(outcome.undo)
          continue
        }
        assert.strictEqual(outcome.undo, world.standing.has(id) ? "failed" : "done")
        assert.strictEqual(outcome.effect, world.standing.has(id) ? "unknown" : "none")
        assert.isTrue(!world.standing.has(id) || script[id]!.undoEnd !== undefined)
      }
    }
    for (const outcome of answered) {
      const told = events.filter((event) => event._tag === "CallUndone" && event.position === outcome.position)
      assert.deepStrictEqual(
        told.map((event) => event._tag === "CallUndone" && event.ok),
        outcome.undo === undefined ? [] : [outcome.undo === "done"]
      )
    }
    return undos
  })

describe("R25: always", () => {
  const given: Arbitrary.Arbitrary<ReadonlyArray<Given>> = Arbitrary.array(
    Arbitrary.all({
      name: pick<Name>("write", "write", "post", "put", "stays", "read"),
      k: pick<ReadonlyArray<string>>([], ["x"], ["y"], ["x", "z"]),
      unit: pick("one", "one", "two"),
      ms: pick(0, 5, 10, 10, 30),
      end: pick<"ok" | "fail" | "die" | "interrupt">("ok", "ok", "ok", "ok", "fail", "die", "interrupt"),
      undo: pick(0, 3, 8),
      undoEnd: pick<"ok" | "fail" | "throw">("ok", "ok", "ok", "fail", "throw")
    }),
    { minLength: 1, maxLength: 6 }
  )

  it.effect.prop(
    "a unit stands whole, or each applied write with an undo is undone once, in the reverse order of the ends, or told as failed",
    {
      given,
      execution: pick<"parallel" | "sequential" | number>("parallel", "parallel", 1, 2, "sequential"),
      stop: Arbitrary.flatMap(pick(false, true), (stops) =>
        stops
          ? Arbitrary.all({
            at: int(1, 80),
            how: pick<"deadline" | "cancelOn" | "interrupt">("deadline", "cancelOn", "interrupt")
          })
          : Arbitrary.Constant(undefined))
    },
    ({ execution, given, stop }) => Effect.asVoid(check(given, stop, { execution, dedupe: "off" })),
    runs(400)
  )

  for (const how of ["deadline", "cancelOn", "interrupt"] as const) {
    it.effect(`a stop at every instant: ${how}`, () =>
      Effect.gen(function*() {
        const base = { unit: "one", end: "ok", undo: 4, undoEnd: "ok" } as const
        const given: ReadonlyArray<Given> = [
          { ...base, name: "write", k: ["x"], ms: 5 },
          { ...base, name: "post", k: ["y"], ms: 9 },
          { ...base, name: "put", k: ["x"], ms: 6, undoEnd: "fail" },
          { ...base, name: "write", k: [], ms: 12, unit: "two" },
          { ...base, name: "read", k: [], ms: 17 },
          { ...base, name: "read", k: [], ms: 14, unit: "two", end: "fail" }
        ]
        let undos = 0
        for (let at = 1; at <= 50; at++) {
          undos += yield* check(given, { at, how }, { dedupe: "off" }, false)
          undos += yield* check(given, { at, how }, { dedupe: "off" })
        }
        assert.isAbove(undos, 100)
      }))
  }
})
