/** Runs that are tried again by themselves: which, when, and what their calls are answered. */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  IdempotencyStore,
  Outcome,
  Siblings,
  ToolCall,
  ToolDurations,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnEvent,
  TurnJournal,
  TurnMiddleware,
  TurnTelemetry
} from "effect-turn"
import type * as Tool from "effect/ai/Tool"
import * as AiTool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as CircuitBreaker from "effect/persistence/CircuitBreaker"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import * as Tracer from "effect/Tracer"
import { int, pick, runs } from "../utils/gen.ts"
import { Api, drive, ended, fork, idle, words } from "../utils/kit.ts"

type Policy = (tool: any) => Tool.Any

const tool = (name: string, ...policies: ReadonlyArray<Policy>): Tool.Any =>
  policies.reduce(
    (tool, policy) => policy(tool),
    AiTool.make(name, {
      parameters: Schema.Struct({ n: Schema.optionalKey(Schema.Finite) }),
      success: Schema.Unknown,
      failure: Schema.Unknown
    }) as Tool.Any
  )

/** What one attempt does. The default is to succeed after 10 ms with its number. */
interface Act {
  readonly ms?: number
  readonly fail?: unknown
  readonly die?: boolean
  readonly interrupt?: boolean
  readonly result?: unknown
  /** When its effect lands, in ms from its start. Whether it fails or not, and whether it is stopped after that or not. */
  readonly effectAt?: number
  readonly deaf?: boolean
  /** How long its clean-up takes when it is stopped. */
  readonly cleanup?: number
  readonly run?: Effect.Effect<unknown, unknown, any>
}

interface Attempt {
  readonly tool: string
  readonly position: number
  readonly attempt: number
  readonly key: string | undefined
  readonly at: number
  endedAt: number | undefined
}

/** A backend that knows which effects have landed, and handlers that act by their script, one act for each attempt of a call. */
class World {
  readonly attempts: Array<Attempt> = []
  readonly events: Array<TurnEvent.TurnEvent> = []
  readonly effects = new Map<string, number>()
  /** Keys that the backend honours: they land once. */
  readonly honoured = new Set<string>()
  readonly script = new Map<string, ReadonlyArray<Act>>()
  /** When its turn began. */
  zero = 0

  readonly note = (event: TurnEvent.TurnEvent): void => {
    this.events.push({ ...event, at: event.at - this.zero })
  }

  of<Tag extends TurnEvent.TurnEvent["_tag"]>(tag: Tag) {
    return this.events.filter((event): event is Extract<TurnEvent.TurnEvent, { readonly _tag: Tag }> =>
      event._tag === tag
    )
  }

  /** Starts and ends of a tool's attempts. */
  spans(tool: string): ReadonlyArray<readonly [number, number | undefined]> {
    return this.attempts.filter((one) => one.tool === tool).map(({ at, endedAt }) => [at, endedAt])
  }

  count(tool: string): number {
    return this.attempts.filter((one) => one.tool === tool).length
  }

  land(what: string, honours: boolean): void {
    if (honours && this.effects.has(what)) return
    this.effects.set(what, (this.effects.get(what) ?? 0) + 1)
  }

  handler(name: string) {
    return () =>
      Effect.gen({ self: this }, function*() {
        const call = (yield* TurnContext.CurrentCall)!
        const acts = this.script.get(`${name}#${call.position}`) ?? this.script.get(name) ?? []
        const act = acts[Math.min(call.attempt, acts.length) - 1] ?? {}
        const one: Attempt = {
          tool: name,
          position: call.position,
          attempt: call.attempt,
          key: call.idempotencyKey,
          at: (yield* Clock.currentTimeMillis) - this.zero,
          endedAt: undefined
        }
        this.attempts.push(one)
        const what = call.idempotencyKey ?? `${name}#${call.position}`
        const honours = call.idempotencyKey !== undefined && this.honoured.has(name)
        const ms = act.ms ?? 10
        const wait = (millis: number) =>
          millis === 0 ? Effect.void : millis === Infinity ? Effect.never : Effect.sleep(millis)
        const work = act.run ?? Effect.gen({ self: this }, function*() {
          if (act.effectAt === undefined) return yield* wait(ms)
          yield* wait(act.effectAt)
          this.land(what, honours)
          yield* wait(ms - act.effectAt)
        })
        const body = act.cleanup === undefined ? work : Effect.onInterrupt(work, () => Effect.sleep(act.cleanup!))
        const whole = Effect.flatMap(body, (value): Effect.Effect<unknown, unknown> =>
          "fail" in act
            ? Effect.fail(act.fail)
            : act.die === true
            ? Effect.die(new Error("broke"))
            : act.interrupt === true
            ? Effect.interrupt
            : Effect.succeed(act.run !== undefined ? value : "result" in act ? act.result : call.attempt))
        return yield* Effect.onExit(act.deaf === true ? Effect.uninterruptible(whole) : whole, () =>
          Effect.map(Clock.currentTimeMillis, (now) => {
            one.endedAt = now - this.zero
          }))
      })
  }
}

type Script = { readonly [tool: string]: ReadonlyArray<Act> }

interface Given extends Omit<Turn.Options, "onEvent"> {
  readonly world?: World
  readonly api?: Parameters<typeof Api.layer>[0]
  readonly layer?: Layer.Layer<any>
}

const layerOf = (world: World, tools: ReadonlyArray<Tool.Any>, given: Given = {}) => {
  const kit = Toolkit.make(...(tools as ReadonlyArray<any>))
  const handlers = Object.fromEntries(tools.map(({ name }) => [name, world.handler(name)]))
  const layer = Layer.mergeAll(
    kit.toLayer(handlers as any),
    Turn.layer(),
    Api.layer(given.api ?? { concurrency: "infinite" }),
    Layer.succeed(TurnContext.Tenant, "t"),
    Layer.fresh(IdempotencyStore.layerMemory),
    given.layer ?? Layer.empty
  ) as Layer.Layer<any>
  return { kit, layer }
}

const optionsOf = (world: World, { api: _, layer: __, world: ___, ...options }: Given): Turn.Options => ({
  ...options,
  onEvent: world.note
})

/** A turn of these calls, as an effect that needs nothing. */
const turn = (
  world: World,
  tools: ReadonlyArray<Tool.Any>,
  script: Script,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  given: Given = {}
): Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>> => {
  for (const [name, acts] of Object.entries(script)) world.script.set(name, acts)
  const { kit, layer } = layerOf(world, tools, given)
  return Effect.flatMap(Clock.currentTimeMillis, (now) => {
    world.zero = now
    return Turn.run(kit, calls, optionsOf(world, given))
  }).pipe(Effect.provide(layer)) as Effect.Effect<any>
}

const once = (name: string, n?: number) => ToolCall.make(`${name}${n ?? ""}`, name, n === undefined ? {} : { n })

/** One call of one tool, driven to its end. */
const alone = (policies: ReadonlyArray<Policy>, acts: ReadonlyArray<Act>, given: Given = {}) =>
  Effect.gen(function*() {
    const world = new World()
    const [outcome] = yield* drive(turn(world, [tool("t", ...policies)], { t: acts }, [once("t")], given))
    return { outcome: outcome!, world, spans: world.spans("t") }
  })

const read: Policy = ToolPolicy.read({ keys: () => [] })
const write: Policy = ToolPolicy.write({ keys: () => [] })
const forward: Policy = ToolPolicy.forward<any>(() => "key")
const record: Policy = IdempotencyStore.record<any>(() => "key") as Policy
const verify = (verdict: ToolPolicy.Verdict<unknown> | (() => Effect.Effect<ToolPolicy.Verdict<unknown>, unknown>)) =>
  IdempotencyStore.verify<any, unknown, never>({
    key: () => "key",
    ask: () => typeof verdict === "function" ? verdict() : Effect.succeed(verdict)
  }) as Policy
const retry = (retry: ToolPolicy.Retry<any>): Policy => ToolPolicy.retry(retry) as Policy
/** Without chance: 10 ms before each attempt. */
const steady = (times: number): Policy => retry({ times, schedule: Schedule.spaced(10), jitter: false })
const failures = (failures: ToolPolicy.Failures<any>): Policy => ToolPolicy.failures(failures) as Policy
/** A failure with this text, or these milliseconds to wait. */
const classed = failures({
  noEffect: (failure) => failure === "refused",
  transient: (failure) => failure === "lost" || failure === "refused",
  rateLimited: (failure) => typeof failure === "number" ? failure === 0 || failure : false
})

const facts = (outcome: Outcome.Outcome<any>) => [outcome.started, outcome.effect, outcome.retryable] as const
const answer = (outcome: Outcome.Outcome<any>) =>
  [words([outcome])[0], outcome.effect, outcome.retryable, outcome.attempts] as const

