/**
 * Mermaid is too large to be a dependency of tests, so its grammar is held to here by a smaller one: each line is one of these forms,
 * with labels of letters, digits, blanks, a few signs and entities. Mermaid's own parser takes whatever fits.
 */
import { assert, describe, it } from "@effect/vitest"
import { TurnPlan } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Schema from "effect/Schema"
import { int, pick, runs } from "./utils/gen.ts"

const label = String.raw`"(?:[\p{L}\p{M}\p{N} _/,…�-]|#\d+;|<br\/>)+"`
const line = new RegExp(
  `^ *(?:${
    [
      String.raw`c\d+\(\[${label}\]\)`,
      String.raw`c\d+\[${label}\]`,
      String.raw`none\["no calls"\]`,
      String.raw`h\d+\(\(" "\)\)`,
      String.raw`subgraph r\d+\[${label}\]`,
      "end",
      String.raw`c\d+ -->\|${label}\| c\d+`,
      String.raw`h\d+ -->\|${label}\| c\d+`,
      String.raw`[ch]\d+ --> h\d+`,
      String.raw`c\d+ -\.->\|${label}\| c\d+`,
      String.raw`c\d+ -\.- r\d+`,
      "classDef [a-z_]+ [a-z0-9:#, -]+",
      String.raw`class c\d+(?:,c\d+)* [a-z_]+`
    ].join("|")
  })$`,
  "u"
)

