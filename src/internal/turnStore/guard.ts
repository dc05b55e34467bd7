/**
 * What every store outside of this process has: a time limit for each step, and one form of error.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type { Expected, Patch, Query, Row, StoreError, TurnStore } from "../../TurnStore.ts"

/** The steps of a store as its driver gives them, with errors as they come. */
export interface Steps {
  readonly get: (kind: string, id: string) => Effect.Effect<Row | undefined, unknown>
  readonly insert: (row: Row) => Effect.Effect<Row | undefined, unknown>
  readonly change: (
    kind: string,
    id: string,
    expected: Expected,
    patch: Patch | undefined
  ) => Effect.Effect<boolean, unknown>
  /** The limit is a whole number from 1. */
  readonly list: (query: Query) => Effect.Effect<ReadonlyArray<Row>, unknown>
  /** Removes some of them, up to about `most`; fewer only where no more are left. */
  readonly expire: (now: number, most: number) => Effect.Effect<number, unknown>
}

/** An error that says all there is to say. */
export class Problem extends Error {
  override readonly name = "Problem"
}

/** What a store has answered, read by a function that throws where it cannot be read. */
export const parsed = <A>(parse: () => A): Effect.Effect<A, Problem> =>
  Effect.try({ try: parse, catch: (error) => error instanceof Problem ? error : new Problem(describe(error)) })

/** Makes an error of the store. */
export type Fail = (operation: StoreError["operation"], description: string, cause?: unknown) => StoreError

/** The messages of an error and of what caused it, each once, in one line. */
export const describe = (error: unknown): string => {
  const said: Array<string> = []
  let at = error
  for (let depth = 0; depth < 5 && at !== undefined && at !== null; depth++) {
    const text = at instanceof Error ? at.message || at.name : typeof at === "string" ? at : ""
    const line = text.replace(/\s+/g, " ").trim().slice(0, 300)
    if (line !== "" && !said.some((known) => known.includes(line))) said.push(line)
    if (typeof at !== "object") break
    const { cause, reason } = at as { readonly cause?: unknown; readonly reason?: unknown }
    at = reason ?? cause
  }
  return said.join(": ") || "an error without a message"
}

/**
 * One step: it ends within its time, and an interruption waits for that, so that what it does comes before what follows. A step that
 * is late is left behind: its driver is told to give up, and nobody waits for it.
 */
const within = <A, R>(
  step: Effect.Effect<A, unknown, R>,
  millis: number,
  operation: StoreError["operation"],
  fail: Fail
): Effect.Effect<A, StoreError, R> =>
  Effect.uninterruptible(Effect.gen(function*() {
    const fiber = yield* Effect.forkDetach(Effect.interruptible(step), { startImmediately: true })
    const exit = fiber.pollUnsafe() ?? (yield* Effect.raceFirst(
      Fiber.await(fiber),
      Effect.as(Effect.sleep(millis), undefined)
    ))
    if (exit === undefined) {
      fiber.interruptUnsafe()
      return yield* fail(operation, `there was no answer within ${millis} ms`)
    }
    if (Exit.isSuccess(exit)) return exit.value
    const error = Cause.squash(exit.cause)
    return yield* fail(operation, describe(error), error instanceof Problem ? undefined : error)
  }))

/** Not every store can keep a time that is no number. */
const finite = (of: Partial<Row>, operation: StoreError["operation"], fail: Fail): StoreError | undefined => {
  for (const field of ["leaseUntil", "expiresAt", "createdAt", "updatedAt"] as const) {
    const value = of[field]
    if (typeof value === "number" && !Number.isFinite(value)) {
      return fail(operation, `expected a time in milliseconds as ${field}, and got ${value}`)
    }
  }
  return undefined
}

/** The opening of a store, whose errors are told like those of its steps. */
export const opened = <A, R>(open: Effect.Effect<A, unknown, R>, fail: Fail): Effect.Effect<A, StoreError, R> =>
  Effect.catchCause(open, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.interrupt
    const error = Cause.squash(cause)
    return Effect.fail(fail("open", describe(error), error instanceof Problem ? undefined : error))
  })

/** The same, and it may not take longer than this. */
export const openedWithin = <A, R>(
  open: Effect.Effect<A, unknown, R>,
  millis: number,
  fail: Fail
): Effect.Effect<A, StoreError, R> =>
  Effect.timeoutOrElse(opened(open, fail), {
    duration: millis,
    orElse: () => Effect.fail(fail("open", `there was no answer within ${millis} ms`))
  })

/** How many rows go in one step of `expire`. */
const batch = 1_000

/** The most that a list may hold, for drivers that count in 32 bits. */
const most = 1_000_000_000

/** A store of a driver's steps. */
export const guarded = (steps: Steps, timeout: number, fail: Fail): TurnStore["Service"] => ({
  get: (kind, id) => within(steps.get(kind, id), timeout, "get", fail),
  insert: (row) =>
    Effect.suspend(() => finite(row, "insert", fail) ?? within(steps.insert(row), timeout, "insert", fail)),
  change: (kind, id, expected, patch) =>
    Effect.suspend(() =>
      finite(patch as Partial<Row> ?? {}, "change", fail) ??
        within(steps.change(kind, id, expected, patch), timeout, "change", fail)
    ),
  list: (query) => {
    const limit = Math.min(most, Math.floor(query.limit))
    return limit >= 1 ? within(steps.list({ ...query, limit }), timeout, "list", fail) : Effect.succeed([])
  },
  expire: (now) =>
    Effect.gen(function*() {
      let gone = 0
      let some: number
      do {
        some = yield* within(steps.expire(now, batch), timeout, "expire", fail)
        gone += some
      } while (some >= batch)
      return gone
    })
})
