/** The program as tests run it: in this process, with terminals of their own. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Sink, Stdio, Stream } from "effect"
import { TestConsole } from "effect/testing"
import { main } from "../../src/cli/index.ts"
import { type Size, Sizes } from "../../src/cli/terminal.ts"

/** Runs the program in this process: its exit code, and what it wrote. */
export const run = (
  args: ReadonlyArray<string>,
  options: {
    readonly stdin?: string
    readonly terminal?: boolean
    readonly stdout?: Size
    readonly stderr?: Size
  } = {}
) =>
  Effect.gen(function*() {
    let raw = ""
    const stdio = Stdio.layerTest({
      stdin: options.stdin === undefined ? Stream.empty : Stream.make(new TextEncoder().encode(options.stdin)),
      stdinIsTerminal: Effect.succeed(options.terminal === true),
      stderrIsTerminal: Effect.succeed(options.terminal === true),
      stderr: () => Sink.forEach((chunk) => Effect.sync(() => raw += String(chunk)))
    })
    const sizes = Layer.succeed(Sizes, {
      stdout: () => options.stdout ?? { columns: 0, rows: 0 },
      stderr: () => options.stderr ?? { columns: 90, rows: 30 }
    })
    return yield* Effect.gen(function*() {
      const code = yield* main(args)
      const [out, err] = [yield* TestConsole.logLines, yield* TestConsole.errorLines].map((lines) =>
        lines.join("\n")
      ) as [string, string]
      return { code, out, err, raw }
    }).pipe(
      Effect.provide(Layer.mergeAll(TestConsole.layer, stdio, sizes).pipe(Layer.provideMerge(NodeServices.layer)))
    )
  })
