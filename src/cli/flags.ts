/** Flags and arguments that commands share, with what their help says. */
import * as Argument from "effect/cli/Argument"
import * as Flag from "effect/cli/Flag"
import * as Option from "effect/Option"
import { parse } from "../testing/simulation/choices.ts"
import { Form } from "../TurnInsights.ts"
import { dialects } from "../wire/Dialects.ts"
import { or, parseTime } from "./text.ts"

export const message = Argument.String("MESSAGE").pipe(
  Argument.withDescription('file with the model\'s message (see MESSAGE); "-" or nothing is standard input'),
  Argument.withDefault("-")
)

export const tools = Flag.String("tools").pipe(
  Flag.withMetavar("MODULE"),
  Flag.withDescription("module that exports the tools (see TOOLS MODULE): a path or a file URL")
)

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("print one JSON object on standard output"),
  Flag.withDefault(false)
)

export const siblings = Flag.Literals("siblings", ["let-finish", "fail-fast", "all-or-nothing"]).pipe(
  Flag.withMetavar("POLICY"),
  Flag.withDescription(
    "what a failing call does to the others: let-finish (the default: nothing), fail-fast (stop them), or all-or-nothing (stop them, and " +
      "undo what the tools say how to undo)"
  ),
  Flag.optional
)

export const policy = Flag.String("policy").pipe(
  Flag.withMetavar("FILE|JSON"),
  Flag.withDescription(
    "options of the turn as JSON, from a file or as it stands here (see POLICY): they go before those of the tools module, flags go before both"
  ),
  Flag.optional
)

export const references = Flag.Boolean("references").pipe(
  Flag.withDescription(
    'arguments may be results of other calls of the turn, such as {"$ref": "call_1#/hotels/0/id"}: such a call waits for the result'
  ),
  Flag.optional
)

export const dialect = Flag.Literals("dialect", dialects.map(({ id }) => id)).pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription(`whose message it is: ${or(dialects.map(({ id }) => id))}. Default: found out`),
  Flag.optional
)

export const planFormat = Flag.Literals("format", ["text", "mermaid", "json"]).pipe(
  Flag.withMetavar("FORM"),
  Flag.withDescription("text (the default: a tree), mermaid (a flowchart for Markdown pages), or json"),
  Flag.optional
)

export const deadline = Flag.String("deadline").pipe(
  Flag.withMetavar("TIME"),
  Flag.withDescription(
    'time for the whole turn, waiting included: "500ms", "30s", "2m", "1 minute". A write that has started is awaited ' +
      "past it; --grace bounds that"
  ),
  Flag.filterMap(
    (text) => parseTime(text, 1),
    () => 'Expected: a time over 0 and under 24 days, such as "500ms", "30s", "2m" or "1 minute"'
  ),
  Flag.optional
)

export const grace = Flag.String("grace").pipe(
  Flag.withMetavar("TIME"),
  Flag.withDescription(
    "how long a stop or a timeout waits for work that goes on regardless; whether it took effect is not known then. " +
      "Default: 5 s for reads, no limit for writes"
  ),
  Flag.filterMap(
    (text) => parseTime(text, 0),
    () => 'Expected: 0, or a time under 24 days, such as "500ms", "30s", "2m" or "1 minute"'
  ),
  Flag.optional
)

export const tenant = Flag.String("tenant").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription('on whose behalf the turn runs (default "default")'),
  Flag.filter((name) => name.trim() !== "", () => "Expected: a name"),
  Flag.optional
)

export const execution = Flag.String("execution").pipe(
  Flag.withMetavar("parallel|sequential|N"),
  Flag.withDescription("all that may run together (the default), one after another, or at most N at once"),
  Flag.filterMap(parseExecution, () => 'Expected: "parallel", "sequential" or a whole number from 1'),
  Flag.optional
)

export const scenario = Flag.String("scenario").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription(
    "write the turn, when it has ended, as a scenario file that runs again without the tools: effect-turn scenario FILE. It is " +
      "called after the file, so name.json; a file that is there already is not overwritten"
  ),
  Flag.optional
)

export const why = Flag.String("why").pipe(
  Flag.withMetavar("TEXT"),
  Flag.withDescription("with --scenario: the fault that the scenario guards against, in a sentence"),
  Flag.filter((text) => text.trim() !== "", () => "Expected: a sentence"),
  Flag.optional
)

