/**
 * The laws one by one. Each looks at what was seen alone, says how many things it had to judge, and each breach in words.
 *
 * @since 0.1.0
 */
import * as Outcome from "../../Outcome.ts"
import * as TurnError from "../../TurnError.ts"
import type * as FakeTool from "../FakeTool.ts"
import { askersOf } from "./askers.ts"
import {
  type Answer,
  atWork,
  lastAnswer,
  mayRunAgain,
  type Observation,
  type ObservedTurn,
  type ReportedOutcome,
  rootOf,
  type ToolFacts
} from "./observation.ts"

/** What a law found: how many things it judged, and what is wrong with them. */
export interface Judged {
  readonly judged: number
  readonly problems: ReadonlyArray<string>
}

/** Judges things one by one; a thing that is not the law's business gives undefined. */
export const each = <A>(things: ReadonlyArray<A>, judge: (thing: A) => ReadonlyArray<string> | undefined): Judged => {
  let judged = 0
  const problems: Array<string> = []
  for (const thing of things) {
    const found = judge(thing)
    if (found === undefined) continue
    judged++
    problems.push(...found)
  }
  return { judged, problems }
}

export const together = (...all: ReadonlyArray<Judged>): Judged => ({
  judged: all.reduce((sum, one) => sum + one.judged, 0),
  problems: all.flatMap((one) => one.problems)
})

/** Handlers and requests: all that takes a permit. */
const working = (o: Observation): ReadonlyArray<FakeTool.Run> =>
  o.requests === undefined ? o.runs : [...o.runs, ...o.requests]

/** `"c1" (get_weather) of turn 0` */
const named = (o: Observation, run: FakeTool.Run): string => {
  if (run.keys !== undefined) return requestNamed(run)
  const root = rootOf(run)
  const turn = o.turns.findIndex((one) => one.id === root.turn)
  const inside = root === run ? "" : `, inside ${JSON.stringify(root.id)},`
  return `${JSON.stringify(run.id)} (${run.tool})${inside} of turn ${turn === -1 ? "unknown" : turn}`
}

/** `a request to get_weathers for the tenant "north"` */
export const requestNamed = (run: FakeTool.Run): string =>
  `a request to ${run.tool} for the tenant ${JSON.stringify(run.tenant)}`

const turns = (o: Observation) => o.turns.map((turn, index) => ({ turn, index }))

const runsOf = (o: Observation, turn: ObservedTurn): ReadonlyArray<FakeTool.Run> =>
  o.runs.filter((run) => rootOf(run).turn === turn.id)

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b)

/** What is told of a call elsewhere, and differs from what it was answered. */
const otherwise = (
  rule: string,
  where: string,
  answers: ReadonlyArray<Answer>,
  told: ReadonlyArray<Answer>
): ReadonlyArray<string> =>
  told.length !== answers.length
    ? [`${rule}: ${where}: expected ${answers.length} outcomes, got ${told.length}`]
    : told.flatMap((one, position) =>
      same(one.outcome, answers[position]!.outcome) ? [] : [
        `${rule}: ${where}, call ${position}: expected the one answer that it was given, ${
          TurnError.show(answers[position]!.outcome)
        }, got ${TurnError.show(one.outcome)}`
      ]
    )

export const answeredOnce = (o: Observation): Judged =>
  each(turns(o), ({ index, turn }) => {
    const { answers, calls, events, lateAnswers } = turn
    if (answers === undefined) return undefined
    if (answers.length !== calls.length) {
      return [`R1: turn ${index}: expected one outcome for each of ${calls.length} calls, got ${answers.length}`]
    }
    const problems: Array<string> = []
    if (lateAnswers !== undefined) {
      problems.push(...otherwise("R1", `turn ${index}, when all was over`, answers, lateAnswers))
    }
    if (events === undefined) return problems
    const ends = events.filter(({ event }) => event._tag === "CallEnded")
    calls.forEach((call, position) => {
      const own = ends.filter(({ event }) => event._tag === "CallEnded" && event.position === position)
      const expected = turn.kept?.has(position) === true ? 0 : 1
      if (own.length !== expected) {
        problems.push(
          `R1: turn ${index}, call ${position} (${JSON.stringify(call.id)}): expected ${
            expected === 0 ? "no event" : "one event"
          } of its end, got ${own.length}`
        )
      }
    })
    return problems
  })

export const toldAsAnswered = (o: Observation): Judged =>
  each(turns(o), ({ index, turn }) => {
    const { answers, told } = turn
    if (told === undefined || answers === undefined) return undefined
    if (told.length !== 1) {
      return [`R4: ${turn.id}: expected to be told once that it has closed, and was told ${told.length} times`]
    }
    return otherwise("R4", `turn ${index}, as its closing was told`, answers, told[0]!)
  })

/**
 * The places that the calls of a turn take: those of the list, but for calls that need the result of a later one, which come behind that.
 * What waits for itself has none.
 */
const placesOf = ({ calls, needs }: ObservedTurn): ReadonlyArray<number> => {
  if (needs === undefined) return calls.map((_, position) => position)
  const places: Array<number> = []
  let next = 0
  const place = (position: number): void => {
    if (places[position] !== undefined || needs[position]!.some((on) => places[on] === undefined)) return
    places[position] = next++
    for (let other = 0; other < position; other++) if (needs[other]!.includes(position)) place(other)
  }
  for (let position = 0; position < calls.length; position++) place(position)
  return calls.map((_, position) => places[position] ?? Infinity)
}

