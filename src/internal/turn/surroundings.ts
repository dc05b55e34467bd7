/** What a turn takes from the context that it is run in, found once for each context: turns of one program share theirs. */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Scheduler from "effect/Scheduler"
import * as Approval from "../../Approval.ts"
import * as Backend from "../../Backend.ts"
import * as IdempotencyStore from "../../IdempotencyStore.ts"
import * as ToolDurations from "../../ToolDurations.ts"
import * as TurnContext from "../../TurnContext.ts"
import * as TurnJournal from "../../TurnJournal.ts"
import { CallView, type Run } from "./run.ts"
import { Sleepers } from "./timers.ts"
import { type AnyToolkit, isWithHandler, type Runner, runnerOf, type ToolEntry } from "./tool.ts"

export class Surroundings {
  readonly context: Context.Context<never>
  readonly clock: Clock.Clock
  readonly sleepers: Sleepers
  readonly tenant: string
  readonly parent: Run | undefined
  readonly held: Backend.Permit | undefined
  readonly journal: TurnJournal.TurnJournal["Service"] | undefined
  readonly random: (typeof Random.Random)["Service"]
  readonly store: IdempotencyStore.IdempotencyStore["Service"] | undefined
  readonly approvals: Approval.Approvals["Service"] | undefined
  readonly conversation: string | undefined
  /** What takes the place of the runtime's own. */
  readonly durations: ToolDurations.ToolDurations["Service"] | undefined
  private readonly runners = new WeakMap<ToolEntry, Runner | { readonly missing: string }>()

  constructor(context: Context.Context<never>) {
    this.context = context
    const all = context as Context.Context<any>
    this.clock = Context.get(context, Clock.Clock)
    this.sleepers = new Sleepers(Context.get(context, Scheduler.Scheduler).makeDispatcher())
    this.tenant = Context.getOrElse(all, TurnContext.Tenant, () => "default")
    const call = Context.get(context, TurnContext.CurrentCall)
    this.parent = call instanceof CallView ? call.run : undefined
    this.held = Context.get(context, Backend.Held)
    this.approvals = Option.getOrUndefined(Context.getOption(all, Approval.Approvals))
    this.conversation = Context.get(context, TurnContext.Conversation)
    this.durations = Option.getOrUndefined(Context.getOption(all, ToolDurations.ToolDurations))
    this.random = Context.get(context, Random.Random)
    this.store = Option.getOrUndefined(Context.getOption(all, IdempotencyStore.IdempotencyStore))
    this.journal = Option.getOrUndefined(Context.getOption(all, TurnJournal.TurnJournal))
  }

  /** How the calls of a tool are run here, or what is missing for it. */
  runner(toolkit: AnyToolkit, tool: ToolEntry): Runner | { readonly missing: string } {
    if (isWithHandler(toolkit)) return runnerOf(toolkit, tool, this.context)
    let runner = this.runners.get(tool)
    if (runner === undefined) this.runners.set(tool, runner = runnerOf(toolkit, tool, this.context))
    return runner
  }

  /** A new identity; the turn's id is random where none is given, never a counter. */
  identity(turn: string | undefined): TurnContext.Identity {
    const { context, parent, tenant } = this
    return {
      tenant,
      conversation: this.conversation,
      principal: Context.get(context, TurnContext.Principal),
      turn: turn ?? TurnContext.newId("turn", () => this.random.nextDoubleUnsafe()),
      parent: parent === undefined ? undefined : { turn: parent.turn.identity().turn, position: parent.position }
    }
  }
}

const known = new WeakMap<Context.Context<never>, Surroundings>()

export const surroundingsOf = (context: Context.Context<never>): Surroundings => {
  let found = known.get(context)
  if (found === undefined) known.set(context, found = new Surroundings(context))
  return found
}
