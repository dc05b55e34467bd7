import { assert, describe, it } from "@effect/vitest"
import { TurnPlan } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Schema from "effect/Schema"
import { conflict, keys as someKeys, pick, type Reach, runs } from "./utils/gen.ts"

type Shape = Partial<TurnPlan.Entry> & { readonly approval?: boolean }

const entry = (position: number, { approval, ...shape }: Shape): TurnPlan.Entry => ({
  position,
  id: `c${position}`,
  name: "tool",
  access: "read",
  keys: [],
  backend: undefined,
  repeatable: false,
  digest: undefined,
  content: undefined,
  state: { _tag: "open", approval: approval ?? false },
  ...shape
})

const planOf = (shapes: ReadonlyArray<Shape>, options?: TurnPlan.Options): TurnPlan.TurnPlan =>
  TurnPlan.make(shapes.map((shape, i) => entry(i, shape)), options)

const read = (...keys: ReadonlyArray<string>): Shape => ({ access: "read", keys })
const write = (...keys: ReadonlyArray<string>): Shape => ({ access: "write", keys })
const look: Shape = { access: "read", keys: undefined }
const bare: Shape = { access: "write", keys: undefined }

const verdicts = (plan: TurnPlan.TurnPlan): ReadonlyArray<string> =>
  plan.calls.map((call) =>
    call.verdict + (call.duplicateOf === undefined ? "" : ` of ${call.duplicateOf}`) +
    (call.code === undefined ? "" : ` ${call.code}`)
  )

/** Edges between calls, as `from>to`. */
const between = (plan: TurnPlan.TurnPlan): ReadonlyArray<string> =>
  plan.calls.flatMap(({ position }) => TurnPlan.dependencies(plan, position).map(({ on }) => `${on}>${position}`))

const reachOf = (call: TurnPlan.PlannedCall): Reach => ({ write: call.access === "write", keys: call.keys })

/** For each call that runs, the set of those that it waits for, at any remove. */
const closure = (n: number, direct: (to: number) => ReadonlyArray<number>): ReadonlyArray<ReadonlySet<number>> => {
  const all: Array<Set<number>> = []
  for (let to = 0; to < n; to++) {
    const set = new Set<number>()
    for (const from of direct(to)) {
      set.add(from)
      for (const further of all[from]!) set.add(further)
    }
    all.push(set)
  }
  return all
}

const someShape = Arbitrary.all({
  access: pick("read", "write", "write"),
  keys: Arbitrary.flatMap(
    pick(true, true, true, true, false),
    (known) => known ? someKeys : Arbitrary.Constant(undefined)
  )
})

const properties = runs(300)

