/**
 * An order desk: a model that asks about twelve orders costs two queries, whether it asks one by one or for all at once.
 *
 * `BatchTool.make` gives both tools from one definition: `get_orders`, which takes a list, and its twin `get_order`, whose description
 * points to the list. Both ask one coalescer, so that in a turn their calls share queries: `WHERE id = ANY(…)`, at most ten ids each. What
 * the model gets is told item by item. `BatchTool.write` ships a list; a call that is made again ships only what is missing.
 *
 * The table is in PostgreSQL where `DATABASE_URL` names one (postgres://user:password@host/database), and else in memory, in the SQLite
 * that comes with Node.js.
 */
import { Array, Context, Effect, Layer, Redacted, Schema } from "effect"
import { Agent, Backend, BatchTool, Coalescer, IdempotencyStore, Turn, TurnContext } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Toolkit } from "effect/ai"
import { SqlClient } from "effect/sql"
import { DatabaseSync } from "node:sqlite"

const Order = Schema.Struct({ id: Schema.String, state: Schema.String, euros: Schema.Int })
type Order = typeof Order.Type

/** A table of orders; each of its functions is one query. */
class Orders extends Context.Service<Orders, {
  readonly where: string
  readonly find: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Order>>
  readonly ship: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Order>>
}>()("Orders") {}

const rows = Array.makeBy(
  40,
  (i): Order => ({ id: `O-${i + 1}`, state: i % 7 === 6 ? "cancelled" : "paid", euros: 10 + i })
)

const postgres = Layer.effect(
  Orders,
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const table = sql(`order_desk_${process.pid}`)
    yield* Effect.acquireRelease(
      sql`CREATE TABLE ${table} (id TEXT PRIMARY KEY, state TEXT NOT NULL, euros INTEGER NOT NULL)`,
      () => Effect.orDie(sql`DROP TABLE ${table}`)
    )
    yield* sql`INSERT INTO ${table} ${sql.insert(rows)}`
    return {
      where: "PostgreSQL",
      find: (ids) => Effect.orDie(sql<Order>`SELECT * FROM ${table} WHERE id = ANY(${[...ids]})`),
      ship: (ids) =>
        Effect.orDie(
          sql<Order>`UPDATE ${table} SET state = 'shipped' WHERE id = ANY(${[...ids]}) AND state = 'paid' RETURNING *`
        )
    }
  })
)

const sqlite = Layer.sync(Orders, () => {
  const database = new DatabaseSync(":memory:")
  database.exec("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL, euros INTEGER NOT NULL)")
  const insert = database.prepare("INSERT INTO orders VALUES (?, ?, ?)")
  for (const { euros, id, state } of rows) insert.run(id, state, euros)
  const some = "id IN (SELECT value FROM json_each(?))"
  const find = database.prepare(`SELECT * FROM orders WHERE ${some}`)
  const ship = database.prepare(`UPDATE orders SET state = 'shipped' WHERE ${some} AND state = 'paid' RETURNING *`)
  const all = (statement: typeof find) => (ids: ReadonlyArray<string>) =>
    Effect.sync(() => statement.all(JSON.stringify(ids)) as unknown as ReadonlyArray<Order>)
  return { where: "SQLite, in memory", find: all(find), ship: all(ship) }
})

// Two queries at a time, whoever asks.
class Database extends Backend.Service<Database>()("orders") {}

const queries: Array<string> = []
const resources = (id: string) => [`order:${id}`]

const Lookup = BatchTool.make("get_orders", {
  description: "Looks orders up by their numbers.",
  item: Schema.String.check(Schema.isPattern(/^O-\d+$/)),
  success: Order,
  lookup: (ids) =>
    Effect.flatMap(Orders, ({ find }) => {
      queries.push(`SELECT of ${ids.length}`)
      return find(ids)
    }),
  // The database gives them in any order, and only those that are there.
  itemKey: ({ id }) => id,
  resources,
  backend: Database,
  fields: true,
  single: { name: "get_order" }
})

