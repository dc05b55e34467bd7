/**
 * A write with a key, stopped or killed at every point of its way: reserve, start, effect, record. Then it is called again, in the same
 * process or in a new one. Whatever happened, no key has two effects, nothing that was done is told as not done, every doubt is in the
 * store's list, and nothing is left behind.
 */
import { assert, describe, it } from "@effect/vitest"
import {
  Backend,
  IdempotencyStore,
  type Outcome,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  TurnStore
} from "effect-turn"
import { FakeStore, Simulation } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"
import * as Schema from "effect/Schema"

const modes = ["forward", "verify", "record", "none"] as const
type Mode = typeof modes[number]

/** How the first call is ended. */
const ends = ["stop", "interrupt", "deadline", "shutdown", "crash"] as const
type End = typeof ends[number]

interface Case {
  readonly mode: Mode
  readonly end: End
  /** When, or at which point of the run. */
  readonly at: number | { readonly point: number }
  /** The backend goes on with a request whose caller is gone. */
  readonly outside?: boolean
  /** The answers to the first call are lost. */
  readonly lost?: boolean
  /** A request takes long, so that it is under way still when it is asked about. */
  readonly slow?: boolean
  /** How long after a crash the next process starts, in milliseconds. */
  readonly restart?: number
  /** The call is not made again. */
  readonly alone?: boolean
  /** What is wrong with the store. */
  readonly fault?: "forgets doubt" | "frees what was lost" | "forgets what was done"
}

class Api extends Backend.Service<Api>()("test/StopPointsApi") {}

interface Landed {
  readonly turn: string
  readonly key: string | undefined
}

/** The backend of the tool. It lives outside all processes. */
class Remote {
  readonly landed: Array<Landed> = []
  /** Requests that may land still. */
  readonly pending = new Set<number>()
  readonly queue: Queue.Queue<Effect.Effect<void>>
  private readonly only: Case
  private requests = 0

  constructor(only: Case, queue: Queue.Queue<Effect.Effect<void>>) {
    this.only = only
    this.queue = queue
  }

  has(key: string | undefined): boolean {
    return this.landed.some((one) => one.key === key)
  }

  request(turn: string, key: string | undefined): Effect.Effect<string, string> {
    const { lost, mode, outside, slow } = this.only
    const work = Effect.acquireUseRelease(
      Effect.sync(() => {
        const n = ++this.requests
        this.pending.add(n)
        return n
      }),
      (n) =>
        Effect.sleep(slow === true ? 40 : 5).pipe(
          Effect.andThen(Effect.sync(() => {
            this.pending.delete(n)
            if (mode !== "forward" || !this.has(key)) this.landed.push({ turn, key })
          })),
          Effect.andThen(Effect.sleep(5)),
          Effect.andThen(lost === true && turn === "first" ? Effect.fail("lost") : Effect.succeed("booked"))
        ),
      (n) => Effect.sync(() => this.pending.delete(n))
    )
    if (outside !== true) return work
    return Effect.suspend(() => {
      const reply = Deferred.makeUnsafe<string, string>()
      const served = Effect.flatMap(Effect.exit(work), (exit) => Effect.asVoid(Deferred.done(reply, exit)))
      Queue.offerUnsafe(this.queue, served)
      return Deferred.await(reply)
    })
  }
}

const kitOf = (mode: Mode, remote: Remote) => {
  const plain = pipe(
    Tool.make("book", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.String, failure: Schema.String }),
    ToolPolicy.write({ keys: ({ n }) => [`n:${n}`] }),
    ToolPolicy.on(Api)
  )
  const key = ({ n }: { readonly n: number }) => `k${n}`
  switch (mode) {
    case "none":
      return Toolkit.make(plain)
    case "forward":
      return Toolkit.make(pipe(plain, ToolPolicy.forward(key)))
    case "record":
      return Toolkit.make(pipe(plain, IdempotencyStore.record(key)))
    case "verify":
      return Toolkit.make(pipe(
        plain,
        IdempotencyStore.verify({
          key,
          ask: (_, key) =>
            Effect.andThen(
              Effect.sleep(3),
              Effect.sync(() =>
                remote.has(key)
                  ? IdempotencyStore.applied("booked")
                  // What is under way may land still: who asks is told the truth.
                  : remote.pending.size > 0
                  ? IdempotencyStore.notKnown
                  : IdempotencyStore.notApplied
              )
            )
        })
      ))
  }
}

