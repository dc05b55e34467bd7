import { assert, describe, it } from "@effect/vitest"
import { Agent, Approval, Siblings, ToolCall, ToolPolicy, Turn, TurnContext, TurnError } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import * as AiError from "effect/ai/AiError"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { faultsOf, rolesOf } from "./utils/histories.ts"
import {
  Api,
  type Book,
  drive,
  ended,
  fork,
  lab,
  type LabOptions,
  type Name,
  toolkit,
  tools,
  words
} from "./utils/kit.ts"

const { call, calls, text } = FakeModel

const read = (tag: string) => call(tools.read, { tag, k: [] })
const write = (tag: string, k: ReadonlyArray<string> = []) => call(tools.write, { tag, k })

/** An agent of the lab's tools over a script, and what is left to look at. */
const agentOf = (script: ReadonlyArray<FakeModel.Entry>, options: LabOptions = {}) => {
  const { book, layer } = lab(options)
  const fake = FakeModel.layer(script)
  const all = Layer.merge(layer, fake)
  const closed: Array<Agent.Closed<any>> = []
  const onClosed = (one: Agent.Closed<any>) =>
    Effect.sync(() => {
      assert.deepStrictEqual(faultsOf(one.prompt), [])
      closed.push(one)
    })
  return { book, all, closed, onClosed, requests: Effect.map(FakeModel.FakeModel, ({ requests }) => requests) }
}

/** A scripted handler of the lab, for a toolkit that a test makes itself. */
const handlerOf = (book: Book, name: Name) =>
  book.handler(name) as (params: any, context: any) => Effect.Effect<unknown, string>

const prompt = "go"

describe("Agent: misuse", () => {
  it.effect("what is no parked agent is refused in words", () =>
    Effect.gen(function*() {
      for (const what of [null, 5, {}, { _tag: "ParkedAgent" }]) {
        const error = yield* Effect.flip(Agent.resume(what as any, {}))
        assert.include(String((error as Error).message), "the parked agent: expected what `Agent.run` parked")
      }
    }).pipe(Effect.provide([FakeModel.layer([]), Turn.layer()])))
})

