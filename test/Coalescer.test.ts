import { assert, describe, it } from "@effect/vitest"
import { Backend, Coalescer, ToolPolicy, TurnContext, TurnError } from "effect-turn"
import * as AiError from "effect/ai/AiError"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Metric from "effect/Metric"
import * as Schema from "effect/Schema"
import * as SchemaTransformation from "effect/SchemaTransformation"
import * as TestClock from "effect/testing/TestClock"

class Api extends Backend.Service<Api>()("test/Api") {}

const as = (tenant: string) => Effect.provide(TurnContext.make({ tenant }))
const north = as("north")
const all = <A, E, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>) =>
  Effect.all(effects, { concurrency: "unbounded" })
const fork = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

/** The tags of what came of a load. */
const tag = (exit: Exit.Exit<unknown, unknown>): unknown => {
  if (Exit.isSuccess(exit)) return exit.value
  const error = Exit.findErrorOption(exit)
  return error._tag === "Some" ? (error.value as { readonly _tag: unknown })._tag : "broken"
}
const words = (exit: Exit.Exit<unknown, unknown>): string => {
  const error = Exit.findErrorOption(exit)
  return error._tag === "Some" ? (error.value as Error).message : ""
}

interface Asked {
  readonly at: number
  readonly tenant: string
  readonly keys: ReadonlyArray<string>
}

/** A coalescer over texts that writes down what it is asked; `item of a` after `millis`. */
const desk = (
  options: Partial<Coalescer.Options<string, string, string, unknown, never>> & { readonly millis?: number } = {}
) => {
  const asked: Array<Asked> = []
  const ended: Array<string> = []
  const { millis = 10, ...rest } = options
  const coalescer = Coalescer.make<string, string, string, unknown>({
    name: "desk",
    ...rest,
    lookup: (keys, { tenant }) =>
      Effect.gen(function*() {
        const at = yield* Clock.currentTimeMillis
        asked.push({ at, tenant, keys })
        if (rest.lookup !== undefined) return yield* rest.lookup(keys, { tenant })
        yield* Effect.sleep(millis)
        return keys.map((key) => `item of ${key}`)
      }).pipe(Effect.onExit((exit) => Effect.sync(() => ended.push(Exit.isSuccess(exit) ? "ok" : tag(exit) as string))))
  })
  return { coalescer, asked, ended }
}

const unchecked = (lookup: unknown, options: object = {}) =>
  Coalescer.make<string, any, any>({ name: "desk", window: 0, lookup: lookup as any, ...options })

describe("options", () => {
  it("MORE 21: sizes that cannot be are refused at definition", () => {
    for (const size of [0, -1, 1.5, NaN, Infinity, "2"]) {
      assert.throws(
        () => desk({ size: size as number }),
        /coalescer "desk": the limit "size" must be a whole number from 1, and is/
      )
    }
    assert.throws(() => desk({ size: 0 }), TurnError.TurnError)
  })
  it("R15: windows and time limits that cannot be are refused", () => {
    for (const limit of [-1, NaN, 2 ** 31, "infinite", "soon", {}]) {
      assert.throws(
        () => desk({ window: limit as number }),
        /the limit "window" must be a duration from 0 to 2147483647 ms, and is/
      )
    }
    for (const limit of [0, -1, NaN, 2 ** 31, "soon", {}]) {
      assert.throws(
        () => desk({ timeout: limit as number }),
        /the limit "timeout" must be a duration from 1 .*, or "infinite", and is/
      )
    }
    const { coalescer } = desk({ timeout: "infinite", window: 0 })
    assert.deepStrictEqual([coalescer.timeout, coalescer.window, coalescer.size], [Infinity, 0, 10])
    assert.deepStrictEqual([desk().coalescer.timeout, desk().coalescer.window, desk().coalescer.name], [
      2000,
      5,
      "desk"
    ])
  })
  it("a name and a lookup are asked for", () => {
    assert.throws(
      () => Coalescer.make({ name: "", lookup: () => Effect.succeed([]) }),
      /the name of a coalescer: expected a text/
    )
    assert.throws(() => unchecked("orders"), /the lookup of coalescer "desk": expected a function, and got "orders"/)
    assert.throws(
      () => Coalescer.fromResolver({ name: "desk", resolver: {} as any, request: () => ({}) as any }),
      /expected a RequestResolver/
    )
  })
})

