/** Loads the module that brings the tools, and says what is missing in it. */
import type * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Path from "effect/Path"
import type * as Turn from "../Turn.ts"
import { describeThrown, Misuse } from "./failure.ts"

/** What a tools module exports. */
export interface ToolsModule {
  readonly toolkit: Toolkit.Toolkit<any>
  readonly layer: Layer.Layer<any, unknown>
  readonly policy: Turn.Options
}

const advice =
  'export `toolkit` (an effect/ai Toolkit) and `layer` (a Layer with its handlers); see "effect-turn run --help"'

export const load = (module: string): Effect.Effect<ToolsModule, Misuse, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    const path = yield* Path.Path
    const fs = yield* FileSystem.FileSystem
    const file = path.resolve(module)
    if (!(yield* Effect.orElseSucceed(fs.exists(file), () => false))) {
      return yield* new Misuse({
        what: `no tools module ${module}`,
        expected: "the path of a JavaScript or TypeScript module",
        received: "no such file",
        advice: `check the path; it is read as ${file}`
      })
    }
    const url = yield* Effect.orDie(path.toFileUrl(file))
    const exports = yield* Effect.tryPromise({
      try: (): Promise<Record<string, unknown>> => import(url.href),
      catch: (thrown) =>
        new Misuse({
          what: `the tools module ${module} does not load`,
          expected: "a module that loads without an error",
          received: describeThrown(thrown),
          advice: `run it alone to see the whole error: node ${module}`
        })
    })
    return yield* checked(module, exports)
  })

const checked = (module: string, exports: Record<string, unknown>): Effect.Effect<ToolsModule, Misuse> => {
  const { layer, policy, toolkit } = exports
  const names = Object.keys(exports)
  const wrong = (what: string, expected: string, received: unknown, more = advice) =>
    new Misuse({
      what: `the tools module ${module} ${what}`,
      expected,
      received: received === undefined
        ? names.length === 0 ? "a module that exports nothing" : `a module that exports ${names.join(", ")}`
        : describeThrown(received).slice(0, 120),
      advice: more
    })
  if (!isToolkit(toolkit)) {
    return Effect.fail(wrong("exports no toolkit", "`toolkit`, made with Toolkit.make", toolkit))
  }
  if (!Layer.isLayer(layer)) {
    return Effect.fail(wrong("exports no layer", "`layer`, made with toolkit.toLayer and the backends' layers", layer))
  }
  if (policy !== undefined && (typeof policy !== "object" || policy === null)) {
    return Effect.fail(wrong(
      "exports a policy that is none",
      "`policy`, an object with options of Turn.run",
      policy,
      'leave `policy` out, or make it an object such as { deadline: "30 seconds" }'
    ))
  }
  return Effect.succeed({ toolkit, layer: layer as Layer.Layer<any, unknown>, policy: policy ?? {} })
}

const isToolkit = (value: unknown): value is ToolsModule["toolkit"] =>
  (typeof value === "object" || typeof value === "function") && value !== null && "tools" in value && "toLayer" in value
