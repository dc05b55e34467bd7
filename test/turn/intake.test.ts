/** What is taken in, and what is refused before anything runs. */
import { assert, describe, it } from "@effect/vitest"
import { Outcome, ToolCall, ToolPolicy, Turn, TurnContext, type TurnEvent, type TurnPlan } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Cause from "effect/Cause"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import * as SchemaTransformation from "effect/SchemaTransformation"
import * as TestClock from "effect/testing/TestClock"
import { int, runs } from "../utils/gen.ts"
import { call, drive, ended, fork, lab, run, runWith, words } from "../utils/kit.ts"

/** A tool that takes anything, and gives back what it got. */
const echo = pipe(
  Tool.make("echo", {
    parameters: Schema.Record(Schema.String, Schema.Unknown),
    success: Schema.Unknown,
    failure: Schema.String
  }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.placeholders("off")
)
const seen: Array<unknown> = []
const handlers = {
  echo: (params: unknown) =>
    Effect.sync(() => {
      seen.push(params)
      return JSON.parse(JSON.stringify(params))
    })
}
const echoed = (args: unknown, options?: Parameters<typeof runWith>[3]) =>
  Effect.map(
    runWith([echo], handlers, [ToolCall.make("c", "echo", args), ToolCall.make("d", "echo", { honest: 1 })], options),
    ([first, second]) => {
      assert.strictEqual(second!.status, "ok", "the neighbour was touched")
      return first!
    }
  )

const result = (outcome: Outcome.Outcome<any>) => Outcome.toJson(outcome).result

describe("R6: arguments", () => {
  for (
    const [name, args] of Object.entries({
      blank: "",
      "white space": " \n\t",
      "null": null,
      absent: undefined,
      "{}": "{}"
    })
  ) {
    it.effect(`${name} means no arguments`, () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(result(yield* drive(echoed(args))), {})
      }))
  }

  const refused: Record<string, unknown> = {
    "a list": "[1]",
    "a parsed list": [1],
    "a text": '"x"',
    "a number": "12",
    "a parsed number": 12,
    "a truth value": true,
    "the text null": "null",
    "two objects glued together": '{"a":1}{"b":2}',
    "a cut object": '{"a":',
    "a number that overflows": '{"a":1e999}',
    "a number that overflows deep inside": '{"a":[{"b":-1e999}]}',
    "single quotes": "{'a':1}",
    "a comment": "{} // done",
    "not a number": { a: NaN },
    "a big integer": { a: 1n },
    "a function": { a: () => 1 },
    "a symbol": { a: Symbol("x") },
    "a date": { a: new Date(0) },
    "a map": new Map([["a", 1]]),
    "an undefined member": { a: undefined },
    "an undefined item": { a: [undefined] }
  }
  for (const [name, args] of Object.entries(refused)) {
    it.effect(`${name} is invalid, and not run`, () =>
      Effect.gen(function*() {
        seen.length = 0
        const outcome = yield* drive(echoed(args))
        assert.deepStrictEqual(words([outcome]), ["error/invalid_arguments"])
        assert.deepStrictEqual([outcome.started, outcome.effect, outcome.retryable], [false, "none", true])
        assert.isAbove(outcome.message.length, 10)
        assert.deepStrictEqual(seen, [{ honest: 1 }])
      }))
  }

  it.effect("the schema's message says what is wrong and where", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([ToolCall.make("a", "read", "{}"), ToolCall.make("b", "read", { tag: "x", k: ["a", 1] })]).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["error/invalid_arguments", "error/invalid_arguments"])
      assert.include(outcomes[0]!.message, "tag")
      assert.include(outcomes[1]!.message, "k.1")
      assert.include(outcomes[1]!.message, '"read"')
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("hostile member names are ordinary data", () =>
    Effect.gen(function*() {
      const text = '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}},"toString":1}'
      const outcome = yield* drive(echoed(text))
      assert.strictEqual(outcome.status, "ok")
      assert.isUndefined(({} as any).admin)
      for (const params of seen) assert.isUndefined((params as any).admin)
      assert.strictEqual(JSON.stringify({}), "{}")
    }))

  it.effect("a tool whose name is a part of every object is unknown", () =>
    Effect.gen(function*() {
      const names = ["__proto__", "constructor", "toString", "hasOwnProperty", ""]
      const outcomes = yield* drive(runWith([echo], handlers, names.map((name, i) => ToolCall.make(`c${i}`, name, {}))))
      assert.deepStrictEqual(words(outcomes), names.map(() => "error/unknown_tool"))
    }))

  describe("limits", () => {
    it.effect("a million characters, 64 levels and 10,000 members are taken, and no more", () =>
      Effect.gen(function*() {
        const nested = (depth: number) => '{"a":'.repeat(depth) + "1" + "}".repeat(depth)
        const wide = (n: number) => JSON.stringify({ list: Array.from({ length: n - 1 }, () => 0) })
        const long = (n: number) => `{"a":"${"x".repeat(n - 8)}"}`
        for (
          const [ok, over] of [[nested(64), nested(65)], [wide(10_000), wide(10_001)], [
            long(1_000_000),
            long(1_000_001)
          ]]
        ) {
          assert.strictEqual((yield* drive(echoed(ok))).status, "ok")
          const outcome = yield* drive(echoed(over))
          assert.deepStrictEqual(words([outcome]), ["error/invalid_arguments"])
          assert.isBelow(outcome.message.length, 500)
        }
      }))

    it.effect("hold for arguments that were parsed elsewhere, and can be set for a turn", () =>
      Effect.gen(function*() {
        const limits = { maxBytes: 40, maxDepth: 2, maxKeys: 3 }
        for (
          const args of [{ a: "x".repeat(40) }, { a: { b: { c: 1 } } }, { a: 1, b: 2, c: 3, d: 4 }, { a: [1, 2, 3] }]
        ) {
          assert.deepStrictEqual(words([yield* drive(echoed(args, { limits }))]), ["error/invalid_arguments"])
        }
        for (const args of [{ a: "x".repeat(30) }, { a: { b: 1 } }, { a: 1, b: 2, c: 3 }, { a: [1, 2] }]) {
          assert.strictEqual((yield* drive(echoed(args, { limits }))).status, "ok")
        }
      }))

    it.effect("a hundred thousand levels do not break the turn", () =>
      Effect.gen(function*() {
        const text = "[".repeat(100_000) + "]".repeat(100_000)
        assert.deepStrictEqual(words([yield* drive(echoed(`{"a":${text}}`))]), ["error/invalid_arguments"])
      }))

    it.effect("objects that contain themselves end", () =>
      Effect.gen(function*() {
        const loop: Record<string, unknown> = { a: 1 }
        loop["x"] = loop
        loop["y"] = [loop, loop]
        assert.deepStrictEqual(words([yield* drive(echoed(loop))]), ["error/invalid_arguments"])
      }))
  })

  describe("hostile objects", () => {
    const revoked = () => {
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      return proxy
    }
    const hostile: Record<string, unknown> = {
      "a getter that throws": Object.defineProperty({}, "a", {
        enumerable: true,
        get() {
          throw new Error("no")
        }
      }),
      "a proxy that throws": new Proxy({}, {
        ownKeys() {
          throw new Error("no")
        }
      }),
      "a revoked proxy": revoked(),
      "a revoked proxy inside": { a: revoked() },
      "a prototype that throws": new Proxy({}, {
        getPrototypeOf() {
          throw new Error("no")
        }
      })
    }
    for (const [name, args] of Object.entries(hostile)) {
      it.effect(`${name} gives invalid arguments, and touches nobody else`, () =>
        Effect.gen(function*() {
          const outcome = yield* drive(echoed(args))
          assert.deepStrictEqual(words([outcome]), ["error/invalid_arguments"])
        }))
    }
  })
})