describe("requests", () => {
  it.effect("R28: 12 loads are two requests, the full one at once, the other when its window is over", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk()
      const keys = Array.from({ length: 12 }, (_, i) => `${i}`)
      const fiber = yield* fork(all(keys.map(coalescer.load)))
      yield* TestClock.adjust(15)
      assert.deepStrictEqual(yield* Fiber.join(fiber), keys.map((key) => `item of ${key}`))
      assert.deepStrictEqual(asked.map(({ at, keys }) => [at, keys.length]), [[0, 10], [5, 2]])
    }).pipe(north))

  it.effect("the window begins with the first key, and is for one request", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ window: 20 })
      const later = (millis: number, key: string) => Effect.andThen(Effect.sleep(millis), coalescer.load(key))
      const fiber = yield* fork(all([later(0, "a"), later(19, "b"), later(25, "c")]))
      yield* TestClock.adjust(100)
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(asked.map(({ at, keys }) => [at, keys]), [[20, ["a", "b"]], [45, ["c"]]])
    }).pipe(north))

  it.effect("a window of 0 takes what asks in the same turn of the event loop, and no time", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ window: 0, millis: 0 })
      const found = yield* all([coalescer.load("a"), Effect.andThen(Effect.yieldNow, coalescer.load("b"))])
      assert.deepStrictEqual(found, ["item of a", "item of b"])
      assert.deepStrictEqual(asked.map(({ at }) => at), asked.map(() => 0))
    }).pipe(north))

  it.effect("equal keys are one, also when their request is on its way", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk()
      const later = Effect.andThen(Effect.sleep(12), coalescer.load("a"))
      const fiber = yield* fork(all([coalescer.load("a"), coalescer.load("a"), later]))
      yield* TestClock.adjust(15)
      assert.deepStrictEqual(yield* Fiber.join(fiber), ["item of a", "item of a", "item of a"])
      assert.deepStrictEqual(asked.map(({ keys }) => keys), [["a"]])
      // What is over is not kept.
      const again = yield* fork(coalescer.load("a"))
      yield* TestClock.adjust(15)
      yield* Fiber.join(again)
      assert.strictEqual(asked.length, 2)
    }).pipe(north))

  it.effect("keys that are no texts are equal by their members", () =>
    Effect.gen(function*() {
      const asked: Array<unknown> = []
      const coalescer = Coalescer.make({
        name: "desk",
        window: 0,
        lookup: (keys: ReadonlyArray<{ readonly a: number; readonly b?: string | undefined }>) => {
          asked.push(keys)
          return Effect.succeed(keys.map(({ a }) => a))
        }
      })
      const found = yield* coalescer.loadAll([{ a: 1, b: "x" }, { b: "x", a: 1 }, { a: 2 }, { a: 2, b: undefined }])
      assert.deepStrictEqual(found, [1, 1, 2, 2].map(Exit.succeed))
      assert.deepStrictEqual(asked, [[{ a: 1, b: "x" }, { a: 2 }]])
    }).pipe(north))

  it.effect("keys that have no text are refused, for their own callers", () =>
    Effect.gen(function*() {
      const { coalescer } = desk({ window: 0, millis: 0 })
      const circle: Array<unknown> = []
      circle.push(circle)
      const odd = [NaN, undefined, 1n, Symbol("s"), () => 1, new Date(0), new Map(), new URL("https://a.b"), circle]
      const exits = yield* coalescer.loadAll([...odd, "a"] as any)
      assert.deepStrictEqual(exits.map(tag), [...odd.map(() => "broken"), "item of a"])
      const exit = yield* Effect.exit(coalescer.load(NaN as any))
      assert.match(
        String(Exit.isFailure(exit) && exit.cause),
        /the key of a coalescer: expected a text, or .* and got NaN/
      )
      const own = desk({ window: 0, millis: 0, keyText: () => 1 as any })
      const refused = yield* Effect.exit(own.coalescer.load("a"))
      assert.match(
        String(Exit.isFailure(refused) && refused.cause),
        /the keyText of coalescer "desk": expected a text, and got 1/
      )
    }).pipe(north))

  it.effect("loadAll fills requests at once, and tells each key's end in order", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({
        size: 2,
        lookup: (keys) =>
          Effect.as(
            Effect.sleep(10),
            keys.map((key) => key === "c" ? undefined : key === "d" ? Coalescer.failed("no") : key)
          )
      })
      const fiber = yield* fork(coalescer.loadAll(["a", "b", "c", "a", "d", "e"]))
      yield* TestClock.adjust(15)
      const exits = yield* Fiber.join(fiber)
      assert.deepStrictEqual(exits.map((exit) => tag(exit) ?? "no"), ["a", "b", "ItemNotFound", "a", "no", "e"])
      assert.deepStrictEqual(asked.map(({ at, keys }) => [at, keys]), [[0, ["a", "b"]], [0, ["c", "d"]], [5, ["e"]]])
      assert.deepStrictEqual(yield* coalescer.loadAll([]), [])
    }).pipe(north))

  it.effect("R28: tenants are never merged", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk()
      const fiber = yield* fork(all([as("north")(coalescer.load("a")), as("south")(coalescer.load("a"))]))
      yield* TestClock.adjust(15)
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(asked.map(({ keys, tenant }) => [tenant, keys]), [["north", ["a"]], ["south", ["a"]]])
    }))

  it.effect("fibers of any origin meet in one request, which runs in the context of the first", () =>
    Effect.gen(function*() {
      const seen: Array<unknown> = []
      const { asked, coalescer } = desk({
        lookup: (keys) => Effect.map(TurnContext.Principal, (who) => (seen.push(who), keys.slice()))
      })
      const by = (who: string) => Effect.provideService(TurnContext.Principal, who)
      const fibers = yield* all([
        Effect.forkDetach(by("ann")(coalescer.load("a")), { startImmediately: true }),
        Effect.forkDetach(by("bob")(coalescer.load("b")), { startImmediately: true })
      ])
      yield* TestClock.adjust(5)
      yield* Fiber.joinAll(fibers)
      assert.deepStrictEqual([asked.length, seen], [1, ["ann"]])
    }).pipe(north))
})

