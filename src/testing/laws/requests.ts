/**
 * The laws of requests: what calls that are merged are promised.
 *
 * @since 0.1.0
 */
import { type Asker, askersOf } from "./askers.ts"
import { each, type Judged, requestNamed } from "./judge.ts"
import type { Observation, ObservedRequest } from "./observation.ts"

/** The calls that a request can be for: of its tenant, and with one of its keys. */
const callersOf = (o: Observation, { tenant, texts, tool }: ObservedRequest): ReadonlyArray<Asker> =>
  askersOf(o).filter((asker) =>
    asker.tenant === tenant && asker.merged.lookup === tool && texts.some((text) => asker.wants.has(text))
  )

const named = ({ index, position, turn }: Asker): string =>
  `turn ${index}, call ${position} (${JSON.stringify(turn.calls[position]!.id)})`

export const requestsApart = (o: Observation): Judged =>
  each(o.requests ?? [], (request) => {
    if (o.alsoAsked?.has(request.tool) === true) return undefined
    const asked = new Set(callersOf(o, request).flatMap(({ wants }) => [...wants]))
    return request.texts.flatMap((text) =>
      asked.has(text) ? [] : [
        `R28: ${
          requestNamed(request)
        } at ${request.startedAt} ms has the key ${text}, which no call of that tenant asks for`
      ]
    )
  })

/** The size of the lists of a lookup. */
const sizeOf = (o: Observation, lookup: string): number =>
  Array.from(o.tools.values()).find(({ merged }) => merged?.lookup === lookup)?.merged?.size ?? Infinity

export const requestsSized = (o: Observation): Judged =>
  each(o.requests ?? [], (request) => {
    const { startedAt, texts, tool } = request
    const size = sizeOf(o, tool)
    const problems: Array<string> = []
    if (texts.length > size) {
      problems.push(
        `R28: ${requestNamed(request)} at ${startedAt} ms: expected at most ${size} keys, got ${texts.length}`
      )
    }
    if (new Set(texts).size < texts.length) {
      problems.push(`R28: ${requestNamed(request)} at ${startedAt} ms has a key twice`)
    }
    return problems
  })

/** Nothing keeps one of its merged calls from the others, so that all are ready when it starts. */
const allAtOnce = (o: Observation, turn: Asker["turn"]): boolean =>
  turn.events !== undefined && turn.answers !== undefined &&
  turn.limit === Infinity && !turn.sequential && !turn.stopsSiblings && turn.stops.length === 0 &&
  turn.deadline === Infinity && turn.kept === undefined &&
  turn.answers.every(({ attempts }) => (attempts ?? 1) === 1) &&
  !turn.events.some(({ event }) =>
    event._tag === "CallHeld" || (event._tag === "CallQueued" && event.for === "keys")
  ) &&
  turn.calls.every(({ name }) => o.tools.get(name)?.asks !== true)

export const requestsFew = (o: Observation): Judged => {
  const groups = new Map<string, Array<Asker>>()
  for (const asker of askersOf(o)) {
    const group = JSON.stringify([asker.tenant, asker.merged.lookup])
    groups.set(group, [...groups.get(group) ?? [], asker])
  }
  return each([...groups.values()], (askers) => {
    const { merged: { lookup, size }, tenant } = askers[0]!
    if (o.alsoAsked?.has(lookup) === true) return undefined
    const turns = new Map<Asker["turn"], Set<string>>()
    for (const { outcome, turn, wants } of askers) {
      // What was refused asked for nothing.
      if (outcome?.started === false) continue
      const texts = turns.get(turn) ?? new Set()
      for (const text of wants) texts.add(text)
      turns.set(turn, texts)
    }
    if (turns.size === 0 || !Array.from(turns.keys()).every((turn) => allAtOnce(o, turn))) return undefined
    const most = Array.from(turns.values()).reduce((sum, texts) => sum + Math.ceil(texts.size / size), 0)
    const got = o.requests?.filter((request) => request.tool === lookup && request.tenant === tenant).length ?? 0
    return got <= most ? [] : [
      `R28: ${lookup}, tenant ${JSON.stringify(tenant)}: ${
        Array.from(turns.values(), (texts) => texts.size).join(" and ")
      } keys that were ready together: expected at most ${most} requests of ${size}, got ${got}`
    ]
  })
}

const same = (a: unknown, b: unknown): boolean => sorted(a) === sorted(b)

/** JSON, whatever the order of members. */
const sorted = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner) ?? "undefined"

export const ownItems = (o: Observation): Judged =>
  each(askersOf(o), (asker) => {
    const { args, merged, outcome, tenant, turn, wants } = asker
    if (outcome?.status !== "ok" || outcome.replayed === true) return undefined
    if (o.runs.some((run) => run.turn === turn.id && run.position === asker.position)) return undefined
    const texts = [...wants]
    if (texts.some((text) => o.cached?.has(JSON.stringify([merged.lookup, tenant, text])) === true)) return undefined
    const answers = texts.map((text) =>
      (o.requests ?? []).filter((request) =>
        request.tenant === tenant && request.tool === merged.lookup && request.end === "ok" &&
        (request.endedAt ?? -1) >= turn.startedAt && request.texts.includes(text)
      )
    )
    const missing = texts.find((_, i) => answers[i]!.length === 0)
    if (missing !== undefined) {
      return [`R28: ${named(asker)}: it was answered ok, and no request of its tenant has brought its key ${missing}`]
    }
    // Of a list whose items were asked for more than once, nobody can say which it was given.
    if (texts.length > 1 && answers.some((all) => all.length > 1)) return undefined
    const candidates = texts.length > 1
      ? [new Map(answers.flatMap(([request]) => [...request!.found ?? []]))]
      : answers[0]!.map(({ found }) => found ?? new Map<string, unknown>())
    const own = candidates.map((found) => merged.answer(args, found)).filter((answer) => answer !== undefined)
    if (own.length === 0) return undefined
    return own.some(({ value }) => same(value, outcome.result)) ? [] : [
      `R28: ${named(asker)}: expected its own item, ${sorted(own[0]!.value)}, got ${sorted(outcome.result)}`
    ]
  })

export const requestsWanted = (o: Observation): Judged =>
  each(o.requests ?? [], (request) => {
    if (request.end === "crashed" || o.alsoAsked?.has(request.tool) === true) return undefined
    const callers = callersOf(o, request).filter(({ turn, until }) =>
      turn.startedAt <= request.startedAt && until > request.began
    )
    if (callers.length === 0) {
      return [`R28: ${requestNamed(request)} was sent at ${request.startedAt} ms, and no call waited for it`]
    }
    const last = Math.max(...callers.map(({ until }) => until))
    if ((request.ended ?? Infinity) <= last) return []
    // What was given up on after a grace goes on with the supervisor.
    if (callers.some(({ turn }) => turn.graceReads < Infinity)) return undefined
    return [
      `R17: ${
        requestNamed(request)
      }, from ${request.startedAt} ms on, was still at work when all its calls had their answers`
    ]
  })
