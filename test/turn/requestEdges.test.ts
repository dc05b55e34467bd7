/** Requests that calls of a turn share, at their edges: in line, stopped, refused, given up, and what their ends say of a backend. */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  Backend,
  BatchTool,
  Coalescer,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnJournal,
  TurnMiddleware
} from "effect-turn"
import type { Outcome, TurnEvent } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as Schema from "effect/Schema"
import { drive, fork, words } from "../utils/kit.ts"

class Shop extends Backend.Service<Shop>()("shop") {}

type Reply = (skus: ReadonlyArray<string>, nth: number) => Effect.Effect<any, string>

const Params = Schema.Struct({
  sku: Schema.String,
  /** What it touches, where that is not what it asks for. */
  k: Schema.optionalKey(Schema.String),
  ms: Schema.optionalKey(Schema.Finite)
})
type Params = typeof Params.Type
const touches = { keys: ({ k, sku }: Params) => [k ?? sku] }
const Failure = Schema.Struct({ why: Schema.Array(Schema.String) })

const afterwards = <A>(value: A, ms = 30) => Effect.as(Effect.sleep(ms), value)

interface Sent {
  readonly at: number
  readonly keys: ReadonlyArray<string>
  ended?: number
}

interface Options {
  readonly size?: number
  readonly window?: number
  readonly limits?: Backend.Options
  readonly backend?: false
  readonly reply?: Reply
}

/** `get` and `see` ask the shop, each through a coalescer of its own; `set` and `pay` write, and are not the shop's. */
const lab = (options: Options = {}) => {
  const sent: Array<Sent> = []
  const begun: Array<readonly [string, number]> = []
  const events: Array<TurnEvent.TurnEvent> = []
  const reply: Reply = options.reply ?? ((skus) => afterwards(skus))
  const through = (name: string) =>
    Coalescer.make({
      name,
      size: options.size,
      window: options.window,
      timeout: "infinite",
      resources: (sku: string) => [sku],
      backend: options.backend === false ? undefined : Shop,
      lookup: (keys: ReadonlyArray<string>) =>
        Effect.gen(function*() {
          const request: Sent = { at: yield* Clock.currentTimeMillis, keys }
          sent.push(request)
          const end = Effect.map(Clock.currentTimeMillis, (now) => void (request.ended = now))
          return yield* Effect.ensuring(reply(keys, sent.length), end) as Effect.Effect<
            ReadonlyArray<string | Coalescer.ItemFailed<typeof Failure.Type>>,
            string
          >
        })
    })
  const asks = <const Name extends string>(name: Name) =>
    pipe(
      Tool.make(name, { parameters: Params, success: Schema.String, failure: Failure }),
      ToolPolicy.read(touches),
      ToolPolicy.timeout(name === "see" ? 50 : "infinite"),
      Coalescer.through(through(name) as Coalescer.Coalescer<string, string, typeof Failure.Type, Shop>, ({ sku }) => {
        if (sku === "bad") throw new Error("no such shelf")
        return sku
      })
    )
  const Get = asks("get")
  const See = asks("see")
  const writes = <const Name extends string>(name: Name, needsApproval: boolean) =>
    pipe(Tool.make(name, { parameters: Params, success: Schema.Void, needsApproval }), ToolPolicy.write(touches))
  const toolkit = Toolkit.make(Get, See, writes("set", false), writes("pay", true))
  const write = ({ ms, sku }: Params) =>
    Effect.gen(function*() {
      begun.push([sku, yield* Clock.currentTimeMillis])
      yield* Effect.sleep(ms ?? 20)
    })
  const layer = Layer.mergeAll(
    toolkit.toLayer({ get: Coalescer.handler(Get), see: Coalescer.handler(See), set: write, pay: write }),
    Turn.layer(),
    Shop.layer(options.limits ?? { concurrency: 1 }),
    Layer.succeed(TurnContext.Tenant, "t")
  )
  const told = { onEvent: (event: TurnEvent.TurnEvent) => void events.push(event), dedupe: "off" } as const
  const started = (calls: ReadonlyArray<ToolCall.ToolCall>, more?: Turn.Options) =>
    Turn.start(toolkit, calls, { ...told, ...more })
  const run = (calls: ReadonlyArray<ToolCall.ToolCall>, more?: Turn.Options) =>
    Turn.run(toolkit, calls, { ...told, ...more })
  const inside = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    drive(effect.pipe(Effect.scoped, Effect.provide(layer))) as Effect.Effect<A, E>
  return { begun, events, inside, layer, run, sent, started, toolkit }
}

