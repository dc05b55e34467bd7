/** One key, reserved at once by the fibers of several processes. */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type ChildProcess, fork } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { describeService } from "../utils/requires.ts"
import { deleteKeys, dropTables, ownName, type Shared, temporaryFolder } from "../utils/stores.ts"
import type { Answer, Order } from "./child.ts"

const processes = 8
const fibers = 8
const rounds = 1_000
/** How many keys the processes are told at once: they begin together, and go on by themselves. */
const together = 10

const children: Array<ChildProcess> = []

const answerOf = (child: ChildProcess): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const gone = () => reject(new Error("a child process has gone"))
    child.once("exit", gone)
    child.once("message", (answer: Answer) => {
      child.off("exit", gone)
      if ("failed" in answer) reject(new Error(answer.failed))
      else resolve(answer)
    })
  })

const tell = (child: ChildProcess, order: Order): Promise<Answer> => {
  const answer = answerOf(child)
  child.send(order)
  return answer
}

/** Tells all of them, and waits for all, also where one has failed. */
const all = async (orders: (i: number) => Order): Promise<ReadonlyArray<Answer>> => {
  const told = await Promise.allSettled(children.map((child, i) => tell(child, orders(i))))
  return told.map((one) => {
    if (one.status === "rejected") throw one.reason
    return one.value
  })
}

beforeAll(async () => {
  for (let i = 0; i < processes; i++) {
    children.push(
      fork(path.join(import.meta.dirname, "child.ts"), { execArgv: ["--disable-warning=ExperimentalWarning"] })
    )
  }
  await Promise.all(children.map(answerOf))
}, 60_000)

afterAll(() => {
  for (const child of children) child.kill()
})

/** Another order for each process, so that each of them comes first somewhere. */
const rotated = <A>(list: ReadonlyArray<A>, by: number): ReadonlyArray<A> => [...list.slice(by), ...list.slice(0, by)]

const reservations = (shared: Shared) =>
  it(`of ${processes * fibers} reservations of one key at once exactly one wins, ${rounds} times`, async () => {
    await all(() => ({ open: shared }))
    const winners = new Set<string>()
    let contested = 0
    for (let round = 0; round < rounds; round += together) {
      const keys = Array.from({ length: together }, (_, i) => `key ${round + i}`)
      const answers = await Promise.all(
        children.map((child, i) => tell(child, { keys: rotated(keys, Math.floor(i * together / processes)), fibers }))
      )
      for (const key of keys) {
        const told = answers.flatMap((answer) => "owners" in answer ? answer.owners[key]! : [])
        assert.strictEqual(told.length, processes * fibers)
        const won = told.filter(({ won }) => won)
        assert.strictEqual(won.length, 1, `winners of ${key}: ${JSON.stringify(won)}`)
        assert.deepStrictEqual(new Set(told.map(({ owner }) => owner)), new Set([won[0]!.owner]))
        winners.add(won[0]!.owner.split("/")[0]!)
        contested++
      }
    }
    await all(() => ({ close: true }))
    assert.strictEqual(contested, rounds)
    assert.isAbove(winners.size, 1, "processes that have won")
  }, 240_000)

describe("processes that share a file of SQLite", () => {
  const folder = temporaryFolder()
  afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))
  reservations({ store: "SQLite", filename: path.join(folder, "turns.db") })
})

await describeService("processes that share PostgreSQL", "PostgreSQL", (address) => {
  const table = ownName()
  afterAll(() => dropTables(address, table))
  reservations({ store: "PostgreSQL", address, table })
})

await describeService("processes that share Redis", "Redis", (address) => {
  const prefix = ownName()
  afterAll(() => deleteKeys(address, prefix))
  reservations({ store: "Redis", address, prefix })
})
