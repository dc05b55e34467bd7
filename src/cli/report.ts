/** Reads recorded events, and tells where the time of their turns went: a timeline as text, JSON, or a page. */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import type * as Stdio from "effect/Stdio"
import type * as TurnError from "../TurnError.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import type * as TurnPlan from "../TurnPlan.ts"
import * as TurnReport from "../TurnReport.ts"
import { Misuse } from "./failure.ts"
import { readFile, readStdin } from "./input.ts"
import * as Output from "./output.ts"
import { Sizes } from "./terminal.ts"
import { clean } from "./text.ts"

export interface Flags {
  readonly file: string
  readonly json: boolean
  readonly html: Option.Option<string>
  readonly force: boolean
}

export const report = (flags: Flags): Effect.Effect<void, Misuse, FileSystem.FileSystem | Stdio.Stdio> =>
  Effect.gen(function*() {
    const { file, force, json } = flags
    const page = Option.getOrUndefined(flags.html)
    if (force && page === undefined) return yield* strayForce("--html")
    const source = file === "-" ? "standard input" : file
    const text = yield* file === "-"
      ? readStdin({
        what: "no events",
        expected: "recorded events in a file or on standard input",
        received: "neither: standard input is a terminal",
        advice: "give a file (effect-turn report events.jsonl) or pipe one in (… | effect-turn report -)"
      })
      : readFile(file, 'give the path of a file, or "-" for standard input')
    const { events, notes } = yield* Effect.fromResult(TurnReport.read(text)).pipe(
      Effect.mapError((error) => unreadable(source, error))
    )
    const made = TurnReport.make(events, { notes })
    if (page !== undefined) yield* Output.write(page, TurnReport.toHtml(made), force)
    if (json) yield* Console.log(JSON.stringify(made))
    else {
      const { columns } = (yield* Sizes).stdout()
      yield* Console.log(TurnReport.print(made, columns === 0 ? {} : { width: columns }))
    }
    if (page !== undefined) yield* Console.error(`page written: ${clean(page)}`)
  })

const unreadable = (source: string, { reason }: TurnError.TurnError): Misuse =>
  reason._tag === "InvalidMessage"
    ? new Misuse({
      what: `cannot read ${source} as events of turns${reason.path === "" ? "" : `, at ${reason.path}`}`,
      expected: reason.expected,
      received: reason.received,
      advice: "give what `onEvent` of a turn, or of an agent, was told: one JSON object a line, or a list of them"
    })
    : new Misuse({ what: source, expected: "events of turns", received: reason.message, advice: "correct the file" })

const strayForce = (beside: string): Misuse =>
  new Misuse({
    what: `--force without ${beside}`,
    expected: `${beside} FILE beside it, which it overwrites`,
    received: "--force",
    advice: `add ${beside} with a file, or leave --force out`
  })

/** The file that `run --report` writes, in the form that its name says. */
export interface Target {
  readonly file: string
  readonly form: "page" | "json" | "text"
  readonly force: boolean
}

const forms = new Map<string, Target["form"]>([
  [".html", "page"],
  [".htm", "page"],
  [".json", "json"],
  [".txt", "text"],
  [".md", "text"]
])

/** What the flag asks for, when it can be done: the name says a form, and no file is in the way. */
export const target = (
  given: Option.Option<string>,
  force: boolean
): Effect.Effect<Target | undefined, Misuse, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    const file = Option.getOrUndefined(given)
    if (file === undefined) return undefined
    const path = yield* Path.Path
    const form = forms.get(path.extname(file).toLowerCase())
    if (form === undefined) {
      return yield* new Misuse({
        what: `${file} does not say in which form to write the report`,
        expected: "a name that ends in .html (a page), .json, .txt or .md (text)",
        received: path.basename(file),
        advice: "give it such a name: --report turn.html"
      })
    }
    yield* Output.free(file, force)
    return { file, form, force }
  })

/** Writes the report of a turn that has run. */
export const writeOf = (
  { file, force, form }: Target,
  events: ReadonlyArray<TurnEvent.TurnEvent>,
  plan: TurnPlan.TurnPlan
): Effect.Effect<void, Misuse, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const [turn] = events
    const made = TurnReport.make(events, { plan: (id) => id === turn?.turn ? plan : undefined })
    const text = form === "page"
      ? TurnReport.toHtml(made)
      : form === "json"
      ? `${JSON.stringify(made, null, 2)}\n`
      : file.toLowerCase().endsWith(".md")
      ? `\`\`\`text\n${TurnReport.print(made)}\n\`\`\`\n`
      : `${TurnReport.print(made)}\n`
    yield* Output.write(file, text, force)
    yield* Console.error(`report written: ${clean(file)}`)
  })
