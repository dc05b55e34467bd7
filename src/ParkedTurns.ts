/**
 * Turns and agents that wait for a human, kept until somebody goes on with them: in this process, or in another one.
 *
 * - W1: of many that resume one at once exactly one has it. It says a word every third of its lease, so that one whose process died can
 *   be resumed once the lease is over.
 * - W2: it is removed only by a result: what fails, or is interrupted, gives it back as it was.
 *
 * What is kept is what was parked, not what has been started since: a turn that is resumed again, after a crash in the middle, would start
 * those calls again. A `TurnJournal` in the same database, or the tools' idempotency keys, do not let that happen.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"
import * as TurnStore from "./TurnStore.ts"

/**
 * What can be kept: a `Turn.Parked`, known by its turn, or an `Agent.Parked`, known by its agent. It has to be JSON.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Document =
  | { readonly tenant: string; readonly turn: string }
  | { readonly agent: string; readonly turn: { readonly tenant: string } }

/**
 * A turn or an agent as it is kept. One that is `claimed` is being resumed. Times are milliseconds since the epoch.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const Saved = Schema.Struct({
  tenant: Schema.String,
  id: Schema.String,
  state: Schema.Literals(["waiting", "claimed"]),
  parked: Schema.Json,
  createdAt: Schema.Number,
  updatedAt: Schema.Number,
  expiresAt: Schema.NullOr(Schema.Number)
})

/**
 * A turn or an agent as it is kept.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Saved = typeof Saved.Type

/**
 * A parked turn cannot be saved, resumed or removed.
 *
 * **Details**
 *
 * - `not_parked`: there is none. It may have been resumed to its end, removed, or expired.
 * - `claimed`: somebody else is resuming it.
 * - `lost`: somebody else is resuming it by now, for nothing was heard of us longer than the lease; ours was interrupted.
 * - `unreadable`: it is not what the schema expects, for example of another version. It stays where it is.
 * - `unsavable`: it is no JSON, has no id, is another tenant's, or another one stands under its id.
 * - `not_kept`: it went on, and came to the `result`, and the store did not take that. With a result that is parked again, `save` that.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class ParkedTurnError extends Schema.TaggedError<ParkedTurnError>()("ParkedTurnError", {
  id: Schema.String,
  reason: Schema.Literals(["not_parked", "claimed", "lost", "unreadable", "unsavable", "not_kept"]),
  description: Schema.String,
  result: Schema.optionalKey(Schema.Unknown)
}) {
  override get message(): string {
    return `the parked turn ${TurnError.show(this.id)}: ${this.description}`
  }
}

/**
 * The turns that wait.
 *
 * **Details**
 *
 * The tenant is the one of the context: nobody can see or resume what is another's, but for `list`.
 *
 * - `save` keeps one, under its own id or the one that is given. The same again changes only when it expires; another one under its id is
 *   refused, for it may be an older copy.
 * - `resume` is {@link resume}.
 * - `remove` forgets one that nobody is resuming. To answer its calls, resume it with `Turn.abandon`.
 * - `expire` forgets those whose time is over; gives how many rows there were. Nobody can resume those before that either.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class ParkedTurns extends Context.Service<ParkedTurns, {
  /** How long one stays claimed without a word of whoever resumes it, in milliseconds. */
  readonly lease: number
  readonly save: (
    parked: Document,
    options?: SaveOptions
  ) => Effect.Effect<void, ParkedTurnError | TurnStore.StoreError, TurnContext.Tenant>
  readonly resume: <P, RD, A, E, R>(
    id: string,
    schema: Schema.ConstraintDecoder<P, RD>,
    f: (parked: P) => Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | ParkedTurnError | TurnStore.StoreError, R | RD | TurnContext.Tenant>
  readonly get: (id: string) => Effect.Effect<Saved | undefined, TurnStore.StoreError, TurnContext.Tenant>
  /** In the order of an id that only the store knows; `after` is the last one of the page before. */
  readonly list: (options?: {
    readonly tenant?: string | undefined
    readonly after?: { readonly tenant: string; readonly id: string } | undefined
    /** Default: 100. */
    readonly limit?: number | undefined
  }) => Effect.Effect<ReadonlyArray<Saved>, TurnStore.StoreError>
  /** False where there was none. */
  readonly remove: (
    id: string
  ) => Effect.Effect<boolean, ParkedTurnError | TurnStore.StoreError, TurnContext.Tenant>
  readonly expire: Effect.Effect<number, TurnStore.StoreError>
}>()("effect-turn/ParkedTurns") {}

