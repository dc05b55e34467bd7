/** The command line program: `effect-turn run | plan | scenario | insights | report | demo | keys`. */
import * as CliConfig from "effect/cli/CliConfig"
import * as CliOutput from "effect/cli/CliOutput"
import * as Command from "effect/cli/Command"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as TerminalCapabilities from "effect/cli/TerminalCapabilities"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Schema from "effect/Schema"
import type * as Turn from "../Turn.ts"
import * as Check from "./check.ts"
import * as Completions from "./completions.ts"
import { runDemo } from "./demo.ts"
import { exitCode, explain, fromCliError, Misuse } from "./failure.ts"
import * as Flags from "./flags.ts"
import * as Help from "./help.ts"
import * as Input from "./input.ts"
import * as Insights from "./insights.ts"
import * as KeyResolve from "./keyResolve.ts"
import * as Keys from "./keys.ts"
import * as LiveInput from "./liveInput.ts"
import * as Manual from "./manual.ts"
import * as Policy from "./policy.ts"
import * as Recording from "./recording.ts"
import * as Report from "./report.ts"
import * as RunTurn from "./runTurn.ts"
import { runFiles } from "./scenarios.ts"
import { Sizes } from "./terminal.ts"
import * as ToolsModule from "./toolsModule.ts"

/** What changes a plan. */
const planFlags = {
  message: Flags.message,
  tools: Flags.tools,
  json: Flags.json,
  dialect: Flags.dialect,
  policy: Flags.policy,
  references: Flags.references,
  execution: Flags.execution,
  tenant: Flags.tenant
}

const runFlags = {
  ...planFlags,
  siblings: Flags.siblings,
  deadline: Flags.deadline,
  grace: Flags.grace,
  scenario: Flags.scenario,
  why: Flags.why,
  redact: Flags.redact,
  report: Flags.report,
  force: Flags.force
}

const runCommand = Command.make(
  "run",
  runFlags,
  (flags) =>
    Effect.scoped(Effect.flatMap(
      Effect.all([Recording.target(flags), Report.target(flags.report, flags.force)]),
      ([record, report]) =>
        job(flags, "needed", LiveInput.read, {
          ...(Option.isSome(flags.siblings) ? { siblings: Policy.siblings[flags.siblings.value] } : undefined),
          ...(Option.isSome(flags.deadline) ? { deadline: flags.deadline.value } : undefined),
          ...(Option.isSome(flags.grace) ? { grace: flags.grace.value } : undefined)
        }).pipe(Effect.flatMap((job) => RunTurn.run(job, record, report)))
    ))
).pipe(
  Command.withShortDescription("run the calls of a message"),
  Command.withDescription(Help.run),
  Command.withExamples([
    { command: "effect-turn run message.json --tools ./tools.ts", description: "Run a recorded message" },
    {
      command: "curl -s … | effect-turn run - --tools ./tools.ts --json | jq .messages",
      description: "Run what a provider answers, and go on with the result"
    },
    {
      command: "effect-turn run message.json --tools ./tools.ts --siblings fail-fast --deadline 30s",
      description: "Stop all calls at the first failure, and the turn after 30 seconds"
    },
    {
      command: "effect-turn run message.json --tools ./tools.ts --deadline 30s --grace 5s",
      description: "End within 35 seconds, even where a write hangs"
    },
    {
      command: "effect-turn run message.json --tools ./tools.ts --scenario scenarios/two-bookings.json",
      description: "Keep the turn as a test that needs no tools"
    },
    {
      command: "effect-turn run message.json --tools ./tools.ts --report turn.html",
      description: "See where the time went"
    }
  ])
)

