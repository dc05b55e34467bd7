import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Layer, Result, Schema } from "effect"
import { ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import { pipe } from "effect/Function"
import { codecs } from "./codecs.ts"
import { ways } from "./outcomes.ts"

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
  id: Schema.Literals(["", "a", "b", "call_1", "functions.f:0", "x".repeat(65), "\ud83d"]),
  name: Schema.Literals(["read", "write", "held", "multi_tool_use.parallel", "", "9", "ü".repeat(200)]),
  arguments: Schema.Union([
    Schema.Literals([
      "",
      "{",
      "[1]",
      '{"n":0}',
      '{ "n": 0 }',
      '{"n":1}',
      '{"n":2}',
      '{"n":"<pending>"}',
      '{"\\ud83d":"\\udc00"}'
    ]),
    Schema.Struct({ n: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 })) }),
    Schema.Null
  ])
})

const calls = Arbitrary.array(Arbitrary.schema(Call), { minLength: 1, maxLength: 8 })

describe.each(codecs)("$dialect.name", ({ dialect, ids, kept, refusal, response, rest }) => {
  /** What holds for each history: nothing that is refused, each call answered once, in order, the rest as it came. */
  const isSound = (history: ReadonlyArray<any>): void => {
    assert.isUndefined(refusal(history), JSON.stringify(history))
    const { answers, calls } = ids(history)
    assert.isAbove(calls.length, 0)
    assert.deepStrictEqual(answers, calls)
    assert.deepStrictEqual(rest(history), kept)
  }

  it.effect.prop(
    "R2, R4, R30, R34: what a turn answers, however it ends, is a history that is not refused",
    {
      calls,
      stop: Arbitrary.schema(Schema.Boolean),
      isCut: Arbitrary.schema(Schema.Boolean),
      withToolkit: Arbitrary.schema(Schema.Boolean)
    },
    ({ calls: made, isCut, stop, withToolkit }) =>
      Effect.gen(function*() {
        const { calls, finishReason, message } = yield* Effect.fromResult(dialect.decode(response(made, isCut)))
        assert.strictEqual(finishReason, isCut ? "length" : "tool-calls")
        assert.lengthOf(calls, made.length)
        const outcomes = yield* Turn.run(toolkit, calls, {
          finishReason,
          ...(stop ? { cancelOn: Effect.succeed("user") } : undefined)
        })
        isSound(
          Result.getOrThrow(dialect.history(message, calls, outcomes, withToolkit ? { toolkit } : undefined)) as Array<
            any
          >
        )
      }).pipe(Effect.provide(services)),
    { arbitrary: { runs: 150 } }
  )

  it.prop(
    "a history is not refused, whatever the model wrote, however the calls ended, whoever names them",
    {
      calls,
      ends: Arbitrary.array(
        Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: ways.length - 1 }))),
        {
          minLength: 8,
          maxLength: 8
        }
      ),
      names: Arbitrary.schema(Schema.Literals(["", "a", "x".repeat(64), "not.fit", "\ud83d"]))
    },
    ({ calls: made, ends, names }) => {
      const input = response(made)
      const before = structuredClone(input)
      const { calls, message } = Result.getOrThrow(dialect.decode(input))
      const outcomes = calls.map((call, i) => ways[ends[i]!]!(call, i))
      const history = Result.getOrThrow(dialect.history(message, calls, outcomes, { newId: () => names })) as Array<any>
      isSound(history)
      assert.deepStrictEqual(input, before, "the message was changed")
      // Each call is in it, or it repeats one that is.
      const unlike = new Set(calls.map(({ id }, i) => id === "" ? i : id))
      assert.isAtLeast(ids(history).calls.length, unlike.size)
      assert.isAtMost(ids(history).calls.length, calls.length)
      // What was sent is decoded again as calls with the ids of the answers.
      const again = Result.getOrThrow(dialect.decode(
        dialect.id === "responses" ? history.filter(({ type }) => type !== "function_call_output") : history[0]
      ))
      assert.lengthOf(again.calls, ids(history).calls.length)
      for (const [i, { id }] of again.calls.entries()) if (id !== "") assert.strictEqual(id, ids(history).answers[i])
    },
    { arbitrary: { runs: 300 } }
  )

  it.prop("calls survive the way out and back", { calls }, ({ calls: made }) => {
    const calls = made.map(({ arguments: args, id, name }) => ToolCall.make(id, name, args))
    assert.deepStrictEqual(Result.getOrThrow(dialect.decode(dialect.fromCalls(calls))).calls, calls)
    assert.isTrue(dialect.matches(dialect.fromCalls(calls)))
  }, { arbitrary: { runs: 100 } })

  it("takes arguments that are not there for not there", () => {
    assert.deepStrictEqual(Result.getOrThrow(dialect.decode(dialect.fromCalls([{ id: "i", name: "f" }]))).calls, [
      { id: "i", name: "f" }
    ])
  })

  it("keeps hostile names as data", () => {
    const args = JSON.parse('{"__proto__":{"admin":true},"constructor":1}')
    const input = response([
      ToolCall.make("__proto__", "constructor", dialect.id === "chat" ? JSON.stringify(args) : args)
    ])
    const { calls, message } = Result.getOrThrow(dialect.decode(input))
    assert.strictEqual(calls[0]!.name, "constructor")
    const history = Result.getOrThrow(dialect.history(message, calls, [ways[0]!(calls[0]!, 0)], { toolkit })) as Array<
      any
    >
    assert.isUndefined(refusal(history))
    assert.include(JSON.stringify(history).replaceAll("\\", ""), '"__proto__":{"admin":true}')
    assert.isUndefined(({} as { admin?: unknown }).admin)
  })

  it("refuses lists that do not belong together", () => {
    const { calls, message } = Result.getOrThrow(
      dialect.decode(response([ToolCall.make("a", "f", "{}"), ToolCall.make("b", "f", "{}")]))
    )
    const outcomes = calls.map(ways[0]!)
    const failure = (result: Result.Result<unknown, { readonly message: string }>) => {
      const { message } = Result.getOrThrow(Result.flip(result))
      assert.isTrue(message.startsWith(`${dialect.name} message, at `), message)
      return message
    }
    assert.include(failure(dialect.history(message, calls, outcomes.slice(1))), "at outcomes: expected 2 outcomes")
    assert.include(
      failure(dialect.history(message, calls, outcomes.toReversed())),
      'at outcomes[0]: expected the outcome of call 0 with the id "a", and got that of call 1 with the id "b"'
    )
    assert.include(
      failure(dialect.history(message, calls.slice(1), outcomes.slice(1))),
      "expected the calls that were decoded from this message, and got other calls"
    )
    assert.include(
      failure(dialect.history(message, calls, [{ ...outcomes[0]!, encoded: 1n } as any, outcomes[1]!])),
      "at outcomes[0]: expected a result that JSON can hold"
    )
  })

  it.prop("nothing throws, whatever comes", { input: Arbitrary.schema(Schema.Json) }, ({ input }) => {
    for (
      const given of [input, [input], { role: "assistant", content: input }, { role: "model", parts: input }, {
        output: input
      }]
    ) {
      assert.isBoolean(dialect.matches(given))
      const decoded = dialect.decode(given)
      if (Result.isSuccess(decoded)) {
        dialect.history(decoded.success.message, decoded.success.calls, decoded.success.calls.map(ways[0]!))
      }
    }
  }, { arbitrary: { runs: 200 } })
})
