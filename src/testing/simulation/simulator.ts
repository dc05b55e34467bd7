/**
 * One queue of tasks, one virtual clock, one thread of choices: everything that the fibers of a program do under it happens in
 * steps, and what the steps are is up to the choices alone.
 *
 * - **S1** A step is one task, run to its end. Tasks of all fibers stand in one queue; which of them is next is a choice.
 * - **S2** A fiber may be made to give way at each of its operations; what it does between two of them is never divided, for
 *   that is how JavaScript is.
 * - **S3** Time moves only when no task is left and all promises have settled, and to the next moment that somebody sleeps
 *   until. All who sleep until one moment become tasks of that moment.
 * - **S4** What comes in from outside (a promise that has settled, a callback of the platform) becomes a task too.
 * - **S5** Driving ends: when the goal is reached, when nothing is left that could happen, at the horizon, or after a bounded
 *   number of steps. Work that hangs is seen, not waited for.
 * - **S6** What has crashed does nothing any more: no operation of its fibers runs, no finalizer, no end of a sleep.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Scheduler from "effect/Scheduler"
import type { Choices } from "./choices.ts"
import { Tracer } from "./trace.ts"

/**
 * How driving ended: the goal was reached (`done`), nothing is left that could happen (`idle`), the next thing lies beyond the
 * horizon (`horizon`), or the steps ran out (`busy`).
 */
export type Ended = "done" | "idle" | "horizon" | "busy"

interface Task {
  readonly run: () => void
  readonly dispatcher: Dispatcher | undefined
  readonly process: Process
}

interface Sleeper {
  readonly until: number
  readonly wake: () => void
  readonly process: Process
}

interface Action {
  readonly at: number
  readonly run: () => void
}

class Dispatcher implements Scheduler.SchedulerDispatcher {
  private readonly process: Process
  private readonly simulator: Simulator
  constructor(simulator: Simulator, process: Process) {
    this.simulator = simulator
    this.process = process
  }
  scheduleTask(run: () => void): void {
    this.simulator.enqueue(run, this.process, this)
  }
  /** Runs what waits here at once, as whoever flushes asks for. */
  flush(): void {
    this.simulator.flush(this)
  }
}

/** Fibers that can be lost together: they have a scheduler and a clock of their own, by which they are known. */
export interface Process {
  readonly scheduler: Scheduler.Scheduler
  readonly clock: Clock.Clock
  /** Nothing of it goes on any more. */
  dead: boolean
}

/** Runs a function in the next turn of the event loop, when all promises that can settle have. */
const nextTurn = new Scheduler.MixedScheduler("async").setImmediate

const nanos = (millis: number): bigint => BigInt(Math.round(millis * 1_000_000))

export interface Limits {
  readonly horizonMillis: number
  readonly maxSteps: number
}

export class Simulator {
  private limits: Limits
  readonly choices: Choices
  readonly tracer: Tracer | undefined
  /** The virtual time in milliseconds. */
  now = 0
  steps = 0
  /** Operations of fibers so far: the places at which a fiber can be made to give way. */
  points = 0
  private readonly queue: Array<Task> = []
  /** Sorted by time, equal ones in the order of registration. */
  private readonly sleepers: Array<Sleeper> = []
  private readonly actions: Array<Action> = []
  private readonly watchers: Array<{ readonly point: number; readonly wake: () => void }> = []
  private nextWatched = Number.MAX_SAFE_INTEGER
  private urgent: Task | undefined = undefined
  private inStep = false
  /** Simulations inside this one that are at work: what they come to comes in from outside. */
  private inner = 0
  /** The fiber that this step has gone on with first; others run inside it, and when they give way it goes on. */
  private base: object | undefined = undefined
  /** Something came in from outside: promises are in play. */
  outside = false
  private defect: { readonly thrown: unknown } | undefined = undefined

  constructor(choices: Choices, limits: Limits, traced: boolean) {
    this.choices = choices
    this.limits = limits
    this.tracer = traced ? new Tracer() : undefined
  }

  /** The process of what is started from outside. */
  private readonly root: Process = this.process()

  /** Makes a process in which nothing runs yet. */
  process(): Process {
    const process: Process = {
      dead: false,
      scheduler: {
        executionMode: "async",
        shouldYield: (fiber) => this.shouldYield(fiber, process),
        makeDispatcher: () => new Dispatcher(this, process)
      },
      clock: {
        currentTimeMillisUnsafe: () => this.now,
        currentTimeMillis: Effect.sync(() => this.now),
        currentTimeNanosUnsafe: () => nanos(this.now),
        currentTimeNanos: Effect.sync(() => nanos(this.now)),
        monotonicTimeNanosUnsafe: () => nanos(this.now),
        monotonicTimeNanos: Effect.sync(() => nanos(this.now)),
        sleep: (duration) => {
          const millis = Duration.toMillis(duration)
          if (millis <= 0) return Effect.yieldNow
          if (millis === Infinity) return Effect.never
          return Effect.callback((resume) => {
            const sleeper: Sleeper = { until: this.now + millis, wake: () => resume(Effect.void), process }
            this.addSleeper(sleeper)
            return Effect.sync(() => this.removeSleeper(sleeper))
          })
        }
      }
    }
    return process
  }

