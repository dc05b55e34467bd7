/** Idempotency keys for an operator: which writes are in doubt, and what became of them. */
import * as Clock from "effect/Clock"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as IdempotencyStore from "../IdempotencyStore.ts"
import { again, find, type Which } from "./keyFind.ts"
import * as Lines from "./keyLines.ts"
import * as KeyStore from "./keyStore.ts"
import { Sizes } from "./terminal.ts"
import { clean } from "./text.ts"
import { stdoutPaint } from "./view.ts"

export interface ListFlags extends KeyStore.Flags {
  readonly tenant: Option.Option<string>
  readonly state: IdempotencyStore.State | "all"
  readonly limit: number
  readonly json: boolean
}

export const list = (flags: ListFlags) =>
  Effect.scoped(Effect.gen(function*() {
    const { emptiness, keys, name } = yield* KeyStore.open(flags)
    const tenant = Option.getOrUndefined(flags.tenant)
    const state = flags.state === "all" ? undefined : flags.state
    // These are few, and the store reads all of them anyway.
    const timed = state === "unknown" || state === "reserved"
    const found = yield* Effect.mapError(
      keys.list({ tenant, state, limit: timed ? Infinity : flags.limit + 1 }),
      KeyStore.failed(name, again)
    )
    const entries = (timed ? [...found].sort(Lines.olderFirst) : found).slice(0, flags.limit)
    for (const entry of flags.json ? entries : []) yield* Console.log(Lines.toJson(entry))
    if (!flags.json && entries.length > 0) {
      const { columns } = (yield* Sizes).stdout()
      const now = yield* Clock.currentTimeMillis
      const { hidden, text } = Lines.table(entries, { now, width: columns, paint: yield* stdoutPaint })
      yield* Console.log(text)
      if (hidden.length > 0) {
        yield* Console.error(`too narrow for ${hidden.join(", ")}: see effect-turn keys show ID, or --json`)
      }
    }
    const what = `${state === undefined ? "" : state === "unknown" ? "in doubt " : `${state} `}in ${name}${
      tenant === undefined ? "" : ` of the tenant ${clean(tenant)}`
    }`
    const more = entries.length < found.length
    if (entries.length === 0) yield* Console.error(`no keys ${what}`)
    else if (more || !flags.json) yield* Console.error(Lines.count(entries.length, found.length, what, timed))
    if (entries.length === 0) yield* warn(yield* emptiness)
  }))

const warn = (words: string | undefined): Effect.Effect<void> =>
  words === undefined ? Effect.void : Console.error(`warning: ${words}`)

export const show = (flags: Which & { readonly json: boolean }) =>
  Effect.scoped(Effect.gen(function*() {
    const opened = yield* KeyStore.open(flags)
    const entry = yield* find(opened, flags)
    const now = yield* Clock.currentTimeMillis
    yield* Console.log(flags.json ? Lines.toJson(entry) : Lines.details(entry, { now, paint: yield* stdoutPaint }))
  }))

export const expire = (flags: KeyStore.Flags & { readonly json: boolean }) =>
  Effect.scoped(Effect.gen(function*() {
    const { emptiness, keys, name } = yield* KeyStore.open(flags)
    const forgotten = yield* Effect.mapError(
      keys.expire,
      KeyStore.failed(name, "some may be forgotten all the same: run it again")
    )
    yield* Console.log(
      flags.json
        ? JSON.stringify({ forgotten })
        : `${forgotten} ${forgotten === 1 ? "row" : "rows"} forgotten in ${name}`
    )
    if (forgotten === 0) yield* warn(yield* emptiness)
  }))