describe("L2: each gets its own", () => {
  const pairs = (lookup: unknown, options: object = {}, keys = ["a", "b", "c"]) =>
    north(unchecked(lookup, options).loadAll(keys))
  const keyed = { itemKey: ({ id }: { readonly id: string }) => id }
  const item = (id: string, more: object = {}) => ({ id, ...more })

  it.effect("co-02: by key, whatever the order; what is missing is not found, what nobody asked for is ignored", () =>
    Effect.gen(function*() {
      const found = yield* pairs(() => Effect.succeed([item("c"), undefined, item("x"), item("a")]), keyed)
      assert.deepStrictEqual(found.map(tag), [item("a"), "ItemNotFound", item("c")])
      assert.strictEqual(words(found[1]!), 'desk: there is nothing for "b"')
      const map = yield* pairs(() =>
        Effect.succeed(new Map<string, unknown>([["c", 3], ["b", undefined], ["a", 1], ["x", 0]]))
      )
      assert.deepStrictEqual(map.map(tag), [1, "ItemNotFound", 3])
    }))
  it.effect("by position only where the lengths agree", () =>
    Effect.gen(function*() {
      const same = yield* pairs(() => Effect.succeed([1, undefined, null]))
      assert.deepStrictEqual(same.map(tag), [1, "ItemNotFound", null])
      for (const answer of [[1, 2], [1, 2, 3, 4], []]) {
        const found = yield* pairs(() => Effect.succeed(answer))
        assert.deepStrictEqual(found.map(tag), ["InvalidAnswer", "InvalidAnswer", "InvalidAnswer"])
        assert.include(words(found[0]!), `expected a list as long as the keys, 3, and got ${answer.length}`)
      }
    }))
  it.effect("two different items for one key are no answer for it, the same one twice is", () =>
    Effect.gen(function*() {
      const found = yield* pairs(
        () => Effect.succeed([item("a"), item("b", { n: 1 }), item("a"), item("b", { n: 2 }), item("c")]),
        keyed
      )
      assert.deepStrictEqual(found.map(tag), [item("a"), "InvalidAnswer", item("c")])
      assert.include(words(found[1]!), 'two different items for "b"')
      const map = yield* pairs(
        () => Effect.succeed(new Map<string, unknown>([["A", 1], ["a", 2], ["B", 3]])),
        { keyText: (key: string) => key.toLowerCase() }
      )
      assert.deepStrictEqual(map.map(tag), ["InvalidAnswer", 3, "ItemNotFound"])
    }))
  it.effect("a failed item is its own failure; in a list by keys it is nobody's", () =>
    Effect.gen(function*() {
      const no = Coalescer.failed({ _tag: "No" })
      const found = yield* pairs(() => Effect.succeed([1, no, 3]))
      assert.deepStrictEqual(found.map(tag), [1, "No", 3])
      const list = yield* pairs(() => Effect.succeed([item("a"), no, item("c")]), keyed)
      assert.deepStrictEqual(list.map(tag), [item("a"), "InvalidAnswer", item("c")])
      assert.include(words(list[1]!), "give a Map")
      const lost = yield* pairs(() => Effect.succeed([item("a"), null]), keyed)
      assert.deepStrictEqual(lost.map(tag), [item("a"), "InvalidAnswer", "InvalidAnswer"])
      assert.include(words(lost[1]!), "an item whose key cannot be told")
    }))
  it.effect("MORE 21: an answer that is no list, a throw and a failure fail their own callers, once, and are told in words", () =>
    Effect.gen(function*() {
      const trap = new Proxy([], {
        get: () => {
          throw new Error("trap")
        }
      })
      const cases: ReadonlyArray<readonly [lookup: () => unknown, tag: string, words: RegExp]> = [
        [() => Effect.succeed("a, b"), "InvalidAnswer", /expected a list or a Map as the answer, and got "a, b"/],
        [() => Effect.succeed(undefined), "InvalidAnswer", /and got undefined/],
        [() => Effect.succeed({ a: 1 }), "InvalidAnswer", /and got \{"a":1\}/],
        [() => Effect.succeed(trap), "InvalidAnswer", /cannot be read/],
        [() => Promise.resolve([1, 2, 3]), "InvalidAnswer", /expected an Effect from the lookup, and got a Promise$/],
        [() => [1, 2, 3], "InvalidAnswer", /expected an Effect from the lookup, and got a list of 3$/],
        [
          () => {
            throw new Error("no table")
          },
          "RequestFailed",
          /desk: the request failed \(no table\)/
        ],
        [() => Effect.die("gone"), "RequestFailed", /\(gone\)/],
        [() => Effect.fail({ message: "busy" }), "RequestFailed", /\(busy\)/],
        [() => Effect.fail(Symbol("odd")), "RequestFailed", /\(Symbol\(odd\)\)/],
        [() => Effect.die(new Error("")), "RequestFailed", /\(Error\)/],
        [
          () =>
            Effect.die({
              get message() {
                throw new Error("trap")
              }
            }),
          "RequestFailed",
          /cannot be read/
        ],
        [() => Effect.interrupt, "RequestFailed", /the lookup was interrupted/]
      ]
      for (const [lookup, expected, text] of cases) {
        let asked = 0
        const coalescer = unchecked(() => (asked++, lookup()), { size: 3 })
        const found = yield* coalescer.loadAll(["a", "b", "c"])
        assert.deepStrictEqual([asked, found.map(tag)], [1, [expected, expected, expected]])
        assert.match(words(found[2]!), text)
      }
    }).pipe(north))
  it.effect("MORE 21: what fails one request touches no other, and no request has more than its size", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({
        size: 3,
        lookup: (keys) => keys.length > 3 || keys.includes("d") ? Effect.fail("too many") : Effect.succeed(keys.slice())
      })
      const found = yield* coalescer.loadAll(["a", "b", "c", "d", "e", "f"])
      assert.deepStrictEqual(found.map(tag), ["a", "b", "c", "RequestFailed", "RequestFailed", "RequestFailed"])
      assert.deepStrictEqual(asked.map(({ keys }) => keys), [["a", "b", "c"], ["d", "e", "f"]])
    }).pipe(north))
  it.effect("a lookup may do with its list what it likes", () =>
    Effect.gen(function*() {
      const found = yield* pairs((keys: Array<string>) =>
        Effect.succeed(["1", "2", "3"]).pipe(Effect.tap(() => Effect.sync(() => keys.splice(0))))
      )
      assert.deepStrictEqual(found.map(tag), ["1", "2", "3"])
    }))
})

