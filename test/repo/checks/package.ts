/**
 * The package as a user gets it: packed, unpacked beside nothing but the dependencies that it names, imported and run.
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import type { Report } from "./report.ts"
import { program, root, run } from "./report.ts"

interface Manifest {
  readonly name: string
  readonly bin?: Record<string, string>
  readonly dependencies?: Record<string, string>
  readonly peerDependencies?: Record<string, string>
}

const manifestOf = (folder: string): Manifest => JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"))

/** Builds the repository and packs it inside `folder`. Returns the tarball. */
export const buildAndPack = async (folder: string): Promise<string> => {
  const copy = path.join(folder, "package")
  for (const name of ["package.json", "src", "README.md", "LICENSE", "CHANGELOG.md"]) {
    if (fs.existsSync(path.join(root, name))) {
      fs.cpSync(path.join(root, name), path.join(copy, name), { recursive: true })
    }
  }
  const dist = path.join(copy, "dist")
  const { code, output } = await run([program("tsc", "typescript"), "-p", root, "--outDir", dist])
  if (code !== 0) throw new Error(`the build failed:\n${output}`)
  return pack(copy, folder)
}

/** Packs a package as it stands. */
export const pack = (from: string, to: string): string => {
  const before = new Set(fs.readdirSync(to))
  execFileSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", to], {
    cwd: from,
    stdio: ["ignore", "pipe", "inherit"],
    shell: process.platform === "win32"
  })
  const tarball = fs.readdirSync(to).find((name) => name.endsWith(".tgz") && !before.has(name))
  if (tarball === undefined) throw new Error("npm pack wrote no tarball")
  return path.join(to, tarball)
}

/** Unpacks a tarball into an application of its own, with the dependencies and peers that its manifest names. */
export const install = (tarball: string): string => {
  const app = path.join(path.dirname(tarball), "app")
  const modules = path.join(app, "node_modules")
  const unpacked = path.join(app, "unpacked")
  fs.mkdirSync(unpacked, { recursive: true })
  execFileSync("tar", ["-xzf", tarball, "-C", unpacked, "--strip-components=1"])
  const { dependencies, name, peerDependencies } = manifestOf(unpacked)
  fs.mkdirSync(modules)
  fs.renameSync(unpacked, path.join(modules, name))
  for (const dependency of Object.keys({ ...dependencies, ...peerDependencies })) {
    const link = path.join(modules, dependency)
    fs.mkdirSync(path.dirname(link), { recursive: true })
    fs.symlinkSync(path.join(root, "node_modules", dependency), link, "junction")
  }
  fs.writeFileSync(path.join(app, "package.json"), `{ "type": "module" }`)
  return app
}

/** Imports each entry, and tries to import each path that is shut. */
export const checkEntries = async (
  app: string,
  entries: ReadonlyArray<string>,
  shut: ReadonlyArray<string>
): Promise<Report> => {
  const script = path.join(app, "entries.mjs")
  fs.writeFileSync(
    script,
    `for (const entry of ${JSON.stringify([...entries, ...shut])}) {
      const result = await import(entry).then((module) => Object.keys(module).length > 0 ? "ok" : "types", (e) => e.code ?? e.message)
      console.log(JSON.stringify([entry, result]))
    }`
  )
  const { code, output } = await run([script], { cwd: app })
  if (code !== 0) return { checked: 0, problems: [output] }
  const results = output.trim().split("\n").map((line) => JSON.parse(line) as [entry: string, result: string])
  return {
    checked: entries.length > 0 && shut.length > 0 ? results.length : 0,
    problems: results.flatMap(([entry, result]) =>
      entries.includes(entry)
        ? result === "ok" || result === "types" ? [] : [`${entry} cannot be imported: ${result}`]
        : result === "ERR_PACKAGE_PATH_NOT_EXPORTED"
        ? []
        : [`${entry} should be shut, importing it gave: ${result}`]
    )
  }
}

/** Compiles a program that imports every entry, libraries checked too: a type that was stripped away is found here. */
export const checkPackedTypes = async (app: string, entries: ReadonlyArray<string>): Promise<Report> => {
  fs.writeFileSync(
    path.join(app, "types.ts"),
    entries.map((entry, i) => `import * as m${i} from ${JSON.stringify(entry)}\nexport type T${i} = typeof m${i}\n`)
      .join("")
  )
  fs.writeFileSync(
    path.join(app, "tsconfig.json"),
    JSON.stringify({
      compilerOptions: {
        module: "NodeNext",
        target: "ES2023",
        lib: ["ES2024", "DOM", "DOM.Iterable", "ESNext.Disposable", "ESNext.AsyncIterable"],
        types: [],
        strict: true,
        skipLibCheck: false,
        noEmit: true
      },
      files: ["types.ts"]
    })
  )
  const { code, output } = await run([program("tsc", "typescript"), "-p", app], { cwd: app })
  return { checked: entries.length, problems: code === 0 ? [] : output.trim().split("\n") }
}

/** Runs each program of the package with --help, and once more as if by a Node that is too old: it has to say so. */
export const checkPrograms = async (app: string, name: string): Promise<Report> => {
  const folder = path.join(app, "node_modules", name)
  const problems: Array<string> = []
  const programs = Object.entries(manifestOf(folder).bin ?? {})
  const pretend = path.join(app, "old-node.mjs")
  fs.writeFileSync(
    pretend,
    `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "18.0.0" } })\n` +
      `Object.defineProperty(process, "version", { value: "v18.0.0" })\n`
  )
  for (const [program, file] of programs) {
    const script = path.join(folder, file)
    const help = await run([script, "--help"], { cwd: app })
    if (help.code !== 0 || !help.output.includes(program)) {
      problems.push(`${program} --help exited with ${help.code}:\n${help.output}`)
    }
    const old = await run(["--import", pretend, script, "--help"], { cwd: app })
    if (old.code === 0 || !/needs Node/.test(old.output)) {
      problems.push(
        `${program} does not say that it needs another Node than 18, it exited with ${old.code}:\n${old.output}`
      )
    }
  }
  return { checked: programs.length, problems }
}

/** Asks publint and attw about a tarball. */
export const checkShape = async (tarball: string): Promise<Report> => {
  const answers = [
    await run([program("publint"), "run", tarball, "--strict"]),
    await run([program("attw", "@arethetypeswrong/cli"), tarball, "--profile", "esm-only", "--no-emoji"])
  ]
  return {
    checked: answers.length,
    problems: answers.flatMap(({ code, output }) => code === 0 ? [] : [output])
  }
}
