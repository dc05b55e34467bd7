import { assert, it } from "@effect/vitest"
import { TurnJournal } from "effect-turn"
import { checkLaws } from "./everyStore.ts"
import { laws, options } from "./journal.laws.ts"

await checkLaws("R21: the laws of a journal", TurnJournal.TurnJournal, TurnJournal.layer(options), laws)

it("impossible options are refused where they are written", () => {
  assert.throws(() => TurnJournal.layer({ lease: 0 }), /TurnJournal.layer: the limit "lease"/)
  assert.throws(() => TurnJournal.layer({ keep: -1 }), /TurnJournal.layer: the limit "keep"/)
  assert.throws(() => TurnJournal.layer({ maxResult: 0 }), /TurnJournal.layer: the limit "maxResult"/)
})
