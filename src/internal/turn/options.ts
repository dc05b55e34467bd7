/** The options of a turn, checked once: what cannot be is refused with a word about what was expected. */
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnError from "../../TurnError.ts"
import type * as TurnPlan from "../../TurnPlan.ts"
import type { ArgumentLimits } from "./json.ts"

/** What is given, as far as it has to be checked. */
export interface Given extends TurnPlan.Options {
  readonly deadline?: ToolPolicy.Limit | undefined
  readonly grace?:
    | ToolPolicy.Limit
    | { readonly reads?: ToolPolicy.Limit | undefined; readonly writes?: ToolPolicy.Limit | undefined }
    | undefined
  readonly limits?: Partial<ArgumentLimits> | undefined
  readonly amounts?: TurnPlan.Amounts & { readonly repeats?: number | undefined } | undefined
  readonly resultBudget?: ToolPolicy.ResultLimit | undefined
  readonly references?: boolean | TurnPlan.References | undefined
}

/** What a turn works with; times are in milliseconds, `Infinity` for none. */
export interface Checked {
  readonly execution: "parallel" | "sequential" | number
  /** The turn's own limit. */
  readonly limit: number
  readonly dedupe: "all" | "reads" | "off"
  readonly deadline: number
  readonly graceReads: number
  readonly graceWrites: number
  readonly limits: ArgumentLimits
  readonly amounts: TurnPlan.Amounts | undefined
  /** How often the same call may be run in a conversation. */
  readonly repeats: number
  /** How much all answers together give to the model. */
  readonly resultBudget: ToolPolicy.ResultLimit | undefined
  /** How arguments name results of other calls; undefined where they do not. */
  readonly references: TurnPlan.References | undefined
}

const defaultLimits: ArgumentLimits = { maxBytes: 1_000_000, maxDepth: 64, maxKeys: 10_000 }

export const invalidInput = (what: string, expected: string, received: unknown): TurnError.TurnError =>
  TurnError.make(new TurnError.InvalidInput({ what, expected, received: TurnError.show(received) }))

const millis = (name: string, value: ToolPolicy.Limit | undefined, otherwise: number, least: 0 | 1): number =>
  value === undefined ? otherwise : ToolPolicy.limitMillis("the turn", name, value, least)

/** Throws a {@link TurnError.TurnError} for what cannot be. */
const checkUnsafe = (given: Given): Checked => {
  const execution = given.execution ?? "parallel"
  const limit = execution === "parallel" || execution === "sequential"
    ? Infinity
    : TurnError.wholeNumber("the turn", "execution", execution, 1, ', or "parallel" or "sequential"')
  const dedupe = given.dedupe ?? "all"
  if (dedupe !== "all" && dedupe !== "reads" && dedupe !== "off") {
    throw invalidInput("the option `dedupe` of the turn", '"all", "reads" or "off"', dedupe)
  }
  const { grace } = given
  const both = typeof grace === "object" && grace !== null && ("reads" in grace || "writes" in grace)
    ? grace as { readonly reads?: ToolPolicy.Limit; readonly writes?: ToolPolicy.Limit }
    : { reads: grace as ToolPolicy.Limit | undefined, writes: grace as ToolPolicy.Limit | undefined }
  const limits = { ...defaultLimits }
  for (const name of ["maxBytes", "maxDepth", "maxKeys"] as const) {
    const value = given.limits?.[name]
    if (value !== undefined) {
      Object.assign(limits, { [name]: TurnError.wholeNumber("the turn", `limits.${name}`, value) })
    }
  }
  const { calls, perTool, repeats } = given.amounts ?? {}
  const amount = (name: string, value: unknown) => TurnError.wholeNumber("the turn", `amounts.${name}`, value)
  if (calls !== undefined) amount("calls", calls)
  if (typeof perTool === "object" && perTool !== null) {
    for (const [name, value] of Object.entries(perTool)) amount(`perTool.${name}`, value)
  } else if (perTool !== undefined) amount("perTool", perTool)
  return {
    execution,
    limit,
    dedupe,
    deadline: millis("deadline", given.deadline, Infinity, 1),
    graceReads: millis("grace", both.reads, 5_000, 0),
    graceWrites: millis("grace", both.writes, Infinity, 0),
    limits,
    amounts: calls === undefined && perTool === undefined ? undefined : { calls, perTool },
    repeats: repeats === undefined ? Infinity : amount("repeats", repeats),
    resultBudget: given.resultBudget === undefined
      ? undefined
      : ToolPolicy.resultLimit("the turn", given.resultBudget),
    references: referencesOf(given.references)
  }
}

const referencesOf = (given: Given["references"]): TurnPlan.References | undefined => {
  if (given === undefined || given === false) return undefined
  if (given === true) return {}
  if (typeof given !== "object" || given === null) {
    throw invalidInput("the option `references` of the turn", "true, false, or an object with `names`", given)
  }
  for (const [name, meant] of Object.entries(given.names ?? {})) {
    const place: { readonly call?: unknown; readonly at?: unknown } | null = meant
    if (
      !Number.isSafeInteger(place?.call) || (place?.call as number) < 0 ||
      !(place?.at === undefined || (typeof place.at === "string" && /^(?:$|[/])/.test(place.at)))
    ) {
      const expected = "the position of a call as `call`, and at most a JSON pointer as `at`"
      throw invalidInput(`the name ${JSON.stringify(name)} in the option \`references\` of the turn`, expected, meant)
    }
  }
  return given
}

const plain = checkUnsafe({})

export const check = (given: Given | undefined): Checked | TurnError.TurnError => {
  if (given === undefined) return plain
  try {
    return checkUnsafe(given)
  } catch (error) {
    if (error instanceof TurnError.TurnError) return error
    throw error
  }
}