describe("Agent: what ends a loop", () => {
  it.effect("the model's last words, after its calls have been answered", () =>
    Effect.gen(function*() {
      const { all, closed, onClosed, requests } = agentOf([
        calls([read("a"), write("b")], { text: "First." }),
        calls([read("c")]),
        text("Done.")
      ])
      yield* Effect.gen(function*() {
        const result = yield* drive(Agent.run({ prompt, toolkit, onClosed }))
        assert.strictEqual(result.reason, "final")
        assert.strictEqual(result.text, "Done.")
        assert.deepStrictEqual(result.steps.map(({ outcomes }) => words(outcomes)), [["ok", "ok"], ["ok"], []])
        assert.deepStrictEqual(
          result.steps.map(({ number, turn }) => [number, turn]),
          [1, 2, 3].map((n) => [
            n,
            `${result.agent}/${n}`
          ])
        )
        assert.strictEqual(rolesOf(result.prompt), "user assistant tool assistant tool assistant")
        assert.deepStrictEqual(closed.map(({ reason }) => reason), ["final"])
        assert.deepStrictEqual(closed[0]!.prompt, result.prompt)
        // What the model is asked is the history so far, with all tools, and nothing resolved or refused on the way.
        const asked = yield* requests
        assert.deepStrictEqual(asked.map(({ prompt }) => rolesOf(prompt)), [
          "user",
          "user assistant tool",
          "user assistant tool assistant tool"
        ])
        assert.deepStrictEqual(asked[0]!.tools.length, Object.keys(toolkit.tools).length)
        assert.strictEqual(asked[0]!.validation, "deferred")
      }).pipe(Effect.provide(all))
    }))

  it.effect("also with a governed model, which lets through what an agent asks", () =>
    Effect.gen(function*() {
      const { all, book } = agentOf([calls([write("a"), write("b")]), text("Done.")])
      const governed = Turn.layerLanguageModel().pipe(Layer.provideMerge(all))
      const result = yield* drive(Agent.run({ prompt, toolkit })).pipe(Effect.provide(governed))
      assert.deepStrictEqual([result.reason, words(result.steps[0]!.outcomes)], ["final", ["ok", "ok"]])
      assert.strictEqual(book.runs.length, 2)
    }))

  it.effect("an agent without tools is one question", () =>
    Effect.gen(function*() {
      const result = yield* Agent.run({ prompt })
      assert.deepStrictEqual([result.reason, result.text, result.steps.length], ["final", "Hello.", 1])
    }).pipe(Effect.provide([FakeModel.layer([text("Hello.")]), Turn.layer()])))

  it.effect("a terminal tool that succeeds: its value, and the other calls of its step are answered", () =>
    Effect.gen(function*() {
      const Submit = Tool.make("submit", {
        parameters: Schema.Struct({ n: Schema.FiniteFromString }),
        success: Schema.FiniteFromString
      })
      const kit = Toolkit.make(Submit, tools.read)
      const { all, book } = agentOf([
        calls([call(Submit, { n: "-1" })]),
        calls([read("a"), call(Submit, { n: "5" }), call(Submit, { n: "6" })])
      ])
      const handlers = kit.toLayer({
        read: handlerOf(book, "read"),
        submit: ({ n }) => n < 0 ? Effect.die("no") : Effect.succeed(n)
      })
      const result = yield* drive(
        Agent.run({ prompt, toolkit: kit, stopWhen: Agent.any(Agent.terminalTool("submit"), Agent.maxSteps(5)) })
      ).pipe(Effect.provide([handlers, all]))
      assert.strictEqual(result.reason, "terminal_tool")
      if (result.reason === "terminal_tool") {
        assert.strictEqual(result.tool, "submit")
        assert.deepStrictEqual(result.value, 5)
      }
      assert.deepStrictEqual(result.steps.map(({ outcomes }) => words(outcomes)), [["error/defect"], [
        "ok",
        "ok",
        "ok"
      ]])
      assert.deepStrictEqual(faultsOf(result.prompt), [])
    }))

  it.effect("a terminal tool that is no tool of the agent is misuse", () =>
    Effect.gen(function*() {
      const { all } = agentOf([text("no")])
      const stopWhen = Agent.terminalTool("submit") as unknown as Agent.StopWhen<"read">
      const error = yield* Effect.flip(Agent.run({ prompt, toolkit, stopWhen })).pipe(Effect.provide(all))
      assert.strictEqual(
        (error as Error).message,
        '`Agent.terminalTool`: expected a tool of the agent\'s toolkit, and got "submit"'
      )
    }))

  const endless = (request: FakeModel.Request) =>
    calls([read(`r${request.number}`)], { usage: { input: 10, output: request.number } })

  it.effect("so many steps: 20 when nothing is said, and the least of what is said", () =>
    Effect.gen(function*() {
      const stepsOf = (stopWhen?: Agent.StopWhen) =>
        Effect.gen(function*() {
          const { all } = agentOf(Array.from({ length: 30 }, () => endless))
          const result = yield* drive(Agent.run({ prompt, toolkit, stopWhen })).pipe(Effect.provide(all))
          assert.deepStrictEqual(faultsOf(result.prompt), [])
          return [result.reason, result.steps.length]
        })
      assert.deepStrictEqual(yield* stepsOf(), ["steps", 20])
      assert.deepStrictEqual(yield* stepsOf(Agent.maxSteps(1)), ["steps", 1])
      assert.deepStrictEqual(yield* stepsOf(Agent.any(Agent.maxSteps(9), Agent.maxSteps(4))), ["steps", 4])
      assert.deepStrictEqual(
        yield* stepsOf(Agent.any(Agent.maxSteps("infinite"), Agent.when(({ steps }) => steps.length === 25))),
        ["condition", 25]
      )
    }))

  it.effect("so many tokens, summed over the steps", () =>
    Effect.gen(function*() {
      const { all } = agentOf(Array.from({ length: 9 }, () => endless))
      const result = yield* drive(Agent.run({ prompt, toolkit, stopWhen: Agent.maxTokens(36) })).pipe(
        Effect.provide(all)
      )
      assert.strictEqual(result.reason, "tokens")
      assert.deepStrictEqual(result.usage, { input: 30, output: 6, total: 36 })
      assert.deepStrictEqual(result.steps.map(({ usage }) => usage.total), [11, 12, 13])
    }))

  it("impossible limits are refused where they are written", () => {
    assert.throws(() => Agent.maxSteps(0), /Agent.maxSteps: the limit "n" must be a whole number from 1, or "infinite"/)
    assert.throws(() => Agent.maxSteps(1.5), TurnError.TurnError)
    assert.throws(() => Agent.maxTokens(-1), /Agent.maxTokens: the limit "n" must be a whole number from 1, and is -1/)
  })

  it.effect("a deadline: it stops a request, and a turn, which waits for its writes", () =>
    Effect.gen(function*() {
      const { all, book, closed, onClosed } = agentOf(
        [calls([read("slow"), write("late")]), text("never")],
        { script: { slow: { ms: 500 }, late: { ms: 200 } } }
      )
      const result = yield* drive(Agent.run({ prompt, toolkit, deadline: 100, onClosed })).pipe(Effect.provide(all))
      assert.strictEqual(result.reason, "deadline")
      assert.deepStrictEqual(words(result.steps[0]!.outcomes), ["cancelled/by_deadline", "ok"])
      assert.deepStrictEqual(book.span("late"), [0, 200])
      assert.deepStrictEqual(closed.map(({ reason }) => reason), ["deadline"])

      const hanging = agentOf([calls([read("a")]), FakeModel.hang])
      const other = yield* drive(Agent.run({ prompt, toolkit, deadline: 100, onClosed })).pipe(
        Effect.provide(hanging.all)
      )
      assert.deepStrictEqual([other.reason, rolesOf(other.prompt)], ["deadline", "user assistant tool"])

      const wrong = yield* Effect.flip(Agent.run({ prompt, deadline: 0 })).pipe(Effect.provide(hanging.all))
      assert.match((wrong as Error).message, /^the agent: the limit "deadline" must be a duration from 1/)
    }))

  it.effect("the deadline of a turn ends that turn alone", () =>
    Effect.gen(function*() {
      const { all } = agentOf([calls([read("slow")]), text("Go on.")], { script: { slow: { ms: 500 } } })
      const result = yield* drive(
        Agent.run({ prompt, toolkit, deadline: 1000, turn: { deadline: 50 } })
      ).pipe(Effect.provide(all))
      assert.deepStrictEqual([result.reason, words(result.steps[0]!.outcomes)], ["final", ["cancelled/by_deadline"]])
    }))

  it.effect("a response cut short is answered, and the loop goes on; cut-off last words end it", () =>
    Effect.gen(function*() {
      const { all, book } = agentOf([
        calls([write("a"), read("b")], { finishReason: "length" }),
        text("Half a sen", { finishReason: "length" })
      ])
      const result = yield* drive(Agent.run({ prompt, toolkit })).pipe(Effect.provide(all))
      assert.deepStrictEqual([result.reason, result.text], ["cut_short", "Half a sen"])
      assert.deepStrictEqual(words(result.steps[0]!.outcomes), [
        "error/incomplete_response",
        "error/incomplete_response"
      ])
      assert.deepStrictEqual(book.runs, [])
    }))

  it.effect("a pause of the provider's is no end", () =>
    Effect.gen(function*() {
      const { all } = agentOf([text("Thinking", { finishReason: "pause" }), text("Done.")])
      const result = yield* drive(Agent.run({ prompt, toolkit })).pipe(Effect.provide(all))
      assert.deepStrictEqual([result.reason, result.text, result.steps.length], ["final", "Done.", 2])
    }))
})

