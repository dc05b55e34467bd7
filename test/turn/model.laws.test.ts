/** A governed model keeps what a language model promises to whoever asks it. */
import { describe, it } from "@effect/vitest"
import { Turn } from "effect-turn"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { laws, type Make } from "../testing/laws/languageModel.ts"
import { fake } from "../testing/laws/models.ts"

const governed: Make = (said) =>
  Effect.gen(function*() {
    const provider = yield* fake()(said)
    const context = yield* Layer.build(
      Turn.layerLanguageModel().pipe(
        Layer.provide([Layer.succeed(LanguageModel.LanguageModel, provider.model), Turn.layer()])
      )
    )
    return { ...provider, model: Context.get(context, LanguageModel.LanguageModel) }
  })

describe("the laws of a language model, over a governed one", () => {
  for (const { law, name } of laws) it.live(name, () => law(governed))
})
