/**
 * What happens in turns, as lines of a trace.
 *
 * @since 0.1.0
 */
import type * as Outcome from "../../Outcome.ts"
import type * as TurnEvent from "../../TurnEvent.ts"

/** `turn 0`, or `turn 0/1.1` for the turn that the first run of its call 1 runs. */
export const turnOf = (id: string): string => id.replace(/^turn-/, "turn ")

const outcomeOf = (outcome: Outcome.Outcome): string => {
  const code = "code" in outcome ? ` (${outcome.code})` : ""
  return `${outcome.status}${code}${outcome.started ? `, effect ${outcome.effect}` : ", not started"}`
}

const waitedFor = ({ waited }: TurnEvent.CallStarted): string => {
  const parts = [
    ...(waited.keys > 0 ? [`${waited.keys} ms for keys`] : []),
    ...(waited.permit > 0 ? [`${waited.permit} ms for a permit`] : []),
    ...(waited.rate > 0 ? [`${waited.rate} ms for the rate`] : []),
    ...(waited.approval > 0 ? [`${waited.approval} ms for an approval`] : [])
  ]
  return parts.length === 0 ? "" : ` after ${parts.join(" and ")}`
}

/** One event in words. */
export const ofEvent = (event: TurnEvent.TurnEvent): string => {
  const turn = turnOf(event.turn)
  switch (event._tag) {
    case "TurnStarted":
      return `${turn} starts with ${event.calls} ${event.calls === 1 ? "call" : "calls"}`
    case "TurnStopped":
      return `${turn} stops: ${event.code}`
    case "RequestSent": {
      const { into, items, positions, request } = event
      const calls = `${positions.length === 1 ? "call" : "calls"} ${positions.join(", ")}`
      return `${turn}: request ${request} to ${into} is sent for ${items} ${items === 1 ? "item" : "items"} of ${calls}`
    }
    case "RequestEnded":
      return `${turn}: request ${event.request} to ${event.into} has ended with ${event.ok} found`
    case "TurnEnded":
      return event.unsettled === 0
        ? `${turn} has its answers`
        : `${turn} has its answers; ${event.unsettled} of its handlers go on`
  }
  const call = `${turn}: call ${event.position} ${JSON.stringify(event.id)} (${event.tool})`
  switch (event._tag) {
    case "CallQueued":
      return event.for === "keys"
        ? `${call} waits for earlier calls`
        : event.for === "rate"
        ? `${call} waits for the rate of ${event.backend}`
        : `${call} waits for ${event.backend === undefined ? "the turn's own limit" : `a permit of ${event.backend}`}`
    case "CallHeld":
      return `${call} is held: it needs approval`
    case "CallStarted":
      return `${call} starts${waitedFor(event)}`
    case "CallProgressed":
      return `${call} reports a preliminary result`
    case "CallOverdue":
      return `${call} is overdue, and awaited`
    case "CallRetried":
      return `${call} has failed, and is tried again after ${event.pause} ms: ${outcomeOf(event.outcome)}`
    case "CallApplied":
      return `${call} has taken effect, and waits for its unit`
    case "CallUndone":
      return `${call} ${event.ok ? "is undone" : "cannot be undone"}`
    case "CallEnded":
      return `${call} is answered: ${outcomeOf(event.outcome)}`
    case "ResultCut":
      return `${call} is shown to the model with ${event.to} of its ${event.of} characters`
    case "CallSettledLate":
      return `${call} ends late, and would have been answered: ${outcomeOf(event.outcome)}`
  }
}
