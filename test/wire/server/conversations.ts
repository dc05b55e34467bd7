/** Random conversations: what a model says, step by step, in no provider's form; and that in the form of each. */
import * as Arbitrary from "effect/Arbitrary"
import { random } from "../../utils/data.ts"
import { int, pick } from "../../utils/gen.ts"
import { names, someOptions } from "./kit.ts"
import { objectOf } from "./refusals.ts"
import type { Provider } from "./rules.ts"
import type { Scripted } from "./server.ts"
import type { Dice } from "./stream.ts"

/** Arguments as a model writes them; `N` is a number that the tools know. */
const args = [
  '{"n":N}',
  '{"n":N}',
  '{"n":N}',
  '{"n":N}',
  '{ "n": N }',
  '{"n":N,"more":{"b":[1,null],"a":"caf\u00e9 \ud83d\ude00"}}',
  '{"n":N,"__proto__":{"a":1}}',
  String.raw`{"n":N,"half":"\ud83d"}`,
  '{"n":"<pending>"}',
  '{"n":1e999}',
  '{"n":N}{"n":2}',
  "[N]",
  "null",
  "{",
  ""
]

const somePart = Arbitrary.all({
  kind: pick("call", "call", "call", "call", "call", "text", "thinking", "script", "server"),
  text: pick("some words", "", " ", "two\nlines", "caf\u00e9 \ud83d\ude00"),
  id: pick("own", "own", "own", "own", "own", "own", "again", "empty", "shared", "odd", "long"),
  name: pick(...names),
  args: pick(...args),
  n: int(0, 11),
  /** Redacted thinking, a text with citations, and the like. */
  other: pick(false, false, true)
})

type Part = typeof somePart["~A"] extends (_: never) => infer A ? A : never

const someStep = Arbitrary.all({
  parts: Arbitrary.flatMap(
    pick(true, true, true, true, true, true, true, false),
    (some) =>
      some ? Arbitrary.array(somePart, { minLength: 1, maxLength: 8 }) : Arbitrary.array(somePart, { maxLength: 1 })
  ),
  finish: pick(
    "calls",
    "calls",
    "calls",
    "calls",
    "calls",
    "calls",
    "calls",
    "calls",
    "stop",
    "length",
    "filter",
    "pause"
  ),
  /** Whole, as events, or as events that the client itself puts together. */
  mode: pick("whole", "events", "events", "helper"),
  /** Where the events break off, as a share of them. */
  breaks: pick(undefined, undefined, undefined, undefined, undefined, undefined, undefined, 0.2, 0.5, 0.9),
  dice: int(0, 1_000_000),
  /** Whether the user says something after the results. */
  more: pick(false, false, true),
  options: someOptions
})

export type Step = typeof someStep["~A"] extends (_: never) => infer A ? A : never

/** Some responses with the same user. */
export const someConversation = Arbitrary.flatMap(
  int(1, 6),
  (length) => Arbitrary.array(someStep, { minLength: length, maxLength: length })
)

const diceOf = (seed: number): Dice => {
  const next = random(seed)
  return (below) => Math.floor(next() * below)
}

/** What belongs to one conversation: the numbers of its ids and steps, and what the provider has begun itself and not ended. */
interface State {
  number: number
  step: number
  open: Array<string>
}

/** The steps of a conversation as responses of a provider, and one more that says goodbye. */
export const scriptOf = (provider: Provider, steps: ReadonlyArray<Step>): ReadonlyArray<Scripted> => {
  const state: State = { number: 0, step: 0, open: [] }
  return [
    ...steps.map(delivered).map((step, index): Scripted => {
      // Some hosts number their ids anew in each response; those of Responses and Anthropic are unique.
      state.step = provider === "chat" || provider === "gemini" ? 0 : index
      return {
        response: render[provider](step, state),
        dice: diceOf(step.dice),
        breaks: step.mode === "events" ? step.breaks : undefined
      }
    }),
    { response: last[provider], dice: diceOf(0) }
  ]
}

/** A call that comes again is the one before it, under one id. */
const delivered = (step: Step): Step => {
  const parts: Array<Part> = []
  for (const part of step.parts) {
    const before = parts.findLastIndex(isCall)
    if (!isCall(part) || part.id !== "again" || before === -1) parts.push(part)
    else {
      parts[before] = { ...parts[before]!, id: "shared" }
      parts.push(parts[before])
    }
  }
  return { ...step, parts }
}

/** Arguments for providers that send objects; what is no object, or overflows, is nothing. */
const inputOf = (text: string): Record<string, unknown> | undefined => {
  const value = objectOf(text)
  return value === undefined || Object.values(value).includes(Infinity) ? undefined : value
}

