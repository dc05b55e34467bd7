/** What `--help` teaches: one line a paragraph or a row, which are broken where the page ends. A line in capitals begins a section. */
import { dialects } from "../wire/Dialects.ts"
import { fields } from "./policy.ts"

/** What tells each dialect. */
const formOf: Readonly<Record<string, string>> = {
  chat:
    'OpenAI Chat Completions: {"choices": [{"message": {…}}]}, a choice, or {"role": "assistant", "tool_calls": […]}',
  responses: 'OpenAI Responses: {"object": "response", "output": […]}, or its output alone',
  anthropic: 'Anthropic Messages: {"type": "message", "content": […]}, or {"role": "assistant", "content": […]}',
  gemini: 'Gemini: {"candidates": [{"content": {…}}]}, a candidate, or {"role": "model", "parts": […]}',
  neutral:
    'for all others: {"calls": [{"id": "1", "name": "look", "arguments": {"at": "x"}}]}, or the list of calls alone'
}

const text = (lines: ReadonlyArray<string>): string => lines.join("\n")

const forms = [
  "MESSAGE",
  "A message of a model. Whose form it has is found out, unless --dialect says it:",
  ...dialects.map(({ id }) => `  ${id.padEnd(9)}  ${formOf[id] ?? "a message in this form"}`),
  "",
  "It may be a whole response, the assistant's message in it, or the events of a stream as they were recorded: server-sent events, " +
  "JSON lines, or a list of chunks. Of a history (a list of messages, or the body of a request) that ends with the model's message, " +
  "that message is taken."
]

const toolsModule = (layer: string) => [
  "TOOLS MODULE",
  "A JavaScript or TypeScript module that exports",
  "  toolkit   an effect/ai Toolkit: Toolkit.make(GetWeather, BookHotel)",
  `  layer     ${layer}`,
  '  policy    optional: options of Turn.run, such as { deadline: "30 seconds" }; --policy and flags go before it'
]

const misuse =
  "misuse: bad arguments, a file that is not there, a message of no known form, a tools module that does " +
  "not load or lacks an export; or an output that cannot be written"

const exitCodes = (codes: ReadonlyArray<readonly [code: string, meaning: string]>) => [
  "EXIT STATUS",
  ...codes.map(([code, meaning]) => `${code.padEnd(3)}  ${meaning}`)
]

/** What a terminal is drawn on with. */
const environment = [
  "ENVIRONMENT",
  "NO_COLOR  where it is set to anything, nothing has colours",
  "TERM      where it is dumb, plain lines stand in place of those that are drawn again"
]

/** What `--policy` takes. */
const policy = [
  "POLICY",
  'A policy is one JSON object with any of these fields, such as {"deadline": "30s", "siblings": "fail-fast"}:',
  ...Object.entries(fields).map(([name, { takes }]) => `  ${name.padEnd(12)}  ${takes}`)
]

const stopped = ["130", "stopped by Ctrl-C, SIGTERM or SIGHUP"] as const

export const root = text([
  "Runs the tool calls of one model turn: planned by what they touch, bounded, stopped cleanly, every call answered.",
  "",
  "Independent calls run together, calls that conflict keep their order, a write that has started is not cut short, " +
  "and each call gets exactly one answer, whatever happens.",
  "",
  ...exitCodes([
    ["0", "all is well"],
    ["1", "a call is not ok, a scenario fails, or a history has problems"],
    ["2", "misuse"],
    stopped
  ]),
  "",
  ...environment,
  "",
  "SHELL COMPLETION",
  "bash  effect-turn --completions bash >> ~/.bashrc",
  "zsh   effect-turn --completions zsh > DIR/_effect-turn, where DIR stands in $fpath before compinit runs",
  "fish  effect-turn --completions fish > ~/.config/fish/completions/effect-turn.fish",
  "A new shell completes commands, options, their words and files."
])

export const run = text([
  "Runs the calls of a message, and prints the messages to send back to the model.",
  "",
  "Standard error shows each call while it runs (in place on a terminal, one line an event elsewhere), a table of " +
  "all outcomes, and what the tools themselves log or print with `console`; standard output has the messages alone, " +
  "or with --json one object {dialect, plan, outcomes, messages}.",
  "",
  "Ctrl-C, SIGTERM and SIGHUP stop the turn: nothing new starts, writes that have started are awaited, and every " +
  "outcome is printed all the same. A Ctrl-C after that leaves at once: whether what was awaited took effect is " +
  "not known then.",
  "",
  "With --scenario the turn is kept as a scenario file, also when it was stopped: fake tools that take as long and come " +
  "to the same, the stops, and what to expect. What the format cannot say is told on standard error.",
  "",
  "With --report it is told where the turn's time went, also when it was stopped: a page with the timeline, JSON or text, as the name of the file says.",
  "",
  ...forms,
  "",
  ...toolsModule(
    "a Layer with its handlers and what they need: toolkit.toLayer({…}) with the backends' layers"
  ),
  "",
  ...policy,
  "",
  ...exitCodes([
    ["0", "every call is ok, or was run by the provider"],
    ["1", "a call is not ok"],
    ["2", misuse],
    stopped
  ]),
  "",
  ...environment
])

