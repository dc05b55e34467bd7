/**
 * The faults that are planted in a source, and the source with all of them in it, each behind a switch: one build serves every
 * mutant. The sources stay as they are; types are not looked at.
 */
import { type ESTree, parseSync } from "rolldown/utils"

export interface Mutant {
  readonly file: string
  /** The function that it stands in, by its path of names. */
  readonly where: string
  /** The text that is replaced, with white space folded, and what takes its place: `(nothing)` when it is left out. */
  readonly from: string
  readonly to: string
  /** Which one of those that read the same in the same function, from 1. */
  readonly nth: number
  readonly line: number
}

/** What identifies a mutant while the code around it changes. */
export const keyOf = ({ file, from, nth, to, where }: Omit<Mutant, "line">): string =>
  [file, where, from, to, nth].join(" | ")

/** The name that instrumented sources call: `name(id)` is whether this mutant is the active one. */
export const switchName = "__mutant"

type Node = { readonly type: string; readonly start: number; readonly end: number } & Record<string, any>

interface Place {
  readonly where: string
  /** Inside an optional chain, on its way down: this node alone cannot be put behind a switch. */
  readonly inChain: boolean
  /** The test of an `if`, a loop or a `?:`. */
  readonly isTest: boolean
  /** Nothing of the function comes after this statement. */
  readonly isLast: boolean
}

interface Planted {
  readonly start: number
  readonly end: number
  readonly kind: "expression" | "statement"
  /** What stands there instead, as source. */
  readonly text: string
  readonly mutant: Omit<Mutant, "nth">
}

const removed = "(nothing)"

const operators: Record<string, ReadonlyArray<string>> = {
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "===": ["!=="],
  "!==": ["==="],
  "==": ["!="],
  "!=": ["=="],
  "+": ["-"],
  "-": ["+"],
  "*": ["/"],
  "/": ["*"],
  "%": ["*"],
  ">>": ["<<"],
  ">>>": ["<<"],
  "&&": ["||"],
  "||": ["&&"],
  "++": ["--"],
  "--": ["++"],
  "+=": ["-="],
  "-=": ["+="],
  "??=": ["="]
}

/**
 * Methods of arrays, strings and `Math`, and what takes their place. At which end of a list something is put is left alone: most
 * lists here are sets and piles of work.
 */
const methods = new Map(Object.entries({
  some: "every",
  every: "some",
  shift: "pop",
  startsWith: "endsWith",
  endsWith: "startsWith",
  min: "max",
  max: "min"
}))

/** Methods whose result is of the same kind as what they are called on: the call is left out. */
const leftOut = new Set(["filter", "slice", "sort", "reverse", "trim", "toLowerCase"])

/** The only parts of TypeScript in which values stand. */
const valuesInTypeScript = new Set([
  "TSAsExpression",
  "TSNonNullExpression",
  "TSSatisfiesExpression",
  "TSInstantiationExpression"
])

const isText = (node: Node): boolean =>
  node.type === "TemplateLiteral" || (node.type === "Literal" && typeof node["value"] === "string") ||
  (node.type === "ParenthesizedExpression" && isText(node["expression"])) ||
  (node.type === "ConditionalExpression" && (isText(node["consequent"]) || isText(node["alternate"]))) ||
  (node.type === "BinaryExpression" && node["operator"] === "+" && (isText(node["left"]) || isText(node["right"])))

/** Whether one of a node's own mutants turns it round already. */
const negatesItself = (node: Node): boolean =>
  (node.type === "BinaryExpression" && /[<>=]/.test(node["operator"])) ||
  (node.type === "UnaryExpression" && node["operator"] === "!") ||
  (node.type === "Literal" && typeof node["value"] === "boolean")

const isNothing = (value: Node | null): boolean =>
  value === null || (value.type === "Identifier" && value["name"] === "undefined")

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as { type?: unknown }).type === "string"

const parse = (file: string, source: string): ESTree.Program => {
  const { errors, program } = parseSync(file, source)
  if (errors.length > 0) throw new Error(`${file} could not be parsed: ${errors[0]!.message}`)
  return program
}

const fold = (part: string): string => part.replace(/\s+/g, " ").trim()
const head = (part: string, most: number): string => part.length <= most ? part : `${part.slice(0, most)}…`
const tail = (part: string, most: number): string => part.length <= most ? part : `…${part.slice(-most)}`