describe("R24: too many calls", () => {
  const said = (says: unknown, policies: ReadonlyArray<Policy> = [read]) =>
    Effect.map(
      alone([...policies, failures({ rateLimited: () => says as boolean })], [{ fail: { why: "busy" } }]),
      ({ outcome }) => outcome as Outcome.RateLimited<string, unknown>
    )

  it.effect("a failure that says so is answered so, with the time that it tells", () =>
    Effect.gen(function*() {
      for (const policies of [[read], [write], [write, forward], [write, record]]) {
        const plain = yield* said(true, policies)
        assert.deepStrictEqual([...words([plain]), ...facts(plain)], ["error/rate_limited", true, "none", true])
        assert.include(plain.message, "too many calls, so it was not done: call it again later")
        assert.notProperty(plain, "retryAfter")
        const timed = yield* said("1500 millis", policies)
        assert.strictEqual(timed.retryAfter, 1500)
        assert.include(timed.message, "call it again in 1s 500ms")
        assert.deepStrictEqual([timed.failure, timed.encoded], [{ why: "busy" }, { why: "busy" }])
      }
      const never = yield* said(Infinity)
      assert.deepStrictEqual([...words([never]), never.retryable, never.retryAfter], [
        "error/rate_limited",
        false,
        undefined
      ])
      for (const now of [0, -5, "0 millis"]) assert.strictEqual((yield* said(now)).retryAfter, undefined)
    }))

  it.effect("as JSON and for the model", () =>
    Effect.gen(function*() {
      const outcome = yield* said(250, [write])
      const json = Outcome.toJson(outcome)
      assert.deepInclude(json, { code: "rate_limited", retryAfter: 250, failure: { why: "busy" } })
      assert.deepStrictEqual(Schema.decodeUnknownSync(Outcome.Encoded)(JSON.parse(JSON.stringify(json))), json)
      const { isFailure, value } = Outcome.forModel(outcome)
      assert.isTrue(isFailure)
      assert.deepInclude(value as object, { code: "rate_limited", retryAfter: 250, effect: "none" })
    }))

  it.effect("what is no answer says nothing, and one that throws classes in the careful way", () =>
    Effect.gen(function*() {
      for (const says of [false, undefined, null, NaN, "soon", "", [1], Symbol("x")]) {
        const outcome = yield* said(says, [write])
        assert.deepStrictEqual([...words([outcome]), outcome.effect], ["error/failed", "unknown"])
      }
      const { outcome } = yield* alone([
        write,
        failures({
          rateLimited: () => {
            throw new Error("no")
          }
        })
      ], [{ fail: "x" }])
      assert.deepStrictEqual([...words([outcome]), ...facts(outcome)], ["error/failed", true, "unknown", false])
    }))

  it.effect("it is a failure for its siblings, its handlers' own end, and no word of its backend's circuit", () =>
    Effect.gen(function*() {
      assert.isTrue(Outcome.isFailure(yield* said(true)))
      const busy = tool(
        "t",
        read,
        ToolPolicy.on(Api) as Policy,
        failures({ rateLimited: (failure) => failure === "busy" })
      )
      const breaker = { tripPolicy: CircuitBreaker.consecutive(2), openDuration: 1_000 } as const
      const tries = (acts: ReadonlyArray<Act>) => {
        const world = new World()
        acts.forEach((act, i) => world.script.set(`t#${i}`, [act]))
        return drive(
          turn(world, [busy], {}, acts.map((_, i) => once("t", i)), {
            execution: "sequential",
            api: { concurrency: 1, breaker }
          })
        )
      }
      const two = yield* tries([{ fail: "busy" }, { fail: "busy" }, { fail: "busy" }, {}])
      assert.deepStrictEqual(words(two).slice(-1), ["ok"])
      // It does not wash away what came before it either.
      const between = yield* tries([{ fail: "lost" }, { fail: "busy" }, { fail: "lost" }, {}])
      assert.deepStrictEqual(words(between).slice(-1), ["error/circuit_open"])
    }))

  it.effect("a governed handler fails with its own failure", () =>
    Effect.gen(function*() {
      const kit = Toolkit.make(tool("t", read, failures({ rateLimited: () => 5 })) as any) as any
      const own = Layer.mergeAll(kit.toLayer({ t: () => Effect.fail("busy") }), Turn.layer()) as Layer.Layer<any>
      const handled = Effect.gen(function*() {
        const { handle } = (yield* kit) as any
        return yield* Stream.runDrain(yield* handle("t", {}))
      }).pipe(Effect.provide(Layer.provideMerge(Turn.layerHandlers(kit), own))) as Effect.Effect<unknown, unknown>
      assert.deepStrictEqual(yield* drive(Effect.flip(handled)), "busy")
    }))
})

describe("R24: what is tried again", () => {
  const lost: Act = { ms: 10, fail: "lost" }
  const late: Act = { ms: Infinity }
  const short: Policy = ToolPolicy.timeout(20)

  it.effect("reads: after failures that may pass, and when their own clock has ended them", () =>
    Effect.gen(function*() {
      const plain = yield* alone([read, steady(2)], [lost, lost, {}])
      assert.deepStrictEqual(answer(plain.outcome), ["ok", "none", false, 3])
      assert.deepStrictEqual(plain.spans, [[0, 10], [20, 30], [40, 50]])
      const slow = yield* alone([read, short, steady(2)], [late, {}])
      assert.deepStrictEqual([answer(slow.outcome), slow.spans], [["ok", "none", false, 2], [[0, 20], [30, 40]]])
      const silent = yield* alone([read, ToolPolicy.idleTimeout(15), steady(1)], [late, late])
      assert.deepStrictEqual([answer(silent.outcome), silent.spans], [
        ["timeout/handler", "none", true, 2],
        [[0, 15], [25, 40]]
      ])
      const once = yield* alone([read, steady(2)], [{}])
      assert.deepStrictEqual([answer(once.outcome), once.spans.length], [["ok", "none", false, undefined], 1])
    }))

  it.effect("not more often than is said, and the last failure is the answer", () =>
    Effect.gen(function*() {
      for (const times of [0, 1, 3]) {
        const { outcome, spans } = yield* alone([read, classed, steady(times)], [lost])
        assert.deepStrictEqual([answer(outcome), spans.length], [
          ["error/failed", "none", true, times === 0 ? undefined : times + 1],
          times + 1
        ])
      }
      for (const times of [-1, 1.5, NaN, Infinity]) {
        assert.throws(() => retry({ times })(tool("t", read)), /tool "t".*"retry.times"/)
      }
    }))

  it.effect("by default what is declared to pass; all failures where nothing is declared", () =>
    Effect.gen(function*() {
      const count = (declared: ReadonlyArray<Policy>, fail: unknown) =>
        Effect.map(alone([read, ...declared, steady(1)], [{ fail }, {}]), ({ spans }) => spans.length)
      assert.strictEqual(yield* count([], "anything"), 2)
      assert.strictEqual(yield* count([classed], "lost"), 2)
      assert.strictEqual(yield* count([classed], 0), 2)
      assert.strictEqual(yield* count([classed], "anything"), 1)
      assert.strictEqual(yield* count([failures({ transient: () => false })], "anything"), 1)
      assert.strictEqual(yield* count([failures({ rateLimited: () => false })], "anything"), 1)
      assert.strictEqual(yield* count([failures({ noEffect: () => true })], "anything"), 2)
      assert.strictEqual(yield* count([failures({ rateLimited: () => Infinity })], "anything"), 1)
    }))

  it.effect("`while` decides about failures, and not about clocks; one that throws says no", () =>
    Effect.gen(function*() {
      const whiles = (decides: (failure: unknown) => boolean, act: Act, ...more: ReadonlyArray<Policy>) =>
        Effect.map(
          alone([
            read,
            classed,
            short,
            retry({ times: 1, schedule: Schedule.spaced(10), while: decides }),
            ...more
          ], [act, {}]),
          ({ spans }) => spans.length
        )
      assert.strictEqual(yield* whiles((failure) => failure === "odd", { fail: "odd" }), 2)
      assert.strictEqual(yield* whiles((failure) => failure === "odd", lost), 1)
      assert.strictEqual(yield* whiles((failure) => failure !== 5, { fail: 5 }), 1)
      assert.strictEqual(yield* whiles(() => false, late), 2)
      const broken = (): boolean => {
        throw new Error("no")
      }
      assert.strictEqual(yield* whiles(broken, lost), 1)
      assert.strictEqual(yield* whiles((() => "yes") as any, lost), 1)
    }))

  it.effect("never: defects, results that cannot be encoded, a run that interrupts itself", () =>
    Effect.gen(function*() {
      const odd: ReadonlyArray<Act> = [{ die: true }, { result: undefined }, { result: 1n }, { interrupt: true }]
      for (const act of odd) {
        for (const policies of [[read], [write, forward]]) {
          const { outcome, spans } = yield* alone([...policies, steady(3)], [act, {}])
          assert.strictEqual(spans.length, 1)
          assert.strictEqual(outcome.attempts, undefined)
        }
      }
    }))

  it.effect("writes: what each mode may do after each kind of failure", () =>
    Effect.gen(function*() {
      const none = verify(IdempotencyStore.notApplied)
      const modes: ReadonlyArray<readonly [string, ReadonlyArray<Policy>, ReadonlyArray<number>]> = [
        // unknown effect, no effect, rate limited, too late
        ["none", [write], [1, 1, 1, 1]],
        ["forward", [write, forward], [2, 2, 2, 2]],
        ["verify", [write, none], [2, 2, 2, 2]],
        ["record", [write, record], [1, 2, 2, 1]]
      ]
      const acts: ReadonlyArray<Act> = [lost, { fail: "refused" }, { fail: 5 }, { ms: Infinity, deaf: false }]
      for (const [name, policies, wanted] of modes) {
        const got: Array<number> = []
        for (const act of acts) {
          // What is not interrupted ends by itself: as a failure that says nothing of its effect.
          const shown: Act = act.ms === Infinity && (name === "none" || name === "record")
            ? { ms: 40, fail: "lost" }
            : act
          const { spans } = yield* alone([...policies, classed, short, steady(1)], [shown, {}])
          got.push(spans.length)
        }
        assert.deepStrictEqual([name, got], [name, wanted])
      }
    }))

  it.effect("an overdue write whose late failure says that nothing was changed is tried again where it has a key", () =>
    Effect.gen(function*() {
      const { outcome, spans, world } = yield* alone([write, record, classed, short, steady(1)], [
        { ms: 50, fail: "refused" },
        {}
      ])
      assert.deepStrictEqual([answer(outcome), spans], [["ok", "applied", false, 2], [[0, 50], [60, 70]]])
      assert.strictEqual(world.of("CallOverdue").length, 1)
    }))

  it.effect("all attempts of a call carry one key, also one that is made of the turn's place", () =>
    Effect.gen(function*() {
      const key = ToolPolicy.forward<any>((_: unknown, place: ToolPolicy.Place) => `${place.turn}/${place.position}`)
      const { world } = yield* alone([write, key, steady(2)], [lost, lost, {}], { turn: "T" })
      assert.deepStrictEqual(world.attempts.map(({ attempt, key }) => [attempt, key]), [
        [1, "T/0"],
        [2, "T/0"],
        [3, "T/0"]
      ])
    }))

  it.effect("R3: what one attempt may have done, the next does not take back", () =>
    Effect.gen(function*() {
      for (const last of ["refused", 5] as const) {
        const { outcome } = yield* alone([write, forward, classed, steady(1)], [lost, { fail: last }])
        assert.deepStrictEqual(facts(outcome), [true, "unknown", true])
        assert.include(outcome.message, "an earlier attempt may have done it")
        assert.strictEqual(outcome.attempts, 2)
      }
      // A model that calls again would get another key.
      const placed = ToolPolicy.forward<any>((_: unknown, { turn }: ToolPolicy.Place) => turn)
      const { outcome } = yield* alone([write, placed, classed, steady(1)], [lost, { fail: 5 }])
      assert.deepStrictEqual(facts(outcome), [true, "unknown", false])
      // What was asked about is known.
      const asked = yield* alone([write, verify(IdempotencyStore.notApplied), classed, steady(1)], [lost, {
        fail: "refused"
      }])
      assert.deepStrictEqual(facts(asked.outcome), [true, "none", true])
    }))
})

