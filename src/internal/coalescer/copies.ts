/** Items that several callers get: each its own (rule R5), by decoding the encoded one again. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import * as SchemaParser from "effect/SchemaParser"
import type { Words } from "./pairing.ts"
import { problemOf } from "./words.ts"

type Parser = (value: unknown) => Effect.Effect<unknown, unknown>

export class Copies {
  private readonly encode: Parser
  private readonly decode: Parser
  private readonly misfit: (error: unknown) => unknown

  constructor(item: Schema.Codec<any, any>, words: Words) {
    const codec = Schema.toCodecJson(item)
    this.encode = SchemaParser.encodeUnknownEffect(codec) as Parser
    this.decode = SchemaParser.decodeUnknownEffect(codec) as Parser
    this.misfit = (error) => words.invalid(`an item does not fit its schema: ${problemOf(error)}`)
  }

  /** The text that copies of an item are made from; `undefined` is its own text. An exit, unless encoding takes time. */
  text(item: unknown): Effect.Effect<string | undefined, unknown> {
    const encoded = this.encode(item)
    if (!Exit.isExit(encoded)) return Effect.mapBoth(encoded, { onFailure: this.misfit, onSuccess: textOf })
    return Exit.isSuccess(encoded) ? Exit.succeed(textOf(encoded.value)) : this.failed(encoded)
  }

  /** A copy. An exit, unless decoding takes time. */
  of(text: string | undefined): Effect.Effect<unknown, unknown> {
    const decoded = this.decode(text === undefined ? undefined : JSON.parse(text))
    if (!Exit.isExit(decoded)) return Effect.mapError(decoded, this.misfit)
    return Exit.isSuccess(decoded) ? decoded : this.failed(decoded)
  }

  private failed(exit: Exit.Exit<unknown, unknown>): Exit.Exit<never, unknown> {
    return Exit.fail(this.misfit(errorOf(exit)))
  }
}

const textOf = (encoded: unknown): string | undefined => JSON.stringify(encoded)

const errorOf = (exit: Exit.Exit<unknown, unknown>): unknown => {
  const error = Exit.findErrorOption(exit)
  return error._tag === "Some" ? error.value : "it cannot be read"
}
