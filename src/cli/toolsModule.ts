/** Loads the module that brings the tools, and says what is missing in it. */
import type * as Toolkit from "effect/ai/Toolkit"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Path from "effect/Path"
import { clearTimeout, setTimeout } from "node:timers"
import type * as Turn from "../Turn.ts"
import { describeThrown, Misuse } from "./failure.ts"
import { clean, nearest } from "./text.ts"

/** What a tools module exports. */
export interface ToolsModule {
  readonly toolkit: Toolkit.Toolkit<any>
  /** A plan is made without it. */
  readonly layer: Layer.Layer<any, unknown> | undefined
  readonly policy: Turn.Options
}

const advice =
  'export `toolkit` (an effect/ai Toolkit) and `layer` (a Layer with its handlers); see "effect-turn run --help"'

export const load = (
  module: string,
  options: { readonly layer: "needed" | "optional" }
): Effect.Effect<ToolsModule, Misuse, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const { file, url } = yield* locate(module)
    const absent = (received: string) =>
      new Misuse({
        what: `no tools module ${module}`,
        expected: "the path of a JavaScript or TypeScript module",
        received,
        advice: `check the path; it is read as ${file}`
      })
    const info = yield* Effect.mapError(fs.stat(file), () => absent("no such file"))
    if (info.type === "Directory") return yield* absent("a directory")
    const exports = yield* imported(module, url)
    return yield* checked(module, exports, options.layer === "needed")
  })

/** The file that is meant, by its path or by its URL. */
const locate = (module: string) =>
  Effect.gen(function*() {
    const path = yield* Path.Path
    if (!module.startsWith("file:")) {
      const file = path.resolve(module)
      return { file, url: (yield* Effect.orDie(path.toFileUrl(file))).href }
    }
    const bad = new Misuse({
      what: `no tools module ${module}`,
      expected: "a path, or the URL of a file, such as file:///home/me/tools.ts",
      received: "a URL that names no file",
      advice: "give the path of the module"
    })
    const url = yield* Effect.try({ try: () => new URL(module), catch: () => bad })
    return { file: yield* Effect.mapError(path.fromFileUrl(url), () => bad), url: url.href }
  })

/**
 * Imports the module. What it waits for at its top level may take long, or never come: the first is said after some
 * seconds, the second ends the waiting as soon as Node has nothing left that could bring it.
 */
const imported = (module: string, url: string): Effect.Effect<Record<string, unknown>, Misuse> =>
  Effect.flatMap(Console.Console, (console) =>
    Effect.callback((resume) => {
      const notLoaded = (received: string, advice: string) =>
        new Misuse({
          what: `the tools module ${module} does not load`,
          expected: "a module that loads without an error",
          received,
          advice
        })
      const onStuck = () => {
        clear()
        resume(Effect.fail(notLoaded(
          "a top-level await that never settles: nothing is left that could settle it",
          "look for an `await` outside of functions, in the module and in what it imports"
        )))
      }
      const slow = setTimeout(
        () => console.error(`waiting for ${clean(module)} to load: a top-level await in it has not settled yet`),
        5000
      ).unref()
      const clear = () => {
        clearTimeout(slow)
        globalThis.process.off("beforeExit", onStuck)
      }
      globalThis.process.once("beforeExit", onStuck)
      import(url).then(
        (exports: Record<string, unknown>) => {
          clear()
          resume(Effect.succeed(exports))
        },
        (thrown: unknown) => {
          clear()
          resume(Effect.fail(
            notLoaded(describeThrown(thrown), `run it alone to see the whole error: node ${module}`)
          ))
        }
      )
      return Effect.sync(clear)
    }))

const checked = (
  module: string,
  exports: Record<string, unknown>,
  needsLayer: boolean
): Effect.Effect<ToolsModule, Misuse> => {
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
  if (layer === undefined ? needsLayer : !Layer.isLayer(layer)) {
    return Effect.fail(wrong("exports no layer", "`layer`, made with toolkit.toLayer and the backends' layers", layer))
  }
  if (policy !== undefined && (typeof policy !== "object" || policy === null || Array.isArray(policy))) {
    return Effect.fail(wrong(
      "exports a policy that is none",
      "`policy`, an object with options of Turn.run",
      policy,
      'leave `policy` out, or make it an object such as { deadline: "30 seconds" }'
    ))
  }
  const unknown = Object.keys(policy ?? {}).find((name) => !Object.hasOwn(optionNames, name))
  if (unknown !== undefined) {
    const meant = nearest(unknown, Object.keys(optionNames))
    return Effect.fail(wrong(
      `exports a policy with the unknown option \`${unknown}\``,
      `options of Turn.run: ${Object.keys(optionNames).join(", ")}`,
      unknown,
      meant === undefined ? "leave it out, or take one of these" : `did you mean ${meant}?`
    ))
  }
  return Effect.succeed({ toolkit, layer: layer as Layer.Layer<any, unknown> | undefined, policy: policy ?? {} })
}

const optionNames: { readonly [Name in keyof Turn.Options]-?: true } = {
  turn: true,
  siblings: true,
  unit: true,
  execution: true,
  dedupe: true,
  deadline: true,
  grace: true,
  nameRepair: true,
  references: true,
  finishReason: true,
  messages: true,
  decide: true,
  middleware: true,
  amounts: true,
  resultBudget: true,
  cancelOn: true,
  onEvent: true,
  onClosed: true,
  limits: true
}

const isToolkit = (value: unknown): value is ToolsModule["toolkit"] =>
  (typeof value === "object" || typeof value === "function") && value !== null && "tools" in value && "toLayer" in value
