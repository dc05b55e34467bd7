import { describe, it } from "@effect/vitest"
import * as path from "node:path"
import { checkLayers, checkMap } from "./checks/layers.ts"
import { assertClean, readFiles, root } from "./checks/report.ts"

describe("layers", () => {
  const files = readFiles(path.join(root, "src"))

  it("every file imports what its layer may", () => assertClean(checkLayers(files)))
  it("the map in src/index.ts is the map that is checked", () => assertClean(checkMap(files)))
})
