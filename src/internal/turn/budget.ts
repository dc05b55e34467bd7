/**
 * What of a turn's answers goes to the model (rule R29): the outcomes keep the whole, and what is too long is cut once, when the turn has
 * its last answer and before anybody is told. What is cut is kept in the `ArtifactStore` where there is one.
 *
 * - L1: with nothing over its budget no answer is touched, and the turn closes in the same step.
 * - L2: nothing here keeps a turn from closing: a store or a tokenizer that fails, or is late, is done without.
 */
import type * as Prompt from "effect/ai/Prompt"
import { Tokenizer } from "effect/ai/Tokenizer"
import type * as Tool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as ArtifactStore from "../../ArtifactStore.ts"
import * as Outcome from "../../Outcome.ts"
import * as ResultBudget from "../../ResultBudget.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnError from "../../TurnError.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as Answers from "./answers.ts"
import { inTime, patience } from "./patience.ts"
import type { Setting } from "./run.ts"
import { modelOutputOf, notExecutedOf } from "./said.ts"
import { surroundingsOf } from "./surroundings.ts"
import type { AnyToolkit } from "./tool.ts"

type AnyOutcome = Outcome.Outcome<any>

/** The turn whose answers they are. */
export interface Closing {
  readonly setting: Pick<Setting, "around" | "graceReads">
  readonly identity: () => { readonly tenant: string; readonly turn: string }
  readonly step: (f: () => void) => void
  readonly event: (make: (base: (of: Answers.Asked) => TurnEvent.OfCall) => TurnEvent.TurnEvent) => void
}

/** The budgets of a turn, and what was cut to them. */
export class Budgets {
  readonly turn: ToolPolicy.ResultLimit | undefined
  readonly perTool: ReadonlyMap<string, ToolPolicy.ResultLimit>
  readonly tools: Record<string, Tool.Any>
  readonly asParts: boolean
  /** What each call is answered where it was cut, once it is being made. */
  readonly made = new Map<number, Later<AnyOutcome>>()
  /** The whole, as it is kept, by the call that ran for it. */
  readonly kept = new Map<number, Later<ResultBudget.Whole>>()
  constructor(
    turn: ToolPolicy.ResultLimit | undefined,
    perTool: ReadonlyMap<string, ToolPolicy.ResultLimit>,
    tools: Record<string, Tool.Any>,
    asParts: boolean
  ) {
    this.turn = turn
    this.perTool = perTool
    this.tools = tools
    this.asParts = asParts
  }
}

const none: ReadonlyMap<string, ToolPolicy.ResultLimit> = new Map()
const known = new WeakMap<object, ReadonlyMap<string, ToolPolicy.ResultLimit>>()

/** The budgets of tools, looked up once for each set of them. */
const perToolOf = (tools: Record<string, Tool.Any>): ReadonlyMap<string, ToolPolicy.ResultLimit> => {
  let found = known.get(tools)
  if (found === undefined) {
    const limits = Object.entries(tools).flatMap(([name, tool]) => {
      const limit = ToolPolicy.get(tool).resultBudget
      return limit === undefined ? [] : [[name, limit] as const]
    })
    known.set(tools, found = limits.length === 0 ? none : new Map(limits))
  }
  return found
}

/** Undefined where nothing is ever cut. */
export const budgetsOf = (
  { tools }: AnyToolkit,
  turn: ToolPolicy.ResultLimit | undefined,
  asParts: boolean
): Budgets | undefined => {
  const perTool = perToolOf(tools)
  return turn === undefined && perTool === none ? undefined : new Budgets(turn, perTool, tools, asParts)
}

/** Something that is there already, or will be, in a step of the turn. */
class Later<A> {
  value: A | undefined = undefined
  private waiting: Array<(value: A) => void> | undefined = []
  fill(value: A): void {
    const { waiting } = this
    this.value = value
    this.waiting = undefined
    for (const then of waiting!) then(value)
  }
  use(f: (value: A) => void): void {
    if (this.waiting === undefined) f(this.value as A)
    else this.waiting.push(f)
  }
}

