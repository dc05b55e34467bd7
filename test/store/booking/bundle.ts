/** A program for child processes in one file: it starts in a twentieth of a second, where loading all of its modules takes ten times as long. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { rolldown } from "rolldown"

/** Bundles a program from its sources; gives its file, in a new folder that the caller removes. */
export const bundle = async (program: string): Promise<{ readonly file: string; readonly folder: string }> => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-processes-"))
  const made = await rolldown({
    input: program,
    platform: "node",
    external: /^node:/,
    resolve: { conditionNames: ["@effect-turn/source", "node", "import", "default"] }
  })
  try {
    await made.write({ dir: folder, format: "esm", entryFileNames: "[name].mjs", chunkFileNames: "[name]-[hash].mjs" })
  } finally {
    await made.close()
  }
  return { file: path.join(folder, `${path.basename(program, ".ts")}.mjs`), folder }
}