const planCommand = Command.make(
  "plan",
  { ...planFlags, format: Flags.planFormat },
  (flags) =>
    Effect.flatMap(
      planForm(flags),
      (form) => Effect.flatMap(job(flags, "optional", Input.read, {}), (job) => RunTurn.plan(job, form))
    )
).pipe(
  Command.withShortDescription("show what a turn would do"),
  Command.withDescription(Help.plan),
  Command.withExamples([
    { command: "effect-turn plan message.json --tools ./tools.ts", description: "Draw the plan as a tree" },
    {
      command: "effect-turn plan message.json --tools ./tools.ts --format mermaid",
      description: "Draw it as a flowchart, for a Markdown page or mermaid.live"
    },
    {
      command: "effect-turn plan message.json --tools ./tools.ts --json | jq .edges",
      description: "Who waits for whom"
    }
  ])
)

/** `--json` is the short way to say `--format json`. */
const planForm = (
  { format, json }: { readonly format: Option.Option<RunTurn.PlanForm>; readonly json: boolean }
): Effect.Effect<RunTurn.PlanForm, Misuse> => {
  const form = Option.getOrElse(format, () => json ? "json" : "text")
  return json && form !== "json"
    ? new Misuse({
      what: "--json with another --format",
      expected: "one of them",
      received: `--json --format ${form}`,
      advice: "leave one of them out"
    })
    : Effect.succeed(form)
}

const scenarioFlags = { files: Flags.files, explore: Flags.explore, replay: Flags.replay }

const scenarioCommand = Command.make(
  "scenario",
  scenarioFlags,
  ({ explore, files, replay }) =>
    runFiles(files, { explore: Option.getOrUndefined(explore), replay: Option.getOrUndefined(replay) })
).pipe(
  Command.withShortDescription("run scenario files in virtual time"),
  Command.withDescription(Help.scenario),
  Command.withExamples([
    { command: "effect-turn scenario scenarios/*.json", description: "Run all scenarios of a folder" },
    { command: "effect-turn scenario a.json | jq 'select(.pass | not)'", description: "See what failed" },
    {
      command: "effect-turn scenario --explore 1000 scenarios/*.json",
      description: "Run each of them under 1000 interleavings more"
    },
    { command: "effect-turn scenario --replay 17/31:1 a.json", description: "Run the one again that failed" }
  ])
)

const insightsFlags = {
  files: Flags.recordings,
  format: Flags.format,
  threshold: Flags.threshold,
  size: Flags.batchSize,
  charsPerToken: Flags.charsPerToken,
  gap: Flags.gap,
  limit: Flags.rows,
  json: Flags.json,
  html: Flags.html,
  force: Flags.overwrite
}

const insightsCommand = Command.make("insights", insightsFlags, Insights.insights).pipe(
  Command.withShortDescription("tell what lists would have saved in recorded turns"),
  Command.withDescription(Help.insights),
  Command.withExamples([
    { command: "effect-turn insights logs/*.jsonl", description: "Which tools should take lists" },
    { command: "effect-turn insights events.jsonl --html report.html", description: "The same as a page with charts" },
    {
      command: "effect-turn insights traces.json --json | jq '.tools[] | select(.over > 0) | .tool'",
      description: "The tools that are called more than 3 times in one user turn"
    },
    {
      command: "curl -s … | effect-turn insights - --format chat --threshold 5 --size 25",
      description: "A history from elsewhere, with other limits"
    }
  ])
)

const reportFlags = { file: Flags.events, json: Flags.json, html: Flags.reportPage, force: Flags.overwrite }

const reportCommand = Command.make("report", reportFlags, Report.report).pipe(
  Command.withShortDescription("tell where the time of recorded turns went"),
  Command.withDescription(Help.report),
  Command.withExamples([
    { command: "effect-turn report events.jsonl", description: "A timeline, the waits and the critical path" },
    { command: "effect-turn report events.jsonl --html turn.html", description: "The same as a page" },
    {
      command: "effect-turn report events.jsonl --json | jq '.turns[] | {turn, elapsed, waits}'",
      description: "What each turn waited for"
    }
  ])
)

