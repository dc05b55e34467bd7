/** The laws of an artifact store, on every one there is. */
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { ArtifactStore } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as PlatformError from "effect/PlatformError"
import * as TestClock from "effect/testing/TestClock"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { int, pick, runs } from "../utils/gen.ts"

const { ArtifactStore: Store } = ArtifactStore
type Made = Layer.Layer<ArtifactStore.ArtifactStore, unknown>

const temporary = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-artifacts-"))
afterAll(() => fs.rmSync(temporary, { recursive: true, force: true }))
let folders = 0
const newFolder = () => path.join(temporary, `not there yet ${folders++}`)

const onFiles = (directory: string, options?: ArtifactStore.Options): Made =>
  Layer.provide(ArtifactStore.layerFileSystem({ ...options, directory }), NodeServices.layer)

const stores: ReadonlyArray<readonly [string, (options?: ArtifactStore.Options) => Made]> = [
  ["memory", (options) => ArtifactStore.layerMemory(options)],
  [
    "a key-value store",
    (options) => Layer.provide(ArtifactStore.layerKeyValueStore(options), Layer.fresh(KeyValueStore.layerMemory))
  ],
  [
    "a key-value store of files",
    (options) =>
      Layer.provide(
        ArtifactStore.layerKeyValueStore(options),
        Layer.provide(KeyValueStore.layerFileSystem(newFolder()), NodeServices.layer)
      )
  ],
  ["the file system", (options) => onFiles(newFolder(), options)]
]

const piece = pick(
  "a",
  "lorem ",
  "\r\n",
  "e\u0301",
  "😀",
  "👩‍👩‍👧‍👦",
  "🇩🇪🇫🇷🇮🇹",
  "漢字",
  "\ud83d",
  "\udc00",
  "\0",
  '"',
  "\ufeff"
)
const text = Arbitrary.map(Arbitrary.array(piece, { maxLength: 60 }), (pieces) => pieces.join(""))

/** All pages of an artifact, one after the other. */
const pages = (store: ArtifactStore.ArtifactStore["Service"], key: ArtifactStore.Key, length: number) =>
  Effect.gen(function*() {
    const pages: Array<ArtifactStore.Page> = []
    let offset: number | undefined = 0
    while (offset !== undefined) {
      const page: ArtifactStore.Page | undefined = yield* store.get(key, { offset, length })
      assert.isDefined(page)
      pages.push(page!)
      offset = page!.next
    }
    return pages
  })

