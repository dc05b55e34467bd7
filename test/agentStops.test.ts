/** A stop everywhere: whatever an agent is doing, it closes its turn, tells what took place, and its history goes on. */
import { assert, describe, it } from "@effect/vitest"
import { Agent } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { runs } from "./utils/gen.ts"
import { script, World } from "./utils/journey.ts"

type Way = "interrupt" | "button" | "stream interrupt" | "stream button"

/** Runs the journey, stops it in this way when `stop` succeeds, and gives what does not fit together afterwards. */
const stopped = (steps: number, way: Way, stop: Effect.Effect<void>) =>
  Effect.gen(function*() {
    const world = new World()
    const button = yield* Deferred.make<string>()
    const options = { ...world.options, cancelOn: Deferred.await(button) }
    const agent = way.startsWith("stream") ? Stream.runDrain(Agent.stream(options)) : Effect.asVoid(Agent.run(options))
    const fiber = yield* Effect.forkChild(Effect.provide(agent, world.layer(script(steps))))
    const press = way.endsWith("interrupt") ? Fiber.interrupt(fiber) : Deferred.succeed(button, "user")
    yield* Effect.raceFirst(Effect.andThen(Effect.andThen(stop, press), Fiber.await(fiber)), Fiber.await(fiber))
    const exit = yield* Fiber.await(fiber)
    // Interrupted before its first step, it was never there.
    if (world.closed.length === 0 && Exit.hasInterrupts(exit) && world.told.size === 0) return []
    const { reason } = world.closed[0]!
    const ends = way.endsWith("interrupt") ? ["interrupted", "final"] : ["stopped", "final"]
    return [
      ...world.verdict(),
      ...(ends.includes(reason) ? [] : [`it ended by ${reason}`]),
      ...yield* world.goOn()
    ]
  })

const check = (steps: number, way: Way, stop: Effect.Effect<void>) =>
  Effect.map(stopped(steps, way, stop), (problems) => assert.deepStrictEqual(problems, []))

const ways: ReadonlyArray<Way> = ["interrupt", "button", "stream interrupt", "stream button"]

describe("Agent: forty steps", () => {
  it.effect("run to their end", () =>
    Effect.gen(function*() {
      const world = new World()
      const { exit } = yield* Simulation.run(Effect.provide(Agent.run(world.options), world.layer(script(40))))
      assert.isTrue(exit !== undefined && Exit.isSuccess(exit))
      assert.deepStrictEqual(world.verdict(), [])
      assert.strictEqual(world.closed[0]!.steps.length, 40)
      assert.strictEqual(world.closed[0]!.usage.total, 39 * 12)
      assert.deepStrictEqual([world.subClosed.length, world.ledger.length], [4, 50])
    }))

  for (const way of ways) {
    for (const [steps, count] of [[10, 100], [40, 40]] as const) {
      it.effect(`${way}, at places spread over ${steps} steps`, () =>
        Effect.gen(function*() {
          const { points, problem } = yield* Simulation.run(check(steps, way, Effect.never))
          assert.isUndefined(problem)
          // Every place, when that is asked for: minutes.
          const stride = Number(
            process.env["EFFECT_TURN_EVERY"] ?? Math.max(1, Math.floor(points / runs(count).arbitrary.runs))
          )
          const reached = new Set<string>()
          for (let point = 1; point <= points; point += stride) {
            const run = yield* Simulation.run(check(steps, way, Simulation.point(point)))
            if (run.problem !== undefined) assert.fail(`stopped at point ${point} of ${points}: ${run.problem}`)
            reached.add(`${run.steps}`)
          }
          assert.isAbove(reached.size, 20)
        }), 600_000)
    }
  }

  it.effect("a response that was given is answered, also where its turn had not begun", () =>
    Effect.gen(function*() {
      let unstarted = 0
      const { points } = yield* Simulation.run(check(2, "interrupt", Effect.never))
      for (let point = 1; point <= points; point++) {
        const program = Effect.gen(function*() {
          const world = new World()
          const fiber = yield* Effect.forkChild(Effect.provide(Agent.run(world.options), world.layer(script(2))))
          yield* Effect.raceFirst(Effect.andThen(Simulation.point(point), Fiber.interrupt(fiber)), Fiber.await(fiber))
          const outcomes = world.closed[0]?.steps[0]?.outcomes
          if (outcomes?.every((one) => one.status === "cancelled" && !one.started)) unstarted++
        })
        yield* Simulation.run(program)
      }
      assert.isAbove(unstarted, 0)
    }), 60_000)

  it.effect("stopped in any way, in any order of what happens", () =>
    Effect.gen(function*() {
      for (const way of ways) {
        for (const ms of [0, 20, 333]) {
          yield* Simulation.explore(check(10, way, Effect.sleep(ms)), { seeds: runs(12).arbitrary.runs })
        }
      }
    }), 120_000)

  it.effect(
    "a small agent, stopped at work, in every order that one forced switch makes",
    () =>
      Effect.gen(function*() {
        for (const way of ["interrupt", "button"] as const) {
          const { complete, orders } = yield* Simulation.exhaust(check(2, way, Effect.sleep(5)), { switches: 1 })
          assert.isTrue(complete && orders > 100)
        }
      }),
    60_000
  )
})
