/** Gives each call of a history its one result, and an id that stands for it alone. */
import * as Outcome from "../../Outcome.ts"
import type * as History from "../History.ts"
import { answerOf, type Form, labelOf, type Message, type Part, part, type Report, show, withParts } from "./view.ts"

export interface Paired {
  readonly messages: ReadonlyArray<Message>
  readonly open: ReadonlyArray<History.OpenCall>
}

/**
 * Pairs calls and results. Results that no call can have are taken out, calls without one get one; ids are made to fit.
 *
 * - `elsewhere`: the provider keeps a part of the history, in which the calls of results may be.
 */
export const pairUp = (
  form: Form,
  read: ReadonlyArray<Message>,
  elsewhere: boolean,
  close: History.MendOptions["close"],
  report: Report
): Paired => {
  const messages = withoutRepeats(read, report)
  const steps = numberSteps(form, messages)
  const without = matched(form, messages, elsewhere, report)
  const dropped = new Set<Part>()
  const lastStep = stepAtEnd(messages, steps)
  const open: Array<History.OpenCall> = []
  const ids = giveIds(form, messages, report)
  for (const call of callsOf(messages)) {
    const id = ids.get(call) ?? call.id
    if (call.result === undefined) {
      const last = call.step === lastStep
      const told: [History.Code, History.Kind] = last ? ["open_call", "open"] : ["missing_result", "refused"]
      const problem = `${labelOf(call)} has no result${last ? ": it is open at the end, and may still be run" : ""}`
      const found: History.OpenCall = { path: call.path, id: call.id, name: call.name, arguments: call.arguments, last }
      open.push(found)
      if (call.unanswerable) {
        dropped.add(call)
        report(...told, call.path, problem, "it is taken out, since its provider takes no words as its answer")
        continue
      }
      const given = close?.(found)
      report(
        ...told,
        call.path,
        problem,
        given === undefined
          ? "it is answered that nobody knows whether it took effect"
          : "it is answered as the caller says"
      )
      const value = form.answer(call, id, answerOf(given ?? inDoubt(call), Outcome.forModel))
      call.result = part("result", "", value, { id })
    } else {
      const { result } = call
      if (id !== result.id) {
        result.value = form.resultWithId(result.value, id)
        if (!ids.has(call)) {
          report(
            "result_id",
            form.ids.optional ? "loss" : "refused",
            result.path,
            `the result has ${result.id === "" ? "no id" : `the id ${show(result.id)}`}, and its place is that of ${
              labelOf(call)
            }`,
            id === "" ? "it goes without one, as its call does" : "it gets the id of that call"
          )
        }
      }
      form.fitResult?.(result, call, report)
    }
  }
  return {
    messages: take(messages, (part) => without.has(part) || dropped.has(part)),
    open
  }
}

/** What is known of a call that nobody has answered: that it was made. */
const inDoubt = (call: Part): Outcome.Refused => ({
  position: 0,
  id: call.id,
  name: call.name,
  status: "error",
  code: "in_doubt",
  started: true,
  effect: "unknown",
  retryable: false,
  message:
    "its answer is not in the conversation; whether it took effect is unknown; find out before you call it again, " +
    "it could be done twice"
})

/** Takes parts out; messages that have nothing left are gone as well. */
const take = (messages: ReadonlyArray<Message>, gone: (part: Part) => boolean): Array<Message> =>
  messages.flatMap((message) => {
    const parts = message.parts.filter((part) => !gone(part))
    return parts.length === 0 && message.parts.length > 0 ? [] : [withParts(message, parts)]
  })

const callsOf = (messages: ReadonlyArray<Message>): Array<Part> =>
  messages.flatMap((message) => message.parts.filter((part) => part.kind === "call"))

/** A call that stands in its message a second time is a re-delivery: one call, with one answer. */
const withoutRepeats = (messages: ReadonlyArray<Message>, report: Report): Array<Message> =>
  messages.flatMap((message) => {
    const seen = new Set<string>()
    const parts = message.parts.filter((part) => {
      if (part.kind !== "call" || part.id === "") return true
      const key = JSON.stringify([part.id, part.name, part.content])
      if (!seen.has(key)) {
        seen.add(key)
        return true
      }
      report("repeated_call", "refused", part.path, `${labelOf(part)} stands in the message twice`, "it is taken out")
      return false
    })
    return [withParts(message, parts)]
  })

