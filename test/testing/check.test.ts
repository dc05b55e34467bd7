import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import type * as FakeTool from "../../src/testing/FakeTool.ts"
import type * as Laws from "../../src/testing/Laws.ts"
import * as Check from "../../src/testing/scenario/check.ts"
import * as Expect from "../../src/testing/scenario/expect.ts"
import type * as Report from "../../src/testing/scenario/report.ts"
import * as Schema from "../../src/testing/scenario/schema.ts"

// A run that keeps every rule, and changes to it that each break one. The checker has to see the change and nothing else.

const scenarioOf = (changes: object = {}): Schema.Scenario =>
  Result.getOrThrow(Schema.read({
    name: "doctored",
    why: "The checker has to find what is wrong.",
    tools: {
      look: { access: "read", keys: ["hotel:{id}"], backend: "hotels" },
      book: { access: "write", keys: ["hotel:{id}"] },
      move: { access: "write", keys: ["file:{path}"] },
      shell: {},
      agent: { access: "write", keys: ["hotel:{id}"] }
    },
    backends: { hotels: { concurrency: 2 } },
    turns: [{
      calls: [{ id: "a", name: "look", arguments: { id: 1 } }, { id: "b", name: "book", arguments: { id: 1 } }]
    }],
    expect: {},
    ...changes
  }))

const runOf = (changes: Partial<FakeTool.Run>): FakeTool.Run => ({
  tool: "look",
  access: "read",
  backend: undefined,
  params: { id: 1 },
  turn: "turn-0",
  tenant: "default",
  position: 0,
  id: "a",
  attempt: 1,
  idempotencyKey: undefined,
  parent: undefined,
  began: 0,
  startedAt: 0,
  ended: 1,
  endedAt: 10,
  end: "ok",
  effectAt: undefined,
  ...changes
})

const look = runOf({ backend: "hotels" })
const book = runOf({
  tool: "book",
  access: "write",
  position: 1,
  id: "b",
  began: 2,
  startedAt: 10,
  ended: 3,
  endedAt: 20,
  effectAt: 20
})

const answerOf = (position: number, outcome: Partial<Laws.ReportedOutcome>, model: unknown = {}): Laws.Answer => ({
  position,
  model,
  outcome: { id: "a", status: "ok", started: true, effect: "none", retryable: false, result: {}, ...outcome }
})

const answers = [answerOf(0, {}), answerOf(1, { id: "b", effect: "applied" })]

const turnOf = (changes: Partial<Report.ObservedTurn> = {}): Report.ObservedTurn => ({
  id: "turn-0",
  calls: scenarioOf().turns[0]!.calls!,
  startedAt: 0,
  answers,
  answeredAt: 20,
  answered: 4,
  stops: [],
  repeats: undefined,
  ...changes
})

const observedOf = (changes: Partial<Report.Observed> = {}): Report.Observed => ({
  turns: [turnOf()],
  runs: [look, book],
  requests: [],
  requestsTo: {},
  executions: { look: 1, book: 1 },
  effects: { book: 1 },
  peak: { hotels: 1 },
  permitsOut: { hotels: 0 },
  permitsAtEnd: { hotels: 0 },
  faults: [],
  ...changes
})

const rules = (observed: Report.Observed, changes?: object) => Check.rules(scenarioOf(changes), observed)

