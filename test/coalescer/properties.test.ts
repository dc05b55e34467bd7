/**
 * Generated callers over generated lookups, under explored schedules: whatever the keys, tenants, latencies, answers and leaves, everybody gets
 * its own and nothing is left.
 */
import { assert, describe, it } from "@effect/vitest"
import { Backend, Coalescer, TurnContext } from "effect-turn"
import { Simulation } from "effect-turn/testing"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { int, pick, runs } from "../utils/gen.ts"

class Api extends Backend.Service<Api>()("test/Api") {}

interface Caller {
  readonly tenant: string
  readonly keys: ReadonlyArray<string>
  readonly at: number
  /** When it leaves. */
  readonly patience: number
  /** It holds a permit of the backend while it loads. */
  readonly holds: boolean
}

const kinds = ["keyed", "map", "position", "short", "failing", "dying", "no list", "hanging"] as const

interface Input {
  readonly callers: ReadonlyArray<Caller>
  readonly kind: typeof kinds[number]
  readonly size: number
  readonly window: number
  readonly millis: number
  readonly backend: boolean
}

const caller: Arbitrary.Arbitrary<Caller> = Arbitrary.all({
  tenant: pick("north", "south"),
  keys: Arbitrary.array(pick("a", "b", "c", "d", "none", "bad", "twice"), { minLength: 1, maxLength: 4 }),
  at: pick(0, 1, 5, 7),
  patience: pick(1000, 1000, 0, 3, 5, 8),
  holds: pick(false, false, false, true)
})

const inputs: Arbitrary.Arbitrary<Input> = Arbitrary.all({
  callers: Arbitrary.array(caller, { minLength: 1, maxLength: 6 }),
  kind: pick(...kinds),
  size: int(1, 4),
  window: pick(0, 5),
  millis: pick(0, 4),
  backend: pick(false, true)
})

interface Item {
  readonly tenant: string
  readonly key: string
}

/** What a request for these keys is answered with. */
const answer = (kind: Input["kind"], keys: ReadonlyArray<string>, tenant: string): Effect.Effect<any, unknown> => {
  const item = (key: string, more: object = {}) =>
    key === "none" ? undefined : key === "bad" ? Coalescer.failed("bad") : { tenant, key, ...more }
  switch (kind) {
    case "keyed": {
      // Shuffled, without those that are missing, with some that nobody asked for, and two for one.
      const items = keys.filter((key) => key !== "none" && key !== "bad").map((key) => item(key)).toReversed()
      if (keys.includes("twice")) items.unshift(item("twice", { again: true }))
      return Effect.succeed([item("extra"), ...items, item("other")])
    }
    case "map":
      return Effect.succeed(
        new Map([["extra", item("extra")], ...keys.map((key) => [key, item(key)] as const).toReversed()])
      )
    case "position":
      return Effect.succeed(keys.map((key) => item(key)))
    case "short":
      return Effect.succeed(keys.map((key) => item(key)).slice(1))
    case "failing":
      return Effect.fail("down")
    case "dying":
      return Effect.die(new Error("broken"))
    case "no list":
      return Effect.succeed("items")
    case "hanging":
      return Effect.never
  }
}

/** What a load has to come to, by the words of the rules. */
const expected = (kind: Input["kind"], tenant: string, key: string): unknown => {
  switch (kind) {
    case "keyed":
      if (key === "twice") return "InvalidAnswer"
      return key === "none" || key === "bad" ? "ItemNotFound" : { tenant, key }
    case "map":
    case "position":
      return key === "none" ? "ItemNotFound" : key === "bad" ? "bad" : { tenant, key }
    case "failing":
    case "dying":
      return "RequestFailed"
    case "hanging":
      return "RequestTimeout"
    default:
      return "InvalidAnswer"
  }
}

