/**
 * Whole responses of each provider, and the events that it would have streamed in their place. Made from a list of items and a list of
 * numbers, both of which a property generates: the numbers decide where texts are cut and in which order parts come.
 */
import { Arbitrary, Schema } from "effect"

const texts = Schema.Literals(["", "a", "Oslo ☔ \ud83d\ude00", 'say "hi"\n', "[DONE]", "data: x\r\n\r\n", "</think>"])

const args = Schema.Literals([
  "",
  "{}",
  '{"city":"Oslo ☔"}',
  '{ "a" : [1, {"b": null}] }',
  '{"a":',
  '{"__proto__":{"x":1}}'
])

const Item = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("text"), text: texts, extra: Schema.Boolean }),
  Schema.Struct({ kind: Schema.Literal("thinking"), text: texts }),
  Schema.Struct({ kind: Schema.Literal("server"), text: texts }),
  Schema.Struct({
    kind: Schema.Literals(["call", "custom"]),
    id: Schema.Literals(["", "a", "b", "call_1"]),
    name: Schema.Literals(["look", "look_up", "book"]),
    args,
    extra: Schema.Boolean
  })
])

type Item = typeof Item.Type

export const inputs = {
  items: Arbitrary.array(Arbitrary.schema(Item), { maxLength: 7 }),
  numbers: Arbitrary.array(Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 999 }))), {
    minLength: 1,
    maxLength: 40
  })
}

/** A number below `n`, the next one of the list. */
export type Next = (n: number) => number

export const nextOf = (numbers: ReadonlyArray<number>): Next => {
  let at = 0
  return (n) => (numbers[at++ % numbers.length]! + at) % n
}

export interface Streamed {
  readonly whole: any
  readonly events: ReadonlyArray<any>
}

/** The pieces of a text, none of them empty; a text of nothing has none. */
const pieces = (text: string, next: Next): Array<string> => {
  const cut: Array<string> = []
  for (let at = 0; at < text.length;) {
    const to = at + 1 + next(6)
    cut.push(text.slice(at, to))
    at = to
  }
  return cut
}

/** Lists whose orders are kept, in one list. */
const interleaved = <A>(lists: ReadonlyArray<ReadonlyArray<A>>, next: Next): Array<A> => {
  const left = lists.map((list) => [...list])
  const all: Array<A> = []
  for (;;) {
    const open = left.filter((list) => list.length > 0)
    if (open.length === 0) return all
    all.push(open[next(open.length)]!.shift()!)
  }
}

const objectOf = (text: string, otherwise: unknown = {}): unknown => {
  try {
    return text === "" ? {} : JSON.parse(text)
  } catch {
    return otherwise
  }
}

const isCall = (item: Item) => item.kind === "call" || item.kind === "custom"

const ends = ["calls", "cut", "calls", "stop"] as const

/** How hosts of Chat Completions write the deltas of a call. */
const styles = ["index", "late id", "again", "other ids", "whole", "one index", "object"] as const

