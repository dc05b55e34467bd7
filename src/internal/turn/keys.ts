/**
 * The idempotency keys of calls, from before their start to what became of them (rules R21, R23).
 *
 * - K1: in a process one run at a time has a key. The others wait for it, without a permit, and then look what became of it.
 * - K2: a handler is started with its key reserved. A stop after that frees the key.
 * - K3: what became of a write is written down before the call has its answer. What is at work beyond its grace is written down at its end.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type * as IdempotencyStore from "../../IdempotencyStore.ts"
import type * as Outcome from "../../Outcome.ts"
import * as Outcomes from "../../Outcome.ts"
import * as Siblings from "../../Siblings.ts"
import type * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as TurnStore from "../../TurnStore.ts"
import * as Answers from "./answers.ts"
import { digestOf } from "./approvals.ts"
import { causeText } from "./intake.ts"
import { type Claim, Leases } from "./leases.ts"
import { inTime, patience } from "./patience.ts"
import type { Run } from "./run.ts"
import { told } from "./told.ts"

type AnyOutcome = Outcome.Outcome<any>
type Store = IdempotencyStore.IdempotencyStore["Service"]

/** The keys of one store that this process has, or waits for. */
export class Keys {
  readonly store: Store
  readonly leases: Leases
  private readonly holders = new Map<string, Run>()
  private readonly waiting = new Map<string, Set<Run>>()

  constructor(store: Store) {
    this.store = store
    this.leases = new Leases(store.lease)
  }

  holderOf(id: string): Run | undefined {
    return this.holders.get(id)
  }

  take(id: string, run: Run): void {
    this.holders.set(id, run)
  }

  wait(id: string, run: Run): void {
    let waiting = this.waiting.get(id)
    if (waiting === undefined) this.waiting.set(id, waiting = new Set())
    waiting.add(run)
  }

  leave(id: string, run: Run): void {
    const waiting = this.waiting.get(id)
    if (waiting?.delete(run) === true && waiting.size === 0) this.waiting.delete(id)
  }

  /** Whoever waits for it looks again. */
  release(id: string, run: Run): void {
    if (this.holders.get(id) !== run) return
    this.holders.delete(id)
    const waiting = this.waiting.get(id)
    if (waiting === undefined) return
    this.waiting.delete(id)
    for (const other of waiting) other.turn.step(() => other.looksAgain())
  }

  /** Those of a group that wait for it look again, for its holder has taken effect. */
  lookAgain(id: string, group: Run["group"]): void {
    for (const other of this.waiting.get(id) ?? []) {
      if (other.group !== group) continue
      this.leave(id, other)
      other.turn.step(() => other.looksAgain())
    }
  }
}

/** The key of a run. */
export class HeldKey {
  readonly keys: Keys
  readonly id: string
  readonly key: IdempotencyStore.Key
  readonly digest: string
  readonly owner: string
  /** It is reserved in the store, as far as is known. */
  reserved = false
  /** It may be, for the answer of the store was lost. */
  doubtful = false
  claim: Claim | undefined = undefined

  constructor(keys: Keys, id: string, key: IdempotencyStore.Key, digest: string, owner: string) {
    this.keys = keys
    this.id = id
    this.key = key
    this.digest = digest
    this.owner = owner
  }
}

/** What an attempt to begin a write with a key came to. */
export type Found =
  | { readonly _tag: "go" }
  | { readonly _tag: "answer"; readonly outcome: AnyOutcome }
  /** Another process is at it. */
  | { readonly _tag: "wait" }

const go: Found = { _tag: "go" }
const wait: Found = { _tag: "wait" }

const idOf = ({ conversation, key, tenant, tool }: IdempotencyStore.Key): string =>
  JSON.stringify([tenant, conversation, tool, key])

/** Whether a record guards this run: a write with a key, and a store in the context. */
export const isGuarded = (run: Run): boolean =>
  run.taken.idempotencyKey !== undefined && run.turn.setting.around.store !== undefined && run.policy.access === "write"