const Ship = BatchTool.write("ship_orders", {
  description: "Ships orders that are paid.",
  item: Schema.String,
  success: Order,
  failure: Schema.Struct({ message: Schema.String }),
  failures: { noEffect: () => true },
  apply: (items) =>
    Effect.gen(function*() {
      const orders = yield* Orders
      const ids = items.map(({ id }) => id)
      queries.push(`UPDATE of ${ids.length}`)
      const shipped = new Map((yield* orders.ship(ids)).map((order) => [order.id, order]))
      return new Map(ids.map((id) => [id, shipped.get(id) ?? Coalescer.failed({ message: "it is not paid" })]))
    }),
  resources,
  backend: Database,
  idempotency: { mode: "record", key: (id) => `ship:${id}` }
})

const toolkit = Toolkit.make(Lookup.tool, Lookup.single, Ship.tool)

const numbers = (from: number, to: number) => Array.range(from, to).map((i) => `O-${i}`)
const one = (item: string) => FakeModel.call(Lookup.single, { item })
const many = (items: ReadonlyArray<string>, fields?: ReadonlyArray<string>) =>
  FakeModel.call(Lookup.tool, fields === undefined ? { items } : { items, fields })
const ship = (items: ReadonlyArray<string>) => FakeModel.call(Ship.tool, { items })

const model = FakeModel.layer([
  FakeModel.calls(numbers(1, 12).map(one)),
  FakeModel.text("done"),
  FakeModel.calls([many(numbers(1, 12), ["state"])]),
  FakeModel.text("done"),
  FakeModel.calls([
    many(["O-1", " O-2 ", "O-2", "O-99", "order two", ...numbers(3, 8)], ["state"]),
    one("O-9"),
    one("O-1")
  ]),
  FakeModel.text("done"),
  FakeModel.calls([ship(numbers(5, 8))]),
  FakeModel.calls([ship(numbers(5, 9))], { text: "I add one, and send the list again." }),
  FakeModel.text("done")
])

const ask = (prompt: string) =>
  Effect.gen(function*() {
    queries.length = 0
    const { steps } = yield* Agent.run({ prompt, toolkit })
    console.log(`\n${prompt}`)
    for (const outcome of steps.flatMap(({ outcomes }) => outcomes)) {
      if (outcome.status !== "ok") console.log(`  ${outcome.name}: ${outcome.message}`)
      else if (outcome.name === "get_order") continue
      else console.log(`  ${outcome.name}: ${JSON.stringify(outcome.encoded)}`)
    }
    const calls = steps.flatMap(({ outcomes }) => outcomes).length
    console.log(`  calls: ${calls}, queries: ${queries.length} (${queries.join(", ")})`)
  })

const program = Effect.gen(function*() {
  const { where } = yield* Orders
  console.log(`The orders are in ${where}.`)
  yield* ask("Twelve orders, one by one")
  yield* ask("Twelve orders, as a list, and only their state")
  yield* ask("A list that is not in order, and two single calls beside it")
  yield* ask("Ship four orders, of which one is cancelled; then the same list with one more")
})

const url = process.env["DATABASE_URL"] ?? ""
// The client of PostgreSQL is a package of its own, which the embedded table does not need.
const client = Layer.unwrap(
  Effect.map(
    Effect.promise(() => import("@effect/sql-pg/PgClient")),
    (PgClient) => PgClient.layer({ url: Redacted.make(url) })
  )
)
const orders = url === "" ? sqlite : Layer.provide(postgres, client)

await program.pipe(
  Effect.provide(
    Layer.mergeAll(
      toolkit.toLayer({ ...Lookup.handlers, ...Ship.handlers }),
      model,
      Turn.layer(),
      IdempotencyStore.layerMemory,
      Database.layer({ concurrency: 2 }),
      orders
    )
  ),
  Effect.provide(TurnContext.make({ tenant: "acme", conversation: "desk" })),
  Effect.runPromise
)
