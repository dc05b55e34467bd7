/**
 * A pool of worker threads for work that blocks.
 *
 * - W1: a thread has one call at a time, from its message to its end; it is idle only when no code of a call runs on it.
 * - W2: a call ends with its thread's answer, or with its thread. A call that goes away earlier ends its thread, unless its
 *   message had not been sent: then the thread has not met it.
 * - W3: there are never more threads than places. One that has ended is replaced at once if it had met a call; one that ends
 *   before that is replaced when a call needs it, so a module that cannot be loaded is not loaded over and over.
 * - W4: when the pool has been closed, no thread runs.
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as Worker from "effect/workers/Worker"
import * as WorkerError from "effect/workers/WorkerError"
import type { Ask, End, Reply } from "./crossing.ts"

/** What the platform's spawner has to give: the one way to end what hears nothing. */
interface Native {
  readonly terminate: () => unknown
}

const isNative = (value: unknown): value is Native =>
  typeof (value as Partial<Native> | null | undefined)?.terminate === "function"

/** One worker thread, and the replies that have come from it. */
class Thread {
  /** It listens. */
  ready = false
  /** A call has been sent to it at some time. */
  met = false
  /** A call has been sent to it, and its end has not come. */
  busy = false
  /** Why there will be no more of it. */
  over: string | undefined = undefined
  private native: Native | undefined = undefined
  private worker: Worker.Worker<Reply, Ask> | undefined = undefined
  private fiber: Fiber.Fiber<never, WorkerError.WorkerError> | undefined = undefined
  private readonly replies: Array<Reply> = []
  private wake: (() => void) | undefined = undefined

  start(context: Context.Context<Services>, id: number, onOver: () => void): void {
    const run = Effect.gen({ self: this }, function*() {
      const platform = yield* Worker.WorkerPlatform
      const spawner = yield* Worker.Spawner
      this.worker = yield* platform.spawn<Reply, Ask>(id).pipe(
        Effect.provideService(Worker.Spawner, (id) => this.native = nativeOf(spawner(id)))
      )
      return yield* this.worker.run((reply) => {
        // At once, not in the effect: an answer that has arrived is known also when the thread ends next.
        this.replies.push(reply)
        if (reply._tag !== "Progress") this.busy = false
        this.wake?.()
        return Effect.void
      }, {
        onSpawn: Effect.sync(() => {
          this.ready = true
          this.wake?.()
        })
      })
    })
    this.fiber = Effect.runForkWith(context)(run)
    this.fiber.addObserver((exit) => {
      this.over = whyOver(exit)
      // An error event need not have ended it, on every platform.
      void this.native?.terminate()
      onOver()
      this.wake?.()
    })
  }

  send(ask: Ask): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.met = true
      this.busy = true
      return this.worker!.send(ask)
    }).pipe(Effect.catchCause((cause) => {
      this.busy = false
      return Effect.die(new Error(`the call could not be sent to its worker thread: ${wordsOfCause(cause)}`))
    }))
  }

  /** Waits until it listens. */
  get whenReady(): Effect.Effect<void> {
    return this.when(() => this.ready ? Exit.void : undefined)
  }

  /** The next reply. */
  get next(): Effect.Effect<Reply> {
    return this.when(() => {
      const reply = this.replies.shift()
      return reply === undefined ? undefined : Exit.succeed(reply)
    })
  }

  /** Forgets what nobody has read, and gives the end of the call if that was among it. */
  forget(): End | undefined {
    const reply = this.replies.splice(0).at(-1)
    return reply === undefined || reply._tag === "Progress" ? undefined : reply
  }

  private when<A>(get: () => Exit.Exit<A> | undefined): Effect.Effect<A> {
    return Effect.callback((resume) => {
      const look = () => {
        const exit = get() ??
          (this.over === undefined ? undefined : Exit.die(new Error(`the worker thread has ended: ${this.over}`)))
        if (exit === undefined) return false
        this.wake = undefined
        resume(exit)
        return true
      }
      if (look()) return
      this.wake = look
      return Effect.sync(() => {
        this.wake = undefined
      })
    })
  }

  /** Ends it, whatever it does, and waits for its end. */
  get terminate(): Effect.Effect<void> {
    return Effect.promise(async () => this.native?.terminate()).pipe(
      Effect.andThen(Fiber.interrupt(this.fiber!)),
      Effect.asVoid,
      Effect.uninterruptible
    )
  }

  /** Lets one that does nothing close what it has open, within the time that its platform gives it. */
  get close(): Effect.Effect<void> {
    return this.ready && !this.busy ? Effect.asVoid(Fiber.interrupt(this.fiber!)) : this.terminate
  }
}

