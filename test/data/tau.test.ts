/**
 * Turns of two shops' agents (retail, airline), run against a simulator of their back ends. Each of its calls reads rows, waits,
 * and writes whole rows back, so a call that runs at the wrong time loses an update or reads what was not there yet.
 */
import { assert, beforeAll, it } from "@effect/vitest"
import { type Outcome, ToolPolicy, Turn } from "effect-turn"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as path from "node:path"
import * as Data from "../utils/data.ts"
import { describeShared } from "../utils/requires.ts"

type Keys = (args: any) => ReadonlyArray<string>

const nothing: Keys = () => []
const order: Keys = ({ order_id }) => [`orders/${order_id}`]
// An order belongs to a user whom the arguments do not name, so its refunds reach the whole table.
const orderAndUsers: Keys = ({ order_id }) => [`orders/${order_id}`, "users"]
const user: Keys = ({ user_id }) => [`users/${user_id}`]
const reservation: Keys = ({ reservation_id }) => [`reservations/${reservation_id}`]

/** What a team writes for its tools. Keys are paths: `users` covers `users/mia_li_3668`. */
const reads: Record<string, Keys> = {
  calculate: nothing,
  think: nothing,
  transfer_to_human_agents: nothing,
  list_all_airports: nothing,
  find_user_id_by_email: () => ["users"],
  find_user_id_by_name_zip: () => ["users"],
  get_user_details: user,
  get_order_details: order,
  get_product_details: ({ product_id }) => [`products/${product_id}`],
  get_item_details: () => ["products"],
  list_all_product_types: () => ["products"],
  get_reservation_details: reservation,
  get_flight_status: ({ flight_number }) => [`flights/${flight_number}`],
  search_direct_flight: () => ["flights"],
  search_onestop_flight: () => ["flights"]
}
const writes: Record<string, Keys> = {
  cancel_pending_order: orderAndUsers,
  exchange_delivered_order_items: orderAndUsers,
  modify_pending_order_address: order,
  modify_pending_order_items: orderAndUsers,
  modify_pending_order_payment: orderAndUsers,
  modify_user_address: user,
  return_delivered_order_items: orderAndUsers,
  book_reservation: ({ user_id }) => ["flights", "reservations", `users/${user_id}`],
  cancel_reservation: reservation,
  send_certificate: user,
  update_reservation_baggages: ({ reservation_id }) => [`reservations/${reservation_id}`, "users"],
  update_reservation_flights: ({ reservation_id }) => [`reservations/${reservation_id}`, "users", "flights"],
  update_reservation_passengers: reservation
}
// A second address line is empty in honest addresses.
const literal = ["address2"]

const access = ({ name }: Data.DataTool): Data.Policy => {
  const read = reads[name]
  if (read !== undefined) return ToolPolicy.read({ keys: read })
  const write = writes[name]
  if (write === undefined) throw new Error(`the tool ${name} has no policy`)
  return ToolPolicy.write({ keys: write })
}
const policies = (tool: Data.DataTool): Data.Policy => (it) => ToolPolicy.placeholders({ literal })(access(tool)(it))
const withoutLiteral = (tool: Data.DataTool): Data.Policy => access(tool)
/** No policy that orders anything: every call starts at once. */
const everythingAtOnce = (): Data.Policy => (it) =>
  ToolPolicy.placeholders({ literal })(ToolPolicy.read({ keys: nothing })(it))

interface Answer {
  readonly text: string
  readonly error: boolean
}
interface Simulator {
  readonly call: (name: string, args: any, info?: unknown) => Promise<Answer>
  readonly changed: () => Record<string, string | null>
}

