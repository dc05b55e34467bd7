import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { type Outcome, ToolCall, ToolPolicy, Turn } from "effect-turn"
import { dialects } from "effect-turn/wire"
import { Prompt, Tool, Toolkit } from "effect/ai"
import { pipe } from "effect/Function"
import { codecs } from "./codecs.ts"
import { ok, refused } from "./outcomes.ts"

const text = (text: string) => Prompt.textPart({ text })
const file = (mediaType: string, data: string | Uint8Array | URL, fileName?: string) =>
  Prompt.filePart({ mediaType, data, ...(fileName === undefined ? undefined : { fileName }) })

const outputs: Record<string, ReadonlyArray<Prompt.ToolModelOutputPart>> = {
  image: [text("The page:"), file("image/png", "iVBORw0KGgo=", "page.png")],
  bytes: [file("image/jpeg", new Uint8Array([255, 216, 255]))],
  dataUrl: [file("image/*", "data:image/webp;base64,UklGRg==")],
  web: [file("image/gif", new URL("https://example.com/a.gif")), file("application/pdf", "https://example.com/a.pdf")],
  pdf: [file("application/pdf", "JVBERi0", "a.pdf")],
  plain: [file("text/plain", "aGVsbG8", "a.txt")],
  others: [file("audio/wav", "UklGRg==", "a.wav"), file("image/png", "no Base64!"), file("image/svg+xml", "PHN2Zz4=")],
  mixed: [text(""), text("half \ud83d"), text(" \n")],
  none: [text("")]
}

const shapes = { parameters: Schema.Struct({ kind: Schema.String }), success: Schema.String }
const toolkit = Toolkit.make(
  pipe(
    Tool.make("show", {
      ...shapes,
      toModelOutput: (kind) => {
        if (kind === "broken") throw new Error("no parts")
        return outputs[kind] ?? []
      }
    }),
    ToolPolicy.read({ keys: () => [] })
  )
)

const end = (kind: string) => (call: ToolCall.ToolCall) => ok(call, 0, kind)

/** The answer to one call, as a provider gets it. */
const answer = (
  id: string,
  outcomeOf: (call: ToolCall.ToolCall) => Outcome.Outcome,
  options: { readonly toolkit?: typeof toolkit } = { toolkit }
): any => {
  const codec = codecs.find(({ dialect }) => dialect.id === id)!
  const { calls, message } = Result.getOrThrow(codec.dialect.decode(codec.response([ToolCall.make("c", "show", "{}")])))
  const history = Result.getOrThrow(codec.dialect.history(message, calls, [outcomeOf(calls[0]!)], options)) as Array<
    any
  >
  assert.isUndefined(codec.refusal(history), JSON.stringify(history))
  const last = history.at(-1)
  switch (id) {
    case "chat":
      return last.content
    case "responses":
      return last.output
    case "anthropic":
      return last.content[0].content
    default: {
      const { id: _, name: __, ...rest } = last.parts[0].functionResponse
      return rest
    }
  }
}