export const emissionOrder = (o: Observation): Judged =>
  together(
    each(turns(o), ({ index, turn }) => {
      const { answers, calls } = turn
      if (answers === undefined || answers.length !== calls.length) return undefined
      return answers.flatMap((answer, position) => {
        const expected = JSON.stringify(calls[position]!.id)
        const got = JSON.stringify(answer.outcome.id)
        return expected === got && answer.position === position
          ? []
          : [
            `R1: turn ${index}, call ${position}: expected the outcome of ${expected}, got that of ${got} (call ${answer.position})`
          ]
      })
    }),
    conflicts(o, ({ a, b, key }) => {
      if (a.turn !== b.turn || overlaps(a, b)) return undefined
      const turn = o.turns.find((one) => one.id === a.turn)
      const places = turn?.needs === undefined ? undefined : placesOf(turn)
      const placeOf = ({ position }: FakeTool.Run) => places?.[position] ?? position
      if (placeOf(a) <= placeOf(b)) return []
      return [
        `R12: ${named(o, a)} and ${named(o, b)} conflict on ${
          JSON.stringify(key)
        }, and did not run in the order in which they were emitted`
      ]
    })
  )

/** What has to have become of a run for its outcome to be true; undefined where the outcome says nothing of it. */
const endFor = (outcome: ReportedOutcome): FakeTool.Run["end"] => {
  switch (outcome.code ?? outcome.status) {
    case "ok":
    case "unencodable_result":
      return "ok"
    case "failed":
    case "rate_limited":
      return outcome.started ? "failed" : undefined
    case "defect":
      return "died"
    case "by_itself":
      return "itself"
    default:
      return undefined
  }
}

export const honest = (o: Observation): Judged =>
  each(
    turns(o).flatMap(({ index, turn }) =>
      (turn.repeats === undefined ? turn.answers ?? [] : []).map((answer, position) => ({
        answer,
        position,
        turn,
        index
      }))
    ),
    ({ answer: { attempts, outcome, position: own }, index, position, turn }) => {
      if (own !== position) return undefined // not this call's answer, which another law has said
      if (turn.kept?.has(position) === true) {
        return o.runs.some((run) => run.turn === turn.id && run.position === position)
          ? [
            `R10: turn ${index}, call ${position} (${JSON.stringify(outcome.id)}): it had its answer, and was run again`
          ]
          : []
      }
      // A call that has left the run that it shared was answered by itself; the run went on for the others.
      const left = outcome.status === "cancelled" && turn.answers!.some((one) => one.outcome.duplicateOf === outcome.id)
      if (left || outcome.duplicateOf !== undefined) return undefined
      const runs = o.runs.filter((run) => run.turn === turn.id && run.position === position)
      const where = `R3: turn ${index}, call ${position} (${JSON.stringify(outcome.id)})`
      if (runs.length > 0 && !outcome.started) {
        return [`${where}: its handler was started, and its outcome says that it was not`]
      }
      if (runs.length > (attempts ?? 1)) {
        return [`${where}: its handler was started ${runs.length} times, and its outcome tells of ${attempts ?? 1}`]
      }
      if (outcome.effect === "none" && runs.some((run) => run.effectAt !== undefined)) {
        return [`${where}: its effect landed, and its outcome says that there was none`]
      }
      const wanted = endFor(outcome)
      const facts = o.tools.get(turn.calls[position]!.name)
      // What was merged ran no handler: whether its answer is its own is for another law.
      if (facts?.merged !== undefined && runs.length === 0) return aboutEffect(where, outcome, facts, false)
      if (outcome.replayed === true) {
        return runs.length === 0 && facts !== undefined && !didBefore(o, turn, turn.calls[position]!.name, facts)
          ? [`${where}: its answer is that of an earlier call, and no handler of its tool has run for one`]
          : aboutReplay(where, outcome)
      }
      // A promise goes on although its fiber was interrupted, and what it came to is told of a write.
      const cameTo = ({ access, end }: FakeTool.Run) =>
        end === wanted || (end === "interrupted" && access === "write" && facts !== undefined && mayRunAgain(facts))
      // A tool that can be asked may know better than its handler.
      const asked = wanted === "ok" && facts?.idempotency === "verify" && runs.length > 0
      if (wanted !== undefined && !asked && !runs.some(cameTo)) {
        return [
          `${where}: its outcome is ${outcome.status}${outcome.code === undefined ? "" : ` (${outcome.code})`}, and ${
            runs.length === 0
              ? "no handler ran for it"
              : `its handler ended otherwise: ${runs.at(-1)!.end ?? "not at all"}`
          }`
        ]
      }
      if (facts === undefined) return []
      // The stop of a call that was about to be tried again says of the attempts what is known of them.
      const undone = runs.every((run, n) =>
        isRetriedFor(turn, run, facts) || (n === runs.length - 1 && run.end === "failed" && facts.tellsNoEffect)
      )
      return aboutEffect(where, outcome, facts, undone && runs.length > 0)
    }
  )