export const chat = (items: ReadonlyArray<Item>, next: Next): Streamed => {
  const end = ends[next(ends.length)]!
  const style = styles[next(styles.length)]!
  const envelope = { id: "chatcmpl-1", created: 7, model: "m", service_tier: "default", system_fingerprint: null }
  const text = items.flatMap((item) => item.kind === "text" ? [item.text] : []).join("")
  const reasoning = items.flatMap((item) => item.kind === "thinking" ? [item.text] : []).join("")
  const calls = items.flatMap((item, at) => {
    if (item.kind !== "call" && item.kind !== "custom") return []
    const custom = item.kind === "custom" && style !== "object"
    // Hosts that give one index, or none, tell calls apart by what else they say.
    const id = style === "index" || style === "again" ? item.id : `${item.id}_${at}`
    const given = style === "object" ? { city: item.args } : style === "one index" ? '{"a":1}' : item.args
    return [{
      ...(id === "" ? undefined : { id }),
      type: custom ? "custom" : "function",
      ...(custom ? { custom: { name: item.name, input: given } } : { function: { name: item.name, arguments: given } }),
      ...(item.extra ? { extra_content: { google: { thought_signature: "sig" } } } : undefined)
    }]
  })
  const finish_reason = end === "cut" ? "length" : end === "stop" ? "stop" : "tool_calls"
  const usage = { completion_tokens: 3, prompt_tokens_details: { cached_tokens: 1 } }
  const message = {
    role: "assistant",
    content: text === "" ? null : text,
    ...(reasoning === "" ? undefined : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? undefined : { tool_calls: calls })
  }
  const whole = {
    ...envelope,
    object: "chat.completion",
    choices: [{ index: 0, message, logprobs: null, finish_reason }],
    usage
  }
  const chunk = (delta: unknown, rest?: object) => ({
    ...envelope,
    object: "chat.completion.chunk",
    usage: null,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: null, ...rest }],
    obfuscation: "x"
  })
  const deltasOf = (call: any, at: number): Array<any> => {
    const index = style === "one index" ? { index: 0 } : style === "whole" || style === "object" ? {} : { index: at }
    const kind = call.type as "function" | "custom"
    const field = kind === "function" ? "arguments" : "input"
    const { id, [kind]: inner, ...rest } = call
    const named = id === undefined ? {} : { id }
    if (style === "whole" || style === "object") return [{ ...index, ...call }]
    const cut = pieces(inner[field], next)
    const more = (piece: string) => ({ ...index, [kind]: { [field]: piece } })
    switch (style) {
      case "late id":
        return [
          { ...index, ...rest, [kind]: { [field]: "" } },
          { ...index, ...named, [kind]: { name: inner.name } },
          ...cut.map(more)
        ]
      case "again":
        return ["", ...cut].map((piece) => ({
          ...index,
          ...named,
          ...rest,
          [kind]: { name: inner.name, [field]: piece }
        }))
      case "other ids":
        return [
          { ...index, ...named, ...rest, [kind]: { name: inner.name, [field]: "" } },
          ...cut.map((piece, n) => ({ id: `made-up-${n}`, ...more(piece) }))
        ]
      default:
        return [{ ...index, ...named, ...rest, [kind]: { name: inner.name, [field]: "" } }, ...cut.map(more)]
    }
  }
  const callLists = calls.map((call, at) => deltasOf(call, at).map((delta) => chunk({ tool_calls: [delta] })))
  const callEvents = style === "one index" || style === "whole" || style === "object"
    ? callLists.flat()
    : interleaved(callLists, next)
  return {
    whole,
    events: [
      chunk({ role: "assistant", content: null }),
      ...interleaved([
        pieces(text, next).map((content) => chunk({ content })),
        pieces(reasoning, next).map((reasoning_content) => chunk({ role: "assistant", reasoning_content })),
        callEvents
      ], next),
      chunk({}, { finish_reason }),
      { ...chunk({}), choices: [], usage }
    ]
  }
}

