/** The rules say no to what providers are known to refuse, and to nothing that is sound. */
import { assert, describe, it } from "@effect/vitest"
import { type Provider, rules } from "./rules.ts"

type Change = (body: any) => void

/** Requests that providers take, with a bit of everything. */
const sound: Record<Provider, () => any> = {
  chat: () => ({
    model: "m",
    messages: [
      { role: "user", content: "hello" },
      {
        role: "assistant",
        content: null,
        refusal: null,
        tool_calls: [
          { id: "a", type: "function", function: { name: "f", arguments: "{}" } },
          { id: "b", type: "custom", custom: { name: "g", input: "x" } }
        ]
      },
      { role: "tool", tool_call_id: "b", content: [{ type: "text", text: "two" }] },
      { role: "tool", tool_call_id: "a", content: "one" },
      { role: "assistant", content: "bye" },
      { role: "user", content: "and?" }
    ]
  }),
  responses: () => ({
    model: "m",
    input: [
      { role: "user", content: "hello" },
      { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "x" },
      {
        type: "message",
        id: "msg_1",
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "", annotations: [] }]
      },
      { type: "web_search_call", id: "ws_1", status: "completed", action: { type: "search", query: "q" } },
      { type: "function_call", id: "fc_1", call_id: "a", name: "f", arguments: "{}", status: "completed" },
      { type: "custom_tool_call", id: "ctc_1", call_id: "b", name: "g", input: "x" },
      { type: "function_call_output", call_id: "a", output: "one" },
      { type: "custom_tool_call_output", call_id: "b", output: [{ type: "input_image", image_url: "data:x" }] }
    ]
  }),
  anthropic: () => ({
    model: "m",
    max_tokens: 9,
    messages: [
      { role: "user", content: "hello" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "", signature: "s" },
          { type: "redacted_thinking", data: "d" },
          {
            type: "text",
            text: "let me see",
            citations: [{
              type: "char_location",
              cited_text: "c",
              document_index: 0,
              document_title: null,
              start_char_index: 0,
              end_char_index: 1
            }]
          },
          { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} },
          { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [] },
          { type: "tool_use", id: "a", name: "f", input: {} },
          { type: "tool_use", id: "b", name: "g", input: { x: 1 } }
        ]
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "b", content: [{ type: "text", text: "two" }], is_error: true },
          {
            type: "tool_result",
            tool_use_id: "a",
            content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }]
          },
          { type: "text", text: "go on" }
        ]
      }
    ]
  }),
  gemini: () => ({
    contents: [
      { role: "user", parts: [{ text: "hello" }] },
      {
        role: "model",
        parts: [
          { text: "hm", thought: true },
          { executableCode: { language: "PYTHON", code: "1" } },
          { codeExecutionResult: { outcome: "OUTCOME_OK", output: "1" } },
          { functionCall: { name: "f", args: {} }, thoughtSignature: "AAAA" },
          { functionCall: { name: "g", args: { x: 1 } } },
          { text: "", thoughtSignature: "BBBB" }
        ]
      },
      {
        role: "user",
        parts: [
          { functionResponse: { name: "f", response: { output: 1 } } },
          {
            functionResponse: {
              name: "g",
              response: { error: "no" },
              parts: [{ inlineData: { mimeType: "image/png", data: "AAAA" } }]
            }
          }
        ]
      }
    ]
  })
}

/** Finds what a test wants to change. */
const at = (body: any, ...path: ReadonlyArray<string | number>): any =>
  path.reduce<any>((value, key) => value[key], body)

