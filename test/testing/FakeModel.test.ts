import { assert, describe, it } from "@effect/vitest"
import { FakeModel } from "effect-turn/testing"
import { AiError, Chat, LanguageModel, type Response, Tool, Toolkit } from "effect/ai"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { TestClock } from "effect/testing"

const Double = Tool.make("double", {
  parameters: Schema.Struct({ n: Schema.FiniteFromString }),
  success: Schema.Finite
})
const toolkit = Toolkit.make(Double)
const handlers = toolkit.toLayer({ double: ({ n }) => Effect.succeed(2 * n) })
const deferred = { disableToolCallResolution: true, toolCallValidation: "deferred" } as const

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

/** A fake, and the two ways to ask it. */
const fakeOf = (script: ReadonlyArray<FakeModel.Entry>, options?: FakeModel.Options) =>
  Effect.map(FakeModel.make(script, options), (fake) => {
    const on = Effect.provideService(LanguageModel.LanguageModel, fake.model)
    return {
      fake,
      whole: on(LanguageModel.generateText({ prompt: "go", ...deferred })),
      stream: LanguageModel.streamText({ prompt: "go", ...deferred }).pipe(
        Stream.provideService(LanguageModel.LanguageModel, fake.model)
      ),
      parts: on(Stream.runCollect(LanguageModel.streamText({ prompt: "go", ...deferred })))
    }
  })

/** A stream in short: what kinds of parts came, and what each piece carried. */
const short = (parts: ReadonlyArray<Response.StreamPart<{}, "deferred">>) =>
  parts.map((part) => "delta" in part ? part.delta : part.type === "tool-call" ? part.params : part.type)

const reasonOf = (exit: Exit.Exit<unknown, AiError.AiError>) =>
  Exit.isFailure(exit) ? Cause.squash(exit.cause) as AiError.AiError : undefined