describe("time", () => {
  it.effect("a late request is interrupted and awaited, and each of its callers is told", () =>
    Effect.gen(function*() {
      const { coalescer, ended } = desk({
        timeout: 50,
        lookup: () => Effect.onInterrupt(Effect.never, () => Effect.sleep(20))
      })
      const fiber = yield* fork(coalescer.loadAll(["a", "b"]))
      yield* TestClock.adjust(5 + 50 + 19)
      assert.strictEqual(fiber.pollUnsafe(), undefined)
      yield* TestClock.adjust(1)
      const exits = yield* Fiber.join(fiber)
      assert.deepStrictEqual(exits.map(tag), ["RequestTimeout", "RequestTimeout"])
      assert.strictEqual(words(exits[0]!), "desk: the request took longer than 50 ms")
      assert.strictEqual(ended.length, 1)
    }).pipe(north))
  it.effect("MORE 20: each caller keeps its own limit; when all have left, the request is interrupted at once", () =>
    Effect.gen(function*() {
      const { asked, coalescer, ended } = desk({ millis: 100, window: 0 })
      const within = (millis: number) =>
        Effect.gen(function*() {
          const exit = yield* Effect.exit(Effect.timeout(coalescer.load("a"), millis))
          return [tag(exit), yield* Clock.currentTimeMillis]
        })
      const fiber = yield* fork(all([within(500), within(50)]))
      yield* TestClock.adjust(200)
      assert.deepStrictEqual(yield* Fiber.join(fiber), [["item of a", 100], ["TimeoutError", 50]])
      assert.deepStrictEqual([asked.length, ended], [1, ["ok"]])
      const both = yield* fork(all([within(30), within(50)]))
      yield* TestClock.adjust(50)
      yield* Fiber.join(both)
      assert.deepStrictEqual(ended, ["ok", "broken"])
    }).pipe(north))
})

