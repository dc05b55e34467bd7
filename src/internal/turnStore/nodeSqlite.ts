/** A SqlClient on Node's own SQLite: one connection, for one file that several processes of a machine may share. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Reactivity from "effect/reactivity/Reactivity"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as SqlClient from "effect/sql/SqlClient"
import type { Connection } from "effect/sql/SqlConnection"
import * as SqlError from "effect/sql/SqlError"
import * as Statement from "effect/sql/Statement"
import * as Stream from "effect/Stream"
import type * as NodeSqlite from "node:sqlite"
import { describe, Problem } from "./guard.ts"
import { persistent } from "./persistent.ts"

/** How long a statement waits for the lock of the file before it is told that it is busy: while it waits, its process stands still. */
const busyMillis = 10

/** Statements that are kept ready. */
const mostReady = 100

/** An import would be seen by bundlers for browsers, which have no such module. */
const sqlite = (): typeof NodeSqlite | undefined => {
  const { process } = globalThis as { readonly process?: Partial<NodeJS.Process> }
  return process?.getBuiltinModule?.("node:sqlite")
}

/** SQLite's number of an error is in `errcode`, and Effect looks for it in `code`. */
const errorOf = (cause: unknown, operation: string): SqlError.SqlError => {
  const code = cause instanceof Error ? (cause as { readonly errcode?: unknown }).errcode : undefined
  const numbered = code === undefined ? cause : Object.assign(new Error(describe(cause), { cause }), { code })
  return new SqlError.SqlError({
    reason: SqlError.classifySqliteError(numbered, { message: describe(cause), operation })
  })
}

const connect = (database: NodeSqlite.DatabaseSync): Connection => {
  const ready = new Map<string, NodeSqlite.StatementSync>()
  const prepared = (text: string): NodeSqlite.StatementSync => {
    let statement = ready.get(text)
    if (statement === undefined) {
      if (ready.size >= mostReady) ready.clear()
      ready.set(text, statement = database.prepare(text))
    }
    return statement
  }
  /** Rows of what gives rows, and of all else what was done. */
  const run = <A>(text: string, values: ReadonlyArray<unknown>, arrays: boolean, ofDone: (done: object) => A) =>
    Effect.try({
      try: (): ReadonlyArray<any> | A => {
        const statement = prepared(text)
        const inputs = values as ReadonlyArray<NodeSqlite.SQLInputValue>
        if (statement.columns().length === 0) return ofDone(statement.run(...inputs))
        statement.setReturnArrays(arrays)
        return statement.all(...inputs)
      },
      catch: (cause) => errorOf(cause, "execute")
    })
  const none = (): ReadonlyArray<any> => []
  const execute: Connection["execute"] = (text, values, transform) =>
    Effect.map(run(text, values, false, none), (rows) => transform === undefined ? rows : transform(rows))
  const executeValues: Connection["executeValues"] = (text, values) => run(text, values, true, none)
  return {
    execute,
    executeUnprepared: execute,
    executeRaw: (text, values) => run<unknown>(text, values, false, (done) => done),
    executeValues,
    executeValuesUnprepared: executeValues,
    executeStream: (text, values, transform) => Stream.fromIterableEffect(execute(text, values, transform))
  }
}

/** Opens a file, or makes it. It is closed with the scope. */
export const make = (filename: string, openMillis: number): Effect.Effect<SqlClient.SqlClient, unknown, Scope.Scope> =>
  Effect.gen(function*() {
    const module = sqlite()
    if (module === undefined) {
      return yield* Effect.fail(new Problem("node:sqlite is not there: expected Node.js 22.16 or later"))
    }
    const database = yield* Effect.acquireRelease(
      Effect.try({
        try: () => new module.DatabaseSync(filename),
        catch: (cause) => new Problem(`the file ${filename} could not be opened: ${describe(cause)}`)
      }),
      (database) => Effect.sync(() => database.close())
    )
    const pragma = (text: string) =>
      persistent(
        Effect.try({ try: () => database.exec(`PRAGMA ${text}`), catch: (cause) => errorOf(cause, "open") }),
        openMillis
      )
    yield* pragma(`busy_timeout = ${busyMillis}`)
    // Readers and the one writer do not wait for each other, and what was written outlives a power cut.
    yield* pragma("journal_mode = WAL")
    yield* pragma("synchronous = FULL")
    const semaphore = yield* Semaphore.make(1)
    const reactivity = yield* Effect.map(
      Layer.build(Reactivity.layer),
      (context) => Context.get(context, Reactivity.Reactivity)
    )
    return yield* SqlClient.make({
      ...SqlClient.makeSqliteAcquirers({
        connection: Effect.succeed(connect(database)),
        semaphore,
        isTransaction: () => database.isTransaction
      }),
      compiler: Statement.makeCompilerSqlite(),
      driver: "node:sqlite",
      spanAttributes: [["db.system.name", "sqlite"]],
      // A transaction that begins as a reader and goes on as a writer fails where another has written meanwhile.
      beginTransaction: "BEGIN IMMEDIATE"
    }).pipe(Effect.provideService(Reactivity.Reactivity, reactivity))
  })
