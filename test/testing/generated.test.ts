import { assert, describe, it } from "@effect/vitest"
import { Scenario } from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as path from "node:path"

// Scenarios made from a seed, with tools, limits, stops and nested turns of all kinds, and nothing expected: the rules that
// hold in every turn have to hold in each of them. A seed that fails can be looked at alone with `scenarioOf(seed)`.

const seeds = 1900

/** How many of them are run under other interleavings too, and under how many. */
const exploredSeeds = 150
const interleavings = 15

/** Numbers from 0 to below 1 that a seed fixes (mulberry32). */
const dice = (seed: number) => {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

const scenarioOf = (seed: number): Record<string, any> => {
  const random = dice(seed)
  const below = (n: number) => Math.floor(random() * n)
  const pick = <A>(list: ReadonlyArray<A>): A => list[below(list.length)]!
  const millis = (most: number) => below(most) * 5
  /** The members, or none of them. */
  const perhaps = (chance: number, members: () => object) => (random() < chance ? members() : {})
  const list = <A>(length: number, make: (index: number) => A) => Array.from({ length }, (_, index) => make(index))

  const names = list(2 + below(5), (index) => `t${index}`)
  const call = (name: string) => ({
    id: random() < 0.05 ? "" : `c${below(9)}-${below(99)}`,
    name: random() < 0.03 ? "nobody" : name,
    arguments: { k: below(3), ...perhaps(0.3, () => ({ n: below(2) })) }
  })
  const types = ["ok", "ok", "ok", "ok", "fail", "failUnknown", "failAfterEffect", "throw", "selfInterrupt", "hang"]
  const behaviour = (nests: boolean) => {
    const type = pick(nests ? [...types, "callsTools", "callsTools", "callsTools"] : types)
    return {
      type,
      latencyMs: millis(8),
      ...perhaps(0.3, () => ({ effectAtMs: millis(8) })),
      ...perhaps(0.2, () => ({ ignoresInterrupt: true })),
      ...(type === "throw" ? { thrown: "x" } : undefined),
      // Only the first tool runs others, so that no turn goes down for ever.
      ...(type === "callsTools" ? { calls: list(1 + below(3), () => call(pick(names.slice(1)))) } : undefined)
    }
  }
  const keys = [[], ["k:{k}"], ["k:{k}"], ["f:/a/{k}"], ["f:/a"], ["k:{k}", "f:/b/{n}"]]
  const tool = (index: number) => ({
    access: pick(["read", "write"]),
    ...perhaps(0.85, () => ({ keys: pick(keys) })),
    ...perhaps(0.5, () => ({ backend: pick(["narrow", "shared", "unbounded"]) })),
    ...perhaps(0.3, () => ({ timeoutMs: 5 + millis(6) })),
    ...perhaps(0.2, () => ({ queueTimeoutMs: 5 + millis(10) })),
    ...perhaps(0.3, () => ({ idempotency: "forward" })),
    ...perhaps(0.1, () => ({ repeatable: true })),
    ...perhaps(0.08, () => ({ approval: true })),
    behaviour: random() < 0.2 ? list(2, () => behaviour(index === 0)) : behaviour(index === 0)
  })
  const event = (ids: ReadonlyArray<string>) => ({
    atMs: millis(20),
    ...pick<object>([{ type: "cancelTurn" }, { type: "interrupt" }, { type: "cancelCall", id: pick(ids) }])
  })
  const turn = () => {
    const calls = list(1 + below(7), () => call(pick(names)))
    return {
      calls,
      ...perhaps(0.4, () => ({ tenant: pick(["north", "south"]) })),
      ...perhaps(0.4, () => ({ startAtMs: millis(10) })),
      ...perhaps(0.6, () => ({ events: list(1 + below(2), () => event(calls.map(({ id }) => id))) }))
    }
  }
  const tools = Object.fromEntries(names.map((name, index) => [name, tool(index)]))
  // What hangs is ended by a deadline, and what is deaf to it by a grace.
  const hangs = JSON.stringify(tools).includes('"hang"')
  return {
    name: `seed-${seed}`,
    why: "The rules hold whatever happens.",
    tools,
    backends: {
      narrow: { concurrency: 1 + below(2), ...perhaps(0.3, () => ({ queueLimit: below(3) })) },
      shared: { concurrency: 1 + below(3), perTenant: 1 + below(2) }
    },
    policy: {
      ...perhaps(0.3, () => ({ siblings: "failFast" })),
      ...perhaps(0.3, () => ({ execution: pick(["sequential", 1, 2, 3]) })),
      ...perhaps(0.4, () => ({ dedupe: pick(["all", "reads", "off"]) })),
      ...perhaps(hangs ? 1 : 0.4, () => ({ deadlineMs: 20 + millis(20) })),
      ...perhaps(hangs ? 1 : 0.4, () => ({ graceMs: 1 + millis(10) }))
    },
    turns: list(1 + below(3), turn),
    concurrent: random() < 0.6,
    expect: {}
  }
}

const own = path.join(import.meta.dirname, "../fixtures/scenarios")

describe("cases that generated scenarios have found", () => {
  it.effect.each([
    "nested-keeps-order",
    "nested-sequential",
    "late-start-keeps-its-clock",
    "agents-that-wait-for-each-other",
    "agents-of-two-turns-that-wait-for-each-other",
    "grace-of-nothing"
  ])("%s", (name) =>
    Scenario.runText(`${name}.json`, fs.readFileSync(path.join(own, `${name}.json`), "utf8")).pipe(
      Effect.map((report) => assert.deepStrictEqual(report.failures, []))
    ))
})

describe("generated scenarios", () => {
  it.effect("keep the rules that always hold", () =>
    Effect.gen(function*() {
      const broken: Array<string> = []
      const seen = new Map<string, number>()
      for (let seed = 0; seed < seeds; seed++) {
        const report = yield* Scenario.decode(scenarioOf(seed)).pipe(Effect.flatMap(Scenario.run))
        if (!report.pass) broken.push(`seed ${seed}: ${report.failures.join("; ")}`)
        for (const outcome of report.outcomes?.flatMap((list) => list ?? []) ?? []) {
          const kind = outcome.code ?? outcome.status
          seen.set(kind, (seen.get(kind) ?? 0) + 1)
        }
      }
      assert.deepStrictEqual(broken, [])
      // The seeds are worth something only if they reach what the rules are about.
      const kinds = [
        "ok",
        "failed",
        "defect",
        "by_caller",
        "by_sibling",
        "by_deadline",
        "by_itself",
        "handler",
        "queue"
      ]
      assert.deepStrictEqual(kinds.filter((kind) => (seen.get(kind) ?? 0) < 10), [])
    }), 120_000)

  it.effect("keep them under other interleavings", () =>
    Effect.gen(function*() {
      const broken: Array<string> = []
      let explored = 0
      let distinct = 0
      for (let seed = 0; seed < exploredSeeds; seed++) {
        const report = yield* Effect.flatMap(
          Scenario.decode(scenarioOf(seed)),
          Scenario.explore({ seeds: interleavings })
        )
        explored += report.explored?.runs ?? 0
        distinct += report.explored?.distinct ?? 0
        if (!report.pass) {
          broken.push(`seed ${seed}, replay ${report.explored?.found?.replay}: ${report.failures.join("; ")}`)
        }
      }
      assert.deepStrictEqual(broken, [])
      assert.strictEqual(explored, exploredSeeds * interleavings)
      assert.isAbove(distinct, explored / 2)
    }), 120_000)

  it.effect("give the same report each time", () =>
    Effect.gen(function*() {
      for (let seed = 0; seed < 40; seed++) {
        const run = Scenario.decode(scenarioOf(seed)).pipe(
          Effect.flatMap(Scenario.run),
          Effect.map((report) => JSON.stringify(report))
        )
        assert.strictEqual(yield* run, yield* run, `seed ${seed}`)
      }
    }))
})
