/** Turns as spans and metrics. */
import { assert, describe, it } from "@effect/vitest"
import { ArtifactStore, ToolCall, TurnContext, TurnEvent, TurnTelemetry } from "effect-turn"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Tracer from "effect/Tracer"
import { call, drive, lab, run, words } from "./utils/kit.ts"

const traced = () => {
  const spans: Array<Tracer.NativeSpan> = []
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options)
      spans.push(span)
      return span
    }
  })
  const of = (name: string) => Object.fromEntries(spans.find((span) => span.name === name)!.attributes)
  return { spans, of, tracer }
}

describe("R33: spans", () => {
  it.effect("each run of a handler has one, named as the convention says, inside the span of the caller", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { bad: { end: "fail" } } })
      const { of, spans, tracer } = traced()
      yield* drive(
        run([call("read", "good"), call("read", "bad"), call("nobody" as any, "x")], {
          turn: "t1",
          middleware: [TurnTelemetry.spans()]
        }).pipe(
          Effect.withSpan("step"),
          Effect.provide(TurnContext.make({ tenant: "north", conversation: "c-1" })),
          Effect.provide(layer),
          Effect.withTracer(tracer)
        )
      )
      const tools = spans.filter((span) => span.name.startsWith("execute_tool"))
      assert.deepStrictEqual(tools.map((span) => span.name), ["execute_tool read", "execute_tool read"])
      for (const span of tools) {
        assert.strictEqual(span.parent._tag === "Some" && (span.parent.value as Tracer.NativeSpan).name, "step")
        assert.strictEqual(span.kind, "internal")
        assert.strictEqual(span.status._tag, "Ended")
      }
      assert.deepInclude(of("execute_tool read"), {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "c-1",
        "effect_turn.turn": "t1",
        "effect_turn.position": 0,
        "effect_turn.tenant": "north"
      })
      assert.strictEqual(tools[1]!.attributes.get("error.type"), "failed")
    }))

  it.effect("arguments, results and idempotency keys are in them only when asked for, keys never", () =>
    Effect.gen(function*() {
      for (const contents of [false, true]) {
        const { book, layer } = lab()
        const { spans, tracer } = traced()
        yield* drive(
          run([call("put", "secret")], { middleware: [TurnTelemetry.spans({ contents })] }).pipe(
            Effect.provide(layer),
            Effect.withTracer(tracer)
          )
        )
        assert.strictEqual(book.of("secret").idempotencyKey, "key:secret")
        const text = JSON.stringify(spans.map((span) => [span.name, ...span.attributes]))
        assert.notInclude(text, "key:secret")
        assert.strictEqual(text.includes('secret\\"'), contents)
        assert.strictEqual(text.includes("gen_ai.tool.call.result"), contents)
      }
    }))
})

