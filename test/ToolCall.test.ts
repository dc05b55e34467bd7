import { assert, describe, it } from "@effect/vitest"
import { ToolCall } from "effect-turn"
import * as Schema from "effect/Schema"

describe("ToolCall", () => {
  it("is made of its parts, with or without arguments", () => {
    assert.deepStrictEqual(ToolCall.make("c1", "t", { a: 1 }), { id: "c1", name: "t", arguments: { a: 1 } })
    assert.deepStrictEqual(ToolCall.make("", "t"), { id: "", name: "t", arguments: undefined })
  })

  it("is taken out of response parts, in their order", () => {
    const parts = [
      { type: "tool-call", id: "a", name: "x", params: { n: 1 }, providerExecuted: false },
      { type: "tool-call", id: "b", name: "y", params: "{", providerExecuted: true }
    ]
    assert.deepStrictEqual(ToolCall.fromParts(parts), [
      { id: "a", name: "x", arguments: { n: 1 } },
      { id: "b", name: "y", arguments: "{", providerExecuted: true }
    ])
    assert.deepStrictEqual(ToolCall.fromParts(new Set()), [])
  })

  it("reads and writes as JSON", () => {
    for (const call of [{ id: "a", name: "t" }, { id: "", name: "t", arguments: "{", providerExecuted: true }]) {
      assert.deepStrictEqual(Schema.decodeUnknownSync(ToolCall.ToolCall)(JSON.parse(JSON.stringify(call))), call)
    }
    assert.throws(() => Schema.decodeUnknownSync(ToolCall.ToolCall)({ id: 1, name: "t" }))
  })

  it("R11: length, content filter and error cut a response short, and nothing else does", () => {
    const cut = ToolCall.FinishReason.literals.filter((reason) => ToolCall.isCutShort(reason))
    assert.deepStrictEqual(cut, ["length", "content-filter", "error"])
    assert.isFalse(ToolCall.isCutShort(undefined))
  })
})
