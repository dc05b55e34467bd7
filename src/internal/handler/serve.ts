/** The worker's side: runs the calls that it is asked for, and says what they come to. */
import type * as Tool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as WorkerError from "effect/workers/WorkerError"
import * as WorkerRunner from "effect/workers/WorkerRunner"
import * as TurnContext from "../../TurnContext.ts"
import { type Ask, Crossing, type Reply, type Value, wordsOf } from "./crossing.ts"

export const serve = (
  tools: Readonly<Record<string, Tool.Any>>
): Effect.Effect<void, WorkerError.WorkerError, WorkerRunner.WorkerRunnerPlatform> =>
  Effect.gen(function*() {
    const platform = yield* WorkerRunner.WorkerRunnerPlatform
    const context = (yield* Effect.context<never>()) as Context.Context<any>
    const runner = yield* platform.start<Reply, Ask>()
    const crossings = new Map(Object.values(tools).map((tool) => [tool.name, new Crossing(tool)]))
    yield* runner.run((port, ask) =>
      answer(crossings.get(ask.tool), ask, context, (reply) => send(runner, port, reply))
    )
  })

const answer = (
  crossing: Crossing | undefined,
  ask: Ask,
  context: Context.Context<any>,
  reply: (reply: Reply) => void
): Effect.Effect<void> => {
  const handler = crossing === undefined
    ? undefined
    : context.mapUnsafe.get(crossing.tool.id) as Tool.Handler<any> | undefined
  if (crossing === undefined || handler === undefined) {
    const error = wordsOf(`this worker has no handler for the tool "${ask.tool}"`)
    return Effect.sync(() => reply({ _tag: "Defect", error }))
  }
  const handle = Effect.flatMap(
    Effect.orDie(crossing.decodeParams(ask.params)),
    (params) =>
      handler.handler(params, {
        toolCallId: ask.toolCallId,
        preliminary: (result: any) =>
          Effect.map(crossing.pack("success", result), (value) => reply({ _tag: "Progress", value }))
      } as any)
  )
  return Effect.suspend(() => handle).pipe(
    Effect.exit,
    Effect.flatMap((exit) => crossing.end(exit)),
    Effect.map(reply),
    Effect.provide(surroundings(handler.context as Context.Context<any>, context, ask.call))
  )
}

/** As on the main thread: what the handlers' layer captured, then what the worker was given, then the call's own. */
const surroundings = (
  own: Context.Context<any>,
  given: Context.Context<any>,
  call: TurnContext.CallContext | undefined
): Context.Context<any> => {
  const context = Context.merge(own, given)
  return call === undefined
    ? context
    : Context.merge(context, TurnContext.make(call.identity)).pipe(Context.add(TurnContext.CurrentCall, call))
}

/** Sends a reply; when its value cannot be cloned, the words for that. */
const send = (runner: WorkerRunner.WorkerRunner<Reply, Ask>, port: number, reply: Reply): void => {
  try {
    runner.sendUnsafe(port, reply)
  } catch (error) {
    if (!("value" in reply)) throw error
    const words = reply._tag === "Failure" ? wordsOf(reply.value.value).message : wordsOf(error).message
    const value: Value = { form: "words", value: words }
    runner.sendUnsafe(port, { ...reply, value })
  }
}
