/**
 * Calls whose arguments are results of others, from their places to their decoded arguments (rule R16).
 *
 * - E1: such a call has its place from the start, behind those that it needs. It is decoded when all of them have their answers.
 * - E2: without a result it is answered so. Before the end of a list that still comes it only waits: the response may be cut short.
 */
import type * as Outcome from "../../Outcome.ts"
import * as Answers from "./answers.ts"
import type { Taken } from "./intake.ts"
import { fill, words } from "./references.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"

export class Needs {
  private readonly turn: TurnState
  /** Calls that wait, by the position of what they wait for. */
  private readonly waiting = new Map<number, Array<Run>>()
  /** Those that have all answers. */
  private ready: Array<Run> = []

  constructor(turn: TurnState) {
    this.turn = turn
  }

  /** A call that has its place: it waits, where it needs something. */
  add(run: Run): void {
    const { needs } = run.taken
    if (needs === undefined || run.phase !== "waiting") return
    for (const call of new Set(needs.map(({ call }) => call))) {
      if (this.turn.slots[call] !== undefined) continue
      run.missing++
      const known = this.waiting.get(call)
      if (known === undefined) this.waiting.set(call, [run])
      else known.push(run)
    }
    if (run.missing === 0) {
      this.ready.push(run)
      return this.turn.touch()
    }
    if (run.waitedForKeys) return
    run.waitedForKeys = true
    this.turn.tellKeysAwaited(run)
  }

  /** A call has its answer: those that need it may go on. */
  answered(position: number): void {
    const waiting = this.waiting.get(position)
    if (waiting === undefined) return
    this.waiting.delete(position)
    for (const run of waiting) if (--run.missing === 0) this.ready.push(run)
    this.turn.touch()
  }

  /** A call is held: those that need its result wait with it for what a human decides. */
  withhold(position: number): void {
    const waiting = this.waiting.get(position) ?? []
    this.waiting.delete(position)
    for (const run of waiting) {
      if (run.phase !== "waiting" || run.concluding) continue
      const need = run.taken.needs!.find(({ call }) => call === position)!
      this.turn.answerUnstarted(run, Answers.withheld(run, words(need, this.turn.setting.calls)))
    }
  }

  /** Puts results where they are named, and finds out what the calls come to with them. */
  resolve(): void {
    if (this.ready.length === 0) return
    const { ready } = this
    this.ready = []
    for (const run of ready) if (run.phase === "waiting" && !run.concluding) this.resolveOne(run)
  }

  private resolveOne(run: Run): void {
    const { setting, slots } = this.turn
    const { calls, intake } = setting
    const { encoded, needs } = run.taken
    const without = needs!.find(({ call }) => slots[call]!.status !== "ok")
    if (without !== undefined) {
      return this.turn.answerUnstarted(run, Answers.withoutResult(run, words(without, calls), slots[without.call]!))
    }
    const found = fill(encoded!, needs!, (call) => (slots[call] as Outcome.Ok<string, unknown>).encoded)
    if ("missing" in found) {
      return this.turn.answerUnstarted(run, Answers.withoutPart(run, words(found.missing, calls)))
    }
    const taken = intake.filled(run.taken, found.args)
    if (taken.pending === undefined) return this.decoded(run, taken)
    let known = false
    const decoding = this.turn.helper(taken.pending, () => {
      known = true
      run.asking = undefined
      this.decoded(run, taken)
    })
    if (!known) run.asking = decoding
  }

  private decoded(run: Run, taken: Taken): void {
    if (run.phase !== "waiting" || run.concluding) return
    const { state } = taken
    if (state._tag === "refused") {
      return this.turn.answerUnstarted(run, Answers.refused(run, state.code, state.message))
    }
    this.turn.isWhole(run, taken)
  }
}
