/** Random turns in virtual time, and their events. */
import { Siblings, type ToolPolicy, Turn, type TurnEvent, type TurnPlan } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { int, keys, pick } from "../utils/gen.ts"
import { call, type Does, fork, lab, type Name, toolkit } from "../utils/kit.ts"

const someCall = Arbitrary.all({
  name: pick<Name>("read", "write", "put", "look", "bare", "fetch", "post", "find", "save", "pay", "ask"),
  n: pick(5, 15, -5),
  k: Arbitrary.flatMap(
    pick(true, false),
    (few) => few ? Arbitrary.array(pick<string>("a", "b"), { maxLength: 2 }) : keys
  ),
  shared: pick(false, false, true),
  placeholder: pick(false, false, false, false, true),
  does: Arbitrary.all({
    ms: pick(10, 0, 1, 5, 20, 45, 10_020),
    end: pick("ok", "ok", "fail", "die", "interrupt"),
    deaf: pick(false, false, false, true),
    cleanup: pick(undefined, undefined, 3),
    notes: pick<ReadonlyArray<number> | undefined>(undefined, [1])
  })
})

export const someTurn = Arbitrary.all({
  specs: Arbitrary.array(someCall, { maxLength: 9 }),
  siblings: pick("letFinish", "failFast", "quorum"),
  execution: pick<"parallel" | "sequential" | number>("parallel", "parallel", "sequential", 1, 2),
  dedupe: pick<"all" | "off">("all", "all", "off"),
  grace: pick<ToolPolicy.Limit>("infinite", 1, 7),
  rate: pick(false, false, true),
  stop: Arbitrary.all({ kind: pick("none", "none", "deadline", "interrupt"), at: int(1, 60) })
})

type SomeTurn = typeof someTurn["~A"] extends (_: never) => infer A ? A : never

const policies = { letFinish: Siblings.letFinish, failFast: Siblings.failFast, quorum: Siblings.quorum(2) }

/** Runs it to its end, and to the end of what was given up on. */
export const eventsOf = (
  { dedupe, execution, grace, rate, siblings, specs, stop }: SomeTurn
): Effect.Effect<{ readonly events: ReadonlyArray<TurnEvent.TurnEvent>; readonly plan: TurnPlan.TurnPlan }> =>
  Effect.gen(function*() {
    const { book, layer } = lab({
      api: { concurrency: 2, ...(rate ? { rate: { limit: 1, window: 20 } } : undefined) },
      crm: { concurrency: 3, perTenant: 1 }
    })
    const calls = specs.map(({ k, n, name, placeholder, shared }, i) =>
      call(name, placeholder ? "<pending>" : shared ? "shared" : `t${i}`, shared ? ["s"] : k, {
        id: `c${i}`,
        ...(name === "ask" ? { n } : undefined)
      })
    )
    specs.forEach(({ does, shared }, i) => book.script.set(shared ? "shared" : `t${i}`, does as Does))
    const options: Turn.Options = {
      turn: "t",
      siblings: policies[siblings],
      execution,
      dedupe,
      grace,
      ...(stop.kind === "deadline" ? { deadline: stop.at } : undefined),
      onEvent: book.note
    }
    return yield* Effect.gen(function*() {
      const plan = yield* Effect.flatMap(
        fork(Turn.plan(toolkit, calls, options)),
        (fiber) => Effect.andThen(TestClock.adjust(1_000), Fiber.join(fiber))
      )
      const fiber = yield* fork(Turn.run(toolkit, calls, options))
      yield* TestClock.adjust(stop.at)
      if (stop.kind === "interrupt") yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(1_000_000)
      return { events: book.events, plan }
    }).pipe(Effect.provide(layer), Effect.orDie)
  })