describe("Agent: a stop button", () => {
  it.effect("ends the loop as a result: a turn is stopped with the word of the button, a request is interrupted", () =>
    Effect.gen(function*() {
      const { all, book, closed, onClosed } = agentOf(
        [calls([read("slow"), write("w", ["k"]), write("next", ["k"])]), text("never")],
        { script: { slow: { ms: 500 }, w: { ms: 200 } } }
      )
      const button = yield* Deferred.make<string>()
      const fiber = yield* fork(
        Agent.run({ prompt, toolkit, cancelOn: Deferred.await(button), onClosed }).pipe(Effect.provide(all))
      )
      yield* TestClock.adjust(100)
      yield* Deferred.succeed(button, "user")
      yield* TestClock.adjust(99)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(1)
      const result = yield* ended(fiber)
      assert.deepStrictEqual([result.reason, (result as Agent.Ended<any>).why], ["stopped", "user"])
      assert.deepStrictEqual(words(result.steps[0]!.outcomes), ["cancelled/by_caller", "ok", "cancelled/by_caller"])
      assert.strictEqual((result.steps[0]!.outcomes[0] as any).reason, "user")
      assert.deepStrictEqual(book.atWork, [])
      assert.deepStrictEqual(closed.map(({ reason }) => reason), ["stopped"])
    }))

  it.effect("pressed before anything, it asks nothing", () =>
    Effect.gen(function*() {
      const { all, requests } = agentOf([text("never")])
      yield* Effect.gen(function*() {
        const result = yield* Agent.run({ prompt, toolkit, cancelOn: Effect.succeed("budget") })
        assert.deepStrictEqual([result.reason, result.steps.length], ["stopped", 0])
        assert.deepStrictEqual(yield* requests, [])
      }).pipe(Effect.provide(all))
    }))

  it.effect("one that breaks stops the loop too, and says so; one that ignores its end does not keep it", () =>
    Effect.gen(function*() {
      const broken = agentOf([FakeModel.hang])
      const result = yield* drive(
        Agent.run({ prompt, toolkit, cancelOn: Effect.andThen(Effect.sleep(5), Effect.die("wires")) })
      ).pipe(Effect.provide(broken.all))
      assert.strictEqual(result.reason, "stopped")
      assert.match((result as Agent.Ended<any>).why!, /^cancelOn broke: .*wires/s)

      const deaf = agentOf([text("Done.")])
      const other = yield* drive(
        Agent.run({ prompt, toolkit, cancelOn: Effect.uninterruptible(Effect.sleep("1 hour")) }),
        5_000
      ).pipe(Effect.provide(deaf.all))
      assert.strictEqual(other.reason, "final")
    }))

  it.effect("R10: the registry keeps a request only of an agent that is parked", () =>
    Effect.gen(function*() {
      for (const streamed of [false, true]) {
        for (const approval of ["report", "park"] as const) {
          const { all } = agentOf([calls([call(tools.pay, { tag: "p", k: [] })]), text("Done.")])
          yield* Effect.gen(function*() {
            const approvals = yield* Approval.Approvals
            const options = { prompt, toolkit, approval }
            yield* drive(streamed ? Stream.runDrain(Agent.stream(options)) : Effect.asVoid(Agent.run(options)))
            assert.strictEqual((yield* approvals.pending).length, approval === "park" ? 1 : 0)
          }).pipe(Effect.provide([all, Approval.layerMemory()]))
        }
      }
    }))

  it.effect("R17: a request, or a prepareStep, that ignores its stop does not keep it", () =>
    Effect.gen(function*() {
      const deaf = Effect.uninterruptible(Effect.never)
      const { all, closed, onClosed } = agentOf([text("never")])
      const model = Layer.effect(
        LanguageModel.LanguageModel,
        Effect.map(LanguageModel.LanguageModel, (inner) => ({ ...inner, generateText: () => deaf }))
      ).pipe(Layer.provide(all))
      const options = { prompt, toolkit, onClosed, deadline: 100 }
      const cases: ReadonlyArray<Agent.Options<typeof toolkit>> = [options, { ...options, prepareStep: () => deaf }]
      for (const given of cases) {
        const result = yield* drive(Agent.run(given), 5_100).pipe(Effect.provide(Layer.merge(all, model)))
        assert.deepStrictEqual([result.reason, result.steps.length], ["deadline", 0])
      }
      assert.deepStrictEqual(closed.map(({ reason }) => reason), ["deadline", "deadline"])
    }))

  it.effect("of a streamed request the texts that were said in full are kept, and no call", () =>
    Effect.gen(function*() {
      const step = FakeModel.answer(["I look.", read("a"), "And now I"], { delay: 10, chunk: 3 })
      const { all, closed, onClosed } = agentOf([step])
      const fiber = yield* fork(
        Stream.runCollect(Agent.stream({ prompt, toolkit, cancelOn: Effect.sleep(75), onClosed })).pipe(
          Effect.provide(all)
        )
      )
      yield* TestClock.adjust(75)
      const events = yield* ended(fiber)
      assert.strictEqual(events.at(-1)?._tag, "AgentEnded")
      assert.strictEqual(closed[0]!.reason, "stopped")
      assert.deepStrictEqual(
        closed[0]!.prompt.content.slice(1).map(({ content }) => (content as any).map((part: any) => part.text)),
        [["I look."]]
      )
    }))
})

describe("Agent: the first stop", () => {
  it.effect("counts, and more than a limit that is met in the same step", () =>
    Effect.gen(function*() {
      const { all } = agentOf([calls([write("w")])], { script: { w: { ms: 100 } } })
      const result = yield* drive(
        Agent.run({ prompt, toolkit, cancelOn: Effect.as(Effect.sleep(50), "user"), stopWhen: Agent.maxSteps(1) })
      ).pipe(Effect.provide(all))
      assert.deepStrictEqual([result.reason, words(result.steps[0]!.outcomes)], ["stopped", ["ok"]])
    }))

  it.effect("of the call around an agent is heard at any time, and does not change an earlier word", () =>
    Effect.gen(function*() {
      // A write whose handler runs an agent for 200 ms, from `after` on; its call is stopped at 50.
      const inner = (after: number, cancelOn: Effect.Effect<string>) =>
        Effect.gen(function*() {
          const Outer = pipe(Tool.make("outer", { success: Schema.Unknown }), ToolPolicy.write({ keys: () => [] }))
          const kit = Toolkit.make(Outer)
          const { all } = agentOf([calls([write("w")]), text("never")], { script: { w: { ms: 200 } } })
          const handlers = kit.toLayer(Effect.gen(function*() {
            const context = yield* Effect.context<Agent.Services<typeof toolkit>>()
            return {
              outer: () =>
                Effect.andThen(Effect.sleep(after), Agent.run({ prompt, toolkit, cancelOn })).pipe(
                  Effect.map((result) => [result.reason, (result as Agent.Ended<any>).why, result.steps.length]),
                  Effect.orDie,
                  Effect.provide(context)
                )
            }
          }))
          const calls_ = [ToolCall.make("c", "outer", {})]
          const outcomes = yield* drive(Turn.run(kit, calls_, { cancelOn: Effect.sleep(50) })).pipe(
            Effect.provide(Layer.provideMerge(handlers, all))
          )
          return outcomes[0]!.status === "ok" ? outcomes[0]!.result : outcomes[0]
        })
      assert.deepStrictEqual(yield* inner(0, Effect.never), ["stopped", "parent", 1])
      assert.deepStrictEqual(yield* inner(100, Effect.never), ["stopped", "parent", 0])
      assert.deepStrictEqual(yield* inner(0, Effect.as(Effect.sleep(20), "mine")), ["stopped", "mine", 1])
    }))
})

