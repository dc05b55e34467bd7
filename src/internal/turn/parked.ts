/** A turn that waits for a human, as data: what has its answer, what was asked, and what the tools were like. */
import * as AiTool from "effect/ai/Tool"
import * as Effect from "effect/Effect"
import * as Hash from "effect/Hash"
import * as Schema from "effect/Schema"
import * as Approval from "../../Approval.ts"
import * as Outcome from "../../Outcome.ts"
import type { ResumeOptions } from "../../Turn.ts"
import type * as TurnError from "../../TurnError.ts"
import * as Answers from "./answers.ts"
import type { Earlier } from "./begin.ts"
import { checkCalls } from "./checks.ts"
import { canonical } from "./json.ts"
import { invalidInput } from "./options.ts"
import { Parked } from "./parkedForm.ts"
import type { TurnState } from "./state.ts"
import { surroundingsOf } from "./surroundings.ts"
import { type AnyToolkit, entryOf, type ToolEntry } from "./tool.ts"

type Any = Outcome.Outcome<any>

/** Whether a call of a turn that is resumed has still to be decided or run. */
const isOpen = (outcome: { readonly status: string; readonly code?: string | undefined }): boolean =>
  outcome.status === "pending_approval" || (outcome.status === "deferred" && outcome.code === "waits_for_approval")

const toolOf = (toolkit: AnyToolkit, name: string): ToolEntry | undefined => {
  const tools = toolkit.tools as Record<string, AiTool.Any>
  if (!Object.hasOwn(tools, name)) return undefined
  try {
    return entryOf(tools[name]!)
  } catch {
    return undefined
  }
}

/** What has to be the same for a call to mean the same: the parameters, as the model sees them, and the access. */
const fingerprint = ({ policy, tool }: ToolEntry): string => {
  let schema: unknown
  try {
    schema = AiTool.getJsonSchema(tool)
  } catch {
    // A tool without a schema that can be written down is known by its access alone.
  }
  return `${policy.access} ${(Hash.string(canonical(schema, Infinity) ?? "") >>> 0).toString(16)}`
}

/** The turn as data; undefined when nothing of it waits for a human. */
export const park = (
  toolkit: AnyToolkit,
  state: TurnState,
  outcomes: ReadonlyArray<Any>,
  now: number
): Parked | undefined => {
  const requests = state.requests(now)
  if (requests.length === 0) return undefined
  const tools = new Map<string, string>()
  const kept = outcomes.map((outcome) => {
    if (!isOpen(outcome)) return Outcome.toJson(outcome)
    const entry = toolOf(toolkit, outcome.name)
    if (entry !== undefined) tools.set(outcome.name, fingerprint(entry))
    return null
  })
  const { tenant, turn } = state.identity()
  return {
    _tag: "Parked",
    version: 1,
    tenant,
    turn,
    tools: Object.fromEntries(tools),
    calls: state.setting.calls.map(({ arguments: args, id, name, providerExecuted }) => ({
      id,
      name,
      ...(args === undefined ? undefined : { arguments: args }),
      ...(providerExecuted === undefined ? undefined : { providerExecuted })
    })),
    outcomes: kept,
    requests
  }
}

/** Why a parked turn cannot be resumed with these tools, for this tenant. */
export const problemOf = (parked: Parked, toolkit: AnyToolkit, tenant: string): TurnError.TurnError | undefined => {
  if (!Schema.is(Parked)(parked)) {
    return invalidInput("the parked turn", "what Turn.runOrPark or Turn.resume gave, of version 1", parked)
  }
  const { calls, outcomes, requests, tools } = parked
  if (calls.length !== outcomes.length || requests.some(({ position }) => outcomes[position] !== null)) {
    return invalidInput("the parked turn", "an outcome for each call, and requests for calls without one", parked)
  }
  if (parked.tenant !== tenant) return invalidInput("the parked turn", `one of the tenant "${tenant}"`, parked.tenant)
  for (const [name, before] of Object.entries(tools)) {
    const entry = toolOf(toolkit, name)
    const now = entry === undefined ? undefined : fingerprint(entry)
    if (now !== before) {
      return invalidInput(
        `the tool "${name}" of the parked turn`,
        "the same parameters and access as when the turn was parked",
        now === undefined ? "no such tool" : "another tool of this name"
      )
    }
  }
  return undefined
}

