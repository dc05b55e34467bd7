/**
 * `effect-turn/testing`: fake tools, a scripted language model, a fake remote service and a fake store for a team's own tests, and scenario
 * files that run in virtual time.
 *
 * @since 0.1.0
 */

/**
 * A fake remote service for handlers to call: effects, idempotency keys, limits and faults.
 *
 * @since 0.1.0
 */
export * as FakeBackend from "./FakeBackend.ts"

/**
 * A language model that answers by a script, whole and streamed, and remembers what it was asked.
 *
 * @since 0.1.0
 */
export * as FakeModel from "./FakeModel.ts"

/**
 * A store for turns whose steps take time and go wrong, and whose processes crash.
 *
 * @since 0.1.0
 */
export * as FakeStore from "./FakeStore.ts"

/**
 * Fake handlers for real tools, and a world that remembers what they did.
 *
 * @since 0.1.0
 */
export * as FakeTool from "./FakeTool.ts"

/**
 * What every provider asks of a history with tool calls, as a check of prompts.
 *
 * @since 0.1.0
 */
export * as History from "./History.ts"

/**
 * How a model uses the tools that it is given, over a set of prompts.
 *
 * @since 0.1.0
 */
export * as ModelCheck from "./ModelCheck.ts"

/**
 * Scenario files in virtual time.
 *
 * @since 0.1.0
 */
export * as Scenario from "./Scenario.ts"

/**
 * Simulated runs of a program: many interleavings, each of them repeatable.
 *
 * @since 0.1.0
 */
export * as Simulation from "./Simulation.ts"

/**
 * The rules of turns as laws, to judge what was seen of turns that ran.
 *
 * @since 0.1.0
 */
export * as Laws from "./Laws.ts"

/**
 * Turns of your own tools: generated, run, and watched.
 *
 * @since 0.1.0
 */
export * as TurnCase from "./TurnCase.ts"
