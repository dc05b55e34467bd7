/**
 * The rules that hold in every scenario: the laws of turns, on what was seen, against the file alone.
 *
 * @since 0.1.0
 */
import * as ResultBudget from "../../ResultBudget.ts"
import * as Laws from "../Laws.ts"
import type { MergedFacts, Observation, ToolFacts } from "../laws/observation.ts"
import { canonical, keysOf } from "./keys.ts"
import { objectOf } from "./recorded.ts"
import type * as Report from "./report.ts"
import * as Form from "./schema.ts"

/** How many keys a request has at most, where a file does not say. */
const usualSize = 10

/** The arguments of a call are its item's key, and its item. */
const mergedOf = (said: Form.Tool, { into, maxSize }: NonNullable<Form.Tool["batch"]>): MergedFacts => ({
  lookup: into,
  size: maxSize ?? usualSize,
  wants: (args) => {
    const own = objectOf(args)
    return own === undefined ? [] : [canonical(own)]
  },
  reach: (args) => keysOf(said, objectOf(args)),
  answer: (args) => ({ value: objectOf(args) })
})

const factsOf = (said: Form.Tool): ToolFacts => ({
  access: said.access ?? "write",
  keys: (params) => keysOf(said, params),
  idempotency: said.access === "read" || said.idempotency === "none" ? undefined : said.idempotency,
  timeout: said.timeoutMs ?? Infinity,
  idleTimeout: Infinity,
  waitTimeout: said.queueTimeoutMs ?? Infinity,
  backend: said.backend,
  asks: false,
  tellsNoEffect: true,
  merged: said.batch === undefined ? undefined : mergedOf(said, said.batch)
})

/** The lists that calls inside handlers ask: they are not seen. */
const askedInside = ({ tools }: Form.Scenario): ReadonlySet<string> =>
  new Set(
    Object.values(tools).flatMap(Form.behavioursOf).flatMap((one) => one.type === "callsTools" ? one.calls : [])
      .flatMap(({ name }) => {
        const batch = Object.hasOwn(tools, name) ? tools[name]!.batch : undefined
        return batch === undefined ? [] : [batch.into]
      })
  )

const observationOf = (scenario: Form.Scenario, observed: Report.Observed): Observation => {
  const { deadlineMs, execution, graceMs, siblings } = scenario.policy ?? {}
  const policy = {
    limit: typeof execution === "number" ? execution : Infinity,
    sequential: execution === "sequential",
    graceReads: graceMs ?? Infinity,
    graceWrites: graceMs ?? Infinity,
    deadline: deadlineMs ?? Infinity,
    stopsSiblings: siblings === "failFast",
    failFast: siblings === "failFast"
  }
  return {
    tools: new Map(Object.entries(scenario.tools).map(([name, said]) => [name, factsOf(said)])),
    backends: new Map(
      Object.entries(scenario.backends ?? {}).map(([name, { concurrency, perTenant, rate }]) => [
        name,
        {
          concurrency,
          perTenant: perTenant ?? Infinity,
          rate: rate === undefined ? undefined : { limit: rate.limit, window: rate.windowMs }
        }
      ])
    ),
    turns: observed.turns.map((turn, index) => ({
      ...policy,
      ...turn,
      tenant: scenario.turns[index]?.tenant ?? "default"
    })),
    runs: observed.runs,
    requests: observed.requests.map((request) => ({ ...request, texts: (request.keys ?? []).map(canonical) })),
    alsoAsked: askedInside(scenario),
    permitsAnswered: observed.permitsOut,
    permitsEnd: observed.permitsAtEnd,
    crashes: observed.crashes,
    faults: observed.faults
  }
}

/** All that has to hold in every scenario, each breach in words. @internal */
export const rules = (scenario: Form.Scenario, observed: Report.Observed): ReadonlyArray<string> => [
  ...Laws.broken(observationOf(scenario, observed)),
  ...tooLong(scenario, observed)
]

/** What the model gets, and is longer than it may be (R29). */
const tooLong = ({ policy, tools }: Form.Scenario, observed: Report.Observed): ReadonlyArray<string> =>
  observed.turns.flatMap((turn, index) => {
    const answers = turn.repeats === undefined ? turn.answers ?? [] : []
    const lengths = answers.map(({ model }) => ResultBudget.lengthOf(model))
    const most = (budget: Form.Tool["resultBudget"]) => budget === undefined ? Infinity : Math.max(3, budget.maxChars)
    const alone = answers.flatMap(({ outcome }, position) => {
      const name = turn.calls[position]?.name ?? ""
      const limit = outcome.status === "ok" && Object.hasOwn(tools, name) ? most(tools[name]!.resultBudget) : Infinity
      return lengths[position]! <= limit ? [] : [
        `R29: turn ${index}, call ${position} (${JSON.stringify(outcome.id)}): expected a result of at most ${limit} ` +
        `characters, got ${lengths[position]}`
      ]
    })
    const all = answers.reduce(
      (all, { outcome }, position) => outcome.status === "ok" ? all + lengths[position]! : all,
      0
    )
    const limit = policy?.resultBudget?.maxChars ?? Infinity
    // A mark for each result is the shortest that there is.
    const least = answers.filter(({ outcome }) => outcome.status === "ok").length * 3
    return all <= Math.max(limit, least)
      ? alone
      : [...alone, `R29: turn ${index}: expected results of at most ${limit} characters together, got ${all}`]
  })
