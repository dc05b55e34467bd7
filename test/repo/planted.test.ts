/**
 * Each check of the repository, shown to fail on a planted fault and on nothing at all, and to pass what is right.
 */
import { assert, describe, expect, it, vi } from "@effect/vitest"
import * as fs from "node:fs"
import * as path from "node:path"
import { checkGolden, declarationsOf } from "./checks/api.ts"
import { checkDocs } from "./checks/docs.ts"
import { checkTypes, examplesOf } from "./checks/doctest.ts"
import { listExamples, runExample } from "./checks/examples.ts"
import { checkLock, checkTopLevel, checkWords } from "./checks/files.ts"
import { checkLayers, checkMap } from "./checks/layers.ts"
import { checkEntries, checkPackedTypes, checkPrograms, checkShape, install, pack } from "./checks/package.ts"
import type { Report } from "./checks/report.ts"
import { assertClean, inFolder, program, root, run } from "./checks/report.ts"
import { checkSizes } from "./checks/size.ts"

// Some start a compiler or two, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 })

const files = (entries: Record<string, string>) => new Map(Object.entries(entries))

const assertFinds = (report: Report, ...problems: ReadonlyArray<RegExp>) => {
  assert.strictEqual(report.problems.length, problems.length, report.problems.join("\n"))
  problems.forEach((problem, i) => assert.match(report.problems[i]!, problem))
  assert.throws(() => assertClean(report))
}

const assertFindsNothingToCheck = (report: Report) => assert.throws(() => assertClean(report), /nothing to check/)

describe("layers", () => {
  const good = {
    "index.ts": `export * as Outcome from "./Outcome.ts"`,
    "Outcome.ts": `import type * as ToolCall from "./ToolCall.ts"`,
    "ToolCall.ts": `import * as Schema from "effect/Schema"`,
    "TurnPlan.ts": `import { graph } from "./internal/turnPlan/graph.ts"`,
    "internal/turnPlan/graph.ts": `import * as ToolCall from "../../ToolCall.ts"`,
    "Backend.ts": `import * as Effect from "effect/Effect"`,
    "Turn.ts": `import * as TurnPlan from "./TurnPlan.ts"`,
    "wire/OpenAiChat.ts": `export * from "./index.ts"`,
    "wire/index.ts": "",
    "testing/Scenario.ts": `import * as Turn from "../Turn.ts"`,
    "cli/bin.ts": `import { Scenario } from "../testing/Scenario.ts"`
  }
  const withFile = (file: string, text: string) => checkLayers(new Map([...files(good), [file, text]]))

  it("pass what is right", () => assertClean(checkLayers(files(good))))
  it("need a source", () => assertFindsNothingToCheck(checkLayers(files({}))))
  it("find a file in no layer", () => assertFinds(withFile("Stray.ts", ""), /^Stray.ts is in no layer/))
  it("find an import upwards, of types too", () => {
    assertFinds(withFile("ToolCall.ts", `import type * as Turn from "./Turn.ts"`), /imports up: Turn.ts/)
    assertFinds(withFile("ToolCall.ts", `export type { Turn } from "./Turn.ts"`), /imports up: Turn.ts/)
    assertFinds(withFile("Turn.ts", `const late = () => import("./testing/Scenario.ts")`), /imports up: testing/)
    assertFinds(withFile("Turn.ts", `export * from "./index.ts"`), /imports up: index.ts/)
  })
  it("find an import of a sibling", () => {
    assertFinds(withFile("Siblings.ts", `import * as Backend from "./Backend.ts"`), /imports its sibling Backend.ts/)
    assertFinds(withFile("TurnPlan.ts", `import "./wire/index.ts"`), /imports its sibling wire/)
    assertFinds(withFile("testing/Scenario.ts", `import "../index.ts"`), /imports its sibling index.ts/)
    assertFinds(
      withFile("testing/Scenario.ts", `import "../cli/bin.ts"`),
      /imports its sibling cli/,
      /circle: testing\/ -> cli\/ -> testing\//
    )
  })
  it("find that someone reaches into the internals of another", () =>
    assertFinds(
      withFile("Turn.ts", `import "./internal/turnPlan/graph.ts"`),
      /reaches into internal\/turnPlan\/graph.ts/
    ))
  it("find the runtime in a module that runs nothing", () => {
    assertFinds(withFile("TurnPlan.ts", `import * as Effect from "effect/Effect"`), /imports effect\/Effect/)
    assertFinds(withFile("TurnPlan.ts", `import * as fs from "node:fs"`), /imports node:fs/)
    assertClean(withFile("TurnPlan.ts", `import type * as Effect from "effect/Effect"`))
  })
  it("find a circle of words", () =>
    assertFinds(
      withFile("ToolCall.ts", `import type * as Outcome from "./Outcome.ts"`),
      /Outcome -> ToolCall -> Outcome/
    ))
  it("do not pass what cannot be read", () =>
    assert.throws(() => withFile("Turn.ts", "import {"), /could not be parsed/))

  const map = (header: string, rest = "") =>
    checkMap(files({ ...good, "index.ts": `/**\n${header}\n */\nexport * as Turn from "./Turn.ts"\n${rest}` }))
  const lines = [
    " * Layers:",
    " *",
    " * - **words**: `Outcome`, `ToolCall`",
    " * - **pure**: `TurnPlan`,",
    " *   `wire/`",
    " * - **capabilities**: `Backend`",
    " * - **turn**: `Turn`",
    " * - **hosts**: `index`, `testing/`, `cli/`"
  ]
  const exports = ["Outcome", "ToolCall", "TurnPlan", "Backend"].map((name) =>
    `export * as ${name} from "./${name}.ts"`
  )
  it("have a map that is complete, in order and exported", () => {
    assertClean(map(lines.join("\n"), exports.join("\n")))
    assertFinds(
      map([...lines.slice(0, 6), ...lines.slice(7)].join("\n"), exports.join("\n")),
      /lists the layers/,
      /"turn"/
    )
    assertFinds(map([...lines, lines[2]].join("\n").replace("`Turn`", "`Turn`, `Agent`"), exports.join("\n")), /Agent/)
    assertFinds(map(lines.join("\n"), exports.slice(1).join("\n")), /does not export Outcome/)
    assertFinds(checkMap(files({})), /no src\/index.ts/)
  })
})

