/** One request to the model: what is on offer, and how the answer is taken. */
import type * as AiError from "effect/ai/AiError"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import type * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type * as TurnError from "../../TurnError.ts"
import type { Part } from "./history.ts"

export type AnyToolkit = Toolkit.Any | Toolkit.WithHandler<any>

/** The tools of one step: as the turn takes them, and as the model sees them. */
export interface Offer {
  readonly forTurn: AnyToolkit
  /** Undefined when there is no tool. */
  readonly forModel: Toolkit.WithHandler<any> | undefined
}

/** Resolution is off, and a history with open approvals does not come this far. */
const handle = () => Effect.die(new Error("an agent's tools are run by its turns"))

/** The tools with these names, or all of them; the first name that is none's is given back. */
export const offerOf = (toolkit: AnyToolkit, names: ReadonlyArray<string> | undefined): Offer | string => {
  const all = toolkit.tools as Record<string, Tool.Any>
  const missing = names?.find((name) => !Object.hasOwn(all, name))
  if (missing !== undefined) return missing
  const tools = names === undefined ? all : Object.fromEntries(names.map((name) => [name, all[name]!]))
  const forModel = Object.keys(tools).length === 0 ? undefined : { tools, handle } as Toolkit.WithHandler<any>
  if (names === undefined) return { forTurn: toolkit, forModel }
  const forTurn = "handle" in toolkit ? { ...toolkit, tools } : Toolkit.make(...Object.values(tools))
  return { forTurn, forModel }
}

interface Request {
  readonly prompt: Prompt.Prompt
  readonly offer: Offer
  readonly toolChoice: LanguageModel.ToolChoice<any> | undefined
}

/** Asks, and gives the parts of the answer one by one: also those of an answer that breaks off. */
export type Ask = (
  request: Request,
  take: (part: Part) => Effect.Effect<void, TurnError.TurnError, any>
) => Effect.Effect<void, AiError.AiError | TurnError.TurnError, any>

const optionsOf = ({ offer, prompt, toolChoice }: Request) => ({
  prompt,
  disableToolCallResolution: true as const,
  toolCallValidation: "deferred" as const,
  ...(offer.forModel === undefined ? undefined : { toolkit: offer.forModel, toolChoice })
})

export const askWhole: Ask = (request, take) =>
  Effect.flatMap(
    LanguageModel.generateText(optionsOf(request) as any) as Effect.Effect<any, AiError.AiError, any>,
    // In one piece: a whole response is taken, or none of it.
    (response: { readonly content: ReadonlyArray<Part> }) =>
      Effect.uninterruptible(Effect.forEach(response.content, (part) => take(part), { discard: true }))
  )

export const askStream: Ask = (request, take) =>
  Stream.runForEach(LanguageModel.streamText(optionsOf(request) as any) as Stream.Stream<Part, any>, take)

/** Adds words to what the system says, for one request. */
export const withSystem = (prompt: Prompt.Prompt, system: string | undefined): Prompt.Prompt => {
  if (system === undefined) return prompt
  const [first, ...rest] = prompt.content
  return first?.role === "system"
    ? Prompt.fromMessages([Prompt.makeMessage("system", { content: `${first.content}\n${system}` }), ...rest])
    : Prompt.fromMessages([Prompt.makeMessage("system", { content: system }), ...prompt.content])
}
