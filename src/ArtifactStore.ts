/**
 * The whole of what was cut: results that were too long for the model, kept under an id, to be read page by page.
 *
 * Where {@link ArtifactStore} is in the context, a turn keeps there what it cuts (`ToolPolicy.resultBudget`, `Turn.Options.resultBudget`) and
 * tells the model the id; {@link readTool} is the tool that reads it. A turn waits for the store before it answers, up to five seconds and a grace
 * of five more: what is late is answered as lost, with a warning.
 *
 * - A1: an artifact is found by its tenant and its id together: that of another tenant is not found.
 * - A2: pages that follow one another have every character once, and none begins or ends inside of one, as a reader sees them.
 * - A3: the same place in the same turn has the same id: a turn that is run again replaces what it has kept.
 *
 * @since 0.1.0
 */
import * as Tool from "effect/ai/Tool"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as ResultBudget from "./ResultBudget.ts"
import * as ToolPolicy from "./ToolPolicy.ts"
import * as TurnContext from "./TurnContext.ts"
import * as TurnError from "./TurnError.ts"
import * as TurnStore from "./TurnStore.ts"

/**
 * Which artifact.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Key {
  readonly tenant: string
  readonly id: string
}

/**
 * A part of an artifact. Places are counted in UTF-16 code units, as in the length of a text.
 *
 * **Details**
 *
 * `next` is the `offset` of the page that follows, undefined after the last. `total` is the length of the whole.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Page {
  readonly text: string
  readonly offset: number
  readonly next: number | undefined
  readonly total: number
}

/**
 * A place where a text was found, with what stands around it.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Match {
  readonly offset: number
  readonly excerpt: string
}

/**
 * What a search has found: the first places, and whether there are more.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Found {
  readonly matches: ReadonlyArray<Match>
  readonly more: boolean
  readonly total: number
}

/**
 * The store could not keep or give an artifact.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class ArtifactError extends Schema.TaggedError<ArtifactError>()("ArtifactError", {
  /** Which store: "memory", "the key-value store", … */
  store: Schema.String,
  operation: Schema.Literals(["put", "get"]),
  description: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {
  override get message(): string {
    return `${this.store} could not ${this.operation} an artifact: ${this.description}`
  }
}

/**
 * Where artifacts are kept.
 *
 * **Details**
 *
 * - `put` keeps a text; what stood under the same key is replaced, whole or not at all.
 * - `get` gives a page: from `offset` (default: 0), of at most `length` characters (default: the rest). A page begins or ends a little earlier
 *   where a character, as a reader sees it, would be cut in two; a single one that is longer than the page is given whole, as a page that
 *   is too long. It is undefined where there is no such artifact.
 * - `search` gives the first places (default: 10) from `offset` on at which a text stands, whatever the case of its letters.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class ArtifactStore extends Context.Service<ArtifactStore, {
  readonly put: (key: Key, text: string) => Effect.Effect<void, ArtifactError>
  readonly get: (
    key: Key,
    range?: { readonly offset?: number | undefined; readonly length?: number | undefined }
  ) => Effect.Effect<Page | undefined, ArtifactError>
  readonly search: (
    key: Key,
    text: string,
    options?: { readonly offset?: number | undefined; readonly limit?: number | undefined }
  ) => Effect.Effect<Found | undefined, ArtifactError>
}>()("effect-turn/ArtifactStore") {}

/** Where texts lie, by a name that is made of tenant and id. */
interface Shelf {
  readonly put: (key: Key, text: string) => Effect.Effect<void, ArtifactError>
  readonly read: (key: Key) => Effect.Effect<string | undefined, ArtifactError>
}

/** Pages and searches are the same everywhere. */
const over = ({ put, read }: Shelf): ArtifactStore["Service"] => ({
  put,
  get: (key, range) => Effect.map(read(key), (text) => text === undefined ? undefined : pageOf(text, range)),
  search: (key, wanted, options) =>
    Effect.map(read(key), (text) => text === undefined ? undefined : foundIn(text, wanted, options))
})

const within = (n: number | undefined, otherwise: number): number =>
  n === undefined || Number.isNaN(n) ? otherwise : Math.max(0, Math.floor(n))

