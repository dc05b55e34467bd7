/**
 * Who decides about a call that needs approval (rule R10): decisions that are given, a rule of the turn, the registry; and what a
 * decision makes of the call.
 *
 * - D1: a decision is for one place and one digest. What it cannot be used for is asked for again, with the reason.
 * - D2: whoever is asked and fails, or answers nonsense, decides nothing: the call is held.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as Approval from "../../Approval.ts"
import { Decision } from "../../Approval.ts"
import type * as TurnContext from "../../TurnContext.ts"
import type { Intake, Taken } from "./intake.ts"
import { canonical, describe } from "./json.ts"
import { told } from "./told.ts"
import { complaint } from "./tool.ts"

/** What is to become of a call that needed approval. `taken` is the call as it is to be run, or to be held. */
export type Verdict =
  | { readonly _tag: "held"; readonly taken: Taken; readonly request: Approval.Request }
  | { readonly _tag: "run"; readonly taken: Taken; readonly note: string | undefined; readonly waited: number }
  | { readonly _tag: "denied"; readonly reason: string | undefined }
  | { readonly _tag: "answered"; readonly result: unknown; readonly encoded: unknown }

/** Told about a request, gives a decision or nothing. */
export type Decide = (
  request: Approval.Request
) => Approval.Decision | undefined | Effect.Effect<Approval.Decision | undefined, unknown>

export interface Given {
  readonly position: number
  readonly digest: string
  readonly decision: Approval.Decision
}

const isDecision = Schema.is(Decision)

/** The canonical form of what would run: two calls with equal digests do the same. */
export const digestOf = (taken: Taken): string =>
  `${taken.name} ${canonical(taken.params) ?? canonical(taken.encoded, Infinity)}`

const requestOf = (taken: Taken, identity: TurnContext.Identity, now: number): Approval.Request => ({
  tenant: identity.tenant,
  ...(identity.conversation === undefined ? undefined : { conversation: identity.conversation }),
  ...(identity.principal === undefined ? undefined : { principal: identity.principal }),
  turn: identity.turn,
  position: taken.position,
  id: taken.id,
  tool: taken.name,
  arguments: taken.encoded!,
  digest: digestOf(taken),
  requestedAt: now
})

export class Deciders {
  readonly registry: Approval.Approvals["Service"] | undefined
  private readonly given: ReadonlyArray<Given>
  private readonly earlier: ReadonlyArray<Approval.Request>
  private readonly decide: Decide | undefined

  /** `earlier` are the requests of a turn that is resumed. */
  constructor(
    given: ReadonlyArray<Given>,
    earlier: ReadonlyArray<Approval.Request>,
    decide: Decide | undefined,
    registry: Approval.Approvals["Service"] | undefined
  ) {
    this.given = given
    this.earlier = earlier
    this.decide = decide
    this.registry = registry
  }

  /** Nobody but a human is asked. */
  get none(): boolean {
    return this.given.length === 0 && this.decide === undefined && this.registry === undefined
  }

  /** Asks everybody in turn about one call. `noted` is told before that what the registry may know of from then on. */
  ask(
    taken: Taken,
    identity: TurnContext.Identity,
    intake: Intake,
    noted: (request: Approval.Request) => void
  ): Effect.Effect<Verdict, never, any> {
    return Effect.gen({ self: this }, function*() {
      const now = yield* Clock.currentTimeMillis
      const request = this.request(taken, identity, now)
      noted(request)
      const decision = yield* this.askAll(request)
      if (decision === undefined) return { _tag: "held", taken, request }
      const waited = (yield* Clock.currentTimeMillis) - request.requestedAt
      const used = yield* use(decision, taken, intake, waited)
      if (typeof used !== "string") return used
      const again = { ...request, problem: used }
      yield* this.register(again)
      return { _tag: "held", taken, request: again }
    })
  }

  /** The request for a call: the one that was made before, where it was for the same arguments. */
  request(taken: Taken, identity: TurnContext.Identity, now: number): Approval.Request {
    const request = requestOf(taken, identity, now)
    const before = this.before(request)
    if (before !== undefined && before.problem === undefined && !isOver(before, now)) return before
    const expires = this.registry?.expires ?? Infinity
    return expires === Infinity ? request : { ...request, expiresAt: now + expires }
  }