/** What a run came to that was to be followed by another. */
const retryOf = ({ events }: ObservedTurn, { attempt, position }: FakeTool.Run): Outcome.Outcome<any> | undefined => {
  for (const { event } of events ?? []) {
    if (event._tag === "CallRetried" && event.position === position && event.attempt === attempt) return event.outcome
  }
  return undefined
}

/** Whether such a run certainly had no effect; a tool that can be asked may say so later. */
const isRetriedFor = (turn: ObservedTurn, run: FakeTool.Run, { idempotency }: ToolFacts): boolean => {
  const outcome = retryOf(turn, run)
  return outcome !== undefined && (outcome.effect === "none" || idempotency === "verify")
}

/** Whether a handler of a tool has run, before or elsewhere, so that its answer could be given again. */
const didBefore = (o: Observation, turn: ObservedTurn, tool: string, { idempotency }: ToolFacts): boolean =>
  o.runs.some((run) =>
    run.tool === tool && run.tenant === turn.tenant &&
    // A tool that can be asked may know of an end that nobody has seen.
    (run.end === "ok" || idempotency === "verify")
  )

const aboutReplay = (where: string, { code, effect, retryable, started, status }: ReportedOutcome) => {
  const problems: Array<string> = []
  if (started) {
    problems.push(`${where}: its answer is that of an earlier call, and its outcome says that it was started`)
  }
  if (status !== "ok" && code !== "unencodable_result") {
    problems.push(`${where}: its answer is that of an earlier call, which was applied, and its outcome says ${status}`)
  }
  if (effect !== "applied" || retryable) {
    problems.push(`${where}: its answer is that of an earlier call, which was applied: it has had its effect`)
  }
  return problems
}

/** What a tool's answer has to say of its effect, and of another try. */
const aboutEffect = (
  where: string,
  outcome: ReportedOutcome,
  facts: ToolFacts,
  undone: boolean
): ReadonlyArray<string> => {
  const { code, effect, started, status } = outcome
  if (facts.access === "read") {
    return effect === "none" ? [] : [`${where}: a read has no effect, and its outcome says ${JSON.stringify(effect)}`]
  }
  if (!started) {
    // In doubt is an earlier call with its key.
    const wanted = code === "in_doubt" ? "unknown" : "none"
    if (effect !== wanted) {
      return [
        `${where}: it was not started${code === undefined ? "" : ` (${code})`}, and its outcome says ${
          JSON.stringify(effect)
        }`
      ]
    }
    return code === "in_doubt" && outcome.retryable
      ? [`${where}: nobody knows what became of an earlier call with its key, and it is told to be retryable`]
      : []
  }
  const mayBeNone = undone ||
    (status === "error" && (code === "rate_limited" || (code === "failed" && facts.tellsNoEffect)))
  const wanted = status === "ok" || code === "unencodable_result" ? "applied" : "unknown"
  if (effect !== wanted && !(mayBeNone && effect === "none")) {
    return [
      `${where}: a write that was started: expected the effect ${JSON.stringify(wanted)}, got ${JSON.stringify(effect)}`
    ]
  }
  return effect !== "none" && outcome.retryable && !mayRunAgain(facts)
    ? [`${where}: a write that may have had its effect, without an idempotency key, is told to be retryable`]
    : []
}

/** When the work of a run could first have been told to stop. */
const stoppedAt = (o: Observation, turn: ObservedTurn, run: FakeTool.Run): number => {
  const moments = [...turn.stops, turn.startedAt + turn.deadline]
  const ownClock = (one: FakeTool.Run) => {
    const facts = o.tools.get(one.tool)
    // The limit of silence is counted from the last note, so it may run out from its own length on.
    if (facts !== undefined) moments.push(one.startedAt + Math.min(facts.timeout, facts.idleTimeout))
  }
  for (let one: FakeTool.Run | undefined = run; one !== undefined; one = one.parent) ownClock(one)
  if (turn.stopsSiblings) {
    for (const other of runsOf(o, turn)) {
      ownClock(other)
      if (other.endedAt !== undefined) moments.push(other.endedAt)
    }
    for (const asker of askersOf(o)) {
      if (asker.turn !== turn) continue
      moments.push(
        asker.endedAt,
        asker.startedAt + (o.tools.get(turn.calls[asker.position]!.name)?.timeout ?? Infinity)
      )
    }
    // A call that has waited for too long is a failure too.
    for (const { waitTimeout } of o.tools.values()) moments.push(turn.startedAt + waitTimeout)
  }
  return Math.min(...moments)
}

export const noOrphans = (o: Observation): Judged =>
  together(...o.turns.map((turn) => {
    const { answered, answeredAt } = turn
    if (answered === undefined || answeredAt === undefined) return { judged: 0, problems: [] }
    return each(runsOf(o, turn), (run) => {
      // Work that was given up on goes on, with what it runs inside; it is looked at by itself.
      if (run.parent !== undefined && atWork(run.parent, answered)) return undefined
      const late = run.began > answered
      if (late && !startedBefore(turn, run, answered)) {
        return [`R17: ${named(o, run)} was started after the turn's answer`]
      }
      if (!late && !atWork(run, answered)) return []
      const grace = run.access === "read" ? turn.graceReads : turn.graceWrites
      if (grace === Infinity) {
        return [`R17: ${named(o, run)} was still at work after the turn's answer at ${answeredAt} ms`]
      }
      return stoppedAt(o, turn, run) + grace <= answeredAt ? [] : [
        `R20: ${
          named(o, run)
        } was still at work after the turn's answer at ${answeredAt} ms, and its grace of ${grace} ms had not run out`
      ]
    })
  }))