describe("rules that always hold", () => {
  it("finds nothing in a run that keeps them", () => assert.deepStrictEqual(rules(observedOf()), []))

  it("finds a lost outcome", () =>
    assert.deepStrictEqual(rules(observedOf({ turns: [turnOf({ answers: [answers[0]!] })] })), [
      "R1: turn 0: expected one outcome for each of 2 calls, got 1"
    ]))

  it("finds outcomes in another order than the calls", () =>
    assert.deepStrictEqual(rules(observedOf({ turns: [turnOf({ answers: [answers[1]!, answers[0]!] })] })), [
      'R1: turn 0, call 0: expected the outcome of "a", got that of "b" (call 1)',
      'R1: turn 0, call 1: expected the outcome of "b", got that of "a" (call 0)'
    ]))

  it("finds an outcome in another's place under the same id", () =>
    assert.deepStrictEqual(
      rules(observedOf({ turns: [turnOf({ answers: [{ ...answers[0]!, position: 1 }, answers[1]!] })] })),
      ['R1: turn 0, call 0: expected the outcome of "a", got that of "a" (call 1)']
    ))

  it("passes on what went wrong with the run itself", () =>
    assert.deepStrictEqual(rules(observedOf({ faults: ["R1: turn-0: expected an answer"] })), [
      "R1: turn-0: expected an answer"
    ]))

  it("finds a started call that is told as not started", () =>
    assert.deepStrictEqual(
      rules(observedOf({ turns: [turnOf({ answers: [answerOf(0, { started: false }), answers[1]!] })] })),
      ['R3: turn 0, call 0 ("a"): its handler was started, and its outcome says that it was not']
    ))

  it("finds an effect that is told as none", () =>
    assert.deepStrictEqual(
      rules(observedOf({ turns: [turnOf({ answers: [answers[0]!, answerOf(1, { id: "b", effect: "none" })] })] })),
      ['R3: turn 0, call 1 ("b"): its effect landed, and its outcome says that there was none']
    ))

  it("takes a call that left a shared run as answered by itself", () => {
    const left = answerOf(1, { id: "b", status: "cancelled", started: false })
    const stayed = answerOf(0, { duplicateOf: "b" })
    assert.deepStrictEqual(rules(observedOf({ turns: [turnOf({ answers: [stayed, left] })] })), [])
  })

  it("finds a handler still at work after the answer", () =>
    assert.deepStrictEqual(rules(observedOf({ runs: [look, { ...book, ended: 5, endedAt: 30 }] })), [
      'R17: "b" (book) of turn 0 was still at work after the turn\'s answer at 20 ms'
    ]))

  it("finds a handler that never ended", () =>
    assert.deepStrictEqual(rules(observedOf({ runs: [look, { ...book, ended: undefined, endedAt: undefined }] })), [
      'R17: "b" (book) of turn 0 was still at work after the turn\'s answer at 20 ms'
    ]))

  it("finds a handler that was started after the answer", () =>
    assert.deepStrictEqual(
      rules(observedOf({ runs: [look, { ...book, began: 5, startedAt: 30, ended: 6, endedAt: 40 }] })),
      [
        'R17: "b" (book) of turn 0 was started after the turn\'s answer'
      ]
    ))

  it("allows work after the answer only when the grace had run out", () => {
    const late = observedOf({ runs: [look, { ...book, ended: 5, endedAt: 99 }], turns: [turnOf({ stops: [10] })] })
    assert.deepStrictEqual(rules(late, { policy: { graceMs: 10 } }), [])
    assert.deepStrictEqual(rules(late, { policy: { graceMs: 11 } }), [
      'R20: "b" (book) of turn 0 was still at work after the turn\'s answer at 20 ms, and its grace of 11 ms had not run out'
    ])
    const unstopped = observedOf({ runs: [look, { ...book, ended: 5, endedAt: 99 }] })
    assert.strictEqual(rules(unstopped, { policy: { graceMs: 1 } }).length, 1)
    assert.deepStrictEqual(rules(unstopped, { policy: { graceMs: 5, deadlineMs: 15 } }), [])
  })

  it("does not count what given-up work runs inside twice", () => {
    const outer = { ...book, ended: 9, endedAt: 99 }
    const inner = { ...look, turn: "turn-0/1.1", parent: outer, began: 6, startedAt: 30, ended: 7, endedAt: 40 }
    const late = observedOf({ runs: [look, outer, inner], turns: [turnOf({ stops: [10] })] })
    assert.deepStrictEqual(rules(late, { policy: { graceMs: 10 } }), [])
    assert.strictEqual(rules(late).length, 1)
  })

  it("finds a lost permit, at the answer and at the end", () => {
    assert.deepStrictEqual(rules(observedOf({ permitsOut: { hotels: 1 } })), [
      'R14: backend "hotels", when the last turn was answered: expected at most 0 permits out, one for each handler at work, got 1'
    ])
    assert.deepStrictEqual(rules(observedOf({ permitsAtEnd: { hotels: 2 } })), [
      'R14: backend "hotels", when nothing more happened: expected at most 0 permits out, one for each handler at work, got 2'
    ])
  })

  it("allows the permit of a handler that the grace left at work, until it ends", () => {
    const left = { ...look, ended: undefined, endedAt: undefined }
    const observed = observedOf({
      runs: [left],
      turns: [turnOf({
        stops: [0],
        answers: [
          answers[0]!,
          answerOf(1, { id: "b", status: "cancelled", code: "by_caller", started: false, effect: "none" })
        ]
      })],
      permitsOut: { hotels: 1 },
      permitsAtEnd: { hotels: 1 }
    })
    assert.deepStrictEqual(rules(observed, { policy: { graceMs: 20 } }), [])
    assert.strictEqual(
      rules({ ...observed, runs: [{ ...look, ended: 9, endedAt: 50 }] }, { policy: { graceMs: 20 } }).length,
      1
    )
  })

  it("finds the overlap of a conflicting pair, also within an instant", () => {
    assert.deepStrictEqual(
      rules(observedOf({ runs: [{ ...look, ended: 3, endedAt: 12 }, { ...book, began: 2, ended: 3.5 }] })),
      [
        'R12: "a" (look) of turn 0 and "b" (book) of turn 0 conflict on "hotel:1", and ran at the same time from 10 ms'
      ]
    )
    assert.strictEqual(
      rules(observedOf({ runs: [{ ...look, ended: 3 }, { ...book, began: 2, ended: 3.5 }] })).length,
      1
    )
  })

  it("finds a conflicting pair that ran in another order than it was emitted", () =>
    assert.deepStrictEqual(
      rules(
        observedOf({
          runs: [{ ...book, began: 0, startedAt: 0, ended: 1, endedAt: 9 }, { ...look, began: 2, ended: 3 }]
        })
      ),
      ['R12: "b" (book) of turn 0 and "a" (look) of turn 0 conflict on "hotel:1", and did not run in the order in which they were emitted']
    ))

  it("finds conflicts by folder and by unknown reach, and no others", () => {
    const pair = (a: Partial<FakeTool.Run>, b: Partial<FakeTool.Run>) =>
      rules(observedOf({
        runs: [
          { ...look, access: "write", ...a, began: 0, ended: 2 },
          { ...book, ...b, began: 1, startedAt: 5, ended: 3, endedAt: 20 }
        ]
      }))
    const file = (path: string) => ({ tool: "move", params: { path } })
    assert.strictEqual(pair(file("/docs"), file("/docs/a.md")).length, 1)
    assert.strictEqual(pair(file("/docs/x/../a.md"), file("/docs//a.md")).length, 1)
    assert.strictEqual(pair(file("/docs"), file("/docs2/a.md")).length, 0)
    assert.strictEqual(pair({ tool: "shell" }, file("/docs")).length, 1)
    assert.strictEqual(
      pair({ tool: "look", access: "read" }, {
        tool: "look",
        access: "read",
        position: 1,
        effectAt: undefined,
        id: "b"
      }).length,
      0
    )
  })

  it("counts one tenant's keys against no other's, and finds who runs for another tenant than its turn", () =>
    assert.deepStrictEqual(
      rules(observedOf({ runs: [{ ...look, ended: 2.5, endedAt: 12 }, { ...book, tenant: "north" }] })),
      ['R35: "b" (book) of turn 0 ran for the tenant "north", expected "default"']
    ))

  it("lets work inside a handler touch what the handler holds", () => {
    const outer = { ...look, tool: "agent", access: "write" as const, ended: 1.8, endedAt: 10 }
    const inner = { ...book, turn: "turn-0/0.1", position: 0, parent: outer, began: 1, ended: 1.5, endedAt: 8 }
    assert.deepStrictEqual(rules(observedOf({ runs: [outer, inner, book] })), [])
  })

  it("finds a write without a key that was interrupted", () => {
    const runs = [look, { ...book, end: "interrupted" as const, effectAt: undefined }]
    assert.deepStrictEqual(rules(observedOf({ runs })), [
      'R3: turn 0, call 1 ("b"): its outcome is ok, and its handler ended otherwise: interrupted',
      'R20: "b" (book) of turn 0, a write without an idempotency key, was interrupted at 20 ms after its start at 10 ms'
    ])
    const keyed = {
      tools: { look: scenarioOf().tools["look"], book: { keys: ["hotel:{id}"], idempotency: "forward" } }
    }
    assert.deepStrictEqual(rules(observedOf({ runs }), keyed), [])
  })

  it("finds a write without a key that ran twice for one call", () =>
    assert.deepStrictEqual(
      rules(observedOf({ runs: [look, book, { ...book, attempt: 2, began: 3.1, ended: 3.2, effectAt: undefined }] })),
      [
        'R3: turn 0, call 1 ("b"): its handler was started 2 times, and its outcome tells of 1',
        'R24: "b" (book) of turn 0, a write without an idempotency key, ran twice for one call'
      ]
    ))

  describe("of writes with a key", () => {
    const recorded = {
      tools: { look: { access: "read", keys: ["hotel:{id}"], backend: "hotels" }, book: { idempotency: "record" } }
    }
    const keyed = { ...book, idempotencyKey: "k" }
    const failed = { ...keyed, end: "failed", effectAt: undefined } as const
    const again = { ...keyed, attempt: 2, began: 3.1, ended: 3.2 }
    const retried = (effect: "none" | "unknown"): ReadonlyArray<Laws.SeenEvent> =>
      [
        { _tag: "CallEnded", position: 0, outcome: { status: "ok" } },
        { _tag: "CallRetried", position: 1, attempt: 1, outcome: { effect } },
        { _tag: "CallEnded", position: 1, outcome: { status: "ok" } }
      ].map((event, place) => ({ place, event: event as any }))
    const twice = (effect: "none" | "unknown") =>
      observedOf({
        turns: [turnOf({
          answers: [answers[0]!, { ...answers[1]!, attempts: 2 }],
          events: retried(effect)
        })],
        runs: [look, failed, again]
      })

    it("finds nothing in a retry of what had certainly had no effect", () =>
      assert.deepStrictEqual(rules(twice("none"), recorded), []))

    it("finds a retry of what may have had its effect", () =>
      assert.deepStrictEqual(rules(twice("unknown"), recorded), [
        'R23: "b" (book) of turn 0 ran, and whether "b" (book) of turn 0, with the same idempotency key, had had its effect was not known',
        'R24: "b" (book) of turn 0 ran again by itself, and whether it had had its effect was not known'
      ]))

    it("finds a second effect of a key", () => {
      for (const idempotency of ["record", "forward"]) {
        const problems = rules(
          { ...twice("none"), runs: [look, { ...failed, effectAt: 15 }, again] },
          { tools: { ...recorded.tools, book: { idempotency } } }
        )
        assert.deepStrictEqual(problems, [
          'R23: "b" (book) of turn 0 had an effect, and its idempotency key had one before'
        ])
      }
    })

    const next = (
      outcome: Partial<Laws.ReportedOutcome>,
      runs: ReadonlyArray<FakeTool.Run>,
      first = keyed as FakeTool.Run
    ) => {
      const calls = scenarioOf().turns[0]!.calls!
      return rules(
        observedOf({
          turns: [
            turnOf(
              first.end === "ok"
                ? {}
                : { answers: undefined, answered: undefined, answeredAt: undefined, crashed: true }
            ),
            turnOf({
              id: "turn-1",
              calls: [calls[1]!],
              startedAt: 30,
              answers: [answerOf(0, { id: "b", started: false, effect: "applied", ...outcome })],
              answered: 9,
              answeredAt: 50
            })
          ],
          runs: [look, first, ...runs]
        }),
        { ...recorded, turns: [{ calls }, { calls: [calls[1]] }] }
      )
    }
    const second = {
      ...keyed,
      turn: "turn-1",
      position: 0,
      began: 5,
      startedAt: 30,
      ended: 6,
      endedAt: 40,
      effectAt: undefined
    }

    it("finds nothing in an answer that is given again, nor in doubt that is told", () => {
      assert.deepStrictEqual(next({ replayed: true }, []), [])
      const doubt = { status: "error", code: "in_doubt", effect: "unknown" } as const
      assert.deepStrictEqual(next(doubt, [], { ...failed, end: "crashed" }), [])
    })

    it("finds an answer that is given again, and whatever is wrong with it", () => {
      assert.deepStrictEqual(next({ replayed: true }, [], { ...failed, end: "crashed" }), [
        'R3: turn 1, call 0 ("b"): its answer is that of an earlier call, and no handler of its tool has run for one'
      ])
      assert.deepStrictEqual(
        next({ replayed: true, started: true, effect: "none", retryable: true, status: "error", code: "failed" }, []),
        [
          'R3: turn 1, call 0 ("b"): its answer is that of an earlier call, and its outcome says that it was started',
          'R3: turn 1, call 0 ("b"): its answer is that of an earlier call, which was applied, and its outcome says error',
          'R3: turn 1, call 0 ("b"): its answer is that of an earlier call, which was applied: it has had its effect'
        ]
      )
    })

    it("finds doubt that is told as nothing, or as safe to try again", () => {
      const doubt = { status: "error", code: "in_doubt" } as const
      assert.deepStrictEqual(next({ ...doubt, effect: "none" }, []), [
        'R3: turn 1, call 0 ("b"): it was not started (in_doubt), and its outcome says "none"'
      ])
      assert.deepStrictEqual(next({ ...doubt, effect: "unknown", retryable: true }, []), [
        'R3: turn 1, call 0 ("b"): nobody knows what became of an earlier call with its key, and it is told to be retryable'
      ])
    })

    it("finds a run after a crash that has left its key in doubt, and one beside another", () => {
      const ran = { started: true }
      assert.deepStrictEqual(next(ran, [second], { ...failed, end: "crashed" }), [
        'R23: "b" (book) of turn 1 ran, and whether "b" (book) of turn 0, with the same idempotency key, had had its effect was not known'
      ])
      const problems = next(ran, [{ ...second, began: 2.5, startedAt: 15, ended: 5 }], { ...keyed, ended: 4.5 })
      assert.isTrue(
        problems.includes(
          'R23: "b" (book) of turn 1 began while "b" (book) of turn 0, with the same idempotency key, was at work'
        ),
        problems.join("\n")
      )
    })
  })

  it("finds half a character in what the model gets", () =>
    assert.deepStrictEqual(
      rules(observedOf({ turns: [turnOf({ answers: [answerOf(0, {}, { text: ["\ud83d"] }), answers[1]!] })] })),
      ['R29: turn 0, call 0: expected whole characters in what the model gets, got half of one in "\\ud83d"']
    ))

  it("finds a run that does not know its call", () =>
    assert.strictEqual(
      rules(observedOf({ runs: [look, book, { ...look, turn: "", position: -1, began: 3.1, ended: 3.2 }] })).length,
      1
    ))
})

