/** Arguments that are results of other calls of the turn (rule R16). */
import { assert, describe, it } from "@effect/vitest"
import {
  Approval,
  Backend,
  Coalescer,
  type Outcome,
  Siblings,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnMiddleware,
  TurnPlan
} from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { inVirtualTime } from "../utils/data.ts"
import { call, facts, on, stage, turn, words } from "../utils/dataTurns.ts"
import { runs } from "../utils/gen.ts"

const Any = Schema.Struct({ x: Schema.optionalKey(Schema.Unknown), y: Schema.optionalKey(Schema.Unknown) })

const reads = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Any, success: Schema.Unknown, failure: Schema.String }),
    ToolPolicy.read({ keys: () => [] })
  )

/** A source that gives its argument `x` as its result, and a tool that gives its arguments back. */
const echo = (log: Array<unknown> = []) =>
  stage([
    [reads("give"), ({ x }) => Effect.as(Effect.sleep(10), x)],
    [reads("text"), () => Effect.succeed({ list: ["$c1$", "<pending>"], name: "$c1$" })],
    [reads("fail"), () => Effect.andThen(Effect.sleep(10), Effect.fail("no"))],
    [reads("take"), (params) => Effect.sync(() => (log.push(params), "taken"))]
  ])

const on1 = { references: true } as const

/** What a call gets whose argument `x` is this, where call "c1" has given that. */
const taken = (given: unknown, said: unknown) =>
  Effect.gen(function*() {
    const log: Array<any> = []
    const { outcomes } = yield* turn(
      echo(log),
      [call("c1", "give", { x: given }), call("c2", "take", { x: said })],
      on1
    )
    return log.length === 0 ? outcomes[1] : log[0].x
  })

const given = { hotels: [{ id: "h-17", "a/b": 1, "c d": true }], price: 4.5, result: "its own", n: null }

describe("what a reference gives", () => {
  it.effect.each([
    [{ $ref: "c1#/hotels/0/id" }, "h-17"],
    [{ $ref: "c1" }, given],
    [{ $ref: "c1#" }, given],
    [{ $ref: "c1#/hotels/0/a~1b" }, 1],
    [{ $ref: "c1#/hotels/0/c%20d" }, true],
    [{ $ref: "$c1.price$" }, 4.5],
    ["$c1.hotels[0].id$", "h-17"],
    ["$c1$", given],
    [" $c1.price$ ", 4.5],
    ["$c1.hotels[0].c d$", true],
    ["$c1['price']$", 4.5],
    ["${c1.price}", 4.5],
    ["${c1}", given],
    ["{{c1.price}}", 4.5],
    ["{{ $c1.hotels.0.id }}", "h-17"],
    ["<c1>", given],
    ["<c1>.price", 4.5],
    ["<c1>.hotels[0].id", "h-17"],
    ["$c1.price", 4.5],
    ["c1#/price", 4.5],
    ["c1.result", "its own"],
    ["c1.output", given],
    ["API_call_0", given],
    ["API_call_0 response", given],
    ["$c1.n$", null],
    ["2 * $c1.price$ + 1", "2 * 4.5 + 1"],
    ["from <c1>.hotels[0].id to ${c1.price}", "from h-17 to 4.5"],
    ["$c1.price$, $c1.price$", "4.5, 4.5"],
    ["{{c1.hotels}}!", JSON.stringify(given.hotels) + "!"],
    [["$c1.price$", { deep: [{ $ref: "c1#/hotels/0/id" }] }], [4.5, { deep: ["h-17"] }]]
  ])("%j", ([said, expected]) => Effect.map(taken(given, said), (value) => assert.deepStrictEqual(value, expected)))

  it.effect.each([
    "a $5 note",
    "$HOME/bin",
    "<b>bold</b>",
    '{"$ref": "no object"}',
    { $ref: "#/$defs/Point" },
    { $ref: "https://example.com/schema.json#/x" },
    { $ref: "c1", and: "more" },
    "c1",
    "cx.result",
    "the result of c1"
  ])("%j is what it is", (said) => Effect.map(taken(given, said), (value) => assert.deepStrictEqual(value, said)))

  it.effect("a text may name a call that has come and one that is still to come", () =>
    Effect.gen(function*() {
      const log: Array<any> = []
      const { toolkit, ...desk } = echo(log)
      yield* on(
        { toolkit, ...desk },
        Effect.gen(function*() {
          const open = yield* Turn.open(toolkit, on1)
          yield* open.submit(call("c1", "give", { x: 3 }))
          yield* open.submit(call("c2", "take", { x: "from $c1$ to {{c3}}" }))
          yield* open.submit(call("c3", "give", { x: 4 }))
          return yield* open.end()
        })
      )
      assert.deepStrictEqual(log, [{ x: "from 3 to 4" }])
    }))

  it.effect("numbers are calls where calls are numbered, and only there", () =>
    Effect.gen(function*() {
      const log: Array<any> = []
      yield* turn(echo(log), [
        call("1", "give", { x: 3 }),
        call("2", "give", { x: [4] }),
        call("3", "take", { x: ["$1", "max($1, ${2}) / $1", "$7", "$1.50"] })
      ], on1)
      assert.deepStrictEqual(log[0].x, [3, "max(3, [4]) / 3", "$7", "$1.50"])
    }))

  it.effect("a planner's own names stand for calls, and for parts of their results", () =>
    Effect.gen(function*() {
      const log: Array<any> = []
      const names = {
        first: { call: 0 },
        API_call_1: { call: 0, at: "/hotels/0/id" },
        price: { call: 0, at: "/price" }
      }
      const { outcomes } = yield* turn(echo(log), [
        call("c1", "give", { x: given }),
        call("c2", "take", { x: ["first", "API_call_1", "$price$"] }),
        call("c3", "take", { x: "API_call_2" })
      ], { references: { names } })
      assert.deepStrictEqual(log[0].x, [given, "h-17", 4.5])
      assert.match(outcomes[2]!.message, /names "API_call_2", which is no call of this turn/)
    }))

  it.effect("it is a copy, and what it holds is not looked at again", () =>
    Effect.gen(function*() {
      const log: Array<any> = []
      const { outcomes } = yield* turn(echo(log), [
        call("c1", "text"),
        call("c2", "take", { x: "$c1$", y: "$c1$" })
      ], on1)
      assert.deepStrictEqual(log[0].x.list, ["$c1$", "<pending>"])
      log[0].x.list.push("changed")
      assert.deepStrictEqual(log[0].y.list, ["$c1$", "<pending>"])
      assert.deepStrictEqual((outcomes[0] as any).encoded.list, ["$c1$", "<pending>"])
    }))

  it.effect("a name of an object's prototype is a member like any other", () =>
    Effect.gen(function*() {
      const odd = JSON.parse('{"__proto__": {"admin": 7}, "own": 1}')
      assert.strictEqual(yield* taken(odd, "$c1.__proto__.admin$"), 7)
      assert.match(((yield* taken({ own: 1 }, "$c1.constructor$")) as any).message, /has no such part/)
      assert.strictEqual(({} as any).admin, undefined)
    }))
})

