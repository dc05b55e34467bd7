import { assert, describe, it } from "@effect/vitest"
import type { Outcome, ToolCall, TurnEvent, TurnPlan } from "effect-turn"
import * as Lines from "../../src/cli/lines.ts"
import * as Progress from "../../src/cli/progress.ts"
import { between, drawn } from "../../src/cli/terminal.ts"
import { clean, colours, cut, duration, json, nearest, plain, wrap } from "../../src/cli/text.ts"

const calls: ReadonlyArray<ToolCall.ToolCall> = [
  { id: "a", name: "search", arguments: { q: "x" } },
  { id: "b", name: "book", arguments: "{}" },
  { id: "c", name: "pay" }
]

const base = (position: number, started = true) => ({
  position,
  id: calls[position]!.id,
  name: calls[position]!.name,
  started,
  effect: "none" as const,
  retryable: false,
  message: ""
})

const outcomes: ReadonlyArray<Outcome.Outcome> = [
  { ...base(0), status: "ok", result: { n: 1 }, encoded: { n: 1 } },
  {
    ...base(1),
    status: "timeout",
    code: "handler",
    effect: "unknown",
    limit: { clock: "timeout", millis: 9 },
    message: "took over 9 ms"
  },
  { ...base(2, false), status: "pending_approval", message: "waits for a human" }
]

const at = (at: number) => ({ at: 1000 + at, turn: "t" })
const of = (time: number, position: number) => ({
  ...at(time),
  position,
  id: calls[position]!.id,
  tool: calls[position]!.name
})

const events: ReadonlyArray<TurnEvent.TurnEvent> = [
  { ...at(0), _tag: "TurnStarted", calls: 3 },
  { ...of(0, 0), _tag: "CallQueued", for: "permit", backend: "Hotels" },
  { ...of(0, 1), _tag: "CallQueued", for: "keys", backend: undefined },
  { ...of(0, 2), _tag: "CallEnded", outcome: outcomes[2]! },
  {
    ...of(20, 0),
    _tag: "CallStarted",
    attempt: 1,
    backend: "Hotels",
    waited: { keys: 0, permit: 20, rate: 0, approval: 0 }
  },
  { ...of(70, 0), _tag: "CallEnded", outcome: outcomes[0]! },
  {
    ...of(70, 1),
    _tag: "CallStarted",
    attempt: 1,
    backend: undefined,
    waited: { keys: 70, permit: 0, rate: 0, approval: 0 }
  },
  { ...of(79, 1), _tag: "CallOverdue", clock: "timeout" },
  { ...at(90), _tag: "TurnStopped", code: "by_caller", reason: "user" },
  { ...of(1500, 1), _tag: "CallEnded", outcome: outcomes[1]! },
  { ...at(1500), _tag: "TurnEnded", unsettled: 0 }
]

const after = (count: number) => {
  const progress = Progress.start(calls)
  for (const event of events.slice(0, count)) Progress.advance(progress, event)
  return progress
}

const options = { width: 60, height: 20, tick: 0, paint: plain }