describe("L3: leaving", () => {
  it.effect("co-03: one who leaves touches nobody else", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk()
      const [a, b, c] = yield* Effect.all([
        fork(coalescer.load("a")),
        fork(coalescer.load("a")),
        fork(coalescer.load("c"))
      ])
      yield* Fiber.interrupt(a!)
      yield* Fiber.interrupt(c!)
      yield* TestClock.adjust(5)
      // A key that nobody waits for is not asked for.
      assert.deepStrictEqual(asked.map(({ keys }) => keys), [["a"]])
      yield* TestClock.adjust(10)
      assert.strictEqual(yield* Fiber.join(b!), "item of a")
    }).pipe(north))
  it.effect("the last to leave drops the window", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk()
      const fibers = yield* Effect.all([fork(coalescer.load("a")), fork(coalescer.load("b"))])
      yield* Fiber.interruptAll(fibers)
      yield* TestClock.adjust(1000)
      assert.deepStrictEqual(asked, [])
    }).pipe(north))
  it.effect("the last to leave interrupts the request and waits for its end, and who comes then has a new one", () =>
    Effect.gen(function*() {
      const { asked, coalescer, ended } = desk({
        window: 0,
        lookup: (keys) => Effect.as(Effect.onInterrupt(Effect.sleep(100), () => Effect.sleep(20)), keys.slice())
      })
      const [a, b] = yield* Effect.all([fork(coalescer.load("a")), fork(coalescer.load("b"))])
      yield* TestClock.adjust(10)
      yield* Fiber.interrupt(a!)
      assert.deepStrictEqual(ended, [])
      const leaving = yield* fork(Fiber.interrupt(b!))
      yield* TestClock.adjust(10)
      const next = yield* fork(coalescer.load("a"))
      assert.strictEqual(leaving.pollUnsafe(), undefined)
      yield* TestClock.adjust(10)
      assert.isDefined(leaving.pollUnsafe())
      assert.deepStrictEqual(ended, ["broken"])
      yield* TestClock.adjust(100)
      assert.strictEqual(yield* Fiber.join(next), "a")
      assert.deepStrictEqual(asked.map(({ at, keys }) => [at, keys]), [[0, ["a", "b"]], [20, ["a"]]])
    }).pipe(north))
  it.effect("a list leaves all its requests", () =>
    Effect.gen(function*() {
      const { asked, coalescer, ended } = desk({ size: 2, millis: 100 })
      const other = yield* fork(Effect.andThen(Effect.sleep(1), coalescer.load("a")))
      const fiber = yield* fork(coalescer.loadAll(["a", "b", "c", "d", "d", "e"]))
      yield* TestClock.adjust(1)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(ended, ["broken"])
      yield* TestClock.adjust(200)
      assert.strictEqual(yield* Fiber.join(other), "item of a")
      assert.deepStrictEqual(asked.map(({ keys }) => keys), [["a", "b"], ["c", "d"]])
    }).pipe(north))
})

describe("R14: permits belong to requests", () => {
  const limited = Effect.provide(Api.layer({ concurrency: 1 }))
  it.effect("each takes one, and waiting for it is not part of its time", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ backend: Api as any, size: 2, millis: 40, timeout: 50 })
      const fiber = yield* fork(coalescer.loadAll(["a", "b", "c", "d"]))
      assert.strictEqual((yield* Api.stats).running, 1)
      yield* TestClock.adjust(80)
      const exits = yield* Fiber.join(fiber)
      assert.deepStrictEqual(exits.map(tag), ["item of a", "item of b", "item of c", "item of d"])
      assert.deepStrictEqual(asked.map(({ at }) => at), [0, 40])
      assert.strictEqual((yield* Api.stats).running, 0)
    }).pipe(limited, north) as Effect.Effect<void>)
  it.effect("one who holds a permit is not merged with those who wait for it", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ backend: Api as any, window: 0 })
      const waits = yield* Deferred.make<void>()
      const holder = yield* fork(Api.withPermit(Effect.andThen(Deferred.await(waits), coalescer.load("a"))))
      const other = yield* fork(coalescer.load("a"))
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(asked, [])
      yield* Deferred.succeed(waits, undefined)
      yield* TestClock.adjust(30)
      assert.deepStrictEqual([yield* Fiber.join(holder), yield* Fiber.join(other)], ["item of a", "item of a"])
      assert.deepStrictEqual(asked.map(({ at }) => at), [1, 11])
    }).pipe(limited, north) as Effect.Effect<void>)
  it.effect("the last to leave gives the permit back, or the place in the line", () =>
    Effect.gen(function*() {
      const { asked, coalescer, ended } = desk({ backend: Api as any, size: 1, millis: 100 })
      const [a, b] = yield* Effect.all([fork(coalescer.load("a")), fork(coalescer.load("b"))])
      yield* TestClock.adjust(1)
      yield* Fiber.interrupt(b!)
      assert.deepStrictEqual([(yield* Api.stats).running, (yield* Api.stats).waiting], [1, 0])
      yield* Fiber.interrupt(a!)
      assert.deepStrictEqual([(yield* Api.stats).running, asked.length, ended], [0, 1, ["broken"]])
    }).pipe(limited, north) as Effect.Effect<void>)
  it.effect("a backend's refusal is told to each caller, and its circuit hears of requests that failed", () =>
    Effect.gen(function*() {
      const { coalescer } = desk({ backend: Api as any, size: 1, millis: 100 })
      const fiber = yield* fork(coalescer.loadAll(["a", "b"]))
      yield* TestClock.adjust(100)
      assert.deepStrictEqual((yield* Fiber.join(fiber)).map(tag), ["item of a", "QueueFull"])
    }).pipe(Effect.provide(Api.layer({ concurrency: 1, queueLimit: 0 })), north) as Effect.Effect<void>)
})

