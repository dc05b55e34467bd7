/** Turns of models and of their benchmarks on a phone, in an office, in many small applications, and in a code base. */
import { assert, beforeAll, it } from "@effect/vitest"
import { ToolPolicy } from "effect-turn"
import * as Effect from "effect/Effect"
import * as Data from "../utils/data.ts"
import { describeShared } from "../utils/requires.ts"

type Keys = (args: any) => ReadonlyArray<string>

const nothing: Keys = () => []

describeShared("turns on one phone and account", (shared) => {
  // What a team says of a phone: its switches are looked at by everything, so it is one thing; the carrier's account another.
  const phone: Keys = () => ["phone"]
  const account: Keys = ({ customer_id }) => [customer_id === undefined ? "account" : `account/${customer_id}`]
  const device = (tool: Data.DataTool): Data.Policy =>
    tool.class === "write" ? ToolPolicy.write({ keys: phone }) : ToolPolicy.read({ keys: phone })
  const carrier = (tool: Data.DataTool): Data.Policy =>
    tool.class === "write" ? ToolPolicy.write({ keys: account }) : ToolPolicy.read({ keys: account })

  it.effect("every call is answered, what conflicted is kept in order, reads run together", () =>
    Effect.gen(function*() {
      const data = yield* Effect.promise(() => Data.load(shared))
      const turns = data.turns("turns-telecom")
      assert.isAbove(turns.length, 20)
      let conflicts = 0
      for (const turn of turns) {
        const ran = yield* Data.run(data, turn, turn.toolset!.endsWith("user") ? device : carrier)
        assert.deepStrictEqual(ran.outcomes.map(({ status }) => status), turn.calls.map(() => "ok"), turn.id)
        const pairs: ReadonlyArray<readonly [number, number]> = turn.oracle.key_conflicts
        conflicts += pairs.length
        assert.includeDeepMembers([...Data.pairsOf(ran.plan)], [...pairs], turn.id)
        Data.keeps(ran, pairs)
        if (ran.plan.calls.every(({ access }) => access === "read")) assert.deepStrictEqual(ran.plan.edges, [], turn.id)
      }
      assert.isAbove(conflicts, 0)
      console.log(`telecom: ${turns.length} turns, ${conflicts} recorded conflicts`)
    }))
})

describeShared("actions in an office", (shared) => {
  const one = (table: string, id: string): Keys => (args) => [`${table}/${args[id]}`]
  const all = (table: string): Keys => () => [table]
  const keys: Record<string, Keys> = {
    "calendar.get_event_information_by_id": one("events", "event_id"),
    "calendar.search_events": all("events"),
    "calendar.create_event": all("events"),
    "calendar.delete_event": one("events", "event_id"),
    "calendar.update_event": one("events", "event_id"),
    "email.get_email_information_by_id": one("emails", "email_id"),
    "email.search_emails": all("emails"),
    "email.send_email": all("emails"),
    "email.delete_email": one("emails", "email_id"),
    "email.forward_email": all("emails"),
    "email.reply_email": all("emails"),
    "analytics.create_plot": all("plots"),
    "project_management.get_task_information_by_id": one("tasks", "task_id"),
    "project_management.search_tasks": all("tasks"),
    "project_management.create_task": all("tasks"),
    "project_management.delete_task": one("tasks", "task_id"),
    "project_management.update_task": one("tasks", "task_id"),
    "customer_relationship_manager.search_customers": all("customers"),
    "customer_relationship_manager.update_customer": one("customers", "customer_id"),
    "customer_relationship_manager.add_customer": all("customers"),
    "customer_relationship_manager.delete_customer": one("customers", "customer_id")
  }
  const policyOf = (tool: Data.DataTool): Data.Policy => {
    const of = keys[tool.name] ?? nothing
    return tool.class === "write" ? ToolPolicy.write({ keys: of }) : ToolPolicy.read({ keys: of })
  }

  it.effect("every call is answered, what conflicts is kept in order, the rest runs at once", () =>
    Effect.gen(function*() {
      const data = yield* Effect.promise(() => Data.load(shared))
      const turns = data.turns("turns-workbench")
      assert.isAbove(turns.length, 50)
      let conflicts = 0
      let free = 0
      for (const turn of turns) {
        const ran = yield* Data.run(data, turn, policyOf)
        assert.deepStrictEqual(ran.outcomes.map(({ status }) => status), turn.calls.map(() => "ok"), turn.id)
        const pairs: ReadonlyArray<readonly [number, number]> = turn.oracle.key_conflicts
        conflicts += pairs.length
        assert.includeDeepMembers([...Data.pairsOf(ran.plan)], [...pairs], turn.id)
        Data.keeps(ran, pairs)
        if (pairs.length > 0) continue
        free++
        assert.deepStrictEqual(ran.plan.edges, [], turn.id)
        assert.strictEqual(new Set(ran.runs.map(({ began }) => began)).size, 1, turn.id)
      }
      assert.isAbove(conflicts, 0)
      assert.isAbove(free, 0)
      console.log(`workbench: ${turns.length} turns, ${conflicts} recorded conflicts, ${free} turns without any`)
    }))
})

