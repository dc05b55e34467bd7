/**
 * Processes that are killed while they book through a real server, at moments that nobody chose: whatever the moment was, no booking is
 * made twice, none that was made is told as not made, and each one in doubt is listed.
 */
import { assert, describe, it } from "@effect/vitest"
import { IdempotencyStore } from "effect-turn"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { describeService } from "../utils/requires.ts"
import { deleteKeys, dropTables, ownName, type Shared, temporaryFolder } from "../utils/stores.ts"
import { bundle } from "./booking/bundle.ts"
import { Lane, moments, recordKey } from "./booking/lane.ts"
import { modes } from "./booking/script.ts"
import { BookingServer } from "./booking/server.ts"
import { recordsOf } from "./booking/stores.ts"

const lease = 300

/** Numbers between 0 and 1, the same each time, or those of `EFFECT_TURN_SEED`. */
const randomOf = (seed: string): () => number => {
  let state = [...`${process.env["EFFECT_TURN_SEED"] ?? "turn"}/${seed}`].reduce(
    (hash, char) => Math.imul(hash ^ char.codePointAt(0)!, 0x01000193),
    0x811c9dc5
  )
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

interface Trial {
  readonly shared: Shared
  readonly clear: () => Promise<void>
  readonly journal?: boolean
  readonly times: number
}

const killed = async ({ clear, journal = false, shared, times }: Trial) => {
  const server = new BookingServer()
  const url = await server.open()
  const { file, folder } = await bundle(fileURLToPath(new URL("./booking/child.ts", import.meta.url)))
  const setup = { shared, journal, url, lease }
  const runtime = ManagedRuntime.make(await recordsOf(setup))
  try {
    const lane = new Lane({ setup, file, server, store: runtime, random: randomOf(`${shared.store}${journal}`) })
    await lane.kill(times)
    await lane.finish()
    const problems = [...lane.problems, ...lane.left.map((turn) => `${turn} never had its answers`)]

    const doubts = [...lane.bookings.values()].filter(({ told }) => told.at(-1)?.outcome.code === "in_doubt")
    for (const { key, mode, told } of lane.bookings.values()) {
      const numbers = server.made.get(key) ?? []
      if (numbers.length > 1) problems.push(`${key} was made ${numbers.length} times`)
      for (const { count, outcome } of told) {
        const { code, effect, result, status } = outcome
        const answer = `${key} was told ${JSON.stringify(outcome)}`
        if (effect === "none" && count > 0) problems.push(`${answer}, and it had been made`)
        if (effect === "applied" && count === 0) problems.push(`${answer}, and it had not been made`)
        if (status === "ok" && result !== numbers[0]) problems.push(`${answer}, and its number is ${numbers[0]}`)
        if (code === "in_doubt" && mode !== "record") problems.push(`${answer}, and its service knows`)
      }
    }

    // Every doubt is listed, and nothing else is.
    const listed = await runtime.runPromise(
      IdempotencyStore.IdempotencyStore.use((records) => records.list({ state: "unknown", limit: 100_000 }))
    )
    const names = (of: ReadonlyArray<{ readonly key: string }>) => of.map(({ key }) => key).sort()
    assert.deepStrictEqual(names(listed.map(({ key }) => key)), names(doubts))

    // Somebody who knows says what became of it, and it is called once more.
    for (const { key } of doubts) {
      const number = server.made.get(key)?.[0]
      await runtime.runPromise(
        IdempotencyStore.IdempotencyStore.use((records) =>
          records.resolve(
            recordKey("record", key),
            number === undefined ? { _tag: "NotApplied" } : { _tag: "Applied", result: number }
          )
        )
      )
    }
    const known = doubts.map(({ key }) => server.countOf(key) === 1)
    const answers = await lane.again(doubts.map(({ key }) => key))
    answers.forEach(({ replayed, result, status }, i) => {
      const { key } = doubts[i]!
      const numbers = server.made.get(key) ?? []
      if (status !== "ok" || numbers.length !== 1 || result !== numbers[0] || (replayed === true) !== known[i]) {
        problems.push(
          `${key} was resolved, and then it was ${status} with ${String(result)}, made as ${numbers.join()}`
        )
      }
    })
    assert.deepStrictEqual(problems, [])
    assert.deepStrictEqual(server.withoutKey, [])
    return { lane, server, doubts: doubts.length, known: known.filter(Boolean).length }
  } finally {
    await runtime.dispose()
    await clear()
    await server.close()
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** What was shown: a check that has met no moment of some kind has checked nothing. */
const assertShown = (
  { doubts, known, lane, server }: Awaited<ReturnType<typeof killed>>,
  times: number
) => {
  const counts = moments.map((moment) => [
    moment,
    ...modes.map((mode) => lane.hits.get(`${mode} ${moment}`) ?? 0)
  ])
  const shown = JSON.stringify({ counts, doubts, known, repeated: server.repeated, asked: server.asked })
  assert.strictEqual(lane.killed, times)
  for (const [moment, ...hits] of counts) {
    assert.isTrue(hits.some((count) => count !== 0), `no process was killed ${moment}: ${shown}`)
  }
  // Both ends of a doubt were met, by the service that was asked, by the one that honours the key, and by hand.
  for (const count of [server.repeated, server.asked.booked, server.asked.unknown, known, doubts - known]) {
    assert.isAbove(count, 0, shown)
  }
}

/** How long other work on the same cores may hold a test up. */
const patience = 300_000

const shows = (name: string, make: () => Trial) =>
  it(name, async () => {
    const trial = make()
    assertShown(await killed(trial), trial.times)
  }, patience)

describe("processes that are killed while they book, over SQLite", () => {
  for (const [journal, times] of [[false, 190], [true, 140]] as const) {
    shows(
      `book once, and know of each doubt, in ${journal ? "the same turns with a journal" : "turns that are new"}`,
      () => {
        const folder = temporaryFolder()
        return {
          shared: { store: "SQLite", filename: path.join(folder, "turns.db") },
          clear: async () => fs.rmSync(folder, { recursive: true, force: true }),
          journal,
          times
        }
      }
    )
  }
})

await describeService("processes that are killed while they book, over PostgreSQL", "PostgreSQL", (address) => {
  shows("book once, and know of each doubt", () => {
    const table = ownName()
    const shared = { store: "PostgreSQL", address, table } as const
    return { shared, clear: () => dropTables(address, table), times: 90 }
  })
})

await describeService("processes that are killed while they book, over Redis", "Redis", (address) => {
  shows("book once, and know of each doubt", () => {
    const prefix = ownName()
    const shared = { store: "Redis", address, prefix } as const
    return { shared, clear: () => deleteKeys(address, prefix), times: 80 }
  })
})
