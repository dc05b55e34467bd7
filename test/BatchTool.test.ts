/** Tools that take a list: in turns, and outside of them. */
import { assert, describe, it } from "@effect/vitest"
import {
  Backend,
  BatchTool,
  Coalescer,
  type Outcome,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnError
} from "effect-turn"
import { toCodecAnthropic } from "effect/ai/AnthropicStructuredOutput"
import { toCodecOpenAI } from "effect/ai/OpenAiStructuredOutput"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { int, pick, runs } from "./utils/gen.ts"
import { drive, words } from "./utils/kit.ts"

const Order = Schema.Struct({ id: Schema.String, state: Schema.String })
const orderOf = (id: string) => ({ id, state: `state of ${id}` })
const found = (id: string) => ({ status: "ok", value: orderOf(id) })

type Lookup = (ids: ReadonlyArray<string>) => Effect.Effect<any, any, any>

/** Knows every order but those whose id ends in "?". */
const table: Lookup = (ids) => Effect.succeed(ids.map((id) => id.endsWith("?") ? undefined : orderOf(id)))

/** A list tool over orders, its twin, and the requests that they sent. */
const desk = (lookup: Lookup = table, extra: object = {}) => {
  const requests: Array<ReadonlyArray<string>> = []
  const orders = BatchTool.make("get_orders", {
    description: "Looks orders up.",
    item: Schema.String,
    success: Order,
    failure: Schema.Struct({ message: Schema.String, passing: Schema.Boolean }),
    failures: { transient: ({ passing }) => passing },
    lookup: (ids) => {
      requests.push(ids)
      return lookup(ids)
    },
    single: { name: "get_order" },
    ...extra
  })
  const toolkit = Toolkit.make(orders.tool, orders.single)
  const layer = Layer.mergeAll(
    toolkit.toLayer(orders.handlers),
    Turn.layer(),
    Layer.succeed(TurnContext.Tenant, "t")
  )
  const run = (...params: ReadonlyArray<Record<string, unknown>>) =>
    drive(
      Turn.run(
        toolkit,
        params.map((params, i) => ToolCall.make(`c${i}`, "item" in params ? "get_order" : "get_orders", params))
      ).pipe(Effect.provide(layer))
    ) as Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>, unknown>
  const list = (items: ReadonlyArray<unknown>, more: object = {}) =>
    Effect.map(run({ items, ...more }), ([outcome]) => {
      assert.deepStrictEqual(words([outcome!]), ["ok"])
      return resultOf(outcome!)
    })
  return { layer, list, orders, requests, run, toolkit }
}

const resultOf = (outcome: Outcome.Outcome<any>): BatchTool.Result<any> => {
  if (outcome.status !== "ok") throw new Error(`expected ok, and got ${outcome.status}`)
  return outcome.result as BatchTool.Result<any>
}

const ids = (n: number) => Array.from({ length: n }, (_, i) => `O-${i}`)

/** The status of each, in the order of the ids. */
const statuses = (result: BatchTool.Result<any>) => result.ids.map((id) => result.results[id].status)