describe("R33: metrics", () => {
  it.effect("count answers, waits by cause, and how long handlers ran", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { first: { ms: 40 }, second: { ms: 10 }, bad: { end: "fail" } } })
      yield* Effect.gen(function*() {
        const record = yield* TurnTelemetry.recorder
        yield* drive(
          run([
            call("write", "first", ["k"]),
            call("write", "second", ["k"]),
            call("read", "bad"),
            call("pay", "held"),
            call("nobody" as any, "x")
          ], { onEvent: record })
        )
      }).pipe(Effect.provide(layer))
      const all = yield* Metric.snapshot
      const found = (id: string, attributes: Record<string, string>) =>
        all.find((one) =>
          one.id === id && Object.entries(attributes).every(([key, value]) => one.attributes?.[key] === value)
        )?.state as any
      assert.strictEqual(found("effect_turn.calls", { "gen_ai.tool.name": "write", status: "ok" }).count, 2)
      assert.strictEqual(found("effect_turn.calls", { "gen_ai.tool.name": "pay", status: "pending_approval" }).count, 1)
      assert.strictEqual(found("effect_turn.calls", { "gen_ai.tool.name": "unknown", code: "unknown_tool" }).count, 1)
      const ran = found("gen_ai.execute_tool.duration", { "gen_ai.tool.name": "write" })
      assert.deepStrictEqual([ran.count, Math.round(ran.sum * 1000)], [2, 50])
      assert.strictEqual(found("gen_ai.execute_tool.duration", { "error.type": "failed" }).count, 1)
      const waits = found("effect_turn.call.wait", { "gen_ai.tool.name": "write", cause: "keys" })
      assert.deepStrictEqual([waits.count, Math.round(waits.sum * 1000)], [1, 40])
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("count answers that were cut, and whether the whole is kept", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { result: "x".repeat(5_000) } } })
      yield* Effect.gen(function*() {
        const onEvent = yield* TurnTelemetry.recorder
        const options = { onEvent, resultBudget: { maxChars: 500 } }
        yield* drive(run([call("read", "a"), call("read", "b")], options))
        yield* drive(Effect.provide(run([call("read", "a")], options), ArtifactStore.layerMemory()))
      }).pipe(Effect.provide(layer))
      const cuts = (yield* Metric.snapshot).filter(({ id }) => id === "effect_turn.results.cut")
      assert.deepStrictEqual(cuts.map(({ attributes, state }) => [attributes, (state as any).count]), [
        [{ "gen_ai.tool.name": "read", kept: "false" }, 1],
        [{ "gen_ai.tool.name": "read", kept: "true" }, 1]
      ])
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("a name that a model made up is in none of them, whatever became of its call", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { ms: 100 } }, runtime: { turns: 1 } })
      const made = [ToolCall.make("c", "made_up", {})]
      yield* Effect.gen(function*() {
        const onEvent = yield* TurnTelemetry.recorder
        yield* drive(run(made, { onEvent }))
        yield* drive(run(made, { onEvent, finishReason: "length" }))
        yield* drive(run([...made, ToolCall.make("c", "made_up_too", {})], { onEvent }))
        yield* drive(Effect.all([run([call("read", "a")]), run(made, { onEvent })], { concurrency: 2 }))
        yield* drive(run([call("read", "a"), call("pay", "b")], { onEvent, finishReason: "error" }))
        yield* drive(run([call("read", "a"), call("pay", "b")], { onEvent }))
        yield* drive(run([call("read", "a"), call("pay", "b")], { onEvent, finishReason: "error" }))
      }).pipe(Effect.provide(layer))
      const all = yield* Metric.snapshot
      const counted = all.filter(({ id }) => id === "effect_turn.calls").map(({ attributes, state }) => [
        attributes?.["gen_ai.tool.name"],
        attributes?.["code"] ?? attributes?.["status"],
        (state as any).count
      ])
      assert.deepStrictEqual(counted.map(String).toSorted(), [
        "pay,incomplete_response,1",
        "pay,pending_approval,1",
        "read,incomplete_response,1",
        "read,ok,1",
        "unknown,ambiguous_id,2",
        "unknown,incomplete_response,3",
        "unknown,over_limit,1",
        "unknown,unknown_tool,1"
      ])
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("what was given up on and has ended before its turn has is not counted", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { deaf: { ms: 12_000, deaf: true }, w: { ms: 9_000 }, x: { ms: 9_000 } } })
      yield* Effect.gen(function*() {
        const onEvent = yield* TurnTelemetry.recorder
        const late: Array<string> = []
        const outcomes = yield* drive(
          run([call("read", "deaf"), call("write", "w", ["k"]), call("write", "x", ["k"])], {
            onEvent: (event) => {
              late.push(event._tag)
              onEvent(event)
            },
            grace: { reads: 10 }
          })
        )
        assert.deepStrictEqual(words(outcomes), ["timeout/handler", "ok", "ok"])
        assert.isBelow(late.indexOf("CallSettledLate"), late.indexOf("TurnEnded"))
        assert.isAbove(late.indexOf("CallSettledLate"), 0)
      }).pipe(Effect.provide(layer))
      const found = (yield* Metric.snapshot).find(({ id }) => id === "effect_turn.unsettled")
      assert.strictEqual((found?.state as any)?.count ?? 0, 0)
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("work that was given up on is counted until it has ended", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { slow: { ms: 500 } } })
      const value = Effect.map(Metric.value(TurnTelemetry.unsettled), (state) => state.count)
      yield* Effect.gen(function*() {
        const record = yield* TurnTelemetry.recorder
        yield* drive(run([call("write", "slow", ["k"])], { onEvent: record, deadline: 100, grace: 0 }), 100)
        assert.strictEqual(yield* value, 1)
      }).pipe(Effect.provide(layer), drive)
      assert.strictEqual(yield* value, 0)
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))
})

describe("R33: redaction", () => {
  it.effect("what leaves the process says who, when and how it ended, and nothing of what was said", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { bad: { end: "fail" }, note: { ms: 20, notes: [5] } } })
      yield* drive(
        run([call("read", "bad"), call("write", "good", ["k"]), call("fetch", "note")], { onEvent: book.note }).pipe(
          Effect.provide(layer)
        )
      )
      const redacted = book.events.map(TurnEvent.redact)
      assert.deepStrictEqual(redacted.map((event) => event._tag), book.events.map((event) => event._tag))
      for (const event of redacted) {
        if (event._tag === "CallProgressed") assert.strictEqual(event.result, undefined)
        if (event._tag !== "CallEnded") continue
        assert.containsAllKeys(event.outcome, ["status", "started", "effect", "retryable", "position", "id"])
        assert.strictEqual(event.outcome.message, "")
        for (const member of ["result", "encoded", "failure"]) assert.notProperty(event.outcome, member)
      }
    }))
})
