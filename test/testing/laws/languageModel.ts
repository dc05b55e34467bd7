/**
 * What a language model promises to whoever asks it through effect/ai: sentences that the scripted model and a provider behind a real
 * server are held to alike. A law knows nothing of time.
 */
import { assert } from "@effect/vitest"
import { type AiError, type LanguageModel, type Response, Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

/** What the model is to say, to every request. */
export interface Said {
  readonly text: string
  readonly calls: ReadonlyArray<{ readonly id: string; readonly name: string; readonly params: unknown }>
  /** Says the text, and then nothing more; where it is not streamed, nothing at all. */
  readonly hangs: boolean
}

interface Provider {
  readonly model: LanguageModel.LanguageModel
  /** How many requests the provider has seen. */
  readonly requests: Effect.Effect<number>
  /** Waits until the provider has seen one more request. */
  readonly entered: Effect.Effect<void>
  /** Waits until the provider has seen one more request end before its answer was over. */
  readonly left: Effect.Effect<void>
}

export type Make = (said: Said) => Effect.Effect<Provider, never, Scope.Scope>

interface Law {
  readonly name: string
  readonly law: (make: Make) => Effect.Effect<void, AiError.AiError, Scope.Scope>
}

const Double = Tool.make("double", {
  parameters: Schema.Struct({ n: Schema.FiniteFromString }),
  success: Schema.Finite
})
const toolkit = Toolkit.make(Double)

const said: Said = {
  text: "Let me see: 2 × 21 is, née 👍, …",
  calls: [
    { id: "call_a", name: "double", params: { n: "21" } },
    { id: "call_b", name: "double", params: { n: "4" } }
  ],
  hangs: false
}

const asked = {
  prompt: "What is 2 × 21?",
  toolkit,
  disableToolCallResolution: true,
  toolCallValidation: "deferred"
} as const

type Part = Response.StreamPart<Toolkit.Tools<typeof toolkit>, "deferred">

const whole = ({ model }: Provider) => model.generateText(asked)
const streamed = ({ model }: Provider) => Stream.runCollect(model.streamText(asked))

/** A stream, put together again. */
const folded = (parts: ReadonlyArray<Part>) => ({
  text: parts.map((part) => (part.type === "text-delta" ? part.delta : "")).join(""),
  calls: parts.flatMap((part) =>
    part.type === "tool-call" ? [{ id: part.id, name: part.name, params: part.params }] : []
  ),
  written: parts.map((part) => (part.type === "tool-params-delta" ? part.delta : "")).join(""),
  finishReason: parts.flatMap((part) => (part.type === "finish" ? [part.reason] : []))
})

/** What is wrong with the order of a stream's parts. */
const disorder = (parts: ReadonlyArray<Part>): ReadonlyArray<string> => {
  const wrong: Array<string> = []
  const state = new Map<string, "open" | "closed">()
  parts.forEach((part, index) => {
    const [kind, step] = /^(text|reasoning|tool-params)-(start|delta|end)$/.exec(part.type)?.slice(1) ?? []
    const at = `${part.type} at ${index}`
    if (kind !== undefined && "id" in part) {
      const was = state.get(`${kind} ${part.id}`)
      if (was !== (step === "start" ? undefined : "open")) wrong.push(`${at}: ${was ?? "not open"}`)
      if (step === "start") state.set(`${kind} ${part.id}`, "open")
      if (step === "end") state.set(`${kind} ${part.id}`, "closed")
    }
    if (part.type === "tool-call" && state.get(`tool-params ${part.id}`) !== "closed") {
      wrong.push(`${at}: parameters are open`)
    }
    if ((part.type === "finish") !== (index === parts.length - 1)) wrong.push(`${at}: the finish part is the last one`)
  })
  for (const [id, is] of state) if (is === "open") wrong.push(`${id} is never closed`)
  return wrong
}

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

export const laws: ReadonlyArray<Law> = [
  {
    name: "whole and streamed say the same text, the same calls and the same finish reason",
    law: Effect.fnUntraced(function*(make) {
      const provider = yield* make(said)
      const response = yield* whole(provider)
      const stream = folded(yield* streamed(provider))
      assert.strictEqual(response.text, said.text)
      assert.deepStrictEqual(response.toolCalls.map(({ id, name, params }) => ({ id, name, params })), said.calls)
      assert.deepStrictEqual(stream, {
        text: said.text,
        calls: said.calls,
        written: said.calls.map(({ params }) => JSON.stringify(params)).join(""),
        finishReason: ["tool-calls"]
      })
      assert.strictEqual(response.finishReason, "tool-calls")
    })
  },
  {
    name: "an answer without calls has its finish reason",
    law: Effect.fnUntraced(function*(make) {
      const provider = yield* make({ ...said, calls: [] })
      assert.strictEqual((yield* whole(provider)).finishReason, "stop")
      assert.deepInclude(folded(yield* streamed(provider)), { text: said.text, finishReason: ["stop"] })
    })
  },
  {
    name: "the parameters of a call reach its handler decoded, whole and streamed",
    law: Effect.fnUntraced(function*(make) {
      const { model } = yield* make(said)
      const seen: Array<number> = []
      const handlers = toolkit.toLayer({ double: ({ n }) => Effect.sync(() => (seen.push(n), 2 * n)) })
      const { prompt } = asked
      const response = yield* Effect.provide(model.generateText({ prompt, toolkit, concurrency: 1 }), handlers)
      assert.deepStrictEqual(response.toolResults.map(({ result }) => result), [42, 8])
      const parts = yield* Effect.provide(
        Stream.runCollect(model.streamText({ prompt, toolkit, concurrency: 1 })),
        handlers
      )
      assert.deepStrictEqual(parts.flatMap((part) => (part.type === "tool-result" ? [part.result] : [])), [42, 8])
      assert.deepStrictEqual(seen, [21, 4, 21, 4])
    })
  },
  {
    name: "the parts of a stream come in a legal order",
    law: Effect.fnUntraced(function*(make) {
      const parts = yield* streamed(yield* make(said))
      assert.deepStrictEqual(disorder(parts), [])
    })
  },
  {
    name: "the provider sees every request once",
    law: Effect.fnUntraced(function*(make) {
      const provider = yield* make(said)
      yield* whole(provider)
      assert.strictEqual(yield* provider.requests, 1)
      yield* streamed(provider)
      assert.strictEqual(yield* provider.requests, 2)
    })
  },
  {
    name: "an interruption ends the request at the provider, whole and streamed",
    law: Effect.fnUntraced(function*(make) {
      const provider = yield* make({ ...said, hangs: true })
      for (const request of [Effect.asVoid(whole(provider)), Effect.asVoid(streamed(provider))]) {
        const fiber = yield* start(request)
        yield* provider.entered
        yield* Fiber.interrupt(fiber)
        yield* provider.left
      }
      assert.strictEqual(yield* provider.requests, 2)
    })
  },
  {
    name: "a reader who leaves the stream ends the request at the provider",
    law: Effect.fnUntraced(function*(make) {
      const provider = yield* make({ ...said, hangs: true })
      const first = yield* provider.model.streamText(asked).pipe(
        Stream.filter((part) => part.type === "text-delta"),
        Stream.runHead
      )
      assert.strictEqual(first._tag, "Some")
      yield* provider.left
    })
  }
]
