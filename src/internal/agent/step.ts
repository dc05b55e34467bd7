/**
 * One step of an agent: the request, and the turn of its calls.
 *
 * - S1: response and answers become part of the history together, when the turn has closed, whatever happens to the fiber.
 * - S2: a call of a streamed response is taken in as soon as it is complete: reads start then (rule R13). What has begun is answered,
 *   and stands in the history, also when the response breaks off.
 * - S3: of a response that broke off nothing stays that was not said in full.
 */
import type * as AiError from "effect/ai/AiError"
import * as Prompt from "effect/ai/Prompt"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import type * as Agent from "../../Agent.ts"
import type * as Approval from "../../Approval.ts"
import * as ToolCall from "../../ToolCall.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as Turn from "../../Turn.ts"
import type * as TurnError from "../../TurnError.ts"
import { type Part, type Said, saidOf, wholeParts, wholeTexts } from "./history.ts"
import type { Ask, Offer } from "./request.ts"

export type AnyOptions = Agent.Options<any, any, any, any>
export type Failure = AiError.AiError | TurnError.TurnError
type Failed = Cause.Cause<Failure>

/** What ends a loop from outside. */
export class Halt {
  readonly reason: "stopped" | "deadline"
  readonly why: string | undefined
  constructor(reason: "stopped" | "deadline", why?: string) {
    this.reason = reason
    this.why = why
  }
}

/** What the caller wants of a step, made ready. */
export interface Prepared {
  readonly offer: Offer
  readonly prompt: Prompt.Prompt
  readonly toolChoice: Agent.StepOptions<any>["toolChoice"]
  readonly sequential: boolean
}

/** What a step needs of the loop around it. */
export interface Around {
  readonly agent: string
  readonly options: AnyOptions
  readonly streamed: boolean
  readonly ask: Ask
  history: Prompt.Prompt
  /** How long the loop may still take, in milliseconds. */
  readonly left: number
  /** Succeeds with the loop's stop. */
  readonly stopped: Effect.Effect<Halt>
  /** The word for an interruption. */
  readonly interruption: string
  readonly restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  readonly attempt: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<Exit.Exit<A | Halt, E>, never, R>
  readonly spend: (input: number, output: number) => void
  readonly emit: (make: (agent: string, at: number) => Agent.AgentEvent<any, any>) => void
}

/** What a step came to. */
export interface Over {
  /** Absent where no response came that counts. */
  readonly step?: Agent.Step<any> | undefined
  readonly parked?: Parking | undefined
  /** The loop was stopped during the request. */
  readonly halt?: Halt | undefined
  readonly failed?: Failed | undefined
}

/** A step that waits for a human: the history before it, what the model said in it, and its turn. */
export interface Parking {
  readonly before: Prompt.Prompt
  readonly said: Prompt.Prompt
  readonly turn: Turn.Parked
}

/** How a turn has closed. Without `closed` nothing of it has begun. */
interface Ended {
  readonly closed: Turn.Closed<any> | undefined
  readonly parked?: Turn.Parked | undefined
  readonly failed?: Failed | undefined
}

const isInterrupted = (cause: Failed | undefined): boolean => cause !== undefined && Cause.hasInterruptsOnly(cause)

const onlyOf = (prompt: Prompt.Prompt, role: "assistant" | "tool"): Prompt.Prompt =>
  Prompt.fromMessages(prompt.content.filter((message) => message.role === role))

export class StepAtWork {
  private readonly around: Around
  private readonly number: number
  private readonly prepared: Prepared
  private readonly parts: Array<Part> = []
  private readonly scope = Scope.makeUnsafe()
  /** The turn of a streamed response, from its first call on. */
  private online: Turn.Online<any> | undefined = undefined
  private closed: Turn.Closed<any> | undefined = undefined

  constructor(around: Around, number: number, prepared: Prepared) {
    this.around = around
    this.number = number
    this.prepared = prepared
  }

  get turn(): string {
    return `${this.around.agent}/${this.number}`
  }

