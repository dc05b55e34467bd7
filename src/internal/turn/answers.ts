/** How outcomes are made: one place for the table of DESIGN part 4 and for the words that the model reads. */
import type * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Backend from "../../Backend.ts"
import * as Coalescer from "../../Coalescer.ts"
import type * as Outcome from "../../Outcome.ts"
import { type StopReason } from "../../Siblings.ts"
import type * as ToolPolicy from "../../ToolPolicy.ts"
import { describe, describeFailure, unencodable } from "./json.ts"
import { inTime, patience } from "./patience.ts"
import { complaint, type Parser, type ToolEntry } from "./tool.ts"

/** Which call is answered. */
export interface Asked {
  readonly position: number
  readonly id: string
  readonly name: string
  readonly repairedFrom: string | undefined
  /** Made again, the call carries the same idempotency key. */
  readonly keyIsOfArguments: boolean
}

type Any = Outcome.Outcome<any>

/** One literal for all answers without a result: a stop answers ten thousand calls at once. */
const base = (
  asked: Asked,
  status: Outcome.Status,
  code: string | undefined,
  started: boolean,
  effect: Outcome.Effect,
  retryable: boolean,
  message: string
): Any => {
  const { id, name, position } = asked
  const outcome: Record<string, unknown> = code === undefined
    ? { position, id, name, status, started, effect, retryable, message }
    : { position, id, name, status, code, started, effect, retryable, message }
  if (asked.repairedFrom !== undefined) outcome["repairedFrom"] = asked.repairedFrom
  return outcome as unknown as Any
}

/** Whether trying again cannot double an effect: reads, and writes that carry the same key again, which the backend honours. */
const safe = (asked: Asked, policy: ToolPolicy.ToolPolicy): boolean =>
  policy.access === "read" || (policy.interruptible && asked.keyIsOfArguments)

const onlyReads = "it only reads, so nothing was changed"
const nothingChanged = "nothing was changed"
const unknownButKeyed =
  "whether it took effect is unknown; calling it again with the same arguments is safe, for it carries a key"
const unknown = "whether it took effect is unknown; find out before you call it again, it could be done twice"
const unknownButGuarded =
  "whether it took effect is unknown; its key keeps it from being done twice: called again with the same arguments it is not run until somebody has found out"
const afterRead = ` while it was running; ${onlyReads}`
const afterForward = ` while it was running; ${unknownButKeyed}`
const afterWrite = ` while it was running; ${unknown}`
const afterGuarded = ` while it was running; ${unknownButGuarded}`

/** Our own record keeps the same call from being run again. */
const guarded = (asked: Asked, { idempotency }: ToolPolicy.ToolPolicy): boolean =>
  idempotency !== undefined && idempotency.mode !== "forward" && asked.keyIsOfArguments

const unknownEffect = (asked: Asked, policy: ToolPolicy.ToolPolicy): string =>
  policy.access === "read"
    ? onlyReads
    : safe(asked, policy)
    ? unknownButKeyed
    : guarded(asked, policy)
    ? unknownButGuarded
    : unknown

const whileRunning = (asked: Asked, policy: ToolPolicy.ToolPolicy): string =>
  policy.access === "read"
    ? afterRead
    : safe(asked, policy)
    ? afterForward
    : guarded(asked, policy)
    ? afterGuarded
    : afterWrite

const ok = (asked: Asked, result: unknown, encoded: unknown, effect: Outcome.Effect): Any => {
  const { id, name, position } = asked
  const outcome: Record<string, unknown> = {
    position,
    id,
    name,
    status: "ok",
    result,
    encoded,
    started: true,
    effect,
    retryable: false,
    message: ""
  }
  if (asked.repairedFrom !== undefined) outcome["repairedFrom"] = asked.repairedFrom
  return outcome as unknown as Any
}

/** Errors of calls that were certainly not started. */
export const refused = (asked: Asked, code: Outcome.ErrorCode, message: string): Any =>
  base(asked, "error", code, false, "none", retryableCodes.has(code), message)

/** The journal knows the call already: whoever began it may have done anything. */
export const inDoubt = (asked: Asked, policy: ToolPolicy.ToolPolicy): Any =>
  base(
    asked,
    "error",
    "in_doubt",
    true,
    policy.access === "read" ? "none" : "unknown",
    false,
    `this very call was begun before, and how it ended is not known; ${unknownEffect(asked, policy)}`
  )

