import { assert, describe, it } from "@effect/vitest"
import { Siblings, ToolCall, ToolPolicy, Turn, TurnEvent, TurnReport } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import { displayWidth } from "effect/cli/CliOutput"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Result from "effect/Result"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { createHash } from "node:crypto"
import { script, scriptHash } from "../src/internal/turnReport/pageCode.ts"
import { call, drive, ended, fork, lab, type LabOptions, run, runWith, toolkit } from "./utils/kit.ts"

type Calls = Parameters<typeof run>[0]

/** Runs the calls in virtual time, and reports on their events, with the turn's plan or without. */
const reported = (calls: Calls, options: LabOptions & Turn.Options & { readonly planned?: boolean } = {}) =>
  Effect.gen(function*() {
    const { book, layer } = lab(options)
    const plan = yield* Effect.gen(function*() {
      const plan = options.planned === true ? yield* Turn.plan(toolkit, calls, options) : undefined
      yield* run(calls, { turn: "t", ...options, onEvent: book.note })
      return plan
    }).pipe(Effect.provide(layer), drive)
    const report = TurnReport.make(book.events, { plan: () => plan })
    assert.strictEqual(report.turns.length, 1)
    return { book, report, turn: report.turns[0]! }
  })

const spansOf = (turn: TurnReport.Turn, position: number) =>
  turn.calls[position]!.spans.map(({ from, kind, to }) => `${kind} ${from}-${to}`)

