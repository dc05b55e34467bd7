/**
 * Calls of one turn that share requests (rules R14, R28).
 *
 * - Q1: a request holds what runs of one turn ask of one coalescer on one backend: each item once, at most as many as its size.
 * - Q2: it takes one permit, and counts as one under the turn's own limit. A run starts with the first request that it takes part in, and
 *   ends with the last.
 * - Q3: a run leaves by itself. A request that nobody is left for is not sent; or it is interrupted, and awaited by the last to leave.
 * - Q4: where all that is ready is known, nothing waits for more. A call that is still on its way, or a list that has not ended, is waited
 *   for no longer than the coalescer's window.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Backend from "../../Backend.ts"
import * as Coalescer from "../../Coalescer.ts"
import * as Answers from "./answers.ts"
import { describe } from "./json.ts"
import type { Run } from "./run.ts"
import type { TurnState } from "./state.ts"
import type { Timer } from "./timers.ts"
import type { ToolEntry } from "./tool.ts"

type AnyExit = Exit.Exit<unknown, unknown>

/** What one run asks for, and what it got. */
export class Seat {
  /** Keys by their texts. */
  readonly wants: ReadonlyMap<string, unknown>
  readonly found = new Map<string, AnyExit>()
  /** The requests that it waits for. */
  readonly requests = new Set<Request>()
  readonly gathering: Gathering
  started = false
  /** Somebody else has been given the same item. */
  shares = false
  /** What its work comes to, once it is known. */
  end: Effect.Effect<unknown, unknown, any> | undefined = undefined
  /** Its work has been told so, or has left: whoever does it again asks again. */
  spent = false
  /** They go on with its work: more than one, where a middleware does it more than once. */
  readonly waiting = new Set<(end: Effect.Effect<unknown, unknown, any>) => void>()
  /** How long the line of its first request stood still for the rate. */
  waitedForRate = 0

  constructor(gathering: Gathering, wants: ReadonlyMap<string, unknown>) {
    this.gathering = gathering
    this.wants = wants
  }
}

interface Item {
  readonly key: unknown
  readonly takers: Array<Run>
}

/** What is asked of one coalescer on one backend, and not yet in a request. */
class Gathering {
  readonly coalescer: Coalescer.Coalescer<any, any, any, any>
  readonly pool: Backend.Pool | undefined
  unsent = new Map<string, Item>()
  /** Requests that stand in line: there may be room in them. */
  readonly inLine = new Set<Request>()
  /** Runs that will ask, and do not yet. */
  readonly coming = new Set<Run>()
  /** Some ask again, after a pause that others may have made too. */
  again = false
  timer: Timer | undefined = undefined
  due = false

  constructor(coalescer: Coalescer.Coalescer<any, any, any, any>, pool: Backend.Pool | undefined) {
    this.coalescer = coalescer
    this.pool = pool
  }
}

/** One request to a backend: it stands in line as a call does. */
export class Request implements Backend.Entry {
  readonly gathering: Gathering
  readonly ordinal: number
  readonly items = new Map<string, Item>()
  /** Those that it is for. */
  readonly runs = new Set<Run>()
  readonly outer: Backend.Permit | undefined
  state: Backend.EntryState = "idle"
  list: Backend.Waitlist | undefined = undefined
  permit: Backend.Permit | undefined = undefined
  fiber: Fiber.Fiber<ReadonlyMap<string, AnyExit>> | undefined = undefined
  /** Its place under the turn's own limit has been given to somebody else: it does not end. */
  freed = false
  priority = 0
  position = Infinity
  private readonly owner: Requests

  constructor(owner: Requests, gathering: Gathering, ordinal: number, outer: Backend.Permit | undefined) {
    this.owner = owner
    this.gathering = gathering
    this.ordinal = ordinal
    this.outer = outer
  }

  add(text: string, item: Item): void {
    this.items.set(text, item)
    for (const run of item.takers) this.isFor(run)
  }

  isFor(run: Run): void {
    this.runs.add(run)
    run.seat!.requests.add(this)
    // What stands in line already keeps its place there.
    if (this.state !== "idle") return
    this.priority = Math.max(this.priority, run.priority)
    this.position = Math.min(this.position, run.position)
  }