const checkFlags = {
  history: Flags.history,
  dialect: Flags.historyDialect,
  fix: Flags.fix,
  output: Flags.output,
  force: Flags.overwriteOutput,
  json: Flags.json
}

const checkCommand = Command.make("check", checkFlags, Check.check).pipe(
  Command.withShortDescription("tell what a provider would refuse in a history"),
  Command.withDescription(Help.check),
  Command.withExamples([
    { command: "effect-turn check history.json", description: "What is wrong, where, and what --fix would do" },
    {
      command: "effect-turn check history.json --fix --output mended.json",
      description: "Close what is open, and go on with the conversation"
    },
    {
      command: "effect-turn check request.json --json | jq -r '.problems[] | .path + \" \" + .code'",
      description: "The same for a program"
    }
  ])
)

const demoCommand = Command.make("demo", { json: Flags.json }, ({ json }) => runDemo(json)).pipe(
  Command.withShortDescription("run a travel agent's turn"),
  Command.withDescription(Help.demo)
)

const storeFlags = { store: Flags.store, table: Flags.table, prefix: Flags.prefix }

const keysList = Command.make(
  "list",
  { ...storeFlags, tenant: Flags.ofTenant, state: Flags.keyState, limit: Flags.most, json: Flags.json },
  Keys.list
).pipe(
  Command.withShortDescription("list the keys in doubt"),
  Command.withDescription(Help.keysList),
  Command.withExamples([
    { command: "effect-turn keys list --store sqlite:./turns.db", description: "Which writes are in doubt" },
    {
      command: "effect-turn keys list --store postgres://app@db/shop --tenant north --json | jq .key",
      description: "The same of one tenant, for a program"
    },
    {
      command: "effect-turn keys list --store redis://cache:6379 --prefix shop --state all",
      description: "All keys, whatever became of them"
    }
  ])
)

const keysShow = Command.make(
  "show",
  { id: Flags.keyId, ...storeFlags, ...Flags.keyParts, json: Flags.json },
  Keys.show
).pipe(
  Command.withShortDescription("show one key"),
  Command.withDescription(Help.keysShow),
  Command.withExamples([
    { command: "effect-turn keys show 3f9a --store sqlite:./turns.db", description: "By the beginning of its id" },
    {
      command: "effect-turn keys show --tenant north --tool pay --key order-17 --store sqlite:./turns.db",
      description: "By its parts"
    }
  ])
)

const keysResolve = Command.make(
  "resolve",
  {
    id: Flags.keyId,
    ...storeFlags,
    ...Flags.keyParts,
    applied: Flags.applied,
    notApplied: Flags.notApplied,
    result: Flags.result,
    tools: Flags.resultTools,
    yes: Flags.yes,
    json: Flags.json
  },
  KeyResolve.resolve
).pipe(
  Command.withShortDescription("say what became of a key in doubt"),
  Command.withDescription(Help.keysResolve),
  Command.withExamples([
    {
      command: "effect-turn keys resolve 3f9a --applied --result '{\"booking\": 17}' --store sqlite:./turns.db",
      description: "The booking is there: calls with its key are answered with it"
    },
    {
      command:
        "effect-turn keys resolve 3f9a --applied --result '{\"booking\": 18}' --tools ./tools.ts --store sqlite:./turns.db",
      description: "Correct a result that was mistyped, and have it checked"
    },
    {
      command: "effect-turn keys resolve 3f9a --not-applied --yes --store sqlite:./turns.db",
      description: "It is certainly not there: the next call makes it"
    }
  ])
)

const keysExpire = Command.make("expire", { ...storeFlags, json: Flags.json }, Keys.expire).pipe(
  Command.withShortDescription("forget keys that are kept no longer"),
  Command.withDescription(Help.keysExpire),
  Command.withExamples([
    { command: "effect-turn keys expire --store sqlite:./turns.db", description: "From a cron job, once a day" }
  ])
)

