/**
 * Tools whose calls are merged into requests, watched: each request is written down as it is sent for the calls of turns, with what became
 * of each key.
 *
 * @since 0.1.0
 */
import type * as Tool from "effect/ai/Tool"
import * as AiTool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import * as Coalescer from "../../Coalescer.ts"
import * as ToolPolicy from "../../ToolPolicy.ts"
import type * as FakeTool from "../FakeTool.ts"
import { type MergedFacts, type ObservedRequest, snapshot } from "../laws/observation.ts"
import type { Delay } from "./observe.ts"

type AnyCoalescer = Coalescer.Coalescer<any, any, any, any>

/** A toolkit whose requests are seen, and what was seen of them. */
export interface Watched {
  readonly toolkit: Toolkit.Any
  readonly facts: ReadonlyMap<string, MergedFacts>
  readonly cached: ReadonlySet<string>
  readonly requests: () => ReadonlyArray<ObservedRequest>
}

/** What a call asks for is known of handlers alone that do nothing but ask. */
const mergingOf = (tool: Tool.Any, services: Context.Context<any>): Coalescer.Merging | undefined => {
  const merging = Context.get(tool.annotations, Coalescer.MergingAnnotation)
  const own = Context.getOrUndefined(services, Context.Service<any, Tool.Handler<string>>(tool.id))
  return merging !== undefined && own !== undefined && Coalescer.HandlerMark in own.handler ? merging : undefined
}

/** What a function of the tool's says, if it says anything. */
const attempt = <A>(f: () => A): A | undefined => {
  try {
    return f()
  } catch {
    return undefined
  }
}

const parsed = (args: unknown): unknown =>
  typeof args !== "string" ? args ?? {} : args.trim() === "" ? {} : JSON.parse(args)

/** The arguments of a call as its tool gets them; undefined where it refuses them. */
const decoded = (tool: Tool.Any, args: unknown): { readonly params: unknown } | undefined =>
  attempt(() => {
    const value = parsed(args)
    if (AiTool.isDynamic(tool) && (tool as AiTool.AnyDynamic).jsonSchema !== undefined) return { params: value }
    const exit = Schema.decodeUnknownExit(tool.parametersSchema as Schema.Decoder<unknown>)(value)
    return Exit.isSuccess(exit) ? { params: exit.value } : undefined
  })

const factsOf = (tool: Tool.Any, merging: Coalescer.Merging, lookup: string): MergedFacts => {
  const { answer, coalescer, wants } = merging
  const ask = <A>(args: unknown, f: (params: unknown) => A): A | undefined => {
    const own = decoded(tool, args)
    return own === undefined ? undefined : attempt(() => f(own.params))
  }
  const encode = Schema.encodeUnknownExit(tool.successSchema as Schema.Encoder<unknown>)
  return {
    lookup,
    size: coalescer.size,
    wants: (args) => ask(args, (params) => wants(params).map((key) => coalescer.parts.keyText(key))) ?? [],
    reach: (args) => ask(args, (params) => ToolPolicy.get(tool).keys?.(params)),
    answer: (args, found) =>
      ask(args, (params) => {
        const exit = answer(params, found as ReadonlyMap<string, Exit.Exit<unknown, unknown>>, Context.empty())
        const encoded = Exit.isSuccess(exit) ? encode(exit.value) : undefined
        return encoded !== undefined && Exit.isSuccess(encoded) ? { value: encoded.value } : undefined
      })
  }
}

/** Puts watchers around the requests of a toolkit, with a word whenever one begins or ends, and adds time to each. */
export const watchRequests = (
  toolkit: Toolkit.Any,
  services: Context.Context<any>,
  world: FakeTool.World,
  delayOf: (asked: (args: unknown, tool: string) => boolean, tenant: string) => Delay,
  onChange: () => void
): Watched => {
  const facts = new Map<string, MergedFacts>()
  const cached = new Set<string>()
  const found = new Map<FakeTool.Run, { readonly texts: ReadonlyArray<string>; found?: ReadonlyMap<string, unknown> }>()
  const watched = new Map<AnyCoalescer, AnyCoalescer>()
  const names = new Set<string>()

  const watch = (coalescer: AnyCoalescer): AnyCoalescer => {
    // Two may have one name.
    let { name } = coalescer
    for (let n = 2; names.has(name); n++) name = `${coalescer.name} ${n}`
    names.add(name)
    const { parts } = coalescer
    const request: typeof parts.request = (keys, about, callers) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.withFiber((fiber) => {
          const clock = Context.get(fiber.context, Clock.Clock)
          const texts = keys.map((key) => parts.keyText(key))
          const { after, before } = delayOf((args, tool) => {
            const own = facts.get(tool)
            return own?.lookup === name && own.wants(args).some((text) => texts.includes(text))
          }, about.tenant)
          const run = world.ask(name, parts.backend?.key, keys, about.tenant, clock.currentTimeMillisUnsafe())
          const seen: { readonly texts: ReadonlyArray<string>; found?: ReadonlyMap<string, unknown> } = { texts }
          found.set(run, seen)
          onChange()
          const own = parts.request(keys, about, callers)
          const delayed = before + after === 0
            ? own
            : Effect.andThen(Effect.sleep(before), after === 0 ? own : Effect.tap(own, Effect.sleep(after)))
          return Effect.onExit(restore(delayed), (exit) =>
            Effect.sync(() => {
              world.finish(
                run,
                Exit.isSuccess(exit) ? "ok" : Exit.hasDies(exit) ? "died" : "interrupted",
                clock.currentTimeMillisUnsafe()
              )
              if (Exit.isSuccess(exit)) seen.found = exit.value
              onChange()
            }))
        })
      )
    const known: typeof parts.cached = (context, tenant, key) => {
      const item = parts.cached(context, tenant, key)
      if (item !== undefined) cached.add(JSON.stringify([name, tenant, parts.keyText(key)]))
      return item
    }
    return { ...coalescer, name, parts: { ...parts, request, cached: known } }
  }

  const tools = (Object.values(toolkit.tools) as ReadonlyArray<Tool.Any>).map((tool) => {
    const merging = mergingOf(tool, services)
    if (merging === undefined) return tool
    let coalescer = watched.get(merging.coalescer)
    if (coalescer === undefined) watched.set(merging.coalescer, coalescer = watch(merging.coalescer))
    facts.set(tool.name, factsOf(tool, merging, coalescer.name))
    return tool.annotate(Coalescer.MergingAnnotation, { ...merging, coalescer }) as Tool.Any
  })
  return {
    toolkit: watched.size === 0 ? toolkit : Toolkit.make(...tools),
    facts,
    cached,
    requests: () => Array.from(found, ([run, seen]): ObservedRequest => ({ ...snapshot([run])[0]!, ...seen }))
  }
}
