/** The words that a model reads, each in full: what is wrong, where, and what it may do about it. */
import { assert, describe, it } from "@effect/vitest"
import { type Outcome, ToolCall, ToolPolicy, type Turn } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import { Api, call, drive, fork, lab, run, runWith } from "../utils/kit.ts"

const keyed = { keys: () => [] }
const words = (outcomes: ReadonlyArray<Outcome.Outcome<any>>) => outcomes.map(({ message }) => message)

/** What one call of a tool with this handler is answered. */
const one = (
  tool: Tool.Any,
  handler: (params: any) => any,
  args: unknown = {},
  options?: Turn.Options
): Effect.Effect<string, unknown> =>
  Effect.map(
    drive(runWith([tool], { [tool.name]: handler }, [ToolCall.make("a", tool.name, args)], options)),
    ([outcome]) => outcome!.message
  )

const made = (access: "read" | "write", success: Schema.Top = Schema.Unknown, failure: Schema.Top = Schema.Unknown) =>
  pipe(
    Tool.make("t", { parameters: Schema.Struct({}), success, failure }),
    access === "read" ? ToolPolicy.read(keyed) : ToolPolicy.write(keyed)
  ) as Tool.Any

describe("R6: arguments that are refused", () => {
  const takes = "; it takes { n?: number, deep?: any value }"
  const anything = pipe(
    Tool.make("t", {
      parameters: Schema.Struct({ n: Schema.optionalKey(Schema.Finite), deep: Schema.optionalKey(Schema.Unknown) }),
      success: Schema.Unknown
    }),
    ToolPolicy.read(keyed)
  )
  class Thing {
    readonly a = 1
  }
  const refused: ReadonlyArray<readonly [unknown, string, Turn.Options?]> = [
    ["[1]", "the arguments must be one JSON object, and are a list"],
    ["null", "the arguments must be one JSON object, and are null"],
    ["1", "the arguments must be one JSON object, and are a number"],
    [true, "the arguments must be one JSON object, and are a boolean"],
    ['"x"', "the arguments must be one JSON object, and are a string"],
    [{ n: NaN }, 'the number at "n" is not finite'],
    [{ deep: [0, { x: [Infinity] }] }, 'the number at "deep.1.x.0" is not finite'],
    [{ deep: undefined }, 'the value at "deep" is a undefined, which JSON cannot hold'],
    [{ deep: { f: () => 1 } }, 'the value at "deep.f" is a function, which JSON cannot hold'],
    [{ deep: [new Thing()] }, 'the value at "deep.0" is no plain JSON value'],
    [new Thing(), 'the value at "" is no plain JSON value'],
    [{ deep: [NaN, () => 1] }, 'the number at "deep.0" is not finite'],
    [{ deep: { a: { b: {} } } }, "the arguments are nested too deeply", { limits: { maxDepth: 3 } }],
    ['{"n":12345}', "the arguments have 11 characters: at most 10 are taken", { limits: { maxBytes: 10 } }],
    [{ deep: "12345" }, "the arguments hold more than the 8 characters that are taken", { limits: { maxBytes: 8 } }],
    [{ deep: [1, NaN] }, 'the number at "deep.1" is not finite', { limits: { maxKeys: 3 } }],
    [{ n: 1, deep: [1] }, "the arguments have more than 2 members and items", { limits: { maxKeys: 2 } }]
  ]
  it.effect("say what was expected, what came, and where", () =>
    Effect.gen(function*() {
      const got = []
      for (const [args, , options] of refused) got.push(yield* one(anything, () => Effect.succeed(1), args, options))
      assert.deepStrictEqual(got, refused.map(([, text]) => `tool "t": ${text}${takes}`))
      const cut = yield* one(anything, () => Effect.succeed(1), '{"n":')
      assert.isTrue(cut.startsWith('tool "t": the arguments are not valid JSON: ') && cut.endsWith(takes), cut)
    }))

  it.effect("limits hold to the last character, level and member", () =>
    Effect.gen(function*() {
      const taken: ReadonlyArray<readonly [unknown, Turn.Options["limits"]]> = [
        ['{"n":1234}', { maxBytes: 10 }],
        [{ deep: "1234" }, { maxBytes: 8 }],
        [{ deep: [[]] }, { maxDepth: 3 }],
        [{ n: 1, deep: [1] }, { maxKeys: 3 }],
        [{ deep: [1, 2] }, { maxKeys: 3 }]
      ]
      for (const [args, limits] of taken) {
        assert.strictEqual(yield* one(anything, () => Effect.succeed(1), args, { limits }), "", JSON.stringify(args))
      }
    }))

  it.effect("say what the tool takes, in a line", () =>
    Effect.gen(function*() {
      const many = Object.fromEntries(Array.from({ length: 13 }, (_, i) => [`a${i}`, Schema.String]))
      const { a12: _, ...twelve } = many
      const long = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`${i}`.padStart(60, "x"), Schema.String]))
      const shown = (n: number) => Array.from({ length: n }, (_, i) => `a${i}: string`).join(", ")
      const shapes: ReadonlyArray<readonly [Schema.Struct.Fields, string]> = [
        [{}, "{}"],
        [
          {
            city: Schema.String,
            stars: Schema.Literals([3, 4]),
            unit: Schema.Literals(["km", "miles"]),
            either: Schema.Union([Schema.String, Schema.Boolean]),
            list: Schema.Array(Schema.String),
            maybe: Schema.optionalKey(Schema.NullOr(Schema.String))
          },
          '{ city: string, stars: 3 | 4, unit: "km" | "miles", either: string | boolean, list: array, maybe?: string | null }'
        ],
        [twelve, `{ ${shown(12)} }`],
        [many, `{ ${shown(12)}, … }`],
        [long, `{ ${Object.keys(long).map((name) => `${name}: string`).join(", ").slice(0, 500)} }`]
      ]
      for (const [fields, text] of shapes) {
        const tool = Tool.make("t", { parameters: Schema.Struct(fields), success: Schema.Unknown })
        const message = yield* one(tool, () => Effect.succeed(1), "[]")
        assert.strictEqual(message, `tool "t": the arguments must be one JSON object, and are a list; it takes ${text}`)
      }
      const raw = (parameters: object) => Tool.dynamic("t", { parameters: parameters as any, success: Schema.Unknown })
      const given = raw({
        type: "object",
        properties: { a: { type: ["string", "null"] }, b: { anyOf: [{ type: "string" }, {}] } }
      })
      assert.include(
        yield* one(given, () => Effect.succeed(1), "[]"),
        "; it takes { a?: string | null, b?: string | any value }"
      )
    }))
})