/** An answer that may be too long. */
interface Item {
  readonly outcome: AnyOutcome
  readonly isFailure: boolean
  /** What the model gets, whole. */
  readonly value: unknown
  /** What the tool's `toModelOutput` makes of it, where there is that. */
  readonly output: ReadonlyArray<Prompt.ToolModelOutputPart> | undefined
  readonly length: number
  /** Once they have been counted. */
  tokens: number
  readonly limit: ToolPolicy.ResultLimit | undefined
  maxChars: number
  maxTokens: number
  /** How much of it the model gets, once it was cut. */
  shown: { readonly length: number; readonly tokens: number } | undefined
}

/** Counts tokens, and gives an effect for it; undefined where none is counted. */
type Count = (text: string) => Effect.Effect<number>

const textOf = (value: unknown): string => JSON.stringify(value) ?? "null"

const lengthOfTexts = (output: ReadonlyArray<Prompt.ToolModelOutputPart>): number =>
  output.reduce((all, part) => part.type === "text" ? all + ResultBudget.lengthOf(part.text) : all, 0)

/** Whether an answer is the tool's own: a budget of the tool is not for the words of the runtime. */
const isOwn = (outcome: AnyOutcome): boolean =>
  outcome.status === "ok" ||
  (outcome.status === "error" && (outcome.code === "failed" || outcome.code === "rate_limited"))

const itemOf = (budgets: Budgets, outcome: AnyOutcome): Item | undefined => {
  if (outcome.status === "provider_executed") return undefined
  const limit = isOwn(outcome) ? budgets.perTool.get(outcome.name) : undefined
  if (limit === undefined && budgets.turn === undefined) return undefined
  const { isFailure, value } = Outcome.forModel(outcome)
  const whole = isFailure && budgets.asParts ? { ...value as object, ...notExecutedOf(outcome) } : value
  const output = outcome.status === "ok" && Object.hasOwn(budgets.tools, outcome.name)
    ? modelOutputOf(budgets.tools[outcome.name], outcome.result)?.modelOutput
    : undefined
  // The model gets one or the other, as whoever asks it has it.
  const length = Math.max(ResultBudget.lengthOf(whole), output === undefined ? 0 : lengthOfTexts(output))
  return {
    outcome,
    isFailure,
    value: whole,
    output,
    length,
    tokens: 0,
    limit,
    maxChars: limit !== undefined && "maxChars" in limit ? limit.maxChars : Infinity,
    maxTokens: limit !== undefined && "maxTokens" in limit ? limit.maxTokens : Infinity,
    shown: undefined
  }
}

const isOver = (item: Item): boolean => item.length > item.maxChars || item.tokens > item.maxTokens

const countsTokens = (limit: ToolPolicy.ResultLimit | undefined): boolean => limit !== undefined && "maxTokens" in limit

/** Runs an effect of the turn's beside it; what comes of it is a step. */
const beside = <A>(turn: Closing, effect: Effect.Effect<A>, otherwise: A): Later<A> => {
  const later = new Later<A>()
  Effect.runForkWith(turn.setting.around.context)(effect).addObserver((exit) =>
    turn.step(() => later.fill(Exit.isSuccess(exit) ? exit.value : otherwise))
  )
  return later
}

/** Counts with the tokenizer of the context. Where it cannot count, a character counts as one. */
const counter = (turn: Closing): Count => {
  const { around, graceReads } = turn.setting
  const found = Option.getOrUndefined(Context.getOption(around.context as Context.Context<any>, Tokenizer))
  return (text) =>
    found === undefined ?
      Effect.succeed(text.length) :
      inTime("a tokenizer", found.tokenize(text), patience, graceReads).pipe(
        Effect.flatMap(Option.match({ onNone: () => Effect.fail("it is late"), onSome: Effect.succeed })),
        Effect.map((tokens) => tokens.length),
        Effect.catchCause((cause) =>
          Effect.as(Effect.logWarning("a tokenizer failed; each character was counted as a token", cause), text.length)
        )
      )
}

