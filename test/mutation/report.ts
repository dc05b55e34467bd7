/** The table of a run. */
import type { Mutant } from "./mutants.ts"

/** Why a mutant survives, by what it is and not by the line on which it stands. */
export interface Explained {
  readonly file: string
  readonly where: string
  readonly from: string
  readonly to: string
  /** Which of those that read the same in that function. Default: 1. */
  readonly nth?: number
  /**
   * - `equivalent`: nothing that can be seen differs.
   * - `speed`: the same behaviour at another cost.
   * - `open`: it could be seen; why it is left.
   */
  readonly kind: "equivalent" | "speed" | "open"
  readonly reason: string
}

export interface Result {
  readonly mutant: Mutant
  readonly verdict: "killed" | "timeout" | "survived"
  /** The test that noticed. */
  readonly test: string | undefined
  /** Whether any test comes past it. */
  readonly reached: boolean
  readonly explained: Explained | undefined
}

interface Row {
  readonly name: string
  readonly mutants: number
  readonly killed: number
  readonly timeouts: number
  readonly survived: number
  /** Survivors that no test can notice. */
  readonly same: number
}

const rowOf = (name: string, results: ReadonlyArray<Result>): Row => {
  const count = (verdict: Result["verdict"]) => results.filter((result) => result.verdict === verdict).length
  return {
    name,
    mutants: results.length,
    killed: count("killed"),
    timeouts: count("timeout"),
    survived: count("survived"),
    same:
      results.filter(({ explained, verdict }) =>
        verdict === "survived" && explained !== undefined && explained.kind !== "open"
      ).length
  }
}

const percent = (part: number, whole: number): string => whole === 0 ? "-" : `${((100 * part) / whole).toFixed(1)} %`
const raw = ({ killed, mutants, timeouts }: Row) => percent(killed + timeouts, mutants)
const score = ({ killed, mutants, same, timeouts }: Row) => percent(killed + timeouts, mutants - same)

/** The public module that a file belongs to. */
const ownerOf = (file: string): string => {
  const name = /^src\/(?:internal\/)?(\w+)/.exec(file)![1]!
  return name[0]!.toUpperCase() + name.slice(1)
}

const groupBy = (results: ReadonlyArray<Result>, by: (file: string) => string): ReadonlyArray<Row> => {
  const groups = new Map<string, Array<Result>>()
  for (const result of results) {
    const name = by(result.mutant.file)
    const group = groups.get(name)
    if (group === undefined) groups.set(name, [result])
    else group.push(result)
  }
  return [...groups].map(([name, group]) => rowOf(name, group))
}

export const summary = (results: ReadonlyArray<Result>): string => {
  const row = rowOf("", results)
  return `${row.mutants} mutants: ${row.killed} killed, ${row.timeouts} timed out, ${row.survived} survived ` +
    `(${row.same} cannot be noticed), score ${score(row)}`
}

const table = (rows: ReadonlyArray<Row>): string =>
  [
    "| | mutants | killed | timed out | survived | of these the same | of all | score |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ...rows.map((row) =>
      `| ${row.name} | ${row.mutants} | ${row.killed} | ${row.timeouts} | ${row.survived} | ${row.same} | ${
        raw(row)
      } | ${score(row)} |`
    )
  ].join("\n")

const code = (text: string): string => `\`${text.replaceAll("|", "\\|").replaceAll("`", "'")}\``

/** The report of a whole run, as Markdown. */
export const render = (results: ReadonlyArray<Result>): string => {
  const survivors = results.filter(({ verdict }) => verdict === "survived")
  const list = (kind: Explained["kind"] | undefined) =>
    survivors.filter(({ explained }) => explained?.kind === kind).map(({ explained, mutant }) =>
      `| ${mutant.file.replace(/^src\//, "")} | ${mutant.where} | ${code(mutant.from)} | ${code(mutant.to)} | ${
        explained?.reason.replaceAll("|", "\\|") ?? ""
      } |`
    )
  const section = (title: string, kind: Explained["kind"] | undefined): ReadonlyArray<string> => {
    const rows = list(kind)
    return rows.length === 0
      ? []
      : [
        "",
        `## ${title}`,
        "",
        "| file | function | text | instead | why |",
        "| --- | --- | --- | --- | --- |",
        ...rows
      ]
  }
  return [
    "# Mutation report",
    "",
    'Written by `npm run mutation`. "Of these the same" are survivors that no test can notice: equivalent ones, and the same',
    "behaviour at another cost. The score leaves them out.",
    "",
    table([...groupBy(results, ownerOf), rowOf("**all**", results)]),
    "",
    "## By file",
    "",
    table(groupBy(results, (file) => file)),
    ...section("Not explained", undefined),
    ...section("Left open", "open"),
    ...section("The same behaviour at another cost", "speed"),
    ...section("Equivalent", "equivalent"),
    ""
  ].join("\n")
}
