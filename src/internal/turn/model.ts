/**
 * A `LanguageModel` whose calls run as turns: the inner model is asked with its own resolution off, and what it calls is run here.
 *
 * - G1: every call that is let out is answered once, in the order of the calls, before the response ends: also where the response
 *   breaks off.
 * - G2: an approval runs its call once, however often it is sent; whoever sends it meanwhile waits for that run.
 * - G3: the inner model is given prompts in which every call has its answer in the next message, and no approval that it could resolve.
 */
import type * as AiError from "effect/ai/AiError"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import * as Response from "effect/ai/Response"
import type * as Tool from "effect/ai/Tool"
import type * as Toolkit from "effect/ai/Toolkit"
import type * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Approval from "../../Approval.ts"
import * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnContext from "../../TurnContext.ts"
import type * as TurnEvent from "../../TurnEvent.ts"
import type { BeginOptions } from "./begin.ts"
import * as Ledger from "./ledger.ts"
import {
  type Answers,
  type AnyCall,
  type AnyOutcome,
  type AnyPart,
  type AnyResult,
  contentOf,
  deniedPart,
  inHistory,
  newId,
  preliminaryPart,
  resultPart,
  Said
} from "./said.ts"
import type { AnyToolkit } from "./tool.ts"

/** What the model is governed with: the functions of `Turn`, on the runtime of its layer. */
export interface Governing {
  readonly options: BeginOptions
  readonly run: (
    toolkit: AnyToolkit,
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options: BeginOptions
  ) => Effect.Effect<ReadonlyArray<AnyOutcome>>
  readonly open: (toolkit: AnyToolkit, options: BeginOptions) => Effect.Effect<Listening, never, Scope.Scope>
  readonly memory: Memory
}

/** A turn that is told its calls one by one. */
interface Listening {
  readonly submit: (call: ToolCall.ToolCall) => Effect.Effect<void>
  readonly end: (reason: ToolCall.FinishReason | undefined) => Effect.Effect<ReadonlyArray<AnyOutcome>>
}

/** How many approvals are remembered: those that were asked for, and those that were used. */
const remembered = 1_000

/** What models of one runtime remember. */
export class Memory {
  /** Approvals that are used: the answer of their call, once it is there; undefined for a call that never started. */
  readonly used = new Map<string, Deferred.Deferred<AnyResult | undefined>>()
  readonly answers: Answers = new WeakMap()
  /** What approvals were asked for: the tool and its arguments. */
  private readonly asked = new Map<string, string>()

  /** A new approval of a call. */
  ask(call: AnyCall): Effect.Effect<AnyPart> {
    return Effect.map(newId, (approvalId) => {
      this.asked.set(approvalId, shownOf(call))
      if (this.asked.size > remembered) this.asked.delete(this.asked.keys().next().value!)
      return Response.makePart("tool-approval-request", { approvalId, toolCallId: call.id })
    })
  }

  /** Whether this is the call that was shown; of approvals that are not remembered the history is believed, as by `effect/ai`. */
  isOf(approvalId: string, call: Prompt.ToolCallPart): boolean {
    const shown = this.asked.get(approvalId)
    return shown === undefined || shown === shownOf(call)
  }

  use(key: string): Deferred.Deferred<AnyResult | undefined> {
    const answer = Deferred.makeUnsafe<AnyResult | undefined>()
    this.used.set(key, answer)
    return answer
  }

  settle(key: string, answer: AnyResult | undefined): void {
    const waiting = this.used.get(key)
    if (waiting === undefined || Deferred.isDoneUnsafe(waiting)) return
    Deferred.doneUnsafe(waiting, Effect.succeed(answer))
    if (answer === undefined) this.used.delete(key)
    if (this.used.size <= remembered) return
    for (const [key, one] of this.used) {
      if (!Deferred.isDoneUnsafe(one)) continue
      this.used.delete(key)
      return
    }
  }
}

const shownOf = ({ name, params }: { readonly name: string; readonly params: unknown }): string =>
  JSON.stringify([name, contentOf(params)])

const memories = new WeakMap<object, Memory>()

export const memoryOf = (runtime: object): Memory => {
  let memory = memories.get(runtime)
  if (memory === undefined) memories.set(runtime, memory = new Memory())
  return memory
}

type AnyOptions = LanguageModel.GenerateTextOptions<any>
type Tools = Record<string, Tool.Any>

/** A prompt to be sent, and the answers that were found before it was. */
interface Before {
  readonly toolkit: AnyToolkit & { readonly tools: Tools }
  readonly prompt: Prompt.Prompt
  readonly parts: ReadonlyArray<AnyResult>
  readonly options: BeginOptions
}

