/**
 * What became of writes that carry an idempotency key (rule R23): reserved first, then applied with its result, or unknown, or free
 * again. A crash between the effect and its record leaves *unknown*, never *free*.
 *
 * - K1: a key is run by its owner alone. An owner that is silent for longer than its lease has lost it, and what it did is unknown.
 * - K2: unknown ends in four ways: by an owner that runs it again under a key that its backend honours, by a tool that can tell
 *   what became of it, by the owner that was only late, or by hand ({@link resolve}). It never expires.
 * - K3: a result that cannot be kept (too large, not JSON) is not kept, and that the write was applied is.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Outcome from "./Outcome.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import type * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"
import * as TurnStore from "./TurnStore.ts"

/**
 * Whose key it is. The same text in another tenant, conversation or tool is another key.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const Key = Schema.Struct({
  tenant: Schema.String,
  conversation: Schema.optionalKey(Schema.String),
  tool: Schema.String,
  key: Schema.String
})

/**
 * Whose key it is.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Key = typeof Key.Type

/**
 * What is known of a key: its owner is at work (`reserved`), the write took effect (`applied`), may have (`unknown`), or did and was
 * undone (`undone`). A free key has no record.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const State = Schema.Literals(["reserved", "applied", "unknown", "undone"])

/**
 * What is known of a key.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type State = typeof State.Type

/**
 * The record of a key. `digest` stands for the decoded arguments. `outcome` is what the call was answered, where it was applied and
 * could be kept; `resolved` is there where it was resolved by hand; `note` says why the effect is unknown, or the result was not kept. Times are milliseconds since the epoch.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export const Entry = Schema.Struct({
  key: Key,
  state: State,
  digest: Schema.String,
  owner: Schema.String,
  leaseUntil: Schema.Number,
  createdAt: Schema.Number,
  updatedAt: Schema.Number,
  expiresAt: Schema.NullOr(Schema.Number),
  outcome: Schema.optionalKey(Outcome.Encoded),
  note: Schema.optionalKey(Schema.String),
  resolved: Schema.optionalKey(Schema.Literal(true))
})

/**
 * The record of a key.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Entry = typeof Entry.Type

/**
 * What an attempt to reserve a key came to: it is ours (`again` where its effect was unknown before), or what is in the way. A record
 * whose owner has lost it is told as `unknown`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Reservation =
  | { readonly _tag: "Reserved"; readonly again: boolean }
  | { readonly _tag: "Taken"; readonly entry: Entry }
  /** The key stands for other arguments. */
  | { readonly _tag: "Reused"; readonly entry: Entry }

