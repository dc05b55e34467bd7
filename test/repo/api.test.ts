import { assert, describe, expect, it } from "@effect/vitest"
import * as path from "node:path"
import { checkGolden, declarationsOf } from "./checks/api.ts"
import { assertClean, readFiles, root } from "./checks/report.ts"

const declarations = await declarationsOf(root)

describe("public declarations", () => {
  it("there are some", () => assert.isAbove(declarations.size, 0))

  // A file snapshot shows what differs, and `npm run api` writes it.
  for (const [module, text] of declarations) {
    it(module, () => expect(text).toMatchFileSnapshot(path.join(root, "test/api", `${module}.txt`)))
  }

  it("golden files and modules are the same", () => {
    const golden = [...readFiles(path.join(root, "test/api"), "**/*.txt")]
    assertClean(checkGolden(declarations, new Map(golden.map(([file, text]) => [file.replace(/\.txt$/, ""), text]))))
  })
})
