import { assert, describe, it } from "@effect/vitest"
import { pipe, Result, Schema, Tracer } from "effect"
import {
  Agent,
  Coalescer,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnEvent,
  TurnInsights,
  TurnTelemetry
} from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { script, scriptHash } from "../src/internal/turnInsights/pageCode.ts"
import { int, pick, runs } from "./utils/gen.ts"
import { describeShared } from "./utils/requires.ts"

const read = (value: unknown, options?: Partial<TurnInsights.ReadOptions>) =>
  Result.getOrThrow(
    TurnInsights.read(typeof value === "string" ? value : JSON.stringify(value), { source: "file", ...options })
  )

const analyse = (value: unknown, options?: TurnInsights.Options & Partial<TurnInsights.ReadOptions>) =>
  TurnInsights.analyse([read(value, options)], options)

const lines = (values: ReadonlyArray<unknown>) => values.map((value) => JSON.stringify(value)).join("\n")

/** A call as tests write it, with what it was answered. */
interface Said {
  readonly tool: string
  readonly args: unknown
  readonly result: string
}

type Steps = ReadonlyArray<ReadonlyArray<Said>>

const one = (tool: string, args: unknown, result = "fine"): Said => ({ tool, args, result })

const user = (content = "please") => ({ role: "user", content })

/** The same steps in each form that holds them. */
const forms = {
  chat: (steps: Steps) => [
    user(),
    ...steps.flatMap((calls, i) => [
      {
        role: "assistant",
        tool_calls: calls.map(({ args, tool }, k) => ({
          id: `${i}-${k}`,
          function: { name: tool, arguments: JSON.stringify(args) }
        }))
      },
      ...calls.map(({ result }, k) => ({ role: "tool", tool_call_id: `${i}-${k}`, content: result }))
    ])
  ],
  responses: (steps: Steps) => [
    user(),
    ...steps.flatMap((calls, i) => [
      ...calls.map(({ args, tool }, k) => ({
        type: "function_call",
        call_id: `${i}-${k}`,
        name: tool,
        arguments: JSON.stringify(args)
      })),
      ...calls.map(({ result }, k) => ({ type: "function_call_output", call_id: `${i}-${k}`, output: result }))
    ])
  ],
  anthropic: (steps: Steps) => [
    user(),
    ...steps.flatMap((calls, i) => [
      {
        role: "assistant",
        content: calls.map(({ args, tool }, k) => ({ type: "tool_use", id: `${i}-${k}`, name: tool, input: args }))
      },
      {
        role: "user",
        content: calls.map(({ result }, k) => ({ type: "tool_result", tool_use_id: `${i}-${k}`, content: result }))
      }
    ])
  ],
  otel: (steps: Steps) => ({
    resourceSpans: [{
      scopeSpans: [{
        spans: steps.flatMap((calls, i) => [
          span("chat m", `m${i}`, i * 100, i * 100 + 10, { "gen_ai.operation.name": "chat" }),
          ...calls.map(({ args, result, tool }, k) =>
            span(`execute_tool ${tool}`, `t${i}-${k}`, i * 100 + 20 + k, i * 100 + 60, {
              "gen_ai.operation.name": "execute_tool",
              "gen_ai.tool.name": tool,
              "gen_ai.tool.call.id": `${i}-${k}`,
              "gen_ai.tool.call.arguments": JSON.stringify(args),
              "gen_ai.tool.call.result": result
            })
          )
        ])
      }]
    }]
  }),
  events: (steps: Steps) =>
    steps.flatMap((calls, i): ReadonlyArray<TurnEvent.TurnEvent> => [
      { _tag: "TurnStarted", at: i * 100, turn: `t${i}`, calls: calls.length },
      ...calls.map(({ args, result, tool }, k): TurnEvent.TurnEvent => {
        const id = `${i}-${k}`
        const first = calls.findIndex((other) =>
          other.tool === tool && JSON.stringify(other.args) === JSON.stringify(args)
        )
        return {
          _tag: "CallEnded",
          at: i * 100 + 50,
          turn: `t${i}`,
          position: k,
          id,
          tool,
          outcome: {
            position: k,
            id,
            name: tool,
            status: "ok",
            started: true,
            effect: "none",
            retryable: false,
            message: "",
            result,
            encoded: result,
            ...(first < k ? { duplicateOf: { position: first, id: `${i}-${first}` } } : undefined)
          }
        }
      }),
      { _tag: "TurnEnded", at: i * 100 + 60, turn: `t${i}`, unsettled: 0 }
    ])
} as const

const span = (name: string, spanId: string, from: number, until: number, attributes: Record<string, string>) => ({
  traceId: "trace",
  spanId,
  name,
  startTimeUnixNano: String(from * 1_000_000),
  endTimeUnixNano: String(until * 1_000_000),
  attributes: Object.entries(attributes).map(([key, stringValue]) => ({ key, value: { stringValue } }))
})

const orders = (...ids: ReadonlyArray<string>): Steps => ids.map((id) => [one("get_order", { id }, "on its way")])