export const anthropic = (items: ReadonlyArray<Item>, next: Next): Streamed => {
  const end = ends[next(ends.length)]!
  const blocks = items.flatMap((item, at): Array<{ block: any; deltas: Array<any>; start: any }> => {
    switch (item.kind) {
      case "text": {
        const citations = item.extra
          ? [{ type: "char_location", cited_text: "x" }, { type: "page_location" }]
          : undefined
        return item.text === "" ? [] : [{
          block: { type: "text", text: item.text, ...(citations && { citations }) },
          start: { type: "text", text: "", ...(citations && { citations: null }) },
          deltas: [
            ...pieces(item.text, next).map((text) => ({ type: "text_delta", text })),
            ...(citations ?? []).map((citation) => ({ type: "citations_delta", citation }))
          ]
        }]
      }
      case "thinking":
        return [{
          block: { type: "thinking", thinking: item.text, signature: `sig-${at}` },
          start: { type: "thinking", thinking: "", signature: "" },
          deltas: [
            ...pieces(item.text, next).map((thinking) => ({ type: "thinking_delta", thinking })),
            { type: "signature_delta", signature: `sig-${at}` }
          ]
        }]
      case "server": {
        const id = `srvtoolu_${at}`
        const input = { query: item.text }
        const found = {
          type: "web_search_tool_result",
          tool_use_id: id,
          content: [{ type: "web_search_result", url: "u" }]
        }
        return [{
          block: { type: "server_tool_use", id, name: "web_search", input },
          start: { type: "server_tool_use", id, name: "web_search", input: {} },
          deltas: pieces(JSON.stringify(input), next).map((partial_json) => ({
            type: "input_json_delta",
            partial_json
          }))
        }, { block: found, start: found, deltas: [] }]
      }
      default: {
        const input = objectOf(item.args, item.args)
        const rest = { id: item.id, name: item.name, ...(item.extra ? { caller: { type: "direct" } } : undefined) }
        return [{
          block: { type: "tool_use", ...rest, input },
          start: { type: "tool_use", ...rest, input: item.extra && item.args === "" ? "" : {} },
          deltas: ["", ...pieces(item.args, next)].map((partial_json) => ({ type: "input_json_delta", partial_json }))
        }]
      }
    }
  })
  const stop_reason = end === "cut" ? "max_tokens" : end === "stop" ? "end_turn" : "tool_use"
  const message = { id: "msg_1", type: "message", role: "assistant", model: "claude", container: null }
  return {
    whole: {
      ...message,
      content: blocks.map(({ block }) => block),
      stop_reason,
      stop_sequence: null,
      usage: { input_tokens: 5, output_tokens: 9, cache_read_input_tokens: 2, service_tier: "standard" }
    },
    events: [
      {
        type: "message_start",
        message: {
          ...message,
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: { input_tokens: 5, output_tokens: 1, cache_read_input_tokens: 2, service_tier: "standard" }
        }
      },
      { type: "ping" },
      ...interleaved(
        blocks.reduce<Array<Array<any>>>((lists, { deltas, start }, index) => {
          const events = [
            { type: "content_block_start", index, content_block: start },
            ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
            { type: "content_block_stop", index }
          ]
          // What a server tool gave comes after what it was asked.
          if ("tool_use_id" in start) lists.at(-1)!.push(...events)
          else lists.push(events)
          return lists
        }, []),
        next
      ),
      { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 9 } },
      { type: "message_stop" }
    ]
  }
}

const prefixes = { text: "msg", thinking: "rs", server: "ws" }