/** The tokens of what the model gets: those of the value, or of the texts that the tool makes of it, whichever are more. */
const tokensOf = (count: Count, { output, value }: Pick<Item, "output" | "value">): Effect.Effect<number> =>
  Effect.map(
    Effect.forEach(
      [value, ...(output ?? []).flatMap((part) => part.type === "text" ? [part.text] : [])],
      (value) => count(textOf(value))
    ),
    ([ofValue = 0, ...ofTexts]) => Math.max(ofValue, ofTexts.reduce((all, tokens) => all + tokens, 0))
  )

const counted = (count: Count, item: Item): Effect.Effect<void> =>
  Effect.map(tokensOf(count, item), (tokens) => {
    item.tokens = tokens
  })

/**
 * Makes the answers of a turn fit, and goes on with them: at once where nothing has to be cut, or nothing has to be asked for that, and in
 * a later step of the turn elsewhere.
 */
export const fitted = (
  turn: Closing,
  budgets: Budgets,
  outcomes: ReadonlyArray<AnyOutcome>,
  then: (outcomes: ReadonlyArray<AnyOutcome>) => void
): void => {
  const items = outcomes.flatMap((outcome) => itemOf(budgets, outcome) ?? [])
  const inTokens = items.filter(({ limit }) => countsTokens(limit) || countsTokens(budgets.turn))
  const go = () => {
    if (budgets.turn !== undefined) shareOut(items, budgets.turn)
    const over = items.filter(isOver)
    if (over.length === 0) return then(outcomes)
    const answers = outcomes.slice()
    let open = over.length
    for (const item of over) {
      cutOf(turn, budgets, item).use((outcome) => {
        answers[item.outcome.position] = outcome
        open--
        if (open > 0) return
        sayOver(turn, budgets.turn, items)
        then(answers)
      })
    }
  }
  if (inTokens.length === 0) return go()
  const count = counter(turn)
  const all = Effect.forEach(inTokens, (item) => counted(count, item), { concurrency: "unbounded", discard: true })
  beside(turn, all, undefined).use(go)
}

/** What cannot be made shorter, and is too much all the same, is said. */
const sayOver = (turn: Closing, limit: ToolPolicy.ResultLimit | undefined, items: ReadonlyArray<Item>): void => {
  if (limit === undefined) return
  const inTokens = "maxTokens" in limit
  const most = inTokens ? limit.maxTokens : limit.maxChars
  const all = items.reduce(
    (all, { length, shown, tokens }) => all + (inTokens ? shown?.tokens ?? tokens : shown?.length ?? length),
    0
  )
  if (all <= most) return
  const unit = inTokens ? "tokens" : "characters"
  Effect.runForkWith(turn.setting.around.context)(
    Effect.logWarning(`the answers of a turn have ${all} ${unit} at the shortest, and its resultBudget is ${most}`)
  )
}

/** Gives each answer its part of what the turn's budget allows; where all fit, no part is smaller than the answer. */
const shareOut = (items: ReadonlyArray<Item>, limit: ToolPolicy.ResultLimit): void => {
  const inTokens = "maxTokens" in limit
  const needs = items.map((item) => {
    const { isFailure } = item
    const all = inTokens ? item.tokens : item.length
    const other = inTokens ? item.maxChars / item.length : item.tokens === 0 ? 1 : item.maxTokens / item.tokens
    const own = inTokens ? item.maxTokens : item.maxChars
    return { isFailure, length: Math.min(all, own, Math.ceil(all * Math.min(1, other))) }
  })
  ResultBudget.allot(needs, inTokens ? limit.maxTokens : limit.maxChars).forEach((part, i) => {
    const item = items[i]!
    if (part >= needs[i]!.length) return
    if (inTokens) item.maxTokens = Math.min(item.maxTokens, part)
    else item.maxChars = Math.min(item.maxChars, part)
  })
}