describe("R26: a list", () => {
  it.effect("empty list", () =>
    Effect.gen(function*() {
      const { requests, run } = desk()
      for (const params of [{ items: [] }, {}]) {
        const [outcome] = yield* run(params)
        assert.deepStrictEqual<unknown>(outcome, {
          ...outcome,
          status: "error",
          code: "failed",
          effect: "none",
          retryable: true,
          failure: {
            code: "EMPTY",
            message: 'the list has no items: call again with all that are wanted in "items"'
          }
        })
      }
      assert.deepStrictEqual(requests, [])
    }))

  it.effect("duplicates", () =>
    Effect.gen(function*() {
      const { list, requests } = desk()
      const result = yield* list(["O-2", "O-1", " O-2", "O-1\n", "O-2"])
      assert.deepStrictEqual(result, {
        status: "ok",
        summary: { requested: 2, ok: 2, other: 0, deferred: 0 },
        ids: ["O-2", "O-1"],
        results: { "O-2": found("O-2"), "O-1": found("O-1") },
        invalid: [],
        deferred_ids: [],
        note: ""
      })
      assert.deepStrictEqual(requests, [["O-2", "O-1"]])
    }))

  it.effect("mixed valid and invalid ids", () =>
    Effect.gen(function*() {
      const { list, requests } = desk(table, { item: Schema.String.check(Schema.isStartingWith("O-")) })
      const result = yield* list(["O-1", "", null, "x", { id: "O-2" }, 7, "O-3?", "O-1"])
      assert.deepStrictEqual(result.status, "partial")
      assert.deepStrictEqual(result.summary, { requested: 7, ok: 1, other: 6, deferred: 0 })
      assert.deepStrictEqual(result.ids, ["O-1", "x", "7", "O-3?"])
      assert.deepStrictEqual(statuses(result), ["ok", "invalid", "invalid", "not_found"])
      assert.deepStrictEqual(result.ids.slice(1).map((id) => result.results[id].retryable), [true, true, false])
      assert.match(result.results["x"].message, /O-/)
      assert.deepStrictEqual(result.invalid, [
        { position: 1, message: "it is an empty text: call again with the real value", retryable: true },
        { position: 2, message: "no id can be read from it: it is null", retryable: true },
        { position: 4, message: 'no id can be read from it: it is {"id":"O-2"}', retryable: true }
      ])
      assert.deepStrictEqual(requests, [["O-1", "O-3?"]])
    }))

  it.effect("more than the cap", () =>
    Effect.gen(function*() {
      const { list, requests } = desk()
      const result = yield* list([null, ...ids(28), "O-0", "O-27"])
      assert.deepStrictEqual(result.summary, { requested: 29, ok: 25, other: 1, deferred: 3 })
      assert.deepStrictEqual(result.status, "partial")
      assert.deepStrictEqual(result.ids, ids(25))
      assert.deepStrictEqual(result.deferred_ids, ["O-25", "O-26", "O-27"])
      assert.strictEqual(
        result.note,
        "3 of the items were not looked up, for one call takes 25 at most: call again with those in deferred_ids."
      )
      assert.deepStrictEqual(requests.map((request) => request.length), [10, 10, 5])
      assert.deepStrictEqual(requests.flat(), ids(25))
    }))

  it.effect("a backend chunk that throws", () =>
    Effect.gen(function*() {
      const { list } = desk((ids) => {
        if (ids.includes("O-12")) throw new Error("boom")
        return table(ids)
      })
      const result = yield* list(ids(25))
      assert.deepStrictEqual(
        statuses(result),
        ids(25).map((_, i) => i >= 10 && i < 20 ? "error" : "ok")
      )
      assert.strictEqual(result.results["O-13"].retryable, true)
      assert.match(result.results["O-13"].message, /boom/)
      assert.deepStrictEqual(result.summary, { requested: 25, ok: 15, other: 10, deferred: 0 })
    }))

  const broken: ReadonlyArray<readonly [string, Lookup, string, boolean]> = [
    ["fails", () => Effect.fail("down"), "error", true],
    ["dies", () => Effect.die("down"), "error", true],
    ["is late", () => Effect.never, "timeout", true],
    ["answers short", (ids) => Effect.succeed(ids.slice(1).map(orderOf)), "error", true],
    ["answers with no list", () => Effect.succeed("down"), "error", true],
    ["answers without the items", () => Effect.succeed(new Map()), "not_found", false]
  ]
  for (const [what, lookup, status, retryable] of broken) {
    it.effect(`a chunk that ${what} touches its own items only`, () =>
      Effect.gen(function*() {
        const { list } = desk((ids) => ids.includes("O-0") ? lookup(ids) : table(ids), { chunk: 3 })
        const result = yield* list(ids(5))
        assert.deepStrictEqual(statuses(result), [status, status, status, "ok", "ok"])
        assert.strictEqual(result.results["O-1"].retryable, retryable)
        assert.strictEqual(typeof result.results["O-1"].message, "string")
      }))
  }

  it.effect("is error when no item is ok, and the call is answered all the same", () =>
    Effect.gen(function*() {
      const { list } = desk()
      const result = yield* list(["O-1?", null])
      assert.strictEqual(result.status, "error")
      assert.deepStrictEqual(result.summary, { requested: 2, ok: 0, other: 2, deferred: 0 })
    }))

  it.effect("an item's own failure is told with it, and is worth another try where the tool says so", () =>
    Effect.gen(function*() {
      const { list } = desk((ids) =>
        Effect.succeed(
          new Map(ids.map((id, i) => [
            id,
            i === 0 ? orderOf(id) : Coalescer.failed({ message: `no ${id}`, passing: i === 1 })
          ]))
        )
      )
      const result = yield* list(ids(3))
      assert.deepStrictEqual(result.results, {
        "O-0": found("O-0"),
        "O-1": { status: "error", message: "no O-1", retryable: true, failure: { message: "no O-1", passing: true } },
        "O-2": { status: "error", message: "no O-2", retryable: false, failure: { message: "no O-2", passing: false } }
      })
    }))

  it.effect("shuffled answers with extra items are paired by their keys", () =>
    Effect.gen(function*() {
      const { list } = desk(
        (ids) => Effect.succeed([orderOf("extra"), ...ids.slice(1).toReversed().map(orderOf), orderOf("more")]),
        { itemKey: (order: typeof Order.Type) => order.id }
      )
      const result = yield* list(ids(4))
      assert.deepStrictEqual(statuses(result), ["not_found", "ok", "ok", "ok"])
      for (const id of result.ids.slice(1)) assert.deepStrictEqual(result.results[id], found(id))
      assert.strictEqual(Object.hasOwn(result.results, "extra"), false)
    }))

  it.effect("members stand in the order of the rules, and ids are data", () =>
    Effect.gen(function*() {
      const { run } = desk((ids) => Effect.succeed(new Map(ids.map((id) => [id, orderOf(id)]))))
      const names = ["__proto__", "9", "constructor", "1", "toString"]
      const [outcome] = yield* run({ items: names })
      const result = resultOf(outcome!)
      assert.deepStrictEqual(Object.keys(result), [
        "status",
        "summary",
        "ids",
        "results",
        "invalid",
        "deferred_ids",
        "note"
      ])
      assert.deepStrictEqual(result.ids, names)
      for (const id of names) {
        assert.isTrue(Object.hasOwn(result.results, id))
        assert.deepStrictEqual(result.results[id], found(id))
      }
      const encoded = JSON.parse(JSON.stringify((outcome as any).encoded))
      assert.isTrue(Object.hasOwn(encoded.results, "__proto__"))
      assert.strictEqual(encoded.results["9"].value.id, "9")
    }))

  it.effect("items may be objects, whose id a function tells", () =>
    Effect.gen(function*() {
      const asked: Array<unknown> = []
      const Seats = BatchTool.make("get_seats", {
        description: "Looks seats up.",
        item: Schema.Struct({ row: Schema.FiniteFromString, seat: Schema.String }),
        key: ({ row, seat }) => `${row.trim()}${seat.toUpperCase()}`,
        success: Schema.Boolean,
        lookup: (seats) => {
          asked.push(...seats)
          return Effect.succeed(new Map(seats.map((seat) => [seat, seat.row > 1])))
        }
      })
      assert.strictEqual(Seats.single, undefined)
      const result = yield* drive(
        Seats.handlers.get_seats({
          items: [{ row: "2", seat: "a" }, { seat: "a", row: "2" }, { row: 3, seat: "b" }, { row: "x", seat: "c" }, {
            row: "1",
            seat: "c"
          }]
        })
      ).pipe(Effect.provideService(TurnContext.Tenant, "t"))
      assert.deepStrictEqual(result.ids, ["2A", "xC", "1C"])
      assert.deepStrictEqual(statuses(result), ["ok", "invalid", "ok"])
      assert.deepStrictEqual(result.results["2A"], { status: "ok", value: true })
      assert.deepStrictEqual(result.results["1C"], { status: "ok", value: false })
      assert.deepStrictEqual(result.invalid.map(({ position }) => position), [2])
      assert.deepStrictEqual(asked, [{ row: 2, seat: "a" }, { row: 1, seat: "c" }])
    }))

  it.effect("two items of one id that differ are both invalid, and nothing is merged in silence", () =>
    Effect.gen(function*() {
      const asked: Array<unknown> = []
      const Rates = BatchTool.make("get_rates", {
        description: "Looks rates up.",
        item: Schema.Struct({ hotel: Schema.String, night: Schema.String }),
        key: ({ hotel }) => hotel,
        success: Schema.String,
        lookup: (rates) => {
          asked.push(...rates)
          return Effect.succeed(rates.map(({ night }) => night))
        }
      })
      const result = yield* drive(
        Rates.handlers.get_rates({
          items: [{ hotel: "a", night: "1" }, { hotel: "b", night: "1" }, { hotel: "a", night: "2" }, {
            night: "1",
            hotel: "b"
          }]
        })
      ).pipe(Effect.provideService(TurnContext.Tenant, "t"))
      assert.deepStrictEqual(result.summary, { requested: 2, ok: 1, other: 1, deferred: 0 })
      assert.deepStrictEqual(result.results, {
        a: {
          status: "invalid",
          message: "2 items of the list have this id, and they differ: call again with the one that is meant",
          retryable: true
        },
        b: { status: "ok", value: "1" }
      })
      assert.deepStrictEqual(asked, [{ hotel: "b", night: "1" }])
    }))

  it.effect("items over the cap whose id a function tells are asked for again as items", () =>
    Effect.gen(function*() {
      const Seats = BatchTool.make("get_seats", {
        description: "Looks seats up.",
        item: Schema.Struct({ seat: Schema.String }),
        key: ({ seat }) => seat,
        success: Schema.String,
        lookup: (seats) => Effect.succeed(seats.map(({ seat }) => seat)),
        cap: 1
      })
      const result = yield* drive(Seats.handlers.get_seats({ items: [{ seat: "a" }, { seat: "b" }] })).pipe(
        Effect.provideService(TurnContext.Tenant, "t")
      )
      assert.deepStrictEqual(result.deferred_ids, ["b"])
      assert.strictEqual(
        result.note,
        "1 of the items were not looked up, for one call takes 1 at most; deferred_ids has their ids, of the same kind as those in ids. " +
          "Call again with these items, each written as it was in this call."
      )
    }))

  const misfits: ReadonlyArray<readonly [what: string, found: unknown, message: RegExp]> = [
    [
      "another form",
      { id: "O-1", state: 5 },
      /^what was found .* not as the tool says .* \(state: Expected string.*\)$/
    ],
    ["null", null, /^null was found for it, .* \(Expected object.*\): "not found" is said with undefined$/],
    ["no text", "O-1", /\(Expected object.*\)$/],
    ["another failure", Coalescer.failed({ text: "no" }), /^\{"text":"no"\} \(its failure is not as .*message: .*\)$/],
    ["no failure", Coalescer.failed(undefined), /^undefined \(its failure is not as the tool says that it is: .*\)$/]
  ]
  for (const [what, odd, message] of misfits) {
    it.effect(`an answer of a form that the tool does not declare touches its own item alone: ${what}`, () =>
      Effect.gen(function*() {
        const { list } = desk((ids) => Effect.succeed(ids.map((id) => id === "O-1" ? odd : orderOf(id))))
        const result = yield* list(ids(3))
        assert.deepStrictEqual(statuses(result), ["ok", "error", "ok"])
        const { message: said, ...rest } = result.results["O-1"]
        assert.match(said, message)
        assert.deepStrictEqual(rest, { status: "error", retryable: false })
      }))
  }

  it.effect("a number that JSON cannot hold touches its own item alone", () =>
    Effect.gen(function*() {
      const { list } = desk((ids) => Effect.succeed(ids.map((id) => id === "O-1" ? Number.NaN : 1)), {
        success: Schema.Number
      })
      const result = yield* list(ids(2))
      assert.deepStrictEqual(statuses(result), ["ok", "error"])
      assert.match(result.results["O-1"].message, /JSON cannot hold it/)
    }))

  it.effect("a failure without words of its own stands once in the result", () =>
    Effect.gen(function*() {
      const { list, run } = desk((ids) => Effect.succeed(ids.map(() => Coalescer.failed({ why: "x".repeat(50) }))), {
        failure: Schema.Struct({ why: Schema.String })
      })
      const result = yield* list(["O-1"])
      assert.deepStrictEqual(result.results["O-1"], {
        status: "error",
        message: 'it failed by itself: "failure" says how',
        retryable: false,
        failure: { why: "x".repeat(50) }
      })
      const [twin] = yield* run({ item: "O-1" })
      assert.deepStrictEqual((twin as any).failure.failure, { why: "x".repeat(50) })
    }))

  it.effect("the twin leaves out a failure of a form that the tool does not declare", () =>
    Effect.gen(function*() {
      const { run } = desk((ids) => Effect.succeed(ids.map(() => Coalescer.failed({ text: "no" }))))
      const [outcome] = yield* run({ item: "O-1" })
      const { message, ...rest } = (outcome as any).failure
      assert.match(message, /its failure is not as the tool says/)
      assert.deepStrictEqual(rest, { code: "ERROR", retryable: false })
    }))

  it.effect("numbers are their own ids", () =>
    Effect.gen(function*() {
      const Squares = BatchTool.make("squares", {
        description: "Squares.",
        item: Schema.Finite,
        success: Schema.Finite,
        lookup: (numbers) => Effect.succeed(new Map(numbers.map((n) => [n, n * n])))
      })
      const result = yield* drive(Squares.handlers.squares({ items: [3, 2, 3, Number.NaN, "2"] })).pipe(
        Effect.provideService(TurnContext.Tenant, "t")
      )
      assert.deepStrictEqual(result.ids, ["3", "2"])
      assert.deepStrictEqual(result.results, { "2": { status: "ok", value: 4 }, "3": { status: "ok", value: 9 } })
      assert.deepStrictEqual(result.invalid.map(({ position }) => position), [3])
    }))

  it.effect("what cannot be normalised has no id, and says why; the log has it once", () =>
    Effect.gen(function*() {
      const logged: Array<readonly [string, unknown]> = []
      const logger = Logger.make(({ logLevel, message }) => {
        logged.push([logLevel, (message as ReadonlyArray<unknown>)[0]])
      })
      const normalise = (raw: any) => {
        if (raw === null || raw === 7) throw new Error(`no ${raw}`)
        return raw.toUpperCase()
      }
      const { list, orders, run } = desk(table, { normalise })
      const items = ["o-1", null, "O-1", 7]
      const invalid = [
        { position: 1, message: "it could not be normalised: no null", retryable: true },
        { position: 3, message: "it could not be normalised: no 7", retryable: true }
      ]
      const result = yield* list(items).pipe(Effect.provide(Logger.layer([logger])))
      assert.deepStrictEqual(result.ids, ["O-1"])
      assert.deepStrictEqual(result.invalid, invalid)
      const words = 'the normalise of the batch tool "get_orders" threw, first for the item at position 1'
      assert.deepStrictEqual(logged, [["Warn", words]])
      const outside = yield* drive(orders.handlers.get_orders({ items })).pipe(
        Effect.provide([Logger.layer([logger]), Layer.succeed(TurnContext.Tenant, "t")])
      )
      assert.deepStrictEqual(outside.invalid, invalid)
      assert.deepStrictEqual(logged, [["Warn", words], ["Warn", words]])
      const [twin] = yield* run({ item: 7 })
      assert.match((twin as any).message, /item: it could not be normalised: no 7/)
    }))

  it.effect("a list that is no list is refused", () =>
    Effect.gen(function*() {
      const { requests, run } = desk()
      const outcomes = yield* run({ items: "O-1" }, { items: null })
      assert.deepStrictEqual(words(outcomes), ["error/invalid_arguments", "deferred/placeholder"])
      assert.deepStrictEqual(requests, [])
    }))

  it.effect("what is deferred is counted, by tool and reason", () =>
    Effect.gen(function*() {
      const { layer, orders, toolkit } = desk()
      const registry = new Map()
      yield* drive(
        Turn.run(toolkit, [ToolCall.make("c", "get_orders", { items: ids(31) })]).pipe(Effect.provide(layer))
      )
      yield* drive(orders.handlers.get_orders({ items: ids(30) })).pipe(
        Effect.provideService(TurnContext.Tenant, "t"),
        Effect.provideService(Metric.MetricRegistry, registry)
      )
      const counted = Metric.withAttributes(BatchTool.deferred, { tool: "get_orders", reason: "cap" })
        .valueUnsafe(Context.make(Metric.MetricRegistry, registry))
      assert.strictEqual(counted.count, 5)
    }))
})