describe("R7: a tool that does not exist", () => {
  const answered = (name: string, names: ReadonlyArray<string>) =>
    Effect.map(
      drive(runWith(
        names.map((name) => Tool.make(name, { parameters: Schema.Struct({}), success: Schema.Unknown })),
        Object.fromEntries(names.map((name) => [name, () => Effect.succeed(1)])),
        [ToolCall.make("a", name, {})]
      )),
      ([outcome]) => outcome!.message
    )

  it.effect("is named, with at most three of the nearest, nearest first, or with what there is", () =>
    Effect.gen(function*() {
      const flights = ["book_flights", "book_flight", "look_flight", "cook_flight", "hook_flight", "weather"]
      assert.strictEqual(
        yield* answered("book_flihgt", flights),
        'there is no tool "book_flihgt": the nearest names are book_flight, book_flights, look_flight'
      )
      assert.strictEqual(
        yield* answered(" Weathr ", flights),
        'there is no tool " Weathr ": the nearest name is weather'
      )
      for (
        const [asked, known] of [["WEATHER", "weather"], ["wether", "WEATHER"], ["            weather", "weather"]]
      ) {
        assert.strictEqual(
          yield* answered(asked!, [known!]),
          `there is no tool "${asked}": the nearest name is ${known}`
        )
      }
      assert.strictEqual(
        yield* answered("zzz", flights),
        `there is no tool "zzz": the tools are ${flights.join(", ")}`
      )
      assert.strictEqual(yield* answered("ab", ["cd"]), 'there is no tool "ab": the nearest name is cd')
      assert.strictEqual(yield* answered("abcdef", ["abcxyz"]), 'there is no tool "abcdef": the nearest name is abcxyz')
      assert.strictEqual(yield* answered("abcdef", ["abwxyz"]), 'there is no tool "abcdef": the tools are abwxyz')
      assert.strictEqual(yield* answered("a", []), 'there is no tool "a": there are no tools at all')
      const many = Array.from({ length: 9 }, (_, i) => `tool_number_${i}`)
      assert.strictEqual(
        yield* answered("zzz", many.slice(0, 8)),
        `there is no tool "zzz": the tools are ${many.slice(0, 8).join(", ")}`
      )
      assert.strictEqual(
        yield* answered("zzz", many),
        `there is no tool "zzz": the tools are ${many.slice(0, 8).join(", ")}, and 1 more`
      )
    }))

  it.effect("is shown by the beginning of its name, and one that is far too long is not compared", () =>
    Effect.gen(function*() {
      const name = (n: number) => "x".repeat(n)
      assert.strictEqual(
        yield* answered(name(80), [name(40)]),
        `there is no tool "${name(80)}": the nearest name is ${name(40)}`
      )
      assert.strictEqual(
        yield* answered(name(81), [name(40)]),
        `there is no tool "${name(80)}…": the tools are ${name(40)}`
      )
    }))
})

