/** What the tests of the governed model share: a scripted model over the lab's tools, and responses in short words. */
import { Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import type * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { lab, type LabOptions, type Name } from "./kit.ts"

/** The lab with a model that plays a script, governed. The rest of the context is the lab's. */
export const world = (
  script: ReadonlyArray<FakeModel.Entry>,
  options?: Turn.ModelOptions,
  setting?: LabOptions
) => {
  const { book, layer } = lab(setting)
  const model = FakeModel.layer(script)
  return {
    book,
    layer: Turn.layerLanguageModel(options).pipe(
      Layer.provide(model),
      Layer.provideMerge(
        Layer.merge(layer, Layer.effect(FakeModel.FakeModel, FakeModel.FakeModel).pipe(Layer.provide(model)))
      )
    )
  }
}

/** The prompts that the model was sent. */
export const prompts = Effect.map(FakeModel.FakeModel, ({ requests }) => requests.map(({ prompt }) => prompt))

/** A call of a lab's tool that the model makes; its id is its tag. */
export const says = (
  name: Name,
  tag: string,
  k?: ReadonlyArray<string>,
  more?: { readonly id?: string; readonly n?: number }
) =>
  FakeModel.call(name, {
    tag,
    ...(k === undefined ? undefined : { k }),
    ...(more?.n === undefined ? undefined : { n: more.n })
  }, { id: more?.id ?? tag })

const told = (value: unknown): string => {
  const { code, status, type } = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>
  return status !== undefined
    ? `${status}${code === undefined ? "" : `/${code}`}`
    : type !== undefined
    ? String(type)
    : "failure"
}

/** One part in short words. */
export const word = (part: Response.AnyPart): string => {
  switch (part.type) {
    case "text":
      return part.text
    case "text-delta":
      return part.delta
    case "tool-call":
      return `call ${part.id}`
    case "tool-result":
      return `${part.preliminary ? "note" : "result"} ${part.id} ${
        part.isFailure ? told(part.encodedResult) : JSON.stringify(part.encodedResult)
      }`
    case "tool-approval-request":
      return `request ${part.toolCallId}`
    default:
      return part.type
  }
}

/** The parts in short words, without what a stream says of arguments that are still being written. */
export const wordsOf = (parts: ReadonlyArray<Response.AnyPart>): ReadonlyArray<string> =>
  parts.filter((part) => !part.type.startsWith("tool-params")).map(word)

/** A history in short words: one line a message. */
export const lines = (prompt: Prompt.Prompt): ReadonlyArray<string> =>
  prompt.content.map((message) =>
    `${message.role}: ${
      typeof message.content === "string" ? message.content : message.content.map((part) => {
        switch (part.type) {
          case "text":
            return part.text
          case "tool-call":
            return `call ${part.id}`
          case "tool-result":
            return `${part.id} ${part.isFailure ? told(part.result) : JSON.stringify(part.result)}`
          case "tool-approval-request":
            return `request ${part.toolCallId}`
          case "tool-approval-response":
            return part.approved ? "yes" : "no"
          default:
            return part.type
        }
      }).join(", ")
    }`
  )