/** The key of a run that {@link isGuarded}. */
const keyOf = (run: Run): IdempotencyStore.Key => {
  const { conversation, tenant } = run.turn.identity()
  return {
    tenant,
    ...(conversation === undefined || run.policy.idempotency!.scope === "tenant" ? undefined : { conversation }),
    tool: run.name,
    key: run.taken.idempotencyKey!
  }
}

/** The run that has the key of this one already. */
export const holderOf = (run: Run): { readonly keys: Keys; readonly id: string; readonly holder: Run } | undefined => {
  const { around, runtime } = run.turn.setting
  const keys = runtime.keysOf(around.store!)
  const id = idOf(keyOf(run))
  const holder = keys.holderOf(id)
  return holder === undefined || holder === run ? undefined : { keys, id, holder }
}

/** Takes the key in this process. What the store says of it is found out next. */
export const take = (run: Run): HeldKey => {
  const { around, runtime } = run.turn.setting
  const keys = runtime.keysOf(around.store!)
  const key = keyOf(run)
  const id = idOf(key)
  const random = () => around.random.nextDoubleUnsafe()
  keys.take(id, run)
  return new HeldKey(keys, id, key, digestOf(run.taken), TurnContext.newId("run", random))
}

/** Looks before a permit is taken: what has its answer already, or is at work elsewhere, needs none. */
export const look = (run: Run): Effect.Effect<Found, never, any> => {
  const store = run.turn.setting.around.store!
  return Effect.suspend(() => store.peek(keyOf(run), digestOf(run.taken))).pipe(
    Effect.flatMap((found): Effect.Effect<Found, never, any> => {
      if (found === undefined) return Effect.succeed(go)
      // What is unknown may have to be asked about, or run again: both are for its backend, under a permit.
      if (found._tag === "Taken" && found.entry.state === "unknown" && run.policy.idempotency!.mode !== "record") {
        return Effect.succeed(go)
      }
      return inTheWay(run, found)
    }),
    (step) => patiently(run, step),
    unavailable(run)
  )
}

/** Reserves the key, and finds out what became of the write where that is not known. */
export const reserve = (run: Run, held: HeldKey): Effect.Effect<Found, never, any> => {
  const { store } = held.keys
  const { mode } = run.policy.idempotency!
  const { digest, key, owner } = held
  const attempt = (again: boolean, notApplied: boolean): Effect.Effect<Found, TurnStore.StoreError, any> =>
    Effect.flatMap(
      store.reserve(key, { digest, owner, again, notApplied }),
      (found): Effect.Effect<Found, TurnStore.StoreError, any> => {
        if (found._tag === "Reserved") {
          held.reserved = true
          // What an earlier run may have done stays in doubt, whatever this one says of itself.
          run.inDoubt = found.again && !notApplied
          return Effect.succeed(go)
        }
        if (found._tag === "Reused" || found.entry.state !== "unknown" || mode !== "verify") return inTheWay(run, found)
        return Effect.flatMap(ask(run), (verdict): Effect.Effect<Found, TurnStore.StoreError, any> => {
          switch (verdict._tag) {
            case "NotKnown":
              return inTheWay(run, found)
            case "NotApplied":
              return attempt(true, true)
            case "Applied":
              return Effect.flatMap(attempt(true, false), (taken) =>
                taken._tag === "go"
                  ? Effect.map(applied(run, verdict.result), (outcome): Found => ({
                    _tag: "answer",
                    outcome: { ...outcome, started: false, replayed: true } as AnyOutcome
                  }))
                  : Effect.succeed(taken))
          }
        })
      }
    )
  const free = told("the idempotency store", "free a key", () => store.free(key, owner))
  const late = (fiber: Fiber.Fiber<unknown, unknown>) =>
    Effect.andThen(
      Effect.logWarning("a turn went on while the idempotency store ignored its stop"),
      // What it reserves after all is freed then.
      Effect.forkDetach(Effect.andThen(Fiber.await(fiber), free))
    )
  return Effect.suspend(() => {
    held.doubtful = true
    return Siblings.leavable(attempt(mode === "forward", false), run.turn.setting.graceReads, late)
  }).pipe(
    Effect.tap(() =>
      Effect.sync(() => {
        held.doubtful = false
      })
    ),
    unavailable(run)
  )
}