describe("Agent: interruption and failure", () => {
  it.effect("an interruption waits for the turn, and hands over a history that can go on", () =>
    Effect.gen(function*() {
      const { all, book, closed, onClosed } = agentOf(
        [calls([read("first")]), calls([read("slow"), write("w")])],
        { script: { slow: { ms: 500 }, w: { ms: 200 } } }
      )
      const fiber = yield* fork(Agent.run({ prompt, toolkit, onClosed }).pipe(Effect.provide(all)))
      yield* TestClock.adjust(50)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(159)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.isTrue(Exit.hasInterrupts(fiber.pollUnsafe()!))
      assert.deepStrictEqual(book.span("w"), [10, 210])
      assert.deepStrictEqual(closed.map(({ reason }) => reason), ["interrupted"])
      assert.strictEqual(rolesOf(closed[0]!.prompt), "user assistant tool assistant tool")
      // And it does go on.
      const next = agentOf([text("Where was I?")])
      const result = yield* Agent.run({ prompt: Prompt.concat(closed[0]!.prompt, "go on"), toolkit }).pipe(
        Effect.provide(next.all)
      )
      assert.strictEqual(result.text, "Where was I?")
    }))

  it.effect("an error of the model fails the effect, after the history has been handed over", () =>
    Effect.gen(function*() {
      const { all, closed, onClosed } = agentOf([calls([write("w")]), FakeModel.fail(new AiError.RateLimitError({}))])
      const error = yield* Effect.flip(drive(Agent.run({ prompt, toolkit, onClosed }))).pipe(Effect.provide(all))
      assert.strictEqual((error as AiError.AiError).reason._tag, "RateLimitError")
      assert.deepStrictEqual(closed.map(({ reason, steps }) => [reason, steps.length]), [["failed", 1]])
      assert.strictEqual(rolesOf(closed[0]!.prompt), "user assistant tool")
    }))

  it.effect("a defect of a condition, or of a hook, is one; the history is handed over all the same", () =>
    Effect.gen(function*() {
      const bad = () => {
        throw new Error("mine")
      }
      for (const [options, steps] of [[{ stopWhen: Agent.when(bad) }, 1], [{ prepareStep: bad }, 0]] as const) {
        const { all, closed, onClosed } = agentOf([calls([write("w")])])
        const exit = yield* Effect.exit(drive(Agent.run({ prompt, toolkit, onClosed, ...options }))).pipe(
          Effect.provide(all)
        )
        assert.isTrue(Exit.hasDies(exit))
        assert.deepStrictEqual(closed.map(({ reason, steps }) => [reason, steps.length]), [["defect", steps]])
      }
    }))

  it.effect("a history with an open call, or with an answer to nothing, is refused", () =>
    Effect.gen(function*() {
      const { all } = agentOf([text("never")])
      const asked = Prompt.makePart("tool-call", { id: "c", name: "read", params: {}, providerExecuted: false })
      const answer = Prompt.makePart("tool-result", {
        id: "c",
        name: "read",
        isFailure: false,
        result: 1,
        providerExecuted: false
      })
      const assistant = Prompt.makeMessage("assistant", { content: [asked] })
      const tool = Prompt.makeMessage("tool", { content: [answer] })
      const problem = (messages: ReadonlyArray<Prompt.Message>) =>
        Effect.flip(Agent.run({ prompt: Prompt.fromMessages(messages), toolkit })).pipe(
          Effect.map((error) => (error as Error).message.replace(/^.*, and got /, "")),
          Effect.provide(all)
        )
      const user = Prompt.makeMessage("user", { content: [Prompt.makePart("text", { text: "hi" })] })
      assert.strictEqual(yield* problem([assistant]), 'a call without its result (id "c")')
      assert.strictEqual(yield* problem([assistant, user]), 'a call without its result (id "c")')
      assert.strictEqual(yield* problem([user, tool]), 'a result without its call (id "c")')
      assert.strictEqual(yield* problem([assistant, tool, tool]), 'a result without its call (id "c")')
      assert.strictEqual(
        yield* problem([Prompt.makeMessage("assistant", { content: [asked, asked] }), tool]),
        'two calls with one id in a message (id "c")'
      )
    }))
})

describe("Agent: the hook before a step", () => {
  it.effect("puts some tools on offer; another one that is called all the same is an unknown tool", () =>
    Effect.gen(function*() {
      const { all, book, requests } = agentOf([calls([read("a"), write("b")]), calls([write("c")]), text("Done.")])
      yield* Effect.gen(function*() {
        const result = yield* drive(Agent.run({
          prompt,
          toolkit,
          prepareStep: ({ steps }) => steps.length === 0 ? { tools: ["read", "look"], toolChoice: "required" } : {}
        }))
        assert.deepStrictEqual(result.steps.map(({ outcomes }) => words(outcomes)), [
          ["ok", "error/unknown_tool"],
          ["ok"],
          []
        ])
        const asked = yield* requests
        assert.deepStrictEqual(asked[0]!.tools.map(({ name }) => name), ["read", "look"])
        assert.strictEqual(asked[0]!.toolChoice, "required")
        assert.strictEqual(asked[1]!.toolChoice, "auto")
        assert.isAbove(asked[1]!.tools.length, 2)
        assert.strictEqual(book.runs.length, 2)
      }).pipe(Effect.provide(all))
    }))

  it.effect("a name that is no tool of the agent is misuse", () =>
    Effect.gen(function*() {
      const { all } = agentOf([text("never")])
      const error = yield* Effect.flip(Agent.run({ prompt, toolkit, prepareStep: () => ({ tools: ["raed" as any] }) }))
        .pipe(
          Effect.provide(all)
        )
      assert.match((error as Error).message, /^the tools of `prepareStep`: expected names of the toolkit .*"raed"$/)
    }))

  it.effect("runs the calls of a step one after another", () =>
    Effect.gen(function*() {
      const { all, book } = agentOf([calls([read("a"), read("b")]), calls([read("c"), read("d")]), text("Done.")])
      yield* drive(Agent.run({ prompt, toolkit, prepareStep: ({ steps }) => ({ parallel: steps.length > 0 }) })).pipe(
        Effect.provide(all)
      )
      assert.deepStrictEqual(["a", "b", "c", "d"].map((tag) => book.span(tag)), [[0, 10], [10, 20], [20, 30], [20, 30]])
    }))

  it.effect("replaces the history, adds words for one request, may take its time, and may fail", () =>
    Effect.gen(function*() {
      const { all, closed, onClosed, requests } = agentOf([calls([read("a")]), calls([read("b")]), text("Done.")])
      yield* Effect.gen(function*() {
        const error = yield* Effect.flip(drive(Agent.run({
          prompt: [{ role: "system", content: "Be kind." }, { role: "user", content: [{ type: "text", text: "go" }] }],
          toolkit,
          onClosed,
          prepareStep: ({ steps }) =>
            Effect.andThen(
              Effect.sleep(5),
              steps.length === 2
                ? Effect.fail("enough" as const)
                : Effect.succeed(steps.length === 1 ? { prompt: "short" } : { system: "Be brief." })
            )
        })))
        assert.strictEqual(error, "enough")
        const asked = yield* requests
        assert.deepStrictEqual(asked[0]!.prompt.content[0]!.content, "Be kind.\nBe brief.")
        assert.deepStrictEqual(asked.map(({ prompt }) => rolesOf(prompt)), ["system user", "user"])
        assert.deepStrictEqual([closed[0]!.reason, rolesOf(closed[0]!.prompt)], ["failed", "user assistant tool"])
      }).pipe(Effect.provide(all))
    }))

  it.effect("what it waits for is interrupted by a stop", () =>
    Effect.gen(function*() {
      const { all } = agentOf([text("never")])
      const result = yield* drive(
        Agent.run({ prompt, toolkit, cancelOn: Effect.sleep(5), prepareStep: () => Effect.never })
      ).pipe(Effect.provide(all))
      assert.strictEqual(result.reason, "stopped")
    }))
})

