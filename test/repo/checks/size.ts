/**
 * What a program pays for importing one module: bundled alone, minified and compressed, without effect, which it has anyway.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"
import type { Report } from "./report.ts"

/** Bytes of the bundle of one module, after gzip. */
const sizeOf = async (entry: string): Promise<number> => {
  const bundle = await rolldown({
    input: entry,
    external: /^(effect|@effect\/[^/]+)(\/|$)|^node:/,
    platform: "neutral",
    onwarn: ({ message }) => {
      throw new Error(message)
    }
  })
  try {
    const { output } = await bundle.generate({ format: "esm", minify: true })
    return gzipSync(output.map((chunk) => chunk.type === "chunk" ? chunk.code : chunk.source).join("\n")).length
  } finally {
    await bundle.close()
  }
}

/** The entries of a package's sources: its public modules, and the barrels of its folders. */
export const entriesOf = (src: string): ReadonlyArray<string> =>
  fs.globSync(["[A-Z]*.ts", "{wire,testing}/index.ts"], { cwd: src })
    .map((file) => file.split(path.sep).join("/").replace(/\.ts$/, ""))
    .sort()

/** Compares each entry with its budget in bytes. An entry without a budget is a problem, and so is a budget without entry. */
export const checkSizes = async (src: string, budgets: Record<string, number>): Promise<Report> => {
  const entries = entriesOf(src)
  const problems = Object.keys(budgets).filter((entry) => !entries.includes(entry)).map((entry) =>
    `${entry} has a budget and does not exist`
  )
  for (const entry of entries) {
    const budget = budgets[entry]
    const size = await sizeOf(path.join(src, `${entry}.ts`))
    if (budget === undefined) problems.push(`${entry} takes ${size} bytes and has no budget`)
    else if (size > budget) problems.push(`${entry} takes ${size} bytes, its budget is ${budget}`)
  }
  return { checked: entries.length, problems }
}
