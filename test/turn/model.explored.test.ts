/** The governed model under a stop at every point, and under many interleavings. */
import { assert, describe, it } from "@effect/vitest"
import { FakeModel, History, Simulation } from "effect-turn/testing"
import * as Chat from "effect/ai/Chat"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { toolkit } from "../utils/kit.ts"
import { prompts, says, wordsOf, world } from "../utils/model.ts"

const stopAt = <A, E, R>(effect: Effect.Effect<A, E, R>, point: number) =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(Effect.exit(effect))
    yield* Effect.raceFirst(Effect.andThen(Simulation.point(point), Fiber.interrupt(fiber)), Fiber.await(fiber))
  })

/** Runs a program with a stop at each of its points. */
const everywhere = <E>(program: (point: number) => Effect.Effect<unknown, E>) =>
  Effect.gen(function*() {
    const { points, problem } = yield* Simulation.run(program(Infinity))
    assert.isUndefined(problem)
    assert.isAbove(points, 20)
    for (let point = 1; point <= points; point++) {
      const run = yield* Simulation.run(program(point))
      assert.isUndefined(run.problem, `a stop at point ${point}: ${String(run.problem)}`)
    }
  })

const step = FakeModel.calls([says("read", "r", ["k"]), says("write", "w", ["k"]), says("pay", "p", ["l"])], {
  text: "so",
  delay: 2
})

describe("a stop at every point", () => {
  const conversation = (streamed: boolean) => (point: number) =>
    Effect.suspend(() => {
      const { book, layer } = world([step, FakeModel.text("well")], {}, { script: { r: { ms: 5 }, w: { ms: 7 } } })
      return Effect.gen(function*() {
        const chat = yield* Chat.empty
        yield* stopAt(
          streamed
            ? Stream.runDrain(chat.streamText({ prompt: "go", toolkit }))
            : Effect.asVoid(chat.generateText({ prompt: "go", toolkit })),
          point
        )
        // Nothing goes on after the stop.
        const seen = JSON.stringify(book.runs)
        yield* Effect.sleep(100)
        assert.strictEqual(JSON.stringify(book.runs), seen)
        const ran = book.runs.length
        // Whether it had been asked or not: what is sent next is in order.
        yield* chat.generateText({ prompt: "and?", toolkit })
        const sent = yield* prompts
        assert.deepStrictEqual(History.check(sent.at(-1)!), [])
        if (sent.length === 2) assert.strictEqual(book.runs.length, ran)
        // A write that has begun was finished, and the model is told so.
        const told = sent.at(-1)!.content.flatMap((message) => message.role === "tool" ? message.content : [])
          .find((part) => part.type === "tool-result" && part.id === "w") as Prompt.ToolResultPart | undefined
        if (told !== undefined && sent.length === 2) {
          assert.strictEqual(told.isFailure, book.count("w") === 0)
        }
        for (const { end, tag } of book.runs) if (tag === "w") assert.strictEqual(end, "ok")
      }).pipe(Effect.provide(layer))
    })

  it.effect("of a streamed response", () => everywhere(conversation(true)), 60_000)
  it.effect("of a whole response", () => everywhere(conversation(false)), 60_000)

  const asked = (point: number) =>
    Effect.suspend(() => {
      const { book, layer } = world([step, ...Array.from({ length: 3 }, () => FakeModel.text("paid"))])
      return Effect.gen(function*() {
        const first = yield* LanguageModel.generateText({ prompt: "go", toolkit })
        const request = first.content.find((part) => part.type === "tool-approval-request")!
        const prompt = Prompt.concat(
          Prompt.fromResponseParts(first.content),
          Prompt.fromMessages([
            Prompt.makeMessage("tool", {
              content: [
                Prompt.makePart("tool-approval-response", { approvalId: request.approvalId, approved: true })
              ]
            })
          ])
        )
        const send = LanguageModel.generateText({ prompt, toolkit })
        const [, second] = yield* Effect.all([stopAt(send, point), send], { concurrency: "unbounded" })
        assert.deepStrictEqual(wordsOf(second.content), ['result p "p"', "paid", "finish"])
        assert.strictEqual(book.count("p"), 1)
      }).pipe(Effect.provide(layer))
    })

  it.effect(
    "G2: of one of two that send the same approval: the other has its answer, and the call ran once",
    () => everywhere(asked),
    60_000
  )

  it.effect("G2: the same under many interleavings", () =>
    Effect.gen(function*() {
      const { distinct } = yield* Simulation.explore(asked(Infinity), { seeds: 100 })
      assert.isAbove(distinct, 10)
    }), 60_000)
})