describeShared("turns of two shops, run on their simulated back ends", (shared) => {
  let data: Data.Data
  let turns: ReadonlyArray<Data.DataTurn>
  let makeTauSim: (options: object) => Simulator
  let resultHash: (text: string) => string
  const databases: Record<string, unknown> = {}

  beforeAll(async () => {
    data = await Data.load(shared)
    turns = data.turns("turns-tau")
    ;({ makeTauSim, resultHash } = await Data.module(shared, "sim-tau.mjs"))
    for (const domain of ["retail", "airline"]) {
      databases[domain] = JSON.parse(fs.readFileSync(path.join(shared, `data/db-tau-${domain}.json`), "utf8"))
    }
  })

  /** A back end as the turn met it: what was called before has happened. */
  const simulator = async (turn: Data.DataTurn, waits: object): Promise<Simulator> => {
    const [variant, domain] = turn.toolset!.split("-") as [string, string]
    let live = false
    const only = Object.fromEntries(
      Object.entries(waits).map(([name, wait]) => [name, () => live ? wait() : Promise.resolve()])
    )
    const made = makeTauSim({ variant, domain, db: databases[domain], ...only })
    for (const { arguments: args, name } of turn.setup ?? []) await made.call(name, args)
    live = true
    return made
  }

  interface Ran {
    readonly answers: ReadonlyArray<Answer>
    readonly changed: Record<string, string | null>
  }

  const sequential = async (turn: Data.DataTurn): Promise<Ran> => {
    const simulated = await simulator(turn, {})
    const answers: Array<Answer> = []
    for (const { arguments: args, name } of turn.calls) answers.push(await simulated.call(name, args))
    return { answers, changed: simulated.changed() }
  }

  interface Figures {
    calls: number
    /** Time of all turns, and of all their calls one after another. */
    took: number
    work: number
  }

  interface Options extends Turn.Options {
    readonly seed: number
    /** Through a toolkit that brings its handlers, and so through its own `handle`. */
    readonly through?: boolean
  }

  const concurrent = Effect.fnUntraced(function*(
    turn: Data.DataTurn,
    policyOf: (tool: Data.DataTool) => Data.Policy,
    { through = false, ...options }: Options,
    figures: Figures
  ) {
    const random = Data.random(options.seed)
    const context = yield* Effect.context<never>()
    const wait = (most: number) => () => {
      const millis = 1 + Math.floor(random() * most)
      figures.work += millis
      return Effect.runPromiseWith(context)(Effect.sleep(millis))
    }
    const simulated = yield* Effect.promise(() => simulator(turn, { arrive: wait(60), latency: wait(60) }))
    const { layer, toolkit } = Data.kit(Data.tools(data.toolsOf(turn), policyOf), (name) => (args) =>
      Effect.flatMap(
        Effect.promise(() => simulated.call(name, args)),
        ({ error, text }) => error ? Effect.fail(text) : Effect.succeed(text)
      ))
    const began = yield* Clock.currentTimeMillis
    let outcomes: ReadonlyArray<Outcome.Outcome<any>> = []
    let ended = began
    yield* Data.inVirtualTime(
      Effect.flatMap(
        through ? (toolkit as unknown as Effect.Effect<typeof toolkit>) : Effect.succeed(toolkit),
        (given) => Turn.run(given, turn.calls, options)
      ).pipe(
        Effect.tap((all) =>
          Effect.map(Clock.currentTimeMillis, (now) => {
            outcomes = all as ReadonlyArray<Outcome.Outcome<any>>
            ended = now
          })
        ),
        Effect.provide(layer)
      )
    )
    figures.calls += turn.calls.length
    figures.took += ended - began
    assert.deepStrictEqual(outcomes.map(({ id }) => id), turn.calls.map(({ id }) => id))
    return { outcomes, changed: simulated.changed() }
  })

  /** The answer that the simulator gave for a call, or what the library says of it. */
  const answerOf = (outcome: Outcome.Outcome<any>): unknown =>
    outcome.status === "ok"
      ? { text: outcome.result, error: false }
      : outcome.status === "error" && outcome.code === "failed"
      ? { text: outcome.failure, error: true }
      : outcome

  const differs = (
    ran: { readonly outcomes: ReadonlyArray<Outcome.Outcome<any>>; readonly changed: object },
    to: Ran
  ): boolean => JSON.stringify([ran.outcomes.map(answerOf), ran.changed]) !== JSON.stringify([to.answers, to.changed])

  /** Runs every turn and compares each with its sequential run. */
  const compare = Effect.fnUntraced(function*(
    policyOf: (tool: Data.DataTool) => Data.Policy,
    options: Options
  ) {
    const figures: Figures = { calls: 0, took: 0, work: 0 }
    const wrong: Array<string> = []
    let merged = 0
    for (const [i, turn] of turns.entries()) {
      const expected = yield* Effect.promise(() => sequential(turn))
      const ran = yield* concurrent(turn, policyOf, { ...options, seed: options.seed + i }, figures)
      if (differs(ran, expected)) wrong.push(turn.id)
      merged += ran.outcomes.filter(({ duplicateOf }) => duplicateOf !== undefined).length
    }
    return { figures, wrong, merged }
  })

  it("the sequential run gives what the original back ends gave", async () => {
    assert.isAbove(turns.length, 400)
    for (const turn of turns) {
      const { answers, changed } = await sequential(turn)
      assert.deepStrictEqual(changed, turn.oracle.final_rows, turn.id)
      answers.forEach(({ error, text }, i) => {
        const expected = turn.oracle.per_call[i]
        assert.strictEqual(error, expected.error, `${turn.id} ${i}`)
        if (!error) assert.strictEqual(resultHash(text), expected.result_sha, `${turn.id} ${i}`)
      })
    }
  })

  it.effect("every conflict of the originals is an edge of the plan, or a way along edges", () =>
    Effect.gen(function*() {
      let conflicts = 0
      let ordered = 0
      for (const turn of turns) {
        const { toolkit } = Data.kit(Data.tools(data.toolsOf(turn), policies), () => () => Effect.void)
        const plan = yield* Data.planOf(toolkit, turn.calls, { dedupe: "off" })
        const before = Data.ordered(plan)
        for (const [first, later] of turn.oracle.key_conflicts) {
          conflicts++
          assert.isTrue(before(first, later), `${turn.id}: #${later} has to wait for #${first}`)
        }
        for (const later of plan.calls.keys()) {
          for (let first = 0; first < later; first++) if (before(first, later)) ordered++
        }
      }
      assert.isAbove(conflicts, 300)
      console.log(`retail and airline: ${conflicts} pairs of calls conflict, the plans order ${ordered} pairs`)
    }))

  for (const dedupe of ["off", "reads", "all"] as const) {
    it.effect(`with policies, results and rows are those of the sequential run (dedupe: ${dedupe})`, () =>
      Effect.gen(function*() {
        const { figures, merged, wrong } = yield* compare(policies, { dedupe, seed: 1000 })
        assert.deepStrictEqual(wrong, [])
        if (dedupe === "off") assert.strictEqual(merged, 0)
        else assert.isAbove(merged, 0)
        console.log(
          `retail and airline, dedupe ${dedupe}: ${turns.length} turns, ${figures.calls} calls, ${merged} merged, 0 wrong; ` +
            `${figures.took} ms of turns for ${figures.work} ms of work`
        )
      }))
  }

  it.effect("the same under other latencies", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual((yield* compare(policies, { dedupe: "off", seed: 20_000 })).wrong, [])
    }))

  it.effect("the same through a toolkit that brings its handlers", () =>
    Effect.gen(function*() {
      const { wrong } = yield* compare(policies, { dedupe: "reads", seed: 1000, through: true })
      assert.deepStrictEqual(wrong, [])
    }))

  it.effect("a repeated read is merged only where no write lies between", () =>
    Effect.gen(function*() {
      let may = 0
      let mayNot = 0
      for (const turn of turns.filter(({ oracle }) => oracle.duplicates.length > 0)) {
        const { toolkit } = Data.kit(Data.tools(data.toolsOf(turn), policies), () => () => Effect.void)
        const { calls } = yield* Data.planOf(toolkit, turn.calls, { dedupe: "reads" })
        for (const { first, later, same_result: same } of turn.oracle.duplicates) {
          if (same) may++
          else {
            mayNot++
            assert.strictEqual(calls[later]!.verdict, "run", turn.id)
          }
          if (calls[later]!.verdict === "duplicate") assert.strictEqual(calls[later]!.duplicateOf, first, turn.id)
        }
      }
      assert.isAbove(may, 0)
      assert.isAbove(mayNot, 0)
    }))

  it.effect("without policies, turns go wrong", () =>
    Effect.gen(function*() {
      const { wrong } = yield* compare(everythingAtOnce, { dedupe: "off", seed: 1000 })
      const conflicting = turns.filter(({ oracle }) => oracle.key_conflicts.length > 0)
      console.log(
        `retail and airline without policies: ${wrong.length} of ${turns.length} turns go wrong ` +
          `(${conflicting.length} have a conflict)`
      )
      assert.isAbove(wrong.length, 50)
      // What goes wrong is what has a conflict: the library itself adds no fault.
      assert.deepStrictEqual(wrong.filter((id) => !conflicting.some((turn) => turn.id === id)), [])
    }))

  it.effect("an empty text in a required argument is taken for a placeholder, unless the tool says that it is literal", () =>
    Effect.gen(function*() {
      const deferred: Array<string> = []
      for (const turn of turns) {
        const { toolkit } = Data.kit(Data.tools(data.toolsOf(turn), withoutLiteral), () => () => Effect.void)
        const { calls } = yield* Data.planOf(toolkit, turn.calls, { dedupe: "off" })
        for (const { code, message, name, position } of calls) {
          if (code !== "placeholder") continue
          deferred.push(`${turn.id} ${name}`)
          assert.include(message, '"address2" is an empty text')
          assert.strictEqual(turn.calls[position]!.arguments.address2, "")
        }
      }
      assert.deepStrictEqual(deferred, [
        "retail-test-22 modify_user_address",
        "retail-test-22 modify_pending_order_address",
        "retail-test-59 modify_pending_order_address",
        "retail-tau2-22 modify_user_address",
        "retail-tau2-22 modify_pending_order_address",
        "retail-tau2-59 modify_pending_order_address"
      ])
    }))
})