describe("R6, R9: arguments, whatever they are", () => {
  const anything = Arbitrary.schema(Schema.Json)
  const objects = Arbitrary.schema(Schema.Record(Schema.String, Schema.Json))
  const plain = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value)

  /** The same value with its members in another order, at every depth. */
  const turned = (value: Schema.Json): Schema.Json =>
    Array.isArray(value)
      ? value.map(turned)
      : plain(value)
      ? Object.fromEntries(Object.entries(value as object).toReversed().map(([key, inner]) => [key, turned(inner)]))
      : value

  it.effect.prop(
    "an object is taken as it is, parsed or as text; everything else is refused",
    { value: anything },
    ({ value }) =>
      Effect.gen(function*() {
        const text = JSON.stringify(value)
        for (const args of [value, text]) {
          const outcome = yield* drive(echoed(args))
          const taken = plain(value) || args === null || (typeof args === "string" && args.trim() === "")
          assert.strictEqual(outcome.status, taken ? "ok" : "error")
          if (plain(value)) assert.deepStrictEqual(result(outcome), JSON.parse(text))
        }
      }),
    runs(150)
  )

  it.effect.prop(
    "text that is no JSON is refused, and never breaks the turn",
    { text: Arbitrary.schema(Schema.String), value: objects, cut: int(0, 40) },
    ({ cut, text, value }) =>
      Effect.gen(function*() {
        for (const args of [text, JSON.stringify(value).slice(0, cut), JSON.stringify(value) + text]) {
          let parsed: unknown
          try {
            parsed = args.trim() === "" ? {} : JSON.parse(args)
          } catch {
            parsed = undefined
          }
          assert.strictEqual((yield* drive(echoed(args))).status, plain(parsed) ? "ok" : "error")
        }
      }),
    runs(150)
  )

  it.effect.prop(
    "two calls are the same exactly when their arguments are, members in any order",
    { a: objects, b: objects },
    ({ a, b }) =>
      Effect.gen(function*() {
        const args = [a, JSON.stringify(turned(a)), b, turned(b)]
        const outcomes = yield* drive(
          runWith([echo], handlers, args.map((one, i) => ToolCall.make(`c${i}`, "echo", one)))
        )
        const same = Equal.equals(JSON.parse(JSON.stringify(a)), JSON.parse(JSON.stringify(b)))
        assert.deepStrictEqual(
          outcomes.map((one) => one.duplicateOf?.position),
          same ? [undefined, 0, 0, 0] : [undefined, 0, undefined, 2]
        )
        for (const [i, of] of [a, a, b, b].entries()) {
          assert.deepStrictEqual(result(outcomes[i]!), JSON.parse(JSON.stringify(of)))
        }
      }),
    runs(150)
  )
})

