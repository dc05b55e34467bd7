/**
 * What was started and what was settled. Starting a call is one step: the stop is checked, the call is written down
 * as reserved, and the stop is checked again; only then does its handler run. Before the start there is certainly no effect,
 * after it there may be one.
 *
 * The service is optional: a turn writes to it when it is in the context. A journal that cannot be written starts nothing: the
 * call is `store_unavailable`, and may be tried again. A call that is in the journal already, by its turn and position, is not run again: it
 * gets the outcome that was settled, or is `in_doubt` when it was only begun.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Outcome from "./Outcome.ts"

/**
 * The call that an entry is about. A call is known by its turn and position, never by its id.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallKey {
  readonly tenant: string
  readonly conversation: string | undefined
  readonly turn: string
  readonly position: number
  readonly id: string
  readonly tool: string
  readonly idempotencyKey: string | undefined
}

/**
 * Where a call stands in the journal: `reserved` may have started, `settled` has its outcome.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Entry =
  | { readonly _tag: "reserved"; readonly key: CallKey }
  | { readonly _tag: "settled"; readonly key: CallKey; readonly outcome: Outcome.Encoded }

/**
 * The journal could not be read or written.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class JournalError extends Schema.TaggedError<JournalError>()("JournalError", {
  operation: Schema.Literals(["reserve", "free", "settle", "entries"]),
  description: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {
  override get message(): string {
    return `the journal could not ${this.operation}: ${this.description}`
  }
}

/**
 * The journal of turns.
 *
 * **Details**
 *
 * Laws, which every layer has to satisfy:
 *
 * - after `reserve` has succeeded, the call is among `entries` as reserved, until it is freed or settled;
 * - `reserve` of a call that is reserved or settled fails: no call is started twice;
 * - `free` of a reserved call forgets it; it may be reserved again;
 * - `settle` keeps the first outcome: settling again changes nothing;
 * - each step is atomic: interrupted or failed, it was done whole or not at all.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class TurnJournal extends Context.Service<TurnJournal, {
  readonly reserve: (key: CallKey) => Effect.Effect<void, JournalError>
  readonly free: (key: CallKey) => Effect.Effect<void, JournalError>
  readonly settle: (key: CallKey, outcome: Outcome.Encoded) => Effect.Effect<void, JournalError>
  /** The entries of one turn, in the order of positions. */
  readonly entries: (turn: string) => Effect.Effect<ReadonlyArray<Entry>, JournalError>
}>()("effect-turn/TurnJournal") {}

/**
 * A journal in memory, for one process.
 *
 * **Details**
 *
 * It keeps every turn until the layer's scope closes.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory: Layer.Layer<TurnJournal> = Layer.sync(TurnJournal, () => {
  const turns = new Map<string, Map<number, Entry>>()
  const of = (turn: string): Map<number, Entry> => {
    let entries = turns.get(turn)
    if (entries === undefined) turns.set(turn, entries = new Map())
    return entries
  }
  return TurnJournal.of({
    reserve: (key) =>
      Effect.suspend(() => {
        const entries = of(key.turn)
        const known = entries.get(key.position)
        if (known !== undefined) {
          return Effect.fail(
            new JournalError({
              operation: "reserve",
              description: `expected position ${key.position} of turn "${key.turn}" to be free, and it is ${known._tag}`
            })
          )
        }
        entries.set(key.position, { _tag: "reserved", key })
        return Effect.void
      }),
    free: (key) =>
      Effect.sync(() => {
        const entries = of(key.turn)
        if (entries.get(key.position)?._tag === "reserved") entries.delete(key.position)
      }),
    settle: (key, outcome) =>
      Effect.sync(() => {
        const entries = of(key.turn)
        if (entries.get(key.position)?._tag !== "settled") entries.set(key.position, { _tag: "settled", key, outcome })
      }),
    entries: (turn) =>
      Effect.sync(() => Array.from(turns.get(turn)?.values() ?? []).sort((a, b) => a.key.position - b.key.position))
  })
})
