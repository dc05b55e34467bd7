/**
 * The records of items that carry an idempotency key (rule R23).
 *
 * - K1: an item is sent with its key reserved. What became of it is written down before it is told.
 * - K2: what may have been applied is never freed.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import * as SchemaParser from "effect/SchemaParser"
import * as IdempotencyStore from "../../IdempotencyStore.ts"
import type * as Outcome from "../../Outcome.ts"
import * as TurnContext from "../../TurnContext.ts"
import { failureText } from "./result.ts"

type Store = IdempotencyStore.IdempotencyStore["Service"]

/** What became of an item of a write. */
export interface Written {
  readonly status: "ok" | "invalid" | "not_applied" | "error" | "timeout" | "in_doubt" | "key_reused"
  readonly effect: "none" | "applied" | "unknown"
  readonly value?: unknown
  readonly replayed?: true
  readonly message?: string
  readonly retryable?: boolean
  readonly failure?: unknown
}

/** An item that is to be written. */
export class Entry {
  readonly id: string
  readonly item: unknown
  readonly idempotencyKey: string | undefined
  /** The canonical text of the item. */
  readonly digest: string
  /** An earlier run may have applied it. */
  inDoubt = false
  constructor(id: string, item: unknown, idempotencyKey: string | undefined, digest: string) {
    this.id = id
    this.item = item
    this.idempotencyKey = idempotencyKey
    this.digest = digest
  }
}

/** What the records say of an item: it is to be sent, somebody is at it, or what it came to. */
export type Verdict =
  | { readonly _tag: "go" }
  | { readonly _tag: "busy" }
  | { readonly _tag: "told"; readonly written: Written }

const go: Verdict = { _tag: "go" }
const busy: Verdict = { _tag: "busy" }

const reserved = (entry: Entry, again: boolean): Verdict => {
  entry.inDoubt = again
  return go
}

const told = (status: Written["status"], effect: Written["effect"], message: string, retryable: boolean): Verdict => ({
  _tag: "told",
  written: { status, effect, message, retryable }
})

export interface Idempotency {
  readonly mode: "forward" | "record"
  readonly key: (item: any) => string
  readonly scope?: "conversation" | "tenant" | undefined
}

/** The records of one call. Without a store there are none, and every item is to be sent. */
export class Records {
  private readonly store: Store | undefined
  private readonly tool: string
  private readonly idempotency: Idempotency | undefined
  private readonly success: Schema.Codec<any, any>
  private readonly tenant: string
  private readonly conversation: string | undefined
  private readonly owner: string

  private constructor(
    store: Store | undefined,
    tool: string,
    idempotency: Idempotency | undefined,
    success: Schema.Codec<any, any>,
    tenant: string,
    conversation: string | undefined,
    owner: string
  ) {
    this.store = store
    this.tool = tool
    this.idempotency = idempotency
    this.success = success
    this.tenant = tenant
    this.conversation = conversation
    this.owner = owner
  }

  static make(
    tool: string,
    idempotency: Idempotency | undefined,
    success: Schema.Codec<any, any>,
    tenant: string
  ): Effect.Effect<Records, never, any> {
    return Effect.gen(function*() {
      const store: Store | undefined = idempotency === undefined
        ? undefined
        : idempotency.mode === "record"
        ? yield* IdempotencyStore.IdempotencyStore
        : Option.getOrUndefined(yield* Effect.serviceOption(IdempotencyStore.IdempotencyStore))
      const call = yield* TurnContext.CurrentCall
      const conversation = call === undefined ? yield* TurnContext.Conversation : call.identity.conversation
      const random = yield* Random.Random
      const owner = TurnContext.newId("items", () => random.nextDoubleUnsafe())
      return new Records(store, tool, idempotency, success, tenant, conversation, owner)
    })
  }

  private keyOf(entry: Entry): IdempotencyStore.Key {
    const { conversation, idempotency, tenant, tool } = this
    return {
      tenant,
      ...(conversation === undefined || idempotency!.scope === "tenant" ? undefined : { conversation }),
      tool,
      key: entry.idempotencyKey!
    }
  }

  /** Looks, and waits for whoever is at the item. */
  look(entry: Entry): Effect.Effect<Verdict> {
    const { store } = this
    if (store === undefined || entry.idempotencyKey === undefined) return Effect.succeed(go)
    const once = Effect.suspend(() => store.peek(this.keyOf(entry), entry.digest)).pipe(
      Effect.flatMap((found) => found === undefined ? Effect.succeed(go) : this.inTheWay(found, entry)),
      unavailable
    )
    return Effect.repeat(once, { while: ({ _tag }) => _tag === "busy", schedule: asking })
  }

