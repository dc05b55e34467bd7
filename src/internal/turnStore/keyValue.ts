/**
 * Rows in a key-value store, which has no compare-and-set: one process alone writes to it, and a lock says which.
 *
 * - W1: a row is written under two names, one after the other, first over the one that is not the newest. Whoever is killed while it
 *   writes leaves one of them whole: the step was done, or not at all. It is answered after the second.
 * - W2: what is under one name alone and is cut short is an insert that was never answered: there is no row. A row of which nothing
 *   can be read otherwise is an error that names it.
 * - W3: before each write the lock is read again, and it is renewed every third of its lease. Once it is another's, every step fails.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as TurnContext from "../../TurnContext.ts"
import type { Row } from "../../TurnStore.ts"
import { Problem, type Steps } from "./guard.ts"
import { fits, listed, mayGo, patched } from "./rows.ts"
import { sha256 } from "./text.ts"

export interface Options {
  readonly prefix: string
  /** Of the lock, in milliseconds. */
  readonly lease: number
}

// The text of a row.

interface Version {
  readonly version: number
  readonly row: Row
}

/** What is under one name: nothing, a row, something cut short, or something else. */
type Slot = undefined | Version | "cut" | "unreadable"

/** A checksum of 32 bits (FNV-1a), enough to tell what is whole. */
const sum = (text: string): string => {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, "0")
}

/** A line with the format, the version, the length and the sum of what follows. JSON has no half of a pair, and no NUL. */
const textOf = ({ row, version }: Version): string => {
  const json = JSON.stringify(row)
  return `1 ${version} ${json.length} ${sum(json)}\n${json}`
}

const slotOf = (text: string | undefined, decode: (json: string) => Row | undefined): Slot => {
  if (text === undefined) return undefined
  const [, version, length, hash] = /^1 (\d+) (\d+) ([0-9a-f]{8})\n/.exec(text) ?? []
  if (version === undefined) return /^(1( (\d+( (\d+( [0-9a-f]{0,8})?)?)?)?)?)?$/.test(text) ? "cut" : "unreadable"
  const json = text.slice(text.indexOf("\n") + 1)
  if (json.length < Number(length)) return "cut"
  const row = json.length === Number(length) && sum(json) === hash ? decode(json) : undefined
  return row === undefined ? "unreadable" : { version: Number(version), row }
}

// The lock.

const Lock = Schema.fromJsonString(Schema.Struct({
  owner: Schema.String,
  lease: Schema.Number,
  /** In milliseconds since the epoch. */
  until: Schema.Number
}))

const decodeLock = Schema.decodeUnknownOption(Lock)

interface Held {
  readonly text: string
  /** Undefined where it cannot be read: it may be in the middle of being written. */
  readonly lock: typeof Lock.Type | undefined
}

/** Stores that this process has a layer over, with the prefixes. */
const taken = new WeakMap<object, Set<string>>()

const advice =
  "One process alone may use it, with one layer: share the layer, or give each a store or a prefix of its own"

/** Takes the lock, and keeps it for as long as the scope is open. Gives what every step begins with. */
const hold = (
  kv: KeyValueStore.KeyValueStore,
  { lease, prefix }: Options,
  exclusive: <A>(step: Effect.Effect<A, unknown>) => Effect.Effect<A, unknown>
): Effect.Effect<
  { readonly reading: Effect.Effect<void, unknown>; readonly writing: Effect.Effect<void, unknown> },
  unknown,
  Scope.Scope