describe("R6: decoding", () => {
  const day = Tool.make("day", {
    parameters: Schema.Struct({ at: Schema.DateTimeUtcFromString, n: Schema.optionalKey(Schema.FiniteFromString) }),
    success: Schema.DateTimeUtcFromString,
    failure: Schema.String
  })

  it.effect("everything after it works on the decoded value: keys, handler, identical calls", () =>
    Effect.gen(function*() {
      const keys: Array<unknown> = []
      const tool = pipe(
        day,
        ToolPolicy.read({
          keys: ({ at }) => {
            keys.push(at)
            return [`day:${DateTime.formatIsoDateUtc(at)}`]
          }
        })
      )
      const got: Array<unknown> = []
      const outcomes = yield* drive(runWith([tool], {
        day: ({ at }) =>
          Effect.sync(() => {
            got.push(at)
            return at
          })
      }, [
        ToolCall.make("a", "day", { at: "2026-01-02T00:00:00Z" }),
        ToolCall.make("b", "day", { at: "2026-01-02T01:00:00+01:00" }),
        ToolCall.make("c", "day", { at: "2026-01-03T00:00:00Z" }),
        ToolCall.make("d", "day", { at: "yesterday" })
      ]))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok", "error/invalid_arguments"])
      assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.position), [undefined, 0, undefined, undefined])
      assert.isTrue(keys.every(DateTime.isDateTime))
      assert.strictEqual(got.length, 2)
      assert.deepStrictEqual(outcomes.slice(0, 3).map(result), [
        "2026-01-02T00:00:00.000Z",
        "2026-01-02T00:00:00.000Z",
        "2026-01-03T00:00:00.000Z"
      ])
      const [first, second] = outcomes as ReadonlyArray<any>
      assert.isTrue(DateTime.isDateTime(second.result))
      assert.notStrictEqual(first.result, second.result)
    }))

  /** A text that takes 30 ms to decode and 20 ms to encode. */
  const slowText = Schema.String.pipe(
    Schema.decodeTo(
      Schema.String,
      SchemaTransformation.transformEffect({
        decode: (text: string) => Effect.as(Effect.sleep(30), `${text}!`),
        encode: (text: string) => Effect.as(Effect.sleep(20), text.slice(0, -1))
      })
    )
  )

  it.effect("schemas that take time are waited for, on the way in and on the way out", () =>
    Effect.gen(function*() {
      const slow = pipe(
        Tool.make("slow", { parameters: Schema.Struct({ text: slowText }), success: slowText, failure: Schema.String }),
        ToolPolicy.write({ keys: ({ text }) => [text] })
      )
      const got: Array<string> = []
      const events: Array<TurnEvent.TurnEvent> = []
      const outcomes = yield* drive(runWith(
        [slow],
        {
          slow: ({ text }) =>
            Effect.sync(() => {
              got.push(text)
              return text
            })
        },
        [ToolCall.make("a", "slow", { text: "x" }), ToolCall.make("b", "slow", { text: "y" })],
        {
          onEvent: (event) => {
            events.push(event)
          }
        }
      ))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      assert.deepStrictEqual(got, ["x!", "y!"])
      assert.deepStrictEqual(outcomes.map((one) => (one as any).result), ["x!", "y!"])
      assert.deepStrictEqual(outcomes.map(result), ["x", "y"])
      assert.deepStrictEqual(events.map((event) => [event._tag, event.at]), [
        ["TurnStarted", 30],
        ["CallStarted", 30],
        ["CallStarted", 30],
        ["CallEnded", 50],
        ["CallEnded", 50],
        ["TurnEnded", 50]
      ])
    }))

  const asked = (decode: number | "never", encode: number) => {
    const text = Schema.String.pipe(
      Schema.decodeTo(
        Schema.String,
        SchemaTransformation.transformEffect({
          decode: (text: string) => decode === "never" ? Effect.never : Effect.as(Effect.sleep(decode), text),
          encode: (text: string) => Effect.as(Effect.sleep(encode), text)
        })
      )
    )
    return pipe(
      Tool.make("asked", { parameters: Schema.Struct({ text }), success: text, failure: Schema.String }),
      ToolPolicy.read({ keys: () => [] }),
      ToolPolicy.timeout(50),
      ToolPolicy.idleTimeout(50)
    )
  }
  const answer = { asked: ({ text }: { readonly text: string }) => Effect.as(Effect.sleep(40), text) }

  it.effect("R15: writing the answer down is not running: it counts against no limit of the handler", () =>
    Effect.gen(function*() {
      const outcomes = yield* drive(runWith([asked(5, 500)], answer, [ToolCall.make("a", "asked", { text: "x" })]))
      assert.deepStrictEqual(words(outcomes), ["ok"])
    }))

  it.effect("R15: the deadline holds while arguments are decoded, and nothing runs", () =>
    Effect.gen(function*() {
      const outcomes = yield* drive(
        runWith([asked("never", 0), echo], { ...handlers, ...answer }, [
          ToolCall.make("a", "asked", { text: "x" }),
          ToolCall.make("b", "echo")
        ], { deadline: 50 })
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "cancelled/by_deadline"])
      assert.deepStrictEqual(outcomes.map((one) => one.started), [false, false])
    }))

  it.effect("R2: a call can be stopped while arguments are decoded", () =>
    Effect.gen(function*() {
      const kit = Toolkit.make(asked(30, 0))
      const outcomes = yield* Effect.gen(function*() {
        const handle = yield* Turn.start(kit, [
          ToolCall.make("a", "asked", { text: "x" }),
          ToolCall.make("b", "asked", { text: "y" })
        ])
        yield* TestClock.adjust(10)
        assert.deepStrictEqual([yield* handle.cancelCall("a", "user"), yield* handle.cancelCall("a")], [true, false])
        yield* TestClock.adjust(1000)
        return yield* ended(yield* fork(handle.await))
      }).pipe(Effect.scoped, Effect.provide([kit.toLayer(answer), Turn.layer()]))
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_caller", "ok"])
      assert.strictEqual((outcomes[0] as Outcome.Cancelled).reason, "user")
    }))

  it.effect("R5: a duplicate's result is decoded again also where decoding takes time", () =>
    Effect.gen(function*() {
      const slow = pipe(
        Tool.make("slow", { parameters: Schema.Struct({ n: Schema.Int }), success: slowText, failure: Schema.String }),
        ToolPolicy.read({ keys: () => [] })
      )
      const outcomes = yield* drive(runWith([slow], { slow: () => Effect.succeed("done!") }, [
        ToolCall.make("a", "slow", { n: 1 }),
        ToolCall.make("b", "slow", { n: 1 })
      ]))
      assert.deepStrictEqual(outcomes.map((one) => (one as any).result), ["done!", "done!"])
      assert.deepStrictEqual(outcomes.map(result), ["done", "done"])
    }))

  it.effect("Turn.plan waits for schemas that take time", () =>
    Effect.gen(function*() {
      const slow = pipe(
        Tool.make("slow", { parameters: Schema.Struct({ text: slowText }), success: Schema.Unknown }),
        ToolPolicy.write({ keys: ({ text }) => [text] })
      )
      const calls = [ToolCall.make("a", "slow", { text: "x" }), ToolCall.make("b", "slow", { text: 1 })]
      const plan = yield* drive(Turn.plan(Toolkit.make(slow), calls))
      assert.deepStrictEqual(plan.calls.map(({ keys, verdict }) => [verdict, keys]), [
        ["run", ["x!"]],
        ["refused", undefined]
      ])
    }))

  it.effect("R5: a duplicate's result is a copy of its own also where decoding takes time", () =>
    Effect.gen(function*() {
      const list = Schema.Array(Schema.Int).pipe(
        Schema.decodeTo(
          Schema.Array(Schema.Int),
          SchemaTransformation.transformEffect({
            decode: (list: ReadonlyArray<number>) => Effect.as(Effect.sleep(30), [...list]),
            encode: (list: ReadonlyArray<number>) => Effect.as(Effect.sleep(20), [...list])
          })
        )
      )
      const slow = pipe(
        Tool.make("slow", { parameters: Schema.Struct({ n: Schema.Int }), success: list }),
        ToolPolicy.read({ keys: () => [] })
      )
      const [first, second] = yield* drive(runWith([slow], { slow: () => Effect.succeed([1]) }, [
        ToolCall.make("a", "slow", { n: 1 }),
        ToolCall.make("b", "slow", { n: 1 })
      ])) as Effect.Effect<ReadonlyArray<any>>
      assert.deepStrictEqual([first.result, second.result, second.encoded], [[1], [1], [1]])
      assert.notStrictEqual(first.result, second.result)
      assert.notStrictEqual(first.encoded, second.encoded)
    }))

  it.effect("a schema that fails without a reason is a defect of that call alone, on the way in and on the way out", () =>
    Effect.gen(function*() {
      const nothing = Schema.String.pipe(
        Schema.decodeTo(
          Schema.String,
          SchemaTransformation.transformEffect({
            decode: (): Effect.Effect<string> => Effect.failCause(Cause.empty),
            encode: (): Effect.Effect<string> => Effect.failCause(Cause.empty)
          })
        )
      )
      const take = Tool.make("take", { parameters: Schema.Struct({ text: nothing }), success: Schema.Unknown })
      const give = Tool.make("give", { parameters: Schema.Struct({}), success: nothing })
      const outcomes = yield* drive(
        runWith([take, give], { take: () => Effect.succeed(1), give: () => Effect.succeed("x") }, [
          ToolCall.make("a", "take", { text: "x" }),
          ToolCall.make("b", "give")
        ])
      )
      assert.deepStrictEqual(words(outcomes), ["error/defect", "error/unencodable_result"])
      assert.deepStrictEqual(outcomes.map(({ message }) => message), [
        "decoding the arguments failed: nothing was thrown (no value)",
        "the call took effect, but its result cannot be given: encoding it broke: nothing was thrown (no value); do not call it again for the result"
      ])
    }))

  it.effect("a schema that breaks while it decodes is a defect of that call alone", () =>
    Effect.gen(function*() {
      const broken = pipe(
        Tool.make("broken", {
          parameters: Schema.Struct({
            n: Schema.Int.check(Schema.makeFilter(() => {
              throw new Error("the filter broke")
            }))
          }),
          success: Schema.Unknown,
          failure: Schema.String
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const outcomes = yield* drive(runWith([broken, echo], { ...handlers, broken: () => Effect.succeed(1) }, [
        ToolCall.make("a", "broken", { n: 1 }),
        ToolCall.make("b", "echo", { n: 1 })
      ]))
      assert.deepStrictEqual(words(outcomes), ["error/defect", "ok"])
      assert.include(outcomes[0]!.message, "the filter broke")
      assert.strictEqual(outcomes[0]!.started, false)
    }))

  describe("tools with a raw JSON Schema are validated too", () => {
    const raw = pipe(
      Tool.dynamic("raw", {
        parameters: {
          type: "object",
          properties: { q: { type: "string" }, n: { type: "integer", minimum: 1 } },
          required: ["q"],
          additionalProperties: false
        },
        success: Schema.Unknown
      }) as unknown as Tool.Any,
      ToolPolicy.read({ keys: () => [] })
    )
    const cases: ReadonlyArray<readonly [unknown, string]> = [
      [{ q: "x" }, "ok"],
      [{ q: "x", n: 2 }, "ok"],
      ['{"q":"x"}', "ok"],
      [{ q: 42 }, "error/invalid_arguments"],
      [{}, "error/invalid_arguments"],
      [{ q: "x", n: 0 }, "error/invalid_arguments"],
      [{ q: "x", extra: 1 }, "error/invalid_arguments"]
    ]
    for (const [args, expected] of cases) {
      it.effect(`${JSON.stringify(args)} is ${expected}`, () =>
        Effect.gen(function*() {
          const got: Array<unknown> = []
          const outcomes = yield* drive(
            runWith([raw], { raw: (params) => Effect.sync(() => got.push(params)) }, [ToolCall.make("a", "raw", args)])
          )
          assert.deepStrictEqual(words(outcomes), [expected])
          assert.deepStrictEqual(got, expected === "ok" ? [typeof args === "string" ? JSON.parse(args) : args] : [])
        }))
    }
  })
})

describe("a raw JSON Schema", () => {
  it.effect("of an older draft is read as what it says it is", () =>
    Effect.gen(function*() {
      const raw = pipe(
        Tool.dynamic("raw", {
          parameters: {
            $schema: "http://json-schema.org/draft-07/schema#",
            type: "object",
            properties: { pair: { type: "array", items: [{ type: "string" }, { type: "number" }], minItems: 2 } },
            required: ["pair"]
          } as any,
          success: Schema.Unknown
        }) as unknown as Tool.Any,
        ToolPolicy.read({ keys: () => [] })
      )
      const outcomes = yield* drive(runWith([raw], { raw: ({ pair }: any) => Effect.succeed(pair) }, [
        ToolCall.make("a", "raw", { pair: ["x", 1] }),
        ToolCall.make("b", "raw", { pair: [1, "x"] })
      ]))
      assert.deepStrictEqual(words(outcomes), ["ok", "error/invalid_arguments"])
    }))
})

describe("R7: names", () => {
  it.effect("a tool that does not exist is named, with the nearest ones", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const outcomes = yield* drive(
        run([call("reed" as any, "a"), call("Read" as any, "b"), call("x".repeat(100_000) as any, "c")]).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), ["error/unknown_tool", "error/unknown_tool", "error/unknown_tool"])
      assert.match(outcomes[0]!.message, /"reed".*read/)
      assert.isBelow(outcomes[2]!.message.length, 1000)
      assert.deepStrictEqual(outcomes.map((one) => one.retryable), [false, false, false])
    }))

  it.effect("are repaired only where that was asked for and one tool fits", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const calls = [call(" READ\n" as any, "a"), call("raed" as any, "b")]
      const outcomes = yield* drive(run(calls, { nameRepair: true }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(words(outcomes), ["ok", "error/unknown_tool"])
      assert.deepStrictEqual([outcomes[0]!.name, outcomes[0]!.repairedFrom], ["read", " READ\n"])
      assert.strictEqual(book.count("a"), 1)
    }))

  it.effect("a repaired call says so whatever it comes to, and another one does not", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { b: { end: "fail" } } })
      const outcomes = yield* drive(
        run([
          ToolCall.make("a", "READ", {}),
          call("READ" as any, "b"),
          call("READ" as any, "c"),
          call("PAY" as any, "d"),
          call("read", "e"),
          call("nobody" as any, "f")
        ], { nameRepair: true }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(outcomes.map((one) => [one.name, one.repairedFrom, "repairedFrom" in one]), [
        ["read", "READ", true],
        ["read", "READ", true],
        ["read", "READ", true],
        ["pay", "PAY", true],
        ["read", undefined, false],
        ["nobody", undefined, false]
      ])
    }))

  it.effect("which fit two tools are not repaired", () =>
    Effect.gen(function*() {
      const twin = (name: string) =>
        Tool.make(name, { parameters: Schema.Struct({}), success: Schema.Unknown, failure: Schema.String })
      const outcomes = yield* drive(
        runWith([twin("go"), twin("Go")], { go: () => Effect.succeed(1), Go: () => Effect.succeed(2) }, [
          ToolCall.make("a", "GO")
        ], {
          nameRepair: true
        })
      )
      assert.deepStrictEqual(words(outcomes), ["error/unknown_tool"])
    }))

  it.effect("R9: a repaired call and the one with the right name are the same call", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([call("READ" as any, "a", [], { id: "x" }), call("read", "a", [], { id: "y" })], { nameRepair: true })
          .pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      assert.strictEqual(outcomes[1]!.duplicateOf?.position, 0)
      assert.strictEqual(book.count("a"), 1)
    }))
})