describe("R26: what the model sees", () => {
  it("the tool says that all is to be passed at once, and the cap; the twin points to the list", () => {
    const { orders } = desk(table, { cap: 7 })
    assert.strictEqual(
      orders.tool.description,
      "Looks orders up. Pass everything that is wanted at once, in one call with a list: up to 7 items."
    )
    assert.strictEqual(
      orders.single.description,
      'Looks orders up. For one item alone: for more, call "get_orders" once with all of them.'
    )
  })

  const Item = Schema.Struct({
    t: Schema.String.annotate({ description: "the text" }),
    n: Schema.FiniteFromString
  })
  const texts = BatchTool.make("texts", {
    description: "Texts.",
    item: Item,
    key: ({ t }) => t,
    success: Schema.Struct({ a: Schema.Finite, b: Schema.String }),
    lookup: () => Effect.succeed([]),
    fields: true,
    cap: 4,
    single: { name: "text" }
  })
  const items = (additionalProperties: boolean) => ({
    type: "object",
    properties: { t: { type: "string", description: "the text" }, n: { type: "string" } },
    required: ["t", "n"],
    additionalProperties
  })

  it("JSON Schema has the schema of an item, and the bounds as a hint", () => {
    assert.deepStrictEqual(Tool.getJsonSchema(texts.tool), {
      type: "object",
      properties: {
        items: {
          type: "array",
          items: items(true),
          minItems: 1,
          maxItems: 4,
          description: "Everything that is wanted, at once. At most 4."
        },
        fields: {
          type: "array",
          items: { type: "string", enum: ["a", "b"] },
          description: "The fields wanted of each item. Left out: all of them."
        }
      },
      required: ["items"],
      additionalProperties: false
    } as any)
    assert.deepStrictEqual(Tool.getJsonSchema(texts.single), {
      type: "object",
      properties: { item: items(true) },
      required: ["item"],
      additionalProperties: true
    } as any)
  })

  for (const [provider, transformer] of [["OpenAI", toCodecOpenAI], ["Anthropic", toCodecAnthropic]] as const) {
    it(`it is one that ${provider}'s form keeps`, () => {
      const { properties, required, type } = Tool.getJsonSchema(texts.tool, { transformer }) as any
      assert.strictEqual(type, "object")
      assert.deepStrictEqual(required, ["items"])
      assert.strictEqual(properties.items.type, "array")
      assert.deepStrictEqual(properties.items.items.required, ["t", "n"])
      assert.deepStrictEqual(Tool.getJsonSchema(texts.single, { transformer }).required, ["item"])
    })
  }

  it("an item with a name of its own is one definition", () => {
    const Named = Schema.Struct({ t: Schema.String }).annotate({ identifier: "Named" })
    const { tool } = BatchTool.make("named", {
      description: "Named.",
      item: Named,
      key: ({ t }) => t,
      success: Schema.String,
      lookup: () => Effect.succeed([])
    })
    const schema = Tool.getJsonSchema(tool) as any
    assert.deepStrictEqual(schema.properties.items.items, { $ref: "#/$defs/Named" })
    assert.deepStrictEqual(Object.keys(schema.$defs), ["Named"])
  })
})

