/**
 * A store that goes wrong at each step of a write with a key, in every way that it can: the handler does not run without its reservation,
 * the call is answered what became of it, and whoever calls next, in another process, does nothing twice.
 */
import { assert, describe, it } from "@effect/vitest"
import { IdempotencyStore, Outcome, ToolCall, ToolPolicy, Turn, TurnContext, TurnJournal } from "effect-turn"
import { FakeStore } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { ended, fork } from "../utils/kit.ts"

const modes = ["forward", "verify", "record"] as const
const ends = ["pays", "fails after", "fails before", "declines"] as const
const faults = ["fails", "loses-answer", "hangs"] as const
/** More than any of these calls takes. */
const steps = [1, 2, 3, 4, 5, 6]

interface Case {
  readonly mode: typeof modes[number]
  readonly end: typeof ends[number]
  readonly fault: typeof faults[number]
  /** Which step of the first process goes wrong. */
  readonly step: number
  /** Do all steps after it go wrong as well? */
  readonly lasting: boolean
  readonly journal: boolean
}

const cases: ReadonlyArray<Case> = modes.flatMap((mode) =>
  ends.flatMap((end) =>
    faults.flatMap((fault) =>
      steps.flatMap((step) =>
        [true, false].flatMap((lasting) =>
          [true, false].map((journal) => ({ mode, end, fault, step, lasting, journal }))
        )
      )
    )
  )
)

const Failure = Schema.Struct({ why: Schema.String, effect: Schema.Literals(["none", "unknown"]) })

const tool = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Schema.Struct({ key: Schema.String }), success: Schema.String, failure: Failure }),
    ToolPolicy.write({ keys: () => ["account"] }),
    ToolPolicy.failures({ noEffect: ({ effect }) => effect === "none" })
  )

const keyOf = ({ key }: { readonly key: string }) => key

/** What happened to a call: its answer, how often its handler ran, and how often it was paid by then. */
interface Seen {
  readonly outcome: Outcome.Encoded
  readonly runs: number
  readonly paid: number
}

const happened = ({ end, fault, journal, lasting, mode, step }: Case) =>
  Effect.gen(function*() {
    const fake = yield* FakeStore.make({
      behaviour: ({ number, process }) =>
        process === 1 && (number === step || (lasting && number > step))
          ? { latency: 5, doneAt: 2, fault }
          : { latency: 5, doneAt: 2 }
    })
    let paid = 0
    let runs = 0
    let unguarded = 0
    const handler = (mode: Case["mode"], end: Case["end"]) => () =>
      Effect.gen(function*() {
        runs++
        const [row] = yield* Effect.orDie(fake.rows.list({ kind: "key", limit: 1 }))
        if (row === undefined || row.leaseUntil <= (yield* Clock.currentTimeMillis)) unguarded++
        yield* Effect.sleep(10)
        if (end === "declines") return yield* Effect.fail({ why: "no money", effect: "none" as const })
        // The bank of `forward` honours the key.
        if (end !== "fails before" && (mode !== "forward" || paid === 0)) paid++
        if (end !== "pays") return yield* Effect.fail({ why: "connection lost", effect: "unknown" as const })
        return "paid"
      })
    const ask = () => Effect.sync(() => paid > 0 ? IdempotencyStore.applied("paid") : IdempotencyStore.notApplied)
    const toolkit = Toolkit.make(
      pipe(tool("forward"), ToolPolicy.forward(keyOf)),
      pipe(tool("verify"), IdempotencyStore.verify({ key: keyOf, ask })),
      pipe(tool("record"), IdempotencyStore.record(keyOf))
    )
    const warnings: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => {
      if (logLevel === "Warn") warnings.push([message].flat().join(" "))
    })
    /** A call in a process of its own. */
    const call = (end: Case["end"]) =>
      Effect.gen(function*() {
        const before = runs
        const store = IdempotencyStore.layer({ digest: "text", lease: "10 seconds" })
        const records = journal ? Layer.merge(store, TurnJournal.layer({ lease: "10 seconds" })) : store
        const layer = Layer.mergeAll(
          Turn.layer(),
          toolkit.toLayer({
            forward: handler("forward", end),
            verify: handler("verify", end),
            record: handler("record", end)
          }),
          Layer.provide(records, fake.layer)
        )
        const fiber = yield* fork(
          Turn.run(toolkit, [ToolCall.make("c", mode, { key: "a" })], journal ? { turn: "turn_1" } : {}).pipe(
            Effect.provide(TurnContext.make({ tenant: "t" })),
            Effect.provide(layer)
          )
        )
        yield* TestClock.adjust("5 minutes")
        const [outcome] = yield* ended(fiber)
        return { outcome: Outcome.toJson(outcome!), runs: runs - before, paid } satisfies Seen
      })
    return yield* Effect.gen(function*() {
      const first = yield* call(end)
      const hit = fake.steps.filter((step) => step.process === 1 && step.end !== "ok")
      const second = yield* call("pays")
      const listed = yield* IdempotencyStore.IdempotencyStore.pipe(
        Effect.flatMap((store) => store.list({ state: "unknown" })),
        Effect.provide(Layer.provide(IdempotencyStore.layer({ digest: "text" }), fake.layer)),
        fork,
        Effect.tap(() => TestClock.adjust("1 minute")),
        Effect.flatMap(ended)
      )
      return { first, second, hit, listed, unguarded, warnings }
    }).pipe(Effect.provide(Logger.layer([logger])))
  })