describe("what would have been saved", () => {
  it("round trips, requests and tokens of calls that came one by one", () => {
    const messages = forms.chat(orders("w1", "w2", "w3", "w4", "w5"))
    const { candidates: [candidate], totals } = analyse(messages)
    const { calls, distinct, largest, saved, steps, tool } = candidate!
    assert.deepStrictEqual([tool, calls, steps, distinct, largest], ["get_order", 5, 5, 5, 5])
    assert.deepStrictEqual([saved.roundTrips, saved.requests], [4, 4])
    // Four envelopes, and what was sent before the second to the fifth answer of the model.
    const envelope =
      JSON.stringify({ id: "0-0", type: "function", function: { name: "get_order", arguments: "" } }).length +
      JSON.stringify({ role: "tool", tool_call_id: "0-0", content: "" }).length
    const sent = [3, 5, 7, 9].map((n) => messages.slice(0, n).reduce((sum, one) => sum + JSON.stringify(one).length, 0))
    assert.strictEqual(saved.envelopeTokens, Math.round(4 * envelope / 4))
    assert.strictEqual(saved.historyTokens, Math.round(sent.reduce((a, b) => a + b) / 4))
    assert.deepInclude(totals.saved, { roundTrips: 4, requests: 4, historyUnknown: 0 })
  })

  it("requests are cut into those of a size", () => {
    const twelve: Steps = [Array.from({ length: 12 }, (_, i) => one("get_order", { i }))]
    assert.deepInclude(analyse(forms.chat(twelve)).candidates[0]!.saved, { roundTrips: 0, requests: 10 })
    assert.strictEqual(analyse(forms.chat(twelve), { size: 25 }).candidates[0]!.saved.requests, 11)
    assert.strictEqual(analyse(forms.chat(twelve), { size: 1 }).candidates[0]!.saved.requests, 0)
  })

  it("tools are listed from the call after the threshold on", () => {
    const steps = orders("w1", "w2", "w3")
    assert.deepStrictEqual(analyse(forms.chat(steps)).candidates, [])
    assert.lengthOf(analyse(forms.chat(steps), { threshold: 2 }).candidates, 1)
  })

  const apart = (steps: Steps, form: keyof typeof forms = "chat"): Record<string, number> => {
    const { apart, saved } = analyse(forms[form](steps), { threshold: 1 }).candidates[0]!
    return { saved: saved.roundTrips, ...Object.fromEntries(Object.entries(apart).filter(([, n]) => n > 0)) }
  }

  it("a chain is no list: an argument that came up in an answer", () => {
    const page = (cursor: string, next: string) => [one("list", { cursor }, JSON.stringify({ next }))]
    assert.deepStrictEqual(apart([page("start", "aa"), page("aa", "bb"), page("bb", "cc")]), { saved: 0, dependent: 2 })
    // As a part of a longer text, and through a tool between.
    assert.deepStrictEqual(
      apart([[one("run", { command: "ls" }, "notes.txt")], [one("run", { command: "cat ./notes.txt" })]]),
      { saved: 0, dependent: 1 }
    )
    // What the user had named before is nothing new in an answer.
    const named = [
      user("orders w1 and w2"),
      ...forms.chat([
        [one("get_order", { id: "w1" }, "see also w2")],
        [one("get_order", { id: "w2" })]
      ]).slice(1)
    ]
    assert.strictEqual(analyse(named, { threshold: 1 }).candidates[0]!.saved.roundTrips, 1)
  })

  it("numbers are words too, and small letters are large ones", () => {
    assert.deepStrictEqual(apart([[one("a", { x: 0 }, '{"y":17.5}')], [one("a", { x: 17.5 })]]), {
      saved: 0,
      dependent: 1
    })
    assert.deepStrictEqual(apart([[one("a", { x: "p" }, "PARIS")], [one("a", { x: ["Paris"] })]]), {
      saved: 0,
      dependent: 1
    })
  })

  it("the same call again, other tools between, and a failure before are no list", () => {
    assert.deepStrictEqual(apart(orders("w1", "w1")), { saved: 0, repeated: 1 })
    assert.deepStrictEqual(
      apart([...orders("w1"), [one("ship", { id: "w9" })], ...orders("w2")]),
      { saved: 0, others: 1 }
    )
    assert.deepStrictEqual(
      apart([...orders("w1"), [one("get_order", { id: "w2" }), one("ship", { id: "w9" })], ...orders("w3")]),
      { saved: 1, others: 1 }
    )
    const failing: ReadonlyArray<any> = forms.anthropic(orders("w1", "w2"))
    failing[2].content[0].is_error = true
    assert.deepInclude(analyse(failing, { threshold: 1 }).candidates[0]!.apart, { failed: 1 })
  })

  it("N1: what is not in the recording is not claimed", () => {
    assert.deepStrictEqual(apart(orders("w1", "w2"), "events"), { saved: 0, unknown: 1 })
    const open = forms.chat(orders("w1", "w2")).filter(({ role }) => role !== "tool")
    assert.deepInclude(analyse(open, { threshold: 1 }).candidates[0]!.apart, { unknown: 1 })
    const spans = analyse(forms.otel(orders("w1", "w2")), { threshold: 1 })
    assert.deepInclude(spans.candidates[0]!.saved, { roundTrips: 1, historyTokens: null })
    assert.strictEqual(spans.totals.saved.historyUnknown, 1)
  })

  it("duplicates of a step run once; the same in a later step is told apart", () => {
    const { candidates: [candidate], totals } = analyse(
      forms.chat([[one("get", { b: 1, a: 2 }), one("get", { a: 2, b: 1 }), one("get", { a: 3 })], [
        one("get", { a: 3 })
      ]])
    )
    const { distinct, duplicates, repeats, saved } = candidate!
    assert.deepStrictEqual([distinct, duplicates, repeats, saved.requests, totals.duplicates], [2, 1, 1, 1, 1])
  })

  it("options that cannot be are refused", () => {
    for (
      const [name, value] of [["threshold", 0], ["size", 1.5], ["charsPerToken", 0], ["charsPerToken", NaN]] as const
    ) {
      assert.throws(() => TurnInsights.analyse([], { [name]: value }), new RegExp(`"${name}" must be`))
    }
    assert.throws(() => TurnInsights.read("[]", { source: "a", gap: -1 }), /"gap" must be/)
  })
})