let ids = 0
const call = (
  name: "get" | "see" | "set" | "pay",
  sku: string,
  more: { readonly k?: string; readonly ms?: number } = {}
) => ToolCall.make(`c${ids++}`, name, { sku, ...more })
const get = (sku: string, k?: string) => call("get", sku, k === undefined ? {} : { k })

/** The shop's one permit is out for a while. */
const busy = (ms = 100) => fork(Shop.withPermit(Effect.sleep(ms)))
const keysOf = (sent: ReadonlyArray<Sent>) => sent.map(({ keys }) => keys.join())
const timesOf = (sent: ReadonlyArray<Sent>) => sent.map(({ at, keys }) => `${keys.join()} at ${at}`)
const positionsOf = (events: ReadonlyArray<TurnEvent.TurnEvent>) =>
  events.flatMap((event) => event._tag === "RequestSent" ? [event.positions] : [])

describe("what the end of a request says to a circuit", () => {
  /** The circuit after requests that ended so, one after another; it opens at two failures in a row. */
  const after = (...replies: ReadonlyArray<Effect.Effect<any, string>>) => {
    const { inside, run } = lab({
      reply: (_, nth) => replies[nth - 1]!,
      limits: {
        concurrency: 1,
        breaker: { tripPolicy: CircuitBreaker.consecutive(2), openDuration: "1 hour" }
      }
    })
    return inside(
      Effect.gen(function*() {
        for (const _ of replies) yield* run([get("A"), get("B")])
        yield* Effect.sleep(1)
        const { circuit, running } = yield* Shop.stats
        assert.strictEqual(running, 0)
        const next = circuit === "open" ? yield* run([get("A"), get("B")]) : []
        return [circuit, ...new Set(words(next)), ...new Set(next.map(({ started }) => started))]
      })
    )
  }
  const failed = Effect.fail("closed today")
  const open = ["open", "error/circuit_open", false]

  it.effect("failed, broken, and without what was asked: it opens", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* after(failed, failed), open)
      assert.deepStrictEqual(yield* after(failed, Effect.die("broken")), open)
      assert.deepStrictEqual(yield* after(Effect.succeed(["one for two"]), failed), open)
      assert.deepStrictEqual(yield* after(failed), ["closed"])
    }))

  it.effect("timed out: it opens", () =>
    Effect.gen(function*() {
      const late = Coalescer.make({
        name: "late",
        timeout: 50,
        backend: Shop,
        lookup: (skus: ReadonlyArray<string>) => afterwards(skus, 1000)
      })
      const Late = pipe(
        Tool.make("late", { parameters: Params, success: Schema.String }),
        ToolPolicy.read(touches),
        Coalescer.through(late, ({ sku }) => sku)
      )
      const kit = Toolkit.make(Late)
      const breaker = { tripPolicy: CircuitBreaker.consecutive(1), openDuration: "1 hour" } as const
      const layer = Layer.mergeAll(
        kit.toLayer({ late: Coalescer.handler(Late) }),
        Turn.layer(),
        Shop.layer({ concurrency: 1, breaker }),
        Layer.succeed(TurnContext.Tenant, "t")
      )
      const once = Turn.run(kit, [ToolCall.make("c", "late", { sku: "A" })])
      const [one, two] = yield* drive(
        Effect.all([once, Effect.delay(once, 1)]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual([one[0]!.started, ...words(two)], [true, "error/circuit_open"])
    }))

  it.effect("an item's own failure, an item that is not there, a result: the backend works", () =>
    Effect.gen(function*() {
      const own = Coalescer.failed({ why: ["gone"] })
      for (const answer of [[own, own], [undefined, undefined], ["a", own], [own, "b"]]) {
        assert.deepStrictEqual(yield* after(failed, Effect.succeed(answer), failed), ["closed"])
      }
    }))

  it.effect("stopped: nothing", () =>
    Effect.gen(function*() {
      const { inside, run, started } = lab({
        reply: (_, nth) => nth === 2 ? Effect.never : failed,
        limits: { concurrency: 1, breaker: { tripPolicy: CircuitBreaker.consecutive(2), openDuration: "1 hour" } }
      })
      const circuit = yield* inside(
        Effect.gen(function*() {
          yield* run([get("A")])
          const turn = yield* started([get("A")])
          yield* Effect.sleep(10)
          yield* turn.cancel("user")
          yield* Effect.sleep(1)
          const before = (yield* Shop.stats).circuit
          yield* run([get("A")])
          yield* Effect.sleep(1)
          return [before, (yield* Shop.stats).circuit]
        })
      )
      assert.deepStrictEqual(circuit, ["closed", "open"])
    }))
})