/**
 * What a human, or a program that knows, says of a key whose effect is unknown: it took effect, with this result as JSON if it is known,
 * or it did not.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Resolution =
  | { readonly _tag: "Applied"; readonly result?: unknown }
  | { readonly _tag: "NotApplied" }

/**
 * A key cannot be resolved: it has no record, or its effect is known, and not by hand.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class NotInDoubt extends Schema.TaggedError<NotInDoubt>()("NotInDoubt", {
  tool: Schema.String,
  state: Schema.Union([State, Schema.Literal("free")])
}) {
  override get message(): string {
    return `a key of the tool "${this.tool}": expected one whose effect is unknown, and it is ${this.state}`
  }
}

/**
 * The records of idempotency keys.
 *
 * **Details**
 *
 * Laws, which every layer has to satisfy:
 *
 * - of many that reserve a free key at once exactly one has it, whatever process they are in;
 * - `reserve` of a key with a record gives what is known, and changes nothing, but for a record that is unknown, or whose owner has lost
 *   it, when `again` is said;
 * - a record whose lease is over is `unknown` to everybody but its owner, who may still settle it;
 * - `settle`, `markUnknown` and `free` do something only for the owner that has reserved the key; the first of them stands;
 * - what is unknown stays so until somebody says what became of it: an owner that has taken it over, and frees it, has not;
 * - each step is atomic: interrupted or failed, it was done whole or not at all.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class IdempotencyStore extends Context.Service<IdempotencyStore, {
  /** How long a reservation stands without a word of its owner, in milliseconds. */
  readonly lease: number
  readonly lookUp: (key: Key) => Effect.Effect<Entry | undefined, TurnStore.StoreError>
  readonly reserve: (
    key: Key,
    options: {
      /** The canonical text of the decoded arguments. */
      readonly digest: string
      /** Who will run it: another text for each attempt to reserve. */
      readonly owner: string
      /** Takes over what is unknown: it is to be run again. */
      readonly again?: boolean | undefined
      /** With `again`: somebody knows that what is taken over did not take effect. */
      readonly notApplied?: boolean | undefined
    }
  ) => Effect.Effect<Reservation, TurnStore.StoreError>
  /** What `reserve` would find; undefined where the key is free. */
  readonly peek: (
    key: Key,
    digest: string
  ) => Effect.Effect<Exclude<Reservation, { readonly _tag: "Reserved" }> | undefined, TurnStore.StoreError>
  /** Prolongs a reservation; false where the owner has it no more. */
  readonly renew: (key: Key, owner: string) => Effect.Effect<boolean, TurnStore.StoreError>
  /** The write took effect. False where the owner has it no more, and it is settled otherwise. */
  readonly settle: (key: Key, owner: string, outcome: Outcome.Encoded) => Effect.Effect<boolean, TurnStore.StoreError>
  readonly markUnknown: (key: Key, owner: string, note: string) => Effect.Effect<boolean, TurnStore.StoreError>
  /**
   * This owner's run certainly had no effect: the key may be used again. What was unknown when it was reserved is unknown again, unless that
   * was known to be not applied.
   */
  readonly free: (key: Key, owner: string) => Effect.Effect<boolean, TurnStore.StoreError>
  /**
   * What the owner has settled, or marked unknown, is to be undone: that has begun, so nobody is to be told that it stands, and the key is
   * reserved as before (`undoing`); it was, and the key is free again; it was, and the key is not to be used again, for its backend remembers
   * it (`undone`); or that failed, and nobody knows what of it stands.
   */
  readonly undo: (
    key: Key,
    owner: string,
    to: "undoing" | "free" | "undone" | "unknown",
    note: string
  ) => Effect.Effect<boolean, TurnStore.StoreError>
  /** In the order of an id that only the store knows; `after` is the last key of the page before. */
  readonly list: (options?: {
    readonly tenant?: string | undefined
    readonly state?: State | undefined
    readonly after?: Key | undefined
    /** Default: 100. */
    readonly limit?: number | undefined
  }) => Effect.Effect<ReadonlyArray<Entry>, TurnStore.StoreError>
  /**
   * Says what became of a key whose effect is unknown; said once more, it takes the place of what was said by hand before. The result is not
   * checked: only the tool knows its form.
   */
  readonly resolve: (key: Key, resolution: Resolution) => Effect.Effect<void, NotInDoubt | TurnStore.StoreError>
  /** Forgets what was applied longer ago than it is kept; gives how many records there were. */
  readonly expire: Effect.Effect<number, TurnStore.StoreError>
}>()("effect-turn/IdempotencyStore") {}