describe("what a scripted model says", () => {
  it.effect("M1: the n-th request takes the n-th step, streamed or not, and is written down when it starts", () =>
    Effect.gen(function*() {
      const { fake, parts, whole } = yield* fakeOf([
        FakeModel.text("one"),
        FakeModel.text("two", { latency: 20 }),
        FakeModel.text("three")
      ])
      assert.strictEqual(fake.stepsLeft, 3)
      assert.strictEqual((yield* whole).text, "one")
      const second = yield* start(parts)
      assert.strictEqual((yield* whole).text, "three")
      assert.deepStrictEqual(fake.requests.map(({ end, number, streamed }) => [number, streamed, end]), [
        [1, false, "ok"],
        [2, true, undefined],
        [3, false, "ok"]
      ])
      assert.deepStrictEqual(fake.inFlight.map(({ number }) => number), [2])
      yield* TestClock.adjust(20)
      assert.deepStrictEqual(short(yield* Fiber.join(second)), ["text-start", "two", "text-end", "finish"])
      assert.deepInclude(fake.requests[1], { startedAt: 0, endedAt: 20, end: "ok", parts: 4 })
      assert.strictEqual(fake.stepsLeft, 0)
    }))

  it.effect("M2: a request remembers the prompt, the tools on offer, the choice of tools and the mode", () =>
    Effect.gen(function*() {
      const program = Effect.gen(function*() {
        yield* LanguageModel.generateText({
          prompt: "a",
          toolkit,
          toolChoice: "required",
          disableToolCallResolution: true
        })
        yield* LanguageModel.generateText({ prompt: [], ...deferred })
        return (yield* FakeModel.FakeModel).requests
      })
      const [first, second] = yield* Effect.provide(
        program,
        FakeModel.layer([FakeModel.text("")], { repeatLast: true })
      )
      assert.deepStrictEqual(first?.prompt.content.map(({ role }) => role), ["user"])
      assert.deepStrictEqual(first?.tools.map(({ name }) => name), ["double"])
      assert.deepInclude(first, { toolChoice: "required", validation: "strict" })
      assert.deepInclude(second, { toolChoice: "none", validation: "deferred", tools: [] })
    }))

  it.effect("M3: whole and streamed say the same", () =>
    Effect.gen(function*() {
      const step = FakeModel.answer([
        { type: "reasoning", text: "hm" },
        "Let me see. ",
        FakeModel.call("double", { n: "4" }),
        FakeModel.rawCall("other", " "),
        "Done.",
        { type: "source", sourceType: "url", id: "s1", url: "https://example.org/", title: "A page" }
      ], { usage: { input: 3, output: 7, reasoning: 2 }, chunk: 3 })
      const { parts, whole } = yield* fakeOf([step], { repeatLast: true })
      const response = yield* whole
      const streamed = yield* parts
      const text = (type: string) =>
        streamed.flatMap((part) => (part.type === type && "delta" in part ? [part.delta] : []))
      assert.strictEqual(response.text, "Let me see. Done.")
      assert.strictEqual(text("text-delta").join(""), response.text)
      assert.strictEqual(text("reasoning-delta").join(""), response.reasoningText)
      assert.deepStrictEqual(response.toolCalls.map(({ id, name, params }) => [id, name, params]), [
        ["call_1_1", "double", { n: "4" }],
        ["call_1_2", "other", {}]
      ])
      const calls = streamed.filter((part) => part.type === "tool-call")
      assert.deepStrictEqual(calls.map(({ id, name, params }) => [id, name, params]), [
        ["call_2_1", "double", { n: "4" }],
        ["call_2_2", "other", {}]
      ])
      const source = (parts: ReadonlyArray<{ readonly type: string }>) => parts.find(({ type }) => type === "source")
      assert.deepStrictEqual(source(streamed), source(response.content))
      assert.strictEqual(response.finishReason, "tool-calls")
      const finish = streamed.at(-1)
      assert.isTrue(finish?.type === "finish" && finish.reason === "tool-calls")
      assert.deepStrictEqual(finish?.type === "finish" && finish.usage, response.usage)
      assert.strictEqual(response.usage.outputTokens.reasoning, 2)
    }))

  it.effect("what the provider executed itself, and what it says beside the text, comes through whole and streamed", () =>
    Effect.gen(function*() {
      const metadata = { host: { cached: true } }
      const { parts, whole } = yield* fakeOf([
        FakeModel.answer([
          { type: "tool-call", id: "p1", name: "web_search", params: { q: "x" }, providerExecuted: true },
          { type: "text", text: "Found.", metadata },
          { type: "reasoning", text: "So.", metadata }
        ], { usage: { input: 1, output: 2, cacheRead: 3, cacheWrite: 4, reasoning: 5 } })
      ], { repeatLast: true })
      const response = yield* whole
      const streamed = yield* parts
      // It is no call for the client to run.
      assert.strictEqual(response.finishReason, "stop")
      assert.deepInclude(response.usage.inputTokens, { total: 1, cacheRead: 3, cacheWrite: 4 })
      assert.deepInclude(response.usage.outputTokens, { total: 2, reasoning: 5 })
      assert.deepStrictEqual(
        streamed.flatMap((part) => ("providerExecuted" in part ? [[part.type, part.providerExecuted]] : [])),
        [["tool-params-start", true], ["tool-call", true]]
      )
      assert.deepStrictEqual(
        streamed.flatMap((part) => (Object.keys(part.metadata).length > 0 ? [[part.type, part.metadata]] : [])),
        [["text-end", metadata], ["reasoning-end", metadata]]
      )
      assert.deepStrictEqual(response.content.map((part) => part.metadata), [{}, metadata, metadata, {}])
    }))

  it.effect("chunks have the sizes that were asked for, through the whole answer, and never half a character", () =>
    Effect.gen(function*() {
      const { parts } = yield* fakeOf([
        FakeModel.calls([FakeModel.call("double", { n: "4" })], { text: "a👍bc", chunk: [2, 1, 4] }),
        FakeModel.text("abc"),
        FakeModel.text("")
      ], { chunk: 2 })
      const first = yield* parts
      assert.deepStrictEqual(short(first).slice(0, 5), ["text-start", "a👍", "b", "c", "text-end"])
      assert.deepStrictEqual(short(first).slice(5), ["tool-params-start", '{"n"', ':"4"', "}", "tool-params-end", {
        n: "4"
      }, "finish"])
      assert.deepStrictEqual(short(yield* parts), ["text-start", "ab", "c", "text-end", "finish"])
      assert.deepStrictEqual(short(yield* parts), ["text-start", "text-end", "finish"])
    }))

  it.effect("time passes before the first chunk and between chunks; an answer that is not streamed has its latency", () =>
    Effect.gen(function*() {
      const { fake, stream, whole } = yield* fakeOf([FakeModel.text("abc")], {
        latency: "1 second",
        chunk: 1,
        delay: 10,
        repeatLast: true
      })
      const seen: Array<readonly [string, number]> = []
      const reading = yield* start(Stream.runForEach(stream, (part) =>
        Effect.map(Clock.currentTimeMillis, (at) => {
          seen.push(["delta" in part ? part.delta : part.type, at])
        })))
      yield* TestClock.adjust(1030)
      yield* Fiber.join(reading)
      assert.deepStrictEqual(seen, [
        ["text-start", 1000],
        ["a", 1000],
        ["b", 1010],
        ["c", 1020],
        ["text-end", 1020],
        ["finish", 1030]
      ])
      const asking = yield* start(whole)
      yield* TestClock.adjust(1000)
      yield* Fiber.join(asking)
      assert.deepStrictEqual(fake.requests.map(({ endedAt }) => endedAt), [1030, 2030])
      assert.strictEqual(fake.stepsLeft, 0)
    }))

  it.effect("parameters in bad JSON fail the request as a provider does, and come through where validation is deferred", () =>
    Effect.gen(function*() {
      const fake = yield* FakeModel.make(
        [FakeModel.calls([FakeModel.call(Double, { n: "1" }), FakeModel.rawCall("double", '{"n": ')])],
        { repeatLast: true }
      )
      const strict = { prompt: "go", toolkit, disableToolCallResolution: true } as const
      const on = Effect.provideService(LanguageModel.LanguageModel, fake.model)
      const failed = yield* Effect.exit(on(LanguageModel.generateText(strict)))
      assert.strictEqual(reasonOf(failed)?.reason._tag, "ToolParameterValidationError")
      const seen: Array<string> = []
      const broken = yield* Effect.exit(
        on(Stream.runForEach(LanguageModel.streamText(strict), ({ type }) => Effect.sync(() => seen.push(type))))
      )
      assert.strictEqual(reasonOf(broken)?.reason._tag, "ToolParameterValidationError")
      assert.deepStrictEqual(seen.slice(-3), ["tool-params-start", "tool-params-delta", "tool-params-end"])
      const { toolCalls } = yield* on(LanguageModel.generateText({ ...strict, ...deferred }))
      assert.deepStrictEqual(toolCalls.map(({ params }) => params), [{ n: "1" }, '{"n": '])
      assert.deepStrictEqual(fake.requests.map(({ end }) => end), ["failed", "failed", "ok"])
    }))

  it.effect("a step may be made from the request, and may wait for the test", () =>
    Effect.gen(function*() {
      const gate = yield* Deferred.make<FakeModel.Step>()
      const { fake, parts, whole } = yield* fakeOf([
        ({ prompt, streamed }) => FakeModel.text(`${prompt.content.length} ${streamed}`),
        () => Deferred.await(gate),
        () => Effect.fail(AiError.make({ module: "t", method: "m", reason: new AiError.QuotaExhaustedError({}) }))
      ])
      assert.strictEqual((yield* whole).text, "1 false")
      const waiting = yield* start(whole)
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(fake.inFlight.length, 1)
      yield* Deferred.succeed(gate, FakeModel.text("late"))
      assert.strictEqual((yield* Fiber.join(waiting)).text, "late")
      assert.strictEqual(reasonOf(yield* Effect.exit(parts))?.reason._tag, "QuotaExhaustedError")
      assert.deepStrictEqual(fake.requests.map(({ end }) => end), ["ok", "ok", "failed"])
    }))
})

