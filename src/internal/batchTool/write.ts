/**
 * A tool that writes a list.
 *
 * - W1: what has been sent is not cut short, unless its backend honours keys. What was not sent is `not_applied`.
 * - W2: an item has no effect, was applied, or nobody knows: never is one that may have been applied told as not applied.
 */
import * as AiTool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as SchemaParser from "effect/SchemaParser"
import type * as Backend from "../../Backend.ts"
import * as Coalescer from "../../Coalescer.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnContext from "../../TurnContext.ts"
import { keyTextOf, type List, readerOf, textOf } from "./items.ts"
import { failureMember, isTransient, limitsOf, note, overCap, saysSo, unionOf } from "./make.ts"
import { checkWrite } from "./options.ts"
import { listOf } from "./parameters.ts"
import { Entry, Records, type Written } from "./record.ts"
import { compose, Empty, empty, failureText, ownOf, resultOf } from "./result.ts"
import { complaintOf } from "./values.ts"

const none = (status: Written["status"], message: string, retryable: boolean): Written => ({
  status,
  effect: "none",
  message,
  retryable
})

const stopped = none("not_applied", "the call was stopped before it was sent", true)
const heldBack = none(
  "not_applied",
  "it was not sent, for what stands before it did not succeed, and the order counts",
  true
)
/** What was not sent by this call, and may have been applied by an earlier one, is not told as not applied. */
const unsent = ({ inDoubt }: Entry, written: Written): Written =>
  inDoubt && written.status === "not_applied"
    ? {
      ...written,
      status: "in_doubt",
      effect: "unknown",
      message: `${written.message}; an earlier call may have applied it`
    }
    : written

/** A request that came to nothing as a whole: its items are told. */
const requestFailed = Symbol("a request failed")

const hasFailed = (exit: Exit.Exit<unknown, unknown> | undefined): boolean =>
  exit !== undefined && Exit.isFailure(exit) &&
  exit.cause.reasons.some((reason) => reason._tag === "Fail" && Coalescer.isOfRequest(reason.error))

const mayHave = "it may have been applied: find out before it is sent again"

