/**
 * The form of a scenario file: fake tools, turns of calls, things that happen while they run, and what must come out.
 *
 * Unknown fields are refused at every depth, and each complaint says where, what was expected and what came.
 *
 * @since 0.1.0
 */
import * as Exit from "effect/Exit"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import * as ToolCall from "../../ToolCall.ts"
import * as TurnError from "../../TurnError.ts"

const optional = Schema.optionalKey

/** A whole number of at least `minimum`. */
const count = (minimum: number) => Schema.Int.check(Schema.isGreaterThanOrEqualTo(minimum))

/** Milliseconds from the start of something. */
const Millis = count(0)

/** A limit in milliseconds: 0, negative numbers and more than 2^31-1 are refused. */
const Limit = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 }))

const Text = Schema.String.check(Schema.isMinLength(1))

const isObject = (value: unknown): value is { readonly [name: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** An object as it came, member for member: no schema copies it, so odd names in it stay data. */
const AnyObject = Schema.declare(isObject, { expected: "an object" })

const Budget = Schema.Struct({ maxChars: count(1) })

const Call = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  arguments: Schema.Union([Schema.String, AnyObject]),
  providerExecuted: optional(Schema.Boolean)
})

const timing = {
  latencyMs: optional(Millis),
  effectAtMs: optional(Millis),
  when: optional(AnyObject),
  ignoresInterrupt: optional(Schema.Boolean)
}
const payload = {
  result: optional(Schema.Unknown),
  error: optional(Schema.Unknown),
  thrown: optional(Schema.Unknown)
}
const common = { ...timing, ...payload }

const Behaviour = Schema.Union([
  Schema.Struct({ type: Schema.Literal("ok"), ...common }),
  Schema.Struct({ type: Schema.Literal("fail"), ...common }),
  Schema.Struct({ type: Schema.Literal("failUnknown"), ...common }),
  Schema.Struct({ type: Schema.Literal("failAfterEffect"), ...common }),
  Schema.Struct({ type: Schema.Literal("throw"), ...common, thrown: Schema.Unknown }),
  Schema.Struct({ type: Schema.Literal("hang"), ...common }),
  Schema.Struct({ type: Schema.Literal("selfInterrupt"), ...common }),
  Schema.Struct({
    type: Schema.Literal("returnRaw"),
    ...common,
    result: Schema.Literals(["undefined", "bigint", "circular", "date", "nan"])
  }),
  Schema.Struct({ type: Schema.Literal("rateLimited"), ...common, untilMs: Millis, retryAfterMs: Millis }),
  Schema.Struct({ type: Schema.Literal("callsTools"), ...common, calls: Schema.Array(Call) }),
  Schema.Struct({
    type: Schema.Literal("items"),
    ...common,
    missing: optional(Schema.Array(AnyObject)),
    failing: optional(Schema.Array(AnyObject)),
    shuffled: optional(Schema.Boolean),
    short: optional(Schema.Boolean)
  })
])

const Tool = Schema.Struct({
  access: optional(Schema.Literals(["read", "write"])),
  keys: optional(Schema.Array(Text)),
  backend: optional(Schema.String),
  parameters: optional(Schema.Union([Schema.Boolean, AnyObject])),
  timeoutMs: optional(Limit),
  queueTimeoutMs: optional(Limit),
  idempotency: optional(Schema.Literals(["none", "forward", "record"])),
  idempotencyKey: optional(Text),
  approval: optional(Schema.Boolean),
  repeatable: optional(Schema.Boolean),
  retry: optional(Schema.Struct({ max: Millis, delayMs: optional(Millis), jitter: optional(Schema.Boolean) })),
  resultBudget: optional(Budget),
  placeholders: optional(Schema.Union([
    Schema.Literals(["detect", "off"]),
    Schema.Struct({ literal: Schema.Array(Schema.String) })
  ])),
  batch: optional(Schema.Struct({
    into: Schema.String,
    windowMs: optional(Millis),
    maxSize: optional(count(1))
  })),
  behaviour: optional(Schema.Union([Behaviour, Schema.Array(Behaviour).check(Schema.isMinLength(1))]))
})

const Backend = Schema.Struct({
  concurrency: count(1),
  perTenant: optional(count(1)),
  queueLimit: optional(Millis),
  rate: optional(Schema.Struct({ limit: count(1), windowMs: Limit }))
})

