/**
 * What was started and what was settled. Starting a call is one step: the stop is checked, the call is written down
 * as reserved, and the stop is checked again; only then does its handler run. Before the start there is certainly no effect,
 * after it there may be one.
 *
 * The service is optional: a turn writes to it when it is in the context. A journal that cannot be written starts nothing: the
 * call is `store_unavailable`, and may be tried again. A call that is in the journal already, by its turn and position, is not run again: it
 * gets the outcome that was settled, or is `in_doubt` when it was only begun.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Outcome from "./Outcome.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnError from "./TurnError.ts"
import * as TurnStore from "./TurnStore.ts"

/**
 * The call that an entry is about. A call is known by its tenant, turn and position, never by its id.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallKey {
  readonly tenant: string
  readonly conversation: string | undefined
  readonly turn: string
  readonly position: number
  readonly id: string
  readonly tool: string
  /** What stands for the arguments: a turn id stands for one list of calls. */
  readonly digest: string
  readonly idempotencyKey: string | undefined
}

/**
 * Where a call stands in the journal: `reserved` may have started, `settled` has its outcome.
 *
 * **Details**
 *
 * - `lost`: its owner was not heard of for longer than its lease when this was read. Nobody knows what became of the call, unless the
 *   owner was only late.
 * - `note`: why the outcome is not the one that the call was answered: its result was too long to be kept, or was no JSON. A success is
 *   an error with the code `unencodable_result` then, with the effect that it had.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Entry =
  | {
    readonly _tag: "reserved"
    readonly key: CallKey
    readonly owner: string
    readonly leaseUntil: number
    readonly lost: boolean
  }
  | {
    readonly _tag: "settled"
    readonly key: CallKey
    readonly outcome: Outcome.Encoded
    readonly note?: string
  }

/**
 * What an attempt to reserve a call came to: it is ours (`again` where an owner before us has lost it), or what is known of it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Reservation =
  | { readonly _tag: "Reserved"; readonly again: boolean }
  | { readonly _tag: "Taken"; readonly entry: Entry }

/**
 * The journal of turns.
 *
 * **Details**
 *
 * Laws, which every layer has to satisfy:
 *
 * - after `reserve` has given a call, it is among `entries` as reserved, until it is freed or settled;
 * - of many that reserve a call at once exactly one has it, whatever process they are in; no call is started twice;
 * - `reserve` of a call that is there gives what is known, and changes nothing, but for one that its owner has lost, when `again` is said;
 * - `renew`, `free` and `settle` do something only for the owner of a reserved call, also when its lease is over and nobody has taken it
 *   since; `free` forgets the call: it may be reserved again;
 * - `settle` keeps the first outcome, and `amend` by the same owner is all that changes it;
 * - `entries` are in the order of positions, those of one turn of one tenant;
 * - each step is atomic: interrupted or failed, it was done whole or not at all.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class TurnJournal extends Context.Service<TurnJournal, {
  /** How long a call stays reserved without a word of its owner, in milliseconds. */
  readonly lease: number
  readonly reserve: (
    key: CallKey,
    options: {
      /** Who will run it: another text for each run of a turn. */
      readonly owner: string
      /** Takes over what its owner has lost: it is to be run again. */
      readonly again?: boolean | undefined
    }
  ) => Effect.Effect<Reservation, TurnStore.StoreError>
  /** Prolongs a reservation; false where the owner has it no more. */
  readonly renew: (key: CallKey, owner: string) => Effect.Effect<boolean, TurnStore.StoreError>
  /** It was certainly not started. False where the owner has it no more. */
  readonly free: (key: CallKey, owner: string) => Effect.Effect<boolean, TurnStore.StoreError>
  /** False where the owner has it no more, or it is settled already. */
  readonly settle: (
    key: CallKey,
    owner: string,
    outcome: Outcome.Encoded
  ) => Effect.Effect<boolean, TurnStore.StoreError>
  /** What was settled has become something else, for it was undone. False where the owner has not settled it. */
  readonly amend: (
    key: CallKey,
    owner: string,
    outcome: Outcome.Encoded
  ) => Effect.Effect<boolean, TurnStore.StoreError>
  /** The entries of one turn, in the order of positions. */
  readonly entries: (of: {
    readonly tenant: string
    readonly turn: string
  }) => Effect.Effect<ReadonlyArray<Entry>, TurnStore.StoreError>
  /** Forgets what was settled longer ago than it is kept; gives how many entries there were. */
  readonly expire: Effect.Effect<number, TurnStore.StoreError>
}>()("effect-turn/TurnJournal") {}

