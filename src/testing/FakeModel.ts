/**
 * A language model that answers by a script, whole and streamed, and remembers what it was asked.
 *
 * It takes the place of a provider in a test: the service is made by `LanguageModel.make`, as a provider's is, so `generateText`,
 * `streamText`, `generateObject`, `Chat` and effect/ai's own tool resolution work on it unchanged. Time comes from the `Clock`:
 * under a test clock nothing really waits.
 *
 * What it keeps to ("M" for model; other modules number their own):
 *
 * - **M1** The n-th request takes the n-th step. It takes it when it starts, and is written down in the same moment.
 * - **M2** Every request is closed exactly once, and says how it ended.
 * - **M3** One step says the same whole and streamed: the same texts, calls, finish reason and usage, in the same order.
 * - **M4** An interruption ends a request at once, whatever it is doing; no fiber is left behind.
 *
 * @since 0.1.0
 */
import * as AiError from "effect/ai/AiError"
import * as LanguageModel from "effect/ai/LanguageModel"
import type * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Tool from "effect/ai/Tool"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ToolPolicy from "../ToolPolicy.ts"
import * as TurnError from "../TurnError.ts"

/**
 * A call that the model makes. `params` are encoded, as the model writes them.
 *
 * **Details**
 *
 * Without an `id` the call gets `call_<request>_<n>`, both counted from 1, so that ids are never the same in two requests.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Call {
  readonly type: "call"
  readonly name: string
  readonly params: unknown
  readonly id?: string | undefined
}

/**
 * A call whose parameters are the very text that the model writes, which may be no JSON at all.
 *
 * **Details**
 *
 * Blank text means `{}`. What is no JSON fails the request as a provider does, with `ToolParameterValidationError`; where
 * the request says `toolCallValidation: "deferred"`, the text itself comes through as the call's parameters.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface RawCall {
  readonly type: "raw-call"
  readonly name: string
  readonly text: string
  readonly id?: string | undefined
}

/**
 * One thing that the model says: a text, a call, or any part of a response as effect/ai encodes it, such as reasoning, a source, or
 * a call and its result that the provider executed itself.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Content =
  | string
  | Call
  | RawCall
  | Exclude<
    Response.PartEncoded,
    Response.FinishPartEncoded | Response.ReasoningDeltaPartEncoded | Response.ReasoningEndPartEncoded
  >

/**
 * Tokens, as the finish part of the answer reports them.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Usage {
  readonly input?: number | undefined
  readonly output?: number | undefined
  readonly cacheRead?: number | undefined
  readonly cacheWrite?: number | undefined
  readonly reasoning?: number | undefined
}

/**
 * How fast an answer comes.
 *
 * **Details**
 *
 * - `latency`: from the request to the first chunk of a stream, or to the whole answer. Default: none.
 * - `chunk`: how many characters (code points) of a text, of reasoning or of a call's parameters one chunk carries. A list gives the
 *   sizes of successive chunks, through the whole answer; its last one repeats. Default: each in one piece.
 * - `delay`: between one chunk and the next, counted from when the reader asks for the next. Default: none. An answer that is not
 *   streamed has none.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Pace {
  readonly latency?: Duration.Input | undefined
  readonly chunk?: number | ReadonlyArray<number> | undefined
  readonly delay?: Duration.Input | undefined
}

/**
 * Where an answer breaks off, and how.
 *
 * **Details**
 *
 * `after` counts the parts of the stream, `text-start`, each delta, `tool-call` and `finish` among them: 0 breaks off before the
 * first one. Where the answer has fewer parts, it breaks off after its last one. `by` is what happens there:
 *
 * - an error of effect/ai, or its reason alone: the request fails with it.
 * - `"end"`: the stream ends, as if all were said. An answer that is not streamed fails with `InvalidResponseError`.
 * - `"hang"`: nothing more comes, until the request is interrupted.
 *
 * Whatever the number, an answer that is not streamed breaks off before anything of it is seen.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Cut {
  readonly after: number
  readonly by: "end" | "hang" | AiError.AiError | AiError.AiErrorReason
}

/**
 * What does not depend on what is said.
 *
 * **Details**
 *
 * `finishReason` is `"tool-calls"` by default for an answer with a call for the client to run, else `"stop"`.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface StepOptions extends Pace {
  readonly finishReason?: Response.FinishReason | undefined
  readonly usage?: Usage | undefined
  readonly cut?: Cut | undefined
}

/**
 * The answer to one request.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Step extends StepOptions {
  readonly content: ReadonlyArray<Content>
}

/**
 * One entry of a script: a step, or what makes it from the request. An effect may wait, or fail the request.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Entry = Step | ((request: Request) => Step | Effect.Effect<Step, AiError.AiError>)

/**
 * One request that the model was given.
 *
 * **Details**
 *
 * - `number`: its place among all requests, from 1.
 * - `prompt`, `tools`, `toolChoice`, `responseFormat`, `validation`: as a provider gets them. Without a toolkit `tools` is empty
 *   and `toolChoice` is `"none"`.
 * - `startedAt`, `endedAt`: milliseconds of the `Clock`; `endedAt` and `end` are undefined while it is answered.
 * - `parts`: how many parts have been given: those of the stream, or of the whole answer.
 * - `end`: `ok`, the whole answer was given; `cut`, the stream ended before the answer did; `failed`, with an error; `died`, by a mistake in
 *   the test; `interrupted`, it was stopped, or the reader of the stream left before the end.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Request {
  readonly number: number
  readonly prompt: Prompt.Prompt
  readonly tools: ReadonlyArray<Tool.Any>
  readonly toolChoice: LanguageModel.ToolChoice<string>
  readonly responseFormat: LanguageModel.ProviderOptions["responseFormat"]
  readonly validation: "strict" | "deferred"
  readonly streamed: boolean
  readonly startedAt: number
  readonly endedAt: number | undefined
  readonly parts: number
  readonly end: "ok" | "cut" | "failed" | "died" | "interrupted" | undefined
}

/**
 * How a script is played. `repeatLast` gives the last step to all requests past the end, which are defects otherwise; the pace is
 * that of every step that says nothing else.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options extends Pace {
  readonly repeatLast?: boolean | undefined
}

/**
 * The defect of a request for which the script has no step.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class ScriptEnded extends Schema.TaggedError<ScriptEnded>()("ScriptEnded", {
  steps: Schema.Int,
  request: Schema.Int,
  streamed: Schema.Boolean,
  /** The roles of the messages of its prompt. */
  roles: Schema.Array(Schema.String)
}) {
  override get message(): string {
    const steps = `${this.steps} ${this.steps === 1 ? "step" : "steps"}`
    const kind = this.streamed ? "streamed" : "not streamed"
    return `the script of the fake model: expected at most ${steps}, and got request ${this.request} (${kind}, messages: ${
      this.roles.join(", ")
    }); add a step, or let the last one repeat`
  }
}