  granted(permit: Backend.Permit): void {
    this.owner.granted(this, permit)
  }

  refused(why: Backend.Refusal): void {
    this.owner.refused(this, why)
  }
}

export class Requests {
  private readonly turn: TurnState
  private readonly gatherings: Array<Gathering> = []
  private sent = 0

  constructor(turn: TurnState) {
    this.turn = turn
  }

  private gatheringOf(run: Run): Gathering {
    const { coalescer } = run.merging!
    const pool = this.turn.poolOf(run)
    let gathering = this.gatherings.find((one) => one.coalescer === coalescer && one.pool === pool)
    if (gathering === undefined) this.gatherings.push(gathering = new Gathering(coalescer, pool))
    return gathering
  }

  /** A run has begun its first steps, and will ask for something. */
  expect(run: Run): void {
    this.gatheringOf(run).coming.add(run)
  }

  /** A run asks for what it wants; what the cache has, it has at once. */
  seat(run: Run): void {
    const { taken } = run
    const { coalescer, wants } = run.merging!
    const { cached, keyText } = coalescer.parts
    const gathering = this.gatheringOf(run)
    gathering.coming.delete(run)
    let texts: Map<string, unknown>
    try {
      texts = new Map(wants(taken.params).map((key) => [keyText(key), key]))
    } catch (error) {
      return this.turn.conclude(run, Answers.brokenBefore(run, `what it asks for cannot be told: ${describe(error)}`))
    }
    const seat = run.seat = new Seat(gathering, texts)
    for (const [text, key] of texts) {
      const known = cached(run.runner.context, this.turn.setting.around.tenant, key)
      if (known === undefined) continue
      seat.found.set(text, known)
      seat.shares = true
    }
    run.hasAsked = true
    if (seat.found.size === texts.size) return this.begin(run)
    if (run.attempt > 0) gathering.again = true
    run.phase = "waiting"
    this.turn.running--
    for (const [text, key] of texts) if (!seat.found.has(text)) this.ask(gathering, run, text, key)
    this.turn.touch()
  }

  /** Starts a run: from here on the work is at work for it. */
  private begin(run: Run): void {
    const seat = run.seat!
    seat.started = true
    if (seat.wants.size > 0 && seat.found.size === seat.wants.size) this.compose(run)
    this.turn.launch(run)
  }

  private ask(gathering: Gathering, run: Run, text: string, key: unknown): void {
    const item = gathering.unsent.get(text)
    if (item !== undefined) {
      item.takers.push(run)
      return
    }
    for (const request of gathering.inLine) {
      const there = request.items.get(text)
      if (there === undefined) continue
      there.takers.push(run)
      return request.isFor(run)
    }
    for (const request of gathering.inLine) {
      if (request.items.size < gathering.coalescer.size) return request.add(text, { key, takers: [run] })
    }
    gathering.unsent.set(text, { key, takers: [run] })
  }

  /** Makes requests of what is asked for. */
  flush(): void {
    for (const gathering of this.gatherings) if (gathering.unsent.size > 0) this.cut(gathering)
  }

  private cut(gathering: Gathering): void {
    const { coalescer: { size, window }, coming, unsent } = gathering
    const { online, setting: { around, timers } } = this.turn
    const known = coming.size === 0 && online?.more !== true
    const all = gathering.due || (known && !gathering.again)
    const count = all ? unsent.size : unsent.size - unsent.size % size
    if (count === 0) {
      // Pauses that end in the same instant end one after the other.
      gathering.timer ??= timers.set(known ? 0 : window, windowIsOver, { gathering, turn: this.turn })
      return
    }
    if (gathering.timer !== undefined) gathering.timer.off = true
    gathering.timer = undefined
    gathering.due = gathering.again = false
    const items = Array.from(unsent)
    // The longest way below goes first, as among calls.
    if (count > size) items.sort(([, a], [, b]) => longest(b) - longest(a))
    gathering.unsent = new Map(items.splice(count))
    const requests: Array<Request> = []
    for (let at = 0; at < count; at += size) {
      const request = new Request(this, gathering, this.sent++, around.held)
      for (const [text, item] of items.slice(at, Math.min(count, at + size))) request.add(text, item)
      requests.push(request)
    }
    // One that ends at once may stop those that the others are for.
    for (const request of requests) if (request.runs.size > 0) this.send(request)
  }

