/** Plans or runs one turn and prints it: what happens on standard error, the result on standard output. */
import type * as Tool from "effect/ai/Tool"
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type * as Outcome from "../Outcome.ts"
import { toJson } from "../Outcome.ts"
import * as Turn from "../Turn.ts"
import * as TurnContext from "../TurnContext.ts"
import type * as TurnError from "../TurnError.ts"
import * as TurnPlan from "../TurnPlan.ts"
import { describeThrown, fromTurnError, Misuse, NotOk } from "./failure.ts"
import type { Input } from "./input.ts"
import * as Lines from "./lines.ts"
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

/** Prints the plan on standard output; nothing runs. */
export const plan = (job: Job) =>
  withTools(job, (services) =>
    Effect.gen(function*() {
      const plan = yield* planOf(job, services)
      yield* Console.log(job.json ? JSON.stringify(TurnPlan.toJson(plan)) : planText(plan))
    }))

/** The plan as text that cannot steer a terminal. */
const planText = (plan: TurnPlan.TurnPlan): string => TurnPlan.print(plan).split("\n").map(clean).join("\n")

/**
 * Runs the turn and prints its outcomes and the messages to send back. An interruption (Ctrl-C) stops the turn first,
 * waits for what may not be cut short, and prints every outcome all the same.
 */
export const run = (job: Job) =>
  withTools(job, (services) =>
    Effect.gen(function*() {
      const screen = yield* View.screen
      const { calls } = job.input
      const plan = yield* planOf(job, services)
      let closed: ReadonlyArray<Outcome.Outcome> | undefined
      let shown: View.View | undefined
      const attended = Effect.gen(function*() {
        const view = shown = yield* View.open(calls, screen, { quiet: job.json })
        const handle = yield* Turn.start(job.tools.toolkit, calls, {
          ...job.options,
          finishReason: job.input.finishReason,
          onEvent: view.onEvent,
          onClosed: ({ outcomes }) => Effect.sync(() => closed = outcomes)
        }).pipe(Effect.provideContext(services), Effect.mapError(misuse))
        return yield* handle.await.pipe(
          Effect.onInterrupt(() => Effect.andThen(handle.cancel("interrupted"), Effect.exit(handle.await)))
        )
      }).pipe(Effect.scoped)
      const report = (outcomes: ReadonlyArray<Outcome.Outcome>) => print(job, plan, outcomes, shown!, screen)
      const outcomes = yield* Effect.onInterrupt(
        attended,
        () => closed === undefined ? Effect.void : Effect.ignore(report(closed))
      )
      yield* report(outcomes)
      const allOk = outcomes.every(({ status }) => status === "ok" || status === "provider_executed")
      if (!allOk) return yield* new NotOk()
    }))

const planOf = (job: Job, services: Context.Context<any>): Effect.Effect<TurnPlan.TurnPlan, Misuse> =>
  Turn.plan(job.tools.toolkit, job.input.calls, { ...job.options, finishReason: job.input.finishReason }).pipe(
    Effect.provideContext(services),
    Effect.mapError(misuse)
  ) as Effect.Effect<TurnPlan.TurnPlan, Misuse>

const misuse = (error: TurnError.TurnError): Misuse =>
  fromTurnError("the turn cannot start", error, "correct it in the message, the flags or the tools module's `policy`")

/** Builds the layers of the tools and of the runtime, and takes them down after the use. */
const withTools = <A, E, R>(
  job: Job,
  use: (services: Context.Context<any>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | Misuse, Exclude<R, Scope.Scope>> => {
  const identity = TurnContext.make({ tenant: job.tenant })
  return Effect.scoped(Effect.flatMap(
    Layer.build(Layer.mergeAll(job.tools.layer, Turn.layer())).pipe(
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
      Effect.map((built) => Context.merge(built, identity)),
      Effect.provideContext(identity)
    ) as Effect.Effect<Context.Context<any>, Misuse, Scope.Scope>,
    (services: Context.Context<any>): Effect.Effect<A, E | Misuse, R> => {
      const missing = Object.values<Tool.Any>(job.tools.toolkit.tools).filter((tool) =>
        !services.mapUnsafe.has(tool.id)
      )
      return missing.length === 0
        ? use(services)
        : Effect.fail(
          new Misuse({
            what: "the layer of the tools module is not whole",
            expected: "`layer` to provide a handler for each tool of `toolkit`",
            received: `none for ${missing.map((tool) => tool.name).join(", ")}`,
            advice: "make the handlers with toolkit.toLayer({…}) and merge them into the exported `layer`"
          })
        )
    }
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
          : `${Lines.table(view.progress, outcomes, screen)}\n${Lines.summary(view.progress, outcomes)}${
            screen.animated ? "\n" : ""
          }`
      )
    }
    const messages = yield* Effect.fromResult(Result.mapError(
      dialect.history(message, calls, outcomes),
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