describe("user turns", () => {
  const perTurn = (value: unknown, options?: Partial<TurnInsights.ReadOptions>) =>
    read(value, options).conversations.flatMap(({ turns }) =>
      turns.map(({ steps }) => steps.map(({ calls }) => calls.length))
    )

  const step = orders("w1")

  it("begin with a message of the user; answers to calls go on with it", () => {
    const [chat, anthropic, responses] = [forms.chat(step), forms.anthropic(step), forms.responses(step)]
    for (const messages of [[...chat, ...chat], [...anthropic, ...anthropic], [...responses, ...responses]]) {
      assert.deepStrictEqual(perTurn(messages), [[1], [1]])
    }
    const reminded: ReadonlyArray<any> = forms.anthropic(orders("w1", "w2"))
    reminded[2].content.push({ type: "text", text: "mind the time" })
    assert.deepStrictEqual(perTurn(reminded), [[1, 1]])
  })

  it("logs of requests hold a conversation once", () => {
    const messages = forms.chat(orders("w1", "w2", "w3"))
    const log = [1, 3, 5].map((n) => ({
      request: { messages: messages.slice(0, n) },
      response: { choices: [{ message: messages[n] }] }
    }))
    assert.deepStrictEqual(perTurn(lines(log)), [[1, 1, 1]])
    assert.include(read(lines(log)).notes[0], "2 conversations left out")
    assert.deepStrictEqual(perTurn([messages, messages]), [[1, 1, 1]])
  })

  it("responses that name the one before are one conversation, and others stand alone", () => {
    const response = (id: string, previous?: string) => ({
      id,
      object: "response",
      ...(previous === undefined ? undefined : { previous_response_id: previous }),
      output: [{ type: "function_call", call_id: id, name: "a", arguments: "{}" }]
    })
    assert.deepStrictEqual(perTurn(lines([response("r1"), response("r2", "r1"), response("r3")])), [[1, 1], [1]])
    assert.include(read(response("r1")).notes[0], "1 response without the conversation")
  })

  const at = (turn: string, at: number, more?: object) => [
    { _tag: "TurnStarted", turn, at, calls: 1, ...more },
    { _tag: "CallHeld", turn, at: at + 5, position: 0, id: "", tool: "a" },
    { _tag: "TurnEnded", turn, at: at + 10, unsettled: 0 }
  ]

  it("of events are turns of a conversation within the gap", () => {
    const north = { tenant: "north", conversation: "c" }
    const events = [
      ...at("1", 0, north),
      ...at("2", 20, north),
      ...at("3", 20_000, north),
      ...at("4", 5, { tenant: "south", conversation: "c" })
    ]
    assert.deepStrictEqual(perTurn(events, { gap: 1000 }), [[1, 1], [1], [1]])
    assert.deepStrictEqual(perTurn(lines(events)), [[1, 1, 1], [1]])
  })

  it("of events without a conversation are those of the file, unless turns overlap", () => {
    assert.deepStrictEqual(perTurn([...at("1", 0), ...at("2", 20)]), [[1, 1]])
    const overlapping = [...at("1", 0), ...at("2", 20), ...at("3", 25)]
    assert.deepStrictEqual(perTurn(overlapping), [[1], [1], [1]])
    assert.include(read(overlapping).notes[0], "turns overlap")
  })

  it("of spans are those of an agent, or of a trace", () => {
    const tool = (spanId: string, parentSpanId: string, from: number) => ({
      ...span("execute_tool a", spanId, from, from + 10, {}),
      parentSpanId
    })
    const agent = (spanId: string) =>
      span("invoke_agent b", spanId, 0, 100, { "gen_ai.operation.name": "invoke_agent" })
    assert.deepStrictEqual(
      perTurn([agent("x"), agent("y"), tool("1", "x", 0), tool("2", "x", 5), tool("3", "y", 0), tool("4", "y", 10)]),
      [[2], [1, 1]]
    )
  })
})