  run(): Effect.Effect<Over, never, any> {
    const { around, number, turn } = this
    around.emit((agent, at) => ({ _tag: "StepStarted", agent, at, step: number, turn }))
    const request = around.ask(this.prepared, (part) => this.take(part))
    return Effect.flatMap(around.attempt(request), (exit) => {
      const said = saidOf(this.parts, around.streamed)
      around.spend(said.input, said.output)
      if (Exit.isFailure(exit)) return this.breakOff(said, exit.cause)
      return exit.value instanceof Halt ? this.breakOff(said, exit.value) : this.answer(said)
    }).pipe(Effect.onExit(() => Scope.close(this.scope, Exit.void)))
  }

  /** One part of the response; a call of a stream goes to the turn at once (S2). */
  private take(part: Part): Effect.Effect<void, TurnError.TurnError, any> {
    const { around, number } = this
    this.parts.push(part)
    if (!around.streamed) return Effect.void
    around.emit((agent) => ({ _tag: "PartReceived", agent, step: number, part }))
    if (part.type !== "tool-call") return Effect.void
    const [call] = ToolCall.fromParts([part])
    if (this.online !== undefined) return this.online.submit(call!)
    if (call!.providerExecuted === true) return Effect.void
    return Effect.uninterruptible(
      Turn.open(this.prepared.offer.forTurn, this.turnOptions()).pipe(
        Scope.provide(this.scope),
        Effect.flatMap((online) => {
          this.online = online
          return Effect.forEach(saidOf(this.parts, true).calls, (call) => online.submit(call), { discard: true })
        })
      )
    )
  }

  private turnOptions(): Turn.Options & { readonly reports: boolean } {
    const { around, number, prepared } = this
    const given: Turn.Options = around.options.turn ?? {}
    const { left } = around
    return {
      ...given,
      turn: this.turn,
      // What is held is answered so for good, unless the agent may be parked.
      reports: around.options.approval !== "park",
      messages: prepared.prompt.content,
      // Where the loop goes on, nobody comes back for a decision.
      ...(prepared.sequential ? { execution: "sequential" } : undefined),
      ...(left === Infinity || left <= 0 ? undefined : { deadline: earlier(left, given.deadline) }),
      // A turn whose time is over already is stopped too: its calls are answered, and none of them starts.
      cancelOn: left <= 0 ? Effect.succeed("deadline") : Effect.map(around.stopped, ({ why }) => why),
      onEvent: (event) => {
        around.emit((agent) => ({ _tag: "TurnReported", agent, step: number, event }))
        given.onEvent?.(event)
      },
      onClosed: (closed) => {
        this.closed = closed
        return given.onClosed?.(closed) ?? Effect.void
      }
    }
  }

  /** A whole response: its calls are run, and answered. */
  private answer(said: Said): Effect.Effect<Over, never, any> {
    if (!said.asks) {
      this.around.history = Prompt.concat(this.around.history, Prompt.fromResponseParts(said.parts as Array<any>))
      return Effect.succeed({ step: this.record(said, undefined) })
    }
    const ended = this.online === undefined ? this.runTurn(said) : this.endTurn(this.online, said.finishReason)
    return Effect.map(ended, (ended) => this.conclude(said, ended))
  }

  private runTurn({ calls, finishReason }: Said): Effect.Effect<Ended, never, any> {
    const options = { ...this.turnOptions(), finishReason }
    const run = (options: Turn.Options) => Turn.runOrPark(this.prepared.offer.forTurn, calls, options)
    return Effect.flatMap(Effect.exit(this.around.restore(run(options))), (exit) => {
      const ended = this.endedBy(exit)
      if (ended.closed !== undefined || !isInterrupted(ended.failed)) return Effect.succeed(ended)
      // Interrupted before the turn had begun: the response has been given all the same, and each call is answered.
      const stopped = run({ ...options, cancelOn: Effect.succeed(this.around.interruption) })
      return Effect.map(Effect.exit(stopped), () => ({ ...ended, closed: this.closed }))
    })
  }

