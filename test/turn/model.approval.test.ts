/** Approvals through the governed model, in effect/ai's own parts. */
import { assert, describe, it } from "@effect/vitest"
import { Approval, ToolPolicy, Turn, TurnContext, TurnMiddleware } from "effect-turn"
import { FakeModel, History } from "effect-turn/testing"
import * as Chat from "effect/ai/Chat"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { drive, ended, fork, toolkit } from "../utils/kit.ts"
import { lines, prompts, says, wordsOf, world } from "../utils/model.ts"

/** The answers of a human to all requests of a response. */
const answers = (
  parts: ReadonlyArray<Response.AnyPart>,
  approved: boolean | ((id: string) => boolean),
  reason?: string
) =>
  Prompt.fromMessages([
    Prompt.makeMessage("tool", {
      content: parts.flatMap((part) =>
        part.type === "tool-approval-request"
          ? [
            Prompt.makePart("tool-approval-response", {
              approvalId: part.approvalId,
              approved: typeof approved === "boolean" ? approved : approved(part.toolCallId),
              ...(reason === undefined ? undefined : { reason })
            })
          ]
          : []
      )
    })
  ])

const after = (before: Prompt.RawInput, parts: ReadonlyArray<Response.AnyPart>, next: Prompt.Prompt) =>
  Prompt.concat(Prompt.concat(Prompt.make(before), Prompt.fromResponseParts(parts)), next)

const ask = (prompt: Prompt.RawInput) => LanguageModel.generateText({ prompt, toolkit })

const paying = FakeModel.calls([says("pay", "p", ["k"]), says("read", "r"), says("pay", "q", ["l"])])

