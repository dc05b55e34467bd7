// What must not compile is left floating, or without a service, on purpose.
// @effect-diagnostics floatingEffect:off
// @effect-diagnostics missingEffectContext:off
// @effect-diagnostics missingEffectError:off
import { Agent, Approval, Backend, type Outcome, ToolPolicy, type Turn, type TurnError } from "effect-turn"
import type * as AiError from "effect/ai/AiError"
import type * as LanguageModel from "effect/ai/LanguageModel"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import type * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import { describe, expectTypeOf, it } from "vitest"

class Hotels extends Backend.Service<Hotels>()("app/Hotels") {}
class Memory extends Context.Service<Memory, { readonly short: (text: string) => string }>()("app/Memory") {}

const Book = pipe(
  Tool.make("book", {
    parameters: Schema.Struct({ room: Schema.Int }),
    success: Schema.Struct({ reference: Schema.String })
  }),
  ToolPolicy.on(Hotels)
)
const Submit = Tool.make("submit", { success: Schema.FiniteFromString })
const toolkit = Toolkit.make(Book, Submit)

type Needs = LanguageModel.LanguageModel | Turn.Runtime | Hotels | Tool.HandlersFor<Toolkit.Tools<typeof toolkit>>

describe("Agent.run", () => {
  it("needs a model, the runtime, and what its tools need, their backends included", () => {
    const run = Agent.run({ prompt: "go", toolkit })
    expectTypeOf<Effect.Services<typeof run>>().toEqualTypeOf<Needs>()
    expectTypeOf<Effect.Error<typeof run>>().toEqualTypeOf<AiError.AiError | TurnError.TurnError>()
    const bare = Agent.run({ prompt: "go" })
    expectTypeOf<Effect.Services<typeof bare>>().toEqualTypeOf<LanguageModel.LanguageModel | Turn.Runtime>()
    const stream = Agent.stream({ prompt: "go", toolkit })
    expectTypeOf<Stream.Services<typeof stream>>().toEqualTypeOf<Needs>()
  })

  it("has the value of its terminal tools, and none without", () => {
    const run = Agent.run({
      prompt: "go",
      toolkit,
      stopWhen: Agent.any(Agent.terminalTool("submit"), Agent.maxSteps(3), Agent.terminalTool("book"))
    })
    type Result = Effect.Success<typeof run>
    type Finished = Extract<Result, { readonly reason: "terminal_tool" }>
    expectTypeOf<Finished["tool"]>().toEqualTypeOf<"submit" | "book">()
    expectTypeOf<Extract<Finished, { readonly tool: "submit" }>["value"]>().toEqualTypeOf<number>()
    expectTypeOf<Extract<Finished, { readonly tool: "book" }>["value"]>().toEqualTypeOf<
      { readonly reference: string }
    >()
    const plain = Agent.run({ prompt: "go", toolkit, stopWhen: Agent.maxSteps(3) })
    expectTypeOf<Extract<Effect.Success<typeof plain>, { readonly reason: "terminal_tool" }>>().toBeNever()
    // @ts-expect-error: it is no tool of the toolkit
    Agent.run({ prompt: "go", toolkit, stopWhen: Agent.terminalTool("sbumit") })
  })

  it("types outcomes, events and what is handed over by the toolkit", () => {
    Agent.run({
      prompt: "go",
      toolkit,
      onEvent: (event) => {
        if (event._tag === "StepEnded") {
          for (const outcome of event.step.outcomes) {
            expectTypeOf(outcome).toEqualTypeOf<Outcome.OutcomeOf<Toolkit.Tools<typeof toolkit>>>()
          }
        }
      },
      onClosed: ({ steps }) => {
        expectTypeOf(steps).toEqualTypeOf<ReadonlyArray<Agent.Step<typeof toolkit>>>()
        return Effect.void
      },
      turn: { siblings: { name: "mine", stops: () => false } }
    })
  })

  it("has what its hook needs and fails with", () => {
    const run = Agent.run({
      prompt: "go",
      toolkit,
      prepareStep: ({ steps }) =>
        Memory.use(({ short }) =>
          steps.length > 5 ? Effect.fail("full" as const) : Effect.succeed({ prompt: short("…") })
        )
    })
    expectTypeOf<Effect.Services<typeof run>>().toEqualTypeOf<Needs | Memory>()
    expectTypeOf<Effect.Error<typeof run>>().toEqualTypeOf<AiError.AiError | TurnError.TurnError | "full">()
    // @ts-expect-error: it is no tool of the toolkit
    Agent.run({ prompt: "go", toolkit, prepareStep: () => ({ tools: ["boko"] }) })
    // @ts-expect-error: what belongs to the agent is not an option of its turns
    Agent.run({ prompt: "go", toolkit, turn: { cancelOn: Effect.void } })
  })

  it("an agent that waits is resumed with the same tools", () => {
    const run = Agent.run({ prompt: "go", toolkit, approval: "park" })
    type Waiting = Extract<Effect.Success<typeof run>, { readonly reason: "pending_approval" }>
    expectTypeOf<Waiting["parked"]>().toEqualTypeOf<Agent.Parked>()
    const resumed = (parked: Agent.Parked) =>
      Agent.resume(parked, { toolkit, decisions: [{ position: 0, decision: Approval.approve() }] })
    expectTypeOf<ReturnType<typeof resumed>>().toEqualTypeOf<
      Effect.Effect<Agent.Result<typeof toolkit>, AiError.AiError | TurnError.TurnError, Needs>
    >()
  })
})

describe("Agent.handler", () => {
  const Research = Agent.asTool("research", { description: "Finds something out." })

  it("fits the tool, and needs at its making what the agent needs", () => {
    const outer = Toolkit.make(Research)
    const layer = outer.toLayer(Effect.gen(function*() {
      return { research: yield* Agent.handler({ toolkit, prompt: ({ task }) => task }) }
    }))
    expectTypeOf<Layer.Services<typeof layer>>().toEqualTypeOf<Needs>()
    expectTypeOf<Tool.Failure<typeof Research>>().toEqualTypeOf<Agent.AgentFailed>()
    expectTypeOf<Tool.Success<typeof Research>>().toEqualTypeOf<Agent.Answer>()
  })

  it("takes the parameters of a tool of one's own", () => {
    const handler = Agent.handler({ prompt: ({ city }: { readonly city: string }) => `The weather in ${city}?` })
    expectTypeOf<Parameters<Effect.Success<typeof handler>>[0]>().toEqualTypeOf<{ readonly city: string }>()
  })
})