describe("R24: a write that can be asked about", () => {
  const lost: Act = { fail: "lost" }

  it.effect("took effect: its result is the answer, like a handler's", () =>
    Effect.gen(function*() {
      const { outcome, spans } = yield* alone([write, verify(IdempotencyStore.applied({ booking: 7 })), steady(2)], [
        lost
      ])
      assert.deepStrictEqual([answer(outcome), (outcome as any).result, spans.length], [
        ["ok", "applied", false, undefined],
        { booking: 7 },
        1
      ])
      const odd = yield* alone([write, verify(IdempotencyStore.applied(1n)), steady(2)], [lost])
      assert.deepStrictEqual(answer(odd.outcome).slice(0, 3), ["error/unencodable_result", "applied", false])
    }))

  it.effect("it is not asked about an attempt that certainly had no effect", () =>
    Effect.gen(function*() {
      let asked = 0
      const ask = () =>
        Effect.sync(() => {
          asked++
          return IdempotencyStore.notKnown
        })
      const { outcome } = yield* alone([write, verify(ask), classed, steady(3)], [{ fail: "refused" }, { fail: 5 }, {}])
      assert.deepStrictEqual([answer(outcome), asked], [["ok", "applied", false, 3], 0])
    }))

  it.effect("it is asked when the next attempt could begin, with its parameters and its key, and each time", () =>
    Effect.gen(function*() {
      const asked: Array<unknown> = []
      const policy = IdempotencyStore.verify<any, never, never>({
        key: () => "the key",
        ask: (params: unknown, key: string) =>
          Effect.map(Clock.currentTimeMillis, (at) => {
            asked.push([params, key, at])
            return IdempotencyStore.notApplied
          })
      }) as Policy
      const { outcome, spans } = yield* alone([write, policy, steady(2)], [lost, lost, {}])
      assert.deepStrictEqual(asked, [[{}, "the key", 20], [{}, "the key", 40]])
      assert.deepStrictEqual([answer(outcome), spans.length], [["ok", "applied", false, 3], 3])
    }))

  it.effect("nobody knows, the question fails, breaks, or takes too long: the failure stands", () =>
    Effect.gen(function*() {
      const questions: ReadonlyArray<() => Effect.Effect<any, unknown>> = [
        () => Effect.succeed(IdempotencyStore.notKnown),
        () => Effect.fail("no"),
        () => Effect.die("no"),
        () => {
          throw new Error("no")
        },
        () => Effect.succeed(undefined),
        () => Effect.never
      ]
      for (const question of questions) {
        const { outcome, spans } = yield* alone(
          [write, verify(question), classed, ToolPolicy.timeout(100), steady(2)],
          [
            lost
          ]
        ).pipe(Effect.provide(Logger.layer([])))
        assert.deepStrictEqual([answer(outcome), spans.length], [["error/failed", "unknown", true, undefined], 1])
      }
    }))

  it.effect("it is asked under a permit of its backend", () =>
    Effect.gen(function*() {
      let held: number | undefined
      const ask = () =>
        Effect.map(Api.stats, ({ running }) => {
          held = running
          return IdempotencyStore.notApplied
        }) as Effect.Effect<any>
      yield* alone([write, verify(ask), ToolPolicy.on(Api) as Policy, steady(1)], [lost, {}], {
        api: { concurrency: 1 }
      })
      assert.strictEqual(held, 1)
    }))

  it.effect("a stop while it is asked ends the call, with its effect unknown", () =>
    Effect.gen(function*() {
      const { outcome, spans } = yield* alone(
        [write, verify(() => Effect.never), classed, ToolPolicy.on(Api) as Policy, steady(1)],
        [lost, {}],
        { cancelOn: Effect.sleep(50) }
      )
      assert.deepStrictEqual([answer(outcome), spans.length], [["cancelled/by_caller", "unknown", true, undefined], 1])
    }))
})