> =>
  Effect.gen(function*() {
    const prefixes = taken.get(kv) ?? new Set()
    if (prefixes.has(prefix)) {
      return yield* Effect.fail(new Problem(`another layer of this process is using this store. ${advice}`))
    }
    taken.set(kv, prefixes.add(prefix))
    yield* Effect.addFinalizer(() => Effect.sync(() => prefixes.delete(prefix)))

    const context = yield* Effect.context<never>()
    const owner = TurnContext.newId("lock", () => Context.get(context, Random.Random).nextDoubleUnsafe())
    const name = `${prefix}lock`
    const now = Clock.currentTimeMillis
    const look: Effect.Effect<Held | undefined, unknown> = Effect.map(kv.get(name), (text) => {
      if (text === undefined) return undefined
      const lock = decodeLock(text)
      return { text, lock: lock._tag === "Some" ? lock.value : undefined }
    })
    let until = 0
    const write = Effect.gen(function*() {
      const next = (yield* now) + lease
      yield* kv.set(name, JSON.stringify({ owner, lease, until: next }))
      until = next
    })

    // A lock that nobody renews lapses. Its holder is at work where it changes meanwhile.
    const seen = yield* look
    if (seen !== undefined) {
      const start = yield* now
      const most = seen.lock?.lease ?? lease
      // Of several that wait for the same lock one comes first, and is seen by the others.
      const lapses = Math.ceil(
        start + Math.min(most, (seen.lock?.until ?? Infinity) - start) + 50 * (yield* Random.next)
      )
      while (true) {
        const at = yield* now
        if (at >= lapses) break
        yield* Effect.sleep(Math.min(lapses - at, Math.max(1, most / 20)))
        const later = yield* look
        if (later === undefined) break
        if (later.text !== seen.text && later.lock !== undefined) {
          return yield* Effect.fail(new Problem(`another process is using this store. ${advice}`))
        }
      }
    }

    let lost: Problem | undefined
    const isOurs = Effect.gen(function*() {
      if (lost !== undefined) return yield* Effect.fail(lost)
      const held = yield* look
      if (held === undefined) return false
      if (held.lock === undefined) return yield* Effect.fail(new Problem(`the lock ${name} cannot be read`))
      if (held.lock.owner === owner) return true
      lost = new Problem(`another process has taken the lock ${name} of this store. ${advice}`)
      return yield* Effect.fail(lost)
    })
    yield* Effect.addFinalizer(() =>
      exclusive(Effect.flatMap(isOurs, (is) => is ? kv.remove(name) : Effect.void)).pipe(
        Effect.timeoutOption(lease),
        Effect.ignore
      )
    )
    yield* exclusive(Effect.andThen(write, isOurs))

    const renewal = exclusive(Effect.andThen(isOurs, write))
    yield* Effect.forkScoped(
      Effect.forever(Effect.andThen(Effect.sleep(lease / 3), Effect.exit(renewal)))
    )

    return {
      reading: Effect.suspend(() => lost === undefined ? Effect.void : Effect.fail(lost)),
      writing: Effect.gen(function*() {
        const ours = yield* isOurs
        if (!ours || (yield* now) >= until) yield* write
      })
    }
  })

// The rows.

/** A kind as a part of a name, if it is as plain as ours are. */
const plain = /^[a-z0-9-]{1,40}$/