/** Whether a call was started before a place. A handler that was started may do its first step later. */
const startedBefore = (turn: ObservedTurn, run: FakeTool.Run, place: number): boolean =>
  turn.events?.some(({ event, place: told }) =>
    event._tag === "CallStarted" && event.position === run.position && event.attempt === run.attempt && told < place &&
    run.turn === turn.id
  ) ?? false

/** The first moment, as a place, from which a turn may start nothing, with the reason. */
const stopPlace = (turn: ObservedTurn): { readonly place: number; readonly why: string } | undefined => {
  for (const { event, place } of turn.events ?? []) {
    if (event._tag === "TurnStopped") return { place, why: "the turn was stopped" }
    if (turn.failFast && event._tag === "CallEnded") {
      if (Outcome.isFailure(event.outcome)) return { place, why: `a sibling failed (${JSON.stringify(event.id)})` }
    }
  }
  return undefined
}

export const nothingAfterStop = (o: Observation): Judged =>
  each(o.turns, (turn) => {
    const stop = stopPlace(turn)
    if (stop === undefined) return undefined
    return o.runs.flatMap((run) =>
      run.turn === turn.id && run.began > stop.place && !startedBefore(turn, run, stop.place)
        ? [`R18: ${named(o, run)} was started after ${stop.why}`]
        : []
    )
  })

export const permitsReturned = (o: Observation): Judged => {
  const count = (when: string, permits: Readonly<Record<string, number>>, holds: (run: FakeTool.Run) => boolean) =>
    each(Object.entries(permits), ([backend, out]) => {
      const holding = working(o).filter(holds)
      const there = holding.filter((run) => run.backend === backend).length
      if (out <= there) return []
      // What was given up on may run turns of its own, with handlers that nobody watches, or that are about to do their first step.
      if (holding.length > 0) return undefined
      return [
        `R14: backend ${
          JSON.stringify(backend)
        }, ${when}: expected at most ${there} permits out, one for each handler at work, got ${out}`
      ]
    })
  const answered = lastAnswer(o.turns)
  const answeredAt = o.turns.find((turn) => turn.answered === answered)?.answeredAt
  // What was given up on, and has ended in this moment, may be about to give back what it held.
  const endsNow = (run: FakeTool.Run) => {
    if (run.endedAt !== answeredAt) return false
    const own = (turn: ObservedTurn) =>
      run.keys === undefined ? turn.id === rootOf(run).turn : turn.tenant === run.tenant
    return o.turns.some((turn) => own(turn) && Math.min(turn.graceReads, turn.graceWrites) < Infinity)
  }
  // What was at work then, in a turn that crashed later, may have been about to begin.
  const later = o.crashes?.some((place) => place > answered) === true
  return together(
    count(
      "when the last turn was answered",
      later ? {} : o.permitsAnswered,
      (run) => atWork(run, answered) || endsNow(run)
    ),
    count("when nothing more happened", o.permitsEnd, (run) => atWork(run, Infinity))
  )
}

/** The places at which somebody began to work. */
const beginnings = (o: Observation) => working(o).map((run) => ({ run, place: run.began + 0.5 }))

/** Work that waits for work of its own holds its permit for that, and lends it: the innermost counts. */
const busy = (o: Observation, place: number): ReadonlyArray<FakeTool.Run> => {
  const there = working(o).filter((run) => atWork(run, place))
  const outer = new Set(there.map((run) => run.parent))
  return there.filter((run) => !outer.has(run))
}

/** Whether the process crashed between two places: what it knew is forgotten. */
const crashedBetween = (o: Observation, a: number, b: number): boolean =>
  o.crashes?.some((place) => Math.min(a, b) < place && place < Math.max(a, b)) === true

