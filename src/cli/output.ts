/** Files that commands write: a file that is there already is kept, unless the user says otherwise. */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import { describeThrown, Misuse } from "./failure.ts"

const cannotWrite = (file: string, received: string, advice: string): Misuse =>
  new Misuse({ what: `cannot write ${file}`, expected: "a new file in a folder that is there", received, advice })

const isThere = (file: string): Misuse =>
  cannotWrite(file, "a file that is there already", "give another name, or --force to overwrite it")

/** Refuses what could not be written, as far as that is known before the work. */
export const free = (
  file: string,
  force: boolean
): Effect.Effect<void, Misuse, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const folder = (yield* Path.Path).dirname(file)
    if (!(yield* Effect.orElseSucceed(fs.exists(folder), () => false))) {
      return yield* cannotWrite(file, `no such folder: ${folder}`, "make the folder first")
    }
    if (!force && (yield* Effect.orElseSucceed(fs.exists(file), () => false))) return yield* isThere(file)
  })

/** Writes a file. Whoever has made it meanwhile keeps it. */
export const write = (
  file: string,
  text: string,
  force: boolean,
  advice = "give a path that can be written"
): Effect.Effect<void, Misuse, FileSystem.FileSystem> =>
  FileSystem.FileSystem.use((fs) => fs.writeFileString(file, text, { flag: force ? "w" : "wx" })).pipe(
    Effect.mapError(({ reason }) =>
      reason._tag === "AlreadyExists"
        ? isThere(file)
        : cannotWrite(
          file,
          reason._tag === "NotFound" ? "no such folder" : describeThrown(reason.cause ?? reason.message),
          advice
        )
    )
  )