/** What a handler's own end is answered, whatever the store does. */
const trueAnswers: Record<Case["end"], Partial<Outcome.Encoded>> = {
  pays: { status: "ok", effect: "applied", started: true },
  "fails after": { status: "error", code: "failed", effect: "unknown", started: true },
  "fails before": { status: "error", code: "failed", effect: "unknown", started: true },
  declines: { status: "error", code: "failed", effect: "none", started: true }
}

const judge = (
  one: Case,
  { first, hit, listed, second, unguarded, warnings }: Effect.Success<ReturnType<typeof happened>>
) => {
  const about = JSON.stringify({ one, first, second, hit: hit.map(({ kind, operation, to }) => [kind, operation, to]) })
  const { mode } = one
  assert.isAtMost(second.paid, 1, about)
  assert.strictEqual(unguarded, 0, about)

  // The first call: not started without its reservation, and else answered what its handler came to.
  if (first.runs === 0) {
    assert.deepInclude(first.outcome, { started: false, effect: "none", retryable: true }, about)
    if (first.outcome.code !== "store_unavailable") {
      assert.deepInclude(first.outcome, { status: "timeout", code: "queue" }, about)
      assert.isTrue(hit.some(({ end }) => end === "interrupted"), about)
    }
  } else {
    assert.strictEqual(first.runs, 1, about)
    assert.deepInclude(first.outcome, trueAnswers[one.end], about)
  }
  // What was not written down is in the log.
  if (first.runs === 1 && one.lasting && hit.length > 0) assert.isNotEmpty(warnings, about)

  // The second call, when the store is there again: an answer, and never a second payment.
  const again = second.outcome
  if (again.status === "ok") assert.strictEqual(second.paid, 1, about)
  else if (again.code === "failed") {
    // The same turn is not run again: the journal has its answer.
    assert.isTrue(one.journal && second.runs === 0, about)
    assert.deepInclude(again, trueAnswers[one.end], about)
  } else {
    assert.deepInclude(again, { code: "in_doubt", started: false, effect: "unknown", retryable: false }, about)
    assert.strictEqual(mode, "record", about)
    assert.deepStrictEqual(listed.map(({ key }) => key.key), ["a"], about)
  }
  // Our own record is not asked to be right about what it does not know.
  if (mode === "record" && first.runs === 1 && one.end !== "declines") assert.strictEqual(second.runs, 0, about)
  if (again.code !== "in_doubt" && again.code !== "failed") assert.deepStrictEqual(listed, [], about)
}

describe("a store that goes wrong in the middle of a write with a key", () => {
  it.effect(
    "R21, R23: at no step is a write done twice, done without its reservation, or answered falsely",
    () =>
      Effect.gen(function*() {
        const met = new Map<string, number>()
        for (const one of cases) {
          const found = yield* happened(one)
          judge(one, found)
          for (const { kind, operation, to } of found.hit.slice(0, 1)) {
            const what = `${one.fault} ${kind} ${operation} ${to ?? ""}`.trim()
            met.set(what, (met.get(what) ?? 0) + 1)
          }
          const answer = `${one.mode} ${found.second.outcome.code ?? found.second.outcome.status}`
          met.set(answer, (met.get(answer) ?? 0) + 1)
        }
        // Every step was met in every way, and every end of the second call.
        for (const fault of faults) {
          for (
            const step of [
              "key insert reserved",
              "key change applied",
              "key change unknown",
              "key change",
              "call insert reserved",
              "call change settled"
            ]
          ) {
            assert.isAbove(met.get(`${fault} ${step}`) ?? 0, 0, `${fault} ${step}: ${JSON.stringify([...met])}`)
          }
        }
        for (const answer of ["forward ok", "verify ok", "record ok", "record in_doubt"]) {
          assert.isAbove(met.get(answer) ?? 0, 0, answer)
        }
      }),
    120_000
  )
})
