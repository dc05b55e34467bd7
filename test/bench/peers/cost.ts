/** What one call of a tool that does nothing costs, by the length of the list. `--quick` takes fewer rounds. */
import { AIMessage } from "@langchain/core/messages"
import { tool as langTool } from "@langchain/core/tools"
import { ToolNode } from "@langchain/langgraph/prebuilt"
import { generateText, tool } from "ai"
import { MockLanguageModelV4 } from "ai/test"
import { Effect, Layer, pipe, Schema, Scope, Stream } from "effect"
import type { Context } from "effect"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import PQueue from "p-queue"
import { z } from "zod"
import { ToolCall, ToolPolicy, Turn } from "../../../src/index.ts"
import { median } from "../measure.ts"

const quick = process.argv.includes("--quick")

interface Contender {
  readonly name: string
  /** An agent framework, that takes the calls of a model and answers them; the others are shown for orientation. */
  readonly framework: boolean
  readonly of: (n: number) => () => Promise<unknown>
}

const Noop = pipe(
  Tool.make("noop", { parameters: Schema.Struct({ n: Schema.Finite }), success: Schema.Finite }),
  ToolPolicy.read({ keys: () => [] })
)
const toolkit = Toolkit.make(Noop)

/** Set by each round: the scripted models answer with so many calls. */
let length = 0
const indices = () => Array.from({ length }, (_, i) => i)

const usage = {
  inputTokens: { uncached: undefined, total: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined }
}
const scripted = LanguageModel.make({
  generateText: () =>
    Effect.sync(() => [
      ...indices().map((n) => ({ type: "tool-call" as const, id: `c${n}`, name: "noop", params: { n } })),
      { type: "finish" as const, reason: "tool-calls" as const, usage, response: undefined }
    ]),
  streamText: () => Stream.empty
})

const context = await Effect.runPromise(
  Layer.buildWithScope(
    Layer.mergeAll(
      toolkit.toLayer({ noop: ({ n }) => Effect.succeed(n) }),
      Turn.layer(),
      Layer.effect(LanguageModel.LanguageModel, scripted)
    ),
    Scope.makeUnsafe()
  )
) as Context.Context<any>
const runPromise = Effect.runPromiseWith(context)

const model = new MockLanguageModelV4({
  doGenerate: async () => ({
    content: indices().map((n) => ({
      type: "tool-call" as const,
      toolCallId: `c${n}`,
      toolName: "noop",
      input: `{"n":${n}}`
    })),
    finishReason: { unified: "tool-calls" as const, raw: undefined },
    usage: {
      inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: 1, text: 1, reasoning: 0 }
    },
    warnings: []
  })
})
const schema = z.object({ n: z.number() })
const tools = { noop: tool({ inputSchema: schema, execute: async ({ n }) => n }) }
const node = new ToolNode([langTool(async ({ n }: { n: number }) => n, { name: "noop", description: "", schema })])
const queue = new PQueue()
const plain = async (n: number) => n

/** The answers that a run gave, so that nobody is measured who has answered nothing. */
const answers: Record<string, (result: any) => number> = {
  "effect-turn": (outcomes) => outcomes.filter((one: any) => one.status === "ok").length,
  "effect/ai resolver": (response) => response.toolResults.length,
  "AI SDK generateText": (result) => result.toolResults.length,
  "LangGraph ToolNode": (messages) => messages.filter((one: any) => one.status !== "error").length,
  "p-queue": (results) => results.length,
  "Promise.allSettled": (results) => results.length
}