export const limitsKept = (o: Observation): Judged => {
  const over = (what: string, running: number, limit: number, run: FakeTool.Run): ReadonlyArray<string> =>
    running <= limit ? [] : [
      `R14: ${what}: expected at most ${limit} at work at once, got ${running} at ${run.startedAt} ms, when ${
        named(o, run)
      } began`
    ]
  // A request for a call inside a handler runs on the permit that the handler lends it, and nobody sees whose it is.
  const lent = new Set(o.requests?.flatMap(({ backend, tool }) => o.alsoAsked?.has(tool) === true ? [backend] : []))
  return together(
    each(beginnings(o), ({ place, run }) => {
      const limits = run.backend === undefined ? undefined : o.backends.get(run.backend)
      if (limits === undefined || lent.has(run.backend)) return undefined
      const there = busy(o, place).filter((one) => one.backend === run.backend)
      const own = there.filter((one) => one.tenant === run.tenant).length
      return [
        ...over(`backend ${JSON.stringify(run.backend)}`, there.length, limits.concurrency, run),
        ...over(`backend ${JSON.stringify(run.backend)}, tenant ${run.tenant}`, own, limits.perTenant, run)
      ]
    }),
    each(working(o), (run) => {
      const rate = run.backend === undefined ? undefined : o.backends.get(run.backend)?.rate
      if (rate === undefined) return undefined
      // Across two windows there may be up to twice as many, and one less.
      const allowed = 2 * rate.limit - 1
      const began = working(o).filter(({ backend, began, startedAt }) =>
        backend === run.backend && startedAt >= run.startedAt && startedAt < run.startedAt + rate.window &&
        !crashedBetween(o, run.began, began)
      ).length
      return began <= allowed ? [] : [
        `R14: backend ${
          JSON.stringify(run.backend)
        }: expected at most ${allowed} starts within ${rate.window} ms, got ${began} from ` +
        `${run.startedAt} ms on, when ${named(o, run)} began`
      ]
    }),
    each(beginnings(o), ({ place, run }) => {
      const index = run.keys === undefined ? o.turns.findIndex((turn) => turn.id === run.turn) : -1
      const turn = o.turns[index]
      if (turn?.events === undefined || (turn.limit === Infinity && !turn.sequential)) return undefined
      // What was given up on has its answer, and makes room for another in the same step.
      const givenUp = new Set(
        turn.events.flatMap(({ event }) =>
          event._tag === "CallEnded" && event.at <= run.startedAt ? [event.position] : []
        )
      )
      const running = o.runs.filter((one) =>
        one.turn === run.turn && atWork(one, place) && (one === run || !givenUp.has(one.position))
      )
      return over(`turn ${index}'s own limit`, running.length, turn.sequential ? 1 : turn.limit, run)
    })
  )
}

/**
 * The steps of a key, as R12 has them: what stands before the first colon, then its path with `.`, `..` and doubled slashes resolved.
 * A path that leads out of its beginning may mean anything there.
 */
const steps = (key: string): ReadonlyArray<string> => {
  const [, scheme, path] = /^([^:]*:)?([^]*)$/.exec(key)!
  const head = scheme === undefined ? [] : [scheme]
  if (!/\/|^\.\.?$/.test(path!)) return [...head, path!]
  const absolute = path!.startsWith("/")
  const parts: Array<string> = []
  for (const part of path!.split("/")) {
    if (part === "" || part === ".") continue
    if (part !== "..") parts.push(part)
    else if (parts.length > 0) parts.pop()
    else if (!absolute) return head
  }
  return [...head, ...(absolute ? [""] : []), ...parts]
}

const covers = (a: ReadonlyArray<string>, b: ReadonlyArray<string>): boolean =>
  a.length <= b.length && a.every((step, i) => step === b[i])

/** What a run touches: its keys as they are written, with their steps; undefined for unknown reach. */
type Reach = ReadonlyArray<readonly [key: string, steps: ReadonlyArray<string>]> | undefined

const reaches = new WeakMap<Observation, Map<FakeTool.Run, Reach>>()

/** Found once for each run: laws look at all pairs. */
const reachOf = (o: Observation, run: FakeTool.Run): Reach => {
  let known = reaches.get(o)
  if (known === undefined) reaches.set(o, known = new Map())
  if (!known.has(run)) {
    known.set(run, o.tools.get(run.tool)?.keys(run.params)?.map((key) => [key, steps(key)] as const))
  }
  return known.get(run)
}

/** Two runs conflict when they may touch the same thing, and one of them writes. */
const conflict = (o: Observation, a: FakeTool.Run, b: FakeTool.Run): string | undefined =>
  a.access === "read" && b.access === "read" ? undefined : meet(reachOf(o, a), reachOf(o, b))

/** What two of them share, when they share anything. */
const meet = (reachA: Reach, reachB: Reach): string | undefined => {
  if (reachA?.length === 0 || reachB?.length === 0) return undefined
  if (reachA === undefined || reachB === undefined) return "unknown reach"
  return reachA.find(([, one]) => reachB.some(([, other]) => covers(one, other) || covers(other, one)))?.[0]
}

const isInside = (run: FakeTool.Run, outer: FakeTool.Run): boolean => {
  for (let one = run.parent; one !== undefined; one = one.parent) if (one === outer) return true
  return false
}

const overlaps = (a: FakeTool.Run, b: FakeTool.Run): boolean =>
  b.began < (a.ended ?? Infinity) && a.began < (b.ended ?? Infinity)

interface Conflict {
  /** The one that began first. */
  readonly a: FakeTool.Run
  readonly b: FakeTool.Run
  readonly key: string
}

/** Judges all pairs of runs of one tenant that conflict, but for work inside the other. */
const conflicts = (o: Observation, judge: (pair: Conflict) => ReadonlyArray<string> | undefined): Judged => {
  const pairs: Array<Conflict> = []
  o.runs.forEach((a, index) => {
    for (const b of o.runs.slice(index + 1)) {
      if (a.tenant !== b.tenant || isInside(a, b) || isInside(b, a)) continue
      const key = conflict(o, a, b)
      if (key !== undefined) pairs.push({ a, b, key })
    }
  })
  return each(pairs, judge)
}

const stepsOf = (keys: ReadonlyArray<string> | undefined): Reach => keys?.map((key) => [key, steps(key)] as const)

