/**
 * Who may import whom. The same map, in words, is the header of `src/index.ts`.
 */
import * as path from "node:path/posix"
import { parseSync } from "rolldown/utils"
import type { Files, Report } from "./report.ts"

interface Layer {
  readonly name: string
  /** May modules of this layer import each other? Never in a circle. */
  readonly siblings: boolean
  /** May it run effects, or is it data and decisions only? */
  readonly effects: boolean
  /** Modules by name; a folder, with everything in it, ends in "/". */
  readonly modules: ReadonlyArray<string>
}

/** Lowest first: a module imports from lower layers alone, types included. */
const layers: ReadonlyArray<Layer> = [
  {
    name: "words",
    siblings: true,
    effects: false,
    modules: ["ToolCall", "Outcome", "ToolPolicy", "TurnContext", "TurnError", "TurnEvent"]
  },
  { name: "pure", siblings: false, effects: false, modules: ["TurnPlan", "ResultBudget", "TurnReport", "wire/"] },
  { name: "store", siblings: false, effects: true, modules: ["TurnStore"] },
  {
    name: "capabilities",
    siblings: false,
    effects: true,
    modules: [
      "Siblings",
      "Handler",
      "Backend",
      "ToolDurations",
      "IdempotencyKey",
      "IdempotencyStore",
      "TurnJournal",
      "ParkedTurns",
      "Approval",
      "TurnMiddleware",
      "ArtifactStore"
    ]
  },
  { name: "lists", siblings: true, effects: true, modules: ["Coalescer", "BatchTool"] },
  { name: "turn", siblings: false, effects: true, modules: ["Turn"] },
  {
    name: "drivers",
    siblings: false,
    effects: true,
    modules: ["Agent", "ProviderTurn", "TurnTelemetry", "TurnInsights"]
  },
  { name: "hosts", siblings: false, effects: true, modules: ["index", "testing/", "cli/"] }
]

/** These may import their siblings all the same. */
const mayImportSiblings = new Map([["cli/", ["index", "testing/"]]])

/** What data and decisions never import as a value. Add to it when a new part of the runtime is first met. */
const runtime = new RegExp(
  "^effect$|^effect/(ai|cli|http|testing)$|^node:|^@effect/platform|" +
    "^effect/(Effect|Layer|Fiber|Scope|Clock|Random|Stream|Queue|PubSub|Semaphore|PartitionedSemaphore|Deferred|Latch|Ref|" +
    "Runtime|ManagedRuntime|Scheduler|Schedule|Console|FiberSet|FiberMap|FiberHandle|Channel|Sink|Cache|RequestResolver)$"
)

/** The module that a file belongs to: `internal/turnPlan/graph.ts` to `TurnPlan`, `wire/X.ts` to `wire/`. */
const ownerOf = (file: string): string => {
  const [head, next] = file.replace(/\.ts$/, "").split("/")
  if (head === "internal") return isFolder(`${next}/`) ? `${next}/` : next![0]!.toUpperCase() + next!.slice(1)
  return next === undefined ? head! : `${head}/`
}

const isFolder = (name: string) => layers.some(({ modules }) => modules.includes(name))

const rankOf = (file: string) => layers.findIndex(({ modules }) => modules.includes(ownerOf(file)))

interface Import {
  readonly source: string
  readonly typeOnly: boolean
}

