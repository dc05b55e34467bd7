import { assert, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import * as path from "node:path"
import { promisify } from "node:util"
import { describeService } from "../utils/requires.ts"

const example = path.join(import.meta.dirname, "../../examples/17-order-desk.ts")

/** What the example says of its queries. */
const queries = async (env: Record<string, string>) => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--conditions=@effect-turn/source", example], {
    env: { ...process.env, NODE_NO_WARNINGS: "1", ...env }
  })
  return {
    where: stdout.split("\n")[0],
    counts: stdout.split("\n").flatMap((line) => /calls: (\d+), queries: (\d+)/.exec(line)?.slice(1).map(Number) ?? []),
    answers: stdout.split("\n").filter((line) => line.startsWith("  get_orders")).map((line) => line.slice(14))
  }
}

/** Twelve single calls, one list of twelve, a list and two single calls, a list of writes and the same with one more. */
const expected = [12, 2, 1, 2, 3, 1, 2, 2]

await describeService("the order desk", "PostgreSQL", ({ host, port }) => {
  it("asks a real table as often as it asks the embedded one, and gets the same answers", async () => {
    const user = process.env["PGUSER"] ?? "postgres"
    const url = `postgres://${user}@${host}:${port}/${process.env["PGDATABASE"] ?? "postgres"}`
    const [real, embedded] = [await queries({ DATABASE_URL: url }), await queries({ DATABASE_URL: "" })]
    assert.deepStrictEqual([real.where, real.counts], ["The orders are in PostgreSQL.", expected])
    assert.deepStrictEqual([embedded.where, embedded.counts], ["The orders are in SQLite, in memory.", expected])
    assert.strictEqual(real.answers.length, 2)
    assert.deepStrictEqual(real.answers, embedded.answers)
  }, 60_000)
})
