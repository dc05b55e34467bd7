/** Which calls wait for each other for ever: found where work inside a handler waits for keys or permits (rule R14). */
import type * as Backend from "../../Backend.ts"
import type * as TurnPlan from "../../TurnPlan.ts"
import type { InLine } from "./lines.ts"
import { CallView, Run } from "./run.ts"

/** Which runs can still come to an end, from those that these ones wait for: what is left over waits for itself. */
export const progressing = (from: ReadonlyArray<Run>): ReadonlySet<Run> => {
  const all = new Set<Run>(from)
  const blockers = new Map<Run, { readonly every: ReadonlyArray<Run>; readonly any: ReadonlyArray<Run> | undefined }>()
  const known = new Set<Run>()
  for (const run of all) {
    const every: Array<Run> = []
    let any: Array<Run> | undefined
    // Work that was given up on is at work all the same.
    if (run.phase === "running" || run.givenUp) {
      if (run.nested !== undefined && run.nested.size > 0) {
        any = []
        for (const turn of run.nested) for (const inner of turn.runs) if (inner.phase !== "ended") any.push(inner)
        // A nested turn that is still being taken in, or is closing, goes on by itself.
        if (any.length === 0) any = undefined
      }
      if (any === undefined) known.add(run)
    } else if (run.phase === "ended" && run.appliedKey !== undefined) {
      // It keeps its key until its unit is decided.
      for (const other of run.turn.runs) if (other.group === run.group && other.phase !== "ended") every.push(other)
      if (every.length === 0) known.add(run)
    } else if (run.phase === "waiting") {
      collect(run.node, every)
      if (run.missing > 0) sources(run, every)
      if (run.awaited !== undefined) every.push(run.awaited.holder)
      const inLine = run.seat === undefined ? [run] : [...run.seat.requests]
      if (inLine.length > 0 && inLine.every(({ state }) => state === "waiting")) {
        any = []
        // It starts with the first of its requests.
        for (const entry of inLine) if (!waitsFor(run, entry, any)) known.add(run)
      } else if (every.length === 0) known.add(run)
    } else known.add(run)
    blockers.set(run, { every, any })
    for (const other of every) all.add(other)
    if (any !== undefined) { for (const other of any) all.add(other) }
  }
  for (let changed = true; changed;) {
    changed = false
    for (const [run, { any, every }] of blockers) {
      if (known.has(run)) continue
      if (every.every((other) => known.has(other)) && (any === undefined || any.some((other) => known.has(other)))) {
        known.add(run)
        changed = true
      }
    }
  }
  return known
}

/** Whose end what stands in line waits for; false where it goes on without that of any. */
const waitsFor = (run: Run, entry: InLine, any: Array<Run>): boolean => {
  const list = entry.list!
  const { pool } = list
  if ((pool.canServe(list) && !list.paused) || pool.waitsForGate(list, entry)) return false
  let waits = true
  const loan = pool.loanOf(entry.outer)
  for (const permit of loan === undefined ? pool.blocking(list) : [...pool.blocking(list), loan]) {
    const holder = holderOf(permit)
    if (holder === undefined) waits = false
    else any.push(holder)
  }
  if (!list.paused) return waits
  for (const other of run.turn.runs) if (other.phase === "running") any.push(other)
  // A question for approval takes of the turn's own limit, and has an end of its own.
  return waits && run.turn.questioning === 0
}

/**
 * The run whose end gives a permit back. None for a plain effect: it goes on beside the turns of its handler, whatever these wait
 * for, unless one of them runs inside it; and none for a request, which no turn runs inside.
 */
const holderOf = (permit: Backend.Permit): Run | undefined => {
  const { owner } = permit
  if (owner instanceof Run) return owner
  const { call } = owner as Backend.Entry
  if (!(call instanceof CallView)) return undefined
  for (const turn of call.run.nested ?? []) {
    for (let held = turn.setting.around.held; held !== undefined; held = held.outer) {
      if (held === permit) return call.run
    }
  }
  return undefined
}

/** The calls whose results a call waits for. One that is held is none: what needs it has its answer. */
const sources = ({ taken, turn }: Run, into: Array<Run>): void => {
  for (const { call } of taken.needs ?? []) {
    const source = turn.runOf(call)
    if (source !== undefined && turn.slots[call] === undefined) into.push(source)
  }
}

const collect = (node: TurnPlan.Node | undefined, into: Array<Run>): void => {
  if (node?.deps === undefined) return
  const seen = new Set<TurnPlan.Node>()
  const stack = [...node.deps]
  while (stack.length > 0) {
    const next = stack.pop()!
    if (next.passed || seen.has(next)) continue
    seen.add(next)
    if (next.owner !== undefined && !next.ended) into.push(next.owner as Run)
    else if (next.deps !== undefined) stack.push(...next.deps)
  }
}