  private endedBy(exit: Exit.Exit<Turn.Result<any>, TurnError.TurnError>): Ended {
    const { closed } = this
    if (Exit.isFailure(exit)) return { closed, failed: exit.cause }
    return { closed, parked: exit.value._tag === "Parked" ? exit.value.parked : undefined }
  }

  /** Ends the list of a turn that is open. An interruption stops the turn, and waits for it. */
  private endTurn(online: Turn.Online<any>, finishReason: ToolCall.FinishReason): Effect.Effect<Ended, never, any> {
    const ended = Effect.andThen(online.end(finishReason), online.result)
    return Effect.flatMap(Effect.exit(this.around.restore(ended)), (exit) => {
      const stopped = Exit.isFailure(exit) ? Effect.asVoid(online.cancel(this.around.interruption)) : Effect.void
      return Effect.map(stopped, () => this.endedBy(exit))
    })
  }

  /** A response that broke off: what it began is answered, and stays. */
  private breakOff(said: Said, by: Failed | Halt): Effect.Effect<Over, never, any> {
    const halted = by instanceof Halt
    const over = halted ? { halt: by } : { failed: by }
    const { around, online } = this
    if (online === undefined) {
      // What failed can be asked again from where it was; a stop keeps what the reader has seen.
      if (halted || isInterrupted(by)) {
        around.history = Prompt.concat(around.history, wholeTexts(this.parts))
      }
      return Effect.succeed(over)
    }
    const ended: Effect.Effect<Ended, never, any> = halted
      ? Effect.map(online.cancel(by.why ?? by.reason), () => ({ closed: this.closed }))
      : isInterrupted(by)
      ? Effect.map(online.cancel(around.interruption), () => ({ closed: this.closed }))
      : this.endTurn(online, "error")
    return Effect.map(ended, (ended) => ({
      ...this.conclude({ ...said, parts: wholeParts(this.parts), finishReason: "error" }, ended),
      ...over
    }))
  }

  /** Puts a closed turn into the history (S1). */
  private conclude(said: Said, { closed, failed, parked }: Ended): Over {
    if (closed === undefined) return { failed }
    const before = this.around.history
    const added = Turn.toPrompt(closed.calls, closed.outcomes, { parts: said.parts })
    this.around.history = Prompt.concat(before, added)
    const step = this.record(said, closed)
    return { step, failed, parked: parked && { before, said: onlyOf(added, "assistant"), turn: parked } }
  }

  private record(
    { finishReason, input, output, text }: Pick<Said, "finishReason" | "input" | "output" | "text">,
    closed: Turn.Closed<any> | undefined
  ): Agent.Step<any> {
    const { number, turn } = this
    const usage = { input, output, total: input + output }
    const step: Agent.Step<any> = {
      number,
      turn,
      text,
      finishReason,
      usage,
      calls: closed?.calls ?? [],
      outcomes: closed?.outcomes ?? []
    }
    this.around.emit((agent, at) => ({ _tag: "StepEnded", agent, at, step }))
    return step
  }

  /** Goes on with the turn of a step that was parked. The model's words are those of then, the answers those of now. */
  resume(
    { before, said, turn }: Parking,
    words: Pick<Said, "finishReason" | "text">,
    decisions: ReadonlyArray<{ readonly position: number; readonly decision: Approval.Decision }> | undefined
  ): Effect.Effect<Over, never, any> {
    const { around } = this
    const run = Turn.resume(this.prepared.offer.forTurn, turn, { ...this.turnOptions(), decisions })
    return Effect.map(Effect.exit(around.restore(run)), (exit) => {
      const { closed, failed, parked } = this.endedBy(exit)
      if (closed === undefined) return { failed }
      const answers = onlyOf(Turn.toPrompt(closed.calls, closed.outcomes), "tool")
      around.history = Prompt.concat(Prompt.concat(before, said), answers)
      const step = this.record({ ...words, input: 0, output: 0 }, closed)
      return { step, failed, parked: parked && { before, said, turn: parked } }
    })
  }
}

const earlier = (left: number, given: ToolPolicy.Limit | undefined): number =>
  given === undefined ? left : Math.min(left, ToolPolicy.limitMillis("the turn", "deadline", given))