describe("forms", () => {
  it("are found out, and read the same", () => {
    const steps: Steps = [[one("a", { x: 1 }), one("b", {})], [one("a", { x: 2 })]]
    for (const [form, write] of Object.entries(forms)) {
      const recording = read(write(steps))
      assert.strictEqual(recording.form, form)
      const report = TurnInsights.analyse([recording])
      assert.deepStrictEqual(
        report.tools.map(({ calls, steps, tool, userTurns }) => [tool, calls, steps, userTurns]).sort(),
        [["a", 2, 2, 1], ["b", 1, 1, 1]],
        form
      )
    }
  })

  it("hosts' own ways of Chat Completions are understood", () => {
    const recording = read([
      { role: "system", content: "be kind" },
      { role: "user", content: [{ type: "text", text: "hi" }] },
      { role: "assistant", content: null, function_call: { name: "old", arguments: '{"a":1}' } },
      { role: "function", name: "old", content: "done" },
      {
        role: "assistant",
        tool_calls: [{ function: { name: "bare" } }, { custom: { name: "sql", input: "select 1" } }]
      }
    ])
    const calls = recording.conversations[0]!.turns[0]!.steps.flatMap(({ calls }) => calls)
    assert.deepStrictEqual(calls.map(({ arguments: args, result, tool }) => [tool, args, result]), [
      ["old", { a: 1 }, "done"],
      ["bare", {}, undefined],
      ["sql", "select 1", undefined]
    ])
  })

  it("lists of calls, scenario files and what `run --json` prints", () => {
    const calls = [{ id: "1", name: "a", arguments: { x: 1 } }, { id: "2", name: "a", arguments: "{}" }]
    for (
      const value of [
        { calls },
        calls,
        { tools: [], turns: [{ calls }] },
        { dialect: "neutral", messages: [{ calls }, { outcomes: [{ result: "x" }, { result: 2 }] }] }
      ]
    ) {
      assert.strictEqual(read(value).form, "calls")
      assert.deepInclude(analyse(value).totals, { calls: 2, steps: 1, userTurns: 1 })
    }
  })

  it("say in which place what is wrong", () => {
    const wrong = (text: string, options?: Partial<TurnInsights.ReadOptions>) => {
      const { reason } = Result.getOrThrow(Result.flip(TurnInsights.read(text, { source: "file", ...options }))) as any
      return [reason._tag, reason.dialect, reason.path, reason.expected, reason.received]
    }
    const tag = "InvalidMessage"
    assert.deepStrictEqual(wrong(" "), [tag, "unknown", "", "JSON, or JSON lines", "nothing"])
    assert.deepStrictEqual(wrong("[1, 2]").slice(0, 3), [tag, "unknown", ""])
    assert.deepStrictEqual(wrong('{"a":1}').at(-1), "an object with a")
    assert.deepStrictEqual(wrong("data: {}\n").at(-1), "a stream's events")
    const at = (text: string) => wrong(text).slice(2)
    assert.deepStrictEqual(at('{"role":"user"}\n{oops')[0], "line 2, column 2")
    assert.deepStrictEqual(at('{\n  "a" 1\n}'), [
      "line 2, column 7",
      "JSON, or JSON lines: ':' after property name",
      '"1\\n}"'
    ])
    // The message of the engine ends with what was expected; what came is the text there.
    assert.deepStrictEqual(at('{"role":"user"}\n{"a" 1}\n{}'), [
      "line 2, column 6",
      "a line of JSON: ':' after property name",
      '"1}"'
    ])
    assert.deepStrictEqual(at('{"a":1'), [
      "line 1, column 7",
      "JSON, or JSON lines: ',' or '}' after property value",
      "its end"
    ])
    assert.match(at("hello")[2]!, /^what is none: unexpected token/)
    assert.deepStrictEqual(
      wrong(lines([user(), { role: "assistant", tool_calls: [{ function: {} }] }])),
      [tag, "chat", "line 2, /tool_calls/0/function/name", "the name of a tool", "nothing"]
    )
    assert.deepStrictEqual(
      wrong(JSON.stringify([{ _tag: "CallHeld", turn: "t", at: "now" }])),
      [tag, "events", "/0/at", "a time in milliseconds", '"now"']
    )
    assert.deepStrictEqual(
      wrong('[{"a/b":1}]', { form: "otel" }),
      [tag, "otel", "/0/traceId", "the id of a trace", "nothing"]
    )
    assert.deepStrictEqual(wrong("[".repeat(5000)).at(-1), "a deeper one")
    assert.strictEqual(wrong('[{"role":"user"}]', { form: "events" })[2], "/0/_tag")
  })

  it("nothing of the form that was asked for is an error where it is another one", () => {
    const steps: Steps = [[one("a", { x: 1 })]]
    for (const [form, write] of Object.entries(forms)) {
      for (const other of TurnInsights.Form.literals) {
        const result = TurnInsights.read(JSON.stringify(write(steps)), { source: "file", form: other })
        assert.strictEqual(Result.isSuccess(result), other === form, `${form} as ${other}`)
      }
    }
    const { reason } = Result.getOrThrow(
      Result.flip(TurnInsights.read(JSON.stringify(forms.chat(steps)), { source: "file", form: "anthropic" }))
    )
    assert.deepInclude(reason, {
      dialect: "anthropic",
      expected: "calls in that form",
      received: "none: it looks like chat"
    })
    // A talk without calls is one in every form that has messages.
    assert.lengthOf(read([user()], { form: "anthropic" }).conversations, 0)
  })

  it("of a log that is being written the last line may be cut anywhere", () => {
    const last = '{"role":"us\\u0065r","content":[{"x":"a\\\\\\"b"},true,null,-1.5e3,{"y":false},[]]}'
    for (let end = 1; end < last.length; end++) {
      const { conversations, notes } = read(`${lines(forms.chat(orders("w1")))}\n${last.slice(0, end)}`)
      assert.deepStrictEqual(notes, ["line 4, the last one, is cut: read up to there"], last.slice(0, end))
      assert.lengthOf(conversations, 1)
    }
    assert.deepStrictEqual(read(`${lines(forms.chat(orders("w1")))}\n${last}\n\n`).notes, [])
    // What no JSON begins with was not cut, and neither was a line before the last.
    for (const text of ['{"a":1}}', "{oops", '{"a" 1', "plain", '{"a":1\n{"role":"user"}']) {
      assert.isTrue(Result.isFailure(TurnInsights.read(`{"role":"user"}\n${text}`, { source: "file" })), text)
    }
  })

  const member = [
    "role",
    "tool_calls",
    "content",
    "_tag",
    "turn",
    "at",
    "calls",
    "messages",
    "output",
    "traceId",
    "type",
    "id"
  ] as const
  const json = Arbitrary.schema(Schema.Json)
  const near = Arbitrary.map(
    Arbitrary.array(Arbitrary.array(Arbitrary.all([pick(...member), json]), { maxLength: 5 }), { maxLength: 4 }),
    (objects) => JSON.stringify(objects.map((members) => Object.fromEntries(members)))
  )

  it.effect.prop(
    "whatever the text is, it is read or refused in words",
    {
      value: json,
      near,
      text: Arbitrary.schema(Schema.String),
      form: pick(undefined, ...TurnInsights.Form.literals)
    },
    ({ form, near, text, value }) =>
      Effect.sync(() => {
        for (const one of [JSON.stringify(value), near, text, `${near}\n${text}`]) {
          const result = TurnInsights.read(one, { source: "file", form })
          if (Result.isFailure(result)) assert.strictEqual(result.failure.reason._tag, "InvalidMessage")
          else TurnInsights.html(TurnInsights.analyse([result.success]))
        }
      }),
    runs(400)
  )
})

