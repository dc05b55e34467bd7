import { assert, describe, it } from "@effect/vitest"
import { ResultBudget } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import { int, pick, runs } from "./utils/gen.ts"

/** Pieces of text that are easily cut in the wrong place. */
const piece = pick(
  "a",
  " ",
  "lorem ipsum dolor ",
  '"',
  "\\",
  "\n",
  "\u0001",
  "\r\n",
  "é",
  "e\u0301",
  "😀",
  "👩‍👩‍👧‍👦",
  "🇩🇪🇫🇷🇮🇹",
  "👍🏽",
  "漢字",
  "한국",
  "क्षि",
  "\ud83d",
  "\udc00",
  "z\u0335\u0321\u035b\u0353\u0349\u0345",
  "\u2028"
)

const text = Arbitrary.map(Arbitrary.array(piece, { maxLength: 40 }), (pieces) => pieces.join(""))

const names = pick("a", "b", "10", "2", "…", "__proto__", "a long name with a 😀 in it", "")

/** A value of JSON, so deep at most. */
const json = (depth: number): Arbitrary.Arbitrary<unknown> =>
  depth === 0
    ? Arbitrary.flatMap(int(0, 4), (kind): Arbitrary.Arbitrary<unknown> =>
      kind < 3 ? text : Arbitrary.map(int(0, 6), (i): unknown =>
        [0, -12.5, 1e21, true, null, {}, []][i]))
    : Arbitrary.flatMap(int(0, 4), (kind): Arbitrary.Arbitrary<unknown> =>
      kind === 0
        ? json(0)
        : kind < 3
        ? Arbitrary.array(json(depth - 1), { maxLength: 6 })
        : Arbitrary.map(
          Arbitrary.array(Arbitrary.all([names, json(depth - 1)]), { maxLength: 6 }),
          (entries) =>
            Object.fromEntries(entries)
        ))

const value = Arbitrary.flatMap(int(0, 4), json)

const whole: Arbitrary.Arbitrary<ResultBudget.Whole> = Arbitrary.map(
  int(0, 2),
  (i) => i === 0 ? undefined : i === 1 ? "lost" : { artifact: "0123456789abcdef0123" }
)

/** All texts in a value, names included. */
const texts = (value: unknown): ReadonlyArray<string> =>
  typeof value === "string"
    ? [value]
    : typeof value === "object" && value !== null
    ? Object.entries(value).flatMap(([name, member]) => [name, ...texts(member)])
    : []

const properties = runs(2_000)