describe("TurnPlan", () => {
  describe("R12: who conflicts with whom", () => {
    const pairs: ReadonlyArray<readonly [string, Shape, Shape, boolean]> = [
      ["two reads of one key", read("a"), read("a"), false],
      ["a read, then a write of one key", read("a"), write("a"), true],
      ["a write, then a read of one key", write("a"), read("a"), true],
      ["two writes of one key", write("a"), write("a"), true],
      ["two writes of different keys", write("a"), write("b"), false],
      ["a folder and what is below it", read("file:/a"), write("file:/a/b"), true],
      ["what is below, and its folder", write("file:/a/b"), read("file:/a"), true],
      ["neighbours with a common beginning", write("file:/a"), write("file:/ab"), false],
      ["the root and anything in it", write("file:/"), read("file:/a/b/c"), true],
      ["the roots of two systems", write("file:/"), write("mail:/"), false],
      ["one path in two spellings", write("file:/a//b/./c"), read("file:/a/x/../b/c"), true],
      ["above the root is the root", write("file:/../../a"), read("file:/a"), true],
      ["a path that ends in a slash", write("file:/a/"), read("file:/a"), true],
      ["above the root, and beside", write("file:/../a"), read("file:/b"), false],
      ["above the root, once", write("file:/../a"), read("file:/a"), true],
      ["two systems with a common beginning", write("ab:/x"), write("ac:/x"), false],
      ["a path without a beginning, and below it", write("x:a"), read("x:a/b"), true],
      ["a path with a beginning and one without", write("x:/a/b"), read("x:a/b"), false],
      ["this place", write("x:."), read("x:a"), true],
      ["what is above", write("x:.."), read("x:a"), true],
      ["out of its own beginning", write("x:a/../../b"), read("x:c"), true],
      ["out of its own beginning, with a slash behind", write("x:a/../../b/"), read("x:c"), true],
      ["out of everything", write("a/../../b"), read("c"), true],
      ["back to its own beginning", write("x:a/../b"), read("x:c"), false],
      ["a dot in a plain key", write("a.b"), write("a"), false],
      ["a tool without policy and a keyed write", bare, write("a"), true],
      ["a tool without policy and a keyed read", bare, read("a"), true],
      ["a tool without policy and one that touches nothing", bare, write(), false],
      ["two tools without policy", bare, bare, true],
      ["a read of unknown reach and a keyed write", look, write("a"), true],
      ["a read of unknown reach and a tool without policy", look, bare, true],
      ["a read of unknown reach and a keyed read", look, read("a"), false],
      ["two writes that touch nothing", write(), write(), false],
      ["hostile keys are plain keys", write("__proto__"), read("constructor"), false],
      ["hostile keys are the same key", write("__proto__"), read("__proto__"), true]
    ]
    for (const [name, a, b, expected] of pairs) {
      it(name, () => {
        assert.deepStrictEqual(between(planOf([a, b])), expected ? ["0>1"] : [])
        assert.deepStrictEqual(between(planOf([b, a])), expected ? ["0>1"] : [])
      })
    }

    it("each edge names its key, unknown reach is a star, and the turn's own order is called sequential", () => {
      const plan = planOf([write("a", "b"), read("b"), bare])
      assert.deepStrictEqual(TurnPlan.dependencies(plan, 1), [{ on: 0, key: "b" }])
      assert.deepStrictEqual(TurnPlan.dependencies(plan, 2), [{ on: 0, key: "*" }, { on: 1, key: "*" }])
      const sequential = planOf([read(), read("a"), write("a")], { execution: "sequential" })
      assert.deepStrictEqual(TurnPlan.dependencies(sequential, 1), [{ on: 0, key: "sequential" }])
      assert.deepStrictEqual(TurnPlan.dependencies(sequential, 2), [{ on: 1, key: "a" }])
    })

    it("a number as `execution` does not change the plan", () =>
      assert.deepStrictEqual(
        TurnPlan.toJson(planOf([write("a"), read("a")], { execution: 1 })),
        TurnPlan.toJson(planOf([write("a"), read("a")]))
      ))
  })

  it.prop(
    "R12: calls wait for exactly those that a comparison of all pairs names",
    { shapes: Arbitrary.array(someShape, { maxLength: 24 }) },
    ({ shapes }) => {
      const plan = planOf(shapes)
      const n = shapes.length
      const earlier = (to: number) =>
        Array.from({ length: to }, (_, from) => from).filter((from) =>
          conflict(reachOf(plan.calls[from]!), reachOf(plan.calls[to]!))
        )
      const planned = closure(n, (to) => TurnPlan.dependencies(plan, to).map(({ on }) => on))
      assert.deepStrictEqual(planned, closure(n, earlier))
      for (let to = 0; to < n; to++) {
        for (const { key, on } of TurnPlan.dependencies(plan, to)) {
          assert.include(earlier(to), on, "an edge without a conflict")
          const { keys } = plan.calls[to]!
          assert.isTrue(keys === undefined ? key === "*" : keys.includes(key), `the key ${key} is not one of its own`)
        }
      }
    },
    properties
  )

  it.prop(
    "R12: sequential means one after another, whatever the keys",
    { shapes: Arbitrary.array(someShape, { minLength: 2, maxLength: 16 }) },
    ({ shapes }) => {
      const plan = planOf(shapes, { execution: "sequential" })
      closure(shapes.length, (to) => TurnPlan.dependencies(plan, to).map(({ on }) => on))
        .forEach((before, to) => assert.strictEqual(before.size, to))
    },
    runs(100)
  )

  it.prop(
    "R12b: the height is the number of calls on the longest way down",
    { shapes: Arbitrary.array(someShape, { maxLength: 24 }) },
    ({ shapes }) => {
      const plan = planOf(shapes)
      const n = shapes.length
      const heights = new Array<number>(n).fill(1)
      for (let from = n - 1; from >= 0; from--) {
        for (let to = from + 1; to < n; to++) {
          if (conflict(reachOf(plan.calls[from]!), reachOf(plan.calls[to]!))) {
            heights[from] = Math.max(heights[from]!, heights[to]! + 1)
          }
        }
      }
      assert.deepStrictEqual(plan.calls.map((call) => call.height), heights)
    },
    properties
  )

  describe("the size of a plan grows with the number of its calls, never with their square", () => {
    const n = 2000
    const repeat = (of: (i: number) => Shape): ReadonlyArray<Shape> => Array.from({ length: n }, (_, i) => of(i))
    const patterns: Record<string, ReadonlyArray<Shape>> = {
      "n readers of the root, then n writers below it": [
        ...repeat(() => read("file:/")),
        ...repeat((i) => write(`file:/w${i}`))
      ],
      "n writers below the root, then n readers of it": [
        ...repeat((i) => write(`file:/w${i}`)),
        ...repeat(() => read("file:/"))
      ],
      "a reader of the root and a writer below it, in turns": repeat((i) =>
        i % 2 === 0 ? read("file:/") : write(`file:/w${i}`)
      ),
      "a reader of the root and a writer of one file, in turns": repeat((i) =>
        i % 2 === 0 ? read("file:/") : write("file:/a")
      ),
      "n readers of a key, then n writers of it": [...repeat(() => read("a")), ...repeat(() => write("a"))],
      "tools without policy": repeat(() => bare),
      "reads of unknown reach and keyed writes, in turns": repeat((i) => i % 2 === 0 ? look : write(`k${i}`)),
      "n keyed writes, then n reads of unknown reach, then n keyed writes": [
        ...repeat((i) => write(`k${i}`)),
        ...repeat(() => look),
        ...repeat((i) => write(`k${i}`))
      ],
      "two readers for each writer at three depths": repeat((i) =>
        i % 3 === 0 ? write(`file:/d${i % 7}/f${i}`) : i % 3 === 1 ? read(`file:/d${i % 7}`) : read("file:/")
      ),
      "each writes its own key and the one before": repeat((i) => write(`k${i}`, `k${i - 1}`))
    }
    for (const [name, shapes] of Object.entries(patterns)) {
      it(name, () => {
        const plan = planOf(shapes)
        assert.isAtMost(plan.edges.length, 8 * shapes.length)
        assert.isAtLeast(plan.edges.length, shapes.length - 1)
      })
    }

    it("R12: n readers and n writers are all ordered, through a hub", () => {
      const plan = planOf(patterns["n readers of the root, then n writers below it"]!)
      assert.strictEqual(TurnPlan.dependencies(plan, 2 * n - 1).length, n)
      assert.deepStrictEqual(TurnPlan.dependencies(plan, n - 1), [])
    })
  })

  describe("R9: identical calls", () => {
    const same = (shape: Shape, digest = "d"): Shape => ({ ...shape, digest })

    it("run once, and each later one names the one that runs", () =>
      assert.deepStrictEqual(verdicts(planOf([same(read("a")), same(read("a")), same(read("a"))])), [
        "run",
        "duplicate of 0",
        "duplicate of 0"
      ]))

    it("other arguments, or another tool, are another call", () =>
      assert.deepStrictEqual(
        verdicts(planOf([same(read("a")), same(read("a"), "e"), { ...same(read("a")), name: "other" }])),
        [
          "run",
          "run",
          "run"
        ]
      ))

    it("are not merged across a conflicting write between them", () => {
      assert.deepStrictEqual(verdicts(planOf([same(read("a")), write("a"), same(read("a"))])), ["run", "run", "run"])
      assert.deepStrictEqual(verdicts(planOf([same(read("a")), write("b"), same(read("a"))])), [
        "run",
        "run",
        "duplicate of 0"
      ])
      assert.deepStrictEqual(verdicts(planOf([same(read("f:/a")), write("f:/a/x"), same(read("f:/a"))])), [
        "run",
        "run",
        "run"
      ])
      assert.deepStrictEqual(verdicts(planOf([same(read("a")), bare, same(read("a"))])), ["run", "run", "run"])
    })

    it("a merged call is the newest one that ran", () =>
      assert.deepStrictEqual(verdicts(planOf([same(read("a")), write("a"), same(read("a")), same(read("a"))])), [
        "run",
        "run",
        "run",
        "duplicate of 2"
      ]))

    it("R9, R10: are not merged across a conflicting write that is held", () =>
      assert.deepStrictEqual(verdicts(planOf([same(read("a")), { ...write("a"), approval: true }, same(read("a"))])), [
        "run",
        "held pending_approval",
        "deferred waits_for_approval"
      ]))

    it("R10: the same as a held call is a duplicate of it", () =>
      assert.deepStrictEqual(
        verdicts(planOf([same({ ...write("a"), approval: true }), same({ ...write("a"), approval: true })])),
        ["held pending_approval", "duplicate of 0"]
      ))

    it("writes are merged too, unless the turn says reads alone, or off", () => {
      const twice = [same(write("a")), same(write("a")), same(read(), "r"), same(read(), "r")]
      assert.deepStrictEqual(verdicts(planOf(twice)), ["run", "duplicate of 0", "run", "duplicate of 2"])
      assert.deepStrictEqual(verdicts(planOf(twice, { dedupe: "reads" })), ["run", "run", "run", "duplicate of 2"])
      assert.deepStrictEqual(verdicts(planOf(twice, { dedupe: "off" })), ["run", "run", "run", "run"])
    })

    it("are each run when the tool is repeatable", () =>
      assert.deepStrictEqual(
        verdicts(planOf([
          { ...same(read("a")), repeatable: true },
          { ...same(read("a")), repeatable: true }
        ])),
        ["run", "run"]
      ))

    it.prop(
      "are merged exactly when a comparison of all pairs says so",
      {
        shapes: Arbitrary.array(
          Arbitrary.all({
            of: pick(0, 1, 2, 3, 4, 5, 6),
            approval: pick(false, false, false, false, true)
          }),
          { maxLength: 16 }
        ),
        dedupe: pick("all", "reads", "off")
      },
      ({ dedupe, shapes }) => {
        const kinds: ReadonlyArray<Shape> = [
          read("a"),
          read("f:/a"),
          write("a"),
          write("f:/a/x"),
          write("f:/"),
          bare,
          look
        ]
        const plan = planOf(
          shapes.map(({ approval, of }) => ({
            ...kinds[of],
            digest: String(of),
            approval: approval && kinds[of]!.access === "write"
          })),
          { dedupe }
        )
        const expected: Array<string> = []
        const reach = (i: number) => reachOf(plan.calls[i]!)
        for (let i = 0; i < shapes.length; i++) {
          const counts = (j: number) => expected[j] === "run" || expected[j] === "held pending_approval"
          const mergeable = dedupe === "all" || (dedupe === "reads" && !reach(i).write)
          let same = -1
          for (let j = 0; j < i; j++) if (mergeable && counts(j) && shapes[j]!.of === shapes[i]!.of) same = j
          let between = false
          for (let j = same + 1; j < i; j++) between ||= counts(j) && reach(j).write && conflict(reach(j), reach(i))
          const isHeld = shapes[i]!.approval && reach(i).write
          const held = expected.some((verdict, j) => verdict.startsWith("held") && conflict(reach(j), reach(i)))
          expected.push(
            same !== -1 && !between
              ? `duplicate of ${same}`
              : isHeld
              ? "held pending_approval"
              : held
              ? "deferred waits_for_approval"
              : "run"
          )
        }
        assert.deepStrictEqual(verdicts(plan), expected)
      },
      properties
    )
  })

  describe("R10: calls that wait for approval", () => {
    const held = (shape: Shape): Shape => ({ ...shape, approval: true })

    it("are held; later ones that conflict are deferred, all others run", () =>
      assert.deepStrictEqual(
        verdicts(planOf([read("a"), held(write("a")), read("a"), write("b"), read(), bare, look])),
        [
          "run",
          "held pending_approval",
          "deferred waits_for_approval",
          "run",
          "run",
          "deferred waits_for_approval",
          "deferred waits_for_approval"
        ]
      ))

    it("make nobody wait: they take no place", () => {
      const plan = planOf([write("a"), held(write("a")), write("b")])
      assert.deepStrictEqual(plan.edges, [])
    })

    it("which are held themselves stay held beside each other", () =>
      assert.deepStrictEqual(verdicts(planOf([held(write("a")), held(write("a"))])), [
        "held pending_approval",
        "held pending_approval"
      ]))

    it("a deferred call defers nobody", () =>
      assert.deepStrictEqual(verdicts(planOf([held(write("a")), write("a", "b"), write("b")])), [
        "held pending_approval",
        "deferred waits_for_approval",
        "run"
      ]))
  })

  describe("R2: ids", () => {
    const withId = (id: string, content: string, shape: Shape = read("a")): Shape => ({ ...shape, id, content })

    it("the same id with the same name and content is a re-delivery, whatever dedupe says", () =>
      assert.deepStrictEqual(
        verdicts(planOf([withId("x", "1"), write("a"), withId("x", "1")], { dedupe: "off" })),
        ["run", "run", "duplicate of 0"]
      ))

    it("the same id with other content runs nothing, and says so", () => {
      const plan = planOf([withId("x", "1"), withId("x", "2"), withId("y", "1"), withId("x", "1")])
      assert.deepStrictEqual(verdicts(plan), [
        "refused ambiguous_id",
        "refused ambiguous_id",
        "run",
        "refused ambiguous_id"
      ])
      assert.include(plan.calls[0]!.message, '"x"')
    })

    it("the same id with another name is ambiguous", () =>
      assert.deepStrictEqual(verdicts(planOf([withId("x", "1"), { ...withId("x", "1"), name: "other" }])), [
        "refused ambiguous_id",
        "refused ambiguous_id"
      ]))

    it("ids that are names of an object's own parts are ids", () =>
      assert.deepStrictEqual(verdicts(planOf([withId("__proto__", "1"), withId("constructor", "1")])), ["run", "run"]))
  })

  it("refused, deferred and provider-run calls keep their reasons and take no place", () => {
    const plan = planOf([
      { ...write("a"), state: { _tag: "refused", code: "unknown_tool", message: "no such tool" } },
      { ...write("a"), state: { _tag: "deferred", code: "placeholder", message: "a placeholder" } },
      { ...write("a"), state: { _tag: "provider" } },
      write("a")
    ])
    assert.deepStrictEqual(verdicts(plan), [
      "refused unknown_tool",
      "deferred placeholder",
      "provider_executed",
      "run"
    ])
    assert.deepStrictEqual(plan.edges, [])
  })

  it("no calls, no edges", () => {
    const plan = planOf([])
    assert.deepStrictEqual(TurnPlan.toJson(plan), { calls: [], edges: [] })
    assert.strictEqual(TurnPlan.print(plan), "")
  })

  it.prop(
    "goes through JSON and back unchanged",
    { shapes: Arbitrary.array(someShape, { maxLength: 12 }) },
    ({ shapes }) => {
      const plan = planOf(shapes)
      const text = JSON.stringify(plan)
      const read = TurnPlan.fromJson(Schema.decodeUnknownSync(TurnPlan.Encoded)(JSON.parse(text)))
      assert.deepStrictEqual(TurnPlan.toJson(read), JSON.parse(JSON.stringify(TurnPlan.toJson(plan))))
      assert.deepStrictEqual(between(read), between(plan))
      assert.strictEqual(TurnPlan.print(read), TurnPlan.print(plan))
    },
    runs(50)
  )

  it("a call waits for another once, by the first key that they share", () =>
    assert.deepStrictEqual(planOf([write("a", "b"), read("a", "b")]).edges, [{ from: 0, to: 1, key: "a" }]))

  it("the turn's own order comes beside the keys, and counts for what goes first", () => {
    const plan = planOf([write("a"), read("b"), read("a"), write()], { execution: "sequential" })
    assert.deepStrictEqual(plan.edges, [
      { from: 0, to: 1, key: "sequential" },
      { from: 0, to: 2, key: "a" },
      { from: 1, to: 2, key: "sequential" },
      { from: 2, to: 3, key: "sequential" }
    ])
    assert.deepStrictEqual(plan.calls.map(({ height }) => height), [4, 3, 2, 1])
    assert.deepStrictEqual(planOf([write("a"), read("a")], { execution: "sequential" }).edges, [
      { from: 0, to: 1, key: "a" }
    ])
  })

  it("R9, R10: two held calls that are the same are one, also behind a write that runs", () => {
    const same = { ...write("a"), approval: true, digest: "d" }
    assert.deepStrictEqual(verdicts(planOf([write("a"), same, same])), [
      "run",
      "held pending_approval",
      "duplicate of 1"
    ])
  })

  it("n that wait for the same m do so through hubs, and each is told with its own key", () => {
    const plan = planOf([
      write("f:/a/x"),
      write("f:/a/y"),
      read("f:/a"),
      read("f:/a/"),
      write("f:/a/z"),
      read("f:/a/."),
      read("f:/a")
    ])
    assert.deepStrictEqual(plan.edges, [
      { from: 0, to: "h0", key: "f:/a" },
      { from: 1, to: "h0", key: "f:/a" },
      { from: "h0", to: 2, key: "f:/a" },
      { from: "h0", to: 3, key: "f:/a/" },
      { from: 2, to: "h1", key: "f:/a/z" },
      { from: 3, to: "h1", key: "f:/a/z" },
      { from: "h1", to: 4, key: "f:/a/z" },
      { from: "h0", to: "h2", key: "f:/a/." },
      { from: 4, to: "h2", key: "f:/a/." },
      { from: "h2", to: 5, key: "f:/a/." },
      { from: "h2", to: 6, key: "f:/a" }
    ])
    assert.deepStrictEqual(TurnPlan.dependencies(plan, 6), [0, 1, 4].map((on) => ({ on, key: "f:/a" })))
    assert.deepStrictEqual(TurnPlan.dependencies(plan, 3), [{ on: 0, key: "f:/a/" }, { on: 1, key: "f:/a/" }])
    assert.deepStrictEqual(TurnPlan.dependencies(plan, 5), [0, 1, 4].map((on) => ({ on, key: "f:/a/." })))
    assert.strictEqual(plan.edges, plan.edges)
  })

  describe("print", () => {
    it("names the last three of the others, and says what is a copy or was run elsewhere", () => {
      const reads = (n: number) => Array.from({ length: n }, (_, i) => read(`f:/${i}`))
      const last = (n: number) => TurnPlan.print(planOf([...reads(n), write("f:/")])).split("\n").at(-1)
      assert.strictEqual(last(4), "└─ #4 tool (c4)  writes f:/  [after #3 by f:/, and #0, #1, #2]")
      assert.strictEqual(last(6), "└─ #6 tool (c6)  writes f:/  [after #5 by f:/, and 2 more, #2, #3, #4]")
      const plan = planOf([
        { ...write("a"), digest: "d" },
        { ...write("a"), digest: "d" },
        { ...read(), state: { _tag: "provider" } },
        { ...read("a") },
        { ...read("a") }
      ])
      assert.deepStrictEqual(TurnPlan.print(plan).split("\n"), [
        "#0 tool (c0)  writes a",
        "├─ #3 tool (c3)  reads a  [after #0 by a]",
        "└─ #4 tool (c4)  reads a  [after #0 by a]",
        "#1 tool (c1)  duplicate of #0: runs once for both",
        "#2 tool (c2)  run by the provider"
      ])
    })

    it("draws what waits below what it waits for, with the key", () => {
      const plan = planOf([
        { ...write("hotel:1"), name: "book", backend: "Hotels" },
        { ...read("hotel:1"), name: "get" },
        { ...read(), name: "weather" },
        { ...bare, name: "mystery", id: "" },
        { ...write("pay:1"), name: "pay", approval: true },
        { ...read(), name: "gone", state: { _tag: "refused", code: "unknown_tool", message: "no such tool" } }
      ])
      assert.deepStrictEqual(TurnPlan.print(plan).split("\n"), [
        "#0 book (c0)  writes hotel:1 on Hotels",
        "└─ #1 get (c1)  reads hotel:1  [after #0 by hotel:1]",
        "   └─ #3 mystery  writes anything  [after #1 by *, and #0]",
        "#2 weather (c2)  reads nothing shared",
        "#4 pay (c4)  held: waits for approval",
        "#5 gone (c5)  refused: unknown_tool: no such tool"
      ])
    })

    it.prop(
      "draws every call exactly once",
      { shapes: Arbitrary.array(someShape, { maxLength: 20 }) },
      ({ shapes }) => {
        const lines = shapes.length === 0 ? [] : TurnPlan.print(planOf(shapes)).split("\n")
        const positions = lines.map((line) => Number(/#(\d+)/.exec(line)![1])).sort((a, b) => a - b)
        assert.deepStrictEqual(positions, shapes.map((_, i) => i))
      },
      runs(100)
    )

    it("draws a chain of three thousand calls", () =>
      assert.strictEqual(TurnPlan.print(planOf(Array.from({ length: 3000 }, () => bare))).split("\n").length, 3000))
  })
})