describe("R24: the pause", () => {
  const pauses = (policy: Policy, fails: ReadonlyArray<unknown>, more: ReadonlyArray<Policy> = []) =>
    Effect.map(
      alone([read, classed, ...more, policy], fails.map((fail) => ({ ms: 0, fail }))),
      ({ outcome, world }) => ({ outcome, pauses: world.of("CallRetried").map((event) => event.pause), world })
    )
  const lost = (n: number) => new Array(n).fill("lost")

  it.effect("200 ms, doubled each time, and 30 seconds at most", () =>
    Effect.gen(function*() {
      const { pauses: all } = yield* pauses(retry({ times: 10, jitter: false }), lost(11))
      assert.deepStrictEqual(all, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000])
    }))

  it.effect("a schedule gets the failure, or undefined after a clock; its end is the end of the retries", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const schedule = Schedule.exponential(10).pipe(
        Schedule.tap(({ input }) => Effect.sync(() => seen.push(input))),
        Schedule.upTo({ times: 2 })
      ) as Schedule.Schedule<unknown, unknown>
      const some = yield* pauses(retry({ times: 5, jitter: false, schedule }), lost(6))
      assert.deepStrictEqual([some.pauses, seen, answer(some.outcome)], [
        [10, 20],
        ["lost", "lost", "lost"],
        ["error/failed", "none", true, 3]
      ])
      seen.length = 0
      const late = yield* alone([read, ToolPolicy.timeout(5), retry({ times: 1, schedule })], [{ ms: Infinity }])
      assert.deepStrictEqual([seen, late.spans.length], [[undefined], 2])
      // Each call has its own.
      const world = new World()
      const spent = tool("t", read, retry({ times: 9, schedule, jitter: false }))
      yield* drive(turn(world, [spent], { t: [{ fail: "x" }] }, [once("t", 1), once("t", 2)]))
      assert.strictEqual(world.count("t"), 6)
    }))

  it.effect("a schedule that breaks, hangs, or pauses for ever ends the retries", () =>
    Effect.gen(function*() {
      const schedules: ReadonlyArray<Schedule.Schedule<unknown>> = [
        Schedule.spaced(10).pipe(Schedule.modifyDelay(() => Effect.die("broken"))),
        Schedule.spaced(10).pipe(Schedule.modifyDelay(() => Effect.never)),
        Schedule.spaced("60 days"),
        Schedule.spaced(Infinity)
      ]
      for (const schedule of schedules) {
        const { outcome, pauses: none } = yield* pauses(retry({ times: 3, schedule }), lost(4)).pipe(
          Effect.provide(Logger.layer([]))
        )
        assert.deepStrictEqual([words([outcome]), none], [["error/failed"], []])
      }
    }))

  it.effect("one of nothing comes back at once, and never deepens the stack", () =>
    Effect.gen(function*() {
      const { outcome, pauses: all } = yield* pauses(retry({ times: 2_000, schedule: Schedule.forever }), lost(1))
      assert.deepStrictEqual([outcome.attempts, all.length, new Set(all).size], [2_001, 2_000, 1])
    }))

  it.effect("a told time is kept, and longer where the schedule says so", () =>
    Effect.gen(function*() {
      const { pauses: all } = yield* pauses(steady(3), [500, 5, 0, 500])
      assert.deepStrictEqual(all, [500, 10, 10])
    }))

  it.effect("jitter makes it up to half as long again, never shorter, and the same under one seed", () =>
    Effect.gen(function*() {
      const seen = new Set<string>()
      for (let seed = 0; seed < 20; seed++) {
        const round = pauses(retry({ times: 3, schedule: Schedule.spaced(1000) }), [...lost(2), 2000, "lost"]).pipe(
          Random.withSeed(seed)
        )
        const { pauses: first } = yield* round
        first.forEach((pause, i) => assert.isTrue(pause >= [1000, 1000, 2000][i]! && pause <= [1500, 1500, 3000][i]!))
        assert.deepStrictEqual((yield* round).pauses, first)
        seen.add(JSON.stringify(first))
      }
      assert.isAbove(seen.size, 18)
    }))

  it.effect("six that failed together do not come back together (MORE.md 7)", () =>
    Effect.gen(function*() {
      const busy = tool(
        "api",
        read,
        ToolPolicy.on(Api) as Policy,
        failures({ rateLimited: () => 200 }),
        retry({ times: 2 })
      )
      const calls = [1, 2, 3, 4, 5, 6].map((n) => once("api", n))
      for (let seed = 0; seed < 10; seed++) {
        const world = new World()
        const outcomes = yield* drive(
          turn(world, [busy], { api: [{ ms: 10, fail: "busy" }, {}] }, calls, { api: { concurrency: 6 } }).pipe(
            Random.withSeed(seed)
          )
        )
        assert.deepStrictEqual(outcomes.map((one) => `${one.status} ${one.attempts}`), calls.map(() => "ok 2"))
        const again = world.attempts.filter(({ attempt }) => attempt === 2).map(({ at }) => at)
        assert.isTrue(again.length === 6 && again.every((at) => at >= 210) && new Set(again).size > 1)
        const hopeless = new World()
        const stubborn = { "api#2": [{ ms: 10, fail: "busy" }], api: [{ ms: 10, fail: "busy" }, {}] }
        const left = yield* drive(turn(hopeless, [busy], stubborn, calls).pipe(Random.withSeed(seed)))
        assert.deepStrictEqual(words(left), ["ok", "ok", "error/rate_limited", "ok", "ok", "ok"])
        assert.deepStrictEqual([left[2]!.attempts, left[2]!.retryAfter], [3, 200])
        assert.isAtMost(hopeless.attempts.length, 18)
      }
    }))

  it.effect("none is begun that would end after the turn's deadline, and the failure is the answer at once", () =>
    Effect.gen(function*() {
      for (const [deadline, attempts, at] of [[19, 1, 10], [20, 1, 10], [21, 2, 21], [100, 3, 50]] as const) {
        const { outcome, spans, world } = yield* alone([read, steady(2)], [{ fail: "lost" }], { deadline })
        assert.deepStrictEqual([deadline, spans.length, world.of("CallEnded")[0]!.at], [deadline, attempts, at])
        assert.strictEqual(words([outcome])[0], deadline === 21 ? "cancelled/by_deadline" : "error/failed")
      }
    }))

  it.effect("nor one that would end after the clock of the call around the turn", () =>
    Effect.gen(function*() {
      const world = new World()
      const inner = tool("inner", read, retry({ times: 3, schedule: Schedule.spaced(100), jitter: false }))
      const outer = (name: string, ...policies: ReadonlyArray<Policy>) =>
        tool(name, ...policies, ToolPolicy.timeout(250))
      const tools = [inner, outer("reads", read), outer("writes", write)]
      const { kit } = layerOf(world, tools)
      const nested: Act = {
        run: Effect.map(Turn.run(kit, [once("inner")]) as Effect.Effect<any>, ([one]) => answer(one))
      }
      const script = { inner: [{ ms: 10, fail: "lost" }], reads: [nested], writes: [nested] }
      const [bounded] = yield* drive(turn(world, tools, script, [once("reads")]))
      assert.deepStrictEqual((bounded as any).result, ["error/failed", "none", false, 3])
      // A write that is overdue goes on, and so may what is inside it.
      const [free] = yield* drive(turn(world, tools, script, [once("writes")]))
      assert.deepStrictEqual((free as any).result, ["error/failed", "none", false, 4])
      const [dead] = yield* drive(turn(world, tools, script, [once("reads")], { deadline: 150 }))
      assert.deepStrictEqual((dead as any).result, ["error/failed", "none", false, 2])
    }))
})

