/**
 * `npm run bench`: ratios in one run, medians, on this machine. Absolute figures are shown for orientation and mean nothing
 * elsewhere. `npm run bench -- --quick` takes fewer rounds.
 */
import { Effect, Fiber, Layer, pipe, Schema, Scope, Semaphore } from "effect"
import type { Context } from "effect"
import { Backend, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"
import { loads } from "./coalescing.ts"
import { bare, byHand, callsOf, context, type Name, turn } from "./contenders.ts"
import { makespan } from "./makespan.ts"
import { compare, median } from "./measure.ts"
import { records } from "./records.ts"

const quick = process.argv.includes("--quick")
const rounds = (n: number) => Math.max(3, quick ? Math.ceil(n / 5) : n)

const rows: Array<ReadonlyArray<string>> = []
const row = (what: string, ours: string, ratio: number, of: string, target: number, atLeast = false) => {
  const met = atLeast ? ratio >= target : ratio <= target
  rows.push([what, ours, ratio.toFixed(2), of, `${atLeast ? "at least" : "at most"} ${target}`, met ? "met" : "MISSED"])
}

const us = (value: number) => `${value.toFixed(value < 10 ? 2 : 0)} µs`

// Parked calls -------------------------------------------------------------------------------------------------------------
const gc = (globalThis as { gc?: () => void }).gc
if (gc === undefined) throw new Error("run with --expose-gc")
{
  const n = 10_000
  const fork = Effect.runForkWith(context)
  const bytes: Record<string, Array<number>> = {}
  const stops: Record<string, Array<number>> = {}
  const contenders = { bare, "by hand": byHand, turn }
  for (let round = -2; round < rounds(11); round++) {
    for (const [name, run] of Object.entries(contenders)) {
      const calls = callsOf("parked", n)
      gc()
      const before = process.memoryUsage().heapUsed
      const fiber = fork(run(calls) as Effect.Effect<unknown>)
      await new Promise((resolve) => setTimeout(resolve, 20))
      gc()
      const after = process.memoryUsage().heapUsed
      const start = performance.now()
      await Effect.runPromise(Fiber.interrupt(fiber))
      const took = performance.now() - start
      if (round < 0) continue
      ;(bytes[name] ??= []).push((after - before) / n)
      ;(stops[name] ??= []).push(took)
    }
  }
  const size = (name: string) => median(bytes[name]!) / 1000
  row("retained per parked call", `${size("turn").toFixed(2)} kB`, size("turn"), "kB", 2)
  rows.push([
    "  … against",
    "",
    (size("turn") / size("by hand")).toFixed(2),
    `by hand (${size("by hand").toFixed(2)} kB)`,
    "",
    ""
  ])
  const stop = (name: string) => median(stops[name]!)
  row("stop of 10000 parked reads", `${stop("turn").toFixed(1)} ms`, stop("turn") / stop("bare"), "bare forEach", 1.5)
}

// Cost per call ------------------------------------------------------------------------------------------------------------
for (const name of ["async", "noop"] as ReadonlyArray<Name>) {
  for (const n of [1, 10, 100, 1000, 10_000]) {
    const calls = callsOf(name, n)
    const [plain, hand, ours] = await compare(
      [
        { name: "bare", run: () => bare(calls) },
        { name: "by hand", run: () => byHand(calls) },
        { name: "turn", run: () => turn(calls) }
      ],
      context,
      {
        rounds: rounds(n === 10_000 ? 9 : n === 1000 ? 31 : 101),
        repeat: n === 1 ? 300 : n === 10 ? 50 : n === 100 ? 10 : 1
      }
    )
    const what = name === "async" ? "one asynchronous step" : "no-op"
    const per = us(ours! / n)
    if (n === 1 && name === "async") row(`${what}, a turn of 1`, per, ours! / plain!, "bare forEach", 3)
    else if (name === "async" && (n === 100 || n === 1000)) row(`${what}, N = ${n}`, per, ours! / hand!, "by hand", 0.4)
    else if (name === "noop" && n >= 10 && n <= 1000) row(`${what}, N = ${n}`, per, ours! / hand!, "by hand", 0.6)
    else rows.push([`${what}, N = ${n}`, per, (ours! / hand!).toFixed(2), "by hand", "", ""])
    rows.push([`  … against`, "", (ours! / plain!).toFixed(2), "bare forEach", "", ""])
  }
}

// A backend with a limit ---------------------------------------------------------------------------------------------------
class Narrow extends Backend.Service<Narrow>()("bench/Narrow") {}
const Limited = pipe(
  Tool.make("limited", { parameters: Schema.Struct({ n: Schema.Finite }), success: Schema.Finite }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.on(Narrow)
)
const limitedKit = Toolkit.make(Limited)
const done = Promise.resolve(0)
const limited = await Effect.runPromise(
  Layer.buildWithScope(
    Layer.mergeAll(
      limitedKit.toLayer({ limited: ({ n }) => Effect.map(Effect.promise(() => done), (zero) => zero + n) }),
      Narrow.layer({ concurrency: 4 }),
      Turn.layer()
    ),
    Scope.makeUnsafe()
  )
) as Context.Context<any>
const four = Semaphore.makeUnsafe(4)
{
  const sizes = [1000, 10_000]
  const lists = sizes.map((n) => callsOf("limited" as Name, n))
  const times = await compare(
    lists.map((calls, i) => ({
      name: `${sizes[i]}`,
      run: () => Turn.run(limitedKit, calls) as Effect.Effect<unknown, unknown, any>
    })),
    limited,
    { rounds: rounds(11), repeat: 1 }
  )
  const perCall = times.map((time, i) => time / sizes[i]!)
  row("4 permits, N = 10000", us(perCall[1]!), perCall[1]! / perCall[0]!, "itself at N = 1000", 1.5)
  const hand = await compare(
    [1000, 4000].map((n) => ({ name: `${n}`, run: () => byHand(callsOf("async", n), four) })),
    context,
    { rounds: rounds(3), repeat: 1 }
  )
  rows.push([
    "  by hand with Effect's semaphore, N = 4000",
    us(hand[1]! / 4000),
    (hand[1]! / 4 / hand[0]!).toFixed(2),
    "itself at N = 1000",
    "",
    ""
  ])
}

// Makespan -----------------------------------------------------------------------------------------------------------------
{
  const mixes = quick ? 100 : 400
  const result = await makespan(mixes, 1.2, "unlike")
  row(`makespan of ${result.mixes} random mixes, mean`, "", result.mean, "lower bound", 1.06)
  row("  … 90th percentile", "", result.p90, "lower bound", 1.19)
  row("  … longer than waves", "", result.longerThanWaves, "mixes", 0)
  row("  … waves take, in the median", "", result.medianWaves, "times as long", 2, true)
  // Without knowing how long tools take, one long call at the wrong place costs more.
  const tail = await makespan(mixes, 2, "unlike")
  rows.push(["  … with a long tail of latencies, mean", "", tail.mean.toFixed(2), "lower bound", "", ""])
  const unseen = await makespan(mixes, 1.2, "unseen")
  rows.push(["  … of twelve tools that nobody has seen yet, mean", "", unseen.mean.toFixed(3), "lower bound", "", ""])
  const learned = await makespan(mixes, 1.2, "learned")
  row("  … with learned path lengths, mean", "", learned.mean, "lower bound", 1.03)
  row("  … with learned path lengths, 90th percentile", "", learned.p90, "lower bound", 1.1)
  const learnedTail = await makespan(mixes, 2, "learned")
  row("  … with those and a long tail, mean", "", learnedTail.mean, "lower bound", 1.03)
}

// Simulation ---------------------------------------------------------------------------------------------------------------
{
  const simulated = Toolkit.make(
    ...["look", "find", "fetch", "save", "book", "pay"].map((name, i) =>
      pipe(
        Tool.make(name, { parameters: Schema.Struct({ at: Schema.String }), success: Schema.String }),
        (i < 3 ? ToolPolicy.read : ToolPolicy.write)({ keys: ({ at }) => [at] }),
        ToolPolicy.on(Narrow)
      )
    )
  )
  const names = Object.keys(simulated.tools)
  const layer = Layer.mergeAll(
    simulated.toLayer(
      Object.fromEntries(
        names.map((name) => [name, ({ at }: { readonly at: string }) => Effect.as(Effect.sleep(10), at)])
      ) as any
    ),
    Narrow.layer({ concurrency: 3 }),
    Turn.layer()
  )
  const calls = names.map((name, i) => ToolCall.make(`c${i}`, name, { at: i % 2 === 0 ? "a" : "b" }))
  const program = Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(Turn.run(simulated, calls) as Effect.Effect<unknown, unknown, any>)
    yield* Effect.sleep(15)
    yield* Fiber.interrupt(fiber)
  }).pipe(Effect.provide(layer as Layer.Layer<any>)) as Effect.Effect<void>
  await Effect.runPromise(Simulation.explore(program, { seeds: 500 }))
  const runs = quick ? 2000 : 10_000
  const start = performance.now()
  await Effect.runPromise(Simulation.explore(program, { seeds: runs }))
  const millis = (performance.now() - start) / runs
  row("10000 interleavings, a turn of 6 with a stop", us(millis * 1000), millis * 10, "seconds", 60)
}