/** The key of the call stands for something else. */
export const keyReused = (asked: Asked, what: string): Any =>
  base(
    asked,
    "error",
    "key_reused",
    false,
    "none",
    false,
    `its idempotency key ${what}; it was not run: if another write is meant, it needs another key`
  )

/** A write with this key was begun before, and nobody knows what became of it. */
export const keyInDoubt = (asked: Asked, note: string | undefined): Any =>
  base(
    asked,
    "error",
    "in_doubt",
    false,
    "unknown",
    false,
    `a write with the same idempotency key was begun before, and whether it took effect is not known${
      note === undefined ? "" : ` (${note})`
    }; it was not run again: find out before anything else is done about it`
  )

/** The answer of an earlier call with the same key, as it was recorded; `note` says why it was not. */
export const replayed = (
  asked: Asked,
  tool: ToolEntry,
  recorded: Outcome.Encoded | undefined,
  note: string | undefined
): Effect.Effect<Any, never, any> => {
  const lost = (problem: string): Any => ({
    ...base(
      asked,
      "error",
      "unencodable_result",
      false,
      "applied",
      false,
      `it took effect in an earlier call with the same idempotency key, but its result cannot be given: ${problem}; do not call it again for the result`
    ),
    replayed: true
  } as Any)
  if (recorded === undefined) return Effect.succeed(lost(note ?? "it was not kept"))
  if (recorded.status !== "ok") return Effect.succeed(lost(recorded.message ?? "it was none"))
  const restored = inTime("a schema", Effect.suspend(() => tool.decodeResult(recorded.result)), patience, 0)
  return Effect.map(Effect.exit(restored), (exit): Any => {
    const result = Exit.isSuccess(exit) ? exit.value : Option.none()
    if (Option.isNone(result)) return lost("its tool cannot read it any more")
    const outcome = ok(asked, result.value, recorded.result, "applied") as { started: boolean; replayed?: true }
    outcome.started = false
    outcome.replayed = true
    return outcome as unknown as Any
  })
}

export const denied = (asked: Asked, reason: string | undefined): Any =>
  base(
    asked,
    "error",
    "denied",
    false,
    "none",
    false,
    `a human refused it${reason === undefined ? "" : `: ${reason}`}; it was not run`
  )

export const vetoed = (asked: Asked, message: string, retryable: boolean): Any =>
  base(asked, "error", "vetoed", false, "none", retryable, message)

/** A human has answered in the tool's place: nothing was run. */
export const answeredByHuman = (asked: Asked, result: unknown, encoded: unknown): Any => {
  const outcome = ok(asked, result, encoded, "none") as { started: boolean }
  outcome.started = false
  return outcome as unknown as Any
}

/** A step before the handler broke. */
export const brokenBefore = (asked: Asked, message: string): Any =>
  base(asked, "error", "defect", false, "none", false, `${message}; the call was not started`)

/** A step after the handler broke: what the run has done stands. */
export const brokenAfter = (asked: Asked, of: Any, message: string): Any =>
  base(asked, "error", "defect", true, of.effect, false, afterTheRun(of.effect, message))

const afterTheRun = (effect: Outcome.Effect, problem: string): string =>
  effect === "applied"
    ? `the call took effect, but its result cannot be given: ${problem}; do not call it again for the result`
    : effect === "unknown"
    ? `${problem}; ${unknown}`
    : `the result cannot be given: ${problem}`

/** A middleware gave another result; `decoded` is what the tool's success schema makes of it. */
export const replaced = (
  asked: Asked,
  of: Any,
  encoded: unknown,
  decoded: Exit.Exit<unknown, unknown>,
  by: string
): Any => {
  const problem = unencodable(encoded)
  if (problem === undefined && Exit.isSuccess(decoded)) return ok(asked, decoded.value, encoded, of.effect)
  const reason = Exit.isFailure(decoded) ? decoded.cause.reasons[0] : undefined
  const words = problem !== undefined ? `it is ${problem}` : reason?._tag === "Fail"
    ? complaint(reason.error).message
    : describe(reason?._tag === "Die" ? reason.defect : undefined)
  return unencodableResult(
    asked,
    `the middleware "${by}" replaced it by one that is no result of the tool: ${words}`,
    of.effect
  )
}