/**
 * Options of a store.
 *
 * **Details**
 *
 * - `lease`: how long a reservation stands without a word of its owner. A runtime says a word every third of it, so it bounds how long
 *   a crashed write stands in the way, and how far the clocks of machines may be apart. Default: 30 seconds.
 * - `keep`: how long a key that was applied is remembered. Default: 7 days; unknown ones are kept for ever.
 * - `maxResult`: the longest result that is kept, in characters of JSON. Of a longer one it is kept that it was there. Default: 1,000,000.
 * - `digest`: what is kept of the arguments: their SHA-256 hash, or the canonical text itself. Default: `"sha256"`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly lease?: Duration.Input | undefined
  readonly keep?: ToolPolicy.Limit | undefined
  readonly maxResult?: number | undefined
  readonly digest?: "sha256" | "text" | undefined
}

const kind = "key"

const idOf = ({ conversation, key, tenant, tool }: Key): string =>
  JSON.stringify([tenant, conversation ?? null, tool, key])

const Id = Schema.fromJsonString(
  Schema.Tuple([Schema.String, Schema.NullOr(Schema.String), Schema.String, Schema.String])
)
const decodeId = Schema.decodeUnknownEffect(Id)

/** What a row holds besides its columns. */
const Body = Schema.fromJsonString(Schema.Struct({
  format: Schema.Literal(1),
  outcome: Schema.optionalKey(Outcome.Encoded),
  note: Schema.optionalKey(Schema.String),
  resolved: Schema.optionalKey(Schema.Literal(true))
}))

const bodyOf = (
  body: { readonly outcome?: Outcome.Encoded; readonly note?: string; readonly resolved?: true }
): string => JSON.stringify({ format: 1, ...body })
const decodeBody = Schema.decodeUnknownEffect(Body)

const isState = Schema.is(State)

/** The state of a row that was unknown before its owner reserved it: to everybody else it is reserved. */
const takenOver = "taken over"
/** The state of a row whose owner undoes it: to everybody else it is reserved. */
const undoing = "undoing"
type RowState = State | typeof takenOver | typeof undoing

const unknown = (note: string) => ({ state: "unknown", leaseUntil: 0, body: bodyOf({ note }) })

/** The record in a row, as it is now: whoever was silent for too long has lost it. */
const entryOf = (row: TurnStore.Row, now: number): Effect.Effect<Entry, TurnStore.StoreError> =>
  Effect.mapError(
    Effect.gen(function*() {
      const [tenant, conversation, tool, key] = yield* decodeId(row.id)
      const body = yield* decodeBody(row.body)
      const state = row.state === takenOver || row.state === undoing ? "reserved" : row.state
      if (!isState(state)) return yield* Effect.fail(undefined)
      const lost = state === "reserved" && row.leaseUntil <= now
      const note = lost ? "whoever ran it was not heard of again" : body.note
      return {
        key: { tenant, ...(conversation === null ? undefined : { conversation }), tool, key },
        state: lost ? "unknown" : state,
        digest: row.digest,
        owner: row.owner,
        leaseUntil: row.leaseUntil,
        createdAt: row.createdAt,
        updatedAt: row.updatedAt,
        expiresAt: row.expiresAt,
        ...(body.outcome === undefined ? undefined : { outcome: body.outcome }),
        ...(note === undefined ? undefined : { note }),
        ...(body.resolved === undefined ? undefined : { resolved: body.resolved })
      }
    }),
    () =>
      new TurnStore.StoreError({
        store: "the idempotency store",
        operation: "get",
        // Neither its id nor its body: this may be told to a model, and to whoever reads logs (rule R33).
        description: `expected a record of format 1 for a key of the tool ${JSON.stringify(row.group)} and the tenant ${
          JSON.stringify(row.tenant)
        }, and got another one in the state ${JSON.stringify(row.state)}, made at ${row.createdAt}`
      })
  )

/** The outcome as it is kept, or why it is not. */
const kept = (
  outcome: Outcome.Encoded,
  max: number
): { readonly outcome: Outcome.Encoded } | { readonly note: string } => {
  const { duplicateOf: _, ...own } = outcome
  let text: string | undefined
  try {
    text = JSON.stringify(own)
  } catch {
    // What has become of the write is kept all the same.
  }
  if (text === undefined) return { note: "its result could not be written as JSON" }
  if (text.length > max) return { note: `its result is longer than is kept: ${text.length} characters of ${max}` }
  return { outcome: JSON.parse(text) as Outcome.Encoded }
}