// Coalescing ---------------------------------------------------------------------------------------------------------------
for await (const { dataloader, load, loadAll, lookup, n, resolver } of loads(rounds)) {
  const what = `a load, requests of 10, ${lookup} lookup, N = ${n}`
  const of = `bare RequestResolver (${us(resolver)})`
  if (n === 10_000) row(what, us(load), load / resolver, of, 0.5)
  else rows.push([what, us(load), (load / resolver).toFixed(2), of, "", ""])
  rows.push(["  … against", "", (load / dataloader).toFixed(2), `dataloader (${us(dataloader)})`, "", ""])
  rows.push(["  … as one loadAll", us(loadAll), (loadAll / dataloader).toFixed(2), "dataloader", "", ""])
}

// Records ------------------------------------------------------------------------------------------------------------------
for await (const found of records(rounds)) {
  if ("why" in found) {
    rows.push([`a recorded write, ${found.store}`, "not measured", "", found.why, "", ""])
    continue
  }
  for (const { millis, n, plain, recorded } of found.costs) {
    const what = `a recorded write, ${found.store}, ${millis === 0 ? "no-op" : `${millis} ms of work`}, a turn of ${n}`
    rows.push([what, us(recorded), (recorded / plain).toFixed(2), `a plain one (${us(plain)})`, "", ""])
  }
  rows.push(["  … statements for each", "", found.steps.toFixed(2), "", "", ""])
}

