/** Opens the store that `--store` names. Its driver is loaded when it is needed, and may not be installed. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as References from "effect/References"
import type * as Scope from "effect/Scope"
import * as IdempotencyStore from "../IdempotencyStore.ts"
import * as TurnStore from "../TurnStore.ts"
import { describeThrown, Misuse } from "./failure.ts"

export interface Flags {
  readonly store: string
  readonly table: Option.Option<string>
  readonly prefix: Option.Option<string>
}

/** A store that is open. */
export interface Opened {
  readonly keys: IdempotencyStore.IdempotencyStore["Service"]
  /** How it is called where its password may be read by others, and where in it the keys are. */
  readonly name: string
  /** What to say where there is nothing at all in it, of whatever kind: then it is mostly the wrong one. */
  readonly emptiness: Effect.Effect<string | undefined, Misuse>
}

type Keys = Layer.Layer<TurnStore.TurnStore, unknown>

const forms = "sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE or redis://HOST:PORT"

export const open = (flags: Flags): Effect.Effect<Opened, Misuse, FileSystem.FileSystem | Scope.Scope> =>
  Effect.gen(function*() {
    const bare = nameOf(flags)
    const layer = yield* layerOf(flags, bare)
    const { flag, place } = placeOf(flags)
    const name = `${bare} (${place})`
    const context = yield* Effect.mapError(
      // What a driver logs is told once, as the error.
      Effect.provideService(
        Layer.build(Layer.provideMerge(IdempotencyStore.layer(), layer)),
        References.MinimumLogLevel,
        "Error"
      ),
      (error) => error instanceof Misuse ? error : unopened(bare, error)
    )
    const rows = Context.get(context, TurnStore.TurnStore)
    const hasSome = (kind: string) => Effect.map(rows.list({ kind, limit: 1 }), ({ length }) => length > 0)
    const emptiness = Effect.map(Effect.forEach(kinds, hasSome), (some) =>
      some.includes(true)
        ? undefined
        : `there is nothing at all in ${name}: check ${flag}, which has to be as the program gives it to TurnStore`)
    return {
      name,
      keys: Context.get(context, IdempotencyStore.IdempotencyStore),
      emptiness: Effect.mapError(emptiness, failed(name, "try again"))
    }
  })

/** The rows of IdempotencyStore, TurnJournal and ParkedTurns. */
const kinds = ["key", "call", "parked"]

/** What a step of the store that failed is told as. */
export const failed = (name: string, advice: string) => (error: TurnStore.StoreError): Misuse =>
  new Misuse({ what: `the store ${name} has failed`, expected: "an answer", received: error.message, advice })

/** Without its password. */
const nameOf = ({ store }: Flags): string => store.replace(/^(\w+:\/\/)[^/]*@/, "$1").replace(/\?.*$/s, "")

const kindOf = ({ store }: Flags): string | undefined => /^[a-z]+(?=:)/.exec(store)?.[0]

/** Where in the store the keys are, also where no flag has said it. */
const placeOf = (flags: Flags): { readonly flag: string; readonly place: string } =>
  kindOf(flags)?.startsWith("redis") === true
    ? { flag: "--prefix", place: `prefix ${Option.getOrElse(flags.prefix, () => defaultPrefix)}` }
    : { flag: "--table", place: `table ${Option.getOrElse(flags.table, () => defaultTable)}` }

const layerOf = (flags: Flags, name: string): Effect.Effect<Keys, Misuse, FileSystem.FileSystem> => {
  switch (kindOf(flags)) {
    case "sqlite":
      return Effect.andThen(without(flags, "prefix", "redis"), sqlite(flags, name))
    case "postgres":
    case "postgresql":
      return Effect.andThen(without(flags, "prefix", "redis"), postgres(flags, name))
    case "redis":
    case "rediss":
      return Effect.andThen(without(flags, "table", "sqlite and postgres"), redis(flags, name))
    default:
      return new Misuse({
        what: "--store names no store",
        expected: forms,
        received: name,
        advice:
          "give the store that the program keeps its keys in; one in memory, or in a key-value store, has one process alone"
      })
  }
}

const without = (flags: Flags, flag: "table" | "prefix", of: string): Effect.Effect<void, Misuse> =>
  Option.isNone(flags[flag]) ? Effect.void : new Misuse({
    what: `--${flag} is not for this store`,
    expected: `--${flag} with ${of}`,
    received: `--${flag} ${flags[flag].value}`,
    advice: `leave it out, or see "effect-turn keys --help"`
  })

/** A name that was misspelt must not make a table. */
const isThere = (store: string, table: string, name: string): Effect.Effect<never, Misuse> =>
  new Misuse({
    what: `the store ${name} has no keys`,
    expected: `a table ${table}`,
    received: `a database without it`,
    advice: `check ${store}, and give --table as the program gives it to TurnStore`
  })

