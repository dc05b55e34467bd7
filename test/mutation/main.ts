/**
 * Plants faults in the sources and looks whether the tests notice.
 *
 *     npm run mutation                              everything
 *     npm run mutation -- src/Backend.ts pool       only files whose path holds one of these
 *     npm run mutation -- --sample 60 --seed ci     so many mutants, always the same ones for a seed
 *     npm run mutation -- --again                   only what is not known to be killed
 *     npm run mutation -- --workers 2               so many processes at once (default: 1)
 *
 * The results are kept in `coverage/mutation.json`; when every mutant has one, `REPORT.md` is written.
 *
 * A mutant that survives is either killed, by a test that was missing, or explained, in `explained.json`. The run fails when one is
 * neither, when an explanation fits nothing that survives, when nothing was planted, and when the tests fail without a fault.
 */
import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { parseArgs } from "node:util"
import { keyOf, type Mutant } from "./mutants.ts"
import { type Line, type Plan, root, sources, suite, variable, type Verdict } from "./plan.ts"
import { type Explained, render, type Result, summary } from "./report.ts"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    sample: { type: "string" },
    seed: { type: "string", default: "" },
    workers: { type: "string", default: "1" },
    again: { type: "boolean", default: false }
  }
})
const workers = Number(values.workers)
const here = import.meta.dirname
const resultFile = path.join(root, "coverage/mutation.json")
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "mutation-"))
process.on("exit", () => fs.rmSync(scratch, { recursive: true, force: true }))

const fail = (message: string): never => {
  console.error(message)
  process.exit(1)
}

// What is planted.

const all = new Map<number, Mutant>()
for (const { first, mutants } of sources()) mutants.forEach((mutant, i) => all.set(first + i, mutant))

const explained: ReadonlyArray<Explained> = JSON.parse(fs.readFileSync(path.join(here, "explained.json"), "utf8"))
const explanations = new Map(explained.map((one) => [keyOf({ nth: 1, ...one }), one]))

const chosen = (): ReadonlyArray<number> => {
  let ids = [...all.keys()]
  if (positionals.length > 0) ids = ids.filter((id) => positionals.some((part) => all.get(id)!.file.includes(part)))
  if (values.again) {
    const last: ReadonlyArray<Result> = JSON.parse(fs.readFileSync(resultFile, "utf8"))
    const killed = new Set(last.filter(({ verdict }) => verdict !== "survived").map(({ mutant }) => keyOf(mutant)))
    ids = ids.filter((id) => !killed.has(keyOf(all.get(id)!)))
  }
  if (values.sample === undefined) return ids
  // By what a mutant is, not by where it stands: a change elsewhere leaves the sample as it is.
  const rank = (id: number) => createHash("sha256").update(values.seed + keyOf(all.get(id)!)).digest("hex")
  return ids.map((id) => [rank(id), id] as const).sort(([a], [b]) => a < b ? -1 : 1)
    .slice(0, Number(values.sample)).map(([, id]) => id).sort((a, b) => a - b)
}

const ids = chosen()
if (ids.length === 0) fail("no mutant was planted")
console.log(`${ids.length} of ${all.size} mutants`)

// How the tests are run.

/** Longer than any attempt is given: when nothing is heard for so long, the process turns in circles where no step is counted. */
const silence = 60_000

let runs = 0

const vitest = async (
  part: Partial<Plan> & Pick<Plan, "mode">
): Promise<{ lines: Array<Line>; code: number | null }> => {
  const name = path.join(scratch, String(runs++))
  const plan: Plan = {
    log: `${name}.log`,
    workers: 1,
    wanted: ids,
    active: 0,
    files: suite,
    tries: {},
    usual: {},
    ...part
  }
  fs.writeFileSync(plan.log, "")
  fs.writeFileSync(`${name}.json`, JSON.stringify(plan))
  const child = spawn(
    process.execPath,
    [path.join(root, "node_modules/vitest/vitest.mjs"), "run", "--config", path.join(here, "vitest.config.ts")],
    {
      cwd: root,
      // Properties take a quarter of their inputs: what only the rest would notice counts as not noticed.
      env: { EFFECT_TURN_RUNS: "0.25", ...process.env, [variable]: `${name}.json` },
      stdio: ["ignore", plan.mode === "record" ? "inherit" : "ignore", plan.mode === "record" ? "inherit" : "ignore"]
    }
  )
  let heard = Date.now()
  let size = 0
  const watch = setInterval(() => {
    const now = fs.statSync(plan.log).size
    if (now !== size) {
      size = now
      heard = Date.now()
    } else if (plan.mode !== "record" && Date.now() - heard > silence) child.kill("SIGKILL")
  }, 500)
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve))
  clearInterval(watch)
  const lines = fs.readFileSync(plan.log, "utf8").split("\n").filter((line) => line !== "").map((line) =>
    JSON.parse(line) as Line
  )
  return { lines, code }
}

