import { assert, describe, it } from "@effect/vitest"
import { Approval } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { int, pick, runs } from "./utils/gen.ts"
import { ended, fork } from "./utils/kit.ts"

type Service = Approval.Approvals["Service"]
type Options = Parameters<typeof Approval.layerMemory>[0]

const request = (position: number, more?: Partial<Approval.Request>): Approval.Request => ({
  tenant: "t",
  turn: "one",
  position,
  id: `c${position}`,
  tool: "pay",
  arguments: { euros: position },
  digest: `pay ${position}`,
  requestedAt: 0,
  ...more
})

const inMemory = <A, E>(name: string, f: (approvals: Service) => Effect.Effect<A, E, any>, options?: Options) =>
  it.effect(name, () =>
    Effect.flatMap(Approval.Approvals, f).pipe(
      Effect.scoped,
      Effect.provide(Approval.layerMemory(options))
    ) as Effect.Effect<A, E>)

/** Why a decision was refused; undefined when it was taken. */
const refusal = (approvals: Service, place: Approval.Place, decision: Approval.Decision = Approval.approve()) =>
  approvals.decide(place, decision).pipe(
    Effect.as(undefined),
    Effect.catchTag("DecisionRefused", (refused) => Effect.succeed(refused.reason))
  )

const positions = (requests: ReadonlyArray<Approval.Request>) => requests.map(({ position }) => position)

describe("the words", () => {
  it("decisions are data of the schema, and leave out what was not said", () => {
    const all = [
      Approval.approve(),
      Approval.approve("go"),
      Approval.deny(),
      Approval.deny("no"),
      Approval.edit({ a: 1 }),
      Approval.answer({ b: 2 }),
      Approval.answer(null)
    ]
    for (const one of all) {
      assert.deepStrictEqual(Schema.decodeUnknownSync(Approval.Decision)(JSON.parse(JSON.stringify(one))), one)
    }
    assert.deepStrictEqual(all[0], { _tag: "Approve" })
    assert.deepStrictEqual(all[2], { _tag: "Deny" })
  })

  it("a request is data of its schema", () => {
    const one = request(1, { conversation: "c", principal: "p", expiresAt: 5, problem: "no" })
    assert.deepStrictEqual(Schema.decodeUnknownSync(Approval.Request)(JSON.parse(JSON.stringify(one))), one)
  })

  it("a refusal says which call and why", () => {
    for (const reason of ["unknown", "decided", "settled", "expired", "changed"] as const) {
      const { message } = new Approval.DecisionRefused({ turn: "one", position: 3, reason })
      assert.include(message, "#3")
      assert.include(message, "one")
    }
  })
})

