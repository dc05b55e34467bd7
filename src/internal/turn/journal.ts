/**
 * The journal of calls, as their turn writes it and reads it again (rule R21).
 *
 * - J1: a handler is started with its call reserved. A stop after that frees the call.
 * - J2: a call that the journal knows is not run again, but for one that its owner has lost and that may be run twice.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Outcome from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import type * as ToolPolicy from "../../ToolPolicy.ts"
import type * as TurnJournal from "../../TurnJournal.ts"
import * as TurnStore from "../../TurnStore.ts"
import * as Answers from "./answers.ts"
import { causeText, type Taken } from "./intake.ts"
import { canonical } from "./json.ts"
import { inTime, patience } from "./patience.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"
import { told } from "./told.ts"
import type { ToolEntry } from "./tool.ts"

type AnyOutcome = Outcome.Outcome<any>

const written = <E>(what: string, step: () => Effect.Effect<unknown, E>) => told("the journal", what, step)

/** What an attempt to write down a start came to. */
export type Entered =
  | { readonly _tag: "go" }
  | { readonly _tag: "answer"; readonly outcome: AnyOutcome }
  /** Another process is at it. */
  | { readonly _tag: "wait" }

const keyOf = (run: Run): TurnJournal.CallKey => {
  const { conversation, tenant, turn } = run.turn.identity()
  const { id, name: tool, position } = run
  return {
    tenant,
    conversation,
    turn,
    position,
    id,
    tool,
    digest: run.entryDigest,
    idempotencyKey: run.taken.idempotencyKey
  }
}

/**
 * What stands for a call in the journal: its conversation, and its arguments as the model wrote them. What a human or a middleware makes of
 * these is decided anew each time.
 */
const digestOfCall = ({ setting: { around, calls } }: TurnState, position: number): Effect.Effect<string> =>
  Effect.suspend(() =>
    TurnStore.sha256(JSON.stringify([around.conversation ?? null, textOf(calls[position]!.arguments)]))
  )

const textOf = (given: unknown): string => {
  try {
    const text = typeof given === "string" ? given : JSON.stringify(given ?? {})
    return text.trim() === "" ? "{}" : canonical(JSON.parse(text), Infinity)!
  } catch {
    // It is not run: its arguments cannot be read.
    return String(given)
  }
}

/** Whether a call that was begun and lost may be begun again: it reads, or its key keeps it from being done twice. */
const mayBeginAgain = ({ access, idempotency }: ToolPolicy.ToolPolicy): boolean =>
  access === "read" || idempotency !== undefined

/** Writes the start of a call down. */
export const enter = (run: Run): Effect.Effect<Entered, never, any> => {
  const { around, graceReads } = run.turn.setting
  const journal = around.journal!
  const { owner } = run.turn
  const free = written("free a call", () => journal.free(keyOf(run), owner))
  const late = (fiber: Fiber.Fiber<unknown, unknown>) =>
    Effect.andThen(
      Effect.logWarning("a turn went on while the journal ignored its stop"),
      // What it writes after all is freed then.
      Effect.forkDetach(Effect.andThen(Fiber.await(fiber), free))
    )
  const reserving = Effect.flatMap(digestOfCall(run.turn, run.position), (digest) => {
    run.entryDigest = digest
    run.reserved = "perhaps"
    return journal.reserve(keyOf(run), { owner, again: mayBeginAgain(run.policy) })
  })
  return Siblings.leavable(reserving, graceReads, late).pipe(
    Effect.flatMap((reservation): Effect.Effect<Entered, never, any> => {
      if (reservation._tag === "Taken") {
        run.reserved = "no"
        return known(run, reservation.entry)
      }
      run.reserved = "yes"
      return Effect.succeed({ _tag: "go" })
    }),
    Effect.catchCause((cause) => Effect.succeed(notEntered(run, causeText(cause))))
  )
}

const notEntered = (run: Run, why: string): Entered => ({
  _tag: "answer",
  outcome: Answers.refused(
    run,
    "store_unavailable",
    `it was not started, for the start could not be written down: ${why}`
  )
})

/** The journal knows the call already, from another process or an earlier run of this turn. */
const known = (run: Run, entry: TurnJournal.Entry): Effect.Effect<Entered, never, any> => {
  if (entry.key.tool !== run.name || entry.key.digest !== run.entryDigest) {
    return Effect.succeed({ _tag: "answer", outcome: Answers.refused(run, "ambiguous_id", otherCall(run.turn, entry)) })
  }
  if (entry._tag === "settled") {
    return Effect.map(restored(run.runner.entry, entry, run.id), (outcome): Entered =>
      outcome === undefined
        ? notEntered(run, "what the journal has of it cannot be read")
        : { _tag: "answer", outcome })
  }
  return Effect.succeed(entry.lost ? { _tag: "answer", outcome: Answers.inDoubt(run, run.policy) } : { _tag: "wait" })
}