export const plan = text([
  "Shows what a turn would do, and runs nothing: which calls run, are held, deferred, duplicates or refused, and who " +
  "waits for whom because of which key.",
  "",
  "No handler runs and no layer is built, so nothing is connected to. Tools whose approval is a question are asked it.",
  "",
  ...forms,
  "",
  ...toolsModule("not needed for a plan, and not built"),
  "",
  ...policy,
  "",
  ...exitCodes([["0", "the plan was made, whatever its calls are like"], ["2", misuse]])
])

export const scenario = text([
  "Runs scenario files in virtual time: fake tools, turns, events and what must come out.",
  "",
  "Prints one JSON report a line on standard output, in the order of the files, and words for people on standard " +
  "error. A file that is no valid scenario is reported as one that fails.",
  "",
  "With --explore each scenario runs in the natural order first, and then under N interleavings: another fiber goes on, " +
  "fibers give way between any two steps, and what is due at one moment comes in any order (the events of a turn after " +
  "all that ends in their moment). The first that fails is " +
  "made small. The report tells in `explored.found`, and standard error in words, what differs from the natural " +
  "order, the seed, what ran when, and the command that repeats it.",
  "",
  ...exitCodes([
    ["0", "all scenarios pass"],
    ["1", "a scenario fails"],
    ["2", "misuse: bad arguments, or a file that cannot be read"],
    ["130", "ended at once by Ctrl-C, SIGTERM or SIGHUP"]
  ])
])

export const insights = text([
  "Reads recorded turns and tells how often tools are called in one user turn (all steps of the model between two messages of the user), and what " +
  "asking for a list would have saved: round trips to the model, requests to backends, tokens.",
  "",
  "FILE is JSON, or JSON lines, in one of these forms (which one is found out):",
  "  events     what a program keeps of `onEvent`, a turn's or an agent's: one event a line",
  '  calls      {"calls": [{"id", "name", "arguments"}]}, one a line, and scenario files',
  "  chat       a history of Chat Completions: its messages, or logs of requests or responses",
  "  responses  a history of Responses: its items, or logs of requests or responses",
  "  anthropic  a history of Anthropic's Messages, or logs of requests or responses",
  "  otel       OpenTelemetry spans with GenAI names: an OTLP export, or a list of spans",
  "",
  "Calls of different steps count as one list only where the recording shows that they could have been: other arguments, which repeat " +
  "nothing that came up first in an answer between, and no calls of other tools between. Events have no arguments, so of them only calls of the " +
  "same step are merged. Tokens are characters of the recording, divided by --chars-per-token: an estimate of the least that it is. " +
  "A question mark is a number that the recording does not give.",
  "",
  "Turns of events are one user turn when they are of one conversation and follow each other within --gap. Where no event names a conversation, " +
  "the file is taken as one; where its turns overlap, each stands for itself. " +
  "Spans are one user turn when they stand below one invoke_agent span, or in one trace.",
  "",
  "With --json one object: {version, options, sources, unread, totals, callsPerUserTurn, callsPerStep, stepsPerUserTurn, batches, tools, candidates, " +
  "lists, requests}; its schema is `TurnInsights.Report`.",
  "",
  "A file that cannot be read or understood is told on standard error, in --json and on the page, and the others are counted all the same. " +
  "The last line of a log may be cut: the file is read up to there, and a note says so.",
  "",
  ...exitCodes([
    ["0", "all files were read, whatever is in them"],
    ["2", "misuse: bad arguments, a file that cannot be read or understood, or an output that cannot be written"],
    stopped
  ])
])

export const report = text([
  "Reads recorded events of turns, and tells where their time went: a line for each call, with what it waited for and how long it ran; the waits of " +
  "all calls by cause; and the critical path, the chain of runs and waits that the length of the turn is made of.",
  "",
  "EVENTS is what a program keeps of `onEvent`, a turn's or an agent's: one JSON object a line, or a list of them. Of many turns each has a " +
  "report. Of a log that begins late or breaks off it tells what is there, and what is missing.",
  "",
  "Events name no keys, so who was waited for is inferred from who ended at that moment, and said so. A report has no arguments, " +
  "results or messages.",
  "",
  "With --json one object: {version, turns, notes}; its schema is `TurnReport.Report`.",
  "",
  ...exitCodes([
    ["0", "the events were read, whatever is in them"],
    ["2", "misuse: bad arguments, a file that cannot be read or has no events, or an output that cannot be written"],
    stopped
  ])
])

