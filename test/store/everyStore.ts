/** How the laws of a service over `TurnStore` are written down, and checked on every store. */
import { assert, describe, it } from "@effect/vitest"
import type { TurnStore } from "effect-turn"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { afterAll } from "vitest"
import { type Address, describeService } from "../utils/requires.ts"
import * as Stores from "../utils/stores.ts"

/** Stores that are everywhere, and those that are services of their own. One more store is one more line. */
const local = [Stores.memory, Stores.keyValueMemory, Stores.keyValueFiles, Stores.sqlite]
const services: ReadonlyArray<readonly ["PostgreSQL" | "Redis", (address: Address) => Stores.Place]> = [
  ["PostgreSQL", Stores.postgres],
  ["Redis", Stores.redis]
]

/** Does something on every store, each of which is an empty place that is cleared away in the end. To be awaited. */
const onEveryStore = async (what: string, register: (place: Stores.Place) => void): Promise<void> => {
  const on = (place: Stores.Place) => {
    afterAll(() => place.clear())
    register(place)
  }
  for (const make of local) {
    const place = make()
    describe(`${what} on ${place.name}`, () => {
      on(place)
    })
  }
  for (const [name, make] of services) {
    await describeService(`${what} on ${name}`, name, (address) => on(make(address)))
  }
}

/** A tenant that nobody has had before. */
export const newTenant = (): string => `tenant-${crypto.randomUUID()}`

export interface Law<S> {
  readonly name: string
  readonly law: (service: S) => Effect.Effect<void, unknown, TurnStore.TurnStore>
}

/** Checks every law on every store. */
export const checkLaws = <I, S>(
  what: string,
  tag: Context.Key<I, S>,
  layer: Layer.Layer<I, unknown, TurnStore.TurnStore>,
  laws: ReadonlyArray<Law<S>>
): Promise<void> => {
  assert.isNotEmpty(laws)
  return onEveryStore(what, (place) => {
    for (const { law, name } of laws) {
      it.effect(
        name,
        () =>
          Effect.provide(Effect.flatMap(tag, law), Layer.provideMerge(layer, place.layer)) as Effect.Effect<
            void,
            unknown
          >,
        60_000
      )
    }
  })
}