describe("R2: ids", () => {
  it.effect("empty ids are calls of their own", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([call("read", "a", [], { id: "" }), call("read", "b", [], { id: "" })]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf), [undefined, undefined])
      assert.strictEqual(book.runs.length, 2)
    }))

  it.effect("a re-delivery is run once and answered in both places, whatever dedupe says and whatever stands between", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const calls = [
        call("post", "a", ["k"], { id: "x" }),
        call("write", "b", ["k"]),
        ToolCall.make("x", "post", '{ "k": ["k"], "tag": "a" }')
      ]
      const outcomes = yield* drive(run(calls, { dedupe: "off" }).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(words(outcomes), ["ok", "ok", "ok"])
      assert.deepStrictEqual(outcomes[2]!.duplicateOf, { position: 0, id: "x" })
      assert.strictEqual(book.count("a"), 1)
    }))

  it.effect("the same id with other content runs none of them", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([
          call("read", "a", [], { id: "x" }),
          call("read", "b"),
          call("read", "c", [], { id: "x" }),
          call("read", "a", [], { id: "x" })
        ]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["error/ambiguous_id", "ok", "error/ambiguous_id", "error/ambiguous_id"])
      assert.deepStrictEqual(outcomes.map((one) => one.retryable), [true, false, true, true])
      assert.deepStrictEqual(book.runs.map((one) => one.tag), ["b"])
    }))

  it.effect("the same id in the next turn is another call", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* drive(
        Effect.andThen(run([call("write", "a", ["k"])]), run([call("write", "a", ["k"])])).pipe(Effect.provide(layer))
      )
      assert.strictEqual(book.count("a"), 2)
    }))

  it.effect("a re-delivery of a refused call is answered the same", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const outcomes = yield* drive(
        run([
          ToolCall.make("x", "read", "{"),
          ToolCall.make("x", "read", "{"),
          ToolCall.make("y", "no", {}),
          ToolCall.make("y", "no", {})
        ])
          .pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "error/invalid_arguments",
        "error/invalid_arguments",
        "error/unknown_tool",
        "error/unknown_tool"
      ])
      assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.position), [undefined, 0, undefined, 2])
    }))
})

