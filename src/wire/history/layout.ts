/** Puts the results of a history where its provider looks for them. What stands where it may is not moved. */
import { type Form, labelOf, type Message, type Part, type Report, withParts } from "./view.ts"

export const layOut = (form: Form, messages: ReadonlyArray<Message>, report: Report): ReadonlyArray<Message> =>
  form.results === "behind" ? behind(form, messages, report) : nextTo(form, messages, report)

const callsOf = (message: Message): Array<Part> => message.parts.filter((part) => part.kind === "call")

const misplaced = (result: Part, call: Part, report: Report): void =>
  report(
    "misplaced_result",
    "refused",
    result.path,
    `the result of ${labelOf(call)} is not where its provider looks for it`,
    "it is moved behind its call"
  )

/** Results in the messages after their calls. */
const nextTo = (form: Form, messages: ReadonlyArray<Message>, report: Report): Array<Message> => {
  const out: Array<Message> = []
  const done = new Set<Message>()
  const homes = homesOf(messages)
  for (const [at, message] of messages.entries()) {
    if (done.has(message)) continue
    const rest = message.parts.filter((part) => part.kind !== "result")
    if (rest.length === 0 && message.parts.length > 0) continue
    out.push(withParts(message, rest))
    const calls = callsOf(message)
    if (calls.length === 0) continue
    if (form.results === "apart") out.push(...apart(form, messages, at, calls, homes, done, report))
    else out.push(...together(form, messages, at, calls, done, report))
  }
  return out
}

/** Where results came that have a message of their own. */
const homesOf = (messages: ReadonlyArray<Message>): ReadonlyMap<Part, Message> => {
  const homes = new Map<Part, Message>()
  for (const message of messages) {
    const [part] = message.parts
    if (part?.kind === "result") homes.set(part, message)
  }
  return homes
}

/** Each result in a message of its own, in any order, with nothing between. */
const apart = (
  form: Form,
  messages: ReadonlyArray<Message>,
  at: number,
  calls: ReadonlyArray<Part>,
  homes: ReadonlyMap<Part, Message>,
  done: Set<Message>,
  report: Report
): Array<Message> => {
  const wanted = new Map(calls.map((call) => [call.result!, call]))
  const inPlace: Array<Part> = []
  for (let next = at + 1; next < messages.length; next++) {
    const [result] = messages[next]!.parts
    if (messages[next]!.late || result?.late) continue
    if (result === undefined || !wanted.has(result)) break
    inPlace.push(result)
  }
  const placed = new Set(inPlace)
  let sound = inPlace.length === calls.length
  for (const [result, call] of wanted) {
    if (!homes.has(result) || placed.has(result)) continue
    sound = false
    misplaced(result, call, report)
  }
  return (sound ? inPlace : [...wanted.keys()]).map((result) => {
    const home = homes.get(result) ?? form.wrap([result])
    done.add(home)
    return home
  })
}

/** The results of a message in the next one: first, or alone and in order. */
const together = (
  form: Form,
  messages: ReadonlyArray<Message>,
  at: number,
  calls: ReadonlyArray<Part>,
  done: Set<Message>,
  report: Report
): Array<Message> => {
  const alone = form.results === "alone"
  const wanted = new Map(calls.map((call) => [call.result!, call]))
  const next = messages[at + 1]
  const isHome = next?.role === "user" && (!alone || next.parts.some((part) => wanted.has(part)))
  // Results of other calls are moved to those, so they count as gone.
  const there = isHome ? next.parts.filter((part) => wanted.has(part) || (part.kind !== "result" && !part.late)) : []
  const behindOther = there.findIndex((part) => !wanted.has(part))
  const inHome = there.filter((part) => wanted.has(part))
  const placed = new Set(inHome)
  const lead = behindOther < 0 ? there : there.slice(0, behindOther)
  let sound = inHome.length === calls.length
  for (const [result, call] of wanted) {
    if (result.path === "" || placed.has(result)) continue
    misplaced(result, call, report)
  }
  const others = isHome ? next.parts.filter((part) => part.kind !== "result") : []
  const first = others.find((part) => !part.late)
  if (first !== undefined && inHome.length > 0 && (alone || lead.length < inHome.length)) {
    sound = false
    report(
      "mixed_results",
      "refused",
      first.path,
      alone ? "something stands beside results, which have to be alone" : "something stands in front of results",
      alone ? "it is moved into a message of its own behind them" : "it is moved behind them"
    )
  }
  if (alone && sound && outOfOrder(calls, inHome)) {
    sound = false
    report(
      "result_order",
      "loss",
      inHome[0]!.path,
      "the results are in another order than their calls, and without ids only the order tells whose they are",
      "they are put in the order of the calls"
    )
  }
  const results = sound ? lead : [...wanted.keys()]
  if (!isHome) return [form.wrap(results)]
  done.add(next)
  if (!alone || others.length === 0) return [withParts(next, [...results, ...others])]
  return [withParts(next, results), { ...form.wrap(others), path: next.path }]
}

const outOfOrder = (calls: ReadonlyArray<Part>, results: ReadonlyArray<Part>): boolean =>
  calls.some((call, i) => call.result !== results[i]) &&
  (calls.some((call) => call.id === "") || results.some((result) => result.id === ""))

/** Results anywhere behind their calls. New ones go behind the calls that were made together. */
const behind = (form: Form, messages: ReadonlyArray<Message>, report: Report): Array<Message> => {
  const out: Array<Message> = []
  const seen = new Set<Part>()
  const callOf = new Map(messages.flatMap(callsOf).map((call) => [call.result!, call]))
  const homes = homesOf(messages)
  const early = new Set<Part>()
  for (const message of messages) {
    const [part] = message.parts
    if (part?.kind === "call") seen.add(part.result!)
    else if (part !== undefined && callOf.has(part) && !seen.has(part)) {
      early.add(part)
      misplaced(part, callOf.get(part)!, report)
    }
  }
  let pending: Array<Message> = []
  for (const [at, message] of messages.entries()) {
    const [part] = message.parts
    if (part !== undefined && early.has(part)) continue
    out.push(message)
    if (part?.kind === "call" && (early.has(part.result!) || !homes.has(part.result!))) {
      pending.push(homes.get(part.result!) ?? form.wrap([part.result!]))
    }
    if (pending.length > 0 && !goesOn(messages, at + 1)) {
      out.push(...pending)
      pending = []
    }
  }
  return out
}

/** Whether calls, or results, go on here: reasoning belongs to the call after it. */
const goesOn = (messages: ReadonlyArray<Message>, from: number): boolean => {
  for (let at = from; at < messages.length; at++) {
    const [part] = messages[at]!.parts
    if (part?.kind === "call" || part?.kind === "result") return true
    if ((messages[at]!.source as { type?: unknown }).type !== "reasoning") return false
  }
  return false
}