describe("R24: no permit is held in a pause, and keys are", () => {
  it.effect("a backend of one serves others meanwhile; the call stands in line again, in a fair place", () =>
    Effect.gen(function*() {
      const on = ToolPolicy.on(Api) as Policy
      const world = new World()
      const tools = [tool("a", read, on, steady(1)), tool("b", read, on), tool("c", read, on)]
      const outcomes = yield* drive(
        turn(world, tools, { a: [{ fail: "lost" }, {}], b: [{ ms: 15 }] }, [once("a"), once("b"), once("c")], {
          api: { concurrency: 1 }
        })
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      // It comes back at 20 and waits: within a turn equal ones go in emission order, so it goes before the third.
      assert.deepStrictEqual([world.spans("a"), world.spans("b"), world.spans("c")], [
        [[0, 10], [25, 35]],
        [[10, 25]],
        [[35, 45]]
      ])
      assert.deepStrictEqual(
        world.of("CallStarted").filter(({ tool }) => tool === "a").map(({ attempt, waited }) => [
          attempt,
          waited.keys,
          waited.permit
        ]),
        [[1, 0, 0], [2, 0, 5]]
      )
    }))

  it.effect("the turn's own limit is not used up by it either", () =>
    Effect.gen(function*() {
      const world = new World()
      const tools = [tool("a", read, steady(1)), tool("b", read)]
      yield* drive(turn(world, tools, { a: [{ fail: "lost" }, {}] }, [once("a"), once("b")], { execution: 1 }))
      assert.deepStrictEqual([world.spans("a"), world.spans("b")], [[[0, 10], [20, 30]], [[10, 20]]])
      // One after the other means one after the other.
      const strict = new World()
      yield* drive(
        turn(strict, tools, { a: [{ fail: "lost" }, {}] }, [once("a"), once("b")], { execution: "sequential" })
      )
      assert.deepStrictEqual([strict.spans("a"), strict.spans("b")], [[[0, 10], [20, 30]], [[30, 40]]])
    }))

  it.effect("what conflicts waits for the call's end, in this turn and in others", () =>
    Effect.gen(function*() {
      const keyed: Policy = ToolPolicy.write({ keys: () => ["k"] })
      const world = new World()
      const tools = [tool("a", keyed, forward, steady(1)), tool("b", keyed)]
      world.script.set("a", [{ fail: "lost" }, {}])
      const { kit, layer } = layerOf(world, tools)
      yield* Effect.gen(function*() {
        const first = yield* fork(Turn.run(kit, [once("a"), once("b")]))
        yield* TestClock.adjust(15)
        const second = yield* fork(Turn.run(kit, [once("b", 2)]))
        yield* TestClock.adjust(1_000)
        yield* ended(first)
        yield* ended(second)
      }).pipe(Effect.provide(layer)) as Effect.Effect<void>
      assert.deepStrictEqual([world.spans("a"), world.spans("b")], [[[0, 10], [20, 30]], [[30, 40], [40, 50]]])
    }))

  it.effect("it is given back when the attempt's work has ended, clean-up included", () =>
    Effect.gen(function*() {
      const on = ToolPolicy.on(Api) as Policy
      const world = new World()
      const tools = [tool("a", read, on, ToolPolicy.timeout(20), steady(1)), tool("b", read, on)]
      const acts = [{ ms: Infinity, cleanup: 30 }, {}]
      yield* drive(turn(world, tools, { a: acts }, [once("a"), once("b")], { api: { concurrency: 1 } }))
      assert.deepStrictEqual([world.spans("a"), world.spans("b")], [[[0, 50], [60, 70]], [[50, 60]]])
    }))

  it.effect("where the next permit does not come in time, or is refused, the last failure stands", () =>
    Effect.gen(function*() {
      const on = ToolPolicy.on(Api) as Policy
      const tools = [tool("a", read, on, classed, ToolPolicy.waitTimeout(100), steady(3)), tool("b", read, on)]
      const world = new World()
      const [a] = yield* drive(
        turn(world, tools, { a: [{ fail: "lost" }], b: [{ ms: 1000 }] }, [once("a"), once("b")], {
          api: { concurrency: 1 }
        })
      )
      assert.deepStrictEqual(answer(a!), ["error/failed", "none", true, undefined])
      assert.strictEqual(world.of("CallEnded").find(({ tool }) => tool === "a")!.at, 120)
      const full = new World()
      const outcomes = yield* drive(
        turn(full, tools, { a: [{ fail: 5 }], b: [{ ms: 1000 }] }, [once("a"), once("b")], {
          api: { concurrency: 1, queueLimit: 1 }
        })
      )
      assert.deepStrictEqual(words(outcomes), ["error/rate_limited", "ok"])
      const shut = new World()
      const circuit = { tripPolicy: CircuitBreaker.consecutive(1), openDuration: 1_000 } as const
      const [refused] = yield* drive(
        turn(shut, tools, { a: [{ fail: "lost" }] }, [once("a")], { api: { concurrency: 1, breaker: circuit } })
      )
      assert.deepStrictEqual([answer(refused!), shut.count("a")], [["error/failed", "none", true, undefined], 1])
    }))

  it.effect("the waiting clock is per attempt", () =>
    Effect.gen(function*() {
      const { outcome, spans } = yield* alone([
        read,
        ToolPolicy.waitTimeout(50),
        retry({ times: 3, schedule: Schedule.spaced(40), jitter: false })
      ], [{ fail: 1 }, { fail: 1 }, { fail: 1 }, {}])
      assert.deepStrictEqual([outcome.status, spans.length], ["ok", 4])
    }))
})

describe("R24: stops", () => {
  const acts = [{ fail: "lost" }, {}]
  it.effect("in the pause and in the line the call ends at once, as what its attempts have done", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<readonly [ReadonlyArray<Policy>, unknown, Outcome.Effect, boolean]> = [
        [[read], "lost", "none", true],
        [[write, forward], "lost", "unknown", true],
        [[write, forward], "refused", "none", true],
        [[write, record], "refused", "none", true],
        [[write, record], 5, "none", true],
        [[write, verify(IdempotencyStore.notApplied)], "lost", "unknown", true]
      ]
      for (const [policies, fail, effect, retryable] of cases) {
        const { outcome, spans, world } = yield* alone(
          [...policies, classed, retry({ times: 1, schedule: Schedule.spaced(100) })],
          [{ fail }, {}],
          { cancelOn: Effect.as(Effect.sleep(50), "user") }
        )
        assert.deepStrictEqual([...words([outcome]), ...facts(outcome)], [
          "cancelled/by_caller",
          true,
          effect,
          retryable
        ])
        assert.strictEqual((outcome as Outcome.Cancelled).reason, "user")
        assert.include(outcome.message, "before it was tried again")
        assert.deepStrictEqual([spans.length, world.of("CallEnded")[0]!.at], [1, 50])
      }
    }))

  it.effect("while a schedule still thinks about the pause", () =>
    Effect.gen(function*() {
      const schedule = Schedule.spaced(10).pipe(Schedule.modifyDelay(() => Effect.never))
      const { outcome, world } = yield* alone([read, retry({ times: 1, schedule })], acts, {
        cancelOn: Effect.sleep(50)
      })
      assert.deepStrictEqual([words([outcome])[0], world.of("CallEnded")[0]!.at], ["cancelled/by_caller", 50])
    }))

  it.effect("in line for the next permit too, and the place in it is given up", () =>
    Effect.gen(function*() {
      const on = ToolPolicy.on(Api) as Policy
      const world = new World()
      const tools = [tool("a", read, on, steady(1)), tool("b", read, on), tool("c", read, on)]
      world.script.set("a", acts).set("b", [{ ms: 100 }])
      const { kit, layer } = layerOf(world, tools, { api: { concurrency: 1 } })
      const calls = [once("a"), once("b"), once("c")]
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(kit, calls, { onEvent: world.note })
        yield* TestClock.adjust(50)
        assert.deepStrictEqual((yield* Api.stats).waiting, 2)
        assert.isTrue(yield* handle.cancelCall(0, "enough"))
        assert.isFalse(yield* handle.cancelCall(0))
        assert.deepStrictEqual((yield* Api.stats).waiting, 1)
        yield* TestClock.adjust(1_000)
        const outcomes = yield* handle.await as Effect.Effect<ReadonlyArray<any>>
        assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok", "ok"])
        assert.deepStrictEqual(facts(outcomes[0]), [true, "none", true])
        assert.deepStrictEqual(yield* Api.stats, idle(1))
      }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<void>
      assert.deepStrictEqual(world.spans("c"), [[110, 120]])
    }))

  it.effect("a deadline, and a sibling's end", () =>
    Effect.gen(function*() {
      const long = retry({ times: 1, schedule: Schedule.spaced(100), jitter: false })
      const world = new World()
      const tools = [tool("a", write, forward, long), tool("b", read)]
      const outcomes = yield* drive(
        turn(world, tools, { a: acts, b: [{ ms: 40, fail: "no" }] }, [once("a"), once("b")], {
          siblings: Siblings.failFast
        })
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_sibling", "error/failed"])
      assert.deepStrictEqual(facts(outcomes[0]!), [true, "unknown", true])
      const held = new World()
      const on = ToolPolicy.on(Api) as Policy
      const busy = [tool("a", write, forward, on, steady(1)), tool("b", read, on)]
      const late = yield* drive(
        turn(held, busy, { a: acts, b: [{ ms: 1000 }] }, [once("a"), once("b")], {
          deadline: 60,
          api: { concurrency: 1 }
        })
      )
      assert.deepStrictEqual(words(late), ["cancelled/by_deadline", "cancelled/by_deadline"])
      assert.deepStrictEqual(facts(late[0]!), [true, "unknown", true])
    }))

  it.effect("a run that was told to stop while it was timing out makes no further attempt", () =>
    Effect.gen(function*() {
      const world = new World()
      const tools = [tool("a", read, ToolPolicy.timeout(20), steady(5))]
      world.script.set("a", [{ ms: Infinity, cleanup: 30 }])
      const { kit, layer } = layerOf(world, tools)
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(kit, [once("a"), ToolCall.make("a2", "a", { n: 1 })])
        yield* TestClock.adjust(30)
        yield* fork(handle.cancelCall(0))
        yield* TestClock.adjust(1_000)
        const outcomes = yield* handle.await as Effect.Effect<ReadonlyArray<any>>
        assert.deepStrictEqual(outcomes.map((one) => [one.status, one.attempts]), [["timeout", undefined], [
          "timeout",
          6
        ]])
      }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<void>
    }))

  it.effect("R20: work that was given up on is not tried again, and says how often it was started", () =>
    Effect.gen(function*() {
      const world = new World()
      const late: Array<TurnEvent.CallSettledLate> = []
      const tools = [tool("a", read, ToolPolicy.timeout(20), steady(3))]
      world.script.set("a", [{ fail: "lost" }, { ms: 200, deaf: true, fail: "lost" }, {}])
      const { kit, layer } = layerOf(world, tools)
      const outcomes = yield* drive(
        Effect.provide(
          Effect.tap(
            Turn.run(kit, [once("a")], {
              grace: 10,
              onEvent: (event) => {
                if (event._tag === "CallSettledLate") late.push(event)
              }
            }),
            () => Effect.sleep(1_000)
          ),
          layer
        ) as Effect.Effect<ReadonlyArray<any>>
      )
      assert.deepStrictEqual([answer(outcomes[0]), world.count("a")], [["timeout/handler", "none", true, 2], 2])
      assert.deepStrictEqual(late.map(({ outcome }) => outcome.attempts), [2])
    }))

  it.effect("R9: one of two identical calls leaves in the pause, and the run goes on for the other", () =>
    Effect.gen(function*() {
      const world = new World()
      const tools = [tool("a", read, retry({ times: 1, schedule: Schedule.spaced(100) }))]
      world.script.set("a", acts)
      const { kit, layer } = layerOf(world, tools)
      yield* Effect.gen(function*() {
        const handle = yield* Turn.start(kit, [ToolCall.make("x", "a", {}), ToolCall.make("y", "a", {})])
        yield* TestClock.adjust(50)
        yield* handle.cancelCall(0)
        yield* TestClock.adjust(1_000)
        const outcomes = yield* handle.await as Effect.Effect<ReadonlyArray<any>>
        assert.deepStrictEqual(outcomes.map((one) => [one.status, one.started, one.attempts]), [
          ["cancelled", true, undefined],
          ["ok", true, 2]
        ])
      }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<void>
    }))
})

