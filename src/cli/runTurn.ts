/** Plans or runs one turn and prints it: what happens on standard error, the result on standard output. */
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import { toJson } from "../Outcome.ts"
import type * as ToolCall from "../ToolCall.ts"
import * as Turn from "../Turn.ts"
import * as TurnContext from "../TurnContext.ts"
import type * as TurnError from "../TurnError.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import * as TurnPlan from "../TurnPlan.ts"
import * as Begun from "./begun.ts"
import { describeThrown, explain, fromTurnError, Misuse, NotOk } from "./failure.ts"
import type { Input, Live } from "./input.ts"
import * as Lines from "./lines.ts"
import * as Recording from "./recording.ts"
import * as Report from "./report.ts"
import { clean } from "./text.ts"
import type { ToolsModule } from "./toolsModule.ts"
import * as View from "./view.ts"

/** One turn to plan or to run. */
export interface Job {
  readonly input: Input | Live
  readonly tools: ToolsModule
  readonly options: Turn.Options
  readonly tenant: string
  readonly json: boolean
}

/** How a plan is printed. */
export type PlanForm = "text" | "mermaid" | "json"

/** Prints the plan on standard output; nothing runs, and nothing is built. */
export const plan = (job: Job & { readonly input: Input }, form: PlanForm) =>
  Effect.gen(function*() {
    const { calls, finishReason } = job.input
    const plan = yield* planOf(job, calls, finishReason, TurnContext.make({ tenant: job.tenant }))
    yield* sayNotes(job)
    yield* Console.log(
      form === "json"
        ? JSON.stringify(TurnPlan.toJson(plan))
        : form === "mermaid"
        ? TurnPlan.toMermaid(plan)
        : planText(plan)
    )
  })

/** What was not said in as many words of where the message was found. */
const sayNotes = ({ input, json }: Job) =>
  json ? Effect.void : Effect.forEach(input.notes, (note) => Console.error(`note: ${clean(note)}`), { discard: true })

/** The plan as text that cannot steer a terminal. */
const planText = (plan: TurnPlan.TurnPlan): string =>
  plan.calls.length === 0 ? "no calls" : TurnPlan.print(plan).split("\n").map(clean).join("\n")

/** What a stop waits for is said when the stop has had time to reach what can be stopped. */
const toStop = "50 millis"

/**
 * Runs the turn and prints its outcomes and the messages to send back. An interruption (Ctrl-C) stops the turn first,
 * waits for what may not be cut short, and prints every outcome all the same.
 */
export const run = (job: Job, record?: Recording.Target, written?: Report.Target) =>
  withTools(job, (services) =>
    Effect.gen(function*() {
      const { input, json, tools } = job
      const events: Array<TurnEvent.TurnEvent> = []
      const screen = yield* View.screen
      const streams = input._tag === "Live"
      const plan = streams ? undefined : yield* planOf(job, input.calls, input.finishReason, services)
      const limits = yield* limitsOf(job, services)
      yield* sayNotes(job)
      let ended: Begun.Ended | undefined
      let view: View.View | undefined
      const attended = Effect.gen(function*() {
        const shown = view = yield* View.open(streams ? undefined : input.calls, screen, { plan, limits, quiet: json })
        const options: Turn.Options = {
          ...job.options,
          onEvent: (event) => {
            shown.onEvent(event)
            events.push(event)
            job.options.onEvent?.(event)
          }
        }
        const begun: Begun.Begun<TurnError.TurnError | Misuse> = yield* (streams
          ? Begun.live(input, tools, options, shown.onCall)
          : Begun.whole(input, tools, { ...options, finishReason: input.finishReason ?? options.finishReason })).pipe(
            Effect.provideContext(services)
          )
        const stop = Effect.gen(function*() {
          const waiting = yield* Effect.forkChild(Effect.andThen(Effect.sleep(toStop), shown.onAwaited))
          ended = yield* begun.stop
          yield* Fiber.interrupt(waiting)
        })
        ended = yield* Effect.onInterrupt(begun.await, () => Effect.ignore(stop))
      }).pipe(
        Effect.scoped,
        Effect.mapError((error) => error._tag === "Misuse" ? error : misuse(error))
      )
      const report = Effect.gen(function*() {
        if (ended === undefined) return
        const { calls, finishReason, outcomes } = ended
        const known = plan ?? (yield* planOf(job, calls, finishReason, services))
        yield* print(job, ended, known, view!, screen)
        if (written !== undefined) yield* Report.writeOf(written, events, known)
        if (record === undefined) return
        const options = optionsOf(job, finishReason)
        const turn = { toolkit: tools.toolkit, calls, events, outcomes, options, tenant: job.tenant }
        yield* Recording.write(record, turn, services)
      })
      yield* Effect.onInterrupt(attended, () => Effect.catchTag(report, "Misuse", explain))
      yield* report
      const { broke, outcomes } = ended!
      const allOk = outcomes.every(({ status }) => status === "ok" || status === "provider_executed")
      if (!allOk || broke !== undefined) return yield* new NotOk()
    }))

