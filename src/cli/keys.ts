/** Idempotency keys for an operator: which writes are in doubt, and what became of them. */
import * as Clock from "effect/Clock"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type * as IdempotencyStore from "../IdempotencyStore.ts"
import { Misuse } from "./failure.ts"
import * as Lines from "./keyLines.ts"
import * as KeyStore from "./keyStore.ts"
import { Sizes } from "./terminal.ts"
import { clean, colours, type Paint, plain } from "./text.ts"

type Entry = IdempotencyStore.Entry

export interface ListFlags extends KeyStore.Flags {
  readonly tenant: Option.Option<string>
  readonly state: IdempotencyStore.State | "all"
  readonly limit: number
  readonly json: boolean
}

export const list = (flags: ListFlags) =>
  Effect.scoped(Effect.gen(function*() {
    const { keys, name } = yield* KeyStore.open(flags)
    const tenant = Option.getOrUndefined(flags.tenant)
    const state = flags.state === "all" ? undefined : flags.state
    const found = yield* Effect.mapError(
      keys.list({ tenant, state, limit: flags.limit + 1 }),
      KeyStore.failed(name, again)
    )
    const entries = found.slice(0, flags.limit)
    for (const entry of flags.json ? entries : []) yield* Console.log(Lines.toJson(entry))
    if (!flags.json && entries.length > 0) {
      const { columns } = (yield* Sizes).stdout()
      const now = yield* Clock.currentTimeMillis
      yield* Console.log(Lines.table(entries, { now, width: columns, paint: yield* paint }))
    }
    const what = `${state === undefined ? "" : state === "unknown" ? "in doubt " : `${state} `}in ${name}${
      tenant === undefined ? "" : ` of the tenant ${clean(tenant)}`
    }`
    if (entries.length === 0) yield* Console.error(`no keys ${what}`)
    else if (found.length > flags.limit) {
      yield* Console.error(`the first ${flags.limit} keys ${what}: --limit N shows more`)
    } else if (!flags.json) {
      yield* Console.error(`${entries.length} ${entries.length === 1 ? "key" : "keys"} ${what}`)
    }
  }))

/** Which key is meant: by the id that `list` shows, or by all its parts. */
export interface Which extends KeyStore.Flags {
  readonly id: Option.Option<string>
  readonly tenant: Option.Option<string>
  readonly conversation: Option.Option<string>
  readonly tool: Option.Option<string>
  readonly key: Option.Option<string>
}

export const show = (flags: Which & { readonly json: boolean }) =>
  Effect.scoped(Effect.gen(function*() {
    const opened = yield* KeyStore.open(flags)
    const entry = yield* find(opened, flags)
    const now = yield* Clock.currentTimeMillis
    yield* Console.log(flags.json ? Lines.toJson(entry) : Lines.details(entry, { now, paint: yield* paint }))
  }))

export interface ResolveFlags extends Which {
  readonly applied: boolean
  readonly notApplied: boolean
  readonly result: Option.Option<string>
  readonly yes: boolean
  readonly json: boolean
}

export const resolve = (flags: ResolveFlags) =>
  Effect.scoped(Effect.gen(function*() {
    const resolution = yield* resolutionOf(flags)
    const opened = yield* KeyStore.open(flags)
    const { key, leaseUntil, state } = yield* find(opened, flags)
    if (state !== "unknown") return yield* notInDoubt(key, state, leaseUntil)
    yield* confirm(Lines.consequence(key, resolution), flags.yes)
    const { keys, name } = opened
    yield* keys.resolve(key, resolution).pipe(
      Effect.catchTag("NotInDoubt", ({ state }) => notInDoubt(key, state, 0)),
      Effect.catchTag("StoreError", (error) =>
        KeyStore.failed(name, "it may have been done all the same: look with effect-turn keys show")(error))
    )
    const done = { id: Lines.idOf(key), key, state: resolution._tag === "Applied" ? "applied" : "free" }
    yield* Console.log(flags.json ? JSON.stringify(done) : Lines.resolved(key, resolution))
  }))

const again = "nothing was changed: try again"

