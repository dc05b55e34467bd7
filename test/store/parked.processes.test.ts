/** Turns that are parked by one process and resumed by others, over stores that processes share. */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type ChildProcess, fork } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { describeService } from "../utils/requires.ts"
import { deleteKeys, dropTables, ownName, type Shared, temporaryFolder } from "../utils/stores.ts"
import type { Answer, Order } from "./parkedChild.ts"

const folder = temporaryFolder()
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

const start = (): ChildProcess =>
  fork(path.join(import.meta.dirname, "parkedChild.ts"), { execArgv: ["--disable-warning=ExperimentalWarning"] })

/** What it says next; undefined where it was killed. */
const answerOf = (child: ChildProcess): Promise<Answer | undefined> =>
  new Promise((resolve, reject) => {
    const gone = (code: number | null, signal: string | null) =>
      signal === null ? reject(new Error(`a child process ended with the exit code ${code}`)) : resolve(undefined)
    child.once("exit", gone)
    child.once("message", (answer: Answer) => {
      child.off("exit", gone)
      resolve(answer)
    })
  })

const children: Array<ChildProcess> = []
beforeAll(async () => {
  for (let i = 0; i < 4; i++) children.push(start())
  await Promise.all(children.map(answerOf))
}, 60_000)
afterAll(() => {
  for (const child of children) child.kill()
})

const tell = (child: ChildProcess, order: Order): Promise<Answer | undefined> => {
  const answer = answerOf(child)
  child.send(order)
  return answer
}

/** Another process each time; one that was killed has a successor. */
const next = async (order: Order): Promise<Answer | undefined> => {
  const child = children.shift()!
  const answer = await tell(child, order)
  if (answer !== undefined) children.push(child)
  else {
    const successor = start()
    await answerOf(successor)
    children.push(successor)
  }
  return answer
}

const laws = (shared: Shared) => {
  let turns = 0
  const newTurn = () => {
    const turn = `turn ${++turns}`
    const effects = path.join(folder, ownName())
    fs.writeFileSync(effects, "")
    const order = (does: Order["does"], lease = 60_000): Order => ({ shared, turn, does, effects, lease })
    return {
      order,
      does: (does: Order["does"], lease?: number) => next(order(does, lease)),
      effects: () => fs.readFileSync(effects, "utf8").split("\n").filter((line) => line !== "")
    }
  }

  it("another process goes on with it; with other tools it is refused, and stays", async () => {
    const turn = newTurn()
    assert.deepStrictEqual(await turn.does("park"), { outcomes: ["pending_approval", "deferred/waits_for_approval"] })
    const refused = await turn.does("resume with other tools")
    assert.include(JSON.stringify(refused), "the same parameters and access as when the turn was parked")
    assert.deepStrictEqual(turn.effects(), [])
    assert.deepStrictEqual(await turn.does("resume"), { outcomes: ["ok", "ok"] })
    assert.deepStrictEqual(turn.effects(), ["first", "second"])
    assert.strictEqual((await turn.does("resume") as any).refused, "not_parked")
  }, 60_000)

  it("of processes that resume it at once one does, and the others are refused", async () => {
    const turn = newTurn()
    await turn.does("park")
    const answers = await Promise.all(children.map((child) => tell(child, turn.order("resume"))))
    assert.strictEqual(answers.length, 4)
    const done = answers.filter((answer) => answer !== undefined && "outcomes" in answer)
    assert.deepStrictEqual(done, [{ outcomes: ["ok", "ok"] }])
    for (const answer of answers) {
      if (answer !== undefined && "refused" in answer) assert.include(["claimed", "not_parked"], answer.refused)
    }
    assert.deepStrictEqual(turn.effects(), ["first", "second"])
  }, 60_000)

  it(
    "one that is killed in the middle leaves it to the next, which runs nothing twice and hides no doubt",
    async () => {
      const turn = newTurn()
      await turn.does("park")
      assert.isUndefined(await turn.does("resume and be killed", 1_000))
      assert.deepStrictEqual(turn.effects(), ["first", "second"])
      let answer: Answer | undefined
      do answer = await turn.does("resume", 1_000)
      while (answer !== undefined && "refused" in answer && answer.refused === "claimed")
      assert.deepStrictEqual(answer, { outcomes: ["ok", "error/in_doubt"] })
      assert.deepStrictEqual(turn.effects(), ["first", "second"])
      assert.strictEqual((await turn.does("resume") as any).refused, "not_parked")
    },
    60_000
  )
}

describe("parked turns of processes that share a file of SQLite", () => {
  laws({ store: "SQLite", filename: path.join(folder, "turns.db") })
})

await describeService("parked turns of processes that share PostgreSQL", "PostgreSQL", (address) => {
  const table = ownName()
  afterAll(() => dropTables(address, table))
  laws({ store: "PostgreSQL", address, table })
})

await describeService("parked turns of processes that share Redis", "Redis", (address) => {
  const prefix = ownName()
  afterAll(() => deleteKeys(address, prefix))
  laws({ store: "Redis", address, prefix })
})