  /** Reserves the key of an item. Interrupted, it gives it back. */
  reserve(entry: Entry): Effect.Effect<Verdict> {
    const { owner, store } = this
    if (store === undefined || entry.idempotencyKey === undefined) return Effect.succeed(go)
    const key = this.keyOf(entry)
    const again = this.idempotency!.mode === "forward"
    return Effect.suspend(() => store.reserve(key, { digest: entry.digest, owner, again })).pipe(
      Effect.flatMap((found) =>
        found._tag === "Reserved" ? Effect.succeed(reserved(entry, found.again)) : this.inTheWay(found, entry)
      ),
      Effect.onInterrupt(() => this.free(entry)),
      unavailable
    )
  }

  private inTheWay(
    found: Exclude<IdempotencyStore.Reservation, { readonly _tag: "Reserved" }>,
    entry: Entry
  ): Effect.Effect<Verdict> {
    if (found._tag === "Reused") {
      return Effect.succeed(told("key_reused", "none", "its idempotency key stands for another item", false))
    }
    const { note, outcome, state } = found.entry
    switch (state) {
      case "reserved":
        return Effect.succeed(busy)
      case "undone":
        return Effect.succeed(
          told("key_reused", "none", "its idempotency key stands for a write that was done and undone", false)
        )
      case "unknown":
        return Effect.succeed(
          this.idempotency!.mode === "forward"
            ? reserved(entry, true)
            : told(
              "in_doubt",
              "unknown",
              `nobody knows whether it was applied before${
                note === undefined ? "" : ` (${note})`
              }, so it was not sent again`,
              false
            )
        )
      case "applied": {
        const lost = told("error", "applied", "it was applied before, and its result was not kept", false)
        return outcome === undefined || !("result" in outcome)
          ? Effect.succeed(lost)
          : SchemaParser.decodeUnknownEffect(this.success)(outcome.result).pipe(
            Effect.map((value): Verdict => ({
              _tag: "told",
              written: { status: "ok", value, effect: "applied", replayed: true }
            })),
            Effect.catchCause(() => Effect.succeed(lost))
          )
      }
    }
  }

  /** Keeps the reservations of items while something is done. */
  keeping<A, E, R>(entries: ReadonlyArray<Entry>, self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    const { store } = this
    if (store === undefined) return self
    const keyed = entries.filter(({ idempotencyKey }) => idempotencyKey !== undefined)
    const renew = Effect.forEach(keyed, (entry) => Effect.ignore(store.renew(this.keyOf(entry), this.owner)), {
      discard: true
    })
    const renewing = Effect.forever(Effect.andThen(Effect.sleep(Math.max(1, store.lease / 3)), renew))
    return Effect.flatMap(
      Effect.forkChild(renewing),
      (fiber) => Effect.onExit(self, () => Fiber.interrupt(fiber))
    )
  }

  free(entry: Entry): Effect.Effect<void> {
    return this.tell("free a key", (store) => store.free(this.keyOf(entry), this.owner), entry)
  }

  /** Writes down what became of an item that was sent. */
  settle(entry: Entry, written: Written): Effect.Effect<void> {
    const { owner } = this
    if (written.effect === "none") return this.free(entry)
    return this.tell("keep what became of an item", (store) =>
      written.effect === "applied"
        ? store.settle(this.keyOf(entry), owner, this.outcomeOf(written))
        : store.markUnknown(this.keyOf(entry), owner, written.message ?? "nothing is known of it"), entry)
  }

  private outcomeOf({ status, value }: Written): Outcome.Encoded {
    // Where the answer has no result, the record has none.
    const encoded = status === "ok" ? SchemaParser.encodeUnknownExit(this.success)(value) : Exit.void
    return {
      position: 0,
      id: "",
      name: this.tool,
      status: "ok",
      started: true,
      effect: "applied",
      retryable: false,
      ...(status === "ok" && Exit.isSuccess(encoded) ? { result: encoded.value } : undefined)
    }
  }

  /** A step that is tried some times; what the store does not take is in the log. */
  private tell(
    what: string,
    step: (store: Store) => Effect.Effect<unknown, unknown>,
    entry: Entry
  ): Effect.Effect<void> {
    const { store } = this
    if (store === undefined || entry.idempotencyKey === undefined) return Effect.void
    return Effect.suspend(() => step(store)).pipe(
      Effect.retry({ schedule: Schedule.exponential(50), times: 5 }),
      Effect.timeout(5000),
      Effect.catchCause((cause) => Effect.logWarning(`the idempotency store could not ${what}`, cause))
    )
  }
}

/** How often a key is looked at that somebody else has. */
const asking = Schedule.min([Schedule.exponential(20), Schedule.spaced(1000)])

/** A store that cannot be asked: the item is not sent. */
const unavailable = (step: Effect.Effect<Verdict, unknown>): Effect.Effect<Verdict> =>
  Effect.catch(step, (error) =>
    Effect.succeed(
      told("not_applied", "none", `it was not sent, for its key could not be reserved: ${failureText(error)}`, true)
    ))
