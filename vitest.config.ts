import { defineConfig } from "vitest/config"
import type { Reporter } from "vitest/node"
import { doctest } from "./test/repo/checks/doctest.ts"

// Tests, examples and doc examples import the package by its name and get src/, so nothing has to be built first.
const source = "@effect-turn/source"

/** Closes a run with one plain line, for people and for programs. */
const closingLine: Reporter = {
  onTestRunEnd(modules) {
    const count = { passed: 0, failed: 0, skipped: 0, pending: 0 }
    for (const module of modules) {
      for (const test of module.children.allTests()) count[test.result().state]++
      if (module.errors().length > 0) count.failed++
    }
    console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped + count.pending} skipped`)
  }
}

// Where to write vitest's own JSON report as well; .ci/run counts from it.
const report = process.env["EFFECT_TURN_REPORT"]

export default defineConfig({
  plugins: [doctest()],
  resolve: { conditions: [source] },
  ssr: { resolve: { conditions: [source] } },
  test: {
    include: ["test/**/*.test.ts"],
    typecheck: {
      enabled: true,
      include: ["test/types/**/*.test-d.ts"],
      tsconfig: "test/types/tsconfig.json"
    },
    // Left alone, two cores get one worker.
    maxWorkers: "100%",
    testTimeout: 30_000,
    hookTimeout: 30_000,
    fakeTimers: { toFake: [] },
    reporters: [
      "default",
      closingLine,
      ...(report === undefined ? [] : [["json", { outputFile: report }] satisfies ["json", object]])
    ]
  }
})
