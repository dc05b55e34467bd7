import { assert, describe, it } from "@effect/vitest"
import * as fs from "node:fs"
import * as path from "node:path"
import { checkTypes, examplesOf } from "./checks/doctest.ts"
import { assertClean, readFiles, root } from "./checks/report.ts"

describe("doc examples", () => {
  const readme = path.join(root, "README.md")
  const files = new Map([
    ...[...readFiles(path.join(root, "src"))].map(([file, text]) => [`src/${file}`, text] as const),
    ["README.md", fs.existsSync(readme) ? fs.readFileSync(readme, "utf8") : ""] as const
  ])
  const examples = [...files].flatMap(([file, text]) => examplesOf(file, text))
  const running = examples.filter(({ runs }) => runs)

  for (const { file, number } of running) {
    it(`${file} #${number}`, () => import(/* @vite-ignore */ `${path.join(root, file)}?doctest=${number}&lang.ts`))
  }

  it("there are examples in the sources and in the README", () => {
    assert.isTrue(running.some(({ file }) => file !== "README.md"))
    assert.isTrue(running.some(({ file }) => file === "README.md"))
  })

  it("every TypeScript example of the README runs", () => {
    assert.deepStrictEqual(examples.filter(({ file, runs }) => file === "README.md" && !runs), [])
  })

  it("all of them type-check", async () => assertClean(await checkTypes(root, examples)))
})
