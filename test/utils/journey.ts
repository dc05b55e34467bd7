/**
 * A scripted agent that does everything an agent may: reads, writes, slow writes, failing ones, a sub-agent, unknown tools, cut
 * responses, repeated and empty ids. Every effect is written down when it takes place, every answer when it is told, and `verdict`
 * says what does not fit together.
 */
import { Agent, Outcome, type ToolCall, ToolPolicy, Turn } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import * as Prompt from "effect/ai/Prompt"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { faultsOf } from "./histories.ts"

const of = <const Name extends string>(name: Name) =>
  Tool.make(name, { parameters: Schema.Struct({ tag: Schema.String }), success: Schema.String, failure: Schema.String })

const Look = pipe(of("look"), ToolPolicy.read({ keys: () => [] }))
const Save = pipe(of("save"), ToolPolicy.write({ keys: ({ tag }) => [tag.split(":")[0]!] }))
const Ship = pipe(of("ship"), ToolPolicy.write({ keys: () => ["port"] }))
const Break = pipe(of("break"), ToolPolicy.write({ keys: () => [] }))
const Refuse = pipe(
  of("refuse"),
  ToolPolicy.write({ keys: () => [] }),
  ToolPolicy.failures({ noEffect: () => true })
)
const Delegate = Agent.asTool("delegate", { description: "Does a part of the work." })

const inner = Toolkit.make(Look, Save)
export const toolkit = Toolkit.make(Look, Save, Ship, Break, Refuse, Delegate)

const call = (name: string, tag: string, id?: string): FakeModel.Call =>
  FakeModel.call(name, { tag }, id === undefined ? undefined : { id })

/** Ten steps that repeat, with tags and some of the ids of their own. */
const stepOf = (n: number): FakeModel.Step => {
  const t = (name: string) => `${name}:${n}`
  const usage = { usage: { input: 10, output: 2 } }
  switch (n % 10) {
    case 0:
      return FakeModel.calls([call("look", t("a")), call("save", t("b")), call("look", t("c"))], {
        text: "I see.",
        ...usage
      })
    case 1:
      return FakeModel.calls([call("ship", t("a")), call("ship", t("b")), call("look", t("c"))], usage)
    case 2:
      return FakeModel.calls([call("break", t("a")), call("refuse", t("b")), call("save", t("c"))], usage)
    case 3:
      return FakeModel.calls([FakeModel.call(Delegate, { task: t("a") }), call("save", t("b"))], usage)
    case 4:
      return FakeModel.calls([call("teleport", t("a")), call("save", t("b"))], usage)
    case 5:
      return FakeModel.calls([call("save", t("a")), call("look", t("b"))], { finishReason: "length", ...usage })
    case 6:
      return FakeModel.calls([
        call("save", t("a"), "same"),
        call("save", t("a"), "same"),
        call("look", t("b"), "same-2")
      ], usage)
    case 7:
      return FakeModel.calls(
        [call("save", t("a"), "same"), call("save", t("b"), "same"), call("save", t("c"), "")],
        usage
      )
    case 8:
      return FakeModel.calls([
        FakeModel.rawCall("save", '{"tag": '),
        call("look", t("b"), ""),
        call("save", t("c"), "")
      ], usage)
    default:
      return FakeModel.answer(["Once more.", call("save", t("a")), call("ship", t("b"))], { ...usage, latency: 20 })
  }
}

/** So many steps of work, and a last word. */
export const script = (steps: number): ReadonlyArray<FakeModel.Step> => [
  ...Array.from({ length: steps - 1 }, (_, n) => stepOf(n)),
  FakeModel.text("All done.")
]

/** Sub-agents meet one script: each writes, reads, and says a word; what comes first does not matter to the verdict. */
const subScript: ReadonlyArray<FakeModel.Entry> = Array.from({ length: 40 }, (_, n) =>
  n % 2 === 0
    ? FakeModel.calls([call("save", `sub:${n}`), call("look", `subl:${n}`)])
    : FakeModel.text("Part done."))

export class World {
  /** Tags of effects, as they took place. */
  readonly ledger: Array<string> = []
  /** The answers that were told, by the tags of their calls. */
  readonly told = new Map<string, Array<Outcome.Outcome<any>>>()
  readonly closed: Array<Agent.Closed<any>> = []
  readonly subClosed: Array<Agent.Closed<any>> = []
  atWork = 0
  /** Turns of the agent itself that have closed. */
  turns = 0

