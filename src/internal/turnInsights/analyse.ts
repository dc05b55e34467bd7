/** Recordings to a report. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { canonical, push } from "./value.ts"

type Call = TurnInsights.Call
type Step = TurnInsights.Step

interface Options {
  readonly threshold: number
  readonly size: number
  readonly charsPerToken: number
}

export const analyseRecordings = (
  recordings: ReadonlyArray<TurnInsights.Recording>,
  options: Options,
  unread: TurnInsights.Report["unread"]
): TurnInsights.Report => {
  const found: Found = { candidates: [], batches: [] }
  const tools = new Map<string, ToolCount>()
  const turnSizes: Array<number> = []
  const stepSizes: Array<number> = []
  const stepCounts: Array<number> = []
  const deferred = new Map<string, number>()
  const lists = new Map<string, Array<NonNullable<Call["list"]>>>()
  const requests = new Map<string, Array<TurnInsights.Request>>()
  let cut = 0
  const sources = recordings.map((recording) => {
    const { conversations, form, notes, source } = recording
    let steps = 0
    let calls = 0
    let userTurns = 0
    for (const [index, conversation] of conversations.entries()) {
      for (const turn of conversation.turns) {
        userTurns++
        steps += turn.steps.length
        stepCounts.push(turn.steps.length)
        let inTurn = 0
        for (const step of turn.steps) {
          inTurn += step.calls.length
          stepSizes.push(step.calls.length)
          for (const call of step.calls) {
            if (call.cut) cut++
            if (call.deferred !== undefined) add(deferred, call.deferred)
            if (call.list !== undefined) push(lists, call.tool, call.list)
          }
        }
        calls += inTurn
        turnSizes.push(inTurn)
        for (const request of turn.requests) push(requests, request.coalescer, request)
      }
      candidatesOf({ source, conversation, index: index + 1 }, options, tools, found)
    }
    return { source, form, conversations: conversations.length, userTurns, steps, calls, notes: [...notes] }
  })
  const candidates = found.candidates.sort(savesMore)
  const byTool = new Map<string, Array<TurnInsights.Candidate>>()
  for (const candidate of candidates) push(byTool, candidate.tool, candidate)
  const saved = candidates.map(({ saved }) => saved)
  return {
    version: 1,
    options,
    sources: sources.sort((a, b) => compare(a.source, b.source) || compare(JSON.stringify(a), JSON.stringify(b))),
    unread: unread.map(({ problem, source }) => ({ source, problem })).sort((a, b) =>
      compare(a.source, b.source) || compare(a.problem, b.problem)
    ),
    totals: {
      userTurns: turnSizes.length,
      steps: stepSizes.length,
      calls: sum(stepSizes),
      tools: tools.size,
      candidates: candidates.length,
      duplicates: sum([...tools.values()].map(({ duplicates }) => duplicates)),
      deferred: [...deferred].map(([code, count]) => ({ code, count })).sort((a, b) => compare(a.code, b.code)),
      cut,
      saved: {
        roundTrips: sum(saved.map(({ roundTrips }) => roundTrips)),
        requests: sum(saved.map(({ requests }) => requests)),
        envelopeTokens: sum(saved.map(({ envelopeTokens }) => envelopeTokens)),
        historyTokens: sum(saved.map(({ historyTokens }) => historyTokens ?? 0)),
        historyUnknown: saved.filter(({ historyTokens }) => historyTokens === null).length
      }
    },
    callsPerUserTurn: distribution(turnSizes),
    callsPerStep: distribution(stepSizes),
    stepsPerUserTurn: distribution(stepCounts),
    batches: distribution(found.batches),
    tools: [...tools].map(([tool, count]) => toolOf(tool, count, byTool.get(tool) ?? [])).sort((a, b) =>
      b.saved.roundTrips - a.saved.roundTrips || b.saved.requests - a.saved.requests || b.calls - a.calls ||
      compare(a.tool, b.tool)
    ),
    candidates,
    lists: [...lists].map(([tool, of]) => ({
      tool,
      calls: of.length,
      items: sum(of.map(({ requested }) => requested)),
      deferred: sum(of.map(({ deferred }) => deferred)),
      sizes: distribution(of.map(({ requested }) => requested))
    })).sort((a, b) => b.calls - a.calls || compare(a.tool, b.tool)),
    requests: [...requests].map(([coalescer, of]) => {
      const calls = sum(of.map(({ calls }) => calls))
      return {
        coalescer,
        requests: of.length,
        calls,
        items: sum(of.map(({ items }) => items)),
        missing: sum(of.map(({ found, items }) => Math.max(0, items - (found ?? 0)))),
        ratio: calls / of.length,
        sizes: distribution(of.map(({ items }) => items))
      }
    }).sort((a, b) => b.requests - a.requests || compare(a.coalescer, b.coalescer))
  }
}

interface Found {
  readonly candidates: Array<TurnInsights.Candidate>
  readonly batches: Array<number>
}

interface ToolCount {
  calls: number
  steps: number
  userTurns: number
  most: number
  duplicates: number
}

/** Counts the tools of a conversation, and judges those that are over the threshold in one of its user turns. */
const candidatesOf = (
  { conversation, index: ordinal, source }: {
    readonly source: string
    readonly conversation: TurnInsights.Conversation
    readonly index: number
  },
  options: Options,
  tools: Map<string, ToolCount>,
  found: Found
): void => {
  // What the model has been told so far: it is read when the first candidate needs it, and up to there.
  const told = new Set<string>()
  let read = 0
  const toldBefore = (until: number): ReadonlySet<string> => {
    for (; read < until; read++) {
      const { said, steps } = conversation.turns[read]!
      for (const text of said) for (const word of wordsOf(text)) told.add(word)
      for (const { calls } of steps) {
        for (const call of calls) {
          for (const word of wordsIn(call.arguments)) told.add(word)
          if (call.result !== undefined) { for (const word of wordsOf(call.result)) told.add(word) }
        }
      }
    }
    return told
  }
  for (const [index, turn] of conversation.turns.entries()) {
    const byTool = new Map<string, Array<Called>>()
    for (const [step, { calls }] of turn.steps.entries()) {
      for (const call of calls) {
        const last = byTool.get(call.tool)?.at(-1)
        if (last?.step === step) last.calls.push(call)
        else push(byTool, call.tool, { step, calls: [call] })
      }
    }
    let firsts: ReadonlyMap<string, number> | undefined
    const seen = () => firsts ??= firstSeen(turn, toldBefore(index))
    for (const [tool, called] of byTool) {
      const calls = sum(called.map(({ calls }) => calls.length))
      const duplicates = sum(called.map(({ calls }) => duplicatesIn(calls)))
      const count = tools.get(tool) ?? { calls: 0, steps: 0, userTurns: 0, most: 0, duplicates: 0 }
      tools.set(tool, count)
      count.calls += calls
      count.steps += called.length
      count.userTurns++
      count.most = Math.max(count.most, calls)
      count.duplicates += duplicates
      if (calls <= options.threshold) continue
      const { apart, groups } = together(turn.steps, called, seen)
      const texts = called.flatMap(({ calls }) => calls.map(textOf))
      const merged = turn.requests.filter(({ tools }) => tools.includes(tool)).length
      const now = merged > 0 ? merged : calls - duplicates
      const after = sum(groups.map(({ calls }) => Math.ceil(distinctIn(calls).length / options.size)))
      const gone = groups.flatMap(({ gone }) => gone)
      const history = gone.map((step) => turn.steps[step]!.context)
      const envelopes = sum(
        groups.flatMap(({ calls }) => calls.slice(1).map((call) => envelopeOf(call)))
      )
      for (const group of groups) found.batches.push(distinctIn(group.calls).length)
      found.candidates.push({
        source,
        conversation: conversation.id ?? null,
        index: ordinal,
        turn: index + 1,
        tool,
        calls,
        steps: called.length,
        distinct: texts.includes(undefined) ? null : new Set(texts).size,
        duplicates,
        repeats: repeatsIn(called),
        largest: Math.max(...groups.map(({ calls }) => distinctIn(calls).length)),
        apart,
        saved: {
          roundTrips: gone.length,
          requests: Math.max(0, now - after),
          envelopeTokens: Math.round(envelopes / options.charsPerToken),
          historyTokens: history.includes(undefined)
            ? null
            : Math.round(sum(history as ReadonlyArray<number>) / options.charsPerToken)
        }
      })
    }
  }
}