const patiently = <A, E, R>(run: Run, step: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Siblings.leavable(
    step,
    run.turn.setting.graceReads,
    () => Effect.logWarning("a turn went on while the idempotency store ignored its stop")
  )

/** A store that cannot be asked: the call is not started. */
const unavailable =
  (run: Run) => (step: Effect.Effect<Found, TurnStore.StoreError, any>): Effect.Effect<Found, never, any> =>
    Effect.catchCause(step, (cause) => {
      const why = causeText(cause)
      const outcome = Answers.refused(
        run,
        "store_unavailable",
        `it was not started, for its key could not be reserved: ${why}`
      )
      return Effect.succeed<Found>({ _tag: "answer", outcome })
    })

/** What a record that is in the way means for the call. */
const inTheWay = (
  run: Run,
  found: Exclude<IdempotencyStore.Reservation, { readonly _tag: "Reserved" }>
): Effect.Effect<Found, never, any> => {
  const { entry } = found
  const answer = (outcome: AnyOutcome): Effect.Effect<Found> => Effect.succeed({ _tag: "answer", outcome })
  if (found._tag === "Reused") return answer(Answers.keyReused(run, "stands for a call with other arguments"))
  switch (entry.state) {
    case "reserved":
      return Effect.succeed(wait)
    case "undone":
      return answer(
        Answers.keyReused(run, "stands for a write that was done and undone, and its backend would answer from memory")
      )
    case "unknown":
      return answer(Answers.keyInDoubt(run, entry.note))
    case "applied":
      return Effect.map(Answers.replayed(run, run.runner.entry, entry.outcome, entry.note), (outcome): Found => ({
        _tag: "answer",
        outcome
      }))
  }
}

/** How long a tool may be asked that has no limit of its own, in milliseconds. */
const longestQuestion = 10_000

/** Asks a tool what became of its write. Whoever fails, is late, or answers nonsense, knows nothing. */
export const ask = (run: Run): Effect.Effect<ToolPolicy.Verdict<unknown>, never, any> => {
  const { idempotency, timeout } = run.policy
  const notKnown: ToolPolicy.Verdict<unknown> = { _tag: "NotKnown" }
  const asking = Effect.suspend(() => idempotency!.ask!(run.taken.params, run.taken.idempotencyKey!))
  return inTime(
    "a tool that was asked about its write",
    asking,
    Math.min(timeout, longestQuestion),
    run.turn.setting.graceReads
  ).pipe(
    Effect.exit,
    Effect.tap((exit) =>
      Exit.isFailure(exit)
        ? Effect.logWarning(`the tool "${run.name}" could not say what became of a call`, exit.cause)
        : Effect.void
    ),
    Effect.map((exit) => {
      const verdict: unknown = Exit.isSuccess(exit) ? Option.getOrUndefined(exit.value) : undefined
      const tag = (verdict as { readonly _tag?: unknown } | null | undefined)?._tag
      return tag === "Applied" || tag === "NotApplied" ? verdict as ToolPolicy.Verdict<unknown> : notKnown
    })
  )
}

/** The answer of a write of which its tool has said that it was applied. */
export const applied = (run: Run, result: unknown): Effect.Effect<AnyOutcome, never, any> => {
  const { policy, runner: { entry }, turn } = run
  // Writing the answer down is not asking, and what is known is not forgotten for it.
  const clock = Math.max(policy.timeout, patience)
  const encoding = inTime("a schema", Effect.suspend(() => entry.encode(result)), clock, turn.setting.graceReads)
  return Effect.map(Effect.exit(encoding), (exit) => {
    const encoded = Exit.isSuccess(exit) && Option.isNone(exit.value)
      ? Exit.die(new Error(`it took longer than ${clock} ms to encode`))
      : Exit.map(exit, Option.getOrUndefined)
    return Answers.succeeded(run, entry, result, encoded)
  })
}

/** Keeps the reservation while the work goes on. */
export const keep = (run: Run, held: HeldKey): void => {
  const { keys, owner } = held
  held.claim = {
    what: `the idempotency key of "${run.name}"`,
    renew: Effect.suspend(() => keys.store.renew(held.key, owner))
  }
  keys.leases.add(held.claim, run.turn.setting.around.context)
}

/** Writes down what became of the write. */
const written = ({ key, keys: { store }, owner }: HeldKey, outcome: AnyOutcome): Effect.Effect<void> =>
  told("the idempotency store", "keep what became of a write", () => {
    const step = outcome.effect === "applied"
      ? store.settle(key, owner, Outcomes.toJson(outcome))
      : outcome.effect === "none"
      ? store.free(key, owner)
      : store.markUnknown(key, owner, Answers.noteOf(outcome))
    // One lost word would leave a write in doubt whose end is known; a word whose answer was lost is not said twice.
    return Effect.flatMap(Effect.retry(step, Schedule.exponential(50)), (kept) =>
      kept || outcome.effect === "none"
        ? Effect.void
        : Effect.flatMap(store.lookUp(key), (entry) =>
          entry?.owner === owner
            ? Effect.void
            : Effect.logWarning(
              `the idempotency store did not take what became of a write of "${key.tool}": its key was settled by somebody else`
            )))
  })

/**
 * Ends what a run has to do with its key: what became of the write is written down, then others may have the key. `helper` runs the
 * writing; `then` is called when it is done.
 */
export const settle = (
  run: Run,
  outcome: AnyOutcome,
  helper: (effect: Effect.Effect<void>, done: () => void) => void,
  then: () => void
): void => {
  const { held } = run
  if (held === undefined) return then()
  run.held = undefined
  if (held.claim !== undefined) held.keys.leases.delete(held.claim)
  const done = () => {
    // What may still be undone is nothing that others should be told.
    if (held.reserved && run.applied !== undefined) {
      run.appliedKey = held
      // Those of its own unit are not to wait for the unit.
      held.keys.lookAgain(held.id, run.group)
    } else held.keys.release(held.id, run)
    then()
  }
  if (held.reserved) return helper(written(held, outcome), done)
  // What may have been reserved is freed, and nobody waits for that.
  if (held.doubtful) {
    helper(told("the idempotency store", "free a key", () => held.keys.store.free(held.key, held.owner)), () => {})
  }
  done()
}

/** A write that could have been undone stands: others may have its key. */
export const stands = (run: Run): void => {
  const held = run.appliedKey
  run.appliedKey = undefined
  held?.keys.release(held.id, run)
}

/** A write is about to be undone: until that is over nobody is told that it stands, or that it does not. */
export const undoing = (run: Run, note: string): Effect.Effect<void> | undefined => {
  const held = run.appliedKey
  if (held === undefined) return undefined
  const { key, keys: { store }, owner } = held
  return Effect.andThen(
    told(
      "the idempotency store",
      "keep that a write is being undone",
      () => Effect.retry(store.undo(key, owner, "undoing", note), Schedule.exponential(50))
    ),
    Effect.sync(() => keep(run, held))
  )
}

/** A write was to be undone: what came of that is written down, then others may have its key. */
export const undone = (run: Run, outcome: AnyOutcome): Effect.Effect<void> | undefined => {
  const held = run.appliedKey
  if (held === undefined) return undefined
  const { key, keys: { store }, owner } = held
  const to = outcome.undo !== "done" ? "unknown" : run.policy.idempotency!.mode === "forward" ? "undone" : "free"
  if (held.claim !== undefined) held.keys.leases.delete(held.claim)
  return Effect.andThen(
    told(
      "the idempotency store",
      "keep what became of a write that was to be undone",
      () => Effect.retry(store.undo(key, owner, to, outcome.message), Schedule.exponential(50))
    ),
    // What an undo that was given up on comes to is still written down.
    Effect.sync(() => held.keys.release(held.id, run))
  )
}

/** Whether a run would do once more what another one of its unit, which has taken effect, has done. */
export const isSameWrite = (run: Run, { appliedKey }: Run): boolean => appliedKey?.digest === digestOf(run.taken)