/** A backend refused a call. */
export const refusedByBackend = (asked: Asked, backend: string, why: Backend.Refusal): Any => {
  switch (why._tag) {
    case "QueueFull":
      return refused(asked, "queue_full", `the line of the backend "${backend}" is full: call again later`)
    case "CircuitOpen":
      return refused(asked, "circuit_open", Backend.refused(backend, why).message)
    case "StoreUnavailable":
      return refused(asked, "store_unavailable", Backend.refused(backend, why).message)
  }
}

/** What the end of a run says of its backend, for its circuit. */
export const verdict = (outcome: Any, { failures }: ToolPolicy.ToolPolicy): Backend.Verdict => {
  switch (outcome.status) {
    case "ok":
      return "success"
    case "timeout":
      return outcome.code === "handler" ? "failure" : "ignored"
    case "error": {
      if (!outcome.started) return "ignored"
      if (outcome.code === "defect") return "failure"
      // One that asks for fewer calls has not broken, and has not recovered either; and its limit may be one of a single tenant.
      if (outcome.code === "rate_limited") return "ignored"
      if (outcome.code !== "failed") return "success"
      // A no that the tool declares is the word of a backend that works.
      const { failure } = outcome as { readonly failure?: unknown }
      return ask(failures.noEffect, failure) && !ask(failures.transient, failure) ? "success" : "failure"
    }
    default:
      return "ignored"
  }
}

const retryableCodes = new Set<Outcome.ErrorCode>([
  "invalid_arguments",
  "ambiguous_id",
  "incomplete_response",
  "queue_full",
  "circuit_open",
  "store_unavailable"
])

export const deferred = (asked: Asked, code: Outcome.Deferred["code"], message: string): Any =>
  base(asked, "deferred", code, false, "none", true, message)

/** A call that needs the result of one that is held. `words` say which argument is what of which call. */
export const withheld = (asked: Asked, words: string): Any =>
  deferred(asked, "waits_for_approval", `${words}, which waits for approval, and so this one was not run`)

/** A call that needs a part of a result that is not there. */
export const withoutPart = (asked: Asked, words: string): Any =>
  deferred(asked, "dependency_failed", `${words}, which has no such part: it was not run`)

/** A call that needs a result which another one does not have. */
export const withoutResult = (asked: Asked, words: string, of: Any): Any =>
  of.status === "pending_approval" || (of.status === "deferred" && of.code === "waits_for_approval")
    ? withheld(asked, words)
    : deferred(
      asked,
      "dependency_failed",
      `${words}, which has none (${of.status}${"code" in of ? `: ${of.code}` : ""}): it was not run`
    )

export const pendingApproval = (asked: Asked): Any =>
  base(asked, "pending_approval", undefined, false, "none", false, "waits for a human's approval; it has not been run")

export const providerExecuted = (asked: Asked): Any =>
  base(asked, "provider_executed", undefined, false, "none", false, "the provider ran it itself")

const why: Record<Outcome.CancelCode, string> = {
  by_caller: "it was stopped by the caller",
  by_sibling: "it was stopped because another call of the turn settled the matter",
  by_deadline: "the deadline of the turn passed",
  by_itself: "it interrupted itself"
}

const withReason = (outcome: Any, reason: string | undefined): Any => {
  if (reason !== undefined) (outcome as { reason?: string }).reason = reason
  return outcome
}

/** The sentences are few, and kept: they are not put together anew for each of many calls. */
const sentences = new Map<Outcome.CancelCode, Map<string, string>>()
const saying = (code: Outcome.CancelCode, tail: string): string => {
  let ofCode = sentences.get(code)
  if (ofCode === undefined) sentences.set(code, ofCode = new Map())
  let text = ofCode.get(tail)
  if (text === undefined) ofCode.set(tail, text = why[code] + tail)
  return text
}

export const cancelledBeforeStart = (asked: Asked, stop: StopReason): Any =>
  withReason(
    base(
      asked,
      "cancelled",
      stop.code,
      false,
      "none",
      true,
      saying(stop.code, " before it was started: nothing was done")
    ),
    stop.reason
  )

/** Stopped after an attempt that failed and before the next: what the attempts have done stands. */
export const cancelledBetween = (asked: Asked, stop: StopReason, of: Any, policy: ToolPolicy.ToolPolicy): Any => {
  const retryable = of.effect === "none" || safe(asked, policy)
  const words = of.effect === "none" && policy.access === "write" ? nothingChanged : unknownEffect(asked, policy)
  const outcome = base(
    asked,
    "cancelled",
    stop.code,
    true,
    of.effect,
    retryable,
    saying(stop.code, ` before it was tried again; ${words}`)
  )
  if (of.attempts !== undefined) (outcome as { attempts?: number }).attempts = of.attempts
  return withReason(outcome, stop.reason)
}

