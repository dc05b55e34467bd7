import { assert, describe, it } from "@effect/vitest"
import { Agent, ToolCall, ToolPolicy, Turn, TurnError } from "effect-turn"
import { FakeModel, ModelCheck } from "effect-turn/testing"
import { AiError, Prompt, Tool, Toolkit } from "effect/ai"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

const read = ToolPolicy.read({ keys: () => [] })
const One = pipe(Tool.make("get_order", { parameters: Schema.Struct({ id: Schema.String }) }), read)
const Many = pipe(Tool.make("get_orders", { parameters: Schema.Struct({ ids: Schema.Array(Schema.String) }) }), read)
const Other = pipe(Tool.make("search", { parameters: Schema.Struct({ q: Schema.String }) }), read)
const toolkit = Toolkit.make(One, Many, Other)
const handlers = toolkit.toLayer({
  get_order: () => Effect.void,
  get_orders: () => Effect.void,
  search: () => Effect.void
})

const one = (id: string) => FakeModel.call(One, { id })
const many = (...ids: ReadonlyArray<string>) => FakeModel.call(Many, { ids })
const done = FakeModel.text("done")

/** A model that asks for everything at once, and one that goes through the list. */
const batches = [FakeModel.calls([many("a", "b", "c")]), done]
const singles = [FakeModel.calls([one("a"), one("b"), one("c")]), done]
const oneByOne = [FakeModel.calls([one("a")]), FakeModel.calls([one("b")]), done]

const program: ModelCheck.Options<Effect.Effect<unknown, unknown, any>>["program"] = (prompt, onEvent) =>
  Agent.run({ prompt, toolkit, onEvent })

const check = (
  script: ReadonlyArray<FakeModel.Entry>,
  options: Partial<ModelCheck.Options<Effect.Effect<unknown, unknown, any>>> = {}
) =>
  ModelCheck.oneListCall({ prompts: ["Where are a, b and c?"], list: Many, single: One, program, ...options }).pipe(
    Effect.provide(Layer.mergeAll(FakeModel.layer(script), handlers, Turn.layer()))
  )

const words = (
  script: ReadonlyArray<FakeModel.Entry>,
  options?: Partial<ModelCheck.Options<Effect.Effect<unknown, unknown, any>>>
) => Effect.map(Effect.flip(check(script, options)), ({ message }) => message.split("\n"))

