/** What holds always or never, whatever the calls, their policies, their handlers and the moment of a stop. */
import { assert, describe, it } from "@effect/vitest"
import { Outcome, Siblings, ToolCall, ToolPolicy, Turn, TurnContext, type TurnEvent } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { conflict, int, keys, pick, type Reach, runs } from "../utils/gen.ts"
import { Api, call, Crm, type Does, ended, fork, idle, lab, type Name, type Ran, toolkit, tools } from "../utils/kit.ts"

/** Longer than a tool's ten seconds to run, and shorter with the clean-up that follows. */
const overdue = 10_020

const someDoes = Arbitrary.all({
  ms: pick(10, 0, 1, 5, 10, 20, 30, 45, overdue, Infinity),
  end: pick("ok", "ok", "ok", "fail", "die", "interrupt"),
  deaf: pick(false, false, false, true),
  cleanup: pick(undefined, undefined, 3, 12)
})

const someCall = Arbitrary.all({
  name: pick<Name>("read", "write", "put", "look", "bare", "fetch", "post", "find", "save", "pay", "ask"),
  /** How long the question takes whether it needs approval; below 0 it does. */
  n: pick(5, 5, 15, -5, -15),
  k: Arbitrary.flatMap(
    pick(true, false),
    (few) => few ? Arbitrary.array(pick<string>("a", "b"), { maxLength: 2 }) : keys
  ),
  /** Arguments of its own, those of another call, or none that the tool can take. */
  args: pick("own", "own", "own", "shared", "invalid", "text", "placeholder"),
  id: pick("own", "own", "own", "empty", "shared"),
  does: someDoes
})
type SomeCall = typeof someCall["~A"] extends (_: never) => infer A ? A : never

const callOf = (one: SomeCall, i: number, turn: string): ToolCall.ToolCall => {
  const tag = one.args === "shared" ? `${turn}-shared` : `${turn}-${i}`
  const id = one.id === "own" ? `${turn}-c${i}` : one.id === "empty" ? "" : "same"
  switch (one.args) {
    case "invalid":
      return ToolCall.make(id, one.name, { tag: 7 })
    case "text":
      return ToolCall.make(id, i % 2 === 0 ? one.name : "nobody", '{"tag":')
    case "placeholder":
      return ToolCall.make(id, one.name, { tag: "<pending>" })
    default:
      return call(one.name, tag, one.args === "shared" ? ["s"] : one.k, one.name === "ask" ? { id, n: one.n } : { id })
  }
}

const reachOf = (ran: Ran): Reach => ({
  write: ToolPolicy.get(tools[ran.tool]).access === "write",
  keys: ran.keys
})

const limits = { api: { concurrency: 2 }, crm: { concurrency: 3, perTenant: 1 } } as const

const nothingHeld = Effect.gen(function*() {
  assert.deepStrictEqual(yield* Api.stats, idle(limits.api.concurrency))
  assert.deepStrictEqual(yield* Crm.stats, idle(limits.crm.concurrency, limits.crm.perTenant))
  const { unsettled } = yield* Turn.Runtime
  assert.deepStrictEqual(yield* unsettled, [])
  // A write of unknown reach waits for every key: with none held it starts at once.
  const started = yield* fork(Turn.run(toolkit, [call("bare", "last")]))
  yield* TestClock.adjust(10)
  assert.strictEqual((yield* ended(started))[0]!.status, "ok")
})

const policies = {
  letFinish: Siblings.letFinish,
  failFast: Siblings.failFast,
  quorum: Siblings.quorum(2),
  when: Siblings.failFastWhen((outcome: Outcome.Outcome<any>) => outcome.position % 2 === 0)
}

const someOptions = Arbitrary.all({
  siblings: pick<keyof typeof policies>("letFinish", "letFinish", "failFast", "quorum", "when"),
  execution: pick<"parallel" | "sequential" | number>("parallel", "parallel", "sequential", 1, 2, 3),
  dedupe: pick<"all" | "reads" | "off">("all", "all", "reads", "off"),
  grace: pick<ToolPolicy.Limit>("infinite", 1, 7, 25),
  units: pick(false, false, true)
})

const someStop = Arbitrary.all({
  kind: pick("none", "none", "interrupt", "deadline", "cancelOn", "cancelCalls", "cancel"),
  at: Arbitrary.flatMap(pick(false, false, false, true), (late) => late ? int(9_990, 10_040) : int(1, 60)),
  positions: Arbitrary.array(int(0, 9), { minLength: 1, maxLength: 4 })
})

