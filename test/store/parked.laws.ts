/** The laws of `ParkedTurns`, as its doc comment says them, on any `TurnStore`. */
import { assert } from "@effect/vitest"
import { ParkedTurns, TurnContext } from "effect-turn"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { type Law, newTenant } from "./everyStore.ts"

type Service = ParkedTurns.ParkedTurns["Service"]

const lease = 30_000

const Note = Schema.Struct({
  _tag: Schema.Literal("Note"),
  version: Schema.Literal(2),
  tenant: Schema.String,
  turn: Schema.String,
  text: Schema.String,
  at: Schema.DateTimeUtcFromString
})
const noteOf = (tenant: string, turn = "one", text = "waits") => ({
  _tag: "Note",
  version: 2,
  tenant,
  turn,
  text,
  at: "2026-01-02T03:04:05.000Z"
})

const law = (
  name: string,
  f: (turns: Service, tenant: string) => Effect.Effect<void, unknown, any>
): Law<Service> => ({
  name,
  law: (turns) =>
    Effect.suspend(() => {
      const tenant = newTenant()
      return Effect.provide(f(turns, tenant), TurnContext.make({ tenant }))
    }) as Effect.Effect<void, unknown>
})

const reasonOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<string, A, R> =>
  Effect.map(
    Effect.flip(effect),
    (error) => error instanceof ParkedTurns.ParkedTurnError ? error.reason : String(error)
  )

const textOf = (turns: Service, id = "one") =>
  Effect.map(turns.get(id), (saved) => (saved?.parked as { readonly text: string } | undefined)?.text)

const done = () => Effect.succeed("done")
const elsewhere = Effect.provide(ParkedTurns.ParkedTurns, Layer.fresh(ParkedTurns.layer()))

