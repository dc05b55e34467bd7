/**
 * Adapters for handlers that a fiber alone cannot stop: `Handler.promise` makes an `effect/ai` handler of a function that returns
 * a promise, with an abort signal, and with a stop that waits for the promise's own end. `Handler.worker` runs handlers that block
 * the thread on worker threads, where a stop ends the thread; `Handler.serve` is the worker's side of it.
 *
 * @since 0.1.0
 */

import type * as Tool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Layer from "effect/Layer"
import type * as Worker from "effect/workers/Worker"
import type * as WorkerError from "effect/workers/WorkerError"
import type * as WorkerRunner from "effect/workers/WorkerRunner"
import { Crossing, type End, plainCall, type Reply } from "./internal/handler/crossing.ts"
import * as Served from "./internal/handler/serve.ts"
import * as Threads from "./internal/handler/threads.ts"
import * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"

/**
 * What a promise handler is given beside its parameters.
 *
 * **Details**
 *
 * - `signal` is aborted when the call is interrupted: by its timeout, by a stop, or by a sibling.
 * - `preliminary` reports a preliminary result, which also moves the call's silence limit. It does not wait.
 * - `toolCallId` is the provider's id of the call.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface PromiseContext<in Success> {
  readonly signal: AbortSignal
  readonly preliminary: (result: Success) => void
  readonly toolCallId: string | undefined
}

/**
 * Makes a handler of `effect/ai` from a function that returns a promise.
 *
 * **Details**
 *
 * On interruption the signal is aborted, and the call ends when the promise has settled: a promise that ignores its signal is
 * work too, and what a turn promises holds for the work, not only for the fiber. The turn's grace bounds the wait. A write's
 * true end within the grace is what its call is answered.
 *
 * A rejection is a defect, unless `onError` turns it into the tool's own failure.
 *
 * **Example** (fetch as a handler)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { Handler } from "effect-turn"
 *
 * const getPage = Handler.promise(
 *   ({ url }: { readonly url: string }, { signal }) => Promise.resolve(`${url} ${signal.aborted}`)
 * )
 * const page = await Effect.runPromise(getPage({ url: "/a" }, { toolCallId: "c1", preliminary: () => Effect.void }))
 * const text = page // => "/a false"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const promise = <Params, A, E = never>(
  handler: (params: Params, context: PromiseContext<A>) => PromiseLike<A>,
  options?: { readonly onError?: ((error: unknown) => E) | undefined }
) =>
(
  params: Params,
  context: {
    readonly toolCallId?: string | undefined
    readonly preliminary: (result: A) => Effect.Effect<void>
  }
): Effect.Effect<A, E> => {
  const report: Report = { exit: undefined }
  const effect = Effect.withFiber<A, E>((fiber) =>
    Effect.callback<A, E>((resume) => {
      const controller = new AbortController()
      const onError = options?.onError
      const runFork = Effect.runForkWith(fiber.context)
      let running: PromiseLike<A>
      try {
        running = handler(params, {
          signal: controller.signal,
          preliminary: (result) => {
            runFork(context.preliminary(result))
          },
          toolCallId: context.toolCallId
        })
      } catch (error) {
        return resume(failed(error, onError) as Exit.Exit<never, E>)
      }
      let exit: Exit.Exit<A, E> | undefined
      let onSettled: (() => void) | undefined
      const settle = (end: Exit.Exit<A, E>) => {
        exit = end
        resume(end)
        onSettled?.()
      }
      // A promise that ends because of the abort says nothing about the work.
      let obeyed = false
      Promise.resolve(running).then(
        (value) => settle(Exit.succeed(value)),
        (error: unknown) => {
          obeyed = controller.signal.aborted && isAbort(error, controller.signal)
          settle(failed(error, onError) as Exit.Exit<never, E>)
        }
      )
      return Effect.callback<void>((done) => {
        onSettled = () => {
          // The fiber is interrupted all the same; what the work came to is known from here alone.
          if (!obeyed) report.exit = exit
          done(Effect.void)
        }
        if (exit !== undefined) return onSettled()
        controller.abort()
      })
    })
  )
  reports.set(effect, report)
  return effect
}

const isAbort = (error: unknown, signal: AbortSignal): boolean =>
  error === signal.reason ||
  (typeof error === "object" && error !== null && (error as { readonly name?: unknown }).name === "AbortError")

/** What a promise came to although its fiber was interrupted.
 *
 * @internal
 */
