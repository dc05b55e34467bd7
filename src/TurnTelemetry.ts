/**
 * Turns as spans and metrics, under OpenTelemetry's names for generative AI where there are any, and `effect_turn.` elsewhere.
 *
 * No idempotency key is in any of it. Arguments and results are not either, unless you ask for them.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Handler from "./Handler.ts"
import type * as Outcome from "./Outcome.ts"
import * as TurnContext from "./TurnContext.ts"
import type * as TurnEvent from "./TurnEvent.ts"
import * as TurnMiddleware from "./TurnMiddleware.ts"

/**
 * A middleware that puts each run of a handler into a span `execute_tool {tool}`, child of the span in which the turn is run.
 *
 * **Details**
 *
 * The span begins when the call is started: what it waited for is told by {@link recorder}. `contents` adds the arguments and the
 * result as JSON (`gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`). Default: false.
 *
 * A call that is tried again has a span for each run, with the number of the run as `effect_turn.attempt`; the span in which the turn is
 * run has an event `effect_turn.call.retry` for each run after the first. The conventions have no names for these.
 *
 * Put it first in the list, so that whatever else is around the handler is inside the span.
 *
 * **Example** (A span for each call)
 *
 * ```ts import.meta.vitest
 * import { Effect, pipe, Schema, Tracer } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ToolCall, ToolPolicy, Turn, TurnTelemetry } from "effect-turn"
 *
 * const Look = pipe(Tool.make("look", { success: Schema.String }), ToolPolicy.read({ keys: () => [] }))
 * const toolkit = Toolkit.make(Look)
 * const handlers = toolkit.toLayer({ look: () => Effect.succeed("free").pipe(Effect.withSpan("query")) })
 *
 * const spans: Array<Tracer.NativeSpan> = []
 * const tracer = Tracer.make({
 *   span: (options) => {
 *     const span = new Tracer.NativeSpan(options)
 *     spans.push(span)
 *     return span
 *   }
 * })
 * await Turn.run(toolkit, [ToolCall.make("c1", "look")], { middleware: [TurnTelemetry.spans()] }).pipe(
 *   Effect.provide([handlers, Turn.layer()]),
 *   Effect.withTracer(tracer),
 *   Effect.runPromise
 * )
 * const names = spans.map((span) => span.name) // => ["execute_tool look", "query"]
 * ```
 *
 * @category middleware
 * @since 0.1.0
 * @stability experimental
 */
export const spans = (
  options?: { readonly contents?: boolean | undefined }
): TurnMiddleware.TurnMiddleware => {
  const contents = options?.contents === true
  return TurnMiddleware.make("TurnTelemetry.spans", {
    around: (handler, { id, identity, params, position, tool }) => {
      const attempted = Effect.flatMap(TurnContext.CurrentCall, (call) => {
        const attempt = call?.attempt ?? 1
        const spanned = handler.pipe(
          Effect.onExit((exit) => Effect.annotateCurrentSpan(ended(exit, contents))),
          Effect.withSpan(`execute_tool ${tool.name}`, {
            kind: "internal",
            attributes: {
              "gen_ai.operation.name": "execute_tool",
              "gen_ai.tool.name": tool.name,
              "gen_ai.tool.type": "function",
              ...(id === "" ? undefined : { "gen_ai.tool.call.id": id }),
              ...(tool.description === undefined ? undefined : { "gen_ai.tool.description": tool.description }),
              ...(identity.conversation === undefined
                ? undefined
                : { "gen_ai.conversation.id": identity.conversation }),
              ...(contents ? { "gen_ai.tool.call.arguments": json(params) } : undefined),
              "effect_turn.turn": identity.turn,
              "effect_turn.position": position,
              "effect_turn.tenant": identity.tenant,
              "effect_turn.attempt": attempt
            }
          })
        )
        return attempt === 1 ? spanned : Effect.andThen(
          tellRetry({
            "gen_ai.tool.name": tool.name,
            "effect_turn.position": position,
            "effect_turn.attempt": attempt
          }),
          spanned
        )
      })
      return Handler.reportAs(handler, attempted)
    }
  })
}

/** An event on the span in which the turn is run, where there is one. */
const tellRetry = (attributes: Record<string, unknown>): Effect.Effect<void> =>
  Effect.ignore(
    Effect.flatMap(Effect.currentSpan, (span) =>
      Effect.map(Clock.currentTimeNanos, (now) => span.event("effect_turn.call.retry", now, attributes)))
  )

const ended = (exit: Exit.Exit<unknown, unknown>, contents: boolean): Record<string, unknown> => {
  if (Exit.isSuccess(exit)) return contents ? { "gen_ai.tool.call.result": json(exit.value) } : {}
  const { cause } = exit
  return { "error.type": Cause.hasDies(cause) ? "defect" : Cause.hasFails(cause) ? "failed" : "interrupted" }
}

const json = (value: unknown): string => {
  try {
    return JSON.stringify(value) ?? "null"
  } catch {
    return "not JSON"
  }
}