describe("a turn that runs", () => {
  it("has a line for each call, in their order", () => {
    assert.deepStrictEqual(Lines.live(after(5), 50, options), [
      "#0 search  ⠋ running 30 ms",
      "#1 book    · waiting 50 ms for earlier calls",
      "#2 pay     ⏸ pending_approval",
      "1 of 3 answered, 50 ms"
    ])
    assert.deepStrictEqual(Lines.live(after(9), 100, options), [
      "#0 search  ✓ ok in 50 ms",
      "#1 book    ⠋ running 30 ms, overdue: a write is awaited",
      "#2 pay     ⏸ pending_approval",
      "2 of 3 answered, 100 ms, stopping: by_caller (user)"
    ])
  })

  it("shows what is at work where there is no room for all", () => {
    assert.deepStrictEqual(Lines.live(after(7), 80, { ...options, height: 1 }), [
      "#1 book    ⠋ running 10 ms",
      "2 of 3 answered, 80 ms, 2 more not shown"
    ])
  })

  it("never writes past the edge", () => {
    const lines = Lines.live(after(9), 100, { ...options, width: 24 })
    assert.deepStrictEqual(lines.filter((line) => line.length > 24), [])
  })

  it("says each event in a line where lines are all there is", () => {
    const progress = Progress.start(calls)
    const lines = events.flatMap((event) => {
      Progress.advance(progress, event)
      return Lines.ofEvent(progress, event) ?? []
    })
    assert.deepStrictEqual(lines, [
      "0 ms      wait      #0 search for Hotels",
      "0 ms      wait      #1 book for earlier calls",
      "0 ms      end       #2 pay pending_approval",
      '20 ms     start     #0 search {"q":"x"} after 20 ms for Hotels',
      "70 ms     end       #0 search ok in 50 ms",
      "70 ms     start     #1 book {} after 70 ms for earlier calls",
      "79 ms     overdue   #1 book: a write that has started is awaited",
      "90 ms     stop      by_caller (user)",
      "1.50 s    end       #1 book timeout (handler) in 1.43 s"
    ])
  })

  it("names the calls that a call waits for, three at most", () => {
    const many = Array.from({ length: 7 }, (_, i) => ({ id: `${i}`, name: i === 6 ? "all" : "one" }))
    const plan: TurnPlan.TurnPlan = {
      calls: [],
      requests: [],
      edges: [
        ...many.slice(1, 6).map((_, i) => ({ from: i + 1, to: "h0", key: "a" })),
        { from: "h0", to: 6, key: "a" },
        { from: 0, to: 1, key: "b" }
      ]
    }
    const progress = Progress.start(many, { plan })
    const queued = (position: number, time: number): TurnEvent.TurnEvent => ({
      ...at(time),
      position,
      id: `${position}`,
      tool: many[position]!.name,
      _tag: "CallQueued",
      for: "keys",
      backend: undefined
    })
    const said = [queued(1, 0), queued(6, 0)].map((event) => {
      Progress.advance(progress, event)
      return Lines.ofEvent(progress, event)
    })
    assert.deepStrictEqual(said, [
      "0 ms      wait      #1 one for #0 by b",
      "0 ms      wait      #6 all for #1, #2, #3 and 2 more by a"
    ])
    const started: TurnEvent.TurnEvent = {
      ...at(40),
      position: 1,
      id: "1",
      tool: "one",
      _tag: "CallStarted",
      attempt: 1,
      backend: undefined,
      waited: { keys: 40, permit: 0, rate: 0, approval: 0 }
    }
    Progress.advance(progress, started)
    assert.strictEqual(Lines.ofEvent(progress, started), "40 ms     start     #1 one {} after 40 ms for #0")
  })

  it("says what a stop waits for, below the lines", () => {
    const progress = after(9)
    progress.awaits = true
    assert.deepStrictEqual(Lines.live(progress, 100, options).slice(-3), [
      "2 of 3 answered, 100 ms, stopping: by_caller (user)",
      "stopping: waiting for #1 book (Ctrl-C again leaves at once;",
      "whether it took effect would not be known)"
    ])
    assert.isUndefined(Lines.awaited(after(events.length)))
  })

  it("takes a late end for news, and not for an answer", () => {
    const progress = after(events.length)
    const late: TurnEvent.TurnEvent = { ...of(2000, 1), _tag: "CallSettledLate", outcome: outcomes[0]! }
    Progress.advance(progress, late)
    assert.strictEqual(progress.rows[1]!.outcome, outcomes[1])
    assert.strictEqual(Lines.ofEvent(progress, late), "1.00 s    late      #1 book ok".replace("1.00", "2.00"))
  })
})