describe("answers that break off", () => {
  const reason = new AiError.RateLimitError({})
  const cutBy = (cut: FakeModel.Cut) => FakeModel.text("abcd", { chunk: 2, cut })

  it.effect("a stream is cut anywhere, by an error, by its end, or by silence", () =>
    Effect.gen(function*() {
      const read = Effect.fnUntraced(function*(cut: FakeModel.Cut) {
        const { fake, stream } = yield* fakeOf([cutBy(cut)])
        const seen: Array<string> = []
        const fiber = yield* start(
          Stream.runForEach(stream, (part) => Effect.sync(() => seen.push("delta" in part ? part.delta : part.type)))
        )
        yield* TestClock.adjust("1 minute")
        if (fiber.pollUnsafe() === undefined) yield* Fiber.interrupt(fiber)
        return [seen.join(" "), fake.requests[0]?.end, fake.requests[0]?.parts]
      })
      assert.deepStrictEqual(yield* read({ after: 0, by: reason }), ["", "failed", 0])
      assert.deepStrictEqual(yield* read({ after: 2, by: reason }), ["text-start ab", "failed", 2])
      assert.deepStrictEqual(yield* read({ after: 3, by: "end" }), ["text-start ab cd", "cut", 3])
      assert.deepStrictEqual(yield* read({ after: 1, by: "hang" }), ["text-start", "interrupted", 1])
      assert.deepStrictEqual(yield* read({ after: Infinity, by: reason }), [
        "text-start ab cd text-end finish",
        "failed",
        5
      ])
    }))

  it.effect("a cut takes the place of the next chunk in time, and of all that would have gone wrong after it", () =>
    Effect.gen(function*() {
      const { fake, parts } = yield* fakeOf([cutBy({ after: 2, by: "end" })], { delay: 10, latency: 5 })
      const reading = yield* start(parts)
      yield* TestClock.adjust(15)
      yield* Fiber.join(reading)
      assert.deepInclude(fake.requests[0], { end: "cut", endedAt: 15 })

      const step = FakeModel.calls([FakeModel.rawCall("double", "{")], { cut: { after: 1, by: "end" } })
      const broken = yield* FakeModel.make([step])
      yield* Stream.runDrain(broken.model.streamText({ prompt: "go", toolkit, disableToolCallResolution: true }))
      assert.deepInclude(broken.requests[0], { end: "cut", parts: 1 })
    }))

  it.effect("an answer that is not streamed shows nothing of what was cut", () =>
    Effect.gen(function*() {
      const { fake, whole } = yield* fakeOf([
        cutBy({ after: 2, by: reason }),
        cutBy({ after: 2, by: "end" }),
        FakeModel.hang
      ])
      assert.strictEqual(reasonOf(yield* Effect.exit(whole))?.message, `FakeModel.generateText: ${reason.message}`)
      assert.strictEqual(reasonOf(yield* Effect.exit(whole))?.reason._tag, "InvalidResponseError")
      const hanging = yield* start(whole)
      yield* TestClock.adjust("1 hour")
      yield* Fiber.interrupt(hanging)
      assert.deepStrictEqual(fake.requests.map(({ end }) => end), ["failed", "failed", "interrupted"])
    }))

  it.effect("M4: an interruption ends a request at once, in its latency, between chunks and in silence", () =>
    Effect.gen(function*() {
      const { fake, parts, whole } = yield* fakeOf([
        FakeModel.text("abc", { latency: 50 }),
        FakeModel.text("abc", { latency: 50 }),
        FakeModel.text("abc", { latency: 20, chunk: 1, delay: 20 }),
        FakeModel.hang
      ])
      for (const asked of [Effect.asVoid(whole), Effect.asVoid(parts), Effect.asVoid(parts), Effect.asVoid(parts)]) {
        const fiber = yield* start(asked)
        yield* TestClock.adjust(30)
        yield* Fiber.interrupt(fiber)
      }
      assert.deepStrictEqual(
        fake.requests.map(({ end, endedAt, parts, startedAt }) => [end, endedAt! - startedAt, parts]),
        [
          ["interrupted", 30, 0],
          ["interrupted", 30, 0],
          ["interrupted", 30, 2],
          ["interrupted", 30, 0]
        ]
      )
      assert.deepStrictEqual(fake.inFlight, [])
    }))

  it.effect("a reader who leaves a stream ends the request; one who has read the finish part has had it all", () =>
    Effect.gen(function*() {
      const { fake, stream } = yield* fakeOf([FakeModel.text("abc", { chunk: 1 })], { repeatLast: true })
      yield* Stream.runDrain(Stream.take(stream, 2))
      yield* Stream.runDrain(Stream.takeUntil(stream, ({ type }) => type === "finish"))
      assert.deepStrictEqual(fake.requests.map(({ end }) => end), ["interrupted", "ok"])
    }))
})