describe("docs", () => {
  const header = `/**\n * A module.\n *\n * @since 0.1.0\n */\nimport "./A.ts"\n`
  const tags = " * @category models\n * @since 0.1.0\n * @stability experimental\n"
  const doc = `/**\n * Makes it.\n *\n${tags} */\n`
  const check = (text: string) => checkDocs(files({ "A.ts": header, "Turn.ts": text }))

  it("pass what is right", () => {
    assertClean(check(`${header}${doc}export const make = 1\n/** @internal */\nexport const inner = 2\n`))
    assertClean(check(`${header}${doc}export function f(a: string): void\nexport function f(a: number): void\n`))
    assertClean(check(`${header}const plain = 1\n`))
    assertClean(checkDocs(files({ "internal/turn/x.ts": `/** Inside. */\n\nexport const a = 1` })))
    assertClean(checkDocs(files({ "internal/turn/x.ts": `/** Inside. */\nimport "a"\nexport const a = 1` })))
  })
  it("need a source", () => assertFindsNothingToCheck(checkDocs(files({}))))
  it("take a type of the same name as its schema with it", () => {
    const companion = `/**\n${tags} */\nexport type Made = typeof Made.Type\n`
    assertClean(check(`${header}${doc}export const Made = 1\n${companion}`))
  })
  it("find an export without a comment", () =>
    assertFinds(
      check(`${header}${doc}export const make = 1\nexport interface Made {}\n`),
      /Turn.ts: Made has no doc comment/
    ))
  it("find a comment that does not belong to the export", () =>
    assertFinds(check(`${header}${doc}const other = 1\nexport const make = 1\n`), /make has no doc comment/))
  it("find a missing tag", () => {
    for (const tag of ["@category", "@since", "@stability"]) {
      const lacking = doc.replace(new RegExp(`.*${tag}.*\n`), "")
      assertFinds(check(`${header}${lacking}export class Made {}\n`), new RegExp(`comment of Made has no ${tag}`))
    }
  })
  it("find a comment of tags alone", () =>
    assertFinds(check(`${header}/**\n${tags} */\nexport type Made = 1\n`), /comment of Made says nothing/))
  it("find a module without a header", () => {
    assertFinds(check(`import "./A.ts"\n${doc}export const make = 1\n`), /Turn.ts has no header/)
    assertFinds(check(`${doc}export const make = 1\n`), /Turn.ts has no header/)
    assertFinds(check(header.replace("@since", "@from")), /header of Turn.ts has no @since/)
  })
  it("follow what an entry re-exports", () =>
    assertFinds(
      checkDocs(files({
        "testing/index.ts": `${header}export * as Scenario from "./scenario/run.ts"`,
        "testing/scenario/run.ts": `${header}export const run = 1\n`
      })),
      /scenario\/run.ts: run has no doc comment/
    ))
})