/**
 * How long handlers ran, in seconds, by tool, each run for itself; `error.type` where a run did not end in `ok`.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const duration = Metric.histogram("gen_ai.execute_tool.duration", {
  description: "How long the handler of a tool ran, in seconds",
  boundaries: [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
})

/**
 * How long started calls had waited, in seconds, by tool and cause: `keys`, `permit`, `rate`, `approval`.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const waited = Metric.histogram("effect_turn.call.wait", {
  description: "How long a call waited before its handler was started, in seconds",
  boundaries: [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 600, 3600]
})

/**
 * Answered calls, by tool, status, code, and whether another call ran for them (`duplicate`).
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const calls = Metric.counter("effect_turn.calls", {
  description: "Calls that were answered",
  incremental: true
})

/**
 * Runs that failed and were followed by another, by tool and code.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const retries = Metric.counter("effect_turn.retries", {
  description: "Runs of a handler that failed, and after which the call is tried again",
  incremental: true
})

/**
 * Writes that were undone since their unit was all or nothing, by tool, and whether that failed (`failed`).
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const undos = Metric.counter("effect_turn.undos", {
  description: "Writes that were undone, or were to be",
  incremental: true
})

/**
 * Answers that were cut to a budget before the model got them, by tool, and whether the whole is kept (`kept`).
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const cuts = Metric.counter("effect_turn.results.cut", {
  description: "Answers that were cut to a budget",
  incremental: true
})

/**
 * Calls whose work goes on although they were answered.
 *
 * @category metrics
 * @since 0.1.0
 * @stability experimental
 */
export const unsettled = Metric.counter("effect_turn.unsettled", {
  description: "Calls that were given up on and have not ended"
})

/**
 * Makes a function that folds the events of turns into the metrics of this module, in the metric registry of the context; it is given
 * to turns as `onEvent`, one for all of them.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const recorder: Effect.Effect<(event: TurnEvent.TurnEvent) => void> = Effect.contextWith((context) => {
  const started = new Map<string, Map<number, number>>()
  /** Names that tools have. */
  const names = new Set<string>()
  const update = <I, S>(metric: Metric.Metric<I, S>, attributes: Record<string, string>, value: I) =>
    Metric.withAttributes(metric, attributes).updateUnsafe(value, context)
  return Effect.succeed((event: TurnEvent.TurnEvent) => {
    switch (event._tag) {
      case "CallHeld":
      case "CallQueued":
        names.add(event.tool)
        return
      case "CallStarted": {
        names.add(event.tool)
        let turn = started.get(event.turn)
        if (turn === undefined) started.set(event.turn, turn = new Map())
        turn.set(event.position, event.at)
        for (const [cause, millis] of Object.entries(event.waited)) {
          if (millis > 0) update(waited, { "gen_ai.tool.name": event.tool, cause }, millis / 1000)
        }
        return
      }
      case "CallRetried": {
        const { outcome, tool } = event
        const code = codeOf(outcome) ?? outcome.status
        update(retries, { "gen_ai.tool.name": tool, code }, 1)
        const turn = started.get(event.turn)
        const at = turn?.get(event.position)
        if (at === undefined) return
        update(duration, { "gen_ai.tool.name": tool, "error.type": code }, (event.at - at) / 1000)
        // It does not run in the pause.
        turn!.delete(event.position)
        return
      }
      case "CallApplied": {
        const turn = started.get(event.turn)
        const at = turn?.get(event.position)
        if (at === undefined) return
        // It has run so long, whatever its unit comes to.
        update(duration, { "gen_ai.tool.name": event.tool }, (event.at - at) / 1000)
        turn!.set(event.position, NaN)
        return
      }
      case "CallUndone":
        return update(undos, { "gen_ai.tool.name": event.tool, failed: String(!event.ok) }, 1)
      case "ResultCut": {
        // The words of a call that never became one may be long too.
        const tool = names.has(event.tool) ? event.tool : "unknown"
        return update(cuts, { "gen_ai.tool.name": tool, kept: String(event.artifact !== undefined) }, 1)
      }
      case "CallEnded": {
        const { outcome } = event
        const code = codeOf(outcome)
        const tool = code !== undefined && anyName.has(code) && !names.has(outcome.name) ? "unknown" : outcome.name
        update(calls, {
          "gen_ai.tool.name": tool,
          status: outcome.status,
          ...(code === undefined ? undefined : { code }),
          duplicate: String(outcome.duplicateOf !== undefined)
        }, 1)
        const at = outcome.duplicateOf === undefined ? started.get(event.turn)?.get(event.position) : undefined
        if (at === undefined || Number.isNaN(at)) return
        const error = outcome.status === "ok" ? undefined : { "error.type": code ?? outcome.status }
        update(duration, { "gen_ai.tool.name": tool, ...error }, (event.at - at) / 1000)
        return
      }
      case "TurnEnded":
        started.delete(event.turn)
        if (event.unsettled > 0) update(unsettled, {}, event.unsettled)
        return
      case "CallSettledLate":
        // It was never among those that a turn has left behind when its own turn still runs.
        return started.get(event.turn)?.has(event.position) === true ? undefined : update(unsettled, {}, -1)
    }
  })
})

const codeOf = (outcome: Outcome.Outcome): string | undefined => "code" in outcome ? outcome.code : undefined

/**
 * The codes of calls that may never have been looked at: what a model wrote is no name of a tool until there is one, and it would make
 * a metric without bounds.
 */
const anyName: ReadonlySet<string> = new Set([
  "unknown_tool",
  "incomplete_response",
  "over_limit",
  "ambiguous_id",
  "by_caller",
  "by_deadline"
])