export const redact = Flag.Boolean("redact").pipe(
  Flag.withDescription("with --scenario: leave out what the tools answered, failed or died with; arguments stay"),
  Flag.withDefault(false)
)

export const report = Flag.String("report").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription(
    "write where the turn's time went, when it has ended: a page (.html), JSON (.json) or text (.txt, .md); a file that is there " +
      "already is not overwritten"
  ),
  Flag.optional
)

export const force = Flag.Boolean("force").pipe(
  Flag.withDescription("with --scenario or --report: overwrite the file"),
  Flag.withDefault(false)
)

export const explore = Flag.String("explore").pipe(
  Flag.withMetavar("N"),
  Flag.withDescription(
    "run each scenario under N more interleavings of its fibers (seeds 1 to N), until one fails: it is made small, and told " +
      "with what differs from the natural order"
  ),
  Flag.filterMap(parseCount, () => "Expected: how many interleavings, a whole number from 1 to 999999999"),
  Flag.optional
)

export const replay = Flag.String("replay").pipe(
  Flag.withMetavar("TEXT"),
  Flag.withDescription("run one file under exactly the interleaving that an earlier --explore has printed, or a seed"),
  Flag.filterMap(parseReplay, () => 'Expected: the replay that --explore printed, such as "17/31:1,40:2", or a seed'),
  Flag.optional
)

export const store = Flag.String("store").pipe(
  Flag.withMetavar("STORE"),
  Flag.withDescription("where the program keeps its keys: sqlite:FILE, postgres://… or redis://…")
)

export const table = Flag.String("table").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription("of sqlite and postgres: the table, where the program has named it (default effect_turn_rows)"),
  Flag.optional
)

export const prefix = Flag.String("prefix").pipe(
  Flag.withMetavar("TEXT"),
  Flag.withDescription("of redis: what the keys begin with, where the program has said it (default effect-turn)"),
  Flag.optional
)

export const keyState = Flag.Literals("state", ["unknown", "reserved", "applied", "undone", "all"]).pipe(
  Flag.withMetavar("STATE"),
  Flag.withDescription("unknown (the default: those in doubt), reserved, applied, undone, or all"),
  Flag.withDefault("unknown" as const)
)

export const ofTenant = Flag.String("tenant").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription("only the keys of this tenant"),
  Flag.optional
)

export const most = Flag.String("limit").pipe(
  Flag.withMetavar("N"),
  Flag.withDescription("at most so many keys (default 100)"),
  Flag.filterMap(parseCount, () => "Expected: how many keys, a whole number from 1 to 999999999"),
  Flag.withDefault(100)
)

export const keyId = Argument.String("ID").pipe(
  Argument.withDescription("what `keys list` shows, or as much of its beginning as names one key"),
  Argument.optional
)

/** A key by all its parts. */
export const keyParts = {
  tenant: Flag.String("tenant").pipe(
    Flag.withMetavar("NAME"),
    Flag.withDescription('instead of an ID, with --tool and --key: the tenant (default "default")'),
    Flag.optional
  ),
  conversation: Flag.String("conversation").pipe(
    Flag.withMetavar("NAME"),
    Flag.withDescription("the conversation, where the key belongs to one"),
    Flag.optional
  ),
  tool: Flag.String("tool").pipe(Flag.withMetavar("NAME"), Flag.withDescription("the tool"), Flag.optional),
  key: Flag.String("key").pipe(Flag.withMetavar("TEXT"), Flag.withDescription("the key itself"), Flag.optional)
}

export const applied = Flag.Boolean("applied").pipe(
  Flag.withDescription("the write took effect"),
  Flag.withDefault(false)
)

export const notApplied = Flag.Boolean("not-applied").pipe(
  Flag.withDescription("the write did not take effect, and will not"),
  Flag.withDefault(false)
)

export const result = Flag.String("result").pipe(
  Flag.withMetavar("JSON"),
  Flag.withDescription("with --applied: the result that calls with this key are answered with"),
  Flag.optional
)

export const resultTools = Flag.String("tools").pipe(
  Flag.withMetavar("MODULE"),
  Flag.withDescription(
    "with --result: module that exports the tools, as `effect-turn run` has it: the result is refused where it does not fit the " +
      "tool's success schema"
  ),
  Flag.optional
)

export const yes = Flag.Boolean("yes").pipe(
  Flag.withDescription("do not ask"),
  Flag.withDefault(false)
)

export const files = Argument.String("FILE").pipe(
  Argument.withDescription("scenario files"),
  Argument.variadic({ min: 1 })
)