const pageOf = (
  text: string,
  range: { readonly offset?: number | undefined; readonly length?: number | undefined } | undefined
): Page => {
  const offset = ResultBudget.borderBefore(text, Math.min(within(range?.offset, 0), text.length))
  const end = Math.min(text.length, offset + Math.max(1, within(range?.length, Infinity)))
  const before = ResultBudget.borderBefore(text, end)
  // One character that is longer than the page is given whole.
  const next = before > offset ? before : ResultBudget.borderAfter(text, offset)
  return { text: text.slice(offset, next), offset, next: next < text.length ? next : undefined, total: text.length }
}

/** How much is shown on either side of a place that was found. */
const around = 60

const foundIn = (
  text: string,
  wanted: string,
  options: { readonly offset?: number | undefined; readonly limit?: number | undefined } | undefined
): Found => {
  const limit = Math.max(1, within(options?.limit, 10))
  const matches: Array<Match> = []
  const total = text.length
  if (wanted === "") return { matches, more: false, total }
  const pattern = new RegExp(wanted.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), "gi")
  pattern.lastIndex = within(options?.offset, 0)
  for (let hit = pattern.exec(text); hit !== null; hit = pattern.exec(text)) {
    if (matches.length === limit) return { matches, more: true, total }
    const from = ResultBudget.borderBefore(text, hit.index - around)
    const to = ResultBudget.borderBefore(text, hit.index + hit[0].length + around)
    matches.push({ offset: hit.index, excerpt: text.slice(from, to) })
  }
  return { matches, more: false, total }
}

/** The id of what was cut at a place of a turn: known only to whoever is told it.
 *
 * @internal
 */
export const idOf = (place: { readonly tenant: string; readonly turn: string; readonly position: number }) =>
  Effect.map(
    TurnStore.sha256(JSON.stringify([place.tenant, place.turn, place.position])),
    (hash) => hash.slice(0, 20)
  )

/**
 * What all layers take. `expires` is how long an artifact is kept. Default: `"infinite"`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly expires?: ToolPolicy.Limit | undefined
}

/** When what is kept now may be forgotten; null for never. */
const expiryOf = (expires: number): Effect.Effect<number | null> =>
  expires === Infinity ? Effect.succeed(null) : Effect.map(Clock.currentTimeMillis, (now) => now + expires)

/**
 * Artifacts in memory, for one process.
 *
 * **Details**
 *
 * `maxChars` is how many characters there may be in all. When there are more, the oldest are forgotten; a text that is longer than that
 * is refused. Default: 64,000,000.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory = (
  options?: Options & { readonly maxChars?: number | undefined }
): Layer.Layer<ArtifactStore> => {
  const owner = "ArtifactStore.layerMemory"
  const expires = ToolPolicy.limitMillis(owner, "expires", options?.expires ?? "infinite")
  const most = TurnError.wholeNumber(owner, "maxChars", options?.maxChars ?? 64_000_000)
  return Layer.sync(ArtifactStore, () => {
    const kept = new Map<string, { readonly text: string; readonly expiresAt: number | null }>()
    let used = 0
    const forget = (name: string) => {
      used -= kept.get(name)?.text.length ?? 0
      kept.delete(name)
    }
    return over({
      put: (key, text) =>
        text.length > most
          ? Effect.fail(
            new ArtifactError({
              store: "memory",
              operation: "put",
              description: `expected a text of at most ${most} characters, and it has ${text.length}`
            })
          )
          : Effect.map(expiryOf(expires), (expiresAt) => {
            const name = JSON.stringify([key.tenant, key.id])
            forget(name)
            kept.set(name, { text, expiresAt })
            used += text.length
            for (const oldest of kept.keys()) {
              if (used <= most) break
              forget(oldest)
            }
          }),
      read: (key) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          const name = JSON.stringify([key.tenant, key.id])
          const found = kept.get(name)
          if (found === undefined) return undefined
          if (found.expiresAt === null || now < found.expiresAt) return found.text
          forget(name)
          return undefined
        })
    })
  })
}

/** An artifact as it is written down. */
const Written = Schema.fromJsonString(
  Schema.Struct({ text: Schema.String, expiresAt: Schema.NullOr(Schema.Number) })
)
const decodeWritten = Schema.decodeUnknownEffect(Written)

