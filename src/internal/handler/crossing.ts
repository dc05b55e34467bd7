/**
 * What crosses between a program and its worker threads: one call at a time, in the tool's encoded forms. Both sides know the
 * tool, so its schemas decide; the messages themselves are plain data.
 */
import type * as Tool from "effect/ai/Tool"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as TurnContext from "../../TurnContext.ts"

/** Main thread to worker: run this call. */
export interface Ask {
  readonly tool: string
  readonly toolCallId: string | undefined
  readonly params: unknown
  /** The call in its turn, when it is in one. */
  readonly call: TurnContext.CallContext | undefined
}

/**
 * A value on its way. What its schema refuses crosses as it is, so that it is refused where the handler's caller would have
 * refused it; of what cannot be cloned only words cross.
 */
export type Value =
  | { readonly form: "encoded" | "raw"; readonly value: unknown }
  | { readonly form: "words"; readonly value: string }

/** The end of a call in its worker. */
export type End =
  | { readonly _tag: "Success" | "Failure"; readonly value: Value }
  | { readonly _tag: "Defect"; readonly error: Words }
  | { readonly _tag: "Interrupt" }

/** Worker to main thread. */
export type Reply = { readonly _tag: "Progress"; readonly value: Value } | End

/** What is left of an error on another thread. */
export interface Words {
  readonly name: string
  readonly message: string
  readonly stack: string | undefined
}

export const wordsOf = (error: unknown): Words => {
  try {
    return error instanceof Error
      ? { name: String(error.name), message: String(error.message), stack: error.stack }
      : { name: "Error", message: String(error), stack: undefined }
  } catch {
    return { name: "Error", message: "an error that cannot be read", stack: undefined }
  }
}

const errorOf = ({ message, name, stack }: Words): Error => {
  const error = new Error(message)
  error.name = name
  if (stack !== undefined) error.stack = stack
  return error
}

/** A call as plain data: the turn's own object has getters, which a clone leaves behind. */
export const plainCall = (call: TurnContext.CallContext): TurnContext.CallContext => ({
  identity: call.identity,
  position: call.position,
  id: call.id,
  tool: call.tool,
  attempt: call.attempt,
  idempotencyKey: call.idempotencyKey,
  approvalNote: call.approvalNote
})

type Parser = (value: unknown) => Effect.Effect<unknown, Schema.SchemaError, any>

/** A schema's own code may throw. */
const parser = (make: (schema: any) => any, schema: unknown): Parser => {
  // A tool made of a raw JSON Schema takes what it is given.
  if (!Schema.isSchema(schema)) return Effect.succeed
  const parse = make(schema) as Parser
  return (value) => Effect.suspend(() => parse(value))
}

/** How the values of one tool cross. */
export class Crossing {
  readonly tool: Tool.Any
  readonly encodeParams: Parser
  readonly decodeParams: Parser
  private readonly encodings: Record<"success" | "failure", Parser>
  private readonly decodings: Record<"success" | "failure", Parser>

  constructor(tool: Tool.Any) {
    this.tool = tool
    this.encodeParams = parser(Schema.encodeUnknownEffect, tool.parametersSchema)
    this.decodeParams = parser(Schema.decodeUnknownEffect, tool.parametersSchema)
    const { failureSchema, successSchema } = tool
    this.encodings = {
      success: parser(Schema.encodeUnknownEffect, successSchema),
      failure: parser(Schema.encodeUnknownEffect, failureSchema)
    }
    this.decodings = {
      success: parser(Schema.decodeUnknownEffect, successSchema),
      failure: parser(Schema.decodeUnknownEffect, failureSchema)
    }
  }

  /** In the worker. */
  pack(kind: "success" | "failure", value: unknown): Effect.Effect<Value, never, any> {
    return Effect.map(
      Effect.exit(this.encodings[kind](value)),
      (encoded): Value => Exit.isSuccess(encoded) ? { form: "encoded", value: encoded.value } : { form: "raw", value }
    )
  }

  /** In the worker: how a handler ended. */
  end(exit: Exit.Exit<unknown, unknown>): Effect.Effect<End, never, any> {
    if (Exit.isSuccess(exit)) {
      return Effect.map(this.pack("success", exit.value), (value) => ({ _tag: "Success", value }))
    }
    const { reasons } = exit.cause
    const died = reasons.find(Cause.isDieReason)
    if (died !== undefined) return Effect.succeed({ _tag: "Defect", error: wordsOf(died.defect) })
    const failed = reasons.find(Cause.isFailReason)
    return failed === undefined
      ? Effect.succeed({ _tag: "Interrupt" })
      : Effect.map(this.pack("failure", failed.error), (value) => ({ _tag: "Failure", value }))
  }

  /** On the main thread. A value that its own schema cannot read back is handed on as it came, and is refused later. */
  unpack(kind: "success" | "failure", { form, value }: Value): Effect.Effect<unknown, never, any> {
    if (form === "raw") return Effect.succeed(value)
    // No schema, and no JSON, takes a symbol: the call has succeeded, and its result cannot be given.
    if (form === "words") return Effect.succeed(kind === "success" ? Symbol(value) : new Error(value))
    return Effect.map(
      Effect.exit(this.decodings[kind](value)),
      (decoded) => Exit.isSuccess(decoded) ? decoded.value : value
    )
  }

  /** On the main thread: the end of a call as the handler's own. */
  settle(end: End): Effect.Effect<unknown, unknown, any> {
    switch (end._tag) {
      case "Success":
        return this.unpack("success", end.value)
      case "Failure":
        return Effect.flatMap(this.unpack("failure", end.value), Effect.fail)
      case "Defect":
        return Effect.die(errorOf(end.error))
      case "Interrupt":
        return Effect.interrupt
    }
  }
}
