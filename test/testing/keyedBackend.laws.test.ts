import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { describeService } from "../utils/requires.ts"
import { fake, overHttp, overPostgres, overRedis } from "./laws/backends.ts"
import { laws, type Make } from "./laws/keyedBackend.ts"

describe("the laws of a keyed backend, over FakeBackend", () => {
  for (const { law, name } of laws) it.effect(name, () => law(fake()))

  it.effect("a service that honours no keys breaks those of keys, and no other", () =>
    Effect.gen(function*() {
      const broken: Array<string> = []
      for (const { law, name } of laws) {
        if (Exit.isFailure(yield* Effect.exit(law(fake({ honoursKeys: false }))))) broken.push(name)
      }
      assert.deepStrictEqual(broken, [laws[0]!.name, laws[2]!.name, laws[5]!.name])
    }))
})

const live = (make: Make): void => {
  for (const { law, name } of laws) it.live(name, () => law(make))
}

describe("the laws of a keyed backend, over HTTP", () => {
  live(overHttp)
})
await describeService("the laws of a keyed backend, over PostgreSQL", "PostgreSQL", (at) => live(overPostgres(at)))
await describeService("the laws of a keyed backend, over Redis", "Redis", (at) => live(overRedis(at)))