describe("approvals through a governed model", () => {
  it.effect("a call that needs one is asked about; the others run; what is approved runs before the model is asked again", () =>
    Effect.gen(function*() {
      const { book, layer } = world([paying, FakeModel.text("paid")])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* ask("go")
          assert.deepStrictEqual(wordsOf(first.content), [
            "call p",
            "call r",
            "call q",
            "finish",
            "request p",
            'result r "r"',
            "request q"
          ])
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r"])
          const second = yield* ask(after("go", first.content, answers(first.content, (id) => id === "p", "too dear")))
          assert.deepStrictEqual(wordsOf(second.content), [
            'result p "p"',
            "result q execution-denied",
            "paid",
            "finish"
          ])
          assert.deepStrictEqual(second.toolResults[1]!.encodedResult, { type: "execution-denied", reason: "too dear" })
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "p"])
          const sent = (yield* prompts).at(-1)!
          assert.deepStrictEqual(lines(sent), [
            "user: go",
            "assistant: call p, call r, call q",
            'tool: p "p", r "r", q execution-denied'
          ])
          assert.deepStrictEqual(History.check(sent), [])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("the registry keeps no request of it: its decisions come with the prompt", () =>
    Effect.gen(function*() {
      const { book, layer } = world([paying, FakeModel.text("paid"), paying, FakeModel.text("paid")])
      yield* drive(
        Effect.gen(function*() {
          const approvals = yield* Approval.Approvals
          const first = yield* ask("go")
          assert.deepStrictEqual(yield* approvals.pending, [])
          yield* ask(after("go", first.content, answers(first.content, (id) => id === "p")))
          yield* Stream.runDrain(LanguageModel.streamText({ prompt: "go", toolkit }))
          assert.deepStrictEqual(yield* approvals.pending, [])
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "p", "r"])
        }).pipe(Effect.provide([layer, Approval.layerMemory()]))
      )
    }))

  it.effect("in a stream: the request is a part of it, and so are the answers, first of all", () =>
    Effect.gen(function*() {
      const { layer } = world([paying, FakeModel.text("paid")])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* Stream.runCollect(LanguageModel.streamText({ prompt: "go", toolkit }))
          assert.deepStrictEqual(wordsOf(first).slice(-4), ["request p", 'result r "r"', "request q", "finish"])
          const second = yield* Stream.runCollect(
            LanguageModel.streamText({ prompt: after("go", first, answers(first, true)), toolkit })
          )
          assert.deepStrictEqual(wordsOf(second).slice(0, 2), ['result p "p"', 'result q "q"'])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("a Chat keeps what was answered, asks nobody twice, and the model is sent all of it in order", () =>
    Effect.gen(function*() {
      const { book, layer } = world([paying, FakeModel.text("paid"), FakeModel.text("bye")])
      yield* drive(
        Effect.gen(function*() {
          const chat = yield* Chat.empty
          const first = yield* chat.generateText({ prompt: "go", toolkit })
          yield* chat.generateText({ prompt: answers(first.content, true), toolkit })
          yield* chat.generateText({ prompt: "thanks", toolkit })
          assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["r", "p", "q"])
          const sent = (yield* prompts).at(-1)!
          assert.deepStrictEqual(lines(sent), [
            "user: go",
            "assistant: call p, call r, call q",
            'tool: p "p", r "r", q "q"',
            "assistant: paid",
            "user: thanks"
          ])
          assert.deepStrictEqual(History.check(sent), [])
          assert.isAbove((yield* Ref.get(chat.history)).content.length, sent.content.length)
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("G2: an approval that is sent twice runs its call once, one after the other and at the same time", () =>
    Effect.gen(function*() {
      const { book, layer } = world([paying, FakeModel.text("one"), FakeModel.text("two"), FakeModel.text("three")])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* ask("go")
          const prompt = after("go", first.content, answers(first.content, true))
          const both = yield* Effect.all([ask(prompt), ask(prompt)], { concurrency: "unbounded" })
          const later = yield* ask(prompt)
          for (const { content } of [...both, later]) {
            assert.deepStrictEqual(wordsOf(content).slice(0, 2), ['result p "p"', 'result q "q"'])
          }
          assert.deepStrictEqual([book.count("p"), book.count("q")], [1, 1])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("G2: the memory is of the tenant and of the arguments: another's approval is another", () =>
    Effect.gen(function*() {
      const { book, layer } = world([paying, FakeModel.text("one"), FakeModel.text("two")])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* ask("go")
          const prompt = after("go", first.content, answers(first.content, true))
          yield* ask(prompt)
          yield* Effect.provideService(ask(prompt), TurnContext.Tenant, "other")
          assert.deepStrictEqual([book.count("p"), book.count("q")], [2, 2])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("G2: the last 1,000 are remembered", () =>
    Effect.gen(function*() {
      const tags = Array.from({ length: 1_001 }, (_, i) => `p${i}`)
      const { book, layer } = world(
        [
          FakeModel.calls(tags.map((tag) => says("pay", tag, [tag]))),
          FakeModel.text("paid"),
          FakeModel.text("again")
        ],
        {},
        { script: Object.fromEntries(tags.map((tag) => [tag, { ms: 0 }])) }
      )
      yield* Effect.gen(function*() {
        const first = yield* ask("go")
        const prompt = after("go", first.content, answers(first.content, true))
        yield* ask(prompt)
        assert.strictEqual(book.runs.length, 1_001)
        yield* ask(prompt)
        assert.strictEqual(book.runs.length, 1_002)
        assert.strictEqual(book.count("p0"), 2)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a stop while an approved call runs waits for it; sent again it is answered as it was", () =>
    Effect.gen(function*() {
      const { book, layer } = world([FakeModel.calls([says("pay", "p")]), FakeModel.text("paid")], {}, {
        script: { p: { ms: 100 } }
      })
      yield* Effect.gen(function*() {
        const first = yield* ask("go")
        const prompt = after("go", first.content, answers(first.content, true))
        const fiber = yield* fork(ask(prompt))
        yield* TestClock.adjust(10)
        const stopped = yield* fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust(10)
        assert.isUndefined(stopped.pollUnsafe())
        yield* TestClock.adjust(1000)
        yield* ended(stopped)
        const second = yield* ask(prompt)
        assert.deepStrictEqual(wordsOf(second.content), ['result p "p"', "paid", "finish"])
        assert.strictEqual(book.count("p"), 1)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("a call that was stopped before it started has not used its approval", () =>
    Effect.gen(function*() {
      const { book, layer } = world(
        [FakeModel.calls([says("pay", "p", ["k"])]), FakeModel.text("paid")],
        {},
        { script: { w: { ms: 100 } } }
      )
      yield* Effect.gen(function*() {
        const first = yield* ask("go")
        const prompt = after("go", first.content, answers(first.content, true))
        // Something else holds the key.
        yield* fork(Turn.run(toolkit, [{ id: "w", name: "write", arguments: { tag: "w", k: ["k"] } }]))
        const fiber = yield* fork(ask(prompt))
        yield* TestClock.adjust(10)
        yield* Fiber.interrupt(fiber)
        assert.strictEqual(book.count("p"), 0)
        const again = yield* fork(ask(prompt))
        yield* TestClock.adjust(1000)
        assert.deepStrictEqual(wordsOf((yield* ended(again)).content), ['result p "p"', "paid", "finish"])
        assert.strictEqual(book.count("p"), 1)
      }).pipe(Effect.provide(layer))
    }))

  it.effect("R10: an approval is for the arguments that were shown: what a middleware changes is for a rule to approve", () =>
    Effect.gen(function*() {
      const doubled = TurnMiddleware.make("other", {
        before: ({ params }) =>
          Effect.succeed(TurnMiddleware.replaceArguments({ ...(params as Record<string, unknown>), n: 2 }))
      })
      for (const decide of [undefined, () => Approval.approve()]) {
        const { book, layer } = world(
          [FakeModel.calls([says("pay", "p")]), FakeModel.text("ok")],
          {
            middleware: [doubled],
            ...(decide === undefined
              ? undefined
              : { decide: ({ arguments: args }) => args["n"] === 2 ? decide() : undefined })
          }
        )
        yield* drive(
          Effect.gen(function*() {
            const first = yield* ask("go")
            const { content } = yield* ask(after("go", first.content, answers(first.content, true)))
            assert.deepStrictEqual(
              wordsOf(content)[0],
              decide === undefined ? "result p pending_approval" : 'result p "p"'
            )
            assert.strictEqual(book.count("p"), decide === undefined ? 0 : 1)
          }).pipe(Effect.provide(layer))
        )
      }
    }))

  it.effect("R10: a history in which the arguments were changed meanwhile has no approval for them", () =>
    Effect.gen(function*() {
      const { book, layer } = world([FakeModel.calls([says("pay", "p")]), FakeModel.text("ok")])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* ask("go")
          const changed = first.content.map((part) =>
            part.type === "tool-call" ? { ...part, params: { tag: "more" } } : part
          )
          const { content } = yield* ask(after("go", changed, answers(first.content, true)))
          assert.deepStrictEqual(wordsOf(content), ["ok", "finish"])
          assert.deepStrictEqual(lines((yield* prompts).at(-1)!).at(-1), "tool: p pending_approval")
          assert.deepStrictEqual(book.runs, [])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("the inner model never runs a call, and a request that nobody answers is told to the model as that", () =>
    Effect.gen(function*() {
      const { book, layer } = world([FakeModel.calls([says("pay", "p")]), FakeModel.text("never mind")])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* ask("go")
          yield* ask(after("go", first.content, Prompt.make("never mind")))
          const sent = (yield* prompts).at(-1)!
          assert.deepStrictEqual(lines(sent), [
            "user: go",
            "assistant: call p",
            "tool: p pending_approval",
            "user: never mind"
          ])
          assert.deepStrictEqual(book.runs, [])
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("an approved call whose tool is gone, or whose arguments do not fit any more, is answered so", () =>
    Effect.gen(function*() {
      const { layer } = world([FakeModel.text("ok")])
      const call = (id: string, name: string, params: unknown) =>
        ({ type: "tool-call", id, name, params, providerExecuted: false }) as const
      const request = (id: string) =>
        ({ type: "tool-approval-request", approvalId: `ap-${id}`, toolCallId: id }) as const
      const response = (id: string) =>
        ({ type: "tool-approval-response", approvalId: `ap-${id}`, approved: true }) as const
      const { content } = yield* drive(
        Effect.provide(
          ask(Prompt.make([
            { role: "user", content: "go" },
            {
              role: "assistant",
              content: [call("gone", "gone", {}), call("bad", "pay", { tag: 1 }), request("gone"), request("bad")]
            },
            { role: "tool", content: [response("gone"), response("bad")] }
          ])),
          layer
        )
      )
      assert.deepStrictEqual(wordsOf(content), [
        "result gone error/unknown_tool",
        "result bad error/invalid_arguments",
        "ok",
        "finish"
      ])
    }))

  it.effect("without a toolkit effect/ai has its say", () =>
    Effect.gen(function*() {
      const { layer } = world([FakeModel.calls([says("pay", "p")])])
      yield* drive(
        Effect.gen(function*() {
          const first = yield* ask("go")
          const failed = yield* Effect.flip(
            LanguageModel.generateText({ prompt: after("go", first.content, answers(first.content, true)) })
          )
          assert.strictEqual(failed.reason._tag, "ToolkitRequiredError")
        }).pipe(Effect.provide(layer))
      )
    }))

  it.effect("`decide` of the layer is a rule that answers before anybody is asked", () =>
    Effect.gen(function*() {
      const { layer } = world([paying], {
        decide: ({ id }) => id === "p" ? Approval.approve() : Approval.deny("too dear")
      })
      const { content } = yield* drive(Effect.provide(ask("go"), layer))
      assert.deepStrictEqual(wordsOf(content).slice(4), [
        'result p "p"',
        'result r "r"',
        "result q error/denied"
      ])
      const denied = content.at(-1) as Response.ToolResultPart<string, unknown, unknown>
      assert.deepInclude(denied.result, { type: "execution-denied" })
    }))

  it.effect("a tool that asks is shown the messages of the prompt, as by effect/ai", () =>
    Effect.gen(function*() {
      const seen: Array<ReadonlyArray<string>> = []
      const Trusting = pipe(
        Tool.make("trusting", {
          success: Schema.String,
          needsApproval: (_, { messages }) => {
            seen.push(lines(Prompt.fromMessages([...messages])))
            return !lines(Prompt.fromMessages([...messages])).includes("user: trust me")
          }
        }),
        ToolPolicy.read({ keys: () => [] })
      )
      const kit = Toolkit.make(Trusting)
      const step = FakeModel.calls([FakeModel.call(Trusting, {}, { id: "t" })])
      const request = (prompt: string) => LanguageModel.generateText({ prompt, toolkit: kit })
      yield* Effect.gen(function*() {
        assert.deepStrictEqual(wordsOf((yield* request("go")).content).slice(2), ["request t"])
        assert.deepStrictEqual(wordsOf((yield* request("trust me")).content).slice(2), ['result t "done"'])
        assert.deepStrictEqual(seen, [["user: go"], ["user: trust me"]])
      }).pipe(Effect.provide([
        Turn.layerLanguageModel().pipe(Layer.provide([FakeModel.layer([step, step]), Turn.layer()])),
        kit.toLayer({ trusting: () => Effect.succeed("done") })
      ]))
    }))
})
