/** Events to turns: each call walks through its events once, and every moment between two of them gets a name. */
import type * as Outcome from "../../Outcome.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type * as TurnReport from "../../TurnReport.ts"
import { boundsOf, pathOf, slackOf } from "./path.ts"
import { plural } from "./text.ts"

type Mutable<A> = { -readonly [K in keyof A]: A[K] }

type EventOfCall = Extract<TurnEvent.TurnEvent, TurnEvent.OfCall>

const queues = ["keys", "permit", "rate"] as const

/** A call while its events are read. Times are the turn's own. */
class Draft {
  readonly position: number
  readonly id: string
  readonly tool: string
  readonly from: number
  backend: string | undefined
  attempts = 0
  progress = 0
  outcome: Outcome.Outcome | undefined
  undo: "done" | "failed" | undefined
  cut: TurnReport.Call["cut"]
  late: { readonly at: number; readonly outcome: Outcome.Outcome } | undefined
  to: number | undefined
  readonly waited = { keys: 0, permit: 0, rate: 0, approval: 0 }
  readonly spans: Array<TurnReport.Span> = []
  /** What it has done since it last began to wait: it gets other names when it is known how long it waited for what. */
  private waits: Array<TurnReport.Span> = []
  private waitsFrom: number
  /** Up to when its time has a name, and what it does from then on. */
  private cursor: number
  private now: TurnReport.SpanKind = "starting"
  private pauseEnd = 0

  constructor({ id, position, tool }: TurnEvent.OfCall, from: number) {
    this.position = position
    this.id = id
    this.tool = tool
    this.from = this.cursor = this.waitsFrom = from
  }

  private get isWaiting(): boolean {
    return this.now !== "running" && this.now !== "overdue" && this.now !== "unit"
  }

  /** What it did up to here gets its name, and what it does from here on is `next`. */
  private advance(at: number, next: TurnReport.SpanKind): void {
    if (this.now === "pause") {
      const end = Math.min(at, this.pauseEnd)
      if (end > this.cursor) this.spans.push({ kind: "pause", from: this.cursor, to: end })
      this.waitsFrom = this.cursor = end
      this.now = "starting"
    }
    const { cursor: from, now: kind } = this
    // Its start is not among the events.
    if (!this.isWaiting) this.notStarted()
    // A run that ended at once was one all the same.
    if (kind === "running") this.spans.push({ kind, from, to: at, attempt: this.attempts })
    else if (at > from) (this.isWaiting ? this.waits : this.spans).push({ kind, from, to: at })
    this.cursor = at
    this.now = next
  }

  private started({ attempt, at, backend, waited }: TurnEvent.CallStarted): void {
    this.backend ??= backend
    this.advance(at, "running")
    this.waits = []
    this.waited.approval += Math.max(0, waited.approval)
    const parts = queues.map((kind) => [kind, Math.max(0, waited[kind])] as const)
    const told = parts.reduce((sum, [, millis]) => sum + millis, 0)
    // Of an approval only what lies in this turn and in no other wait.
    const approval = Math.min(Math.max(0, at - this.waitsFrom - told), Math.max(0, waited.approval))
    let end = Math.min(this.waitsFrom, at - told) + approval
    let from = this.waitsFrom
    const upTo = (kind: TurnReport.SpanKind, to: number) => {
      if (to <= from) return
      this.spans.push({ kind, from, to })
      from = to
    }
    upTo("approval", end)
    // What waited last ended with the start, where only the clocks disagree.
    const last = parts.findLastIndex(([, millis]) => millis > 0)
    const isEnd = Math.abs(end + told - at) < slackOf(told)
    for (const [i, [kind, millis]] of parts.entries()) {
      this.waited[kind] += millis
      end += millis
      upTo(kind, i === last && isEnd ? at : end)
    }
    upTo("starting", at)
    this.attempts = Math.max(this.attempts + 1, attempt)
  }

  private ended({ at, outcome }: TurnEvent.CallEnded): void {
    const waits = this.isWaiting
    this.advance(at, "late")
    this.outcome = outcome
    this.to = at
    if (outcome.duplicateOf !== undefined && this.attempts === 0) {
      this.waits = at > this.from ? [{ kind: "twin", from: this.from, to: at }] : []
    }
    if (waits) this.notStarted()
  }

  /** It did not start after that: it waited what stands there. */
  private notStarted(): void {
    for (const span of this.waits) {
      this.spans.push(span)
      if (span.kind in this.waited) this.waited[span.kind as keyof TurnReport.Waits] += span.to - span.from
    }
    this.waits = []
  }

