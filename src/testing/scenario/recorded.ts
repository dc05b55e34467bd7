/**
 * What a recording says of each call: when its handler ran, what its work came to, and what stopped it.
 *
 * @since 0.1.0
 */
import type * as AiTool from "effect/ai/Tool"
import type * as Backend from "../../Backend.ts"
import * as Outcome from "../../Outcome.ts"
import type * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import type * as Turn from "../../Turn.ts"
import type * as TurnEvent from "../../TurnEvent.ts"

/**
 * What a team has recorded of one turn.
 *
 * **Details**
 *
 * - `toolkit`: the tools with their policies; their handlers are not run.
 * - `calls`, `outcomes`: the turn's, in emission order. `events`: all that its `onEvent` was told.
 * - `options`, `tenant`: what the turn was run with.
 * - `backends`: the limits of backends by their names. Where they are not given, and a call waited for a permit, the limit is
 *   taken from how many handlers were at work then.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RecordedTurn {
  readonly toolkit: { readonly tools: { readonly [name: string]: AiTool.Any } }
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly events: ReadonlyArray<TurnEvent.TurnEvent>
  readonly outcomes: ReadonlyArray<Outcome.Outcome<any>>
  readonly options?: Turn.Options<any> | undefined
  readonly tenant?: string | undefined
  readonly backends?: { readonly [name: string]: Backend.Options & Partial<Backend.TenantOptions> } | undefined
}

/** One call that ran. Times are whole milliseconds from the start of the turn. @internal */
export interface Ran {
  readonly position: number
  readonly tool: AiTool.Any
  readonly args: Record<string, unknown>
  readonly start: number
  /** What its work came to, which may be more than its answer. */
  readonly outcome: Outcome.Outcome<any>
  /** When its work is to end, `undefined` when it does not end by itself. */
  readonly end: number | undefined
  /** How long it may take at most, so that none of its clocks runs out that did not. */
  readonly most: number
  /** It went on although it was told to stop. */
  readonly deaf: boolean
  /** It was answered while its work went on. */
  readonly givenUp: boolean
  /** The place of its start in the order of events. */
  readonly begun: number
}

/** A moment at which calls were stopped, and its place in the order of events. */
interface Stop {
  readonly index: number
  readonly at: number
  /** The last moment of those that ended before it. */
  readonly last: number
}

/** Arguments as one JSON object, as far as that is what they are. @internal */
export const objectOf = (args: unknown): Record<string, unknown> | undefined => {
  let value = args ?? {}
  if (typeof value === "string") {
    if (value.trim() === "") return {}
    try {
      value = JSON.parse(value)
    } catch {
      return undefined
    }
  }
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? value as Record<string, unknown>
    : undefined
}

/** @internal */
export const millisOf = (owner: string, limit: unknown): number =>
  limit === undefined ? Infinity : ToolPolicy.limitMillis(owner, owner, limit, 0)

/** How long a stop waits for reads and for writes. @internal */
export const gracesOf = (grace: Turn.Options["grace"]): { readonly read: number; readonly write: number } => {
  const split = typeof grace === "object" && grace !== null && ("reads" in grace || "writes" in grace)
  const [reads, writes] = split ? [grace.reads, grace.writes] : [grace, grace]
  return {
    read: millisOf("grace", reads ?? "5 seconds"),
    write: millisOf("grace", writes ?? "infinite")
  } as const
}

/** Whether a call can be told from the others by its id. @internal */
export const isUnique = (calls: ReadonlyArray<ToolCall.ToolCall>, position: number): boolean => {
  const id = calls[position]?.id ?? ""
  return id !== "" && calls.filter((call) => call.id === id).length === 1
}

/** @internal */
export const codeOf = (outcome: Outcome.Outcome<any>): string | undefined =>
  "code" in outcome ? outcome.code : undefined

/** The tool of each call, where there is one. @internal */
export const toolsOf = ({ calls, options, toolkit }: RecordedTurn): ReadonlyArray<AiTool.Any | undefined> => {
  const tools = Object.values(toolkit.tools)
  const plain = (name: string) => name.trim().toLowerCase()
  return calls.map(({ name }) => {
    const exact = tools.find((tool) => tool.name === name)
    if (exact !== undefined || options?.nameRepair !== true) return exact
    const near = tools.filter((tool) => plain(tool.name) === plain(name))
    return near.length === 1 ? near[0] : undefined
  })
}

/** @internal */
export const originOf = (events: ReadonlyArray<TurnEvent.TurnEvent>): number =>
  Math.round((events.find((event) => event._tag === "TurnStarted") ?? events[0])?.at ?? 0)