describe("what a reference cannot give", () => {
  const cases: ReadonlyArray<readonly [string, ReadonlyArray<ToolCall.ToolCall>, number, RegExp]> = [
    [
      "a part that is not there",
      [call("c1", "give", { x: {} }), call("c2", "take", { x: "$c1.a.b$" })],
      1,
      /^the argument "x" is "\/a\/b" in the result of call #0 \("c1"\), which has no such part: it was not run$/
    ],
    [
      "a result that failed",
      [call("c1", "fail"), call("c2", "take", { x: "$c1$" })],
      1,
      /is the result of call #0 \("c1"\), which has none \(error: failed\)/
    ],
    [
      "its own result",
      [call("c1", "take", { x: "$c1.a$" })],
      0,
      /^the argument "x" names the result of its own call: it was not run$/
    ],
    [
      "a call that is not there",
      [call("c1", "give"), call("c2", "take", { x: { $ref: "c9#/a" } })],
      1,
      /names "c9", which is no call of this turn/
    ],
    [
      "a call like those that are there",
      [call("c1", "give"), call("c2", "take", { x: "<c7>.a" })],
      1,
      /names "c7", which is no call of this turn/
    ],
    [
      "a call that is not there, beside one that is",
      [call("c1", "give"), call("c2", "take", { x: "from $c1$ to $c7.a$" })],
      1,
      /^the argument "x" names "c7", which is no call of this turn: it was not run$/
    ],
    [
      "a way that cannot be read",
      [call("c1", "give"), call("c2", "take", { x: "$c1.a[$" })],
      1,
      /what cannot be read: "\.a\["/
    ],
    [
      "a tool that is not there",
      [call("c1", "gives"), call("c2", "take", { x: "$c1$" })],
      1,
      /call #0, which was not run/
    ],
    [
      "what the provider ran",
      [{ id: "c1", name: "web", providerExecuted: true }, call("c2", "take", { x: "$c1$" })],
      1,
      /call #0, which the provider has/
    ],
    [
      "one that was not run for the same reason",
      [call("c1", "fail"), call("c2", "give", { x: "$c1$" }), call("c3", "take", { x: "$c2$" })],
      2,
      /call #1 \("c2"\), which has none \(deferred: dependency_failed\)/
    ],
    [
      "an id of two calls",
      [call("c1", "give", { x: 1 }), call("c1", "give", { x: 2 }), call("c2", "take", { x: "$c1$" })],
      2,
      /call #0, which was not run/
    ]
  ]
  it.effect.each(cases)("%s", ([_, calls, at, message]) =>
    Effect.gen(function*() {
      const log: Array<unknown> = []
      const { outcomes } = yield* turn(echo(log), calls, on1)
      assert.deepStrictEqual(facts(outcomes[at]), ["deferred/dependency_failed", false, "none"])
      assert.isTrue(outcomes[at]!.retryable)
      assert.match(outcomes[at]!.message, message)
      assert.deepStrictEqual(log, [])
    }))

  it.effect("a circle: none of it is run, and neither is what needs one of it", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(echo(), [
        call("c1", "take", { x: "$c2$" }),
        call("c2", "take", { x: "$c3$" }),
        call("c3", "take", { x: "$c1$" }),
        call("c4", "take", { x: "$c1$" }),
        call("c5", "take")
      ], on1)
      assert.deepStrictEqual(outcomes.map(words), [...Array(4).fill("deferred/dependency_failed"), "ok"])
      assert.match(
        outcomes[0]!.message,
        /is the result of call #1, which needs the result of this one: neither was run/
      )
      assert.match(outcomes[3]!.message, /call #0, which was not run, and so neither was this one/)
    }))

  it.effect("what is decoded then may be no argument of the tool", () =>
    Effect.gen(function*() {
      const strict = pipe(
        Tool.make("strict", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.Int }),
        ToolPolicy.read({ keys: () => [] })
      )
      const both = stage([[reads("give"), ({ x }) => Effect.succeed(x)], [strict, ({ n }) => Effect.succeed(n + 1)]])
      const { outcomes } = yield* turn(both, [
        call("c1", "give", { x: { n: 4, word: "four" } }),
        call("c2", "strict", { n: "$c1.n$" }),
        call("c3", "strict", { n: "$c1.word$" })
      ], on1)
      assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "error/invalid_arguments"])
      assert.strictEqual((outcomes[1] as any).result, 5)
      assert.match(outcomes[2]!.message, /^tool "strict": n: /)
    }))

  it.effect("limits of arguments count what was put in", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(echo(), [
        call("c1", "give", { x: 1 }),
        call("c2", "give", { x: ["$c1$", "$c1$"] }),
        call("c3", "take", { x: ["$c2$", "$c2$", "$c2$"] })
      ], { references: true, limits: { maxKeys: 6 } })
      assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "error/invalid_arguments"])
    }))

  it.effect("values that come to more than arguments may hold are not put together", () =>
    Effect.gen(function*() {
      const log: Array<unknown> = []
      const long = "x".repeat(900_000)
      for (const x of ["$c1$ ".repeat(2000), Array(2000).fill("$c1$")]) {
        const { outcomes } = yield* turn(echo(log), [call("c1", "give", { x: long }), call("c2", "take", { x })], on1)
        assert.strictEqual(words(outcomes[1]), "error/invalid_arguments")
        assert.match(outcomes[1]!.message, /^tool "take": the arguments hold more than the 1000000 characters/)
      }
      assert.deepStrictEqual(log, [])
    }))

  it.effect("a long text is read once, whatever stands in it", () =>
    Effect.gen(function*() {
      const texts = [
        "<br> and text ".repeat(60_000),
        Array.from({ length: 60_000 }, (_, i) => `<t${i}> x`).join(""),
        `{{c1.${" ".repeat(500_000)}[}}`,
        "${c1. ".repeat(100_000),
        "<c1> ".repeat(150_000),
        "$c1$ {{c1}} ".repeat(70_000)
      ]
      const { outcomes } = yield* turn(
        echo(),
        [call("c1", "give", { x: "" }), ...texts.map((x, i) => call(`d${i}x`, "take", { x }))],
        on1
      )
      assert.deepStrictEqual(outcomes.map(words), [
        "ok",
        "ok",
        "ok",
        "deferred/dependency_failed",
        "deferred/dependency_failed",
        "ok",
        "ok"
      ])
    }))

  it.effect("names that are none are misuse", () =>
    Effect.gen(function*() {
      for (
        const names of [{ a: { call: -1 } }, { a: { call: 0.5 } }, { a: {} }, { a: null }, { a: { call: 0, at: "x" } }]
      ) {
        const error = yield* Effect.flip(turn(echo(), [], { references: { names } as any }))
        assert.match(
          String((error as any).message),
          /^the name "a" in the option `references` of the turn: expected the position/
        )
      }
      const error = yield* Effect.flip(turn(echo(), [], { references: 1 as any }))
      assert.match(String((error as any).message), /expected true, false, or an object with `names`, and got 1/)
      // A place that no call has is no misuse: the list may be shorter than was planned.
      const { outcomes } = yield* turn(echo(), [call("c1", "take", { x: "$a$" })], {
        references: { names: { a: { call: 3 } } }
      })
      assert.strictEqual(words(outcomes[0]), "deferred/dependency_failed")
    }))

  it.effect("with references off they are placeholders, and literal text is no reference", () =>
    Effect.gen(function*() {
      const log: Array<any> = []
      const script = pipe(reads("script"), ToolPolicy.placeholders({ literal: ["x"] }))
      const raw = pipe(reads("raw"), ToolPolicy.placeholders("off"))
      const shell = stage([
        [reads("give"), () => Effect.succeed(1)],
        [script, (params) => Effect.sync(() => log.push(params))],
        [raw, (params) => Effect.sync(() => log.push(params))]
      ])
      const off = yield* turn(shell, [call("c1", "give"), call("c2", "give", { x: "$c1$" })])
      assert.strictEqual(words(off.outcomes[1]), "deferred/placeholder")
      yield* turn(shell, [
        call("c1", "give"),
        call("c2", "script", { x: "echo $c1$", y: "$c1$" }),
        call("c3", "raw", { x: "$c1$" })
      ], on1)
      assert.deepStrictEqual(log, [{ x: "$c1$" }, { x: "echo $c1$", y: 1 }])
    }))
})

