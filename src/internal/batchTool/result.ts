/**
 * What a list is answered with: what became of each item, keyed by its id (rule R26).
 *
 * - R1: each id that was asked for stands in `ids` and `results`, or in `deferred_ids`; what has no id stands in `invalid`.
 * - R2: `ok + other + deferred = requested`.
 */
import * as Schema from "effect/Schema"
import * as Coalescer from "../../Coalescer.ts"
import type { List } from "./items.ts"
import { complaintOf, put } from "./values.ts"

const Invalid = Schema.Struct({ position: Schema.Int, message: Schema.String, retryable: Schema.Boolean })

/** The schema of a result, from that of what one item comes to. */
export const resultOf = (one: Schema.Codec<any, any>): Schema.Codec<any, any> =>
  Schema.Struct({
    status: Schema.Literals(["ok", "partial", "error"]),
    summary: Schema.Struct({
      requested: Schema.Int,
      ok: Schema.Int,
      other: Schema.Int,
      deferred: Schema.Int
    }),
    ids: Schema.Array(Schema.String),
    results: Schema.Record(Schema.String, one),
    invalid: Schema.Array(Invalid),
    deferred_ids: Schema.Array(Schema.String),
    note: Schema.String
  })

/** The failure of a list that is empty. */
export const Empty = Schema.Struct({ code: Schema.Literal("EMPTY"), message: Schema.String })

export const empty = (): typeof Empty.Type => ({
  code: "EMPTY",
  message: 'the list has no items: call again with all that are wanted in "items"'
})

/** The words that a failure has. */
const wordsIn = (error: unknown): string | undefined => {
  if (typeof error === "string") return error
  const message: unknown = (error as { readonly message?: unknown } | null | undefined)?.message
  return typeof message === "string" && message !== "" ? message : undefined
}

/** The words of a failure. */
export const failureText = (error: unknown): string => {
  const words = wordsIn(error)
  if (words !== undefined) return words
  try {
    return JSON.stringify(error) ?? String(error)
  } catch {
    return "it failed"
  }
}

interface Own {
  readonly message: string
  /** Whether it is as the tool says that it is: what is not is shown to nobody, and classed by nobody. */
  readonly declared: boolean
  readonly shown: { readonly failure?: unknown }
}

/** What is told of an item's own failure. */
export const ownOf = (failure: Schema.Codec<any, any> | undefined): (error: unknown) => Own => {
  if (failure === undefined) return (error) => ({ message: failureText(error), declared: true, shown: {} })
  const complaint = complaintOf(failure)
  return (error) => {
    const problem = complaint(error)
    if (problem !== undefined) {
      const message = `${Coalescer.inWords.wordsOf(error)} (its failure is not as the tool says that it is: ${problem})`
      return { message, declared: false, shown: {} }
    }
    const message = wordsIn(error) ?? 'it failed by itself: "failure" says how'
    return { message, declared: true, shown: { failure: error } }
  }
}

interface One {
  readonly status: string
}

/** Puts a result together; `of` tells what became of the item of an id. */
export const compose = (
  list: List,
  of: (id: string, item: unknown) => One,
  invalid: (message: string) => One,
  notes: ReadonlyArray<string>
): object => {
  const ids: Array<string> = []
  const results: Record<string, One> = {}
  let ok = 0
  for (const asked of list.asked) {
    const one: One = asked.problem === undefined
      ? of(asked.id, asked.item)
      : invalid(asked.problem)
    if (one.status === "ok") ok++
    ids.push(asked.id)
    put(results, asked.id, one)
  }
  const deferred = list.deferred.length
  const other = ids.length - ok + list.invalid.length
  return {
    status: other === 0 && deferred === 0 ? "ok" : ok === 0 ? "error" : "partial",
    summary: { requested: ok + other + deferred, ok, other, deferred },
    ids,
    results,
    invalid: list.invalid,
    deferred_ids: list.deferred,
    note: notes.join(" ")
  }
}