/**
 * How one is kept: under which id, and until when, in milliseconds since the epoch. Default: its own id, and for ever.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface SaveOptions {
  readonly id?: string | undefined
  readonly expiresAt?: number | undefined
}

/**
 * Keeps a turn, or an agent, that was parked: see {@link ParkedTurns}.
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const save = (
  parked: Document,
  options?: SaveOptions
): Effect.Effect<void, ParkedTurnError | TurnStore.StoreError, ParkedTurns | TurnContext.Tenant> =>
  Effect.flatMap(ParkedTurns, (turns) => turns.save(parked, options))

/**
 * Goes on with a turn, or an agent, that was kept.
 *
 * **Details**
 *
 * It is claimed first: of two that resume it at once the other is refused, in whatever process it is. Then `f` gets it, decoded. A result
 * with a member `parked` was parked again, and that is kept in its place, with the time it had; any other result removes it. When `f` fails,
 * is interrupted, or dies, it is given back as it was: so what is refused because the tools have changed can be resumed with the right ones.
 *
 * **Gotchas**
 *
 * After a crash in the middle it can be resumed once the lease is over. What had been started by then is not written here: see
 * `TurnJournal`.
 *
 * **Example** (A human decides, perhaps days later)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { Approval, ParkedTurns, ToolCall, ToolPolicy, Turn, TurnContext } from "effect-turn"
 *
 * const Pay = pipe(
 *   Tool.make("pay", { parameters: Schema.Struct({ euros: Schema.Int }), success: Schema.String, needsApproval: true }),
 *   ToolPolicy.write({ keys: () => ["account"] })
 * )
 * const toolkit = Toolkit.make(Pay)
 * const handlers = toolkit.toLayer({ pay: ({ euros }) => Effect.succeed(`paid ${euros}`) })
 *
 * const program = Effect.gen(function*() {
 *   const first = yield* Turn.runOrPark(toolkit, [ToolCall.make("c1", "pay", { euros: 30 })], { turn: "t1" })
 *   if (first._tag === "Parked") yield* ParkedTurns.save(first.parked)
 *
 *   const decisions = [{ position: 0, decision: Approval.approve() }]
 *   const { outcomes } = yield* ParkedTurns.resume("t1", Turn.Parked, (parked) => Turn.resume(toolkit, parked, { decisions }))
 *   return outcomes.map((outcome) => outcome.status)
 * }).pipe(
 *   Effect.provide(Layer.mergeAll(handlers, Turn.layer(), ParkedTurns.layerMemory)),
 *   Effect.provide(TurnContext.make({ tenant: "north" }))
 * )
 * const statuses = await Effect.runPromise(program) // => ["ok"]
 * ```
 *
 * @category running
 * @since 0.1.0
 * @stability experimental
 */