describe("R5: results of their own", () => {
  const Order = Schema.Struct({ left: Schema.Finite, tags: Schema.Array(Schema.String), at: Schema.Date })
  const made = (options: object = {}) =>
    unchecked(
      (keys: ReadonlyArray<string>) => Effect.succeed(keys.map(() => ({ left: 3, tags: ["x"], at: new Date(5) }))),
      {
        item: Order,
        ...options
      }
    )
  it.effect("MORE 14: two callers of one request share no memory", () =>
    Effect.gen(function*() {
      const [a, b] = yield* all([made().load("a"), made().load("a")])
      assert.notStrictEqual(a, b)
      const coalescer = made()
      const [c, d] = yield* all([coalescer.load("a"), coalescer.load("a")])
      c.left = 0
      c.tags.push("y")
      c.at.setTime(0)
      assert.deepStrictEqual(d, { left: 3, tags: ["x"], at: new Date(5) })
    }).pipe(north))
  it.effect("MORE 14: nor does what the cache gives", () =>
    Effect.gen(function*() {
      const coalescer = made()
      const first = yield* coalescer.load("a")
      first.left = 0
      const second = yield* coalescer.load("a")
      second.tags.push("y")
      assert.deepStrictEqual(yield* coalescer.load("a"), { left: 3, tags: ["x"], at: new Date(5) })
    }).pipe(Coalescer.cached, north))
  it.effect("an item that does not fit its schema is told where it would have to be copied", () =>
    Effect.gen(function*() {
      const coalescer = unchecked((keys: ReadonlyArray<string>) => Effect.succeed(keys.map(() => ({ left: "3" }))), {
        item: Order
      })
      const exits = yield* coalescer.loadAll(["a", "a"])
      assert.deepStrictEqual(exits.map(tag), ["InvalidAnswer", "InvalidAnswer"])
      assert.match(words(exits[0]!), /^desk: an item does not fit its schema: left: Expected number/)
      // One caller gets what the lookup gave.
      assert.deepStrictEqual<unknown>(yield* coalescer.load("a"), { left: "3" })
    }).pipe(north))
  it.effect("a key that JSON does not hold is named as what it is", () =>
    Effect.gen(function*() {
      const coalescer = unchecked((keys: ReadonlyArray<string>) => Effect.succeed(keys))
      const refusal = (key: unknown) =>
        Effect.map(Effect.exit(coalescer.load(key as string)), (exit) => {
          const reason = Exit.isFailure(exit) ? exit.cause.reasons[0] : undefined
          return reason?._tag === "Die" ? (reason.defect as Error).message : ""
        })
      const day = new Date("2026-01-02T03:04:05.000Z")
      assert.match(yield* refusal(day), /, and got a Date$/)
      assert.match(yield* refusal(new Map()), /, and got a Map$/)
      assert.match(yield* refusal(new AbortController().signal), /, and got an AbortSignal$/)
      assert.match(yield* refusal(Number.NaN), /, and got NaN$/)
      assert.match(yield* refusal({ of: [{ day }] }), /, and got \{"of":.*\}, with a Date in it$/)
      assert.match(yield* refusal([1n]), /, and got a list of 1, with 1n in it$/)
    }).pipe(north))
  it.effect("copies that take time are made too", () =>
    Effect.gen(function*() {
      const later = (n: number) => Effect.as(Effect.sleep(1), n)
      const Slow = Schema.Struct({
        n: Schema.Finite.pipe(
          Schema.decodeTo(Schema.Finite, SchemaTransformation.transformEffect({ decode: later, encode: later }))
        )
      })
      const coalescer = unchecked((keys: ReadonlyArray<string>) => Effect.succeed(keys.map(() => ({ n: 1 }))), {
        item: Slow
      })
      const fiber = yield* fork(
        Coalescer.cached(Effect.andThen(coalescer.loadAll(["a", "a"]), coalescer.loadAll(["a", "a"])))
      )
      yield* TestClock.adjust(100)
      const exits = yield* Fiber.join(fiber)
      assert.deepStrictEqual(exits.map(tag), [{ n: 1 }, { n: 1 }])
    }).pipe(north))
})

