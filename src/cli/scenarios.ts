/** Runs scenario files: one JSON report a line on standard output, words for people on standard error. */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type * as Stdio from "effect/Stdio"
import * as Scenario from "../testing/Scenario.ts"
import { Misuse, NotOk } from "./failure.ts"
import { readFile } from "./input.ts"
import * as Lines from "./lines.ts"
import * as View from "./view.ts"

/** Under which interleavings the files run: the natural one alone, many, or the one that an exploration has found. */
export interface Interleavings {
  readonly explore: number | undefined
  readonly replay: string | undefined
}

export const runFiles = (
  files: ReadonlyArray<string>,
  which: Interleavings
): Effect.Effect<void, Misuse | NotOk, FileSystem.FileSystem | Path.Path | Stdio.Stdio> =>
  Effect.gen(function*() {
    yield* fitting(files, which)
    const path = yield* Path.Path
    const screen = yield* View.screen
    let failed = 0
    const unreadable: Array<Misuse> = []
    for (const file of files) {
      const report = yield* readFile(file, "check the path").pipe(
        Effect.flatMap((text) => runText(file, text, which, screen)),
        Effect.catchTag("Misuse", (misuse) => {
          unreadable.push(misuse)
          const unread: Scenario.Report = {
            file: path.basename(file),
            pass: false,
            failures: [`${misuse.what}: ${misuse.received}`]
          }
          return Effect.succeed(unread)
        })
      )
      yield* Console.log(JSON.stringify(report))
      yield* Console.error(Lines.ofReport(file, report, screen.paint))
      if (!report.pass) failed++
    }
    yield* Console.error(`${files.length - failed} of ${files.length} scenarios pass`)
    if (unreadable.length > 0) return yield* unreadable[0]!
    if (failed > 0) return yield* new NotOk()
  })

/** What cannot go together is said before anything runs. */
const fitting = (files: ReadonlyArray<string>, { explore, replay }: Interleavings): Effect.Effect<void, Misuse> => {
  if (replay === undefined) return Effect.void
  const advice = 'see "effect-turn scenario --help"'
  if (explore !== undefined) {
    return new Misuse({
      what: "--explore and --replay together",
      expected: "one of them: --explore looks for an interleaving that fails, --replay repeats one",
      received: `--explore ${explore} --replay ${replay}`,
      advice
    })
  }
  return files.length === 1 ? Effect.void : new Misuse({
    what: "--replay with more than one file",
    expected: "the one file that the replay was printed for",
    received: files.join(" "),
    advice
  })
}

const runText = (
  file: string,
  text: string,
  { explore, replay }: Interleavings,
  screen: View.Screen
): Effect.Effect<Scenario.Report, never, Stdio.Stdio> => {
  if (replay !== undefined) return Scenario.exploreText(file, text, { replay })
  if (explore === undefined) return Scenario.runText(file, text)
  let progress = { seeds: 0, shrinks: 0 }
  const { paint } = screen
  return View.line(
    screen,
    (elapsed, width, tick) => Lines.exploring(file, explore, progress, { elapsed, width, tick, paint })
  ).pipe(
    Effect.andThen(Scenario.exploreText(file, text, {
      seeds: explore,
      onRun: (now) => {
        progress = now
      }
    })),
    Effect.scoped
  )
}
