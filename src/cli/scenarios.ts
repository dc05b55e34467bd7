/** Runs scenario files: one JSON report a line on standard output, words for people on standard error. */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import * as Scenario from "../testing/Scenario.ts"
import { type Misuse, NotOk } from "./failure.ts"
import { readFile } from "./input.ts"
import { clean } from "./text.ts"

export const runFiles = (
  files: ReadonlyArray<string>
): Effect.Effect<void, Misuse | NotOk, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    const path = yield* Path.Path
    let failed = 0
    const unreadable: Array<Misuse> = []
    for (const file of files) {
      const report = yield* readFile(file, "check the path").pipe(
        Effect.flatMap((text) => Scenario.runText(file, text)),
        Effect.catchTag("Misuse", (misuse) => {
          unreadable.push(misuse)
          return Effect.succeed({
            file: path.basename(file),
            pass: false,
            failures: [`${misuse.what}: ${misuse.received}`]
          })
        })
      )
      yield* Console.log(JSON.stringify(report))
      yield* Console.error([
        `${report.pass ? "pass" : "FAIL"}  ${clean(file)}`,
        ...report.failures.map((failure) => `      ${clean(failure)}`)
      ].join("\n"))
      if (!report.pass) failed++
    }
    yield* Console.error(`${files.length - failed} of ${files.length} scenarios pass`)
    if (unreadable.length > 0) return yield* unreadable[0]!
    if (failed > 0) return yield* new NotOk()
  })
