/** Makes a tool that looks a list up, and its twin for one item. */
import * as AiTool from "effect/ai/Tool"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Schema from "effect/Schema"
import * as Backend from "../../Backend.ts"
import * as Coalescer from "../../Coalescer.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnError from "../../TurnError.ts"
import { keyTextOf, type List, normalised, readerOf } from "./items.ts"
import { checkRead } from "./options.ts"
import { listOf, singleOf } from "./parameters.ts"
import { compose, Empty, empty, failureText, ownOf, resultOf } from "./result.ts"
import { complaintOf, fieldsOf, project, shortener } from "./values.ts"

/** Items over the cap of a list, by tool. */
export const deferred = Metric.counter("effect_turn.batch.deferred", {
  description: "items of a list that were not asked for, by tool and reason"
})

const logged = new WeakSet<List>()

/** What is to be known of a list besides its result: what was deferred is counted, and a normalise that throws is in the log. */
export const note = (tool: string, list: List, context: Context.Context<never>): void => {
  const { thrown } = list
  if (thrown !== undefined && !logged.has(list)) {
    logged.add(list)
    const words = `the normalise of the batch tool "${tool}" threw, first for the item at position ${thrown.position}`
    Effect.runForkWith(context)(Effect.logWarning(words, thrown.error))
  }
  if (list.deferred.length === 0) return
  Metric.withAttributes(deferred, { tool, reason: "cap" }).updateUnsafe(list.deferred.length, context)
}

interface Limits {
  readonly cap: number
  readonly chunk: number
  readonly chunkTimeout: number
  /** The running clock of a list whose chunks wait in line, one after the other. */
  readonly timeout: number
  readonly singleTimeout: number
}

const longest = 2_147_483_647

export const limitsOf = (
  owner: string,
  options: {
    readonly cap?: number | undefined
    readonly chunk?: number | undefined
    readonly chunkTimeout?: ToolPolicy.Limit | undefined
  }
): Limits => {
  const cap = TurnError.wholeNumber(owner, "cap", options.cap ?? 25)
  const chunk = TurnError.wholeNumber(owner, "chunk", options.chunk ?? 10)
  const chunkTimeout = ToolPolicy.limitMillis(owner, "chunkTimeout", options.chunkTimeout ?? "2 seconds")
  const waiting = Context.get(Context.empty(), ToolPolicy.WaitTimeoutAnnotation)
  const within = (chunks: number) =>
    chunkTimeout === Infinity ? Infinity : Math.min(longest, waiting + chunks * chunkTimeout)
  return { cap, chunk, chunkTimeout, timeout: within(Math.ceil(cap / chunk)), singleTimeout: within(1) }
}

/** `keyed`: ids are told from items, and are no items themselves. */
export const overCap = (list: List, cap: number, done: string, keyed: boolean): ReadonlyArray<string> => {
  if (list.deferred.length === 0) return []
  const again = keyed
    ? "deferred_ids has their ids, of the same kind as those in ids. Call again with these items, each written as it was in this call."
    : "call again with those in deferred_ids."
  return [
    `${list.deferred.length} of the items were not ${done}, for one call takes ${cap} at most${
      keyed ? ";" : ":"
    } ${again}`
  ]
}

type Found = Exit.Exit<unknown, unknown>

/** What became of an item that was not found, or whose request came to nothing. */
interface Problem {
  readonly status: "not_found" | "error" | "timeout"
  readonly message: string
  readonly retryable: boolean
  readonly failure?: unknown
}

const isRefused = (error: unknown): error is Backend.Refused =>
  error instanceof Backend.QueueFull || error instanceof Backend.CircuitOpen ||
  error instanceof Backend.StoreUnavailable