const faults: Record<Provider, ReadonlyArray<readonly [what: string, change: Change, refusal: string]>> = {
  chat: [
    ["a missing result", (body) => body.messages.splice(2, 1), "did not have response messages: b"],
    ["a missing result at the end", (body) => body.messages.splice(3), "did not have response messages: a"],
    [
      "a result too many",
      (body) => body.messages.splice(4, 0, { ...body.messages[2], tool_call_id: "c" }),
      "must be a response"
    ],
    [
      "a repeated result",
      (body) => body.messages.splice(3, 0, body.messages[2]),
      "Duplicate value for 'tool_call_id' of 'b'"
    ],
    ["a result of another call", (body) => at(body, "messages", 2).tool_call_id = "c", "'c' not found in 'tool_calls'"],
    ["a message between", (body) => body.messages.splice(3, 0, body.messages[0]), "did not have response messages: a"],
    ["no calls in the list", (body) => at(body, "messages", 4).tool_calls = [], "empty array"],
    ["calls that are null", (body) => at(body, "messages", 4).tool_calls = null, "expected an array"],
    ["an empty id", (body) => at(body, "messages", 1, "tool_calls", 0).id = "", "tool_calls[0].id"],
    [
      "an id twice",
      (body) => at(body, "messages", 1, "tool_calls", 1).id = "a",
      "Duplicate value for 'tool_call_id' of 'a'"
    ],
    ["a call of no type", (body) => delete at(body, "messages", 1, "tool_calls", 0).type, "Supported values"],
    ["no arguments", (body) => delete at(body, "messages", 1, "tool_calls", 0, "function").arguments, "arguments"],
    [
      "arguments that are a list",
      (body) => at(body, "messages", 1, "tool_calls", 0, "function").arguments = "[]",
      "object"
    ],
    ["broken arguments", (body) => at(body, "messages", 1, "tool_calls", 0, "function").arguments = "{", "object"],
    [
      "a name with a dot",
      (body) => at(body, "messages", 1, "tool_calls", 0, "function").name = "a.b",
      "does not match pattern"
    ],
    [
      "a long name",
      (body) => at(body, "messages", 1, "tool_calls", 0, "function").name = "x".repeat(65),
      "string too long"
    ],
    ["a blank answer", (body) => at(body, "messages", 3).content = " \n", "chat content is empty"],
    [
      "an answer that is an object",
      (body) => at(body, "messages", 3).content = {},
      "Invalid type for 'messages[3].content'"
    ],
    [
      "an answer with a picture",
      (body) => at(body, "messages", 2, "content", 0).type = "image_url",
      "Invalid value: 'image_url'"
    ],
    [
      "an answer with more fields",
      (body) => at(body, "messages", 3).is_error = true,
      "Unknown parameter: 'messages[3].is_error'"
    ],
    ["a null function call", (body) => at(body, "messages", 1).function_call = null, "None is not of type 'object'"],
    ["an empty message", (body) => at(body, "messages", 4).content = "", "must not be empty"],
    ["half a character", (body) => at(body, "messages", 3).content = "\ud83d", "could not parse the JSON body"],
    ["an unknown field", (body) => body.max_steps = 3, "Unknown parameter: 'max_steps'"],
    ["too many calls", (body) => {
      const [call] = at(body, "messages", 1).tool_calls
      at(body, "messages", 1).tool_calls = Array.from({ length: 129 }, (_, i) => ({ ...call, id: `c${i}` }))
    }, "array too long"]
  ],
  responses: [
    ["a missing output", (body) => body.input.splice(6, 1), "No tool output found for function call a."],
    ["a missing custom output", (body) => body.input.splice(7, 1), "No tool output found for custom tool call b."],
    [
      "an output without a call",
      (body) => body.input.splice(4, 1),
      "No tool call found for function call output with call_id a."
    ],
    ["an output before its call", (body) => body.input.unshift(body.input.splice(6, 1)[0]), "No tool call found"],
    ["an output of the other kind", (body) => at(body, "input", 7).type = "function_call_output", "No tool call found"],
    ["a repeated output", (body) => body.input.push(body.input[6]), "Duplicate function call output"],
    ["an empty call id", (body) => at(body, "input", 4).call_id = "", "minimum length 1"],
    ["a long call id", (body) => at(body, "input", 4).call_id = "x".repeat(65), "maximum length 64"],
    ["an item twice", (body) => body.input.splice(2, 0, body.input[1]), "Duplicate item found with id rs_1"],
    ["an id of another kind", (body) => at(body, "input", 4).id = "call_1", "Expected an ID that begins with 'fc'"],
    ["an empty id", (body) => at(body, "input", 4).id = "", "letters, numbers, underscores, or dashes"],
    ["reasoning at the end of a turn", (body) => {
      body.input.splice(6, 0, { ...body.input[1], id: "rs_2" })
    }, "'reasoning' was provided without its required following item"],
    [
      "a status of reasoning",
      (body) => at(body, "input", 1).status = "completed",
      "Unknown parameter: 'input[1].status'"
    ],
    ["a field of the SDK", (body) => at(body, "input", 4).parsed_arguments = null, "'input[4].parsed_arguments'"],
    ["a parsed text", (body) => at(body, "input", 2, "content", 0).parsed = null, "'input[2].content[0].parsed'"],
    ["a query of another action", (body) => {
      at(body, "input", 3).action = { type: "open_page", url: "u", query: null }
    }, "'input[3].action.query'"],
    ["a type that nobody knows", (body) => at(body, "input", 4).type = "tool_use", "Invalid value: 'tool_use'"],
    ["an output that is an object", (body) => at(body, "input", 6).output = {}, "but got an object"],
    ["an output with a text of the model", (body) => {
      at(body, "input", 6).output = [{ type: "output_text", text: "x" }]
    }, "Invalid value: 'output_text'"],
    ["a picture without a picture", (body) => delete at(body, "input", 7, "output", 0).image_url, "image_url"],
    ["arguments that are an object", (body) => at(body, "input", 4).arguments = {}, "expected a string"],
    ["broken arguments", (body) => at(body, "input", 4).arguments = "{", "one JSON object"],
    ["a name with a space", (body) => at(body, "input", 4).name = "a b", "does not match pattern"],
    ["half a character", (body) => at(body, "input", 6).output = "\udc00", "could not parse the JSON body"]
  ],
  anthropic: [
    ["a missing result", (body) => body.messages[2].content.splice(0, 1), "immediately after: b."],
    ["no message of results", (body) => body.messages.splice(2), "immediately after: a, b."],
    ["results in two messages", (body) => {
      const [one, ...rest] = body.messages[2].content
      body.messages.splice(2, 1, { role: "user", content: [one] }, { role: "user", content: rest })
    }, "immediately after: a."],
    [
      "a text before the results",
      (body) => body.messages[2].content.unshift({ type: "text", text: "x" }),
      "immediately after"
    ],
    ["a result too many", (body) => {
      body.messages[2].content.push({ type: "tool_result", tool_use_id: "c" })
    }, "unexpected `tool_use_id` found in `tool_result` blocks: c."],
    ["a repeated result", (body) => body.messages[2].content.unshift(body.messages[2].content[0]), "with id: b"],
    ["an id twice", (body) => at(body, "messages", 1, "content", 6).id = "a", "ids must be unique"],
    ["an id of an earlier message", (body) => {
      body.messages.push(
        { role: "assistant", content: [at(body, "messages", 1, "content", 5)] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "a" }] }
      )
    }, "messages.3.content.0: `tool_use` ids must be unique"],
    ["an empty id", (body) => at(body, "messages", 1, "content", 5).id = "", "String should match pattern"],
    ["an id with a dot", (body) => at(body, "messages", 1, "content", 5).id = "a.1", "String should match pattern"],
    ["a name with a dot", (body) => at(body, "messages", 1, "content", 5).name = "a.b", "String should match pattern"],
    ["arguments that are text", (body) => at(body, "messages", 1, "content", 5).input = "{}", "a valid dictionary"],
    ["an empty text", (body) => at(body, "messages", 1, "content", 2).text = "", "must be non-empty"],
    ["a blank text", (body) => at(body, "messages", 1, "content", 2).text = " ", "non-whitespace"],
    ["a blank text in a result", (body) => at(body, "messages", 2, "content", 0, "content", 0).text = "", "non-empty"],
    ["a message of no blocks", (body) => at(body, "messages", 2).content = [], "must have non-empty content"],
    [
      "a field of the response",
      (body) => at(body, "messages", 1).stop_reason = "end_turn",
      "stop_reason: Extra inputs"
    ],
    ["a field of a stream", (body) => at(body, "messages", 1, "content", 5).index = 5, "tool_use.index: Extra inputs"],
    ["a file id of a citation", (body) => {
      at(body, "messages", 1, "content", 2, "citations", 0).file_id = null
    }, "char_location.file_id: Extra inputs"],
    ["an error with a picture", (body) => at(body, "messages", 2, "content", 1).is_error = true, "must be type `text`"],
    [
      "an error flag on text",
      (body) => at(body, "messages", 2, "content", 2).is_error = true,
      "text.is_error: Extra inputs"
    ],
    [
      "a block that nobody knows",
      (body) => at(body, "messages", 1, "content", 2).type = "output",
      "Input tag 'output'"
    ],
    ["a block that no result has", (body) => {
      at(body, "messages", 2, "content", 0).content = [{ type: "thinking", thinking: "", signature: "s" }]
    }, "Input tag 'thinking'"],
    ["thinking without a signature", (body) => delete at(body, "messages", 1, "content", 0).signature, "signature"],
    ["thinking at the end", (body) => {
      const { content } = body.messages[1]
      body.messages.splice(2)
      body.messages[1].content = [content[2], content[0]]
    }, "cannot be `thinking`"],
    ["a result of the provider without its use", (body) => {
      body.messages[1].content.splice(3, 1)
    }, "unexpected `tool_use_id` found in `web_search_tool_result` blocks"],
    ["a use of the provider without its result", (body) => body.messages[1].content.splice(4, 1), "was found without"],
    ["a file that no picture is", (body) => {
      at(body, "messages", 2, "content", 1, "content", 0, "source").media_type = "image/tiff"
    }, "media_type: Input should be"],
    ["half a character", (body) => at(body, "messages", 1, "content", 5).input = { x: "\ud83d" }, "no low surrogate"],
    ["a conversation that the model begins", (body) => body.messages.shift(), 'must use the "user" role']
  ],
  gemini: [
    ["a missing response", (body) => body.contents[2].parts.pop(), "number of function response parts"],
    ["no content of responses", (body) => body.contents.pop(), "number of function response parts"],
    [
      "a response too many",
      (body) => body.contents[2].parts.push(body.contents[2].parts[0]),
      "number of function response parts"
    ],
    [
      "a text beside the responses",
      (body) => body.contents[2].parts.push({ text: "x" }),
      "number of function response parts"
    ],
    [
      "responses in another order",
      (body) => body.contents[2].parts.push(body.contents[2].parts.shift()),
      "function response 0 is that of g"
    ],
    ["responses without calls", (body) => body.contents.splice(1, 1), "immediately after a function call turn"],
    ["calls after the model's own words", (body) => {
      body.contents.splice(1, 0, { role: "model", parts: [{ text: "x" }] })
    }, "immediately after a user turn"],
    ["an id that was not there", (body) => {
      at(body, "contents", 2, "parts", 0, "functionResponse").id = "x"
    }, "function response 0"],
    ["an empty name", (body) => at(body, "contents", 1, "parts", 3, "functionCall").name = "", "Name cannot be empty"],
    ["an empty name of a response", (body) => {
      at(body, "contents", 2, "parts", 0, "functionResponse").name = ""
    }, "function_response.name: Name cannot be empty"],
    [
      "a name with a space",
      (body) => at(body, "contents", 1, "parts", 3, "functionCall").name = "a b",
      "FIELD_INVALID"
    ],
    ["a response that is text", (body) => {
      at(body, "contents", 2, "parts", 0, "functionResponse").response = "x"
    }, "google.protobuf.Struct"],
    ["a response that is a list", (body) => {
      at(body, "contents", 2, "parts", 0, "functionResponse").response = []
    }, "cannot start list"],
    ["arguments that are text", (body) => at(body, "contents", 1, "parts", 3, "functionCall").args = "{}", "Struct"],
    ["a field of another provider", (body) => {
      at(body, "contents", 2, "parts", 0, "functionResponse").call_id = "x"
    }, "Unknown name \"call_id\" at 'contents[2].parts[0].function_response'"],
    [
      "a field of the candidate",
      (body) => at(body, "contents", 1).finishReason = "STOP",
      'Unknown name "finishReason"'
    ],
    ["a role of another provider", (body) => at(body, "contents", 1).role = "assistant", "use a valid role"],
    ["no parts", (body) => at(body, "contents", 1).parts = [], "must not be empty"],
    ["a part of nothing", (body) => at(body, "contents", 1, "parts").push({ thought: true }), "oneof field 'data'"],
    ["a part of two things", (body) => at(body, "contents", 1, "parts", 3).text = "x", "already set"],
    ["an empty text", (body) => at(body, "contents", 1, "parts", 0).text = "", "must have a text parameter"],
    ["a signature that is no base64", (body) => at(body, "contents", 1, "parts", 3).thoughtSignature = "sig", "Base64"],
    ["a file that is not taken", (body) => {
      at(body, "contents", 2, "parts", 1, "functionResponse", "parts", 0, "inlineData").mimeType = "image/tiff"
    }, "Unsupported MIME type"],
    [
      "half a character",
      (body) => at(body, "contents", 1, "parts", 4, "functionCall").args = { "\ud83d": 1 },
      "Invalid JSON"
    ]
  ]
}

describe.each(Object.keys(rules) as Array<Provider>)("%s", (provider) => {
  it("takes a sound request", () => {
    assert.isUndefined(rules[provider](sound[provider]()))
  })

  it.each(faults[provider])("refuses %s", (_, change, refusal) => {
    const body = sound[provider]()
    change(body)
    assert.include(rules[provider](body) ?? "nothing was refused", refusal)
  })
})