/**
 * Which calls were made together: those of one message, or, where each stands for itself, those with nothing but the model's own between.
 * Gives the step of each message of the model.
 */
const numberSteps = (form: Form, messages: ReadonlyArray<Message>): Map<Message, number> => {
  const steps = new Map<Message, number>()
  let step = 0
  let open = false
  for (const message of messages) {
    if (message.role !== "model") {
      open = false
      continue
    }
    if (!open || form.results !== "behind") step++
    open = true
    steps.set(message, step)
    for (const part of message.parts) if (part.kind === "call") part.step = step
  }
  return steps
}

/** The step of the calls after which nothing came but results. */
const stepAtEnd = (messages: ReadonlyArray<Message>, steps: ReadonlyMap<Message, number>): number | undefined => {
  const last = messages.findLast((message) =>
    message.late !== true &&
    (message.parts.length === 0 || message.parts.some((part) => part.kind !== "result" && part.late !== true))
  )
  return last === undefined ? undefined : steps.get(last)
}

/** Finds the call of each result. Gives the results that are to be taken out. */
const matched = (
  form: Form,
  messages: ReadonlyArray<Message>,
  elsewhere: boolean,
  report: Report
): ReadonlySet<Part> => {
  const byId = new Map<string, Array<Part>>()
  const later: Array<{ readonly result: Part; readonly step: ReadonlyArray<Part> }> = []
  const again: Array<{ readonly result: Part; readonly call: Part }> = []
  let step: Array<Part> = []
  let waiting = new Waiting()
  const pair = (call: Part, result: Part) => {
    call.result = result
    result.step = call.step!
  }
  for (const message of messages) {
    for (const part of message.parts) {
      if (part.kind === "call") {
        const under = byId.get(part.id)
        if (under === undefined) byId.set(part.id, [part])
        else under.push(part)
        if (step[0]?.step !== part.step) {
          step = []
          waiting = new Waiting()
        }
        step.push(part)
        waiting.add(part)
      } else if (part.kind === "result") {
        const same = part.id === "" ? [] : byId.get(part.id) ?? []
        const call = openOf(same, part.name) ??
          // Ids may be missing on one side: then the name, and after it the order, tell whose result it is.
          (same.length > 0 ? undefined : waiting.first(part))
        if (call !== undefined) pair(call, part)
        else if (same.length > 0) again.push({ result: part, call: same.at(-1)! })
        else later.push({ result: part, step })
      }
    }
  }
  const without = new Set<Part>()
  for (const [step, results] of Map.groupBy(later, (one) => one.step)) orphans(step, results.map((one) => one.result))
  for (const { call, result } of again) repeated(form, result, call, without, report)
  return without

  function orphans(step: ReadonlyArray<Part>, results: ReadonlyArray<Part>): void {
    const calledIdless = step.some((call) => call.id === "")
    const idless = calledIdless ? results : results.filter((result) => result.id === "")
    const answeredIdless = idless.some((result) => result.id === "")
    const open = step.filter((call) => call.result === undefined && (call.id === "" || answeredIdless))
    // As many as there are open calls: then the order tells whose they are, unless a name says that one is another tool's.
    const inOrder = idless.length > 0 && idless.length === open.length
    const places = new Map(inOrder ? idless.map((result, at) => [result, at]) : [])
    for (const result of results) {
      const at = places.get(result) ?? -1
      // Where ids come again in other messages, a result at the beginning is that of a call that was cut off, whatever id it has.
      const isCutOff = form.ids.unique === "message" && step.length === 0
      const same = result.id === "" || isCutOff ? [] : byId.get(result.id) ?? []
      const call = at >= 0 && isAlike(open[at]!.name, result.name) ? open[at] : openOf(same, result.name)
      if (call !== undefined) {
        pair(call, result)
        continue
      }
      if (same.length > 0) {
        again.push({ result, call: same[0]! })
        continue
      }
      if (elsewhere) {
        result.kind = "other"
        continue
      }
      without.add(result)
      report(
        "result_without_call",
        "refused",
        result.path,
        `the result${result.id === "" ? "" : ` of ${show(result.id)}`} has no call before it`,
        "it is taken out"
      )
    }
  }
}

