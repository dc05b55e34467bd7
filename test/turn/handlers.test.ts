/** Handlers that throw anything, return anything, never settle, and toolkits that bring their own `handle`. */
import { assert, describe, it } from "@effect/vitest"
import { type Outcome, ToolCall, ToolPolicy, Turn, TurnContext, type TurnError, type TurnEvent } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as SchemaTransformation from "effect/SchemaTransformation"
import * as Stream from "effect/Stream"
import { Book, call, drive, lab, run, runWith, toolkit, tools, words } from "../utils/kit.ts"

const made = (access: "read" | "write", success: Schema.Top = Schema.Unknown) =>
  pipe(
    Tool.make("t", { parameters: Schema.Struct({}), success, failure: Schema.String }),
    access === "read" ? ToolPolicy.read({ keys: () => [] }) : ToolPolicy.write({ keys: () => [] })
  ) as Tool.Any

const honest = pipe(
  Tool.make("honest", { parameters: Schema.Struct({}), success: Schema.String }),
  ToolPolicy.read({ keys: () => [] })
)

/** What becomes of one call of a tool with this handler, beside an honest neighbour, and of a turn after it. */
const one = (tool: Tool.Any, handler: (params: any, context: any) => any, options?: Turn.Options) =>
  Effect.gen(function*() {
    const kit = Toolkit.make(tool as any, honest)
    const layer = Layer.mergeAll(
      kit.toLayer({ t: handler, honest: () => Effect.succeed("honest") } as any),
      Turn.layer()
    ) as Layer.Layer<any>
    const calls = [ToolCall.make("a", "t"), ToolCall.make("b", "honest")]
    const turns: Effect.Effect<any> = Effect.orDie(
      Effect.all([Turn.run(kit, calls, options), Turn.run(kit, [calls[1]!])]).pipe(Effect.provide(layer))
    )
    const [first, second]: ReadonlyArray<ReadonlyArray<Outcome.Outcome<any>>> = yield* drive(turns)
    assert.strictEqual(first![1]!.status, "ok", "the neighbour was touched")
    assert.strictEqual(second![0]!.status, "ok", "the next turn was touched")
    return first![0]! as any
  })