describe("R10: decisions in memory", () => {
  inMemory("a decision is for one call that waits, and is used once", (approvals) =>
    Effect.gen(function*() {
      assert.isUndefined(yield* approvals.ask(request(1)))
      assert.isUndefined(yield* approvals.ask(request(2)))
      assert.isUndefined(yield* refusal(approvals, request(2), Approval.deny("no")))
      assert.deepStrictEqual(yield* approvals.ask(request(2)), Approval.deny("no"))
      assert.isUndefined(yield* approvals.ask(request(2)))
      assert.deepStrictEqual(positions(yield* approvals.pending), [1, 2])
    }))

  inMemory("each refusal has its reason", (approvals) =>
    Effect.gen(function*() {
      assert.strictEqual(yield* refusal(approvals, request(1)), "unknown")
      yield* approvals.ask(request(1))
      assert.strictEqual(yield* refusal(approvals, request(1, { digest: "pay 7" })), "changed")
      assert.strictEqual(yield* refusal(approvals, request(1, { tenant: "other" })), "unknown")
      assert.strictEqual(yield* refusal(approvals, request(1, { turn: "other" })), "unknown")
      assert.isUndefined(yield* refusal(approvals, { tenant: "t", turn: "one", position: 1 }, Approval.deny()))
      assert.strictEqual(yield* refusal(approvals, request(1)), "decided")
      // The first decision stands.
      assert.deepStrictEqual(yield* approvals.ask(request(1)), Approval.deny())
      assert.strictEqual(yield* refusal(approvals, request(1)), "settled")
      yield* approvals.ask(request(2))
      yield* approvals.withdraw(request(2))
      assert.strictEqual(yield* refusal(approvals, request(2)), "settled")
      yield* TestClock.adjust(100)
      yield* approvals.ask(request(3))
      yield* TestClock.adjust(50)
      assert.strictEqual(yield* refusal(approvals, request(3)), "expired")
    }), { expires: 50 })

  inMemory(
    "of those that were not decided in time only the latest are remembered",
    (approvals) =>
      Effect.gen(function*() {
        for (let i = 0; i < 10_000; i++) {
          if (i % 500 === 0) yield* TestClock.adjust(50)
          yield* approvals.ask(request(i))
        }
        yield* TestClock.adjust(50)
        assert.strictEqual(yield* refusal(approvals, request(0)), "expired")
        yield* approvals.ask(request(10_000))
        assert.strictEqual(yield* refusal(approvals, request(0)), "unknown")
        assert.strictEqual(yield* refusal(approvals, request(1)), "expired")
        assert.deepStrictEqual(positions(yield* approvals.pending), [10_000])
      }),
    { expires: 50 }
  )

  inMemory(
    "other arguments are asked for anew, whatever was decided about the first",
    (approvals) =>
      Effect.gen(function*() {
        yield* approvals.ask(request(1))
        assert.isUndefined(yield* refusal(approvals, request(1)))
        const changed = request(1, { digest: "pay 9" })
        assert.isUndefined(yield* approvals.ask(changed))
        assert.deepStrictEqual(yield* approvals.pending, [changed])
        assert.strictEqual(yield* refusal(approvals, request(1)), "changed")
        assert.isUndefined(yield* refusal(approvals, changed, Approval.deny()))
        assert.deepStrictEqual(yield* approvals.ask(changed), Approval.deny())
      })
  )

  inMemory("a request with a problem waits again, though it was decided", (approvals) =>
    Effect.gen(function*() {
      yield* approvals.ask(request(1))
      yield* refusal(approvals, request(1), Approval.edit({ euros: "x" }))
      yield* approvals.ask(request(1))
      const again = request(1, { problem: "euros: expected a number" })
      assert.isUndefined(yield* approvals.ask(again))
      assert.deepStrictEqual(yield* approvals.pending, [again])
      assert.isUndefined(yield* refusal(approvals, again))
      assert.deepStrictEqual(yield* approvals.ask(request(1)), Approval.approve())
    }))

  inMemory("withdrawing what is not there, or twice, changes nothing", (approvals) =>
    Effect.gen(function*() {
      yield* approvals.withdraw(request(1))
      yield* approvals.ask(request(1))
      yield* approvals.withdraw(request(1))
      yield* approvals.withdraw(request(1))
      assert.deepStrictEqual(yield* approvals.pending, [])
    }))

  inMemory("names that are parts of others, or of objects, do not meet", (approvals) =>
    Effect.gen(function*() {
      const places = [["a,b", "c"], ["a", "b,c"], ["__proto__", "constructor"], ['a","b', "c"]] as const
      for (const [tenant, turn] of places) yield* approvals.ask(request(1, { tenant, turn }))
      assert.strictEqual((yield* approvals.pending).length, places.length)
      assert.isUndefined(yield* refusal(approvals, { tenant: "a", turn: "b,c", position: 1 }))
      assert.strictEqual((yield* approvals.pending).length, places.length - 1)
    }))
})

