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

/** Compares them with the golden files, of which there is one for each module and no other. */
export const checkGolden = (
  declarations: ReadonlyMap<string, string>,
  golden: ReadonlyMap<string, string>
): Report => ({
  checked: declarations.size,
  problems: [
    ...Array.from(golden.keys()).filter((module) => !declarations.has(module)).map((module) =>
      `test/api/${module}.txt is of a module that is gone: remove it, and say so in the change log`
    ),
    ...Array.from(declarations).filter(([module, text]) => golden.get(module) !== text).map(([module]) =>
      `the public declarations of ${module} differ from test/api/${module}.txt: \`npm run api\` writes them anew, and each ` +
      `changed line needs a line in the change log`
    )
  ]
})