export interface Report {
  exit: Exit.Exit<unknown, unknown> | undefined
}

const reports = new WeakMap<object, Report>()

/** The report of exactly this effect. One that wraps it goes on after the promise, so the promise's end is not its own.
 *
 * @internal
 */
export const reportOf = (effect: unknown): Report | undefined =>
  typeof effect === "object" && effect !== null ? reports.get(effect) : undefined

/** Gives an effect the report of the one that it wraps, where it goes on after the promise with nothing that matters.
 *
 * @internal
 */
export const reportAs = <A, E, R>(
  own: Effect.Effect<A, E, R>,
  wrapped: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => {
  const report = reports.get(own)
  if (report !== undefined) reports.set(wrapped, report)
  return wrapped
}

const failed = (error: unknown, onError: ((error: unknown) => unknown) | undefined): Exit.Exit<never, unknown> => {
  if (onError === undefined) return Exit.die(error)
  try {
    return Exit.fail(onError(error))
  } catch (defect) {
    return Exit.die(defect)
  }
}

/**
 * Runs the handlers of a toolkit on worker threads: for work that blocks its thread, such as parsing, hashing, or compiling.
 *
 * **When to use**
 *
 * A handler that blocks the thread blocks every turn of the process, and no timeout can reach it. On a worker thread it
 * blocks nobody, and a read or a keyed write that is stopped, or has run out of time, is ended with its thread, at once.
 *
 * **Details**
 *
 * The layer has the handlers, and `size` threads for as long as it is open. It is there when they listen. They are started by
 * the platform's worker service, and have one call at a time. Their module says what runs there, with {@link serve}.
 *
 * - A call that is interrupted has its thread terminated, and ends when the thread has ended. Nothing in the worker is asked
 *   first, and no finaliser runs there. A write without a key is not interrupted, so it is awaited.
 * - A thread that ends by itself (an error that nobody catches, an exit) makes the call that it has a `defect` with the reason.
 * - In both cases a fresh thread is started in its place at once, and calls on other threads notice nothing. One that cannot be
 *   loaded is tried again when a call needs it; that call is the `defect`.
 * - Parameters, results, preliminary results and failures cross in the encoded forms of the tool's schemas. Of a defect, and of
 *   a failure that is not the tool's own, the words cross.
 * - `TurnContext.CurrentCall` crosses, with the conversation and the principal of the turn. Other services, spans and
 *   permits do not.
 * - When the layer is closed, threads that do nothing may close what they have open, and the others are terminated.
 *
 * **Gotchas**
 *
 * Waiting for a free thread is running time: the call has started by then. Put the tools on a backend, so that calls wait for a
 * permit instead, and give the pool one thread more than the backend has permits: a fresh thread takes its time to load, up to
 * a second for a worker that imports much, and without a spare one the next call would pay for that. Such a tool needs its backend; serve the tool as it was before `ToolPolicy.on`, or
 * the worker needs it as well.
 *
 * A worker of another kind, such as a child process or a shared worker, cannot be terminated like a thread, and is refused.
 *
 * **Example** (Factors of a number)
 *
 * ```ts
 * import { NodeWorker } from "@effect/platform-node"
 * import { Layer, pipe, Schema } from "effect"
 * import { Backend, Handler, ToolPolicy } from "effect-turn"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Worker } from "node:worker_threads"
 *
 * class Cores extends Backend.Service<Cores>()("Cores") {}
 *
 * const Factors = Tool.make("factors", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.Array(Schema.Int) })
 * const toolkit = Toolkit.make(pipe(Factors, ToolPolicy.read({ keys: () => [] }), ToolPolicy.on(Cores)))
 *
 * const handlers = Handler.worker(toolkit, { size: 2 }).pipe(
 *   Layer.provide(NodeWorker.layer(() => new Worker(new URL("./factors.worker.ts", import.meta.url)))),
 *   Layer.merge(Cores.layer({ concurrency: 2 }))
 * )
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const worker = <Tools extends Record<string, Tool.Any>>(
  toolkit: Toolkit.Toolkit<Tools>,
  options: { readonly size: number }
): Layer.Layer<
  Tool.HandlersFor<Tools>,
  never,
  | Worker.WorkerPlatform
  | Worker.Spawner
  | Tool.ParametersEncodingServices<Tools[keyof Tools]>
  | Tool.ResultDecodingServices<Tools[keyof Tools]>
> => {
  const size = TurnError.wholeNumber("Handler.worker", "size", options.size)
  const handlers = Effect.map(
    Threads.make(size),
    (threads) =>
      Object.fromEntries(Object.entries(toolkit.tools).map(([name, tool]) => [name, onThread(threads, tool)]))
  )
  return toolkit.toLayer(handlers as any) as Layer.Layer<Tool.HandlersFor<Tools>, never, any>
}

const onThread = (threads: Threads.Threads, tool: Tool.Any) => {
  const crossing = new Crossing(tool)
  return (params: unknown, context: Toolkit.HandlerContext<Tool.Any>): Effect.Effect<unknown, unknown, any> => {
    const report: Report = { exit: undefined }
    const talk = Effect.fnUntraced(function*(next: Effect.Effect<Reply>) {
      for (;;) {
        const reply = yield* next
        if (reply._tag !== "Progress") return yield* crossing.settle(reply)
        yield* context.preliminary((yield* crossing.unpack("success", reply.value)) as never)
      }
    })
    // The answer was on its way when the call was stopped.
    const late = (end: End) =>
      Effect.map(Effect.exit(crossing.settle(end)), (exit) => {
        report.exit = exit
      })
    const effect = Effect.gen(function*() {
      const encoded = yield* Effect.orDie(crossing.encodeParams(params))
      const current = yield* TurnContext.CurrentCall
      const call = current === undefined ? undefined : plainCall(current)
      return yield* threads.use(
        { tool: tool.name, toolCallId: context.toolCallId, params: encoded, call },
        { talk, late }
      )
    })
    reports.set(effect, report)
    return effect
  }
}

/**
 * Serves the handlers of a toolkit in a worker thread, for {@link worker}: what the module of the worker runs.
 *
 * **Details**
 *
 * The handlers are those of `toolkit.toLayer`, as on the main thread. They may block. The effect goes on until the worker is
 * told to close, and needs the platform's worker runner.
 *
 * The tools may be those of the program, or the same without their policies: names and schemas are what counts. Each
 * thread loads its module for itself, which takes time: import single modules there, not the whole of a package.
 *
 * **Example** (The module `factors.worker.ts`)
 *
 * ```ts
 * import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
 * import * as NodeWorkerRunner from "@effect/platform-node/NodeWorkerRunner"
 * import { Effect, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import * as Handler from "effect-turn/Handler"
 *
 * const Factors = Tool.make("factors", { parameters: Schema.Struct({ n: Schema.Int }), success: Schema.Array(Schema.Int) })
 * const toolkit = Toolkit.make(Factors)
 *
 * const factors = (n: number) => {
 *   const found: Array<number> = []
 *   for (let d = 2; n > 1; d++) {
 *     for (; n % d === 0; n /= d) found.push(d)
 *   }
 *   return found
 * }
 *
 * Handler.serve(toolkit).pipe(
 *   Effect.provide([toolkit.toLayer({ factors: ({ n }) => Effect.sync(() => factors(n)) }), NodeWorkerRunner.layer]),
 *   NodeRuntime.runMain
 * )
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const serve = <Tools extends Record<string, Tool.Any>>(
  toolkit: Toolkit.Toolkit<Tools>
): Effect.Effect<
  void,
  WorkerError.WorkerError,
  Tool.HandlersFor<Tools> | Tool.HandlerServices<Tools[keyof Tools]> | WorkerRunner.WorkerRunnerPlatform
> => Served.serve(toolkit.tools)
