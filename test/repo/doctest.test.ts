import { assert, describe, it } from "@effect/vitest"
import * as fs from "node:fs"
import * as path from "node:path"
import { checkTypes, examplesOf, makesTests } from "./checks/doctest.ts"
import { assertClean, readFiles, root } from "./checks/report.ts"

describe("doc examples", () => {
  const pages = ["README.md", "examples/migration.md", "examples/scenarios/README.md"].filter((file) =>
    fs.existsSync(path.join(root, file))
  )
  const files = new Map([
    ...[...readFiles(path.join(root, "src"))].map(([file, text]) => [`src/${file}`, text] as const),
    ...pages.map((file) => [file, fs.readFileSync(path.join(root, file), "utf8")] as const)
  ])
  const examples = [...files].flatMap(([file, text]) => examplesOf(file, text))
  const running = examples.filter(({ runs }) => runs)

  const load = ({ file, number }: typeof running[number]) =>
    import(/* @vite-ignore */ `${path.join(root, file)}?doctest=${number}&lang.ts`)
  for (const example of running.filter((one) => !makesTests(one))) {
    it(`${example.file} #${example.number}`, () => load(example))
  }
  // What makes tests is loaded while tests are collected; one that makes none is an error of the runner's.
  for (const example of running.filter(makesTests)) {
    describe(`${example.file} #${example.number}`, async () => void (await load(example)))
  }

  it("there are examples in the sources and in the README", () => {
    assert.isTrue(running.some(({ file }) => file !== "README.md"))
    for (const page of pages) assert.isTrue(running.some(({ file }) => file === page), page)
    assert.include(pages, "README.md")
  })

  it("every TypeScript example of the README runs", () => {
    assert.deepStrictEqual(examples.filter(({ file, runs }) => file === "README.md" && !runs), [])
  })

  it("all of them type-check", async () => assertClean(await checkTypes(root, examples)))
})
