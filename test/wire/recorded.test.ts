import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { detect, OpenAiChat } from "effect-turn/wire"
import * as fs from "node:fs"
import * as path from "node:path"
import { describeShared } from "../utils/requires.ts"
import { ok } from "./outcomes.ts"
import { refusal } from "./provider.ts"

describeShared("messages that providers really sent", (shared) => {
  const records = fs.readFileSync(path.join(shared, "data/turns-provider.handed.jsonl"), "utf8").trim().split("\n")
    .map((line) => JSON.parse(line))
  const whole = records.filter((record) => !record.stream)
  const chat = whole.filter((record) => record.path.endsWith("/chat/completions"))

  it("there is something to check", () => {
    assert.isAbove(chat.length, 0)
    assert.isAbove(whole.length, chat.length)
  })

  for (const record of chat) {
    it(`${record.provider}: ${record.id}`, () => {
      const { calls, finishReason, message } = Result.getOrThrow(OpenAiChat.decode(record.wire_response))
      assert.strictEqual(Result.getOrThrow(detect(record.wire_response)).name, OpenAiChat.dialect.name)
      assert.strictEqual(finishReason, "tool-calls")
      assert.deepStrictEqual(
        calls.map((call) => ({ ...call, arguments: JSON.parse(call.arguments as string) })),
        record.calls
      )
      const history = Result.getOrThrow(
        OpenAiChat.history(message, calls, calls.map((call, i) => ok(call, i, { i })))
      ) as Array<any>
      assert.isUndefined(refusal(history))
      // Everything but the spacing of the arguments stands as it came.
      const given = record.wire_response.choices[0].message
      assert.deepStrictEqual(history[0], {
        ...given,
        tool_calls: given.tool_calls.map((call: any) => ({
          ...call,
          function: { ...call.function, arguments: JSON.stringify(JSON.parse(call.function.arguments)) }
        }))
      })
      assert.deepStrictEqual(
        history.slice(1).map((answer) => answer.tool_call_id),
        record.calls.map((call: any) => call.id)
      )
    })
  }

  for (const record of whole.filter((record) => !chat.includes(record))) {
    it(`${record.provider}: ${record.id} is in no form that is known`, () => {
      const error = Result.getOrThrow(Result.flip(detect(record.wire_response)))
      assert.include(error.message, "expected a Chat Completions response")
    })
  }
})