describe("R26: what of an item is shown", () => {
  const Doc = Schema.Struct({
    id: Schema.String,
    kind: Schema.Literals(["an unusually long kind of thing"]),
    body: Schema.Struct({ lines: Schema.Array(Schema.String) }),
    made: Schema.DateTimeUtcFromString
  })
  const made = Schema.decodeSync(Schema.DateTimeUtcFromString)("2026-01-02T03:04:05.000Z")
  const docs = (fields: boolean, text?: number) => {
    const tool = BatchTool.make("docs", {
      description: "Docs.",
      item: Schema.String,
      success: Doc,
      lookup: (ids) =>
        Effect.succeed(ids.map((id) => ({
          id,
          kind: "an unusually long kind of thing" as const,
          body: { lines: ["short", "👨‍👩‍👧‍👦".repeat(3), "x".repeat(30)] },
          made
        }))),
      fields,
      text,
      single: { name: "doc" }
    })
    const toolkit = Toolkit.make(tool.tool, tool.single)
    return (calls: ReadonlyArray<ToolCall.ToolCall>) =>
      drive(Turn.run(toolkit, calls)).pipe(
        Effect.provide([toolkit.toLayer(tool.handlers), Turn.layer(), Layer.succeed(TurnContext.Tenant, "t")])
      ) as Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>, unknown>
  }

  it.effect("the fields that were asked for; those that are not there are told", () =>
    Effect.gen(function*() {
      const run = docs(true)
      const outcomes = yield* run([
        ToolCall.make("a", "docs", { items: ["d"], fields: ["made", "id"] }),
        ToolCall.make("b", "docs", { items: ["d"], fields: ["id", "name", 4] }),
        ToolCall.make("c", "docs", { items: ["d"], fields: ["name"] }),
        ToolCall.make("d", "docs", { items: ["d"], fields: [] }),
        ToolCall.make("e", "docs", { items: ["d"], fields: "id" }),
        ToolCall.make("f", "docs", { items: ["d"], fields: null })
      ])
      const shown = outcomes.map((outcome) => Object.keys(resultOf(outcome).results["d"].value))
      const all = ["id", "kind", "body", "made"]
      assert.deepStrictEqual(shown, [["id", "made"], ["id"], all, all, ["id"], all])
      assert.deepStrictEqual(outcomes.map((outcome) => resultOf(outcome).note), [
        "",
        'Unknown fields: "name", 4. Known ones: id, kind, body, made.',
        'Unknown fields: "name". Known ones: id, kind, body, made.',
        "",
        "",
        ""
      ])
      assert.deepStrictEqual((outcomes[0] as any).encoded.results.d.value, {
        id: "d",
        made: "2026-01-02T03:04:05.000Z"
      })
    }))

  it.effect("without it being asked for, there is no such parameter", () =>
    Effect.gen(function*() {
      const [outcome] = yield* docs(false)([ToolCall.make("a", "docs", { items: ["d"], fields: ["id"] })])
      assert.deepStrictEqual(Object.keys(resultOf(outcome!).results["d"].value), ["id", "kind", "body", "made"])
    }))

  it.effect("long texts are cut between characters and marked, where their schema takes that", () =>
    Effect.gen(function*() {
      const outcomes = yield* docs(true, 15)([
        ToolCall.make("a", "docs", { items: ["d"] }),
        ToolCall.make("b", "doc", { item: "d" })
      ])
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      for (const value of [resultOf(outcomes[0]!).results["d"].value, (outcomes[1] as any).result]) {
        assert.strictEqual(value.kind, "an unusually long kind of thing")
        assert.deepStrictEqual(value.body.lines, [
          "short",
          "👨‍👩‍👧‍👦…",
          `${"x".repeat(14)}…`
        ])
        assert.deepStrictEqual(value.made, made)
      }
    }))
})

