/** Effect's resolvers as lookups, and coalescers as Effect's resolvers. */
import { assert, describe, it } from "@effect/vitest"
import { type Backend, Coalescer, TurnContext } from "effect-turn"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Request from "effect/Request"
import * as RequestResolver from "effect/RequestResolver"
import * as TestClock from "effect/testing/TestClock"

const as = (tenant: string) => Effect.provide(TurnContext.make({ tenant }))
const fork = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })
const tag = (exit: Exit.Exit<unknown, unknown>): unknown => {
  if (Exit.isSuccess(exit)) return exit.value
  const error = Exit.findErrorOption(exit)
  return error._tag === "None" ? "broken" : typeof error.value === "string" ? error.value : (error.value as any)._tag
}

class Get extends Request.Class<{ readonly id: string }, string, string> {}

type Entries = ReadonlyArray<Request.Entry<Get>>

const over = (runAll: (entries: Entries) => Effect.Effect<void, string>, options: object = {}) => {
  const asked: Array<ReadonlyArray<string>> = []
  const resolver = RequestResolver.make<Get>((entries) =>
    Effect.suspend(() => {
      asked.push(entries.map(({ request }) => request.id))
      return runAll(entries)
    })
  )
  const coalescer = Coalescer.fromResolver({
    name: "desk",
    window: 0,
    resolver,
    request: (id: string) => new Get({ id }),
    ...options
  })
  return { asked, coalescer, resolver }
}

const complete = (entries: Entries) =>
  Effect.sync(() => {
    for (const entry of entries) entry.completeUnsafe(Exit.succeed(`item of ${entry.request.id}`))
  })