export const resume = <P, RD, A, E, R>(
  id: string,
  schema: Schema.ConstraintDecoder<P, RD>,
  f: (parked: P) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | ParkedTurnError | TurnStore.StoreError, R | RD | ParkedTurns | TurnContext.Tenant> =>
  Effect.flatMap(ParkedTurns, (turns) => turns.resume(id, schema, f))

/**
 * Options of a store of parked turns.
 *
 * **Details**
 *
 * `lease`: how long one stays claimed without a word of whoever resumes it. It bounds how long a crash stands in the way, and how far the
 * clocks of machines may be apart. Default: 30 seconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly lease?: Duration.Input | undefined
}

const kind = "parked"

const rowId = (tenant: string, id: string): string => JSON.stringify([tenant, id])

const decodeId = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Tuple([Schema.String, Schema.String])))
const decodeBody = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ format: Schema.Literal(1), parked: Schema.Json }))
)

const bodyOf = (id: string, parked: unknown): Effect.Effect<string, ParkedTurnError> =>
  Effect.try({
    try: () => JSON.stringify({ format: 1, parked }),
    catch: (cause) => refused(id, "unsavable", `expected JSON, and it cannot be written: ${String(cause)}`)
  })

const refused = (id: string, reason: ParkedTurnError["reason"], description: string): ParkedTurnError =>
  new ParkedTurnError({ id, reason, description })

const savedOf = (row: TurnStore.Row, now: number): Effect.Effect<Saved, TurnStore.StoreError> =>
  Effect.gen(function*() {
    const [tenant, id] = yield* decodeId(row.id)
    const { parked } = yield* decodeBody(row.body)
    const { createdAt, expiresAt, updatedAt } = row
    return {
      tenant,
      id,
      state: isClaimed(row, now) ? "claimed" : "waiting",
      parked,
      createdAt,
      updatedAt,
      expiresAt
    } as const
  }).pipe(
    Effect.mapError(() =>
      new TurnStore.StoreError({
        store: "the store of parked turns",
        operation: "get",
        description: `expected a parked turn of format 1 in the row ${row.id}, and got ${
          TurnError.show(row.body.slice(0, 80))
        }`
      })
    )
  )

const isClaimed = (row: TurnStore.Row, now: number): boolean => row.state === "claimed" && row.leaseUntil > now

const seen = ({ leaseUntil, owner, state }: TurnStore.Row): TurnStore.Expected => ({ state, owner, leaseUntil })
const free = { state: "waiting", owner: "", leaseUntil: 0 }

/** The form of what came, where it was not what was expected. */
const formOf = (parked: unknown): string => {
  const { _tag, version } = (typeof parked === "object" && parked !== null ? parked : {}) as Record<string, unknown>
  return `${_tag === undefined ? "something" : TurnError.show(_tag)} of version ${TurnError.show(version)}`
}

const ownId = (parked: any): unknown => (typeof parked?.turn === "object" ? parked.agent : parked?.turn)
const ownTenant = (parked: any): unknown => (typeof parked?.turn === "object" ? parked.turn?.tenant : parked?.tenant)

/** What a result was parked as, where it was parked again. */
const again = (result: unknown): unknown =>
  typeof result === "object" && result !== null && "parked" in result ? result.parked : undefined

/** One round more, where somebody else was quicker. */
const mostRounds = 20
const busy = (operation: "insert" | "change") =>
  new TurnStore.StoreError({
    store: "the store of parked turns",
    operation,
    description: `others changed the turn ${mostRounds} times meanwhile`
  })

/** How long is waited, and how often tried, to write down what is over already, in milliseconds. */
const patience = 5_000
const persistently = { schedule: Schedule.exponential("100 millis"), times: 3 }

const make = (options: Options | undefined): Effect.Effect<ParkedTurns["Service"], never, TurnStore.TurnStore> => {
  const lease = ToolPolicy.finiteMillis("ParkedTurns.layer", "lease", options?.lease ?? "30 seconds")
  return Effect.gen(function*() {
    const store = yield* TurnStore.TurnStore
    const now = Clock.currentTimeMillis

    const change = (id: string, expected: TurnStore.Expected, patch: Omit<TurnStore.Patch, "updatedAt">) =>
      Effect.flatMap(now, (at) => store.change(kind, id, expected, { ...patch, updatedAt: at }))

    const write = (tenant: string, id: string, parked: unknown, expiresAt: number | null) =>
      Effect.gen(function*() {
        const body = yield* bodyOf(id, parked)
        const row = rowId(tenant, id)
        for (let round = 0; round < mostRounds; round++) {
          const at = yield* now
          const times = { createdAt: at, updatedAt: at, expiresAt }
          const known = yield* store.insert({ kind, id: row, tenant, group: "", digest: "", body, ...free, ...times })
          if (known === undefined) return
          if (TurnStore.mayGo(known, at)) {
            yield* store.change(kind, row, seen(known), undefined)
            continue
          }
          if (isClaimed(known, at)) return yield* refused(id, "claimed", "it is being resumed, and cannot be saved")
          if (known.body !== body) {
            const what = "another one stands under its id, which may be a later one: resume it, or remove it first"
            return yield* refused(id, "unsavable", what)
          }
          if (yield* change(row, seen(known), { expiresAt })) return
        }
        return yield* busy("insert")
      })

    const claim = (tenant: string, id: string, owner: string) =>
      Effect.gen(function*() {
        const row = rowId(tenant, id)
        const gone = "there is none: it was resumed to its end, removed, has expired, or is another tenant's"
        for (let round = 0; round < mostRounds; round++) {
          const known = yield* store.get(kind, row)
          const at = yield* now
          if (known === undefined || TurnStore.mayGo(known, at)) return yield* refused(id, "not_parked", gone)
          if (isClaimed(known, at)) {
            const until = new Date(known.leaseUntil).toISOString()
            return yield* refused(id, "claimed", `it is being resumed elsewhere, until ${until} unless that goes on`)
          }
          if (!(yield* change(row, seen(known), { state: "claimed", owner, leaseUntil: at + lease }))) continue
          // Somebody may have saved another one between the two steps: from here on nobody does.
          const ours = yield* store.get(kind, row)
          if (ours?.owner === owner) return ours
        }
        return yield* busy("change")
      })

    /** Says a word now and then; ends only when it is another's by now. */
    const renewing = (row: string, id: string, owner: string): Effect.Effect<never, ParkedTurnError> =>
      Effect.gen(function*() {
        for (;;) {
          yield* Effect.sleep(lease / 3)
          const at = yield* now
          const held = yield* Effect.exit(change(row, { state: "claimed", owner }, { leaseUntil: at + lease }))
          if (Exit.isSuccess(held) && !held.value) {
            const known = yield* Effect.exit(store.get(kind, row))
            // One that expired meanwhile is nobody else's.
            if (Exit.isSuccess(known) && known.value !== undefined && known.value.owner !== owner) {
              return yield* refused(id, "lost", "it is being resumed elsewhere by now: nothing was heard of us in time")
            }
          }
        }
      })

    /** What came of it is written down, also where an earlier attempt was, and its answer was lost. */
    const conclude = (tenant: string, id: string, owner: string, claimed: TurnStore.Row, result: unknown) =>
      Effect.gen(function*() {
        const parked = again(result)
        const ours = { state: "claimed", owner }
        if (parked === undefined) {
          if (yield* store.change(kind, claimed.id, ours, undefined)) return
          const known = yield* store.get(kind, claimed.id)
          if (known === undefined) return
        } else {
          const body = yield* bodyOf(id, parked)
          if (yield* change(claimed.id, ours, { ...free, body })) return
          const known = yield* store.get(kind, claimed.id)
          if (known === undefined) return yield* write(tenant, id, parked, claimed.expiresAt)
          if (known.body === body) return
        }
        return yield* refused(id, "lost", "somebody else has resumed it meanwhile")
      }).pipe(
        Effect.retry({ ...persistently, while: (error) => error._tag === "StoreError" }),
        Effect.timeoutOrElse({
          duration: patience,
          orElse: () => Effect.fail(refused(id, "lost", "the store did not answer in time"))
        }),
        Effect.mapError(({ message }) =>
          new ParkedTurnError({
            id,
            reason: "not_kept",
            description: `it went on, and what it came to could not be written down: ${message}`,
            result
          })
        )
      )

    const giveBack = (row: string, owner: string) =>
      change(row, { state: "claimed", owner }, free).pipe(
        Effect.retry(persistently),
        Effect.timeoutOption(patience),
        Effect.catchCause((cause) =>
          Effect.logWarning("a parked turn is not given back before its lease is over", cause)
        )
      )

    const resume: ParkedTurns["Service"]["resume"] = (id, schema, f) =>
      Effect.gen(function*() {
        const tenant = yield* TurnContext.Tenant
        const random = yield* Random.Random
        const owner = TurnContext.newId("resume", () => random.nextDoubleUnsafe())
        const row = rowId(tenant, id)
        return yield* Effect.uninterruptibleMask((restore) =>
          Effect.gen(function*() {
            // A step that was interrupted may have been done.
            const claimed = yield* Effect.onExit(
              restore(claim(tenant, id, owner)),
              (exit) => Exit.isSuccess(exit) || isRefusal(exit) ? Effect.void : giveBack(row, owner)
            )
            const decoded = Effect.flatMap(savedOf(claimed, 0), ({ parked }) =>
              Effect.mapError(Schema.decodeUnknownEffect(schema)(parked), (problem) =>
                refused(
                  id,
                  "unreadable",
                  `expected what it is resumed as, and got ${formOf(parked)}: ${problem.message}`
                )))
            const work = Effect.raceFirst(Effect.flatMap(decoded, f), renewing(row, id, owner))
            const result = yield* Effect.onError(restore(work), () => giveBack(row, owner))
            yield* conclude(tenant, id, owner, claimed, result)
            return result
          })
        )
      })

    return ParkedTurns.of({
      lease,
      save: (parked, options) =>
        Effect.gen(function*() {
          const tenant = yield* TurnContext.Tenant
          const id: unknown = options?.id ?? ownId(parked)
          if (typeof id !== "string") {
            return yield* refused("", "unsavable", `expected a parked turn or agent, and got ${formOf(parked)}`)
          }
          const own = ownTenant(parked)
          if (own !== tenant) {
            const what = `expected one of the tenant ${TurnError.show(tenant)}, and it is of ${TurnError.show(own)}`
            return yield* refused(id, "unsavable", what)
          }
          return yield* write(tenant, id, parked, options?.expiresAt ?? null)
        }),
      resume,
      get: (id) =>
        Effect.gen(function*() {
          const row = yield* store.get(kind, rowId(yield* TurnContext.Tenant, id))
          const at = yield* now
          return row === undefined || TurnStore.mayGo(row, at) ? undefined : yield* savedOf(row, at)
        }),
      list: (options) =>
        Effect.gen(function*() {
          const { after, limit = 100, tenant } = options ?? {}
          if (!(limit >= 1)) return []
          const at = yield* now
          const found: Array<Saved> = []
          let last = after === undefined ? undefined : rowId(after.tenant, after.id)
          for (;;) {
            const rows = yield* store.list({ kind, tenant, after: last, limit })
            for (const row of rows) {
              if (!TurnStore.mayGo(row, at)) found.push(yield* savedOf(row, at))
              if (found.length >= limit) return found
            }
            if (rows.length < limit) return found
            last = rows[rows.length - 1]!.id
          }
        }),
      remove: (id) =>
        Effect.gen(function*() {
          const row = rowId(yield* TurnContext.Tenant, id)
          for (let round = 0; round < mostRounds; round++) {
            const known = yield* store.get(kind, row)
            const at = yield* now
            if (known === undefined) return false
            if (isClaimed(known, at)) return yield* refused(id, "claimed", "it is being resumed, and cannot be removed")
            if (yield* store.change(kind, row, seen(known), undefined)) return !TurnStore.mayGo(known, at)
          }
          return yield* busy("change")
        }),
      expire: Effect.flatMap(now, store.expire)
    })
  })
}

const isRefusal = (exit: Exit.Exit<unknown, unknown>): boolean =>
  Exit.isFailure(exit) &&
  exit.cause.reasons.every((reason) =>
    reason._tag === "Fail" && (reason.error as { readonly _tag?: unknown })._tag === "ParkedTurnError"
  )

/**
 * Parked turns in a `TurnStore`. Impossible options are thrown here, where they are written.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (options?: Options): Layer.Layer<ParkedTurns, never, TurnStore.TurnStore> =>
  Layer.effect(ParkedTurns, make(options))

/**
 * Parked turns in memory, for one process: a crash loses them.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory: Layer.Layer<ParkedTurns> = Layer.provide(layer(), Layer.fresh(TurnStore.layerMemory))
