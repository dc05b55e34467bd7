import { assert, describe, it } from "@effect/vitest"
import { FakeModel } from "effect-turn/testing"
import { LanguageModel, type Response } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Stream from "effect/Stream"
import { laws, type Make } from "./laws/languageModel.ts"
import { fake, overHttp } from "./laws/models.ts"

const hold = (make: Make): void => {
  for (const { law, name } of laws) it.live(name, () => law(make))
}

describe("the laws of a language model, over FakeModel", () => {
  hold(fake())

  it.effect("a model that says other things in a stream breaks what is said of both, and nothing else", () =>
    Effect.gen(function*() {
      const twoFaced = fake((said) => ({ streamed }) =>
        FakeModel.calls(said.calls.map(({ id, name, params }) => FakeModel.call(name, params, { id })), {
          text: streamed ? `${said.text}!` : said.text,
          ...(said.hangs ? { cut: { after: 2, by: "hang" } } : {})
        })
      )
      const broken: Array<string> = []
      for (const { law, name } of laws) {
        if (Exit.isFailure(yield* Effect.exit(law(twoFaced)))) broken.push(name)
      }
      assert.deepStrictEqual(broken, [laws[0]!.name, laws[1]!.name])
    }))

  it.effect("a provider whose parts are out of order breaks the law of order", () =>
    Effect.gen(function*() {
      const finish = { type: "finish", reason: "stop", usage: { inputTokens: {}, outputTokens: {} } } as const
      const start = { type: "text-start", id: "a" } as const
      const end = { type: "text-end", id: "a" } as const
      const orders: ReadonlyArray<ReadonlyArray<Response.StreamPartEncoded>> = [
        [start, end, finish],
        [end, finish],
        [start, finish],
        [start, start, end, finish],
        [finish, start, end],
        [start, end],
        [
          { type: "tool-params-start", id: "c", name: "double" },
          {
            type: "tool-call",
            id: "c",
            name: "double",
            params: {}
          },
          { type: "tool-params-end", id: "c" },
          finish
        ]
      ]
      const { law } = laws.find(({ name }) => name.includes("legal order"))!
      const results = yield* Effect.forEach(orders, (parts) =>
        Effect.exit(law(() =>
          Effect.map(
            LanguageModel.make({
              generateText: () => Effect.succeed([]),
              streamText: () => Stream.fromIterable(parts)
            }),
            (model) => ({ model, requests: Effect.succeed(1), entered: Effect.void, left: Effect.void })
          )
        )))
      assert.deepStrictEqual(results.map(Exit.isSuccess), [true, false, false, false, false, false, false])
    }))
})

describe("the laws of a language model, over a provider and a real server", () => {
  hold(overHttp)
})