  private send(request: Request): void {
    const { gathering } = request
    gathering.inLine.add(request)
    const stands = this.turn.lineUp(request, gathering.pool)
    if (stands === true) return
    if (stands === false) this.granted(request, undefined)
    else this.refused(request, stands)
  }

  granted(request: Request, permit: Backend.Permit | undefined): void {
    // A permit may come from anywhere: another turn's step, or a plain effect that gave it back.
    this.turn.step(() => {
      request.permit = permit
      request.gathering.inLine.delete(request)
      for (const run of Array.from(request.runs)) {
        // One that ends at once may have stopped the others.
        if (!request.runs.has(run)) continue
        const seat = run.seat!
        if (seat.started) continue
        seat.waitedForRate = permit?.waitedForRate ?? 0
        this.turn.running++
        this.begin(run)
      }
      if (request.runs.size === 0) return this.release(request)
      this.run(request)
    })
  }

  private run(request: Request): void {
    const { gathering: { coalescer }, items, permit, runs } = request
    const [first] = runs
    const { context } = first!.runner
    const keys = Array.from(items.values(), ({ key }) => key)
    const work = coalescer.parts.request(keys as any, { tenant: this.turn.setting.around.tenant }, runs.size)
    const positions = Array.from(runs, ({ position }) => position).sort((a, b) => a - b)
    this.turn.event((base) => {
      const { at, turn } = base(first!)
      return {
        _tag: "RequestSent",
        at,
        turn,
        request: request.ordinal,
        into: coalescer.name,
        positions,
        items: keys.length,
        backend: first!.runner.entry.backendName
      }
    })
    const fiber = Effect.runForkWith(permit === undefined ? context : Context.add(context, Backend.Held, permit))(
      work as Effect.Effect<ReadonlyMap<string, AnyExit>>
    )
    const exit = fiber.pollUnsafe()
    if (exit !== undefined) return this.ended(request, first!, exit)
    request.fiber = fiber
    fiber.addObserver((exit) => this.turn.step(() => this.ended(request, first!, exit)))
  }

  private ended(request: Request, first: Run, exit: Exit.Exit<ReadonlyMap<string, AnyExit>>): void {
    const { gathering: { coalescer }, permit } = request
    let ok = 0
    const done: Array<Run> = []
    // What a cache has kept is given to others later.
    const kept = Coalescer.hasCache(first.runner.context)
    for (const [text, { takers }] of request.items) {
      const found: AnyExit = Exit.isSuccess(exit)
        ? exit.value.get(text) ?? Exit.die(new Error(`the coalescer "${coalescer.name}" has no answer for an item`))
        : Exit.failCause(exit.cause)
      if (Exit.isSuccess(found)) ok++
      for (let i = 0; i < takers.length; i++) {
        const run = takers[i]!
        const seat = run.seat
        // It has left.
        if (seat === undefined || !seat.requests.has(request)) continue
        seat.found.set(text, found)
        if (i > 0 || kept) seat.shares = true
        if (seat.found.size === seat.wants.size) done.push(run)
      }
    }
    if (permit !== undefined) permit.verdict = this.verdict(request, exit)
    this.turn.event((base) => {
      const { at, turn } = base(first)
      return { _tag: "RequestEnded", at, turn, request: request.ordinal, into: coalescer.name, ok }
    })
    for (const run of Array.from(request.runs)) this.leaves(run, request)
    this.release(request)
    for (const run of done) this.compose(run)
    // What is known of all of them counts, also where one that failed stops the others.
    done.sort((a, b) => Number(hasFailed(a)) - Number(hasFailed(b)))
    for (const run of done) wake(run)
  }

