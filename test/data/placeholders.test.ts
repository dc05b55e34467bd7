/** Forms of invented arguments, and honest values that look like them. */
import { assert, it } from "@effect/vitest"
import { ToolCall, ToolPolicy, Turn } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Schema from "effect/Schema"

const Write = pipe(
  Tool.make("write", { parameters: Schema.Struct({ text: Schema.String }) }),
  ToolPolicy.write({ keys: () => [] })
)
const Literal = pipe(
  Tool.make("literal", {
    parameters: Schema.Struct({ text: Schema.String, other: Schema.String, in: Schema.Struct({ text: Schema.String }) })
  }),
  ToolPolicy.write({ keys: () => [] }),
  ToolPolicy.placeholders({ literal: ["text"] })
)
const Off = pipe(
  Tool.make("off", { parameters: Schema.Struct({ text: Schema.String }) }),
  ToolPolicy.write({ keys: () => [] }),
  ToolPolicy.placeholders("off")
)
const Deep = pipe(
  Tool.make("deep", { parameters: Schema.Struct({ a: Schema.Struct({ b: Schema.Array(Schema.Unknown) }) }) }),
  ToolPolicy.write({ keys: () => [] })
)
const toolkit = Toolkit.make(Write, Literal, Off, Deep)

const verdict = (text: unknown, name = "write", ids: ReadonlyArray<string> = ["call_1", "c7", "2"]) =>
  Effect.map(
    Turn.plan(toolkit, [
      ...ids.map((id) => ToolCall.make(id, "write", { text: "plain" })),
      ToolCall.make("last", name, typeof text === "string" ? { text } : text)
    ]),
    ({ calls }) => ({ code: calls.at(-1)!.code, message: calls.at(-1)!.message ?? "" })
  )

const long = "call_jYdIdRZHxZTn5bWCq5jlMrJi"

it.effect.each(
  [
    ["$call_1", 'the call "call_1"'],
    ["$call_1.hotels[0].id", 'the call "call_1"'],
    ["${call_1}", 'the call "call_1"'],
    ["${call_1.id}", 'the call "call_1"'],
    ["Send it to ${call_1.email}, please", 'the call "call_1"'],
    ["$call_1.id$", 'the call "call_1"'],
    ["$call_1.Ask Price$", 'the call "call_1"'],
    ["$c7.movies[0]$", 'the call "c7"'],
    ["3 * $c7.Ask Price$", 'the call "c7"'],
    ["{{call_1}}", 'the call "call_1"'],
    ["{{ call_1.id }}", 'the call "call_1"'],
    ["Booked: {{call_1.id}}.", 'the call "call_1"'],
    ["<call_1>", 'the call "call_1"'],
    ["<call_1>.output", 'the call "call_1"'],
    ["a translation of <call_1>", 'the call "call_1"'],
    ["call_1#/hotels/0/id", 'the call "call_1"'],
    ["call_1.result", 'the call "call_1"'],
    ["call_1.output.hotels[0]", 'the call "call_1"'],
    [" $call_1 ", 'the call "call_1"'],
    ["$2", 'the call "2"'],
    ["${2}", 'the call "2"'],
    ["{{2.id}}", 'the call "2"'],
    ["API_call_1", "call #1"],
    ["API_call_0 response", "call #0"],
    ["API_call_9", 'is the placeholder "API_call_9"'],
    ["<pending>", 'is the placeholder "<pending>"'],
    ["<hotel_id>", 'is the placeholder "<hotel_id>"'],
    ["<node-5>.output", 'is the placeholder "<node-5>.output"'],
    ["{{hotel.id}}", 'is the placeholder "{{hotel.id}}"'],
    ["TBD", 'is the placeholder "TBD"'],
    ["", "is an empty text"]
  ] as const
)("deferred: %s", ([text, says]) =>
  Effect.gen(function*() {
    const { code, message } = yield* verdict(text)
    assert.strictEqual(code, "placeholder")
    assert.include(message, '"text"')
    assert.include(message, says)
  }))

