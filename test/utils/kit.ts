/**
 * What the tests of turns are built from: tools of every kind over one set of parameters, handlers whose behaviour a test
 * scripts, and a book in which every run is written down with its place in one order of all things.
 *
 * Time is virtual: `drive` runs an effect and moves the clock until it has ended.
 */
import { Backend, ToolCall, ToolPolicy, Turn, TurnContext, TurnJournal } from "effect-turn"
import type { Outcome, TurnError, TurnEvent, TurnStore } from "effect-turn"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"

/** A backend for everybody, and one with a share for each tenant. */
export class Api extends Backend.Service<Api>()("test/Api") {}
export class Crm extends Backend.TenantService<Crm>()("test/Crm") {}

/** `tag` names the behaviour, `k` are the keys. */
export const Params = Schema.Struct({
  tag: Schema.String,
  k: Schema.optionalKey(Schema.Array(Schema.String)),
  n: Schema.optionalKey(Schema.Finite)
})
type Params = typeof Params.Type

const tool = <const Name extends string>(name: Name) =>
  Tool.make(name, { parameters: Params, success: Schema.Unknown, failure: Schema.String })

const keys = ({ k }: Params) => k ?? []
const keyed = { keys }

export const tools = {
  /** A read of the keys `k`. */
  read: pipe(tool("read"), ToolPolicy.read(keyed)),
  /** A write of the keys `k`. */
  write: pipe(tool("write"), ToolPolicy.write(keyed)),
  /** A write of the keys `k` that carries an idempotency key. */
  put: pipe(tool("put"), ToolPolicy.write(keyed), ToolPolicy.forward(({ tag }) => `key:${tag}`)),
  /** A read of unknown reach. */
  look: pipe(tool("look"), ToolPolicy.read()),
  /** A tool without any policy. */
  bare: tool("bare"),
  /** A read and a write of the keys `k` on the backend `Api`, and on `Crm`. */
  fetch: pipe(tool("fetch"), ToolPolicy.read(keyed), ToolPolicy.on(Api)),
  post: pipe(tool("post"), ToolPolicy.write(keyed), ToolPolicy.on(Api)),
  find: pipe(tool("find"), ToolPolicy.read(keyed), ToolPolicy.on(Crm)),
  save: pipe(tool("save"), ToolPolicy.write(keyed), ToolPolicy.on(Crm)),
  /** A write of the keys `k` that waits for a human. */
  pay: pipe(
    Tool.make("pay", { parameters: Params, success: Schema.Unknown, failure: Schema.String, needsApproval: true }),
    ToolPolicy.write(keyed)
  ),
  /** A write of the keys `k` that asks whether it waits for a human, for |n| ms; below 0 the answer is yes. */
  ask: pipe(
    Tool.make("ask", {
      parameters: Params,
      success: Schema.Unknown,
      failure: Schema.String,
      needsApproval: ({ n }) => n === undefined ? false : Effect.as(Effect.sleep(Math.abs(n)), n < 0)
    }),
    ToolPolicy.write(keyed)
  )
}

export type Name = keyof typeof tools

export const toolkit = Toolkit.make(
  tools.read,
  tools.write,
  tools.put,
  tools.look,
  tools.bare,
  tools.fetch,
  tools.post,
  tools.find,
  tools.save,
  tools.pay,
  tools.ask
)

/** What a scripted handler does. The default is to succeed after 10 ms with its tag. */
export interface Does {
  /** How long it takes; 0 ends at once, `Infinity` never. */
  readonly ms?: number
  readonly end?: "ok" | "fail" | "die" | "interrupt"
  readonly result?: unknown
  /** Goes on to its end although it was told to stop. */
  readonly deaf?: boolean
  /** How long its clean-up takes when it was stopped. */
  readonly cleanup?: number
  /** Notes of progress, in ms from its start. */
  readonly notes?: ReadonlyArray<number>
  /** Runs this in its time's place. */
  readonly run?: Effect.Effect<unknown, string, any>
}

/** One run of a handler. `began` and `ended` are places in the order of everything that happened. */
export interface Ran {
  readonly tool: Name
  readonly tag: string
  readonly keys: ReadonlyArray<string> | undefined
  readonly turn: string
  readonly position: number
  readonly idempotencyKey: string | undefined
  readonly began: number
  readonly at: number
  ended: number | undefined
  endedAt: number | undefined
  end: "ok" | "fail" | "die" | "interrupt" | undefined
}

