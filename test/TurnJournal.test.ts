import { assert, describe, it } from "@effect/vitest"
import { Outcome, Siblings, type TurnEvent, TurnJournal, TurnStore } from "effect-turn"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import { createHash } from "node:crypto"
import { int, pick, runs } from "./utils/gen.ts"
import { Api, call, drive, fork, idle, journalOf, lab, run, words } from "./utils/kit.ts"

const { TurnJournal: Journal } = TurnJournal
const { StoreError } = TurnStore

const me = { owner: "me" }
const one = { tenant: "t", turn: "one" }

describe("a journal in memory", () => {
  it.effect("each use of the layer has a journal of its own only where it is made fresh", () =>
    Effect.gen(function*() {
      const entries = Effect.flatMap(Journal, (journal) => journal.entries(one))
      const key = {
        ...one,
        conversation: undefined,
        position: 0,
        id: "a",
        tool: "read",
        digest: "d",
        idempotencyKey: undefined
      }
      yield* Effect.flatMap(Journal, (journal) => journal.reserve(key, me))
      assert.strictEqual((yield* entries).length, 1)
      assert.deepStrictEqual(yield* entries.pipe(Effect.provide(Layer.fresh(TurnJournal.layerMemory))), [])
    }).pipe(Effect.provide(TurnJournal.layerMemory)))
})

/** A journal that writes down what it was asked, takes its time, and fails where it is told to. */
const scripted = (
  book: { readonly asked: Array<string> },
  does: {
    readonly ms?: number
    readonly fails?: (operation: string, id: string) => boolean
    readonly breaks?: (operation: string, id: string) => boolean
  }
) => {
  const step = (
    operation: "reserve" | "free" | "settle",
    { id }: TurnJournal.CallKey
  ): Effect.Effect<void, TurnStore.StoreError> => {
    book.asked.push(`${operation} ${id}`)
    if (does.breaks?.(operation, id) === true) throw new Error("the store broke")
    const wait = does.ms === undefined ? Effect.void : Effect.sleep(does.ms)
    return does.fails?.(operation, id) === true
      ? Effect.andThen(
        wait,
        Effect.fail(new StoreError({ store: "it", operation: "change", description: "the store is down" }))
      )
      : wait
  }
  return journalOf({
    reserve: (key) => step("reserve", key),
    free: (key) => step("free", key),
    settle: (key) => step("settle", key)
  })
}

const turn = (
  calls: Parameters<typeof run>[0],
  does: Parameters<typeof scripted>[1],
  options?: Parameters<typeof run>[1],
  more?: Parameters<typeof lab>[0]
) =>
  Effect.gen(function*() {
    const asked: Array<string> = []
    const { book, layer } = lab(more)
    const outcomes = yield* drive(
      run(calls, { ...options, onEvent: book.note }).pipe(
        Effect.provide([layer, scripted({ asked }, does)])
      )
    )
    return { asked, book, outcomes }
  })

