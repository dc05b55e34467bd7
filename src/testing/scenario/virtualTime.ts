/**
 * Time that moves only when everything else stands still.
 *
 * - **T1** The clock moves from one known moment to the next (a sleep that ends, an action that is due), never past one,
 *   and only when no task waits for its turn. So a run gives the same answer every time.
 * - **T2** What sleeps until a moment goes first, the actions of that moment follow, each after all before it has settled.
 * - **T3** Driving ends: when the goal is reached, when nothing is left that could happen, at the horizon, or after a
 *   bounded number of steps. Work that hangs is seen, not waited for.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Scheduler from "effect/Scheduler"
import type * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"

/**
 * How driving ended: the goal was reached (`done`), nothing is left that could happen (`idle`), the next thing lies
 * beyond the horizon (`horizon`), or the steps ran out (`busy`).
 *
 * @internal
 */
export type Ended = "done" | "idle" | "horizon" | "busy"

/** @internal */
export interface VirtualTime {
  readonly now: () => number
  /** Does something at a moment, after all that sleeps until then. Equal moments keep the order of registration. */
  readonly at: (millis: number, action: Effect.Effect<void>) => void
  /** How many actions are still to come. */
  readonly actions: () => number
  /** Moves time on until the goal is reached, or no further. */
  readonly drive: (reached: () => boolean) => Effect.Effect<Ended>
  /** Puts an effect under this clock. */
  readonly provide: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/** Turns of the event loop in one instant, after which work is taken to run in circles. */
const maxTurns = 100_000

/** @internal */
export const make = (options: {
  readonly horizonMillis: number
  readonly maxSteps: number
}): Effect.Effect<VirtualTime, never, Scope.Scope> =>
  Effect.map(Layer.build(TestClock.layer()), (context) => {
    const clock = Context.get(context, Clock.Clock) as TestClock.TestClock
    const scheduler = Context.get(context, Scheduler.Scheduler)

    let waiting = 0 // tasks that wait for their turn
    const counted: Scheduler.Scheduler = {
      executionMode: scheduler.executionMode,
      shouldYield: (fiber) => scheduler.shouldYield(fiber),
      makeDispatcher: () => {
        const dispatcher = scheduler.makeDispatcher()
        return {
          scheduleTask: (task, priority) => {
            waiting++
            dispatcher.scheduleTask(() => {
              try {
                task()
              } finally {
                waiting--
              }
            }, priority)
          },
          flush: () => dispatcher.flush()
        }
      }
    }

    const sleeps = new Set<{ readonly until: number }>()
    const now = () => clock.currentTimeMillisUnsafe()
    const watched: TestClock.TestClock = {
      ...clock,
      sleep: (duration) =>
        Effect.suspend(() => {
          const until = now() + Duration.toMillis(duration)
          if (!Number.isFinite(until)) return Effect.never
          const entry = { until }
          sleeps.add(entry)
          return Effect.ensuring(clock.sleep(duration), Effect.sync(() => sleeps.delete(entry)))
        })
    }

    let order = 0
    const due: Array<{ readonly at: number; readonly order: number; readonly action: Effect.Effect<void> }> = []
    const next = (): number => {
      let moment = due[0]?.at ?? Infinity
      for (const { until } of sleeps) moment = Math.min(moment, until)
      return moment
    }

    /** Lets everything run that can run at this moment. */
    const settle = Effect.gen(function*() {
      for (let turn = 0, quiet = 0; quiet < 2; turn++) {
        if (turn === maxTurns) return false
        yield* Effect.yieldNow
        quiet = waiting === 0 ? quiet + 1 : 0
      }
      return true
    })

    let steps = 0
    const drive = Effect.fnUntraced(function*(reached: () => boolean) {
      yield* clock.adjust(0)
      while (true) {
        if (!(yield* settle)) return "busy"
        if (reached()) return "done"
        const moment = next()
        if (moment === Infinity) return "idle"
        if (moment > options.horizonMillis) return "horizon"
        if (steps++ === options.maxSteps) return "busy"
        yield* clock.setTime(Math.max(moment, now()))
        if (!(yield* settle)) return "busy"
        while (due[0] !== undefined && due[0].at <= now()) {
          yield* due.shift()!.action
          if (!(yield* settle)) return "busy"
        }
      }
    })

    return {
      now,
      at: (millis, action) => {
        due.push({ at: millis, order: order++, action })
        due.sort((a, b) => a.at - b.at || a.order - b.order)
      },
      actions: () => due.length,
      drive,
      provide: (effect) =>
        effect.pipe(
          Effect.provideService(Clock.Clock, watched),
          Effect.provideService(Scheduler.Scheduler, counted)
        )
    }
  })
