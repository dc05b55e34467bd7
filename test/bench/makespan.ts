/**
 * How long random turns take in virtual time, against the lower bound max(critical path, work / permits) and against waves:
 * runs of calls without a conflict, one after another with a barrier between them, which is what segments and `sequential`
 * flags come to. A mix has 20 to 99 calls on one backend of 4 to 16 permits, 4 to 29 keys, a fifth to four fifths of writes, and
 * latencies around 40 ms. Smaller and tighter mixes are bound by their permits whatever the order is.
 *
 * Either each call has a latency of its own, so that nothing can be learned; or each of six reads and six writes has one, which its
 * calls keep to within a tenth, and the mix is measured on a runtime that has seen it before.
 */
import { Clock, Effect, Fiber, pipe, Schema } from "effect"
import { Backend, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import { TestClock } from "effect/testing"

class Disk extends Backend.Service<Disk>()("bench/Disk") {}

const parameters = Schema.Struct({ key: Schema.Finite, ms: Schema.Finite, n: Schema.Finite })
const keys = ({ key }: { readonly key: number }) => [`k:${key}`]
const kinds = 6
const toolkit = Toolkit.make(
  ...Array.from({ length: 2 * kinds }, (_, i) =>
    pipe(
      Tool.make(i < kinds ? `get${i}` : `put${i - kinds}`, { parameters }),
      (i < kinds ? ToolPolicy.read : ToolPolicy.write)({ keys }),
      ToolPolicy.on(Disk),
      ToolPolicy.timeout("infinite"),
      ToolPolicy.waitTimeout("infinite")
    ))
)
const handlers = toolkit.toLayer(
  Object.fromEntries(
    Object.keys(toolkit.tools).map((name) => [name, ({ ms }: { readonly ms: number }) => Effect.sleep(ms)])
  )
)

/** A reproducible source of chance (mulberry32). */
const dice = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296
}

interface Mix {
  readonly permits: number
  readonly calls: ReadonlyArray<ToolCall.ToolCall>
  readonly millis: ReadonlyArray<number>
  readonly writes: ReadonlyArray<boolean>
  readonly keys: ReadonlyArray<number>
}

/** Each call has a latency of its own; each tool has one, and nobody knows it; each tool has one that was learned. */
export type Tools = "unlike" | "unseen" | "learned"

const mix = (seed: number, tail: number, tools: Tools): Mix => {
  const random = dice(seed)
  const ofTools = dice(~seed)
  const n = 20 + Math.floor(random() * 80)
  const permits = 4 + Math.floor(random() * 13)
  const spread = 4 + Math.floor(random() * 26)
  const share = 0.2 + random() * 0.6
  const millis: Array<number> = []
  const writes: Array<boolean> = []
  const keys: Array<number> = []
  const latency = (random: () => number) => 40 * Math.exp(tail * (random() + random() + random() - 1.5))
  const ofTool = tools === "unlike" ? undefined : Array.from({ length: 2 * kinds }, () => latency(ofTools))
  const calls = Array.from({ length: n }, (_, i) => {
    const own = latency(random)
    const write = random() < share
    const kind = Math.floor(ofTools() * kinds)
    const typical = ofTool?.[write ? kinds + kind : kind]
    const ms = Math.max(5, Math.round(typical === undefined ? own : typical * (0.9 + 0.2 * ofTools())))
    const key = Math.floor(random() * spread)
    millis.push(ms)
    writes.push(write)
    keys.push(key)
    return ToolCall.make(`c${i}`, `${write ? "put" : "get"}${kind}`, { key, ms, n: i })
  })
  return { permits, calls, millis, writes, keys }
}

const conflicts = (mix: Mix, i: number, j: number): boolean =>
  mix.keys[i] === mix.keys[j] && (mix.writes[i]! || mix.writes[j]!)

/** The longest way through the conflicts of a mix. */
const longestPath = (mix: Mix): number => {
  let longest = 0
  const ends: Array<number> = []
  for (let j = 0; j < mix.calls.length; j++) {
    let start = 0
    for (let i = 0; i < j; i++) if (conflicts(mix, i, j)) start = Math.max(start, ends[i]!)
    ends.push(start + mix.millis[j]!)
    longest = Math.max(longest, ends[j]!)
  }
  return longest
}

const work = (mix: Mix): number => mix.millis.reduce((a, b) => a + b, 0)

const lowerBound = (mix: Mix): number => Math.max(longestPath(mix), work(mix) / mix.permits)

/** No order takes longer, as long as every permit is used whenever a call may run (Graham). */
const upperBound = (mix: Mix): number => work(mix) / mix.permits + longestPath(mix) * (1 - 1 / mix.permits)

/** The calls of one wave on the permits, each to whichever is free first. */
const waveLength = (millis: ReadonlyArray<number>, permits: number): number => {
  const free = new Array(permits).fill(0)
  for (const ms of millis) {
    const at = free.indexOf(Math.min(...free))
    free[at] += ms
  }
  return Math.max(...free)
}

const waves = (mix: Mix): number => {
  let total = 0
  let first = 0
  for (let j = 1; j <= mix.calls.length; j++) {
    let barrier = j === mix.calls.length
    for (let i = first; i < j && !barrier; i++) barrier = conflicts(mix, i, j)
    if (!barrier) continue
    total += waveLength(mix.millis.slice(first, j), mix.permits)
    first = j
  }
  return total
}

const measured = (mix: Mix, tools: Tools): Effect.Effect<number> =>
  Effect.gen(function*() {
    let took = 0
    for (let round = tools === "learned" ? 0 : 1; round < 2; round++) {
      const start = yield* Clock.currentTimeMillis
      const fiber = yield* Effect.forkChild(
        Turn.run(toolkit, mix.calls, { dedupe: "off" }).pipe(Effect.andThen(Clock.currentTimeMillis))
      )
      yield* TestClock.adjust(work(mix) + 1)
      took = (yield* Fiber.join(fiber)) - start
    }
    return took
  }).pipe(
    Effect.provide([handlers, Disk.layer({ concurrency: mix.permits }), Turn.layer()]),
    Effect.provide(TestClock.layer()),
    Effect.orDie
  )

export interface Makespan {
  readonly mixes: number
  readonly mean: number
  readonly p90: number
  readonly longerThanWaves: number
  readonly medianWaves: number
  /** Mixes that took longer than they can when no permit is free while a call could run. */
  readonly idle: number
}

/**
 * Ratios over many random mixes, to the lower bound and of waves. With a `tail` of 1.2 nine in ten calls take 15 to 110 ms, with 2
 * they take 7 to 220 ms.
 */
export const makespan = async (mixes: number, tail: number, tools: Tools): Promise<Makespan> => {
  const toBound: Array<number> = []
  const toWaves: Array<number> = []
  let idle = 0
  for (let seed = 1; seed <= mixes; seed++) {
    const one = mix(seed, tail, tools)
    const took = await Effect.runPromise(measured(one, tools))
    toBound.push(took / lowerBound(one))
    toWaves.push(waves(one) / took)
    if (took > upperBound(one) + 1e-6) idle++
  }
  toBound.sort((a, b) => a - b)
  toWaves.sort((a, b) => a - b)
  return {
    mixes,
    mean: toBound.reduce((a, b) => a + b, 0) / mixes,
    p90: toBound[Math.floor(mixes * 0.9)]!,
    longerThanWaves: toWaves.filter((ratio) => ratio < 1).length,
    medianWaves: toWaves[Math.floor(mixes / 2)]!,
    idle
  }
}