describe("R2: what cannot be taken in is compared as it came", () => {
  const cases: ReadonlyArray<readonly [a: unknown, b: unknown, same: boolean]> = [
    ["{", "{", true],
    ["{", "{{", false],
    ["", null, false],
    [null, undefined, true],
    [null, "{}", false],
    [undefined, [1], false]
  ]
  for (const [a, b, same] of cases) {
    it.effect(`${JSON.stringify(a)} and ${JSON.stringify(b)} are ${same ? "the same" : "different"}`, () =>
      Effect.gen(function*() {
        const outcomes = yield* drive(
          runWith([echo], handlers, [ToolCall.make("x", "nobody", a), ToolCall.make("x", "nobody", b)])
        )
        const code = same ? "error/unknown_tool" : "error/ambiguous_id"
        assert.deepStrictEqual(words(outcomes), [code, code])
        assert.strictEqual(outcomes[1]!.duplicateOf?.position, same ? 0 : undefined)
      }))
  }

  it.effect("arguments are compared whole, however deep they are", () =>
    Effect.gen(function*() {
      const nested = (value: unknown) => {
        for (let i = 0; i < 300; i++) value = { a: value }
        return value
      }
      const limits = { maxDepth: 400 }
      const calls = (
        a: unknown,
        b: unknown
      ) => [ToolCall.make("x", "echo", nested(a)), ToolCall.make("x", "echo", nested(b))]
      const other = yield* drive(runWith([echo], handlers, calls(1, 2), { limits }))
      assert.deepStrictEqual(words(other), ["error/ambiguous_id", "error/ambiguous_id"])
      const same = yield* drive(runWith([echo], handlers, calls(1, 1), { limits }))
      assert.deepStrictEqual([words(same), same[1]!.duplicateOf?.position], [["ok", "ok"], 0])
    }))
})

describe("R23: idempotency keys", () => {
  const charge = (of: (params: any, place: ToolPolicy.Place) => string) =>
    pipe(
      Tool.make("charge", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.Unknown }),
      ToolPolicy.write({ keys: ({ n }) => [`${n}`] }),
      ToolPolicy.forward(of)
    )
  const keyOf = Effect.map(TurnContext.CurrentCall, (current) => current?.idempotencyKey)

  it.effect("are made of the arguments, and of the call's place where the tool asks for it", () =>
    Effect.gen(function*() {
      const tool = charge(({ n }, { id, position, turn }) => [turn, position, id, n].join())
      const outcomes = yield* drive(runWith([tool], { charge: () => keyOf }, [
        ToolCall.make("a", "charge", { n: 1 }),
        ToolCall.make("b", "charge", { n: 2 })
      ], { turn: "t7" }))
      assert.deepStrictEqual(outcomes.map((one) => (one as any).result), ["t7,0,a,1", "t7,1,b,2"])
    }))

  it.effect("R3: made of the place, a key is another one in the next turn: trying again may double the effect", () =>
    Effect.gen(function*() {
      const keys: Record<string, (params: any, place: ToolPolicy.Place) => string> = {
        arguments: ({ n }) => `${n}`,
        turn: (_, { turn }) => turn,
        position: (_, { position }) => `${position}`,
        id: (_, { id }) => id
      }
      for (const [name, of] of Object.entries(keys)) {
        const [outcome] = yield* drive(
          runWith([charge(of)], { charge: () => Effect.interrupt }, [ToolCall.make("a", "charge", { n: 1 })])
        )
        assert.deepStrictEqual([outcome!.effect, outcome!.retryable], ["unknown", name === "arguments"], name)
      }
    }))
})

describe("R9: what makes two calls the same", () => {
  const long = (sign: string) => ({ [sign.repeat(64)]: 1 })
  const cases: ReadonlyArray<readonly [a: object, b: object, same: boolean]> = [
    [{ a: 1, b: { c: 2, d: 3 } }, { b: { d: 3, c: 2 }, a: 1 }, true],
    [{ a: [true, null, "x"] }, { a: [true, null, "x"] }, true],
    [long("x"), long("x"), true],
    [{ a: 1 }, { b: 1 }, false],
    [long("x"), long("y"), false],
    [{ a: true }, { a: false }, false],
    [{ a: null }, { a: "null" }, false],
    [{ a: null }, {}, false],
    [{ a: [1, 2] }, { a: [2, 1] }, false],
    [{ a: [1, 2] }, { a: [12] }, false],
    [{ a: [[1], 2] }, { a: [[1, 2]] }, false],
    [{ a: { b: 1 }, c: 2 }, { a: { b: 1, c: 2 } }, false],
    [{ a: "x", b: "y" }, { a: 'x","b":"y' }, false],
    [{ 'a":1,"b': 1 }, { a: 1, b: 1 }, false]
  ]
  for (const [a, b, same] of cases) {
    it.effect(`${JSON.stringify(a)} and ${JSON.stringify(b)} are ${same ? "the same" : "different"}`, () =>
      Effect.gen(function*() {
        const [, second] = yield* drive(
          runWith([echo], handlers, [ToolCall.make("a", "echo", a), ToolCall.make("b", "echo", b)])
        )
        assert.deepStrictEqual([second!.status, second!.duplicateOf?.position], ["ok", same ? 0 : undefined])
      }))
  }

  it.effect("parameters that contain themselves are no text, so their calls are each run", () =>
    Effect.gen(function*() {
      const loops = [() => {
        const loop: Record<string, unknown> = {}
        loop["self"] = loop
        return loop
      }, () => {
        const loop: Array<unknown> = []
        loop.push(loop)
        return loop
      }]
      for (const loop of loops) {
        const text = Schema.String.pipe(
          Schema.decodeTo(
            Schema.Any,
            SchemaTransformation.transformEffect({
              decode: (_: string) => Effect.succeed<any>(loop()),
              encode: () => Effect.fail(new SchemaIssue.InvalidValue())
            })
          )
        )
        const made = pipe(
          Tool.make("odd", { parameters: Schema.Struct({ text }), success: Schema.Unknown }),
          ToolPolicy.read({ keys: () => [] })
        )
        const outcomes = yield* drive(runWith([made], { odd: () => Effect.succeed(1) }, [
          ToolCall.make("a", "odd", { text: "x" }),
          ToolCall.make("b", "odd", { text: "x" })
        ]))
        assert.deepStrictEqual(outcomes.map((one) => [one.status, one.duplicateOf]), [["ok", undefined], [
          "ok",
          undefined
        ]])
      }
    }))
})