/** How often a run was started is told with its end; and where an attempt before may have had its effect, so may the call. */
export const afterAttempts = (
  asked: Asked,
  of: Any,
  attempts: number,
  inDoubt: boolean,
  policy: ToolPolicy.ToolPolicy
): Any => {
  const counted = attempts < 2 ? undefined : { attempts }
  if (!inDoubt || of.effect !== "none") return { ...of, ...counted }
  const retryable = of.retryable && safe(asked, policy)
  const message = `${of.message}; an earlier attempt may have done it: ${unknownEffect(asked, policy)}`
  return { ...of, ...counted, effect: "unknown", retryable, message }
}

export const cancelled = (asked: Asked, stop: StopReason | undefined, policy: ToolPolicy.ToolPolicy): Any => {
  const code = stop?.code ?? "by_itself"
  const retryable = safe(asked, policy)
  return withReason(
    base(
      asked,
      "cancelled",
      code,
      true,
      policy.access === "read" ? "none" : "unknown",
      retryable,
      saying(code, whileRunning(asked, policy))
    ),
    stop?.reason
  )
}

export interface Expired {
  readonly clock: "timeout" | "idleTimeout" | "waitTimeout"
  readonly millis: number
}

export const timedOut = (asked: Asked, limit: Expired, policy: ToolPolicy.ToolPolicy): Any => {
  const outcome = limit.clock === "waitTimeout"
    ? base(
      asked,
      "timeout",
      "queue",
      false,
      "none",
      true,
      `it waited ${limit.millis} ms for its start, its limit: nothing was done`
    )
    : base(
      asked,
      "timeout",
      "handler",
      true,
      policy.access === "read" ? "none" : "unknown",
      safe(asked, policy),
      `it ${limit.clock === "timeout" ? "ran" : "was silent"} for ${limit.millis} ms, its limit; ${
        unknownEffect(asked, policy)
      }`
    )
  return { ...outcome, limit } as Any
}

/** The outcome of a duplicate: the same answer, with a result of its own (rule R5). An exit, unless decoding takes time. */
export const duplicate = (asked: Asked, of: Any, tool: ToolEntry | undefined): Effect.Effect<Any, never, any> => {
  const copy = {
    ...of,
    position: asked.position,
    id: asked.id,
    duplicateOf: { position: of.position, id: of.id }
  } as any
  if (typeof copy.encoded === "object") copy.encoded = JSON.parse(JSON.stringify(copy.encoded))
  const own = (member: "result" | "failure", decoded: Exit.Exit<unknown, unknown>): Any => {
    if (Exit.isSuccess(decoded)) copy[member] = decoded.value
    return copy
  }
  const decode = (member: "result" | "failure", parser: Parser): Effect.Effect<Any, never, any> => {
    const decoded = parser(copy.encoded)
    return Exit.isExit(decoded)
      ? Exit.succeed(own(member, decoded))
      // A copy that cannot be made in time is not one of its own, and an answer all the same.
      : Effect.map(
        Effect.exit(inTime("a schema", decoded, patience, 0)),
        (exit) =>
          Exit.isSuccess(exit) && exit.value._tag === "None" ? copy : own(member, Exit.map(exit, Option.getOrUndefined))
      )
  }
  if (copy.status === "ok") return decode("result", tool!.decodeResult)
  if ("failure" in copy && copy.encoded !== undefined) return decode("failure", tool!.decodeFailure)
  return Exit.succeed(copy)
}

/** What a run of unknown effect came to, in a few words for whoever has to find out. */
export const noteOf = (outcome: Any): string => {
  switch (outcome.status) {
    case "error":
      return "failure" in outcome
        ? `it failed: ${describeFailure(outcome.failure, outcome.encoded)}`
        : `it ended with ${outcome.code}`
    case "timeout":
      return `it ran for ${outcome.limit.millis} ms, its limit`
    case "cancelled":
      return why[outcome.code]
    default:
      return outcome.status
  }
}