export const recordings = Argument.String("FILE").pipe(
  Argument.withDescription('recorded turns; "-" is standard input'),
  Argument.variadic({ min: 1 })
)

export const events = Argument.String("EVENTS").pipe(
  Argument.withDescription('recorded events of turns; "-" is standard input')
)

export const reportPage = Flag.String("html").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription(
    "write a page with the timeline too, which loads nothing; a file that is there already is not overwritten"
  ),
  Flag.optional
)

export const format = Flag.Literals("format", Form.literals).pipe(
  Flag.withMetavar("FORM"),
  Flag.withDescription(
    "of all files: events, calls, chat, responses, anthropic or otel. Default: found out for each file"
  ),
  Flag.optional
)

export const threshold = Flag.String("threshold").pipe(
  Flag.withMetavar("N"),
  Flag.withDescription("list tools that are called more often than that in one user turn (default 3)"),
  Flag.filterMap(parseCount, () => "Expected: how many calls, a whole number from 1 to 999999999"),
  Flag.withDefault(3)
)

export const batchSize = Flag.String("size").pipe(
  Flag.withMetavar("N"),
  Flag.withDescription("the most items of one request to a backend (default 10)"),
  Flag.filterMap(parseCount, () => "Expected: how many items, a whole number from 1 to 999999999"),
  Flag.withDefault(10)
)

export const charsPerToken = Flag.String("chars-per-token").pipe(
  Flag.withMetavar("N"),
  Flag.withDescription("how many characters a token is, for the estimates (default 4)"),
  Flag.filterMap(parseRatio, () => 'Expected: a number from 0.1 to 100, such as "3.5"'),
  Flag.withDefault(4)
)

export const gap = Flag.String("gap").pipe(
  Flag.withMetavar("TIME"),
  Flag.withDescription(
    "of events: the longest time between two turns of one user turn, such as 30s or 2m (default 60s)"
  ),
  Flag.filterMap(
    (text) => Option.map(parseTime(text, 0), Math.round),
    () => 'Expected: 0, or a time under 24 days, such as "500ms", "30s", "2m" or "1 minute"'
  ),
  Flag.withDefault(60_000)
)

export const rows = Flag.String("limit").pipe(
  Flag.withMetavar("N"),
  Flag.withDescription("at most so many rows of each table on standard output (default 10)"),
  Flag.filterMap(parseCount, () => "Expected: how many rows, a whole number from 1 to 999999999"),
  Flag.withDefault(10)
)

export const html = Flag.String("html").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription(
    "write the report as a page with charts too, which loads nothing; a file that is there already is not overwritten"
  ),
  Flag.optional
)

export const overwrite = Flag.Boolean("force").pipe(
  Flag.withDescription("with --html: overwrite the file"),
  Flag.withDefault(false)
)

export const history = Argument.String("HISTORY").pipe(
  Argument.withDescription('file with a history as JSON; "-" or nothing is standard input'),
  Argument.withDefault("-")
)

export const historyDialect = Flag.Literals("dialect", ["chat", "responses", "anthropic", "gemini"]).pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription("whose history it is: chat, responses, anthropic or gemini. Default: found out"),
  Flag.optional
)

export const fix = Flag.Boolean("fix").pipe(
  Flag.withDescription("print the mended history on standard output, and what was changed on standard error"),
  Flag.withDefault(false)
)

export const output = Flag.String("output").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription(
    "with --fix: write the mended history to a file; one that is there already is not overwritten, nor the history that came"
  ),
  Flag.optional
)

export const overwriteOutput = Flag.Boolean("force").pipe(
  Flag.withDescription("with --output: overwrite the file"),
  Flag.withDefault(false)
)

function parseExecution(text: string): Option.Option<"parallel" | "sequential" | number> {
  return text === "parallel" || text === "sequential" ? Option.some(text) : parseCount(text)
}

function parseCount(text: string): Option.Option<number> {
  return /^[1-9]\d{0,8}$/.test(text) ? Option.some(Number(text)) : Option.none()
}

function parseRatio(text: string): Option.Option<number> {
  const ratio = /^\d{1,3}(\.\d{1,6})?$/.test(text) ? Number(text) : NaN
  return ratio >= 0.1 && ratio <= 100 ? Option.some(ratio) : Option.none()
}

function parseReplay(text: string): Option.Option<string> {
  try {
    parse(text)
    return Option.some(text)
  } catch {
    return Option.none()
  }
}
