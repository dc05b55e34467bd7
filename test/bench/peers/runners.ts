/**
 * One way to run a list of calls on each of the runtimes, with its own defaults but for what a turn asks for: a limit, a timeout, a
 * stop, an approval. What a runtime has no word for is not asked.
 */
import { AIMessage } from "@langchain/core/messages"
import { tool as langTool } from "@langchain/core/tools"
import {
  Annotation,
  Command,
  END,
  interrupt,
  MemorySaver,
  messagesStateReducer,
  START,
  StateGraph
} from "@langchain/langgraph"
import { ToolNode } from "@langchain/langgraph/prebuilt"
import { generateText, tool } from "ai"
import { MockLanguageModelV4 } from "ai/test"
import { Effect, Exit, Fiber, Layer, ManagedRuntime, Schema, Stream } from "effect"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import { readFileSync } from "node:fs"
import { z } from "zod"
import { Approval, Handler, ToolCall, ToolPolicy, Turn } from "../../../src/index.ts"

export interface Args {
  /** The thing that the call touches. */
  readonly k?: string | undefined
  readonly n?: string | undefined
}

export interface Spec {
  readonly name: string
  readonly write?: boolean
  readonly approval?: boolean
  readonly repeatable?: boolean
  readonly timeout?: number
  /** The idempotency key, where a runtime has such a thing. */
  readonly key?: (args: Args) => string
  /** A failed call of it may succeed when it is called again. */
  readonly transient?: boolean
  /** It gives up by itself, in the runtime's own way, after so many milliseconds. */
  readonly interruptsItself?: number
  readonly run: (args: Args, io: { readonly key: string | undefined }) => Promise<unknown>
}

export interface Call {
  readonly id: string
  readonly name: string
  readonly args: Args
}

export interface Ask {
  readonly abortAfter?: number
  readonly limit?: number
  readonly cutShort?: boolean
  /** What a human says to each call that asks. */
  readonly decisions?: Readonly<Record<string, boolean>>
}

export interface Answer {
  readonly id: string
  readonly said: "ok" | "failed" | "pending"
  readonly text: string
}

export interface Answered {
  readonly answers: ReadonlyArray<Answer>
  /** The whole turn failed with this. */
  readonly rejected: string | undefined
  /** Milliseconds from the start of the turn to its answers. */
  readonly took: number
}

export interface Peer {
  readonly name: string
  readonly version: string
  /** What all turns of a process share, made anew for each script. */
  readonly open: (specs: ReadonlyArray<Spec>) => {
    readonly turn: (calls: ReadonlyArray<Call>, ask?: Ask) => Promise<Answered>
    readonly close: () => Promise<void>
  }
}

export const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

const nothing = () => Promise.resolve()

const textOf = (value: unknown): string =>
  value instanceof Error ? value.message : typeof value === "string" ? value : JSON.stringify(value) ?? String(value)

/** Times a turn, and takes its rejection for an answer. */
const timed = async (run: () => Promise<ReadonlyArray<Answer>>): Promise<Answered> => {
  const start = performance.now()
  try {
    return { answers: await run(), rejected: undefined, took: performance.now() - start }
  } catch (error) {
    const line = textOf(error).split("\n")[0]!
    const rejected = line.length > 60 ? `${line.slice(0, 57)}...` : line
    return { answers: [], rejected, took: performance.now() - start }
  }
}

const withSignal = async <A>(
  ask: Ask | undefined,
  run: (signal: AbortSignal | undefined) => Promise<A>
): Promise<A> => {
  if (ask?.abortAfter === undefined) return run(undefined)
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(new Error("user stop")), ask.abortAfter)
  try {
    return await run(controller.signal)
  } finally {
    clearTimeout(timer)
  }
}

const versionOf = (name: string): string =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), "utf8")).version

const Params = Schema.Struct({ k: Schema.optionalKey(Schema.String), n: Schema.optionalKey(Schema.String) })

const effectTool = (spec: Spec, failureMode: "error" | "return" = "error") =>
  Tool.make(spec.name, {
    parameters: Params,
    success: Schema.Unknown,
    failure: Schema.String,
    failureMode,
    ...(spec.approval === true ? { needsApproval: true } : undefined)
  })

const selfInterrupt = (ms: number) => Effect.andThen(Effect.sleep(ms), Effect.interrupt)

