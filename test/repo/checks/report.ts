/**
 * What every check of the repository returns, and the one way to judge it: a check that looked at nothing has failed.
 */
import { assert } from "@effect/vitest"
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"

export const root = path.join(import.meta.dirname, "../../..")

/** `checked` is the number of things that were looked at, each problem is a sentence that names its place. */
export interface Report {
  readonly checked: number
  readonly problems: ReadonlyArray<string>
}

export const assertClean = (report: Report): void => {
  assert.deepStrictEqual(report.problems, [])
  assert.isAbove(report.checked, 0, "there was nothing to check")
}

/** Sources by their path in a folder, with "/" on every platform. */
export type Files = ReadonlyMap<string, string>

export const readFiles = (folder: string, pattern = "**/*.ts"): Files =>
  new Map(
    fs.globSync(pattern, { cwd: folder })
      .map((file) => file.split(path.sep).join("/"))
      .sort()
      .map((file) => [file, fs.readFileSync(path.join(folder, file), "utf8")])
  )

/**
 * Runs `use` in a folder of its own outside the repository that holds these files and finds the installed packages.
 */
export const inFolder = async <A>(
  files: Record<string, string>,
  use: (folder: string) => A | Promise<A>
): Promise<A> => {
  const folder = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), "effect-turn-"))
  try {
    fs.symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"), "junction")
    for (const [file, text] of Object.entries(files)) {
      fs.mkdirSync(path.dirname(path.join(folder, file)), { recursive: true })
      fs.writeFileSync(path.join(folder, file), text)
    }
    return await use(folder)
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** Runs a script with the Node that runs the tests, and collects what it prints. */
export const run = (
  [script, ...args]: readonly [script: string, ...args: ReadonlyArray<string>],
  options: { readonly cwd?: string; readonly env?: Record<string, string> } = {}
): Promise<{ readonly code: number | null; readonly output: string }> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [script, ...args], {
      cwd: options.cwd ?? root,
      env: { ...process.env, NO_COLOR: "1", FORCE_COLOR: "0", ...options.env },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let output = ""
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk: string) => output += chunk)
    }
    child.on("error", reject)
    child.on("close", (code) => resolve({ code, output }))
  })

/** The script behind a program of an installed package. */
export const program = (name: string, pkg = name): string => {
  const folder = path.join(root, "node_modules", pkg)
  const { bin } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"))
  return path.join(folder, typeof bin === "string" ? bin : bin[name])
}