export class Book {
  readonly runs: Array<Ran> = []
  readonly events: Array<TurnEvent.TurnEvent> = []
  readonly script = new Map<string, Does>()
  private order = 0

  tick(): number {
    return this.order++
  }

  /** To be given as `onEvent`. */
  readonly note = (event: TurnEvent.TurnEvent): void => {
    this.events.push(event)
  }

  get atWork(): ReadonlyArray<Ran> {
    return this.runs.filter((run) => run.ended === undefined)
  }

  of(tag: string): Ran {
    const found = this.runs.filter((run) => run.tag === tag)
    if (found.length !== 1) throw new Error(`expected one run of "${tag}", and there are ${found.length}`)
    return found[0]!
  }

  count(tag: string): number {
    return this.runs.filter((run) => run.tag === tag).length
  }

  /** When a run started and ended. */
  span(tag: string): readonly [number, number | undefined] {
    const run = this.of(tag)
    return [run.at, run.endedAt]
  }

  tagsOf(tag: TurnEvent.TurnEvent["_tag"]): ReadonlyArray<TurnEvent.TurnEvent> {
    return this.events.filter((event) => event._tag === tag)
  }

  handler(name: Name) {
    return (params: Params, context: { readonly preliminary: (result: unknown) => Effect.Effect<void> }) => {
      const does = this.script.get(params.tag) ?? {}
      return Effect.gen({ self: this }, function*() {
        const call = yield* TurnContext.CurrentCall
        const ran: Ran = {
          tool: name,
          tag: params.tag,
          keys: name === "bare" || name === "look" ? undefined : keys(params),
          turn: call?.identity.turn ?? "",
          position: call?.position ?? -1,
          idempotencyKey: call?.idempotencyKey,
          began: this.tick(),
          at: yield* Clock.currentTimeMillis,
          ended: undefined,
          endedAt: undefined,
          end: undefined
        }
        this.runs.push(ran)
        const close = (exit: Exit.Exit<unknown, unknown>) =>
          Effect.map(Clock.currentTimeMillis, (now) => {
            ran.end = Exit.isSuccess(exit)
              ? "ok"
              : Exit.hasDies(exit)
              ? "die"
              : Exit.hasInterrupts(exit)
              ? "interrupt"
              : "fail"
            ran.endedAt = now
            ran.ended = this.tick()
          })
        return yield* Effect.onExit(this.work(params, does, context), close)
      })
    }
  }

  private work(
    { tag }: Params,
    does: Does,
    { preliminary }: { readonly preliminary: (result: unknown) => Effect.Effect<void> }
  ): Effect.Effect<unknown, string, any> {
    const ms = does.ms ?? 10
    const sleep = ms === 0 ? Effect.void : ms === Infinity ? Effect.never : Effect.sleep(ms)
    const notes = does.notes === undefined ? Effect.void : Effect.gen(function*() {
      let at = 0
      for (const next of does.notes!) {
        yield* Effect.sleep(next - at)
        at = next
        yield* preliminary(`${tag} at ${at}`)
      }
    })
    const timed = does.run ?? Effect.andThen(Effect.all([sleep, notes], { concurrency: "unbounded" }), Effect.void)
    const body = does.cleanup === undefined ? timed : Effect.onInterrupt(timed, () => Effect.sleep(does.cleanup!))
    const end = does.end ?? "ok"
    const whole: Effect.Effect<unknown, string, any> = Effect.flatMap(body, (value) =>
      end === "ok"
        ? Effect.succeed(does.run !== undefined ? value : "result" in does ? does.result : tag)
        : end === "fail"
        ? Effect.fail(`${tag} failed`)
        : end === "die"
        ? Effect.die(new Error(`${tag} broke`))
        : Effect.interrupt)
    return does.deaf === true ? Effect.uninterruptible(whole) : whole
  }

  /** The handlers of all tools. */
  get layer() {
    return toolkit.toLayer(
      Object.fromEntries(Object.keys(tools).map((name) => [name, this.handler(name as Name)])) as any
    ) as Layer.Layer<Tool.HandlersFor<Toolkit.Tools<typeof toolkit>>>
  }
}

export interface LabOptions {
  readonly api?: Parameters<typeof Api.layer>[0]
  readonly crm?: Parameters<typeof Crm.layer>[0]
  readonly runtime?: Turn.LayerOptions
  readonly script?: { readonly [tag: string]: Does }
}

export interface Lab {
  readonly book: Book
  readonly layer: Layer.Layer<
    Turn.Runtime | Api | Crm | TurnContext.Tenant | Tool.HandlersFor<Toolkit.Tools<typeof toolkit>>
  >
}

