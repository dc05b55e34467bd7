import { Backend, Handler, ToolPolicy } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import type * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Worker from "effect/workers/Worker"
import type * as WorkerRunner from "effect/workers/WorkerRunner"
import { describe, expectTypeOf, it } from "vitest"

class Cores extends Backend.Service<Cores>()("Cores") {}
class Db extends Context.Service<Db, string>()("Db") {}

const Hash = Tool.make("hash", { parameters: Schema.Struct({ text: Schema.String }), success: Schema.String })
const Find = Tool.make("find", { success: Schema.String, dependencies: [Db] })

describe("Handler.worker", () => {
  it("gives the handlers, and needs the platform's workers", () => {
    const layer = Handler.worker(Toolkit.make(Hash, Find), { size: 2 })
    expectTypeOf<Layer.Success<typeof layer>>().toEqualTypeOf<Tool.Handler<"hash"> | Tool.Handler<"find">>()
    expectTypeOf<Layer.Error<typeof layer>>().toEqualTypeOf<never>()
    expectTypeOf<Layer.Services<typeof layer>>().toEqualTypeOf<Worker.WorkerPlatform | Worker.Spawner>()
  })

  it("the size has to be said", () => {
    // @ts-expect-error the size is missing
    Handler.worker(Toolkit.make(Hash), {})
  })
})

describe("Handler.serve", () => {
  it("needs the handlers, what the tools depend on, and the platform's runner", () => {
    const served = Handler.serve(Toolkit.make(Hash, Find))
    expectTypeOf<Effect.Services<typeof served>>().toEqualTypeOf<
      Tool.Handler<"hash"> | Tool.Handler<"find"> | Db | WorkerRunner.WorkerRunnerPlatform
    >()
  })

  it("a backend is of the program alone, unless its tool is served with it", () => {
    const bare = Handler.serve(Toolkit.make(Hash))
    expectTypeOf<Effect.Services<typeof bare>>().toEqualTypeOf<
      Tool.Handler<"hash"> | WorkerRunner.WorkerRunnerPlatform
    >()
    const governed = Handler.serve(Toolkit.make(pipe(Hash, ToolPolicy.on(Cores))))
    expectTypeOf<Effect.Services<typeof governed>>().toEqualTypeOf<
      Tool.Handler<"hash"> | Cores | WorkerRunner.WorkerRunnerPlatform
    >()
  })
})