describe("R24: beside other rules of writes", () => {
  it.effect("R23: what has the same key waits through the pause, and gets the recorded result", () =>
    Effect.gen(function*() {
      const world = new World()
      const keys: Policy = ToolPolicy.write({ keys: () => [] })
      const tools = [tool("a", keys, IdempotencyStore.record<any>(() => "same") as Policy, classed, steady(2))]
      world.script.set("a", [{ fail: "refused" }, { fail: 5 }, { result: "done" }])
      const { kit, layer } = layerOf(world, tools)
      const outcomes = yield* drive(
        Effect.gen(function*() {
          const first = yield* fork(Turn.run(kit, [once("a")]))
          yield* Effect.sleep(15)
          const second = yield* fork(Turn.run(kit, [once("a")]))
          return [...(yield* Fiber.join(first)), ...(yield* Fiber.join(second))] as ReadonlyArray<any>
        }).pipe(Effect.provide(layer), Effect.orDie) as Effect.Effect<ReadonlyArray<any>>
      )
      assert.deepStrictEqual(outcomes.map((one) => [one.status, one.result, one.attempts, one.replayed]), [
        ["ok", "done", 3, undefined],
        ["ok", "done", undefined, true]
      ])
      assert.strictEqual(world.count("a"), 3)
    }))

  it.effect("R23: a stop in the pause frees the key of what had no effect, and leaves what may have had one in doubt", () =>
    Effect.gen(function*() {
      for (const [fail, state] of [["refused", undefined], ["lost", "unknown"]] as const) {
        const world = new World()
        const on = fail === "refused" ? record : verify(IdempotencyStore.notKnown)
        const tools = [tool("a", write, on, classed, retry({ times: 1, schedule: Schedule.spaced(100) }))]
        world.script.set("a", [{ fail }, {}])
        const { kit, layer } = layerOf(world, tools)
        const [outcome, states] = yield* drive(
          Effect.gen(function*() {
            const [outcome] = yield* Turn.run(kit, [once("a")], { cancelOn: Effect.sleep(50) })
            const store = yield* IdempotencyStore.IdempotencyStore
            return [outcome as any, (yield* store.list()).map((entry) => entry.state)] as const
          }).pipe(Effect.provide(layer), Effect.orDie) as Effect.Effect<readonly [any, ReadonlyArray<string>]>
        )
        assert.deepStrictEqual([words([outcome])[0], outcome.effect, states], [
          "cancelled/by_caller",
          fail === "refused" ? "none" : "unknown",
          state === undefined ? [] : [state]
        ])
      }
    }))

  it.effect("R25: a unit undoes nothing while one of its writes pauses, and what pauses is not started after its end", () =>
    Effect.gen(function*() {
      const undone: Array<number> = []
      const undo: Policy = ToolPolicy.undo<any, never, never>(() =>
        Effect.map(Clock.currentTimeMillis, (now) => void undone.push(now))
      ) as Policy
      const tools = [
        tool("a", write, undo),
        tool("b", write, forward, undo, steady(1)),
        tool("c", read)
      ]
      const unit = { siblings: Siblings.allOrNothing }
      const calls = [once("a"), once("b"), once("c")]
      const good = yield* drive(turn(new World(), tools, { b: [{ fail: 1 }, {}], c: [{ ms: 60 }] }, calls, unit))
      assert.deepStrictEqual([words(good), undone.length], [["ok", "ok", "ok"], 0])
      const world = new World()
      const bad = yield* drive(turn(world, tools, { b: [{ fail: 1 }, {}], c: [{ ms: 15, fail: 1 }] }, calls, unit))
      assert.deepStrictEqual(bad.map((one) => [one.status, one.effect]), [
        ["cancelled", "none"],
        ["cancelled", "unknown"],
        ["error", "none"]
      ])
      assert.deepStrictEqual([world.count("b"), undone.length], [1, 1])
    }))
})

describe("R24: around a call that is tried again", () => {
  it.effect("R31: `before` and `after` once, `around` for each attempt", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const middleware = TurnMiddleware.make("m", {
        before: () => Effect.sync(() => void seen.push("before")),
        around: (handler) => Effect.andThen(Effect.sync(() => seen.push("around")), handler),
        after: (outcome) => Effect.sync(() => void seen.push(`after ${outcome.status} ${outcome.attempts}`))
      })
      yield* alone([read, steady(2)], [{ fail: 1 }, { fail: 1 }, {}], { middleware: [middleware] })
      assert.deepStrictEqual(seen, ["before", "around", "around", "around", "after ok 3"])
      seen.length = 0
      const last = yield* alone([read, failures({ rateLimited: () => true }), steady(1)], [{ fail: 1 }], {
        middleware: [middleware]
      })
      assert.deepStrictEqual(seen, ["before", "around", "around", "after error 2"])
      assert.strictEqual(last.outcome.attempts, 2)
      seen.length = 0
      yield* alone([read, steady(1)], [{ fail: 1 }], { middleware: [middleware], cancelOn: Effect.sleep(15) })
      assert.deepStrictEqual(seen, ["before", "around"])
    }))

  it.effect("R31: what a step after it breaks says how often the handler was started", () =>
    Effect.gen(function*() {
      const middleware = TurnMiddleware.make("m", { after: () => Effect.die("no") })
      const { outcome } = yield* alone([read, steady(1)], [{ fail: 1 }, {}], { middleware: [middleware] })
      assert.deepStrictEqual([words([outcome])[0], outcome.attempts], ["error/defect", 2])
    }))

  it.effect("R21: it is written down once, and settled once", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const step = (what: string) => () => Effect.andThen(Effect.sync(() => seen.push(what)), Effect.sleep(5))
      const journal = Layer.succeed(TurnJournal.TurnJournal, {
        lease: 30_000,
        reserve: () => Effect.as(step("reserve")(), { _tag: "Reserved", again: false } as const),
        renew: () => Effect.succeed(true),
        settle: (_: unknown, __: string, { attempts, status }: Outcome.Encoded) =>
          Effect.as(step(`settle ${status} ${attempts}`)(), true),
        amend: () => Effect.succeed(true),
        free: () => Effect.as(step("free")(), true),
        entries: () => Effect.succeed([]),
        expire: Effect.succeed(0)
      })
      const given = { layer: journal as Layer.Layer<any> }
      yield* alone([write, forward, steady(2)], [{ fail: 1 }, { fail: 1 }, {}], given)
      assert.deepStrictEqual(seen.splice(0), ["reserve", "settle ok 3"])
      yield* alone([write, forward, steady(2)], [{ fail: 1 }], { ...given, cancelOn: Effect.sleep(20) })
      assert.deepStrictEqual(seen.splice(0), ["reserve", "settle cancelled undefined"])
      // While its answer is written down, from 35 to 40, it is started by nobody, although the permit comes back at 38.
      const on = ToolPolicy.on(Api) as Policy
      const world = new World()
      const tools = [tool("a", read, on, ToolPolicy.waitTimeout(10), steady(1)), tool("b", read, on)]
      const outcomes = yield* drive(
        turn(world, tools, { a: [{ fail: 1 }, {}], b: [{ ms: 13 }] }, [once("a"), once("b")], {
          ...given,
          api: { concurrency: 1 }
        })
      )
      assert.deepStrictEqual([words(outcomes), world.spans("a"), world.spans("b")], [
        ["error/failed", "ok"],
        [[5, 15]],
        [[20, 33]]
      ])
    }))

  it.effect("R33: events tell each attempt, and each pause with what the answer would have been", () =>
    Effect.gen(function*() {
      const { world } = yield* alone([read, classed, steady(2)], [{ fail: "lost" }, { fail: 30 }, {}])
      const told = world.events.flatMap((event): ReadonlyArray<unknown> => {
        switch (event._tag) {
          case "CallStarted":
            return [["started", event.at, event.attempt]]
          case "CallRetried":
            return [["retried", event.at, event.attempt, words([event.outcome])[0], event.pause]]
          case "CallEnded":
            return [["ended", event.at, event.outcome.attempts]]
          default:
            return []
        }
      })
      assert.deepStrictEqual(told, [
        ["started", 0, 1],
        ["retried", 10, 1, "error/failed", 10],
        ["started", 20, 2],
        ["retried", 30, 2, "error/rate_limited", 30],
        ["started", 60, 3],
        ["ended", 70, 3]
      ])
    }))

  it.effect("R33: what it waited for before its first attempt is not told again", () =>
    Effect.gen(function*() {
      const keyed: Policy = ToolPolicy.write({ keys: () => ["k"] })
      const on = ToolPolicy.on(Api) as Policy
      const world = new World()
      const tools = [tool("a", keyed), tool("b", keyed, forward, on, steady(1)), tool("c", read, on)]
      const script = { b: [{ fail: 1 }, {}], c: [{ ms: 15 }] }
      yield* drive(turn(world, tools, script, [once("a"), once("b"), once("c")], { api: { concurrency: 1 } }))
      const told = world.of("CallStarted").filter(({ tool }) => tool === "b").map((
        { waited }
      ) => [waited.keys, waited.permit])
      assert.deepStrictEqual(told, [[10, 5], [0, 0]])
    }))

  it.effect("how long a tool takes is learned from each attempt, not from pauses", () =>
    Effect.gen(function*() {
      const learned: Array<number> = []
      const durations = Layer.succeed(ToolDurations.ToolDurations, {
        ...ToolDurations.make(),
        observe: (_: string, millis: number) => {
          learned.push(millis)
        }
      } as any)
      yield* alone([read, steady(1)], [{ ms: 30, fail: 1 }, { ms: 50 }], { layer: durations as Layer.Layer<any> })
      assert.deepStrictEqual(learned, [30, 50])
    }))

  it.effect("R32: it is one call for what is counted over turns", () =>
    Effect.gen(function*() {
      const conversation = Layer.succeed(TurnContext.Conversation, "c") as Layer.Layer<any>
      const { outcome } = yield* alone([read, steady(3)], [{ fail: 1 }, { fail: 1 }, {}], {
        amounts: { repeats: 1 },
        layer: conversation
      })
      assert.deepStrictEqual([outcome.status, outcome.attempts], ["ok", 3])
    }))

  it.effect("R10: a call that a human approved is tried again too", () =>
    Effect.gen(function*() {
      const approved: Policy = (tool) =>
        Object.assign(Object.create(Object.getPrototypeOf(tool)), tool, { needsApproval: true })
      const { outcome, world } = yield* alone([write, forward, steady(1), approved], [{ fail: 1 }, {}], {
        decide: () => Effect.as(Effect.sleep(50), Approval.approve())
      })
      assert.deepStrictEqual([outcome.status, outcome.attempts], ["ok", 2])
      assert.deepStrictEqual(world.of("CallStarted").map(({ waited }) => waited.approval), [50, 0])
    }))

  it.effect("R18: an attempt that is tried again stops nobody; the last one does", () =>
    Effect.gen(function*() {
      const tools = [tool("a", read, steady(1)), tool("b", read)]
      const both = (script: Script) =>
        Effect.map(
          drive(turn(new World(), tools, { ...script, b: [{ ms: 100 }] }, [once("a"), once("b")], {
            siblings: Siblings.failFast
          })),
          words
        )
      assert.deepStrictEqual(yield* both({ a: [{ fail: 1 }, {}] }), ["ok", "ok"])
      assert.deepStrictEqual(yield* both({ a: [{ fail: 1 }] }), ["error/failed", "cancelled/by_sibling"])
    }))

  it.effect("R13: a read that was started early is tried again while the model speaks, also where the response is cut", () =>
    Effect.gen(function*() {
      for (const reason of ["stop", "length"] as const) {
        const world = new World()
        const tools = [tool("a", read, steady(3))]
        world.script.set("a", [{ fail: 1 }, { fail: 1 }, { fail: 1 }, {}])
        const { kit, layer } = layerOf(world, tools)
        yield* Effect.gen(function*() {
          const open = yield* Turn.open(kit, { onEvent: world.note })
          yield* open.submit(once("a"))
          yield* TestClock.adjust(35)
          assert.strictEqual(world.count("a"), 2)
          const end = yield* fork(open.end(reason))
          yield* TestClock.adjust(1_000)
          const outcomes = (yield* ended(end)) as ReadonlyArray<any>
          assert.deepStrictEqual(outcomes.map((one) => [one.status, one.attempts]), [["ok", 4]])
        }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<void>
      }
    }))
})