/**
 * A model with a script, and its log.
 *
 * **Details**
 *
 * - `model`: the service, to be provided as `LanguageModel.LanguageModel`.
 * - `requests`: every request so far, in the order of their starts; a test reads them at any time.
 * - `inFlight`: those that are being answered.
 * - `stepsLeft`: how many steps no request has taken yet.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class FakeModel extends Context.Service<FakeModel, {
  readonly model: LanguageModel.LanguageModel
  readonly requests: ReadonlyArray<Request>
  readonly inFlight: ReadonlyArray<Request>
  readonly stepsLeft: number
}>()("effect-turn/testing/FakeModel") {}

/**
 * An answer of any contents.
 *
 * **Example** (Words, and a call in the model's own bad JSON)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { LanguageModel } from "effect/ai"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const step = FakeModel.answer(["One moment.", FakeModel.rawCall("search", `{"q": `)], { usage: { output: 12 } })
 * const response = await LanguageModel.generateText({
 *   prompt: "go",
 *   disableToolCallResolution: true,
 *   toolCallValidation: "deferred"
 * }).pipe(Effect.provide(FakeModel.layer([step])), Effect.runPromise)
 *
 * const text = response.text // => "One moment."
 * const params = response.toolCalls[0]?.params // => `{"q": `
 * const tokens = response.usage.outputTokens.total // => 12
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const answer = (content: ReadonlyArray<Content>, options?: StepOptions): Step => ({ ...options, content })

/**
 * An answer of one text.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const text = (text: string, options?: StepOptions): Step => answer([text], options)

/**
 * An answer of one object, for `generateObject`: its JSON, so it is the encoded value, and may be one that the schema refuses.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const object = (value: unknown, options?: StepOptions): Step => answer([JSON.stringify(value)], options)

/**
 * An answer of calls, with the text before them if one is given.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const calls = (
  calls: ReadonlyArray<Call | RawCall>,
  options?: StepOptions & { readonly text?: string | undefined }
): Step => {
  const { text, ...rest } = options ?? {}
  return answer(text === undefined ? calls : [text, ...calls], rest)
}

/**
 * A call: of a tool, whose encoded parameters are checked by the compiler, or of any name with any parameters.
 *
 * **Example** (A call of a tool, and of one that does not exist)
 *
 * ```ts import.meta.vitest
 * import { Schema } from "effect"
 * import { Tool } from "effect/ai"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const Search = Tool.make("search", { parameters: Schema.Struct({ limit: Schema.FiniteFromString }) })
 * const right = FakeModel.call(Search, { limit: "3" })
 * const wrong = FakeModel.call("serach", { limit: 3 }, { id: "c1" })
 *
 * const names = [right.name, wrong.name] // => ["search", "serach"]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const call: {
  <T extends Tool.Any>(
    tool: T,
    params: Tool.ParametersEncoded<T>,
    options?: { readonly id?: string | undefined }
  ): Call
  (name: string, params: unknown, options?: { readonly id?: string | undefined }): Call
} = (
  tool: Tool.Any | string,
  params: unknown,
  options?: { readonly id?: string | undefined }
): Call => ({ type: "call", name: typeof tool === "string" ? tool : tool.name, params, id: options?.id })

/**
 * A call whose parameters are the text that the model writes.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const rawCall = (
  name: string,
  text: string,
  options?: { readonly id?: string | undefined }
): RawCall => ({ type: "raw-call", name, text, id: options?.id })

/**
 * A request that fails with an error of effect/ai, or with its reason, before anything is said.
 *
 * **Example** (A rate limit, then an answer)
 *
 * ```ts import.meta.vitest
 * import { Effect, Schedule } from "effect"
 * import { AiError, LanguageModel } from "effect/ai"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const program = Effect.gen(function*() {
 *   const { requests } = yield* FakeModel.FakeModel
 *   const { text } = yield* Effect.retry(LanguageModel.generateText({ prompt: "hi" }), { times: 1 })
 *   return [text, ...requests.map((request) => request.end)]
 * })
 * const fake = FakeModel.layer([FakeModel.fail(new AiError.RateLimitError({})), FakeModel.text("hello")])
 * const ends = await Effect.runPromise(Effect.provide(program, fake)) // => ["hello", "failed", "ok"]
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const fail = (
  error: AiError.AiError | AiError.AiErrorReason,
  options?: { readonly latency?: Duration.Input | undefined }
): Step => answer([], { ...options, cut: { after: 0, by: error } })

/**
 * A request that is never answered: it ends when it is interrupted.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const hang: Step = answer([], { cut: { after: 0, by: "hang" } })

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** A step with all its choices made: what a request can be answered from. */
interface Plan {
  readonly latency: number
  readonly delay: number
  readonly whole: Array<Response.PartEncoded>
  readonly chunks: ReadonlyArray<ReadonlyArray<Response.StreamPartEncoded>>
  readonly cut: { readonly by: "end" | "hang" | AiError.AiError } | undefined
}