const pathOf = (turn: TurnReport.Turn) =>
  turn.path.map(({ after, from, kind, position, to }) =>
    `${position === undefined ? "" : `#${position} `}${kind} ${from}-${to}${
      after === undefined
        ? ""
        : ` ${after.cause} ${after.key ?? after.backend ?? ""} of #${after.position}${after.inferred ? "?" : ""}`
    }`
  )

describe("a turn's time", () => {
  it.effect("calls of one key wait for each other, and the plan says for what", () =>
    Effect.gen(function*() {
      const script = { one: { ms: 30 }, two: { ms: 20 }, three: { ms: 45 } }
      const calls = [call("write", "one", ["k"]), call("write", "two", ["k"]), call("read", "three", ["other"])]
      const { turn } = yield* reported(calls, { script, planned: true })
      assert.deepStrictEqual([turn.elapsed, turn.complete, turn.notes], [50, true, []])
      assert.deepStrictEqual(spansOf(turn, 0), ["running 0-30"])
      assert.deepStrictEqual(spansOf(turn, 1), ["keys 0-30", "running 30-50"])
      assert.deepStrictEqual(turn.calls[1]!.waited, { keys: 30, permit: 0, rate: 0, approval: 0 })
      assert.deepStrictEqual(turn.waits, { keys: 30, permit: 0, rate: 0, approval: 0, pause: 0 })
      assert.deepStrictEqual(pathOf(turn), ["#0 running 0-30", "#1 running 30-50 keys k of #0"])
      assert.deepStrictEqual(turn.bounds, { calls: 45, order: 50 })
      assert.deepStrictEqual(turn.counts, [{ status: "ok", count: 3 }])
      const without = (yield* reported(calls, { script })).turn
      assert.deepStrictEqual(pathOf(without), ["#0 running 0-30", "#1 running 30-50 keys  of #0?"])
      assert.deepStrictEqual(without.bounds, { calls: 45 })
      assert.include(without.notes.join(), "inferred")
    }))

  it.effect("what many reads and then many writes wait for is found through the plan's hubs", () =>
    Effect.gen(function*() {
      const calls = [
        ...Array.from({ length: 6 }, (_, i) => call("read", `r${i}`, ["k"])),
        ...Array.from({ length: 2 }, (_, i) => call("write", `w${i}`, ["k"]))
      ]
      const { turn } = yield* reported(calls, { script: { r3: { ms: 25 } }, planned: true })
      assert.deepStrictEqual(pathOf(turn), [
        "#3 running 0-25",
        "#6 running 25-35 keys k of #3",
        "#7 running 35-45 keys k of #6"
      ])
      assert.deepStrictEqual(turn.bounds, { calls: 25, order: 45 })
    }))

  it.effect("permits of a backend are waited for, and the sums stand by backend", () =>
    Effect.gen(function*() {
      const { turn } = yield* reported([call("fetch", "a"), call("fetch", "b"), call("fetch", "c")], {
        api: { concurrency: 1 },
        script: { a: { ms: 10 }, b: { ms: 20 }, c: { ms: 30 } }
      })
      assert.deepStrictEqual(spansOf(turn, 2), ["permit 0-30", "running 30-60"])
      assert.deepStrictEqual(turn.backends, [{ backend: "test/Api", calls: 3, ran: 60, permit: 40, rate: 0 }])
      assert.deepStrictEqual(pathOf(turn), [
        "#0 running 0-10",
        "#1 running 10-30 permit test/Api of #0?",
        "#2 running 30-60 permit test/Api of #1?"
      ])
      assert.deepStrictEqual(turn.bounds, { calls: 30 })
    }))

  it.effect("the turn's own limit has no backend", () =>
    Effect.gen(function*() {
      const { turn } = yield* reported([call("read", "a"), call("read", "b")], { execution: 1 })
      assert.deepStrictEqual(pathOf(turn), ["#0 running 0-10", "#1 running 10-20 permit  of #0?"])
      assert.deepStrictEqual(turn.backends, [])
    }))

  it.effect("the rate of a backend stands by itself", () =>
    Effect.gen(function*() {
      const { turn } = yield* reported([call("fetch", "a"), call("fetch", "b")], {
        api: { concurrency: "infinite", rate: { limit: 1, window: "1 second" } }
      })
      const [, second] = turn.calls
      assert.isAbove(second!.waited.rate, 0)
      assert.strictEqual(turn.waits.rate, second!.waited.rate)
      assert.strictEqual(turn.backends[0]!.rate, second!.waited.rate)
      assert.deepStrictEqual(spansOf(turn, 1), [
        `rate 0-${second!.waited.rate}`,
        `running ${second!.waited.rate}-${turn.elapsed}`
      ])
      assert.deepStrictEqual(turn.path.map(({ kind }) => kind), ["rate", "running"])
    }))

  it.effect("attempts, and the pauses between them", () =>
    Effect.gen(function*() {
      const flaky = pipe(
        Tool.make("flaky", { success: Schema.String, failure: Schema.String }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.retry({ times: 2, schedule: Schedule.spaced(100), while: () => true, jitter: false })
      )
      const events: Array<TurnEvent.TurnEvent> = []
      let runs = 0
      const handler = () =>
        Effect.andThen(Effect.sleep(10), Effect.suspend(() => ++runs < 3 ? Effect.fail("no") : Effect.succeed("yes")))
      const onEvent = (event: TurnEvent.TurnEvent) => void events.push(event)
      yield* drive(runWith([flaky], { flaky: handler }, [ToolCall.make("1", "flaky")], { onEvent }))
      const [turn] = TurnReport.make(events).turns
      assert.deepStrictEqual(turn!.calls[0]!.spans, [
        { kind: "running", from: 0, to: 10, attempt: 1 },
        { kind: "pause", from: 10, to: 110 },
        { kind: "running", from: 110, to: 120, attempt: 2 },
        { kind: "pause", from: 120, to: 220 },
        { kind: "running", from: 220, to: 230, attempt: 3 }
      ])
      assert.deepStrictEqual([turn!.calls[0]!.attempts, turn!.calls[0]!.ran, turn!.waits.pause], [3, 30, 200])
      assert.deepStrictEqual(turn!.path.map(({ attempt, kind }) => [kind, attempt]), [
        ["running", 1],
        ["pause", undefined],
        ["running", 2],
        ["pause", undefined],
        ["running", 3]
      ])
    }))

  it.effect("what took effect waits for its unit, and is undone", () =>
    Effect.gen(function*() {
      const Params = Schema.Struct({ ms: Schema.Finite, fails: Schema.optionalKey(Schema.Boolean) })
      const book = pipe(
        Tool.make("book", { parameters: Params, success: Schema.String, failure: Schema.String }),
        ToolPolicy.write({ keys: () => [] }),
        ToolPolicy.undo(() => Effect.sleep(5))
      )
      const events: Array<TurnEvent.TurnEvent> = []
      const handler = ({ fails, ms }: typeof Params.Type) =>
        Effect.andThen(Effect.sleep(ms), fails === true ? Effect.fail("full") : Effect.succeed("booked"))
      const calls = [ToolCall.make("1", "book", { ms: 10 }), ToolCall.make("2", "book", { ms: 30, fails: true })]
      yield* drive(
        runWith([book], { book: handler }, calls, {
          siblings: Siblings.allOrNothing,
          onEvent: (event) => void events.push(event)
        })
      )
      const [turn] = TurnReport.make(events).turns
      assert.deepStrictEqual(spansOf(turn!, 0), ["running 0-10", "unit 10-35"])
      assert.strictEqual(turn!.calls[0]!.undo, "done")
      assert.strictEqual(turn!.elapsed, 35)
    }))

  it.effect("a held call waits for a human to the end, a duplicate for its twin", () =>
    Effect.gen(function*() {
      const { turn } = yield* reported([call("pay", "paid"), call("read", "one")])
      assert.deepStrictEqual(spansOf(turn, 0), ["approval 0-10"])
      assert.strictEqual(turn.waits.approval, 10)
      const twins =
        (yield* reported([call("write", "first"), call("read", "one", ["a"]), call("read", "one", ["a"], { id: "b" })]))
          .turn
      assert.deepStrictEqual(spansOf(twins, 2), ["twin 0-10"])
      assert.strictEqual(twins.calls[2]!.duplicateOf, 1)
    }))

  it.effect("a write that is overdue is awaited; what is given up on ends late, when the turn is over", () =>
    Effect.gen(function*() {
      const { turn } = yield* reported([call("write", "slow")], { script: { slow: { ms: 30_000 } }, grace: 500 })
      assert.deepStrictEqual(spansOf(turn, 0), ["running 0-10000", "overdue 10000-10500", "late 10500-30000"])
      assert.deepStrictEqual(turn.calls[0]!.late, { at: 30_000, status: "ok" })
      assert.deepStrictEqual([turn.elapsed, turn.unsettled, turn.calls[0]!.ran], [10_500, 0, 10_500])
    }))

  it.effect("a stop is told, with what it cut", () =>
    Effect.gen(function*() {
      const { turn } = yield* reported([call("read", "a"), call("write", "b", ["k"]), call("write", "c", ["k"])], {
        script: { a: { ms: 100 }, b: { ms: 60 } },
        deadline: 50
      })
      assert.deepStrictEqual(turn.stopped, { at: 50, code: "by_deadline" })
      assert.deepStrictEqual(spansOf(turn, 2), ["keys 0-50"])
      assert.strictEqual(turn.calls[2]!.waited.keys, 50)
      assert.deepStrictEqual(pathOf(turn), ["#1 running 0-60"])
      assert.include(TurnReport.print({ version: 1, turns: [turn], notes: [] }), "stopped at 50 ms (by_deadline)")
    }))

  it.effect("calls that come one by one begin when they came", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const turn = yield* Turn.open(toolkit, { onEvent: book.note })
        yield* TestClock.adjust(40)
        yield* turn.submit(call("read", "early"))
        yield* TestClock.adjust(25)
        const end = yield* fork(turn.end("tool-calls"))
        yield* TestClock.adjust(100)
        yield* ended(end)
      }).pipe(Effect.scoped, Effect.provide(layer))
      const [turn] = TurnReport.make(book.events).turns
      assert.deepStrictEqual([turn!.calls[0]!.from, turn!.calls[0]!.to], [40, 50])
      assert.deepStrictEqual(pathOf(turn!), ["#0 submitted 0-40", "#0 running 40-50", "closing 50-65"])
    }))
})

const base = (at: number, turn = "t") => ({ turn, at })
const of = (position: number, at: number, turn = "t", tool = "look") => ({
  turn,
  at,
  position,
  id: `c${position}`,
  tool
})
const starts = (position: number, at: number, turn = "t"): TurnEvent.CallStarted => ({
  ...of(position, at, turn),
  _tag: "CallStarted",
  attempt: 1,
  backend: "maps",
  waited: { keys: 0, permit: 0, rate: 0, approval: 0 }
})
const ends = (position: number, at: number, turn = "t") =>
  ({
    ...of(position, at, turn),
    _tag: "CallEnded",
    outcome: {
      position,
      id: `c${position}`,
      name: "look",
      status: "ok",
      effect: "none",
      started: true,
      retryable: false,
      message: ""
    }
  }) as TurnEvent.CallEnded

describe("events that are not all there", () => {
  it.each([false, true])(
    "the wall clock tells whole milliseconds and goes on between two events: who was waited for is found all the same (plan: %s)",
    (planned) => {
      const base = { turn: "t" }
      const of = (position: number) => ({ ...base, position, id: `c${position}`, tool: "edit" })
      const ok = (position: number) => ({
        position,
        id: `c${position}`,
        name: "edit",
        status: "ok",
        started: true,
        effect: "applied",
        retryable: false,
        message: "",
        result: 1,
        encoded: 1
      })
      const waited = (keys: number) => ({ keys, permit: 0, rate: 0, approval: 0 })
      const start = (position: number, at: number, keys: number) => ({
        ...of(position),
        _tag: "CallStarted",
        at,
        attempt: 1,
        backend: undefined,
        waited: waited(keys)
      })
      const end = (position: number, at: number) => ({ ...of(position), _tag: "CallEnded", at, outcome: ok(position) })
      const events = [
        { ...base, _tag: "TurnStarted", at: 100, calls: 3 },
        { ...of(1), _tag: "CallQueued", at: 101, for: "keys", backend: undefined },
        { ...of(2), _tag: "CallQueued", at: 101, for: "keys", backend: undefined },
        start(0, 102, 0),
        end(0, 116),
        start(1, 117, 17.138),
        end(1, 128),
        start(2, 128, 27.87),
        end(2, 140),
        { ...base, _tag: "TurnEnded", at: 140, unsettled: 0 }
      ] as unknown as ReadonlyArray<TurnEvent.TurnEvent>
      const edges = [{ from: 0, to: 1, key: "file" }, { from: 1, to: 2, key: "reference" }]
      const { turns: [turn] } = TurnReport.make(events, planned ? { plan: () => ({ edges }) } : {})
      assert.deepStrictEqual(turn!.waits.keys, 17.138 + 27.87)
      assert.deepStrictEqual(pathOf(turn!), [
        "#0 starting 0-2",
        "#0 running 2-16",
        `#1 keys 16-17 keys ${planned ? "file of #0" : " of #0?"}`,
        "#1 running 17-28",
        `#2 running 28-40 keys ${planned ? "reference of #1" : " of #1?"}`
      ])
      if (planned) {
        assert.include(TurnReport.print({ version: 1, turns: [turn!], notes: [] } as any), "for the result of #1")
      }
    }
  )

  it("a program that died leaves calls without an answer, and the report says so", () => {
    const report = TurnReport.make([
      { ...base(100), _tag: "TurnStarted", calls: 3, tenant: "north", conversation: "c" },
      starts(0, 100),
      starts(1, 100),
      ends(1, 130),
      { ...of(0, 160), _tag: "CallProgressed", result: 1 }
    ])
    const [turn] = report.turns
    assert.deepStrictEqual([turn!.complete, turn!.elapsed, turn!.start], [false, 60, 100])
    assert.deepStrictEqual(turn!.notes, [
      "of 3 calls 1 are in no event",
      "there is no TurnEnded: the program ended before it, or the events were kept up to here alone",
      "1 call without an answer"
    ])
    assert.deepStrictEqual([turn!.calls[0]!.status, turn!.calls[0]!.to, turn!.calls[0]!.progress], [
      undefined,
      undefined,
      1
    ])
    assert.deepStrictEqual(spansOf(turn!, 0), ["running 0-60"])
    assert.deepStrictEqual(pathOf(turn!), ["#0 running 0-60"])
    assert.isUndefined(turn!.bounds)
    const text = TurnReport.print(report)
    assert.include(text, "turn t (tenant north, conversation c)")
    assert.include(text, "no answer (started)")
    assert.include(text, "2 calls in 60 ms, as far as the events go: 1 ok")
  })

  it("a log that begins late, and events that were lost", () => {
    const report = TurnReport.make([
      { ...starts(1, 100), waited: { keys: 30, permit: 5, rate: 0, approval: 0 } },
      ends(1, 120)
    ], {
      lost: 2,
      notes: ["from elsewhere"]
    })
    assert.deepStrictEqual(report.notes, ["from elsewhere", "2 events were lost, the oldest first"])
    assert.deepStrictEqual([report.turns[0]!.start, report.turns[0]!.elapsed], [65, 55])
    assert.deepStrictEqual(spansOf({ ...report.turns[0]!, calls: report.turns[0]!.calls }, 0), [
      "keys 0-30",
      "permit 30-35",
      "running 35-55"
    ])
    assert.include(report.turns[0]!.notes.join(), "no TurnStarted")
    assert.throws(() => TurnReport.make([], { lost: -1 }), /"lost" must be a whole number from 0/)
    assert.deepStrictEqual(TurnReport.make([]).turns, [])
    assert.strictEqual(TurnReport.print(TurnReport.make([])), "no turns")
  })

  it("several turns in one log have a report each, also one that was resumed under its id", () => {
    const whole = (turn: string, at: number): ReadonlyArray<TurnEvent.TurnEvent> => [
      { ...base(at, turn), _tag: "TurnStarted", calls: 1 },
      starts(0, at, turn),
      ends(0, at + 10, turn),
      { ...base(at + 10, turn), _tag: "TurnEnded", unsettled: 0 }
    ]
    const [a, b] = [whole("a", 0), whole("b", 5)]
    const mixed = [a[0]!, b[0]!, a[1]!, b[1]!, a[2]!, b[2]!, a[3]!, b[3]!, ...whole("a", 100)]
    const report = TurnReport.make(mixed)
    assert.deepStrictEqual(report.turns.map(({ elapsed, start, turn }) => [turn, start, elapsed]), [["a", 0, 10], [
      "b",
      5,
      10
    ], [
      "a",
      100,
      10
    ]])
    assert.isTrue(report.turns.every(({ complete }) => complete))
  })

  it("redacted events give the same report", () =>
    Effect.gen(function*() {
      const { book } = yield* reported([call("read", "a"), call("fetch", "b")])
      assert.deepStrictEqual(TurnReport.make(book.events.map(TurnEvent.redact)), TurnReport.make(book.events))
    }).pipe(Effect.provide(TestClock.layer()), Effect.runPromise))

  it("requests, cuts and late ends are told", () => {
    const report = TurnReport.make([
      { ...base(0), _tag: "TurnStarted", calls: 2 },
      starts(0, 0),
      starts(1, 0),
      { ...base(0), _tag: "RequestSent", request: 0, into: "stocks", positions: [0, 1], items: 3, backend: "shop" },
      { ...base(20), _tag: "RequestEnded", request: 0, into: "stocks", ok: 2 },
      { ...base(20), _tag: "RequestEnded", request: 9, into: "stocks", ok: 2 },
      ends(0, 20),
      ends(1, 20),
      { ...of(1, 25), _tag: "ResultCut", of: 900, to: 100, artifact: "art-1" },
      { ...base(25), _tag: "TurnEnded", unsettled: 0 }
    ])
    const [turn] = report.turns
    assert.deepStrictEqual(turn!.requests, [
      { request: 0, into: "stocks", positions: [0, 1], items: 3, backend: "shop", from: 0, to: 20, ok: 2 }
    ])
    assert.deepStrictEqual(turn!.calls[1]!.cut, { of: 900, to: 100, artifact: "art-1" })
    assert.deepStrictEqual(pathOf(turn!), ["#0 running 0-20", "closing 20-25"])
    assert.include(TurnReport.print(report), "stocks on shop: 3 for 2 calls, 20 ms, 2 found")
    assert.include(TurnReport.toHtml(report), "0 stocks")
  })
})