/** The calls of one tool in one step. */
interface Called {
  readonly step: number
  readonly calls: Array<Call>
}

/** Calls that one list would have asked for, and the steps that would not have been. */
interface Group {
  readonly first: number
  readonly calls: Array<Call>
  readonly gone: Array<number>
  last: number
}

/** Which steps of a tool could have been one, and why the others could not. */
const together = (
  steps: ReadonlyArray<Step>,
  called: ReadonlyArray<Called>,
  seen: () => ReadonlyMap<string, number>
): { readonly groups: ReadonlyArray<Group>; readonly apart: TurnInsights.Candidate["apart"] } => {
  const apart = { dependent: 0, repeated: 0, others: 0, failed: 0, unknown: 0 }
  const groups: Array<Group> = []
  for (const { calls, step } of called) {
    const group = groups.at(-1)
    const why = group === undefined ? "first" : reasonOf(steps, calls, step, group, seen)
    if (why === undefined) {
      group!.calls.push(...calls)
      group!.gone.push(step)
      group!.last = step
      continue
    }
    if (why !== "first") apart[why]++
    groups.push({ first: step, calls: [...calls], gone: [], last: step })
  }
  return { groups, apart }
}

const reasonOf = (
  steps: ReadonlyArray<Step>,
  calls: ReadonlyArray<Call>,
  step: number,
  group: Group,
  seen: () => ReadonlyMap<string, number>
): keyof TurnInsights.Candidate["apart"] | undefined => {
  if (group.last !== step - 1 || steps[step]!.calls.length !== calls.length) return "others"
  const between = steps.slice(group.first, step).flatMap(({ calls }) => calls)
  if (calls.some((call) => call.arguments === undefined) || between.some(({ result }) => result === undefined)) {
    return "unknown"
  }
  if (group.calls.some(({ failed }) => failed)) return "failed"
  const asked = new Set(group.calls.map(textOf))
  if (calls.some((call) => asked.has(textOf(call)))) return "repeated"
  const firsts = seen()
  for (const call of calls) {
    for (const word of wordsIn(call.arguments)) {
      const at = firsts.get(word)
      if (at !== undefined && at >= group.first && at < step) return "dependent"
    }
  }
  return undefined
}