/** What a started run came to when it failed and neither a stop nor a clock decides. */
export const failedWith = (asked: Asked, tool: ToolEntry, cause: Cause.Cause<unknown>): Any => {
  const { policy } = tool
  let failure: { readonly error: unknown } | undefined
  for (const reason of cause.reasons) {
    if (reason._tag === "Die") return defect(asked, reason.defect, policy)
    if (reason._tag === "Fail" && failure === undefined) failure = reason
  }
  return failure === undefined ? cancelled(asked, undefined, policy) : failed(asked, tool, failure.error)
}

const defect = (asked: Asked, thrown: unknown, policy: ToolPolicy.ToolPolicy): Any => {
  const write = policy.access === "write"
  const words = `the handler broke: ${describe(thrown)}`
  return base(
    asked,
    "error",
    "defect",
    true,
    write ? "unknown" : "none",
    false,
    write ? `${words}; ${unknownEffect(asked, policy)}` : words
  )
}

/** What a started run came to when it succeeded: `encoded` is the exit of encoding its value. */
export const succeeded = (
  asked: Asked,
  tool: ToolEntry,
  value: unknown,
  encoded: Exit.Exit<unknown, unknown>
): Any => {
  const effect: Outcome.Effect = tool.policy.access === "write" ? "applied" : "none"
  if (Exit.isFailure(encoded)) {
    const reason = encoded.cause.reasons[0]
    const problem = reason?._tag === "Fail"
      ? `it is not of the form that the tool's success schema asks for (${complaint(reason.error).message})`
      : `encoding it broke: ${describe(reason?._tag === "Die" ? reason.defect : undefined)}`
    return unencodableResult(asked, problem, effect)
  }
  if (encoded.value === undefined && tool.succeedsWithNothing) return ok(asked, value, null, effect)
  const problem = unencodable(encoded.value)
  return problem === undefined
    ? ok(asked, value, encoded.value, effect)
    : unencodableResult(asked, `it is ${problem}`, effect)
}

const unencodableResult = (asked: Asked, problem: string, effect: Outcome.Effect): Any =>
  base(asked, "error", "unencodable_result", true, effect, false, afterTheRun(effect, problem))

/** What a classifier says of a failure; one that throws says no. */
export const ask = (classify: ((failure: any) => boolean) | undefined, failure: unknown): boolean => {
  if (classify === undefined) return false
  try {
    return classify(failure) === true
  } catch {
    return false
  }
}

/**
 * Whether a failure says that there were too many calls, and after how many milliseconds the next may come: 0 where it does not say,
 * `Infinity` for never. What is no time (`NaN` of a header that was not there) says nothing of it.
 */
export const tooMany = ({ failures: { rateLimited } }: ToolPolicy.ToolPolicy, failure: unknown): number | undefined => {
  if (rateLimited === undefined) return undefined
  try {
    const said = rateLimited(failure)
    if (said === true) return 0
    if (said === false || said == null || Number.isNaN(said)) return undefined
    const millis = Duration.toMillis(Duration.fromInputUnsafe(said))
    return Number.isNaN(millis) ? undefined : Math.max(0, millis)
  } catch {
    return undefined
  }
}

const failed = (asked: Asked, tool: ToolEntry, failure: unknown): Any => {
  const { policy } = tool
  const missed = whatWasMissed(failure)
  if (policy.access === "read" && missed === "item") {
    return base(asked, "error", "not_found", true, "none", false, (failure as Coalescer.ItemNotFound).message)
  }
  const after = tooMany(policy, failure)
  if (after !== undefined) return rateLimited(asked, tool, failure, after)
  const effect: Outcome.Effect = policy.access === "read" || ask(policy.failures.noEffect, failure) ? "none" : "unknown"
  // A request that failed as a whole says nothing of what was asked for: it may be asked for again (rule R28).
  const transient = missed === "request" || ask(policy.failures.transient, failure)
  const retryable = transient && (effect === "none" || safe(asked, policy))
  const encoded = encodedFailure(tool, failure)
  const told = describeFailure(failure, encoded)
  const words = effect === "unknown" ? `${told}; ${unknownEffect(asked, policy)}` : told
  return { ...base(asked, "error", "failed", true, effect, retryable, words), failure, encoded } as Any
}

/** What of a coalescer a failure is about: the item that was asked for, or the request as a whole. */
const whatWasMissed = (failure: unknown): "item" | "request" | undefined => {
  try {
    return failure instanceof Coalescer.ItemNotFound ? "item" : Coalescer.isOfRequest(failure) ? "request" : undefined
  } catch {
    // A proxy can refuse to be looked at.
    return undefined
  }
}

