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

/** By when they were last heard of. */
export const olderFirst = (a: Entry, b: Entry): number =>
  a.updatedAt - b.updatedAt || a.createdAt - b.createdAt || (idOf(a.key) < idOf(b.key) ? -1 : 1)

/** How many of how many were listed, and in which order. */
export const count = (listed: number, found: number, what: string, timed: boolean): string => {
  const some = listed === 1 ? "" : `${listed} `
  const keys = listed === 1 ? "key" : "keys"
  const order = timed ? "oldest first" : "in the store's own order"
  return listed === found
    ? `${listed} ${keys} ${what}${listed === 1 ? "" : `, ${order}`}`
    : timed
    ? `the ${some}oldest of ${found} keys ${what}: --limit N shows more`
    : `the first ${some}${keys} ${what}, ${order}: --limit N shows more`
}

/** The columns, with how narrow each may be made, in columns of the terminal. */
const columns = [
  { title: "id", least: shown },
  { title: "state", least: 8 },
  { title: "since", least: 6 },
  { title: "tenant", least: 8 },
  { title: "conversation", least: 8 },
  { title: "tool", least: 10 },
  { title: "key", least: 12 },
  { title: "note", least: 12 }
] as const

type Title = typeof columns[number]["title"]

/** What is left out where there is no room, first to last: a key without its tool and its text says nothing. */
const leftOut: ReadonlyArray<Title> = ["note", "since", "conversation", "tenant", "state", "id"]

/** What gets the room that is left, first to last, and up to which width. */
const widened: ReadonlyArray<readonly [title: Title, most: number]> = [
  ["tool", 24],
  ["key", 40],
  ["tenant", 20],
  ["conversation", 20],
  ["note", Infinity],
  ["key", Infinity]
]

const gap = 2

/** How wide each column is; one that is not there is left out. */
const layout = (natural: ReadonlyMap<Title, number>, width: number): ReadonlyMap<Title, number> => {
  if (width === 0) return natural
  const widths = new Map(columns.map(({ least, title }) => [title, Math.min(least, natural.get(title)!)]))
  const room = () => [...widths.values()].reduce((left, one) => left - one - gap, width + gap)
  for (const title of leftOut) if (room() < 0) widths.delete(title)
  // Hardly a terminal at all.
  if (room() < 0) { for (const title of widths.keys()) widths.set(title, Math.max(1, Math.floor((width - gap) / 2))) }
  for (const [title, most] of widened) {
    const now = widths.get(title)
    if (now === undefined) continue
    const wanted = Math.min(natural.get(title)!, most) - now
    widths.set(title, now + Math.max(0, Math.min(wanted, room())))
  }
  return widths
}

/** The table of keys, one line for each, as wide as the terminal (0 where there is none), and which columns had no room. */
export const table = (
  entries: ReadonlyArray<Entry>,
  options: { readonly now: number; readonly width: number; readonly paint: Paint }
): { readonly text: string; readonly hidden: ReadonlyArray<string> } => {
  const { now, paint, width } = options
  const rows = entries.map(({ key, note, state, updatedAt }): Record<Title, string> => ({
    id: idOf(key),
    state,
    since: age(now - updatedAt),
    tenant: cut(clean(key.tenant), 20),
    conversation: cut(clean(key.conversation ?? "-"), 20),
    tool: cut(clean(key.tool), 24),
    key: clean(key.key),
    note: clean(note ?? "")
  }))
  const natural = new Map(
    columns.map(({ title }) => [title, Math.max(title.length, ...rows.map((row) => displayWidth(row[title])))])
  )
  const widths = layout(natural, width)
  const last = [...widths.keys()].at(-1)
  const line = (cell: (title: Title) => string, colour: (text: string, title: Title) => string) =>
    [...widths].map(([title, wide]) => {
      const fits = cut(cell(title), wide)
      return colour(title === last ? fits : pad(fits, wide), title)
    }).join(" ".repeat(gap)).trimEnd()
  return {
    text: [
      line((title) => title, (text) => paint.strong(text)),
      ...rows.map((row, index) =>
        line(
          (title) => row[title],
          (text, title) => title === "state" ? colourOf(entries[index]!.state, paint)(text) : text
        )
      )
    ].join("\n"),
    hidden: columns.flatMap(({ title }) =>
      widths.has(title) || rows.every((row) => row[title] === "" || row[title] === "-") ? [] : [title]
    )
  }
}

