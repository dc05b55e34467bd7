/**
 * All clocks of a turn in one structure: a heap of deadlines and at most one sleeping fiber, for the earliest of them.
 *
 * Entries are never taken out early: whoever set one forgets it, and it is dropped when its time comes.
 */
import type * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import type * as Scheduler from "effect/Scheduler"

export interface Timer {
  readonly at: number
  /** Equal times come in the order in which they were set. */
  readonly order: number
  /** Called with the owner when the time has come, unless `off`. */
  readonly fire: (owner: any) => void
  readonly owner: unknown
  off: boolean
}

const comesFirst = (a: Timer, b: Timer): boolean => a.at < b.at || (a.at === b.at && a.order < b.order)

/**
 * Those that want to sleep, all of one program together. Whoever has closed by the time the scheduler gets to it is not among
 * them any more, so that many short turns in a row leave nothing behind.
 */
export class Sleepers {
  private readonly dispatcher: Scheduler.SchedulerDispatcher
  private readonly waiting = new Set<Timers>()
  private scheduled = false

  constructor(dispatcher: Scheduler.SchedulerDispatcher) {
    this.dispatcher = dispatcher
  }

  add(timers: Timers): void {
    this.waiting.add(timers)
    if (this.scheduled) return
    this.scheduled = true
    this.dispatcher.scheduleTask(this.run, 0)
  }

  delete(timers: Timers): void {
    this.waiting.delete(timers)
  }

  private readonly run = (): void => {
    this.scheduled = false
    const all = Array.from(this.waiting)
    this.waiting.clear()
    for (const timers of all) timers.sleep()
  }
}

export class Timers {
  private readonly clock: Clock.Clock
  private readonly context: Context.Context<never>
  private heap: Array<Timer> = []
  private sleeping: Fiber.Fiber<void> | undefined = undefined
  private sleepingUntil = Infinity
  /** The time of the current step, read once for everything that happens in it. */
  private cached = -1
  private firing = false
  private order = 0

  private armed = false
  private readonly sleepers: Sleepers

  constructor(clock: Clock.Clock, context: Context.Context<never>, sleepers: Sleepers) {
    this.clock = clock
    this.context = context
    this.sleepers = sleepers
  }

  /** Milliseconds on a clock that never goes back. */
  now(): number {
    if (this.cached >= 0) return this.cached
    return this.cached = Number(this.clock.monotonicTimeNanosUnsafe() / 1000n) / 1000
  }

  /** Ends a step: the next one reads the clock again. */
  tick(): void {
    this.cached = -1
  }

  /** Sets a timer; it is slept for when {@link arm} is next called. */
  set<Owner>(after: number, fire: (owner: Owner) => void, owner: Owner): Timer | undefined {
    return after === Infinity ? undefined : this.setAt(this.now() + after, fire, owner)
  }

  setAt<Owner>(at: number, fire: (owner: Owner) => void, owner: Owner): Timer | undefined {
    if (at === Infinity) return undefined
    const timer: Timer = { at, order: this.order++, fire, owner, off: false }
    const heap = this.heap
    let i = heap.length
    while (i > 0) {
      const up = (i - 1) >> 1
      if (comesFirst(heap[up]!, timer)) break
      heap[i] = heap[up]!
      i = up
    }
    heap[i] = timer
    return timer
  }

  private pop(): void {
    const heap = this.heap
    const last = heap.pop()!
    if (heap.length === 0) return
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && comesFirst(heap[child + 1]!, heap[child]!)) child++
      if (comesFirst(last, heap[child]!)) break
      heap[i] = heap[child]!
      i = child
    }
    heap[i] = last
  }

  /**
   * Sees to it that somebody sleeps for the earliest timer. It is done with the scheduler's next tasks: most calls have ended by
   * then, and their clocks cost nothing.
   */
  arm(): void {
    if (this.armed || this.firing || this.heap.length === 0 || this.sleepingUntil <= this.heap[0]!.at) return
    this.armed = true
    this.sleepers.add(this)
  }

  sleep(): void {
    this.armed = false
    const heap = this.heap
    while (heap.length > 0 && heap[0]!.off) this.pop()
    if (heap.length === 0) return
    const at = heap[0]!.at
    // A sleep that is too early is cheaper to let pass than to replace.
    if (this.sleepingUntil <= at) return
    this.tick()
    this.sleeping?.interruptUnsafe()
    this.sleepingUntil = at
    const fiber = Effect.runForkWith(this.context)(this.clock.sleep(Duration.millis(Math.max(0, at - this.now()))))
    this.sleeping = fiber
    fiber.addObserver((exit) => {
      if (this.sleeping !== fiber || exit._tag === "Failure") return
      this.sleeping = undefined
      this.sleepingUntil = Infinity
      this.tick()
      this.due(at)
    })
  }

  /** The time `at` has come, whatever the clock's own rounding says. */
  private due(at: number): void {
    const now = Math.max(at, this.now())
    const heap = this.heap
    this.firing = true
    while (heap.length > 0 && heap[0]!.at <= now) {
      const timer = heap[0]!
      this.pop()
      if (!timer.off) timer.fire(timer.owner)
    }
    this.firing = false
    this.sleep()
  }

  /** Stops sleeping; `then` is called when the sleeping fiber has ended. */
  close(then: () => void): void {
    this.heap.length = 0
    if (this.armed) this.sleepers.delete(this)
    this.sleepingUntil = -1
    const fiber = this.sleeping
    this.sleeping = undefined
    if (fiber === undefined) return then()
    fiber.interruptUnsafe()
    fiber.addObserver(then)
  }
}
