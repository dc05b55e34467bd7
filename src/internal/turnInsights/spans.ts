/** OpenTelemetry's spans for generative AI: `execute_tool` spans, and what they stand below. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { answer, openCall } from "./conversation.ts"
import { fromText, push, type Value } from "./value.ts"

interface Span {
  readonly trace: string
  readonly id: string
  readonly parent: string | undefined
  readonly name: string
  readonly from: bigint
  readonly until: bigint
  readonly failed: boolean
  readonly attributes: ReadonlyMap<string, unknown>
}

export const readSpans = (
  values: ReadonlyArray<Value>
): { readonly conversations: ReadonlyArray<TurnInsights.Conversation>; readonly notes: ReadonlyArray<string> } => {
  const spans = values.flatMap(spansIn).map(spanOf)
  const byId = new Map(spans.map((span) => [`${span.trace}/${span.id}`, span]))
  const kinds = new Map(spans.map((span) => [span, kindOf(span)]))
  const groups = new Map<string, Array<Span>>()
  for (const span of spans) {
    const kind = kinds.get(span)
    if (kind !== "tool" && kind !== "model") continue
    const above = agentAbove(span, byId, kinds)
    const key = above === undefined ? span.trace : `${span.trace}/${above.id}`
    push(groups, key, span)
  }
  const notes: Array<string> = []
  let guessed = 0
  const conversations: Array<TurnInsights.Conversation> = []
  for (const group of groups.values()) {
    const sorted = group.sort((a, b) => a.from < b.from ? -1 : a.from > b.from ? 1 : 0)
    const tools = sorted.filter((span) => kinds.get(span) === "tool")
    if (tools.length === 0) continue
    const known = tools.every(({ attributes }) => attributes.has("effect_turn.turn"))
    const models = sorted.filter((span) => kinds.get(span) === "model")
    if (!known && models.length === 0) guessed++
    const steps = known ? byTurn(tools) : models.length > 0 ? byModel(tools, models) : byOverlap(tools)
    const id = tools.map(({ attributes }) => attributes.get("gen_ai.conversation.id")).find((id) =>
      typeof id === "string"
    )
    conversations.push({
      id: id as string | undefined,
      turns: [{ steps: steps.map((step) => ({ calls: step.map(callOf), context: undefined })), said: [], requests: [] }]
    })
  }
  if (conversations.length === 0) notes.push("no execute_tool span")
  if (guessed > 0) {
    notes.push(
      `${guessed} ${
        guessed === 1 ? "user turn" : "user turns"
      } without spans of the model: a step is what overlaps in time`
    )
  }
  return { conversations, notes }
}

/** The spans of an export, of one of its parts, or of a list. */
const spansIn = (value: Value): ReadonlyArray<Value> => {
  if (value.isList) return value.entries.flatMap(spansIn)
  value.object("an OTLP export with `resourceSpans`, or a span")
  for (const member of ["resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "spans"]) {
    const inner = value.get(member)
    if (!inner.absent) return inner.list(`the list \`${member}\``).flatMap(spansIn)
  }
  return [value]
}

const spanOf = (value: Value): Span => {
  const attributes = attributesOf(value.get("attributes"))
  const first = (...names: ReadonlyArray<string>) =>
    names.map((name) => value.get(name)).find(({ absent }) => !absent) ?? value.get(names[0]!)
  const context = ["spanContext", "context"].map((name) => value.get(name)).find(({ isObject }) => isObject) ?? value
  const idOf = (holder: Value, ...names: ReadonlyArray<string>) =>
    names.map((name) => holder.get(name).text).find((text) => text !== undefined)
  const span = idOf(context, "spanId", "span_id", "id") ?? idOf(value, "spanId", "span_id", "id")
  const parent = value.get("parentSpanContext").get("spanId").text ??
    idOf(value, "parentSpanId", "parent_span_id", "parentId", "parent_id")
  const trace = idOf(context, "traceId", "trace_id") ?? idOf(value, "traceId", "trace_id") ??
    value.get("traceId").string("the id of a trace")
  const from = timeOf(first("startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time", "timestamp"))
  return {
    trace,
    id: span ?? value.get("spanId").string("the id of a span"),
    parent: parent === "" ? undefined : parent,
    name: value.get("name").string("the name of a span"),
    from,
    until: timeOf(first("endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time", "timestamp")),
    failed: attributes.has("error.type") ||
      [2, "STATUS_CODE_ERROR", "ERROR", "Error"].some((code) =>
        value.get("status").get("code").raw === code || value.get("status").get("status_code").raw === code
      ),
    attributes
  }
}

/** Nanoseconds since 1970, out of what exporters write. */
const timeOf = (value: Value): bigint => {
  const { raw } = value
  const [seconds, nanos] = Array.isArray(raw) && raw.length === 2 ? raw : []
  if (Number.isSafeInteger(seconds) && Number.isSafeInteger(nanos)) {
    return BigInt(seconds) * 1_000_000_000n + BigInt(nanos)
  }
  if (typeof raw === "string" && /^\d{1,20}$/.test(raw)) return BigInt(raw)
  if (typeof raw === "number" && raw >= 0 && raw < 2 ** 63) return BigInt(Math.round(raw))
  const parsed = typeof raw === "string" ? Date.parse(raw) : NaN
  return Number.isNaN(parsed) ? value.fail("a time of a span") : BigInt(parsed) * 1_000_000n
}

const attributesOf = (value: Value): ReadonlyMap<string, unknown> => {
  if (value.absent) return new Map()
  if (!value.isList) return new Map(Object.entries(value.object("the attributes of a span").raw as object))
  return new Map(
    value.entries.map((entry) => [entry.get("key").string("the key of an attribute"), plain(entry.get("value").raw)])
  )
}

/** The value of an attribute as OTLP's JSON has it. */
const plain = (value: unknown): unknown => {
  if (typeof value !== "object" || value === null) return value
  const any = value as Record<string, any>
  for (const name of ["stringValue", "boolValue", "doubleValue"]) if (Object.hasOwn(any, name)) return any[name]
  if (Object.hasOwn(any, "intValue")) return Number(any["intValue"])
  const list = any["arrayValue"]?.values
  if (Array.isArray(list)) return list.map(plain)
  const members = any["kvlistValue"]?.values
  if (!Array.isArray(members)) return undefined
  return Object.fromEntries(members.map((member) => [String(member?.key), plain(member?.value)]))
}

const kindOf = ({ attributes, name }: Span): "tool" | "model" | "agent" | "other" => {
  const operation = attributes.get("gen_ai.operation.name") ?? name.split(" ")[0]
  if (operation === "execute_tool") return "tool"
  if (operation === "invoke_agent") return "agent"
  return ["chat", "generate_content", "text_completion"].includes(String(operation)) ? "model" : "other"
}

const agentAbove = (
  span: Span,
  byId: ReadonlyMap<string, Span>,
  kinds: ReadonlyMap<Span, string>
): Span | undefined => {
  const seen = new Set<Span>()
  let above: Span | undefined = span
  while (above !== undefined && !seen.has(above)) {
    seen.add(above)
    above = above.parent === undefined ? undefined : byId.get(`${above.trace}/${above.parent}`)
    if (above !== undefined && kinds.get(above) === "agent") return above
  }
  return undefined
}

/** Our own spans say of which turn they are, and which call. One that was tried again is one call: its last run counts. */
const byTurn = (tools: ReadonlyArray<Span>): ReadonlyArray<ReadonlyArray<Span>> => {
  const turns = new Map<string, Map<unknown, Span>>()
  for (const span of tools) {
    const id = String(span.attributes.get("effect_turn.turn"))
    const turn = turns.get(id) ?? new Map<unknown, Span>()
    turns.set(id, turn.set(span.attributes.get("effect_turn.position") ?? span, span))
  }
  return [...turns.values()].map((turn) => [...turn.values()])
}

const byModel = (tools: ReadonlyArray<Span>, models: ReadonlyArray<Span>): ReadonlyArray<ReadonlyArray<Span>> => {
  const steps = new Map<number, Array<Span>>()
  let before = 0
  for (const span of tools) {
    while (before < models.length && models[before]!.from <= span.from) before++
    push(steps, before, span)
  }
  return [...steps.values()]
}

const byOverlap = (tools: ReadonlyArray<Span>): ReadonlyArray<ReadonlyArray<Span>> => {
  const steps: Array<Array<Span>> = []
  let until: bigint | undefined
  for (const span of tools) {
    const last = steps.at(-1)
    if (last === undefined || until === undefined || span.from >= until) steps.push([span])
    else last.push(span)
    if (until === undefined || span.until > until) until = span.until
  }
  return steps
}

const callOf = ({ attributes, failed, name }: Span) => {
  const tool = attributes.get("gen_ai.tool.name")
  const id = attributes.get("gen_ai.tool.call.id")
  const args = attributes.get("gen_ai.tool.call.arguments")
  const call = openCall(
    typeof id === "string" ? id : "",
    typeof tool === "string" ? tool : name.replace(/^execute_tool /, ""),
    args === undefined ? undefined : fromText(args)
  )
  const result = attributes.get("gen_ai.tool.call.result")
  if (result !== undefined) answer(call, typeof result === "string" ? result : JSON.stringify(result), failed)
  else call.failed = failed
  return call
}