describe("which goes first", () => {
  it.effect("items with the longest way below them, and each once", () =>
    Effect.gen(function*() {
      const { events, inside, run, sent } = lab({ size: 2 })
      const calls = ["A", "B", "C", "D"].map((sku) => get(sku))
      yield* inside(run([...calls, call("set", "D"), call("set", "D"), call("set", "C")]))
      assert.deepStrictEqual(timesOf(sent), ["D,C at 0", "A,B at 30"])
      assert.deepStrictEqual(positionsOf(events), [[2, 3], [0, 1]])
    }))

  it.effect("one after another they keep their order where none has more below it", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab({ size: 2 })
      yield* inside(run([...["A", "B", "C", "D"].map((sku) => get(sku)), call("set", "B"), call("set", "C")]))
      assert.deepStrictEqual(keysOf(sent), ["B,C", "A,D"])
    }))

  it.effect("the request with the longest way below it, of those of two coalescers", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab()
      const outcomes = yield* inside(
        Effect.andThen(busy(10), run([get("A"), call("see", "B"), get("C"), call("set", "B"), call("set", "B")]))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["B at 10", "A,C at 40"])
    }))

  it.effect("else the one whose first call stands first", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab()
      yield* inside(
        Effect.andThen(busy(40), run([call("set", "X"), get("A", "X"), call("see", "B"), get("C", "X")]))
      )
      assert.deepStrictEqual(timesOf(sent), ["A,C at 40", "B at 70"])
    }))

  it.effect("positions are told in their order", () =>
    Effect.gen(function*() {
      const { events, inside, run, sent } = lab()
      yield* inside(run([get("A"), get("B"), get("A", "X")]))
      assert.deepStrictEqual(keysOf(sent), ["A,B"])
      assert.deepStrictEqual(positionsOf(events), [[0, 1, 2]])
    }))
})