describe("fromResolver", () => {
  it.effect("hands a whole request over at once, whatever the resolver's own delay and size", () =>
    Effect.gen(function*() {
      const asked: Array<number> = []
      const resolver = RequestResolver.make<Get>((entries) => (asked.push(entries.length), complete(entries))).pipe(
        RequestResolver.setDelay("1 second"),
        RequestResolver.batchN(2)
      )
      const coalescer = Coalescer.fromResolver({
        name: "desk",
        size: 3,
        window: 0,
        resolver,
        request: (id: string) => new Get({ id })
      })
      assert.deepStrictEqual(
        (yield* coalescer.loadAll(["a", "b", "c", "d"])).map(tag),
        ["a", "b", "c", "d"].map((id) => `item of ${id}`)
      )
      assert.deepStrictEqual(asked, [3, 1])
    }).pipe(as("north")))
  it.effect("what a request fails with is its item's, what breaks or is left open is told in words", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = over((entries) =>
        Effect.sync(() => {
          for (const entry of entries) {
            if (entry.request.id === "no") entry.completeUnsafe(Exit.fail("no such order"))
            else if (entry.request.id === "odd") entry.completeUnsafe(Exit.die("odd"))
            else if (entry.request.id !== "open") entry.completeUnsafe(Exit.succeed(entry.request.id))
          }
        })
      )
      const exits = yield* coalescer.loadAll(["a", "no", "odd", "open"])
      assert.deepStrictEqual(exits.map(tag), ["a", "no such order", "RequestFailed", "InvalidAnswer"])
      assert.include(
        String(Exit.isFailure(exits[3]!) && exits[3].cause),
        "the resolver has not completed its request number 4 of 4"
      )
      assert.strictEqual(asked.length, 1)
    }).pipe(as("north")))
  it.effect("a resolver that fails, fails what is open", () =>
    Effect.gen(function*() {
      const none = over(() => Effect.fail("down"))
      assert.deepStrictEqual((yield* none.coalescer.loadAll(["a", "b"])).map(tag), ["RequestFailed", "RequestFailed"])
      const half = over((entries) => Effect.andThen(complete(entries.slice(0, 1)), Effect.fail("down")))
      assert.deepStrictEqual((yield* half.coalescer.loadAll(["a", "b"])).map(tag), ["item of a", "RequestFailed"])
      const thrown = over(() => {
        throw new Error("no")
      })
      assert.deepStrictEqual((yield* thrown.coalescer.loadAll(["a"])).map(tag), ["RequestFailed"])
      const key = Coalescer.fromResolver({
        name: "desk",
        window: 0,
        resolver: half.resolver,
        request: (id: string): Get => {
          if (id === "bad") throw new Error("no id")
          return new Get({ id })
        }
      })
      assert.deepStrictEqual((yield* key.loadAll(["bad", "a"])).map(tag), ["RequestFailed", "item of a"])
    }).pipe(as("north")))
  it.effect("groups stay groups, and a cache of the resolver's own is heeded", () =>
    Effect.gen(function*() {
      const groups: Array<ReadonlyArray<unknown>> = []
      const grouped = RequestResolver.makeGrouped<Get, string>({
        key: ({ request }) => request.id[0]!,
        resolver: (
          entries,
          key
        ) => (groups.push([key, entries.length]), key === "b" ? Effect.fail("down") : complete(entries))
      })
      const coalescer = Coalescer.fromResolver({
        name: "desk",
        window: 0,
        resolver: grouped,
        request: (id: string) => new Get({ id })
      })
      const exits = yield* coalescer.loadAll(["a1", "b1", "a2"])
      assert.deepStrictEqual(exits.map(tag), ["item of a1", "RequestFailed", "item of a2"])
      assert.deepStrictEqual(groups, [["a", 2], ["b", 1]])
      const { asked, resolver } = over((entries) => Effect.andThen(Effect.sleep(10), complete(entries)))
      const kept = yield* RequestResolver.withCache(resolver, { capacity: 10 })
      const cached = Coalescer.fromResolver({
        name: "desk",
        window: 0,
        resolver: kept,
        request: (id: string) => new Get({ id })
      })
      const other = yield* fork(cached.load("a"))
      yield* TestClock.adjust(5)
      // It is on its way for another tenant: the resolver completes both.
      const same = yield* fork(as("south")(cached.loadAll(["a", "b"])))
      yield* TestClock.adjust(20)
      assert.strictEqual(yield* Fiber.join(other), "item of a")
      assert.deepStrictEqual((yield* Fiber.join(same)).map(tag), ["item of a", "item of b"])
      assert.deepStrictEqual((yield* cached.loadAll(["a", "b"])).map(tag), ["item of a", "item of b"])
      assert.deepStrictEqual(asked, [["a"], ["b"]])
    }).pipe(as("north")))
  it.effect("the last to leave interrupts the resolver, and waits for it", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const { coalescer } = over(() =>
        Effect.onInterrupt(Effect.never, () => Effect.andThen(Effect.sleep(5), Effect.sync(() => log.push("stopped"))))
      )
      const fiber = yield* fork(coalescer.load("a"))
      yield* TestClock.adjust(1)
      const leaving = yield* fork(Fiber.interrupt(fiber))
      yield* TestClock.adjust(4)
      assert.isUndefined(leaving.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.deepStrictEqual([leaving.pollUnsafe() === undefined, log], [false, ["stopped"]])
    }).pipe(as("north")))
  it.effect("requests have the services of the first caller", () =>
    Effect.gen(function*() {
      class Prefix extends Context.Service<Prefix, string>()("test/Prefix") {}
      class Named extends Request.Class<{ readonly id: string }, string, never, Prefix> {}
      const resolver = RequestResolver.fromFunction<Named>((entry) =>
        `${Context.get(entry.context, Prefix)} ${entry.request.id}`
      )
      const coalescer = Coalescer.fromResolver({
        name: "desk",
        window: 0,
        resolver,
        request: (id: string) => new Named({ id })
      })
      assert.strictEqual(yield* Effect.provideService(coalescer.load("a"), Prefix, "order"), "order a")
    }).pipe(as("north")))
})

describe("toResolver", () => {
  type Errors = string | Coalescer.LoadError | Backend.Refused
  class Load extends Request.Class<{ readonly id: string }, string, Errors, TurnContext.Tenant> {}
  it.effect("requests are loads, each for its own tenant", () =>
    Effect.gen(function*() {
      const asked: Array<ReadonlyArray<string>> = []
      const coalescer = Coalescer.make<string, string, string>({
        name: "desk",
        lookup: (keys, { tenant }) =>
          Effect.sync(() => {
            asked.push([tenant, ...keys])
            return keys.map((key) =>
              key === "none" ? undefined : key === "no" ? Coalescer.failed("no such order") : key
            )
          })
      })
      const resolver = Coalescer.toResolver(coalescer, (request: Load) => {
        if (request.id === "bad") throw new Error("no id")
        return request.id
      })
      const get = (id: string) => Effect.exit(Effect.request(new Load({ id }), resolver))
      const all = Effect.forEach(["a", "a", "none", "no", "bad"], get, { concurrency: "unbounded" })
      const fiber = yield* fork(Effect.all([as("north")(all), as("south")(get("a"))], { concurrency: "unbounded" }))
      yield* TestClock.adjust(10)
      const [north, south] = yield* Fiber.join(fiber)
      assert.deepStrictEqual(north.map(tag), ["a", "a", "ItemNotFound", "no such order", "broken"])
      assert.strictEqual(tag(south), "a")
      assert.deepStrictEqual(asked, [["north", "a", "none", "no"], ["south", "a"]])
    }))
})