describe("R21: a turn with a journal", () => {
  it.effect("reserves before each start, and settles with the outcome; what does not start is not written", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { bad: { end: "fail" } } })
      yield* Effect.gen(function*() {
        const journal = yield* Journal
        const outcomes = yield* drive(
          run(
            [
              call("write", "a", ["k"]),
              call("read", "bad", ["k"]),
              call("pay", "p", ["p"]),
              call("nobody" as any, "x"),
              call("put", "w", ["w"])
            ],
            { turn: "one" }
          )
        )
        assert.deepStrictEqual(words(outcomes), ["ok", "error/failed", "pending_approval", "error/unknown_tool", "ok"])
        const entries = yield* journal.entries(one)
        assert.deepStrictEqual(
          entries.map((
            entry
          ) => [entry._tag, entry.key.position, entry.key.id, entry.key.tool, entry.key.idempotencyKey]),
          [
            ["settled", 0, "a", "write", undefined],
            ["settled", 1, "bad", "read", undefined],
            ["settled", 4, "w", "put", "key:w"]
          ]
        )
        assert.deepStrictEqual(
          entries.map((entry) => entry._tag === "settled" && entry.outcome.status),
          ["ok", "error", "ok"]
        )
        assert.strictEqual(book.runs.length, 3)
      }).pipe(Effect.provide([layer, TurnJournal.layerMemory]))
    }))

  it.effect("waits for the journal before the handler starts, and before the answer is given", () =>
    Effect.gen(function*() {
      const { asked, book } = yield* turn([call("write", "a", ["k"]), call("read", "b", ["k"])], { ms: 5 })
      assert.deepStrictEqual([book.span("a"), book.span("b")], [[5, 15], [25, 35]])
      assert.deepStrictEqual(book.tagsOf("CallEnded").map((event) => event.at), [20, 40])
      assert.deepStrictEqual(asked, ["reserve a", "settle a", "reserve b", "settle b"])
    }))

  it.effect("what cannot be written down is not started, and may be tried again; nobody else is touched", () =>
    Effect.gen(function*() {
      for (const how of ["fails", "breaks"] as const) {
        const { asked, book, outcomes } = yield* turn(
          [call("post", "a", ["k"]), call("post", "b", ["k"]), call("read", "c")],
          { [how]: (operation: string, id: string) => operation === "reserve" && id === "a" },
          {},
          { api: { concurrency: 1 } }
        )
        assert.deepStrictEqual(words(outcomes), ["error/store_unavailable", "ok", "ok"])
        assert.deepStrictEqual([outcomes[0]!.started, outcomes[0]!.effect, outcomes[0]!.retryable], [
          false,
          "none",
          true
        ])
        assert.include(outcomes[0]!.message, how === "fails" ? "the store is down" : "the store broke")
        assert.strictEqual(book.count("a"), 0)
        assert.notInclude(asked, "settle a")
      }
    }))

  it.effect("a call that the journal knows has its outcome; one that was begun and lost is in doubt, unless it reads", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      yield* Effect.gen(function*() {
        const calls = [call("post", "a", ["k"]), call("read", "b"), call("write", "c", ["l"])]
        const journal = yield* TurnJournal.TurnJournal
        const key = (position: number, tool: string, args: string) => ({
          tenant: "t",
          conversation: undefined,
          turn: "one",
          position,
          id: "",
          tool,
          digest: createHash("sha256").update(JSON.stringify([null, args])).digest("hex"),
          idempotencyKey: undefined
        })
        // What a process that crashed has left.
        yield* journal.reserve(key(0, "post", `{"k":["k"],"tag":"a"}`), me)
        yield* journal.reserve(key(1, "read", `{"tag":"b"}`), me)
        const first = yield* drive(run(calls, { turn: "one" }))
        assert.deepStrictEqual(words(first), ["error/in_doubt", "ok", "ok"])
        assert.deepStrictEqual(first.map((one) => [one.effect, one.retryable]), [["unknown", false], ["none", false], [
          "applied",
          false
        ]])
        const second = yield* drive(run(calls, { turn: "one" }))
        assert.deepStrictEqual(second.map(Outcome.toJson), first.map(Outcome.toJson))
        assert.deepStrictEqual(book.runs.map((ran) => ran.tag), ["c", "b"])
      }).pipe(Effect.provide(Layer.merge(layer, TurnJournal.layerMemory)))
    }))

  it.effect("R18: it triggers no fail-fast, for nothing was started", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(
        [call("read", "a"), call("read", "b")],
        { fails: (operation, id) => operation === "reserve" && id === "a" },
        { siblings: Siblings.failFast }
      )
      assert.deepStrictEqual(words(outcomes), ["error/store_unavailable", "ok"])
    }))

  it.effect("an outcome that cannot be written down is answered all the same", () =>
    Effect.gen(function*() {
      for (const how of ["fails", "breaks"] as const) {
        const { outcomes } = yield* turn([call("write", "a", ["k"]), call("read", "b", ["k"])], {
          [how]: (operation: string) => operation === "settle"
        })
        assert.deepStrictEqual(words(outcomes), ["ok", "ok"])
      }
    }))

  it.effect("a stop during the reserve frees it, and the call is not started", () =>
    Effect.gen(function*() {
      const { asked, book, outcomes } = yield* turn([call("write", "a", ["k"]), call("read", "b")], { ms: 50 }, {
        deadline: 20
      })
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline", "cancelled/by_deadline"])
      assert.deepStrictEqual(outcomes.map((one) => [one.started, one.effect, one.retryable]), [
        [false, "none", true],
        [false, "none", true]
      ])
      assert.deepStrictEqual(book.runs, [])
      assert.deepStrictEqual(asked, ["reserve a", "reserve b", "free a", "free b"])
      // The reserve is interrupted, and what it may have written is freed, which takes 50 ms.
      assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 70)
    }))

  it.effect("R19: a stop during a reserve that then fails is still a stop", () =>
    Effect.gen(function*() {
      const { asked, outcomes } = yield* turn(
        [call("write", "a", ["k"])],
        { ms: 50, fails: (operation) => operation === "reserve" },
        { deadline: 20 }
      )
      assert.deepStrictEqual(words(outcomes), ["cancelled/by_deadline"])
      assert.deepStrictEqual(asked, ["reserve a", "free a"])
    }))

  it.effect("R15: a journal that never answers holds no call longer than its waiting limit, and no turn for ever", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const journal = journalOf({
        reserve: ({ id }) => id === "a" ? Effect.never : Effect.void,
        free: () => Effect.never,
        settle: () => Effect.never
      })
      const outcomes = yield* drive(
        run([call("write", "a", ["k"]), call("read", "b")]).pipe(Effect.provide([layer, journal]))
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/queue", "ok"])
      assert.deepStrictEqual([outcomes[0]!.started, book.count("a")], [false, 0])
    }))

  it.effect("one that is deaf for ever holds no turn either, and what it writes too late is freed", () =>
    Effect.gen(function*() {
      const { book, layer } = lab()
      const asked: Array<string> = []
      const note = (what: string) => Effect.sync(() => void asked.push(what))
      const deaf = Effect.uninterruptible(Effect.never)
      const late = Effect.uninterruptible(Effect.andThen(Effect.sleep(90_000), note("reserved")))
      const journal = journalOf({
        reserve: ({ id }) => id === "a" ? late : Effect.void,
        free: ({ id }) => note(`free ${id}`),
        settle: () => deaf
      })
      const outcomes = yield* drive(
        run([call("write", "a", ["k"]), call("read", "b")], { onEvent: book.note }).pipe(
          Effect.provide([layer, journal])
        )
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/queue", "ok"])
      assert.strictEqual(book.tagsOf("TurnEnded")[0]!.at, 65_000)
      assert.deepStrictEqual(asked, ["free a", "reserved", "free a"])
    }))

  it.effect("a sibling's failure during the reserve frees it too", () =>
    Effect.gen(function*() {
      const asked: Array<string> = []
      const { book, layer } = lab({ script: { bad: { ms: 0, end: "fail" } } })
      const journal = journalOf({
        reserve: ({ id }) =>
          Effect.andThen(Effect.sync(() => asked.push(`reserve ${id}`)), Effect.sleep(id === "bad" ? 5 : 50)),
        free: ({ id }) => Effect.sync(() => void asked.push(`free ${id}`)),
        settle: ({ id }) => Effect.sync(() => void asked.push(`settle ${id}`))
      })
      const outcomes = yield* drive(
        run([call("read", "bad"), call("write", "a", ["k"])], { siblings: Siblings.failFast }).pipe(
          Effect.provide([layer, journal])
        )
      )
      assert.deepStrictEqual(words(outcomes), ["error/failed", "cancelled/by_sibling"])
      assert.strictEqual(book.count("a"), 0)
      assert.deepStrictEqual(asked, ["reserve bad", "reserve a", "settle bad", "free a"])
    }))

  it.effect("what was given up on is settled as it was answered, and its late end changes nothing", () =>
    Effect.gen(function*() {
      const { book, layer } = lab({ script: { w: { ms: 100 } } })
      yield* Effect.gen(function*() {
        const journal = yield* Journal
        yield* drive(run([call("write", "w", ["k"])], { turn: "one", deadline: 10, grace: 10, onEvent: book.note }))
        const [entry] = yield* journal.entries(one)
        assert.strictEqual(entry!._tag === "settled" && entry!.outcome.status, "cancelled")
        assert.deepStrictEqual(
          (book.tagsOf("CallSettledLate") as ReadonlyArray<TurnEvent.CallSettledLate>).map((event) =>
            event.outcome.status
          ),
          ["ok"]
        )
      }).pipe(Effect.provide([layer, TurnJournal.layerMemory]))
    }))

  it.effect("what is given up while the journal is slow gives its place under the turn's own limit back", () =>
    Effect.gen(function*() {
      const { outcomes } = yield* turn(
        [call("write", "w", ["k"]), call("read", "a"), call("read", "b")],
        { ms: 20 },
        { execution: 1, grace: 10 },
        { script: { w: { ms: 10_015 } } }
      )
      assert.deepStrictEqual(words(outcomes), ["timeout/handler", "ok", "ok"])
    }))

  it.effect.prop(
    "every started call is reserved before and settled after, whatever fails, and no call is answered twice",
    {
      calls: Arbitrary.array(
        Arbitrary.all({
          name: pick<"read" | "write" | "put" | "post">("read", "write", "put", "post"),
          k: Arbitrary.array(pick("a", "b"), { maxLength: 1 }),
          ms: pick(0, 10, 25),
          fails: pick("", "", "", "reserve", "settle", "free")
        }),
        { minLength: 1, maxLength: 6 }
      ),
      ms: pick<number | undefined>(undefined, 0, 4),
      stop: pick("none", "none", "deadline", "interrupt"),
      at: int(1, 40)
    },
    ({ at, calls, ms, stop }) =>
      Effect.gen(function*() {
        const asked: Array<string> = []
        const { book, layer } = lab({ api: { concurrency: 1 } })
        calls.forEach((one, i) => book.script.set(`c${i}`, { ms: one.ms }))
        const journal = scripted({ asked }, {
          ...(ms === undefined ? undefined : { ms }),
          fails: (operation, id) => calls[Number(id.slice(1))]!.fails === operation
        })
        yield* Effect.gen(function*() {
          const closed: Array<ReadonlyArray<Outcome.Outcome<any>>> = []
          const fiber = yield* fork(
            run(calls.map(({ k, name }, i) => call(name, `c${i}`, k)), {
              ...(stop === "deadline" ? { deadline: at } : undefined),
              onClosed: ({ outcomes }) =>
                Effect.sync(() => {
                  closed.push(outcomes)
                })
            })
          )
          yield* TestClock.adjust(at)
          if (stop === "interrupt") yield* fork(Fiber.interrupt(fiber))
          yield* TestClock.adjust(10_000)
          assert.isDefined(fiber.pollUnsafe())
          closed[0]!.forEach((outcome, i) => {
            const steps = asked.filter((step) => step.endsWith(` c${i}`)).map((step) => step.split(" ")[0])
            const ran = book.count(`c${i}`)
            assert.strictEqual(outcome.started, ran === 1)
            if (ran === 1) assert.deepStrictEqual(steps, ["reserve", "settle"])
            else assert.include([[], ["reserve"], ["reserve", "free"]].map(String), String(steps))
          })
          assert.deepStrictEqual(yield* Api.stats, idle(1))
        }).pipe(Effect.provide([layer, journal]))
      }),
    runs(200)
  )
})