  take(given: EventOfCall): void {
    // Of events in any order the late end may be the first that is heard of a call.
    const event = given.at < this.from ? { ...given, at: this.from } : given
    if (event._tag === "ResultCut") {
      const { artifact, of, to } = event
      this.cut = artifact == null ? { of, to } : { of, to, artifact }
      return
    }
    if (event._tag === "CallSettledLate") {
      if (this.to !== undefined && event.at > this.to) this.spans.push({ kind: "late", from: this.to, to: event.at })
      this.late = event
      return
    }
    // Its answer is its last word.
    if (this.to !== undefined) return
    switch (event._tag) {
      case "CallQueued":
        this.backend ??= event.backend
        return this.advance(event.at, event.for)
      case "CallHeld":
        return this.advance(event.at, "approval")
      case "CallStarted":
        return this.started(event)
      case "CallProgressed":
        this.progress++
        return
      case "CallOverdue":
        return this.advance(event.at, "overdue")
      case "CallRetried":
        this.advance(event.at, "pause")
        this.pauseEnd = event.at + Math.max(0, event.pause)
        return
      case "CallApplied":
        return this.advance(event.at, "unit")
      case "CallUndone":
        this.undo = event.ok ? "done" : "failed"
        return this.advance(event.at, "unit")
      case "CallEnded":
        return this.ended(event)
    }
  }

  /** The events end here, and its answer is not among them. */
  leave(at: number): void {
    if (this.to !== undefined) return
    this.advance(at, "starting")
    this.notStarted()
  }

  /** With times from the start of the turn. */
  finish(start: number): TurnReport.Call {
    const { attempts, backend, cut, late, outcome, progress, to, undo, waited } = this
    const spans = this.spans.map((span) => ({ ...span, from: span.from - start, to: span.to - start }))
    const ran = spans.filter(({ kind }) => kind === "running" || kind === "overdue")
    return {
      position: this.position,
      id: this.id,
      tool: this.tool,
      ...(backend == null ? undefined : { backend }),
      ...(outcome === undefined ? undefined : answerOf(outcome)),
      ...(undo === undefined ? undefined : { undo }),
      ...(cut === undefined ? undefined : { cut }),
      ...(late === undefined ? undefined : { late: { at: late.at - start, ...wordsOf(late.outcome) } }),
      attempts,
      progress,
      from: this.from - start,
      ...(to === undefined ? undefined : { to: to - start }),
      ran: ran.reduce((sum, span) => sum + span.to - span.from, 0),
      waited,
      spans
    }
  }
}

const wordsOf = (outcome: Outcome.Outcome): Pick<TurnReport.Call, "code"> & { readonly status: Outcome.Status } => ({
  status: outcome.status,
  ...("code" in outcome && outcome.code != null ? { code: outcome.code } : undefined)
})

const answerOf = (outcome: Outcome.Outcome): Partial<TurnReport.Call> => {
  const { duplicateOf, effect, replayed } = outcome
  return {
    ...wordsOf(outcome),
    ...(effect == null ? undefined : { effect }),
    ...(duplicateOf == null ? undefined : { duplicateOf: duplicateOf.position }),
    ...(replayed === true ? { replayed } : undefined)
  }
}

/** A turn while its events are read. */
class TurnDraft {
  readonly id: string
  private readonly calls = new Map<number, Draft>()
  private readonly requests = new Map<number, Mutable<TurnReport.Request>>()
  private started: TurnEvent.TurnStarted | undefined
  private stopped: TurnEvent.TurnStopped | undefined
  private ended: TurnEvent.TurnEnded | undefined
  private first = Infinity
  private last = -Infinity

  constructor(id: string) {
    this.id = id
  }

  /** A turn that was parked comes again under its id. */
  get isOver(): boolean {
    return this.ended !== undefined
  }

  take(given: TurnEvent.TurnEvent): void {
    // A clock that is set back makes no time run backwards.
    const event = given.at < this.last ? { ...given, at: this.last } : given
    const { at } = event
    // What ends late may come when the turn is long over.
    if (event._tag !== "CallSettledLate") {
      this.first = Math.min(this.first, at)
      this.last = at
    }
    switch (event._tag) {
      case "TurnStarted":
        this.started ??= event
        return
      case "TurnStopped":
        this.stopped ??= event
        return
      case "TurnEnded":
        this.ended = event
        return
      case "RequestSent": {
        const { backend, into, items, positions, request } = event
        const sent = { request, into, positions: [...positions], items, from: at }
        this.requests.set(request, backend == null ? sent : { ...sent, backend })
        return
      }
      case "RequestEnded": {
        const request = this.requests.get(event.request)
        if (request === undefined) return
        request.to = at
        request.ok = event.ok
        return
      }
      default:
        return this.draftOf(event).take(event)
    }
  }

  private draftOf(event: EventOfCall): Draft {
    let draft = this.calls.get(event.position)
    if (draft === undefined) {
      const { started } = this
      const waited = event._tag === "CallStarted" ? queues.reduce((sum, kind) => sum + event.waited[kind], 0) : 0
      const from = started !== undefined && event.position < started.calls
        ? started.at
        : event._tag === "CallSettledLate" && this.last > -Infinity
        ? Math.min(event.at, this.last)
        : Math.max(started?.at ?? -Infinity, event.at - Math.max(0, waited))
      this.first = Math.min(this.first, from)
      this.calls.set(event.position, draft = new Draft(event, from))
    }
    return draft
  }

