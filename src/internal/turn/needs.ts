/**
 * Calls whose arguments are results of others, from their places to their decoded arguments (rule R16).
 *
 * - E1: such a call has its place from the start, behind those that it needs. It is decoded when all of them have their answers.
 * - E2: without a result it is answered so. Before the end of a list that still comes it only waits: the response may be cut short.
 * - E3: what has taken effect in a unit that is all or nothing has its result for the others of the unit, which is decided after them.
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
    let held: number | undefined
    for (const call of new Set(needs.map(({ call }) => call))) {
      if (this.answerFor(run, call) !== undefined) continue
      run.missing++
      if (this.turn.isHeld(call)) {
        held = call
        continue
      }
      const known = this.waiting.get(call)
      if (known === undefined) this.waiting.set(call, [run])
      else known.push(run)
    }
    if (run.missing === 0) {
      this.ready.push(run)
      return this.turn.touch()
    }
    if (held !== undefined) return this.answerWithheld(run, held)
    if (run.waitedForKeys) return
    run.waitedForKeys = true
    this.turn.tellKeysAwaited(run)
  }

  /** What a call was answered, as far as another one may use it. */
  private answerFor(run: Run, call: number): Outcome.Outcome<any> | undefined {
    const { slots } = this.turn
    if (slots[call] !== undefined) return slots[call]
    const source = this.turn.runOf(call)
    return source?.phase === "ended" && source.group === run.group ? source.applied?.outcome : undefined
  }

  /** A call has its answer: those that need it may go on. */
  answered(position: number): void {
    const waiting = this.waiting.get(position)
    if (waiting === undefined) return
    this.waiting.delete(position)
    for (const run of waiting) if (--run.missing === 0) this.ready.push(run)
    this.turn.touch()
  }

  /** A call has taken effect, and is answered when its unit is decided: those of the unit that need it may go on (E3). */
  applied(source: Run): void {
    for (const position of [source.position, ...source.twins ?? []]) {
      const waiting = this.waiting.get(position)
      if (waiting === undefined) continue
      this.waiting.set(position, waiting.filter((run) => run.group !== source.group))
      for (const run of waiting) if (run.group === source.group && --run.missing === 0) this.ready.push(run)
    }
    this.turn.touch()
  }

  /** The calls that wait for the result of a run, over others as well, in the order of their places. */
  behind(run: Run): ReadonlyArray<Run> {
    const found = new Set([run])
    for (const later of this.turn.runs) {
      if (later.phase !== "waiting" || later.concluding || later.missing === 0) continue
      if (later.taken.needs!.some(({ call }) => found.has(this.turn.runOf(call)!))) found.add(later)
    }
    found.delete(run)
    return [...found]
  }

  /** A call is held: those that need its result wait with it for what a human decides. */
  withhold(position: number): void {
    const waiting = this.waiting.get(position) ?? []
    this.waiting.delete(position)
    for (const run of waiting) if (run.phase === "waiting" && !run.concluding) this.answerWithheld(run, position)
  }

  private answerWithheld(run: Run, position: number): void {
    const need = run.taken.needs!.find(({ call }) => call === position)!
    this.turn.answerUnstarted(run, Answers.withheld(run, words(need, this.turn.setting.calls)))
  }

  /** Puts results where they are named, and finds out what the calls come to with them. */
  resolve(): void {
    if (this.ready.length === 0) return
    const { ready } = this
    this.ready = []
    for (const run of ready) if (run.phase === "waiting" && !run.concluding) this.resolveOne(run)
  }

  private resolveOne(run: Run): void {
    const { calls, intake } = this.turn.setting
    const { encoded, needs } = run.taken
    const answerTo = (call: number) => this.answerFor(run, call)!
    const without = needs!.find(({ call }) => answerTo(call).status !== "ok")
    if (without !== undefined) {
      return this.turn.answerUnstarted(run, Answers.withoutResult(run, words(without, calls), answerTo(without.call)))
    }
    const resultOf = (call: number) => (answerTo(call) as Outcome.Ok<string, unknown>).encoded
    const found = fill(encoded!, needs!, resultOf, intake.limits)
    if ("missing" in found) {
      return this.turn.answerUnstarted(run, Answers.withoutPart(run, words(found.missing, calls)))
    }
    if ("problem" in found) {
      return this.turn.answerUnstarted(
        run,
        Answers.refused(run, "invalid_arguments", `tool "${run.name}": ${found.problem}`)
      )
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
