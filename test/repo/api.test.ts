import { assert, describe, expect, it } from "@effect/vitest"
import * as path from "node:path"
import { checkGolden, declarationsOf } from "./checks/api.ts"
import { assertClean, readFiles, root } from "./checks/report.ts"

const golden = path.join(root, "test/api")
const declarations = await declarationsOf(root)

describe("public declarations", () => {
  it("there are some", () => assert.isAbove(declarations.size, 0))

  // `npm run api` writes them anew. Each changed line needs a line in the change log.
  for (const [module, text] of declarations) {
    it(module, () => expect(text).toMatchFileSnapshot(path.join(golden, `${module}.txt`)))
  }

  it("every golden file has a module", () => {
    const files = [...readFiles(golden, "**/*.txt").keys()]
    assertClean(checkGolden(declarations.keys(), files.map((file) => file.replace(/\.txt$/, ""))))
  })
})