  /** What the end of a request says of its backend, for its circuit. */
  private verdict({ items }: Request, exit: Exit.Exit<ReadonlyMap<string, AnyExit>>): Backend.Verdict {
    if (Exit.isFailure(exit)) return "ignored"
    for (const text of items.keys()) {
      const found = exit.value.get(text)
      if (found === undefined || Exit.isSuccess(found)) return "success"
      const error = Exit.findErrorOption(found)
      // One item's own failure is the word of a backend that works.
      if (error._tag === "Some" && !Coalescer.isOfRequest(error.value)) return "success"
    }
    return "failure"
  }

  /** What a run comes to, by what became of all that it asked for. */
  private compose(run: Run): void {
    const seat = run.seat!
    const { merging, runner: { entry } } = run
    let exit: AnyExit
    try {
      exit = merging!.answer(run.taken.params, seat.found, run.runner.context)
    } catch (error) {
      exit = Exit.die(error)
    }
    seat.end = seat.shares ? ownCopy(exit, entry) : exit
  }

  /** The backend does not take a request. */
  refused(request: Request, why: Backend.Refusal): void {
    this.turn.step(() => {
      const { gathering, items } = request
      gathering.inLine.delete(request)
      const error = Backend.refused(gathering.pool!.name, why)
      for (const [text, { takers }] of items) {
        for (const run of takers) {
          if (run.seat?.requests.has(request) === true) run.seat.found.set(text, Exit.fail(error))
        }
      }
      for (const run of Array.from(request.runs)) {
        const seat = run.seat!
        this.leaves(run, request)
        if (seat.requests.size > 0 || seat.found.size < seat.wants.size || run.concluding) continue
        // None of its requests was taken.
        if (!seat.started) this.turn.notStarted(run, () => Answers.refusedByBackend(run, gathering.pool!.name, why))
        else {
          this.compose(run)
          wake(run)
        }
      }
    })
  }

  private leaves(run: Run, request: Request): void {
    request.runs.delete(run)
    run.seat!.requests.delete(request)
  }

  /**
   * What a run does while its requests are at work. Interrupted, it leaves them, and waits for those that nobody else is left for. A
   * middleware around it may begin it late, or again: then it asks again.
   */
  work(run: Run): Effect.Effect<unknown, unknown, any> {
    const seat = run.seat!
    if (seat.end !== undefined) return seat.end
    return Effect.callback<unknown, unknown>((resume) => {
      if (seat.end !== undefined && !seat.spent) {
        seat.spent = true
        return resume(seat.end as Effect.Effect<unknown, unknown>)
      }
      // Nothing is asked for any more.
      if (seat.spent && (run.isOver || run.concluding)) return resume(Effect.interrupt)
      const goesOn = (end: Effect.Effect<unknown, unknown, any>) => resume(end as Effect.Effect<unknown, unknown>)
      seat.waiting.add(goesOn)
      if (seat.spent) this.turn.step(() => this.askAgain(run, seat))
      return Effect.suspend(() => {
        seat.waiting.delete(goesOn)
        return seat.waiting.size > 0 ? Effect.void : this.desert(run)
      })
    })
  }

  /** A run leaves the requests that it waits for, and waits for the end of those that nobody else is left for. */
  desert(run: Run): Effect.Effect<void> {
    return Effect.suspend(() => {
      const left: Array<Request> = []
      this.turn.step(() => left.push(...this.leave(run)))
      if (left.length === 0) return Effect.void
      run.deserted = left
      return Effect.forEach(left, ({ fiber }) => fiber === undefined ? Effect.void : Fiber.await(fiber), {
        discard: true
      })
    })
  }

  private askAgain(run: Run, seat: Seat): void {
    seat.spent = false
    seat.end = undefined
    seat.found.clear()
    // Others may do so in the same instant.
    seat.gathering.again = true
    for (const [text, key] of seat.wants) this.ask(seat.gathering, run, text, key)
    this.turn.touch()
  }