  /**
   * Ends a process where it stands: its tasks are gone and nobody wakes its fibers. What comes to one of them from elsewhere makes it give
   * way, which it does for ever (S6).
   */
  crash(process: Process): void {
    process.dead = true
    const lives = (one: { readonly process: Process }) => one.process !== process
    this.queue.splice(0, this.queue.length, ...this.queue.filter(lives))
    this.sleepers.splice(0, this.sleepers.length, ...this.sleepers.filter(lives))
  }

  /** What a program needs to run under this simulator, in place of the platform's own. */
  provideTo<R>(
    context: Context.Context<R>,
    random: Random.Random,
    process: Process = this.root
  ): Context.Context<R> {
    return context.pipe(
      Context.add(Clock.Clock, process.clock),
      Context.add(Scheduler.Scheduler, process.scheduler),
      Context.add(Random.Random, random),
      Context.add(Current, this),
      // What one run has built is not for another.
      Context.add(Layer.CurrentMemoMap, Layer.makeMemoMapUnsafe())
    ) as Context.Context<R>
  }

  /** Does something of the program's from outside it: it counts as a step. */
  enter<A>(f: () => A): A {
    const { inStep } = this
    this.inStep = true
    try {
      return f()
    } finally {
      this.inStep = inStep
    }
  }

  /** Starts an effect in a fiber of its own. */
  fork<A, E>(effect: Effect.Effect<A, E, any>, context: Context.Context<any>, name: string): Fiber.Fiber<A, E> {
    return this.enter(() => {
      this.base = undefined
      this.tracer?.step(this.steps, this.now, 1, 0)
      this.tracer?.expect(name)
      return Effect.runForkWith(context)(effect)
    })
  }

  enqueue(run: () => void, process: Process, dispatcher: Dispatcher | undefined): void {
    if (!process.dead) this.queue.push({ run, dispatcher, process })
  }

  flush(dispatcher: Dispatcher): void {
    for (let at = this.find(dispatcher); at !== -1; at = this.find(dispatcher)) {
      const [task] = this.queue.splice(at, 1)
      this.enter(task!.run)
    }
  }

  private find(dispatcher: Dispatcher): number {
    return this.queue.findIndex((task) => task.dispatcher === dispatcher)
  }

  private shouldYield(fiber: Fiber.Fiber<unknown, unknown>, process: Process): boolean {
    if (process.dead) return true
    if (!this.inStep) {
      this.outside = true
      return true
    }
    this.tracer?.ran(fiber)
    if (++this.points >= this.nextWatched) {
      this.wakeWatcher()
      this.tracer?.gaveWay(fiber)
      return true
    }
    if (this.base === undefined) {
      // To give way at the beginning of a step is no more than another order of tasks.
      this.base = fiber
    } else if (this.choices.switches(this.queue.length === 0 && fiber === this.base)) {
      this.tracer?.gaveWay(fiber)
      return true
    }
    return fiber.currentOpCount >= fiber.cache.maxOpsBeforeYield
  }

  /** Succeeds when a point is reached; the fiber that reaches it gives way, and what waits here runs next. */
  point(point: number): Effect.Effect<void> {
    return Effect.callback((resume) => {
      const watcher = { point, wake: () => resume(Effect.void) }
      this.watchers.push(watcher)
      this.watch()
      return Effect.sync(() => {
        const at = this.watchers.indexOf(watcher)
        if (at !== -1) this.watchers.splice(at, 1)
        this.watch()
      })
    })
  }

  private watch(): void {
    this.watchers.sort((a, b) => a.point - b.point)
    this.nextWatched = this.watchers[0]?.point ?? Number.MAX_SAFE_INTEGER
  }

  private wakeWatcher(): void {
    const { wake } = this.watchers.shift()!
    this.watch()
    this.urgent = { run: wake, dispatcher: undefined, process: this.root }
  }

  private addSleeper(sleeper: Sleeper): void {
    const { sleepers } = this
    let at = sleepers.length
    while (at > 0 && sleepers[at - 1]!.until > sleeper.until) at--
    sleepers.splice(at, 0, sleeper)
  }

  private removeSleeper(sleeper: Sleeper): void {
    const at = this.sleepers.indexOf(sleeper)
    if (at !== -1) this.sleepers.splice(at, 1)
  }

  /** Does something at a moment, after all that happens in it. Equal moments keep the order of registration. */
  at(millis: number, run: () => void): void {
    const { actions } = this
    let at = actions.length
    while (at > 0 && actions[at - 1]!.at > millis) at--
    actions.splice(at, 0, { at: millis, run })
  }

  /** Waits with time while a simulation inside this one is at work. */
  within<A, E, R>(inner: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.acquireUseRelease(
      Effect.sync(() => this.inner++),
      () => inner,
      () => Effect.sync(() => this.inner--)
    )
  }