describe("keys that are not known yet", () => {
  const Key = Schema.Struct({ k: Schema.String, ms: Schema.Finite })
  const timed = <const Name extends string>(name: Name) =>
    Tool.make(name, { parameters: Key, success: Schema.String, failure: Schema.String })
  const byKey = ({ k }: typeof Key.Type) => [k]
  const spans: Array<[string, number, number]> = []
  const handler = (_: unknown, { toolCallId }: { readonly toolCallId: string }) => toolCallId
  const run = (id: string, k: string, ms: number) =>
    Effect.gen(function*() {
      const began = yield* Clock.currentTimeMillis
      yield* Effect.sleep(ms)
      spans.push([id, began, yield* Clock.currentTimeMillis])
      return k
    })
  const desk = stage([
    [pipe(timed("write"), ToolPolicy.write({ keys: byKey })), ({ k, ms }, context) => run(handler(k, context), k, ms)],
    [pipe(timed("read"), ToolPolicy.read({ keys: byKey })), ({ k, ms }, context) => run(handler(k, context), k, ms)],
    [
      pipe(timed("fixed"), ToolPolicy.write({ keys: () => ["fixed"] })),
      ({ k, ms }, context) => run(handler(k, context), k, ms)
    ]
  ])
  const spansOf = (calls: ReadonlyArray<ToolCall.ToolCall>) =>
    Effect.suspend(() => {
      spans.length = 0
      return Effect.map(turn(desk, calls, on1), () => new Map(spans.map(([id, began, ended]) => [id, [began, ended]])))
    })

  it.effect("the plan says so, and what the keys do not read is known", () =>
    Effect.gen(function*() {
      const plan: TurnPlan.TurnPlan = yield* desk.plan([
        call("c1", "read", { k: "a", ms: 10 }),
        call("c2", "write", { k: "$c1$", ms: 10 }),
        call("c3", "write", { k: "b", ms: "$c1$" }),
        call("c4", "fixed", { k: "$c1$", ms: 1 })
      ], on1)
      assert.deepStrictEqual(plan.calls.map(({ keys, unresolved }) => [keys, unresolved]), [
        [["a"], undefined],
        [undefined, true],
        [["b"], undefined],
        [["fixed"], undefined]
      ])
      assert.deepStrictEqual(plan.calls[1]!.references, [{ argument: "k", call: 0, at: "" }])
      assert.deepStrictEqual(
        plan.edges.map(({ from, key, to }) => `${from} ${to} ${key}`).sort(),
        ["0 1 reference", "0 2 reference", "0 3 reference", "1 2 b", "1 3 fixed"].sort()
      )
      assert.strictEqual(
        TurnPlan.print(plan).split("\n")[1],
        "└─ #1 write (c2)  writes anything, until it is known  [after #0 by reference]"
      )
      assert.deepStrictEqual(TurnPlan.fromJson(JSON.parse(JSON.stringify(plan))).calls, plan.calls)
    }))

  it.effect("a long write before it, on another key, is not waited for once they are known", () =>
    Effect.gen(function*() {
      const at = yield* spansOf([
        call("c0", "write", { k: "long", ms: 1000 }),
        call("c1", "read", { k: "a", ms: 10 }),
        call("c2", "write", { k: "$c1$", ms: 10 }),
        call("c3", "write", { k: "other", ms: 10 }),
        call("c4", "read", { k: "a", ms: 10 })
      ])
      assert.deepStrictEqual(at.get("c2"), [10, 20])
      assert.deepStrictEqual(at.get("c3"), [10, 20], "it waits until it is known that it is not meant")
      assert.deepStrictEqual(at.get("c4"), [20, 30], "it is meant")
      assert.deepStrictEqual(at.get("c0"), [0, 1000])
    }))

  it.effect("one that is not run in the end holds nobody up any longer", () =>
    Effect.gen(function*() {
      const at = yield* spansOf([
        call("c1", "read", { k: "a", ms: 10 }),
        call("c2", "write", { k: "$c1.none$", ms: 10 }),
        call("c3", "write", { k: "other", ms: 10 })
      ])
      assert.deepStrictEqual([...at.keys()], ["c1", "c3"])
      assert.deepStrictEqual(at.get("c3"), [10, 20])
    }))

  it.effect("a call may need the result of a later one: its place is behind that", () =>
    Effect.gen(function*() {
      const at = yield* spansOf([
        call("c1", "write", { k: "$c3$", ms: 10 }),
        call("c2", "write", { k: "b", ms: 10 }),
        call("c3", "write", { k: "b", ms: 11 }),
        call("c4", "write", { k: "b", ms: 12 })
      ])
      assert.deepStrictEqual([...at], [["c2", [0, 10]], ["c3", [10, 21]], ["c1", [21, 31]], ["c4", [31, 43]]])
    }))
})

