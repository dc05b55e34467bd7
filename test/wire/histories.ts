/** Conversations in every provider's form, written by hand and not by the codecs, and what may happen to them on the way. */
import { Arbitrary, Schema } from "effect"
import type { Provider } from "./server/rules.ts"

const Step = Schema.Struct({
  /** What the model says and thinks beside its calls. */
  says: Schema.Boolean,
  thinks: Schema.Boolean,
  calls: Schema.Array(Schema.Struct({
    name: Schema.Literals(["look", "book"]),
    args: Schema.Literals(["{}", '{"n":1}']),
    answer: Schema.Literals(["text", "same", "failure"])
  }))
})

const Talk = Schema.Struct({
  /** Whether calls have ids, where they need none. */
  ids: Schema.Boolean,
  turns: Schema.Array(Schema.Array(Step))
})

type Talk = typeof Talk.Type

const small = <A>(one: Arbitrary.Arbitrary<A>, minLength: number, maxLength: number) =>
  Arbitrary.array(one, { minLength, maxLength })

export const talks: Arbitrary.Arbitrary<Talk> = Arbitrary.all({
  ids: Arbitrary.schema(Schema.Boolean),
  turns: small(
    small(
      Arbitrary.all({
        says: Arbitrary.schema(Schema.Boolean),
        thinks: Arbitrary.schema(Schema.Boolean),
        calls: small(Arbitrary.schema(Step.fields.calls.value), 1, 3)
      }),
      0,
      3
    ),
    1,
    3
  )
})

interface Writer {
  readonly user: (text: string) => object
  readonly model: (step: Said, ids: boolean) => ReadonlyArray<object>
  readonly answers: (calls: ReadonlyArray<SaidCall>, ids: boolean) => ReadonlyArray<object>
}

interface SaidCall {
  readonly id: string
  readonly name: string
  readonly args: string
  readonly answer: string
  readonly failed: boolean
}

interface Said {
  readonly n: number
  readonly text: string | undefined
  readonly thinks: boolean
  readonly calls: ReadonlyArray<SaidCall>
}

const writers: Record<Provider, Writer> = {
  chat: {
    user: (text) => ({ role: "user", content: text }),
    model: ({ calls, text }) => [{
      role: "assistant",
      content: text ?? null,
      ...(calls.length === 0 ? undefined : {
        tool_calls: calls.map(({ args, id, name }) => ({ id, type: "function", function: { name, arguments: args } }))
      })
    }],
    answers: (calls) => calls.map(({ answer, id }) => ({ role: "tool", tool_call_id: id, content: answer }))
  },
  responses: {
    user: (text) => ({ type: "message", role: "user", content: [{ type: "input_text", text }] }),
    model: ({ calls, n, text, thinks }) => [
      ...(thinks ? [{ type: "reasoning", id: `rs_${n}`, summary: [], encrypted_content: "x" }] : []),
      ...(text === undefined ? [] : [{
        type: "message",
        id: `msg_${n}`,
        role: "assistant",
        content: [{ type: "output_text", text, annotations: [] }]
      }]),
      ...calls.map(({ args, id, name }) => ({
        type: "function_call",
        id: `fc_${id}`,
        call_id: id,
        name,
        arguments: args
      }))
    ],
    answers: (calls) => calls.map(({ answer, id }) => ({ type: "function_call_output", call_id: id, output: answer }))
  },
  anthropic: {
    user: (text) => ({ role: "user", content: text }),
    model: ({ calls, n, text, thinks }) => [{
      role: "assistant",
      content: [
        ...(thinks ? [{ type: "thinking", thinking: "", signature: `s${n}` }] : []),
        ...(text === undefined ? [] : [{ type: "text", text }]),
        ...calls.map(({ args, id, name }) => ({ type: "tool_use", id, name, input: JSON.parse(args) }))
      ]
    }],
    answers: (calls) => [{
      role: "user",
      content: calls.map(({ answer, failed, id }) => ({
        type: "tool_result",
        tool_use_id: id,
        content: answer,
        ...(failed ? { is_error: true } : undefined)
      }))
    }]
  },
  gemini: {
    user: (text) => ({ role: "user", parts: [{ text }] }),
    model: ({ calls, text, thinks }, ids) => [{
      role: "model",
      parts: [
        ...(thinks ? [{ text: "hm", thought: true }] : []),
        ...(text === undefined ? [] : [{ text }]),
        ...calls.map(({ args, id, name }) => ({
          functionCall: { ...(ids ? { id } : undefined), name, args: JSON.parse(args) },
          ...(thinks ? { thoughtSignature: "AAAA" } : undefined)
        }))
      ]
    }],
    answers: (calls, ids) => [{
      role: "user",
      parts: calls.map(({ answer, failed, id, name }) => ({
        functionResponse: {
          ...(ids ? { id } : undefined),
          name,
          response: failed ? { error: answer } : { output: answer }
        }
      }))
    }]
  }
}

