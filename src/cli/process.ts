/** The program as a Node process: exit codes and Ctrl-C. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Runtime from "effect/Runtime"
import { exitCode } from "./failure.ts"
import { main } from "./index.ts"

/** Runs the program with these arguments, and ends the process with its exit code. */
export const runProcess = (args: ReadonlyArray<string>): void => {
  process.on("SIGINT", onInterrupt)
  process.stdout.on("error", onPipe)
  process.stderr.on("error", onPipe)
  NodeRuntime.runMain(Effect.provide(main(args), NodeServices.layer), { teardown })
}

/** Ends the process at once, since a tools module may hold it open, but not before everything is written. */
const teardown: Runtime.Teardown = (exit, onExit) => {
  const end = (code: number) =>
    process.stderr.write("", () =>
      process.stdout.write("", () => {
        onExit(code)
        process.exit(code)
      }))
  if (Exit.isSuccess(exit) && typeof exit.value === "number") end(exit.value)
  else Runtime.defaultTeardown(exit, end)
}

/** Who reads our output may leave early (`… | head`): that is no fault. */
const onPipe = (error: NodeJS.ErrnoException): void => {
  if (error.code === "EPIPE") process.exit(exitCode.ok)
  throw error
}

let interrupts = 0

/** The first Ctrl-C stops the turn and waits for writes that have started; the second leaves them. */
const onInterrupt = (): void => {
  if (++interrupts === 1) return
  // The cursor and wrapping may have been switched off.
  if (process.stderr.isTTY) process.stderr.write("\u001b[?7h\u001b[?25h")
  process.stderr.write("effect-turn: left at once: whether writes that had started took effect is not known\n")
  process.exit(exitCode.interrupted)
}
