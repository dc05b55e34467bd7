/**
 * When a run that failed is tried again by itself (rule R24).
 *
 * - V1: never where that could double an effect: a write without a key is run once; after an attempt that may have had its effect, one
 *   whose backend honours the key is run again, one that can be asked is asked first, and no other is.
 * - V2: a run that was told to stop, or has been given up on, makes no further attempt, and no pause is begun that would end after the
 *   call can have an answer.
 * - V3: what may have happened in one attempt may have happened in the call, whatever the next ones say (rule R3).
 *
 * What stands around a handler is done for each attempt, for it belongs to the run of the handler. The steps before and after a call are
 * done once: they decide with which arguments the call is made, and see what it came to.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Pull from "effect/Pull"
import * as Schedule from "effect/Schedule"
import type * as Outcome from "../../Outcome.ts"
import type * as ToolPolicy from "../../ToolPolicy.ts"
import * as Answers from "./answers.ts"
import { applied, ask } from "./keys.ts"
import { inTime, patience } from "./patience.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"

type AnyOutcome = Outcome.Outcome<any>

/** One step of a schedule: from the time and the failure to the next pause, or its end. */
export type Pauses = (now: number, failure: unknown) => Pull.Pull<[unknown, Duration.Duration], unknown, unknown>

/** The end of an attempt as the end of its call: with the number of attempts, and with what is in doubt of those before. */
export const inAll = (run: Run, outcome: AnyOutcome): AnyOutcome =>
  run.attempt < 2 && !run.inDoubt ? outcome : Answers.afterAttempts(run, outcome, run.attempt, run.inDoubt, run.policy)

/** Whether what an attempt came to may be tried again. How long the pause is, and whether there is time for it, is asked then. */
export const mayTryAgain = (run: Run, outcome: AnyOutcome): boolean => {
  const { policy } = run
  const { retry } = policy
  if (retry === undefined || run.attempt > retry.times || run.told) return false
  return isTriedAgain(outcome, retry, policy) && doublesNothing(run, outcome)
}

const isTriedAgain = (outcome: AnyOutcome, retry: ToolPolicy.Retry<any>, policy: ToolPolicy.ToolPolicy): boolean => {
  if (outcome.status === "timeout") return outcome.code === "handler"
  if (outcome.status !== "error" || (outcome.code !== "failed" && outcome.code !== "rate_limited")) return false
  const { failures } = policy
  // It says that it will never be let in.
  if (outcome.code === "rate_limited" && Answers.tooMany(policy, outcome.failure) === Infinity) return false
  if (retry.while !== undefined) return Answers.ask(retry.while, outcome.failure)
  if (outcome.code === "rate_limited") return true
  if (failures.transient === undefined) return failures.rateLimited === undefined
  return Answers.ask(failures.transient, outcome.failure)
}

const doublesNothing = ({ policy, taken }: Run, { effect }: AnyOutcome): boolean => {
  if (policy.access === "read") return true
  if (policy.idempotency === undefined || taken.idempotencyKey === undefined) return false
  if (effect === "none") return true
  return effect === "unknown" && policy.idempotency.mode !== "record"
}

/** The longest time that a clock can sleep. */
const longest = 2_147_483_647

/** How long to pause before the next attempt, in milliseconds; undefined where there is none. */
export const pauseOf = (run: Run, outcome: AnyOutcome): Effect.Effect<number | undefined, never, any> => {
  const { retry } = run.policy
  const { graceReads } = run.turn.setting
  const step = inTime("a schedule", scheduled(run, retry!, outcome), patience, graceReads)
  return Effect.map(step, (scheduled) => {
    if (Option.isNone(scheduled) || scheduled.value === undefined) return undefined
    const told = Math.max(scheduled.value, outcome.retryAfter ?? 0)
    const pause = Math.ceil(retry!.jitter === false ? told : told * (1 + dice(run) / 2))
    return pause > longest ? undefined : pause
  })
}

const dice = (run: Run): number => run.turn.setting.around.random.nextDoubleUnsafe()

const scheduled = (
  run: Run,
  { schedule }: ToolPolicy.Retry<any>,
  outcome: AnyOutcome
): Effect.Effect<number | undefined, never, any> => {
  if (schedule === undefined) return Effect.succeed(Math.min(30_000, 200 * 2 ** (run.attempt - 1)))
  const stepped = Effect.gen(function*() {
    const step = run.pauses ??= (yield* Schedule.toStep(schedule)) as Pauses
    const [, pause] = yield* step(yield* Clock.currentTimeMillis, "failure" in outcome ? outcome.failure : undefined)
    return Math.max(0, Duration.toMillis(pause))
  })
  return Effect.catchCause(
    stepped,
    (cause) =>
      cause.reasons.every((reason) =>
          reason._tag === "Interrupt" || (reason._tag === "Fail" && Cause.isDone(reason.error))
        )
        ? Effect.succeed(undefined)
        : Effect.as(Effect.logWarning(`the schedule of retries of the tool "${run.name}" broke`, cause), undefined)
  )
}

/**
 * When the calls of a turn can have no answer any more: at its deadline, or when the call that it runs inside is ended by a clock. One
 * that is not interrupted goes on, and so does what is inside it.
 */
export const lastMoment = (turn: TurnState): number => {
  let last = turn.deadlineAt
  for (
    let { parent } = turn.setting.around;
    parent !== undefined && parent.policy.interruptible;
    parent = parent.turn.setting.around.parent
  ) {
    if (parent.timer !== undefined && !parent.timer.off) last = Math.min(last, parent.timer.at)
    last = Math.min(last, parent.turn.deadlineAt)
  }
  return last
}

/**
 * What is to be found out before a run is tried again; undefined where nothing is. It is asked when the permit for the next attempt is
 * there, for it is a request to the backend too, and the later the surer. It gives what the call is answered, or that the attempts so far
 * have done nothing, or nothing that helps.
 */
export const questionOf = (
  run: Run
): Effect.Effect<AnyOutcome | "not applied" | undefined, never, any> | undefined =>
  !run.inDoubt || run.policy.idempotency?.mode !== "verify"
    ? undefined
    : Effect.flatMap(ask(run), (verdict): Effect.Effect<AnyOutcome | "not applied" | undefined, never, any> => {
      switch (verdict._tag) {
        case "Applied":
          return applied(run, verdict.result)
        case "NotApplied":
          return Effect.succeed("not applied")
        case "NotKnown":
          return Effect.succeed(undefined)
      }
    })
