/** A plan as the source of a Mermaid flowchart. Names and keys come from models and tools, so all text is quoted and escaped. */
import type * as TurnPlan from "../../TurnPlan.ts"

/** What a verdict looks like. Colours are given for fill, border and text, so that they read on light and dark pages. */
const styles = {
  run: "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
  held: "fill:#fff8c5,stroke:#9a6700,color:#1f2328,stroke-dasharray:4 3",
  duplicate: "fill:#ddf4ff,stroke:#0969da,color:#1f2328,stroke-dasharray:2 2",
  deferred: "fill:#fff1e5,stroke:#bc4c00,color:#1f2328,stroke-dasharray:4 3",
  refused: "fill:#ffebe9,stroke:#cf222e,color:#1f2328",
  provider_executed: "fill:#eaeef2,stroke:#57606a,color:#1f2328",
  answered: "fill:#eaeef2,stroke:#57606a,color:#1f2328"
} as const satisfies Record<TurnPlan.Verdict, string>

export const flowchart = (plan: TurnPlan.TurnPlan): string => {
  const lines = ["flowchart LR"]
  if (plan.calls.length === 0) lines.push('  none["no calls"]')
  const placed = new Map<number, number>()
  for (const [i, { calls }] of plan.requests.entries()) {
    for (const position of calls) if (!placed.has(position)) placed.set(position, i)
  }
  for (const call of plan.calls) if (!placed.has(call.position)) lines.push(`  ${node(call)}`)
  const byPosition = new Map(plan.calls.map((call) => [call.position, call]))
  const shared: Array<string> = []
  for (const [i, { calls, into, items }] of plan.requests.entries()) {
    const title = `one request to ${into} for ${items} ${items === 1 ? "item" : "items"}`
    lines.push(`  subgraph r${i}[${quoted(title)}]`)
    for (const position of calls) {
      const call = byPosition.get(position)
      if (call === undefined) continue
      // A call stands in one box alone; the further requests that are for it are drawn as lines.
      if (placed.get(position) === i) lines.push(`    ${node(call)}`)
      else shared.push(`  c${position} -.- r${i}`)
    }
    lines.push("  end")
  }
  const nameOf = (end: number | string): string => typeof end === "number" ? `c${end}` : end
  const hubs = new Set(plan.edges.flatMap(({ from, to }) => [from, to]).filter((end) => typeof end === "string"))
  for (const hub of hubs) lines.push(`  ${hub}((" "))`)
  for (const { from, key, to } of plan.edges) {
    // A hub is there for many keys: those stand on the arrows that leave it.
    const name = typeof to === "string" ? "" : `|${quoted(key)}|`
    lines.push(`  ${nameOf(from)} -->${name} ${nameOf(to)}`)
  }
  for (const { duplicateOf, position } of plan.calls) {
    if (duplicateOf !== undefined) lines.push(`  c${duplicateOf} -.->|${quoted("answers both")}| c${position}`)
  }
  lines.push(...shared)
  for (const [verdict, style] of Object.entries(styles)) {
    const members = plan.calls.filter((call) => call.verdict === verdict).map((call) => `c${call.position}`)
    if (members.length > 0) lines.push(`  classDef ${verdict} ${style}`, `  class ${members.join(",")} ${verdict}`)
  }
  return lines.join("\n")
}

/** Reads are round, writes have corners. */
const node = (call: TurnPlan.PlannedCall): string => {
  const text = quoted(`#${call.position} ${call.name}`, ...below(call))
  return call.access === "read" ? `c${call.position}([${text}])` : `c${call.position}[${text}]`
}

const below = (call: TurnPlan.PlannedCall): ReadonlyArray<string> => {
  switch (call.verdict) {
    case "run":
      return [
        `${call.access}s ${reach(call)}`,
        ...(call.backend === undefined ? [] : [`on ${call.backend}`])
      ]
    case "held":
      return ["held: waits for approval"]
    case "duplicate":
      return [`duplicate of #${call.duplicateOf}`]
    case "provider_executed":
      return ["run by the provider"]
    case "answered":
      return ["has its answer already"]
    case "deferred":
    case "refused":
      return [`${call.verdict}: ${call.code}`]
  }
}

const reach = ({ keys, unresolved }: TurnPlan.PlannedCall): string =>
  unresolved === true
    ? "what a result will say"
    : keys === undefined
    ? "anything"
    : keys.length === 0
    ? "nothing shared"
    : keys.join(", ")

/** The longest line of a label. */
const longest = 80

const quoted = (...lines: ReadonlyArray<string>): string =>
  `"${lines.map((line) => escaped(line === "" ? "(empty)" : line)).join("<br/>")}"`

/**
 * Text as Mermaid shows it and does not read it. Entities stand for all but letters, digits, blanks and a few signs that mean nothing
 * anywhere; at the beginning for those too, since Markdown has lists.
 */
const escaped = (line: string): string => {
  const characters = Array.from(line.toWellFormed())
  const shown = characters.length > longest ? [...characters.slice(0, longest - 1), "…"] : characters
  return shown.map((character, i) =>
    /[\p{L}\p{M}\p{N} _/,…]/u.test(character) || (i > 0 && character === "-")
      ? character
      : /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u.test(character)
      ? "�"
      : `#${character.codePointAt(0)};`
  ).join("")
}