describe("Agent: identity, options of turns, events", () => {
  it.effect("turns are named after the agent, and belong to its conversation, or to the one around it", () =>
    Effect.gen(function*() {
      const seen: Array<TurnContext.Identity> = []
      const { all, book } = agentOf([calls([read("a")]), text("Done."), calls([read("a")]), text("Done.")])
      book.script.set("a", {
        run: Effect.map(TurnContext.CurrentCall, (current) => {
          seen.push(current!.identity)
        })
      })
      yield* Effect.gen(function*() {
        yield* Agent.run({ prompt, toolkit, id: "a-1" })
        yield* Agent.run({ prompt, toolkit }).pipe(Effect.provideService(TurnContext.Conversation, "c-7"))
      }).pipe(Effect.provide(all))
      assert.deepStrictEqual([seen[0]!.turn, seen[0]!.conversation, seen[0]!.tenant], ["a-1/1", "a-1", "t"])
      assert.strictEqual(seen[1]!.conversation, "c-7")
      assert.match(seen[1]!.turn, /^agent_[0-9a-z]{22}\/1$/)
    }))

  it.effect("turn options go to every turn, and its listeners are told", () =>
    Effect.gen(function*() {
      const { all, book } = agentOf([calls([read("a"), read("a"), read("b")]), text("Done.")])
      const told: Array<number> = []
      const result = yield* drive(Agent.run({
        prompt,
        toolkit,
        turn: {
          execution: 1,
          dedupe: "off",
          onEvent: book.note,
          onClosed: ({ outcomes }) => Effect.sync(() => told.push(outcomes.length))
        }
      })).pipe(Effect.provide(all))
      assert.strictEqual(result.reason, "final")
      assert.strictEqual(book.runs.length, 3)
      assert.deepStrictEqual(told, [3])
      assert.strictEqual(book.tagsOf("CallEnded").length, 3)
    }))

  it.effect("a stream is the same loop: steps, parts, turns, and the result as its last event", () =>
    Effect.gen(function*() {
      const script = [calls([read("a")], { text: "I look.", usage: { input: 3, output: 4 } }), text("Done.")]
      const { all } = agentOf(script)
      const events = yield* drive(Stream.runCollect(Agent.stream({ prompt, toolkit, id: "s" }))).pipe(
        Effect.provide(all)
      )
      const story = events.map((event) =>
        event._tag === "PartReceived" ? event.part.type : event._tag === "TurnReported" ? event.event._tag : event._tag
      )
      assert.deepStrictEqual(story, [
        "StepStarted",
        "text-start",
        "text-delta",
        "text-end",
        ...(story.includes("tool-params-start") ? ["tool-params-start", "tool-params-delta", "tool-params-end"] : []),
        "tool-call",
        "TurnStarted",
        "CallStarted",
        "finish",
        "CallEnded",
        "TurnEnded",
        "StepEnded",
        "StepStarted",
        "text-start",
        "text-delta",
        "text-end",
        "finish",
        "StepEnded",
        "AgentEnded"
      ])
      const last = events.at(-1)!
      assert.strictEqual(last._tag, "AgentEnded")
      const whole = yield* drive(Agent.run({ prompt, toolkit, id: "s" })).pipe(Effect.provide(agentOf(script).all))
      if (last._tag === "AgentEnded") assert.deepStrictEqual(last.result, whole)
      // Without a stream, the same events but for the parts.
      const told: Array<string> = []
      yield* drive(Agent.run({
        prompt,
        toolkit,
        id: "s",
        onEvent: (event) => {
          told.push(event._tag === "TurnReported" ? event.event._tag : event._tag)
          throw new Error("not heard")
        }
      })).pipe(Effect.provide(agentOf(script).all))
      assert.deepStrictEqual(told, story.filter((word) => /^[A-Z]/.test(word)))
    }))

  it.effect("a stream that fails hands its history over, one that is left is stopped and awaited", () =>
    Effect.gen(function*() {
      const failing = agentOf([calls([write("w")]), FakeModel.fail(new AiError.RateLimitError({}))])
      const error = yield* Effect.flip(
        drive(Stream.runDrain(Agent.stream({ prompt, toolkit, onClosed: failing.onClosed })))
      ).pipe(Effect.provide(failing.all))
      assert.strictEqual((error as AiError.AiError).reason._tag, "RateLimitError")
      assert.deepStrictEqual(failing.closed.map(({ reason }) => reason), ["failed"])

      const left = agentOf([calls([write("w")]), text("never")])
      yield* drive(
        Stream.runDrain(Stream.takeUntil(
          Agent.stream({ prompt, toolkit, onClosed: left.onClosed }),
          (event) => event._tag === "TurnReported" && event.event._tag === "CallStarted"
        ))
      ).pipe(Effect.provide(left.all))
      assert.deepStrictEqual(left.closed.map(({ reason }) => reason), ["interrupted"])
      const [from, to] = left.book.span("w")
      assert.strictEqual(to, from + 10)
    }))

  it.effect("a stream that ends without its last part was cut off: nothing of it runs", () =>
    Effect.gen(function*() {
      const { all, book } = agentOf([calls([write("w")], { cut: { after: 4, by: "end" } }), text("Done.")])
      const events = yield* drive(Stream.runCollect(Agent.stream({ prompt, toolkit }))).pipe(Effect.provide(all))
      const steps = events.flatMap((event) => event._tag === "StepEnded" ? [words(event.step.outcomes)] : [])
      assert.deepStrictEqual(steps, [["error/incomplete_response"], []])
      assert.deepStrictEqual(book.runs, [])
    }))
})

