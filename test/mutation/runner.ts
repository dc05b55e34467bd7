/**
 * Runs inside the test process: switches mutants on and off around the tests, and stops what turns in circles by counting its
 * steps, so that the answer does not hang on how fast the machine is.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { type RunnerTestCase, TestRunner } from "vitest"
import { switchName } from "./mutants.ts"
import { type Line, readPlan, root, type Verdict } from "./plan.ts"

const plan = readPlan()
const hits = new Uint32Array(Math.max(0, ...plan.wanted) + 1)
let active = plan.mode === "load" ? plan.active : 0
let steps = 0
let mostSteps = plan.mode === "load" ? 1_000_000 : Infinity
const dead = new Set<number>()
;(globalThis as any)[switchName] = (id: number): boolean => {
  hits[id]!++
  if (++steps > mostSteps) throw new Error("the mutant turns in circles")
  return id === active
}

if (plan.mode !== "record") {
  for (const level of ["log", "info", "warn", "error", "debug"] as const) console[level] = () => {}
}

const tell = (line: Line): void => fs.appendFileSync(plan.log, `${JSON.stringify(line)}\n`)

const reached = (): ReadonlyArray<number> => plan.wanted.filter((id) => hits[id]! > 0)

export default class MutationRunner extends TestRunner {
  private loaded: ReadonlyArray<number> = []

  onCollected(): void {
    this.loaded = reached()
  }

  async runTask(test: RunnerTestCase): Promise<void> {
    const file = path.relative(root, test.file.filepath)
    const name = test.fullName
    switch (plan.mode) {
      case "record":
        return record(test, name, file, this.loaded)
      case "try": {
        const mutants = (plan.tries[name] ?? []).filter((id) => !dead.has(id))
        return mutants.length === 0 ? undefined : tryAll(test, name, mutants)
      }
      case "load": {
        const verdict = await attempt(test, name)
        tell({ _tag: "tried", test: name, mutant: active, verdict })
        if (verdict !== "survived") throw new Error(verdict)
      }
    }
  }
}

const record = async (
  test: RunnerTestCase,
  name: string,
  file: string,
  loaded: ReadonlyArray<number>
): Promise<void> => {
  hits.fill(0)
  steps = 0
  const start = performance.now()
  await TestRunner.getTestFn(test)()
  tell({
    _tag: "recorded",
    test: name,
    file,
    millis: Math.round(performance.now() - start),
    steps,
    reached: reached(),
    loaded
  })
}

const tryAll = async (test: RunnerTestCase, name: string, mutants: ReadonlyArray<number>): Promise<void> => {
  const clean = async () => (await attempt(test, name)) === "survived"
  if (!await clean()) return tell({ _tag: "spoilt", test: name })
  let killed = false
  for (const mutant of mutants) {
    tell({ _tag: "trying", test: name, mutant })
    active = mutant
    hits[mutant] = 0
    let verdict = await attempt(test, name)
    if (verdict === "survived" && hits[mutant] === 0) verdict = "unreached"
    active = 0
    tell({ _tag: "tried", test: name, mutant, verdict })
    if (verdict === "survived" || verdict === "unreached") continue
    dead.add(mutant)
    killed = true
  }
  if (killed && !await clean()) tell({ _tag: "spoilt", test: name })
}

const attempt = async (test: RunnerTestCase, name: string): Promise<Verdict> => {
  const { millis, steps: usual } = plan.usual[name]!
  const abort = new AbortController()
  Object.assign(test.context, { signal: abort.signal })
  steps = 0
  mostSteps = 100_000 + 20 * usual
  const running = (async (): Promise<Verdict> => {
    try {
      await TestRunner.getTestFn(test)()
      return "survived"
    } catch {
      return "killed"
    }
  })()
  const first = await Promise.race([running, after(1_000 + 5 * millis)])
  const verdict = steps > mostSteps ? "timeout" : first
  mostSteps = Infinity
  if (first === "timeout") {
    // What hangs is interrupted, as a test that takes too long is.
    abort.abort()
    await Promise.race([running, after(200)])
  }
  delete (test as { onFinished?: unknown }).onFinished
  return verdict
}

const after = (millis: number): Promise<Verdict> =>
  new Promise((resolve) => {
    setTimeout(() => resolve("timeout"), millis).unref()
  })