describe("doc examples", () => {
  const example = (code: string, info = " import.meta.vitest") =>
    `/**\n * Text.\n *\n * \`\`\`ts${info}\n${
      code.split("\n").map((line) => ` * ${line}`).join("\n")
    }\n * \`\`\`\n */\n`
  const load = (code: string) =>
    inFolder(
      { "a.ts": example("const first = 1 // => 1") + example(code) },
      (folder) => import(/* @vite-ignore */ `${path.join(folder, "a.ts")}?doctest=2&lang.ts`)
    )

  it("pass what is right", async () => {
    await load("1 + 1 // => 2\nconst two = 1 + 1 // => 2\nconst list = [two] // => [2]")
  })
  it("fail when the value is another", async () => {
    await assertRejects(load("1 + 1 // => 3"), /3/)
    await assertRejects(load("const two = 1 + 1 // => 3"), /3/)
    await assertRejects(load("const list = [1].map((n) => n + 1) // => [1]"), /1/)
  })
  it("fail when they throw, and when they do not exist", async () => {
    await assertRejects(load(`throw new Error("planted")`), /planted/)
    await assertRejects(
      inFolder({ "a.ts": "" }, (folder) => import(`${path.join(folder, "a.ts")}?doctest=1&lang.ts`)),
      /no running/
    )
  })
  it("are found, whether they run or are only shown", () => {
    const text = `${example("1")}${example("2", "")}\n\n\`\`\`ts import.meta.vitest\n3\n\`\`\`\n`
    assert.deepStrictEqual(examplesOf("a", text).map(({ code, number, runs }) => [code, number, runs]), [
      ["1\n", 1, true],
      ["2\n", 1, false],
      ["3\n", 2, true]
    ])
  })
  it("fail when their types are wrong, and when there are none", () =>
    inFolder(
      { "tsconfig.json": JSON.stringify({ compilerOptions: { strict: true, module: "NodeNext", types: [] } }) },
      async (folder) => {
        assertClean(await checkTypes(folder, examplesOf("a.ts", example("const a: number = 1"))))
        assertFinds(await checkTypes(folder, examplesOf("a.ts", example(`const a: number = "1"`))), /a.ts.1.ts.*TS2322/)
        assert.throws(() => assertClean({ checked: 0, problems: [] }))
        assert.strictEqual((await checkTypes(folder, [])).checked, 0)
      }
    ))
})

describe("public declarations", () => {
  const config = fs.readFileSync(path.join(root, "tsconfig.json"), "utf8")
  const declare = (sources: Record<string, string>) =>
    inFolder({ "package.json": `{ "type": "module" }`, "tsconfig.json": config, ...sources }, declarationsOf)

  it("are those of the public modules, without comments and without what is internal", async () => {
    const declarations = await declare({
      "src/A.ts": `/** Doc. */\nexport const a: number = 1\n/** @internal */\nexport const inner = 1\n`,
      "src/internal/a/x.ts": `export const x = 1`
    })
    assert.deepStrictEqual([...declarations.keys()], ["A"])
    assert.include(declarations.get("A"), "export declare const a: number;")
    assert.notInclude(declarations.get("A"), "Doc")
    assert.notInclude(declarations.get("A"), "inner")
    assertClean(checkGolden(declarations.keys(), ["A"]))
    assertFinds(checkGolden(declarations.keys(), ["A", "Gone"]), /Gone.txt is of a module that is gone/)
    assertFindsNothingToCheck(checkGolden([], []))
  })
  it("fail when they are not the golden ones", () =>
    inFolder({ "A.txt": "export declare const a: string;\n" }, async (folder) => {
      const compare = (text: string) => expect(text).toMatchFileSnapshot(path.join(folder, "A.txt"))
      await compare("export declare const a: string;\n")
      await assertRejects(compare("export declare const a: number;\n"), /snapshot/i)
    }))
  it("are not taken from sources that do not compile", () =>
    assertRejects(declare({ "src/A.ts": `export const a: number = "1"` }), /TS2322/))
})