const ours: Peer = {
  name: "effect-turn",
  version: JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")).version,
  open: (specs) => {
    const tools = specs.map((spec) => {
      const keys = ({ k }: Args) => k === undefined ? [] : [k]
      let it: Tool.Any = effectTool(spec)
      it = spec.write === true
        ? ToolPolicy.write({ keys: keys as any })(it)
        : ToolPolicy.read({ keys: keys as any })(it)
      if (spec.repeatable === true) it = ToolPolicy.repeatable(it)
      if (spec.timeout !== undefined) it = ToolPolicy.timeout(spec.timeout)(it)
      if (spec.transient === true) it = ToolPolicy.failures({ transient: () => true })(it)
      if (spec.key !== undefined) it = (ToolPolicy.forward(spec.key as any) as any)(it)
      return it
    })
    const toolkit: Toolkit.Toolkit<any> = Toolkit.make(...tools)
    const handlers = Object.fromEntries(specs.map((spec) => [
      spec.name,
      spec.interruptsItself !== undefined
        ? () => selfInterrupt(spec.interruptsItself!)
        : Handler.promise((args: Args) => spec.run(args, { key: spec.key?.(args) }), { onError: textOf })
    ]))
    const runtime = ManagedRuntime.make(
      Layer.merge(toolkit.toLayer(handlers as any) as Layer.Layer<any>, Turn.layer()) as Layer.Layer<any>
    )
    return {
      turn: (calls, ask) =>
        timed(async () => {
          const outcomes = await runtime.runPromise(
            Turn.run(toolkit, calls.map(({ args, id, name }) => ToolCall.make(id, name, args)), {
              // A tool that is deaf to its timeout is not waited for.
              grace: { reads: 0 },
              execution: ask?.limit,
              decide: ({ id }) =>
                ask?.decisions === undefined
                  ? undefined
                  : ask.decisions[id] === true
                  ? Approval.approve()
                  : Approval.deny(),
              finishReason: ask?.cutShort === true ? "length" : undefined,
              cancelOn: ask?.abortAfter === undefined ? undefined : Effect.as(Effect.sleep(ask.abortAfter), "user")
            }) as Effect.Effect<ReadonlyArray<any>, any, any>
          )
          return outcomes.map((one) => ({
            id: one.id,
            said: one.status === "ok" ? "ok" : one.status === "pending_approval" ? "pending" : "failed",
            text: one.status === "ok" ? textOf(one.result) : `${one.status}/${one.code}, effect ${one.effect}`
          }))
        }),
      close: () => runtime.dispose()
    }
  }
}

const usage = {
  inputTokens: { uncached: undefined, total: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined }
}

const resolver = (failureMode: "error" | "return"): Peer => ({
  name: failureMode === "error" ? "effect/ai resolver" : "effect/ai, failures returned",
  version:
    JSON.parse(readFileSync(new URL("../../../node_modules/effect/package.json", import.meta.url), "utf8")).version,
  open: (specs) => {
    const toolkit: Toolkit.Toolkit<any> = Toolkit.make(...specs.map((spec) => effectTool(spec, failureMode)))
    const handlers = Object.fromEntries(specs.map((spec) => [
      spec.name,
      (args: Args) => {
        if (spec.interruptsItself !== undefined) return selfInterrupt(spec.interruptsItself)
        const work = Effect.tryPromise({ try: () => spec.run(args, { key: undefined }), catch: textOf })
        if (spec.timeout === undefined) return work
        return Effect.timeoutOrElse(work, { duration: spec.timeout, orElse: () => Effect.fail("timeout") })
      }
    ]))
    let next: () => ReadonlyArray<any> = () => []
    let asked: Prompt.Prompt = Prompt.empty
    const model = LanguageModel.make({
      generateText: ({ prompt }) =>
        Effect.sync(() => {
          asked = prompt
          return next() as Array<any>
        }),
      streamText: () => Stream.empty
    })
    const runtime = ManagedRuntime.make(
      Layer.merge(
        toolkit.toLayer(handlers as any) as Layer.Layer<any>,
        Layer.effect(LanguageModel.LanguageModel, model)
      ) as Layer.Layer<any>
    )
    /** The request after the decisions: what the model is told there. */
    const decided = async (parts: ReadonlyArray<any>, decisions: Readonly<Record<string, boolean>>) => {
      const responses = parts.filter(({ type }) => type === "tool-approval-request").map((part) =>
        Prompt.toolApprovalResponsePart({ approvalId: part.approvalId, approved: decisions[part.toolCallId] === true })
      )
      next = () => [{ type: "finish", reason: "stop", usage, response: undefined }]
      const history = Prompt.concat(Prompt.make("go"), Prompt.fromResponseParts(parts as any))
      const prompt = Prompt.concat(history, Prompt.fromMessages([Prompt.toolMessage({ content: responses })]))
      await runtime.runPromise(LanguageModel.generateText({ prompt, toolkit }) as Effect.Effect<any, any, any>)
      return asked.content.flatMap((message): ReadonlyArray<any> => message.role === "tool" ? message.content : [])
    }
    return {
      turn: (calls, ask) =>
        timed(async () => {
          next = () => [
            ...calls.map(({ args, id, name }) => ({ type: "tool-call", id, name, params: args })),
            { type: "finish", reason: ask?.cutShort === true ? "length" : "tool-calls", usage, response: undefined }
          ]
          const fiber = runtime.runFork(
            LanguageModel.generateText({ prompt: "go", toolkit, concurrency: ask?.limit }) as Effect.Effect<
              any,
              any,
              any
            >
          )
          if (ask?.abortAfter !== undefined) {
            await sleep(ask.abortAfter)
            await Effect.runPromise(Fiber.interrupt(fiber))
          }
          const exit: Exit.Exit<any, any> = await Effect.runPromise(Fiber.await(fiber))
          if (Exit.isFailure(exit)) {
            throw new Error(
              Exit.hasInterrupts(exit) ? "interrupted" : textOf((exit.cause as any).reasons?.[0]?.error ?? exit.cause)
            )
          }
          const parts = exit.value.content as ReadonlyArray<any>
          const { decisions } = ask ?? {}
          if (decisions !== undefined) return answersOf(await decided(parts, decisions))
          return answersOf(parts)
        }),
      close: () => runtime.dispose()
    }
  }
})