const said: Arbitrary.Arbitrary<Said> = Arbitrary.all({
  tool: pick("a", "b", "c"),
  args: Arbitrary.map(int(0, 5), (x) => ({ x })),
  result: pick("", "x1", "2", '{"y":3}')
})
const steps: Arbitrary.Arbitrary<Steps> = Arbitrary.array(Arbitrary.array(said, { minLength: 1, maxLength: 6 }), {
  minLength: 1,
  maxLength: 6
})

const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((a, b) => a + b, 0)

describe("properties", () => {
  it.prop(
    "N2: counts add up",
    { files: Arbitrary.array(steps, { maxLength: 5 }), size: int(1, 4) },
    ({ files, size }) => {
      const kinds = Object.values(forms)
      const report = TurnInsights.analyse(files.map((steps, i) => read(kinds[i % kinds.length]!(steps))), {
        threshold: 1,
        size
      })
      const { callsPerStep, callsPerUserTurn, candidates, sources, stepsPerUserTurn, tools, totals } = report
      const all = files.flat(2).length
      assert.strictEqual(totals.calls, all)
      for (const { count, total, values } of [callsPerStep, callsPerUserTurn]) {
        assert.strictEqual(total, all)
        assert.strictEqual(sum(values.map(({ count, value }) => count * value)), all)
        assert.strictEqual(sum(values.map(({ count }) => count)), count)
      }
      assert.strictEqual(sum(tools.map(({ calls }) => calls)), all)
      assert.strictEqual(sum(sources.map(({ calls }) => calls)), all)
      assert.strictEqual(stepsPerUserTurn.total, totals.steps)
      for (const name of ["roundTrips", "requests", "envelopeTokens"] as const) {
        assert.strictEqual(totals.saved[name], sum(candidates.map(({ saved }) => saved[name])))
        assert.strictEqual(totals.saved[name], sum(tools.map(({ saved }) => saved[name])))
      }
      for (const { apart, calls, distinct, duplicates, largest, repeats, saved, steps } of candidates) {
        assert.strictEqual(saved.roundTrips + sum(Object.values(apart)), steps - 1)
        assert.isAtMost(saved.requests, calls - 1)
        assert.isAtMost(largest, calls - duplicates)
        if (distinct !== null) assert.strictEqual(distinct + duplicates + repeats, calls)
      }
      // It is what its schema says, and JSON.
      assert.deepStrictEqual(Schema.decodeUnknownSync(TurnInsights.Report)(JSON.parse(JSON.stringify(report))), report)
    },
    runs(200)
  )

  it.prop(
    "N3: the order of the files does not matter",
    {
      files: Arbitrary.array(steps, { minLength: 2, maxLength: 5 }),
      keys: Arbitrary.array(int(0, 99), { minLength: 5, maxLength: 5 })
    },
    ({ files, keys }) => {
      const recordings = files.map((steps, i) => read(forms.chat(steps), { source: `file ${i % 3}` }))
      const shuffled = recordings.map((one, i) => [one, keys[i]!] as const).sort(([, a], [, b]) => a - b).map(([one]) =>
        one
      )
      assert.deepStrictEqual(TurnInsights.analyse(shuffled), TurnInsights.analyse(recordings))
    },
    runs(100)
  )

  it.prop("every form of the same steps gives the same counts", { steps }, ({ steps }) => {
    const counts = Object.entries(forms).map(([form, write]) => {
      const { callsPerStep, callsPerUserTurn, candidates, tools, totals } = analyse(write(steps), { threshold: 1 })
      return [form, {
        tools: tools.map(({ saved: _, ...rest }) => rest).sort((a, b) => a.tool < b.tool ? -1 : 1),
        callsPerStep,
        callsPerUserTurn,
        duplicates: totals.duplicates,
        candidates: candidates.map(({ calls, duplicates, steps, tool }) => [tool, calls, steps, duplicates]).sort()
      }] as const
    })
    for (const [form, of] of counts) assert.deepStrictEqual(of, counts[0]![1], form)
  }, runs(200))

  it.prop("histories of the same steps save the same", { steps }, ({ steps }) => {
    const saved = ([forms.chat, forms.anthropic, forms.responses, forms.otel] as const).map((write) =>
      analyse(write(steps), { threshold: 1 }).candidates.map(({ apart, largest, saved, tool }) => [
        tool,
        saved.roundTrips,
        saved.requests,
        saved.envelopeTokens,
        largest,
        apart
      ])
    )
    for (const of of saved) assert.deepStrictEqual(of, saved[0])
  }, runs(200))

  it.prop("N1: events claim no round trip, and never more than the history", { steps }, ({ steps }) => {
    const [events, chat] = [
      analyse(forms.events(steps), { threshold: 1 }),
      analyse(forms.chat(steps), { threshold: 1 })
    ]
    assert.strictEqual(events.totals.saved.roundTrips, 0)
    assert.isAtMost(events.totals.saved.requests, chat.totals.saved.requests)
  }, runs(200))
})

