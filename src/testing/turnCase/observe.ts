/**
 * Handlers as they are, watched: each run is written down in the step that starts it, and closed when its work has really ended.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Coalescer from "../../Coalescer.ts"
import * as Handler from "../../Handler.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as FakeTool from "../FakeTool.ts"

type AnyHandler = (params: unknown, context: unknown) => Effect.Effect<unknown, unknown, any>

/** Time that is added to a run, before and after the handler's own work. */
export interface Delay {
  readonly before: number
  readonly after: number
}

const endOf = (exit: Exit.Exit<unknown, unknown>): NonNullable<FakeTool.Run["end"]> => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Exit.hasDies(exit)) return "died"
  if (Exit.hasFails(exit)) return "failed"
  // A stop from outside is nobody's in particular; a fiber that interrupts itself names itself.
  return exit.cause.reasons.some((reason) => Cause.isInterruptReason(reason) && reason.fiberId === undefined)
    ? "interrupted"
    : "itself"
}

/** A handler that throws dies in its run, and the run is seen. */
const called: (handler: AnyHandler, params: unknown, context: unknown) => ReturnType<AnyHandler> = (
  handler,
  params,
  context
) => {
  try {
    return handler(params, context)
  } catch (thrown) {
    return Effect.die(thrown)
  }
}

const watched = (
  world: FakeTool.World,
  tool: Tool.Any,
  handler: AnyHandler,
  delayOf: (call: TurnContext.CallContext | undefined) => Delay,
  onChange: () => void
): AnyHandler =>
(params, context) => {
  const own = called(handler, params, context)
  const backend = ToolPolicy.get(tool).backend?.key
  const whole = Effect.uninterruptibleMask((restore) =>
    Effect.withFiber((fiber) => {
      const { after, before } = delayOf(Context.get(fiber.context, TurnContext.CurrentCall))
      const clock = Context.get(fiber.context, Clock.Clock)
      const run = world.start(tool, backend, params, fiber.context, clock.currentTimeMillisUnsafe())
      onChange()
      const delayed = before + after === 0
        ? own
        : Effect.andThen(Effect.sleep(before), after === 0 ? own : Effect.tap(own, Effect.sleep(after)))
      return Effect.onExit(restore(delayed), (exit) =>
        Effect.sync(() => {
          world.finish(run, endOf(exit), clock.currentTimeMillisUnsafe())
          onChange()
        }))
    })
  )
  return Handler.reportAs(own, whole)
}

/**
 * Puts watchers around the handlers of a toolkit, with a word whenever a run begins or ends. A handler that is not in the context is
 * left to whoever misses it.
 */
export const observe = (
  services: Context.Context<any>,
  toolkit: Toolkit.Any,
  world: FakeTool.World,
  delayOf: (call: TurnContext.CallContext | undefined) => Delay,
  onChange: () => void
): Context.Context<any> => {
  let around = services
  for (const tool of Object.values(toolkit.tools)) {
    const key = Context.Service<any, Tool.Handler<string>>(tool.id)
    const own = Context.getOrUndefined(services, key)
    // What does nothing but ask a coalescer is looked at where its requests are sent.
    if (own === undefined || Coalescer.HandlerMark in own.handler) continue
    around = Context.add(around, key, {
      ...own,
      handler: watched(world, tool, own.handler as AnyHandler, delayOf, onChange) as typeof own.handler
    })
  }
  return around
}
