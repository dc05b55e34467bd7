/** What a coalescer does. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Coalescer from "../../Coalescer.ts"

export const makeCoalescer = (options: Coalescer.Options<any, any, any, any, any, any, any>) => {
  const keyText = options.keyText ?? ((key: unknown) => typeof key === "string" ? key : JSON.stringify(key))
  const request = (keys: ReadonlyArray<unknown>, about: Coalescer.Request, _callers: number) =>
    Effect.map(options.lookup(keys as any, about), (answer) => {
      const found = new Map<string, Exit.Exit<unknown, unknown>>()
      const list = answer as ReadonlyArray<unknown>
      keys.forEach((key, i) => found.set(keyText(key), Exit.succeed(list[i])))
      return found
    })
  const load = (key: unknown) => Effect.flatMap(request([key], { tenant: "default" }, 1), (found) => found.get(keyText(key))!)
  return {
    name: options.name,
    window: 5,
    size: options.size ?? 10,
    timeout: 2000,
    load,
    loadAll: (keys: ReadonlyArray<unknown>) => Effect.forEach(keys, (key) => Effect.exit(load(key))),
    parts: { backend: options.backend, keyText, request, cached: () => undefined }
  }
}
