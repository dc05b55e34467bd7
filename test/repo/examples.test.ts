import { describe, it } from "@effect/vitest"
import * as path from "node:path"
import { listExamples, runExample } from "./checks/examples.ts"
import { assertClean, root } from "./checks/report.ts"

describe("examples", () => {
  const folder = path.join(root, "examples")
  const { examples, report } = listExamples(folder)

  it("there are some, numbered without a gap", () => assertClean(report))
  for (const name of examples) it(name, async () => assertClean(await runExample(folder, name)), 60_000)
})