interface Seen {
  first: Outcome.Outcome<any> | undefined
  second: Outcome.Outcome<any> | undefined
  third: Outcome.Outcome<any> | undefined
  permits: number | undefined
}

const lease = 1_000

/** A store in memory with a fault in it. */
const rowsOf = (fault: Case["fault"]): Effect.Effect<TurnStore.TurnStore["Service"]> =>
  Effect.gen(function*() {
    const rows = yield* TurnStore.TurnStore
    const without = (state: string): TurnStore.TurnStore["Service"] => ({
      ...rows,
      change: (kind, id, expected, patch) => rows.change(kind, id, expected, patch?.state === state ? undefined : patch)
    })
    switch (fault) {
      case undefined:
        return rows
      case "forgets doubt":
        return without("unknown")
      case "forgets what was done":
        return without("applied")
      case "frees what was lost":
        return {
          ...rows,
          insert: (row) =>
            Effect.gen(function*() {
              const known = yield* rows.get(row.kind, row.id)
              if (known?.state === "reserved" && known.leaseUntil <= row.createdAt) {
                yield* rows.change(row.kind, row.id, {}, undefined)
              }
              return yield* rows.insert(row)
            }),
          get: (kind, id) =>
            Effect.flatMap(Clock.currentTimeMillis, (now) =>
              Effect.map(rows.get(kind, id), (row) =>
                row?.state === "reserved" && row.leaseUntil <= now ? undefined : row))
        }
    }
  }).pipe(Effect.provide(Layer.fresh(TurnStore.layerMemory)))

/** Gives what was seen of a case, and what is wrong with it. */
const program = (only: Case) =>
  Effect.gen(function*() {
    const { at, end, mode } = only
    const store = yield* FakeStore.make({ behaviour: { latency: 4, doneAt: 2 }, rows: yield* rowsOf(only.fault) })
    const remote = new Remote(only, yield* Queue.unbounded<Effect.Effect<void>>())
    yield* Effect.forkChild(
      Effect.forever(Effect.flatMap(Queue.take(remote.queue), (work) => Effect.forkDetach(work)))
    )
    const kit: Toolkit.Any = kitOf(mode, remote)
    const keys = Layer.provide(IdempotencyStore.layer({ digest: "text", lease }), store.layer)
    const layer = Layer.mergeAll(
      (kit as any).toLayer({
        book: () =>
          Effect.flatMap(TurnContext.CurrentCall, (call) => remote.request(call!.identity.turn, call!.idempotencyKey))
      }) as Layer.Layer<any>,
      Api.layer({ concurrency: 1 }),
      keys,
      Turn.layer()
    )
    const seen: Seen = { first: undefined, second: undefined, third: undefined, permits: undefined }
    const ending = yield* Deferred.make<void>()
    const run = (turn: "first" | "second" | "third", options?: Turn.Options) =>
      Turn.run(kit as any, [ToolCall.make(turn, "book", { n: turn === "third" ? 2 : 1 })], {
        turn,
        ...options,
        onClosed: ({ outcomes }) =>
          Effect.sync(() => {
            seen[turn] = outcomes[0]
          })
      })
    const inProcess = <A, E>(effect: Effect.Effect<A, E, any>): Effect.Effect<A, E> =>
      effect.pipe(Effect.provide(layer), Effect.provide(TurnContext.make({ tenant: "acme" }))) as Effect.Effect<A, E>

    const first = Effect.gen(function*() {
      if (end === "stop") return yield* run("first", { cancelOn: Deferred.await(ending) })
      if (end === "deadline") return yield* run("first", { deadline: typeof at === "number" ? at : 1 })
      const fiber = yield* Effect.forkChild(run("first"))
      if (end === "interrupt") yield* Effect.forkChild(Effect.andThen(Deferred.await(ending), Fiber.interrupt(fiber)))
      return yield* Effect.exit(Fiber.join(fiber))
    })
    const again = Effect.gen(function*() {
      yield* run("second")
      yield* run("third")
      seen.permits = (yield* Api).pool.stats().running
    })
    const restarts = end === "crash" || end === "shutdown"
    if (only.alone === true) {
      yield* inProcess(first)
      return undefined
    }
    const process = yield* Simulation.process(
      inProcess(restarts ? Effect.andThen(first, Effect.never) : Effect.andThen(first, again))
    )
    yield* typeof at === "number" ? Effect.sleep(at) : Effect.raceFirst(Simulation.point(at.point), Effect.sleep(500))
    yield* end === "crash"
      ? process.crash
      : end === "shutdown"
      ? process.interrupt
      : Deferred.succeed(ending, undefined)
    // What ran in a process that was killed is not under way any more.
    if (end === "crash" && only.outside !== true) remote.pending.clear()
    if (restarts) {
      yield* Effect.sleep(only.restart ?? 0)
      const next = yield* Simulation.process(inProcess(again))
      yield* next.await
      yield* next.crash
    } else {
      yield* process.await
      yield* process.crash
    }
    // What is under way lands, and what nobody keeps is lost.
    yield* Effect.sleep(2 * lease)
    const entries = yield* Effect.flatMap(IdempotencyStore.IdempotencyStore, (keys) => keys.list()).pipe(
      Effect.provide(keys)
    )
    return { seen, remote, entry: entries.find(({ key }) => key.key === "k1"), entries }
  })

