import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { detect } from "effect-turn/wire"
import * as fs from "node:fs"
import * as path from "node:path"
import { describeShared } from "../utils/requires.ts"
import { ok } from "./outcomes.ts"

/** What of a response stands in the conversation: the calls in it, and the whole of it. */
const forms: Record<string, {
  readonly path: RegExp
  readonly given: (response: any) => unknown
  readonly kept: (history: ReadonlyArray<any>, calls: number) => unknown
  readonly answers: (history: ReadonlyArray<any>, calls: number) => ReadonlyArray<unknown>
}> = {
  chat: {
    path: /\/chat\/completions$/,
    given: ({ choices: [{ message }] }) => ({
      ...message,
      // Everything but the spacing of the arguments.
      tool_calls: message.tool_calls.map((call: any) => ({
        ...call,
        function: { ...call.function, arguments: JSON.stringify(JSON.parse(call.function.arguments)) }
      }))
    }),
    kept: (history) => history[0],
    answers: (history) => history.slice(1).map((answer) => answer.tool_call_id)
  },
  responses: {
    path: /\/responses$/,
    given: ({ output }) =>
      output.map((item: any) =>
        item.type === "function_call" ? { ...item, arguments: JSON.stringify(JSON.parse(item.arguments)) } : item
      ),
    kept: (history, calls) => history.slice(0, -calls),
    answers: (history, calls) => history.slice(-calls).map((item) => item.call_id)
  },
  anthropic: {
    path: /\/messages$/,
    given: ({ content, role }) => ({ role, content }),
    kept: (history) => history[0],
    answers: (history) => history[1].content.map((block: any) => block.tool_use_id)
  },
  gemini: {
    path: /:generateContent$/,
    given: ({ candidates: [{ content }] }) => content,
    kept: (history) => history[0],
    answers: (history) => history[1].parts.map((part: any) => part.functionResponse.id ?? "")
  }
}

describeShared("messages that providers really sent", (shared) => {
  const whole = fs.readFileSync(path.join(shared, "data/turns-provider.handed.jsonl"), "utf8").trim().split("\n")
    .map((line) => JSON.parse(line))
    .filter((record) => !record.stream)

  it("there is something to check, of several providers", () => {
    assert.isAbove(new Set(whole.map((record) => record.provider)).size, 2)
  })

  for (const record of whole) {
    const [id, form] = Object.entries(forms).find(([, { path }]) => path.test(record.path)) ?? []

    it(`${record.provider}: ${record.id}`, () => {
      const dialect = Result.getOrThrow(detect(record.wire_response))
      assert.strictEqual(dialect.id, id)
      const { calls, finishReason, message } = Result.getOrThrow(dialect.decode(record.wire_response))
      assert.strictEqual(finishReason, "tool-calls")
      assert.deepStrictEqual(
        calls.map((call) => ({
          ...call,
          arguments: typeof call.arguments === "string" ? JSON.parse(call.arguments) : call.arguments
        })),
        record.calls
      )
      const history = Result.getOrThrow(
        dialect.history(message, calls, calls.map((call, i) => ok(call, i, { i })))
      ) as Array<any>
      assert.deepStrictEqual(form!.kept(history, calls.length), form!.given(record.wire_response))
      assert.deepStrictEqual(form!.answers(history, calls.length), record.calls.map((call: any) => call.id))
    })
  }
})
