import { assert, it } from "@effect/vitest"
import { ProviderTurn, ToolPolicy } from "effect-turn"
import { EventStream } from "effect-turn/wire"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Stream from "effect/Stream"
import * as fs from "node:fs"
import * as path from "node:path"
import { inVirtualTime, kit, tools } from "../utils/data.ts"
import { describeShared } from "../utils/requires.ts"
import { rules } from "../wire/server/rules.ts"

describeShared("streams that providers really sent", (shared) => {
  const records: ReadonlyArray<any> = fs.readFileSync(path.join(shared, "data/turns-provider.handed.jsonl"), "utf8")
    .trim().split("\n").map((line) => JSON.parse(line)).filter((record) => record.stream)

  it("there is something to check", () => assert.isAbove(records.length, 0))

  for (const record of records) {
    const text: string = record.wire_response
    const events = Result.getOrThrow(EventStream.parse(text))
    const dialect = Result.getOrThrow(EventStream.detect(events))
    const withArguments = (calls: ReadonlyArray<any>) =>
      calls.map((call) => ({ ...call, arguments: JSON.parse(call.arguments) }))

    it(`${record.provider}: ${record.id}: byte by byte`, () => {
      const parser = EventStream.parser()
      const bytes = new TextEncoder().encode(text)
      const read = Array.from(bytes.keys(), (at) => parser.push(bytes.subarray(at, at + 1))).flat()
      assert.deepStrictEqual([...read, ...parser.end()].map(Result.getOrThrow), events)
      const assembler = dialect.assembler()
      for (const event of events) Result.getOrThrow(assembler.push(event))
      const { calls, finishReason } = Result.getOrThrow(assembler.end())
      assert.deepStrictEqual(withArguments(calls), record.calls)
      assert.strictEqual(finishReason, "tool-calls")
    })

    it.effect(`${record.provider}: ${record.id}: cut at every border of a chunk, and inside each`, () =>
      Effect.gen(function*() {
        const { layer, toolkit } = kit(
          tools(record.tools, () => ToolPolicy.read({ keys: () => [] }) as any),
          (name) => () => Effect.succeed({ name })
        )
        const borders = [...text.matchAll(/\n\n/g)].map(({ index }) => index + 2)
        assert.isAbove(borders.length, 5)
        let whole = 0
        for (const border of [0, ...borders, ...borders.map((at) => at - 20)]) {
          const answered = yield* inVirtualTime(
            ProviderTurn.stream(toolkit, dialect, ProviderTurn.events(Stream.make(text.slice(0, border)))).pipe(
              Effect.provide(layer)
            )
          ) as Effect.Effect<any, any>
          const statuses = answered.outcomes.map((outcome: any) => outcome.status)
          assert.strictEqual(statuses.length, answered.calls.length)
          if (Option.isNone(answered.broke)) {
            whole++
            assert.deepStrictEqual(withArguments(answered.calls), record.calls)
            assert.isTrue(statuses.every((status: string) => status === "ok"))
          } else {
            assert.include((answered.broke.value as Error).message, "got the end of the stream")
            assert.deepStrictEqual(
              answered.outcomes.map((outcome: any) => outcome.code ?? outcome.status),
              answered.calls.map(() => "incomplete_response")
            )
          }
          const messages = [{ role: "user", content: "hi" }, ...answered.history]
          assert.isUndefined(rules.chat({ model: "m", messages }))
        }
        assert.isAbove(whole, 0)
        assert.isBelow(whole, borders.length)
      }))
  }
})
