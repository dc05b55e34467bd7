/**
 * A recorded turn as a scenario: its calls, its tools with their policies, what became of each call and when, and the stops.
 *
 * - **F1** Nothing is run of the team's own but what decides keys: those of resources and of idempotency, on the recorded arguments.
 * - **F2** The scenario passes. It is run until each handler ends at the moment of the recording, and what the scenario answers
 *   otherwise all the same is left out of its expectations.
 * - **F3** What could not be expressed is said in `notes`, one sentence each.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as TurnError from "../../TurnError.ts"
import { outcomeOf } from "../laws/observation.ts"
import type { Judge } from "./explore.ts"
import { same } from "./keys.ts"
import { codeOf, type Ran, ranOf, type RecordedTurn, toolsOf } from "./recorded.ts"
import type * as Report from "./report.ts"
import * as Rewrite from "./rewrite.ts"
import * as Run from "./run.ts"
import type * as Form from "./schema.ts"

/**
 * How a recorded turn is written as a scenario.
 *
 * **Details**
 *
 * - `name`: of the scenario, and so of its file: small letters, digits and dashes.
 * - `why`: the fault that it guards against. Default: a sentence that asks for one.
 * - `redact`: `true` puts `"redacted"` in place of what the tools answered, failed or died with. Arguments stay as they are.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface FromTurnOptions {
  readonly name: string
  readonly why?: string | undefined
  readonly redact?: boolean | undefined
}

/** What stands in `why` until somebody says it. */
const whyNot = "Recorded from a real turn. Replace this sentence by the fault that the scenario guards against."

/** Takes a sentence on what could not be expressed. */
type Note = (text: string) => void

/** @internal */
export const fromTurn = (
  recorded: RecordedTurn,
  options: FromTurnOptions,
  judge: Judge
): Effect.Effect<{ readonly scenario: Form.Scenario; readonly notes: ReadonlyArray<string> }> =>
  Effect.gen(function*() {
    const notes: Array<string> = []
    const note: Note = (text) => {
      if (!notes.includes(text)) notes.push(text)
    }
    const draft = new Draft(recorded, options, note)
    let seen = yield* aligned(draft)
    if (loosened(draft, seen, note)) seen = yield* aligned(draft)
    const scenario: Form.Scenario = { ...draft.scenario(), expect: expected(draft, seen, options, note) }
    late(draft, seen, note)
    for (const failure of judge(scenario, seen)) note(`the scenario does not pass: ${failure}`)
    return { scenario: JSON.parse(JSON.stringify(scenario)) as Form.Scenario, notes }
  })

/** A scenario of which the times are still to be found. */
class Draft {
  readonly recorded: RecordedTurn
  readonly tools: ReturnType<typeof toolsOf>
  readonly ran: ReadonlyArray<Ran>
  /** How long each handler takes, by the position of its call. */
  readonly latencies: Map<number, number>
  /** The tools that take any arguments. */
  readonly loose = new Set<string>()
  readonly written: ReadonlyMap<string, Form.Tool>
  private readonly options: FromTurnOptions
  private readonly note: Note
  private readonly rest: Omit<Form.Scenario, "tools">

  constructor(recorded: RecordedTurn, options: FromTurnOptions, note: Note) {
    this.recorded = recorded
    this.options = options
    this.note = note
    this.tools = toolsOf(recorded)
    this.ran = ranOf(recorded, this.tools)
    this.latencies = new Map(this.ran.map(({ end, most, position, start }) => [
      position,
      end === undefined ? 0 : Math.min(end - start, most)
    ]))
    const written = new Map(
      [...new Set(this.tools)].flatMap((tool) =>
        tool === undefined ? [] : [[tool.name, Rewrite.toolOf(tool, recorded, this.tools, this.ran, note)] as const]
      )
    )
    // A scenario has a tool at least, also where all calls mean tools that are not there.
    if (written.size === 0) {
      written.set(Object.values(recorded.toolkit.tools)[0]?.name ?? "unused", { access: "read", keys: [] })
    }
    this.written = written
    const { finishReason } = recorded.options ?? {}
    const policy = Rewrite.policyOf(recorded.options ?? {}, this.ran, note)
    const backends = Rewrite.backendsOf(recorded, this.ran, note)
    const events = Rewrite.eventsOf(recorded, this.ran, note)
    this.rest = {
      name: options.name,
      why: options.why ?? whyNot,
      ...(backends === undefined ? undefined : { backends }),
      ...(Object.keys(policy).length === 0 ? undefined : { policy }),
      turns: [{
        calls: recorded.calls.map(Rewrite.callOf),
        ...(recorded.tenant === undefined || recorded.tenant === "default" ? undefined : { tenant: recorded.tenant }),
        // The others of the library mean the same as none.
        ...(finishReason === undefined || finishReason === "pause" || finishReason === "other" ||
            finishReason === "unknown"
          ? undefined
          : { finishReason }),
        ...(events.length === 0 ? undefined : { events })
      }],
      expect: {}
    }
  }