describe("approval", () => {
  const Pay = pipe(
    Tool.make("pay", {
      parameters: Schema.Struct({ to: Schema.Unknown }),
      success: Schema.Unknown,
      needsApproval: true
    }),
    ToolPolicy.write({ keys: () => ["account"] })
  )
  const Note = pipe(
    Tool.make("note", { parameters: Schema.Struct({ text: Schema.Unknown }), success: Schema.Unknown }),
    ToolPolicy.write({ keys: () => ["notes"] })
  )
  const toolkit = Toolkit.make(reads("text"), Pay, Note)
  const paid: Array<unknown> = []
  const layer = Layer.merge(
    toolkit.toLayer({
      // A result that would name a call itself, were it read again.
      text: () => Effect.as(Effect.sleep(10), { name: "$c1$" }),
      pay: ({ to }) => Effect.sync(() => (paid.push(to), { receipt: 7 })),
      note: ({ text }) => Effect.sync(() => (paid.push(text), "noted"))
    }),
    Turn.layer()
  )
  const calls = [
    call("c1", "text"),
    call("c2", "pay", { to: "$c1.name$" }),
    call("c3", "note", { text: { $ref: "c2#/receipt" } }),
    call("c4", "note", { text: "$c3$" })
  ]
  const scoped = <A, E>(effect: Effect.Effect<A, E, any>) => inVirtualTime(Effect.scoped(Effect.provide(effect, layer)))

  it.effect("a human sees the values; what needs the result waits with it; resumed, all of it runs", () =>
    scoped(Effect.gen(function*() {
      paid.length = 0
      const first = yield* Turn.runOrPark(toolkit, calls, on1)
      assert.deepStrictEqual(first.outcomes.map(words), [
        "ok",
        "pending_approval",
        "deferred/waits_for_approval",
        "deferred/waits_for_approval"
      ])
      assert.match(
        first.outcomes[2]!.message,
        /is "\/receipt" in the result of call #1 \("c2"\), which waits for approval/
      )
      assert.isTrue(first._tag === "Parked")
      if (first._tag !== "Parked") return
      assert.deepStrictEqual(first.parked.requests.map((request) => request.arguments), [{ to: "$c1$" }])
      const parked = JSON.parse(JSON.stringify(first.parked))
      const then = yield* Turn.resume(toolkit, parked, {
        ...on1,
        decisions: [{ position: 1, decision: Approval.approve() }]
      })
      assert.deepStrictEqual(then.outcomes.map(words), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(paid, ["$c1$", 7, "noted"])
    })))

  it.effect("what names a call that is held by then waits with it, also where the calls come one by one", () =>
    Effect.gen(function*() {
      const held = Tool.make("held", {
        parameters: Any,
        success: Schema.Unknown,
        needsApproval: () => Effect.as(Effect.sleep(5), true)
      })
      const desk = stage([
        [ToolPolicy.read({ keys: () => [] })(held), () => Effect.succeed(1)],
        [reads("take"), () => Effect.succeed(1)]
      ])
      const [outcomes, at] = yield* on(
        desk,
        Effect.gen(function*() {
          const open = yield* Turn.open(desk.toolkit, on1)
          yield* open.submit(call("c1", "held"))
          yield* open.submit(call("c2", "held"))
          yield* Effect.sleep(20)
          yield* open.submit(call("c3", "take", { x: "$c1$" }))
          yield* open.submit(call("c4", "take", { x: "$c2$" }))
          yield* open.submit(call("c5", "take", { x: "$c3$" }))
          const outcomes = yield* open.end()
          return [outcomes, yield* Clock.currentTimeMillis] as const
        })
      )
      assert.deepStrictEqual(outcomes.map((one: any) => words(one)), [
        ...Array(2).fill("pending_approval"),
        ...Array(3).fill("deferred/waits_for_approval")
      ])
      assert.match((outcomes as any)[3].message, /the result of call #1 \("c2"\), which waits for approval/)
      assert.strictEqual(at, 20)
    }))

  it.effect("what comes after a held call is deferred where it touches the same in the end, and runs where it does not", () =>
    Effect.gen(function*() {
      const Key = Schema.Struct({ k: Schema.String })
      const make = <const Name extends string>(name: Name, needsApproval: boolean) =>
        pipe(
          Tool.make(name, {
            parameters: Key,
            success: Schema.String,
            needsApproval: () => Effect.as(Effect.sleep(5), needsApproval)
          }),
          ToolPolicy.write({ keys: ({ k }) => [k] })
        )
      const run = ({ k }: typeof Key.Type) => Effect.succeed(k)
      const plain = pipe(
        Tool.make("write", { parameters: Key, success: Schema.String }),
        ToolPolicy.write({ keys: ({ k }) => [k] })
      )
      const desk = stage([
        [make("held", true), run],
        [plain, run],
        [reads("give"), ({ x }) => Effect.as(Effect.sleep(20), x)]
      ])
      const calls = [
        call("c1", "give", { x: ["a", "b"] }),
        call("c2", "held", { k: "a" }),
        call("c3", "write", { k: "$c1[0]$" }),
        call("c4", "write", { k: "$c1[1]$" }),
        call("c5", "write", { k: { $ref: "c2" } })
      ]
      const expected = ["ok", "pending_approval", "deferred/waits_for_approval", "ok", "deferred/waits_for_approval"]
      assert.deepStrictEqual((yield* turn(desk, calls, on1)).outcomes.map(words), expected)
      for (const gap of [0, 7]) {
        const online = yield* on(
          desk,
          Effect.gen(function*() {
            const open = yield* Turn.open(desk.toolkit, on1)
            for (const one of calls) {
              yield* open.submit(one)
              yield* Effect.sleep(gap)
            }
            return yield* open.end()
          })
        )
        assert.deepStrictEqual(online.map((one: any) => words(one)), expected)
      }
    }))

  it.effect("a denial leaves nothing to need", () =>
    scoped(Effect.gen(function*() {
      paid.length = 0
      const first = yield* Turn.runOrPark(toolkit, calls, on1)
      if (first._tag !== "Parked") return assert.fail("nothing was held")
      const then = yield* Turn.resume(toolkit, first.parked, {
        ...on1,
        decisions: [{ position: 1, decision: Approval.deny("no") }]
      })
      assert.deepStrictEqual(then.outcomes.map(words), [
        "ok",
        "error/denied",
        "deferred/dependency_failed",
        "deferred/dependency_failed"
      ])
      assert.deepStrictEqual(paid, [])
    })))

  it.effect("a rule of the turn decides with the values at hand", () =>
    scoped(Effect.gen(function*() {
      paid.length = 0
      const seen: Array<unknown> = []
      const outcomes = yield* Turn.run(toolkit, calls, {
        ...on1,
        decide: (request) => {
          seen.push(request.arguments)
          return Approval.approve()
        }
      })
      assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "ok", "ok"])
      assert.deepStrictEqual(seen, [{ to: "$c1$" }])
    })))

  it.effect("edited, it takes another place, and what needs its result stays behind it", () =>
    Effect.gen(function*() {
      const Key = Schema.Struct({ k: Schema.String })
      const keys = ({ k }: typeof Key.Type) => [k]
      const make = <const Name extends string>(name: Name, needsApproval: boolean) =>
        pipe(
          Tool.make(name, { parameters: Key, success: Schema.String, needsApproval }),
          ToolPolicy.write({ keys })
        )
      const log: Array<string> = []
      const run = ({ k }: typeof Key.Type) => Effect.as(Effect.sleep(10), (log.push(k), k))
      const desk = stage([[make("ask", true), run], [make("write", false), run]])
      const calls = [
        call("c1", "ask", { k: "a" }),
        call("c2", "write", { k: "$c1$" }),
        call("c3", "write", { k: "$c2$" }),
        call("c4", "write", { k: "b" })
      ]
      const decide = () => Approval.edit({ k: "e" })
      for (const execution of ["parallel", "sequential", 1] as const) {
        log.length = 0
        const { outcomes } = yield* turn(desk, calls, { ...on1, decide, execution })
        assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "ok", "ok"], String(execution))
        assert.deepStrictEqual(log.filter((k) => k === "e").length, 3)
      }
    }))

  it.effect("edited beside a value that looks like a name, it runs with both, and so it does where a step exchanges arguments", () =>
    scoped(Effect.gen(function*() {
      paid.length = 0
      const args = { to: ["$c1.name$"] }
      const edited = ({ arguments: shown }: Approval.Request) => Approval.edit({ to: [...shown["to"] as any, 2] })
      const pay = [call("c1", "text"), call("c2", "pay", args)]
      const outcomes = yield* Turn.run(toolkit, pay, { ...on1, decide: edited })
      const first = yield* Turn.runOrPark(toolkit, pay, on1)
      if (first._tag !== "Parked") return assert.fail("nothing was held")
      const decisions = [{ position: 1, decision: edited(first.parked.requests[0]!) }]
      const then = yield* Turn.resume(toolkit, first.parked, { ...on1, decisions })
      const step = TurnMiddleware.make("more", {
        before: ({ params, tool }) =>
          Effect.sync(() =>
            tool.name === "note" ? TurnMiddleware.replaceArguments({ text: [...(params as any).text, 2] }) : undefined
          )
      })
      const stepped = yield* Turn.run(toolkit, [call("c1", "text"), call("c2", "note", { text: ["$c1.name$"] })], {
        ...on1,
        middleware: [step]
      })
      assert.deepStrictEqual(
        [outcomes, then.outcomes, stepped].map((list) => words(list[1])),
        ["ok", "ok", "ok"]
      )
      assert.deepStrictEqual(paid, Array.from({ length: 3 }, () => ["$c1$", 2]))
    })))

  it.effect("the plan holds it, and all that needs it", () =>
    Effect.gen(function*() {
      const plan = yield* Turn.plan(toolkit, calls, on1)
      assert.deepStrictEqual(plan.calls.map(({ code, verdict }) => [verdict, code]), [
        ["run", undefined],
        ["held", "pending_approval"],
        ["deferred", "waits_for_approval"],
        ["deferred", "waits_for_approval"]
      ])
    }))
})