export const noOverlap = (o: Observation): Judged =>
  together(
    conflicts(o, ({ a, b, key }) =>
      overlaps(a, b)
        ? [
          `R12: ${named(o, a)} and ${named(o, b)} conflict on ${
            JSON.stringify(key)
          }, and ran at the same time from ${b.startedAt} ms`
        ]
        : []),
    // A call that is merged is at work from its first request to its answer.
    each(askersOf(o), (asker) => {
      if (asker.startedAt === Infinity || asker.turn.answers === undefined) return undefined
      return o.runs.filter((run) =>
        run.access === "write" && run.tenant === asker.tenant && run.turn !== "" &&
        run.startedAt < asker.endedAt && asker.startedAt < (run.endedAt ?? Infinity)
      ).flatMap((run) => {
        const key = meet(stepsOf(asker.reach), reachOf(o, run))
        return key === undefined ? [] : [
          `R12: turn ${asker.index}, call ${asker.position}, which is merged, and ${named(o, run)} conflict on ${
            JSON.stringify(key)
          }, and were at work at the same time at ${Math.max(asker.startedAt, run.startedAt)} ms`
        ]
      })
    })
  )

/** When a call that never ran was answered: until then it may have kept others from what it would have touched. */
const answeredUnrun = (
  o: Observation
): ReadonlyArray<{ readonly turn: ObservedTurn; readonly position: number; readonly at: number }> =>
  o.turns.flatMap((turn) =>
    (turn.events ?? []).flatMap(({ event }) =>
      event._tag !== "CallEnded" || o.runs.some((run) => run.turn === turn.id && run.position === event.position)
        ? []
        : [{ turn, position: event.position, at: event.at }]
    )
  )

/**
 * A call that nothing keeps waits for nothing. Judged for calls that ran, at the moments when something began or ended: what one may
 * wait for is an earlier call of its tenant that it conflicts with, a permit, its turn's own limit, and a human's word. What is on a backend
 * with a rate may wait for that, and is not judged.
 */
export const workConserving = (o: Observation): Judged => {
  if (o.turns.some((turn) => turn.events === undefined && turn.repeats === undefined)) {
    return { judged: 0, problems: [] }
  }
  const turnOf = (run: FakeTool.Run) => o.turns.find((one) => one.id === run.turn)
  const unrun = answeredUnrun(o)
  const callOf = ({ position, turn }: FakeTool.Run) => `${position}/${turn}`
  // What is tried again, or has a key, may be at work for longer than its handler.
  const answeredAt = new Map(
    o.turns.flatMap((turn) =>
      (turn.events ?? []).flatMap(({ event }): ReadonlyArray<readonly [string, number]> =>
        event._tag === "CallEnded" ? [[`${event.position}/${turn.id}`, event.at]] : []
      )
    )
  )
  const all = working(o)
  const moments = [...new Set(all.flatMap((run) => [run.startedAt, run.endedAt ?? Infinity]))].sort((a, b) => a - b)
  // A turn inside a handler has calls that wait and are never seen: while it is at work they may keep others.
  const outer = new Set(o.runs.flatMap((run) => (run.parent === undefined ? [] : [run.parent])))
  const nesting = (tenant: string, moment: number) =>
    Array.from(outer).some((one) =>
      one.tenant === tenant && one.startedAt <= moment && (one.endedAt ?? Infinity) > moment
    )
  const runs = each(o.runs, (run) => {
    const turn = turnOf(run)
    if (turn === undefined || o.tools.get(run.tool)?.asks === true) return undefined
    // A retry waits for its pause, and a write with a key for whoever has the key, and for its store.
    if (run.attempt > 1 || run.idempotencyKey !== undefined) return undefined
    // Questions for approval, and what a store is asked about keys, take of the turn's own limit, and nobody sees them.
    const unseen = (facts: ToolFacts | undefined) => facts?.asks === true || facts?.idempotency !== undefined
    if (turn.limit !== Infinity && turn.calls.some(({ name }) => unseen(o.tools.get(name)))) return undefined
    // Nor do requests: nobody sees which turn they are of.
    if (turn.limit !== Infinity && turn.calls.some(({ name }) => o.tools.get(name)?.merged !== undefined)) {
      return undefined
    }
    if (run.backend !== undefined && o.backends.get(run.backend)?.rate !== undefined) return undefined
    const places = placesOf(turn)
    const isEarlier = (other: ObservedTurn, position: number) =>
      other === turn ? places[position]! < places[run.position]! : other.startedAt <= turn.startedAt
    let ready = turn.startedAt
    // It waits for the results that it needs, and until then what it touches is not known to those behind it.
    for (const other of o.turns) {
      if (other.needs === undefined || other.tenant !== turn.tenant) continue
      for (const [position, needs] of other.needs.entries()) {
        if (!(other === turn && position === run.position) && !isEarlier(other, position)) continue
        for (const on of needs) ready = Math.max(ready, answeredAt.get(`${on}/${other.id}`) ?? Infinity)
      }
    }
    for (const other of o.runs) {
      if (other === run || other.tenant !== run.tenant || isInside(other, run)) continue
      const theirs = turnOf(other)
      const earlier = theirs === undefined ? other.began < run.began : isEarlier(theirs, other.position)
      const waits = (theirs === turn && turn.sequential) || conflict(o, run, other) !== undefined
      if (earlier && waits) ready = Math.max(ready, other.endedAt ?? Infinity, answeredAt.get(callOf(other)) ?? 0)
    }
    for (const one of unrun) {
      if (one.turn.tenant === turn.tenant && isEarlier(one.turn, one.position)) ready = Math.max(ready, one.at)
    }
    const limits = run.backend === undefined ? undefined : o.backends.get(run.backend)
    const idle = moments.find((moment) => {
      if (moment < ready || moment >= run.startedAt || nesting(run.tenant, moment)) return false
      const busy = all.filter((one) => one.startedAt <= moment && (one.endedAt ?? Infinity) > moment)
      const there = busy.filter((one) => one.backend === run.backend)
      const full = limits !== undefined && (there.length >= limits.concurrency ||
        there.filter((one) => one.tenant === run.tenant).length >= limits.perTenant ||
        (o.samples ?? []).some((sample) =>
          sample.at === moment && sample.backend === run.backend &&
          (sample.running >= limits.concurrency || (sample.tenants[run.tenant] ?? 0) >= limits.perTenant)
        ))
      return !full && busy.filter((one) => one.turn === run.turn).length < turn.limit
    })
    return idle === undefined ? [] : [
      `R12: ${
        named(o, run)
      } could have run from ${ready} ms on, nothing kept it at ${idle} ms, and it began at ${run.startedAt} ms`
    ]
  })
  return together(runs, mergedWait(o, all))
}

