import { describe, it } from "@effect/vitest"
import * as fs from "node:fs"
import * as path from "node:path"
import { buildAndPack, checkEntries, checkPackedTypes, checkPrograms, checkShape, install } from "./checks/package.ts"
import { assertClean, inFolder, root } from "./checks/report.ts"
import { entriesOf } from "./checks/size.ts"

describe("the packed package", () => {
  it("has its entries and its program, and nothing else can be reached", () =>
    inFolder({}, async (folder) => {
      const tarball = await buildAndPack(folder)
      assertClean(await checkShape(tarball))

      const app = install(tarball)
      const src = path.join(root, "src")
      const open = ["effect-turn", ...entriesOf(src).map((entry) => `effect-turn/${entry.replace(/\/index$/, "")}`)]
      const files = fs.globSync("**/*.ts", { cwd: src }).map((file) =>
        file.split(path.sep).join("/").replace(/\.ts$/, "")
      )
      const shut = files.filter((file) => file === "index" || file.includes("/")).map((file) => `effect-turn/${file}`)
      assertClean(await checkEntries(app, open, shut))
      assertClean(await checkPackedTypes(app, open))

      assertClean(await checkPrograms(app, "effect-turn"))
    }), 120_000)
})