describe("with the rest of a turn", () => {
  it.effect("the same call with the same references runs once, for both", () =>
    Effect.gen(function*() {
      const log: Array<unknown> = []
      const { outcomes } = yield* turn(echo(log), [
        call("c1", "give", { x: 1 }),
        call("c2", "take", { x: "$c1$" }),
        call("c3", "take", { x: "$c1$" })
      ], on1)
      assert.strictEqual(log.length, 1)
      assert.deepStrictEqual(outcomes[2]!.duplicateOf, { position: 1, id: "c2" })
    }))

  it.effect("a result that another call's run gave is one too", () =>
    Effect.gen(function*() {
      const log: Array<any> = []
      yield* turn(echo(log), [
        call("c1", "give", { x: 1 }),
        call("c2", "give", { x: 1 }),
        call("c3", "take", { x: "$c2$" })
      ], on1)
      assert.deepStrictEqual(log, [{ x: 1 }])
    }))

  it.effect("a stop, a deadline and a sibling's failure end the waiting", () =>
    Effect.gen(function*() {
      const calls = [call("c1", "give", { x: 1 }), call("c2", "take", { x: "$c1$" })]
      const stopped = yield* turn(echo(), calls, { ...on1, cancelOn: Effect.as(Effect.sleep(5), "user") })
      assert.deepStrictEqual(stopped.outcomes.map(words), ["cancelled/by_caller", "cancelled/by_caller"])
      const late = yield* turn(echo(), calls, { ...on1, deadline: 5 })
      assert.deepStrictEqual(late.outcomes.map(words), ["cancelled/by_deadline", "cancelled/by_deadline"])
      const failed = yield* turn(echo(), [...calls, call("c3", "fail")], { ...on1, siblings: Siblings.failFast })
      assert.strictEqual(words(failed.outcomes[2]), "error/failed")
      const first = yield* turn(echo(), [call("c1", "fail"), call("c2", "take", { x: "$c1$" })], {
        ...on1,
        siblings: Siblings.failFast
      })
      assert.deepStrictEqual(first.outcomes.map(words), ["error/failed", "cancelled/by_sibling"])
    }))

  it.effect("a unit that is all or nothing hands its results on inside, and undoes them from the end", () =>
    Effect.gen(function*() {
      const undone: Array<unknown> = []
      const books = <const Name extends string>(name: Name) =>
        pipe(
          Tool.make(name, { parameters: Any, success: Schema.Unknown, failure: Schema.String }),
          ToolPolicy.write({ keys: () => [] }),
          ToolPolicy.undo(({ x }) => Effect.sync(() => undone.push(x)))
        )
      const desk = stage([
        [books("book"), ({ x }) => Effect.as(Effect.sleep(10), x)],
        [books("lose"), () => Effect.andThen(Effect.sleep(10), Effect.fail("no"))]
      ])
      const calls = [
        call("c1", "book", { x: 1 }),
        call("c2", "book", { x: 1 }),
        call("c3", "book", { x: ["$c2$"] }),
        call("c4", "book", { x: ["$c3$"] })
      ]
      const options = { ...on1, siblings: Siblings.allOrNothing }
      const stands = yield* turn(desk, calls, options)
      assert.deepStrictEqual(stands.outcomes.map(words), Array(4).fill("ok"))
      assert.deepStrictEqual((stands.outcomes[3] as any).encoded, [[1]])
      assert.strictEqual(stands.at, 30)
      const falls = yield* turn(desk, [...calls, call("c5", "lose", { x: "$c4$" })], options)
      assert.deepStrictEqual(falls.outcomes.map(words), [...Array(4).fill("cancelled/by_sibling"), "error/failed"])
      assert.deepStrictEqual(undone, [[[1]], [1], 1])
      // Results of another unit are there when that is decided.
      const unit = ({ id }: ToolCall.ToolCall) => id < "c3" ? "first" : "second"
      const apart = yield* turn(desk, calls, { ...options, unit })
      assert.deepStrictEqual(apart.outcomes.map(words), Array(4).fill("ok"))
    }))

  it.effect("waiting for a result is waiting for an earlier call, and has its clock", () =>
    Effect.gen(function*() {
      const patient = stage([
        [reads("give"), () => Effect.as(Effect.sleep(100), 1)],
        [pipe(reads("take"), ToolPolicy.waitTimeout(50)), () => Effect.succeed(1)]
      ])
      const { events, outcomes } = yield* turn(patient, [call("c1", "give"), call("c2", "take", { x: "$c1$" })], on1)
      assert.deepStrictEqual(outcomes.map(words), ["ok", "timeout/queue"])
      assert.deepInclude(events.find(({ _tag }) => _tag === "CallQueued"), { position: 1, for: "keys" })
      const { events: told } = yield* turn(
        echo(),
        [call("c1", "give", { x: 1 }), call("c2", "take", { x: "$c1$" })],
        on1
      )
      const started = told.find((event) => event._tag === "CallStarted" && event.position === 1)
      assert.strictEqual((started as any).waited.keys, 10)
    }))

  it.effect("calls that share requests ask together once their results are there", () =>
    Effect.gen(function*() {
      const asked: Array<ReadonlyArray<string>> = []
      const Users = Coalescer.make<string, string>({
        name: "users",
        lookup: (keys) =>
          Effect.sync(() => {
            asked.push(keys)
            return keys.map((key) => `user ${key}`)
          })
      })
      const user = pipe(
        Tool.make("user", { parameters: Schema.Struct({ id: Schema.String }), success: Schema.Unknown }),
        ToolPolicy.read({ keys: () => [] }),
        Coalescer.through(Users, ({ id }) => id)
      )
      const shared = stage([
        [reads("give"), ({ x }) => Effect.as(Effect.sleep(10), x)],
        [user, Coalescer.handler(user)]
      ])
      const { outcomes } = yield* turn(shared, [
        call("c1", "give", { x: ["a", "b"] }),
        call("c2", "user", { id: "$c1[0]$" }),
        call("c3", "user", { id: "$c1[1]$" })
      ], on1)
      assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "ok"])
      assert.deepStrictEqual(asked, [["a", "b"]])
    }))

  it.effect("a write with a key is recorded under the values", () =>
    Effect.gen(function*() {
      const keys: Array<string | undefined> = []
      const Book = pipe(
        Tool.make("book", { parameters: Schema.Struct({ room: Schema.String }), success: Schema.String }),
        ToolPolicy.write({ keys: ({ room }) => [room] }),
        ToolPolicy.forward(({ room }) => `book ${room}`)
      )
      const hotel = stage([
        [reads("give"), ({ x }) => Effect.succeed(x)],
        [Book, () => Effect.map(TurnContext.CurrentCall, (found) => (keys.push(found?.idempotencyKey), "booked"))]
      ])
      yield* turn(hotel, [call("c1", "give", { x: "r7" }), call("c2", "book", { room: "$c1$" })], on1)
      assert.deepStrictEqual(keys, ["book r7"])
    }))
})