describe("Agent: a streamed response", () => {
  it.effect("starts reads as soon as they are complete, and everything else at its end", () =>
    Effect.gen(function*() {
      const { all, book } = agentOf([calls([write("w"), read("r")], { latency: 20, delay: 50 }), text("Done.")])
      yield* drive(Stream.runDrain(Agent.stream({ prompt, toolkit }))).pipe(Effect.provide(all))
      const [from] = book.span("r")
      assert.isBelow(from, book.span("w")[0])
      assert.isAbove(from, 20)
    }))

  it.effect("that breaks off keeps what had begun, and what was said in full; nothing else of it runs", () =>
    Effect.gen(function*() {
      for (const way of ["failure", "stop"] as const) {
        const by = way === "stop" ? "hang" : new AiError.RateLimitError({})
        const said = FakeModel.answer(["I look.", read("r"), write("w"), "And the"], {
          delay: 10,
          chunk: [99, 99, 99, 3],
          cut: { after: 13, by }
        })
        const { all, book, closed, onClosed } = agentOf([said], { script: { r: { ms: 500 } } })
        const cancelOn = way === "stop" ? Effect.sleep(200) : Effect.never
        const loop = Stream.runDrain(Agent.stream({ prompt, toolkit, onClosed, cancelOn }))
        const exit = yield* Effect.exit(drive(loop)).pipe(Effect.provide(all))
        assert.strictEqual(Exit.isSuccess(exit), way === "stop")
        const [{ prompt: history, reason, steps }] = closed as [Agent.Closed<any>]
        assert.strictEqual(rolesOf(history), "user assistant tool")
        assert.deepStrictEqual(
          (history.content[1]!.content as ReadonlyArray<any>).map((part) => part.text ?? part.id),
          [
            "I look.",
            "call_1_1",
            "call_1_2"
          ]
        )
        assert.deepStrictEqual(
          [reason, words(steps[0]!.outcomes)],
          way === "stop"
            ? ["stopped", ["cancelled/by_caller", "cancelled/by_caller"]]
            : ["failed", ["ok", "error/incomplete_response"]]
        )
        assert.deepStrictEqual(book.runs.map(({ tag }) => tag), ["r"])
      }
    }))
})

describe("Agent: calls that wait for a human", () => {
  const pay = (tag: string) => call(tools.pay, { tag, k: [] })
  const script = [
    calls([read("a"), pay("p"), pay("q")], { text: "I pay.", usage: { input: 5, output: 5 } }),
    text("Done.")
  ]

  it.effect("are answered as pending, and the loop goes on; a rule decides at once", () =>
    Effect.gen(function*() {
      const { all } = agentOf(script)
      const result = yield* drive(Agent.run({ prompt, toolkit })).pipe(Effect.provide(all))
      assert.deepStrictEqual([result.reason, words(result.steps[0]!.outcomes)], [
        "final",
        ["ok", "pending_approval", "pending_approval"]
      ])
      const ruled = agentOf(script)
      const decide = (request: Approval.Request) =>
        Effect.as(Effect.sleep(50), request.arguments["tag"] === "p" ? Approval.approve() : Approval.deny("too dear"))
      const other = yield* drive(Agent.run({ prompt, toolkit, turn: { decide } })).pipe(Effect.provide(ruled.all))
      assert.deepStrictEqual(words(other.steps[0]!.outcomes), ["ok", "ok", "error/denied"])
    }))

  it.effect("see the conversation when they ask whether they do", () =>
    Effect.gen(function*() {
      const seen: Array<number> = []
      const Buy = Tool.make("buy", {
        success: Schema.String,
        needsApproval: (_, { messages }) => {
          seen.push(messages.length)
          return false
        }
      })
      const kit = Toolkit.make(Buy)
      const { all } = agentOf([calls([call(Buy, {})]), calls([call(Buy, {})]), text("Done.")])
      yield* drive(Agent.run({ prompt, toolkit: kit })).pipe(
        Effect.provide([kit.toLayer({ buy: () => Effect.succeed("bought") }), all])
      )
      assert.deepStrictEqual(seen, [1, 3])
    }))

  it.effect("park the agent, which is resumed from JSON as often as it takes", () =>
    Effect.gen(function*() {
      const { all, book, closed, onClosed } = agentOf(script)
      const options = { toolkit, onClosed, approval: "park", stopWhen: Agent.maxTokens(1_000) } as const
      const through = <A>(value: A): A => JSON.parse(JSON.stringify(value))
      yield* Effect.gen(function*() {
        const first = yield* drive(Agent.run({ prompt, id: "a-1", ...options }))
        assert.strictEqual(first.reason, "pending_approval")
        if (first.reason !== "pending_approval") return
        // The history can go on without them, and is not what is resumed.
        assert.deepStrictEqual(faultsOf(first.prompt), [])
        assert.deepStrictEqual(words(first.steps[0]!.outcomes), ["ok", "pending_approval", "pending_approval"])
        const parked = through(first.parked)
        assert.deepStrictEqual(Schema.decodeUnknownSync(Agent.Parked)(parked), first.parked)
        assert.deepStrictEqual(parked.turn.requests.map(({ arguments: { tag } }) => tag), ["p", "q"])

        const second = yield* drive(
          Agent.resume(parked, { ...options, decisions: [{ position: 1, decision: Approval.approve() }] })
        )
        assert.strictEqual(second.reason, "pending_approval")
        if (second.reason !== "pending_approval") return
        const third = yield* drive(Agent.resume(through(second.parked), {
          ...options,
          decisions: [{ position: 2, decision: Approval.edit({ tag: "less", k: [] }) }]
        }))
        assert.deepStrictEqual([third.reason, third.text, third.agent], ["final", "Done.", "a-1"])
        assert.deepStrictEqual(third.steps.map(({ number, outcomes }) => [number, words(outcomes)]), [
          [1, ["ok", "ok", "ok"]],
          [2, []]
        ])
        assert.strictEqual(third.usage.total, 10)
        assert.deepStrictEqual(book.runs.map(({ tag, turn }) => [tag, turn]), [["a", "a-1/1"], ["p", "a-1/1"], [
          "less",
          "a-1/1"
        ]])
        assert.strictEqual(rolesOf(third.prompt), "user assistant tool assistant")
        const answers = third.prompt.content[2]!.content as ReadonlyArray<Prompt.ToolResultPart>
        assert.deepStrictEqual(answers.map(({ result }) => result), ["a", "p", "less"])
        assert.deepStrictEqual(closed.map(({ reason }) => reason), ["pending_approval", "pending_approval", "final"])
      }).pipe(Effect.provide(all))
    }))

  it.effect("of a stream park it too; a stop closes them instead", () =>
    Effect.gen(function*() {
      const { all } = agentOf(script)
      const events = yield* drive(Stream.runCollect(Agent.stream({ prompt, toolkit, approval: "park" }))).pipe(
        Effect.provide(all)
      )
      const last = events.at(-1)!
      assert.strictEqual(last._tag === "AgentEnded" && last.result.reason, "pending_approval")

      const stopped = agentOf(script, { script: { a: { ms: 500 } } })
      const result = yield* drive(
        Agent.run({ prompt, toolkit, approval: "park", cancelOn: Effect.sleep(50), onClosed: stopped.onClosed })
      ).pipe(Effect.provide(stopped.all))
      assert.deepStrictEqual([result.reason, words(result.steps[0]!.outcomes)], ["stopped", [
        "cancelled/by_caller",
        "cancelled/by_caller",
        "cancelled/by_caller"
      ]])
    }))

  it.effect("stay as they are when the resumed turn is stopped before or after it has begun", () =>
    Effect.gen(function*() {
      const { all, book, closed, onClosed } = agentOf(script, { script: { p: { ms: 100 } } })
      yield* Effect.gen(function*() {
        const first = yield* drive(Agent.run({ prompt, toolkit, approval: "park" }))
        if (first.reason !== "pending_approval") return assert.fail(first.reason)
        const decisions = [1, 2].map((position) => ({ position, decision: Approval.approve() }))
        const resumed = Agent.resume(first.parked, { toolkit, decisions, onClosed })
        const fiber = yield* fork(resumed)
        yield* TestClock.adjust(50)
        yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(50)
        assert.isTrue(Exit.hasInterrupts(fiber.pollUnsafe()!))
        assert.deepStrictEqual(words(closed[0]!.steps[0]!.outcomes), ["ok", "ok", "ok"])
        assert.deepStrictEqual(book.runs.map(({ end, tag }) => [tag, end]), [["a", "ok"], ["p", "ok"], ["q", "ok"]])
      }).pipe(Effect.provide(all))
    }))

  it.effect("what was not parked by an agent, and decisions for what does not wait, are misuse", () =>
    Effect.gen(function*() {
      const { all } = agentOf(script)
      yield* Effect.gen(function*() {
        const first = yield* drive(Agent.run({ prompt, toolkit, approval: "park" }))
        if (first.reason !== "pending_approval") return assert.fail(first.reason)
        const bad = { ...first.parked, before: "?" }
        const error = yield* Effect.flip(Agent.resume(bad, { toolkit }))
        assert.match((error as Error).message, /^the parked agent: expected what `Agent.run` parked, and got /)
        const decisions = [{ position: 0, decision: Approval.approve() }]
        const other = yield* Effect.flip(Agent.resume(first.parked, { toolkit, decisions }))
        assert.strictEqual((other as TurnError.TurnError).reason._tag, "InvalidInput")
        const option = yield* Effect.flip(Agent.run({ prompt, approval: "pork" as "park" }))
        assert.strictEqual(
          (option as Error).message,
          'the option `approval` of an agent: expected "report" or "park", and got "pork"'
        )
      }).pipe(Effect.provide(all))
    }))
})