/** Everything that turns of the toolkit need, for the tenant `"t"`. */
export const lab = (options: LabOptions = {}): Lab => {
  const book = new Book()
  for (const [tag, does] of Object.entries(options.script ?? {})) book.script.set(tag, does)
  return {
    book,
    layer: Layer.mergeAll(
      Turn.layer(options.runtime),
      Api.layer(options.api ?? { concurrency: "infinite" }),
      Crm.layer(options.crm ?? { concurrency: "infinite", perTenant: "infinite" }),
      Layer.succeed(TurnContext.Tenant, "t"),
      book.layer
    )
  }
}

/** A call whose id is its tag. */
export const call = (
  name: Name,
  tag: string,
  k?: ReadonlyArray<string>,
  more?: { readonly id?: string; readonly n?: number }
) =>
  ToolCall.make(more?.id ?? tag, name, {
    tag,
    ...(k === undefined ? undefined : { k }),
    ...(more?.n === undefined ? undefined : { n: more.n })
  })

/** Starts an effect beside the test; it has run to its first asynchronous point. */
export const fork = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

/** Runs an effect to its end in virtual time, or fails when it has not ended by then. */
export const drive = <A, E, R>(effect: Effect.Effect<A, E, R>, millis = 1_000_000): Effect.Effect<A, E, R> =>
  Effect.gen(function*() {
    const fiber = yield* fork(effect)
    yield* TestClock.adjust(millis)
    return yield* ended(fiber)
  })

/** The end of a fiber that must have ended by now. */
export const ended = <A, E>(fiber: Fiber.Fiber<A, E>): Effect.Effect<A, E> =>
  Effect.suspend(() => {
    const exit = fiber.pollUnsafe()
    if (exit === undefined) throw new Error("the fiber has not ended")
    return exit
  })

/** Outcomes as short texts: `ok`, `error/failed`, `cancelled/by_caller`. */
export const words = (outcomes: ReadonlyArray<Outcome.Outcome<any>>): ReadonlyArray<string> =>
  outcomes.map((outcome) => "code" in outcome ? `${outcome.status}/${outcome.code}` : outcome.status)

/** Runs calls of the lab's toolkit. */
export const run = (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) =>
  Turn.run(toolkit, calls, options)

/** The snapshot of a backend with nothing out and nobody in line. */
export const idle = (concurrency: number, perTenant: number | "infinite" = "infinite"): Backend.Stats => ({
  concurrency,
  perTenant: perTenant === "infinite" ? Infinity : perTenant,
  queueLimit: Infinity,
  rate: undefined,
  circuit: undefined,
  running: 0,
  waiting: 0,
  tenants: Object.create(null)
})

/** Runs calls of tools that a test makes itself, with their handlers by name. */
export const runWith = (
  made: ReadonlyArray<Tool.Any>,
  handlers: Record<string, (params: any, context: any) => any>,
  calls: ReadonlyArray<ToolCall.ToolCall>,
  options?: Turn.Options
): Effect.Effect<ReadonlyArray<Outcome.Outcome<any>>, TurnError.TurnError> => {
  const kit = Toolkit.make(...(made as ReadonlyArray<any>))
  const layer = Layer.mergeAll(kit.toLayer(handlers as any), Turn.layer()) as Layer.Layer<any>
  return Turn.run(kit, calls, options).pipe(Effect.provide(layer)) as Effect.Effect<any, TurnError.TurnError>
}

/** A journal that does these steps, and nothing else. */
export const journalOf = (steps: {
  readonly reserve?: (key: TurnJournal.CallKey) => Effect.Effect<unknown, TurnStore.StoreError>
  readonly free?: (key: TurnJournal.CallKey) => Effect.Effect<unknown, TurnStore.StoreError>
  readonly settle?: (key: TurnJournal.CallKey) => Effect.Effect<unknown, TurnStore.StoreError>
}): Layer.Layer<TurnJournal.TurnJournal> => {
  const { free = () => Effect.void, reserve = () => Effect.void, settle = () => Effect.void } = steps
  return Layer.succeed(TurnJournal.TurnJournal, {
    lease: 30_000,
    reserve: (key) => Effect.as(reserve(key), { _tag: "Reserved", again: false } as const),
    renew: () => Effect.succeed(true),
    free: (key) => Effect.as(free(key), true),
    settle: (key) => Effect.as(settle(key), true),
    amend: () => Effect.succeed(true),
    entries: () => Effect.succeed([]),
    expire: Effect.succeed(0)
  })
}