  finish(plan: TurnReport.Plan | undefined): TurnReport.Turn {
    const { ended, started, stopped } = this
    // Nothing but the late end of some work may be there.
    const start = started?.at ?? (this.first === Infinity ? 0 : this.first)
    const drafts = [...this.calls.values()].sort((a, b) => a.position - b.position)
    // Of events in any order a call may come after the last of the others.
    const end = drafts.reduce((end, { from }) => Math.max(end, from), Math.max(start, this.last))
    for (const draft of drafts) draft.leave(end)
    const calls = drafts.map((draft) => draft.finish(start))
    const elapsed = end - start
    const open = calls.filter(({ to }) => to === undefined).length
    const complete = started !== undefined && ended !== undefined && open === 0
    const late = calls.filter(({ late }) => late !== undefined && late.at > elapsed).length
    const path = pathOf(calls, elapsed, plan)
    const bounds = complete ? boundsOf(calls, elapsed, plan) : undefined
    return {
      turn: this.id,
      ...(started?.tenant == null ? undefined : { tenant: started.tenant }),
      ...(started?.conversation == null ? undefined : { conversation: started.conversation }),
      start,
      elapsed,
      complete,
      ...(stopped === undefined ? undefined : {
        stopped: {
          at: stopped.at - start,
          code: stopped.code,
          ...(stopped.reason == null ? undefined : { reason: stopped.reason })
        }
      }),
      unsettled: Math.max(0, (ended?.unsettled ?? 0) - late),
      calls,
      requests: [...this.requests.values()].map((request) => ({
        ...request,
        from: request.from - start,
        ...(request.to === undefined ? undefined : { to: request.to - start })
      })),
      counts: countsOf(calls),
      waits: waitsOf(calls),
      backends: backendsOf(calls),
      path,
      ...(bounds === undefined ? undefined : { bounds }),
      notes: [
        ...(started === undefined ? ["there is no TurnStarted: the beginning is not in the events"] : []),
        ...(started !== undefined && started.calls > calls.length
          ? [`of ${started.calls} calls ${started.calls - calls.length} are in no event`]
          : []),
        ...(ended === undefined
          ? ["there is no TurnEnded: the program ended before it, or the events were kept up to here alone"]
          : []),
        ...(open > 0 ? [`${plural(open, "call")} without an answer`] : []),
        ...(path.some(({ after }) => after?.inferred === true)
          ? ["who was waited for is inferred from who gave back at that moment"]
          : [])
      ]
    }
  }
}

const countsOf = (calls: ReadonlyArray<TurnReport.Call>): TurnReport.Turn["counts"] => {
  const counts = new Map<Outcome.Status, number>()
  for (const { status } of calls) if (status !== undefined) counts.set(status, (counts.get(status) ?? 0) + 1)
  return [...counts].map(([status, count]) => ({ status, count })).sort((a, b) => b.count - a.count)
}

const waitsOf = (calls: ReadonlyArray<TurnReport.Call>): TurnReport.Turn["waits"] => {
  const waits = { keys: 0, permit: 0, rate: 0, approval: 0, pause: 0 }
  for (const { spans, waited } of calls) {
    waits.keys += waited.keys
    waits.permit += waited.permit
    waits.rate += waited.rate
    waits.approval += waited.approval
    for (const { from, kind, to } of spans) if (kind === "pause") waits.pause += to - from
  }
  return waits
}

const backendsOf = (calls: ReadonlyArray<TurnReport.Call>): TurnReport.Turn["backends"] => {
  const backends = new Map<string, Mutable<TurnReport.Turn["backends"][number]>>()
  for (const { backend, ran, waited } of calls) {
    if (backend === undefined) continue
    let one = backends.get(backend)
    if (one === undefined) backends.set(backend, one = { backend, calls: 0, ran: 0, permit: 0, rate: 0 })
    one.calls++
    one.ran += ran
    one.permit += waited.permit
    one.rate += waited.rate
  }
  return [...backends.values()].sort((a, b) => b.permit + b.rate - a.permit - a.rate)
}

export const fold = (
  events: ReadonlyArray<TurnEvent.TurnEvent>,
  planOf: (turn: string) => TurnReport.Plan | undefined
): ReadonlyArray<TurnReport.Turn> => {
  const turns: Array<TurnDraft> = []
  const latest = new Map<string, TurnDraft>()
  for (const event of events) {
    let draft = latest.get(event.turn)
    if (draft === undefined || (draft.isOver && event._tag === "TurnStarted")) {
      turns.push(draft = new TurnDraft(event.turn))
      latest.set(event.turn, draft)
    }
    draft.take(event)
  }
  return turns.map((draft) => draft.finish(planOf(draft.id)))
}