describe("a request that stands in line", () => {
  it.effect("is joined by a call that asks for the same", () =>
    Effect.gen(function*() {
      const { events, inside, run, sent } = lab({ size: 1 })
      const outcomes = yield* inside(
        Effect.andThen(busy(), run([get("A"), get("B"), call("set", "X"), get("B", "X")]))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["A at 100", "B at 130"])
      assert.deepStrictEqual(positionsOf(events), [[0], [1, 3]])
    }))

  it.effect("is filled up, and not beyond its size", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab({ size: 2 })
      const outcomes = yield* inside(
        Effect.andThen(busy(), run([get("A"), call("set", "X"), get("B", "X"), get("C", "X")]))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["A,B at 100", "C at 130"])
    }))

  it.effect("is joined by nobody once it is at work", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab({ size: 2 })
      const outcomes = yield* inside(run([get("A"), call("set", "X"), get("A", "X"), get("B", "X")]))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["A at 0", "A,B at 30"])
    }))

  it.effect("asks for nothing that only a cancelled call wanted", () =>
    Effect.gen(function*() {
      const { inside, sent, started } = lab()
      const outcomes = yield* inside(Effect.gen(function*() {
        yield* busy()
        const turn = yield* started([get("A"), get("B"), get("C"), get("C", "X")])
        yield* Effect.sleep(10)
        yield* turn.cancelCall(0)
        yield* turn.cancelCall(2)
        return yield* turn.await
      }))
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok", "cancelled/by_caller", "ok"])
      assert.deepStrictEqual(outcomes.map(({ started }) => started), [false, true, false, true])
      assert.deepStrictEqual(timesOf(sent), ["B,C at 100"])
    }))

  it.effect("leaves the line when all are cancelled, and nobody joins it then", () =>
    Effect.gen(function*() {
      const { inside, sent, started } = lab()
      const seen = yield* inside(Effect.gen(function*() {
        yield* busy()
        const turn = yield* started([get("A"), get("B"), call("set", "X", { ms: 50 }), get("C", "X")])
        yield* Effect.sleep(10)
        const before = (yield* Shop.stats).waiting
        yield* turn.cancelCall(0)
        yield* turn.cancelCall(1)
        const after = (yield* Shop.stats).waiting
        return { waiting: [before, after], outcomes: yield* turn.await }
      }))
      assert.deepStrictEqual(seen.waiting, [1, 0])
      assert.deepStrictEqual(words(seen.outcomes), ["cancelled/by_caller", "cancelled/by_caller", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["C at 100"])
    }))

  it.effect("is not sent where the turn is cancelled", () =>
    Effect.gen(function*() {
      const { events, inside, sent, started } = lab()
      const outcomes = yield* inside(Effect.gen(function*() {
        yield* busy()
        const turn = yield* started([get("A"), get("B")])
        yield* Effect.sleep(10)
        return yield* turn.cancel("user")
      }))
      assert.deepStrictEqual(outcomes.map(({ started, status }) => [status, started]), [
        ["cancelled", false],
        ["cancelled", false]
      ])
      assert.deepStrictEqual([sent, positionsOf(events)], [[], []])
    }))

  it.effect("tells how long it stood still for the rate", () =>
    Effect.gen(function*() {
      const { events, inside, run, sent } = lab({
        size: 1,
        limits: { concurrency: "infinite", rate: { limit: 1, window: 100 } }
      })
      yield* inside(run([get("A"), get("B")]))
      assert.deepStrictEqual(timesOf(sent), ["A at 0", "B at 100"])
      const waited = events.flatMap((event) => event._tag === "CallStarted" ? [event.waited] : [])
      assert.deepStrictEqual(waited.map(({ permit, rate }) => [permit, rate]), [[0, 0], [0, 100]])
    }))

  it.effect("yields the keys of its calls to work inside a call that has started", () =>
    Effect.gen(function*() {
      const { begun, layer, sent, toolkit } = lab()
      const Outer = pipe(Tool.make("outer", { success: Schema.Unknown }), ToolPolicy.read({ keys: () => [] }))
      const both = Toolkit.merge(toolkit, Toolkit.make(Outer))
      const nested = Effect.delay(Effect.orDie(Turn.run(toolkit, [call("set", "A"), get("B")], { turn: "inner" })), 10)
        .pipe(
          Effect.map((outcomes) => words(outcomes))
        )
      const outer = Toolkit.make(Outer).toLayer({ outer: () => nested as Effect.Effect<unknown> })
      const seen = yield* drive(
        Effect.gen(function*() {
          yield* busy()
          const turn = yield* Turn.start(both, [ToolCall.make("o", "outer"), get("A"), get("C")], { turn: "one" })
          const waiting: Array<number> = []
          for (const pause of [5, 10, 20]) {
            yield* Effect.sleep(pause)
            waiting.push((yield* Shop.stats).waiting)
          }
          return { waiting, outcomes: yield* turn.await }
        }).pipe(Effect.scoped, Effect.provide([layer, outer, TurnJournal.layerMemory])) as Effect.Effect<
          { waiting: Array<number>; outcomes: ReadonlyArray<Outcome.Outcome<any>> }
        >
      )
      assert.deepStrictEqual(words(seen.outcomes), ["ok", "ok", "ok"])
      assert.deepStrictEqual(begun, [["A", 10]])
      assert.deepStrictEqual(seen.waiting, [1, 2, 2])
      assert.strictEqual(sent.flatMap(({ keys }) => keys).toSorted().join(), "A,B,C")
    }))
})

describe("calls on their way to a request", () => {
  const slow = TurnMiddleware.make("slow", {
    before: ({ params }) => (params as Params).sku === "slow" ? Effect.sleep(50) : Effect.void
  })

  it.effect("one that is cancelled is not waited for", () =>
    Effect.gen(function*() {
      const { inside, sent, started } = lab({ window: 1000 })
      const outcomes = yield* inside(Effect.gen(function*() {
        const turn = yield* started([get("slow"), get("A"), get("B")], { middleware: [slow] })
        yield* Effect.sleep(10)
        yield* turn.cancelCall(0)
        return yield* turn.await
      }))
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["A,B at 10"])
    }))

  it.effect("one that is cancelled while another is waited for is not asked for", () =>
    Effect.gen(function*() {
      const { events, inside, sent, started } = lab({ window: 1000 })
      const outcomes = yield* inside(Effect.gen(function*() {
        const turn = yield* started([get("slow"), get("A"), get("B"), get("B", "X")], { middleware: [slow] })
        yield* Effect.sleep(10)
        yield* turn.cancelCall(1)
        yield* turn.cancelCall(2)
        return yield* turn.await
      }))
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_caller", "cancelled/by_caller", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["B,slow at 50"])
      const begun = events.flatMap((event) => event._tag === "CallStarted" ? [event.position] : [])
      assert.deepStrictEqual(begun.toSorted(), [0, 3])
    }))

  it.effect("one whose key cannot be told is not started, and the others go on", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab()
      const outcomes = yield* inside(run([get("A"), get("bad"), get("B")]))
      assert.deepStrictEqual(words(outcomes), ["ok", "error/defect", "ok"])
      assert.isFalse(outcomes[1]!.started)
      assert.include(outcomes[1]!.message, "no such shelf")
      assert.deepStrictEqual(timesOf(sent), ["A,B at 0"])
    }))

  it.effect("two that share an item's own failure share no memory", () =>
    Effect.gen(function*() {
      const { inside, run } = lab({ reply: () => Effect.succeed([Coalescer.failed({ why: ["gone"] })]) })
      const [one, two] = yield* inside(run([get("A"), get("A", "X")]))
      const whyOf = (outcome: Outcome.Outcome<any>) => (outcome as { failure: { why: Array<string> } }).failure.why
      whyOf(one!).push("for ever")
      assert.deepStrictEqual(whyOf(two!), ["gone"])
    }))
})

