/**
 * Streams of OpenAI's Chat Completions, as hosts send them.
 *
 * No event says that one call is complete, so that all come with the finish reason. A delta belongs to a call by its `index`, else by its id,
 * else it goes on with the last call. What hosts do differently and is understood: one index for every call, an id or a name that comes
 * late, again with each delta, or in pieces, another id with each delta of a call, arguments as an object, a whole `message` in place of
 * deltas.
 */
import * as Result from "effect/Result"
import * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import { add, addFields, broke, endedWell, type Fields, isIndex, noEvent, over, text, without } from "./parts.ts"

const name = "OpenAI Chat Completions"

/** What a call's kind calls the text that it is given. */
const given = { function: "arguments", custom: "input" } as const

type Kind = keyof typeof given

/** A call that is being put together. */
class Entry {
  readonly index: number | undefined
  /** It was handed over: nothing may be added. */
  closed = false
  id = ""
  private kind: Kind | undefined
  private name = ""
  private args: unknown = undefined
  private fields: Fields = {}
  private inner: Fields = {}

  constructor(index: number | undefined) {
    this.index = index
  }

  /** Whether a delta that seems to be of this call is of a new one. */
  isOther(id: string, name: string, args: unknown): boolean {
    if (name === "") return false
    const goesOn = this.name.startsWith(name) || name.startsWith(this.name)
    if (this.name !== "" && id !== "" && this.id !== "" && id !== this.id) return true
    if (!this.hasBegun) return this.index === undefined && !goesOn
    if (!goesOn) return true
    return (typeof args === "object" || text(args).trim() !== "") && this.isWhole
  }

  add(delta: Fields): void {
    const kind = (["function", "custom"] as const).find((kind) => Dialect.isRecord(delta[kind]))
    if (typeof delta.id === "string") this.addId(delta.id)
    this.fields = over(this.fields, without(delta, "id", "index", ...(kind === undefined ? [] : [kind])))
    if (kind === undefined) return
    this.kind ??= kind
    const inner = delta[kind] as Fields
    const piece = inner[given[kind]]
    if (typeof inner.name === "string") this.addName(inner.name)
    if (piece !== undefined) {
      this.args = typeof piece === "string"
        ? text(this.args) + piece
        : piece ?? this.args ?? null
    }
    this.inner = over(this.inner, without(inner, "name", given[kind]))
  }

  private addId(id: string): void {
    if (id === this.id) return
    // Once the call has begun, another id is one that the host made up for the delta.
    if (this.name === "" && !this.hasBegun) this.id += id
    else if (this.id === "") this.id = id
  }

  private addName(name: string): void {
    if (this.hasBegun && this.name !== "") return
    this.name = name.startsWith(this.name) ? name : this.name + name
  }

  private get hasBegun(): boolean {
    return this.args != null && this.args !== ""
  }

  private get isWhole(): boolean {
    if (typeof this.args === "object") return this.args !== null
    const args = text(this.args).trim()
    if (!args.endsWith("}")) return false
    try {
      return Dialect.isRecord(JSON.parse(args))
    } catch {
      return false
    }
  }

  get isNamed(): boolean {
    return this.name !== ""
  }

  get call(): Fields {
    const { args, fields, id, inner, kind, name } = this
    return {
      ...fields,
      ...(id === "" ? undefined : { id }),
      ...(kind === undefined ? undefined : {
        [kind]: { ...inner, name, ...(args === undefined ? undefined : { [given[kind]]: args }) }
      })
    }
  }
}