export const responses = (items: ReadonlyArray<Item>, next: Next): Streamed => {
  const end = ends[next(ends.length)]!
  const text = (type: string, value: string, rest: object, done: string): Array<any> => [
    ...pieces(value, next).map((delta) => ({ type: `response.${type}.delta`, delta, ...rest })),
    { type: `response.${type}.done`, [done]: value, ...rest }
  ]
  const output = items.map((item, at): { item: any; added: any; deltas: (place: object) => Array<any> } => {
    const id = `${item.kind === "call" ? "fc" : item.kind === "custom" ? "ctc" : prefixes[item.kind]}_${at}`
    switch (item.kind) {
      case "text": {
        const part = {
          type: "output_text",
          text: item.text,
          annotations: item.extra ? [{ type: "url_citation", url: "u" }] : []
        }
        const rest = { type: "message", id, role: "assistant" }
        return {
          item: { ...rest, status: "completed", content: [part] },
          added: { ...rest, status: "in_progress", content: [] },
          deltas: (place) => [
            {
              type: "response.content_part.added",
              part: { ...part, text: "", annotations: [] },
              content_index: 0,
              ...place
            },
            ...text("output_text", item.text, { content_index: 0, ...place }, "text"),
            { type: "response.content_part.done", part, content_index: 0, ...place }
          ]
        }
      }
      case "thinking": {
        const summary = item.text === "" ? [] : [{ type: "summary_text", text: item.text }]
        return {
          item: { type: "reasoning", id, summary, encrypted_content: `sealed-${at}` },
          added: { type: "reasoning", id, summary: [], encrypted_content: null },
          deltas: (place) =>
            summary.length === 0 ? [] : [
              {
                type: "response.reasoning_summary_part.added",
                part: { type: "summary_text", text: "" },
                summary_index: 0,
                ...place
              },
              ...text("reasoning_summary_text", item.text, { summary_index: 0, ...place }, "text"),
              { type: "response.reasoning_summary_part.done", part: summary[0], summary_index: 0, ...place }
            ]
        }
      }
      case "server":
        return {
          item: { type: "web_search_call", id, status: "completed", action: { type: "search", query: item.text } },
          added: { type: "web_search_call", id, status: "in_progress" },
          deltas: (place) => [{ type: "response.web_search_call.searching", ...place }]
        }
      default: {
        const custom = item.kind === "custom"
        const field = custom ? "input" : "arguments"
        const rest = { id, type: custom ? "custom_tool_call" : "function_call", call_id: item.id, name: item.name }
        const extra = item.extra ? { namespace: "n" } : {}
        return {
          item: { ...rest, ...extra, [field]: item.args, ...(custom ? undefined : { status: "completed" }) },
          added: { ...rest, ...extra, [field]: "", ...(custom ? undefined : { status: "in_progress" }) },
          deltas: (place) =>
            text(custom ? "custom_tool_call_input" : "function_call_arguments", item.args, place, field)
        }
      }
    }
  })
  const response = {
    id: "resp_1",
    object: "response",
    created_at: 7,
    model: "m",
    error: null,
    incomplete_details: null
  }
  const whole = {
    ...response,
    status: end === "cut" ? "incomplete" : "completed",
    incomplete_details: end === "cut" ? { reason: "max_output_tokens" } : null,
    output: output.map(({ item }) => item),
    usage: { output_tokens: 4 }
  }
  // Gateways are known that leave the output of the last event empty.
  const last = next(3) === 0 ? { ...whole, output: [] } : whole
  const events = [
    { type: "response.created", response: { ...response, status: "in_progress", output: [], usage: null } },
    { type: "response.in_progress", response: { ...response, status: "in_progress", output: [], usage: null } },
    ...interleaved(
      output.map(({ added, deltas, item }, output_index) => [
        { type: "response.output_item.added", output_index, item: added },
        ...deltas({ output_index, item_id: item.id }),
        { type: "response.output_item.done", output_index, item }
      ]),
      next
    ),
    { type: end === "cut" ? "response.incomplete" : "response.completed", response: last }
  ]
  return { whole, events: events.map((event, sequence_number) => ({ ...event, sequence_number })) }
}

export const gemini = (items: ReadonlyArray<Item>, next: Next): Streamed => {
  const end = ends[next(ends.length)]!
  const parts: Array<any> = []
  const pushed: Array<Array<any>> = []
  for (const [at, item] of items.entries()) {
    const last = parts.at(-1)
    switch (item.kind) {
      case "text":
      case "thinking": {
        if (item.text === "") break
        const thought = item.kind === "thinking" ? { thought: true } : {}
        const signed = item.kind === "text" && item.extra
        const cut = pieces(item.text, next)
        if (signed) {
          parts.push({ text: item.text, thoughtSignature: btoa(`sig-${at}`) })
          pushed.push([parts.at(-1)])
          break
        }
        if (
          last?.text !== undefined && last.thoughtSignature === undefined && last.thought === (thought as any).thought
        ) {
          last.text += item.text
        } else parts.push({ ...thought, text: item.text })
        pushed.push(...cut.map((text) => [{ ...thought, text }]))
        break
      }
      case "server":
        parts.push({ executableCode: { language: "PYTHON", code: item.text } }, {
          codeExecutionResult: { outcome: "OUTCOME_OK" }
        })
        pushed.push([parts.at(-2)], [parts.at(-1)])
        break
      default: {
        const part = {
          functionCall: {
            ...(item.id === "" ? undefined : { id: item.id }),
            name: item.name,
            args: item.kind === "custom" ? { city: item.args, list: [1, { a: true }], none: null } : objectOf(item.args)
          },
          ...(item.extra ? { thoughtSignature: btoa(`sig-${at}`) } : undefined)
        }
        parts.push(part)
        pushed.push(...(item.kind === "custom" ? inPieces(part, next) : [[part]]))
      }
    }
  }
  const finishReason = end === "cut" ? "MAX_TOKENS" : "STOP"
  const rest = { modelVersion: "gemini", responseId: "r1" }
  const chunk = (parts: Array<any>, usage: number, more?: object) => ({
    candidates: [{ content: { role: "model", parts }, index: 0, ...more }],
    usageMetadata: { totalTokenCount: usage },
    ...rest
  })
  // Several parts may come in one chunk.
  const grouped: Array<Array<any>> = []
  for (const one of pushed) {
    if (grouped.length > 0 && next(3) === 0) grouped.at(-1)!.push(...one)
    else grouped.push([...one])
  }
  const final = grouped.length > 0 && next(2) === 0 ? grouped.pop()! : []
  return {
    whole: {
      candidates: [{
        content: { role: "model", parts },
        index: 0,
        finishReason,
        groundingMetadata: { webSearchQueries: ["q"] }
      }],
      usageMetadata: { totalTokenCount: 99 },
      ...rest
    },
    events: [
      ...grouped.map((parts, at) => chunk(parts, at)),
      chunk(final, 99, { finishReason, groundingMetadata: { webSearchQueries: ["q"] } })
    ]
  }
}