const plant = (file: string, source: string) => {
  const planted: Array<Planted> = []
  /** Where expressions stand as statements. */
  const statements: Array<Node> = []
  const text = (node: Node) => source.slice(node.start, node.end)
  const add = (
    { end, start }: Node,
    { where }: Place,
    kind: Planted["kind"],
    instead: string,
    from: string,
    to: string
  ) => {
    const line = source.slice(0, start).split("\n").length
    planted.push({ start, end, kind, text: instead, mutant: { file, where, from, to, line } })
  }
  const replace = (node: Node, place: Place, to: string) =>
    add(node, place, "expression", to, head(fold(text(node)), 100), head(fold(to), 100))
  const remove = (node: Node, place: Place) => add(node, place, "statement", "", head(fold(text(node)), 100), removed)

  /** Replaces the operator between two operands. */
  const reoperate = (node: Node, place: Place, left: Node, right: Node, operator: string, other: string) => {
    const at = left.end + source.slice(left.end, right.start).indexOf(operator)
    const rest = source.slice(at + operator.length, node.end)
    const around = (middle: string) =>
      `${tail(fold(source.slice(node.start, at)), 50)} ${middle} ${head(fold(rest), 50)}`
    add(node, place, "expression", source.slice(node.start, at) + other + rest, around(operator), around(other))
  }

  const mutate = (node: Node, place: Place): void => {
    switch (node.type) {
      case "BinaryExpression":
      case "LogicalExpression": {
        const { left, operator, right } = node as { left: Node; right: Node; operator: string } & Node
        if (operator === "??") {
          replace(node, place, text(left))
          replace(node, place, text(right))
          return
        }
        if (operator === "+" && isText(node)) return
        for (const other of operators[operator] ?? []) {
          reoperate(node, place, left, right, operator, other)
        }
        return
      }
      case "AssignmentExpression": {
        const { left, operator, right } = node as { left: Node; right: Node; operator: string } & Node
        if (operator === "+=" && isText(right)) return
        for (const other of operators[operator] ?? []) {
          reoperate(node, place, left, right, operator, other)
        }
        return
      }
      case "UpdateExpression": {
        const other = operators[node["operator"]]![0]!
        const argument = text(node["argument"])
        replace(node, place, node["prefix"] === true ? other + argument : argument + other)
        return
      }
      case "UnaryExpression":
        if (node["operator"] === "!") replace(node, place, text(node["argument"]))
        return
      case "Literal":
        if (typeof node["value"] === "boolean") replace(node, place, String(!node["value"]))
        return
      case "ChainExpression":
        for (const link of linksOf(node["expression"])) {
          const head: Node = link["object"] ?? link["callee"]
          const at = head.end + source.slice(head.end, link.end).indexOf("?.")
          const rest = source.slice(at + 2, node.end)
          replace(node, place, source.slice(node.start, at) + (/^[[(]/.test(rest) ? rest : `.${rest}`))
        }
        return
      case "CallExpression": {
        const callee: Node = node["callee"]
        if (place.inChain || callee.type !== "MemberExpression" || callee["computed"] === true) return
        const { object, property } = callee as { object: Node; property: Node } & Node
        const name: string = property["name"]
        const other = /^(min|max)$/.test(name) && object["name"] !== "Math" ? undefined : methods.get(name)
        if (other !== undefined) {
          replace(node, place, source.slice(node.start, property.start) + other + source.slice(property.end, node.end))
        } else if (leftOut.has(name)) replace(node, place, text(object))
        return
      }
      case "ExpressionStatement":
        statements.push(node)
        if (node["expression"].type === "CallExpression" && node["expression"].callee.type === "Super") return
        remove(node, place)
        return
      case "ReturnStatement":
        // Where a function ends with nothing anyway, leaving that out changes nothing.
        if (place.isLast && isNothing(node["argument"])) return
        remove(node, place)
        return
      case "ThrowStatement":
      case "BreakStatement":
      case "ContinueStatement":
        remove(node, place)
        return
      case "BlockStatement":
        // One statement alone is removed by itself.
        if (node["body"].length > 1) add(node, place, "statement", "", head(fold(text(node)), 100), "{}")
    }
  }

  const linksOf = (node: Node): ReadonlyArray<Node> => {
    const next: Node | undefined = node["object"] ?? node["callee"] ??
      (valuesInTypeScript.has(node.type) ? node["expression"] : undefined)
    if (next === undefined) return []
    return [...linksOf(next), ...(node["optional"] === true ? [node] : [])]
  }

  const nameOf = (node: Node, parent: Node | undefined): string | undefined => {
    const named: Node | undefined = node["id"] ?? parent?.["id"] ?? parent?.["key"] ?? undefined
    return named === undefined ? undefined : named["name"] ?? text(named)
  }

  const walk = (node: Node, place: Place, parent: Node | undefined): void => {
    if (node.type.startsWith("TS")) {
      if (valuesInTypeScript.has(node.type)) walk(node["expression"], place, node)
      return
    }
    const isFunction = /Function/.test(node.type) || node.type === "ClassDeclaration"
    const name = isFunction ? nameOf(node, parent) : undefined
    const where = name === undefined ? place.where : place.where === "" ? name : `${place.where}.${name}`
    const here: Place = { ...place, where }
    mutate(node, here)
    if (here.isTest && !negatesItself(node)) replace(node, here, `!(${text(node)})`)
    for (const [member, value] of Object.entries(node)) {
      for (const child of Array.isArray(value) ? value : [value]) {
        if (!isNode(child)) continue
        // A callee and a target keep their form.
        if (node.type === "AssignmentExpression" && member === "left" && child.type !== "MemberExpression") continue
        if (node.type === "UnaryExpression" && node["operator"] === "delete" && child.type === "ChainExpression") {
          continue
        }
        const goesDown = member === "object" || member === "callee" || valuesInTypeScript.has(node.type)
        walk(child, {
          where,
          inChain: node.type === "ChainExpression" || (goesDown && here.inChain),
          isTest: member === "test" && node.type !== "SwitchCase",
          isLast: /^(If|Try)Statement$|^CatchClause$/.test(node.type) ? here.isLast : node.type === "BlockStatement" &&
            (here.isLast || /Function/.test(parent?.type ?? "")) && child === node["body"].at(-1)
        }, node)
      }
    }
  }
  for (const node of parse(file, source).body) {
    walk(node as unknown as Node, { where: "", inChain: false, isTest: false, isLast: false }, undefined)
  }
  return { planted, statements }
}

/** The mutants of a source, in the order of the text. */
export const mutantsOf = (file: string, source: string): ReadonlyArray<Mutant> => {
  const seen = new Map<string, number>()
  return plant(file, source).planted.map(({ mutant }) => {
    const same = keyOf({ ...mutant, nth: 0 })
    const nth = (seen.get(same) ?? 0) + 1
    seen.set(same, nth)
    return { ...mutant, nth }
  })
}

/** The source with all its mutants, the first of which has the number `first`; only those that are `wanted` are put in. */
export const instrument = (
  file: string,
  source: string,
  first: number,
  wanted: (id: number) => boolean
): string => {
  interface Spot {
    readonly start: number
    readonly end: number
    readonly kind: Planted["kind"]
    readonly options: Array<readonly [id: number, text: string]>
  }
  const spots = new Map<string, Spot>()
  const spotAt = (start: number, end: number, kind: Planted["kind"]): Spot => {
    const key = `${start}-${end}-${kind}`
    let spot = spots.get(key)
    if (spot === undefined) spots.set(key, spot = { start, end, kind, options: [] })
    return spot
  }
  const { planted, statements } = plant(file, source)
  planted.forEach(({ end, kind, start, text }, i) => {
    if (wanted(first + i)) spotAt(start, end, kind).options.push([first + i, text])
  })
  // One that came to begin with a bracket would be taken for arguments of what stands above it.
  for (const { end, start } of statements) spotAt(start, end, "statement")
  // Outer ones first; of two with the same reach, the statement holds the expression.
  const ordered = [...spots.values()].sort((a, b) =>
    a.start - b.start || b.end - a.end || (a.kind === "statement" ? -1 : 1)
  )
  const build = (from: number, to: number, inside: ReadonlyArray<Spot>): string => {
    let out = ""
    let at = from
    for (let i = 0; i < inside.length;) {
      const spot = inside[i]!
      let next = i + 1
      while (next < inside.length && inside[next]!.start < spot.end) next++
      const original = build(spot.start, spot.end, inside.slice(i + 1, next))
      out += source.slice(at, spot.start)
      if (spot.kind === "statement") {
        const unless = spot.options.map(([id]) => `if (!${switchName}(${id})) `).join("")
        out += `{ ${unless}{ ${original}\n} }`
      } else {
        const cases = spot.options.map(([id, text]) => `${switchName}(${id}) ? (${text}) : `).join("")
        out += `(${cases}(${original}))`
      }
      at = spot.end
      i = next
    }
    return out + source.slice(at, to)
  }
  return build(0, source.length, ordered)
}
