/**
 * Templates that give the same keys as a function did: found by looking for the arguments' own values in the keys.
 *
 * @since 0.1.0
 */
import { canonical, fill } from "./keys.ts"

/** The arguments of a call as the model wrote them, and the keys that it had. @internal */
export interface Keyed {
  readonly args: { readonly [name: string]: unknown }
  readonly keys: ReadonlyArray<string>
}

/** How far the values of arguments are looked at, and how many templates are tried for one key. */
const maxDepth = 4
const maxLeaves = 200
const maxCandidates = 200

/** Every value in the arguments that a template can name, with its text; the longest first. */
const leavesOf = (args: Keyed["args"]): ReadonlyArray<readonly [path: string, text: string]> => {
  const leaves: Array<readonly [string, string]> = []
  const walk = (value: unknown, path: string, depth: number): void => {
    if (leaves.length >= maxLeaves) return
    if (path !== "") {
      const text = typeof value === "string" ? value : canonical(value)
      // Names with dots or braces may mean something else in a template.
      if (text !== "" && fill(`{${path}}`, args) === text) leaves.push([path, text])
    }
    if (typeof value !== "object" || value === null || depth === 0) return
    for (const name of Object.keys(value)) {
      walk((value as any)[name], path === "" ? name : `${path}.${name}`, depth - 1)
    }
  }
  walk(args, "", maxDepth)
  return leaves.sort(([, a], [, b]) => b.length - a.length)
}

/** Templates that give this key for these arguments, those that take more from the arguments first. */
const candidatesOf = (key: string, args: Keyed["args"]): ReadonlyArray<string> => {
  const leaves = leavesOf(args)
  const found: Array<string> = []
  const go = (at: number, template: string): void => {
    if (found.length >= maxCandidates) return
    if (at === key.length) {
      if (template !== "" && fill(template, args) === key) found.push(template)
      return
    }
    for (const [path, text] of leaves) {
      if (key.startsWith(text, at)) go(at + text.length, `${template}{${path}}`)
    }
    go(at + 1, template + key[at]!)
  }
  go(0, "")
  return found
}

/**
 * Templates that give each of the calls exactly its own keys, or nothing where there are none.
 *
 * @internal
 */
export const find = (calls: ReadonlyArray<Keyed>): ReadonlyArray<string> | undefined => {
  const most = calls.reduce<Keyed | undefined>(
    (most, call) => most === undefined || call.keys.length > most.keys.length ? call : most,
    undefined
  )
  if (most === undefined) return []
  const templates: Array<string> = []
  for (const key of most.keys) {
    const template = candidatesOf(key, most.args).find((template) =>
      calls.every(({ args, keys }) => keys.includes(fill(template, args)))
    )
    if (template === undefined) return undefined
    if (!templates.includes(template)) templates.push(template)
  }
  const complete = calls.every(({ args, keys }) => {
    const filled = new Set(templates.map((template) => fill(template, args)))
    return keys.every((key) => filled.has(key))
  })
  return complete ? templates : undefined
}

/**
 * The keys as templates without anything to fill in, each key once; or nothing where one of them would be read as a template.
 *
 * @internal
 */
export const literal = (keys: ReadonlyArray<string>): ReadonlyArray<string> | undefined =>
  keys.every((key) => key !== "" && fill(key, {}) === key) ? [...new Set(keys)] : undefined