/** Everything that is known of a key, with what may be done about it. */
export const details = (entry: Entry, options: { readonly now: number; readonly paint: Paint }): string => {
  const { createdAt, digest, expiresAt, key, leaseUntil, note, outcome, owner, state, updatedAt } = entry
  const over = expiresAt !== null && expiresAt <= options.now
  const time = (at: number) => {
    const ago = options.now - at
    return `${new Date(at).toISOString()} (${ago >= 0 ? `${age(ago)} ago` : `in ${age(-ago)}`})`
  }
  const rows: ReadonlyArray<readonly [string, string | undefined]> = [
    ["id", idOf(key)],
    ["state", colourOf(state, options.paint)(state)],
    ["meaning", over ? forgettable[state] ?? meanings[state] : meanings[state]],
    ["resolved", entry.resolved === true ? "by hand: effect-turn keys resolve can correct it" : undefined],
    ["note", note === undefined ? undefined : clean(note)],
    ["tenant", clean(key.tenant)],
    ["conversation", key.conversation === undefined ? noConversation : clean(key.conversation)],
    ["tool", clean(key.tool)],
    ["key", clean(key.key)],
    ["result", outcome === undefined ? undefined : asJson(outcome.status === "ok" ? outcome.result : outcome)],
    ["arguments", `digest ${clean(digest)}`],
    ["owner", clean(owner)],
    ["reserved", time(createdAt)],
    ["changed", time(updatedAt)],
    [
      "lease",
      state === "reserved" || (state === "unknown" && leaseUntil > 0) ? `until ${time(leaseUntil)}` : undefined
    ],
    over
      ? ["kept", `until ${time(expiresAt)}: effect-turn keys expire forgets it`]
      : ["forgotten", expiresAt === null ? "never" : time(expiresAt)]
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

/** What they mean when they are kept no longer. */
const forgettable: Partial<Record<IdempotencyStore.State, string>> = {
  applied: "it took effect, and its time is over: a call with this key is run again",
  undone: "it took effect and was undone, and its time is over: a call with this key is run again"
}

/** Both look the same here: only the tool knows which it is. */
const noConversation = "none: it guards calls without a conversation, or a tool whose keys are the whole tenant's"

/** A result as the JSON that it is: a text has its quotes. */
const asJson = (value: unknown): string => clean(JSON.stringify(value) ?? "nothing")

/** Which key, in the words of a question. */
export const label = ({ conversation, key, tenant, tool }: IdempotencyStore.Key): string =>
  `the key ${json(key)} of ${clean(tool)} (tenant ${clean(tenant)}${
    conversation === undefined ? "" : `, conversation ${clean(conversation)}`
  })`

/** What a resolution means, before it is done; `before` is what was said by hand earlier, `checkedBy` the module that knows the tool. */
export const consequence = (
  key: IdempotencyStore.Key,
  resolution: IdempotencyStore.Resolution,
  { before, checkedBy }: { readonly before: Entry | undefined; readonly checkedBy: string | undefined }
): string => {
  const result = resolution._tag === "Applied" && "result" in resolution
  return [
    resolution._tag === "NotApplied"
      ? `${label(key)} will be free: the next call with it is run. If the write did take effect, it takes effect twice.`
      : `${label(key)} will be recorded as applied${
        result ? ` with the result ${asJson(resolution.result)}` : ", without its result"
      }: a call with this key is not run any more.`,
    ...(before === undefined ? [] : [
      `It was resolved by hand before, with ${
        before.outcome?.status === "ok" ? `the result ${asJson(before.outcome.result)}` : "no result"
      }: calls may have been answered with that.`
    ]),
    ...(!result ? [] : [
      checkedBy === undefined
        ? "The result is not checked against the tool's success schema: --tools MODULE does that."
        : `The result fits the success schema of ${clean(key.tool)} in ${clean(checkedBy)}.`
    ])
  ].join("\n")
}

/** What was done. */
export const resolved = (key: IdempotencyStore.Key, resolution: IdempotencyStore.Resolution): string =>
  resolution._tag === "Applied" ? `${label(key)} is recorded as applied` : `${label(key)} is free`
