/** What holds of every report, whatever the turn, and whatever is left of its events. */
import { assert, describe, it } from "@effect/vitest"
import { type TurnEvent, TurnReport } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { int, pick, runs } from "../utils/gen.ts"
import { eventsOf, someTurn } from "./turns.ts"

const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((a, b) => a + b, 0)

/** N1: spans follow each other without a gap, from where the call came to its answer. */
const checkSpans = (turn: TurnReport.Turn) => {
  for (const { from, late, spans, to } of turn.calls) {
    const before = spans.filter(({ kind }) => kind !== "late")
    let cursor = from
    for (const span of before) {
      assert.strictEqual(span.from, cursor)
      assert.isAtLeast(span.to, span.from)
      cursor = span.to
    }
    assert.strictEqual(cursor, to ?? turn.elapsed)
    assert.isAtLeast(from, 0)
    assert.isAtMost(cursor, turn.elapsed)
    if (late !== undefined && to !== undefined && late.at > to) {
      assert.deepStrictEqual(spans.at(-1), { kind: "late", from: to, to: late.at })
    }
  }
}

/** N3: links follow each other without a gap, and every link of a call is what the call does then. */
const checkPath = (turn: TurnReport.Turn) => {
  const { calls, elapsed, path } = turn
  let cursor = 0
  for (const [i, link] of path.entries()) {
    assert.strictEqual(link.from, cursor)
    assert.isAtLeast(link.to, link.from)
    cursor = link.to
    if (link.after !== undefined) assert.strictEqual(path[i - 1]?.position, link.after.position)
    if (link.position === undefined || link.kind === "submitted" || link.to === link.from) continue
    const spans = calls.find(({ position }) => position === link.position)!.spans
    assert.isTrue(spans.some(({ from, kind, to }) => kind === link.kind && from <= link.from && link.to <= to))
  }
  assert.strictEqual(cursor, elapsed)
  assert.strictEqual(sum(path.map(({ from, to }) => to - from)), elapsed)
}

const decode = Schema.decodeUnknownSync(TurnReport.Report)

/** What is said of a report holds of its JSON, and its text and its page can be made. */
const checkForms = (report: TurnReport.Report) => {
  assert.deepStrictEqual(decode(JSON.parse(JSON.stringify(report))), report)
  for (const width of [40, 71, 100]) {
    for (const line of TurnReport.print(report, { width }).split("\n")) assert.isAtMost([...line].length, width)
  }
  const page = TurnReport.toHtml(report)
  assert.isTrue(page.startsWith("<!doctype html>"))
}

describe("a report", () => {
  const seen = new Set<string>()

  it.effect.prop(
    "names every moment of every call, waits as the events say, and explains the length of the turn",
    { one: someTurn, planned: pick(true, false) },
    ({ one, planned }) =>
      Effect.map(eventsOf(one), ({ events, plan }) => {
        const report = TurnReport.make(events, { plan: () => planned ? plan : undefined })
        const [turn] = report.turns
        assert.strictEqual(report.turns.length, 1)
        assert.isTrue(turn!.complete)
        assert.deepStrictEqual(turn!.calls.map(({ position }) => position), one.specs.map((_, i) => i))
        checkSpans(turn!)
        checkPath(turn!)
        checkForms(report)

        // N2: what they waited is what they were started with.
        for (const call of turn!.calls) {
          const starts = events.filter((event) => event._tag === "CallStarted" && event.position === call.position)
          assert.strictEqual(call.attempts, starts.length)
          for (const cause of ["keys", "permit", "rate"] as const) {
            const spans = sum(call.spans.filter(({ kind }) => kind === cause).map(({ from, to }) => to - from))
            assert.strictEqual(call.waited[cause], spans, cause)
            if (starts.length > 0) {
              assert.strictEqual(
                call.waited[cause],
                sum(starts.map((event) => (event as TurnEvent.CallStarted).waited[cause]))
              )
            }
          }
        }
        for (const cause of ["keys", "permit", "rate", "approval"] as const) {
          assert.strictEqual(turn!.waits[cause], sum(turn!.calls.map(({ waited }) => waited[cause])))
        }
        assert.strictEqual(sum(turn!.counts.map(({ count }) => count)), one.specs.length)
        const { bounds } = turn!
        assert.isAtMost(bounds!.calls, bounds!.order ?? turn!.elapsed)
        assert.isAtMost(bounds!.order ?? 0, turn!.elapsed)
        assert.strictEqual(bounds!.order !== undefined, planned)

        for (const { spans } of turn!.calls) for (const { kind } of spans) seen.add(kind)
        for (const { after, kind } of turn!.path) {
          seen.add(`link ${kind}`)
          if (after !== undefined) seen.add(`${after.cause}${after.inferred ? " inferred" : ""}`)
        }
        if (turn!.stopped !== undefined) seen.add("stopped")
      }),
    runs(500)
  )

  it("there were turns with all that is told", () => {
    const kinds = ["keys", "permit", "rate", "approval", "twin", "running", "overdue", "late", "starting"]
    const links = ["link running", "link rate", "link permit", "link keys"]
    const after = ["keys", "keys inferred", "permit inferred", "twin"]
    assert.deepStrictEqual([...kinds, ...links, ...after, "stopped"].filter((kind) => !seen.has(kind)), [])
  })

  it.effect.prop(
    "is made of whatever part of the events is there, in any order, and says what is missing",
    {
      one: someTurn,
      from: int(0, 12),
      length: int(1, 40),
      mixed: pick(false, false, true),
      holes: Arbitrary.array(int(0, 30), { maxLength: 3 })
    },
    ({ from, holes, length, mixed, one }) =>
      Effect.map(eventsOf(one), ({ events, plan }) => {
        const part = events.slice(from, from + length).filter((_, i) => !holes.includes(i))
        const given = mixed ? part.toReversed() : part
        const report = TurnReport.make(given, { plan: () => plan })
        for (const turn of report.turns) {
          checkSpans(turn)
          checkPath(turn)
          const has = (tag: TurnEvent.TurnEvent["_tag"]) => given.some((event) => event._tag === tag)
          if (!has("TurnStarted")) assert.include(turn.notes.join(), "no TurnStarted")
          if (!has("TurnEnded")) assert.include(turn.notes.join(), "no TurnEnded")
          if (!has("TurnStarted") || !has("TurnEnded")) assert.isFalse(turn.complete)
        }
        checkForms(report)
      }),
    runs(300)
  )

  it.effect.prop(
    "is the same of events that were written down and read again",
    { one: someTurn },
    ({ one }) =>
      Effect.map(eventsOf(one), ({ events }) => {
        const lines = events.map((event) => JSON.stringify({ _tag: "TurnReported", agent: "a", at: 0, event })).join(
          "\n"
        )
        const read = Result.getOrThrow(TurnReport.read(lines))
        assert.deepStrictEqual(read.notes, [])
        assert.deepStrictEqual(TurnReport.make(read.events), TurnReport.make(events))
        const list = Result.getOrThrow(TurnReport.read(JSON.stringify(events)))
        assert.deepStrictEqual(TurnReport.make(list.events), TurnReport.make(events))
      }),
    runs(100)
  )
})
