/** The governed model, whole: what `generateText`, `generateObject` and `Chat` of effect/ai give when the calls run as turns. */
import { assert, describe, it } from "@effect/vitest"
import { Siblings, ToolPolicy, Turn, TurnError } from "effect-turn"
import { FakeModel, History } from "effect-turn/testing"
import * as AiError from "effect/ai/AiError"
import * as Chat from "effect/ai/Chat"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import * as Response from "effect/ai/Response"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as Tracer from "effect/Tracer"
import { drive, fork, lab, toolkit, tools } from "../utils/kit.ts"
import { lines, prompts, says, wordsOf, world } from "../utils/model.ts"

const { layerLanguageModel } = Turn

describe("generateText of a governed model", () => {
  it.effect("answers every call after the response, in call order, whatever it is", () =>
    Effect.gen(function*() {
      const { book, layer } = world(
        [
          FakeModel.calls([
            says("read", "slow", ["a"]),
            FakeModel.call("serach", { q: 1 }, { id: "unknown" }),
            FakeModel.call("write", { tag: 3 }, { id: "invalid" }),
            says("write", "w", ["a"]),
            says("read", "fails"),
            says("read", "dies"),
            FakeModel.rawCall("read", '{"tag": ', { id: "raw" }),
            says("read", "quick")
          ], { text: "Let me see." })
        ],
        {},
        { script: { slow: { ms: 100 }, fails: { end: "fail" }, dies: { end: "die" }, quick: { ms: 1 } } }
      )
      const response = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
      assert.deepStrictEqual(wordsOf(response.content), [
        "Let me see.",
        "call slow",
        "call unknown",
        "call invalid",
        "call w",
        "call fails",
        "call dies",
        "call raw",
        "call quick",
        "finish",
        'result slow "slow"',
        "result unknown error/unknown_tool",
        "result invalid error/invalid_arguments",
        'result w "w"',
        "result fails error/failed",
        "result dies error/defect",
        "result raw error/invalid_arguments",
        'result quick "quick"'
      ])
      // The write waited for the read of the same key.
      assert.deepStrictEqual([book.span("slow"), book.span("w")], [[0, 100], [100, 110]])
      assert.deepStrictEqual(
        History.check(Prompt.concat(Prompt.make("go"), Prompt.fromResponseParts(response.content))),
        []
      )
      assert.deepStrictEqual([response.text, response.finishReason], ["Let me see.", "tool-calls"])
    }))

  it.effect("gives results as effect/ai does: decoded and encoded, with the tool's output for the model", () =>
    Effect.gen(function*() {
      const Day = pipe(
        Tool.make("day", {
          parameters: Schema.Struct({ n: Schema.Finite }),
          success: Schema.FiniteFromString,
          toModelOutput: (day) => [Prompt.makePart("text", { text: `day ${day + 1}` })]
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const kit = Toolkit.make(Day)
      const script = [FakeModel.calls([FakeModel.call(Day, { n: 2 }, { id: "d" })])]
      const ask = LanguageModel.generateText({ prompt: "go", toolkit: kit })
      const handlers = kit.toLayer({ day: ({ n }) => Effect.succeed(n) })
      const plain = yield* ask.pipe(Effect.provide([FakeModel.layer(script), handlers]))
      const ours = yield* ask.pipe(
        Effect.provide([
          layerLanguageModel().pipe(Layer.provide([FakeModel.layer(script), Turn.layer()])),
          handlers
        ])
      )
      assert.deepStrictEqual(ours.toolResults, plain.toolResults)
      assert.deepStrictEqual([ours.toolResults[0]!.result, ours.toolResults[0]!.encodedResult], [2, "2"])
      assert.deepStrictEqual(ours.toolResults[0]!.modelOutput?.map((part) => part.type), ["text"])
      assert.deepStrictEqual(
        Prompt.fromResponseParts(ours.content),
        Prompt.fromResponseParts(plain.content)
      )
    }))

  it.effect("an output for the model that breaks leaves the result as it is", () =>
    Effect.gen(function*() {
      const Loud = pipe(
        Tool.make("loud", {
          success: Schema.String,
          toModelOutput: () => {
            throw new Error("no output")
          }
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const kit = Toolkit.make(Loud)
      const response = yield* LanguageModel.generateText({ prompt: "go", toolkit: kit }).pipe(
        Effect.provide([
          layerLanguageModel().pipe(
            Layer.provide([FakeModel.layer([FakeModel.calls([FakeModel.call(Loud, {}, { id: "l" })])]), Turn.layer()])
          ),
          kit.toLayer({ loud: () => Effect.succeed("here") })
        ])
      )
      assert.deepStrictEqual(wordsOf(response.toolResults), ['result l "here"'])
      assert.isFalse("modelOutput" in response.toolResults[0]!)
    }))

  it.effect("what is no value of the tool is what effect/ai has for a call that was not executed", () =>
    Effect.gen(function*() {
      const { layer } = world(
        [
          FakeModel.calls([
            FakeModel.call("nope", {}, { id: "unknown" }),
            says("read", "fails"),
            says("read", "dies")
          ])
        ],
        {},
        { script: { fails: { end: "fail" }, dies: { end: "die" } } }
      )
      const { toolResults } = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
      assert.deepInclude(toolResults[0]!.result, { type: "execution-interrupted" })
      // The tool's own failure stands as it is, and the model is told the whole of it.
      assert.strictEqual(toolResults[1]!.result, "fails failed")
      assert.deepInclude(toolResults[1]!.encodedResult, { status: "error", code: "failed", failure: "fails failed" })
      const codec = Schema.toCodecJson(
        Response.ToolResultPart("read", Schema.Unknown, Tool.failureResultSchema(tools.read))
      )
      for (const part of toolResults) {
        if (part.name !== "read") continue
        const json = yield* Schema.encodeUnknownEffect(codec)(part)
        const back = yield* Schema.decodeUnknownEffect(codec)(json)
        assert.deepStrictEqual(back.result, part.result)
      }
    }))

  it.effect("errors of effect/ai from a handler stand as in effect/ai: a reason becomes an AiError", () =>
    Effect.gen(function*() {
      const Remote = pipe(Tool.make("remote", { failureMode: "return" }), ToolPolicy.read({ keys: () => [] }))
      const kit = Toolkit.make(Remote)
      const script = [FakeModel.calls([FakeModel.call(Remote, {}, { id: "r" })])]
      const ask = LanguageModel.generateText({ prompt: "go", toolkit: kit })
      const handlers = kit.toLayer({ remote: () => Effect.fail(new AiError.RateLimitError({})) })
      const ours = yield* ask.pipe(
        Effect.provide([layerLanguageModel().pipe(Layer.provide([FakeModel.layer(script), Turn.layer()])), handlers])
      )
      const plain = yield* ask.pipe(Effect.provide([FakeModel.layer(script), handlers]))
      assert.deepStrictEqual(ours.toolResults[0]!.result, plain.toolResults[0]!.result)
    }))

  it.effect("a finish reason that is not the end of a whole response runs nothing, as in effect/ai", () =>
    Effect.gen(function*() {
      for (const finishReason of ["length", "content-filter", "error", "other", "unknown"] as const) {
        const { book, layer } = world([FakeModel.calls([says("read", "a"), says("write", "b")], { finishReason })])
        const response = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
        assert.deepStrictEqual(wordsOf(response.toolResults), [
          "result a error/incomplete_response",
          "result b error/incomplete_response"
        ])
        assert.deepStrictEqual(book.runs, [])
      }
      for (const finishReason of ["stop", "tool-calls", "pause"] as const) {
        const { book, layer } = world([FakeModel.calls([says("read", "a")], { finishReason })])
        yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
        assert.strictEqual(book.runs.length, 1)
      }
    }))

  it.effect("`concurrency` is the turn's own limit; without it everything runs together, or as the layer says", () =>
    Effect.gen(function*() {
      const spans = (request: number | "unbounded" | undefined, options: Turn.ModelOptions) =>
        Effect.gen(function*() {
          const { book, layer } = world([FakeModel.calls(["a", "b", "c"].map((tag) => says("read", tag)))], options)
          const now = yield* Clock.currentTimeMillis
          yield* drive(
            Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit, concurrency: request }), layer)
          )
          return book.runs.map((ran) => ran.at - now)
        })
      assert.deepStrictEqual(yield* spans(undefined, {}), [0, 0, 0])
      assert.deepStrictEqual(yield* spans("unbounded", { execution: 1 }), [0, 0, 0])
      assert.deepStrictEqual(yield* spans(2, {}), [0, 0, 10])
      assert.deepStrictEqual(yield* spans(1, {}), [0, 10, 20])
      assert.deepStrictEqual(yield* spans(undefined, { execution: 1 }), [0, 10, 20])
    }))

  it.effect("`toolChoice` and the tools reach the model as they were given", () =>
    Effect.gen(function*() {
      const { layer } = world([FakeModel.text("a"), FakeModel.text("b")])
      yield* Effect.gen(function*() {
        yield* LanguageModel.generateText({ prompt: "go", toolkit, toolChoice: { tool: "read" } })
        yield* LanguageModel.generateText({ prompt: "go", toolkit, toolChoice: { oneOf: ["read", "write"] } })
        const { requests } = yield* FakeModel.FakeModel
        assert.deepStrictEqual(requests.map((one) => [one.toolChoice, one.tools.length, one.validation]), [
          [{ tool: "read" }, Object.keys(toolkit.tools).length, "deferred"],
          [{ oneOf: ["read", "write"] }, 2, "deferred"]
        ])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("without a toolkit, and with `disableToolCallResolution`, nothing is touched", () =>
    Effect.gen(function*() {
      const step = FakeModel.calls([says("read", "a")])
      const open = Prompt.make([
        { role: "user", content: "go" },
        {
          role: "assistant",
          content: [{ type: "tool-call", id: "x", name: "read", params: { tag: "x" }, providerExecuted: false }]
        }
      ])
      const { book, layer } = world([FakeModel.text("hello"), step, step, FakeModel.text("bye")])
      yield* Effect.gen(function*() {
        const plain = yield* LanguageModel.generateText({ prompt: open })
        const off = yield* LanguageModel.generateText({ prompt: open, toolkit, disableToolCallResolution: true })
        const deferred = yield* LanguageModel.generateText({
          prompt: open,
          toolkit,
          disableToolCallResolution: true,
          toolCallValidation: "deferred"
        })
        const { requests } = yield* FakeModel.FakeModel
        assert.deepStrictEqual([plain, off, deferred].map(({ content }) => wordsOf(content)), [
          ["hello", "finish"],
          ["call a", "finish"],
          ["call a", "finish"]
        ])
        assert.deepStrictEqual(requests.map(({ prompt, validation }) => [lines(prompt).length, validation]), [
          [2, "strict"],
          [2, "strict"],
          [2, "deferred"]
        ])
        assert.deepStrictEqual(book.runs, [])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("takes a toolkit, one with handlers, and an effect of one", () =>
    Effect.gen(function*() {
      const Add = pipe(
        Tool.make("add", { parameters: Schema.Struct({ a: Schema.Finite }), success: Schema.Finite }),
        ToolPolicy.read({ keys: () => [] })
      )
      const kit = Toolkit.make(Add)
      const handlers = kit.toLayer({ add: ({ a }) => Effect.succeed(a + 1) })
      const withHandlers = yield* Effect.provide(kit, handlers)
      let resolved = 0
      const later = Effect.sync(() => {
        resolved++
        return withHandlers
      })
      const script = FakeModel.layer([FakeModel.calls([FakeModel.call(Add, { a: 1 }, { id: "i" })])], {
        repeatLast: true
      })
      yield* Effect.gen(function*() {
        const first = yield* Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit: kit }), handlers)
        const second = yield* LanguageModel.generateText({ prompt: "go", toolkit: withHandlers })
        const third = yield* LanguageModel.generateText({ prompt: "go", toolkit: later })
        assert.deepStrictEqual([first, second, third].map(({ toolResults }) => toolResults[0]!.result), [2, 2, 2])
        assert.strictEqual(resolved, 1)
        // An effect that fails is the caller's own failure, and nobody is asked.
        const failed = yield* Effect.exit(
          LanguageModel.generateText({ prompt: "go", toolkit: Effect.andThen(Effect.fail("no tools"), later) as any })
        )
        assert.deepStrictEqual(failed, Exit.fail("no tools") as any)
        // Handlers that are missing are a mistake in the program.
        const missing = yield* Effect.exit(LanguageModel.generateText({ prompt: "go", toolkit: kit }))
        assert.isTrue(Exit.isFailure(missing) && Cause.hasDies(missing.cause))
      }).pipe(Effect.provide(layerLanguageModel().pipe(Layer.provide([script, Turn.layer()])))) as Effect.Effect<void>
    }))

  it.effect("ids that are empty or repeated become ids of their own; a re-delivery is one call", () =>
    Effect.gen(function*() {
      const { book, layer } = world([
        FakeModel.calls([
          says("read", "a", [], { id: "" }),
          says("read", "b", [], { id: "" }),
          says("write", "c", ["c"], { id: "same" }),
          says("write", "c", ["c"], { id: "same" }),
          says("read", "d", [], { id: "other" }),
          says("read", "e", [], { id: "other" })
        ])
      ])
      const { content } = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
      const calls = content.filter((part) => part.type === "tool-call")
      const results = content.filter((part) => part.type === "tool-result")
      assert.deepStrictEqual(results.map((part) => part.id), calls.map((part) => part.id))
      assert.deepStrictEqual(new Set(calls.map((part) => part.id)).size, 5)
      assert.deepStrictEqual(calls.slice(2, 4).map((part) => part.id), ["same", "other"])
      assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["a", "b", "c"])
      assert.deepStrictEqual(
        results.map(({ encodedResult, isFailure }) => isFailure ? (encodedResult as any).code : encodedResult),
        ["a", "b", "c", "ambiguous_id", "ambiguous_id"]
      )
      assert.deepStrictEqual(History.check(Prompt.fromResponseParts(content)), [])
    }))

  it.effect("arguments that are no JSON object stand as `{}` in the history: raw text never goes back", () =>
    Effect.gen(function*() {
      const { layer } = world([
        FakeModel.calls([
          FakeModel.rawCall("read", '{"tag": "a"} {}', { id: "two" }),
          FakeModel.rawCall("read", "[1]", { id: "list" })
        ])
      ])
      const { toolCalls } = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
      assert.deepStrictEqual(toolCalls.map((part) => part.params as unknown), [{}, {}])
    }))

  it.effect("calls that the provider ran stay as they came", () =>
    Effect.gen(function*() {
      const { layer } = world([
        FakeModel.answer([
          { type: "tool-call", id: "p", name: "read", params: { tag: "p" }, providerExecuted: true },
          { type: "tool-result", id: "p", name: "read", result: "theirs", isFailure: false, providerExecuted: true },
          says("read", "ours")
        ])
      ])
      const { content } = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
      assert.deepStrictEqual(wordsOf(content), [
        "call p",
        'result p "theirs"',
        "call ours",
        "finish",
        'result ours "ours"'
      ])
      assert.deepStrictEqual(History.check(Prompt.fromResponseParts(content)), [])
    }))

  it.effect("where there are no tools at all every call is answered too", () =>
    Effect.gen(function*() {
      const { layer } = world([FakeModel.calls([FakeModel.call("any", {}, { id: "a" })])])
      const { content } = yield* Effect.provide(
        LanguageModel.generateText({ prompt: "go", toolkit: Toolkit.empty }),
        layer
      )
      assert.deepStrictEqual(wordsOf(content), ["call a", "finish", "result a error/unknown_tool"])
    }))

  it.effect("inside a handler it belongs to that call: it waits for none of the keys that the call holds", () =>
    Effect.gen(function*() {
      const Delegate = pipe(Tool.make("delegate", { success: Schema.Unknown }), ToolPolicy.write({ keys: () => ["k"] }))
      const Work = pipe(Tool.make("work", { success: Schema.String }), ToolPolicy.write({ keys: () => ["k"] }))
      const outer = Toolkit.make(Delegate)
      const inner = Toolkit.make(Work)
      const model = FakeModel.layer([
        FakeModel.calls([FakeModel.call(Delegate, {}, { id: "d" })]),
        FakeModel.calls([FakeModel.call(Work, {}, { id: "w" })])
      ])
      const governed = layerLanguageModel().pipe(Layer.provide([model, Turn.layer()]))
      const handlers = Layer.mergeAll(
        outer.toLayer(Effect.map(LanguageModel.LanguageModel, (model) => ({
          delegate: () =>
            Effect.map(
              Effect.orDie(Effect.provide(
                model.generateText({ prompt: "work", toolkit: inner }),
                inner.toLayer({
                  work: () => Effect.as(Effect.sleep(10), "done")
                })
              )),
              ({ toolResults }) => toolResults[0]!.encodedResult
            )
        })))
      ).pipe(Layer.provideMerge(governed))
      const { toolResults } = yield* drive(
        Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit: outer }), handlers)
      )
      assert.deepStrictEqual(wordsOf(toolResults), ['result d "done"'])
    }))

  it.effect("an error of the model is the caller's, and the model's span is the only one", () =>
    Effect.gen(function*() {
      const spans: Array<string> = []
      const tracer = Tracer.make({
        span: (options) => {
          spans.push(
            `${options.name}${options.parent._tag === "Some" ? ` in ${(options.parent.value as any).name}` : ""}`
          )
          return new Tracer.NativeSpan(options)
        }
      })
      const { layer } = world([FakeModel.fail(new AiError.RateLimitError({})), FakeModel.calls([says("read", "a")])])
      yield* Effect.gen(function*() {
        const failed = yield* Effect.flip(LanguageModel.generateText({ prompt: "go", toolkit }))
        assert.strictEqual((failed as AiError.AiError).reason._tag, "RateLimitError")
        yield* drive(LanguageModel.generateText({ prompt: "go", toolkit }).pipe(Effect.withSpan("mine")))
      }).pipe(Effect.provide(layer), Effect.withTracer(tracer))
      assert.deepStrictEqual(spans, ["LanguageModel.generateText", "mine", "LanguageModel.generateText in mine"])
    }))

  it("options that cannot be are refused where they are written", () => {
    assert.throws(() => layerLanguageModel({ deadline: -1 }), TurnError.TurnError as any)
    assert.throws(() => layerLanguageModel({ execution: 0 }), /execution/)
  })
})

describe("a stop", () => {
  it.effect("of the fiber stops the turn, waits for it, and hands over calls and outcomes", () =>
    Effect.gen(function*() {
      const closed = yield* Ref.make<Turn.Closed | undefined>(undefined)
      const { book, layer } = world(
        [FakeModel.calls([says("read", "r"), says("write", "w", ["k"]), says("write", "later", ["k"])])],
        { onClosed: (one) => Ref.set(closed, one) },
        { script: { r: { ms: 1000 }, w: { ms: 500 } } }
      )
      yield* Effect.gen(function*() {
        const fiber = yield* fork(LanguageModel.generateText({ prompt: "go", toolkit }))
        yield* TestClock.adjust(100)
        const stopped = yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(1)
        assert.isUndefined(stopped.pollUnsafe())
        yield* TestClock.adjust(1000)
        yield* Fiber.join(stopped)
        assert.deepStrictEqual(book.runs.map((ran) => [ran.tag, ran.end, ran.endedAt]), [
          ["r", "interrupt", 100],
          ["w", "ok", 500]
        ])
        const { calls, outcomes } = (yield* Ref.get(closed))!
        const history = Prompt.concat(Prompt.make("go"), Turn.toPrompt(calls, outcomes))
        assert.deepStrictEqual(lines(history), [
          "user: go",
          "assistant: call r, call w, call later",
          'tool: r cancelled/by_caller, w "w", later cancelled/by_caller'
        ])
        assert.deepStrictEqual(History.check(history), [])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("by `cancelOn` ends the turn alone: generateText returns with cancelled answers", () =>
    Effect.gen(function*() {
      const Stop = Context.Reference<Deferred.Deferred<string> | undefined>("test/Stop", {
        defaultValue: () => undefined
      })
      const { layer } = world(
        [FakeModel.calls([says("read", "r"), says("write", "w", ["k"])])],
        { cancelOn: Effect.flatMap(Stop, (stop) => stop === undefined ? Effect.never : Deferred.await(stop)) },
        { script: { r: { ms: 1000 }, w: { ms: 50 } } }
      )
      yield* Effect.gen(function*() {
        const stop = yield* Deferred.make<string>()
        const fiber = yield* fork(
          LanguageModel.generateText({ prompt: "go", toolkit }).pipe(Effect.provideService(Stop, stop))
        )
        yield* TestClock.adjust(10)
        yield* Deferred.succeed(stop, "user")
        yield* TestClock.adjust(1000)
        const response = yield* Fiber.join(fiber)
        assert.deepStrictEqual(wordsOf(response.toolResults), ["result r cancelled/by_caller", 'result w "w"'])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("options of the layer are those of every turn", () =>
    Effect.gen(function*() {
      const events: Array<string> = []
      const { layer } = world(
        [FakeModel.calls([says("read", "fails"), says("read", "r"), says("write", "w")])],
        { siblings: Siblings.failFast, onEvent: (event) => events.push(event._tag), deadline: "1 minute" },
        { script: { fails: { end: "fail" }, r: { ms: 500 } } }
      )
      const { toolResults } = yield* drive(Effect.provide(LanguageModel.generateText({ prompt: "go", toolkit }), layer))
      assert.deepStrictEqual(wordsOf(toolResults), [
        "result fails error/failed",
        "result r cancelled/by_sibling",
        'result w "w"'
      ])
      assert.include(events, "TurnEnded")
    }))
})

describe("generateObject of a governed model", () => {
  const schema = Schema.Struct({ n: Schema.Finite })

  it.effect("without tools passes through; with them its calls are a turn", () =>
    Effect.gen(function*() {
      const { layer } = world([
        FakeModel.object({ n: 1 }),
        FakeModel.answer([JSON.stringify({ n: 2 }), says("read", "a"), FakeModel.call("nope", {}, { id: "b" })])
      ])
      yield* Effect.gen(function*() {
        const first = yield* LanguageModel.generateObject({ prompt: "go", schema })
        const second = yield* drive(LanguageModel.generateObject({ prompt: "go", schema, toolkit }))
        assert.deepStrictEqual([first.value, second.value], [{ n: 1 }, { n: 2 }])
        assert.deepStrictEqual(wordsOf(second.toolResults), ['result a "a"', "result b error/unknown_tool"])
      }).pipe(Effect.provide(layer))
    }))

  it.effect("an object that does not fit fails before anything runs", () =>
    Effect.gen(function*() {
      const { book, layer } = world([FakeModel.answer(["{}", says("write", "a")])])
      const failed = yield* Effect.flip(
        Effect.provide(LanguageModel.generateObject({ prompt: "go", schema, toolkit }), layer)
      )
      assert.strictEqual((failed as AiError.AiError).reason._tag, "StructuredOutputError")
      assert.deepStrictEqual(book.runs, [])
    }))
})

describe("Chat on a governed model", () => {
  it.effect("two user turns with tools keep one valid history", () =>
    Effect.gen(function*() {
      const { layer } = world([
        FakeModel.calls([says("read", "a"), FakeModel.call("nope", {}, { id: "b" })]),
        FakeModel.text("one"),
        FakeModel.calls([says("write", "c", ["k"]), says("read", "d", ["k"])]),
        FakeModel.text("two")
      ])
      yield* drive(
        Effect.gen(function*() {
          const chat = yield* Chat.empty
          for (const prompt of ["first", Prompt.empty, "second", Prompt.empty]) {
            yield* chat.generateText({ prompt, toolkit })
          }
          const history = yield* Ref.get(chat.history)
          assert.deepStrictEqual(lines(history), [
            "user: first",
            "assistant: call a, call b",
            'tool: a "a", b error/unknown_tool',
            "assistant: one",
            "user: second",
            "assistant: call c, call d",
            'tool: c "c", d "d"',
            "assistant: two"
          ])
          assert.deepStrictEqual(History.check(history), [])
          for (const prompt of yield* prompts) assert.deepStrictEqual(History.check(prompt), [])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("an interrupted call leaves no trace in effect/ai's Chat; what ran is told to `onClosed`", () =>
    Effect.gen(function*() {
      const told: Array<Turn.Closed> = []
      const { book, layer } = world(
        [FakeModel.calls([says("write", "w")])],
        { onClosed: (closed) => Effect.sync(() => void told.push(closed)) },
        { script: { w: { ms: 100 } } }
      )
      yield* Effect.gen(function*() {
        const chat = yield* Chat.fromPrompt("before")
        const fiber = yield* fork(chat.generateText({ prompt: "go", toolkit }))
        yield* TestClock.adjust(10)
        yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(lines(yield* Ref.get(chat.history)), ["user: before"])
        assert.strictEqual(book.of("w").end, "ok")
        // Who wants it kept puts it there.
        const { calls, outcomes } = told[0]!
        yield* Ref.update(
          chat.history,
          (history) => Prompt.concat(Prompt.concat(history, "go"), Turn.toPrompt(calls, outcomes))
        )
        assert.deepStrictEqual(lines(yield* Ref.get(chat.history)), [
          "user: before",
          "user: go",
          "assistant: call w",
          'tool: w "w"'
        ])
      }).pipe(Effect.provide(layer))
    }))
})

describe("what the inner model is sent", () => {
  const call = (id: string, name = "write") =>
    ({ type: "tool-call", id, name, params: { tag: id }, providerExecuted: false }) as const
  const result = (id: string) =>
    ({ type: "tool-result", id, name: "write", isFailure: false, result: id, providerExecuted: false }) as const
  const sent = (prompt: Prompt.RawInput) =>
    Effect.gen(function*() {
      const { layer } = world([FakeModel.text("ok")])
      return yield* Effect.provide(
        Effect.andThen(LanguageModel.generateText({ prompt, toolkit }), Effect.map(prompts, ([one]) => one!)),
        layer
      )
    })

  it.effect("a history that is in order goes as it is", () =>
    Effect.gen(function*() {
      const prompt = Prompt.make([
        { role: "user", content: "a" },
        { role: "assistant", content: [call("x"), call("y")] },
        { role: "tool", content: [result("x"), result("y")] },
        { role: "user", content: "b" }
      ])
      const got = yield* sent(prompt)
      assert.deepStrictEqual(got, prompt)
      assert.isTrue(got.content.every((message, i) => message === prompt.content[i]))
    }))

  it.effect("answers are put behind their calls, in their order; what nobody answered is closed honestly", () =>
    Effect.gen(function*() {
      const got = yield* sent([
        { role: "user", content: "a" },
        { role: "assistant", content: [call("x"), call("lost"), call("seen", "read"), call("y")] },
        { role: "tool", content: [result("y")] },
        { role: "user", content: "b" },
        { role: "assistant", content: "c" },
        { role: "tool", content: [result("x"), result("x")] },
        { role: "user", content: "d" },
        { role: "assistant", content: [call("last")] }
      ])
      assert.deepStrictEqual(lines(got), [
        "user: a",
        "assistant: call x, call lost, call seen, call y",
        'tool: x "x", lost cancelled/by_caller, seen cancelled/by_caller, y "y"',
        "user: b",
        "assistant: c",
        "user: d",
        "assistant: call last",
        "tool: last cancelled/by_caller"
      ])
      assert.deepStrictEqual(History.check(got), [])
      const values = (got.content[2] as Prompt.ToolMessage).content.map((part) =>
        (part as Prompt.ToolResultPart).result
      )
      assert.deepInclude(values[1], { retryable: false, effect: "unknown" })
      assert.deepInclude(values[2], { retryable: true, effect: "none" })
    }))

  it.effect("an answer without a call stays: the provider may know the call", () =>
    Effect.gen(function*() {
      const got = yield* sent([{ role: "tool", content: [result("theirs")] }, { role: "user", content: "b" }])
      assert.deepStrictEqual(lines(got), ['tool: theirs "theirs"', "user: b"])
    }))
})

describe("types", () => {
  it.effect("responses are typed as before, and one line changes", () =>
    Effect.gen(function*() {
      const program = LanguageModel.generateText({ prompt: "go", toolkit })
      const { layer } = lab()
      const before = program.pipe(Effect.provide([layer, FakeModel.layer([FakeModel.text("hello")])]))
      const after = program.pipe(
        Effect.provide(
          layerLanguageModel().pipe(
            Layer.provide(FakeModel.layer([FakeModel.text("hello")])),
            Layer.provideMerge(layer)
          )
        )
      )
      assert.strictEqual((yield* before).text, (yield* after).text)
    }))
})