const pageSize = 500

const make = (options: Options | undefined): Effect.Effect<IdempotencyStore["Service"], never, TurnStore.TurnStore> => {
  const owner = "IdempotencyStore.layer"
  const lease = ToolPolicy.finiteMillis(owner, "lease", options?.lease ?? "30 seconds")
  const keep = ToolPolicy.limitMillis(owner, "keep", options?.keep ?? "7 days")
  const maxResult = TurnError.wholeNumber(owner, "maxResult", options?.maxResult ?? 1_000_000)
  return Effect.gen(function*() {
    const store = yield* TurnStore.TurnStore
    const digestOf = (text: string): Effect.Effect<string> =>
      options?.digest === "text"
        ? Effect.succeed(text)
        : TurnStore.sha256(text)
    const now = Clock.currentTimeMillis

    const lookUp = (key: Key) =>
      Effect.flatMap(
        store.get(kind, idOf(key)),
        (row) =>
          row === undefined
            ? Effect.succeed(undefined)
            : Effect.flatMap(now, (at) => TurnStore.mayGo(row, at) ? Effect.succeed(undefined) : entryOf(row, at))
      )

    const inTheWay = (entry: Entry, digest: string) =>
      ({ _tag: entry.digest === digest ? "Taken" : "Reused", entry }) as const

    const reserve: IdempotencyStore["Service"]["reserve"] = (key, { again, digest: text, notApplied, owner }) =>
      Effect.flatMap(digestOf(text), (digest) =>
        TurnStore.claim(
          store,
          (at) => ({
            kind,
            id: idOf(key),
            tenant: key.tenant,
            group: key.tool,
            digest,
            state: "reserved",
            owner,
            leaseUntil: at + lease,
            expiresAt: null,
            createdAt: at,
            updatedAt: at,
            body: bodyOf({})
          }),
          notApplied === true ? "reserved" : takenOver,
          (row, at) =>
            Effect.map(entryOf(row, at), (entry) =>
              entry.digest === digest && entry.state === "unknown" && again === true
                ? undefined
                : inTheWay(entry, digest)),
          () =>
            new TurnStore.StoreError({
              store: "the idempotency store",
              operation: "insert",
              description: "others changed the key too often meanwhile"
            })
        ))

    const forgotten = (at: number) => (keep === Infinity ? null : at + keep)

    /** A late word of an owner counts as long as nobody else has said anything. */
    const reserved = (step: (state: RowState) => Effect.Effect<boolean, TurnStore.StoreError>) =>
      Effect.flatMap(step("reserved"), (done) => done ? Effect.succeed(true) : step(takenOver))

    /** One step. */
    const write = (
      key: Key,
      owner: string,
      from: RowState,
      to: (at: number) => Omit<TurnStore.Patch, "updatedAt">
    ) =>
      Effect.flatMap(now, (at) => store.change(kind, idOf(key), { owner, state: from }, { ...to(at), updatedAt: at }))

    return IdempotencyStore.of({
      lease,
      lookUp,
      reserve,
      peek: (key, text) =>
        Effect.flatMap(lookUp(key), (entry) =>
          entry === undefined
            ? Effect.succeed(undefined)
            : Effect.map(digestOf(text), (digest) => inTheWay(entry, digest))),
      renew: (key, owner) => {
        const renew = (from: RowState) => write(key, owner, from, (at) => ({ leaseUntil: at + lease }))
        return Effect.flatMap(reserved(renew), (done) => done ? Effect.succeed(true) : renew(undoing))
      },
      settle: (key, owner, outcome) =>
        reserved((from) =>
          write(key, owner, from, (at) => ({
            state: "applied",
            leaseUntil: 0,
            expiresAt: forgotten(at),
            body: bodyOf(kept(outcome, maxResult))
          }))
        ),
      markUnknown: (key, owner, note) => reserved((from) => write(key, owner, from, () => unknown(note))),
      free: (key, owner) =>
        reserved((from) =>
          from === takenOver
            ? write(key, owner, from, () => unknown("an earlier run may have done it"))
            : store.change(kind, idOf(key), { owner, state: from }, undefined)
        ),
      undo: (key, owner, to, note) => {
        const undo = (from: RowState) =>
          to === "free"
            ? store.change(kind, idOf(key), { owner, state: from }, undefined)
            : write(key, owner, from, (at) => ({
              state: to,
              leaseUntil: to === "undoing" ? at + lease : 0,
              expiresAt: to === "undone" ? forgotten(at) : null,
              body: bodyOf({ note })
            }))
        return Effect.gen(function*() {
          return (yield* undo("applied")) || (yield* undo("unknown")) || (yield* undo(undoing))
        })
      },
      list: (options) => {
        const { after, limit = 100, state, tenant } = options ?? {}
        const from = after === undefined ? undefined : idOf(after)
        return Effect.flatMap(now, (at) => {
          /** The first records in rows of a state that are as asked for. */
          const some = (rowState: string | undefined, first: string | undefined, most: number) =>
            Effect.gen(function*() {
              const found: Array<Entry> = []
              for (let last = first;;) {
                const rows = yield* store.list({ kind, tenant, state: rowState, after: last, limit: pageSize })
                for (const row of rows) {
                  if (TurnStore.mayGo(row, at)) continue
                  const entry = yield* entryOf(row, at)
                  if (state === undefined || entry.state === state) found.push(entry)
                }
                if (rows.length < pageSize || found.length >= most) return found.slice(0, most)
                last = rows[rows.length - 1]!.id
              }
            })
          if (!(limit >= 1)) return Effect.succeed([])
          if (state !== "unknown" && state !== "reserved") return some(state, from, limit)
          // What has been lost is unknown, and its row says reserved still. Rows of several states have an order together which is not the
          // store's: all of them are read, since there are few.
          return Effect.map(
            Effect.forEach(
              ["reserved", takenOver, undoing, ...(state === "unknown" ? ["unknown"] : [])],
              (rowState) => some(rowState, undefined, Infinity)
            ),
            (all) =>
              all.flat().filter((entry) => from === undefined || idOf(entry.key) > from).sort((a, b) =>
                idOf(a.key) < idOf(b.key) ? -1 : 1
              ).slice(0, limit)
          )
        })
      },
      resolve: (key, resolution) =>
        Effect.gen(function*() {
          const id = idOf(key)
          const row = yield* store.get(kind, id)
          const at = yield* now
          if (row === undefined || TurnStore.mayGo(row, at)) {
            return yield* new NotInDoubt({ tool: key.tool, state: "free" })
          }
          const entry = yield* entryOf(row, at)
          if (entry.state !== "unknown" && entry.resolved !== true) {
            return yield* new NotInDoubt({ tool: key.tool, state: entry.state })
          }
          const outcome = resolution._tag === "Applied" && resolution.result !== undefined
            ? kept(resolved(key.tool, resolution.result), maxResult)
            : { note: "it was resolved by hand, without a result" }
          const changed = yield* store.change(
            kind,
            id,
            { state: row.state, owner: row.owner, leaseUntil: row.leaseUntil },
            resolution._tag === "NotApplied" ? undefined : {
              state: "applied",
              leaseUntil: 0,
              expiresAt: forgotten(at),
              updatedAt: at,
              body: bodyOf({ ...outcome, resolved: true })
            }
          )
          if (changed) {
            return
          }
          // Somebody else has said what became of it, or runs it again.
          const known = yield* lookUp(key)
          return yield* new NotInDoubt({ tool: key.tool, state: known?.state ?? "free" })
        }),
      expire: Effect.flatMap(now, store.expire)
    })
  })
}