describe("a handler that breaks", () => {
  const thrown: Record<string, unknown> = {
    "an error": new Error("boom"),
    "an error without a message": new Error(""),
    "an error whose message throws": Object.defineProperty(new Error("x"), "message", {
      get() {
        throw new Error("no")
      }
    }),
    "an error with a message that is no text": Object.assign(new Error("x"), { message: { a: 1 } }),
    "a text": "boom",
    "an empty text": "",
    "nothing": undefined,
    "null": null,
    "a number": 7,
    "a big integer": 7n,
    "a symbol": Symbol("boom"),
    "an object": { code: 7 },
    "an object that contains itself": (() => {
      const loop: Record<string, unknown> = {}
      loop["self"] = loop
      return loop
    })(),
    "an object with a `toJSON` that throws": {
      toJSON() {
        throw new Error("no")
      }
    },
    "an object without a prototype": Object.create(null),
    "a function": () => 1,
    "a revoked proxy": (() => {
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      return proxy
    })(),
    "a text of a million characters": "x".repeat(1_000_000)
  }
  for (const [name, value] of Object.entries(thrown)) {
    it.effect(`${name}: a defect with words, thrown at once or as an effect`, () =>
      Effect.gen(function*() {
        const handlers: ReadonlyArray<() => any> = [
          () => {
            throw value
          },
          () => Effect.die(value),
          () => Effect.andThen(Effect.sleep(5), Effect.die(value)),
          () =>
            Effect.sync(() => {
              throw value
            })
        ]
        for (const handler of handlers) {
          for (const access of ["read", "write"] as const) {
            const outcome = yield* one(made(access), handler)
            assert.deepStrictEqual(words([outcome]), ["error/defect"])
            assert.deepStrictEqual([outcome.started, outcome.effect, outcome.retryable], [
              true,
              access === "read" ? "none" : "unknown",
              false
            ])
            assert.isAbove(outcome.message.length, 20)
            assert.isBelow(outcome.message.length, 2500)
            assert.notMatch(outcome.message, /\[object|undefined/)
          }
        }
      }))
  }

  const returned: Record<string, unknown> = {
    "nothing": undefined,
    "null": null,
    "a value": { done: true },
    "a text": "done",
    "a promise": Promise.resolve("done"),
    "a function": () => Effect.succeed(1),
    "a generator": (function*() {
      yield 1
    })()
  }
  for (const [name, value] of Object.entries(returned)) {
    it.effect(`which returns ${name} in an effect's place is a defect, and touches nobody`, () =>
      Effect.gen(function*() {
        const outcome = yield* one(made("write"), () => value)
        assert.deepStrictEqual(words([outcome]), ["error/defect"])
        assert.deepStrictEqual([outcome.started, outcome.effect], [true, "unknown"])
      }))
  }

  it.effect("fails with anything: the failure is kept, and described", () =>
    Effect.gen(function*() {
      for (const [name, value] of Object.entries(thrown)) {
        const outcome = yield* one(made("read"), () => Effect.fail(value))
        assert.deepStrictEqual(words([outcome]), ["error/failed"], name)
        assert.strictEqual(outcome.failure, value)
        assert.isAbove(outcome.message.length, 0)
        assert.strictEqual(outcome.encoded, typeof value === "string" ? value : undefined)
      }
    }))

  it.effect("a failure that JSON cannot hold has no encoded form, and a duplicate keeps it", () =>
    Effect.gen(function*() {
      const tool = pipe(
        Tool.make("t", { parameters: Schema.Struct({}), success: Schema.Unknown, failure: Schema.Unknown }),
        ToolPolicy.read({ keys: () => [] })
      )
      for (const failure of [{ n: 1n }, 1n]) {
        const outcomes: ReadonlyArray<any> = yield* drive(
          runWith([tool], { t: () => Effect.fail(failure) }, [ToolCall.make("a", "t"), ToolCall.make("b", "t")])
        )
        assert.deepStrictEqual(words(outcomes), ["error/failed", "error/failed"])
        assert.deepStrictEqual(outcomes.map((one) => [one.failure, one.encoded]), [[failure, undefined], [
          failure,
          undefined
        ]])
        assert.strictEqual(outcomes[1].duplicateOf.position, 0)
      }
    }))

  it.effect("R29: results that JSON cannot hold are unencodable, and a write has taken effect", () =>
    Effect.gen(function*() {
      const loop: Record<string, unknown> = {}
      loop["self"] = loop
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      const odd: Record<string, unknown> = {
        undefined: undefined,
        bigint: 1n,
        NaN: NaN,
        Infinity: Infinity,
        function: () => 1,
        symbol: Symbol("x"),
        date: new Date(0),
        error: new Error("x"),
        bytes: new Uint8Array(3),
        map: new Map([[1, 2]]),
        loop,
        "a date inside": { a: [new Date(0)] },
        "undefined in a list": [undefined],
        "toJSON that throws": {
          toJSON() {
            throw new Error("no")
          }
        },
        "a getter that throws": Object.defineProperty({}, "a", {
          enumerable: true,
          get() {
            throw new Error("no")
          }
        }),
        "a revoked proxy": proxy,
        "a revoked proxy inside": { proxy },
        deep: (() => {
          let value: unknown = 1
          for (let i = 0; i < 100_000; i++) value = [value]
          return value
        })()
      }
      for (const [name, value] of Object.entries(odd)) {
        for (const access of ["read", "write"] as const) {
          const outcome = yield* one(made(access), () => Effect.succeed(value))
          assert.deepStrictEqual(words([outcome]), ["error/unencodable_result"], name)
          assert.deepStrictEqual([outcome.started, outcome.effect, outcome.retryable], [
            true,
            access === "read" ? "none" : "applied",
            false
          ])
        }
      }
    }))

  it.effect("a result that the success schema does not take is unencodable", () =>
    Effect.gen(function*() {
      const outcome = yield* one(made("write", Schema.Struct({ n: Schema.Int })), () => Effect.succeed({ n: "x" }))
      assert.deepStrictEqual(words([outcome]), ["error/unencodable_result"])
      assert.strictEqual(outcome.effect, "applied")
    }))

  it.effect("a success schema that breaks while it encodes touches nobody", () =>
    Effect.gen(function*() {
      const broken = Schema.String.check(Schema.makeFilter(() => {
        throw new Error("the filter broke")
      }))
      const outcome = yield* one(made("write", broken), () => Effect.succeed("x"))
      assert.deepStrictEqual(words([outcome]), ["error/unencodable_result"])
      assert.strictEqual(outcome.effect, "applied")
    }))

  it.effect("R15: one that never ends, deaf or not, to encode or to decode for a duplicate, keeps no turn for ever", () =>
    Effect.gen(function*() {
      for (const never of [Effect.never, Effect.uninterruptible(Effect.never)]) {
        const of = (step: "decode" | "encode") => {
          const ways = { decode: Effect.succeed<string>, encode: Effect.succeed<string>, [step]: () => never }
          return Schema.String.pipe(Schema.decodeTo(Schema.String, SchemaTransformation.transformEffect(ways)))
        }
        for (const options of [{}, { deadline: 10 }]) {
          const outcome = yield* one(made("write", of("encode")), () => Effect.succeed("x"), options)
          assert.deepStrictEqual([...words([outcome]), outcome.effect], ["error/unencodable_result", "applied"])
          assert.include(outcome.message, "10000 ms")
          const twins = yield* drive(
            runWith([made("write", of("decode"))], { t: () => Effect.succeed("x") }, [
              ToolCall.make("a", "t"),
              ToolCall.make("b", "t")
            ], options)
          )
          assert.deepStrictEqual(twins.map((twin: any) => [twin.status, twin.result]), [["ok", "x"], ["ok", "x"]])
        }
      }
    }))

  it.effect("members that are undefined are left out, as in JSON", () =>
    Effect.gen(function*() {
      const outcome = yield* one(made("read"), () => Effect.succeed({ a: 1, b: undefined }))
      assert.strictEqual(outcome.status, "ok")
    }))

  it.effect("that fails and breaks at once is a defect", () =>
    Effect.gen(function*() {
      const outcome = yield* one(made("write"), () => Effect.ensuring(Effect.fail("no"), Effect.die("boom")))
      assert.deepStrictEqual(words([outcome]), ["error/defect"])
    }))

  it.effect("R3: failures are classed by the tool, carefully by default", () =>
    Effect.gen(function*() {
      const classed = (access: "read" | "write", forward: boolean) =>
        pipe(
          made(access),
          ToolPolicy.failures<any>({
            noEffect: (failure) => failure === "clean",
            transient: (failure) => failure !== "final"
          }),
          forward ? ToolPolicy.forward<any>(() => "key") : (tool) => tool
        )
      const facts = (outcome: Outcome.Outcome<any>) => [outcome.effect, outcome.retryable]
      const fails = (failure: string) => () => Effect.fail(failure)
      assert.deepStrictEqual(facts(yield* one(classed("read", false), fails("x"))), ["none", true])
      assert.deepStrictEqual(facts(yield* one(classed("read", false), fails("final"))), ["none", false])
      assert.deepStrictEqual(facts(yield* one(classed("write", false), fails("x"))), ["unknown", false])
      assert.deepStrictEqual(facts(yield* one(classed("write", false), fails("clean"))), ["none", true])
      assert.deepStrictEqual(facts(yield* one(classed("write", true), fails("x"))), ["unknown", true])
      assert.deepStrictEqual(facts(yield* one(made("write"), fails("x"))), ["unknown", false])
      assert.deepStrictEqual(facts(yield* one(made("read"), fails("x"))), ["none", false])
    }))
})

describe("a toolkit's failure mode", () => {
  for (const failureMode of ["error", "return"] as const) {
    it.effect(`${failureMode}: a declared failure is the call's failure`, () =>
      Effect.gen(function*() {
        const tool = Tool.make("t", {
          parameters: Schema.Struct({}),
          success: Schema.String,
          failure: Schema.Struct({ why: Schema.String }),
          failureMode
        })
        const outcome = yield* one(tool, () => Effect.fail({ why: "full" }))
        assert.deepStrictEqual(words([outcome]), ["error/failed"])
        assert.deepStrictEqual([outcome.failure, outcome.encoded], [{ why: "full" }, { why: "full" }])
      }))
  }
})

describe("what a handler knows of its call", () => {
  it.effect("its place, its tool, its attempt, and its key", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const { book, layer } = lab()
      const note = Effect.map(TurnContext.CurrentCall, (current) => {
        const { attempt, id, idempotencyKey, identity, position, tool } = current!
        seen.push({ attempt, id, idempotencyKey, turn: identity.turn, tenant: identity.tenant, position, tool })
        return 1
      })
      book.script.set("x", { run: note })
      book.script.set("y", { run: note })
      yield* drive(run([call("read", "x"), call("put", "y")], { turn: "one" }).pipe(Effect.provide(layer)))
      const common = { attempt: 1, turn: "one", tenant: "t" }
      assert.deepStrictEqual(seen, [
        { ...common, id: "x", idempotencyKey: undefined, position: 0, tool: "read" },
        { ...common, id: "y", idempotencyKey: "key:y", position: 1, tool: "put" }
      ])
      assert.strictEqual(yield* Effect.map(TurnContext.CurrentCall, (current) => current), undefined)
    }))

  it.effect("R35: a turn without an id gets a random one of its own", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* drive(Effect.andThen(run([call("read", "a")]), run([call("read", "b")])).pipe(Effect.provide(layer)))
      const [a, b] = [book.of("a").turn, book.of("b").turn]
      assert.notStrictEqual(a, b)
      assert.match(a, /^turn_[0-9a-z]{22}$/)
    }))
})

