/**
 * Two tenants whose turns and plain loads share one coalescer and one backend, with stops, under ten thousand schedules: never an item of one
 * in the other's request.
 */
import { assert, describe, it } from "@effect/vitest"
import * as library from "effect-turn"
import * as kit from "effect-turn/testing"
import * as Effect from "effect/Effect"
import { shop, stops } from "../utils/shop.ts"

// The other half is in tenants.stops.test.ts, which runs beside this one.
describe("two tenants of one coalescer and one backend", () => {
  it.effect.each(stops.slice(0, 2))("keep apart under 2500 schedules, and $name", (stop) =>
    Effect.gen(function*() {
      const explored = yield* shop({ kit, library }, stop, 2500)
      assert.strictEqual(explored.runs, 2500)
      assert.isAbove(explored.distinct, 2000)
    }), 120_000)
})