/** The step in whose answers a word came up for the first time; words that the model was told or wrote before are not there. */
const firstSeen = (turn: TurnInsights.UserTurn, told: ReadonlySet<string>): ReadonlyMap<string, number> => {
  const own = new Set(turn.said.flatMap((text) => [...wordsOf(text)]))
  const firsts = new Map<string, number>()
  const isNew = (word: string) => !told.has(word) && !own.has(word) && !firsts.has(word)
  for (const [step, { calls }] of turn.steps.entries()) {
    for (const call of calls) for (const word of wordsIn(call.arguments)) if (isNew(word)) own.add(word)
    for (const { result } of calls) {
      if (result !== undefined) { for (const word of wordsOf(result)) if (isNew(word)) firsts.set(word, step) }
    }
  }
  return firsts
}

/** Words and numbers, in small letters: `"#W17-a"` is `w17` and `a`. */
const wordsOf = (text: string): Iterable<string> => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? []

/** The words of the values in arguments; names of members are the tool's. */
const wordsIn = (value: unknown): ReadonlyArray<string> => {
  if (typeof value === "string") return [...wordsOf(value)]
  if (typeof value === "number") return [...wordsOf(String(value))]
  if (typeof value !== "object" || value === null) return []
  return Object.values(value).flatMap(wordsIn)
}