describe("expiry", () => {
  inMemory("an impossible time is refused where it is written", () =>
    Effect.sync(() => {
      for (const expires of [0, -1, Number.NaN, 3_000_000_000]) {
        assert.throws(() => Approval.layerMemory({ expires }), /expires/)
      }
    }))

  inMemory("what was not decided in time waits no more, and is asked for anew", (approvals) =>
    Effect.gen(function*() {
      yield* TestClock.adjust(5)
      yield* approvals.ask(request(1))
      assert.deepStrictEqual((yield* approvals.pending)[0]!.expiresAt, 105)
      yield* TestClock.adjust(99)
      assert.strictEqual((yield* approvals.pending).length, 1)
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* approvals.pending, [])
      assert.strictEqual(yield* refusal(approvals, request(1)), "expired")
      assert.isUndefined(yield* approvals.ask(request(1)))
      assert.deepStrictEqual((yield* approvals.pending)[0]!.expiresAt, 205)
      assert.isUndefined(yield* refusal(approvals, request(1)))
    }), { expires: 100 })

  inMemory("a decision that is used too late is none", (approvals) =>
    Effect.gen(function*() {
      yield* approvals.ask(request(1))
      yield* TestClock.adjust(60)
      assert.isUndefined(yield* refusal(approvals, request(1)))
      yield* TestClock.adjust(40)
      assert.isUndefined(yield* approvals.ask(request(1)))
      assert.deepStrictEqual(positions(yield* approvals.pending), [1])
    }), { expires: 100 })
})

describe("rules", () => {
  const pay = { tool: "pay" }

  inMemory(
    "always lets those that wait and those that come run, until it is taken back",
    (approvals) =>
      Effect.gen(function*() {
        yield* approvals.ask(request(1))
        yield* approvals.ask(request(2, { tool: "wipe" }))
        yield* approvals.always(pay)
        assert.deepStrictEqual(positions(yield* approvals.pending), [2])
        assert.strictEqual(yield* refusal(approvals, request(1), Approval.deny()), "decided")
        assert.deepStrictEqual(yield* approvals.ask(request(1)), Approval.approve())
        assert.deepStrictEqual(yield* approvals.ask(request(3)), Approval.approve())
        assert.deepStrictEqual(positions(yield* approvals.pending), [2])
        yield* approvals.revoke(pay)
        yield* approvals.revoke(pay)
        assert.isUndefined(yield* approvals.ask(request(4)))
      })
  )

  inMemory("a rule is taken back by one that says the same, and by no other", (approvals) =>
    Effect.gen(function*() {
      yield* approvals.always(pay)
      yield* approvals.always({ ...pay })
      yield* approvals.revoke({ ...pay, tenant: "other" })
      assert.deepStrictEqual(yield* approvals.ask(request(1)), Approval.approve())
      yield* approvals.revoke({ ...pay })
      assert.isUndefined(yield* approvals.ask(request(2)))
    }))

  inMemory("tool, tenant and the whole request are compared; one that throws or says no truth allows nothing", (
    approvals
  ) =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* approvals.ask(request(1, { tool: "a" })), Approval.approve())
      assert.isUndefined(yield* approvals.ask(request(2, { tool: "a", tenant: "u" })))
      assert.deepStrictEqual(yield* approvals.ask(request(3, { tool: "b" })), Approval.approve())
      assert.isUndefined(yield* approvals.ask(request(4, { tool: "b" })))
      assert.isUndefined(yield* approvals.ask(request(5, { tool: "c" })))
      assert.isUndefined(yield* approvals.ask(request(6, { tool: "d" })))
    }), {
    rules: [
      { tool: "a", tenant: "t" },
      { tool: "b", when: ({ position }) => position === 3 },
      {
        tool: "c",
        when: () => {
          throw new Error("broken")
        }
      },
      { tool: "d", when: (() => "yes") as any }
    ]
  })

  inMemory("does not decide about a request with a problem", (approvals) =>
    Effect.gen(function*() {
      assert.isUndefined(yield* approvals.ask(request(1, { problem: "no" })))
      yield* approvals.always(pay)
      assert.deepStrictEqual(positions(yield* approvals.pending), [1])
    }), { rules: [pay] })
})

