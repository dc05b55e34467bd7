import { assert, describe, it } from "@effect/vitest"
import { TurnError } from "effect-turn"
import * as Schema from "effect/Schema"

const reasons: ReadonlyArray<readonly [TurnError.Reason, string]> = [
  [
    new TurnError.InvalidLimit({ owner: 'tool "book"', limit: "timeout", expected: "a duration", received: "0 ms" }),
    'tool "book": the limit "timeout" must be a duration, and is 0 ms'
  ],
  [
    new TurnError.InvalidInput({ what: "call #0 of the turn", expected: "an object", received: "null" }),
    "call #0 of the turn: expected an object, and got null"
  ],
  [
    new TurnError.MissingService({ tool: "book", service: "app/Hotels" }),
    'tool "book": expected app/Hotels in the context, and it is not there'
  ],
  [new TurnError.ShutDown({}), "the turn runtime has been shut down: expected a running runtime for a new turn"],
  [
    new TurnError.InvalidMessage({ dialect: "OpenAiChat", path: "", expected: "an object", received: "a list of 2" }),
    "OpenAiChat message, at its root: expected an object, and got a list of 2"
  ]
]

describe("TurnError", () => {
  for (const [reason, message] of reasons) {
    it(`${reason._tag} says what was expected and what came, and reads and writes as JSON`, () => {
      const error = TurnError.make(reason)
      assert.instanceOf(error, Error)
      assert.deepStrictEqual([error._tag, error.reason._tag, error.message], ["TurnError", reason._tag, message])
      const json = JSON.parse(JSON.stringify(Schema.encodeSync(TurnError.TurnError)(error)))
      const read = Schema.decodeUnknownSync(TurnError.TurnError)(json)
      assert.instanceOf(read, TurnError.TurnError)
      assert.strictEqual(read.message, message)
    })
  }
})
