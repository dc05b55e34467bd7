/** What holds of every loop, whatever the model says and whatever ends it, held against a plain definition of the end. */
import { assert, describe, it } from "@effect/vitest"
import { Agent, Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import * as Prompt from "effect/ai/Prompt"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Tracer from "effect/Tracer"
import { int, pick, runs } from "./utils/gen.ts"
import { faultsOf } from "./utils/histories.ts"
import { type Book, drive, lab, type Name, tools } from "./utils/kit.ts"

const Submit = Tool.make("submit", {
  parameters: Schema.Struct({ good: Schema.Boolean }),
  success: Schema.FiniteFromString,
  failure: Schema.String
})
const toolkit = Toolkit.make(tools.read, tools.write, tools.pay, Submit)

const someCall = pick("read", "write", "pay", "broken", "unknown", "good", "bad", "shared", "raw")
const someStep = Arbitrary.all({
  calls: Arbitrary.array(someCall, { maxLength: 4 }),
  text: pick("", "", "I look."),
  cut: pick(false, false, false, false, true),
  input: int(0, 20),
  output: int(0, 20)
})
const someLoop = Arbitrary.all({
  steps: Arbitrary.array(someStep, { maxLength: 6 }),
  maxSteps: pick(undefined, undefined, 1, 2, 3, 5),
  maxTokens: pick(undefined, undefined, 1, 20, 50, 100),
  terminal: pick(true, false),
  streamed: pick(false, true),
  chunk: int(1, 9),
  parallel: pick(true, false)
})
type SomeLoop = typeof someLoop["~A"] extends (_: never) => infer A ? A : never
type SomeStep = SomeLoop["steps"][number]

const scriptOf = (steps: ReadonlyArray<SomeStep>, chunk: number): ReadonlyArray<FakeModel.Step> => [
  ...steps.map(({ calls, cut, input, output, text }, n) =>
    FakeModel.answer([
      ...(text === "" ? [] : [text]),
      ...calls.map((kind, i): FakeModel.Content => {
        const tag = `${n}-${i}`
        switch (kind) {
          case "raw":
            return FakeModel.rawCall("read", '{"tag":')
          case "good":
          case "bad":
            return FakeModel.call(Submit, { good: kind === "good" })
          case "unknown":
            return FakeModel.call("nobody", {})
          case "broken":
            return FakeModel.call(tools.write, { tag: "broken", k: [] })
          case "shared":
            return FakeModel.call(tools.write, { tag, k: [] }, { id: "same" })
          default:
            return FakeModel.call(tools[kind], { tag, k: [] }, i % 2 === 0 ? {} : { id: "" })
        }
      })
    ], { usage: { input, output }, chunk, ...(cut ? { finishReason: "length" } : undefined) })
  ),
  FakeModel.text("Done.", { usage: { input: 1, output: 1 } })
]

/** How a loop ends by the words of the page, and after how many steps. */
const endOf = ({ maxSteps, maxTokens, steps, terminal }: SomeLoop): readonly [Agent.Reason, number] => {
  let spent = 0
  for (let n = 0; n < steps.length; n++) {
    const { calls, cut, input, output } = steps[n]!
    spent += input + output
    if (calls.length === 0) return [cut ? "cut_short" : "final", n + 1]
    if (terminal && !cut && calls.includes("good")) return ["terminal_tool", n + 1]
    if (maxTokens !== undefined && spent >= maxTokens) return ["tokens", n + 1]
    if (n + 1 >= (maxSteps ?? 20)) return ["steps", n + 1]
  }
  return ["final", steps.length + 1]
}

const environment = (script: ReadonlyArray<FakeModel.Step>) => {
  const { book, layer } = lab({ script: { broken: { end: "die" } } })
  const handlerOf = (book: Book, name: Name) =>
    book.handler(name) as (params: any, context: any) => Effect.Effect<unknown, string>
  const handlers = toolkit.toLayer({
    read: handlerOf(book, "read"),
    write: handlerOf(book, "write"),
    pay: handlerOf(book, "pay"),
    submit: ({ good }) => good ? Effect.succeed(7) : Effect.fail("not good")
  })
  return { book, all: Layer.merge(Layer.provideMerge(handlers, layer), FakeModel.layer(script)) }
}

describe("Agent: every loop", () => {
  it.effect.prop(
    "ends where it should, with a history that goes on",
    { loop: someLoop },
    ({ loop }) =>
      Effect.gen(function*() {
        const { all, book } = environment(scriptOf(loop.steps, loop.chunk))
        const closed: Array<Agent.Closed<any>> = []
        const conditions: Array<Agent.StopWhen<"submit">> = [
          ...(loop.maxSteps === undefined ? [] : [Agent.maxSteps(loop.maxSteps)]),
          ...(loop.maxTokens === undefined ? [] : [Agent.maxTokens(loop.maxTokens)]),
          ...(loop.terminal ? [Agent.terminalTool("submit")] : [])
        ]
        const options = {
          prompt: "go",
          toolkit,
          stopWhen: Agent.any(...conditions),
          prepareStep: () => ({ parallel: loop.parallel }),
          onClosed: (one: Agent.Closed<any>) => Effect.sync(() => closed.push(one))
        } as const
        yield* Effect.gen(function*() {
          const result = loop.streamed
            ? yield* Effect.map(drive(Stream.runCollect(Agent.stream(options))), (events) => {
              const last = events.at(-1)!
              return last._tag === "AgentEnded" ? last.result : assert.fail(last._tag)
            })
            : yield* drive(Agent.run(options))
          const [reason, steps] = endOf(loop)
          assert.deepStrictEqual([result.reason, result.steps.length], [reason, steps])
          assert.strictEqual(result.reason === "terminal_tool" ? result.value : 7, 7)
          assert.deepStrictEqual(faultsOf(result.prompt), [])
          assert.deepStrictEqual(closed, [{
            agent: result.agent,
            prompt: result.prompt,
            reason,
            steps: result.steps,
            usage: result.usage
          }])
          assert.strictEqual(
            result.steps.reduce((sum, { usage }) => sum + usage.input + usage.output, 0),
            result.usage.total
          )
          for (const { calls, number, outcomes } of result.steps) {
            assert.strictEqual(outcomes.length, calls.length)
            if (loop.steps[number - 1]?.cut) {
              assert.isTrue(outcomes.every((one) => one.status === "error" || (loop.streamed && one.name === "read")))
            }
          }
          assert.deepStrictEqual(book.atWork, [])
          // Each request is the history that the one before it led to.
          const { requests } = yield* FakeModel.FakeModel
          assert.strictEqual(requests.length, steps)
          const histories = [...requests.map(({ prompt }) => prompt), result.prompt].map((prompt) =>
            JSON.stringify(Prompt.fromMessages(prompt.content).content)
          )
          for (const [i, { prompt }] of requests.entries()) {
            assert.deepStrictEqual(faultsOf(prompt), [])
            assert.isTrue(histories[i + 1]!.startsWith(histories[i]!.slice(0, -1)))
          }
        }).pipe(Effect.provide(all))
      }),
    runs(300)
  )

  it.effect("is a span, around its requests and its calls; a sub-agent's is inside its call's", () =>
    Effect.gen(function*() {
      const Helper = Agent.asTool("helper", { description: "Helps." })
      const kit = Toolkit.make(Helper)
      const handlers = kit.toLayer(Effect.gen(function*() {
        return { helper: yield* Agent.handler({}) }
      })).pipe(Layer.provide([FakeModel.layer([FakeModel.text("Helped.")]), Turn.layer()]))
      const spans: Array<Tracer.NativeSpan> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      const model = FakeModel.layer([FakeModel.calls([FakeModel.call(Helper, { task: "x" })]), FakeModel.text("Done.")])
      yield* Agent.run({ prompt: "go", toolkit: kit, id: "a", name: "main" }).pipe(
        Effect.provide([handlers, model, Turn.layer()]),
        Effect.withTracer(tracer)
      )
      const parentOf = (span: Tracer.NativeSpan) => span.parent._tag === "Some" ? (span.parent.value as any).name : ""
      assert.deepStrictEqual(spans.map((span) => [span.name, parentOf(span)]), [
        ["invoke_agent main", ""],
        ["LanguageModel.generateText", "invoke_agent main"],
        ["invoke_agent helper", "invoke_agent main"],
        ["LanguageModel.generateText", "invoke_agent helper"],
        ["LanguageModel.generateText", "invoke_agent main"]
      ])
      assert.deepStrictEqual(spans[2]!.attributes.get("gen_ai.agent.id"), "a/1#0")
      assert.deepStrictEqual(spans[2]!.attributes.get("gen_ai.conversation.id"), "a")
    }))
})