describe("a lookup that does not hear its stop", () => {
  for (const backend of [undefined, false] as const) {
    it.effect(`is given up, and counts no more under the turn's own limit (${backend === false ? "no" : "a"} backend)`, () =>
      Effect.gen(function*() {
        const { begun, inside, run, sent } = lab({
          ...(backend === undefined ? undefined : { backend }),
          reply: (skus) => Effect.uninterruptible(afterwards(skus, 250))
        })
        const seen = yield* inside(Effect.gen(function*() {
          const writes = ["X", "Y", "Z"].map((sku) => call("set", sku, { ms: 200 }))
          const turn = yield* fork(run([call("see", "A"), ...writes], { execution: 1, grace: 50 }))
          const running: Array<number> = []
          yield* Effect.sleep(1)
          const next = yield* fork(Shop.withPermit(Clock.currentTimeMillis))
          for (const pause of [149, 99, 2]) {
            yield* Effect.sleep(pause)
            running.push((yield* Shop.stats).running)
          }
          yield* Effect.sleep(1000)
          return { next: yield* Fiber.join(next), running, outcomes: turn.pollUnsafe() }
        }))
        assert.deepStrictEqual(begun, [["X", 100], ["Y", 300], ["Z", 500]])
        assert.strictEqual(seen.next, backend === false ? 1 : 250)
        assert.deepStrictEqual(seen.running, backend === false ? [0, 0, 0] : [1, 1, 0])
        assert.strictEqual(sent[0]!.ended, 250)
        assert.strictEqual(seen.outcomes?._tag, "Success")
      }))
  }
})

describe("a response that goes on, and decisions that come late", () => {
  it.effect("cut short while a request waits: what has begun keeps its outcome, the rest is not sent", () =>
    Effect.gen(function*() {
      const { inside, sent, toolkit } = lab({ size: 1 })
      const outcomes = yield* inside(Effect.gen(function*() {
        const turn = yield* Turn.open(toolkit)
        for (const sku of ["A", "B"]) yield* turn.submit(get(sku))
        yield* Effect.sleep(10)
        return yield* turn.end("length")
      }))
      assert.deepStrictEqual(words(outcomes), ["ok", "error/incomplete_response"])
      assert.deepStrictEqual(keysOf(sent), ["A"])
    }))

  it.effect("a write that is held afterwards takes nothing from a request in line", () =>
    Effect.gen(function*() {
      const { inside, sent, toolkit } = lab({ size: 1 })
      const outcomes = yield* inside(Effect.gen(function*() {
        const turn = yield* Turn.open(toolkit)
        for (const one of [get("A"), get("B"), call("pay", "B"), get("B", "C")]) yield* turn.submit(one)
        yield* Effect.sleep(10)
        return yield* turn.end("tool-calls")
      }))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "pending_approval", "ok"])
      assert.deepStrictEqual(keysOf(sent), ["A", "B"])
    }))

  it.effect("a call behind one that is decided late asks then, and joins what still waits", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab()
      const outcomes = yield* inside(Effect.andThen(
        busy(),
        run([get("A"), call("pay", "X"), get("B", "X")], {
          decide: () => Effect.delay(Effect.succeed(Approval.approve()), 30)
        })
      ))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      assert.deepStrictEqual(timesOf(sent), ["A,B at 100"])
    }))
})