/** Calls that are merged wait for nothing when nothing at all is at work. */
const mergedWait = (o: Observation, all: ReadonlyArray<FakeTool.Run>): Judged => {
  // What is asked of humans and of stores takes its time unseen, and so do pauses and rates.
  const unseen = Array.from(o.tools.values()).some(({ asks, backend, idempotency }) =>
    asks || idempotency !== undefined || (backend !== undefined && o.backends.get(backend)?.rate !== undefined)
  )
  if (unseen || o.crashes !== undefined && o.crashes.length > 0) return { judged: 0, problems: [] }
  const retried = o.turns.some(({ events = [] }) => events.some(({ event }) => event._tag === "CallRetried"))
  if (retried) return { judged: 0, problems: [] }
  const busy = all.map(({ endedAt, startedAt }) => [startedAt, endedAt ?? Infinity] as const).sort(([a], [b]) => a - b)
  return each(askersOf(o), ({ endedAt, index, position, startedAt, turn }) => {
    if (turn.answers === undefined || turn.answeredAt === undefined) return undefined
    const until = Math.min(startedAt, endedAt)
    let idle = turn.startedAt
    for (const [from, to] of busy) {
      if (from > idle) break
      idle = Math.max(idle, to)
    }
    return idle >= until ? [] : [
      `R12: turn ${index}, call ${position}, which is merged, could have asked: nothing was at work from ${idle} ms to ${
        Math.min(until, ...busy.flatMap(([from]) => from > idle ? [from] : []))
      } ms`
    ]
  })
}

/** Limits of time are kept: on waiting, on running, on the whole turn. */
export const clocksKept = (o: Observation): Judged =>
  each(o.runs, (run) => {
    const facts = o.tools.get(run.tool)
    const index = o.turns.findIndex((turn) => turn.id === run.turn)
    const turn = o.turns[index]
    if (facts === undefined || turn?.answers === undefined) return undefined
    const problems: Array<string> = []
    const waited = run.startedAt - turn.startedAt
    if (run.attempt === 1 && waited > facts.waitTimeout) {
      problems.push(
        `R15: ${named(o, run)} began after ${waited} ms of waiting, and may wait for ${facts.waitTimeout} ms`
      )
    }
    if (waited > turn.deadline) {
      problems.push(`R15: ${named(o, run)} began ${waited} ms after its turn, whose deadline is ${turn.deadline} ms`)
    }
    // What has taken too long is told so; a write is awaited all the same, and its true end is told.
    const ran = (run.endedAt ?? Infinity) - run.startedAt
    const { attempts = 1, outcome: { status } = { status: undefined } } = turn.answers[run.position] ?? {}
    if (run.access === "read" && run.attempt === attempts && ran > facts.timeout && status === "ok") {
      problems.push(`R15: ${named(o, run)} ran for ${ran} ms, may run for ${facts.timeout} ms, and was answered ok`)
    }
    if (ran > facts.timeout + (run.access === "read" ? turn.graceReads : Infinity)) {
      const told = turn.events?.some(({ event }) => event._tag === "CallSettledLate" && event.position === run.position)
      if (told !== true && run.endedAt !== undefined && run.end !== "crashed") {
        problems.push(`R15: ${named(o, run)} went on for ${ran} ms, past its time and its grace, and nobody was told`)
      }
    }
    return problems
  })

/** Reads that are at work when their turn is stopped are told to be stopped, whatever they come to. */
export const stopsHeard = (o: Observation): Judged =>
  each(o.runs, (run) => {
    const turn = o.turns.find((one) => one.id === run.turn)
    const stop = turn?.events?.find(({ event }) => event._tag === "TurnStopped")
    if (turn?.answers === undefined || stop === undefined || run.access === "write") return undefined
    // What hears the stop at once has ended before it is told.
    if (run.end !== "interrupted" && !atWork(run, stop.place)) return undefined
    // An attempt that its own clock has ended, and that was followed by another.
    if (retryOf(turn, run) !== undefined) return undefined
    const status = turn.answers[run.position]?.outcome.status
    return status === "cancelled" || status === "timeout" ? [] : [
      `R19: ${named(o, run)} was at work when its turn was stopped at ${stop.event.at} ms, and its outcome is ${status}`
    ]
  })