describe("preliminary results", () => {
  it.effect("are events, in order, and not the answer", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { a: { ms: 40, notes: [10, 30] } } })
      const outcomes = yield* drive(run([call("read", "a")], { onEvent: book.note }).pipe(Effect.provide(layer)))
      assert.strictEqual((outcomes[0] as any).result, "a")
      assert.deepStrictEqual(
        (book.tagsOf("CallProgressed") as ReadonlyArray<TurnEvent.CallProgressed>).map((
          event
        ) => [event.at, event.result]),
        [[10, "a at 10"], [30, "a at 30"]]
      )
    }))

  it.effect("that cannot be encoded, or come after the end, hurt nobody", () =>
    Effect.gen(function*() {
      let late: Effect.Effect<void> = Effect.void
      const events: Array<TurnEvent.TurnEvent> = []
      const outcome = yield* one(
        made("read", Schema.Struct({ n: Schema.Int })),
        (_, { preliminary }) =>
          Effect.gen(function*() {
            late = preliminary({ n: 2 })
            yield* preliminary({ n: "x" })
            yield* preliminary(1n)
            return { n: 1 }
          }),
        {
          onEvent: (event) => {
            events.push(event)
          }
        }
      )
      assert.strictEqual(outcome.status, "ok")
      yield* late
      assert.strictEqual(events.filter((event) => event._tag === "CallProgressed").length, 2)
    }))
})