describe("lists", () => {
  const desk = (
    limits: Backend.Options,
    reply = (ids: ReadonlyArray<string>): Effect.Effect<any, string> => afterwards(ids)
  ) => {
    const sent: Array<string> = []
    const orders = BatchTool.make("list", {
      description: "Looks orders up.",
      item: Schema.String,
      success: Schema.String,
      chunk: 1,
      backend: Shop,
      lookup: (ids) => Effect.suspend(() => (sent.push(ids.join()), reply(ids))),
      single: { name: "one" }
    })
    const toolkit = Toolkit.make(orders.tool, orders.single)
    const layer = Layer.mergeAll(
      toolkit.toLayer(orders.handlers),
      Turn.layer(),
      Shop.layer(limits),
      Layer.succeed(TurnContext.Tenant, "t")
    )
    const run = (items: ReadonlyArray<string>) => Turn.run(toolkit, [ToolCall.make("l", "list", { items })])
    const inside = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      drive(effect.pipe(Effect.provide(layer))) as Effect.Effect<A, E>
    return { inside, run, sent }
  }
  const resultOf = (outcome: Outcome.Outcome<any>) => (outcome as { result: BatchTool.Result<any> }).result

  it.effect("a full line refuses some of the items, and the others are found", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = desk({ concurrency: 1, queueLimit: 1 })
      const [outcome] = yield* inside(run(["A", "B", "C"]))
      const { results, status, summary } = resultOf(outcome!)
      assert.deepStrictEqual([status, summary.ok, summary.other], ["partial", 2, 1])
      assert.deepInclude(results["B"], { status: "ok", value: "B" })
      assert.deepInclude(results["C"], { status: "error", retryable: true })
      assert.include(results["C"].message, "line")
      assert.deepStrictEqual(sent, ["A", "B"])
    }))

  it.effect("a full line refuses the call where it refuses all of it", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = desk({ concurrency: 1, queueLimit: 0 })
      const outcomes = yield* inside(Effect.andThen(busy(), run(["A", "B"])))
      assert.deepStrictEqual([words(outcomes), outcomes[0]!.started], [["error/queue_full"], false])
      assert.deepStrictEqual(sent, [])
    }))

  it.effect("a circuit that the first request opens refuses the rest of a list that has started", () =>
    Effect.gen(function*() {
      const breaker = { tripPolicy: CircuitBreaker.consecutive(1), openDuration: "1 hour" } as const
      const { inside, run, sent } = desk(
        { concurrency: 1, breaker },
        () => Effect.delay(Effect.fail("closed today"), 10)
      )
      const [outcome] = yield* inside(run(["A", "B"]))
      assert.deepStrictEqual([...words([outcome!]), outcome!.started], ["ok", true])
      const { results, status } = resultOf(outcome!)
      assert.strictEqual(status, "error")
      assert.include(results["A"].message, "closed today")
      assert.include(results["B"].message, "failed too often")
      assert.deepStrictEqual(sent, ["A"])
    }))

  it.effect("what a cache has of a list is not asked for", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = desk({ concurrency: 2 })
      const [, [outcome]] = yield* inside(Coalescer.cached(Effect.all([run(["A"]), run(["A", "B"])])))
      assert.strictEqual(resultOf(outcome!).summary.ok, 2)
      assert.deepStrictEqual(sent, ["A", "B"])
    }))
})

describe("everything from a cache", () => {
  for (const [how, twice] of [["at once", false], ["where a middleware does the handler twice", true]] as const) {
    it.effect(`no request, and no permit, ${how}`, () =>
      Effect.gen(function*() {
        const { events, inside, run, sent } = lab()
        const middleware = twice ? [TurnMiddleware.make("m", { around: (work) => Effect.andThen(work, work) })] : []
        const seen = yield* inside(
          Coalescer.cached(Effect.gen(function*() {
            yield* run([get("A"), get("B")])
            yield* busy()
            const before = yield* Clock.currentTimeMillis
            const outcomes = yield* run([get("A"), get("B")], { execution: 1, middleware })
            return [(yield* Clock.currentTimeMillis) - before, ...words(outcomes)]
          }))
        )
        assert.deepStrictEqual(seen, [0, "ok", "ok"])
        assert.deepStrictEqual([keysOf(sent), positionsOf(events)], [["A,B"], [[0, 1]]])
      }))
  }
})

describe("two coalescers on one backend", () => {
  it.effect("share no request", () =>
    Effect.gen(function*() {
      const { inside, run, sent } = lab({ limits: { concurrency: "infinite" } })
      yield* inside(run([get("A"), call("see", "A"), get("B")]))
      assert.deepStrictEqual(timesOf(sent), ["A,B at 0", "A at 0"])
    }))
})