describe("the cache of a region", () => {
  const resources = (key: string) => [`file:${key}`]
  it.effect("there is none unless it is asked for, and it ends with its region", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ window: 0, millis: 0 })
      const twice = Effect.andThen(coalescer.load("a"), coalescer.load("a"))
      yield* twice
      assert.strictEqual(asked.length, 2)
      yield* Coalescer.cached(twice)
      assert.strictEqual(asked.length, 3)
      // One inside another is that one's.
      yield* Coalescer.cached(Effect.andThen(coalescer.load("a"), Coalescer.cached(twice)))
      assert.strictEqual(asked.length, 4)
      yield* Coalescer.invalidate()
    }).pipe(north))
  it.effect("it is by coalescer, tenant and key, and holds no failures", () =>
    Effect.gen(function*() {
      let fails = true
      const one = desk({
        window: 0,
        lookup: (keys) => fails ? Effect.fail("no") : Effect.succeed(keys.map((key) => `one ${key}`))
      })
      const two = desk({ window: 0, millis: 0 })
      yield* Effect.exit(one.coalescer.load("a"))
      fails = false
      assert.strictEqual(yield* one.coalescer.load("a"), "one a")
      assert.strictEqual(yield* two.coalescer.load("a"), "item of a")
      yield* as("south")(one.coalescer.load("a"))
      yield* one.coalescer.loadAll(["a", "b"])
      assert.deepStrictEqual(one.asked.map(({ keys, tenant }) => [tenant, ...keys]), [
        ["north", "a"],
        ["north", "a"],
        ["south", "a"],
        ["north", "b"]
      ])
    }).pipe(Coalescer.cached, north))
  it.effect("a write takes out what it touches, by paths", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ window: 0, millis: 0, resources })
      const keys = ["/a/b", "/a/c", "/d"]
      const gone = (written: ReadonlyArray<string> | undefined) =>
        Effect.gen(function*() {
          yield* coalescer.loadAll(keys)
          yield* Coalescer.invalidate(written)
          asked.length = 0
          yield* coalescer.loadAll(keys)
          return asked.flatMap(({ keys }) => keys)
        })
      assert.deepStrictEqual(yield* gone(["file:/a/b"]), ["/a/b"])
      assert.deepStrictEqual(yield* gone(["file:/a"]), ["/a/b", "/a/c"])
      assert.deepStrictEqual(yield* gone(["file:/a/b/deep"]), ["/a/b"])
      assert.deepStrictEqual(yield* gone(["file:/x", "order:1"]), [])
      assert.deepStrictEqual(yield* gone([]), [])
      assert.deepStrictEqual(yield* gone(undefined), keys)
    }).pipe(Coalescer.cached, north))
  it.effect("what has no resources, or cannot tell them, is touched by any write", () =>
    Effect.gen(function*() {
      for (
        const resources of [undefined, () => {
          throw new Error("no")
        }]
      ) {
        const { asked, coalescer } = desk({ window: 0, millis: 0, resources })
        yield* coalescer.load("a")
        yield* Coalescer.invalidate(["order:1"])
        yield* coalescer.load("a")
        assert.strictEqual(asked.length, 2)
      }
    }).pipe(Coalescer.cached, north))
  it.effect("what is on its way when a write comes is not kept, and nobody joins it any more", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ window: 0, millis: 100, resources })
      const first = yield* fork(coalescer.loadAll(["a", "b"]))
      yield* TestClock.adjust(10)
      yield* Coalescer.invalidate(["file:a"])
      const second = yield* fork(coalescer.loadAll(["a", "b"]))
      yield* TestClock.adjust(200)
      yield* Fiber.join(first)
      yield* Fiber.join(second)
      assert.deepStrictEqual(asked.map(({ at, keys }) => [at, keys]), [[0, ["a", "b"]], [10, ["a"]]])
      yield* coalescer.loadAll(["a", "b"])
      assert.strictEqual(asked.length, 2)
      // Many writes are remembered as one that touched anything.
      const third = yield* fork(coalescer.load("c"))
      yield* TestClock.adjust(1)
      for (let i = 0; i < 200; i++) yield* Coalescer.invalidate([`order:${i}`])
      yield* TestClock.adjust(100)
      yield* Fiber.join(third)
      const fourth = yield* fork(coalescer.load("c"))
      yield* TestClock.adjust(100)
      yield* Fiber.join(fourth)
      assert.strictEqual(asked.length, 4)
    }).pipe(Coalescer.cached, north))
})

