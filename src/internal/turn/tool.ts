/**
 * The contact surface with `effect/ai`: how a tool's schemas, handler and approval question are reached. Everything that reads
 * its inner shape stands here, so that a new minor version is met in one place.
 *
 * Handlers are values in the context under `tool.id`. They are run directly: `Toolkit.handle` pays for a queue, a fiber and a
 * stream per call. A given `WithHandler` may wrap anything, so that one goes through its own `handle`.
 */
import { Tokenizer } from "effect/ai/Tokenizer"
import type * as Tool from "effect/ai/Tool"
import * as AiTool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as JsonSchema from "effect/JsonSchema"
import * as Option from "effect/Option"
import type * as Schema from "effect/Schema"
import type * as SchemaAST from "effect/SchemaAST"
import * as SchemaIssue from "effect/SchemaIssue"
import * as SchemaParser from "effect/SchemaParser"
import * as SchemaRepresentation from "effect/SchemaRepresentation"
import * as Stream from "effect/Stream"
import * as Coalescer from "../../Coalescer.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import type { RequiredTexts } from "./placeholders.ts"

export type Parser = (value: unknown) => Effect.Effect<unknown, SchemaIssue.Issue, any>

/** A tool, made ready once: schemas compiled, policies read. */
export interface ToolEntry {
  readonly tool: Tool.Any
  readonly name: string
  readonly policy: ToolPolicy.ToolPolicy
  readonly backendName: string | undefined
  /** How its calls share requests: reads alone do, since a request may be cut short. @internal */
  readonly merging: Coalescer.Merging | undefined
  readonly decode: Parser
  readonly encodeParams: Parser
  readonly encode: Parser
  readonly decodeResult: Parser
  /** The tool succeeds with nothing: `undefined` is its declared result, and stands as null in JSON. */
  readonly succeedsWithNothing: boolean
  readonly encodeFailure: Parser
  readonly decodeFailure: Parser
  readonly requiredTexts: RequiredTexts | undefined
  readonly literal: ReadonlyArray<string>
  readonly detect: boolean
}

/** A schema's own code may throw: that is a defect of the value at hand, and of nothing else. */
const safe = (parser: Parser): Parser => (value) => {
  try {
    return parser(value)
  } catch (error) {
    return Exit.die(error)
  }
}

const compiled = new WeakMap<object, ToolEntry>()

/** Throws when a raw JSON Schema holds what cannot be checked. */
export const entryOf = (tool: Tool.Any): ToolEntry => {
  let entry = compiled.get(tool)
  if (entry === undefined) compiled.set(tool, entry = compile(tool))
  return entry
}

const compile = (tool: Tool.Any): ToolEntry => {
  const policy = ToolPolicy.get(tool)
  const raw = AiTool.isDynamic(tool)
    ? (tool as Tool.AnyDynamic).jsonSchema as JsonSchema.JsonSchema | undefined
    : undefined
  const parameters: Schema.Top = raw === undefined ? tool.parametersSchema : schemaOf(raw)
  const decode = safe(
    SchemaParser.decodeUnknownEffect(parameters, {
      errors: "all",
      ...(raw === undefined ? undefined : { onExcessProperty: "error" as const })
    }) as Parser
  )
  const success = encodedOf(tool.successSchema.ast)._tag
  const succeedsWithNothing = success === "Void" || success === "Undefined"
  return {
    tool,
    name: tool.name,
    policy,
    backendName: policy.backend?.key,
    merging: policy.access === "read" ? Context.get(tool.annotations, Coalescer.MergingAnnotation) : undefined,
    // What a raw JSON Schema accepts is handed on as it came: the schema checks, it does not change.
    decode: raw === undefined ? decode : (value) => {
      const checked = decode(value)
      return Exit.isExit(checked) && Exit.isSuccess(checked) ? Exit.succeed(value) : Effect.as(checked, value)
    },
    encodeParams: raw === undefined ? safe(SchemaParser.encodeUnknownEffect(parameters) as Parser) : Effect.succeed,
    encode: safe(SchemaParser.encodeUnknownEffect(tool.successSchema) as Parser),
    decodeResult: safe(SchemaParser.decodeUnknownEffect(tool.successSchema) as Parser),
    succeedsWithNothing,
    encodeFailure: safe(SchemaParser.encodeUnknownEffect(tool.failureSchema) as Parser),
    decodeFailure: safe(SchemaParser.decodeUnknownEffect(tool.failureSchema) as Parser),
    requiredTexts: requiredTexts(parameters.ast, 4),
    literal: typeof policy.placeholders === "object" ? policy.placeholders.literal : [],
    detect: policy.placeholders !== "off"
  }
}

/**
 * Parameters of which some are not known yet, for the functions of a policy: reading one of those throws, and so does reading one that was
 * not given, since a schema may have something to say for it. Undefined where members cannot be told apart.
 */