/** The imports of a source, also those of `export ... from` and `import()`. An unread file must not pass. */
const importsOf = (file: string, text: string): ReadonlyArray<Import> => {
  const { errors, module, program } = parseSync(file, text)
  if (errors.length > 0) throw new Error(`${file} could not be parsed: ${errors[0]!.message}`)
  const found: Array<Import> = program.body.flatMap((node) =>
    (node.type === "ImportDeclaration" || node.type === "ExportNamedDeclaration" ||
        node.type === "ExportAllDeclaration") &&
      node.source !== null
      ? [{
        source: node.source.value,
        typeOnly: (node.type === "ImportDeclaration" ? node.importKind : node.exportKind) === "type"
      }]
      : []
  )
  for (const { moduleRequest } of module.dynamicImports) {
    const source = /^["'`]([^"'`$]+)["'`]$/.exec(text.slice(moduleRequest.start, moduleRequest.end))
    if (source !== null) found.push({ source: source[1]!, typeOnly: false })
  }
  return found
}

/** Checks every file of `src/`: it is in a layer, and it imports what that layer may. */
export const checkLayers = (files: Files): Report => {
  const problems: Array<string> = []
  const edges = new Map<string, Set<string>>() // inside a layer
  for (const [file, text] of files) {
    const here = rankOf(file)
    if (here === -1) {
      problems.push(`${file} is in no layer: add its module to test/repo/checks/layers.ts`)
      continue
    }
    const layer = layers[here]!
    const owner = ownerOf(file)
    for (const { source, typeOnly } of importsOf(file, text)) {
      if (!source.startsWith(".")) {
        if (!layer.effects && !typeOnly && runtime.test(source)) {
          problems.push(`${file} is in the layer "${layer.name}", which runs nothing, and imports ${source}`)
        }
        continue
      }
      const to = path.join(path.dirname(file), source)
      const other = ownerOf(to)
      if (other === owner) continue
      const there = rankOf(to)
      if (there === here) edges.set(owner, (edges.get(owner) ?? new Set()).add(other))
      if (there === -1 || !files.has(to)) problems.push(`${file} imports ${to}, which is in no layer`)
      else if (to.startsWith("internal/")) problems.push(`${file} reaches into ${to}, which belongs to ${other}`)
      else if (there > here) problems.push(`${file} is in the layer "${layer.name}" and imports up: ${to}`)
      else if (there === here && !layer.siblings && !mayImportSiblings.get(owner)?.includes(other)) {
        problems.push(`${file} imports its sibling ${to}`)
      }
    }
  }
  problems.push(...circles(edges).map((circle) => `modules import each other in a circle: ${circle.join(" -> ")}`))
  return { checked: files.size, problems }
}

const circles = (edges: ReadonlyMap<string, ReadonlySet<string>>): ReadonlyArray<ReadonlyArray<string>> => {
  const found: Array<ReadonlyArray<string>> = []
  const done = new Set<string>()
  const walk = (module: string, path: ReadonlyArray<string>): void => {
    if (path.includes(module)) {
      found.push([...path.slice(path.indexOf(module)), module])
      return
    }
    if (done.has(module)) return
    for (const next of edges.get(module) ?? []) walk(next, [...path, module])
    done.add(module)
  }
  for (const module of edges.keys()) walk(module, [])
  return found
}

/**
 * Checks the header of `src/index.ts`: one item for each layer, lowest first, `- **name** ...`, that names in backticks the
 * modules of that layer which exist, and no others. And the barrel exports each module that stands in `src/` itself.
 */
export const checkMap = (files: Files): Report => {
  const index = files.get("index.ts")
  if (index === undefined) return { checked: 0, problems: ["there is no src/index.ts"] }
  const problems: Array<string> = []
  const exist = new Set([...files.keys()].map(ownerOf))
  const header = /^\/\*\*([\s\S]*?)\*\//.exec(index)?.[1]!.replace(/^[ \t]*\*[ \t]?/gm, "") ?? ""
  const items = new Map(
    [...header.matchAll(/^- \*\*(\w+)\*\*([\s\S]*?)(?=^- |^\s*$|(?![\s\S]))/gm)]
      .map(([, name, text]) => [name!, [...text!.matchAll(/`([\w/]+)`/g)].map(([, module]) => module!)])
  )
  const expected = layers.map(({ modules, name }) => [name, modules.filter((module) => exist.has(module))] as const)
    .filter(([, modules]) => modules.length > 0)
  if ([...items.keys()].join() !== expected.map(([name]) => name).join()) {
    problems.push(
      `the header of src/index.ts lists the layers ${[...items.keys()].join(", ") || "(none)"}, expected ` +
        expected.map(([name]) => name).join(", ")
    )
  }
  for (const [name, modules] of expected) {
    const listed = items.get(name) ?? []
    if ([...listed].sort().join() !== [...modules].sort().join()) {
      problems.push(
        `the header of src/index.ts lists for "${name}" ${listed.join(", ")}, expected ${modules.join(", ")}`
      )
    }
  }
  const exported = [...index.matchAll(/^export \* as (\w+) from "\.\/(\w+)\.ts"$/gm)].map(([, name, module]) => {
    if (name !== module) problems.push(`src/index.ts exports ${module} under another name, ${name}`)
    return module!
  })
  for (const module of exist) {
    if (module === "index" || module.endsWith("/")) continue
    if (!exported.includes(module)) problems.push(`src/index.ts does not export ${module}`)
  }
  return { checked: items.size + exported.length, problems }
}
