/** Says what became of a key in doubt. */
import type * as Tool from "effect/ai/Tool"
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Path from "effect/Path"
import * as Schema from "effect/Schema"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type * as IdempotencyStore from "../IdempotencyStore.ts"
import { describeThrown, Misuse } from "./failure.ts"
import { find, type Which } from "./keyFind.ts"
import * as Lines from "./keyLines.ts"
import * as KeyStore from "./keyStore.ts"
import * as ToolsModule from "./toolsModule.ts"

export interface ResolveFlags extends Which {
  readonly applied: boolean
  readonly notApplied: boolean
  readonly result: Option.Option<string>
  readonly tools: Option.Option<string>
  readonly yes: boolean
  readonly json: boolean
}

export const resolve = (flags: ResolveFlags) =>
  Effect.scoped(Effect.gen(function*() {
    const resolution = yield* resolutionOf(flags)
    const opened = yield* KeyStore.open(flags)
    const entry = yield* find(opened, flags)
    const { key, leaseUntil, state } = entry
    const before = entry.resolved === true ? entry : undefined
    if (state !== "unknown" && before === undefined) return yield* notInDoubt(key, state, leaseUntil)
    const checkedBy = yield* check(flags.tools, key.tool, resolution)
    yield* confirm(Lines.consequence(key, resolution, { before, checkedBy }), flags.yes)
    const { keys, name } = opened
    yield* keys.resolve(key, resolution).pipe(
      Effect.catchTag("NotInDoubt", ({ state }) => notInDoubt(key, state, 0)),
      Effect.catchTag("StoreError", (error) =>
        KeyStore.failed(name, "it may have been done all the same: look with effect-turn keys show")(error))
    )
    const done = { id: Lines.idOf(key), key, state: resolution._tag === "Applied" ? "applied" : "free" }
    yield* Console.log(flags.json ? JSON.stringify(done) : Lines.resolved(key, resolution))
  }))

const resolutionOf = (
  { applied, notApplied, result }: ResolveFlags
): Effect.Effect<IdempotencyStore.Resolution, Misuse> => {
  if (applied === notApplied) {
    return new Misuse({
      what: "what became of the write",
      expected: "either --applied or --not-applied",
      received: applied ? "both" : "neither",
      advice: "ask the backend which of them is true; while nobody knows, leave the key as it is"
    })
  }
  if (notApplied) {
    return Option.isNone(result) ? Effect.succeed({ _tag: "NotApplied" }) : new Misuse({
      what: "--result without --applied",
      expected: "the result of a write that took effect",
      received: `--not-applied --result ${result.value}`,
      advice: "leave it out"
    })
  }
  if (Option.isNone(result)) return Effect.succeed({ _tag: "Applied" })
  return Effect.try({
    try: () => ({ _tag: "Applied" as const, result: JSON.parse(result.value) as unknown }),
    catch: (error) =>
      new Misuse({
        what: "--result is not JSON",
        expected: "the result as the tool's success schema encodes it, such as '{\"booking\": 17}' or '\"done\"'",
        received: `${result.value} (${error instanceof Error ? error.message : String(error)})`,
        advice: "quote it for the shell; or leave --result out: then the call is told that its result is not known"
      })
  })
}

/** Checks a result with the tool's own success schema, where a module brings it; gives the name of the module. */
const check = (
  tools: Option.Option<string>,
  name: string,
  resolution: IdempotencyStore.Resolution
): Effect.Effect<string | undefined, Misuse, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function*() {
    if (Option.isNone(tools)) return undefined
    const module = tools.value
    if (resolution._tag === "NotApplied" || !("result" in resolution)) {
      return yield* new Misuse({
        what: "--tools without --result",
        expected: "a result to check with the tool's success schema",
        received: `--tools ${module}`,
        advice: "leave it out, or say --result"
      })
    }
    const known = (yield* ToolsModule.load(module, { layer: "optional" })).toolkit.tools as Record<string, Tool.Any>
    const tool = Object.hasOwn(known, name) ? known[name] : undefined
    if (tool === undefined) {
      return yield* new Misuse({
        what: `the tools module ${module} has no tool ${name}`,
        expected: `the module of the program that ran ${name}`,
        received: `a toolkit with ${Object.keys(known).join(", ") || "no tools"}`,
        advice: "give that one, or leave --tools out: then the result is not checked"
      })
    }
    const schema = tool.successSchema as Schema.Codec<unknown, unknown>
    const exit = yield* Effect.exit(Schema.decodeUnknownEffect(schema)(resolution.result, { errors: "all" }))
    if (Exit.isSuccess(exit)) return module
    const said = Cause.squash(exit.cause)
    return yield* Schema.isSchemaError(said)
      ? new Misuse({
        what: `the result does not fit the success schema of ${name}: nothing was changed`,
        expected: "the result as that schema encodes it",
        received: `${JSON.stringify(resolution.result)}: ${said.message.replace(/\n\s+/g, " ").replace(/\n/g, "; ")}`,
        advice: "correct it; or leave --result out: then the call is told that its result is not known"
      })
      : new Misuse({
        what: `the result cannot be checked with the success schema of ${name}: nothing was changed`,
        expected: "a schema that needs no services",
        received: describeThrown(said),
        advice: "leave --tools out: then the result is not checked"
      })
  })

const notInDoubt = (key: IdempotencyStore.Key, state: string, leaseUntil: number): Effect.Effect<never, Misuse> =>
  new Misuse({
    what: `${Lines.label(key)} is not in doubt`,
    expected: "a key whose effect is unknown, or that was resolved by hand",
    received: state === "free" ? "a key without a record" : `a key that is ${state}`,
    advice: state === "reserved"
      ? `it is being run: if it is not heard of again, it is in doubt from ${new Date(leaseUntil).toISOString()} on`
      : "there is nothing to resolve: see effect-turn keys list"
  })

/** Asks on a terminal; elsewhere `--yes` has to be said. */
const confirm = (words: string, yes: boolean): Effect.Effect<void, Misuse, Stdio.Stdio> =>
  Effect.gen(function*() {
    yield* Console.error(words)
    if (yes) return
    const stdio = yield* Stdio.Stdio
    const refuse = (received: string, advice: string) =>
      new Misuse({ what: "not resolved: nothing was changed", expected: "yes", received, advice })
    if (!(yield* stdio.stdinIsTerminal)) {
      return yield* refuse("no terminal to ask on", "say --yes where nobody can be asked")
    }
    yield* Console.error("Type yes to go on:")
    const line = yield* stdio.stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.runHead, Effect.option)
    const answer = Option.getOrElse(Option.flatten(line), () => "").trim()
    if (answer.toLowerCase() !== "yes") {
      return yield* refuse(answer === "" ? "nothing" : answer, "run it again when you know")
    }
  })
