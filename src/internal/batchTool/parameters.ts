/**
 * The parameters of a list: what the provider sees names the items exactly, with their bounds, and what is decoded takes any list. A bad item is for
 * the result to tell, and no reason to refuse the others.
 */
import type * as JsonSchema from "effect/JsonSchema"
import * as Schema from "effect/Schema"
import * as SchemaAST from "effect/SchemaAST"
import * as SchemaGetter from "effect/SchemaGetter"
import { couldNot } from "./items.ts"

type Compile = (schema: JsonSchema.JsonSchema) => JsonSchema.JsonSchema

/** Takes anything that is not complained about, and looks in JSON Schema as said, with the JSON Schema of `item` to say it with. */
const shownAs = (
  item: Schema.Codec<any, any>,
  compile: Compile,
  complaint: (raw: unknown) => string | undefined = () => undefined
): Schema.Codec<unknown, unknown> =>
  Schema.Any.check(
    Schema.makeFilter(complaint, {
      representation: {
        id: "effect-turn/BatchTool",
        payload: null,
        schemas: [SchemaAST.toEncoded(Schema.toCodecJson(item).ast)]
      },
      toJsonSchema: ({ schemas }: { readonly schemas: ReadonlyArray<JsonSchema.JsonSchema> }) => compile(schemas[0]!)
    } as Schema.Annotations.Filter)
  ) as any

export interface Shown {
  readonly item: Schema.Codec<any, any>
  readonly cap: number
  /** The members that a result can be cut down to. */
  readonly fields?: ReadonlyArray<string> | undefined
}

const Items = Schema.Struct({
  items: Schema.optionalKey(Schema.Array(Schema.Unknown)),
  fields: Schema.optionalKey(Schema.Unknown)
})
const ItemsAlone = Schema.Struct({ items: Items.fields.items })

const same = { decode: SchemaGetter.passthrough<any>(), encode: SchemaGetter.passthrough<any>() }

export const listOf = ({ cap, fields, item }: Shown): Schema.Codec<any, unknown> =>
  shownAs(item, (schema) => ({
    type: "object",
    properties: {
      items: {
        type: "array",
        items: schema,
        minItems: 1,
        maxItems: cap,
        description: `Everything that is wanted, at once. At most ${cap}.`
      },
      ...(fields === undefined ? undefined : {
        fields: {
          type: "array",
          items: { type: "string", enum: fields },
          description: "The fields wanted of each item. Left out: all of them."
        }
      })
    },
    required: ["items"],
    additionalProperties: false
  })).pipe(Schema.decodeTo(fields === undefined ? ItemsAlone : Items, same)) as any

/** The parameters of one item, normalised before it is checked. */
export const singleOf = (
  item: Schema.Codec<any, any>,
  normalise: (raw: unknown) => unknown
): Schema.Codec<any, any> =>
  Schema.Struct({
    item: shownAs(item, (schema) => schema, (raw) => {
      try {
        return normalise(raw) === "" ? "it is an empty text: call again with the real value" : undefined
      } catch (error) {
        return couldNot(error)
      }
    }).pipe(
      Schema.decodeTo(item, { decode: SchemaGetter.transform(normalise), encode: SchemaGetter.passthrough<any>() })
    )
  })