const defaultTable = "effect_turn_rows"
const defaultPrefix = "effect-turn"

/** What is thrown here, such as a bad name of a table, is told as a store that cannot be opened. */
const layered = <R>(
  name: string,
  make: () => Layer.Layer<TurnStore.TurnStore, unknown, R>
): Layer.Layer<TurnStore.TurnStore, unknown, R> =>
  Layer.unwrap(Effect.try({ try: make, catch: (error) => unopened(name, error) }))

const unopened = (name: string, error: unknown): Misuse =>
  new Misuse({
    what: `cannot open the store ${name}`,
    expected: "a store that answers, with the rights to read and write it",
    received: reasonOf(error),
    advice: "check that it is up, and what --store says"
  })

/** What a driver says, which may be deep below what its layer says. */
const reasonOf = (error: unknown): string => {
  const said: Array<string> = []
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (at.message !== "" && !said.some((text) => text.includes(at.message))) said.push(at.message)
  }
  return said.length === 0 ? describeThrown(error) : said.join(": ")
}

const sqlite = ({ store, table }: Flags, name: string): Effect.Effect<Keys, Misuse, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const filename = store.slice("sqlite:".length).replace(/^\/\/(?=\/)/, "")
    // One that is not there would be made.
    const info = yield* Effect.option(fs.stat(filename))
    if (Option.isNone(info) || info.value.type !== "File") {
      return yield* new Misuse({
        what: `cannot open the store ${name}`,
        expected: "sqlite: and the path of a file",
        received: filename === ""
          ? "sqlite: without a path"
          : Option.isNone(info)
          ? `no such file: ${filename}`
          : `no file: ${filename}`,
        advice: filename === "" ? "say which file, such as sqlite:./turns.db" : "check the path"
      })
    }
    const asked = Option.getOrElse(table, () => defaultTable)
    const { DatabaseSync } = yield* driver("node:sqlite", () => import("node:sqlite"), name)
    const known = yield* Effect.try({
      try: () => {
        const database = new DatabaseSync(filename, { readOnly: true })
        try {
          return database.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?").get(asked) !==
            undefined
        } finally {
          database.close()
        }
      },
      catch: (error) =>
        new Misuse({
          what: `cannot open the store ${name}`,
          expected: "a file of SQLite",
          received: describeThrown(error),
          advice: "check the path"
        })
    })
    if (!known) return yield* isThere("the path", asked, name)
    return layered(name, () => TurnStore.layerSqlite({ filename, table: asked }))
  })

const postgres = ({ store, table }: Flags, name: string): Effect.Effect<Keys, Misuse> =>
  Effect.gen(function*() {
    const PgClient = yield* driver("@effect/sql-pg", () => import("@effect/sql-pg/PgClient"), name)
    const asked = Option.getOrElse(table, () => defaultTable)
    const client = PgClient.layer({ url: Redacted.make(store), applicationName: "effect-turn", maxConnections: 2 })
    const quoted = asked.split(".").map((part) => `"${part}"`).join(".")
    const known = Effect.flatMap(
      PgClient.PgClient,
      (sql) => sql<{ readonly known: boolean }>`SELECT to_regclass(${quoted}) IS NOT NULL AS known`
    )
    return Layer.unwrap(
      Effect.as(
        Effect.flatMap(known, ([row]) => row?.known === true ? Effect.void : isThere("the database", asked, name)),
        layered(name, () => TurnStore.layerSql({ table: asked }))
      )
    ).pipe(Layer.provide(client))
  })

const redis = ({ prefix, store }: Flags, name: string): Effect.Effect<Keys, Misuse> =>
  Effect.map(
    driver("redis", () => import("@effect/platform-node/NodeRedis"), name),
    (NodeRedis) =>
      layered(name, () =>
        Layer.provide(
          TurnStore.layerRedis({ prefix: Option.getOrElse(prefix, () => defaultPrefix) }),
          NodeRedis.layer({ url: store, disableOfflineQueue: true })
        ))
  )

/** Loads a driver, or says what to install. */
const driver = <A>(what: string, load: () => Promise<A>, name: string): Effect.Effect<A, Misuse> =>
  Effect.tryPromise({
    try: load,
    catch: (error) => {
      const { code } = error as NodeJS.ErrnoException
      const missing = code === "ERR_MODULE_NOT_FOUND" || code === "ERR_UNKNOWN_BUILTIN_MODULE"
      return new Misuse({
        what: `the store ${name} needs ${
          what.includes(":") ? `the module ${what} of Node 22.16 or newer` : `the package ${what}`
        }`,
        expected: missing ? "it is installed" : "it can be loaded",
        received: missing ? "it is not there" : describeThrown(error),
        advice: what.includes(":") ? "use a newer Node" : `npm install ${what}`
      })
    }
  })