  /** What an earlier turn has asked about the same call with the same arguments. */
  private before({ digest, position }: Approval.Request): Approval.Request | undefined {
    return this.earlier.find((one) => one.position === position && one.digest === digest)
  }

  private askAll(request: Approval.Request): Effect.Effect<Approval.Decision | undefined> {
    const { decide, registry } = this
    // The first decision stands: what somebody has told the registry comes before what is decided now.
    const standing = registry === undefined || this.before(request) === undefined
      ? Effect.succeed(undefined)
      : asked(() => registry.standing(request))
    return Effect.flatMap(standing, (decision) => {
      if (decision !== undefined) return Effect.succeed(decision)
      const given = this.given.find(({ digest, position }) =>
        position === request.position && digest === request.digest
      )
      const before = this.before(request)
      if (given !== undefined && (before === undefined || before.expiresAt === request.expiresAt)) {
        return Effect.as(this.answered(request), given.decision)
      }
      if (decide === undefined) return this.register(request)
      return Effect.flatMap(
        asked(() => decide(request)),
        (decision) => decision === undefined ? this.register(request) : Effect.as(this.answered(request), decision)
      )
    })
  }

  private register(request: Approval.Request): Effect.Effect<Approval.Decision | undefined> {
    return this.registry === undefined ? Effect.succeed(undefined) : asked(() => this.registry!.ask(request))
  }

  /** Nobody has to decide about it any more, also where an earlier turn has asked the registry. */
  private answered(request: Approval.Request): Effect.Effect<void> {
    return this.registry === undefined ?
      Effect.void :
      told("the approvals", "take a request back", () => this.registry!.withdraw(request))
  }

  /** Tells the registry of calls that have their answer. */
  withdraw(requests: ReadonlyArray<Approval.Request>): Effect.Effect<void> {
    return Effect.forEach(requests, (request) => this.answered(request), { concurrency: "unbounded", discard: true })
  }
}

const isOver = ({ expiresAt }: Approval.Request, now: number): boolean => expiresAt !== undefined && now >= expiresAt

const asked = (ask: () => unknown): Effect.Effect<Approval.Decision | undefined> =>
  Effect.suspend(() => {
    const answer = ask()
    return Effect.isEffect(answer) ? answer as Effect.Effect<unknown, unknown> : Effect.succeed(answer)
  }).pipe(
    Effect.exit,
    Effect.flatMap((exit) =>
      Exit.isSuccess(exit) && (exit.value === undefined || isDecision(exit.value))
        ? Effect.succeed(exit.value)
        : Effect.as(
          Effect.logWarning(
            "a decision on a call that needs approval could not be had: the call is held",
            ...(Exit.isFailure(exit) ? [exit.cause] : [])
          ),
          undefined
        )
    )
  )

/** What a decision makes of a call; the words of what is wrong with it when it cannot be used. */
const use = (
  decision: Approval.Decision,
  taken: Taken,
  intake: Intake,
  waited: number
): Effect.Effect<Verdict | string, never, any> => {
  switch (decision._tag) {
    case "Approve":
      return Effect.succeed({ _tag: "run", taken, note: decision.note, waited })
    case "Deny":
      return Effect.succeed({ _tag: "denied", reason: decision.reason })
    case "Edit":
      return Effect.map(intake.again(taken, decision.arguments), (edited) =>
        typeof edited === "string"
          ? `the edited arguments cannot be used: ${edited}`
          : { _tag: "run", taken: edited, note: undefined, waited })
    case "Answer":
      return Effect.map(Effect.exit(taken.tool!.decodeResult(decision.result)), (exit) => {
        if (Exit.isSuccess(exit)) return { _tag: "answered", result: exit.value, encoded: decision.result }
        const reason = exit.cause.reasons[0]
        return `the answer is no result of the tool: ${
          reason?._tag === "Fail"
            ? complaint(reason.error).message
            : describe(reason?._tag === "Die" ? reason.defect : undefined)
        }`
      })
  }
}