/** Texts under names that are hashes: whatever a tenant or an id holds, it is no path. */
const written = (store: string, expires: number, place: {
  readonly set: (name: string, value: string) => Effect.Effect<void, unknown>
  readonly get: (name: string) => Effect.Effect<string | undefined, unknown>
  readonly remove: (name: string) => Effect.Effect<void, unknown>
}): ArtifactStore["Service"] => {
  const nameOf = ({ id, tenant }: Key) => TurnStore.sha256(JSON.stringify([tenant, id]))
  const failed = (operation: "put" | "get") => (cause: unknown) =>
    new ArtifactError({ store, operation, description: cause instanceof Error ? cause.message : String(cause), cause })
  return over({
    put: (key, text) =>
      Effect.gen(function*() {
        // JSON has a form for halves of surrogate pairs, which UTF-8 has not.
        yield* place.set(yield* nameOf(key), JSON.stringify({ text, expiresAt: yield* expiryOf(expires) }))
      }).pipe(Effect.mapError(failed("put"))),
    read: (key) =>
      Effect.gen(function*() {
        const name = yield* nameOf(key)
        const found = yield* place.get(name)
        if (found === undefined) return undefined
        const { expiresAt, text } = yield* decodeWritten(found)
        if (expiresAt === null || (yield* Clock.currentTimeMillis) < expiresAt) return text
        yield* place.remove(name)
        return undefined
      }).pipe(Effect.mapError(failed("get")))
  })
}

/**
 * Artifacts in Effect's `KeyValueStore`.
 *
 * **Details**
 *
 * `prefix` is what the names of the entries begin with; the rest of a name is a hash of tenant and id. Default: `"effect-turn.artifact."`.
 * What has expired is removed when it is asked for.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerKeyValueStore = (
  options?: Options & { readonly prefix?: string | undefined }
): Layer.Layer<ArtifactStore, never, KeyValueStore.KeyValueStore> => {
  const expires = ToolPolicy.limitMillis("ArtifactStore.layerKeyValueStore", "expires", options?.expires ?? "infinite")
  const prefix = options?.prefix ?? "effect-turn.artifact."
  return Layer.effect(
    ArtifactStore,
    Effect.map(KeyValueStore.KeyValueStore, (store) =>
      written("the key-value store", expires, {
        set: (name, value) => store.set(prefix + name, value),
        get: (name) => store.get(prefix + name),
        remove: (name) => store.remove(prefix + name)
      }))
  )
}

/** The files of a folder that are ours. */
const ownFile = /^[0-9a-f]{64}\.json(\..*)?$/

/**
 * Artifacts as files of a folder, which is made where it is not there.
 *
 * **Details**
 *
 * A file is written beside its place and then moved there, so that nobody reads half of one. Its name is a hash of tenant and id. What has
 * expired is removed when it is asked for, and when the layer is built; so is what a writer left beside its place an hour ago or longer.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerFileSystem = (
  options: Options & { readonly directory: string }
): Layer.Layer<ArtifactStore, ArtifactError, FileSystem.FileSystem> => {
  const { directory } = options
  const expires = ToolPolicy.limitMillis("ArtifactStore.layerFileSystem", "expires", options.expires ?? "infinite")
  const store = "the file system"
  const fileOf = (name: string) => `${directory}/${name}.json`
  return Layer.effect(
    ArtifactStore,
    Effect.gen(function*() {
      const files = yield* FileSystem.FileSystem
      yield* Effect.mapError(
        files.makeDirectory(directory, { recursive: true }),
        (cause) =>
          new ArtifactError({
            store,
            operation: "put",
            description: `the folder ${JSON.stringify(directory)} cannot be made: ${cause.message}`,
            cause
          })
      )
      if (expires !== Infinity) {
        yield* Effect.forkScoped(sweep(files, directory, expires))
      }
      return written(store, expires, {
        set: (name, value) =>
          Effect.gen(function*() {
            const beside = `${fileOf(name)}.${(yield* Random.next).toString(36).slice(2)}`
            yield* files.writeFileString(beside, value).pipe(
              Effect.andThen(files.rename(beside, fileOf(name))),
              Effect.onError(() => Effect.ignore(files.remove(beside, { force: true })))
            )
          }),
        get: (name) =>
          Effect.catch(
            files.readFileString(fileOf(name)),
            (error) => error.reason._tag === "NotFound" ? Effect.undefined : Effect.fail(error)
          ),
        remove: (name) => files.remove(fileOf(name), { force: true })
      })
    })
  )
}

/** What stands beside its place longer than this is written by nobody any more. */
const abandoned = 3_600_000