const owner = "the fake model"

/** The pace of a step, or a thrown error that names the limit. */
const paceOf = (step: Pace, defaults: Pace) => {
  const chunk = step.chunk ?? defaults.chunk
  const sizes = chunk === undefined ? [] : typeof chunk === "number" ? [chunk] : chunk
  return {
    latency: ToolPolicy.limitMillis(owner, "latency", step.latency ?? defaults.latency ?? 0, 0),
    delay: ToolPolicy.limitMillis(owner, "delay", step.delay ?? defaults.delay ?? 0, 0),
    sizes: sizes.map((size) => TurnError.wholeNumber(owner, "chunk", size))
  }
}

/** Cuts texts into pieces of the given sizes, which go on from one text to the next. Never inside a code point. */
const slicer = (sizes: ReadonlyArray<number>) => {
  let next = 0
  return (text: string): ReadonlyArray<string> => {
    if (text === "") return []
    if (sizes.length === 0) return [text]
    const characters = Array.from(text)
    const pieces: Array<string> = []
    for (let at = 0; at < characters.length;) {
      const size = sizes[Math.min(next++, sizes.length - 1)]!
      pieces.push(characters.slice(at, at + size).join(""))
      at += size
    }
    return pieces
  }
}

const errorOf = (error: AiError.AiError | AiError.AiErrorReason, method: string): AiError.AiError =>
  AiError.isAiError(error) ? error : AiError.make({ module: "FakeModel", method, reason: error })

