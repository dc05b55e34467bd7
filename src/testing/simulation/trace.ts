/**
 * What ran when: the steps of a simulated run, with the fibers that each of them moved on, and what was noted.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Fiber from "effect/Fiber"
import * as TurnContext from "../../TurnContext.ts"

/**
 * One step of a run.
 *
 * **Details**
 *
 * - `step`: its number, from 0. `at`: the virtual time in milliseconds.
 * - `who`: the fibers that it moved on, in order: a handler by its call, others by the order in which they were first seen.
 * - `of`, `chosen`: of how many tasks that could have run it was which, the oldest being 0.
 * - `gaveWay`: those of `who` that were made to give way before they were done.
 * - `notes`: what was noted meanwhile.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Step {
  readonly step: number
  readonly at: number
  readonly who: ReadonlyArray<string>
  readonly of: number
  readonly chosen: number
  readonly gaveWay: ReadonlyArray<string>
  readonly notes: ReadonlyArray<string>
}

interface Recording {
  readonly step: number
  readonly at: number
  readonly who: Array<string>
  readonly of: number
  readonly chosen: number
  readonly gaveWay: Array<string>
  readonly notes: Array<string>
}

/** Writes down a run. */
export class Tracer {
  readonly steps: Array<Recording> = []
  private readonly names = new WeakMap<object, string>()
  private readonly used = new Map<string, number>()
  private expected: string | undefined = undefined
  private last: object | undefined = undefined

  step(step: number, at: number, of: number, chosen: number): void {
    this.last = undefined
    this.steps.push({ step, at, who: [], of, chosen, gaveWay: [], notes: [] })
  }

  /** The next fiber that is seen has this name. */
  expect(name: string): void {
    this.expected = name
  }

  ran(fiber: Fiber.Fiber<unknown, unknown>): void {
    if (this.last === fiber) return
    this.last = fiber
    const name = this.nameOf(fiber)
    const { who } = this.current()
    if (!who.includes(name)) who.push(name)
  }

  gaveWay(fiber: Fiber.Fiber<unknown, unknown>): void {
    this.current().gaveWay.push(this.nameOf(fiber))
  }

  note(at: number, text: string): void {
    if (this.steps.length === 0) this.step(0, at, 1, 0)
    this.current().notes.push(text)
  }

  private current(): Recording {
    if (this.steps.length === 0) this.step(0, 0, 1, 0)
    return this.steps[this.steps.length - 1]!
  }

  private nameOf(fiber: Fiber.Fiber<unknown, unknown>): string {
    let name = this.names.get(fiber)
    if (name === undefined) this.names.set(fiber, name = this.unique(this.expected ?? nameIn(fiber)))
    this.expected = undefined
    return name
  }

  private unique(name: string): string {
    const n = (this.used.get(name) ?? 0) + 1
    this.used.set(name, n)
    return name === "fiber" || n > 1 ? `${name} ${n}` : name
  }
}

/** A fiber of a handler is known by its call, another one by its span. */
const nameIn = (fiber: Fiber.Fiber<unknown, unknown>): string => {
  const call = Context.get(fiber.context as Context.Context<never>, TurnContext.CurrentCall)
  if (call !== undefined) {
    // An id that was made up by chance tells nobody anything.
    const { turn } = call.identity
    return `#${call.position} ${call.tool}${/^turn_\w{22}$/.test(turn) ? "" : ` of ${turn}`}`
  }
  const { span } = fiber.cache
  return span?._tag === "Span" ? span.name : "fiber"
}

const isForced = (step: Step): boolean => step.chosen > 0 || step.gaveWay.length > 0

/** The steps as lines: a `>` marks those in which something was forced. Long stretches without anything to tell are left out. */
export const format = (steps: ReadonlyArray<Step>): string => {
  const told = steps.filter((step) => step.who.length > 0 || step.notes.length > 0)
  const lines: Array<string> = []
  const width = String(steps.at(-1)?.step ?? 0).length
  for (const step of told) {
    const forced = [
      ...(step.chosen > 0 ? [`before ${step.chosen} older of ${step.of}`] : []),
      ...step.gaveWay.map((name) => `${name} gives way`)
    ]
    const mark = isForced(step) ? ">" : " "
    const what = step.who.join(", then ")
    lines.push(
      `${mark} ${String(step.step).padStart(width)}  ${`${step.at} ms`.padStart(8)}  ${what}${
        forced.length === 0 ? "" : `   [${forced.join("; ")}]`
      }`
    )
    for (const note of step.notes) lines.push(`${" ".repeat(width + 14)}- ${note}`)
  }
  return lines.length <= maxLines
    ? lines.join("\n")
    : [
      ...lines.slice(0, maxLines / 2),
      `  ... ${lines.length - maxLines} lines more ...`,
      ...lines.slice(-maxLines / 2)
    ]
      .join("\n")
}

const maxLines = 200