export const governed = (inner: LanguageModel.LanguageModel, by: Governing): LanguageModel.LanguageModel => {
  const whole = (ask: (options: any) => Effect.Effect<any, any, any>, options: AnyOptions) =>
    isUntouched(options) ? ask(options) : respond(by, ask, options)
  return {
    ...inner,
    generateText: ((options: AnyOptions) => whole(inner.generateText as any, options)) as any,
    generateObject: ((options: AnyOptions) => whole(inner.generateObject as any, options)) as any,
    streamText: ((options: AnyOptions) =>
      isUntouched(options)
        ? inner.streamText(options as any)
        : Stream.unwrap(open(by, inner.streamText as any, options))) as any
  }
}

const isUntouched = (options: AnyOptions): boolean =>
  options.toolkit === undefined || options.disableToolCallResolution === true

/** The options of the request to the inner model. */
const request = (options: AnyOptions, { prompt, toolkit }: Before) => ({
  ...options,
  prompt,
  toolkit,
  disableToolCallResolution: true,
  toolCallValidation: "deferred"
})

const respond = Effect.fnUntraced(
  function*(by: Governing, ask: (options: any) => Effect.Effect<any, any, any>, options: AnyOptions) {
    const before = yield* prepare(by, options)
    const response = yield* ask(request(options, before))
    const said = new Said()
    const content: Array<AnyPart> = [...before.parts]
    for (const part of response.content as ReadonlyArray<AnyPart>) {
      const out = part.type === "tool-call" ? yield* said.accept(part) : part
      if (out !== undefined) content.push(out)
    }
    if (said.calls.length > 0) {
      const outcomes = yield* by.run(before.toolkit, said.calls, {
        ...before.options,
        finishReason: reasonOf(response.content)
      })
      for (const [position, outcome] of outcomes.entries()) {
        const part = said.parts[position]
        if (part !== undefined) content.push(yield* answerOf(by.memory, part, outcome, before.toolkit.tools))
      }
    }
    return "value" in response
      ? new LanguageModel.GenerateObjectResponse(response.value, content)
      : new LanguageModel.GenerateTextResponse(content)
  }
)

/** A call that is held is asked about; every other has its answer. */
const answerOf = (memory: Memory, call: AnyCall, outcome: AnyOutcome, tools: Tools): Effect.Effect<AnyPart> =>
  outcome.status === "pending_approval"
    ? memory.ask(call)
    : Effect.succeed(resultPart(call.id, outcome, tools) as AnyPart)

/** What `effect/ai` takes for the end of a response that is whole: after any other it runs nothing, and neither does a turn. */
const isWhole = (reason: Response.FinishReason): boolean =>
  reason === "stop" || reason === "tool-calls" || reason === "pause"

const reasonOf = (
  parts: ReadonlyArray<{ readonly type: string; readonly reason?: unknown }>
): ToolCall.FinishReason | undefined => {
  const reasons = parts.flatMap((part) => part.type === "finish" ? [part.reason as Response.FinishReason] : [])
  const reason = reasons.find((one) => !isWhole(one)) ?? reasons[0]
  return reason === undefined || isWhole(reason) || ToolCall.isCutShort(reason) ? reason : "error"
}

/** Resolves the toolkit as `effect/ai` does, answers what the prompt has approvals for, and puts it in order. */
const prepare = Effect.fnUntraced(function*(by: Governing, options: AnyOptions) {
  const given = options.toolkit as any
  const toolkit: Before["toolkit"] = Effect.isEffect(given) && !("tools" in given)
    ? (yield* given as Effect.Effect<Toolkit.WithHandler<any>, any, any>)
    : given
  const { concurrency } = options
  const asked = Prompt.make(options.prompt)
  const turn: BeginOptions = {
    ...by.options,
    // A decision comes with a later prompt, and not to this turn.
    reports: true,
    asParts: true,
    messages: asked.content,
    ...(concurrency === undefined
      ? undefined
      : { execution: concurrency === "unbounded" ? "parallel" as const : concurrency })
  }
  const ledger = Ledger.read(asked.content)
  const parts = yield* decided(by, toolkit, ledger, turn)
  const prompt = Ledger.arrange(asked, ledger, (entry) => {
    const { id, params } = entry.call
    const known = typeof params === "object" && params !== null ? by.memory.answers.get(params) : undefined
    return known?.id === id ? known : unanswered(entry, toolkit.tools)
  })
  return { toolkit, prompt, parts, options: turn } satisfies Before
})

/** Answers the calls for which the prompt holds a decision and no answer; gives the answers, in the order of the calls. */
const decided = Effect.fnUntraced(
  function*(by: Governing, toolkit: Before["toolkit"], { entries }: Ledger.Ledger, turn: BeginOptions) {
    const open = entries.filter(({ answer, call, decision }) =>
      // Changed arguments need a new approval (rule R10).
      answer === undefined && decision !== undefined && by.memory.isOf(decision.approvalId, call)
    )
    if (open.length === 0) return []
    const approved = yield* runApproved(by, toolkit, open.filter((entry) => entry.decision!.approved), turn)
    return open.map((entry) => {
      const { decision } = entry
      const { id, name } = entry.call
      const part = approved.get(entry) ?? deniedPart(id, name, decision!.reason)
      entry.answer = inHistory(part)
      return part
    })
  }
)