/** The answers among the parts of a response, or of a prompt. */
const answersOf = (parts: ReadonlyArray<any>): ReadonlyArray<Answer> =>
  parts.flatMap((part): ReadonlyArray<Answer> =>
    part.type === "tool-result"
      ? [{
        id: part.id,
        said: part.isFailure === true ? "failed" : "ok",
        text: textOf(part.encodedResult ?? part.result)
      }]
      : part.type === "tool-approval-request"
      ? [{ id: part.toolCallId, said: "pending", text: "approval requested" }]
      : []
  )

const schema = z.object({ k: z.string().optional(), n: z.string().optional() })

const abortItself = async (ms: number): Promise<never> => {
  await sleep(ms)
  throw new DOMException("gave up", "AbortError")
}

const aiSdk: Peer = {
  name: "AI SDK",
  version: versionOf("ai"),
  open: (specs) => {
    const tools = Object.fromEntries(specs.map((spec) => [
      spec.name,
      tool({
        inputSchema: schema,
        execute: (args) =>
          spec.interruptsItself === undefined ? spec.run(args, { key: undefined }) : abortItself(spec.interruptsItself)
      })
    ]))
    const timeouts = specs.flatMap(({ timeout }) => timeout === undefined ? [] : [timeout])
    return {
      turn: (calls, ask) =>
        timed(() =>
          withSignal(ask, async (abortSignal) => {
            let told: ReadonlyArray<any> | undefined
            const model = new MockLanguageModelV4({
              doGenerate: async ({ prompt }) => ({
                content: (told = prompt).some(({ role }) => role === "assistant") ?
                  [] :
                  calls.map(({ args, id, name }) => ({
                    type: "tool-call" as const,
                    toolCallId: id,
                    toolName: name,
                    input: JSON.stringify(args)
                  })),
                finishReason: {
                  unified: ask?.cutShort === true ? "length" as const : "tool-calls" as const,
                  raw: undefined
                },
                usage: {
                  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
                  outputTokens: { total: 1, text: 1, reasoning: 0 }
                },
                warnings: []
              })
            })
            const settings = {
              model,
              tools,
              maxRetries: 0,
              toolApproval: Object.fromEntries(
                specs.filter(({ approval }) => approval === true).map(({ name }) => [name, "user-approval" as const])
              ),
              ...(abortSignal === undefined ? undefined : { abortSignal }),
              ...(ask?.limit === undefined ? undefined : { toolCallConcurrency: ask.limit }),
              ...(timeouts.length === 0 ? undefined : { timeout: { toolMs: timeouts[0]! } })
            }
            const { content, responseMessages } = await generateText({ ...settings, prompt: "go" })
            if (ask?.decisions !== undefined) {
              const responses = (content as ReadonlyArray<any>).filter(({ type }) => type === "tool-approval-request")
                .map((
                  part
                ) => ({
                  type: "tool-approval-response" as const,
                  approvalId: part.approvalId as string,
                  approved: ask.decisions![part.toolCall.toolCallId] === true
                }))
              const messages = [{ role: "user" as const, content: "go" }, ...responseMessages]
              await generateText({ ...settings, messages: [...messages, { role: "tool", content: responses }] })
              return told!.filter(({ role }) => role === "tool").flatMap(({ content }) => content).map((
                part: any
              ): Answer => ({
                id: part.toolCallId,
                said: part.output.type === "text" || part.output.type === "json" ? "ok" : "failed",
                text: textOf(part.output.value ?? part.output.reason ?? part.output.type)
              }))
            }
            return (content as ReadonlyArray<any>).flatMap((part): ReadonlyArray<Answer> =>
              part.type === "tool-result"
                ? [{ id: part.toolCallId, said: "ok", text: textOf(part.output) }]
                : part.type === "tool-error"
                ? [{ id: part.toolCallId, said: "failed", text: textOf(part.error) }]
                : part.type === "tool-approval-request"
                ? [{ id: part.toolCall.toolCallId, said: "pending", text: "approval requested" }]
                : []
            )
          })
        ),
      close: nothing
    }
  }
}