describe("waiting", () => {
  inMemory(
    "changes tells the list now and whenever it changes, expiry included",
    (approvals) =>
      Effect.gen(function*() {
        const seen: Array<ReadonlyArray<number>> = []
        yield* fork(Stream.runForEach(approvals.changes, (list) => Effect.sync(() => void seen.push(positions(list)))))
        yield* Effect.repeat(Effect.yieldNow, { times: 50 })
        yield* approvals.ask(request(1))
        yield* TestClock.adjust(10)
        yield* approvals.ask(request(2))
        yield* TestClock.adjust(1)
        yield* approvals.decide(request(2), Approval.approve())
        yield* TestClock.adjust(1)
        yield* approvals.ask(request(3))
        yield* TestClock.adjust(200)
        const distinct = seen.filter((one, i) => i === 0 || String(one) !== String(seen[i - 1]))
        assert.deepStrictEqual(distinct, [[], [1], [1, 2], [1], [1, 3], [3], []])
      }),
    { expires: 100 }
  )

  inMemory(
    "decided waits for all calls of a turn, decided, withdrawn or expired",
    (approvals) =>
      Effect.gen(function*() {
        yield* approvals.decided({ tenant: "t", turn: "one" })
        for (const position of [1, 2, 3]) yield* approvals.ask(request(position))
        yield* approvals.ask(request(1, { turn: "two" }))
        yield* approvals.ask(request(1, { tenant: "u" }))
        const waiting = yield* fork(approvals.decided({ tenant: "t", turn: "one" }))
        const other = yield* fork(approvals.decided({ tenant: "t", turn: "two" }))
        yield* TestClock.adjust(10)
        yield* approvals.decide(request(1), Approval.approve())
        yield* approvals.withdraw(request(3))
        // One more comes while it is waited for.
        yield* approvals.ask(request(4))
        yield* TestClock.adjust(10)
        assert.isUndefined(waiting.pollUnsafe())
        yield* approvals.decide(request(4), Approval.deny())
        yield* TestClock.adjust(10)
        assert.isUndefined(waiting.pollUnsafe())
        yield* TestClock.adjust(69)
        assert.isUndefined(waiting.pollUnsafe())
        yield* TestClock.adjust(1)
        yield* ended(waiting)
        yield* ended(other)
      }),
    { expires: 100 }
  )

  inMemory("interrupting decided changes nothing", (approvals) =>
    Effect.gen(function*() {
      yield* approvals.ask(request(1))
      const waiting = yield* fork(approvals.decided({ tenant: "t", turn: "one" }))
      yield* TestClock.adjust(1)
      yield* Fiber.interrupt(waiting)
      assert.deepStrictEqual(positions(yield* approvals.pending), [1])
      assert.isUndefined(yield* refusal(approvals, request(1)))
    }))

  inMemory("of what is settled only the last are remembered", (approvals) =>
    Effect.gen(function*() {
      yield* approvals.ask(request(0, { turn: "waits" }))
      for (let i = 0; i < 10_050; i++) {
        yield* approvals.ask(request(i))
        yield* approvals.withdraw(request(i))
      }
      assert.strictEqual(yield* refusal(approvals, request(0)), "unknown")
      assert.strictEqual(yield* refusal(approvals, request(49)), "unknown")
      assert.strictEqual(yield* refusal(approvals, request(50)), "settled")
      assert.strictEqual(yield* refusal(approvals, request(10_049)), "settled")
      assert.isUndefined(yield* refusal(approvals, request(0, { turn: "waits" })))
    }))
})