describe("as text", () => {
  it.effect("a line for each call, the waits and the path", () =>
    Effect.gen(function*() {
      const { report } = yield* reported([
        call("write", "one", ["k"]),
        call("write", "two", ["k"]),
        call("fetch", "a"),
        call("fetch", "b"),
        call("fetch", "a")
      ], { api: { concurrency: 1 }, script: { one: { ms: 30 }, two: { ms: 20 } }, planned: true })
      const lines = TurnReport.print(report, { width: 72 }).split("\n")
      assert.deepStrictEqual(lines, [
        "turn t",
        "5 calls in 50 ms: 5 ok",
        "",
        "  call      0                       50 ms  waited    ran  outcome",
        "* #0 write  ██████████████████                     30 ms  ok",
        "* #1 write  ░░░░░░░░░░░░░░░░░████████████   30 ms  20 ms  ok",
        "  #2 fetch  ██████                                 10 ms  ok",
        "  #3 fetch  ░░░░░███████                    10 ms  10 ms  ok",
        "  #4 fetch  ░░░░░░                                        ok, same as #2",
        "  ░ waits   █ runs   * on the critical path",
        "",
        "waits of all calls: keys 30 ms, permits 10 ms",
        "  test/Api: permits 10 ms",
        "",
        "critical path, 50 ms: ran 100%",
        "  30 ms  #0 write ran",
        "  20 ms  #1 write ran, after k of #0",
        "",
        "as long as each call takes what it took",
        "  in this order, without limits: at least 50 ms, so nothing to save",
        "  without order and limits: at least 30 ms, so at most 20 ms to save"
      ])
      assert.include(TurnReport.print(report, { width: 60, ascii: true }), "* #1 write  ....")
    }))

  it("fits its width whatever the names are, and none of them steers a terminal", () => {
    const hostile = "\u001b[31m\u202e日本語の道具😀</script>\n".repeat(4)
    const report = TurnReport.make([
      { ...base(0, hostile), _tag: "TurnStarted", calls: 1, tenant: hostile, conversation: hostile },
      { ...starts(0, 0, hostile), tool: hostile, id: hostile, backend: hostile },
      { ...ends(0, 20, hostile), tool: hostile, id: hostile }
    ])
    for (const ascii of [true, false]) {
      for (const width of [40, 60, 100]) {
        const text = TurnReport.print(report, { width, ascii })
        assert.notMatch(text, /[\u0000-\u0009\u000b-\u001f\u202e]/)
        for (const line of text.split("\n")) assert.isAtMost(displayWidth(line), width, line)
      }
    }
    assert.isAtMost(Math.max(...TurnReport.print(report, { width: 3 }).split("\n").map(displayWidth)), 40)
  })
})

