import { assert, describe, it } from "@effect/vitest"
import { Turn, TurnContext } from "effect-turn"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { call, drive, lab, run, toolkit } from "./utils/kit.ts"

describe("R35: TurnContext", () => {
  it.effect("carries tenant, conversation and principal to the handler", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      let seen: TurnContext.Identity | undefined
      book.script.set("a", { run: Effect.map(TurnContext.CurrentCall, (current) => (seen = current?.identity, 1)) })
      const identify = (identity: Parameters<typeof TurnContext.make>[0]) =>
        Effect.map(
          drive(
            run([call("read", "a")], { turn: "one" }).pipe(
              Effect.provide(TurnContext.make(identity)),
              Effect.provide(layer)
            )
          ),
          () => seen
        )
      assert.deepStrictEqual(yield* identify({ tenant: "north", conversation: "c", principal: "ann" }), {
        tenant: "north",
        conversation: "c",
        principal: "ann",
        turn: "one",
        parent: undefined
      })
      assert.deepStrictEqual(yield* identify({ tenant: "south" }), {
        tenant: "south",
        conversation: undefined,
        principal: undefined,
        turn: "one",
        parent: undefined
      })
    }))

  it.effect("a turn without a tenant runs for the default one", () =>
    Effect.gen(function*() {
      const { book } = lab()
      let tenant: string | undefined
      book.script.set("a", {
        run: Effect.map(TurnContext.CurrentCall, (current) => (tenant = current?.identity.tenant, 1))
      })
      const layer = Layer.mergeAll(book.layer, Turn.layer()) as Layer.Layer<any>
      yield* drive(Turn.run(toolkit, [call("read", "a")]).pipe(Effect.provide(layer)) as Effect.Effect<unknown>)
      assert.strictEqual(tenant, "default")
    }))

  it.effect("outside a handler there is no call, and nobody asked", () =>
    Effect.gen(function*() {
      assert.isUndefined(yield* TurnContext.CurrentCall)
      assert.isUndefined(yield* TurnContext.Conversation)
      assert.isUndefined(yield* TurnContext.Principal)
    }))
})