  /** Lets a run that did not end go on for a little, so that it can be interrupted. */
  extend(): void {
    this.limits = { horizonMillis: this.limits.horizonMillis + 60_000, maxSteps: this.steps + 10_000 }
  }

  note(text: string): void {
    this.tracer?.note(this.now, text)
  }

  /**
   * Runs steps until the goal is reached, or no further. `"settled"` looks at the goal only when nothing more can happen at the
   * present moment, `"step"` after each step.
   */
  drive(reached: () => boolean, look: "step" | "settled"): Effect.Effect<Ended> {
    return Effect.callback((resume) => {
      let cancelled = false
      let asked = false
      const loop = (): void => {
        for (;;) {
          if (cancelled) return
          if (this.defect !== undefined) return resume(Effect.die(this.defect.thrown))
          if (look === "step" && reached()) return resume(Effect.succeed("done"))
          if (this.queue.length === 0 && this.urgent === undefined) {
            nextTurn(settled)
            return
          }
          if (!asked && this.urgent === undefined && this.choices.settles()) {
            asked = true
            nextTurn(loop)
            return
          }
          asked = false
          if (this.steps++ >= this.limits.maxSteps) return resume(Effect.succeed("busy"))
          this.step()
        }
      }
      /** Promises have settled; if nothing came of it, the moment is over. */
      const settled = (): void => {
        if (cancelled || this.queue.length > 0 || this.urgent !== undefined) return loop()
        if (look === "settled" && reached()) return resume(Effect.succeed("done"))
        if (this.inner > 0) {
          nextTurn(settled)
          return
        }
        const ended = this.nextMoment()
        if (ended !== undefined) return resume(Effect.succeed(ended))
        loop()
      }
      if (this.queue.length === 0 && this.urgent === undefined) nextTurn(settled)
      else loop()
      return Effect.sync(() => {
        cancelled = true
      })
    })
  }

  /** Runs one task. */
  private step(): void {
    const { queue, urgent } = this
    let chosen = 0
    let task: Task
    if (urgent !== undefined) {
      this.urgent = undefined
      task = urgent
      this.tracer?.step(this.steps, this.now, queue.length + 1, 0)
    } else {
      chosen = this.choices.task(queue.length)
      this.tracer?.step(this.steps, this.now, queue.length, chosen)
      task = chosen === 0 ? queue.shift()! : queue.splice(chosen, 1)[0]!
    }
    this.base = undefined
    try {
      this.enter(task.run)
    } catch (thrown) {
      this.defect = { thrown }
    }
  }

  /** Moves on to the next thing that is to happen: an action of the present moment, or the next moment. */
  private nextMoment(): Ended | undefined {
    const action = this.actions[0]
    const moment = this.sleepers[0]?.until ?? Infinity
    if (action !== undefined && Math.max(action.at, this.now) < moment) {
      if (action.at > this.limits.horizonMillis) return "horizon"
      this.actions.shift()
      this.now = Math.max(action.at, this.now)
      this.enqueue(action.run, this.root, undefined)
      return undefined
    }
    if (moment === Infinity) return "idle"
    if (moment > this.limits.horizonMillis) return "horizon"
    this.now = moment
    while (this.sleepers[0]?.until === moment) {
      const { process, wake } = this.sleepers.shift()!
      this.enqueue(wake, process, undefined)
    }
    return undefined
  }
}

/** The simulator that a program runs under, if any. */
export const Current = Context.Reference<Simulator | undefined>("effect-turn/testing/Simulation/Current", {
  defaultValue: () => undefined
})

/** What became of a program. */
export interface Driven<A, E> {
  readonly exit: Exit.Exit<A, E> | undefined
  readonly ended: Ended
  /** The virtual time of that. */
  readonly at: number
}

/**
 * Runs a program under a simulator to its end, or as far as it comes: one that does not end is interrupted, so that what it holds
 * is given back. Interruption interrupts the program and drives its end.
 */
export const runIn = <A, E, R>(
  simulator: Simulator,
  program: Effect.Effect<A, E, R>,
  random: Random.Random
): Effect.Effect<Driven<A, E>, never, R> =>
  Effect.contextWith((context: Context.Context<R>) => {
    const run = Effect.uninterruptibleMask((restore) => {
      let exit: Exit.Exit<A, E> | undefined
      const fiber = simulator.fork(program, simulator.provideTo(context, random), "the program")
      fiber.addObserver((end) => {
        exit = end
      })
      const drive = simulator.drive(() => exit !== undefined, "step")
      const stop = Effect.suspend(() => {
        simulator.extend()
        simulator.enter(() => fiber.interruptUnsafe())
        return drive
      })
      return restore(drive).pipe(
        Effect.map((ended): Driven<A, E> => ({ exit, ended, at: simulator.now })),
        Effect.tap(({ exit }) => exit === undefined ? stop : Effect.void),
        Effect.onInterrupt(() => stop)
      )
    })
    const outer = Context.get(context as Context.Context<never>, Current)
    return outer === undefined ? run : outer.within(run)
  })
