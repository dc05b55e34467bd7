/** What the main program says to the test process that it starts, and what it hears from it. */
import * as fs from "node:fs"
import * as path from "node:path"
import { type Mutant, mutantsOf } from "./mutants.ts"

export const root = path.join(import.meta.dirname, "../..")

/** The modules that the suite is held against, with their internals. */
const modules = "{Turn,Siblings,TurnPlan,Backend}"
const internals = "{turn,siblings,turnPlan,backend}"

/** Their tests. Loops of agents, threads and child processes are tested by what takes long, and drive the same turns. */
export const suite = fs.globSync(
  ["test/*.test.ts", "test/{turn,backend}/*.test.ts", "test/data/placeholders.test.ts"],
  { cwd: root, exclude: ["test/{A,a}gent*.test.ts", "test/Handler.worker.test.ts", "test/turn/handlers.mcp.test.ts"] }
).map((file) => file.replaceAll("\\", "/")).sort()

const files = fs.globSync([`src/${modules}.ts`, `src/internal/${internals}/**/*.ts`], { cwd: root })
  .map((file) => file.replaceAll("\\", "/")).sort()

interface Source {
  readonly file: string
  /** The number of its first mutant; 0 is none. */
  readonly first: number
  readonly mutants: ReadonlyArray<Mutant>
}

/** Every source with its mutants, which are numbered from 1 over all of them. */
export const sources = (): ReadonlyArray<Source> => {
  let next = 1
  return files.map((file) => {
    const mutants = mutantsOf(file, fs.readFileSync(path.join(root, file), "utf8"))
    const first = next
    next += mutants.length
    return { file, first, mutants }
  })
}

/**
 * - `record`: runs every test as it is and tells which mutants stand in its way.
 * - `try`: runs each test once for each mutant that it is given.
 * - `load`: one mutant is active from the start, also while the modules are loaded.
 */
export interface Plan {
  readonly mode: "record" | "try" | "load"
  /** Where lines are appended to. */
  readonly log: string
  readonly workers: number
  /** The mutants that are put into the sources. */
  readonly wanted: ReadonlyArray<number>
  /** For `load`: the one. */
  readonly active: number
  /** The test files, in the order in which they run. */
  readonly files: ReadonlyArray<string>
  /** For `try`: what is tried in which test. */
  readonly tries: Record<string, ReadonlyArray<number>>
  /** What a test took without a fault, by its name. */
  readonly usual: Record<string, { readonly millis: number; readonly steps: number }>
}

export type Line =
  | {
    readonly _tag: "recorded"
    readonly test: string
    readonly file: string
    readonly millis: number
    readonly steps: number
    readonly reached: ReadonlyArray<number>
    /** Reached while the modules were loaded. */
    readonly loaded: ReadonlyArray<number>
  }
  | { readonly _tag: "trying"; readonly test: string; readonly mutant: number }
  | {
    readonly _tag: "tried"
    readonly test: string
    readonly mutant: number
    readonly verdict: Verdict
  }
  /** Without any fault the test does not pass any more: what was killed in it may not have been. */
  | { readonly _tag: "spoilt"; readonly test: string }

/** `unreached`: the code did not run again, for what it makes is kept. */
export type Verdict = "killed" | "timeout" | "survived" | "unreached"

export const variable = "EFFECT_TURN_MUTATION"

export const readPlan = (): Plan => JSON.parse(fs.readFileSync(process.env[variable]!, "utf8"))