it.effect.each(
  [
    "None",
    "null",
    "N/A",
    "Null",
    "$1",
    "echo $1",
    "echo $2 | cut -f2",
    "$20-$30",
    "$2.50",
    "costs $2, $3 or $4",
    "Q1: $5000, Q2: $7000",
    "max($2, $3)",
    "Dear {{2}}, {{3.name}}",
    "s/(a)/$2/",
    "for f in *; do echo ${f}; done",
    "${HOME}/bin:$PATH",
    "const x = `${user.name} and ${c}`",
    "call_1",
    "call_10",
    "call_1 was the first",
    "I will call_1 back. result: none",
    "the calls call_1 and c7",
    "$call_10",
    "$call_1x",
    "<p>Hello</p>",
    "<c7>a tag with its end</c7>",
    "<br>",
    "if a < b and b > c",
    "Mia <mia@example.org>",
    '{ "a": { "b": 1 } }',
    "tbd.example.org",
    "The date is TBD",
    "www.result.id",
    "API_call_log",
    "the API_call_0 function",
    "#2",
    "a#/b",
    " "
  ]
)("honest: %s", (text) =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* verdict(text), { code: undefined, message: "" })
  }))

it.effect("ids of every provider are found, long and odd ones too", () =>
  Effect.gen(function*() {
    for (
      const id of [
        long,
        "toolu_01QJg3w89wpFqWA2oYPmvyqo",
        "functions.search:0",
        "call_1|fc_2",
        "chatcmpl-tool-9a8b",
        "aB3dE6gH9"
      ]
    ) {
      for (const text of [`${id}#/hotels/0/id`, `$${id}`, `{{${id}.id}}`, `<${id}>`, `${id}.result`, `\${${id}.id}`]) {
        const { code, message } = yield* verdict(text, "write", [id])
        assert.strictEqual(code, "placeholder", text)
        assert.include(message, JSON.stringify(id), text)
      }
    }
  }))

it.effect("references are found at every depth, and as objects", () =>
  Effect.gen(function*() {
    for (const item of ["$call_1", { $ref: "call_1" }, { $ref: "call_1#/id" }, { $ref: "2#/id" }, [["<x_id>"]]]) {
      const { code, message } = yield* verdict({ a: { b: ["fine", item] } }, "deep")
      assert.strictEqual(code, "placeholder", JSON.stringify(item))
      assert.include(message, '"a.b.1')
    }
    for (const item of [{ $ref: "#/definitions/x" }, { $ref: "call_10" }, { $ref: 1 }, { $ref: "call_1", more: 1 }]) {
      assert.strictEqual((yield* verdict({ a: { b: [item] } }, "deep")).code, undefined, JSON.stringify(item))
    }
  }))

it.effect("a tool turns it off, or names the arguments that hold literal text", () =>
  Effect.gen(function*() {
    assert.strictEqual((yield* verdict("{{call_1.id}}", "off")).code, undefined)
    assert.strictEqual((yield* verdict("", "off")).code, undefined)
    const literal = { text: "{{call_1.id}}", other: "x", in: { text: "x" } }
    assert.strictEqual((yield* verdict(literal, "literal")).code, undefined)
    assert.strictEqual((yield* verdict({ ...literal, text: "" }, "literal")).code, undefined)
    assert.include((yield* verdict({ ...literal, other: "TBD" }, "literal")).message, '"other"')
    assert.include((yield* verdict({ ...literal, in: { text: "" } }, "literal")).message, '"in.text"')
  }))

it.effect("looking takes time in proportion to the text", () =>
  Effect.gen(function*() {
    const texts = ["$", "<", "{{", "${", "$a.b ", "<a ", "$a.b$c", "a.", "{{a "].map((part) =>
      part.repeat(900_000 / part.length)
    )
    for (const text of texts) {
      const began = performance.now()
      assert.strictEqual((yield* verdict(text)).code, undefined)
      assert.isBelow(performance.now() - began, 2000, text.slice(0, 10))
    }
  }))