describe("ResultBudget.cut", () => {
  it.prop(
    "C1 to C4: what fits is the same value; what is cut is JSON, fits, is no longer than the whole, and is not cut again",
    { value, budget: Arbitrary.flatMap(pick(8, 40, 200, 1_000), (most) => int(1, most)), whole },
    ({ budget, value, whole }) => {
      const before = JSON.stringify(value)
      const { of, to, value: cut } = ResultBudget.cut(value, budget, whole)
      assert.strictEqual(JSON.stringify(value), before)
      assert.strictEqual(of, before.length)
      if (of <= budget) assert.strictEqual(cut, value)
      const after = JSON.stringify(cut)
      assert.deepStrictEqual(JSON.parse(after), cut)
      assert.strictEqual(to, after.length)
      assert.isAtMost(to, Math.max(budget, 3))
      assert.isAtMost(to, of)
      assert.strictEqual(JSON.stringify(ResultBudget.cut(value, budget, whole).value), after)
      assert.strictEqual(ResultBudget.cut(cut, budget, whole).value, cut)
      if (texts(value).every((text) => text.isWellFormed())) {
        assert.isTrue(texts(cut).every((text) => text.isWellFormed()))
      }
    },
    properties
  )

  it.prop(
    "C3: a text ends between two characters as a reader sees them",
    { text, more: text, budget: int(3, 300) },
    ({ budget, more, text }) => {
      const long = text + more + text
      const cut = ResultBudget.cut(long, budget).value as string
      if (cut === long) return
      const head = cut.slice(0, cut.lastIndexOf("…"))
      // What is kept is the beginning, with halves of pairs replaced.
      assert.strictEqual(head, long.slice(0, head.length).toWellFormed())
      const borders = Array.from(new Intl.Segmenter("en").segment(long), ({ index }) => index)
      assert.include([...borders, long.length], head.length)
    },
    properties
  )

  it.prop(
    "a border is where the segmenter has one, and the last",
    { text: Arbitrary.map(Arbitrary.array(text, { maxLength: 60 }), (all) => all.join("")), at: int(-1, 2_500) },
    ({ at, text }) => {
      const borders = [...Array.from(new Intl.Segmenter("en").segment(text), ({ index }) => index), text.length]
      const expected = borders.findLast((border) => border <= at) ?? 0
      assert.strictEqual(ResultBudget.borderBefore(text, at), expected)
    },
    runs(500)
  )

  it("looks near the cut alone where the text allows it, and far back where it does not", () => {
    const long = "x".repeat(1_000_000)
    assert.strictEqual(ResultBudget.borderBefore(long, 999_999), 999_999)
    assert.strictEqual(ResultBudget.borderBefore(`${"漢".repeat(5_000)}`, 4_321), 4_321)
    const flags = "🇩🇪".repeat(2_000)
    assert.strictEqual(ResultBudget.borderBefore(flags, 4_002), 4_000)
    assert.strictEqual(ResultBudget.borderBefore(`ab${"\u0301".repeat(3_000)}c`, 2_000), 1)
  })

  it("keeps the first items of a list, and counts", () => {
    const rows = Array.from({ length: 40 }, (_, i) => ({ row: i, name: `customer ${i}` }))
    const { value } = ResultBudget.cut(rows, 200)
    const items = value as ReadonlyArray<unknown>
    assert.deepStrictEqual(items.slice(0, -1), rows.slice(0, items.length - 1))
    assert.strictEqual(items.at(-1), `… [shown: ${items.length - 1} of 40 items]`)
    assert.isAbove(items.length, 3)
  })

  it("cuts the longest members of an object first, and says so once", () => {
    const page = { title: "Report", body: "lorem ipsum ".repeat(100), notes: ["one", "two"], next: 3 }
    const { value } = ResultBudget.cut(page, 300, { artifact: "abc" })
    const { body, ...rest } = value as Record<string, string>
    assert.deepStrictEqual(rest as unknown, {
      title: "Report",
      notes: ["one", "two"],
      next: 3,
      "…": "[shortened; whole: artifact abc]"
    })
    assert.match(body!, /^lorem ipsum .*… \[shown: \d+ of 1200 characters\]$/)
  })

  it("counts the members that are left out where not even a mark of each fits", () => {
    const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`member ${i}`, "value ".repeat(10)]))
    const { value } = ResultBudget.cut(many, 400, "lost")
    const kept = Object.keys(value as object).length - 1
    assert.strictEqual(
      (value as Record<string, string>)["…"],
      `[left out: ${100 - kept} of 100 members; the whole was not kept]`
    )
    assert.isAbove(kept, 3)
  })

  it("takes another name for its mark where a member has it", () => {
    const { value } = ResultBudget.cut({ "…": "x".repeat(200), "……": 1 }, 100, { artifact: "abc" })
    assert.deepStrictEqual(Object.keys(value as object), ["…", "……", "………"])
  })

  it("a member named __proto__ is a member", () => {
    const input: unknown = JSON.parse(`{"__proto__": "${"x".repeat(100)}", "a": 1}`)
    const { value } = ResultBudget.cut(input, 60)
    assert.deepStrictEqual(Object.keys(value as object), ["__proto__", "a"])
    assert.strictEqual(Object.getPrototypeOf(value), Object.prototype)
  })

  it("goes down into deep values, and not for ever", () => {
    const deep = (levels: number): unknown => {
      let value: unknown = "x".repeat(1_000)
      for (let i = 0; i < levels; i++) value = [value]
      return value
    }
    for (const levels of [10, 60, 70, 1_000]) {
      assert.isAtMost(ResultBudget.cut(deep(levels), 500).to, 500)
    }
  })

  it("a budget of one leaves a mark", () => {
    assert.deepStrictEqual(ResultBudget.cut("a long text", 1), { value: "…", of: 13, to: 3 })
    assert.deepStrictEqual(ResultBudget.cut([1, 2, 3, 4], 1), { value: "…", of: 9, to: 3 })
    assert.deepStrictEqual(ResultBudget.cut(12, 1), { value: 12, of: 2, to: 2 })
  })
})