describe.each(stores)("artifacts in %s", (_, make) => {
  const key = { tenant: "acme", id: "one" }
  const on = <A, E>(use: (store: ArtifactStore.ArtifactStore["Service"]) => Effect.Effect<A, E>) =>
    Effect.provide(Effect.flatMap(Store, use), make())

  it.effect.prop(
    "A2: pages have every character once, and end between two of them",
    { text, length: int(1, 40) },
    ({ length, text }) =>
      on((store) =>
        Effect.gen(function*() {
          yield* store.put(key, text)
          const all = yield* pages(store, key, length)
          assert.strictEqual(all.map((page) => page.text).join(""), text)
          const borders = new Set(Array.from(new Intl.Segmenter("en").segment(text), ({ index }) => index))
          for (const { next, offset, text: part, total } of all) {
            assert.strictEqual(total, text.length)
            assert.strictEqual(text.slice(offset, offset + part.length), part)
            if (next === undefined) continue
            assert.strictEqual(next, offset + part.length)
            assert.isAbove(part.length, 0)
            assert.isTrue(borders.has(next), `${next}`)
            // One that is longer than a page is given whole, and nothing with it.
            if (part.length > length) assert.lengthOf(Array.from(new Intl.Segmenter("en").segment(part)), 1)
          }
        })
      ),
    runs(60)
  )

  it.effect("gives the whole where no page is asked for, and nothing past the end", () =>
    on((store) =>
      Effect.gen(function*() {
        yield* store.put(key, "lorem ipsum")
        assert.deepStrictEqual(yield* store.get(key), {
          text: "lorem ipsum",
          offset: 0,
          next: undefined,
          total: 11
        })
        for (const offset of [11, 12, 1e9, Infinity]) {
          assert.deepStrictEqual(yield* store.get(key, { offset }), {
            text: "",
            offset: 11,
            next: undefined,
            total: 11
          })
        }
        assert.strictEqual((yield* store.get(key, { offset: -4, length: 0 }))?.text, "l")
        assert.strictEqual((yield* store.get(key, { offset: NaN, length: 4.9 }))?.text, "lore")
      })
    ))

  it.effect("a character of any length is given whole", () =>
    on((store) =>
      Effect.gen(function*() {
        for (const marks of [1, 62, 63, 64, 65, 255, 256, 5_000]) {
          const long = `e${"\u0301".repeat(marks)}`
          yield* store.put(key, `ab${long}${long}c`)
          const all = yield* pages(store, key, 2)
          assert.deepStrictEqual(all.map((page) => page.text), ["ab", long, long, "c"])
          assert.deepStrictEqual((yield* store.get(key, { offset: 3, length: 1 }))?.text, long)
        }
      })
    ))

  it.effect("a place inside of a character is that of the character", () =>
    on((store) =>
      Effect.gen(function*() {
        yield* store.put(key, "a😀b")
        assert.deepStrictEqual(yield* store.get(key, { offset: 2, length: 2 }), {
          text: "😀",
          offset: 1,
          next: 3,
          total: 4
        })
      })
    ))

  it.effect("A1: that of another tenant, or of a name that says the same when joined, is not found", () =>
    on((store) =>
      Effect.gen(function*() {
        yield* store.put({ tenant: "a", id: "b/c" }, "mine")
        const others = [
          { tenant: "b", id: "b/c" },
          { tenant: "a/b", id: "c" },
          { tenant: "", id: "a/b/c" },
          { tenant: "a", id: "../a/b/c" }
        ]
        for (const other of others) {
          assert.isUndefined(yield* store.get(other))
          assert.isUndefined(yield* store.search(other, "mine"))
        }
        assert.strictEqual((yield* store.get({ tenant: "a", id: "b/c" }))?.text, "mine")
      })
    ))

  it.effect("A3: a text that is put again replaces the one before", () =>
    on((store) =>
      Effect.gen(function*() {
        yield* store.put(key, "a longer text")
        yield* store.put(key, "short")
        assert.strictEqual((yield* store.get(key))?.text, "short")
      })
    ))

  it.effect("any name and any text will do", () =>
    on((store) =>
      Effect.gen(function*() {
        const odd = ["", ".", "..", "../../etc/passwd", "a\0b", "__proto__", "x".repeat(5_000), "😀", "\ud800"]
        for (const name of odd) yield* store.put({ tenant: name, id: name }, `text of ${name}`)
        for (const name of odd) {
          assert.strictEqual((yield* store.get({ tenant: name, id: name }))?.text, `text of ${name}`)
        }
      })
    ))

  it.effect("a search finds places with what stands around them, whatever the case, and says that there are more", () =>
    on((store) =>
      Effect.gen(function*() {
        const text = `${"x".repeat(100)}Total (€): 12.5 😀 and the total (€) again${"y".repeat(100)}TOTAL (€)`
        yield* store.put(key, text)
        const found = yield* store.search(key, "total (€)")
        assert.deepStrictEqual(found?.matches.map(({ offset }) => offset), [100, 127, 242])
        assert.isFalse(found?.more)
        for (const { excerpt, offset } of found!.matches) {
          assert.include(text, excerpt)
          assert.include(excerpt, text.slice(offset, offset + 9))
          assert.isTrue(excerpt.isWellFormed())
        }
        const first = yield* store.search(key, "total (€)", { limit: 1 })
        assert.deepStrictEqual([first?.matches.length, first?.more], [1, true])
        const later = yield* store.search(key, "total (€)", { offset: 101 })
        assert.deepStrictEqual(later?.matches.map(({ offset }) => offset), [127, 242])
        assert.deepStrictEqual(yield* store.search(key, "nowhere"), { matches: [], more: false, total: text.length })
        assert.deepStrictEqual(yield* store.search(key, ""), { matches: [], more: false, total: text.length })
        assert.isUndefined(yield* store.search({ ...key, id: "two" }, "total"))
      })
    ))

  it.effect("what has expired is not found any more", () =>
    Effect.gen(function*() {
      const store = yield* Store
      yield* store.put(key, "for an hour")
      yield* TestClock.adjust("59 minutes")
      assert.isDefined(yield* store.get(key))
      yield* store.put({ ...key, id: "two" }, "for an hour")
      yield* TestClock.adjust("1 minute")
      assert.isUndefined(yield* store.get(key))
      assert.isUndefined(yield* store.search(key, "hour"))
      assert.isDefined(yield* store.get({ ...key, id: "two" }))
    }).pipe(Effect.provide(make({ expires: "1 hour" }))))
})