describe("R9: identical calls", () => {
  it.effect("calls whose arguments cannot be told apart are each run, in a unit of their own too", () =>
    Effect.gen(function*() {
      for (
        const encode of [
          () => Effect.fail(new SchemaIssue.InvalidValue()),
          () => {
            throw new Error("the encoder broke")
          }
        ]
      ) {
        const text = Schema.String.pipe(
          Schema.decodeTo(
            Schema.Any,
            SchemaTransformation.transformEffect({
              decode: (text: string) => Effect.succeed(new Map([[text, 1]])),
              encode
            })
          )
        )
        const made = pipe(
          Tool.make("odd", { parameters: Schema.Struct({ text }), success: Schema.Unknown }),
          ToolPolicy.read({ keys: () => [] })
        )
        for (const unit of [undefined, () => "u"]) {
          const outcomes = yield* drive(runWith([made], { odd: ({ text }) => Effect.succeed([...text.keys()]) }, [
            ToolCall.make("a", "odd", { text: "x" }),
            ToolCall.make("b", "odd", { text: "y" })
          ], { unit }))
          assert.deepStrictEqual(outcomes.map((one) => [(one as any).result, one.duplicateOf]), [
            [["x"], undefined],
            [["y"], undefined]
          ])
        }
      }
    }))

  it.effect("run once and answer each id, with the order of members set aside and that of lists kept", () =>
    Effect.gen(function*() {
      seen.length = 0
      const args = [{ a: 1, b: { c: [1, 2], d: null } }, '{"b":{"d":null,"c":[1,2]},"a":1}', {
        a: 1,
        b: { c: [2, 1], d: null }
      }]
      const outcomes = yield* drive(
        runWith([echo], handlers, args.map((one, i) => ToolCall.make(`c${i}`, "echo", one)))
      )
      assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.id), [undefined, "c0", undefined])
      assert.strictEqual(seen.length, 2)
    }))

  it.effect('0 and -0, 1 and 1.0 are the same, 1 and "1" are not', () =>
    Effect.gen(function*() {
      const args = ['{"a":0}', '{"a":-0}', '{"a":1}', '{"a":1.0}', '{"a":"1"}']
      const outcomes = yield* drive(
        runWith([echo], handlers, args.map((one, i) => ToolCall.make(`c${i}`, "echo", one)))
      )
      assert.deepStrictEqual(outcomes.map((one) => one.duplicateOf?.position), [undefined, 0, undefined, 2, undefined])
    }))

  it.effect("of a repeatable tool are each run", () =>
    Effect.gen(function*() {
      seen.length = 0
      const outcomes = yield* drive(
        runWith([ToolPolicy.repeatable(echo)], handlers, [
          ToolCall.make("a", "echo", {}),
          ToolCall.make("b", "echo", {})
        ])
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      assert.strictEqual(seen.length, 2)
    }))

  it.effect("R5: results do not share memory, nor do failures", () =>
    Effect.gen(function*() {
      const bad = pipe(
        Tool.make("bad", {
          parameters: Schema.Struct({}),
          success: Schema.Unknown,
          failure: Schema.Struct({ left: Schema.mutableKey(Schema.Int) })
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const outcomes: ReadonlyArray<any> = yield* drive(
        runWith([echo, bad], {
          echo: () => Effect.succeed({ left: 3, deep: [{ n: 1 }] }),
          bad: () => Effect.fail({ left: 3 })
        }, [
          ToolCall.make("a", "echo", {}),
          ToolCall.make("b", "echo", {}),
          ToolCall.make("c", "bad", {}),
          ToolCall.make("d", "bad", {})
        ])
      )
      outcomes[0].result.left = 0
      outcomes[0].result.deep[0].n = 0
      outcomes[0].encoded.left = -1
      outcomes[2].failure.left = 0
      assert.deepStrictEqual(outcomes[1].result, { left: 3, deep: [{ n: 1 }] })
      assert.deepStrictEqual(outcomes[1].encoded, { left: 3, deep: [{ n: 1 }] })
      assert.deepStrictEqual(outcomes[3].failure, { left: 3 })
      assert.deepStrictEqual(outcomes[3].encoded, { left: 3 })
    }))

  it.effect('dedupe: "reads" runs each write, and "off" runs everything', () =>
    Effect.gen(function*() {
      for (const [dedupe, count] of [["all", 2], ["reads", 3], ["off", 4]] as const) {
        const { book, layer } = lab()
        const calls = ["a", "b"].flatMap((
          id
        ) => [call("write", "w", ["k"], { id: `w${id}` }), call("read", "r", [], { id: `r${id}` })])
        yield* drive(run(calls, { dedupe }).pipe(Effect.provide(layer)))
        assert.strictEqual(book.runs.length, count, dedupe)
      }
    }))
})

describe("R8: placeholders", () => {
  it.effect("are deferred with the reason, and everything else runs", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const outcomes = yield* drive(
        run([
          call("read", "call_a"),
          ToolCall.make("b", "read", { tag: "<pending>" }),
          ToolCall.make("c", "read", { tag: "" }),
          ToolCall.make("d", "read", { tag: null }),
          ToolCall.make("e", "read", { tag: "{{call_a.id}}" })
        ]).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "deferred/placeholder",
        "deferred/placeholder",
        "deferred/placeholder",
        "deferred/placeholder"
      ])
      assert.include(outcomes[4]!.message, '"call_a"')
      for (const one of outcomes.slice(1)) {
        assert.include(one.message, "tag")
        assert.deepStrictEqual([one.started, one.effect, one.retryable], [false, "none", true])
      }
      assert.strictEqual(book.runs.length, 1)
    }))

  describe("to the last sign", () => {
    const say = pipe(
      Tool.make("say", {
        parameters: Schema.Struct({
          text: Schema.String,
          list: Schema.optionalKey(Schema.Array(Schema.Unknown)),
          in: Schema.optionalKey(Schema.Struct({ text: Schema.String })),
          own: Schema.optionalKey(Schema.String)
        }),
        success: Schema.Unknown
      }),
      ToolPolicy.read({ keys: () => [] }),
      ToolPolicy.placeholders({ literal: ["own"] })
    )
    const x = (n: number) => "x".repeat(n)
    const waits = (name: string, text: string, of = 'the call "call_1"') =>
      `the argument "${name}" is ${
        JSON.stringify(text)
      }, which seems to wait for the result of ${of} of the same turn: ` +
      "call again with the value from its result"
    const marker = (name: string, text: string) =>
      `the argument "${name}" is the placeholder ${JSON.stringify(text)}: call again with the real value`
    const isNull = (name: string) =>
      `the argument "${name}" is null, which the tool does not take: call again with the real value`
    /** Arguments, with the words of what is found in them; none where they are honest, `invalid` where they are just wrong. */
    const cases: Record<string, readonly [unknown, string | undefined]> = {
      "a word in capitals": [{ text: "<Pending>" }, marker("text", "<Pending>")],
      "white space around": [{ text: " TBD " }, marker("text", "TBD")],
      "an id of one sign in a text": [{ text: "costs ${a.b} each" }, undefined],
      "an id that is a number in a text": [{ text: "$12 a day" }, undefined],
      "a place that is there": [{ text: "API_call_3" }, waits("text", "API_call_3", "call #3")],
      "a place that is not there": [{ text: "API_call_4" }, marker("text", "API_call_4")],
      "the whole of a form": [{ text: "it is $call_1$" }, waits("text", "it is $call_1$")],
      "more than the id in a form": [{ text: "it is $call_1 and so on$" }, undefined],
      "within what is searched": [{ text: `${x(1992)} \${call_1.a` }, undefined],
      "up to what is searched": [
        { text: `${x(1988)} \${call_1.a}` },
        waits("text", `${x(200)}…`)
      ],
      "behind what is searched": [{ text: `${x(1993)} \${call_1.a}` }, undefined],
      "at two hundred signs": [{ text: `${x(188)} \${call_1.a}` }, waits("text", `${x(188)} \${call_1.a}`)],
      "in a list, late": [{ text: "a", list: ["b", ["c", "<pending>"]] }, marker("list.1.1", "<pending>")],
      "in no item of a list": [{ text: "a", list: ["<b>", ["c"], {}] }, undefined],
      "before the search ends": [
        { text: "a", list: [...Array.from({ length: 24 }, () => x(2000)), "TBD"] },
        marker("list.24", "TBD")
      ],
      "behind the end of the search": [
        { text: "a", list: ["$", ...Array.from({ length: 25 }, () => x(2000)), "TBD"] },
        undefined
      ],
      "long texts count as far as they are searched": [
        { text: "a", list: ["$", ...Array.from({ length: 20 }, () => x(9000)), "TBD"] },
        marker("list.21", "TBD")
      ],
      "a null in an object's place": [{ text: "a", in: null }, isNull("in")],
      "a null inside": [{ text: "a", in: { text: null } }, isNull("in.text")],
      "a list in an object's place": [{ text: "a", in: ["", null] }, "invalid"],
      "a text in an object's place": [{ text: "a", in: "<b>" }, "invalid"],
      "a null that is literal": [{ text: "a", own: null }, "invalid"],
      "a null beside what is wrong": [{ text: 1, list: [null] }, "invalid"]
    }
    for (const [name, [args, found]] of Object.entries(cases)) {
      it.effect(name, () =>
        Effect.gen(function*() {
          const before = ["call_1", "a", "12"].map((id) => ToolCall.make(id, "say", { text: id }))
          const outcomes = yield* drive(
            runWith([say], { say: () => Effect.succeed(1) }, [...before, ToolCall.make("last", "say", args)])
          )
          const last = outcomes[3]!
          if (found === undefined) assert.deepStrictEqual([last.status, last.message], ["ok", ""])
          else if (found === "invalid") assert.deepStrictEqual(words([last]), ["error/invalid_arguments"])
          else assert.deepStrictEqual([words([last]), last.message], [["deferred/placeholder"], found])
        }))
    }
  })

  it.effect("an empty text is one wherever a text is required, and nowhere else", () =>
    Effect.gen(function*() {
      const deep = pipe(
        Tool.make("deep", {
          parameters: Schema.Struct({
            a: Schema.Struct({ b: Schema.Struct({ c: Schema.String, d: Schema.optionalKey(Schema.String) }) }),
            e: Schema.NullOr(Schema.String)
          }),
          success: Schema.Unknown
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const message = (args: unknown) =>
        Effect.map(
          drive(runWith([deep], { deep: () => Effect.succeed(1) }, [ToolCall.make("x", "deep", args)])),
          ([outcome]) => outcome!.status === "ok" ? "" : outcome!.message
        )
      assert.strictEqual(
        yield* message({ a: { b: { c: "" } }, e: "x" }),
        'the required argument "a.b.c" is an empty text: call again with the real value'
      )
      assert.strictEqual(yield* message({ a: { b: { c: "x", d: "" } }, e: "" }), "")
      assert.match(yield* message({ a: null, e: "" }), /"a" is null/)
      assert.match(yield* message({ a: [{ c: "" }], e: "" }), /^tool "deep": /)
      assert.match(yield* message({ a: "", e: "" }), /^tool "deep": /)
    }))

  it.effect("R10: are not held for approval", () =>
    Effect.gen(function*() {
      const { layer } = lab()
      const outcomes = yield* drive(run([ToolCall.make("a", "pay", { tag: "<pending>" })]).pipe(Effect.provide(layer)))
      assert.deepStrictEqual(words(outcomes), ["deferred/placeholder"])
    }))

  it.effect("a null where the tool takes none is invalid where they are not looked for", () =>
    Effect.gen(function*() {
      for (
        const [placeholders, word] of [["detect", "deferred/placeholder"], ["off", "error/invalid_arguments"]] as const
      ) {
        const made = pipe(
          Tool.make("say", { parameters: Schema.Struct({ text: Schema.String }), success: Schema.Unknown }),
          ToolPolicy.read({ keys: () => [] }),
          ToolPolicy.placeholders(placeholders)
        )
        const outcomes = yield* drive(
          runWith([made], { say: () => Effect.succeed(1) }, [ToolCall.make("a", "say", { text: null })])
        )
        assert.deepStrictEqual(words(outcomes), [word])
      }
    }))

  it.effect("are not looked for where the tool says so", () =>
    Effect.gen(function*() {
      const make = (placeholders: ToolPolicy.Placeholders) =>
        pipe(
          Tool.make("say", {
            parameters: Schema.Struct({ text: Schema.String, to: Schema.String }),
            success: Schema.Unknown
          }),
          ToolPolicy.read({ keys: () => [] }),
          ToolPolicy.placeholders(placeholders)
        )
      const status = (placeholders: ToolPolicy.Placeholders, args: unknown) =>
        Effect.map(
          drive(runWith([make(placeholders)], { say: () => Effect.succeed(1) }, [ToolCall.make("a", "say", args)])),
          (outcomes) => outcomes[0]!.status
        )
      const both = { text: "TBD", to: "TBD" }
      assert.strictEqual(yield* status("detect", both), "deferred")
      assert.strictEqual(yield* status("off", both), "ok")
      assert.strictEqual(yield* status({ literal: ["text"] }, both), "deferred")
      assert.strictEqual(yield* status({ literal: ["text"] }, { text: "TBD", to: "me" }), "ok")
      assert.strictEqual(yield* status({ literal: ["text"] }, { text: "", to: "me" }), "ok")
    }))
})

describe("R11: a response that was cut short", () => {
  for (const finishReason of ["length", "content-filter", "error"] as const) {
    it.effect(`${finishReason}: runs nothing, and each call is answered`, () =>
      Effect.gen(function*() {
        const { book, layer } = lab()
        const outcomes = yield* drive(
          run([call("read", "a"), ToolCall.make("b", "read", '{"tag"'), {
            ...call("read", "c"),
            providerExecuted: true
          }], {
            finishReason
          }).pipe(Effect.provide(layer))
        )
        assert.deepStrictEqual(words(outcomes), [
          "error/incomplete_response",
          "error/incomplete_response",
          "provider_executed"
        ])
        assert.deepStrictEqual(outcomes.map((one) => [one.started, one.retryable]), [[false, true], [false, true], [
          false,
          false
        ]])
        assert.deepStrictEqual(book.runs, [])
      }))
  }
  it.effect("asks for no handlers either", () =>
    Effect.gen(function*() {
      const kit = Toolkit.make(echo)
      const outcomes = Turn.run(kit, [ToolCall.make("a", "echo", {})], { finishReason: "length" })
      assert.deepStrictEqual(
        words(yield* drive(Effect.provide(outcomes as Effect.Effect<any, never, Turn.Runtime>, Turn.layer()))),
        ["error/incomplete_response"]
      )
    }))

  for (const finishReason of ["stop", "tool-calls", "pause", "other", "unknown"] as const) {
    it.effect(`${finishReason}: is whole`, () =>
      Effect.gen(function*() {
        const { layer } = lab()
        const outcomes = yield* drive(run([call("read", "a")], { finishReason }).pipe(Effect.provide(layer)))
        assert.deepStrictEqual(words(outcomes), ["ok"])
      }))
  }
})

describe("policies that break", () => {
  const tool = (policy: <T extends Tool.Any>(tool: T) => T) =>
    policy(Tool.make("t", { parameters: Schema.Struct({}), success: Schema.Unknown, failure: Schema.String }))
  const boom = (): never => {
    throw new Error("the policy broke")
  }
  const keys = 'the keys of the tool "t" could not be computed: '
  const key = 'the idempotency key of the tool "t" '
  const broken: Record<string, readonly [Tool.Any, string]> = {
    "keys that throw": [tool(ToolPolicy.keys(boom)), `${keys}the policy broke`],
    "keys that are no list": [
      tool(ToolPolicy.keys(() => "abc" as any)),
      `${keys}expected a list of texts, and got "abc"`
    ],
    "keys that are no texts": [
      tool(ToolPolicy.keys(() => ["a", 1] as any)),
      `${keys}expected a list of texts, and one is 1`
    ],
    "keys that are a promise": [
      tool(ToolPolicy.keys(() => Promise.resolve([]) as any)),
      `${keys}expected a list of texts, and got {}`
    ],
    "an idempotency key that throws": [tool(ToolPolicy.forward(boom)), `${key}could not be computed: the policy broke`],
    "an idempotency key that is empty": [
      tool(ToolPolicy.forward(() => "")),
      `${key}must be a text that is not empty, and is ""`
    ],
    "an idempotency key that is no text": [
      tool(ToolPolicy.forward(() => 7 as any)),
      `${key}must be a text that is not empty, and is 7`
    ]
  }
  for (const [name, [made, message]] of Object.entries(broken)) {
    it.effect(`${name}: a defect that is not run, and nothing else is touched`, () =>
      Effect.gen(function*() {
        let ran = false
        const outcomes = yield* drive(runWith([made, echo], { ...handlers, t: () => Effect.sync(() => ran = true) }, [
          ToolCall.make("a", "t"),
          ToolCall.make("b", "echo")
        ]))
        assert.deepStrictEqual(words(outcomes), ["error/defect", "ok"])
        assert.deepStrictEqual([outcomes[0]!.started, outcomes[0]!.effect], [false, "none"])
        assert.strictEqual(outcomes[0]!.message, message)
        assert.isFalse(ran)
      }))
    it.effect(`${name}: R10: nobody is asked for approval of it`, () =>
      Effect.gen(function*() {
        const held = Object.assign(Object.create(made), { needsApproval: true })
        const plan = Turn.plan(Toolkit.make(held), [ToolCall.make("a", "t")]) as Effect.Effect<TurnPlan.TurnPlan>
        const { calls } = yield* plan
        assert.deepStrictEqual(calls.map(({ code, verdict }) => [verdict, code]), [["refused", "defect"]])
      }))
  }

  it.effect("a raw JSON Schema that cannot be checked: a defect of its calls, with the reason", () =>
    Effect.gen(function*() {
      const bad = Tool.dynamic("bad", { parameters: { $ref: "#/nowhere" } as any, success: Schema.Unknown })
      const outcomes = yield* drive(runWith([bad as any, echo], { ...handlers, bad: () => Effect.succeed(1) }, [
        ToolCall.make("a", "bad", {}),
        ToolCall.make("b", "echo", {})
      ]))
      assert.deepStrictEqual(words(outcomes), ["error/defect", "ok"])
      assert.match(outcomes[0]!.message, /^the parameters of the tool "bad" cannot be checked: ./)
      assert.isFalse(outcomes[0]!.started)
    }))

  it.effect("a classifier of failures that throws gives the careful answer", () =>
    Effect.gen(function*() {
      const made = pipe(
        tool((self) => self),
        ToolPolicy.write({ keys: () => [] }),
        ToolPolicy.failures({ noEffect: boom, transient: boom })
      )
      const outcomes = yield* drive(runWith([made], { t: () => Effect.fail("no") }, [ToolCall.make("a", "t")]))
      assert.deepStrictEqual(words(outcomes), ["error/failed"])
      assert.deepStrictEqual([outcomes[0]!.effect, outcomes[0]!.retryable], ["unknown", false])
    }))
})