const widths = rows.reduce<Array<number>>(
  (all, cells) => cells.map((cell, i) => Math.max(all[i] ?? 0, cell.length)),
  []
)
const line = (cells: ReadonlyArray<string>) => cells.map((cell, i) => cell.padEnd(widths[i]!)).join("  ").trimEnd()
console.log(line(["what", "per call", "ratio", "to", "target", ""]))
for (const cells of rows) console.log(line(cells))
console.log(`
Node ${process.version}, ${process.arch}. Medians; contenders run in turn within one process.
All guarantees are on: decoding, planning, keys, limits, three clocks, exactly one answer. Bare \`Effect.forEach\` runs the
handlers and nothing else; "by hand" decodes, takes a permit that is free, sets a timeout and keeps the exit.

A load is one fiber of \`Effect.forEach\` that waits for a key of its own; the resolver's neither merges equal keys, nor ends what
nobody waits for, nor has a time limit. \`dataloader\` runs promises, in a loader of its own for each run.

What is NOT measured: real tools and networks (a call that takes milliseconds hides all of this), events with a listener,
keys that conflict, stores on other machines, large arguments and results, tool schemas that transform, other machines, hours of running;
of loads: items that are copied by a schema, keys that are no texts, a backend's permits, caches, equal keys, requests that take time.`)
