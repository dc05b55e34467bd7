/**
 * Processes over one store that are killed while they book, and what is known of each booking: what its calls were told, what the server
 * has counted, and where it stood when its process was killed.
 */
import { IdempotencyStore, type Outcome } from "effect-turn"
import type * as ManagedRuntime from "effect/ManagedRuntime"
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { type Booking, type Mode, modes, type Script, type Setup, type Told } from "./script.ts"
import type { BookingServer } from "./server.ts"

/** Where a call stood when its process was killed. */
export const moments = [
  "before its reservation",
  "between reservation and effect",
  "between effect and record",
  "after its record"
] as const

export type Moment = typeof moments[number]

const points = ["go", "asked", "answered", "told"] as const

/** A booking, and every answer that one of its calls was told, with how often it had been made by then. */
interface Known extends Booking {
  readonly told: Array<{ readonly outcome: Outcome.Encoded; readonly count: number }>
}

/** A turn of which not every call is known to have its answer. */
interface Open extends Script {
  /** How often it has been run. */
  runs: number
  /** When it may have been left by a process that was killed. */
  leftAt: number
}

export interface LaneOptions {
  readonly setup: Setup
  readonly file: string
  readonly server: BookingServer
  readonly store: ManagedRuntime.ManagedRuntime<IdempotencyStore.IdempotencyStore, unknown>
  /** Numbers between 0 and 1. */
  readonly random: () => number
}

export class Lane {
  readonly hits = new Map<`${Mode} ${Moment}`, number>()
  readonly bookings = new Map<string, Known>()
  readonly problems: Array<string> = []
  killed = 0
  private readonly open = new Map<string, Open>()
  private readonly ready: Array<Promise<ChildProcess>> = []
  private readonly options: LaneOptions
  private turns = 0

  constructor(options: LaneOptions) {
    this.options = options
  }

  /** Kills so many processes, each at some moment of its work. */
  async kill(times: number): Promise<void> {
    // One that ends by itself leaves what it has compiled to the others.
    await this.inProcess([this.newTurn()])
    this.startOne()
    this.startOne()
    for (let i = 0; i < times; i++) {
      const child = await this.ready.shift()!
      if (i + 2 < times) this.startOne()
      await this.killOne(child)
    }
  }

  private startOne(): void {
    this.ready.push(start(this.options))
  }

  private async killOne(child: ChildProcess): Promise<void> {
    const { random, server, setup } = this.options
    // A process that was killed has its keys until its lease is over.
    const left = Date.now() - setup.lease
    const again = [...this.open.values()].filter(({ leftAt }) => leftAt < left).slice(0, 2)
    // Some time after it was told to go, or its first turn was at one of these points: however long a process takes to get there, it is
    // killed at every moment of its work.
    const point = points[Math.floor(random() * points.length)]!
    const first = this.newTurn()
    const fresh = point === "told" ? [first, this.newTurn()] : [first]
    const { promise, resolve } = Promise.withResolvers<void>()
    this.listen(child, (turn) => point === "told" && turn === first && resolve()).then(resolve, resolve)
    server.onBooking = (key, moment) => point === moment && first.bookings.some((one) => one.key === key) && resolve()
    this.go(child, again, fresh)
    if (point !== "go") await promise
    await new Promise((resolve) => setTimeout(resolve, random() * 40))
    await kill(child)
    this.killed++
    for (const turn of [...again, ...fresh]) {
      if (!this.open.has(turn.turn)) continue
      turn.leftAt = Date.now()
      for (const booking of turn.bookings) await this.note(booking, fresh.includes(turn))
    }
  }

  /** Where the call of a booking stood. Only the first call of a key is at a moment of its own. */
  private async note({ key, mode }: Booking, first: boolean): Promise<void> {
    const { server, store } = this.options
    const entry = await store.runPromise(
      IdempotencyStore.IdempotencyStore.use((records) => records.lookUp(recordKey(mode, key)))
    )
    const count = server.countOf(key)
    if (entry === undefined && count > 0) this.problems.push(`${key} was made, and nothing was reserved for it`)
    if (!first) return
    const moment: Moment = entry === undefined
      ? "before its reservation"
      : entry.state === "applied"
      ? "after its record"
      : count === 0
      ? "between reservation and effect"
      : "between effect and record"
    const what = `${mode} ${moment}` as const
    this.hits.set(what, (this.hits.get(what) ?? 0) + 1)
  }

