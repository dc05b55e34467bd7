/** How a runtime ends: intake stops, turns are stopped or awaited, and what is still at work is listed (rules R20, R36). */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Unsettled } from "../../Turn.ts"
import type { RuntimeState } from "./runtime.ts"

export const unsettledOf = (state: RuntimeState): ReadonlyArray<Unsettled> =>
  Array.from(state.unsettled, (run): Unsettled => {
    const { tenant, turn } = run.turn.identity()
    return {
      tenant,
      turn,
      position: run.position,
      id: run.id,
      tool: run.name,
      outcome: run.turn.slots[run.position]!
    }
  })

export const logUnsettled = (left: ReadonlyArray<Unsettled>): Effect.Effect<void> =>
  Effect.forEach(
    left,
    (one) =>
      Effect.logWarning(
        `shut down with work left: call #${one.position} (${one.tool}${
          one.id === "" ? "" : `, id ${one.id}`
        }) of turn ${one.turn}`
      ),
    { discard: true }
  )

/** Gives the effect that drains a runtime, and drains it when the scope closes. */
export const supervise = (
  state: RuntimeState,
  grace: number,
  stops: boolean,
  onUnsettled: (left: ReadonlyArray<Unsettled>) => Effect.Effect<void>
): Effect.Effect<Effect.Effect<ReadonlyArray<Unsettled>>, never, Scope.Scope> => {
  const drain = Effect.gen(function*() {
    state.closed = true
    yield* whenQuiet(state, () => state.turns.size === 0)
    yield* whenQuiet(state, () => state.unsettled.size === 0).pipe(
      grace === Infinity ? (self) => self : Effect.timeoutOption(grace)
    )
    return unsettledOf(state)
  })
  const close = Effect.gen(function*() {
    state.closed = true
    if (stops) {
      for (const turn of state.turns) turn.stop({ code: "by_caller", reason: "shutdown" })
      if (grace !== Infinity) {
        // Whoever has opened a turn may wait for this very layer to be gone, and tell it no end.
        yield* Effect.timeoutOption(whenQuiet(state, () => state.turns.size === 0), grace)
        for (const turn of state.turns) turn.endList()
      }
    }
    const left = yield* drain
    state.letGo()
    if (left.length > 0) yield* onUnsettled(left)
  })
  return Effect.as(Effect.addFinalizer(() => close), drain)
}

const whenQuiet = (state: RuntimeState, quiet: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() =>
    quiet()
      ? Effect.void
      : Effect.callback<void>((resume) => {
        const look = () => {
          if (!quiet()) return
          state.onQuiet.delete(look)
          resume(Effect.void)
        }
        state.onQuiet.add(look)
        return Effect.sync(() => {
          state.onQuiet.delete(look)
        })
      })
  )