const Event = Schema.Union([
  Schema.Struct({ type: Schema.Literal("cancelTurn"), atMs: Millis }),
  Schema.Struct({ type: Schema.Literal("interrupt"), atMs: Millis }),
  Schema.Struct({ type: Schema.Literal("crash"), atMs: Millis }),
  Schema.Struct({ type: Schema.Literal("cancelCall"), atMs: Millis, id: Schema.String }),
  Schema.Struct({ type: Schema.Literal("approve"), atMs: Millis, id: Schema.String }),
  Schema.Struct({ type: Schema.Literal("deny"), atMs: Millis, id: Schema.String, reason: optional(Schema.String) })
])

const Turn = Schema.Struct({
  calls: optional(Schema.Array(Call)),
  startAtMs: optional(Millis),
  finishReason: optional(ToolCall.FinishReason.pick(["tool-calls", "stop", "length", "content-filter", "error"])),
  events: optional(Schema.Array(Event)),
  tenant: optional(Text),
  resume: optional(Schema.Boolean)
})

const Policy = Schema.Struct({
  siblings: optional(Schema.Literals(["letFinish", "failFast"])),
  execution: optional(Schema.Union([Schema.Literals(["parallel", "sequential"]), count(1)])),
  dedupe: optional(Schema.Literals(["all", "reads", "off"])),
  references: optional(Schema.Boolean),
  deadlineMs: optional(Limit),
  graceMs: optional(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2_147_483_647 }))),
  resultBudget: optional(Budget),
  nameRepair: optional(Schema.Boolean)
})

/** The codes that each status may have. A status that is not named has none. */
const codes = {
  error: [
    "invalid_arguments",
    "unknown_tool",
    "ambiguous_id",
    "failed",
    "defect",
    "denied",
    "unencodable_result",
    "rate_limited",
    "queue_full",
    "in_doubt",
    "incomplete_response",
    "key_reused",
    "not_found",
    "circuit_open",
    "store_unavailable",
    "over_limit",
    "vetoed",
    "deadlock"
  ],
  deferred: ["placeholder", "waits_for_approval", "dependency_failed"],
  cancelled: ["by_caller", "by_sibling", "by_deadline", "by_itself"],
  timeout: ["handler", "queue"]
} as const

const codesOf = (status: string): ReadonlyArray<string> =>
  Object.hasOwn(codes, status) ? codes[status as keyof typeof codes] : []

const Outcome = Schema.Struct({
  id: optional(Schema.String),
  status: optional(
    Schema.Literals(["ok", "error", "timeout", "deferred", "pending_approval", "cancelled", "provider_executed"])
  ),
  code: optional(Schema.Literals([...codes.error, ...codes.deferred, ...codes.cancelled, ...codes.timeout])),
  started: optional(Schema.Boolean),
  effect: optional(Schema.Literals(["none", "applied", "unknown"])),
  retryable: optional(Schema.Boolean),
  duplicateOf: optional(Schema.String),
  replayed: optional(Schema.Boolean),
  truncated: optional(Schema.Boolean),
  result: optional(Schema.Unknown)
})

const counts = Schema.Record(Schema.String, Millis)
const Pair = Schema.Tuple([Schema.String, Schema.String])

const Expect = Schema.Struct({
  outcomes: optional(Schema.Array(Schema.NullOr(Schema.Array(Outcome)))),
  executions: optional(counts),
  effects: optional(counts),
  peak: optional(counts),
  requests: optional(counts),
  before: optional(Schema.Array(Pair)),
  overlap: optional(Schema.Array(Pair)),
  elapsedMs: optional(Schema.Struct({ min: optional(Millis), max: optional(Millis) })),
  runningAfter: optional(Millis)
})

