/** The events of a response that is streamed, as each provider sends them, cut into pieces by a list of numbers. */
import { isObject } from "./refusals.ts"
import type { Provider } from "./rules.ts"

/** An event: its name where the provider gives it one, and its data. */
export interface Event {
  readonly name?: string
  readonly data: unknown
}

/** Gives whole numbers below a limit, always the same ones for the same seed. */
export type Dice = (below: number) => number

/** Cuts a text into pieces, never inside a character. */
const pieces = (text: string, dice: Dice): ReadonlyArray<string> => {
  const characters = Array.from(text)
  const list: Array<string> = []
  while (characters.length > 0) list.push(characters.splice(0, 1 + dice(6)).join(""))
  return list
}

const chat = (response: any, dice: Dice): ReadonlyArray<Event> => {
  const { choices: [choice], usage, ...head } = response
  const { content, reasoning_content, refusal, role, tool_calls = [], ...message } = choice.message
  const chunk = (delta: unknown, finish_reason: unknown = null): Event => ({
    data: { ...head, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason, logprobs: null }] }
  })
  const thinks = reasoning_content === undefined ? undefined : { reasoning_content: "" }
  const events = [chunk({ role, content: content === null ? null : "", ...thinks, ...message })]
  for (const piece of pieces(reasoning_content ?? "", dice)) events.push(chunk({ reasoning_content: piece }))
  for (const piece of pieces(content ?? "", dice)) events.push(chunk({ content: piece }))
  for (const piece of pieces(refusal ?? "", dice)) events.push(chunk({ refusal: piece }))
  // Calls begin in order; their arguments come in any.
  let waiting: Array<{ index: number; kind: string; field: string; left: Array<string> }> = []
  for (const [index, { custom, function: fn, ...call }] of tool_calls.entries()) {
    const kind = custom == null ? "function" : "custom"
    const field = custom == null ? "arguments" : "input"
    const { [field]: text, ...inner } = custom ?? fn
    events.push(chunk({ tool_calls: [{ index, ...call, [kind]: { ...inner, [field]: "" } }] }))
    waiting.push({ index, kind, field, left: [...pieces(text ?? "", dice)] })
    if (dice(2) === 0) {
      for (const one of waiting) while (one.left.length > 0) events.push(piece(one))
      waiting = []
    }
  }
  function piece({ field, index, kind, left }: (typeof waiting)[number]): Event {
    return chunk({ tool_calls: [{ index, [kind]: { [field]: left.shift() } }] })
  }
  for (waiting = waiting.filter((one) => one.left.length > 0); waiting.length > 0;) {
    events.push(piece(waiting[dice(waiting.length)]!))
    waiting = waiting.filter((one) => one.left.length > 0)
  }
  events.push(chunk({}, choice.finish_reason))
  events.push({ data: { ...head, object: "chat.completion.chunk", choices: [], usage } })
  return [...events, { data: "[DONE]" }]
}

const responses = (response: any, dice: Dice): ReadonlyArray<Event> => {
  const events: Array<Event> = []
  const emit = (type: string, fields: Record<string, unknown>) =>
    events.push({ name: type, data: { type, sequence_number: events.length, ...fields } })
  const begun = { ...response, status: "in_progress", output: [], incomplete_details: null, usage: null }
  emit("response.created", { response: begun })
  emit("response.in_progress", { response: begun })
  for (const [output_index, item] of response.output.entries()) {
    const at = { item_id: item.id, output_index }
    const added = (fields: Record<string, unknown>) =>
      emit("response.output_item.added", {
        output_index,
        item: { ...item, ...fields, ...("status" in item ? { status: "in_progress" } : undefined) }
      })
    const texts = (type: string, field: string, text: string, more: Record<string, unknown>) => {
      for (const delta of pieces(text, dice)) emit(`${type}.delta`, { ...more, delta })
      emit(`${type}.done`, { ...more, [field]: text })
    }
    switch (item.type) {
      case "function_call":
        added({ arguments: "" })
        texts("response.function_call_arguments", "arguments", item.arguments, at)
        break
      case "custom_tool_call":
        added({ input: "" })
        texts("response.custom_tool_call_input", "input", item.input, at)
        break
      case "message":
        added({ content: [] })
        for (const [content_index, part] of item.content.entries()) {
          const here = { ...at, content_index }
          emit("response.content_part.added", { ...here, part: { ...part, text: "" } })
          texts("response.output_text", "text", part.text, { ...here, logprobs: [] })
          emit("response.content_part.done", { ...here, part })
        }
        break
      case "reasoning":
        added({ summary: [] })
        for (const [summary_index, part] of item.summary.entries()) {
          const here = { ...at, summary_index }
          emit("response.reasoning_summary_part.added", { ...here, part: { ...part, text: "" } })
          texts("response.reasoning_summary_text", "text", part.text, here)
          emit("response.reasoning_summary_part.done", { ...here, part })
        }
        break
      default:
        added({})
        emit(`response.${item.type}.in_progress`, at)
        emit(`response.${item.type}.completed`, at)
    }
    emit("response.output_item.done", { output_index, item })
  }
  emit(response.status === "incomplete" ? "response.incomplete" : "response.completed", { response })
  return events
}

