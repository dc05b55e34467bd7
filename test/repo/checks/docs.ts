/**
 * Each public module has a header, and each of its exports a doc comment with its category, its age and its stability.
 */
import * as path from "node:path/posix"
import { type ESTree, parseSync } from "rolldown/utils"
import type { Files, Report } from "./report.ts"

const needed = ["@category", "@since", "@stability"]

/** Re-exports what other modules document. */
const isBarrel = (file: string) => /(^|\/)index\.ts$/.test(file)

/** The files that can be reached from outside: the entries, and what they re-export. For all others a header is enough. */
export const publicOf = (files: Files): ReadonlySet<string> => {
  const found = new Set(
    [...files.keys()].filter((file) => /^([A-Z]\w*|index|wire\/index|testing\/index)\.ts$/.test(file))
  )
  for (const file of found) {
    for (const node of parse(file, files.get(file)!).program.body) {
      if (node.type !== "ExportNamedDeclaration" && node.type !== "ExportAllDeclaration") continue
      if (!node.source?.value.startsWith(".")) continue
      const to = path.join(path.dirname(file), node.source.value)
      if (files.has(to) && !to.startsWith("internal/")) found.add(to)
    }
  }
  return found
}

const parse = (file: string, text: string) => {
  const result = parseSync(file, text)
  if (result.errors.length > 0) throw new Error(`${file} could not be parsed: ${result.errors[0]!.message}`)
  return result
}

export const checkDocs = (files: Files): Report => {
  const problems: Array<string> = []
  const open = publicOf(files)
  let checked = 0
  for (const [file, text] of files) {
    const { comments, program } = parse(file, text)
    const docs = comments.filter(({ type, value }) => type === "Block" && value.startsWith("*"))
    const header = docs.find(({ start }) => text.slice(0, start).replace(/^#!.*/, "").trim() === "")
    // It stands alone: a comment right above the first export is of that export.
    const next = program.body[0]
    const taken = header !== undefined && next !== undefined && next.type.startsWith("Export") && !isBarrel(file) &&
      /^\s*$/.test(text.slice(header.end, next.start)) && !/\n\s*\n/.test(text.slice(header.end, next.start))
    checked++
    if (header === undefined || taken) problems.push(`${file} has no header`)
    else if (open.has(file) && !header.value.includes("@since")) problems.push(`the header of ${file} has no @since`)
    if (!open.has(file)) continue

    const documented = new Set<string>()
    const spoken = new Map<string, boolean>()
    for (const node of program.body) {
      if (node.type !== "ExportNamedDeclaration" && node.type !== "ExportDefaultDeclaration") continue
      if (node.type === "ExportNamedDeclaration" && node.source !== null && isBarrel(file)) continue
      const names = namesOf(node, text)
      const doc = docs.findLast(({ end }) => end <= node.start && text.slice(end, node.start).trim() === "")
      for (const name of names) {
        checked++
        if (doc === undefined) {
          // Later overloads of a function are documented by its first.
          if (!documented.has(name)) problems.push(`${file}: ${name} has no doc comment`)
          continue
        }
        documented.add(name)
        if (/@internal\b/.test(doc.value)) continue
        const absent = needed.filter((tag) => !new RegExp(`${tag}[ \\t]+\\S`).test(doc.value))
        if (absent.length > 0) problems.push(`${file}: the doc comment of ${name} has no ${absent.join(", no ")}`)
        // A schema and its type share a name; one of them says what it is.
        spoken.set(name, spoken.get(name) === true || /^\*\s*\*?\s*[A-Z`{"]/.test(doc.value))
      }
    }
    for (const [name, says] of spoken) {
      if (!says) problems.push(`${file}: the doc comment of ${name} says nothing`)
    }
  }
  return { checked, problems }
}

const namesOf = (node: ESTree.ExportNamedDeclaration | ESTree.ExportDefaultDeclaration, text: string) => {
  if (node.type === "ExportDefaultDeclaration") return ["default"]
  const { declaration, specifiers } = node
  if (declaration === null) return specifiers.map(({ exported }) => text.slice(exported.start, exported.end))
  if ("declarations" in declaration) {
    return declaration.declarations.map(({ id }) => text.slice(id.start, id.end).split(":")[0]!)
  }
  return "id" in declaration && declaration.id !== null ? [text.slice(declaration.id.start, declaration.id.end)] : []
}