describe("a scripted model under effect/ai", () => {
  it.effect("generateObject decodes what was said, and refuses what does not fit", () =>
    Effect.gen(function*() {
      const schema = Schema.Struct({ n: Schema.FiniteFromString })
      const fake = yield* FakeModel.make([FakeModel.object({ n: "3" }), FakeModel.object({ n: {} })])
      const asked = LanguageModel.generateObject({ prompt: "go", schema }).pipe(
        Effect.provideService(LanguageModel.LanguageModel, fake.model)
      )
      assert.deepStrictEqual((yield* asked).value, { n: 3 })
      assert.strictEqual(fake.requests[0]?.responseFormat.type, "json")
      assert.strictEqual(reasonOf(yield* Effect.exit(asked))?.reason._tag, "StructuredOutputError")
    }))

  it.effect("a chat keeps what was streamed, and its tools are resolved", () =>
    Effect.gen(function*() {
      const program = Effect.gen(function*() {
        const chat = yield* Chat.empty
        const parts = yield* Stream.runCollect(chat.streamText({ prompt: "go", toolkit }))
        const second = yield* chat.generateText({ prompt: [], toolkit })
        return [
          parts.flatMap((part) => (part.type === "tool-result" ? [part.result] : [])),
          second.text,
          (yield* FakeModel.FakeModel).requests.at(-1)?.prompt.content.map(({ role }) => role)
        ]
      })
      const script = [FakeModel.calls([FakeModel.call(Double, { n: "4" })], { chunk: 2 }), FakeModel.text("It is 8.")]
      assert.deepStrictEqual(yield* Effect.provide(program, Layer.merge(FakeModel.layer(script), handlers)), [
        [8],
        "It is 8.",
        ["user", "assistant", "tool"]
      ])
    }))

  it.effect("a finish reason that cuts a list short runs none of its calls", () =>
    Effect.gen(function*() {
      const script = [FakeModel.calls([FakeModel.call(Double, { n: "4" })], { finishReason: "length" })]
      const parts = yield* Stream.runCollect(LanguageModel.streamText({ prompt: "go", toolkit })).pipe(
        Effect.provide(Layer.merge(FakeModel.layer(script), handlers))
      )
      assert.deepStrictEqual(parts.flatMap((part) => part.type === "tool-result" ? [part.isFailure] : []), [true])
    }))

  it("the parameters of a tool are checked by the compiler", () => {
    assert.strictEqual(FakeModel.call(Double, { n: "1" }).name, "double")
    // @ts-expect-error a model writes encoded parameters: the number is a text
    FakeModel.call(Double, { n: 1 })
  })
})