describe("artifacts in memory", () => {
  it.effect("the oldest are forgotten when there are too many, and what is larger than all is refused", () =>
    Effect.gen(function*() {
      const store = yield* Store
      const of = (id: string) => ({ tenant: "a", id })
      for (const id of ["1", "2", "3"]) yield* store.put(of(id), "x".repeat(40))
      assert.isUndefined(yield* store.get(of("1")))
      assert.isDefined(yield* store.get(of("2")))
      const error = yield* Effect.flip(store.put(of("4"), "x".repeat(101)))
      assert.strictEqual(
        error.message,
        "memory could not put an artifact: expected a text of at most 100 characters, and it has 101"
      )
      // Put again it is the youngest.
      yield* store.put(of("2"), "x".repeat(40))
      yield* store.put(of("5"), "x".repeat(40))
      assert.isUndefined(yield* store.get(of("3")))
      assert.isDefined(yield* store.get(of("2")))
    }).pipe(Effect.provide(ArtifactStore.layerMemory({ maxChars: 100 }))))
})

describe("artifacts in files", () => {
  it.effect("outlive the process, lie in the folder alone, and a damaged one is an error in words", () =>
    Effect.gen(function*() {
      const folder = newFolder()
      const key = { tenant: "../..", id: "../../outside" }
      yield* Effect.provide(Effect.flatMap(Store, (store) => store.put(key, "kept")), onFiles(folder))
      const files = fs.readdirSync(folder)
      assert.strictEqual(files.length, 1)
      assert.match(files[0]!, /^[0-9a-f]{64}\.json$/)
      const get = Effect.provide(Effect.flatMap(Store, (store) => store.get(key)), onFiles(folder))
      assert.strictEqual((yield* get)?.text, "kept")
      fs.writeFileSync(path.join(folder, files[0]!), '{"text":')
      const error = yield* Effect.flip(get) as Effect.Effect<ArtifactStore.ArtifactError, unknown>
      assert.match(error.message, /^the file system could not get an artifact: /)
    }))

  it.effect("a write that fails leaves what was there, and nothing beside it", () =>
    Effect.gen(function*() {
      const folder = newFolder()
      const key = { tenant: "a", id: "b" }
      yield* Effect.gen(function*() {
        const store = yield* Store
        yield* store.put(key, "before")
        const [name] = fs.readdirSync(folder)
        // Nothing can be moved to where a folder is.
        fs.rmSync(path.join(folder, name!))
        fs.mkdirSync(path.join(folder, name!, "in the way"), { recursive: true })
        const error = yield* Effect.flip(store.put(key, "after"))
        assert.strictEqual(error.operation, "put")
        assert.deepStrictEqual(fs.readdirSync(folder), [name])
      }).pipe(Effect.provide(onFiles(folder)))
    }))

  it.live("what has expired is removed when the layer is built, and nothing else is", () =>
    Effect.gen(function*() {
      const folder = newFolder()
      const put = (id: string) => Effect.flatMap(Store, (store) => store.put({ tenant: "a", id }, id))
      yield* Effect.provide(put("old"), onFiles(folder))
      const [old] = fs.readdirSync(folder)
      const before = new Date(Date.now() - 7_200_000)
      fs.utimesSync(path.join(folder, old!), before, before)
      yield* Effect.provide(put("young"), onFiles(folder))
      fs.writeFileSync(path.join(folder, "theirs.txt"), "")
      fs.utimesSync(path.join(folder, "theirs.txt"), before, before)
      yield* Effect.provide(
        Effect.gen(function*() {
          for (let i = 0; fs.readdirSync(folder).includes(old!); i++) {
            assert.isBelow(i, 500)
            yield* Effect.sleep(10)
          }
        }),
        onFiles(folder, { expires: "1 hour" })
      )
      assert.strictEqual(fs.readdirSync(folder).length, 2)
      assert.include(fs.readdirSync(folder), "theirs.txt")
    }))

  /** The files of this machine, with something in the way of some. */
  const withFiles = (change: (files: FileSystem.FileSystem) => Partial<FileSystem.FileSystem>) =>
    Layer.provide(
      Layer.effect(
        FileSystem.FileSystem,
        Effect.map(FileSystem.FileSystem, (files) => ({ ...files, ...change(files) }))
      ),
      NodeServices.layer
    )

  it.live("what goes or fails while the expired are looked for holds up no other, and what is being written stays", () =>
    Effect.gen(function*() {
      const folder = newFolder()
      fs.mkdirSync(folder)
      const file = (n: number, end = "") => `${String(n).repeat(64)}.json${end}`
      const before = new Date(Date.now() - 7_200_000)
      const write = (name: string, at: Date) => {
        fs.writeFileSync(path.join(folder, name), "{}")
        fs.utimesSync(path.join(folder, name), at, at)
      }
      for (const n of [1, 2, 3, 4]) write(file(n), before)
      write(file(5, ".left"), before)
      write(file(6, ".young"), new Date(Date.now() - 60_000))
      const lines: Array<string> = []
      let looked = 0
      const files = withFiles((files) => ({
        stat: (name) => {
          looked++
          // Renamed by its writer between the list and the look.
          if (name.endsWith(file(1))) fs.rmSync(name)
          return files.stat(name)
        }
      }))
      const refused = withFiles((files) => ({
        remove: (name, options) =>
          name.endsWith(file(2))
            ? Effect.fail(
              PlatformError.systemError({ _tag: "PermissionDenied", module: "FileSystem", method: "remove" })
            )
            : files.remove(name, options)
      }))
      const sweep = (files: Layer.Layer<FileSystem.FileSystem>) =>
        Effect.sleep(200).pipe(
          Effect.provide(
            Layer.provideMerge(
              Layer.provide(ArtifactStore.layerFileSystem({ directory: folder, expires: 200 }), files),
              Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
            )
          )
        )
      yield* sweep(files)
      assert.strictEqual(looked, 6)
      assert.deepStrictEqual(fs.readdirSync(folder), [file(6, ".young")])
      assert.deepStrictEqual(lines, [])
      for (const n of [1, 2, 3]) write(file(n), before)
      yield* sweep(refused)
      assert.deepStrictEqual(fs.readdirSync(folder).sort(), [file(2), file(6, ".young")])
      assert.lengthOf(lines, 1)
      assert.include(lines[0], `1 artifact in ${folder} `)
    }))

  it.live("many first writes race with no look for what has expired", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      for (let i = 0; i < 20; i++) {
        const all = yield* Effect.gen(function*() {
          const store = yield* Store
          const keys = Array.from({ length: 10 }, (_, n) => ({ tenant: "a", id: String(n) }))
          yield* Effect.forEach(keys, (key) => store.put(key, "x".repeat(1_000)), { concurrency: "unbounded" })
          return yield* Effect.forEach(keys, (key) => store.get(key))
        }).pipe(
          Effect.provide(
            Layer.provideMerge(
              onFiles(newFolder(), { expires: 5_000 }),
              Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
            )
          )
        )
        assert.notInclude(all, undefined)
      }
      assert.deepStrictEqual(lines, [])
    }))

  it.effect("a folder that cannot be made is named", () =>
    Effect.gen(function*() {
      const inTheWay = path.join(temporary, "in the way")
      fs.writeFileSync(inTheWay, "")
      const folder = path.join(inTheWay, "artifacts")
      const error = yield* Effect.flip(Effect.provide(Effect.void, onFiles(folder))) as Effect.Effect<Error>
      assert.include(error.message, `could not put an artifact: the folder ${JSON.stringify(folder)} cannot be made: `)
    }))
})