describe("R26: no text is longer than may be", () => {
  it.effect.prop(
    "the mark counts, and what is not too long is whole",
    { text: int(1, 90), length: int(0, 200), of: pick("x", "é", "👨‍👩‍👧‍👦", "😀") },
    ({ length, of, text }) =>
      Effect.gen(function*() {
        const whole = of.repeat(Math.ceil(length / of.length))
        const { list } = desk((ids) => Effect.succeed(ids.map(() => whole)), { success: Schema.String, text })
        const { value } = (yield* list(["O-1"])).results["O-1"]
        if (whole.length <= text) return assert.strictEqual(value, whole)
        assert.isAtMost(value.length, text)
        const [, shown = "", count] = /^(.*)…(?:\[(\d+) more characters\])?$/su.exec(value) ?? assert.fail(value)
        assert.strictEqual(whole.slice(0, shown.length), shown)
        assert.strictEqual(shown.length % of.length, 0)
        if (text >= 60) assert.strictEqual(Number(count), whole.length - shown.length)
      }),
    runs(60)
  )
})

describe("R26: the twin", () => {
  it.effect("finds one item, normalised as in a list", () =>
    Effect.gen(function*() {
      const { run } = desk()
      const outcomes = yield* run({ item: " O-1 " }, { items: ["O-1", "O-2"] })
      assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      assert.deepStrictEqual((outcomes[0] as any).result, orderOf("O-1"))
    }))

  it.effect("fails with what became of its item", () =>
    Effect.gen(function*() {
      const { run } = desk((ids) =>
        ids[0] === "late"
          ? Effect.never
          : ids[0] === "down"
          ? Effect.fail("down")
          : ids[0] === "own"
          ? Effect.succeed([Coalescer.failed({ message: "not today", passing: true })])
          : Effect.succeed([undefined]), { chunk: 1 })
      const outcomes = yield* run({ item: "none" }, { item: "down" }, { item: "late" }, { item: "own" })
      assert.deepStrictEqual(words(outcomes), ["error/not_found", "error/failed", "error/failed", "error/failed"])
      const failures = outcomes.map((outcome) => (outcome as any).failure)
      assert.deepStrictEqual(failures.slice(1).map(({ code }) => code), ["ERROR", "TIMEOUT", "ERROR"])
      assert.deepStrictEqual(outcomes.map(({ retryable }) => retryable), [false, true, true, true])
      assert.deepStrictEqual(failures[3].failure, { message: "not today", passing: true })
    }))

  it.effect("outside of turns its failure says what became of its item", () =>
    Effect.gen(function*() {
      const { orders } = desk()
      const failure = yield* drive(Effect.flip(orders.handlers.get_order({ item: "O-1?" }))).pipe(
        Effect.provideService(TurnContext.Tenant, "t")
      )
      assert.deepStrictEqual(failure, {
        code: "NOT_FOUND",
        message: 'get_orders: there is nothing for "O-1?"',
        retryable: false
      })
    }))

  it.effect("in a turn its calls and those of the list share requests, at once", () =>
    Effect.gen(function*() {
      const { requests, run } = desk()
      const outcomes = yield* run(
        ...ids(8).map((item) => ({ item })),
        { items: ["O-7", "O-8", "O-9", "O-10", "", "O-11"] },
        { item: "O-11" }
      )
      assert.deepStrictEqual(words(outcomes), outcomes.map(() => "ok"))
      assert.deepStrictEqual(requests, [ids(10), ["O-10", "O-11"]])
      assert.deepStrictEqual(resultOf(outcomes[8]!).summary, { requested: 6, ok: 5, other: 1, deferred: 0 })
      assert.deepStrictEqual((outcomes[9] as any).result, orderOf("O-11"))
    }))

  it.effect("null is held as a placeholder; what its schema refuses, and an empty text, are invalid", () =>
    Effect.gen(function*() {
      const { requests, run } = desk(table, { normalise: (raw: any) => raw.trim() })
      const outcomes = yield* run({ item: null }, { item: 4 }, { item: " " })
      assert.deepStrictEqual(words(outcomes), [
        "deferred/placeholder",
        "error/invalid_arguments",
        "error/invalid_arguments"
      ])
      assert.match((outcomes[2] as any).message, /item: it is an empty text/)
      assert.deepStrictEqual(requests, [])
    }))
})