/** Whether a result may be of a tool of this name: hosts mend names, and many results have none. */
const isAlike = (call: string, result: string): boolean => {
  const plain = (name: string) => name.toLowerCase().replace(/[^a-z0-9]/g, "")
  return result === "" || plain(call) === plain(result)
}

/** The calls of a step by name, for results that have no id, or whose calls have none: the first that is open is meant. */
class Waiting {
  private readonly all = new Map<string, Queue>()
  private readonly idless = new Map<string, Queue>()

  add(call: Part): void {
    put(this.all, call)
    if (call.id === "") put(this.idless, call)
  }

  first({ id, name }: Part): Part | undefined {
    const queue = (id === "" ? this.all : this.idless).get(name)
    // A call that has its result keeps it.
    while (queue?.calls[queue.at]?.result !== undefined) queue.at++
    return queue?.calls[queue.at]
  }
}

interface Queue {
  readonly calls: Array<Part>
  at: number
}

const put = (queues: Map<string, Queue>, call: Part): void => {
  const queue = queues.get(call.name)
  if (queue === undefined) queues.set(call.name, { calls: [call], at: 0 })
  else queue.calls.push(call)
}

/** The first open call of the latest step that has one: of this name, if there is any. */
const openOf = (calls: ReadonlyArray<Part>, name: string): Part | undefined => {
  let first: Part | undefined
  let named: Part | undefined
  // From the end, and no further than that step: one id may have thousands of calls.
  for (let at = calls.length - 1; at >= 0; at--) {
    const call = calls[at]!
    if (first !== undefined && call.step !== first.step) break
    if (call.result !== undefined) continue
    first = call
    if (call.name === name) named = call
  }
  return named ?? first
}

/** A call has been answered already. What is told now may matter all the same, so it becomes words, if it is not the same. */
const repeated = (
  form: Form,
  result: Part,
  call: Part,
  without: Set<Part>,
  report: Report
): void => {
  if (result.content === call.result?.content) {
    without.add(result)
    report(
      "repeated_result",
      "refused",
      result.path,
      `the result of ${labelOf(call)} is given twice`,
      "it is taken out"
    )
    return
  }
  report(
    "late_result",
    "refused",
    result.path,
    `${labelOf(call)} is answered elsewhere, with something else`,
    "that answer stays, and this one becomes words of the user"
  )
  const text = `Another answer to ${labelOf(call)}: ${result.content}`
  result.kind = "other"
  result.late = true
  result.value = form.words(text)
}

/** New ids where a provider would refuse those that came, for call and result together. */
const giveIds = (form: Form, messages: ReadonlyArray<Message>, report: Report): ReadonlyMap<Part, string> => {
  const { max, optional, pattern, unique, words } = form.ids
  const given = new Map<Part, string>()
  const calls = callsOf(messages)
  const taken = new Set(calls.map((call) => call.id))
  const seen = new Set<string>()
  let count = 0
  let step: number | undefined
  for (const call of calls) {
    if (unique === "message" && call.step !== step) seen.clear()
    step = call.step
    if (optional && call.id === "") continue
    const problem = call.id === ""
      ? "has no id"
      : call.id.length > max || !pattern.test(call.id)
      ? `has an id of a form that is refused (${words})`
      : seen.has(call.id)
      ? "has the id of another call"
      : undefined
    if (problem === undefined) {
      seen.add(call.id)
      continue
    }
    let id: string
    do id = `call_${++count}`
    while (taken.has(id))
    taken.add(id)
    given.set(call, id)
    call.value = form.callWithId(call, id)
    report(
      seen.has(call.id) ? "repeated_id" : "id_form",
      "refused",
      call.path,
      `${labelOf(call)} ${problem}`,
      `call and result get the id ${id}`
    )
  }
  return given
}
