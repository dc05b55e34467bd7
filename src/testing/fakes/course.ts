/**
 * What a fake does with one request or step: how long it takes, when it is done, and what goes wrong.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnError from "../../TurnError.ts"

/** As it is said. */
export interface Said<Fault> {
  readonly latency: Duration.Input
  /** Under which name the moment is said at which it is done, for who complains of it. */
  readonly moment: string
  readonly at: Duration.Input | "end"
  readonly fault: Fault | undefined
  readonly ignoresInterrupt: boolean | undefined
}

/** With its times in milliseconds. `at` is undefined where it is never done. */
export interface Course<Fault> {
  readonly latency: number
  readonly at: number | undefined
  readonly fault: Fault | undefined
  readonly ignoresInterrupt: boolean
}

/** Reads what is said, and throws what cannot be. Of `undone` faults nothing is ever done. */
export const make = <Fault extends string>(
  owner: string,
  { at: said, fault, ignoresInterrupt, latency, moment }: Said<Fault>,
  undone: ReadonlyArray<Fault>
): Course<Fault> => {
  const end = ToolPolicy.limitMillis(owner, "latency", latency, 0)
  const at = said === "end" ? said : ToolPolicy.limitMillis(owner, moment, said, 0)
  if (at !== "end" && fault !== "hangs" && at > end) {
    throw TurnError.make(
      new TurnError.InvalidLimit({
        owner,
        limit: moment,
        expected: `at most the latency (${end} ms), or "end"`,
        received: `${at} ms`
      })
    )
  }
  const none = (fault !== undefined && undone.includes(fault)) || (fault === "hangs" && at === "end")
  return {
    latency: end,
    at: none ? undefined : at === "end" ? end : at,
    fault,
    ignoresInterrupt: ignoresInterrupt === true
  }
}

/** Of a list the n-th takes the n-th entry, and the last one repeats; a function is asked for each. Impossible entries are thrown at once. */
export const each = <Asked, Behaviour, Fault>(
  behaviour: Behaviour | ReadonlyArray<Behaviour> | ((asked: Asked) => Behaviour),
  read: (behaviour: Behaviour) => Course<Fault>,
  otherwise: Behaviour
): (asked: Asked, n: number) => Course<Fault> => {
  if (typeof behaviour === "function") return (asked) => read((behaviour as (asked: Asked) => Behaviour)(asked))
  const list = ([] as ReadonlyArray<Behaviour>).concat(behaviour as Behaviour | ReadonlyArray<Behaviour>).map(read)
  const last = list.at(-1) ?? read(otherwise)
  return (_, n) => list[n] ?? last
}

export const wait = (millis: number): Effect.Effect<void> => (millis <= 0 ? Effect.void : Effect.sleep(millis))