/** The steps over a store. `isRow` says what a row is. */
export const make = (
  kv: KeyValueStore.KeyValueStore,
  options: Options,
  isRow: (value: unknown) => value is Row
): Effect.Effect<Steps, unknown, Scope.Scope> =>
  Effect.gen(function*() {
    const semaphore = yield* Semaphore.make(1)
    // A step that is late is left to its end, and those after it wait for that.
    const exclusive = <A>(step: Effect.Effect<A, unknown>): Effect.Effect<A, unknown> =>
      semaphore.withPermit(Effect.uninterruptible(step))
    const lock = yield* hold(kv, options, exclusive)
    const reading = <A>(step: Effect.Effect<A, unknown>) => exclusive(Effect.andThen(lock.reading, step))
    const writing = <A>(step: Effect.Effect<A, unknown>) => exclusive(Effect.andThen(lock.writing, step))

    const all = `${options.prefix}row.`
    const kindOf = (kind: string): Effect.Effect<string> =>
      Effect.map(plain.test(kind) ? Effect.succeed(kind) : sha256(JSON.stringify(kind)), (part) => `${all}${part}.`)
    const nameOf = (kind: string, id: string): Effect.Effect<string> =>
      Effect.zipWith(kindOf(kind), sha256(JSON.stringify(id)), (of, hash) => of + hash)

    const decode = (json: string): Row | undefined => {
      try {
        const value: unknown = JSON.parse(json)
        return isRow(value) ? value : undefined
      } catch {
        return undefined
      }
    }
    const slot = (name: string) => Effect.map(kv.get(name), (text) => slotOf(text, decode))

    /** What is under both names: which of them is the newest, and its row. */
    const read = (name: string, of: string) =>
      Effect.gen(function*() {
        const a = yield* slot(`${name}.a`)
        const b = yield* slot(`${name}.b`)
        const isWhole = (slot: Slot): slot is Version => typeof slot === "object"
        const newest = isWhole(b) && (!isWhole(a) || b.version > a.version) ? "b" : "a"
        const found = newest === "b" ? b : a
        if (isWhole(found)) return { newest, found } as const
        const unfinished = (one: Slot, other: Slot) => (one === undefined || one === "cut") && other === undefined
        if (unfinished(a, b) || unfinished(b, a)) return { newest: "b", found: undefined } as const
        return yield* Effect.fail(
          new Problem(
            `the row ${of} cannot be read: what is under ${name}.a and ${name}.b is damaged. Nothing is known of it any more; ` +
              "remove both once it is known by other means what became of it"
          )
        )
      })
    // Its id may be a key, which is told to nobody: the names tell which one it is.
    const titled = (kind: string) => `of the kind ${JSON.stringify(kind)}`

    type Place = Effect.Success<ReturnType<typeof read>>
    const write = (name: string, { found, newest }: Place, row: Row) =>
      Effect.gen(function*() {
        const text = textOf({ version: (found?.version ?? 0) + 1, row })
        yield* kv.set(`${name}.${newest === "a" ? "b" : "a"}`, text)
        yield* kv.set(`${name}.${newest}`, text)
      })
    const remove = (name: string, newest: "a" | "b") =>
      Effect.andThen(kv.remove(`${name}.${newest === "a" ? "b" : "a"}`), kv.remove(`${name}.${newest}`))

    /** The names that begin like this, each once. */
    const names = (beginning: string) =>
      Effect.map(kv.keys, (keys) =>
        new Set(
          keys.filter((key) => key.startsWith(beginning) && /\.[ab]$/.test(key)).map((key) => key.slice(0, -2))
        ))

    return {
      get: (kind, id) =>
        Effect.flatMap(
          nameOf(kind, id),
          (name) => reading(Effect.map(read(name, titled(kind)), ({ found }) => found?.row))
        ),
      insert: (row) =>
        Effect.flatMap(nameOf(row.kind, row.id), (name) =>
          writing(Effect.gen(function*() {
            const place = yield* read(name, titled(row.kind))
            if (place.found === undefined) {
              yield* write(name, place, row)
            }
            return place.found?.row
          }))),
      change: (kind, id, expected, patch) =>
        Effect.flatMap(nameOf(kind, id), (name) =>
          writing(Effect.gen(function*() {
            const place = yield* read(name, titled(kind))
            if (place.found === undefined || !fits(place.found.row, expected)) {
              return false
            }
            if (patch === undefined) {
              yield* remove(name, place.newest)
            } else yield* write(name, place, patched(place.found.row, patch))
            return true
          }))),
      list: (query) =>
        Effect.flatMap(kindOf(query.kind), (beginning) =>
          reading(Effect.gen(function*() {
            const found = yield* Effect.forEach(
              yield* names(beginning),
              (name) => read(name, `under ${name}`),
              { concurrency: 16 }
            )
            return listed(
              found.flatMap(({ found }) => found === undefined ? [] : [found.row]),
              query
            )
          }))),
      expire: (now, most) =>
        writing(Effect.gen(function*() {
          let gone = 0
          for (const name of yield* names(all)) {
            // What cannot be read is not to be forgotten.
            const place = yield* Effect.orElseSucceed(read(name, `under ${name}`), () => undefined)
            if (place?.found === undefined || !mayGo(place.found.row, now)) continue
            yield* remove(name, place.newest)
            if (++gone >= most) break
          }
          return gone
        }))
    }
  })