/** Every call has one answer, in its place, and the same one wherever it is told. */
const checkAnswers = (
  calls: ReadonlyArray<ToolCall.ToolCall>,
  outcomes: ReadonlyArray<Outcome.Outcome<any>>,
  closed: ReadonlyArray<Turn.Closed>,
  events: ReadonlyArray<TurnEvent.TurnEvent>
): void => {
  assert.deepStrictEqual(outcomes.map((one) => [one.position, one.id]), calls.map((one, i) => [i, one.id]))
  assert.strictEqual(closed.length, 1)
  assert.strictEqual(closed[0]!.outcomes, outcomes)
  assert.deepStrictEqual(closed[0]!.calls, calls)
  const answers = events.filter((event) => event._tag === "CallEnded")
  assert.deepStrictEqual(answers.map((event) => event.position).sort((a, b) => a - b), calls.map((_, i) => i))
  for (const event of answers) assert.strictEqual(event.outcome, outcomes[event.position])
  for (const one of outcomes) Schema.decodeUnknownSync(Outcome.Encoded)(JSON.parse(JSON.stringify(Outcome.toJson(one))))
  // A history built from it has one answer for each call, and one for all re-deliveries of a call.
  const { content } = Turn.toPrompt(calls, outcomes)
  const ids = (role: string) =>
    content.filter((message) => message.role === role).flatMap((message) =>
      (message.content as ReadonlyArray<{ readonly id: string }>).map((part) => part.id)
    )
  assert.deepStrictEqual(ids("tool"), ids("assistant"))
  assert.strictEqual(new Set(ids("assistant")).size, ids("assistant").length)
  const ambiguous = outcomes.filter((one) => one.status === "error" && one.code === "ambiguous_id")
  const others = outcomes.filter((one) => one.id !== "" && !ambiguous.includes(one))
  const distinct = new Set(others.map((one) => one.id)).size + outcomes.filter((one) => one.id === "").length
  assert.strictEqual(ids("assistant").length, ambiguous.length + distinct)
}

/** An outcome says no more and no less than what happened to the handler. */
const checkTruth = (outcome: Outcome.Outcome<any>, ran: Ran | undefined, givenUp: boolean): void => {
  const at = `${outcome.position}: ${JSON.stringify(Outcome.toJson(outcome))} of ${JSON.stringify(ran)}`
  assert.strictEqual(outcome.started, ran !== undefined, at)
  if (ran === undefined) {
    assert.strictEqual(outcome.effect, "none", at)
    return
  }
  const { access, idempotency } = ToolPolicy.get(tools[ran.tool])
  if (access === "read") assert.strictEqual(outcome.effect, "none", at)
  else if (outcome.status === "ok") assert.strictEqual(outcome.effect, "applied", at)
  else assert.strictEqual(outcome.effect, "unknown", at)
  if (access === "write" && outcome.status !== "ok") assert.isTrue(!outcome.retryable || idempotency !== undefined, at)
  const told = outcome.status === "timeout" || (outcome.status === "cancelled" && outcome.code !== "by_itself")
  if (outcome.status === "timeout") assert.isAtLeast(ran.endedAt! - ran.at, 10_000, at)
  if (givenUp) return assert.isTrue(told, at)
  // What a read came to after it was told to stop is not told; a write's true end always is.
  if (told && access === "read") return
  const said = { ok: "ok", fail: "error/failed", die: "error/defect", interrupt: told ? "told" : "cancelled/by_itself" }
  assert.strictEqual(
    told ? "told" : "code" in outcome ? `${outcome.status}/${outcome.code}` : outcome.status,
    said[ran.end!],
    at
  )
}

