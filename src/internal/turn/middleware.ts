/**
 * The steps around the calls of one turn (rule R31). A step has a clock of its own, and what it throws is the answer of its call. One
 * that is deaf to its clock, or to a stop, is waited for as long as a read is, and then left behind.
 */
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Outcome from "../../Outcome.ts"
import type { Before, Call, TurnMiddleware } from "../../TurnMiddleware.ts"
import * as TurnPlan from "../../TurnPlan.ts"
import * as Answers from "./answers.ts"
import { digestOf } from "./approvals.ts"
import { causeText, type Intake, type Taken } from "./intake.ts"
import { inTime, leavableStep } from "./patience.ts"
import type { Run } from "./run.ts"

type Any = Outcome.Outcome<any>

/** What the steps before a call come to: it goes on, it is refused, or it has to be approved anew. */
export type Ready =
  | { readonly _tag: "ready"; readonly taken: Taken }
  | { readonly _tag: "ask"; readonly taken: Taken }
  | { readonly _tag: "refused"; readonly outcome: Any }

const viewOf = (run: Run, taken: Taken): Call => ({
  identity: run.turn.identity(),
  position: taken.position,
  id: taken.id,
  tool: taken.tool!.tool,
  params: taken.params,
  access: taken.access,
  keys: taken.keys
})

/** A step within its clock, or nothing. */
const within = <A>(
  run: Run,
  { name, timeout }: TurnMiddleware,
  step: () => Effect.Effect<A, unknown, any>
): Effect.Effect<Exit.Exit<Option.Option<A>, unknown>, never, any> =>
  Effect.exit(inTime(`the middleware "${name}"`, Effect.suspend(step), timeout, run.turn.setting.graceReads))

const diedOf = (cause: Cause.Cause<unknown>): boolean => cause.reasons.some((reason) => reason._tag === "Die")

export class Middleware {
  private readonly list: ReadonlyArray<TurnMiddleware>
  readonly hasBefore: boolean
  readonly hasAround: boolean
  readonly hasAfter: boolean

  constructor(list: ReadonlyArray<TurnMiddleware>) {
    this.list = list
    this.hasBefore = list.some((one) => one.before !== undefined)
    this.hasAround = list.some((one) => one.around !== undefined)
    this.hasAfter = list.some((one) => one.after !== undefined)
  }

  before(run: Run, intake: Intake): Effect.Effect<Ready, never, any> {
    const { list } = this
    const { graceReads } = run.turn.setting
    return Effect.gen(function*() {
      let { taken } = run
      const refuse = (middleware: TurnMiddleware, message: string, retryable: boolean): Ready => ({
        _tag: "refused",
        outcome: Answers.vetoed(run, `${middleware.name}: ${message}`, retryable)
      })
      for (const middleware of list) {
        const { before, timeout } = middleware
        if (before === undefined) continue
        const exit = yield* within(run, middleware, () => before(viewOf(run, taken)))
        if (Exit.isFailure(exit)) {
          const words = causeText(exit.cause)
          return diedOf(exit.cause)
            ? {
              _tag: "refused",
              outcome: Answers.brokenBefore(run, `the middleware "${middleware.name}" broke: ${words}`)
            }
            : refuse(middleware, words, false)
        }
        if (Option.isNone(exit.value)) {
          return refuse(middleware, `it took longer than ${timeout} ms to decide; the call was not started`, true)
        }
        const said = exit.value.value as Before | undefined
        if (said?._tag === "Veto") return refuse(middleware, said.message, said.retryable)
        if (said == null) continue
        if (said._tag !== "Arguments") {
          // Whatever it meant, it did not say that the call may go on.
          const words = `the middleware "${middleware.name}" said neither nothing, nor a veto, nor other arguments`
          return { _tag: "refused", outcome: Answers.brokenBefore(run, words) }
        }
        const other: Taken | string = yield* leavableStep("a schema", intake.again(taken, said.arguments), graceReads)
        if (typeof other === "string") {
          return refuse(middleware, `it replaced the arguments by some that cannot be used: ${other}`, false)
        }
        if (!TurnPlan.covers(run.taken.keys, other.keys)) {
          return refuse(middleware, "it replaced the arguments by some that touch what the call does not hold", false)
        }
        taken = other
      }
      if (taken === run.taken || digestOf(taken) === run.approved?.digest) return { _tag: "ready", taken }
      const { needsApproval } = taken
      const needs = typeof needsApproval === "boolean"
        ? needsApproval
        : yield* leavableStep("an approval question", needsApproval, graceReads)
      return { _tag: needs ? "ask" : "ready", taken }
    })
  }

  around(run: Run, handler: Effect.Effect<unknown, unknown, any>): Effect.Effect<unknown, unknown, any> {
    const call = viewOf(run, run.taken)
    // Called here and not in the fiber: one that only watches hands on what is known of the handler's promise.
    return this.list.reduceRight((inner, { around }) => {
      if (around === undefined) return inner
      try {
        return around(inner as Effect.Effect<unknown, unknown>, call)
      } catch (error) {
        return Effect.die(error)
      }
    }, handler)
  }

  after(run: Run, outcome: Any): Effect.Effect<Any, never, any> {
    const { list } = this
    return Effect.gen(function*() {
      let told = outcome
      for (const middleware of list.toReversed()) {
        const { after, name, timeout } = middleware
        if (after === undefined) continue
        const exit = yield* within(run, middleware, () => after(told, viewOf(run, run.taken)))
        if (Exit.isFailure(exit)) {
          return Answers.brokenAfter(run, outcome, `the middleware "${name}" broke: ${causeText(exit.cause)}`)
        }
        const late = () => Answers.brokenAfter(run, outcome, `the middleware "${name}" took longer than ${timeout} ms`)
        if (Option.isNone(exit.value)) return late()
        const said = exit.value.value
        if (said != null && said._tag !== "Result") {
          return Answers.brokenAfter(run, outcome, `the middleware "${name}" said neither nothing nor another result`)
        }
        if (said == null || told.status !== "ok") continue
        const decoded = yield* within(run, middleware, () => run.runner.entry.decodeResult(said.result))
        if (Exit.isSuccess(decoded) && Option.isNone(decoded.value)) return late()
        told = Answers.replaced(run, told, said.result, Exit.map(decoded, Option.getOrUndefined), name)
        if (told.status !== "ok") return told
      }
      return told
    })
  }
}
