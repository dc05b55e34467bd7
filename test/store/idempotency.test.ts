import { assert, it } from "@effect/vitest"
import { IdempotencyStore } from "effect-turn"
import { checkLaws } from "./everyStore.ts"
import { laws, options } from "./idempotency.laws.ts"

await checkLaws(
  "R23: the laws of idempotency keys",
  IdempotencyStore.IdempotencyStore,
  IdempotencyStore.layer(options),
  laws
)

it("impossible options are refused where they are written", () => {
  assert.throws(() => IdempotencyStore.layer({ lease: 0 }), /IdempotencyStore.layer: the limit "lease"/)
  assert.throws(() => IdempotencyStore.layer({ keep: -1 }), /IdempotencyStore.layer: the limit "keep"/)
  assert.throws(() => IdempotencyStore.layer({ maxResult: 1.5 }), /IdempotencyStore.layer: the limit "maxResult"/)
})