const fields: Record<Provider, string> = {
  chat: "messages",
  responses: "input",
  anthropic: "messages",
  gemini: "contents"
}

/** The list of a request's body. */
export const listOf = (provider: Provider, body: any): Array<any> => body[fields[provider]]

/** A sound history. Each text and each answer has a number of its own, but for the answers that are the same. */
export const written = (provider: Provider, { ids, turns }: Talk): any => {
  const writer = writers[provider]
  let n = 0
  const list: Array<object> = []
  for (const steps of turns) {
    list.push(writer.user(`text-${++n}.`))
    for (const step of steps) {
      const calls = step.calls.map(({ answer, args, name }): SaidCall => ({
        id: `c${++n}`,
        name,
        args,
        answer: answer === "same" ? "same." : `answer-${n}.`,
        failed: answer === "failure"
      }))
      list.push(
        ...writer.model({ n: ++n, text: step.says ? `text-${n}.` : undefined, thinks: step.thinks, calls }, ids)
      )
      list.push(...writer.answers(calls, ids))
    }
    list.push(...writer.model({ n: ++n, text: `text-${n}.`, thinks: false, calls: [] }, ids))
  }
  list.push(writer.user(`text-${++n}.`))
  const extra = provider === "anthropic" ? { max_tokens: 9 } : {}
  return {
    ...(provider === "gemini" ? { labels: { a: "b" } } : { model: "m" }),
    ...extra,
    [fields[provider]]: list
  }
}

const Edit = Schema.Struct({
  what: Schema.Literals([
    "drop",
    "repeat",
    "move",
    "insert",
    "cut head",
    "cut tail",
    "drop part",
    "repeat part",
    "move part",
    "empty",
    "same id",
    "no id",
    "odd id",
    "other answer",
    "broken arguments",
    "half a character"
  ]),
  at: Schema.Int,
  to: Schema.Int
})

type Edit = typeof Edit.Type

const whole = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 40 })))

export const edits: Arbitrary.Arbitrary<ReadonlyArray<Edit>> = small(
  Arbitrary.all({
    what: Arbitrary.schema(Edit.fields.what),
    at: whole,
    to: whole
  }),
  1,
  4
)

const partsOf = (entry: any): Array<any> | undefined =>
  [entry?.parts, entry?.content, entry?.tool_calls].find((list) =>
    Array.isArray(list) && list.some((part: any) => part.type !== "output_text" && part.type !== "input_text")
  )

/** Objects that carry the id of a call or a result, with the field that it is in. */
const idsOf = (value: any): Array<readonly [object: any, field: string]> => {
  if (Array.isArray(value)) return value.flatMap(idsOf)
  if (typeof value !== "object" || value === null) return []
  const field = ["call_id", "tool_call_id", "tool_use_id"].find((field) => field in value) ??
    (typeof value.id === "string" && /^c\d/.test(value.id) ? "id" : undefined)
  return [...(field === undefined ? [] : [[value, field] as const]), ...Object.values(value).flatMap(idsOf)]
}