/** What a call is answered that has to be cut; it is cut once. */
const cutOf = (turn: Closing, budgets: Budgets, item: Item): Later<AnyOutcome> => {
  const { outcome } = item
  const made = budgets.made.get(outcome.position)
  if (made !== undefined) return made
  const later = new Later<AnyOutcome>()
  budgets.made.set(outcome.position, later)
  wholeOf(turn, budgets, item).use((whole) => {
    const tell = (cut: Fitting) => {
      item.shown = {
        length: Math.max(ResultBudget.lengthOf(cut.value), cut.output === undefined ? 0 : lengthOfTexts(cut.output)),
        tokens: cut.tokens
      }
      const answer = answerOf(outcome, cut, whole)
      say(turn, answer, item)
      later.fill(answer)
    }
    if (item.maxTokens === Infinity) return tell(cutTo(item, item.maxChars, whole))
    const smallest = cutTo(item, 0, whole)
    beside(turn, cutToTokens(counter(turn), item, whole), smallest).use(tell)
  })
  return later
}

/** Keeps the whole of what is cut, where there is a store: that of a duplicate once. */
const wholeOf = (turn: Closing, budgets: Budgets, { outcome, value }: Item): Later<ResultBudget.Whole> => {
  const { around, graceReads } = turn.setting
  const store = Option.getOrUndefined(
    Context.getOption(around.context as Context.Context<any>, ArtifactStore.ArtifactStore)
  )
  const position = outcome.duplicateOf?.position ?? outcome.position
  const known = budgets.kept.get(position)
  if (known !== undefined) return known
  let later = new Later<ResultBudget.Whole>()
  if (store === undefined) later.fill(undefined)
  else {
    const { tenant, turn: id } = turn.identity()
    const text = typeof value === "string" ? value : textOf(value)
    const keep = Effect.flatMap(
      ArtifactStore.idOf({ tenant, turn: id, position }),
      (artifact) => Effect.as(Effect.suspend(() => store.put({ tenant, id: artifact }, text)), { artifact })
    )
    const lost = (why: string, ...causes: ReadonlyArray<unknown>) => {
      const which = `the whole result of tool "${outcome.name}" (call ${TurnError.show(outcome.id)})`
      return Effect.as(Effect.logWarning(`${which} could not be kept${why}`, ...causes), "lost" as const)
    }
    const inTimeOrLost = inTime("the artifact store", keep, patience, graceReads).pipe(
      Effect.flatMap(Option.match({
        onNone: () => lost(`: the artifact store had no answer within ${patience} ms`),
        onSome: (kept): Effect.Effect<ResultBudget.Whole> => Effect.succeed(kept)
      })),
      Effect.catchCause((cause) => lost("", cause))
    )
    later = beside(turn, inTimeOrLost, "lost")
  }
  budgets.kept.set(position, later)
  return later
}

interface Fitting {
  readonly value: unknown
  readonly output: ReadonlyArray<Prompt.ToolModelOutputPart> | undefined
  /** Where they are counted. */
  readonly tokens: number
}

const cutTo = ({ isFailure, output, value }: Item, chars: number, whole: ResultBudget.Whole): Fitting => ({
  value: isFailure
    ? ResultBudget.cutFailure(value as Record<string, unknown>, chars, whole).value
    : ResultBudget.cut(value, chars, whole).value,
  output: output === undefined ? undefined : cutOutput(output, chars, whole),
  tokens: 0
})