describe("Agent: sub-agents", () => {
  const Research = Agent.asTool("research", { description: "Finds something out." })
  const research = (task: string) => call(Research, { task })
  const outer = Toolkit.make(Research, tools.write)

  /** A parent whose `research` is an agent of the lab's tools with a script of its own. */
  const family = (
    script: ReadonlyArray<FakeModel.Entry>,
    sub: ReadonlyArray<FakeModel.Entry>,
    options: LabOptions & { readonly sub?: Agent.HandlerOptions<Agent.Task, typeof toolkit> } = {}
  ) => {
    const parent = agentOf(script, options)
    const closed: Array<Agent.Closed<any>> = []
    const handlers = outer.toLayer(Effect.gen(function*() {
      const research = yield* Agent.handler({
        ...options.sub,
        toolkit,
        onClosed: (one) =>
          Effect.sync(() => {
            assert.deepStrictEqual(faultsOf(one.prompt), [])
            closed.push(one)
          })
      })
      return { research, write: handlerOf(parent.book, "write") }
    })).pipe(Layer.provide(FakeModel.layer(sub)))
    return { ...parent, sub: closed, all: Layer.provideMerge(handlers, parent.all) }
  }

  it.effect("a sub-agent has its own history and model; what it spends its parent has spent", () =>
    Effect.gen(function*() {
      const usage = { usage: { input: 10, output: 5 } }
      const { all, book, sub } = family(
        [calls([research("find it"), research("find that")], usage), text("Done.", usage)],
        [calls([write("x")], usage), calls([read("y")], usage), text("Found.", usage), text("That too.", usage)]
      )
      const result = yield* drive(Agent.run({ prompt, toolkit: outer, id: "p" })).pipe(Effect.provide(all))
      const [step] = result.steps
      assert.deepStrictEqual(step!.outcomes.map((one) => one.status === "ok" ? one.result : one.status), [
        { reason: "final", text: "Found.", changed: ["write"] },
        { reason: "final", text: "That too.", changed: [] }
      ])
      assert.deepStrictEqual(sub.map(({ agent }) => agent).sort(), ["p/1#0", "p/1#1"])
      assert.deepStrictEqual(book.runs.map(({ turn }) => turn).sort(), ["p/1#0/1", "p/1#1/1"])
      assert.strictEqual(result.usage.total, 90)
      assert.deepStrictEqual(sub.map(({ prompt }) => rolesOf(prompt)), Array(2).fill("user assistant tool assistant"))
    }))

  it.effect("tokens that are spent by all end a sub-agent too", () =>
    Effect.gen(function*() {
      const usage = { usage: { input: 10, output: 0 } }
      const { all, sub } = family(
        [calls([research("find it")], usage), text("never")],
        Array.from({ length: 9 }, () => calls([read("y")], usage))
      )
      const result = yield* drive(Agent.run({ prompt, toolkit: outer, stopWhen: Agent.maxTokens(30) })).pipe(
        Effect.provide(all)
      )
      assert.deepStrictEqual([result.reason, result.usage.total, sub[0]!.reason], ["tokens", 30, "tokens"])
    }))

  it.effect("an error of its model is the tool's failure, with what it changed by then; misuse is a defect", () =>
    Effect.gen(function*() {
      const broken = FakeModel.fail(new AiError.RateLimitError({}))
      const { all } = family(
        [calls([research("one")]), calls([research("two")]), text("Done.")],
        [broken, calls([write("x")]), broken]
      )
      const result = yield* drive(Agent.run({ prompt, toolkit: outer })).pipe(Effect.provide(all))
      const [first, second] = result.steps.map(({ outcomes }) => outcomes[0]!)
      assert.deepInclude(first, { status: "error", code: "failed", effect: "none" })
      assert.deepInclude(second, { status: "error", code: "failed", effect: "unknown" })
      assert.deepStrictEqual((second as any).failure.changed, ["write"])

      const misused = family([calls([research("one")]), text("Done.")], [text("never")], { sub: { deadline: -1 } })
      const other = yield* drive(Agent.run({ prompt, toolkit: outer })).pipe(Effect.provide(misused.all))
      assert.deepStrictEqual(words(other.steps[0]!.outcomes), ["error/defect"])
    }))

  it.effect("a stop from above reaches it, and waits for its writes; it answers what it has done", () =>
    Effect.gen(function*() {
      const script = { slow: { ms: 500 }, w: { ms: 200 } }
      const { all, book, closed, onClosed, sub } = family(
        [calls([research("find it")]), text("never")],
        [calls([read("slow"), write("w")]), text("never")],
        { script }
      )
      const fiber = yield* fork(Agent.run({ prompt, toolkit: outer, onClosed }).pipe(Effect.provide(all)))
      yield* TestClock.adjust(50)
      const stopping = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(149)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* ended(stopping)
      assert.deepStrictEqual(book.span("w"), [0, 200])
      assert.deepStrictEqual(book.span("slow"), [0, 50])
      assert.deepStrictEqual(sub.map(({ reason, steps }) => [reason, words(steps[0]!.outcomes)]), [
        ["stopped", ["cancelled/by_caller", "ok"]]
      ])
      assert.strictEqual(closed[0]!.reason, "interrupted")
      const answer = closed[0]!.prompt.content.at(-1)!.content as ReadonlyArray<Prompt.ToolResultPart>
      assert.deepStrictEqual(answer[0]!.result, { reason: "stopped", text: "", changed: ["write"] })
    }))

  it.effect("its own clock, and a stop of its call alone, are stops of the agent in it; the others go on", () =>
    Effect.gen(function*() {
      const script = { slow: { ms: 500 }, w: { ms: 200 } }
      const timed = pipe(Research, ToolPolicy.timeout(50))
      const read = pipe(Research, ToolPolicy.read({ keys: () => [] }))
      for (const tool of [timed, Research, read]) {
        const { book, layer } = lab({ script })
        const closed: Array<Agent.Closed<any>> = []
        const kit = Toolkit.make(tool, tools.write)
        const subModel = FakeModel.layer([calls([call(tools.read, { tag: "slow", k: [] })]), text("never")])
        const handlers = kit.toLayer(Effect.gen(function*() {
          const onClosed = (one: Agent.Closed<any>) => Effect.sync(() => closed.push(one))
          return { research: yield* Agent.handler({ toolkit, onClosed }), write: handlerOf(book, "write") }
        })).pipe(Layer.provide(subModel))
        const outcomes = yield* Effect.scoped(Effect.gen(function*() {
          const turn = yield* Turn.start(kit, [
            ToolCall.make("r", "research", { task: "x" }),
            ToolCall.make("w", "write", { tag: "w", k: [] })
          ])
          yield* TestClock.adjust(50)
          if (tool !== timed) assert.isTrue(yield* turn.cancelCall("r", "too slow"))
          yield* TestClock.adjust(200)
          return yield* turn.await
        })).pipe(Effect.provide(Layer.provideMerge(handlers, layer)))
        assert.deepStrictEqual(words(outcomes), [tool === read ? "cancelled/by_caller" : "ok", "ok"])
        assert.strictEqual(book.span("slow")[1]! - book.span("slow")[0], 50)
        assert.deepStrictEqual(closed.map(({ steps }) => words(steps[0]!.outcomes)), [["cancelled/by_caller"]])
        assert.deepStrictEqual(faultsOf(closed[0]!.prompt), [])
      }
    }))

  it.effect("a failure of its sibling is a stop of the agent in a call", () =>
    Effect.gen(function*() {
      const script = { slow: { ms: 500 }, bad: { ms: 30, end: "fail" as const } }
      const { all, sub } = family(
        [calls([research("find it"), write("bad")]), text("Done.")],
        [calls([read("slow")]), text("never")],
        { script }
      )
      const failFast = yield* drive(
        Agent.run({
          prompt,
          toolkit: outer,
          turn: { siblings: Siblings.failFast }
        })
      ).pipe(Effect.provide(all))
      assert.deepStrictEqual(words(failFast.steps[0]!.outcomes), ["ok", "error/failed"])
      assert.deepStrictEqual(sub.map(({ reason }) => reason), ["stopped"])
    }))

  it.effect("parents that fill a backend do not keep their sub-agents from it, three levels down", () =>
    Effect.gen(function*() {
      const Inner = pipe(Agent.asTool("inner", { description: "Level 3." }), ToolPolicy.on(Api))
      const Middle = pipe(Agent.asTool("middle", { description: "Level 2." }), ToolPolicy.on(Api))
      const leaf = Toolkit.make(tools.post)
      const level2 = Toolkit.make(Inner)
      const level1 = Toolkit.make(Middle)
      const { book, layer } = lab({ api: { concurrency: 1 } })
      const model = (entries: ReadonlyArray<FakeModel.Entry>) => FakeModel.layer(entries)
      const leafHandlers = leaf.toLayer({ post: handlerOf(book, "post") })
      const innerHandlers = level2.toLayer(Effect.gen(function*() {
        return { inner: yield* Agent.handler({ toolkit: leaf }) }
      })).pipe(Layer.provide([
        leafHandlers,
        model([
          calls([call(tools.post, { tag: "p1", k: [] }), call(tools.post, { tag: "p2", k: [] })]),
          calls([call(tools.post, { tag: "p3", k: [] })]),
          text("a"),
          text("b")
        ])
      ]))
      const middleHandlers = level1.toLayer(Effect.gen(function*() {
        return { middle: yield* Agent.handler({ toolkit: level2 }) }
      })).pipe(Layer.provide([
        innerHandlers,
        model([calls([call(Inner, { task: "x" }), call(Inner, { task: "y" })]), text("ok"), text("ok")])
      ]))
      const all = Layer.provideMerge(
        Layer.merge(
          middleHandlers,
          model([calls([call(Middle, { task: "go" }), call(Middle, { task: "and go" })]), text("Done.")])
        ),
        layer
      )
      const result = yield* drive(Agent.run({ prompt, toolkit: level1 })).pipe(Effect.provide(all))
      assert.deepStrictEqual([result.reason, words(result.steps[0]!.outcomes)], ["final", ["ok", "ok"]])
      // One at a time, for the permit that they borrow is one.
      const spans = ["p1", "p2", "p3"].map((tag) => book.span(tag))
      assert.isTrue(spans.every(([from], i) => i === 0 || from >= spans[i - 1]![1]!))
    }))
})