export const knownParams = (
  { tool }: ToolEntry,
  encoded: Record<string, unknown>,
  unknown: ReadonlySet<unknown>
): unknown => {
  const fields = AiTool.isDynamic(tool)
    ? undefined
    : (tool.parametersSchema as { readonly fields?: Record<string, Schema.Top> }).fields
  if (!AiTool.isDynamic(tool) && (fields === undefined || tool.parametersSchema.ast.encoding !== undefined)) {
    return undefined
  }
  const params: Record<string, unknown> = {}
  for (const name of new Set([...Object.keys(fields ?? {}), ...Object.keys(encoded)])) {
    Object.defineProperty(params, name, {
      enumerable: true,
      get: () => {
        if (unknown.has(name) || !Object.hasOwn(encoded, name)) throw new Error("it is not known yet")
        const value = encoded[name]
        if (fields === undefined) return value
        const decoded = SchemaParser.decodeUnknownEffect(fields[name]!)(value) as Effect.Effect<unknown, unknown>
        if (!Exit.isExit(decoded) || Exit.isFailure(decoded)) throw new Error("it is not known yet")
        return decoded.value
      }
    })
  }
  return params
}

const schemaOf = (raw: JsonSchema.JsonSchema): Schema.Top => {
  const draft07 = typeof raw["$schema"] === "string" && raw["$schema"].includes("draft-07")
  const document = draft07 ? JsonSchema.fromSchemaDraft07(raw) : JsonSchema.fromSchemaDraft2020_12(raw)
  return SchemaRepresentation.fromJsonSchemaDocument(document, { patterns: "apply" })
}

/** The members of an object schema that must be texts, on the encoded side, a few levels deep. */
const requiredTexts = (ast: SchemaAST.AST, depth: number): RequiredTexts | undefined => {
  const encoded = encodedOf(ast)
  if (encoded._tag !== "Objects" || depth === 0) return undefined
  const members = new Map<string, true | RequiredTexts>()
  for (const property of encoded.propertySignatures) {
    if (typeof property.name !== "string" || property.type.context?.isOptional === true) continue
    const type = encodedOf(property.type)
    if (type._tag === "String") members.set(property.name, true)
    else {
      const inner = requiredTexts(type, depth - 1)
      if (inner !== undefined) members.set(property.name, inner)
    }
  }
  return members.size === 0 ? undefined : members
}

const encodedOf = (ast: SchemaAST.AST): SchemaAST.AST => {
  const encoding = ast.encoding
  return encoding === undefined ? ast : encodedOf(encoding[encoding.length - 1]!.to)
}

/** What a tool's parameters are, in a line: `{ city: string, days?: integer }`; empty when that cannot be said. */
export const wanted = ({ tool }: ToolEntry): string => {
  try {
    const { properties = {}, required = [] } = AiTool.getJsonSchema(tool) as {
      readonly properties?: Record<string, unknown>
      readonly required?: ReadonlyArray<string>
    }
    const members = Object.keys(properties).map((name) =>
      `${name}${required.includes(name) ? "" : "?"}: ${typeOf(properties[name])}`
    )
    const shown = members.slice(0, 12).join(", ").slice(0, 500)
    return members.length === 0 ? "{}" : `{ ${shown}${members.length > 12 ? ", …" : ""} }`
  } catch {
    return ""
  }
}

const typeOf = (schema: unknown): string => {
  const { anyOf, enum: values, type } = schema as Record<string, unknown>
  if (Array.isArray(values)) return values.map((value) => JSON.stringify(value)).join(" | ")
  if (typeof type === "string") return type
  if (Array.isArray(type)) return type.join(" | ")
  return Array.isArray(anyOf) ? anyOf.map(typeOf).join(" | ") : "any value"
}

/** The words of a schema's complaint, and the places it complains about. */
export const complaint = (
  issue: unknown
): { readonly message: string; readonly paths: ReadonlyArray<ReadonlyArray<PropertyKey>> } => {
  try {
    const { issues } = SchemaIssue.makeFormatterStandardSchemaV1()(issue as SchemaIssue.Issue)
    const paths = issues.map((one) => (one.path ?? []).map((step) => typeof step === "object" ? step.key : step))
    const lines = issues.map((one, i) =>
      paths[i]!.length === 0 ? one.message : `${paths[i]!.map(String).join(".")}: ${one.message}`
    )
    return { message: lines.join("; "), paths }
  } catch (error) {
    return { message: String(error), paths: [] }
  }
}

/** What a handler gets beside its parameters. */
interface HandlerContext {
  readonly toolCallId: string
  readonly preliminary: (result: unknown) => Effect.Effect<void>
}

/** How the calls of a tool are run in this turn, and in which context. */
export interface Runner {
  readonly entry: ToolEntry
  readonly context: Context.Context<never>
  /** `encoded` are the arguments as they came, for a `WithHandler`, which decodes them itself. */
  readonly invoke: (params: unknown, handler: HandlerContext, encoded: unknown) => Effect.Effect<unknown, unknown, any>
  /** Whether results come encoded already, as `HandlerResult`s. */
  readonly handled: boolean
  /** Its handler asks a coalescer and nothing else: the turn does so for all calls that are ready at once. @internal */
  readonly merging: Coalescer.Merging | undefined
}