const Order = Schema.Struct({ id: Schema.String })
const GetOrder = pipe(
  Tool.make("get_order", { parameters: Order, success: Schema.String }),
  ToolPolicy.read({ keys: () => [] })
)

describe("turns that were run", () => {
  it.effect("events and spans of a turn say the same, and the conversation is told", () =>
    Effect.gen(function*() {
      const toolkit = Toolkit.make(GetOrder)
      const events: Array<TurnEvent.TurnEvent> = []
      const spans: Array<Tracer.NativeSpan> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      const ids = ["w1", "w2", "w3", "w4", "w1"]
      const turn = (ids: ReadonlyArray<string>) =>
        Turn.run(toolkit, ids.map((id, i) => ToolCall.make(`c${i}`, "get_order", { id })), {
          onEvent: (event) => events.push(event),
          middleware: [TurnTelemetry.spans({ contents: true })]
        })
      yield* Effect.andThen(turn(ids), turn(["w5"])).pipe(
        Effect.withSpan("work"),
        Effect.provide([
          toolkit.toLayer({ get_order: ({ id }) => Effect.succeed(`${id} is on its way`) }),
          Turn.layer()
        ]),
        Effect.provide(TurnContext.make({ tenant: "north", conversation: "c-1" })),
        Effect.withTracer(tracer)
      )
      const fromEvents = analyse(lines(events))
      assert.deepInclude(events[0], { _tag: "TurnStarted", tenant: "north", conversation: "c-1" })
      assert.deepInclude(fromEvents.candidates[0], {
        conversation: "c-1",
        calls: 6,
        steps: 2,
        duplicates: 1,
        distinct: null
      })
      // A duplicate has no run of its own, and so no span.
      const written = spans.map(({ attributes, name, parent, spanId, status, traceId }: any) => ({
        traceId,
        spanId,
        name,
        parentSpanId: parent?.value?.spanId,
        startTimeUnixNano: String(status.startTime),
        endTimeUnixNano: String(status.endTime ?? status.startTime),
        attributes: Object.fromEntries(attributes)
      }))
      const fromSpans = analyse(written)
      assert.deepInclude(fromSpans.candidates[0], { conversation: "c-1", calls: 5, steps: 2, distinct: 5 })
      assert.strictEqual(fromSpans.candidates[0]!.saved.roundTrips, 1)
    }))

  it.effect("the log of an agent: a run is a user turn, and its steps tell what was asked", () =>
    Effect.gen(function*() {
      const toolkit = Toolkit.make(GetOrder)
      const events: Array<{ readonly _tag: string; readonly agent: string }> = []
      const ask = (...ids: ReadonlyArray<string>) => FakeModel.calls(ids.map((id) => FakeModel.call(GetOrder, { id })))
      const run = (script: ReadonlyArray<FakeModel.Entry>) =>
        Agent.run({ prompt: "Where are they?", toolkit, onEvent: (event) => events.push(event) }).pipe(
          Effect.provide([
            toolkit.toLayer({ get_order: ({ id }) => Effect.succeed(`${id} is on its way`) }),
            FakeModel.layer(script),
            Turn.layer()
          ])
        )
      yield* run([ask("w1"), ask("w2", "w3"), ask("w4"), FakeModel.text("All are on their way.")])
      // The next question, long after: of the same conversation, and not the same user turn.
      yield* Effect.provide(
        Effect.andThen(run([ask("w5"), FakeModel.text("Too.")]), run([ask("w6"), ask("w7"), FakeModel.text("Too.")])),
        TurnContext.make({ tenant: "north", conversation: "c-1" })
      )
      const log = lines(events)
      assert.isTrue(events.some(({ _tag }) => _tag === "AgentEnded"))
      const sizes = (recording: TurnInsights.Recording) =>
        recording.conversations.map(({ id, turns }) => [
          id === "c-1" ? id : "its own",
          turns.map(({ steps }) => steps.map(({ calls }) => calls.length))
        ])
      const recording = read(log, { gap: 0 })
      assert.deepStrictEqual([recording.form, recording.notes], ["events", []])
      assert.deepStrictEqual(sizes(recording), [["its own", [[1, 2, 1]]], ["c-1", [[1], [1, 1]]]])
      const [candidate] = TurnInsights.analyse([recording]).candidates
      assert.deepInclude(candidate, { tool: "get_order", calls: 4, distinct: 4 })
      assert.deepInclude(candidate!.saved, { roundTrips: 2, requests: 3 })
      // What tells turns alone, and what tells steps alone, says the same of calls.
      const only = (...tags: ReadonlyArray<string>) => lines(events.filter(({ _tag }) => tags.includes(_tag)))
      assert.deepStrictEqual(sizes(read(only("TurnReported"), { gap: 0 })), sizes(recording))
      const steps = read(only("StepEnded"), { gap: 0 })
      assert.deepStrictEqual(steps.conversations.map(({ turns }) => turns.length), [1, 1, 1])
      assert.deepStrictEqual(TurnInsights.analyse([steps]).candidates[0]?.saved, candidate!.saved)
      assert.strictEqual(TurnInsights.read(only("StepStarted"), { source: "file" })._tag, "Success")
      // Two agents at once stay apart.
      const both = events.filter(({ _tag }) => _tag === "StepEnded").map((event, i) => ({ ...event, at: i % 2 }))
      assert.lengthOf(read(lines(both)).conversations, 3)
    }))

  it("a list that was cut into several requests is one call", () => {
    const base = { turn: "t", at: 1 }
    const request = (n: number, positions: ReadonlyArray<number>, items: number, into = "orders") => ({
      ...base,
      _tag: "RequestSent",
      request: n,
      into,
      positions,
      items
    })
    const { requests } = analyse([
      { ...base, _tag: "TurnStarted", calls: 3 },
      ...[0, 1, 2].map((position) => ({ ...base, _tag: "CallHeld", position, id: `${position}`, tool: "get_orders" })),
      request(0, [0, 0, 0], 10),
      request(1, [0, 1], 10),
      request(2, [1, 2], 5),
      request(3, [2], 1, "others")
    ])
    assert.deepStrictEqual(requests.map(({ calls, coalescer, items, ratio }) => [coalescer, calls, items, ratio]), [
      ["orders", 3, 25, 1],
      ["others", 1, 1, 1]
    ])
  })

  it.effect("requests of a coalescer: their sizes, their ratio, and nothing left to save", () =>
    Effect.gen(function*() {
      const coalescer = Coalescer.make({
        name: "orders",
        lookup: (keys: ReadonlyArray<string>) => Effect.succeed(keys.map((key) => `${key}!`))
      })
      const Merged = pipe(
        Tool.make("get_order", { parameters: Order, success: Schema.String, failure: Schema.Unknown }),
        ToolPolicy.read({ keys: () => [] }),
        Coalescer.through(coalescer, ({ id }) => id)
      )
      const toolkit = Toolkit.make(Merged)
      const events: Array<TurnEvent.TurnEvent> = []
      const calls = Array.from({ length: 12 }, (_, i) => ToolCall.make(`c${i}`, "get_order", { id: `w${i}` }))
      yield* Turn.run(toolkit, calls, { onEvent: (event) => events.push(event) }).pipe(
        Effect.provide([
          toolkit.toLayer({ get_order: Coalescer.handler(Merged) }),
          Turn.layer()
        ]),
        Effect.provide(TurnContext.make({ tenant: "north" }))
      )
      const found = sum(events.map((event) => event._tag === "RequestEnded" ? event.ok : 0))
      const { candidates, requests } = analyse(lines(events))
      assert.deepInclude(requests[0], {
        coalescer: "orders",
        requests: 2,
        calls: 12,
        items: 12,
        ratio: 6,
        missing: 12 - found
      })
      assert.deepStrictEqual(requests[0]!.sizes.values, [{ value: 2, count: 1 }, { value: 10, count: 1 }])
      assert.deepInclude(candidates[0]!.saved, { roundTrips: 0, requests: 0 })
    }))

  it("answers of batch tools, deferred calls and cut results are counted", () => {
    const list = JSON.stringify({
      status: "ok",
      summary: { requested: 30, ok: 25, other: 0, deferred: 5 },
      ids: [],
      results: {}
    })
    const report = analyse(
      forms.chat([[one("get_orders", { ids: [] }, list)], [one("get_orders", { ids: [1] }, '{"summary":1}')]])
    )
    assert.deepInclude(report.lists[0], { tool: "get_orders", calls: 1, items: 30, deferred: 5 })
    const [started, ended, over] = forms.events([[one("a", {})]]) as ReadonlyArray<any>
    const deferred = { ...ended, outcome: { ...ended.outcome, status: "deferred", code: "placeholder" } }
    const cut = { ...ended, _tag: "ResultCut", of: 9, to: 3, artifact: undefined }
    const { totals } = analyse([started, deferred, cut, { _tag: "SomethingNew", turn: "t0", at: 55 }, over])
    assert.deepStrictEqual([totals.deferred, totals.cut, totals.calls], [[{ code: "placeholder", count: 1 }], 1, 1])
  })
})

