/** An agent inside a tool: the same limits, identity and trace as any work in a handler, and a stop that reaches it. */
import * as LanguageModel from "effect/ai/LanguageModel"
import type * as Tool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Agent from "../../Agent.ts"
import * as TurnContext from "../../TurnContext.ts"
import type { AnyOptions } from "./step.ts"

type HandlerOptions = Agent.HandlerOptions<any, any, any, any>
type Steps = Agent.State<any>["steps"]

interface Seen {
  readonly name: string
  readonly status: string
  readonly effect: string
  readonly encoded?: unknown
}

const outcomesOf = (steps: Steps): ReadonlyArray<Seen> =>
  steps.flatMap(({ outcomes }) => outcomes as ReadonlyArray<Seen>)

const changedBy = (steps: Steps): ReadonlyArray<string> =>
  outcomesOf(steps).flatMap(({ effect, name }) => effect === "none" ? [] : [name])

const answerOf = (result: Agent.Result<any, any>): Agent.Answer => {
  const { reason, steps, text } = result
  const answer = { reason, text, changed: changedBy(steps) }
  if (reason !== "terminal_tool") return answer
  const last = outcomesOf(steps.slice(-1)).find(({ name, status }) => status === "ok" && name === result.tool)
  return { ...answer, value: last?.encoded }
}

/** One run for each try of a call, and the same id for the same try, wherever it is made. */
const idOf = (call: TurnContext.CallContext | undefined): string | undefined =>
  call === undefined
    ? undefined
    : `${call.identity.turn}#${call.position}${call.attempt === 1 ? "" : `~${call.attempt}`}`

/** What was given where the handler is made, over what comes with the call: its model, and the handlers of its tools. */
const ownContext = (made: Context.Context<any>, called: Context.Context<any>, options: HandlerOptions) => {
  let context = Context.merge(made, called)
  const tools: ReadonlyArray<Tool.Any> = Object.values(options.toolkit?.tools ?? {})
  for (const key of [LanguageModel.LanguageModel.key, ...tools.map(({ id }) => id)]) {
    const own = Context.getOption(made, Context.Service<any, any>(key))
    if (own._tag === "Some") context = Context.add(context, Context.Service<any, any>(key), own.value)
  }
  return context
}

const promptOf = ({ prompt }: HandlerOptions, params: any) => prompt === undefined ? params.task : prompt(params)

export const handlerOf = (
  options: HandlerOptions,
  run: (options: AnyOptions) => Effect.Effect<Agent.Result<any, any>, unknown, any>,
  failed: (message: string, changed: ReadonlyArray<string>) => unknown
): Effect.Effect<(params: unknown) => Effect.Effect<Agent.Answer, unknown>, never, any> =>
  Effect.map(Effect.context<any>(), (made) => (params) =>
    Effect.withFiber((fiber) => {
      const call = Context.get(fiber.context, TurnContext.CurrentCall)
      let steps: Steps = []
      const agent = run({
        ...options,
        prompt: promptOf(options, params),
        name: options.name ?? call?.tool,
        id: idOf(call),
        onClosed: (closed) => {
          steps = closed.steps
          return options.onClosed?.(closed) ?? Effect.void
        }
      })
      return agent.pipe(
        Effect.map(answerOf),
        Effect.catch((error) =>
          (error as { readonly _tag?: unknown })._tag === "AiError"
            ? Effect.fail(failed((error as Error).message, changedBy(steps)))
            : Effect.die(error)
        ),
        Effect.updateContext(() => ownContext(made, fiber.context as Context.Context<any>, options))
      )
    }))
