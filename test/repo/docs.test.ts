import { it } from "@effect/vitest"
import * as path from "node:path"
import { checkDocs } from "./checks/docs.ts"
import { assertClean, readFiles, root } from "./checks/report.ts"

it("every public module and every export of it is documented", () => {
  assertClean(checkDocs(readFiles(path.join(root, "src"))))
})
