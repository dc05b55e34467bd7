import { assert, describe, it } from "@effect/vitest"
import { Backend, ToolPolicy, TurnError } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Duration from "effect/Duration"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"

class Hotels extends Backend.Service<Hotels>()("test/Hotels") {}

const plain = Tool.make("book", { parameters: Schema.Struct({ hotelId: Schema.String }), success: Schema.String })

describe("ToolPolicy", () => {
  it("a tool that says nothing has the careful policy", () =>
    assert.deepStrictEqual(ToolPolicy.get(plain), {
      access: "write",
      keys: undefined,
      backend: undefined,
      timeout: 10_000,
      waitTimeout: 60_000,
      idleTimeout: Infinity,
      idempotency: undefined,
      retry: undefined,
      undo: undefined,
      repeatable: false,
      placeholders: "detect",
      failures: {},
      resultBudget: undefined,
      interruptible: false
    }))

  it("Tool.Readonly makes a read; hints of being harmless or idempotent relax nothing", () => {
    assert.strictEqual(ToolPolicy.get(plain.annotate(Tool.Readonly, true)).access, "read")
    const hinted = plain.annotate(Tool.Destructive, false).annotate(Tool.Idempotent, true)
    assert.deepStrictEqual(ToolPolicy.get(hinted), ToolPolicy.get(plain))
    assert.strictEqual(ToolPolicy.get(ToolPolicy.write()(plain.annotate(Tool.Readonly, true))).access, "write")
    assert.strictEqual(ToolPolicy.get(ToolPolicy.read()(plain.annotate(Tool.Destructive, true))).access, "read")
  })

  it("reads, and writes with a key, are interruptible; other writes are not", () => {
    assert.isTrue(ToolPolicy.get(ToolPolicy.read()(plain)).interruptible)
    assert.isFalse(ToolPolicy.get(ToolPolicy.write()(plain)).interruptible)
    assert.isTrue(ToolPolicy.get(pipe(plain, ToolPolicy.write(), ToolPolicy.forward(() => "key"))).interruptible)
  })

  it("policies add up, in any order, and leave the tool they were given alone", () => {
    const failures = { noEffect: () => true }
    const one = pipe(
      plain,
      ToolPolicy.write({ keys: ({ hotelId }) => [`hotel:${hotelId}`] }),
      ToolPolicy.on(Hotels),
      ToolPolicy.timeout("1 minute"),
      ToolPolicy.waitTimeout(5),
      ToolPolicy.idleTimeout(Duration.seconds(2)),
      ToolPolicy.repeatable,
      ToolPolicy.placeholders({ literal: ["hotelId"] }),
      ToolPolicy.failures(failures),
      ToolPolicy.resultBudget({ maxChars: 400 })
    )
    const policy = ToolPolicy.get(one)
    assert.deepStrictEqual(policy.keys!({ hotelId: "7" }), ["hotel:7"])
    assert.deepStrictEqual(
      { ...policy, keys: undefined, backend: policy.backend!.key },
      {
        access: "write",
        keys: undefined,
        backend: "test/Hotels",
        timeout: 60_000,
        waitTimeout: 5,
        idleTimeout: 2000,
        idempotency: undefined,
        retry: undefined,
        undo: undefined,
        repeatable: true,
        placeholders: { literal: ["hotelId"] },
        failures,
        resultBudget: { maxChars: 400 },
        interruptible: false
      }
    )
    assert.strictEqual(ToolPolicy.get(plain).access, "write")
    assert.strictEqual(one.name, "book")
    assert.strictEqual(ToolPolicy.get(one), policy, "read once")
  })

  it("keys can be said apart from the access, and the last word counts", () => {
    const tool = pipe(plain, ToolPolicy.keys(({ hotelId }) => [hotelId]), ToolPolicy.read())
    assert.deepStrictEqual([ToolPolicy.get(tool).access, ToolPolicy.get(tool).keys!({ hotelId: "a" })], ["read", ["a"]])
    assert.strictEqual(ToolPolicy.get(pipe(plain, ToolPolicy.timeout(5), ToolPolicy.timeout(7))).timeout, 7)
  })

  it("R29: impossible budgets of results are refused where they are written", () => {
    const refusals: ReadonlyArray<readonly [unknown, string]> = [
      [{ maxChars: 0 }, 'tool "book": the limit "resultBudget.maxChars" must be a whole number from 1, and is 0'],
      [{ maxTokens: 1.5 }, 'tool "book": the limit "resultBudget.maxTokens" must be a whole number from 1, and is 1.5'],
      [
        { maxChars: 1, maxTokens: 1 },
        'the resultBudget of tool "book": expected either { maxChars } or { maxTokens }, and got {"maxChars":1,"maxTokens":1}'
      ],
      [{}, 'the resultBudget of tool "book": expected either { maxChars } or { maxTokens }, and got {}'],
      [500, 'the resultBudget of tool "book": expected either { maxChars } or { maxTokens }, and got 500']
    ]
    for (const [limit, message] of refusals) {
      assert.throws(() => ToolPolicy.resultBudget(limit as { maxChars: number })(plain), message)
    }
  })

  describe("R15: impossible limits are refused where they are written", () => {
    const clocks = {
      timeout: ToolPolicy.timeout,
      waitTimeout: ToolPolicy.waitTimeout,
      idleTimeout: ToolPolicy.idleTimeout
    }
    const impossible: ReadonlyArray<unknown> = [
      0,
      -1,
      NaN,
      Infinity,
      -Infinity,
      0.5,
      2_147_483_648,
      3_000_000_000,
      "0 seconds",
      "soon",
      "",
      Duration.infinity,
      Duration.zero,
      null,
      undefined,
      {},
      [],
      "Infinite"
    ]
    for (const [name, clock] of Object.entries(clocks)) {
      for (const limit of impossible) {
        it(`${name}: ${Duration.isDuration(limit) ? Duration.format(limit) : String(limit)}`, () => {
          let thrown: unknown
          try {
            clock(limit as ToolPolicy.Limit)(plain)
          } catch (error) {
            thrown = error
          }
          assert.instanceOf(thrown, TurnError.TurnError)
          const { reason } = thrown
          assert.strictEqual(reason._tag, "InvalidLimit")
          assert.match(thrown.message, new RegExp(`"book".*"${name}"`))
        })
      }
      it(`${name}: what can be`, () => {
        const millis = (limit: ToolPolicy.Limit) => ToolPolicy.get(clock(limit)(plain))[name as "timeout"]
        assert.deepStrictEqual(
          ["infinite" as const, 1, 2_147_483_647, "1 milli" as const, Duration.hours(1)].map(millis),
          [Infinity, 1, 2_147_483_647, 1, 3_600_000]
        )
      })
    }
  })
})
