import { assert, it } from "@effect/vitest"
import { ParkedTurns } from "effect-turn"
import { checkLaws } from "./everyStore.ts"
import { laws } from "./parked.laws.ts"

await checkLaws("R10: the laws of parked turns", ParkedTurns.ParkedTurns, ParkedTurns.layer(), laws)

it("impossible options are refused where they are written", () => {
  assert.throws(() => ParkedTurns.layer({ lease: 0 }), /ParkedTurns.layer: the limit "lease"/)
})
