/**
 * A `TurnStore` whose steps take time, fail, lose their answers or hang, and whose processes can crash: for tests of what is kept in one.
 *
 * The rows are real: those of a store in memory, or of any other that is given. Each time that the layer is built it is another process
 * on the same rows, so that a test of a crash and a new start has two of them. Time comes from the `Clock`: under a test clock nothing
 * really waits. Under `Simulation` say `IdempotencyStore.layer({ digest: "text" })`: the platform's own digest is outside it.
 *
 * - **F1** A step is done in one instant, or not at all; what is done is seen by every later step of every process.
 * - **F2** A step that fails with `"fails"`, or is stopped before its moment, was not done; with `"loses-answer"` it was. Its caller cannot
 *   tell them apart.
 * - **F3** From a crash on, the steps of the processes that were there change nothing and never return.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as TurnStore from "../TurnStore.ts"
import * as Course from "./fakes/course.ts"

/**
 * One step of a process.
 *
 * **Details**
 *
 * - `number`, `process`: counted from 1, in the order of starts and of processes.
 * - `kind`, `id`: of the row, or of those that are asked for; undefined where it says none.
 * - `to`: the state that it is to put a row in; undefined where it writes none.
 * - `startedAt`, `doneAt`, `endedAt`: `doneAt` is undefined until it is done, `endedAt` while it is under way.
 * - `end`: how it ended: `"lost"` is an answer that was lost, `"crashed"` the crash of its process.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Step {
  readonly number: number
  readonly process: number
  readonly operation: "get" | "insert" | "change" | "list" | "expire"
  readonly kind: string | undefined
  readonly id: string | undefined
  readonly to: string | undefined
  readonly startedAt: number
  readonly doneAt: number | undefined
  readonly endedAt: number | undefined
  readonly end: "ok" | "failed" | "lost" | "interrupted" | "died" | "crashed" | undefined
}

/**
 * What the store does with a step. Times are in milliseconds, or any `Duration.Input`.
 *
 * **Details**
 *
 * - `latency`: how long the answer takes. Default: no time.
 * - `doneAt`: when it is done, from its start on, at most the latency. Default: `"end"`, together with the answer.
 * - `fault`: what goes wrong. `"fails"`: the step fails, and is not done. `"loses-answer"`: it fails after it was done. `"hangs"`: no answer
 *   comes, until the step is stopped or the store released; it is done at `doneAt` if that is a time.
 * - `ignoresInterrupt`: whoever stops the step waits for its end.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Behaviour {
  readonly latency?: Duration.Input | undefined
  readonly doneAt?: Duration.Input | "end" | undefined
  readonly fault?: "fails" | "loses-answer" | "hangs" | undefined
  readonly ignoresInterrupt?: boolean | undefined
}

/**
 * What kind of store it is.
 *
 * **Details**
 *
 * - `name`: how errors call it. Default: `"the fake store"`.
 * - `rows`: the store that keeps the rows. Default: a new one in memory.
 * - `behaviour`: what it does with steps. Of a list, the n-th step takes the n-th entry, and the last one repeats; a function is asked for
 *   each.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly name?: string | undefined
  readonly rows?: TurnStore.TurnStore["Service"] | undefined
  readonly behaviour?: Behaviour | ReadonlyArray<Behaviour> | ((step: Step) => Behaviour) | undefined
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

type Fault = NonNullable<Behaviour["fault"]>

interface Process {
  readonly number: number
  dead: boolean
}

const endOf = (
  exit: Exit.Exit<unknown, TurnStore.StoreError>,
  doneAt: number | undefined
): NonNullable<Step["end"]> => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Exit.hasDies(exit)) return "died"
  if (!Exit.hasFails(exit)) return "interrupted"
  return doneAt === undefined ? "failed" : "lost"
}

/**
 * A fake store, and what it has seen.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export class FakeStore {
  readonly #name: string
  readonly #courseOf: (step: Step, n: number) => Course.Course<Fault>
  readonly #steps: Array<Mutable<Step>> = []
  readonly #released = Deferred.makeUnsafe<void>()
  #processes: Array<Process> = []
  #built = 0

  /** The store that keeps the rows, to look at them: its steps take no time, have no faults and are not written down. */
  readonly rows: TurnStore.TurnStore["Service"]

  /** A process of its own on these rows, each time that it is built. */
  readonly layer: Layer.Layer<TurnStore.TurnStore> = Layer.fresh(
    Layer.sync(TurnStore.TurnStore, () => this.#service(this.#process()))
  )

  /** @internal */
  constructor(options: Options, rows: TurnStore.TurnStore["Service"]) {
    this.#name = options.name ?? "the fake store"
    this.rows = rows
    this.#courseOf = Course.each(options.behaviour ?? {}, (said: Behaviour) =>
      Course.make<Fault>(this.#name, {
        latency: said.latency ?? 0,
        moment: "doneAt",
        at: said.doneAt ?? "end",
        fault: said.fault,
        ignoresInterrupt: said.ignoresInterrupt
      }, ["fails"]), {})
  }

  /** Every step so far, in the order of their starts. */
  get steps(): ReadonlyArray<Step> {
    return this.#steps
  }

  /**
   * All processes so far crash: their steps change nothing from now on, and never return. A layer that is built later is a new process.
   *
   * What else the processes do is not stopped by it: their fibers are to be left alone, or run as `Simulation.process`, which can crash.
   */
  get crash(): Effect.Effect<void> {
    return Effect.map(Clock.currentTimeMillis, (endedAt) => {
      for (const process of this.#processes) {
        process.dead = true
        for (const step of this.#steps) {
          if (step.process === process.number && step.end === undefined) {
            Object.assign(step, { endedAt, end: "crashed" })
          }
        }
      }
      this.#processes = []
    })
  }

  /** Ends all steps that hang, also those that are deaf to a stop: to be called when a test is over. */
  get release(): Effect.Effect<void> {
    return Effect.asVoid(Deferred.succeed(this.#released, undefined))
  }

  #process(): Process {
    const process = { number: ++this.#built, dead: false }
    this.#processes.push(process)
    return process
  }

  #service(process: Process): TurnStore.TurnStore["Service"] {
    const { rows } = this
    const step = <A>(
      operation: Step["operation"],
      about: { readonly kind?: string; readonly id?: string; readonly to?: string | undefined },
      run: () => Effect.Effect<A, TurnStore.StoreError>
    ) => this.#step(process, { operation, kind: about.kind, id: about.id, to: about.to }, run)
    return {
      get: (kind, id) => step("get", { kind, id }, () => rows.get(kind, id)),
      insert: (row) => step("insert", { kind: row.kind, id: row.id, to: row.state }, () => rows.insert(row)),
      change: (kind, id, expected, patch) =>
        step("change", { kind, id, to: patch?.state }, () => rows.change(kind, id, expected, patch)),
      list: (query) => step("list", { kind: query.kind }, () => rows.list(query)),
      expire: (now) => step("expire", {}, () => rows.expire(now))
    }
  }

  #step<A>(
    process: Process,
    about: Pick<Step, "operation" | "kind" | "id" | "to">,
    run: () => Effect.Effect<A, TurnStore.StoreError>
  ): Effect.Effect<A, TurnStore.StoreError> {
    return Effect.uninterruptibleMask((restore) =>
      Effect.gen({ self: this }, function*() {
        const alive = Effect.suspend(() => process.dead ? Effect.never : Effect.void)
        yield* restore(alive)
        const step: Mutable<Step> = {
          number: this.#steps.length + 1,
          process: process.number,
          ...about,
          startedAt: yield* Clock.currentTimeMillis,
          doneAt: undefined,
          endedAt: undefined,
          end: undefined
        }
        this.#steps.push(step)
        const lost = (description: string) =>
          Effect.fail(new TurnStore.StoreError({ store: this.#name, operation: about.operation, description }))
        const work = (course: Course.Course<Fault>) =>
          Effect.gen({ self: this }, function*() {
            const { at, fault, latency } = course
            let answer: A | undefined
            if (at !== undefined) {
              yield* Course.wait(at)
              yield* alive
              answer = yield* run()
              step.doneAt = yield* Clock.currentTimeMillis
            }
            if (fault === "hangs") {
              yield* Deferred.await(this.#released)
              yield* alive
              return yield* lost("it was released")
            }
            yield* Course.wait(latency - (at ?? 0))
            yield* alive
            if (fault !== undefined) return yield* lost(`step ${step.number} was to go wrong`)
            return answer as A
          })
        const whole = Effect.suspend(() => {
          const course = this.#courseOf(step, step.number - 1)
          return course.ignoresInterrupt ? work(course) : restore(work(course))
        })
        return yield* Effect.onExit(whole, (exit) =>
          Effect.map(Clock.currentTimeMillis, (endedAt) => {
            if (step.end === undefined) {
              Object.assign(step, { endedAt, end: endOf(exit, step.doneAt) })
            }
          }))
      })
    )
  }
}

/**
 * Makes a store that has seen nothing yet. A time that cannot be is a defect; that of a behaviour which a function gives, of the step that
 * it is given for.
 *
 * **Example** (An answer that is lost, a crash, and a new process)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer } from "effect"
 * import { IdempotencyStore } from "effect-turn"
 * import { FakeStore } from "effect-turn/testing"
 *
 * const key = { tenant: "acme", tool: "book", key: "booking-1" }
 * const reserve = Effect.flatMap(IdempotencyStore.IdempotencyStore, (store) => store.reserve(key, { digest: "{}", owner: "one" }))
 *
 * const program = Effect.gen(function*() {
 *   const fake = yield* FakeStore.make({ behaviour: [{ fault: "loses-answer" }, {}] })
 *   const process = Layer.provide(IdempotencyStore.layer({ lease: "30 seconds" }), fake.layer)
 *   const first = yield* Effect.exit(Effect.provide(reserve, process))
 *   yield* fake.crash
 *   const second = yield* Effect.provide(reserve, process)
 *   return [first._tag, second._tag, fake.steps.map(({ end, to }) => `${to}: ${end}`)]
 * })
 * const seen = await Effect.runPromise(program) // => ["Failure", "Taken", ["reserved: lost", "reserved: ok"]]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (options: Options = {}): Effect.Effect<FakeStore> =>
  Effect.suspend(() => {
    if (options.rows !== undefined) return Effect.succeed(new FakeStore(options, options.rows))
    return TurnStore.TurnStore.pipe(
      Effect.map((rows) => new FakeStore(options, rows)),
      Effect.provide(Layer.fresh(TurnStore.layerMemory))
    )
  })