export const laws: ReadonlyArray<Law<Service>> = [
  law(
    "what was saved is there, for its tenant, until it was resumed to its end",
    (turns, tenant) =>
      Effect.gen(function*() {
        assert.isUndefined(yield* turns.get("one"))
        yield* turns.save(noteOf(tenant))
        const saved = yield* turns.get("one")
        assert.deepStrictEqual(saved!.parked, noteOf(tenant))
        assert.deepStrictEqual([saved!.tenant, saved!.id, saved!.state, saved!.expiresAt], [
          tenant,
          "one",
          "waiting",
          null
        ])
        const other = TurnContext.make({ tenant: newTenant() })
        assert.isUndefined(yield* Effect.provide(turns.get("one"), other))
        assert.isFalse(yield* Effect.provide(turns.remove("one"), other))
        assert.strictEqual(yield* reasonOf(Effect.provide(turns.resume("one", Note, done), other)), "not_parked")
        const text = yield* (yield* elsewhere).resume(
          "one",
          Note,
          ({ at, text }) => Effect.as(turns.get("one"), `${text} since ${at.epochMilliseconds}`)
        )
        assert.strictEqual(text, "waits since 1767323045000")
        assert.isUndefined(yield* turns.get("one"))
        assert.strictEqual(yield* reasonOf(turns.resume("one", Note, done)), "not_parked")
      })
  ),
  law(
    "the same again changes when it expires alone; another one under its id is refused",
    (turns, tenant) =>
      Effect.gen(function*() {
        yield* turns.save(noteOf(tenant))
        yield* turns.save(noteOf(tenant), { expiresAt: 5_000 })
        assert.strictEqual((yield* turns.get("one"))!.expiresAt, 5_000)
        assert.strictEqual(yield* reasonOf(turns.save(noteOf(tenant, "one", "older"))), "unsavable")
        yield* turns.save(noteOf(tenant, "one", "beside"), { id: "two" })
        assert.deepStrictEqual([yield* textOf(turns), yield* textOf(turns, "two")], ["waits", "beside"])
        assert.isTrue(yield* turns.remove("one"))
        assert.isFalse(yield* turns.remove("one"))
        yield* turns.save(noteOf(tenant, "one", "older"))
        assert.strictEqual(yield* textOf(turns), "older")
      })
  ),
  law("of many that resume one at once exactly one has it", (turns, tenant) =>
    Effect.gen(function*() {
      for (let round = 0; round < 10; round++) {
        yield* turns.save(noteOf(tenant))
        const all = yield* Effect.forEach(
          Array.from({ length: 8 }, (_, i) => i),
          (i) => Effect.exit(turns.resume("one", Note, () => Effect.as(Effect.yieldNow, i))),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(all.filter((exit) => exit._tag === "Success").length, 1)
        assert.isUndefined(yield* turns.get("one"))
      }
    })),
  law(
    "while it is resumed nobody else resumes, saves or removes it, however long that takes",
    (turns, tenant) =>
      Effect.gen(function*() {
        yield* turns.save(noteOf(tenant))
        const started = yield* Deferred.make<void>()
        const finish = yield* Deferred.make<void>()
        const fiber = yield* Effect.forkChild(
          turns.resume("one", Note, () => Effect.andThen(Deferred.succeed(started, undefined), Deferred.await(finish)))
        )
        yield* Deferred.await(started)
        for (let i = 0; i < 3; i++) {
          assert.strictEqual((yield* turns.get("one"))!.state, "claimed")
          assert.strictEqual(yield* reasonOf(turns.resume("one", Note, done)), "claimed")
          assert.strictEqual(yield* reasonOf((yield* elsewhere).resume("one", Note, done)), "claimed")
          assert.strictEqual(yield* reasonOf(turns.save(noteOf(tenant))), "claimed")
          assert.strictEqual(yield* reasonOf(turns.remove("one")), "claimed")
          // The word that prolongs the claim needs as long as the store does.
          const { updatedAt } = (yield* turns.get("one"))!
          yield* TestClock.adjust(lease / 3)
          while ((yield* turns.get("one"))!.updatedAt === updatedAt) {
            yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
          }
          yield* TestClock.adjust(lease / 3)
          yield* TestClock.adjust(lease / 6)
        }
        yield* Deferred.succeed(finish, undefined)
        yield* Fiber.join(fiber)
        assert.isUndefined(yield* turns.get("one"))
      })
  ),
  law(
    "what was parked again is kept in its place, with the time that it had",
    (turns, tenant) =>
      Effect.gen(function*() {
        yield* turns.save(noteOf(tenant), { expiresAt: 60_000 })
        const result = yield* turns.resume(
          "one",
          Note,
          () => Effect.succeed({ _tag: "Parked", parked: noteOf(tenant, "one", "waits again") })
        )
        assert.strictEqual(result._tag, "Parked")
        const saved = yield* turns.get("one")
        assert.deepStrictEqual([saved!.parked, saved!.state, saved!.expiresAt], [
          noteOf(tenant, "one", "waits again"),
          "waiting",
          60_000
        ])
        yield* turns.resume("one", Note, ({ text }) => {
          assert.strictEqual(text, "waits again")
          return done()
        })
        assert.isUndefined(yield* turns.get("one"))
      })
  ),
  law("what fails, dies or is interrupted gives it back as it was", (turns, tenant) =>
    Effect.gen(function*() {
      yield* turns.save(noteOf(tenant))
      const before = yield* turns.get("one")
      const same = Effect.gen(function*() {
        const now = yield* turns.get("one")
        assert.deepStrictEqual({ ...now, updatedAt: 0 }, { ...before, updatedAt: 0 })
      })
      assert.strictEqual(
        yield* Effect.flip(turns.resume("one", Note, () => Effect.fail("the tools have changed"))),
        "the tools have changed"
      )
      yield* same
      yield* Effect.exit(turns.resume("one", Note, () => Effect.die("broken")))
      yield* same
      yield* Effect.exit(turns.resume("one", Note, (): Effect.Effect<never> => {
        throw new Error("broken before it began")
      }))
      yield* same
      const started = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(
        turns.resume("one", Note, () => Effect.andThen(Deferred.succeed(started, undefined), Effect.never))
      )
      yield* Deferred.await(started)
      yield* Fiber.interrupt(fiber)
      yield* same
      assert.strictEqual(yield* turns.resume("one", Note, done), "done")
    })),
  law("what the schema does not expect is told with what came, and stays", (turns, tenant) =>
    Effect.gen(function*() {
      const others = [{ ...noteOf(tenant), version: 1 }, { ...noteOf(tenant), _tag: "Letter" }, { tenant, turn: "one" }]
      for (const parked of others) {
        yield* turns.save(parked)
        const error = yield* Effect.flip(turns.resume("one", Note, done))
        if (!(error instanceof ParkedTurns.ParkedTurnError)) throw new Error(String(error))
        assert.strictEqual(error.reason, "unreadable")
        const { _tag, version } = parked as { _tag?: string; version?: number }
        assert.include(error.message, `${_tag === undefined ? "something" : `"${_tag}"`} of version ${version}`)
        assert.deepStrictEqual((yield* turns.get("one"))!.parked, parked)
        assert.strictEqual((yield* turns.get("one"))!.state, "waiting")
        assert.isTrue(yield* turns.remove("one"))
      }
    })),
  law("what is no JSON, has no id, or is another tenant's is not saved", (turns, tenant) =>
    Effect.gen(function*() {
      const circle: any = noteOf(tenant)
      circle.self = circle
      const bad: ReadonlyArray<any> = [circle, { ...noteOf(tenant), n: 10n }, { tenant }, null, "one", noteOf("other")]
      for (const parked of bad) assert.strictEqual(yield* reasonOf(turns.save(parked)), "unsavable")
      assert.deepStrictEqual(yield* turns.list({ tenant }), [])
      const agent = { _tag: "ParkedAgent", agent: "agent_1", turn: { tenant, turn: "one" } }
      yield* turns.save(agent)
      assert.deepStrictEqual((yield* turns.get("agent_1"))!.parked, agent)
    })),
  law("one whose time is over is gone, for everybody at once", (turns, tenant) =>
    Effect.gen(function*() {
      yield* turns.save(noteOf(tenant), { expiresAt: 1_000 })
      yield* turns.save(noteOf(tenant, "two"))
      yield* TestClock.adjust(999)
      yield* turns.expire
      assert.strictEqual(yield* textOf(turns), "waits")
      yield* TestClock.adjust(1)
      assert.isUndefined(yield* turns.get("one"))
      assert.strictEqual(yield* reasonOf(turns.resume("one", Note, done)), "not_parked")
      assert.deepStrictEqual((yield* turns.list({ tenant })).map(({ id }) => id), ["two"])
      // Another one may stand under its id, also before anybody has swept.
      yield* turns.save(noteOf(tenant, "one", "new"), { expiresAt: 2_000 })
      assert.strictEqual(yield* textOf(turns), "new")
      yield* TestClock.adjust(1_000)
      assert.isAtLeast(yield* turns.expire, 1)
      assert.isTrue(yield* turns.remove("two"))
      assert.deepStrictEqual(yield* turns.list({ tenant }), [])
    })),
  law("a list has each once, page by page", (turns, tenant) =>
    Effect.gen(function*() {
      const ids = ["a", "b", "__proto__", '"', "é", "", "z".repeat(300)]
      for (const id of ids) yield* turns.save(noteOf(tenant, id))
      yield* turns.save(noteOf(tenant, "over"), { expiresAt: 1 })
      yield* TestClock.adjust(1)
      for (const limit of [1, 2, 3, 100]) {
        const found: Array<ParkedTurns.Saved> = []
        for (;;) {
          const page = yield* turns.list({ tenant, limit, after: found[found.length - 1] })
          if (page.length === 0) break
          found.push(...page)
        }
        assert.deepStrictEqual(found.map(({ id }) => id).toSorted(), ids.toSorted())
      }
      assert.isAtLeast((yield* turns.list()).length, 1)
    }))
]