const clone = <A>(value: A): A => JSON.parse(JSON.stringify(value))

/** What becomes of a history that is trimmed, merged, saved twice, or written by a program that has it wrong. */
export const damaged = (provider: Provider, sound: any, edits: ReadonlyArray<Edit>): any => {
  const body = clone(sound)
  const list = listOf(provider, body)
  let n = 1000
  for (const { at, to, what } of edits) {
    if (list.length === 0) break
    const index = at % list.length
    const entry = list[index]
    const parts = partsOf(entry)
    switch (what) {
      case "drop":
        list.splice(index, 1)
        break
      case "repeat":
        list.splice(to % (list.length + 1), 0, clone(entry))
        break
      case "move":
        list.splice(to % list.length, 0, list.splice(index, 1)[0])
        break
      case "insert":
        list.splice(index, 0, writers[provider].user(`text-${++n}.`))
        break
      case "cut head":
        list.splice(0, index)
        break
      case "cut tail":
        list.splice(index + 1)
        break
      case "drop part":
        if (parts !== undefined && parts.length > 1) parts.splice(to % parts.length, 1)
        break
      case "repeat part":
        if (parts !== undefined && parts.length > 0) parts.push(clone(parts[to % parts.length]))
        break
      case "move part":
        if (parts !== undefined && parts.length > 0) parts.unshift(...parts.splice(to % parts.length, 1))
        break
      case "empty":
        list.splice(index, 0, ...writers[provider].model({ n: ++n, text: "", thinks: false, calls: [] }, false))
        break
      case "half a character":
        list.splice(index, 0, writers[provider].user(`text-${++n}.\ud83d`))
        break
      case "same id":
      case "no id":
      case "odd id": {
        const ids = idsOf(list)
        if (ids.length === 0) break
        const [object, field] = ids[at % ids.length]!
        const [other, otherField] = ids[to % ids.length]!
        if (what === "no id" && provider === "gemini") delete object[field]
        else object[field] = what === "same id" ? other[otherField] : what === "no id" ? "" : "a.b".padEnd(70, "x")
        break
      }
      case "other answer": {
        const repeated = clone(entry)
        const changed = JSON.stringify(repeated).replaceAll(/answer-\d+/g, () => `answer-${++n}`)
        list.splice(to % (list.length + 1), 0, JSON.parse(changed))
        break
      }
      case "broken arguments":
        for (const call of idsOf(entry).map(([object]) => object)) {
          if (typeof call.arguments === "string") call.arguments = "{"
          if (typeof call.function?.arguments === "string") call.function.arguments = "[1]"
          if (call.type === "tool_use") call.input = "{}"
        }
        break
    }
  }
  return body
}

/** Texts and answers, by their numbers. */
export const numbersIn = (value: unknown, what: "text" | "answer"): Set<string> =>
  new Set(JSON.stringify(value).match(new RegExp(`${what}-\\d+\\.`, "g")) ?? [])

/**
 * Answers of which the history has the call: those under an id that some call has. Where other messages may have the same ids, those at
 * the beginning are of calls that were cut off.
 */
export const answersWithCall = (provider: Provider, body: any): Set<string> => {
  const list = listOf(provider, body)
  const begins = provider === "chat" || provider === "gemini"
    ? list.findIndex((entry) => /"(tool_calls|functionCall)"/.test(JSON.stringify(entry)))
    : 0
  const objects = idsOf(begins < 0 ? [] : list.slice(begins))
  const isResult = (object: any, field: string): boolean =>
    field === "tool_call_id" || field === "tool_use_id" || object.type === "function_call_output" ||
    "response" in object
  const calls = new Set(objects.flatMap(([object, field]) => isResult(object, field) ? [] : [object[field]]))
  const results = objects.filter(([object, field]) => isResult(object, field) && calls.has(object[field]))
  return numbersIn(results.filter(([object, field]) => object[field] !== "").map(([object]) => object), "answer")
}