describe("examples", () => {
  it("fail when one fails, has no number or a wrong one, and when there are none", () =>
    inFolder(
      { "01-good.ts": "const n: number = 1\nvoid n", "02-bad.ts": `throw new Error("planted")` },
      async (folder) => {
        const { examples, report } = listExamples(folder)
        assertClean(report)
        assert.deepStrictEqual(examples, ["01-good.ts", "02-bad.ts"])
        assertClean(await runExample(folder, "01-good.ts"))
        assertFinds(await runExample(folder, "02-bad.ts"), /02-bad.ts exited with 1[\s\S]*planted/)

        fs.renameSync(path.join(folder, "01-good.ts"), path.join(folder, "good.ts"))
        assertFinds(listExamples(folder).report, /good.ts has no number/, /02-bad.ts should have the number 1/)
        assertFindsNothingToCheck(listExamples(path.join(folder, "none")).report)
      }
    ))
})

describe("bundle sizes", () => {
  it("fail over the budget, without a budget, for nothing, and when something does not resolve", () =>
    inFolder({ "Turn.ts": `export const run = () => "${"x".repeat(99)}"` }, async (folder) => {
      assertClean(await checkSizes(folder, { Turn: 200 }))
      assertFinds(await checkSizes(folder, { Turn: 10 }), /Turn takes \d+ bytes, its budget is 10/)
      assertFinds(await checkSizes(folder, {}), /Turn takes \d+ bytes and has no budget/)
      assertFinds(await checkSizes(folder, { Turn: 200, Gone: 1 }), /Gone has a budget and does not exist/)
      assertFindsNothingToCheck(await checkSizes(path.join(folder, "none"), {}))
      fs.writeFileSync(path.join(folder, "Turn.ts"), `export { a } from "./missing.ts"`)
      await assertRejects(checkSizes(folder, { Turn: 200 }), /missing/)
    }))
})

describe("files", () => {
  it("find a stranger at the top level", () => {
    assertClean(checkTopLevel(["src/a.ts", ".ci/run", "README.md"]))
    assertFinds(checkTopLevel(["src/a.ts", "scripts/a.ts"]), /scripts may not stand/)
    assertFindsNothingToCheck(checkTopLevel([]))
  })
  it("find half-done work, silenced checks and paths of one machine", () => {
    const check = (text: string) => checkWords(files({ "a.ts": `first\n${text}` }))
    assertClean(check("it.effect('a skipped call', () => read(`${base}/home/x`))"))
    assertClean(check(`// oxlint-${"disable"}-next-line no-console -- a program speaks to people`))
    assertClean(check(`// @ts-expect-error: a write needs its keys\n"file:/home/a"`))
    // Each "_" goes, so that this file does not have what it looks for.
    const faults = [
      "// TO_DO: later",
      "good enough for_ now",
      "it.sk_ip('x', () => {})",
      "describe.effect.on_ly('x', () => {})",
      "// @ts-ig_nore",
      "// @ts-expect-err_or",
      "// oxlint-dis_able",
      `"/ho_me/me/x"`
    ].map((fault) => fault.replace("_", ""))
    for (const fault of faults) assertFinds(check(fault), /^a.ts:2 has /)
    assertFindsNothingToCheck(checkWords(files({})))
  })
  it("find a registry, a drifted manifest and a missing platform in the lock file", () => {
    const manifest = { version: "1.0.0", devDependencies: { b: "1", a: "1" } }
    const lock = (packages: object, own: object = { version: "1.0.0", devDependencies: { a: "1", b: "1" } }) =>
      checkLock(JSON.stringify({ packages: { "": own, ...packages } }), JSON.stringify(manifest))
    const a = { version: "1.0.0", optionalDependencies: { "a-linux": "1.0.0" } }
    assertClean(lock({ "node_modules/a": a, "node_modules/a-linux": { version: "1.0.0" } }))
    assertFinds(lock({ "node_modules/a": a }), /may need a-linux/)
    assertFinds(lock({ "node_modules/b": { resolved: "https://example.com/b.tgz" } }), /names a registry/)
    assertFinds(lock({ "node_modules/b": {} }, { version: "1.0.0" }), /differ in devDependencies/)
    assertFindsNothingToCheck(lock({}))
  })
})