it.effect("a call that needs the result of one in a deadlock is no way out of it", () =>
  Effect.gen(function*() {
    const calls: Array<ToolCall.ToolCall> = []
    const outer = pipe(
      Tool.make("outer", {
        parameters: Schema.Struct({ k: Schema.String, calls: Schema.Unknown }),
        success: Schema.Unknown
      }),
      ToolPolicy.write({ keys: ({ k }) => [k] })
    )
    const inner = pipe(
      Tool.make("inner", { parameters: Schema.Struct({ k: Schema.String }), success: Schema.String }),
      ToolPolicy.write({ keys: ({ k }) => [k] })
    )
    const desk: ReturnType<typeof stage> = stage([
      [
        outer,
        ({ calls }) =>
          Effect.andThen(Effect.sleep(10), Effect.map(desk.run(calls, on1), (outcomes) => outcomes.map(words)))
      ],
      [inner, ({ k }) => Effect.succeed(k)],
      [reads("free"), ({ x }) => Effect.succeed(x)]
    ])
    calls.push(
      call("a", "outer", {
        k: "x",
        calls: [call("n1", "inner", { k: "y" }), call("n2", "free", { x: "$n1$" })]
      }),
      call("b", "outer", { k: "y", calls: [call("m1", "inner", { k: "x" })] })
    )
    const { outcomes } = yield* turn(desk, calls)
    const found = outcomes.map((outcome) => (outcome as any).encoded as ReadonlyArray<string>)
    assert.include(found.flat(), "error/deadlock")
    assert.deepStrictEqual(outcomes.map(words), ["ok", "ok"])
  }))