const contenders: ReadonlyArray<Contender> = [
  {
    name: "effect-turn",
    framework: false,
    of: (n) => {
      const calls = Array.from({ length: n }, (_, i) => ToolCall.make(`c${i}`, "noop", { n: i }))
      return () => runPromise(Turn.run(toolkit, calls) as Effect.Effect<unknown>)
    }
  },
  {
    name: "effect/ai resolver",
    framework: true,
    of: () => () =>
      runPromise(
        LanguageModel.generateText({ prompt: "go", toolkit, concurrency: "unbounded" }) as Effect.Effect<unknown>
      )
  },
  { name: "AI SDK generateText", framework: true, of: () => () => generateText({ model, tools, prompt: "go" }) },
  {
    name: "LangGraph ToolNode",
    framework: true,
    of: (n) => {
      const tool_calls = Array.from({ length: n }, (_, i) => ({ id: `c${i}`, name: "noop", args: { n: i } }))
      const messages = [new AIMessage({ content: "", tool_calls })]
      return () => node.invoke(messages)
    }
  },
  {
    name: "p-queue",
    framework: false,
    of: () => () => Promise.all(indices().map((n) => queue.add(() => plain(n))))
  },
  { name: "Promise.allSettled", framework: false, of: () => () => Promise.allSettled(indices().map(plain)) }
]

const sizes = [1, 10, 100, 1000]
const lines: Array<ReadonlyArray<string>> = [["", ...sizes.map((n) => `N = ${n}`)]]
const micros = new Map<string, Array<number>>(contenders.map(({ name }) => [name, []]))
for (const n of sizes) {
  length = n
  const runs = contenders.map(({ of }) => of(n))
  for (const [i, { name }] of contenders.entries()) {
    const answered = answers[name]!(await runs[i]!())
    if (answered !== n) throw new Error(`${name} answered ${answered} of ${n} calls`)
  }
  const times = contenders.map((): Array<number> => [])
  const repeat = Math.max(1, Math.floor(100 / n))
  const rounds = quick ? 7 : 31
  // Warm until the compiler has had its say, each for itself.
  for (const run of runs) {
    const until = performance.now() + (quick ? 300 : 1000)
    do await run()
    while (performance.now() < until)
  }
  for (let round = 0; round < rounds; round++) {
    for (const [i, run] of runs.entries()) {
      const start = performance.now()
      for (let k = 0; k < repeat; k++) await run()
      times[i]!.push((performance.now() - start) * 1000 / repeat / n)
    }
  }
  for (const [i, { name }] of contenders.entries()) micros.get(name)!.push(median(times[i]!))
}

const ours = micros.get("effect-turn")!
const us = (value: number) => `${value.toFixed(value < 10 ? 2 : 0)} µs`
for (const { framework, name } of contenders) {
  const mine = micros.get(name)!
  lines.push([
    name,
    ...mine.map((value, i) => name === "effect-turn" ? us(value) : `${us(value)} (${(value / ours[i]!).toFixed(1)}×)`),
    name === "effect-turn" || framework ? "" : "no agent framework"
  ])
}
const fastest = sizes.map((_, i) =>
  Math.min(...contenders.filter(({ framework }) => framework).map(({ name }) => micros.get(name)![i]! / ours[i]!))
)
lines.push(["fastest framework", ...fastest.map((ratio) => `${ratio.toFixed(1)}×`)])
lines.push(["target", ...sizes.map((n, i) => n < 100 ? "" : `at least 10×: ${fastest[i]! >= 10 ? "met" : "MISSED"}`)])

const widths = lines.reduce<Array<number>>(
  (all, cells) => cells.map((cell, i) => Math.max(all[i] ?? 0, cell.length)),
  []
)
for (const cells of lines) console.log(cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join("  ").trimEnd())
console.log(`
Node ${process.version}, ${process.arch}. Median microseconds per call of a list of N, and how many times what effect-turn takes in the
same run. All of them answer every call; effect-turn, effect/ai, AI SDK and LangGraph check the arguments against a schema.

What is NOT measured: real tools and models (a tool that takes milliseconds hides all of this). effect/ai and the AI SDK are driven
through one answer of a scripted model, which reads the calls from its response: at N = 1 that is most of what they take. LangGraph's
node and effect-turn get the calls as they are.`)
