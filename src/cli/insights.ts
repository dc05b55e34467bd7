/** Reads recorded turns, and tells what lists would have saved: a table, JSON, or a page. */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Stdio from "effect/Stdio"
import type * as TurnError from "../TurnError.ts"
import * as TurnInsights from "../TurnInsights.ts"
import { explain, Misuse } from "./failure.ts"
import { readFile, readStdin } from "./input.ts"
import * as Lines from "./insightLines.ts"
import * as Output from "./output.ts"
import { Sizes } from "./terminal.ts"
import { clean } from "./text.ts"
import { stdoutPaint } from "./view.ts"

export interface Flags {
  readonly files: ReadonlyArray<string>
  readonly format: Option.Option<TurnInsights.Form>
  readonly threshold: number
  readonly size: number
  readonly charsPerToken: number
  readonly gap: number
  readonly limit: number
  readonly json: boolean
  readonly html: Option.Option<string>
  readonly force: boolean
}

export const insights = (flags: Flags): Effect.Effect<void, Misuse, FileSystem.FileSystem | Stdio.Stdio> =>
  Effect.gen(function*() {
    const { charsPerToken, json, size, threshold } = flags
    const page = Option.getOrUndefined(flags.html)
    if (flags.force && page === undefined) {
      return yield* new Misuse({
        what: "--force without --html",
        expected: "--html FILE beside it, which it overwrites",
        received: "--force",
        advice: "add --html page.html, or leave --force out"
      })
    }
    const recordings: Array<TurnInsights.Recording> = []
    const unreadable: Array<Misuse> = []
    const unread: Array<TurnInsights.Report["unread"][number]> = []
    for (const { file, times } of yield* distinct(flags.files)) {
      yield* Effect.match(read(file, flags), {
        onSuccess: (recording) =>
          recordings.push(
            times === 1 ? recording : { ...recording, notes: [...recording.notes, `given ${times} times, read once`] }
          ),
        onFailure: (misuse) => {
          unreadable.push(misuse)
          unread.push({ source: sourceOf(file), problem: problemOf(misuse) })
        }
      })
    }
    const report = TurnInsights.analyse(recordings, { threshold, size, charsPerToken, unread })
    // With nothing read there is nothing to tell, and a table of zeros would look like an answer.
    if (recordings.length > 0) {
      if (page !== undefined) yield* Output.write(page, TurnInsights.html(report), flags.force)
      if (json) yield* Console.log(JSON.stringify(report))
      else {
        const { columns } = (yield* Sizes).stdout()
        yield* Console.log(Lines.report(report, { width: columns, limit: flags.limit, paint: yield* stdoutPaint }))
        for (const note of Lines.notes(report)) yield* Console.error(note)
      }
      if (page !== undefined) yield* Console.error(`page written: ${clean(page)}`)
    }
    const [first, ...others] = unreadable
    if (first === undefined) return
    for (const misuse of others) yield* explain(misuse)
    if (recordings.length > 0) {
      const all = recordings.length + unreadable.length
      yield* Console.error(`${unreadable.length} of ${all} files could not be used; the numbers are of the others`)
    }
    return yield* first
  })

const sourceOf = (file: string): string => file === "-" ? "standard input" : file

/** The files, each once: overlapping patterns name one twice, and so do two ways to it. */
const distinct = (given: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const found = new Map<string, { readonly file: string; times: number }>()
    for (const file of given) {
      const real = file === "-" ? file : yield* Effect.orElseSucceed(fs.realPath(file), () => file)
      const one = found.get(real)
      if (one === undefined) found.set(real, { file, times: 1 })
      else one.times++
    }
    return [...found.values()]
  })

const problemOf = ({ expected, received, what }: Misuse): string => `${what}: expected ${expected}, and got ${received}`

const read = (
  file: string,
  flags: Flags
): Effect.Effect<TurnInsights.Recording, Misuse, FileSystem.FileSystem | Stdio.Stdio> =>
  Effect.gen(function*() {
    const source = sourceOf(file)
    const text = yield* file === "-"
      ? readStdin({
        what: "no recording",
        expected: "a recording in a file or on standard input",
        received: "neither: standard input is a terminal",
        advice: "give a file (effect-turn insights events.jsonl) or pipe one in (… | effect-turn insights -)"
      })
      : readFile(file, 'give the path of a file, or "-" for standard input')
    return yield* Effect.fromResult(
      TurnInsights.read(text, { source, form: Option.getOrUndefined(flags.format), gap: flags.gap })
    ).pipe(Effect.mapError((error) => unread(source, error)))
  })

const named: Record<TurnInsights.Form, string> = {
  events: "events of turns",
  calls: "lists of calls",
  chat: "a history of Chat Completions",
  responses: "a history of Responses",
  anthropic: "a history of Anthropic's Messages",
  otel: "OpenTelemetry spans"
}

const unread = (source: string, { reason }: TurnError.TurnError): Misuse => {
  if (reason._tag !== "InvalidMessage") {
    return new Misuse({ what: source, expected: "", received: reason.message, advice: "" })
  }
  const { dialect, expected, path, received } = reason
  const form = named[dialect as TurnInsights.Form]
  return new Misuse({
    what: `cannot read ${source}${form === undefined ? "" : ` as ${form}`}${path === "" ? "" : `, at ${path}`}`,
    expected,
    received,
    advice: form === undefined && path !== ""
      ? "correct it there"
      : form === undefined
      ? 'see "effect-turn insights --help" for the forms'
      : `correct it there, or say with --format what the file is (taken as ${dialect})`
  })
}