/** The outcomes that a parked turn has already, with results of their own; undefined where a call is still open. */
export const keptOf = (
  parked: Parked,
  toolkit: AnyToolkit
): Effect.Effect<ReadonlyArray<Any | undefined>, TurnError.TurnError, any> =>
  Effect.forEach(parked.outcomes, (encoded) => {
    if (encoded === null) return Effect.succeed(undefined)
    return Effect.mapError(
      Answers.restore(encoded, toolOf(toolkit, encoded.name)),
      (problem) =>
        invalidInput(
          `the result of call #${encoded.position} (${encoded.name}) of the parked turn`,
          "one that its tool can read",
          problem
        )
    )
  })

/** The outcomes of a parked turn that nobody goes on with: what was open is cancelled. */
export const abandoned = (
  parked: Parked,
  kept: ReadonlyArray<Any | undefined>,
  reason: string | undefined
): ReadonlyArray<Any> =>
  kept.map((outcome, position) => {
    if (outcome !== undefined) return outcome
    const { id, name } = parked.calls[position]!
    return Answers.cancelledBeforeStart(
      { position, id, name, repairedFrom: undefined, keyIsOfArguments: true },
      { code: "by_caller", reason }
    )
  })

const isGiven = Schema.is(Schema.Array(Schema.Struct({ position: Schema.Int, decision: Approval.Decision })))

/** Everything that can be wrong with a parked turn and its decisions, before anything runs. */
export const earlierOf = (
  toolkit: AnyToolkit,
  parked: Parked,
  options: ResumeOptions<any> | undefined
): Effect.Effect<Earlier, TurnError.TurnError, any> =>
  Effect.withFiber((fiber) => {
    const problem = problemOf(parked, toolkit, surroundingsOf(fiber.context).tenant)
    if (problem !== undefined) return Effect.fail(problem)
    const asked = new Map(parked.requests.map((request) => [request.position, request]))
    const decisions: Array<Earlier["decisions"][number]> = []
    const given: unknown = options?.decisions ?? []
    if (!isGiven(given)) {
      return Effect.fail(
        invalidInput("the decisions on the parked turn", "a list of a position and a decision each", given)
      )
    }
    for (const { decision, position } of given) {
      const request = asked.get(position)
      if (request === undefined || decisions.some((one) => one.position === position)) {
        return Effect.fail(
          invalidInput(
            `the decision on call #${position} of the parked turn`,
            "one decision for each call that waits for one",
            request === undefined ? "a call that waits for none" : "a second decision"
          )
        )
      }
      decisions.push({ position, digest: request.digest, decision })
    }
    const now = options?.calls
    if (now !== undefined) {
      const bad = checkCalls(now)
      if (bad !== undefined) return Effect.fail(bad)
      const same = now.length === parked.calls.length &&
        now.every(({ id, name }, i) => id === parked.calls[i]!.id && name === parked.calls[i]!.name)
      if (!same) {
        const expected = "the same ids and names in the same order"
        return Effect.fail(invalidInput("the calls of the parked turn", expected, now))
      }
    }
    const calls = now ?? parked.calls.map((call, position) => {
      const request = asked.get(position)
      return request === undefined ? call : { ...call, arguments: request.arguments }
    })
    return Effect.map(
      keptOf(parked, toolkit),
      (kept): Earlier => ({
        kept,
        requests: parked.requests,
        decisions,
        calls,
        filled: new Set(now === undefined ? asked.keys() : [])
      })
    )
  })
