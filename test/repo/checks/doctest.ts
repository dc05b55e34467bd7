/**
 * Examples in doc comments and in the README that run as tests.
 *
 * A fence opened with "ts import.meta.vitest" is a module of its own. `expression // => expected` on one line, and
 * `const name = expression // => expected`, become assertions. One that imports `describe` or `it` makes tests, which run too. Other
 * "ts" fences are only type-checked.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import type { Plugin } from "vitest/config"
import type { Report } from "./report.ts"
import { program, run } from "./report.ts"

/** One example: where it stands, and its code as written. */
export interface Example {
  readonly file: string
  readonly number: number
  readonly runs: boolean
  readonly code: string
}

const fence = /^([ \t]*(?:\* ?)?)```ts([^\n]*)\n([\s\S]*?)^[ \t]*(?:\* ?)?```/gm

/** The examples of one file, in order. `number` counts those that run, or those that do not, from 1. */
export const examplesOf = (file: string, text: string): ReadonlyArray<Example> => {
  const counts = { runs: 0, shown: 0 }
  return [...text.matchAll(fence)].map(([, margin, info, body]) => {
    const runs = info!.trim().startsWith("import.meta.vitest")
    const code = margin!.includes("*") ? body!.replace(/^[ \t]*\* ?/gm, "") : body!
    return { file, number: runs ? ++counts.runs : ++counts.shown, runs, code }
  })
}

/** Whether an example makes tests of its own. */
export const makesTests = ({ code }: Example): boolean =>
  /^import \{[^}]*\b(?:describe|it)\b[^}]*\} from "@effect\/vitest"$/m.test(code)

/** Turns the expectations of an example into assertions. */
const assertions = (code: string): string =>
  code.replace(
    /^(?!import\b|\/\/)([ \t]*)(?:const (\w+) = )?(.+?)\s*\/\/ => (.+)$/gm,
    (_, margin, name, expression, expected) =>
      name === undefined
        ? `${margin}__equal(${expression}, ${expected})`
        : `${margin}const ${name} = ${expression}; __equal(${name}, ${expected})`
  )

const prelude = [
  `import * as __Equal from "effect/Equal"`,
  `import { expect as __expect } from "vitest"`,
  `const __equal = (a: unknown, b: unknown) => { if (!__Equal.equals(a, b)) __expect(a).toEqual(b) }`
].join("; ")

/** Serves `file.ts?doctest=N&lang.ts` as the N-th running example of that file. */
export const doctest = (): Plugin => ({
  name: "doctest",
  enforce: "pre",
  load(id) {
    const [file, query = ""] = id.split("?")
    const wanted = /^doctest=(\d+)/.exec(query)
    if (wanted === null) return
    const example = examplesOf(file!, fs.readFileSync(file!, "utf8"))
      .find(({ number, runs }) => runs && number === Number(wanted[1]))
    if (example === undefined) throw new Error(`${file} has no running example ${wanted[1]}`)
    return `${prelude}; ${assertions(example.code)}`
  }
})

/** Type-checks examples as modules inside a project, which they import by its name. */
export const checkTypes = async (project: string, examples: ReadonlyArray<Example>): Promise<Report> => {
  const out = path.join(project, ".doctest")
  fs.rmSync(out, { recursive: true, force: true })
  fs.mkdirSync(out)
  try {
    const names = examples.map(({ code, file, number, runs }) => {
      const name = `${file.replaceAll("/", "_")}.${runs ? "" : "shown."}${number}.ts`
      fs.writeFileSync(path.join(out, name), `${code}\nexport {}\n`)
      return name
    })
    const config = {
      extends: "../tsconfig.json",
      compilerOptions: {
        customConditions: ["@effect-turn/source"],
        rootDir: "..",
        noEmit: true,
        noUnusedLocals: false,
        noUnusedParameters: false
      },
      files: names,
      include: []
    }
    fs.writeFileSync(path.join(out, "tsconfig.json"), JSON.stringify(config))
    const { code, output } = await run([program("tsc", "typescript"), "-p", out, "--pretty", "false"], { cwd: project })
    return { checked: names.length, problems: code === 0 ? [] : output.trim().split("\n") }
  } finally {
    fs.rmSync(out, { recursive: true, force: true })
  }
}