describe("a toolkit with its handlers (WithHandler)", () => {
  const wrapped = (script: Record<string, Parameters<Book["script"]["set"]>[1]>) =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script })
      const seen: Array<string> = []
      const given = yield* toolkit.pipe(Effect.provide(layer))
      const kit = {
        ...given,
        handle: ((name: any, params: any, id: any) => {
          seen.push(name)
          return given.handle(name, params, id)
        }) as typeof given.handle
      }
      return { book, layer, kit, seen }
    })

  it.effect("is run through its own `handle`, under the same rules", () =>
    Effect.gen(function*() {
      const { book, kit, layer, seen } = yield* wrapped({
        bad: { end: "fail" },
        broken: { end: "die" },
        own: { end: "interrupt" },
        note: { ms: 40, notes: [15] },
        odd: { result: 1n }
      })
      const outcomes = yield* drive(
        Turn.run(kit, [
          call("write", "a", ["k"]),
          call("read", "b", ["k"]),
          call("read", "bad"),
          call("read", "broken"),
          call("read", "own"),
          call("read", "note"),
          call("write", "odd", ["o"]),
          ToolCall.make("x", "read", { tag: 7 }),
          call("nobody" as any, "y"),
          call("pay", "p", ["p"]),
          call("read", "b", ["k"], { id: "again" })
        ], { onEvent: book.note }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        "ok",
        "ok",
        "error/failed",
        "error/defect",
        "cancelled/by_itself",
        "ok",
        "error/unencodable_result",
        "error/invalid_arguments",
        "error/unknown_tool",
        "pending_approval",
        "ok"
      ])
      assert.deepStrictEqual(book.span("b"), [10, 20])
      assert.deepStrictEqual(seen.toSorted(), ["read", "read", "read", "read", "read", "write", "write"])
      assert.strictEqual((outcomes[2] as any).failure, "bad failed")
      assert.strictEqual(outcomes[6]!.effect, "applied")
      assert.deepStrictEqual(
        (book.tagsOf("CallProgressed") as ReadonlyArray<TurnEvent.CallProgressed>).map((
          event
        ) => [event.at, event.result]),
        [[15, "note at 15"]]
      )
    }))

  it.effect("R29: whose success its schema refuses has taken effect, and has no result", () =>
    Effect.gen(function*() {
      const strict = pipe(
        Tool.make("strict", { parameters: Schema.Struct({}), success: Schema.Struct({ n: Schema.Int }) }),
        ToolPolicy.write({ keys: () => [] })
      )
      const made = Toolkit.make(strict)
      const kit = yield* made.pipe(Effect.provide(made.toLayer({ strict: () => Effect.succeed({ n: "x" } as any) })))
      const [outcome] = yield* drive(Turn.run(kit, [ToolCall.make("a", "strict")]).pipe(Effect.provide(Turn.layer())))
      assert.deepStrictEqual([words([outcome!]), outcome!.effect, outcome!.retryable], [
        ["error/unencodable_result"],
        "applied",
        false
      ])
    }))

  it.effect("each toolkit is run through its own, also with the same tools in the same program", () =>
    Effect.gen(function*() {
      const { kit, layer } = yield* wrapped({})
      const other = {
        ...kit,
        handle: (() =>
          Effect.succeed(Stream.succeed({
            result: "other",
            encodedResult: "other",
            isFailure: false,
            preliminary: false
          }))) as unknown as typeof kit.handle
      }
      const both = Effect.all([Turn.run(kit, [call("read", "a")]), Turn.run(other, [call("read", "a")])])
      const outcomes = yield* drive(both.pipe(Effect.provide(layer)))
      assert.deepStrictEqual(outcomes.map(([one]) => [(one as any).result, (one as any).encoded]), [
        ["a", "a"],
        ["other", "other"]
      ])
    }))

  it.effect("R20: its writes are not cut, its reads are, and a stop waits", () =>
    Effect.gen(function*() {
      const { book, kit, layer } = yield* wrapped({ w: { ms: 100 }, r: { ms: 100 } })
      const outcomes = yield* drive(
        Turn.run(kit, [call("write", "w", ["k"]), call("read", "r")], { deadline: 20 }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), ["ok", "cancelled/by_deadline"])
      assert.deepStrictEqual([book.span("w"), book.span("r")], [[0, 100], [0, 20]])
    }))

  it.effect("whose `handle` fails, breaks or answers nothing", () =>
    Effect.gen(function*() {
      const { kit, layer } = yield* wrapped({})
      const withHandle = (handle: () => any) =>
        Effect.map(
          drive(
            Turn.run({ ...kit, handle: handle as any }, [call("read", "a"), call("write", "b")]).pipe(
              Effect.provide(layer)
            )
          ),
          words
        )
      assert.deepStrictEqual(yield* withHandle(() => Effect.succeed(Stream.empty)), ["error/defect", "error/defect"])
      assert.deepStrictEqual(yield* withHandle(() => Effect.die("boom")), ["error/defect", "error/defect"])
      assert.deepStrictEqual(
        yield* withHandle(() => {
          throw new Error("boom")
        }),
        ["error/defect", "error/defect"]
      )
      assert.deepStrictEqual(yield* withHandle(() => undefined), ["error/defect", "error/defect"])
    }))
})