const problemOf = (exit: Found | undefined, own: (error: unknown) => Problem): Problem => {
  const again = (message: string): Problem => ({ status: "error", message, retryable: true })
  if (exit === undefined || Exit.isSuccess(exit)) return again("nothing is known of it")
  const reason = exit.cause.reasons.find(({ _tag }) => _tag !== "Interrupt")
  if (reason === undefined || reason._tag === "Interrupt") return again("its request was stopped")
  if (reason._tag === "Die") return again(`its request failed: ${failureText(reason.defect)}`)
  const { error } = reason
  if (error instanceof Coalescer.ItemNotFound) return { status: "not_found", message: error.message, retryable: false }
  if (error instanceof Coalescer.RequestTimeout) return { status: "timeout", message: error.message, retryable: true }
  return error instanceof Coalescer.RequestFailed || error instanceof Coalescer.InvalidAnswer || isRefused(error)
    ? again(error.message)
    : own(error)
}

const isMissing = (exit: Found | undefined): exit is Exit.Failure<unknown, unknown> =>
  exit !== undefined && Exit.isFailure(exit) &&
  exit.cause.reasons.some((reason) => reason._tag === "Fail" && reason.error instanceof Coalescer.ItemNotFound)

/** An item's own failure, as far as it is declared. */
export const failureMember = (failure: Schema.Codec<any, any> | undefined) =>
  failure === undefined ? undefined : { failure: Schema.optionalKey(failure) }

const partial = (success: any): Schema.Codec<any, any> =>
  Schema.Struct(Object.fromEntries(
    Object.entries(success.fields).map(([name, field]) => [
      name,
      Schema.optionalKey(field as Schema.Codec<any, any>)
    ])
  ))