const approve = Approval.approve()

/** Runs approved calls as one turn. A call whose approval was used before is answered as it was then (G2). */
const runApproved = (
  by: Governing,
  toolkit: Before["toolkit"],
  entries: ReadonlyArray<Ledger.Entry>,
  turn: BeginOptions
): Effect.Effect<Map<Ledger.Entry, AnyResult>> =>
  Effect.withFiber((fiber) => {
    const { memory } = by
    const tenant = Context.getOrElse(fiber.context as Context.Context<any>, TurnContext.Tenant, () => "default")
    const answers = new Map<Ledger.Entry, AnyResult>()
    const keyOf = ({ call, decision }: Ledger.Entry) =>
      JSON.stringify([tenant, decision!.approvalId, call.id, call.name, contentOf(call.params)])
    const round: Effect.Effect<Map<Ledger.Entry, AnyResult>> = Effect.suspend(() => {
      const left = entries.filter((entry) => !answers.has(entry))
      const known = left.flatMap((entry) => {
        const answer = memory.used.get(keyOf(entry))
        return answer === undefined ? [] : [{ entry, answer }]
      })
      if (left.length === 0) return Effect.succeed(answers)
      // Marked before anything can run.
      const fresh = left.filter((entry) => !memory.used.has(keyOf(entry)) && memory.use(keyOf(entry)) !== undefined)
      const keys = fresh.map(keyOf)
      const settle = (outcomes: ReadonlyArray<AnyOutcome>) => {
        for (const [i, outcome] of outcomes.entries()) {
          const part = resultPart(fresh[i]!.call.id, outcome, toolkit.tools)
          // What was never started has not used its approval.
          memory.settle(keys[i]!, outcome.started ? part : undefined)
          answers.set(fresh[i]!, part)
        }
      }
      const run = fresh.length === 0 ? Effect.void : Effect.ensuring(
        by.run(toolkit, fresh.map(({ call }) => ToolCall.make(call.id, call.name, call.params)), {
          ...turn,
          // What was approved is a call with these arguments: others that a middleware gives it are approved by nobody yet.
          decide: (request) => {
            const args = contentOf(fresh[request.position]?.call.params)
            return args !== undefined && args === contentOf(request.arguments) ? approve : turn.decide?.(request)
          },
          onClosed: (closed) =>
            Effect.suspend(() => {
              settle(closed.outcomes)
              return turn.onClosed?.(closed) ?? Effect.void
            })
        }),
        Effect.sync(() => {
          for (const key of keys) memory.settle(key, undefined)
        })
      )
      const wait = Effect.forEach(known, ({ answer, entry }) =>
        Effect.map(Deferred.await(answer), (part) => {
          if (part !== undefined) answers.set(entry, { ...part, id: entry.call.id })
        }), { discard: true })
      // What others did not start in the end is this request's to run.
      return Effect.andThen(run, Effect.andThen(wait, round))
    })
    return round
  })

/** The answer for a call of the history that nobody has answered: what is known of it is that it was made. */
const unanswered = (entry: Ledger.Entry, tools: Tools): Prompt.ToolResultPart => {
  const { id, name } = entry.call
  const waits = entry.approvalId !== undefined
  const reads = Object.hasOwn(tools, name) && ToolPolicy.get(tools[name]!).access === "read"
  const value = waits
    ? {
      status: "pending_approval",
      retryable: false,
      message: "the call needs an approval that has not been given: it was not run"
    }
    : {
      status: "cancelled",
      code: "by_caller",
      retryable: reads,
      effect: reads ? "none" : "unknown",
      message: reads
        ? "the conversation went on without its answer; it only reads, so nothing was changed"
        : "the conversation went on without its answer; whether it took effect is unknown; find out before you call it again, it could be done twice"
    }
  return Prompt.makePart("tool-result", { id, name, isFailure: true, result: value, providerExecuted: false })
}

type Out = Queue.Queue<AnyPart, unknown>

/** Lets the answers of a stream out, each when those before it are out. */
class Answering {
  private readonly memory: Memory
  private readonly queue: Out
  private readonly said: Said
  private readonly tools: Tools
  private readonly answers: Array<AnyOutcome | undefined> = []
  private next = 0
  /** What is left is being let out. */
  private over = false
  constructor(memory: Memory, queue: Out, said: Said, tools: Tools) {
    this.memory = memory
    this.queue = queue
    this.said = said
    this.tools = tools
  }

