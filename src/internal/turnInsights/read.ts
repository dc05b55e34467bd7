/** Text to a recording: which form it is, and then that form's reader. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { readCalls } from "./calls.ts"
import { readEvents } from "./events.ts"
import { anthropic, chat, readHistory, responses } from "./history.ts"
import { readSpans } from "./spans.ts"
import { parse, Unreadable, type Value } from "./value.ts"

type Form = TurnInsights.Form

export const readText = (
  text: string,
  options: { readonly source: string; readonly form: Form | undefined; readonly gap: number }
): TurnInsights.Recording => {
  const { cut, values } = parse(text)
  const form = options.form ?? formOf(values)
  const { conversations, notes } = readAs(form, values.map((value) => value.as(form)), options.gap)
  const kept = conversations.filter(({ turns }) => turns.length > 0)
  if (kept.length === 0 && options.form !== undefined) mustBe(form, values)
  return {
    source: options.source,
    form,
    notes: cut === undefined ? notes : [`line ${cut}, the last one, is cut: read up to there`, ...notes],
    conversations: kept
  }
}

/** With nothing in it that was asked for, and something of another form, zeros would look like an answer. */
const mustBe = (form: Form, values: ReadonlyArray<Value>): void => {
  const sign = firstSign(values, -1)
  if (sign?.sure !== true || sign.form === form) return
  throw new Unreadable(form, "", "calls in that form", `none: it looks like ${sign.form}`)
}

const readAs = (form: Form, values: ReadonlyArray<Value>, gap: number) => {
  switch (form) {
    case "events":
      return readEvents(values, gap)
    case "calls":
      return { conversations: readCalls(values), notes: [] }
    case "chat":
      return readHistory(chat, values)
    case "responses":
      return readHistory(responses, values)
    case "anthropic":
      return readHistory(anthropic, values)
    case "otel":
      return readSpans(values)
  }
}

const known =
  "events of turns, lists of calls, a history (Chat Completions, Responses, Anthropic) or OpenTelemetry spans"

/** The form of the first value that only one form has; a history of texts alone is read as any other. */
const formOf = (values: ReadonlyArray<Value>): Form => {
  let weak: Form | undefined
  for (const value of values) {
    const sign = signOf(value, 0)
    if (sign?.sure === true) return sign.form
    weak ??= sign?.form
  }
  if (weak !== undefined) return weak
  const [first] = values
  throw new Unreadable(undefined, first!.place, known, describe(first!.raw))
}

const describe = (raw: unknown): string => {
  if (Array.isArray(raw)) {
    return raw.length === 0
      ? "an empty list"
      : `a list of ${raw.length}, first ${describe(raw[0])}`
  }
  if (typeof raw !== "object" || raw === null) return raw === null ? "null" : `a ${typeof raw}`
  const keys = Object.keys(raw)
  return keys.length === 0
    ? "an empty object"
    : `an object with ${keys.slice(0, 6).join(", ")}${keys.length > 6 ? ", …" : ""}`
}

interface Sign {
  readonly form: Form
  readonly sure: boolean
}

const sure = (form: Form): Sign => ({ form, sure: true })

const signOf = (value: Value, depth: number): Sign | undefined => {
  if (depth > 4) return undefined
  if (value.isList) return firstSign(value.entries, depth)
  if (!value.isObject) return undefined
  const has = (member: string) => !value.get(member).absent
  const type = value.get("type").text
  const role = value.get("role").text
  if (has("_tag") && (has("turn") || has("agent"))) return sure("events")
  if (["resourceSpans", "scopeSpans"].some(has)) return sure("otel")
  if (
    ["traceId", "trace_id"].some((id) =>
      has(id) || ["context", "spanContext"].some((c) => !value.get(c).get(id).absent)
    )
  ) {
    return sure("otel")
  }
  if (has("choices") || (role !== undefined && has("tool_calls")) || (role !== undefined && has("tool_call_id"))) {
    return sure("chat")
  }
  if (
    value.get("object").text === "response" || /^(function_call|custom_tool_call|reasoning)(_output)?$/.test(type ?? "")
  ) {
    return sure("responses")
  }
  if (role !== undefined) {
    const types = value.get("content").entries.map((block) => block.get("type").text)
    if (types.some((type) => type === "tool_use" || type === "tool_result") || has("stop_reason")) {
      return sure("anthropic")
    }
    if (types.some((type) => type === "input_text" || type === "output_text")) return sure("responses")
    return { form: "chat", sure: false }
  }
  if (value.get("calls").isList) return sure("calls")
  for (const member of ["messages", "turns", "output", "input", "items", "response", "request", "spans"]) {
    const inner = value.get(member)
    const sign = inner.isList || inner.isObject ? signOf(inner, depth + 1) : undefined
    if (sign?.sure === true) return sign
    if (sign !== undefined && member !== "input" && member !== "output") return sign
    if (sign !== undefined) return { form: "responses", sure: false }
  }
  // The neutral form's list of calls alone.
  return value.get("name").text !== undefined && has("arguments") ? sure("calls") : undefined
}

const firstSign = (entries: ReadonlyArray<Value>, depth: number): Sign | undefined => {
  let weak: Sign | undefined
  for (const entry of entries) {
    const sign = signOf(entry, depth + 1)
    if (sign?.sure === true) return sign
    weak ??= sign
  }
  return weak
}
