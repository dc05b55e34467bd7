/**
 * The programs in examples/: numbered, each runs alone from the sources, and exits 0.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import type { Report } from "./report.ts"
import { run } from "./report.ts"

/** The examples of a folder, in order. Files of any other name are parts of an example, and must be in a folder. */
export const listExamples = (folder: string): { readonly examples: ReadonlyArray<string>; readonly report: Report } => {
  const files = fs.existsSync(folder)
    ? fs.readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isFile()).map(({ name }) => name).sort()
    : []
  const examples = files.filter((name) => /^\d\d-[a-z0-9-]+\.ts$/.test(name))
  return {
    examples,
    report: {
      checked: examples.length,
      problems: [
        ...files.filter((name) => name.endsWith(".ts") && !examples.includes(name)).map((name) =>
          `${name} has no number: an example is called like 01-first-turn.ts`
        ),
        ...examples.flatMap((name, i) =>
          Number(name.slice(0, 2)) === i + 1 ? [] : [`${name} should have the number ${i + 1}`]
        )
      ]
    }
  }
}

export const runExample = async (folder: string, name: string): Promise<Report> => {
  const { code, output } = await run(["--conditions=@effect-turn/source", path.join(folder, name)])
  return { checked: 1, problems: code === 0 ? [] : [`${name} exited with ${code}:\n${output}`] }
}
