/** Finds the key that is meant. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as IdempotencyStore from "../IdempotencyStore.ts"
import { Misuse } from "./failure.ts"
import * as Lines from "./keyLines.ts"
import * as KeyStore from "./keyStore.ts"

type Entry = IdempotencyStore.Entry

/** Which key is meant: by the id that `list` shows, or by all its parts. */
export interface Which extends KeyStore.Flags {
  readonly id: Option.Option<string>
  readonly tenant: Option.Option<string>
  readonly conversation: Option.Option<string>
  readonly tool: Option.Option<string>
  readonly key: Option.Option<string>
}

export const again = "nothing was changed: try again"

export const find = (opened: KeyStore.Opened, which: Which): Effect.Effect<Entry, Misuse> => {
  const parts = (["tenant", "conversation", "tool", "key"] as const).filter((part) => Option.isSome(which[part]))
  if (Option.isSome(which.id)) {
    return parts.length === 0 ? byId(opened, which.id.value) : new Misuse({
      what: "which key is meant",
      expected: "an ID, or the parts of a key",
      received: `an ID and --${parts.join(" --")}`,
      advice: "leave one of them out"
    })
  }
  if (Option.isNone(which.tool) || Option.isNone(which.key)) {
    return new Misuse({
      what: "which key is meant",
      expected:
        "the ID that effect-turn keys list shows, or --tool and --key, with --tenant and --conversation where it has them",
      received: parts.length === 0 ? "neither" : `--${parts.join(" --")}`,
      advice: Option.isSome(which.tenant)
        ? "see effect-turn keys list"
        : 'see effect-turn keys list; say --tenant too, unless it is "default"'
    })
  }
  const key: IdempotencyStore.Key = {
    tenant: Option.getOrElse(which.tenant, () => "default"),
    ...(Option.isSome(which.conversation) ? { conversation: which.conversation.value } : undefined),
    tool: which.tool.value,
    key: which.key.value
  }
  return Effect.flatMap(
    Effect.mapError(opened.keys.lookUp(key), KeyStore.failed(opened.name, again)),
    (entry) =>
      entry !== undefined ? Effect.succeed(entry) : Effect.flatMap(opened.emptiness, (emptiness) =>
        new Misuse({
          what: `${opened.name} has no record of ${Lines.label(key)}`,
          expected: "a key with a record",
          received: emptiness === undefined ? "a key that is free" : "an empty store",
          advice: emptiness ?? [
            "see effect-turn keys list --state all",
            ...(Option.isSome(which.tenant) ? [] : ['without --tenant it is the tenant "default" that is looked in']),
            ...(Option.isSome(which.conversation) ? [] : ["a key of one conversation needs --conversation"])
          ].join("; ")
        }))
  )
}

/** Those in doubt first, for they are few, and what is asked for is mostly one of them. */
const byId = ({ emptiness, keys, name }: KeyStore.Opened, text: string): Effect.Effect<Entry, Misuse> =>
  Effect.gen(function*() {
    const id = text.toLowerCase()
    const shape = /^[0-9a-f]{4,12}$/
    if (!shape.test(id)) {
      return yield* new Misuse({
        what: "no ID of a key",
        expected: "the ID that effect-turn keys list shows, or its first 4 characters or more",
        received: text,
        advice: "see effect-turn keys list, or name the key with --tool and --key"
      })
    }
    for (const state of ["unknown", undefined] as const) {
      const found: Array<Entry> = []
      let after: IdempotencyStore.Key | undefined
      for (;;) {
        const page = yield* Effect.mapError(keys.list({ state, after, limit: pageSize }), KeyStore.failed(name, again))
        for (const entry of page) if (Lines.idOf(entry.key).startsWith(id)) found.push(entry)
        if (page.length < pageSize) break
        after = page[page.length - 1]!.key
      }
      if (found.length === 1) return found[0]!
      if (found.length > 1) {
        return yield* new Misuse({
          what: `${found.length} keys have an ID that begins with ${id}`,
          expected: "more of the ID",
          received: found.slice(0, 5).map(({ key }) => Lines.idOf(key)).join(", "),
          advice: "give one of these"
        })
      }
    }
    const none = yield* emptiness
    return yield* new Misuse({
      what: `${name} has no key with the ID ${id}`,
      expected: "an ID that effect-turn keys list shows",
      received: id,
      advice: none ?? "see effect-turn keys list --state all: it may have been resolved, freed or forgotten meanwhile"
    })
  })

const pageSize = 500
