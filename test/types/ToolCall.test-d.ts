import { ToolCall } from "effect-turn"
import { expectTypeOf, it } from "vitest"

it("a call is made of its parts, and read as such", () => {
  expectTypeOf(ToolCall.make("call_1", "read")).toEqualTypeOf<ToolCall.ToolCall>()
  expectTypeOf(ToolCall.ToolCall.Type).toExtend<ToolCall.ToolCall>()
})

it("a call has an id and a name, and cannot be changed", () => {
  // @ts-expect-error: the name is missing
  ToolCall.make("call_1")
  const call = ToolCall.make("call_1", "read")
  // @ts-expect-error: a call is read-only
  call.id = "call_2"
})
