/** Arguments of a Gemini call that come piece by piece, each with its place as a JSON path. */
import * as Result from "effect/Result"
import type * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import { type Fields, text } from "./parts.ts"

interface Patched {
  readonly args: Fields
  /** The path of the text that will continue. */
  readonly goesOn: string | undefined
}

export const patched = (
  dialect: string,
  path: string,
  before: Patched,
  pieces: unknown
): Result.Result<Patched, TurnError.TurnError> => {
  let { args, goesOn } = before
  for (const [at, piece] of (Array.isArray(pieces) ? pieces : []).entries()) {
    const where = `${path}.partialArgs[${at}]`
    const steps = Dialect.isRecord(piece) ? stepsOf(text(piece.jsonPath)) : undefined
    if (steps === undefined) {
      return Dialect.refuse(
        dialect,
        `${where}.jsonPath`,
        'a path like "$.a.b[0]"',
        JSON.stringify(piece?.jsonPath ?? piece)
      )
    }
    const { jsonPath, willContinue } = piece as Fields
    const put = putAt(args, steps, (old) => valueOf(piece as Fields, jsonPath === goesOn ? text(old) : ""))
    if (put === undefined) {
      return Dialect.refuse(
        dialect,
        `${where}.jsonPath`,
        "a place that fits what came before",
        JSON.stringify(jsonPath)
      )
    }
    args = put as Fields
    goesOn = willContinue === true ? text(jsonPath) : undefined
  }
  return Result.succeed({ args, goesOn })
}

const valueOf = (piece: Fields, before: string): unknown => {
  const { boolValue, numberValue, stringValue } = piece
  return typeof stringValue === "string" ? before + stringValue : numberValue ?? boolValue ?? null
}

type Step = string | number

/** As deep as arguments may be. */
const mostSteps = 64

/** `$.a["b"][0]` as `["a", "b", 0]`: names and indices, no queries. */
const stepsOf = (path: string): ReadonlyArray<Step> | undefined => {
  const steps: Array<Step> = []
  const step = /\.([^.[\]\s'"*?@]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\['((?:[^'\\]|\\.)*)'\]/y
  step.lastIndex = 1
  if (!path.startsWith("$")) return undefined
  while (step.lastIndex < path.length) {
    const at = step.exec(path)
    if (at === null) return undefined
    const [, name, index, double, single] = at
    if (index !== undefined) steps.push(Number(index))
    else if (double !== undefined) {
      try {
        steps.push(JSON.parse(double) as string)
      } catch {
        return undefined
      }
    } else steps.push(name ?? single!.replace(/\\(.)/g, "$1"))
  }
  return steps.length === 0 || steps.length > mostSteps ? undefined : steps
}

/** A copy with a value put at a place; undefined when the place does not fit. A list grows by one at a time. */
const putAt = (value: unknown, [step, ...rest]: ReadonlyArray<Step>, make: (old: unknown) => unknown): unknown => {
  if (step === undefined) return make(value)
  if (typeof step === "number") {
    const list: ReadonlyArray<unknown> | undefined = Array.isArray(value) ? value : value === undefined ? [] : undefined
    if (list === undefined || step > list.length) return undefined
    const item = putAt(list[step], rest, make)
    return item === undefined ? undefined : list.toSpliced(step, 1, item)
  }
  const fields = Dialect.isRecord(value) ? value : value === undefined ? {} : undefined
  if (fields === undefined) return undefined
  const item = putAt(Object.hasOwn(fields, step) ? fields[step] : undefined, rest, make)
  return item === undefined ? undefined : { ...fields, [step]: item }
}