/** Removes what was written longer ago than it is kept. Others write meanwhile: what is gone is gone, and what fails holds up no other. */
const sweep = (files: FileSystem.FileSystem, directory: string, expires: number): Effect.Effect<void> =>
  Effect.gen(function*() {
    const now = yield* Clock.currentTimeMillis
    const failed: Array<unknown> = []
    for (const name of yield* files.readDirectory(directory)) {
      const [, beside] = ownFile.exec(name) ?? [name, null]
      if (beside === null) continue
      const kept = beside === undefined ? expires : Math.max(expires, abandoned)
      yield* Effect.catch(sweepOne(files, `${directory}/${name}`, now - kept), (error) => {
        if (error.reason._tag !== "NotFound") failed.push(error)
        return Effect.void
      })
    }
    if (failed.length > 0) {
      yield* Effect.logWarning(
        `${failed.length} ${
          failed.length === 1 ? "artifact" : "artifacts"
        } in ${directory} could not be looked at, or removed: they may have expired`,
        failed[0]
      )
    }
  }).pipe(
    Effect.catch((error) => Effect.logWarning(`expired artifacts in ${directory} could not be looked for`, error))
  )

const sweepOne = (files: FileSystem.FileSystem, file: string, oldest: number) =>
  Effect.flatMap(
    files.stat(file),
    ({ mtime }) =>
      mtime._tag === "Some" && mtime.value.getTime() <= oldest ? files.remove(file, { force: true }) : Effect.void
  )

/** How many characters a page of the tool has at most. */
const pageLength = 4_000

/** A whole number; those below 0, which a model has no reason to write, are understood and not refused. */
const count = Schema.Number.check(Schema.isInt({ toJsonSchema: () => ({ type: "integer", minimum: 0 }) }))

const ReadParameters = Schema.Struct({
  id: Schema.String.annotate({ description: "The id of the artifact, as the cut result names it." }),
  offset: Schema.optionalKey(
    count.annotate({
      description: "Where to begin, in characters. Default: 0. Go on with the `next` of the page before."
    })
  ),
  length: Schema.optionalKey(
    count.annotate({ description: "How many characters to read at most. Default, and 0: as many as a page holds." })
  ),
  search: Schema.optionalKey(
    Schema.String.annotate({
      description:
        "Finds the places where this text stands, from `offset` on, instead of reading a page. Empty: no search."
    })
  )
})

const ReadPage = Schema.Struct({
  total: Schema.Int,
  offset: Schema.Int,
  next: Schema.optionalKey(Schema.Int),
  text: Schema.String
})

const ReadMatches = Schema.Struct({
  total: Schema.Int,
  matches: Schema.Array(Schema.Struct({ offset: Schema.Int, excerpt: Schema.String })),
  more: Schema.Boolean
})

const ReadFailure = Schema.Struct({ reason: Schema.Literals(["not_found", "unavailable"]), message: Schema.String })

const description =
  "Reads a result that was cut because it was too long. The cut result names the id of the artifact. Gives a page of the text from " +
  "`offset` on; `next` is the offset of the page that follows, and is absent after the last. With `search` it gives the places where a " +
  "text stands."