const keysCommand = Command.make("keys").pipe(
  Command.withShortDescription("show, resolve and forget idempotency keys"),
  Command.withDescription(Help.keys),
  Command.withSubcommands([keysList, keysShow, keysResolve, keysExpire])
)

const command = Command.make("effect-turn").pipe(
  Command.withShortDescription("run the tool calls of one model turn"),
  Command.withDescription(Help.root),
  Command.withSubcommands([
    runCommand,
    planCommand,
    scenarioCommand,
    insightsCommand,
    reportCommand,
    checkCommand,
    demoCommand,
    keysCommand
  ])
)

const job = <I, R>(
  flags: {
    readonly message: string
    readonly tools: string
    readonly json: boolean
    readonly tenant: Option.Option<string>
    readonly dialect: Option.Option<string>
    readonly policy: Option.Option<string>
    readonly references: Option.Option<boolean>
    readonly execution: Option.Option<"parallel" | "sequential" | number>
  },
  layer: "needed" | "optional",
  read: (file: string, dialect: string | undefined) => Effect.Effect<I, Misuse, R>,
  said: Turn.Options
) =>
  Effect.gen(function*() {
    // What is quickly read is checked before the module, which may take long to load.
    const policy = Option.isSome(flags.policy) ? yield* Policy.read(flags.policy.value) : {}
    const tools = yield* ToolsModule.load(flags.tools, { layer })
    const input = yield* read(flags.message, Option.getOrUndefined(flags.dialect))
    return {
      input,
      tools,
      options: {
        ...tools.policy,
        ...policy,
        ...said,
        ...(Option.isSome(flags.references) ? { references: flags.references.value } : undefined),
        ...(Option.isSome(flags.execution) ? { execution: flags.execution.value } : undefined)
      },
      tenant: Option.getOrElse(flags.tenant, () => "default"),
      json: flags.json
    }
  })

/** On a bad invocation: what is wrong and where help is, and not the whole help, which would hide it. */
const presenter: CliOutput.Presenter = {
  present: Effect.fnUntraced(function*(event) {
    if (event._tag === "InvalidInvocation") {
      const command = event.commandPath.join(" ")
      // Of a command that is not there no flag is known either, so that is all there is to say.
      const unknown = event.errors.filter((error) => error._tag === "UnknownSubcommand")
      const errors = unknown.length === 0 ? event.errors : unknown
      return yield* Effect.forEach(errors, (error) => explain(fromCliError(error, command)), { discard: true })
    }
    if (event._tag === "Version") return yield* CliOutput.defaultPresenter.present(event)
    const { columns } = (yield* Sizes).stdout()
    const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
    yield* Console.log(Manual.format(event.helpDoc, command, columns, canColor))
  })
}

const version = Effect.gen(function*() {
  const path = yield* Path.Path
  const fs = yield* FileSystem.FileSystem
  const file = yield* path.fromFileUrl(new URL("../../package.json", import.meta.url))
  const text = yield* fs.readFileString(file)
  return (yield* Schema.decodeEffect(Schema.fromJsonString(Schema.Struct({ version: Schema.String })))(text))
    .version
}).pipe(Effect.orDie)

/** Runs the program and gives its exit code. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<number, never, Command.Environment> =>
  Effect.gen(function*() {
    return yield* Command.runWith(command, { version: yield* version })(args).pipe(
      Effect.as<number>(exitCode.ok),
      Effect.catchTags({
        NotOk: () => Effect.succeed(exitCode.notOk),
        Misuse: (misuse) => Effect.as(explain(misuse), exitCode.misuse),
        ShowHelp: ({ errors }) => Effect.succeed(errors.length === 0 ? exitCode.ok : exitCode.misuse)
      }),
      Effect.orDie
    )
  }).pipe(
    Effect.provideService(CliOutput.Presenter, presenter),
    Effect.provideService(Logger.LogToStderr, true),
    Effect.provideService(CliConfig.CliConfig, {
      builtIns: [GlobalFlag.Help, GlobalFlag.Version, Completions.flag]
    })
  )