export const assembly = (): Dialect.Assembly => {
  let envelope: Fields = {}
  let choice: Fields = {}
  let message: Fields = {}
  let first: unknown
  let isOver = false
  /** The event at hand says so. */
  let ended = false
  const entries: Array<Entry> = []
  /** The last ones under each index and id. */
  const byIndex = new Map<number, Entry>()
  const byId = new Map<string, Entry>()

  const entryOf = (delta: Fields, name: string, args: unknown): Entry => {
    const index = isIndex(delta.index) ? delta.index : undefined
    const id = text(delta.id)
    const known = index !== undefined
      ? byIndex.get(index)
      : id !== ""
      ? byId.get(id)
      : entries.at(-1)
    if (known !== undefined && !known.isOther(id, name, args)) return known
    const entry = new Entry(index)
    entries.push(entry)
    if (index !== undefined) byIndex.set(index, entry)
    return entry
  }

  const pushCall = (delta: unknown, path: string): Result.Result<undefined, TurnError.TurnError> => {
    if (!Dialect.isRecord(delta)) return Dialect.refuse(name, path, "a call, or a piece of one", TurnError.show(delta))
    const inner = Dialect.isRecord(delta.function) ? delta.function : Dialect.isRecord(delta.custom) ? delta.custom : {}
    const args = inner.arguments ?? inner.input ?? ""
    const entry = entryOf(delta, text(inner.name), args)
    if (!entry.closed) {
      // Of an id that came in pieces, no piece is one.
      if (byId.get(entry.id) === entry) byId.delete(entry.id)
      entry.add(delta)
      if (entry.id !== "") byId.set(entry.id, entry)
    } else if (args !== "") {
      return Dialect.refuse(name, path, "no more of a call after the finish reason", TurnError.show(delta))
    }
    return Result.succeed(undefined)
  }

  const pushChoice = (event: unknown, path: string): Result.Result<undefined, TurnError.TurnError> => {
    if (!Dialect.isRecord(event)) return Dialect.refuse(name, path, "a choice", TurnError.show(event))
    const index = event.index ?? first ?? 0
    first ??= index
    if (index !== first) {
      return Dialect.refuse(
        name,
        `${path}.index`,
        `the choice ${TurnError.show(first)} alone (choices are alternatives: ask for one)`,
        TurnError.show(index)
      )
    }
    const { delta, finish_reason, logprobs, message: whole, ...rest } = event
    choice = over(choice, { ...rest, index })
    if (logprobs !== undefined) choice = { ...choice, logprobs: add(choice.logprobs, logprobs) }
    const news = Dialect.isRecord(delta) ? delta : Dialect.isRecord(whole) ? whole : {}
    const { content, tool_calls, ...fields } = news
    message = addFields(message, fields)
    if (content !== undefined) message = { ...message, content: addContent(message.content, content) }
    if (tool_calls != null && !Array.isArray(tool_calls)) {
      return Dialect.refuse(name, `${path}.delta.tool_calls`, "a list", TurnError.show(tool_calls))
    }
    for (const [at, call] of (tool_calls ?? []).entries()) {
      const pushed = pushCall(call, `${path}.delta.tool_calls[${at}]`)
      if (Result.isFailure(pushed)) return pushed
    }
    if (typeof finish_reason === "string" && finish_reason !== "") {
      choice = { ...choice, finish_reason }
      isOver = ended = true
    }
    return Result.succeed(undefined)
  }

  const ordered = (entries: ReadonlyArray<Entry>): Array<Fields> =>
    entries.every((entry) => entry.index !== undefined)
      ? entries.toSorted((a, b) => a.index! - b.index!).map((entry) => entry.call)
      : entries.map((entry) => entry.call)

  const calls: Array<Fields> = []

  const close = (): Array<Fields> => {
    const fresh = entries.filter((entry) => !entry.closed)
    for (const entry of fresh) entry.closed = true
    const made = ordered(fresh)
    calls.push(...made)
    return made
  }

  return {
    push: (event) => {
      if (!Dialect.isRecord(event)) return noEvent(name, event)
      if (event.error != null) return broke(name, event.error)
      const { choices, object: _, obfuscation: __, ...rest } = event
      envelope = over(envelope, rest)
      if (choices != null && !Array.isArray(choices)) {
        return Dialect.refuse(name, "choices", "a list", TurnError.show(choices))
      }
      ended = false
      for (const [at, one] of (choices ?? []).entries()) {
        const pushed = pushChoice(one, `choices[${at}]`)
        if (Result.isFailure(pushed)) return pushed
      }
      if (!ended) return Result.succeed(undefined)
      const fresh = close()
      return Result.succeed(
        fresh.length === 0
          ? undefined
          : { choices: [{ finish_reason: choice.finish_reason, message: { role: "assistant", tool_calls: fresh } }] }
      )
    },
    response: () => {
      const open = entries.filter((entry) => !entry.closed && (isOver || entry.isNamed))
      const tool_calls = [...calls, ...ordered(open)]
      return {
        ...envelope,
        object: "chat.completion",
        choices: [{
          ...choice,
          index: first ?? 0,
          finish_reason: choice.finish_reason ?? null,
          message: {
            role: "assistant",
            content: null,
            ...(isOver ? message : endedWell(message)),
            ...(tool_calls.length > 0 ? { tool_calls } : undefined)
          }
        }]
      }
    },
    isOver: () => isOver
  }
}

/** Text, or a list of parts: hosts mix the two. */
const addContent = (before: unknown, delta: unknown): unknown =>
  typeof before === "string" && Array.isArray(delta)
    ? [...partsOf(before), ...delta]
    : Array.isArray(before) && typeof delta === "string"
    ? add(before, partsOf(delta))
    : add(before, delta, "content")

const partsOf = (text: string): Array<unknown> => text === "" ? [] : [{ type: "text", text }]