describe("the packed package", () => {
  const manifest = {
    name: "planted",
    version: "1.0.0",
    type: "module",
    license: "MIT",
    files: ["dist"],
    bin: { planted: "dist/bin.js" },
    exports: { ".": { types: "./dist/index.d.ts", default: "./dist/index.js" }, "./internal/*": null }
  }
  const good = {
    "package.json": JSON.stringify(manifest),
    "dist/index.js": "export const a = 1\n",
    "dist/index.d.ts": "export declare const a: number\n",
    "dist/internal/b.js": "export const b = 1\n",
    "dist/bin.js": `#!/usr/bin/env node
      if (process.version === "v18.0.0") throw new Error("planted needs Node 22")
      console.log("planted --help")
    `
  }
  const packed = (sources: Record<string, string>, use: (tarball: string) => Promise<void>) =>
    inFolder({ ...good, ...sources }, (from) => inFolder({}, (to) => use(pack(from, to))))
  const withExports = (exports: object) => ({ "package.json": JSON.stringify({ ...manifest, exports }) })

  it(
    "passes when it is right, and fails when an entry or a program does not work or an internal is open",
    () =>
      packed({}, async (tarball) => {
        const app = install(tarball)
        assertClean(await checkEntries(app, ["planted"], ["planted/internal/b"]))
        assertFinds(
          await checkEntries(app, ["planted", "planted/gone"], ["planted/x"]),
          /planted\/gone cannot be imported/
        )
        assertFinds(
          await checkEntries(app, ["planted/internal/b"], ["planted"]),
          /cannot be imported/,
          /should be shut/
        )
        assertFindsNothingToCheck(await checkEntries(app, ["planted"], []))
        assertClean(await checkPackedTypes(app, ["planted"]))
        assertFindsNothingToCheck(await checkPackedTypes(app, []))
        const types = path.join(app, "node_modules/planted/dist/index.d.ts")
        fs.writeFileSync(types, `export declare const a: import("./internal/b.js").Gone\n`)
        assertFinds(await checkPackedTypes(app, ["planted"]), /internal\/b/)
        assertClean(await checkPrograms(app, "planted"))
        const bin = path.join(app, "node_modules/planted/dist/bin.js")
        fs.writeFileSync(bin, "process.exit(3)")
        assertFinds(
          await checkPrograms(app, "planted"),
          /--help exited with 3/,
          /does not say that it needs another Node/
        )
        fs.writeFileSync(bin, `console.log("planted --help")`)
        assertFinds(await checkPrograms(app, "planted"), /does not say that it needs another Node/)
      }),
    60_000
  )
  it(
    "passes publint and attw when it is right",
    () => packed({}, async (tarball) => assertClean(await checkShape(tarball))),
    60_000
  )
  it("fails publint and attw when the types are not there", () =>
    packed(
      withExports({ ".": { types: "./dist/gone.d.ts", default: "./dist/index.js" } }),
      async (tarball) => assertFinds(await checkShape(tarball), /gone\.d\.ts/, /resolution|No types/i)
    ))
})