/** What a call is told whose write is known to have taken effect, with its result as JSON. */
const resolved = (name: string, result: unknown): Outcome.Encoded => ({
  position: 0,
  id: "",
  name,
  status: "ok",
  started: true,
  effect: "applied",
  retryable: false,
  result
})

/**
 * Records of keys in a `TurnStore`. Impossible options are thrown here, where they are written.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (options?: Options): Layer.Layer<IdempotencyStore, never, TurnStore.TurnStore> =>
  Layer.effect(IdempotencyStore, make(options))

/**
 * Records of keys in memory, for one process: a crash loses them, and with them what they guard.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory: Layer.Layer<IdempotencyStore> = Layer.provide(
  layer({ digest: "text" }),
  Layer.fresh(TurnStore.layerMemory)
)

type Needs = IdempotencyStore | TurnContext.Tenant

/**
 * Gives a write an idempotency key that our own record alone guards.
 *
 * **Details**
 *
 * The same key again gives the recorded result. Where the record does not know what became of the write, the call is answered
 * `in_doubt` and not run: see {@link IdempotencyStore} for how that is resolved. Such a write is never interrupted. The store, and the
 * tenant, become requirements of the tool: leaving them out does not compile.
 *
 * `options.scope` says whether the same key means the same write in all conversations of a tenant. Default: `"conversation"`.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const record = <T extends Tool.Any>(
  key: (params: Tool.Parameters<T>, place: ToolPolicy.Place) => string,
  options?: { readonly scope?: "conversation" | "tenant" | undefined }
) =>
(tool: T): ToolPolicy.Needing<T, Needs> & ToolPolicy.Retryable =>
  keyed(tool, { mode: "record", key, scope: options?.scope ?? "conversation", store: IdempotencyStore })

/**
 * Gives a write an idempotency key, and a way to ask what became of it.
 *
 * **Details**
 *
 * Where the effect of a key is unknown, `ask` is asked before the write is run again: what was applied is answered with its result, what
 * was not is run, and what nobody knows is `in_doubt`. Such a write may be interrupted. What `ask` needs becomes a requirement of the
 * tool; it runs within the tool's running clock, and may be interrupted, so it must only read. What fails knows nothing.
 *
 * **Gotchas**
 *
 * "Not applied" has to mean that it will not be applied either. A request that was interrupted, or whose process has died, may still be under
 * way: a backend that cannot tell is to be answered for with {@link notKnown} until that time is over.
 *
 * `options.scope` says whether the same key means the same write in all conversations of a tenant. Default: `"conversation"`.
 *
 * @category combinators
 * @since 0.1.0
 * @stability experimental
 */