/** It was not let in: that is no effect, and it may come back. */
const rateLimited = (asked: Asked, tool: ToolEntry, failure: unknown, after: number): Any => {
  const encoded = encodedFailure(tool, failure)
  const when = after === Infinity
    ? "and it says that none will be let in"
    : after === 0
    ? "call it again later"
    : `call it again in ${Duration.format(Duration.millis(after))}`
  const words = `${describeFailure(failure, encoded)}; there were too many calls, so it was not done: ${when}`
  const outcome = base(asked, "error", "rate_limited", true, "none", after !== Infinity, words)
  const told = after === 0 || after === Infinity ? undefined : { retryAfter: after }
  return { ...outcome, ...told, failure, encoded } as Any
}

const encodedFailure = (tool: ToolEntry, failure: unknown): unknown => {
  let encoded: unknown
  try {
    const attempt = tool.encodeFailure(failure)
    if (Exit.isExit(attempt) && Exit.isSuccess(attempt) && unencodable(attempt.value) === undefined) {
      encoded = attempt.value
    }
  } catch {
    // The words are enough: a failure that cannot be encoded is still the call's failure.
  }
  return encoded
}

const undoneBecause: Record<Outcome.CancelCode, string> = {
  by_caller: "the turn was stopped by the caller",
  by_sibling: "another call of its unit failed",
  by_deadline: "the deadline of the turn passed",
  by_itself: "it failed"
}

/** What took effect is not to stand: `of` is what it would have been answered. */
const notToStand = (of: Any, stop: StopReason, changed: Record<string, unknown>): Any => {
  if (of.status !== "ok") return { ...of, ...changed } as Any
  const { encoded: _, result: __, ...rest } = of as Any & Record<string, unknown>
  return withReason({ ...rest, status: "cancelled", code: stop.code, ...changed } as unknown as Any, stop.reason)
}

/** It took effect and was undone, since its unit is all or nothing. */
export const undone = (asked: Asked, of: Any, stop: StopReason, { idempotency }: ToolPolicy.ToolPolicy): Any => {
  // Its backend would answer the same key from memory, as if it still stood.
  const remembered = idempotency?.mode === "forward" && asked.keyIsOfArguments
  const why = of.status === "ok" ? undoneBecause[stop.code] : "its result could not be given"
  return notToStand(of, stop, {
    effect: "none",
    retryable: of.status === "ok" && !remembered,
    undo: "done",
    message: `it was done, and undone because ${why}: nothing of it stands${
      remembered ? "; the same arguments carry the same key, which stands for what was undone" : ""
    }`
  })
}

/** It took effect, and undoing it failed. */
export const notUndone = (of: Any, stop: StopReason, problem: string): Any =>
  notToStand(of, stop, {
    effect: "unknown",
    retryable: false,
    undo: "failed",
    message: `it took effect; it was to be undone because ${
      of.status === "ok" ? undoneBecause[stop.code] : "its result could not be given"
    }, and that failed: ${problem}; find out what of it stands before you do anything else about it`
  })

/** An outcome read back from its JSON, for a turn that is resumed. Fails with words where the tool cannot read its own result any more. */
export const restore = (encoded: Outcome.Encoded, tool: ToolEntry | undefined): Effect.Effect<Any, string, any> => {
  // Whether it has to be cut is for the turn to say that gives it now.
  const { artifact: _, failure, message, result, truncated: __, ...rest } = encoded
  const outcome: Record<string, unknown> = { ...rest, message: message ?? "" }
  if (encoded.status === "ok") {
    if (tool === undefined) return Effect.fail("there is no such tool")
    outcome["encoded"] = result
    return Effect.mapError(
      Effect.map(tool.decodeResult(result), (decoded) => ({ ...outcome, result: decoded }) as unknown as Any),
      (issue) => complaint(issue).message
    )
  }
  if (encoded.code !== "failed" && encoded.code !== "rate_limited") return Effect.succeed(outcome as unknown as Any)
  outcome["encoded"] = failure
  // A failure whose encoded form was never known is told in words alone.
  if (failure === undefined || tool === undefined) return Effect.succeed(outcome as unknown as Any)
  return Effect.map(
    Effect.exit(tool.decodeFailure(failure)),
    (exit) => ({ ...outcome, failure: Exit.isSuccess(exit) ? exit.value : failure }) as unknown as Any
  )
}