describe("tools", () => {
  const compilerOptions = JSON.parse(fs.readFileSync(path.join(root, "tsconfig.json"), "utf8")).compilerOptions
  const config = JSON.stringify({ compilerOptions, include: ["src"] })
  const { knip } = JSON.parse(fs.readFileSync(path.join(root, "package.json"), "utf8"))

  const lint = (sources: Record<string, string>) =>
    inFolder(
      sources,
      (folder) =>
        run([program("oxlint"), "-c", path.join(root, "test/repo/oxlintrc.json"), "--deny-warnings", "src"], {
          cwd: folder
        })
    )
  it("oxlint finds an import circle, a clock and a console in src", async () => {
    assert.strictEqual((await lint({ "src/a.ts": "export const a = 1\n" })).code, 0)
    const faults = {
      "no-cycle": `import { b } from "./b.ts"\nexport const a = () => b\n`,
      "no-restricted-properties": `export const a = () => Date.now()\n`,
      "no-restricted-globals": `export const a = () => setTimeout(() => {}, 1)\n`,
      "no-console": `export const a = () => console.log(1)\n`
    }
    const b = `import { a } from "./a.ts"\nexport const b = () => a\n`
    for (const [rule, a] of Object.entries(faults)) {
      const { code, output } = await lint({ "src/a.ts": a, "src/b.ts": b })
      assert.notStrictEqual(code, 0)
      assert.include(output, rule)
    }
  })

  const diagnose = (text: string) =>
    inFolder(
      { "tsconfig.json": config, "src/a.ts": `import * as Effect from "effect/Effect"\n${text}` },
      (folder) =>
        run([
          program("effect-tsgo", "@effect/tsgo"),
          "diagnostics",
          "--project",
          path.join(folder, "tsconfig.json"),
          "--strict",
          "--severity",
          "error,warning"
        ])
    )
  it("effect-tsgo finds an effect that is dropped and a failure that is not returned", async () => {
    assert.strictEqual((await diagnose("export const a = Effect.void\n")).code, 0)
    const dropped = await diagnose("export const a = () => {\n  Effect.void\n}\n")
    assert.notStrictEqual(dropped.code, 0)
    assert.include(dropped.output, "floatingEffect")
    const lost = await diagnose("export const a = Effect.gen(function*() {\n  yield* Effect.fail(1)\n})\n")
    assert.notStrictEqual(lost.code, 0)
    assert.include(lost.output, "missingReturnYieldStar")
  })

  const findUnused = (text: string) =>
    inFolder({
      "package.json": JSON.stringify({
        name: "planted",
        type: "module",
        knip: { entry: knip.entry, project: knip.project }
      }),
      "tsconfig.json": `{ "include": ["src"] }`,
      "src/A.ts": `export { a } from "./internal/a/x.ts"\n`,
      "src/internal/a/x.ts": `export const a = 1\n${text}`
    }, (folder) => run([program("knip"), "--no-progress"], { cwd: folder }))
  it("knip finds an internal that nobody uses", async () => {
    const clean = await findUnused("")
    assert.strictEqual(clean.code, 0, clean.output)
    const { code, output } = await findUnused("export const unusedInner = 1\n")
    assert.notStrictEqual(code, 0)
    assert.include(output, "unusedInner")
  })

  const checkTypeTests = (text: string) =>
    inFolder({
      "package.json": `{ "type": "module" }`,
      "tsconfig.json": config.replace(`["src"]`, `["."]`).replace(`"rootDir":"src"`, `"rootDir":"."`),
      "vitest.config.ts":
        `export default { test: { typecheck: { enabled: true, include: ["*.test-d.ts"], tsconfig: "tsconfig.json" } } }`,
      "a.test-d.ts": `import { expectTypeOf, it } from "vitest"\n${text}`
    }, (folder) => run([program("vitest"), "run", "--root", folder]))
  it("type tests fail on a wrong type and on an expected error that does not come", async () => {
    const good = await checkTypeTests("it('a', () => expectTypeOf(1).toEqualTypeOf<number>())")
    assert.strictEqual(good.code, 0, good.output)
    assert.notStrictEqual((await checkTypeTests("it('a', () => expectTypeOf(1).toEqualTypeOf<string>())")).code, 0)
    assert.notStrictEqual(
      (await checkTypeTests("it('a', () => {\n  // @ts-expect-error: planted\n  void 1\n})")).code,
      0
    )
  })

  it("the formatter finds what is not formatted", async () => {
    const format = (text: string) =>
      inFolder({
        ".dprint.json": fs.readFileSync(path.join(root, ".dprint.json"), "utf8"),
        "src/a.ts": text
      }, (folder) => run([program("dprint"), "check"], { cwd: folder }))
    const clean = await format(`export const a = "a"\n`)
    assert.strictEqual(clean.code, 0, clean.output)
    assert.notStrictEqual((await format(`export const a = 'a';\n`)).code, 0)
  })
})

const assertRejects = (promise: Promise<unknown>, message: RegExp) =>
  promise.then(() => assert.fail("it passed"), (error: unknown) => assert.match(String(error), message))
