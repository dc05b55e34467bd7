/** Lays help out like a manual page: sections with titles, options with what they do below them, at most 80 columns. */
import { displayWidth } from "effect/cli/CliOutput"
import type * as Command from "effect/cli/Command"
import type { ArgDoc, FlagDoc, HelpDoc } from "effect/cli/HelpDoc"
import * as Option from "effect/Option"
import { colours, plain, wrap } from "./text.ts"

/** A title, and its lines: one a paragraph or a row, broken where the page ends. */
interface Section {
  readonly title: string
  readonly lines: ReadonlyArray<string>
}

/** A line in capitals begins a section of its own in the text of a command. */
const isTitle = (line: string): boolean => /^[A-Z][A-Z ]+$/.test(line)

/** The sections that stand at the end, whatever a command says of itself. */
const last = ["EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "SHELL COMPLETION"]

/** The whole help of a command, for a terminal of that many columns; 0 where there is none. */
export const format = (doc: HelpDoc, root: Command.Command.Any, columns: number, colors: boolean): string => {
  const width = columns === 0 ? 80 : Math.min(columns, 80)
  const indent = " ".repeat(width <= 60 ? 2 : 4)
  const paint = colors ? colours : plain
  const path = doc.commandPath ?? [root.name]
  const [description = [], ...own] = sectionsIn(doc.description)
  const item = (name: string, words: string): ReadonlyArray<string> => [
    paint.strong(name),
    ...(words === "" ? [] : [indent + words])
  ]
  const option = (flag: FlagDoc) => item(optionName(flag), optionWords(flag))
  const commands = (doc.subcommands ?? []).flatMap(({ commands }) => commands)
  const longest = Math.max(0, ...commands.map(({ name }) => name.length))
  const sections: ReadonlyArray<Section> = [
    { title: "NAME", lines: [`${path.join(" ")} - ${shortOf(root, path) ?? firstSentence(doc.description)}`] },
    { title: "SYNOPSIS", lines: [usageOf(doc)] },
    { title: "DESCRIPTION", lines: description },
    {
      title: "COMMANDS",
      lines: commands.map(({ name, shortDescription = "" }) => `${name.padEnd(longest)}  ${shortDescription}`)
    },
    { title: "ARGUMENTS", lines: (doc.args ?? []).flatMap((arg) => item(argumentName(arg), wordsOf(arg.description))) },
    { title: "OPTIONS", lines: doc.flags.flatMap(option) },
    { title: "GLOBAL OPTIONS", lines: (doc.globalFlags ?? []).flatMap(option) },
    ...own.filter(({ title }) => !last.includes(title)),
    {
      title: "EXAMPLES",
      lines: (doc.examples ?? []).flatMap(({ command, description }, i) => [
        ...(i === 0 ? [] : [""]),
        ...(description === undefined ? [] : [`${description}:`]),
        ...continued(command, width - 2 * indent.length).map((line) => indent + line)
      ])
    },
    ...last.flatMap((title) => own.filter((section) => section.title === title))
  ]
  return sections.filter(({ lines }) => lines.length > 0).map(({ lines, title }) =>
    [paint.strong(title), ...lines.map((line) => line === "" ? "" : wrap(indent + line, width))].join("\n")
  ).join("\n\n")
}

/** The description, which has no title, and the sections behind it. */
const sectionsIn = (text: string): readonly [ReadonlyArray<string>, ...Array<Section>] => {
  const description: Array<string> = []
  const sections: Array<{ readonly title: string; readonly lines: Array<string> }> = []
  for (const line of text.split("\n")) {
    if (isTitle(line)) sections.push({ title: line, lines: [] })
    else (sections.at(-1)?.lines ?? description).push(line)
  }
  return [trimmed(description), ...sections.map(({ lines, title }) => ({ title, lines: trimmed(lines) }))]
}

const trimmed = (lines: ReadonlyArray<string>): ReadonlyArray<string> => {
  const from = lines.findIndex((line) => line !== "")
  return from === -1 ? [] : lines.slice(from, lines.findLastIndex((line) => line !== "") + 1)
}

/** A command as a shell takes it, also where it has to be broken: never inside quotes. */
const continued = (command: string, width: number): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let line = ""
  for (const word of command.match(/(?:'[^']*'|"[^"]*"|[^ ])+/g) ?? []) {
    if (line !== "" && displayWidth(line) + displayWidth(word) + 3 > width) {
      lines.push(`${line} \\`)
      line = `  ${word}`
    } else line += line === "" ? word : ` ${word}`
  }
  return [...lines, line]
}

/** What the list of commands says of this one. */
const shortOf = (root: Command.Command.Any, path: ReadonlyArray<string>): string | undefined => {
  let command: Command.Command.Any | undefined = root
  for (const name of path.slice(1)) {
    command = command?.subcommands.flatMap(({ commands }) => commands).find((one) => one.name === name)
  }
  return command?.shortDescription
}

const firstSentence = (text: string): string => text.split("\n", 1)[0]!.split(/[.:]( |$)/, 1)[0]!

/** `effect-turn run --tools MODULE [options] [MESSAGE]`: what is needed is named. */
const usageOf = ({ flags, usage }: HelpDoc): string => {
  const needed = flags.filter((flag) => flag.required).map((flag) => `--${flag.name} ${flag.type} `).join("")
  return usage.replace("[flags]", `${needed}[options]`).replace(/<([A-Z]+)>/g, "$1")
}

const optionName = ({ aliases, name, type }: FlagDoc): string =>
  [...aliases, `--${name}`].join(", ") + (type === "boolean" ? "" : ` ${type}`)

/** A flag whose words name its choices does not name them twice. */
const optionWords = (flag: FlagDoc): string =>
  wordsOf(flag.description).replace(/ \(choices: [^)]*\)$/, "")
    .replace(/^Show /, "show ")

const argumentName = ({ name, required, variadic }: ArgDoc): string => {
  const all = variadic ? `${name}...` : name
  return required ? all : `[${all}]`
}

const wordsOf = (description: Option.Option<string>): string => Option.getOrElse(description, () => "")
