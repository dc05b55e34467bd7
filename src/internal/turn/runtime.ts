/**
 * What all turns of a process share: the order of keys per tenant, the supervisor of work that was given up on, and one loop in
 * which everything that becomes ready is started.
 *
 * - P1: the state of turns changes in one step at a time. What a step makes possible is done in the loop that ends it, so a
 *   handler that ends at once neither deepens the stack nor is started twice.
 * - P2: a key is held until the work has really ended, whoever has been answered meanwhile.
 * - P3: when the runtime is closed no new turn starts; those that run are stopped or awaited, and what is still at work is listed.
 */
import type * as IdempotencyStore from "../../IdempotencyStore.ts"
import * as ToolDurations from "../../ToolDurations.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as TurnJournal from "../../TurnJournal.ts"
import { Claims, end, type Node } from "../../TurnPlan.ts"
import { Keys } from "./keys.ts"
import { Leases } from "./leases.ts"
import { DecidedCalls, Repeats } from "./repeats.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"

export class RuntimeState {
  readonly turns = new Set<TurnState>()
  readonly unsettled = new Set<Run>()
  readonly repeats = new Repeats()
  readonly decided = new DecidedCalls()
  /** How long tools have taken on this runtime. */
  readonly durations = ToolDurations.make()
  /** The idempotency keys in hand, by the store that they are in. */
  private readonly keys = new Map<IdempotencyStore.IdempotencyStore["Service"], Keys>()
  private readonly journals = new Map<TurnJournal.TurnJournal["Service"], Leases>()
  closed = false
  /** Turns at work that are not inside a call, and how many there may be. */
  topLevel = 0
  mostTurns = Infinity
  /** Called whenever a turn has ended, or work that was given up on has. */
  readonly onQuiet = new Set<() => void>()
  /** Told of work that was given up on and has ended. */
  onSettledLate: ((event: TurnEvent.CallSettledLate) => void) | undefined = undefined
  private readonly tables = new Map<string, Claims>()
  private readonly queue: Array<TurnState> = []
  private depth = 0
  private done: Array<Node> = []
  private readonly skipped: Array<Node> = []
  private readonly told: Array<() => void> = []
  private telling = false

  table(tenant: string): Claims {
    let table = this.tables.get(tenant)
    if (table === undefined) this.tables.set(tenant, table = new Claims())
    return table
  }

  keysOf(store: IdempotencyStore.IdempotencyStore["Service"]): Keys {
    let keys = this.keys.get(store)
    if (keys === undefined) this.keys.set(store, keys = new Keys(store))
    return keys
  }

  leasesOf(journal: TurnJournal.TurnJournal["Service"]): Leases {
    let leases = this.journals.get(journal)
    if (leases === undefined) this.journals.set(journal, leases = new Leases(journal.lease))
    return leases
  }

  /** What is at work still is left to itself: what it has claimed lapses. */
  letGo(): void {
    for (const leases of this.journals.values()) leases.stop()
    for (const keys of this.keys.values()) keys.leases.stop()
  }

  /** Forgets the keys of a tenant of which none is held. */
  tidy(tenant: string): void {
    if (this.tables.get(tenant)?.root.live === 0) this.tables.delete(tenant)
  }

  /** Something has changed for this turn: it is looked at before the current step ends. */
  touch(turn: TurnState): void {
    if (turn.touched) return
    turn.touched = true
    this.queue.push(turn)
  }

  enter(): void {
    this.depth++
  }

  /** Something has changed that turns inside handlers may wait for. */
  touchNested(): void {
    for (const turn of this.turns) if (turn.ancestors !== undefined) this.touch(turn)
  }

  /** Ends a step; the outermost one does what has become possible, and then tells what has happened. */
  leave(): void {
    if (this.depth > 1) {
      this.depth--
      return
    }
    try {
      for (;;) {
        this.endNodes()
        const turn = this.queue.shift()
        if (turn === undefined) break
        turn.touched = false
        turn.setting.timers.tick()
        turn.pump()
      }
    } finally {
      this.depth--
      if (this.depth === 0) this.tell()
    }
  }

  /** Keys go back at the end of the step. Of calls that never started the last goes first, so that nothing is handed on in vain. */
  private endNodes(): void {
    while (this.skipped.length > 0) end(this.skipped.pop()!, becomesReady)
    if (this.done.length === 0) return
    const done = this.done
    this.done = []
    for (const node of done) end(node, becomesReady)
  }

  endNode(node: Node, started: boolean): void {
    if (started) this.done.push(node)
    else this.skipped.push(node)
  }

  /** Events are told between steps, so that whoever listens may stop a turn without meeting it half-way. */
  later(tell: () => void): void {
    this.told.push(tell)
    if (this.depth === 0) this.tell()
  }

  private tell(): void {
    if (this.telling) return
    this.telling = true
    for (let i = 0; i < this.told.length; i++) this.told[i]!()
    this.told.length = 0
    this.telling = false
  }

  tellLate(event: TurnEvent.CallSettledLate): void {
    try {
      this.onSettledLate?.(event)
    } catch {
      // Whoever listens cannot hurt the runtime.
    }
  }

  quiet(): void {
    for (const quiet of this.onQuiet) quiet()
  }
}

const becomesReady = (node: Node): void => (node.owner as Run).becomesReady()
