/** An agent that waits for a human, as plain data. */
import * as Prompt from "effect/ai/Prompt"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Agent from "../../Agent.ts"
import type * as Approval from "../../Approval.ts"
import * as ToolCall from "../../ToolCall.ts"
import * as Turn from "../../Turn.ts"
import * as TurnError from "../../TurnError.ts"
import type { Parking } from "./step.ts"

export const Parked = Schema.Struct({
  _tag: Schema.Literal("ParkedAgent"),
  version: Schema.Literal(1),
  agent: Schema.String,
  conversation: Schema.String,
  step: Schema.Int,
  text: Schema.String,
  finishReason: ToolCall.FinishReason,
  usage: Schema.Struct({ input: Schema.Number, output: Schema.Number }),
  before: Schema.Json,
  said: Schema.Json,
  turn: Turn.Parked
})

const History = Schema.toCodecJson(Prompt.Prompt)

/** Where a loop begins: with a question, or in the middle of a step that was parked. */
export interface Begin {
  readonly agent: string | undefined
  readonly conversation?: string | undefined
  readonly step: number
  readonly history: Prompt.Prompt
  readonly usage?: { readonly input: number; readonly output: number } | undefined
  readonly parking?: Parking | undefined
  readonly words?: { readonly text: string; readonly finishReason: ToolCall.FinishReason } | undefined
  readonly decisions?: ReadonlyArray<{ readonly position: number; readonly decision: Approval.Decision }> | undefined
}

export const encodeParked = ({ agent, conversation, meter, parking, step }: {
  readonly agent: string
  readonly conversation: string
  readonly step: Agent.Step<any>
  readonly meter: { readonly input: number; readonly output: number }
  readonly parking: Parking
}): Agent.Parked => ({
  _tag: "ParkedAgent",
  version: 1,
  agent,
  conversation,
  step: step.number,
  text: step.text,
  finishReason: step.finishReason,
  usage: { input: meter.input, output: meter.output },
  before: Schema.encodeSync(History)(parking.before),
  said: Schema.encodeSync(History)(parking.said),
  turn: parking.turn
})

export const decodeParked = (
  parked: Agent.Parked,
  decisions: Begin["decisions"]
): Effect.Effect<Begin, TurnError.TurnError> =>
  Schema.decodeUnknownEffect(Parked)(parked).pipe(
    Effect.flatMap((own) =>
      Effect.all([
        Effect.succeed(own),
        Schema.decodeUnknownEffect(History)(own.before),
        Schema.decodeUnknownEffect(History)(own.said)
      ])
    ),
    Effect.mapError(({ message }) =>
      TurnError.make(
        new TurnError.InvalidInput({ what: "the parked agent", expected: "what `Agent.run` parked", received: message })
      )
    ),
    Effect.map(([{ agent, conversation, finishReason, step, text, turn, usage }, before, said]): Begin => ({
      agent,
      conversation,
      step,
      usage,
      history: before,
      parking: { before, said, turn },
      words: { text, finishReason },
      decisions
    }))
  )
