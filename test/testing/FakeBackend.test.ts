import { assert, describe, it } from "@effect/vitest"
import { TurnContext } from "effect-turn"
import { FakeBackend } from "effect-turn/testing"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import { TestClock } from "effect/testing"

const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

/** Runs effects at once and moves the clock until all have ended. */
const ends = <A, E>(...effects: ReadonlyArray<Effect.Effect<A, E>>) =>
  Effect.gen(function*() {
    const fibers = yield* Effect.forEach(effects, (effect) => start(Effect.result(effect)))
    yield* TestClock.adjust("1 hour")
    return yield* Effect.forEach(fibers, (fiber) => Fiber.join(fiber))
  })

const tagOf = (error: unknown) => (error as { readonly _tag: string })._tag

describe("a fake backend", () => {
  it.effect("S1: a request is written down when it starts, and closed when its work has ended", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ behaviour: { latency: 30, effectAt: 20 } })
      const fiber = yield* start(backend.request({ key: "k", payload: { n: 1 } }))
      assert.deepInclude(backend.requests[0], { number: 1, kind: "write", key: "k", tenant: "default", startedAt: 0 })
      assert.deepInclude(backend.requests[0], { end: undefined, endedAt: undefined, landed: undefined })
      assert.strictEqual(backend.inFlight, 1)
      yield* TestClock.adjust(30)
      const receipt = yield* Fiber.join(fiber)
      assert.deepStrictEqual(receipt, {
        effect: 1,
        payload: { n: 1 },
        key: "k",
        tenant: "default",
        landedAt: 20,
        replayed: false
      })
      assert.deepInclude(backend.requests[0], { end: "ok", endedAt: 30, landed: receipt })
      assert.deepStrictEqual(backend.effects, [receipt])
      assert.strictEqual(backend.inFlight, 0)
    }))

  it.effect("S2: before its effect point a stopped request has no effect, after it the effect stands", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ behaviour: { latency: 30, effectAt: 20 } })
      const early = yield* start(backend.request({ key: "early", payload: 0 }))
      yield* TestClock.adjust(19)
      yield* Fiber.interrupt(early)
      const late = yield* start(backend.request({ key: "late", payload: 0 }))
      yield* TestClock.adjust(21)
      yield* Fiber.interrupt(late)
      assert.deepStrictEqual(backend.requests.map(({ end, endedAt }) => [end, endedAt]), [
        ["interrupted", 19],
        ["interrupted", 40]
      ])
      assert.isUndefined(yield* backend.lookup("early"))
      assert.deepInclude(yield* backend.lookup("late"), { effect: 1, landedAt: 39 })
      assert.strictEqual(backend.count(), 1)
      assert.strictEqual(backend.inFlight, 0)
    }))

  it.effect("S3: requests with one key have one effect, one after the other and at once; a key belongs to its tenant", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make()
      const asked = { key: "k", payload: { a: 1, b: [2] } }
      yield* ends(backend.request(asked))
      const results = yield* ends(
        backend.request({ ...asked, payload: { b: [2], a: 1 } }),
        backend.request(asked),
        backend.request({ ...asked, tenant: "north" }),
        backend.request({ ...asked, key: "other" })
      )
      assert.deepStrictEqual(
        results.map((result) => result._tag === "Success" && [result.success.effect, result.success.replayed]),
        [[1, true], [1, true], [2, false], [3, false]]
      )
      assert.strictEqual(backend.count({ key: "k" }), 2)
      assert.strictEqual(backend.count({ tenant: "north" }), 1)
      assert.strictEqual(backend.count({ key: "k", tenant: "default" }), 1)
      assert.strictEqual(backend.count({ tenant: "south" }), 0)
    }))

  it.effect("where keys are not honoured, and without a key, every request has an effect", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ honoursKeys: false })
      yield* ends(...[1, 2, 3].map((payload) => backend.request({ key: "k", payload })))
      assert.strictEqual(backend.count({ key: "k" }), 3)
      assert.deepInclude(yield* backend.lookup("k"), { payload: 1 })
      const honest = yield* FakeBackend.make()
      yield* ends(honest.request({ payload: 1 }), honest.request({ payload: 1 }))
      assert.strictEqual(honest.count(), 2)
    }))

  it.effect("a key with another payload is refused, and the error says what was expected and what came", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ name: "hotels" })
      const [first, second] = yield* ends(
        backend.request({ key: "k", payload: { hotel: "Tejo" } }),
        backend.request({ key: "k", payload: { hotel: "Alfama" } })
      )
      assert.strictEqual(first?._tag, "Success")
      assert.strictEqual(
        second?._tag === "Failure" && second.failure.message,
        'hotels: expected the key "k" with the payload {"hotel":"Tejo"}, and got it with {"hotel":"Alfama"}; nothing was done'
      )
      assert.strictEqual(backend.requests[1]?.end, "reused")
      assert.strictEqual(backend.count(), 1)
    }))

  it.effect("S4: over the concurrency a request is refused at once, with no effect; reads take places too", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ name: "crm", concurrency: 2, retryAfter: "3 seconds" })
      const running = [yield* start(backend.request({ payload: 1 })), yield* start(backend.read())]
      const error = yield* Effect.flip(backend.request({ payload: 2 }))
      assert.strictEqual(
        error.message,
        "crm: expected at most 2 requests at once, and got one more; nothing was done, try again in 3000 ms"
      )
      assert.isTrue(error._tag === "OverLimit" && Duration.toMillis(error.retryAfter) === 3000)
      assert.deepInclude(backend.requests[2], { end: "refused", endedAt: 0 })
      yield* TestClock.adjust(10)
      yield* Effect.forEach(running, (fiber) => Fiber.join<unknown, unknown>(fiber))
      assert.deepStrictEqual([backend.refused, backend.peak, backend.inFlight, backend.count()], [1, 2, 0, 1])
      yield* ends(backend.request({ payload: 3 }))
      assert.deepStrictEqual([backend.count(), backend.peak], [2, 2])
    }))

  it.effect("of a list of behaviours, the n-th request that is let in takes the n-th", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ concurrency: 1, behaviour: [{}, { fault: "fails" }, {}] })
      yield* ends(backend.request({ payload: 1 }), backend.request({ payload: 2 }))
      yield* ends(backend.request({ payload: 3 }))
      yield* ends(backend.request({ payload: 4 }))
      assert.deepStrictEqual(backend.requests.map(({ end }) => end), ["ok", "refused", "failed", "ok"])
    }))

  it.effect("S4: over the rate a request is refused until the oldest one leaves the window; refused ones do not count", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({
        rate: { limit: 2, window: "1 second" },
        behaviour: { latency: 0 }
      })
      const retryAfter = Effect.map(
        Effect.result(backend.request({ payload: 0 })),
        (result) =>
          result._tag === "Failure" && result.failure._tag === "OverLimit"
            ? Duration.toMillis(result.failure.retryAfter)
            : 0
      )
      assert.strictEqual(yield* retryAfter, 0)
      yield* TestClock.adjust(400)
      assert.strictEqual(yield* retryAfter, 0)
      assert.strictEqual(yield* retryAfter, 600)
      yield* TestClock.adjust(599)
      assert.strictEqual(yield* retryAfter, 1)
      yield* TestClock.adjust(1)
      assert.strictEqual(yield* retryAfter, 0)
      assert.strictEqual(yield* retryAfter, 400)
      assert.deepStrictEqual([backend.count(), backend.refused], [3, 3])
    }))

  it.effect("faults come before the effect and after it, and say what is known", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({
        name: "pay",
        behaviour: [{ fault: "fails" }, { fault: "loses-request" }, { fault: "loses-answer", effectAt: 0 }, {}]
      })
      const messages: Array<unknown> = []
      for (const payload of [1, 2, 3, 4, 5]) {
        const [result] = yield* ends(backend.request({ payload }))
        messages.push(result?._tag === "Failure" ? result.failure.message : result?.success.effect)
      }
      assert.deepStrictEqual(messages, [
        "pay: expected an answer to request 1, and got a failure; nothing was done",
        "pay: expected an answer to request 2, and lost the connection; it may have been done",
        "pay: expected an answer to request 3, and lost the connection; it may have been done",
        2,
        3
      ])
      assert.deepStrictEqual(backend.requests.map(({ end, landed }) => [end, landed?.effect]), [
        ["failed", undefined],
        ["lost", undefined],
        ["lost", 1],
        ["ok", 2],
        ["ok", 3]
      ])
    }))

  it.effect("what hangs ends when it is stopped or released; its effect lands at its time, if it has one", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({
        behaviour: ({ number }) => ({
          fault: "hangs",
          ...(number === 2 ? { effectAt: "1 minute" } : {}),
          ignoresInterrupt: number === 3
        })
      })
      const fibers = yield* Effect.forEach([1, 2, 3], (payload) => start(Effect.result(backend.request({ payload }))))
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(backend.inFlight, 3)
      assert.deepStrictEqual(backend.effects.map(({ landedAt, payload }) => [payload, landedAt]), [[2, 60_000]])
      yield* Fiber.interrupt(fibers[0]!)
      const stopping = yield* start(Fiber.interrupt(fibers[2]!))
      assert.strictEqual(backend.inFlight, 2)
      yield* backend.release
      yield* Fiber.join(stopping)
      const second = yield* Fiber.join(fibers[1]!)
      assert.strictEqual(second._tag === "Failure" && tagOf(second.failure), "ConnectionLost")
      assert.deepStrictEqual(backend.requests.map(({ end }) => end), ["interrupted", "lost", "lost"])
    }))

  it.effect("a request that is deaf to a stop is awaited, and has its effect", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ behaviour: { latency: 30, ignoresInterrupt: true } })
      const fiber = yield* start(backend.request({ payload: 1 }))
      yield* TestClock.adjust(10)
      const stopping = yield* start(Fiber.interrupt(fiber))
      yield* TestClock.adjust(19)
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* Fiber.join(stopping)
      assert.deepInclude(backend.requests[0], { end: "ok", endedAt: 30 })
      assert.strictEqual(backend.count(), 1)
    }))

  it.effect("a read has no effect, whatever its behaviour", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make({ behaviour: [{ effectAt: 0 }, { fault: "fails" }] })
      const [first, second] = [yield* ends(backend.read({ payload: "q" })), yield* ends(backend.read())]
      assert.deepStrictEqual([first[0]?._tag, second[0]?._tag], ["Success", "Failure"])
      assert.strictEqual(backend.count(), 0)
      assert.deepInclude(backend.requests[0], { kind: "read", payload: "q", landed: undefined, end: "ok" })
    }))

  it.effect("the tenant is that of the call which the handler serves, unless the request names one", () =>
    Effect.gen(function*() {
      const backend = yield* FakeBackend.make()
      const serving = Effect.provideService(TurnContext.CurrentCall, {
        identity: { tenant: "north", conversation: undefined, principal: undefined, turn: "t", parent: undefined },
        position: 0,
        id: "c0",
        tool: "book",
        attempt: 1,
        idempotencyKey: "not taken unasked",
        approvalNote: undefined
      })
      yield* ends(
        serving(backend.request({ key: "k", payload: 1 })),
        serving(backend.request({ payload: 2, tenant: "x" }))
      )
      assert.deepStrictEqual(backend.effects.map(({ key, tenant }) => [tenant, key]), [["north", "k"], [
        "x",
        undefined
      ]])
      assert.isUndefined(yield* backend.lookup("k"))
      assert.deepInclude(yield* serving(backend.lookup("k")), { payload: 1 })
    }))

  it.effect("failures can be encoded, to be those of a tool", () =>
    Effect.gen(function*() {
      const failure = new FakeBackend.OverLimit({
        backend: "b",
        limit: "rate",
        allowed: 1,
        retryAfter: Duration.millis(20)
      })
      assert.deepStrictEqual(yield* Schema.encodeEffect(FakeBackend.Failure)(failure), {
        _tag: "OverLimit",
        backend: "b",
        limit: "rate",
        allowed: 1,
        retryAfter: 20
      })
    }))

  it.effect("limits and times that cannot be are refused", () =>
    Effect.gen(function*() {
      const refusal = (options: FakeBackend.Options) =>
        Effect.map(Effect.exit(FakeBackend.make(options)), (exit) =>
          Exit.isFailure(exit) ? (Cause.squash(exit.cause) as Error).message : "")
      assert.strictEqual(
        yield* refusal({ name: "crm", concurrency: 0 }),
        'crm: the limit "concurrency" must be a whole number from 1, and is 0'
      )
      assert.match(yield* refusal({ rate: { limit: 1.5, window: 1 } }), /the fake backend: the limit "rate.limit"/)
      assert.match(yield* refusal({ rate: { limit: 1, window: 0 } }), /"rate.window" must be a duration from 1/)
      assert.match(yield* refusal({ behaviour: [{}, { latency: -1 }] }), /"latency" must be/)
      assert.strictEqual(
        yield* refusal({ behaviour: { latency: 5, effectAt: 6 } }),
        'the fake backend: the limit "effectAt" must be at most the latency (5 ms), or "end", and is 6 ms'
      )
      const backend = yield* FakeBackend.make({ behaviour: () => ({ latency: NaN }) })
      assert.isTrue(Exit.hasDies(yield* Effect.exit(backend.request({ payload: 1 }))))
      assert.deepStrictEqual([backend.requests[0]?.end, backend.inFlight], ["died", 0])
    }))
})