/** The texts of a tool's own output share what there is, as many of them as have room for a mark each; other parts stay. */
const cutOutput = (
  output: ReadonlyArray<Prompt.ToolModelOutputPart>,
  chars: number,
  whole: ResultBudget.Whole
): ReadonlyArray<Prompt.ToolModelOutputPart> => {
  if (lengthOfTexts(output) <= chars) return output
  const texts = output.filter((part) => part.type === "text")
  const room = Math.max(1, Math.floor(chars / leastOfText))
  const kept = texts.length <= room ? texts : texts.slice(0, room - 1)
  const forRest = kept.length < texts.length ? leastOfText : 0
  const shares = ResultBudget.share(kept.map(({ text }) => ResultBudget.lengthOf(text)), chars - forRest)
  let at = 0
  return output.flatMap((part): ReadonlyArray<Prompt.ToolModelOutputPart> => {
    if (part.type !== "text") return [part]
    const i = at++
    if (i > kept.length) return []
    // The first of those that are left out stands for all of them.
    return [{
      ...part,
      text: i === kept.length ? mark : ResultBudget.cut(part.text, shares[i]!, whole).value as string
    }]
  })
}

/** A text of which nothing is left, and what it takes. */
const mark = "…"
const leastOfText = ResultBudget.lengthOf(mark)

/** The longest form, nearly, that has no more tokens than it may. */
const cutToTokens = (count: Count, item: Item, whole: ResultBudget.Whole): Effect.Effect<Fitting> => {
  const { maxChars, maxTokens, tokens } = item
  const attempt = (chars: number): Effect.Effect<Fitting> => {
    const made = cutTo(item, chars, whole)
    return Effect.flatMap(
      tokensOf(count, made),
      (found) =>
        found <= maxTokens || chars === 0
          ? Effect.succeed({ ...made, tokens: found })
          : attempt(Math.max(0, Math.min(chars - 1, Math.floor(chars * maxTokens / found * 0.98))))
    )
  }
  return attempt(Math.min(maxChars, Math.floor(item.length * Math.min(1, maxTokens / Math.max(1, tokens)))))
}

/** An outcome of which the model gets less. */
const answerOf = (outcome: AnyOutcome, { output, value }: Fitting, whole: ResultBudget.Whole): AnyOutcome => ({
  ...outcome,
  truncated: true,
  ...(typeof whole === "object" ? { artifact: whole.artifact } : undefined),
  shown: { value, ...(output === undefined ? undefined : { output }) }
} as AnyOutcome)

const say = (turn: Closing, answer: AnyOutcome, { length, shown }: Item): void =>
  turn.event((base) => ({
    ...base(answer as unknown as Answers.Asked),
    _tag: "ResultCut",
    of: length,
    to: shown!.length,
    artifact: (answer as Outcome.Base).artifact
  }))

/** Tells an answer as the model gets it, as soon as that is known; nothing where it depends on the other answers of the turn. */
export const answered = (
  turn: Closing,
  budgets: Budgets | undefined,
  outcome: AnyOutcome,
  tell: (outcome: AnyOutcome) => void
): void => {
  if (budgets === undefined) return tell(outcome)
  if (budgets.turn !== undefined) return
  const item = itemOf(budgets, outcome)
  if (item === undefined) return tell(outcome)
  const go = () => isOver(item) ? cutOf(turn, budgets, item).use(tell) : tell(outcome)
  if (!countsTokens(item.limit)) return go()
  beside(turn, counted(counter(turn), item), undefined).use(go)
}

/** Makes answers fit the budgets of their tools that no turn gives: those of one that is given up. */
export const fittedOutside = (
  toolkit: AnyToolkit,
  context: Context.Context<never>,
  place: { readonly tenant: string; readonly turn: string },
  outcomes: ReadonlyArray<AnyOutcome>
): Effect.Effect<ReadonlyArray<AnyOutcome>> => {
  const budgets = budgetsOf(toolkit, undefined, false)
  if (budgets === undefined) return Effect.succeed(outcomes)
  const closing: Closing = {
    setting: { around: surroundingsOf(context), graceReads: patience },
    identity: () => place,
    step: (f) => f(),
    event: () => {}
  }
  return Effect.callback((resume) => fitted(closing, budgets, outcomes, (all) => resume(Effect.succeed(all))))
}