/** The parameters that a provider makes of what the model wrote, or why it cannot. */
const parse = (
  { name, text }: RawCall,
  deferred: boolean
): { readonly params: unknown } | { readonly reason: AiError.AiErrorReason } => {
  try {
    return { params: text.trim() === "" ? {} : Tool.unsafeSecureJsonParse(text) }
  } catch (error) {
    if (deferred) return { params: text }
    return {
      reason: new AiError.ToolParameterValidationError({
        toolName: name,
        description: `the model wrote no valid JSON: ${String(error)}`
      })
    }
  }
}

const finishOf = (step: Step, reason: Response.FinishReason): Response.FinishPartEncoded => ({
  type: "finish",
  reason: step.finishReason ?? reason,
  usage: {
    inputTokens: {
      uncached: undefined,
      total: step.usage?.input,
      cacheRead: step.usage?.cacheRead,
      cacheWrite: step.usage?.cacheWrite
    },
    outputTokens: { total: step.usage?.output, text: undefined, reasoning: step.usage?.reasoning }
  }
})

/** The first `count` parts, in the chunks in which they come. */
const firstParts = <A>(chunks: ReadonlyArray<ReadonlyArray<A>>, count: number): ReadonlyArray<ReadonlyArray<A>> => {
  let left = count
  return chunks.flatMap((chunk) => {
    const kept = chunk.slice(0, left)
    left -= kept.length
    return kept.length === 0 ? [] : [kept]
  })
}

/** Makes all choices of a step: pure, so that whole and streamed cannot differ (M3). */
const planOf = (
  step: Step,
  options: Options,
  request: Pick<Request, "number" | "streamed" | "validation">
): Plan => {
  const { delay, latency, sizes } = paceOf(step, options)
  const slices = slicer(sizes)
  const method = request.streamed ? "streamText" : "generateText"
  const whole: Array<Response.PartEncoded> = []
  const chunks: Array<Array<Response.StreamPartEncoded>> = []
  let given = 0
  let cut = step.cut === undefined
    ? undefined
    : {
      after: step.cut.after === Infinity ? Infinity : TurnError.wholeNumber(owner, "cut.after", step.cut.after, 0),
      by: typeof step.cut.by === "string" ? step.cut.by : errorOf(step.cut.by, method)
    }

  const push = (parts: Array<Response.StreamPartEncoded>) => {
    chunks.push(parts)
    given += parts.length
  }
  /** What has a start and an end, in pieces: the first opens, the last closes. */
  const pieces = (
    text: string,
    start: Response.StreamPartEncoded,
    delta: (delta: string) => Response.StreamPartEncoded,
    ends: Array<Response.StreamPartEncoded>
  ) => {
    const parts = slices(text).map((piece) => [delta(piece)] as Array<Response.StreamPartEncoded>)
    if (parts.length === 0) parts.push([])
    parts[0]!.unshift(start)
    parts.at(-1)!.push(...ends)
    for (const chunk of parts) push(chunk)
  }
  const metadataOf = (part: { readonly metadata?: Response.ProviderMetadata | undefined }) =>
    part.metadata === undefined ? {} : { metadata: part.metadata }
  const calling = (part: Response.ToolCallPartEncoded, text: string) => {
    const { id, name, providerExecuted } = part
    whole.push(part)
    pieces(
      text,
      { type: "tool-params-start", id, name, ...(providerExecuted === undefined ? {} : { providerExecuted }) },
      (delta) => ({ type: "tool-params-delta", id, delta }),
      [{ type: "tool-params-end", id }, part]
    )
  }

  let callsMade = 0
  let toRun = false
  step.content.forEach((content, index) => {
    const part = typeof content === "string" ? { type: "text" as const, text: content } : content
    switch (part.type) {
      case "text": {
        const id = `text_${index}`
        whole.push(part)
        pieces(part.text, { type: "text-start", id }, (delta) => ({ type: "text-delta", id, delta }), [
          { type: "text-end", id, ...metadataOf(part) }
        ])
        break
      }
      case "reasoning": {
        const id = `reasoning_${index}`
        whole.push(part)
        pieces(part.text, { type: "reasoning-start", id }, (delta) => ({ type: "reasoning-delta", id, delta }), [
          { type: "reasoning-end", id, ...metadataOf(part) }
        ])
        break
      }
      case "call":
      case "raw-call": {
        toRun = true
        const id = part.id ?? `call_${request.number}_${++callsMade}`
        const parsed = part.type === "call" ? part : parse(part, request.validation === "deferred")
        const written = part.type === "call" ? JSON.stringify(part.params) ?? "" : part.text
        calling({ type: "tool-call", id, name: part.name, params: "params" in parsed ? parsed.params : {} }, written)
        // The provider finds out where the call would be given: after its last piece.
        if ("reason" in parsed && !(cut !== undefined && cut.after < given)) {
          cut = { after: given - 1, by: errorOf(parsed.reason, method) }
        }
        break
      }
      case "tool-call": {
        toRun ||= part.providerExecuted !== true
        calling(part, JSON.stringify(part.params) ?? "")
        break
      }
      default: {
        whole.push(part)
        push([part])
      }
    }
  })
  const finish = finishOf(step, toRun ? "tool-calls" : "stop")
  whole.push(finish)
  push([finish])
  return { latency, delay, whole, chunks: cut === undefined ? chunks : firstParts(chunks, cut.after), cut }
}

