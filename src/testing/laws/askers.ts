/**
 * The calls that ask for items of a list, as they were seen.
 *
 * @since 0.1.0
 */
import type { MergedFacts, Observation, ObservedTurn, ReportedOutcome } from "./observation.ts"

/** A call that was merged, or could have been. */
export interface Asker {
  readonly turn: ObservedTurn
  readonly index: number
  readonly position: number
  readonly tenant: string
  readonly merged: MergedFacts
  readonly args: unknown
  /** The texts of its keys. */
  readonly wants: ReadonlySet<string>
  readonly reach: ReadonlyArray<string> | undefined
  readonly outcome: ReportedOutcome | undefined
  /** The place of its answer, `Infinity` where it had none. */
  readonly until: number
  /** When it was started, `Infinity` where it was not or nobody listened, and when it was answered. */
  readonly startedAt: number
  readonly endedAt: number
}

const known = new WeakMap<Observation, ReadonlyArray<Asker>>()

/** Found once for each observation: several laws ask. */
export const askersOf = (o: Observation): ReadonlyArray<Asker> => {
  let askers = known.get(o)
  if (askers === undefined) known.set(o, askers = found(o))
  return askers
}

const found = (o: Observation): ReadonlyArray<Asker> =>
  o.turns.flatMap((turn, index) => {
    if (turn.repeats !== undefined) return []
    const started = new Map<number, number>()
    const ended = new Map<number, { readonly place: number; readonly at: number }>()
    for (const { event, place } of turn.events ?? []) {
      if (event._tag === "CallStarted" && event.attempt === 1) started.set(event.position, event.at)
      if (event._tag === "CallEnded") ended.set(event.position, { place, at: event.at })
    }
    return turn.calls.flatMap((call, position): ReadonlyArray<Asker> => {
      const merged = o.tools.get(call.name)?.merged
      if (merged === undefined || turn.kept?.has(position) === true) return []
      const wants = new Set(merged.wants(call.arguments))
      if (wants.size === 0) return []
      return [{
        turn,
        index,
        position,
        tenant: turn.tenant,
        merged,
        args: call.arguments,
        wants,
        reach: merged.reach(call.arguments),
        outcome: turn.answers?.[position]?.outcome,
        until: ended.get(position)?.place ?? turn.answered ?? Infinity,
        startedAt: started.get(position) ?? Infinity,
        endedAt: ended.get(position)?.at ?? turn.answeredAt ?? Infinity
      }]
    })
  })