describe("writes without a cache", () => {
  it.effect("nobody of the tenant joins a request that was sent before one that touches its key", () =>
    Effect.gen(function*() {
      const { asked, coalescer } = desk({ window: 0, resources: (key) => [`order:${key}`] })
      const loads = [yield* fork(coalescer.loadAll(["a", "b"])), yield* fork(as("south")(coalescer.load("a")))]
      yield* TestClock.adjust(1)
      yield* Coalescer.invalidate(["order:a"])
      loads.push(yield* fork(coalescer.loadAll(["a", "b"])), yield* fork(as("south")(coalescer.load("a"))))
      yield* TestClock.adjust(20)
      yield* Effect.forEach(loads, (load) => Fiber.join<unknown, unknown>(load))
      assert.deepStrictEqual(asked.map(({ keys, tenant }) => [tenant, keys.join()]), [
        ["north", "a,b"],
        ["south", "a"],
        ["north", "a"]
      ])
    }).pipe(north))
})

describe("tools outside of turns", () => {
  const { asked, coalescer } = desk({
    millis: 0,
    lookup: (keys) =>
      keys.includes("down")
        ? Effect.fail("down")
        : Effect.succeed(
          keys.map((key) => key === "none" ? undefined : key === "bad" ? Coalescer.failed("bad order") : key)
        )
  })
  const Get = pipe(
    Tool.make("get", {
      parameters: Schema.Struct({ id: Schema.String }),
      success: Schema.String,
      failure: Schema.String
    }),
    ToolPolicy.read(),
    Coalescer.through(coalescer, ({ id }) => id)
  )
  it.effect("a handler loads like anybody else, and its errors are effect/ai's", () =>
    Effect.gen(function*() {
      const handler = Coalescer.handler(Get)
      const get = (id: string) => Effect.flip(handler({ id }) as Effect.Effect<string, unknown, TurnContext.Tenant>)
      const fiber = yield* fork(all([handler({ id: "a" }), handler({ id: "b" })]))
      yield* TestClock.adjust(5)
      assert.deepStrictEqual(yield* Fiber.join(fiber), ["a", "b"])
      assert.deepStrictEqual(asked.map(({ keys }) => keys), [["a", "b"]])
      const errors = yield* fork(all([get("none"), get("bad"), Effect.andThen(Effect.sleep(20), get("down"))]))
      yield* TestClock.adjust(50)
      const [none, bad, down] = yield* Fiber.join(errors)
      assert.instanceOf(none, AiError.UnknownError)
      assert.include((none as AiError.UnknownError).description, 'there is nothing for "none"')
      assert.strictEqual(bad, "bad order")
      assert.instanceOf(down, AiError.InternalProviderError)
    }).pipe(north))
  it("a tool that is tied to no coalescer has no such handler", () =>
    assert.throws(
      () => Coalescer.handler(Tool.make("bare")),
      /tool "bare": expected a tool that is tied to a coalescer/
    ))
  it.effect("a toolkit takes it as it is", () =>
    Effect.gen(function*() {
      const toolkit = Toolkit.make(Get)
      const handlers = yield* Effect.provide(toolkit, toolkit.toLayer({ get: Coalescer.handler(Get) }))
      assert.deepStrictEqual(Object.keys(handlers.tools), ["get"])
    }))
})

describe("metrics", () => {
  it.effect("loads, requests and their sizes, by coalescer", () =>
    Effect.gen(function*() {
      const { coalescer } = desk({ size: 2, millis: 0 })
      const fiber = yield* fork(coalescer.loadAll(["a", "a", "b", "c"]))
      yield* TestClock.adjust(5)
      yield* Fiber.join(fiber)
      const by = { coalescer: "desk" }
      const loads = yield* Metric.value(Metric.withAttributes(Coalescer.loads, by))
      const requests = yield* Metric.value(Metric.withAttributes(Coalescer.requests, by))
      const items = yield* Metric.value(Metric.withAttributes(Coalescer.requestItems, by))
      assert.deepStrictEqual([loads.count, requests.count, items.count, items.sum], [4, 2, 2, 3])
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map()), north))
})
