/** Histories of providers: messages or items, with the requests and responses around them. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { Builder, openCall } from "./conversation.ts"
import { fromText, Value } from "./value.ts"

/** What a form of history knows of its entries. */
interface History {
  readonly form: TurnInsights.Form
  /** Whether a value is an entry of a conversation. */
  readonly isEntry: (value: Value) => boolean
  /** The conversation that a request or a response holds; undefined where it is none. */
  readonly unwrap: (value: Value) => ReadonlyArray<Value> | undefined
  readonly take: (entry: Value, into: Builder) => void
  readonly expected: string
}

/** The conversations of a text, each as its entries; entries that stand alone are one conversation. */
export const readHistory = (
  history: History,
  values: ReadonlyArray<Value>
): { readonly conversations: ReadonlyArray<TurnInsights.Conversation>; readonly notes: ReadonlyArray<string> } => {
  const loose: Array<Value> = []
  const found: Array<{ readonly id: string | undefined; readonly entries: ReadonlyArray<Value> }> = []
  const named = new Map<string, Array<Value>>()
  let alone = 0
  const visit = (value: Value): void => {
    if (value.isList) {
      const entries = value.entries
      if (entries.some(history.isEntry)) found.push({ id: undefined, entries })
      else for (const entry of entries) visit(entry)
      return
    }
    if (history.isEntry(value)) {
      loose.push(value)
      return
    }
    const entries = value.object(history.expected) && history.unwrap(value)
    if (entries === undefined) return value.fail(history.expected)
    const previous = value.get("previous_response_id").text
    const before = previous === undefined ? undefined : named.get(previous)
    const id = value.get("id").text
    if (before !== undefined) {
      before.push(new Value(boundary, value.place), ...entries)
      if (id !== undefined) named.set(id, before)
      return
    }
    const own = [...entries]
    if (id !== undefined) named.set(id, own)
    if ([value, value.get("request")].every((of) => of.get("messages").absent && of.get("input").absent)) alone++
    found.push({ id: conversationOf(value), entries: own })
  }
  const [only] = values
  if (values.length === 1 && only!.isList && !only!.entries.some(({ isList }) => isList)) {
    for (const entry of only!.entries) visit(entry)
  } else for (const value of values) visit(value)
  if (loose.length > 0) found.unshift({ id: undefined, entries: loose })
  const notes: Array<string> = []
  const { kept, repeated } = withoutBeginnings(found)
  let stray = 0
  const conversations = kept.map(({ entries, id }) => {
    const builder = new Builder()
    for (const entry of entries) {
      history.take(entry, builder)
      builder.grow((JSON.stringify(entry.raw) ?? "").length)
    }
    stray += builder.stray
    return builder.build(id)
  })
  if (alone > 0) notes.push(`${count(alone, "response")} without the conversation: each stands for itself`)
  if (repeated > 0) notes.push(`${count(repeated, "conversation")} left out: another one goes on with it`)
  if (stray > 0) notes.push(`${count(stray, "answer")} to no call: passed over`)
  return { conversations, notes }
}

/** Between two responses, whose calls would else be taken for those of one. */
const boundary = { type: "boundary" }

const count = (n: number, what: string): string => `${n} ${what}${n === 1 ? "" : "s"}`

/** Under which names logs keep it. */
const conversationOf = (value: Value): string | undefined => {
  for (const name of ["conversation_id", "conversation", "thread_id", "session_id"]) {
    const id = value.get(name)
    const text = id.text ?? id.get("id").text
    if (text !== undefined) return text
  }
  return undefined
}

/** A log of requests has each conversation many times, longer each time: the longest is kept. */
const withoutBeginnings = <A extends { readonly entries: ReadonlyArray<Value> }>(
  found: ReadonlyArray<A>
): { readonly kept: ReadonlyArray<A>; readonly repeated: number } => {
  const kept: Array<{ one: A; texts: ReadonlyArray<string> } | undefined> = []
  const byBeginning = new Map<string, Array<number>>()
  let repeated = 0
  for (const one of found) {
    const texts = one.entries.map(({ raw }) => JSON.stringify(raw) ?? "")
    // One entry says too little: many conversations begin with the same.
    const beginning = texts.length < 2 ? undefined : `${texts[0]}\n${texts[1]}`
    const same = beginning === undefined ? [] : byBeginning.get(beginning) ?? []
    const earlier = same.find((index) => {
      const before = kept[index]?.texts
      return before !== undefined && before.length <= texts.length && before.every((text, i) => text === texts[i])
    })
    if (earlier !== undefined) {
      kept[earlier] = { one, texts }
      repeated++
      continue
    }
    if (same.some((index) => texts.every((text, i) => text === kept[index]?.texts[i]))) {
      repeated++
      continue
    }
    if (beginning !== undefined) byBeginning.set(beginning, [...same, kept.length])
    kept.push({ one, texts })
  }
  return { kept: kept.flatMap((entry) => entry === undefined ? [] : [entry.one]), repeated }
}

/** The text of a content that is text, or a list of parts. */
const textOf = (content: Value): string => {
  if (content.absent) return ""
  const text = content.text
  if (text !== undefined) return text
  if (content.isList) {
    return content.entries.map((part) => part.text ?? part.get("text").text ?? JSON.stringify(part.raw)).join("\n")
  }
  return JSON.stringify(content.raw)
}

/** Arguments as the model meant them: nothing is the empty object. */
const argumentsOf = (value: Value): unknown => {
  const { raw } = value
  if (raw === undefined || raw === null) return {}
  return typeof raw === "string" ? raw.trim() === "" ? {} : fromText(raw) : raw
}