  private newTurn(): Open {
    const { random } = this.options
    const turn = `turn-${this.turns++}`
    // One of them takes longer: the others are in the records before their turn has its answers.
    const slow = modes[Math.floor(random() * modes.length)]
    const bookings = modes.map((mode): Known => {
      const key = `booking-${this.turns}-${mode}`
      const before = Math.floor(random() * 20)
      const after = Math.floor(random() * 10) + (mode === slow ? 60 : 0)
      const booking = { mode, key, before, after, told: [] }
      this.bookings.set(key, booking)
      return booking
    })
    const open = { turn, bookings, runs: 0, leftAt: 0 }
    this.open.set(turn, open)
    return open
  }

  private go(child: ChildProcess, again: ReadonlyArray<Open>, fresh: ReadonlyArray<Open>): void {
    const scriptOf = (open: Open): Script => ({
      // Without a journal it is a new turn, with the same calls.
      turn: this.options.setup.journal ? open.turn : `${open.turn}.${open.runs++}`,
      bookings: open.bookings.map(({ after, before, key, mode }) => ({ after, before, key, mode }))
    })
    child.send({ again: again.map(scriptOf), fresh: fresh.map(scriptOf) })
  }

  /** Hears what a process tells; gives its end. */
  private listen(child: ChildProcess, onTold?: (turn: Open) => void): Promise<void> {
    const { promise: done, reject, resolve } = Promise.withResolvers<void>()
    const hear = (told: Told) => {
      if (told._tag === "broken") reject(new Error(told.why))
      if (told._tag === "done") resolve()
      if (told._tag !== "told") return
      const turn = this.options.setup.journal ? told.turn : told.turn.slice(0, told.turn.lastIndexOf("."))
      for (const outcome of told.outcomes) {
        this.bookings.get(outcome.id)!.told.push({ outcome, count: this.options.server.countOf(outcome.id) })
      }
      const open = this.open.get(turn)
      if (told.outcomes.every(isAnswer)) this.open.delete(turn)
      if (open !== undefined) onTold?.(open)
    }
    // One that ends by itself was not killed, and has shown nothing.
    const left = (code: number | null) => reject(new Error(`a process ended by itself with ${code}`))
    child.on("message", hear)
    child.on("exit", left)
    done.catch((error: unknown) => this.problems.push(String(error)))
    return done
  }

  /** Runs every turn that has no answer to its end, in a process that nobody kills. */
  async finish(): Promise<void> {
    for (let round = 0; this.open.size > 0 && round < 5; round++) {
      await this.inProcess([...this.open.values()])
    }
  }

  /** Calls these bookings again, and gives their last answers. */
  async again(keys: ReadonlyArray<string>): Promise<ReadonlyArray<Outcome.Encoded>> {
    const turns = keys.map((key): Open => ({
      turn: `again-${this.turns++}`,
      bookings: [this.bookings.get(key)!],
      runs: 0,
      leftAt: 0
    }))
    await this.inProcess(turns)
    return keys.map((key) => this.bookings.get(key)!.told.at(-1)!.outcome)
  }

  private async inProcess(turns: ReadonlyArray<Open>): Promise<void> {
    const child = await start(this.options)
    const done = this.listen(child)
    this.go(child, turns, [])
    await done
    await end(child)
  }

  get left(): ReadonlyArray<string> {
    return [...this.open.keys()]
  }
}

/** An answer after which nobody calls again. */
const isAnswer = ({ code, status }: Outcome.Encoded): boolean => status === "ok" || code === "in_doubt"

export const recordKey = (mode: Mode, key: string): IdempotencyStore.Key => ({
  tenant: "t",
  conversation: "c",
  tool: `book_${mode}`,
  key
})

const start = async ({ file, setup }: LaneOptions): Promise<ChildProcess> => {
  const child = fork(file, [JSON.stringify(setup)], {
    execArgv: [],
    env: { ...process.env, NODE_COMPILE_CACHE: `${file}.cache` }
  })
  await new Promise<void>((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`a process ended with ${code} before it was ready`)))
    child.once("message", (told: Told) => told._tag === "ready" ? resolve() : reject(new Error(told._tag)))
  })
  child.removeAllListeners("exit")
  return child
}

const end = async (child: ChildProcess): Promise<void> => {
  child.removeAllListeners("exit")
  const ended = once(child, "exit")
  child.disconnect()
  await ended
}

const kill = async (child: ChildProcess): Promise<void> => {
  child.removeAllListeners("exit")
  if (child.exitCode !== null || child.signalCode !== null) return
  // What it has said before has come when its channel is closed.
  const ended = Promise.all([once(child, "exit"), once(child, "disconnect")])
  child.kill("SIGKILL")
  await ended
}