/** Arguments as a text that is the same for equal ones; undefined where they are not known. */
const textOf = (call: Call): string | undefined => {
  if (call.arguments === undefined) return undefined
  let text = texts.get(call)
  if (text === undefined) texts.set(call, text = canonical(call.arguments))
  return text
}

const texts = new WeakMap<Call, string>()

/** Calls of one step that another one ran for, or would have. */
const duplicatesIn = (calls: ReadonlyArray<Call>): number => calls.length - distinctIn(calls).length

const distinctIn = (calls: ReadonlyArray<Call>): ReadonlyArray<Call> => {
  const seen = new Set<string>()
  return calls.filter((call) => {
    if (call.duplicate) return false
    const text = textOf(call)
    if (text === undefined) return true
    const isNew = !seen.has(text)
    seen.add(text)
    return isNew
  })
}

/** Calls with the arguments of one in an earlier step. */
const repeatsIn = (called: ReadonlyArray<Called>): number => {
  const before = new Set<string | undefined>()
  let repeats = 0
  for (const { calls } of called) {
    const distinct = distinctIn(calls)
    for (const call of distinct) if (textOf(call) !== undefined && before.has(textOf(call))) repeats++
    for (const call of distinct) before.add(textOf(call))
  }
  return repeats
}

/** The characters that stand around the arguments and the answer of one call. */
const envelopeOf = ({ id, tool }: Call): number =>
  JSON.stringify({ id, type: "function", function: { name: tool, arguments: "" } }).length +
  JSON.stringify({ role: "tool", tool_call_id: id, content: "" }).length

const toolOf = (
  tool: string,
  count: ToolCount,
  candidates: ReadonlyArray<TurnInsights.Candidate>
): TurnInsights.Report["tools"][number] => {
  const own = candidates.map(({ saved }) => saved)
  const history = own.map(({ historyTokens }) => historyTokens)
  return {
    tool,
    ...count,
    over: own.length,
    saved: {
      roundTrips: sum(own.map(({ roundTrips }) => roundTrips)),
      requests: sum(own.map(({ requests }) => requests)),
      envelopeTokens: sum(own.map(({ envelopeTokens }) => envelopeTokens)),
      historyTokens: history.includes(null) ? null : sum(history as ReadonlyArray<number>)
    }
  }
}

const savesMore = (a: TurnInsights.Candidate, b: TurnInsights.Candidate): number =>
  b.saved.roundTrips - a.saved.roundTrips || b.saved.requests - a.saved.requests || b.calls - a.calls ||
  compare(a.source, b.source) || a.index - b.index || a.turn - b.turn ||
  compare(a.tool, b.tool) || compare(JSON.stringify(a), JSON.stringify(b))

const compare = (a: string, b: string): number => a < b ? -1 : a > b ? 1 : 0

const sum = (numbers: ReadonlyArray<number>): number => numbers.reduce((total, n) => total + n, 0)

const add = (counts: Map<string, number>, key: string): void => void counts.set(key, (counts.get(key) ?? 0) + 1)

const distribution = (numbers: ReadonlyArray<number>): TurnInsights.Distribution => {
  const sorted = [...numbers].sort((a, b) => a - b)
  const total = sum(sorted)
  const counts = new Map<number, number>()
  for (const n of sorted) counts.set(n, (counts.get(n) ?? 0) + 1)
  // The smallest number that this share of all is not above.
  const at = (share: number) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0
  return {
    count: sorted.length,
    total,
    mean: sorted.length === 0 ? 0 : total / sorted.length,
    min: sorted[0] ?? 0,
    p50: at(0.5),
    p90: at(0.9),
    max: sorted.at(-1) ?? 0,
    values: [...counts].map(([value, count]) => ({ value, count }))
  }
}