const anthropic = (response: any, dice: Dice): ReadonlyArray<Event> => {
  const events: Array<Event> = []
  const emit = (type: string, fields: Record<string, unknown>) => events.push({ name: type, data: { type, ...fields } })
  const { content, stop_reason, stop_sequence, usage } = response
  emit("message_start", { message: { ...response, content: [], stop_reason: null, stop_sequence: null } })
  for (const [index, block] of content.entries()) {
    const start = (content_block: unknown) => emit("content_block_start", { index, content_block })
    const delta = (type: string, field: string, value: unknown) =>
      emit("content_block_delta", { index, delta: { type, [field]: value } })
    if (dice(4) === 0) emit("ping", {})
    if (block.type === "text") {
      start({ ...block, text: "", ...(Array.isArray(block.citations) ? { citations: [] } : undefined) })
      for (const piece of pieces(block.text, dice)) delta("text_delta", "text", piece)
      for (const citation of block.citations ?? []) delta("citations_delta", "citation", citation)
    } else if (block.type === "thinking") {
      start({ ...block, thinking: "", signature: "" })
      for (const piece of pieces(block.thinking, dice)) delta("thinking_delta", "thinking", piece)
      delta("signature_delta", "signature", block.signature)
    } else if (block.type === "tool_use" || block.type === "server_tool_use") {
      start({ ...block, input: {} })
      // Broken arguments exist in streams alone: there they are text.
      const text = isObject(block.input) ? JSON.stringify(block.input) : String(block.input)
      delta("input_json_delta", "partial_json", "")
      for (const piece of text === "{}" ? [] : pieces(text, dice)) delta("input_json_delta", "partial_json", piece)
    } else start(block)
    emit("content_block_stop", { index })
  }
  emit("message_delta", { delta: { stop_reason, stop_sequence }, usage: { output_tokens: usage.output_tokens } })
  emit("message_stop", {})
  return events
}

const gemini = (response: any, dice: Dice): ReadonlyArray<Event> => {
  const { candidates: [{ content, finishReason, ...candidate }], usageMetadata, ...head } = response
  const chunks: Array<Array<unknown>> = [[]]
  for (const part of content?.parts ?? []) {
    // A part with a signature comes whole.
    const isPlain = typeof part.text === "string" && part.text !== "" && part.thoughtSignature === undefined
    const list = isPlain ? pieces(part.text, dice).map((text) => ({ ...part, text })) : [part]
    for (const one of list) {
      if (chunks.at(-1)!.length > 0 && dice(2) === 0) chunks.push([])
      chunks.at(-1)!.push(one)
    }
  }
  return chunks.map((parts, index) => ({
    data: {
      ...head,
      candidates: [{
        ...candidate,
        ...(parts.length === 0 ? undefined : { content: { role: "model", parts } }),
        ...(index === chunks.length - 1 ? { finishReason } : undefined)
      }],
      usageMetadata
    }
  }))
}

export const eventsOf: Record<Provider, (response: any, dice: Dice) => ReadonlyArray<Event>> = {
  chat,
  responses,
  anthropic,
  gemini
}

/** Events as the text of `text/event-stream`. */
export const toText = (events: ReadonlyArray<Event>): string =>
  events.map(({ data, name }) =>
    `${name === undefined ? "" : `event: ${name}\n`}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`
  ).join("")