// 1. Without a fault: which test comes past which mutants.

const started = Date.now()
const recorded = await vitest({ mode: "record", workers })
if (recorded.code !== 0 || recorded.lines.length === 0) fail("the tests fail without a fault")

interface Recorded {
  readonly test: string
  readonly file: string
  readonly millis: number
  readonly steps: number
}
const tests = new Map<string, Recorded>()
const reachedBy = new Map<number, Set<string>>()
const loadedBy = new Map<number, Set<string>>()
const into = <K>(map: Map<K, Set<string>>, key: K, value: string) => {
  const set = map.get(key)
  if (set === undefined) map.set(key, new Set([value]))
  else set.add(value)
}
for (const line of recorded.lines) {
  if (line._tag !== "recorded") continue
  tests.set(line.test, line)
  for (const id of line.reached) into(reachedBy, id, line.test)
  for (const id of line.loaded) into(loadedBy, id, line.file)
}
if (reachedBy.size === 0 && loadedBy.size === 0) fail("no test comes past any mutant")
const usual = Object.fromEntries([...tests].map(([name, { millis, steps }]) => [name, { millis, steps }]))
const costOf = new Map<string, number>()
for (const { file, millis } of tests.values()) costOf.set(file, (costOf.get(file) ?? 0) + millis)
const cheapFirst = (files: Iterable<string>) => [...files].sort((a, b) => costOf.get(a)! - costOf.get(b)!)
console.log(`${tests.size} tests recorded in ${Math.round((Date.now() - started) / 1000)} s`)

// 2. Each test with each mutant that it comes past, cheap tests first, until one fails.

interface State {
  verdict: "killed" | "timeout" | "survived" | undefined
  test: string | undefined
  readonly left: Set<string>
  /** The files in which it has to be there from the start. */
  readonly fresh: Set<string>
  /** Of these, those in which there is no use in trying it later. */
  readonly cold: Set<string>
}
const states = new Map(ids.map((id): [number, State] => [id, {
  verdict: undefined,
  test: undefined,
  left: new Set(reachedBy.get(id)),
  fresh: new Set(loadedBy.get(id)),
  cold: new Set()
}]))

const take = (id: number, test: string | undefined, verdict: Verdict): void => {
  const state = states.get(id)!
  if (test !== undefined) state.left.delete(test)
  if (verdict === "unreached") freshIn(state, test!)
  if (verdict === "killed" || verdict === "timeout") Object.assign(state, { verdict, test })
}

const freshIn = ({ cold, fresh }: State, test: string): void => {
  const { file } = tests.get(test)!
  fresh.add(file)
  cold.add(file)
}

/** What was killed in a spoilt test, and what is left to try in it, is looked at from a fresh start. */
const distrust = (lines: ReadonlyArray<Line>, test: string): void => {
  const killed = lines.flatMap((line) =>
    line._tag === "tried" && line.test === test && (line.verdict === "killed" || line.verdict === "timeout")
      ? [line.mutant]
      : []
  )
  for (const id of killed) {
    const state = states.get(id)!
    Object.assign(state, { verdict: undefined, test: undefined })
    for (const name of reachedBy.get(id)!) freshIn(state, name)
  }
}