const wait = (millis: number): Effect.Effect<void> => (millis === 0 ? Effect.void : Effect.sleep(millis))

/** What a whole answer that breaks off comes to. */
const broken = (by: NonNullable<Plan["cut"]>["by"]): Effect.Effect<never, AiError.AiError> =>
  by === "hang"
    ? Effect.never
    : Effect.fail(
      by === "end"
        ? errorOf(
          new AiError.InvalidResponseError({ description: "the response broke off before its end" }),
          "generateText"
        )
        : by
    )

const endOf = (exit: Exit.Exit<unknown, unknown>): NonNullable<Request["end"]> =>
  Exit.isSuccess(exit) ? "ok" : Exit.hasDies(exit) ? "died" : Exit.hasFails(exit) ? "failed" : "interrupted"

/**
 * Makes a model with a script.
 *
 * **Details**
 *
 * The n-th request takes the n-th entry, whether it is streamed or not. A request past the end dies with {@link ScriptEnded}, unless the
 * last entry repeats: it is a mistake in the test, and no error that a program could handle. A step with a size, a time or a cut
 * that cannot be is refused here, as a defect; one that a function made, when it is asked for.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (
  script: ReadonlyArray<Entry>,
  options: Options = {}
): Effect.Effect<FakeModel["Service"]> =>
  Effect.suspend(() => {
    const requests: Array<Mutable<Request>> = []
    let taken = 0
    paceOf({}, options)

    /** Takes the next entry, and writes the request down in the same moment (M1). */
    const begin = (asked: LanguageModel.ProviderOptions, streamed: boolean) =>
      Effect.map(Clock.currentTimeMillis, (startedAt) => {
        const request: Mutable<Request> = {
          number: requests.length + 1,
          prompt: asked.prompt,
          tools: asked.tools,
          toolChoice: asked.toolChoice,
          responseFormat: asked.responseFormat,
          validation: asked.toolCallValidation ?? "strict",
          streamed,
          startedAt,
          endedAt: undefined,
          parts: 0,
          end: undefined
        }
        requests.push(request)
        return { request, entry: script[taken++] ?? (options.repeatLast === true ? script.at(-1) : undefined) }
      })

    const close = (request: Mutable<Request>, end: NonNullable<Request["end"]>) =>
      Effect.map(Clock.currentTimeMillis, (endedAt) => {
        Object.assign(request, { endedAt, end })
      })

    /** The plan of a request, when its latency is over. */
    const planned = (request: Request, entry: Entry | undefined): Effect.Effect<Plan, AiError.AiError> =>
      Effect.gen(function*() {
        if (entry === undefined) {
          return yield* Effect.die(
            new ScriptEnded({
              steps: script.length,
              request: request.number,
              streamed: request.streamed,
              roles: request.prompt.content.map(({ role }) => role)
            })
          )
        }
        const made = typeof entry === "function" ? entry(request) : entry
        const plan = planOf(Effect.isEffect(made) ? yield* made : made, options, request)
        yield* wait(plan.latency)
        return plan
      })

    const generateText = (asked: LanguageModel.ProviderOptions) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(begin(asked, false), ({ entry, request }) =>
          restore(Effect.flatMap(planned(request, entry), ({ cut, whole }) => {
            if (cut !== undefined) {
              return broken(cut.by)
            }
            request.parts = whole.length
            return Effect.succeed(whole)
          })).pipe(Effect.onExit((exit) =>
            close(request, endOf(exit))
          )))
      )

    const streamText = (asked: LanguageModel.ProviderOptions) =>
      Stream.unwrap(Effect.gen(function*() {
        // A reader who leaves closes the scope as an interruption does: what ended the request is noted where it happens (M2).
        let end: NonNullable<Request["end"]> = "interrupted"
        const { entry, request } = yield* Effect.acquireRelease(
          begin(asked, true),
          ({ request }) => close(request, end)
        )
        const { chunks, cut, delay } = yield* Effect.onExit(planned(request, entry), (exit) =>
          Effect.sync(() => {
            if (Exit.isFailure(exit)) end = endOf(exit)
          }))
        const body = Stream.fromIterable(chunks.entries()).pipe(
          Stream.mapEffect(([index, parts]) =>
            Effect.map(wait(index === 0 ? 0 : delay), () => {
              request.parts += parts.length
              if (cut === undefined && index === chunks.length - 1) end = "ok"
              return parts
            })
          ),
          Stream.flattenIterable
        )
        if (cut === undefined) return body
        const tail = Effect.suspend(() => {
          if (cut.by === "hang") return Effect.never
          end = cut.by === "end" ? "cut" : "failed"
          return cut.by === "end" ? Effect.void : Effect.fail(cut.by)
        })
        return Stream.concat(
          body,
          Stream.fromEffectDrain(Effect.andThen(wait(chunks.length === 0 ? 0 : delay), tail))
        )
      }))

    for (const entry of script) {
      if (typeof entry !== "function") planOf(entry, options, { number: 1, streamed: false, validation: "deferred" })
    }
    return Effect.map(LanguageModel.make({ generateText, streamText }), (model) => ({
      model,
      requests,
      get inFlight() {
        return requests.filter(({ end }) => end === undefined)
      },
      get stepsLeft() {
        return Math.max(0, script.length - taken)
      }
    }))
  })