export const makeBatchTool = (name: string, options: any): any => {
  checkRead(name, options)
  const owner = `batch tool "${name}"`
  const limits = limitsOf(owner, options)
  const { cap, chunk, chunkTimeout } = limits
  const longestText = options.text === undefined ? undefined : TurnError.wholeNumber(owner, "text", options.text)
  const { failure, failures, item, key, normalise, resources, success } = options
  const known: ReadonlyArray<string> | undefined = options.fields === true ? Object.keys(success.fields) : undefined
  const reading = { cap, item, key, normalise }
  const read = readerOf(reading)
  const keyText = keyTextOf(reading)

  const coalescer = Coalescer.make<any, any, any, any, any, any, any>({
    name,
    lookup: options.lookup,
    itemKey: options.itemKey,
    keyText,
    item: success,
    resources,
    window: options.window,
    size: chunk,
    timeout: chunkTimeout === Infinity ? "infinite" : chunkTimeout,
    backend: options.backend
  })

  const value = known === undefined ? success : partial(success)
  const Other = Schema.Struct({
    status: Schema.Literals(["not_found", "invalid", "error", "timeout"]),
    message: Schema.String,
    retryable: Schema.Boolean,
    ...failureMember(failure)
  })
  const shorten = longestText === undefined ? undefined : shortener(value, longestText)

  const complaint = complaintOf(success)
  const misfit = (found: unknown, problem: string): Problem => ({
    status: "error",
    message: found === null
      ? `null was found for it, and the tool says that it is something else (${problem}): "not found" is said with undefined`
      : `what was found for it is not as the tool says that it is (${problem})`,
    retryable: false
  })

  const own = ownOf(failure)
  const ownProblem = (error: unknown): Problem => {
    const { declared, message, shown } = own(error)
    return { status: "error", message, retryable: declared && isTransient(failures, error), ...shown }
  }

  const answer = (
    params: any,
    found: ReadonlyMap<string, Found>,
    context: Context.Context<never> = Context.empty()
  ): Found => {
    const list = read(params)
    if (list.asked.length + list.invalid.length === 0) return Exit.fail(empty())
    note(name, list, context)
    const notes = [...overCap(list, cap, "looked up", key !== undefined)]
    let take: ReadonlyArray<string> | undefined
    if (known !== undefined) {
      const fields = fieldsOf(params.fields, known)
      take = fields.take
      if (fields.unknown.length > 0) {
        notes.push(`Unknown fields: ${fields.unknown.join(", ")}. Known ones: ${known.join(", ")}.`)
      }
    }
    return Exit.succeed(compose(
      list,
      (_, item) => {
        const exit = found.get(keyText(item))
        if (exit === undefined || Exit.isFailure(exit)) return problemOf(exit, ownProblem)
        const problem = complaint(exit.value)
        if (problem !== undefined) return misfit(exit.value, problem)
        const shown = take === undefined ? exit.value : project(exit.value, take)
        return { status: "ok", value: shorten === undefined ? shown : shorten(shown) }
      },
      (message) => ({ status: "invalid", message, retryable: true }),
      notes
    ))
  }
  const wants = (params: any) => read(params).items

  const policies = (
    tool: any,
    merging: Coalescer.Merging,
    timeout: number,
    keys: any,
    transient: (failure: any) => boolean
  ): any => {
    const annotated = ToolPolicy.failures({ noEffect: () => true, transient })(
      ToolPolicy.read(keys === undefined ? undefined : { keys })(tool)
    )
      .annotate(ToolPolicy.TimeoutAnnotation, timeout)
      .annotate(Coalescer.MergingAnnotation, merging)
    return options.backend === undefined
      ? annotated
      : annotated.annotate(ToolPolicy.BackendAnnotation, options.backend)
  }

  const tool = policies(
    AiTool.make(name, {
      description:
        `${options.description} Pass everything that is wanted at once, in one call with a list: up to ${cap} items.`,
      parameters: listOf({ item, cap, fields: known }),
      success: resultOf(Schema.Union([Schema.Struct({ status: Schema.Literal("ok"), value }), Other]) as any),
      failure: Empty,
      failureMode: "return"
    }),
    { coalescer, wants, answer },
    limits.timeout,
    resources === undefined ? undefined : (params: any) => unionOf(read(params).items, resources),
    () => true
  )

  const handler = Coalescer.marked((params: any) =>
    Effect.contextWith((context: Context.Context<never>) => {
      const items = wants(params)
      if (items.length === 0) return answer(params, new Map(), context)
      return Effect.flatMap(
        coalescer.loadAll(items),
        (exits) => answer(params, new Map(items.map((item, i) => [keyText(item), exits[i]!])), context)
      )
    })
  )

  if (options.single === undefined) return { tool, single: undefined, handlers: { [name]: handler }, coalescer }

  const shortenOne = longestText === undefined ? undefined : shortener(success, longestText)
  const answerOne = (exit: Found | undefined): Found => {
    if (exit !== undefined && Exit.isSuccess(exit)) {
      return shortenOne === undefined ? exit : Exit.succeed(shortenOne(exit.value))
    }
    const { status, ...problem } = problemOf(exit, ownProblem)
    return Exit.fail({ code: status.toUpperCase(), ...problem })
  }
  const { name: singleName } = options.single
  const single = policies(
    AiTool.make(singleName, {
      description:
        `${options.single.description ?? options.description} For one item alone: for more, call "${name}" ` +
        `once with all of them.`,
      parameters: singleOf(item, normalise ?? normalised),
      success,
      failure: Schema.Struct({
        code: Schema.Literals(["NOT_FOUND", "ERROR", "TIMEOUT"]),
        message: Schema.String,
        retryable: Schema.Boolean,
        ...failureMember(failure)
      }),
      failureMode: "return"
    }),
    {
      coalescer,
      wants: (params) => [params.item],
      answer: (params, found) => {
        const exit = found.get(keyText(params.item))
        // A turn has a word of its own for that.
        return isMissing(exit) ? exit : answerOne(exit)
      }
    },
    limits.singleTimeout,
    resources === undefined ? undefined : (params: any) => resources(params.item),
    (failure) => failure.retryable
  )
  const singleHandler = Coalescer.marked((params: any) =>
    Effect.flatMap(Effect.exit(coalescer.load(params.item)), answerOne)
  )
  return { tool, single, handlers: { [name]: handler, [singleName]: singleHandler }, coalescer }
}

/** A classifier that throws classes its failure in the careful way. */
export const isTransient = (failures: any, error: unknown): boolean => saysSo(failures?.transient, error)

export const saysSo = (of: ((error: any) => boolean) | undefined, error: unknown): boolean => {
  try {
    return of?.(error) === true
  } catch {
    return false
  }
}

/** The keys of all, each once. */
export const unionOf = (
  items: ReadonlyArray<unknown>,
  resources: (item: any) => ReadonlyArray<string>
): ReadonlyArray<string> => [...new Set(items.flatMap((item) => resources(item)))]