  /** The scenario with the times as they are by now. */
  scenario(): Form.Scenario {
    const { name, why, ...rest } = this.rest
    const tools = [...this.written].map(([name, { parameters, ...tool }]) => {
      const own = this.ran.filter((one) => one.tool.name === name)
      const behaviour = Rewrite.behaviourOf(own, this.latencies, tool, {
        redact: this.options.redact === true,
        refers: Rewrite.refers(this.recorded.options),
        note: this.note
      })
      return [name, {
        ...tool,
        ...(parameters === undefined || this.loose.has(name) ? undefined : { parameters }),
        ...(behaviour === undefined ? undefined : { behaviour })
      }] as const
    })
    return { name, why, tools: Object.fromEntries(tools), ...rest }
  }
}

/** How often times are corrected: once for each link of the longest chain of waiting calls is enough. */
const maxPasses = 20

/** Runs the scenario until what ends by itself ends when it did. Waiting takes no time of its own there, so that starts differ. */
const aligned = (draft: Draft): Effect.Effect<Report.Observed> =>
  Effect.gen(function*() {
    const { latencies, ran } = draft
    for (let pass = 1;; pass++) {
      const { observed } = yield* Run.run(draft.scenario())
      let changed = false
      for (const { end, most, position } of ran) {
        const run = runOf(observed, position)
        if (end === undefined || run === undefined) continue
        const latency = Math.max(0, Math.min(end - run.startedAt, most))
        if (latency === latencies.get(position)) continue
        latencies.set(position, latency)
        changed = true
      }
      if (!changed || pass === maxPasses) return observed
    }
  })

const runOf = (observed: Report.Observed, position: number) =>
  observed.runs.find((run) => run.position === position && run.parent === undefined)

/** Whether there are tools that took what their JSON Schema does not: the scenario goes without the schema then. */
const loosened = ({ loose, recorded, tools, written }: Draft, seen: Report.Observed, note: Note): boolean => {
  for (const [position, tool] of tools.entries()) {
    const answer = seen.turns[0]?.answers?.[position]?.outcome
    const wrong = answer === undefined
      ? seen.runs.length === 0
      : answer.code === "invalid_arguments" && codeOf(recorded.outcomes[position]!) !== answer.code
    if (!wrong || tool === undefined || written.get(tool.name)?.parameters === undefined) continue
    loose.add(tool.name)
    note(`tool ${tool.name}: its parameters are not as its JSON Schema says, so the scenario takes any arguments`)
  }
  return loose.size > 0
}

/** The outcomes, and how often each tool was started, but for what the scenario gives otherwise. */
const expected = (
  { recorded, tools, written }: Draft,
  seen: Report.Observed,
  options: FromTurnOptions,
  note: Note
): Form.Scenario["expect"] => {
  const outcomes = recorded.outcomes.map((outcome, position) => {
    const told = outcomeOf(outcome)
    const wanted = options.redact === true && "result" in told ? { ...told, result: Rewrite.redacted } : told
    const got: { readonly [field: string]: unknown } = { ...seen.turns[0]?.answers?.[position]?.outcome }
    const met = Object.entries(wanted).filter(([field, value]) => {
      if (same(got[field], value)) return true
      const gives = got[field] === undefined ? "none" : TurnError.show(got[field])
      note(
        `call ${position} (${JSON.stringify(told.id)}): its ${field} was ${
          TurnError.show(value)
        }, and the scenario gives ${gives}: ` +
          "it is not expected"
      )
      return false
    })
    return Object.fromEntries(met)
  })
  const executions = [...written.keys()].flatMap((name) => {
    const started = recorded.events.filter((event) =>
      event._tag === "CallStarted" && tools[event.position]?.name === name
    ).length
    const got = seen.executions[name] ?? 0
    if (got === started) return [[name, started] as const]
    note(`tool ${name}: it was started ${started} times, and the scenario starts it ${got} times: that is not expected`)
    return []
  })
  return { outcomes: [outcomes], executions: Object.fromEntries(executions) } as Form.Scenario["expect"]
}

/** How much later than in the scenario a call may have started without being worth a note. */
const slack = 10

/** What waited for something that is not in the scenario. */
const late = ({ ran }: Draft, seen: Report.Observed, note: Note): void => {
  for (const { position, start } of ran) {
    const at = runOf(seen, position)?.startedAt
    if (at === undefined || start - at <= slack) continue
    note(
      `call ${position}: it started at ${start} ms, and starts at ${at} ms in the scenario: what it waited for is not in the recording`
    )
  }
}