/**
 * Options of a journal.
 *
 * **Details**
 *
 * - `lease`: how long a call stays reserved without a word of its owner. It bounds how long a crashed turn stands in the way, and how far
 *   the clocks of machines may be apart. Default: 30 seconds.
 * - `keep`: how long a settled call is remembered. A turn that is run again later than that runs its calls again, so keep them longer
 *   than a turn may wait. Default: 7 days; what was only reserved is kept for ever.
 * - `maxResult`: the longest outcome that is kept whole, in characters of JSON. Default: 1,000,000.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly lease?: Duration.Input | undefined
  readonly keep?: Duration.Input | "infinite" | undefined
  readonly maxResult?: number | undefined
}

const kind = "call"

/** Padded, so that the order of the ids is the order of the positions. */
const idOf = ({ position, tenant, turn }: CallKey): string =>
  JSON.stringify([tenant, turn, String(position).padStart(16, "0")])

const groupOf = (tenant: string, turn: string): string => JSON.stringify([tenant, turn])

const decodeId = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Tuple([Schema.String, Schema.String, Schema.FiniteFromString]))
)

/** What a row holds besides its columns. */
const Body = Schema.fromJsonString(Schema.Struct({
  format: Schema.Literal(1),
  id: Schema.String,
  tool: Schema.String,
  conversation: Schema.optionalKey(Schema.String),
  idempotencyKey: Schema.optionalKey(Schema.String),
  outcome: Schema.optionalKey(Outcome.Encoded),
  note: Schema.optionalKey(Schema.String)
}))
const decodeBody = Schema.decodeUnknownEffect(Body)

const bodyOf = (
  { conversation, id, idempotencyKey, tool }: CallKey,
  more?: { readonly outcome: Outcome.Encoded; readonly note?: string }
): string => JSON.stringify({ format: 1, id, tool, conversation, idempotencyKey, ...more })

/** The entry in a row, as it is now: whoever was silent for too long has lost it. */
const entryOf = (row: TurnStore.Row, now: number): Effect.Effect<Entry, TurnStore.StoreError> =>
  Effect.mapError(
    Effect.gen(function*() {
      const [tenant, turn, position] = yield* decodeId(row.id)
      const { conversation, id, idempotencyKey, note, outcome, tool } = yield* decodeBody(row.body)
      const { digest, leaseUntil, owner, state } = row
      const key: CallKey = { tenant, conversation, turn, position, id, tool, digest, idempotencyKey }
      if (state === "reserved") return { _tag: "reserved", key, owner, leaseUntil, lost: leaseUntil <= now } as const
      if (state !== "settled" || outcome === undefined) return yield* Effect.fail(undefined)
      return { _tag: "settled", key, outcome, ...(note === undefined ? undefined : { note }) } as const
    }),
    () =>
      new TurnStore.StoreError({
        store: "the journal",
        operation: "get",
        // What else is in the row may be a key.
        description: `expected an entry of format 1 in the row ${row.id}, and got another one in the state ${
          JSON.stringify(row.state)
        }`
      })
  )

/** The outcome as it is kept: whole, or without what could not be kept. */
const kept = (outcome: Outcome.Encoded, max: number): { readonly outcome: Outcome.Encoded; readonly note?: string } => {
  let text: string | undefined
  try {
    text = JSON.stringify(outcome)
  } catch {
    // That it is settled, and with which effect, is kept all the same.
  }
  if (text !== undefined && text.length <= max) return { outcome }
  const note = text === undefined
    ? "it could not be written as JSON"
    : `it is longer than is kept: ${text.length} characters of ${max}`
  const { failure: _, message: __, reason: ___, result: ____, ...rest } = outcome
  if (outcome.status !== "ok") {
    return { note, outcome: { ...rest, message: `what it was answered is not known: ${note}` } }
  }
  const message = outcome.effect === "applied"
    ? `the call took effect, but its result cannot be given: ${note}; do not call it again for the result`
    : `the result cannot be given: ${note}`
  return { note, outcome: { ...rest, status: "error", code: "unencodable_result", retryable: false, message } }
}