describe("reading", () => {
  const line = JSON.stringify(starts(0, 1))

  it("events of turns and of agents, lists and lines; what is not known is passed over", () => {
    const own = JSON.stringify({ _tag: "StepEnded", agent: "a", at: 1, step: {} })
    const later = JSON.stringify({ _tag: "CallDreamt", turn: "t", at: 1 })
    const read = Result.getOrThrow(TurnReport.read(`\ufeff${line}\r\n\n${own}\n${later}\n{"_tag":"Call`))
    assert.deepStrictEqual(read, {
      events: [starts(0, 1)],
      notes: ["line 5, the last one, is cut: read up to there", "1 event of a kind that is not known: passed over"]
    })
    assert.strictEqual(Result.getOrThrow(TurnReport.read(`[${line},\n${line}]`)).events.length, 2)
    assert.strictEqual(Result.getOrThrow(TurnReport.read(JSON.stringify(starts(0, 1), null, 2))).events.length, 1)
  })

  it("fails with the place, what was expected and what came", () => {
    const reasons = (text: string) => {
      const read = TurnReport.read(text)
      if (Result.isSuccess(read) || read.failure.reason._tag !== "InvalidMessage") return assert.fail("it was read")
      const { expected, path, received } = read.failure.reason
      return [path, expected, received]
    }
    assert.deepStrictEqual(reasons(""), ["", "JSON, or JSON lines", "nothing"])
    assert.deepStrictEqual(reasons("{}"), ["/_tag", "the tag of an event", "nothing"])
    assert.deepStrictEqual(reasons('{"_tag":"Other"}'), ["", "events of turns", "none: 1 object of other kinds"])
    assert.deepStrictEqual(reasons("[]"), ["", "events of turns", "none"])
    assert.deepStrictEqual(reasons(`${line}\n7`), ["line 2", "an event, with its `_tag`", "7"])
    assert.deepStrictEqual(reasons(`${line}\n{"_tag":"TurnReported"}`), [
      "line 2, /event",
      "the event of a turn",
      "nothing"
    ])
    assert.deepStrictEqual(reasons(`${line}\n${line.replace('"keys":0', '"keys":"x"')}`), [
      "line 2, /waited/keys",
      "a number",
      '"x"'
    ])
    assert.deepStrictEqual(reasons(`[${line.replace('"position":0', '"position":-1')}]`), [
      "/0/position",
      "a whole number from 0",
      "-1"
    ])
    const ended = JSON.stringify(ends(0, 1)).replace('"ok"', '"fine"')
    assert.deepStrictEqual(reasons(`${line}\n${ended}`), [
      "line 2, /outcome/status",
      "the status of an outcome",
      '"fine"'
    ])
    assert.include(reasons(`${line}\n{"a":\n${line}`)![1], "a line of JSON")
  })
})

