/** The program as a Node process: exit codes, signals, and outputs that may close or be full. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as EffectConsole from "effect/Console"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Runtime from "effect/Runtime"
import { Console } from "node:console"
import { writeSync } from "node:fs"
import { Writable } from "node:stream"
import { setInterval } from "node:timers"
import { describeThrown, exitCode, Misuse, words } from "./failure.ts"
import { main } from "./index.ts"
import { between, drawn } from "./terminal.ts"

/** Runs the program with these arguments, and ends the process with its exit code. */
export const runProcess = (args: ReadonlyArray<string>): void => {
  process.stdout.on("error", onOutputError)
  process.stderr.on("error", () => {})
  process.on("exit", onExit)
  // Whatever is still to come, comes from outside: only Ctrl-C, or what a tool waits for, can end the program then.
  process.on("beforeExit", () => setInterval(() => {}, 2 ** 31 - 1))
  const own = new Console({ stdout: process.stdout, stderr: process.stderr })
  toStderr()
  const fiber = Effect.runFork(
    main(args).pipe(
      Effect.provideService(EffectConsole.Console, own),
      Effect.provide(NodeServices.layer)
    )
  )
  const stop = () => {
    stopping = true
    fiber.interruptUnsafe(fiber.id)
  }
  process.on("SIGINT", () => stopping ? leave() : stop())
  process.on("SIGTERM", stop)
  process.on("SIGHUP", stop)
  process.on("SIGTSTP", aside)
  process.on("SIGCONT", back)
  process.on("uncaughtException", (thrown) => {
    stray ??= thrown
    globalThis.console.error(thrown)
    stop()
  })
  fiber.addObserver((exit) => {
    if (Exit.isSuccess(exit)) end(exit.value)
    else Runtime.defaultTeardown(exit, end)
  })
}

let stopping = false

/** The end was reached by the program's own way. */
let ended = false

/** Why standard output cannot be written. */
let broken: NodeJS.ErrnoException | undefined

/** What was thrown where nobody catches, such as in a timer of a tool. */
let stray: unknown

/** Ends the process at once, since a tools module may hold it open, but not before everything is written. */
const end = (code: number): void => {
  process.stderr.write("", () =>
    process.stdout.write("", () => {
      const misuse = stray !== undefined
        ? uncaught(stray)
        : broken !== undefined && code !== exitCode.interrupted
        ? unwritten(broken)
        : undefined
      if (misuse !== undefined) say(words(misuse))
      ended = true
      process.exit(misuse === undefined ? code : exitCode.misuse)
    }))
}

/** Who reads our output may leave early (`… | head`), or close the terminal: the turn goes on to its end without them. */
const onOutputError = (error: NodeJS.ErrnoException): void => {
  if (!["EPIPE", "EIO", "ERR_STREAM_DESTROYED"].includes(error.code ?? "")) broken ??= error
}

const unwritten = (error: NodeJS.ErrnoException): Misuse =>
  new Misuse({
    what: "standard output cannot be written",
    expected: "a file, a pipe or a terminal that takes what is printed",
    received: error.message,
    advice: "write to another place; calls that have run are not undone"
  })

const uncaught = (thrown: unknown): Misuse =>
  new Misuse({
    what: "something was thrown that nobody catches: all work was stopped",
    expected: "a tools module whose errors are those of its calls",
    received: describeThrown(thrown),
    advice: "catch it where it is thrown: the whole error stands above"
  })

/** Standard output is for the result alone: what tools print with `console` goes to standard error. */
const toStderr = (): void => {
  const stderr = new Writable({
    decodeStrings: false,
    write: (text: string, _, done) => {
      process.stderr.write(between(text))
      done()
    }
  })
  const other = new Console({
    stdout: stderr,
    stderr,
    colorMode: process.stderr.isTTY === true && process.stderr.hasColors()
  })
  for (const name of methods) globalThis.console[name] = other[name].bind(other) as never
}

const methods = [
  "assert",
  "count",
  "countReset",
  "debug",
  "dir",
  "dirxml",
  "error",
  "group",
  "groupCollapsed",
  "groupEnd",
  "info",
  "log",
  "table",
  "time",
  "timeEnd",
  "timeLog",
  "trace",
  "warn"
] as const

/** The first signal stops the turn and waits for writes that have started; a Ctrl-C after it leaves them. */
const leave = (): void => {
  restoreTerminal()
  say("effect-turn: left at once: whether writes that had started took effect is not known")
  ended = true
  process.exit(exitCode.interrupted)
}

/** Tools run in this process, so they can end it; that is not the end that was asked for. */
const onExit = (code: number): void => {
  if (ended) return
  restoreTerminal()
  say(words(
    new Misuse({
      what: "the process was ended before the work was done",
      expected: "a tools module whose code leaves the process alone",
      received: `an end with exit code ${code}: process.exit was called`,
      advice: "take process.exit out of the tools module and of what it loads"
    })
  ))
  process.exitCode = exitCode.misuse
}

/** Ctrl-Z: the terminal is the shell's until the program goes on. The signal that cannot be caught is sent, since this one was. */
const aside = (): void => {
  if (process.stderr.isTTY) say(`${drawn.putAway?.() ?? ""}${restored}`, "")
  process.kill(process.pid, "SIGSTOP")
}

/** What is drawn is drawn again by itself. */
const back = (): void => {
  if (drawn.putAway !== undefined && process.stderr.isTTY) say("\u001b[?25l\u001b[?7l", "")
}

/** The cursor and wrapping may have been switched off. */
const restored = "\u001b[?7h\u001b[?25h"

const restoreTerminal = (): void => {
  if (process.stderr.isTTY) say(restored, "")
}

/** Writes before the process ends, whoever reads it or not. */
const say = (text: string, end = "\n"): void => {
  try {
    writeSync(2, text + end)
  } catch {
    // Nobody reads it.
  }
}