describe("misuse that types would stop", () => {
  it.effect("a handler, or a backend's layer, that is missing is misuse: it is named, and nothing runs", () =>
    Effect.gen(function*() {
      const kit = Toolkit.make(tools.read, tools.write)
      const book = new Book()
      const partial = Toolkit.make(tools.read).toLayer({ read: book.handler("read") as any })
      const noHandler = yield* drive(
        Effect.flip(Turn.run(kit, [call("read", "a"), call("write", "b")])).pipe(
          Effect.provide(Layer.mergeAll(partial, Turn.layer()) as Layer.Layer<any>)
        ) as Effect.Effect<TurnError.TurnError>
      )
      assert.deepInclude(noHandler.reason, { _tag: "MissingService", tool: "write" })
      assert.include(noHandler.message, "handler")
      const noBackend = yield* drive(
        Effect.flip(run([call("read", "b"), call("fetch", "a")])).pipe(
          Effect.provide(
            Layer.mergeAll(book.layer, Turn.layer(), Layer.succeedContext(Context.empty())) as Layer.Layer<any>
          )
        ) as Effect.Effect<TurnError.TurnError>
      )
      assert.deepInclude(noBackend.reason, { _tag: "MissingService", tool: "fetch" })
      // What is not run needs no handler.
      const notRun = yield* drive(
        Turn.run(kit, [{ ...call("write", "b"), providerExecuted: true }, call("read", "a")]).pipe(
          Effect.provide(Layer.mergeAll(partial, Turn.layer()) as Layer.Layer<any>)
        ) as Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>>
      )
      assert.deepStrictEqual(words(notRun), ["provider_executed", "ok"])
      book.runs.length = 0
      assert.include(noBackend.message, "backend")
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("calls without ids or names, options that cannot be: a typed error, and nothing runs", () =>
    Effect.gen(function*() {
      const bad: ReadonlyArray<readonly [any, any, string]> = [
        ["abc", undefined, "InvalidInput"],
        [null, undefined, "InvalidInput"],
        [[null], undefined, "InvalidInput"],
        [[{ id: "a" }], undefined, "InvalidInput"],
        [[{ name: "read" }], undefined, "InvalidInput"],
        [[{ id: 1, name: "read" }], undefined, "InvalidInput"],
        [[], { execution: 0 }, "InvalidLimit"],
        [[], { execution: 1.5 }, "InvalidLimit"],
        [[], { execution: "fast" }, "InvalidLimit"],
        [[], { dedupe: "some" }, "InvalidInput"],
        [[], { deadline: 0 }, "InvalidLimit"],
        [[], { deadline: -1 }, "InvalidLimit"],
        [[], { deadline: NaN }, "InvalidLimit"],
        [[], { deadline: Infinity }, "InvalidLimit"],
        [[], { deadline: 3_000_000_000 }, "InvalidLimit"],
        [[], { deadline: "soon" }, "InvalidLimit"],
        [[], { grace: -1 }, "InvalidLimit"],
        [[], { grace: { reads: NaN } }, "InvalidLimit"],
        [[], { grace: { writes: "never" } }, "InvalidLimit"],
        [[], { limits: { maxBytes: 0 } }, "InvalidLimit"],
        [[], { limits: { maxDepth: -1 } }, "InvalidLimit"],
        [[], { limits: { maxKeys: 1.5 } }, "InvalidLimit"]
      ]
      const { layer } = lab()
      for (const [calls, options, reason] of bad) {
        for (const what of [Effect.asVoid(run(calls, options)), Effect.asVoid(Turn.plan(toolkit, calls, options))]) {
          const error = yield* Effect.flip(what.pipe(Effect.provide(layer)))
          assert.strictEqual(error.reason._tag, reason, JSON.stringify(options))
          assert.isAbove(error.message.length, 20)
        }
      }
    }))

  it.effect("R1: what a whole cause holds never reaches the error channel", () =>
    Effect.gen(function*() {
      const boom = (): never => {
        throw new Error("boom")
      }
      const hostile = Object.fromEntries(["a", "b", "c"].map((name) => [name, boom]))
      const outcomes = yield* drive(
        runWith(
          ["a", "b", "c"].map((name) => Tool.make(name, { parameters: Schema.Struct({}), success: Schema.Unknown })),
          hostile,
          ["a", "b", "c"].map((name) => ToolCall.make(name, name))
        )
      )
      assert.deepStrictEqual(words(outcomes), ["error/defect", "error/defect", "error/defect"])
    }))
})
