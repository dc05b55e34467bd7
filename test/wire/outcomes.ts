import type { Outcome, ToolCall } from "effect-turn"

const at = (call: ToolCall.ToolCall, position: number, started = true) => ({
  position,
  id: call.id,
  name: call.name,
  started,
  effect: "none" as const,
  retryable: false,
  message: ""
})

/** An outcome that ends well. */
export const ok = (call: ToolCall.ToolCall, position: number, encoded: unknown): Outcome.Outcome => ({
  ...at(call, position),
  status: "ok",
  result: encoded,
  encoded
})

/** An outcome that refuses the call. */
export const refused = (
  call: ToolCall.ToolCall,
  position: number,
  code: Outcome.Refused["code"],
  message: string
): Outcome.Outcome => ({ ...at(call, position, false), status: "error", code, retryable: true, message })

/** Each way in which a call can end, by a number, so that a property can choose. */
export const ways: ReadonlyArray<(call: ToolCall.ToolCall, position: number) => Outcome.Outcome> = [
  (call, position) => ok(call, position, { position, text: "\ud83d" }),
  (call, position) => ok(call, position, ""),
  (call, position) => ok(call, position, "half \ud83d"),
  (call, position) => ok(call, position, null),
  (call, position) => refused(call, position, "unknown_tool", `no tool ${call.name}`),
  (call, position) => refused(call, position, "invalid_arguments", "no JSON"),
  (call, position) => ({
    ...at(call, position),
    status: "error",
    code: "failed",
    failure: { why: 1 },
    encoded: { why: 1 }
  }),
  (call, position) => ({
    ...at(call, position),
    status: "timeout",
    code: "handler",
    limit: { clock: "timeout", millis: 10 },
    message: "took over 10 ms"
  }),
  (call, position) => ({ ...at(call, position, false), status: "deferred", code: "placeholder", message: "<id>" }),
  (call, position) => ({ ...at(call, position, false), status: "pending_approval", message: "held" }),
  (call, position) => ({
    ...at(call, position),
    status: "cancelled",
    code: "by_caller",
    reason: "user",
    message: "stopped"
  })
]

/** The outcome of a call that the provider ran itself. */
export const byProvider = (call: ToolCall.ToolCall, position: number): Outcome.Outcome => ({
  ...at(call, position, false),
  status: "provider_executed"
})
