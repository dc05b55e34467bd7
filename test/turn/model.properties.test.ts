/** What holds of a governed model always, whatever the model calls, what the tools do, and when it is stopped. */
import { assert, describe, it } from "@effect/vitest"
import { FakeModel, History } from "effect-turn/testing"
import * as Chat from "effect/ai/Chat"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Ref from "effect/Ref"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "../utils/gen.ts"
import { type Does, ended, fork, type Name, toolkit } from "../utils/kit.ts"
import { lines, prompts, says, world } from "../utils/model.ts"

const someCall = Arbitrary.all({
  name: pick<Name | "nobody">("read", "write", "put", "bare", "pay", "nobody"),
  k: Arbitrary.array(pick<string>("a", "b"), { maxLength: 2 }),
  args: pick("own", "own", "own", "same", "invalid", "text"),
  id: pick("own", "own", "own", "empty", "same"),
  does: Arbitrary.all({
    ms: pick(10, 0, 1, 25, 60),
    end: pick("ok", "ok", "ok", "fail", "die", "interrupt"),
    deaf: pick(false, false, true)
  })
})
type SomeCall = typeof someCall["~A"] extends (_: never) => infer A ? A : never

const someStep = Arbitrary.all({
  calls: Arbitrary.array(someCall, { maxLength: 6 }),
  finishReason: pick<Response.FinishReason>("tool-calls", "tool-calls", "tool-calls", "stop", "length", "unknown"),
  delay: pick(0, 3),
  cut: pick<number | undefined>(undefined, undefined, undefined, 5, 9)
})
type SomeStep = typeof someStep["~A"] extends (_: never) => infer A ? A : never

const contentOf = (one: SomeCall, i: number): FakeModel.Content => {
  const id = one.id === "own" ? `c${i}` : one.id === "empty" ? "" : "same"
  const tag = one.args === "same" ? "same" : `t${i}`
  if (one.args === "text") return FakeModel.rawCall(one.name, '{"tag":', { id })
  if (one.name === "nobody" || one.args === "invalid") return FakeModel.call(one.name, { tag: 7 }, { id })
  return says(one.name, tag, one.args === "same" ? ["s"] : one.k, { id })
}

const stepOf = ({ calls, cut, delay, finishReason }: SomeStep): FakeModel.Step =>
  FakeModel.calls(calls.map(contentOf) as Array<FakeModel.Call>, {
    text: "so",
    finishReason,
    delay,
    ...(cut === undefined ? undefined : { cut: { after: cut, by: "end" } })
  })

const scriptOf = ({ calls }: SomeStep): Record<string, Does> => ({
  same: { ms: 5 },
  ...Object.fromEntries(calls.map((one, i) => [`t${i}`, one.does]))
})

/** The ids of calls by their place: those that the wrapper makes up are random. */
const comparable = (parts: ReadonlyArray<Response.AnyPart>): ReadonlyArray<string> => {
  const names = new Map<string, string>()
  for (const part of parts) if (part.type === "tool-call") names.set(part.id, `#${names.size}`)
  return lines(Prompt.fromResponseParts(parts)).map((line) =>
    [...names].reduce((all, [id, name]) => all.replaceAll(` ${id}`, ` ${name}`), line)
  )
}

const given = (parts: ReadonlyArray<Response.AnyPart>) => parts

