/** The suite over the instrumented sources. Started by `main.ts`, which says in a plan what is run. */
import * as path from "node:path"
import { defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"
import { instrument } from "./mutants.ts"
import { readPlan, root, sources } from "./plan.ts"

const plan = readPlan()
const wanted = new Set(plan.wanted)
const first = new Map(sources().map((source) => [path.join(root, source.file), source]))
const condition = "@effect-turn/source"

class InOrder extends BaseSequencer {
  override sort(specifications: ReadonlyArray<TestSpecification>): Promise<Array<TestSpecification>> {
    const place = ({ moduleId }: TestSpecification) => plan.files.indexOf(path.relative(root, moduleId))
    return Promise.resolve([...specifications].sort((a, b) => place(a) - place(b)))
  }
}

export default defineConfig({
  root,
  plugins: [{
    name: "mutants",
    enforce: "pre",
    transform(code, id) {
      const source = first.get(id)
      return source === undefined
        ? undefined
        : { code: instrument(source.file, code, source.first, (id) => wanted.has(id)), map: null }
    }
  }],
  resolve: { conditions: [condition] },
  ssr: { resolve: { conditions: [condition] } },
  test: {
    include: [...plan.files],
    runner: path.join(import.meta.dirname, "runner.ts"),
    // What is planted is another thing in each run.
    fsModuleCache: false,
    // A thread goes when its process is ended; a process of its own could be left behind, turning in circles.
    pool: "threads",
    maxWorkers: plan.workers,
    fileParallelism: plan.workers > 1,
    isolate: plan.mode !== "try",
    bail: plan.mode === "load" ? 1 : 0,
    sequence: { sequencer: InOrder },
    testTimeout: 30_000,
    fakeTimers: { toFake: [] },
    reporters: plan.mode === "record" ? ["default"] : [{}],
    disableConsoleIntercept: true,
    dangerouslyIgnoreUnhandledErrors: plan.mode === "try"
  }
})
