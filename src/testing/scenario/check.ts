/**
 * The rules that hold in every scenario: the laws of turns, on what was seen, against the file alone.
 *
 * @since 0.1.0
 */
import * as Laws from "../Laws.ts"
import type { Observation, ToolFacts } from "../laws/observation.ts"
import { keysOf } from "./keys.ts"
import type * as Report from "./report.ts"
import type * as Form from "./schema.ts"

const factsOf = (said: Form.Tool): ToolFacts => ({
  access: said.access ?? "write",
  keys: (params) => keysOf(said, params),
  idempotency: said.access === "read" || said.idempotency === "none" ? undefined : said.idempotency,
  timeout: said.timeoutMs ?? Infinity,
  idleTimeout: Infinity,
  waitTimeout: said.queueTimeoutMs ?? Infinity,
  backend: said.backend,
  asks: false,
  tellsNoEffect: true
})

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
    permitsAnswered: observed.permitsOut,
    permitsEnd: observed.permitsAtEnd,
    crashes: observed.crashes,
    faults: observed.faults
  }
}

/** All that has to hold in every scenario, each breach in words. @internal */
export const rules = (scenario: Form.Scenario, observed: Report.Observed): ReadonlyArray<string> =>
  Laws.broken(observationOf(scenario, observed))