const tag = (exit: Exit.Exit<unknown, unknown>): unknown => {
  if (Exit.isSuccess(exit)) return exit.value
  const error = Exit.findErrorOption(exit)
  if (error._tag === "None") return "broken"
  return typeof error.value === "string" ? error.value : (error.value as { readonly _tag: string })._tag
}

const desk = ({ backend, kind, millis, size, window }: Omit<Input, "callers">) => {
  const book = {
    requests: [] as Array<{ readonly tenant: string; readonly keys: ReadonlyArray<string> }>,
    running: 0,
    /** How many wait for a key of a tenant. */
    waiting: new Map<string, number>(),
    problems: [] as Array<string>
  }
  const coalescer = Coalescer.make<string, Item, string, unknown>({
    name: "desk",
    size,
    window,
    timeout: 30,
    ...(kind === "keyed" ? { itemKey: (item: Item) => item.key } : undefined),
    ...(backend ? { backend: Api as any } : undefined),
    lookup: (keys, { tenant }) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          book.requests.push({ tenant, keys })
          book.running++
          if (keys.length > size) book.problems.push(`${keys.length} keys in a request of at most ${size}`)
          if (new Set(keys).size !== keys.length) book.problems.push(`a key twice: ${keys.join(", ")}`)
          if (!keys.some((key) => (book.waiting.get(`${tenant} ${key}`) ?? 0) > 0)) {
            book.problems.push(`a request without a caller: ${keys.join(", ")}`)
          }
        }),
        () => Effect.andThen(Effect.sleep(millis), answer(kind, keys, tenant)),
        () => Effect.sync(() => book.running--)
      )
  })
  return { book, coalescer }
}

type Desk = ReturnType<typeof desk>

const call = (
  { book, coalescer }: Desk,
  { at, holds, keys, patience, tenant }: Caller,
  kind: Input["kind"],
  backend: boolean
) => {
  const count = (by: 1 | -1) =>
    Effect.sync(() => {
      for (const key of keys) book.waiting.set(`${tenant} ${key}`, (book.waiting.get(`${tenant} ${key}`) ?? 0) + by)
    })
  const all = keys.length === 1
    ? Effect.map(Effect.exit(coalescer.load(keys[0]!)), (exit) => [exit])
    : coalescer.loadAll(keys)
  const checked = Effect.acquireUseRelease(count(1), () => all, () => count(-1)).pipe(
    Effect.map((exits) => {
      const got = exits.map(tag)
      const wanted = keys.map((key) => expected(kind, tenant, key))
      // A list that is as long as it should be by chance is none: a request for one key has no short answer but an empty one.
      if (JSON.stringify(got) !== JSON.stringify(wanted)) {
        book.problems.push(
          `${tenant} ${keys.join(", ")}: expected ${JSON.stringify(wanted)}, got ${JSON.stringify(got)}`
        )
      }
    })
  )
  const held = backend && holds ? Api.withPermit(checked) : checked
  return Effect.andThen(
    Effect.sleep(at),
    patience === 1000 ? held : Effect.raceFirst(held, Effect.sleep(patience))
  ).pipe(Effect.provide(TurnContext.make({ tenant })))
}

/** Nobody is left: no request at work, no permit out, nothing in line. */
const nothingLeft = ({ book }: Desk) =>
  Effect.gen(function*() {
    const { running, waiting } = yield* Api.stats
    if (book.running !== 0) book.problems.push(`${book.running} requests are still at work`)
    if (running !== 0 || waiting !== 0) book.problems.push(`${running} permits are out, ${waiting} wait`)
    assert.deepStrictEqual(book.problems, [])
  })

const program = ({ callers, ...settings }: Input) =>
  Effect.gen(function*() {
    const made = desk(settings)
    yield* Effect.forEach(callers, (caller) => call(made, caller, settings.kind, settings.backend), {
      concurrency: "unbounded",
      discard: true
    })
    yield* nothingLeft(made)
    for (const { keys, tenant } of made.book.requests) {
      for (const key of keys) {
        assert.isTrue(
          callers.some((caller) => caller.tenant === tenant && caller.keys.includes(key)),
          `${tenant} ${key}`
        )
      }
    }
  }).pipe(Effect.provide(Api.layer({ concurrency: 1 }))) as Effect.Effect<void>

