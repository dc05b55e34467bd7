/** The laws on real turns of real tools: they hold, each has something to judge, and each planted fault is found. */
import { describe, it } from "@effect/vitest"
import { Backend, Handler, ToolPolicy } from "effect-turn"
import { Laws } from "effect-turn/testing"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

class Hotels extends Backend.Service<Hotels>()("test/Hotels") {}
class Crm extends Backend.TenantService<Crm>()("test/LawsCrm") {}

const Hotel = Schema.Struct({ hotel: Schema.String })
const keys = ({ hotel }: typeof Hotel.Type) => [`hotel:${hotel}`]

const Look = pipe(
  Tool.make("look", { parameters: Hotel, success: Schema.String }),
  ToolPolicy.read({ keys }),
  ToolPolicy.on(Hotels)
)
const Book = pipe(
  Tool.make("book", { parameters: Hotel, success: Schema.String, failure: Schema.String }),
  ToolPolicy.write({ keys }),
  ToolPolicy.on(Crm)
)
const Pay = pipe(
  Tool.make("pay", { parameters: Hotel, success: Schema.String }),
  ToolPolicy.write({ keys }),
  ToolPolicy.forward(({ hotel }) => hotel)
)
const Shell = Tool.make("shell", { parameters: Schema.Struct({ line: Schema.String }), success: Schema.String })
const kit = Toolkit.make(Look, Book, Pay, Shell)

const handlers = kit.toLayer({
  look: ({ hotel }) => Effect.as(Effect.sleep(10), hotel),
  book: ({ hotel }) => Effect.andThen(Effect.sleep(15), hotel === "b" ? Effect.fail("full") : Effect.succeed(hotel)),
  pay: Handler.promise(({ hotel }) => Promise.resolve(hotel)),
  shell: ({ line }) =>
    Effect.andThen(Effect.sleep(5), line === "c" ? Effect.die(new Error("broke")) : Effect.succeed(line))
})
const layer = Layer.mergeAll(
  handlers,
  Hotels.layer({ concurrency: 2 }),
  Crm.layer({ concurrency: 2, perTenant: 1 })
)

describe("a suite over tools of all kinds", () => {
  Laws.suite(it, { toolkit: kit, layer, inputs: 400, seeds: 5 })
})