const pageSize = 500

const make = (options: Options | undefined): Effect.Effect<TurnJournal["Service"], never, TurnStore.TurnStore> => {
  const here = "TurnJournal.layer"
  const lease = ToolPolicy.finiteMillis(here, "lease", options?.lease ?? "30 seconds")
  const keep = ToolPolicy.limitMillis(here, "keep", options?.keep ?? "7 days")
  const maxResult = TurnError.wholeNumber(here, "maxResult", options?.maxResult ?? 1_000_000)
  return Effect.gen(function*() {
    const store = yield* TurnStore.TurnStore
    const now = Clock.currentTimeMillis

    const reserve: TurnJournal["Service"]["reserve"] = (key, { again, owner }) =>
      TurnStore.claim(
        store,
        (at) => ({
          kind,
          id: idOf(key),
          tenant: key.tenant,
          group: groupOf(key.tenant, key.turn),
          digest: key.digest,
          state: "reserved",
          owner,
          leaseUntil: at + lease,
          expiresAt: null,
          createdAt: at,
          updatedAt: at,
          body: bodyOf(key)
        }),
        "reserved",
        (row, at) =>
          Effect.map(entryOf(row, at), (entry) =>
            entry._tag === "reserved" && entry.lost && again === true
              ? undefined
              : { _tag: "Taken", entry } as const),
        () =>
          new TurnStore.StoreError({
            store: "the journal",
            operation: "insert",
            description: "others changed the call too often meanwhile"
          })
      )

    const write = (
      key: CallKey,
      expected: TurnStore.Expected,
      to: (at: number) => Omit<TurnStore.Patch, "updatedAt">
    ) => Effect.flatMap(now, (at) => store.change(kind, idOf(key), expected, { ...to(at), updatedAt: at }))

    const settledAs = (key: CallKey, outcome: Outcome.Encoded) => (at: number) => ({
      state: "settled",
      leaseUntil: 0,
      expiresAt: keep === Infinity ? null : at + keep,
      body: bodyOf(key, kept(outcome, maxResult))
    })

    return TurnJournal.of({
      lease,
      reserve,
      renew: (key, owner) => write(key, { owner, state: "reserved" }, (at) => ({ leaseUntil: at + lease })),
      free: (key, owner) => store.change(kind, idOf(key), { owner, state: "reserved" }, undefined),
      settle: (key, owner, outcome) => write(key, { owner, state: "reserved" }, settledAs(key, outcome)),
      amend: (key, owner, outcome) => write(key, { owner, state: "settled" }, settledAs(key, outcome)),
      entries: ({ tenant, turn }) =>
        Effect.gen(function*() {
          const at = yield* now
          const found: Array<Entry> = []
          let after: string | undefined
          for (;;) {
            const rows = yield* store.list({ kind, group: groupOf(tenant, turn), after, limit: pageSize })
            for (const row of rows) if (!TurnStore.mayGo(row, at)) found.push(yield* entryOf(row, at))
            if (rows.length < pageSize) return found
            after = rows[rows.length - 1]!.id
          }
        }),
      expire: Effect.flatMap(now, store.expire)
    })
  })
}

/**
 * A journal in a `TurnStore`. Impossible options are thrown here, where they are written.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (options?: Options): Layer.Layer<TurnJournal, never, TurnStore.TurnStore> =>
  Layer.effect(TurnJournal, make(options))

/**
 * A journal in memory, for one process: a crash loses it.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory: Layer.Layer<TurnJournal> = Layer.provide(layer(), Layer.fresh(TurnStore.layerMemory))