describe("the outcomes", () => {
  it("are a table with a line for each call, and a line for all", () => {
    assert.deepStrictEqual(Lines.table(after(events.length), outcomes, { width: 90, paint: plain }).split("\n"), [
      "call       outcome            effect   again?  time    for the model",
      '#0 search  ok                 none     no      50 ms   {"n":1}',
      "#1 book    timeout (handler)  unknown  no      1.43 s  took over 9 ms",
      "#2 pay     pending_approval   not run  no              waits for a human"
    ])
    assert.strictEqual(
      Lines.summary(after(events.length), outcomes),
      "3 calls in 1.50 s: 1 ok, 1 timeout, 1 pending approval"
    )
  })

  it("show 200 characters of what the model gets where there is no terminal", () => {
    const outcome: Outcome.Outcome = { ...base(2), status: "error", code: "unknown_tool", message: "x".repeat(400) }
    const long = Lines.table(after(3), [outcome], { width: 0, paint: plain })
    assert.include(long, ` ${"x".repeat(199)}…`)
    assert.isTrue(Lines.table(after(3), [outcome], { width: 90, paint: plain }).split("\n")[1]!.length <= 90)
  })

  it("show it below where a line has no room for it", () => {
    assert.deepStrictEqual(
      Lines.table(after(events.length), outcomes, { width: 60, paint: plain }).split("\n").slice(2, 6),
      [
        "#0 search  ok                 none     no      50 ms",
        '    {"n":1}',
        "#1 book    timeout (handler)  unknown  no      1.43 s",
        "    took over 9 ms"
      ]
    )
  })

  it("have colours only where they are wanted", () => {
    const text = Lines.table(after(events.length), outcomes, { width: 90, paint: colours })
    assert.include(text, "\u001b[32mok")
    assert.include(text, "\u001b[31mtimeout")
    assert.include(text, "\u001b[33mpending_approval")
    assert.notInclude(Lines.table(after(events.length), outcomes, { width: 90, paint: plain }), "\u001b")
  })

  it("name the call that ran for a duplicate", () => {
    const twin: Outcome.Outcome = {
      ...outcomes[0]!,
      position: 1,
      duplicateOf: { position: 0, id: "a" }
    } as Outcome.Outcome
    assert.include(Lines.table(after(3), [outcomes[0]!, twin], { width: 90, paint: plain }), '[same as #0] {"n":1}')
  })
})

describe("text from models and tools", () => {
  it("cannot steer the terminal", () => {
    assert.strictEqual(
      clean("\u001b[2Jhi\u009b0m\r\nthere\u202e\ud83d"),
      "\\u001b[2Jhi\\u009b0m\\u000d\\nthere\\u202e\ufffd"
    )
    const hostile = [{ id: "\u001b]0;x\u0007", name: "\u001b[31mred" }]
    const progress = Progress.start(hostile)
    Progress.advance(progress, { ...at(0), _tag: "TurnStarted", calls: 1 })
    const outcome: Outcome.Outcome = {
      ...base(0, false),
      name: hostile[0]!.name,
      status: "error",
      code: "unknown_tool",
      message: "no tool \u001b[31mred\u001b[0m"
    }
    const shown = [Lines.table(progress, [outcome], { width: 80, paint: plain }), ...Lines.live(progress, 0, options)]
      .join("\n")
    assert.notMatch(shown.replaceAll("\n", ""), /\p{Cc}/u)
    assert.include(shown, "\\u001b[31mred")
  })

  it("is cut by columns, not by characters", () => {
    assert.strictEqual(cut("abcdef", 6), "abcdef")
    assert.strictEqual(cut("abcdefg", 6), "abcde…")
    assert.strictEqual(cut("日本語日本語", 6), "日本…")
    assert.strictEqual(cut("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 3), "👩‍👩‍👧‍👦…")
    assert.strictEqual(cut("abc", 0), "")
  })

  it("is broken at words, below its own column", () => {
    assert.strictEqual(wrap("  aaa bbb ccc\nddd", 9), "  aaa bbb\n  ccc\nddd")
    assert.strictEqual(
      wrap("  --flag TEXT    one two three four five six seven eight", 52),
      "  --flag TEXT    one two three four five six seven\n                 eight"
    )
    assert.strictEqual(wrap("  --flag TEXT    one two three four", 26), "  --flag TEXT    one two\n      three four")
    assert.strictEqual(wrap("  unbreakable", 4), "  unbreakable")
  })

  it("finds the name that was meant", () => {
    assert.strictEqual(nearest("deadlin", ["turn", "deadline", "dedupe"]), "deadline")
    assert.isUndefined(nearest("colour", ["turn", "deadline", "dedupe"]))
  })

  it("shows times and values at a glance", () => {
    assert.deepStrictEqual([0, 999, 1000, 61_500].map(duration), ["0 ms", "999 ms", "1.00 s", "1 min 2 s"])
    const circular: Record<string, unknown> = {}
    circular["self"] = circular
    assert.deepStrictEqual([undefined, "a\nb", { a: 1 }, circular].map(json), [
      "nothing",
      "a\\nb",
      '{"a":1}',
      "a value that JSON cannot hold"
    ])
  })
})

describe("a view that is drawn", () => {
  it("is put away for what others print, and is drawn again", () => {
    assert.strictEqual(between("said\n"), "said\n")
    drawn.putAway = () => "<away>"
    try {
      assert.strictEqual(between("said\n"), "<away>\u001b[?7hsaid\n\u001b[?7l")
    } finally {
      drawn.putAway = undefined
    }
  })
})
