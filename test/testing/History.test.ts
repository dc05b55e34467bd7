import { assert, describe, it } from "@effect/vitest"
import { History } from "effect-turn/testing"
import * as Prompt from "effect/ai/Prompt"

const call = (id: string, providerExecuted = false) =>
  ({ type: "tool-call", id, name: "t", params: {}, providerExecuted }) as const
const result = (id: string) =>
  ({ type: "tool-result", id, name: "t", isFailure: false, result: 1, providerExecuted: false }) as const
const request = (id: string) => ({ type: "tool-approval-request", approvalId: `ap-${id}`, toolCallId: id }) as const
const response = (id: string) => ({ type: "tool-approval-response", approvalId: `ap-${id}`, approved: true }) as const

const user = { role: "user", content: "go" } as const
const says = (...content: ReadonlyArray<any>) => ({ role: "assistant", content }) as const
const tool = (...content: ReadonlyArray<any>) => ({ role: "tool", content }) as const

const check = (...messages: ReadonlyArray<any>) => History.check(Prompt.make(messages))

describe("the check of a history", () => {
  it("finds nothing in what every provider takes", () => {
    assert.deepStrictEqual(History.check(Prompt.empty), [])
    assert.deepStrictEqual(check(user, says({ type: "text", text: "hi" }), user), [])
    assert.deepStrictEqual(check(user, says(call("a"), call("b")), tool(result("a"), result("b")), user), [])
    // The provider's own calls are answered in its own message.
    assert.deepStrictEqual(check(user, says(call("p", true), call("a")), tool(result("a"))), [])
    // Ids may come again in another message.
    assert.deepStrictEqual(check(says(call("a")), tool(result("a")), user, says(call("a")), tool(result("a"))), [])
  })

  it("H1: a call without an answer, with two, without an id, or with another's", () => {
    assert.deepStrictEqual(check(user, says(call("a"))), [
      "H1: message 1: the call a (t) has no answer in the next message"
    ])
    assert.deepStrictEqual(check(says(call("a"), call("b")), tool(result("b"), result("b"))), [
      "H1: message 0: the call a (t) has no answer in the next message",
      "H1: message 0: the call b (t) has 2 answers"
    ])
    assert.deepStrictEqual(check(says(call("")), tool(result(""))), ["H1: message 0: a call of t has no id"])
    assert.deepStrictEqual(check(says(call("a"), call("a")), tool(result("a"))), [
      "H1: message 0: two calls have the id a"
    ])
    assert.deepStrictEqual(check(says(call("a")), user, tool(result("a"))), [
      "H1: message 0: the call a (t) has no answer in the next message",
      "H2: message 2: the answer a (t) has no call in the message before"
    ])
  })

  it("H2: answers in another order, and without a call", () => {
    assert.deepStrictEqual(check(says(call("a"), call("b")), tool(result("b"), result("a"))), [
      "H2: message 1: the answers are b, a, and the calls a, b"
    ])
    assert.deepStrictEqual(check(user, tool(result("x"))), [
      "H2: message 1: the answer x (t) has no call in the message before"
    ])
    assert.deepStrictEqual(check(says(call("a")), tool(result("a")), tool(result("a"))), [
      "H2: message 2: the answer a (t) has no call in the message before"
    ])
  })

  it("H3: a call may wait for its approval at the end, and nowhere else", () => {
    const asked = says(call("a"), call("b"), request("b"))
    assert.deepStrictEqual(check(user, asked, tool(result("a"))), [])
    assert.deepStrictEqual(check(user, asked, tool(result("a")), tool(response("b"))), [])
    assert.deepStrictEqual(check(user, asked, tool(result("a")), user), [
      "H1: message 1: the call b (t) has no answer in the next message"
    ])
    assert.deepStrictEqual(check(user, tool(response("c"))), [
      "H3: message 1: the approval ap-c was never asked for"
    ])
  })
})