/**
 * Makes the tool with which a model reads what was cut: page by page, or by a search.
 *
 * **Details**
 *
 * It only reads, and touches nothing shared. Its name is `read_artifact` unless another is given; {@link read} is its handler. An id that
 * nobody has been told, or that is another tenant's, is answered with a failure in words; a store that does not answer is one that may be
 * tried again. The store is a requirement of the tool, so that it stands where the turn looks for it.
 *
 * **Example** (A page that was cut, and the rest of it)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, pipe, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/ai"
 * import { ArtifactStore, Outcome, ToolCall, ToolPolicy, Turn } from "effect-turn"
 *
 * const ReadPage = pipe(
 *   Tool.make("read_page", { success: Schema.String }),
 *   ToolPolicy.read({ keys: () => [] }),
 *   ToolPolicy.resultBudget({ maxChars: 200 })
 * )
 * const toolkit = Toolkit.make(ReadPage, ArtifactStore.readTool())
 * const handlers = toolkit.toLayer({
 *   read_page: () => Effect.succeed("lorem ipsum ".repeat(1000)),
 *   read_artifact: ArtifactStore.read()
 * })
 *
 * const program = Effect.gen(function*() {
 *   const [page] = yield* Turn.run(toolkit, [ToolCall.make("c1", "read_page")])
 *   const args = { id: page!.artifact, offset: 11_990 }
 *   const [rest] = yield* Turn.run(toolkit, [ToolCall.make("c2", "read_artifact", args)])
 *   return Outcome.forModel(rest!).value
 * })
 * const services = Layer.mergeAll(handlers, ArtifactStore.layerMemory(), Turn.layer())
 * const rest = await Effect.runPromise(Effect.provide(program, services)) // => ({ total: 12000, offset: 11990, text: "rem ipsum " })
 * ```
 *
 * @category tools
 * @since 0.1.0
 * @stability experimental
 */
export const readTool = <const Name extends string = "read_artifact">(
  options?: { readonly name?: Name | undefined; readonly description?: string | undefined }
) =>
  pipe(
    Tool.make((options?.name ?? "read_artifact") as Name, {
      description: options?.description ?? description,
      parameters: ReadParameters,
      success: Schema.Union([ReadPage, ReadMatches]),
      failure: ReadFailure,
      dependencies: [ArtifactStore]
    }),
    ToolPolicy.read({ keys: () => [] }),
    ToolPolicy.failures({ transient: ({ reason }) => reason === "unavailable" }),
    // Whoever searches for a text may search for any.
    ToolPolicy.placeholders({ literal: ["search"] })
  )

/**
 * The handler of {@link readTool}. It reads for the tenant of its call, and outside of turns for that of the context.
 *
 * **Details**
 *
 * `maxLength` is how many characters a page has at most, whatever is asked for, so that a page needs no budget of its own. Default: 4,000.
 * The budget of a turn holds for pages too. Models fill in what they could leave out: an empty `search` is no search, and a `length` of
 * 0 or below is the default.
 *
 * @category tools
 * @since 0.1.0
 * @stability experimental
 */
export const read = (options?: { readonly maxLength?: number | undefined }) => {
  const most = TurnError.wholeNumber("ArtifactStore.read", "maxLength", options?.maxLength ?? pageLength)
  return (
    { id, length = 0, offset = 0, search = "" }: typeof ReadParameters.Type
  ): Effect.Effect<
    typeof ReadPage.Type | typeof ReadMatches.Type,
    typeof ReadFailure.Type,
    ArtifactStore
  > =>
    Effect.gen(function*() {
      const store = yield* ArtifactStore
      const call = yield* TurnContext.CurrentCall
      const tenant = call?.identity.tenant ??
        Context.getOrElse(yield* Effect.context<never>(), TurnContext.Tenant, () => "default")
      const key = { tenant, id }
      if (search !== "") {
        const found = yield* store.search(key, search, { offset, limit: Math.max(1, Math.floor(most / (4 * around))) })
        return found ?? (yield* Effect.fail(unknown(id)))
      }
      const page = yield* store.get(key, { offset, length: length > 0 ? Math.min(most, length) : most })
      if (page === undefined) return yield* Effect.fail(unknown(id))
      const { next, text, total } = page
      return { total, offset: page.offset, ...(next === undefined ? undefined : { next }), text }
    }).pipe(
      Effect.catchTag("ArtifactError", (error) =>
        Effect.fail({ reason: "unavailable" as const, message: `${error.message}; it may be read later` }))
    )
}

const unknown = (id: string) => ({
  reason: "not_found" as const,
  message: `there is no artifact ${TurnError.show(id)}: use an id that a cut result names`
})