const langGraph: Peer = {
  name: "LangGraph ToolNode",
  version: versionOf("@langchain/langgraph"),
  open: (specs) => {
    const node = new ToolNode(specs.map((spec) =>
      langTool(async (args: Args) => {
        if (spec.interruptsItself !== undefined) return abortItself(spec.interruptsItself)
        // A tool of a graph asks for itself.
        if (spec.approval === true && interrupt(args.k) !== true) return "denied by the user"
        return spec.run(args, { key: undefined })
      }, { name: spec.name, description: spec.name, schema })
    ))
    const State = Annotation.Root({
      messages: Annotation<Array<any>>({ reducer: messagesStateReducer, default: () => [] })
    })
    const graph = new StateGraph(State)
      .addNode("tools", node)
      .addEdge(START, "tools")
      .addEdge("tools", END)
      .compile({ checkpointer: new MemorySaver() })
    const timeout = specs.find((spec) => spec.timeout !== undefined)?.timeout
    let thread = 0
    return {
      turn: (calls, ask) =>
        timed(() =>
          withSignal(ask, async (signal) => {
            const message = new AIMessage({
              content: "",
              tool_calls: calls.map(({ args, id, name }) => ({ id, name, args })),
              ...(ask?.cutShort === true ? { response_metadata: { finish_reason: "length" } } : undefined)
            })
            const config = {
              ...(signal === undefined ? undefined : { signal }),
              ...(ask?.limit === undefined ? undefined : { maxConcurrency: ask.limit })
            }
            // The node alone, but where a tool has to pause the graph around it. The timeout is one of the whole node.
            const asks = specs.some(({ approval }) => approval === true)
            const threaded = { ...config, configurable: { thread_id: String(thread++) } }
            let result: any = asks
              ? await graph.invoke({ messages: [message] }, threaded)
              : await node.invoke({ messages: [message] }, timeout === undefined ? config : { ...config, timeout })
            const decisions = ask?.decisions
            if (decisions !== undefined) {
              while (result.__interrupt__?.length > 0) {
                const { id } = calls.find(({ args }) => args.k === result.__interrupt__[0].value)!
                result = await graph.invoke(new Command({ resume: decisions[id] === true }), threaded)
              }
            }
            const answers = (result.messages as ReadonlyArray<any>).filter((one) => one.getType() === "tool").map((
              one
            ): Answer => ({
              id: one.tool_call_id,
              said: one.status === "error" ? "failed" : "ok",
              text: textOf(one.content)
            }))
            const paused = result.__interrupt__ as ReadonlyArray<unknown> | undefined
            return paused === undefined || paused.length === 0
              ? answers
              : [...answers, {
                id: calls.find(({ name }) => specs.find((spec) => spec.name === name)?.approval)!.id,
                said: "pending",
                text: "interrupted"
              }]
          })
        ),
      close: nothing
    }
  }
}

export const peers: ReadonlyArray<Peer> = [ours, resolver("error"), resolver("return"), aiSdk, langGraph]
