/**
 * Faults of concurrency, planted in a copy of the library one at a time: the kit has to find each of them, make it small, and repeat
 * it. The same programs pass on the library as it is.
 */
import type * as Kit from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { type Copy, describeFaults, type Fault } from "../utils/plant.ts"

const Room = Schema.Struct({ room: Schema.String })

/** Turns over a register that each write reads and then writes, on a backend of its own; the laws judge them. */
const turnsOf = ({ kit, library }: Copy) => {
  const { Backend, ToolPolicy } = library
  const Desk = Backend.Service<unknown>()("planted/Desk")
  const keys = ({ room }: typeof Room.Type) => [`room:${room}`]
  const tools = Toolkit.make(
    pipe(Tool.make("look", { parameters: Room, success: Schema.Int }), ToolPolicy.read({ keys }), ToolPolicy.on(Desk)),
    pipe(
      Tool.make("add", { parameters: Room, success: Schema.Int }),
      ToolPolicy.write({ keys }),
      ToolPolicy.timeout(20)
    ),
    pipe(
      Tool.make("fail", { parameters: Room, success: Schema.Int, failure: Schema.String }),
      ToolPolicy.read({ keys })
    ),
    pipe(
      Tool.make("deaf", { parameters: Room, success: Schema.Int }),
      ToolPolicy.read({ keys: () => [] }),
      ToolPolicy.timeout(10)
    )
  )
  const program = (turnCase: Kit.TurnCase.TurnCase) =>
    Effect.gen(function*() {
      const register = new Map<string, number>()
      let added = 0
      const get = (room: string) => Effect.sync(() => register.get(room) ?? 0)
      const handlers = tools.toLayer({
        look: ({ room }) => Effect.tap(get(room), Effect.sleep(10)),
        add: ({ room }) =>
          Effect.gen(function*() {
            const seen = yield* get(room)
            yield* Effect.sleep(10)
            register.set(room, seen + 1)
            added++
            return seen + 1
          }),
        fail: () => Effect.andThen(Effect.sleep(10), Effect.fail("no")),
        deaf: () => Effect.uninterruptible(Effect.as(Effect.sleep(50), 1))
      })
      const layer = Layer.mergeAll(handlers, Desk.layer({ concurrency: 1 }))
      const observation = yield* kit.TurnCase.run(tools, layer as Layer.Layer<any>, turnCase)
      yield* kit.Laws.check(observation)
      const sum = [...register.values()].reduce((a, b) => a + b, 0)
      if (turnCase.turns.length === 1 && sum !== added) {
        return yield* Effect.fail(`lost update: ${added} added, ${sum} there`)
      }
    })
  const cases = kit.TurnCase.arbitrary(tools, { maxTurns: 1, oddities: false })
  return kit.Simulation.forAll(cases, program, { inputs: 800, seeds: 3 })
}

/** A permit for a plain effect, and a stop at any point. */
const permits = ({ kit, library }: Copy) => {
  const Desk = library.Backend.Service<unknown>()("planted/Desk")
  return kit.Simulation.explore(
    Effect.gen(function*() {
      const fibers = yield* Effect.forEach([1, 2], () => Effect.forkChild(Desk.withPermit(Effect.sleep(10))))
      yield* Effect.sleep(10)
      yield* Fiber.interruptAll(fibers)
      const { running } = yield* Desk.stats
      if (running !== 0) return yield* Effect.fail(`${running} permits are lost`)
    }).pipe(Effect.provide(Desk.layer({ concurrency: 1 }))),
    { seeds: 2000 }
  )
}

