import { assert, it } from "@effect/vitest"
import { Arbitrary, Effect, Layer, Result, Schema } from "effect"
import { ToolPolicy, Turn } from "effect-turn"
import { OpenAiChat } from "effect-turn/wire"
import { Tool, Toolkit } from "effect/ai"
import { pipe } from "effect/Function"
import { refusal } from "./provider.ts"

const parameters = Schema.Struct({ n: Schema.Int })

const toolkit = Toolkit.make(
  pipe(Tool.make("read", { parameters, success: Schema.String }), ToolPolicy.read({ keys: ({ n }) => [`k/${n}`] })),
  pipe(Tool.make("write", { parameters, success: parameters }), ToolPolicy.write({ keys: ({ n }) => [`k/${n}`] })),
  Tool.make("held", { parameters, success: Schema.String, needsApproval: true })
)

const services = Layer.mergeAll(
  toolkit.toLayer({
    read: ({ n }) => n === 2 ? Effect.die("broken") : Effect.succeed(n === 1 ? "" : `read ${n}`),
    write: ({ n }) => n === 2 ? Effect.interrupt : Effect.succeed({ n }),
    held: () => Effect.succeed("never")
  }),
  Turn.layer()
)

const Call = Schema.Struct({
  id: Schema.Literals(["", "a", "b", "call_1"]),
  name: Schema.Literals(["read", "write", "held", "multi_tool_use.parallel"]),
  arguments: Schema.Literals(["", "{", "[1]", '{"n":0}', '{ "n": 0 }', '{"n":1}', '{"n":2}', '{"n":"<pending>"}'])
})

const turns = {
  turn: Arbitrary.array(Arbitrary.schema(Call), { minLength: 1, maxLength: 8 }),
  stop: Arbitrary.schema(Schema.Boolean),
  finish: Arbitrary.schema(Schema.Literals(["tool_calls", "length"]))
}

it.effect.prop(
  "what a turn answers, however it ends, is a history that no host refuses",
  turns,
  ({ finish, stop, turn }) =>
    Effect.gen(function*() {
      const { calls, finishReason, message } = yield* Effect.fromResult(OpenAiChat.decode({
        finish_reason: finish,
        message: {
          role: "assistant",
          content: null,
          tool_calls: turn.map(({ arguments: args, id, name }) => ({
            id,
            type: "function",
            function: { name, arguments: args }
          }))
        }
      }))
      const outcomes = yield* Turn.run(toolkit, calls, {
        finishReason,
        ...(stop ? { cancelOn: Effect.succeed("user") } : undefined)
      })
      const history = Result.getOrThrow(OpenAiChat.history(message, calls, outcomes))
      assert.isUndefined(refusal(history))
      // Each call has its answer: its own, or that of the call that it repeats.
      const named = calls.map((call) => call.id).filter((id) => id !== "")
      const answers = history.slice(1) as Array<OpenAiChat.ToolMessage>
      for (const id of new Set(named)) assert.isTrue(answers.some((answer) => answer.tool_call_id === id))
      assert.isAtLeast(answers.length, calls.length - named.length + new Set(named).size)
    }).pipe(Effect.provide(services)),
  { arbitrary: { runs: 200 } }
)