describe("the laws, whatever is done in which order", () => {
  const step = Arbitrary.all({
    kind: pick("ask", "decide", "withdraw", "problem", "always", "back", "wait"),
    position: int(0, 2),
    /** Which arguments the request is for. */
    n: int(0, 1),
    decision: pick(Approval.approve("a"), Approval.deny("b"), Approval.answer(3)),
    ms: pick(10, 50)
  })

  it.effect.prop(
    "it does what its description says",
    { steps: Arbitrary.array(step, { maxLength: 25 }) },
    ({ steps }) =>
      Effect.gen(function*() {
        const approvals = yield* Approval.Approvals
        interface Known {
          readonly n: number
          readonly since: number
          readonly problem: boolean
          state: Approval.Decision | "waiting" | "settled"
        }
        // Plain lists, looked through each time.
        const known = new Map<number, Known>()
        const rules: Array<number> = []
        const given: Array<Approval.Rule> = []
        let now = 0
        const over = (one: Known) => now >= one.since + 100
        for (const { decision, kind, ms, n, position } of steps) {
          const one = known.get(position)
          const of = request(position, { digest: `pay ${n}` })
          switch (kind) {
            case "wait":
              yield* TestClock.adjust(ms)
              now += ms
              break
            case "ask": {
              const answer = yield* approvals.ask(of)
              if (one !== undefined && one.n === n && !over(one) && typeof one.state !== "string") {
                assert.deepStrictEqual(answer, one.state)
                one.state = "settled"
              } else if (one !== undefined && one.n === n && !over(one) && one.state === "waiting") {
                assert.isUndefined(answer)
              } else if (rules.includes(position)) assert.deepStrictEqual(answer, Approval.approve())
              else {
                assert.isUndefined(answer)
                known.delete(position)
                known.set(position, { n, since: now, problem: false, state: "waiting" })
              }
              break
            }
            case "problem":
              assert.isUndefined(yield* approvals.ask({ ...of, problem: "no" }))
              known.delete(position)
              known.set(position, { n, since: now, problem: true, state: "waiting" })
              break
            case "decide": {
              const reason = yield* refusal(approvals, of, decision)
              const expected = one === undefined
                ? "unknown"
                : one.state === "settled"
                ? "settled"
                : one.state !== "waiting"
                ? "decided"
                : over(one)
                ? "expired"
                : one.n !== n
                ? "changed"
                : undefined
              assert.strictEqual(reason, expected)
              if (expected === undefined) one!.state = decision
              break
            }
            case "withdraw":
              yield* approvals.withdraw(of)
              if (one !== undefined) one.state = "settled"
              break
            case "always":
              given.push({ tool: "pay", when: (asked) => asked.position === position })
              yield* approvals.always(given.at(-1)!)
              rules.push(position)
              if (one?.state === "waiting" && !one.problem && !over(one)) one.state = Approval.approve()
              break
            case "back":
              if (given.length > 0) yield* approvals.revoke(given.pop()!)
              rules.pop()
          }
          const waiting = Array.from(known).filter(([, one]) => one.state === "waiting" && !over(one))
          assert.deepStrictEqual(positions(yield* approvals.pending), waiting.map(([position]) => position))
        }
      }).pipe(Effect.provide(Approval.layerMemory({ expires: 100 }))),
    runs(500)
  )

  it.effect("under exploration: one of several decisions stands, and who waits is woken", () =>
    Simulation.explore(
      Effect.gen(function*() {
        const approvals = yield* Approval.Approvals
        yield* approvals.ask(request(1))
        yield* approvals.ask(request(2))
        const waiting = yield* Effect.forkChild(approvals.decided({ tenant: "t", turn: "one" }))
        const last: Array<ReadonlyArray<number>> = []
        yield* Effect.forkChild(
          Stream.runForEach(approvals.changes, (list) => Effect.sync(() => void last.push(positions(list))))
        )
        const asked = yield* Effect.forkChild(approvals.ask(request(3)))
        const answers = yield* Effect.all(
          [
            refusal(approvals, request(1), Approval.deny("first")),
            refusal(approvals, request(1), Approval.deny("second")),
            approvals.withdraw(request(2)).pipe(Effect.as("withdrawn" as const))
          ],
          { concurrency: "unbounded" }
        )
        yield* Fiber.join(asked)
        // A sender that goes away has decided all the same.
        const gone = yield* Effect.forkChild(approvals.decide(request(3), Approval.approve()))
        yield* Effect.yieldNow
        yield* Fiber.interrupt(gone)
        yield* Effect.exit(approvals.decide(request(3), Approval.approve()))
        yield* Fiber.join(waiting)
        yield* Effect.sleep(1)
        assert.deepStrictEqual(yield* approvals.pending, [])
        assert.deepStrictEqual(last.at(-1), [])
        assert.strictEqual(answers.filter((one) => one === undefined).length, 1)
        assert.include(answers, "decided")
        const stands = yield* approvals.ask(request(1))
        assert.deepStrictEqual(stands, Approval.deny(answers[0] === undefined ? "first" : "second"))
      }).pipe(Effect.scoped, Effect.provide(Approval.layerMemory())),
      { seeds: 300 }
    ))
})
