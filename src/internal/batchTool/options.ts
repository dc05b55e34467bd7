/** What a list cannot be made of is refused where it is written, by name. */
import * as Context from "effect/Context"
import * as Schema from "effect/Schema"
import * as SchemaAST from "effect/SchemaAST"
import * as Coalescer from "../../Coalescer.ts"
import * as TurnError from "../../TurnError.ts"

type Refuse = (option: string, expected: string, received: unknown, words?: string) => never

const refuser = (owner: string): Refuse => (option, expected, received, words = Coalescer.inWords.nameOf(received)) => {
  throw TurnError.make(
    new TurnError.InvalidInput({ what: `${owner}, ${option}`, expected, received: words })
  )
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== ""

/** What both kinds of lists have. Gives what refuses the rest. */
const checkCommon = (name: unknown, options: any, call: string): Refuse => {
  if (!isText(name)) refuser("a batch tool")("name", "a text that is not empty", name)
  const refuse = refuser(`batch tool "${name}"`)
  if (typeof options !== "object" || options === null) refuse("options", "an object", options)
  if (typeof options.description !== "string") refuse("description", "a text", options.description)
  for (const option of ["item", "success", "failure"]) {
    const schema = options[option]
    if (option === "failure" && schema === undefined) continue
    if (!Schema.isSchema(schema)) refuse(option, "a schema", schema)
  }
  if (typeof options[call] !== "function") refuse(call, "a function", options[call])
  for (const option of ["key", "normalise", "itemKey", "resources"]) functionOr(refuse, option, options[option])
  for (const option of ["transient", "noEffect"]) {
    functionOr(refuse, `failures.${option}`, options.failures?.[option])
  }
  if (options.key === undefined && mayBeObject(options.item.ast)) {
    refuse("key", "a function, for its items may be objects, which are no ids themselves", undefined)
  }
  const { backend } = options
  if (backend !== undefined && !(Context.isKey(backend) && typeof (backend as any).withPermit === "function")) {
    refuse("backend", "a backend, as Backend.Service makes it", backend)
  }
  return refuse
}

const functionOr = (refuse: Refuse, option: string, value: unknown): void => {
  if (value !== undefined && typeof value !== "function") refuse(option, "a function", value)
}

const objects: ReadonlySet<string> = new Set(["Objects", "Arrays", "ObjectKeyword"])

/** Whether an item, as the model writes it, may be an object or a list. */
const mayBeObject = (ast: SchemaAST.AST): boolean => {
  const encoded = SchemaAST.toEncoded(ast)
  return objects.has(encoded._tag) || (encoded._tag === "Union" && encoded.types.some(mayBeObject))
}

export const checkRead = (name: unknown, options: any): void => {
  const refuse = checkCommon(name, options, "lookup")
  const { fields, single, success } = options
  if (fields !== undefined && typeof fields !== "boolean") refuse("fields", "true or false", fields)
  if (fields === true && typeof success.fields !== "object") {
    refuse("fields", "a success that is a struct, for its fields to be chosen from", success, "a schema without fields")
  }
  if (single === undefined) return
  if (!isText(single?.name)) refuse("single.name", "a text that is not empty", single?.name)
  if (single.name === name) refuse("single.name", "another name than that of the list", single.name)
}

export const checkWrite = (name: unknown, options: any): void => {
  const refuse = checkCommon(name, options, "apply")
  const { approval, destructive, idempotency } = options
  if (destructive !== undefined && typeof destructive !== "boolean") {
    refuse("destructive", "true or false", destructive)
  }
  if (!(approval === "never" || approval === "always" || typeof approval === "function")) {
    const expected = '"never", "always" or a function'
    if (approval !== undefined) refuse("approval", expected, approval)
    if (destructive === true) refuse("approval", `${expected}, for it is destructive`, approval)
  }
  if (idempotency === undefined) return
  const { key, mode, scope } = idempotency ?? {}
  if (mode !== "forward" && mode !== "record") refuse("idempotency.mode", '"forward" or "record"', mode)
  if (typeof key !== "function") refuse("idempotency.key", "a function", key)
  if (scope !== undefined && scope !== "conversation" && scope !== "tenant") {
    refuse("idempotency.scope", '"conversation" or "tenant"', scope)
  }
}
