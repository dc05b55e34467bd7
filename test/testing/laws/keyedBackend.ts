/**
 * What a remote service that honours idempotency keys promises: sentences that the fake one and real ones are held to alike.
 *
 * A law knows nothing of time. Where it needs requests that are in flight together, it asks for a service that holds them, waits
 * until they are there, and lets them go.
 */
import { assert } from "@effect/vitest"
import type { FakeBackend } from "effect-turn/testing"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"

export interface Asked {
  readonly key?: string
  readonly payload: { readonly room: number }
}

export interface Answer {
  readonly effect: number
  readonly payload: { readonly room: number }
}

export interface KeyedBackend {
  readonly request: (asked: Asked) => Effect.Effect<Answer, FakeBackend.Failure>
  readonly lookup: (key: string) => Effect.Effect<Answer | undefined>
  /** How many effects there have been. */
  readonly effects: Effect.Effect<number>
  /** Waits until so many more requests have been let in, and are held before their effect. */
  readonly entered: (requests: number) => Effect.Effect<void>
  /** Lets all that is held go on; nothing is held afterwards. */
  readonly open: Effect.Effect<void>
}

/** A service that nobody has used yet. */
export type Make = (options: {
  readonly holds: boolean
  readonly concurrency: number
}) => Effect.Effect<KeyedBackend, never, Scope.Scope>

interface Law {
  readonly name: string
  readonly law: (make: Make) => Effect.Effect<void, FakeBackend.Failure, Scope.Scope>
}

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

const free = { holds: false, concurrency: 10 }
const payload = { room: 1 }

export const laws: ReadonlyArray<Law> = [
  {
    name: "a key has one effect, and its repetition answers the first result",
    law: Effect.fnUntraced(function*(make) {
      const backend = yield* make(free)
      const first = yield* backend.request({ key: "a", payload })
      const other = yield* backend.request({ key: "b", payload })
      const again = yield* backend.request({ key: "a", payload })
      assert.deepInclude(first, { payload })
      assert.strictEqual(again.effect, first.effect)
      assert.notStrictEqual(other.effect, first.effect)
      assert.strictEqual(yield* backend.effects, 2)
    })
  },
  {
    name: "without a key every request has an effect",
    law: Effect.fnUntraced(function*(make) {
      const backend = yield* make(free)
      const answers = [yield* backend.request({ payload }), yield* backend.request({ payload })]
      assert.strictEqual(new Set(answers.map(({ effect }) => effect)).size, 2)
      assert.strictEqual(yield* backend.effects, 2)
    })
  },
  {
    name: "a key with another payload is refused, and has no effect",
    law: Effect.fnUntraced(function*(make) {
      const backend = yield* make(free)
      yield* backend.request({ key: "a", payload })
      const refused = yield* Effect.result(backend.request({ key: "a", payload: { room: 2 } }))
      assert.strictEqual(refused._tag === "Failure" && refused.failure._tag, "KeyReused")
      assert.strictEqual(yield* backend.effects, 1)
      assert.deepInclude(yield* backend.lookup("a"), { payload })
    })
  },
  {
    name: "an effect can be looked up by its key, and is not there before it has landed",
    law: Effect.fnUntraced(function*(make) {
      const backend = yield* make({ ...free, holds: true })
      assert.isUndefined(yield* backend.lookup("a"))
      const request = yield* start(backend.request({ key: "a", payload }))
      yield* backend.entered(1)
      assert.isUndefined(yield* backend.lookup("a"))
      yield* backend.open
      const { effect } = yield* Fiber.join(request)
      assert.deepInclude(yield* backend.lookup("a"), { effect, payload })
      assert.isUndefined(yield* backend.lookup("b"))
    })
  },
  {
    name:
      "over the limit a request is refused with a time to wait, and has no effect; a place that is free is given again",
    law: Effect.fnUntraced(function*(make) {
      const backend = yield* make({ holds: true, concurrency: 2 })
      const running = yield* Effect.forEach(["a", "b"], (key) => start(backend.request({ key, payload })))
      yield* backend.entered(2)
      const refused = yield* Effect.result(backend.request({ key: "c", payload }))
      const error = refused._tag === "Failure" ? refused.failure : undefined
      assert.isTrue(error?._tag === "OverLimit" && Duration.toMillis(error.retryAfter) > 0)
      yield* backend.open
      yield* Effect.forEach(running, Fiber.join)
      assert.strictEqual(yield* backend.effects, 2)
      assert.isUndefined(yield* backend.lookup("c"))
      const again = yield* start(backend.request({ key: "c", payload }))
      yield* backend.open
      yield* Fiber.join(again)
      assert.strictEqual(yield* backend.effects, 3)
    })
  },
  {
    name: "concurrent requests with one key have one effect, and all get its result",
    law: Effect.fnUntraced(function*(make) {
      const backend = yield* make({ ...free, holds: true })
      const running = yield* Effect.forEach([1, 2, 3, 4, 5], () => start(backend.request({ key: "a", payload })))
      yield* backend.entered(5)
      yield* backend.open
      const answers = yield* Effect.forEach(running, Fiber.join)
      assert.strictEqual(new Set(answers.map(({ effect }) => effect)).size, 1)
      assert.strictEqual(yield* backend.effects, 1)
    })
  }
]