const nativeOf = (value: unknown): Native => {
  if (isNative(value)) return value
  throw new TypeError("expected the spawner to give a worker thread, and got something without `terminate`")
}

const wordsOfCause = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  if (!WorkerError.isWorkerError(error)) return error instanceof Error ? error.message : String(error)
  const { cause: inner, message } = error.reason
  return inner instanceof Error ? `${message} (${inner.name}: ${inner.message})` : message
}

const whyOver = (exit: Exit.Exit<never, WorkerError.WorkerError>): string =>
  Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause) ? wordsOfCause(exit.cause) : "it was stopped"

/** What a call does with its thread, and what is done with an end that came although the call had gone away. */
interface Talk<A, R> {
  readonly talk: (next: Effect.Effect<Reply>) => Effect.Effect<A, unknown, R>
  readonly late: (end: End) => Effect.Effect<void, never, R>
}

type Services = Worker.WorkerPlatform | Worker.Spawner

export interface Threads {
  readonly use: <A, R>(ask: Ask, talk: Talk<A, R>) => Effect.Effect<A, unknown, R>
}

/** A pool of `size` threads, for as long as its scope is open. They listen when it is there, or have failed to load. */
export const make = (size: number): Effect.Effect<Threads, never, Services | Scope.Scope> =>
  Effect.gen(function*() {
    const context = yield* Effect.context<Services>()
    const places = yield* Semaphore.make(size)
    const all = new Set<Thread>()
    const idle: Array<Thread> = []
    let closed = false
    let count = 0

    const start = (): Thread => {
      const thread = new Thread()
      all.add(thread)
      thread.start(context, count++, () => {
        all.delete(thread)
        const at = idle.indexOf(thread)
        if (at !== -1) idle.splice(at, 1)
        if (thread.met && !closed) rest(start())
      })
      return thread
    }

    const rest = (thread: Thread): void => {
      if (thread.over === undefined) idle.push(thread)
    }

    const take = Effect.suspend(() => {
      if (closed) return Effect.die(new Error("the pool of worker threads has been closed"))
      // One that listens; else the last, which is loading; else one more.
      const [thread] = idle.splice(idle.findLastIndex((thread) => thread.ready), 1)
      return Effect.succeed(thread ?? start())
    })

    /** The place is the next call's: with a thread that does nothing, or with none. */
    const leave = <A, R>(thread: Thread, exit: Exit.Exit<A, unknown>, late: Talk<A, R>["late"]) =>
      Effect.andThen(
        thread.busy && thread.over === undefined ? thread.terminate : Effect.void,
        Effect.suspend(() => {
          const end = thread.forget()
          rest(thread)
          return end === undefined || Exit.isSuccess(exit) ? Effect.void : late(end)
        })
      )

    const use = <A, R>(ask: Ask, { late, talk }: Talk<A, R>): Effect.Effect<A, unknown, R> =>
      Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(take, (thread) =>
          restore(thread.whenReady).pipe(
            Effect.andThen(thread.send(ask)),
            Effect.andThen(restore(talk(thread.next))),
            Effect.onExit((exit) => leave(thread, exit, late))
          ))
      )

    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        closed = true
        return Effect.forEach(all, (thread) => thread.close, { concurrency: "unbounded", discard: true })
      })
    )
    for (let i = 0; i < size; i++) rest(start())
    yield* Effect.forEach(idle.slice(), (thread) => Effect.exit(thread.whenReady), {
      concurrency: "unbounded",
      discard: true
    })
    return { use: (ask, talk) => places.withPermit(use(ask, talk)) }
  })
