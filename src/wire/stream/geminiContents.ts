/**
 * Streams of Gemini: each event is a response with the parts that are new. A function call is complete when its part comes, unless it says
 * that it will continue (`willContinue`, with `partialArgs`): then it is at the part that does not say so.
 */
import * as Result from "effect/Result"
import * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import { patched } from "./partialArgs.ts"
import { broke, endedWell, type Fields, noEvent, over, text, without } from "./parts.ts"

const name = "Gemini"

export const assembly = (): Dialect.Assembly => {
  let envelope: Fields = {}
  let candidate: Fields = {}
  let content: Fields = { role: "model" }
  const parts: Array<Fields> = []
  let first: unknown
  let hasCandidate = false
  let isOver = false
  /** The last part is a call that will continue. */
  let open: Open | undefined

  const response = (parts: ReadonlyArray<Fields>): Fields => ({
    ...envelope,
    candidates: [{ ...candidate, content: { ...content, parts } }]
  })

  const pushPart = (part: unknown, path: string): Result.Result<ReadonlyArray<Fields>, TurnError.TurnError> => {
    if (!Dialect.isRecord(part)) return Dialect.refuse(name, path, "a part", TurnError.show(part))
    const call = Dialect.isRecord(part.functionCall) ? part.functionCall : undefined
    if (call === undefined) {
      if (open !== undefined) {
        return Dialect.refuse(name, path, "the rest of the function call that will continue", "another part")
      }
      join(parts, part)
      return Result.succeed([])
    }
    if (open === undefined && call.willContinue !== true && !Array.isArray(call.partialArgs)) {
      parts.push(part)
      return Result.succeed([part])
    }
    if (open !== undefined && text(call.name) !== "" && call.name !== open.call.name) {
      return Dialect.refuse(
        name,
        path,
        "the rest of the function call that will continue",
        `a call of ${JSON.stringify(call.name)}`
      )
    }
    const isNew = open === undefined
    const before = open ?? { part: {}, call: {}, args: {}, goesOn: undefined }
    const pieces = patched(name, `${path}.functionCall`, before, call.partialArgs)
    if (Result.isFailure(pieces)) return Result.fail(pieces.failure)
    const { args, goesOn } = pieces.success
    const next: Open = {
      part: over(before.part, without(part, "functionCall")),
      call: over(before.call, without(call, "args", "partialArgs", "willContinue")),
      args: Dialect.isRecord(call.args) ? { ...args, ...call.args } : args,
      goesOn
    }
    open = call.willContinue === true ? next : undefined
    const made = { ...next.part, functionCall: { ...next.call, args: next.args } }
    if (isNew) parts.push(made)
    else parts[parts.length - 1] = made
    return Result.succeed(open === undefined ? [made] : [])
  }

  const pushCandidate = (one: unknown, path: string): Result.Result<ReadonlyArray<Fields>, TurnError.TurnError> => {
    if (!Dialect.isRecord(one)) return Dialect.refuse(name, path, "a candidate", TurnError.show(one))
    const index = one.index ?? first ?? 0
    first ??= index
    if (index !== first) {
      return Dialect.refuse(
        name,
        `${path}.index`,
        `the candidate ${TurnError.show(first)} alone (candidates are alternatives: ask for one)`,
        TurnError.show(index)
      )
    }
    hasCandidate = true
    candidate = over(candidate, without(one, "content"))
    const fresh: Array<Fields> = []
    if (Dialect.isRecord(one.content)) {
      content = over(content, without(one.content, "parts"))
      const news: ReadonlyArray<unknown> = Array.isArray(one.content.parts) ? one.content.parts : []
      for (const [at, part] of news.entries()) {
        const pushed = pushPart(part, `${path}.content.parts[${at}]`)
        if (Result.isFailure(pushed)) return pushed
        fresh.push(...pushed.success)
      }
    }
    if (text(one.finishReason) !== "" && one.finishReason !== "FINISH_REASON_UNSPECIFIED") isOver = true
    return Result.succeed(fresh)
  }

  return {
    push: (event) => {
      if (!Dialect.isRecord(event)) return noEvent(name, event)
      if (event.error != null) return broke(name, event.error)
      const { candidates, ...rest } = event
      envelope = over(envelope, rest)
      if (candidates != null && !Array.isArray(candidates)) {
        return Dialect.refuse(name, "candidates", "a list", TurnError.show(candidates))
      }
      if (Dialect.isRecord(event.promptFeedback) && event.promptFeedback.blockReason != null) isOver = true
      const fresh: Array<Fields> = []
      for (const [at, one] of (candidates ?? []).entries()) {
        const pushed = pushCandidate(one, `candidates[${at}]`)
        if (Result.isFailure(pushed)) return pushed
        fresh.push(...pushed.success)
      }
      return Result.succeed(fresh.length === 0 ? undefined : response(fresh))
    },
    response: () => isOver ? hasCandidate ? response([...parts]) : envelope : response(kept(parts)),
    isOver: () => isOver && open === undefined
  }
}

/** Thoughts behind which nothing came are left out: there is no message in them. */
const kept = (parts: ReadonlyArray<Fields>): ReadonlyArray<Fields> => {
  const whole = parts.slice(0, parts.findLastIndex((part) => part.thought !== true) + 1)
  return whole.map((part, at) => at === whole.length - 1 ? endedWell(part) : part)
}

interface Open {
  readonly part: Fields
  readonly call: Fields
  readonly args: Fields
  /** The path of the text that will continue. */
  readonly goesOn: string | undefined
}

/** Text goes on with the text before it where nothing but text is in both: what is signed keeps its extent. */
const join = (parts: Array<Fields>, part: Fields): void => {
  const last = parts.at(-1)
  if (last !== undefined && isPlain(last) && isPlain(part) && (last.thought === true) === (part.thought === true)) {
    parts[parts.length - 1] = { ...last, text: text(last.text) + text(part.text) }
  } else parts.push(part)
}

const isPlain = (part: Fields): boolean =>
  typeof part.text === "string" && Object.keys(part).every((key) => key === "text" || key === "thought")