it.effect("a call that touches something else in the end is not held up by work inside a call beside it", () =>
  Effect.gen(function*() {
    class Api extends Backend.Service<Api>()("references/Api") {}
    const Keyed = Schema.Struct({ k: Schema.String })
    const keyed = <const Name extends string>(name: Name) =>
      Tool.make(name, { parameters: Keyed, success: Schema.Unknown, failure: Schema.String })
    const desk: ReturnType<typeof stage> = stage([
      [pipe(keyed("give"), ToolPolicy.read({ keys: () => [] })), ({ k }) => Effect.as(Effect.sleep(10), k)],
      [
        pipe(keyed("outer"), ToolPolicy.read({ keys: () => [] }), ToolPolicy.on(Api)) as Tool.Any,
        ({ k }) => Effect.map(desk.run([call("n", "write", { k: `not ${k}` })]), (outcomes) => outcomes.map(words))
      ],
      [
        pipe(keyed("write"), ToolPolicy.write({ keys: ({ k }) => [k] }), ToolPolicy.on(Api)) as Tool.Any,
        ({ k }) => Effect.as(Effect.sleep(10), k)
      ]
    ], Layer.merge(Turn.layer(), Api.layer({ concurrency: 2 })))
    const { at, outcomes } = yield* turn(desk, [
      call("c1", "give", { k: "a" }),
      call("c2", "outer", { k: "$c1$" }),
      call("c3", "write", { k: "$c1$" })
    ], on1)
    assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "ok"])
    assert.strictEqual(at, 20)
  }))

// ---- Any turn -----------------------------------------------------------------------------------------------------

const Args = Schema.Struct({ k: Schema.String, to: Schema.optionalKey(Schema.Unknown) })

const access = { r: "read", w: "write", free: "read", bad: "write" } as const
type Name = keyof typeof access

const keysOf = (name: Name, k: string): ReadonlyArray<string> => name === "free" ? [] : [k]

const Spec = Schema.Struct({
  name: Schema.Literals(["r", "w", "w", "free", "bad"]),
  k: Schema.Literals(["a", "a/b", "c"]),
  ms: Schema.Literals([5, 10, 20]),
  /** Which call gives the key, and which one some other argument. */
  key: Schema.Literals([-1, -1, 0, 1, 2, 3, 4, 5]),
  other: Schema.Literals([-1, -1, -1, 0, 1, 2, 3, 4, 5])
})
type Spec = typeof Spec.Type

const callsOf = (specs: ReadonlyArray<Spec>): ReadonlyArray<ToolCall.ToolCall> =>
  specs.map(({ k, key, name, other }, i) =>
    ToolCall.make(`c${i}`, name, {
      k: key === -1 ? k : `$c${key}.k$`,
      ...(other === -1 ? undefined : { to: { $ref: `c${other}#/k` } })
    })
  )

interface Expected {
  readonly words: string
  readonly began: number | undefined
  readonly ended: number
}

const covers = (a: string, b: string) => b === a || b.startsWith(`${a}/`)
const meet = (a: ReadonlyArray<string> | undefined, b: ReadonlyArray<string> | undefined): boolean =>
  a === undefined
    ? b === undefined || b.length > 0
    : b === undefined
    ? a.length > 0
    : a.some((x) => b.some((y) => covers(x, y) || covers(y, x)))

/**
 * What rule R16 means for a turn without limits, as arithmetic: a call begins when its results are there, when every earlier one that it
 * conflicts with has its answer, and when it is known of every earlier one whether it does.
 */