describe("a turn, whatever its calls", () => {
  it.effect.prop(
    "R1, R3, R4, R12, R14, R17, R20: every call is answered once and truly, conflicting work keeps its order, nothing is left behind",
    { specs: Arbitrary.array(someCall, { maxLength: 10 }), options: someOptions, stop: someStop },
    ({ options, specs, stop }) =>
      Effect.gen(function*() {
        const { book, layer } = lab(limits)
        const calls = specs.map((one, i) => callOf(one, i, "t"))
        specs.forEach(({ args, does, name }, i) => {
          // What never ends must hear a stop, or the test would wait for it for ever.
          const hears = args === "own" && !does.deaf && ToolPolicy.get(tools[name]).interruptible
          const ms = does.ms === Infinity && !hears ? overdue : does.ms
          book.script.set(args === "shared" ? "t-shared" : `t-${i}`, { ...does, ms } as Does)
        })
        const closed: Array<Turn.Closed> = []
        const leftAtEnd: Array<{ readonly unsettled: ReadonlyArray<number>; readonly atWork: ReadonlyArray<number> }> =
          []
        yield* Effect.gen(function*() {
          const runtime = yield* Turn.Runtime
          const given: Turn.Options = {
            siblings: policies[options.siblings],
            execution: options.execution,
            dedupe: options.dedupe,
            grace: options.grace,
            ...(options.units ? { unit: (_, position) => String(position % 2) } : undefined),
            ...(stop.kind === "deadline" ? { deadline: stop.at } : undefined),
            ...(stop.kind === "cancelOn" ? { cancelOn: Effect.as(Effect.sleep(stop.at), "user") } : undefined),
            onEvent: book.note,
            onClosed: (one) =>
              Effect.map(runtime.unsettled, (unsettled) => {
                closed.push(one)
                leftAtEnd.push({
                  unsettled: unsettled.map((left) => left.position),
                  atWork: book.atWork.map((ran) => ran.position)
                })
              })
          }
          if (stop.kind === "cancelCalls" || stop.kind === "cancel") {
            yield* Effect.scoped(Effect.gen(function*() {
              const handle = yield* Turn.start(toolkit, calls, given)
              yield* TestClock.adjust(stop.at)
              if (stop.kind === "cancel") yield* fork(handle.cancel("budget"))
              else for (const position of stop.positions) yield* handle.cancelCall(position, "budget")
              yield* TestClock.adjust(100_000)
              assert.strictEqual(yield* ended(yield* fork(handle.await)), closed[0]!.outcomes)
            }))
          } else {
            const fiber = yield* fork(Turn.run(toolkit, calls, given))
            yield* TestClock.adjust(stop.at)
            const interrupted = stop.kind === "interrupt" && fiber.pollUnsafe() === undefined
            if (interrupted) {
              const stopping = yield* fork(Fiber.interrupt(fiber))
              yield* TestClock.adjust(100_000)
              yield* ended(stopping)
            } else {
              yield* TestClock.adjust(100_000)
              assert.strictEqual(yield* ended(fiber), closed[0]!.outcomes)
            }
          }
          const { outcomes } = closed[0]!
          checkAnswers(calls, outcomes, closed, book.events)

          // R17, R20: what was still at work when the turn ended is with the supervisor, and its late end was told.
          const [left] = leftAtEnd
          assert.deepStrictEqual([...left!.atWork].sort(), [...left!.unsettled].sort())
          const late = book.events.filter((event) => event._tag === "CallSettledLate").map((event) => event.position)
          for (const position of left!.unsettled) assert.include(late, position)
          assert.deepStrictEqual(book.atWork, [])

          const ran = new Map(book.runs.map((one) => [one.position, one]))
          assert.strictEqual(ran.size, book.runs.length, "a call was run twice")
          for (const outcome of outcomes) {
            const at = outcome.duplicateOf?.position ?? outcome.position
            // A call that left its run to the calls that are the same is answered for itself alone.
            if (outcome.status === "cancelled" && outcome.reason === "budget" && stop.kind === "cancelCalls") continue
            checkTruth(outcome, ran.get(at), late.includes(at))
          }
          for (const one of book.runs) {
            if (ToolPolicy.get(tools[one.tool]).interruptible) continue
            const { end, ms } = book.script.get(one.tag)!
            assert.deepStrictEqual([one.endedAt! - one.at, one.end], [ms, end], "a write without a key was cut")
          }

          // R12: whatever became of them.
          const order = [...ran.values()].sort((a, b) => a.position - b.position)
          order.forEach((later, i) => {
            for (const earlier of order.slice(0, i)) {
              if (options.execution !== "sequential" && !conflict(reachOf(earlier), reachOf(later))) continue
              assert.isBelow(earlier.ended!, later.began, `#${later.position} overlaps #${earlier.position}`)
            }
          })
          yield* nothingHeld
        }).pipe(Effect.provide(layer))
      }),
    runs(600)
  )

  it.effect.prop(
    "R12, R14: work conservation: a call waits only for an earlier one that it conflicts with, for a permit, or for the turn's own limit",
    {
      turns: Arbitrary.array(
        Arbitrary.all({
          calls: Arbitrary.array(
            Arbitrary.all({
              name: pick<Name>("read", "write", "put", "look", "bare", "fetch", "post", "find", "save"),
              k: keys,
              ms: pick(10, 0, 1, 7, 20, 33),
              end: pick("ok", "fail", "die", "interrupt")
            }),
            { minLength: 1, maxLength: 8 }
          ),
          at: pick<number>(0, 0, 5, 12),
          tenant: pick("north", "south"),
          limit: pick<"parallel" | number>("parallel", "parallel", 1, 2)
        }),
        { minLength: 1, maxLength: 3 }
      )
    },
    ({ turns }) =>
      Effect.gen(function*() {
        const { book, layer } = lab(limits)
        yield* Effect.gen(function*() {
          // Turns begin in the order of the list, so that this is the order of their places too.
          const ordered = turns.map((turn, i) => ({ ...turn, id: String(i) })).sort((a, b) => a.at - b.at)
          for (const turn of ordered) {
            turn.calls.forEach(({ end, ms }, i) => book.script.set(`${turn.id}-${i}`, { end, ms }))
          }
          const all = yield* fork(Effect.forEach(
            ordered,
            (turn) =>
              Turn.run(
                toolkit,
                turn.calls.map((one, i) => call(one.name, `${turn.id}-${i}`, one.k)),
                { turn: turn.id, execution: turn.limit }
              ).pipe(Effect.provide(TurnContext.make({ tenant: turn.tenant })), Effect.delay(turn.at)),
            { concurrency: "unbounded" }
          ))
          yield* TestClock.adjust(100_000)
          yield* ended(all)

          const order = ordered.flatMap((turn) =>
            turn.calls.map((_, i) => ({ turn, ran: book.of(`${turn.id}-${i}`), conflicts: [] as Array<Ran> }))
          )
          const moments = [...new Set(book.runs.flatMap((one) => [one.at, one.endedAt!]))].sort((a, b) => a - b)
          order.forEach((later, i) => {
            let ready = later.turn.at
            for (const earlier of order.slice(0, i)) {
              if (
                earlier.turn.tenant !== later.turn.tenant || !conflict(reachOf(earlier.ran), reachOf(later.ran))
              ) continue
              assert.isBelow(earlier.ran.ended!, later.ran.began, `${later.ran.tag} overlaps ${earlier.ran.tag}`)
              ready = Math.max(ready, earlier.ran.endedAt!)
            }
            assert.isAtLeast(later.ran.at, ready)
            const backend = ToolPolicy.get(tools[later.ran.tool]).backend?.key
            for (const moment of moments.filter((moment) => moment >= ready && moment < later.ran.at)) {
              const running = order.filter(({ ran }) => ran.at <= moment && ran.endedAt! > moment)
              const there = running.filter(({ ran }) => ToolPolicy.get(tools[ran.tool]).backend?.key === backend)
              const full = backend === Api.key
                ? there.length >= limits.api.concurrency
                : backend === Crm.key &&
                  (there.length >= limits.crm.concurrency ||
                    there.filter(({ turn }) => turn.tenant === later.turn.tenant).length >= limits.crm.perTenant)
              const own = running.filter(({ turn }) => turn === later.turn).length
              const limited = typeof later.turn.limit === "number" && own >= later.turn.limit
              assert.isTrue(full || limited, `${later.ran.tag} was ready at ${ready} and did nothing at ${moment}`)
            }
          })
          // Nothing was ever over its limit.
          for (const moment of moments) {
            const running = order.filter(({ ran }) => ran.at <= moment && ran.endedAt! > moment)
            const on = (key: string) =>
              running.filter(({ ran }) => ToolPolicy.get(tools[ran.tool]).backend?.key === key)
            assert.isAtMost(on(Api.key).length, limits.api.concurrency)
            assert.isAtMost(on(Crm.key).length, limits.crm.concurrency)
            for (const tenant of ["north", "south"]) {
              assert.isAtMost(on(Crm.key).filter(({ turn }) => turn.tenant === tenant).length, limits.crm.perTenant)
            }
            for (const turn of ordered) {
              if (typeof turn.limit === "number") {
                assert.isAtMost(running.filter((one) => one.turn === turn).length, turn.limit)
              }
            }
          }
          yield* nothingHeld
        }).pipe(Effect.provide(layer))
      }),
    runs(200)
  )

  it.effect.prop(
    "R12: each call starts at the very moment when every earlier one that it conflicts with has its answer, also when calls are stopped one by one",
    {
      turns: Arbitrary.array(
        Arbitrary.all({
          calls: Arbitrary.array(
            Arbitrary.all({
              name: pick<"read" | "write" | "put" | "look" | "bare">("write", "read", "write", "put", "look", "bare"),
              k: Arbitrary.flatMap(
                pick(true, false),
                (few) => few ? Arbitrary.array(pick<string>("a", "b", "c"), { maxLength: 2 }) : keys
              ),
              ms: pick(10, 20, 40, 80)
            }),
            { minLength: 1, maxLength: 7 }
          ),
          sequential: pick(false, false, false, true),
          /** When the turn begins, and with it the order of its places. */
          at: pick(0, 0, 1, 3),
          stops: Arbitrary.array(Arbitrary.all({ position: int(0, 6), at: int(0, 12) }), { maxLength: 4 })
        }),
        { minLength: 1, maxLength: 3 }
      )
    },
    ({ turns }) =>
      Effect.gen(function*() {
        const { book, layer } = lab()
        yield* Effect.gen(function*() {
          const ordered = turns.toSorted((a, b) => a.at - b.at)
          // A turn begins, or one of its calls is stopped.
          const steps = ordered.flatMap((turn, t) => [
            { t, at: turn.at * 10, position: -1 },
            ...turn.stops.map(({ at, position }) => ({ t, at: (turn.at + at) * 10 + 5, position }))
              .filter(({ position }) => position < turn.calls.length)
          ]).sort((a, b) => a.at - b.at)

          // What the rule says, step by step and pair by pair.
          interface Expected {
            readonly tag: string
            readonly turn: number
            readonly reach: Reach
            readonly hears: boolean
            readonly ms: number
            begun: boolean
            started: number | undefined
            answered: number | undefined
          }
          const expected = ordered.flatMap(({ calls }, t) =>
            calls.map(({ k, ms, name }, i): Expected => ({
              tag: `${t}-${i}`,
              turn: t,
              reach: {
                write: ToolPolicy.get(tools[name]).access === "write",
                keys: name === "look" || name === "bare" ? undefined : k
              },
              hears: ToolPolicy.get(tools[name]).interruptible,
              ms,
              begun: false,
              started: undefined,
              answered: undefined
            }))
          )
          const waitsFor = (a: Expected, b: Expected) =>
            conflict(a.reach, b.reach) || (a.turn === b.turn && ordered[a.turn]!.sequential)
          const start = (now: number) => {
            for (const [i, one] of expected.entries()) {
              if (!one.begun || one.started !== undefined || one.answered !== undefined) continue
              const free = expected.slice(0, i).every((earlier) =>
                earlier.answered !== undefined || !waitsFor(earlier, one)
              )
              if (free) one.started = now
            }
          }
          for (let now = 0; now <= 2000; now += 5) {
            for (const one of expected) {
              if (one.started !== undefined && one.started + one.ms === now) one.answered ??= now
            }
            start(now)
            for (const { position, t } of steps.filter((step) => step.at === now)) {
              for (const one of expected.filter((one) => one.turn === t)) {
                one.begun = true
                if (one.tag === `${t}-${position}` && (one.started === undefined || one.hears)) one.answered ??= now
              }
              start(now)
            }
          }

          const handles: Array<Turn.Handle<typeof toolkit>> = []
          let now = 0
          for (const { at, position, t } of steps) {
            yield* TestClock.adjust(at - now)
            now = at
            if (position >= 0) yield* handles[t]!.cancelCall(position)
            else {
              const { calls, sequential } = ordered[t]!
              calls.forEach(({ ms }, i) => book.script.set(`${t}-${i}`, { ms }))
              handles.push(
                yield* Turn.start(toolkit, calls.map(({ k, name }, i) => call(name, `${t}-${i}`, k)), {
                  execution: sequential ? "sequential" : "parallel"
                })
              )
            }
          }
          yield* TestClock.adjust(10_000)
          for (const handle of handles) yield* ended(yield* fork(handle.await))
          const real = new Map(book.runs.map((ran) => [ran.tag, ran.at]))
          assert.deepStrictEqual(
            expected.map((one) => [one.tag, real.get(one.tag)]),
            expected.map((one) => [one.tag, one.started])
          )
        }).pipe(Effect.scoped, Effect.provide(layer))
      }),
    runs(400)
  )
})