const faults: ReadonlyArray<Fault> = [
  {
    fault: "a permit is lost when an interruption falls between take and release",
    changes: [{
      file: "Backend.ts",
      from: `    return Effect.uninterruptibleMask((restore) =>
      restore(wait).pipe(
        Effect.andThen(Effect.suspend(() => restore(Effect.provideService(self, Held, permit)))),
        Effect.onExit((exit) =>`,
      to: `    return Effect.andThen(
      wait,
      Effect.suspend(() => Effect.provideService(self, Held, permit)).pipe(
        Effect.onExit((exit) =>`
    }],
    find: permits,
    tells: /1 permits are lost/
  },
  {
    fault: "a call is answered twice when its timeout and its end fall together",
    // The end of a run does not switch off a timer that is due at this very moment.
    changes: [
      {
        file: "internal/turn/state.ts",
        from: "    run.asking?.interruptUnsafe()\n    if (run.timer !== undefined) run.timer.off = true\n",
        to: `    run.asking?.interruptUnsafe()
    if (run.timer !== undefined) run.timer.off = run.timer.at > this.setting.timers.now()
`
      },
      {
        file: "internal/turn/state.ts",
        from: 'const timeIsOver = (run: Run): void => run.turn.step(() => run.expire("timeout", run.policy.timeout))',
        to: `const timeIsOver = (run: Run): void =>
  run.turn.step(() => {
    if (run.phase === "running") return run.expire("timeout", run.policy.timeout)
    const outcome = Answers.timedOut(run, { clock: "timeout", millis: run.policy.timeout }, run.policy)
    run.turn.event((base) => ({ ...base(run), _tag: "CallEnded", outcome: outcome as any }))
  })`
      }
    ],
    find: turnsOf,
    tells: /R1: turn 0, call \d \("c\d"\): expected one event of its end, got 2/
  },
  {
    fault: "a sibling is started after a stop",
    changes: [{
      file: "internal/siblings/group.ts",
      from: '    for (const member of this.members) if (member.phase === "waiting") member.skip(reason)\n',
      to: ""
    }],
    find: turnsOf,
    tells: /R18: "c\d" \(\w+\) of turn 0 was started after (the turn was stopped|a sibling failed)/
  },
  {
    fault: "a late result overwrites an earlier one",
    changes: [{
      file: "internal/turn/state.ts",
      from: "    if (run.givenUp) return this.settledLate(run, outcome)\n",
      to: `    if (run.givenUp) {
      this.slots[run.position] = outcome
      return this.settledLate(run, outcome)
    }
`
    }],
    find: turnsOf,
    tells: /R1: turn 0, when all was over, call \d: expected the one answer that it was given/
  },
  {
    fault: "a write that took effect is told to have had none",
    changes: [{
      file: "internal/turn/answers.ts",
      from: 'const effect: Outcome.Effect = tool.policy.access === "write" ? "applied" : "none"',
      to: 'const effect: Outcome.Effect = "none"'
    }],
    find: turnsOf,
    tells: /R3: .* a write that was started: expected the effect "applied", got "none"/
  },
  {
    fault: "the limit of running is not set",
    changes: [{
      file: "internal/turn/state.ts",
      from: "    run.timer = timers.setAt(now + policy.timeout, timeIsOver, run)\n",
      to: ""
    }],
    find: turnsOf,
    tells: /R15: "c\d" \(deaf\) of turn 0 ran for \d+ ms, may run for 10 ms, and was answered ok/
  },
  {
    fault: "a stop does not reach what is running",
    changes: [{
      file: "internal/siblings/group.ts",
      from: '    for (const member of this.members) if (member.phase === "running") member.stop(reason)\n',
      to: ""
    }],
    find: turnsOf,
    tells: /R19: "c\d" \(\w+\) of turn 0 was at work when its turn was stopped at \d+ ms, and its outcome is \w+/
  },
  {
    fault: "an update is lost between two conflicting calls",
    changes: [
      {
        file: "internal/turn/state.ts",
        from: "      (run.node !== undefined && run.node.pending > 0)\n    ) return",
        to: "      false\n    ) return"
      },
      {
        file: "internal/turn/state.ts",
        from: "      if (node.pending > 0) {\n        run.waitedForKeys = true",
        to: "      if (node.pending > 2) {\n        run.waitedForKeys = true"
      }
    ],
    find: turnsOf,
    tells: /R12: .* conflict on "room:\w+", and ran at the same time/
  }
]

describeFaults("planted faults", faults, [permits, turnsOf])