describe("mistakes in a script", () => {
  const defectOf = (exit: Exit.Exit<unknown, unknown>) =>
    Exit.isFailure(exit) && Exit.hasDies(exit) ? String((Cause.squash(exit.cause) as Error).message) : undefined

  it.effect("a request past the end says how many steps there were, and which request came", () =>
    Effect.gen(function*() {
      const { fake, parts, whole } = yield* fakeOf([FakeModel.text("one")])
      yield* whole
      assert.strictEqual(
        defectOf(yield* Effect.exit(parts)),
        "the script of the fake model: expected at most 1 step, and got request 2 (streamed, messages: user); add a step, or " +
          "let the last one repeat"
      )
      assert.strictEqual(fake.requests[1]?.end, "died")
      const none = yield* fakeOf([], { repeatLast: true })
      assert.match(defectOf(yield* Effect.exit(none.whole)) ?? "", /at most 0 steps, and got request 1 \(not streamed/)
    }))

  it.effect("sizes, times and cuts that cannot be are refused where the model is made", () =>
    Effect.gen(function*() {
      const refusal = (step: FakeModel.StepOptions, options?: FakeModel.Options) =>
        Effect.map(Effect.exit(FakeModel.make([FakeModel.text("a", step)], options)), defectOf)
      assert.strictEqual(
        yield* refusal({ chunk: 0 }),
        'the fake model: the limit "chunk" must be a whole number from 1, and is 0'
      )
      assert.match(
        (yield* refusal({ cut: { after: -1, by: "end" } })) ?? "",
        /"cut.after" must be a whole number from 0/
      )
      assert.match((yield* refusal({ latency: -1 })) ?? "", /"latency" must be a duration from 0/)
      assert.match((yield* refusal({}, { delay: NaN })) ?? "", /"delay" must be a duration/)
      const late = yield* fakeOf([() => FakeModel.text("a", { chunk: [1, 1.5] })])
      assert.match(defectOf(yield* Effect.exit(late.whole)) ?? "", /"chunk" must be a whole number/)
    }))
})