describeShared("single turns with nested arguments", (shared) => {
  let data: Data.Data
  beforeAll(async () => {
    data = await Data.load(shared)
  })

  it.effect("every call is answered at once, and only what does not fit its schema is refused", () =>
    Effect.gen(function*() {
      const turns = data.turns("turns-acebench")
      const all = yield* Data.runAll(data, turns, () => ToolPolicy.read({ keys: nothing }))
      assert.isAbove(all.length, 50)
      for (const { plan } of all) assert.deepStrictEqual(plan.edges, [])
      assert.deepStrictEqual(Data.answered(all, "placeholder"), [])
      // Two missing members and one list that is no list: the source's own.
      const complaints = Data.answered(all, "invalid_arguments")
      assert.strictEqual(complaints.length, 3)
      assert.deepStrictEqual(
        complaints.map((complaint) => complaint.slice(0, complaint.indexOf(" "))),
        turns.filter(({ oracle }) => !oracle.arguments_fit_schema).map(({ id }) => id)
      )
      console.log(`acebench: ${all.length} turns, ${complaints.length} calls that do not fit their schema`)
    }))
})

describeShared("turns of a coding agent", (shared) => {
  const path: Keys = (args) => [`file/${args.path}`]
  const policyOf = (tool: Data.DataTool): Data.Policy =>
    tool.class === "read"
      ? ToolPolicy.read({ keys: path })
      : tool.class === "write"
      ? ToolPolicy.write({ keys: path })
      // A shell: it may touch anything.
      : (it) => it

  it.effect("every call is answered, no piece of code is taken for a placeholder, and a shell runs alone", () =>
    Effect.gen(function*() {
      const data = yield* Effect.promise(() => Data.load(shared))
      const all = yield* Data.runAll(data, data.turns("turns-agent"), policyOf)
      assert.isAbove(all.length, 5)
      let shells = 0
      let edits = 0
      for (const ran of all) {
        assert.deepStrictEqual(
          ran.outcomes.map(({ message, status }) => [status, message]),
          ran.turn.calls.map(() => ["ok", ""]),
          ran.turn.id
        )
        Data.keeps(ran, ran.turn.oracle.key_conflicts)
        edits += ran.turn.oracle.key_conflicts.length
        for (const { keys, position } of ran.plan.calls) {
          if (keys !== undefined) continue
          shells++
          const { began, ended } = ran.runs.find((run) => run.position === position)!
          for (const other of ran.runs) {
            if (other.position !== position) assert.isTrue(other.ended <= began || other.began >= ended, ran.turn.id)
          }
        }
      }
      assert.isAbove(shells, 0)
      assert.isAbove(edits, 0)
      console.log(`agent: ${all.length} turns, ${edits} conflicts, ${shells} shells that ran alone`)
    }))
})

describeShared("planned turns whose calls refer to each other", (shared) => {
  it.effect("what refers to another call is deferred and not run", () =>
    Effect.gen(function*() {
      const data = yield* Effect.promise(() => Data.load(shared))
      const turns = data.turns("turns-dag")
      assert.isAbove(turns.length, 2000)
      let referring = 0
      const slipped: Array<string> = []
      const invented: Array<string> = []
      for (const turn of turns) {
        const ran = yield* Data.run(data, turn, () => ToolPolicy.read({ keys: nothing }))
        const refers = new Set<number>(turn.oracle.references.map(({ call }: { call: number }) => call))
        for (const [i, outcome] of ran.outcomes.entries()) {
          const deferred = outcome.status === "deferred" && outcome.code === "placeholder"
          // A call of no tool, or with an id that others have, is answered for that.
          const refused = outcome.status === "error" &&
            (outcome.code === "unknown_tool" || outcome.code === "ambiguous_id")
          if (refers.has(i) && !refused) {
            referring++
            if (!deferred) slipped.push(`${turn.id} #${i}`)
          }
          if (!refers.has(i) && deferred) invented.push(`${turn.id} #${i} ${outcome.message}`)
        }
      }
      console.log(
        `references: ${turns.length} turns, ${referring} calls refer to others, ${
          referring - slipped.length
        } are detected; ` +
          `${invented.length} more hold other markers`
      )
      // Numbers in a formula, which are honest elsewhere (`echo $1`), and one more call than there are.
      assert.deepStrictEqual(slipped, [
        "huggingface-19139429-mistral-7b #3",
        "parallelqa-gpt-example-1 #6",
        "parallelqa-gpt-example-2 #4"
      ])
      // Nothing honest: each is a marker between angle brackets, or refers to a call that the oracle does not list.
      assert.isAbove(invented.length, 0)
      for (const one of invented) assert.match(one, /is the placeholder "<[^<>"]+>[^<>"]*"|is "\$var\d+\.output_0\$"/)
    }))
})
