/** Small turns of fake tools in virtual time: what the tests of words (not of files) are written with. */
import { type Outcome, ToolCall, ToolPolicy, Turn, type TurnError, type TurnEvent } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { inVirtualTime } from "./data.ts"

export const Params = Schema.Struct({ n: Schema.optionalKey(Schema.Unknown), k: Schema.optionalKey(Schema.String) })

/** A tool over free arguments; `k` is its key. */
export const tool = <const Name extends string>(name: Name) =>
  Tool.make(name, { parameters: Params, success: Schema.Unknown, failure: Schema.String })

const keys = ({ k }: typeof Params.Type): ReadonlyArray<string> => k === undefined ? [] : [k]
export const read = <T extends Tool.Any>(it: T): T => ToolPolicy.read({ keys: keys as any })(it) as unknown as T
export const write = <T extends Tool.Any>(it: T): T => ToolPolicy.write({ keys: keys as any })(it) as T

export const call = (id: string, name: string, args?: unknown) => ToolCall.make(id, name, args)

type AnyOutcome = Outcome.Outcome<any>

/** Tools with their handlers, and the layers that they need. */
export const stage = (
  tools: ReadonlyArray<readonly [Tool.Any, (params: any, context: any) => Effect.Effect<any, any, any>]>,
  layer: Layer.Layer<any> = Turn.layer()
) => {
  const toolkit: Toolkit.Toolkit<any> = Toolkit.make(...tools.map(([tool]) => tool))
  const handlers = toolkit.toLayer(Object.fromEntries(tools.map(([{ name }, handler]) => [name, handler])) as any)
  return {
    toolkit,
    layer: Layer.merge(handlers as Layer.Layer<any>, layer),
    run: (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) =>
      Turn.run(toolkit, calls, options) as Effect.Effect<ReadonlyArray<AnyOutcome>, TurnError.TurnError, any>,
    start: (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) =>
      Turn.start(toolkit, calls, options) as Effect.Effect<Turn.Handle<any>, TurnError.TurnError, any>,
    plan: (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) =>
      Turn.plan(toolkit, calls, options) as Effect.Effect<any, TurnError.TurnError>
  }
}

export type Stage = ReturnType<typeof stage>

/** An effect with the time of its end. */
export const timed = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<readonly [A, number], E, R> =>
  Effect.flatMap(effect, (value) => Effect.map(Clock.currentTimeMillis, (at) => [value, at] as const))

/** Does something on this stage in virtual time, then takes the stage down. */
export const on = <A, E>(stage: Stage, effect: Effect.Effect<A, E, any>): Effect.Effect<A, E> =>
  inVirtualTime(Effect.scoped(Effect.provide(effect, stage.layer))) as Effect.Effect<A, E>

/** Runs one turn: its outcomes, the time of its end, and its events. */
export const turn = (stage: Stage, calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) => {
  const events: Array<TurnEvent.TurnEvent> = []
  const onEvent = (event: TurnEvent.TurnEvent) => {
    events.push(event)
    options?.onEvent?.(event)
  }
  return on(
    stage,
    Effect.map(timed(stage.run(calls, { ...options, onEvent })), ([outcomes, at]) => ({ outcomes, at, events }))
  )
}

/** The first words of an answer. */
export const words = (outcome: AnyOutcome | undefined): string =>
  outcome === undefined ? "nothing" : "code" in outcome ? `${outcome.status}/${outcome.code}` : outcome.status

/** The words, whether it was started, and its effect. */
export const facts = (outcome: AnyOutcome | undefined) => [words(outcome), outcome?.started, outcome?.effect] as const

export const byCaller = (millis: number, reason: string): Turn.Options => ({
  cancelOn: Effect.as(Effect.sleep(millis), reason)
})