  private work<A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.acquireUseRelease(
      Effect.sync(() => this.atWork++),
      () => effect,
      () => Effect.sync(() => this.atWork--)
    )
  }

  private write(tag: string, ms: number) {
    return this.work(
      Effect.sleep(ms).pipe(
        Effect.andThen(Effect.sync(() => this.ledger.push(tag))),
        Effect.andThen(Effect.sleep(ms)),
        Effect.as(tag)
      )
    )
  }

  readonly look = ({ tag }: { readonly tag: string }) => this.work(Effect.as(Effect.sleep(5), tag))
  readonly save = ({ tag }: { readonly tag: string }) => this.write(tag, 5)

  readonly turn = {
    onClosed: ({ calls, outcomes }: Turn.Closed<any>) =>
      Effect.sync(() => {
        calls.forEach((call: ToolCall.ToolCall, i) => {
          const tag = (call.arguments as { readonly tag?: string } | undefined)?.tag
          if (tag === undefined || call.name === "teleport") return
          this.told.set(tag, [...(this.told.get(tag) ?? []), outcomes[i]!])
        })
      })
  }

  /** Everything that the agent needs. */
  layer(script: ReadonlyArray<FakeModel.Step>) {
    const innerHandlers = inner.toLayer({ look: this.look, save: this.save })
    const handlers = toolkit.toLayer(Effect.gen({ self: this }, function*() {
      const delegate = yield* Agent.handler({
        toolkit: inner,
        turn: this.turn,
        onClosed: (closed) => Effect.sync(() => this.subClosed.push(closed))
      })
      return {
        delegate,
        look: this.look,
        save: this.save,
        ship: ({ tag }: { readonly tag: string }) => this.write(tag, 150),
        break: ({ tag }: { readonly tag: string }) =>
          Effect.andThen(this.write(tag, 5), Effect.die(new Error("broke afterwards"))),
        refuse: () => this.work(Effect.andThen(Effect.sleep(5), Effect.fail("refused")))
      }
    })).pipe(Layer.provide([innerHandlers, FakeModel.layer(subScript)]))
    return Layer.provideMerge(handlers, Layer.merge(FakeModel.layer(script), Turn.layer()))
  }

  readonly options = {
    prompt: "Do it all.",
    toolkit,
    turn: {
      onClosed: (closed: Turn.Closed<any>) => {
        this.turns++
        return this.turn.onClosed(closed)
      }
    },
    stopWhen: Agent.maxSteps("infinite"),
    onClosed: (closed: Agent.Closed<any>) => Effect.sync(() => this.closed.push(closed))
  } satisfies Agent.Options<typeof toolkit>

  /** What does not fit together, now that the agent has ended. */
  verdict(): ReadonlyArray<string> {
    const problems: Array<string> = []
    if (this.atWork !== 0) problems.push(`${this.atWork} handlers are at work`)
    if (this.closed.length !== 1) problems.push(`the history was handed over ${this.closed.length} times`)
    for (const { prompt } of [...this.closed, ...this.subClosed]) problems.push(...faultsOf(prompt))
    const effects = new Map<string, number>()
    for (const tag of this.ledger) effects.set(tag, (effects.get(tag) ?? 0) + 1)
    for (const [tag, times] of effects) {
      if (times > 1) problems.push(`${tag} took place ${times} times`)
      if (!this.told.has(tag)) problems.push(`${tag} took place, and nobody was told`)
    }
    for (const [tag, outcomes] of this.told) {
      const [first] = outcomes
      if (outcomes.some((one) => one.status !== first!.status)) problems.push(`${tag} was answered in two ways`)
      if (first!.effect === "none" && effects.has(tag)) problems.push(`${tag} took place, and was told as not done`)
      if (first!.effect === "applied" && !effects.has(tag)) problems.push(`${tag} was told as done, and was not`)
    }
    const asking = this.closed[0]!.steps.filter(({ calls }) => calls.length > 0).length
    if (asking !== this.turns) problems.push(`${this.turns} turns have closed, and ${asking} are in the steps`)
    // What the result says of the steps is what the turns were told, and stands in the history.
    const results = this.closed[0]!.prompt.content.flatMap((message) =>
      message.role === "tool" ? message.content.flatMap((part) => part.type === "tool-result" ? [part] : []) : []
    )
    for (const { calls, outcomes } of this.closed[0]!.steps) {
      const wanted = (outcomes as ReadonlyArray<Outcome.Outcome<any>>).map((one) =>
        JSON.stringify(Outcome.forModel(one).value)
      )
      calls.forEach(({ id, name }, i) => {
        if (!results.some((part) => JSON.stringify(part.result) === wanted[i])) {
          problems.push(`the answer of ${name} (${id}) is not in the history`)
        }
      })
    }
    return problems
  }

  /** One more step from the history that was handed over: a provider would take it. */
  goOn() {
    const [closed] = this.closed
    const prompt = Prompt.concat(closed!.prompt, "Go on.")
    return Effect.gen(function*() {
      const result = yield* Agent.run({ prompt, toolkit })
      const { requests } = yield* FakeModel.FakeModel
      const faults = requests.flatMap(({ prompt }) => faultsOf(prompt))
      return result.reason === "final" && result.text === "Going on."
        ? faults
        : [...faults, `it ended by ${result.reason}`]
    }).pipe(Effect.provide(this.layer([FakeModel.text("Going on.")])))
  }
}
