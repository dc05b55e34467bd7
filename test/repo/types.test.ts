import { assert, it } from "@effect/vitest"
import * as fs from "node:fs"
import * as path from "node:path"
import { root } from "./checks/report.ts"

// They run in the same `vitest run`, which says nothing when there are none.
it("there are type tests", () => {
  assert.isAbove(fs.globSync("**/*.test-d.ts", { cwd: path.join(root, "test/types") }).length, 0)
})