export const makeWriteTool = (name: string, options: any): any => {
  checkWrite(name, options)
  const owner = `batch tool "${name}"`
  const limits = limitsOf(owner, options)
  const { cap, chunk, chunkTimeout } = limits
  const { apply, backend, failure, failures, idempotency, item, itemKey, key, normalise, ordered, resources, success } =
    options
  const forward = idempotency?.mode === "forward"
  const reading = { cap, item, key, normalise }
  const read = readerOf(reading)
  const itemText = keyTextOf(reading)
  const encode = SchemaParser.encodeUnknownExit(item as Schema.Codec<any, any>)
  const complaint = complaintOf(success)
  const own = ownOf(failure)

  // It pairs the answer of a chunk; nothing of different calls is merged here.
  const { request } = Coalescer.make<any, any, any, any, any>({
    name,
    lookup: apply,
    itemKey,
    keyText: (one) => one instanceof Entry ? itemText(one.item) : itemText(one),
    size: chunk,
    timeout: forward && chunkTimeout !== Infinity ? chunkTimeout : "infinite"
  }).parts

  /** The items of a list, as they are sent; those with something wrong are told so. */
  const entriesOf = (list: List, told: Map<string, Written>): ReadonlyArray<Entry> => {
    const texts = new Map<string, string>()
    const keys = new Set<string>()
    const entries: Array<Entry> = []
    for (const { id, item, problem } of list.asked as ReadonlyArray<any>) {
      if (problem !== undefined) continue
      const text = itemText(item)
      const same = texts.get(text)
      if (same !== undefined) {
        told.set(id, none("invalid", `it is the same item as "${same}"`, true))
        continue
      }
      texts.set(text, id)
      let idempotencyKey: string | undefined
      if (idempotency !== undefined) {
        try {
          idempotencyKey = idempotency.key(item)
        } catch {
          // As a key that is none.
        }
        if (typeof idempotencyKey !== "string" || idempotencyKey === "") {
          told.set(id, none("error", "its idempotency key cannot be told", false))
          continue
        }
        if (keys.has(idempotencyKey)) {
          told.set(id, none("key_reused", "another item of the list has the same idempotency key", false))
          continue
        }
        keys.add(idempotencyKey)
      }
      const encoded = encode(item)
      entries.push(new Entry(id, item, idempotencyKey, textOf(Exit.isSuccess(encoded) ? encoded.value : item)))
    }
    return entries
  }

  /** What became of an item that was sent. What an earlier run may have done stays in doubt, whatever this one says of itself. */
  const writtenOf = (exit: Exit.Exit<any, unknown> | undefined, { inDoubt }: Entry): Written => {
    if (exit !== undefined && Exit.isSuccess(exit)) {
      const problem = complaint(exit.value)
      return problem === undefined
        ? { status: "ok", value: exit.value, effect: "applied" }
        : {
          status: "error",
          effect: "applied",
          message: `it was applied, and its result is not as the tool says that it is (${problem})`,
          retryable: false
        }
    }
    const unknown = (what: string, status: "error" | "timeout" = "error", transient = true): Written => ({
      status,
      effect: "unknown",
      message: `${what}; ${mayHave}`,
      retryable: forward && transient
    })
    const reason = exit?.cause.reasons.find(({ _tag }) => _tag !== "Interrupt")
    if (reason === undefined || reason._tag === "Interrupt") return unknown("it was stopped after it was sent")
    if (reason._tag === "Die") return unknown(`its request failed: ${failureText(reason.defect)}`)
    const { error } = reason
    if (error instanceof Coalescer.ItemNotFound) return unknown("the answer says nothing of it")
    if (error instanceof Coalescer.RequestTimeout) return unknown(error.message, "timeout")
    if (error instanceof Coalescer.RequestFailed || error instanceof Coalescer.InvalidAnswer) {
      return unknown(error.message)
    }
    const { declared, message, shown } = own(error)
    const transient = declared && isTransient(failures, error)
    return declared && saysSo(failures?.noEffect, error) && !inDoubt
      ? { ...none("error", message, transient), ...shown }
      : { ...unknown(message, "error", transient), ...shown }
  }

  /** Sends one request, under a permit, for what nobody else has sent or sends. Gives those that somebody else is at. */
  const send = (
    records: Records,
    tenant: string,
    entries: ReadonlyArray<Entry>,
    told: Map<string, Written>
  ): Effect.Effect<ReadonlyArray<Entry>, never, any> => {
    const others: Array<Entry> = []
    const sending = Effect.uninterruptibleMask((restore) =>
      Effect.gen(function*() {
        const mine: Array<Entry> = []
        const reserving = restore(Effect.forEach(entries, (entry) =>
          Effect.map(records.reserve(entry), (verdict) => {
            if (verdict._tag === "go") mine.push(entry)
            else if (verdict._tag === "busy") others.push(entry)
            else told.set(entry.id, unsent(entry, verdict.written))
          }), { discard: true }))
        // A stop after this point finds the keys reserved, and nothing sent.
        yield* Effect.onInterrupt(
          Effect.andThen(reserving, restore(Effect.void)),
          () => Effect.forEach(mine, (entry) => records.free(entry), { discard: true })
        )
        if (mine.length === 0) return
        const requesting = request(mine as any, { tenant }, 1)
        const exit = yield* Effect.exit(records.keeping(mine, forward ? restore(requesting) : requesting))
        const found = Exit.isSuccess(exit) ? exit.value : undefined
        yield* Effect.forEach(mine, (entry) => {
          const written = writtenOf(found?.get(itemText(entry.item)), entry)
          told.set(entry.id, written)
          return records.settle(entry, written)
        }, { discard: true, concurrency: "unbounded" })
        // The circuit of the backend is to know.
        if (mine.every((entry) => hasFailed(found?.get(itemText(entry.item))))) return yield* Effect.fail(requestFailed)
      })
    )
    const permitted: Effect.Effect<void, Backend.Refused | typeof requestFailed, any> = backend === undefined
      ? sending
      : backend.withPermit(sending)
    return Effect.as(
      Effect.catch(permitted, (refused) =>
        Effect.sync(() => {
          if (refused === requestFailed) return
          for (const entry of entries) told.set(entry.id, unsent(entry, none("not_applied", refused.message, true)))
        })),
      others
    )
  }

  const chunksOf = (entries: ReadonlyArray<Entry>): ReadonlyArray<ReadonlyArray<Entry>> =>
    Array.from({ length: Math.ceil(entries.length / chunk) }, (_, i) => entries.slice(i * chunk, (i + 1) * chunk))

  /** Those of the entries that are to be sent; what the records know of the others is told. */
  const look = (records: Records, entries: ReadonlyArray<Entry>, told: Map<string, Written>) =>
    Effect.map(
      Effect.forEach(entries, (entry) => records.look(entry), { concurrency: "unbounded" }),
      (verdicts) =>
        entries.filter((entry, i) => {
          const verdict = verdicts[i]!
          if (verdict._tag === "told") told.set(entry.id, verdict.written)
          return verdict._tag !== "told"
        })
    )

  const sendAll = (
    records: Records,
    tenant: string,
    entries: ReadonlyArray<Entry>,
    told: Map<string, Written>
  ): Effect.Effect<void, never, any> =>
    Effect.gen(function*() {
      let open = yield* look(records, entries, told)
      while (open.length > 0) {
        const others = yield* Effect.forEach(chunksOf(open), (chunk) => send(records, tenant, chunk, told), {
          concurrency: "unbounded"
        })
        open = yield* look(records, others.flat(), told)
      }
    })

  /** One chunk after the other, as far as everything before it succeeded. */
  const sendInOrder = (
    records: Records,
    tenant: string,
    list: List,
    entries: ReadonlyArray<Entry>,
    told: Map<string, Written>
  ): Effect.Effect<void, never, any> =>
    Effect.gen(function*() {
      const open = new Set(yield* look(records, entries, told))
      const byId = new Map(entries.map((entry) => [entry.id, entry]))
      const unreadable = list.invalid[0]?.position ?? Infinity
      const firstBad = list.asked.findIndex(({ id, position, problem }) =>
        problem !== undefined || position > unreadable || (told.has(id) && told.get(id)!.status !== "ok")
      )
      const good = firstBad === -1 ? list.asked : list.asked.slice(0, firstBad)
      let going = true
      for (const chunk of chunksOf(good.map(({ id }) => byId.get(id)!).filter((entry) => open.has(entry)))) {
        if (!going) break
        yield* sendAll(records, tenant, chunk, told)
        going = chunk.every(({ id }) => told.get(id)?.status === "ok")
      }
      for (const entry of entries) if (!told.has(entry.id)) told.set(entry.id, unsent(entry, heldBack))
    })

  const handler = (params: any): Effect.Effect<any, any, any> =>
    Effect.contextWith((context: Context.Context<any>) => {
      const list = read(params)
      if (list.asked.length + list.invalid.length === 0) return Effect.fail(empty())
      note(name, list, context)
      const told = new Map<string, Written>()
      const entries = entriesOf(list, told)
      const call = Context.get(context, TurnContext.CurrentCall)
      const tenant = call?.identity.tenant ?? Context.getOrElse(context, TurnContext.Tenant, () => "default")
      const writing = Effect.flatMap(
        Records.make(name, idempotency, success, tenant),
        (records) =>
          ordered === true ? sendInOrder(records, tenant, list, entries, told) : sendAll(records, tenant, entries, told)
      )
      return Effect.map(entries.length === 0 ? Effect.void : untilStop(call, writing), () => {
        const notes = [...overCap(list, cap, "applied", key !== undefined)]
        for (const entry of entries) if (!told.has(entry.id)) told.set(entry.id, unsent(entry, stopped))
        if ([...told.values()].includes(heldBack)) {
          notes.push("The order counts: nothing was sent after the first item that did not succeed.")
        }
        return compose(
          list,
          (id) => told.get(id)!,
          (message) => none("invalid", message, true),
          notes
        )
      })
    })

  const result = Schema.Union([
    Schema.Struct({
      status: Schema.Literal("ok"),
      value: success,
      effect: Schema.Literal("applied"),
      replayed: Schema.optionalKey(Schema.Literal(true))
    }),
    Schema.Struct({
      status: Schema.Literals(["invalid", "not_applied", "error", "timeout", "in_doubt", "key_reused"]),
      effect: Schema.Literals(["none", "applied", "unknown"]),
      message: Schema.String,
      retryable: Schema.Boolean,
      ...failureMember(failure)
    })
  ])
  let tool: any = AiTool.make(name, {
    description: `${options.description} Pass everything at once, in one call with a list: up to ${cap} items.` +
      (ordered === true ? " They are done in this order." : ""),
    parameters: listOf({ item, cap }),
    success: resultOf(result as any),
    failure: Empty,
    failureMode: "return",
    needsApproval: approvalOf(options.approval, read)
  })
  tool = ToolPolicy.write(
    resources === undefined ? undefined : { keys: (params: any) => unionOf(read(params).items, resources) }
  )(tool)
  tool = ToolPolicy.failures({ noEffect: () => true, transient: () => true })(tool)
  tool = tool.annotate(ToolPolicy.TimeoutAnnotation, limits.timeout)
  if (options.destructive !== undefined) tool = tool.annotate(AiTool.Destructive, options.destructive)
  return { tool, handlers: { [name]: handler } }
}

/** A list of nothing that could be done needs nobody's approval. */
const approvalOf = (approval: any, read: (params: any) => List) => {
  if (approval === undefined || approval === "never") return undefined
  return (params: any): boolean | Effect.Effect<boolean> => {
    const { items } = read(params)
    if (items.length === 0) return false
    return approval === "always" ? true : approval(items)
  }
}

/** Runs in a fiber of its own, which is told when the call is to stop: what has not been sent by then is not sent. */
const untilStop = (
  call: TurnContext.CallContext | undefined,
  writing: Effect.Effect<void, never, any>
): Effect.Effect<void, never, any> => {
  if (call?.onStop === undefined) return writing
  return Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(Effect.forkChild(writing, { startImmediately: true }), (fiber) => {
      let isStopped = false
      const unheed = call.onStop!(() => {
        isStopped = true
        fiber.interruptUnsafe()
      })
      return restore(Fiber.await(fiber)).pipe(
        Effect.onExit(() => Effect.andThen(Effect.sync(unheed), Fiber.interrupt(fiber))),
        Effect.flatMap((exit) => isStopped && Exit.hasInterrupts(exit) ? Effect.void : exit)
      )
    })
  )
}
