/** The events of turns and of agents, as a program keeps them with `onEvent`. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { answer, type OpenCall, openCall } from "./conversation.ts"
import { push, type Value } from "./value.ts"

interface Turn {
  readonly group: string
  readonly conversation: string | undefined
  /** The agent whose step it is: all steps of a run are one user turn. */
  readonly agent: string | undefined
  readonly calls: Map<number, OpenCall>
  readonly requests: Map<number, { -readonly [K in keyof TurnInsights.Request]: TurnInsights.Request[K] }>
  /** The calls that a request of a coalescer was for: a list takes part in several. */
  readonly merged: Set<string>
  readonly from: number
  until: number
}

const openTurn = (group: string, conversation: string | undefined, agent: string | undefined, at: number): Turn => ({
  group,
  conversation,
  agent,
  calls: new Map(),
  requests: new Map(),
  merged: new Set(),
  from: at,
  until: at
})

/** One turn is a step; turns of a conversation that follow each other within the gap are a user turn. */
export const readEvents = (
  values: ReadonlyArray<Value>,
  gap: number
): { readonly conversations: ReadonlyArray<TurnInsights.Conversation>; readonly notes: ReadonlyArray<string> } => {
  const turns = new Map<string, Turn>()
  let headless = 0
  for (const event of values.flatMap((value) => value.isList ? value.entries : [value])) take(event)
  const notes: Array<string> = []
  if (headless > 0) {
    notes.push(
      `${headless} ${headless === 1 ? "turn" : "turns"} without a TurnStarted: the beginning is not in the recording`
    )
  }

  function take(given: Value): void {
    const agent = given.object("an event").get("agent").text
    const outer = given.get("_tag").string("the tag of an event")
    if (agent !== undefined && outer === "StepEnded") return stepped(given, agent)
    const event = outer === "TurnReported" ? given.get("event").object("the event of a turn") : given
    // What else an agent tells says nothing of calls.
    if (agent !== undefined && event === given) return
    const tag = event.get("_tag").string("the tag of an event")
    const id = event.get("turn").string("the id of a turn")
    const at = event.get("at").number("a time in milliseconds")
    let turn = turns.get(id)
    if (turn === undefined) {
      const conversation = event.get("conversation").text
      if (tag !== "TurnStarted") headless++
      turn = openTurn(JSON.stringify([event.get("tenant").text ?? null, conversation ?? null]), conversation, agent, at)
      turns.set(id, turn)
    }
    // What ends late was answered before: the turn is over.
    if (tag === "CallSettledLate") return
    turn.until = Math.max(turn.until, at)
    if (tag === "RequestSent") return sent(event, turn)
    if (tag === "RequestEnded") {
      const request = turn.requests.get(event.get("request").number("the number of a request"))
      if (request !== undefined) request.found = event.get("ok").number("how many items were found")
      return
    }
    if (!tag.startsWith("Call") && tag !== "ResultCut") return
    const position = event.get("position").number("the position of a call")
    let call = turn.calls.get(position)
    if (call === undefined) {
      call = openCall(
        event.get("id").string("the id of a call"),
        event.get("tool").string("the name of a tool"),
        undefined
      )
      turn.calls.set(position, call)
    }
    if (tag === "ResultCut") call.cut = true
    else if (tag === "CallEnded") ended(event.get("outcome").object("an outcome"), call)
  }

  /** A step of an agent has what events of turns have not: the arguments. Where its turn is not in the recording, its answers too. */
  function stepped(event: Value, agent: string): void {
    const step = event.get("step").object("a step")
    const id = step.get("turn").string("the id of a turn")
    const at = event.get("at").number("a time in milliseconds")
    let turn = turns.get(id)
    const isNew = turn === undefined
    turn ??= openTurn("", undefined, agent, at)
    turns.set(id, turn)
    const outcomes = step.get("outcomes").entries
    for (const [position, one] of step.get("calls").list("the calls of a step").entries()) {
      const call = turn.calls.get(position) ??
        openCall(one.get("id").string("the id of a call"), one.get("name").string("the name of a tool"), undefined)
      turn.calls.set(position, call)
      const { raw } = one.get("arguments")
      call.arguments = raw === undefined ? {} : raw
      if (isNew && outcomes[position] !== undefined) ended(outcomes[position].object("an outcome"), call)
    }
  }

  const named = [...turns.values()].some(({ conversation }) => conversation !== undefined)
  const sorted = [...turns.values()].filter(({ calls }) => calls.size > 0).sort((a, b) => a.from - b.from)
  let until = -Infinity
  let overlapping = false
  for (const turn of sorted) {
    if (turn.agent !== undefined) continue
    overlapping ||= turn.from < until
    until = Math.max(until, turn.until)
  }
  const apart = !named && overlapping
  if (apart) notes.push("turns overlap and name no conversation: each is a user turn of its own")
  const groups = new Map<string, Array<Turn>>()
  for (const [i, turn] of sorted.entries()) {
    const key = turn.conversation !== undefined
      ? turn.group
      : turn.agent !== undefined
      ? `agent ${turn.agent}`
      : apart || named
      ? String(i)
      : turn.group
    push(groups, key, turn)
  }
  return {
    conversations: [...groups.values()].map((group) => ({
      id: group[0]!.conversation,
      turns: inRows(group, gap).map((row) => ({
        steps: row.map(({ calls }) => ({
          calls: [...calls].sort(([a], [b]) => a - b).map(([, call]) => call),
          context: undefined
        })),
        said: [],
        requests: row.flatMap(({ requests }) => [...requests.values()])
      }))
    })),
    notes
  }
}

/** Turns of one conversation, cut where the user must have spoken. Those that overlap, such as nested ones, are in rows of their own. */
const inRows = (turns: ReadonlyArray<Turn>, gap: number): ReadonlyArray<ReadonlyArray<Turn>> => {
  const rows: Array<Array<Turn>> = []
  for (const turn of turns) {
    const fitting = rows.filter((row) => {
      const { agent, until } = row.at(-1)!
      if (agent !== undefined || turn.agent !== undefined) return agent === turn.agent
      return until <= turn.from && turn.from - until <= gap
    })
    const row = fitting.sort((a, b) => b.at(-1)!.until - a.at(-1)!.until)[0]
    if (row === undefined) rows.push([turn])
    else row.push(turn)
  }
  return rows
}

const ended = (outcome: Value, call: OpenCall): void => {
  const status = outcome.get("status").string("the status of an outcome")
  if (status === "deferred") call.deferred = outcome.get("code").text ?? "deferred"
  call.duplicate = !outcome.get("duplicateOf").absent
  const { raw } = outcome.get("encoded")
  const failed = status === "error" || status === "timeout"
  if (raw !== undefined) answer(call, typeof raw === "string" ? raw : JSON.stringify(raw), failed)
  else call.failed = failed
}

const sent = (event: Value, turn: Turn): void => {
  const positions = event.get("positions").list("the positions of the calls that it is for").map((position) =>
    position.number("the position of a call")
  )
  const coalescer = event.get("into").string("the name of a coalescer")
  const keyOf = (position: number) => `${position} ${coalescer}`
  const news = [...new Set(positions)].filter((position) => !turn.merged.has(keyOf(position)))
  for (const position of news) turn.merged.add(keyOf(position))
  turn.requests.set(event.get("request").number("the number of a request"), {
    coalescer,
    tools: [...new Set(positions.flatMap((position) => turn.calls.get(position)?.tool ?? []))],
    calls: news.length,
    items: event.get("items").number("how many items it asks for"),
    found: undefined
  })
}