describe("the page", () => {
  it("is of this script alone, and nothing of the events is markup", () => {
    assert.strictEqual(scriptHash, `sha256-${createHash("sha256").update(script).digest("base64")}`)
    const hostile = `</script><img src=x onerror="document.title='pwned'">`
    const report = TurnReport.make([
      { ...base(0, hostile), _tag: "TurnStarted", calls: 1, tenant: hostile, conversation: hostile },
      { ...starts(0, 0, hostile), tool: hostile, id: hostile, backend: hostile },
      {
        ...base(5, hostile),
        _tag: "RequestSent",
        request: 0,
        into: hostile,
        positions: [0],
        items: 1,
        backend: hostile
      },
      { ...base(9, hostile), _tag: "TurnStopped", code: "by_caller", reason: hostile },
      { ...ends(0, 20, hostile), tool: hostile, id: hostile }
    ], { notes: [hostile] })
    const page = TurnReport.toHtml(report)
    assert.include(page, `script-src '${scriptHash}'`)
    assert.include(page, "default-src 'none'")
    assert.notInclude(page, "<img")
    assert.strictEqual(page.match(/<\/script>/g)!.length, 2)
    assert.notMatch(page, /(?:src|href)="(?!#)/)
    assert.notInclude(TurnReport.toHtml(TurnReport.make([])), "<script")
  })
})
