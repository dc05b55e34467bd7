/**
 * Adapters for handlers that are not effects: `Handler.promise` makes an `effect/ai` handler of a function that returns a promise,
 * with an abort signal, and with a stop that waits for the promise's own end.
 *
 * @since 0.1.0
 */

import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"

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