describe("R30: what a handler came to", () => {
  const thrown: ReadonlyArray<readonly [unknown, string]> = [
    [new Error("boom"), "boom"],
    [new TypeError("boom"), "TypeError: boom"],
    [new Error(""), "Error (without a message)"],
    [new RangeError(""), "RangeError (without a message)"],
    [Object.assign(new Error("boom"), { name: "" }), "boom"],
    [Object.assign(new Error("boom"), { name: 7 }), "boom"],
    [Object.assign(new Error("x"), { message: 7 }), "Error (without a message)"],
    ["boom", "boom"],
    ["", "an empty text was thrown"],
    [undefined, "nothing was thrown (no value)"],
    [null, "null was thrown"],
    [7, "thrown: 7"],
    [7n, "thrown: 7n"],
    [false, "thrown: false"],
    [Symbol("boom"), "thrown: Symbol(boom)"],
    [() => 1, "a function was thrown"],
    [{ code: 7 }, 'thrown: {"code":7}'],
    [{ toJSON: () => undefined }, "an object was thrown"],
    [{
      toJSON: () => {
        throw new Error("no")
      }
    }, "something was thrown that cannot be described"],
    ["x".repeat(2000), "x".repeat(2000)],
    ["x".repeat(2001), `${"x".repeat(2000)}…`]
  ]
  it.effect("a defect: what was thrown, and for a write that nobody knows its effect", () =>
    Effect.gen(function*() {
      for (const [value, text] of thrown) {
        assert.strictEqual(yield* one(made("read"), () => Effect.die(value)), `the handler broke: ${text}`)
      }
      assert.strictEqual(
        yield* one(made("write"), () => Effect.die("boom")),
        "the handler broke: boom; whether it took effect is unknown; find out before you call it again, it could be done twice"
      )
    }))

  class Full extends Schema.TaggedError<Full>()("Full", { hotel: Schema.String }) {}
  const failures: ReadonlyArray<readonly [unknown, string]> = [
    ["no room", "no room"],
    [new Error("boom"), "boom"],
    [new TypeError("boom"), "TypeError: boom"],
    [new Full({ hotel: "h1" }), 'Full: {"_tag":"Full","hotel":"h1"}'],
    [{ message: "no room", code: 7 }, "no room"],
    [{ message: "", code: 7 }, '{"message":"","code":7}'],
    [{ message: 7 }, '{"message":7}'],
    [{ code: 7 }, '{"code":7}'],
    [{ message: "x".repeat(2001) }, `${"x".repeat(2000)}…`],
    [{ message: "x".repeat(2000) }, "x".repeat(2000)],
    [{ code: "x".repeat(1989) }, `{"code":"${"x".repeat(1989)}"}`],
    [{ code: "x".repeat(1990) }, `{"code":"${"x".repeat(1990)}"`.slice(0, 2000) + "…"],
    [Object.assign(new Error(""), { name: 7 }), '{"name":7}'],
    [null, "null was thrown"],
    [7, "thrown: 7"]
  ]
  it.effect("a failure: its own words, or what it is made of", () =>
    Effect.gen(function*() {
      for (const [value, text] of failures) {
        assert.strictEqual(yield* one(made("read"), () => Effect.fail(value)), text)
      }
      // What the failure schema makes of it is what is told.
      const secret = Schema.Struct({ code: Schema.Finite })
      assert.strictEqual(
        yield* one(made("read", Schema.Unknown, secret), () => Effect.fail({ code: 7, password: "x" })),
        '{"code":7}'
      )
      assert.strictEqual(
        yield* one(made("write"), () => Effect.fail("no room")),
        "no room; whether it took effect is unknown; find out before you call it again, it could be done twice"
      )
    }))

  const loop: Record<string, unknown> = { a: [] }
  ;(loop["a"] as Array<unknown>).push(loop)
  const deep = (levels: number): unknown => {
    let value: unknown = 1
    for (let i = 0; i < levels; i++) value = [value]
    return value
  }
  class Thing {
    readonly a = 1
  }
  const results: ReadonlyArray<readonly [unknown, string]> = [
    [null, ""],
    [undefined, "undefined"],
    [1n, "a bigint"],
    [NaN, "NaN"],
    [-Infinity, "-Infinity"],
    [() => 1, "a function"],
    [Symbol("x"), "a symbol"],
    [new Date(0), "an instance of Date, which JSON cannot hold"],
    [{ at: new Date(0) }, 'an object with an instance of Date at "at", which JSON cannot hold'],
    [[{ at: [new Thing()] }], 'an object with an instance of Thing at "0.at.0", which JSON cannot hold'],
    [
      new (class {
        readonly a = 1
      })(),
      "no plain object, which JSON cannot hold"
    ],
    [Object.create({ constructor: undefined }), "no plain object, which JSON cannot hold"],
    [
      Object.create({
        get constructor() {
          throw new Error("no")
        }
      }),
      "no plain object, which JSON cannot hold"
    ],
    [loop, "a value that contains itself"],
    [deep(501), ""],
    [deep(502), "nested too deeply"],
    [{ a: [NaN] }, 'a value with NaN at "a.0"'],
    [{ a: NaN }, 'a value with NaN at "a"'],
    [[undefined], 'a value with undefined at "0"'],
    [{
      a: {
        get b() {
          throw new Error("no")
        }
      }
    }, 'an object whose member "a.b" cannot be read'],
    [{
      get b() {
        throw new Error("no")
      }
    }, 'an object whose member "b" cannot be read'],
    [
      new Proxy({}, {
        ownKeys: () => {
          throw new Error("no")
        }
      }),
      "an object that cannot be read"
    ]
  ]
  it.effect("R29: a result that JSON cannot hold: what stands where, and that a write has landed", () =>
    Effect.gen(function*() {
      for (const [value, text] of results) {
        assert.strictEqual(
          yield* one(made("read"), () => Effect.succeed(value)),
          text === "" ? "" : `the result cannot be given: it is ${text}`
        )
      }
      assert.strictEqual(
        yield* one(made("write"), () => Effect.succeed(1n)),
        "the call took effect, but its result cannot be given: it is a bigint; do not call it again for the result"
      )
      assert.strictEqual(
        yield* one(made("read", Schema.Struct({ n: Schema.Finite })), () => Effect.succeed({ n: "x" })),
        "the result cannot be given: it is not of the form that the tool's success schema asks for (n: Expected number)"
      )
    }))

  it.effect("R29: a value that stands in many places is counted in each of them", () =>
    Effect.gen(function*() {
      let value: unknown = 1
      for (let i = 0; i < 40; i++) value = [value, value]
      assert.strictEqual(
        yield* one(made("read"), () => Effect.succeed(value)),
        "the result cannot be given: it is too large: it has more than 5000000 members"
      )
      const shared = { a: 1 }
      assert.strictEqual(yield* one(made("read"), () => Effect.succeed([shared, shared, { shared }])), "")
    }))
})

