/**
 * Generated calls of a toolkit: arguments that its schemas take, made readable, and made to meet.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import * as AiTool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as JsonSchema from "effect/JsonSchema"
import * as Schema from "effect/Schema"
import * as SchemaRepresentation from "effect/SchemaRepresentation"
import * as ToolCall from "../../ToolCall.ts"
import * as TurnError from "../../TurnError.ts"

export const int = (minimum: number, maximum: number): Arbitrary.Arbitrary<number> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum, maximum })))

/** One of a list; simpler ones first, for that is where shrinking goes. */
export const pick = <const A>(of: ReadonlyArray<A>): Arbitrary.Arbitrary<A> =>
  Arbitrary.map(int(0, of.length - 1), (i) => of[i]!)

const schemaOf = (tool: Tool.Any): Schema.Top => {
  const raw = AiTool.isDynamic(tool)
    ? (tool as Tool.AnyDynamic).jsonSchema as JsonSchema.JsonSchema | undefined
    : undefined
  if (raw === undefined) return tool.parametersSchema
  return SchemaRepresentation.fromJsonSchemaDocument(JsonSchema.fromSchemaDraft2020_12(raw), { patterns: "apply" })
}

/** Short values that read well, and are few, so that calls of different tools touch the same things. */
const readable = { string: ["a", "b", "c"], number: [1, 2, 3] } as const

/** Puts readable values in the place of generated ones, one by one, wherever the schema takes them. */
const made = (value: unknown, salt: ReadonlyArray<number>, takes: (value: unknown) => boolean): unknown => {
  let whole = value
  let leaf = 0
  const visit = (path: ReadonlyArray<PropertyKey>, at: unknown): void => {
    if (typeof at === "object" && at !== null) {
      for (const name of Object.keys(at)) visit([...path, name], (at as any)[name])
      return
    }
    const candidates: ReadonlyArray<unknown> | undefined = readable[typeof at as "string" | "number"]
    if (candidates === undefined) return
    const changed = put(whole, path, candidates[salt[leaf++ % salt.length]! % candidates.length])
    if (takes(changed)) whole = changed
  }
  visit([], value)
  return whole
}

const put = (value: unknown, path: ReadonlyArray<PropertyKey>, leaf: unknown): unknown => {
  const [name, ...rest] = path
  if (name === undefined) return leaf
  const copy: any = Array.isArray(value) ? [...value] : { ...(value as object) }
  Object.defineProperty(copy, name, {
    value: put(copy[name], rest, leaf),
    enumerable: true,
    writable: true,
    configurable: true
  })
  return copy
}

/** As a model would write it. What JSON cannot hold stays as it is: the tool will say that it cannot take it. */
const asJson = (value: unknown): unknown => {
  try {
    return JSON.parse(JSON.stringify(value))
  } catch {
    return value
  }
}

/** Arguments of a tool, encoded as a model would write them. */
const argumentsOf = (tool: Tool.Any): Arbitrary.Arbitrary<unknown> => {
  const schema = schemaOf(tool) as Schema.Codec<unknown, unknown>
  const takes = (value: unknown): boolean => {
    try {
      return Exit.isSuccess(Schema.decodeUnknownExit(schema)(value))
    } catch {
      return false
    }
  }
  return Arbitrary.map(
    Arbitrary.all({
      value: Arbitrary.schema(schema),
      // Two of three possible values, mostly: then calls of one turn meet, and not always.
      salt: Arbitrary.array(pick([0, 0, 1, 1, 2]), { minLength: 1, maxLength: 3 })
    }),
    ({ salt, value }) => made(asJson(Schema.encodeUnknownSync(schema)(value) ?? {}), salt, takes)
  )
}

/** Some arguments of each tool: those that are given, or one that its schema takes. */
export const argumentsEach = (
  toolkit: Toolkit.Any,
  given: Readonly<Record<string, ReadonlyArray<unknown>>>
): Effect.Effect<ReadonlyArray<{ readonly name: string; readonly args: unknown }>> =>
  Effect.map(
    Effect.forEach(Object.values(toolkit.tools) as ReadonlyArray<Tool.Any>, (tool) =>
      Effect.map(
        Object.hasOwn(given, tool.name)
          ? Effect.succeed(given[tool.name]!)
          : Effect.orDie(Arbitrary.sampleEffect(argumentsOf(tool), { count: 1, seed: 1 })),
        (all) => all.map((args) => ({ name: tool.name, args }))
      )),
    (all) => all.flat()
  )

/**
 * A generated call, and the time that is added to its run before and after the handler's own work, in milliseconds.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CaseCall {
  readonly call: ToolCall.ToolCall
  readonly before: number
  readonly after: number
}

/** What a model gets wrong now and then. */
const odd = (call: ToolCall.ToolCall, kind: number): ToolCall.ToolCall => {
  switch (kind) {
    case 1:
      return { ...call, id: "" }
    case 2:
      return { ...call, id: "same" }
    case 3:
      return { ...call, name: `${call.name}_` }
    case 4:
      return { ...call, arguments: '{"a":' }
    case 5:
      return { ...call, arguments: "" }
    default:
      return call
  }
}

/** Calls of the tools of a toolkit. */
export const callsOf = (
  toolkit: Toolkit.Any,
  options: {
    readonly maxCalls: number
    readonly latencies: ReadonlyArray<number>
    readonly oddities: boolean
    readonly arguments: Readonly<Record<string, Arbitrary.Arbitrary<unknown>>>
  }
): Arbitrary.Arbitrary<ReadonlyArray<CaseCall>> => {
  const tools = Object.values(toolkit.tools) as ReadonlyArray<Tool.Any>
  if (tools.length === 0) return Arbitrary.Constant([])
  for (const name of Object.keys(options.arguments)) {
    if (Object.hasOwn(toolkit.tools, name)) continue
    throw TurnError.make(
      new TurnError.InvalidInput({
        what: "the generated arguments",
        expected: `the names of tools: ${tools.map((tool) => tool.name).join(", ")}`,
        received: TurnError.show(name)
      })
    )
  }
  const perTool = tools.map((tool) => {
    const own = Object.hasOwn(options.arguments, tool.name) ? options.arguments[tool.name] : undefined
    return Arbitrary.map(own ?? argumentsOf(tool), (args) => ({ name: tool.name, args }))
  })
  const one = Arbitrary.all({
    call: Arbitrary.flatMap(int(0, tools.length - 1), (i) => perTool[i]!),
    before: pick(options.latencies),
    after: pick(options.latencies),
    oddity: options.oddities ? int(0, 40) : Arbitrary.Constant(0)
  })
  return Arbitrary.map(
    Arbitrary.array(one, { minLength: 1, maxLength: options.maxCalls }),
    (all) =>
      all.map(({ after, before, call, oddity }, i) => ({
        call: odd(ToolCall.make(`c${i}`, call.name, call.args), oddity),
        before,
        after
      }))
  )
}