const problemsOf = (
  { mode, outside }: Case,
  { entries, entry, remote, seen }: NonNullable<Effect.Success<ReturnType<typeof program>>>
): ReadonlyArray<string> => {
  const { first, permits, second, third } = seen
  const problems: Array<string> = []
  const check = (holds: boolean, problem: string) => holds || problems.push(problem)
  const by = (turn: string) => remote.landed.filter((one) => one.turn === turn).length
  if (second === undefined || third === undefined) return ["the call was not answered when it was made again"]
  check(permits === 0, "a permit is out")
  check(third.status === "ok", `another call after it is ${third.status}`)
  // Nothing that was done is told as not done, and nothing that was not as done.
  if (mode === "none") {
    check(
      first?.effect !== "none" || by("first") === 0,
      "the first call has had its effect, and is told to have had none"
    )
    check(
      first?.effect !== "applied" || by("first") === 1,
      "the first call is told to have had its effect, and has not"
    )
    check(second.status === "ok" && by("second") === 1, `the second call is ${second.status}`)
    return problems
  }
  const landed = remote.landed.filter(({ key }) => key === "k1").length
  check(landed <= 1, `the key has ${landed} effects`)
  check(
    first?.effect !== "none" || by("first") === 0,
    "the first call has had its effect, and is told to have had none"
  )
  for (const [name, outcome] of [["first", first], ["second", second]] as const) {
    check(outcome?.effect !== "applied" || landed === 1, `the ${name} call is told to have been applied, and was not`)
    check(outcome?.status !== "ok" || landed === 1, `the ${name} call is ok, and was not applied`)
    check(outcome?.status !== "ok" || outcome.result === "booked", `the ${name} call has another result`)
  }
  // What is told in doubt is listed in doubt, and what is known is not.
  check(entry !== undefined || landed === 0, "the key is free, and it has had its effect")
  check(entry?.state !== "applied" || landed === 1, "the key is recorded as applied, and it was not")
  check(entry?.state !== "reserved", "the key is still reserved")
  const inDoubt = second.effect === "unknown"
  check(inDoubt === (entry?.state === "unknown"), `the second call is ${second.effect}, and the key ${entry?.state}`)
  check(
    entries.every(({ key, state }) => key.key === "k1" || state === "applied"),
    "the key of another call is in doubt"
  )
  // Whoever may run again does, and whoever has certainly done nothing.
  const settled = mode === "forward" || (mode === "verify" && outside !== true) || first?.effect === "none"
  check(!settled || second.status === "ok", `the second call is ${second.status}, and could have been done`)
  check(
    second.status === "ok" || (second as { readonly code?: string }).code === "in_doubt",
    `the second call is ${second.status}`
  )
  return problems
}

const showCase = ({ at, ...only }: Case) =>
  `${JSON.stringify(only)} at ${typeof at === "number" ? `${at} ms` : `point ${at.point}`}`

/** What was seen in all cases of a test, so that none of them looks at nothing. */
class Tally {
  runs = 0
  readonly kinds = new Map<string, number>()

  note(kind: string): void {
    this.kinds.set(kind, (this.kinds.get(kind) ?? 0) + 1)
  }
}