describe("a batch tool's policy", () => {
  it("it reads, and a list reads what its good items read", () => {
    const { orders } = desk(table, {
      item: Schema.String.check(Schema.isStartingWith("O-")),
      resources: (id: string) => [`order:${id}`, "orders"]
    })
    for (const tool of [orders.tool, orders.single]) assert.strictEqual(ToolPolicy.get(tool).access, "read")
    assert.deepStrictEqual(
      ToolPolicy.get(orders.tool).keys!({ items: ["O-1", null, "x", "O-2", "O-1"] }),
      ["order:O-1", "orders", "order:O-2"]
    )
    assert.deepStrictEqual(ToolPolicy.get(orders.tool).keys!({}), [])
    assert.deepStrictEqual(ToolPolicy.get(orders.single).keys!({ item: "O-1" }), ["order:O-1", "orders"])
    assert.strictEqual(ToolPolicy.get(desk().orders.tool).keys, undefined)
  })

  it("its clock cuts no list short that waits in line; one that is said later stands", () => {
    const timeout = (extra: object) => ToolPolicy.get(desk(table, extra).orders.tool).timeout
    assert.strictEqual(timeout({}), 60_000 + 3 * 2000)
    assert.strictEqual(timeout({ cap: 100, chunk: 20, chunkTimeout: 500 }), 60_000 + 5 * 500)
    assert.strictEqual(timeout({ chunkTimeout: "infinite" }), Infinity)
    assert.strictEqual(timeout({ chunkTimeout: 2_147_483_647 }), 2_147_483_647)
    assert.strictEqual(ToolPolicy.get(desk().orders.single).timeout, 62_000)
    assert.strictEqual(ToolPolicy.get(ToolPolicy.timeout(5)(desk().orders.tool)).timeout, 5)
  })

  it("impossible limits are refused where they are written", () => {
    const refused = (extra: object, words: RegExp) => assert.throws(() => desk(table, extra), words)
    refused({ cap: 0 }, /batch tool "get_orders": .*cap.*a whole number from 1.*0/)
    refused({ chunk: 2.5 }, /chunk.*a whole number from 1.*2.5/)
    refused({ text: -1 }, /text.*a whole number from 1.*-1/)
    refused({ chunkTimeout: Number.NaN }, /chunkTimeout.*NaN/)
    assert.throws(() => desk(table, { cap: "all" }), TurnError.TurnError as any)
  })
})

