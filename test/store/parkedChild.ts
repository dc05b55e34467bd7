/** A process that parks turns, or goes on with them, with a runtime of its own for each. */
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as fs from "node:fs"
import * as Approval from "../../src/Approval.ts"
import * as ParkedTurns from "../../src/ParkedTurns.ts"
import * as ToolCall from "../../src/ToolCall.ts"
import * as ToolPolicy from "../../src/ToolPolicy.ts"
import * as Turn from "../../src/Turn.ts"
import * as TurnContext from "../../src/TurnContext.ts"
import * as TurnJournal from "../../src/TurnJournal.ts"
import { layerOf, type Shared } from "../utils/stores.ts"

export interface Order {
  readonly shared: Shared
  readonly turn: string
  readonly does: "park" | "resume" | "resume with other tools" | "resume and be killed"
  /** A line is written here for each effect. */
  readonly effects: string
  /** Milliseconds. */
  readonly lease: number
}

export type Answer =
  | { readonly outcomes: ReadonlyArray<string> }
  | { readonly refused: string; readonly message: string }

const parameters = Schema.Struct({ what: Schema.String })
const Pay = pipe(
  Tool.make("pay", { parameters, success: Schema.String, needsApproval: true }),
  ToolPolicy.write({ keys: () => ["k"] })
)
const Note = pipe(Tool.make("note", { parameters, success: Schema.String }), ToolPolicy.write({ keys: () => ["k"] }))
const Other = pipe(
  Tool.make("note", { parameters: Schema.Struct({ what: Schema.Int }), success: Schema.String }),
  ToolPolicy.write({ keys: () => ["k"] })
)

const obey = ({ does, effects, lease, shared, turn }: Order): Effect.Effect<Answer, unknown> => {
  const write = ({ what }: { readonly what: unknown }) =>
    Effect.sync(() => {
      fs.appendFileSync(effects, `${what}\n`)
      // After its effect, and before anybody hears of it.
      if (does === "resume and be killed" && what === "second") process.kill(process.pid, "SIGKILL")
      return "done"
    })
  const toolkit = Toolkit.make(Pay, Note)
  const other = Toolkit.make(Pay, Other)
  const decisions = [{ position: 0, decision: Approval.approve() }]
  const wordsOf = (
    outcomes: ReadonlyArray<{ readonly status: string; readonly code?: string | undefined }>
  ): Answer => ({
    outcomes: outcomes.map(({ code, status }) => code === undefined ? status : `${status}/${code}`)
  })
  const program = does === "park"
    ? Effect.gen(function*() {
      const calls = ["first", "second"].map((what, i) => ToolCall.make(`c${i}`, i === 0 ? "pay" : "note", { what }))
      const result = yield* Turn.runOrPark(toolkit, calls, { turn })
      if (result._tag === "Parked") yield* ParkedTurns.save(result.parked)
      return wordsOf(result.outcomes)
    })
    : ParkedTurns.resume(turn, Turn.Parked, (parked) =>
      does === "resume with other tools"
        ? Effect.map(Turn.resume(other, parked, { decisions }), ({ outcomes }) => wordsOf(outcomes))
        : Effect.map(Turn.resume(toolkit, parked, { decisions }), ({ outcomes }) => wordsOf(outcomes)))
  const stores = Layer.mergeAll(ParkedTurns.layer({ lease }), TurnJournal.layer({ lease })).pipe(
    Layer.provide(layerOf(shared))
  )
  return program.pipe(
    Effect.catch((error): Effect.Effect<Answer> => {
      const { _tag, message, reason } = error as { _tag: string; message: string; reason?: unknown }
      return Effect.succeed({ refused: typeof reason === "string" ? reason : _tag, message })
    }),
    Effect.provide(Layer.mergeAll(
      toolkit.toLayer({ pay: write, note: write }),
      Turn.layer(),
      stores
    )),
    Effect.provide(TurnContext.make({ tenant: "north" }))
  )
}

process.on("message", (order: Order) => {
  void Effect.runPromise(obey(order)).then(
    (answer) => process.send!(answer),
    (error) => {
      process.stderr.write(`${String(error)}\n`)
      process.exit(1)
    }
  )
})
process.on("disconnect", () => process.exit(0))
process.send!("ready")
