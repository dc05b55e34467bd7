/**
 * What Chat Completions hosts refuse in a request, as their error messages word it. Written from the messages, not from
 * the codec, so that the two can disagree.
 */
export const refusal = (messages: ReadonlyArray<any>): string | undefined => {
  let open: Array<string> = []
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") {
      if (!open.includes(message.tool_call_id)) {
        return `messages[${index}]: tool_call_id ${message.tool_call_id} not found in 'tool_calls'`
      }
      open = open.filter((id) => id !== message.tool_call_id)
      if (typeof message.content !== "string") return `messages[${index}].content: expected a string`
      if (message.content.trim() === "") return `messages[${index}]: chat content is empty`
      if (!message.content.isWellFormed()) return `messages[${index}]: could not parse the JSON body`
      continue
    }
    if (open.length > 0) return `tool_call_ids did not have response messages: ${open.join(", ")}`
    if (message.role !== "assistant") return `messages[${index}].role: unknown`
    if (message.function_call === null) return `None is not of type 'object' - messages[${index}].function_call`
    if ("tool_calls" in message) {
      if (!Array.isArray(message.tool_calls)) return `messages[${index}].tool_calls: not an array`
      if (message.tool_calls.length === 0) return `Invalid 'messages[${index}].tool_calls': empty array`
      for (const call of message.tool_calls) {
        if (typeof call.id !== "string" || call.id === "") return "tool_calls: no id"
        if (open.includes(call.id)) return `Duplicate value for 'tool_call_id' of '${call.id}'`
        open.push(call.id)
        if (call.type === "custom") {
          if (typeof call.custom.input !== "string") return "custom.input: not a string"
          continue
        }
        if (call.type !== "function") return `tool_calls: invalid type ${call.type}`
        if (typeof call.function.arguments !== "string") return "function.arguments: Input should be a valid string"
        let parsed: unknown
        try {
          parsed = JSON.parse(call.function.arguments)
        } catch {
          return "function.arguments: invalid JSON"
        }
        if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
          return "function.arguments: not an object"
        }
      }
    } else if ((message.content ?? "") === "" && (message.refusal ?? "") === "") {
      return `the message at position ${index} with role 'assistant' must not be empty`
    }
  }
  return open.length > 0 ? `tool_call_ids did not have response messages: ${open.join(", ")}` : undefined
}
