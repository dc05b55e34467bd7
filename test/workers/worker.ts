/** The module of the tests' worker threads. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeWorkerRunner from "@effect/platform-node/NodeWorkerRunner"
import * as Handler from "effect-turn/Handler"
import * as TurnContext from "effect-turn/TurnContext"
import * as Effect from "effect/Effect"
import { threadId, workerData } from "node:worker_threads"
import { cells, toolkit } from "./tools.ts"

const memory = workerData as Int32Array

const say = (cell: number) => {
  Atomics.add(memory, cell, 1)
  Atomics.notify(memory, cell)
}

/** Blocks the thread until there is one to take. */
const take = (cell: number): void => {
  for (;;) {
    const left = Atomics.load(memory, cell)
    if (left > 0 && Atomics.compareExchange(memory, cell, left, left - 1) === left) return
    if (left <= 0) Atomics.wait(memory, cell, left)
  }
}

if (Atomics.sub(memory, cells.broken, 1) > 0) throw new Error("it cannot be loaded")
if (Atomics.sub(memory, cells.lame, 1) > 0) setImmediate(() => process.exit(0))
Atomics.wait(memory, cells.open, 0)

interface Context {
  readonly toolCallId?: string | undefined
  readonly preliminary: (result: any) => Effect.Effect<void>
}

const does: Record<string, (n: number, context: Context) => unknown> = {
  echo: (n) => n,
  huge: (n) => "x".repeat(n),
  spin: () => {
    say(cells.here)
    for (;;) Atomics.add(memory, cells.turns, 1)
  },
  /** As `spin`, and says so with a note. */
  noteAndSpin: (n, { preliminary }) => Effect.map(preliminary(n), does["spin"]!.bind(null, n, { preliminary })),
  hold: (n) => {
    say(cells.here)
    take(cells.go)
    return n
  },
  /** Answers, and says so when the answer is on its way. */
  late: (n) => {
    say(cells.here)
    take(cells.go)
    setImmediate(() => say(cells.sent))
    return n
  },
  notes: (n, { preliminary }) =>
    Effect.gen(function*() {
      for (let i = 0; i < n; i++) {
        yield* preliminary(i)
        yield* Effect.sync(() => take(cells.go))
      }
      return "noted"
    }),
  oddNote: (_, { preliminary }) => Effect.as(preliminary(() => 1), "noted"),
  fail: () => Effect.fail({ at: new Date(0) }),
  /** Fails when another call has got to where it blocks. */
  failAfter: () => {
    take(cells.here)
    return Effect.fail({ at: new Date(0) })
  },
  otherFailure: () => Effect.fail({ message: "not of the schema" }),
  lostFailure: () => Effect.fail({ message: "not for others", of: () => 1 }),
  die: () => Effect.die(new RangeError("it broke")),
  throw: () => {
    throw new RangeError("it threw")
  },
  dieOfText: () => Effect.die("a text"),
  interrupt: () => Effect.interrupt,
  crash: () => {
    setImmediate(() => {
      throw new Error("nobody catches this")
    })
    return Effect.never
  },
  exit: () => process.exit(3),
  leave: (n) => {
    setImmediate(() => process.exit(0))
    return n
  },
  lambda: () => () => 1,
  bigint: () => 1n,
  nothing: () => undefined,
  overlap: () =>
    Effect.gen(function*() {
      const now = Atomics.add(memory, cells.atWork, 1) + 1
      if (now > Atomics.load(memory, cells.most)) Atomics.store(memory, cells.most, now)
      for (let i = 0; i < 20; i++) yield* Effect.promise(() => new Promise(setImmediate))
      Atomics.sub(memory, cells.atWork, 1)
      return threadId
    }),
  who: (_, { toolCallId }) =>
    Effect.gen(function*() {
      const call = yield* TurnContext.CurrentCall
      return {
        call: { ...call },
        toolCallId,
        conversation: yield* TurnContext.Conversation,
        principal: yield* TurnContext.Principal
      }
    })
}

const handler = (params: { readonly does: string; readonly n?: number }, context: Context): Effect.Effect<any, any> =>
  Effect.suspend(() => {
    const value = does[params.does]!(params.n ?? 0, context)
    return Effect.isEffect(value) ? value as Effect.Effect<unknown, any> : Effect.succeed(value)
  })

Handler.serve(toolkit).pipe(
  Effect.provide([
    toolkit.toLayer({
      read: handler,
      write: handler,
      put: handler,
      next_day: ({ day }) => Effect.succeed({ day: new Date(day.getTime() + 86_400_000) })
    }),
    NodeWorkerRunner.layer
  ]),
  NodeRuntime.runMain
)
