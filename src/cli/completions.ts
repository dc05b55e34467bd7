/** Completion scripts for the shells: what `effect/cli` makes of the commands, with what it cannot know of their values. */
import type * as Command from "effect/cli/Command"
import * as Completions from "effect/cli/Completions"
import * as Flag from "effect/cli/Flag"
import * as GlobalFlag from "effect/cli/GlobalFlag"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"

/** Flags and arguments whose value is a path. They are texts to the parser, since `-` and URLs are no paths. */
const paths: ReadonlySet<string> = new Set([
  "tools",
  "policy",
  "scenario",
  "report",
  "html",
  "output",
  "MESSAGE",
  "FILE",
  "HISTORY",
  "EVENTS"
])

/** Flags with words for values beside others. */
const choices: ReadonlyMap<string, ReadonlyArray<string>> = new Map([["execution", ["parallel", "sequential"]]])

const shells = ["bash", "zsh", "fish", "powershell"] as const

const everywhere: ReadonlyArray<Completions.FlagDescriptor> = [
  { name: "help", aliases: ["h"], description: "show the help", type: { _tag: "Boolean" }, negation: false }
]

const atRoot: ReadonlyArray<Completions.FlagDescriptor> = [
  { name: "version", aliases: ["v"], description: "show the version", type: { _tag: "Boolean" }, negation: false },
  {
    name: "completions",
    aliases: [],
    description: "print a completion script",
    type: { _tag: "Choice", values: shells }
  }
]

/** What the shells complete. */
const descriptorOf = (command: Command.Command.Any): Completions.CommandDescriptor => {
  const descriptor = completed(Completions.fromCommand(command))
  return { ...descriptor, flags: [...descriptor.flags, ...atRoot] }
}

const completed = (command: Completions.CommandDescriptor): Completions.CommandDescriptor => ({
  ...command,
  flags: [
    ...command.flags.map((flag): Completions.FlagDescriptor => ({
      ...flag,
      description: brief(flag.description),
      type: typeOf(flag.name, flag.type),
      // It can be said, but nobody looks for it.
      negation: false
    })),
    ...everywhere
  ],
  arguments: command.arguments.map((argument) => ({
    ...argument,
    description: brief(argument.description),
    type: typeOf(argument.name, argument.type)
  })),
  subcommands: command.subcommands.map(completed)
})

const typeOf = <T>(name: string, type: T) => {
  const words = choices.get(name)
  if (words !== undefined) return { _tag: "Choice" as const, values: words }
  return paths.has(name) ? { _tag: "Path" as const, pathType: "file" as const } : type
}

/** A list has room for the beginning alone: up to the first sign that explains. */
const brief = (description: string | undefined): string | undefined =>
  description?.split(/[:;(.](?: |$)|, (?:and|or|which|where|when|such) | \(/, 1)[0]!.trim()

/** `--completions SHELL`. */
export const flag = GlobalFlag.Action({
  flag: Flag.ChoiceWithValue("completions", [
    ...shells.map((shell) => [shell, shell] as const),
    ["sh", "bash"],
    ["pwsh", "powershell"]
  ]).pipe(
    Flag.withMetavar("SHELL"),
    Flag.withDescription("print a completion script for a shell: bash, zsh, fish or powershell"),
    Flag.optional
  ),
  run: (shell, { command }) =>
    Option.isNone(shell)
      ? Effect.void
      : Console.log(Completions.generate(command.name, shell.value, descriptorOf(command)))
})
