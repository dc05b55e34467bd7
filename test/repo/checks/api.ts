/**
 * The public declarations, module by module, as text that people review.
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { publicOf } from "./docs.ts"
import type { Report } from "./report.ts"
import { program, readFiles, run } from "./report.ts"

/** Compiles a project to declarations, always afresh: the public modules by name, without comments. */
export const declarationsOf = async (project: string): Promise<ReadonlyMap<string, string>> => {
  const out = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-api-"))
  try {
    const { code, output } = await run([
      program("tsc", "typescript"),
      "-p",
      project,
      "--emitDeclarationOnly",
      "--outDir",
      out
    ])
    if (code !== 0) throw new Error(`the declarations could not be emitted:\n${output}`)
    const declarations = readFiles(out, "**/*.d.ts")
    return new Map(
      Array.from(publicOf(readFiles(path.join(project, "src"))), (file) => {
        const module = file.replace(/\.ts$/, "")
        const text = declarations.get(`${module}.d.ts`)
        if (text === undefined) throw new Error(`no declarations were emitted for ${file}`)
        return [module, text.replace(/\/\*\*[\s\S]*?\*\/\s*/g, "").replace(/\/\/# sourceMappingURL.*\n?/g, "")]
      })
    )
  } finally {
    fs.rmSync(out, { recursive: true, force: true })
  }
}

/** Every golden file belongs to a module. That every module has its golden file is for the snapshots to find. */
export const checkGolden = (modules: Iterable<string>, golden: Iterable<string>): Report => {
  const exist = new Set(modules)
  return {
    checked: exist.size,
    problems: Array.from(golden).filter((module) => !exist.has(module)).map((module) =>
      `test/api/${module}.txt is of a module that is gone: remove it, and say so in the change log`
    )
  }
}