  /** To be told what happens in the turn. */
  readonly note = (event: TurnEvent.TurnEvent): void => {
    if (event._tag === "CallProgressed") {
      const call = this.said.parts[event.position]
      const part = call && preliminaryPart(call.id, event.tool, event.result, this.tools)
      if (part !== undefined) Queue.offerUnsafe(this.queue, part as AnyPart)
    }
  }

  /** To be told each answer as the model gets it. */
  readonly answer = (outcome: AnyOutcome): void => {
    if (this.over) return
    this.answers[outcome.position] = outcome
    this.flush()
  }

  private flush(): void {
    for (;; this.next++) {
      const outcome = this.answers[this.next]
      if (outcome === undefined || outcome.status === "pending_approval") return
      const call = this.said.parts[this.next]
      if (call !== undefined) Queue.offerUnsafe(this.queue, resultPart(call.id, outcome, this.tools) as AnyPart)
    }
  }

  /** Lets out what is left. */
  readonly rest = (outcomes: ReadonlyArray<AnyOutcome>): Effect.Effect<void> => {
    this.over = true
    return Effect.forEach(outcomes.slice(this.next), (outcome, i) => {
      const call = this.said.parts[this.next + i]
      return call === undefined
        ? Effect.void
        : Effect.flatMap(answerOf(this.memory, call, outcome, this.tools), (part) => Queue.offer(this.queue, part))
    }, { discard: true })
  }
}

const open = Effect.fnUntraced(
  function*(by: Governing, ask: (options: any) => Stream.Stream<AnyPart, any, any>, options: AnyOptions) {
    const before = yield* prepare(by, options)
    const queue: Out = yield* Queue.make<AnyPart, AiError.AiError | Cause.Done>() as any
    yield* Queue.offerAll(queue, before.parts as ReadonlyArray<any>)
    const produce = speak(by, before, ask(request(options, before)), queue)
    yield* Effect.forkScoped(Effect.scoped(Effect.catchCause(produce, (cause) => Queue.failCause(queue, cause))))
    return Stream.fromQueue(queue as Queue.Dequeue<AnyPart, Cause.Done>)
  }
) as (by: Governing, ask: any, options: AnyOptions) => Effect.Effect<Stream.Stream<AnyPart, any, any>, any, Scope.Scope>

/** Lets a response out as it comes, and submits its calls. The turn is in the scope: left early, it is stopped and awaited. */
const speak = Effect.fnUntraced(
  function*(by: Governing, { options, toolkit }: Before, parts: Stream.Stream<AnyPart, any, any>, queue: Out) {
    const { tools } = toolkit
    const said = new Said()
    const answering = new Answering(by.memory, queue, said, tools)
    let turn: Listening | undefined
    const opened = Effect.suspend(() =>
      turn !== undefined ? Effect.succeed(turn) : Effect.map(
        by.open(toolkit, {
          ...options,
          onEvent: (event) => {
            answering.note(event)
            options.onEvent?.(event)
          },
          onAnswer: answering.answer,
          onClosed: (closed) =>
            Effect.suspend(() => {
              keep(by.memory, said, closed.outcomes, tools)
              return options.onClosed?.(closed) ?? Effect.void
            })
        }),
        (opened) => turn = opened
      )
    )
    const finish: Array<AnyPart> = []
    const end = (reason: ToolCall.FinishReason | undefined) =>
      turn === undefined ? Effect.void : Effect.flatMap(turn.end(reason), answering.rest)
    yield* parts.pipe(
      Stream.runForEach((part) => {
        if (part.type === "finish") return Effect.sync(() => void finish.push(part))
        if (part.type !== "tool-call") return Queue.offer(queue, part)
        return Effect.gen(function*() {
          const out = yield* said.accept(part)
          if (out !== undefined) yield* Queue.offer(queue, out)
          yield* (yield* opened).submit(said.calls.at(-1)!)
        })
      }),
      Effect.matchCauseEffect({
        // It broke off: nothing more of it is run, and what was let out is answered all the same.
        onFailure: (cause) => Effect.andThen(end("error"), Queue.failCause(queue, cause)),
        onSuccess: () =>
          end(reasonOf(finish)).pipe(
            Effect.andThen(Queue.offerAll(queue, finish)),
            Effect.andThen(Queue.end(queue as any))
          )
      })
    )
  }
)

/** Whoever left the stream has the calls and not their answers: a later prompt with the same parts gets them. */
const keep = (memory: Memory, said: Said, outcomes: ReadonlyArray<AnyOutcome>, tools: Tools): void => {
  for (const [position, outcome] of outcomes.entries()) {
    const call = said.parts[position]
    if (call === undefined || outcome.status === "pending_approval") continue
    memory.answers.set(call.params as object, inHistory(resultPart(call.id, outcome, tools)))
  }
}