export type AnyToolkit = Toolkit.Any | Toolkit.WithHandler<any>

export const isWithHandler = (toolkit: AnyToolkit): toolkit is Toolkit.WithHandler<any> =>
  typeof (toolkit as { readonly handle?: unknown }).handle === "function"

/** What counts tokens, by name. */
export const tokenizer = 'a `Tokenizer` (of "effect/ai")'

export const hasTokenizer = (context: Context.Context<never>): boolean =>
  Option.isSome(Context.getOption(context as Context.Context<any>, Tokenizer))

/** A runner, or the name of what is missing in the context. */
export const runnerOf = (
  toolkit: AnyToolkit,
  entry: ToolEntry,
  context: Context.Context<never>
): Runner | { readonly missing: string } => {
  const { backend } = entry.policy
  if (backend !== undefined && Option.isNone(Context.getOption(context as Context.Context<any>, backend))) {
    return { missing: `the layer of the backend "${backend.key}"` }
  }
  const store = entry.policy.idempotency?.store
  if (store !== undefined && Option.isNone(Context.getOption(context as Context.Context<any>, store))) {
    return { missing: `a layer of "${store.key}"` }
  }
  const { resultBudget } = entry.policy
  if (resultBudget !== undefined && "maxTokens" in resultBudget && !hasTokenizer(context)) {
    return { missing: tokenizer }
  }
  if (isWithHandler(toolkit)) {
    return { entry, context, invoke: throughHandle(toolkit, entry), handled: true, merging: undefined }
  }
  const handler = Option.getOrUndefined(
    Context.getOption(context as Context.Context<any>, Context.Service<any, any>(entry.tool.id))
  )
  if (handler === undefined) {
    return { missing: `the handler "${entry.tool.id}" (from the layer that \`toolkit.toLayer\` gives)` }
  }
  return {
    entry,
    // As `Toolkit.handle` does: what the handlers' layer captured, overridden by what the caller has.
    context: Context.merge(handler.context as Context.Context<never>, context),
    invoke: handler.handler,
    handled: false,
    merging: handler.handler[Coalescer.HandlerMark] === true ? entry.merging : undefined
  }
}

/** What a `WithHandler` gave: its last result is the answer, those before it are preliminary. */
export interface Handled {
  readonly result: unknown
  readonly encodedResult: unknown
  /** Why the success could not be encoded; then there is no result. */
  readonly problem?: string | undefined
}

const throughHandle = (toolkit: Toolkit.WithHandler<any>, entry: ToolEntry) => {
  const handle = toolkit.handle as (
    name: string,
    params: unknown,
    id: string
  ) => Effect.Effect<Stream.Stream<Tool.HandlerResult<any>, unknown>, unknown>
  return (_params: unknown, call: HandlerContext, encoded: unknown): Effect.Effect<Handled, unknown, any> =>
    handle(entry.name, encoded, call.toolCallId).pipe(
      Effect.flatMap((results) => lastOf(results, entry, call)),
      Effect.catch((error) => {
        const problem = encodingProblem(error)
        return problem === undefined
          ? Effect.fail(error)
          : Effect.succeed({ result: undefined, encodedResult: undefined, problem })
      })
    )
}

const lastOf = (results: Stream.Stream<Tool.HandlerResult<any>, unknown>, entry: ToolEntry, call: HandlerContext) => {
  let last: Tool.HandlerResult<any> | undefined
  return Effect.flatMap(
    Stream.runForEach(results, (result) => {
      if (result.preliminary) return call.preliminary(result.result)
      last = result
      return Effect.void
    }),
    (): Effect.Effect<Handled, unknown> =>
      last === undefined
        ? Effect.die(new Error(`the toolkit's handle gave no result for "${entry.name}"`))
        : last.isFailure
        ? Effect.fail(last.result)
        : Effect.succeed(last)
  )
}

/** The words of `Toolkit.handle` for a success that its tool's schema refuses: the handler has succeeded all the same. */
const encodingProblem = (error: unknown): string | undefined => {
  const reason = (error as { readonly reason?: { readonly _tag?: unknown; readonly description?: unknown } } | null)
    ?.reason
  return reason?._tag === "ToolResultEncodingError" || reason?._tag === "InvalidToolResultError"
    ? String(reason.description)
    : undefined
}

/** Whether a call needs approval; an effect when the tool has to find out. */
export const needsApproval = (
  tool: Tool.Any,
  params: unknown,
  context: Tool.NeedsApprovalContext
): boolean | Effect.Effect<boolean> => {
  const ask = tool.needsApproval
  return typeof ask === "function" ? ask(params, context) : ask ?? false
}