/**
 * Schema of a scenario file. What a schema of fields cannot say is checked by {@link decode}.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Scenario = Schema.Struct({
  name: Schema.String.check(Schema.isPattern(/^[a-z0-9][a-z0-9-]*$/)),
  why: Text,
  tools: Schema.Record(Schema.String, Tool),
  backends: optional(Schema.Record(Schema.String, Backend)),
  policy: optional(Policy),
  concurrent: optional(Schema.Boolean),
  turns: Schema.Array(Turn).check(Schema.isMinLength(1)),
  expect: Expect
})

/**
 * A scenario: fake tools, turns, and what must come out.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Scenario = typeof Scenario.Type

/**
 * One fake tool of a scenario.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Tool = typeof Tool.Type

/**
 * What a fake handler does.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Behaviour = typeof Behaviour.Type

/**
 * One turn of a scenario.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Turn = typeof Turn.Type

/**
 * Something that happens while a turn runs, or after it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Event = typeof Event.Type

/**
 * One call of a turn.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Call = typeof Call.Type

/**
 * A text or a value is no scenario. `problems` says where and what, one sentence each.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class InvalidScenario extends Schema.TaggedError<InvalidScenario>()("InvalidScenario", {
  problems: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `not a valid scenario: ${this.problems.join("; ")}`
  }
}

const issuesOf = SchemaIssue.makeFormatterStandardSchemaV1()

/** `turns[0].calls[1].id` */
const pathText = (path: ReadonlyArray<PropertyKey>): string =>
  path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`
    const name = String(part)
    const plain = /^[A-Za-z_$][\w$]*$/.test(name)
    return plain ? (text === "" ? name : `${text}.${name}`) : `${text}[${JSON.stringify(name)}]`
  }, "")

const at = (value: unknown, path: ReadonlyArray<PropertyKey>): unknown =>
  path.reduce<unknown>(
    (here, part) =>
      typeof here === "object" && here !== null && Object.hasOwn(here, part) ? (here as any)[part] : undefined,
    value
  )

const fieldProblems = (input: unknown, issue: SchemaIssue.Issue): ReadonlyArray<string> => {
  const problems = issuesOf(issue).issues.map(({ message, path = [] }) => {
    const keys = path.map((part) => (typeof part === "object" ? part.key : part))
    const where = keys.length === 0 ? "the file" : pathText(keys)
    if (message === "Expected no excess property") return `${where}: no such field`
    if (message === "Missing key") return `${where}: this field is required, and it is missing`
    const value = at(input, keys)
    const types = Array.from(message.matchAll(/readonly "type": ("[^"]*")/g), ([_, type]) => type)
    if (types.length > 0) {
      const got = isObject(value) ? `the type ${TurnError.show(value["type"])}` : TurnError.show(value)
      return `${where}: expected one of the types ${types.join(", ")}, got ${got}`
    }
    return `${where}: ${message.charAt(0).toLowerCase()}${message.slice(1)}, got ${TurnError.show(value)}`
  })
  return [...new Set(problems)]
}

/** The turn that a resumed turn continues, through a chain of resumed ones. */
const continued = (turns: ReadonlyArray<Turn>, index: number): number => {
  let at = index
  while (at > 0 && turns[at]?.resume === true) at--
  return at
}

/**
 * The calls of a turn as it is handed over: its own, or those of the turn that it continues.
 *
 * @category getters
 * @since 0.1.0
 * @stability experimental
 */
export const callsOf = (scenario: Scenario, index: number): ReadonlyArray<Call> =>
  scenario.turns[index]?.calls ?? scenario.turns[continued(scenario.turns, index)]?.calls ?? []

const isList = <A>(value: A | ReadonlyArray<A>): value is ReadonlyArray<A> => Array.isArray(value)

/**
 * The behaviours of a tool as a list; a tool that names none answers `ok`.
 *
 * @category getters
 * @since 0.1.0
 * @stability experimental
 */
export const behavioursOf = (tool: Tool): ReadonlyArray<Behaviour> =>
  tool.behaviour === undefined ? [{ type: "ok" }] : isList(tool.behaviour) ? tool.behaviour : [tool.behaviour]

/** The tools that others are merged into. @internal */
export const listsOf = ({ tools }: Scenario): ReadonlyArray<string> => [
  ...new Set(Object.values(tools).flatMap(({ batch }) => (batch === undefined ? [] : [batch.into])))
]

/** The backend whose permits the requests to a list take: its own, or that of the tools that are merged into it. @internal */
export const backendOf = ({ tools }: Scenario, into: string): string | undefined =>
  tools[into]?.backend ??
    Object.values(tools).find((tool) => tool.batch?.into === into && tool.backend !== undefined)?.backend

/** What the schema of the fields cannot say. */
const ruleProblems = (scenario: Scenario): ReadonlyArray<string> => {
  const problems: Array<string> = []
  if (Object.keys(scenario.tools).length === 0) problems.push("tools: expected at least one tool, got none")
  for (const [name, tool] of Object.entries(scenario.tools)) {
    if (tool.batch === undefined) continue
    const where = pathText(["tools", name, "batch", "into"])
    const into = Object.hasOwn(scenario.tools, tool.batch.into) ? scenario.tools[tool.batch.into] : undefined
    if (into === undefined) {
      problems.push(`${where}: expected the name of a tool, got ${JSON.stringify(tool.batch.into)}`)
    } else if (behavioursOf(into).some((behaviour) => behaviour.type !== "items")) {
      problems.push(`${where}: expected a tool whose behaviour is items, got ${JSON.stringify(tool.batch.into)}`)
    }
    if (tool.access !== "read") {
      problems.push(
        `${pathText(["tools", name, "access"])}: expected "read", for its calls are merged, got ${
          TurnError.show(tool.access ?? "write")
        }`
      )
    }
    const [first, twin] = Object.entries(scenario.tools).find(([_, one]) => one.batch?.into === tool.batch?.into)!
    for (const limit of ["windowMs", "maxSize"] as const) {
      const [own, other] = [tool.batch[limit], twin.batch?.[limit]]
      if (own === other) continue
      problems.push(
        `${pathText(["tools", name, "batch", limit])}: expected that of ${
          JSON.stringify(first)
        }, which is merged into the same, ${other ?? "none"}, got ${own ?? "none"}`
      )
    }
    if (behavioursOf(tool).some((behaviour) => behaviour.type !== "ok" || Object.keys(behaviour).length > 1)) {
      problems.push(
        `${
          pathText(["tools", name, "behaviour"])
        }: a tool whose calls are merged does nothing itself: expected {"type": "ok"} or none`
      )
    }
  }
  scenario.turns.forEach((turn, index) => {
    if (turn.resume !== true) {
      if (turn.calls === undefined) problems.push(`turns[${index}].calls: this field is required, and it is missing`)
      return
    }
    if (index === 0) return problems.push("turns[0].resume: the first turn continues nothing")
    if (turn.calls === undefined) return
    const before = scenario.turns[continued(scenario.turns, index)]?.calls ?? []
    const ids = (calls: ReadonlyArray<Call>) => JSON.stringify(calls.map((call) => call.id))
    if (ids(turn.calls) !== ids(before)) {
      problems.push(
        `turns[${index}].calls: a resumed turn has the same ids in the same order, expected ${ids(before)}, got ${
          ids(turn.calls)
        }`
      )
    }
  })
  const { elapsedMs, outcomes } = scenario.expect
  if (elapsedMs !== undefined && elapsedMs.min === undefined && elapsedMs.max === undefined) {
    problems.push("expect.elapsedMs: expected min, max or both, got neither")
  }
  if (outcomes === undefined) return problems
  if (outcomes.length !== scenario.turns.length) {
    problems.push(
      `expect.outcomes: expected one entry for each of ${scenario.turns.length} turns, got ${outcomes.length}`
    )
  }
  outcomes.forEach((list, index) => {
    const turn = scenario.turns[index]
    if (turn === undefined) return
    if (list === null) {
      const cut = scenario.concurrent === true ? scenario.turns : [turn]
      if (!cut.some(({ events }) => events?.some((event) => event.type === "crash") === true)) {
        problems.push(`expect.outcomes[${index}]: null is for a turn that a crash cut off, and this turn has none`)
      }
      return
    }
    const calls = callsOf(scenario, index)
    if (list.length !== calls.length) {
      problems.push(
        `expect.outcomes[${index}]: expected one entry for each of ${calls.length} calls, got ${list.length}`
      )
    }
    list.forEach((outcome, position) => {
      if (outcome.status === undefined || outcome.code === undefined) return
      const known = codesOf(outcome.status)
      if (known.includes(outcome.code)) return
      const wanted = known.length === 0 ? "no code" : `one of ${known.join(", ")}`
      problems.push(
        `expect.outcomes[${index}][${position}].code: expected ${wanted} with status "${outcome.status}", got "${outcome.code}"`
      )
    })
  })
  return problems
}

/**
 * Reads a value as a scenario, and says all that is wrong with it.
 *
 * @internal
 */
export const read = (input: unknown): Result.Result<Scenario, ReadonlyArray<string>> => {
  const exit = Schema.decodeUnknownExit(Scenario)(input, { errors: "all", onExcessProperty: "error" })
  if (Exit.isSuccess(exit)) {
    const problems = ruleProblems(exit.value)
    return problems.length === 0 ? Result.succeed(exit.value) : Result.fail(problems)
  }
  const reason = exit.cause.reasons[0]
  return Result.fail(reason?._tag === "Fail" ? fieldProblems(input, reason.error.issue) : [String(reason)])
}