describe("R30: calls that were stopped, or took too long", () => {
  const unknown = "whether it took effect is unknown; "
  const read = "it only reads, so nothing was changed"
  const write = `${unknown}find out before you call it again, it could be done twice`
  const put = `${unknown}calling it again with the same arguments is safe, for it carries a key`

  it.effect("say what stopped them, and what became of them", () =>
    Effect.gen(function*() {
      const grace = { reads: 0, writes: 0 } as const
      const slow = { script: Object.fromEntries(["a", "b", "c"].map((tag) => [tag, { ms: Infinity }])) }
      const calls = [
        call("read", "a"),
        call("write", "b"),
        call("put", "c"),
        call("write", "d", ["x"]),
        call("bare", "e")
      ]
      const running = (why: string) => [
        `${why} while it was running; ${read}`,
        `${why} while it was running; ${write}`,
        `${why} while it was running; ${put}`
      ]
      const { layer } = lab({ script: { ...slow.script, d: { ms: Infinity } } })
      const byCaller = "it was stopped by the caller"
      assert.deepStrictEqual(
        words(yield* drive(run(calls, { cancelOn: Effect.sleep(5), grace }).pipe(Effect.provide(layer)))),
        [
          ...running(byCaller),
          `${byCaller} while it was running; ${write}`,
          `${byCaller} before it was started: nothing was done`
        ]
      )
      const byDeadline = "the deadline of the turn passed"
      assert.deepStrictEqual(
        words(yield* drive(run(calls.slice(0, 3), { deadline: 5, grace }).pipe(Effect.provide(lab(slow).layer)))),
        running(byDeadline)
      )
    }))

  it.effect("a call that interrupts itself, and one that a sibling stopped", () =>
    Effect.gen(function*() {
      const { layer } = lab({ script: { a: { end: "interrupt" }, b: { ms: 50 } } })
      const outcomes = yield* drive(
        run([call("read", "a"), call("read", "b")], {
          siblings: { name: "first", stops: () => true }
        }).pipe(Effect.provide(layer))
      )
      assert.deepStrictEqual(words(outcomes), [
        `it interrupted itself while it was running; ${read}`,
        `it was stopped because another call of the turn settled the matter while it was running; ${read}`
      ])
    }))

  it.effect("clocks say which they are, and how long", () =>
    Effect.gen(function*() {
      const { layer } = lab({
        api: { concurrency: 1 },
        script: { a: { ms: Infinity }, b: { ms: Infinity }, c: { ms: Infinity } }
      })
      const outcomes = yield* drive(
        run([call("read", "a"), call("put", "b"), call("write", "c")], { grace: { writes: 0 } }).pipe(
          Effect.provide(layer)
        )
      )
      assert.deepStrictEqual(words(outcomes), [
        `it ran for 10000 ms, its limit; ${read}`,
        `it ran for 10000 ms, its limit; ${put}`,
        `it ran for 10000 ms, its limit; ${write}`
      ])
      const silent = pipe(made("read"), ToolPolicy.idleTimeout("1 second"))
      assert.strictEqual(
        yield* one(silent, () => Effect.never),
        `it was silent for 1000 ms, its limit; ${read}`
      )
      const waiting = lab({ api: { concurrency: 1 } })
      yield* Effect.gen(function*() {
        yield* fork(Api.withPermit(Effect.never))
        const late = yield* drive(run([call("fetch", "a")]))
        assert.deepStrictEqual(words(late), ["it waited 60000 ms for its start, its limit: nothing was done"])
      }).pipe(Effect.provide(waiting.layer))
    }))
})
