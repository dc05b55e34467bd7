import { describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { checkLock, checkTopLevel, checkWords } from "./checks/files.ts"
import { assertClean, root } from "./checks/report.ts"

describe("the repository", () => {
  const read = (file: string) => fs.readFileSync(path.join(root, file), "utf8")
  // Tracked, and those that would be: an ignored file is nobody's business.
  const paths = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], { cwd: root })
    .toString()
    .split("\0")
    .filter((file) => file !== "" && fs.existsSync(path.join(root, file)))

  it("has the agreed top level", () => assertClean(checkTopLevel(paths)))

  it("has no half-done work, no silenced check and no path of one machine", () => {
    const written = paths.filter((file) =>
      /\.(ts|mjs|md|json|yml)$|^\.(?!.*\.)|^LICENSE$/.test(file) && file !== "package-lock.json" &&
      !file.startsWith("test/fixtures/")
    )
    assertClean(checkWords(new Map(written.map((file) => [file, read(file)]))))
  })

  for (const folder of ["", "test/bench/peers/"]) {
    it(`has a lock file for every platform and no registry in it: ${folder}package-lock.json`, () => {
      assertClean(checkLock(read(`${folder}package-lock.json`), read(`${folder}package.json`)))
    })
  }
})