const model = (specs: ReadonlyArray<Spec>): ReadonlyArray<Expected> => {
  const n = specs.length
  const needs = specs.map(({ key, other }) => [...new Set([key, other].filter((to) => to !== -1))])
  const broken = needs.map((list, i) => list.some((to) => to >= n || to === i))
  const order: Array<number> = []
  const isPlaced = (i: number) => order.includes(i)
  const canBePlaced = (i: number) => broken[i]! || needs[i]!.every(isPlaced)
  let aside: Array<number> = []
  for (let i = 0; i < n; i++) {
    if (!canBePlaced(i)) {
      aside.push(i)
      continue
    }
    order.push(i)
    for (let at = 0; at < aside.length;) {
      if (!canBePlaced(aside[at]!)) at++
      else {
        order.push(aside[at]!)
        aside.splice(at, 1)
        at = 0
      }
    }
  }
  const circle = new Set(aside)
  aside = []
  const found: Array<Expected> = []
  const realKeys: Array<string> = []
  const keyOf = (i: number): string => {
    const { k, key } = specs[i]!
    return realKeys[i] ??= key === -1 ? k : keyOf(key)
  }
  const without: Expected = { words: "deferred/dependency_failed", began: undefined, ended: 0 }
  const known: Array<number> = []
  for (const i of circle) found[i] = without
  for (const [place, i] of order.entries()) {
    const { key, ms, name } = specs[i]!
    if (broken[i]!) {
      found[i] = without
      continue
    }
    const sources = needs[i]!.map((to) => found[to]!)
    // What can be told from the list alone is told at once.
    const told = needs[i]!.find((to) => found[to]!.words.startsWith("deferred") && found[to]!.ended === 0)
    if (told !== undefined) {
      found[i] = without
      continue
    }
    const there = Math.max(0, ...sources.map(({ ended }) => ended))
    known[i] = there
    if (sources.some(({ words }) => words !== "ok")) {
      found[i] = { ...without, ended: there }
      continue
    }
    let began = there
    const mine = keysOf(name, keyOf(i))
    for (const j of order.slice(0, place)) {
      const earlier = specs[j]!
      const that = found[j]!
      if (that === without || (access[name] === "read" && access[earlier.name] === "read")) continue
      if (that.began !== undefined && meet(keysOf(earlier.name, keyOf(j)), mine)) {
        began = Math.max(began, that.ended)
        continue
      }
      const reach = earlier.key === -1 || earlier.name === "free" ? keysOf(earlier.name, earlier.k) : undefined
      if (reach === undefined && meet(undefined, mine)) began = Math.max(began, known[j]!)
      else if (that.began === undefined && reach !== undefined && meet(reach, mine)) began = Math.max(began, that.ended)
    }
    const failed = name === "bad"
    found[i] = { words: failed ? "error/failed" : "ok", began, ended: began + ms }
    void key
  }
  return found
}

const Result = Schema.Struct({ k: Schema.String })

const anyStage = (specs: ReadonlyArray<Spec>, began: Map<number, number>, odd: Array<string>) =>
  stage(
    (Object.keys(access) as Array<Name>).map((name) => {
      const plain = Tool.make(name, { parameters: Args, success: Result, failure: Schema.String })
      const keys = (params: any) => keysOf(name, params.k)
      const tool =
        (access[name] === "read" ? ToolPolicy.read({ keys })(plain) : ToolPolicy.write({ keys })(plain)) as Tool.Any
      return [tool, ({ k, to }: { readonly k: string; readonly to?: unknown }) =>
        Effect.gen(function*() {
          const { position } = (yield* TurnContext.CurrentCall)!
          began.set(position, yield* Clock.currentTimeMillis)
          const wanted = realKey(specs, position)
          if (k !== wanted) odd.push(`#${position} got the key ${k} for ${wanted}`)
          const { ms, other } = specs[position]!
          if (other !== -1 && to !== realKey(specs, other)) odd.push(`#${position} got ${String(to)}`)
          yield* Effect.sleep(ms)
          return name === "bad" ? yield* Effect.fail("bad") : { k }
        })] as const
    })
  )

const realKey = (specs: ReadonlyArray<Spec>, i: number): string => {
  const { k, key } = specs[i]!
  return key === -1 ? k : realKey(specs, key)
}

const turns = { specs: Arbitrary.array(Arbitrary.schema(Spec), { minLength: 1, maxLength: 6 }) }

const summary = (outcomes: ReadonlyArray<Outcome.Outcome<any>>, began: ReadonlyMap<number, number>) =>
  outcomes.map((outcome, i) => [words(outcome), began.get(i)])

it.effect.prop(
  "every call begins at the first moment at which its results are there and nothing can be in its way",
  turns,
  ({ specs }) =>
    Effect.gen(function*() {
      const began = new Map<number, number>()
      const odd: Array<string> = []
      const { outcomes } = yield* turn(anyStage(specs, began, odd), callsOf(specs), { references: true, dedupe: "off" })
      assert.deepStrictEqual(odd, [])
      assert.deepStrictEqual(summary(outcomes, began), model(specs).map(({ began, words }) => [words, began]))
    }),
  runs(1500)
)

it.effect.prop(
  "calls that come one by one are answered as if all had been known, also where the response was cut short",
  { ...turns, cut: Arbitrary.schema(Schema.Boolean) },
  ({ cut, specs }) =>
    Effect.gen(function*() {
      const at = new Map<number, number>()
      const odd: Array<string> = []
      const online = anyStage(specs, at, odd)
      const calls = callsOf(specs)
      const outcomes = yield* on(
        online,
        Effect.gen(function*() {
          const open = yield* Turn.open(online.toolkit, { references: true, dedupe: "off" })
          for (const one of calls) yield* open.submit(one)
          return yield* open.end(cut ? "length" : "tool-calls")
        })
      )
      assert.deepStrictEqual(odd, [])
      assert.strictEqual(outcomes.length, specs.length)
      if (cut) {
        for (const [i, outcome] of outcomes.entries()) {
          assert.isTrue(at.has(i) || words(outcome) === "error/incomplete_response", `#${i} ${words(outcome)}`)
          assert.isTrue(!at.has(i) || access[specs[i]!.name] === "read", `#${i}`)
        }
        return
      }
      const expected = model(specs)
      assert.deepStrictEqual(
        summary(outcomes as any, at),
        expected.map(({ began, words }) => [words, began])
      )
    }),
  runs(500)
)