const tried = (only: Case, schedule: number, tally: Tally) =>
  Effect.map(Simulation.run(program(only), { schedule, horizon: "2 hours" }), ({ exit, problem, replay }) => {
    tally.runs++
    const where = `${showCase(only)}, run ${replay}`
    if (exit === undefined || Exit.isFailure(exit) || exit.value === undefined) {
      return assert.fail(`${where}: ${problem}`)
    }
    const { entry, seen } = exit.value
    assert.deepStrictEqual(problemsOf(only, exit.value), [], where)
    const word = (outcome: Outcome.Outcome<any> | undefined) =>
      outcome === undefined
        ? "nothing"
        : `${(outcome as { readonly code?: string }).code ?? outcome.status}${outcome.replayed ? " again" : ""}`
    tally.note(`first: ${word(seen.first)}, ${seen.first?.effect}`)
    tally.note(`second: ${word(seen.second)}`)
    tally.note(`key: ${entry?.state}`)
  })

/** What has to have been seen, or the test has looked at less than it says. */
const kindsOf = (mode: Mode, end: End): Array<string> => [
  ...(end === "crash"
    ? ["first: nothing, undefined"]
    // Nothing stands before the start of a write without a key.
    : mode === "none"
    ? []
    : [`first: by_${end === "deadline" ? end : "caller"}, none`]),
  "first: ok, applied",
  "first: failed, unknown",
  "second: ok",
  ...(mode === "none" ? ["key: undefined"] : ["key: applied", "second: ok again"]),
  ...(mode === "record" ? ["key: unknown", "second: in_doubt"] : [])
]

/** Every virtual instant of the first call, each under some interleavings. */
const instants = Array.from({ length: 28 }, (_, at) => at)
const seeds = [0, 1, 2]

const variants: ReadonlyArray<Pick<Case, "outside" | "lost" | "slow" | "restart">> = [
  {},
  { lost: true },
  { outside: true },
  { outside: true, restart: 3 * lease },
  { outside: true, lost: true },
  { outside: true, slow: true }
]

describe.each(modes)("a write in mode %s", (mode) => {
  it.effect.each(ends)(
    "is safe whenever it meets: %s, at every instant and under several interleavings",
    (end) =>
      Effect.gen(function*() {
        const tally = new Tally()
        for (const variant of variants) {
          for (const at of end === "deadline" ? instants.slice(1) : instants) {
            for (const seed of seeds) yield* tried({ mode, end, at, ...variant }, seed, tally)
          }
        }
        assert.strictEqual(
          tally.runs,
          variants.length * (instants.length - (end === "deadline" ? 1 : 0)) * seeds.length
        )
        assert.includeMembers([...tally.kinds.keys()], kindsOf(mode, end))
      }),
    120_000
  )

  it.effect.each(["stop", "interrupt", "shutdown", "crash"] as const)(
    "is safe wherever it meets, between any two operations of the first call: %s",
    (end) =>
      Effect.gen(function*() {
        const tally = new Tally()
        for (const variant of [{}, { outside: true, lost: true }]) {
          const alone = program({ mode, end: "crash", at: 0, alone: true, ...variant })
          const { points } = yield* Simulation.run(alone)
          for (let point = 1; point <= points; point++) {
            yield* tried({ mode, end, at: { point }, ...variant }, 0, tally)
          }
        }
        assert.isAbove(tally.runs, 300)
        assert.includeMembers([...tally.kinds.keys()], kindsOf(mode, end))
      }),
    120_000
  )
})

describe("faults of a store are seen", () => {
  const found = (only: Case) =>
    Effect.map(
      Simulation.run(program(only), { horizon: "2 hours" }),
      ({ exit, problem }) =>
        exit === undefined || Exit.isFailure(exit) || exit.value === undefined
          ? assert.fail(problem)
          : problemsOf(only, exit.value)
    )

  it.effect("what is in doubt is forgotten", () =>
    Effect.map(
      found({ mode: "record", end: "stop", at: 200, lost: true, fault: "forgets doubt" }),
      (problems) => assert.include(problems, "the key has 2 effects")
    ))

  it.effect("what was done is forgotten", () =>
    Effect.map(
      found({ mode: "record", end: "stop", at: 200, fault: "forgets what was done" }),
      (problems) => assert.include(problems, "the key has 2 effects")
    ))

  it.effect("what a process has lost is free again", () =>
    Effect.map(
      found({ mode: "record", end: "crash", at: 15, restart: 2 * lease, fault: "frees what was lost" }),
      (problems) => assert.include(problems, "the key has 2 effects")
    ))
})