describe("R2, R13: in the pause of a read that was started early", () => {
  it.effect("its id comes again for something else: it has begun, and keeps its own answer", () =>
    Effect.gen(function*() {
      const world = new World()
      const tools = [tool("a", read, steady(1))]
      world.script.set("a", [{ fail: 1 }, {}])
      const { kit, layer } = layerOf(world, tools)
      yield* Effect.gen(function*() {
        const open = yield* Turn.open(kit)
        yield* open.submit(ToolCall.make("x", "a", { n: 1 }))
        yield* TestClock.adjust(15)
        yield* open.submit(ToolCall.make("x", "a", { n: 2 }))
        const end = yield* fork(open.end())
        yield* TestClock.adjust(1_000)
        const outcomes = (yield* ended(end)) as ReadonlyArray<any>
        assert.deepStrictEqual([words(outcomes), outcomes[0].attempts], [["ok", "error/ambiguous_id"], 2])
      }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<void>
    }))
})

describe("R14: pauses inside and beside a handler", () => {
  const on = ToolPolicy.on(Api) as Policy

  it.effect("a pause is no deadlock, whoever waits for the keys", () =>
    Effect.gen(function*() {
      const keyed: Policy = ToolPolicy.write({ keys: () => ["k"] })
      const world = new World()
      const tools = [tool("outer", read, on), tool("a", keyed, forward, on, steady(2)), tool("b", keyed, on)]
      const { kit } = layerOf(world, tools)
      const nested: Act = { run: Effect.map(Turn.run(kit, [once("a"), once("b")]) as Effect.Effect<any>, words) }
      const [outer] = yield* drive(
        turn(world, tools, { outer: [nested], a: [{ fail: 1 }, { fail: 1 }, {}] }, [once("outer")], {
          api: { concurrency: 1 }
        })
      )
      assert.deepStrictEqual((outer as any).result, ["ok", "ok"])
      assert.deepStrictEqual([world.spans("a"), world.spans("b")], [[[0, 10], [20, 30], [40, 50]], [[50, 60]]])
    }))

  it.effect("two that wait for each other after a pause are found: the one inside is answered, and both turns go on", () =>
    Effect.gen(function*() {
      const keyed: Policy = ToolPolicy.write({ keys: () => ["k"] })
      const world = new World()
      const tools = [tool("outer", read, on), tool("a", keyed, forward, on, steady(1)), tool("b", keyed)]
      world.script.set("a", [{ ms: 20, fail: 1 }, {}])
      const { kit, layer } = layerOf(world, tools, { api: { concurrency: 1 } })
      // It gets the permit while the write pauses with its key, and waits for that key.
      const inside = Turn.run(kit, [once("b")]) as Effect.Effect<any>
      world.script.set("outer", [{ run: Effect.map(inside, words) }])
      const outcomes = yield* drive(
        Effect.gen(function*() {
          const first = yield* fork(Turn.run(kit, [once("a")]))
          yield* Effect.sleep(5)
          const second = yield* fork(Turn.run(kit, [once("outer")]))
          return [yield* Fiber.join(first), yield* Fiber.join(second)] as ReadonlyArray<any>
        }).pipe(Effect.provide(layer), Effect.orDie) as Effect.Effect<ReadonlyArray<any>>
      )
      assert.deepStrictEqual(outcomes[1][0].result, ["error/deadlock"])
      assert.deepStrictEqual([outcomes[0][0].status, outcomes[0][0].attempts], ["ok", 2])
      assert.strictEqual(world.of("CallEnded").length, 0)
    }))

  it.effect("keys that are kept in a pause are not overtaken by work inside another handler", () =>
    Effect.gen(function*() {
      const keyed: Policy = ToolPolicy.write({ keys: () => ["k"] })
      const world = new World()
      const tools = [tool("outer", read), tool("a", keyed, forward, steady(1)), tool("b", keyed)]
      world.script.set("a", [{ fail: 1 }, {}])
      const { kit, layer } = layerOf(world, tools)
      world.script.set("outer", [{ run: Turn.run(kit, [once("b")]) as Effect.Effect<any> }])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* fork(Turn.run(kit, [once("a")]))
          yield* Effect.sleep(15)
          yield* Turn.run(kit, [once("outer")])
          yield* Fiber.join(first)
        }).pipe(Effect.provide(layer)) as Effect.Effect<void>
      )
      assert.deepStrictEqual([world.spans("a"), world.spans("b")], [[[0, 10], [20, 30]], [[30, 40]]])
    }))
})