export const check = text([
  "Tells what a provider would refuse in a history, and with --fix mends it: results that are missing, repeated, in the wrong place or without " +
  "their call, ids that are empty or repeated, and what else is known to be refused.",
  "",
  "HISTORY",
  "A conversation as JSON: the list of its messages, or the body of a request, or one message a line. Whose form it has is found out, unless " +
  "--dialect says it:",
  '  chat       OpenAI Chat Completions: {"messages": […]}, with "tool_calls" and messages of the role "tool"',
  '  responses  OpenAI Responses: {"input": […]}, with items such as "function_call" and "function_call_output"',
  '  anthropic  Anthropic Messages: {"messages": […]}, with blocks such as "tool_use" and "tool_result"',
  '  gemini     Gemini: {"contents": […]}, with parts such as "functionCall" and "functionResponse"',
  "",
  "PROBLEMS",
  "  refused  the provider, or some of the hosts that speak its dialect, refuse the conversation",
  "  open     a call at the end has no result yet: it may still be run",
  "  loss     it may be taken, and something in it is lost or misunderstood",
  "",
  "A call without a result is answered by --fix that nobody knows whether it took effect. A result without a call is taken out. A second answer " +
  "that says something else becomes words of the user. What is sound stays as it is, fields that are not known included. A history in lines is " +
  "written in lines.",
  "",
  "With --json one object: {dialect, problems}, or with --fix {dialect, history, changes, open}.",
  "",
  ...exitCodes([
    ["0", "nothing is known to be refused; with --fix: the history is mended"],
    ["1", "there are problems"],
    [
      "2",
      "misuse: bad arguments, a file that is not there, a history of no known form; or an output that cannot be written"
    ]
  ])
])

export const demo = text([
  "Runs a travel agent's turn, recorded from a model, on an in-memory travel backend: the plan, the calls while they " +
  "run, the outcomes, and the messages to send back.",
  "",
  ...exitCodes([["0", "the turn has ended, whatever its outcomes are"], stopped])
])

const stores = [
  "STORE",
  "Where the program keeps its idempotency keys:",
  "  sqlite:FILE         TurnStore.layerSqlite, such as sqlite:./turns.db",
  "  postgres://…        TurnStore.layerSql, such as postgres://app@db.example.com/shop; needs @effect/sql-pg",
  "  redis://…           TurnStore.layerRedis, such as redis://cache.example.com:6379; needs redis",
  "Keys and results are shown as they are: they may be secrets."
]

const keyMisuse = "misuse: bad arguments, no such key, or a store that does not answer"

export const keys = text([
  "Shows idempotency keys, forgets old ones, and resolves those in doubt: writes of which nobody knows whether they took effect, since the " +
  "program that ran them ended, or its backend did not say.",
  "",
  "While a key is in doubt a call with it is answered `in_doubt` and not run, unless its backend honours the key or can be " +
  "asked. It stays so until somebody says what became of it.",
  "",
  ...stores,
  "",
  ...exitCodes([["0", "all is well"], ["2", keyMisuse], stopped])
])

export const keysList = text([
  "Lists the keys in doubt, or those in another state.",
  "",
  "Those in doubt, and those that are being run, come oldest first, by when they were last heard of. Others, and all, come in " +
  "the store's own order, which is not that of time.",
  "",
  "On a narrow terminal the table leaves out the note first, and then when; what it leaves out is said on standard error.",
  "",
  "With --json one JSON object a line on standard output: {id, key, state, digest, owner, leaseUntil, createdAt, " +
  "updatedAt, expiresAt, outcome, note, resolved}, with `resolved: true` where it was resolved by hand, and times in milliseconds since 1970.",
  "",
  ...stores,
  "",
  ...exitCodes([["0", "the keys were listed, also where there are none"], ["2", keyMisuse], stopped])
])

export const keysShow = text([
  "Shows everything that is known of one key.",
  "",
  ...stores,
  "",
  ...exitCodes([["0", "the key was shown"], ["2", keyMisuse], stopped])
])

export const keysResolve = text([
  "Says what became of a key in doubt. Ask the backend first: a wrong answer loses a write, or does it twice.",
  "",
  "With --applied, calls with the key are answered with the result, and never run. With --not-applied the key is free, and " +
  "the next call with it is run. It asks before it does so; where there is no terminal to ask on, say --yes.",
  "",
  "A result is taken as it is, or with --tools checked with the tool's success schema. A key that was recorded as applied by " +
  "hand can be resolved again, to correct it; one that was freed has no record any more. What is resolved here is kept for 7 " +
  "days, whatever the program says of its own.",
  "",
  ...stores,
  "",
  ...exitCodes([["0", "the key was resolved"], [
    "2",
    `${keyMisuse}; or the key is not in doubt, its result does not fit, or the answer was not yes`
  ], stopped])
])

export const keysExpire = text([
  "Forgets what may be forgotten by now, and prints how many rows there were: keys that were applied or undone longer ago than " +
  "the program keeps them, and what else in the store is kept no longer. What is in doubt is never forgotten.",
  "",
  "Their keys are free already: this makes room. With --json it prints {forgotten}.",
  "",
  ...stores,
  "",
  ...exitCodes([["0", "they are forgotten, also where there were none"], ["2", keyMisuse], stopped])
])
