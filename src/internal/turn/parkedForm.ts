/** The form of a turn that waits for a human. */
import * as Schema from "effect/Schema"
import * as Approval from "../../Approval.ts"
import * as Outcome from "../../Outcome.ts"
import * as ToolCall from "../../ToolCall.ts"

export const Parked = Schema.Struct({
  _tag: Schema.Literal("Parked"),
  version: Schema.Literal(1),
  tenant: Schema.String,
  turn: Schema.String,
  tools: Schema.Record(Schema.String, Schema.String),
  calls: Schema.Array(ToolCall.ToolCall),
  outcomes: Schema.Array(Schema.NullOr(Outcome.Encoded)),
  requests: Schema.Array(Approval.Request)
})

export type Parked = typeof Parked.Type
