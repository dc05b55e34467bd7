import { assert, describe, it } from "@effect/vitest"
import { Handler, ToolPolicy } from "effect-turn"
import { FakeTool } from "effect-turn/testing"
import { Tool } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"
import { laws, type Make, type Work } from "./laws/handler.ts"

const Book = pipe(Tool.make("book", { success: Schema.String, failure: Schema.String }), ToolPolicy.write())

const fake: Make = ({ deaf, fails }) =>
  Effect.map(FakeTool.makeWorld, (world) => {
    const handler = FakeTool.handler(world, Book, {
      ...(fails ? { type: "fail", failure: "no" } : { type: "ok", result: "done" }),
      latencyMs: 30,
      effectAtMs: 20,
      ignoresInterrupt: deaf
    })
    return { run: Effect.suspend(() => handler({})), effects: () => world.effects("book") }
  })

/** The work as an effect, with its count. */
const counted = ({ fails }: Work) => {
  let count = 0
  const work = Effect.sleep(20).pipe(
    Effect.andThen(Effect.sync(() => count++)),
    Effect.andThen(Effect.sleep(10)),
    Effect.andThen(fails ? Effect.fail("no") : Effect.succeed("done"))
  )
  return { work, effects: () => count }
}

const effect: Make = (work) =>
  Effect.sync(() => {
    const { effects, work: own } = counted(work)
    return { run: work.deaf ? Effect.uninterruptible(own) : own, effects }
  })

const promise: Make = (work) =>
  Effect.map(Effect.context<never>(), (context) => {
    const { effects, work: own } = counted(work)
    const handler = Handler.promise(
      async (_: void, { signal }): Promise<string> => {
        const exit = await Effect.runPromiseExitWith(context)(own, work.deaf ? {} : { signal })
        if (Exit.isSuccess(exit)) return exit.value
        throw signal.aborted ? signal.reason : "no"
      },
      { onError: String }
    )
    return { run: Effect.suspend(() => handler(undefined, { preliminary: () => Effect.void })), effects }
  })

/** Made of a promise whose end is not awaited: what `Handler.promise` is there to prevent. */
const forgetful: Make = (work) =>
  Effect.map(Effect.context<never>(), (context) => {
    const { effects, work: own } = counted(work)
    return { run: Effect.tryPromise({ try: () => Effect.runPromiseWith(context)(own), catch: () => "no" }), effects }
  })

const subjects = { "FakeTool.handler": fake, "an effect": effect, "Handler.promise": promise }

for (const [name, make] of Object.entries(subjects)) {
  describe(`the laws of a handler, over ${name}`, () => {
    for (const { law, name } of laws) it.effect(name, () => law(make))
  })
}

it.effect("a handler whose promise goes on unheard breaks the laws of stopping", () =>
  Effect.gen(function*() {
    const broken: Array<string> = []
    for (const { law, name } of laws) {
      if (Exit.isFailure(yield* Effect.exit(law(forgetful)))) broken.push(name)
    }
    assert.deepStrictEqual(broken, [laws[2]!.name, laws[4]!.name])
  }))