describe("what a batch tool cannot be made of is refused where it is written", () => {
  const refused = (make: () => unknown, words: RegExp) => {
    assert.throws(make, words)
    assert.throws(make, TurnError.TurnError as any)
  }
  const common = (make: (extra: object) => unknown, call: string) => {
    for (const option of ["item", "success"]) {
      refused(() => make({ [option]: undefined }), new RegExp(`, ${option}: expected a schema, and got undefined$`))
    }
    refused(() => make({ failure: "text" }), /, failure: expected a schema, and got "text"$/)
    refused(() => make({ description: undefined }), /, description: expected a text, and got undefined$/)
    refused(() => make({ [call]: [] }), new RegExp(`, ${call}: expected a function, and got a list of 0$`))
    refused(() => make({ failures: { transient: true } }), /, failures.transient: expected a function, and got true$/)
    for (const option of ["key", "normalise", "itemKey", "resources"]) {
      refused(() => make({ [option]: new Map() }), new RegExp(`, ${option}: expected a function, and got a Map$`))
    }
    const objects = [
      Schema.Struct({ id: Schema.String }),
      Schema.Array(Schema.String),
      Schema.Union([Schema.String, Schema.Struct({ id: Schema.String })])
    ]
    for (const item of objects) {
      refused(() => make({ item }), /, key: expected a function, for its items may be objects.*, and got undefined$/)
    }
    assert.isObject(make({ item: Schema.FiniteFromString }))
    for (const backend of [{}, "Shop", TurnContext.Tenant]) {
      refused(() => make({ backend }), /, backend: expected a backend, as Backend.Service makes it, and got/)
    }
    assert.isObject(make({ backend: Shop }))
  }

  it("lists that are looked up", () => {
    const make = (extra: object, name: unknown = "orders") =>
      BatchTool.make(name as string, {
        description: "Orders.",
        item: Schema.String,
        success: Schema.String,
        lookup: () => Effect.succeed([]),
        ...extra
      } as any)
    common(make, "lookup")
    refused(() => make({}, ""), /a batch tool, name: expected a text that is not empty, and got ""$/)
    refused(
      () => BatchTool.make("orders", undefined as any),
      /"orders", options: expected an object, and got undefined/
    )
    refused(
      () => make({ fields: true }),
      /"orders", fields: expected a success that is a struct.*a schema without fields$/
    )
    refused(() => make({ fields: ["id"] }), /, fields: expected true or false, and got a list of 1$/)
    for (const single of [{}, { name: "" }, "order", null]) {
      refused(() => make({ single }), /, single.name: expected a text that is not empty, and got/)
    }
    refused(() => make({ single: { name: "orders" } }), /, single.name: expected another name than that of the list/)
  })

  it("lists that are written", () => {
    const make = (extra: object) =>
      BatchTool.write("pay", {
        description: "Pays.",
        item: Schema.String,
        success: Schema.String,
        apply: () => Effect.succeed([]),
        ...extra
      } as any)
    common(make, "apply")
    const key = (id: string) => id
    refused(() => make({ destructive: true }), /"pay", approval: expected .* for it is destructive, and got undefined$/)
    refused(() => make({ destructive: "yes" }), /, destructive: expected true or false, and got "yes"$/)
    refused(() => make({ approval: true }), /, approval: expected "never", "always" or a function, and got true$/)
    refused(() => make({ idempotency: { key } }), /, idempotency.mode: expected "forward" or "record", and got undef/)
    refused(() => make({ idempotency: { key, mode: "both" } }), /, idempotency.mode: .*, and got "both"$/)
    refused(() => make({ idempotency: null }), /, idempotency.mode: expected/)
    refused(() => make({ idempotency: { mode: "record" } }), /, idempotency.key: expected a function, and got undef/)
    refused(() => make({ idempotency: { mode: "record", key, scope: "all" } }), /, idempotency.scope: .*got "all"$/)
  })
})

class Shop extends Backend.Service<Shop>()("test/batch/Shop") {}