/** What stands in a chart, read back from it. */
const read = (text: string) => {
  const [head, ...lines] = text.split("\n")
  assert.strictEqual(head, "flowchart LR")
  assert.isAbove(lines.length, 0)
  for (const one of lines) assert.match(one, line)
  const all = (form: RegExp) => lines.flatMap((one) => [...one.matchAll(form)])
  const shown = (escaped: string) => escaped.replace(/#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
  return {
    nodes: new Map(all(/^ *(c\d+)\(?\[(".*")\]\)?$/g).map(([, id, label]) => [id!, shown(label!.slice(1, -1))])),
    hubs: all(/^ {2}(h\d+)\(\(/g).map(([, id]) => id!),
    arrows: all(/^ {2}(\w+) -->(?:\|"(.*)"\|)? (\w+)$/g).map(([, from, key, to]) => ({
      from: from!,
      to: to!,
      key: key === undefined ? undefined : shown(key)
    })),
    duplicates: all(/^ {2}c(\d+) -\.->.* c(\d+)$/g).map(([, from, to]) => [Number(from), Number(to)]),
    classes: new Map(
      all(/^ {2}class (\S+) (\w+)$/g).flatMap(([, ids, name]) => ids!.split(",").map((id) => [id, name!] as const))
    ),
    boxes: all(/^ {2}subgraph (r\d+)/g).map(([, id]) => id!),
    further: all(/^ {2}(c\d+) -\.- (r\d+)$/g).map(([, call, box]) => [call!, box!])
  }
}

const hostile = [
  "end",
  'a"b',
  "`bold`",
  "-->|x| c9",
  '"] --> c9["',
  '%%{init: {"theme": "dark"}}%%',
  "style: #a;",
  'click c0 href "javascript:alert(1)"',
  "- a list",
  "1. a list",
  "<script>alert(1)</script>",
  "#quot;&amp;",
  "two\nlines",
  "\u001b[2J",
  "\u202eturned",
  "\ud800",
  "日本語",
  "",
  "$$x$$",
  "x".repeat(200)
]

const text = Arbitrary.flatMap(
  pick(true, false),
  (nasty) => nasty ? pick(...hostile) : Arbitrary.schema(Schema.String)
)

const someEntry = Arbitrary.all({
  name: Arbitrary.flatMap(pick(true, false), (same) => same ? Arbitrary.Constant("tool") : text),
  id: int(0, 12),
  access: pick("read", "write"),
  keys: Arbitrary.flatMap(
    pick(true, false, true),
    (known) =>
      known
        ? Arbitrary.array(pick("f:/", "f:/a", "f:/b", "k", ...hostile), { maxLength: 2 })
        : Arbitrary.Constant(undefined)
  ),
  backend: Arbitrary.flatMap(pick(false, true), (has) => has ? text : Arbitrary.Constant(undefined)),
  digest: pick("same", undefined),
  state: pick<TurnPlan.Entry["state"]>(
    { _tag: "open", approval: false },
    { _tag: "open", approval: false },
    { _tag: "open", approval: true },
    { _tag: "refused", code: "unknown_tool", message: '"' },
    { _tag: "deferred", code: "placeholder", message: "`" },
    { _tag: "provider" },
    { _tag: "answered" }
  ),
  asks: Arbitrary.flatMap(pick(false, true), (does) =>
    does
      ? Arbitrary.map(
        Arbitrary.array(pick("1", "2", "3"), { minLength: 1, maxLength: 3 }),
        (items) => () => ({ into: 'Desk "7"', size: 2, items })
      )
      : Arbitrary.Constant(undefined))
})

const entry = (position: number, more: Partial<TurnPlan.Entry>): TurnPlan.Entry => ({
  position,
  id: `c${position}`,
  name: "tool",
  access: "read",
  keys: [],
  backend: undefined,
  repeatable: false,
  digest: undefined,
  content: undefined,
  state: { _tag: "open", approval: false },
  ...more
})

describe("TurnPlan.toMermaid", () => {
  it.prop(
    "draws every call, edge, duplicate and request of any plan, whatever its texts are",
    { shapes: Arbitrary.array(someEntry, { maxLength: 10 }), execution: pick("parallel", "sequential") },
    ({ execution, shapes }) => {
      const plan = TurnPlan.make(
        shapes.map(({ id, ...shape }, position) => entry(position, { ...shape, id: `${id}` })),
        { execution }
      )
      const chart = read(TurnPlan.toMermaid(plan))
      assert.deepStrictEqual(
        [...chart.nodes.keys()].sort(),
        plan.calls.map(({ position }) => `c${position}`).sort()
      )
      const named = (end: number | string) => typeof end === "number" ? `c${end}` : end
      assert.deepStrictEqual(
        chart.arrows.map(({ from, to }) => `${from} ${to}`),
        plan.edges.map(({ from, to }) => `${named(from)} ${named(to)}`)
      )
      assert.deepStrictEqual(
        chart.duplicates,
        plan.calls.flatMap(({ duplicateOf, position }) => duplicateOf === undefined ? [] : [[duplicateOf, position]])
      )
      for (const call of plan.calls) {
        assert.strictEqual(chart.classes.get(`c${call.position}`), call.verdict)
        assert.include(chart.nodes.get(`c${call.position}`), `#${call.position} `)
      }
      assert.deepStrictEqual(chart.boxes, plan.requests.map((_, i) => `r${i}`))
    },
    runs(300)
  )

  it("shows hubs as circles, whose arrows bear the keys when they leave", () => {
    const plan = TurnPlan.make([
      ...[0, 1, 2].map((i) => entry(i, { keys: ["f:/"] })),
      ...[3, 4, 5].map((i) => entry(i, { access: "write", keys: [`f:/${i}`] }))
    ])
    const { arrows, hubs } = read(TurnPlan.toMermaid(plan))
    assert.deepStrictEqual(hubs, ["h0"])
    assert.deepStrictEqual(arrows.filter(({ from }) => from === "h0").map(({ key, to }) => [to, key]), [
      ["c3", "f:/3"],
      ["c4", "f:/4"],
      ["c5", "f:/5"]
    ])
    assert.deepStrictEqual(arrows.filter(({ to }) => to === "h0").map(({ key }) => key), [
      undefined,
      undefined,
      undefined
    ])
  })

  it("draws a call that several requests are for in the first of them, and a line to the others", () => {
    const asks = (...items: ReadonlyArray<string>) => ({ asks: () => ({ into: "Desk", size: 2, items }) })
    const plan = TurnPlan.make([entry(0, asks("1")), entry(1, asks("2", "3")), entry(2, asks("4"))])
    const { boxes, further } = read(TurnPlan.toMermaid(plan))
    assert.deepStrictEqual([boxes, further], [["r0", "r1"], [["c1", "r1"]]])
  })

  it("says what a call touches, or why it does not run", () => {
    const plan = TurnPlan.make([
      entry(0, { access: "write", keys: ["hotel:7"], backend: "Hotels", name: "book" }),
      entry(1, { state: { _tag: "open", approval: true }, name: "pay" }),
      entry(2, { keys: undefined, name: "look" }),
      entry(3, { state: { _tag: "refused", code: "unknown_tool", message: "no such tool" }, name: "dig" })
    ])
    assert.deepStrictEqual([...read(TurnPlan.toMermaid(plan)).nodes.values()], [
      "#0 book<br/>writes hotel:7<br/>on Hotels",
      "#1 pay<br/>held: waits for approval",
      "#2 look<br/>reads anything",
      "#3 dig<br/>refused: unknown_tool"
    ])
  })

  it("has something to show where there are no calls", () =>
    assert.strictEqual(TurnPlan.toMermaid(TurnPlan.make([])), 'flowchart LR\n  none["no calls"]'))
})
