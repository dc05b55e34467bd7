/** The other half of the ten thousand schedules of tenants.test.ts: turns that are stopped as a whole. */
import { assert, describe, it } from "@effect/vitest"
import * as library from "effect-turn"
import * as kit from "effect-turn/testing"
import * as Effect from "effect/Effect"
import { shop, stops } from "../utils/shop.ts"

describe("two tenants of one coalescer and one backend", () => {
  it.effect.each(stops.slice(2))("keep apart under 2500 schedules, and $name", (stop) =>
    Effect.gen(function*() {
      const explored = yield* shop({ kit, library }, stop, 2500)
      assert.strictEqual(explored.runs, 2500)
      assert.isAbove(explored.distinct, 2000)
    }), 120_000)
})
