/** Things that people do to histories, each of which the provider must notice: else the check of the sound ones proves nothing. */
import type { Step } from "./conversations.ts"
import type { Provider } from "./rules.ts"

const part = { text: "some words", id: "own", name: "read", args: '{"n":N}', n: 0, other: false } as const

/** A response with a bit of everything: reasoning, words, something that the provider ran, two calls. */
export const rich: Step = {
  parts: [
    { ...part, kind: "thinking" },
    { ...part, kind: "text" },
    { ...part, kind: "server" },
    { ...part, kind: "call", other: true },
    { ...part, kind: "call", name: "write", n: 2 }
  ],
  finish: "calls",
  mode: "whole",
  breaks: undefined,
  dice: 1,
  more: false,
  options: {}
}

/** What is done to the history of that response, and a word of the refusal. */
type Fault = readonly [what: string, change: (history: Array<any>) => unknown, refusal: string]

const swap = (list: Array<unknown>, one: number, two: number) => {
  const kept = list[one]
  list[one] = list[two]
  list[two] = kept
}

export const faults: Record<Provider, ReadonlyArray<Fault>> = {
  chat: [
    ["a result is dropped", (history) => history.pop(), "did not have response messages"],
    ["a result is repeated", (history) => history.push(history[2]), "Duplicate value for 'tool_call_id'"],
    [
      "a result is moved before its call",
      (history) => swap(history, 1, 2),
      "must be a response to a preceeding message"
    ],
    ["words are put between", (history) => history.splice(3, 0, history[0]), "did not have response messages"],
    ["a call is dropped", (history) => history[1].tool_calls.pop(), "must be a response to a preceeding message"],
    ["a call and its result are dropped", (history) => history[1].tool_calls.pop() && history.pop(), "was changed"],
    ["arguments are changed", (history) => history[1].tool_calls[0].function.arguments = "{}", "came back as {}"],
    [
      "reasoning is dropped",
      (history) => delete history[1].reasoning_content,
      "`reasoning_content` in the thinking mode"
    ],
    ["words are changed", (history) => history[1].content = "other words", "`reasoning_content` in the thinking mode"],
    ["words are invented", (history) => history.push({ role: "assistant", content: "I did" }), "was never said"]
  ],
  responses: [
    ["an output is dropped", (history) => history.pop(), "No tool output found"],
    ["an output is repeated", (history) => history.push(history[6]), "Duplicate function call output"],
    ["an output is moved before its call", (history) => history.unshift(history.pop()), "No tool call found"],
    ["reasoning is dropped", (history) => history.splice(1, 1), "required 'reasoning' item"],
    ["reasoning is moved", (history) => swap(history, 1, 2), "required 'reasoning' item"],
    ["reasoning is altered", (history) => history[1].encrypted_content = "b3RoZXI=", "could not be verified"],
    ["a search is altered", (history) => history[3].action.query = "other", "of type 'web_search_call' was changed"],
    ["a call and its output are dropped", (history) => history.splice(5, 1) && history.pop(), "was changed"],
    ["a call is renamed", (history) => history[4].name = "write", "came back as one of write"]
  ],
  anthropic: [
    ["a result is dropped", (history) => history[2].content.pop(), "found without `tool_result` blocks"],
    ["a result is repeated", (history) => history[2].content.push(history[2].content[0]), "must have a single result"],
    [
      "results are in two messages",
      (history) => history.push({ role: "user", content: [history[2].content.pop()] }),
      "found without `tool_result` blocks"
    ],
    [
      "words are before the results",
      (history) => history[2].content.unshift({ type: "text", text: "so" }),
      "found without `tool_result` blocks"
    ],
    ["a signature is altered", (history) => history[1].content[0].signature = "b3RoZXI=", "cannot be modified"],
    ["a thought is altered", (history) => history[1].content[0].thinking = "other", "cannot be modified"],
    ["thinking is dropped", (history) => history[1].content.shift(), "cannot be modified"],
    ["thinking is moved", (history) => swap(history[1].content, 0, 1), "cannot be modified"],
    ["a search is altered", (history) => history[1].content[2].input = {}, "'server_tool_use' was changed"],
    ["what was found is dropped", (history) => history[1].content.splice(3, 1), "'web_search_tool_result' was changed"],
    [
      "what was found is altered",
      (history) => history[1].content[3].content[0].encrypted_content = "b3RoZXI=",
      "'web_search_tool_result' was changed"
    ],
    ["a call is made by another", (history) => history[1].content[4].id = "other", "found without `tool_result` blocks"]
  ],
  gemini: [
    ["a response is dropped", (history) => history[2].parts.pop(), "number of function response parts"],
    [
      "a response is repeated",
      (history) => history[2].parts.push(history[2].parts[0]),
      "number of function response parts"
    ],
    ["responses are in another order", (history) => swap(history[2].parts, 0, 1), "function response 0"],
    [
      "words are beside the responses",
      (history) => history[2].parts.push({ text: "so" }),
      "number of function response parts"
    ],
    ["a signature is dropped", (history) => delete history[1].parts[4].thoughtSignature, "missing a thought_signature"],
    [
      "a signature is altered",
      (history) => history[1].parts[4].thoughtSignature = "b3RoZXI=",
      "corrupted thought signature"
    ],
    ["a signature is moved", (history) => {
      history[1].parts[5].thoughtSignature = history[1].parts[4].thoughtSignature
      delete history[1].parts[4].thoughtSignature
    }, "missing a thought_signature"],
    [
      "code is altered",
      (history) => history[1].parts[2].executableCode.code = "print(2)",
      "executableCode was changed"
    ],
    [
      "a call and its response are dropped",
      (history) => history[1].parts.pop() && history[2].parts.pop(),
      "was changed"
    ]
  ]
}