/**
 * A layer with a scripted model, and with {@link FakeModel}, by which a test reads what it was asked.
 *
 * **Example** (A turn of two steps, with the tools that effect/ai resolves)
 *
 * ```ts import.meta.vitest
 * import { Effect, Layer, Schema } from "effect"
 * import { Chat, Tool, Toolkit } from "effect/ai"
 * import { FakeModel } from "effect-turn/testing"
 *
 * const Add = Tool.make("add", { parameters: Schema.Struct({ a: Schema.Int, b: Schema.Int }), success: Schema.Int })
 * const toolkit = Toolkit.make(Add)
 *
 * const program = Effect.gen(function*() {
 *   const chat = yield* Chat.empty
 *   yield* chat.generateText({ prompt: "What is 2 + 3?", toolkit })
 *   const { text } = yield* chat.generateText({ prompt: [], toolkit })
 *   const { requests } = yield* FakeModel.FakeModel
 *   return [text, requests.map(({ prompt }) => prompt.content.map(({ role }) => role).join(" "))]
 * })
 *
 * const fake = FakeModel.layer([
 *   FakeModel.calls([FakeModel.call(Add, { a: 2, b: 3 })]),
 *   FakeModel.text("It is 5.")
 * ])
 * const tools = toolkit.toLayer({ add: ({ a, b }) => Effect.succeed(a + b) })
 * const result = await Effect.runPromise(Effect.provide(program, Layer.merge(fake, tools)))
 * const seen = result // => ["It is 5.", ["user", "user assistant tool"]]
 * ```
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (
  script: ReadonlyArray<Entry>,
  options?: Options
): Layer.Layer<LanguageModel.LanguageModel | FakeModel> =>
  Layer.effectContext(
    Effect.map(make(script, options), (fake) =>
      Context.make(FakeModel, fake).pipe(Context.add(LanguageModel.LanguageModel, fake.model)))
  )