export const writesWhole = (o: Observation): Judged =>
  each(o.runs, (run) => {
    const facts = o.tools.get(run.tool)
    if (run.access === "read" || (facts !== undefined && mayRunAgain(facts))) return undefined
    return run.end !== "interrupted" ? [] : [
      `R20: ${
        named(o, run)
      }, a write without an idempotency key, was interrupted at ${run.endedAt} ms after its start at ${run.startedAt} ms`
    ]
  })

/** Whether a run is known to have had no effect: it failed, and its call, or the event of its retry, says so. */
const knownUndone = (o: Observation, run: FakeTool.Run, again: FakeTool.Run): boolean | undefined => {
  const turn = o.turns.find((one) => one.id === run.turn)
  if (turn === undefined) return undefined // inside a handler, where nobody looks
  if (run.turn !== again.turn || run.position !== again.position) {
    return turn.answers?.[run.position]?.outcome.effect === "none" ||
      turn.events?.some(({ event }) =>
          event._tag === "CallSettledLate" && event.position === run.position && event.outcome.effect === "none"
        ) === true
  }
  return turn.events === undefined ? undefined : isRetriedFor(turn, run, o.tools.get(run.tool)!)
}

export const runsOnce = (o: Observation): Judged => {
  const seen = new Map<string, FakeTool.Run>()
  return each(o.runs, (run) => {
    const facts = o.tools.get(run.tool)
    if (run.access === "read" || (facts !== undefined && mayRunAgain(facts))) return undefined
    const call = JSON.stringify([run.turn, run.position])
    const before = seen.get(call)
    seen.set(call, run)
    if (before === undefined) return []
    if (facts?.idempotency === undefined) {
      return [`R24: ${named(o, run)}, a write without an idempotency key, ran twice for one call`]
    }
    return knownUndone(o, before, run) === false
      ? [`R24: ${named(o, run)} ran again by itself, and whether it had had its effect was not known`]
      : []
  })
}

export const onceAKey = (o: Observation): Judged => {
  const keys = new Map<string, Array<FakeTool.Run>>()
  for (const run of o.runs) {
    if (run.idempotencyKey === undefined || o.tools.get(run.tool)?.idempotency === undefined) continue
    const key = JSON.stringify([run.tenant, run.tool, run.idempotencyKey])
    const runs = keys.get(key)
    if (runs === undefined) keys.set(key, [run])
    else runs.push(run)
  }
  return each([...keys.values()], (runs) => {
    const problems: Array<string> = []
    const landed = runs.filter(({ effectAt }) => effectAt !== undefined)
    const last = landed.at(-1)
    if (last !== undefined && landed.length > 1) {
      problems.push(`R23: ${named(o, last)} had an effect, and its idempotency key had one before`)
    }
    if (o.tools.get(runs[0]!.tool)!.idempotency !== "record") return problems
    runs.slice(1).forEach((run, index) => {
      const before = runs[index]!
      if (before.ended === undefined || before.ended > run.began) {
        problems.push(
          `R23: ${named(o, run)} began while ${named(o, before)}, with the same idempotency key, was at work`
        )
      } else if (knownUndone(o, before, run) === false) {
        problems.push(
          `R23: ${named(o, run)} ran, and whether ${
            named(o, before)
          }, with the same idempotency key, had had its effect was not known`
        )
      }
    })
    return problems
  })
}

export const tenantsApart = (o: Observation): Judged =>
  each(o.runs, (run) => {
    const turn = o.turns.find((one) => one.id === rootOf(run).turn)
    if (turn === undefined) return undefined
    return run.tenant === turn.tenant ? [] : [
      `R35: ${named(o, run)} ran for the tenant ${JSON.stringify(run.tenant)}, expected ${JSON.stringify(turn.tenant)}`
    ]
  })

export const callsKnown = (o: Observation): Judged =>
  each(o.runs, (run) =>
    run.position === -1 || !o.turns.some((turn) => turn.id === rootOf(run).turn)
      ? [`R35: a run of ${run.tool} at ${run.startedAt} ms does not know which call of which turn it serves`]
      : [])

const brokenText = (value: unknown): string | undefined => {
  if (typeof value === "string") return value.isWellFormed() ? undefined : value
  if (typeof value !== "object" || value === null) return undefined
  for (const [name, inner] of Object.entries(value)) {
    const found = brokenText(name) ?? brokenText(inner)
    if (found !== undefined) return found
  }
  return undefined
}

export const wholeTexts = (o: Observation): Judged =>
  each(
    turns(o).flatMap(({ index, turn }) => (turn.answers ?? []).map((answer) => ({ answer, index }))),
    ({ answer: { model, position }, index }) => {
      const text = brokenText(model)
      return text === undefined ? [] : [
        `R29: turn ${index}, call ${position}: expected whole characters in what the model gets, got half of one in ${
          TurnError.show(text)
        }`
      ]
    }
  )
