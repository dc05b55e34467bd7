/**
 * How long random turns take in virtual time, against the lower bound max(critical path, work / permits) and against waves:
 * runs of calls without a conflict, one after another with a barrier between them, which is what segments and `sequential`
 * flags come to. A mix has 20 to 99 calls on one backend of 4 to 16 permits, 4 to 29 keys, a fifth to four fifths of writes, and
 * latencies around 40 ms. Smaller and tighter mixes are bound by their permits whatever the order is.
 */
import { Clock, Effect, Fiber, pipe, Schema } from "effect"
import { Backend, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import { TestClock } from "effect/testing"

class Disk extends Backend.Service<Disk>()("bench/Disk") {}

const parameters = Schema.Struct({ key: Schema.Finite, ms: Schema.Finite, n: Schema.Finite })
const keys = ({ key }: { readonly key: number }) => [`k:${key}`]
const Get = pipe(
  Tool.make("get", { parameters }),
  ToolPolicy.read({ keys }),
  ToolPolicy.on(Disk),
  ToolPolicy.waitTimeout("infinite")
)
const Put = pipe(
  Tool.make("put", { parameters }),
  ToolPolicy.write({ keys }),
  ToolPolicy.on(Disk),
  ToolPolicy.waitTimeout("infinite")
)
const toolkit = Toolkit.make(Get, Put)
const wait = ({ ms }: { readonly ms: number }) => Effect.sleep(ms)
const handlers = toolkit.toLayer({ get: wait, put: wait })

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

const mix = (seed: number, tail: number): Mix => {
  const random = dice(seed)
  const n = 20 + Math.floor(random() * 80)
  const permits = 4 + Math.floor(random() * 13)
  const spread = 4 + Math.floor(random() * 26)
  const share = 0.2 + random() * 0.6
  const millis: Array<number> = []
  const writes: Array<boolean> = []
  const keys: Array<number> = []
  const calls = Array.from({ length: n }, (_, i) => {
    const ms = Math.max(5, Math.round(40 * Math.exp(tail * (random() + random() + random() - 1.5))))
    const write = random() < share
    const key = Math.floor(random() * spread)
    millis.push(ms)
    writes.push(write)
    keys.push(key)
    return ToolCall.make(`c${i}`, write ? "put" : "get", { key, ms, n: i })
  })
  return { permits, calls, millis, writes, keys }
}

const conflicts = (mix: Mix, i: number, j: number): boolean =>
  mix.keys[i] === mix.keys[j] && (mix.writes[i]! || mix.writes[j]!)

const lowerBound = (mix: Mix): number => {
  let longest = 0
  const ends: Array<number> = []
  for (let j = 0; j < mix.calls.length; j++) {
    let start = 0
    for (let i = 0; i < j; i++) if (conflicts(mix, i, j)) start = Math.max(start, ends[i]!)
    ends.push(start + mix.millis[j]!)
    longest = Math.max(longest, ends[j]!)
  }
  return Math.max(longest, mix.millis.reduce((a, b) => a + b, 0) / mix.permits)
}

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

const measured = (mix: Mix): Effect.Effect<number> =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(
      Turn.run(toolkit, mix.calls, { dedupe: "off" }).pipe(Effect.andThen(Clock.currentTimeMillis))
    )
    yield* TestClock.adjust(mix.millis.reduce((a, b) => a + b, 0) + 1)
    return yield* Fiber.join(fiber)
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
}

/** Ratios over many random mixes. With a `tail` of 1.2 nine in ten calls take 15 to 110 ms, with 2 they take 7 to 220 ms. */
export const makespan = async (mixes: number, tail: number): Promise<Makespan> => {
  const toBound: Array<number> = []
  const toWaves: Array<number> = []
  for (let seed = 1; seed <= mixes; seed++) {
    const one = mix(seed, tail)
    const took = await Effect.runPromise(measured(one))
    toBound.push(took / lowerBound(one))
    toWaves.push(waves(one) / took)
  }
  toBound.sort((a, b) => a - b)
  toWaves.sort((a, b) => a - b)
  return {
    mixes,
    mean: toBound.reduce((a, b) => a + b, 0) / mixes,
    p90: toBound[Math.floor(mixes * 0.9)]!,
    longerThanWaves: toWaves.filter((ratio) => ratio < 1).length,
    medianWaves: toWaves[Math.floor(mixes / 2)]!
  }
}