/** Base64 that nobody else has. */
const opaque = (state: State): string => btoa(`opaque ${state.number++} ${"-".repeat(30)}`)

const idOf = (part: Part, state: State, prefix: string): string =>
  part.id === "own"
    ? `${prefix}${state.number++}`
    : part.id === "shared"
    ? `${prefix}same${state.step}`
    : part.id === "odd"
    ? `functions.${part.name.slice(0, 9)}:${part.n}|${state.step}`
    : part.id === "long"
    ? `${prefix}${"y".repeat(100)}${part.n}_${state.step}`
    : ""

const textOf = (part: Part): string => part.args.replace("N", String(part.n))

const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }

const breaks = (step: Step): boolean => step.mode === "events" && step.breaks !== undefined

const isCall = ({ kind }: Part): boolean => kind === "call" || kind === "script"

const calls = (step: Step): ReadonlyArray<Part> => step.parts.filter(isCall)

const chat = (step: Step, state: State): unknown => {
  const words = step.parts.filter(({ kind }) => kind === "text").map(({ text }) => text).join("")
  // Of reasoning the client's own helper keeps the last piece alone: that is not for us to mend.
  const thinking = step.parts.filter(({ kind }) => kind === "thinking" && step.mode !== "helper")
  const signature = thinking.some(({ other }) => other) ? opaque(state) : undefined
  const tool_calls = calls(step).map((part, index) => ({
    id: idOf(part, state, "call_"),
    ...(part.kind === "script"
      ? { type: "custom", custom: { name: "script", input: part.text } }
      : { type: "function", function: { name: part.name, arguments: textOf(part) } }),
    // What Gemini sends over this API.
    ...(signature !== undefined && index === 0
      ? { extra_content: { google: { thought_signature: signature } } }
      : undefined)
  }))
  const reasons: Record<string, string> = { calls: "tool_calls", filter: "content_filter", pause: "stop" }
  return {
    id: `chatcmpl-${state.number++}`,
    object: "chat.completion",
    created: 1,
    model: "m",
    choices: [{
      index: 0,
      finish_reason: reasons[step.finish] ?? step.finish,
      logprobs: null,
      message: {
        role: "assistant",
        content: words === "" && tool_calls.length > 0 ? null : words,
        refusal: null,
        ...(thinking.length > 0 ? { reasoning_content: thinking.map(({ text }) => text).join("") } : undefined),
        ...(tool_calls.length > 0 ? { tool_calls } : undefined)
      }
    }],
    usage
  }
}

const responses = (step: Step, state: State): unknown => {
  const isCut = step.finish === "length" || step.finish === "filter"
  const output = step.parts.map((part) => {
    const number = state.number++
    switch (part.kind) {
      case "text":
        return {
          type: "message",
          id: `msg_${number}`,
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: part.text, annotations: [], logprobs: [] }]
        }
      case "thinking":
        return {
          type: "reasoning",
          id: `rs_${number}`,
          summary: part.other ? [] : [{ type: "summary_text", text: part.text }],
          encrypted_content: opaque(state)
        }
      case "server":
        return {
          type: "web_search_call",
          id: `ws_${number}`,
          status: "completed",
          action: part.other ? { type: "open_page", url: "https://example.com" } : { type: "search", query: "q" }
        }
      case "script":
        return {
          type: "custom_tool_call",
          id: `ctc_${number}`,
          call_id: idOf(part, state, "call_"),
          name: "script",
          input: part.text
        }
      default:
        return {
          type: "function_call",
          id: `fc_${number}`,
          call_id: idOf(part, state, "call_"),
          name: part.name,
          arguments: textOf(part),
          status: isCut ? "incomplete" : "completed"
        }
    }
  })
  // Reasoning comes last only where the response was cut.
  if (!isCut) { while (output.at(-1)?.type === "reasoning") output.pop() }
  return {
    id: `resp_${state.number++}`,
    object: "response",
    created_at: 1,
    model: "m",
    status: isCut ? "incomplete" : "completed",
    error: null,
    incomplete_details: isCut ? { reason: step.finish === "length" ? "max_output_tokens" : "content_filter" } : null,
    instructions: null,
    metadata: null,
    parallel_tool_calls: true,
    temperature: null,
    tool_choice: "auto",
    tools: [],
    top_p: null,
    output,
    usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 }
  }
}

const citation = {
  type: "char_location",
  cited_text: "some",
  document_index: 0,
  document_title: null,
  start_char_index: 0,
  end_char_index: 4,
  file_id: null
}