describe("ModelCheck.oneListCall", () => {
  it.effect("passes with a model that batches, and says what it saw", () =>
    Effect.gen(function*() {
      const report = yield* check([...batches, ...batches], { repeat: 2 })
      const ran = { prompt: 1, text: "Where are a, b and c?", calls: { get_orders: 1 }, steps: 1, right: true }
      assert.deepStrictEqual(report, {
        list: "get_orders",
        single: "get_order",
        prompts: 1,
        repeat: 2,
        atLeast: 1,
        right: 2,
        runs: [{ ...ran, run: 1, events: report.runs[0]!.events! }, { ...ran, run: 2, events: report.runs[1]!.events! }]
      })
      assert.isAbove(report.runs[0]!.events!, 0)
      assert.deepStrictEqual(Schema.decodeUnknownSync(ModelCheck.Report)(JSON.parse(JSON.stringify(report))), report)
    }))

  it.effect("fails with one that does not, and names the prompts and what the model did", () =>
    Effect.gen(function*() {
      const prompts = ["All three?", Prompt.make([{ role: "user", content: "And these?" }]), "At once?"]
      assert.deepStrictEqual(yield* words([...singles, ...oneByOne, ...batches], { prompts }), [
        "expected calls of get_orders in place of calls of get_order in all of 3 runs (3 prompts, each once), got 1 (33.3%)",
        'prompt 1, "All three?": get_order 3 times, in 1 step',
        'prompt 2, "And these?": get_order 2 times, in 2 steps'
      ])
    }))

  it.effect("takes the share of runs that has to be right, to the run", () =>
    Effect.gen(function*() {
      const script = [...batches, ...singles, ...batches, ...batches, ...batches]
      const { right } = yield* check(script, { repeat: 5, atLeast: 0.8 })
      assert.strictEqual(right, 4)
      assert.deepStrictEqual(yield* words(script, { repeat: 5, atLeast: 0.81 }), [
        "expected calls of get_orders in place of calls of get_order in at least 81% of 5 runs (1 prompt, each 5 times), got 4 (80%)",
        'prompt 1, "Where are a, b and c?", run 2: get_order 3 times, in 1 step'
      ])
      // 55 of 100 are 55%, whatever a product of floating numbers says.
      const mixed = Array.from({ length: 100 }, (_, i) => (i < 55 ? batches : singles)).flat()
      assert.strictEqual((yield* check(mixed, { repeat: 100, atLeast: 0.55 })).right, 55)
    }))

  it.effect("wants one list call, unless more are allowed, and none of the twin beside it", () =>
    Effect.gen(function*() {
      const twice = [FakeModel.calls([many("a")]), FakeModel.calls([many("b")]), done]
      assert.match((yield* words(twice))[1]!, /get_orders 2 times, in 2 steps$/)
      assert.strictEqual((yield* check(twice, { maxListCalls: 2 })).right, 1)
      const both = [FakeModel.calls([many("a", "b"), one("c")]), done]
      assert.match((yield* words(both, { maxListCalls: 2 }))[1]!, /get_orders once, get_order once, in 1 step$/)
    }))

  it.effect("counts calls that were refused: the model made them", () =>
    Effect.gen(function*() {
      const wrong = [FakeModel.calls([FakeModel.call("get_orders", { ids: "a" })]), ...batches]
      assert.match((yield* words(wrong))[1]!, /get_orders 2 times, in 2 steps$/)
    }))

  it.effect("C1: fails when it has checked nothing", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* words([], { prompts: [] }), [
        "expected calls of get_orders in place of calls of get_order, and there were no prompts: nothing was checked"
      ])
      const searches = [FakeModel.calls([FakeModel.call(Other, { q: "x" })]), done]
      assert.deepStrictEqual(yield* words([...searches, done], { repeat: 2, atLeast: 0.01 }), [
        "expected calls of get_orders in place of calls of get_order in at least 1% of 2 runs (1 prompt, each 2 times), " +
        "got 0 (0%): neither was called, so nothing was checked",
        'prompt 1, "Where are a, b and c?", run 1: search once, in 1 step; neither of the two',
        'prompt 1, "Where are a, b and c?", run 2: no calls at all'
      ])
    }))

  it.effect("C1: says that no event came where a program does not pass them on", () =>
    Effect.gen(function*() {
      const deaf: typeof program = (prompt) => Agent.run({ prompt, toolkit })
      assert.deepStrictEqual(yield* words([...batches, ...batches], { repeat: 2, program: deaf }), [
        "expected calls of get_orders in place of calls of get_order in all of 2 runs (1 prompt, each 2 times), " +
        "got 0 (0%): no event came, so nothing was checked: is onEvent passed on?",
        'prompt 1, "Where are a, b and c?", run 1: no event came: is onEvent passed on?',
        'prompt 1, "Where are a, b and c?", run 2: no event came: is onEvent passed on?'
      ])
      // One that fails says why, and one that calls nothing has told that it began.
      const failed = yield* words([], { program: () => Effect.fail("no") })
      assert.match(failed[1]!, /: no calls at all; the program failed: .*no/)
    }))

  it.effect("a run that calls neither is not right, also where others are", () =>
    Effect.gen(function*() {
      assert.match((yield* words([...batches, done], { repeat: 2 }))[1]!, /run 2: no calls at all$/)
    }))

  it.effect("C2: a program that fails or dies is a run that is not right", () =>
    Effect.gen(function*() {
      let n = 0
      const lines = yield* words([FakeModel.fail(new AiError.RateLimitError({})), ...batches], {
        repeat: 3,
        program: (prompt, onEvent) => n++ === 1 ? Effect.die(new Error("no")) : program(prompt, onEvent)
      })
      assert.match(lines[0]!, /got 1 \(33\.3%\)$/)
      assert.match(lines[1]!, /run 1: no calls at all; the program failed: .*[Rr]ate/)
      assert.match(lines[2]!, /run 2: no calls at all; the program failed: .*no/)
      const thrown = yield* words([], {
        program: () => {
          throw new Error("at once")
        }
      })
      assert.match(thrown[1]!, /the program failed: .*at once/)
    }))

  it.effect("takes the events of turns as well", () =>
    Effect.gen(function*() {
      const report = yield* check([], {
        program: (_, onEvent) =>
          Turn.run(toolkit, [ToolCall.make("c1", "get_orders", { ids: ["a", "b"] })], { onEvent })
      })
      assert.deepStrictEqual(report.runs[0]?.calls, { get_orders: 1 })
    }))

  it.effect("its interruption interrupts the program", () =>
    Effect.gen(function*() {
      const begun = yield* Deferred.make<void>()
      let stopped = false
      const fiber = yield* Effect.forkChild(check([], {
        program: () =>
          Effect.andThen(Deferred.succeed(begun, undefined), Effect.never).pipe(
            Effect.onInterrupt(() => Effect.sync(() => stopped = true))
          )
      }))
      yield* Deferred.await(begun)
      yield* Fiber.interrupt(fiber)
      assert.isTrue(stopped)
      assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(fiber)))
    }))

  it("refuses what cannot be", () => {
    const cases = [
      [{ repeat: 0 }, /repeat.*whole number from 1.*0/],
      [{ maxListCalls: 1.5 }, /maxListCalls.*1\.5/],
      [{ concurrency: -1 }, /concurrency.*-1/],
      [{ atLeast: 0 }, /atLeast.*a share above 0 and up to 1.*0/],
      [{ atLeast: 90 }, /atLeast.*90/],
      [{ atLeast: NaN }, /atLeast.*NaN/],
      [{ single: "get_orders" }, /two tools.*"get_orders" for both/]
    ] as const
    for (const [options, expected] of cases) {
      try {
        void check([], options)
        assert.fail("it was taken")
      } catch (error) {
        assert.instanceOf(error, TurnError.TurnError)
        assert.match((error as TurnError.TurnError).message, expected)
      }
    }
  })
})