/** A call whose arguments come one by one. */
const inPieces = (part: any, next: Next): Array<Array<any>> => {
  const { functionCall: { args, ...call }, ...rest } = part
  const cut = pieces(args.city, next)
  const piece = (partialArgs: Array<any>) => [{ functionCall: { partialArgs, willContinue: true } }]
  return [
    [{ functionCall: { ...call, willContinue: true }, ...rest }],
    ...(cut.length === 0 ? [""] : cut).map((stringValue, at) =>
      piece([{ jsonPath: "$.city", stringValue, ...(at < cut.length - 1 ? { willContinue: true } : undefined) }])
    ),
    piece([{ jsonPath: "$.list[0]", numberValue: 1 }, { jsonPath: "$['list'][1].a", boolValue: true }]),
    piece([{ jsonPath: '$["none"]', nullValue: "NULL_VALUE" }]),
    [{ functionCall: {} }]
  ]
}

export const neutral = (items: ReadonlyArray<Item>, next: Next): Streamed => {
  const calls = items.filter(isCall).map((item: any) => ({ id: item.id, name: item.name, arguments: item.args }))
  const finishReason = next(2) === 0 ? "tool-calls" : "length"
  return { whole: { calls, finishReason }, events: [...calls, { finishReason }] }
}

/** Server-sent events as a provider sends them, with the liberties that they take. */
export const sse = (events: ReadonlyArray<any>, next: Next): string => {
  const line = ["\n", "\r\n", "\r"][next(3)]!
  const text = events.map((event) => {
    const json = JSON.stringify(event, null, next(4) === 0 ? 1 : undefined)
    const name = typeof event.type === "string" && next(2) === 0 ? `event: ${event.type}${line}` : ""
    return `${next(5) === 0 ? `: keep-alive${line}${line}` : ""}${name}${
      json.split("\n").map((one) => `data:${next(2) === 0 ? " " : ""}${one}${line}`).join("")
    }${line}`
  }).join("")
  const start = next(4) === 0 ? "\ufeff" : ""
  const end = next(2) === 0 ? `data: [DONE]${line}${line}` : ""
  return start + (end === "" && next(2) === 0 ? text.replace(/[\r\n]+$/, "") : text + end)
}

/** Bytes in pieces, cut anywhere. */
export const bytes = (text: string, next: Next): Array<Uint8Array> => {
  const all = new TextEncoder().encode(text)
  const cut: Array<Uint8Array> = []
  for (let at = 0; at < all.length;) {
    const to = at + 1 + next(50)
    cut.push(all.slice(at, to))
    at = to
  }
  return cut
}