const unmet = (expect: object, changes: Partial<Report.Observed> = {}, more: object = {}) =>
  Expect.unmet(scenarioOf({ ...more, expect }), observedOf(changes))

describe("expectations", () => {
  it("says nothing when all are met", () =>
    assert.deepStrictEqual(
      unmet({
        outcomes: [[{ id: "a", status: "ok", result: {} }, { effect: "applied" }]],
        executions: { look: 1, book: 1, shell: 0 },
        effects: { book: 1, look: 0 },
        peak: { hotels: 1 },
        requests: { look: 0 },
        before: [["a", "b"], ["0/a", "0/b"]],
        elapsedMs: { min: 20, max: 20 },
        runningAfter: 0
      }),
      []
    ))

  it("says what was expected and what came", () =>
    assert.deepStrictEqual(
      unmet({
        outcomes: [[{ status: "error", code: "failed" }, { result: { n: 1 } }]],
        executions: { look: 2 },
        effects: { look: 1 },
        peak: { hotels: 2 },
        requests: { look: 1 },
        before: [["b", "a"], ["z", "a"]],
        overlap: [["a", "b"]],
        elapsedMs: { min: 21 },
        runningAfter: 1
      }),
      [
        'outcomes: turn 0, call 0 ("a"): expected status "error", got "ok"',
        'outcomes: turn 0, call 0 ("a"): expected code "failed", got none',
        'outcomes: turn 0, call 1 ("b"): expected result {"n":1}, got {}',
        "executions: look: expected 2, got 1",
        "effects: look: expected 1, got 0",
        "peak: hotels: expected 2, got 1",
        "requests: look: expected 1, got 0",
        'before: ["b", "a"]: expected the first to end before the second starts, got 10-20 ms and 0-10 ms',
        'before: ["z", "a"]: expected a run of "z", got none',
        'overlap: ["a", "b"]: expected both to run at the same time, got 0-10 ms and 10-20 ms',
        "elapsedMs: expected at least 21, got 20",
        "runningAfter: expected 1, got 0"
      ]
    ))

  it("asks for the turn where an id means runs of more than one call", () => {
    const again = { ...look, turn: "turn-1", began: 5, startedAt: 20, ended: 6, endedAt: 30 }
    const two = {
      turns: [
        turnOf(),
        turnOf({
          id: "turn-1",
          calls: [scenarioOf().turns[0]!.calls![0]!],
          answers: [answers[0]!],
          answered: 7,
          answeredAt: 30
        })
      ],
      runs: [look, book, again]
    }
    const more = { turns: [...scenarioOf().turns, { calls: [{ id: "a", name: "look", arguments: {} }] }] }
    assert.deepStrictEqual(unmet({ before: [["0/a", "1/a"]] }, two, more), [])
    assert.deepStrictEqual(unmet({ before: [["a", "b"]] }, two, more), [
      'before: ["a", "b"]: "a" means more than one call: say turn/id'
    ])
  })

  it("does not mean runs inside a nested turn by before and overlap", () => {
    const inner = { ...book, id: "n", turn: "turn-0/0.1", position: 0, parent: look }
    assert.deepStrictEqual(unmet({ overlap: [["a", "n"]] }, { runs: [look, inner] }), [
      'overlap: ["a", "n"]: expected a run of "n", got none'
    ])
  })

  it("takes an outcome that is not there as unmet", () =>
    assert.deepStrictEqual(unmet({ outcomes: [[{}, {}]] }, { turns: [turnOf({ answers: undefined })] }), [
      "outcomes: turn 0: expected 2 outcomes, got no answer"
    ]))
})