describe("a governed model", () => {
  it.effect.prop(
    "answers every call once and in order, and says the same whole and streamed",
    { step: someStep },
    ({ step }) =>
      Effect.gen(function*() {
        const answers: Array<ReadonlyArray<Response.AnyPart>> = []
        for (const streamed of [false, true]) {
          // What is not streamed cannot break off in the middle.
          const one = { ...step, cut: undefined }
          const { book, layer } = world([stepOf(one)], {}, { script: scriptOf(one) })
          const ask = streamed
            ? Effect.map(Stream.runCollect(LanguageModel.streamText({ prompt: "go", toolkit })), given)
            : Effect.map(LanguageModel.generateText({ prompt: "go", toolkit }), ({ content }) => given(content))
          const fiber = yield* fork(Effect.provide(ask, layer))
          yield* TestClock.adjust(100_000)
          const parts = yield* ended(fiber)
          assert.deepStrictEqual(History.check(Prompt.fromResponseParts(parts)), [])
          assert.deepStrictEqual(book.atWork, [])
          const last = parts.findLastIndex((part) => part.type === "tool-result")
          if (streamed) assert.isBelow(last, parts.length - 1)
          answers.push(parts)
        }
        // A read of a stream has begun when its end, or another call of its id, says that it should not have.
        const said = comparable(answers[0]!)
        if (said.some((line) => line.includes("ambiguous_id") || line.includes("incomplete_response"))) return
        assert.deepStrictEqual(comparable(answers[1]!), said)
      }),
    runs(60)
  )

  it.effect.prop(
    "a Chat goes on after a stop at any moment: the model is sent a history that every provider takes",
    { step: someStep, at: int(0, 90), streamed: pick(true, false) },
    ({ at, step, streamed }) =>
      Effect.gen(function*() {
        const { book, layer } = world([stepOf(step), FakeModel.text("well")], {}, { script: scriptOf(step) })
        yield* Effect.gen(function*() {
          const chat = yield* Chat.empty
          const ask = streamed
            ? Stream.runDrain(chat.streamText({ prompt: "go", toolkit }))
            : Effect.asVoid(chat.generateText({ prompt: "go", toolkit }))
          const fiber = yield* fork(Effect.exit(ask))
          yield* TestClock.adjust(at)
          const stopped = yield* fork(Fiber.interrupt(fiber))
          yield* TestClock.adjust(100_000)
          yield* ended(stopped)
          // The stop has waited for everything, and nothing runs twice for it.
          assert.deepStrictEqual(book.atWork, [])
          const ran = book.runs.length
          yield* chat.generateText({ prompt: "and?", toolkit })
          const sent = (yield* prompts).at(-1)!
          assert.deepStrictEqual(History.check(sent), [])
          assert.strictEqual(book.runs.length, ran)
          // What the model is told of a call is what became of it.
          const kept = yield* Ref.get(chat.history)
          for (const message of sent.content) {
            if (message.role !== "tool") continue
            for (const part of message.content) {
              if (part.type !== "tool-result" || part.isFailure) continue
              const call = kept.content.flatMap((one) => one.role === "assistant" ? one.content : [])
                .find((one) => one.type === "tool-call" && one.id === part.id) as Prompt.ToolCallPart
              const { tag } = call.params as { readonly tag: string }
              assert.isTrue(book.runs.some((run) => run.tag === tag && run.end === "ok"))
            }
          }
        }).pipe(Effect.provide(layer))
      }),
    runs(80)
  )

  it.effect.prop(
    "an approval runs its call once at most, whatever is approved, denied, left, stopped, and sent again",
    {
      rounds: Arbitrary.array(
        Arbitrary.all({
          names: Arbitrary.array(pick<Name>("pay", "pay", "read", "write"), { minLength: 1, maxLength: 3 }),
          k: pick("a", "b"),
          says: pick<"yes" | "no" | "nothing">("yes", "yes", "no", "nothing"),
          stopAt: pick<number | undefined>(undefined, undefined, 0, 5, 15),
          again: pick(true, false),
          streamed: pick(true, false)
        }),
        { minLength: 1, maxLength: 4 }
      )
    },
    ({ rounds }) =>
      Effect.gen(function*() {
        const steps = rounds.map(({ k, names }, i) =>
          FakeModel.calls(names.map((name, j) => says(name, `t${i}-${j}`, [k])))
        )
        const served = rounds.flatMap((_, i) => [steps[i]!, FakeModel.text("well"), FakeModel.text("well")])
        // What a stop keeps from being asked leaves the script behind: the request's own prompt says which step is meant.
        const { book, layer } = world(
          served.map(() => ({ prompt }: FakeModel.Request) => {
            const last = prompt.content.findLast(({ role }) => role === "user")?.content
            const text = Array.isArray(last) ? (last[0] as Prompt.TextPart).text : ""
            const fresh = prompt.content.at(-1)?.role === "user" && text.startsWith("round ")
            return fresh ? steps[Number(text.slice(6))]! : FakeModel.text("well")
          })
        )
        const attempt = (chat: Chat.Chat, prompt: Prompt.RawInput, streamed: boolean, stopAt: number | undefined) =>
          Effect.gen(function*() {
            const ask = streamed
              ? Stream.runDrain(chat.streamText({ prompt, toolkit }))
              : Effect.asVoid(chat.generateText({ prompt, toolkit }))
            const fiber = yield* fork(Effect.exit(ask))
            if (stopAt !== undefined) {
              yield* TestClock.adjust(stopAt)
              yield* fork(Fiber.interrupt(fiber))
            }
            yield* TestClock.adjust(1000)
            yield* Fiber.await(fiber)
          })
        yield* Effect.gen(function*() {
          const chat = yield* Chat.empty
          for (const [i, { again, says, stopAt, streamed }] of rounds.entries()) {
            yield* attempt(chat, `round ${i}`, streamed, stopAt)
            const history = yield* Ref.get(chat.history)
            const asked = history.content.flatMap((message) =>
              message.role === "assistant"
                ? message.content.filter((part) => part.type === "tool-approval-request")
                : []
            )
            if (says === "nothing" || asked.length === 0) continue
            const decisions = Prompt.fromMessages([
              Prompt.makeMessage("tool", {
                content: asked.map(({ approvalId }) =>
                  Prompt.makePart("tool-approval-response", { approvalId, approved: says === "yes" })
                )
              })
            ])
            // The same is sent from two copies of the conversation.
            const copy = yield* Chat.fromPrompt(history)
            yield* attempt(chat, decisions, streamed, stopAt)
            if (again) yield* attempt(copy, decisions, !streamed, undefined)
          }
          const { requests } = yield* FakeModel.FakeModel
          for (const { prompt } of requests) assert.deepStrictEqual(History.check(prompt), [])
          for (const { tag } of book.runs) assert.strictEqual(book.count(tag), 1)
          assert.deepStrictEqual(book.atWork, [])
        }).pipe(Effect.provide(layer))
      }),
    runs(60)
  )
})