describe("R33: telemetry", () => {
  it.effect("a span for each attempt, an event for each after the first, and a count", () =>
    Effect.gen(function*() {
      const spans: Array<Tracer.NativeSpan> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      const world = new World()
      const record = yield* TurnTelemetry.recorder
      const tools = [tool("t", read, steady(2))]
      const { kit, layer } = layerOf(world, tools)
      world.script.set("t", [{ ms: 10, fail: 1 }, { ms: 20, fail: 1 }, { ms: 30 }])
      yield* drive(
        Turn.run(kit, [once("t")], { middleware: [TurnTelemetry.spans()], onEvent: record }).pipe(
          Effect.withSpan("step"),
          Effect.provide(layer),
          Effect.withTracer(tracer)
        ) as Effect.Effect<unknown>
      )
      const [step, ...attempts] = spans
      assert.deepStrictEqual(
        attempts.map((span) => [span.attributes.get("effect_turn.attempt"), span.attributes.get("error.type")]),
        [
          [1, "failed"],
          [2, "failed"],
          [3, undefined]
        ]
      )
      assert.deepStrictEqual(step!.events.map(([name, , attributes]) => [name, attributes["effect_turn.attempt"]]), [
        ["effect_turn.call.retry", 2],
        ["effect_turn.call.retry", 3]
      ])
      const all = yield* Metric.snapshot
      const found = (id: string, code: string | undefined) =>
        all.find((one) => one.id === id && (one.attributes?.["code"] ?? one.attributes?.["error.type"]) === code)
          ?.state as any
      assert.strictEqual(found("effect_turn.retries", "failed").count, 2)
      const failed = found("gen_ai.execute_tool.duration", "failed")
      assert.deepStrictEqual([failed.count, Math.round(failed.sum * 1000)], [2, 30])
      assert.deepStrictEqual(Math.round(found("gen_ai.execute_tool.duration", undefined).sum * 1000), 30)
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))
})

/** A read, a write without a key, and writes with one of each mode. */
type Mode = "read" | "none" | "forward" | "verify" | "record"

const someAct = Arbitrary.all({
  kind: pick("lost", "ok", "lost", "refused", "busy", "busy at once", "hang", "die", "itself"),
  ms: pick(10, 0, 1, 5, 20, 30),
  /** When its effect lands, of its time in tenths; over ten it does not. */
  lands: pick(20, 0, 5, 10),
  deaf: pick(false, false, false, true),
  cleanup: pick(undefined, undefined, 3, 40)
})
type SomeAct = typeof someAct["~A"] extends (_: never) => infer A ? A : never

const someRetried = Arbitrary.all({
  mode: pick<Mode>("read", "none", "forward", "verify", "record"),
  acts: Arbitrary.array(someAct, { minLength: 1, maxLength: 3 }),
  times: pick(1, 0, 2, 3),
  pause: pick(10, 0, 1, 25),
  on: pick(false, true),
  shared: pick(false, true)
})

const actOf = ({ cleanup, deaf, kind, lands, ms }: SomeAct, mode: Mode): Act => {
  const common = { deaf, ...(cleanup === undefined ? undefined : { cleanup }) }
  const landing = (ms: number, always: boolean) =>
    mode !== "read" && (always || lands <= 10) ? { effectAt: Math.floor(ms * Math.min(lands, 10) / 10) } : undefined
  switch (kind) {
    case "ok":
      return { ...common, ms, ...landing(ms, true) }
    case "lost":
      return { ...common, ms, fail: "lost", ...landing(ms, false) }
    // What says that it had no effect had none.
    case "refused":
      return { ...common, ms, fail: "refused" }
    case "busy":
      return { ...common, ms, fail: 30 }
    case "busy at once":
      return { ...common, ms: 0, fail: 30 }
    case "hang":
      return { ...common, ms: 300, fail: "lost", ...landing(300, false) }
    case "die":
      return { ...common, ms, die: true, ...landing(ms, false) }
    case "itself":
      return { ...common, ms, interrupt: true, ...landing(ms, false) }
  }
}

describe("R24, whatever the calls, what they do, and when they are stopped", () => {
  it.effect.prop(
    "no effect is doubled or denied, no attempt is one too many or too early, no permit is held in a pause",
    {
      specs: Arbitrary.array(someRetried, { minLength: 1, maxLength: 4 }),
      execution: pick<"parallel" | "sequential" | number>("parallel", "parallel", 1, "sequential"),
      stop: pick("none", "none", "deadline", "cancelOn", "cancelCall"),
      at: int(0, 120),
      failFast: pick(false, false, true),
      grace: pick<number | undefined>(undefined, undefined, 0, 15)
    },
    ({ at, execution, failFast, grace, specs, stop }) =>
      Effect.gen(function*() {
        const world = new World()
        let asking = 0
        const tools = specs.map(({ mode, on, pause, shared, times }, i) => {
          const key = () => `key ${i}`
          const keys = () => shared ? ["k"] : []
          const ask = () =>
            Effect.gen(function*() {
              asking++
              yield* Effect.sleep(2)
              return world.effects.has(key()) ? IdempotencyStore.applied("was applied") : IdempotencyStore.notApplied
            }).pipe(Effect.ensuring(Effect.sync(() => asking--)))
          const keyed: Record<Mode, ReadonlyArray<Policy>> = {
            read: [ToolPolicy.read({ keys })],
            none: [ToolPolicy.write({ keys })],
            forward: [ToolPolicy.write({ keys }), ToolPolicy.forward<any>(key)],
            verify: [ToolPolicy.write({ keys }), IdempotencyStore.verify<any, never, never>({ key, ask }) as Policy],
            record: [ToolPolicy.write({ keys }), IdempotencyStore.record<any>(key) as Policy]
          }
          // All are on the backend where one of them asks, so that questions can be counted too.
          const backend = on || mode === "verify" ? [ToolPolicy.on(Api) as Policy] : []
          const again = retry({ times, schedule: Schedule.spaced(pause) })
          return tool(`t${i}`, ...keyed[mode], ...backend, classed, ToolPolicy.timeout(100), again)
        })
        specs.forEach(({ acts, mode }, i) => {
          world.script.set(`t${i}`, acts.map((act) => actOf(act, mode)))
          if (mode === "forward") world.honoured.add(`t${i}`)
        })
        const { kit, layer } = layerOf(world, tools, { api: { concurrency: 2 } })
        const calls = tools.map(({ name }) => once(name))
        const outcomes: ReadonlyArray<Outcome.Outcome<any>> = yield* Effect.gen(function*() {
          world.zero = yield* Clock.currentTimeMillis
          const handle = yield* Turn.start(kit, calls, {
            execution,
            dedupe: "off",
            siblings: failFast ? Siblings.failFast : Siblings.letFinish,
            onEvent: world.note,
            ...(grace === undefined ? undefined : { grace }),
            ...(stop === "deadline" && at > 0 ? { deadline: at } : undefined),
            ...(stop === "cancelOn" ? { cancelOn: Effect.sleep(at) } : undefined)
          })
          const check = Effect.map(Api.stats, ({ running }) => {
            const atWork = world.attempts.filter((one) =>
              one.endedAt === undefined && ToolPolicy.get(tools[one.position]!).backend !== undefined
            )
            assert.strictEqual(running, atWork.length + asking, "permits are for work")
          })
          for (let now = 0; now < 150; now += 2) {
            if (stop === "cancelCall" && now === at - at % 2) {
              for (const i of [0, 2]) yield* fork(handle.cancelCall(i))
            }
            yield* check
            yield* TestClock.adjust(2)
          }
          yield* TestClock.adjust(100_000)
          yield* check
          assert.deepStrictEqual(yield* Api.stats, idle(2))
          const runtime = yield* Turn.Runtime
          assert.deepStrictEqual(yield* runtime.unsettled, [])
          return yield* ended(yield* fork(handle.await))
        }).pipe(Effect.scoped, Effect.provide(layer)) as Effect.Effect<any>
        assert.deepStrictEqual(outcomes.map(({ position }) => position), specs.map((_, i) => i))
        assert.strictEqual(world.of("CallEnded").length, specs.length)
        specs.forEach(({ mode, times }, i) => {
          const attempts = world.attempts.filter(({ position }) => position === i)
          const outcome = outcomes[i]!
          const landed = world.effects.get(mode === "none" ? `t${i}#${i}` : `key ${i}`) ?? 0
          const about = JSON.stringify([mode, Outcome.toJson(outcome), attempts, landed])
          assert.isAtMost(landed, 1, about)
          assert.isAtMost(attempts.length, mode === "none" ? 1 : times + 1, about)
          assert.deepStrictEqual(attempts.map(({ attempt }) => attempt), attempts.map((_, n) => n + 1), about)
          assert.strictEqual(outcome.attempts ?? Math.min(attempts.length, 1), attempts.length, about)
          assert.strictEqual(outcome.started, attempts.length > 0, about)
          if (mode === "read" || !outcome.started) assert.strictEqual(outcome.effect, "none", about)
          else if (outcome.effect !== "unknown") assert.strictEqual(landed > 0, outcome.effect === "applied", about)
          if (landed > 0) assert.notStrictEqual(outcome.effect, "none", about)
          if (outcome.retryable) {
            assert.isTrue(outcome.effect === "none" || mode === "forward" || mode === "verify", about)
          }
          attempts.forEach((one, n) => {
            if (n === 0) {
              return
            }
            const before = attempts[n - 1]!
            const retried = world.of("CallRetried").filter(({ position }) => position === i)[n - 1]!
            assert.isTrue(one.at >= before.endedAt! && one.at >= retried.at + retried.pause, about)
            if ("retryAfter" in retried.outcome) assert.isAtLeast(retried.pause, retried.outcome.retryAfter!, about)
          })
        })
      }),
    runs(300)
  )

  it.effect("a stop at every instant of a call that is tried again leaves one true answer", () =>
    Effect.gen(function*() {
      const found = new Set<string>()
      for (const mode of ["read", "forward", "verify", "record"] as const) {
        for (let at = 0; at <= 90; at++) {
          for (const way of ["cancelOn", "deadline", "sibling"] as const) {
            if (way !== "cancelOn" && at % 3 !== 0) continue
            const world = new World()
            const asked = () =>
              Effect.map(
                Effect.sleep(5),
                () => world.effects.has("key") ? IdempotencyStore.applied("it is there") : IdempotencyStore.notApplied
              )
            const policies: ReadonlyArray<Policy> = {
              read: [read],
              forward: [write, forward],
              verify: [write, verify(asked)],
              record: [write, record]
            }[mode]
            const a = tool("a", ...policies, ToolPolicy.on(Api) as Policy, classed, steady(2))
            const other = tool("b", read, ToolPolicy.on(Api) as Policy)
            const sibling = tool("c", read)
            if (mode === "forward") world.honoured.add("a")
            const effect = mode === "read" ? undefined : { effectAt: 5 }
            const first: Act = mode === "record"
              ? { fail: "refused" }
              : { fail: "lost", ...(mode === "forward" ? effect : undefined) }
            // The second attempt has to wait for its permit.
            const script: Script = {
              a: [first, { fail: 5 }, effect ?? {}],
              b: [{ ms: 25 }],
              c: [{ ms: at, fail: "no" }]
            }
            const outcomes = yield* drive(
              turn(world, [a, other, sibling], script, [
                once("a"),
                once("b"),
                ...(way === "sibling" ? [once("c")] : [])
              ], {
                api: { concurrency: 1 },
                ...(way === "cancelOn" ? { cancelOn: Effect.sleep(at) } : undefined),
                ...(way === "deadline" ? { deadline: Math.max(1, at) } : undefined),
                ...(way === "sibling" ? { siblings: Siblings.failFast } : undefined)
              })
            )
            const [outcome] = outcomes
            const landed = world.effects.get("key") ?? 0
            const about = JSON.stringify([mode, at, way, Outcome.toJson(outcome!), world.attempts, landed])
            assert.strictEqual(world.of("CallEnded").length, outcomes.length, about)
            assert.isAtMost(landed, 1, about)
            assert.strictEqual(outcome!.started, world.count("a") > 0, about)
            if (mode !== "read" && landed > 0) assert.notStrictEqual(outcome!.effect, "none", about)
            if (outcome!.effect === "applied") assert.strictEqual(landed, 1, about)
            found.add(
              `${mode} ${words([outcome!])[0]} ${outcome!.effect} ${outcome!.attempts ?? (outcome!.started ? 1 : 0)}`
            )
          }
        }
      }
      // Each was met before its start, in each of its attempts, and after them.
      for (const mode of ["read", "forward", "verify", "record"]) {
        for (const attempts of [0, 1, 2, 3]) {
          assert.isTrue(
            Array.from(found).some((one) => one.startsWith(mode) && one.endsWith(` ${attempts}`)),
            `${mode} ${attempts}`
          )
        }
      }
    }))
})