describe("the page", () => {
  const hostile = [
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "\"'`&amp;<!--",
    "\u202etxt.exe\u0000\u001b[31m\u2028",
    "\ud800"
  ]
  const page = TurnInsights.html(TurnInsights.analyse(
    hostile.map((tool) => {
      const recording = read(forms.chat([Array.from({ length: 5 }, (_, x) => one(tool, { x }))]), { source: tool })
      return {
        ...recording,
        notes: [tool],
        conversations: recording.conversations.map((one) => ({ ...one, id: tool }))
      }
    })
  ))

  it("N4: nothing of a recording is markup, hides, or turns text round", () => {
    for (const tag of ["<img", "<!--", "pwned'</script>"]) assert.notInclude(page, tag)
    assert.strictEqual(page.match(/<script/g)!.length, 2)
    assert.strictEqual(page.match(/<\/script/g)!.length, 2)
    assert.include(page, "&lt;img src=x onerror=&quot;document.title=&#39;pwned&#39;&quot;&gt;")
    assert.notMatch(page, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\ud800-\udfff]/)
    const rows = JSON.parse(/id="rows">(.*?)<\/script>/s.exec(page)![1]!)
    assert.lengthOf(rows, 5)
  })

  it("N4: its policy names its own script, and no other runs or loads", () => {
    assert.strictEqual(scriptHash, `sha256-${createHash("sha256").update(script).digest("base64")}`)
    assert.include(page, `script-src '${scriptHash}'`)
    assert.include(page, "default-src 'none'")
    assert.notMatch(page, /(src|href)="(?!#)/)
    assert.notMatch(page, /https?:|url\(|@import| on\w+="/)
  })

  it("has charts with texts, their numbers as tables, and rows for those without scripts", () => {
    assert.strictEqual(page.match(/<svg role="img" aria-label="[^"]+" aria-describedby="([\w-]+)"/g)!.length, 3)
    assert.strictEqual(page.match(/<summary>The numbers<\/summary>/g)!.length, 3)
    for (const id of ["per-turn", "top", "sizes"]) assert.include(page, `id="${id}-text"`)
    assert.strictEqual(/<table id="turns">.*?<\/table>/s.exec(page)![0].match(/<tr>/g)!.length, 6)
    assert.include(page, "prefers-color-scheme:dark")
    assert.include(page, "@media print")
  })

  it("names what could not be read, and every bar has its value", () => {
    const steps: Steps = Array.from(
      { length: 60 },
      (_, i) => Array.from({ length: 4 + i }, (_, x) => one(`t${i}`, { x }))
    )
    const recordings = steps.map((calls) => read(forms.chat([calls])))
    const report = TurnInsights.analyse(recordings, { unread: [{ source: "b<b>.json", problem: "it is no JSON" }] })
    const html = TurnInsights.html(report)
    assert.include(html, "1 recording could not be read")
    assert.include(html, "b&lt;b&gt;.json")
    assert.include(html, "it is no JSON")
    assert.notInclude(page, "could not be read")
    for (const svg of html.match(/<svg [^>]*class="bars".*?<\/svg>/gs)!) {
      const bars = svg.match(/<rect [^>]*height="[1-9]/g)!
      assert.strictEqual(svg.match(/class="v"/g)!.length, bars.length)
      assert.isAtMost(svg.match(/<rect /g)!.length, 12)
    }
    assert.deepStrictEqual(Schema.decodeUnknownSync(TurnInsights.Report)(JSON.parse(JSON.stringify(report))), report)
  })

  it("says that there is nothing where there is nothing", () => {
    const empty = TurnInsights.html(TurnInsights.analyse([]))
    assert.include(empty, "Nothing to show.")
    assert.include(empty, "There are none")
    assert.notInclude(empty, "<script")
    assert.notInclude(empty, "NaN")
  })

  it("holds thousands of user turns, and writes few of them", () => {
    const tools = Array.from({ length: 5000 }, (_, i) => Array.from({ length: 4 }, (_, x) => one(`tool ${i}`, { x })))
    const html = TurnInsights.html(analyse(forms.chat(tools)))
    assert.strictEqual(/<table id="turns">.*?<\/table>/s.exec(html)![0].match(/<tr>/g)!.length, 51)
    assert.include(html, "The first 50 of 5,000")
  })
})

describeShared("recorded turns", (shared) => {
  const rows = (name: string) =>
    fs.readFileSync(path.join(shared, "data", `${name}.handed.jsonl`), "utf8").trim().split("\n").map((line) =>
      JSON.parse(line)
    )

  it("are lists of calls, and all of their calls are counted", () => {
    for (const name of ["turns-tau", "turns-agent", "turns-provider"]) {
      const report = analyse(fs.readFileSync(path.join(shared, "data", `${name}.handed.jsonl`), "utf8"), {
        form: "calls"
      })
      assert.strictEqual(report.totals.calls, rows(name).reduce((sum, { calls }) => sum + calls.length, 0))
      assert.strictEqual(report.totals.userTurns, rows(name).length)
    }
  })

  it("scenario files are lists of calls", () => {
    const folder = path.join(shared, "scenarios")
    const files = fs.readdirSync(folder).filter((file) => file.endsWith(".json") && !file.includes("schema"))
    for (const file of files) {
      const text = fs.readFileSync(path.join(folder, file), "utf8")
      const turns: ReadonlyArray<any> = JSON.parse(text).turns
      const calls = turns.flatMap(({ calls, resume }) => resume === true ? [] : calls)
      assert.strictEqual(analyse(text).totals.calls, calls.length, file)
    }
    assert.isAbove(files.length, 0)
  })

  it("providers' own responses are read as they are", () => {
    const known = /\/(chat\/completions|responses|messages)$/
    const seen = new Set<string>()
    for (const { calls, id, path, stream, wire_response } of rows("turns-provider")) {
      if (stream || !known.test(path)) continue
      const recording = read(wire_response, { source: id })
      seen.add(recording.form)
      const { totals } = TurnInsights.analyse([recording])
      assert.deepStrictEqual([totals.calls, totals.steps], [calls.length, 1], id)
    }
    assert.sameMembers([...seen], ["anthropic", "chat", "responses"])
  })

  it("what tau's models asked at once is nowhere a saved round trip, and one by one it is", () => {
    const turns = rows("turns-tau").filter(({ kind }) => kind === "model")
    const at = (each: boolean) =>
      TurnInsights.analyse(turns.map(({ calls, id }) => {
        const said: ReadonlyArray<Said> = calls.map(({ arguments: args, name }: any) => one(name, args, "done"))
        return read(forms.chat(each ? said.map((call) => [call]) : [said]), { source: id })
      }))
    assert.strictEqual(at(false).totals.saved.roundTrips, 0)
    assert.isAbove(at(true).totals.saved.roundTrips, 100)
    // Calls of other tools between keep some apart.
    assert.isAtMost(at(true).totals.saved.requests, at(false).totals.saved.requests)
  })
})
