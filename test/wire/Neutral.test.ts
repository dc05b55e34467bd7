import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { TurnError } from "effect-turn"
import { Neutral } from "effect-turn/wire"
import { ok, refused } from "./outcomes.ts"

const message = (result: Result.Result<unknown, TurnError.TurnError>) => Result.getOrThrow(Result.flip(result)).message

describe("Neutral", () => {
  const calls = [{ id: "1", name: "f", arguments: { a: 1 } }, { id: "", name: "g" }]

  it("takes a list of calls, or an object with one", () => {
    assert.deepStrictEqual(Result.getOrThrow(Neutral.decode(calls)), {
      message: { calls },
      calls,
      finishReason: undefined
    })
    assert.deepStrictEqual(Result.getOrThrow(Neutral.decode({ calls, finishReason: "length", source: "a file" })), {
      message: { calls, finishReason: "length" },
      calls,
      finishReason: "length"
    })
    assert.deepStrictEqual(Result.getOrThrow(Neutral.decode([])).calls, [])
  })

  it("gives an absent id the empty text", () => {
    assert.deepStrictEqual(Result.getOrThrow(Neutral.decode([{ name: "f" }])).calls, [{ name: "f", id: "" }])
  })

  it("writes each outcome, in order, and arguments that are objects", () => {
    const given = [{ id: "1", name: "f", arguments: "{" }, { id: "1", name: "f", arguments: "{" }]
    const sent = Result.getOrThrow(Neutral.history({ calls: given }, given, given.map((call, i) => ok(call, i, { i }))))
    assert.deepStrictEqual<unknown>(sent, [
      { calls: given.map((call) => ({ ...call, arguments: {} })) },
      {
        outcomes: [0, 1].map((i) => ({
          position: i,
          id: "1",
          name: "f",
          status: "ok",
          started: true,
          effect: "none",
          retryable: false,
          result: { i }
        }))
      }
    ])
  })

  it("refuses what is no list of calls, and says where", () => {
    assert.include(
      message(Neutral.decode(7)),
      'neutral message, at its root: expected a list of calls, or {"calls": [...]}, and got number'
    )
    assert.include(message(Neutral.decode({ calls: [{ name: 3 }] })), "at calls[0].name: expected string, and got 3")
    assert.include(message(Neutral.decode([{ id: "1" }])), "at [0].name: expected a value, and got nothing")
    assert.include(
      message(Neutral.decode([{ name: "f", args: {} }])),
      "at [0].args: expected no field of this name, and got {}"
    )
    assert.include(message(Neutral.decode({ calls, finishReason: "done" })), "at finishReason: expected")
    assert.include(message(Neutral.history({ calls }, calls, [])), "at outcomes: expected 2 outcomes")
    assert.include(
      message(Neutral.history({ calls }, calls, [ok(calls[0]!, 0, 1), refused(calls[0]!, 0, "defect", "")])),
      "at outcomes[1]"
    )
  })
})
