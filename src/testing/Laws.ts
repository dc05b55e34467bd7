/**
 * The rules of turns as laws: sentences that hold for whatever was seen of turns that ran, each with what it judges.
 *
 * A law looks at what was seen (an {@link Observation}) and says each breach in words. `TurnCase` makes observations of your own
 * tools and handlers, and {@link suite} turns all laws into tests of `@effect/vitest` in one call.
 *
 * @since 0.1.0
 */
import * as Judge from "./laws/judge.ts"
import type { Observation } from "./laws/observation.ts"

/**
 * What was seen of turns that ran, and its parts.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type { Answer, BackendFacts, Observation, ObservedTurn, SeenEvent, ToolFacts } from "./laws/observation.ts"

/**
 * What a law found: how many things it judged, and each breach in words, its rule first.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Judged = Judge.Judged

/**
 * A law: its name, the rules of the library that it states, what it says in one sentence, and its judgement.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Law {
  readonly name: string
  readonly rules: ReadonlyArray<string>
  readonly says: string
  readonly judge: (observation: Observation) => Judged
}

const law = (
  name: string,
  rules: ReadonlyArray<string>,
  says: string,
  judge: (observation: Observation) => Judged
): Law => ({ name, rules, says, judge })

/**
 * Every call gets exactly one answer, and it is never another one later.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const answeredOnce: Law = law(
  "answeredOnce",
  ["R1"],
  "every call gets exactly one answer, and it is never another one later",
  Judge.answeredOnce
)

/**
 * Answers stand in the order of the calls, and calls that conflict run in it.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const emissionOrder: Law = law(
  "emissionOrder",
  ["R1", "R12"],
  "answers stand in the order of the calls, and calls that conflict run in it",
  Judge.emissionOrder
)

/**
 * What was started, and what had an effect, is never told as not done.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const honest: Law = law(
  "honest",
  ["R3"],
  "what was started, and what had an effect, is never told as not done",
  Judge.honest
)

/**
 * The closing of a turn is told once, with the answers that were given.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const toldAsAnswered: Law = law(
  "toldAsAnswered",
  ["R4"],
  "the closing of a turn is told once, with the answers that were given",
  Judge.toldAsAnswered
)

/**
 * Runs of one tenant that conflict are never at work at the same time.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const noOverlap: Law = law(
  "noOverlap",
  ["R12"],
  "runs of one tenant that conflict are never at work at the same time",
  Judge.noOverlap
)

/**
 * A call waits for nothing but an earlier one that it conflicts with, a permit, and its turn's own limit.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const workConserving: Law = law(
  "workConserving",
  ["R12", "R14"],
  "a call waits for nothing but an earlier one that it conflicts with, a permit, and its turn's own limit",
  Judge.workConserving
)

/**
 * No backend, tenant and turn has more at work than its limit.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const limitsKept: Law = law(
  "limitsKept",
  ["R14"],
  "no backend, tenant and turn has more at work than its limit",
  Judge.limitsKept
)

/**
 * Permits are out only for handlers that are at work.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const permitsReturned: Law = law(
  "permitsReturned",
  ["R14"],
  "permits are out only for handlers that are at work",
  Judge.permitsReturned
)

/**
 * Nothing is at work after its turn was answered, but what was given up on when its grace had run out.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const noOrphans: Law = law(
  "noOrphans",
  ["R17", "R20"],
  "nothing is at work after its turn was answered, but what was given up on when its grace had run out",
  Judge.noOrphans
)

/**
 * After a stop, or the first failure of a turn that fails fast, nothing of the turn is started.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const nothingAfterStop: Law = law(
  "nothingAfterStop",
  ["R18", "R21"],
  "after a stop, or the first failure of a turn that fails fast, nothing of the turn is started",
  Judge.nothingAfterStop
)

/**
 * A write without an idempotency key is never interrupted.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const writesWhole: Law = law(
  "writesWhole",
  ["R20"],
  "a write without an idempotency key is never interrupted",
  Judge.writesWhole
)

/**
 * A write without an idempotency key never runs twice for one call.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const runsOnce: Law = law(
  "runsOnce",
  ["R24"],
  "a write without an idempotency key never runs twice for one call",
  Judge.runsOnce
)

/**
 * No text for the model holds half a character.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const wholeTexts: Law = law(
  "wholeTexts",
  ["R29"],
  "no text for the model holds half a character",
  Judge.wholeTexts
)

/**
 * Every handler runs for the tenant of its turn.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const tenantsApart: Law = law(
  "tenantsApart",
  ["R35"],
  "every handler runs for the tenant of its turn",
  Judge.tenantsApart
)

/**
 * Every handler can know which call of which turn it serves.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const callsKnown: Law = law(
  "callsKnown",
  ["R35"],
  "every handler can know which call of which turn it serves",
  Judge.callsKnown
)

/**
 * All laws.
 *
 * @category laws
 * @since 0.1.0
 * @stability experimental
 */
export const all: ReadonlyArray<Law> = [
  answeredOnce,
  emissionOrder,
  honest,
  toldAsAnswered,
  noOverlap,
  workConserving,
  limitsKept,
  permitsReturned,
  noOrphans,
  nothingAfterStop,
  writesWhole,
  runsOnce,
  wholeTexts,
  tenantsApart,
  callsKnown
]

/**
 * Each breach of some laws (default: {@link all}) in words, and what went wrong with the watching itself.
 *
 * @category judging
 * @since 0.1.0
 * @stability experimental
 */
export const broken = (observation: Observation, laws: ReadonlyArray<Law> = all): ReadonlyArray<string> => [
  ...observation.faults,
  ...laws.flatMap((law) => law.judge(observation).problems)
]
