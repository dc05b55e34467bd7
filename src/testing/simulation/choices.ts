/**
 * Everything that a simulated run leaves open, decided one question at a time: which task runs next, whether a fiber gives way
 * at this point, whether promises settle now. A run is repeated by answering the same.
 *
 * - **C1** The answer 0 is the natural one: the oldest task, no switch, promises when nothing else can run. All others are
 *   *forced*, and the forced ones alone are written down.
 * - **C2** A question with one answer is not asked. What is not natural for a script any more (there are fewer tasks than it
 *   says) is answered 0, so that every script is a run.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import * as TurnError from "../../TurnError.ts"

/** An answer that is not the natural one: the place of the question, and the answer. */
export type Forced = readonly [index: number, answer: number]

/** What was left open: its place, how many answers it has, and what it is about. */
export interface Question {
  readonly index: number
  readonly count: number
  /** `idle`: to give way where nothing else can run, unless a promise has settled. */
  readonly kind: "task" | "switch" | "idle" | "settle"
}

/** How often the fibers of a run give way, and how often another task than the oldest is taken: one of these for each seed. */
const switchRates = [1 / 100, 1 / 30, 1 / 8, 1 / 3, 1 / 2]
const shuffleRates = [1, 1 / 2, 1 / 8]

/** How often promises settle although something else could run. */
const settleRate = 1 / 4

const never = Number.MAX_SAFE_INTEGER

/** Chance that is the same for the same seed on every machine. */
export const randomOf = (seed: string): Random.Random => Effect.runSync(Random.withSeed(Random.Random, seed))

/** The answers of one run, and what it was asked. */
export class Choices {
  readonly forced: Array<Forced> = []
  /** The questions from `recordFrom` on, for whoever enumerates runs. */
  readonly open: Array<Question> = []
  private readonly recordFrom: number
  private asked = 0
  /** A number for the run so far: equal runs have equal ones. */
  private hash = 0
  // Answers by chance.
  private readonly random: Random.Random | undefined
  private readonly switchRate: number = 0
  private readonly shuffleRate: number = 0
  private untilSwitch = never
  // Answers by script.
  private readonly script: ReadonlyArray<Forced>
  private next = 0
  private nextIndex = never

  constructor(schedule: Schedule, recordFrom = never) {
    this.recordFrom = recordFrom
    this.script = schedule.forced ?? []
    if (schedule.forced !== undefined || schedule.seed === 0) {
      this.advance()
      return
    }
    this.random = randomOf(`schedule ${schedule.seed}`)
    this.switchRate = this.pick(switchRates)
    this.shuffleRate = this.pick(shuffleRates)
    this.drawSwitch()
  }

  /** Tells this run from others: runs in which the same was asked and answered have the same. */
  get fingerprint(): string {
    return `${this.asked}.${this.hash}`
  }

  /** Which of `count` tasks runs next, the oldest first. */
  task(count: number): number {
    if (count === 1) return 0
    const { random } = this
    if (random === undefined) return this.scripted(count, "task")
    return this.answered(count, "task", random.nextDoubleUnsafe() < this.shuffleRate ? this.below(count) : 0)
  }

  /** Whether the fiber that runs gives way here. Asked at every operation of every fiber. */
  switches(idle: boolean): boolean {
    const kind = idle ? "idle" : "switch"
    if (this.random === undefined) return this.scripted(2, kind) === 1
    if (--this.untilSwitch > 0) return this.answered(2, kind, 0) === 1
    this.drawSwitch()
    return this.answered(2, kind, 1) === 1
  }

  /** Whether promises settle before the next task. */
  settles(): boolean {
    const { random } = this
    if (random === undefined) return this.scripted(2, "settle") === 1
    return this.answered(2, "settle", random.nextDoubleUnsafe() < settleRate ? 1 : 0) === 1
  }

  private scripted(count: number, kind: Question["kind"]): number {
    let answer = 0
    if (this.asked === this.nextIndex) {
      answer = this.script[this.next]![1]
      this.next++
      this.advance()
      if (answer >= count) answer = 0
    }
    return this.answered(count, kind, answer)
  }

  private advance(): void {
    this.nextIndex = this.script[this.next]?.[0] ?? never
  }

  private answered(count: number, kind: Question["kind"], answer: number): number {
    const index = this.asked++
    if (index >= this.recordFrom) this.open.push({ index, count, kind })
    if (answer !== 0) {
      this.forced.push([index, answer])
      this.hash = Math.imul(this.hash ^ index, 0x01000193) ^ Math.imul(answer, 0x85ebca6b)
    }
    return answer
  }

  private below(count: number): number {
    return Math.floor(this.random!.nextDoubleUnsafe() * count)
  }

  private pick(rates: ReadonlyArray<number>): number {
    return rates[this.below(rates.length)]!
  }

  /** How many operations until the next switch, drawn once instead of asking chance at each of them. */
  private drawSwitch(): void {
    this.untilSwitch = 1 + Math.floor(Math.log(1 - this.random!.nextDoubleUnsafe()) / Math.log(1 - this.switchRate))
  }
}

/** A run: a seed, and the forced answers when they are given one by one. */
export interface Schedule {
  /** 0 is the natural run, in which nothing is forced. */
  readonly seed: number
  readonly forced: ReadonlyArray<Forced> | undefined
}

/** `"17"`, or `"17/31:1,40:2"` with the forced answers one by one. */
export const show = ({ forced, seed }: Schedule): string =>
  forced === undefined ? String(seed) : `${seed}/${forced.map(([index, answer]) => `${index}:${answer}`).join(",")}`

/** Reads a seed or what {@link show} has written; throws what is neither. */
export const parse = (schedule: number | string): Schedule => {
  const found = /^(\d{1,15})(?:\/((?:\d{1,15}:\d{1,9}(?:,(?!$)|$))*))?$/.exec(String(schedule))
  if (found === null) {
    throw TurnError.make(
      new TurnError.InvalidInput({
        what: "the schedule of a simulation",
        expected: 'a seed (a whole number from 0), or a replay text as "17/31:1,40:2"',
        received: TurnError.show(schedule)
      })
    )
  }
  const [, seed, forced] = found
  if (forced === undefined) return { seed: Number(seed), forced: undefined }
  const answers = forced === "" ? [] : forced.split(",").map((one) => {
    const [index, answer] = one.split(":")
    return [Number(index), Number(answer)] as const
  })
  return { seed: Number(seed), forced: answers.sort(([a], [b]) => a - b) }
}
