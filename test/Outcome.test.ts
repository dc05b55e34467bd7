import { assert, describe, it } from "@effect/vitest"
import { Outcome } from "effect-turn"
import * as Schema from "effect/Schema"

const base = { position: 0, id: "c1", started: true, effect: "none", retryable: false, message: "" } as const

const ok: Outcome.Ok<"t", unknown> = { ...base, name: "t", status: "ok", result: new Date(0), encoded: "1970" }
const failed: Outcome.Failed<"t", unknown> = {
  ...base,
  name: "t",
  status: "error",
  code: "failed",
  effect: "unknown",
  message: "no room",
  failure: new Error("no room"),
  encoded: { why: "no room" }
}
const others: ReadonlyArray<Outcome.Outcome<any>> = [
  { ...base, name: "t", status: "error", code: "defect", message: "broke" },
  { ...base, name: "t", status: "error", code: "deadlock", started: false, message: "a circle" },
  { ...base, name: "t", status: "error", code: "unencodable_result", effect: "applied", message: "a big integer" },
  { ...base, name: "t", status: "timeout", code: "handler", limit: { clock: "timeout", millis: 10 }, message: "late" },
  {
    ...base,
    name: "t",
    status: "timeout",
    code: "queue",
    started: false,
    limit: { clock: "waitTimeout", millis: 10 },
    message: "late"
  },
  { ...base, name: "t", status: "deferred", code: "placeholder", started: false, retryable: true, message: "later" },
  { ...base, name: "t", status: "pending_approval", started: false, message: "waits" },
  { ...base, name: "t", status: "cancelled", code: "by_caller", reason: "user", message: "stopped" },
  { ...base, name: "t", status: "cancelled", code: "by_itself", message: "stopped" },
  { ...base, name: "t", status: "provider_executed", started: false, message: "elsewhere" }
]

describe("Outcome", () => {
  it("R3: toJson is data that its schema reads back, in encoded form", () => {
    for (const one of [ok, failed, ...others]) {
      const json = JSON.parse(JSON.stringify(Outcome.toJson(one)))
      assert.deepStrictEqual(Schema.decodeUnknownSync(Outcome.Encoded)(json), Outcome.toJson(one))
    }
    assert.deepStrictEqual(Outcome.toJson(ok), {
      position: 0,
      id: "c1",
      name: "t",
      status: "ok",
      started: true,
      effect: "none",
      retryable: false,
      result: "1970"
    })
    assert.deepStrictEqual(Outcome.toJson({ ...failed, duplicateOf: { position: 3, id: "x" }, repairedFrom: "T" }), {
      position: 0,
      id: "c1",
      name: "t",
      status: "error",
      code: "failed",
      started: true,
      effect: "unknown",
      retryable: false,
      message: "no room",
      failure: { why: "no room" },
      duplicateOf: { position: 3, id: "x" },
      repairedFrom: "T"
    })
    assert.deepInclude(Outcome.toJson(others[3]!), { limit: { clock: "timeout", millis: 10 } })
    assert.deepInclude(Outcome.toJson(others[7]!), { reason: "user", code: "by_caller" })
  })

  it("R30: the model gets the result of `ok`, and status, code, retryable and message of everything else", () => {
    assert.deepStrictEqual(Outcome.forModel(ok), { isFailure: false, value: "1970" })
    assert.deepStrictEqual(Outcome.forModel(failed), {
      isFailure: true,
      value: {
        status: "error",
        code: "failed",
        retryable: false,
        effect: "unknown",
        message: "no room",
        failure: { why: "no room" }
      }
    })
    for (const one of others) {
      const { isFailure, value } = Outcome.forModel(one)
      assert.strictEqual(isFailure, one.status !== "provider_executed")
      assert.deepInclude(value as object, { status: one.status, retryable: one.retryable, message: one.message })
      assert.strictEqual("effect" in (value as object), one.started)
      assert.strictEqual(JSON.stringify(value), JSON.stringify(JSON.parse(JSON.stringify(value))))
    }
    // A failure that could not be encoded leaves its words.
    assert.notProperty(Outcome.forModel({ ...failed, encoded: undefined }).value, "failure")
  })

  it("R18: what counts as a failure of a run", () => {
    assert.isFalse(Outcome.isFailure(ok))
    assert.isTrue(Outcome.isFailure(failed))
    assert.deepStrictEqual(others.map((one) => Outcome.isFailure(one)), [
      true,
      false,
      true,
      true,
      true,
      false,
      false,
      false,
      true,
      false
    ])
    assert.deepStrictEqual([ok, failed, ...others].map((one) => Outcome.isOk(one)), [
      true,
      ...[failed, ...others].map(() => false)
    ])
  })
})