const resolutionOf = (
  { applied, notApplied, result }: ResolveFlags
): Effect.Effect<IdempotencyStore.Resolution, Misuse> => {
  if (applied === notApplied) {
    return new Misuse({
      what: "what became of the write",
      expected: "either --applied or --not-applied",
      received: applied ? "both" : "neither",
      advice: "ask the backend which of them is true; while nobody knows, leave the key as it is"
    })
  }
  if (notApplied) {
    return Option.isNone(result) ? Effect.succeed({ _tag: "NotApplied" }) : new Misuse({
      what: "--result without --applied",
      expected: "the result of a write that took effect",
      received: `--not-applied --result ${result.value}`,
      advice: "leave it out"
    })
  }
  if (Option.isNone(result)) return Effect.succeed({ _tag: "Applied" })
  return Effect.try({
    try: () => ({ _tag: "Applied" as const, result: JSON.parse(result.value) as unknown }),
    catch: (error) =>
      new Misuse({
        what: "--result is not JSON",
        expected: "the result as the tool's success schema encodes it, such as '{\"booking\": 17}' or '\"done\"'",
        received: `${result.value} (${error instanceof Error ? error.message : String(error)})`,
        advice: "quote it for the shell; or leave --result out: then the call is told that its result is not known"
      })
  })
}

const notInDoubt = (key: IdempotencyStore.Key, state: string, leaseUntil: number): Effect.Effect<never, Misuse> =>
  new Misuse({
    what: `${Lines.label(key)} is not in doubt`,
    expected: "a key whose effect is unknown",
    received: state === "free" ? "a key without a record" : `a key that is ${state}`,
    advice: state === "reserved"
      ? `it is being run: if it is not heard of again, it is in doubt from ${new Date(leaseUntil).toISOString()} on`
      : "there is nothing to resolve: see effect-turn keys list"
  })

/** Asks on a terminal; elsewhere `--yes` has to be said. */
const confirm = (words: string, yes: boolean): Effect.Effect<void, Misuse, Stdio.Stdio> =>
  Effect.gen(function*() {
    yield* Console.error(words)
    if (yes) return
    const stdio = yield* Stdio.Stdio
    const refuse = (received: string, advice: string) =>
      new Misuse({ what: "not resolved: nothing was changed", expected: "yes", received, advice })
    if (!(yield* stdio.stdinIsTerminal)) {
      return yield* refuse("no terminal to ask on", "say --yes where nobody can be asked")
    }
    yield* Console.error("Type yes to go on:")
    const line = yield* stdio.stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.runHead, Effect.option)
    const answer = Option.getOrElse(Option.flatten(line), () => "").trim()
    if (answer.toLowerCase() !== "yes") {
      return yield* refuse(answer === "" ? "nothing" : answer, "run it again when you know")
    }
  })

const paint: Effect.Effect<Paint> = Effect.gen(function*() {
  const { columns } = (yield* Sizes).stdout()
  const env = globalThis.process?.env ?? {}
  return columns > 0 && env["TERM"] !== "dumb" && (env["NO_COLOR"] ?? "") === "" ? colours : plain
})

const find = (opened: KeyStore.Opened, which: Which): Effect.Effect<Entry, Misuse> => {
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
      advice: "see effect-turn keys list"
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
      entry !== undefined ? Effect.succeed(entry) : new Misuse({
        what: `${opened.name} has no record of ${Lines.label(key)}`,
        expected: "a key with a record",
        received: "a key that is free",
        advice: "see effect-turn keys list --state all; a key of one conversation needs --conversation"
      })
  )
}

/** Those in doubt first, for they are few, and what is asked for is mostly one of them. */
const byId = ({ keys, name }: KeyStore.Opened, text: string): Effect.Effect<Entry, Misuse> =>
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
    return yield* new Misuse({
      what: `${name} has no key with the ID ${id}`,
      expected: "an ID that effect-turn keys list shows",
      received: id,
      advice: "see effect-turn keys list --state all: it may have been resolved, freed or forgotten meanwhile"
    })
  })

const pageSize = 500
