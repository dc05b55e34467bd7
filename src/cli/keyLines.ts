/** How idempotency keys read as lines. Pure: records in, text out. */
import { displayWidth } from "effect/cli/CliOutput"
import { createHash } from "node:crypto"
import type * as IdempotencyStore from "../IdempotencyStore.ts"
import { clean, cut, json, pad, type Paint } from "./text.ts"

type Entry = IdempotencyStore.Entry

/** How many characters of an id are shown: enough for any number of keys that a person looks at. */
const shown = 12

/** A short name for a key, the same in every run. */
export const idOf = ({ conversation, key, tenant, tool }: IdempotencyStore.Key): string =>
  createHash("sha256").update(JSON.stringify([tenant, conversation ?? null, tool, key])).digest("hex").slice(0, shown)

/** What a program reads: the record as it is, with its id. */
export const toJson = (entry: Entry): string => JSON.stringify({ id: idOf(entry.key), ...entry })

const colourOf = (state: IdempotencyStore.State, paint: Paint) =>
  state === "unknown" ? paint.bad : state === "reserved" ? paint.held : paint.ok

/** A time that a person reads at a glance. */
const age = (millis: number): string => {
  const seconds = Math.max(0, Math.round(millis / 1000))
  if (seconds < 120) return `${seconds} s`
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`
}

/** The table of keys, one line for each, as wide as the terminal; 0 where there is none. */
export const table = (
  entries: ReadonlyArray<Entry>,
  options: { readonly now: number; readonly width: number; readonly paint: Paint }
): string => {
  const head = ["id", "state", "since", "tenant", "conversation", "tool", "key", "note"]
  const cells = entries.map(({ key, note, state, updatedAt }) => [
    idOf(key),
    state,
    age(options.now - updatedAt),
    cut(clean(key.tenant), 20),
    cut(clean(key.conversation ?? "-"), 20),
    cut(clean(key.tool), 24),
    clean(key.key),
    clean(note ?? "")
  ])
  const widths = head.map((title, column) =>
    Math.max(title.length, ...cells.map((cell) => displayWidth(cell[column]!)))
  )
  const line = (cell: ReadonlyArray<string>, colour: (text: string, column: number) => string) => {
    let left = options.width === 0 ? Infinity : options.width
    return cell.flatMap((text, column) => {
      if (left < 4) return []
      const fits = cut(column === head.length - 1 ? text : pad(text, widths[column]!), left)
      left -= displayWidth(fits) + 2
      return [colour(fits, column)]
    }).join("  ").trimEnd()
  }
  const { paint } = options
  return [
    line(head, (text) => paint.strong(text)),
    ...cells.map((cell, index) =>
      line(cell, (text, column) => column === 1 ? colourOf(entries[index]!.state, paint)(text) : text)
    )
  ].join("\n")
}

/** Everything that is known of a key, with what may be done about it. */
export const details = (entry: Entry, options: { readonly now: number; readonly paint: Paint }): string => {
  const { createdAt, digest, expiresAt, key, leaseUntil, note, outcome, owner, state, updatedAt } = entry
  const time = (at: number) => {
    const ago = options.now - at
    return `${new Date(at).toISOString()} (${ago >= 0 ? `${age(ago)} ago` : `in ${age(-ago)}`})`
  }
  const rows: ReadonlyArray<readonly [string, string | undefined]> = [
    ["id", idOf(key)],
    ["state", colourOf(state, options.paint)(state)],
    ["meaning", meanings[state]],
    ["note", note === undefined ? undefined : clean(note)],
    ["tenant", clean(key.tenant)],
    ["conversation", clean(key.conversation ?? "- (a key of the whole tenant)")],
    ["tool", clean(key.tool)],
    ["key", clean(key.key)],
    ["result", outcome === undefined ? undefined : json(outcome.status === "ok" ? outcome.result : outcome)],
    ["arguments", `digest ${clean(digest)}`],
    ["owner", clean(owner)],
    ["reserved", time(createdAt)],
    ["changed", time(updatedAt)],
    [
      "lease",
      state === "reserved" || (state === "unknown" && leaseUntil > 0) ? `until ${time(leaseUntil)}` : undefined
    ],
    ["forgotten", expiresAt === null ? "never" : time(expiresAt)]
  ]
  return rows.flatMap(([name, text]) => text === undefined ? [] : [`${options.paint.faint(pad(name, 12))}  ${text}`])
    .join("\n")
}

const meanings: Record<IdempotencyStore.State, string> = {
  reserved: "it is being run",
  applied: "it took effect: a call with this key is answered with its result, and not run",
  unknown: "it may have taken effect, or not: a call with this key is in doubt, unless its backend can tell",
  undone: "it took effect and was undone: its key is not used again"
}

/** Which key, in the words of a question. */
export const label = ({ conversation, key, tenant, tool }: IdempotencyStore.Key): string =>
  `the key ${json(key)} of ${clean(tool)} (tenant ${clean(tenant)}${
    conversation === undefined ? "" : `, conversation ${clean(conversation)}`
  })`

/** What a resolution means, before it is done. */
export const consequence = (key: IdempotencyStore.Key, resolution: IdempotencyStore.Resolution): string =>
  resolution._tag === "Applied"
    ? `${label(key)} will be recorded as applied${
      resolution.result === undefined ? ", without its result" : ` with the result ${json(resolution.result)}`
    }: a call with this key is not run any more.`
    : `${label(key)} will be free: the next call with it is run. If the write did take effect, it takes effect twice.`

/** What was done. */
export const resolved = (key: IdempotencyStore.Key, resolution: IdempotencyStore.Resolution): string =>
  resolution._tag === "Applied" ? `${label(key)} is recorded as applied` : `${label(key)} is free`
