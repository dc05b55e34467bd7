// What must not compile is left floating, or without a service, on purpose.
// @effect-diagnostics floatingEffect:off
// @effect-diagnostics missingEffectContext:off
// @effect-diagnostics missingEffectError:off
import { Backend, ToolPolicy, Turn } from "effect-turn"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as McpServer from "effect/ai/McpServer"
import type * as Response from "effect/ai/Response"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import type * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { describe, expectTypeOf, it } from "vitest"

class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}

const Book = pipe(
  Tool.make("book", {
    parameters: Schema.Struct({ room: Schema.FiniteFromString }),
    success: Schema.Struct({ at: Schema.FiniteFromString }),
    failure: Schema.String
  }),
  ToolPolicy.write({ keys: () => ["hotel"] }),
  ToolPolicy.on(Hotels)
)
const Search = pipe(Tool.make("search", { success: Schema.Int }), ToolPolicy.read({ keys: () => [] }))
const kit = Toolkit.make(Book, Search)
type Handlers = Tool.HandlersFor<Toolkit.Tools<typeof kit>>

describe("the governed model", () => {
  it("is a layer from model to model, on the runtime of turns", () => {
    expectTypeOf(Turn.layerLanguageModel()).toEqualTypeOf<
      Layer.Layer<LanguageModel.LanguageModel, never, LanguageModel.LanguageModel | Turn.Runtime>
    >()
  })

  it("a response is typed as before, and a tool on a backend still needs that backend", () => {
    const ask = LanguageModel.generateText({ prompt: "go", toolkit: kit })
    expectTypeOf<Effect.Services<typeof ask>>().toEqualTypeOf<LanguageModel.LanguageModel | Handlers | Hotels>()
    type Answer = Effect.Success<typeof ask>["toolResults"][number]
    type Booked = Extract<Answer, { readonly name: "book"; readonly isFailure: false }>
    expectTypeOf<Booked["result"]>().toEqualTypeOf<{ readonly at: number }>()
    // What is no value of the tool has a type in effect/ai already.
    type Failed = Extract<Answer, { readonly name: "book"; readonly isFailure: true }>
    expectTypeOf<Failed["result"]>().toEqualTypeOf<string | typeof Tool.ExecutionFailure.Type>()
    expectTypeOf<Effect.Success<typeof ask>["finishReason"]>().toEqualTypeOf<Response.FinishReason>()
  })

  it("what a response says, or a request, is no option of the layer", () => {
    // @ts-expect-error: the finish reason comes with the response
    Turn.layerLanguageModel({ finishReason: "stop" })
    // @ts-expect-error: each response is a turn of its own
    Turn.layerLanguageModel({ turn: "t1" })
    // @ts-expect-error: the messages come with the request
    Turn.layerLanguageModel({ messages: [] })
  })
})

describe("governed handlers", () => {
  it("are a layer from handlers to the same handlers", () => {
    expectTypeOf(Turn.layerHandlers(kit)).toEqualTypeOf<Layer.Layer<Handlers, never, Handlers | Turn.Runtime>>()
  })

  it("serve a toolkit over MCP; its backends are for the server to provide", () => {
    const served = McpServer.toolkit(kit).pipe(Layer.provide(Turn.layerHandlers(kit)))
    expectTypeOf<Layer.Services<typeof served>>().toEqualTypeOf<
      McpServer.McpServer | McpServer.McpRequest<"Requires", Hotels> | Handlers | Turn.Runtime
    >()
  })

  it("what is said of several calls is no option of one", () => {
    // @ts-expect-error: one call has no siblings
    Turn.layerHandlers(kit, { siblings: undefined })
    // @ts-expect-error: one call has no twin
    Turn.layerHandlers(kit, { dedupe: "off" })
  })
})