describe("R26: on a backend, and outside turns", () => {
  const shop = (limits: Parameters<typeof Shop.layer>[0]) => {
    let atWork = 0
    let most = 0
    const orders = BatchTool.make("get_orders", {
      description: "Looks orders up.",
      item: Schema.String,
      success: Order,
      lookup: (ids) =>
        Effect.gen(function*() {
          most = Math.max(most, ++atWork)
          yield* Effect.sleep(100)
          atWork--
          return ids.map(orderOf)
        }),
      backend: Shop,
      single: { name: "get_order" }
    })
    const layer = Layer.mergeAll(Shop.layer(limits), Layer.succeed(TurnContext.Tenant, "t"))
    return { layer, most: () => most, orders }
  }

  it.effect("requests take a permit each", () =>
    Effect.gen(function*() {
      const { layer, most, orders } = shop({ concurrency: 2 })
      const result = yield* drive(orders.handlers.get_orders({ items: ids(25) })).pipe(Effect.provide(layer))
      assert.deepStrictEqual(result.summary, { requested: 25, ok: 25, other: 0, deferred: 0 })
      assert.strictEqual(most(), 2)
    }))

  it.effect("a request that the backend turns away is an error worth another try", () =>
    Effect.gen(function*() {
      const { layer, orders } = shop({ concurrency: 1, queueLimit: 0 })
      const result = yield* drive(orders.handlers.get_orders({ items: ids(12) })).pipe(Effect.provide(layer))
      assert.deepStrictEqual(result.summary, { requested: 12, ok: 10, other: 2, deferred: 0 })
      assert.strictEqual(result.results["O-11"]!.status, "error")
      assert.strictEqual((result.results["O-11"] as any).retryable, true)
    }))

  it.effect("effect/ai's own toolkit runs them too", () =>
    Effect.gen(function*() {
      const { layer, orders } = shop({ concurrency: 2 })
      const toolkit = Toolkit.make(orders.tool, orders.single)
      const handle = (params: unknown) =>
        Effect.gen(function*() {
          const kit = yield* toolkit
          const results = yield* kit.handle("get_orders", params as any)
          return yield* Stream.runCollect(results)
        })
      const all = yield* drive(
        Effect.all([handle({ items: ["O-1"] }), handle({ items: [] })]).pipe(
          Effect.provide([toolkit.toLayer(orders.handlers), layer])
        )
      )
      assert.deepStrictEqual(all.map(([one]) => one!.isFailure), [false, true])
      assert.deepStrictEqual((all[0]![0]!.encodedResult as any).results, { "O-1": found("O-1") })
    }))
})

describe("R26: always", () => {
  /** Something a model may put into a list. */
  const raw = pick<unknown>(
    "a",
    "b",
    " a",
    "c?",
    "d!",
    "e~",
    "__proto__",
    "1",
    "2",
    "10",
    "",
    "  ",
    null,
    1,
    10,
    true,
    {},
    [],
    { id: "a" }
  )
  const item = Schema.String.check(Schema.makeFilter((text) => !text.endsWith("~") || "it ends in ~"))

  it.effect.prop(
    "ids out are ids in, once each; the sums are right; nobody gets another's item",
    {
      items: Arbitrary.array(raw, { maxLength: 30 }),
      cap: int(1, 12),
      chunk: int(1, 5),
      answer: pick("map", "shuffled", "short", "list", "extra", "fails", "wrong length")
    },
    ({ answer, cap, chunk, items }) =>
      Effect.gen(function*() {
        const own = (id: string) => id.endsWith("!") ? Coalescer.failed({ message: id, passing: false }) : orderOf(id)
        const lookup: Lookup = (ids) => {
          const there = ids.filter((id) => !id.endsWith("?"))
          switch (answer) {
            case "map":
              return Effect.succeed(new Map(there.map((id) => [id, own(id)])))
            case "list":
              return Effect.succeed(ids.map((id) => id.endsWith("?") ? undefined : own(id)))
            case "fails":
              return Effect.fail("down")
            case "wrong length":
              return Effect.succeed(ids.slice(1).map(orderOf))
            case "short":
              return Effect.succeed(new Map([...there.entries()].slice(1).map(([, id]) => [id, own(id)])))
            case "shuffled":
              return Effect.succeed(new Map(there.toReversed().map((id) => [id, own(id)])))
            case "extra":
              return Effect.succeed(new Map(["z", ...there, "zz"].map((id) => [id, own(id)])))
            default:
              throw new Error(answer)
          }
        }
        const { orders } = desk(lookup, { item, cap, chunk })
        const exit = yield* Effect.exit(drive(orders.handlers.get_orders({ items }))).pipe(
          Effect.provideService(TurnContext.Tenant, "t")
        )
        if (items.length === 0) {
          assert.isTrue(Exit.isFailure(exit))
          return
        }
        if (Exit.isFailure(exit)) throw new Error("expected a result")
        const result = exit.value
        const wanted = [
          ...new Set(items.flatMap((raw) => {
            const id = typeof raw === "string" ? raw.trim() : typeof raw === "number" ? String(raw) : ""
            return id === "" ? [] : [id]
          }))
        ]
        const positions = items.flatMap((raw, i) =>
          (typeof raw === "string" && raw.trim() !== "") || typeof raw === "number" ? [] : [i]
        )
        assert.deepStrictEqual([...result.ids, ...result.deferred_ids], wanted)
        assert.deepStrictEqual(result.ids, wanted.slice(0, cap))
        assert.deepStrictEqual(Object.keys(result.results).sort(), [...result.ids].sort())
        assert.deepStrictEqual(result.invalid.map(({ position }) => position), positions)
        const { deferred, ok, other, requested } = result.summary
        assert.strictEqual(ok + other + deferred, requested)
        assert.strictEqual(requested, wanted.length + positions.length)
        assert.strictEqual(ok, result.ids.filter((id) => result.results[id]!.status === "ok").length)
        assert.strictEqual(deferred, result.deferred_ids.length)
        assert.strictEqual(result.note === "", deferred === 0)
        for (const id of result.ids) {
          const one = result.results[id]!
          if (one.status === "ok") assert.strictEqual(one.value.id, id)
          else if (one.failure !== undefined) assert.strictEqual(one.message, id)
        }
      }),
    runs(300)
  )
})
