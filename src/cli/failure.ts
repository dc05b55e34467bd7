/**
 * How a command ends when it does not end well. Exit codes: 1 when the work was done and something in it is not ok, 2
 * when the command could not be understood or its input could not be used.
 */
import type * as CliError from "effect/cli/CliError"
import * as Console from "effect/Console"
import * as Data from "effect/Data"
import type * as Effect from "effect/Effect"
import type * as TurnError from "../TurnError.ts"
import { clean } from "./text.ts"

/** The exit codes, as `--help` lists them. */
export const exitCode = { ok: 0, notOk: 1, misuse: 2, interrupted: 130 } as const

/** The command could not be understood, or its input could not be used. */
export class Misuse extends Data.TaggedError("Misuse")<{
  readonly what: string
  readonly expected: string
  readonly received: string
  readonly advice: string
}> {}

/** The work was done, and something in it is not ok: it has been said already. */
export class NotOk extends Data.TaggedError("NotOk")<{}> {}

/** What was wrong, what was expected, what came, and what to do. */
export const words = (misuse: Misuse): string =>
  [
    `effect-turn: ${clean(misuse.what)}`,
    `  expected  ${clean(misuse.expected)}`,
    `  got       ${clean(misuse.received)}`,
    `  do        ${clean(misuse.advice)}`
  ].join("\n")

export const explain = (misuse: Misuse): Effect.Effect<void> => Console.error(words(misuse))

/** A misuse that the library found. */
export const fromTurnError = (what: string, error: TurnError.TurnError, advice: string): Misuse => {
  const { reason } = error
  switch (reason._tag) {
    case "InvalidMessage":
      return new Misuse({
        what: reason.dialect === "unknown"
          ? `${what} is a message of no known form`
          : `${what}: ${reason.dialect} message, at ${reason.path === "" ? "its root" : reason.path}`,
        expected: reason.expected,
        received: reason.received,
        advice
      })
    case "InvalidInput":
      return new Misuse({
        what: `${what}: ${reason.what}`,
        expected: reason.expected,
        received: reason.received,
        advice
      })
    case "InvalidLimit":
      return new Misuse({
        what: `${what}: ${reason.owner}, "${reason.limit}"`,
        expected: reason.expected,
        received: reason.received,
        advice
      })
    case "MissingService":
      return new Misuse({
        what: `${what}: the tool "${reason.tool}" cannot run`,
        expected: `${reason.service} in the \`layer\` that the tools module exports`,
        received: "a layer without it",
        advice:
          "export a `layer` with all handlers and backends: Layer.mergeAll(toolkit.toLayer({…}), Hotels.layer({…}))"
      })
    case "ShutDown":
      return new Misuse({ what, expected: "a running runtime", received: reason.message, advice })
  }
}

/** A misuse that the parser of the command line found. */
export const fromCliError = (error: CliError.NonShowHelpErrors, command: string): Misuse => {
  const misuse = (what: string, expected: string, received: string, more = ""): Misuse =>
    new Misuse({ what, expected, received, advice: `${more}see "${command} --help"` })
  switch (error._tag) {
    case "UnrecognizedOption":
      return misuse(
        `${command} has no flag ${error.option}`,
        `flags of "${command}"`,
        error.option,
        error.suggestions.length === 0 ? "" : `did you mean ${error.suggestions.join(" or ")}? `
      )
    case "UnknownSubcommand":
      return misuse(
        "no such command",
        command.endsWith("keys")
          ? "list, show, resolve or expire"
          : "run, plan, scenario, insights, report, check, demo or keys",
        error.subcommand,
        error.suggestions.length === 0 ? "" : `did you mean ${error.suggestions.join(" or ")}? `
      )
    case "MissingOption":
      return misuse(`${command} needs --${error.option}`, `--${error.option} with a value`, `no --${error.option}`)
    case "MissingArgument":
      return misuse(`${command} needs ${error.argument}`, error.argument, "nothing")
    case "UnexpectedArgument":
      return misuse("too many arguments", `what "${command} --help" lists`, error.arguments.join(" "))
    case "InvalidValue":
      return misuse(
        error.kind === "flag" ? `the flag --${error.option} has a value that it cannot have` : `bad ${error.option}`,
        error.expected.replace(/^Expected:? /, ""),
        error.value === "" ? "no value" : error.value
      )
    case "DuplicateOption":
    case "ValidationError":
    case "UserError":
      return misuse("bad arguments", "arguments that fit together", error.message)
  }
}

/** Words for whatever was thrown or exported: never empty, never failing itself. */
export const describeThrown = (thrown: unknown): string => {
  try {
    if (thrown instanceof Error) return thrown.message === "" ? thrown.name : `${thrown.name}: ${thrown.message}`
    if (typeof thrown === "string") return thrown === "" ? "an empty text" : thrown
    if (typeof thrown === "function") return thrown.name === "" ? "a function" : `the function ${thrown.name}`
    return typeof thrown === "object" && thrown !== null
      ? `${Array.isArray(thrown) ? "a list" : "an object"} ${JSON.stringify(thrown)}`
      : String(thrown)
  } catch {
    return `a ${typeof thrown} that cannot be shown`
  }
}
