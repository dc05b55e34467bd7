/**
 * What may be in the repository at all: where files stand, what they say, what the lock file names.
 */
import type { Files, Report } from "./report.ts"

const topLevel =
  /^(src|test|examples|package\.json|package-lock\.json|tsconfig\.json|vitest\.config\.ts|README\.md|LICENSE|CHANGELOG\.md|\..+)$/

/** Nothing but the agreed names at the top. */
export const checkTopLevel = (paths: ReadonlyArray<string>): Report => ({
  checked: paths.length,
  problems: [...new Set(paths.map((file) => file.split("/")[0]!))]
    .filter((name) => !topLevel.test(name))
    .map((name) => `${name} may not stand at the top level`)
})

/** Half-done work, silenced checks, and places that exist on one machine only. Written so as not to find itself. */
const unwanted: ReadonlyArray<readonly [RegExp, string]> = [
  [/\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b/, "half-done work"],
  [/\b(?:for no[w]|not implemente[d]|placeholder implementatio[n])\b/i, "half-done work"],
  [/\b(?:it|test|describe)(?:\.\w+)*\.(?:ski[p]|onl[y]|tod[o]|fail[s])\b/, "a test that does not run"],
  [/@ts-(?:ignor[e]|nochec[k])/, "a silenced check"],
  [/(?:eslint|oxlint)-disabl[e](?!.* -- \S)/, "a silenced check without its reason"],
  [/@ts-expect-erro[r](?!:? *\S)/, "a silenced check without its reason"],
  [/(?<![\w.~}:/-])\/(?:home|root|Users|work)\/\w/, "a path of one machine"]
]

export const checkWords = (files: Files): Report => {
  const problems: Array<string> = []
  for (const [file, text] of files) {
    text.split("\n").forEach((line, i) => {
      for (const [pattern, meaning] of unwanted) {
        const found = pattern.exec(line)
        if (found !== null) problems.push(`${file}:${i + 1} has ${meaning}: ${found[0]}`)
      }
    })
  }
  return { checked: files.size, problems }
}

interface Package {
  readonly version?: string
  readonly resolved?: string
  readonly optionalDependencies?: Record<string, string>
  readonly [group: string]: unknown
}

/** The lock file names no registry, belongs to the manifest, and knows the packages for every platform, not only for one. */
export const checkLock = (lock: string, manifest: string): Report => {
  const { packages } = JSON.parse(lock) as { readonly packages: Record<string, Package> }
  const { "": own, ...installed } = packages
  const wanted = JSON.parse(manifest) as Package
  const problems = ["version", "dependencies", "devDependencies", "peerDependencies", "optionalDependencies", "engines"]
    .filter((group) => !sameEntries(own?.[group], wanted[group]))
    .map((group) => `the lock file and package.json differ in ${group}: run npm install`)
  for (const [path, { optionalDependencies, resolved }] of Object.entries(installed)) {
    if (resolved !== undefined && /^\w+:\/\//.test(resolved)) problems.push(`${path} names a registry: ${resolved}`)
    for (const name of Object.keys(optionalDependencies ?? {})) {
      if (!Object.keys(installed).some((other) => other.endsWith(`node_modules/${name}`))) {
        problems.push(`${path} may need ${name}, which the lock file does not list: npm ci would refuse it`)
      }
    }
  }
  return { checked: Object.keys(installed).length, problems }
}

const sameEntries = (a: unknown, b: unknown): boolean => {
  const sorted = (value: unknown) =>
    JSON.stringify(typeof value === "object" && value !== null ? Object.entries(value).sort() : value)
  return sorted(a) === sorted(b)
}