  /** A run asks for nothing any more. Gives back the requests at work that nobody is left for: they are told to stop. */
  leave(run: Run): ReadonlyArray<Request> {
    const { seat } = run
    const left: Array<Request> = []
    if (seat === undefined) {
      // It was still on its way: the others need not wait for it.
      for (const gathering of this.gatherings) if (gathering.coming.delete(run)) this.turn.touch()
      return left
    }
    for (const request of Array.from(seat.requests)) {
      this.leaves(run, request)
      if (request.runs.size > 0) {
        // What nobody else asks for needs not be asked for.
        if (request.fiber === undefined) forget(request.items, run)
        continue
      }
      if (request.state === "waiting") {
        request.list!.pool.leave(request.list!, request)
        request.gathering.inLine.delete(request)
      } else if (request.fiber !== undefined) {
        request.fiber.interruptUnsafe()
        // One that waits for nothing has ended by now.
        if (request.fiber !== undefined) left.push(request)
      }
    }
    forget(seat.gathering.unsent, run)
    seat.spent = true
    return left
  }

  /**
   * Whether requests at work are left behind by a run whose fiber has ended, as one does that was stopped before its first step; `then` is
   * called when they have ended.
   */
  outlives(run: Run, then: () => void): boolean {
    if (run.seat!.requests.size === 0) return false
    const left = run.deserted = this.leave(run)
    let open = left.length
    let waits = false
    for (const { fiber } of left) {
      fiber!.addObserver(() => {
        open--
        if (waits && open === 0) then()
      })
    }
    return waits = open > 0
  }

  /** A run has to wait for its keys again: it will ask anew. */
  withdraw(run: Run): void {
    this.leave(run)
    run.seat = undefined
  }

  /** These do not end: what they take of the turn's own limit goes to others. */
  giveUp(requests: ReadonlyArray<Request>): void {
    for (const request of requests) {
      if (request.permit === undefined || request.freed) continue
      request.freed = true
      this.turn.freed()
    }
  }

  private release(request: Request): void {
    const { permit } = request
    request.fiber = undefined
    if (permit === undefined) return
    request.permit = undefined
    if (!request.freed && !this.turn.closed) return this.turn.takeBack(permit)
    permit.pool.release(permit)
    permit.pool.pump()
  }
}

const hasFailed = ({ seat }: Run): boolean => Exit.isExit(seat!.end) && Exit.isFailure(seat!.end)

const wake = (run: Run): void => {
  const { end, waiting } = run.seat!
  if (waiting.size === 0) return
  run.seat!.spent = true
  const all = Array.from(waiting)
  waiting.clear()
  for (const goesOn of all) goesOn(end!)
}

/** Takes a run out of what is asked for. */
const forget = (items: Map<string, Item>, run: Run): void => {
  for (const text of run.seat!.wants.keys()) {
    const item = items.get(text)
    if (item === undefined) continue
    const at = item.takers.indexOf(run)
    if (at !== -1) item.takers.splice(at, 1)
    if (item.takers.length === 0) items.delete(text)
  }
}

const longest = ({ takers }: Item): number => takers.reduce((most, run) => Math.max(most, run.priority), 0)

const windowIsOver = ({ gathering, turn }: { readonly gathering: Gathering; readonly turn: TurnState }): void =>
  turn.step(() => {
    gathering.timer = undefined
    gathering.due = true
    turn.touch()
  })

const copied = (encoded: unknown): unknown => JSON.parse(JSON.stringify(encoded))

/** Two callers of one item share no memory (rule R5): the second gets what its tool makes of the encoded one. */
const ownCopy = (exit: AnyExit, tool: ToolEntry): Effect.Effect<unknown, unknown, any> => {
  if (Exit.isSuccess(exit)) {
    // What cannot be encoded is found out, and said, when it becomes an answer.
    return Effect.catchCause(
      Effect.flatMap(tool.encode(exit.value), (encoded) => tool.decodeResult(copied(encoded))),
      () => exit
    )
  }
  const error = Exit.findErrorOption(exit)
  if (error._tag === "None") return exit
  return Effect.flatMap(
    Effect.exit(Effect.flatMap(tool.encodeFailure(error.value), (encoded) => tool.decodeFailure(copied(encoded)))),
    (copy) => Exit.isSuccess(copy) ? Effect.fail(copy.value) : exit
  )
}