describe("callers, lookups and schedules of every kind", () => {
  it.effect(
    "L1, L2, L3: each caller gets its own item or its own error; requests keep to their tenant and size; nothing is left",
    () => Simulation.forAll(inputs, program, { inputs: runs(500).arbitrary.runs, seeds: 4 }),
    120_000
  )

  it.effect(
    "R28: no item of one tenant is in another's request, under many schedules of one program",
    () =>
      Simulation.explore(
        Effect.suspend(() =>
          program({
            callers: ["north", "south", "north", "south"].map((tenant, i) => ({
              tenant,
              keys: ["a", i < 2 ? "b" : "c"],
              at: i % 2,
              patience: i === 3 ? 3 : 1000,
              holds: i === 2
            })),
            kind: "map",
            size: 3,
            window: 5,
            millis: 4,
            backend: true
          })
        ),
        { seeds: runs(10_000).arbitrary.runs }
      ),
    120_000
  )

  it.effect("L3: a stop at every point leaves nothing behind, and the others have their answers", () => {
    const stopped = (point: number, backend: boolean) =>
      Effect.gen(function*() {
        const made = desk({ kind: "position", size: 2, window: 5, millis: 4, backend })
        const caller = (keys: ReadonlyArray<string>): Caller => ({
          tenant: "north",
          keys,
          at: 0,
          patience: 1000,
          holds: false
        })
        const work = (keys: ReadonlyArray<string>) => call(made, caller(keys), "position", backend)
        const other = yield* Effect.forkChild(work(["a"]))
        const fiber = yield* Effect.forkChild(
          Effect.all([work(["a"]), work(["b", "c", "d"])], { concurrency: "unbounded" })
        )
        yield* Effect.raceFirst(Effect.andThen(Simulation.point(point), Fiber.interrupt(fiber)), Fiber.await(fiber))
        yield* Fiber.await(fiber)
        yield* Fiber.join(other)
        yield* nothingLeft(made)
      }).pipe(Effect.provide(Api.layer({ concurrency: 1 }))) as Effect.Effect<void>
    return Effect.gen(function*() {
      for (const backend of [false, true]) {
        const { points, problem } = yield* Simulation.run(stopped(Infinity, backend))
        assert.isUndefined(problem)
        assert.isAbove(points, 20)
        for (let point = 1; point <= points; point++) {
          const run = yield* Simulation.run(stopped(point, backend))
          assert.isUndefined(run.problem, `point ${point}, backend ${backend}`)
        }
      }
    })
  }, 60_000)

  it.effect("L3: when the stop of the last has ended, its request has", () => {
    const stopped = (point: number) =>
      Effect.gen(function*() {
        const made = desk({ kind: "hanging", size: 3, window: 5, millis: 4, backend: false })
        const work = made.coalescer.loadAll(["a", "b", "c", "d"]).pipe(
          Effect.provide(TurnContext.make({ tenant: "north" }))
        )
        made.book.waiting.set("north a", 1).set("north d", 1)
        const fiber = yield* Effect.forkChild(work)
        yield* Effect.raceFirst(Effect.andThen(Simulation.point(point), Fiber.interrupt(fiber)), Fiber.await(fiber))
        return made.book.running === 0 && made.book.problems.length === 0
      })
    return Effect.gen(function*() {
      const { points } = yield* Simulation.run(stopped(Infinity))
      for (let point = 1; point <= points; point++) {
        const run = yield* Simulation.run(stopped(point))
        assert.isUndefined(run.problem, `point ${point}`)
      }
    })
  }, 60_000)
})
