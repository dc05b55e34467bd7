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

/** How far the values of arguments are looked at, and how long templates of one key are looked for. */
const maxDepth = 4
const maxLeaves = 200
const maxCandidates = 200
const maxLength = 2000
const maxSteps = 50_000

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

const isWord = (text: string | undefined): boolean => text !== undefined && /[\p{L}\p{N}]/u.test(text)

/** Templates that give this key for these arguments: first those of whole words, and those that take more from the arguments. */
const candidatesOf = (key: string, args: Keyed["args"]): ReadonlySet<string> => {
  const leaves = leavesOf(args)
  const found = new Set<string>()
  let steps = 0
  const go = (at: number, template: string, words: boolean, most: number): void => {
    if (found.size >= most || steps++ > maxSteps) return
    if (at === key.length) {
      if (template !== "" && fill(template, args) === key) found.add(template)
      return
    }
    for (const [path, text] of leaves) {
      const end = at + text.length
      const cut = (isWord(key[at - 1]) && isWord(key[at])) || (isWord(key[end - 1]) && isWord(key[end]))
      if (key.startsWith(text, at) && !(words && cut)) go(end, `${template}{${path}}`, words, most)
    }
    go(at + 1, template + key[at]!, words, most)
  }
  if (key.length > maxLength) return new Set(literal([key]))
  go(0, "", true, maxCandidates)
  steps = 0
  go(0, "", false, 2 * maxCandidates)
  return found
}

/** Whether one key is the other, or covers it as a path. */
const overlaps = (a: string, b: string): boolean => {
  const [one, other] = [a.replace(/\/+$/, ""), b.replace(/\/+$/, "")]
  return one === other || one.startsWith(`${other}/`) || other.startsWith(`${one}/`)
}

const meet = (a: ReadonlyArray<string>, b: ReadonlyArray<string>): boolean =>
  a.some((one) => b.some((other) => overlaps(one, other)))

/** The call with the most keys: what no template gives for it, none gives at all. */
const fullest = (calls: ReadonlyArray<Keyed>): Keyed | undefined =>
  calls.reduce<Keyed | undefined>(
    (most, call) => most === undefined || call.keys.length > most.keys.length ? call : most,
    undefined
  )

/** One template for each key of the fullest call, so that every call gets all its keys, and others only where they may be. */
const covering = (
  calls: ReadonlyArray<Keyed>,
  may: (call: Keyed, key: string, template: string) => boolean
): ReadonlyArray<string> | undefined => {
  const most = fullest(calls)
  if (most === undefined) return []
  const templates: Array<string> = []
  for (const key of most.keys) {
    const template = [...candidatesOf(key, most.args)].find((template) =>
      calls.every((call) => {
        const filled = fill(template, call.args)
        return call.keys.includes(filled) || may(call, filled, template)
      })
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
 * Templates that give each of the calls exactly its own keys; or, where an argument may be missing, also one by which no two calls
 * meet that did not meet before. `others` are the keys of the other calls of the turn. Nothing where there are none.
 *
 * @internal
 */
export const find = (
  calls: ReadonlyArray<Keyed>,
  others: ReadonlyArray<ReadonlyArray<string>> = []
): ReadonlyArray<string> | undefined =>
  covering(calls, () => false) ?? covering(calls, (call, key, template) =>
    key !== "" &&
    others.every((keys) => !meet([key], keys) || meet(call.keys, keys)) &&
    calls.every((other) =>
      other === call || !meet([key], [...other.keys, fill(template, other.args)]) || meet(call.keys, other.keys)
    ))

/**
 * The keys as templates without anything to fill in, each key once; or nothing where one of them would be read as a template.
 *
 * @internal
 */
export const literal = (keys: ReadonlyArray<string>): ReadonlyArray<string> | undefined =>
  keys.every((key) => key !== "" && fill(key, {}) === key) ? [...new Set(keys)] : undefined