describe("what a tool makes of its success for the model", () => {
  it("Chat Completions gets text, with words for the files", () => {
    const said = (kind: string) => answer("chat", end(kind))
    assert.strictEqual(said("image"), "The page:\n[image/png page.png omitted]")
    assert.strictEqual(said("bytes"), "[image/jpeg omitted]")
    assert.strictEqual(said("mixed"), "half \ufffd")
  })

  it("Responses gets images and documents", () => {
    const said = (kind: string) => answer("responses", end(kind))
    assert.deepStrictEqual(said("image"), [
      { type: "input_text", text: "The page:" },
      { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" }
    ])
    assert.deepStrictEqual(said("bytes"), [
      { type: "input_image", image_url: "data:image/jpeg;base64,/9j/", detail: "auto" }
    ])
    assert.deepStrictEqual(said("dataUrl"), [
      { type: "input_image", image_url: "data:image/webp;base64,UklGRg==", detail: "auto" }
    ])
    assert.deepStrictEqual(said("web"), [
      { type: "input_image", image_url: "https://example.com/a.gif", detail: "auto" },
      { type: "input_file", file_url: "https://example.com/a.pdf" }
    ])
    assert.deepStrictEqual(said("pdf"), [
      { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,JVBERi0=" }
    ])
    assert.deepStrictEqual(said("plain"), [
      { type: "input_file", filename: "a.txt", file_data: "data:text/plain;base64,aGVsbG8=" }
    ])
    assert.deepStrictEqual(said("others"), [
      { type: "input_text", text: "[audio/wav a.wav omitted]" },
      { type: "input_text", text: "[image/png omitted]" },
      { type: "input_text", text: "[image/svg+xml omitted]" }
    ])
    assert.deepStrictEqual(said("mixed"), [{ type: "input_text", text: "half \ufffd" }])
  })

  it("Anthropic gets images and documents", () => {
    const said = (kind: string) => answer("anthropic", end(kind))
    assert.deepStrictEqual(said("image"), [
      { type: "text", text: "The page:" },
      { type: "image", source: { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" } }
    ])
    assert.deepStrictEqual(said("dataUrl"), [
      { type: "image", source: { type: "base64", media_type: "image/webp", data: "UklGRg==" } }
    ])
    assert.deepStrictEqual(said("web"), [
      { type: "image", source: { type: "url", url: "https://example.com/a.gif" } },
      { type: "document", source: { type: "url", url: "https://example.com/a.pdf" } }
    ])
    assert.deepStrictEqual(said("pdf"), [
      { type: "document", title: "a.pdf", source: { type: "base64", media_type: "application/pdf", data: "JVBERi0=" } }
    ])
    assert.deepStrictEqual(said("plain"), [
      { type: "document", title: "a.txt", source: { type: "text", media_type: "text/plain", data: "hello" } }
    ])
    assert.deepStrictEqual(said("others").map((block: any) => block.text), [
      "[audio/wav a.wav omitted]",
      "[image/png omitted]",
      "[image/svg+xml omitted]"
    ])
  })

  it("Gemini gets files beside the text that names them", () => {
    const said = (kind: string) => answer("gemini", end(kind))
    assert.deepStrictEqual(said("image"), {
      response: { output: "The page:\n[image/png page.png]" },
      parts: [{ inlineData: { mimeType: "image/png", data: "iVBORw0KGgo=" } }]
    })
    assert.deepStrictEqual(said("web"), {
      response: { output: "[image/gif omitted]\n[application/pdf]" },
      parts: [{ fileData: { mimeType: "application/pdf", fileUri: "https://example.com/a.pdf" } }]
    })
    assert.deepStrictEqual(said("others").response, {
      output: "[audio/wav a.wav omitted]\n[image/png omitted]\n[image/svg+xml omitted]"
    })
    assert.notProperty(said("others"), "parts")
  })

  it.each(codecs.map(({ dialect }) => dialect.id))(
    "the plain result goes to %s where there is nothing to show",
    (id) => {
      const plain = (kind: string) => id === "gemini" ? { response: { output: kind } } : kind
      for (const kind of ["none", "broken", "unheard of"]) assert.deepStrictEqual(answer(id, end(kind)), plain(kind))
      // Nobody said which tools there are.
      assert.deepStrictEqual(answer(id, end("image"), {}), plain("image"))
      // What failed has no result.
      const failed = answer(id, (call) => refused(call, 0, "vetoed", "no"))
      assert.include(JSON.stringify(failed), "vetoed")
    }
  )

  it.each(codecs.map(({ dialect }) => dialect.id))("what was cut to a budget goes to %s as it was cut", (id) => {
    const cut = (call: ToolCall.ToolCall): Outcome.Outcome => ({
      ...ok(call, 0, "image"),
      truncated: true,
      shown: { value: "imag", output: [text("The pa")] }
    } as Outcome.Outcome)
    for (const options of [{}, { toolkit }]) {
      const said = JSON.stringify(answer(id, cut, options))
      assert.include(said, "The pa")
      assert.notInclude(said, "The page")
    }
  })

  it.effect("a turn's own outcomes say it as well", () =>
    Effect.gen(function*() {
      const calls = [ToolCall.make("c", "show", { kind: "pdf" })]
      const outcomes = yield* Turn.run(toolkit, calls)
      for (const dialect of dialects) {
        const message = dialect.fromCalls(calls)
        const sent = Result.getOrThrow(dialect.history(message, calls, outcomes, { toolkit }))
        if (dialect.id === "neutral") continue
        assert.include(JSON.stringify(sent), dialect.id === "chat" ? "[application/pdf a.pdf omitted]" : "JVBERi0=")
      }
    }).pipe(Effect.provide([toolkit.toLayer({ show: ({ kind }) => Effect.succeed(kind) }), Turn.layer()])))
})