/** When the turn was stopped, and when a failure stopped its siblings. */
const stopsOf = ({ events, options }: RecordedTurn): ReadonlyArray<Stop> => {
  const origin = originOf(events)
  const time = (index: number) => Math.max(0, Math.round(events[index]!.at) - origin)
  const stops: Array<Stop> = []
  const index = events.findIndex((event) => event._tag === "TurnStopped")
  if (index !== -1) {
    const byDeadline = (events[index] as TurnEvent.TurnStopped).code === "by_deadline"
    const at = byDeadline ? millisOf("deadline", options?.deadline) : time(index)
    // An event of a scenario comes after all that ends in its moment; a deadline is one of them.
    stops.push({ index, at, last: byDeadline ? at - 1 : at })
  }
  const failure = options?.siblings?.name === "failFast"
    ? events.findIndex((event) => event._tag === "CallEnded" && Outcome.isFailure(event.outcome))
    : -1
  if (failure !== -1 && (index === -1 || failure < index)) {
    const at = time(failure)
    const tied = events.slice(0, failure).some((event, i) => event._tag === "CallEnded" && time(i) === at)
    stops.push({ index: failure, at: tied ? at + 1 : at, last: tied ? at : at - 1 })
  }
  return stops
}

/** Places and times of what happened to each call, from the events. @internal */
export const ranOf = (recorded: RecordedTurn, tools: ReadonlyArray<AiTool.Any | undefined>): ReadonlyArray<Ran> => {
  const { events, outcomes } = recorded
  const origin = originOf(events)
  const time = (event: TurnEvent.TurnEvent) => Math.max(0, Math.round(event.at) - origin)
  const indexOf = (tag: TurnEvent.TurnEvent["_tag"], position: number) =>
    events.findIndex((event) => event._tag === tag && "position" in event && event.position === position)
  const stops = stopsOf(recorded)
  const unsettled = events.find((event) => event._tag === "TurnEnded")?.unsettled ?? 0
  const graces = gracesOf(recorded.options?.grace)

  return tools.flatMap((tool, position): ReadonlyArray<Ran> => {
    // All runs of a call that was tried again are one: from the start of the first to the end of the last.
    const begun = indexOf("CallStarted", position)
    const outcome = outcomes[position]
    const args = objectOf(recorded.calls[position]?.arguments)
    if (begun === -1 || tool === undefined || outcome === undefined || args === undefined) return []
    const start = time(events[begun]!)
    const own = indexOf("CallEnded", position)
    const late = indexOf("CallSettledLate", position)
    const lateOutcome = late === -1 ? undefined : (events[late] as TurnEvent.CallSettledLate).outcome
    // A run that others shared went on for them when its own call was stopped.
    const twin = outcomes.findIndex((one) => one.duplicateOf?.position === position && one.status !== outcome.status)
    const shared = outcome.status === "cancelled" && twin !== -1
    const ended = shared ? indexOf("CallEnded", twin) : own
    const ownEnd = ended === -1 ? start : time(events[ended]!)
    const { interruptible, timeout } = ToolPolicy.get(tool)
    const base = { position, tool, args, start, begun }

    /** The end of work that ends by itself: on the side of each stop on which it was. */
    const endAt = (index: number, at: number) => {
      let end = at
      for (const stop of stops) {
        if (index < stop.index) end = Math.min(end, stop.last)
        else if (index > stop.index) end = Math.max(end, stop.at + 1)
        else end = stop.at
      }
      return Math.max(start, end)
    }
    // An overdue write is awaited, and goes on as if it had time.
    const inTime = interruptible ? timeout - 1 : Infinity
    if (lateOutcome !== undefined) {
      return [{
        ...base,
        outcome: lateOutcome,
        // Later than its answer, also where both fall on one millisecond.
        end: Math.max(endAt(late, time(events[late]!)), ownEnd + 1),
        most: Infinity,
        deaf: interruptible,
        givenUp: true
      }]
    }
    const work = shared ? outcomes[twin]! : outcome
    const stopped = work.status === "timeout" || (work.status === "cancelled" && work.code !== "by_itself")
    const byItself = { ...base, outcome: work, end: endAt(ended, ownEnd), most: inTime, deaf: false, givenUp: false }
    if (!stopped) return [byItself]
    const stop = stops.find(({ index }) => index < ended)
    const told = work.status === "timeout" ? start + work.limit.millis : stop?.at ?? ownEnd
    const delay = ownEnd - told
    const { access } = ToolPolicy.get(tool)
    const lonely = work.status === "cancelled" && stop === undefined
    // What nothing was seen to stop may have been told a grace before.
    const givenUp = unsettled > 0 && graces[access] > 0 && (lonely || delay >= graces[access] - 1)
    const itself: Ran = { ...byItself, outcome: { ...work, status: "cancelled", code: "by_itself" } }
    // What the format cannot stop has to end by itself.
    if (lonely && !isUnique(recorded.calls, position)) return [itself]
    if (work.status === "timeout" && work.limit.clock === "idleTimeout") return [itself]
    const endless: Ran = { ...byItself, outcome: work, end: undefined, most: Infinity }
    // A write without a key is not told to stop: it was given up on, or has stopped itself.
    if (!interruptible) {
      return [givenUp || (unsettled > 0 && graces[access] === 0) ? { ...endless, givenUp: true } : itself]
    }
    if (givenUp) return [{ ...endless, deaf: true, givenUp: true }]
    // It took its time to end: to the millisecond nothing is that fast.
    return [delay > 1 ? { ...endless, end: ownEnd, deaf: true } : endless]
  })
}