describe("ResultBudget.cutFailure", () => {
  const fields = { status: "error", code: "failed", retryable: false, effect: "unknown" }

  it.prop(
    "keeps what it says of effects, fits as far as that allows, and what fits is the same value",
    { message: text, failure: value, has: pick(true, false), budget: int(1, 600), whole },
    ({ budget, failure, has, message, whole }) => {
      const value = { ...fields, message, ...(has ? { failure } : undefined) }
      const { of, to, value: cut } = ResultBudget.cutFailure(value, budget, whole)
      if (of <= budget) assert.strictEqual(cut, value)
      assert.deepInclude(cut as object, fields)
      assert.strictEqual(JSON.stringify(cut).length, to)
      // With all else, and the shortest of messages, as long as three characters.
      assert.isAtMost(to, Math.max(budget, ResultBudget.lengthOf({ ...fields, message: "…" })))
      const again = ResultBudget.cutFailure(cut as Record<string, unknown>, budget, whole)
      assert.deepStrictEqual(again.value, cut)
    },
    properties
  )

  it("names the whole once", () => {
    const long = "x".repeat(500)
    const value = { ...fields, message: `it failed: ${long}`, failure: { why: long } }
    const { value: cut } = ResultBudget.cutFailure(value, 400, { artifact: "abc" })
    assert.strictEqual(JSON.stringify(cut).split("artifact abc").length, 2)
    const short = ResultBudget.cutFailure({ ...value, message: "it failed" }, 400, { artifact: "abc" })
    assert.strictEqual(JSON.stringify(short.value).split("artifact abc").length, 2)
  })
})

describe("sharing", () => {
  const needs = Arbitrary.array(Arbitrary.flatMap(pick(5, 50, 5_000), (most) => int(0, most)), { maxLength: 12 })

  it.prop(
    "the small ones have all, the others the same: no part could be made larger without a larger one losing",
    { needs, total: int(0, 20_000) },
    ({ needs, total }) => {
      const parts = ResultBudget.share(needs, total)
      const sum = parts.reduce((all, one) => all + one, 0)
      assert.isAtMost(sum, total)
      parts.forEach((part, i) => assert.isAtMost(part, needs[i]!))
      const short = parts.filter((part, i) => part < needs[i]!)
      if (short.length === 0) return
      // Nothing is left over, and who has less than it needs has as much as anybody, but for the remainder.
      assert.strictEqual(sum, total)
      const most = Math.max(...parts)
      for (const part of short) assert.isAtLeast(part, most - 1)
    },
    properties
  )

  it.prop(
    "failures come first, and every result has its mark",
    {
      answers: Arbitrary.array(
        Arbitrary.all({
          length: Arbitrary.flatMap(pick(5, 300), (most) => int(2, most)),
          isFailure: pick(false, true)
        }),
        { maxLength: 10 }
      ),
      total: int(1, 2_000)
    },
    ({ answers, total }) => {
      const parts = ResultBudget.allot(answers, total)
      assert.strictEqual(parts.length, answers.length)
      assert.isAtMost(parts.reduce((all, one) => all + one, 0), total)
      const lost = answers.some(({ isFailure, length }, i) => isFailure && parts[i]! < length)
      const more = answers.some(({ isFailure, length }, i) => !isFailure && parts[i]! > Math.min(3, length))
      assert.isFalse(lost && more)
    },
    properties
  )
})
