/** Effect's resolvers as lookups. */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as MutableHashMap from "effect/MutableHashMap"
import * as Option from "effect/Option"
import * as Request from "effect/Request"
import type * as RequestResolver from "effect/RequestResolver"
import { type Found, Paired, type Words } from "./pairing.ts"
import { errorOf } from "./request.ts"

/** Hands the keys of one request to a resolver, each as a request of Effect's, and waits until it has completed them. */
export const lookupOf = (resolver: RequestResolver.RequestResolver<any>, request: (key: any) => any, words: Words) =>
(
  keys: ReadonlyArray<unknown>
): Effect.Effect<Paired, unknown> =>
  Effect.contextWith((context: Context.Context<never>) =>
    Effect.suspend(() => new Work(resolver, request, words, keys, context).run())
  )

class Work {
  private readonly resolver: RequestResolver.RequestResolver<any>
  private readonly words: Words
  private readonly keys: ReadonlyArray<unknown>
  private readonly exits: Array<Exit.Exit<any, any> | undefined>
  private readonly groups = MutableHashMap.empty<unknown, Array<Request.Entry<any>>>()
  /** Entries that the resolver completes by itself, as a cache of its own does. */
  private readonly elsewhere = new Set<number>()
  private resume = (): void => {}

  constructor(
    resolver: RequestResolver.RequestResolver<any>,
    request: (key: any) => any,
    words: Words,
    keys: ReadonlyArray<unknown>,
    context: Context.Context<never>
  ) {
    this.resolver = resolver
    this.words = words
    this.keys = keys
    this.exits = keys.map(() => undefined)
    for (let i = 0; i < keys.length; i++) {
      try {
        this.add(i, request(keys[i]), context)
      } catch (error) {
        this.complete(i, Exit.die(error))
      }
    }
  }

  private add(i: number, request: any, context: Context.Context<never>): void {
    const entry = Request.makeEntry<any>({
      request,
      context: context as any,
      uninterruptible: false,
      completeUnsafe: (exit) => this.complete(i, exit)
    })
    if (this.resolver.preCheck?.(entry) === false) {
      if (this.exits[i] === undefined) this.elsewhere.add(i)
      return
    }
    const key = this.resolver.batchKey(entry)
    const group = Option.getOrUndefined(MutableHashMap.get(this.groups, key))
    if (group === undefined) MutableHashMap.set(this.groups, key, [entry])
    else group.push(entry)
  }

  private complete(i: number, exit: Exit.Exit<any, any>): void {
    this.exits[i] ??= exit
    if (this.elsewhere.delete(i) && this.elsewhere.size === 0) this.resume()
  }

  run(): Effect.Effect<Paired, unknown> {
    const groups = Array.from(this.groups)
    const all = Effect.forEach(
      groups,
      ([key, entries]) => Effect.exit(Effect.suspend(() => this.resolver.runAll(entries as any, key))),
      { concurrency: "unbounded" }
    )
    return Effect.flatMap(all, (ends): Effect.Effect<Paired, unknown> => {
      const failed = ends.find(Exit.isFailure)
      // Nobody has anything: the request has failed.
      if (failed !== undefined && this.exits.every((exit) => exit === undefined)) return Effect.failCause(failed.cause)
      ends.forEach((end, i) => {
        if (!Exit.isFailure(end)) return
        const failure = Exit.fail(this.words.failed(errorOf(end.cause)))
        for (const entry of groups[i]![1]) entry.completeUnsafe(failure)
      })
      return this.elsewhere.size === 0 ? this.found : Effect.flatMap(this.others, () => this.found)
    })
  }

  private readonly others = Effect.callback<void>((resume) => {
    this.resume = () => resume(Effect.void)
    if (this.elsewhere.size === 0) this.resume()
  })

  private readonly found = Effect.sync(() =>
    new Paired(this.exits.map((exit, i): Found[number] => {
      if (exit === undefined) {
        return Exit.fail(
          this.words.invalid(`the resolver has not completed its request number ${i + 1} of ${this.keys.length}`)
        )
      }
      // What a request fails with is its own; what breaks is not.
      return Exit.isSuccess(exit) || exit.cause.reasons.every(Cause.isFailReason)
        ? exit
        : Exit.fail(this.words.failed(errorOf(exit.cause)))
    }))
  )
}