/** The message's own words on how it ended go before those of the module. */
const optionsOf = ({ options }: Job, finishReason: ToolCall.FinishReason | undefined): Turn.Options => ({
  ...options,
  finishReason: finishReason ?? options.finishReason
})

const planOf = (
  job: Job,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  finishReason: ToolCall.FinishReason | undefined,
  services: Context.Context<any>
): Effect.Effect<TurnPlan.TurnPlan, Misuse> =>
  Turn.plan(job.tools.toolkit, calls, optionsOf(job, finishReason)).pipe(
    Effect.provideContext(services),
    Effect.mapError(misuse)
  ) as Effect.Effect<TurnPlan.TurnPlan, Misuse>

/** How much may run at once: in each backend of the tools, and in the turn. */
const limitsOf = (job: Job, services: Context.Context<any>) =>
  Effect.gen(function*() {
    const limits = new Map<string, number>()
    for (const [name, { concurrency }] of Object.entries(yield* Recording.limitsIn(job.tools.toolkit, services))) {
      if (typeof concurrency === "number") limits.set(name, concurrency)
    }
    if (typeof job.options.execution === "number") limits.set("", job.options.execution)
    return limits
  })

const misuse = (error: TurnError.TurnError): Misuse =>
  fromTurnError("the turn cannot start", error, "correct it in the message, the flags or the tools module's `policy`")

/** Builds the layers of the tools and of the runtime, and takes them down after the use. */
const withTools = <A, E, R>(
  job: Job,
  use: (services: Context.Context<any>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | Misuse, Exclude<R, Scope.Scope>> => {
  const identity = TurnContext.make({ tenant: job.tenant })
  // What tools print with Effect's own console goes where what they print with the global one goes.
  const around = Context.add(identity, Console.Console, globalThis.console)
  return Effect.scoped(Effect.flatMap(
    // What is given up on has had its grace: the end does not wait for it a second time.
    Layer.build(Layer.mergeAll(job.tools.layer ?? Layer.empty, Turn.layer({ shutdownGrace: 1 }))).pipe(
      Effect.catchCause((cause) =>
        Cause.hasInterrupts(cause)
          ? Effect.interrupt
          : new Misuse({
            what: "the layer of the tools module cannot be built",
            expected: "`layer` to build without an error",
            received: describeThrown(Cause.squash(cause)),
            advice: "correct the exported `layer`, or what it connects to"
          })
      ),
      Effect.map((built) => Context.mergeAll(around, built, identity)),
      Effect.provideContext(around)
    ) as Effect.Effect<Context.Context<any>, Misuse, Scope.Scope>,
    use
  )) as any
}

const print = (
  job: Job,
  { broke, calls, messages, outcomes }: Begun.Ended,
  plan: TurnPlan.TurnPlan,
  view: View.View,
  screen: View.Screen
) =>
  Effect.gen(function*() {
    if (!job.json || screen.animated) {
      yield* Console.error(
        calls.length === 0
          ? "the message has no calls: nothing to run"
          : `${Lines.table(view.progress, outcomes, { width: screen.size().columns, paint: screen.paint })}\n${
            Lines.summary(view.progress, outcomes)
          }${screen.animated ? "\n" : ""}`
      )
    }
    if (broke !== undefined) yield* Console.error(`the response broke off: ${clean(broke)}`)
    const sent = yield* Effect.fromResult(Result.mapError(
      messages,
      (error) =>
        fromTurnError("the messages to send back cannot be written", error, "this is a fault: please report it")
    ))
    yield* Console.log(
      job.json
        ? JSON.stringify({
          dialect: job.input.dialect.name,
          plan: TurnPlan.toJson(plan),
          outcomes: outcomes.map(toJson),
          messages: sent
        })
        : `[\n${sent.map((message) => `  ${JSON.stringify(message)}`).join(",\n")}\n]`
    )
  })