export const verify = <T extends Tool.Any, E, R>(options: {
  readonly key: (params: Tool.Parameters<T>, place: ToolPolicy.Place) => string
  readonly ask: (
    params: Tool.Parameters<T>,
    key: string
  ) => Effect.Effect<ToolPolicy.Verdict<Tool.Success<T>>, E, R>
  readonly scope?: "conversation" | "tenant" | undefined
}) =>
(tool: T): ToolPolicy.Needing<T, Needs | R> & ToolPolicy.Retryable =>
  keyed(tool, {
    mode: "verify",
    key: options.key,
    ask: options.ask,
    scope: options.scope ?? "conversation",
    store: IdempotencyStore
  })

const keyed = (tool: Tool.Any, idempotency: ToolPolicy.Idempotency): any =>
  tool.annotate(ToolPolicy.IdempotencyAnnotation, idempotency)

/**
 * The write took effect, with this result.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const applied = <A>(result: A): ToolPolicy.Verdict<A> => ({ _tag: "Applied", result })

/**
 * The write did not take effect, and will not.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const notApplied: ToolPolicy.Verdict<never> = { _tag: "NotApplied" }

/**
 * Nobody knows whether the write took effect.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const notKnown: ToolPolicy.Verdict<never> = { _tag: "NotKnown" }