const otherCall = (turn: TurnState, { key }: TurnJournal.Entry): string =>
  `the journal has another call (of "${key.tool}") in this place of the turn "${turn.identity().turn}", and the id of a turn stands ` +
  "for one list of calls: it was not run"

const restored = (
  tool: ToolEntry,
  { outcome }: Extract<TurnJournal.Entry, { readonly _tag: "settled" }>,
  id: string
): Effect.Effect<AnyOutcome | undefined, never, any> =>
  Effect.map(
    Effect.exit(inTime("a schema", Answers.restore(outcome, tool), patience, 0)),
    (exit) => {
      const found = Exit.isSuccess(exit) ? Option.getOrUndefined(exit.value as Option.Option<AnyOutcome>) : undefined
      return found === undefined ? undefined : { ...found, id } as AnyOutcome
    }
  )

/** Keeps the reservation while the work goes on. */
export const keep = (run: Run): void => {
  const { around, runtime } = run.turn.setting
  const journal = around.journal!
  run.entry = {
    what: `the journal's entry of call #${run.position} (${run.name})`,
    renew: Effect.suspend(() => journal.renew(keyOf(run), run.turn.owner))
  }
  runtime.leasesOf(journal).add(run.entry, around.context)
}

/** Ends what a run has to do with the journal: its outcome is written down, or what it may have written is taken back. */
export const settle = (
  run: Run,
  outcome: AnyOutcome,
  helper: (effect: Effect.Effect<void>, done: () => void) => void,
  then: () => void
): void => {
  if (run.reserved === "no") return then()
  const { around, runtime } = run.turn.setting
  const journal = around.journal!
  const { owner } = run.turn
  if (run.entry !== undefined) runtime.leasesOf(journal).delete(run.entry)
  const begun = run.reserved === "yes" && outcome.started
  run.reserved = "no"
  helper(
    begun
      ? written("keep an outcome", () => journal.settle(keyOf(run), owner, Outcome.toJson(outcome)))
      : written("free a call", () => journal.free(keyOf(run), owner)),
    then
  )
}

/** A write was to be undone: its outcome is another one now. */
export const amend = (run: Run, outcome: AnyOutcome): Effect.Effect<void> | undefined => {
  const { journal } = run.turn.setting.around
  return journal === undefined
    ? undefined
    : written(
      "keep an outcome that was undone",
      () => journal.amend(keyOf(run), run.turn.owner, Outcome.toJson(outcome))
    )
}

/** What the journal knows of a turn that is run again, by position: the answers of calls that are not run any more. */
export const recall = (
  state: TurnState,
  taken: ReadonlyArray<Taken>
): Effect.Effect<ReadonlyMap<number, AnyOutcome>, never, any> => {
  const { journal } = state.setting.around
  const { tenant, turn } = state.identity()
  return Effect.gen(function*() {
    const answers = new Map<number, AnyOutcome>()
    for (const entry of yield* Effect.suspend(() => journal!.entries({ tenant, turn }))) {
      const { digest, position, tool: name } = entry.key
      const one = taken[position]
      if (one?.tool === undefined || one.state._tag !== "open") continue
      const { id } = one
      const { policy } = one.tool
      if (one.name !== name || (yield* digestOfCall(state, position)) !== digest) {
        answers.set(position, Answers.refused(asked(one), "ambiguous_id", otherCall(state, entry)))
        continue
      }
      const answer = entry._tag === "settled"
        ? yield* restored(one.tool, entry, id)
        : entry.lost && !mayBeginAgain(policy)
        ? Answers.inDoubt(asked(one), policy)
        : undefined
      if (answer !== undefined) answers.set(position, answer)
    }
    return answers
  }).pipe(
    // A journal that cannot be read will say so again when a call is to be started.
    Effect.catchCause((cause) =>
      Effect.as(Effect.logWarning("the journal could not be read", cause), new Map<number, AnyOutcome>())
    )
  )
}

const asked = ({ id, keyIsOfArguments, name, position, repairedFrom }: Taken): Answers.Asked => ({
  position,
  id,
  name,
  repairedFrom,
  keyIsOfArguments
})
