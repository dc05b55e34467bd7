/** Plans or runs one turn and prints it: what happens on standard error, the result on standard output. */
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type * as Outcome from "../Outcome.ts"
import { toJson } from "../Outcome.ts"
import * as Turn from "../Turn.ts"
import * as TurnContext from "../TurnContext.ts"
import type * as TurnError from "../TurnError.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import * as TurnPlan from "../TurnPlan.ts"
import { describeThrown, explain, fromTurnError, Misuse, NotOk } from "./failure.ts"
import type { Input } from "./input.ts"
import * as Lines from "./lines.ts"
import * as Recording from "./recording.ts"
import * as Report from "./report.ts"
import { clean } from "./text.ts"
import type { ToolsModule } from "./toolsModule.ts"
import * as View from "./view.ts"

/** One turn to plan or to run. */
export interface Job {
  readonly input: Input
  readonly tools: ToolsModule
  readonly options: Turn.Options
  readonly tenant: string
  readonly json: boolean
}

/** How a plan is printed. */
export type PlanForm = "text" | "mermaid" | "json"

/** Prints the plan on standard output; nothing runs, and nothing is built. */
export const plan = (job: Job, form: PlanForm) =>
  Effect.gen(function*() {
    const plan = yield* planOf(job, TurnContext.make({ tenant: job.tenant }))
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
      const events: Array<TurnEvent.TurnEvent> = []
      const screen = yield* View.screen
      const { calls } = job.input
      const plan = yield* planOf(job, services)
      const limits = yield* limitsOf(job, services)
      yield* sayNotes(job)
      let closed: ReadonlyArray<Outcome.Outcome> | undefined
      let shown: View.View | undefined
      const attended = Effect.gen(function*() {
        const view = shown = yield* View.open(calls, screen, { plan, limits, quiet: job.json })
        const handle = yield* Turn.start(job.tools.toolkit, calls, {
          ...optionsOf(job),
          onEvent: (event) => {
            view.onEvent(event)
            events.push(event)
            job.options.onEvent?.(event)
          },
          onClosed: (turn) => {
            closed = turn.outcomes
            return job.options.onClosed?.(turn) ?? Effect.void
          }
        }).pipe(Effect.provideContext(services), Effect.mapError(misuse))
        const stop = Effect.gen(function*() {
          const waiting = yield* Effect.forkChild(Effect.andThen(Effect.sleep(toStop), view.onAwaited))
          yield* handle.cancel("interrupted")
          yield* Fiber.interrupt(waiting)
        })
        return yield* Effect.onInterrupt(handle.await, () => stop)
      }).pipe(Effect.scoped)
      const report = (outcomes: ReadonlyArray<Outcome.Outcome>) =>
        Effect.andThen(
          print(job, plan, outcomes, shown!, screen),
          Effect.andThen(
            written === undefined ? Effect.void : Report.writeOf(written, events, plan),
            record === undefined ? Effect.void : Recording.write(record, {
              toolkit: job.tools.toolkit,
              calls,
              events,
              outcomes,
              options: optionsOf(job),
              tenant: job.tenant
            }, services)
          )
        )
      const outcomes = yield* Effect.onInterrupt(
        attended,
        () =>
          closed === undefined ? Effect.void : report(closed).pipe(
            Effect.catchTag("Misuse", explain)
          )
      )
      yield* report(outcomes)
      const allOk = outcomes.every(({ status }) => status === "ok" || status === "provider_executed")
      if (!allOk) return yield* new NotOk()
    }))

/** The message's own words on how it ended go before those of the module. */
const optionsOf = ({ input, options }: Job): Turn.Options => ({
  ...options,
  finishReason: input.finishReason ?? options.finishReason
})

const planOf = (job: Job, services: Context.Context<any>): Effect.Effect<TurnPlan.TurnPlan, Misuse> =>
  Turn.plan(job.tools.toolkit, job.input.calls, optionsOf(job)).pipe(
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
  plan: TurnPlan.TurnPlan,
  outcomes: ReadonlyArray<Outcome.Outcome>,
  view: View.View,
  screen: View.Screen
) =>
  Effect.gen(function*() {
    const { calls, dialect, message } = job.input
    if (!job.json || screen.animated) {
      yield* Console.error(
        calls.length === 0
          ? "the message has no calls: nothing to run"
          : `${Lines.table(view.progress, outcomes, { width: screen.size().columns, paint: screen.paint })}\n${
            Lines.summary(view.progress, outcomes)
          }${screen.animated ? "\n" : ""}`
      )
    }
    const messages = yield* Effect.fromResult(Result.mapError(
      dialect.history(message, calls, outcomes, { toolkit: job.tools.toolkit }),
      (error) =>
        fromTurnError("the messages to send back cannot be written", error, "this is a fault: please report it")
    ))
    yield* Console.log(
      job.json
        ? JSON.stringify({
          dialect: dialect.name,
          plan: TurnPlan.toJson(plan),
          outcomes: outcomes.map(toJson),
          messages
        })
        : `[\n${messages.map((message) => `  ${JSON.stringify(message)}`).join(",\n")}\n]`
    )
  })