export const chat: History = {
  form: "chat",
  expected: "a message with a role, a request with `messages`, or a response with `choices`",
  isEntry: (value) => value.get("role").text !== undefined,
  unwrap: (value) => {
    const messages = value.get("messages")
    const choices = value.get("choices")
    if (messages.absent && choices.absent) {
      const inner = ["request", "response"].flatMap((member) => {
        const part = value.get(member)
        return part.isObject ? chat.unwrap(part) ?? [] : []
      })
      return inner.length === 0 ? undefined : inner
    }
    return [
      ...(messages.absent ? [] : messages.list("a list of messages")),
      ...choices.entries.slice(0, 1).map((choice) => choice.get("message").object("a choice with a message"))
    ]
  },
  take: (message, into) => {
    const role = message.object("a message").get("role").string("the role of a message")
    const content = message.get("content")
    if (role === "user") return into.user(textOf(content))
    if (role === "tool" || role === "function") {
      const id = message.get(role === "tool" ? "tool_call_id" : "name")
      return into.result(id.absent ? "" : id.string("the id of the call that it answers"), textOf(content))
    }
    if (role !== "assistant") return into.say(textOf(content))
    const calls = message.get("tool_calls")
    const legacy = message.get("function_call")
    into.step([
      ...(calls.absent ? [] : calls.list("a list of calls")).map((call) => {
        const id = call.object("a call").get("id")
        const custom = call.get("custom")
        const named = custom.isObject ? custom : call.get("function").object("a call with a `function`")
        return openCall(
          id.absent ? "" : id.string("the id of a call"),
          named.get("name").string("the name of a tool"),
          custom.isObject ? named.get("input").raw : argumentsOf(named.get("arguments"))
        )
      }),
      ...(legacy.isObject
        ? [legacy.get("name").string("the name of a function")].map((name) =>
          openCall(name, name, argumentsOf(legacy.get("arguments")))
        )
        : [])
    ])
  }
}

export const anthropic: History = {
  form: "anthropic",
  expected: "a message with a role, or a request with `messages`",
  isEntry: (value) => value.get("role").text !== undefined,
  unwrap: (value) => {
    const messages = value.get("messages")
    if (!messages.absent) {
      const response = value.get("response")
      const system = value.get("system")
      return [
        ...(system.absent ? [] : [new Value({ role: "system", content: system.raw }, system.place)]),
        ...messages.list("a list of messages"),
        ...(response.get("role").text === undefined ? [] : [response])
      ]
    }
    const request = value.get("request")
    const response = value.get("response")
    const inner = [
      ...(request.isObject ? anthropic.unwrap(request) ?? [] : []),
      ...(response.get("role").text === undefined ? [] : [response])
    ]
    return inner.length === 0 ? undefined : inner
  },
  take: (message, into) => {
    const role = message.object("a message").get("role").string("the role of a message")
    const content = message.get("content")
    const blocks = content.isList ? content.entries : []
    for (const block of blocks) block.object("a block of content")
    if (role === "assistant") {
      into.step(
        blocks.filter((block) => block.get("type").text === "tool_use").map((block) => {
          const id = block.get("id")
          return openCall(
            id.absent ? "" : id.string("the id of a call"),
            block.get("name").string("the name of a tool"),
            argumentsOf(block.get("input"))
          )
        })
      )
      return
    }
    const results = blocks.filter((block) => block.get("type").text === "tool_result")
    for (const block of results) {
      const id = block.get("tool_use_id")
      into.result(
        id.absent ? "" : id.string("the id of the call that it answers"),
        textOf(block.get("content")),
        block.get("is_error").raw === true
      )
    }
    if (role !== "user") into.say(textOf(content))
    else if (results.length === 0) into.user(textOf(content))
    else {
      for (const block of blocks) {
        const text = block.get("text").text
        if (text !== undefined) into.say(text)
      }
    }
  }
}

export const responses: History = {
  form: "responses",
  expected: "an item with a type or a role, a request with `input`, or a response with `output`",
  isEntry: (value) =>
    value.get("object").text !== "response" && value.get("output").isList === false &&
    (value.get("type").text !== undefined || value.get("role").text !== undefined),
  unwrap: (value) => {
    const input = value.get("input")
    const output = value.get("output")
    if (input.absent && output.absent) {
      const items = value.get("items")
      if (items.isList) return items.entries
      const inner = ["request", "response"].flatMap((member) => {
        const part = value.get(member)
        return part.isObject ? responses.unwrap(part) ?? [] : []
      })
      return inner.length === 0 ? undefined : inner
    }
    return [
      ...(input.absent
        ? []
        : input.text === undefined
        ? input.list("a text or a list of items")
        : [new Value({ role: "user", content: input.text }, input.place)]),
      ...(output.absent ? [] : output.list("a list of items"))
    ]
  },
  take: (item, into) => {
    const type = item.object("an item").get("type").text
    const role = item.get("role").text
    if (item.raw === boundary) return into.close()
    if (type === undefined && role === undefined) return item.fail("an item with a type or a role")
    if (type === "function_call" || type === "custom_tool_call") {
      const id = item.get("call_id")
      return into.addCall(openCall(
        id.absent ? "" : id.string("the call_id of a call"),
        item.get("name").string("the name of a tool"),
        type === "custom_tool_call" ? item.get("input").raw : argumentsOf(item.get("arguments"))
      ))
    }
    if (type === "function_call_output" || type === "custom_tool_call_output") {
      const id = item.get("call_id")
      return into.result(
        id.absent ? "" : id.string("the call_id of the call that it answers"),
        textOf(item.get("output")),
        false
      )
    }
    if (role === "user") return into.user(textOf(item.get("content")))
    if (role !== undefined && role !== "assistant") into.say(textOf(item.get("content")))
  }
}
