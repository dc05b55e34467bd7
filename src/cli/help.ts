/**
 * What `--help` teaches. The formatter indents the first line alone, so the texts bring the other lines' own indent.
 */

const text = (lines: ReadonlyArray<string>): string =>
  lines.map((line, i) => i === 0 || line === "" ? line : `  ${line}`).join("\n")

const forms = [
  "MESSAGE is one message of a model, as JSON, in one of these forms (which one is found out):",
  '  a Chat Completions response  {"choices": [{"message": {…}, "finish_reason": …}]}, one of its choices,',
  '                               or the assistant message in it: {"role": "assistant", "tool_calls": […]}',
  '  the neutral form             {"calls": [{"id": "1", "name": "get_weather", "arguments": {"city": "Oslo"}}]},',
  "                               or the list of calls alone"
]

const toolsModule = [
  "MODULE is a JavaScript or TypeScript module that exports",
  "  toolkit   an effect/ai Toolkit: Toolkit.make(GetWeather, BookHotel)",
  "  layer     a Layer with its handlers and what they need: toolkit.toLayer({…}) with the backends' layers",
  '  policy    optional: options of Turn.run, such as { deadline: "30 seconds" }; flags go before it'
]

const exitCodes = [
  "Exit codes",
  "  0    every call is ok (plan: the plan was made; scenario: all pass)",
  "  1    a call is not ok, or a scenario fails",
  "  2    misuse: bad arguments, a file that is not there, a message of no known form, a tools module that does",
  "       not load or exports no toolkit",
  "  130  stopped by Ctrl-C: the turn was stopped, and every outcome printed all the same"
]

export const root = text([
  "Runs the tool calls of one model turn: planned by what they touch, bounded, stopped cleanly, every call answered.",
  "",
  "Independent calls run together, calls that conflict keep their order, a write that has started is not cut short,",
  "and each call gets exactly one answer, whatever happens.",
  "",
  ...exitCodes
])

export const run = text([
  "Runs the calls of a message, and prints the messages to send back to the model.",
  "",
  "Standard error shows each call while it runs (in place on a terminal, one line an event elsewhere) and a table of",
  "all outcomes; standard output has the messages alone, or with --json one object {dialect, plan, outcomes,",
  "messages}.",
  "",
  ...forms,
  "",
  ...toolsModule,
  "",
  ...exitCodes
])

export const plan = text([
  "Shows what a turn would do, and runs nothing: which calls run, are held, deferred, duplicates or refused, and who",
  "waits for whom because of which key.",
  "",
  ...forms,
  "",
  ...toolsModule,
  "",
  ...exitCodes
])

export const scenario = text([
  "Runs scenario files in virtual time: fake tools, turns, events and what must come out.",
  "",
  "Prints one JSON report a line on standard output, in the order of the files, and words for people on standard",
  "error. A file that is no valid scenario is reported as one that fails.",
  "",
  ...exitCodes
])

export const demo = text([
  "Runs a travel agent's turn, recorded from a model, on an in-memory travel backend: the plan, the calls while they",
  "run, the outcomes, and the messages to send back. Always exits 0, but for Ctrl-C."
])