const tryShare = async (share: ReadonlyArray<number>, most: number): Promise<void> => {
  for (;;) {
    const tries: Record<string, Array<number>> = {}
    for (const id of share) {
      const { cold, left, verdict } = states.get(id)!
      if (verdict !== undefined) continue
      for (const test of left) {
        const { file, millis } = tests.get(test)!
        if (millis <= most && !cold.has(file)) (tries[test] ??= []).push(id)
      }
    }
    const names = Object.keys(tries)
    if (names.length === 0) return
    const files = cheapFirst(new Set(names.map((name) => tests.get(name)!.file)))
    const { lines } = await vitest({ mode: "try", tries, usual, files })
    let trying: { readonly test: string; readonly mutant: number } | undefined
    for (const line of lines) {
      if (line._tag === "trying") trying = line
      if (line._tag === "tried") {
        take(line.mutant, line.test, line.verdict)
        trying = undefined
      }
      if (line._tag === "spoilt") distrust(lines, line.test)
    }
    if (trying !== undefined) take(trying.mutant, trying.test, "timeout")
    else if (!lines.some(({ _tag }) => _tag === "tried")) {
      // Nothing can be tried in these any more without a fresh start.
      for (const name of names) for (const id of tries[name]!) freshIn(states.get(id)!, name)
    }
  }
}

const shares = Array.from({ length: workers }, (_, k) => ids.filter((_, i) => i % workers === k))
for (const most of [25, 250, Infinity]) await Promise.all(shares.map((share) => tryShare(share, most)))
const tried = Date.now()
const lived = (id: number) => states.get(id)!.verdict === undefined
console.log(`${ids.filter(lived).length} left after ${Math.round((tried - started) / 1000)} s`)

// 3. What works while modules are loaded, or once and for all: a process of its own for each.

const fromTheStart = ids.filter((id) => lived(id) && states.get(id)!.fresh.size > 0)
if (fromTheStart.length > 0) {
  console.log(`${fromTheStart.length} from a fresh start`)
  const load = (id: number) => {
    const files = id === 0 ? cheapFirst(costOf.keys()).slice(0, 1) : cheapFirst(states.get(id)!.fresh)
    return vitest({ mode: "load", active: id, files, usual })
  }
  const control = await load(0)
  if (control.code !== 0 || control.lines.length === 0) fail("the tests fail from a fresh start without a fault")
  const queue = [...fromTheStart]
  await Promise.all(shares.map(async () => {
    for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
      const { code, lines } = await load(id)
      const noticed = lines.find((line) => line._tag === "tried" && line.verdict !== "survived")
      if (noticed?._tag === "tried") take(id, noticed.test, noticed.verdict)
      else if (code !== 0) take(id, undefined, "killed")
      else if (lines.length === 0) fail("no test was run")
    }
  }))
}

// What came out.

const results = ids.map((id): Result => {
  const { test, verdict } = states.get(id)!
  const mutant = all.get(id)!
  return {
    mutant,
    verdict: verdict ?? "survived",
    test,
    reached: reachedBy.has(id) || loadedBy.has(id),
    explained: explanations.get(keyOf(mutant))
  }
})
// A sample says nothing of the rest; any other run is added to what is known.
if (values.sample === undefined) {
  fs.mkdirSync(path.dirname(resultFile), { recursive: true })
  const known: ReadonlyArray<Result> = fs.existsSync(resultFile) ? JSON.parse(fs.readFileSync(resultFile, "utf8")) : []
  const byKey = new Map([...known, ...results].map((result) => [keyOf(result.mutant), result]))
  const merged = [...all.values()].flatMap((mutant) => {
    const result = byKey.get(keyOf(mutant))
    return result === undefined ? [] : [{ ...result, mutant, explained: explanations.get(keyOf(mutant)) }]
  })
  fs.writeFileSync(resultFile, JSON.stringify(merged, undefined, 1))
  if (merged.length === all.size) fs.writeFileSync(path.join(here, "REPORT.md"), render(merged))
}

const problems: Array<string> = []
for (const { explained, mutant, reached, verdict } of results) {
  const { file, from, line, to, where } = mutant
  const words = `${file}:${line} ${where}: ${from} -> ${to}`
  if (verdict === "survived" && explained === undefined) {
    problems.push(`survived${reached ? "" : ", no test comes here"}: ${words}`)
  }
  if (verdict !== "survived" && explained !== undefined) {
    problems.push(`explained, and ${verdict} all the same: ${words}`)
  }
}
const exist = new Set([...all.values()].map(keyOf))
for (const key of explanations.keys()) if (!exist.has(key)) problems.push(`explained, and no longer there: ${key}`)
for (const problem of problems) console.log(problem)
console.log(`${summary(results)} in ${Math.round((Date.now() - started) / 1000)} s`)
process.exitCode = problems.length === 0 ? 0 : 1