const anthropic = (step: Step, state: State): unknown => {
  const found = (tool_use_id: string) => ({
    type: "web_search_tool_result",
    tool_use_id,
    content: [{
      type: "web_search_result",
      title: "t",
      url: "https://example.com",
      encrypted_content: opaque(state),
      page_age: null
    }]
  })
  const content: Array<any> = state.open.map(found)
  state.open = []
  for (const part of step.parts) {
    switch (part.kind) {
      case "text":
        content.push({
          type: "text",
          text: part.text,
          citations: part.other && part.text.trim() !== "" ? [citation] : null
        })
        break
      case "thinking":
        content.push(
          part.other
            ? { type: "redacted_thinking", data: opaque(state) }
            : { type: "thinking", thinking: part.text, signature: opaque(state) }
        )
        break
      case "server": {
        const id = `srvtoolu_${state.number++}`
        content.push({ type: "server_tool_use", id, name: "web_search", input: { query: part.text } }, found(id))
        break
      }
      default: {
        const text = textOf(part)
        content.push({
          type: "tool_use",
          id: idOf(part, state, "toolu_"),
          name: part.kind === "script" ? "script" : part.name,
          input: part.kind === "script" ? { input: part.text } : inputOf(text) ?? (step.mode === "whole" ? {} : text),
          ...(part.other ? { caller: { type: "direct" } } : undefined)
        })
      }
    }
  }
  // Thinking comes last only where the response was cut.
  const isCut = step.finish === "length" || step.finish === "filter"
  if (!isCut) { while (content.at(-1)?.type.endsWith("thinking")) content.pop() }
  // What it has begun it ends in its next response, if the client knows of it.
  if (step.finish === "pause" && calls(step).length === 0 && !breaks(step)) {
    const id = `srvtoolu_${state.number++}`
    content.push({ type: "server_tool_use", id, name: "web_search", input: {} })
    state.open.push(id)
  }
  const reasons: Record<string, string> = {
    calls: "tool_use",
    stop: "end_turn",
    length: "max_tokens",
    filter: "refusal",
    pause: "pause_turn"
  }
  return {
    id: `msg_${state.number++}`,
    type: "message",
    role: "assistant",
    model: "m",
    content,
    stop_reason: step.finish === "calls" && calls(step).length === 0 ? "end_turn" : reasons[step.finish],
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 }
  }
}

const gemini = (step: Step, state: State): unknown => {
  const withIds = step.dice % 2 === 0
  const parts: Array<any> = []
  let signed = false
  for (const part of step.parts) {
    switch (part.kind) {
      case "text":
        parts.push({ text: part.text === "" ? "-" : part.text })
        break
      case "thinking":
        parts.push({ text: part.text === "" ? "-" : part.text, thought: true })
        break
      case "server":
        parts.push(
          { executableCode: { language: "PYTHON", code: "print(1)" } },
          { codeExecutionResult: { outcome: "OUTCOME_OK", output: "1" } }
        )
        break
      default: {
        const id = idOf(part, state, "")
        const given = part.kind === "script" ? { input: part.text } : inputOf(textOf(part))
        parts.push({
          functionCall: {
            ...(withIds && id !== "" ? { id } : undefined),
            name: part.kind === "script" ? "script" : part.name,
            ...(given === undefined ? undefined : { args: given })
          },
          // Of calls side by side the first one carries the signature.
          ...(signed ? undefined : { thoughtSignature: opaque(state) })
        })
        signed = true
      }
    }
  }
  if (!signed && step.dice % 3 === 0) parts.push({ text: "", thoughtSignature: opaque(state) })
  const reasons: Record<string, string> = { length: "MAX_TOKENS", filter: "SAFETY" }
  return {
    candidates: [{
      ...(parts.length === 0 ? undefined : { content: { role: "model", parts } }),
      finishReason: reasons[step.finish] ?? "STOP",
      index: 0
    }],
    usageMetadata: { promptTokenCount: 1, totalTokenCount: 2 },
    modelVersion: "m",
    responseId: `r${state.number++}`
  }
}

const render: Record<Provider, (step: Step, state: State) => unknown> = { chat, responses, anthropic, gemini }

/** How each conversation ends: with words alone. */
export const goodbye: Step = {
  parts: [{ kind: "text", text: "some words", id: "own", name: "read", args: "", n: 0, other: false }],
  finish: "stop",
  mode: "whole",
  breaks: undefined,
  dice: 1,
  more: false,
  options: {}
}

const last: Record<Provider, unknown> = {
  chat: chat(goodbye, { number: 1_000_000, step: 0, open: [] }),
  responses: responses(goodbye, { number: 1_000_000, step: 0, open: [] }),
  anthropic: anthropic(goodbye, { number: 1_000_000, step: 0, open: [] }),
  gemini: gemini(goodbye, { number: 1_000_000, step: 0, open: [] })
}
